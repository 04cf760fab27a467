// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the program can read about its memory: /proc/self/maps, status, statm.

use crate::fault::borrowed;
use crate::pager::{Machine, Page, Pager};
use crate::space::{Inner, Space};
use crate::vma::{Backing, Large, MappedFile, Vma};
use crate::{PAGE, Prot, USER_END};
use abi::{Result, errno::ENOMEM};
use alloc::sync::Arc;
use alloc::vec::Vec;
use api_alloc::Reserve;
use core::fmt;

/// One line of /proc/self/maps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    pub start: u64,
    pub end: u64,
    pub rights: Prot,
    pub shared: bool,
    /// Offset in the file, in bytes.
    pub offset: u64,
    pub device: u64,
    pub inode: u64,
    /// MADV_DONTDUMP.
    pub no_dump: bool,
    /// Path of the file, or `[heap]` and the like; empty for anonymous memory.
    pub name: Vec<u8>,
}

impl Listed {
    /// A copy; `ENOMEM` where there is no room for the name.
    pub fn try_clone(&self) -> Result<Listed> {
        Ok(Listed { name: copied(&self.name)?, ..*self })
    }
}

impl fmt::Display for Listed {
    /// As Linux' show_map_vma: the name starts in column 73.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let letter = |right, letter| if self.rights.contains(right) { letter } else { '-' };
        let (major, minor) = (self.device >> 8 & 0xfff, self.device & 0xff | self.device >> 12 & 0xfff00);
        let text = alloc::format!(
            "{:08x}-{:08x} {}{}{}{} {:08x} {major:02x}:{minor:02x} {} ",
            self.start,
            self.end,
            letter(Prot::READ, 'r'),
            letter(Prot::WRITE, 'w'),
            letter(Prot::EXECUTE, 'x'),
            if self.shared { 's' } else { 'p' },
            self.offset,
            self.inode,
        );
        if self.name.is_empty() {
            return write!(f, "{text}");
        }
        write!(f, "{text:<73}")?;
        // A newline in a path would look like another line.
        let name = alloc::string::String::from_utf8_lossy(&self.name);
        name.chars().try_for_each(|c| if c == '\n' { f.write_str("\\012") } else { write!(f, "{c}") })
    }
}

/// Bytes of a mapping whose pages are aged before others may run.
const AGED_AT_ONCE: u64 = 1 << 30;
/// Bits of /proc/PID/pagemap.
const PAGE_ALONE: u64 = 1 << 56;
const PAGE_OF_FILE: u64 = 1 << 61;
const PAGE_PRESENT: u64 = 1 << 63;

fn copied(bytes: &[u8]) -> Result<Vec<u8>> {
    let mut copy = Vec::new();
    copy.reserve_exact_fallibly(bytes.len()).map_err(|_| ENOMEM)?;
    copy.extend_from_slice(bytes);
    Ok(copy)
}

fn listed(start: u64, vma: &Vma) -> Result<Listed> {
    let (mut offset, mut device, mut inode, mut name) = (0, 0, 0, vma.name.as_bytes());
    if let Backing::File { file, index } = &vma.backing {
        offset = index * PAGE;
        (device, inode, name) = (file.device, file.inode, &file.path);
    }
    Ok(Listed {
        start,
        end: vma.end,
        rights: vma.flags.rights,
        shared: vma.flags.shared && !matches!(vma.backing, Backing::Fixed),
        offset,
        device,
        inode,
        no_dump: vma.flags.no_dump,
        name: copied(name)?,
    })
}

/// Address spaces that a page is in, this one included. A page of a file has a handle of the file's besides; of permanent ones
/// nobody counts.
fn sharers(page: &Page) -> u64 {
    match (borrowed(page.physical).handles(), page.own) {
        (u32::MAX, _) => 1,
        (handles, true) => u64::from(handles),
        (handles, false) => u64::from(handles).saturating_sub(1),
    }
    .max(1)
}

/// What of a mapping is in memory, in bytes, and what it is (proc_pid_smaps(5)).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Residence {
    /// Each page divided by the address spaces that have it.
    pub proportional: u64,
    pub proportional_dirty: u64,
    pub shared_clean: u64,
    pub shared_dirty: u64,
    pub private_clean: u64,
    pub private_dirty: u64,
    pub referenced: u64,
    pub anonymous: u64,
    /// In large pages.
    pub large: u64,
    pub is_locked: bool,
    pub flags: FlagNames,
}

impl Residence {
    /// Rss.
    pub fn resident(&self) -> u64 {
        self.shared_clean + self.shared_dirty + self.private_clean + self.private_dirty
    }

    /// Adds another mapping's sizes.
    pub fn add(&mut self, other: &Residence) {
        self.proportional += other.proportional;
        self.proportional_dirty += other.proportional_dirty;
        self.shared_clean += other.shared_clean;
        self.shared_dirty += other.shared_dirty;
        self.private_clean += other.private_clean;
        self.private_dirty += other.private_dirty;
        self.referenced += other.referenced;
        self.anonymous += other.anonymous;
        self.large += other.large;
    }

