// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What `processors.rs` is for machines with one processor, whose kernel has no lock.

pub const fn several() -> bool {
    false
}

pub fn unilith_kernel_lock() {}

pub fn unilith_kernel_unlock() {}

pub fn come_back() {}

pub fn forget_everywhere(_start: u64, _end: u64) {}

#[unsafe(no_mangle)]
fn unilith_plat_cpus() -> u32 {
    1
}

#[unsafe(no_mangle)]
fn unilith_plat_several() -> bool {
    false
}

#[unsafe(no_mangle)]
fn unilith_plat_admit() -> bool {
    false
}

#[unsafe(no_mangle)]
fn unilith_plat_dismiss() -> bool {
    false
}

#[unsafe(no_mangle)]
fn unilith_plat_kick(_: u32) {
    api_plat::request_work();
}

#[unsafe(no_mangle)]
fn unilith_plat_barrier(_code: bool) {}

#[unsafe(no_mangle)]
fn unilith_plat_forget_on(_processors: u32, _start: u64, _end: u64) {}

#[unsafe(no_mangle)]
fn unilith_machine_stop_others() -> u32 {
    0
}
