// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The superblock (ext4 disk layout, "Super Block"): what never changes while the file system is mounted.

use crate::bytes::*;
use crate::checksum::crc32c;
use abi::Errno;
use abi::errno::*;

/// Where the superblock is on the disk, and its length.
pub const PLACE: u64 = 1024;
pub const LENGTH: usize = 1024;
const MAGIC: u16 = 0xef53;

pub mod field {
    pub const FREE_BLOCKS: usize = 0xc;
    pub const FREE_INODES: usize = 0x10;
    pub const WRITE_TIME: usize = 0x30;
    pub const MOUNT_TIME: usize = 0x2c;
    pub const MOUNT_COUNT: usize = 0x34;
    pub const STATE: usize = 0x3a;
    pub const INCOMPAT: usize = 0x60;
    pub const LAST_ORPHAN: usize = 0xe8;
    pub const FREE_BLOCKS_HIGH: usize = 0x158;
    pub const CHECKSUM: usize = 0x3fc;
}

/// `s_state`: unmounted in order, and errors were found.
pub const STATE_VALID: u16 = 1;
pub const STATE_ERROR: u16 = 2;

mod compat {
    pub const HAS_JOURNAL: u32 = 4;
    pub const SPARSE_SUPER2: u32 = 0x200;
}

pub mod incompat {
    pub const FILETYPE: u32 = 2;
    pub const RECOVER: u32 = 4;
    pub const EXTENTS: u32 = 0x40;
    pub const BITS_64: u32 = 0x80;
    pub const FLEX_BG: u32 = 0x200;
    pub const CSUM_SEED: u32 = 0x2000;
    pub const KNOWN: u32 = FILETYPE | RECOVER | EXTENTS | BITS_64 | FLEX_BG | CSUM_SEED;
}

mod ro_compat {
    pub const SPARSE_SUPER: u32 = 1;
    pub const LARGE_FILE: u32 = 2;
    pub const HUGE_FILE: u32 = 8;
    pub const GDT_CSUM: u32 = 0x10;
    pub const DIR_NLINK: u32 = 0x20;
    pub const EXTRA_ISIZE: u32 = 0x40;
    pub const METADATA_CSUM: u32 = 0x400;
    pub const KNOWN: u32 =
        SPARSE_SUPER | LARGE_FILE | HUGE_FILE | GDT_CSUM | DIR_NLINK | EXTRA_ISIZE | METADATA_CSUM;
}

/// Why a disk is not mounted: a sentence for the log, and what mount(2) answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal(pub &'static str, pub Errno);

impl From<Errno> for Refusal {
    fn from(errno: Errno) -> Refusal {
        Refusal("its metadata cannot be read", errno)
    }
}

/// How checksums of metadata are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Checksums {
    None,
    /// CRC-16 of group descriptors alone (`uninit_bg`).
    Groups,
    /// CRC-32C of everything (`metadata_csum`).
    All,
}

#[derive(Clone, Debug)]
pub struct Superblock {
    pub block_size: usize,
    pub blocks: u64,
    pub inodes: u32,
    pub first_data_block: u32,
    pub blocks_per_group: u32,
    pub inodes_per_group: u32,
    pub inode_size: usize,
    /// The first inode that is not reserved.
    pub first_inode: u32,
    pub descriptor_size: usize,
    pub groups: u32,
    pub checksums: Checksums,
    /// Start of every CRC-32C.
    pub seed: u32,
    pub uuid: [u8; 16],
    /// Bytes behind the 128 of an old inode that a new inode uses.
    pub extra_isize: u16,
    pub has_large_groups: bool,
    pub has_dir_nlink: bool,
    has_sparse_super: bool,
    pub reserved_descriptor_blocks: u32,
    pub journal_inode: u32,
    /// It has features that forbid writing.
    pub is_read_only: bool,
    pub is_64bit: bool,
    /// Its checksum is wrong. What is never written is right if the power went while it was written: the journal has all of it.
    pub is_torn: bool,
}

