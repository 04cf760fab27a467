// SPDX-License-Identifier: Apache-2.0 OR MIT

use super::*;
use core::sync::atomic::{AtomicU32, Ordering};

static COUNT: AtomicU32 = AtomicU32::new(0);

struct Numbers;
impl Changing for Numbers {
    fn numbers(&self, _: Key, from: u32, most: usize) -> Vec<u32> {
        (from..3).take(most).collect()
    }
    fn entry(&self, _: Key, name: &str) -> Result<(Entry, Key)> {
        let number = name.parse().ok().filter(|n| *n < 3).ok_or(ENOENT)?;
        Ok((Entry::Directory(&[("n", Entry::Text(|n| Ok(format!("{n}\n").into_bytes())))]), number))
    }
    fn kind(&self) -> FileType {
        FileType::Directory
    }
}

static STORED: AtomicU32 = AtomicU32::new(0);

const ROWS: &[Row] = &[
    ("version", Entry::Fixed("Linux\n")),
    (
        "sys/kernel/count",
        Entry::Text(|_| Ok(format!("{}", COUNT.fetch_add(1, Ordering::Relaxed)).into_bytes())),
    ),
    ("self", Entry::Link(|_| Ok(b"1".to_vec()))),
    ("task", Entry::Changing(&Numbers)),
    (
        "sys/kernel/size",
        Entry::File {
            text: |_| Ok(Vec::new()),
            store: |_, bytes| {
                STORED.store(bytes.len() as u32, Ordering::Relaxed);
                Ok(())
            },
            permissions: 0o644,
        },
    ),
    ("sys/empty", Entry::Directory(&[])),
    ("sys/kernelish", Entry::Fixed("")),
];

fn tree() -> Arc<dyn Inode> {
    root(ROWS, 5, 0x9fa0)
}

fn listed(directory: &Arc<dyn Inode>) -> Vec<(String, u64, FileType)> {
    let all = directory.list(0, 100).unwrap();
    all.into_iter().map(|e| (String::from_utf8(e.name).unwrap(), e.inode, e.kind)).collect()
}

fn walk(root: &Arc<dyn Inode>, path: &str) -> Result<Arc<dyn Inode>> {
    path.split('/').try_fold(root.clone(), |dir, name| dir.lookup(name.as_bytes()))
}

fn read(file: &Arc<dyn File>, offset: u64) -> Vec<u8> {
    let mut out = [0; 100];
    let n = file.read(offset, &mut Sink::kernel(&mut out)).unwrap();
    out[..n].to_vec()
}

#[test]
fn texts_are_made_anew_when_read_from_the_start() {
    let root = tree();
    let inode = walk(&root, "sys/kernel/count").unwrap();
    let file = inode.open(&inode, 0).unwrap();
    let first = read(&file, 0);
    assert_ne!(read(&file, 0), first);
    assert_eq!(read(&file, 1), b"");
    assert_eq!(inode.stat().unwrap().size, 0);
    assert_eq!(file.write(0, &mut Source::kernel(b"1")), Err(EINVAL));
}

#[test]
fn a_long_text_is_made_in_parts() {
    static MADE: AtomicU32 = AtomicU32::new(0);
    fn count(_: Key, out: &mut Output) -> Result<()> {
        MADE.fetch_add(1, Ordering::Relaxed);
        for n in out.from()..50_000 {
            out.print(format_args!("{n}\n"))?;
            if out.go_on_at(n + 1) {
                break;
            }
        }
        Ok(())
    }
    let whole: String = (0..50_000).map(|n| format!("{n}\n")).collect();
    let root = root(&[("count", Entry::Lines(count))], 5, 0x9fa0);
    let inode = walk(&root, "count").unwrap();
    let file = inode.open(&inode, 0).unwrap();
    let mut out = alloc::vec![0; 30_011];
    let mut all = Vec::new();
    loop {
        let n = file.read(all.len() as u64, &mut Sink::kernel(&mut out)).unwrap();
        all.extend_from_slice(&out[..n]);
        if n == 0 {
            break;
        }
    }
    assert!(all == whole.as_bytes());
    assert_eq!(MADE.load(Ordering::Relaxed), 5);
    // Forwards over parts, and back.
    for offset in [200_000, 70_000, 288_889, 288_890, 500_000] {
        let n = file.read(offset, &mut Sink::kernel(&mut out[..10])).unwrap();
        let rest = whole.as_bytes().get(offset as usize..).unwrap_or(&[]);
        assert_eq!(out[..n], rest[..rest.len().min(10)]);
    }
}

#[test]
fn changing_names_keep_their_inode_while_it_is_used() {
    let root = tree();
    let a = walk(&root, "task/2").unwrap();
    assert!(Arc::ptr_eq(&a, &walk(&root, "task/2").unwrap()));
    let inode = walk(&root, "task/2/n").unwrap();
    assert_eq!(read(&inode.open(&inode, 0).unwrap(), 0), b"2\n");
    assert_eq!(walk(&root, "task/3").err(), Some(ENOENT));
    assert_eq!(walk(&root, "task").unwrap().list(1, 10).unwrap().len(), 2);
    assert_eq!(walk(&root, "self").unwrap().read_link().unwrap(), b"1");
    assert_eq!(root.unlink(b"version", false), Err(EPERM));
}

