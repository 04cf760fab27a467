// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Helper functions: which there are, what arguments they accept, and what they do.
//!
//! Numbers and behaviour are Linux' (`enum bpf_func_id`). Of the paper's (table 4), `puts` is not Linux' and has its
//! number there plus [`PAPER`]; maps and `probe_read` are Linux', and `get_addr` is what loading does with `extern …
//! __ksym`.

use crate::maps::{Kind, LONGEST_KEY, Map, MapError};
use crate::print;
use alloc::borrow::Cow;
use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;

/// Added to the numbers of the paper's helpers (table 4).
pub const PAPER: i32 = 0x1000;

/// The first number of helpers that are neither Linux' nor the paper's.
pub const OWN: i32 = 0x1100;

/// What a helper wants in a register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arg {
    None,
    /// Any number.
    Number,
    /// Anything, or nothing at all: what the format does not name is not there.
    Optional,
    /// A map of a fitting kind.
    Map,
    /// As many bytes as the map's keys have.
    Key,
    /// As many bytes as the map's values have.
    Value,
    Context,
    /// Initialised memory; its size is in the next argument.
    Read,
    /// Memory to be filled; its size is in the next argument.
    Write,
    Size,
    /// A size that may be zero.
    SizeOrZero,
    /// A size that is known when the program is verified.
    KnownSize,
    /// A record that [`Ret::Record`] gave.
    Record,
}

/// What a helper answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ret {
    Number,
    /// A pointer to a value of the map, or null.
    Value,
    /// A pointer to a record of the ring buffer, or null; to be submitted or discarded.
    Record,
}

/// A helper's signature.
#[derive(Debug)]
pub struct Helper {
    pub id: i32,
    pub name: &'static str,
    pub args: [Arg; 5],
    pub ret: Ret,
    /// Kinds of map that it works on.
    maps: &'static [Kind],
}

impl Helper {
    pub fn arguments(&self) -> u32 {
        self.args.iter().filter(|a| **a != Arg::None).count() as u32
    }

    pub fn accepts(&self, kind: Kind) -> bool {
        self.maps.contains(&kind)
    }
}

pub mod id {
    use super::PAPER;
    pub const MAP_LOOKUP: i32 = 1;
    pub const MAP_UPDATE: i32 = 2;
    pub const MAP_DELETE: i32 = 3;
    pub const PROBE_READ: i32 = 4;
    pub const KTIME_GET_NS: i32 = 5;
    pub const TRACE_PRINTK: i32 = 6;
    pub const GET_PRANDOM_U32: i32 = 7;
    pub const GET_SMP_PROCESSOR_ID: i32 = 8;
    pub const GET_CURRENT_PID_TGID: i32 = 14;
    pub const GET_CURRENT_UID_GID: i32 = 15;
    pub const GET_CURRENT_COMM: i32 = 16;
    pub const GET_STACKID: i32 = 27;
    pub const PROBE_READ_STR: i32 = 45;
    pub const GET_STACK: i32 = 67;
    pub const PROBE_READ_USER: i32 = 112;
    pub const PROBE_READ_KERNEL: i32 = 113;
    pub const PROBE_READ_USER_STR: i32 = 114;
    pub const PROBE_READ_KERNEL_STR: i32 = 115;
    pub const KTIME_GET_BOOT_NS: i32 = 125;
    pub const RINGBUF_OUTPUT: i32 = 130;
    pub const RINGBUF_RESERVE: i32 = 131;
    pub const RINGBUF_SUBMIT: i32 = 132;
    pub const RINGBUF_DISCARD: i32 = 133;
    pub const RINGBUF_QUERY: i32 = 134;
    pub const GET_FUNC_IP: i32 = 173;
    pub const PUTS: i32 = PAPER + 7;
    pub const PROGRAM_REGS: i32 = super::OWN;
}

const fn h(id: i32, name: &'static str, args: &[Arg], ret: Ret, maps: &'static [Kind]) -> Helper {
    let mut five = [Arg::None; 5];
    let mut i = 0;
    while i < args.len() {
        five[i] = args[i];
        i += 1;
    }
    Helper { id, name, args: five, ret, maps }
}

