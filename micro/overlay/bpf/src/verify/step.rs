// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One instruction, abstractly: arithmetic and jumps.

use super::scalar::{Scalar, refine};
use super::state::{Pointer, Reg, State, To};
use super::{Check, Next, Walker};
use crate::insn::{FRAME, Insn, alu, call, class, jump, load, mode};
use crate::maps::Kind;
use alloc::format;

/// Offsets of pointers stay below this, so that sums of them do not overflow.
const FARTHEST: i64 = 1 << 29;

impl Walker<'_> {
    pub(super) fn step(&mut self, state: &mut State, node: Option<usize>) -> Check<Next> {
        let insn = self.insns[self.at];
        let next = self.at + if insn.is_wide() { 2 } else { 1 };
        match insn.class() {
            class::LD => {
                let reg = self.wide_load(insn)?;
                state.set(insn.dst, reg);
            }
            class::LDX => {
                let sign = insn.mode() == mode::MEMSX;
                let reg = self.load(state, insn.src, insn.off, insn.size(), sign)?;
                state.set(insn.dst, reg);
            }
            class::ST => {
                let value = Reg::constant(insn.imm as i64 as u64);
                self.store(state, insn.dst, insn.off, insn.size(), value)?;
            }
            class::STX if insn.mode() == mode::ATOMIC => self.atomic(state, insn)?,
            class::STX => {
                let value = self.readable(state, insn.src)?;
                self.store(state, insn.dst, insn.off, insn.size(), value)?;
            }
            class::ALU | class::ALU64 => {
                let reg = self.arithmetic(state, insn)?;
                state.set(insn.dst, reg);
            }
            _ => return self.jump(state, insn, next, node),
        }
        Ok(Next::At(next))
    }

    fn wide_load(&self, insn: Insn) -> Check<Reg> {
        let upper = self.insns.get(self.at + 1).map_or(0, |i| i.imm as u32);
        match insn.src {
            load::MAP => Ok(Reg::Pointer(Pointer::new(To::Map(insn.imm as u16)))),
            load::MAP_VALUE => {
                let spec = &self.maps[insn.imm as usize];
                if spec.kind != Kind::Array || upper >= spec.value {
                    return self.reject(
                        "the address of a value is known ahead only for arrays, and within the first value",
                    );
                }
                let to = To::Value(insn.imm as u16);
                Ok(Reg::Pointer(Pointer { offset: upper.into(), ..Pointer::new(to) }))
            }
            _ => Ok(Reg::constant(u64::from(upper) << 32 | u64::from(insn.imm as u32))),
        }
    }

    /// The register's contents, if it has any.
    pub(super) fn readable(&self, state: &State, register: u8) -> Check<Reg> {
        match state.reg(register) {
            Reg::Nothing => {
                self.reject(format!("r{register} is read, and on some path nothing was written to it"))
            }
            reg => Ok(reg),
        }
    }

    fn operand(&self, state: &State, insn: Insn) -> Check<Reg> {
        if insn.by_register() {
            return self.readable(state, insn.src);
        }
        Ok(Reg::constant(insn.imm as i64 as u64))
    }

    fn arithmetic(&mut self, state: &mut State, insn: Insn) -> Check<Reg> {
        let wide = insn.class() == class::ALU64;
        if insn.operation() == alu::MOV {
            return self.copy(state, insn, wide);
        }
        let a = self.readable(state, insn.dst)?;
        let b = match insn.operation() {
            alu::NEG | alu::END => Reg::constant(0),
            _ => self.operand(state, insn)?,
        };
        match (a, b) {
            (Reg::Number { value: a, .. }, Reg::Number { value: b, .. }) => {
                let operation = insn.operation();
                if operation == alu::END {
                    // `le` changes nothing on this processor.
                    let swap = wide || insn.by_register();
                    return Ok(Reg::number(a.byte_order(insn.imm as u32, swap)));
                }
                Ok(Reg::number(a.compute(operation, b, wide, insn.off == 1)))
            }
            _ if !wide => self.reject("32-bit arithmetic on a pointer would cut it in two"),
            (Reg::Pointer(p), Reg::Number { value, .. })
                if matches!(insn.operation(), alu::ADD | alu::SUB) =>
            {
                self.move_pointer(p, value, insn.operation() == alu::SUB)
            }
            (Reg::Number { value, .. }, Reg::Pointer(p)) if insn.operation() == alu::ADD => {
                self.move_pointer(p, value, false)
            }
            (Reg::Pointer(p), Reg::Pointer(q))
                if insn.operation() == alu::SUB && packet(&p) && packet(&q) =>
            {
                Ok(Reg::UNKNOWN)
            }
            _ => self.reject("pointers can only be moved by adding and subtracting numbers"),
        }
    }

    fn copy(&mut self, state: &mut State, insn: Insn, wide: bool) -> Check<Reg> {
        let mut source = self.operand(state, insn)?;
        let Reg::Number { value, id } = &mut source else {
            return if wide && insn.off == 0 {
                Ok(source)
            } else {
                self.reject("a pointer is copied in part, which would make a number of it")
            };
        };
        if insn.off != 0 {
            let value = value.sign_extended(insn.off as u32);
            return Ok(Reg::number(if wide { value } else { value.zero_extended() }));
        }
        if !wide && value.wide.umax > u64::from(u32::MAX) {
            return Ok(Reg::number(value.zero_extended()));
        }
        // Both are the same number from now on: what is learnt of one holds for the other.
        if insn.by_register() && !value.is_constant() {
            if *id == 0 {
                *id = self.new_id();
            }
            state.set(insn.src, source);
        }
        Ok(source)
    }

    fn move_pointer(&mut self, mut p: Pointer, by: Scalar, back: bool) -> Check<Reg> {
        if p.maybe_null {
            return self.reject("this pointer may be null: compare it with 0 before it is moved");
        }
        if matches!(p.to, To::Map(_) | To::PacketEnd) {
            return self.reject("this pointer cannot be moved");
        }
        if let Some(n) = by.value() {
            let n = if back { (n as i64).checked_neg() } else { Some(n as i64) };
            match n.and_then(|n| p.offset.checked_add(n)) {
                Some(offset) if offset.abs() < FARTHEST => p.offset = offset,
                _ => return self.reject("the pointer is moved by more than 512 MiB"),
            }
            return Ok(Reg::Pointer(p));
        }
        if p.to == To::Context {
            return self.reject("the context is read at fixed offsets only: this one is not known");
        }
        let operation = if back { alu::SUB } else { alu::ADD };
        p.variable = p.variable.compute(operation, by, true, false);
        if p.variable.wide.smin <= -FARTHEST || p.variable.wide.smax >= FARTHEST {
            return self.reject(format!(
                "the pointer is moved by a number that may be anything from {} to {}: check its bounds before",
                by.wide.smin, by.wide.smax
            ));
        }
        if p.to == To::Packet {
            // What was learnt of the old place does not hold for the new one.
            p.id = self.new_id();
            p.range = 0;
        }
        Ok(Reg::Pointer(p))
    }

    fn jump(&mut self, state: &mut State, insn: Insn, next: usize, node: Option<usize>) -> Check<Next> {
        let target = || (next as i64 + insn.distance()) as usize;
        match insn.operation() {
            jump::JA => return Ok(Next::At(target())),
            jump::EXIT => return self.leave(state),
            jump::CALL if insn.src == call::LOCAL => {
                return self.enter(state, (next as i64 + i64::from(insn.imm)) as usize);
            }
            jump::CALL => {
                self.helper(state, insn.imm)?;
                return Ok(Next::At(next));
            }
            _ => {}
        }
        let wide = insn.class() == class::JMP;
        let a = self.readable(state, insn.dst)?;
        let b = self.operand(state, insn)?;
        let (taken, not_taken) = match (a, b) {
            (Reg::Number { value: x, .. }, Reg::Number { value: y, .. }) => {
                // A register compared with itself.
                let same = insn.by_register() && insn.src == insn.dst;
                let outcome = |holds| {
                    let (x, y) = refine(insn.operation(), holds, x, y, wide)?;
                    let mut state = state.clone();
                    learn(&mut state, insn.dst, a, x);
                    if insn.by_register() && !same {
                        learn(&mut state, insn.src, b, y);
                    }
                    Some(state)
                };
                (outcome(true), outcome(false))
            }
            (Reg::Pointer(p), Reg::Number { value, .. })
                if wide && value.value() == Some(0) && matches!(insn.operation(), jump::JEQ | jump::JNE) =>
            {
                let null = p.maybe_null.then(|| decide(state, &p, true));
                let other = Some(decide(state, &p, false));
                if insn.operation() == jump::JEQ { (null, other) } else { (other, null) }
            }
            (Reg::Pointer(p), Reg::Pointer(q)) if wide && packet(&p) && packet(&q) => {
                self.packet_bounds(state, insn.operation(), &p, &q)
            }
            _ => return self.reject("a pointer is compared with something it cannot be compared with"),
        };
        match (taken, not_taken) {
            (Some(taken), Some(not_taken)) => {
                self.later(target(), taken, node)?;
                *state = not_taken;
                Ok(Next::At(next))
            }
            (Some(taken), None) => {
                *state = taken;
                Ok(Next::At(target()))
            }
            (None, Some(not_taken)) => {
                *state = not_taken;
                Ok(Next::At(next))
            }
            // The state describes no number at all, which cannot happen.
            (None, None) => Ok(Next::End),
        }
    }

    /// A comparison of a pointer into the packet with its end: on one side the bytes up to the pointer are there.
    fn packet_bounds(
        &self,
        state: &State,
        operation: u8,
        p: &Pointer,
        q: &Pointer,
    ) -> (Option<State>, Option<State>) {
        let (pointer, operation) = match (p.to, q.to) {
            (To::Packet, To::PacketEnd) => (p, operation),
            (To::PacketEnd, To::Packet) => {
                let turned = match operation {
                    jump::JGT => jump::JLT,
                    jump::JLT => jump::JGT,
                    jump::JGE => jump::JLE,
                    jump::JLE => jump::JGE,
                    o => o,
                };
                (q, turned)
            }
            _ => return (Some(state.clone()), Some(state.clone())),
        };
        // Within: pointer <= end, or pointer < end, when the comparison holds or when it does not.
        let (mut taken, mut not_taken) = (state.clone(), state.clone());
        match operation {
            jump::JGT => within(&mut not_taken, pointer, 0),
            jump::JGE => within(&mut not_taken, pointer, 1),
            jump::JLE => within(&mut taken, pointer, 0),
            jump::JLT => within(&mut taken, pointer, 1),
            _ => {}
        }
        (Some(taken), Some(not_taken))
    }
}

