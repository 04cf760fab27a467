// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Calls that only read a number: entered without saving vector registers (see `api_plat::set_fast_call`).
//!
//! Each function must compile to code without vector instructions, callees included; the test
//! `fast_calls_touch_no_vector_register_and_no_strings` disassembles the image. The table of calls has a handler for each of them
//! as well, for tracing.

use crate::thread::current;
use api_plat::FastCall;
use core::sync::atomic::{AtomicBool, Ordering};

static CALLS: [(u32, FastCall); 7] = [
    (39, unilith_fast_getpid),
    (102, unilith_fast_getuid),
    (104, unilith_fast_getgid),
    (107, unilith_fast_geteuid),
    (108, unilith_fast_getegid),
    (110, unilith_fast_getppid),
    (186, unilith_fast_gettid),
];

/// Enters the calls in the platform's table, or takes them out while calls are traced: only the full path tells.
///
/// They do not take their turn in the kernel, so they are for one processor.
pub fn enable(on: bool) {
    if api_plat::several() {
        return;
    }
    for (number, call) in CALLS {
        match on && !(IDS_DIFFER.load(Ordering::Relaxed) && IDS.contains(&number)) {
            // SAFETY: each keeps what the module's documentation says.
            true => unsafe { api_plat::set_fast_call(number, call) },
            false => api_plat::clear_fast_call(number),
        }
    }
}

/// Others are at work in the kernel from here on.
#[unsafe(no_mangle)]
fn unilith_processors_admitted() {
    CALLS.iter().for_each(|(number, _)| api_plat::clear_fast_call(*number));
}

/// getuid(2) and its like, which know the machine's own ids alone.
const IDS: [u32; 4] = [102, 104, 107, 108];
static IDS_DIFFER: AtomicBool = AtomicBool::new(false);

/// A user namespace is about to be made: from here on ids are shown by the full path, which goes by its maps.
pub fn leave_ids_out() {
    if !IDS_DIFFER.swap(true, Ordering::Relaxed) {
        IDS.into_iter().for_each(api_plat::clear_fast_call);
    }
}

#[cfg_attr(feature = "linked", unsafe(no_mangle))]
extern "C" fn unilith_fast_getpid(_: u64, _: u64, _: u64, _: u64, _: u64, _: u64) -> u64 {
    current().process.number as u64
}

#[cfg_attr(feature = "linked", unsafe(no_mangle))]
extern "C" fn unilith_fast_gettid(_: u64, _: u64, _: u64, _: u64, _: u64, _: u64) -> u64 {
    current().number as u64
}

#[cfg_attr(feature = "linked", unsafe(no_mangle))]
extern "C" fn unilith_fast_getppid(_: u64, _: u64, _: u64, _: u64, _: u64, _: u64) -> u64 {
    current().process.family.parent_number() as u64
}

#[cfg_attr(feature = "linked", unsafe(no_mangle))]
extern "C" fn unilith_fast_getuid(_: u64, _: u64, _: u64, _: u64, _: u64, _: u64) -> u64 {
    u64::from(current().credentials().lock().uid)
}

#[cfg_attr(feature = "linked", unsafe(no_mangle))]
extern "C" fn unilith_fast_geteuid(_: u64, _: u64, _: u64, _: u64, _: u64, _: u64) -> u64 {
    u64::from(current().credentials().lock().euid)
}

#[cfg_attr(feature = "linked", unsafe(no_mangle))]
extern "C" fn unilith_fast_getgid(_: u64, _: u64, _: u64, _: u64, _: u64, _: u64) -> u64 {
    u64::from(current().credentials().lock().gid)
}

#[cfg_attr(feature = "linked", unsafe(no_mangle))]
extern "C" fn unilith_fast_getegid(_: u64, _: u64, _: u64, _: u64, _: u64, _: u64) -> u64 {
    u64::from(current().credentials().lock().egid)
}
