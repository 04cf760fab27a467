// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Network devices behind the first: each is an interface of the machine's network with the address that the host gives it. The stack has
//! frames for them in one piece and without offloads, and looks for theirs whenever it is polled.

use crate::machine::Devices;
use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;
use api_alloc::Reserve;
use api_lock::SpinLock;
use api_netdev::interface::{Interfaces, Port};
use api_netdev::{BUFFER_SIZE, Buffer, Incoming, NetDevice, Outgoing};
use api_plat::BootConfig;
use api_sched::DeferredWork;
use core::any::Any;
use core::net::Ipv4Addr;
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use tcpip::interfaces::ports;
use tcpip::ip::Configuration;
use tcpip::stack::Net;
use tcpip::wire::{self, Ethernet, Ipv4, Sum};

/// Frames that wait for the device at most: what finds no room is dropped.
const QUEUE: usize = 512;
/// Frames of a device that are taken at once.
const BURST: usize = 64;
const TCP: u8 = 6;
const UDP: u8 = 17;

/// A device, and where its interface is.
struct Wire {
    device: Arc<dyn NetDevice>,
    waiting: SpinLock<VecDeque<Outgoing>>,
    place: SpinLock<Option<(Arc<dyn Interfaces>, u32)>>,
    is_gone: AtomicBool,
}

static WIRES: SpinLock<Vec<Arc<Wire>>> = SpinLock::new(Vec::new());
/// How many there are: most machines have none, and are polled often.
static COUNT: AtomicUsize = AtomicUsize::new(0);

/// Starts them, as `config` names them.
pub fn start(config: &BootConfig, devices: &mut Devices, net: &Arc<Net>, work: DeferredWork) {
    let interfaces = ports::of(net);
    for about in &config.further {
        let Some(device) = devices.network(true) else {
            log::error!("{}: the machine has no such network device", about.name);
            return;
        };
        let wire = Arc::new(Wire {
            device: device.clone(),
            waiting: SpinLock::default(),
            place: SpinLock::new(None),
            is_gone: AtomicBool::new(false),
        });
        let placed = ports::place(
            net,
            &about.name,
            &Configuration {
                address: Ipv4Addr::from(about.ip.address),
                prefix: about.ip.length,
                gateway: about.gateway.map(Ipv4Addr::from),
            },
            (device.info().mac, device.info().mtu),
            wire.clone(),
        );
        let index = match placed {
            Ok(index) => index,
            Err(e) => {
                log::error!("{}: the interface cannot be made: {e:?}", about.name);
                continue;
            }
        };
        *wire.place.lock() = Some((interfaces.clone(), index));
        let mut wires = WIRES.lock();
        if wires.reserve_fallibly(1).is_err() {
            log::error!("{}: no memory for its device", about.name);
            return;
        }
        wires.push(wire);
        COUNT.store(wires.len(), Ordering::Relaxed);
        drop(wires);
        NetDevice::on_interrupt(&*device, work);
    }
}

/// Each of them, without the lock: the stack may have frames for them meanwhile.
fn wires() -> impl Iterator<Item = Arc<Wire>> {
    (0..COUNT.load(Ordering::Relaxed)).map_while(|n| WIRES.lock().get(n).cloned())
}

/// Takes frames of all of them; true when there may be more.
pub fn poll() -> bool {
    wires().fold(false, |more, wire| wire.poll() || more)
}

/// Asks them for an interrupt; false where one has a frame already.
pub fn arm() -> bool {
    wires().fold(true, |armed, wire| wire.device.arm_interrupt(0) && armed)
}

impl Wire {
    fn poll(&self) -> bool {
        self.send();
        self.refill();
        let mut packets = VecDeque::new();
        let count = self.device.receive(0, &mut packets, BURST);
        let place = self.place.lock().clone();
        let Some((interfaces, index)) = place.filter(|_| !self.is_gone.load(Ordering::Relaxed)) else {
            return count == BURST;
        };
        for packet in packets {
            match whole(packet) {
                // One that is down drops it, and counts that.
                Some(frame) => drop(interfaces.receive(index, frame)),
                None => interfaces.count_receive_drop(index),
            }
        }
        count == BURST
    }

    fn refill(&self) {
        let mut buffers = Vec::new();
        let wanted = self.device.wanted(0);
        if buffers.reserve_fallibly(wanted).is_err() {
            return;
        }
        buffers.extend((0..wanted).map_while(|_| Buffer::new(BUFFER_SIZE, 0)));
        self.device.refill(0, &mut buffers);
    }

    /// Hands over what waits. What the device does not take waits on.
    fn send(&self) {
        let mut waiting = self.waiting.lock();
        if !waiting.is_empty() {
            self.device.transmit(0, &mut waiting);
        }
        drop(waiting);
        self.device.flush(0);
        self.device.reclaim(0, &mut Vec::new());
    }
}

impl Port for Wire {
    fn transmit(&self, frame: Buffer) -> bool {
        let mut waiting = self.waiting.lock();
        if waiting.len() >= QUEUE || waiting.reserve_fallibly(1).is_err() {
            return false;
        }
        waiting.push_back(Outgoing::plain(frame));
        true
    }

    fn settle(&self) {
        self.send();
    }

    fn detached(&self) {
        self.is_gone.store(true, Ordering::Relaxed);
    }

    fn moved(&self, to: Arc<dyn Interfaces>, index: u32) {
        *self.place.lock() = Some((to, index));
    }

    fn as_any(&self) -> &dyn Any {
        self
    }

    fn into_any(self: Arc<Self>) -> Arc<dyn Any + Send + Sync> {
        self
    }
}

/// The frame in one piece, as it would be on a wire; `None` where there is no memory. A host that vouches for the checksum may have left it
/// to whoever sends the frame on.
fn whole(packet: Incoming) -> Option<Buffer> {
    let Incoming { first, more, checksum_valid } = packet;
    let mut frame = match more.is_empty() {
        true => first,
        false => {
            let length = first.len() + more.iter().map(Buffer::len).sum::<usize>();
            let mut frame = Buffer::new(length, 0)?;
            let pieces = core::iter::once(&first).chain(&more);
            pieces.into_iter().all(|piece| frame.append(piece.bytes())).then_some(frame)?
        }
    };
    if checksum_valid {
        complete(frame.bytes_mut());
    }
    Some(frame)
}

/// Puts the checksum of TCP or UDP into a packet of IPv4.
fn complete(frame: &mut [u8]) {
    let is_v4 = Ethernet::parse(frame).is_some_and(|header| header.ethertype == wire::ETHERTYPE_IPV4);
    let Some(packet) = frame.get_mut(wire::ETHERNET..).filter(|_| is_v4) else { return };
    let Some(header) = Ipv4::parse(packet) else { return };
    let at = match header.protocol {
        TCP => 16,
        UDP => 6,
        _ => return,
    };
    // A fragment is no whole segment.
    let is_whole = !header.more_fragments && header.fragment_offset == 0;
    let Some(segment) = packet.get_mut(header.header..header.total).filter(|_| is_whole) else { return };
    let Some(place) = segment.get_mut(at..at + 2) else { return };
    place.fill(0);
    let mut sum = Sum::pseudo(header.source, header.destination, header.protocol, segment.len());
    let checksum = match sum.add(segment).finish() {
        // RFC 768: nothing is no checksum.
        0 if header.protocol == UDP => 0xffff,
        checksum => checksum,
    };
    segment[at..at + 2].copy_from_slice(&checksum.to_be_bytes());
}
