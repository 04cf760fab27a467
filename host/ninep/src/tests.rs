// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A client of raw messages, so that it can send what a good one never would.

use crate::{
    Access, Export, Limits, Watches,
    export::MAX_ATTRIBUTE,
    server::{Gift, Server},
    wire::{HEADER, kind},
};
use rustix::io::Errno;
use std::{fs, os::unix::fs::PermissionsExt, path::Path, sync::Arc};
use tempfile::TempDir;

const ROOT: u32 = 1;
/// What the client may have of this process.
const DESCRIPTORS: usize = 200;
const LIMITS: Limits = Limits { descriptors: DESCRIPTORS, given: 3 };
const O_WRONLY: u32 = 1;
const O_RDWR: u32 = 2;
const O_TRUNC: u32 = 0o1000;

struct Client {
    server: Server,
    /// What came with the last answer.
    gift: Option<Gift>,
    folder: TempDir,
}

/// Of one tree without a name.
fn server(folder: &Path, access: Access) -> Server {
    let mut server = Server::new(LIMITS);
    assert!(server.add(b"", Arc::new(Export::open(folder, access).unwrap())));
    server
}

/// The fields of a message.
#[derive(Clone, Copy)]
enum Field<'a> {
    Half(u16),
    Word(u32),
    Long(u64),
    Text(&'a str),
    Raw(&'a [u8]),
}
use Field::{Half, Long, Raw, Text, Word};

fn message(kind: u8, fields: &[Field]) -> Vec<u8> {
    let mut out = vec![kind, 7, 0];
    for field in fields {
        match field {
            Half(n) => out.extend(n.to_le_bytes()),
            Word(n) => out.extend(n.to_le_bytes()),
            Long(n) => out.extend(n.to_le_bytes()),
            Text(t) => {
                out.extend((t.len() as u16).to_le_bytes());
                out.extend(t.bytes());
            }
            Raw(bytes) => out.extend(*bytes),
        }
    }
    out
}

impl Client {
    fn new(read_only: bool) -> Client {
        Client::of(if read_only { Access::ReadOnly } else { Access::All })
    }

    fn of(access: Access) -> Client {
        let folder = tempfile::tempdir().unwrap();
        let shared = folder.path().join("shared");
        fs::create_dir(&shared).unwrap();
        fs::write(folder.path().join("secret"), "secret").unwrap();
        let server = server(&shared, access);
        let mut client = Client { server, gift: None, folder };
        client.ask(kind::VERSION, &[Word(64 << 10), Text("9P2000.L")]).unwrap();
        client.ask(kind::ATTACH, &[Word(ROOT), Word(u32::MAX), Text("root"), Text(""), Word(0)]).unwrap();
        client
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.folder.path().join("shared").join(name)
    }

    /// The body of the answer.
    fn ask(&mut self, kind: u8, fields: &[Field]) -> Result<Vec<u8>, Errno> {
        let mut out = Vec::new();
        self.gift = self.server.answer(&message(kind, fields), &mut out);
        assert_eq!(u32::from_le_bytes(out[..4].try_into().unwrap()) as usize, out.len());
        assert_eq!(&out[5..HEADER], [7, 0]);
        if out[4] == kind::LERROR + 1 {
            return Err(Errno::from_raw_os_error(word(&out, HEADER) as i32));
        }
        assert_eq!(out[4], kind + 1);
        Ok(out[HEADER..].to_vec())
    }

    fn walk(&mut self, to: u32, names: &[&str]) -> Result<Vec<u8>, Errno> {
        let mut fields = vec![Word(ROOT), Word(to), Half(names.len() as u16)];
        fields.extend(names.iter().map(|n| Text(n)));
        self.ask(kind::WALK, &fields)
    }

    fn open(&mut self, fid: u32, name: &str, flags: u32) -> Result<Vec<u8>, Errno> {
        self.walk(fid, &[name])?;
        self.ask(kind::LOPEN, &[Word(fid), Word(flags)])
    }

    fn write(&mut self, fid: u32, offset: u64, data: &str) -> Result<Vec<u8>, Errno> {
        let data = data.as_bytes();
        self.ask(kind::WRITE, &[Word(fid), Long(offset), Word(data.len() as u32), Raw(data)])
    }

    fn read(&mut self, fid: u32) -> Result<String, Errno> {
        let body = self.ask(kind::READ, &[Word(fid), Long(0), Word(60000)])?;
        assert_eq!(word(&body, 0) as usize, body.len() - 4);
        Ok(String::from_utf8(body[4..].to_vec()).unwrap())
    }

    fn set_attr(&mut self, fid: u32, valid: u32, mode: u32, size: u64) -> Result<Vec<u8>, Errno> {
        let rest = [Long(0); 4];
        let fields =
            [&[Word(fid), Word(valid), Word(mode), Word(0), Word(0), Long(size)][..], &rest].concat();
        self.ask(kind::SETATTR, &fields)
    }

    fn names(&mut self, fid: u32) -> Vec<String> {
        let (mut names, mut offset) = (Vec::new(), 0);
        loop {
            let body = self.ask(kind::READDIR, &[Word(fid), Long(offset), Word(512)]).unwrap();
            if body.len() == 4 {
                names.sort();
                return names;
            }
            let mut at = 4;
            while at < body.len() {
                offset = u64::from_le_bytes(body[at + 13..at + 21].try_into().unwrap());
                let length = usize::from(u16::from_le_bytes(body[at + 22..at + 24].try_into().unwrap()));
                names.push(String::from_utf8(body[at + 24..at + 24 + length].to_vec()).unwrap());
                at += 24 + length;
            }
        }
    }
}

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap())
}

