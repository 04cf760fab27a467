// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the program may do, and how much of what it may have.

use alloc::{format, string::String, vec::Vec};
use core::fmt;

/// A resource limit (getrlimit(2)); `u64::MAX` is none (RLIM_INFINITY).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rlimit {
    /// Linux' number, below [`Rlimit::RESOURCES`].
    pub resource: u8,
    pub soft: u64,
    /// `None`: the kernel's, or the soft one where that is higher.
    pub hard: Option<u64>,
}

impl Rlimit {
    /// Linux' RLIM_NLIMITS.
    pub const RESOURCES: u8 = 16;

    pub(crate) fn decode(text: &str) -> Option<Rlimit> {
        let mut numbers = text.split(':');
        let resource = numbers.next()?.parse().ok().filter(|n| *n < Rlimit::RESOURCES)?;
        let soft = numbers.next()?.parse().ok()?;
        let hard = numbers.next().map(str::parse).transpose().ok()?;
        numbers.next().is_none().then_some(Rlimit { resource, soft, hard })
    }
}

/// What the program, and all that it starts, is kept from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Confinement {
    /// Instructions of its filter of system calls, each as `struct sock_filter` is in memory (little-endian); none: no filter.
    pub filter: Vec<u64>,
    /// Values of /proc/sys, whose names have dots (sysctl(8)).
    pub settings: Vec<(String, String)>,
    /// Absolute paths that show nothing.
    pub masked: Vec<String>,
    /// Absolute paths that may not be written to.
    pub read_only: Vec<String>,
}

/// The users and groups that there are (user_namespaces(7)): first id, what that is for who made the machine, and how many follow.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ids {
    pub users: Vec<(u32, u32, u32)>,
    pub groups: Vec<(u32, u32, u32)>,
}

impl Ids {
    /// Lines of one map (Linux' UID_GID_MAP_MAX_EXTENTS).
    pub const MAX_EXTENTS: usize = 340;

    /// `INSIDE:OUTSIDE:COUNT,...`
    pub(crate) fn show(map: &[(u32, u32, u32)]) -> String {
        let lines = map.iter().map(|(inside, outside, count)| format!("{inside}:{outside}:{count}"));
        lines.collect::<Vec<_>>().join(",")
    }

    pub(crate) fn parse(text: &str) -> Option<Vec<(u32, u32, u32)>> {
        let line = |text: &str| {
            let mut numbers = text.split(':').map(|number| number.parse::<u32>().ok());
            let line = (numbers.next()??, numbers.next()??, numbers.next()??);
            let fits = line.0.checked_add(line.2).is_some() && line.1.checked_add(line.2).is_some();
            (numbers.next().is_none() && line.2 > 0 && fits).then_some(line)
        };
        let lines = text.split(',').map(line).collect::<Option<Vec<_>>>()?;
        (lines.len() <= Ids::MAX_EXTENTS).then_some(lines)
    }
}

/// A control group: what its files say (cgroup-v2.rst). `u64::MAX` is no limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ControlGroup {
    /// Bytes.
    pub memory: u64,
    /// Processes and threads.
    pub pids: u64,
    /// Microseconds of processor time, in a period of so many.
    pub cpu: (u64, u64),
    /// Its files are at /sys/fs/cgroup; `true`: to be read only.
    pub files: Option<bool>,
}

impl ControlGroup {
    /// Memory, processes, processor time and its period, and how its files are seen, with colons between them.
    pub(crate) fn show(&self) -> String {
        let ControlGroup { memory, pids, cpu: (quota, period), files } = self;
        let files = files.map_or("none", |is_read_only| if is_read_only { "ro" } else { "rw" });
        format!("{memory}:{pids}:{quota}:{period}:{files}")
    }

    pub(crate) fn parse(text: &str) -> Option<ControlGroup> {
        let mut words = text.split(':');
        let mut number = || words.next()?.parse::<u64>().ok();
        let (memory, pids, cpu) = (number()?, number()?, (number()?, number()?));
        let files = match words.next()? {
            "none" => None,
            "ro" => Some(true),
            "rw" => Some(false),
            _ => return None,
        };
        words.next().is_none().then_some(ControlGroup { memory, pids, cpu, files })
    }
}

/// Digits of an instruction of a filter.
const INSTRUCTION_DIGITS: usize = 16;

pub(crate) fn decode_filter(text: &str) -> Option<Vec<u64>> {
    let digits = text.as_bytes().chunks(INSTRUCTION_DIGITS);
    let number = |chunk: &[u8]| {
        let digits = core::str::from_utf8(chunk).ok().filter(|digits| digits.len() == INSTRUCTION_DIGITS)?;
        u64::from_str_radix(digits, 16).ok()
    };
    digits.map(number).collect()
}

/// The sets of capabilities(7), a bit for each capability.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CapabilitySets {
    pub bounding: u64,
    pub permitted: u64,
    pub effective: u64,
    pub inheritable: u64,
    pub ambient: u64,
}

impl CapabilitySets {
    pub(crate) fn parse(text: &str) -> Option<CapabilitySets> {
        let mut sets = text.split(':').map(|set| u64::from_str_radix(set, 16).ok());
        let mut next = || sets.next().flatten();
        let [bounding, permitted, effective, inheritable, ambient] =
            [next()?, next()?, next()?, next()?, next()?];
        let all = CapabilitySets { bounding, permitted, effective, inheritable, ambient };
        sets.next().is_none().then_some(all)
    }
}

impl fmt::Display for CapabilitySets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let CapabilitySets { bounding, permitted, effective, inheritable, ambient } = self;
        write!(f, "{bounding:x}:{permitted:x}:{effective:x}:{inheritable:x}:{ambient:x}")
    }
}
