// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The driver: what it does with registers and rings, wherever these are.
//!
//! Packets are received into the caller's buffers and transmitted from them; nothing is copied here.

use crate::descriptor::Format;
use crate::register::*;
use crate::ring::{BYTES, MAX_DESCRIPTORS, Ring, SIZE};
use abi::{Result, errno::EIO, errno::ENOMEM};
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use api_alloc::Reserve;
use api_lock::SpinLock;
use api_netdev::{BUFFER_SIZE, Buffer, Incoming, Info, NetDevice, Outgoing};
use api_sched::DeferredWork;
use core::sync::atomic::{AtomicBool, Ordering, fence};

/// Receive buffers until the first packet comes: a machine that nobody talks to yet need not have them all.
const FIRST_BUFFERS: usize = 32;
/// References to payload in a packet. A packet without segmentation offload has few.
const FRAGMENTS: usize = 17;
const MTU: usize = 1500;
/// Longest frame, without its check sequence: Ethernet's header, and a VLAN tag.
const MAX_FRAME: usize = MTU + 18;
/// Looks at a card that resets itself and reads its memory: a look takes about a microsecond, the card some milliseconds.
const LOOKS: usize = 100_000;
/// What a register reads as when there is no card any more.
const GONE: u32 = u32::MAX;

/// How the driver reaches the card.
pub trait Hardware: Send + Sync {
    fn read(&self, register: u32) -> u32;

    fn write(&self, register: u32, value: u32);

    /// Where the card finds memory of the kernel heap.
    fn address_of(&self, memory: *const u8) -> u64;

    /// Interrupts raise the deferred work from now on.
    fn connect(&self, work: DeferredWork);

    /// Interrupts were enabled. `is_busy`: packets came since the last time.
    fn armed(&self, is_busy: bool);

    /// Takes the card's way to memory away.
    fn cut_off(&self);
}

/// Cards whose registers are the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    I8254x,
    I82574,
    I82576,
}

impl Family {
    pub fn format(self) -> Format {
        match self {
            Family::I8254x | Family::I82574 => Format::Legacy,
            Family::I82576 => Format::Advanced,
        }
    }
}

/// What a kind of card wants.
#[derive(Clone, Copy, Debug)]
pub struct Kind {
    pub name: &'static str,
    pub family: Family,
    /// Its interrupts are messages.
    pub has_messages: bool,
}

struct Receive {
    ring: Ring,
    /// The buffer of each descriptor that the card has.
    buffers: Vec<Option<Buffer>>,
    /// The first of them, and how many.
    next: usize,
    count: usize,
    /// The rest of a packet that was too long for one buffer is thrown away.
    is_discarding: bool,
    /// A packet came.
    is_used: bool,
    /// One came since interrupts were last enabled.
    is_busy: bool,
}

struct Transmit {
    ring: Ring,
    /// Packets the card has, in order, and how many descriptors each takes.
    packets: VecDeque<(Outgoing, usize)>,
    /// The first of their descriptors, and how many.
    next: usize,
    count: usize,
    /// The tail register as it was written.
    told: usize,
    /// Heads of packets that were never given to the card.
    refused: Vec<Buffer>,
}

/// A card.
pub struct Card<H: Hardware> {
    info: Info,
    family: Family,
    receive: SpinLock<Receive>,
    transmit: SpinLock<Transmit>,
    is_started: AtomicBool,
    /// It broke the protocol, and is not used any more.
    is_broken: AtomicBool,
    hardware: H,
}

