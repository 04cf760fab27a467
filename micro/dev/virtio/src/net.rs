// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The network device (virtio 1.2, 5.1) behind `api-netdev`: checksums and TCP segmentation left to the device both
//! ways, mergeable receive buffers, a doorbell a burst, and interrupts only when asked for.
//!
//! Packets are received into the caller's buffers and transmitted from them; nothing is copied here.

use crate::{Area, Device, Queue, feature};
use abi::Result;
use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;
use api_lock::SpinLock;
use api_netdev::{BUFFER_SIZE, Buffer, HEADROOM, Incoming, Info, NetDevice, Outgoing};
use api_sched::DeferredWork;

/// Feature bits (5.1.3).
const F_CSUM: u64 = 1 << 0;
const F_GUEST_CSUM: u64 = 1 << 1;
const F_MTU: u64 = 1 << 3;
const F_MAC: u64 = 1 << 5;
const F_GUEST_TSO4: u64 = 1 << 7;
const F_GUEST_TSO6: u64 = 1 << 8;
const F_HOST_TSO4: u64 = 1 << 11;
const F_HOST_TSO6: u64 = 1 << 12;
const F_MRG_RXBUF: u64 = 1 << 15;
/// Legacy devices: header and frame may share a descriptor (6.3 of version 1.0).
const F_ANY_LAYOUT: u64 = 1 << 27;

/// Header flags and types (5.1.6).
const HDR_NEEDS_CSUM: u8 = 1;
const HDR_DATA_VALID: u8 = 2;
const HDR_GSO_TCPV4: u8 = 1;
const HDR_GSO_TCPV6: u8 = 4;
/// With the number of buffers; legacy devices without mergeable buffers leave that out.
const HEADER: usize = 12;
const HEADER_SHORT: usize = 10;

/// Descriptors a queue: 512 KiB of receive buffers, which hold a window of TCP.
const QUEUE_SIZE: u16 = 256;
/// Receive buffers until the first packet comes: enough for the largest with its headers, without which Firecracker receives
/// none (65,562 bytes). A machine that nobody talks to yet need not have them all.
const FIRST_BUFFERS: usize = 65_562usize.div_ceil(BUFFER_SIZE);
/// References to payload in a packet: 64 KiB in pages would be 16.
const FRAGMENTS: usize = 17;
/// Largest IP packet.
const MAX_PACKET: usize = 65_535;
/// Smallest MTU that is believed (RFC 791).
const MTU_LEAST: usize = 576;

struct Receive {
    queue: Queue,
    /// Buffers the device has, by token.
    slots: Vec<Option<Buffer>>,
    free: Vec<u16>,
    /// A packet came.
    is_used: bool,
}

struct Transmit {
    queue: Queue,
    slots: Vec<Option<Outgoing>>,
    free: Vec<u16>,
    /// Header and frame go in descriptors of their own.
    split: bool,
}

/// A network device.
pub struct Network {
    info: Info,
    header: usize,
    mergeable: bool,
    receive: SpinLock<Receive>,
    transmit: SpinLock<Transmit>,
    device: Device,
    started: SpinLock<bool>,
}

/// Agrees with the device; it starts to work with [`NetDevice::on_interrupt`]. Without `offloads` checksums are complete and
/// frames have one buffer, both ways.
pub fn start(device: Device, offloads: bool) -> Result<Arc<Network>> {
    let plain = F_MTU | F_MAC | F_MRG_RXBUF | F_ANY_LAYOUT | feature::EVENT_IDX;
    let whole = F_GUEST_TSO4 | F_GUEST_TSO6;
    let left = if offloads { F_CSUM | F_GUEST_CSUM | F_HOST_TSO4 | F_HOST_TSO6 | whole } else { 0 };
    let wanted = plain | left;
    let mut features = device.begin(wanted)?;
    if features & F_MRG_RXBUF == 0 && features & whole != 0 {
        // Large packets would need large buffers.
        features = device.begin(wanted & !whole)?;
    }
    let mut mac = [0; 6];
    if features & F_MAC != 0 {
        for (i, byte) in mac.iter_mut().enumerate() {
            *byte = device.config_u8(i);
        }
    } else {
        api_plat::entropy(&mut mac);
        mac = api_netdev::local_address(mac);
    }
    let mtu = if features & F_MTU != 0 { usize::from(device.config_u16(10)) } else { 1500 };
    let mergeable = features & F_MRG_RXBUF != 0;
    let header = if mergeable || features & feature::VERSION_1 != 0 { HEADER } else { HEADER_SHORT };
    let checksum = features & F_CSUM != 0;
    // Frames of one piece must fit a buffer.
    let most = BUFFER_SIZE - header - 14;
    let info = Info {
        mac,
        mtu: mtu.clamp(MTU_LEAST, most),
        queues: 1,
        transmit_checksum: checksum,
        segmentation: if checksum && features & F_HOST_TSO4 != 0 { MAX_PACKET } else { 0 },
        segments_ipv6: features & F_HOST_TSO6 != 0,
        fragments: FRAGMENTS,
        headroom: header,
        interrupts: true,
    };
    let receive = device.queue(0, QUEUE_SIZE, features)?;
    let mut transmit = device.queue(1, QUEUE_SIZE, features)?;
    transmit.disable_interrupts();
    let split = features & (feature::VERSION_1 | F_ANY_LAYOUT) == 0;
    Ok(Arc::new(Network {
        info,
        header,
        mergeable,
        receive: SpinLock::new(Receive {
            slots: (0..receive.size()).map(|_| None).collect(),
            free: (0..receive.size()).collect(),
            queue: receive,
            is_used: false,
        }),
        transmit: SpinLock::new(Transmit {
            slots: (0..transmit.size()).map(|_| None).collect(),
            free: (0..transmit.size()).collect(),
            queue: transmit,
            split,
        }),
        device,
        started: SpinLock::new(false),
    }))
}

