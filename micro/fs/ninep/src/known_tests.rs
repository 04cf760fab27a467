// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The client at a server of ours, over a directory of this computer that others change.

use crate::wire::kind;
use crate::{Changes, Gather, Given, OpenAnswered, Transport, attach, gives, hear_of_changes};
use abi::{Errno, PAGE_SIZE, Result, errno::*};
use alloc::boxed::Box;
use alloc::sync::Arc;
use api_fs::{FileType, Inode, SetAttr, Sink, Source};
use std::{
    format, fs,
    os::unix::fs::{FileExt, MetadataExt, PermissionsExt},
    path::PathBuf,
    string::{String, ToString},
    sync::{Mutex, OnceLock},
    vec,
    vec::Vec,
};
use tempfile::TempDir;
use unilith_ninep::{Access, Export, Limits, Watches, server::Server};

/// The server, answering at once.
struct Direct {
    server: Mutex<Server>,
    /// Types of the messages since somebody looked.
    asked: Mutex<Vec<u8>>,
}

impl Transport for Direct {
    fn call(&self, request: Vec<u8>, _reply: Vec<u8>) -> Result<(Vec<u8>, Vec<u8>)> {
        let mut out = Vec::new();
        self.asked.lock().unwrap().push(request[4]);
        let mut server = self.server.lock().unwrap();
        if let Some(gift) = server.answer(&request[4..], &mut out) {
            // As a host that refuses it.
            server.keeps(&gift, &mut out);
        }
        Ok((request, out))
    }

    fn call_to_open(&self, request: Vec<u8>, _reply: Vec<u8>) -> Result<OpenAnswered> {
        let mut out = Vec::new();
        self.asked.lock().unwrap().push(request[4]);
        let gift = self.server.lock().unwrap().answer(&request[4..], &mut out);
        assert_eq!(gives(&out), gift.is_some());
        let given = gift.map(|gift| Box::new(File(gift.file.into())) as Box<dyn Given>);
        Ok((request, out, given))
    }

    fn post(&self, request: &[u8]) -> bool {
        self.server.lock().unwrap().answer(&request[4..], &mut Vec::new());
        true
    }

    fn largest(&self) -> usize {
        64 << 10
    }

    fn is_extended(&self) -> bool {
        true
    }
}

/// A file that the server gave.
struct File(fs::File);

impl Given for File {
    fn read(&self, offset: u64, to: &mut [u8]) -> Option<usize> {
        self.0.read_at(to, offset).ok()
    }

    fn read_pages(&self, offset: u64, to: &Gather) -> Option<usize> {
        assert_eq!(to.offset, 0);
        let mut bytes = vec![0; to.length];
        let n = self.read(offset, &mut bytes)?;
        for (frame, part) in to.frames.iter().zip(bytes[..n].chunks(PAGE_SIZE)) {
            frame.write(0, part);
        }
        Some(n)
    }

    fn write(&self, offset: u64, from: &[u8]) -> Option<usize> {
        self.0.write_at(from, offset).ok()
    }

    fn write_pages(&self, _: u64, _: &Gather) -> Option<usize> {
        unreachable!("the program has no memory here")
    }
}

struct Queue(Arc<Watches>);

impl Changes for Queue {
    fn read(&self, events: &mut [u8]) -> Result<usize> {
        rustix::io::read(self.0.queue(), events).map_err(|e| Errno(e.raw_os_error() as u16))
    }
}

/// The machine's queue: there is one for all volumes, and for all tests.
fn watches() -> Arc<Watches> {
    static ALL: OnceLock<Arc<Watches>> = OnceLock::new();
    let all = ALL.get_or_init(|| {
        let shares = tempfile::tempdir().unwrap();
        let watches = Watches::new(shares.path()).unwrap();
        hear_of_changes(Arc::new(Queue(watches.clone())));
        watches
    });
    all.clone()
}

struct Volume {
    folder: TempDir,
    direct: Arc<Direct>,
    root: Arc<dyn Inode>,
}

impl Volume {
    fn new() -> Volume {
        let folder = tempfile::tempdir().unwrap();
        let mut server = Server::new(Limits { descriptors: 1000, given: 5 });
        server.watch(Some(watches()));
        assert!(server.add(b"", std::sync::Arc::new(Export::open(folder.path(), Access::All).unwrap())));
        let direct = Arc::new(Direct { server: Mutex::new(server), asked: Mutex::default() });
        let root = attach(direct.clone(), 9).unwrap();
        Volume { folder, direct, root }
    }