#[test]
fn files_are_made_written_read_renamed_and_removed() {
    let mut c = Client::new(false);
    c.ask(kind::MKNOD, &[Word(ROOT), Text("a"), Word(0o100_640), Word(0), Word(0), Word(0)]).unwrap();
    assert_eq!(fs::metadata(c.path("a")).unwrap().permissions().mode() & 0o7777, 0o640, "not the umask's");
    c.open(2, "a", O_RDWR).unwrap();
    c.write(2, 0, "hello").unwrap();
    c.write(2, 5, " world").unwrap();
    c.ask(kind::FSYNC, &[Word(2), Word(0)]).unwrap();
    assert_eq!(c.read(2).unwrap(), "hello world");
    c.ask(kind::MKDIR, &[Word(ROOT), Text("d"), Word(0o755), Word(0)]).unwrap();
    c.walk(3, &["d"]).unwrap();
    c.ask(kind::RENAMEAT, &[Word(ROOT), Text("a"), Word(3), Text("b")]).unwrap();
    assert_eq!(fs::read_to_string(c.path("d/b")).unwrap(), "hello world");
    assert_eq!(c.ask(kind::UNLINKAT, &[Word(ROOT), Text("d"), Word(0x200)]), Err(Errno::NOTEMPTY));
    c.ask(kind::UNLINKAT, &[Word(3), Text("b"), Word(0)]).unwrap();
    // Open files live on without a name, attributes included.
    assert_eq!(c.read(2).unwrap(), "hello world");
    c.ask(kind::GETATTR, &[Word(2), Long(0x7ff)]).unwrap();
    c.ask(kind::UNLINKAT, &[Word(ROOT), Text("d"), Word(0x200)]).unwrap();
    c.ask(kind::CLUNK, &[Word(2)]).unwrap();
    assert_eq!(c.read(2), Err(Errno::BADF));
}

#[test]
fn a_long_directory_is_listed_once_over_many_messages() {
    let mut c = Client::new(false);
    let mut wanted: Vec<String> = (0..300).map(|n| format!("file-{n}")).collect();
    wanted.iter().for_each(|name| fs::write(c.path(name), "").unwrap());
    wanted.extend([".".into(), "..".into()]);
    wanted.sort();
    c.walk(2, &[]).unwrap();
    c.ask(kind::LOPEN, &[Word(2), Word(0)]).unwrap();
    assert_eq!(c.names(2), wanted);
    assert_eq!(c.names(2), wanted, "from the start again");
}

#[test]
fn size_mode_and_links_change_as_asked() {
    let mut c = Client::new(false);
    fs::write(c.path("a"), "0123456789").unwrap();
    c.walk(2, &["a"]).unwrap();
    c.set_attr(2, 1 | 8, 0o600, 4).unwrap();
    assert_eq!(fs::read_to_string(c.path("a")).unwrap(), "0123");
    assert_eq!(fs::metadata(c.path("a")).unwrap().permissions().mode() & 0o7777, 0o600);
    c.ask(kind::LINK, &[Word(ROOT), Word(2), Text("b")]).unwrap();
    assert_eq!(fs::read_to_string(c.path("b")).unwrap(), "0123");
    c.ask(kind::SYMLINK, &[Word(ROOT), Text("s"), Text("../x"), Word(0)]).unwrap();
    c.walk(3, &["s"]).unwrap();
    let target = c.ask(kind::READLINK, &[Word(3)]).unwrap();
    assert_eq!(&target[2..], b"../x");
    assert_eq!(c.ask(kind::READLINK, &[Word(2)]), Err(Errno::INVAL));
}

#[test]
fn no_name_leads_out_of_the_export() {
    let mut c = Client::new(false);
    std::os::unix::fs::symlink("..", c.path("up")).unwrap();
    std::os::unix::fs::symlink("../secret", c.path("link")).unwrap();
    std::os::unix::fs::symlink("/etc", c.path("etc")).unwrap();
    for names in
        [&[".."][..], &["."], &["../secret"], &["/etc/passwd"], &["up", "secret"], &["etc", "passwd"]]
    {
        // A walk that stops half-way makes no handle.
        let stopped = c.walk(2, names).map(|body| body[0] as usize);
        assert!(stopped.is_err() || stopped.is_ok_and(|n| n < names.len()), "{names:?}");
        assert_eq!(c.ask(kind::GETATTR, &[Word(2), Long(0x7ff)]), Err(Errno::BADF), "{names:?}");
    }
    // A link is itself, and is not opened.
    assert_eq!(c.open(2, "link", 0), Err(Errno::LOOP));
    for name in ["..", "../x", "/tmp/x", "", "."] {
        let made = c.ask(kind::MKDIR, &[Word(ROOT), Text(name), Word(0o755), Word(0)]);
        assert!(made.is_err(), "{name}");
        let moved = c.ask(kind::RENAMEAT, &[Word(ROOT), Text("up"), Word(ROOT), Text(name)]);
        assert!(moved.is_err(), "{name}");
    }
    // Links made by the machine lead nowhere either.
    c.ask(kind::SYMLINK, &[Word(ROOT), Text("mine"), Text("../secret"), Word(0)]).unwrap();
    assert_eq!(c.open(3, "mine", O_RDWR), Err(Errno::LOOP));
    assert_eq!(fs::read_to_string(c.folder.path().join("secret")).unwrap(), "secret");
}

