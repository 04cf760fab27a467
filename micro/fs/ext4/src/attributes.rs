// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Extended attributes: what other systems have stored is kept, and freed with the inode. Programs cannot read or set any yet.

use crate::buffers::Kind;
use crate::bytes::*;
use crate::checksum::crc32c;
use crate::inode::Inode;
use crate::log_damage;
use crate::mount::Core;
use abi::{Result, errno::*};

const MAGIC: u32 = 0xea02_0000;
/// Inodes that share one block at most (Linux EXT4_XATTR_REFCOUNT_MAX).
const MAX_SHARED: u32 = 1024;

impl Core {
    /// The inode is to be freed: the block of its attributes has one user less. The caller writes the inode.
    pub(crate) fn free_attributes(&mut self, inode: &mut Inode) -> Result<()> {
        let block = inode.attributes();
        if block == 0 {
            return Ok(());
        }
        self.check_blocks(block, 1)?;
        let (seed, has) = (self.superblock.seed, self.superblock.has_checksums());
        let is_known = self.buffers.is_in_memory(block);
        let raw = self.buffers.get(block, Kind::Attributes)?;
        let (magic, users, expected) = (le32(raw, 0), le32(raw, 4), le32(raw, 16));
        let sum = crc32c(seed, &block.to_le_bytes());
        let sum = crc32c(crc32c(crc32c(sum, &raw[..16]), &[0; 4]), &raw[20..]);
        // Its sum is made when it is written: one in memory may have another.
        if magic != MAGIC || users == 0 || users > MAX_SHARED || has && !is_known && sum != expected {
            log_damage("a block of extended attributes is damaged", block);
            return Err(EUCLEAN);
        }
        if users == 1 {
            self.free_metadata(block, Kind::Attributes)?;
        } else {
            put32(self.buffers.edit(block, Kind::Attributes)?, 4, users - 1);
        }
        inode.set_attributes(0);
        inode.add_blocks(-1, self.superblock.block_size);
        Ok(())
    }
}
