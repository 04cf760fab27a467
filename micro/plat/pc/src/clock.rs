// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How fast the clock (the time-stamp counter) runs, and the wall clock at the start.
//!
//! The rate is told by the hypervisor (the paravirtual clock of KVM or Xen, or the leaf that VMware introduced) or by the
//! processor (CPUID leaf 0x15). Under TCG nobody tells: it is measured against the timer of the local APIC, which counts
//! the virtual clock of QEMU or KVM in nanoseconds. The measurement costs no waiting: the APIC counts from the first
//! moment, and is read whenever the timer is set, over longer and longer times, until it is good enough. The timer's
//! deadlines are times of the time-stamp counter, and with them its own counter stands still: they are used only where
//! the rate is told.

use crate::processor::Processor;
use crate::x86::{physical, without_interrupts, wrmsr};
use crate::{apic, asm, processors, rtc, xen};
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use plat_x86::clock::{ClockPage, wall_at_zero};
use plat_x86::{crash, rdtsc};

#[unsafe(no_mangle)]
static unilith_clock_page: ClockPage = ClockPage::new();
use unilith_clock_page as PAGE;

/// The clock page, for the vDSO.
pub fn page() -> &'static ClockPage {
    &PAGE
}

#[unsafe(no_mangle)]
fn unilith_plat_now_ns() -> u64 {
    PAGE.now_ns()
}

/// The time, in interrupt context: on one processor nothing changes the clock meanwhile, of several another one may.
pub fn now_in_interrupt() -> u64 {
    if processors::several() { PAGE.now_ns_undisturbed() } else { PAGE.now_ns() }
}

#[unsafe(no_mangle)]
fn unilith_plat_wall_ns() -> u64 {
    PAGE.wall_ns.load(Ordering::Relaxed)
}

#[unsafe(no_mangle)]
fn unilith_plat_set_wall_ns(ns: u64) {
    without_interrupts(|| PAGE.set_wall_ns(ns));
}

/// Changes the rate from now on.
fn set_rate(rate: u64) {
    without_interrupts(|| PAGE.set_rate(rate));
}

/// The time-stamp counter at `ns`.
pub fn tsc_at(ns: u64) -> u64 {
    PAGE.tsc_at(ns)
}

/// The rate when hypervisor or processor tell it.
pub fn told(processor: &Processor) -> Option<u64> {
    if let Some(rate) = xen::shared::rate() {
        return Some(rate);
    }
    if processor.kvm_features & KVM_FEATURE_CLOCKSOURCE2 != 0
        && let Some(rate) = kvm_clock()
    {
        return Some(rate);
    }
    processor.tsc_hz.map(|hz| (1_000_000_000 << 32) / hz.max(1))
}

/// KVM's paravirtual clock (Linux Documentation/virt/kvm/x86/msr.rst): one per-processor structure.
#[repr(C, align(64))]
struct KvmTime {
    version: AtomicU32,
    pad0: u32,
    tsc_timestamp: AtomicU64,
    system_time: AtomicU64,
    tsc_to_system_mul: AtomicU32,
    tsc_shift_and_flags: AtomicU32,
}

static KVM_TIME: KvmTime = KvmTime {
    version: AtomicU32::new(0),
    pad0: 0,
    tsc_timestamp: AtomicU64::new(0),
    system_time: AtomicU64::new(0),
    tsc_to_system_mul: AtomicU32::new(0),
    tsc_shift_and_flags: AtomicU32::new(0),
};

/// Sections: seconds, then nanoseconds, of the wall clock at the paravirtual clock's zero.
#[repr(C, align(16))]
struct KvmWall {
    version: AtomicU32,
    seconds: AtomicU32,
    nanoseconds: AtomicU32,
}

static KVM_WALL: KvmWall =
    KvmWall { version: AtomicU32::new(0), seconds: AtomicU32::new(0), nanoseconds: AtomicU32::new(0) };

