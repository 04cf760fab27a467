// SPDX-License-Identifier: Apache-2.0 OR MIT
use super::*;
use abi::errno::*;
use alloc::sync::Arc;
use api_fs::{FileType, Inode};
use landlock::{ALL, Domain, EXECUTE, MAKE_REG, READ_DIR, READ_FILE, REFER, REMOVE_FILE, Rights, Ruleset};
use std::format;

const CREATE: u32 = 0o102;

struct World {
    namespace: Namespace,
    root: Arc<Dentry>,
    who: Credentials,
}

fn tmpfs(device: u64) -> Arc<dyn Inode> {
    ramfs::tmpfs(device, 1 << 20, 0o755, (0, 0))
}

/// Files a/x and b/y, and a directory m.
fn world() -> World {
    let namespace = Namespace::new(tmpfs(1), "rootfs").unwrap();
    let world = World { root: namespace.root(), namespace, who: Credentials::root() };
    for name in ["/a", "/b", "/m"] {
        ops::create(&world.walk(), name.as_bytes(), FileType::Directory, 0o755, 0).unwrap();
    }
    for name in ["/a/x", "/b/y"] {
        world.open(name, CREATE).unwrap();
    }
    world
}

impl World {
    fn walk(&self) -> Walk<'_> {
        Walk::new(&self.root, &self.root, &self.who)
    }

    fn at(&self, path: &str) -> Arc<Dentry> {
        self.walk().lookup(path.as_bytes(), true).unwrap()
    }

    fn enter(&mut self, handled: Rights, rules: &[(&str, Rights)]) {
        let set = Ruleset::new(handled);
        rules.iter().for_each(|(path, rights)| set.add(&self.at(path), *rights).unwrap());
        self.who.domain = Some(Domain::within(self.who.domain.as_ref(), &set).unwrap());
    }

    fn open(&self, path: &str, flags: u32) -> abi::Result<()> {
        ops::open(&self.walk(), path.as_bytes(), flags, 0o644).map(|_| ())
    }

    fn rename(&self, from: &str, to: &str) -> abi::Result<()> {
        ops::rename(&self.walk(), from.as_bytes(), &self.walk(), to.as_bytes(), 0)
    }
}

#[test]
fn a_right_is_had_where_each_layer_grants_it() {
    let mut w = world();
    w.enter(ALL, &[("/a", READ_FILE | READ_DIR), ("/b/y", READ_FILE)]);
    assert_eq!((w.open("/a/x", 0), w.open("/a", 0), w.open("/b/y", 0)), (Ok(()), Ok(()), Ok(())));
    assert_eq!((w.open("/b", 0), w.open("/a/x", 1), w.open("/", 0)), (Err(EACCES), Err(EACCES), Err(EACCES)));
    w.enter(READ_FILE, &[("/b", READ_FILE)]);
    assert_eq!((w.open("/a/x", 0), w.open("/a", 0), w.open("/b/y", 0)), (Err(EACCES), Ok(()), Ok(())));
}

#[test]
fn rules_hold_for_a_directory_wherever_it_is_mounted() {
    let mut w = world();
    w.namespace.bind(&w.at("/a"), &w.at("/m"), false).unwrap();
    w.enter(READ_FILE, &[("/a", READ_FILE)]);
    assert_eq!((w.open("/m/x", 0), w.open("/b/y", 0)), (Ok(()), Err(EACCES)));
    // And for what is below a mount point, not for the point that it covers.
    let mut w = world();
    let covered = w.at("/m");
    w.namespace.mount(&covered, tmpfs(2), "tmpfs", "tmpfs", MountFlags::default()).unwrap();
    w.open("/m/z", CREATE).unwrap();
    let set = Ruleset::new(READ_FILE);
    set.add(&covered, READ_FILE).unwrap();
    w.who.domain = Some(Domain::within(None, &set).unwrap());
    assert_eq!(w.open("/m/z", 0), Err(EACCES));
    let mut w = World { who: Credentials::root(), ..w };
    w.enter(READ_FILE, &[("/", READ_FILE)]);
    assert_eq!(w.open("/m/z", 0), Ok(()));
}

#[test]
fn a_file_goes_where_it_gains_nothing() {
    let moves = MAKE_REG | REMOVE_FILE;
    let mut w = world();
    w.enter(ALL, &[("/a", moves | REFER), ("/b", moves | REFER | EXECUTE)]);
    assert_eq!(w.rename("/a/x", "/b/x"), Err(EXDEV), "it could be executed there");
    assert_eq!(w.rename("/b/y", "/a/y"), Ok(()));
    assert_eq!(w.rename("/a/x", "/m/x"), Err(EACCES), "what is missing comes first");
    assert_eq!(w.rename("/a/x", "/a/z"), Ok(()));
    let mut w = world();
    w.enter(EXECUTE, &[]);
    assert_eq!(w.rename("/a/x", "/b/x"), Err(EXDEV), "nobody says that files may be linked elsewhere");
}

#[test]
fn layers_and_rules_have_bounds_and_rules_make_sense() {
    let mut w = world();
    let set = Ruleset::new(READ_FILE | READ_DIR);
    assert_eq!(set.add(&w.at("/a"), EXECUTE), Err(EINVAL), "not handled");
    assert_eq!(set.add(&w.at("/a/x"), READ_DIR), Err(EINVAL), "no directory");
    for layer in 0..landlock::MAX_LAYERS {
        let domain = Domain::within(w.who.domain.as_ref(), &set).unwrap();
        let outer = w.who.domain.replace(domain.clone());
        assert!(outer.is_none_or(|outer| domain.is_within(&outer) && !outer.is_within(&domain)), "{layer}");
    }
    assert_eq!(Domain::within(w.who.domain.as_ref(), &set).err(), Some(E2BIG));
    assert_eq!(format!("{:?}", w.open("/a/x", 0)), "Err(EACCES)");
}