impl Transmit {
    /// Takes back what the device is done with.
    fn reclaim(&mut self, heads: &mut Vec<Buffer>) {
        if !self.queue.has_used() {
            return;
        }
        while let Some(used) = self.queue.pop() {
            if let Some(packet) = self.slots.get_mut(used.token).and_then(Option::take) {
                self.free.push(used.token as u16);
                heads.push(packet.head);
            }
        }
        self.queue.disable_interrupts();
    }

    /// Gives the first packet to the device if it is one piece that leaves nothing to the device, as most are; false: it may be
    /// given as any other.
    fn add_plain(&mut self, packets: &mut VecDeque<Outgoing>, header: usize) -> bool {
        let Some(packet) = packets.front_mut() else { return false };
        let is_plain =
            packet.fragments.is_empty() && packet.checksum.is_none() && packet.segmentation.is_none();
        if !is_plain || self.split || header != HEADER || self.queue.room() == 0 {
            return false;
        }
        let Some(slot) = self.free.last().copied() else { return false };
        let Some(to) = packet.head.prepend(HEADER) else { return false };
        if let Some(to) = to.first_chunk_mut() {
            *to = [0; HEADER];
        }
        let area = Area::of(packet.head.bytes());
        // SAFETY: the head is kept in the slot, unchanged, until the device answered; moving the packet does not move its
        // memory.
        let added = unsafe { self.queue.add_one(area, false, usize::from(slot)) };
        if added.is_err() {
            packet.head.trim_front(HEADER);
            return false;
        }
        self.free.pop();
        self.slots[usize::from(slot)] = packets.pop_front();
        true
    }

    /// Gives one packet to the device; gives it back when there is no room.
    fn add(&mut self, mut packet: Outgoing, header: usize) -> core::result::Result<(), Outgoing> {
        let needed = 2 + packet.fragments.len();
        if self.queue.room() < needed || packet.fragments.len() > FRAGMENTS {
            return Err(packet);
        }
        let Some(slot) = self.free.pop() else { return Err(packet) };
        let (checksum, segmentation, is_ipv6) = (packet.checksum, packet.segmentation, packet.is_ipv6());
        let Some(to) = packet.head.prepend(header) else {
            self.free.push(slot);
            return Err(packet);
        };
        to.fill(0);
        if let Some(c) = checksum {
            to[0] = HDR_NEEDS_CSUM;
            to[6..8].copy_from_slice(&c.start.to_le_bytes());
            to[8..10].copy_from_slice(&c.offset.to_le_bytes());
        }
        if let Some(s) = segmentation {
            to[1] = if is_ipv6 { HDR_GSO_TCPV6 } else { HDR_GSO_TCPV4 };
            to[2..4].copy_from_slice(&s.header_length.to_le_bytes());
            to[4..6].copy_from_slice(&s.segment_size.to_le_bytes());
        }
        let mut areas = [Area { physical: 0, length: 0 }; FRAGMENTS + 2];
        let mut count = 0;
        let mut put = |bytes: &[u8]| {
            areas[count] = Area::of(bytes);
            count += 1;
        };
        if self.split {
            let (first, rest) = packet.head.bytes().split_at(header);
            put(first);
            put(rest);
        } else {
            put(packet.head.bytes());
        }
        packet.fragments.iter().for_each(|f| put(f.bytes()));
        // SAFETY: head and fragments are kept in the slot, unchanged, until the device answered; moving the packet does
        // not move the memory it owns or shares.
        match unsafe { self.queue.add(&areas[..count], &[], usize::from(slot)) } {
            Ok(()) => {
                self.slots[usize::from(slot)] = Some(packet);
                Ok(())
            }
            Err(_) => {
                self.free.push(slot);
                packet.head.trim_front(header);
                Err(packet)
            }
        }
    }
}

