// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Rings of frames that the program maps (packet(7), PACKET_RX_RING and PACKET_TX_RING): what it asks for, and where things are in
//! them. TPACKET_V1 and TPACKET_V2 have frames of one size, with a status each; [`crate::blocks`] has TPACKET_V3.

use crate::address::{LinkAddress, SOCKADDR_LL};
use crate::blocks::{self, Blocks};
use crate::memory::Memory;
use abi::{PAGE_SIZE, Result, errno::*};
use alloc::sync::Arc;
use api_fs::Timespec;

/// What frames and headers are aligned to.
const TPACKET_ALIGNMENT: u32 = 16;

pub const TP_STATUS_KERNEL: u32 = 0;
pub const TP_STATUS_COPY: u32 = 1 << 1;
pub const TP_STATUS_LOSING: u32 = 1 << 2;

/// The layout of headers in a ring.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Version {
    #[default]
    V1,
    V2,
    V3,
}

impl Version {
    /// `EINVAL` for numbers that are none.
    pub fn from_number(number: i32) -> Result<Version> {
        [Version::V1, Version::V2, Version::V3].into_iter().find(|v| *v as i32 == number).ok_or(EINVAL)
    }

    /// `sizeof` of its `struct tpacket_hdr`, which is a multiple of the alignment.
    pub fn header(self) -> u32 {
        match self {
            Version::V1 | Version::V2 => 32,
            Version::V3 => 48,
        }
    }

    /// TPACKET_HDRLEN: the header, and the address behind it.
    pub fn header_and_address(self) -> u32 {
        self.header() + SOCKADDR_LL as u32
    }

    /// `sizeof` of its `struct tpacket_req`.
    fn request(self) -> usize {
        if self == Version::V3 { 28 } else { 16 }
    }

    /// Where the status is in a header.
    pub fn status_at(self) -> usize {
        if self == Version::V3 { 20 } else { 0 }
    }
}

/// `struct tpacket_req` and `struct tpacket_req3`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Request {
    pub block_size: u32,
    pub blocks: u32,
    pub frame_size: u32,
    pub frames: u32,
    /// Milliseconds after which a block is handed over that is not full.
    pub timeout: u32,
    /// Bytes of each block that are the program's.
    pub private: u32,
    pub features: u32,
}

impl Request {
    /// `EINVAL` when it is too short.
    pub fn parse(version: Version, bytes: &[u8]) -> Result<Request> {
        if bytes.len() < version.request() {
            return Err(EINVAL);
        }
        let mut words = bytes[..version.request()].as_chunks().0.iter().map(|word| u32::from_ne_bytes(*word));
        let mut next = || words.next().unwrap_or(0);
        Ok(Request {
            block_size: next(),
            blocks: next(),
            frame_size: next(),
            frames: next(),
            timeout: next(),
            private: next(),
            features: next(),
        })
    }

    /// How many frames a block has (Linux' packet_set_ring). `EINVAL`.
    pub fn check(&self, version: Version, reserve: u32, is_transmit: bool) -> Result<u32> {
        let least = u64::from(version.header_and_address()) + u64::from(reserve);
        let is_v3 = version == Version::V3;
        let sizes = i32::try_from(self.block_size).is_ok_and(|size| size > 0)
            && self.block_size.is_multiple_of(PAGE_SIZE as u32)
            && (!is_v3 || u64::from(self.block_size) >= blocks::first_packet(self.private) + least)
            && u64::from(self.frame_size) >= least
            && self.frame_size.is_multiple_of(TPACKET_ALIGNMENT);
        if !sizes || self.frame_size == 0 {
            return Err(EINVAL);
        }
        let frames_per_block = self.block_size / self.frame_size;
        if frames_per_block == 0 || frames_per_block.checked_mul(self.blocks) != Some(self.frames) {
            return Err(EINVAL);
        }
        // Frames that are sent lie where they would in TPACKET_V2.
        if is_v3 && is_transmit && [self.timeout, self.private, self.features] != [0; 3] {
            return Err(EINVAL);
        }
        Ok(frames_per_block)
    }
}

/// A packet on its way into a ring.
pub struct Incoming<'a> {
    /// With the link's header, where the socket gets it.
    pub data: &'a [u8],
    /// Bytes that the filter keeps.
    pub kept: usize,
    pub link_length: usize,
    pub address: LinkAddress,
    pub at: Timespec,
    /// TP_STATUS_*.
    pub status: u32,
}

/// What became of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placed {
    /// There is no room.
    Dropped,
    /// It is the program's, or will be with its block.
    Stored {
        /// The program has something new to read.
        is_news: bool,
    },
}

/// A ring.
pub struct Ring {
    pub memory: Arc<Memory>,
    pub version: Version,
    pub request: Request,
    frames_per_block: u32,
    /// The next frame of the kernel's.
    head: u32,
    /// Of TPACKET_V3 that receives.
    pub blocks: Option<Blocks>,
}

impl Ring {
    /// Makes a ring as it was asked for: [`Request::check`]'s errors, `ENOMEM`.
    pub fn new(request: Request, version: Version, reserve: u32, is_transmit: bool) -> Result<Ring> {
        let frames_per_block = request.check(version, reserve, is_transmit)?;
        let pages =
            (request.block_size as usize / PAGE_SIZE).checked_mul(request.blocks as usize).ok_or(ENOMEM)?;
        let memory = Memory::new(pages)?;
        let has_blocks = version == Version::V3 && !is_transmit;
        let blocks = has_blocks.then(|| Blocks::new(&memory, &request));
        Ok(Ring { memory, version, request, frames_per_block, head: 0, blocks })
    }

