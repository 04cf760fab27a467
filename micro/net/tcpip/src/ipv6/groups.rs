// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Groups that the device is in, and the reports that switches and routers hear of them (MLDv2, RFC 3810). Queries of the first
//! version are answered in the second, which routers that speak it alone ignore (RFC 3810 8.3.2 would have both).

use super::numbers::Scoped;
use super::time::SECOND;
use super::wire::solicited_node;
use super::{ALL_NODES, DEVICE, V6};
use crate::ip::Ip;
use alloc::vec::Vec;
use api_alloc::Reserve;
use core::net::{Ipv4Addr, Ipv6Addr};

/// Where reports go (RFC 3810 5.2.14).
const ALL_MLD_ROUTERS: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 0x16);
const REPORT: u8 = 143;
pub(super) const QUERY: u8 = 130;
/// Groups at most: all that one report of Ethernet's size names.
const MAX_GROUPS: usize = 64;
/// Reports of a change (RFC 3810 9.1 and 9.11).
const REPORTS: u8 = 2;
const REPORT_NS: u64 = SECOND;

const IS_EXCLUDE: u8 = 2;
const TO_INCLUDE: u8 = 3;
const TO_EXCLUDE: u8 = 4;

struct Membership {
    group: Ipv6Addr,
    number: Ipv4Addr,
    /// Sockets that are in it, and the stack itself.
    members: u32,
    /// Reports of the last change that are due yet. Without members it is left.
    reports: u8,
}

#[derive(Default)]
pub struct Memberships {
    all: Vec<Membership>,
    /// When the next report is due, and whether it is an answer.
    pub(super) report_at: Option<u64>,
    is_asked: bool,
}

impl Memberships {
    pub(super) fn has_number(&self, group: Ipv4Addr) -> bool {
        self.all.iter().any(|one| one.number == group && one.members > 0)
    }

    pub(super) fn has(&self, group: &Ipv6Addr) -> Option<Ipv4Addr> {
        self.all.iter().find(|one| one.group == *group && one.members > 0).map(|one| one.number)
    }

    pub(super) fn numbers(&self) -> impl Iterator<Item = Ipv4Addr> {
        self.all.iter().map(|one| one.number)
    }

    pub fn each(&self) -> impl Iterator<Item = (Ipv6Addr, u32)> {
        self.all.iter().filter(|one| one.members > 0).map(|one| (one.group, one.members))
    }

    /// One member less.
    pub(super) fn leave(&mut self, group: &Ipv6Addr) {
        let Some(one) = self.all.iter_mut().find(|one| one.group == *group && one.members > 0) else {
            return;
        };
        one.members -= 1;
        if one.members == 0 {
            one.reports = REPORTS;
        }
    }
}

impl V6 {
    /// One member more; whether there is room.
    fn join(&mut self, now: u64, group: Ipv6Addr) -> bool {
        let all = &mut self.memberships.all;
        if let Some(one) = all.iter_mut().find(|one| one.group == group) {
            one.reports = if one.members == 0 { REPORTS } else { one.reports };
            one.members += 1;
        } else {
            if all.len() >= MAX_GROUPS || all.reserve_fallibly(1).is_err() {
                return false;
            }
            let Some(number) = self.numbers.intern(Scoped::on(group, DEVICE)) else { return false };
            self.memberships.all.push(Membership { group, number, members: 1, reports: REPORTS });
        }
        self.memberships.report_at = Some(self.memberships.report_at.map_or(now, |at| at.min(now)));
        self.plan();
        true
    }

    /// RFC 3810 5.1: a querier wants to know, after a while of its choice.
    pub(super) fn queried(&mut self, now: u64, message: &[u8]) {
        if message.len() < 24 {
            return;
        }
        let code = u16::from_be_bytes([message[4], message[5]]);
        // RFC 3810 5.1.3: beyond 32,767 it is a number with an exponent.
        let milliseconds = match code {
            0..0x8000 => u64::from(code),
            code => u64::from(code & 0xfff | 0x1000) << ((code >> 12 & 7) + 3),
        };
        let delay = self.random() % (milliseconds.clamp(1, 60_000) * 1_000_000);
        let at = now + delay;
        self.memberships.report_at = Some(self.memberships.report_at.map_or(at, |known| known.min(at)));
        self.memberships.is_asked = true;
        self.plan();
    }
}

impl Ip {
    /// The device takes what is sent to the group from now on; whether there is room.
    pub fn join6(&mut self, now: u64, group: Ipv6Addr) -> bool {
        self.v6.as_mut().is_some_and(|v6| v6.join(now, group))
    }

    pub fn leave6(&mut self, now: u64, group: &Ipv6Addr) {
        if let Some(v6) = &mut self.v6 {
            v6.memberships.leave(group);
            v6.memberships.report_at = Some(now);
            v6.plan();
        }
    }

    /// The groups in which the device's addresses are asked for.
    pub(super) fn join_solicited(&mut self, now: u64) {
        let Some(v6) = &mut self.v6 else { return };
        for at in 0..v6.addresses.all.len() {
            let group = solicited_node(&v6.addresses.all[at].address);
            if v6.memberships.has(&group).is_none() {
                // Without room the address is asked for in vain.
                let _ = v6.join(now, group);
            }
        }
    }

    /// Sends what is due.
    pub(super) fn report_groups(&mut self, now: u64) {
        let Some(v6) = &mut self.v6 else { return };
        let is_asked = core::mem::take(&mut v6.memberships.is_asked);
        let mut message = Vec::new();
        // Type, a byte that is nothing, checksum, as much again, and how many records there are.
        if message.reserve_fallibly(8 + MAX_GROUPS * 20).is_err() {
            v6.memberships.report_at = Some(now + REPORT_NS);
            return;
        }
        message.extend_from_slice(&[REPORT, 0, 0, 0, 0, 0, 0, 0]);
        let mut count = 0u16;
        for one in &mut v6.memberships.all {
            // All nodes, and what does not leave the interface, are never told of (RFC 3810 6).
            let is_told = one.group != ALL_NODES && one.group.octets()[1] & 15 > 1;
            let kind = match (one.reports, one.members) {
                (0, 0) => continue,
                (0, _) if !is_asked => continue,
                (0, _) => IS_EXCLUDE,
                (_, 0) => TO_INCLUDE,
                (_, _) => TO_EXCLUDE,
            };
            one.reports = one.reports.saturating_sub(1);
            if is_told {
                count += 1;
                message.extend_from_slice(&[kind, 0, 0, 0]);
                message.extend_from_slice(&one.group.octets());
            }
        }
        message[6..8].copy_from_slice(&count.to_be_bytes());
        v6.memberships.all.retain(|one| one.members > 0 || one.reports > 0);
        let is_more_due = v6.memberships.all.iter().any(|one| one.reports > 0);
        let delay = v6.random() % REPORT_NS;
        v6.memberships.report_at = is_more_due.then_some(now + delay);
        let source = v6.addresses.link_local().map_or(Ipv6Addr::UNSPECIFIED, |own| own.address);
        if count > 0 {
            self.send_with_alert(now, &source, &ALL_MLD_ROUTERS, &message);
        }
    }
}