    fn host(&self, path: &str) -> PathBuf {
        self.folder.path().join(path)
    }

    /// What a path leads to, in the machine.
    fn find(&self, path: &str) -> Result<Arc<dyn Inode>> {
        path.split('/').filter(|name| !name.is_empty()).try_fold(self.root.clone(), |at, name| {
            // As a walk does: the right to search is asked for first.
            at.stat()?;
            at.lookup(name.as_bytes())
        })
    }

    fn text(&self, path: &str) -> Result<String> {
        let inode = self.find(path)?;
        let file = inode.open(&inode, 0)?;
        let mut bytes = vec![0; 1000];
        let length = file.read(0, &mut Sink::kernel(&mut bytes))?;
        Ok(String::from_utf8_lossy(&bytes[..length]).into_owned())
    }

    fn names(&self, path: &str) -> Vec<String> {
        let list = self.find(path).unwrap().list(0, 1000).unwrap();
        let mut names: Vec<String> =
            list.iter().map(|entry| String::from_utf8_lossy(&entry.name).into_owned()).collect();
        names.sort();
        names
    }

    /// What was asked meanwhile.
    fn asked(&self, what: impl FnOnce()) -> Vec<u8> {
        self.direct.asked.lock().unwrap().clear();
        what();
        self.direct.asked.lock().unwrap().clone()
    }
}

#[test]
fn what_was_asked_once_is_known_until_the_host_changes_it() {
    let v = Volume::new();
    fs::create_dir_all(v.host("a/b")).unwrap();
    fs::write(v.host("a/b/f"), "text").unwrap();
    std::os::unix::fs::symlink("b/f", v.host("a/link")).unwrap();
    let look = || {
        assert_eq!(v.find("a/b/f").unwrap().stat().unwrap().size, 4);
        assert_eq!(v.find("a/link").unwrap().read_link().unwrap(), b"b/f");
        assert_eq!(v.find("a/none").err(), Some(ENOENT));
        assert_eq!(v.names("a"), ["b", "link"]);
        assert_eq!(v.text("a/b/f").unwrap(), "text");
    };
    assert!(!v.asked(look).is_empty());
    let again = v.asked(look);
    assert_eq!(again, [kind::OPEN], "the file is opened, but neither looked for nor read");

    fs::write(v.host("a/b/f"), "longer text").unwrap();
    assert_eq!(v.find("a/b/f").unwrap().stat().unwrap().size, 11);
    assert_eq!(v.text("a/b/f").unwrap(), "longer text");
    fs::write(v.host("a/none"), "").unwrap();
    assert_eq!(v.names("a"), ["b", "link", "none"]);
    assert_eq!(v.find("a/none").unwrap().stat().unwrap().size, 0);
    fs::set_permissions(v.host("a/b"), fs::Permissions::from_mode(0o700)).unwrap();
    assert_eq!(v.find("a/b").unwrap().stat().unwrap().permissions, 0o700);
    fs::rename(v.host("a/b"), v.host("a/c")).unwrap();
    assert_eq!(v.find("a/b").err(), Some(ENOENT));
    assert_eq!(v.text("a/c/f").unwrap(), "longer text");
    fs::remove_file(v.host("a/link")).unwrap();
    assert_eq!(v.find("a/link").err(), Some(ENOENT));
    fs::write(v.host("a/c/new"), "of the same length").unwrap();
    fs::rename(v.host("a/c/new"), v.host("a/c/f")).unwrap();
    assert_eq!(v.text("a/c/f").unwrap(), "of the same length");
}

#[test]
fn what_has_two_names_is_asked_each_time() {
    let v = Volume::new();
    fs::create_dir(v.host("other")).unwrap();
    fs::write(v.host("f"), "one").unwrap();
    fs::hard_link(v.host("f"), v.host("other/name")).unwrap();
    assert_eq!(v.text("f").unwrap(), "one");
    fs::write(v.host("other/name"), "three").unwrap();
    assert_eq!(v.text("f").unwrap(), "three");
    assert_eq!(v.find("f").unwrap().stat().unwrap().size, 5);
}

