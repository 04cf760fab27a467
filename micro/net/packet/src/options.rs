// SPDX-License-Identifier: Apache-2.0 OR MIT
//! setsockopt(2) and getsockopt(2) of packet sockets (packet(7)).

use crate::fanout;
use crate::ring::{Request, Ring, Version};
use crate::socket::{PACKET_AUXDATA, PacketSocket};
use abi::linux::net as linux;
use abi::{Result, errno::*};
use alloc::vec::Vec;
use api_socket::filter::Filter;
use api_socket::options::{buffer_size, from_int, int};
use api_socket::{Socket, settings};
use classic_bpf::{Instruction, MAX_INSTRUCTIONS};

const PACKET_ADD_MEMBERSHIP: u32 = 1;
const PACKET_DROP_MEMBERSHIP: u32 = 2;
const PACKET_RX_RING: u32 = 5;
const PACKET_STATISTICS: u32 = 6;
const PACKET_COPY_THRESH: u32 = 7;
const PACKET_ORIGDEV: u32 = 9;
const PACKET_VERSION: u32 = 10;
pub const PACKET_HDRLEN: u32 = 11;
const PACKET_RESERVE: u32 = 12;
const PACKET_TX_RING: u32 = 13;
const PACKET_LOSS: u32 = 14;
const PACKET_VNET_HDR: u32 = 15;
const PACKET_TIMESTAMP: u32 = 17;
const PACKET_FANOUT: u32 = 18;
const PACKET_TX_HAS_OFF: u32 = 19;
const PACKET_QDISC_BYPASS: u32 = 20;
const PACKET_ROLLOVER_STATS: u32 = 21;
const PACKET_FANOUT_DATA: u32 = 22;
const PACKET_IGNORE_OUTGOING: u32 = 23;

/// `struct packet_mreq`, where its address begins, and the longest one that Linux takes.
const MREQ: usize = 16;
const MREQ_ADDRESS: usize = 8;
const MREQ_MAX: usize = 40;
const PACKET_MR_MULTICAST: u16 = 0;
const PACKET_MR_UNICAST: u16 = 3;
/// Bytes of an Ethernet address.
const MAC: u16 = 6;
/// `sizeof(struct sock_fprog)`.
const SOCK_FPROG: usize = 16;

/// A number that must be an `int`, no more and no less.
fn exact(value: &[u8]) -> Result<i32> {
    if value.len() == size_of::<i32>() { int(value) } else { Err(EINVAL) }
}

impl PacketSocket {
    pub(crate) fn set_common_option(&self, name: u32, value: &[u8]) -> Result<()> {
        let mut common = self.common.lock();
        if let Some(result) = common.set(name, value) {
            let (filter, has_stamps) = (common.filter(), common.stamps.are_wanted());
            drop(common);
            let old = {
                let mut state = self.member.state.lock();
                state.has_stamps = has_stamps;
                core::mem::replace(&mut state.filter, filter)
            };
            drop(old);
            return result;
        }
        match name {
            linux::SO_RCVBUF | linux::SO_RCVBUFFORCE => {
                let size = buffer_size(name, value, 1152, &settings::MAX_RECEIVE_BUFFER[0])?;
                self.member.state.lock().receive_buffer = size;
            }
            linux::SO_SNDBUF | linux::SO_SNDBUFFORCE => {
                let size = buffer_size(name, value, 2304, &settings::MAX_SEND_BUFFER[0])?;
                self.member.state.lock().send_buffer = size;
            }
            // It is kept; where frames come from, bind(2) alone decides (Linux).
            linux::SO_BINDTODEVICE => {
                let name = value.get(..15).unwrap_or(value).split(|b| *b == 0).next().unwrap_or(&[]);
                let index = match name {
                    [] => 0,
                    name => self.table.link.interface_named(name).ok_or(ENODEV)?.index,
                };
                common.bind_to(index as i32)?;
            }
            name => return common.set_inert(name, value).unwrap_or(Err(ENOPROTOOPT)),
        }
        Ok(())
    }

