// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What can be said of a program without values: every instruction is one, every jump arrives at one, every one can
//! be reached, functions are in one piece and do not call themselves; and which registers matter where.

use super::{Check, Rejection};
use crate::helpers;
use crate::insn::{Insn, REGISTERS, alu, atomic, call, class, jump, load, mode};
use alloc::vec;
use alloc::vec::Vec;
use ordered::Set;

/// Deepest nesting of functions, as in Linux.
pub const MAX_FRAMES: usize = 8;

/// The program's shape.
#[derive(Debug)]
pub struct Flow {
    /// First instruction of each function, in order; 0 is the program.
    pub functions: Vec<usize>,
    /// Where paths meet.
    pub joins: Vec<bool>,
    /// Bit n: R n is read before it is written, from here on.
    pub live: Vec<u16>,
}

fn reject<T>(insns: &[Insn], at: usize, why: &'static str) -> Check<T> {
    Err(Rejection::new(insns, at, why.into()))
}

pub fn read(insns: &[Insn], maps: usize) -> Check<Flow> {
    if insns.is_empty() {
        return reject(insns, 0, "the program is empty");
    }
    let mut second = vec![false; insns.len()];
    let mut at = 0;
    while at < insns.len() {
        if insns[at].is_wide() {
            match insns.get(at + 1) {
                Some(next) if next.op == 0 && next.dst == 0 && next.src == 0 && next.off == 0 => {}
                _ => return reject(insns, at, "the second half of this 64-bit load is missing or damaged"),
            }
            second[at + 1] = true;
        }
        check_insn(insns, at, maps)?;
        at += if insns[at].is_wide() { 2 } else { 1 };
    }
    let mut functions = Set::from([0]);
    let target = |at: usize, distance: i64| -> Check<usize> {
        let to = at as i64 + 1 + distance;
        match usize::try_from(to) {
            Ok(to) if to < insns.len() && !second[to] => Ok(to),
            Ok(to) if to < insns.len() => reject(insns, at, "jumps into the middle of a 64-bit load"),
            _ => reject(insns, at, "jumps out of the program"),
        }
    };
    let each = || (0..insns.len()).filter(|i| !second[*i]);
    for at in each() {
        if insns[at].is_call() && insns[at].src == call::LOCAL {
            functions.insert(target(at, insns[at].imm.into())?);
        }
    }
    let functions: Vec<usize> = functions.into_iter().collect();
    let function_of = |at: usize| functions.partition_point(|f| *f <= at) - 1;
    let mut joins = vec![false; insns.len()];
    let mut calls: Vec<Set<usize>> = vec![Set::new(); functions.len()];
    let mut next: Vec<[Option<usize>; 2]> = vec![[None; 2]; insns.len()];
    for at in each() {
        let insn = insns[at];
        let behind = at + if insn.is_wide() { 2 } else { 1 };
        let falls = !insn.is_exit() && !insn.is_goto();
        if falls {
            if behind >= insns.len() || function_of(behind) != function_of(at) {
                let why =
                    "execution would run past the end of the function: it has to end with exit or a jump";
                return reject(insns, at, why);
            }
            next[at][0] = Some(behind);
        }
        if insn.is_jump() && !insn.is_call() && !insn.is_exit() {
            let to = target(at, insn.distance())?;
            if function_of(to) != function_of(at) {
                return reject(insns, at, "jumps into another function");
            }
            joins[to] = true;
            next[at][1] = Some(to);
        }
        if insn.is_call() && insn.src == call::LOCAL {
            calls[function_of(at)].insert(function_of(target(at, insn.imm.into())?));
        }
    }
    check_reached(insns, &functions, &second, &next)?;
    check_recursion(insns, &functions, &calls)?;
    let live = liveness(insns, &next);
    Ok(Flow { functions, joins, live })
}

fn check_reached(insns: &[Insn], functions: &[usize], second: &[bool], next: &[[Option<usize>; 2]]) -> Check {
    let mut reached = vec![false; insns.len()];
    let mut work = functions.to_vec();
    while let Some(at) = work.pop() {
        if !core::mem::replace(&mut reached[at], true) {
            work.extend(next[at].iter().flatten().filter(|to| !reached[**to]));
        }
    }
    match (0..insns.len()).find(|i| !reached[*i] && !second[*i]) {
        Some(at) => reject(insns, at, "no path leads to this instruction"),
        None => Ok(()),
    }
}

