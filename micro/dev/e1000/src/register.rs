// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Registers by their offset in the first window, and their bits (SDM 13.4, datasheets of the 82574, 10.2, and of the 82576, 8).

/// Device control.
pub const CTRL: u32 = 0x0000;
/// The speed is that of the link.
pub const CTRL_ASDE: u32 = 1 << 5;
/// Set link up.
pub const CTRL_SLU: u32 = 1 << 6;
pub const CTRL_RST: u32 = 1 << 26;

/// The way to the transceiver's registers: a number of 16 bits, which of the registers of the first transceiver, what to do with it.
pub const MDIC: u32 = 0x0020;
pub const MDIC_PHY_1: u32 = 1 << 21;
pub const MDIC_WRITE: u32 = 1 << 26;
pub const MDIC_READY: u32 = 1 << 28;
/// Its control register is number 0 (IEEE 802.3, 22.2.4.1): agree with the other end anew.
pub const PHY_NEGOTIATE: u32 = 1 << 12 | 1 << 9;

/// Interrupt causes; reading clears them while none of them is enabled.
pub const ICR: u32 = 0x00c0;
/// Enables causes.
pub const IMS: u32 = 0x00d0;
/// Disables causes.
pub const IMC: u32 = 0x00d8;
/// Few receive descriptors are left, the receiver has lost packets, a packet came.
pub const CAUSES: u32 = 1 << 4 | 1 << 6 | 1 << 7;

/// Receive control.
pub const RCTL: u32 = 0x0100;
pub const RCTL_EN: u32 = 1 << 1;
/// Takes packets for every multicast group: the stack sorts them, as it does with other devices.
pub const RCTL_MPE: u32 = 1 << 4;
/// Takes broadcasts.
pub const RCTL_BAM: u32 = 1 << 15;
/// Leaves out the frame check sequence. Buffers have 2,048 bytes where the bits of the size are 0.
pub const RCTL_SECRC: u32 = 1 << 26;

/// Transmit control.
pub const TCTL: u32 = 0x0400;
pub const TCTL_EN: u32 = 1 << 1;
/// Pads short packets.
pub const TCTL_PSP: u32 = 1 << 3;
/// Attempts after collisions (15) and their distance (64 bytes), as SDM 14.5 wants them.
pub const TCTL_COLLISIONS: u32 = 0x0f << 4 | 0x40 << 12;
/// Gap between packets.
pub const TIPG: u32 = 0x0410;
/// That of copper (SDM 13.4.34, 82574 datasheet 10.2.6.2).
pub const TIPG_COPPER: u32 = 8 | 8 << 10 | 6 << 20;

/// A ring: its address (two registers), bytes, and the indices of the first descriptor that the card has and the first it has not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RingRegisters {
    pub low: u32,
    pub high: u32,
    pub length: u32,
    pub head: u32,
    pub tail: u32,
    /// When descriptors are fetched and written back.
    pub control: u32,
}

impl RingRegisters {
    const fn at(low: u32) -> RingRegisters {
        RingRegisters {
            low,
            high: low + 4,
            length: low + 8,
            head: low + 0x10,
            tail: low + 0x18,
            control: low + 0x28,
        }
    }
}

// The 82576 has them elsewhere, and here as well.
pub const RECEIVE: RingRegisters = RingRegisters::at(0x2800);
pub const TRANSMIT: RingRegisters = RingRegisters::at(0x3800);

/// When transmit descriptors are fetched and written back: at once, counted in descriptors; the 82574 wants bit 22 (datasheet
/// 10.2.6.13).
pub const TXDCTL_82574: u32 = 1 << 16 | 1 << 22 | 1 << 24;
/// The 82576 has a queue once this is set in its control register, and has begun when it reads so (datasheet 4.5.9, 4.5.10).
pub const DCTL_82576_ENABLE: u32 = 1 << 25;
/// How the 82576 splits and replicates packets of its first receive queue: advanced descriptors with one buffer, of 2 KiB.
pub const SRRCTL: u32 = 0x280c;
pub const SRRCTL_ADVANCED: u32 = 1 << 25 | 2;

/// Which checksums of received packets are looked at.
pub const RXCSUM: u32 = 0x5000;
/// Those of IP, and of TCP and UDP.
pub const RXCSUM_ALL: u32 = 1 << 8 | 1 << 9;

/// The card's own address, which it reads from its memory when it is reset.
pub const RAL: u32 = 0x5400;
pub const RAH: u32 = 0x5404;
/// The address is valid.
pub const RAH_AV: u32 = 1 << 31;

/// Bytes of the window that the driver uses.
pub const WINDOW: u32 = 0x6000;
