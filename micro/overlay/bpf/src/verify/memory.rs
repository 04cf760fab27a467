// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Loads and stores: is there something, is it aligned, may it be written, what is read.

use super::scalar::Scalar;
use super::state::{Byte, Pointer, Reg, Slot, State, To};
use super::{Check, MAX_STACK, Walker};
use crate::context::Field;
use crate::insn::{Insn, atomic};
use crate::maps::READ_ONLY;
use alloc::format;

/// What is to be done with memory.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Use {
    Read,
    Write,
}

/// The bytes of the stack, from the frame pointer down, in a range of offsets.
fn bytes(low: i64, high: i64) -> impl Iterator<Item = (usize, usize)> {
    (low..high).map(|offset| {
        let slot = ((-offset - 1) / 8) as usize;
        (slot, (offset + 8 * (slot as i64 + 1)) as usize)
    })
}

impl Walker<'_> {
    /// The pointer in a register, ready to be followed.
    fn followed(&self, state: &State, register: u8) -> Check<Pointer> {
        match self.readable(state, register)? {
            Reg::Pointer(p) if p.maybe_null => self.reject(format!(
                "r{register} may be null here: compare it with 0 and use it only where it is not"
            )),
            Reg::Pointer(p) => Ok(p),
            _ => self
                .reject(format!("r{register} is a number, not a pointer: read other memory with probe_read")),
        }
    }

    /// Checks an access to memory that is not the stack or the context: bounds, rights, alignment.
    fn check_outside(&self, p: &Pointer, off: i64, size: i64, how: Use, aligned: bool) -> Check {
        let (low, high) = (p.variable.wide.smin, p.variable.wide.smax);
        let (low, high) = (p.offset + off + low, p.offset + off + high);
        let (room, what) = match p.to {
            To::Value(map) => {
                let spec = &self.maps[usize::from(map)];
                if how == Use::Write && spec.flags & READ_ONLY != 0 {
                    return self.reject(format!("writes to map {}, which is read-only", spec.name));
                }
                (i64::from(spec.value), "the map's value")
            }
            To::Record(size) => (i64::from(size), "the record"),
            To::Packet if how == Use::Write => return self.reject("packets are read-only"),
            To::Packet => {
                // The range counts from where the variable part leads to.
                let (low, end) = (p.offset + off, p.offset + off + size);
                if low < 0 || p.variable.wide.smin < 0 || end > i64::from(p.range) {
                    return self.reject(format!(
                        "reads bytes {low} to {} of the packet, of which {} are known to be there: compare \
                         with data_end before",
                        end - 1,
                        p.range
                    ));
                }
                return Ok(());
            }
            To::Context | To::Stack(_) => return Ok(()),
            To::Map(_) | To::PacketEnd => {
                return self.reject("nothing can be read or written through this pointer");
            }
        };
        if low < 0 || high + size > room {
            return self.reject(format!(
                "would touch bytes {low} to {} of {what}, which has {room}",
                high + size - 1
            ));
        }
        if aligned && !self.is_aligned(p, off, size) {
            return self
                .reject(format!("an access of {size} bytes at an offset that is no multiple of {size}"));
        }
        Ok(())
    }

    fn is_aligned(&self, p: &Pointer, off: i64, size: i64) -> bool {
        let below = size as u64 - 1;
        let bits = p.variable.bits;
        bits.mask & below == 0 && (bits.value.wrapping_add((p.offset + off) as u64)) & below == 0
    }

    /// First and last offset at which an access to the stack may begin.
    fn stack_range(
        &mut self,
        state: &State,
        p: &Pointer,
        level: u8,
        off: i64,
        size: i64,
    ) -> Check<(i64, i64)> {
        let low = p.offset + off + p.variable.wide.smin;
        let high = p.offset + off + p.variable.wide.smax;
        if low < -(MAX_STACK as i64) || high + size > 0 {
            return self.reject(format!(
                "would touch the stack from {low} to {}: it reaches from -{MAX_STACK} to -1",
                high + size - 1
            ));
        }
        let function = state.frames[usize::from(level)].function;
        let deepest = (-low) as usize;
        if let Some(f) = self.functions.iter_mut().find(|f| f.0 == function) {
            f.1 = f.1.max(deepest.next_multiple_of(8));
        }
        Ok((low, high))
    }

    pub(super) fn load(
        &mut self,
        state: &mut State,
        register: u8,
        off: i16,
        size: u32,
        sign: bool,
    ) -> Check<Reg> {
        let p = self.followed(state, register)?;
        let off = i64::from(off);
        let reg = match p.to {
            To::Context => {
                let at = p.fixed().map_or(-1, |f| f + off);
                match self.context.field(at, size) {
                    Some(_) if at % i64::from(size) != 0 => {
                        return self.reject(format!("offset {at} of the context is no multiple of {size}"));
                    }
                    Some(Field::Number) => Reg::number(Scalar::loaded(size)),
                    Some(Field::Packet) => Reg::Pointer(Pointer::new(To::Packet)),
                    Some(Field::PacketEnd) => Reg::Pointer(Pointer::new(To::PacketEnd)),
                    None => {
                        return self.reject(format!(
                            "reads {size} bytes at offset {at} of the context ({}), where no field is",
                            self.context.name()
                        ));
                    }
                }
            }
            To::Stack(level) => {
                if !self.is_aligned(&p, off, size.into()) {
                    return self.reject(format!(
                        "reads {size} bytes of the stack at an offset that is no multiple of it"
                    ));
                }
                let (low, high) = self.stack_range(state, &p, level, off, size.into())?;
                self.load_stack(state, level, low, high, size)?
            }
            _ => {
                self.check_outside(&p, off, size.into(), Use::Read, p.to != To::Packet)?;
                self.known_constant(&p, off, size).unwrap_or(Reg::number(Scalar::loaded(size)))
            }
        };
        match reg {
            Reg::Number { value, .. } if sign => Ok(Reg::number(value.sign_extended(size * 8))),
            Reg::Pointer(_) if sign => {
                self.reject("a pointer is read in part, which would make a number of it")
            }
            reg => Ok(reg),
        }
    }

    /// A value of a map that never changes.
    fn known_constant(&self, p: &Pointer, off: i64, size: u32) -> Option<Reg> {
        let To::Value(map) = p.to else { return None };
        let spec = self.maps.get(usize::from(map)).filter(|s| s.is_constant())?;
        let at = usize::try_from(p.fixed()? + off).ok()?;
        let mut word = [0; 8];
        for (i, byte) in word[..size as usize].iter_mut().enumerate() {
            *byte = spec.initial.get(at + i).copied().unwrap_or(0);
        }
        Some(Reg::constant(u64::from_le_bytes(word)))
    }

    fn load_stack(&self, state: &State, level: u8, low: i64, high: i64, size: u32) -> Check<Reg> {
        let stack = &state.frames[usize::from(level)].stack;
        if low == high {
            let (index, byte) = bytes(low, low + 1).next().unwrap_or((0, 0));
            let slot = stack.get(index).unwrap_or(&Slot::EMPTY);
            let saved = slot.saved_bytes();
            if byte == 0 && saved > 0 && saved >= size as usize {
                return match slot.saved {
                    reg if size as usize == saved => Ok(reg),
                    Reg::Number { value, .. } if size == 4 => Ok(Reg::number(value.zero_extended())),
                    Reg::Number { .. } => Ok(Reg::number(Scalar::loaded(size))),
                    _ => self.reject("a pointer is read in part, which would make a number of it"),
                };
            }
        }
        let mut zero = true;
        for (index, byte) in bytes(low, high + i64::from(size)) {
            let slot = stack.get(index).unwrap_or(&Slot::EMPTY);
            match slot.bytes[byte] {
                Byte::Nothing => {
                    return self.reject(format!(
                        "reads the stack at {}, where on some path nothing was written",
                        byte as i64 - 8 * (index as i64 + 1)
                    ));
                }
                Byte::Zero => {}
                Byte::Any => zero = false,
                Byte::Saved if matches!(slot.saved, Reg::Number { .. }) => zero = false,
                Byte::Saved => {
                    return self.reject("a saved pointer is read as bytes, which would make a number of it");
                }
            }
        }
        Ok(if zero { Reg::constant(0) } else { Reg::number(Scalar::loaded(size)) })
    }

    pub(super) fn store(
        &mut self,
        state: &mut State,
        register: u8,
        off: i16,
        size: u32,
        value: Reg,
    ) -> Check {
        let p = self.followed(state, register)?;
        let off = i64::from(off);
        match p.to {
            To::Context => self.reject("writes to the context, which is read-only"),
            To::Stack(level) => {
                if !self.is_aligned(&p, off, size.into()) {
                    return self.reject(format!(
                        "writes {size} bytes of the stack at an offset that is no multiple of it"
                    ));
                }
                let (low, high) = self.stack_range(state, &p, level, off, size.into())?;
                self.store_stack(state, level, low, high, size, value)
            }
            _ => {
                if matches!(value, Reg::Pointer(_)) {
                    return self
                        .reject("a pointer would be stored outside of the stack, where others can see it");
                }
                self.check_outside(&p, off, size.into(), Use::Write, true)
            }
        }
    }

    fn store_stack(
        &mut self,
        state: &mut State,
        level: u8,
        low: i64,
        high: i64,
        size: u32,
        value: Reg,
    ) -> Check {
        if let Reg::Pointer(p) = value {
            if low != high || size != 8 {
                return self.reject("a pointer is stored in part or at an unknown place");
            }
            if matches!(p.to, To::Stack(of) if of > level) {
                return self.reject("a pointer to this function's stack would outlive the function");
            }
        }
        let (first, _) = bytes(low, low + 1).next().unwrap_or((0, 0));
        let stack = &mut state.frames[usize::from(level)].stack;
        if stack.len() <= first {
            stack.resize(first + 1, Slot::EMPTY);
        }
        if low != high {
            for (index, byte) in bytes(low, high + i64::from(size)) {
                let slot = &mut stack[index];
                if slot.bytes[byte] == Byte::Saved && matches!(slot.saved, Reg::Pointer(_)) {
                    return self.reject("a write at an unknown place may destroy a saved pointer in part");
                }
                scatter(slot);
                // It may have hit other bytes: what was not initialised still is not.
                if slot.bytes[byte] != Byte::Nothing {
                    slot.bytes[byte] = Byte::Any;
                }
            }
            return Ok(());
        }
        let zero = matches!(value, Reg::Number { value, .. } if value.value() == Some(0));
        let (index, start) = bytes(low, low + 1).next().unwrap_or((0, 0));
        let slot = &mut stack[index];
        scatter(slot);
        let whole = start == 0 && (size == 8 || size == 4) && !zero;
        let kind = if zero {
            Byte::Zero
        } else if whole {
            Byte::Saved
        } else {
            Byte::Any
        };
        slot.bytes[start..start + size as usize].fill(kind);
        if whole {
            slot.saved = match value {
                Reg::Number { value: v, .. } if size == 4 => Reg::number(v.zero_extended()),
                value => value,
            };
        }
        Ok(())
    }

    pub(super) fn atomic(&mut self, state: &mut State, insn: Insn) -> Check {
        let size = insn.size();
        let operand = self.readable(state, insn.src)?;
        let compared = if insn.imm == atomic::CMPXCHG { self.readable(state, 0)? } else { operand };
        if matches!(operand, Reg::Pointer(_)) || matches!(compared, Reg::Pointer(_)) {
            return self.reject("atomic operations are on numbers: this is a pointer");
        }
        let p = self.followed(state, insn.dst)?;
        if !matches!(p.to, To::Stack(_) | To::Value(_) | To::Record(_)) {
            return self.reject("atomic operations are on the stack, values of maps and records only");
        }
        // Reads what is there, which has to be a number, and writes one that is not known.
        if let Reg::Pointer(_) = self.load(state, insn.dst, insn.off, size, false)? {
            return self.reject("an atomic operation on a saved pointer");
        }
        self.store(state, insn.dst, insn.off, size, Reg::number(Scalar::loaded(size)))?;
        let loaded = Reg::number(Scalar::loaded(size));
        match insn.imm {
            atomic::CMPXCHG => state.set(0, loaded),
            i if i & atomic::FETCH != 0 => state.set(insn.src, loaded),
            _ => {}
        }
        Ok(())
    }

    /// Checks memory that a helper is to read or to fill; a fill of known size initialises the stack.
    pub(super) fn region(&mut self, state: &mut State, register: u8, size: (u64, u64), how: Use) -> Check {
        let (least, most) = size;
        let p = self.followed(state, register)?;
        if most >= 1 << 29 {
            return self.reject(format!(
                "the size for r{register} may be {most}: check its upper bound before the call"
            ));
        }
        if most == 0 {
            return Ok(());
        }
        let most = most as i64;
        match p.to {
            To::Context if how == Use::Write => {
                self.reject("the helper would write to the context, which is read-only")
            }
            To::Context => match p.fixed() {
                Some(at)
                    if at >= 0 && at + most <= self.context.size() as i64 && self.context_is_numbers() =>
                {
                    Ok(())
                }
                _ => self.reject("the helper would read beyond the context"),
            },
            To::Stack(level) => {
                let (low, high) = self.stack_range(state, &p, level, 0, most)?;
                if how == Use::Write && low == high && least as i64 == most {
                    return self.fill_stack(state, level, low, most);
                }
                self.load_stack_bytes(state, level, low, high + most)?;
                if how == Use::Write {
                    return self.fill_stack(state, level, low, high + most - low);
                }
                Ok(())
            }
            _ => self.check_outside(&p, 0, most, how, false),
        }
    }

    fn context_is_numbers(&self) -> bool {
        self.context.members().iter().all(|m| m.kind == Field::Number)
    }

    fn load_stack_bytes(&self, state: &State, level: u8, low: i64, end: i64) -> Check {
        for (index, byte) in bytes(low, end) {
            let slot = state.frames[usize::from(level)].stack.get(index).unwrap_or(&Slot::EMPTY);
            let at = byte as i64 - 8 * (index as i64 + 1);
            match slot.bytes[byte] {
                Byte::Nothing => {
                    return self.reject(format!(
                        "the helper would see the stack at {at}, where on some path nothing was written"
                    ));
                }
                Byte::Saved if matches!(slot.saved, Reg::Pointer(_)) => {
                    return self.reject(format!(
                        "the helper would see the pointer that is saved on the stack at {at}"
                    ));
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn fill_stack(&mut self, state: &mut State, level: u8, low: i64, size: i64) -> Check {
        let stack = &mut state.frames[usize::from(level)].stack;
        for (index, byte) in bytes(low, low + size) {
            if stack.len() <= index {
                stack.resize(index + 1, Slot::EMPTY);
            }
            scatter(&mut stack[index]);
            stack[index].bytes[byte] = Byte::Any;
        }
        Ok(())
    }
}

/// A slot is written in part: what is left of a saved number is some number, what is left of a pointer nothing.
fn scatter(slot: &mut Slot) {
    let left = if matches!(slot.saved, Reg::Number { .. }) { Byte::Any } else { Byte::Nothing };
    for byte in slot.bytes.iter_mut().filter(|b| **b == Byte::Saved) {
        *byte = left;
    }
    slot.saved = Reg::Nothing;
}
