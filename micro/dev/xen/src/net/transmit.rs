// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Packets that leave: copied to pages that the other end may read, one request for each page, and one more between the first
//! two where segmentation is left to it (`io/netif.h`).

use crate::page::{PAGE, Writer};
use crate::ring::{Broken, Ring};
use abi::{Result, errno::ENOMEM};
use alloc::vec::Vec;
use api_alloc::Reserve;
use api_netdev::{Buffer, Outgoing};
use plat_pc::xen::Page;

/// Words of a request.
pub const WORDS: usize = 3;
// Flags of a request (`NETTXF_`).
pub const CHECKSUM_BLANK: u32 = 1;
pub const DATA_VALIDATED: u32 = 2;
pub const MORE_DATA: u32 = 4;
pub const EXTRA_INFO: u32 = 8;
/// `XEN_NETIF_EXTRA_TYPE_GSO`, and `XEN_NETIF_GSO_TYPE_TCPV4`.
pub const EXTRA_SEGMENTATION: u32 = 1;
pub const TCPV4: u32 = 1;
/// Response to an entry that was no request (`XEN_NETIF_RSP_NULL`).
const NULL: i16 = 1;
/// Requests of a packet that every other end takes (`XEN_NETIF_NR_SLOTS_MIN`).
const MAX_PIECES: usize = 18;

pub struct Transmit {
    ring: Ring,
    pages: &'static [Page],
    /// By which the other end names the pages.
    grants: Vec<u32>,
    free: Vec<u16>,
    /// Which pages the other end has.
    is_out: Vec<bool>,
    /// Buffers of packets that were copied.
    done: Vec<Buffer>,
    is_broken: bool,
}

fn list<T>(length: usize) -> Result<Vec<T>> {
    let mut list = Vec::new();
    list.reserve_exact_fallibly(length).map_err(|_| ENOMEM)?;
    Ok(list)
}

impl Transmit {
    pub fn new(ring: Ring, pages: &'static [Page], grants: Vec<u32>) -> Result<Transmit> {
        let mut free = list(pages.len())?;
        free.extend((0..pages.len() as u16).rev());
        let mut is_out = list(pages.len())?;
        is_out.resize(pages.len(), false);
        Ok(Transmit { ring, pages, grants, free, is_out, done: list(pages.len())?, is_broken: false })
    }

    /// Takes a packet, or gives it back when there is no room. What no other end would take is dropped.
    pub fn add(&mut self, packet: Outgoing) -> core::result::Result<(), Outgoing> {
        let length = packet.length();
        let count = length.div_ceil(PAGE);
        if self.is_broken || count == 0 || count > MAX_PIECES || length > usize::from(u16::MAX) {
            self.finish(packet.head);
            return Ok(());
        }
        let entries = count + usize::from(packet.segmentation.is_some());
        if (self.ring.room() as usize) < entries || self.free.len() < count {
            return Err(packet);
        }
        let ids = self.free.split_off(self.free.len() - count);
        let mut writer = Writer::new(ids.iter().map(|id| &self.pages[usize::from(*id)]));
        writer.put(packet.head.bytes());
        packet.fragments.iter().for_each(|fragment| writer.put(fragment.bytes()));
        let mut first = if packet.checksum.is_some() { CHECKSUM_BLANK | DATA_VALIDATED } else { 0 };
        first |= if packet.segmentation.is_some() { EXTRA_INFO } else { 0 };
        for (i, id) in ids.iter().enumerate() {
            let more = if i + 1 < count { MORE_DATA } else { 0 };
            // The first one says how long all of them are.
            let (flags, size) =
                if i == 0 { (first | more, length) } else { (more, (length - i * PAGE).min(PAGE)) };
            let grant = self.grants[usize::from(*id)];
            self.ring.write(&[grant, flags << 16, u32::from(*id) | (size as u32) << 16]);
            self.is_out[usize::from(*id)] = true;
            if let Some(s) = packet.segmentation.filter(|_| i == 0) {
                self.ring.write(&[EXTRA_SEGMENTATION | u32::from(s.segment_size) << 16, TCPV4, 0]);
            }
        }
        self.finish(packet.head);
        Ok(())
    }

    fn finish(&mut self, head: Buffer) {
        if self.done.len() < self.done.capacity() {
            self.done.push(head);
        }
    }

    /// Shows the other end what was added; true: it is to be told.
    pub fn push(&mut self) -> bool {
        self.ring.push()
    }

    /// Takes back what the other end is done with.
    pub fn reclaim(&mut self, heads: &mut Vec<Buffer>) -> core::result::Result<(), Broken> {
        heads.append(&mut self.done);
        while !self.is_broken && self.responses()? > 0 {
            let (_, [word]) = self.ring.take::<1>();
            let (id, status) = (word as u16, (word >> 16) as i16);
            if status == NULL {
                continue;
            }
            match self.is_out.get_mut(usize::from(id)) {
                Some(is_out) if *is_out => {
                    *is_out = false;
                    self.free.push(id);
                }
                _ => return self.fail(),
            }
        }
        Ok(())
    }

    fn responses(&mut self) -> core::result::Result<u32, Broken> {
        self.ring.waiting().or_else(|_| self.fail().map(|()| 0))
    }

    /// Nothing is sent any more.
    fn fail(&mut self) -> core::result::Result<(), Broken> {
        self.is_broken = true;
        Err(Broken)
    }
}
