// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The one table of all x86-64 system calls.
//!
//! Each row: number, name, status, note, handler. The kernel generates its dispatch from it ([`system_calls!`]), the
//! host the page `docs/reference/system-calls.md` and the answers of `unilith check` ([`ROWS`]).
//!
//! Status is one of
//! - `Full`: every flag and error case of the manual page that makes sense in a unikernel;
//! - `Partial`: works; the note says what is missing;
//! - `Refused`: answers an error on purpose; the note says why. With handler `none` it answers ENOSYS;
//! - `Missing`: not written yet; answers ENOSYS, is counted and reported to the host.
//!
//! The handler is a path below the posix crate's `calls` module, or `none`.
#![no_std]
#![forbid(unsafe_code)]

/// How far a call is implemented.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    Full,
    Partial,
    Refused,
    Missing,
}

/// One system call.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    pub number: u32,
    pub name: &'static str,
    pub status: Status,
    /// What is missing, or why it is refused; empty for the others.
    pub note: &'static str,
}

/// All calls, in ascending order of number.
pub static ROWS: &[Row] = {
    macro_rules! rows {
        ($($number:literal $name:ident $status:ident $note:literal $($handler:ident)::+;)*) => {
            &[$(Row { number: $number, name: stringify!($name), status: Status::$status, note: $note }),*]
        };
    }
    system_calls!(rows)
};

/// Numbers of calls are below this one.
pub const NUMBERS: usize = ROWS[ROWS.len() - 1].number as usize + 1;

/// The row of a number.
pub fn row(number: u32) -> Option<&'static Row> {
    ROWS.binary_search_by_key(&number, |row| row.number).ok().map(|i| &ROWS[i])
}

