// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A seccomp profile (`linux.seccomp`, runtime-spec, config-linux.md) as a program of classic BPF that the machine's kernel runs for
//! each system call of the container (seccomp(2)).
//!
//! The answers are those of libseccomp as runc calls it. Calls are told apart by their number with a binary search, so that one costs
//! some ten instructions however long the profile is. Crates that write such programs (seccompiler) have one action for all
//! calls that match, and profiles have one for each.

use oci_spec::runtime::{
    Arch, LinuxSeccomp, LinuxSeccompAction as Action, LinuxSeccompArg, LinuxSeccompOperator as Operator,
    LinuxSyscall,
};
use std::collections::BTreeMap;

/// Instructions of one program, at most (Linux' BPF_MAXINSNS).
const MAX_INSTRUCTIONS: usize = 4096;
const EPERM: u32 = 1;
const ENOSYS: u32 = 38;
/// Largest number of an error that a filter may answer with.
const MAX_ERRNO: u32 = 4095;

// What a program answers (linux/seccomp.h).
const KILL_PROCESS: u32 = 0x8000_0000;
const KILL_THREAD: u32 = 0;
const TRAP: u32 = 0x0003_0000;
const ERRNO: u32 = 0x0005_0000;
const LOG: u32 = 0x7ffc_0000;
const ALLOW: u32 = 0x7fff_0000;

/// AUDIT_ARCH_X86_64
const ARCHITECTURE: u32 = 0xc000_003e;
/// The bit of the numbers of the x32 ABI.
const X32: u32 = 0x4000_0000;
/// The number of a call that a tracer took away.
const NO_CALL: u32 = u32::MAX;

// `struct seccomp_data`: where the number, the architecture and the arguments are.
const NUMBER: u32 = 0;
const ARCHITECTURE_AT: u32 = 4;
const ARGUMENTS: u32 = 16;
/// Arguments that a call has.
const MAX_ARGUMENTS: usize = 6;

// Instructions (linux/bpf_common.h).
const LOAD: u16 = 0x20;
const AND: u16 = 0x54;
const JUMP: u16 = 0x05;
const IF_EQUAL: u16 = 0x15;
const IF_GREATER: u16 = 0x25;
const IF_AT_LEAST: u16 = 0x35;
const RETURN: u16 = 0x06;

type Result<T> = std::result::Result<T, String>;

/// `struct sock_filter`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Instruction {
    code: u16,
    /// How many instructions are passed over where the condition is true, and where it is false.
    if_true: u8,
    if_false: u8,
    k: u32,
}

impl Instruction {
    fn new(code: u16, k: u32) -> Instruction {
        Instruction { code, if_true: 0, if_false: 0, k }
    }

    /// The instruction as a number that is in memory as the structure is, in a little-endian machine.
    fn word(self) -> u64 {
        let Instruction { code, if_true, if_false, k } = self;
        u64::from(code) | u64::from(if_true) << 16 | u64::from(if_false) << 24 | u64::from(k) << 32
    }
}

/// What becomes of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Decision {
    Answer(u32),
    /// The answer of the first rule all of whose conditions are true, or else the default.
    Rules(Vec<(Vec<LinuxSeccompArg>, u32)>),
}

/// The program of a profile, each instruction as a number. The error names what of the profile is wrong.
pub fn compile(profile: &LinuxSeccomp) -> Result<Vec<u64>> {
    if profile.listener_path().is_some() {
        return Err(
            "linux.seccomp.listenerPath: no process of the host is asked about a machine's system calls"
                .into(),
        );
    }
    let default = answer(profile.default_action(), profile.default_errno_ret())?;
    let mut calls: BTreeMap<u32, Decision> = BTreeMap::new();
    let mut last = None;
    for rule in profile.syscalls().iter().flatten() {
        add(&mut calls, &mut last, rule, default)?;
    }
    let architectures = profile.architectures().iter().flatten();
    let has_x32 = architectures.into_iter().any(|known| *known == Arch::ScmpArchX32);
    let out = program(&calls, default, above(default, last), has_x32);
    if out.len() > MAX_INSTRUCTIONS {
        return Err(format!(
            "linux.seccomp: the profile needs {} instructions; a filter can have {MAX_INSTRUCTIONS}",
            out.len()
        ));
    }
    Ok(out.into_iter().map(Instruction::word).collect())
}