impl<H: Hardware> Card<H> {
    /// Resets the card and gives it its rings; it starts to work with [`NetDevice::on_interrupt`]. `random` becomes the address of a
    /// card without one.
    pub fn new(hardware: H, kind: Kind, random: [u8; 6]) -> Result<Card<H>> {
        let (receive, transmit) = (Ring::new()?, Ring::new()?);
        reset(&hardware)?;
        let mac = address(&hardware, random);
        let mut buffers = Vec::new();
        buffers.reserve_exact_fallibly(SIZE).map_err(|_| ENOMEM)?;
        buffers.resize_with(SIZE, || None);
        let mut packets = VecDeque::new();
        packets.reserve_exact_fallibly(SIZE).map_err(|_| ENOMEM)?;
        for (registers, ring) in [(RECEIVE, &receive), (TRANSMIT, &transmit)] {
            let start = hardware.address_of(ring.start());
            hardware.write(registers.low, start as u32);
            hardware.write(registers.high, (start >> 32) as u32);
            hardware.write(registers.length, BYTES as u32);
            hardware.write(registers.head, 0);
            hardware.write(registers.tail, 0);
        }
        match kind.family {
            Family::I8254x => {}
            Family::I82574 => hardware.write(TRANSMIT.control, TXDCTL_82574),
            Family::I82576 => {
                negotiate(&hardware);
                hardware.write(SRRCTL, SRRCTL_ADVANCED);
            }
        }
        hardware.write(TIPG, TIPG_COPPER);
        hardware.write(RXCSUM, RXCSUM_ALL);
        let info = Info {
            mac,
            mtu: MTU,
            queues: 1,
            transmit_checksum: false,
            segmentation: 0,
            segments_ipv6: false,
            fragments: FRAGMENTS,
            headroom: 0,
            interrupts: kind.has_messages,
        };
        Ok(Card {
            info,
            family: kind.family,
            receive: SpinLock::new(Receive {
                ring: receive,
                buffers,
                next: 0,
                count: 0,
                is_discarding: false,
                is_used: false,
                is_busy: false,
            }),
            transmit: SpinLock::new(Transmit {
                ring: transmit,
                packets,
                next: 0,
                count: 0,
                told: 0,
                refused: Vec::new(),
            }),
            is_started: AtomicBool::new(false),
            is_broken: AtomicBool::new(false),
            hardware,
        })
    }

    fn is_broken(&self) -> bool {
        self.is_broken.load(Ordering::Relaxed)
    }

    /// Packets go both ways from now on.
    fn begin(&self) {
        if self.family == Family::I82576 {
            enable_queue(&self.hardware, TRANSMIT);
        }
        self.hardware.write(RCTL, RCTL_EN | RCTL_MPE | RCTL_BAM | RCTL_SECRC);
        self.hardware.write(TCTL, TCTL_EN | TCTL_PSP | TCTL_COLLISIONS);
        if self.family == Family::I82576 {
            enable_queue(&self.hardware, RECEIVE);
        }
    }

    /// Ends the work with a card that broke the protocol. Its buffers stay allocated.
    fn give_up(&self, why: core::fmt::Arguments<'_>) {
        if self.is_broken.swap(true, Ordering::Relaxed) {
            return;
        }
        log::error!("e1000: the network card is not used any more: {why}");
        quiet(&self.hardware);
        self.hardware.cut_off();
    }
}

/// No interrupts, nothing received, nothing sent.
fn quiet(hardware: &impl Hardware) {
    hardware.write(IMC, u32::MAX);
    hardware.write(RCTL, 0);
    hardware.write(TCTL, 0);
}

/// The 82576 has no link after a reset before its transceiver is told to look for one.
fn negotiate(hardware: &impl Hardware) {
    hardware.write(MDIC, MDIC_WRITE | MDIC_PHY_1 | PHY_NEGOTIATE);
    let _ = (0..LOOKS).any(|_| hardware.read(MDIC) & MDIC_READY != 0);
}

/// Lets the card take the ring's descriptors. One that does not answer is as one whose packets do not come.
fn enable_queue(hardware: &impl Hardware, ring: RingRegisters) {
    hardware.write(ring.control, hardware.read(ring.control) | DCTL_82576_ENABLE);
    let _ = (0..LOOKS).any(|_| hardware.read(ring.control) & DCTL_82576_ENABLE != 0);
}

/// Whatever firmware did with the card is forgotten. `EIO` when it does not come back.
fn reset(hardware: &impl Hardware) -> Result<()> {
    quiet(hardware);
    hardware.write(CTRL, hardware.read(CTRL) | CTRL_RST);
    // A card without an address is one, too: that is found out last.
    let is_back = (0..LOOKS).any(|_| hardware.read(CTRL) & CTRL_RST == 0);
    if !is_back || hardware.read(CTRL) == GONE {
        return Err(EIO);
    }
    let _ = (0..LOOKS).any(|_| hardware.read(RAH) & RAH_AV != 0);
    hardware.write(IMC, u32::MAX);
    hardware.write(CTRL, hardware.read(CTRL) | CTRL_SLU | CTRL_ASDE);
    Ok(())
}

