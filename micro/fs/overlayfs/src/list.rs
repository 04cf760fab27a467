// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What directories list.
//!
//! A merged directory lists its names in the order of a hash of them, so that a listing goes on where it was whatever is made or removed
//! meanwhile, and so that nothing needs be kept for each open directory.

use crate::node::Node;
use crate::{Changes, is_whiteout};
use abi::{Result, errno::*};
use alloc::sync::Arc;
use alloc::vec::Vec;
use api_alloc::Reserve;
use api_fs::{DirEntry, FileType, Inode};
use core::sync::atomic::Ordering;
use ordered::Map;

/// Entries that are asked for at once.
const BATCH: usize = 256;

impl Node {
    pub(crate) fn entries(&self, from: u64, most: usize) -> Result<Vec<DirEntry>> {
        if self.kind != FileType::Directory {
            return Err(ENOTDIR);
        }
        let mut guard = self.fs.changes.lock();
        let changes = guard.get();
        if !self.is_merged() {
            return self.entries_of_one(changes, from, most);
        }
        let merged = self.merged(changes)?;
        let start = merged.partition_point(|entry| entry.next <= from);
        let mut end = merged.len().min(start + most);
        // Names of one place are listed together, as long as there is another place before them.
        if let Some(cut) = merged.get(end) {
            let whole = merged[start..end].partition_point(|entry| entry.next < cut.next);
            if whole > 0 {
                end = start + whole;
            }
        }
        let mut out = Vec::new();
        out.reserve_exact_fallibly(end - start).map_err(|_| ENOMEM)?;
        out.extend_from_slice(&merged[start..end]);
        Ok(out)
    }

    /// A directory of one layer lists what that one does, without whiteouts.
    fn entries_of_one(&self, changes: &Changes, from: u64, most: usize) -> Result<Vec<DirEntry>> {
        let real = self.real();
        let mut from = from;
        loop {
            let mut entries = real.list(from, most)?;
            let Some(last) = entries.last().map(|entry| entry.next) else { return Ok(entries) };
            let (mut kept, mut failed) = (0, None);
            for at in 0..entries.len() {
                match self.shown(changes, &real, &mut entries[at]) {
                    Ok(true) => {
                        entries.swap(kept, at);
                        kept += 1;
                    }
                    Ok(false) => {}
                    Err(e) => failed = Some(e),
                }
            }
            if let Some(error) = failed {
                return Err(error);
            }
            entries.truncate(kept);
            if kept > 0 {
                return Ok(entries);
            }
            from = last;
        }
    }

    /// Whether an entry of a layer is shown, with the number that it shows.
    fn shown(&self, changes: &Changes, layer: &Arc<dyn Inode>, entry: &mut DirEntry) -> Result<bool> {
        if entry.kind == FileType::CharDevice {
            match layer.lookup(&entry.name) {
                Ok(inode) if is_whiteout(&inode)? => return Ok(false),
                Ok(_) => {}
                Err(ENOENT) => return Ok(false),
                Err(e) => return Err(e),
            }
        }
        if self.is_impure.load(Ordering::Relaxed) && self.fs.is_one {
            match self.find(changes, &entry.name) {
                Ok(node) => entry.inode = node.stat()?.inode,
                Err(ENOENT) => return Ok(false),
                Err(e) => return Err(e),
            }
        }
        Ok(true)
    }

    /// Every name of a merged directory once. It is kept until the directory changes.
    fn merged(&self, changes: &Changes) -> Result<Arc<Vec<DirEntry>>> {
        if let Some(known) = self.listing.lock().clone() {
            return Ok(known);
        }
        // What each name is: `None` for a whiteout.
        let mut names: Map<Vec<u8>, Option<(u64, FileType)>> = Map::new();
        let upper = self.upper();
        for layer in upper.iter().chain(&self.lowers) {
            let is_upper = upper.as_ref().is_some_and(|upper| Arc::ptr_eq(upper, layer));
            let mut from = 0;
            loop {
                let entries = layer.list(from, BATCH)?;
                let Some(last) = entries.last().map(|entry| entry.next) else { break };
                for mut entry in entries {
                    if let Some(known) = names.get_mut(&entry.name) {
                        // Directories that are merged have the number of the topmost lower one.
                        if let Some((number, kind)) = known
                            && *kind == FileType::Directory
                            && entry.kind == FileType::Directory
                            && self.fs.is_one
                        {
                            *number = self.find(changes, &entry.name)?.stat()?.inode;
                        }
                        continue;
                    }
                    let is_shown = match is_upper {
                        true => self.shown(changes, layer, &mut entry)?,
                        false => {
                            entry.kind != FileType::CharDevice || !is_whiteout(&layer.lookup(&entry.name)?)?
                        }
                    };
                    let what = is_shown.then_some((entry.inode, entry.kind));
                    names.insert_fallibly(entry.name, what).map_err(|_| ENOMEM)?;
                }
                from = last;
            }
        }
        let mut all = Vec::new();
        all.reserve_exact_fallibly(names.len()).map_err(|_| ENOMEM)?;
        for (name, what) in names.iter() {
            if let Some((inode, kind)) = *what {
                all.push(DirEntry { name: name.clone(), inode, kind, next: place_of(name) });
            }
        }
        all.sort_unstable_by(|a, b| (a.next, &a.name).cmp(&(b.next, &b.name)));
        let all = Arc::new(all);
        let before = self.listing.lock().replace(all.clone());
        drop(before);
        Ok(all)
    }

    /// `ENOTEMPTY` unless the directory shows nothing.
    pub(crate) fn check_empty(&self, changes: &Changes) -> Result<()> {
        let is_empty = match self.is_merged() {
            true => self.merged(changes)?.is_empty(),
            false => self.entries_of_one(changes, 0, BATCH)?.is_empty(),
        };
        if is_empty { Ok(()) } else { Err(ENOTEMPTY) }
    }
}

/// Where a name is in the listing: FNV-1a, of 62 bits and never 0, so that it is a position of a file.
fn place_of(name: &[u8]) -> u64 {
    let hash = name.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3)
    });
    (hash >> 2).max(1)
}