/// What a program answers for an action.
fn answer(action: Action, errno: Option<u32>) -> Result<u32> {
    Ok(match action {
        Action::ScmpActAllow => ALLOW,
        Action::ScmpActLog => LOG,
        Action::ScmpActTrap => TRAP,
        Action::ScmpActKill | Action::ScmpActKillThread => KILL_THREAD,
        Action::ScmpActKillProcess => KILL_PROCESS,
        Action::ScmpActErrno => match errno.unwrap_or(EPERM) {
            number if number <= MAX_ERRNO => ERRNO | number,
            number => return Err(format!("linux.seccomp: {number} is no error number")),
        },
        Action::ScmpActTrace => {
            return Err(
                "linux.seccomp: SCMP_ACT_TRACE: no process of the host traces a machine's programs".into()
            );
        }
        Action::ScmpActNotify => {
            return Err(
                "linux.seccomp: SCMP_ACT_NOTIFY: no process of the host is asked about a machine's system calls".into()
            );
        }
    })
}

/// What calls are answered that are newer than all that the profile names: that they are not there, so that programs do without them
/// (as runc has it), unless the profile allows what it does not name.
fn above(default: u32, last: Option<u32>) -> Option<(u32, u32)> {
    let is_refusal = default != ALLOW && default != LOG;
    let first = last?.checked_add(1)?;
    is_refusal.then_some((first, ERRNO | ENOSYS))
}

/// The number of a call; `None` where this architecture has none of that name.
fn number(name: &str) -> Option<u32> {
    syscall_table::ROWS.iter().find(|row| row.name == name).map(|row| row.number)
}

/// Adds a rule for each call that it names.
fn add(
    calls: &mut BTreeMap<u32, Decision>,
    last: &mut Option<u32>,
    rule: &LinuxSyscall,
    default: u32,
) -> Result<()> {
    let answer = answer(rule.action(), rule.errno_ret())?;
    let conditions = rule.args().clone().unwrap_or_default();
    if let Some(wrong) = conditions.iter().find(|condition| condition.index() >= MAX_ARGUMENTS) {
        let name = rule.names().first().map_or("", String::as_str);
        return Err(format!(
            "linux.seccomp: a rule of {name}: argument {}: there are {MAX_ARGUMENTS}",
            wrong.index()
        ));
    }
    let numbers: Vec<u32> = rule.names().iter().filter_map(|name| number(name)).collect();
    *last = numbers.iter().copied().chain(*last).max();
    // It says what is so without it.
    if answer == default {
        return Ok(());
    }
    // Several conditions on one argument are rules of their own, as with runc: one of them is enough.
    let mut seen = [false; MAX_ARGUMENTS];
    let is_repeated =
        conditions.iter().any(|condition| std::mem::replace(&mut seen[condition.index()], true));
    let rules: Vec<Vec<LinuxSeccompArg>> = match is_repeated {
        true => conditions.into_iter().map(|condition| vec![condition]).collect(),
        false => vec![conditions],
    };
    for number in numbers {
        for conditions in &rules {
            let there = calls.entry(number).or_insert(Decision::Rules(Vec::new()));
            match there {
                // The wider rule holds; of two that are as wide the stronger action.
                Decision::Answer(before) if conditions.is_empty() => *before = stronger(*before, answer),
                Decision::Answer(_) => {}
                Decision::Rules(_) if conditions.is_empty() => *there = Decision::Answer(answer),
                Decision::Rules(list) => list.push((conditions.clone(), answer)),
            }
        }
    }
    Ok(())
}

/// Of two answers the one that Linux takes where two filters differ.
fn stronger(a: u32, b: u32) -> u32 {
    // KILL_PROCESS is the strongest, by its sign.
    if (a as i32) < b as i32 { a } else { b }
}

fn program(
    calls: &BTreeMap<u32, Decision>,
    default: u32,
    above: Option<(u32, u32)>,
    has_x32: bool,
) -> Vec<Instruction> {
    // Where what is decided changes, and to what, in ascending order from number 0 on.
    let mut ranges: Vec<(u32, Decision)> = vec![(0, Decision::Answer(default))];
    let mut begin = |number: u32, decision: Decision| match ranges.last_mut() {
        Some((first, before)) if *first == number => *before = decision,
        Some((_, before)) if *before == decision => {}
        _ => ranges.push((number, decision)),
    };
    for (number, decision) in calls {
        begin(*number, decision.clone());
        begin(*number + 1, Decision::Answer(default));
    }
    if let Some((first, answer)) = above {
        begin(first, Decision::Answer(answer));
    }
    if !has_x32 {
        begin(X32, Decision::Answer(KILL_THREAD));
        begin(NO_CALL, Decision::Answer(default));
    }
    let mut out = vec![
        Instruction::new(LOAD, ARCHITECTURE_AT),
        Instruction { if_true: 1, ..Instruction::new(IF_EQUAL, ARCHITECTURE) },
        Instruction::new(RETURN, KILL_THREAD),
        Instruction::new(LOAD, NUMBER),
    ];
    out.extend(search(&ranges, default));
    out
}

