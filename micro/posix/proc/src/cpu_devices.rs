// SPDX-License-Identifier: Apache-2.0 OR MIT
//! /sys/devices/system/cpu (sysfs-devices-system-cpu): the processors, how they are related, and their caches, by which programs choose
//! how many threads they have and how much data they work on at a time.
//!
//! Each virtual processor is a core of one package. What its caches are the processor says itself (CPUID), among which of the virtual
//! processors it shares them too.

use super::{cpus, text};
use abi::{Result, errno::ENOENT};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use api_fs::FileType;
use core::arch::x86_64::{__cpuid, __cpuid_count};
use core::ops::Range;
use procfs::{Changing, Entry, Key, Row};

/// What is said of all of them.
pub const ALL: &[Row] = &[
    ("online", Entry::Text(|_| cpus())),
    ("possible", Entry::Text(|_| cpus())),
    ("present", Entry::Text(|_| cpus())),
    ("offline", Entry::Fixed("\n")),
    ("isolated", Entry::Fixed("\n")),
    ("kernel_max", Entry::Fixed("15\n")),
];

/// The processors, by their numbers: `cpu0` and so on.
pub struct Processors;

/// Of the processor whose number the key is.
const PROCESSOR: &[Row] = &[
    ("cache", Entry::Changing(&Caches)),
    ("topology/cluster_id", Entry::Text(number)),
    ("topology/core_cpus", Entry::Text(|key| mask(own(key)))),
    ("topology/core_cpus_list", Entry::Text(|key| list(own(key)))),
    ("topology/core_id", Entry::Text(number)),
    ("topology/core_siblings", Entry::Text(|_| mask(all()))),
    ("topology/core_siblings_list", Entry::Text(|_| list(all()))),
    ("topology/die_cpus", Entry::Text(|_| mask(all()))),
    ("topology/die_cpus_list", Entry::Text(|_| list(all()))),
    ("topology/die_id", Entry::Fixed("0\n")),
    ("topology/package_cpus", Entry::Text(|_| mask(all()))),
    ("topology/package_cpus_list", Entry::Text(|_| list(all()))),
    ("topology/physical_package_id", Entry::Fixed("0\n")),
    ("topology/thread_siblings", Entry::Text(|key| mask(own(key)))),
    ("topology/thread_siblings_list", Entry::Text(|key| list(own(key)))),
];

/// The caches of the processor whose number the key is: `index0` and so on.
struct Caches;

/// Bits of a key that are the index of a cache; the processor's number is above them.
const INDEX_BITS: u32 = 8;
/// Most caches of a processor.
const MAX_CACHES: u32 = 8;

/// Of the cache that the key stands for.
const CACHE: &[Row] = &[
    ("coherency_line_size", Entry::Text(|key| of(key, |cache| format!("{}", cache.line)))),
    ("id", Entry::Text(|key| of(key, |cache| format!("{}", cpu(key) / cache.sharing)))),
    ("level", Entry::Text(|key| of(key, |cache| format!("{}", cache.level)))),
    ("number_of_sets", Entry::Text(|key| of(key, |cache| format!("{}", cache.sets)))),
    ("physical_line_partition", Entry::Text(|key| of(key, |cache| format!("{}", cache.partitions)))),
    ("shared_cpu_list", Entry::Text(|key| list(sharing(key)?))),
    ("shared_cpu_map", Entry::Text(|key| mask(sharing(key)?))),
    ("size", Entry::Text(|key| of(key, |cache| format!("{}K", cache.bytes() >> 10)))),
    ("type", Entry::Text(|key| of(key, |cache| String::from(cache.kind)))),
    ("ways_of_associativity", Entry::Text(|key| of(key, |cache| format!("{}", cache.ways)))),
];

/// A cache as CPUID describes it.
struct Cache {
    level: u32,
    kind: &'static str,
    line: u32,
    partitions: u32,
    ways: u32,
    sets: u64,
    /// How many processors have it together, a power of two: those whose numbers differ below it.
    sharing: u32,
}

impl Cache {
    fn bytes(&self) -> u64 {
        u64::from(self.line) * u64::from(self.partitions) * u64::from(self.ways) * self.sets
    }
}

/// The leaf of CPUID that describes caches: Intel's (SDM 2A, CPUID, leaf 4), or AMD's of the same form (APM 3, leaf 8000_001D) where it is
/// there; `None` for processors that have neither.
fn leaf() -> Option<u32> {
    const EXTENDED: u32 = 0x8000_0000;
    const AMD: u32 = 0x8000_001d;
    /// TopologyExtensions, of leaf 8000_0001.
    const TOPOLOGY_EXTENSIONS: u32 = 1 << 22;
    let describes = |leaf: u32| __cpuid_count(leaf, 0).eax & 31 != 0;
    let most = __cpuid(EXTENDED).eax;
    if most >= AMD && __cpuid(EXTENDED + 1).ecx & TOPOLOGY_EXTENSIONS != 0 && describes(AMD) {
        return Some(AMD);
    }
    (__cpuid(0).eax >= 4 && describes(4)).then_some(4)
}

