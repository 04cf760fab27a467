// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Files of a disk that are mapped: the pages of the file system's cache themselves.

use crate::node::Node;
use abi::Result;
use alloc::sync::Arc;
use api_fs::Timespec;
use api_mem::{PageFrame, PageSource};

pub struct DiskPages(Arc<Node>);

impl DiskPages {
    pub fn new(node: Arc<Node>) -> DiskPages {
        DiskPages(node)
    }
}

impl PageSource for DiskPages {
    fn page(&self, index: u64, for_write: bool) -> Result<PageFrame> {
        self.0.with(|core, number| core.page(number, index, for_write, Timespec::now()))
    }

    fn length(&self) -> u64 {
        self.0.length()
    }

    /// The page is written with all others that were written to, when the file system is synced.
    fn write_back(&self, _: u64, _: &PageFrame) -> Result<()> {
        Ok(())
    }

    fn is_memory(&self) -> bool {
        true
    }
}
