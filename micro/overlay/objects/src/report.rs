// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a program did wrong, in words: what, where, and in which function.

use crate::memory::{self, is_ours};
use crate::resolve;
use crate::run::{Outcome, Run};
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use api_plat::{Entry, Exception, TrapFrame};
use api_user::UserPtr;

const SIGILL: u8 = 4;
const SIGTRAP: u8 = 5;
const SIGFPE: u8 = 8;
const SIGSEGV: u8 = 11;
const SIGSYS: u8 = 31;

/// First address of the kernel's part.
const KERNEL: u64 = api_plat::USER_END;
/// Nothing is mapped below: addresses there come from null pointers.
const LOWEST: u64 = 0x1_0000;
/// Words of the stack that are looked at for return addresses, and most of them that are shown.
const STACK_WORDS: u64 = 512;
const TRACE_MAX: usize = 8;

/// The name of an address.
pub fn place(run: &Run, address: u64) -> String {
    if let Some((name, offset)) = run.program.image.describe(address) {
        return format!("{name}+{offset:#x}");
    }
    if address >= KERNEL {
        return "the kernel".to_string();
    }
    if is_ours(address, 1) {
        return format!("{:+#x} of {}", address - run.program.block.start, run.program.name);
    }
    resolve::describe(address).unwrap_or_else(|| format!("{address:#x}"))
}

/// What lies at an address.
fn target(run: &Run, address: u64) -> String {
    if address < LOWEST {
        return format!("a null pointer ({address:#x})");
    }
    if address >= KERNEL {
        return format!("the kernel's memory at {address:#x}");
    }
    if is_ours(address, 1) {
        let stack = &run.stack;
        if address < stack.start && stack.start - address <= memory::PAGE * 16 {
            return format!("{address:#x}: its stack of {} KiB overflowed", stack.length >> 10);
        }
        return match is_own(address) {
            true => format!("its own memory at {address:#x}"),
            false => format!("{address:#x}, next to its memory"),
        };
    }
    if let Some(name) = resolve::describe(address) {
        return format!("the application's memory at {address:#x}, {name}");
    }
    if mem::current().mapping_at(address).is_some() {
        format!("the application's memory at {address:#x}")
    } else {
        format!("{address:#x}, where nothing is mapped")
    }
}

/// True in what is mapped for programs.
fn is_own(address: u64) -> bool {
    memory::near(address).is_some_and(|(start, length)| (start..start + length).contains(&address))
}

/// The report of an exception.
pub fn fault(run: &Run, frame: &TrapFrame, exception: &Exception) -> Outcome {
    let address = exception.address;
    let (signal, what) = match exception.vector {
        0 => (SIGFPE, "divided by zero".to_string()),
        1 | 3 => (SIGTRAP, "ran into a breakpoint".to_string()),
        6 => (SIGILL, "ran an invalid instruction".to_string()),
        14 if exception.error & 1 << 4 != 0 => {
            (SIGSEGV, format!("jumped to {}, which is no code", target(run, address)))
        }
        14 if exception.error & 1 << 1 != 0 => {
            let why = match (frame.entry, address) {
                (_, LOWEST..KERNEL) if is_own(address) => ", which is read-only",
                (Entry::Overlay, LOWEST..KERNEL) if !is_ours(address, 1) => ", without uio_enable_write",
                _ => "",
            };
            (SIGSEGV, format!("wrote to {}{why}", target(run, address)))
        }
        14 => (SIGSEGV, format!("read {}", target(run, address))),
        16 | 19 => (SIGFPE, "raised a floating-point error".to_string()),
        _ => (
            SIGSEGV,
            format!("used an address that is none, or a forbidden instruction (vector {})", exception.vector),
        ),
    };
    killed(run, frame, signal, &what)
}

/// The report of a system call that is not the program's to make.
pub fn forbidden_call(run: &Run, frame: &TrapFrame, what: &str) -> Outcome {
    let number = frame.rax as u32;
    killed(run, frame, SIGSYS, &format!("{what} (system call {number})"))
}

/// The report of an end for another reason, with where it was.
pub fn killed(run: &Run, frame: &TrapFrame, signal: u8, what: &str) -> Outcome {
    let mut text = format!("{what}, at {:#x} ({})", frame.rip, place(run, frame.rip));
    if frame.entry == Entry::OverlayWriting {
        text += "; it could write the application's memory, and may have left it half changed";
    }
    Outcome::Killed { signal, text, trace: trace(run, frame) }
}

/// Functions of the program that are on its stack.
fn trace(run: &Run, frame: &TrapFrame) -> Vec<String> {
    let mut out = Vec::new();
    let end = run.stack.start + run.stack.length;
    let first = (frame.rsp & !7).max(run.stack.start);
    for at in (first..end).step_by(8).take(STACK_WORDS as usize) {
        let Ok(word) = UserPtr::<u64>::new(at).read() else { break };
        if let Some((name, offset)) = run.program.image.describe(word)
            && offset > 0
            && run.program.is_text(word)
        {
            out.push(format!("called from {word:#x} ({name}+{offset:#x})"));
            if out.len() == TRACE_MAX {
                break;
            }
        }
    }
    out
}
