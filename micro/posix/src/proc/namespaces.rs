// SPDX-License-Identifier: Apache-2.0 OR MIT
//! /proc/PID/ns: the namespaces of the machine, one of each kind, which all processes are in (namespaces(7)). Their numbers are
//! those of Linux' first ones; they can be compared and opened, and none can be entered (setns(2) is refused).

use super::process::traceable;
use super::text;
use abi::{Result, errno::*};
use alloc::format;
use alloc::sync::Arc;
use alloc::vec::Vec;
use api_fs::{File, FileType, Magic, Stat};
use core::any::Any;
use procfs::{Entry, Key, Row};

const NS_GET_NSTYPE: u32 = 0xb703;

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
    ("mnt", link(|key| shown(key, &MNT), |key| lead(key, &MNT))),
    ("net", link(|key| shown(key, &NET), |key| lead(key, &NET))),
    ("pid", link(|key| shown(key, &PID), |key| lead(key, &PID))),
    ("pid_for_children", link(|key| shown(key, &PID), |key| lead(key, &PID))),
    ("time", link(|key| shown(key, &TIME), |key| lead(key, &TIME))),
    ("time_for_children", link(|key| shown(key, &TIME), |key| lead(key, &TIME))),
    ("user", link(|key| shown(key, &USER), |key| lead(key, &USER))),
    ("uts", link(|key| shown(key, &UTS), |key| lead(key, &UTS))),
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
    Ok(Magic::File(Arc::new(Namespace(kind))))
}

struct Namespace(&'static Kind);

impl File for Namespace {
    fn stat(&self) -> Result<Stat> {
        let mut stat = Stat::new(FileType::Regular, 0o444);
        stat.inode = self.0.1;
        Ok(stat)
    }

    fn ioctl(&self, command: u32, _: u64) -> Result<usize> {
        if command == NS_GET_NSTYPE { Ok(self.0.2 as usize) } else { Err(ENOTTY) }
    }

    fn open_anew(self: Arc<Self>, flags: u32) -> Result<Arc<dyn File>> {
        // It cannot be opened for writing.
        if flags & 3 != 0 { Err(EPERM) } else { Ok(Arc::new(Namespace(self.0))) }
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}
