// SPDX-License-Identifier: Apache-2.0 OR MIT
//! RTM_NEWROUTE and RTM_DELROUTE (rtnetlink(7)), with the checks of Linux' `fib_create_info`.

use super::change::{NLM_F_APPEND, NLM_F_CREATE, attributes, number, v4};
use super::message::{Attributes, Form};
use super::*;
use crate::interfaces::routes::{self, Manner, Route, Wanted, mask};
use crate::interfaces::{Interfaces, LOOPBACK};
use crate::ip::Ip;

const RTA_MULTIPATH: u16 = 9;
const RTA_METRICS: u16 = 8;
const RTA_PRIORITY: u16 = 6;
const RTA_VIA: u16 = 18;
const RTA_ENCAP: u16 = 22;
const RTA_NH_ID: u16 = 30;
const RTAX_MTU: u16 = 2;
const RTAX_MAX: u16 = 17;
/// Linux takes larger ones for this (`ip_metrics_convert`).
const MAX_ROUTE_MTU: u32 = 65_535 - 15;
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
fn read(request: &[u8], adds: bool) -> Result<Wanted> {
    match request.get(16) {
        Some(&AF_INET) => {}
        _ => return Err(EOPNOTSUPP),
    }
    let &[_, prefix, from_length, tos, table, protocol, scope, kind, ref flags @ ..] =
        request.get(16..16 + RTMSG).ok_or(EINVAL)?
    else {
        return Err(EINVAL);
    };
    let all = attributes(request, RTMSG, &POLICY)?;
    // The low bits of the type of service are ECN's.
    if prefix > 32 || from_length > 0 || tos & 3 != 0 || kind > RTN_MAX {
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
    for (kind, data) in all {
        match kind {
            route::RTA_DST => route.to = v4(data)?,
            route::RTA_OIF => route.interface = number(data)?,
            route::RTA_GATEWAY => route.gateway = Some(v4(data)?).filter(|via| !via.is_unspecified()),
            RTA_PRIORITY => route.metric = number(data)?,
            route::RTA_PREFSRC => route.source = Some(v4(data)?).filter(|from| !from.is_unspecified()),
            route::RTA_TABLE => route.table = number(data)?,
            RTA_METRICS if adds => {
                for (kind, data) in Attributes(data) {
                    if kind > RTAX_MAX {
                        return Err(EINVAL);
                    }
                    if kind == RTAX_MTU {
                        let bytes: &[u8; 4] = data.as_array().ok_or(EINVAL)?;
                        route.mtu = u32::from_ne_bytes(*bytes).min(MAX_ROUTE_MTU);
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

/// The least scope of a route of that kind (Linux' `fib_props`); `None`: there is none of that kind.
fn least_scope(kind: u8) -> Option<u8> {
    match kind {
        0 | 10.. => None,
        routes::LOCAL => Some(routes::SCOPE_HOST),
        routes::BROADCAST | routes::ANYCAST => Some(routes::SCOPE_LINK),
        _ => Some(routes::SCOPE_UNIVERSE),
    }
}

/// Whether a new route leads somewhere (Linux' `fib_create_info`).
fn check(ip: &Ip, route: &mut Route) -> Result<()> {
    let all = ip.interfaces.as_ref().ok_or(ENOMEM)?;
    if least_scope(route.kind).is_none_or(|least| least > route.scope) {
        return Err(EINVAL);
    }
    match route.kind {
        routes::BLACKHOLE | routes::UNREACHABLE | routes::PROHIBIT | routes::THROW => {
            return if route.gateway.is_some() || route.interface != 0 { Err(EINVAL) } else { Ok(()) };
        }
        routes::UNICAST => check_hop(ip, all, route)?,
        // The kernel's own to make, here.
        _ => return Err(EOPNOTSUPP),
    }
    if route.source.is_some_and(|source| !ip.is_own(source)) { Err(EINVAL) } else { Ok(()) }
}

/// The next hop of a new route; its interface is found where it is not named.
fn check_hop(ip: &Ip, all: &Interfaces, route: &mut Route) -> Result<()> {
    let check_up = |index: u32| {
        let is_up = if index == LOOPBACK { ip.lo.is_up } else { all.get(index)?.is_up() };
        if is_up { Ok(()) } else { Err(ENETDOWN) }
    };
    if route.scope > routes::SCOPE_HOST {
        return Err(EINVAL);
    }
    let Some(gateway) = route.gateway else {
        if route.scope == routes::SCOPE_HOST {
            return all.get(route.interface).map(drop);
        }
        // A neighbour needs no gateway that is one.
        return if route.is_onlink { Err(EINVAL) } else { check_up(route.interface) };
    };
    if route.scope == routes::SCOPE_HOST {
        return Err(EINVAL);
    }
    if route.is_onlink {
        if route.scope >= routes::SCOPE_LINK {
            return Err(EINVAL);
        }
        check_up(route.interface)?;
        return if ip.is_own(gateway) || ip.is_broadcast(gateway) { Err(EINVAL) } else { Ok(()) };
    }
    // It has to be nearer than what the route leads to.
    let scope = (route.scope + 1).max(routes::SCOPE_LINK);
    let is_near = |near: &Route| near.scope >= scope;
    let look_up = |table| all.routes.look_up_where(table, gateway, 0, route.interface, is_near);
    let in_own_table = Some(route.table).filter(|table| *table != routes::TABLE_MAIN).and_then(look_up);
    let near = match in_own_table {
        Some(near) => Some(near),
        None if ip.is_own(gateway) => {
            let own = all.interface_of(gateway).unwrap_or(LOOPBACK);
            if route.interface == 0 || route.interface == own {
                route.interface = own;
                return check_up(own);
            }
            None
        }
        None if ip.is_broadcast(gateway) && scope <= routes::SCOPE_LINK => return Err(EINVAL),
        None => look_up(routes::TABLE_MAIN).or_else(|| look_up(routes::TABLE_DEFAULT)),
    };
    let near = near.filter(|near| near.kind != routes::THROW).ok_or(ENETUNREACH)?;
    if let Some(error) = near.refusal() {
        return Err(error);
    }
    route.interface = near.interface;
    check_up(near.interface)
}

pub(super) fn change(net: &Arc<Net>, adds: bool, flags: u16, request: &[u8]) -> Result<()> {
    let wanted = read(request, adds)?;
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
        if adds {
            check(ip, &mut route)?;
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