const TABLES: &[Kind] = &[Kind::Hash, Kind::Array, Kind::PerCpuHash, Kind::PerCpuArray];
const RING: &[Kind] = &[Kind::RingBuffer];
const STACKS: &[Kind] = &[Kind::StackTrace];
const READ: &[Arg] = &[Arg::Write, Arg::SizeOrZero, Arg::Number];

/// All of them, in order of their numbers.
pub const ALL: &[Helper] = &[
    h(id::MAP_LOOKUP, "map_lookup_elem", &[Arg::Map, Arg::Key], Ret::Value, TABLES),
    h(id::MAP_UPDATE, "map_update_elem", &[Arg::Map, Arg::Key, Arg::Value, Arg::Number], Ret::Number, TABLES),
    h(
        id::MAP_DELETE,
        "map_delete_elem",
        &[Arg::Map, Arg::Key],
        Ret::Number,
        &[Kind::Hash, Kind::Array, Kind::PerCpuHash, Kind::PerCpuArray, Kind::StackTrace],
    ),
    h(id::PROBE_READ, "probe_read", READ, Ret::Number, &[]),
    h(id::KTIME_GET_NS, "ktime_get_ns", &[], Ret::Number, &[]),
    h(
        id::TRACE_PRINTK,
        "trace_printk",
        &[Arg::Read, Arg::Size, Arg::Optional, Arg::Optional, Arg::Optional],
        Ret::Number,
        &[],
    ),
    h(id::GET_PRANDOM_U32, "get_prandom_u32", &[], Ret::Number, &[]),
    h(id::GET_SMP_PROCESSOR_ID, "get_smp_processor_id", &[], Ret::Number, &[]),
    h(id::GET_CURRENT_PID_TGID, "get_current_pid_tgid", &[], Ret::Number, &[]),
    h(id::GET_CURRENT_UID_GID, "get_current_uid_gid", &[], Ret::Number, &[]),
    h(id::GET_CURRENT_COMM, "get_current_comm", &[Arg::Write, Arg::Size], Ret::Number, &[]),
    h(id::GET_STACKID, "get_stackid", &[Arg::Context, Arg::Map, Arg::Number], Ret::Number, STACKS),
    h(id::PROBE_READ_STR, "probe_read_str", READ, Ret::Number, &[]),
    h(
        id::GET_STACK,
        "get_stack",
        &[Arg::Context, Arg::Write, Arg::SizeOrZero, Arg::Number],
        Ret::Number,
        &[],
    ),
    h(id::PROBE_READ_USER, "probe_read_user", READ, Ret::Number, &[]),
    h(id::PROBE_READ_KERNEL, "probe_read_kernel", READ, Ret::Number, &[]),
    h(id::PROBE_READ_USER_STR, "probe_read_user_str", READ, Ret::Number, &[]),
    h(id::PROBE_READ_KERNEL_STR, "probe_read_kernel_str", READ, Ret::Number, &[]),
    h(id::KTIME_GET_BOOT_NS, "ktime_get_boot_ns", &[], Ret::Number, &[]),
    h(
        id::RINGBUF_OUTPUT,
        "ringbuf_output",
        &[Arg::Map, Arg::Read, Arg::SizeOrZero, Arg::Number],
        Ret::Number,
        RING,
    ),
    h(id::RINGBUF_RESERVE, "ringbuf_reserve", &[Arg::Map, Arg::KnownSize, Arg::Number], Ret::Record, RING),
    h(id::RINGBUF_SUBMIT, "ringbuf_submit", &[Arg::Record, Arg::Number], Ret::Number, &[]),
    h(id::RINGBUF_DISCARD, "ringbuf_discard", &[Arg::Record, Arg::Number], Ret::Number, &[]),
    h(id::RINGBUF_QUERY, "ringbuf_query", &[Arg::Map, Arg::Number], Ret::Number, RING),
    h(id::GET_FUNC_IP, "get_func_ip", &[Arg::Context], Ret::Number, &[]),
    h(id::PUTS, "unilith_puts", &[Arg::Read, Arg::Size], Ret::Number, &[]),
    h(id::PROGRAM_REGS, "unilith_program_regs", &[Arg::Context, Arg::Write, Arg::Size], Ret::Number, &[]),
];

