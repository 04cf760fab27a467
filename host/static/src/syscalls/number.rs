// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The number of a system call: the constant that RAX has on each way that leads to it.

use iced_x86::{
    Code as Opcode, FlowControl, Instruction, InstructionInfoFactory, Mnemonic, OpKind, Register,
};
use std::collections::{BTreeMap, BTreeSet};
use unilith_rewrite::{constant, writes};

/// What a called function may change (System V ABI, figure 3.4).
const LOST_BY_CALLS: [Register; 9] = [
    Register::RAX,
    Register::RCX,
    Register::RDX,
    Register::RSI,
    Register::RDI,
    Register::R8,
    Register::R9,
    Register::R10,
    Register::R11,
];
/// What a system call changes.
const LOST_BY_SYSCALLS: [Register; 3] = [Register::RAX, Register::RCX, Register::R11];
/// How many instructions are looked at; a function in which more are needed is none that compilers make.
const MAX_STEPS: usize = 20_000;

/// The code of one section.
pub(super) struct Flow<'a> {
    pub instructions: &'a [Instruction],
    /// Where something unknown may come in.
    pub entries: &'a BTreeSet<u64>,
    /// Branches by where they lead.
    pub sources: &'a BTreeMap<u64, Vec<usize>>,
    /// Places of relocations of calls that do not return.
    pub ends: &'a BTreeSet<u64>,
}

impl Flow<'_> {
    /// The value of a register just before an instruction, if it is one and the same on all ways.
    pub(super) fn value(
        &self,
        at: usize,
        register: Register,
        info: &mut InstructionInfoFactory,
    ) -> Option<u64> {
        let (mut found, mut seen) = (None, BTreeSet::new());
        let mut open = vec![(at, register)];
        while let Some((at, register)) = open.pop() {
            if !seen.insert((at, register as u32)) {
                continue;
            }
            if seen.len() > MAX_STEPS || self.entries.contains(&self.instructions[at].ip()) {
                return None;
            }
            for before in self.before(at)? {
                let i = &self.instructions[before];
                let lost: &[Register] = match i.flow_control() {
                    FlowControl::Call | FlowControl::IndirectCall if i.mnemonic() == Mnemonic::Syscall => {
                        &LOST_BY_SYSCALLS
                    }
                    FlowControl::Call | FlowControl::IndirectCall => &LOST_BY_CALLS,
                    _ => &[],
                };
                if lost.contains(&register) {
                    return None;
                }
                if !lost.is_empty() || !writes(i, register, info) {
                    open.push((before, register));
                } else if let Some(value) = constant(i, register) {
                    if found.is_some_and(|other| other != value) {
                        return None;
                    }
                    found = Some(value);
                } else {
                    open.push((before, copied(i, register)?));
                }
            }
        }
        found
    }

    /// The instructions after which the one at `at` may be next; `None` if it may have no predecessor that is known.
    fn before(&self, at: usize) -> Option<Vec<usize>> {
        let here = self.instructions[at].ip();
        let mut out = self.sources.get(&here).cloned().unwrap_or_default();
        if let Some(previous) = self.falls_from(at).filter(|previous| !self.is_padding(*previous)) {
            out.push(previous);
        }
        (!out.is_empty()).then_some(out)
    }

    /// The instruction before this one in memory, if this one is next after it.
    fn falls_from(&self, at: usize) -> Option<usize> {
        let (here, before) = (self.instructions[at].ip(), at.checked_sub(1)?);
        let i = &self.instructions[before];
        let falls = i.next_ip() == here
            && self.ends.range(i.ip()..here).next().is_none()
            && matches!(
                i.flow_control(),
                FlowControl::Next
                    | FlowControl::ConditionalBranch
                    | FlowControl::Call
                    | FlowControl::IndirectCall
            );
        falls.then_some(before)
    }

    /// Whether an instruction only aligns what follows it: it is never executed, for nothing leads to it.
    fn is_padding(&self, at: usize) -> bool {
        let mut at = at;
        loop {
            let i = &self.instructions[at];
            // `xchg %ax, %ax` is another name of a NOP of two bytes.
            let does_nothing = i.mnemonic() == Mnemonic::Nop || i.code() == Opcode::Xchg_r16_AX;
            if !does_nothing || self.entries.contains(&i.ip()) || self.sources.contains_key(&i.ip()) {
                return false;
            }
            match self.falls_from(at) {
                Some(before) => at = before,
                None => return true,
            }
        }
    }
}

/// The register that an instruction copies to this one.
fn copied(i: &Instruction, register: Register) -> Option<Register> {
    let is_move = matches!(
        i.code(),
        Opcode::Mov_r32_rm32 | Opcode::Mov_rm32_r32 | Opcode::Mov_r64_rm64 | Opcode::Mov_rm64_r64
    );
    let registers = i.op0_kind() == OpKind::Register && i.op1_kind() == OpKind::Register;
    (is_move && registers && i.op0_register().full_register() == register)
        .then(|| i.op1_register().full_register())
}
