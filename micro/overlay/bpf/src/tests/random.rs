// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Random programs: the verifier ends without a panic, and what it passes runs without a violation and the same way
//! interpreted and compiled.

use super::asm::*;
use super::{Random, check, interpret, rounds, run_compiled};
use crate::bundle::{Bundle, Program};
use crate::context::Context;
use crate::helpers::{self, Arg};
use crate::insn::{Insn, X, alu, atomic, class, jump, mode};
use std::vec::Vec;

/// What the generator believes a register holds; it may be wrong, then the program is rejected.
#[derive(Clone, Copy, PartialEq)]
enum Holds {
    Nothing,
    Number,
    Context,
    Frame,
    Value,
    Record,
    Packet,
}

struct Writer<'a> {
    random: &'a mut Random,
    context: Context,
    regs: [Holds; 11],
    out: Vec<Insn>,
}

impl Writer<'_> {
    fn pick(&mut self, what: Holds) -> u8 {
        let start = self.random.below(10) as usize;
        let found = (0..10).map(|i| (start + i) % 10).find(|r| self.regs[*r] == what);
        found.unwrap_or(start) as u8
    }

    fn imm(&mut self) -> i32 {
        self.random.number() as i32
    }

    fn number(&mut self) {
        let dst = self.random.below(10) as u8;
        if self.random.below(4) == 0 {
            let value = self.random.number();
            self.out.extend(wide(dst, value));
        } else {
            let imm = self.imm();
            self.out.push(mov(dst, imm));
        }
        self.regs[usize::from(dst)] = Holds::Number;
    }

    fn arithmetic(&mut self) {
        let (dst, src) = (self.pick(Holds::Number), self.pick(Holds::Number));
        let class = if self.random.below(2) == 0 { class::ALU64 } else { class::ALU };
        let operation = (self.random.below(14) as u8) << 4;
        let by = self.random.below(2) == 0;
        let shift = matches!(operation, alu::LSH | alu::RSH | alu::ARSH);
        let mut imm = if shift {
            self.random.below(if class == class::ALU { 32 } else { 64 }) as i32
        } else {
            self.imm()
        };
        let mut off = 0;
        match operation {
            alu::END => {
                imm = [16, 32, 64][self.random.below(3) as usize];
                let x = if class == class::ALU && by { X } else { 0 };
                return self.out.push(Insn::new(class | operation | x, dst, 0, 0, imm));
            }
            alu::NEG => return self.out.push(Insn::new(class | operation, dst, 0, 0, 0)),
            alu::DIV | alu::MOD => {
                imm = imm.max(i32::MIN + 1).abs().max(1) * if self.random.below(2) == 0 { -1 } else { 1 };
                off = self.random.below(2) as i16;
            }
            alu::MOV if by => off = [0, 0, 8, 16][self.random.below(4) as usize],
            _ => {}
        }
        if by {
            self.out.push(Insn::new(class | operation | X, dst, src, off, 0));
        } else {
            self.out.push(Insn::new(
                class | operation,
                dst,
                0,
                if operation == alu::MOV { 0 } else { off },
                imm,
            ));
        }
    }

    fn memory(&mut self) {
        let kinds = [Holds::Frame, Holds::Value, Holds::Context, Holds::Record, Holds::Packet];
        let what = kinds[self.random.below(if self.context == Context::Packet { 5 } else { 4 }) as usize];
        let base = if what == Holds::Frame && self.random.below(2) == 0 { 10 } else { self.pick(what) };
        let size = [1, 2, 4, 8][self.random.below(4) as usize];
        let below = if what == Holds::Context { self.context.size() as u64 } else { 24 };
        let at = (self.random.below(below) as i16) & !(size as i16 - 1);
        let off = if what == Holds::Frame && base == 10 { -at - 8 } else { at };
        let number = self.pick(Holds::Number);
        match self.random.below(8) {
            0..=2 => {
                let dst = self.random.below(10) as u8;
                let sign = if size < 8 && self.random.below(4) == 0 { mode::MEMSX ^ mode::MEM } else { 0 };
                let load = ld(size, dst, base, off);
                self.out.push(Insn { op: load.op ^ sign, ..load });
                self.regs[usize::from(dst)] = Holds::Number;
            }
            3 => {
                let imm = self.imm();
                self.out.push(st(size, base, off, imm));
            }
            4 => {
                let operations = [
                    atomic::ADD,
                    atomic::OR,
                    atomic::AND | atomic::FETCH,
                    atomic::XOR | atomic::FETCH,
                    atomic::OR | atomic::FETCH,
                    atomic::ADD | atomic::FETCH,
                    atomic::XCHG,
                    atomic::CMPXCHG,
                ];
                let operation = operations[self.random.below(8) as usize];
                self.out.push(atomic_op(size.max(4), operation, base, off & !7, number));
            }
            _ => {
                let source = if self.random.below(6) == 0 { self.random.below(10) as u8 } else { number };
                self.out.push(stx(size, base, off, source));
            }
        }
    }

    /// A number is bounded and added to a pointer.
    fn move_pointer(&mut self) {
        let of = if self.context == Context::Packet && self.random.below(2) == 0 {
            Holds::Packet
        } else {
            Holds::Value
        };
        let base = self.pick(of);
        let (dst, number) = (self.random.below(10) as u8, self.pick(Holds::Number));
        self.out.push(op(alu::AND, number, [7, 8, 15, 3][self.random.below(4) as usize]));
        self.out.push(movr(dst, base));
        self.out.push(opr(alu::ADD, dst, number));
        self.regs[usize::from(dst)] = of;
    }

    /// A pointer to the packet is compared with the packet's end, some bytes further on, and the program ends if that is behind.
    fn look_into_packet(&mut self) {
        let context = self.pick(Holds::Context);
        let keep = 7 + self.random.below(3) as u8;
        let bytes = [1, 8, 14, 24, 40, 64][self.random.below(6) as usize];
        if self.random.below(2) == 0 || self.regs[usize::from(keep)] != Holds::Packet {
            self.out.push(ld(8, keep, context, 0));
        }
        let (op, far) = [(jump::JGT, 2), (jump::JGE, 2)][self.random.below(2) as usize];
        self.out.extend([ld(8, 3, context, 8), movr(4, keep), super::asm::op(alu::ADD, 4, bytes)]);
        // Over the way out.
        self.out.extend([jmpr(op, 4, 3, 1), ja(far), mov(0, 0), exit()]);
        self.regs[usize::from(keep)] = Holds::Packet;
        (self.regs[3], self.regs[4]) = (Holds::Nothing, Holds::Nothing);
    }

    fn branch(&mut self) {
        let (dst, src) = (self.pick(Holds::Number), self.pick(Holds::Number));
        let operations = [
            jump::JEQ,
            jump::JGT,
            jump::JGE,
            jump::JSET,
            jump::JNE,
            jump::JSGT,
            jump::JSGE,
            jump::JLT,
            jump::JLE,
            jump::JSLT,
            jump::JSLE,
        ];
        let operation = operations[self.random.below(11) as usize];
        let class = if self.random.below(2) == 0 { class::JMP } else { class::JMP32 };
        let at = self.out.len();
        if self.random.below(2) == 0 {
            self.out.push(Insn::new(class | operation | X, dst, src, 0, 0));
        } else {
            let imm = self.imm();
            self.out.push(Insn::new(class | operation, dst, 0, 0, imm));
        }
        let before = self.regs;
        for _ in 0..1 + self.random.below(3) {
            self.something(1);
        }
        // What is known only on one side is not known behind.
        for (now, then) in self.regs.iter_mut().zip(before) {
            if *now != then {
                *now = Holds::Nothing;
            }
        }
        self.out[at].off = (self.out.len() - at - 1) as i16;
    }

    fn repeat(&mut self, depth: u32) {
        let counter = 6 + self.random.below(4) as u8;
        let turns = 1 + self.random.below(6) as i32;
        self.out.push(mov(counter, 0));
        self.regs[usize::from(counter)] = Holds::Nothing;
        let start = self.out.len();
        for _ in 0..1 + self.random.below(3) {
            self.something(depth + 1);
        }
        self.out.push(op(alu::ADD, counter, 1));
        let back = start as i64 - self.out.len() as i64 - 1;
        self.out.push(jmp(jump::JLT, counter, turns, back as i16));
        self.regs[usize::from(counter)] = Holds::Number;
    }

    fn helper(&mut self) {
        let helper = &helpers::ALL[self.random.below(helpers::ALL.len() as u64) as usize];
        for (i, arg) in helper.args.iter().enumerate() {
            let register = i as u8 + 1;
            let deep = [-32, -48, -64][self.random.below(3) as usize];
            match arg {
                Arg::None => break,
                Arg::Number | Arg::Optional => {
                    let number = self.random.below(3) as i32;
                    self.out.push(mov(register, number));
                }
                Arg::Size | Arg::SizeOrZero | Arg::KnownSize => {
                    let size = [1, 8, 16, 24][self.random.below(4) as usize];
                    self.out.push(mov(register, size));
                }
                Arg::Map => {
                    let mut map_index =
                        (0..5).find(|m| helper.accepts(super::specs()[*m as usize].kind)).unwrap_or(0);
                    if map_index == 0 {
                        map_index = self.random.below(2) as i32;
                    }
                    self.out.extend(map(register, map_index));
                }
                Arg::Key | Arg::Value | Arg::Read => {
                    for slot in 0..3 {
                        let key = self.random.below(5) as i32;
                        self.out.push(st(8, 10, deep + 8 * slot, key));
                    }
                    self.out.extend([movr(register, 10), op(alu::ADD, register, deep.into())]);
                }
                Arg::Write => self.out.extend([movr(register, 10), op(alu::ADD, register, deep.into())]),
                Arg::Context => self.out.push(movr(register, 6)),
                Arg::Record => {
                    let record = self.pick(Holds::Record);
                    self.out.push(movr(register, record));
                }
            }
        }
        self.out.push(call(helper.id));
        self.regs[..6].fill(Holds::Nothing);
        match helper.ret {
            helpers::Ret::Number => self.regs[0] = Holds::Number,
            kind => {
                // Into a register that calls keep, and out if it is null.
                let keep = 7 + self.random.below(3) as u8;
                self.out.extend([movr(keep, 0), jmp(jump::JNE, 0, 0, 2), mov(0, 0), exit()]);
                let value = kind == helpers::Ret::Value;
                self.regs[usize::from(keep)] = if value { Holds::Value } else { Holds::Record };
                if !value {
                    let size = [8, 16][self.random.below(2) as usize];
                    for i in 0..2 {
                        self.out.push(st(8, keep, 8 * i, size));
                    }
                    self.something(1);
                    let id = [helpers::id::RINGBUF_SUBMIT, helpers::id::RINGBUF_DISCARD]
                        [self.random.below(2) as usize];
                    self.out.extend([movr(1, keep), mov(2, 0), call(id)]);
                    self.regs[..6].fill(Holds::Nothing);
                    self.regs[usize::from(keep)] = Holds::Nothing;
                }
            }
        }
    }

    fn something(&mut self, depth: u32) {
        match self.random.below(20) {
            0..=2 => self.number(),
            3..=8 => self.arithmetic(),
            9..=12 => self.memory(),
            13 => self.move_pointer(),
            14 | 15 if depth < 3 => self.branch(),
            16 if depth < 3 => self.repeat(depth),
            17 | 18 if depth == 0 => self.helper(),
            19 if self.context == Context::Packet => self.look_into_packet(),
            _ => self.arithmetic(),
        }
    }
}

