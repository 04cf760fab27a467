// SPDX-License-Identifier: Apache-2.0 OR MIT
//! x86-64 instructions (Intel SDM volume 2): as many as eBPF needs.

use alloc::vec::Vec;

/// Registers by number.
pub type Reg = u8;
pub const RAX: Reg = 0;
pub const RCX: Reg = 1;
pub const RDX: Reg = 2;
pub const RBX: Reg = 3;
pub const RSP: Reg = 4;
pub const RBP: Reg = 5;
pub const RSI: Reg = 6;
pub const RDI: Reg = 7;
pub const R8: Reg = 8;
pub const R9: Reg = 9;
pub const R10: Reg = 10;
pub const R11: Reg = 11;
pub const R12: Reg = 12;
pub const R13: Reg = 13;
pub const R14: Reg = 14;
pub const R15: Reg = 15;

/// Opcodes of `op r/m, r`.
pub const ADD: u8 = 0x01;
pub const OR: u8 = 0x09;
pub const AND: u8 = 0x21;
pub const SUB: u8 = 0x29;
pub const XOR: u8 = 0x31;
pub const CMP: u8 = 0x39;
pub const TEST: u8 = 0x85;
pub const MOV: u8 = 0x89;

/// Conditions of `jcc`.
pub const EQUAL: u8 = 0x84;
pub const NOT_EQUAL: u8 = 0x85;
pub const ABOVE_OR_EQUAL: u8 = 0x83;

#[derive(Default)]
pub struct Code {
    pub out: Vec<u8>,
    /// Registers that instructions name, by their numbers as bits: those that are read only as well.
    pub touched: u16,
}

impl Code {
    pub fn bytes(&mut self, bytes: &[u8]) {
        self.out.extend_from_slice(bytes);
    }

    pub fn imm32(&mut self, value: i32) {
        self.bytes(&value.to_le_bytes());
    }

    /// REX, always: without it the byte registers 4 to 7 are others.
    fn rex(&mut self, wide: bool, reg: Reg, rm: Reg) {
        self.touched |= 1 << reg | 1 << rm;
        self.out.push(0x40 | u8::from(wide) << 3 | reg >> 3 << 2 | rm >> 3);
    }

    fn direct(&mut self, reg: Reg, rm: Reg) {
        self.out.push(0xc0 | (reg & 7) << 3 | rm & 7);
    }

    /// `[base + disp32]`; `base` is neither RSP nor R12.
    fn indirect(&mut self, reg: Reg, base: Reg, disp: i32) {
        self.out.push(0x80 | (reg & 7) << 3 | base & 7);
        self.imm32(disp);
    }

    /// `op rm, reg`.
    pub fn op(&mut self, op: u8, wide: bool, rm: Reg, reg: Reg) {
        self.rex(wide, reg, rm);
        self.out.push(op);
        self.direct(reg, rm);
    }

    pub fn mov(&mut self, wide: bool, to: Reg, from: Reg) {
        self.op(MOV, wide, to, from);
    }

    /// The two-byte opcodes `0f op`, with the destination in the reg field.
    pub fn op_0f(&mut self, op: u8, wide: bool, reg: Reg, rm: Reg) {
        self.rex(wide, reg, rm);
        self.bytes(&[0x0f, op]);
        self.direct(reg, rm);
    }

    /// `op rm, imm32` (group 1), or `test`.
    pub fn op_imm(&mut self, op: u8, wide: bool, rm: Reg, imm: i32) {
        let (opcode, extension) = if op == TEST { (0xf7, 0) } else { (0x81, op >> 3) };
        self.rex(wide, 0, rm);
        self.out.push(opcode);
        self.direct(extension, rm);
        self.imm32(imm);
    }

    /// `mov rm, imm32`, sign-extended if wide, else with zeros above.
    pub fn mov_imm(&mut self, wide: bool, rm: Reg, imm: i32) {
        self.rex(wide, 0, rm);
        self.out.push(0xc7);
        self.direct(0, rm);
        self.imm32(imm);
    }

    pub fn mov_imm64(&mut self, reg: Reg, value: u64) {
        self.rex(true, 0, reg);
        self.out.push(0xb8 | reg & 7);
        self.bytes(&value.to_le_bytes());
    }

