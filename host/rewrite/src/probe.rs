// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How the beginning of a function can be replaced by a jump while the program runs: which instructions move, and why
//! it cannot be done.

use crate::code::{Code, decoder};
use api_probes::{Fixup, JUMP, Plan};
use iced_x86::{ConstantOffsets, FlowControl, Instruction, OpKind};
use object::{Object, ObjectSection};

/// A file whose functions are to be probed.
pub struct Prober<'a> {
    code: Code<'a>,
    /// Target and place of each direct jump and call, in order.
    branches: Vec<(u64, u64)>,
}

fn is_direct(i: &Instruction) -> bool {
    matches!(i.op0_kind(), OpKind::NearBranch16 | OpKind::NearBranch32 | OpKind::NearBranch64)
}

impl<'a> Prober<'a> {
    pub fn new(elf: &'a [u8]) -> Result<Prober<'a>, String> {
        let code = Code::read(elf)?;
        let (mut branches, mut instructions) = (Vec::new(), Vec::new());
        for chunk in &code.chunks {
            code.decode(chunk, &mut instructions);
            let direct = instructions.iter().filter(|i| is_direct(i));
            branches.extend(direct.map(|i| (i.near_branch_target(), i.ip())));
        }
        branches.sort_unstable();
        Ok(Prober { code, branches })
    }

    /// Plans for the function at an address of the file. The error says why it cannot be probed.
    pub fn plan(&self, function: u64) -> Result<Plan, String> {
        let region = self.code.region(function).ok_or("it is not in the code of the file")?;
        let own = self.code.chunks.iter().find(|c| c.function && c.start == function);
        let end = own.map_or(region.end(), |c| c.end);
        let mut decoder = decoder(&region.bytes[(function - region.address) as usize..], function);
        let bytes = &region.bytes[(function - region.address) as usize..];
        let mut plan = Plan::default();
        let mut instruction = Instruction::default();
        while plan.original.len() < JUMP {
            if decoder.ip() >= end || !decoder.can_decode() {
                return Err(too_short(end - function));
            }
            decoder.decode_out(&mut instruction);
            if instruction.is_invalid() {
                return Err("its first bytes are no instructions".into());
            }
            let start = plan.original.len();
            let taken = &bytes[start..start + instruction.len()];
            take(&mut plan, function, &instruction, taken, &decoder.get_constant_offsets(&instruction))?;
        }
        match self.entered(function) {
            Some(from) => Err(format!(
                "something at {from:#x} leads into its first {JUMP} bytes, behind their beginning"
            )),
            None => Ok(plan),
        }
    }

    /// What leads behind the first and before the last byte that a jump would replace.
    fn entered(&self, function: u64) -> Option<u64> {
        let inside = function + 1..function + JUMP as u64;
        if let Some(entry) = self.code.entries.iter().find(|e| inside.contains(e)) {
            return Some(*entry);
        }
        let first = self.branches.partition_point(|b| b.0 < inside.start);
        self.branches.get(first).filter(|b| inside.contains(&b.0)).map(|b| b.1)
    }

    /// Whether returns from the file's functions can be seen by replacing return addresses: not where an unwinder or
    /// a runtime looks for them on the stack.
    pub fn returns(&self) -> Result<(), String> {
        let has = |name: &str| self.code.file.section_by_name(name).is_some_and(|s| s.size() > 0);
        if has(".gopclntab") {
            return Err(
                "it is Go, whose runtime moves stacks and looks for return addresses: trace entries only"
                    .into(),
            );
        }
        if has(".gcc_except_table") {
            return Err("exceptions pass through its file, and unwinding needs the return addresses: trace \
                        entries only"
                .into());
        }
        Ok(())
    }
}

fn too_short(bytes: u64) -> String {
    format!("it is too short: it ends after {bytes} bytes, and a jump takes {JUMP}")
}

/// Adds the next instruction to the plan, as it is to run elsewhere.
fn take(
    plan: &mut Plan,
    function: u64,
    instruction: &Instruction,
    bytes: &[u8],
    offsets: &ConstantOffsets,
) -> Result<(), String> {
    let (start, here) = (plan.original.len(), plan.moved.len());
    let flow = instruction.flow_control();
    let ends =
        matches!(flow, FlowControl::Return | FlowControl::UnconditionalBranch | FlowControl::IndirectBranch);
    if ends && start + bytes.len() < JUMP {
        return Err(too_short((start + bytes.len()) as u64));
    }
    if start != 0 {
        plan.boundaries.push((start as u8, here as u8));
    }
    plan.original.extend_from_slice(bytes);
    let mut fixup = |at: usize, end: usize, target: u64| {
        let distance = i32::try_from(target.wrapping_sub(function) as i64)
            .map_err(|_| "it refers to something too far away")?;
        plan.fixups.push(Fixup { at: at as u8, end: end as u8, distance });
        Ok::<(), String>(())
    };
    match flow {
        // A short jump becomes a near one (Intel SDM volume 2, Jcc: the condition is in the opcode's last four bits).
        FlowControl::ConditionalBranch | FlowControl::UnconditionalBranch
            if instruction.op0_kind() == OpKind::NearBranch64
                && (instruction.is_jcc_short_or_near() || instruction.is_jmp_short_or_near()) =>
        {
            let opcode = offsets.immediate_offset() - 1;
            let near: &[u8] = match bytes[opcode] {
                0xe9 | 0xeb => &[0xe9],
                jcc => &[0x0f, 0x80 | jcc & 0xf],
            };
            let end = here + near.len() + 4;
            fixup(end - 4, end, instruction.near_branch_target())?;
            plan.moved.extend_from_slice(near);
            plan.moved.extend([0; 4]);
        }
        FlowControl::Next | FlowControl::Return | FlowControl::IndirectBranch => {
            if instruction.is_ip_rel_memory_operand() {
                let at = here + offsets.displacement_offset();
                fixup(at, here + bytes.len(), instruction.ip_rel_memory_address())?;
            }
            plan.moved.extend_from_slice(bytes);
        }
        FlowControl::Call | FlowControl::IndirectCall => {
            return Err(format!("its first {JUMP} bytes hold a call, which cannot be moved"));
        }
        _ => return Err(format!("its first {JUMP} bytes hold an instruction that cannot be moved")),
    }
    Ok(())
}
