// SPDX-License-Identifier: Apache-2.0 OR MIT
use super::*;
use abi::errno::*;
use alloc::sync::Arc;
use api_fs::{FileType, Inode};
use std::string::String;
use std::vec::Vec;

const CREATE: u32 = 0o102;

struct World {
    namespace: Namespace,
    root: Arc<Dentry>,
    who: Credentials,
}

fn tmpfs(device: u64) -> Arc<dyn Inode> {
    ramfs::tmpfs(device, 1 << 20, 0o755, (0, 0))
}

fn world() -> World {
    let namespace = Namespace::new(tmpfs(1), "rootfs").unwrap();
    let root = namespace.root();
    World { namespace, root, who: Credentials::default() }
}

impl World {
    fn walk(&self) -> Walk<'_> {
        Walk::new(&self.root, &self.root, &self.who)
    }

    fn dir(&self, path: &str) -> Arc<Dentry> {
        ops::create(&self.walk(), path.as_bytes(), FileType::Directory, 0o755, 0).unwrap()
    }

    fn file(&self, path: &str) {
        ops::open(&self.walk(), path.as_bytes(), CREATE, 0o644).unwrap();
    }

    fn at(&self, path: &str) -> Result<Arc<Dentry>, abi::Errno> {
        self.walk().lookup(path.as_bytes(), true)
    }

    fn has(&self, path: &str) -> bool {
        self.at(path).is_ok()
    }

    fn mount(&self, path: &str, device: u64) {
        let point = self.at(path).unwrap();
        self.namespace.mount(&point, tmpfs(device), "tmpfs", "tmpfs", MountFlags::default()).unwrap();
    }

    fn bind(&self, from: &str, to: &str, all: bool) -> Result<Arc<Dentry>, abi::Errno> {
        self.namespace.bind(&self.at(from)?, &self.at(to)?, all)
    }

    fn remove(&self, path: &str, directory: bool) {
        ops::unlink(&self.walk(), path.as_bytes(), directory).unwrap();
    }
}

/// Where the roots of mounts are in their file systems, in the order in which these were mounted.
fn starts(namespace: &Namespace) -> Vec<String> {
    namespace.list().iter().map(|(mount, _)| String::from_utf8(mount.start.clone()).unwrap()).collect()
}

#[test]
fn both_mounts_of_a_file_system_see_what_either_does() {
    let w = world();
    w.dir("/a");
    w.dir("/b");
    w.file("/a/f");
    w.bind("/a", "/b", false).unwrap();
    assert!(w.has("/a/f") && w.has("/b/f"));
    w.remove("/a/f", false);
    assert!(!w.has("/b/f"), "a name that was found before is kept");
    w.file("/b/g");
    assert!(w.has("/a/g"));
    let walk = w.walk();
    ops::rename(&walk, b"/a/g", &walk, b"/a/h", 0).unwrap();
    assert!(w.has("/b/h") && !w.has("/b/g"));
    w.dir("/a/d");
    let d = w.at("/b/d").unwrap();
    w.remove("/a/d", true);
    let gone = ops::create(&Walk { start: &d, ..w.walk() }, b"x", FileType::Regular, 0o644, 0);
    assert_eq!(gone.err(), Some(ENOENT));
}

#[test]
fn a_bind_mount_says_of_what_it_is() {
    let w = world();
    for path in ["/a", "/a/b", "/a/b/c", "/to", "/on"] {
        w.dir(path);
    }
    w.bind("/a/b", "/to", false).unwrap();
    w.bind("/to/c", "/on", false).unwrap();
    assert_eq!(starts(&w.namespace), ["/", "/a/b", "/a/b/c"]);
    assert_eq!(w.at("/on/..").unwrap().path_from(&w.root), Some(b"/".to_vec()));
}

