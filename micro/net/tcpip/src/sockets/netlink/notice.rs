// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Messages about what the table of interfaces has: of dumps, and to those who listen to groups (RTNLGRP_*).

use super::message::{self, AddressOf, Reply};
use super::{
    RTM_DELADDR, RTM_DELLINK, RTM_DELROUTE, RTM_DELRULE, RTM_NEWADDR, RTM_NEWLINK, RTM_NEWROUTE, RTM_NEWRULE,
    route,
};
use crate::interfaces::routes::Route;
use crate::interfaces::rules::Rule;
use crate::interfaces::{Address, Interface};
use crate::sockets::ioctl;
use abi::Result;
use alloc::vec::Vec;

/// Groups: RTNLGRP_LINK, RTNLGRP_IPV4_IFADDR, RTNLGRP_IPV4_ROUTE, RTNLGRP_IPV4_RULE, RTNLGRP_NEIGH.
pub const LINK: u32 = 1;
pub const ADDRESS: u32 = 5;
pub const ROUTE: u32 = 7;
pub const RULE: u32 = 8;
/// Nobody asked.
const UNASKED: Reply = Reply { seq: 0, port: 0, is_part: false };
const AF_INET: u8 = 2;

pub fn link(interface: &Interface, is_new: bool) -> Result<Vec<u8>> {
    let kind = if is_new { RTM_NEWLINK } else { RTM_DELLINK };
    message::link(kind, &ioctl::shown(interface), UNASKED)
}

pub fn shown(index: u32, address: &Address) -> AddressOf {
    AddressOf {
        index,
        local: address.local,
        peer: address.peer,
        prefix: address.prefix,
        scope: address.scope,
        broadcast: address.broadcast,
        label: address.label,
        is_secondary: false,
        has_no_route: address.has_no_route,
        metric: address.metric,
    }
}

pub fn address(index: u32, address: &Address, is_new: bool) -> Result<Vec<u8>> {
    let kind = if is_new { RTM_NEWADDR } else { RTM_DELADDR };
    message::address(kind, &shown(index, address), UNASKED)
}

pub fn route(route: &Route, is_new: bool) -> Result<Vec<u8>> {
    let kind = if is_new { RTM_NEWROUTE } else { RTM_DELROUTE };
    route_message(kind, route, UNASKED)
}

pub fn route_message(kind: u16, of: &Route, reply: Reply) -> Result<Vec<u8>> {
    const RTA_METRICS: u16 = 8;
    const RTAX_MTU: u16 = 2;
    const RTNH_F_ONLINK: u32 = 4;
    let flags = if of.is_onlink { RTNH_F_ONLINK } else { 0 };
    let mut message = reply
        .message(kind)
        .put(&[
            AF_INET,
            of.prefix,
            0,
            of.tos,
            u8::try_from(of.table).unwrap_or(super::rules::RT_TABLE_COMPAT),
            of.protocol,
            of.scope,
            of.kind,
        ])
        .put(&flags.to_ne_bytes())
        .attribute(route::RTA_TABLE, &of.table.to_ne_bytes());
    if of.prefix > 0 {
        message = message.attribute(route::RTA_DST, &of.to.octets());
    }
    if of.metric > 0 {
        message = message.attribute(route::RTA_PRIORITY, &of.metric.to_ne_bytes());
    }
    if of.mtu > 0 {
        let mut metric = [0; 8];
        metric[..2].copy_from_slice(&8u16.to_ne_bytes());
        metric[2..4].copy_from_slice(&RTAX_MTU.to_ne_bytes());
        metric[4..].copy_from_slice(&of.mtu.to_ne_bytes());
        message = message.attribute(RTA_METRICS, &metric);
    }
    for (name, address) in [(route::RTA_PREFSRC, of.source), (route::RTA_GATEWAY, of.gateway)] {
        if let Some(address) = address {
            message = message.attribute(name, &address.octets());
        }
    }
    if of.interface != 0 {
        message = message.attribute(route::RTA_OIF, &of.interface.to_ne_bytes());
    }
    message.finish()
}

pub fn rule(rule: &Rule, is_new: bool) -> Result<Vec<u8>> {
    rule_message(rule, is_new, UNASKED)
}

pub fn rule_message(rule: &Rule, is_new: bool, reply: Reply) -> Result<Vec<u8>> {
    use super::rules::*;
    let length = |network: Option<(core::net::Ipv4Addr, u8)>| network.map_or(0, |(_, prefix)| prefix);
    let table = u8::try_from(rule.table).unwrap_or(RT_TABLE_COMPAT);
    // struct fib_rule_hdr.
    let mut message = reply
        .message(if is_new { RTM_NEWRULE } else { RTM_DELRULE })
        .put(&[AF_INET, length(rule.to), length(rule.from), rule.tos, table, 0, 0, rule.action])
        .put(&rule.flags.to_ne_bytes())
        .attribute(FRA_TABLE, &rule.table.to_ne_bytes())
        .attribute(FRA_SUPPRESS_PREFIXLEN, &rule.suppressed_prefix.to_ne_bytes())
        .attribute(FRA_PROTOCOL, &[rule.protocol]);
    for (name, interface) in [(FRA_IIFNAME, rule.incoming), (FRA_OIFNAME, rule.outgoing)] {
        if let Some(interface) = interface {
            message = message.attribute(name, &interface.field()[..=interface.as_bytes().len()]);
        }
    }
    if rule.priority > 0 {
        message = message.attribute(FRA_PRIORITY, &rule.priority.to_ne_bytes());
    }
    if rule.mark_mask != 0 {
        if rule.mark != 0 {
            message = message.attribute(FRA_FWMARK, &rule.mark.to_ne_bytes());
        }
        message = message.attribute(FRA_FWMASK, &rule.mark_mask.to_ne_bytes());
    }
    for (name, network) in [(FRA_DST, rule.to), (FRA_SRC, rule.from)] {
        if let Some((address, _)) = network.filter(|(_, prefix)| *prefix > 0) {
            message = message.attribute(name, &address.octets());
        }
    }
    message.finish()
}