#[test]
fn a_directory_moved_out_by_the_host_lets_nobody_climb_from_there() {
    let mut c = Client::new(false);
    fs::create_dir(c.path("d")).unwrap();
    c.walk(2, &["d"]).unwrap();
    fs::rename(c.path("d"), c.folder.path().join("d")).unwrap();
    assert_eq!(c.ask(kind::WALK, &[Word(2), Word(3), Half(1), Text("..")]), Err(Errno::INVAL));
}

#[test]
fn devices_are_neither_made_nor_opened_and_fifos_do_not_block() {
    let mut c = Client::new(false);
    for kind_bits in [0o020_000, 0o060_000, 0o120_000, 0o040_000] {
        let fields = [Word(ROOT), Text("n"), Word(kind_bits | 0o666), Word(1), Word(3), Word(0)];
        assert_eq!(c.ask(kind::MKNOD, &fields), Err(Errno::PERM), "{kind_bits:o}");
    }
    c.ask(kind::MKNOD, &[Word(ROOT), Text("p"), Word(0o010_600), Word(0), Word(0), Word(0)]).unwrap();
    assert_eq!(c.open(2, "p", 0), Err(Errno::NXIO));
    let mut devices = Client {
        server: server(Path::new("/dev"), Access::All),
        gift: None,
        folder: tempfile::tempdir().unwrap(),
    };
    devices.ask(kind::ATTACH, &[Word(ROOT), Word(u32::MAX), Text("root"), Text(""), Word(0)]).unwrap();
    assert_eq!(devices.open(2, "null", O_RDWR), Err(Errno::NXIO));
}

/// Needs a host that lets this process mount: root with namespaces.
#[test]
fn what_is_mounted_below_a_directory_that_is_read_only_is_written_to() {
    use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
    let mut c = Client::of(Access::ReadOnlyAbove);
    for name in ["below", "fixed"] {
        fs::create_dir(c.path(name)).unwrap();
    }
    let tmpfs = |name: &str, flags| mount("tmpfs", c.path(name), "tmpfs", flags, None::<&std::ffi::CStr>);
    if let Err(e) = tmpfs("below", MountFlags::empty()) {
        eprintln!("skipped: this host does not let us mount: {e}");
        return;
    }
    tmpfs("fixed", MountFlags::RDONLY).unwrap();
    let create = |c: &mut Client, directory: &str| {
        let fid = 40;
        c.walk(fid, if directory.is_empty() { &[] } else { std::slice::from_ref(&directory) }).unwrap();
        let made = c.ask(kind::LCREATE, &[Word(fid), Text("f"), Word(O_RDWR), Word(0o644), Word(0)]);
        c.ask(kind::CLUNK, &[Word(fid)]).unwrap();
        made.map(drop)
    };
    assert_eq!(create(&mut c, "below"), Ok(()));
    assert_eq!((create(&mut c, ""), create(&mut c, "fixed")), (Err(Errno::ROFS), Err(Errno::ROFS)));
    c.walk(2, &["below", "f"]).unwrap();
    assert_eq!(c.ask(kind::LOPEN, &[Word(2), Word(O_RDWR)]).map(drop), Ok(()));
    c.walk(3, &["below"]).unwrap();
    let out = [Word(3), Text("f"), Word(ROOT), Text("g")];
    assert_eq!(c.ask(kind::RENAMEAT, &out), Err(Errno::ROFS));
    assert_eq!(c.ask(kind::UNLINKAT, &[Word(3), Text("f"), Word(0)]).map(drop), Ok(()));
    assert_eq!(c.ask(kind::UNLINKAT, &[Word(ROOT), Text("secret"), Word(0)]), Err(Errno::ROFS));
    for name in ["below", "fixed"] {
        unmount(c.path(name), UnmountFlags::DETACH).unwrap();
    }
}

#[test]
fn a_read_only_export_changes_by_no_message() {
    let mut c = Client::new(true);
    fs::write(c.path("a"), "old").unwrap();
    let walk = |c: &mut Client| c.walk(2, &["a"]).unwrap();
    walk(&mut c);
    for flags in [O_WRONLY, O_RDWR, O_TRUNC] {
        assert_eq!(c.ask(kind::LOPEN, &[Word(2), Word(flags)]), Err(Errno::ROFS));
    }
    let changes: [(u8, &[Field]); 8] = [
        (kind::MKDIR, &[Word(ROOT), Text("d"), Word(0o755), Word(0)]),
        (kind::MKNOD, &[Word(ROOT), Text("n"), Word(0o100_644), Word(0), Word(0), Word(0)]),
        (kind::SYMLINK, &[Word(ROOT), Text("s"), Text("a"), Word(0)]),
        (kind::LINK, &[Word(ROOT), Word(2), Text("l")]),
        (kind::RENAMEAT, &[Word(ROOT), Text("a"), Word(ROOT), Text("b")]),
        (kind::UNLINKAT, &[Word(ROOT), Text("a"), Word(0)]),
        (kind::LCREATE, &[Word(ROOT), Text("c"), Word(O_RDWR), Word(0o644), Word(0)]),
        (kind::XATTRCREATE, &[Word(2), Text("user.x"), Long(1), Word(0)]),
    ];
    for (kind, fields) in changes {
        assert_eq!(c.ask(kind, fields), Err(Errno::ROFS), "{kind}");
    }
    for valid in [1, 2, 4, 8, 0x10, 0x20] {
        assert_eq!(c.set_attr(2, valid, 0o777, 0), Err(Errno::ROFS), "{valid:#x}");
    }
    c.ask(kind::LOPEN, &[Word(2), Word(0)]).unwrap();
    assert_eq!(c.read(2).unwrap(), "old");
    assert_eq!(c.write(2, 0, "new"), Err(Errno::BADF));
    assert_eq!(fs::read_dir(c.path("")).unwrap().count(), 1);
}

