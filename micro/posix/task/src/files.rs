// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a thread has of the file tree, mostly together with the other threads of its process: descriptors, root and working directory,
//! umask.

use crate::limits::USUAL_DESCRIPTORS;
use crate::process::{Credentials, Process};
use crate::shared::Shared;
use crate::users::UserNamespace;
use crate::{thread, wait};
use abi::Events;
use abi::{Result, errno::*};
use alloc::sync::Arc;
use api_fs::File;
use api_lock::SpinLock;
use core::ops::Deref;
use core::sync::atomic::{AtomicU32, Ordering};
use descriptors::{Description, Descriptors, locks};

use vfs::{Dentry, Namespace, Walk};

/// Directory descriptor that means the working directory.
pub const AT_FDCWD: i32 = -100;
/// O_CLOEXEC of open(2) and of most calls that make a descriptor.
pub const O_CLOEXEC: u32 = 0o2000000;

#[derive(Clone)]
struct Places {
    namespace: Arc<Namespace>,
    root: Arc<Dentry>,
    working: Arc<Dentry>,
}

/// What CLONE_FS shares.
struct Position {
    places: SpinLock<Places>,
    umask: AtomicU32,
}

impl Position {
    fn duplicate(&self) -> Position {
        let places = self.places.lock();
        let umask = AtomicU32::new(self.umask.load(Ordering::Relaxed));
        Position { places: SpinLock::new(places.clone()), umask }
    }
}

/// Files of one thread.
pub struct Files {
    pub descriptors: Shared<Descriptors>,
    /// The file system of memfd_create.
    pub memory_files: Arc<ramfs::Node>,
    /// Bytes the machine was given, for the size of a tmpfs.
    pub memory: u64,
    position: Shared<Position>,
}

/// What programs begin with that nobody gives a file mode creation mask.
pub const FIRST_UMASK: u32 = 0o022;

impl Files {
    /// Root and working directory are the tree's root, the umask is [`FIRST_UMASK`].
    pub fn new(namespace: Arc<Namespace>, memory: u64) -> Files {
        let root = namespace.root().topmost();
        let places = SpinLock::new(Places { namespace, working: root.clone(), root });
        let position = Shared::new(Position { places, umask: AtomicU32::new(FIRST_UMASK) });
        let descriptors = Shared::new(Descriptors::new(USUAL_DESCRIPTORS));
        let memory_files = ramfs::tmpfs(new_device(), memory / 2, 0o1777, (0, 0));
        Files { descriptors, memory_files, memory, position }
    }

    /// For a new thread or process: the same descriptors (CLONE_FILES) or a copy of them, and the same root, working directory and
    /// umask (CLONE_FS) or a copy.
    pub fn fork(&self, shares_descriptors: bool, shares_position: bool) -> Result<Files> {
        Ok(Files {
            descriptors: match shares_descriptors {
                true => self.descriptors.share(),
                false => Shared::new(self.descriptors.duplicate()?),
            },
            memory_files: self.memory_files.clone(),
            memory: self.memory,
            position: match shares_position {
                true => self.position.share(),
                false => Shared::new(self.position.duplicate()),
            },
        })
    }

    /// For a process that begins beside this one: the same tree, no descriptors, and this working directory.
    pub fn beside(&self, working: Arc<Dentry>) -> Files {
        self.beside_in(self.namespace(), working)
    }

    /// The same in another tree.
    pub fn beside_in(&self, namespace: Arc<Namespace>, working: Arc<Dentry>) -> Files {
        let files = Files::new(namespace, self.memory);
        files.set_working(working);
        Files { memory_files: self.memory_files.clone(), ..files }
    }

    /// Goes on with a copy of the descriptors where others have them, too (execve, unshare).
    pub fn own_descriptors(&self) -> Result<()> {
        if self.descriptors.is_shared() {
            self.descriptors.replace(self.descriptors.duplicate()?)?;
        }
        Ok(())
    }

    /// As [`Files::own_descriptors`] for root, working directory and umask.
    pub fn own_position(&self) -> Result<()> {
        if self.position.is_shared() {
            self.position.replace(self.position.duplicate())?;
        }
        Ok(())
    }

