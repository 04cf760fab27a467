// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The local APIC (xAPIC, Intel SDM volume 3, chapter 11), its timer, and the I/O APIC (82093AA).

use crate::interrupt::{SPURIOUS, TIMER, Trigger};
use crate::physical_to_virtual;
use crate::windows::Line;
use crate::x86::{self, outb, rdmsr};
use core::sync::atomic::{AtomicU64, Ordering};

const ID: u64 = 0x20;
const END_OF_INTERRUPT: u64 = 0xb0;
const SPURIOUS_VECTOR: u64 = 0xf0;
const TIMER_ENTRY: u64 = 0x320;
const LINT0: u64 = 0x350;
const LINT1: u64 = 0x360;
const TIMER_INITIAL: u64 = 0x380;
const TIMER_CURRENT: u64 = 0x390;
const TIMER_DIVIDE: u64 = 0x3e0;
const ENABLE: u32 = 1 << 8;
const MASKED: u32 = 1 << 16;
const TSC_DEADLINE: u32 = 1 << 18;
const DIVIDE_BY_1: u32 = 0xb;

/// Where the I/O APIC of QEMU's PCs and of Firecracker is, and microvm's second one.
const IO_APICS: [u64; 2] = [0xfec0_0000, 0xfec1_0000];
/// Inputs of one.
const IO_APIC_LINES: u8 = 24;
const IO_APIC_VERSION: u32 = 1;

static BASE: AtomicU64 = AtomicU64::new(0);

fn read(register: u64) -> u32 {
    let address = physical_to_virtual::<u32>(BASE.load(Ordering::Relaxed) + register);
    // SAFETY: the local APIC's page is in the physical map, and these registers may be read at any time.
    unsafe { address.read_volatile() }
}

fn write(register: u64, value: u32) {
    let address = physical_to_virtual::<u32>(BASE.load(Ordering::Relaxed) + register);
    // SAFETY: as above; the callers write values that keep the APIC's entries on vectors with a stub.
    unsafe { address.write_volatile(value) }
}

/// Masks the old PIC, whose interrupts would arrive as exceptions, and turns the local APIC on.
pub fn initialize() {
    // SAFETY: every PC has the register; 0x21 and 0xa1 are the PIC's masks, or nothing.
    unsafe {
        outb(0x21, 0xff);
        outb(0xa1, 0xff);
        BASE.store(rdmsr(x86::IA32_APIC_BASE) & 0x000f_ffff_ffff_f000, Ordering::Relaxed);
    }
    // The APIC is enabled before any entry is written: a disabled one keeps its entries masked, whatever is written
    // (Intel SDM volume 3, 11.4.7.2). KVM does so; QEMU's software emulation does not.
    write(SPURIOUS_VECTOR, ENABLE | SPURIOUS as u32);
    write(LINT0, MASKED);
    write(LINT1, MASKED);
    write(TIMER_DIVIDE, DIVIDE_BY_1);
    let mode = if plat_x86::features::features().tsc_deadline { TSC_DEADLINE } else { 0 };
    write(TIMER_ENTRY, mode | TIMER as u32);
}

pub fn end_of_interrupt() {
    write(END_OF_INTERRUPT, 0);
}

/// Starts the timer: one interrupt after `count` ticks; 0 stops it.
pub fn start_timer(count: u32) {
    write(TIMER_INITIAL, count);
}

/// Ticks until the interrupt.
pub fn timer_count() -> u32 {
    read(TIMER_CURRENT)
}

fn io_write(base: u64, register: u32, value: u32) {
    // SAFETY: the I/O APIC's index and data registers; callers write redirection entries only.
    unsafe {
        physical_to_virtual::<u32>(base).write_volatile(register);
        physical_to_virtual::<u32>(base + 0x10).write_volatile(value);
    }
}

/// True on a machine with a second I/O APIC.
pub fn has_second_io_apic() -> bool {
    // SAFETY: selects and reads the version; without the device both go nowhere.
    let version = unsafe {
        physical_to_virtual::<u32>(IO_APICS[1]).write_volatile(IO_APIC_VERSION);
        physical_to_virtual::<u32>(IO_APICS[1] + 0x10).read_volatile()
    };
    // Bits 16 to 23 are the highest input.
    (version >> 16 & 0xff) as u8 == IO_APIC_LINES - 1
}

/// Address and data of a message-signalled interrupt for this processor (Intel SDM volume 3, 11.11).
pub fn message(vector: u8) -> (u64, u32) {
    (0xfee0_0000 | u64::from(read(ID) >> 24) << 12, vector.into())
}

/// True when one of the I/O APICs could have the line.
pub fn has_line(line: Line) -> bool {
    usize::from(line.0 / IO_APIC_LINES) < IO_APICS.len()
}

/// Lets a line raise `vector` on this processor.
pub fn route(line: Line, trigger: Trigger, vector: u8) {
    let base = IO_APICS[usize::from(line.0 / IO_APIC_LINES)];
    let entry = 0x10 + 2 * u32::from(line.0 % IO_APIC_LINES);
    let mode = match trigger {
        Trigger::Edge => 0,
        Trigger::Level => 1 << 15 | 1 << 13,
    };
    io_write(base, entry + 1, read(ID) & 0xff00_0000);
    io_write(base, entry, mode | u32::from(vector));
}