pub fn spec(id: i32) -> Option<&'static Helper> {
    ALL.iter().find(|h| h.id == id)
}

/// What a helper does, for the reference; not part of a kernel, which does not ask.
pub fn summary(id: i32) -> &'static str {
    match id {
        id::MAP_LOOKUP => "The value of a key, or null",
        id::MAP_UPDATE => "Sets the value of a key; flags BPF_ANY, BPF_NOEXIST, BPF_EXIST",
        id::MAP_DELETE => "Takes a key out of a map",
        id::PROBE_READ => "Reads memory of the program or the kernel; zeros and -EFAULT where there is none",
        id::PROBE_READ_USER => "The same as `probe_read`: there is one address space",
        id::PROBE_READ_KERNEL => "The same as `probe_read`",
        id::PROBE_READ_STR => "Reads up to a NUL; the length with it",
        id::PROBE_READ_USER_STR => "The same as `probe_read_str`",
        id::PROBE_READ_KERNEL_STR => "The same as `probe_read_str`",
        id::KTIME_GET_NS => "Nanoseconds since the machine started",
        id::KTIME_GET_BOOT_NS => "The same as `ktime_get_ns`: a machine does not sleep",
        id::TRACE_PRINTK => "A line for who traces: %d %u %x %s %p, at most three of them",
        id::GET_PRANDOM_U32 => "A random number, for sampling",
        id::GET_SMP_PROCESSOR_ID => "The processor",
        id::GET_CURRENT_PID_TGID => {
            "Process id in the upper half, thread id in the lower; 0 for a thread of the kernel"
        }
        id::GET_CURRENT_UID_GID => "Group id in the upper half, user id in the lower",
        id::GET_CURRENT_COMM => "Name of the thread",
        id::GET_STACKID => "Files the stack in a map of stacks and answers its number there",
        id::GET_STACK => "The return addresses, as far as frame pointers lead",
        id::RINGBUF_OUTPUT => "Copies a record into a ring buffer",
        id::RINGBUF_RESERVE => "A record to be filled, or null; must be submitted or discarded",
        id::RINGBUF_SUBMIT => "The record is ready",
        id::RINGBUF_DISCARD => "The record is to be forgotten",
        id::RINGBUF_QUERY => "0 bytes that wait, 1 size, 2 bytes ever taken, 3 bytes ever written",
        id::GET_FUNC_IP => "Address of the probed function; 0 at a tracepoint",
        id::PUTS => "A line for who traces, without a format (not Linux': the paper's)",
        id::PROGRAM_REGS => {
            "`struct pt_regs` of the program: where the kernel was hit, those with which it was entered; \
             -ESRCH where it runs for no program (not Linux')"
        }
        _ => "",
    }
}

/// For messages.
pub(crate) fn name(id: i32) -> String {
    spec(id).map_or_else(|| format!("helper {id}"), |h| h.name.into())
}

/// Called by who refers to a member that a context has not (as libbpf does it).
pub const ABSENT_MEMBER: i32 = 0xbad_2310;

/// Why there is no such helper, and what to use instead.
pub(crate) fn unknown(id: i32) -> Cow<'static, str> {
    match id {
        ABSENT_MEMBER => {
            "this refers to a member that the context has not: ask with bpf_core_field_exists first".into()
        }
        12 => "tail calls do not exist here: call a function of the same program".into(),
        25 => "perf_event_output does not exist here: use a ring buffer (ringbuf_output)".into(),
        _ => format!("there is no helper {id} here: `help bpf` lists those there are").into(),
    }
}

