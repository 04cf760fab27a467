// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Paths of the machine: the program's file tree with the rights of root, and in it [`OVERLAY`], the host's directory of
//! this machine, which is mounted when a path asks for it the first time.

use abi::errno::{EAGAIN, ENOENT};
use abi::{Events, Result};
use alloc::sync::Arc;
use alloc::vec::Vec;
use api_boot::Volume;
use api_fs::{File, FileType, Sink, Source};
use api_overlay::{Failure, Session, Stop};
use core::sync::atomic::{AtomicBool, Ordering};
use posix::mounts;
use task::auxiliary;
use task::containers::Container;
use task::process::Process;
use vfs::{Credentials, Dentry, Walk, ops};

/// Where the host's directory is mounted.
pub const OVERLAY: &str = "/overlay";
/// Its 9p mount tag.
pub const TAG: &str = "overlay";
const O_NONBLOCK: u32 = 0o4000;
/// Of open(2), for callers of [`Tree::open`].
pub const O_RDONLY: u32 = 0;
pub const O_WRONLY: u32 = 1;
pub const O_CREAT: u32 = 0o100;
pub const O_TRUNC: u32 = 0o1000;

static MOUNTED: AtomicBool = AtomicBool::new(false);

/// The program's tree, for as long as a command looks at it.
pub struct Tree {
    pub process: Arc<Process>,
    root: Arc<Dentry>,
    working: Arc<Dentry>,
    who: Credentials,
}

impl Tree {
    /// The tree, with the host's directory in it when `path` leads there.
    pub fn for_path(path: &[u8]) -> core::result::Result<Tree, Failure> {
        let process = auxiliary::program().map_err(|e| Failure::new("").errno(e))?;
        let (root, working) = (process.files.root(), process.files.working());
        let who = Credentials::root();
        let tree = Tree { process, root, working, who };
        if leads_to_overlay(path) {
            tree.mount_overlay()?;
        }
        Ok(tree)
    }

    /// The tree of a container's programs, or the machine's own.
    pub fn of(container: Option<&Container>) -> core::result::Result<Tree, Failure> {
        let tree = Tree::for_path(b"/")?;
        Ok(match container {
            Some(container) => {
                let root = container.namespace.root().topmost();
                Tree { working: root.clone(), root, ..tree }
            }
            None => tree,
        })
    }

    pub fn walk(&self) -> Walk<'_> {
        Walk::new(&self.root, &self.working, &self.who)
    }

    /// Mounts the host's directory, once.
    fn mount_overlay(&self) -> core::result::Result<(), Failure> {
        if MOUNTED.swap(true, Ordering::Relaxed) {
            return Ok(());
        }
        let volume = Volume { tag: TAG.into(), path: OVERLAY.into(), read_only: false, file: false };
        mounts::mount_volume(&self.process.files.namespace(), &volume).map_err(|text| {
            MOUNTED.store(false, Ordering::Relaxed);
            Failure::new("").because(text)
        })
    }

    pub fn lookup(&self, path: &[u8], follow: bool) -> Result<Arc<Dentry>> {
        if path.is_empty() { Err(ENOENT) } else { self.walk().lookup(path, follow) }
    }

    /// Opens a file; a new one gets `permissions`. Never waits for the other side of a pipe.
    pub fn open(&self, path: &[u8], flags: u32, permissions: u32) -> Result<Arc<dyn File>> {
        if path.is_empty() {
            return Err(ENOENT);
        }
        let opened = ops::open(&self.walk(), path, flags, permissions)?;
        let flags = if opened.created { flags & !O_TRUNC } else { flags };
        posix::calls::open::open_inode(&opened.dentry, flags | O_NONBLOCK)
    }
}

fn leads_to_overlay(path: &[u8]) -> bool {
    let path = path.strip_prefix(OVERLAY.as_bytes());
    path.is_some_and(|rest| rest.is_empty() || rest[0] == b'/')
}

/// Does `operation` until it answers something else than EAGAIN, waiting for the file between.
fn waiting<T>(
    session: &dyn Session,
    file: &Arc<dyn File>,
    interest: Events,
    mut operation: impl FnMut() -> Result<T>,
) -> core::result::Result<Result<T>, Stop> {
    loop {
        match operation() {
            Err(EAGAIN) => {}
            done => return Ok(done),
        }
        let Some(queue) = file.wait_queue() else { return Ok(Err(EAGAIN)) };
        let key = queue.add(api_sched::current(), interest, false);
        // Registered first, then looked again: no wake-up is lost.
        let again = operation();
        let slept = if matches!(again, Err(EAGAIN)) { session.sleep(u64::MAX) } else { Ok(()) };
        queue.remove(key);
        slept?;
        if !matches!(again, Err(EAGAIN)) {
            return Ok(again);
        }
    }
}