    /// Goes on with what another thread of the process has.
    pub fn take_over(&self, other: &Files) -> Result<()> {
        self.descriptors.take_over(&other.descriptors)?;
        self.position.take_over(&other.position)
    }

    /// Others may change root and working directory.
    pub fn shares_position(&self) -> bool {
        self.position.is_shared()
    }

    /// How many threads, of all processes, have root and working directory together.
    pub fn position_users(&self) -> usize {
        self.position.users()
    }

    /// At the end of the thread: closes the descriptors unless others have them. Nothing happens the second time.
    pub fn close_all(&self) {
        self.position.leave();
        if !self.descriptors.leave() {
            return;
        }
        let mut next = 0;
        while let Some(fd) = self.descriptors.next_open(next) {
            // Nobody is left to hear of an error.
            let _ = self.descriptors.remove(fd).and_then(end);
            next = fd as u32 + 1;
        }
    }

    /// The thread has ended.
    pub fn are_left(&self) -> bool {
        self.descriptors.has_left()
    }

    /// Tells roots, working directories and umasks apart that threads share (kcmp(2)).
    pub fn position_address(&self) -> usize {
        self.position.address()
    }

    /// What is mounted where for this thread.
    pub fn namespace(&self) -> Arc<Namespace> {
        self.position.places.lock().namespace.clone()
    }

    /// Goes on in a copy of its mount namespace, at the same places (CLONE_NEWNS). Nobody else may have root and working directory
    /// with this thread.
    pub fn leave_namespace(&self, owner: &UserNamespace) -> Result<()> {
        let places = self.position.places.lock().clone();
        let locks = UserNamespace::of_owner(places.namespace.owner()) != *owner;
        let (namespace, copies) = places.namespace.copy(owner.to_owner(), locks)?;
        let (root, working) = (copies.of(&places.root)?, copies.of(&places.working)?);
        self.set_places(Places { namespace: Arc::new(namespace), root, working });
        Ok(())
    }

    /// Goes on in another mount namespace, at its root (setns(2)).
    pub fn enter_namespace(&self, namespace: Arc<Namespace>) {
        let root = namespace.root().topmost();
        self.set_places(Places { namespace, working: root.clone(), root });
    }

    fn set_places(&self, places: Places) {
        let old = core::mem::replace(&mut *self.position.places.lock(), places);
        drop(old);
    }

    /// Whoever has `old` as root or working directory has `new` now (pivot_root(2)).
    pub fn replace_places(&self, old: &Arc<Dentry>, new: &Arc<Dentry>) {
        let places = &mut *self.position.places.lock();
        for place in [&mut places.root, &mut places.working] {
            if Arc::ptr_eq(place, old) {
                *place = new.clone();
            }
        }
    }

    pub fn root(&self) -> Arc<Dentry> {
        self.position.places.lock().root.clone()
    }

    pub fn working(&self) -> Arc<Dentry> {
        self.position.places.lock().working.clone()
    }

    pub fn set_root(&self, dir: Arc<Dentry>) {
        let old = core::mem::replace(&mut self.position.places.lock().root, dir);
        drop(old);
    }

    pub fn set_working(&self, dir: Arc<Dentry>) {
        let old = core::mem::replace(&mut self.position.places.lock().working, dir);
        drop(old);
    }

    pub fn umask(&self) -> u32 {
        self.position.umask.load(Ordering::Relaxed)
    }

    /// Sets the umask and returns the one before.
    pub fn set_umask(&self, mask: u32) -> u32 {
        self.position.umask.swap(mask & 0o777, Ordering::Relaxed)
    }

    /// A descriptor for a new file without a name: pipes, sockets, timers. `flags` are open(2)'s, O_CLOEXEC included.
    pub fn install(&self, file: Arc<dyn File>, flags: u32) -> Result<i32> {
        self.descriptors.insert(Description::new(file, flags, None), flags & O_CLOEXEC != 0)
    }

    /// Where a path relative to `dirfd` starts. A path that starts with `/` needs no valid descriptor.
    pub fn start(&self, dirfd: i32, path: &[u8]) -> Result<Arc<Dentry>> {
        if path.first() == Some(&b'/') || dirfd == AT_FDCWD {
            return Ok(self.working());
        }
        let description = self.descriptors.get_any(dirfd)?;
        description.place().cloned().ok_or(ENOTDIR)
    }

