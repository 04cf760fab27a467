// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Maps: what programs remember, and how they and their readers share it.
//!
//! All memory is allocated when a map is created; elements of hash tables come from a fixed stock, as in Linux with
//! preallocation. A value stays where it is as long as the map lives: a program that holds a pointer to an element
//! that another one deletes sees stale or new contents, never foreign memory.
//!
//! Locks are held with interrupts off: programs run so, and readers have to (see `micro/overlay/trace`).

mod hash;
mod ring;
mod words;

use hash::Table;
pub(crate) use ring::Ring;
use words::Words;

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use core::sync::atomic::{AtomicU64, Ordering};

/// Kinds of map with their numbers in Linux (`enum bpf_map_type`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    Hash = 1,
    Array = 2,
    PerCpuHash = 5,
    PerCpuArray = 6,
    StackTrace = 7,
    RingBuffer = 27,
}

impl Kind {
    pub const ALL: [Kind; 6] =
        [Kind::Hash, Kind::Array, Kind::PerCpuHash, Kind::PerCpuArray, Kind::StackTrace, Kind::RingBuffer];

    /// The kind with this number.
    pub fn from_number(number: u32) -> Option<Kind> {
        Kind::ALL.into_iter().find(|k| *k as u32 == number)
    }

    pub fn is_array(self) -> bool {
        matches!(self, Kind::Array | Kind::PerCpuArray)
    }

    pub fn is_per_cpu(self) -> bool {
        matches!(self, Kind::PerCpuHash | Kind::PerCpuArray)
    }
}

/// The kinds, for messages.
pub const KINDS: &str = "hash, array, percpu_hash, percpu_array, stack_trace and ringbuf";

/// Flag `BPF_F_RDONLY_PROG`: programs may not write to the values.
pub const READ_ONLY: u32 = 1 << 7;

/// Longest key: keys are copied to the helper's stack.
pub const LONGEST_KEY: u32 = 256;
/// Longest value: more is a mistake in most programs.
pub const LONGEST_VALUE: u32 = 32 << 10;
/// Most bytes of one map: less than the memory of the smallest machines that are worth tracing.
pub const MAX_BYTES: u64 = 16 << 20;

/// What a map is to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spec {
    pub name: String,
    pub kind: Kind,
    pub key: u32,
    pub value: u32,
    pub entries: u32,
    pub flags: u32,
    /// The first value of an array of one (global variables); empty for zeros.
    pub initial: Vec<u8>,
}

impl Spec {
    /// The contents never change and are known to the verifier (`.rodata`).
    pub fn is_constant(&self) -> bool {
        self.flags & READ_ONLY != 0 && self.kind == Kind::Array && self.entries == 1
    }

    /// Memory it takes on one processor, about.
    pub fn bytes(&self) -> usize {
        let element = if self.kind == Kind::RingBuffer { 1 } else { (self.key + self.value) as usize + 24 };
        self.entries as usize * element
    }

    /// In words, what is wrong with it.
    pub fn check(&self) -> Result<(), &'static str> {
        let (key, value, entries) = (self.key, self.value, self.entries);
        if entries == 0 {
            return Err("it has no entries (max_entries is 0)");
        }
        match self.kind {
            Kind::RingBuffer => {
                if key != 0 || value != 0 {
                    return Err("a ring buffer has neither keys nor values");
                }
                if !entries.is_power_of_two() || entries < 4096 {
                    return Err("the size of a ring buffer is a power of two of at least 4096 bytes");
                }
                if u64::from(entries) > MAX_BYTES {
                    return Err("it is larger than 16 MiB");
                }
            }
            _ => {
                if key == 0 || value == 0 {
                    return Err("keys and values have at least one byte");
                }
                if self.kind.is_array() && key != 4 {
                    return Err("the key of an array is 4 bytes long");
                }
                if self.kind == Kind::StackTrace && (key != 4 || !value.is_multiple_of(8) || value > 127 * 8)
                {
                    return Err("a stack-trace map has keys of 4 bytes and values of 1 to 127 addresses");
                }
                if key > LONGEST_KEY {
                    return Err("its keys are longer than 256 bytes");
                }
                if value > LONGEST_VALUE {
                    return Err("its values are longer than 32 KiB");
                }
                if u64::from(entries) * (u64::from(key) + u64::from(value) + 32) > MAX_BYTES {
                    return Err("it is larger than 16 MiB");
                }
            }
        }
        if !self.initial.is_empty()
            && (self.kind != Kind::Array || entries != 1 || self.initial.len() > value as usize)
        {
            return Err("only an array of one element can have contents from the start");
        }
        Ok(())
    }
}

