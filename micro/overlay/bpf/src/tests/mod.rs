// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Programs instruction by instruction: what is accepted and what is not, and that what is accepted runs the same way
//! everywhere.

mod asm;
mod numbers;
mod programs;
mod random;
mod rules;

use crate::context::Context;
use crate::helpers::Environment;
use crate::insn::Insn;
use crate::interpreter::{self, Violation};
use crate::jit::{Compiled, Runtime, compile};
use crate::maps::{Kind, Map, Spec};
use crate::verify::{Rejection, Verified, verify};
use std::cell::Cell;
use std::string::String;
use std::sync::Arc;
use std::vec::Vec;

/// xorshift64* (Vigna): the same numbers in every run.
pub(crate) struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    pub fn below(&mut self, n: u64) -> u64 {
        (self.next() >> 16) % n
    }

    /// Numbers near the ends of ranges and powers of two, and any others.
    pub fn number(&mut self) -> u64 {
        let near = self.below(5).wrapping_sub(2);
        match self.below(6) {
            0 => near,
            1 => (1u64 << self.below(64)).wrapping_add(near),
            2 => (u64::MAX << self.below(64)).wrapping_add(near),
            3 => u64::from(self.next() as u32),
            4 => self.below(300),
            _ => self.next(),
        }
    }
}

/// Rounds of a property test; `UNILITH_FUZZ_ROUNDS` for a long run.
pub(crate) fn rounds(normal: u64) -> u64 {
    std::env::var("UNILITH_FUZZ_ROUNDS").ok().and_then(|r| r.parse().ok()).unwrap_or(normal)
}

/// A machine that answers the same every time.
#[derive(Default)]
pub(crate) struct Machine {
    clock: Cell<u64>,
    pub printed: std::cell::RefCell<Vec<String>>,
}

impl Environment for Machine {
    fn now_ns(&self) -> u64 {
        self.clock.set(self.clock.get() + 100);
        self.clock.get()
    }
    fn cpu(&self) -> u32 {
        0
    }
    fn random(&self) -> u32 {
        self.clock.set(self.clock.get() + 1);
        (self.clock.get() as u32).wrapping_mul(0x9e37_79b1)
    }
    fn pid_tgid(&self) -> u64 {
        7 << 32 | 9
    }
    fn uid_gid(&self) -> u64 {
        0
    }
    fn comm(&self, to: &mut [u8; 16]) {
        to[..5].copy_from_slice(b"redis");
    }
    fn read(&self, address: u64, to: &mut [u8]) -> bool {
        to.iter_mut()
            .enumerate()
            .for_each(|(i, b)| *b = (address.wrapping_add(i as u64).wrapping_mul(7) >> 1) as u8);
        !address.is_multiple_of(5)
    }
    fn print(&self, text: &[u8]) {
        self.printed.borrow_mut().push(String::from_utf8_lossy(text).into_owned());
    }
    fn stack(&self, _: &[u8], to: &mut [u64], _: bool) -> usize {
        to[..3].copy_from_slice(&[0x10, 0x20, 0x30]);
        3
    }
    fn program(&self, registers: &[u8], to: &mut [u8]) -> bool {
        let n = registers.len().min(to.len());
        to[..n].copy_from_slice(&registers[..n]);
        true
    }
    fn function(&self) -> u64 {
        0xf00
    }
}

pub(crate) fn spec(name: &str, kind: Kind, key: u32, value: u32, entries: u32) -> Spec {
    Spec { name: name.into(), kind, key, value, entries, flags: 0, initial: Vec::new() }
}

/// 0 array of 4 values of 16 bytes, 1 hash of 8-byte keys, 2 ring buffer, 3 read-only data, 4 stacks.
pub(crate) fn specs() -> Vec<Spec> {
    let mut constants = spec("rodata", Kind::Array, 4, 16, 1);
    constants.flags = crate::maps::READ_ONLY;
    constants.initial = std::vec![3, 0, 0, 0, 0, 0, 0, 0, 200];
    std::vec![
        spec("array", Kind::Array, 4, 16, 4),
        spec("hash", Kind::Hash, 8, 8, 8),
        spec("ring", Kind::RingBuffer, 0, 0, 4096),
        constants,
        spec("stacks", Kind::StackTrace, 4, 64, 16),
    ]
}