    /// What a path leads to, for callers inside the kernel (the loader): `path` from the root or the working
    /// directory, links followed.
    pub fn lookup(&self, path: &[u8], who: &vfs::Credentials) -> Result<Arc<Dentry>> {
        let (root, working) = (self.root(), self.working());
        Walk::new(&root, &working, who).lookup(path, true)
    }
}

/// A device number for a file system that has none, as Linux numbers them: major 0.
pub fn new_device() -> u64 {
    static NEXT: AtomicU32 = AtomicU32::new(FIRST_DEVICE);
    NEXT.fetch_add(1, Ordering::Relaxed) as u64
}

/// The numbers below are those of the file systems mounted at boot.
const FIRST_DEVICE: u32 = 32;

/// The files of the calling thread.
#[derive(Clone, Copy)]
pub struct CurrentFiles(thread::Current);

impl Deref for CurrentFiles {
    type Target = Files;

    #[inline]
    fn deref(&self) -> &Files {
        self.0.files()
    }
}

/// The files of the calling thread.
#[inline]
pub fn current() -> CurrentFiles {
    CurrentFiles(thread::current())
}

/// The descriptor's description; `EBADF` also for O_PATH descriptors.
#[inline]
pub fn get(fd: i32) -> Result<Arc<Description>> {
    current().descriptors.get(fd)
}

/// File-system ids of the calling thread.
pub fn credentials() -> vfs::Credentials {
    of_files(&thread::current().credentials().lock(), current().umask())
}

/// The same of whoever runs a program in that process.
pub fn credentials_for(process: &Process) -> vfs::Credentials {
    let runner = thread::Runner::of(process);
    of_files(&runner.credentials().lock(), runner.files().umask())
}

fn of_files(c: &Credentials, umask: u32) -> vfs::Credentials {
    let capabilities = c.capabilities.effective;
    let (groups, scope) = (c.groups.clone(), c.users.scope());
    vfs::Credentials {
        uid: c.fsuid,
        gid: c.fsgid,
        groups,
        capabilities,
        scope,
        umask,
        #[cfg(feature = "landlock")]
        domain: c.domain.clone(),
    }
}

/// Real ids of the calling thread, which access(2) goes by.
pub fn real_credentials() -> vfs::Credentials {
    let task = thread::current();
    let c = task.credentials().lock();
    // As access(2) has it: root of the real id has what it may have, others have nothing.
    let capabilities = match c.capabilities.change_with_users() {
        true if Some(c.uid) == c.root() => c.capabilities.permitted,
        true => 0,
        false => c.capabilities.effective,
    };
    let (groups, scope) = (c.groups.clone(), c.users.scope());
    vfs::Credentials {
        uid: c.uid,
        gid: c.gid,
        groups,
        capabilities,
        scope,
        umask: 0,
        #[cfg(feature = "landlock")]
        domain: c.domain.clone(),
    }
}

/// The wall clock of file times.
#[unsafe(no_mangle)]
fn unilith_fs_now_ns() -> u64 {
    api_plat::wall_ns().wrapping_add(api_plat::now_ns())
}

/// Ends one descriptor: record locks of the process on that file go, whatever descriptor took them.
pub fn end(description: Arc<Description>) -> Result<()> {
    if let Some(inode) = description.inode() {
        locks::process_closed(inode, thread::current().process.pid.of_machine());
    }
    linger(&description);
    description.close()
}

/// SO_LINGER: closing the last descriptor of a connection waits until the peer has everything, or as long as the
/// option says.
fn linger(description: &Arc<Description>) {
    if Arc::strong_count(description) > 1 {
        return;
    }
    let Ok(socket) = api_socket::of_file(&**description.file()) else { return };
    let Some(ns) = socket.linger_ns() else { return };
    let until = api_plat::now_ns().saturating_add(ns);
    // Neither the time that passed nor a signal is an error of close(2).
    let _ = wait::on_queue(socket.wait_queue(), Events::ALL, until, || socket.finish());
}
