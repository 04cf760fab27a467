// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Addresses of the device, and which one speaks (RFC 6724 5).

use super::numbers::Scoped;
use super::wire::{is_link_local, solicited_node};
use super::{DEVICE, V6};
use abi::{Result, errno::*};
use alloc::vec::Vec;
use api_alloc::Reserve;
use core::cmp::Reverse;
use core::net::{Ipv4Addr, Ipv6Addr};

/// Addresses at most, as Linux has them of routers (net.ipv6.conf.*.max_addresses).
const MAX_ADDRESSES: usize = 16;
pub const FOREVER: u64 = u64::MAX;

/// What is known of others that may have the address (RFC 4862 5.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// It is asked for at that time, if it was not yet; else it is ours from then on.
    Tentative {
        at: u64,
        is_asked: bool,
    },
    Assigned,
    /// Somebody else has it.
    Duplicate,
}

#[derive(Clone, Copy, Debug)]
pub struct Address {
    pub address: Ipv6Addr,
    pub number: Ipv4Addr,
    pub prefix: u8,
    pub state: State,
    /// New conversations begin with it until then, and it is ours until then.
    pub preferred_until: u64,
    pub valid_until: u64,
    /// A router said so.
    pub is_automatic: bool,
}

impl Address {
    pub fn given(address: Ipv6Addr, prefix: u8) -> Address {
        Address {
            address,
            number: Ipv4Addr::UNSPECIFIED,
            prefix,
            state: State::Assigned,
            preferred_until: FOREVER,
            valid_until: FOREVER,
            is_automatic: false,
        }
    }

    /// One that is asked for first.
    pub fn tentative(address: Ipv6Addr, prefix: u8, at: u64) -> Address {
        Address { state: State::Tentative { at, is_asked: false }, ..Address::given(address, prefix) }
    }

    pub fn is_assigned(&self) -> bool {
        self.state == State::Assigned
    }

    /// IFA_F_* of linux/if_addr.h.
    pub fn flags(&self, now: u64) -> u32 {
        const DUPLICATE: u32 = 8;
        const DEPRECATED: u32 = 0x20;
        const TENTATIVE: u32 = 0x40;
        const PERMANENT: u32 = 0x80;
        let state = match self.state {
            State::Tentative { .. } => TENTATIVE,
            State::Duplicate => TENTATIVE | DUPLICATE,
            State::Assigned => 0,
        };
        let is_deprecated = self.preferred_until <= now;
        state
            | if is_deprecated { DEPRECATED } else { 0 }
            | if self.valid_until == FOREVER { PERMANENT } else { 0 }
    }

    pub fn is_tentative(&self) -> bool {
        matches!(self.state, State::Tentative { .. })
    }
}

/// How far an address reaches (RFC 6724 3.1), as groups say it: 2 the link, 5 the site, 14 everywhere.
fn reach(address: &Ipv6Addr) -> u8 {
    match address {
        group if group.is_multicast() => group.octets()[1] & 15,
        local if is_link_local(local) || local.is_loopback() => 2,
        _ => 14,
    }
}

/// Bits that both begin with.
fn common(a: &Ipv6Addr, b: &Ipv6Addr) -> u32 {
    (a.to_bits() ^ b.to_bits()).leading_zeros().min(64)
}

fn is_unique_local(address: &Ipv6Addr) -> bool {
    address.octets()[0] & 0xfe == 0xfc
}

#[derive(Debug, Default)]
pub struct Addresses {
    pub all: Vec<Address>,
    /// The latest time at which something was due: what is preferred is told by it.
    pub now: u64,
}

impl Addresses {
    pub fn get(&self, address: &Ipv6Addr) -> Option<&Address> {
        self.all.iter().find(|known| known.address == *address)
    }

    pub fn get_mut(&mut self, address: &Ipv6Addr) -> Option<&mut Address> {
        self.all.iter_mut().find(|known| known.address == *address)
    }

    pub fn is_own(&self, address: &Ipv6Addr) -> bool {
        self.get(address).is_some_and(Address::is_assigned)
    }

    pub fn has_number(&self, number: Ipv4Addr) -> bool {
        self.all.iter().any(|known| known.number == number && known.is_assigned())
    }

