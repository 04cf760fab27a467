// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The network device: a tap or a packet socket with virtio-net headers (checksums and segmentation left to the host both
//! ways), or a stream socket that carries whole frames.
//!
//! Packets leave together, when the stack rings: each is a call of the host now or later, but a client that is woken by the
//! first finds the others without being woken again, and waking is dear. Nothing is copied on the way out. A received
//! packet goes into as many buffers as the one before it took; what does not fit these is copied once.

use crate::frames::{PREFIX, Splitter};
use abi::{Result, errno::*};
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;
use api_alloc::Reserve;
use api_lock::SpinLock;
use api_netdev::{BUFFER_SIZE, Buffer, Incoming, Info, NetDevice, Outgoing};
use api_sched::{DeferredWork, DeferredWorkSlot};
use plat_process::host::{self, IoVec};
use plat_process::{Link, Network as Given, Watch};

/// `struct virtio_net_hdr` (virtio 1.2, 5.1.6), as taps have it by default: without the number of buffers.
const HEADER: usize = 10;
const NEEDS_CSUM: u8 = 1;
const DATA_VALID: u8 = 2;
const GSO_TCPV4: u8 = 1;
const GSO_TCPV6: u8 = 4;

const TUNSETOFFLOAD: u64 = 0x4004_54d0;
const TUNSETVNETHDRSZ: u32 = 0x4004_54d8;
/// TUN_F_CSUM, TUN_F_TSO4, TUN_F_TSO6: the host may leave both to us. Taps that stay keep it, so it is always set, or cleared.
const OFFLOADS: u64 = 1 | 2 | 4;

/// Largest IP packet.
const MAX_PACKET: usize = 65_535;
/// Buffers that the largest packet takes.
const MAX_OF_ONE: usize = (MAX_PACKET + 14).div_ceil(BUFFER_SIZE);
/// Buffers kept for packets to come: several large ones between two refills.
const BUFFERS: usize = 4 * MAX_OF_ONE;
/// Packets and bytes that wait for the doorbell at most: more would let the client idle for longer than waking it takes.
const HELD: usize = 8;
const HELD_BYTES: usize = 16 << 10;
/// References to payload in a packet.
const FRAGMENTS: usize = 17;

struct Receive {
    /// Empty buffers of [`BUFFER_SIZE`].
    buffers: Vec<Buffer>,
    /// Buffers behind the first that the last packet took.
    expected: usize,
    /// What of a packet does not fit those.
    overflow: Box<[u8]>,
    /// Frames of a stream.
    splitter: Option<Splitter>,
    broken: bool,
}

struct Transmit {
    /// Packets that wait for the doorbell.
    held: VecDeque<Outgoing>,
    /// Heads of packets that are gone.
    sent: Vec<Buffer>,
    /// The rest of a frame of which a stream took the first part.
    rest: Vec<u8>,
}

/// A network device.
pub struct Network {
    info: Info,
    fd: i32,
    link: Link,
    watch: Watch,
    receive: SpinLock<Receive>,
    transmit: SpinLock<Transmit>,
}

static DEFERRED_WORK: DeferredWorkSlot = DeferredWorkSlot::new();

/// Prepares the descriptor. Without `offloads` a tap's checksums are complete and its frames have one buffer, both ways; a packet
/// socket's are what other programs of the host make them.
pub fn start(given: Given, offloads: bool) -> Result<Arc<Network>> {
    let Given { link, fd, .. } = given;
    let mut mac = [0; 6];
    match given.mac {
        Some(given) => mac = given,
        None => {
            api_plat::entropy(&mut mac);
            mac = api_netdev::local_address(mac);
        }
    }
    host::set_non_blocking(fd)?;
    if link == Link::Tap {
        let mut size = HEADER as i32;
        // SAFETY: the request reads an int.
        unsafe { host::ioctl(fd, TUNSETVNETHDRSZ, &mut size)? };
        // SAFETY: the request takes a number.
        unsafe {
            host::call(host::IOCTL, [fd as u64, TUNSETOFFLOAD, if offloads { OFFLOADS } else { 0 }, 0, 0, 0])?
        };
    }
    let has_header = link != Link::Stream;
    let offloads = has_header && offloads;
    let info = Info {
        mac,
        // Frames of a stream must fit a buffer.
        mtu: given.mtu.min(if offloads { MAX_PACKET } else { BUFFER_SIZE } - 14),
        queues: 1,
        transmit_checksum: offloads,
        segmentation: if offloads { MAX_PACKET } else { 0 },
        segments_ipv6: offloads,
        fragments: FRAGMENTS,
        headroom: 0,
        interrupts: false,
    };
    let splitter = if link == Link::Stream { Some(Splitter::new()?) } else { None };
    let mut overflow = Vec::new();
    let room = if has_header { MAX_PACKET + 14 } else { 0 };
    overflow.reserve_exact_fallibly(room).map_err(|_| ENOMEM)?;
    overflow.resize(room, 0);
    Ok(Arc::new(Network {
        info,
        fd,
        link,
        watch: plat_process::watch(fd, |_| DEFERRED_WORK.raise(), 0),
        receive: SpinLock::new(Receive {
            buffers: Vec::new(),
            expected: 0,
            overflow: overflow.into_boxed_slice(),
            splitter,
            broken: false,
        }),
        transmit: SpinLock::new(Transmit { held: VecDeque::new(), sent: Vec::new(), rest: Vec::new() }),
    }))
}