#[test]
fn extended_attributes_of_the_user_space_only() {
    let mut c = Client::new(false);
    fs::write(c.path("a"), "").unwrap();
    let set = |c: &mut Client, name: &str, value: &str, flags: u32| {
        c.walk(2, &["a"])?;
        let created = [Word(2), Text(name), Long(value.len() as u64), Word(flags)];
        let result = c.ask(kind::XATTRCREATE, &created).map(drop);
        let result = result.and_then(|()| c.write(2, 0, value).map(drop));
        c.ask(kind::CLUNK, &[Word(2)]).and(Ok(())).and(result)
    };
    match set(&mut c, "user.color", "blue", 0) {
        Err(Errno::OPNOTSUPP) => {
            eprintln!("skipped: the file system of {} has no user attributes", c.folder.path().display());
            return;
        }
        other => other.unwrap(),
    }
    let get = |c: &mut Client, name: &str| {
        c.walk(3, &["a"])?;
        let answer = c.ask(kind::XATTRWALK, &[Word(3), Word(4), Text(name)]);
        let value = answer.and_then(|_| c.read(4));
        for fid in [3, 4] {
            let _ = c.ask(kind::CLUNK, &[Word(fid)]);
        }
        value
    };
    assert_eq!(get(&mut c, "user.color").as_deref(), Ok("blue"));
    assert_eq!(get(&mut c, "").as_deref(), Ok("user.color\0"));
    assert_eq!(get(&mut c, "security.selinux"), Err(Errno::OPNOTSUPP));
    assert_eq!(set(&mut c, "trusted.x", "1", 0), Err(Errno::OPNOTSUPP));
    set(&mut c, "user.color", "", 2).unwrap();
    assert_eq!(get(&mut c, "user.color"), Err(Errno::NODATA));
}

/// Deterministic mutation: whatever the client sends, the server answers well-formed messages and nothing outside the
/// export changes. `UNILITH_FUZZ_ROUNDS` makes it go on.
#[test]
fn mutated_requests_are_answered_and_harm_nothing() {
    let rounds: u64 = std::env::var("UNILITH_FUZZ_ROUNDS").map_or(30_000, |n| n.parse().unwrap());
    let seeds = [
        message(kind::WALK, &[Word(ROOT), Word(2), Half(2), Text("d"), Text("f")]),
        message(kind::WALK, &[Word(ROOT), Word(2), Half(1), Text("up")]),
        message(kind::WALK, &[Word(2), Word(3), Half(1), Text("..")]),
        message(kind::LOPEN, &[Word(2), Word(O_RDWR)]),
        message(kind::LCREATE, &[Word(2), Text("n"), Word(O_RDWR), Word(0o644), Word(0)]),
        message(kind::GETATTR, &[Word(2), Long(0x7ff)]),
        message(kind::SETATTR, &[Word(2), Word(9), Word(0o644), Word(0), Word(0), Long(100), Raw(&[0; 32])]),
        message(kind::READ, &[Word(2), Long(0), Word(4096)]),
        message(kind::WRITE, &[Word(2), Long(0), Word(3), Raw(b"abc")]),
        message(kind::READDIR, &[Word(3), Long(0), Word(4096)]),
        message(kind::MKDIR, &[Word(ROOT), Text("d"), Word(0o755), Word(0)]),
        message(kind::RENAMEAT, &[Word(ROOT), Text("n"), Word(3), Text("../../secret")]),
        message(kind::UNLINKAT, &[Word(ROOT), Text("n"), Word(0)]),
        message(kind::SYMLINK, &[Word(ROOT), Text("up"), Text("../.."), Word(0)]),
        message(kind::LINK, &[Word(ROOT), Word(2), Text("l")]),
        message(kind::XATTRWALK, &[Word(2), Word(4), Text("")]),
        message(kind::XATTRCREATE, &[Word(2), Text("user.a"), Long(3), Word(0)]),
        message(kind::READLINK, &[Word(2)]),
        message(kind::STATFS, &[Word(2)]),
        message(kind::LOOK, &[Word(ROOT), Word(3), Half(1), Text("d")]),
        message(kind::LOOK, &[Word(ROOT), Word(2), Half(1), Text("up")]),
        message(kind::LIST, &[Word(ROOT), Long(0), Word(4096), Raw(&[1])]),
        message(kind::OPEN, &[Word(ROOT), Word(2), Word(O_RDWR), Half(1), Text("n")]),
        message(kind::CLUNKS, &[Half(2), Word(2), Word(3)]),
        message(kind::CLUNK, &[Word(2)]),
        message(kind::VERSION, &[Word(8192), Text("9P2000.L")]),
        message(kind::ATTACH, &[Word(ROOT), Word(u32::MAX), Text("root"), Text(""), Word(0)]),
    ];
    let mut c = Client::new(false);
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut random = move |below: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 11) as usize % below
    };
    let mut out = Vec::new();
    for round in 0..rounds {
        let mut bytes = seeds[random(seeds.len())].clone();
        for _ in 0..random(4) {
            if bytes.len() < 4 {
                break;
            }
            let at = random(bytes.len());
            match random(4) {
                0 => bytes[at] = random(256) as u8,
                1 => bytes.truncate(at.max(1)),
                2 => bytes.insert(at, [0, 1, b'/', b'.', 255][random(5)]),
                // Small handle numbers meet each other.
                _ => {
                    let handle = 3 + random(5).min(bytes.len().saturating_sub(4));
                    bytes[handle] = random(5) as u8;
                }
            }
        }
        c.server.answer(&bytes, &mut out);
        assert!(out.len() >= HEADER && word(&out, 0) as usize == out.len(), "round {round}: {bytes:?}");
        // A file of terabytes is in order, but not for the disk of this computer.
        if round % 500 == 0 {
            // A request may have taken the directory's owner the right to look into it.
            fs::set_permissions(c.path(""), fs::Permissions::from_mode(0o700)).unwrap();
            for entry in fs::read_dir(c.path("")).unwrap().flatten() {
                let path = entry.path();
                let _ = if entry.file_type().unwrap().is_dir() {
                    fs::remove_dir_all(path)
                } else {
                    fs::remove_file(path)
                };
            }
        }
    }
    assert_eq!(fs::read_to_string(c.folder.path().join("secret")).unwrap(), "secret");
    assert_eq!(fs::read_dir(c.folder.path()).unwrap().count(), 2);
}

