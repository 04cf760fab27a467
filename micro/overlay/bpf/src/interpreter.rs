// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Runs a program without trusting the verifier: each access is checked against the memory that the program has.
//!
//! Pointers are numbers in an address space that exists only here, with gaps between all pieces and between the
//! elements of maps, so that whatever leaves a piece is noticed. Registers and bytes of the stack remember whether
//! they were written. A program that the verifier passed never violates any of this: that is what the tests prove.

use crate::context::{Context, Field};
use crate::helpers::{self, Environment, Memory};
use crate::insn::{FRAME, Insn, REGISTERS, alu, atomic, call, class, jump, load, mode};
use crate::maps::{Map, READ_ONLY};
use crate::verify::{MAX_FRAMES, MAX_STACK, MAX_STEPS, Verified};
use alloc::sync::Arc;
use alloc::vec::Vec;

const CONTEXT: u64 = 1 << 44;
const STACKS: u64 = 2 << 44;
const MAPS: u64 = 3 << 44;
const PACKET: u64 = 4 << 44;
const HANDLES: u64 = 5 << 44;
/// From one piece of its kind to the next.
const MAP_PIECE: u64 = 1 << 36;
const STACK_PIECE: u64 = 4096;

/// Something the verifier should not have let through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Violation {
    pub at: usize,
    pub what: &'static str,
}

/// `operation` on 64 or 32 bits, as RFC 9669 4.1 defines it.
pub(crate) fn arithmetic(operation: u8, a: u64, b: u64, wide: bool, signed: bool) -> u64 {
    if !wide {
        let (x, y) = (a as u32, b as u32);
        let (p, q) = (x as i32, y as i32);
        let r = match operation {
            alu::ADD => x.wrapping_add(y),
            alu::SUB => x.wrapping_sub(y),
            alu::MUL => x.wrapping_mul(y),
            alu::DIV if signed => {
                if q == 0 {
                    0
                } else {
                    p.wrapping_div(q) as u32
                }
            }
            alu::DIV => x.checked_div(y).unwrap_or(0),
            alu::MOD if signed => {
                if q == 0 {
                    x
                } else {
                    p.wrapping_rem(q) as u32
                }
            }
            alu::MOD => x.checked_rem(y).unwrap_or(x),
            alu::OR => x | y,
            alu::AND => x & y,
            alu::XOR => x ^ y,
            alu::LSH => x << (y & 31),
            alu::RSH => x >> (y & 31),
            alu::ARSH => (p >> (y & 31)) as u32,
            alu::NEG => x.wrapping_neg(),
            _ => y,
        };
        return r.into();
    }
    let (p, q) = (a as i64, b as i64);
    match operation {
        alu::ADD => a.wrapping_add(b),
        alu::SUB => a.wrapping_sub(b),
        alu::MUL => a.wrapping_mul(b),
        alu::DIV if signed => {
            if q == 0 {
                0
            } else {
                p.wrapping_div(q) as u64
            }
        }
        alu::DIV => a.checked_div(b).unwrap_or(0),
        alu::MOD if signed => {
            if q == 0 {
                a
            } else {
                p.wrapping_rem(q) as u64
            }
        }
        alu::MOD => a.checked_rem(b).unwrap_or(a),
        alu::OR => a | b,
        alu::AND => a & b,
        alu::XOR => a ^ b,
        alu::LSH => a << (b & 63),
        alu::RSH => a >> (b & 63),
        alu::ARSH => (p >> (b & 63)) as u64,
        alu::NEG => a.wrapping_neg(),
        _ => b,
    }
}

fn compare(operation: u8, a: u64, b: u64, wide: bool) -> bool {
    let (a, b) = if wide { (a, b) } else { (a & 0xffff_ffff, b & 0xffff_ffff) };
    let (p, q) = if wide { (a as i64, b as i64) } else { (i64::from(a as i32), i64::from(b as i32)) };
    match operation {
        jump::JEQ => a == b,
        jump::JNE => a != b,
        jump::JGT => a > b,
        jump::JGE => a >= b,
        jump::JLT => a < b,
        jump::JLE => a <= b,
        jump::JSET => a & b != 0,
        jump::JSGT => p > q,
        jump::JSGE => p >= q,
        jump::JSLT => p < q,
        _ => p <= q,
    }
}

fn sign_extend(value: u64, bits: u32) -> u64 {
    let shift = 64 - bits;
    (((value << shift) as i64) >> shift) as u64
}

struct Level {
    regs: [Option<u64>; REGISTERS],
    resume: usize,
}

