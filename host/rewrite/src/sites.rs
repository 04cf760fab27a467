// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which instructions around each `syscall` a jump may replace.

use crate::code::{Chunk, Code};
use api_sites::{JUMP_LENGTH, NUMBER_UNKNOWN, Site};
use iced_x86::{
    Code as Opcode, FlowControl, Instruction, InstructionInfoFactory, Mnemonic, OpAccess, OpKind, Register,
};
use std::collections::HashSet;

/// The bytes of `syscall` (Intel SDM volume 2).
const SYSCALL: [u8; 2] = [0x0f, 0x05];
/// Unwinders recognise its call by the bytes at the return address of a signal handler: `mov $15, %rax; syscall`
/// (libgcc's x86_64_fallback_frame_state), so that site stays as it is.
const RT_SIGRETURN: u16 = 15;
/// How many instructions are looked at before and after.
const MAX_BEFORE: usize = 6;
const MAX_AFTER: usize = 4;
/// How far back the number is looked for.
const NUMBER_REACH: usize = 24;
/// Entries of one jump table that are read; a table that is longer is no table.
const MAX_TABLE: usize = 8192;

/// A `syscall` instruction that stays one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Missed {
    /// As linked.
    pub address: u64,
    pub number: Option<u16>,
    pub reason: &'static str,
}

/// What was found in one file.
#[derive(Clone, Debug, Default)]
pub struct Scan {
    /// In ascending order of offset, without overlap.
    pub sites: Vec<Site>,
    pub missed: Vec<Missed>,
    /// Places where the two bytes of `syscall` stand but are not one: in data or inside another instruction.
    pub not_code: usize,
}

/// Blocks of 64 bytes that hold the two bytes, or touch one that does: targets elsewhere do not matter.
struct Near(HashSet<u64>);

impl Near {
    fn find(code: &Code) -> Near {
        let mut blocks = HashSet::new();
        for region in &code.text {
            for (at, _) in region.bytes.windows(2).enumerate().filter(|(_, w)| *w == SYSCALL) {
                let block = (region.address + at as u64) >> 6;
                blocks.extend([block.saturating_sub(1), block, block + 1]);
            }
        }
        Near(blocks)
    }

    fn holds(&self, address: u64) -> bool {
        self.0.contains(&(address >> 6))
    }
}

/// Where execution can come from elsewhere.
#[derive(Default)]
pub(crate) struct Targets {
    /// Branches, functions, symbols, pointers, landing pads: wherever they lead, an instruction starts.
    sure: HashSet<u64>,
    /// Constants that look like addresses of code. They count where an instruction starts.
    likely: HashSet<u64>,
}

impl Targets {
    /// Whether something may jump to this instruction.
    pub(crate) fn hit(&self, instruction: u64) -> bool {
        self.sure.contains(&instruction) || self.likely.contains(&instruction)
    }
}

/// All targets near system calls.
pub(crate) fn targets(code: &Code, near: &dyn Fn(u64) -> bool) -> Targets {
    let mut out = Targets::default();
    out.sure.extend(code.entries.iter().copied().filter(|a| near(*a)));
    let mut tables: HashSet<u64> = HashSet::new();
    let mut instructions = Vec::new();
    for chunk in &code.chunks {
        if near(chunk.start) {
            out.sure.insert(chunk.start);
        }
        code.decode(chunk, &mut instructions);
        for i in &instructions {
            if i.is_jcc_short_or_near()
                || i.is_jmp_short_or_near()
                || i.is_call_near()
                || i.is_jcx_short()
                || i.is_loop()
                || i.is_loopcc()
                || i.code() == Opcode::Xbegin_rel32
            {
                let target = i.near_branch_target();
                if near(target) {
                    out.sure.insert(target);
                }
                continue;
            }
            for operand in 0..i.op_count() {
                let address = match i.op_kind(operand) {
                    OpKind::Memory if i.is_ip_rel_memory_operand() => i.ip_rel_memory_address(),
                    OpKind::Memory => i.memory_displacement64(),
                    OpKind::Immediate32 => u64::from(i.immediate32()),
                    OpKind::Immediate32to64 => i.immediate32to64() as u64,
                    OpKind::Immediate64 => i.immediate64(),
                    _ => continue,
                };
                if near(address) {
                    out.likely.insert(address);
                }
                // A table of offsets or addresses of switch cases or labels.
                if address > 4096 && tables.insert(address) {
                    read_table(code, address, near, &mut out.likely);
                }
            }
        }
    }
    out
}

