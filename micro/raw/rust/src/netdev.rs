// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Ethernet frames in bursts (`unilith/netdev.h`).

use crate::{Errno, answer, nanoseconds};
use core::ops::{Deref, DerefMut};
use core::ptr::null_mut;
use core::slice;
use core::time::Duration;

/// The most packets that a [`Burst`] has.
pub const BURST: usize = 64;
/// Bytes of an allocated packet.
pub const ROOM: u32 = 1920;

/// The functions as they are.
mod sys {
    use super::{Info, Raw};

    unsafe extern "C" {
        pub safe fn unilith_netdev_count() -> i32;
        pub fn unilith_netdev_open(device: u32, info: *mut Info) -> i32;
        pub safe fn unilith_netdev_listening(is_udp: i32, port: u16) -> i32;
        pub fn unilith_netdev_allocate(device: u32, packets: *mut Raw, count: u32) -> i32;
        pub fn unilith_netdev_free(device: u32, packets: *const Raw, count: u32) -> i32;
        pub fn unilith_netdev_rx_burst(device: u32, packets: *mut Raw, count: u32) -> i32;
        pub fn unilith_netdev_tx_burst(device: u32, packets: *const Raw, count: u32) -> i32;
        pub safe fn unilith_netdev_wait(device: u32, timeout_ns: i64) -> i32;
    }
}

/// What the program is told of a device; addresses are in network byte order, zeros for none.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Info {
    pub mac: [u8; 6],
    /// Bytes of the largest IP packet.
    pub mtu: u16,
    pub address: [u8; 4],
    pub netmask: [u8; 4],
    pub gateway: [u8; 4],
    /// Packets that device and program have together at most.
    pub buffers: u32,
    headroom: u32,
}

/// `struct unilith_packet`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Raw {
    data: *mut u8,
    length: u32,
    buffer: u16,
    flags: u16,
}

const NOTHING: Raw = Raw { data: null_mut(), length: 0, buffer: 0, flags: 0 };

/// A frame, which the program may change.
pub struct Packet {
    raw: Raw,
    /// Bytes that are the packet's from its beginning on.
    room: u32,
}

// SAFETY: the bytes of a packet are the program's, and a reference to it is the only way to them.
unsafe impl Send for Packet {}
// SAFETY: as above.
unsafe impl Sync for Packet {}

impl Packet {
    /// The host vouches for the checksum of its TCP or UDP header.
    pub fn is_checked(&self) -> bool {
        self.raw.flags & 1 != 0
    }

    /// Makes it shorter, or longer where it was allocated by this program.
    pub fn set_length(&mut self, length: usize) -> Result<(), Errno> {
        let length = u32::try_from(length).ok().filter(|length| *length <= self.room);
        self.raw.length = length.ok_or(Errno::EMSGSIZE)?;
        Ok(())
    }
}

impl Deref for Packet {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: `room` bytes there are the packet's, and the length is no more.
        unsafe { slice::from_raw_parts(self.raw.data, self.raw.length as usize) }
    }
}