/// The machine as programs see it.
pub trait Environment {
    fn now_ns(&self) -> u64;
    fn cpu(&self) -> u32;
    fn random(&self) -> u32;
    /// Process id in the upper half, thread id in the lower.
    fn pid_tgid(&self) -> u64;
    fn uid_gid(&self) -> u64;
    fn comm(&self, to: &mut [u8; 16]);
    /// Reads memory of the traced program or the kernel. False where there is none; never faults, never waits.
    fn read(&self, address: u64, to: &mut [u8]) -> bool;
    fn print(&self, text: &[u8]);
    /// Return addresses, the innermost first; how many.
    fn stack(&self, registers: &[u8], to: &mut [u64], user: bool) -> usize;
    /// The registers (`struct pt_regs`) of the program: `registers` where it was hit, those with which it entered the
    /// kernel where the kernel was. False when the kernel runs for no program.
    fn program(&self, registers: &[u8], to: &mut [u8]) -> bool;
    /// Address of the traced function.
    fn function(&self) -> u64;
}

/// A running program's memory: what its pointers point to.
pub(crate) trait Memory {
    /// False when this is not (initialised) memory of the program. The verifier has seen to it that it is.
    fn load(&mut self, address: u64, to: &mut [u8]) -> bool;
    fn store(&mut self, address: u64, from: &[u8]) -> bool;
    /// The context's bytes.
    fn context(&self) -> &[u8];
    /// A pointer to a byte of a map's memory.
    fn pointer(&self, map: usize, offset: usize) -> u64;
    /// The opposite, for records of ring buffers.
    fn record(&self, pointer: u64) -> Option<(usize, usize)>;
}

/// A helper was given what the verifier should not have let through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadArgument;

fn negative(errno: i64) -> u64 {
    -errno as u64
}

/// Bytes of `struct pt_regs`.
const REGISTERS: usize = 168;
const ESRCH: i64 = 3;
const EFAULT: i64 = 14;
const EINVAL: i64 = 22;
const EAGAIN: i64 = 11;
/// Bytes that are copied at a time between memories.
const CHUNK: usize = 256;
/// Frames of a stack that are looked at.
const MAX_FRAMES: usize = 127;

fn answer(result: Result<(), MapError>) -> u64 {
    result.map_or_else(|e| negative(e.errno()), |()| 0)
}

