// SPDX-License-Identifier: Apache-2.0 OR MIT
use crate::server::Server;
use crate::{Transport, attach};
use abi::errno::*;
use alloc::sync::Arc;
use api_fs::{File, FileType, Inode, SetAttr, Sink, Source};
use api_lock::SpinLock;
use core::sync::atomic::{AtomicU8, Ordering::Relaxed};
use std::boxed::Box;
use std::{format, vec, vec::Vec};

fn volume() -> (Arc<Server>, Arc<dyn Inode>) {
    let server = Server::new();
    let root = attach(server.clone(), 9).unwrap();
    (server, root)
}

fn make(dir: &Arc<dyn Inode>, name: &str) -> Arc<dyn Inode> {
    dir.create(name.as_bytes(), FileType::Regular, 0o644, (0, 0), 0).unwrap()
}

fn open(inode: &Arc<dyn Inode>) -> Arc<dyn File> {
    inode.open(inode, 2).unwrap()
}

fn read(file: &Arc<dyn File>, offset: u64, length: usize) -> Vec<u8> {
    let mut out = vec![0xee; length];
    let n = file.read(offset, &mut Sink::kernel(&mut out)).unwrap();
    out.truncate(n);
    out
}

fn write(file: &Arc<dyn File>, offset: u64, bytes: &[u8]) {
    assert_eq!(file.write(offset, &mut Source::kernel(bytes)), Ok(bytes.len()));
}

#[test]
fn large_files_travel_in_several_messages() {
    let (server, root) = volume();
    let file = open(&make(&root, "f"));
    let bytes: Vec<u8> = (0..100_000u32).map(|i| (i * 7 % 251) as u8).collect();
    write(&file, 0, &bytes);
    assert_eq!(read(&file, 0, 200_000), bytes);
    assert_eq!(read(&file, 99_990, 100), &bytes[99_990..]);
    assert_eq!(file.size(), Ok(100_000));
    let host = open(&server.root.lookup(b"f").unwrap());
    assert_eq!(read(&host, 0, 200_000), bytes);
    file.sync(true).unwrap();
    file.truncate(10).unwrap();
    assert_eq!(read(&file, 0, 100), &bytes[..10]);
}

/// Static: stacks lie above the program's part where the machine is a process.
static PROGRAM: [AtomicU8; 50_001] = [const { AtomicU8::new(0) }; 50_001];

#[test]
fn data_goes_to_and_from_the_programs_memory_without_a_copy_where_it_can() {
    let server = Server::with_direct(12 << 10);
    let root = attach(server.clone(), 9).unwrap();
    let file = open(&make(&root, "f"));
    let bytes: Vec<u8> = (0..50_000u32).map(|i| (i * 7 % 251) as u8).collect();
    let even = PROGRAM.as_ptr() as u64 + PROGRAM.as_ptr() as u64 % 2;
    for (address, messages) in [(even, 4), (even + 1, 0)] {
        api_user::write_bytes(address, &bytes).unwrap();
        server.direct.store(0, Relaxed);
        assert_eq!(file.write(0, &mut Source::user(address, 50_000).unwrap()), Ok(50_000));
        // Four times 12 KiB; the rest is too little.
        assert_eq!(server.direct.load(Relaxed), messages);
        assert_eq!(read(&file, 0, 60_000), bytes);
        api_user::zero_bytes(address, 50_000).unwrap();
        // Behind the end of the file there is nothing.
        assert_eq!(file.read(10, &mut Sink::user(address, 50_000).unwrap()), Ok(49_990));
        let mut back = vec![0; 50_000];
        api_user::read_bytes(address, &mut back).unwrap();
        assert_eq!((&back[..49_990], &back[49_990..]), (&bytes[10..], &[0; 10][..]));
        file.truncate(0).unwrap();
    }
    // A reply that claims more than was asked for.
    write(&file, 0, &bytes);
    let tamper = |reply: &mut Vec<u8>| {
        if reply[4] == 117 {
            reply[7..11].copy_from_slice(&u32::MAX.to_le_bytes());
        }
    };
    *server.tamper.lock() = Some(Box::new(tamper));
    assert_eq!(file.read(0, &mut Sink::user(even, 10_000).unwrap()), Err(EIO));
}

