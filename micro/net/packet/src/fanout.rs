// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Groups of sockets that share frames (packet(7), PACKET_FANOUT): each frame comes to one of them.

use crate::capture::Capture;
use crate::member::Member;
use crate::table::Table;
use abi::{Result, errno::*};
use alloc::sync::Arc;
use alloc::vec::Vec;
use api_alloc::Reserve;
use api_socket::filter::{Filter, environment};

/// How a member is chosen; what is not here chooses the first.
const HASH: u16 = 0;
const BALANCE: u16 = 1;
const CPU: u16 = 2;
const ROLLOVER: u16 = 3;
const RANDOM: u16 = 4;
pub const PROGRAM: u16 = 6;
/// A program of bpf(2), of which there are none: a group without one chooses its first member.
const EBPF: u16 = 7;

/// Flags, as they are in the upper byte of what is asked for.
const FLAG_ROLLOVER: u16 = 0x1000;
const FLAG_UNIQUE: u16 = 0x2000;
const FLAG_IGNORE_OUTGOING: u16 = 0x4000;
const FLAGS: u16 = 0xff00;

/// Most members of a group, and of one whose maker names no number.
const MAX_MEMBERS: u32 = 1 << 16;
const MEMBERS: u32 = 256;

/// `struct tpacket_rollover_stats` of a socket.
#[derive(Clone, Copy, Default)]
pub struct Rollovers {
    pub all: u64,
    pub failed: u64,
}

/// A group.
pub struct Group {
    id: u16,
    kind: u16,
    flags: u16,
    most: u32,
    /// What its members receive, all alike.
    protocol: u16,
    interface: u32,
    members: Vec<Arc<Member>>,
    program: Option<Arc<Filter>>,
    next: usize,
}

impl Group {
    pub fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    pub fn leave(&mut self, socket: &Member) {
        self.members.retain(|member| member.id != socket.id);
    }

    /// Who gets the frame, if the group wants it at all.
    pub fn choose(&mut self, capture: &Capture<'_>) -> Option<&Member> {
        let frame = capture.frame;
        let is_ours = self.members.iter().any(|member| Some(member.id) == frame.sender);
        let is_ignored = frame.is_outgoing && self.flags & FLAG_IGNORE_OUTGOING != 0;
        let count = self.members.len();
        if is_ours || is_ignored || !self.members.first()?.state.lock().wants(capture) {
            return None;
        }
        let index = match self.kind {
            HASH => ((u64::from(flow_hash(capture)) * count as u64) >> 32) as usize,
            BALANCE => {
                self.next = (self.next + 1) % count;
                self.next
            }
            CPU => environment().processor() as usize % count,
            RANDOM => environment().random() as usize % count,
            PROGRAM => {
                // Programs of groups see the packet from the network's header on.
                let answer = |program: &Arc<Filter>| program.answer(&capture.packet(false)) as usize;
                self.program.as_ref().map_or(0, answer) % count
            }
            // ROLLOVER begins with the first, and for QUEUE frames have one queue.
            _ => 0,
        };
        let rolls_over = self.kind == ROLLOVER || self.flags & FLAG_ROLLOVER != 0;
        let index = if rolls_over { self.roll_over(index) } else { index };
        self.members.get(index).map(|socket| &**socket)
    }

    /// The first from this one on that has room.
    fn roll_over(&self, index: usize) -> usize {
        if self.members[index].state.lock().has_room() {
            return index;
        }
        let count = self.members.len();
        let mut others = (1..count).map(|step| (index + step) % count);
        let found = others.find(|other| self.members[*other].state.lock().has_room());
        if let Some(rollovers) = &mut self.members[index].state.lock().rollovers {
            match found {
                Some(_) => rollovers.all += 1,
                None => rollovers.failed += 1,
            }
        }
        found.unwrap_or(index)
    }
}