/// Why a helper failed, with Linux' errno.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MapError {
    /// No such element.
    Missing,
    /// There is one already, or the place of a stack is taken.
    Exists,
    /// Every element is in use, or an index is beyond the array.
    Full,
    /// Not with this kind of map, or with these flags.
    Invalid,
}

impl MapError {
    pub fn errno(self) -> i64 {
        match self {
            MapError::Missing => 2,
            MapError::Full => 7,
            MapError::Exists => 17,
            MapError::Invalid => 22,
        }
    }
}

/// Flags of an update (`BPF_ANY` is 0).
pub mod update {
    pub const NEW_ONLY: u64 = 1;
    pub const EXISTING_ONLY: u64 = 2;
}

enum Store {
    Array,
    Hash(Table),
    Stacks(Words),
    Ring(Ring),
}

/// A map with its memory.
pub struct Map {
    pub spec: Spec,
    store: Store,
    values: Words,
    cpus: u32,
    /// Words from one value to the next.
    stride: usize,
    /// Updates that found no room, records that were lost, stacks that collided.
    pub lost: AtomicU64,
}

impl fmt::Debug for Map {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.spec.fmt(f)
    }
}

/// No memory for a map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoMemory;

impl Map {
    /// `spec` passed its check.
    pub fn new(spec: Spec, cpus: u32) -> Result<Map, NoMemory> {
        let cpus = if spec.kind.is_per_cpu() { cpus.max(1) } else { 1 };
        let stride = spec.value.div_ceil(8) as usize;
        let entries = spec.entries as usize;
        let (store, words) = match spec.kind {
            Kind::Array | Kind::PerCpuArray => (Store::Array, stride * entries * cpus as usize),
            Kind::Hash | Kind::PerCpuHash => {
                (Store::Hash(Table::new(spec.key, spec.entries)?), stride * entries * cpus as usize)
            }
            // The hash of each stack that is there; 0 for none.
            Kind::StackTrace => (Store::Stacks(Words::new(entries)?), stride * entries),
            Kind::RingBuffer => (Store::Ring(Ring::new(spec.entries)), entries / 8),
        };
        let values = Words::new(words)?;
        values.write(0, &spec.initial);
        Ok(Map { spec, store, values, cpus, stride, lost: AtomicU64::new(0) })
    }

    /// Byte in the map's memory at which the value of an element begins.
    pub(crate) fn offset(&self, slot: u32, cpu: u32) -> usize {
        (cpu.min(self.cpus - 1) as usize * self.spec.entries as usize + slot as usize) * self.stride * 8
    }

    /// Bytes from one value to the next.
    pub(crate) fn stride(&self) -> usize {
        self.stride * 8
    }

    /// Address of the map's memory.
    pub(crate) fn address(&self) -> u64 {
        self.values.address()
    }

    pub(crate) fn memory(&self) -> &Words {
        &self.values
    }

    pub(crate) fn ring(&self) -> Option<&Ring> {
        match &self.store {
            Store::Ring(ring) => Some(ring),
            _ => None,
        }
    }

    /// The element with this key.
    pub fn find(&self, key: &[u8]) -> Option<u32> {
        match &self.store {
            Store::Array => {
                let index = u32::from_le_bytes(key.try_into().ok()?);
                (index < self.spec.entries).then_some(index)
            }
            Store::Hash(table) => table.find(key),
            Store::Stacks(hashes) => {
                let index = u32::from_le_bytes(key.try_into().ok()?);
                (hashes.get(index as usize)? != 0).then_some(index)
            }
            Store::Ring(_) => None,
        }
    }