#[test]
fn what_is_mounted_below_is_bound_when_asked_and_not_what_is_beside() {
    let w = world();
    for path in ["/a", "/a/m", "/beside", "/to"] {
        w.dir(path);
    }
    w.mount("/a/m", 2);
    w.dir("/a/m/deep");
    w.mount("/a/m/deep", 3);
    w.mount("/beside", 4);
    w.bind("/a", "/to", true).unwrap();
    w.file("/a/m/deep/f");
    assert!(w.has("/to/m/deep/f"));
    assert_eq!(w.namespace.list().len(), 7);
    // A second time into itself: what is new is not copied again.
    w.bind("/", "/to/m/deep", true).unwrap();
    assert!(w.has("/to/m/deep/a/m/deep/f") && w.has("/to/m/deep/to/m/deep"));
    assert!(!w.has("/to/m/deep/to/m/deep/a"));
    assert_eq!(w.namespace.list().len(), 14);
    let to = w.at("/to").unwrap();
    assert_eq!(w.namespace.unmount(&to, false), Err(EBUSY));
    w.namespace.unmount(&to, true).unwrap();
    assert_eq!(w.namespace.list().len(), 4);
    assert!(w.has("/a/m/deep/f"));
}

#[test]
fn there_is_a_limit_and_nothing_is_left_half_done() {
    let w = world();
    w.dir("/m");
    w.mount("/m", 2);
    let mut on = 1;
    // Each time there are twice as many.
    let refused = loop {
        match w.bind("/", "/m", true) {
            Ok(_) => on += 1,
            Err(e) => break e,
        }
    };
    assert_eq!((refused, on), (ENOSPC, 12));
    assert_eq!(w.namespace.list().len(), 1 << on);
    w.namespace.unmount(&w.at("/m").unwrap(), true).unwrap();
}

#[test]
fn a_copy_of_a_namespace_has_the_same_mounts_and_goes_its_own_ways() {
    let w = world();
    for path in ["/a", "/a/m"] {
        w.dir(path);
    }
    w.mount("/a/m", 2);
    w.dir("/a/m/in");
    let place = w.at("/a/m/in").unwrap();
    let removed = w.dir("/a/removed");
    w.remove("/a/removed", true);
    let (copy, copies) = w.namespace.copy(None, false).unwrap();
    assert!(copy.number() != w.namespace.number() && copy.list().len() == 2);
    let there = copies.of(&place).unwrap();
    assert!(!Arc::ptr_eq(&there, &place) && Arc::ptr_eq(there.inode(), place.inode()));
    assert_eq!(there.path_from(&copy.root()), Some(b"/a/m/in".to_vec()));
    assert!(copies.of(&removed).unwrap().is_unlinked());
    let point = there.parent().unwrap().mount().point().unwrap();
    assert_eq!(point.path_from(&copy.root()), Some(b"/a/m".to_vec()));
    copy.unmount(&there.parent().unwrap(), true).unwrap();
    assert!(w.has("/a/m/in") && copy.list().len() == 1);
    // Mounts of the one are not the other's.
    assert_eq!(copy.bind(&w.at("/a").unwrap(), &copy.root(), false).err(), Some(EINVAL));
    assert_eq!(copy.mount(&place, tmpfs(3), "tmpfs", "tmpfs", MountFlags::default()).err(), Some(EINVAL));
}

#[test]
fn namespaces_that_nobody_has_let_go_of_their_file_systems() {
    let w = world();
    let mounted = tmpfs(2);
    w.dir("/m");
    w.namespace
        .mount(&w.at("/m").unwrap(), mounted.clone(), "tmpfs", "tmpfs", MountFlags::default())
        .unwrap();
    let before = Arc::strong_count(&mounted);
    let (copy, copies) = w.namespace.copy(None, false).unwrap();
    copy.bind(&copy.root(), &copy.root(), true).unwrap();
    assert!(Arc::strong_count(&mounted) > before);
    drop((copy, copies));
    assert_eq!(Arc::strong_count(&mounted), before);
}

