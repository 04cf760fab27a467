// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What is known at one point of a program: registers, stacks of all active functions, records to be handed back.

use super::scalar::Scalar;
use crate::insn::{FRAME, REGISTERS};
use alloc::vec::Vec;

/// What a pointer points to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum To {
    Context,
    /// The frame of the n-th active function.
    Stack(u8),
    /// A map itself: an argument of helpers.
    Map(u16),
    /// A value of that map.
    Value(u16),
    /// A reserved record of a ring buffer, this many bytes long.
    Record(u32),
    Packet,
    PacketEnd,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pointer {
    pub to: To,
    pub maybe_null: bool,
    /// The same in all copies: what is learnt of one holds for the others. The record, for a record.
    pub id: u32,
    pub offset: i64,
    /// Added to the offset.
    pub variable: Scalar,
    /// Bytes of the packet from its start that are known to be there.
    pub range: u32,
}

impl Pointer {
    pub fn new(to: To) -> Pointer {
        Pointer { to, maybe_null: false, id: 0, offset: 0, variable: Scalar::constant(0), range: 0 }
    }

    /// The offset, when it is known.
    pub fn fixed(&self) -> Option<i64> {
        self.offset.checked_add(self.variable.value()? as i64)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reg {
    Nothing,
    Number {
        value: Scalar,
        /// The same in all copies; 0 for none.
        id: u32,
    },
    Pointer(Pointer),
}

impl Reg {
    pub const fn constant(value: u64) -> Reg {
        Reg::Number { value: Scalar::constant(value), id: 0 }
    }

    pub const fn number(value: Scalar) -> Reg {
        Reg::Number { value, id: 0 }
    }

    pub const UNKNOWN: Reg = Reg::number(Scalar::UNKNOWN);

    fn id(&self) -> u32 {
        match self {
            Reg::Number { id, .. } => *id,
            _ => 0,
        }
    }
}

/// What a byte of the stack holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Byte {
    Nothing,
    /// Some number.
    Any,
    Zero,
    /// Part of the register that is kept with the slot.
    Saved,
}

/// Eight bytes of the stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot {
    pub bytes: [Byte; 8],
    /// What the bytes from 0 on hold that are [`Byte::Saved`].
    pub saved: Reg,
}

impl Slot {
    pub const EMPTY: Slot = Slot { bytes: [Byte::Nothing; 8], saved: Reg::Nothing };

    /// Bytes of `saved` that are still there: 0, 4 or 8.
    pub fn saved_bytes(&self) -> usize {
        self.bytes.iter().take_while(|b| **b == Byte::Saved).count()
    }
}

/// One active function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    pub regs: [Reg; REGISTERS],
    /// From the frame pointer down.
    pub stack: Vec<Slot>,
    /// Where the caller goes on.
    pub resume: usize,
    /// First instruction of the function.
    pub function: usize,
}