    fn of(pager: &mut Machine, start: u64, vma: &Vma, zero: u64) -> Residence {
        let mut sum =
            Residence { is_locked: vma.flags.locked, flags: FlagNames::of(vma), ..Residence::default() };
        pager.visit(start, vma.end, &mut |_, page| {
            // The page of zeros stands for memory that nobody has written yet.
            if page.physical == zero {
                return false;
            }
            let sharers = sharers(page);
            let dirty = page.dirty || page.own;
            let counter = match (sharers > 1, dirty) {
                (true, false) => &mut sum.shared_clean,
                (true, true) => &mut sum.shared_dirty,
                (false, false) => &mut sum.private_clean,
                (false, true) => &mut sum.private_dirty,
            };
            *counter += PAGE;
            sum.proportional += PAGE / sharers;
            sum.proportional_dirty += if dirty { PAGE / sharers } else { 0 };
            sum.referenced += if page.accessed { PAGE } else { 0 };
            sum.anonymous += if page.own { PAGE } else { 0 };
            sum.large += if page.large { PAGE } else { 0 };
            false
        });
        sum
    }
}

/// Gets a mapping, and what tells of its pages; answers whether to go on.
pub type Seen<'a> = dyn FnMut(&Listed, &mut dyn FnMut() -> Residence) -> Result<bool> + 'a;

/// Mappings whose pages are to count as not referenced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Referenced {
    All,
    Anonymous,
    Files,
}

/// The line `VmFlags` of smaps. There is no `sd`, as in a Linux without CONFIG_MEM_SOFT_DIRTY.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FlagNames([&'static str; 16]);

impl FlagNames {
    fn of(vma: &Vma) -> FlagNames {
        let flags = &vma.flags;
        let (rights, most) = (flags.rights, flags.most);
        let when = |holds: bool, name| if holds { name } else { "" };
        FlagNames([
            when(rights.contains(Prot::READ), "rd"),
            when(rights.contains(Prot::WRITE), "wr"),
            when(rights.contains(Prot::EXECUTE), "ex"),
            // A file that was opened for reading alone is shared no further than that (Linux clears VM_SHARED).
            when(flags.shared && most.contains(Prot::WRITE), "sh"),
            when(most.contains(Prot::READ), "mr"),
            when(most.contains(Prot::WRITE), "mw"),
            when(most.contains(Prot::EXECUTE), "me"),
            when(flags.shared, "ms"),
            when(flags.grows_down, "gd"),
            when(flags.locked, "lo"),
            when(flags.no_fork, "dc"),
            when(!flags.shared && !flags.no_reserve && rights.contains(Prot::WRITE), "ac"),
            when(flags.no_reserve, "nr"),
            when(flags.wipe_on_fork, "wf"),
            when(flags.no_dump, "dd"),
            match flags.large {
                Large::Always => "hg",
                Large::Never => "nh",
                Large::WherePaying => "",
            },
        ])
    }
}

impl fmt::Display for FlagNames {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().filter(|flag| !flag.is_empty()).try_for_each(|flag| write!(f, "{flag} "))
    }
}

/// Sizes, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// VmSize.
    pub size: u64,
    /// VmPeak.
    pub peak_size: u64,
    /// VmHWM.
    pub peak_resident: u64,
    /// RssAnon.
    pub anonymous: u64,
    /// RssFile and RssShmem.
    pub file: u64,
    /// VmLck.
    pub locked: u64,
    /// VmData.
    pub data: u64,
    /// VmStk.
    pub stack: u64,
    /// VmExe and VmLib: executable mappings of files.
    pub text: u64,
    /// VmPTE.
    pub tables: u64,
}

impl Usage {
    /// VmRSS.
    pub fn resident(&self) -> u64 {
        self.anonymous + self.file
    }
}

impl Space {
    /// Calls the function for each mapping from `from` on, in ascending order, until it answers false. It can ask what of the
    /// mapping is in memory. The space is locked meanwhile: the function must not touch the program's memory.
    pub fn each_mapping(&self, from: u64, seen: &mut Seen<'_>) -> Result<()> {
        let mut inner = self.lock();
        let zero = inner.zero.physical();
        let Inner { tree, pager, .. } = &mut *inner;
        for (start, vma) in tree.starting_from(from) {
            let line = listed(*start, vma)?;
            if !seen(&line, &mut || Residence::of(pager, *start, vma, zero))? {
                break;
            }
        }
        Ok(())
    }

    /// All mappings, in ascending order. There may be more than a block of the kernel's has room for: `ENOMEM`.
    pub fn mappings(&self) -> Result<Vec<Listed>> {
        let inner = self.lock();
        let mut out = Vec::new();
        out.reserve_exact_fallibly(inner.tree.len()).map_err(|_| ENOMEM)?;
        for (start, vma) in inner.tree.iter() {
            out.push(listed(start, vma)?);
        }
        Ok(out)
    }

    /// The file of the mapping that is exactly this range.
    pub fn file_at(&self, start: u64, end: u64) -> Option<Arc<MappedFile>> {
        let inner = self.lock();
        let (from, vma) = inner.tree.find(start)?;
        let (file, _) = vma.file_page(from, from)?;
        (from == start && vma.end == end).then(|| file.clone())
    }