/// Reads at `offset`; waits where there is nothing yet.
pub fn read(
    session: &dyn Session,
    file: &Arc<dyn File>,
    offset: u64,
    to: &mut [u8],
) -> core::result::Result<Result<usize>, Stop> {
    waiting(session, file, Events::IN, || file.read(offset, &mut Sink::kernel(to)))
}

/// Writes all of `bytes` at `offset`; waits where there is no room.
pub fn write_all(
    session: &dyn Session,
    file: &Arc<dyn File>,
    mut offset: u64,
    mut bytes: &[u8],
) -> core::result::Result<Result<()>, Stop> {
    while !bytes.is_empty() {
        let written = waiting(session, file, Events::OUT, || file.write(offset, &mut Source::kernel(bytes)))?;
        match written {
            Ok(count) => {
                offset += count as u64;
                bytes = &bytes[count.min(bytes.len())..];
            }
            Err(e) => return Ok(Err(e)),
        }
        session.checkpoint()?;
    }
    Ok(Ok(()))
}

/// The failure of an operation on `path`.
pub fn failed(path: &[u8]) -> impl Fn(abi::Errno) -> Failure + '_ {
    move |e| Failure::about(path).errno(e)
}

/// `directory/name`.
pub fn join(directory: &[u8], name: &[u8]) -> Vec<u8> {
    let mut out = directory.to_vec();
    if !out.is_empty() && out.last() != Some(&b'/') {
        out.push(b'/');
    }
    out.extend_from_slice(name);
    out
}

/// The last component, without slashes behind it.
pub fn base_name(path: &[u8]) -> &[u8] {
    let end = path.iter().rposition(|b| *b != b'/').map_or(0, |last| last + 1);
    let start = path[..end].iter().rposition(|b| *b == b'/').map_or(0, |slash| slash + 1);
    &path[start..end]
}

/// Entries of a directory that are read at once.
pub const BATCH: usize = 128;

/// Finds paths that begin like `prefix`; directories end in a slash.
pub fn complete(prefix: &[u8], found: &mut dyn FnMut(&[u8])) {
    let split = prefix.iter().rposition(|b| *b == b'/').map_or(0, |slash| slash + 1);
    let (directory, start) = prefix.split_at(split);
    let Ok(tree) = Tree::for_path(prefix) else { return };
    let from = if directory.is_empty() { b"." } else { directory };
    let Ok(dentry) = tree.lookup(from, true) else { return };
    if OVERLAY.as_bytes()[1..].starts_with(start) && directory == b"/" && !start.is_empty() {
        found(b"/overlay/");
    }
    let mut cookie = 0;
    // A directory that always has more would be a broken file system's.
    for _ in 0..64 {
        let Ok(entries) = dentry.inode().list(cookie, BATCH) else { return };
        let Some(last) = entries.last() else { return };
        cookie = last.next;
        for entry in entries.iter().filter(|e| e.name.starts_with(start)) {
            if start.is_empty() && entry.name.first() == Some(&b'.') {
                continue;
            }
            let mut path = [directory, &entry.name].concat();
            if entry.kind == FileType::Directory {
                path.push(b'/');
            }
            found(&path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_paths_into_the_overlay_mount_it() {
        for path in ["/overlay", "/overlay/", "/overlay/x"] {
            assert!(leads_to_overlay(path.as_bytes()), "{path}");
        }
        for path in ["/", "/overlays", "overlay", "/x/overlay"] {
            assert!(!leads_to_overlay(path.as_bytes()), "{path}");
        }
    }

    #[test]
    fn the_last_component_is_found_without_its_slashes() {
        for (path, name) in [("/a/b", "b"), ("/a/b//", "b"), ("a", "a"), ("/", ""), ("", "")] {
            assert_eq!(base_name(path.as_bytes()), name.as_bytes());
        }
        assert_eq!(join(b"/a", b"b"), b"/a/b");
        assert_eq!(join(b"/", b"b"), b"/b");
    }
}
