// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The local APIC (Intel SDM volume 3, chapter 11), its timer, and the I/O APIC (82093AA). It is an xAPIC, whose registers are in
//! memory, unless firmware has made an x2APIC of it, or it is Xen's.

use crate::physical_to_virtual;
use crate::windows::Line;
use crate::x86::{self, physical, rdmsr, wrmsr};
use crate::xen;
use api_plat::MAX_CPUS;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

/// The vector of the local APIC's timer.
pub const TIMER: usize = 32;
/// The vector by which one processor tells another one that it has work, or that the kernel is free.
pub const KICK: usize = 33;
/// The vector by which one processor asks others to forget translations.
pub const FORGET: usize = 34;
/// The vector of interrupts that the local APIC took back; its low four bits are set, as old APICs want.
pub const SPURIOUS: usize = 47;

const ID: u64 = 0x20;
const END_OF_INTERRUPT: u64 = 0xb0;
const SPURIOUS_VECTOR: u64 = 0xf0;
const COMMAND: u64 = 0x300;
const COMMAND_HIGH: u64 = 0x310;
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
/// Of a command: it has not left yet.
const PENDING: u32 = 1 << 12;
const ASSERT: u32 = 1 << 14;
/// IA32_APIC_BASE: it is an x2APIC.
const EXTENDED: u64 = 1 << 10;
/// The last identity that an xAPIC can name; 255 is all of them.
const LAST_SHORT: u32 = 254;

/// What one processor can send to another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Message {
    Vector(u8),
    /// It stops what it does and waits for [`Message::Start`].
    Reset,
    /// It starts in real mode at this page, below 1 MiB.
    Start(u8),
    /// It cannot be put off.
    NonMaskable,
}

impl Message {
    /// The low word of the command.
    fn command(self) -> u32 {
        let (delivery, vector) = match self {
            Message::Vector(vector) => (0, vector),
            Message::NonMaskable => (4, 0),
            Message::Reset => (5, 0),
            Message::Start(page) => (6, page),
        };
        delivery << 8 | u32::from(vector) | ASSERT
    }
}

/// Where the I/O APIC of QEMU's PCs and of Firecracker is, and microvm's second one.
const IO_APICS: [u64; 2] = [0xfec0_0000, 0xfec1_0000];
/// Inputs of one.
const IO_APIC_LINES: u8 = 24;
const IO_APIC_VERSION: u32 = 1;

static BASE: AtomicU64 = AtomicU64::new(0);
static DEADLINES: AtomicBool = AtomicBool::new(false);
/// The identity of the boot processor, to which devices interrupt.
static IDENTITY: AtomicU32 = AtomicU32::new(0);

// KVM's paravirtual end of interrupt (Linux Documentation/virt/kvm/x86/msr.rst and cpuid.rst).
const KVM_FEATURE_PV_EOI: u32 = 1 << 6;
const MSR_KVM_PV_EOI_EN: u32 = 0x4b56_4d04;
/// Bit 0 is set by KVM alone and cleared by this processor alone, and KVM looks at it only while the processor is out of the
/// machine. Where KVM has no such feature it stays 0.
static ENDED_FOR_US: [AtomicU32; MAX_CPUS] = [const { AtomicU32::new(0) }; MAX_CPUS];
static KVM_FEATURES: AtomicU32 = AtomicU32::new(0);
/// The registers are model-specific ones.
static IS_EXTENDED: AtomicBool = AtomicBool::new(false);

/// The registers of a local APIC; tests put a strict one in its place ([`crate::strict`]).
pub trait Registers {
    fn read(&self, register: u64) -> u32;
    fn write(&self, register: u64, value: u32);
    /// Of an x2APIC: the command register, which has both words.
    fn command(&self, value: u64);
}

/// This processor's: in the physical map, or model-specific registers.
struct Own;

/// The model-specific register that stands for one in memory (11.12.1.2).
fn extended(register: u64) -> u32 {
    0x800 + (register >> 4) as u32
}

impl Registers for Own {
    fn read(&self, register: u64) -> u32 {
        if IS_EXTENDED.load(Ordering::Relaxed) {
            // SAFETY: an x2APIC has the register.
            return unsafe { rdmsr(extended(register)) } as u32;
        }
        let address = physical_to_virtual::<u32>(BASE.load(Ordering::Relaxed) + register);
        // SAFETY: the local APIC's page is in the physical map, and these registers may be read at any time.
        unsafe { address.read_volatile() }
    }

    fn write(&self, register: u64, value: u32) {
        if IS_EXTENDED.load(Ordering::Relaxed) {
            // SAFETY: an x2APIC has the register; the callers write values that keep its entries on vectors with a stub.
            return unsafe { wrmsr(extended(register), value.into()) };
        }
        let address = physical_to_virtual::<u32>(BASE.load(Ordering::Relaxed) + register);
        // SAFETY: as above; the callers write values that keep the APIC's entries on vectors with a stub.
        unsafe { address.write_volatile(value) }
    }