const MSR_KVM_WALL_CLOCK_NEW: u32 = 0x4b56_4d00;
const MSR_KVM_SYSTEM_TIME_NEW: u32 = 0x4b56_4d01;
const KVM_FEATURE_CLOCKSOURCE2: u32 = 1 << 3;

/// Has KVM fill both structures, once; answers the rate.
fn kvm_clock() -> Option<u64> {
    // SAFETY: KVM writes to the structures, which are made for that: to the wall clock's at this moment, and to the other one
    // until the register is cleared.
    unsafe {
        wrmsr(MSR_KVM_WALL_CLOCK_NEW, physical(&KVM_WALL));
        wrmsr(MSR_KVM_SYSTEM_TIME_NEW, physical(&KVM_TIME) | 1);
    }
    let multiplier = u64::from(KVM_TIME.tsc_to_system_mul.load(Ordering::Acquire));
    let shift = KVM_TIME.tsc_shift_and_flags.load(Ordering::Relaxed) as i8;
    // SAFETY: as above.
    unsafe { wrmsr(MSR_KVM_SYSTEM_TIME_NEW, 0) };
    match multiplier {
        0 => None,
        m if shift >= 0 => Some(m << shift),
        m => Some(m >> -shift),
    }
}

/// The wall clock at our zero, by what [`kvm_clock`] was told: the wall clock at the paravirtual clock's zero, and what that
/// clock showed at a value of the time-stamp counter, which may have been before this machine's first instruction.
fn kvm_wall() -> Option<u64> {
    let seconds = u64::from(KVM_WALL.seconds.load(Ordering::Acquire));
    let wall = seconds * 1_000_000_000 + u64::from(KVM_WALL.nanoseconds.load(Ordering::Relaxed));
    let system = KVM_TIME.system_time.load(Ordering::Relaxed);
    let then = KVM_TIME.tsc_timestamp.load(Ordering::Relaxed);
    (seconds != 0).then(|| zero_of_wall(wall + system, then))
}

/// The wall clock at our zero, when it was `wall` at a value of the time-stamp counter.
fn zero_of_wall(wall: u64, tsc: u64) -> u64 {
    let rate = PAGE.rate.load(Ordering::Relaxed);
    wall_at_zero(wall, tsc.wrapping_sub(asm::unilith_first_tsc) as i64, rate)
}

/// One reading of the APIC's counter with the time-stamp counter around it.
#[derive(Clone, Copy)]
struct Reading {
    tsc: u64,
    /// Ticks the reading took: how far off `tsc` may be.
    width: u64,
    count: u32,
}

fn read_timer() -> Reading {
    let before = rdtsc();
    let count = apic::timer_count();
    let width = rdtsc().wrapping_sub(before);
    Reading { tsc: before.wrapping_add(width / 2), width, count }
}

/// The narrowest of a few readings: the host may have taken the processor away in the middle of one.
fn read_timer_well() -> Reading {
    let mut best = read_timer();
    for _ in 0..3 {
        let next = read_timer();
        if next.width < best.width {
            best = next;
        }
    }
    best
}

static MEASURING: AtomicBool = AtomicBool::new(false);
/// The moment that the next measurement goes back to: ticks, how far off they may be, and what the timer showed.
static START_TSC: AtomicU64 = AtomicU64::new(0);
static START_WIDTH: AtomicU64 = AtomicU64::new(0);
static START_COUNT: AtomicU32 = AtomicU32::new(0);
/// How far off the best measurement so far may be, in parts of 2^32.
static ERROR: AtomicU64 = AtomicU64::new(u64::MAX);
/// 20 parts in a million: as good as the crystals of clocks.
const GOOD_ENOUGH: u64 = (20 << 32) / 1_000_000;
/// Shortest first measurement, in nanoseconds.
const SHORTEST: u64 = 50_000;

/// Ticks after which the APIC's timer does not count any more: seconds on any processor.
const HANG: u64 = 1 << 35;

