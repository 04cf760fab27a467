// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Programs that decide about packets (SO_ATTACH_FILTER, SO_ATTACH_REUSEPORT_CBPF): they answer how many bytes of a packet its
//! socket gets, or which socket gets it.
//!
//! Offsets from 0 on count from where the socket's packets begin: the header of UDP, TCP or ICMP, the IP header of raw sockets, the
//! link's header of packet sockets, the first byte of what was sent to an AF_UNIX socket. Negative ones (linux/filter.h, SKF_NET_OFF, SKF_LL_OFF) count from the headers in
//! front of that, and those from SKF_AD_OFF on are no bytes but what is known about the packet.

use crate::check::{self, Loads, Refusal};
use crate::interpreter::{End, Subject, interpret};
use crate::{ABS, B, H, IND, Instruction, LD, LDX, MSH, size};

const SKF_AD_OFF: u32 = 0xffff_f000;
const SKF_NET_OFF: u32 = 0xfff0_0000;
const SKF_LL_OFF: u32 = 0xffe0_0000;

const SKF_AD_PROTOCOL: u32 = 0;
const SKF_AD_PKTTYPE: u32 = 4;
const SKF_AD_IFINDEX: u32 = 8;
const SKF_AD_NLATTR: u32 = 12;
const SKF_AD_NLATTR_NEST: u32 = 16;
const SKF_AD_MARK: u32 = 20;
const SKF_AD_QUEUE: u32 = 24;
const SKF_AD_HATYPE: u32 = 28;
const SKF_AD_RXHASH: u32 = 32;
const SKF_AD_CPU: u32 = 36;
const SKF_AD_ALU_XOR_X: u32 = 40;
const SKF_AD_VLAN_TAG: u32 = 44;
const SKF_AD_VLAN_TAG_PRESENT: u32 = 48;
const SKF_AD_PAY_OFFSET: u32 = 52;
const SKF_AD_RANDOM: u32 = 56;
const SKF_AD_VLAN_TPID: u32 = 60;
/// Behind the last one: what SO_BPF_EXTENSIONS answers.
pub const SKF_AD_MAX: u32 = 64;

/// Attributes of netlink begin at multiples of 4, with their length and type.
const ATTRIBUTE: usize = 4;

/// The interface a packet came in by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interface {
    pub index: u32,
    /// ARPHRD_*.
    pub hardware: u32,
}

/// A packet as a filter sees it.
#[derive(Clone, Copy)]
pub struct Packet<'a> {
    /// What offsets from 0 on count in.
    pub data: &'a [u8],
    /// Bytes of the link's header that `data` begins with: a packet socket's alone.
    pub link_length: usize,
    /// The network header, where it lies in front of `data`; `data` goes on behind it.
    pub network: &'a [u8],
    /// The header of the link in front of that.
    pub link: Option<&'a [u8]>,
    /// ETH_P_*, 0 of what no device carries.
    pub protocol: u16,
    /// PACKET_HOST, PACKET_BROADCAST and the others of packet(7).
    pub kind: u8,
    /// `None` of what no device carries: a program that asks for it ends, and answers its accumulator (Linux).
    pub interface: Option<Interface>,
    /// Where the payload begins in `data`, behind all headers that are known.
    pub payload: u32,
    pub environment: &'a dyn Environment,
}

/// What a program can ask for that is not the packet's.
pub trait Environment: Sync {
    /// Index of the processor that the program runs on.
    fn processor(&self) -> u32;
    fn random(&self) -> u32;
}

