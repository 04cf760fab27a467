// SPDX-License-Identifier: Apache-2.0 OR MIT
//! RTM_NEWRULE and RTM_DELRULE (`ip rule`).

use super::change::{attributes, number, v4};
use super::message::Form;
use super::*;
use crate::interfaces::rules::{self, Rule};
use api_netdev::Name;

pub const FRA_DST: u16 = 1;
pub const FRA_SRC: u16 = 2;
pub const FRA_IIFNAME: u16 = 3;
const FRA_GOTO: u16 = 4;
pub const FRA_PRIORITY: u16 = 6;
pub const FRA_FWMARK: u16 = 10;
const FRA_SUPPRESS_IFGROUP: u16 = 13;
pub const FRA_SUPPRESS_PREFIXLEN: u16 = 14;
pub const FRA_TABLE: u16 = 15;
pub const FRA_FWMASK: u16 = 16;
pub const FRA_OIFNAME: u16 = 17;
pub const FRA_PROTOCOL: u16 = 21;
/// What a table with a larger number is called in the header.
pub const RT_TABLE_COMPAT: u8 = 252;
/// Linux' `fib_rule_policy`, as far as it is of IPv4.
const POLICY: [(u16, Form); 21] = [
    (FRA_IIFNAME, Form::Text(15)),
    (FRA_GOTO, Form::AtLeast(4)),
    (FRA_PRIORITY, Form::AtLeast(4)),
    (FRA_FWMARK, Form::AtLeast(4)),
    (11, Form::AtLeast(4)),
    (12, Form::AtLeast(8)),
    (FRA_SUPPRESS_IFGROUP, Form::AtLeast(4)),
    (FRA_SUPPRESS_PREFIXLEN, Form::AtLeast(4)),
    (FRA_TABLE, Form::AtLeast(4)),
    (FRA_FWMASK, Form::AtLeast(4)),
    (FRA_OIFNAME, Form::Text(15)),
    (19, Form::AtLeast(1)),
    (20, Form::AtLeast(8)),
    (FRA_PROTOCOL, Form::AtLeast(1)),
    (22, Form::AtLeast(1)),
    (23, Form::AtLeast(4)),
    (24, Form::AtLeast(4)),
    (25, Form::AtLeast(1)),
    (26, Form::AtLeast(4)),
    (27, Form::AtLeast(2)),
    (28, Form::AtLeast(2)),
];
/// Of `struct fib_rule_hdr`.
const HEADER: usize = 12;
const AF_INET: u8 = 2;

/// A rule as a request says it, and whether it says a priority and a table.
struct Asked {
    rule: Rule,
    has_priority: bool,
    has_table: bool,
}

fn read(request: &[u8]) -> Result<Asked> {
    let &[family, to_length, from_length, tos, table, _, _, action, ref flags @ ..] =
        request.get(16..16 + HEADER).ok_or(EINVAL)?
    else {
        return Err(EINVAL);
    };
    match family {
        AF_INET => {}
        // Those of IPv6 are not changed.
        10 => return Err(EOPNOTSUPP),
        _ => return Err(EAFNOSUPPORT),
    }
    if to_length > 32 || from_length > 32 || tos & !0x1c != 0 {
        return Err(EINVAL);
    }
    let mut rule = Rule::usual(0, table.into());
    (rule.tos, rule.action, rule.protocol) = (tos, action, 0);
    rule.flags = number(flags)? & rules::INVERT;
    let (mut has_priority, mut mask_is_said) = (false, false);
    let (mut to, mut from) = (None, None);
    for (kind, data) in attributes(request, HEADER, &POLICY)? {
        match kind {
            FRA_DST => to = Some(v4(data).map_err(|_| EINVAL)?),
            FRA_SRC => from = Some(v4(data).map_err(|_| EINVAL)?),
            FRA_IIFNAME => rule.incoming = Some(Name::label(data)),
            FRA_OIFNAME => rule.outgoing = Some(Name::label(data)),
            FRA_PRIORITY => (rule.priority, has_priority) = (number(data)?, true),
            FRA_FWMARK => rule.mark = number(data)?,
            FRA_FWMASK => (rule.mark_mask, mask_is_said) = (number(data)?, true),
            FRA_TABLE => rule.table = number(data)?,
            FRA_SUPPRESS_PREFIXLEN => rule.suppressed_prefix = number(data)?,
            FRA_PROTOCOL => rule.protocol = data.first().copied().ok_or(ERANGE)?,
            FRA_SUPPRESS_IFGROUP if number(data)? == u32::MAX => {}
            // Rules that lead to others, and those by user, port or protocol.
            FRA_GOTO | FRA_SUPPRESS_IFGROUP | 18..=20 | 22..=24 => return Err(EOPNOTSUPP),
            _ => {}
        }
    }
    // A length without an address is a mistake of the caller's.
    let network = |address: Option<Ipv4Addr>, length: u8| match (address, length) {
        (_, 0) => Ok(None),
        (Some(address), length) => Ok(Some((address, length))),
        (None, _) => Err(EINVAL),
    };
    (rule.to, rule.from) = (network(to, to_length)?, network(from, from_length)?);
    if rule.mark != 0 && !mask_is_said {
        rule.mark_mask = u32::MAX;
    }
    Ok(Asked { has_table: rule.table != 0, rule, has_priority })
}

pub(super) fn change(net: &Arc<Net>, adds: bool, flags: u16, request: &[u8]) -> Result<()> {
    let Asked { mut rule, has_priority, has_table } = read(request)?;
    net.act(|stack, _| {
        stack.change_interfaces(net, |all| {
            if adds {
                match rule.action {
                    // Linux' `fib_empty_table`.
                    rules::TO_TABLE if !has_table => {
                        let is_free = |table: &u32| {
                            !all.routes.has_table(*table)
                                && all.rules.iter().all(|known| known.table != *table)
                        };
                        rule.table = (1..=u32::MAX).find(is_free).ok_or(ENOBUFS)?;
                    }
                    rules::GOTO => return Err(EOPNOTSUPP),
                    // Whoever meets a rule of another sort goes on to the next one.
                    _ => {}
                }
                if !has_priority {
                    rule.priority = all.rules.next_priority();
                }
                all.rules.add(rule, flags & NLM_F_EXCL != 0)?;
                all.tell_rule(&rule, true);
                return Ok(());
            }
            let is_it = |known: &Rule| {
                (!has_priority || known.priority == rule.priority)
                    && (!has_table || known.table == rule.table)
                    && (rule.action == 0 || known.action == rule.action)
                    && (rule.from.is_none() || known.from == rule.from)
                    && (rule.to.is_none() || known.to == rule.to)
                    && (rule.tos == 0 || known.tos == rule.tos)
                    && (rule.incoming.is_none() || known.incoming == rule.incoming)
                    && (rule.outgoing.is_none() || known.outgoing == rule.outgoing)
                    && (rule.mark_mask == 0 || (known.mark, known.mark_mask) == (rule.mark, rule.mark_mask))
                    && (rule.protocol == 0 || known.protocol == rule.protocol)
                    && rule.suppressed_prefix == known.suppressed_prefix.min(rule.suppressed_prefix)
            };
            let gone = all.rules.remove(is_it)?;
            all.tell_rule(&gone, false);
            Ok(())
        })
    })
}
