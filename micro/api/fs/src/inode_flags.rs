// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Flags of an inode that protect it (ioctl_iflags(2), chattr(1)), in the two forms that programs ask for: FS_IOC_GETFLAGS' bits,
//! which this type keeps, and FS_IOC_FSGETXATTR's. Those of tmpfs are all there are.

use core::sync::atomic::{AtomicU32, Ordering};

/// FS_IMMUTABLE_FL and so on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InodeFlags(u32);

impl InodeFlags {
    /// Nobody may change, rename, link or remove the file, whatever the capabilities.
    pub const IMMUTABLE: InodeFlags = InodeFlags(0x10);
    /// It may only grow; of a directory, names may be made and not removed.
    pub const APPEND: InodeFlags = InodeFlags(0x20);
    pub const NODUMP: InodeFlags = InodeFlags(0x40);
    pub const NOATIME: InodeFlags = InodeFlags(0x80);

    const ALL: u32 = 0xf0;
    const INHERITED: u32 = Self::NODUMP.0 | Self::NOATIME.0;
    /// FS_XFLAG_IMMUTABLE, APPEND, NODUMP and NOATIME, beside the same flags of this type.
    const EXTENDED: [(u32, InodeFlags); 4] =
        [(0x8, Self::IMMUTABLE), (0x10, Self::APPEND), (0x80, Self::NODUMP), (0x40, Self::NOATIME)];

    /// `None` when there are flags that no file here has.
    pub fn from_bits(bits: u32) -> Option<InodeFlags> {
        (bits & !Self::ALL == 0).then_some(InodeFlags(bits))
    }

    pub fn bits(self) -> u32 {
        self.0
    }

    /// From FS_XFLAG_ bits; `None` as [`InodeFlags::from_bits`].
    pub fn from_extended(bits: u32) -> Option<InodeFlags> {
        let known = Self::EXTENDED.iter().fold(0, |all, (bit, _)| all | bit);
        let named = Self::EXTENDED.iter().filter(|(bit, _)| bits & bit != 0);
        (bits & !known == 0).then(|| InodeFlags(named.fold(0, |all, (_, flag)| all | flag.0)))
    }

    /// As FS_XFLAG_ bits.
    pub fn extended(self) -> u32 {
        Self::EXTENDED.iter().filter(|(_, flag)| self.has(*flag)).fold(0, |all, (bit, _)| all | bit)
    }

    pub fn has(self, flag: InodeFlags) -> bool {
        self.0 & flag.0 == flag.0
    }

    /// Its attributes and names are to stay as they are.
    pub fn is_protected(self) -> bool {
        self.0 & (Self::IMMUTABLE.0 | Self::APPEND.0) != 0
    }

    /// Whether the two differ in what takes CAP_LINUX_IMMUTABLE.
    pub fn changes_protection(self, to: InodeFlags) -> bool {
        (self.0 ^ to.0) & (Self::IMMUTABLE.0 | Self::APPEND.0) != 0
    }

    /// What a file that is made in a directory with these flags has.
    pub fn inherited(self) -> InodeFlags {
        InodeFlags(self.0 & Self::INHERITED)
    }
}

/// The flags of an inode, which each open(2) asks for: without a lock.
#[derive(Debug, Default)]
pub struct StoredFlags(AtomicU32);

impl StoredFlags {
    pub fn new(flags: InodeFlags) -> StoredFlags {
        StoredFlags(AtomicU32::new(flags.0))
    }

    pub fn get(&self) -> InodeFlags {
        InodeFlags(self.0.load(Ordering::Relaxed))
    }

    pub fn set(&self, flags: InodeFlags) {
        self.0.store(flags.0, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_name_the_same_flags() {
        for bits in (0..=0xff).filter(|bits| bits & 0xf == 0) {
            let flags = InodeFlags::from_bits(bits).unwrap();
            assert_eq!(InodeFlags::from_extended(flags.extended()), Some(flags));
        }
        assert_eq!(InodeFlags::IMMUTABLE.extended(), 0x8);
        assert_eq!(InodeFlags::from_bits(0x11), None);
        assert_eq!(InodeFlags::from_extended(0x9), None);
    }

    #[test]
    fn new_files_inherit_no_protection() {
        let all = InodeFlags::from_bits(0xf0).unwrap();
        assert!(all.is_protected() && !all.inherited().is_protected());
        assert!(all.inherited().has(InodeFlags::NODUMP) && all.inherited().has(InodeFlags::NOATIME));
    }
}