    /// `imul reg, rm, imm32`.
    pub fn imul_imm(&mut self, wide: bool, reg: Reg, rm: Reg, imm: i32) {
        self.rex(wide, reg, rm);
        self.out.push(0x69);
        self.direct(reg, rm);
        self.imm32(imm);
    }

    /// Group 3: 3 `neg`, 6 `div`, 7 `idiv`.
    pub fn group3(&mut self, extension: u8, wide: bool, rm: Reg) {
        self.rex(wide, 0, rm);
        self.out.push(0xf7);
        self.direct(extension, rm);
    }

    /// Shifts: 4 left, 5 right, 7 arithmetic right; by a constant or by CL.
    pub fn shift(&mut self, extension: u8, wide: bool, rm: Reg, count: Option<u8>) {
        self.rex(wide, 0, rm);
        self.out.push(if count.is_some() { 0xc1 } else { 0xd3 });
        self.direct(extension, rm);
        self.out.extend(count);
    }

    pub fn movsxd(&mut self, reg: Reg, rm: Reg) {
        self.rex(true, reg, rm);
        self.out.push(0x63);
        self.direct(reg, rm);
    }

    pub fn bswap(&mut self, wide: bool, reg: Reg) {
        self.rex(wide, 0, reg);
        self.bytes(&[0x0f, 0xc8 | reg & 7]);
    }

    /// Swaps the lower two bytes.
    pub fn rotate16(&mut self, reg: Reg) {
        self.out.push(0x66);
        self.rex(false, 0, reg);
        self.out.push(0xc1);
        self.direct(0, reg);
        self.out.push(8);
    }

    pub fn load(&mut self, size: u32, sign: bool, reg: Reg, base: Reg, disp: i32) {
        let op: &[u8] = match (size, sign) {
            (1, false) => &[0x0f, 0xb6],
            (2, false) => &[0x0f, 0xb7],
            (1, true) => &[0x0f, 0xbe],
            (2, true) => &[0x0f, 0xbf],
            (4, true) => &[0x63],
            _ => &[0x8b],
        };
        self.rex(sign || size == 8, reg, base);
        self.bytes(op);
        self.indirect(reg, base, disp);
    }

    pub fn store(&mut self, size: u32, reg: Reg, base: Reg, disp: i32) {
        if size == 2 {
            self.out.push(0x66);
        }
        self.rex(size == 8, reg, base);
        self.out.push(if size == 1 { 0x88 } else { 0x89 });
        self.indirect(reg, base, disp);
    }

    pub fn store_imm(&mut self, size: u32, base: Reg, disp: i32, imm: i32) {
        if size == 2 {
            self.out.push(0x66);
        }
        self.rex(size == 8, 0, base);
        self.out.push(if size == 1 { 0xc6 } else { 0xc7 });
        self.indirect(0, base, disp);
        self.bytes(&imm.to_le_bytes()[..size.min(4) as usize]);
    }

    pub fn lea(&mut self, reg: Reg, base: Reg, disp: i32) {
        self.rex(true, reg, base);
        self.out.push(0x8d);
        self.indirect(reg, base, disp);
    }

    /// `lock op [base + disp], reg`.
    pub fn lock(&mut self, op: &[u8], wide: bool, reg: Reg, base: Reg, disp: i32) {
        self.out.push(0xf0);
        self.rex(wide, reg, base);
        self.bytes(op);
        self.indirect(reg, base, disp);
    }

    pub fn push(&mut self, reg: Reg) {
        self.rex(false, 0, reg);
        self.out.push(0x50 | reg & 7);
    }

    pub fn pop(&mut self, reg: Reg) {
        self.rex(false, 0, reg);
        self.out.push(0x58 | reg & 7);
    }

    pub fn ret(&mut self) {
        self.out.push(0xc3);
    }

    /// A jump forward to a place not known yet; [`Code::land`] gives it.
    pub fn forward(&mut self, condition: Option<u8>) -> usize {
        match condition {
            Some(c) => self.bytes(&[0x0f, c]),
            None => self.out.push(0xe9),
        }
        self.imm32(0);
        self.out.len()
    }

    /// Jumps that ended at `from` arrive here.
    pub fn land(&mut self, from: usize) {
        self.aim(from, self.out.len());
    }

    pub fn aim(&mut self, from: usize, to: usize) {
        let distance = to as i64 - from as i64;
        self.out[from - 4..from].copy_from_slice(&(distance as i32).to_le_bytes());
    }
}
