// SPDX-License-Identifier: Apache-2.0 OR MIT
//! From a path to a dentry (path_resolution(7), openat2(2)).

use crate::OpenFile;
use crate::access::{Access, Capability, Credentials};
use crate::dentry::Dentry;
use crate::mount::MountFlags;
use crate::protection;
use abi::{Result, errno::*};
use alloc::borrow::Cow;
use alloc::sync::Arc;
use alloc::vec::Vec;
use api_fs::{FileType, Magic};

/// Symbolic links followed in one walk (Linux MAXSYMLINKS).
pub const LINK_LIMIT: u32 = 40;

/// `resolve` of openat2's struct open_how.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Resolve(pub u32);

impl Resolve {
    pub const NO_XDEV: u32 = 0x01;
    pub const NO_MAGICLINKS: u32 = 0x02;
    pub const NO_SYMLINKS: u32 = 0x04;
    pub const BENEATH: u32 = 0x08;
    pub const IN_ROOT: u32 = 0x10;
    pub const CACHED: u32 = 0x20;
    pub const KNOWN: u32 = 0x3f;
    /// Not of openat2: what is found is not used, so that the mount it is on may still expire (MNT_EXPIRE).
    pub const KEEPS_EXPIRY: u32 = 0x100;

    pub fn has(self, flag: u32) -> bool {
        self.0 & flag != 0
    }

    fn is_scoped(self) -> bool {
        self.has(Resolve::BENEATH | Resolve::IN_ROOT)
    }
}

/// The last component of a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Last {
    Name(Vec<u8>),
    Dot,
    DotDot,
    /// The path was `/`.
    Root,
}

/// A path up to its last component.
pub struct Parent {
    pub dir: Arc<Dentry>,
    pub last: Last,
    /// The path ended in a slash, so it must be a directory.
    pub slash: bool,
}

/// How a path is resolved: from where, by whom, and what is forbidden.
pub struct Walk<'a> {
    /// The process' root directory.
    pub root: &'a Arc<Dentry>,
    /// Where a relative path starts: the working directory or a descriptor's.
    pub start: &'a Arc<Dentry>,
    pub who: &'a Credentials,
    pub resolve: Resolve,
}

enum Mode {
    Parent,
    Follow,
    NoFollow,
}

enum End {
    Parent(Parent),
    Dentry(Arc<Dentry>),
}