    /// A program maps it.
    pub fn is_mapped(&self) -> bool {
        Arc::strong_count(&self.memory) > 1
    }

    /// Where a frame begins.
    fn at(&self, frame: u32) -> usize {
        let (block, index) = (frame / self.frames_per_block, frame % self.frames_per_block);
        block as usize * self.request.block_size as usize + index as usize * self.request.frame_size as usize
    }

    /// Where the next frame of the kernel's begins.
    pub fn head(&self) -> usize {
        self.at(self.head)
    }

    pub fn advance(&mut self) {
        self.head = if self.head + 1 >= self.request.frames { 0 } else { self.head + 1 };
    }

    pub fn status(&self, at: usize) -> u32 {
        self.memory.status(at + self.version.status_at())
    }

    pub fn set_status(&self, at: usize, status: u32) {
        let at = at + self.version.status_at();
        if self.version == Version::V1 {
            // The status is a long there.
            self.memory.write(at + 4, &[0; 4]);
        }
        self.memory.set_status(at, status);
    }

    /// The next packet has a place.
    pub fn has_room(&self) -> bool {
        match &self.blocks {
            Some(blocks) => blocks.has_room(&self.memory, &self.request),
            None => self.status(self.head()) == TP_STATUS_KERNEL,
        }
    }

    /// The program has something to read: the frame or block before the kernel's is not the kernel's.
    pub fn is_readable(&self) -> bool {
        if let Some(blocks) = &self.blocks {
            return blocks.is_readable(&self.memory, &self.request);
        }
        let previous = self.head.checked_sub(1).unwrap_or(self.request.frames.saturating_sub(1));
        self.status(self.at(previous)) != TP_STATUS_KERNEL
    }

    /// Where the link's header and the network's go, from the frame's beginning on. `None`: too far for the header's fields.
    fn offsets(&self, link_length: usize, reserve: u32) -> Option<(usize, usize)> {
        // Room for a link's header is there in any case, so that the network's is aligned.
        const ROOM: usize = 16;
        let align = |n: usize| n.next_multiple_of(TPACKET_ALIGNMENT as usize);
        let fixed = self.version.header_and_address() as usize;
        // Datagrams have the room behind what is aligned.
        let network =
            if link_length == 0 { align(fixed) + ROOM } else { align(fixed + ROOM.max(link_length)) };
        let network = network + reserve as usize;
        (network <= usize::from(u16::MAX)).then(|| (network - link_length, network))
    }

    /// The packet is longer than a frame has room for.
    pub fn is_too_small(&self, packet: &Incoming<'_>, reserve: u32) -> bool {
        let fits = |(mac, _)| mac + packet.kept <= self.request.frame_size as usize;
        self.blocks.is_none() && !self.offsets(packet.link_length, reserve).is_some_and(fits)
    }

    /// A packet comes in.
    pub fn put(&mut self, packet: &Incoming<'_>, reserve: u32, is_losing: bool) -> Placed {
        let Some((mut mac, network)) = self.offsets(packet.link_length, reserve) else {
            return Placed::Dropped;
        };
        let room = match &self.blocks {
            Some(_) => (self.request.block_size - blocks::first_packet(self.request.private) as u32) as usize,
            None => self.request.frame_size as usize,
        };
        let kept = packet.kept.min(room.saturating_sub(mac));
        if self.blocks.is_some() {
            mac = mac.min(room);
        }
        let (at, is_news) = match &mut self.blocks {
            Some(blocks) => {
                match blocks.reserve(&self.memory, &self.request, mac + kept, is_losing, packet.at) {
                    (Some(at), is_news) => (at, is_news),
                    (None, _) => return Placed::Dropped,
                }
            }
            None => {
                let at = self.head();
                if self.status(at) != TP_STATUS_KERNEL {
                    return Placed::Dropped;
                }
                self.advance();
                (at, true)
            }
        };
        let status =
            if is_losing && self.blocks.is_none() { packet.status | TP_STATUS_LOSING } else { packet.status };
        self.memory.write(at + mac, &packet.data[..kept]);
        self.put_header(at, packet, kept, (mac, network), status);
        self.memory.write(at + self.version.header() as usize, &packet.address.bytes());
        match &mut self.blocks {
            Some(blocks) => blocks.stored(packet.at),
            None => self.set_status(at, status),
        }
        Placed::Stored { is_news }
    }

    /// Everything but the status, which says that the rest is there; in a block it is the block's that says so.
    fn put_header(
        &self,
        at: usize,
        packet: &Incoming<'_>,
        kept: usize,
        (mac, network): (usize, usize),
        status: u32,
    ) {
        let mut header = [0; 48];
        let mut put = |at: usize, value: u32| header[at..at + 4].copy_from_slice(&value.to_ne_bytes());
        let (length, kept) = (packet.data.len() as u32, kept as u32);
        let places = u32::from(mac as u16) | u32::from(network as u16) << 16;
        let (seconds, ns) = (packet.at.seconds as u32, packet.at.nanoseconds);
        // The first word is the status of TPACKET_V2, and the first two that of TPACKET_V1.
        let (from, words) = match self.version {
            Version::V1 => (8, [length, kept, places, seconds, ns / 1000]),
            Version::V2 => (4, [length, kept, places, seconds, ns]),
            Version::V3 => {
                put(20, status);
                put(24, places);
                (4, [seconds, ns, kept, length, status])
            }
        };
        words.iter().enumerate().for_each(|(index, word)| put(from + index * 4, *word));
        let size = self.version.header() as usize;
        self.memory.write(at + from, &header[from..size]);
    }
}