/// Happens while the next request of that type is in flight, or while the next of any type is.
type Meanwhile = (Option<u8>, Box<dyn FnOnce() + Send>);

/// A server that looks at the tags, with something that happens while a request is in flight.
struct Tagged {
    server: Arc<Server>,
    flying: SpinLock<Vec<u16>>,
    meanwhile: SpinLock<Option<Meanwhile>>,
}

impl Tagged {
    fn new() -> Arc<Tagged> {
        Arc::new(Tagged {
            server: Server::new(),
            flying: SpinLock::default(),
            meanwhile: SpinLock::new(None),
        })
    }

    fn meanwhile(&self, kind: Option<u8>, happens: impl FnOnce() + Send + 'static) {
        *self.meanwhile.lock() = Some((kind, Box::new(happens)));
    }
}

impl Transport for Tagged {
    fn call(&self, request: Vec<u8>, reply: Vec<u8>) -> abi::Result<(Vec<u8>, Vec<u8>)> {
        let tag = u16::from_le_bytes([request[5], request[6]]);
        let is_new = !self.flying.lock().contains(&tag);
        assert!(is_new, "two requests with the tag {tag}");
        self.flying.lock().push(tag);
        let meanwhile = self.meanwhile.lock().take_if(|(kind, _)| kind.is_none_or(|kind| kind == request[4]));
        meanwhile.into_iter().for_each(|(_, happens)| happens());
        let answer = self.server.call(request, reply);
        self.flying.lock().retain(|other| *other != tag);
        answer
    }

    fn largest(&self) -> usize {
        self.server.largest()
    }
}

/// Replies are told apart by tags. Whoever waits for long must not be given another's, though there are 65,535 of them alone.
#[test]
fn a_tag_is_given_out_again_only_when_its_request_was_answered() {
    let server = Tagged::new();
    let root = attach(server.clone(), 9).unwrap();
    let file = open(&make(&root, "f"));
    let others = root.clone();
    let many = move || (0..70_000).for_each(|_| assert_eq!(others.lookup(b"none").err(), Some(ENOENT)));
    server.meanwhile(None, many);
    write(&file, 0, b"kept");
    assert!(server.meanwhile.lock().is_none() && server.flying.lock().is_empty());
    assert_eq!(read(&file, 0, 10), b"kept");
}

/// A server that goes by names would do to the new file what is meant for the old one.
#[test]
fn a_file_that_lost_its_name_is_not_taken_for_the_one_that_has_it_since() {
    let (server, root) = volume();
    let old = open(&make(&root, "f"));
    write(&old, 0, b"old one");
    root.unlink(b"f", false).unwrap();
    let new = open(&make(&root, "f"));
    write(&new, 0, b"precious");
    let change = SetAttr { permissions: Some(0o600), ..SetAttr::default() };
    let at = |file: &Arc<dyn File>| file.inode().unwrap().clone();

    old.truncate(3).unwrap();
    at(&old).set_attr(&change).unwrap();
    assert_eq!(at(&old).set_xattr(b"user.a", b"x", 0), Err(ENOENT));
    assert_eq!(root.link(b"second", &at(&old)), Err(ENOENT));
    assert_eq!(at(&old).open(&at(&old), 2).err(), Some(ENOENT));
    let stat = old.stat().unwrap();
    assert_eq!((stat.size, stat.permissions, stat.links), (3, 0o600, 0));
    let stat = new.stat().unwrap();
    assert_eq!((stat.size, stat.permissions), (8, 0o644));
    assert_eq!(read(&new, 0, 20), b"precious");
    assert_eq!(new.inode().unwrap().get_xattr(b"user.a").err(), Some(ENODATA));

    // Its data ends where it was cut, and there is nothing between that and what is written behind.
    assert_eq!(read(&old, 0, 20), b"old");
    old.truncate(5).unwrap();
    assert_eq!(read(&old, 0, 20), b"old\0\0");
    write(&old, 6, b"!");
    assert_eq!(read(&old, 0, 20), b"old\0\0\0!");
    old.truncate(100_000).unwrap();
    assert_eq!((old.size(), read(&old, 99_990, 20)), (Ok(100_000), vec![0; 10]));

    // What is replaced by another file, and what the host takes away.
    make(&root, "g");
    root.rename(b"g", &root, b"f", 0).unwrap();
    new.truncate(4).unwrap();
    assert_eq!(
        (read(&new, 0, 20), server.root.lookup(b"f").unwrap().stat().unwrap().size),
        (b"prec".to_vec(), 0)
    );
    let mine = open(&make(&root, "host"));
    write(&mine, 0, b"mine");
    server.root.unlink(b"host", false).unwrap();
    server.root.create(b"host", FileType::Regular, 0o644, (0, 0), 0).unwrap();
    mine.truncate(9).unwrap();
    assert_eq!(server.root.lookup(b"host").unwrap().stat().unwrap().size, 0);

    // By its other name it can be found.
    let both = open(&make(&root, "one"));
    root.link(b"two", &at(&both)).unwrap();
    root.unlink(b"one", false).unwrap();
    assert_eq!(root.lookup(b"two").unwrap().set_attr(&change), Ok(()));
    both.truncate(7).unwrap();
    assert_eq!(server.root.lookup(b"two").unwrap().stat().unwrap().size, 7);

    // A directory that is gone has nothing in it, whatever the new one has.
    let dir = root.create(b"dir", FileType::Directory, 0o755, (0, 0), 0).unwrap();
    root.unlink(b"dir", true).unwrap();
    make(&root.create(b"dir", FileType::Directory, 0o755, (0, 0), 0).unwrap(), "inside");
    assert_eq!(dir.lookup(b"inside").err(), Some(ENOENT));
    assert_eq!(dir.unlink(b"inside", false), Err(ENOENT));
    assert_eq!(dir.stat().map(|stat| (stat.permissions, stat.links)), Ok((0o755, 0)));
}

