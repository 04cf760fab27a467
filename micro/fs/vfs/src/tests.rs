// SPDX-License-Identifier: Apache-2.0 OR MIT
use super::*;
use abi::errno::*;
use alloc::sync::Arc;
use api_fs::{FileType, Inode};
use std::string::{String, ToString};
use std::vec::Vec;

const CREATE: u32 = 0o102;
const EXCLUSIVE: u32 = 0o200;
const NOFOLLOW: u32 = 0o400000;
const DIRECTORY: u32 = 0o200000;

struct World {
    namespace: Namespace,
    top: Arc<Dentry>,
    root: Credentials,
    user: Credentials,
}

fn world() -> World {
    sized_world(1 << 20)
}

fn sized_world(limit: u64) -> World {
    let root: Arc<dyn Inode> = ramfs::tmpfs(1, limit, 0o755, (0, 0));
    let user = Credentials { uid: 1000, gid: 1000, groups: Vec::from([50]).into(), ..Credentials::default() };
    let namespace = Namespace::new(root, "rootfs").unwrap();
    let top = namespace.root();
    World { namespace, top, root: Credentials::default(), user }
}

impl World {
    fn walk(&self) -> Walk<'_> {
        Walk::new(&self.top, &self.top, &self.root)
    }

    fn user(&self) -> Walk<'_> {
        Walk { who: &self.user, ..self.walk() }
    }

    fn dir(&self, path: &str) -> Arc<Dentry> {
        ops::create(&self.walk(), path.as_bytes(), FileType::Directory, 0o755, 0).unwrap()
    }

    fn file(&self, path: &str) -> Arc<Dentry> {
        ops::open(&self.walk(), path.as_bytes(), CREATE, 0o644).unwrap().dentry
    }

    fn link(&self, target: &str, path: &str) {
        ops::symlink(&self.walk(), target.as_bytes(), path.as_bytes()).unwrap();
    }

    /// The path of what a path leads to, or the error.
    fn find(&self, path: &str) -> core::result::Result<String, abi::Errno> {
        let dentry = self.walk().lookup(path.as_bytes(), true)?;
        Ok(show(&dentry, &self.top))
    }
}

fn show(dentry: &Arc<Dentry>, root: &Arc<Dentry>) -> String {
    dentry.path_from(root).map_or("unreachable".to_string(), |p| String::from_utf8(p).unwrap())
}

fn rename(w: &World, old: &str, new: &str, flags: u32) -> abi::Result<()> {
    ops::rename(&w.walk(), old.as_bytes(), &w.walk(), new.as_bytes(), flags)
}

fn unlink(w: &World, path: &str, directory: bool) -> abi::Result<()> {
    ops::unlink(&w.walk(), path.as_bytes(), directory)
}

#[test]
fn paths_resolve_as_path_resolution_says() {
    let w = world();
    w.dir("/a");
    w.dir("/a/b");
    w.file("/a/f");
    w.link("b", "/a/rel");
    w.link("/a/b", "/abs");
    w.link("nowhere", "/dangling");
    for (path, end) in [
        ("/", "/"),
        ("//", "/"),
        ("/a//b/", "/a/b"),
        ("/a/./b/..", "/a"),
        ("/../../a", "/a"),
        ("/a/rel", "/a/b"),
        ("/abs/../f", "/a/f"),
        ("a/rel/", "/a/b"),
        ("/a/f", "/a/f"),
    ] {
        assert_eq!(w.find(path).as_deref(), Ok(end), "{path}");
    }
    for (path, error) in [
        ("", ENOENT),
        ("/a/f/", ENOTDIR),
        ("/a/f/x", ENOTDIR),
        ("/a/f/..", ENOTDIR),
        ("/nope", ENOENT),
        ("/nope/x", ENOENT),
        ("/dangling", ENOENT),
        (&"x".repeat(256), ENAMETOOLONG),
    ] {
        assert_eq!(w.find(path).err(), Some(error), "{path}");
    }
    assert_eq!(w.walk().lookup(b"/dangling", false).unwrap().kind(), FileType::Symlink);
}

