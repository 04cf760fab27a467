// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The instructions the linker itself writes: the program's start and end, and stubs for calls out of it.

use crate::elf::Object;
use crate::plan::Calls;
use crate::scan::{Needs, Slot};
use crate::symbols::{Symbols, Target};
use crate::{CALL_EXIT, GATE};
use alloc::vec::Vec;

/// Bytes of one stub.
pub const STUB: u64 = 16;

/// Bytes of the call of a constructor, of a destructor, and of asking one indirect function for its address.
const INITIALIZE: u64 = 20;
const FINALIZE: u64 = 12;
const ASK: u64 = 25;
/// `exit`, from its first byte to behind its last.
const EXIT_LENGTH: usize = 22;
/// Everything else in the start code, rounded up.
const FIXED: u64 = 128;

/// Where the parts of the start code are, from the start of the program.
pub struct StartCode {
    pub size: u64,
    /// Constructors and destructors, as listed.
    pub first: Vec<Calls>,
    pub last: Vec<Calls>,
}

/// What the start code needs to know once addresses are known.
pub struct Addresses<'a> {
    /// Address of the start code itself.
    pub base: u64,
    pub main: u64,
    /// Functions that answer an address, and where it is stored.
    pub asked: &'a [(u64, u64)],
    pub first: &'a [u64],
    pub last: &'a [u64],
    /// Start of the thread-local variables.
    pub thread_block: u64,
}

/// Offsets in the start code that others jump to.
#[derive(Clone, Copy, Debug, Default)]
pub struct Entries {
    pub start: u64,
    /// Where the start code returns to at the end.
    pub leave: u64,
    pub exit: u64,
    pub thread_address: u64,
}

/// Instructions, one behind the other.
#[derive(Default)]
struct Code(Vec<u8>);

impl Code {
    fn put(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }

    /// `mov rax, value`
    fn rax(&mut self, value: u64) {
        self.put(&[0x48, 0xb8]);
        self.put(&value.to_le_bytes());
    }

    /// `call` of something in the start code.
    fn call(&mut self, to: usize) {
        let from = self.0.len() + 5;
        self.put(&[0xe8]);
        self.put(&(to as i32 - from as i32).to_le_bytes());
    }

    /// The kernel call of that number; does not come back.
    fn end(&mut self, number: u32) {
        self.put(&[0xb8]);
        self.put(&number.to_le_bytes());
        // int GATE; ud2
        self.put(&[0xcd, GATE, 0x0f, 0x0b]);
    }
}

impl StartCode {
    pub fn new(
        objects: &[Object<'_>],
        symbols: &Symbols,
        needs: &Needs,
        first: Vec<Calls>,
        last: Vec<Calls>,
    ) -> StartCode {
        let count = |lists: &[Calls]| -> u64 {
            lists.iter().map(|list| objects[list.object].sections[list.section].size / 8).sum()
        };
        let asked = needs.slots.iter().filter(|(slot, _)| match slot {
            Slot::Address(target) => symbols.is_indirect(*target),
            _ => false,
        });
        let asked = asked.count() as u64;
        let size = FIXED + asked * ASK + count(&first) * INITIALIZE + count(&last) * FINALIZE;
        StartCode { size, first, last }
    }

    /// The code, and where its parts begin. System V calling convention throughout.
    pub fn write(&self, a: &Addresses<'_>) -> (Vec<u8>, Entries) {
        let mut code = Code(Vec::new());
        // Of the list end markers (0 and -1) none is a function.
        let functions = |list: &[u64]| -> Vec<u64> {
            list.iter().copied().filter(|f| !matches!(*f, 0 | u64::MAX)).collect()
        };
        // What others refer to comes first: its place does not depend on how many functions there are.
        // __tls_get_addr(rdi): the offset, from the start of the variables.
        let thread_address = code.0.len();
        code.rax(a.thread_block);
        code.put(&[0x48, 0x03, 0x47, 0x08, 0xc3]);
        // leave: mov edi, eax
        let leave = code.0.len();
        code.put(&[0x89, 0xc7]);
        code.end(CALL_EXIT);
        // exit(edi): and rsp, -16; mov ebx, edi; call finish; mov edi, ebx
        let exit = code.0.len();
        code.put(&[0x48, 0x83, 0xe4, 0xf0, 0x89, 0xfb]);
        code.call(exit + EXIT_LENGTH);
        code.put(&[0x89, 0xdf]);
        code.end(CALL_EXIT);
        // finish: destructors, last one first. `push rbx` aligns the stack.
        let finish = code.0.len();
        debug_assert_eq!(finish, exit + EXIT_LENGTH);
        code.put(&[0x53]);
        for function in functions(a.last).iter().rev() {
            code.rax(*function);
            code.put(&[0xff, 0xd0]);
        }
        code.put(&[0x5b, 0xc3]);
        // start(edi = argc, rsi = argv): push rbx, r12, r13; mov r12, rdi; mov r13, rsi
        let start = code.0.len();
        code.put(&[0x53, 0x41, 0x54, 0x41, 0x55, 0x49, 0x89, 0xfc, 0x49, 0x89, 0xf5]);
        for (function, slot) in a.asked {
            code.rax(*function);
            code.put(&[0xff, 0xd0]);
            // mov rcx, slot; mov [rcx], rax
            code.put(&[0x48, 0xb9]);
            code.put(&slot.to_le_bytes());
            code.put(&[0x48, 0x89, 0x01]);
        }
        for function in functions(a.first).iter().chain([&a.main]) {
            // mov rdi, r12; mov rsi, r13; xor edx, edx; call: argc, argv, no environment
            code.put(&[0x4c, 0x89, 0xe7, 0x4c, 0x89, 0xee, 0x31, 0xd2]);
            code.rax(*function);
            code.put(&[0xff, 0xd0]);
        }
        // mov ebx, eax; call finish; mov eax, ebx; pop r13, r12, rbx; ret
        code.put(&[0x89, 0xc3]);
        code.call(finish);
        code.put(&[0x89, 0xd8, 0x41, 0x5d, 0x41, 0x5c, 0x5b, 0xc3]);
        let entry = |at: usize| a.base + at as u64;
        let entries = Entries {
            start: entry(start),
            leave: entry(leave),
            exit: entry(exit),
            thread_address: entry(thread_address),
        };
        (code.0, entries)
    }
}

/// A stub that jumps to where the entry of the table at `distance` from the stub's start says.
pub fn jump_stub(distance: i32) -> [u8; STUB as usize] {
    let mut stub = [0xcc; STUB as usize];
    stub[..2].copy_from_slice(&[0xff, 0x25]);
    // Relative to the end of the instruction.
    stub[2..6].copy_from_slice(&(distance - 6).to_le_bytes());
    stub
}

/// A stub that makes a kernel call: mov eax, number; mov r10, rcx; int GATE; ret.
pub fn call_stub(number: u32) -> [u8; STUB as usize] {
    let mut stub = [0xcc; STUB as usize];
    stub[0] = 0xb8;
    stub[1..5].copy_from_slice(&number.to_le_bytes());
    stub[5..11].copy_from_slice(&[0x49, 0x89, 0xca, 0xcd, GATE, 0xc3]);
    stub
}

/// Where the functions that answer addresses lie.
pub fn asked(needs: &Needs, symbols: &Symbols) -> impl Iterator<Item = (Target, u64)> {
    needs.slots.iter().filter_map(|(slot, offset)| match slot {
        Slot::Address(target) if symbols.is_indirect(*target) => Some((*target, *offset)),
        _ => None,
    })
}
