// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The stack's link for others (`api_netdev::link`): every frame is shown to a tap, if there is one, and frames that others made
//! are sent.

use crate::families::is_v6;
use crate::icmp::datagram_buffer;
use crate::ip::{Ip, LOOPBACK_MTU, Loopback};
use crate::stack::{Net, Stack};
use crate::wire::{self, Ethernet, Ipv4};
use abi::{Result, errno::*};
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use api_alloc::Reserve;
#[cfg(feature = "interfaces")]
use api_netdev::link::ARPHRD_NONE;
use api_netdev::link::{ARPHRD_ETHER, ARPHRD_LOOPBACK, Frame, Interface, Link, Tap, Verdict};
use api_netdev::{Buffer, Incoming, Name, Outgoing};
use api_sched::{TimerId, Waiter};

const ETHERTYPE_IPV6: u16 = 0x86dd;
const LOOPBACK: u32 = crate::multicast::LOOPBACK as u32;
const ETHERNET: u32 = crate::multicast::ETHERNET as u32;

/// The tap, and what showing frames takes.
pub struct Watch {
    tap: Arc<dyn Tap>,
    /// Who sends the frame that is about to be queued.
    sender: Option<u64>,
    /// Frames that lie in several pieces are put together here.
    whole: Vec<u8>,
}

impl Watch {
    /// Shows a frame that is in these pieces. One that there is no memory for is not seen.
    fn show<'a>(
        &mut self,
        interface: &Interface,
        pieces: impl Iterator<Item = &'a [u8]> + Clone,
        checksum: Verdict,
        is_outgoing: bool,
    ) {
        let sender = self.sender.filter(|_| is_outgoing);
        let mut rest = pieces.clone();
        let bytes = match (rest.next(), rest.next()) {
            (Some(only), None) => only,
            _ => {
                self.whole.clear();
                if self.whole.reserve_fallibly(pieces.clone().map(<[u8]>::len).sum()).is_err() {
                    return;
                }
                pieces.for_each(|piece| self.whole.extend_from_slice(piece));
                &self.whole
            }
        };
        self.tap.frame(&Frame { interface, bytes, is_outgoing, checksum, sender });
    }
}

impl Ip {
    pub(crate) fn is_watched(&self) -> bool {
        self.watch.is_some()
    }

    pub(crate) fn tap(&self) -> Option<Arc<dyn Tap>> {
        self.watch.as_ref().map(|watch| watch.tap.clone())
    }

    fn ethernet_interface(&self) -> Option<Interface> {
        let info = self.info?;
        Some(Interface {
            index: ETHERNET,
            name: Name::new("eth0"),
            hardware: ARPHRD_ETHER,
            mac: info.mac,
            mtu: info.mtu,
        })
    }

    /// A frame is about to be queued for the device.
    #[cold]
    pub(crate) fn show_sent(&mut self, packet: &Outgoing) {
        let (Some(interface), Some(watch)) = (self.ethernet_interface(), &mut self.watch) else { return };
        let checksum = if packet.checksum.is_some() { Verdict::Pending } else { Verdict::Unknown };
        let pieces = core::iter::once(packet.head.bytes()).chain(packet.fragments.iter().map(|f| f.bytes()));
        watch.show(&interface, pieces, checksum, true);
    }

    /// The device received a frame.
    #[cold]
    pub(crate) fn show_received(&mut self, packet: &Incoming) {
        let (Some(interface), Some(watch)) = (self.ethernet_interface(), &mut self.watch) else { return };
        if packet.first.len() < wire::ETHERNET {
            return;
        }
        let checksum = if packet.checksum_valid { Verdict::Valid } else { Verdict::Unknown };
        let pieces = core::iter::once(packet.first.bytes()).chain(packet.more.iter().map(Buffer::bytes));
        watch.show(&interface, pieces, checksum, false);
    }

