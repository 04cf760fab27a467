// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Programs at tracepoints.

use crate::code::undisturbed;
use crate::load::{self, Active};
use alloc::sync::Arc;
use api_trace::Point;
use bpf::context::Context;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, Ordering};

/// Programs of each point.
static FIRST: [AtomicPtr<Active>; Point::ALL.len()] =
    [const { AtomicPtr::new(null_mut()) }; Point::ALL.len()];

fn find(name: &str) -> Option<Point> {
    Point::ALL.into_iter().find(|p| p.name() == name)
}

/// What programs of a point get.
pub fn context(name: &str) -> Option<Context> {
    Some(match find(name)? {
        Point::CallEntry => Context::CallEntry,
        Point::CallExit => Context::CallExit,
        Point::Switch => Context::Switch,
        Point::Wakeup => Context::Wakeup,
        Point::Receive | Point::Send => Context::Packet,
    })
}

fn hook(point: Point, record: &[u8]) {
    undisturbed(|| {
        let mut at = FIRST[point as usize].load(Ordering::Relaxed);
        // SAFETY: what is linked stays until it was unlinked with interrupts off.
        while let Some(active) = unsafe { at.as_ref() } {
            active.hits.fetch_add(1, Ordering::Relaxed);
            if record.len() == active_context(active).size() {
                active.run(record);
            }
            at = active.next.load(Ordering::Relaxed);
        }
    });
}

fn active_context(active: &Active) -> Context {
    context(&active.place).unwrap_or(Context::Registers)
}

fn turn_on() {
    let mut points = 0;
    for (i, first) in FIRST.iter().enumerate() {
        if !first.load(Ordering::Relaxed).is_null() {
            points |= 1 << i;
        }
    }
    api_trace::set(points, hook);
}

pub fn attach(name: &str, active: &Arc<Active>) {
    if let Some(point) = find(name) {
        load::link(&FIRST[point as usize], active);
        turn_on();
    }
}

pub fn detach(active: &Arc<Active>) {
    if let Some(point) = find(&active.place) {
        load::unlink(&FIRST[point as usize], active);
        turn_on();
    }
}
