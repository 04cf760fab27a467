// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How the beginning of a function can be replaced by a jump while the program runs: which instructions move, and why
//! it cannot be done.

use crate::code::{Code, decoder};
use api_probes::{Fixup, JUMP, Plan};
use iced_x86::{FlowControl, Instruction, OpKind};

/// Plans for the function at an address of the file. The error says why it cannot be probed.
pub fn plan(elf: &[u8], function: u64) -> Result<Plan, String> {
    let code = Code::read(elf)?;
    let region = code.region(function).ok_or("it is not in the code of the file")?;
    let end = code.chunks.iter().find(|c| c.function && c.start == function).map_or(region.end(), |c| c.end);
    let bytes = &region.bytes[(function - region.address) as usize..];
    let mut decoder = decoder(bytes, function);
    let mut plan = Plan::default();
    let mut instruction = Instruction::default();
    while plan.original.len() < JUMP {
        if decoder.ip() >= end || !decoder.can_decode() {
            return Err(format!("it is too short: {} bytes, and a jump takes {JUMP}", end - function));
        }
        decoder.decode_out(&mut instruction);
        if instruction.is_invalid() {
            return Err("its first bytes are no instructions".into());
        }
        match instruction.flow_control() {
            FlowControl::Next => {}
            FlowControl::Return => {
                return Err(format!(
                    "it is too short: it returns after {} bytes, and a jump takes {JUMP}",
                    instruction.next_ip() - function
                ));
            }
            _ => return Err(format!("its first {JUMP} bytes hold a jump or a call, which cannot be moved")),
        }
        let start = plan.original.len();
        let length = instruction.len();
        if start != 0 {
            plan.boundaries.push((start as u8, start as u8));
        }
        plan.original.extend_from_slice(&bytes[start..start + length]);
        if instruction.is_ip_rel_memory_operand() {
            let at = decoder.get_constant_offsets(&instruction).displacement_offset();
            let distance = instruction.ip_rel_memory_address().wrapping_sub(function) as i64;
            plan.fixups.push(Fixup {
                at: (start + at) as u8,
                end: (start + length) as u8,
                distance: i32::try_from(distance).map_err(|_| "it refers to something too far away")?,
            });
        }
    }
    plan.moved = plan.original.clone();
    match entered(&code, function) {
        Some(from) => {
            Err(format!("something at {from:#x} leads into its first {JUMP} bytes, behind their beginning"))
        }
        None => Ok(plan),
    }
}

/// What leads behind the first and before the last byte that a jump would replace.
fn entered(code: &Code, function: u64) -> Option<u64> {
    let inside = |address: u64| address > function && address < function + JUMP as u64;
    if let Some(entry) = code.entries.iter().find(|e| inside(**e)) {
        return Some(*entry);
    }
    let mut instructions = Vec::new();
    for chunk in &code.chunks {
        code.decode(chunk, &mut instructions);
        let leads = |i: &&Instruction| {
            matches!(i.op0_kind(), OpKind::NearBranch16 | OpKind::NearBranch32 | OpKind::NearBranch64)
                && inside(i.near_branch_target())
        };
        if let Some(i) = instructions.iter().find(leads) {
            return Some(i.ip());
        }
    }
    None
}

/// Whether returns from the file's functions can be seen by replacing return addresses: not where an unwinder or a
/// runtime looks for them on the stack.
pub fn returns(elf: &[u8]) -> Result<(), String> {
    use object::{Object, ObjectSection};
    let code = Code::read(elf)?;
    let has = |name: &str| code.file.section_by_name(name).is_some_and(|s| s.size() > 0);
    if has(".gopclntab") {
        return Err(
            "it is Go, whose runtime moves stacks and looks for return addresses: trace entries only".into(),
        );
    }
    if has(".gcc_except_table") {
        return Err(
            "exceptions pass through its file, and unwinding needs the return addresses: trace entries only"
                .into(),
        );
    }
    Ok(())
}