/// A client of [`Watches`]: watch, mask and name of each event that has come.
fn events(watches: &Watches) -> Vec<(i32, u32, String)> {
    let mut buffer = [0; 8192];
    let length = rustix::io::read(watches.queue(), &mut buffer).unwrap_or(0);
    let (mut out, mut at) = (Vec::new(), 0);
    while at < length {
        let size = word(&buffer, at + 12) as usize;
        let name = String::from_utf8_lossy(&buffer[at + 16..at + 16 + size]);
        let name = name.trim_end_matches('\0').to_string();
        out.push((word(&buffer, at).cast_signed(), word(&buffer, at + 4), name));
        at += 16 + size;
    }
    out
}

#[test]
fn what_is_looked_at_has_attributes_and_a_watch_and_its_changes_are_told_until_it_is_given_back() {
    const SIZE: usize = 4 + 8 + 13 + 3 * 4 + 8 + 8;
    let mut c = Client::new(false);
    let shares = tempfile::tempdir().unwrap();
    let watches = Watches::new(shares.path()).unwrap();
    c.server.watch(Some(watches.clone()));
    fs::create_dir(c.path("d")).unwrap();
    fs::write(c.path("d/f"), "12345").unwrap();
    std::os::unix::fs::symlink("../x", c.path("d/s")).unwrap();
    let directory = c.ask(kind::LOOK, &[Word(ROOT), Word(2), Half(1), Text("d")]).unwrap();
    let watch = word(&directory, 0).cast_signed();
    assert!(watch >= 0);
    let file = c.ask(kind::LOOK, &[Word(2), Word(3), Half(1), Text("f")]).unwrap();
    assert_eq!((word(&file, 0), word(&file, SIZE)), (u32::MAX, 5), "a file is told of by its directory");
    let link = c.ask(kind::LOOK, &[Word(2), Word(4), Half(1), Text("s")]).unwrap();
    assert!(link.ends_with(b"\x04\0../x"));
    let body = c.ask(kind::GETATTR, &[Word(3), Long(0x7ff)]).unwrap();
    assert_eq!(body, file[4..]);
    assert_eq!(c.ask(kind::LOOK, &[Word(2), Word(5), Half(1), Text("none")]), Err(Errno::NOENT));
    assert_eq!(c.ask(kind::LOOK, &[Word(2), Word(5), Half(1), Text("..")]), Err(Errno::INVAL));
    assert_eq!(events(&watches), []);

    fs::write(c.path("d/f"), "1").unwrap();
    fs::write(c.path("d/new"), "").unwrap();
    let told = events(&watches);
    assert!(
        told.contains(&(watch, 2, "f".into())) && told.contains(&(watch, 0x100, "new".into())),
        "{told:?}"
    );
    // The client's own changes are told as well, and two handles have one watch.
    c.ask(kind::LOOK, &[Word(2), Word(6), Half(0)]).unwrap();
    c.ask(kind::UNLINKAT, &[Word(6), Text("new"), Word(0)]).unwrap();
    assert_eq!(events(&watches), [(watch, 0x200, "new".into())]);
    c.ask(kind::CLUNKS, &[Half(2), Word(6), Word(4)]).unwrap();
    assert_eq!(c.ask(kind::READLINK, &[Word(4)]), Err(Errno::BADF));
    fs::write(c.path("d/other"), "").unwrap();
    assert_eq!(events(&watches)[0].0, watch);
    c.ask(kind::CLUNKS, &[Half(1), Word(2)]).unwrap();
    // IN_IGNORED.
    assert_eq!(events(&watches), [(watch, 0x8000, String::new())]);
    fs::write(c.path("d/other"), "more").unwrap();
    assert_eq!(events(&watches), []);
}

#[test]
fn a_directory_that_is_not_open_is_listed_with_attributes_in_one_message() {
    let mut c = Client::new(false);
    for n in 0..20 {
        fs::write(c.path(&format!("f{n:02}")), "x".repeat(n)).unwrap();
    }
    let mut seen = Vec::new();
    let mut offset = 0;
    for _ in 0..20 {
        let body = c.ask(kind::LIST, &[Word(ROOT), Long(offset), Word(1024), Raw(&[1])]).unwrap();
        assert_eq!(word(&body, 1) as usize, body.len() - 5);
        let mut at = 5;
        while at < body.len() {
            offset = u64::from_le_bytes(body[at + 13..at + 21].try_into().unwrap());
            let length = usize::from(u16::from_le_bytes(body[at + 22..at + 24].try_into().unwrap()));
            let name = String::from_utf8(body[at + 24..at + 24 + length].to_vec()).unwrap();
            at += 24 + length + 1;
            if body[at - 1] == 1 {
                seen.push((name, word(&body, at + 8 + 13 + 3 * 4 + 8 + 8)));
                at += 8 + 13 + 3 * 4 + 5 * 8 + 6 * 8 + 4 * 8;
            }
        }
        if body[0] == 1 {
            break;
        }
    }
    seen.sort();
    assert_eq!(seen, (0..20).map(|n| (format!("f{n:02}"), n)).collect::<Vec<_>>());
}

