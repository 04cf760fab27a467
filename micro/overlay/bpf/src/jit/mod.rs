// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Compiles verified programs to x86-64 code.
//!
//! | eBPF | r0 | r1 | r2 | r3 | r4 | r5 | r6 | r7 | r8 | r9 | r10 | runtime |
//! | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |
//! | x86-64 | rax | rdi | rsi | rdx | rcx | r8 | rbx | r13 | r14 | r15 | rbp | r12 |
//!
//! Arguments of helpers are where the System V ABI has them, so a call is a call. r9, r10 and r11 are scratch. The code
//! is position-independent but for addresses of map values. Look-ups in arrays are done in place; a program that calls
//! nothing else touches no vector register ([`Compiled::plain`]). A function saves what it changes and no more.
//!
//! # Safety
//!
//! This module owns the invariant that compiled code does what the verified instructions say; then the verifier's proof
//! is a proof about the code. Instructions that no path leads to end the program.
#![allow(unsafe_code)]

mod emit;

use crate::helpers::{self, Environment, Memory};
use crate::insn::{FRAME, Insn, alu, atomic, call, class, jump, load, mode};
use crate::maps::Map;
use crate::verify::Verified;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use emit::*;

/// Where each eBPF register is.
const REGS: [Reg; 11] = [RAX, RDI, RSI, RDX, RCX, R8, RBX, R13, R14, R15, RBP];

/// The code, to be copied to executable memory.
#[derive(Debug)]
pub struct Compiled {
    pub code: Vec<u8>,
    /// No helper is called: vector registers stay as they are.
    pub plain: bool,
    /// Of a plain program that does nothing with its context: the registers it does not leave as they were, by their
    /// numbers as bits. Whoever keeps these can call it from anywhere.
    pub changes: Option<u16>,
}

/// Registers that a function leaves as they were (System V ABI 3.2.1).
const KEPT: u16 = 1 << RBX | 1 << RSP | 1 << RBP | 1 << R12 | 1 << R13 | 1 << R14 | 1 << R15;

type CallHelper = extern "C" fn(u64, u64, u64, u64, u64, &Runtime<'_>, i64) -> u64;

/// What compiled code finds in R12.
#[repr(C)]
pub struct Runtime<'a> {
    call: CallHelper,
    maps: &'a [Arc<Map>],
    environment: &'a dyn Environment,
    context: &'a [u8],
}

impl<'a> Runtime<'a> {
    /// `maps` are those the program was verified and compiled with.
    pub fn new(maps: &'a [Arc<Map>], environment: &'a dyn Environment, context: &'a [u8]) -> Runtime<'a> {
        Runtime { call: call_helper, maps, environment, context }
    }

    /// Runs the code.
    ///
    /// # Safety
    ///
    /// `code` is a copy of [`Compiled::code`] in executable memory, compiled from a program that was verified for a
    /// context like this one and for these maps. Where the context has pointers to a packet, the packet is there.
    pub unsafe fn run(&self, code: *const u8) -> u64 {
        // SAFETY: by the caller's word this is the function `compile` made.
        let entry: extern "C" fn(*const u8, &Runtime<'_>) -> u64 = unsafe { core::mem::transmute(code) };
        entry(self.context.as_ptr(), self)
    }
}

/// Memory as it is.
struct Raw<'a> {
    maps: &'a [Arc<Map>],
    context: &'a [u8],
}

impl Memory for Raw<'_> {
    fn load(&mut self, address: u64, to: &mut [u8]) -> bool {
        // SAFETY: the verifier proved that the program may read these bytes; `to` is the helper's own.
        unsafe { core::ptr::copy_nonoverlapping(address as *const u8, to.as_mut_ptr(), to.len()) };
        true
    }

    fn store(&mut self, address: u64, from: &[u8]) -> bool {
        // SAFETY: the verifier proved that the program may write these bytes, which are on its stack or in words of a
        // map that are shared by design.
        unsafe { core::ptr::copy_nonoverlapping(from.as_ptr(), address as *mut u8, from.len()) };
        true
    }

    fn context(&self) -> &[u8] {
        self.context
    }

