// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Linux error numbers for x86-64 (asm-generic/errno-base.h and errno.h).

use core::fmt;

/// A Linux error number, 1 to 4095.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Errno(pub u16);

impl Errno {
    /// The value a system call returns for this error.
    pub const fn to_return(self) -> usize {
        -(self.0 as isize) as usize
    }

    /// The standard name, `EINVAL`; `None` for a number Linux does not use.
    pub fn name(self) -> Option<&'static str> {
        NAMES.iter().find(|(e, _)| *e == self).map(|(_, name)| *name)
    }
}

impl fmt::Debug for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.write_str(name),
            None => write!(f, "errno {}", self.0),
        }
    }
}

pub const EPERM: Errno = Errno(1);
pub const ENOENT: Errno = Errno(2);
pub const ESRCH: Errno = Errno(3);
pub const EINTR: Errno = Errno(4);
pub const EIO: Errno = Errno(5);
pub const ENXIO: Errno = Errno(6);
pub const E2BIG: Errno = Errno(7);
pub const ENOEXEC: Errno = Errno(8);
pub const EBADF: Errno = Errno(9);
pub const ECHILD: Errno = Errno(10);
pub const EAGAIN: Errno = Errno(11);
pub const ENOMEM: Errno = Errno(12);
pub const EACCES: Errno = Errno(13);
pub const EFAULT: Errno = Errno(14);
pub const ENOTBLK: Errno = Errno(15);
pub const EBUSY: Errno = Errno(16);
pub const EEXIST: Errno = Errno(17);
pub const EXDEV: Errno = Errno(18);
pub const ENODEV: Errno = Errno(19);
pub const ENOTDIR: Errno = Errno(20);
pub const EISDIR: Errno = Errno(21);
pub const EINVAL: Errno = Errno(22);
pub const ENFILE: Errno = Errno(23);
pub const EMFILE: Errno = Errno(24);
pub const ENOTTY: Errno = Errno(25);
pub const ETXTBSY: Errno = Errno(26);
pub const EFBIG: Errno = Errno(27);
pub const ENOSPC: Errno = Errno(28);
pub const ESPIPE: Errno = Errno(29);
pub const EROFS: Errno = Errno(30);
pub const EMLINK: Errno = Errno(31);
pub const EPIPE: Errno = Errno(32);
pub const EDOM: Errno = Errno(33);
pub const ERANGE: Errno = Errno(34);
pub const EDEADLK: Errno = Errno(35);
pub const ENAMETOOLONG: Errno = Errno(36);
pub const ENOLCK: Errno = Errno(37);
pub const ENOSYS: Errno = Errno(38);
pub const ENOTEMPTY: Errno = Errno(39);
pub const ELOOP: Errno = Errno(40);
pub const ENOMSG: Errno = Errno(42);
pub const EIDRM: Errno = Errno(43);
pub const ECHRNG: Errno = Errno(44);
pub const EL2NSYNC: Errno = Errno(45);
pub const EL3HLT: Errno = Errno(46);
pub const EL3RST: Errno = Errno(47);
pub const ELNRNG: Errno = Errno(48);
pub const EUNATCH: Errno = Errno(49);
pub const ENOCSI: Errno = Errno(50);
pub const EL2HLT: Errno = Errno(51);
pub const EBADE: Errno = Errno(52);
pub const EBADR: Errno = Errno(53);
pub const EXFULL: Errno = Errno(54);
pub const ENOANO: Errno = Errno(55);
pub const EBADRQC: Errno = Errno(56);
pub const EBADSLT: Errno = Errno(57);
pub const EBFONT: Errno = Errno(59);
pub const ENOSTR: Errno = Errno(60);
pub const ENODATA: Errno = Errno(61);
pub const ETIME: Errno = Errno(62);
pub const ENOSR: Errno = Errno(63);
pub const ENONET: Errno = Errno(64);
pub const ENOPKG: Errno = Errno(65);
pub const EREMOTE: Errno = Errno(66);
pub const ENOLINK: Errno = Errno(67);
pub const EADV: Errno = Errno(68);
pub const ESRMNT: Errno = Errno(69);
pub const ECOMM: Errno = Errno(70);
pub const EPROTO: Errno = Errno(71);
pub const EMULTIHOP: Errno = Errno(72);
pub const EDOTDOT: Errno = Errno(73);
pub const EBADMSG: Errno = Errno(74);
pub const EOVERFLOW: Errno = Errno(75);
pub const ENOTUNIQ: Errno = Errno(76);
pub const EBADFD: Errno = Errno(77);
pub const EREMCHG: Errno = Errno(78);
pub const ELIBACC: Errno = Errno(79);
pub const ELIBBAD: Errno = Errno(80);
pub const ELIBSCN: Errno = Errno(81);
pub const ELIBMAX: Errno = Errno(82);
pub const ELIBEXEC: Errno = Errno(83);
pub const EILSEQ: Errno = Errno(84);
pub const ERESTART: Errno = Errno(85);
pub const ESTRPIPE: Errno = Errno(86);
pub const EUSERS: Errno = Errno(87);
pub const ENOTSOCK: Errno = Errno(88);
pub const EDESTADDRREQ: Errno = Errno(89);
pub const EMSGSIZE: Errno = Errno(90);
pub const EPROTOTYPE: Errno = Errno(91);
pub const ENOPROTOOPT: Errno = Errno(92);
pub const EPROTONOSUPPORT: Errno = Errno(93);
pub const ESOCKTNOSUPPORT: Errno = Errno(94);
pub const EOPNOTSUPP: Errno = Errno(95);
pub const EPFNOSUPPORT: Errno = Errno(96);
pub const EAFNOSUPPORT: Errno = Errno(97);
pub const EADDRINUSE: Errno = Errno(98);
pub const EADDRNOTAVAIL: Errno = Errno(99);
pub const ENETDOWN: Errno = Errno(100);
pub const ENETUNREACH: Errno = Errno(101);
pub const ENETRESET: Errno = Errno(102);
pub const ECONNABORTED: Errno = Errno(103);
pub const ECONNRESET: Errno = Errno(104);
pub const ENOBUFS: Errno = Errno(105);
pub const EISCONN: Errno = Errno(106);
pub const ENOTCONN: Errno = Errno(107);
pub const ESHUTDOWN: Errno = Errno(108);
pub const ETOOMANYREFS: Errno = Errno(109);
pub const ETIMEDOUT: Errno = Errno(110);
pub const ECONNREFUSED: Errno = Errno(111);
pub const EHOSTDOWN: Errno = Errno(112);
pub const EHOSTUNREACH: Errno = Errno(113);
pub const EALREADY: Errno = Errno(114);
pub const EINPROGRESS: Errno = Errno(115);
pub const ESTALE: Errno = Errno(116);
pub const EUCLEAN: Errno = Errno(117);
pub const ENOTNAM: Errno = Errno(118);
pub const ENAVAIL: Errno = Errno(119);
pub const EISNAM: Errno = Errno(120);
pub const EREMOTEIO: Errno = Errno(121);
pub const EDQUOT: Errno = Errno(122);
pub const ENOMEDIUM: Errno = Errno(123);
pub const EMEDIUMTYPE: Errno = Errno(124);
pub const ECANCELED: Errno = Errno(125);
pub const ENOKEY: Errno = Errno(126);
pub const EKEYEXPIRED: Errno = Errno(127);
pub const EKEYREVOKED: Errno = Errno(128);
pub const EKEYREJECTED: Errno = Errno(129);
pub const EOWNERDEAD: Errno = Errno(130);
pub const ENOTRECOVERABLE: Errno = Errno(131);
pub const ERFKILL: Errno = Errno(132);

