// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What is due: addresses become ours, routers are asked, reports are sent, lifetimes end.

use super::addresses::{FOREVER, State};
use super::routers::{SOLICITATION_NS, SOLICITATIONS};
use super::{DEVICE, V6, wire};
use crate::ip::Ip;
use crate::stack::Stack;

pub const SECOND: u64 = 1_000_000_000;
/// How long others have to say that an address is theirs (RFC 4861 10, RETRANS_TIMER; RFC 4862 5.1, one probe).
const PROBE_NS: u64 = SECOND;
/// More than a device has.
pub(super) const MAX_ADDRESSES: usize = 64;

#[derive(Default)]
pub struct Deadlines {
    /// The first of all.
    next: Option<u64>,
    /// The next question for routers, and how many were asked.
    pub(super) solicitation: Option<(u64, u8)>,
}

impl V6 {
    /// Something changed that has a time.
    pub(super) fn plan(&mut self) {
        let of_address = |one: &super::addresses::Address| {
            let asked = match one.state {
                State::Tentative { at, .. } => at,
                _ => FOREVER,
            };
            let preferred = Some(one.preferred_until).filter(|at| *at > self.addresses.now);
            asked.min(one.valid_until).min(preferred.unwrap_or(FOREVER))
        };
        let addresses = self.addresses.all.iter().map(of_address).min();
        let others = [
            addresses,
            Some(self.routes.next_deadline()),
            self.memberships.report_at,
            self.deadlines.solicitation.map(|(at, _)| at),
        ];
        self.deadlines.next = others.into_iter().flatten().min().filter(|at| *at != FOREVER);
    }
}

impl Ip {
    #[inline]
    pub(crate) fn deadline6(&self) -> Option<u64> {
        self.v6.as_ref().and_then(|v6| v6.deadlines.next)
    }

    /// Does what is due.
    pub(crate) fn settle6(&mut self, now: u64) {
        let Some(v6) = &mut self.v6 else { return };
        if v6.deadlines.next.is_none_or(|at| at > now) {
            return;
        }
        v6.addresses.now = now;
        v6.routes.expire(now);
        while let Some(gone) =
            v6.addresses.all.iter().find(|one| one.valid_until <= now).map(|one| one.address)
        {
            // It is there.
            let _ = v6.remove_address(&gone);
        }
        for at in 0..MAX_ADDRESSES {
            self.ask_on(now, at);
        }
        let Some(v6) = &mut self.v6 else { return };
        if v6.memberships.report_at.is_some_and(|at| at <= now) {
            self.report_groups(now);
        }
        let Some(v6) = &mut self.v6 else { return };
        if let Some((at, count)) = v6.deadlines.solicitation
            && at <= now
        {
            let next = (count + 1 < SOLICITATIONS).then_some((now + SOLICITATION_NS, count + 1));
            v6.deadlines.solicitation = next;
            self.solicit_routers(now);
        }
        if let Some(v6) = &mut self.v6 {
            v6.plan();
        }
    }

    /// The next step with a tentative address (RFC 4862 5.4).
    fn ask_on(&mut self, now: u64, place: usize) {
        let Some(v6) = &mut self.v6 else { return };
        let Some(one) = v6.addresses.all.get_mut(place) else { return };
        let address = one.address;
        match one.state {
            State::Tentative { at, is_asked: false } if at <= now => {
                one.state = State::Tentative { at: now + PROBE_NS, is_asked: true };
                self.probe(now, &address);
            }
            State::Tentative { at, is_asked: true } if at <= now => {
                one.state = State::Assigned;
                if wire::is_link_local(&address) && v6.is_automatic {
                    v6.deadlines.solicitation = Some((now, 0));
                }
                self.announce(now, &address);
            }
            _ => {}
        }
    }
}

impl Stack {
    /// Forgets numbers of addresses that nothing here names any more. To be called when no packet is at work.
    #[cold]
    pub(crate) fn sweep_numbers(&mut self) {
        // What waits there has numbers in it, and is soon done.
        if !self.ip.loopback.is_empty() {
            return;
        }
        let Some(mut v6) = self.ip.v6.take() else { return };
        let numbers = &mut v6.numbers;
        self.tcp.each_address(&mut |address| numbers.mark(address));
        self.udp.each_address(&mut |address| numbers.mark(address));
        self.raw.each_address(&mut |address| numbers.mark(address));
        self.reassembly.each_address(&mut |address| numbers.mark(address));
        self.ip.groups.each_address(&mut |address| numbers.mark(address));
        self.ip.neighbours.each_address(DEVICE, &mut |address| numbers.mark(address));
        v6.addresses.all.iter().for_each(|one| numbers.mark(one.number));
        v6.routes.numbers().for_each(|number| numbers.mark(number));
        v6.memberships.numbers().for_each(|number| numbers.mark(number));
        numbers.sweep();
        self.ip.v6 = Some(v6);
    }
}
