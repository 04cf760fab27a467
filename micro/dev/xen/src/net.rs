// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The network device (`io/netif.h`) behind `api-netdev`: one queue and one event channel, checksums and TCP segmentation left to
//! the other end both ways.

mod receive;
#[cfg(test)]
mod tests;
mod transmit;

use crate::bus::{self, CONNECTED, Device, INIT_WAIT};
use crate::grant::{self, grant};
use crate::ring::{Broken, Ring};
use abi::{Result, errno::EINVAL, errno::EIO, errno::ENOMEM};
use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;
use api_alloc::Reserve;
use api_lock::SpinLock;
use api_netdev::{BUFFER_SIZE, Buffer, Incoming, Info, NetDevice, Outgoing};
use api_sched::{DeferredWork, DeferredWorkSlot};
use core::sync::atomic::{AtomicBool, Ordering};
use plat_pc::xen::{Page, event};
use receive::Receive;
use transmit::Transmit;

/// Pages for each direction: half a MiB, which holds more than a window of TCP. A power of two.
const PAGES: usize = 128;
/// References to payload in a packet; they are copied.
const FRAGMENTS: usize = 17;
/// Largest IP packet that is left to the other end to cut: with its Ethernet header it has a length of 16 bits.
const MAX_PACKET: usize = 65_535 - 14;
/// Smallest MTU that is believed (RFC 791).
const MTU_LEAST: usize = 576;

static DEFERRED_WORK: DeferredWorkSlot = DeferredWorkSlot::new();

pub struct Network {
    info: Info,
    channel: u32,
    receive: SpinLock<Receive>,
    transmit: SpinLock<Transmit>,
    is_told: AtomicBool,
    listens: AtomicBool,
}

/// The first network device, connected; `None` where there is none.
pub fn start(offloads: bool) -> Option<Arc<dyn NetDevice>> {
    let device = bus::devices("vif", 1).pop()?;
    match connect(&device, offloads) {
        Ok(network) => Some(Arc::new(network)),
        Err(e) => {
            log::error!("xen: the network device does not start: {e:?}");
            None
        }
    }
}

/// A ring, and pages for what it is about.
struct Half {
    ring: Ring,
    reference: u32,
    pages: &'static [Page],
    grants: Vec<u32>,
}

fn half(domain: u16, words: usize) -> Result<Half> {
    let [page] = grant::pages(1)? else { return Err(ENOMEM) };
    let pages = grant::pages(PAGES)?;
    let mut grants = Vec::new();
    grants.reserve_exact_fallibly(PAGES).map_err(|_| ENOMEM)?;
    let ring = Ring::new(page, words);
    for page in pages {
        grants.push(grant(domain, page)?);
    }
    Ok(Half { ring, reference: grant(domain, page)?, pages, grants })
}

fn mac(text: &str) -> Result<[u8; 6]> {
    let mut mac = [0; 6];
    let mut parts = text.trim_end_matches('\0').split(':');
    for byte in &mut mac {
        *byte = parts.next().and_then(|part| u8::from_str_radix(part, 16).ok()).ok_or(EINVAL)?;
    }
    if parts.next().is_some() { Err(EINVAL) } else { Ok(mac) }
}