/// Memory with the checks.
struct Checked<'a> {
    kind: Context,
    context: &'a [u8],
    packet: &'a [u8],
    maps: &'a [Arc<Map>],
    /// Bytes of each frame's stack, from its deepest on, and which of them were written.
    stacks: Vec<[(u8, bool); MAX_STACK]>,
    /// Records of ring buffers that are being written: map, first byte, length.
    records: Vec<(usize, usize, usize)>,
}

/// A piece of memory, and where in it.
enum Place {
    Stack(usize, usize),
    /// Map, byte in its memory.
    Map(usize, usize),
    Context(usize),
    Packet(usize),
}

impl Checked<'_> {
    /// Where `size` bytes at an address are.
    fn place(&self, address: u64, size: usize, write: bool) -> Option<Place> {
        let within = |base: u64, room: usize| {
            let at = usize::try_from(address.checked_sub(base)?).ok()?;
            (at.checked_add(size)? <= room).then_some(at)
        };
        match address >> 44 {
            1 if !write => within(CONTEXT, self.context.len()).map(Place::Context),
            2 => {
                let level = ((address - STACKS) / STACK_PIECE) as usize;
                let bottom = STACKS + level as u64 * STACK_PIECE;
                (level < self.stacks.len()).then_some(())?;
                within(bottom, MAX_STACK).map(|at| Place::Stack(level, at))
            }
            3 => {
                let index = ((address - MAPS) / MAP_PIECE) as usize;
                let map = self.maps.get(index)?;
                let at = ((address - MAPS) % MAP_PIECE) as usize;
                if map.ring().is_some() {
                    let holds =
                        |r: &&(usize, usize, usize)| r.0 == index && r.1 <= at && at + size <= r.1 + r.2;
                    return self.records.iter().find(holds).map(|_| Place::Map(index, at));
                }
                let (element, within) = (at / (2 * map.stride()), at % (2 * map.stride()));
                if within + size > map.spec.value as usize || write && map.spec.flags & READ_ONLY != 0 {
                    return None;
                }
                let offset = element * map.stride() + within;
                (offset + size <= map.memory().bytes()).then_some(Place::Map(index, offset))
            }
            4 if !write => within(PACKET, self.packet.len()).map(Place::Packet),
            _ => None,
        }
    }

    fn read_number(&mut self, address: u64, size: u32) -> Option<u64> {
        let mut word = [0; 8];
        // Pointers to the packet are this address space's.
        if let Some(Place::Context(at)) = self.place(address, size as usize, false) {
            match self.kind.field(at as i64, size)? {
                Field::Packet => return Some(PACKET),
                Field::PacketEnd => return Some(PACKET + self.packet.len() as u64),
                Field::Number => {}
            }
        }
        self.load(address, &mut word[..size as usize]).then_some(u64::from_le_bytes(word))
    }
}

impl Memory for Checked<'_> {
    fn load(&mut self, address: u64, to: &mut [u8]) -> bool {
        match self.place(address, to.len(), false) {
            Some(Place::Stack(level, at)) => to.iter_mut().zip(&self.stacks[level][at..]).all(|(t, b)| {
                *t = b.0;
                b.1
            }),
            Some(Place::Map(map, at)) => {
                self.maps[map].memory().read(at, to);
                true
            }
            Some(Place::Context(at)) => {
                to.copy_from_slice(&self.context[at..at + to.len()]);
                true
            }
            Some(Place::Packet(at)) => {
                to.copy_from_slice(&self.packet[at..at + to.len()]);
                true
            }
            None => to.is_empty(),
        }
    }

    fn store(&mut self, address: u64, from: &[u8]) -> bool {
        match self.place(address, from.len(), true) {
            Some(Place::Stack(level, at)) => {
                self.stacks[level][at..].iter_mut().zip(from).for_each(|(to, b)| *to = (*b, true));
                true
            }
            Some(Place::Map(map, at)) => {
                self.maps[map].memory().write(at, from);
                true
            }
            _ => from.is_empty(),
        }
    }

    fn context(&self) -> &[u8] {
        self.context
    }

    fn pointer(&self, map: usize, offset: usize) -> u64 {
        let base = MAPS + map as u64 * MAP_PIECE;
        match self.maps.get(map) {
            Some(m) if m.ring().is_none() => {
                let (element, within) = (offset / m.stride(), offset % m.stride());
                base + (element * 2 * m.stride() + within) as u64
            }
            _ => base + offset as u64,
        }
    }

    fn record(&self, pointer: u64) -> Option<(usize, usize)> {
        let found = self.records.iter().find(|r| pointer == MAPS + r.0 as u64 * MAP_PIECE + r.1 as u64)?;
        Some((found.0, found.1))
    }
}

