// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the program may do with a page: the bits of PROT_READ, PROT_WRITE and PROT_EXEC.

use api_plat::Access;

/// A set of rights. The bits are those of mmap's `prot`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Prot(u8);

impl Prot {
    pub const NONE: Prot = Prot(0);
    pub const READ: Prot = Prot(1);
    pub const WRITE: Prot = Prot(2);
    pub const EXECUTE: Prot = Prot(4);
    pub const ALL: Prot = Prot(7);

    /// The low three bits of `prot`.
    pub const fn from_prot(prot: u32) -> Prot {
        Prot(prot as u8 & 7)
    }

    pub const fn contains(self, other: Prot) -> bool {
        self.0 & other.0 == other.0
    }

    pub const fn is_none(self) -> bool {
        self.0 == 0
    }

    pub const fn with(self, other: Prot) -> Prot {
        Prot(self.0 | other.0)
    }

    pub const fn without(self, other: Prot) -> Prot {
        // What could be written could be read: a page that is mapped for reading only must stay readable, or the fault
        // that mapped it comes again.
        let readable = if self.0 & Prot::WRITE.0 != 0 { Prot::READ.0 } else { 0 };
        Prot((self.0 | readable) & !other.0)
    }

    /// On x86 a page that can be written or executed can be read.
    pub const fn allow(self, access: Access) -> bool {
        match access {
            Access::Read => !self.is_none(),
            Access::Write => self.contains(Prot::WRITE),
            Access::Execute => self.contains(Prot::EXECUTE),
        }
    }
}
