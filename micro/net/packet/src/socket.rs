// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A packet socket: binding, reading, waiting. Sending is in [`crate::transmit`], options are in [`crate::options`].

use crate::address::{LinkAddress, MAC};
use crate::member::Member;
use crate::memory::Rings;
use crate::state::{Packet, State};
use crate::table::Table;
use abi::linux::net as linux;
use abi::{Events, Result, errno::*};
use alloc::sync::Arc;
use alloc::vec::Vec;
use api_alloc::Reserve;
use api_fs::{Sink, Source};
use api_lock::SpinLock;
use api_mem::PageSource;
use api_sched::WaitQueue;
use api_socket::options::Common;
use api_socket::{Address, Caller, Control, LastStamp, Received, SIOCGSTAMP, SIOCGSTAMPNS};
use api_socket::{Sending, Shutdown, Socket, Type};
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

pub const SOL_PACKET: u32 = 263;
pub const PACKET_AUXDATA: u32 = 8;
const SIOCINQ: u32 = 0x541b;
const SIOCOUTQ: u32 = 0x5411;
/// Flags of recvmsg(2) that Linux takes here.
const RECEIVE_FLAGS: u32 = linux::MSG_PEEK | linux::MSG_DONTWAIT | linux::MSG_TRUNC | linux::MSG_ERRQUEUE;

pub struct PacketSocket {
    pub(crate) table: Arc<Table>,
    pub(crate) member: Arc<Member>,
    pub(crate) common: SpinLock<Common>,
    last_stamp: LastStamp,
    closed: AtomicBool,
}

impl PacketSocket {
    /// A socket that receives frames of a protocol from all interfaces; of protocol 0 none before it is bound.
    pub fn new(table: &Arc<Table>, kind: Type, protocol: u16, user: u32) -> Result<Arc<PacketSocket>> {
        let member = Arc::new(Member {
            id: table.new_id(),
            kind,
            user,
            inode: AtomicU64::new(0),
            state: SpinLock::new(State::new(kind == Type::Raw, protocol)),
            queue: WaitQueue::new(),
            alarm: SpinLock::new(None),
        });
        table.add(&member)?;
        Ok(Arc::new(PacketSocket {
            table: table.clone(),
            member,
            common: SpinLock::default(),
            last_stamp: LastStamp::default(),
            closed: AtomicBool::new(false),
        }))
    }

    pub(crate) fn is_raw(&self) -> bool {
        self.member.kind == Type::Raw
    }

    /// What recvmsg(2) adds to a packet.
    fn control(&self, packet: &Packet) -> Result<Vec<Control>> {
        let mut control = Vec::new();
        control.reserve_fallibly(4).map_err(|_| ENOMEM)?;
        let mut add = |level: u32, kind: u32, data: Vec<u8>| {
            control.push(Control::Other { level: level as i32, kind: kind as i32, data });
        };
        let common = self.common.lock();
        common.stamps.messages(packet.at).for_each(|(level, kind, data)| add(level, kind, data));
        if common.is_kept_on(linux::SO_RXQ_OVFL) && packet.drops > 0 {
            add(linux::SOL_SOCKET, linux::SO_RXQ_OVFL, Vec::from(packet.drops.to_ne_bytes()));
        }
        drop(common);
        if self.member.state.lock().options.auxdata {
            add(SOL_PACKET, PACKET_AUXDATA, auxiliary(packet));
        }
        Ok(control)
    }
}

/// `struct tpacket_auxdata`.
fn auxiliary(packet: &Packet) -> Vec<u8> {
    let words = [packet.status, packet.length as u32, packet.bytes.len() as u32];
    let mut out: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
    // Where the link's header begins and the network's; and the tag of a virtual LAN, which stays in the frame.
    for half in [0, packet.link_length as u16, 0, 0] {
        out.extend_from_slice(&half.to_ne_bytes());
    }
    out
}

impl Socket for PacketSocket {
    fn family(&self) -> u16 {
        Address::PACKET
    }

    fn socket_type(&self) -> Type {
        self.member.kind
    }

    fn bind(&self, _caller: &Caller<'_>, address: &Address) -> Result<()> {
        let address = LinkAddress::parse(address).and_then(|parsed| {
            if address.family() == Some(Address::PACKET) { Ok(parsed) } else { Err(EINVAL) }
        })?;
        let interface = u32::try_from(address.interface).map_err(|_| ENODEV);
        let is_there = |index: &u32| *index == 0 || self.table.link.interface(*index).is_some();
        {
            let link = interface.and_then(|index| if is_there(&index) { Ok(index) } else { Err(ENODEV) });
            let mut state = self.member.state.lock();
            if state.fanout.is_some() {
                return Err(EINVAL);
            }
            state.interface = link?;
            if address.protocol != 0 {
                state.protocol = address.protocol;
            }
        }
        self.table.refresh();
        Ok(())
    }