#[test]
fn a_file_is_opened_by_its_name_and_only_a_regular_one() {
    let mut c = Client::new(false);
    fs::write(c.path("f"), "text").unwrap();
    fs::create_dir(c.path("d")).unwrap();
    c.ask(kind::OPEN, &[Word(ROOT), Word(2), Word(O_RDWR), Half(1), Text("f")]).unwrap();
    assert_eq!(c.read(2).unwrap(), "text");
    c.ask(kind::OPEN, &[Word(2), Word(3), Word(O_RDWR | O_TRUNC), Half(0)]).unwrap();
    assert_eq!(c.read(2).unwrap(), "");
    assert_eq!(c.ask(kind::OPEN, &[Word(ROOT), Word(4), Word(0), Half(1), Text("d")]), Err(Errno::NXIO));
    let mut c = Client::new(true);
    fs::write(c.path("f"), "text").unwrap();
    let changed = c.ask(kind::OPEN, &[Word(ROOT), Word(2), Word(O_RDWR), Half(1), Text("f")]);
    assert_eq!(changed, Err(Errno::ROFS));
}

fn descriptors() -> usize {
    fs::read_dir("/proc/self/fd").unwrap().count()
}

#[test]
fn handles_take_no_more_descriptors_than_a_client_may_have() {
    let mut client = Client::new(false);
    fs::write(client.path("file"), "x").unwrap();
    let before = descriptors();
    let mut refused = None;
    for fid in 2..2000 {
        if let Err(error) = client.open(fid, "file", 0) {
            refused.get_or_insert((fid, error));
        }
    }
    // Two for each, one for the root; other tests of this process open a few.
    assert_eq!(refused, Some((101, Errno::NFILE)));
    assert!(descriptors() - before <= DESCRIPTORS + 100);
    // What is given back can be had again.
    client.ask(kind::CLUNK, &[Word(50)]).unwrap();
    client.open(50, "file", 0).unwrap();
    client.ask(kind::VERSION, &[Word(64 << 10), Text("9P2000.L")]).unwrap();
    client.ask(kind::ATTACH, &[Word(ROOT), Word(u32::MAX), Text("root"), Text(""), Word(0)]).unwrap();
    client.open(2, "file", 0).unwrap();
}

#[test]
fn attributes_take_no_more_memory_than_sixteen_of_the_largest() {
    let mut client = Client::new(false);
    fs::write(client.path("file"), "x").unwrap();
    let mut begun = 0;
    for fid in 2..150 {
        client.walk(fid, &["file"]).unwrap();
        let large = [Word(fid), Text("user.large"), Long(MAX_ATTRIBUTE as u64), Word(0)];
        match client.ask(kind::XATTRCREATE, &large) {
            Ok(_) => begun += 1,
            Err(error) => assert_eq!(error, Errno::NFILE),
        }
    }
    assert_eq!(begun, 15, "the sixteenth has no room for its name");
    assert_eq!(client.write(2, 1, "x"), Err(Errno::INVAL));
    client.write(2, 0, "x").unwrap();
}

#[test]
fn where_host_programs_follow_names_there_are_plain_files_only() {
    let mut client = Client::of(Access::PlainFiles);
    let link = [Word(ROOT), Text("letter"), Text("/etc/passwd"), Word(0)];
    match client.ask(kind::SYMLINK, &link) {
        // A file system without attributes.
        Err(error) => assert_eq!(error, Errno::PERM),
        Ok(_) => {
            let here = fs::symlink_metadata(client.path("letter")).unwrap();
            assert!(here.is_file(), "on this host it leads nowhere");
            assert_eq!(fs::read(client.path("letter")).unwrap(), b"/etc/passwd");
            client.walk(9, &["letter"]).unwrap();
            let target = client.ask(kind::READLINK, &[Word(9)]).unwrap();
            assert_eq!(target[2..], *b"/etc/passwd");
            assert_eq!(client.ask(kind::LOPEN, &[Word(9), Word(O_RDWR)]), Err(Errno::LOOP));
            assert_eq!(client.ask(kind::SYMLINK, &link), Err(Errno::EXIST));
        }
    }
    for special in [0o010_666, 0o140_666, 0o020_666, 0o060_666] {
        let node = [Word(ROOT), Text("node"), Word(special), Word(1), Word(3), Word(0)];
        assert_eq!(client.ask(kind::MKNOD, &node), Err(Errno::PERM), "{special:o}");
    }
    client.walk(2, &[]).unwrap();
    client.ask(kind::LCREATE, &[Word(2), Text("file"), Word(O_RDWR), Word(0o6755), Word(0)]).unwrap();
    client.write(2, 0, "text").unwrap();
    assert_eq!(client.ask(kind::LINK, &[Word(ROOT), Word(2), Text("second")]), Err(Errno::PERM));
    client.set_attr(2, 1, 0o4700, 0).unwrap();
    assert_eq!(fs::metadata(client.path("file")).unwrap().permissions().mode() & 0o7777, 0o700);
    client.ask(kind::MKDIR, &[Word(ROOT), Text("folder"), Word(0o755), Word(0)]).unwrap();
    assert_eq!(fs::read_to_string(client.path("file")).unwrap(), "text");
}