/// A request may wait, for its tag or for handles that are given back first; meanwhile others find the directory by its name, which
/// gives it another handle.
#[test]
fn a_request_keeps_the_handles_that_it_names() {
    let server = Tagged::new();
    let root = attach(server.clone(), 9).unwrap();
    root.create(b"dir", FileType::Directory, 0o755, (0, 0), 0).unwrap();
    let dir = root.lookup(b"dir").unwrap();
    let calls: [fn(&Arc<dyn Inode>); 7] = [
        |dir| drop(make(dir, "file")),
        |dir| dir.symlink(b"link", b"target", (0, 0)).unwrap(),
        |dir| dir.unlink(b"file", false).unwrap(),
        |dir| dir.set_attr(&SetAttr { permissions: Some(0o700), ..SetAttr::default() }).unwrap(),
        |dir| assert!(dir.stat_fs().is_ok()),
        |dir| assert_eq!(dir.get_xattr(b"user.none").err(), Some(ENODATA)),
        |dir| drop(dir.list(0, 10).unwrap()),
    ];
    for call in calls {
        // The handle of one that is gone is given back before the next request.
        drop(make(&root, "other"));
        root.unlink(b"other", false).unwrap();
        let others = root.clone();
        server.meanwhile(None, move || {
            others.lookup(b"dir").unwrap();
            others.stat().unwrap();
        });
        call(&dir);
        assert!(server.meanwhile.lock().is_none());
    }
}

/// Two threads may look for a name, or map a file, while nothing is known of it.
#[test]
fn a_file_is_one_inode_with_one_set_of_pages_whoever_finds_it_first() {
    let server = Tagged::new();
    let root = attach(server.clone(), 9).unwrap();
    make(&server.server.root, "f");
    let find = |root: Arc<dyn Inode>, found: Arc<SpinLock<Option<Arc<dyn Inode>>>>| {
        move || *found.lock() = Some(root.lookup(b"f").unwrap())
    };
    let other = Arc::new(SpinLock::new(None));
    server.meanwhile(Some(crate::wire::kind::GETATTR), find(root.clone(), other.clone()));
    let one = root.lookup(b"f").unwrap();
    let other = other.lock().take().unwrap();
    assert!(Arc::ptr_eq(&one, &other));
    let (one, other) = (open(&one), open(&other));
    let pages = Arc::new(SpinLock::new(None));
    let mapped = pages.clone();
    server.meanwhile(Some(crate::wire::kind::GETATTR), move || {
        *mapped.lock() = Some(other.page_source().unwrap())
    });
    let mine = one.page_source().unwrap();
    assert!(Arc::ptr_eq(&mine, pages.lock().as_ref().unwrap()));
}