pub(crate) fn check(insns: &[Insn], context: Context) -> Result<Verified, Rejection> {
    verify(insns, context, &specs(), &mut || true)
}

pub(crate) fn new_maps() -> Vec<Arc<Map>> {
    specs().into_iter().map(|s| Arc::new(Map::new(s, 1).expect("memory"))).collect()
}

/// Executable copy of compiled code.
pub(crate) struct Executable(*mut libc::c_void, usize);

impl Executable {
    #[allow(unsafe_code)]
    pub fn new(compiled: &Compiled) -> Executable {
        let length = compiled.code.len().next_multiple_of(4096);
        // SAFETY: a new mapping, written before it is made executable, of at least the code's length.
        unsafe {
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
            let at =
                libc::mmap(std::ptr::null_mut(), length, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0);
            assert_ne!(at, libc::MAP_FAILED);
            std::ptr::copy_nonoverlapping(compiled.code.as_ptr(), at.cast(), compiled.code.len());
            assert_eq!(libc::mprotect(at, length, libc::PROT_READ | libc::PROT_EXEC), 0);
            Executable(at, length)
        }
    }
}

impl Drop for Executable {
    #[allow(unsafe_code)]
    fn drop(&mut self) {
        // SAFETY: the mapping is this object's own.
        unsafe { libc::munmap(self.0, self.1) };
    }
}

/// What a run leaves behind, but for addresses.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Outcome {
    pub result: u64,
    pub printed: Vec<String>,
    pub values: Vec<Vec<u8>>,
    pub records: Vec<Vec<u8>>,
}

fn outcome(result: u64, machine: &Machine, maps: &[Arc<Map>]) -> Outcome {
    let (mut values, mut records) = (Vec::new(), Vec::new());
    for map in maps {
        let mut slot = 0;
        while let Some(found) = map.next(slot) {
            let mut both = std::vec![0; (map.spec.key + map.spec.value) as usize];
            let (key, value) = both.split_at_mut(map.spec.key as usize);
            map.read_key(found, key);
            map.read_value(found, 0, value);
            values.push(both);
            slot = found + 1;
        }
        while map.take_record(&mut |r| records.push(r.to_vec())) {}
    }
    Outcome { result, printed: machine.printed.borrow().clone(), values, records }
}

pub(crate) const BYTES: [u8; 40] = [5; 40];

pub(crate) fn context_bytes(context: Context) -> Vec<u8> {
    let mut bytes: Vec<u8> = (0..context.size()).map(|i| (i * 9) as u8).collect();
    if context == Context::Packet {
        let start = BYTES.as_ptr() as u64;
        bytes[..8].copy_from_slice(&start.to_le_bytes());
        bytes[8..16].copy_from_slice(&(start + BYTES.len() as u64).to_le_bytes());
    }
    bytes
}

pub(crate) fn interpret(program: &Verified) -> Result<Outcome, Violation> {
    let (machine, maps) = (Machine::default(), new_maps());
    let result = interpreter::run(program, &maps, &machine, &context_bytes(program.context), &BYTES)?;
    Ok(outcome(result, &machine, &maps))
}

pub(crate) fn run_compiled(program: &Verified) -> Outcome {
    let (machine, maps) = (Machine::default(), new_maps());
    let code = Executable::new(&compile(program, &maps));
    let context = context_bytes(program.context);
    let runtime = Runtime::new(&maps, &machine, &context);
    #[allow(unsafe_code)]
    // SAFETY: compiled from a verified program for this context and these maps; the packet is `BYTES`.
    let result = unsafe { runtime.run(code.0.cast()) };
    outcome(result, &machine, &maps)
}

/// Runs a program both ways, which have to agree.
pub(crate) fn run(insns: &[Insn], context: Context) -> Outcome {
    let program = check(insns, context).unwrap_or_else(|r| panic!("{r}"));
    let interpreted = interpret(&program).unwrap_or_else(|v| panic!("{v:?}"));
    let compiled = run_compiled(&program);
    assert_eq!(interpreted, compiled);
    interpreted
}