    /// The element to write a value to, made if need be and allowed.
    fn place(&self, key: &[u8], flags: u64) -> Result<u32, MapError> {
        if flags > update::EXISTING_ONLY {
            return Err(MapError::Invalid);
        }
        match &self.store {
            Store::Array => match self.find(key) {
                Some(_) if flags == update::NEW_ONLY => Err(MapError::Exists),
                Some(slot) => Ok(slot),
                None => Err(MapError::Full),
            },
            Store::Hash(table) => {
                let (slot, new) = table.find_or_insert(key, flags).inspect_err(|e| {
                    if *e == MapError::Full {
                        self.lost.fetch_add(1, Ordering::Relaxed);
                    }
                })?;
                if new && self.cpus > 1 {
                    for cpu in 0..self.cpus {
                        self.values.fill_zero(self.offset(slot, cpu), self.stride());
                    }
                }
                Ok(slot)
            }
            Store::Stacks(_) | Store::Ring(_) => Err(MapError::Invalid),
        }
    }

    /// Sets the value of a key (of this processor, where each has its own).
    pub fn update(&self, key: &[u8], value: &[u8], flags: u64, cpu: u32) -> Result<(), MapError> {
        let slot = self.place(key, flags)?;
        self.values.write(self.offset(slot, cpu), value);
        Ok(())
    }

    pub fn delete(&self, key: &[u8]) -> Result<(), MapError> {
        match &self.store {
            Store::Hash(table) => table.remove(key),
            Store::Stacks(hashes) => {
                let slot = self.find(key).ok_or(MapError::Missing)?;
                hashes.set(slot as usize, 0);
                Ok(())
            }
            Store::Array | Store::Ring(_) => Err(MapError::Invalid),
        }
    }

    /// Files a stack and says under which number (`bpf_get_stackid`).
    pub(crate) fn file_stack(&self, stack: &[u64], reuse: bool) -> Result<u32, MapError> {
        let Store::Stacks(hashes) = &self.store else { return Err(MapError::Invalid) };
        let depth = stack.len().min(self.stride);
        let hash = hash::hash_words(&stack[..depth]).max(1);
        let slot = (hash % u64::from(self.spec.entries)) as u32;
        let there = hashes.get(slot as usize).unwrap_or(0);
        if there == hash {
            return Ok(slot);
        }
        if there != 0 && !reuse {
            self.lost.fetch_add(1, Ordering::Relaxed);
            return Err(MapError::Exists);
        }
        let base = slot as usize * self.stride;
        for i in 0..self.stride {
            self.values.set(base + i, stack[..depth].get(i).copied().unwrap_or(0));
        }
        hashes.set(slot as usize, hash);
        Ok(slot)
    }

    /// The elements that are there, at or after a slot: for readers that go through all of them.
    pub fn next(&self, from: u32) -> Option<u32> {
        match &self.store {
            Store::Array => (from < self.spec.entries).then_some(from),
            Store::Hash(table) => table.next(from),
            Store::Stacks(hashes) => {
                (from..self.spec.entries).find(|s| hashes.get(*s as usize).unwrap_or(0) != 0)
            }
            Store::Ring(_) => None,
        }
    }

    /// The key of an element into `to`, which is as long as a key.
    pub fn read_key(&self, slot: u32, to: &mut [u8]) {
        match &self.store {
            Store::Hash(table) => table.read_key(slot, to),
            _ => to.copy_from_slice(&slot.to_le_bytes()[..to.len().min(4)]),
        }
    }

    /// The value of an element on one processor into `to`, which is as long as a value.
    pub fn read_value(&self, slot: u32, cpu: u32, to: &mut [u8]) {
        self.values.read(self.offset(slot, cpu), to);
    }

    /// How many values an element has.
    pub fn cpus(&self) -> u32 {
        self.cpus
    }

    /// Adds a record to a ring buffer; counts it as lost when there is no room.
    pub fn put_record(&self, record: &[u8]) {
        let Store::Ring(ring) = &self.store else { return };
        match ring.reserve(&self.values, record.len() as u64) {
            Some(at) => {
                self.values.write(at, record);
                ring.finish(&self.values, at, true);
            }
            None => {
                self.lost.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    /// Hands out the oldest finished record of a ring buffer and forgets it; false when there is none.
    pub fn take_record(&self, take: &mut dyn FnMut(&[u8])) -> bool {
        match &self.store {
            Store::Ring(ring) => ring.take(&self.values, take),
            _ => false,
        }
    }
}
