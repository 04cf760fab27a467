// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Interrupt vectors and who handles them.

use crate::apic::{SPURIOUS, TIMER};
use crate::windows::Line;
use crate::{apic, timer};
use abi::{Result, errno::EINVAL, errno::ENOSPC};
use api_plat::TrapFrame;
use core::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

/// Vectors with a stub. Those from 32 on are interrupts.
pub const VECTORS: usize = 80;
const FIRST_DEVICE: usize = 48;

/// Runs in interrupt context with the number it was registered with: touches atomics and its device only.
pub type Handler = fn(usize);

struct Slot {
    handler: AtomicPtr<()>,
    data: AtomicUsize,
}

static SLOTS: [Slot; VECTORS] =
    [const { Slot { handler: AtomicPtr::new(core::ptr::null_mut()), data: AtomicUsize::new(0) } }; VECTORS];
static NEXT: AtomicUsize = AtomicUsize::new(FIRST_DEVICE);

/// A vector of its own for `handler(data)`: what a message-signalled interrupt (MSI-X) names. `ENOSPC` when all are
/// taken.
pub fn allocate_vector(handler: Handler, data: usize) -> Result<u8> {
    let vector = NEXT.fetch_add(1, Ordering::Relaxed);
    let Some(slot) = SLOTS.get(vector) else {
        NEXT.store(VECTORS, Ordering::Relaxed);
        return Err(ENOSPC);
    };
    slot.data.store(data, Ordering::Relaxed);
    slot.handler.store(handler as *mut (), Ordering::Release);
    Ok(vector as u8)
}

/// Lets a vector below those of devices call the handler.
pub fn set(vector: usize, handler: Handler) {
    SLOTS[vector].handler.store(handler as *mut (), Ordering::Release);
}

/// Lets the line, which interrupts at its rising edge, call `handler(data)`. `EINVAL` for a line no I/O APIC has.
pub fn route(line: Line, handler: Handler, data: usize) -> Result<()> {
    if !apic::has_line(line) {
        return Err(EINVAL);
    }
    let vector = allocate_vector(handler, data)?;
    apic::route(line, vector);
    Ok(())
}

/// Acknowledges the interrupt, which hit code with these registers, and calls the handler.
///
/// The acknowledgement comes first. KVM lets this processor end an interrupt without an exit only until the next exit
/// ([`apic::end_of_interrupt`]), and a handler that writes to its device makes one. All interrupts are edges or messages, which
/// do not come again because their device still waits, and interrupts stay off until the handler has returned.
pub fn handle(vector: usize, hit: &TrapFrame) {
    if vector == SPURIOUS {
        return;
    }
    apic::end_of_interrupt();
    if vector == TIMER {
        return timer::expired(hit);
    }
    let slot = &SLOTS[vector];
    let handler = slot.handler.load(Ordering::Acquire);
    if !handler.is_null() {
        // SAFETY: only `allocate_vector` stores there, and it stores a `Handler`.
        let handler: Handler = unsafe { core::mem::transmute(handler) };
        handler(slot.data.load(Ordering::Relaxed));
    }
}
