// SPDX-License-Identifier: Apache-2.0 OR MIT
//! /proc/PID/map_files (proc_pid_map_files(5)): for each mapping of a file a link with the mapping's range for a name.

use super::process::traceable;
use abi::{PAGE_SIZE, Result, errno::*};
use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use api_fs::{FileType, Magic};
use mem::{MappedFile, Space};
use procfs::{Changing, Entry, Key, Owner};
use task::files;
use task::identity::capabilities::{CAP_CHECKPOINT_RESTORE, CAP_SYS_ADMIN};
use vfs::Dentry;

const PAGE: u64 = PAGE_SIZE as u64;
/// Bits of the number of a page of a program's.
const PAGE_BITS: u32 = 35;

pub struct MapFiles;

/// The key of a mapping: its process above, the number of its first page below. Of the time at which the process was made 61 bits are
/// left, which are nanoseconds of 73 years.
fn key_of(process: Key, start: u64) -> Key {
    process << PAGE_BITS | Key::from(start / PAGE)
}

fn process_of(key: Key) -> Key {
    key >> PAGE_BITS
}

/// Its memory, of a process that the caller may trace; `ENOENT` behind its end.
fn space(process: Key) -> Result<Arc<Space>> {
    traceable(process).map_err(|e| if e == ESRCH { ENOENT } else { e })?.space().ok_or(ENOENT)
}

/// A hexadecimal number as the kernel writes it: without a sign, a prefix or zeros in front.
fn address(text: &str) -> Result<u64> {
    let is_written_so = text == "0" || !text.starts_with(['0', '+']);
    u64::from_str_radix(text, 16).ok().filter(|_| is_written_so).ok_or(ENOENT)
}

fn range(name: &str) -> Result<(u64, u64)> {
    let (start, end) = name.split_once('-').ok_or(ENOENT)?;
    Ok((address(start)?, address(end)?))
}

/// The file of the mapping that has the key.
fn file(key: Key) -> Result<Arc<MappedFile>> {
    let start = (key & ((1 << PAGE_BITS) - 1)) as u64 * PAGE;
    let space = space(process_of(key))?;
    let (_, end) = space.file_ranges(start, 1)?.into_iter().find(|(from, _)| *from == start).ok_or(ENOENT)?;
    space.file_at(start, end).ok_or(ENOENT)
}

fn place(file: &MappedFile) -> Option<Arc<Dentry>> {
    file.place.clone()?.downcast().ok()
}

/// The file's path now; memory that has no place has the name that maps shows.
fn shown(key: Key) -> Result<Vec<u8>> {
    let file = file(key)?;
    Ok(match place(&file).filter(|place| !place.is_open_file()) {
        Some(place) => place.path_seen_from(&files::current().root()),
        None => file.path.clone(),
    })
}

/// Where a link leads. It could lead past directories that the caller may not search, so it is for those alone who may see all
/// (Linux' proc_map_files_get_link): `EPERM`. `ENXIO` for memory that is no file of a tree.
fn lead(key: Key) -> Result<Magic> {
    let who = task::current().credentials().lock().clone();
    if !who.can(CAP_SYS_ADMIN) && !who.can(CAP_CHECKPOINT_RESTORE) {
        return Err(EPERM);
    }
    Ok(Magic::Place(place(&*file(key)?).ok_or(ENXIO)?))
}

/// The link's permissions are what the file was opened for.
fn permissions(key: Key) -> Result<u32> {
    Ok(if file(key)?.is_writable { 0o600 } else { 0o400 })
}

impl Changing for MapFiles {
    fn check(&self, key: Key) -> Result<()> {
        traceable(key).map(|_| ())
    }

    /// As descriptors.
    fn admits_caller(&self, key: Key) -> bool {
        super::process::is_own(key)
    }

    fn numbers(&self, _: Key, _: u32, _: usize) -> Vec<u32> {
        Vec::new()
    }

    /// A mapping's place in the directory is the number of its first page.
    fn names(&self, key: Key, from: u64, most: usize) -> Vec<(u64, String)> {
        let ranges = space(key).and_then(|space| space.file_ranges(from.saturating_mul(PAGE), most));
        let named = |(start, end)| (start / PAGE, format!("{start:x}-{end:x}"));
        ranges.unwrap_or_default().into_iter().map(named).collect()
    }

    fn entry(&self, key: Key, name: &str) -> Result<(Entry, Key)> {
        let (start, end) = range(name)?;
        space(key)?.file_at(start, end).ok_or(ENOENT)?;
        Ok((Entry::Descriptor { text: shown, lead, permissions }, key_of(key, start)))
    }

    fn kind(&self) -> FileType {
        FileType::Symlink
    }

    fn permissions(&self) -> u32 {
        0o500
    }

    fn owner(&self, key: Key) -> Option<Owner> {
        super::process::owner(process_of(key))
    }
}
