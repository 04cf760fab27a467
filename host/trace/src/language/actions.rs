// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the actions of a line become: maps, programs and reports.

use super::{COMM, TEXT, Target, Value};
use crate::emit::{Forward, Writer};
use crate::report::{Part, Report};
use crate::{Place, Script};
use api_probes::Kind;
use bpf::bundle::Program;
use bpf::helpers::id;
use bpf::insn::{alu, jump};
use bpf::maps::{Kind as MapKind, Spec};

/// Keys of one table.
const KEYS: u32 = 8192;
/// Where expressions keep what they compute, below the record.
const SCRATCH: i16 = -8;
/// Where keys and records begin, from the top down.
const RECORD: i16 = -16;
const MAX_RECORD: usize = 400;

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

/// A program that is being written, and the jump to its end where the condition does not hold.
struct Body {
    w: Writer,
    skip: Option<Forward>,
}

fn add(script: &mut Script, target: &Target, kind: Kind, body: Body) {
    let mut w = body.w;
    if let Some(skip) = body.skip {
        w.land(skip);
    }
    w.mov(0, 0);
    w.exit();
    let program = script.bundle.programs.len();
    let name = format!("p{program}");
    script.bundle.programs.push(Program { name, context: target.context, insns: w.insns });
    let interval_ns = target.interval_ns;
    script.places.push(Place { program, kind, name: target.name.clone(), interval_ns });
}