fn packet(p: &Pointer) -> bool {
    matches!(p.to, To::Packet | To::PacketEnd)
}

/// The bytes before `pointer`, and `more`, are in the packet: known of all pointers with the same variable part.
fn within(state: &mut State, pointer: &Pointer, more: i64) {
    let bytes = (pointer.offset + more).clamp(0, 0xffff) as u32;
    state.each(&mut |r| {
        if let Reg::Pointer(p) = r
            && p.to == To::Packet
            && p.id == pointer.id
        {
            p.range = p.range.max(bytes);
        }
    });
}

/// What a comparison says of a number, for all its copies.
fn learn(state: &mut State, register: u8, before: Reg, value: Scalar) {
    let Reg::Number { id, .. } = before else { return };
    state.set(register, Reg::Number { value, id });
    if id != 0 {
        state.each(&mut |r| {
            if let Reg::Number { value: v, id: i } = r
                && *i == id
            {
                *v = value;
            }
        });
    }
}

/// A pointer that may be null is, or is not: so are its copies.
fn decide(state: &State, pointer: &Pointer, null: bool) -> State {
    let mut state = state.clone();
    if pointer.maybe_null {
        state.each(&mut |r| {
            if let Reg::Pointer(p) = r
                && p.maybe_null
                && p.id == pointer.id
            {
                if null {
                    *r = Reg::constant(0);
                } else {
                    p.maybe_null = false;
                    if !matches!(p.to, To::Record(_)) {
                        p.id = 0;
                    }
                }
            }
        });
        if null {
            state.records.retain(|r| *r != pointer.id);
        }
    }
    state
}

