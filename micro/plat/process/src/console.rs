// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The console: descriptors 0 and 1, and the signal that asks the machine to stop.
//!
//! Input stays in the descriptor until it is asked for, so a program that does not read holds its sender back. Output is refused while
//! the reader of a descriptor that does not block is behind, and who writes to it waits, not the machine.

use crate::host::{self, POLLIN, POLLOUT, PollFd};
use crate::idle::{self, Watch};
use abi::errno::{EAGAIN, EINTR, EINVAL};
use api_plat::CONSOLE_PIECE;
use core::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

const INPUT: i32 = 0;
const OUTPUT: i32 = 1;

static HANDLER: AtomicPtr<()> = AtomicPtr::new(core::ptr::null_mut());
static BROKE: AtomicBool = AtomicBool::new(false);
static ENDED: AtomicBool = AtomicBool::new(false);
static WATCH: idle::Slot = idle::Slot::new();
/// For room in the output.
static OUTPUT_WATCH: idle::Slot = idle::Slot::new();

fn call_handler(_: usize) {
    let handler = HANDLER.load(Ordering::Acquire);
    if !handler.is_null() {
        // SAFETY: only `unilith_plat_on_console` stores there, and it stores a `fn()`.
        let handler: fn() = unsafe { core::mem::transmute(handler) };
        handler();
    }
}

/// A signal asks the machine to stop; interrupt context.
pub fn stop() {
    BROKE.store(true, Ordering::Release);
    call_handler(0);
}

#[unsafe(no_mangle)]
fn unilith_machine_write_raw(bytes: &[u8]) {
    host::write_all(OUTPUT, bytes);
}

#[unsafe(no_mangle)]
fn unilith_plat_console_write(bytes: &[u8]) -> abi::Result<()> {
    if bytes.len() > CONSOLE_PIECE {
        return Err(EINVAL);
    }
    loop {
        match host::write(OUTPUT, bytes) {
            // A piece is one message of a socket's and one page of a pipe's: the host takes all of it or nothing. What else it may
            // be is written out.
            Ok(n) => host::write_all(OUTPUT, &bytes[n.min(bytes.len())..]),
            Err(EINTR) => continue,
            Err(EAGAIN) => match OUTPUT_WATCH.get() {
                Some(watch) => {
                    watch.arm();
                    return Err(EAGAIN);
                }
                None => host::write_all(OUTPUT, bytes),
            },
            // Nobody reads any more.
            Err(_) => {}
        }
        return Ok(());
    }
}

#[unsafe(no_mangle)]
fn unilith_plat_console_has_room() -> bool {
    let Some(watch) = OUTPUT_WATCH.get() else { return true };
    let mut output = [PollFd { fd: OUTPUT, events: POLLOUT, revents: 0 }];
    let has_room = host::poll(&mut output, Some(host::TimeSpec::default())) != Ok(0);
    if !has_room {
        watch.arm();
    }
    has_room
}

/// The host has what it took.
#[unsafe(no_mangle)]
fn unilith_plat_console_is_drained() -> bool {
    true
}

#[unsafe(no_mangle)]
fn unilith_plat_console_read(to: &mut [u8]) -> usize {
    let watch = WATCH.get();
    if to.is_empty() || ENDED.load(Ordering::Relaxed) {
        return 0;
    }
    // The descriptor may block, for others may share it: it is read only when there is something.
    let mut input = [PollFd { fd: INPUT, events: POLLIN, revents: 0 }];
    let ready = host::poll(&mut input, Some(host::TimeSpec::default()));
    if ready != Ok(1) {
        watch.iter().for_each(Watch::arm);
        return 0;
    }
    match host::read(INPUT, to) {
        Err(EINTR | EAGAIN) => {
            watch.iter().for_each(Watch::arm);
            0
        }
        // The end, or a descriptor that cannot be read.
        Ok(0) | Err(_) => {
            ENDED.store(true, Ordering::Relaxed);
            0
        }
        Ok(n) => n,
    }
}

#[unsafe(no_mangle)]
fn unilith_plat_console_ended() -> bool {
    ENDED.load(Ordering::Relaxed)
}

#[unsafe(no_mangle)]
fn unilith_plat_on_console(handler: fn()) {
    HANDLER.store(handler as *mut (), Ordering::Release);
    let watch = idle::watch(INPUT, call_handler, 0);
    watch.arm();
    WATCH.set(watch);
    OUTPUT_WATCH.set(idle::watch_for(POLLOUT, OUTPUT, call_handler, 0));
}

#[unsafe(no_mangle)]
fn unilith_plat_console_break() -> bool {
    BROKE.swap(false, Ordering::Acquire)
}