    fn pointer(&self, map: usize, offset: usize) -> u64 {
        self.maps.get(map).map_or(0, |m| m.address() + offset as u64)
    }

    fn record(&self, pointer: u64) -> Option<(usize, usize)> {
        let of = |m: &Arc<Map>| {
            let at = pointer.checked_sub(m.address())? as usize;
            (m.ring().is_some() && at < m.memory().bytes()).then_some(at)
        };
        self.maps.iter().enumerate().find_map(|(i, m)| Some((i, of(m)?)))
    }
}

extern "C" fn call_helper(a: u64, b: u64, c: u64, d: u64, e: u64, runtime: &Runtime<'_>, id: i64) -> u64 {
    let mut memory = Raw { maps: runtime.maps, context: runtime.context };
    let args = [a, b, c, d, e];
    // A bad argument was ruled out by the verifier.
    helpers::invoke(id as i32, args, runtime.maps, &mut memory, runtime.environment).unwrap_or(0)
}

/// Compiles a program for these maps.
pub fn compile(program: &Verified, maps: &[Arc<Map>]) -> Compiled {
    let mut c = Compiler {
        program,
        maps,
        code: Code::default(),
        starts: vec![0; program.insns.len() + 1],
        fixes: Vec::new(),
        plain: !reached(program).any(|(at, insn)| calls_helper(program, maps, at, insn)),
        frame: Frame::default(),
    };
    let mut at = 0;
    while let Some(insn) = program.insns.get(at).copied() {
        c.starts[at] = c.code.out.len();
        if program.functions.iter().any(|f| f.0 == at) {
            c.frame = Frame::of(program, at, c.plain);
            c.prologue();
        }
        if program.reached[at] {
            c.insn(at, insn);
        } else {
            c.code.op(XOR, false, RAX, RAX);
            c.epilogue();
        }
        at += if insn.is_wide() { 2 } else { 1 };
    }
    for (from, target) in core::mem::take(&mut c.fixes) {
        c.code.aim(from, c.starts[target]);
    }
    let changes = (c.plain && ignores_context(program)).then_some(c.code.touched & !KEPT);
    Compiled { code: c.code.out, plain: c.plain, changes }
}

/// The instructions that a path leads to, and where they are.
fn reached(program: &Verified) -> impl Iterator<Item = (usize, Insn)> {
    program.insns.iter().copied().enumerate().filter(|(at, _)| program.reached[*at])
}

/// The array of one processor that a look-up at this place is in.
fn array<'a>(program: &Verified, maps: &'a [Arc<Map>], at: usize, insn: Insn) -> Option<&'a Map> {
    let map = maps.get(usize::from(program.looked_up(at)?))?;
    (insn.imm == helpers::id::MAP_LOOKUP && map.spec.kind.is_array() && map.cpus() == 1).then_some(&**map)
}

fn calls_helper(program: &Verified, maps: &[Arc<Map>], at: usize, insn: Insn) -> bool {
    insn.is_call() && insn.src != call::LOCAL && array(program, maps, at, insn).is_none()
}

/// R1, which holds the context when the program begins, gets another value before anything is done with it. Only what comes
/// before the first jump is looked at.
fn ignores_context(program: &Verified) -> bool {
    for (_, insn) in reached(program) {
        let (class, by) = (insn.class(), insn.by_register());
        let (reads, writes) = match class {
            class::LD => (false, insn.dst == 1),
            class::LDX => (insn.src == 1, insn.dst == 1),
            class::ST => (insn.dst == 1, false),
            class::STX => (insn.dst == 1 || insn.src == 1, false),
            class::ALU | class::ALU64 => {
                let moves = insn.operation() == alu::MOV;
                (insn.dst == 1 && !moves || by && insn.src == 1, insn.dst == 1 && moves)
            }
            _ => return insn.operation() == jump::EXIT,
        };
        if reads || writes {
            return !reads;
        }
    }
    false
}

/// What a function keeps for its caller.
#[derive(Default)]
struct Frame {
    /// Registers that it changes and its caller wants back, in the order in which they are saved.
    saved: Vec<Reg>,
    /// RBP is its frame pointer, with so many bytes below it.
    stack: Option<i32>,
    /// It is the program's own, which gets the runtime.
    is_first: bool,
}

