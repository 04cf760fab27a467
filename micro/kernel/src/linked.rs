// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The entries of a linked program, one for each row of the table of system calls. An entry of a call that this kernel has
//! no handler for is there too; the linker names it where a program makes that call.
//!
//! What has to be started before the program runs is not reached from its calls: whoever links says whether the program
//! makes sockets.

use crate::machine::Devices;
use api_plat::{BootConfig, TrapFrame};
use core::arch::global_asm;
use core::mem::offset_of;
use plat_x86::cpu::Cpu;

macro_rules! entry {
    ($number:literal getpid) => {
        concat!("linked_fast ", $number, ", getpid\n")
    };
    ($number:literal gettid) => {
        concat!("linked_fast ", $number, ", gettid\n")
    };
    ($number:literal getppid) => {
        concat!("linked_fast ", $number, ", getppid\n")
    };
    ($number:literal getuid) => {
        concat!("linked_fast ", $number, ", getuid\n")
    };
    ($number:literal geteuid) => {
        concat!("linked_fast ", $number, ", geteuid\n")
    };
    ($number:literal getgid) => {
        concat!("linked_fast ", $number, ", getgid\n")
    };
    ($number:literal getegid) => {
        concat!("linked_fast ", $number, ", getegid\n")
    };
    ($number:literal $name:ident) => {
        concat!("linked_call ", $number, ", ", stringify!($name), "\n")
    };
}

macro_rules! entries {
    ($($number:literal $name:ident $status:ident $note:literal $($handler:ident)::+;)*) => {
        global_asm!(
            include_str!("linked.s"),
            $(entry!($number $name),)*
            $(concat!("linked_kept ", $number, ", ", stringify!($name), "\n"),)*
            "linked_call any, any",
            "linked_kept any, any",
            "linked_raw netdev_count",
            "linked_raw netdev_open",
            "linked_raw netdev_listening",
            "linked_raw netdev_allocate",
            "linked_raw netdev_free",
            "linked_raw netdev_rx_burst",
            "linked_raw netdev_tx_burst",
            "linked_function unilith_raw_netdev_wait, raw_netdev_wait, -1",
            "linked_raw blockdev_count",
            "linked_raw blockdev_open",
            "linked_raw blockdev_submit",
            "linked_raw blockdev_poll",
            "linked_function unilith_raw_blockdev_wait, raw_blockdev_wait, -1",
            "linked_function unilith_raw_shfs_mount, raw_shfs_mount, -1",
            "linked_raw shfs_open",
            "linked_function unilith_raw_shfs_read, raw_shfs_read, -1",
            SEVERAL = const !api_plat::KERNEL_IN_LAST_2_GIB as u32,
            GS_FRAME = const offset_of!(Cpu, frame),
            RSP = const offset_of!(TrapFrame, rsp),
            RIP = const offset_of!(TrapFrame, rip),
            RAX = const offset_of!(TrapFrame, rax),
            RDI = const offset_of!(TrapFrame, rdi),
            RSI = const offset_of!(TrapFrame, rsi),
            RDX = const offset_of!(TrapFrame, rdx),
            R10 = const offset_of!(TrapFrame, r10),
            R9 = const offset_of!(TrapFrame, r9),
            R8 = const offset_of!(TrapFrame, r8),
            RBX = const offset_of!(TrapFrame, rbx),
            RBP = const offset_of!(TrapFrame, rbp),
            R12 = const offset_of!(TrapFrame, r12),
            R13 = const offset_of!(TrapFrame, r13),
            R14 = const offset_of!(TrapFrame, r14),
            R15 = const offset_of!(TrapFrame, r15),
            ORIG_RAX = const offset_of!(TrapFrame, orig_rax),
            RFLAGS = const offset_of!(TrapFrame, rflags),
            ENTRY = const offset_of!(TrapFrame, entry),
        );
    };
}
syscall_table::system_calls!(entries);

unsafe extern "Rust" {
    // Jumps to one of two below or in `raw.rs`, made by whoever links (`host/static/src/image.rs`).
    safe fn unilith_linked_network(config: &mut BootConfig, devices: &mut Devices) -> bool;
    safe fn unilith_linked_unix();
    safe fn unilith_linked_netdev(config: &BootConfig, devices: &mut Devices, stack_has_one: bool);
    safe fn unilith_linked_block(devices: &mut Devices);
}

/// Starts the families of sockets that the program can make, and gives it the devices that it drives itself.
pub fn start(config: &mut BootConfig, devices: &mut Devices) {
    let stack_has_one = unilith_linked_network(config, devices);
    unilith_linked_unix();
    unilith_linked_netdev(config, devices, stack_has_one);
    unilith_linked_block(devices);
}

#[cfg(feature = "net-tcpip")]
#[unsafe(no_mangle)]
fn unilith_network_start(config: &mut BootConfig, devices: &mut Devices) -> bool {
    crate::network::start(config, devices)
}

#[unsafe(no_mangle)]
fn unilith_network_none(_: &mut BootConfig, _: &mut Devices) -> bool {
    false
}

#[cfg(feature = "net-unix")]
#[unsafe(no_mangle)]
fn unilith_unix_start() {
    crate::start::start_unix();
}

#[unsafe(no_mangle)]
fn unilith_unix_none() {}
