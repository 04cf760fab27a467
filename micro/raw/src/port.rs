// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One open device: its buffers, and which of them the program has.

use abi::{Result, errno::EINVAL, errno::EMSGSIZE};
use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;
use api_alloc::Reserve;
use api_netdev::{BUFFER_SIZE, Buffer, Incoming, NetDevice, Outgoing};

/// Packets that one call takes or gives at most.
pub const BURST: usize = 64;
/// Buffers of a device: both rings of a virtio device (256 each) full, and as many again with the program.
pub const BUFFERS: usize = 1024;
/// Where an allocated packet begins: the device's header and what the program puts in front fit.
pub const START: usize = 128;
/// Receive buffers are given to the device in batches, for that may ring a doorbell.
const REFILL: usize = 32;
/// Bytes of an Ethernet header.
const ETHERNET: usize = 14;

/// `struct unilith_packet`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet {
    pub data: u64,
    pub length: u32,
    pub buffer: u16,
    pub flags: u16,
}

impl Packet {
    pub const SIZE: usize = 16;

    pub fn from_bytes(bytes: &[u8; Packet::SIZE]) -> Packet {
        let value = u128::from_le_bytes(*bytes);
        Packet {
            data: value as u64,
            length: (value >> 64) as u32,
            buffer: (value >> 96) as u16,
            flags: (value >> 112) as u16,
        }
    }

    pub fn to_bytes(self) -> [u8; Packet::SIZE] {
        let high = u64::from(self.length) | u64::from(self.buffer) << 32 | u64::from(self.flags) << 48;
        (u128::from(self.data) | u128::from(high) << 64).to_le_bytes()
    }
}

/// UNILITH_PACKET_CHECKED.
const CHECKED: u16 = 1;

pub struct Port {
    device: Arc<dyn NetDevice>,
    /// Of the device's description.
    headroom: usize,
    longest: usize,
    /// Buffers that the program has, by number. There is a number for every buffer.
    with_program: Vec<Option<Buffer>>,
    numbers: Vec<u16>,
    /// Buffers that nobody has.
    pool: Vec<Buffer>,
    /// Buffers there are, wherever.
    made: usize,
    incoming: VecDeque<Incoming>,
    outgoing: VecDeque<Outgoing>,
    /// Numbers of the packets in `outgoing`.
    offered: Vec<u16>,
    /// For packets on their way to or from the program's memory, which is not touched with a lock held.
    pub scratch: Vec<u8>,
    has_dropped: bool,
}

impl Port {
    /// `None` when there is no memory.
    pub fn new(device: Arc<dyn NetDevice>) -> Option<Port> {
        let mut with_program = Vec::new();
        with_program.reserve_exact_fallibly(BUFFERS).ok()?;
        with_program.resize_with(BUFFERS, || None);
        let mut numbers = Vec::new();
        numbers.reserve_exact_fallibly(BUFFERS).ok()?;
        numbers.extend((0..BUFFERS as u16).rev());
        let mut pool = Vec::new();
        pool.reserve_exact_fallibly(BUFFERS).ok()?;
        let mut scratch = Vec::new();
        scratch.reserve_exact_fallibly(BURST * Packet::SIZE).ok()?;
        let info = device.info();
        let mut port = Port {
            headroom: info.headroom,
            longest: info.mtu + ETHERNET,
            device,
            with_program,
            numbers,
            pool,
            made: 0,
            incoming: VecDeque::new(),
            outgoing: VecDeque::new(),
            offered: Vec::new(),
            scratch,
            has_dropped: false,
        };
        port.incoming.reserve_exact_fallibly(BURST).ok()?;
        port.outgoing.reserve_exact_fallibly(BURST).ok()?;
        port.offered.reserve_exact_fallibly(BURST).ok()?;
        port.refill();
        Some(port)
    }

    pub fn device(&self) -> &Arc<dyn NetDevice> {
        &self.device
    }

    /// Makes sure of that many buffers in the pool, as far as there may be so many.
    fn stock(&mut self, wanted: usize) {
        while self.pool.len() < wanted && self.made < BUFFERS {
            let Some(buffer) = Buffer::new(BUFFER_SIZE, 0) else { break };
            self.made += 1;
            self.pool.push(buffer);
        }
    }

    fn refill(&mut self) {
        let wanted = self.device.wanted(0);
        self.stock(wanted);
        if !self.pool.is_empty() {
            self.device.refill(0, &mut self.pool);
        }
    }

    /// Takes a burst from the device.
    pub fn look(&mut self) -> bool {
        if !self.incoming.is_empty() {
            return true;
        }
        let count = self.device.receive(0, &mut self.incoming, BURST);
        let wanted = self.device.wanted(0);
        if wanted >= REFILL || count == 0 && wanted > 0 {
            self.refill();
        }
        count > 0
    }

