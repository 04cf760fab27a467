// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a packet socket is at the moment, under its lock: where it is bound, what it received, and its rings.

use crate::address::LinkAddress;
use crate::capture::{Capture, ETH_P_ALL};
use crate::fanout::Rollovers;
use crate::ring::{Incoming, Placed, Ring, TP_STATUS_COPY, Version};
use abi::{Events, Result, errno::*};
use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;
use api_alloc::Reserve;
use api_fs::Timespec;
use api_socket::filter::Filter;
use api_socket::settings;

/// `tp_status` of a packet whose time was taken when it came in.
const TP_STATUS_TS_SOFTWARE: u32 = 1 << 29;
/// Memberships of one socket; Linux has no bound but memory.
const MAX_MEMBERSHIPS: usize = 1024;

/// What Linux allocates for a packet (SKB_TRUESIZE): its record, and a power of two for the bytes with what is in front of them and
/// behind.
fn memory_of(length: usize) -> usize {
    const RECORD: usize = 256;
    const AROUND: usize = 384;
    RECORD + (length + AROUND).next_power_of_two()
}

/// A packet that waits to be read.
pub struct Packet {
    pub bytes: Vec<u8>,
    /// Its length before the filter cut it.
    pub length: usize,
    pub link_length: usize,
    pub address: LinkAddress,
    pub at: Timespec,
    /// TP_STATUS_* for PACKET_AUXDATA.
    pub status: u32,
    /// Packets that were lost until it came (SO_RXQ_OVFL).
    pub drops: u32,
}

impl Packet {
    fn memory(&self) -> usize {
        memory_of(self.bytes.len())
    }
}

/// `struct packet_mreq`, and how often the socket has it.
struct Membership {
    interface: i32,
    kind: u16,
    length: u16,
    address: [u8; 8],
    count: u32,
}

/// Options of SOL_PACKET that are numbers.
#[derive(Clone, Copy, Default)]
pub struct Options {
    pub version: Version,
    pub reserve: u32,
    pub copy_threshold: i32,
    pub timestamp: i32,
    pub loss: bool,
    pub auxdata: bool,
    pub original_device: bool,
    pub ignore_outgoing: bool,
    pub has_offset: bool,
    pub qdisc_bypass: bool,
}

pub struct State {
    pub is_raw: bool,
    /// ETH_P_* in the machine's order; 0: it receives nothing.
    pub protocol: u16,
    /// Index of the interface that it is bound to; 0: all.
    pub interface: u32,
    pub filter: Option<Arc<Filter>>,
    pub queue: VecDeque<Packet>,
    pub memory: usize,
    pub receive_buffer: usize,
    pub send_buffer: usize,
    /// PACKET_STATISTICS, since somebody asked.
    pub received: u32,
    pub dropped: u32,
    /// All that were lost.
    pub drops: u32,
    pub options: Options,
    /// SO_TIMESTAMP or one of its kind is on.
    pub has_stamps: bool,
    pub receiving: Option<Ring>,
    pub sending: Option<Ring>,
    memberships: Vec<Membership>,
    /// Somebody is to be woken.
    pub is_news: bool,
    /// A timer runs for the block of TPACKET_V3 that is filled.
    pub is_armed: bool,
    /// The group that the socket is in, as PACKET_FANOUT answers it.
    pub fanout: Option<u32>,
    /// Of a member of a group that rolls over.
    pub rollovers: Option<Rollovers>,
}

impl State {
    pub fn new(is_raw: bool, protocol: u16) -> State {
        State {
            is_raw,
            protocol,
            interface: 0,
            filter: None,
            queue: VecDeque::new(),
            memory: 0,
            receive_buffer: settings::RECEIVE_BUFFER[0].get() as usize,
            send_buffer: settings::SEND_BUFFER[0].get() as usize,
            received: 0,
            dropped: 0,
            drops: 0,
            options: Options::default(),
            has_stamps: false,
            receiving: None,
            sending: None,
            memberships: Vec::new(),
            is_news: false,
            is_armed: false,
            fanout: None,
            rollovers: None,
        }
    }

    /// A frame of that kind comes to this socket. Frames that are sent come to those that ask for all protocols alone.
    pub fn wants(&self, capture: &Capture<'_>) -> bool {
        let is_its_protocol = match self.protocol {
            0 => false,
            ETH_P_ALL => !capture.frame.is_outgoing || !self.options.ignore_outgoing,
            protocol => !capture.frame.is_outgoing && protocol == capture.protocol,
        };
        is_its_protocol && [0, capture.frame.interface.index].contains(&self.interface)
    }

