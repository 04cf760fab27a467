// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Neighbours by rtnetlink(7) (`ip neigh`): the entries of the ARP cache, and those that a program sets.

use super::change::{NLM_F_CREATE, attributes, number, v4};
use super::message::{Form, Reply};
use super::*;
use crate::neighbour::Shown;

const RTM_NEWNEIGH: u16 = 28;
const NDA_DST: u16 = 1;
const NDA_LLADDR: u16 = 2;
const NUD_INCOMPLETE: u16 = 1;
const NUD_REACHABLE: u16 = 2;
const NUD_STALE: u16 = 4;
const NUD_PERMANENT: u16 = 0x80;
/// States that have an address of the link.
const NUD_VALID: u16 = 0xde;
const RTN_UNICAST: u8 = 1;
/// Linux' `nda_policy`.
const POLICY: [(u16, Form); 13] = [
    (NDA_DST, Form::AtMost(32)),
    (NDA_LLADDR, Form::AtMost(32)),
    (3, Form::AtLeast(16)),
    (4, Form::AtLeast(4)),
    (5, Form::AtLeast(2)),
    (6, Form::AtLeast(2)),
    (7, Form::AtLeast(4)),
    (8, Form::AtLeast(4)),
    (9, Form::AtLeast(4)),
    (10, Form::AtLeast(4)),
    (11, Form::AtLeast(4)),
    (12, Form::AtLeast(1)),
    (13, Form::AtLeast(4)),
];
/// Of `struct ndmsg`.
const NDMSG: usize = 12;
const AF_INET: u8 = 2;

/// The dump that a request asks for: of one interface, or of all.
pub(super) fn table(
    stack: &Stack,
    request: &[u8],
    reply: Reply,
    put: &mut dyn FnMut(Vec<u8>) -> Result<()>,
) -> Result<()> {
    let family = request.get(16).copied().unwrap_or(0);
    if !matches!(family, 0 | AF_INET) {
        return Ok(());
    }
    let wanted = request.get(20..24).map_or(Ok(0), number)?;
    stack.ip.neighbours.each(&mut |(index, address), shown| {
        if wanted != 0 && *index != wanted || crate::families::is_v6(*address) {
            return Ok(());
        }
        let (state, mac) = match shown {
            Shown::Incomplete => (NUD_INCOMPLETE, None),
            Shown::Known { mac, is_fresh: true } => (NUD_REACHABLE, Some(mac)),
            Shown::Known { mac, is_fresh: false } => (NUD_STALE, Some(mac)),
            Shown::Permanent(mac) => (NUD_PERMANENT, Some(mac)),
        };
        let [s, t] = state.to_ne_bytes();
        let [a, b, c, d] = index.to_ne_bytes();
        let mut message = reply
            .message(RTM_NEWNEIGH)
            .put(&[AF_INET, 0, 0, 0, a, b, c, d, s, t, 0, RTN_UNICAST])
            .attribute(NDA_DST, &address.octets());
        if let Some(mac) = mac {
            message = message.attribute(NDA_LLADDR, &mac);
        }
        put(message.finish()?)
    })
}

pub(super) fn change(net: &Arc<Net>, adds: bool, flags: u16, request: &[u8]) -> Result<()> {
    let &[family, _, _, _, a, b, c, d, s, t, _, _] = request.get(16..16 + NDMSG).ok_or(EINVAL)? else {
        return Err(EINVAL);
    };
    let (index, state) = (u32::from_ne_bytes([a, b, c, d]), u16::from_ne_bytes([s, t]));
    let (mut to, mut mac) = (None, None);
    for (kind, data) in attributes(request, NDMSG, &POLICY)? {
        match kind {
            NDA_DST => to = Some(data),
            NDA_LLADDR => mac = Some(data),
            _ => {}
        }
    }
    let to = to.ok_or(EINVAL)?;
    if index != 0 {
        net.look(|stack| interfaces(stack).find(|i| i.index as u32 == index)).ok_or(ENODEV)?;
        if adds && mac.is_some_and(|mac: &[u8]| mac.len() < 6) {
            return Err(EINVAL);
        }
    }
    if family != AF_INET {
        return Err(EAFNOSUPPORT);
    }
    let to = v4(to).ok().filter(|to| !crate::families::is_v6(*to)).ok_or(EINVAL)?;
    let mac = mac.and_then(|mac| mac.first_chunk().copied());
    if index == 0 {
        return Err(EINVAL);
    }
    net.act(|stack, now| {
        let known = stack.ip.neighbours.is_there((index, to));
        if !adds {
            return if stack.ip.neighbours.remove((index, to)) { Ok(()) } else { Err(ENOENT) };
        }
        match known {
            true if flags & NLM_F_EXCL != 0 => return Err(EEXIST),
            false if flags & NLM_F_CREATE == 0 => return Err(ENOENT),
            true if flags & NLM_F_REPLACE == 0 && mac.is_some() => return Ok(()),
            _ => {}
        }
        let Some(mac) = mac.filter(|_| state & NUD_VALID != 0) else { return Err(EINVAL) };
        let waiting = stack.ip.neighbours.set(now, (index, to), mac, state & NUD_PERMANENT != 0)?;
        for packet in waiting {
            stack.ip.hand_to_neighbour(now, index, mac, packet);
        }
        Ok(())
    })
}
