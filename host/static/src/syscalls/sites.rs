// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which instructions around a `syscall` a jump replaces.

use iced_x86::{FlowControl, Instruction, Mnemonic, OpKind};
use object::elf;
use std::collections::{BTreeMap, BTreeSet};

/// `jmp rel32`.
pub(super) const JUMP: usize = 5;
/// How many instructions are looked at before and after.
const MAX_BEFORE: usize = 6;
const MAX_AFTER: usize = 4;

/// Relocations that mean the same in another place. (Those of thread-local variables by a call are parts of sequences.)
const MOVABLE: [u32; 11] = [
    elf::R_X86_64_64,
    elf::R_X86_64_PC32,
    elf::R_X86_64_PLT32,
    elf::R_X86_64_32,
    elf::R_X86_64_32S,
    elf::R_X86_64_GOTPCREL,
    elf::R_X86_64_GOTPCRELX,
    elf::R_X86_64_REX_GOTPCRELX,
    elf::R_X86_64_GOTTPOFF,
    elf::R_X86_64_TPOFF32,
    elf::R_X86_64_PC64,
];

/// The instructions that a jump replaces, by their numbers; the `syscall` is `first + before`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Site {
    pub first: usize,
    pub before: usize,
    pub after: usize,
}

impl Site {
    pub(super) fn syscall(&self) -> usize {
        self.first + self.before
    }

    pub(super) fn last(&self) -> usize {
        self.syscall() + self.after
    }
}

/// What is known of a section.
pub(super) struct Section<'a> {
    pub instructions: &'a [Instruction],
    /// Where execution may come in, branches of the section included.
    pub targets: &'a BTreeSet<u64>,
    /// Kinds of relocations by their places.
    pub relocations: &'a BTreeMap<u64, u32>,
}

impl Section<'_> {
    /// Best is what needs no instruction behind the call, which then comes back to where it was made: unwinders know that place.
    /// `free`: the end of the site before.
    pub(super) fn choose(&self, syscall: usize, free: u64) -> Option<Site> {
        let mut best: Option<(usize, Site)> = None;
        for before in 0..=MAX_BEFORE.min(syscall) {
            let first = syscall - before;
            let i = &self.instructions[first];
            if i.ip() < free || before > 0 && !self.is_movable(i, &self.instructions[first + 1]) {
                break;
            }
            for after in 0..=MAX_AFTER {
                let last = syscall + after;
                let Some(end) = self.instructions.get(last) else { break };
                if after > 0 && !self.is_movable(end, &self.instructions[last - 1]) {
                    break;
                }
                let enters = self.targets.range(i.ip() + 1..end.next_ip()).next().is_some();
                if enters || end.next_ip() - i.ip() < JUMP as u64 {
                    continue;
                }
                let cost = after * 100 + before;
                if best.is_none_or(|(least, _)| cost < least) {
                    best = Some((cost, Site { first, before, after }));
                }
            }
        }
        best.map(|(_, site)| site)
    }

    /// Whether an instruction does the same in the stub; `next` to it is another one of the site, without a gap.
    fn is_movable(&self, i: &Instruction, next: &Instruction) -> bool {
        let mut relocations = self.relocations.range(i.ip()..i.next_ip());
        let has_one = relocations.clone().next().is_some();
        (i.next_ip() == next.ip() || next.next_ip() == i.ip())
            && i.flow_control() == FlowControl::Next
            && !i.is_invalid()
            && !i.is_privileged()
            && !matches!(i.mnemonic(), Mnemonic::Nop | Mnemonic::Endbr64 | Mnemonic::Syscall)
            && (!i.is_ip_rel_memory_operand() || has_one)
            && relocations.all(|(_, kind)| MOVABLE.contains(kind))
            && !(0..i.op_count()).any(|o| matches!(i.op_kind(o), OpKind::NearBranch64))
    }
}
