// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the console shows when a signal of the kind that leaves a core file ends the program.
//!
//! One block: the signal, the registers, the bytes at RIP and the callers, each as `#N 0xADDRESS /path+0xOFFSET`,
//! which the host turns into names and lines.

use abi::Result;
use abi::errno::ENOMEM;
use alloc::string::String;
use alloc::vec::Vec;
use api_alloc::Reserve;
use api_plat::TrapFrame;
use api_sched::WaitQueue;
use api_user::{UserPtr, read_bytes};
use core::fmt::Write;
use mem::{Listed, Prot};
use task::Task;
use task::signals::{SI_KERNEL, SIGBUS, SIGFPE, SIGILL, SIGSEGV, SigInfo, name};
use task::wait::on_queue_unless;

/// Enough to see the callers, few enough to read.
const MAX_CALLERS: usize = 32;
/// Bytes shown before and from RIP on.
const CODE_BEFORE: u64 = 16;
const CODE_BYTES: usize = 32;

/// Prints the report.
pub fn report(task: &Task, frame: &TrapFrame, info: &SigInfo) {
    let mut text = String::new();
    // Writing to a string cannot fail.
    let _ = write_report(&mut text, task, frame, info);
    // A host that does not read holds the program back, but not its end by another one.
    let is_killed = || task.is_killed();
    let wait = |queue: &WaitQueue, write: &dyn Fn() -> Result<()>| on_queue_unless(queue, write, is_killed);
    // Nobody is left to be told.
    let _ = devfs::print(text.as_bytes(), wait);
}

fn reason(info: &SigInfo) -> &'static str {
    match (info.signal(), info.code()) {
        (SIGSEGV, 1) => ": address not mapped",
        (SIGSEGV, 2) => ": not allowed by the mapping's protection",
        (SIGSEGV, SI_KERNEL) => ": general protection fault",
        (SIGBUS, 1) => ": misaligned address",
        (SIGBUS, 2) => ": behind the end of the mapped file",
        (SIGFPE, 1) => ": integer division by zero",
        (SIGILL, 2) => ": invalid instruction",
        (_, code) if code <= 0 => ": sent by the program",
        _ => "",
    }
}

fn write_report(out: &mut String, task: &Task, f: &TrapFrame, info: &SigInfo) -> core::fmt::Result {
    let comm = task.comm();
    let comm = String::from_utf8_lossy(&comm);
    write!(out, "\nprogram ended by {} ({}){}", name(info.signal()), info.signal(), reason(info))?;
    if info.code() > 0 && info.code() != SI_KERNEL {
        write!(out, ", at {:#x}", info.address())?;
    }
    writeln!(out, "; thread {} \"{comm}\"", task.tid.of_machine())?;
    let rows = [
        [("rip", f.rip), ("rsp", f.rsp), ("rfl", f.rflags)],
        [("rax", f.rax), ("rbx", f.rbx), ("rcx", f.rcx)],
        [("rdx", f.rdx), ("rsi", f.rsi), ("rdi", f.rdi)],
        [("rbp", f.rbp), ("r8 ", f.r8), ("r9 ", f.r9)],
        [("r10", f.r10), ("r11", f.r11), ("r12", f.r12)],
        [("r13", f.r13), ("r14", f.r14), ("r15", f.r15)],
    ];
    for row in rows {
        for (register, value) in row {
            write!(out, "{register} {value:016x}  ")?;
        }
        out.truncate(out.trim_end().len());
        out.push('\n');
    }
    write_code(out, f.rip)?;
    let mappings = Mappings::new();
    for (i, address) in callers(f, &mappings).into_iter().enumerate() {
        write!(out, "#{i} {address:#018x}")?;
        if let Some((name, offset)) = mappings.place(address) {
            write!(out, " {}+{offset:#x}", String::from_utf8_lossy(name))?;
        }
        out.push('\n');
    }
    Ok(())
}

fn write_code(out: &mut String, rip: u64) -> core::fmt::Result {
    let start = rip.saturating_sub(CODE_BEFORE);
    out.push_str("code");
    for i in 0..CODE_BYTES as u64 {
        let mut byte = [0];
        match read_bytes(start + i, &mut byte) {
            Ok(()) if start + i == rip => write!(out, " <{:02x}>", byte[0])?,
            Ok(()) => write!(out, " {:02x}", byte[0])?,
            Err(_) => out.push_str(" ??"),
        }
    }
    out.push('\n');
    Ok(())
}