#[test]
fn what_the_host_does_is_seen() {
    let (server, root) = volume();
    let host = make(&server.root, "f");
    let inode = root.lookup(b"f").unwrap();
    write(&open(&host), 0, b"from the host");
    assert_eq!(inode.stat().unwrap().size, 13);
    assert_eq!(read(&open(&inode), 0, 100), b"from the host");
    assert!(Arc::ptr_eq(&inode, &root.lookup(b"f").unwrap()), "the same file is the same inode");
    server.root.unlink(b"f", false).unwrap();
    assert_eq!(root.lookup(b"f").err(), Some(ENOENT));
    assert_eq!(inode.stat().err(), Some(ENOENT));
}

#[test]
fn names_are_made_linked_renamed_and_removed() {
    let (_, root) = volume();
    let dir = root.create(b"d", FileType::Directory, 0o755, (0, 0), 0).unwrap();
    let f = make(&dir, "f");
    assert_eq!(dir.create(b"f", FileType::Regular, 0o644, (0, 0), 0).err(), Some(EEXIST));
    root.symlink(b"l", b"d/f", (0, 0)).unwrap();
    assert_eq!(root.lookup(b"l").unwrap().read_link().unwrap(), b"d/f");
    root.link(b"hard", &f).unwrap();
    assert_eq!(f.stat().unwrap().links, 2);
    assert_eq!(root.rename(b"hard", &dir, b"f", 1), Err(EEXIST));
    assert_eq!(root.rename(b"hard", &dir, b"g", 0), Ok(()));
    dir.unlink(b"f", false).unwrap();
    assert!(Arc::ptr_eq(&f, &dir.lookup(b"g").unwrap()));
    assert_eq!(f.stat().unwrap().links, 1, "the handle moved on to the name that is left");
    assert_eq!(root.unlink(b"d", true), Err(ENOTEMPTY));
    let other: Arc<dyn Inode> = ramfs::tmpfs(3, 1 << 20, 0o755, (0, 0));
    assert_eq!(root.rename(b"l", &other, b"l", 0), Err(EXDEV));
    f.set_attr(&SetAttr { permissions: Some(0o600), ..SetAttr::default() }).unwrap();
    assert_eq!(f.stat().unwrap().permissions, 0o600);
}

#[test]
fn listings_come_in_pieces_and_start_again() {
    let (_, root) = volume();
    for i in 0..700 {
        make(&root, &format!("a-file-with-a-longer-name-{i}"));
    }
    for _ in 0..2 {
        let (mut from, mut names) = (0, Vec::new());
        loop {
            let some = root.list(from, 50).unwrap();
            let Some(last) = some.last() else { break };
            from = last.next;
            names.extend(some.into_iter().map(|e| e.name));
        }
        names.sort();
        names.dedup();
        assert_eq!(names.len(), 700);
    }
}

#[test]
fn an_unlinked_file_lives_while_it_is_open() {
    let (_, root) = volume();
    let file = open(&make(&root, "f"));
    write(&file, 0, b"kept");
    root.unlink(b"f", false).unwrap();
    write(&file, 4, b" and grown");
    assert_eq!(read(&file, 0, 100), b"kept and grown");
    let stat = file.stat().unwrap();
    assert_eq!((stat.links, stat.size), (0, 14));
}

#[test]
fn handles_are_given_back() {
    let (server, root) = volume();
    for i in 0..50 {
        let file = open(&make(&root, &format!("f{i}")));
        write(&file, 0, b"x");
        file.close().unwrap();
    }
    root.stat().unwrap();
    assert!(server.handle_count() < 5, "{} handles", server.handle_count());
}

