// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One-liners: actions separated by `;`, each on a function or tracepoint.
//!
//! ```text
//! count(F)  count(F, KEY)      how often, by key
//! hist(F, VALUE)               powers of two
//! latency(F)                   a histogram of the time from entry to return
//! slow(F, TIME)                a line for each call that took longer
//! between(F, KEY, F, KEY)      a histogram of the time from the one to the other with the same key
//! print(F, VALUE...)           a line each time
//! stacks(F)                    how often, by stack
//!
//! F      PLACE | PLACE if VALUE == VALUE, != < <= > >= (numbers have a sign)
//! PLACE  name | kernel:name | return name | raw_syscalls:sys_enter and the other tracepoints
//!        | perf:sample: 99 times a second while the processor is busy | every TIME
//! VALUE  arg0 ... arg5 | ret | comm | pid | tid | time | cpu | ip | NUMBER | TIME | FIELD of a tracepoint
//!        | the name of a system call: its number | VARIABLE: what is in it | &VARIABLE: where it is
//!        | str(VALUE) | u8(VALUE) u16 u32 u64 i32 of memory at VALUE | VALUE + VALUE | VALUE - VALUE
//! TIME   10ns 10us 10ms 10s
//! ```

mod actions;

use crate::Script;
use crate::report::Part;
use api_probes::Kind;
use bpf::context::Context;
use bpf::helpers::id;
use bpf::insn::jump;

/// Bytes of a string that is printed or a key.
const TEXT: usize = 64;
const COMM: usize = 16;
/// A variable of the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Variable {
    pub address: u64,
    pub size: u64,
}

/// Gives the variable of a name.
pub type Variables<'a> = dyn Fn(&str) -> Option<Variable> + 'a;

#[derive(Clone, Debug, PartialEq, Eq)]
enum Token {
    Word(String),
    Number(u64),
    Sign(char),
    /// The jump that is taken when the comparison does not hold.
    Compare(u8),
}

/// Units of time, in nanoseconds.
const UNITS: [(&str, u64); 4] = [("ns", 1), ("us", 1_000), ("ms", 1_000_000), ("s", 1_000_000_000)];

fn number(word: &str) -> Option<u64> {
    if let Some(hex) = word.strip_prefix("0x") {
        return u64::from_str_radix(hex, 16).ok();
    }
    let (digits, unit) = match word.find(|c: char| !c.is_ascii_digit()) {
        Some(at) => (&word[..at], UNITS.iter().find(|u| u.0 == &word[at..])?.1),
        None => (word, 1),
    };
    digits.parse::<u64>().ok()?.checked_mul(unit)
}