static NAMES: &[(Errno, &str)] = &[
    (EPERM, "EPERM"),
    (ENOENT, "ENOENT"),
    (ESRCH, "ESRCH"),
    (EINTR, "EINTR"),
    (EIO, "EIO"),
    (ENXIO, "ENXIO"),
    (E2BIG, "E2BIG"),
    (ENOEXEC, "ENOEXEC"),
    (EBADF, "EBADF"),
    (ECHILD, "ECHILD"),
    (EAGAIN, "EAGAIN"),
    (ENOMEM, "ENOMEM"),
    (EACCES, "EACCES"),
    (EFAULT, "EFAULT"),
    (ENOTBLK, "ENOTBLK"),
    (EBUSY, "EBUSY"),
    (EEXIST, "EEXIST"),
    (EXDEV, "EXDEV"),
    (ENODEV, "ENODEV"),
    (ENOTDIR, "ENOTDIR"),
    (EISDIR, "EISDIR"),
    (EINVAL, "EINVAL"),
    (ENFILE, "ENFILE"),
    (EMFILE, "EMFILE"),
    (ENOTTY, "ENOTTY"),
    (ETXTBSY, "ETXTBSY"),
    (EFBIG, "EFBIG"),
    (ENOSPC, "ENOSPC"),
    (ESPIPE, "ESPIPE"),
    (EROFS, "EROFS"),
    (EMLINK, "EMLINK"),
    (EPIPE, "EPIPE"),
    (EDOM, "EDOM"),
    (ERANGE, "ERANGE"),
    (EDEADLK, "EDEADLK"),
    (ENAMETOOLONG, "ENAMETOOLONG"),
    (ENOLCK, "ENOLCK"),
    (ENOSYS, "ENOSYS"),
    (ENOTEMPTY, "ENOTEMPTY"),
    (ELOOP, "ELOOP"),
    (ENOMSG, "ENOMSG"),
    (EIDRM, "EIDRM"),
    (ECHRNG, "ECHRNG"),
    (EL2NSYNC, "EL2NSYNC"),
    (EL3HLT, "EL3HLT"),
    (EL3RST, "EL3RST"),
    (ELNRNG, "ELNRNG"),
    (EUNATCH, "EUNATCH"),
    (ENOCSI, "ENOCSI"),
    (EL2HLT, "EL2HLT"),
    (EBADE, "EBADE"),
    (EBADR, "EBADR"),
    (EXFULL, "EXFULL"),
    (ENOANO, "ENOANO"),
    (EBADRQC, "EBADRQC"),
    (EBADSLT, "EBADSLT"),
    (EBFONT, "EBFONT"),
    (ENOSTR, "ENOSTR"),
    (ENODATA, "ENODATA"),
    (ETIME, "ETIME"),
    (ENOSR, "ENOSR"),
    (ENONET, "ENONET"),
    (ENOPKG, "ENOPKG"),
    (EREMOTE, "EREMOTE"),
    (ENOLINK, "ENOLINK"),
    (EADV, "EADV"),
    (ESRMNT, "ESRMNT"),
    (ECOMM, "ECOMM"),
    (EPROTO, "EPROTO"),
    (EMULTIHOP, "EMULTIHOP"),
    (EDOTDOT, "EDOTDOT"),
    (EBADMSG, "EBADMSG"),
    (EOVERFLOW, "EOVERFLOW"),
    (ENOTUNIQ, "ENOTUNIQ"),
    (EBADFD, "EBADFD"),
    (EREMCHG, "EREMCHG"),
    (ELIBACC, "ELIBACC"),
    (ELIBBAD, "ELIBBAD"),
    (ELIBSCN, "ELIBSCN"),
    (ELIBMAX, "ELIBMAX"),
    (ELIBEXEC, "ELIBEXEC"),
    (EILSEQ, "EILSEQ"),
    (ERESTART, "ERESTART"),
    (ESTRPIPE, "ESTRPIPE"),
    (EUSERS, "EUSERS"),
    (ENOTSOCK, "ENOTSOCK"),
    (EDESTADDRREQ, "EDESTADDRREQ"),
    (EMSGSIZE, "EMSGSIZE"),
    (EPROTOTYPE, "EPROTOTYPE"),
    (ENOPROTOOPT, "ENOPROTOOPT"),
    (EPROTONOSUPPORT, "EPROTONOSUPPORT"),
    (ESOCKTNOSUPPORT, "ESOCKTNOSUPPORT"),
    (EOPNOTSUPP, "EOPNOTSUPP"),
    (EPFNOSUPPORT, "EPFNOSUPPORT"),
    (EAFNOSUPPORT, "EAFNOSUPPORT"),
    (EADDRINUSE, "EADDRINUSE"),
    (EADDRNOTAVAIL, "EADDRNOTAVAIL"),
    (ENETDOWN, "ENETDOWN"),
    (ENETUNREACH, "ENETUNREACH"),
    (ENETRESET, "ENETRESET"),
    (ECONNABORTED, "ECONNABORTED"),
    (ECONNRESET, "ECONNRESET"),
    (ENOBUFS, "ENOBUFS"),
    (EISCONN, "EISCONN"),
    (ENOTCONN, "ENOTCONN"),
    (ESHUTDOWN, "ESHUTDOWN"),
    (ETOOMANYREFS, "ETOOMANYREFS"),
    (ETIMEDOUT, "ETIMEDOUT"),
    (ECONNREFUSED, "ECONNREFUSED"),
    (EHOSTDOWN, "EHOSTDOWN"),
    (EHOSTUNREACH, "EHOSTUNREACH"),
    (EALREADY, "EALREADY"),
    (EINPROGRESS, "EINPROGRESS"),
    (ESTALE, "ESTALE"),
    (EUCLEAN, "EUCLEAN"),
    (ENOTNAM, "ENOTNAM"),
    (ENAVAIL, "ENAVAIL"),
    (EISNAM, "EISNAM"),
    (EREMOTEIO, "EREMOTEIO"),
    (EDQUOT, "EDQUOT"),
    (ENOMEDIUM, "ENOMEDIUM"),
    (EMEDIUMTYPE, "EMEDIUMTYPE"),
    (ECANCELED, "ECANCELED"),
    (ENOKEY, "ENOKEY"),
    (EKEYEXPIRED, "EKEYEXPIRED"),
    (EKEYREVOKED, "EKEYREVOKED"),
    (EKEYREJECTED, "EKEYREJECTED"),
    (EOWNERDEAD, "EOWNERDEAD"),
    (ENOTRECOVERABLE, "ENOTRECOVERABLE"),
    (ERFKILL, "ERFKILL"),
];
