// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A process' memory as others see it: /proc/PID/mem by its addresses (proc_pid_mem(5)), pagemap by its pages, maps and smaps by
//! its mappings.

use super::process::{of, traceable};
use super::text;
use abi::{PAGE_SIZE, Result, errno::*};
use alloc::format;
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use api_alloc::Reserve;
use api_fs::{File, Inode, Sink, Source, Stat};
use core::any::Any;
use mem::{Referenced, Residence, Space, USER_END};
use procfs::{Key, Output};
use task::identity::capabilities::CAP_SYS_ADMIN;
use task::process::Process;

/// The memory that the process had when the file was opened: another program's is not read through it, and memory that the
/// process has left is not kept.
struct Memory {
    space: Weak<Space>,
    inode: Arc<dyn Inode>,
}

/// Opens the memory of a process that the caller may trace.
pub fn open(process: &Process, inode: &Arc<dyn Inode>) -> Result<Arc<dyn File>> {
    let space = process.space().map_or_else(Weak::new, |space| Arc::downgrade(&space));
    Ok(Arc::new(Memory { space, inode: inode.clone() }))
}

fn page() -> Result<Vec<u8>> {
    let mut page = Vec::new();
    page.reserve_exact_fallibly(PAGE_SIZE).map_err(|_| ENOMEM)?;
    page.resize(PAGE_SIZE, 0);
    Ok(page)
}

/// Bytes from `address` to the end of its page, `most` at most.
fn piece(address: u64, most: usize) -> usize {
    (PAGE_SIZE - address as usize % PAGE_SIZE).min(most)
}

impl File for Memory {
    fn read(&self, offset: u64, to: &mut Sink<'_>) -> Result<usize> {
        let Some(space) = self.space.upgrade() else { return Ok(0) };
        let mut page = page()?;
        let mut done = 0;
        while to.remaining() > 0 {
            let address = offset.checked_add(done as u64).ok_or(EIO)?;
            let n = piece(address, to.remaining());
            let copied = space.peek(address, &mut page[..n]).and_then(|()| to.put(&page[..n]));
            match copied {
                Ok(copied) => done += copied,
                Err(_) if done > 0 => break,
                Err(e) => return Err(e),
            }
        }
        Ok(done)
    }

    fn write(&self, offset: u64, from: &mut Source<'_>) -> Result<usize> {
        let Some(space) = self.space.upgrade() else { return Ok(0) };
        let mut page = page()?;
        let mut done = 0;
        while from.remaining() > 0 {
            let address = offset.checked_add(done as u64).ok_or(EIO)?;
            let n = piece(address, from.remaining());
            let taken = from.take(&mut page[..n])?;
            match space.poke(address, &page[..taken]) {
                Ok(()) => done += taken,
                Err(_) if done > 0 => break,
                Err(e) => return Err(e),
            }
        }
        Ok(done)
    }

    fn is_seekable(&self) -> bool {
        true
    }

    fn may_be_direct(&self) -> bool {
        false
    }

    fn seek_data(&self, _: u64, _: bool) -> Result<u64> {
        Err(EINVAL)
    }

    /// Nothing is cut off.
    fn truncate(&self, _: u64) -> Result<()> {
        Ok(())
    }

    fn seek_end(&self) -> Result<u64> {
        Err(EINVAL)
    }

    fn size(&self) -> Result<u64> {
        Ok(0)
    }

    fn stat(&self) -> Result<Stat> {
        self.inode.stat()
    }