impl Walker<'_> {
    /// `exit`: back to the caller, or the end of the program.
    fn leave(&mut self, state: &mut State) -> Check<Next> {
        let result = match state.reg(0) {
            Reg::Nothing => {
                return self.reject("the function ends, and on some path r0, its result, was not written");
            }
            result => result,
        };
        let depth = state.frames.len();
        if depth == 1 {
            if matches!(result, Reg::Pointer(_)) {
                return self.reject("the program would return a pointer: its result has to be a number");
            }
            if !state.records.is_empty() {
                return self.reject(
                    "a reserved record of a ring buffer is neither submitted nor discarded on this path",
                );
            }
            return Ok(Next::End);
        }
        if let Reg::Pointer(p) = result
            && p.to == To::Stack(depth as u8 - 1)
        {
            return self.reject("the function would return a pointer to its own stack, which is gone then");
        }
        let Some(callee) = state.frames.pop() else { return Ok(Next::End) };
        for register in 1..6 {
            state.set(register, Reg::Nothing);
        }
        state.set(0, result);
        Ok(Next::At(callee.resume))
    }

    /// A call of one of the program's own functions.
    fn enter(&mut self, state: &mut State, target: usize) -> Check<Next> {
        let depth = state.frames.len();
        if depth >= super::MAX_FRAMES {
            return self.reject("more than 8 functions are active at once");
        }
        let caller = state.top().function;
        if !self.calls.contains(&(caller, target)) {
            self.calls.push((caller, target));
        }
        let mut frame = super::Frame::new(depth as u8, target, self.at + 1);
        frame.regs[1..6].copy_from_slice(&state.top().regs[1..6]);
        debug_assert!(matches!(frame.regs[FRAME], Reg::Pointer(_)));
        state.frames.push(frame);
        Ok(Next::At(target))
    }
}