    pub(crate) fn common_option(&self, name: u32) -> Result<Vec<u8>> {
        let mut common = self.common.lock();
        if let Some(value) = common.get(name) {
            return Ok(value);
        }
        let state = self.member.state.lock();
        Ok(match name {
            linux::SO_ERROR | linux::SO_ACCEPTCONN | linux::SO_PROTOCOL => from_int(0),
            linux::SO_TYPE => from_int(self.member.kind as u32),
            linux::SO_DOMAIN => from_int(self.family()),
            linux::SO_RCVBUF => from_int(state.receive_buffer as i64),
            linux::SO_SNDBUF => from_int(state.send_buffer as i64),
            linux::SO_BINDTODEVICE => {
                drop(state);
                let index = common.interface() as u32;
                let found = self.table.link.interface(index).ok_or(ENODEV)?;
                [found.name.as_bytes(), &[0]].concat()
            }
            name => return common.inert(name).ok_or(ENOPROTOOPT),
        })
    }

    pub(crate) fn set_packet_option(&self, name: u32, value: &[u8]) -> Result<()> {
        match name {
            PACKET_ADD_MEMBERSHIP | PACKET_DROP_MEMBERSHIP => return self.membership(name, value),
            PACKET_RX_RING => return self.set_ring(value, false),
            PACKET_TX_RING => return self.set_ring(value, true),
            PACKET_FANOUT => return fanout::join(&self.table, &self.member, value),
            PACKET_FANOUT_DATA => return self.set_fanout_program(value),
            _ => {}
        }
        let mut state = self.member.state.lock();
        let has_rings = state.has_rings();
        let options = &mut state.options;
        match name {
            PACKET_COPY_THRESH => options.copy_threshold = int(value)?,
            PACKET_AUXDATA => options.auxdata = int(value)? != 0,
            PACKET_ORIGDEV => options.original_device = int(value)? != 0,
            PACKET_VERSION => {
                let version = Version::from_number(exact(value)?)?;
                if has_rings {
                    return Err(EBUSY);
                }
                options.version = version;
            }
            PACKET_RESERVE => {
                let reserve = u32::try_from(exact(value)?).map_err(|_| EINVAL)?;
                if has_rings {
                    return Err(EBUSY);
                }
                options.reserve = reserve;
            }
            PACKET_LOSS => {
                let loss = exact(value)? != 0;
                if has_rings {
                    return Err(EBUSY);
                }
                options.loss = loss;
            }
            PACKET_TIMESTAMP => options.timestamp = exact(value)?,
            PACKET_IGNORE_OUTGOING => match exact(value)? {
                n @ 0..=1 => options.ignore_outgoing = n == 1,
                _ => return Err(EINVAL),
            },
            PACKET_TX_HAS_OFF => {
                let has_offset = exact(value)? != 0;
                // With rings it is too late, which is no error (Linux).
                if !has_rings {
                    options.has_offset = has_offset;
                }
            }
            PACKET_QDISC_BYPASS => options.qdisc_bypass = exact(value)? != 0,
            // Frames have no header of virtio's: the stack below has seen to checksums and segments.
            PACKET_VNET_HDR => {
                let wanted = int(value)? != 0;
                return if !self.is_raw() || wanted { Err(EINVAL) } else { Ok(()) };
            }
            _ => return Err(ENOPROTOOPT),
        }
        Ok(())
    }

    pub(crate) fn packet_option(&self, name: u32, asked: &[u8]) -> Result<Vec<u8>> {
        let mut state = self.member.state.lock();
        let options = state.options;
        Ok(match name {
            PACKET_STATISTICS => {
                let (received, dropped) = (state.received, state.dropped);
                (state.received, state.dropped) = (0, 0);
                let blocks = state.receiving.as_mut().and_then(|ring| ring.blocks.as_mut());
                let freezes = blocks.map_or(0, |blocks| core::mem::take(&mut blocks.freezes));
                let all = [received.wrapping_add(dropped), dropped, freezes];
                let count = if options.version == Version::V3 { 3 } else { 2 };
                all[..count].iter().flat_map(|number| number.to_ne_bytes()).collect()
            }
            PACKET_AUXDATA => from_int(options.auxdata),
            PACKET_ORIGDEV => from_int(options.original_device),
            PACKET_VNET_HDR => from_int(0),
            PACKET_VERSION => from_int(options.version as u32),
            PACKET_HDRLEN => from_int(Version::from_number(int(asked)?)?.header()),
            PACKET_RESERVE => from_int(options.reserve),
            PACKET_LOSS => from_int(options.loss),
            PACKET_TIMESTAMP => from_int(options.timestamp),
            PACKET_FANOUT => from_int(state.fanout.unwrap_or(0)),
            PACKET_IGNORE_OUTGOING => from_int(options.ignore_outgoing),
            PACKET_ROLLOVER_STATS => {
                let rollovers = state.rollovers.filter(|_| state.fanout.is_some()).ok_or(EINVAL)?;
                // Large flows are not told apart.
                [rollovers.all, 0, rollovers.failed].iter().flat_map(|number| number.to_ne_bytes()).collect()
            }
            PACKET_TX_HAS_OFF => from_int(options.has_offset),
            PACKET_QDISC_BYPASS => from_int(options.qdisc_bypass),
            _ => return Err(ENOPROTOOPT),
        })
    }