mod random {
    use super::*;
    use proptest::prelude::*;

    /// A message of random fields: numbers are small, so that they meet handles that are there.
    fn request() -> impl Strategy<Value = Vec<u8>> {
        let kinds = vec![
            kind::STATFS,
            kind::LOPEN,
            kind::LCREATE,
            kind::SYMLINK,
            kind::MKNOD,
            kind::READLINK,
            kind::GETATTR,
            kind::SETATTR,
            kind::XATTRWALK,
            kind::XATTRCREATE,
            kind::READDIR,
            kind::FSYNC,
            kind::LOCK,
            kind::GETLOCK,
            kind::LINK,
            kind::MKDIR,
            kind::RENAMEAT,
            kind::UNLINKAT,
            kind::VERSION,
            kind::ATTACH,
            kind::FLUSH,
            kind::WALK,
            kind::READ,
            kind::WRITE,
            kind::CLUNK,
        ];
        let text = prop_oneof![
            Just("a".to_string()),
            Just("b".to_string()),
            Just("..".to_string()),
            Just("secret".to_string()),
            Just("../secret".to_string()),
            Just("/etc/passwd".to_string()),
            any::<String>()
        ];
        let field = prop_oneof![
            (0..4u32).prop_map(|n| n.to_le_bytes().to_vec()),
            (0..4u16).prop_map(|n| n.to_le_bytes().to_vec()),
            any::<u32>().prop_map(|n| n.to_le_bytes().to_vec()),
            any::<u64>().prop_map(|n| n.to_le_bytes().to_vec()),
            text.prop_map(|t| [&(t.len() as u16).to_le_bytes()[..], t.as_bytes()].concat()),
        ];
        (proptest::sample::select(kinds), proptest::collection::vec(field, 0..8))
            .prop_map(|(kind, fields)| [&[kind, 7, 0][..], &fields.concat()].concat())
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]
        #[test]
        fn whatever_a_client_sends_is_answered_and_leads_nowhere_else(
            requests in proptest::collection::vec(request(), 1..60),
            access in proptest::sample::select(vec![Access::All, Access::PlainFiles, Access::ReadOnly]),
        ) {
            let mut client = Client::of(access);
            let mut out = Vec::new();
            for request in requests {
                client.server.answer(&request, &mut out);
                prop_assert_eq!(u32::from_le_bytes(out[..4].try_into().unwrap()) as usize, out.len());
                prop_assert!(out.len() <= crate::MAX_MESSAGE as usize);
                let holds = out.windows(6).any(|w| w == b"secret");
                // Names may come back; what is in the file beside the export may not.
                prop_assert!(!(holds && out[4] == kind::READ + 1));
            }
            prop_assert_eq!(fs::read_to_string(client.folder.path().join("secret")).unwrap(), "secret");
            prop_assert_eq!(fs::read_dir(client.folder.path()).unwrap().count(), 2);
            if access == Access::ReadOnly {
                prop_assert_eq!(fs::read_dir(client.folder.path().join("shared")).unwrap().count(), 0);
            }
        }
    }
}

#[test]
fn a_tree_that_goes_takes_its_handles_along_and_none_leads_into_another_tree() {
    let mut client = Client::new(false);
    let open_now =
        || fs::read_dir("/proc/self/fd").unwrap().flatten().filter_map(|e| fs::read_link(e.path()).ok());
    let other = tempfile::tempdir().unwrap();
    fs::write(other.path().join("file"), "of the other").unwrap();
    let export = || Arc::new(Export::open(other.path(), Access::All).unwrap());
    assert!(client.server.add(b"pod/1", export()));
    assert!(!client.server.add(b"pod/1", export()), "the name is taken");
    let attach = |client: &mut Client, fid, name| {
        client.ask(kind::ATTACH, &[Word(fid), Word(u32::MAX), Text("root"), Text(name), Word(0)])
    };
    assert_eq!(attach(&mut client, 2, "pod/2").unwrap_err(), Errno::NOENT);
    attach(&mut client, 2, "pod/1").unwrap();
    client.ask(kind::WALK, &[Word(2), Word(3), Half(1), Text("file")]).unwrap();
    client.ask(kind::LOPEN, &[Word(3), Word(0)]).unwrap();
    let renamed = client.ask(kind::RENAMEAT, &[Word(2), Text("file"), Word(ROOT), Text("file")]);
    assert_eq!(renamed.unwrap_err(), Errno::XDEV);
    client.ask(kind::WALK, &[Word(2), Word(4), Half(1), Text("file")]).unwrap();
    assert_eq!(client.ask(kind::LINK, &[Word(ROOT), Word(4), Text("file")]).unwrap_err(), Errno::XDEV);
    let of_other = |path: &std::path::PathBuf| path.starts_with(other.path());
    assert!(open_now().any(|path| of_other(&path)));
    client.server.remove(b"pod/1");
    assert!(!open_now().any(|path| of_other(&path)), "nothing of the tree is open");
    assert_eq!(client.ask(kind::CLUNK, &[Word(3)]).unwrap_err(), Errno::BADF);
    assert_eq!(attach(&mut client, 5, "pod/1").unwrap_err(), Errno::NOENT);
    client.ask(kind::GETATTR, &[Word(ROOT), Long(0x7ff)]).unwrap();
}

