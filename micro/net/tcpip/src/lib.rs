// SPDX-License-Identifier: Apache-2.0 OR MIT
//! TCP/IP over one network device and loopback: Ethernet, ARP, IPv4, ICMP, UDP, TCP, and the sockets of AF_INET,
//! AF_INET6 ([`families`] says how the transports have both) and AF_NETLINK made of them.
//!
//! - [`stack`] is the whole: [`stack::Net`] behind its lock, [`stack::Host`] what it needs of the kernel;
//! - [`wire`] knows the formats, [`ip`] the way out, [`tcp`], [`udp`] and [`icmp`] the transports;
//! - `link` shows frames to others and sends theirs, where that is built in;
//! - `interfaces` has those that programs make, and their routes, where that is built in;
//! - `ipv6` is IPv6 on the device, where that is built in;
//! - `dhcp` asks the network for its address, where that is built in;
//! - [`sockets`] implements `api-socket` on top.
//!
//! No packet costs a search: connections and ports are found by hash, timers are in a wheel. Everything below
//! [`sockets`] is free of locks, clocks and the scheduler, and runs on the host against a simulated network.
//!
//! May depend on the API crates; the kernel image picks it and gives it a device.
#![no_std]
#![forbid(unsafe_code)]
extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod counters;
#[cfg(feature = "dhcp")]
pub mod dhcp;
pub mod families;
mod filter;
pub mod hash;
pub mod icmp;
#[cfg(feature = "interfaces")]
pub mod interfaces;
pub mod ip;
#[cfg(feature = "ipv6")]
pub mod ipv6;
#[cfg(feature = "link")]
pub mod link;
pub mod local_addresses;
pub mod multicast;
pub mod neighbour;
#[cfg(not(feature = "ipv6"))]
mod no_ipv6;
pub mod raw;
pub mod reassembly;
pub mod report;
mod reuse;
pub mod seq;
pub mod slab;
pub mod sockets;
pub mod stack;
pub mod table;
mod tables6;
pub mod tcp;
pub mod udp;
pub mod wheel;
pub mod wire;