    /// `struct packet_mreq`.
    fn membership(&self, name: u32, value: &[u8]) -> Result<()> {
        let value = &value[..value.len().min(MREQ_MAX)];
        let Some([a, b, c, d, k, l, m, n, address @ ..]) = value.first_chunk::<MREQ>() else {
            return Err(EINVAL);
        };
        let interface = i32::from_ne_bytes([*a, *b, *c, *d]);
        let (kind, length) = (u16::from_ne_bytes([*k, *l]), u16::from_ne_bytes([*m, *n]));
        if usize::from(length) + MREQ_ADDRESS > value.len() {
            return Err(EINVAL);
        }
        let asked = (interface, kind, length);
        if name == PACKET_DROP_MEMBERSHIP {
            self.member.state.lock().leave(asked, *address);
            return Ok(());
        }
        let found = u32::try_from(interface).ok().and_then(|index| self.table.link.interface(index));
        found.ok_or(ENODEV)?;
        let is_address = [PACKET_MR_MULTICAST, PACKET_MR_UNICAST].contains(&kind);
        if length > MAC || is_address && length != MAC {
            return Err(EINVAL);
        }
        self.member.state.lock().join(asked, *address)
    }

    /// PACKET_RX_RING and PACKET_TX_RING: a ring is made, or with no blocks taken away. `EBUSY` while a program maps it, and where there
    /// is one.
    fn set_ring(&self, value: &[u8], is_transmit: bool) -> Result<()> {
        let (request, version, reserve) = {
            let state = self.member.state.lock();
            let version = state.options.version;
            let request = Request::parse(version, value)?;
            let ring = if is_transmit { &state.sending } else { &state.receiving };
            if state.are_rings_mapped() || request.blocks > 0 && ring.is_some() {
                return Err(EBUSY);
            }
            (request, version, state.options.reserve)
        };
        let ring = match request {
            Request { blocks: 0, frames: 0, .. } => None,
            Request { blocks: 0, .. } => return Err(EINVAL),
            request => Some(Ring::new(request, version, reserve, is_transmit)?),
        };
        let mut state = self.member.state.lock();
        // Another thread may have been here meanwhile.
        let is_late = (state.options.version, state.options.reserve) != (version, reserve);
        let slot = if is_transmit { &state.sending } else { &state.receiving };
        if is_late || state.are_rings_mapped() || ring.is_some() && slot.is_some() {
            return Err(EBUSY);
        }
        let slot = if is_transmit { &mut state.sending } else { &mut state.receiving };
        let old_ring = core::mem::replace(slot, ring);
        let mut old_packets = Vec::new();
        if !is_transmit {
            old_packets = core::mem::take(&mut state.queue).into();
            state.memory = 0;
        }
        drop(state);
        drop((old_ring, old_packets));
        Ok(())
    }

    /// PACKET_FANOUT_DATA of a group that a program chooses for: `struct sock_fprog`.
    fn set_fanout_program(&self, value: &[u8]) -> Result<()> {
        let kind = self.member.state.lock().fanout.map(|fanout| (fanout >> 16) as u16 & 0xff);
        if kind != Some(fanout::PROGRAM) {
            return Err(EINVAL);
        }
        if self.common.lock().is_kept_on(linux::SO_LOCK_FILTER) {
            return Err(EPERM);
        }
        let program: &[u8; SOCK_FPROG] = value.try_into().map_err(|_| EINVAL)?;
        let length = usize::from(u16::from_ne_bytes([program[0], program[1]]));
        let at = program.last_chunk().map_or(0, |at| u64::from_ne_bytes(*at));
        if at == 0 || length == 0 || length > MAX_INSTRUCTIONS {
            return Err(EINVAL);
        }
        let instructions = api_user::read_vec(at, length * Instruction::SIZE)?;
        fanout::set_program(&self.table, &self.member, Filter::new(&instructions)?)
    }
}