fn start_at(start: Reading) {
    START_TSC.store(start.tsc, Ordering::Relaxed);
    START_WIDTH.store(start.width, Ordering::Relaxed);
    START_COUNT.store(start.count, Ordering::Relaxed);
}

/// The rate from the start to `end`, if that is a better measurement than those before: the host may have taken the
/// processor away in the middle of a reading, which then is wide.
fn better_rate(end: Reading) -> Option<u64> {
    let ns = u64::from(START_COUNT.load(Ordering::Relaxed).wrapping_sub(end.count));
    let ticks = end.tsc.wrapping_sub(START_TSC.load(Ordering::Relaxed)).max(1);
    let width = START_WIDTH.load(Ordering::Relaxed).saturating_add(end.width);
    let error = u64::try_from((u128::from(width) << 32) / u128::from(ticks)).unwrap_or(u64::MAX);
    // At 0 the timer stood still for an unknown time.
    if end.count == 0 || error >= ERROR.load(Ordering::Relaxed) {
        return None;
    }
    ERROR.store(error, Ordering::Relaxed);
    Some(((u128::from(ns) << 32) / u128::from(ticks)) as u64)
}

/// Starts measuring unless the rate is told. The APIC is on.
pub fn begin(told: Option<u64>) {
    PAGE.base_tsc.store(asm::unilith_first_tsc, Ordering::Relaxed);
    match told {
        Some(rate) => PAGE.rate.store(rate, Ordering::Relaxed),
        None => {
            apic::start_timer(u32::MAX);
            start_at(read_timer_well());
            MEASURING.store(true, Ordering::Relaxed);
        }
    }
}

/// The clock works when this returns. Everything of boot that does not need it ran since [`begin`].
pub fn finish() {
    let begin = rdtsc();
    while MEASURING.load(Ordering::Relaxed) {
        let now = read_timer_well();
        if rdtsc().wrapping_sub(begin) > HANG {
            crash::fail(
                "nobody tells how fast the time-stamp counter runs, and the local APIC's timer stands still",
            );
        }
        if u64::from(START_COUNT.load(Ordering::Relaxed).wrapping_sub(now.count)) < SHORTEST {
            continue;
        }
        if let Some(rate) = better_rate(now) {
            PAGE.rate.store(rate, Ordering::Relaxed);
        }
        break;
    }
}

/// The APIC's timer is about to be set to `count` by `set`: takes the measurement that this ends. Thread context,
/// interrupts off.
pub fn measured(count: u32, set: impl FnOnce()) {
    // The timer that is measured against is the boot processor's.
    if api_plat::cpu() != 0 {
        return set();
    }
    if MEASURING.load(Ordering::Relaxed) {
        if let Some(rate) = better_rate(read_timer()) {
            set_rate(rate);
        }
        if ERROR.load(Ordering::Relaxed) <= GOOD_ENOUGH {
            MEASURING.store(false, Ordering::Relaxed);
        }
    }
    restarted(count, set);
}

/// As [`measured`] without a measurement: in interrupt context the clock may not change.
pub fn restarted(count: u32, set: impl FnOnce()) {
    if api_plat::cpu() != 0 {
        return set();
    }
    let before = rdtsc();
    set();
    let width = rdtsc().wrapping_sub(before);
    start_at(Reading { tsc: before.wrapping_add(width / 2), width, count });
}

/// Sets the wall clock: what the hypervisor says, which is exact; else what the host said before it started this machine,
/// or the device where that is later, for the machine's start takes time that is in nobody's clock.
pub fn set_wall_clock(epoch_ns: Option<u64>) {
    let told = kvm_wall().or_else(|| xen::shared::wall().map(|(wall, tsc)| zero_of_wall(wall, tsc)));
    let wall = told.unwrap_or_else(|| rtc::wall_since(epoch_ns, unilith_plat_now_ns()));
    unilith_plat_set_wall_ns(wall);
}
