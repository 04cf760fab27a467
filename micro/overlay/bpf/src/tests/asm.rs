// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Instructions by name.

use crate::insn::{Insn, LD_IMM64, X, alu, atomic, class, jump, load, mode};

const W: u8 = 0x00;
const H: u8 = 0x08;
const B: u8 = 0x10;
const DW: u8 = 0x18;

fn width(size: u32) -> u8 {
    match size {
        1 => B,
        2 => H,
        4 => W,
        _ => DW,
    }
}

pub fn mov(dst: u8, imm: i32) -> Insn {
    Insn::new(class::ALU64 | alu::MOV, dst, 0, 0, imm)
}

pub fn movr(dst: u8, src: u8) -> Insn {
    Insn::new(class::ALU64 | alu::MOV | X, dst, src, 0, 0)
}

pub fn mov32r(dst: u8, src: u8) -> Insn {
    Insn::new(class::ALU | alu::MOV | X, dst, src, 0, 0)
}

pub fn op(operation: u8, dst: u8, imm: i32) -> Insn {
    Insn::new(class::ALU64 | operation, dst, 0, 0, imm)
}

pub fn opr(operation: u8, dst: u8, src: u8) -> Insn {
    Insn::new(class::ALU64 | operation | X, dst, src, 0, 0)
}

pub fn op32(operation: u8, dst: u8, imm: i32) -> Insn {
    Insn::new(class::ALU | operation, dst, 0, 0, imm)
}

pub fn wide(dst: u8, value: u64) -> [Insn; 2] {
    [Insn::new(LD_IMM64, dst, load::VALUE, 0, value as i32), Insn::new(0, 0, 0, 0, (value >> 32) as i32)]
}

pub fn map(dst: u8, index: i32) -> [Insn; 2] {
    [Insn::new(LD_IMM64, dst, load::MAP, 0, index), Insn::default()]
}

pub fn map_value(dst: u8, index: i32, offset: i32) -> [Insn; 2] {
    [Insn::new(LD_IMM64, dst, load::MAP_VALUE, 0, index), Insn::new(0, 0, 0, 0, offset)]
}

pub fn ld(size: u32, dst: u8, src: u8, off: i16) -> Insn {
    Insn::new(class::LDX | mode::MEM | width(size), dst, src, off, 0)
}

pub fn st(size: u32, dst: u8, off: i16, imm: i32) -> Insn {
    Insn::new(class::ST | mode::MEM | width(size), dst, 0, off, imm)
}

pub fn stx(size: u32, dst: u8, off: i16, src: u8) -> Insn {
    Insn::new(class::STX | mode::MEM | width(size), dst, src, off, 0)
}

pub fn atomic_add(size: u32, dst: u8, off: i16, src: u8) -> Insn {
    Insn::new(class::STX | mode::ATOMIC | width(size), dst, src, off, atomic::ADD)
}

pub fn atomic_op(size: u32, operation: i32, dst: u8, off: i16, src: u8) -> Insn {
    Insn::new(class::STX | mode::ATOMIC | width(size), dst, src, off, operation)
}

pub fn ja(off: i16) -> Insn {
    Insn::new(class::JMP | jump::JA, 0, 0, off, 0)
}

pub fn jmp(operation: u8, dst: u8, imm: i32, off: i16) -> Insn {
    Insn::new(class::JMP | operation, dst, 0, off, imm)
}

pub fn jmpr(operation: u8, dst: u8, src: u8, off: i16) -> Insn {
    Insn::new(class::JMP | operation | X, dst, src, off, 0)
}

pub fn jmp32(operation: u8, dst: u8, imm: i32, off: i16) -> Insn {
    Insn::new(class::JMP32 | operation, dst, 0, off, imm)
}

pub fn call(id: i32) -> Insn {
    Insn::new(class::JMP | jump::CALL, 0, 0, 0, id)
}

pub fn call_local(distance: i32) -> Insn {
    Insn::new(class::JMP | jump::CALL, 0, 1, 0, distance)
}

pub fn exit() -> Insn {
    Insn::new(class::JMP | jump::EXIT, 0, 0, 0, 0)
}