fn cache(index: u32) -> Option<Cache> {
    match leaf() {
        Some(leaf) => described(leaf, index),
        None => of_older_amd(index),
    }
}

/// AMD's processors without a leaf for each cache, and emulated ones, have two leaves with a register for each cache.
fn of_older_amd(index: u32) -> Option<Cache> {
    const OF_LEVEL_1: u32 = 0x8000_0005;
    let leaf = OF_LEVEL_1 + index / 2;
    // Other makers' processors have the second leaf, too.
    if __cpuid(0x8000_0000).eax < leaf || __cpuid(OF_LEVEL_1).ecx == 0 {
        return None;
    }
    let answer = __cpuid(leaf);
    match index {
        0 => first_level("Data", answer.ecx),
        1 => first_level("Instruction", answer.edx),
        2 => further_level(2, answer.ecx >> 16, answer.ecx, 1),
        3 => further_level(3, (answer.edx >> 18) * 512, answer.edx, api_plat::cpus()),
        _ => None,
    }
}

/// A cache of level 1 by its register (APM 3, leaf 8000_0005).
fn first_level(kind: &'static str, register: u32) -> Option<Cache> {
    let [line, partitions, ways, kib] = register.to_le_bytes().map(u32::from);
    let ways = if ways == u8::MAX.into() { u32::MAX } else { ways };
    of_size(kib, Cache { level: 1, kind, line, partitions, ways, sets: 0, sharing: 1 })
}

/// One of level 2 or 3 by its register, whose size stands elsewhere for each of them (APM 3, leaf 8000_0006).
fn further_level(level: u32, kib: u32, register: u32, cpus: u32) -> Option<Cache> {
    /// By the code of its associativity (table 4-5). 0: none, or not said here.
    const WAYS: [u32; 16] = [0, 1, 2, 3, 4, 6, 8, 0, 16, 0, 32, 48, 64, 96, 128, u32::MAX];
    let (line, partitions) = (register & 0xff, register >> 8 & 15);
    let ways = WAYS[register as usize >> 12 & 15];
    of_size(
        kib,
        Cache { level, kind: "Unified", line, partitions, ways, sets: 0, sharing: cpus.next_power_of_two() },
    )
}

/// The cache with as many sets as come to its size. `u32::MAX` ways: it is one set, of which each line is a way.
fn of_size(kib: u32, mut cache: Cache) -> Option<Cache> {
    let lines = (u64::from(kib) << 10).checked_div(u64::from(cache.line) * u64::from(cache.partitions))?;
    if cache.ways == u32::MAX {
        cache.ways = lines as u32;
    }
    cache.sets = lines.checked_div(cache.ways.into()).filter(|sets| *sets != 0)?;
    Some(cache)
}

/// The sizes of the caches that Intel's leaf describes, in bytes.
pub fn sizes_by_leaf_4() -> impl Iterator<Item = u64> {
    (0..MAX_CACHES).map_while(|index| described(4, index)).map(|cache| cache.bytes())
}

/// `None`: there is no such cache.
fn described(leaf: u32, index: u32) -> Option<Cache> {
    let answer = __cpuid_count(leaf, index);
    let bits = |from: u32, shift: u32, count: u32| from >> shift & ((1 << count) - 1);
    let kind = match bits(answer.eax, 0, 5) {
        1 => "Data",
        2 => "Instruction",
        3 => "Unified",
        _ => return None,
    };
    Some(Cache {
        level: bits(answer.eax, 5, 3),
        kind,
        line: bits(answer.ebx, 0, 12) + 1,
        partitions: bits(answer.ebx, 12, 10) + 1,
        ways: bits(answer.ebx, 22, 10) + 1,
        sets: u64::from(answer.ecx) + 1,
        sharing: (bits(answer.eax, 14, 12) + 1).next_power_of_two(),
    })
}

fn cpu(key: Key) -> u32 {
    (key >> INDEX_BITS) as u32
}

fn index(key: Key) -> u32 {
    key as u32 & ((1 << INDEX_BITS) - 1)
}

fn of(key: Key, tell: impl FnOnce(&Cache) -> String) -> Result<Vec<u8>> {
    text(tell(&cache(index(key)).ok_or(ENOENT)?) + "\n")
}

/// The processors that have a cache together.
fn sharing(key: Key) -> Result<Range<u32>> {
    let sharing = cache(index(key)).ok_or(ENOENT)?.sharing;
    let first = cpu(key) / sharing * sharing;
    Ok(first..(first + sharing).min(api_plat::cpus()))
}

