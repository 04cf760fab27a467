// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Domains of Landlock (landlock(7), ABI 2): what a thread has given away for good of its rights on files, by places in the tree.
//!
//! A right that a layer of the domain handles is had on a file where, for each such layer, a rule of that layer on the file or on a
//! directory above it grants it. The way up crosses mounts, and what a mount covers does not count. A file may go to another directory only
//! where nobody gains a right by that.

use crate::dentry::Dentry;
use crate::notify::{self, Key};
use abi::{Result, errno::*};
use alloc::sync::Arc;
use alloc::vec::Vec;
use api_alloc::Reserve;
use api_fs::{FileType, Inode};
use api_lock::SpinLock;
use core::sync::atomic::{AtomicU64, Ordering};
use ordered::Map;

/// Rights on files and in directories, as LANDLOCK_ACCESS_FS_…
pub type Rights = u16;

pub const EXECUTE: Rights = 1 << 0;
pub const WRITE_FILE: Rights = 1 << 1;
pub const READ_FILE: Rights = 1 << 2;
pub const READ_DIR: Rights = 1 << 3;
pub const REMOVE_DIR: Rights = 1 << 4;
pub const REMOVE_FILE: Rights = 1 << 5;
pub const MAKE_CHAR: Rights = 1 << 6;
pub const MAKE_DIR: Rights = 1 << 7;
pub const MAKE_REG: Rights = 1 << 8;
pub const MAKE_SOCK: Rights = 1 << 9;
pub const MAKE_FIFO: Rights = 1 << 10;
pub const MAKE_BLOCK: Rights = 1 << 11;
pub const MAKE_SYM: Rights = 1 << 12;
pub const REFER: Rights = 1 << 13;
const RIGHTS: usize = 14;
pub const ALL: Rights = (1 << RIGHTS) - 1;
/// Those that files have; the others make sense in directories alone.
pub const OF_FILES: Rights = EXECUTE | WRITE_FILE | READ_FILE;
/// Nobody with a domain has it, unless a rule grants it: files could be linked anywhere before there was such a right.
const DENIED_AT_FIRST: Rights = REFER;

/// Layers of a domain (`LANDLOCK_MAX_NUM_LAYERS`).
pub const MAX_LAYERS: usize = 16;
/// Rules of a set, and of a domain. (Linux' bound is 2^32.) Each keeps an inode.
const MAX_RULES: usize = 65_536;

/// Of each right, the layers that do not grant it so far.
type Missing = [u16; RIGHTS];

/// What open(2) with these flags needs of a file.
pub(crate) fn to_open(kind: FileType, flags: u32) -> Rights {
    match flags & 3 {
        0 if kind == FileType::Directory => READ_DIR,
        0 => READ_FILE,
        1 => WRITE_FILE,
        2 => READ_FILE | WRITE_FILE,
        _ => 0,
    }
}

/// What a name for such a file takes in its directory. The device 0, 0 is no device: overlay file systems take it for a deleted name, so
/// it is made as a regular file is.
pub(crate) fn to_make(kind: FileType, rdev: u64) -> Rights {
    match kind {
        FileType::CharDevice if rdev == 0 => MAKE_REG,
        FileType::Directory => MAKE_DIR,
        FileType::Symlink => MAKE_SYM,
        FileType::CharDevice => MAKE_CHAR,
        FileType::BlockDevice => MAKE_BLOCK,
        FileType::Fifo => MAKE_FIFO,
        FileType::Socket => MAKE_SOCK,
        _ => MAKE_REG,
    }
}

fn to_name(dentry: &Arc<Dentry>) -> Rights {
    let rdev = match dentry.kind() {
        FileType::CharDevice => dentry.inode().stat().map_or(0, |stat| stat.rdev),
        _ => 0,
    };
    to_make(dentry.kind(), rdev)
}

fn to_remove(kind: FileType) -> Rights {
    if kind == FileType::Directory { REMOVE_DIR } else { REMOVE_FILE }
}

struct Granted {
    /// Its number is not another file's as long as it is kept.
    inode: Arc<dyn Inode>,
    rights: Rights,
}

