// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The page that Xen shares with the machine (`struct shared_info` of `public/xen.h`), and the clock in it.

use super::{SPACE_SHARED_INFO, event::CHANNELS};
use core::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering, fence};
use plat_x86::rdtsc;

/// `vcpu_time_info`.
#[repr(C)]
struct Time {
    /// Odd while Xen writes.
    version: AtomicU32,
    pad: u32,
    tsc: AtomicU64,
    system_ns: AtomicU64,
    multiplier: AtomicU32,
    shift: AtomicU8,
    flags: [AtomicU8; 3],
}

/// `vcpu_info`.
#[repr(C)]
pub struct Processor {
    /// Something is pending.
    pub upcall: AtomicU8,
    mask: [AtomicU8; 7],
    /// Words of `pending` that are to be looked at.
    pub selected: AtomicU64,
    arch: [u64; 2],
    time: Time,
}

#[repr(C, align(4096))]
pub struct SharedInfo {
    pub processors: [Processor; 32],
    pub pending: [AtomicU64; CHANNELS / 64],
    pub masked: [AtomicU64; CHANNELS / 64],
    wall_version: AtomicU32,
    wall_seconds: AtomicU32,
    wall_nanoseconds: AtomicU32,
    wall_seconds_high: AtomicU32,
    rest: [AtomicU64; 126],
}

const _: () = assert!(size_of::<SharedInfo>() == 4096 && size_of::<Processor>() == 64);

// SAFETY: all of it are atomics and padding, for which zeros will do.
static SHARED: SharedInfo = unsafe { core::mem::zeroed() };

pub fn info() -> &'static SharedInfo {
    &SHARED
}

/// Has Xen put its page there.
pub fn map() -> bool {
    super::map(SPACE_SHARED_INFO, 0, &SHARED)
}

/// What Xen's clock showed at a moment.
#[derive(Clone, Copy)]
struct Moment {
    tsc: u64,
    system_ns: u64,
    /// In 2^-32 nanoseconds a tick.
    rate: u64,
}

/// Reads what a writer leaves between two versions. A few times: a host that never stops writing is not waited for.
fn consistent<T>(version: &AtomicU32, read: impl Fn() -> T) -> Option<T> {
    const LOOKS: usize = 1 << 16;
    (0..LOOKS).find_map(|_| {
        let before = version.load(Ordering::Acquire);
        let value = read();
        fence(Ordering::Acquire);
        (before & 1 == 0 && version.load(Ordering::Relaxed) == before).then_some(value)
    })
}

fn moment() -> Option<Moment> {
    let time = &SHARED.processors[0].time;
    let (tsc, system_ns, multiplier, shift) = consistent(&time.version, || {
        let (tsc, system) = (time.tsc.load(Ordering::Relaxed), time.system_ns.load(Ordering::Relaxed));
        (tsc, system, time.multiplier.load(Ordering::Relaxed), time.shift.load(Ordering::Relaxed) as i8)
    })?;
    let multiplier = u64::from(multiplier);
    let rate = match shift {
        0..32 => multiplier << shift,
        -31..0 => multiplier >> -shift,
        _ => 0,
    };
    (rate != 0).then_some(Moment { tsc, system_ns, rate })
}

/// How fast the time-stamp counter runs, in 2^-32 nanoseconds a tick.
pub fn rate() -> Option<u64> {
    moment().filter(|_| super::is_on()).map(|moment| moment.rate)
}

/// Nanoseconds of Xen's clock, by which it takes deadlines.
pub fn system_now() -> u64 {
    let Some(Moment { tsc, system_ns, rate }) = moment() else { return 0 };
    let ticks = rdtsc().wrapping_sub(tsc);
    system_ns.wrapping_add(((u128::from(ticks) * u128::from(rate)) >> 32) as u64)
}

/// The wall clock in nanoseconds at a value of the time-stamp counter.
pub fn wall() -> Option<(u64, u64)> {
    let Moment { tsc, system_ns, .. } = moment().filter(|_| super::is_on())?;
    // The wall clock at the zero of Xen's clock.
    let (low, high, ns) = consistent(&SHARED.wall_version, || {
        let load = |word: &AtomicU32| u64::from(word.load(Ordering::Relaxed));
        (load(&SHARED.wall_seconds), load(&SHARED.wall_seconds_high), load(&SHARED.wall_nanoseconds))
    })?;
    let seconds = high << 32 | low;
    (seconds != 0).then(|| (seconds.wrapping_mul(1_000_000_000).wrapping_add(ns + system_ns), tsc))
}

/// A page that another domain may read and write at any time: there is no way to it but atomics. Where the machine needs one it is
/// never freed.
#[repr(C, align(4096))]
pub struct Page(pub [AtomicU32; 1024]);

impl Default for Page {
    fn default() -> Page {
        Page([const { AtomicU32::new(0) }; 1024])
    }
}

impl Page {
    /// Its number in the machine's memory.
    pub fn number(&'static self) -> u64 {
        crate::physical(self) / 4096
    }
}

/// Xenstore's ring (`io/xs_wire.h`, `xenstore_domain_interface`).
#[repr(C)]
pub struct StoreRing {
    pub requests: [AtomicU8; 1024],
    pub replies: [AtomicU8; 1024],
    pub requests_consumed: AtomicU32,
    pub requests_produced: AtomicU32,
    pub replies_consumed: AtomicU32,
    pub replies_produced: AtomicU32,
}
