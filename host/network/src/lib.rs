// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How a machine reaches the network and how the host reaches the machine.
//!
//! Two ways for machines of users, chosen by what the caller may do:
//!
//! - **tap** ([`tap`]): root gets a tap device per machine with a /30 of its own. The device lives as long as QEMU
//!   holds its descriptor, so nothing is left behind however the machine ends. Ports are published by a proxy in the
//!   machine's supervisor ([`proxy`]), names are resolved by a relay there ([`dns`]), and packets go out through
//!   address translation where the host has nftables ([`nat`]).
//! - **user**: everybody else gets user-mode networking by [`passt`], which publishes the ports itself; where it is not
//!   installed, QEMU's own.
//!
//! A machine that is a container has neither: it takes over the interface that somebody made for it in a network namespace
//! ([`interface`]), and names are resolved by the namespace's own server, if that is on its loopback ([`resolver`]).
//! In a pod, what connects to the namespace's loopback reaches it ([`loopback`]). A monitor that drives tap devices only gets one in that
//! namespace ([`relay`]).
//!
//! Machines of one network reach each other ([`members`]) and know each other's names ([`question`]); this takes tap devices.
//!
//! [`ports`] holds what both share: the notation of `-p`, and the check that a host port is free.
//!
//! Depends on no other crate of this repository. `unilith-machine` and the command depend on it.

pub mod dns;
pub mod interface;
pub mod loopback;
pub mod members;
pub mod nat;
pub mod passt;
pub mod ports;
pub mod proxy;
pub mod question;
pub mod relay;
pub mod resolver;
pub mod subnet;
pub mod tap;
