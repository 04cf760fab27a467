// SPDX-License-Identifier: Apache-2.0 OR MIT
use super::cpio::tests::Writer;
use super::*;
use abi::errno::*;
use api_fs::{File, FileType, Inode, SetAttr, Sink, Source};
use api_mem::PageSource;
use std::vec::Vec;
use std::{string::String, vec};

const MIB: u64 = 1 << 20;

fn as_inode(node: &Arc<Node>) -> Arc<dyn Inode> {
    node.clone()
}

fn walk(root: &Arc<Node>, path: &str) -> Result<Arc<dyn Inode>> {
    path.split('/')
        .filter(|p| !p.is_empty())
        .try_fold(as_inode(root), |dir, name| dir.lookup(name.as_bytes()))
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

fn write(file: &Arc<dyn File>, offset: u64, bytes: &[u8]) -> Result<usize> {
    file.write(offset, &mut Source::kernel(bytes))
}

fn names(dir: &Arc<dyn Inode>) -> Vec<String> {
    let mut out: Vec<String> =
        dir.list(0, 1000).unwrap().into_iter().map(|e| String::from_utf8(e.name).unwrap()).collect();
    out.sort();
    out
}

fn new_file(root: &Arc<Node>, name: &[u8]) -> Arc<dyn File> {
    open(&root.create(name, FileType::Regular, 0o644, (0, 0), 0).unwrap())
}

fn sample() -> Arc<Node> {
    let mut big = vec![7u8; 10_000];
    big[9_999] = 9;
    let bytes = Writer::new()
        .add("bin", 0o040755, b"")
        .add("bin/prog", 0o100755, &big)
        .add("etc", 0o040755, b"")
        .add("etc/motd", 0o100644, b"hello\n")
        .add("link", 0o120777, b"etc/motd")
        .add("etc/null", 0o020666, b"")
        .add_linked("h1", 0o100644, b"", 42, 2)
        .add_linked("h2", 0o100644, b"shared", 42, 2)
        .add(".unilith", 0o040755, b"")
        .add(".unilith/sites", 0o040755, b"")
        .add(".unilith/sites/bin", 0o040755, b"")
        .add(".unilith/sites/bin/prog", 0o100644, b"sites of prog")
        .finish();
    from_archive(bytes, bytes.as_ptr() as u64, 1, MIB).unwrap()
}

fn sites(pages: &dyn PageSource) -> Option<Vec<u8>> {
    let mut found = None;
    pages.sites(&mut |sites| found = Some(sites.to_vec()));
    found
}

#[test]
fn an_archive_becomes_a_tree() {
    let root = sample();
    assert_eq!(names(&as_inode(&root)), ["bin", "etc", "h1", "h2", "link"]);
    assert_eq!(walk(&root, ".unilith").err(), Some(ENOENT));
    assert_eq!(walk(&root, "etc/motd/x").err(), Some(ENOTDIR));
    assert_eq!(read(&open(&walk(&root, "etc/motd").unwrap()), 0, 100), b"hello\n");
    assert_eq!(walk(&root, "link").unwrap().read_link().unwrap(), b"etc/motd");
    assert_eq!(walk(&root, "etc/null").unwrap().stat().unwrap().rdev, 0x103);
    // A file's device number is what its program may do.
    let motd = walk(&root, "etc/motd").unwrap();
    let capabilities = [2 << 24, 1, 0, 3, 0].map(u32::to_le_bytes).concat();
    assert_eq!((motd.stat().unwrap().rdev, motd.get_xattr(b"security.capability")), (0, Ok(capabilities)));
    assert_eq!(walk(&root, "etc").unwrap().get_xattr(b"security.capability"), Err(ENODATA));
    assert_eq!(walk(&root, "").unwrap().stat().unwrap().links, 4);
    let prog = open(&walk(&root, "bin/prog").unwrap());
    assert_eq!(read(&prog, 9_990, 100), [7, 7, 7, 7, 7, 7, 7, 7, 7, 9]);
    assert_eq!(sites(&*prog.page_source().unwrap()), Some(b"sites of prog".to_vec()));
    let (a, b) = (walk(&root, "h1").unwrap(), walk(&root, "h2").unwrap());
    assert!(Arc::ptr_eq(&a, &b));
    assert_eq!((a.stat().unwrap().links, a.stat().unwrap().size), (2, 6));
}

#[test]
fn pages_of_the_archive_are_used_in_place_and_its_last_one_is_copied() {
    let bytes = Writer::new().add("f", 0o100644, &[5; 9000]).add("g", 0o100644, b"next").finish();
    let root = from_archive(bytes, bytes.as_ptr() as u64, 1, MIB).unwrap();
    let file = open(&walk(&root, "f").unwrap());
    let pages = file.page_source().unwrap();
    let range = bytes.as_ptr_range();
    let inside = |frame: &api_mem::PageFrame| range.contains(&(frame.physical() as *const u8));
    assert!(inside(&pages.page(0, false).unwrap()) && inside(&pages.page(1, true).unwrap()));
    let last = pages.page(2, false).unwrap();
    assert!(!inside(&last));
    let mut tail = [1; 4096 - 808];
    last.read(808, &mut tail);
    assert!(tail.iter().all(|b| *b == 0));
    assert_eq!(pages.page(3, false).err(), Some(EIO));
    // What is written to the file shows in its mapped pages, and the neighbour is untouched.
    write(&file, 4000, b"written over a page boundary, in place").unwrap();
    write(&file, 8990, b"and over the end").unwrap();
    let mut byte = [0];
    pages.page(0, false).unwrap().read(4000, &mut byte);
    assert_eq!(byte, *b"w");
    last.read(808, &mut byte);
    assert_eq!(byte, *b"h", "the copied page is the page of the file");
    assert_eq!(sites(&*pages), None);
    assert_eq!(read(&open(&walk(&root, "g").unwrap()), 0, 10), b"next");
}

#[test]
fn a_truncated_archive_file_grows_back_as_zeros() {
    for cut in [0, 1, 4095, 4096, 4097, 8192, 8999] {
        let bytes = Writer::new().add("f", 0o100644, &[5; 9000]).finish();
        let root = from_archive(bytes, bytes.as_ptr() as u64, 1, MIB).unwrap();
        let file = open(&walk(&root, "f").unwrap());
        file.truncate(cut).unwrap();
        file.truncate(20_000).unwrap();
        let all = read(&file, 0, 30_000);
        assert_eq!(all.len(), 20_000);
        assert!(all.iter().enumerate().all(|(i, b)| *b == if (i as u64) < cut { 5 } else { 0 }), "cut {cut}");
    }
}

#[test]
fn files_have_holes_and_the_limit_counts_pages() {
    let root = tmpfs(2, 4 * 4096, 0o777, (0, 0));
    let file = new_file(&root, b"f");
    file.truncate(1 << 40).unwrap();
    assert_eq!(read(&file, 1 << 39, 5), [0; 5]);
    assert_eq!(write(&file, 1 << 30, b"x"), Ok(1));
    assert_eq!(file.seek_data(0, false), Ok(1 << 30));
    assert_eq!(file.seek_data(1 << 30, true), Ok((1 << 30) + 4096));
    assert_eq!(file.seek_data((1 << 30) + 4096, false), Err(ENXIO));
    assert_eq!(write(&file, 0, &[1; 5 * 4096]), Ok(3 * 4096));
    assert_eq!(write(&file, 5 * 4096, &[1; 1]), Err(ENOSPC));
    assert_eq!(root.stat_fs().unwrap().blocks_free, 0);
    file.truncate(4096).unwrap();
    assert_eq!(root.stat_fs().unwrap().blocks_free, 3);
    drop(file);
    root.unlink(b"f", false).unwrap();
    assert_eq!(root.stat_fs().unwrap().blocks_free, 4);
    assert_eq!(root.stat_fs().unwrap().files_free, 4);
}

#[test]
fn the_root_directory_is_one_of_the_inodes_that_there_may_be() {
    let root = tmpfs(2, 1 << 20, 0o777, (0, 0));
    root.set_limits(None, Some(3)).unwrap();
    assert_eq!(root.stat_fs().unwrap().files_free, 2);
    let _files = [new_file(&root, b"a"), new_file(&root, b"b")];
    assert_eq!(root.stat_fs().unwrap().files_free, 0);
    assert_eq!(root.set_limits(None, Some(2)), Err(EINVAL));
}

#[test]
fn holes_are_punched_in_pages_and_parts_of_pages() {
    let archive = Writer::new().add("a", 0o100644, &[3; 20_000]).add("small", 0o100644, &[3; 100]).finish();
    let root = from_archive(archive, archive.as_ptr() as u64, 1, MIB).unwrap();
    let own = new_file(&root, b"own");
    write(&own, 0, &[3; 20_000]).unwrap();
    for (file, length) in [(own, 20_000), (open(&walk(&root, "a").unwrap()), 20_000)] {
        for (from, n) in [(10u64, 20u64), (4000, 200), (5000, 10_000), (19_990, 50)] {
            file.allocate(3, from, n).unwrap();
            let all = read(&file, 0, 30_000);
            assert_eq!(all.len(), length);
            assert!(all[from as usize..((from + n) as usize).min(length)].iter().all(|b| *b == 0));
            assert_eq!(all[0], 3);
        }
        assert_eq!(read(&file, 4200, 1), [3]);
        assert_eq!(read(&file, 15_000, 1), [3]);
    }
    let small = open(&walk(&root, "small").unwrap());
    small.allocate(3, 50, 4096).unwrap();
    assert_eq!(read(&small, 48, 4), [3, 3, 0, 0]);
}

#[test]
fn ranges_are_taken_out_and_put_in() {
    const PAGE: u64 = PAGE_SIZE as u64;
    let text: Vec<u8> = (0..4u8).flat_map(|i| [b'a' + i; PAGE_SIZE]).take(3 * PAGE_SIZE + 100).collect();
    let archive = Writer::new().add("a", 0o100644, &text).finish();
    let root = from_archive(archive, archive.as_ptr() as u64, 1, MIB).unwrap();
    let own = new_file(&root, b"own");
    write(&own, 0, &text).unwrap();
    for file in [own, open(&walk(&root, "a").unwrap())] {
        file.allocate(8, PAGE, PAGE).unwrap();
        let without = [&text[..PAGE_SIZE], &text[2 * PAGE_SIZE..]].concat();
        assert_eq!(read(&file, 0, 30_000), without);
        file.allocate(32, PAGE, 2 * PAGE).unwrap();
        let with = [&without[..PAGE_SIZE], &[0; 2 * PAGE_SIZE], &without[PAGE_SIZE..]].concat();
        assert_eq!(read(&file, 0, 30_000), with);
        for (mode, from, length) in [(8, 1, PAGE), (8, 3 * PAGE, 2 * PAGE), (32, 5 * PAGE, PAGE), (32, 0, 1)]
        {
            assert_eq!(file.allocate(mode, from, length), Err(EINVAL));
        }
    }
}

#[test]
fn appends_reserve_their_place_first() {
    let root = tmpfs(2, MIB, 0o777, (0, 0));
    let file = new_file(&root, b"f");
    assert_eq!(file.append(&mut Source::kernel(b"one")), Ok((3, 3)));
    assert_eq!(file.append(&mut Source::kernel(b"two")), Ok((3, 6)));
    assert_eq!(read(&file, 0, 10), b"onetwo");
    let full = tmpfs(2, 4096, 0o777, (0, 0));
    let file = new_file(&full, b"f");
    assert_eq!(file.append(&mut Source::kernel(&[1; 5000])), Ok((4096, 4096)));
    assert_eq!(file.size(), Ok(4096));
    assert_eq!(file.append(&mut Source::kernel(b"x")), Err(ENOSPC));
    assert_eq!(file.size(), Ok(4096));
}

#[test]
fn names_follow_the_rules_of_rename() {
    let root = tmpfs(2, MIB, 0o777, (0, 0));
    let dir = |name: &[u8]| root.create(name, FileType::Directory, 0o755, (0, 0), 0).unwrap();
    let (a, b) = (dir(b"a"), dir(b"b"));
    new_file(&root, b"f");
    a.create(b"x", FileType::Regular, 0o644, (0, 0), 0).unwrap();
    assert_eq!(root.rename(b"f", &as_inode(&root), b"a", 0), Err(EISDIR));
    assert_eq!(root.rename(b"a", &as_inode(&root), b"f", 0), Err(ENOTDIR));
    assert_eq!(root.rename(b"b", &as_inode(&root), b"a", 0), Err(ENOTEMPTY));
    assert_eq!(root.rename(b"a", &as_inode(&root), b"b", 1), Err(EEXIST));
    assert_eq!(root.rename(b"zz", &as_inode(&root), b"b", 0), Err(ENOENT));
    assert_eq!(root.rename(b"a", &as_inode(&root), b"b", 0), Ok(()));
    assert_eq!(b.stat().unwrap().links, 0);
    assert_eq!(b.create(b"y", FileType::Regular, 0o644, (0, 0), 0).err(), Some(ENOENT));
    assert_eq!(names(&as_inode(&root)), ["b", "f"]);
    assert_eq!(root.stat().unwrap().links, 3);
    assert_eq!(root.rename(b"b", &as_inode(&root), b"f", 2), Ok(()));
    assert_eq!(walk(&root, "f/x").unwrap().stat().unwrap().kind, FileType::Regular);
    assert_eq!(walk(&root, "b").unwrap().stat().unwrap().kind, FileType::Regular);
    let other = tmpfs(3, MIB, 0o777, (0, 0));
    assert_eq!(root.rename(b"b", &as_inode(&other), b"b", 0), Err(EXDEV));
}

#[test]
fn links_are_counted_and_an_unlinked_file_lives_while_open() {
    let root = tmpfs(2, MIB, 0o777, (0, 0));
    let file = new_file(&root, b"f");
    write(&file, 0, b"kept").unwrap();
    let inode = walk(&root, "f").unwrap();
    root.link(b"g", &inode).unwrap();
    assert_eq!(root.link(b"g", &inode), Err(EEXIST));
    assert_eq!(inode.stat().unwrap().links, 2);
    root.unlink(b"f", false).unwrap();
    root.unlink(b"g", false).unwrap();
    assert_eq!(inode.stat().unwrap().links, 0);
    assert_eq!(read(&file, 0, 9), b"kept");
    assert_eq!(root.unlink(b"g", false), Err(ENOENT));
}

#[test]
fn an_emptied_archive_directory_stays_empty() {
    let root = sample();
    let etc = walk(&root, "etc").unwrap();
    assert_eq!(root.unlink(b"etc", true), Err(ENOTEMPTY));
    etc.unlink(b"motd", false).unwrap();
    etc.unlink(b"null", false).unwrap();
    assert!(names(&etc).is_empty());
    assert_eq!(etc.lookup(b"motd").err(), Some(ENOENT));
    root.unlink(b"etc", true).unwrap();
    assert_eq!(names(&as_inode(&root)), ["bin", "h1", "h2", "link"]);
}

#[test]
fn a_listing_goes_on_while_names_come_and_go() {
    let root = tmpfs(2, 16 * MIB, 0o777, (0, 0));
    for i in 0..500 {
        root.create(std::format!("f{i}").as_bytes(), FileType::Regular, 0o644, (0, 0), 0).unwrap();
    }
    let mut seen = Vec::new();
    let mut from = 0;
    loop {
        let some = root.list(from, 7).unwrap();
        let Some(last) = some.last() else { break };
        from = last.next;
        for entry in &some {
            root.unlink(&entry.name, false).unwrap();
            seen.push(entry.name.clone());
        }
    }
    seen.sort();
    seen.dedup();
    assert_eq!(seen.len(), 500);
}

#[test]
fn attributes_change_and_a_write_clears_set_user_id() {
    let root = tmpfs(2, MIB, 0o777, (0, 0));
    let file = new_file(&root, b"f");
    let inode = walk(&root, "f").unwrap();
    inode.set_attr(&SetAttr { permissions: Some(0o4755), uid: Some(7), ..SetAttr::default() }).unwrap();
    assert_eq!((inode.stat().unwrap().permissions, inode.stat().unwrap().uid), (0o4755, 7));
    write(&file, 0, b"x").unwrap();
    assert_eq!(inode.stat().unwrap().permissions, 0o755);
    assert_eq!(inode.set_xattr(b"user.a", b"1", 2), Err(ENODATA));
    inode.set_xattr(b"user.a", b"1", 1).unwrap();
    assert_eq!(inode.set_xattr(b"user.a", b"1", 1), Err(EEXIST));
    assert_eq!(inode.set_xattr(b"user.b", &vec![0; 65536], 0), Err(ENOSPC));
    assert_eq!(inode.list_xattr().unwrap(), b"user.a\0");
    inode.remove_xattr(b"user.a").unwrap();
    assert_eq!(inode.get_xattr(b"user.a"), Err(ENODATA));
}

#[test]
fn seals_forbid_what_they_name() {
    let root = tmpfs(2, MIB, 0o777, (0, 0));
    let node = root.unnamed(0o777, (0, 0), true).unwrap();
    let file = open(&as_inode(&node));
    write(&file, 0, &[1; 10]).unwrap();
    node.add_seals(2 | 4).unwrap();
    assert_eq!(file.truncate(5), Err(EPERM));
    assert_eq!(file.truncate(50), Err(EPERM));
    assert_eq!(write(&file, 5, &[1; 10]), Err(EPERM));
    assert_eq!(write(&file, 5, &[1; 5]), Ok(5));
    node.add_seals(8 | 1).unwrap();
    assert_eq!(write(&file, 0, &[1]), Err(EPERM));
    assert_eq!(node.page(0, true).err(), Some(EACCES));
    assert_eq!(node.add_seals(8), Err(EPERM));
    assert_eq!(new_file(&root, b"plain").as_any().downcast_ref::<RamFile>().unwrap().node().seals(), Ok(1));
}

/// Visits everything reachable; returns how many inodes that were.
fn visit(dir: &Arc<dyn Inode>, depth: u32) -> usize {
    let mut count = 0;
    for entry in dir.list(0, 100).unwrap() {
        let Ok(inode) = dir.lookup(&entry.name) else { continue };
        let _ = inode.stat().unwrap();
        let _ = inode.read_link();
        count += 1;
        if let Ok(file) = inode.open(&inode, 0)
            && inode.kind() == Ok(FileType::Regular)
        {
            let mut out = [0; 300];
            let _ = file.read(0, &mut Sink::kernel(&mut out));
            let _ = file.page_source().map(|p| p.page(0, false));
        }
        if depth < 20 && inode.kind() == Ok(FileType::Directory) {
            count += visit(&inode, depth + 1);
        }
    }
    count
}

/// Deterministic mutation: whatever the archive says, reading it ends without a panic. `UNILITH_FUZZ_ROUNDS` makes it
/// longer.
#[test]
fn mutated_archives_are_refused_or_read() {
    let good = Writer::new()
        .add("d", 0o040755, b"")
        .add("d/f", 0o100644, &[1; 5000])
        .add("d/l", 0o120777, b"f")
        .add_linked("h1", 0o100644, b"", 42, 2)
        .add_linked("d/h2", 0o100644, b"shared", 42, 2)
        .add(".unilith/sites/d", 0o040755, b"")
        .add(".unilith/sites/d/f", 0o100644, b"sites")
        .finish()
        .to_vec();
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut random = |n: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state % n as u64) as usize
    };
    let (mut read, mut refused) = (0, 0);
    let rounds = std::env::var("UNILITH_FUZZ_ROUNDS").map_or(20_000, |n| n.parse().unwrap());
    let interesting = b"0123456789abcdefF/.\0 \xff~";
    // Headers and names, not the 5,000 bytes of data, are where the damage is interesting.
    let data = good.windows(64).position(|w| w.iter().all(|b| *b == 1)).unwrap();
    for _ in 0..rounds {
        let mut bytes = good.clone();
        for _ in 0..1 + random(6) {
            let mut at = random(bytes.len() - 4900);
            if at > data {
                at += 4900;
            }
            bytes[at] = interesting[random(interesting.len())];
        }
        let bytes = AlignedBytes::new(&bytes);
        match from_archive(bytes.get(), bytes.get().as_ptr() as u64, 1, MIB) {
            Ok(root) => {
                visit(&as_inode(&root), 0);
                // Inodes of several names are kept by the file system, which they keep.
                if let Some(archive) = &root.fs.archive {
                    archive.linked.lock().clear();
                }
                read += 1;
            }
            Err(_) => refused += 1,
        }
    }
    assert!(read > 1000 && refused > 1000, "{read} read, {refused} refused");
}