impl<'a> Walk<'a> {
    pub fn new(root: &'a Arc<Dentry>, start: &'a Arc<Dentry>, who: &'a Credentials) -> Walk<'a> {
        Walk { root, start, who, resolve: Resolve::default() }
    }

    /// What the path leads to; a symbolic link at its end is followed when `follow`, or when the path ends in a
    /// slash.
    pub fn lookup(&self, path: &[u8], follow: bool) -> Result<Arc<Dentry>> {
        match self.run(
            self.start.clone(),
            path,
            if follow { Mode::Follow } else { Mode::NoFollow },
            &mut 0,
        )? {
            End::Dentry(dentry) => {
                if !self.resolve.has(Resolve::KEEPS_EXPIRY) {
                    dentry.mount().note_use();
                }
                Ok(dentry)
            }
            End::Parent(_) => Err(EINVAL),
        }
    }

    /// The directory of the last component, whether that exists or not. The caller may search the directory.
    pub fn parent(&self, path: &[u8]) -> Result<Parent> {
        self.parent_from(self.start.clone(), path, &mut 0)
    }

    pub(crate) fn parent_from(&self, start: Arc<Dentry>, path: &[u8], links: &mut u32) -> Result<Parent> {
        match self.run(start, path, Mode::Parent, links)? {
            End::Parent(parent) => Ok(parent),
            End::Dentry(_) => Err(EINVAL),
        }
    }

    fn scope_root(&self) -> &Arc<Dentry> {
        if self.resolve.has(Resolve::IN_ROOT | Resolve::BENEATH) { self.start } else { self.root }
    }

    /// `EACCES` or `ENOTDIR` unless names in `dir` may be looked up.
    fn may_search(&self, dir: &Arc<Dentry>) -> Result<()> {
        if !dir.is_directory() {
            return Err(ENOTDIR);
        }
        if self.who.has(Capability::DacOverride) {
            return Ok(());
        }
        self.who.check_file(dir.inode(), &dir.inode().stat()?, Access::EXECUTE)
    }

    pub(crate) fn up(&self, at: &Arc<Dentry>) -> Result<Arc<Dentry>> {
        if self.resolve.is_scoped() && Arc::ptr_eq(at, self.start) {
            return if self.resolve.has(Resolve::BENEATH) { Err(EXDEV) } else { Ok(at.clone()) };
        }
        let above = at.above(self.root);
        self.crossing(at, &above)?;
        Ok(above)
    }

    fn crossing(&self, from: &Arc<Dentry>, to: &Arc<Dentry>) -> Result<()> {
        let crosses = self.resolve.has(Resolve::NO_XDEV) && !Arc::ptr_eq(from.mount(), to.mount());
        if crosses { Err(EXDEV) } else { Ok(()) }
    }

    /// The child as the program sees it, what is mounted there included; a link is not followed.
    pub fn child(&self, dir: &Arc<Dentry>, name: &[u8]) -> Result<Arc<Dentry>> {
        if self.resolve.has(Resolve::CACHED) && dir.known_child(name).is_none() {
            return Err(EAGAIN);
        }
        let child = dir.child(name)?.topmost();
        self.crossing(dir, &child)?;
        Ok(child)
    }

    /// What a symbolic link says: a new path to walk from its directory, or a place to go on from.
    pub(crate) fn follow(&self, link: &Arc<Dentry>, links: &mut u32) -> Result<Jump> {
        *links += 1;
        let is_forbidden =
            self.resolve.has(Resolve::NO_SYMLINKS) || link.mount().flags().has(MountFlags::NOSYMFOLLOW);
        if *links > LINK_LIMIT || is_forbidden {
            return Err(ELOOP);
        }
        let Some(magic) = link.inode().magic() else {
            let target = link.inode().read_link()?;
            return if target.is_empty() { Err(ENOENT) } else { Ok(Jump::Path(target)) };
        };
        if self.resolve.has(Resolve::NO_MAGICLINKS) {
            return Err(ELOOP);
        }
        if self.resolve.is_scoped() {
            return Err(EXDEV);
        }
        let place = match magic? {
            Magic::Place(place) => place.downcast::<Dentry>().map_err(|_| EIO)?,
            Magic::File(file) => Dentry::unnamed(self.root.mount(), OpenFile::inode(&file), b"file")?,
        };
        self.crossing(link, &place)?;
        Ok(Jump::Place(place))
    }

    fn run(&self, start: Arc<Dentry>, path: &[u8], mode: Mode, links: &mut u32) -> Result<End> {
        if path.is_empty() {
            return Err(ENOENT);
        }
        let mut at = start;
        let mut path = Cow::Borrowed(path);
        let mut next = 0;
        'path: loop {
            if path.get(next) == Some(&b'/') {
                if next == 0 {
                    if self.resolve.has(Resolve::BENEATH) {
                        return Err(EXDEV);
                    }
                    let root = self.scope_root().clone();
                    self.crossing(&at, &root)?;
                    at = root;
                }
                while path.get(next) == Some(&b'/') {
                    next += 1;
                }
            }
            if next == path.len() {
                // Only slashes.
                return Ok(match mode {
                    Mode::Parent => End::Parent(Parent { dir: at, last: Last::Root, slash: true }),
                    _ => End::Dentry(at),
                });
            }
            loop {
                self.may_search(&at)?;
                let start = next;
                while path.get(next).is_some_and(|b| *b != b'/') {
                    next += 1;
                }
                let end = next;
                while path.get(next) == Some(&b'/') {
                    next += 1;
                }
                let is_last = next == path.len();
                let slash = next != end;
                let name = &path[start..end];
                if is_last && matches!(mode, Mode::Parent) {
                    let last = match name {
                        b"." => Last::Dot,
                        b".." => Last::DotDot,
                        name => Last::Name(name.to_vec()),
                    };
                    return Ok(End::Parent(Parent { dir: at, last, slash }));
                }
                let child = match name {
                    b"." => at.clone(),
                    b".." => self.up(&at)?,
                    name => self.child(&at, name)?,
                };
                let stays = is_last && !slash && matches!(mode, Mode::NoFollow);
                if child.kind() == FileType::Symlink && !stays {
                    if is_last {
                        protection::check_link(self.who, &at, &child)?;
                    }
                    match self.follow(&child, links)? {
                        Jump::Place(place) => at = place,
                        Jump::Path(mut target) => {
                            if slash {
                                target.push(b'/');
                                target.extend_from_slice(&path[next..]);
                            }
                            path = Cow::Owned(target);
                            next = 0;
                            continue 'path;
                        }
                    }
                } else {
                    at = child;
                }
                if is_last {
                    return if slash && !at.is_directory() { Err(ENOTDIR) } else { Ok(End::Dentry(at)) };
                }
            }
        }
    }
}

pub(crate) enum Jump {
    Path(Vec<u8>),
    Place(Arc<Dentry>),
}
