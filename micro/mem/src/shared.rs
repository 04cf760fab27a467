// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Memory shared without a file: MAP_SHARED with MAP_ANONYMOUS.

use crate::PAGE;
use crate::commit::Commitment;
use abi::Result;
use api_lock::SpinLock;
use api_mem::{PageFrame, PageSource};
use ordered::Map;

/// Pages that appear as zeros when they are first asked for.
pub(crate) struct SharedPages {
    length: u64,
    _commitment: Commitment,
    pages: SpinLock<Map<u64, PageFrame>>,
}

impl SharedPages {
    pub fn new(length: u64, is_commitmentd: bool) -> SharedPages {
        let _commitment = Commitment::of(if is_commitmentd { length.div_ceil(PAGE) } else { 0 });
        SharedPages { length, _commitment, pages: SpinLock::new(Map::new()) }
    }
}

impl PageSource for SharedPages {
    fn page(&self, index: u64, _for_write: bool) -> Result<PageFrame> {
        if let Some(frame) = self.pages.lock().get(&index) {
            return Ok(frame.clone());
        }
        let frame = PageFrame::new()?;
        Ok(self.pages.lock().entry(index).or_insert(frame).clone())
    }

    fn resident_page(&self, index: u64) -> Option<PageFrame> {
        self.pages.lock().get(&index).cloned()
    }

    fn length(&self) -> u64 {
        self.length.next_multiple_of(PAGE)
    }

    fn is_memory(&self) -> bool {
        true
    }

    fn make_hole(&self, first: u64, count: u64) -> Result<()> {
        self.pages.lock().retain(|index, _| *index < first || *index - first >= count);
        Ok(())
    }
}
