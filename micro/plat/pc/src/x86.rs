// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Instructions that have no Rust name.

use core::arch::asm;

pub const IA32_APIC_BASE: u32 = 0x1b;
pub const IA32_MTRRCAP: u32 = 0xfe;
pub const IA32_MTRR_PHYSBASE0: u32 = 0x200;
pub const IA32_PAT: u32 = 0x277;
pub const IA32_MTRR_DEF_TYPE: u32 = 0x2ff;
pub const IA32_TSC_DEADLINE: u32 = 0x6e0;
pub const IA32_PKRS: u32 = 0x6e1;
pub const IA32_STAR: u32 = 0xc000_0081;
pub const IA32_LSTAR: u32 = 0xc000_0082;
pub const IA32_FMASK: u32 = 0xc000_0084;
pub const IA32_FS_BASE: u32 = 0xc000_0100;
pub const IA32_GS_BASE: u32 = 0xc000_0101;

/// Writes a byte to an I/O port.
///
/// # Safety
///
/// What the device does with it is the caller's business.
#[inline]
pub unsafe fn outb(port: u16, value: u8) {
    // SAFETY: by the caller's word.
    unsafe { asm!("out dx, al", in("dx") port, in("al") value, options(nostack, preserves_flags)) }
}

/// Writes bytes to an I/O port one after the other, by one instruction, which leaves a guest of KVM once for all of them.
///
/// # Safety
///
/// As for [`outb`].
#[inline]
pub unsafe fn write_bytes(port: u16, bytes: &[u8]) {
    // SAFETY: by the caller's word; what is read is the slice.
    unsafe {
        asm!(
            "rep outsb",
            in("dx") port,
            inout("rsi") bytes.as_ptr() => _,
            inout("rcx") bytes.len() => _,
            options(nostack, preserves_flags, readonly)
        )
    }
}

/// Writes two bytes to an I/O port.
///
/// # Safety
///
/// As for [`outb`].
#[inline]
pub unsafe fn outw(port: u16, value: u16) {
    // SAFETY: by the caller's word.
    unsafe { asm!("out dx, ax", in("dx") port, in("ax") value, options(nostack, preserves_flags)) }
}

/// Writes four bytes to an I/O port.
///
/// # Safety
///
/// As for [`outb`].
#[inline]
pub unsafe fn outl(port: u16, value: u32) {
    // SAFETY: by the caller's word.
    unsafe { asm!("out dx, eax", in("dx") port, in("eax") value, options(nostack, preserves_flags)) }
}

/// Reads two bytes from an I/O port.
///
/// # Safety
///
/// As [`inb`].
#[cfg(feature = "acpi")]
pub unsafe fn inw(port: u16) -> u16 {
    let value;
    // SAFETY: by the caller's word.
    unsafe { asm!("in ax, dx", in("dx") port, out("ax") value, options(nostack, preserves_flags)) }
    value
}

/// Reads a byte from an I/O port.
///
/// # Safety
///
/// As for [`outb`]: reading may have effects on the device.
#[inline]
pub unsafe fn inb(port: u16) -> u8 {
    let value;
    // SAFETY: by the caller's word.
    unsafe { asm!("in al, dx", in("dx") port, out("al") value, options(nostack, preserves_flags)) }
    value
}

/// Reads four bytes from an I/O port.
///
/// # Safety
///
/// As for [`inb`].
#[inline]
pub unsafe fn inl(port: u16) -> u32 {
    let value;
    // SAFETY: by the caller's word.
    unsafe { asm!("in eax, dx", in("dx") port, out("eax") value, options(nostack, preserves_flags)) }
    value
}

/// Reads a model-specific register.
///
/// # Safety
///
/// The processor has it.
pub unsafe fn rdmsr(register: u32) -> u64 {
    let (low, high): (u32, u32);
    // SAFETY: by the caller's word.
    unsafe {
        asm!("rdmsr", in("ecx") register, out("eax") low, out("edx") high, options(nostack, preserves_flags));
    }
    u64::from(high) << 32 | u64::from(low)
}

/// Writes a model-specific register.
///
/// # Safety
///
/// The processor has it, and the value keeps the kernel's invariants.
#[inline(always)]
pub unsafe fn wrmsr(register: u32, value: u64) {
    // SAFETY: by the caller's word.
    unsafe {
        asm!("wrmsr", in("ecx") register, in("eax") value as u32, in("edx") (value >> 32) as u32,
            options(nostack, preserves_flags));
    }
}

/// GS base, where the processor has FSGSBASE.
#[inline(always)]
pub fn gs_base() -> u64 {
    let base;
    // SAFETY: reading it has no effect.
    unsafe { asm!("rdgsbase {}", out(reg) base, options(nomem, nostack, preserves_flags)) };
    base
}

/// Sets GS base, where the processor has FSGSBASE.
///
/// # Safety
///
/// It is the block of the running processor.
#[inline(always)]
pub unsafe fn set_gs_base(base: u64) {
    // SAFETY: by the caller's word.
    unsafe { asm!("wrgsbase {}", in(reg) base, options(nostack, preserves_flags)) };
}

pub use plat_x86::rdtsc;

/// Where something in the kernel image is in physical memory.
pub fn physical<T>(of: &'static T) -> u64 {
    core::ptr::from_ref(of) as u64 - crate::KERNEL_BASE
}

/// Runs `f` with interrupts off, and leaves the flag as it was.
#[inline]
pub fn without_interrupts<T>(f: impl FnOnce() -> T) -> T {
    let flags: u64;
    // SAFETY: the flag is restored below; being off for a moment breaks nothing.
    unsafe { asm!("pushfq", "pop {}", "cli", out(reg) flags) };
    let value = f();
    if flags & 0x200 != 0 {
        // SAFETY: they were on before.
        unsafe { asm!("sti", options(nostack)) };
    }
    value
}

#[cfg(not(test))]
#[unsafe(no_mangle)]
fn unilith_machine_stop_interrupts() {
    // SAFETY: nothing runs after this but a report.
    unsafe { asm!("cli", options(nostack)) };
}