    fn command(&self, value: u64) {
        // What was written before is seen by who gets the message: a write to this register waits for nothing (11.12.3).
        // SAFETY: orders memory accesses; the caller sends what its receiver expects.
        unsafe {
            core::arch::asm!("mfence", "lfence", options(nostack, preserves_flags));
            wrmsr(extended(COMMAND), value);
        }
    }
}

/// Turns the local APIC on. Its timer interrupts at a value of the time-stamp counter if `deadlines`, which the processor must
/// have, else after a count. `kvm_features` are those of KVM.
pub fn initialize(deadlines: bool, kvm_features: u32) {
    // SAFETY: every processor with an APIC has the register.
    let base = unsafe { rdmsr(x86::IA32_APIC_BASE) };
    let base = if xen::has_x2apic() { base | EXTENDED } else { base };
    if xen::has_x2apic() {
        // SAFETY: CPUID says that the processor has the mode.
        unsafe { wrmsr(x86::IA32_APIC_BASE, base) };
    }
    BASE.store(base & 0x000f_ffff_ffff_f000, Ordering::Relaxed);
    IS_EXTENDED.store(base & EXTENDED != 0, Ordering::Relaxed);
    DEADLINES.store(deadlines, Ordering::Relaxed);
    KVM_FEATURES.store(kvm_features, Ordering::Relaxed);
    let id = Own.read(ID);
    IDENTITY.store(if is_extended() { id } else { id >> 24 }, Ordering::Relaxed);
    begin(0);
}

/// As [`initialize`] for another processor, whose APIC is to be as the boot processor's.
pub fn initialize_other(index: usize) {
    if is_extended() {
        // SAFETY: the boot processor's is one, too. A processor that was reset has an xAPIC.
        unsafe { wrmsr(x86::IA32_APIC_BASE, rdmsr(x86::IA32_APIC_BASE) | EXTENDED) };
    }
    begin(index);
}

fn begin(index: usize) {
    enable(&Own, DEADLINES.load(Ordering::Relaxed));
    // A write to memory is not ordered before one to a model-specific register, and a deadline that comes first is
    // ignored (Intel SDM volume 3, 11.5.4.1).
    // SAFETY: orders memory accesses, nothing else.
    unsafe { core::arch::asm!("mfence", options(nostack, preserves_flags)) };
    if KVM_FEATURES.load(Ordering::Relaxed) & KVM_FEATURE_PV_EOI != 0 {
        // SAFETY: KVM writes to the word, which is made for that.
        unsafe { wrmsr(MSR_KVM_PV_EOI_EN, physical(&ENDED_FOR_US[index]) | 1) };
    }
}

/// Turns the APIC on.
fn enable(apic: &impl Registers, deadlines: bool) {
    // The APIC is enabled before any entry is written: a disabled one keeps its entries masked, whatever is written
    // (Intel SDM volume 3, 11.4.7.2). KVM does so; QEMU's software emulation does not.
    apic.write(SPURIOUS_VECTOR, ENABLE | SPURIOUS as u32);
    // The old PIC, whose interrupts would arrive as exceptions, reaches the processor through this entry only.
    apic.write(LINT0, MASKED);
    apic.write(LINT1, MASKED);
    if deadlines {
        apic.write(TIMER_ENTRY, TSC_DEADLINE | TIMER as u32);
    } else {
        apic.write(TIMER_DIVIDE, DIVIDE_BY_1);
        apic.write(TIMER_ENTRY, TIMER as u32);
    }
}

/// Whether the timer interrupts at deadlines.
pub fn uses_deadlines() -> bool {
    DEADLINES.load(Ordering::Relaxed)
}

/// Tells the APIC that the interrupt was handled, unless KVM needs no telling, which saves an exit: it sets a bit when it
/// delivers such an interrupt, and takes a cleared bit for the end of it.
pub fn end_of_interrupt() {
    let ended = &ENDED_FOR_US[api_plat::cpu() as usize];
    if ended.load(Ordering::Relaxed) & 1 != 0 && ended.swap(0, Ordering::AcqRel) & 1 != 0 {
        return;
    }
    Own.write(END_OF_INTERRUPT, 0);
}

fn is_extended() -> bool {
    IS_EXTENDED.load(Ordering::Relaxed)
}

/// The identity of the boot processor.
pub fn identity() -> u32 {
    IDENTITY.load(Ordering::Relaxed)
}

