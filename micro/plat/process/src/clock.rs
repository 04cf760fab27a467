// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How fast the clock (the time-stamp counter) runs: measured against the host's CLOCK_MONOTONIC from the first moment,
//! over longer and longer times, until it is good enough. The measurement costs no waiting.

use crate::host;
use crate::memory::clock_page;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use plat_x86::{clock::ClockPage, rdtsc};

/// One reading of the host's clock with the time-stamp counter around it.
#[derive(Clone, Copy)]
struct Reading {
    tsc: u64,
    /// Ticks the reading took: how far off `tsc` may be.
    width: u64,
    ns: u64,
}

fn read_once() -> Reading {
    let before = rdtsc();
    let ns = host::clock(host::CLOCK_MONOTONIC);
    let width = rdtsc().wrapping_sub(before);
    Reading { tsc: before.wrapping_add(width / 2), width, ns }
}

/// The narrowest of a few readings: the host may have taken the processor away in the middle of one.
fn read() -> Reading {
    let mut best = read_once();
    for _ in 0..3 {
        let next = read_once();
        if next.width < best.width {
            best = next;
        }
    }
    best
}

static START_TSC: AtomicU64 = AtomicU64::new(0);
static START_WIDTH: AtomicU64 = AtomicU64::new(0);
static START_NS: AtomicU64 = AtomicU64::new(0);
/// When the next measurement is due.
static NEXT: AtomicU64 = AtomicU64::new(0);
static MEASURING: AtomicBool = AtomicBool::new(false);
/// As good as the crystals of clocks: 2 parts in a million.
const GOOD_ENOUGH: u64 = (2 << 32) / 1_000_000;
/// Shortest first measurement, in nanoseconds.
const SHORTEST: u64 = 100_000;

/// Starts measuring; the clock's zero is `first_tsc`.
pub fn begin(first_tsc: u64) {
    let start = read();
    START_TSC.store(start.tsc, Ordering::Relaxed);
    START_WIDTH.store(start.width, Ordering::Relaxed);
    START_NS.store(start.ns, Ordering::Relaxed);
    clock_page().base_tsc.store(first_tsc, Ordering::Relaxed);
}

/// The rate from the start until now, and how far off it may be, in parts of 2^32.
fn measure() -> (u64, u64) {
    let end = read();
    let ticks = end.tsc.wrapping_sub(START_TSC.load(Ordering::Relaxed)).max(1);
    let ns = end.ns.saturating_sub(START_NS.load(Ordering::Relaxed)).max(1);
    let width = START_WIDTH.load(Ordering::Relaxed) + end.width;
    let parts = |n: u64| u64::try_from((u128::from(n) << 32) / u128::from(ticks)).unwrap_or(u64::MAX);
    // Half on average: the host reads its clock in the middle.
    (parts(ns), parts(width / 2))
}

/// The host's wall clock at our zero. What the supervisor said before it started this process is older.
fn wall_at_zero(page: &ClockPage) -> u64 {
    let read = || {
        let before = page.now_ns();
        let wall = host::clock(host::CLOCK_REALTIME);
        let after = page.now_ns();
        (after - before, wall.saturating_sub(before.midpoint(after)))
    };
    // The quickest of a few readings: the host may have taken the processor away in the middle of one.
    (0..4).map(|_| read()).min_by_key(|(width, _)| *width).map_or(0, |(_, wall)| wall)
}

/// The clock works when this returns. Everything of boot that does not need it ran since [`begin`].
pub fn finish() {
    while host::clock(host::CLOCK_MONOTONIC) < START_NS.load(Ordering::Relaxed) + SHORTEST {
        core::hint::spin_loop();
    }
    let (rate, _) = measure();
    let page = clock_page();
    page.rate.store(rate, Ordering::Relaxed);
    let now = page.now_ns();
    page.set_wall_ns(wall_at_zero(page));
    NEXT.store(now * 2, Ordering::Relaxed);
    MEASURING.store(true, Ordering::Relaxed);
}

/// Takes a better measurement when twice the time has passed; thread context.
pub fn improve() {
    if !MEASURING.load(Ordering::Relaxed) {
        return;
    }
    let now = clock_page().now_ns();
    if now < NEXT.load(Ordering::Relaxed) {
        return;
    }
    NEXT.store(now * 2, Ordering::Relaxed);
    let (rate, error) = measure();
    clock_page().set_rate(rate);
    if error <= GOOD_ENOUGH {
        MEASURING.store(false, Ordering::Relaxed);
    }
}

/// The time, for a signal's handler on a processor that may not hold the kernel's lock: another one may be changing the
/// rate. This one may be, too, in what was hit, so it does not wait for ever.
pub fn now_in_signal() -> u64 {
    const TRIES: u32 = 1000;
    let page = clock_page();
    for _ in 0..TRIES {
        let before = page.sequence.load(Ordering::Acquire);
        let now = page.now_ns();
        if before & 1 == 0 && page.sequence.load(Ordering::Acquire) == before {
            return now;
        }
        core::hint::spin_loop();
    }
    page.now_ns()
}

#[unsafe(no_mangle)]
fn unilith_plat_now_ns() -> u64 {
    clock_page().now_ns()
}

#[unsafe(no_mangle)]
fn unilith_plat_wall_ns() -> u64 {
    clock_page().wall_ns.load(Ordering::Relaxed)
}

#[unsafe(no_mangle)]
fn unilith_plat_set_wall_ns(ns: u64) {
    clock_page().set_wall_ns(ns);
}