/// Rules that a program puts together before it submits to them.
pub struct Ruleset {
    handled: Rights,
    rules: SpinLock<Map<Key, Granted>>,
}

impl Ruleset {
    pub fn new(handled: Rights) -> Ruleset {
        Ruleset { handled, rules: SpinLock::new(Map::new()) }
    }

    pub fn handles(&self, rights: Rights) -> bool {
        rights & !self.handled == 0
    }

    /// Grants rights on a file, or on a directory and what is below it. `EINVAL` for rights that the set does not handle, or that such a
    /// file cannot have.
    pub fn add(&self, place: &Arc<Dentry>, rights: Rights) -> Result<()> {
        if rights & !self.handled != 0 || (!place.is_directory() && rights & !OF_FILES != 0) {
            return Err(EINVAL);
        }
        // What the set does not handle, it does not take away.
        let rights = rights | ALL & !(self.handled | DENIED_AT_FIRST);
        let key = notify::key(place.inode())?;
        let mut rules = self.rules.lock();
        if let Some(there) = rules.get_mut(&key) {
            there.rights |= rights;
            return Ok(());
        }
        if rules.len() == MAX_RULES {
            return Err(E2BIG);
        }
        let granted = Granted { inode: place.inode().clone(), rights };
        rules.insert_fallibly(key, granted).map(|_| ()).map_err(|_| ENOMEM)
    }
}

/// What layers grant on one file: layers by their number, from the oldest on.
struct Rule {
    inode: Arc<dyn Inode>,
    layers: Vec<(u8, Rights)>,
}

/// What a thread has submitted to, layer by layer.
pub struct Domain {
    /// What each layer handles.
    layers: Vec<Rights>,
    rules: Map<Key, Rule>,
    /// Numbers of the domains that it lies in, and its own at the end.
    numbers: Vec<u64>,
}

impl core::fmt::Debug for Domain {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "Domain({:?})", self.numbers)
    }
}

impl PartialEq for Domain {
    fn eq(&self, other: &Domain) -> bool {
        self.numbers == other.numbers
    }
}

impl Eq for Domain {}

impl Domain {
    /// A domain within another one, with the set as its last layer. `E2BIG` when there are too many.
    pub fn within(outer: Option<&Arc<Domain>>, set: &Ruleset) -> Result<Arc<Domain>> {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let depth = outer.map_or(0, |outer| outer.layers.len());
        if depth == MAX_LAYERS {
            return Err(E2BIG);
        }
        if api_alloc::is_low() {
            return Err(ENOMEM);
        }
        let mut new = Domain { layers: Vec::new(), rules: Map::new(), numbers: Vec::new() };
        new.layers.reserve_exact_fallibly(depth + 1).map_err(|_| ENOMEM)?;
        new.numbers.reserve_exact_fallibly(depth + 1).map_err(|_| ENOMEM)?;
        if let Some(outer) = outer {
            new.layers.extend_from_slice(&outer.layers);
            new.numbers.extend_from_slice(&outer.numbers);
            for (key, rule) in outer.rules.iter() {
                rule.layers.iter().try_for_each(|layer| new.grant(*key, &rule.inode, *layer))?;
            }
        }
        new.layers.push(set.handled);
        new.numbers.push(NEXT.fetch_add(1, Ordering::Relaxed));
        for (key, granted) in set.rules.lock().iter() {
            new.grant(*key, &granted.inode, (depth as u8, granted.rights))?;
        }
        Ok(Arc::new(new))
    }

    fn grant(&mut self, key: Key, inode: &Arc<dyn Inode>, layer: (u8, Rights)) -> Result<()> {
        if !self.rules.contains_key(&key) {
            if self.rules.len() == MAX_RULES {
                return Err(E2BIG);
            }
            let rule = Rule { inode: inode.clone(), layers: Vec::new() };
            self.rules.insert_fallibly(key, rule).map_err(|_| ENOMEM)?;
        }
        let rule = self.rules.get_mut(&key).ok_or(ENOMEM)?;
        rule.layers.reserve_exact_fallibly(1).map_err(|_| ENOMEM)?;
        rule.layers.push(layer);
        Ok(())
    }