/// Page-aligned bytes that live as long as this; tests hand them out as if forever.
struct AlignedBytes(*mut u8, std::alloc::Layout, usize);

#[allow(unsafe_code)]
impl AlignedBytes {
    fn new(bytes: &[u8]) -> AlignedBytes {
        let layout = std::alloc::Layout::from_size_align(bytes.len(), 4096).unwrap();
        // SAFETY: the layout is not empty, and the copy fills it.
        let at = unsafe { std::alloc::alloc(layout) };
        // SAFETY: as above.
        unsafe { core::ptr::copy_nonoverlapping(bytes.as_ptr(), at, bytes.len()) };
        AlignedBytes(at, layout, bytes.len())
    }

    fn get(&self) -> &'static [u8] {
        // SAFETY: the test drops the tree before this.
        unsafe { core::slice::from_raw_parts(self.0, self.2) }
    }
}

#[allow(unsafe_code)]
impl Drop for AlignedBytes {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout.
        unsafe { std::alloc::dealloc(self.0, self.1) }
    }
}

#[test]
fn what_is_there_initially_behaves_like_what_was_created() {
    static INITIAL: [Initial; 3] = [
        Initial { name: b"null", kind: FileType::CharDevice, permissions: 0o666, rdev: 0x103, target: b"" },
        Initial {
            name: b"fd",
            kind: FileType::Symlink,
            permissions: 0o777,
            rdev: 0,
            target: b"/proc/self/fd",
        },
        Initial { name: b"shm", kind: FileType::Directory, permissions: 0o755, rdev: 0, target: b"" },
    ];
    let root: Arc<dyn Inode> = tmpfs_with(2, MIB, 0o755, (0, 0), &INITIAL);
    assert_eq!(root.stat().unwrap().links, 3);
    let listed = root.list(0, 10).unwrap();
    assert_eq!(listed.len(), 3);
    for entry in listed {
        let stat = root.lookup(&entry.name).unwrap().stat().unwrap();
        assert_eq!((stat.inode, stat.kind), (entry.inode, entry.kind));
    }
    let null = root.lookup(b"null").unwrap().stat().unwrap();
    assert_eq!((null.rdev, null.permissions, null.links), (0x103, 0o666, 1));
    assert_eq!(root.lookup(b"fd").unwrap().read_link().unwrap(), b"/proc/self/fd");
    root.lookup(b"shm").unwrap().create(b"x", FileType::Regular, 0o600, (0, 0), 0).unwrap();
    let new = root.create(b"new", FileType::Regular, 0o600, (0, 0), 0).unwrap().stat().unwrap().inode;
    assert!(root.list(0, 10).unwrap().iter().filter(|e| e.inode == new).count() == 1);
    for name in [&b"null"[..], b"fd", b"new"] {
        root.unlink(name, false).unwrap();
    }
    assert_eq!(root.unlink(b"shm", true), Err(ENOTEMPTY));
    root.lookup(b"shm").unwrap().unlink(b"x", false).unwrap();
    root.unlink(b"shm", true).unwrap();
    assert!(root.list(0, 10).unwrap().is_empty(), "what was removed does not come back");
    assert_eq!(root.lookup(b"null").err(), Some(ENOENT));
}