impl Frame {
    fn of(program: &Verified, start: usize, plain: bool) -> Frame {
        let end = program.functions.iter().map(|f| f.0).filter(|f| *f > start).min().unwrap_or(usize::MAX);
        let mut used = 0u16;
        let mut calls = false;
        for (_, insn) in reached(program).filter(|(at, _)| (start..end).contains(at)) {
            calls |= insn.is_call();
            used |= 1 << insn.dst;
            if !matches!(insn.class(), class::LD) && !insn.is_call() {
                used |= 1 << insn.src;
            }
        }
        let is_first = start == 0;
        let mut saved: Vec<Reg> = (6..10).filter(|r| used & 1 << r != 0).map(|r| REGS[r]).collect();
        if is_first && !plain {
            saved.push(R12);
        }
        // A call needs RSP at a multiple of 16, which it is not where a function begins.
        let stack = (used & 1 << FRAME != 0 || calls).then(|| {
            let pad = if saved.len().is_multiple_of(2) { 0 } else { 8 };
            program.stack_of(start).next_multiple_of(16) as i32 + pad
        });
        Frame { saved, stack, is_first }
    }
}

struct Compiler<'a> {
    program: &'a Verified,
    maps: &'a [Arc<Map>],
    code: Code,
    /// Where the code of each instruction begins; of a function, with its prologue.
    starts: Vec<usize>,
    /// Ends of jumps, and the instruction they go to.
    fixes: Vec<(usize, usize)>,
    plain: bool,
    /// Of the function being compiled.
    frame: Frame,
}