fn connect(device: &Device, offloads: bool) -> Result<Network> {
    device.wait_for(INIT_WAIT)?;
    let mac = mac(&device.setting("mac")?)?;
    let mtu = device.setting("mtu").ok().and_then(|text| text.trim_end_matches('\0').parse().ok());
    let (sent, came) = (half(device.domain, transmit::WORDS)?, half(device.domain, receive::WORDS)?);
    let channel = device.channel()?;
    let has_pieces = device.offers("feature-sg");
    let cuts = offloads && has_pieces && device.offers("feature-gso-tcpv4");
    for (key, value) in [
        ("tx-ring-ref", sent.reference),
        ("rx-ring-ref", came.reference),
        ("event-channel", channel),
        ("request-rx-copy", 1),
        ("feature-rx-notify", 1),
        ("feature-sg", offloads.into()),
        ("feature-gso-tcpv4", offloads.into()),
        ("feature-no-csum-offload", (!offloads).into()),
    ] {
        device.say(key, value)?;
    }
    let mut spare = Vec::new();
    spare.reserve_exact_fallibly(receive::BUFFERS).map_err(|_| ENOMEM)?;
    let mut receive = Receive::new(came.ring, came.pages, came.grants, spare);
    // The other end looks for them when it connects.
    receive.fill();
    let transmit = Transmit::new(sent.ring, sent.pages, sent.grants)?;
    device.say("state", CONNECTED)?;
    device.wait_for(CONNECTED)?;
    event::notify(channel);
    let info = Info {
        mac,
        mtu: mtu.unwrap_or(1500).clamp(MTU_LEAST, BUFFER_SIZE - 14),
        queues: 1,
        transmit_checksum: offloads,
        segmentation: if cuts { MAX_PACKET } else { 0 },
        // The other end is asked for IPv4 alone.
        segments_ipv6: false,
        fragments: FRAGMENTS,
        headroom: 0,
        interrupts: true,
    };
    let (receive, transmit) = (SpinLock::new(receive), SpinLock::new(transmit));
    let (is_told, listens) = (AtomicBool::new(false), AtomicBool::new(false));
    Ok(Network { info, channel, receive, transmit, is_told, listens })
}

impl Network {
    /// The other end's fault ends the work with the device.
    fn check<T>(&self, result: core::result::Result<T, Broken>) -> Option<T> {
        if result.is_err() && !self.is_told.swap(true, Ordering::Relaxed) {
            log::error!(
                "xen: the network device's other end broke the protocol: the network is gone ({EIO:?})"
            );
        }
        result.ok()
    }
}

impl NetDevice for Network {
    fn info(&self) -> &Info {
        &self.info
    }

    fn transmit(&self, _queue: usize, packets: &mut VecDeque<Outgoing>) -> usize {
        let mut transmit = self.transmit.lock();
        let mut count = 0;
        while let Some(packet) = packets.pop_front() {
            if let Err(packet) = transmit.add(packet) {
                packets.push_front(packet);
                break;
            }
            count += 1;
        }
        count
    }

    fn flush(&self, _queue: usize) {
        let is_to_be_told = self.transmit.lock().push();
        if is_to_be_told {
            event::notify(self.channel);
        }
    }

    fn reclaim(&self, _queue: usize, heads: &mut Vec<Buffer>) {
        let result = self.transmit.lock().reclaim(heads);
        self.check(result);
    }

    fn receive(&self, _queue: usize, packets: &mut VecDeque<Incoming>, most: usize) -> usize {
        let mut receive = self.receive.lock();
        let mut count = 0;
        while count < most {
            match self.check(receive.packet()).flatten() {
                Some(packet) => packets.extend(packet),
                None => break,
            }
            count += 1;
        }
        if count > 0 && receive.fill() {
            event::notify(self.channel);
        }
        count
    }

    fn wanted(&self, _queue: usize) -> usize {
        self.receive.lock().wanted()
    }

    fn refill(&self, _queue: usize, buffers: &mut Vec<Buffer>) {
        self.receive.lock().refill(buffers);
    }

    fn arm_interrupt(&self, _queue: usize) -> bool {
        self.receive.lock().arm()
    }

    fn on_interrupt(&self, work: DeferredWork) {
        DEFERRED_WORK.set(work);
        if self.listens.swap(true, Ordering::Relaxed) {
            return;
        }
        if let Err(e) = event::listen(self.channel, |_| DEFERRED_WORK.raise(), 0) {
            log::error!(
                "xen: no event channel for the network ({e:?}): packets arrive only when the program calls"
            );
        }
    }
}
