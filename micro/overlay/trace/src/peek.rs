// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Memory without faults: page tables are walked, and what is not there is not touched.

use abi::PAGE_SIZE;
use api_plat::{PROCESS, USER_END};

const PRESENT: u64 = 1;
const WRITABLE: u64 = 1 << 1;
const LARGE: u64 = 1 << 7;
const ADDRESS: u64 = 0x000f_ffff_ffff_f000;
/// Physical addresses where a PC has devices: reading them changes them.
const DEVICES: core::ops::Range<u64> = if PROCESS { 0..0 } else { 0xc000_0000..0x1_0000_0000 };

/// Where the kernel sees a byte of the running address space; `None` where there is none, or not writable if asked.
fn seen(address: u64, write: bool) -> Option<*mut u8> {
    if PROCESS && address >= USER_END {
        // No page tables lead there, and nothing is seen at two places but what is written through this one.
        return api_plat::has_memory(address, write).then_some(address as *mut u8);
    }
    physical(address, write).map(api_mem::view)
}

/// Physical address of such a byte.
fn physical(address: u64, write: bool) -> Option<u64> {
    // Bits 48 to 63 are copies of bit 47.
    if ((address as i64) << 16 >> 16) as u64 != address {
        return None;
    }
    let mut table = mem::root()? & ADDRESS;
    for level in (0..4).rev() {
        let shift = 12 + 9 * level;
        let index = (address >> shift & 511) as usize;
        // SAFETY: the tables of the running address space are seen through the physical map; interrupts are off, so
        // none of them goes away. Volatile: the processor sets bits.
        let entry = unsafe { api_mem::view(table).cast::<u64>().add(index).read_volatile() };
        if entry & PRESENT == 0 || write && entry & WRITABLE == 0 {
            return None;
        }
        if level == 0 || entry & LARGE != 0 {
            let within = (1 << shift) - 1;
            let at = entry & ADDRESS & !within | address & within;
            return (!DEVICES.contains(&at)).then_some(at);
        }
        table = entry & ADDRESS;
    }
    None
}

/// The pieces of a range that lie in one page each.
fn pieces(
    address: u64,
    length: usize,
    mut each: impl FnMut(u64, core::ops::Range<usize>) -> Option<()>,
) -> bool {
    let mut done = 0;
    while done < length {
        let Some(at) = address.checked_add(done as u64) else { return false };
        let n = (PAGE_SIZE - at as usize % PAGE_SIZE).min(length - done);
        if each(at, done..done + n).is_none() {
            return false;
        }
        done += n;
    }
    true
}

/// Copies what is at an address; false where nothing is. Interrupts are off.
pub fn read(address: u64, to: &mut [u8]) -> bool {
    pieces(address, to.len(), |at, part| {
        let from = seen(at, false)?;
        let to = &mut to[part];
        // SAFETY: the page is there and stays, since interrupts are off; what is in it are bytes.
        unsafe { core::ptr::copy_nonoverlapping(from, to.as_mut_ptr(), to.len()) };
        Some(())
    })
}

pub fn read_word(address: u64) -> Option<u64> {
    let mut word = [0; 8];
    read(address, &mut word).then(|| u64::from_le_bytes(word))
}

/// Changes a word of a stack; false where none is. Interrupts are off.
pub fn write_word(address: u64, value: u64) -> bool {
    // A word at a multiple of eight lies in one page.
    if !address.is_multiple_of(8) {
        return false;
    }
    let Some(at) = seen(address, true) else { return false };
    // SAFETY: the page is there and writable for whom it belongs to, and the caller owns this word of it.
    unsafe { at.cast::<u64>().write_volatile(value) };
    true
}