impl<'a> Packet<'a> {
    /// What was sent to a socket by another one, without headers.
    pub fn plain(data: &'a [u8], environment: &'a dyn Environment) -> Packet<'a> {
        let (network, link) = (&data[..0], None);
        Packet {
            data,
            link_length: 0,
            network,
            link,
            protocol: 0,
            kind: 0,
            interface: None,
            payload: 0,
            environment,
        }
    }

    /// A number that begins `offset` bytes into these parts, which are one row.
    fn row(parts: [&[u8]; 3], offset: usize, size: usize) -> Option<u32> {
        (offset..offset + size).try_fold(0, |so_far, mut at| {
            let byte = parts.iter().find_map(|part| {
                let byte = part.get(at);
                at = at.saturating_sub(part.len());
                byte
            })?;
            Some(so_far << 8 | u32::from(*byte))
        })
    }

    /// The offset of the attribute of netlink of type `kind` among those from `at` on; 0: there is none.
    fn attribute(&self, at: u32, end: usize, kind: u32) -> u32 {
        let mut at = at as usize;
        while let Some([l, m, t, u]) = self.data.get(at..).and_then(|rest| rest.first_chunk()) {
            let length = usize::from(u16::from_ne_bytes([*l, *m]));
            // The two highest bits of a type are flags (NLA_TYPE_MASK).
            let found = u32::from(u16::from_ne_bytes([*t, *u]) & 0x3fff);
            if length < ATTRIBUTE || length > end.saturating_sub(at) {
                return 0;
            }
            if found == kind {
                return at as u32;
            }
            at += length.next_multiple_of(ATTRIBUTE);
        }
        0
    }

    fn attribute_from(&self, at: u32, kind: u32) -> u32 {
        let end = self.data.len();
        match end.checked_sub(ATTRIBUTE) {
            Some(last) if at as usize <= last => self.attribute(at, end, kind),
            _ => 0,
        }
    }

    /// The same within the attribute at `at`.
    fn nested_attribute(&self, at: u32, kind: u32) -> u32 {
        let Some([low, high, ..]) = self.data.get(at as usize..).and_then(|rest| rest.first_chunk::<4>())
        else {
            return 0;
        };
        let length = usize::from(u16::from_ne_bytes([*low, *high]));
        let start = at as usize;
        if length < ATTRIBUTE || length > self.data.len() - start {
            return 0;
        }
        self.attribute(at + ATTRIBUTE as u32, start + length, kind)
    }

    /// What is known about the packet.
    fn ancillary(&self, field: u32, a: u32, x: u32) -> Result<u32, End> {
        let interface = self.interface.ok_or(End(Some(a)));
        Ok(match field {
            SKF_AD_PROTOCOL => self.protocol.into(),
            SKF_AD_PKTTYPE => self.kind.into(),
            SKF_AD_IFINDEX => interface?.index,
            SKF_AD_HATYPE => interface?.hardware,
            SKF_AD_NLATTR => self.attribute_from(a, x),
            SKF_AD_NLATTR_NEST => self.nested_attribute(a, x),
            SKF_AD_CPU => self.environment.processor(),
            SKF_AD_ALU_XOR_X => a ^ x,
            SKF_AD_PAY_OFFSET => self.payload,
            SKF_AD_RANDOM => self.environment.random(),
            // Packets are neither marked nor hashed, of one queue, and in no VLAN.
            SKF_AD_MARK
            | SKF_AD_QUEUE
            | SKF_AD_RXHASH
            | SKF_AD_VLAN_TAG
            | SKF_AD_VLAN_TAG_PRESENT
            | SKF_AD_VLAN_TPID => 0,
            _ => return Err(End(Some(0))),
        })
    }
}

impl Subject for Packet<'_> {
    fn length(&self) -> u32 {
        self.data.len() as u32
    }

    fn absolute(&self, i: &Instruction, a: u32, x: u32) -> Result<u32, End> {
        match i.k.checked_sub(SKF_AD_OFF) {
            Some(field) => self.ancillary(field, a, x),
            None => self.at(i.k, size(i.code)),
        }
    }

    fn at(&self, offset: u32, size: usize) -> Result<u32, End> {
        self.bytes(offset, size).ok_or(End(Some(0)))
    }
}

impl Packet<'_> {
    /// `None` where not all of it is there.
    fn bytes(&self, offset: u32, size: usize) -> Option<u32> {
        match offset {
            SKF_NET_OFF.. => {
                let data = self.data.get(self.link_length..)?;
                Packet::row([&[], self.network, data], (offset - SKF_NET_OFF) as usize, size)
            }
            SKF_LL_OFF.. => {
                Packet::row([self.link?, self.network, self.data], (offset - SKF_LL_OFF) as usize, size)
            }
            // The other half of all numbers is negative (Linux' bpf_internal_load_pointer_neg_helper).
            0x8000_0000.. => None,
            // In network order.
            _ => {
                let bytes = self.data.get(offset as usize..)?.get(..size)?;
                Some(bytes.iter().fold(0, |so_far, byte| so_far << 8 | u32::from(*byte)))
            }
        }
    }
}

struct Bytes;

impl Loads for Bytes {
    fn has_load(&self, i: &Instruction) -> bool {
        const ABSOLUTE: [u16; 3] = [LD | ABS, LD | H | ABS, LD | B | ABS];
        const INDIRECT: [u16; 3] = [LD | IND, LD | H | IND, LD | B | IND];
        if ABSOLUTE.contains(&i.code) {
            // Behind SKF_AD_OFF there are known fields alone.
            return i
                .k
                .checked_sub(SKF_AD_OFF)
                .is_none_or(|field| field < SKF_AD_MAX && field.is_multiple_of(4));
        }
        INDIRECT.contains(&i.code) || i.code == LDX | B | MSH
    }

    fn has_operation(&self, _operation: u16) -> bool {
        true
    }
}

/// Looks at a whole program before it may be attached.
pub fn check(program: &[Instruction]) -> Result<(), Refusal> {
    check::check(program, &Bytes)
}

/// What a program answers about a packet: 0 also where it reads what is not there. The program must have passed [`check`].
pub fn run(program: &[Instruction], packet: &Packet<'_>) -> u32 {
    interpret(program, packet).unwrap_or(0)
}