#[test]
fn forty_links_are_followed_and_not_one_more() {
    let w = world();
    w.file("/l0");
    for i in 1..=41 {
        w.link(&std::format!("l{}", i - 1), &std::format!("/l{i}"));
    }
    assert_eq!(w.find("/l40").as_deref(), Ok("/l0"));
    assert_eq!(w.find("/l41").err(), Some(ELOOP));
    w.link("self", "/self");
    assert_eq!(w.find("/self").err(), Some(ELOOP));
    assert_eq!(w.find("/self/x").err(), Some(ELOOP));
}

#[test]
fn open_creates_follows_and_refuses() {
    let w = world();
    w.dir("/d");
    w.link("target", "/d/link");
    let open = |path: &str, flags| ops::open(&w.walk(), path.as_bytes(), flags, 0o644);
    assert!(open("/d/link", CREATE).unwrap().created);
    assert_eq!(w.find("/d/link").as_deref(), Ok("/d/target"));
    assert!(!open("/d/link", CREATE).unwrap().created);
    assert_eq!(open("/d/link", CREATE | EXCLUSIVE).err(), Some(EEXIST));
    assert_eq!(open("/d/link", NOFOLLOW).err(), Some(ELOOP));
    assert_eq!(open("/d/link", NOFOLLOW | CREATE).err(), Some(ELOOP));
    assert_eq!(open("/d", CREATE).err(), Some(EISDIR));
    assert_eq!(open("/d/new/", CREATE).err(), Some(EISDIR));
    assert_eq!(open("/d", 1).err(), Some(EISDIR));
    assert_eq!(open("/d/target", DIRECTORY).err(), Some(ENOTDIR));
    assert_eq!(open("/none", 0).err(), Some(ENOENT));
    assert_eq!(open("/", CREATE).err(), Some(EISDIR));
}

#[test]
fn permissions_are_the_owners_the_groups_and_the_others() {
    let w = world();
    w.dir("/private");
    let private = w.walk().lookup(b"/private", true).unwrap();
    let mode = |permissions| {
        let change = api_fs::SetAttr { permissions: Some(permissions), ..Default::default() };
        private.inode().set_attr(&change).unwrap();
    };
    w.file("/private/f");
    let open = |flags| ops::open(&w.user(), b"/private/f", flags, 0).map(|_| ());
    mode(0o700);
    assert_eq!(open(0), Err(EACCES));
    mode(0o711);
    assert_eq!(open(0), Ok(()));
    assert_eq!(open(2), Err(EACCES));
    assert_eq!(unlink_as_user(&w), Err(EACCES));
    mode(0o777);
    assert_eq!(unlink_as_user(&w), Ok(()));
    w.file("/private/f");
    mode(0o1777);
    assert_eq!(unlink_as_user(&w), Err(EPERM));
    let owner = api_fs::SetAttr { gid: Some(50), permissions: Some(0o020), ..Default::default() };
    w.walk().lookup(b"/private/f", true).unwrap().inode().set_attr(&owner).unwrap();
    assert_eq!(open(1), Ok(()));
    assert_eq!(open(0), Err(EACCES));
    assert_eq!(ops::create(&w.user(), b"/private/n", FileType::CharDevice, 0, 0x103).err(), Some(EPERM));
}

fn unlink_as_user(w: &World) -> abi::Result<()> {
    ops::unlink(&w.user(), b"/private/f", false)
}

#[test]
fn removed_names_keep_their_inode_and_show_as_deleted() {
    let w = world();
    w.dir("/d");
    let f = w.file("/d/f");
    assert_eq!(unlink(&w, "/d/f", true), Err(ENOTDIR));
    assert_eq!(unlink(&w, "/d", false), Err(EISDIR));
    assert_eq!(unlink(&w, "/d", true), Err(ENOTEMPTY));
    assert_eq!(unlink(&w, "/d/f/", false), Err(ENOTDIR));
    assert_eq!(unlink(&w, "/d/.", true), Err(EINVAL));
    assert_eq!(unlink(&w, "/d/..", true), Err(ENOTEMPTY));
    assert_eq!(unlink(&w, "/", true), Err(EBUSY));
    assert_eq!(unlink(&w, "/d/f", false), Ok(()));
    assert_eq!(show(&f, &w.top), "/d/f (deleted)");
    assert_eq!(w.find("/d/f").err(), Some(ENOENT));
    let d = w.walk().lookup(b"/d", true).unwrap();
    assert_eq!(unlink(&w, "/d/", true), Ok(()));
    let inside = Walk { start: &d, ..w.walk() };
    assert_eq!(ops::open(&inside, b"x", CREATE, 0o644).err(), Some(ENOENT));
    assert_eq!(inside.lookup(b"..", true).map(|d| show(&d, &w.top)).as_deref(), Ok("/"));
}

