// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The one-shot timer.

use crate::x86::{IA32_TSC_DEADLINE, wrmsr};
use crate::{apic, clock, xen};
use api_plat::{MAX_CPUS, TrapFrame, upcall};
use core::sync::atomic::{AtomicU64, Ordering};

/// When the kernel wants the interrupt of each processor; `u64::MAX` when it does not.
static DEADLINES: [AtomicU64; MAX_CPUS] = [const { AtomicU64::new(u64::MAX) }; MAX_CPUS];
/// When the next sample is taken; `u64::MAX` when none is. Samples are taken where there is one processor.
static SAMPLE: AtomicU64 = AtomicU64::new(u64::MAX);
/// From one sample to the next.
static INTERVAL: AtomicU64 = AtomicU64::new(0);

fn deadline() -> &'static AtomicU64 {
    &DEADLINES[api_plat::cpu() as usize]
}

#[unsafe(no_mangle)]
fn unilith_plat_set_timer(deadline_ns: u64) {
    // The interrupt handler reads the deadline and may set the timer again.
    crate::x86::without_interrupts(|| {
        deadline().store(deadline_ns, Ordering::Relaxed);
        arm_next();
    });
}

#[unsafe(no_mangle)]
fn unilith_plat_set_sampling(interval_ns: u64) {
    crate::x86::without_interrupts(|| {
        INTERVAL.store(interval_ns, Ordering::Relaxed);
        let first = if interval_ns == 0 { u64::MAX } else { api_plat::now_ns() + interval_ns };
        SAMPLE.store(first, Ordering::Relaxed);
        arm_next();
    });
}

fn next() -> u64 {
    deadline().load(Ordering::Relaxed).min(SAMPLE.load(Ordering::Relaxed))
}

fn arm_next() {
    arm(next(), |count| clock::measured(count, || apic::start_timer(count)));
}

/// `start` sets the APIC's timer to a count.
fn arm(deadline_ns: u64, start: impl FnOnce(u32)) {
    if apic::uses_deadlines() {
        let tsc = if deadline_ns == u64::MAX { 0 } else { clock::tsc_at(deadline_ns) };
        // SAFETY: the timer is in the mode that the register is for, so the processor has it.
        return unsafe { wrmsr(IA32_TSC_DEADLINE, tsc) };
    }
    let count = if deadline_ns == u64::MAX {
        0
    } else {
        // The counter has 32 bits of nanoseconds, or of Xen's ticks; what is further away takes more than one turn.
        let left = deadline_ns.saturating_sub(clock::now_in_interrupt());
        left.div_ceil(xen::timer_tick_ns()).clamp(1, u64::from(u32::MAX)) as u32
    };
    start(count);
}

/// The interrupt, and the code that it hit; interrupt context.
pub fn expired(hit: &TrapFrame) {
    if next() == u64::MAX {
        return;
    }
    let now = clock::now_in_interrupt();
    if now >= SAMPLE.load(Ordering::Relaxed) {
        // Samples that were missed are not made up for.
        SAMPLE.store(now + INTERVAL.load(Ordering::Relaxed), Ordering::Relaxed);
        upcall::unilith_kernel_sample(hit);
    }
    if now >= deadline().load(Ordering::Relaxed) {
        deadline().store(u64::MAX, Ordering::Relaxed);
        upcall::unilith_kernel_timer();
    }
    // Something is left, or it was too early: the counter is shorter than the wait, or runs a little faster than the
    // clock.
    if next() != u64::MAX {
        arm(next(), |count| clock::restarted(count, || apic::start_timer(count)));
    }
}