fn program(random: &mut Random, context: Context) -> Vec<Insn> {
    let mut w = Writer { random, context, regs: [Holds::Nothing; 11], out: Vec::new() };
    w.out.push(movr(6, 1));
    w.regs[6] = Holds::Context;
    w.regs[1] = Holds::Context;
    w.regs[10] = Holds::Frame;
    w.out.extend([mov(0, 1), mov(5, 77)]);
    w.regs[0] = Holds::Number;
    w.regs[5] = Holds::Number;
    w.out.extend(map_value(7, 3 * w.random.below(2) as i32, 0));
    w.regs[7] = Holds::Value;
    w.out.extend([st(8, 10, -8, 1), st(4, 10, -16, 2)]);
    if context == Context::Packet {
        w.look_into_packet();
    }
    for _ in 0..1 + w.random.below(12) {
        w.something(0);
    }
    let result = w.pick(Holds::Number);
    w.out.extend([movr(0, result), exit()]);
    let mut out = w.out;
    // Damage.
    for _ in 0..random.below(4).saturating_sub(2) {
        let at = random.below(out.len() as u64) as usize;
        let insn = &mut out[at];
        match random.below(5) {
            0 => insn.op = random.next() as u8,
            1 => insn.dst = random.below(11) as u8,
            2 => insn.src = random.below(11) as u8,
            3 => insn.off = random.below(32) as i16 - 16,
            _ => insn.imm = random.number() as i32,
        }
    }
    out
}

