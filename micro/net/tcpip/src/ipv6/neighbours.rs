// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Asking for neighbours and answering (RFC 4861 7.2), and for addresses that others may have (RFC 4862 5.4). The cache is the one of
//! ARP ([`crate::neighbour`]).

use super::addresses::State;
use super::discovery::{Advertisement, Envelope, HOPS, Solicitation};
use super::numbers::Scoped;
use super::wire::{is_link_local, solicited_node};
use super::{ALL_NODES, DEVICE};
use crate::ip::Ip;
use crate::neighbour::Learned;
use core::net::{Ipv4Addr, Ipv6Addr};

impl Ip {
    /// Asks who has the address: the neighbour itself where its address is known and old, or else the group that it must be in.
    pub(crate) fn solicit(&mut self, now: u64, target: Ipv4Addr) {
        let known = self.neighbours.known((DEVICE, target));
        let Some(v6) = &self.v6 else { return };
        let Some(Scoped { address, .. }) = v6.numbers.get(target) else { return };
        let source = if is_link_local(&address) { v6.addresses.link_local() } else { None };
        let Some(source) = source.or_else(|| v6.addresses.source_to(&address)).map(|source| source.address)
        else {
            return;
        };
        let to = if known.is_some() { address } else { solicited_node(&address) };
        let message = Solicitation { target: address, link: Some(v6.mac) }.bytes();
        match known {
            Some(mac) => self.send_to_mac(mac, &source, &to, message.bytes()),
            None => self.send_control(now, &source, &to, HOPS, message.bytes()),
        }
    }

    /// Asks whether anybody has an address that is to become ours.
    pub(super) fn probe(&mut self, now: u64, target: &Ipv6Addr) {
        let message = Solicitation { target: *target, link: None }.bytes();
        self.send_control(now, &Ipv6Addr::UNSPECIFIED, &solicited_node(target), HOPS, message.bytes());
    }

    /// Tells everybody of an address that has become ours (RFC 4861 7.2.6).
    pub(super) fn announce(&mut self, now: u64, target: &Ipv6Addr) {
        let Some(mac) = self.v6.as_ref().map(|v6| v6.mac) else { return };
        let said = Advertisement {
            target: *target,
            link: Some(mac),
            is_router: false,
            is_solicited: false,
            overrides: true,
        };
        self.send_control(now, target, &ALL_NODES, HOPS, said.bytes().bytes());
    }

    pub(super) fn announce_all(&mut self, now: u64) {
        for at in 0..super::time::MAX_ADDRESSES {
            let address = self.v6.as_ref().and_then(|v6| v6.addresses.all.get(at).copied());
            if let Some(address) = address.filter(|address| address.is_assigned()) {
                self.announce(now, &address.address);
            }
        }
    }

    /// RFC 4861 7.2.3 and 7.2.4.
    pub(super) fn solicited(&mut self, now: u64, message: &[u8], envelope: &Envelope) {
        let Some(asked) = Solicitation::parse(message, envelope) else { return };
        let Some(v6) = &mut self.v6 else { return };
        let (mac, source) = (v6.mac, envelope.source);
        let Some(own) = v6.addresses.get_mut(&asked.target) else { return };
        match own.state {
            // Another one that asks from nobody wants the same address.
            State::Tentative { .. } if source.is_unspecified() => {
                own.state = State::Duplicate;
                return v6.plan();
            }
            State::Tentative { .. } | State::Duplicate => return,
            State::Assigned => {}
        }
        let is_from_nobody = source.is_unspecified();
        if let Some(link) = asked.link
            && let Some(number) = v6.numbers.intern(Scoped::on(source, DEVICE))
        {
            let learned = Learned { is_answer: false, overrides: true, creates: true };
            self.learn(now, number, Some(link), learned);
        }
        let said = Advertisement {
            target: asked.target,
            link: Some(mac),
            is_router: false,
            is_solicited: !is_from_nobody,
            overrides: true,
        };
        let to = if is_from_nobody { ALL_NODES } else { source };
        self.send_control(now, &asked.target, &to, HOPS, said.bytes().bytes());
    }

    /// RFC 4861 7.2.5, RFC 4862 5.4.4.
    pub(super) fn advertised(&mut self, now: u64, message: &[u8], envelope: &Envelope) {
        let Some(said) = Advertisement::parse(message, envelope) else { return };
        let Some(v6) = &mut self.v6 else { return };
        if let Some(own) = v6.addresses.get_mut(&said.target) {
            // An address that is ours for long stays: whoever says so now came later, or is no friend.
            if own.is_tentative() {
                own.state = State::Duplicate;
                v6.plan();
            }
            return;
        }
        // Nobody is told of who was not asked for.
        let Some(number) = v6.numbers.find(&Scoped::on(said.target, DEVICE)) else { return };
        if !said.is_router {
            v6.routes.remove_router(&said.target);
        }
        let learned = Learned { is_answer: said.is_solicited, overrides: said.overrides, creates: false };
        self.learn(now, number, said.link, learned);
    }

    /// What a message says of a neighbour; packets that waited for it leave.
    pub(super) fn learn(&mut self, now: u64, number: Ipv4Addr, link: Option<crate::wire::Mac>, how: Learned) {
        let Some((mac, waiting)) = self.neighbours.learn(now, (DEVICE, number), link, how) else { return };
        for packet in waiting {
            self.hand_to_device(mac, packet);
        }
    }
}