#[test]
fn a_file_in_use_is_found_when_its_name_goes_or_is_anothers() {
    let v = Volume::new();
    for name in ["renamed", "removed", "replaced", "by"] {
        fs::write(v.host(name), name).unwrap();
    }
    // Listed with attributes, so that no handle leads to them.
    v.names("");
    v.find("by").unwrap();
    v.find("renamed").unwrap();
    let used = ["renamed", "removed", "replaced"].map(|name| v.find(name).unwrap());
    v.root.rename(b"renamed", &v.root, b"elsewhere", 0).unwrap();
    v.root.unlink(b"removed", false).unwrap();
    v.root.rename(b"by", &v.root, b"replaced", 0).unwrap();
    assert_eq!(used[0].stat().unwrap().size, 7);
    assert_eq!((used[1].stat().unwrap().links, used[2].stat().unwrap().links), (0, 0));
    assert_eq!(v.text("elsewhere").unwrap(), "renamed");
    assert_eq!(v.text("replaced").unwrap(), "by");
    assert_eq!(v.find("removed").err(), Some(ENOENT));
}

#[test]
fn a_directory_that_is_removed_while_it_is_in_use_has_no_links() {
    let v = Volume::new();
    fs::create_dir_all(v.host("a/b")).unwrap();
    let (used, other) = (v.find("a/b").unwrap(), v.find("a").unwrap());
    assert_eq!((used.stat().unwrap().links, other.stat().unwrap().links), (2, 3));
    other.unlink(b"b", true).unwrap();
    fs::create_dir(v.host("a/b")).unwrap();
    assert_eq!((used.stat().unwrap().links, other.stat().unwrap().links), (0, 3));
    assert_eq!(v.find("a/b").unwrap().stat().unwrap().links, 2);
}

#[test]
fn listings_bring_attributes_where_they_are_wanted() {
    let v = Volume::new();
    for n in 0..10 {
        fs::create_dir(v.host(&format!("d{n}"))).unwrap();
        for m in 0..10 {
            fs::write(v.host(&format!("d{n}/f{m}")), "x".repeat(m)).unwrap();
        }
    }
    let asked = v.asked(|| {
        for n in 0..10 {
            for name in v.names(&format!("d{n}")) {
                let size = v.find(&format!("d{n}/{name}")).unwrap().stat().unwrap().size;
                assert_eq!(format!("f{size}"), name);
            }
        }
    });
    // Two for files of the first one, and its listing once more.
    let count = |asked: &[u8], wanted| asked.iter().filter(|kind| **kind == wanted).count();
    assert_eq!((count(&asked, kind::LOOK), count(&asked, kind::LIST)), (10 + 2, 10 + 1), "{asked:?}");
    let asked = v.asked(|| (0..10).for_each(|n| assert_eq!(v.names(&format!("d{n}")).len(), 10)));
    assert_eq!(asked, []);
    // Who lists a directory gets those in it with what is in them; of one with many files that is too much at once.
    fs::create_dir(v.host("d0/little")).unwrap();
    fs::write(v.host("d0/little/file"), "x").unwrap();
    fs::create_dir(v.host("d0/much")).unwrap();
    (0..300).for_each(|n| fs::write(v.host(&format!("d0/much/{n}")), "x").unwrap());
    let asked = v.asked(|| {
        assert_eq!(v.names("d0").len(), 12);
        assert_eq!(v.names("d0/little"), ["file"]);
        assert_eq!(v.find("d0/little/file").unwrap().stat().unwrap().size, 1);
    });
    assert_eq!((count(&asked, kind::LOOK), count(&asked, kind::LIST)), (1, 1), "{asked:?}");
    let asked = v.asked(|| assert_eq!(v.names("d0/much").len(), 300));
    assert_eq!((count(&asked, kind::LOOK), count(&asked, kind::LIST)), (1, 1), "{asked:?}");
    // What came so is no older than what was asked for.
    fs::remove_file(v.host("d0/little/file")).unwrap();
    assert!(v.names("d0/little").is_empty());
    assert_eq!(v.find("d0/little/file").err(), Some(ENOENT));
}