fn all() -> Range<u32> {
    0..api_plat::cpus()
}

fn own(key: Key) -> Range<u32> {
    key as u32..key as u32 + 1
}

fn number(key: Key) -> Result<Vec<u8>> {
    text(format!("{key}\n"))
}

/// Processors as a list of them is written (cpuset(7)).
pub fn list(cpus: Range<u32>) -> Result<Vec<u8>> {
    text(match cpus.len() {
        1 => format!("{}\n", cpus.start),
        _ => format!("{}-{}\n", cpus.start, cpus.end - 1),
    })
}

/// The same as bits.
fn mask(cpus: Range<u32>) -> Result<Vec<u8>> {
    text(format!("{:04x}\n", cpus.fold(0u32, |mask, cpu| mask | 1 << cpu)))
}

/// A number behind a word, written as it is listed.
fn number_behind(word: &str, name: &str) -> Option<u32> {
    let digits = name.strip_prefix(word)?;
    let number = digits.parse::<u32>().ok()?;
    (format!("{number}") == digits).then_some(number)
}

fn named(word: &str, numbers: Vec<u32>) -> Vec<(u64, String)> {
    numbers.into_iter().map(|n| (n.into(), format!("{word}{n}"))).collect()
}

fn some_of(all: Range<u32>, from: u32, most: usize) -> Vec<u32> {
    (from.max(all.start)..all.end).take(most).collect()
}

impl Changing for Processors {
    fn numbers(&self, _: Key, from: u32, most: usize) -> Vec<u32> {
        some_of(all(), from, most)
    }

    fn names(&self, key: Key, from: u64, most: usize) -> Vec<(u64, String)> {
        named("cpu", self.numbers(key, u32::try_from(from).unwrap_or(u32::MAX), most))
    }

    fn permissions(&self) -> u32 {
        0o755
    }

    fn entry(&self, _: Key, name: &str) -> Result<(Entry, Key)> {
        let cpu = number_behind("cpu", name).filter(|cpu| all().contains(cpu)).ok_or(ENOENT)?;
        Ok((Entry::DirectoryWith { rows: PROCESSOR, permissions: 0o755 }, cpu.into()))
    }

    fn kind(&self) -> FileType {
        FileType::Directory
    }
}

impl Changing for Caches {
    fn numbers(&self, _: Key, from: u32, most: usize) -> Vec<u32> {
        let count = (0..MAX_CACHES).take_while(|index| cache(*index).is_some()).count() as u32;
        some_of(0..count, from, most)
    }

    fn names(&self, key: Key, from: u64, most: usize) -> Vec<(u64, String)> {
        named("index", self.numbers(key, u32::try_from(from).unwrap_or(u32::MAX), most))
    }

    fn permissions(&self) -> u32 {
        0o755
    }

    fn entry(&self, key: Key, name: &str) -> Result<(Entry, Key)> {
        let index = number_behind("index", name).filter(|index| *index < MAX_CACHES).ok_or(ENOENT)?;
        cache(index).ok_or(ENOENT)?;
        let key = key << INDEX_BITS | Key::from(index);
        Ok((Entry::DirectoryWith { rows: CACHE, permissions: 0o755 }, key))
    }

    fn kind(&self) -> FileType {
        FileType::Directory
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(cache: Option<Cache>) -> Option<(u32, &'static str, u64, u32, u64)> {
        cache.map(|cache| (cache.level, cache.kind, cache.bytes() >> 10, cache.ways, cache.sets))
    }

    #[test]
    fn caches_of_older_processors_are_read_from_a_register_each() {
        // QEMU's `-cpu max` as AMD's: 64 KiB of two ways, 512 KiB of 16 ways, 16 MiB of 16 ways.
        assert_eq!(shown(first_level("Data", 0x4002_0140)), Some((1, "Data", 64, 2, 512)));
        assert_eq!(
            shown(further_level(2, 0x0200_8140 >> 16, 0x0200_8140, 1)),
            Some((2, "Unified", 512, 16, 512))
        );
        assert_eq!(shown(further_level(3, 32 * 512, 0x0080_8140, 2)), Some((3, "Unified", 16384, 16, 16384)));
        // Fully associative.
        assert_eq!(shown(first_level("Data", 0x10ff_0140)), Some((1, "Data", 16, 256, 1)));
        // A level that is switched off, one that says nothing, and lines of no bytes.
        assert_eq!(shown(further_level(3, 512, 0x0140, 2)), None);
        assert_eq!(shown(further_level(2, 512, 0x9140, 1)), None);
        assert_eq!(shown(first_level("Data", 0)), None);
    }
}