impl DerefMut for Packet {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`; the device has no part of a packet that the program has.
        unsafe { slice::from_raw_parts_mut(self.raw.data, self.raw.length as usize) }
    }
}

/// Packets of a device that the program has. What is left of them when it is dropped goes back.
pub struct Burst {
    device: u32,
    packets: [Packet; BURST],
    count: usize,
}

impl Burst {
    /// `room`: of each packet, where it is not its length.
    fn of(device: u32, raw: &[Raw], room: Option<u32>) -> Burst {
        let packet = |at: usize| {
            let raw = raw.get(at).copied().unwrap_or(NOTHING);
            Packet { raw, room: room.unwrap_or(raw.length) }
        };
        Burst { device, packets: core::array::from_fn(packet), count: raw.len() }
    }

    /// Keeps the packets for which the answer is true; the others go back.
    pub fn retain(&mut self, mut is_kept: impl FnMut(&mut Packet) -> bool) {
        let mut kept = 0;
        for at in 0..self.count {
            if is_kept(&mut self.packets[at]) {
                self.packets.swap(kept, at);
                kept += 1;
            }
        }
        self.give_back(kept);
    }

    /// Gives back all packets from this one on.
    fn give_back(&mut self, from: usize) {
        let raw = self.raw();
        let (count, device) = (self.count - from, self.device);
        self.count = from;
        if count > 0 {
            // SAFETY: so many packets, which this burst has no more. What was the program's is never refused.
            unsafe { sys::unilith_netdev_free(device, raw[from..].as_ptr(), count as u32) };
        }
    }

    fn raw(&self) -> [Raw; BURST] {
        core::array::from_fn(|at| self.packets[at].raw)
    }
}

impl Deref for Burst {
    type Target = [Packet];

    fn deref(&self) -> &[Packet] {
        &self.packets[..self.count]
    }
}

impl DerefMut for Burst {
    fn deref_mut(&mut self) -> &mut [Packet] {
        &mut self.packets[..self.count]
    }
}

impl Drop for Burst {
    fn drop(&mut self) {
        self.give_back(0);
    }
}

/// A network device that this program has.
pub struct Device {
    number: u32,
    info: Info,
}

impl Device {
    /// The network devices of the machine, which are numbered from 0.
    pub fn count() -> usize {
        answer(sys::unilith_netdev_count()).unwrap_or(0)
    }

    /// Takes a device until the machine ends. `ENODEV`: there is none of this number; `EBUSY`: TCP/IP has it, or it is open
    /// already; `ENOMEM`.
    pub fn open(number: u32) -> Result<Device, Errno> {
        let mut info = Info::default();
        // SAFETY: a place for the answer.
        answer(unsafe { sys::unilith_netdev_open(number, &raw mut info) })?;
        Ok(Device { number, info })
    }

    pub fn info(&self) -> &Info {
        &self.info
    }

    /// Empty packets, as many as there are of those that were asked for.
    pub fn allocate(&self, count: usize) -> Result<Burst, Errno> {
        let mut raw = [NOTHING; BURST];
        // SAFETY: places for so many packets.
        let count = answer(unsafe {
            sys::unilith_netdev_allocate(self.number, raw.as_mut_ptr(), count.min(BURST) as u32)
        })?;
        Ok(Burst::of(self.number, &raw[..count], Some(ROOM)))
    }

    /// The packets that came, in their order; none when none has come.
    pub fn receive(&self) -> Result<Burst, Errno> {
        let mut raw = [NOTHING; BURST];
        // SAFETY: places for so many packets.
        let count =
            answer(unsafe { sys::unilith_netdev_rx_burst(self.number, raw.as_mut_ptr(), BURST as u32) })?;
        Ok(Burst::of(self.number, &raw[..count], None))
    }

    /// Sends packets, in their order; those that the device has no room for stay in the burst. `EINVAL`: they are another
    /// device's; `EMSGSIZE`: the first one is longer than the device takes, or shorter than an Ethernet header.
    pub fn send(&self, burst: &mut Burst) -> Result<usize, Errno> {
        if burst.device != self.number {
            return Err(Errno::EINVAL);
        }
        let raw = burst.raw();
        // SAFETY: so many packets that are the program's; those that are taken leave the burst below.
        let sent =
            answer(unsafe { sys::unilith_netdev_tx_burst(self.number, raw.as_ptr(), burst.count as u32) })?;
        burst.packets.rotate_left(sent);
        burst.count -= sent;
        Ok(sent)
    }

    /// Sleeps until a packet has come: true, or false when the time has passed. `EINTR`: a signal came.
    pub fn wait(&self, timeout: Option<Duration>) -> Result<bool, Errno> {
        answer(sys::unilith_netdev_wait(self.number, nanoseconds(timeout))).map(|came| came > 0)
    }
}

/// Tells the host that the program now serves a UDP port: `unilith run -d` waits for that.
pub fn serves_udp(port: u16) {
    sys::unilith_netdev_listening(1, port);
}

/// The same for TCP.
pub fn serves_tcp(port: u16) {
    sys::unilith_netdev_listening(0, port);
}
