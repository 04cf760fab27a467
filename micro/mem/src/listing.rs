// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the program can read about its memory: /proc/self/maps, status, statm.

use crate::pager::Pager;
use crate::space::Space;
use crate::vma::{Backing, MappedFile};
use crate::{PAGE, Rights};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;

/// One line of /proc/self/maps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    pub start: u64,
    pub end: u64,
    pub rights: Rights,
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

impl fmt::Display for Listed {
    /// As Linux' show_map_vma: the name starts in column 73.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let letter = |right, letter| if self.rights.contains(right) { letter } else { '-' };
        let (major, minor) = (self.device >> 8 & 0xfff, self.device & 0xff | self.device >> 12 & 0xfff00);
        let text = alloc::format!(
            "{:08x}-{:08x} {}{}{}{} {:08x} {major:02x}:{minor:02x} {} ",
            self.start,
            self.end,
            letter(Rights::READ, 'r'),
            letter(Rights::WRITE, 'w'),
            letter(Rights::EXECUTE, 'x'),
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
    /// Where the break is and where it began.
    pub brk: u64,
    pub brk_start: u64,
}

impl Usage {
    /// VmRSS.
    pub fn resident(&self) -> u64 {
        self.anonymous + self.file
    }
}

impl Space {
    /// All mappings, in ascending order.
    pub fn listing(&self) -> Vec<Listed> {
        let inner = self.lock();
        let mut out = Vec::with_capacity(inner.tree.len());
        for (start, vma) in inner.tree.iter() {
            let mut line = Listed {
                start,
                end: vma.end,
                rights: vma.traits.rights,
                shared: vma.traits.shared && !matches!(vma.backing, Backing::Fixed),
                offset: 0,
                device: 0,
                inode: 0,
                no_dump: vma.traits.no_dump,
                name: vma.name.as_bytes().to_vec(),
            };
            if let Backing::File { file, index } = &vma.backing {
                line.offset = index * PAGE;
                (line.device, line.inode, line.name) = (file.device, file.inode, file.path.clone());
            }
            out.push(line);
        }
        out
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
            brk: inner.brk,
            brk_start: inner.brk_start,
            ..Usage::default()
        };
        for (start, vma) in inner.tree.iter() {
            let bytes = vma.end - start;
            if vma.traits.grows_down {
                usage.stack += bytes;
            }
            if vma.traits.rights.contains(Rights::EXECUTE) && matches!(vma.backing, Backing::File { .. }) {
                usage.text += bytes;
            }
        }
        usage
    }
}