    /// Hands a buffer to the program.
    fn give(&mut self, mut buffer: Buffer, flags: u16) -> Packet {
        let length = buffer.len() as u32;
        let data = buffer.bytes_mut().as_mut_ptr() as u64;
        // Numbers are as many as buffers.
        let number = self.numbers.pop().unwrap_or_default();
        self.with_program[usize::from(number)] = Some(buffer);
        Packet { data, length, buffer: number, flags }
    }

    /// The next packet that came.
    pub fn receive(&mut self) -> Option<Packet> {
        loop {
            let Incoming { first, mut more, checksum_valid } = self.incoming.pop_front()?;
            if !more.is_empty() || first.len() < ETHERNET {
                self.pool.push(first);
                self.pool.append(&mut more);
                if !core::mem::replace(&mut self.has_dropped, true) {
                    log::warn!("netdev: frames shorter than a header or longer than a buffer are dropped");
                }
                continue;
            }
            return Some(self.give(first, if checksum_valid { CHECKED } else { 0 }));
        }
    }

    /// An empty packet.
    pub fn allocate(&mut self) -> Option<Packet> {
        if self.pool.is_empty() {
            self.device.reclaim(0, &mut self.pool);
            self.stock(BURST);
        }
        let mut buffer = self.pool.pop()?;
        buffer.reset(START);
        Some(self.give(buffer, 0))
    }

    fn take(&mut self, number: u16) -> Result<Buffer> {
        let buffer = self.with_program.get_mut(usize::from(number)).and_then(Option::take).ok_or(EINVAL)?;
        self.numbers.push(number);
        Ok(buffer)
    }

    pub fn free(&mut self, packet: Packet) -> Result<()> {
        let buffer = self.take(packet.buffer)?;
        self.pool.push(buffer);
        Ok(())
    }

    /// What of its buffer a packet is, if the device may send it.
    fn window(&mut self, packet: Packet) -> Result<core::ops::Range<usize>> {
        let (headroom, most) = (self.headroom, self.longest);
        let slot = self.with_program.get_mut(usize::from(packet.buffer)).and_then(Option::as_mut);
        let memory = slot.ok_or(EINVAL)?.memory_mut();
        let start = packet.data.wrapping_sub(memory.as_ptr() as u64);
        let (size, length) = (memory.len() as u64, u64::from(packet.length));
        if start < headroom as u64 || start > size || length > size - start {
            return Err(EINVAL);
        }
        if length < ETHERNET as u64 || length > most as u64 {
            return Err(EMSGSIZE);
        }
        Ok(start as usize..(start + length) as usize)
    }

    /// Puts a packet behind those to send.
    pub fn offer(&mut self, packet: Packet) -> Result<()> {
        let window = self.window(packet)?;
        if let Some(mut buffer) = self.with_program[usize::from(packet.buffer)].take() {
            buffer.set_window(window);
            self.outgoing.push_back(Outgoing::plain(buffer));
            self.offered.push(packet.buffer);
        }
        Ok(())
    }