impl Network {
    /// Sends one packet. One that the host refuses is lost, as on a wire.
    fn send_tap(&self, packet: &Outgoing) {
        let mut header = [0u8; HEADER];
        if let Some(c) = packet.checksum {
            header[0] = NEEDS_CSUM;
            header[6..8].copy_from_slice(&c.start.to_le_bytes());
            header[8..10].copy_from_slice(&c.offset.to_le_bytes());
        }
        if let Some(s) = packet.segmentation {
            header[1] = if packet.is_ipv6() { GSO_TCPV6 } else { GSO_TCPV4 };
            header[2..4].copy_from_slice(&s.header_length.to_le_bytes());
            header[4..6].copy_from_slice(&s.segment_size.to_le_bytes());
        }
        let _ = self.write_parts(&header, packet);
    }

    fn write_parts(&self, header: &[u8], packet: &Outgoing) -> Result<usize> {
        let mut parts = [IoVec::EMPTY; FRAGMENTS + 2];
        parts[0] = IoVec::of(header);
        parts[1] = IoVec::of(packet.head.bytes());
        let fragments = &packet.fragments[..packet.fragments.len().min(FRAGMENTS)];
        for (part, fragment) in parts[2..].iter_mut().zip(fragments) {
            *part = IoVec::of(fragment.bytes());
        }
        // SAFETY: the parts are slices that live during the call.
        unsafe { host::writev(self.fd, &parts[..2 + fragments.len()]) }
    }

    fn send_stream(&self, packet: &Outgoing, rest: &mut Vec<u8>) -> Result<()> {
        let prefix = (packet.length() as u32).to_be_bytes();
        let total = PREFIX + packet.length();
        let written = match self.write_parts(&prefix, packet) {
            Ok(n) => n,
            Err(EAGAIN) => return Err(EAGAIN),
            // The other end is gone: so is the packet.
            Err(_) => return Ok(()),
        };
        if written < total {
            // The rest must follow, or nothing behind it would be understood.
            if rest.reserve_fallibly(total).is_err() {
                log::error!("network: no memory for the rest of a frame: the stream is broken");
                return Ok(());
            }
            rest.extend_from_slice(&prefix);
            rest.extend_from_slice(packet.head.bytes());
            packet.fragments.iter().for_each(|f| rest.extend_from_slice(f.bytes()));
            rest.drain(..written);
        }
        Ok(())
    }

    /// Sends what waits for the doorbell.
    fn send_held(&self, transmit: &mut Transmit) {
        while let Some(packet) = transmit.held.pop_front() {
            self.send_tap(&packet);
            transmit.sent.push(packet.head);
        }
    }

    /// Sends to a stream what it takes; how many packets that were.
    fn send_to_stream(&self, packets: &mut VecDeque<Outgoing>, transmit: &mut Transmit) -> usize {
        let mut count = 0;
        while self.push(&mut transmit.rest)
            && let Some(packet) = packets.pop_front()
        {
            if self.send_stream(&packet, &mut transmit.rest).is_err() {
                packets.push_front(packet);
                break;
            }
            transmit.sent.push(packet.head);
            count += 1;
        }
        count
    }

    /// Writes what a stream did not take; true when nothing is left.
    fn push(&self, rest: &mut Vec<u8>) -> bool {
        while !rest.is_empty() {
            match host::write(self.fd, rest) {
                Ok(n) => drop(rest.drain(..n.min(rest.len()))),
                Err(EINTR) => {}
                Err(EAGAIN) => return false,
                Err(_) => rest.clear(),
            }
        }
        true
    }

    fn receive_tap(&self, receive: &mut Receive) -> Option<Option<Incoming>> {
        let mut first = receive.buffers.pop()?;
        let mut header = [0u8; HEADER];
        let expected = receive.expected.min(receive.buffers.len());
        let mut parts = [IoVec::EMPTY; MAX_OF_ONE + 3];
        parts[0] = IoVec::of_mut(&mut header);
        parts[1] = IoVec::of_mut(first.memory_mut());
        for (part, buffer) in parts[2..].iter_mut().zip(receive.buffers.iter_mut().rev().take(expected)) {
            *part = IoVec::of_mut(buffer.memory_mut());
        }
        parts[2 + expected] = IoVec::of_mut(&mut receive.overflow);
        // SAFETY: different buffers of ours that live during the call.
        let length = match unsafe { host::readv(self.fd, &parts[..3 + expected]) } {
            Ok(n) => n,
            Err(_) => {
                receive.buffers.push(first);
                return None;
            }
        };
        let Some(length) = length.checked_sub(HEADER) else {
            receive.buffers.push(first);
            return Some(None);
        };
        let here = length.min(first.size());
        first.set_window(0..here);
        let mut more = Vec::new();
        let mut rest = length - here;
        while rest > 0
            && more.len() < expected
            && let Some(mut buffer) = receive.buffers.pop()
        {
            let here = rest.min(buffer.size());
            buffer.set_window(0..here);
            rest -= here;
            more.push(buffer);
        }
        let overflow = &receive.overflow[..rest.min(receive.overflow.len())];
        if !spread(overflow, &mut receive.buffers, &mut more) {
            receive.buffers.push(first);
            receive.buffers.append(&mut more);
            return Some(None);
        }
        receive.expected = more.len().min(MAX_OF_ONE);
        Some(Some(Incoming { first, more, checksum_valid: header[0] & (NEEDS_CSUM | DATA_VALID) != 0 }))
    }

