// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Writing eBPF instruction by instruction.

use bpf::Insn;
use bpf::insn::{LD_IMM64, X, alu, atomic, class, jump, load, mode};

/// A program being written.
#[derive(Default)]
pub struct Writer {
    pub insns: Vec<Insn>,
}

/// A jump whose target is not known yet.
#[must_use]
pub struct Forward(usize);

const fn width(size: u32) -> u8 {
    match size {
        1 => 0x10,
        2 => 0x08,
        4 => 0x00,
        _ => 0x18,
    }
}

impl Writer {
    fn push(&mut self, op: u8, dst: u8, src: u8, off: i16, imm: i32) {
        self.insns.push(Insn::new(op, dst, src, off, imm));
    }

    pub fn mov(&mut self, dst: u8, imm: i32) {
        self.push(class::ALU64 | alu::MOV, dst, 0, 0, imm);
    }

    pub fn copy(&mut self, dst: u8, src: u8) {
        self.push(class::ALU64 | alu::MOV | X, dst, src, 0, 0);
    }

    /// `alu::…` with a constant.
    pub fn op(&mut self, operation: u8, dst: u8, imm: i32) {
        self.push(class::ALU64 | operation, dst, 0, 0, imm);
    }

    pub fn op_reg(&mut self, operation: u8, dst: u8, src: u8) {
        self.push(class::ALU64 | operation | X, dst, src, 0, 0);
    }

    pub fn wide(&mut self, dst: u8, value: u64) {
        self.push(LD_IMM64, dst, load::VALUE, 0, value as i32);
        self.push(0, 0, 0, 0, (value >> 32) as i32);
    }

    pub fn map(&mut self, dst: u8, index: usize) {
        self.push(LD_IMM64, dst, load::MAP, 0, index as i32);
        self.push(0, 0, 0, 0, 0);
    }

    /// The address of an array's first value.
    pub fn value(&mut self, dst: u8, map: usize) {
        self.push(LD_IMM64, dst, load::MAP_VALUE, 0, map as i32);
        self.push(0, 0, 0, 0, 0);
    }

    pub fn load(&mut self, size: u32, dst: u8, src: u8, off: i16) {
        self.push(class::LDX | mode::MEM | width(size), dst, src, off, 0);
    }

    pub fn store(&mut self, size: u32, dst: u8, off: i16, src: u8) {
        self.push(class::STX | mode::MEM | width(size), dst, src, off, 0);
    }

    pub fn store_imm(&mut self, size: u32, dst: u8, off: i16, imm: i32) {
        self.push(class::ST | mode::MEM | width(size), dst, 0, off, imm);
    }

    pub fn atomic_add(&mut self, dst: u8, off: i16, src: u8) {
        self.push(class::STX | mode::ATOMIC | width(8), dst, src, off, atomic::ADD);
    }

    pub fn call(&mut self, helper: i32) {
        self.push(class::JMP | jump::CALL, 0, 0, 0, helper);
    }

    pub fn exit(&mut self) {
        self.push(class::JMP | jump::EXIT, 0, 0, 0, 0);
    }

    /// A comparison with a constant that leads to [`Writer::land`] when it holds.
    pub fn jump(&mut self, operation: u8, dst: u8, imm: i32) -> Forward {
        self.push(class::JMP | operation, dst, 0, 0, imm);
        Forward(self.insns.len())
    }

    /// The same with a register.
    pub fn jump_reg(&mut self, operation: u8, dst: u8, src: u8) -> Forward {
        self.push(class::JMP | operation | X, dst, src, 0, 0);
        Forward(self.insns.len())
    }

    pub fn land(&mut self, from: Forward) {
        self.insns[from.0 - 1].off = (self.insns.len() - from.0) as i16;
    }

    /// `dst` = R10 + offset.
    pub fn stack(&mut self, dst: u8, off: i16) {
        self.copy(dst, 10);
        self.op(alu::ADD, dst, off.into());
    }
}