/// A number that is the same for both ways of a flow.
fn flow_hash(capture: &Capture<'_>) -> u32 {
    let packet = capture.data(false).0;
    let mut hash: u32 = capture.protocol.into();
    let mut mix = |a: &[u8], b: &[u8]| {
        // What is exchanged between the two ways is added, so that the order is nothing.
        let fold =
            |bytes: &[u8]| bytes.iter().fold(0u32, |h, b| (h ^ u32::from(*b)).wrapping_mul(0x0100_0193));
        hash = hash.rotate_left(5) ^ fold(a).wrapping_add(fold(b)).wrapping_mul(0x9e37_79b9);
    };
    let (addresses, header, transport) = match (capture.protocol, packet.len()) {
        (0x0800, 20..) => (12..20, usize::from(packet[0] & 15) * 4, packet[9]),
        (0x86dd, 40..) => (8..40, 40, packet[6]),
        _ => (0..0, packet.len(), 0),
    };
    let addresses = &packet[addresses];
    let (from, to) = addresses.split_at(addresses.len() / 2);
    mix(from, to);
    // Pieces of a datagram have no ports but the first.
    let is_piece = capture.protocol == 0x0800 && packet.len() >= 8 && packet[6] & 0x3f | packet[7] != 0;
    if let Some([a, b, c, d]) = packet.get(header..).and_then(|rest| rest.first_chunk())
        && [6, 17].contains(&transport)
        && !is_piece
    {
        mix(&[*a, *b], &[*c, *d]);
    }
    hash
}

/// PACKET_FANOUT: the socket joins a group, which is made where there is none. `argument` is an `int`, or `struct fanout_args`.
pub fn join(table: &Table, socket: &Arc<Member>, argument: &[u8]) -> Result<()> {
    let (first, most) = match argument {
        [a, b, c, d] => ([*a, *b, *c, *d], 0),
        [a, b, c, d, rest @ ..] => {
            ([*a, *b, *c, *d], u32::from_ne_bytes(rest.try_into().map_err(|_| EINVAL)?))
        }
        _ => return Err(EINVAL),
    };
    let [a, b, c, d] = first;
    let (mut id, asked) = (u16::from_ne_bytes([a, b]), u16::from_ne_bytes([c, d]));
    let (kind, mut flags) = (asked & !FLAGS, asked & FLAGS);
    if kind > EBPF || kind == ROLLOVER && flags & FLAG_ROLLOVER != 0 {
        return Err(EINVAL);
    }
    let mut all = table.all.lock();
    let mut state = socket.state.lock();
    if state.fanout.is_some() {
        return Err(EALREADY);
    }
    if flags & FLAG_UNIQUE != 0 {
        if id != 0 {
            return Err(EINVAL);
        }
        let is_free = |id: &u16| all.groups.iter().all(|group| group.id != *id);
        id = (1..=u16::MAX).find(is_free).ok_or(ENOMEM)?;
        flags &= !FLAG_UNIQUE;
    }
    let (protocol, interface) = (state.protocol, state.interface);
    let index = match all.groups.iter().position(|group| group.id == id) {
        Some(index) => {
            let group = &all.groups[index];
            let is_alike = (group.kind, group.protocol, group.interface) == (kind, protocol, interface);
            if group.flags != flags || ![0, group.most].contains(&most) || !is_alike {
                return Err(EINVAL);
            }
            index
        }
        None if most > MAX_MEMBERS || protocol == 0 => return Err(EINVAL),
        None => {
            all.groups.reserve_fallibly(1).map_err(|_| ENOMEM)?;
            let most = if most == 0 { MEMBERS } else { most };
            let (members, program) = (Vec::new(), None);
            all.groups.push(Group { id, kind, flags, most, protocol, interface, members, program, next: 0 });
            all.groups.len() - 1
        }
    };
    let group = &mut all.groups[index];
    let is_full = group.members.len() as u64 >= u64::from(group.most);
    let joined = match is_full {
        true => Err(ENOSPC),
        false => group.members.reserve_fallibly(1).map_err(|_| ENOMEM),
    };
    if let Err(error) = joined {
        all.groups.retain(|group| !group.is_empty());
        return Err(error);
    }
    group.members.push(socket.clone());
    let rolls_over = kind == ROLLOVER || flags & FLAG_ROLLOVER != 0;
    state.rollovers = rolls_over.then(Rollovers::default);
    state.fanout = Some(u32::from(id) | u32::from(kind) << 16 | u32::from(flags >> 8) << 24);
    Ok(())
}

/// PACKET_FANOUT_DATA: the program of the socket's group. `EINVAL` where it has none.
pub fn set_program(table: &Table, socket: &Member, program: Arc<Filter>) -> Result<()> {
    let old = {
        let mut all = table.all.lock();
        let is_member = |group: &&mut Group| group.members.iter().any(|member| member.id == socket.id);
        let group =
            all.groups.iter_mut().find(is_member).filter(|group| group.kind == PROGRAM).ok_or(EINVAL)?;
        group.program.replace(program)
    };
    drop(old);
    Ok(())
}