impl Frame {
    pub fn new(level: u8, function: usize, resume: usize) -> Frame {
        let mut regs = [Reg::Nothing; REGISTERS];
        regs[FRAME] = Reg::Pointer(Pointer::new(To::Stack(level)));
        Frame { regs, stack: Vec::new(), resume, function }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct State {
    pub frames: Vec<Frame>,
    /// Records that have to be submitted or discarded.
    pub records: Vec<u32>,
}

impl State {
    pub fn top(&self) -> &Frame {
        &self.frames[self.frames.len() - 1]
    }

    pub fn top_mut(&mut self) -> &mut Frame {
        let last = self.frames.len() - 1;
        &mut self.frames[last]
    }

    pub fn reg(&self, index: u8) -> Reg {
        self.top().regs[usize::from(index)]
    }

    pub fn set(&mut self, index: u8, reg: Reg) {
        self.top_mut().regs[usize::from(index)] = reg;
    }

    /// Every register there is, those on stacks too.
    pub fn each(&mut self, change: &mut dyn FnMut(&mut Reg)) {
        for frame in &mut self.frames {
            frame.regs.iter_mut().for_each(&mut *change);
            frame.stack.iter_mut().filter(|s| s.saved_bytes() > 0).for_each(|s| change(&mut s.saved));
        }
    }

    /// Forgets links between numbers of which there is only one, so that they do not tell states apart.
    pub fn forget_single_links(&mut self) {
        let mut ids: Vec<u32> = Vec::new();
        // In order; there are few. A sort of the library's would be the image's only one for numbers.
        self.each(&mut |r| ids.insert(ids.partition_point(|id| *id < r.id()), r.id()));
        let single = |id: u32| ids.partition_point(|i| *i <= id) - ids.partition_point(|i| *i < id) == 1;
        self.each(&mut |r| {
            if let Reg::Number { id, .. } = r
                && *id != 0
                && single(*id)
            {
                *id = 0;
            }
        });
    }
}

/// Which number of one state corresponds to which of another.
#[derive(Default)]
struct Ids(Vec<(u32, u32)>);

impl Ids {
    fn same(&mut self, old: u32, new: u32) -> bool {
        if old == 0 || new == 0 {
            return old == new;
        }
        match self.0.iter().find(|(o, n)| *o == old || *n == new) {
            Some(pair) => *pair == (old, new),
            None => {
                self.0.push((old, new));
                true
            }
        }
    }
}

fn reg_holds(old: &Reg, new: &Reg, ids: &mut Ids, exact: bool) -> bool {
    match (old, new) {
        (Reg::Nothing, _) if !exact => true,
        (Reg::Nothing, Reg::Nothing) => true,
        (Reg::Number { value: a, id: i }, Reg::Number { value: b, id: j }) => {
            if exact {
                return a == b && (*i == 0 && *j == 0 || ids.same(*i, *j));
            }
            // What holds of unlinked numbers holds of linked ones.
            a.holds(b) && (*i == 0 || ids.same(*i, *j))
        }
        (Reg::Pointer(a), Reg::Pointer(b)) => {
            a.to == b.to
                && a.maybe_null == b.maybe_null
                && a.offset == b.offset
                && ids.same(a.id, b.id)
                && if exact {
                    a.variable == b.variable && a.range == b.range
                } else {
                    a.variable.holds(&b.variable) && a.range <= b.range
                }
        }
        _ => false,
    }
}

fn slot_holds(old: &Slot, new: &Slot, ids: &mut Ids, exact: bool) -> bool {
    let saved = old.saved_bytes();
    if saved > 0 && new.saved_bytes() == saved {
        if !reg_holds(&old.saved, &new.saved, ids, exact) {
            return false;
        }
    } else if saved > 0 {
        return false;
    }
    let number = matches!(new.saved, Reg::Number { .. });
    old.bytes.iter().zip(&new.bytes).all(|(o, n)| match (o, n) {
        _ if o == n => true,
        _ if exact => false,
        (Byte::Nothing, _) | (Byte::Any, Byte::Zero) => true,
        (Byte::Any, Byte::Saved) => number,
        _ => false,
    })
}

/// True when everything that may happen from `new` may happen from `old` (or, if `exact`, they are the same).
/// `live` says of each frame which registers matter.
pub fn holds(old: &State, new: &State, live: &[u16], exact: bool) -> bool {
    if old.frames.len() != new.frames.len() || old.records.len() != new.records.len() {
        return false;
    }
    let mut ids = Ids::default();
    for (level, (o, n)) in old.frames.iter().zip(&new.frames).enumerate() {
        if o.resume != n.resume || o.function != n.function {
            return false;
        }
        let live = live.get(level).copied().unwrap_or(u16::MAX);
        for r in 0..REGISTERS {
            if live >> r & 1 != 0 && !reg_holds(&o.regs[r], &n.regs[r], &mut ids, exact) {
                return false;
            }
        }
        for i in 0..o.stack.len().max(n.stack.len()) {
            let old = o.stack.get(i).unwrap_or(&Slot::EMPTY);
            let new = n.stack.get(i).unwrap_or(&Slot::EMPTY);
            if !slot_holds(old, new, &mut ids, exact) {
                return false;
            }
        }
    }
    old.records.iter().zip(&new.records).all(|(o, n)| ids.same(*o, *n))
}