impl Receive {
    /// The next buffer the device filled, with that many bytes valid.
    fn pop(&mut self) -> Option<Buffer> {
        let used = self.queue.pop()?;
        let mut buffer = self.slots.get_mut(used.token)?.take()?;
        self.free.push(used.token as u16);
        buffer.set_window(0..used.written as usize);
        Some(buffer)
    }

    /// The next packet; `Err` for one that makes no sense.
    fn packet(&mut self, header: usize, mergeable: bool) -> Option<core::result::Result<Incoming, ()>> {
        let mut first = self.pop()?;
        if first.len() < header {
            return Some(Err(()));
        }
        let bytes = first.bytes();
        let flags = bytes[0];
        let count = if mergeable { usize::from(u16::from_le_bytes([bytes[10], bytes[11]])) } else { 1 };
        first.trim_front(header);
        let mut more = Vec::new();
        for _ in 1..count {
            // All buffers of a packet become used at once (5.1.6.4): one that is missing is the device's fault.
            match self.pop() {
                Some(buffer) => more.push(buffer),
                None => return Some(Err(())),
            }
        }
        Some(Ok(Incoming { first, more, checksum_valid: flags & (HDR_NEEDS_CSUM | HDR_DATA_VALID) != 0 }))
    }
}

impl NetDevice for Network {
    fn info(&self) -> &Info {
        &self.info
    }

    fn transmit(&self, _queue: usize, packets: &mut VecDeque<Outgoing>) -> usize {
        debug_assert!(HEADROOM.device >= self.header);
        let mut transmit = self.transmit.lock();
        let mut count = 0;
        loop {
            if transmit.add_plain(packets, self.header) {
                count += 1;
                continue;
            }
            let Some(packet) = packets.pop_front() else { break };
            if let Err(packet) = transmit.add(packet, self.header) {
                packets.push_front(packet);
                break;
            }
            count += 1;
        }
        count
    }

    fn flush(&self, _queue: usize) {
        self.transmit.lock().queue.notify();
    }

    fn reclaim(&self, _queue: usize, heads: &mut Vec<Buffer>) {
        self.transmit.lock().reclaim(heads);
    }

    fn receive(&self, _queue: usize, packets: &mut VecDeque<Incoming>, most: usize) -> usize {
        let mut receive = self.receive.lock();
        if !receive.queue.has_used() {
            return 0;
        }
        receive.queue.disable_interrupts();
        receive.is_used = true;
        let mut count = 0;
        while count < most {
            match receive.packet(self.header, self.mergeable) {
                Some(Ok(packet)) => packets.push_back(packet),
                Some(Err(())) => {}
                None => break,
            }
            count += 1;
        }
        count
    }

    fn wanted(&self, _queue: usize) -> usize {
        let receive = self.receive.lock();
        let free = receive.free.len();
        // What is not free is with the device.
        if receive.is_used {
            free
        } else {
            FIRST_BUFFERS.saturating_sub(receive.slots.len() - free).min(free)
        }
    }

    fn refill(&self, _queue: usize, buffers: &mut Vec<Buffer>) {
        let mut receive = self.receive.lock();
        while let Some(slot) = receive.free.pop() {
            let Some(mut buffer) = buffers.pop() else {
                receive.free.push(slot);
                break;
            };
            let area = Area::of_mut(buffer.memory_mut());
            // SAFETY: the buffer is kept in the slot, untouched, until the device answered; moving it does not move its
            // memory.
            match unsafe { receive.queue.add_one(area, true, usize::from(slot)) } {
                Ok(()) => receive.slots[usize::from(slot)] = Some(buffer),
                Err(_) => {
                    receive.free.push(slot);
                    buffers.push(buffer);
                    break;
                }
            }
        }
        receive.queue.notify();
    }

    fn arm_interrupt(&self, _queue: usize) -> bool {
        self.receive.lock().queue.enable_interrupts()
    }

    fn on_interrupt(&self, work: DeferredWork) {
        let mut started = self.started.lock();
        if *started {
            return;
        }
        *started = true;
        if let Err(e) = self.device.on_interrupt(work) {
            log::error!("virtio network: no interrupt ({e:?}): packets arrive only when the program calls");
        }
        self.device.start();
    }
}
