// SPDX-License-Identifier: Apache-2.0 OR MIT
use super::*;

use api_fs::{Sink, Source, Stat};
use core::cell::Cell;
use std::string::{String, ToString};

/// Tests have one thread each, which never waits for another one.
struct Nobody;

impl api_sched::Waiter for Nobody {
    fn wake(&self, _: abi::Events) {}
}

#[unsafe(no_mangle)]
fn unilith_sched_park(_: u64) {
    panic!("nobody else has the lock");
}

#[unsafe(no_mangle)]
fn unilith_sched_current() -> Arc<dyn api_sched::Waiter> {
    Arc::new(Nobody)
}

struct World {
    upper: Arc<dyn Inode>,
    lowers: Vec<Arc<dyn Inode>>,
    root: Arc<dyn Inode>,
}

fn put(directory: &Arc<dyn Inode>, name: &str, text: &str) -> Arc<dyn Inode> {
    let file = directory.create(name.as_bytes(), FileType::Regular, 0o640, (1, 2), 0).unwrap();
    let open = file.open(&file, 1).unwrap();
    assert_eq!(open.write(0, &mut Source::kernel(text.as_bytes())), Ok(text.len()));
    file
}

fn text(file: &Arc<dyn Inode>) -> String {
    let mut bytes = [0; 64];
    let n = file.open(file, 0).unwrap().read(0, &mut Sink::kernel(&mut bytes)).unwrap();
    String::from_utf8(bytes[..n].to_vec()).unwrap()
}

fn dir(directory: &Arc<dyn Inode>, name: &str) -> Arc<dyn Inode> {
    directory.create(name.as_bytes(), FileType::Directory, 0o755, (0, 0), 0).unwrap()
}

/// Two lower directories and an upper one of one file system: `a` has `sub/x`, `sub/y`, `f` and `g`; `b` below it `sub/y`, `sub/z` and `h`.
fn world() -> World {
    let all: Arc<dyn Inode> = ramfs::tmpfs(7, 1 << 24, 0o755, (0, 0));
    let [a, b, upper, work] = ["a", "b", "upper", "work"].map(|name| dir(&all, name));
    let (a_sub, b_sub) = (dir(&a, "sub"), dir(&b, "sub"));
    put(&a_sub, "x", "ax");
    put(&a_sub, "y", "ay");
    put(&b_sub, "y", "by");
    put(&b_sub, "z", "bz");
    put(&a, "f", "af");
    put(&a, "g", "ag");
    put(&b, "h", "bh");
    let lowers = alloc::vec![a, b];
    let root = mounted(Some((upper.clone(), work)), lowers.clone()).unwrap();
    World { upper, lowers, root }
}

fn mounted(
    upper: Option<(Arc<dyn Inode>, Arc<dyn Inode>)>,
    lowers: Vec<Arc<dyn Inode>>,
) -> Result<Arc<dyn Inode>> {
    let next = Cell::new(100);
    let new_device = || next.replace(next.get() + 1);
    mount(Layers { upper, lowers, user_xattrs: false, may_keep_xattrs: true, may_own: None }, new_device)
}

fn names(directory: &Arc<dyn Inode>) -> Vec<String> {
    let (mut all, mut from) = (Vec::new(), 0);
    loop {
        let entries = directory.list(from, 2).unwrap();
        let Some(last) = entries.last() else { break };
        from = last.next;
        all.extend(entries.iter().map(|entry| String::from_utf8(entry.name.clone()).unwrap()));
    }
    all.sort();
    all
}

fn at(w: &World, path: &str) -> Result<Arc<dyn Inode>> {
    path.split('/').try_fold(w.root.clone(), |at, name| at.lookup(name.as_bytes()))
}

#[test]
fn layers_are_merged_and_the_topmost_file_is_seen() {
    let w = world();
    assert_eq!(names(&w.root), ["f", "g", "h", "sub"]);
    assert_eq!(names(&at(&w, "sub").unwrap()), ["x", "y", "z"]);
    assert_eq!([text(&at(&w, "sub/y").unwrap()), text(&at(&w, "sub/z").unwrap())], ["ay", "bz"]);
    assert!(w.upper.list(0, 1).unwrap().is_empty(), "looking changes nothing");
}

#[test]
fn a_file_is_copied_up_with_what_it_is_and_stays_the_same() {
    let w = world();
    let file = at(&w, "sub/z").unwrap();
    let lower = w.lowers[1].lookup(b"sub").unwrap().lookup(b"z").unwrap();
    lower.set_xattr(b"user.kept", b"1", 0).unwrap();
    let open = file.open(&file, 0).unwrap();
    let before: Stat = file.stat().unwrap();
    let writer = file.open(&file, 2).unwrap();
    writer.write(2, &mut Source::kernel(b"+")).unwrap();
    let after = file.stat().unwrap();
    assert_eq!((after.inode, after.device, after.uid, after.gid), (before.inode, before.device, 1, 2));
    assert_eq!((after.permissions, after.links, after.size), (0o640, 1, 3));
    let mut bytes = [0; 8];
    assert_eq!(open.read(0, &mut Sink::kernel(&mut bytes)), Ok(3), "what was open before sees the copy");
    assert_eq!((text(&lower), text(&file)), ("bz".to_string(), "bz+".to_string()));
    assert_eq!(file.get_xattr(b"user.kept").unwrap(), b"1");
    assert_eq!(file.list_xattr().unwrap(), b"user.kept\0", "its own attributes are not shown");
    assert_eq!(file.get_xattr(b"trusted.overlay.origin"), Err(EOPNOTSUPP));
    assert!(Arc::ptr_eq(&file, &at(&w, "sub/z").unwrap()));
    // Found anew, it has the number still.
    drop((file, open, writer));
    assert_eq!(at(&w, "sub/z").unwrap().stat().unwrap().inode, before.inode);
    let sub = at(&w, "sub").unwrap();
    let listed = sub.list(0, 10).unwrap().into_iter().find(|entry| entry.name == b"z").unwrap();
    assert_eq!(listed.inode, before.inode);
}