    /// Starts and ends of mappings of files, from `from` on in ascending order, `most` at most.
    pub fn file_ranges(&self, from: u64, most: usize) -> Result<Vec<(u64, u64)>> {
        let inner = self.lock();
        let mut out = Vec::new();
        for (start, vma) in inner.tree.starting_from(from) {
            if out.len() == most {
                break;
            }
            if matches!(vma.backing, Backing::File { .. }) {
                out.reserve_fallibly(1).map_err(|_| ENOMEM)?;
                out.push((*start, vma.end));
            }
        }
        Ok(out)
    }

    /// The pages of these mappings count as not referenced until they are touched (/proc/PID/clear_refs).
    pub fn clear_referenced(&self, which: Referenced) {
        let mut at = 0;
        loop {
            let mut inner = self.lock();
            let Inner { tree, pager, .. } = &mut *inner;
            let Some((start, vma)) = tree.first_overlap(at, USER_END) else { return };
            let from = start.max(at);
            at = vma.end.min(from.saturating_add(AGED_AT_ONCE));
            let is_file = matches!(vma.backing, Backing::File { .. });
            if match which {
                Referenced::All => true,
                Referenced::Anonymous => !is_file,
                Referenced::Files => is_file,
            } {
                pager.age(from, at);
            }
            drop(inner);
            api_sched::cond_resched();
        }
    }

    /// VmHWM begins anew with what is in memory now.
    pub fn reset_peak_resident(&self) {
        let mut inner = self.lock();
        inner.peak_resident = inner.own_resident + inner.file_resident;
    }

    /// The mapping with `address`; `None` where there is none, or no memory for its name.
    pub fn mapping_at(&self, address: u64) -> Option<Listed> {
        let inner = self.lock();
        let (start, vma) = inner.tree.find(address)?;
        listed(start, vma).ok()
    }

    /// What /proc/PID/pagemap says of each page from `address` on, as far as `out` reaches (proc_pid_pagemap(5)). Frame numbers
    /// are left out unless `with_frames`.
    pub fn page_map(&self, address: u64, with_frames: bool, out: &mut [u64]) {
        out.fill(0);
        let mut inner = self.lock();
        let end = address.saturating_add(out.len() as u64 * PAGE).min(USER_END);
        let Inner { tree, pager, .. } = &mut *inner;
        for (start, vma) in tree.overlapping(address, end) {
            let from_file = matches!(vma.backing, Backing::File { .. } | Backing::Fixed);
            pager.visit((*start).max(address), vma.end.min(end), &mut |at, page| {
                let frame = if with_frames { page.physical / PAGE } else { 0 };
                let file = if from_file && !page.own { PAGE_OF_FILE } else { 0 };
                let alone = if page.own && sharers(page) == 1 { PAGE_ALONE } else { 0 };
                out[((at - address) / PAGE) as usize] = frame | file | alone | PAGE_PRESENT;
                false
            });
        }
    }

    /// Files that are mapped from their first byte on, each once with where that is, in ascending order.
    pub fn mapped_files(&self) -> Vec<(u64, Arc<MappedFile>)> {
        let inner = self.lock();
        let mut out: Vec<(u64, Arc<MappedFile>)> = Vec::new();
        for (start, vma) in inner.tree.iter() {
            if let Backing::File { file, index: 0 } = &vma.backing
                && !out.iter().any(|(_, other)| Arc::ptr_eq(other, file) || other.path == file.path)
            {
                out.push((start, file.clone()));
            }
        }
        out
    }

    /// Bytes in memory that are the program's own, not a file's; what other address spaces have as well counts in each.
    pub fn own(&self) -> u64 {
        self.lock().own_resident * PAGE
    }

    /// [`Space::own`], with each page divided by the address spaces that have it. Looks at every page.
    pub fn own_share(&self) -> u64 {
        let mut inner = self.lock();
        let zero = inner.zero.physical();
        let Inner { tree, pager, .. } = &mut *inner;
        let mut sum = 0;
        for (start, vma) in tree.iter() {
            pager.visit(start, vma.end, &mut |_, page| {
                if page.own && page.physical != zero {
                    sum += PAGE / sharers(page);
                }
                false
            });
        }
        sum
    }

    pub fn usage(&self) -> Usage {
        let inner = self.lock();
        let mut usage = Usage {
            size: inner.pages * PAGE,
            peak_size: inner.peak_pages * PAGE,
            peak_resident: inner.peak_resident * PAGE,
            anonymous: inner.own_resident * PAGE,
            file: inner.file_resident * PAGE,
            locked: inner.locked_pages * PAGE,
            data: inner.data_pages * PAGE,
            tables: inner.pager.table_bytes(),
            ..Usage::default()
        };
        for (start, vma) in inner.tree.iter() {
            let bytes = vma.end - start;
            if vma.flags.grows_down {
                usage.stack += bytes;
            }
            if vma.flags.rights.contains(Prot::EXECUTE) && matches!(vma.backing, Backing::File { .. }) {
                usage.text += bytes;
            }
        }
        usage
    }
}