fn check_recursion(insns: &[Insn], functions: &[usize], calls: &[Set<usize>]) -> Check {
    // Functions whose callees are known to end; a pass that adds none while some are left has found a circle.
    let mut done = vec![false; functions.len()];
    loop {
        let before = done.iter().filter(|d| **d).count();
        for f in 0..functions.len() {
            done[f] = done[f] || calls[f].iter().all(|c| done[*c]);
        }
        let after = done.iter().filter(|d| **d).count();
        if after == functions.len() {
            return Ok(());
        }
        if after == before {
            let at = (0..functions.len()).find(|f| !done[*f]).map_or(0, |f| functions[f]);
            return reject(
                insns,
                at,
                "this function calls itself, directly or through others: no bound can be proved",
            );
        }
    }
}

/// Registers read and written.
fn uses(insn: Insn) -> (u16, u16) {
    let (d, s) = (1u16 << insn.dst.min(15), 1u16 << insn.src.min(15));
    let by = if insn.by_register() { s } else { 0 };
    match insn.class() {
        class::LD => (0, d),
        class::LDX => (s, d),
        class::ST => (d, 0),
        class::STX if insn.mode() == mode::ATOMIC => match insn.imm {
            atomic::CMPXCHG => (d | s | 1, 1),
            i if i & atomic::FETCH != 0 => (d | s, s),
            _ => (d | s, 0),
        },
        class::STX => (d | s, 0),
        class::ALU | class::ALU64 => match insn.operation() {
            alu::MOV => (by, d),
            alu::NEG | alu::END => (d, d),
            _ => (d | by, d),
        },
        _ => match insn.operation() {
            jump::JA => (0, 0),
            jump::EXIT => (1, 0),
            jump::CALL => {
                let arguments = match insn.src {
                    call::HELPER => helpers::spec(insn.imm).map_or(5, |h| h.arguments()),
                    _ => 5,
                };
                (((1 << arguments) - 1) << 1, 0b11_1111)
            }
            _ => (d | by, 0),
        },
    }
}

fn liveness(insns: &[Insn], next: &[[Option<usize>; 2]]) -> Vec<u16> {
    let mut live = vec![0u16; insns.len()];
    loop {
        let mut changed = false;
        for at in (0..insns.len()).rev() {
            let after = next[at].iter().flatten().fold(0, |l, to| l | live[*to]);
            let (read, written) = uses(insns[at]);
            let now = read | after & !written | 1 << crate::insn::FRAME;
            changed |= now != live[at];
            live[at] = now;
        }
        if !changed {
            return live;
        }
    }
}