/// Runs a helper. Map arguments are indexes into `maps`.
pub(crate) fn invoke(
    id: i32,
    args: [u64; 5],
    maps: &[Arc<Map>],
    memory: &mut dyn Memory,
    environment: &dyn Environment,
) -> Result<u64, BadArgument> {
    let map = |at: usize| {
        usize::try_from(args[at]).ok().and_then(|i| Some((i, &**maps.get(i)?))).ok_or(BadArgument)
    };
    let cpu = environment.cpu();
    Ok(match id {
        id::MAP_LOOKUP => {
            let (index, map) = map(0)?;
            let mut key = [0; LONGEST_KEY as usize];
            let key = load(memory, args[1], &mut key, map.spec.key)?;
            map.find(key).map_or(0, |slot| memory.pointer(index, map.offset(slot, cpu)))
        }
        id::MAP_UPDATE => update(map(0)?.1, args, memory, cpu)?,
        id::MAP_DELETE => {
            let (_, map) = map(0)?;
            let mut key = [0; LONGEST_KEY as usize];
            answer(map.delete(load(memory, args[1], &mut key, map.spec.key)?))
        }
        id::PROBE_READ | id::PROBE_READ_USER | id::PROBE_READ_KERNEL => {
            let ok = copy(memory, environment, args[0], args[1], args[2])?;
            if ok { 0 } else { negative(EFAULT) }
        }
        id::PROBE_READ_STR | id::PROBE_READ_USER_STR | id::PROBE_READ_KERNEL_STR => {
            copy_text(memory, environment, args[0], args[1], args[2])?
        }
        id::KTIME_GET_NS | id::KTIME_GET_BOOT_NS => environment.now_ns(),
        id::TRACE_PRINTK => {
            let mut text = [0; CHUNK];
            let format = load(memory, args[0], &mut text, args[1].min(CHUNK as u64) as u32)?;
            let mut line = print::Line::default();
            match print::format(&mut line, format, &args[2..], environment) {
                Ok(()) => {
                    environment.print(line.bytes());
                    line.bytes().len() as u64
                }
                Err(print::BadFormat) => negative(EINVAL),
            }
        }
        id::GET_PRANDOM_U32 => environment.random().into(),
        id::GET_SMP_PROCESSOR_ID => cpu.into(),
        id::GET_CURRENT_PID_TGID => environment.pid_tgid(),
        id::GET_CURRENT_UID_GID => environment.uid_gid(),
        id::GET_CURRENT_COMM => {
            let mut comm = [0; 16];
            environment.comm(&mut comm);
            comm[15] = 0;
            let size = args[1].min(16) as usize;
            comm[size.saturating_sub(1)] = 0;
            store(memory, args[0], &comm[..size])?;
            zero(memory, args[0].wrapping_add(16), args[1].saturating_sub(16))?;
            0
        }
        id::GET_STACKID => {
            let (_, map) = map(1)?;
            let mut stack = [0; MAX_FRAMES];
            let flags = args[2];
            if flags & !0x7ff != 0 {
                return Ok(negative(EINVAL));
            }
            let n = environment.stack(memory.context(), &mut stack, flags & 0x100 != 0);
            let skip = (flags as usize & 0xff).min(n);
            match map.file_stack(&stack[skip..n], flags & 0x400 != 0) {
                Ok(_) if n == 0 => negative(EFAULT),
                Ok(number) => number.into(),
                Err(e) => negative(e.errno()),
            }
        }
        id::GET_STACK => {
            let mut stack = [0; MAX_FRAMES];
            let n = environment.stack(memory.context(), &mut stack, args[3] & 0x100 != 0);
            let skip = (args[3] as usize & 0xff).min(n);
            let n = (n - skip).min((args[2] / 8) as usize);
            for (i, address) in stack[skip..skip + n].iter().enumerate() {
                store(memory, args[1].wrapping_add(8 * i as u64), &address.to_le_bytes())?;
            }
            zero(memory, args[1].wrapping_add(8 * n as u64), args[2] - 8 * n as u64)?;
            8 * n as u64
        }
        id::RINGBUF_OUTPUT => ring_output(map(0)?.1, args, memory)?,
        id::RINGBUF_RESERVE => {
            let (index, map) = map(0)?;
            let ring = map.ring().ok_or(BadArgument)?;
            let place = if args[2] == 0 { ring.reserve(map.memory(), args[1]) } else { None };
            if place.is_none() {
                map.lost.fetch_add(1, core::sync::atomic::Ordering::Relaxed);
            }
            place.map_or(0, |at| memory.pointer(index, at))
        }
        id::RINGBUF_SUBMIT | id::RINGBUF_DISCARD => {
            let (index, at) = memory.record(args[0]).ok_or(BadArgument)?;
            let map = maps.get(index).ok_or(BadArgument)?;
            map.ring().ok_or(BadArgument)?.finish(map.memory(), at, id == id::RINGBUF_SUBMIT);
            0
        }
        id::RINGBUF_QUERY => map(0)?.1.ring().ok_or(BadArgument)?.query(args[1]),
        id::GET_FUNC_IP => environment.function(),
        id::PUTS => {
            let mut text = [0; CHUNK];
            let text = load(memory, args[0], &mut text, args[1].min(CHUNK as u64) as u32)?;
            environment.print(text.split(|b| *b == 0).next().unwrap_or_default());
            0
        }
        id::PROGRAM_REGS => {
            let mut registers = [0; REGISTERS];
            let there = environment.program(memory.context(), &mut registers);
            let size = args[2].min(REGISTERS as u64);
            store(memory, args[1], &registers[..size as usize])?;
            zero(memory, args[1].wrapping_add(size), args[2] - size)?;
            if there { 0 } else { negative(ESRCH) }
        }
        _ => return Err(BadArgument),
    })
}

fn load<'a>(
    memory: &mut dyn Memory,
    address: u64,
    to: &'a mut [u8],
    size: u32,
) -> Result<&'a [u8], BadArgument> {
    let to = to.get_mut(..size as usize).ok_or(BadArgument)?;
    if memory.load(address, to) { Ok(to) } else { Err(BadArgument) }
}