#[test]
fn a_table_is_a_tree_of_the_paths_in_it() {
    let root = tree();
    let names = |directory: &Arc<dyn Inode>| -> Vec<String> {
        listed(directory).into_iter().map(|(name, ..)| name).collect()
    };
    assert_eq!(names(&root), ["version", "sys", "self", "task"]);
    let sys = walk(&root, "sys").unwrap();
    assert_eq!(names(&sys), ["kernel", "empty", "kernelish"]);
    assert_eq!(names(&walk(&root, "sys/kernel").unwrap()), ["count", "size"]);
    assert_eq!(names(&walk(&root, "sys/empty").unwrap()), [""; 0]);
    assert_eq!(sys.stat().unwrap().links, 4);
    assert_eq!(root.stat().unwrap().links, 4);
    for missing in ["sys/kern", "sys/kernel/", "sys/kernel/count2", "", "sy", "version/x", "sys/empty/x"] {
        assert!(walk(&root, missing).is_err(), "{missing:?}");
    }
    assert_eq!(walk(&root, "version/x").err(), Some(ENOTDIR));
}

#[test]
fn a_name_has_the_same_inode_number_in_a_listing_and_whenever_it_is_looked_up() {
    let root = tree();
    let mut seen = std::collections::BTreeSet::new();
    for directory in ["sys", "sys/kernel", "task", "task/0", "task/1"] {
        let directory = walk(&root, directory).unwrap();
        for (name, number, kind) in listed(&directory) {
            for _ in 0..2 {
                let stat = directory.lookup(name.as_bytes()).unwrap().stat().unwrap();
                assert_eq!((stat.inode, stat.kind), (number, kind), "{name}");
            }
            assert!(seen.insert(number), "{name}");
        }
    }
}

#[test]
fn a_directory_whose_object_is_gone_is_not_that_of_the_next_object_with_its_number() {
    static BORN: AtomicU32 = AtomicU32::new(0);
    struct Reborn;
    impl Changing for Reborn {
        fn numbers(&self, _: Key, from: u32, most: usize) -> Vec<u32> {
            (from..1).take(most).collect()
        }
        fn entry(&self, key: Key, _: &str) -> Result<(Entry, Key)> {
            const BELOW: &[Row] = &[("ns", Entry::Directory(&[]))];
            Ok((Entry::Directory(BELOW), key | Key::from(BORN.load(Ordering::Relaxed)) << 64))
        }
        fn kind(&self) -> FileType {
            FileType::Directory
        }
        fn check_presence(&self, key: Key) -> Result<()> {
            if key >> 64 == Key::from(BORN.load(Ordering::Relaxed)) { Ok(()) } else { Err(ESRCH) }
        }
        fn object(&self, key: Key) -> Result<Arc<dyn Any + Send + Sync>> {
            Ok(Arc::new(key >> 64))
        }
    }
    let object = |inode: &Arc<dyn Inode>| object(&**inode).map(|o| *o.downcast::<Key>().unwrap());
    let root = root_with(ROWS, &Reborn, 5, 0x9fa0, (1, None), None);
    BORN.store(1, Ordering::Relaxed);
    let first = walk(&root, "0").unwrap();
    assert!(Arc::ptr_eq(&first, &walk(&root, "0").unwrap()));
    BORN.store(2, Ordering::Relaxed);
    let second = walk(&root, "0").unwrap();
    assert_ne!(first.stat().unwrap().inode, second.stat().unwrap().inode);
    assert_eq!((object(&first), object(&second)), (Ok(1), Ok(2)));
    assert_eq!((first.lookup(b"ns").err(), second.lookup(b"ns").err()), (Some(ESRCH), None));
    assert!(
        listed(&root).iter().any(|(name, number, _)| name == "0" && *number == second.stat().unwrap().inode)
    );
    // What is below stands for nothing by itself, nor do other directories and files.
    for path in ["0/ns", "sys", "version", "task"] {
        assert_eq!(object(&walk(&root, path).unwrap()), Err(EBADF), "{path}");
    }
    assert_eq!(object(&root), Err(EBADF));
}

