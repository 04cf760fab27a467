// SPDX-License-Identifier: Apache-2.0 OR MIT
//! /proc/PID/ns and /proc/PID/task/TID/ns: the namespaces that a thread is in (namespaces(7)).

use super::process::{thread, traceable};
use super::text;
use abi::{Result, errno::*};
use alloc::sync::Arc;
use alloc::vec::Vec;
use api_fs::Magic;
use procfs::{Entry, Key, Row};
use task::nsfs::{
    CGROUP, IPC, Kind, MNT, NET, NamespaceFile, PID, PID_FOR_CHILDREN, TIME, TIME_FOR_CHILDREN, USER, UTS,
};

pub const ROWS: &[Row] = &[
    ("cgroup", link(|key| shown(key, &CGROUP), |key| lead(key, &CGROUP))),
    ("ipc", link(|key| shown(key, &IPC), |key| lead(key, &IPC))),
    ("mnt", link(|key| shown(key, &MNT), |key| lead(key, &MNT))),
    ("net", link(|key| shown(key, &NET), |key| lead(key, &NET))),
    ("pid", link(|key| shown(key, &PID), |key| lead(key, &PID))),
    ("pid_for_children", link(|key| shown(key, &PID_FOR_CHILDREN), |key| lead(key, &PID_FOR_CHILDREN))),
    ("time", link(|key| shown(key, &TIME), |key| lead(key, &TIME))),
    ("time_for_children", link(|key| shown(key, &TIME_FOR_CHILDREN), |key| lead(key, &TIME_FOR_CHILDREN))),
    ("user", link(|key| shown(key, &USER), |key| lead(key, &USER))),
    ("uts", link(|key| shown(key, &UTS), |key| lead(key, &UTS))),
];

const fn link(text: procfs::Text, lead: procfs::Lead) -> Entry {
    Entry::Magic { text, lead }
}

/// `ENOENT` for a process that has ended, which is in none any more.
fn file(key: Key, kind: &'static Kind) -> Result<NamespaceFile> {
    traceable(key)?;
    let task = thread(key).map_err(|_| ENOENT)?;
    NamespaceFile::of_thread(&task, kind)
}

fn shown(key: Key, kind: &'static Kind) -> Result<Vec<u8>> {
    let file = file(key, kind)?;
    text(file.shown())
}

fn lead(key: Key, kind: &'static Kind) -> Result<Magic> {
    Ok(Magic::File(Arc::new(file(key, kind)?)))
}
