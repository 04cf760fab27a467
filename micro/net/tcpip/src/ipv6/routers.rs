// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Routers' advertisements (RFC 4861 6.3) and the addresses that are made of them (RFC 4862 5.5).
//!
//! Not heeded: hop limits and timers of neighbour discovery, which stay Linux' defaults, DNS servers (RFC 8106) and preferences of
//! routers (RFC 4191).

use super::addresses::{Address, FOREVER};
use super::discovery::{self, Envelope, HOPS, PrefixInformation, RouterAdvertisement};
use super::numbers::Scoped;
use super::time::SECOND;
use super::{ALL_ROUTERS, DEVICE, V6, wire};
use crate::ip::Ip;
use crate::neighbour::Learned;
use core::net::Ipv6Addr;

/// RFC 4862 5.5.3 (e): whoever lies about lifetimes shortens none below this.
const LEAST_VALID: u64 = 2 * 3600 * SECOND;
/// Asked so often, so long after each other (RFC 4861 10).
pub(super) const SOLICITATIONS: u8 = 3;
pub(super) const SOLICITATION_NS: u64 = 4 * SECOND;

fn until(now: u64, seconds: u32) -> u64 {
    if seconds == u32::MAX { FOREVER } else { now + u64::from(seconds) * SECOND }
}

impl Ip {
    /// An advertisement came in. That of a stranger, of another link or of a machine whose host said all is ignored.
    pub(super) fn router_advertised(&mut self, now: u64, message: &[u8], envelope: &Envelope) {
        let Some(v6) = self.v6.as_mut().filter(|v6| v6.is_automatic) else { return };
        let Some(said) = RouterAdvertisement::parse(message, envelope) else { return };
        v6.deadlines.solicitation = None;
        let router = envelope.source;
        if said.lifetime > 0 {
            // One more than are remembered is passed over.
            let _ = v6.add_router(router, until(now, said.lifetime.into()));
        } else {
            v6.routes.remove_router(&router);
        }
        if let Some(mtu) = said.mtu {
            v6.routes.set_mtu(mtu as usize);
        }
        for prefix in said.prefixes.iter().flatten() {
            v6.heed(now, prefix);
        }
        v6.plan();
        let number = v6.numbers.intern(Scoped::on(router, DEVICE));
        if let (Some(link), Some(number)) = (said.link, number) {
            self.learn(now, number, Some(link), Learned { is_answer: false, overrides: true, creates: true });
        }
        self.join_solicited(now);
    }

    /// Asks routers to speak.
    pub(super) fn solicit_routers(&mut self, now: u64) {
        let Some(v6) = &self.v6 else { return };
        let Some(source) = v6.addresses.link_local().map(|own| own.address) else { return };
        let message = discovery::router_solicitation(Some(v6.mac));
        self.send_control(now, &source, &ALL_ROUTERS, HOPS, message.bytes());
    }
}

impl V6 {
    fn heed(&mut self, now: u64, said: &PrefixInformation) {
        let is_nobodys =
            said.prefix.is_multicast() || wire::is_link_local(&said.prefix) || said.prefix.is_loopback();
        if is_nobodys || said.length > 128 {
            return;
        }
        if said.is_on_link {
            match said.valid {
                0 => self.routes.remove_prefix(&said.prefix, said.length),
                valid => self.routes.add_prefix(said.prefix, said.length, until(now, valid)),
            }
        }
        // Of Ethernet the interface's part has 64 bits (RFC 2464 4).
        if said.is_autonomous && said.length == 64 && said.preferred <= said.valid {
            self.make_address(now, said);
        }
    }

    /// RFC 4862 5.5.3 (d) and (e).
    fn make_address(&mut self, now: u64, said: &PrefixInformation) {
        let own = said.prefix.to_bits() >> 64 << 64 | u128::from(wire::eui64(self.mac));
        let own = Ipv6Addr::from_bits(own);
        let (valid, preferred) = (until(now, said.valid), until(now, said.preferred));
        match self.addresses.get_mut(&own) {
            Some(known) if known.is_automatic => {
                let is_longer = valid > known.valid_until || valid > now + LEAST_VALID;
                if is_longer {
                    known.valid_until = valid;
                } else if known.valid_until > now + LEAST_VALID {
                    known.valid_until = now + LEAST_VALID;
                }
                known.preferred_until = preferred;
            }
            Some(_) => {}
            None if said.valid == 0 => {}
            None => {
                let address = Address {
                    preferred_until: preferred,
                    valid_until: valid,
                    is_automatic: true,
                    ..Address::tentative(own, said.length, now)
                };
                // One more than the device may have is not made.
                let _ = self.add_address(address);
            }
        }
    }
}
