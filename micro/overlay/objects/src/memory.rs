// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Memory of programs: a part of the application's half of the address space that only programs use. So what they point
//! to can be passed to the application's functions, and by those to system calls.

use abi::{PAGE_SIZE, Result, errno::*};
use alloc::sync::Arc;
use alloc::vec::Vec;
use api_alloc::Reserve;
use api_lock::SpinLock;
use api_plat::domain::{self, REGION};
use mem::{Place, Prot, Request, Space};

pub const PAGE: u64 = PAGE_SIZE as u64;
/// Left unmapped between two blocks: what runs over one's end faults.
const GUARD: u64 = 64 << 10;
/// How often another place is tried when the application has something mapped in the region.
const ATTEMPTS: u32 = 16;
/// Most that all programs together have.
const MAX_BYTES: u64 = 64 << 20;

/// Blocks in use, by address: start and length.
static BLOCKS: SpinLock<Vec<(u64, u64)>> = SpinLock::new(Vec::new());

/// Pages of programs, all of them there; unmapped when dropped.
pub struct Block {
    space: Arc<Space>,
    pub start: u64,
    pub length: u64,
}

/// True when all of it is memory of programs.
pub fn is_ours(address: u64, length: u64) -> bool {
    REGION.contains(&address) && length <= REGION.end - address
}

/// The block that holds `address`, or the one whose guard below or behind it does.
pub fn near(address: u64) -> Option<(u64, u64)> {
    let blocks = BLOCKS.lock();
    blocks
        .iter()
        .copied()
        .find(|(start, length)| (start.saturating_sub(GUARD)..start + length + GUARD).contains(&address))
}

/// Bytes in use.
pub fn used() -> u64 {
    BLOCKS.lock().iter().map(|(_, length)| length).sum()
}

impl Block {
    /// Zeroed pages that programs can read and write. `ENOMEM` when there is none, or programs have too much already.
    pub fn new(length: u64) -> Result<Block> {
        let length = length.max(1).checked_next_multiple_of(PAGE).ok_or(ENOMEM)?;
        let space = mem::current();
        let mut from = REGION.start;
        for _ in 0..ATTEMPTS {
            let start = reserve(from, length)?;
            let rights = Prot::READ.with(Prot::WRITE);
            let request = Request {
                place: Place::FixedNoReplace,
                name: "[overlay]",
                ..Request::anonymous(length, rights).at(start)
            };
            match space.map(request) {
                Ok(_) => {
                    let block = Block { space, start, length };
                    block.space.populate(start, start + length);
                    domain::give(start, length);
                    return Ok(block);
                }
                Err(e) => {
                    release(start);
                    if e != EEXIST {
                        return Err(e);
                    }
                    from = start + length + GUARD;
                }
            }
        }
        Err(ENOMEM)
    }

    /// Copies to the block, whatever rights programs have there.
    pub fn write(&self, address: u64, bytes: &[u8]) -> Result<()> {
        self.space.write(address, bytes)
    }

    /// Changes what programs may do with a part.
    pub fn protect(&self, address: u64, length: u64, rights: Prot) -> Result<()> {
        self.space.protect(address, length, rights, false)
    }

    /// True when the address space it lies in is still the application's.
    pub fn is_live(&self) -> bool {
        Arc::ptr_eq(&self.space, &mem::current())
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        // In the address space of a program that execve replaced nothing is left to unmap.
        if self.is_live() && self.space.unmap(self.start, self.length).is_err() {
            log::error!("overlay memory at {:#x} could not be unmapped", self.start);
        }
        release(self.start);
    }
}

/// The lowest free place from `from` on.
fn reserve(from: u64, length: u64) -> Result<u64> {
    let mut blocks = BLOCKS.lock();
    if blocks.iter().map(|(_, length)| length).sum::<u64>() + length > MAX_BYTES {
        return Err(ENOMEM);
    }
    let (mut at, mut index) = (from, 0);
    for (start, length_there) in blocks.iter() {
        if *start >= at && start - at >= length + GUARD {
            break;
        }
        at = at.max(start + length_there + GUARD);
        index += 1;
    }
    if at + length + GUARD > REGION.end {
        return Err(ENOMEM);
    }
    blocks.reserve_fallibly(1).map_err(|_| ENOMEM)?;
    blocks.insert(index, (at, length));
    Ok(at)
}

fn release(start: u64) {
    BLOCKS.lock().retain(|(at, _)| *at != start);
}