#[test]
fn names_that_come_and_go_stand_beside_those_of_a_table() {
    let root = root_with(ROWS, &Numbers, 5, 0x9fa0, (0, None), None);
    let inode = walk(&root, "1/n").unwrap();
    assert_eq!(read(&inode.open(&inode, 0).unwrap(), 0), b"1\n");
    assert_eq!(walk(&root, "3").err(), Some(ENOENT));
    assert!(walk(&root, "version").is_ok() && walk(&root, "sys/kernel/count").is_ok());
    let names: Vec<String> = listed(&root).into_iter().map(|(name, ..)| name).collect();
    assert_eq!(names, ["version", "sys", "self", "task", "0", "1", "2"]);
    // One at a time as well.
    let mut alone = Vec::new();
    let mut from = 0;
    while let Some(entry) = root.list(from, 1).unwrap().pop() {
        from = entry.next;
        alone.push(String::from_utf8(entry.name).unwrap());
    }
    assert_eq!(alone, names);
}

#[test]
fn numbers_that_go_while_they_are_listed_hide_no_others() {
    static FIRST: AtomicU32 = AtomicU32::new(0);
    struct Closing;
    impl Changing for Closing {
        fn numbers(&self, _: Key, from: u32, most: usize) -> Vec<u32> {
            (FIRST.load(Ordering::Relaxed).max(from)..100).take(most).collect()
        }
        fn entry(&self, _: Key, _: &str) -> Result<(Entry, Key)> {
            Err(ENOENT)
        }
        fn kind(&self) -> FileType {
            FileType::Symlink
        }
    }
    let root = root(&[("fd", Entry::Changing(&Closing))], 5, 0x9fa0);
    let directory = walk(&root, "fd").unwrap();
    let (mut seen, mut from) = (Vec::new(), 0);
    loop {
        let entries = directory.list(from, 7).unwrap();
        let Some(last) = entries.last() else { break };
        from = last.next;
        seen.extend(entries.iter().map(|e| String::from_utf8(e.name.clone()).unwrap()));
        FIRST.store(seen.len() as u32, Ordering::Relaxed);
    }
    assert_eq!(seen, (0..100).map(|n| format!("{n}")).collect::<Vec<_>>());
}

#[test]
fn what_is_written_goes_to_the_store_of_the_file() {
    let inode = walk(&tree(), "sys/kernel/size").unwrap();
    assert_eq!(inode.stat().unwrap().permissions, 0o644);
    assert_eq!(inode.open(&inode, 1).unwrap().write(0, &mut Source::kernel(b"12345")), Ok(5));
    assert_eq!(STORED.load(Ordering::Relaxed), 5);
}

#[test]
fn a_policy_keeps_names_of_the_root_from_callers() {
    /// Entry 1 seems not to be there, and nobody goes into entry 2.
    struct Strict;
    impl Policy for Strict {
        fn shows(&self, name: &str) -> bool {
            name == "self"
        }
        fn tells(&self, key: Key) -> bool {
            key != 1
        }
        fn check(&self, key: Key) -> Result<()> {
            match key {
                0 => Ok(()),
                1 => Err(ENOENT),
                _ => Err(EPERM),
            }
        }
    }
    let root = root_with(ROWS, &Numbers, 5, 0x9fa0, (7, None), Some(Arc::new(Strict)));
    let names: Vec<String> = listed(&root).into_iter().map(|(name, ..)| name).collect();
    assert_eq!(names, ["self", "0", "2"]);
    // However few are asked for at a time.
    let (mut alone, mut from) = (Vec::new(), 0);
    while let Some(entry) = root.list(from, 1).unwrap().pop() {
        from = entry.next;
        alone.push(String::from_utf8(entry.name).unwrap());
    }
    assert_eq!(alone, names);
    assert_eq!((walk(&root, "version").err(), walk(&root, "0/n").err()), (Some(ENOENT), None));
    let [first, second] = ["1", "2"].map(|name| walk(&root, name).unwrap());
    assert_eq!((first.stat().err(), first.lookup(b"n").err()), (Some(ENOENT), Some(ENOENT)));
    assert_eq!(second.stat().map(|stat| stat.kind), Ok(FileType::Directory));
    assert_eq!((second.lookup(b"n").err(), second.open(&second, 0).err()), (Some(EPERM), Some(EPERM)));
    assert!(policy::<Strict>(&*root).is_some());
}

#[test]
fn what_is_no_setting_cannot_be_written_mapped_or_sought() {
    let root = root(&[("sys/a", Entry::Fixed("a")), ("b", Entry::Fixed("b"))], 5, PROC_SUPER_MAGIC);
    let open = |path: &str| {
        let inode = walk(&root, path).unwrap();
        inode.open(&inode, 2).unwrap()
    };
    let (setting, table) = (open("sys/a"), open("b"));
    assert_eq!((setting.seek_end(), table.seek_end()), (Ok(0), Err(EINVAL)));
    assert_eq!((setting.seek_data(0, false), table.seek_data(0, false)), (Err(ENXIO), Err(EINVAL)));
    assert_eq!((setting.can_write_at(), table.can_write_at()), (true, false));
    assert_eq!(table.write(0, &mut Source::kernel(b"1")), Err(EIO));
    assert_eq!((setting.page_source().err(), table.page_source().err()), (Some(ENODEV), Some(EIO)));
    assert!(!setting.may_be_direct());
}
