// SPDX-License-Identifier: Apache-2.0 OR MIT
//! RTM_NEWROUTE and RTM_DELROUTE (rtnetlink(7)), with the checks of Linux' `fib_create_info`.

use super::change::{NLM_F_APPEND, NLM_F_CREATE, attributes, number, v4};
use super::message::{Attributes, Form};
use super::*;
use crate::interfaces::Interfaces;
use crate::interfaces::routes::{self, Manner, Route, Wanted, mask};

const RTA_MULTIPATH: u16 = 9;
const RTA_METRICS: u16 = 8;
const RTA_PRIORITY: u16 = 6;
const RTA_VIA: u16 = 18;
const RTA_ENCAP: u16 = 22;
const RTA_NH_ID: u16 = 30;
const RTAX_MTU: u16 = 2;
const RTNH_F_ONLINK: u32 = 4;
const RTN_MAX: u8 = 11;
/// Of `struct rtmsg`.
const RTMSG: usize = 12;
const RT_SCOPE_NOWHERE: u8 = 255;
const AF_INET: u8 = 2;

/// Linux' `rtm_ipv4_policy`.
pub(super) const POLICY: [(u16, Form); 20] = [
    (route::RTA_DST, Form::AtLeast(4)),
    (2, Form::AtLeast(4)),
    (3, Form::AtLeast(4)),
    (route::RTA_OIF, Form::AtLeast(4)),
    (route::RTA_GATEWAY, Form::AtLeast(4)),
    (RTA_PRIORITY, Form::AtLeast(4)),
    (route::RTA_PREFSRC, Form::AtLeast(4)),
    (RTA_METRICS, Form::Nested),
    (RTA_MULTIPATH, Form::AtLeast(8)),
    (11, Form::AtLeast(4)),
    (route::RTA_TABLE, Form::AtLeast(4)),
    (16, Form::AtLeast(4)),
    (21, Form::AtLeast(2)),
    (RTA_ENCAP, Form::Nested),
    (25, Form::AtLeast(4)),
    (27, Form::AtLeast(1)),
    (28, Form::AtLeast(2)),
    (29, Form::AtLeast(2)),
    (RTA_NH_ID, Form::AtLeast(4)),
    (RTA_VIA, Form::AtMost(usize::MAX)),
];

/// Reads what a request says of a route.
fn read(request: &[u8]) -> Result<Wanted> {
    let &[family, prefix, from_length, tos, table, protocol, scope, kind, ref flags @ ..] =
        request.get(16..16 + RTMSG).ok_or(EINVAL)?
    else {
        return Err(EINVAL);
    };
    if family != AF_INET {
        return Err(EOPNOTSUPP);
    }
    if prefix > 32 || from_length > 0 || tos & !0x1c != 0 {
        return Err(EINVAL);
    }
    if kind > RTN_MAX {
        return Err(EINVAL);
    }
    let mut route = Route {
        table: table.into(),
        to: Ipv4Addr::UNSPECIFIED,
        prefix,
        tos,
        metric: 0,
        kind,
        scope,
        protocol,
        gateway: None,
        interface: 0,
        source: None,
        mtu: 0,
        is_onlink: number(flags)? & RTNH_F_ONLINK != 0,
    };
    for (kind, data) in attributes(request, RTMSG, &POLICY)? {
        match kind {
            route::RTA_DST => route.to = v4(data)?,
            route::RTA_OIF => route.interface = number(data)?,
            route::RTA_GATEWAY => route.gateway = Some(v4(data)?).filter(|via| !via.is_unspecified()),
            RTA_PRIORITY => route.metric = number(data)?,
            route::RTA_PREFSRC => route.source = Some(v4(data)?).filter(|from| !from.is_unspecified()),
            route::RTA_TABLE => route.table = number(data)?,
            RTA_METRICS => {
                for (kind, data) in Attributes(data) {
                    if kind == RTAX_MTU {
                        route.mtu = number(data)?;
                    }
                }
            }
            RTA_MULTIPATH | RTA_VIA | RTA_ENCAP | RTA_NH_ID => return Err(EOPNOTSUPP),
            _ => {}
        }
    }
    if route.table == 0 {
        route.table = routes::TABLE_MAIN;
    }
    if route.to.to_bits() & !mask(prefix) != 0 {
        return Err(EINVAL);
    }
    Ok(Wanted {
        route,
        has_kind: kind != 0,
        has_scope: scope != RT_SCOPE_NOWHERE,
        has_protocol: protocol != 0,
        has_metric: route.metric != 0,
    })
}