    /// The address that something to there is sent from: rules 1 to 3, 6 (unique local addresses of RFC 4193 alone have a label
    /// of their own) and 8 of RFC 6724 5.
    pub fn source_to(&self, to: &Ipv6Addr) -> Option<&Address> {
        let wanted = reach(to);
        self.all.iter().filter(|known| known.is_assigned()).max_by_key(|known| {
            let has = reach(&known.address);
            // Of those that reach far enough the nearest, else the farthest.
            let fits = (has >= wanted, if has >= wanted { Reverse(has) } else { Reverse(15 - has) });
            let is_same_label = is_unique_local(&known.address) == is_unique_local(to);
            (
                known.address == *to,
                fits,
                known.preferred_until > self.now,
                is_same_label,
                common(&known.address, to),
            )
        })
    }

    /// The link's own address.
    pub fn link_local(&self) -> Option<&Address> {
        self.all.iter().find(|known| known.is_assigned() && is_link_local(&known.address))
    }
}

impl V6 {
    /// `EINVAL` for what is no address of a host, `EEXIST` for one that is there, `ENOBUFS` where there are too many.
    pub fn add_address(&mut self, mut address: Address) -> Result<()> {
        let ip = address.address;
        let is_host = !ip.is_unspecified() && !ip.is_loopback() && !ip.is_multicast();
        if !is_host || ip.to_ipv4_mapped().is_some() || address.prefix > 128 {
            return Err(EINVAL);
        }
        if self.addresses.get(&ip).is_some() {
            return Err(EEXIST);
        }
        let all = &mut self.addresses.all;
        if all.len() >= MAX_ADDRESSES || all.reserve_fallibly(1).is_err() {
            return Err(ENOBUFS);
        }
        address.number = self.numbers.intern(Scoped::on(ip, DEVICE)).ok_or(ENOBUFS)?;
        all.push(address);
        if !address.is_automatic {
            // What a router says of its prefix it says itself.
            self.routes.add_prefix(ip, address.prefix, FOREVER);
        }
        self.plan();
        Ok(())
    }

    /// `EADDRNOTAVAIL` for one that is not there.
    pub fn remove_address(&mut self, ip: &Ipv6Addr) -> Result<()> {
        let at = self.addresses.all.iter().position(|known| known.address == *ip).ok_or(EADDRNOTAVAIL)?;
        let gone = self.addresses.all.remove(at);
        let is_beside = |known: &Address| {
            known.prefix == gone.prefix && super::routes::is_in(&known.address, ip, gone.prefix)
        };
        if !gone.is_automatic && !self.addresses.all.iter().any(is_beside) {
            self.routes.remove_prefix(ip, gone.prefix);
        }
        let group = solicited_node(ip);
        if !self.addresses.all.iter().any(|known| solicited_node(&known.address) == group) {
            self.memberships.leave(&group);
        }
        self.plan();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(own: &[&str], to: &str) -> Option<Ipv6Addr> {
        let all = own.iter().map(|text| Address::given(text.parse().unwrap(), 64)).collect();
        Addresses { all, now: 0 }.source_to(&to.parse().unwrap()).map(|one| one.address)
    }

    #[test]
    fn the_source_is_the_one_that_rfc_6724_chooses() {
        let own = ["fe80::1", "2001:db8:1::1", "fd00::1", "2001:db8:2::1"];
        for (to, wanted) in [
            ("fe80::9", "fe80::1"),
            ("ff02::1", "fe80::1"),
            ("2001:db8:2::9", "2001:db8:2::1"),
            ("2001:db8:1:0:ffff::", "2001:db8:1::1"),
            ("fd00:1::1", "fd00::1"),
            ("fd00::1", "fd00::1"),
            ("ff0e::1", "2001:db8:1::1"),
        ] {
            let got = chosen(&own, to).unwrap();
            let is_global_group = to == "ff0e::1" && got.segments()[0] == 0x2001;
            assert!(got == wanted.parse::<Ipv6Addr>().unwrap() || is_global_group, "{to}: {got}");
        }
        assert_eq!(chosen(&["fe80::1"], "2001:db8::1"), Some("fe80::1".parse().unwrap()), "better than none");
        assert_eq!(chosen(&[], "2001:db8::1"), None);
    }

    #[test]
    fn addresses_that_are_deprecated_or_not_ours_yet_do_not_begin_conversations() {
        let given = |text: &str| Address::given(text.parse().unwrap(), 64);
        let old = Address { preferred_until: 5, ..given("2001:db8::1") };
        let asked = Address::tentative("2001:db8::2".parse().unwrap(), 64, 0);
        let all = Vec::from([old, asked, given("2001:db9::1")]);
        let to = "2001:db8::9".parse().unwrap();
        let source = |now| Addresses { all: all.clone(), now }.source_to(&to).unwrap().address;
        assert_eq!((source(4), source(5)), (old.address, given("2001:db9::1").address));
    }
}
