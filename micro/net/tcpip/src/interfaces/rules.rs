// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Rules (`ip rule`): which table of routes a packet is looked up in.

use super::routes::{self, TABLE_DEFAULT, TABLE_LOCAL, TABLE_MAIN, mask};
use abi::{Errno, Result, errno::*};
use alloc::vec::Vec;
use api_alloc::Reserve;
use api_netdev::Name;
use core::net::Ipv4Addr;

/// Rules of one stack at most.
pub const MAX_RULES: usize = 512;
/// FR_ACT_*.
pub const TO_TABLE: u8 = 1;
pub const GOTO: u8 = 2;
pub const NOP: u8 = 3;
pub const BLACKHOLE: u8 = 6;
pub const UNREACHABLE: u8 = 7;
pub const PROHIBIT: u8 = 8;
/// FIB_RULE_INVERT.
pub const INVERT: u32 = 2;
/// FIB_RULE_IIF_DETACHED and FIB_RULE_OIF_DETACHED: there is no interface with that name.
pub const INCOMING_IS_NOT_THERE: u32 = 8;
pub const OUTGOING_IS_NOT_THERE: u32 = 0x10;

/// One rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rule {
    pub priority: u32,
    pub from: Option<(Ipv4Addr, u8)>,
    pub to: Option<(Ipv4Addr, u8)>,
    pub tos: u8,
    pub incoming: Option<Name>,
    pub outgoing: Option<Name>,
    pub mark: u32,
    pub mark_mask: u32,
    pub table: u32,
    pub action: u8,
    pub flags: u32,
    /// Routes with a prefix that is no longer do not count; `u32::MAX`: all do.
    pub suppressed_prefix: u32,
    pub protocol: u8,
}

impl Rule {
    pub const fn usual(priority: u32, table: u32) -> Rule {
        Rule {
            priority,
            from: None,
            to: None,
            tos: 0,
            incoming: None,
            outgoing: None,
            mark: 0,
            mark_mask: 0,
            table,
            action: TO_TABLE,
            flags: 0,
            suppressed_prefix: u32::MAX,
            protocol: routes::PROTOCOL_KERNEL,
        }
    }

    fn fits(&self, packet: &Question) -> bool {
        let holds = |network: Option<(Ipv4Addr, u8)>, address: Ipv4Addr| {
            network.is_none_or(|(own, prefix)| (own.to_bits() ^ address.to_bits()) & mask(prefix) == 0)
        };
        let is_it = holds(self.from, packet.from)
            && holds(self.to, packet.to)
            && (self.tos == 0 || self.tos == packet.tos)
            && self.incoming.is_none_or(|name| packet.incoming == Some(name))
            && self.outgoing.is_none_or(|name| packet.outgoing == Some(name))
            && (self.mark ^ packet.mark) & self.mark_mask == 0;
        is_it != (self.flags & INVERT != 0)
    }
}

/// A packet whose way is looked for.
#[derive(Clone, Copy, Debug)]
pub struct Question {
    pub to: Ipv4Addr,
    /// Unspecified, where it has none yet.
    pub from: Ipv4Addr,
    pub tos: u8,
    pub mark: u32,
    /// `lo` for the machine's own packets.
    pub incoming: Option<Name>,
    pub outgoing: Option<Name>,
    /// Index of `outgoing`; 0: any.
    pub by: u32,
}

/// All of them, by priority; of one priority in the order of their coming.
pub struct Rules(Vec<Rule>);

impl Rules {
    /// Those that every Linux has.
    pub fn new() -> Result<Rules> {
        let mut all = Vec::new();
        all.reserve_fallibly(3).map_err(|_| ENOMEM)?;
        all.push(Rule::usual(0, TABLE_LOCAL));
        all.push(Rule::usual(32_766, TABLE_MAIN));
        all.push(Rule::usual(32_767, TABLE_DEFAULT));
        Ok(Rules(all))
    }

    pub fn iter(&self) -> impl Iterator<Item = &Rule> {
        self.0.iter()
    }

    /// The priority of a rule that names none: before the second one.
    pub fn next_priority(&self) -> u32 {
        self.0.get(1).map_or(0, |second| second.priority.saturating_sub(1))
    }

    /// RTM_NEWRULE. `EEXIST` for one that is there, where `is_exclusive`.
    pub fn add(&mut self, rule: Rule, is_exclusive: bool) -> Result<()> {
        if is_exclusive && self.0.iter().any(|known| Rule { protocol: rule.protocol, ..*known } == rule) {
            return Err(EEXIST);
        }
        if self.0.len() >= MAX_RULES || self.0.reserve_fallibly(1).is_err() {
            return Err(ENOBUFS);
        }
        let at = self.0.partition_point(|known| known.priority <= rule.priority);
        self.0.insert(at, rule);
        Ok(())
    }

    /// RTM_DELRULE: the first one that fits. `ENOENT` without one.
    pub fn remove(&mut self, is_it: impl Fn(&Rule) -> bool) -> Result<Rule> {
        let at = self.0.iter().position(is_it).ok_or(ENOENT)?;
        Ok(self.0.remove(at))
    }

    /// The route that a packet takes, or the error of its sender.
    pub fn look_up(
        &self,
        routes: &routes::Routes,
        packet: &Question,
    ) -> core::result::Result<routes::Route, Errno> {
        for rule in self.0.iter().filter(|rule| rule.fits(packet)) {
            match rule.action {
                TO_TABLE => {}
                UNREACHABLE => return Err(ENETUNREACH),
                PROHIBIT => return Err(EACCES),
                BLACKHOLE => return Err(EINVAL),
                _ => continue,
            }
            let Some(route) = routes.look_up(rule.table, packet.to, packet.tos, packet.by) else { continue };
            let is_suppressed =
                rule.suppressed_prefix != u32::MAX && u32::from(route.prefix) <= rule.suppressed_prefix;
            if route.kind == routes::THROW || is_suppressed {
                continue;
            }
            return match route.refusal() {
                Some(error) => Err(error),
                None => Ok(*route),
            };
        }
        Err(ENETUNREACH)
    }
}