/// The owner of a file as the client sees it.
fn owner(client: &mut Client, fid: u32) -> (u32, u32) {
    let body = client.ask(kind::GETATTR, &[Word(fid), Long(0x7ff)]).unwrap();
    // What is valid, the qid, the mode.
    (word(&body, 8 + 13 + 4), word(&body, 8 + 13 + 8))
}

#[test]
fn users_of_a_machine_that_are_others_on_the_host_are_translated_both_ways() {
    use crate::ids::{Extent, Ids, Map, OVERFLOW};
    use std::os::unix::fs::{MetadataExt, chown};
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: only root gives files to others");
        return;
    }
    let mut client = Client::new(false);
    let shared = client.folder.path().join("shared");
    fs::write(shared.join("foreign"), "x").unwrap();
    fs::write(shared.join("own"), "x").unwrap();
    chown(shared.join("own"), Some(100_007), Some(200_008)).unwrap();
    let map = |outside| Map(vec![Extent { inside: 0, outside, count: 1000 }]);
    let ids = Ids { users: map(100_000), groups: map(200_000) };
    let export = Export::open(&shared, Access::All).unwrap().with_ids(Some(ids));
    client.server = Server::new(LIMITS);
    assert!(client.server.add(b"", Arc::new(export)));
    client.ask(kind::VERSION, &[Word(64 << 10), Text("9P2000.L")]).unwrap();
    client.ask(kind::ATTACH, &[Word(ROOT), Word(u32::MAX), Text("root"), Text(""), Word(0)]).unwrap();
    client.walk(2, &["foreign"]).unwrap();
    assert_eq!(owner(&mut client, 2), (OVERFLOW, OVERFLOW), "of nobody in the machine");
    client.walk(3, &["own"]).unwrap();
    assert_eq!(owner(&mut client, 3), (7, 8));
    // What its root makes is the mapped root's.
    client.ask(kind::MKDIR, &[Word(ROOT), Text("made"), Word(0o755), Word(5)]).unwrap();
    client.ask(kind::SYMLINK, &[Word(ROOT), Text("link"), Text("made"), Word(0)]).unwrap();
    let of_host = |name: &str| fs::symlink_metadata(shared.join(name)).map(|m| (m.uid(), m.gid())).unwrap();
    assert_eq!((of_host("made"), of_host("link")), ((100_000, 200_005), (100_000, 200_000)));
    let give = |user: u32| {
        [Word(3), Word(2), Word(0), Word(user), Word(0), Long(0), Long(0), Long(0), Long(0), Long(0)]
    };
    client.ask(kind::SETATTR, &give(9)).unwrap();
    assert_eq!(of_host("own"), (100_009, 200_008));
    assert_eq!(client.ask(kind::SETATTR, &give(1000)).unwrap_err(), Errno::INVAL, "beyond the map");
}

#[test]
fn files_are_given_as_they_were_opened_and_no_more_of_them_than_the_client_may_have() {
    use std::os::unix::fs::FileExt;
    let mut client = Client::new(false);
    fs::write(client.path("file"), "text").unwrap();
    let ask = |client: &mut Client, fid: u32, flags: u32| {
        let answer =
            client.ask(kind::OPEN, &[Word(ROOT), Word(fid), Word(flags), Half(1), Text("file")]).unwrap();
        let gift = client.gift.take().map(|gift| fs::File::from(gift.file));
        assert_eq!(answer[answer.len() - 1] == 1, gift.is_some(), "the answer says so");
        gift
    };
    let read = ask(&mut client, 2, 0).unwrap();
    let mut bytes = [0; 4];
    read.read_exact_at(&mut bytes, 0).unwrap();
    assert_eq!(&bytes, b"text");
    assert!(read.write_at(b"x", 0).is_err() && read.set_len(0).is_err(), "it was opened for reading");
    ask(&mut client, 3, O_RDWR).unwrap().write_all_at(b"TE", 0).unwrap();
    assert_eq!(fs::read(client.path("file")).unwrap(), b"TExt");
    assert!(ask(&mut client, 4, 0).is_some() && ask(&mut client, 5, 0).is_none(), "three at most");
    // One that could not be sent is not the client's.
    client.ask(kind::CLUNK, &[Word(4)]).unwrap();
    let mut out = Vec::new();
    let open = message(kind::OPEN, &[Word(ROOT), Word(4), Word(0), Half(1), Text("file")]);
    let gift = client.server.answer(&open, &mut out).unwrap();
    client.server.keeps(&gift, &mut out);
    assert_eq!(out.last(), Some(&0));
    assert!(ask(&mut client, 6, 0).is_some() && ask(&mut client, 7, 0).is_none());
    // The handle works all the same, and one that is given back makes room.
    assert_eq!(client.ask(kind::READ, &[Word(4), Long(0), Word(9)]).unwrap()[4..], *b"TExt");
    client.ask(kind::CLUNKS, &[Half(2), Word(2), Word(4)]).unwrap();
    assert!(ask(&mut client, 8, 0).is_some() && ask(&mut client, 9, 0).is_none());
    // What cannot be opened is not given.
    let mut client = Client::new(true);
    fs::write(client.path("file"), "text").unwrap();
    let wants = [Word(ROOT), Word(2), Word(O_RDWR), Half(1), Text("file")];
    assert_eq!(client.ask(kind::OPEN, &wants).unwrap_err(), Errno::ROFS);
    assert!(client.gift.is_none());
    assert!(ask(&mut client, 2, 0).unwrap().write_at(b"x", 0).is_err());
}