fn tokens(text: &str) -> Result<Vec<Token>, String> {
    let mut out = Vec::new();
    let mut rest = text.chars().peekable();
    while let Some(c) = rest.next() {
        match c {
            c if c.is_whitespace() => {}
            '(' | ')' | ',' | ';' | '+' | '-' | '&' => out.push(Token::Sign(c)),
            '=' | '!' | '<' | '>' => {
                let equal = rest.next_if_eq(&'=').is_some();
                out.push(Token::Compare(match (c, equal) {
                    ('=', true) => jump::JNE,
                    ('!', true) => jump::JEQ,
                    ('<', false) => jump::JSGE,
                    ('<', true) => jump::JSGT,
                    ('>', false) => jump::JSLE,
                    ('>', true) => jump::JSLT,
                    _ => return Err(format!("a single '{c}' has no meaning here: write == or !=")),
                }));
            }
            c if c.is_ascii_digit() => {
                let mut word = String::from(c);
                while let Some(c) = rest.next_if(|c| c.is_ascii_alphanumeric()) {
                    word.push(c);
                }
                out.push(Token::Number(number(&word).ok_or_else(|| format!("{word} is no number"))?));
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
    /// An address in code, at this offset.
    Code(u16),
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
            Value::Code(_) => Part::Function,
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
    interval_ns: u64,
    /// Left side, the jump that is taken when it does not hold, right side.
    condition: Option<(Value, u8, Value)>,
}

impl Target {
    /// For people.
    fn title(&self) -> String {
        match self.kind {
            Kind::Return => format!("return {}", self.name),
            _ => self.name.clone(),
        }
    }
}

struct Parser<'a> {
    tokens: std::iter::Peekable<std::vec::IntoIter<Token>>,
    variables: &'a Variables<'a>,
}

impl Parser<'_> {
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

    /// A place, and the condition behind it.
    fn target(&mut self) -> Result<Target, String> {
        let mut target = self.place()?;
        if self.tokens.next_if_eq(&Token::Word("if".into())).is_some() {
            let left = self.value(&target)?;
            let fails = match self.tokens.next() {
                Some(Token::Compare(fails)) => fails,
                other => return Err(format!("a comparison is missing{}", found(other.as_ref()))),
            };
            let right = self.value(&target)?;
            target.condition = Some((left, fails, right));
        }
        Ok(target)
    }

    fn place(&mut self) -> Result<Target, String> {
        let mut name = self.word("the function or tracepoint")?;
        let mut kind = Kind::Entry;
        if name == "return" {
            name = self.word("the function behind `return`")?;
            kind = Kind::Return;
        } else if name == "every" && matches!(self.tokens.peek(), Some(Token::Number(_))) {
            let Some(Token::Number(interval_ns)) = self.tokens.next() else {
                return Err("a time is missing".into());
            };
            if interval_ns < LEAST_EVERY {
                return Err("every 20ms at most: write for instance `every 1s`".into());
            }
            let (name, context) = (EVERY.into(), Context::Registers);
            return Ok(Target { name, kind: Kind::Tracepoint, context, interval_ns, condition: None });
        }
        let mut context = Context::Registers;
        if let Some((full, own)) = tracepoint(&name) {
            (name, kind, context) = (full.into(), Kind::Tracepoint, own);
        }
        Ok(Target { name, kind, context, interval_ns: 0, condition: None })
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
            Some(Token::Sign('-')) if matches!(self.tokens.peek(), Some(Token::Number(_))) => {
                let Some(Token::Number(n)) = self.tokens.next() else {
                    return Err("a number is missing".into());
                };
                return Ok(Value::Number(n.wrapping_neg()));
            }
            Some(Token::Sign('&')) => {
                let name = self.word("a variable")?;
                let variable =
                    (self.variables)(&name).ok_or_else(|| format!("there is no variable {name}"))?;
                return Ok(Value::Number(variable.address));
            }
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
            _ => return self.plain(&word, target),
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
        Some(Token::Compare(_)) => ", and here is a comparison".into(),
        None => " at the end".into(),
    }
}

/// The tracepoint that a timer hits while the processor is busy.
pub const SAMPLE: &str = "perf:sample";
/// What is hit so often as somebody wants, while what programs write is followed.
pub const EVERY: &str = "timer:every";
/// The machine looks so often, in nanoseconds.
const LEAST_EVERY: u64 = 20_000_000;

/// A tracepoint by its name, with or without what is before the colon.
pub fn tracepoint(name: &str) -> Option<(&'static str, Context)> {
    let all = [
        ("raw_syscalls:sys_enter", Context::CallEntry),
        ("raw_syscalls:sys_exit", Context::CallExit),
        ("sched:sched_switch", Context::Switch),
        ("sched:sched_wakeup", Context::Wakeup),
        ("net:receive", Context::Packet),
        ("net:send", Context::Packet),
        (SAMPLE, Context::Registers),
        ("exceptions:page_fault_user", Context::Fault),
    ];
    let short = |full: &str| {
        full.split_once(':')
            .is_some_and(|(group, s)| s == name && matches!(group, "raw_syscalls" | "sched" | "exceptions"))
    };
    all.into_iter().find(|(full, _)| *full == name || short(full))
}

/// Offsets in `struct pt_regs` of the registers that hold arguments (System V ABI 3.2.3).
const ARGUMENTS: [u16; 6] = [112, 104, 96, 88, 72, 64];

impl Parser<'_> {
    /// A word: a value of the context, the name of a system call, or a variable.
    fn plain(&self, word: &str, target: &Target) -> Result<Value, String> {
        let why = match of_context(word, target) {
            Ok(value) => return Ok(value),
            Err(why) => why,
        };
        if matches!(target.context, Context::CallEntry | Context::CallExit)
            && let Some(row) = syscall_table::ROWS.iter().find(|row| row.name == word)
        {
            return Ok(Value::Number(row.number.into()));
        }
        match (self.variables)(word) {
            Some(Variable { address, size: size @ (1 | 2 | 4 | 8) }) => {
                Ok(Value::Memory(size as u32, false, Box::new(Value::Number(address))))
            }
            Some(Variable { size, .. }) => {
                Err(format!("{word} has {size} bytes: say which, as in u32(&{word} + 8), or str(&{word})"))
            }
            None => Err(why),
        }
    }
}

