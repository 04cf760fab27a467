// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Returns of probed functions: the return address becomes that of a trampoline, and the original is kept here.
//!
//! The record of a call is found by where its return address lies, which tells threads apart as well as calls of one
//! thread. Frames that are left without a return (longjmp) leave a record behind; it is overwritten when a call has
//! its return address at the same place, or when its place is needed and no longer holds the trampoline's address.

use crate::code::{Registers, return_trampoline};
use crate::load::Active;
use crate::peek;
use crate::sites::{self, Site};
use abi::{Result, errno::ENOMEM};
use alloc::{string::String, vec::Vec};
use api_alloc::Reserve;
use api_plat::PROCESS;
use core::sync::atomic::{AtomicPtr, AtomicU64, Ordering::Relaxed};

/// Calls that are being watched at once.
const RECORDS: usize = 4096;
/// A record is at one of so many places.
const WAYS: usize = 16;
/// Functions that end in a jump to each other and share a return address.
const CHAIN: usize = 4;

/// One call: where its return address is (0: free), what it was, and the sites, 16 bits each, plus one.
#[derive(Default)]
struct Record {
    slot: AtomicU64,
    original: AtomicU64,
    sites: AtomicU64,
}

/// `RECORDS` of them from the first use on, for ever: a call may return long after the last probe went.
static RECORD: AtomicPtr<Record> = AtomicPtr::new(core::ptr::null_mut());
/// The trampolines for the application and the kernel; 0 before the first use.
static BACK: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];

/// Makes the records and the trampolines.
pub fn prepare() -> Result<()> {
    if RECORD.load(Relaxed).is_null() {
        let mut records = Vec::new();
        records.reserve_exact_fallibly(RECORDS).map_err(|_| ENOMEM)?;
        records.resize_with(RECORDS, Record::default);
        RECORD.store(records.leak().as_mut_ptr(), Relaxed);
    }
    for (in_kernel, back) in [false, true].into_iter().zip(&BACK) {
        if back.load(Relaxed) == 0 {
            back.store(api_plat::new_code(&return_trampoline(in_kernel))?, Relaxed);
        }
    }
    Ok(())
}

fn ways(slot: u64) -> &'static [Record] {
    let set = (slot >> 3).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
    let first = set as usize % (RECORDS / WAYS) * WAYS;
    let records = RECORD.load(Relaxed);
    if records.is_null() {
        return &[];
    }
    // SAFETY: `prepare` left `RECORDS` of them there for ever, and they are changed by atomic accesses only.
    unsafe { core::slice::from_raw_parts(records.add(first), WAYS) }
}

/// A probed function was entered: its return is to be seen. Interrupts are off.
pub extern "C" fn arm(registers: &Registers, site: &Site) {
    let slot = registers.sp;
    let back = BACK[usize::from(site.in_kernel())].load(Relaxed);
    let Some(now) = peek::read_word(slot) else { return site.miss() };
    let ways = ways(slot);
    let own = ways.iter().find(|r| r.slot.load(Relaxed) == slot);
    if now == back {
        // Jumped to from a function whose return is watched: it returns for both.
        let Some(record) = own else { return site.miss() };
        let sites = record.sites.load(Relaxed);
        if sites >> (16 * (CHAIN - 1)) != 0 {
            return site.miss();
        }
        return record.sites.store(sites << 16 | u64::from(site.index() + 1), Relaxed);
    }
    let stale = |r: &&Record| {
        let slot = r.slot.load(Relaxed);
        slot == 0 || peek::read_word(slot).is_none_or(|w| BACK.iter().all(|b| b.load(Relaxed) != w))
    };
    let Some(record) = own.or_else(|| ways.iter().find(stale)) else { return site.miss() };
    record.original.store(now, Relaxed);
    record.sites.store(u64::from(site.index() + 1), Relaxed);
    record.slot.store(slot, Relaxed);
    if !peek::write_word(slot, back) {
        record.slot.store(0, Relaxed);
        site.miss();
    }
}

/// A watched function returned: runs the programs and answers where it goes on. Interrupts are off.
pub extern "C" fn back(registers: &mut Registers, in_kernel: u64) -> u64 {
    // The trampoline of the kernel made room for the return address and pushed the flags.
    let slot = if in_kernel != 0 { registers.sp + 8 } else { registers.sp - 8 };
    let Some(record) = ways(slot).iter().find(|r| r.slot.load(Relaxed) == slot) else {
        lost();
    };
    let original = record.original.load(Relaxed);
    let mut sites = record.sites.load(Relaxed);
    record.slot.store(0, Relaxed);
    registers.sp = slot + 8;
    registers.ip = original;
    while sites != 0 {
        if let Some(site) = sites::get((sites & 0xffff) as u32 - 1) {
            let mut at = site.returns.load(Relaxed);
            // SAFETY: what is linked stays until it was unlinked with interrupts off.
            while let Some(active) = unsafe { at.as_ref() } {
                run(active, registers);
                at = active.next.load(Relaxed);
            }
        }
        sites >>= 16;
    }
    if in_kernel != 0 {
        // SAFETY: the word that the trampoline reserved on the kernel's stack, from which it returns.
        unsafe { (slot as *mut u64).write(original) };
    } else if PROCESS && !peek::write_word(slot, original) {
        // The program unmapped its stack between the call's return and here.
        lost();
    }
    original
}

/// Nobody knows where the function is to return to.
#[cold]
fn lost() -> ! {
    let reason = String::from(
        "a function whose return is traced returned from a copy of its stack: trace its entry only",
    );
    api_plat::power_off(&api_plat::Status::Failed { reason })
}

fn run(active: &Active, registers: &Registers) {
    active.hits.fetch_add(1, Relaxed);
    active.run(registers.bytes());
}
