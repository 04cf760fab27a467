// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Where a new mapping goes, and whether there may be one.

use crate::commit;
use crate::layout::LOWEST;
use crate::space::{Inner, Request, Space, whole_pages};
use crate::vma::max_mappings;
use crate::{PAGE, Prot, USER_END};
use abi::{Result, errno::*};

/// Where a new mapping goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// At the address if that is free (0: no wish), else anywhere.
    Anywhere,
    /// There, replacing what is there.
    Fixed,
    /// There, or `EEXIST`.
    FixedNoReplace,
    /// In the low 2 GiB.
    Low,
}

/// Where MAP_32BIT places mappings (mmap(2)): the second gigabyte.
const LOW_START: u64 = 0x4000_0000;
const LOW_END: u64 = 0x8000_0000;

impl Space {
    /// The errors of [`Space::map`] that a fixed address alone has, which mmap(2) tells before all that is wrong with the
    /// rest of what was asked for.
    pub fn check_fixed(&self, place: Place, address: u64, length: u64) -> Result<()> {
        self.lock().check_fixed(place, address, whole_pages(length)?)
    }
}

impl Inner {
    fn check_fixed(&self, place: Place, address: u64, length: u64) -> Result<()> {
        let end = address.checked_add(length).filter(|end| *end <= USER_END).ok_or(ENOMEM)?;
        if !address.is_multiple_of(PAGE) {
            return Err(EINVAL);
        }
        if address < LOWEST {
            return Err(EPERM);
        }
        if place == Place::FixedNoReplace && self.tree.first_overlap(address, end).is_some() {
            return Err(EEXIST);
        }
        Ok(())
    }

    /// The address a request gets.
    pub(crate) fn place(&mut self, request: &Request, length: u64) -> Result<u64> {
        let top = self.layout.mmap_base;
        let address = request.address;
        match request.place {
            Place::Fixed | Place::FixedNoReplace => {
                return self.check_fixed(request.place, address, length).map(|()| address);
            }
            Place::Low | Place::Anywhere => {}
        }
        // Linux takes the hint of MAP_32BIT as well, below 2 GiB: SBCL ends when it gets another address.
        let is_low = request.place == Place::Low;
        let end = if is_low { LOW_END } else { USER_END };
        let last = end.checked_sub(length).ok_or(ENOMEM)?;
        let wish = abi::page_up(address).unwrap_or(0);
        if address != 0 && wish >= LOWEST && wish <= last {
            let free = self.tree.first_overlap(wish, wish + length).is_none();
            if free {
                return Ok(wish);
            }
        }
        if is_low {
            return self.tree.gap_above(LOW_START, LOW_END, length).ok_or(ENOMEM);
        }
        let found = self.tree.gap_for_mmap(LOWEST, top, length);
        // Linux: where the top-down area is full, from the bottom up.
        found.or_else(|| self.tree.gap_above(top, USER_END, length)).ok_or(ENOMEM)
    }

    /// Checks a request against the resource limits of the process and against the overcommit policy ([`crate::OVERCOMMIT`]).
    pub(crate) fn check_limits(&self, request: &Request, start: u64, length: u64) -> Result<()> {
        let pages = length / PAGE;
        let replaced: u64 = match request.place {
            Place::Fixed => self.mapped_in(start, start + length) / PAGE,
            _ => 0,
        };
        if self.tree.len() + 2 > max_mappings() {
            return Err(ENOMEM);
        }
        if self.pages + pages - replaced > self.limits.address_space / PAGE {
            return Err(ENOMEM);
        }
        let private_write = !request.shared && request.rights.contains(Prot::WRITE);
        if private_write && !request.grows_down && self.data_pages + pages > self.limits.data / PAGE {
            return Err(ENOMEM);
        }
        if private_write && !(request.no_reserve && commit::allows_no_reserve()) {
            commit::check(|| pages)?;
        }
        if (request.locked || self.lock_future) && self.locked_pages + pages > self.limits.locked / PAGE {
            return Err(EAGAIN);
        }
        Ok(())
    }

    /// Bytes of the range that are mapped.
    fn mapped_in(&self, start: u64, end: u64) -> u64 {
        let mut total = 0;
        let mut at = start;
        while let Some((from, vma)) = self.tree.first_overlap(at, end) {
            total += vma.end.min(end) - from.max(start);
            at = vma.end;
            if at >= end {
                break;
            }
        }
        total
    }
}
