// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Instructions (RFC 9669): encoding, names, and a disassembly for messages.

use alloc::vec::Vec;
use core::fmt;

/// Bytes of one instruction; a 64-bit immediate load takes two.
pub const SIZE: usize = 8;
/// R10, the frame pointer.
pub const FRAME: usize = 10;
/// R0 to R10.
pub const REGISTERS: usize = 11;

/// Instruction classes (RFC 9669 3.2).
pub mod class {
    pub const LD: u8 = 0;
    pub const LDX: u8 = 1;
    pub const ST: u8 = 2;
    pub const STX: u8 = 3;
    pub const ALU: u8 = 4;
    pub const JMP: u8 = 5;
    pub const JMP32: u8 = 6;
    pub const ALU64: u8 = 7;
}

/// Arithmetic operations (RFC 9669 4.1), as in the upper half of the opcode.
pub mod alu {
    pub const ADD: u8 = 0x00;
    pub const SUB: u8 = 0x10;
    pub const MUL: u8 = 0x20;
    pub const DIV: u8 = 0x30;
    pub const OR: u8 = 0x40;
    pub const AND: u8 = 0x50;
    pub const LSH: u8 = 0x60;
    pub const RSH: u8 = 0x70;
    pub const NEG: u8 = 0x80;
    pub const MOD: u8 = 0x90;
    pub const XOR: u8 = 0xa0;
    pub const MOV: u8 = 0xb0;
    pub const ARSH: u8 = 0xc0;
    pub const END: u8 = 0xd0;
}

/// Jumps (RFC 9669 4.3).
pub mod jump {
    pub const JA: u8 = 0x00;
    pub const JEQ: u8 = 0x10;
    pub const JGT: u8 = 0x20;
    pub const JGE: u8 = 0x30;
    pub const JSET: u8 = 0x40;
    pub const JNE: u8 = 0x50;
    pub const JSGT: u8 = 0x60;
    pub const JSGE: u8 = 0x70;
    pub const CALL: u8 = 0x80;
    pub const EXIT: u8 = 0x90;
    pub const JLT: u8 = 0xa0;
    pub const JLE: u8 = 0xb0;
    pub const JSLT: u8 = 0xc0;
    pub const JSLE: u8 = 0xd0;
}

/// Memory modes (RFC 9669 5).
pub mod mode {
    pub const IMM: u8 = 0x00;
    pub const ABS: u8 = 0x20;
    pub const IND: u8 = 0x40;
    pub const MEM: u8 = 0x60;
    pub const MEMSX: u8 = 0x80;
    pub const ATOMIC: u8 = 0xc0;
}

/// Atomic operations (RFC 9669 5.3), in the immediate.
pub mod atomic {
    pub const ADD: i32 = 0x00;
    pub const OR: i32 = 0x40;
    pub const AND: i32 = 0x50;
    pub const XOR: i32 = 0xa0;
    pub const FETCH: i32 = 0x01;
    pub const XCHG: i32 = 0xe1;
    pub const CMPXCHG: i32 = 0xf1;
}

/// The second operand is a register.
pub const X: u8 = 0x08;
/// `ld_imm64`.
pub const LD_IMM64: u8 = 0x18;
/// What the source field of an `ld_imm64` says of its value (RFC 9669 5.4).
pub mod load {
    pub const VALUE: u8 = 0;
    /// The map with the index in the immediate.
    pub const MAP: u8 = 1;
    /// The first value of that map, plus the second immediate.
    pub const MAP_VALUE: u8 = 2;
}
/// What the source field of a call says of its target (RFC 9669 4.3.1).
pub mod call {
    pub const HELPER: u8 = 0;
    pub const LOCAL: u8 = 1;
}

/// One instruction slot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Insn {
    pub op: u8,
    pub dst: u8,
    pub src: u8,
    pub off: i16,
    pub imm: i32,
}

impl Insn {
    pub const fn new(op: u8, dst: u8, src: u8, off: i16, imm: i32) -> Insn {
        Insn { op, dst, src, off, imm }
    }

    pub fn from_bytes(b: [u8; SIZE]) -> Insn {
        Insn {
            op: b[0],
            dst: b[1] & 15,
            src: b[1] >> 4,
            off: i16::from_le_bytes([b[2], b[3]]),
            imm: i32::from_le_bytes([b[4], b[5], b[6], b[7]]),
        }
    }

    pub fn to_bytes(self) -> [u8; SIZE] {
        let (o, i) = (self.off.to_le_bytes(), self.imm.to_le_bytes());
        [self.op, self.dst | self.src << 4, o[0], o[1], i[0], i[1], i[2], i[3]]
    }

    /// `None` when the length is no multiple of [`SIZE`].
    pub fn decode(bytes: &[u8]) -> Option<Vec<Insn>> {
        if !bytes.len().is_multiple_of(SIZE) {
            return None;
        }
        Some(
            bytes
                .chunks_exact(SIZE)
                .map(|c| Insn::from_bytes([c[0], c[1], c[2], c[3], c[4], c[5], c[6], c[7]]))
                .collect(),
        )
    }

    pub const fn class(self) -> u8 {
        self.op & 7
    }

    /// Arithmetic or jump operation.
    pub const fn operation(self) -> u8 {
        self.op & 0xf0
    }

    pub const fn by_register(self) -> bool {
        self.op & X != 0
    }