/// Runs a program to its end. `packet` is what the pointers of a packet's context lead to.
pub fn run(
    program: &Verified,
    maps: &[Arc<Map>],
    environment: &dyn Environment,
    context: &[u8],
    packet: &[u8],
) -> Result<u64, Violation> {
    let memory =
        Checked { kind: program.context, context, packet, maps, stacks: Vec::new(), records: Vec::new() };
    let mut run = Run { program, memory, environment, levels: Vec::new(), at: 0 };
    run.enter([Some(CONTEXT), None, None, None, None], 0, 0);
    for _ in 0..MAX_STEPS {
        if let Some(result) = run.step()? {
            return Ok(result);
        }
    }
    run.violation("ran for longer than was proved")
}

struct Run<'a> {
    program: &'a Verified,
    memory: Checked<'a>,
    environment: &'a dyn Environment,
    levels: Vec<Level>,
    at: usize,
}

impl Run<'_> {
    fn violation<T>(&self, what: &'static str) -> Result<T, Violation> {
        Err(Violation { at: self.at, what })
    }

    fn enter(&mut self, arguments: [Option<u64>; 5], target: usize, resume: usize) {
        let level = self.levels.len() as u64;
        let mut regs = [None; REGISTERS];
        regs[1..6].copy_from_slice(&arguments);
        regs[FRAME] = Some(STACKS + level * STACK_PIECE + MAX_STACK as u64);
        self.levels.push(Level { regs, resume });
        self.memory.stacks.push([(0, false); MAX_STACK]);
        self.at = target;
    }

    fn get(&self, register: u8) -> Result<u64, Violation> {
        match self.levels.last().and_then(|l| *l.regs.get(usize::from(register))?) {
            Some(value) => Ok(value),
            None => self.violation("a register is read before it is written"),
        }
    }

    fn set(&mut self, register: u8, value: u64) {
        if let Some(level) = self.levels.last_mut() {
            level.regs[usize::from(register)] = Some(value);
        }
    }

    fn operand(&self, insn: Insn) -> Result<u64, Violation> {
        if insn.by_register() { self.get(insn.src) } else { Ok(insn.imm as i64 as u64) }
    }

    /// `Some` at the end of the program.
    fn step(&mut self) -> Result<Option<u64>, Violation> {
        let Some(insn) = self.program.insns.get(self.at).copied() else {
            return self.violation("ran past the end");
        };
        if !self.program.reached[self.at] {
            return self.violation("ran into code that was proved to be dead");
        }
        let mut next = self.at + if insn.is_wide() { 2 } else { 1 };
        match insn.class() {
            class::LD => self.wide_load(insn)?,
            class::LDX => {
                let address = self.get(insn.src)?.wrapping_add_signed(insn.off.into());
                let Some(mut value) = self.memory.read_number(address, insn.size()) else {
                    return self.violation("reads outside of its memory, or what was not written");
                };
                if insn.mode() == mode::MEMSX {
                    value = sign_extend(value, insn.size() * 8);
                }
                self.set(insn.dst, value);
            }
            class::STX if insn.mode() == mode::ATOMIC => self.atomic(insn)?,
            class::ST | class::STX => {
                let value =
                    if insn.class() == class::ST { insn.imm as i64 as u64 } else { self.get(insn.src)? };
                let address = self.get(insn.dst)?.wrapping_add_signed(insn.off.into());
                if !self.memory.store(address, &value.to_le_bytes()[..insn.size() as usize]) {
                    return self.violation("writes outside of its memory");
                }
            }
            class::ALU | class::ALU64 => self.alu(insn)?,
            _ => match insn.operation() {
                jump::EXIT => {
                    let result = self.get(0)?;
                    let Some(level) = self.levels.pop() else { return self.violation("returns to nowhere") };
                    self.memory.stacks.pop();
                    if self.levels.is_empty() {
                        if !self.memory.records.is_empty() {
                            return self.violation("ends with a record that was not handed back");
                        }
                        return Ok(Some(result));
                    }
                    (1..6).for_each(|r| self.forget(r));
                    self.set(0, result);
                    next = level.resume;
                }
                jump::CALL if insn.src == call::LOCAL => {
                    if self.levels.len() == MAX_FRAMES {
                        return self.violation("calls too deeply");
                    }
                    let level = &self.levels[self.levels.len() - 1];
                    let [_, a, b, c, d, e, ..] = level.regs;
                    let target = (next as i64 + i64::from(insn.imm)) as usize;
                    self.enter([a, b, c, d, e], target, next);
                    next = self.at;
                }
                jump::CALL => self.helper(insn.imm)?,
                jump::JA => next = (next as i64 + insn.distance()) as usize,
                operation => {
                    let (a, b) = (self.get(insn.dst)?, self.operand(insn)?);
                    if compare(operation, a, b, insn.class() == class::JMP) {
                        next = (next as i64 + insn.distance()) as usize;
                    }
                }
            },
        }
        self.at = next;
        Ok(None)
    }

    fn forget(&mut self, register: usize) {
        if let Some(level) = self.levels.last_mut() {
            level.regs[register] = None;
        }
    }

    fn wide_load(&mut self, insn: Insn) -> Result<(), Violation> {
        let upper = self.program.insns.get(self.at + 1).map_or(0, |i| i.imm as u32);
        let value = match insn.src {
            load::MAP => HANDLES + insn.imm as u64,
            load::MAP_VALUE => self.memory.pointer(insn.imm as usize, 0) + u64::from(upper),
            _ => u64::from(upper) << 32 | u64::from(insn.imm as u32),
        };
        self.set(insn.dst, value);
        Ok(())
    }

    fn alu(&mut self, insn: Insn) -> Result<(), Violation> {
        let wide = insn.class() == class::ALU64;
        let value = match insn.operation() {
            alu::MOV => {
                let value = self.operand(insn)?;
                let value = if insn.off == 0 { value } else { sign_extend(value, insn.off as u32) };
                if wide { value } else { value & 0xffff_ffff }
            }
            alu::END => {
                let value = self.get(insn.dst)?;
                let bits = insn.imm as u32;
                let value =
                    if wide || insn.by_register() { value.swap_bytes() >> (64 - bits) } else { value };
                if bits == 64 { value } else { value & ((1 << bits) - 1) }
            }
            alu::NEG => arithmetic(alu::NEG, self.get(insn.dst)?, 0, wide, false),
            operation => arithmetic(operation, self.get(insn.dst)?, self.operand(insn)?, wide, insn.off == 1),
        };
        self.set(insn.dst, value);
        Ok(())
    }

    fn atomic(&mut self, insn: Insn) -> Result<(), Violation> {
        let address = self.get(insn.dst)?.wrapping_add_signed(insn.off.into());
        let size = insn.size();
        if address % u64::from(size) != 0 {
            return self.violation("an atomic operation that is not aligned");
        }
        let Some(old) = self.memory.read_number(address, size) else {
            return self.violation("an atomic operation outside of its memory");
        };
        let operand = self.get(insn.src)?;
        let mask = if size == 8 { u64::MAX } else { 0xffff_ffff };
        let new = match insn.imm {
            atomic::XCHG => operand,
            atomic::CMPXCHG => {
                if self.get(0)? & mask == old {
                    operand
                } else {
                    old
                }
            }
            i => match i & !atomic::FETCH {
                atomic::ADD => old.wrapping_add(operand),
                atomic::OR => old | operand,
                atomic::AND => old & operand,
                _ => old ^ operand,
            },
        };
        if !self.memory.store(address, &new.to_le_bytes()[..size as usize]) {
            return self.violation("an atomic operation outside of its memory");
        }
        if insn.imm == atomic::CMPXCHG {
            self.set(0, old);
        } else if insn.imm & atomic::FETCH != 0 {
            self.set(insn.src, old);
        }
        Ok(())
    }

    fn helper(&mut self, number: i32) -> Result<(), Violation> {
        let mut args = [0; 5];
        let Some(spec) = helpers::spec(number) else { return self.violation("calls what is not there") };
        for (index, arg) in spec.args.iter().enumerate().take_while(|a| *a.1 != helpers::Arg::None) {
            let value = match (self.get(index as u8 + 1), arg) {
                (Err(_), helpers::Arg::Optional) => 0,
                (value, _) => value?,
            };
            let is_map = *arg == helpers::Arg::Map;
            if is_map && value >> 44 != HANDLES >> 44 {
                return self.violation("a helper is given something that is no map");
            }
            args[index] = if is_map { value - HANDLES } else { value };
        }
        let maps = self.memory.maps;
        let Ok(result) = helpers::invoke(number, args, maps, &mut self.memory, self.environment) else {
            return self.violation("a helper is given memory that is not the program's");
        };
        match number {
            helpers::id::RINGBUF_RESERVE if result != 0 => {
                let map = ((result - MAPS) / MAP_PIECE) as usize;
                let at = ((result - MAPS) % MAP_PIECE) as usize;
                self.memory.records.push((map, at, args[1] as usize));
            }
            helpers::id::RINGBUF_SUBMIT | helpers::id::RINGBUF_DISCARD => {
                if let Some((map, at)) = self.memory.record(args[0]) {
                    self.memory.records.retain(|r| (r.0, r.1) != (map, at));
                }
            }
            _ => {}
        }
        (1..6).for_each(|r| self.forget(r));
        self.set(0, result);
        Ok(())
    }
}

#[cfg(test)]
pub(crate) fn compares(operation: u8, a: u64, b: u64, wide: bool) -> bool {
    compare(operation, a, b, wide)
}
