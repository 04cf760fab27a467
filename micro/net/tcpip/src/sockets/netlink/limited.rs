// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What programs may change in a kernel without interfaces of theirs: the loopback interface.

use super::super::interface_flags::IFF_UP;
use super::super::ioctl::{Interface, interfaces};
use super::answer::attribute;
use super::{NLM_F_EXCL, NLM_F_REPLACE, RTM_DELADDR, RTM_DELLINK, RTM_NEWADDR, RTM_NEWLINK, RTM_SETLINK};
use crate::stack::{Net, Stack};
use abi::{Result, errno::*};
use alloc::sync::Arc;
use api_socket::Caller;
use core::net::Ipv4Addr;

/// Does what a request of an administrator asks; `EPERM`: it is no request that this network knows.
pub(super) fn change(net: &Arc<Net>, _: &Caller<'_>, kind: u16, flags: u16, request: &[u8]) -> Result<()> {
    // Of an interface that is there both say the same (rtnetlink(7)).
    match if kind == RTM_SETLINK { RTM_NEWLINK } else { kind } {
        RTM_NEWLINK if net.look(|s| changes_nothing(s, request)) => Ok(()),
        RTM_NEWLINK if net.look(|s| s.ip.lo.can_change) => net.act(|s, _| set_link(s, request)),
        RTM_NEWLINK if mtu_of_loopback(request).is_some() => {
            let mtu = mtu_of_loopback(request).ok_or(EINVAL)?;
            net.act(|stack, _| stack.set_loopback_mtu(mtu.into()))
        }
        // No interface comes or goes.
        RTM_DELLINK => {
            let is_there =
                net.look(|s| interfaces(s).any(|interface| super::answer::is_asked_for(request, &interface)));
            Err(if is_there { EOPNOTSUPP } else { ENODEV })
        }
        RTM_NEWADDR | RTM_DELADDR => {
            let replaces = flags & (NLM_F_REPLACE | NLM_F_EXCL) == NLM_F_REPLACE;
            match net.look(|s| change_address(s, kind == RTM_NEWADDR, request)) {
                Err(EEXIST) if replaces => Ok(()),
                changed => changed,
            }
        }
        _ => Err(EPERM),
    }
}

/// Whether RTM_NEWLINK asks an interface to be as it is: `ip link set lo up`, which scripts say to be sure.
fn changes_nothing(stack: &Stack, request: &[u8]) -> bool {
    // struct ifinfomsg behind the header, and no attributes.
    let Some([_, index, flags, change]) =
        request.get(16..32).and_then(|info| info.as_chunks::<4>().0.as_array())
    else {
        return false;
    };
    let (flags, change) = (u32::from_ne_bytes(*flags), u32::from_ne_bytes(*change));
    let is_one = |interface: &Interface| interface.index.to_ne_bytes() == *index;
    let is_so = |interface: Interface| (interface.flags ^ flags) & change == 0;
    request.len() == 32 && interfaces(stack).find(is_one).is_some_and(is_so)
}

/// RTM_NEWLINK that asks the loopback interface for another MTU, and for nothing else.
fn mtu_of_loopback(request: &[u8]) -> Option<u32> {
    const IFLA_MTU: u16 = 4;
    let info = request.get(16..32)?;
    let index = i32::from_ne_bytes(*info[4..].first_chunk()?);
    let change = u32::from_ne_bytes(*info[12..].first_chunk()?);
    let is_alone = index == crate::multicast::LOOPBACK && change == 0 && request.len() == 32 + 8;
    let value: &[u8; 4] = attribute(request, 32, &[IFLA_MTU]).filter(|_| is_alone)?.first_chunk()?;
    Some(u32::from_ne_bytes(*value))
}

/// RTM_NEWLINK of a network whose loopback interface is all it has: it may be brought up, and down again.
fn set_link(stack: &mut Stack, request: &[u8]) -> Result<()> {
    let Some([_, index, flags, change]) =
        request.get(16..32).and_then(|info| info.as_chunks::<4>().0.as_array())
    else {
        return Err(EINVAL);
    };
    let (flags, change) = (u32::from_ne_bytes(*flags), u32::from_ne_bytes(*change));
    if i32::from_ne_bytes(*index) != crate::multicast::LOOPBACK {
        return Err(ENODEV);
    }
    if let Some(mtu) = mtu_of_loopback(request) {
        return stack.set_loopback_mtu(mtu.into());
    }
    // Other flags, and other attributes, would be another interface's.
    if change & !IFF_UP != 0 || request.len() > 32 {
        return Err(EOPNOTSUPP);
    }
    if change != 0 {
        stack.ip.lo.set_up(flags & IFF_UP != 0);
    }
    Ok(())
}

/// RTM_NEWADDR and RTM_DELADDR. The device's address is the host's to give; the loopback takes those of IPv4.
fn change_address(stack: &mut Stack, adds: bool, request: &[u8]) -> Result<()> {
    const IFA_ADDRESS: u16 = 1;
    const IFA_LOCAL: u16 = 2;
    const AF_INET: u8 = 2;
    // struct ifaddrmsg behind the header: family, prefix, flags, scope, index.
    let &[family, prefix, _, _, ref index @ ..] = request.get(16..24).ok_or(EINVAL)? else {
        return Err(EINVAL);
    };
    let index = index.try_into().map_or(0, i32::from_ne_bytes);
    if !interfaces(stack).any(|interface| interface.index == index) {
        return Err(ENODEV);
    }
    if family != AF_INET || index != crate::multicast::LOOPBACK {
        return Err(EPERM);
    }
    let address = attribute(request, 24, &[IFA_LOCAL]).or_else(|| attribute(request, 24, &[IFA_ADDRESS]));
    let address: [u8; 4] = address.and_then(|bytes| bytes.get(..4)?.try_into().ok()).ok_or(EINVAL)?;
    // A network whose loopback is all it has begins without the address that it gets with going up.
    let is_usual = (Ipv4Addr::from(address), prefix) == (Ipv4Addr::LOCALHOST, 8);
    match adds {
        true if is_usual && !stack.ip.lo.has_address => {
            stack.ip.lo.has_address = true;
            Ok(())
        }
        true => stack.ip.local.add(address.into(), prefix),
        false => stack.ip.local.remove(address.into(), prefix),
    }
}