    fn inode(&self) -> Option<&Arc<dyn Inode>> {
        Some(&self.inode)
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// Bytes for each page, and how many pages are looked up at a time.
const PAGE_ENTRY: u64 = 8;
const PAGES_AT_ONCE: usize = 512;

/// /proc/PID/pagemap (proc_pid_pagemap(5)). Frame numbers are for those who had CAP_SYS_ADMIN when they opened it.
struct PageMap {
    space: Weak<Space>,
    inode: Arc<dyn Inode>,
    with_frames: bool,
}

/// Opens the table of pages of a process that the caller may trace.
pub fn open_page_map(process: &Process, inode: &Arc<dyn Inode>) -> Result<Arc<dyn File>> {
    let space = process.space().map_or_else(Weak::new, |space| Arc::downgrade(&space));
    let with_frames = task::current().credentials().lock().can(CAP_SYS_ADMIN);
    Ok(Arc::new(PageMap { space, inode: inode.clone(), with_frames }))
}

impl File for PageMap {
    fn read(&self, offset: u64, to: &mut Sink<'_>) -> Result<usize> {
        if !offset.is_multiple_of(PAGE_ENTRY) || !(to.remaining() as u64).is_multiple_of(PAGE_ENTRY) {
            return Err(EINVAL);
        }
        let Some(space) = self.space.upgrade() else { return Ok(0) };
        let mut entries = Vec::new();
        entries.reserve_exact_fallibly(PAGES_AT_ONCE).map_err(|_| ENOMEM)?;
        let mut page = offset / PAGE_ENTRY;
        let mut done = 0;
        while to.remaining() > 0 && page < USER_END / PAGE_SIZE as u64 {
            let left = USER_END / PAGE_SIZE as u64 - page;
            let count = (to.remaining() / PAGE_ENTRY as usize).min(PAGES_AT_ONCE).min(left as usize);
            entries.clear();
            entries.resize(count, 0);
            space.page_map(page * PAGE_SIZE as u64, self.with_frames, &mut entries);
            for entry in &entries {
                match to.put(&entry.to_ne_bytes()) {
                    Ok(copied) => done += copied,
                    Err(_) if done > 0 => return Ok(done),
                    Err(e) => return Err(e),
                }
            }
            page += count as u64;
        }
        Ok(done)
    }

    fn write(&self, _: u64, _: &mut Source<'_>) -> Result<usize> {
        Err(EINVAL)
    }

    fn is_seekable(&self) -> bool {
        true
    }

    fn may_be_direct(&self) -> bool {
        false
    }

    fn seek_data(&self, _: u64, _: bool) -> Result<u64> {
        Err(EINVAL)
    }

    /// Nothing is cut off.
    fn truncate(&self, _: u64) -> Result<()> {
        Ok(())
    }

    fn seek_end(&self) -> Result<u64> {
        Err(EINVAL)
    }

    fn size(&self) -> Result<u64> {
        Ok(0)
    }

    fn stat(&self) -> Result<Stat> {
        self.inode.stat()
    }

    fn inode(&self) -> Option<&Arc<dyn Inode>> {
        Some(&self.inode)
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

pub fn maps(key: Key, out: &mut Output) -> Result<()> {
    let Some(space) = traceable(key)?.space() else { return Ok(()) };
    space.each_mapping(out.from(), &mut |line, _| {
        out.print(format_args!("{line}\n"))?;
        Ok(!out.go_on_at(line.end))
    })
}

pub fn smaps(key: Key, out: &mut Output) -> Result<()> {
    let Some(space) = traceable(key)?.space() else { return Ok(()) };
    space.each_mapping(out.from(), &mut |line, residence| {
        let there = residence();
        let size = (line.end - line.start) / 1024;
        let page = PAGE_SIZE / 1024;
        out.print(format_args!(
            "{line}\nSize:           {size:8} kB\nKernelPageSize: {page:8} kB\nMMUPageSize:    {page:8} kB\n"
        ))?;
        let anonymous = line.inode == 0;
        sizes(&there, anonymous, false, &mut |name, bytes| {
            out.print(format_args!("{name:<15} {:8} kB\n", bytes / 1024))
        })?;
        out.print(format_args!("THPeligible:           0\nVmFlags: {}\n", there.flags))?;
        Ok(!out.go_on_at(line.end))
    })
}

/// The sizes of smaps and, where `rollup`, those that only the sum has.
fn sizes(
    of: &Residence,
    anonymous: bool,
    rollup: bool,
    line: &mut dyn FnMut(&str, u64) -> Result<()>,
) -> Result<()> {
    let locked = if of.is_locked { of.proportional } else { 0 };
    line("Rss:", of.resident())?;
    line("Pss:", of.proportional)?;
    line("Pss_Dirty:", of.proportional_dirty)?;
    if rollup {
        // What is no file's is anonymous here: shared memory is a file of its own.
        line("Pss_Anon:", of.proportional.min(of.anonymous))?;
        line("Pss_File:", of.proportional - of.proportional.min(of.anonymous))?;
        line("Pss_Shmem:", 0)?;
    }
    line("Shared_Clean:", of.shared_clean)?;
    line("Shared_Dirty:", of.shared_dirty)?;
    line("Private_Clean:", of.private_clean)?;
    line("Private_Dirty:", of.private_dirty)?;
    line("Referenced:", of.referenced)?;
    line("Anonymous:", of.anonymous)?;
    line("LazyFree:", 0)?;
    line("AnonHugePages:", if anonymous { of.large } else { 0 })?;
    for none in
        ["ShmemPmdMapped:", "FilePmdMapped:", "Shared_Hugetlb:", "Private_Hugetlb:", "Swap:", "SwapPss:"]
    {
        line(none, 0)?;
    }
    line("Locked:", locked)
}

/// /proc/PID/clear_refs (proc_pid_clear_refs(5)): 1, 2 and 3 are about `Referenced` of smaps, 5 is about VmHWM. 4 is about soft-dirty
/// pages, which no mapping has (`sd` of VmFlags).
pub fn clear_references(key: Key, written: &[u8]) -> Result<()> {
    const MAX_LENGTH: usize = 12;
    let text = core::str::from_utf8(&written[..written.len().min(MAX_LENGTH)]).map_err(|_| EINVAL)?;
    let number: i64 = text.split('\0').next().unwrap_or_default().trim().parse().map_err(|_| EINVAL)?;
    let number = i32::try_from(number).map_err(|_| ERANGE)?;
    if !(1..=5).contains(&number) {
        return Err(EINVAL);
    }
    let Some(space) = of(key)?.space() else { return Ok(()) };
    match number {
        1 => space.clear_referenced(Referenced::All),
        2 => space.clear_referenced(Referenced::Anonymous),
        3 => space.clear_referenced(Referenced::Files),
        5 => space.reset_peak_resident(),
        _ => {}
    }
    Ok(())
}

pub fn smaps_rollup(key: Key) -> Result<Vec<u8>> {
    let Some(space) = traceable(key)?.space() else { return Err(ESRCH) };
    let mut sum = Residence::default();
    let (mut start, mut end) = (None, 0);
    let mut locked = 0;
    space.each_mapping(0, &mut |line, residence| {
        let there = residence();
        start.get_or_insert(line.start);
        end = line.end;
        locked += if there.is_locked { there.proportional } else { 0 };
        sum.add(&there);
        Ok(true)
    })?;
    let head = format!("{:08x}-{end:08x} ---p 00000000 00:00 0 ", start.unwrap_or(0));
    let mut out = format!("{head:<73}[rollup]\n");
    sizes(&sum, true, true, &mut |name, bytes| {
        let bytes = if name == "Locked:" { locked } else { bytes };
        out.push_str(&format!("{name:<15} {:8} kB\n", bytes / 1024));
        Ok(())
    })?;
    text(out)
}