/// Expands `$with! { number name status note handler; … }`.
#[macro_export]
macro_rules! system_calls {
    ($with:ident) => {
        $with! {
            0 read Full "" io::read;
            1 write Full "" io::write;
            2 open Full "" open::open;
            3 close Full "" open::close;
            4 stat Full "" stat::stat;
            5 fstat Full "" stat::fstat;
            6 lstat Full "" stat::lstat;
            7 poll Full "" poll::poll;
            8 lseek Full "" io::lseek;
            9 mmap Partial "no MAP_HUGETLB pages" memory::mmap;
            10 mprotect Full "" memory::mprotect;
            11 munmap Full "" memory::munmap;
            12 brk Full "" memory::brk;
            13 rt_sigaction Full "" signals::rt_sigaction;
            14 rt_sigprocmask Full "" signals::rt_sigprocmask;
            15 rt_sigreturn Full "" signals::rt_sigreturn;
            16 ioctl Partial "descriptor flags, FIONREAD, terminals and what each file has" fcntl::ioctl;
            17 pread64 Full "" io::pread64;
            18 pwrite64 Full "" io::pwrite64;
            19 readv Full "" io::readv;
            20 writev Full "" io::writev;
            21 access Full "" stat::access;
            22 pipe Full "" special::pipe;
            23 select Full "" poll::select;
            24 sched_yield Full "" scheduling::sched_yield;
            25 mremap Full "" memory::mremap;
            26 msync Full "" memory::msync;
            27 mincore Full "" memory::mincore;
            28 madvise Partial "no MADV_MERGEABLE, MADV_COLLAPSE" memory::madvise;
            29 shmget Full "" sysv::memory::shmget;
            30 shmat Full "" sysv::memory::shmat;
            31 shmctl Full "" sysv::memory::shmctl;
            32 dup Full "" open::dup;
            33 dup2 Full "" open::dup2;
            34 pause Full "" signals::pause;
            35 nanosleep Full "" time::sleep::nanosleep;
            36 getitimer Full "" time::itimers::getitimer;
            37 alarm Full "" time::itimers::alarm;
            38 setitimer Full "" time::itimers::setitimer;
            39 getpid Full "" identity::getpid;
            40 sendfile Full "" transfer::sendfile;
            41 socket Partial "AF_INET, AF_INET6 (::1 and IPv4-mapped addresses), AF_UNIX, AF_NETLINK, AF_PACKET (no SOCK_PACKET)" sockets::socket;
            42 connect Full "" sockets::connect;
            43 accept Full "" sockets::accept;
            44 sendto Full "" sockets::sendto;
            45 recvfrom Full "" sockets::recvfrom;
            46 sendmsg Full "" sockets::sendmsg;
            47 recvmsg Full "" sockets::recvmsg;
            48 shutdown Full "" sockets::shutdown;
            49 bind Full "" sockets::bind;
            50 listen Full "" sockets::listen;
            51 getsockname Full "" sockets::getsockname;
            52 getpeername Full "" sockets::getpeername;
            53 socketpair Full "" sockets::socketpair;
            54 setsockopt Partial "TCP Fast Open is accepted and not used" sockets::setsockopt;
            55 getsockopt Full "" sockets::getsockopt;
            56 clone Full "" clone::clone;
            57 fork Full "" clone::fork;
            58 vfork Full "" clone::vfork;
            59 execve Full "" exec::execve;
            60 exit Full "" end::exit;
            61 wait4 Full "" children::wait4;
            62 kill Full "" signals::kill;
            63 uname Full "" system::uname;
            64 semget Full "" sysv::semaphores::semget;
            65 semop Full "" sysv::semaphores::semop;
            66 semctl Full "" sysv::semaphores::semctl;
            67 shmdt Full "" sysv::memory::shmdt;
            68 msgget Full "" sysv::queues::msgget;
            69 msgsnd Full "" sysv::queues::msgsnd;
            70 msgrcv Full "" sysv::queues::msgrcv;
            71 msgctl Full "" sysv::queues::msgctl;
            72 fcntl Full "" fcntl::fcntl;
            73 flock Full "" fcntl::flock;
            74 fsync Full "" attributes::fsync;
            75 fdatasync Full "" attributes::fdatasync;
            76 truncate Full "" attributes::truncate;
            77 ftruncate Full "" attributes::ftruncate;
            78 getdents Full "" names::getdents;
            79 getcwd Full "" names::getcwd;
            80 chdir Full "" names::chdir;
            81 fchdir Full "" names::fchdir;
            82 rename Full "" names::rename;
            83 mkdir Full "" names::mkdir;
            84 rmdir Full "" names::rmdir;
            85 creat Full "" open::creat;
            86 link Full "" names::link;
            87 unlink Full "" names::unlink;
            88 symlink Full "" names::symlink;
            89 readlink Full "" stat::readlink;
            90 chmod Full "" attributes::chmod;
            91 fchmod Full "" attributes::fchmod;
            92 chown Full "" attributes::chown;
            93 fchown Full "" attributes::fchown;
            94 lchown Full "" attributes::lchown;
            95 umask Full "" names::umask;
            96 gettimeofday Full "" time::clock::gettimeofday;
            97 getrlimit Full "" limits::getrlimit;
            98 getrusage Full "" time::clock::getrusage;
            99 sysinfo Full "" system::sysinfo;
            100 times Full "" time::clock::times;
            101 ptrace Partial "no hardware watchpoints (debug registers cannot be set)" ptrace::ptrace;
            102 getuid Full "" identity::users::getuid;
            103 syslog Full "" system::syslog;
            104 getgid Full "" identity::users::getgid;
            105 setuid Full "" identity::users::setuid;
            106 setgid Full "" identity::users::setgid;
            107 geteuid Full "" identity::users::geteuid;
            108 getegid Full "" identity::users::getegid;
            109 setpgid Full "" identity::sessions::setpgid;
            110 getppid Full "" identity::getppid;
            111 getpgrp Full "" identity::sessions::getpgrp;
            112 setsid Full "" identity::sessions::setsid;
            113 setreuid Full "" identity::users::setreuid;
            114 setregid Full "" identity::users::setregid;
            115 getgroups Full "" identity::users::getgroups;
            116 setgroups Full "" identity::users::setgroups;
            117 setresuid Full "" identity::users::setresuid;
            118 getresuid Full "" identity::users::getresuid;
            119 setresgid Full "" identity::users::setresgid;
            120 getresgid Full "" identity::users::getresgid;
            121 getpgid Full "" identity::sessions::getpgid;
            122 setfsuid Full "" identity::users::setfsuid;
            123 setfsgid Full "" identity::users::setfsgid;
            124 getsid Full "" identity::sessions::getsid;
            125 capget Full "" identity::capabilities::capget;
            126 capset Full "" identity::capabilities::capset;
            127 rt_sigpending Full "" signals::rt_sigpending;
            128 rt_sigtimedwait Full "" signals::rt_sigtimedwait;
            129 rt_sigqueueinfo Full "" signals::rt_sigqueueinfo;
            130 rt_sigsuspend Full "" signals::rt_sigsuspend;
            131 sigaltstack Full "" signals::sigaltstack;
            132 utime Full "" attributes::utime;
            133 mknod Full "" names::mknod;
            134 uselib Refused "removed from Linux for x86-64" none;
            135 personality Partial "remembered only" prctl::personality;
            136 ustat Full "" file_systems::ustat;
            137 statfs Full "" stat::statfs;
            138 fstatfs Full "" stat::fstatfs;
            139 sysfs Full "" file_systems::sysfs;
            140 getpriority Full "" scheduling::getpriority;
            141 setpriority Full "" scheduling::setpriority;
            142 sched_setparam Full "" scheduling::sched_setparam;
            143 sched_getparam Full "" scheduling::sched_getparam;
            144 sched_setscheduler Full "" scheduling::sched_setscheduler;
            145 sched_getscheduler Full "" scheduling::sched_getscheduler;
            146 sched_get_priority_max Full "" scheduling::sched_get_priority_max;
            147 sched_get_priority_min Full "" scheduling::sched_get_priority_min;
            148 sched_rr_get_interval Full "" scheduling::sched_rr_get_interval;
            149 mlock Full "" memory::mlock;
            150 munlock Full "" memory::munlock;
            151 mlockall Full "" memory::mlockall;
            152 munlockall Full "" memory::munlockall;
            153 vhangup Full "" system::vhangup;
            154 modify_ldt Refused "segments of the program's own do not fit one address space with the kernel" none;
            155 pivot_root Full "" mounts::pivot_root;
            156 _sysctl Refused "removed from Linux" none;
            157 prctl Partial "no MM, SYSCALL_USER_DISPATCH, SCHED_CORE, TSC, speculation control" prctl::prctl;
            158 arch_prctl Partial "ARCH_SET_GS is refused: the GS base belongs to the kernel" arch::arch_prctl;
            159 adjtimex Partial "reads; the clock is set, not adjusted" time::clock::adjtimex;
            160 setrlimit Full "" limits::setrlimit;
            161 chroot Full "" names::chroot;
            162 sync Full "" attributes::sync;
            163 acct Refused "no process accounting" none;
            164 settimeofday Full "" time::clock::settimeofday;
            165 mount Partial "tmpfs, proc, sysfs, devtmpfs, devpts, mqueue, ext4, overlay, and what is bound or moved, shared and not" mounts::mount;
            166 umount2 Full "" mounts::umount2;
            167 swapon Refused "there is no swap" none;
            168 swapoff Refused "there is no swap" none;
            169 reboot Full "" system::reboot;
            170 sethostname Full "" system::sethostname;
            171 setdomainname Full "" system::setdomainname;
            172 iopl Refused "the program does not own the machine's devices" none;
            173 ioperm Refused "the program does not own the machine's devices" none;
            174 create_module Refused "removed from Linux" none;
            175 init_module Refused "the kernel of a unikernel is fixed when it is built" none;
            176 delete_module Refused "the kernel of a unikernel is fixed when it is built" none;
            177 get_kernel_syms Refused "removed from Linux" none;
            178 query_module Refused "removed from Linux" none;
            179 quotactl Refused "no quotas" none;
            180 nfsservctl Refused "removed from Linux" none;
            181 getpmsg Refused "never implemented by Linux" none;
            182 putpmsg Refused "never implemented by Linux" none;
            183 afs_syscall Refused "never implemented by Linux" none;
            184 tuxcall Refused "never implemented by Linux" none;
            185 security Refused "never implemented by Linux" none;
            186 gettid Full "" identity::gettid;
            187 readahead Full "" attributes::readahead;
            188 setxattr Full "" attributes::setxattr;
            189 lsetxattr Full "" attributes::lsetxattr;
            190 fsetxattr Full "" attributes::fsetxattr;
            191 getxattr Full "" attributes::getxattr;
            192 lgetxattr Full "" attributes::lgetxattr;
            193 fgetxattr Full "" attributes::fgetxattr;
            194 listxattr Full "" attributes::listxattr;
            195 llistxattr Full "" attributes::llistxattr;
            196 flistxattr Full "" attributes::flistxattr;
            197 removexattr Full "" attributes::removexattr;
            198 lremovexattr Full "" attributes::lremovexattr;
            199 fremovexattr Full "" attributes::fremovexattr;
            200 tkill Full "" signals::tkill;
            201 time Full "" time::clock::time;
            202 futex Partial "a file mapped shared at two places counts as two words; owners inherit no priority" futex::futex;
            203 sched_setaffinity Full "" scheduling::sched_setaffinity;
            204 sched_getaffinity Full "" scheduling::sched_getaffinity;
            205 set_thread_area Refused "not a call of 64-bit programs" none;
            206 io_setup Full "" aio::io_setup;
            207 io_destroy Full "" aio::io_destroy;
            208 io_getevents Full "" aio::io_getevents;
            209 io_submit Partial "no IOCB_CMD_POLL" aio::io_submit;
            210 io_cancel Full "" aio::io_cancel;
            211 get_thread_area Refused "not a call of 64-bit programs" none;
            212 lookup_dcookie Refused "removed from Linux" none;
            213 epoll_create Full "" poll::epoll_create;
            214 epoll_ctl_old Refused "never implemented by Linux" none;
            215 epoll_wait_old Refused "never implemented by Linux" none;
            216 remap_file_pages Full "" memory::remap_file_pages;
            217 getdents64 Full "" names::getdents64;
            218 set_tid_address Full "" clone::set_tid_address;
            219 restart_syscall Full "" signals::restart_syscall;
            220 semtimedop Full "" sysv::semaphores::semtimedop;
            221 fadvise64 Full "" attributes::fadvise64;
            222 timer_create Full "" time::posix_timers::timer_create;
            223 timer_settime Full "" time::posix_timers::timer_settime;
            224 timer_gettime Full "" time::posix_timers::timer_gettime;
            225 timer_getoverrun Full "" time::posix_timers::timer_getoverrun;
            226 timer_delete Full "" time::posix_timers::timer_delete;
            227 clock_settime Full "" time::clock::clock_settime;
            228 clock_gettime Full "" time::clock::clock_gettime;
            229 clock_getres Full "" time::clock::clock_getres;
            230 clock_nanosleep Full "" time::sleep::clock_nanosleep;
            231 exit_group Full "" end::exit_group;
            232 epoll_wait Full "" poll::epoll_wait;
            233 epoll_ctl Full "" poll::epoll_ctl;
            234 tgkill Full "" signals::tgkill;
            235 utimes Full "" attributes::utimes;
            236 vserver Refused "never implemented by Linux" none;
            237 mbind Full "" numa::mbind;
            238 set_mempolicy Full "" numa::set_mempolicy;
            239 get_mempolicy Full "" numa::get_mempolicy;
            240 mq_open Full "" message_queues::mq_open;
            241 mq_unlink Full "" message_queues::mq_unlink;
            242 mq_timedsend Full "" message_queues::mq_timedsend;
            243 mq_timedreceive Full "" message_queues::mq_timedreceive;
            244 mq_notify Full "" message_queues::mq_notify;
            245 mq_getsetattr Full "" message_queues::mq_getsetattr;
            246 kexec_load Refused "the machine has one kernel" none;
            247 waitid Full "" children::waitid;
            248 add_key Partial "types keyring, user, logon and big_key" keys::add_key;
            249 request_key Partial "there is no upcall (/sbin/request-key)" keys::request_key;
            250 keyctl Partial "not: public keys, Diffie-Hellman, watches" keys::keyctl;
            251 ioprio_set Full "" scheduling::ioprio_set;
            252 ioprio_get Full "" scheduling::ioprio_get;
            253 inotify_init Full "" inotify::inotify_init;
            254 inotify_add_watch Full "" inotify::inotify_add_watch;
            255 inotify_rm_watch Full "" inotify::inotify_rm_watch;
            256 migrate_pages Full "" numa::migrate_pages;
            257 openat Full "" open::openat;
            258 mkdirat Full "" names::mkdirat;
            259 mknodat Full "" names::mknodat;
            260 fchownat Full "" attributes::fchownat;
            261 futimesat Full "" attributes::futimesat;
            262 newfstatat Full "" stat::newfstatat;
            263 unlinkat Full "" names::unlinkat;
            264 renameat Full "" names::renameat;
            265 linkat Full "" names::linkat;
            266 symlinkat Full "" names::symlinkat;
            267 readlinkat Full "" stat::readlinkat;
            268 fchmodat Full "" attributes::fchmodat;
            269 faccessat Full "" stat::faccessat;
            270 pselect6 Full "" poll::pselect6;
            271 ppoll Full "" poll::ppoll;
            272 unshare Full "" clone::unshare;
            273 set_robust_list Full "" futex::set_robust_list;
            274 get_robust_list Full "" futex::get_robust_list;
            275 splice Full "" transfer::splice;
            276 tee Full "" transfer::tee;
            277 sync_file_range Full "" attributes::sync_file_range;
            278 vmsplice Partial "copies: pages are not moved" transfer::vmsplice;
            279 move_pages Full "" numa::move_pages;
            280 utimensat Full "" attributes::utimensat;
            281 epoll_pwait Full "" poll::epoll_pwait;
            282 signalfd Full "" signals::signalfd;
            283 timerfd_create Full "" time::timerfd::timerfd_create;
            284 eventfd Full "" special::eventfd;
            285 fallocate Full "" attributes::fallocate;
            286 timerfd_settime Full "" time::timerfd::timerfd_settime;
            287 timerfd_gettime Full "" time::timerfd::timerfd_gettime;
            288 accept4 Full "" sockets::accept4;
            289 signalfd4 Full "" signals::signalfd4;
            290 eventfd2 Full "" special::eventfd2;
            291 epoll_create1 Full "" poll::epoll_create1;
            292 dup3 Full "" open::dup3;
            293 pipe2 Full "" special::pipe2;
            294 inotify_init1 Full "" inotify::inotify_init1;
            295 preadv Full "" io::preadv;
            296 pwritev Full "" io::pwritev;
            297 rt_tgsigqueueinfo Full "" signals::rt_tgsigqueueinfo;
            298 perf_event_open Refused "no performance counters in the guest" none;
            299 recvmmsg Full "" sockets::recvmmsg;
            300 fanotify_init Refused "no file notifications" none;
            301 fanotify_mark Refused "no file notifications" none;
            302 prlimit64 Full "" limits::prlimit64;
            303 name_to_handle_at Partial "of file systems in memory" handles::name_to_handle_at;
            304 open_by_handle_at Partial "of file systems in memory" handles::open_by_handle_at;
            305 clock_adjtime Partial "reads; the clock is set, not adjusted" time::clock::clock_adjtime;
            306 syncfs Full "" attributes::syncfs;
            307 sendmmsg Full "" sockets::sendmmsg;
            308 setns Full "" namespaces::setns;
            309 getcpu Full "" scheduling::getcpu;
            310 process_vm_readv Full "" process_memory::process_vm_readv;
            311 process_vm_writev Full "" process_memory::process_vm_writev;
            312 kcmp Full "" kcmp::kcmp;
            313 finit_module Refused "the kernel of a unikernel is fixed when it is built" none;
            314 sched_setattr Partial "SCHED_DEADLINE goes first and is held to no budget" scheduling::sched_setattr;
            315 sched_getattr Full "" scheduling::sched_getattr;
            316 renameat2 Full "" names::renameat2;
            317 seccomp Full "" seccomp::seccomp;
            318 getrandom Full "" system::getrandom;
            319 memfd_create Partial "no MFD_HUGETLB" special::memfd_create;
            320 kexec_file_load Refused "the machine has one kernel" none;
            321 bpf Refused "the overlay attaches eBPF programs from outside" none;
            322 execveat Full "" exec::execveat;
            323 userfaultfd Refused "page faults are the kernel's alone" none;
            324 membarrier Full "" barriers::membarrier;
            325 mlock2 Full "" memory::mlock2;
            326 copy_file_range Full "" transfer::copy_file_range;
            327 preadv2 Full "" io::preadv2;
            328 pwritev2 Full "" io::pwritev2;
            329 pkey_mprotect Partial "no protection keys: only key -1, as on a processor without them" memory::pkey_mprotect;
            330 pkey_alloc Refused "no protection keys: ENOSPC, as on a processor without them" memory::pkey_alloc;
            331 pkey_free Refused "no protection keys: EINVAL" memory::pkey_free;
            332 statx Full "" stat::statx;
            333 io_pgetevents Full "" aio::io_pgetevents;
            334 rseq Full "" rseq::rseq;
            424 pidfd_send_signal Full "" pidfd::pidfd_send_signal;
            425 io_uring_setup Partial "with --set io_uring=on" uring::io_uring_setup;
            426 io_uring_enter Partial "with --set io_uring=on; opening a FIFO waits in the call; names of linked requests are read when their turn comes" uring::io_uring_enter;
            427 io_uring_register Partial "with --set io_uring=on" uring::io_uring_register;
            428 open_tree Full "" mount_trees::open_tree;
            429 move_mount Full "" mount_trees::move_mount;
            430 fsopen Full "" mount_contexts::fsopen;
            431 fsconfig Full "" mount_contexts::fsconfig;
            432 fsmount Full "" mount_contexts::fsmount;
            433 fspick Full "" mount_contexts::fspick;
            434 pidfd_open Full "" pidfd::pidfd_open;
            435 clone3 Partial "no CLONE_INTO_CGROUP" clone::clone3;
            436 close_range Full "" open::close_range;
            437 openat2 Full "" open::openat2;
            438 pidfd_getfd Full "" pidfd::pidfd_getfd;
            439 faccessat2 Full "" stat::faccessat2;
            440 process_madvise Full "" descriptor_memory::process_madvise;
            441 epoll_pwait2 Full "" poll::epoll_pwait2;
            442 mount_setattr Partial "no MOUNT_ATTR_IDMAP" mount_trees::mount_setattr;
            443 quotactl_fd Refused "no quotas" none;
            444 landlock_create_ruleset Full "" landlock::landlock_create_ruleset;
            445 landlock_add_rule Full "" landlock::landlock_add_rule;
            446 landlock_restrict_self Full "" landlock::landlock_restrict_self;
            447 memfd_secret Refused "ENOSYS, as Linux 6.1 answers without secretmem.enable" none;
            448 process_mrelease Full "" descriptor_memory::process_mrelease;
            449 futex_waitv Full "" futex::futex_waitv;
            450 set_mempolicy_home_node Full "" numa::set_mempolicy_home_node;
            451 cachestat Full "" memory::cachestat;
            452 fchmodat2 Full "" attributes::fchmodat2;
            453 map_shadow_stack Refused "no shadow stacks" none;
            454 futex_wake Full "" futex::futex_wake;
            455 futex_wait Full "" futex::futex_wait;
            456 futex_requeue Full "" futex::futex_requeue;
            457 statmount Refused "programs fall back to /proc/self/mountinfo" none;
            458 listmount Refused "programs fall back to /proc/self/mountinfo" none;
            459 lsm_get_self_attr Refused "no security modules" none;
            460 lsm_set_self_attr Refused "no security modules" none;
            461 lsm_list_modules Refused "no security modules" none;
            462 mseal Full "" memory::mseal;
        }
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_ascend_and_notes_say_what_their_status_needs() {
        assert!(ROWS.windows(2).all(|w| w[0].number < w[1].number));
        for row in ROWS {
            let needs_note = matches!(row.status, Status::Partial | Status::Refused);
            assert_eq!(needs_note, !row.note.is_empty(), "{}", row.name);
        }
    }
}