fn of_context(word: &str, target: &Target) -> Result<Value, String> {
    let registers = target.context == Context::Registers && target.kind != Kind::Tracepoint;
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
        "ip" if target.context == Context::Registers => return Ok(Value::Code(128)),
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
        Some(m) if m.name == "ip" => Ok(Value::Code(m.offset)),
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

/// Compiles a line; `variables` knows those of the machine.
pub fn compile(text: &str, variables: &Variables<'_>) -> Result<Script, String> {
    let mut parser = Parser { tokens: tokens(text)?.into_iter().peekable(), variables };
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

const ACTIONS: [&str; 7] = ["count", "hist", "latency", "slow", "between", "print", "stacks"];

fn action(parser: &mut Parser<'_>, script: &mut Script) -> Result<(), String> {
    let action = parser.word("an action")?;
    if !ACTIONS.contains(&action.as_str()) {
        return Err(format!("there is no action `{action}`: there are {}", ACTIONS.join(", ")));
    }
    parser.sign('(')?;
    let target = parser.target()?;
    if action == "between" {
        return between(parser, script, &target);
    }
    let mut values = Vec::new();
    while parser.accept(',') {
        values.push(parser.value(&target)?);
    }
    parser.sign(')')?;
    let what = target.title();
    let is_function = target.kind == Kind::Entry;
    match (action.as_str(), &values[..]) {
        ("count", []) => actions::count(script, &target, what),
        ("count", [key]) => actions::count_by(script, &target, what, key),
        ("hist", [value]) => actions::histogram(script, &target, what, value),
        ("hist", _) => Err("hist takes one value: hist(FUNCTION, arg1)".into()),
        ("latency", []) if is_function => actions::latency(script, &target, what),
        ("slow", [Value::Number(least)]) if is_function => actions::slow(script, &target, *least),
        ("slow", _) if is_function => Err("slow takes a time: slow(FUNCTION, 10ms)".into()),
        ("latency" | "slow", _) if !is_function => {
            Err(format!("{action} is from the entry to the return of a function: name just it"))
        }
        ("print", _) => actions::print(script, &target, &values),
        ("stacks", []) if target.context == Context::Registers && target.name != EVERY => {
            actions::stacks(script, &target, what)
        }
        ("stacks", []) => Err("stacks are of functions, or of perf:sample".into()),
        (other, _) => Err(format!("{other} takes fewer values")),
    }
}

/// Behind the first target.
fn between(parser: &mut Parser<'_>, script: &mut Script, from: &Target) -> Result<(), String> {
    parser.sign(',')?;
    let from_key = parser.value(from)?;
    parser.sign(',')?;
    let to = parser.target()?;
    parser.sign(',')?;
    let to_key = parser.value(&to)?;
    parser.sign(')')?;
    if [&from_key, &to_key].iter().any(|k| k.part().bytes() != 8) {
        return Err("a string is no key of `between`: use a number".into());
    }
    let what = format!("from {} to {}", from.title(), to.title());
    actions::between(script, (from, &from_key), (&to, &to_key), what)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn compile(text: &str) -> Result<Script, String> {
        super::compile(text, &|name| match name {
            "server" => Some(Variable { address: 0x1000, size: 512 }),
            "counter" => Some(Variable { address: 0x2000, size: 4 }),
            _ => None,
        })
    }

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
            "count(perf:sample, ip)",
            "stacks(perf:sample)",
            "count(page_fault_user if error_code == 6, ip)",
            "print(f, u64(u64(arg0) + 16) - 1)",
            "count(a); latency(b); hist(c, arg0)",
            "count(f if arg1 > 5)",
            "count(sys_exit if ret < 0, id)",
            "print(sys_exit if id == accept4, comm, ret)",
            "latency(f if u32(arg0) != -1)",
            "slow(f, 10ms)",
            "slow(f if arg0 >= 2, 10us)",
            "between(sched_wakeup, pid, sched_switch, next_pid)",
            "between(sys_enter if id == read, tid, sys_exit if id == read, tid)",
            "print(every 1s, counter, u64(&server + 8), str(&server))",
            "hist(f, counter - 1)",
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
            ("count(f if arg0)", "a comparison is missing, and here is ')'"),
            ("count(f if arg0 = 1)", "write == or !="),
            ("count(f if comm == 1)", "a string is no number"),
            ("slow(f)", "slow(FUNCTION, 10ms)"),
            ("slow(net:send, 1ms)", "from the entry to the return"),
            ("between(a, comm, b, tid)", "a string is no key"),
            ("print(every 1ms)", "20ms at most"),
            ("print(f, server)", "server has 512 bytes: say which, as in u32(&server + 8)"),
            ("print(f, &nothing)", "there is no variable nothing"),
            ("stacks(every 1s)", "stacks are of functions"),
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