    fn receive_stream(&self, receive: &mut Receive) -> Option<Option<Incoming>> {
        if receive.broken || receive.buffers.is_empty() {
            return None;
        }
        let Receive { buffers, splitter: Some(splitter), broken, .. } = receive else { return None };
        loop {
            match splitter.next_frame() {
                Ok(Some(frame)) => {
                    let mut more = Vec::new();
                    if frame.is_empty() || !spread(frame, buffers, &mut more) {
                        buffers.append(&mut more);
                        return Some(None);
                    }
                    let first = more.remove(0);
                    return Some(Some(Incoming { first, more, checksum_valid: false }));
                }
                Ok(None) => {}
                Err(_) => {
                    log::error!("network: the stream carries something that is no frame: the link is down");
                    *broken = true;
                    return None;
                }
            }
            match host::read(self.fd, splitter.room()) {
                Ok(0) => {
                    log::warn!("network: the other end of the link is gone");
                    *broken = true;
                    return None;
                }
                Ok(n) => splitter.filled(n),
                Err(EINTR) => {}
                Err(_) => return None,
            }
        }
    }
}

/// Copies bytes to as many buffers as they need; false when there are not enough.
fn spread(bytes: &[u8], buffers: &mut Vec<Buffer>, to: &mut Vec<Buffer>) -> bool {
    for chunk in bytes.chunks(BUFFER_SIZE) {
        let Some(mut buffer) = buffers.pop() else { return false };
        buffer.memory_mut()[..chunk.len()].copy_from_slice(chunk);
        buffer.set_window(0..chunk.len());
        to.push(buffer);
    }
    true
}

impl NetDevice for Network {
    fn info(&self) -> &Info {
        &self.info
    }

    fn transmit(&self, _queue: usize, packets: &mut VecDeque<Outgoing>) -> usize {
        let mut transmit = self.transmit.lock();
        match self.link {
            Link::Tap | Link::Packet => {
                let count = packets.len();
                transmit.held.append(packets);
                let bytes: usize = transmit.held.iter().map(Outgoing::length).sum();
                if transmit.held.len() >= HELD || bytes >= HELD_BYTES {
                    self.send_held(&mut transmit);
                }
                count
            }
            Link::Stream => self.send_to_stream(packets, &mut transmit),
        }
    }

    fn flush(&self, _queue: usize) {
        let mut transmit = self.transmit.lock();
        self.send_held(&mut transmit);
        self.push(&mut transmit.rest);
    }

    fn reclaim(&self, _queue: usize, heads: &mut Vec<Buffer>) {
        heads.append(&mut self.transmit.lock().sent);
    }

    fn receive(&self, _queue: usize, packets: &mut VecDeque<Incoming>, most: usize) -> usize {
        let mut receive = self.receive.lock();
        let mut count = 0;
        while count < most {
            // Rather than lose a large packet it waits for the next refill.
            if count > 0 && receive.buffers.len() < MAX_OF_ONE {
                break;
            }
            let packet = match self.link {
                Link::Tap | Link::Packet => self.receive_tap(&mut receive),
                Link::Stream => self.receive_stream(&mut receive),
            };
            match packet {
                Some(Some(packet)) => packets.push_back(packet),
                // One that makes no sense.
                Some(None) => {}
                None => break,
            }
            count += 1;
        }
        count
    }

    fn wanted(&self, _queue: usize) -> usize {
        BUFFERS.saturating_sub(self.receive.lock().buffers.len())
    }

    fn refill(&self, _queue: usize, buffers: &mut Vec<Buffer>) {
        let mut receive = self.receive.lock();
        let room = BUFFERS.saturating_sub(receive.buffers.len()).min(buffers.len());
        let from = buffers.len() - room;
        receive.buffers.extend(buffers.drain(from..));
    }

    fn arm_interrupt(&self, _queue: usize) -> bool {
        // A packet that waits already is seen by the wait itself.
        if !self.receive.lock().broken {
            self.watch.arm();
        }
        true
    }

    fn on_interrupt(&self, work: DeferredWork) {
        DEFERRED_WORK.set(work);
    }
}
