// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Registers by their offset in the first window, and their bits (SDM 13.4, 82574 datasheet 10.2).

/// Device control.
pub const CTRL: u32 = 0x0000;
/// The speed is that of the link.
pub const CTRL_ASDE: u32 = 1 << 5;
/// Set link up.
pub const CTRL_SLU: u32 = 1 << 6;
pub const CTRL_RST: u32 = 1 << 26;

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
}

pub const RECEIVE: RingRegisters =
    RingRegisters { low: 0x2800, high: 0x2804, length: 0x2808, head: 0x2810, tail: 0x2818 };
pub const TRANSMIT: RingRegisters =
    RingRegisters { low: 0x3800, high: 0x3804, length: 0x3808, head: 0x3810, tail: 0x3818 };

/// When transmit descriptors are fetched and written back.
pub const TXDCTL: u32 = 0x3828;
/// At once, counted in descriptors; the 82574 wants bit 22 (datasheet 10.2.6.13).
pub const TXDCTL_82574: u32 = 1 << 16 | 1 << 22 | 1 << 24;

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

// Second half of a descriptor, as one number (SDM 3.2.3 and 3.3.3). The first half is the buffer's address.
/// The card is done with the descriptor.
pub const DONE: u64 = 1 << 32;
/// The packet ends here.
pub const RECEIVED_END: u64 = 1 << 33;
/// Ignore the checksum bits.
pub const RECEIVED_IXSM: u64 = 1 << 34;
/// TCP's or UDP's checksum was looked at.
pub const RECEIVED_TCPCS: u64 = 1 << 37;
/// TCP's or UDP's checksum is wrong.
pub const RECEIVED_TCPE: u64 = 1 << 45;
/// Carrier, symbol, sequence and other errors of the receiver: the frame is damaged.
pub const RECEIVED_DAMAGED: u64 = (1 | 1 << 1 | 1 << 2 | 1 << 4 | 1 << 7) << 40;
/// The packet ends with this piece.
pub const SEND_END: u64 = 1 << 24;
/// Append the frame check sequence.
pub const SEND_IFCS: u64 = 1 << 25;
/// Say when it is done.
pub const SEND_REPORT: u64 = 1 << 27;