#[test]
fn a_tree_of_any_depth_is_freed_without_a_stack_of_its_depth() {
    const DEPTH: usize = 50_000;
    let build = || {
        let root: Arc<dyn Inode> = tmpfs_with(2, 4096 * MIB, 0o755, (0, 0), &[]);
        let mut at = root.clone();
        for _ in 0..DEPTH {
            at.create(b"file", FileType::Regular, 0o600, (0, 0), 0).unwrap();
            let beside = at.create(b"beside", FileType::Directory, 0o700, (0, 0), 0).unwrap();
            beside.create(b"below", FileType::Directory, 0o700, (0, 0), 0).unwrap();
            at = at.create(b"d", FileType::Directory, 0o700, (0, 0), 0).unwrap();
        }
        (root, at)
    };
    // As much stack as a thread has in the kernel.
    let thread = std::thread::Builder::new().stack_size(64 << 10).spawn(move || {
        let (root, last) = build();
        last.create(b"last", FileType::Regular, 0o600, (0, 0), 0).unwrap();
        let middle = root.lookup(b"d").unwrap().lookup(b"d").unwrap();
        drop(last);
        drop(root);
        assert!(middle.lookup(b"d").unwrap().lookup(b"beside").is_ok(), "what somebody has open stays");
        drop(middle);
    });
    thread.unwrap().join().unwrap();
}