/// Whether a new route leads somewhere.
pub(in crate::sockets) fn check(
    all: &Interfaces,
    is_own: impl Fn(Ipv4Addr) -> bool,
    route: &mut Route,
) -> Result<()> {
    match route.kind {
        routes::UNICAST => {}
        routes::BLACKHOLE | routes::UNREACHABLE | routes::PROHIBIT | routes::THROW => {
            if route.gateway.is_some() || route.interface != 0 {
                return Err(EINVAL);
            }
            return Ok(());
        }
        // The kernel's own to make, here.
        routes::LOCAL | routes::BROADCAST => return Err(EOPNOTSUPP),
        _ => return Err(EINVAL),
    }
    if route.scope >= routes::SCOPE_HOST {
        return Err(EINVAL);
    }
    if route.source.is_some_and(|source| !is_own(source)) {
        return Err(EINVAL);
    }
    if let Some(gateway) = route.gateway {
        if route.scope >= routes::SCOPE_LINK || is_own(gateway) {
            return Err(EINVAL);
        }
        if route.is_onlink {
            let interface = all.get(route.interface)?;
            return if interface.is_up() { Ok(()) } else { Err(ENETDOWN) };
        }
        let near = all.routes.look_up(routes::TABLE_MAIN, gateway, 0, route.interface);
        let near = near.filter(|near| near.gateway.is_none() && near.kind == routes::UNICAST);
        let near = near.or_else(|| {
            all.routes.look_up(route.table, gateway, 0, route.interface).filter(|near| near.gateway.is_none())
        });
        if let Some(near) = near {
            route.interface = near.interface;
            return Ok(());
        }
        let is_down = route.interface != 0 && !all.get(route.interface)?.is_up();
        return Err(if is_down { ENETDOWN } else { ENETUNREACH });
    }
    if route.interface == 0 {
        return Err(ENODEV);
    }
    let interface = all.get(route.interface)?;
    let is_loopback = matches!(interface.kind, crate::interfaces::Kind::Loopback);
    if is_loopback || interface.is_up() { Ok(()) } else { Err(ENETDOWN) }
}

pub(super) fn change(net: &Arc<Net>, adds: bool, flags: u16, request: &[u8]) -> Result<()> {
    let wanted = read(request)?;
    let manner = Manner {
        creates: flags & NLM_F_CREATE != 0,
        replaces: flags & NLM_F_REPLACE != 0,
        is_exclusive: flags & NLM_F_EXCL != 0,
        appends: flags & NLM_F_APPEND != 0,
    };
    set(net, adds, &wanted, manner)
}

/// Adds or deletes a route.
pub(in crate::sockets) fn set(net: &Arc<Net>, adds: bool, wanted: &Wanted, manner: Manner) -> Result<()> {
    net.act(|stack, _| {
        stack.interfaces_mut(net)?;
        let ip = &mut stack.ip;
        let mut route = wanted.route;
        if route.kind == 0 {
            route.kind = routes::UNICAST;
        }
        if adds {
            let all = ip.interfaces.as_ref().ok_or(ENOMEM)?;
            check(all, |address| ip.is_own(address), &mut route)?;
        }
        let all = ip.interfaces.as_mut().ok_or(ENOMEM)?;
        let done = match adds {
            true => all.routes.change(route, manner).map(|_| all.tell_route(&route, true)),
            false => all.routes.remove(wanted).map(|gone| all.tell_route(&gone, false)),
        };
        ip.follow_interfaces();
        done
    })
}