#[test]
fn what_the_verifier_passes_runs_without_a_violation_and_the_same_both_ways() {
    let mut random = Random(0x0123_4567_89ab_cdef);
    let (mut passed, total) = ([0; Context::ALL.len()], rounds(12_000));
    for round in 0..total {
        let kind = round as usize % Context::ALL.len();
        let insns = program(&mut random, Context::ALL[kind]);
        let Ok(verified) = check(&insns, Context::ALL[kind]) else { continue };
        passed[kind] += 1;
        let listing = || {
            insns.iter().enumerate().map(|(i, x)| std::format!("{i}: {x}\n")).collect::<std::string::String>()
        };
        let interpreted =
            interpret(&verified).unwrap_or_else(|v| panic!("round {round}: {v:?}\n{}", listing()));
        let compiled = run_compiled(&verified);
        assert_eq!(interpreted, compiled, "round {round}\n{}", listing());
    }
    let least = total / Context::ALL.len() as u64 / 10;
    assert!(
        passed.iter().all(|p| *p > least),
        "only {passed:?} of {total} programs were accepted: the generator is no good"
    );
}

#[test]
fn any_bytes_are_decoded_and_verified_without_a_panic() {
    let mut random = Random(0xabcd_ef01_2345_6789);
    for _ in 0..rounds(8_000) {
        let context = Context::Packet;
        let programs = std::vec![Program { name: "p".into(), context, insns: program(&mut random, context) }];
        let mut bytes = Bundle { maps: super::specs(), programs }.encode();
        for _ in 0..1 + random.below(8) {
            let at = random.below(bytes.len() as u64) as usize;
            bytes[at] = [random.next() as u8, 0, 0xff, 0x80][random.below(4) as usize];
        }
        if random.below(8) == 0 {
            bytes.truncate(random.below(bytes.len() as u64) as usize);
        }
        let Ok(bundle) = Bundle::decode(&bytes) else { continue };
        for p in &bundle.programs {
            let mut budget = 400;
            // Every answer is right that is one.
            let _ = crate::verify::verify(&p.insns, p.context, &bundle.maps, &mut || {
                budget -= 1;
                budget > 0
            });
        }
    }
}