/// Jump tables are offsets of four bytes from the table (position-independent code) or addresses of eight. What is
/// read beyond a table's end can only forbid, never allow.
fn read_table(code: &Code, table: u64, near: &dyn Fn(u64) -> bool, out: &mut HashSet<u64>) {
    let Some(bytes) = code.data_at(table).or_else(|| {
        let region = code.region(table)?;
        region.bytes.get((table - region.address) as usize..)
    }) else {
        return;
    };
    let add = |target: u64, out: &mut HashSet<u64>| {
        let inside = code.region(target).is_some();
        if inside && near(target) {
            out.insert(target);
        }
        inside
    };
    for word in bytes.chunks_exact(4).take(MAX_TABLE) {
        let offset = i32::from_le_bytes([word[0], word[1], word[2], word[3]]);
        if !add(table.wrapping_add_signed(offset.into()), out) {
            break;
        }
    }
    for word in bytes.chunks_exact(8).take(MAX_TABLE) {
        let address =
            u64::from_le_bytes([word[0], word[1], word[2], word[3], word[4], word[5], word[6], word[7]]);
        if !add(address, out) {
            break;
        }
    }
}

pub(crate) fn scan(code: &Code) -> Result<Scan, String> {
    let near = Near::find(code);
    let mut out = Scan::default();
    if near.0.is_empty() {
        return Ok(out);
    }
    // Most libraries have the two bytes only inside other instructions; they need no search for targets.
    let mut instructions = Vec::new();
    let mut with_calls: Vec<&Chunk> = Vec::new();
    for chunk in code.chunks.iter().filter(|c| c.function || !code.described) {
        if (chunk.start >> 6..=chunk.end >> 6).any(|block| near.0.contains(&block)) {
            code.decode(chunk, &mut instructions);
            if instructions.iter().any(|i| i.code() == Opcode::Syscall) {
                with_calls.push(chunk);
            }
        }
    }
    let targets = if with_calls.is_empty() { Targets::default() } else { targets(code, &|a| near.holds(a)) };
    let mut info = InstructionInfoFactory::new();
    let mut real = HashSet::new();
    for chunk in with_calls {
        code.decode(chunk, &mut instructions);
        let mut free = chunk.start;
        for k in 0..instructions.len() {
            if instructions[k].code() != Opcode::Syscall {
                continue;
            }
            let address = instructions[k].ip();
            if !chunk.function && !plausible(&instructions, k) {
                continue;
            }
            real.insert(address);
            let number = number(&instructions, k, &targets, &mut info);
            let mut miss = |reason| out.missed.push(Missed { address, number, reason });
            if number == Some(RT_SIGRETURN) || is_trampoline(code, chunk, address) {
                miss("unwinders look for the bytes of rt_sigreturn");
                continue;
            }
            // Prefixes are allowed and mean nothing, but the table's form has no room for them.
            if instructions[k].len() != SYSCALL.len() {
                miss("it has prefixes");
                continue;
            }
            match choose(&instructions, k, free, &targets, &mut info) {
                None => miss("fewer than five bytes around it can be moved"),
                Some((start, end, number)) => match site(code, chunk, start, address, end, number) {
                    None => miss("beyond the first four gigabytes of the file"),
                    Some(site) => {
                        free = end;
                        out.sites.push(site);
                    }
                },
            }
        }
    }
    out.sites.sort_by_key(|s| s.offset);
    // One stretch of the file mapped by two sections cannot have two meanings.
    let mut end = 0;
    out.sites.retain(|s| {
        let keep = s.offset as usize >= end;
        if keep {
            end = s.offset as usize + s.length();
        }
        keep
    });
    for region in &code.text {
        let hits = region.bytes.windows(2).enumerate().filter(|(_, w)| *w == SYSCALL);
        out.not_code += hits.filter(|(at, _)| !real.contains(&(region.address + *at as u64))).count();
    }
    Ok(out)
}