#[test]
fn removed_names_are_covered_and_may_be_made_anew() {
    let w = world();
    w.root.unlink(b"f", false).unwrap();
    assert_eq!(w.root.lookup(b"f").err(), Some(ENOENT));
    assert!(is_whiteout(&w.upper.lookup(b"f").unwrap()).unwrap());
    assert_eq!(names(&w.root), ["g", "h", "sub"]);
    put(&w.root, "f", "new");
    assert_eq!(text(&at(&w, "f").unwrap()), "new");
    // A directory with something in it stays; without, it goes, and a new one does not show what was in it.
    assert_eq!(w.root.unlink(b"sub", true), Err(ENOTEMPTY));
    let sub = at(&w, "sub").unwrap();
    for name in ["x", "y", "z"] {
        sub.unlink(name.as_bytes(), false).unwrap();
    }
    assert!(names(&sub).is_empty());
    w.root.unlink(b"sub", true).unwrap();
    assert_eq!(sub.create(b"late", FileType::Regular, 0o644, (0, 0), 0).err(), Some(ENOENT));
    let sub = dir(&w.root, "sub");
    assert!(names(&sub).is_empty() && sub.lookup(b"z").is_err());
    assert_eq!(w.upper.lookup(b"sub").unwrap().get_xattr(b"trusted.overlay.opaque").unwrap(), b"y");
    assert_eq!(w.root.create(b"c", FileType::CharDevice, 0o600, (0, 0), 0).err(), Some(EPERM));
    assert!(text(&w.lowers[0].lookup(b"f").unwrap()) == "af", "lower directories stay as they are");
}

#[test]
fn files_are_moved_and_directories_of_lower_layers_are_not() {
    let w = world();
    w.root.rename(b"f", &w.root, b"moved", 0).unwrap();
    assert_eq!(names(&w.root), ["g", "h", "moved", "sub"]);
    assert_eq!(w.root.rename(b"sub", &w.root, b"other", 0), Err(EXDEV));
    assert_eq!(w.root.rename(b"g", &w.root, b"h", 1), Err(EEXIST));
    w.root.rename(b"g", &w.root, b"h", 2).unwrap();
    assert_eq!((text(&at(&w, "g").unwrap()), text(&at(&w, "h").unwrap())), ("bh".into(), "ag".into()));
    // A new directory moves, over one that is empty and shows nothing from below then.
    let new = dir(&w.root, "new");
    put(&new, "in", "it");
    let sub = at(&w, "sub").unwrap();
    assert_eq!(w.root.rename(b"new", &w.root, b"sub", 0), Err(ENOTEMPTY));
    for name in ["x", "y", "z"] {
        sub.unlink(name.as_bytes(), false).unwrap();
    }
    w.root.rename(b"new", &w.root, b"sub", 0).unwrap();
    assert_eq!(
        (names(&at(&w, "sub").unwrap()), names(&w.root)),
        (["in"].map(String::from).to_vec(), ["g", "h", "moved", "sub"].map(String::from).to_vec())
    );
    assert_eq!(sub.stat().unwrap().links, 0);
    assert_eq!(new.rename(b"in", &w.root, b"out", 0), Ok(()));
    assert_eq!(w.root.rename(b"sub", &new, b"in", 0), Err(EINVAL));
}

#[test]
fn names_of_one_copied_file_are_the_same_file() {
    let w = world();
    let file = at(&w, "g").unwrap();
    w.root.link(b"linked", &file).unwrap();
    let linked = at(&w, "linked").unwrap();
    assert!(Arc::ptr_eq(&file, &linked));
    assert_eq!(linked.stat().unwrap().links, 2);
    w.root.unlink(b"g", false).unwrap();
    assert_eq!((text(&linked), linked.stat().unwrap().links), ("ag".into(), 1));
}

#[test]
fn without_an_upper_directory_nothing_changes() {
    let w = world();
    let root = mounted(None, w.lowers.clone()).unwrap();
    assert_eq!(names(&root), ["f", "g", "h", "sub"]);
    assert_eq!(root.unlink(b"f", false), Err(EROFS));
    assert_eq!(root.create(b"n", FileType::Regular, 0o644, (0, 0), 0).err(), Some(EROFS));
    let file = root.lookup(b"f").unwrap();
    assert!(file.open(&file, 1).is_err_and(|e| e == EROFS));
    assert_eq!(mounted(None, w.lowers[..1].to_vec()).err(), Some(EINVAL));
    // One more on it, and no third.
    let other = mounted(None, alloc::vec![root, w.lowers[0].clone()]).unwrap();
    assert_eq!(names(&other), ["f", "g", "h", "sub"]);
    assert_eq!(mounted(None, alloc::vec![other, w.lowers[0].clone()]).err(), Some(EINVAL));
}

#[test]
fn a_listing_goes_on_while_names_are_removed() {
    let w = world();
    let sub = at(&w, "sub").unwrap();
    for i in 0..200 {
        put(&sub, &std::format!("n{i}"), "");
    }
    let mut removed = 0;
    let mut from = 0;
    loop {
        let entries = sub.list(from, 7).unwrap();
        let Some(last) = entries.last() else { break };
        from = last.next;
        for entry in &entries {
            sub.unlink(&entry.name, false).unwrap();
            removed += 1;
        }
    }
    assert_eq!(removed, 203);
    w.root.unlink(b"sub", true).unwrap();
}
