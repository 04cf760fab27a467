// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Protection domains of overlay programs: which pages they may write.
//!
//! The host is asked: before an overlay program runs, what it may not write becomes read-only by mprotect, and the kernel's
//! code not executable; the first thing that a signal does is to put it back. Nothing else tells a thread's rights from
//! another's on every processor (user protection keys do where there are some, which many hosts have not).
//!
//! What is closed is a list of ranges. The two loops over it are in `domain.s`: while it is half closed no stack can be
//! written. It is made by [`unilith_process_domain`] before; nothing of the kernel runs between that and the program.
//!
//! What stays open: the memory of overlay programs, the alternate stack, on which the host writes where a signal hit, and,
//! to be executed only, the pages of the section `.text.unilith_gate`: the ways in and out.

use crate::{host, host_processes, memory, signals, stack};
use abi::{Result, errno::EOPNOTSUPP};
use alloc::vec::Vec;
use api_lock::SpinLock;
use api_plat::domain::{Means, REGION};
use api_plat::{Entry, TrapFrame, upcall};
use core::mem::size_of;
use core::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};
use plat_x86::asm::{self, LEAVE_TO_OVERLAY, Label};
use plat_x86::{cpu, crash};

const READ: u32 = host::PROT_READ;
const WRITE: u32 = host::PROT_WRITE;
const EXECUTE: u32 = host::PROT_EXEC;

/// Pages, and their rights in the domain and out of it.
#[repr(C)]
pub struct Closed {
    pub start: u64,
    pub length: u64,
    pub inside: u32,
    pub outside: u32,
}

/// The list for `domain.s`: elements of [`LISTED`].
pub static LIST: AtomicPtr<Closed> = AtomicPtr::new(core::ptr::null_mut());
pub static COUNT: AtomicUsize = AtomicUsize::new(0);

struct Listed {
    ranges: Vec<Closed>,
    /// What they were made for: whether the application can be written, the host process, and how often memory was mapped by
    /// then.
    version: Option<(bool, usize, u64)>,
}

static LISTED: SpinLock<Listed> = SpinLock::new(Listed { ranges: Vec::new(), version: None });

unsafe extern "C" {
    safe static unilith_leave_to_overlay: Label;
    safe static unilith_overlay_check: Label;
    safe static unilith_overlay_end: Label;
    safe static __gate_end: Label;
    safe static __data_start: Label;
}

#[unsafe(no_mangle)]
fn unilith_plat_domain_prepare() -> Result<Means> {
    // The rights of pages are the same on all processors, and the others run the application.
    if crate::processors::several() {
        return Err(EOPNOTSUPP);
    }
    LEAVE_TO_OVERLAY.store(unilith_leave_to_overlay.address() as *mut (), Ordering::Relaxed);
    Ok(Means::Rights)
}

/// The list leaves all of the region out.
#[unsafe(no_mangle)]
fn unilith_plat_domain_give(_: u64, _: u64) {}

/// The kernel's code but for the ways in and out.
pub fn closed_text() -> core::ops::Range<u64> {
    __gate_end.address()..asm::text().end
}

/// Where the kernel's variables begin.
pub fn variables() -> u64 {
    __data_start.address()
}

impl Listed {
    fn add(&mut self, start: u64, end: u64, inside: u32, outside: u32) {
        if start < end {
            self.ranges.push(Closed { start, length: end - start, inside, outside });
        }
    }

    fn make(&mut self, writing: bool) {
        stack::show_all_here();
        self.ranges.clear();
        if !writing {
            upcall::unilith_kernel_shown(&mut |start, end, rights| {
                if rights & WRITE != 0 && !REGION.contains(&start) {
                    self.add(start, end, rights & !WRITE, rights);
                }
            });
        }
        self.add(variables(), asm::__kernel_end.address(), READ, READ | WRITE);
        let seen = memory::seen();
        self.add(seen.start, seen.end, READ, READ | WRITE);
        stack::each_open(&mut |part| self.add(part.start, part.end, READ, READ | WRITE));
        let text = closed_text();
        self.add(text.start, text.end, READ, READ | EXECUTE);
    }
}

/// Makes the list for the program of this TrapFrame, on the way out to it.
#[unsafe(no_mangle)]
extern "C" fn unilith_process_domain(frame: &TrapFrame) {
    let writing = frame.entry == Entry::OverlayWriting;
    let mut listed = LISTED.lock();
    let version = Some((writing, host_processes::current(), memory::changes() + stack::changes()));
    if listed.version != version {
        listed.make(writing);
        listed.version = version;
    }
    LIST.store(listed.ranges.as_mut_ptr(), Ordering::Relaxed);
    COUNT.store(listed.ranges.len(), Ordering::Relaxed);
}

/// Where a signal hit that ended a domain.
pub enum Hit {
    /// The overlay's program.
    Program,
    /// The way in: it is begun anew.
    WayIn,
    /// A signal's way out of the domain, of which this one did the rest.
    WayOut,
}

/// Tells where it hit.
pub fn hit(rip: u64, rsp: u64) -> Hit {
    let way_in = unilith_overlay_check.address()..unilith_overlay_end.address();
    // A program that jumps there by mistake comes with a stack of its own.
    let frame = cpu::frame_address()..=cpu::frame_address() + size_of::<TrapFrame>() as u64;
    if frame.contains(&rsp) && (way_in.contains(&rip) || asm::resume().contains(&rip)) {
        Hit::WayIn
    } else if signals::alternate_stack().contains(&rsp) {
        Hit::WayOut
    } else {
        Hit::Program
    }
}

/// Where the way in is begun anew: RIP and RSP.
pub fn again() -> (u64, u64) {
    (unilith_overlay_check.address(), cpu::frame_address())
}

/// The host refused to take rights away.
pub fn refused() -> ! {
    crash::fail("the host has no room for another mapping of the machine's memory: raise vm.max_map_count")
}
