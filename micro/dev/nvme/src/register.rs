// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Registers by their offset in the first window, and their bits (NVMe 3.1).

/// Controller capabilities, 64 bits.
pub const CAP: u32 = 0x00;
/// Version.
pub const VS: u32 = 0x08;
/// From this version on a controller lists its active namespaces (NVMe 1.1).
pub const VS_1_1: u32 = 0x0001_0100;
/// Controller configuration.
pub const CC: u32 = 0x14;
pub const CC_EN: u32 = 1 << 0;
/// Entries of 64 bytes in submission queues and of 16 in completion queues; pages of 4 KiB; the NVM command set.
pub const CC_ENTRIES: u32 = 6 << 16 | 4 << 20;
/// Controller status.
pub const CSTS: u32 = 0x1c;
pub const CSTS_RDY: u32 = 1 << 0;
/// The controller has failed and answers nothing until it is reset.
pub const CSTS_CFS: u32 = 1 << 1;
/// Entries of the admin queues, less one each.
pub const AQA: u32 = 0x24;
/// Where they are, 64 bits each.
pub const ASQ: u32 = 0x28;
pub const ACQ: u32 = 0x30;
/// The first doorbell.
pub const DOORBELLS: u32 = 0x1000;

/// What a register reads as when there is no controller any more.
pub const GONE: u32 = u32::MAX;

/// What the controller can (CAP).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// Entries of an I/O queue at most.
    pub entries: usize,
    /// How long it may take to become ready or to stop.
    pub ready_ns: u64,
    /// Bytes from one doorbell to the next.
    pub stride: u32,
    pub has_nvm_commands: bool,
    /// It takes pages of 4 KiB.
    pub has_small_pages: bool,
}

impl Capabilities {
    pub fn parse(low: u32, high: u32) -> Capabilities {
        Capabilities {
            entries: (low & 0xffff) as usize + 1,
            ready_ns: u64::from(low >> 24) * 500_000_000,
            stride: 4 << (high & 15),
            // Command sets supported: bits 37 to 44; bit 37 is the NVM command set.
            has_nvm_commands: high & 1 << 5 != 0,
            // The smallest page: bits 48 to 51, as a power of two above 4 KiB.
            has_small_pages: high >> 16 & 15 == 0,
        }
    }

    /// The doorbell of queue `queue`: that of its submissions, or that of its completions (NVMe 3.1.24).
    pub fn doorbell(self, queue: u16, is_completion: bool) -> u32 {
        DOORBELLS + (2 * u32::from(queue) + u32::from(is_completion)) * self.stride
    }
}