    /// A packet goes into loopback, or comes out of it.
    #[cold]
    pub(crate) fn show_looped(&mut self, packet: &[u8], is_outgoing: bool) {
        let Some(header) = Ipv4::parse(packet) else { return };
        let is_v6 = is_v6(header.destination);
        let mut link = [0; wire::ETHERNET];
        let ethertype = if is_v6 { ETHERTYPE_IPV6 } else { wire::ETHERTYPE_IPV4 };
        link[12..].copy_from_slice(&ethertype.to_be_bytes());
        // Inside the stack a packet of IPv6 has a header of IPv4.
        let payload = packet.get(header.header..).unwrap_or(&[]);
        let (network, length) = crate::filter::network_header(self, &header, payload.len());
        let interface = loopback(&self.lo);
        let Some(watch) = &mut self.watch else { return };
        let (network, rest) = if is_v6 { (&network[..length], payload) } else { (packet, &[][..]) };
        let is_unproven = [wire::PROTOCOL_TCP, wire::PROTOCOL_UDP].contains(&header.protocol);
        let checksum = if is_unproven { Verdict::Pending } else { Verdict::Unknown };
        watch.show(&interface, [&link[..], network, rest].into_iter(), checksum, is_outgoing);
    }

    /// A frame leaves by an interface of the table, or came in by it. Packets without a link's header are not shown.
    #[cfg(feature = "interfaces")]
    #[cold]
    pub(crate) fn show_of(&mut self, index: u32, frame: &[u8], is_outgoing: bool) {
        let (Some(interface), Some(watch)) = (self.interface_of_table(index), &mut self.watch) else {
            return;
        };
        if interface.hardware == ARPHRD_ETHER && frame.len() >= wire::ETHERNET {
            watch.show(&interface, core::iter::once(frame), Verdict::Unknown, is_outgoing);
        }
    }

    /// An interface that a program made.
    #[cfg(feature = "interfaces")]
    fn interface_of_table(&self, index: u32) -> Option<Interface> {
        use crate::interfaces::Kind;
        let interface = self.interfaces.as_ref()?.get(index).ok()?;
        if matches!(interface.kind, Kind::Loopback | Kind::Device) {
            return None;
        }
        Some(Interface {
            index,
            name: interface.name,
            hardware: if interface.has_ethernet() { ARPHRD_ETHER } else { ARPHRD_NONE },
            mac: interface.mac,
            mtu: interface.mtu,
        })
    }

    #[cfg(not(feature = "interfaces"))]
    fn interface_of_table(&self, _: u32) -> Option<Interface> {
        None
    }

    fn send_frame(&mut self, frame: &[u8], sender: u64) -> Result<()> {
        Ethernet::parse(frame).ok_or(EINVAL)?;
        let mut head = datagram_buffer(self, frame.len()).ok_or(ENOBUFS)?;
        if !head.append(frame) {
            return Err(ENOBUFS);
        }
        self.set_sender(Some(sender));
        let is_queued = self.enqueue(Outgoing::plain(head));
        self.set_sender(None);
        if is_queued { Ok(()) } else { Err(ENOBUFS) }
    }

    /// As [`Ip::send_frame`], by an interface that a program made.
    #[cfg(feature = "interfaces")]
    fn send_frame_by(&mut self, now: u64, index: u32, frame: &[u8], sender: u64) -> Result<()> {
        let interface = self.interfaces.as_ref().and_then(|all| all.get(index).ok()).ok_or(ENXIO)?;
        if !interface.is_up() {
            return Err(ENETDOWN);
        }
        let mut head = datagram_buffer(self, frame.len()).ok_or(ENOBUFS)?;
        if !head.append(frame) {
            return Err(ENOBUFS);
        }
        self.set_sender(Some(sender));
        self.leave(now, index, head);
        self.set_sender(None);
        Ok(())
    }

    fn set_sender(&mut self, sender: Option<u64>) {
        if let Some(watch) = &mut self.watch {
            watch.sender = sender;
        }
    }
}

fn loopback(lo: &Loopback) -> Interface {
    Interface {
        index: LOOPBACK,
        name: Name::new("lo"),
        hardware: ARPHRD_LOOPBACK,
        mac: [0; 6],
        // No program makes frames that are larger than packets may be.
        mtu: (lo.mtu as usize).min(LOOPBACK_MTU + 1),
    }
}

