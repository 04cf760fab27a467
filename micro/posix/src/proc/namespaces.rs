// SPDX-License-Identifier: Apache-2.0 OR MIT
//! /proc/PID/ns: the namespaces that a process is in (namespaces(7)). There are several mount and UTS namespaces; of every other
//! kind there is one, which all processes are in. The first ones' numbers are those of Linux'.

use super::process::traceable;
use super::text;
use crate::calls::namespaces::Entered;
use abi::{Result, errno::*};
use alloc::format;
use alloc::sync::Arc;
use alloc::vec::Vec;
use api_fs::{File, FileType, Magic, Stat};
use core::any::Any;
use procfs::{Entry, Key, Row};

const NS_GET_NSTYPE: u32 = 0xb703;
/// Linux numbers those that are made later from here on.
const FIRST_NUMBER: u64 = 0xf000_0000;

/// Name and inode number (Linux' PROC_CGROUP_INIT_INO and its like), and the CLONE_NEW flag.
struct Kind(&'static str, u64, u32);

const CGROUP: Kind = Kind("cgroup", 0xefff_fffb, 0x0200_0000);
const IPC: Kind = Kind("ipc", 0xefff_ffff, 0x0800_0000);
const MNT: Kind = Kind("mnt", 0xefff_fff8, 0x0002_0000);
const NET: Kind = Kind("net", 0xefff_fff9, 0x4000_0000);
const PID: Kind = Kind("pid", 0xefff_fffc, 0x2000_0000);
const TIME: Kind = Kind("time", 0xefff_fffa, 0x80);
const USER: Kind = Kind("user", 0xefff_fffd, 0x1000_0000);
const UTS: Kind = Kind("uts", 0xefff_fffe, 0x0400_0000);

pub const ROWS: &[Row] = &[
    ("cgroup", link(|key| shown(key, &CGROUP), |key| lead(key, &CGROUP))),
    ("ipc", link(|key| shown(key, &IPC), |key| lead(key, &IPC))),
    ("mnt", link(shown_mounts, lead_mounts)),
    ("net", link(|key| shown(key, &NET), |key| lead(key, &NET))),
    ("pid", link(|key| shown(key, &PID), |key| lead(key, &PID))),
    ("pid_for_children", link(|key| shown(key, &PID), |key| lead(key, &PID))),
    ("time", link(|key| shown(key, &TIME), |key| lead(key, &TIME))),
    ("time_for_children", link(|key| shown(key, &TIME), |key| lead(key, &TIME))),
    ("user", link(|key| shown(key, &USER), |key| lead(key, &USER))),
    ("uts", link(shown_uts, lead_uts)),
];

const fn link(text: procfs::Text, lead: procfs::Lead) -> Entry {
    Entry::Magic { text, lead }
}

/// `ENOENT` for a process that has ended, which is in none any more.
fn check(key: Key) -> Result<()> {
    if traceable(key)?.family.is_zombie() { Err(ENOENT) } else { Ok(()) }
}

fn shown(key: Key, kind: &Kind) -> Result<Vec<u8>> {
    check(key)?;
    text(format!("{}:[{}]", kind.0, kind.1))
}

fn lead(key: Key, kind: &'static Kind) -> Result<Magic> {
    check(key)?;
    Ok(Magic::File(Arc::new(NamespaceFile { kind, of: Entered::default() })))
}

/// The inode number of a namespace that is counted as `number` among those of its kind. No two of any kind have the same.
fn inode(kind: &Kind, number: u64) -> u64 {
    match number {
        0 => kind.1,
        number => FIRST_NUMBER + 2 * number + u64::from(kind.2 == UTS.2),
    }
}

fn shown_mounts(key: Key) -> Result<Vec<u8>> {
    check(key)?;
    text(format!("mnt:[{}]", inode(&MNT, traceable(key)?.files.namespace().number())))
}

fn lead_mounts(key: Key) -> Result<Magic> {
    check(key)?;
    let of = Entered { mounts: Some(traceable(key)?.files.namespace()), uts: None };
    Ok(Magic::File(Arc::new(NamespaceFile { kind: &MNT, of })))
}

fn shown_uts(key: Key) -> Result<Vec<u8>> {
    check(key)?;
    text(format!("uts:[{}]", inode(&UTS, traceable(key)?.uts().number)))
}

fn lead_uts(key: Key) -> Result<Magic> {
    check(key)?;
    let of = Entered { mounts: None, uts: Some(traceable(key)?.uts()) };
    Ok(Magic::File(Arc::new(NamespaceFile { kind: &UTS, of })))
}

/// A namespace that a descriptor keeps.
pub struct NamespaceFile {
    kind: &'static Kind,
    pub of: Entered,
}

impl NamespaceFile {
    /// The CLONE_NEW flag of its kind.
    pub fn flag(&self) -> u64 {
        u64::from(self.kind.2)
    }
}

impl File for NamespaceFile {
    fn stat(&self) -> Result<Stat> {
        let mut stat = Stat::new(FileType::Regular, 0o444);
        let mounts = self.of.mounts.as_ref().map(|mounts| mounts.number());
        let number = mounts.or(self.of.uts.as_ref().map(|uts| uts.number));
        stat.inode = inode(self.kind, number.unwrap_or(0));
        Ok(stat)
    }

    fn ioctl(&self, command: u32, _: u64) -> Result<usize> {
        if command == NS_GET_NSTYPE { Ok(self.kind.2 as usize) } else { Err(ENOTTY) }
    }

    fn open_anew(self: Arc<Self>, flags: u32) -> Result<Arc<dyn File>> {
        // It cannot be opened for writing.
        let again = || NamespaceFile { kind: self.kind, of: self.of.clone() };
        if flags & 3 != 0 { Err(EPERM) } else { Ok(Arc::new(again())) }
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}
