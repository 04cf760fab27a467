// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a file gives the program that is in it (capabilities(7), "File capabilities"), and the attribute that says so.

use super::capabilities::{ALL, CapabilitySet};
use crate::users::{self, Kind};
use abi::{Result, errno::*};
use alloc::vec::Vec;
use vfs::Capability;

/// The attribute of a file that holds its [`FileCapabilities`].
pub const CAPABILITIES: &[u8] = b"security.capability";

/// What a file gives the program that is in it (capabilities(7), "File capabilities").
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileCapabilities {
    pub permitted: CapabilitySet,
    pub inheritable: CapabilitySet,
    /// The program starts with them in effect.
    pub is_effective: bool,
    /// Root of the user namespace that they count in.
    pub root: u32,
}

impl FileCapabilities {
    /// Of the attribute's value (`struct vfs_ns_cap_data`): a word with version and flag, permitted and inheritable words of
    /// 32 capabilities, once or twice, and the root that gave them. `None` for another length or version.
    pub fn parse(value: &[u8]) -> Option<FileCapabilities> {
        const EFFECTIVE: u32 = 1;
        let (words, rest) = value.as_chunks::<4>();
        let word = |i: usize| words.get(i).map_or(0, |word| u32::from_le_bytes(*word));
        let pairs = match (word(0) >> 24, words.len()) {
            (1, 3) => 1,
            (2, 5) => 2,
            (3, 6) => 2,
            _ => return None,
        };
        let set = |first: usize| {
            let high = if pairs == 2 { word(first + 2) } else { 0 };
            (u64::from(word(first)) | u64::from(high) << 32) & ALL
        };
        let is_effective = word(0) & EFFECTIVE != 0;
        rest.is_empty().then(|| FileCapabilities {
            permitted: set(1),
            inheritable: set(2),
            is_effective,
            root: word(5),
        })
    }
}

/// The value of a file's capabilities (capabilities(7)): `struct vfs_cap_data` of revision 2, `vfs_ns_cap_data` of revision 3.
pub struct Attribute<'a> {
    flags: u32,
    sets: &'a [u8; 16],
    /// Root of the user namespace that they count in; none in revision 2, whose reader's or writer's own is meant.
    root: Option<u32>,
}

impl Attribute<'_> {
    const REVISION_2: u32 = 0x0200_0000;
    const REVISION_3: u32 = 0x0300_0000;
    const EFFECTIVE: u32 = 1;

    /// `None` for what Linux does not take.
    pub fn read(value: &[u8]) -> Option<Attribute<'_>> {
        let (magic, rest) = value.split_first_chunk::<4>()?;
        let (sets, rest) = rest.split_first_chunk::<16>()?;
        let magic = u32::from_le_bytes(*magic);
        let root = match (magic & !Attribute::EFFECTIVE, rest) {
            (Attribute::REVISION_2, []) => None,
            (Attribute::REVISION_3, rest) => Some(u32::from_le_bytes(rest.try_into().ok()?)),
            _ => return None,
        };
        Some(Attribute { flags: magic & Attribute::EFFECTIVE, sets, root })
    }

    fn value(&self, root: Option<u32>) -> Vec<u8> {
        let (revision, root) = match root {
            None => (Attribute::REVISION_2, None),
            Some(root) => (Attribute::REVISION_3, Some(root.to_le_bytes())),
        };
        [&(revision | self.flags).to_le_bytes()[..], self.sets, root.as_ref().map_or(&[], |root| &root[..])]
            .concat()
    }

    /// As a file keeps them, whose writer may set them: who has the right in its own user namespace alone gives them there
    /// alone (Linux' cap_convert_nscap). `EINVAL`: that has no such root.
    pub fn to_keep(&self, who: &vfs::Credentials) -> Result<Vec<u8>> {
        if self.root.is_none() && who.has(Capability::Setfcap) {
            return Ok(self.value(None));
        }
        let root = users::here().to_machine(Kind::User, self.root.unwrap_or(0)).ok_or(EINVAL)?;
        Ok(self.value(Some(root)))
    }

    /// As the caller sees them. `EOVERFLOW`: they count in a namespace that is not the caller's nor around it.
    pub fn to_show(&self) -> Result<Vec<u8>> {
        let (namespace, root) = (users::here(), self.root.unwrap_or(0));
        match namespace.from_machine(Kind::User, root) {
            Some(inside) if inside != 0 => Ok(self.value(Some(inside))),
            _ if namespace.is_of_root(root) => Ok(self.value(None)),
            _ => Err(EOVERFLOW),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_that_are_none_give_nothing() {
        let good: Vec<u8> = [0x0200_0001u32, 1, 1, 0, 0].iter().flat_map(|word| word.to_le_bytes()).collect();
        assert!(FileCapabilities::parse(&good).is_some());
        for bad in [&good[..19], &good[..12], &good[..4], &[][..], &[good.as_slice(), &[0; 4]].concat()] {
            assert_eq!(FileCapabilities::parse(bad), None, "{bad:?}");
        }
        let of_root = |id: u32| [&[0, 0, 0, 3][..], &good[4..], &id.to_le_bytes()].concat();
        let root = |id: u32| FileCapabilities::parse(&of_root(id)).map(|file| file.root);
        assert_eq!((root(0), root(1000)), (Some(0), Some(1000)));
        assert!(FileCapabilities::parse(&[0, 0, 0, 1, 1, 0, 0, 0, 0, 0, 0, 0]).is_some());
    }

    #[test]
    fn a_value_reads_back_as_it_was_written_and_others_are_refused() {
        let value: Vec<u8> =
            [0x0300_0001u32, 1, 2, 3, 4, 1000].iter().flat_map(|word| word.to_le_bytes()).collect();
        let attribute = Attribute::read(&value).unwrap();
        assert_eq!(attribute.value(attribute.root), value);
        assert!(Attribute::read(&attribute.value(None)).is_some_and(|attribute| attribute.root.is_none()));
        for bad in [&value[..23], &value[..20], &[][..]] {
            assert!(Attribute::read(bad).is_none());
        }
    }
}