impl Compiler<'_> {
    /// RBP is the frame pointer of eBPF, above the function's stack, below the saved registers.
    fn prologue(&mut self) {
        let (c, frame) = (&mut self.code, &self.frame);
        if frame.stack.is_some() {
            c.push(RBP);
        }
        frame.saved.iter().for_each(|r| c.push(*r));
        if frame.is_first && !self.plain {
            c.mov(true, R12, RSI);
        }
        if let Some(bytes) = frame.stack {
            c.mov(true, RBP, RSP);
            c.op_imm(SUB, true, RSP, bytes);
        }
    }

    fn epilogue(&mut self) {
        let (c, frame) = (&mut self.code, &self.frame);
        if frame.stack.is_some() {
            c.mov(true, RSP, RBP);
        }
        frame.saved.iter().rev().for_each(|r| c.pop(*r));
        if frame.stack.is_some() {
            c.pop(RBP);
        }
        c.ret();
    }

    fn insn(&mut self, at: usize, insn: Insn) {
        let (dst, src) = (REGS[usize::from(insn.dst)], REGS[usize::from(insn.src.min(10))]);
        let (size, off, imm) = (insn.size(), i32::from(insn.off), insn.imm);
        let wide = matches!(insn.class(), class::ALU64 | class::JMP);
        match insn.class() {
            class::LD => {
                let upper = u64::from(self.program.insns.get(at + 1).map_or(0, |i| i.imm as u32));
                let value = match insn.src {
                    load::MAP => imm as u64,
                    load::MAP_VALUE => self.maps.get(imm as usize).map_or(0, |m| m.address()) + upper,
                    _ => upper << 32 | u64::from(imm as u32),
                };
                self.code.mov_imm64(dst, value);
            }
            class::LDX => self.code.load(size, insn.mode() == mode::MEMSX, dst, src, off),
            class::ST => self.code.store_imm(size, dst, off, imm),
            class::STX if insn.mode() == mode::ATOMIC => self.atomic(insn, dst, src),
            class::STX => self.code.store(size, src, dst, off),
            class::ALU | class::ALU64 => self.alu(insn, wide, dst, src),
            _ => self.jump(at, insn, wide, dst, src),
        }
    }

    fn alu(&mut self, insn: Insn, wide: bool, dst: Reg, src: Reg) {
        let c = &mut self.code;
        let by = insn.by_register();
        let simple =
            |c: &mut Code, op| if by { c.op(op, wide, dst, src) } else { c.op_imm(op, wide, dst, insn.imm) };
        match insn.operation() {
            alu::ADD => simple(c, ADD),
            alu::SUB => simple(c, SUB),
            alu::OR => simple(c, OR),
            alu::AND => simple(c, AND),
            alu::XOR => simple(c, XOR),
            alu::MUL if by => c.op_0f(0xaf, wide, dst, src),
            alu::MUL => c.imul_imm(wide, dst, dst, insn.imm),
            alu::MOV => match insn.off {
                8 => c.op_0f(0xbe, wide, dst, src),
                16 => c.op_0f(0xbf, wide, dst, src),
                32 => c.movsxd(dst, src),
                _ if by => c.mov(wide, dst, src),
                _ => c.mov_imm(wide, dst, insn.imm),
            },
            alu::NEG => c.group3(3, wide, dst),
            alu::LSH => self.shift(4, insn, wide, dst, src),
            alu::RSH => self.shift(5, insn, wide, dst, src),
            alu::ARSH => self.shift(7, insn, wide, dst, src),
            alu::DIV | alu::MOD => self.divide(insn, wide, dst, src),
            _ => {
                let swap = wide || by;
                match insn.imm {
                    16 => {
                        if swap {
                            c.rotate16(dst);
                        }
                        c.op_0f(0xb7, false, dst, dst);
                    }
                    32 if swap => c.bswap(false, dst),
                    32 => c.mov(false, dst, dst),
                    _ if swap => c.bswap(true, dst),
                    _ => {}
                }
            }
        }
    }

    fn shift(&mut self, extension: u8, insn: Insn, wide: bool, dst: Reg, src: Reg) {
        let c = &mut self.code;
        if !insn.by_register() {
            c.shift(extension, wide, dst, Some(insn.imm as u8));
        } else if src == RCX {
            c.shift(extension, wide, dst, None);
        } else if dst == RCX {
            c.mov(true, R11, RCX);
            c.mov(true, RCX, src);
            c.shift(extension, wide, R11, None);
            c.mov(true, RCX, R11);
        } else {
            c.mov(true, R11, RCX);
            c.mov(true, RCX, src);
            c.shift(extension, wide, dst, None);
            c.mov(true, RCX, R11);
        }
        // A shift by nothing need not clear the upper half.
        if !wide {
            c.mov(false, dst, dst);
        }
    }

    /// x86 divides RDX:RAX, and traps where eBPF has an answer.
    fn divide(&mut self, insn: Insn, wide: bool, dst: Reg, src: Reg) {
        let c = &mut self.code;
        let (signed, remainder) = (insn.off == 1, insn.operation() == alu::MOD);
        if insn.by_register() {
            c.mov(wide, R11, src)
        } else {
            c.mov_imm(wide, R11, insn.imm)
        }
        c.mov(true, R10, RAX);
        c.mov(true, R9, RDX);
        c.mov(wide, RAX, dst);
        // The quotient will be in RAX, the remainder in RDX: with a divisor of 0 they are 0 and the dividend.
        c.op(TEST, wide, R11, R11);
        let not_zero = c.forward(Some(NOT_EQUAL));
        c.mov(wide, RDX, RAX);
        c.op(XOR, false, RAX, RAX);
        let done = c.forward(None);
        c.land(not_zero);
        let mut done_too = None;
        if signed {
            c.op_imm(CMP, wide, R11, -1);
            let other = c.forward(Some(NOT_EQUAL));
            c.group3(3, wide, RAX);
            c.op(XOR, false, RDX, RDX);
            done_too = Some(c.forward(None));
            c.land(other);
            c.bytes(if wide { &[0x48, 0x99] } else { &[0x99] });
            c.group3(7, wide, R11);
        } else {
            c.op(XOR, false, RDX, RDX);
            c.group3(6, wide, R11);
        }
        c.land(done);
        if let Some(from) = done_too {
            c.land(from);
        }
        c.mov(wide, R11, if remainder { RDX } else { RAX });
        c.mov(true, RAX, R10);
        c.mov(true, RDX, R9);
        c.mov(wide, dst, R11);
    }

    fn atomic(&mut self, insn: Insn, dst: Reg, src: Reg) {
        let c = &mut self.code;
        let (wide, off) = (insn.size() == 8, i32::from(insn.off));
        let op = match insn.imm & !atomic::FETCH {
            atomic::ADD => ADD,
            atomic::OR => OR,
            atomic::AND => AND,
            _ => XOR,
        };
        match insn.imm {
            atomic::XCHG => c.lock(&[0x87], wide, src, dst, off),
            atomic::CMPXCHG => {
                c.lock(&[0x0f, 0xb1], wide, src, dst, off);
                if !wide {
                    c.mov(false, RAX, RAX);
                }
            }
            i if i & atomic::FETCH == 0 => c.lock(&[op], wide, src, dst, off),
            i if i == atomic::ADD | atomic::FETCH => c.lock(&[0x0f, 0xc1], wide, src, dst, off),
            _ => {
                c.lea(R11, dst, off);
                c.mov(true, R9, src);
                c.push(RAX);
                c.load(insn.size(), false, RAX, R11, 0);
                let again = c.out.len();
                c.mov(wide, R10, RAX);
                c.op(op, wide, R10, R9);
                c.lock(&[0x0f, 0xb1], wide, R10, R11, 0);
                let back = c.forward(Some(NOT_EQUAL));
                c.aim(back, again);
                c.mov(wide, R9, RAX);
                c.pop(RAX);
                c.mov(wide, src, R9);
            }
        }
    }

    fn jump(&mut self, at: usize, insn: Insn, wide: bool, dst: Reg, src: Reg) {
        let target = (at as i64 + 1 + insn.distance()) as usize;
        let condition = match insn.operation() {
            jump::JA => {
                let from = self.code.forward(None);
                return self.fixes.push((from, target));
            }
            jump::EXIT => return self.epilogue(),
            jump::CALL if insn.src == call::LOCAL => {
                self.code.out.push(0xe8);
                self.code.imm32(0);
                let target = (at as i64 + 1 + i64::from(insn.imm)) as usize;
                return self.fixes.push((self.code.out.len(), target));
            }
            jump::CALL => return self.helper(at, insn),
            jump::JEQ => EQUAL,
            jump::JNE | jump::JSET => NOT_EQUAL,
            jump::JGT => 0x87,
            jump::JGE => ABOVE_OR_EQUAL,
            jump::JLT => 0x82,
            jump::JLE => 0x86,
            jump::JSGT => 0x8f,
            jump::JSGE => 0x8d,
            jump::JSLT => 0x8c,
            _ => 0x8e,
        };
        let op = if insn.operation() == jump::JSET { TEST } else { CMP };
        if insn.by_register() {
            self.code.op(op, wide, dst, src);
        } else {
            self.code.op_imm(op, wide, dst, insn.imm);
        }
        let from = self.code.forward(Some(condition));
        self.fixes.push((from, target));
    }

    fn helper(&mut self, at: usize, insn: Insn) {
        let c = &mut self.code;
        if let Some(map) = array(self.program, self.maps, at, insn) {
            c.load(4, false, RAX, RSI, 0);
            c.op_imm(CMP, false, RAX, map.spec.entries as i32);
            let beyond = c.forward(Some(ABOVE_OR_EQUAL));
            c.imul_imm(true, RAX, RAX, map.stride() as i32);
            c.mov_imm64(R10, map.address());
            c.op(ADD, true, RAX, R10);
            let done = c.forward(None);
            c.land(beyond);
            c.op(XOR, false, RAX, RAX);
            c.land(done);
            return;
        }
        // The seventh argument is on the stack: push id, after 8 bytes that keep RSP a multiple of 16.
        c.op_imm(SUB, true, RSP, 8);
        c.out.push(0x68);
        c.imm32(insn.imm);
        c.mov(true, R9, R12);
        // call [r12]
        c.bytes(&[0x41, 0xff, 0x14, 0x24]);
        c.op_imm(ADD, true, RSP, 16);
    }
}