fn check_insn(insns: &[Insn], at: usize, maps: usize) -> Check {
    let insn = insns[at];
    let Insn { dst, src, off, imm, .. } = insn;
    let bad = |why: &'static str| reject(insns, at, why);
    if usize::from(dst) >= REGISTERS || (usize::from(src) >= REGISTERS && !insn.is_wide()) {
        return bad("there is no such register: they are r0 to r10");
    }
    const UNUSED: &str = "a field that has to be zero is not";
    const UNKNOWN: &str = "this is no eBPF instruction";
    let writes_dst = matches!(insn.class(), class::LD | class::LDX | class::ALU | class::ALU64);
    if writes_dst && usize::from(dst) == crate::insn::FRAME {
        return bad("r10 is the frame pointer and cannot be changed");
    }
    match insn.class() {
        class::LD => match (insn.is_wide(), insn.mode()) {
            (true, _) => match src {
                _ if off != 0 => bad(UNUSED),
                load::VALUE => Ok(()),
                load::MAP | load::MAP_VALUE => {
                    if usize::try_from(imm).is_ok_and(|m| m < maps) {
                        Ok(())
                    } else {
                        bad("there is no map with this number")
                    }
                }
                _ => bad(
                    "a 64-bit load of something that this machine has not (a function, a variable of the kernel)",
                ),
            },
            (_, mode::ABS | mode::IND) => {
                bad("legacy packet access: read the packet through its context instead")
            }
            _ => bad(UNKNOWN),
        },
        class::LDX => match insn.mode() {
            _ if imm != 0 => bad(UNUSED),
            mode::MEM => Ok(()),
            mode::MEMSX if insn.size() != 8 => Ok(()),
            _ => bad(UNKNOWN),
        },
        class::ST if insn.mode() == mode::MEM => {
            if src == 0 {
                Ok(())
            } else {
                bad(UNUSED)
            }
        }
        class::STX => match insn.mode() {
            mode::MEM => {
                if imm == 0 {
                    Ok(())
                } else {
                    bad(UNUSED)
                }
            }
            mode::ATOMIC if insn.size() < 4 => bad("atomic operations are on 4 or 8 bytes"),
            mode::ATOMIC => match imm {
                atomic::XCHG | atomic::CMPXCHG => Ok(()),
                _ if matches!(imm & !atomic::FETCH, atomic::ADD | atomic::OR | atomic::AND | atomic::XOR) => {
                    Ok(())
                }
                _ => bad("there is no such atomic operation"),
            },
            _ => bad(UNKNOWN),
        },
        class::ALU | class::ALU64 => match check_alu(insn) {
            Ok(()) => Ok(()),
            Err(why) => bad(why.unwrap_or(if insn.operation() > alu::END { UNKNOWN } else { UNUSED })),
        },
        class::JMP | class::JMP32 => match (insn.operation(), insn.class()) {
            (jump::JA, _) if insn.by_register() => bad(UNKNOWN),
            (jump::JA, class::JMP) if dst == 0 && src == 0 && imm == 0 => Ok(()),
            (jump::JA, class::JMP32) if dst == 0 && src == 0 && off == 0 => Ok(()),
            (jump::JA, _) => bad(UNUSED),
            (jump::CALL | jump::EXIT, class::JMP32) => bad(UNKNOWN),
            (jump::CALL, _) if insn.by_register() => bad("calls through a register do not exist here"),
            (jump::CALL, _) if dst != 0 || off != 0 => bad(UNUSED),
            (jump::CALL, _) => match src {
                call::LOCAL => Ok(()),
                // That one is allowed where a program never gets to.
                call::HELPER if helpers::spec(imm).is_some() || imm == helpers::ABSENT_MEMBER => Ok(()),
                call::HELPER => Err(Rejection::new(insns, at, helpers::unknown(imm))),
                _ => bad("calls of kernel functions (kfunc) do not exist here"),
            },
            (jump::EXIT, _) if insn.by_register() => bad(UNKNOWN),
            (jump::EXIT, _) => {
                if dst == 0 && src == 0 && off == 0 && imm == 0 {
                    Ok(())
                } else {
                    bad(UNUSED)
                }
            }
            (jump::JEQ..=jump::JSLE, _) => match insn.by_register() {
                true if imm != 0 => bad(UNUSED),
                false if src != 0 => bad(UNUSED),
                _ => Ok(()),
            },
            _ => bad(UNKNOWN),
        },
        _ => bad(UNKNOWN),
    }
}

/// `Err(None)` where a field that is not used is set, or the operation does not exist.
fn check_alu(insn: Insn) -> Result<(), Option<&'static str>> {
    let Insn { src, off, imm, .. } = insn;
    let wide = insn.class() == class::ALU64;
    let by = insn.by_register();
    let fields = if by { imm == 0 } else { src == 0 };
    let ok = match insn.operation() {
        alu::END => {
            let sizes = matches!(imm, 16 | 32 | 64);
            return if sizes && src == 0 && off == 0 && !(wide && by) {
                Ok(())
            } else {
                Err(Some("byte order is changed in 16, 32 or 64 bits"))
            };
        }
        alu::NEG => !by && src == 0 && imm == 0 && off == 0,
        alu::MOV => match off {
            0 => fields,
            8 | 16 => by && fields,
            32 => by && wide && fields,
            _ => false,
        },
        alu::DIV | alu::MOD => {
            if !by && imm == 0 {
                return Err(Some("divides by zero"));
            }
            fields && (off == 0 || off == 1)
        }
        alu::LSH | alu::RSH | alu::ARSH => {
            let width = if wide { 64 } else { 32 };
            if !by && !(0..width).contains(&imm) {
                return Err(Some("shifts by more than the width of the register"));
            }
            fields && off == 0
        }
        alu::ADD..=alu::ARSH => fields && off == 0,
        _ => false,
    };
    if ok { Ok(()) } else { Err(None) }
}
