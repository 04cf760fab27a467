// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Flags of interfaces (netdevice(7), `linux/if.h`).

pub const IFF_UP: u32 = 1;
pub const IFF_BROADCAST: u32 = 2;
pub const IFF_DEBUG: u32 = 4;
pub const IFF_LOOPBACK: u32 = 8;
pub const IFF_POINTOPOINT: u32 = 0x10;
pub const IFF_RUNNING: u32 = 0x40;
pub const IFF_NOARP: u32 = 0x80;
pub const IFF_PROMISC: u32 = 0x100;
pub const IFF_ALLMULTI: u32 = 0x200;
pub const IFF_MULTICAST: u32 = 0x1000;
pub const IFF_LOWER_UP: u32 = 0x10000;
#[cfg(feature = "interfaces")]
pub const IFF_NOTRAILERS: u32 = 0x20;
#[cfg(feature = "interfaces")]
pub const IFF_PORTSEL: u32 = 0x2000;
#[cfg(feature = "interfaces")]
pub const IFF_AUTOMEDIA: u32 = 0x4000;
#[cfg(feature = "interfaces")]
pub const IFF_DYNAMIC: u32 = 0x8000;