/// The card's address; one that cannot be a card's becomes a random one.
fn address(hardware: &impl Hardware, random: [u8; 6]) -> [u8; 6] {
    let (low, high) = (hardware.read(RAL).to_le_bytes(), hardware.read(RAH));
    let mac = [low[0], low[1], low[2], low[3], high as u8, (high >> 8) as u8];
    if high & RAH_AV != 0 && mac[0] & 1 == 0 && mac != [0; 6] {
        return mac;
    }
    let mac = api_netdev::local_address(random);
    hardware.write(RAL, u32::from_le_bytes([mac[0], mac[1], mac[2], mac[3]]));
    hardware.write(RAH, RAH_AV | u32::from(mac[5]) << 8 | u32::from(mac[4]));
    mac
}

/// What a receive descriptor held.
enum Received {
    Packet(Incoming),
    /// It was damaged or too long.
    Nothing,
    /// The card says it wrote this many bytes, more than the buffer has.
    Nonsense(usize),
}

impl Receive {
    fn has_packet(&self, format: Format) -> bool {
        self.count > 0 && format.received(self.ring.rest(self.next)).is_some()
    }

    fn pop(&mut self, format: Format) -> Option<Received> {
        if self.count == 0 {
            return None;
        }
        let written = format.received(self.ring.rest(self.next))?;
        if written.length > BUFFER_SIZE {
            // The buffer stays where it is: what the card still does with it is unknown.
            return Some(Received::Nonsense(written.length));
        }
        let buffer = self.buffers[self.next].take();
        self.next = (self.next + 1) % SIZE;
        self.count -= 1;
        let is_rest = core::mem::replace(&mut self.is_discarding, !written.is_end);
        let Some(mut first) = buffer else { return Some(Received::Nothing) };
        if is_rest || !written.is_end || written.is_damaged {
            return Some(Received::Nothing);
        }
        first.set_window(0..written.length);
        let checksum_valid = written.checksum_valid;
        Some(Received::Packet(Incoming { first, more: Vec::new(), checksum_valid }))
    }
}

impl Transmit {
    /// Gives one packet to the card; gives it back when there is no room.
    fn add(
        &mut self,
        packet: Outgoing,
        format: Format,
        hardware: &impl Hardware,
    ) -> core::result::Result<(), Outgoing> {
        let mut left = usize::from(!packet.head.is_empty())
            + packet.fragments.iter().filter(|f| !f.bytes().is_empty()).count();
        // No card sends these, and the stack makes none: its packets have headers and keep to the MTU.
        let whole = packet.length();
        if left == 0 || left > FRAGMENTS + 1 || whole > MAX_FRAME {
            self.refused.push(packet.head);
            return Ok(());
        }
        if MAX_DESCRIPTORS - self.count < left {
            return Err(packet);
        }
        let taken = left;
        let pieces = core::iter::once(packet.head.bytes()).chain(packet.fragments.iter().map(|f| f.bytes()));
        for piece in pieces.filter(|piece| !piece.is_empty()) {
            left -= 1;
            let rest = format.send(piece.len(), whole, left == 0);
            self.ring.set(self.next + self.count, hardware.address_of(piece.as_ptr()), rest);
            self.count += 1;
        }
        // Head and fragments are kept, unchanged, until the card is done; moving the packet does not move the memory it owns or
        // shares.
        self.packets.push_back((packet, taken));
        Ok(())
    }
}

impl<H: Hardware> NetDevice for Card<H> {
    fn info(&self) -> &Info {
        &self.info
    }

    fn transmit(&self, _queue: usize, packets: &mut VecDeque<Outgoing>) -> usize {
        if self.is_broken() {
            return 0;
        }
        let mut transmit = self.transmit.lock();
        let mut count = 0;
        while let Some(packet) = packets.pop_front() {
            if let Err(packet) = transmit.add(packet, self.family.format(), &self.hardware) {
                packets.push_front(packet);
                break;
            }
            count += 1;
        }
        count
    }