/// Whether a processor of this identity can be sent a message.
pub fn can_name(id: u32) -> bool {
    is_extended() || id <= LAST_SHORT
}

/// Sends a message to the processor with this identity. In thread context, or where nothing goes on.
pub fn send(id: u32, message: Message) {
    command(&Own, is_extended(), id, message);
}

/// A message leaves an xAPIC at once unless its receiver is one that takes none; no wait is for ever.
const LOOKS: u32 = 1 << 20;

fn command(apic: &impl Registers, is_extended: bool, id: u32, message: Message) {
    if is_extended {
        return apic.command(u64::from(id) << 32 | u64::from(message.command()));
    }
    for _ in 0..LOOKS {
        if apic.read(COMMAND) & PENDING == 0 {
            break;
        }
        core::hint::spin_loop();
    }
    apic.write(COMMAND_HIGH, id << 24);
    apic.write(COMMAND, message.command());
}

/// Starts the timer: one interrupt after `count` ticks; 0 stops it.
pub fn start_timer(count: u32) {
    Own.write(TIMER_INITIAL, count);
}

/// Ticks until the interrupt.
pub fn timer_count() -> u32 {
    Own.read(TIMER_CURRENT)
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

/// Address and data of a message-signalled interrupt for the boot processor (Intel SDM volume 3, 11.11).
pub fn message(vector: u8) -> (u64, u32) {
    (0xfee0_0000 | u64::from(identity() & 0xff) << 12, vector.into())
}

/// True when one of the I/O APICs could have the line.
pub fn has_line(line: Line) -> bool {
    usize::from(line.0 / IO_APIC_LINES) < IO_APICS.len()
}

/// Lets the rising edge of a line raise `vector` on the boot processor, as ISA's and virtio-mmio's lines do.
pub fn route(line: Line, vector: u8) {
    route_edge(line, vector, false);
}

/// As [`route`]; the falling edge where the line is active when it is low.
pub fn route_edge(line: Line, vector: u8, is_low: bool) {
    let base = IO_APICS[usize::from(line.0 / IO_APIC_LINES)];
    let entry = 0x10 + 2 * u32::from(line.0 % IO_APIC_LINES);
    io_write(base, entry + 1, identity() << 24);
    io_write(base, entry, u32::from(vector) | u32::from(is_low) << 13);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::strict::Apic;

    #[test]
    fn timer_interrupts_arrive_on_an_apic_that_is_as_strict_as_the_manual() {
        let apic = Apic::default();
        enable(&apic, false);
        apic.write(TIMER_INITIAL, 1000);
        assert_eq!(apic.elapsed(400), None);
        assert_eq!(apic.read(TIMER_CURRENT), 600);
        assert_eq!(apic.elapsed(600), Some(TIMER as u8));
        apic.write(END_OF_INTERRUPT, 0);
        assert_eq!(apic.elapsed(10_000), None, "one interrupt for one start");
    }

    #[test]
    fn counter_stands_still_once_deadlines_are_used() {
        let apic = Apic::default();
        enable(&apic, true);
        apic.write(TIMER_INITIAL, 1000);
        assert_eq!(apic.read(TIMER_CURRENT), 0);
        assert_eq!(apic.elapsed(10_000), None);
        assert_eq!(apic.deadline_passed(), Some(TIMER as u8));
    }

    #[test]
    fn external_interrupts_of_the_old_pic_are_off() {
        let apic = Apic::default();
        enable(&apic, false);
        assert!(apic.is_masked(LINT0) && apic.is_masked(LINT1));
    }

    #[test]
    fn message_is_written_receiver_first_and_only_when_the_last_one_has_left() {
        let apic = Apic::default();
        enable(&apic, false);
        for (message, low) in [
            (Message::Vector(KICK as u8), 0x4021),
            (Message::Reset, 0x4500),
            (Message::Start(8), 0x4608),
            (Message::NonMaskable, 0x4400),
        ] {
            command(&apic, false, 3, message);
            assert_eq!(apic.sent().last(), Some(&(3, low)));
            command(&apic, true, 0x1_0003, message);
            assert_eq!(apic.sent().last(), Some(&(0x1_0003, low)));
        }
        assert_eq!(apic.sent().len(), 8);
    }

    #[test]
    fn entry_that_is_written_to_a_disabled_apic_stays_masked() {
        // The mistake that software emulation forgives: the strict one must not, or the tests above show nothing.
        let apic = Apic::default();
        apic.write(TIMER_ENTRY, TIMER as u32);
        apic.write(SPURIOUS_VECTOR, ENABLE | SPURIOUS as u32);
        apic.write(TIMER_DIVIDE, DIVIDE_BY_1);
        apic.write(TIMER_INITIAL, 1000);
        assert_eq!(apic.elapsed(10_000), None);
    }
}