    /// It is the other one, or lies in it: whoever is in the other one may look into a process in this one.
    pub fn is_within(&self, other: &Domain) -> bool {
        other.numbers.last().is_some_and(|number| self.numbers.contains(number))
    }

    fn handles(&self, layer: usize) -> Rights {
        self.layers[layer] | DENIED_AT_FIRST
    }

    /// All that some layer handles.
    fn handled(&self) -> Rights {
        (0..self.layers.len()).fold(0, |all, layer| all | self.handles(layer))
    }

    /// The layers that have to grant each of the rights.
    fn needed(&self, rights: Rights) -> Missing {
        let mut missing = [0; RIGHTS];
        for layer in 0..self.layers.len() {
            for right in bits(rights & self.handles(layer)) {
                missing[right] |= 1 << layer;
            }
        }
        missing
    }

    fn rule(&self, dentry: &Arc<Dentry>) -> Option<&Rule> {
        if self.rules.is_empty() {
            return None;
        }
        self.rules.get(&notify::key(dentry.inode()).ok()?)
    }

    /// `EACCES` unless all of the rights are had on the file.
    pub fn check(&self, dentry: &Arc<Dentry>, rights: Rights) -> Result<()> {
        let mut missing = self.needed(rights);
        if bits(rights).all(|right| missing[right] == 0) {
            return Ok(());
        }
        let mut at = dentry.clone();
        loop {
            if grants(self.rule(&at), rights, &mut missing) {
                return Ok(());
            }
            match above(&at) {
                Above::Directory(directory) => at = directory,
                Above::Top => return Err(EACCES),
                Above::NoTree => return Ok(()),
            }
        }
    }

    /// Whether what `moving` names may have a name in the directory `to`, by link(2) or rename(2): `EACCES` where a right is missing,
    /// `EXDEV` where a file would come to have rights by that, so that programs copy it.
    pub(crate) fn check_refer(&self, reparenting: &Reparenting<'_>) -> Result<()> {
        let Reparenting { moving, from, to, replaced, removes, exchanges, leaves_whiteout } = *reparenting;
        let removal = |dentry: &Arc<Dentry>| if removes { to_remove(dentry.kind()) } else { 0 };
        let exchanged = replaced.filter(|_| exchanges);
        let mut of_from = exchanged.map_or(0, to_name) | removal(moving);
        if leaves_whiteout {
            of_from |= MAKE_REG;
        }
        let mut of_to = to_name(moving) | replaced.map_or(0, removal);
        if Arc::ptr_eq(from, to) {
            return self.check(to, of_from | of_to);
        }
        of_from |= REFER;
        of_to |= REFER;
        let (is_free, mut missing_from) = self.collect(from);
        let (is_free_too, mut missing_to) = self.collect(to);
        if is_free && is_free_too {
            return Ok(());
        }
        let missing_of = |dentry: &Arc<Dentry>| {
            let mut missing = self.needed(ALL);
            grants(self.rule(dentry), ALL, &mut missing);
            (missing, dentry.is_directory())
        };
        let (moved, there) = (missing_of(moving), exchanged.map(missing_of));
        let mut at = root_of_mount(to);
        let (mut asked_from, mut asked_to) = (self.handled(), self.handled());
        let mut compares = true;
        let is_allowed = loop {
            let gains_nothing = gains_none(&missing_from, &moved, &missing_to)
                && there.as_ref().is_none_or(|there| gains_none(&missing_to, there, &missing_from));
            if compares && gains_nothing {
                let (from_has, to_has) = (narrow(&mut missing_from, of_from), narrow(&mut missing_to, of_to));
                if from_has && to_has {
                    break true;
                }
                compares = false;
                (asked_from, asked_to) = (of_from, of_to);
            }
            let rule = self.rule(&at);
            let from_has = grants(rule, asked_from, &mut missing_from);
            let to_has = grants(rule, asked_to, &mut missing_to);
            if from_has && to_has {
                break true;
            }
            match above(&at) {
                Above::Directory(directory) => at = directory,
                Above::Top => break false,
                Above::NoTree => break true,
            }
        };
        let lacks =
            |missing: &Missing, rights: Rights| bits(rights & !REFER).any(|right| missing[right] != 0);
        match is_allowed {
            true => Ok(()),
            false if lacks(&missing_from, of_from) || lacks(&missing_to, of_to) => Err(EACCES),
            false => Err(EXDEV),
        }
    }

