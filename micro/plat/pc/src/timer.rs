// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The one-shot timer.

use crate::x86::{IA32_TSC_DEADLINE, wrmsr};
use crate::{apic, clock};
use api_plat::upcall;
use core::sync::atomic::{AtomicU64, Ordering};
use plat_x86::features;

/// When the interrupt is wanted; `u64::MAX` when none is.
static DEADLINE: AtomicU64 = AtomicU64::new(u64::MAX);

#[unsafe(no_mangle)]
fn unilith_plat_set_timer(deadline_ns: u64) {
    // The interrupt handler reads the deadline and may set the timer again.
    crate::x86::without_interrupts(|| {
        DEADLINE.store(deadline_ns, Ordering::Relaxed);
        arm(deadline_ns, |count| clock::measured(count, || apic::start_timer(count)));
    });
}

/// `start` sets the APIC's timer to a count.
fn arm(deadline_ns: u64, start: impl FnOnce(u32)) {
    if features::features().tsc_deadline {
        let tsc = if deadline_ns == u64::MAX { 0 } else { clock::tsc_at(deadline_ns) };
        // SAFETY: CPUID says that the register is there; the timer's entry is in this mode.
        return unsafe { wrmsr(IA32_TSC_DEADLINE, tsc) };
    }
    let count = if deadline_ns == u64::MAX {
        0
    } else {
        // The counter has 32 bits of nanoseconds; what is further away takes more than one turn.
        let left = deadline_ns.saturating_sub(api_plat::now_ns());
        left.clamp(1, u64::from(u32::MAX)) as u32
    };
    start(count);
}

/// The interrupt; interrupt context.
pub fn expired() {
    let deadline = DEADLINE.load(Ordering::Relaxed);
    if deadline == u64::MAX {
        return;
    }
    if api_plat::now_ns() < deadline {
        // Too early: the counter is shorter than the wait, or runs a little faster than the clock.
        return arm(deadline, |count| clock::restarted(count, || apic::start_timer(count)));
    }
    DEADLINE.store(u64::MAX, Ordering::Relaxed);
    upcall::unilith_kernel_timer();
}
