// SPDX-License-Identifier: Apache-2.0 OR MIT
//! AF_PACKET (packet(7)): sockets that see the frames of the machine's interfaces and send frames of their own.
//!
//! - [`table`] has all sockets, and gives each frame to those that want it; [`fanout`] chooses one of a group;
//! - [`socket`] is one of them for the system calls, with [`options`] and [`transmit`]; [`member`] is what the table knows of it, and
//!   [`state`] what is under its lock;
//! - [`ring`] and [`blocks`] are the rings that programs map, in the pages of [`memory`];
//! - [`capture`] is a frame with what there is to know about it, [`address`] is `struct sockaddr_ll`.
//!
//! Frames come from the stack's link (`api_netdev::link`), which is watched as long as some socket receives. Nothing here knows the stack.
//!
//! May depend on the API crates; the kernel image picks it and gives it the link.
#![no_std]
#![forbid(unsafe_code)]
extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod address;
pub mod blocks;
pub mod capture;
pub mod fanout;
pub mod member;
pub mod memory;
pub mod options;
pub mod ring;
pub mod socket;
pub mod state;
pub mod table;
#[cfg(test)]
mod tests;
pub mod transmit;

use abi::{Result, errno::*};
use alloc::string::String;
use alloc::sync::Arc;
use api_netdev::link::Link;
use api_socket::{Address, Credentials, Family, Socket, Type};
use socket::PacketSocket;
use table::Table;

/// AF_PACKET.
struct PacketFamily(Arc<Table>);

impl Family for PacketFamily {
    fn number(&self) -> u16 {
        Address::PACKET
    }

    fn create(&self, creator: Credentials, kind: Type, protocol: u32) -> Result<Arc<dyn Socket>> {
        if ![Type::Raw, Type::Datagram].contains(&kind) {
            return Err(ESOCKTNOSUPPORT);
        }
        // Programs pass the number in network order.
        let protocol = u16::from_be(protocol as u16);
        PacketSocket::new(&self.0, kind, protocol, creator.uid).map(|socket| socket as _)
    }

    fn table(&self, name: &str) -> Option<String> {
        (name == "packet").then(|| self.0.report())
    }
}

/// AF_PACKET over this link.
pub fn family(link: Arc<dyn Link>) -> Arc<dyn Family> {
    Arc::new(PacketFamily(Table::new(link)))
}