    /// What is missing in a directory by the rules up to the root of its mount; and whether nothing is.
    fn collect(&self, directory: &Arc<Dentry>) -> (bool, Missing) {
        let mut missing = self.needed(ALL);
        let mut at = directory.clone();
        loop {
            if grants(self.rule(&at), self.handled(), &mut missing) {
                return (true, missing);
            }
            match at.parent() {
                Some(parent) => at = parent,
                None => return (false, missing),
            }
        }
    }
}

/// A file that is to have a name in another directory.
#[derive(Clone, Copy)]
pub(crate) struct Reparenting<'a> {
    pub moving: &'a Arc<Dentry>,
    pub from: &'a Arc<Dentry>,
    pub to: &'a Arc<Dentry>,
    /// What has the name there.
    pub replaced: Option<&'a Arc<Dentry>>,
    /// The old name goes (rename(2)).
    pub removes: bool,
    /// The two change places (RENAME_EXCHANGE).
    pub exchanges: bool,
    /// Something that stands for a deleted name comes to where it was (RENAME_WHITEOUT).
    pub leaves_whiteout: bool,
}

fn bits(rights: Rights) -> impl Iterator<Item = usize> {
    (0..RIGHTS).filter(move |right| rights >> right & 1 != 0)
}

/// Takes off what the rule grants of the rights; true when nothing is missing.
fn grants(rule: Option<&Rule>, rights: Rights, missing: &mut Missing) -> bool {
    if rights == 0 {
        return true;
    }
    let Some(rule) = rule else { return false };
    for (layer, granted) in &rule.layers {
        for right in bits(rights & granted) {
            missing[right] &= !(1 << layer);
        }
    }
    missing.iter().all(|layers| *layers == 0)
}

/// Forgets what is missing of other rights; true when nothing is of these.
fn narrow(missing: &mut Missing, rights: Rights) -> bool {
    bits(ALL & !rights).for_each(|right| missing[right] = 0);
    missing.iter().all(|layers| *layers == 0)
}

/// What is denied where the file is, and not by a rule of its own, is denied where it goes.
fn gains_none(source: &Missing, (of_file, is_directory): &(Missing, bool), target: &Missing) -> bool {
    let concerned = if *is_directory { ALL } else { OF_FILES };
    bits(concerned).all(|right| source[right] & of_file[right] & !target[right] == 0)
}

enum Above {
    Directory(Arc<Dentry>),
    /// There is nothing above the root.
    Top,
    /// What is in no tree: a pipe, a file of memory.
    NoTree,
}

/// The directory above, across mounts; the directory that a mount is on counts for nothing.
fn above(dentry: &Arc<Dentry>) -> Above {
    let mut at = dentry.clone();
    loop {
        if let Some(parent) = at.parent() {
            return Above::Directory(parent);
        }
        match at.mount().point() {
            // A pipe, or a file that nothing but a descriptor leads to.
            _ if !at.name().is_empty() => return Above::NoTree,
            // What a file handle led to has no name that is known: it is below nothing.
            Some(point) if !at.is_unlinked() => at = point,
            _ => return Above::Top,
        }
    }
}

/// Whether rules can be about it: not what is in no tree.
pub fn is_in_tree(dentry: &Arc<Dentry>) -> bool {
    let mut at = dentry.clone();
    loop {
        match above(&at) {
            Above::Directory(directory) => at = directory,
            Above::Top => return true,
            Above::NoTree => return false,
        }
    }
}

fn root_of_mount(dentry: &Arc<Dentry>) -> Arc<Dentry> {
    let mut at = dentry.clone();
    while let Some(parent) = at.parent() {
        at = parent;
    }
    at
}
