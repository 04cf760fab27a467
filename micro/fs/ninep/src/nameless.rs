// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Open files that have lost their name, at a server that finds files by their names (QEMU's): its handle of such a file leads to
//! nothing, or to what has the name since, and what is asked for the one would be done to the other. So it is not asked: how long such
//! a file is and what else is known of it is kept here, and its data is reached by what is open.

use crate::client::Fid;
use crate::file::write_once;
use crate::node::Node;
use abi::{Result, errno::*};
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use api_alloc::Reserve;
use api_fs::{FileType, SetAttr, Source};
use core::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// Whether a file's name is known to be gone, and whether its data ends before the server's does.
#[derive(Default)]
pub struct Nameless {
    is_told: AtomicBool,
    is_cut: AtomicBool,
}

impl Nameless {
    pub fn is_told(&self) -> bool {
        self.is_told.load(Relaxed)
    }

    /// It has been found by another name.
    pub fn is_found(&self) {
        self.is_told.store(false, Relaxed);
    }
}

impl Node {
    /// The file of this name, which is about to lose it, where it is in use. It remembers what the server says now.
    pub(crate) fn about_to_go(&self, name: &[u8]) -> Option<Arc<Node>> {
        if !self.client().goes_by_names() {
            return None;
        }
        let (_, qid) = self.client().walk(&*self.fid().ok()?, Some(name)).ok()?;
        let known = self.client().nodes.lock().get(&qid?.path).and_then(Weak::upgrade)?;
        let _ = known.attributes();
        Some(known)
    }

    /// One of its names is another file's or nobody's since.
    pub(crate) fn may_be_lost(&self) {
        if self.is_lost() == Ok(true) {
            self.is_nameless_now();
        }
    }

    /// Its number may be another file's from now on, unless it has other names.
    fn is_nameless_now(&self) {
        self.nameless.is_told.store(true, Relaxed);
        let has_others =
            self.last.lock().is_some_and(|last| last.kind != FileType::Directory && last.links > 1);
        if !has_others {
            self.leaves_its_number();
        }
    }

    /// The server does not find it any more. Of an open file that is asked each time: the host may have taken the name away.
    pub(crate) fn has_lost_its_name(&self) -> Result<bool> {
        if !self.nameless.is_told() && self.is_open() && self.client().goes_by_names() && self.is_lost()? {
            self.is_nameless_now();
        }
        Ok(self.nameless.is_told())
    }

    /// Changes what is known of an open file without a name. `ENOENT` for its length, which [`Node::cut_nameless`] changes, and where
    /// it has another name somewhere.
    pub(crate) fn set_nameless(&self, change: &SetAttr) -> Result<()> {
        let mut last = self.last.lock();
        let last = last.as_mut().filter(|last| self.is_open() && last.links <= 1).ok_or(ENOENT)?;
        if change.size.is_some() {
            return Err(ENOENT);
        }
        last.permissions = change.permissions.unwrap_or(last.permissions);
        last.uid = change.uid.unwrap_or(last.uid);
        last.gid = change.gid.unwrap_or(last.gid);
        last.accessed = change.accessed.unwrap_or(last.accessed);
        last.modified = change.modified.unwrap_or(last.modified);
        Ok(())
    }

    /// Gives a file without a name this length, by a handle that it is open for writing by. The server's data behind a new end is
    /// cleared, and not seen any more.
    pub(crate) fn cut_nameless(&self, fid: &Fid, size: u64) -> Result<()> {
        let end = self.attributes()?.size;
        let (mut at, stop) = if size < end { (size, end) } else { (size.saturating_sub(1).max(end), size) };
        let most = (stop - at).min(u64::from(fid.client().io_limit())) as usize;
        let mut zeros = Vec::new();
        zeros.reserve_exact_fallibly(most).map_err(|_| ENOMEM)?;
        zeros.resize(most, 0);
        while at < stop {
            let n = usize::try_from(stop - at).unwrap_or(usize::MAX).min(most);
            match write_once(fid, at, &mut Source::kernel(&zeros[..n]))? {
                (0, _) => return Err(EIO),
                (written, _) => at += written as u64,
            }
        }
        self.nameless.is_cut.store(true, Relaxed);
        self.is_cut_to(size);
        Ok(())
    }

    /// Where reading ends, if that is known here alone.
    pub(crate) fn own_end(&self) -> Option<u64> {
        let is_cut = self.nameless.is_told() && self.nameless.is_cut.load(Relaxed);
        is_cut.then(|| self.last.lock().map_or(0, |last| last.size))
    }

    fn is_open(&self) -> bool {
        self.open_files.load(Relaxed) > 0
    }
}