#[test]
fn mapped_pages_and_calls_see_the_same_bytes() {
    let (server, root) = volume();
    let file = open(&make(&root, "f"));
    write(&file, 0, &[1; 10_000]);
    let pages = file.page_source().unwrap();
    assert_eq!(pages.length(), 10_000);
    let frame = pages.page(1, true).unwrap();
    frame.write(5, b"mapped");
    assert_eq!(read(&file, 4096 + 5, 6), b"mapped");
    write(&file, 4096 + 100, b"written");
    let mut out = [0; 7];
    frame.read(100, &mut out);
    assert_eq!(&out, b"written");
    file.sync(false).unwrap();
    let host = open(&server.root.lookup(b"f").unwrap());
    assert_eq!(read(&host, 4096 + 5, 6), b"mapped");
    let last = pages.page(2, false).unwrap();
    let mut tail = [9; 4];
    last.read(10_000 - 8192, &mut tail);
    assert_eq!(tail, [0; 4]);
    assert_eq!(pages.page(3, false).err(), Some(EIO));
    file.truncate(5000).unwrap();
    assert_eq!(pages.length(), 5000);
    assert_eq!(read(&file, 4090, 2000).len(), 910);
}

#[test]
fn extended_attributes_travel() {
    let (_, root) = volume();
    let f = make(&root, "f");
    f.set_xattr(b"user.a", b"value", 0).unwrap();
    assert_eq!(f.get_xattr(b"user.a").unwrap(), b"value");
    assert_eq!(f.list_xattr().unwrap(), b"user.a\0");
    f.remove_xattr(b"user.a").unwrap();
    assert_eq!(f.get_xattr(b"user.a"), Err(ENODATA));
}

/// Everything a program might do; whether it works does not matter.
fn exercise(root: &Arc<dyn Inode>) {
    let _ = root.stat();
    let _ = root.stat_fs();
    let _ = root.list(0, 10);
    let _ = root.create(b"n", FileType::Regular, 0o644, (0, 0), 0);
    let _ = root.create(b"d", FileType::Directory, 0o755, (0, 0), 0);
    let _ = root.symlink(b"l", b"n", (0, 0));
    let _ = root.lookup(b"l").and_then(|l| l.read_link());
    if let Ok(inode) = root.lookup(b"n") {
        let _ = inode.get_xattr(b"user.x");
        let _ = inode.set_xattr(b"user.x", b"y", 0);
        if let Ok(file) = inode.open(&inode, 2) {
            let _ = file.write(0, &mut Source::kernel(&[7; 5000]));
            let _ = file.read(0, &mut Sink::kernel(&mut [0; 5000]));
            let _ = file.append(&mut Source::kernel(b"z"));
            if let Ok(pages) = file.page_source() {
                let _ = pages.page(0, true);
                let _ = file.read(0, &mut Sink::kernel(&mut [0; 500]));
            }
            let _ = file.sync(false);
        }
    }
    let _ = root.rename(b"n", root, b"m", 0);
    let _ = root.unlink(b"m", false);
}

/// Deterministic mutation: whatever the server answers, the client answers errors and ends. `UNILITH_FUZZ_ROUNDS`
/// makes it longer.
#[test]
fn mutated_replies_are_errors_and_nothing_worse() {
    let mut state = 0x1234_5678_9abc_def1_u64;
    let rounds: u64 = std::env::var("UNILITH_FUZZ_ROUNDS").map_or(3000, |n| n.parse().unwrap());
    for round in 0..rounds {
        let server = Server::new();
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(round | 1);
        let mut seed = state | 1;
        let mut random = move |n: usize| {
            seed ^= seed << 13;
            seed ^= seed >> 7;
            seed ^= seed << 17;
            (seed % n.max(1) as u64) as usize
        };
        *server.tamper.lock() = Some(Box::new(move |reply: &mut Vec<u8>| {
            if random(4) != 0 {
                return;
            }
            match random(4) {
                0 => reply.truncate(random(reply.len() + 1)),
                1 => {
                    // The length stays right, so that what follows is looked at.
                    for _ in 0..1 + random(4) {
                        let at = 7 + random(reply.len().saturating_sub(7));
                        if let Some(byte) = reply.get_mut(at) {
                            *byte = [0, 1, 0x7f, 0x80, 0xff][random(5)];
                        }
                    }
                }
                2 => {
                    let at = random(reply.len());
                    reply[at] ^= 1 << random(8);
                }
                _ => reply.extend_from_slice(&[0xff; 20]),
            }
        }));
        if let Ok(root) = attach(server.clone(), 9) {
            exercise(&root);
        }
    }
}