fn store(memory: &mut dyn Memory, address: u64, from: &[u8]) -> Result<(), BadArgument> {
    if memory.store(address, from) { Ok(()) } else { Err(BadArgument) }
}

fn zero(memory: &mut dyn Memory, address: u64, size: u64) -> Result<(), BadArgument> {
    pieces(size, |at, n| store(memory, address.wrapping_add(at), &[0; CHUNK][..n]))
}

/// Offsets and lengths of pieces of at most [`CHUNK`] bytes.
fn pieces(size: u64, mut each: impl FnMut(u64, usize) -> Result<(), BadArgument>) -> Result<(), BadArgument> {
    let mut at = 0;
    while at < size {
        let n = (size - at).min(CHUNK as u64);
        each(at, n as usize)?;
        at += n;
    }
    Ok(())
}

fn update(map: &Map, args: [u64; 5], memory: &mut dyn Memory, cpu: u32) -> Result<u64, BadArgument> {
    let mut key = [0; LONGEST_KEY as usize];
    let key = load(memory, args[1], &mut key, map.spec.key)?;
    let mut piece = [0; CHUNK];
    let size = u64::from(map.spec.value);
    if size <= CHUNK as u64 {
        let value = load(memory, args[2], &mut piece, map.spec.value)?;
        return Ok(answer(map.update(key, value, args[3], cpu)));
    }
    // A value that does not fit on the stack goes in piece by piece.
    if let Err(e) = map.update(key, &[], args[3], cpu) {
        return Ok(negative(e.errno()));
    }
    let slot = map.find(key).ok_or(BadArgument)?;
    pieces(size, |at, n| {
        let bytes = load(memory, args[2].wrapping_add(at), &mut piece, n as u32)?;
        map.memory().write(map.offset(slot, cpu) + at as usize, bytes);
        Ok(())
    })?;
    Ok(0)
}

fn ring_output(map: &Map, args: [u64; 5], memory: &mut dyn Memory) -> Result<u64, BadArgument> {
    let ring = map.ring().ok_or(BadArgument)?;
    if args[3] & !3 != 0 {
        return Ok(negative(EINVAL));
    }
    let Some(place) = ring.reserve(map.memory(), args[2]) else {
        map.lost.fetch_add(1, core::sync::atomic::Ordering::Relaxed);
        return Ok(negative(EAGAIN));
    };
    let mut piece = [0; CHUNK];
    let copied = pieces(args[2], |at, n| {
        let bytes = load(memory, args[1].wrapping_add(at), &mut piece, n as u32)?;
        map.memory().write(place + at as usize, bytes);
        Ok(())
    });
    ring.finish(map.memory(), place, copied.is_ok());
    copied.map(|()| 0)
}

/// Copies from the traced program's or the kernel's memory; zeros, and false, where there is none.
fn copy(
    memory: &mut dyn Memory,
    environment: &dyn Environment,
    to: u64,
    size: u64,
    from: u64,
) -> Result<bool, BadArgument> {
    let mut there = true;
    let mut piece = [0; CHUNK];
    pieces(size, |at, n| {
        there = there && environment.read(from.wrapping_add(at), &mut piece[..n]);
        if !there {
            piece = [0; CHUNK];
        }
        store(memory, to.wrapping_add(at), &piece[..n])
    })?;
    if !there {
        zero(memory, to, size)?;
    }
    Ok(there)
}

/// Copies a string with its NUL, cut to fit, and answers its length with the NUL.
fn copy_text(
    memory: &mut dyn Memory,
    environment: &dyn Environment,
    to: u64,
    size: u64,
    from: u64,
) -> Result<u64, BadArgument> {
    if size == 0 {
        return Ok(negative(EINVAL));
    }
    let mut at = 0;
    let mut byte = [0];
    while at < size {
        if !environment.read(from.wrapping_add(at), &mut byte) {
            zero(memory, to, size)?;
            return Ok(negative(EFAULT));
        }
        if at + 1 == size {
            byte = [0];
        }
        store(memory, to.wrapping_add(at), &byte)?;
        at += 1;
        if byte == [0] {
            break;
        }
    }
    zero(memory, to.wrapping_add(at), size - at)?;
    Ok(at)
}