impl Stack {
    /// A frame of somebody else's goes through loopback: taps see it, and of those for this machine the stack takes IPv4.
    fn loop_frame(&mut self, now: u64, frame: &[u8], sender: u64) -> Result<()> {
        let header = Ethernet::parse(frame).ok_or(EINVAL)?;
        self.ip.set_sender(Some(sender));
        let interface = loopback(&self.ip.lo);
        if let Some(watch) = &mut self.ip.watch {
            for is_outgoing in [true, false] {
                watch.show(&interface, core::iter::once(frame), Verdict::Unknown, is_outgoing);
            }
        }
        self.ip.set_sender(None);
        self.ip.statistics.looped_packets += 1;
        self.ip.statistics.looped_bytes += frame.len() as u64;
        let is_for_us = header.destination[0] & 1 == 1 || header.destination == [0; 6];
        let packet = &frame[wire::ETHERNET..];
        // Packets of the stack's own come from the stack alone (Linux' ip_route_input_slow).
        let is_forged = |header: Ipv4| self.ip.is_own(header.source) || header.destination.is_loopback();
        if header.ethertype == wire::ETHERTYPE_IPV4
            && is_for_us
            && !Ipv4::parse(packet).is_some_and(is_forged)
        {
            let mut first = datagram_buffer(&mut self.ip, packet.len()).ok_or(ENOBUFS)?;
            if !first.append(packet) {
                return Err(ENOBUFS);
            }
            self.ipv4_from(now, Incoming { first, more: Vec::new(), checksum_valid: false }, ETHERNET);
        }
        Ok(())
    }
}

/// The link of a stack.
struct StackLink(Arc<Net>);

/// The stack's link for others.
pub fn of(net: &Arc<Net>) -> Arc<dyn Link> {
    Arc::new(StackLink(net.clone()))
}

impl StackLink {
    fn find(&self, is_it: impl Fn(&Interface) -> bool) -> Option<Interface> {
        let all = self.0.look(|stack| [Some(loopback(&stack.ip.lo)), stack.ip.ethernet_interface()]);
        all.into_iter().flatten().find(is_it)
    }

    #[cfg(feature = "interfaces")]
    fn find_named(&self, name: &[u8]) -> Option<Interface> {
        let name = Name::parse(name).ok()?;
        self.0.look(|stack| {
            let index = stack.ip.interfaces.as_ref()?.named(&name)?;
            stack.ip.interface_of_table(index)
        })
    }

    #[cfg(not(feature = "interfaces"))]
    fn find_named(&self, _: &[u8]) -> Option<Interface> {
        None
    }
}

impl Link for StackLink {
    fn interface(&self, index: u32) -> Option<Interface> {
        let own = self.find(|interface| interface.index == index);
        own.or_else(|| self.0.look(|stack| stack.ip.interface_of_table(index)))
    }

    fn interface_named(&self, name: &[u8]) -> Option<Interface> {
        self.find(|interface| interface.name.as_bytes() == name).or_else(|| self.find_named(name))
    }

    fn send(&self, interface: u32, frame: &[u8], sender: u64) -> Result<()> {
        self.0.act(|stack, now| match interface {
            LOOPBACK => stack.loop_frame(now, frame, sender),
            _ if stack.ip.ethernet_interface().is_some_and(|ethernet| ethernet.index == interface) => {
                stack.ip.send_frame(frame, sender)
            }
            #[cfg(feature = "interfaces")]
            index if stack.ip.interface_of_table(index).is_some() => {
                stack.ip.send_frame_by(now, index, frame, sender)
            }
            _ => Err(ENXIO),
        })
    }

    fn watch(&self, tap: Arc<dyn Tap>, is_wanted: &dyn Fn() -> bool) {
        self.0.look(|stack| {
            let watch = &mut stack.ip.watch;
            match (is_wanted(), watch.is_some()) {
                (true, false) => *watch = Some(Box::new(Watch { tap, sender: None, whole: Vec::new() })),
                (false, true) => *watch = None,
                _ => {}
            }
        });
    }

    fn now_ns(&self) -> u64 {
        self.0.host.now_ns()
    }

    fn alarm(&self, at_ns: u64, waiter: Arc<dyn Waiter>) -> Option<TimerId> {
        self.0.host.alarm(at_ns, waiter)
    }

    fn cancel_alarm(&self, id: TimerId) {
        self.0.host.cancel_alarm(id);
    }
}