    fn flush(&self, _queue: usize) {
        let mut transmit = self.transmit.lock();
        let tail = (transmit.next + transmit.count) % SIZE;
        if tail != transmit.told && !self.is_broken() {
            transmit.told = tail;
            // Descriptors and packets are in memory before the card is told (SDM 3.4).
            fence(Ordering::SeqCst);
            self.hardware.write(TRANSMIT.tail, tail as u32);
        }
    }

    fn reclaim(&self, _queue: usize, heads: &mut Vec<Buffer>) {
        let mut transmit = self.transmit.lock();
        heads.append(&mut transmit.refused);
        if self.is_broken() {
            return;
        }
        let format = self.family.format();
        // The card says so in the last descriptor of each packet.
        while let Some(&(_, taken)) = transmit.packets.front() {
            if !format.is_sent(transmit.ring.rest(transmit.next + taken - 1)) {
                break;
            }
            transmit.next = (transmit.next + taken) % SIZE;
            transmit.count -= taken;
            if let Some((packet, _)) = transmit.packets.pop_front() {
                heads.push(packet.head);
            }
        }
    }

    fn receive(&self, _queue: usize, packets: &mut VecDeque<Incoming>, most: usize) -> usize {
        if self.is_broken() {
            return 0;
        }
        let mut receive = self.receive.lock();
        let mut count = 0;
        while count < most {
            match receive.pop(self.family.format()) {
                Some(Received::Packet(packet)) => packets.push_back(packet),
                Some(Received::Nothing) => {}
                Some(Received::Nonsense(length)) => {
                    self.give_up(format_args!("it claims {length} bytes in a buffer of {BUFFER_SIZE}"));
                    break;
                }
                None => break,
            }
            receive.is_used = true;
            receive.is_busy = true;
            count += 1;
        }
        count
    }

    fn wanted(&self, _queue: usize) -> usize {
        if self.is_broken() {
            return 0;
        }
        let receive = self.receive.lock();
        let most = if receive.is_used { MAX_DESCRIPTORS } else { FIRST_BUFFERS };
        most.saturating_sub(receive.count)
    }

    fn refill(&self, _queue: usize, buffers: &mut Vec<Buffer>) {
        if self.is_broken() {
            return;
        }
        let mut receive = self.receive.lock();
        let before = receive.count;
        while receive.count < MAX_DESCRIPTORS {
            let Some(mut buffer) = buffers.pop() else { break };
            // The card believes that every buffer has room for a frame.
            if buffer.size() < BUFFER_SIZE {
                continue;
            }
            let index = (receive.next + receive.count) % SIZE;
            // The buffer is kept, untouched, until the card is done with it; moving it does not move its memory.
            let start = self.hardware.address_of(buffer.memory_mut().as_mut_ptr());
            receive.ring.set(index, start, 0);
            receive.buffers[index] = Some(buffer);
            receive.count += 1;
        }
        if receive.count != before {
            let tail = (receive.next + receive.count) % SIZE;
            // As in `flush`.
            fence(Ordering::SeqCst);
            self.hardware.write(RECEIVE.tail, tail as u32);
        }
    }

    fn arm_interrupt(&self, _queue: usize) -> bool {
        if self.is_broken() {
            return true;
        }
        let mut receive = self.receive.lock();
        // Causes of packets that were taken already are cleared, or they would interrupt at once.
        if self.hardware.read(ICR) == GONE {
            drop(receive);
            self.give_up(format_args!("it does not answer"));
            return true;
        }
        self.hardware.write(IMS, CAUSES);
        fence(Ordering::SeqCst);
        if receive.has_packet(self.family.format()) {
            self.hardware.write(IMC, u32::MAX);
            return false;
        }
        self.hardware.armed(core::mem::take(&mut receive.is_busy));
        true
    }

    fn on_interrupt(&self, work: DeferredWork) {
        if self.is_started.swap(true, Ordering::Relaxed) {
            return;
        }
        self.hardware.connect(work);
        self.begin();
    }
}

impl<H: Hardware> Drop for Card<H> {
    fn drop(&mut self) {
        // Its memory goes next.
        quiet(&self.hardware);
        self.hardware.cut_off();
    }
}

#[cfg(test)]
mod tests;
