// SPDX-License-Identifier: Apache-2.0 OR MIT
//! /proc/PID/fd and fdinfo.

use super::text;
use abi::{Result, errno::*};
use alloc::format;
use alloc::sync::Arc;
use alloc::vec::Vec;
use api_fs::{FileType, Magic};
use calls_process::pidfd::PidFd;
use descriptors::Description;
use epoll::Epoll;
use eventfd::EventFd;
use procfs::{Changing, Entry, Key, Output, Owner};
use task::files;

const O_ACCMODE: u32 = 3;
const O_RDONLY: u32 = 0;
const O_WRONLY: u32 = 1;
const O_RDWR: u32 = 2;
const O_PATH: u32 = 0o10000000;
const O_CLOEXEC: u32 = 0o2000000;

fn number(name: &str) -> Result<i32> {
    procfs::number(name).and_then(|number| i32::try_from(number).map_err(|_| ENOENT))
}

/// The key of a descriptor: its process above, its number below.
fn key_of(process: Key, fd: i32) -> Key {
    process << 32 | Key::from(fd as u32)
}

/// The descriptors of the thread; `ENOENT` behind its end.
fn table<T>(key: Key, see: impl FnOnce(&descriptors::Descriptors) -> T) -> Result<T> {
    let task = super::process::thread(key >> 32).map_err(|_| ENOENT)?;
    Ok(see(&task.files().descriptors))
}

/// The same, for those who may trace it: `EACCES` for others.
fn open_to_tracers(fd: Key) -> Result<Arc<Description>> {
    super::process::traceable(fd >> 32)?;
    open(fd)
}

fn open(key: Key) -> Result<Arc<Description>> {
    table(key, |descriptors| descriptors.get_any(key as i32))?.map_err(|_| ENOENT)
}

fn numbers(of: Key, from: u32, most: usize) -> Vec<u32> {
    let seen = table(key_of(of, 0), |descriptors| {
        let first = descriptors.next_open(from);
        let open = core::iter::successors(first, |fd| descriptors.next_open(*fd as u32 + 1));
        open.take(most).map(|fd| fd as u32).collect()
    });
    seen.unwrap_or_default()
}

/// What readlink shows for a descriptor: its path, or its kind and number.
fn shown(description: &Description) -> Result<Vec<u8>> {
    if let Some(place) = description.place().filter(|place| !place.is_open_file()) {
        return Ok(place.path_seen_from(&files::current().root()));
    }
    let stat = description.file().stat()?;
    text(match stat.kind {
        FileType::Fifo => format!("pipe:[{}]", stat.inode),
        FileType::Socket => format!("socket:[{}]", stat.inode),
        _ => format!("anon_inode:{}", description.file().anonymous_name()),
    })
}

/// Permissions of a descriptor's link (proc_pid_fd(5)): the owner's, for what it was opened for.
fn permissions(fd: Key) -> Result<u32> {
    let flags = open(fd)?.flags();
    Ok(match flags & O_ACCMODE {
        _ if flags & O_PATH != 0 => 0,
        O_RDONLY => 0o500,
        O_WRONLY => 0o300,
        O_RDWR => 0o700,
        _ => 0,
    })
}

/// Where the link of a descriptor leads.
fn lead(fd: Key) -> Result<Magic> {
    let description = open_to_tracers(fd)?;
    Ok(match description.place() {
        Some(place) => Magic::Place(place.clone()),
        None => Magic::File(description.file().clone()),
    })
}

pub struct Descriptors;

impl Changing for Descriptors {
    fn numbers(&self, key: Key, from: u32, most: usize) -> Vec<u32> {
        numbers(key, from, most)
    }

    fn count(&self, key: Key) -> u64 {
        table(key_of(key, 0), |descriptors| descriptors.count() as u64).unwrap_or_default()
    }

    fn entry(&self, key: Key, name: &str) -> Result<(Entry, Key)> {
        let fd = key_of(key, number(name)?);
        open(fd)?;
        Ok((Entry::Descriptor { text: |fd| shown(&*open_to_tracers(fd)?), lead, permissions }, fd))
    }

    fn kind(&self) -> FileType {
        FileType::Symlink
    }

    fn permissions(&self) -> u32 {
        0o500
    }

    /// The threads of a process find its descriptors as whoever they run, and where the process may not be dumped.
    fn admits_caller(&self, key: Key) -> bool {
        super::process::is_own(key)
    }

    fn owner(&self, key: Key) -> Option<Owner> {
        super::process::owner(key >> 32)
    }
}

pub struct Infos;

impl Changing for Infos {
    fn check(&self, key: Key) -> Result<()> {
        super::process::traceable(key).map(|_| ())
    }

    fn numbers(&self, key: Key, from: u32, most: usize) -> Vec<u32> {
        numbers(key, from, most)
    }

    fn entry(&self, key: Key, name: &str) -> Result<(Entry, Key)> {
        let fd = key_of(key, number(name)?);
        open(fd)?;
        Ok((Entry::Lines(info), fd))
    }

    fn kind(&self) -> FileType {
        FileType::Regular
    }

    fn owner(&self, key: Key) -> Option<Owner> {
        super::process::owner(key >> 32)
    }
}

fn info(fd: Key, out: &mut Output) -> Result<()> {
    let description = open_to_tracers(fd)?;
    let on_exec = table(fd, |descriptors| descriptors.close_on_exec(fd as i32))?.unwrap_or(false);
    let flags = description.flags() | if on_exec { O_CLOEXEC } else { 0 };
    let mount = description.place().map_or(0, |place| place.mount().id());
    let inode = description.file().stat()?.inode;
    let position = description.position();
    out.print(format_args!("pos:\t{position}\nflags:\t0{flags:o}\nmnt_id:\t{mount}\nino:\t{inode}\n"))?;
    if let Some(counter) = description.file().as_any().downcast_ref::<EventFd>() {
        out.print(format_args!("eventfd-count: {:16x}\n", counter.count()))?;
    }
    if let Some(pidfd) = description.file().as_any().downcast_ref::<PidFd>() {
        let numbers = pidfd.numbers(&super::process::viewer(fd >> 32));
        out.print(format_args!("Pid:\t{}\nNSpid:", numbers.first().copied().unwrap_or(0)))?;
        numbers.iter().try_for_each(|number| out.print(format_args!("\t{number}")))?;
        out.print(format_args!("\n"))?;
    }
    let mut watched = Ok(());
    if let Some(epoll) = description.file().as_any().downcast_ref::<Epoll>() {
        epoll.watched(|fd, events, data| {
            if watched.is_ok() {
                watched = out.print(format_args!("tfd: {fd:8} events: {events:8x} data: {data:16x}\n"));
            }
        });
    }
    watched?;
    description.file().show_info(out).map_err(|_| ENOMEM)
}
