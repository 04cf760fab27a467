// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One-liners: actions separated by `;`, each on a function or tracepoint.
//!
//! ```text
//! count(F)  count(F, KEY)      how often, by key
//! hist(F, VALUE)               powers of two
//! latency(F)                   a histogram of the time from entry to return
//! print(F, VALUE...)           a line each time
//! stacks(F)                    how often, by stack
//!
//! F      name | kernel:name | return name | raw_syscalls:sys_enter and the other tracepoints
//! VALUE  arg0 ... arg5 | ret | comm | pid | tid | time | cpu | ip | NUMBER | FIELD of a tracepoint
//!        | str(VALUE) | u8(VALUE) u16 u32 u64 i32 of memory at VALUE | VALUE + VALUE | VALUE - VALUE
//! ```

use crate::emit::Writer;
use crate::report::{Part, Report};
use crate::{Place, Script};
use api_probes::Kind;
use bpf::bundle::Program;
use bpf::context::Context;
use bpf::helpers::id;
use bpf::insn::{alu, jump};
use bpf::maps::{Kind as MapKind, Spec};

/// Bytes of a string that is printed or a key.
const TEXT: usize = 64;
const COMM: usize = 16;
/// Keys of one table.
const KEYS: u32 = 8192;
/// Where expressions keep what they compute, below the record.
const SCRATCH: i16 = -8;
/// Where keys and records begin, from the top down.
const RECORD: i16 = -16;
const MOST_RECORD: usize = 400;

#[derive(Clone, Debug, PartialEq, Eq)]
enum Token {
    Word(String),
    Number(u64),
    Sign(char),
}

