// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Memory in one piece for devices that take a request's data so only (Firecracker's): pages of a program lie anywhere, and are copied
//! there and back.

use super::with_room;
use crate::Area;
use abi::{PAGE_SIZE, Result};
use alloc::vec::Vec;
use api_mem::Gather;

/// Bytes of a request at most, and requests at a time: half a megabyte, which only machines with such a device spend.
pub const MAX: usize = 32 << 10;
const PLACES: usize = 16;

/// By token.
pub struct Bounce(Vec<Vec<u8>>);

impl Bounce {
    /// `ENOMEM`.
    pub fn new() -> Result<Bounce> {
        let mut places = with_room(PLACES)?;
        for _ in 0..PLACES {
            let mut bytes = with_room(MAX)?;
            bytes.resize(MAX, 0);
            places.push(bytes);
        }
        Ok(Bounce(places))
    }

    /// How many requests the device may have at a time.
    pub fn places(&self) -> usize {
        self.0.len()
    }

    /// One piece in place of a request's memory, of [`MAX`] bytes at most, with what that has.
    pub fn lend(&mut self, token: usize, memory: &Gather) -> Area {
        let bytes = &mut self.0[token][..memory.length];
        if memory.is_written {
            return Area::of_mut(bytes);
        }
        each_page(memory, bytes, |page, offset, part| page.read(offset, part));
        Area::of(bytes)
    }

    /// The device is done with what was lent: what it wrote goes to the request's memory.
    pub fn give_back(&mut self, token: usize, memory: &Gather) {
        if memory.is_written {
            let bytes = &mut self.0[token][..memory.length];
            each_page(memory, bytes, |page, offset, part| page.write(offset, part));
        }
    }
}

/// Goes through the pages of `memory` and the parts of `bytes` that belong to them.
fn each_page(memory: &Gather, bytes: &mut [u8], mut copy: impl FnMut(&api_mem::PageFrame, usize, &mut [u8])) {
    let (mut offset, mut rest) = (memory.offset, bytes);
    for page in &memory.frames {
        let (part, behind) = rest.split_at_mut((PAGE_SIZE - offset).min(rest.len()));
        copy(page, offset, part);
        (offset, rest) = (0, behind);
    }
}