    fn shutdown(&self, _: Shutdown) -> Result<()> {
        Err(EOPNOTSUPP)
    }

    fn local_address(&self) -> Result<Address> {
        let mut address = {
            let state = self.member.state.lock();
            LinkAddress {
                protocol: state.protocol,
                interface: state.interface as i32,
                ..LinkAddress::default()
            }
        };
        if let Some(interface) = self.table.link.interface(address.interface as u32) {
            address.hardware = interface.hardware;
            address.length = MAC as u8;
            address.address[..MAC].copy_from_slice(&interface.mac);
        }
        Ok(address.show_own())
    }

    fn peer_address(&self) -> Result<Address> {
        Err(EOPNOTSUPP)
    }

    fn send(&self, _caller: Option<&Caller<'_>>, message: &Sending, from: &mut Source<'_>) -> Result<usize> {
        if self.member.state.lock().sending.is_some() {
            return self.send_ring(message);
        }
        self.send_message(message, from)
    }

    fn receive(&self, to: &mut Sink<'_>, flags: u32) -> Result<Received> {
        if flags & !RECEIVE_FLAGS != 0 {
            return Err(EINVAL);
        }
        if flags & linux::MSG_ERRQUEUE != 0 {
            return Err(EAGAIN);
        }
        let packet = self.member.state.lock().pop().ok_or(EAGAIN)?;
        let length = packet.bytes.len();
        let moved = to.put(&packet.bytes);
        let done = *moved.as_ref().unwrap_or(&0);
        let received = Received {
            length: if flags & linux::MSG_TRUNC != 0 { length } else { done },
            from: Some(packet.address.show()),
            control: self.control(&packet)?,
            flags: if done < length { linux::MSG_TRUNC } else { 0 },
        };
        self.last_stamp.received(self.common.lock().stamps.are_wanted(), Some(packet.at));
        if flags & linux::MSG_PEEK != 0 {
            self.member.state.lock().push_front(packet);
        }
        moved.map(|_| received)
    }

    fn set_option(&self, level: i32, name: i32, value: &[u8]) -> Result<()> {
        match level as u32 {
            linux::SOL_SOCKET => self.set_common_option(name as u32, value),
            SOL_PACKET => self.set_packet_option(name as u32, value),
            _ => Err(ENOPROTOOPT),
        }
    }

    fn get_option(&self, level: i32, name: i32, asked: &[u8]) -> Result<Vec<u8>> {
        match level as u32 {
            linux::SOL_SOCKET => self.common_option(name as u32),
            SOL_PACKET => self.packet_option(name as u32, asked),
            _ => Err(ENOPROTOOPT),
        }
    }

    fn timeout_ns(&self, receive: bool) -> Option<u64> {
        self.common.lock().timeout_ns(receive)
    }

    fn poll(&self) -> Events {
        self.member.state.lock().poll()
    }

    fn wait_queue(&self) -> &WaitQueue {
        &self.member.queue
    }

    fn ioctl(&self, command: u32, argument: u64) -> Result<usize> {
        match command {
            SIOCINQ => {
                let next = self.member.state.lock().queue.front().map_or(0, |packet| packet.bytes.len());
                api_fs::write_user_int(argument, next as i32).map(|()| 0)
            }
            // A frame that was sent is the device's at once.
            SIOCOUTQ => api_fs::write_user_int(argument, 0).map(|()| 0),
            SIOCGSTAMP => self.last_stamp.write(argument, false),
            SIOCGSTAMPNS => self.last_stamp.write(argument, true),
            _ => Err(ENOTTY),
        }
    }

    fn page_source(&self) -> Result<Arc<dyn PageSource>> {
        let state = self.member.state.lock();
        let rings = [&state.receiving, &state.sending].into_iter().flatten().map(|ring| ring.memory.clone());
        let rings: Vec<_> = rings.collect();
        // Linux says so of a mapping whose size is not that of all rings.
        if rings.is_empty() { Err(EINVAL) } else { Ok(Arc::new(Rings(rings))) }
    }

    fn named(&self, inode: u64) {
        self.member.inode.store(inode, Ordering::Relaxed);
    }

    fn close(&self) {
        if self.closed.swap(true, Ordering::Relaxed) {
            return;
        }
        self.table.remove(&self.member);
        if let Some(alarm) = self.member.alarm.lock().take() {
            self.table.link.cancel_alarm(alarm);
        }
    }
}

impl Drop for PacketSocket {
    fn drop(&mut self) {
        self.close();
    }
}