    /// A frame that the socket wants. `now_ns` is asked where a block begins.
    pub fn take(&mut self, capture: &Capture<'_>, now_ns: &dyn Fn() -> u64) {
        let Some(kept) = capture.keeps(self.filter.as_deref(), self.is_raw) else { return };
        let (data, link_length) = capture.data(self.is_raw);
        let stamp = if self.has_stamps { TP_STATUS_TS_SOFTWARE } else { 0 };
        let status = capture.status() | stamp;
        let mut packet =
            Incoming { data, kept, link_length, address: capture.address(), at: capture.at, status };
        let (reserve, is_losing) = (self.options.reserve, self.dropped > 0);
        let Some(ring) = &mut self.receiving else {
            packet.status = capture.status();
            return self.queue_copy(&packet);
        };
        let is_copied = self.options.copy_threshold > 0
            && self.memory < self.receive_buffer
            && ring.is_too_small(&packet, reserve);
        if is_copied {
            packet.status |= TP_STATUS_COPY;
        }
        match ring.put(&packet, reserve, is_losing) {
            Placed::Dropped => return self.count_drop(),
            Placed::Stored { is_news } => self.is_news |= is_news,
        }
        if let Some(blocks) = &mut ring.blocks
            && blocks.due.is_none()
        {
            blocks.due = Some(now_ns().saturating_add(blocks.timeout_ns));
        }
        self.received = self.received.wrapping_add(1);
        if is_copied {
            self.push(&packet);
        }
    }

    fn count_drop(&mut self) {
        self.dropped = self.dropped.wrapping_add(1);
        self.drops = self.drops.wrapping_add(1);
        // Whoever waits may make room.
        self.is_news |= self.receiving.is_some();
    }

    /// A packet for recvmsg(2).
    fn queue_copy(&mut self, packet: &Incoming<'_>) {
        if self.memory >= self.receive_buffer || !self.push(packet) {
            return self.count_drop();
        }
        self.received = self.received.wrapping_add(1);
    }

    fn push(&mut self, packet: &Incoming<'_>) -> bool {
        let mut bytes = Vec::new();
        if bytes.reserve_exact_fallibly(packet.kept).is_err() || self.queue.reserve_fallibly(1).is_err() {
            return false;
        }
        bytes.extend_from_slice(&packet.data[..packet.kept]);
        self.memory += memory_of(packet.kept);
        self.queue.push_back(Packet {
            bytes,
            length: packet.data.len(),
            link_length: packet.link_length,
            address: packet.address,
            at: packet.at,
            status: packet.status,
            drops: self.drops,
        });
        self.is_news = true;
        true
    }

    pub fn pop(&mut self) -> Option<Packet> {
        let packet = self.queue.pop_front()?;
        self.memory -= packet.memory();
        Some(packet)
    }

    pub fn push_front(&mut self, packet: Packet) {
        self.memory += packet.memory();
        self.queue.push_front(packet);
    }

    /// The time of the block that is filled may be up.
    pub fn retire(&mut self, now_ns: u64) {
        let is_losing = self.dropped > 0;
        let Some(ring) = &mut self.receiving else { return };
        let Some(blocks) = &mut ring.blocks else { return };
        if blocks.due.is_some_and(|due| due <= now_ns) {
            self.is_news |= blocks.retire(&ring.memory, &ring.request, is_losing);
        }
    }

    /// When [`State::retire`] is to be called.
    pub fn due(&self) -> Option<u64> {
        self.receiving.as_ref()?.blocks.as_ref()?.due
    }

    /// Somebody is to be woken, or a timer set.
    pub fn needs_attention(&self) -> bool {
        self.is_news || !self.is_armed && self.due().is_some()
    }

    /// A packet would not be lost.
    pub fn has_room(&self) -> bool {
        match &self.receiving {
            Some(ring) => ring.has_room(),
            None => self.memory < self.receive_buffer,
        }
    }

    pub fn poll(&self) -> Events {
        let is_readable = !self.queue.is_empty() || self.receiving.as_ref().is_some_and(Ring::is_readable);
        Events::SENDABLE.with(Events::READABLE, is_readable)
    }

    pub fn has_rings(&self) -> bool {
        self.receiving.is_some() || self.sending.is_some()
    }

    pub fn are_rings_mapped(&self) -> bool {
        [&self.receiving, &self.sending].into_iter().flatten().any(Ring::is_mapped)
    }

    /// PACKET_ADD_MEMBERSHIP, of an interface that is there. Every frame of the link comes up in any case: what is joined is counted.
    pub fn join(&mut self, asked: (i32, u16, u16), address: [u8; 8]) -> Result<()> {
        if let Some(known) = self.membership(asked, address) {
            known.count += 1;
            return Ok(());
        }
        if self.memberships.len() >= MAX_MEMBERSHIPS {
            return Err(ENOBUFS);
        }
        self.memberships.reserve_fallibly(1).map_err(|_| ENOBUFS)?;
        let (interface, kind, length) = asked;
        self.memberships.push(Membership { interface, kind, length, address, count: 1 });
        Ok(())
    }

    /// PACKET_DROP_MEMBERSHIP, of one that is not there as well (Linux).
    pub fn leave(&mut self, asked: (i32, u16, u16), address: [u8; 8]) {
        if let Some(known) = self.membership(asked, address) {
            known.count -= 1;
        }
        self.memberships.retain(|membership| membership.count > 0);
    }

    fn membership(&mut self, asked: (i32, u16, u16), address: [u8; 8]) -> Option<&mut Membership> {
        let length = usize::from(asked.2).min(address.len());
        self.memberships.iter_mut().find(|known| {
            (known.interface, known.kind, known.length) == asked
                && known.address[..length] == address[..length]
        })
    }
}