/// Finds the range of the number that was loaded, and decides.
fn search(ranges: &[(u32, Decision)], default: u32) -> Vec<Instruction> {
    match ranges {
        [] => vec![Instruction::new(RETURN, default)],
        [(_, decision)] => decide(decision, default),
        _ => {
            let (low, high) = ranges.split_at(ranges.len() / 2);
            let middle = high[0].0;
            let (low, high) = (search(low, default), search(high, default));
            let mut out = Vec::with_capacity(low.len() + high.len() + 2);
            match u8::try_from(low.len()) {
                Ok(distance) => {
                    out.push(Instruction { if_true: distance, ..Instruction::new(IF_AT_LEAST, middle) });
                }
                Err(_) => {
                    out.push(Instruction { if_false: 1, ..Instruction::new(IF_AT_LEAST, middle) });
                    out.push(Instruction::new(JUMP, low.len() as u32));
                }
            }
            out.extend(low);
            out.extend(high);
            out
        }
    }
}

fn decide(decision: &Decision, default: u32) -> Vec<Instruction> {
    let rules = match decision {
        Decision::Answer(answer) => return vec![Instruction::new(RETURN, *answer)],
        Decision::Rules(rules) => rules,
    };
    let mut out = Vec::new();
    for (conditions, answer) in rules {
        out.extend(rule(conditions, *answer));
    }
    out.push(Instruction::new(RETURN, default));
    out
}

/// Where a comparison leads.
#[derive(Clone, Copy)]
enum To {
    /// Over that many instructions.
    Over(u8),
    /// Behind the rule.
    Out,
}

/// Answers where all conditions are true, and goes on behind itself where one is not. Six conditions at most, so it is short enough
/// for any jump.
fn rule(conditions: &[LinuxSeccompArg], answer: u32) -> Vec<Instruction> {
    let mut out: Vec<(Instruction, To, To)> = Vec::new();
    for condition in conditions {
        out.extend(compare(condition));
    }
    out.push((Instruction::new(RETURN, answer), To::Over(0), To::Over(0)));
    let length = out.len();
    let place = |(n, (instruction, if_true, if_false)): (usize, &(Instruction, To, To))| {
        let distance = |to: &To| match to {
            To::Over(count) => *count,
            To::Out => (length - n - 1) as u8,
        };
        Instruction { if_true: distance(if_true), if_false: distance(if_false), ..*instruction }
    };
    out.iter().enumerate().map(place).collect()
}

/// Goes on behind itself where the condition is true: 64 bits, in two words, the upper one first.
fn compare(condition: &LinuxSeccompArg) -> Vec<(Instruction, To, To)> {
    use To::{Out, Over};
    let at = ARGUMENTS + 8 * condition.index() as u32;
    let (upper, lower) = (|value: u64| (value >> 32) as u32, |value: u64| value as u32);
    let plain = |code: u16, k: u32| (Instruction::new(code, k), Over(0), Over(0));
    let jump = |code: u16, k: u32, if_true: To, if_false: To| (Instruction::new(code, k), if_true, if_false);
    let (high, low) = (plain(LOAD, at + 4), plain(LOAD, at));
    let value = condition.value();
    let (h, l) = (upper(value), lower(value));
    match condition.op() {
        Operator::ScmpCmpEq => {
            vec![high, jump(IF_EQUAL, h, Over(0), Out), low, jump(IF_EQUAL, l, Over(0), Out)]
        }
        Operator::ScmpCmpNe => {
            vec![high, jump(IF_EQUAL, h, Over(0), Over(2)), low, jump(IF_EQUAL, l, Out, Over(0))]
        }
        Operator::ScmpCmpGt | Operator::ScmpCmpGe => {
            let code = if condition.op() == Operator::ScmpCmpGt { IF_GREATER } else { IF_AT_LEAST };
            vec![
                high,
                jump(IF_GREATER, h, Over(3), Over(0)),
                jump(IF_EQUAL, h, Over(0), Out),
                low,
                jump(code, l, Over(0), Out),
            ]
        }
        Operator::ScmpCmpLt | Operator::ScmpCmpLe => {
            let code = if condition.op() == Operator::ScmpCmpLe { IF_GREATER } else { IF_AT_LEAST };
            vec![
                high,
                jump(IF_GREATER, h, Out, Over(0)),
                jump(IF_EQUAL, h, Over(0), Over(2)),
                low,
                jump(code, l, Out, Over(0)),
            ]
        }
        Operator::ScmpCmpMaskedEq => {
            let wanted = condition.value_two().unwrap_or(0);
            vec![
                high,
                plain(AND, h),
                jump(IF_EQUAL, upper(wanted), Over(0), Out),
                low,
                plain(AND, l),
                jump(IF_EQUAL, lower(wanted), Over(0), Out),
            ]
        }
    }
}

#[cfg(test)]
mod tests;