#[test]
fn renames_move_names_and_what_is_below() {
    let w = world();
    w.dir("/a");
    w.dir("/a/b");
    let f = w.file("/a/b/f");
    w.dir("/c");
    assert_eq!(rename(&w, "/a", "/a/b/x", 0), Err(EINVAL));
    assert_eq!(rename(&w, "/a/b/f", "/a/b", 0), Err(ENOTEMPTY));
    assert_eq!(rename(&w, "/a/b/f", "/c", 0), Err(EISDIR));
    assert_eq!(rename(&w, "/a/b/f/", "/g", 0), Err(ENOTDIR));
    assert_eq!(rename(&w, "/a/b/f", "/g/", 0), Err(ENOTDIR));
    assert_eq!(rename(&w, "/a/.", "/g", 0), Err(EBUSY));
    assert_eq!(rename(&w, "/a/b", "/c", 1), Err(EEXIST));
    assert_eq!(rename(&w, "/a/b", "/c", 3), Err(EINVAL));
    assert_eq!(rename(&w, "/a/b", "/c/", 0), Ok(()));
    assert_eq!(show(&f, &w.top), "/c/f");
    assert_eq!(w.find("/c/f").as_deref(), Ok("/c/f"));
    assert_eq!(w.find("/a/b").err(), Some(ENOENT));
    assert_eq!(rename(&w, "/a", "/c", 2), Ok(()));
    assert_eq!(show(&f, &w.top), "/a/f");
    assert_eq!(rename(&w, "/a/f", "/a/f", 0), Ok(()));
    assert_eq!(rename(&w, "/none", "/a/f", 0), Err(ENOENT));
    assert_eq!(rename(&w, "/a/f", "/none", 2), Err(ENOENT));
}

#[test]
fn mounts_cover_directories_and_dot_dot_leaves_them() {
    let w = world();
    w.dir("/m");
    w.file("/m/hidden");
    let point = w.walk().lookup(b"/m", true).unwrap();
    let fs: Arc<dyn Inode> = ramfs::tmpfs(2, 1 << 20, 0o777, (0, 0));
    w.namespace.mount(&point, fs, "tmpfs", "tmpfs", MountFlags::default()).unwrap();
    assert_eq!(w.find("/m/hidden").err(), Some(ENOENT));
    w.dir("/m/sub");
    assert_eq!(w.find("/m/sub/../../m").as_deref(), Ok("/m"));
    assert_eq!(w.find("/m/sub").as_deref(), Ok("/m/sub"));
    assert_eq!(rename(&w, "/m/sub", "/x", 0), Err(EXDEV));
    assert_eq!(unlink(&w, "/m", true), Err(EBUSY));
    let no_xdev = Walk { resolve: Resolve(Resolve::NO_XDEV), ..w.walk() };
    assert_eq!(no_xdev.lookup(b"m/sub", true).err(), Some(EXDEV));
    let mounted = w.walk().lookup(b"/m", true).unwrap();
    w.namespace.remount(&mounted, MountFlags(MountFlags::READ_ONLY)).unwrap();
    assert_eq!(ops::open(&w.walk(), b"/m/new", CREATE, 0).err(), Some(EROFS));
    assert_eq!(unlink(&w, "/m/sub", true), Err(EROFS));
    let sub = w.walk().lookup(b"/m/sub", true).unwrap();
    assert_eq!(w.namespace.unmount(&sub, false), Err(EINVAL));
    assert_eq!(w.namespace.unmount(&mounted, false), Err(EBUSY));
    drop(sub);
    assert_eq!(w.namespace.unmount(&mounted, false), Ok(()));
    assert_eq!(w.find("/m/hidden").as_deref(), Ok("/m/hidden"));
    assert_eq!(w.namespace.unmount(&w.top, false), Err(EINVAL));
}