    /// Sends what was offered; how many the device took. The others are the program's again.
    pub fn send(&mut self) -> usize {
        self.device.reclaim(0, &mut self.pool);
        let count = self.device.transmit(0, &mut self.outgoing);
        self.device.flush(0);
        for (n, number) in self.offered.drain(..).enumerate() {
            match n < count {
                true => self.numbers.push(number),
                false => {
                    self.with_program[usize::from(number)] =
                        self.outgoing.pop_front().map(|packet| packet.head)
                }
            }
        }
        count
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use api_lock::SpinLock;
    use api_netdev::Info;
    use api_sched::DeferredWork;

    /// A device that takes so many packets at once, and receives what the test puts there.
    struct Fake {
        info: Info,
        room: usize,
        state: SpinLock<State>,
    }

    #[derive(Default)]
    struct State {
        empty: Vec<Buffer>,
        came: VecDeque<Incoming>,
        sent: Vec<Buffer>,
        frames: Vec<Vec<u8>>,
    }

    impl NetDevice for Fake {
        fn info(&self) -> &Info {
            &self.info
        }

        fn transmit(&self, _: usize, packets: &mut VecDeque<Outgoing>) -> usize {
            let mut state = self.state.lock();
            let count = packets.len().min(self.room);
            for packet in packets.drain(..count) {
                state.frames.push(packet.head.bytes().to_vec());
                state.sent.push(packet.head);
            }
            count
        }

        fn flush(&self, _: usize) {}

        fn reclaim(&self, _: usize, heads: &mut Vec<Buffer>) {
            heads.append(&mut self.state.lock().sent);
        }

        fn receive(&self, _: usize, packets: &mut VecDeque<Incoming>, most: usize) -> usize {
            let mut state = self.state.lock();
            let count = state.came.len().min(most);
            packets.extend(state.came.drain(..count));
            count
        }

        fn wanted(&self, _: usize) -> usize {
            64 - self.state.lock().empty.len()
        }

        fn refill(&self, _: usize, buffers: &mut Vec<Buffer>) {
            let wanted = self.wanted(0);
            let from = buffers.len() - wanted.min(buffers.len());
            self.state.lock().empty.extend(buffers.drain(from..));
        }

        fn arm_interrupt(&self, _: usize) -> bool {
            self.state.lock().came.is_empty()
        }

        fn on_interrupt(&self, _: DeferredWork) {}
    }

    fn port(room: usize) -> (Arc<Fake>, Port) {
        let info = Info {
            mac: [2; 6],
            mtu: 1500,
            queues: 1,
            transmit_checksum: false,
            segmentation: 0,
            segments_ipv6: false,
            fragments: 1,
            headroom: 12,
            interrupts: true,
        };
        let device = Arc::new(Fake { info, room, state: SpinLock::default() });
        let port = Port::new(device.clone()).unwrap();
        (device, port)
    }

    /// A frame of these bytes arrives in a buffer of the device's.
    fn arrive(device: &Fake, bytes: &[u8], parts: usize) {
        let mut state = device.state.lock();
        let mut buffer = || {
            let mut buffer = state.empty.pop().unwrap();
            buffer.reset(12);
            assert!(buffer.append(bytes));
            buffer
        };
        let (first, more) = (buffer(), (1..parts).map(|_| buffer()).collect());
        state.came.push_back(Incoming { first, more, checksum_valid: false });
    }

    #[test]
    fn a_packet_has_the_layout_of_the_header() {
        let packet = Packet { data: 0x1122_3344_5566_7788, length: 60, buffer: 7, flags: 1 };
        let bytes = packet.to_bytes();
        assert_eq!(bytes[..8], 0x1122_3344_5566_7788u64.to_le_bytes());
        assert_eq!((bytes[8], bytes[12], bytes[14]), (60, 7, 1));
        assert_eq!(Packet::from_bytes(&bytes), packet);
    }

    #[test]
    fn what_the_device_has_no_room_for_is_the_programs_again() {
        let (device, mut port) = port(3);
        let packets: Vec<Packet> =
            (0..5).map(|n| Packet { length: 60 + n, ..port.allocate().unwrap() }).collect();
        packets.iter().for_each(|packet| port.offer(*packet).unwrap());
        assert_eq!(port.offer(packets[4]), Err(EINVAL), "it is offered already");
        assert_eq!(port.send(), 3);
        packets[..3].iter().for_each(|packet| assert_eq!(port.free(*packet), Err(EINVAL)));
        packets[3..].iter().for_each(|packet| port.offer(*packet).unwrap());
        assert_eq!(port.send(), 2);
        let lengths: Vec<usize> = device.state.lock().frames.iter().map(Vec::len).collect();
        assert_eq!(lengths, [60, 61, 62, 63, 64]);
    }

    #[test]
    fn a_packet_that_leaves_its_buffer_is_refused_and_stays() {
        let (_, mut port) = port(64);
        let whole = Packet { length: 60, ..port.allocate().unwrap() };
        let start = whole.data - START as u64;
        let at = |data: u64, length: u32| Packet { data, length, ..whole };
        for (packet, error) in [
            (at(start + 11, 60), EINVAL),
            (at(start - 1, 60), EINVAL),
            (at(start + BUFFER_SIZE as u64 - 59, 60), EINVAL),
            (at(start + BUFFER_SIZE as u64 + 1, 0), EINVAL),
            (at(0, u32::MAX), EINVAL),
            (at(u64::MAX, 60), EINVAL),
            (at(whole.data, 13), EMSGSIZE),
            (at(whole.data, 1515), EMSGSIZE),
            (Packet { buffer: u16::MAX, ..whole }, EINVAL),
        ] {
            assert_eq!(port.offer(packet), Err(error), "{packet:?}");
        }
        port.offer(at(start + 12, 1514)).unwrap();
        assert_eq!(port.send(), 1);
    }

    #[test]
    fn no_buffer_is_lost_on_any_of_its_ways() {
        let (device, mut port) = port(2);
        for round in 0..5000usize {
            arrive(&device, &[round as u8; 60], 1);
            if round % 3 == 0 {
                arrive(&device, b"short", 1);
                arrive(&device, &[0; 1000], 2);
            }
            assert!(port.look());
            let packet = port.receive().unwrap();
            assert_eq!(packet.length, 60);
            assert_eq!(port.receive(), None, "frames that are too short or too long are dropped");
            if round % 2 == 0 {
                port.free(packet).unwrap();
            } else {
                port.offer(packet).unwrap();
                assert_eq!(port.send(), 1);
            }
        }
        assert!(port.made <= 64 + BURST + REFILL, "{}", port.made);
        // With the program there are as many as there may be, and no more.
        let mut count = 0;
        while port.allocate().is_some() {
            count += 1;
        }
        let device_has = device.state.lock().empty.len();
        assert_eq!((port.made, count + device_has), (BUFFERS, BUFFERS));
    }
}