/// Files and code that are mapped, as many as there is memory for: those lead to names, and of other mappings there may be tens
/// of thousands.
struct Mappings(Vec<Listed>);

impl Mappings {
    fn new() -> Mappings {
        let mut found = Vec::new();
        let walked = mem::current().each_mapping(0, &mut |line, _| {
            if line.inode != 0 || line.rights.contains(Prot::EXECUTE) {
                found.reserve_fallibly(1).map_err(|_| ENOMEM)?;
                found.push(line.try_clone()?);
            }
            Ok(true)
        });
        if walked.is_err() {
            log::warn!("no memory to name all places of the crash");
        }
        Mappings(found)
    }

    fn find(&self, address: u64) -> Option<&Listed> {
        self.0.iter().find(|m| (m.start..m.end).contains(&address))
    }

    fn is_code(&self, address: u64) -> bool {
        self.find(address).is_some_and(|m| m.rights.contains(Prot::EXECUTE))
    }

    /// File and address as the file's own headers and symbols count, `None` outside of files. A file's first mapping
    /// holds its ELF header, which says whether the file was moved.
    fn place(&self, address: u64) -> Option<(&[u8], u64)> {
        const TYPE: u64 = 16;
        const FIXED: u16 = 2;
        let here = self.find(address).filter(|m| !m.name.is_empty())?;
        let first = self.0.iter().find(|m| m.name == here.name && m.offset == 0)?;
        let is_fixed = UserPtr::<u16>::new(first.start + TYPE).read() == Ok(FIXED);
        Some((&here.name, if is_fixed { address } else { address - first.start }))
    }
}

/// RIP and the return addresses found by following frame pointers; where the program keeps none, what looks like a
/// return address on its stack.
fn callers(f: &TrapFrame, mappings: &Mappings) -> alloc::vec::Vec<u64> {
    let mut found = alloc::vec![f.rip];
    let (mut base, mut below) = (f.rbp, f.rsp);
    while found.len() < MAX_CALLERS && base >= below && base % 8 == 0 {
        let Ok([next, address]) = UserPtr::<[u64; 2]>::new(base).read() else { break };
        if !mappings.is_code(address) {
            break;
        }
        found.push(address);
        (base, below) = (next, base + 16);
    }
    if found.len() == 1 {
        const WORDS_SCANNED: u64 = 512;
        let stack = f.rsp & !7;
        for i in 0..WORDS_SCANNED {
            let Ok(word) = UserPtr::<u64>::new(stack).add(i).read() else { break };
            if mappings.is_code(word) && follows_call(word) && found.len() < MAX_CALLERS {
                found.push(word);
            }
        }
    }
    found
}

/// A call instruction ends at `address`: a direct call (E8 and four bytes), or an indirect one (FF /2) of two to
/// seven bytes.
fn follows_call(address: u64) -> bool {
    let mut code = [0u8; 7];
    if read_bytes(address.wrapping_sub(7), &mut code).is_err() {
        return false;
    }
    ends_in_call(&code)
}

fn ends_in_call(code: &[u8; 7]) -> bool {
    let indirect = |length: usize| code[7 - length] == 0xff && code[8 - length] >> 3 & 7 == 2;
    code[2] == 0xe8 || [2, 3, 4, 6, 7].into_iter().any(indirect)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn return_addresses_are_recognised_by_the_call_before_them() {
        assert!(ends_in_call(&[0x90, 0x90, 0xe8, 1, 2, 3, 4]));
        assert!(ends_in_call(&[0x90, 0x90, 0x90, 0x90, 0x90, 0xff, 0xd0]), "call *%rax");
        assert!(ends_in_call(&[0x90, 0xff, 0x15, 1, 2, 3, 4]), "call *x(%rip)");
        assert!(!ends_in_call(&[0x90; 7]));
        assert!(!ends_in_call(&[0x90, 0x90, 0x90, 0x90, 0x90, 0xff, 0xe0]), "jmp *%rax");
    }
}