/// R6 keeps the context over calls. What follows runs where the condition holds.
fn begin(target: &Target) -> Result<Body, String> {
    let mut w = Writer::default();
    w.copy(6, 1);
    let mut skip = None;
    if let Some((left, fails, right)) = &target.condition {
        compute(&mut w, left)?;
        w.store(8, 10, RECORD, 0);
        compute(&mut w, right)?;
        w.load(8, 1, 10, RECORD);
        skip = Some(w.jump_reg(*fails, 1, 0));
    }
    Ok(Body { w, skip })
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

pub(super) fn count(script: &mut Script, target: &Target, what: String) -> Result<(), String> {
    let (map, name) = new_map(script, MapKind::Array, 4, 8, 1);
    // A program that leaves its context alone is called without one, which is most of what it costs.
    let mut body = match target.condition {
        None => Body { w: Writer::default(), skip: None },
        Some(_) => begin(target)?,
    };
    body.w.value(1, map);
    body.w.mov(2, 1);
    body.w.atomic_add(1, 0, 2);
    add(script, target, target.kind, body);
    script.reports.push(Report::Count { map: name, what });
    Ok(())
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

pub(super) fn count_by(
    script: &mut Script,
    target: &Target,
    what: String,
    key: &Value,
) -> Result<(), String> {
    let part = key.part();
    let size = part.bytes();
    let (map, name) = new_map(script, MapKind::Hash, size as u32, 8, KEYS);
    let mut body = begin(target)?;
    let at = RECORD - size as i16 + 8;
    place(&mut body.w, key, at)?;
    add_to_key(&mut body.w, map, at);
    add(script, target, target.kind, body);
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

pub(super) fn histogram(
    script: &mut Script,
    target: &Target,
    what: String,
    value: &Value,
) -> Result<(), String> {
    let (map, name) = new_map(script, MapKind::Array, 4, 8, 65);
    let mut body = begin(target)?;
    compute(&mut body.w, value)?;
    body.w.copy(7, 0);
    bits(&mut body.w);
    add_one(&mut body.w, map);
    add(script, target, target.kind, body);
    script.reports.push(Report::Histogram { map: name, what, unit: "" });
    Ok(())
}

/// Remembers when the key at RECORD began.
fn start(w: &mut Writer, starts: usize) {
    w.call(id::KTIME_GET_NS);
    w.store(8, 10, SCRATCH, 0);
    w.stack(2, RECORD);
    w.stack(3, SCRATCH);
    w.mov(4, 0);
    w.map(1, starts);
    w.call(id::MAP_UPDATE);
}

/// The time since the key at RECORD began into R7, which then begins no more; the jump is taken where it did not begin.
fn elapsed(w: &mut Writer, starts: usize) -> Forward {
    w.stack(2, RECORD);
    w.map(1, starts);
    w.call(id::MAP_LOOKUP);
    let none = w.jump(jump::JEQ, 0, 0);
    w.load(8, 8, 0, 0);
    w.call(id::KTIME_GET_NS);
    w.copy(7, 0);
    w.op_reg(alu::SUB, 7, 8);
    w.stack(2, RECORD);
    w.map(1, starts);
    w.call(id::MAP_DELETE);
    none
}

/// The thread as a key. A thread's calls of a function within itself are taken as one.
fn thread(w: &mut Writer) {
    w.call(id::GET_CURRENT_PID_TGID);
    w.store(8, 10, RECORD, 0);
}

/// A histogram of R7 in nanoseconds.
fn time_histogram(script: &mut Script, what: String, w: &mut Writer) {
    let (map, name) = new_map(script, MapKind::Array, 4, 8, 65);
    bits(w);
    add_one(w, map);
    script.reports.push(Report::Histogram { map: name, what, unit: "ns" });
}

pub(super) fn latency(script: &mut Script, target: &Target, what: String) -> Result<(), String> {
    let (starts, _) = new_map(script, MapKind::Hash, 8, 8, KEYS);
    let mut body = begin(target)?;
    thread(&mut body.w);
    start(&mut body.w, starts);
    add(script, target, Kind::Entry, body);
    let mut w = Writer::default();
    thread(&mut w);
    let none = elapsed(&mut w, starts);
    time_histogram(script, what, &mut w);
    add(script, target, Kind::Return, Body { w, skip: Some(none) });
    Ok(())
}

/// The time from one event to another with the same key.
pub(super) fn between(
    script: &mut Script,
    (from, from_key): (&Target, &Value),
    (to, to_key): (&Target, &Value),
    what: String,
) -> Result<(), String> {
    let (starts, _) = new_map(script, MapKind::Hash, 8, 8, KEYS);
    let mut body = begin(from)?;
    place(&mut body.w, from_key, RECORD)?;
    start(&mut body.w, starts);
    add(script, from, from.kind, body);
    let mut body = begin(to)?;
    place(&mut body.w, to_key, RECORD)?;
    let none = elapsed(&mut body.w, starts);
    time_histogram(script, what, &mut body.w);
    body.w.land(none);
    add(script, to, to.kind, body);
    Ok(())
}

/// A line for each call that took longer: when it ended, the thread's name and number, how long it took.
pub(super) fn slow(script: &mut Script, target: &Target, least_ns: u64) -> Result<(), String> {
    let (starts, _) = new_map(script, MapKind::Hash, 8, 8, KEYS);
    let (ring, name) = new_map(script, MapKind::RingBuffer, 0, 0, RING);
    let mut body = begin(target)?;
    thread(&mut body.w);
    start(&mut body.w, starts);
    add(script, target, Kind::Entry, body);
    let parts = vec![Part::Time, Part::Text(COMM), Part::Unsigned, Part::Elapsed];
    let size: usize = parts.iter().map(|p| p.bytes()).sum();
    let base = RECORD - size as i16;
    let mut w = Writer::default();
    thread(&mut w);
    let none = elapsed(&mut w, starts);
    w.wide(1, least_ns);
    let quick = w.jump_reg(jump::JLT, 7, 1);
    w.call(id::KTIME_GET_NS);
    w.store(8, 10, base, 0);
    place(&mut w, &Value::Comm, base + 8)?;
    place(&mut w, &Value::Tid, base + 24)?;
    w.store(8, 10, base + 32, 7);
    send(&mut w, ring, base, size);
    w.land(quick);
    add(script, target, Kind::Return, Body { w, skip: Some(none) });
    script.reports.push(Report::Lines { map: name, parts });
    Ok(())
}

/// Bytes of lines that wait to be read.
const RING: u32 = 256 << 10;

/// The record on the stack goes to the ring buffer.
fn send(w: &mut Writer, ring: usize, at: i16, size: usize) {
    w.map(1, ring);
    w.stack(2, at);
    w.mov(3, size as i32);
    w.mov(4, 0);
    w.call(id::RINGBUF_OUTPUT);
}

pub(super) fn print(script: &mut Script, target: &Target, values: &[Value]) -> Result<(), String> {
    let parts: Vec<Part> = values.iter().map(Value::part).collect();
    let size: usize = parts.iter().map(|p| p.bytes()).sum::<usize>().max(8);
    if size > MAX_RECORD {
        return Err(format!("a line of at most {} strings or {} numbers", MAX_RECORD / TEXT, MAX_RECORD / 8));
    }
    let (map, name) = new_map(script, MapKind::RingBuffer, 0, 0, RING);
    let mut body = begin(target)?;
    let w = &mut body.w;
    let base = RECORD - size as i16 + 8;
    if values.is_empty() {
        w.store_imm(8, 10, base, 0);
    }
    let mut at = base;
    for value in values {
        place(w, value, at)?;
        at += value.part().bytes() as i16;
    }
    send(w, map, base, size);
    add(script, target, target.kind, body);
    script.reports.push(Report::Lines { map: name, parts });
    Ok(())
}

pub(super) fn stacks(script: &mut Script, target: &Target, what: String) -> Result<(), String> {
    let (stacks, stacks_name) = new_map(script, MapKind::StackTrace, 4, 8 * 64, 2048);
    let (map, name) = new_map(script, MapKind::Hash, 8, 8, KEYS);
    let mut body = begin(target)?;
    let w = &mut body.w;
    w.copy(1, 6);
    w.map(2, stacks);
    w.mov(3, 0x100);
    w.call(id::GET_STACKID);
    let failed = w.jump(jump::JSLT, 0, 0);
    w.store(8, 10, RECORD, 0);
    add_to_key(w, map, RECORD);
    w.land(failed);
    add(script, target, target.kind, body);
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
        Value::Call(offset) | Value::Code(offset) => w.load(8, 0, 6, *offset as i16),
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