fn tokens(text: &str) -> Result<Vec<Token>, String> {
    let mut out = Vec::new();
    let mut rest = text.chars().peekable();
    while let Some(c) = rest.next() {
        match c {
            c if c.is_whitespace() => {}
            '(' | ')' | ',' | ';' | '+' | '-' => out.push(Token::Sign(c)),
            c if c.is_ascii_digit() => {
                let mut word = String::from(c);
                while let Some(c) = rest.next_if(|c| c.is_ascii_alphanumeric()) {
                    word.push(c);
                }
                let number = match word.strip_prefix("0x") {
                    Some(hex) => u64::from_str_radix(hex, 16),
                    None => word.parse(),
                };
                out.push(Token::Number(number.map_err(|_| format!("{word} is no number"))?));
            }
            c if c.is_alphabetic() || c == '_' => {
                let mut word = String::from(c);
                // Names of C++ and Rust functions have colons, dots, dollars and angle brackets.
                while let Some(c) = rest.next_if(|c| c.is_alphanumeric() || "_:.$@~<>".contains(*c)) {
                    word.push(c);
                }
                out.push(Token::Word(word));
            }
            c => return Err(format!("a '{c}' has no meaning here")),
        }
    }
    Ok(out)
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Value {
    Number(u64),
    /// Bytes of the context: offset, size.
    Field(u16, u16),
    /// The number of a system call, at this offset.
    Call(u16),
    /// A field of characters of the context.
    Chars(u16, u16),
    Helper(i32),
    /// Upper half of `pid_tgid`, or lower.
    Pid,
    Tid,
    Comm,
    Text(Box<Value>),
    /// Memory: size, signed, where.
    Memory(u32, bool, Box<Value>),
    Sum(Box<Value>, Box<Value>, bool),
}

impl Value {
    fn part(&self) -> Part {
        match self {
            Value::Comm => Part::Text(COMM),
            Value::Chars(_, n) => Part::Text(usize::from(*n)),
            Value::Text(_) => Part::Text(TEXT),
            Value::Call(_) => Part::Call,
            Value::Memory(_, true, _) => Part::Signed,
            Value::Helper(id::KTIME_GET_NS) => Part::Time,
            Value::Field(..) | Value::Number(_) | Value::Sum(..) => Part::Signed,
            _ => Part::Unsigned,
        }
    }
}

struct Target {
    name: String,
    kind: Kind,
    context: Context,
}

struct Parser {
    tokens: std::iter::Peekable<std::vec::IntoIter<Token>>,
}

impl Parser {
    fn word(&mut self, what: &str) -> Result<String, String> {
        match self.tokens.next() {
            Some(Token::Word(word)) => Ok(word),
            other => Err(format!("{what} is missing{}", found(other.as_ref()))),
        }
    }

    fn sign(&mut self, sign: char) -> Result<(), String> {
        match self.tokens.next() {
            Some(Token::Sign(c)) if c == sign => Ok(()),
            other => Err(format!("a '{sign}' is missing{}", found(other.as_ref()))),
        }
    }

    fn accept(&mut self, sign: char) -> bool {
        self.tokens.next_if_eq(&Token::Sign(sign)).is_some()
    }

    fn target(&mut self) -> Result<Target, String> {
        let mut name = self.word("the function or tracepoint")?;
        let kind = if name == "return" {
            name = self.word("the function behind `return`")?;
            Kind::Return
        } else {
            Kind::Entry
        };
        if let Some((name, context)) = tracepoint(&name) {
            return Ok(Target { name: name.into(), kind: Kind::Tracepoint, context });
        }
        Ok(Target { name, kind, context: Context::Registers })
    }

    fn value(&mut self, target: &Target) -> Result<Value, String> {
        let mut value = self.operand(target)?;
        loop {
            let minus = match self.tokens.peek() {
                Some(Token::Sign('+')) => false,
                Some(Token::Sign('-')) => true,
                _ => return Ok(value),
            };
            self.tokens.next();
            value = Value::Sum(Box::new(value), Box::new(self.operand(target)?), minus);
        }
    }

    fn operand(&mut self, target: &Target) -> Result<Value, String> {
        let word = match self.tokens.next() {
            Some(Token::Number(n)) => return Ok(Value::Number(n)),
            Some(Token::Word(word)) => word,
            other => return Err(format!("a value is missing{}", found(other.as_ref()))),
        };
        let memory = match word.as_str() {
            "str" => None,
            "u8" => Some((1, false)),
            "u16" => Some((2, false)),
            "u32" => Some((4, false)),
            "u64" => Some((8, false)),
            "i32" => Some((4, true)),
            _ => return plain(&word, target),
        };
        self.sign('(')?;
        let inner = Box::new(self.value(target)?);
        self.sign(')')?;
        Ok(match memory {
            Some((size, signed)) => Value::Memory(size, signed, inner),
            None => Value::Text(inner),
        })
    }
}

fn found(token: Option<&Token>) -> String {
    match token {
        Some(Token::Word(word)) => format!(", and here is {word}"),
        Some(Token::Number(n)) => format!(", and here is {n}"),
        Some(Token::Sign(c)) => format!(", and here is '{c}'"),
        None => " at the end".into(),
    }
}

/// A tracepoint by its name, with or without what is before the colon.
pub fn tracepoint(name: &str) -> Option<(&'static str, Context)> {
    let all = [
        ("raw_syscalls:sys_enter", Context::CallEntry),
        ("raw_syscalls:sys_exit", Context::CallExit),
        ("sched:sched_switch", Context::Switch),
        ("sched:sched_wakeup", Context::Wakeup),
        ("net:receive", Context::Packet),
        ("net:send", Context::Packet),
    ];
    let short = |full: &str| full.split_once(':').is_some_and(|(group, s)| s == name && group != "net");
    all.into_iter().find(|(full, _)| *full == name || short(full))
}

/// Offsets in `struct pt_regs` of the registers that hold arguments (System V ABI 3.2.3).
const ARGUMENTS: [u16; 6] = [112, 104, 96, 88, 72, 64];

fn plain(word: &str, target: &Target) -> Result<Value, String> {
    let registers = target.context == Context::Registers;
    if registers && let Some(n) = word.strip_prefix("arg").and_then(|n| n.parse::<usize>().ok()) {
        if target.kind == Kind::Return {
            return Err("arguments are not there any more at the return: use `ret`".into());
        }
        let offset = ARGUMENTS.get(n).ok_or("there are arg0 to arg5")?;
        return Ok(Value::Field(*offset, 8));
    }
    if target.context == Context::CallEntry
        && let Some(n) = word.strip_prefix("arg").and_then(|n| n.parse::<u16>().ok())
        && n < 6
    {
        return Ok(Value::Field(16 + 8 * n, 8));
    }
    match word {
        "ret" if registers && target.kind == Kind::Return => return Ok(Value::Field(80, 8)),
        "ret" if registers => {
            return Err("`ret` is there at the return: write `return` before the function".into());
        }
        "ip" if registers => return Ok(Value::Field(128, 8)),
        "comm" => return Ok(Value::Comm),
        "pid" => return Ok(Value::Pid),
        "tid" => return Ok(Value::Tid),
        "time" => return Ok(Value::Helper(id::KTIME_GET_NS)),
        "cpu" => return Ok(Value::Helper(id::GET_SMP_PROCESSOR_ID)),
        _ => {}
    }
    let members = target.context.members().iter();
    let numbers = || members.clone().filter(|m| m.kind == bpf::context::Field::Number);
    match numbers().find(|m| m.name == word) {
        Some(m) if m.name == "id" => Ok(Value::Call(m.offset)),
        Some(m) if m.size <= 8 => Ok(Value::Field(m.offset, m.size)),
        Some(m) if m.size == 16 => Ok(Value::Chars(m.offset, m.size)),
        _ => {
            let fields: Vec<&str> = numbers().filter(|m| m.size <= 16).map(|m| m.name).collect();
            Err(format!(
                "there is no value `{word}` here: use {}comm, pid, tid, time, cpu, or {}",
                if registers { "arg0 to arg5, ret, " } else { "" },
                fields.join(", ")
            ))
        }
    }
}

/// Compiles a line.
pub fn compile(text: &str) -> Result<Script, String> {
    let mut parser = Parser { tokens: tokens(text)?.into_iter().peekable() };
    let mut script = Script::default();
    loop {
        if parser.tokens.peek().is_none() {
            break;
        }
        action(&mut parser, &mut script)?;
        if parser.tokens.peek().is_some() {
            parser.sign(';')?;
        }
    }
    if script.bundle.programs.is_empty() {
        return Err("nothing to do: try count(FUNCTION)".into());
    }
    Ok(script)
}

fn action(parser: &mut Parser, script: &mut Script) -> Result<(), String> {
    let action = parser.word("an action")?;
    const ACTIONS: &str = "count, hist, latency, print, stacks";
    if !matches!(action.as_str(), "count" | "hist" | "latency" | "print" | "stacks") {
        return Err(format!("there is no action `{action}`: there are {ACTIONS}"));
    }
    parser.sign('(')?;
    let target = parser.target()?;
    let mut values = Vec::new();
    while parser.accept(',') {
        values.push(parser.value(&target)?);
    }
    parser.sign(')')?;
    let what = match target.kind {
        Kind::Return => format!("return {}", target.name),
        _ => target.name.clone(),
    };
    match (action.as_str(), &values[..]) {
        ("count", []) => count(script, &target, what),
        ("count", [key]) => count_by(script, &target, what, key)?,
        ("hist", [value]) => histogram(script, &target, what, value)?,
        ("latency", []) if target.kind == Kind::Entry => latency(script, &target, what)?,
        ("latency", []) => {
            return Err("latency is from the entry to the return of a function: name just it".into());
        }
        ("print", _) => print(script, &target, &values)?,
        ("stacks", []) => stacks(script, &target, what)?,
        ("hist", _) => return Err("hist takes one value: hist(FUNCTION, arg1)".into()),
        (other, _) => return Err(format!("{other} takes fewer values")),
    }
    Ok(())
}

fn new_map(script: &mut Script, kind: MapKind, key: u32, value: u32, entries: u32) -> (usize, String) {
    let index = script.bundle.maps.len();
    let name = format!("m{index}");
    script.bundle.maps.push(Spec {
        name: name.clone(),
        kind,
        key,
        value,
        entries,
        flags: 0,
        initial: Vec::new(),
    });
    (index, name)
}

fn add(script: &mut Script, target: &Target, kind: Kind, mut w: Writer) {
    w.mov(0, 0);
    w.exit();
    let program = script.bundle.programs.len();
    let name = format!("p{program}");
    script.bundle.programs.push(Program { name, context: target.context, insns: w.insns });
    script.places.push(Place { program, kind, name: target.name.clone() });
}

fn begin() -> Writer {
    let mut w = Writer::default();
    // R6 keeps the context over calls.
    w.copy(6, 1);
    w
}

/// `values[r0 as u32 at SCRATCH]++` of an array.
fn add_one(w: &mut Writer, map: usize) {
    w.stack(2, SCRATCH);
    w.map(1, map);
    w.call(id::MAP_LOOKUP);
    let none = w.jump(jump::JEQ, 0, 0);
    w.mov(1, 1);
    w.atomic_add(0, 0, 1);
    w.land(none);
}

fn count(script: &mut Script, target: &Target, what: String) {
    let (map, name) = new_map(script, MapKind::Array, 4, 8, 1);
    let mut w = Writer::default();
    w.store_imm(4, 10, SCRATCH, 0);
    add_one(&mut w, map);
    add(script, target, target.kind, w);
    script.reports.push(Report::Count { map: name, what });
}

/// Adds one to the value of the key of `size` bytes at `at` on the stack, and makes it 1 if it is new.
fn add_to_key(w: &mut Writer, map: usize, at: i16) {
    w.stack(2, at);
    w.map(1, map);
    w.call(id::MAP_LOOKUP);
    let new = w.jump(jump::JEQ, 0, 0);
    w.mov(1, 1);
    w.atomic_add(0, 0, 1);
    w.mov(0, 0);
    w.exit();
    w.land(new);
    w.mov(1, 1);
    w.store(8, 10, SCRATCH, 1);
    w.stack(2, at);
    w.stack(3, SCRATCH);
    w.mov(4, 0);
    w.map(1, map);
    w.call(id::MAP_UPDATE);
}

fn count_by(script: &mut Script, target: &Target, what: String, key: &Value) -> Result<(), String> {
    let part = key.part();
    let size = part.bytes();
    let (map, name) = new_map(script, MapKind::Hash, size as u32, 8, KEYS);
    let mut w = begin();
    let at = RECORD - size as i16 + 8;
    place(&mut w, key, at)?;
    add_to_key(&mut w, map, at);
    add(script, target, target.kind, w);
    script.reports.push(Report::Counts { map: name, what, key: part });
    Ok(())
}

/// Significant bits of R7 into the word at SCRATCH.
fn bits(w: &mut Writer) {
    w.mov(8, 0);
    // Halving: what is left is shifted to where it is smaller.
    for step in [32, 16, 8, 4, 2, 1] {
        w.copy(1, 7);
        w.op(alu::RSH, 1, step);
        let small = w.jump(jump::JEQ, 1, 0);
        w.copy(7, 1);
        w.op(alu::ADD, 8, step);
        w.land(small);
    }
    // What is left is 0 or 1.
    w.op_reg(alu::ADD, 8, 7);
    w.store(4, 10, SCRATCH, 8);
}

fn histogram(script: &mut Script, target: &Target, what: String, value: &Value) -> Result<(), String> {
    let (map, name) = new_map(script, MapKind::Array, 4, 8, 65);
    let mut w = begin();
    compute(&mut w, value)?;
    w.copy(7, 0);
    bits(&mut w);
    add_one(&mut w, map);
    add(script, target, target.kind, w);
    script.reports.push(Report::Histogram { map: name, what, unit: "" });
    Ok(())
}

fn latency(script: &mut Script, target: &Target, what: String) -> Result<(), String> {
    if target.kind == Kind::Tracepoint {
        return Err("latency is of functions: a tracepoint has no return".into());
    }
    // A thread's calls of the function within itself are taken as one.
    let (starts, _) = new_map(script, MapKind::Hash, 8, 8, KEYS);
    let (map, name) = new_map(script, MapKind::Array, 4, 8, 65);
    let mut w = Writer::default();
    w.call(id::GET_CURRENT_PID_TGID);
    w.store(8, 10, RECORD, 0);
    w.call(id::KTIME_GET_NS);
    w.store(8, 10, SCRATCH, 0);
    w.stack(2, RECORD);
    w.stack(3, SCRATCH);
    w.mov(4, 0);
    w.map(1, starts);
    w.call(id::MAP_UPDATE);
    add(script, target, Kind::Entry, w);
    let mut w = Writer::default();
    w.call(id::GET_CURRENT_PID_TGID);
    w.store(8, 10, RECORD, 0);
    w.stack(2, RECORD);
    w.map(1, starts);
    w.call(id::MAP_LOOKUP);
    let none = w.jump(jump::JEQ, 0, 0);
    w.load(8, 6, 0, 0);
    w.call(id::KTIME_GET_NS);
    w.copy(7, 0);
    w.op_reg(alu::SUB, 7, 6);
    w.stack(2, RECORD);
    w.map(1, starts);
    w.call(id::MAP_DELETE);
    bits(&mut w);
    add_one(&mut w, map);
    w.land(none);
    add(script, target, Kind::Return, w);
    script.reports.push(Report::Histogram { map: name, what, unit: "ns" });
    Ok(())
}

fn print(script: &mut Script, target: &Target, values: &[Value]) -> Result<(), String> {
    let parts: Vec<Part> = values.iter().map(Value::part).collect();
    let size: usize = parts.iter().map(|p| p.bytes()).sum::<usize>().max(8);
    if size > MOST_RECORD {
        return Err(format!(
            "a line of at most {} strings or {} numbers",
            MOST_RECORD / TEXT,
            MOST_RECORD / 8
        ));
    }
    let (map, name) = new_map(script, MapKind::RingBuffer, 0, 0, 256 << 10);
    let mut w = begin();
    let base = RECORD - size as i16 + 8;
    if values.is_empty() {
        w.store_imm(8, 10, base, 0);
    }
    let mut at = base;
    for value in values {
        place(&mut w, value, at)?;
        at += value.part().bytes() as i16;
    }
    w.map(1, map);
    w.stack(2, base);
    w.mov(3, size as i32);
    w.mov(4, 0);
    w.call(id::RINGBUF_OUTPUT);
    add(script, target, target.kind, w);
    script.reports.push(Report::Lines { map: name, parts });
    Ok(())
}

fn stacks(script: &mut Script, target: &Target, what: String) -> Result<(), String> {
    if target.context != Context::Registers {
        return Err("stacks are of functions".into());
    }
    let (stacks, stacks_name) = new_map(script, MapKind::StackTrace, 4, 8 * 64, 2048);
    let (map, name) = new_map(script, MapKind::Hash, 8, 8, KEYS);
    let mut w = begin();
    w.copy(1, 6);
    w.map(2, stacks);
    w.mov(3, 0x100);
    w.call(id::GET_STACKID);
    let failed = w.jump(jump::JSLT, 0, 0);
    w.store(8, 10, RECORD, 0);
    add_to_key(&mut w, map, RECORD);
    w.land(failed);
    add(script, target, target.kind, w);
    script.reports.push(Report::Stacks { map: name, stacks: stacks_name, what });
    Ok(())
}

/// A value into its place on the stack.
fn place(w: &mut Writer, value: &Value, at: i16) -> Result<(), String> {
    match value {
        Value::Comm => {
            w.stack(1, at);
            w.mov(2, COMM as i32);
            w.call(id::GET_CURRENT_COMM);
        }
        Value::Chars(offset, size) => {
            for word in 0..*size as i16 / 8 {
                w.load(8, 1, 6, *offset as i16 + 8 * word);
                w.store(8, 10, at + 8 * word, 1);
            }
        }
        Value::Text(from) => {
            compute(w, from)?;
            w.copy(3, 0);
            w.stack(1, at);
            w.mov(2, TEXT as i32);
            w.call(id::PROBE_READ_USER_STR);
        }
        number => {
            compute(w, number)?;
            w.store(8, 10, at, 0);
        }
    }
    Ok(())
}

/// A number into R0; R6 is the context. Uses SCRATCH, R7 and R1 to R5.
fn compute(w: &mut Writer, value: &Value) -> Result<(), String> {
    match value {
        Value::Number(n) => w.wide(0, *n),
        Value::Call(offset) => w.load(8, 0, 6, *offset as i16),
        Value::Field(offset, size) => {
            w.load((*size).into(), 0, 6, *offset as i16);
            if *size == 4 {
                // pids and priorities are signed.
                w.op(alu::LSH, 0, 32);
                w.op(alu::ARSH, 0, 32);
            }
        }
        Value::Helper(helper) => w.call(*helper),
        Value::Pid => {
            w.call(id::GET_CURRENT_PID_TGID);
            w.op(alu::RSH, 0, 32);
        }
        Value::Tid => {
            w.call(id::GET_CURRENT_PID_TGID);
            w.op(alu::LSH, 0, 32);
            w.op(alu::RSH, 0, 32);
        }
        Value::Memory(size, signed, from) => {
            compute(w, from)?;
            w.copy(3, 0);
            w.store_imm(8, 10, SCRATCH, 0);
            w.stack(1, SCRATCH);
            w.mov(2, *size as i32);
            w.call(id::PROBE_READ_USER);
            w.load(8, 0, 10, SCRATCH);
            if *signed {
                w.op(alu::LSH, 0, 32);
                w.op(alu::ARSH, 0, 32);
            }
        }
        Value::Sum(a, b, minus) => {
            if matches!(**b, Value::Sum(..)) {
                return Err("a sum within a sum".into());
            }
            compute(w, a)?;
            w.copy(9, 0);
            compute(w, b)?;
            w.op_reg(if *minus { alu::SUB } else { alu::ADD }, 9, 0);
            w.copy(0, 9);
        }
        Value::Comm | Value::Text(_) | Value::Chars(..) => return Err("a string is no number".into()),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_action_compiles_to_programs_that_are_verified() {
        for line in [
            "count(processCommand)",
            "count(processCommand, comm)",
            "count(raw_syscalls:sys_enter, id)",
            "count(sys_enter, arg0)",
            "hist(write, arg2)",
            "hist(return read, ret)",
            "latency(processCommand)",
            "print(open, str(arg0), arg1)",
            "print(f, tid, comm, time, u32(arg0 + 8), i32(arg1))",
            "print(sched_switch, prev_comm, prev_pid, next_comm, next_pid)",
            "print(f)",
            "stacks(kernel:alloc)",
            "count(net:receive, len)",
            "print(f, u64(u64(arg0) + 16) - 1)",
            "count(a); latency(b); hist(c, arg0)",
        ] {
            let script = compile(line).unwrap_or_else(|e| panic!("{line}: {e}"));
            script.verify().unwrap_or_else(|e| panic!("{line}: {e}"));
            assert_eq!(bpf::Bundle::decode(&script.bundle.encode()), Ok(script.bundle.clone()));
        }
    }

    #[test]
    fn mistakes_are_named() {
        for (line, why) in [
            ("", "nothing to do"),
            ("count", "a '(' is missing at the end"),
            ("count()", "the function or tracepoint is missing, and here is ')'"),
            ("sum(f)", "there is no action `sum`"),
            ("hist(f)", "hist takes one value"),
            ("print(f, arg6)", "there are arg0 to arg5"),
            ("print(f, ret)", "write `return` before"),
            ("print(return f, arg0)", "not there any more"),
            ("print(sched_switch, id)", "prev_pid"),
            ("latency(sched_switch)", "from the entry to the return"),
            ("count(f) count(g)", "a ';' is missing, and here is count"),
            ("print(f, 12x)", "12x is no number"),
            ("print(f, arg0 ? 1)", "a '?' has no meaning"),
            ("hist(f, comm)", "a string is no number"),
            (
                "print(f,comm,str(arg0),str(arg0),str(arg0),str(arg0),str(arg0),str(arg0),str(arg0))",
                "at most 6 strings",
            ),
        ] {
            let error = compile(line).err().unwrap_or_default();
            assert!(error.contains(why), "{line}: {error}");
        }
    }

    #[test]
    fn any_text_is_compiled_or_refused() {
        let words = [
            "count", "(", ")", ",", ";", "print", "arg0", "str", "u64", "f", "return", "0x", "9", "+", "-",
            "é", "hist",
        ];
        let mut state = 88172645463325252u64;
        for _ in 0..20_000 {
            let mut line = String::new();
            for _ in 0..state % 12 {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                line.push_str(words[state as usize % words.len()]);
            }
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1);
            if let Ok(script) = compile(&line) {
                script.verify().unwrap_or_else(|e| panic!("{line}: {e}"));
            }
        }
    }
}