    pub const fn mode(self) -> u8 {
        self.op & 0xe0
    }

    /// Bytes that a load or store touches.
    pub const fn size(self) -> u32 {
        match self.op & 0x18 {
            0x00 => 4,
            0x08 => 2,
            0x10 => 1,
            _ => 8,
        }
    }

    pub const fn is_jump(self) -> bool {
        matches!(self.class(), class::JMP | class::JMP32)
    }

    pub const fn is_wide(self) -> bool {
        self.op == LD_IMM64
    }

    pub const fn is_call(self) -> bool {
        self.class() == class::JMP && self.operation() == jump::CALL
    }

    pub const fn is_exit(self) -> bool {
        self.class() == class::JMP && self.operation() == jump::EXIT
    }

    /// `ja` and `gotol`.
    pub const fn is_goto(self) -> bool {
        self.is_jump() && self.operation() == jump::JA
    }

    /// How far a jump goes from the instruction behind it.
    pub const fn distance(self) -> i64 {
        if self.class() == class::JMP32 && self.operation() == jump::JA {
            self.imm as i64
        } else {
            self.off as i64
        }
    }
}

impl fmt::Display for Insn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (d, s, off, imm) = (self.dst, self.src, self.off, self.imm);
        let unit = ["u32", "u16", "u8", "u64"][usize::from(self.op >> 3 & 3)];
        match self.class() {
            class::LD if self.is_wide() => match s {
                load::MAP => write!(f, "r{d} = map {imm}"),
                load::MAP_VALUE => write!(f, "r{d} = values of map {imm}"),
                _ => write!(f, "r{d} = {imm:#x} (lower half)"),
            },
            class::LDX if self.mode() == mode::MEMSX => {
                write!(f, "r{d} = *(i{} *)(r{s} {off:+})", self.size() * 8)
            }
            class::LDX => write!(f, "r{d} = *({unit} *)(r{s} {off:+})"),
            class::ST => write!(f, "*({unit} *)(r{d} {off:+}) = {imm}"),
            class::STX if self.mode() == mode::ATOMIC => {
                write!(f, "atomic {} *({unit} *)(r{d} {off:+}), r{s}", atomic_name(imm))
            }
            class::STX => write!(f, "*({unit} *)(r{d} {off:+}) = r{s}"),
            class::ALU | class::ALU64 => self.display_alu(f),
            class::JMP | class::JMP32 => self.display_jump(f),
            _ => write!(f, "opcode {:#04x}", self.op),
        }
    }
}

fn atomic_name(imm: i32) -> &'static str {
    match imm & !atomic::FETCH {
        atomic::ADD => "add",
        atomic::OR => "or",
        atomic::AND => "and",
        atomic::XOR => "xor",
        0xe0 => "xchg",
        0xf0 => "cmpxchg",
        _ => "?",
    }
}

impl Insn {
    fn display_alu(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (r, d) = (if self.class() == class::ALU64 { 'r' } else { 'w' }, self.dst);
        let sign = if self.off == 1 { "s" } else { "" };
        let operator = match self.operation() {
            alu::ADD => "+=",
            alu::SUB => "-=",
            alu::MUL => "*=",
            alu::DIV => "/=",
            alu::OR => "|=",
            alu::AND => "&=",
            alu::LSH => "<<=",
            alu::RSH => ">>=",
            alu::NEG => return write!(f, "{r}{d} = -{r}{d}"),
            alu::MOD => "%=",
            alu::XOR => "^=",
            alu::MOV if self.off != 0 => return write!(f, "{r}{d} = (s{}){r}{}", self.off, self.src),
            alu::MOV => "=",
            alu::ARSH => "s>>=",
            alu::END => {
                let order = match (self.class(), self.by_register()) {
                    (class::ALU64, _) => "bswap",
                    (_, false) => "le",
                    (_, true) => "be",
                };
                return write!(f, "r{d} = {order}{} r{d}", self.imm);
            }
            _ => return write!(f, "opcode {:#04x}", self.op),
        };
        if self.by_register() {
            write!(f, "{r}{d} {sign}{operator} {r}{}", self.src)
        } else {
            write!(f, "{r}{d} {sign}{operator} {}", self.imm)
        }
    }

    fn display_jump(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let r = if self.class() == class::JMP { 'r' } else { 'w' };
        let operator = match self.operation() {
            jump::JA => return write!(f, "goto {:+}", self.distance()),
            jump::CALL if self.src == call::LOCAL => return write!(f, "call local {:+}", self.imm),
            jump::CALL => return write!(f, "call {}", crate::helpers::name(self.imm)),
            jump::EXIT => return f.write_str("exit"),
            jump::JEQ => "==",
            jump::JGT => ">",
            jump::JGE => ">=",
            jump::JSET => "&",
            jump::JNE => "!=",
            jump::JSGT => "s>",
            jump::JSGE => "s>=",
            jump::JLT => "<",
            jump::JLE => "<=",
            jump::JSLT => "s<",
            jump::JSLE => "s<=",
            _ => return write!(f, "opcode {:#04x}", self.op),
        };
        write!(f, "if {r}{} {operator} ", self.dst)?;
        match self.by_register() {
            true => write!(f, "{r}{}", self.src)?,
            false => write!(f, "{}", self.imm)?,
        }
        write!(f, " goto {:+}", self.off)
    }
}