#[test]
fn openat2_restrictions_hold() {
    let w = world();
    w.dir("/jail");
    w.dir("/jail/in");
    w.link("/jail/in", "/jail/abs");
    w.link("in", "/jail/rel");
    w.link("/in", "/jail/rooted");
    let jail = w.walk().lookup(b"/jail", true).unwrap();
    let try_with = |resolve, path: &[u8]| {
        let walk = Walk { start: &jail, resolve: Resolve(resolve), ..w.walk() };
        walk.lookup(path, true).map(|d| show(&d, &w.top))
    };
    assert_eq!(try_with(Resolve::BENEATH, b"in/../rel").as_deref(), Ok("/jail/in"));
    assert_eq!(try_with(Resolve::BENEATH, b"..").err(), Some(EXDEV));
    assert_eq!(try_with(Resolve::BENEATH, b"/jail").err(), Some(EXDEV));
    assert_eq!(try_with(Resolve::BENEATH, b"abs").err(), Some(EXDEV));
    assert_eq!(try_with(Resolve::IN_ROOT, b"/../rooted").as_deref(), Ok("/jail/in"));
    assert_eq!(try_with(Resolve::NO_SYMLINKS, b"rel").err(), Some(ELOOP));
    let walk = Walk { start: &jail, resolve: Resolve(Resolve::NO_SYMLINKS), ..w.walk() };
    assert!(walk.lookup(b"rel", false).is_ok());
}

#[test]
fn a_new_root_bounds_dot_dot() {
    let w = world();
    w.dir("/jail");
    w.dir("/jail/in");
    let jail = w.walk().lookup(b"/jail", true).unwrap();
    let walk = Walk { root: &jail, start: &jail, ..w.walk() };
    assert_eq!(show(&walk.lookup(b"/../../in", true).unwrap(), &jail), "/in");
    assert_eq!(show(&w.top, &jail), "unreachable");
}

#[test]
fn very_deep_trees_do_not_need_a_deep_stack() {
    let w = sized_world(1 << 30);
    let mut at = w.top.clone();
    for _ in 0..20_000 {
        let walk = Walk { start: &at, ..w.walk() };
        at = ops::create(&walk, b"d", FileType::Directory, 0o755, 0).unwrap();
    }
    std::thread::Builder::new().stack_size(16 * 1024).spawn(move || drop(at)).unwrap().join().unwrap();
    // The file system's own tree is dropped name by name as well: keep it out of this test.
    std::mem::forget(w);
}

#[test]
fn a_tree_that_nobody_uses_any_more_lets_go_of_all_that_was_mounted_in_it() {
    let mounted: [Arc<dyn Inode>; 2] =
        [ramfs::tmpfs(2, 1 << 20, 0o755, (0, 0)), ramfs::tmpfs(3, 1 << 20, 0o755, (0, 0))];
    let root: Arc<dyn Inode> = ramfs::tmpfs(1, 1 << 20, 0o755, (0, 0));
    let all = || [&root, &mounted[0], &mounted[1]].map(Arc::strong_count);
    let before = all();
    let namespace = Namespace::new(root.clone(), "rootfs").unwrap();
    let who = Credentials::default();
    let top = namespace.root();
    for (path, inode) in ["/a", "/a/b"].into_iter().zip(&mounted) {
        let walk = Walk::new(&top, &top, &who);
        let point = ops::create(&walk, path.as_bytes(), FileType::Directory, 0o755, 0).unwrap();
        namespace.mount(&point, inode.clone(), "tmpfs", "tmpfs", MountFlags::default()).unwrap();
    }
    ops::open(&Walk::new(&top, &top, &who), b"/a/b/file", CREATE, 0o644).unwrap();
    assert!(all() != before);
    namespace.take_apart();
    assert!(namespace.list().is_empty());
    drop((namespace, top));
    assert_eq!(all(), before, "mounts hold each other");
}