/// The bytes that unwinders compare, whatever instructions they were decoded as: `mov $15, %rax; syscall`, with the
/// long and the short form of the move.
fn is_trampoline(code: &Code, chunk: &Chunk, syscall: u64) -> bool {
    let region = &code.text[chunk.region];
    let before = &region.bytes[..(syscall - region.address) as usize];
    before.ends_with(&[0x48, 0xc7, 0xc0, 0x0f, 0, 0, 0]) || before.ends_with(&[0xb8, 0x0f, 0, 0, 0])
}

fn site(code: &Code, chunk: &Chunk, start: u64, syscall: u64, end: u64, number: u16) -> Option<Site> {
    let region = &code.text[chunk.region];
    Some(Site {
        offset: u32::try_from(region.offset + (start - region.address)).ok()?,
        before: u8::try_from(syscall - start).ok()?,
        after: u8::try_from(end - syscall - 2).ok()?,
        number,
    })
}

/// Whether the code around an instruction, from the end of the flow before it to the end of its own, is all code that
/// a program would have. Only asked where neither symbols nor frames say what is code.
fn plausible(instructions: &[Instruction], k: usize) -> bool {
    let ends = |i: &Instruction| {
        matches!(
            i.flow_control(),
            FlowControl::Return | FlowControl::UnconditionalBranch | FlowControl::IndirectBranch
        ) || matches!(i.mnemonic(), Mnemonic::Int3 | Mnemonic::Ud2 | Mnemonic::Hlt)
    };
    let odd = |i: &Instruction| {
        i.is_invalid()
            || (i.is_privileged() && i.mnemonic() != Mnemonic::Hlt)
            || matches!(i.flow_control(), FlowControl::Interrupt) && i.mnemonic() != Mnemonic::Int3
            || matches!(i.mnemonic(), Mnemonic::Retf | Mnemonic::Iretq | Mnemonic::Iretd | Mnemonic::Iret)
    };
    let first = instructions[..k].iter().rposition(ends).map_or(0, |at| at + 1);
    let last = instructions[k..].iter().position(ends).map_or(instructions.len(), |at| k + at + 1);
    !instructions[first..last].iter().any(odd)
}

/// Whether an instruction does the same in another place. Padding is left where it is: it marks a function's start.
fn movable(i: &Instruction) -> bool {
    i.flow_control() == FlowControl::Next
        && !i.is_invalid()
        && !i.is_ip_rel_memory_operand()
        && !i.is_privileged()
        && !matches!(i.mnemonic(), Mnemonic::Nop | Mnemonic::Endbr64 | Mnemonic::Syscall)
}

/// Whether an instruction writes a 64-bit register or a part of it.
pub fn writes(i: &Instruction, register: Register, info: &mut InstructionInfoFactory) -> bool {
    let writes = |a: OpAccess| {
        matches!(a, OpAccess::Write | OpAccess::ReadWrite | OpAccess::CondWrite | OpAccess::ReadCondWrite)
    };
    info.info(i)
        .used_registers()
        .iter()
        .any(|u| u.register().full_register() == register && writes(u.access()))
}