/// Deterministic: whatever the host and the machine change in turn, the machine sees what there is.
#[test]
fn random_changes_of_both_sides_are_seen_by_the_machine_at_once() {
    let v = Volume::new();
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut random = move |below: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 11) as usize % below
    };
    let paths: Vec<String> = ["", "a/", "a/b/", "c/"]
        .iter()
        .flat_map(|directory| ["a", "b", "c", "f", "g"].map(|name| format!("{directory}{name}")))
        .collect();
    for round in 0..20_000 {
        let path = &paths[random(paths.len())];
        let (directory, name) = path.rsplit_once('/').unwrap_or(("", path));
        let to = &paths[random(paths.len())];
        let (to_directory, to_name) = to.rsplit_once('/').unwrap_or(("", to));
        let text = "x".repeat(random(20));
        let host = v.host(path);
        // Whether it succeeds does not matter: only that both see the same afterwards.
        let _ =
            match random(16) {
                0 => fs::create_dir(&host).ok(),
                1 => fs::write(&host, &text).ok(),
                2 => fs::remove_file(&host).ok(),
                3 => fs::remove_dir_all(&host).ok(),
                4 => fs::rename(&host, v.host(to)).ok(),
                5 => v.find(path).and_then(|file| v.find(to_directory)?.link(to_name.as_bytes(), &file)).ok(),
                6 => fs::set_permissions(&host, fs::Permissions::from_mode(0o700 + random(64) as u32)).ok(),
                7 => v
                    .find(directory)
                    .and_then(|d| d.create(name.as_bytes(), FileType::Directory, 0o755, (0, 0), 0))
                    .map(drop)
                    .ok(),
                8 => v
                    .find(directory)
                    .and_then(|d| d.create(name.as_bytes(), FileType::Regular, 0o644, (0, 0), 0))
                    .map(drop)
                    .ok(),
                9 => v.find(directory).and_then(|d| d.unlink(name.as_bytes(), random(2) == 0)).ok(),
                10 => v
                    .find(directory)
                    .and_then(|d| d.rename(name.as_bytes(), &v.find(to_directory)?, to_name.as_bytes(), 0))
                    .ok(),
                11 => v
                    .find(path)
                    .and_then(|file| file.open(&file, 2)?.write(0, &mut Source::kernel(text.as_bytes())))
                    .map(drop)
                    .ok(),
                12 => {
                    let change = SetAttr { size: Some(random(30) as u64), ..SetAttr::default() };
                    v.find(path)
                        .and_then(|file| {
                            if file.kind()? == FileType::Regular { file.set_attr(&change) } else { Ok(()) }
                        })
                        .ok()
                }
                13 => v
                    .find(directory)
                    .and_then(|d| d.symlink(name.as_bytes(), format!("nowhere/{to}").as_bytes(), (0, 0)))
                    .ok(),
                14 => v.find(directory).map(|d| drop(d.list(0, 100))).ok(),
                _ => None,
            };
        for _ in 0..2 {
            let path = &paths[random(paths.len())];
            let there = fs::symlink_metadata(v.host(path)).ok();
            let seen = v.find(path).and_then(|inode| inode.stat()).ok();
            let pick = |mode, links, size| (mode, links, size);
            let there_is = there.as_ref().map(|m| pick(m.mode(), m.nlink(), m.len()));
            assert_eq!(seen.map(|s| pick(s.mode(), s.links, s.size)), there_is, "round {round}: {path}");
            match there {
                Some(meta) if meta.is_dir() => {
                    let mut names: Vec<String> = fs::read_dir(v.host(path))
                        .unwrap()
                        .map(|entry| entry.unwrap().file_name().to_string_lossy().to_string())
                        .collect();
                    names.sort();
                    assert_eq!(v.names(path), names, "round {round}: {path}");
                }
                Some(meta) if meta.is_file() => {
                    assert_eq!(
                        v.text(path).unwrap(),
                        fs::read_to_string(v.host(path)).unwrap(),
                        "round {round}: {path}"
                    );
                }
                Some(_) => {
                    let target = fs::read_link(v.host(path)).unwrap();
                    let seen = v.find(path).unwrap().read_link().unwrap();
                    assert_eq!(
                        String::from_utf8_lossy(&seen),
                        target.to_string_lossy(),
                        "round {round}: {path}"
                    );
                }
                None => {}
            }
        }
    }
}