#[test]
fn a_mount_moves_with_all_below_it() {
    let w = world();
    for path in ["/a", "/b"] {
        w.dir(path);
    }
    w.mount("/a", 2);
    w.dir("/a/m");
    w.mount("/a/m", 3);
    w.file("/a/m/f");
    let (a, m, b) = (w.at("/a").unwrap(), w.at("/a/m").unwrap(), w.at("/b").unwrap());
    assert_eq!(w.namespace.move_mount(&a, &m), Err(ELOOP));
    assert_eq!(w.namespace.move_mount(&b, &a), Err(EINVAL));
    assert_eq!(w.namespace.move_mount(&w.root, &b), Err(EINVAL));
    w.namespace.move_mount(&a, &b).unwrap();
    assert!(w.has("/b/m/f") && !w.has("/a/m"));
    assert_eq!(w.at("/b/m/..").unwrap().path_from(&w.root), Some(b"/b".to_vec()));
}

#[test]
fn another_file_system_becomes_the_root() {
    let w = world();
    w.dir("/new");
    w.mount("/new", 2);
    w.dir("/new/old");
    w.file("/f");
    let (new, old) = (w.at("/new").unwrap(), w.at("/new/old").unwrap());
    let pivot = |new: &Arc<Dentry>, old: &Arc<Dentry>| w.namespace.pivot(&w.root, new, old);
    assert_eq!(pivot(&w.root, &w.root), Err(EBUSY));
    assert_eq!(pivot(&old, &old), Err(EINVAL));
    pivot(&new, &old).unwrap();
    assert!(Arc::ptr_eq(&w.namespace.root(), &new));
    let walk = Walk::new(&new, &new, &w.who);
    assert_eq!(walk.lookup(b"/old/f", true).unwrap().path_from(&new), Some(b"/old/f".to_vec()));
    assert!(Arc::ptr_eq(&walk.lookup(b"/..", true).unwrap(), &new));
    w.namespace.unmount(&walk.lookup(b"/old", true).unwrap(), true).unwrap();
    assert_eq!(walk.lookup(b"/old/f", true).err(), Some(ENOENT));
    assert_eq!(w.namespace.list().len(), 1);
}

#[test]
fn another_owner_cannot_uncover_what_is_covered() {
    let w = world();
    for path in ["/a", "/a/m", "/b"] {
        w.dir(path);
    }
    w.mount("/a/m", 2);
    let flags = MountFlags(MountFlags::READ_ONLY | MountFlags::NOSUID);
    w.namespace.remount(&w.at("/a/m").unwrap(), flags).unwrap();
    let (copy, copies) = w.namespace.copy(None, true).unwrap();
    let of = |path| copies.of(&w.at(path).unwrap()).unwrap();
    let m = of("/a/m");
    assert_eq!(copy.unmount(&m, true), Err(EINVAL));
    assert_eq!(copy.move_mount(&m, &of("/b")), Err(EINVAL));
    assert_eq!(copy.remount(&m, MountFlags(MountFlags::NOSUID)), Err(EPERM));
    assert_eq!(copy.remount(&m, MountFlags(flags.0 | MountFlags::NOATIME)), Err(EPERM));
    copy.remount(&m, MountFlags(flags.0 | MountFlags::NOEXEC)).unwrap();
    assert_eq!(copy.bind(&of("/a"), &of("/b"), false).err(), Some(EINVAL));
    // With all that is below it goes, and takes that along when it does.
    let bound = copy.bind(&of("/a"), &of("/b"), true).unwrap();
    let inside = copy.list().into_iter().map(|(_, root)| root).next_back().unwrap();
    assert_eq!((copy.list().len(), copy.unmount(&inside, true)), (4, Err(EINVAL)));
    copy.unmount(&bound, true).unwrap();
    assert_eq!(copy.list().len(), 2);
    // Of the same owner none of that holds.
    let (free, copies) = w.namespace.copy(None, false).unwrap();
    free.unmount(&copies.of(&w.at("/a/m").unwrap()).unwrap(), true).unwrap();
}
