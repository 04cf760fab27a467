// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Reports of the kernel's own faults.

use crate::{asm, machine, rdtsc};
use api_plat::TrapFrame;
use core::fmt::{self, Write};
use core::panic::PanicInfo;
use core::sync::atomic::{AtomicU32, Ordering};

/// The processor that reports, plus one; 0 while all is well.
static REPORTS: AtomicU32 = AtomicU32::new(0);

/// The processors that have stopped for the one that reports, a bit each.
static STOPPED: AtomicU32 = AtomicU32::new(0);

/// In counts of the time-stamp counter: one to four seconds.
const PATIENCE: u64 = 1 << 32;

/// `core::fmt` to the console.
struct Raw;

impl Write for Raw {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        machine::write_raw(text.as_bytes());
        Ok(())
    }
}

/// Most return addresses a report shows.
const BACKTRACE_MAX: usize = 24;

/// One line for the user, without the heap.
struct Line {
    text: [u8; 240],
    length: usize,
}

impl Write for Line {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let n = text.len().min(self.text.len() - self.length);
        self.text[self.length..self.length + n].copy_from_slice(&text.as_bytes()[..n]);
        self.length += n;
        Ok(())
    }
}

/// Ends the machine with a reason.
fn end(reason: fmt::Arguments<'_>) -> ! {
    let mut line = Line { text: [0; 240], length: 0 };
    let _ = write!(line, "{reason}");
    machine::failed(core::str::from_utf8(&line.text[..line.length]).unwrap_or("kernel fault"))
}

/// Ends the machine: it cannot run here. One line that says what to do.
pub fn fail(reason: &str) -> ! {
    let _ = writeln!(Raw, "unilith: {reason}");
    end(format_args!("{reason}"))
}

fn begin() {
    machine::stop_interrupts();
    let this = api_plat::cpu() + 1;
    match REPORTS.compare_exchange(0, this, Ordering::Relaxed, Ordering::Relaxed) {
        Ok(_) => {
            let others = machine::stop_others();
            wait_until(|| STOPPED.load(Ordering::Acquire) & others == others);
            wait_until(machine::has_sent_all);
        }
        // A fault while reporting a fault must not report itself.
        Err(reporter) if reporter == this => end(format_args!("kernel fault while reporting a kernel fault")),
        // The other one ends the machine.
        Err(_) => {
            STOPPED.fetch_or(1 << api_plat::cpu(), Ordering::Release);
            loop {
                core::hint::spin_loop();
            }
        }
    }
}

/// Waits until `is_over`, so that other processors and the program's output device do not print into the report. A processor that the host does not
/// run, or that masks NMIs, delays the report by [`PATIENCE`] and does not prevent it.
fn wait_until(is_over: impl Fn() -> bool) {
    let begin = rdtsc();
    while !is_over() && rdtsc().wrapping_sub(begin) < PATIENCE {
        core::hint::spin_loop();
    }
}

/// Prints the return addresses on the running stack, one a line.
pub fn print_backtrace() {
    let rsp: u64;
    // SAFETY: reading RSP.
    unsafe { core::arch::asm!("mov {}, rsp", out(reg) rsp, options(nomem, nostack, preserves_flags)) };
    backtrace(rsp);
}

/// Says on the console what is not as it should be, and who came there, and goes on (Linux' `WARN`).
pub fn warn(what: core::fmt::Arguments<'_>) {
    let _ = writeln!(Raw, "\nunilith: warning: {what}");
    print_backtrace();
}

/// For the image's panic handler: reports and ends the machine.
pub fn panic(info: &PanicInfo<'_>) -> ! {
    begin();
    let _ = writeln!(Raw, "\nunilith: kernel {info}");
    print_backtrace();
    let message = info.message();
    match info.location() {
        Some(at) => end(format_args!("kernel panic at {}:{}: {message}", at.file(), at.line())),
        None => end(format_args!("kernel panic: {message}")),
    }
}

/// An exception that the kernel itself raised.
pub fn exception(frame: &TrapFrame, vector: u32, error: u64, cr2: u64) -> ! {
    begin();
    let name = match vector {
        0 => "divide error",
        1 => "debug trap",
        2 => "NMI",
        3 => "breakpoint",
        6 => "invalid instruction",
        8 => "double fault",
        12 => "stack fault",
        13 => "general protection fault",
        14 => "page fault",
        16 | 19 => "floating-point error",
        17 => "alignment check",
        18 => "machine check",
        _ => "exception",
    };
    let f = frame;
    let _ = writeln!(Raw, "\nunilith: kernel {name} (vector {vector}, error {error:#x}) at {:#x}", f.rip);
    if vector == 14 || vector == 8 {
        let _ = writeln!(Raw, "  address {cr2:#x}");
        if let Some(name) = machine::guard_at(cr2) {
            let _ = writeln!(Raw, "  {name} overflowed");
        }
    }
    for (names, values) in [
        (["rax", "rbx", "rcx", "rdx"], [f.rax, f.rbx, f.rcx, f.rdx]),
        (["rsi", "rdi", "rbp", "rsp"], [f.rsi, f.rdi, f.rbp, f.rsp]),
        (["r8 ", "r9 ", "r10", "r11"], [f.r8, f.r9, f.r10, f.r11]),
        (["r12", "r13", "r14", "r15"], [f.r12, f.r13, f.r14, f.r15]),
    ] {
        for (name, value) in names.iter().zip(values) {
            let _ = write!(Raw, "  {name} {value:016x}");
        }
        let _ = writeln!(Raw);
    }
    let _ = writeln!(Raw, "  rflags {:#x}", f.rflags);
    backtrace(f.rsp);
    match machine::guard_at(cr2).filter(|_| vector == 14) {
        Some(name) => end(format_args!("{name} overflowed at {:#x}", f.rip)),
        None => end(format_args!("kernel {name} at {:#x}, address {cr2:#x}", f.rip)),
    }
}

/// Values on the stack that point into the kernel's text: return addresses, and a few that were some.
fn backtrace(rsp: u64) {
    let (text, tools) = (asm::text(), asm::tools());
    let mut shown = 0;
    let mut at = rsp & !7;
    // Up to the end of the stack, in steps whose page is known to be mapped.
    while shown < BACKTRACE_MAX && machine::stack_holds(at, at + 8) {
        // SAFETY: it lies in the mapped part of a kernel stack.
        let value = unsafe { (at as *const u64).read() };
        if text.contains(&value) || tools.contains(&value) {
            let _ = writeln!(Raw, "  kernel {value:#x}");
            shown += 1;
        }
        at += 8;
    }
}