/// The value that an instruction puts into a 64-bit register when it is a constant.
pub fn constant(i: &Instruction, register: Register) -> Option<u64> {
    if i.op0_kind() != OpKind::Register || i.op0_register().full_register() != register {
        return None;
    }
    match i.code() {
        Opcode::Mov_r32_imm32 | Opcode::Mov_rm32_imm32 => Some(i.immediate32().into()),
        Opcode::Mov_rm64_imm32 => Some(i.immediate32to64() as u64),
        Opcode::Xor_r32_rm32 | Opcode::Xor_rm32_r32
            if i.op1_kind() == OpKind::Register && i.op1_register() == i.op0_register() =>
        {
            Some(0)
        }
        _ => None,
    }
}

pub(crate) fn as_number(value: u64) -> Option<u16> {
    u16::try_from(value).ok().filter(|n| *n != NUMBER_UNKNOWN)
}

/// The number of the call when straight-line code before it says so.
pub(crate) fn number(
    instructions: &[Instruction],
    k: usize,
    targets: &Targets,
    info: &mut InstructionInfoFactory,
) -> Option<u16> {
    // Something may arrive at the `syscall` itself with another number.
    let mut at = k;
    for _ in 0..NUMBER_REACH {
        if targets.hit(instructions[at].ip()) || at == 0 {
            return None;
        }
        at -= 1;
        let i = &instructions[at];
        // A conditional branch may fall through; nothing else that changes the flow may.
        if !matches!(i.flow_control(), FlowControl::Next | FlowControl::ConditionalBranch) {
            return None;
        }
        if writes(i, Register::RAX, info) {
            return constant(i, Register::RAX).and_then(as_number);
        }
    }
    None
}

/// The best stretch around `instructions[k]`: its first and last address and the call's number if it is in it.
///
/// Best first: a stretch before that keeps the `syscall` in place and holds the number; one without the number; one
/// over the `syscall`. Memory operands only where there is no other way: a fault would show the stub's address.
fn choose(
    instructions: &[Instruction],
    k: usize,
    free: u64,
    targets: &Targets,
    info: &mut InstructionInfoFactory,
) -> Option<(u64, u64, u16)> {
    let mut best: Option<(usize, (u64, u64, u16))> = None;
    let mut number = NUMBER_UNKNOWN;
    let mut rax_set = false;
    for before in 0..=MAX_BEFORE.min(k) {
        if before > 0 {
            let i = &instructions[k - before];
            if !movable(i) || i.ip() < free {
                break;
            }
            if !rax_set && writes(i, Register::RAX, info) {
                rax_set = true;
                number = constant(i, Register::RAX).and_then(as_number).unwrap_or(NUMBER_UNKNOWN);
            }
        }
        for after in 0..=MAX_AFTER {
            let Some(following) = instructions.get(k + 1..k + 1 + after) else { break };
            if !following.iter().all(movable) {
                break;
            }
            let start = instructions[k - before].ip();
            let end = instructions[k + after].next_ip();
            let keeps = instructions[k].ip() - start >= JUMP_LENGTH as u64;
            // What the jump covers must be enough, and no more than needed behind.
            if end - start < JUMP_LENGTH as u64 || (keeps && after > 0) {
                continue;
            }
            let overwritten = start + 1..start + JUMP_LENGTH as u64;
            let mut covered = instructions[k - before..=k + after].iter();
            if overwritten.clone().any(|a| targets.sure.contains(&a))
                || covered.any(|i| overwritten.contains(&i.ip()) && targets.likely.contains(&i.ip()))
            {
                continue;
            }
            let copied = instructions[k - before..k].iter().chain(following);
            let memory = copied.filter(|i| (0..i.op_count()).any(|o| i.op_kind(o) == OpKind::Memory)).count();
            let class = match (keeps, number != NUMBER_UNKNOWN) {
                (true, true) => 0,
                (true, false) => 1,
                (false, true) => 2,
                (false, false) => 3,
            };
            let cost = class * 100 + memory * 60 + before + after;
            if best.is_none_or(|(least, _)| cost < least) {
                best = Some((cost, (start, end, number)));
            }
        }
    }
    best.map(|(_, chosen)| chosen)
}