impl Superblock {
    /// Reads the 1,024 bytes at [`PLACE`]; the disk has `bytes` bytes.
    pub fn parse(raw: &[u8], bytes: u64) -> Result<Superblock, Refusal> {
        let invalid = |why| Err(Refusal(why, EINVAL));
        if raw.len() < LENGTH || le16(raw, 0x38) != MAGIC {
            return invalid("it has no ext4 file system");
        }
        let (has, incompatible, read_only) = (le32(raw, 0x5c), le32(raw, 0x60), le32(raw, 0x64));
        if le32(raw, 0x4c) == 0 {
            return invalid("it is of revision 0, before features");
        }
        let checksums = match read_only {
            r if r & ro_compat::METADATA_CSUM != 0 => Checksums::All,
            r if r & ro_compat::GDT_CSUM != 0 => Checksums::Groups,
            _ => Checksums::None,
        };
        if checksums == Checksums::All && raw[0x175] != 1 {
            return invalid("its checksums are of an unknown kind");
        }
        if incompatible & !incompat::KNOWN != 0 {
            log::error!("ext4: unknown incompatible features {:#x}", incompatible & !incompat::KNOWN);
            return invalid("it has features that this kernel does not know (see docs/explanation/files.md)");
        }
        if incompatible & incompat::FILETYPE == 0 || incompatible & incompat::EXTENTS == 0 {
            return invalid("it is an ext2 or ext3 file system, without extents or types in directories");
        }
        let mut uuid = [0; 16];
        uuid.copy_from_slice(&raw[0x68..0x78]);
        let is_64bit = incompatible & incompat::BITS_64 != 0;
        let blocks = u64::from(le32(raw, 4)) | if is_64bit { u64::from(le32(raw, 0x150)) << 32 } else { 0 };
        let log_size = le32(raw, 0x18);
        if log_size > 2 {
            return invalid("its blocks are larger than a page");
        }
        let block_size = 1024usize << log_size;
        let inode_size = usize::from(le16(raw, 0x58));
        let descriptor_size = if is_64bit { usize::from(le16(raw, 0xfe)) } else { 32 };
        let is_torn =
            checksums == Checksums::All && crc32c(!0, &raw[..field::CHECKSUM]) != le32(raw, field::CHECKSUM);
        let super_block = Superblock {
            is_torn,
            block_size,
            blocks,
            inodes: le32(raw, 0),
            first_data_block: le32(raw, 0x14),
            blocks_per_group: le32(raw, 0x20),
            inodes_per_group: le32(raw, 0x28),
            inode_size,
            first_inode: le32(raw, 0x54),
            descriptor_size,
            groups: 0,
            checksums,
            seed: if incompatible & incompat::CSUM_SEED != 0 { le32(raw, 0x270) } else { crc32c(!0, &uuid) },
            uuid,
            extra_isize: le16(raw, 0x15e),
            has_large_groups: is_64bit && descriptor_size >= 64,
            has_dir_nlink: read_only & ro_compat::DIR_NLINK != 0,
            has_sparse_super: read_only & ro_compat::SPARSE_SUPER != 0,
            reserved_descriptor_blocks: u32::from(le16(raw, 0xce)),
            journal_inode: if has & compat::HAS_JOURNAL != 0 { le32(raw, 0xe0) } else { 0 },
            is_read_only: read_only & !ro_compat::KNOWN != 0 || has & compat::SPARSE_SUPER2 != 0,
            is_64bit,
        };
        super_block.checked(raw, bytes)
    }

    /// The numbers go together and lie on the disk.
    fn checked(mut self, raw: &[u8], bytes: u64) -> Result<Superblock, Refusal> {
        let damaged = |why| Err(Refusal(why, EUCLEAN));
        let bits = (self.block_size * 8) as u32;
        let is_sane = self.blocks_per_group.is_multiple_of(8)
            && (256..=bits).contains(&self.blocks_per_group)
            && (8..=bits).contains(&self.inodes_per_group)
            && self.inodes_per_group.is_multiple_of(8)
            && self.inode_size.is_power_of_two()
            && (128..=self.block_size).contains(&self.inode_size)
            && self.descriptor_size.is_power_of_two()
            && (32..=self.block_size.min(1024)).contains(&self.descriptor_size)
            && !(self.is_64bit && self.descriptor_size < 64)
            && self.first_data_block == u32::from(self.block_size == 1024)
            && le32(raw, 0x1c) == le32(raw, 0x18)
            && self.first_inode >= 11
            && self.extra_isize.is_multiple_of(4)
            && usize::from(self.extra_isize) <= self.inode_size - 128;
        if !is_sane || self.blocks <= u64::from(self.first_data_block) {
            return damaged("its superblock makes no sense");
        }
        if self.blocks.checked_mul(self.block_size as u64).is_none_or(|end| end > bytes) {
            return damaged("it is larger than the disk");
        }
        let groups =
            (self.blocks - u64::from(self.first_data_block)).div_ceil(u64::from(self.blocks_per_group));
        let fits = groups * u64::from(self.inodes_per_group) == u64::from(self.inodes);
        // Descriptors fill no more than the first group.
        let descriptor_blocks =
            groups.saturating_mul(self.descriptor_size as u64).div_ceil(self.block_size as u64);
        if !fits || descriptor_blocks >= u64::from(self.blocks_per_group) {
            return damaged("its numbers of groups and inodes do not go together");
        }
        self.groups = groups as u32;
        Ok(self)
    }

    pub fn descriptor_blocks(&self) -> u64 {
        (u64::from(self.groups) * self.descriptor_size as u64).div_ceil(self.block_size as u64)
    }

    pub fn group_start(&self, group: u32) -> u64 {
        u64::from(self.first_data_block) + u64::from(group) * u64::from(self.blocks_per_group)
    }

    /// Blocks of a group: the last one may have fewer.
    pub fn blocks_of(&self, group: u32) -> u32 {
        (self.blocks - self.group_start(group)).min(u64::from(self.blocks_per_group)) as u32
    }

    pub fn group_of(&self, block: u64) -> u32 {
        ((block - u64::from(self.first_data_block)) / u64::from(self.blocks_per_group)) as u32
    }

    pub fn inode_table_blocks(&self) -> u64 {
        (u64::from(self.inodes_per_group) * self.inode_size as u64).div_ceil(self.block_size as u64)
    }

    /// Whether a group begins with a copy of the superblock.
    pub fn has_super(&self, group: u32) -> bool {
        let is_power = |base: u32| {
            let mut power = base;
            while power < group {
                power = power.saturating_mul(base);
            }
            power == group
        };
        !self.has_sparse_super || group <= 1 || is_power(3) || is_power(5) || is_power(7)
    }

    /// Blocks at the start of a group that the superblock and the descriptors take.
    pub fn blocks_of_super(&self, group: u32) -> u64 {
        if !self.has_super(group) {
            return 0;
        }
        1 + self.descriptor_blocks() + u64::from(self.reserved_descriptor_blocks)
    }

    pub fn has_checksums(&self) -> bool {
        self.checksums == Checksums::All
    }

    /// The largest file: extents count its blocks in 32 bits.
    pub fn max_size(&self) -> u64 {
        (u64::from(u32::MAX) - 1) * self.block_size as u64
    }
}
