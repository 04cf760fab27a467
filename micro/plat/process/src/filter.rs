// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the process may ask of the host once the program runs: a seccomp filter (Linux
//! Documentation/userspace-api/seccomp_filter.rst). `docs/explanation/process.md` lists each call with its reason.
//!
//! The program has no way to make a host call of its own (Syscall User Dispatch turns them into calls of the kernel) but by
//! a jump to the kernel's own `syscall` instruction, with registers as it likes: this list is what that gains it. Memory
//! calls are held to the program's part of the address space, from start to end, and to shared mappings of the machine's
//! memory and root archive: neither anonymous memory nor a private copy of a page can be had, so the memory of a machine is
//! its memfd, whose size is sealed.

use crate::host::{
    self, MAP_FIXED, MAP_NORESERVE, MAP_POPULATE, MAP_SHARED, PROT_EXEC, PROT_READ, PROT_WRITE,
};
use abi::PAGE_SIZE;
use api_plat::USER_END;
use core::ops::Range;

/// `struct sock_filter`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Instruction {
    code: u16,
    if_true: u8,
    if_false: u8,
    value: u32,
}

const LOAD: u16 = 0x20; // BPF_LD | BPF_W | BPF_ABS
const IF_EQUAL: u16 = 0x15; // BPF_JMP | BPF_JEQ | BPF_K
const IF_GREATER_OR_EQUAL: u16 = 0x35; // BPF_JMP | BPF_JGE | BPF_K
const RETURN: u16 = 0x06; // BPF_RET | BPF_K
const LOAD_VALUE: u16 = 0x00; // BPF_LD | BPF_IMM
const LOAD_SCRATCH: u16 = 0x60; // BPF_LD | BPF_MEM
const STORE_SCRATCH: u16 = 0x02; // BPF_ST
const COPY_TO_X: u16 = 0x07; // BPF_MISC | BPF_TAX
const ADD_X: u16 = 0x0c; // BPF_ALU | BPF_ADD | BPF_X
const JUMP: u16 = 0x05; // BPF_JMP | BPF_JA
const IF_AT_LEAST_X: u16 = 0x3d; // BPF_JMP | BPF_JGE | BPF_X

const ALLOW: u32 = 0x7fff_0000; // SECCOMP_RET_ALLOW
const TRAP: u32 = 0x0003_0000; // SECCOMP_RET_TRAP: SIGSYS, so that it is reported

const ARCHITECTURE: u32 = 4;
const NUMBER: u32 = 0;
const X86_64: u32 = 0xc000_003e;

/// Where the halves of an argument are in `struct seccomp_data`.
const fn low(argument: u32) -> u32 {
    16 + argument * 8
}
const fn high(argument: u32) -> u32 {
    low(argument) + 4
}

/// The area of kernel stacks, and the bytes of each that are shown.
pub const STACKS: u64 = 0x7040_0000_0000;
pub const STACK_BYTES: u64 = 32 << 10;

/// The signal that tells a processor of work: SIGURG, which does nothing by default.
pub const KICK: u32 = 23;
/// What may be asked of futex(2) in one host process: FUTEX_WAIT and FUTEX_WAKE with FUTEX_PRIVATE_FLAG.
pub const FUTEXES: [u32; 2] = [128, 129];
/// The same where there are several: without that flag.
pub const SHARED_FUTEXES: [u32; 2] = [0, 1];
/// And of membarrier(2): MEMBARRIER_CMD_PRIVATE_EXPEDITED and MEMBARRIER_CMD_PRIVATE_EXPEDITED_SYNC_CORE.
pub const BARRIERS: [u32; 2] = [1 << 3, 1 << 5];

/// Most instructions of the filter.
pub const MAX_INSTRUCTIONS: usize = 256;

/// The filter while it is made.
pub struct Filter {
    code: [Instruction; MAX_INSTRUCTIONS],
    length: usize,
}

/// A condition on the loaded word; the call is refused where it does not hold.
#[derive(Clone, Copy)]
enum Must {
    Be(u32),
    BeBelow(u32),
    BeAtLeast(u32),
    BeOneOf([u32; 3]),
}

/// Instructions of [`Filter::range_ends_by`].
const RANGE: u8 = 22;

impl Filter {
    fn put(&mut self, code: u16, value: u32, if_true: u8, if_false: u8) {
        self.code[self.length] = Instruction { code, if_true, if_false, value };
        self.length += 1;
    }

    fn allow(&mut self, number: u32) {
        self.put(IF_EQUAL, number, 0, 1);
        self.put(RETURN, ALLOW, 0, 0);
    }

    /// Instructions that [`Filter::must`] makes of a condition.
    const fn length_of(must: Must) -> u8 {
        match must {
            Must::BeOneOf(_) => 5,
            _ => 3,
        }
    }

    fn must(&mut self, at: u32, must: Must) {
        self.put(LOAD, at, 0, 0);
        match must {
            Must::Be(value) => self.put(IF_EQUAL, value, 1, 0),
            Must::BeBelow(value) => self.put(IF_GREATER_OR_EQUAL, value, 0, 1),
            Must::BeAtLeast(value) => self.put(IF_GREATER_OR_EQUAL, value, 1, 0),
            Must::BeOneOf([a, b, c]) => {
                self.put(IF_EQUAL, a, 3, 0);
                self.put(IF_EQUAL, b, 2, 0);
                self.put(IF_EQUAL, c, 1, 0);
            }
        }
        self.put(RETURN, TRAP, 0, 0);
    }

    /// Refuses ranges (an address and a length, the first two arguments) that do not begin and end below `end << 32`. Words
    /// have 32 bits here, so the end is added up in halves.
    fn range_ends_by(&mut self, end: u32) {
        const LOWER_SUM: u32 = 0;
        self.put(LOAD, low(1), 0, 0);
        self.put(COPY_TO_X, 0, 0, 0);
        self.put(LOAD, low(0), 0, 0);
        self.put(ADD_X, 0, 0, 0);
        self.put(STORE_SCRATCH, LOWER_SUM, 0, 0);
        // A sum that is less than one of its parts has a carry.
        self.put(IF_AT_LEAST_X, 0, 2, 0);
        self.put(LOAD_VALUE, 1, 0, 0);
        self.put(JUMP, 1, 0, 0);
        self.put(LOAD_VALUE, 0, 0, 0);
        self.put(COPY_TO_X, 0, 0, 0);
        // Upper halves that are below the limit cannot make a carry.
        self.put(LOAD, high(0), 0, 0);
        self.put(IF_GREATER_OR_EQUAL, end, 9, 0);
        self.put(ADD_X, 0, 0, 0);
        self.put(COPY_TO_X, 0, 0, 0);
        self.put(LOAD, high(1), 0, 0);
        self.put(IF_GREATER_OR_EQUAL, end, 5, 0);
        self.put(ADD_X, 0, 0, 0);
        self.put(IF_GREATER_OR_EQUAL, end, 0, 4);
        // The range may end exactly there.
        self.put(IF_EQUAL, end, 0, 2);
        self.put(LOAD_SCRATCH, LOWER_SUM, 0, 0);
        self.put(IF_EQUAL, 0, 1, 0);
        self.put(RETURN, TRAP, 0, 0);
    }

    /// Allows a call whose range lies below `end << 32`, where all of the conditions hold as well.
    fn allow_range_if(&mut self, number: u32, end: u32, conditions: &[(u32, Must)]) {
        self.put(IF_EQUAL, number, 0, RANGE + Self::length_of_all(conditions));
        self.range_ends_by(end);
        self.must_all(conditions);
    }

    /// Allows a call of which the first argument is a disk, or a file that was given.
    fn allow_of_files(&mut self, number: u32, open: &Open) {
        self.put(IF_EQUAL, number, 0, 6);
        self.put(LOAD, low(0), 0, 0);
        self.put(IF_GREATER_OR_EQUAL, open.given.map_or(u32::MAX, |first| first as u32), 2, 0);
        self.put(IF_GREATER_OR_EQUAL, open.disks.start as u32, 0, 2);
        self.put(IF_GREATER_OR_EQUAL, open.disks.end as u32, 1, 0);
        self.put(RETURN, ALLOW, 0, 0);
        self.put(RETURN, TRAP, 0, 0);
    }

    /// Allows a call where all of the conditions hold, and refuses it otherwise.
    fn allow_if(&mut self, number: u32, conditions: &[(u32, Must)]) {
        self.put(IF_EQUAL, number, 0, Self::length_of_all(conditions));
        self.must_all(conditions);
    }

    fn length_of_all(conditions: &[(u32, Must)]) -> u8 {
        conditions.iter().map(|(_, must)| Self::length_of(*must)).sum::<u8>() + 1
    }

    /// Allows the call where all of the conditions hold, and refuses it otherwise.
    fn must_all(&mut self, conditions: &[(u32, Must)]) {
        for (at, must) in conditions {
            self.must(*at, *must);
        }
        self.put(RETURN, ALLOW, 0, 0);
    }

    /// Allows a call whose range lies below `end` by one list of conditions, one that begins there or above by others.
    fn allow_by_place(&mut self, number: u32, end: u32, below: &[(u32, Must)], above: &[&[(u32, Must)]; 2]) {
        let first = RANGE + Self::length_of_all(below);
        let [second, third] = above.map(Self::length_of_all);
        self.put(IF_EQUAL, number, 0, 2 + first + 2 + second + third);
        self.put(LOAD, high(0), 0, 0);
        self.put(IF_GREATER_OR_EQUAL, end, first, 0);
        self.range_ends_by(end);
        self.must_all(below);
        // Each list begins with the upper half of the address, which tells them apart.
        let [(_, Must::Be(place)), ..] = above[0] else { panic!("a list begins with its place") };
        self.put(LOAD, high(0), 0, 0);
        self.put(IF_EQUAL, *place, 0, second);
        above.iter().for_each(|list| self.must_all(list));
    }

    /// mprotect: of the program's pages to anything. Of the kernel's (`domain.rs`, `stack.rs`): everything may become readable
    /// only, its code executable again, and what lies behind its constants writable. So nothing that can be written can be
    /// executed, and constants stay what they are.
    fn allow_protect(&mut self, machine: &Machine) {
        let (image, code) = ((machine.text.start >> 32) as u32, &machine.closed);
        let executed = [
            (high(0), Must::Be(image)),
            (low(0), Must::Be(code.start as u32)),
            (high(1), Must::Be(0)),
            (low(1), Must::Be((code.end - code.start) as u32)),
            (low(2), Must::Be(PROT_READ | PROT_EXEC)),
        ];
        let length = Self::length_of_all(&executed);
        let end = (USER_END >> 32) as u32;
        self.put(IF_EQUAL, host::MPROTECT, 0, 14 + RANGE + length);
        self.put(LOAD, high(0), 0, 0);
        self.put(IF_GREATER_OR_EQUAL, end, RANGE + 1, 0);
        self.range_ends_by(end);
        self.put(RETURN, ALLOW, 0, 0);
        self.put(LOAD, low(2), 0, 0);
        self.put(IF_EQUAL, PROT_READ, 2, 0);
        self.put(IF_EQUAL, PROT_READ | PROT_WRITE, 2, 0);
        self.put(IF_EQUAL, PROT_READ | PROT_EXEC, 7, 5);
        self.put(RETURN, ALLOW, 0, 0);
        // Writable: not in the image before its variables.
        self.put(LOAD, high(0), 0, 0);
        self.put(IF_EQUAL, image, 0, 3);
        self.put(LOAD, low(0), 0, 0);
        self.put(IF_GREATER_OR_EQUAL, machine.variables as u32, 1, 0);
        self.put(RETURN, TRAP, 0, 0);
        self.put(RETURN, ALLOW, 0, 0);
        self.must_all(&executed);
    }

    pub fn code(&self) -> &[Instruction] {
        &self.code[..self.length]
    }
}

const MADV_DONTNEED: u32 = 4;
const MADV_COLLAPSE: u32 = 25;
const ARCH_SET_FS: u32 = 0x1002;
const ARCH_GET_FS: u32 = 0x1003;

/// What the filter is made for.
pub struct Machine {
    /// The machine's memory and the root archive.
    pub files: [i32; 2],
    /// The kernel's code.
    pub text: Range<u64>,
    /// The part of it that is not executable while an overlay program runs.
    pub closed: Range<u64>,
    /// Where the kernel's variables begin, behind its code.
    pub variables: u64,
    /// FS base is set by a call: the processor cannot.
    pub by_call: bool,
    /// Of several processors: the number of the process they are threads of.
    pub several: Option<u32>,
    /// It has several host processes.
    pub in_turns: bool,
    /// Its files.
    pub open: Open,
}

/// Descriptors of files that are read and written where they are.
#[derive(Clone)]
pub struct Open {
    /// Of its disks, the others between them; empty: it has none.
    pub disks: Range<i32>,
    /// From this one on they are files of its volumes, which their servers give it while it runs; `None`: they give none.
    pub given: Option<i32>,
}

pub fn filter(machine: &Machine) -> Filter {
    let mut f = Filter {
        code: [Instruction { code: 0, if_true: 0, if_false: 0, value: 0 }; MAX_INSTRUCTIONS],
        length: 0,
    };
    let end = (USER_END >> 32) as u32;
    f.must(ARCHITECTURE, Must::Be(X86_64));
    f.put(LOAD, NUMBER, 0, 0);
    // The frequent ones first.
    for number in [
        host::PPOLL,
        host::READ,
        host::WRITE,
        host::READV,
        host::WRITEV,
        host::TIMER_SETTIME,
        host::RT_SIGRETURN,
        host::CLOCK_GETTIME,
        host::EXIT_GROUP,
    ] {
        f.allow(number);
    }
    // mmap: what the program sees, kernel stacks, and a page of memory in place of one of the kernel's code (`code.rs`).
    let [memory, root] = machine.files.map(|fd| fd as u32);
    let shared = MAP_FIXED | MAP_SHARED | MAP_NORESERVE;
    let shown = [
        (low(3), Must::BeOneOf([shared, shared | MAP_POPULATE, shared])),
        (low(4), Must::BeOneOf([memory, root, root])),
    ];
    let stack = [
        (high(0), Must::Be((STACKS >> 32) as u32)),
        (high(1), Must::Be(0)),
        (low(1), Must::Be(STACK_BYTES as u32)),
        (low(2), Must::BeOneOf([PROT_READ | PROT_WRITE, 0, 0])),
        (low(3), Must::Be(shared)),
        (low(4), Must::Be(memory)),
    ];
    let replaced = [
        (high(0), Must::Be((machine.text.start >> 32) as u32)),
        (low(0), Must::BeAtLeast(machine.text.start as u32)),
        (low(0), Must::BeBelow(machine.text.end as u32)),
        (high(1), Must::Be(0)),
        (low(1), Must::Be(PAGE_SIZE as u32)),
        (low(2), Must::Be(PROT_READ | PROT_EXEC)),
        (low(3), Must::Be(MAP_FIXED | MAP_SHARED)),
        (low(4), Must::Be(memory)),
    ];
    f.allow_by_place(host::MMAP, end, &shown, &[&stack, &replaced]);
    f.allow_range_if(host::MUNMAP, end, &[]);
    f.allow_if(host::MADVISE, &[(low(2), Must::BeOneOf([MADV_DONTNEED, MADV_COLLAPSE, MADV_COLLAPSE]))]);
    f.allow_protect(machine);
    if machine.by_call {
        let codes = [ARCH_SET_FS, ARCH_GET_FS, ARCH_GET_FS];
        f.allow_if(host::ARCH_PRCTL, &[(low(0), Must::BeOneOf(codes))]);
    }
    if !machine.open.disks.is_empty() || machine.open.given.is_some() {
        for number in [host::PREADV, host::PWRITEV, host::FDATASYNC] {
            f.allow_of_files(number, &machine.open);
        }
    }
    if let Some(first) = machine.open.given {
        // Its own descriptors, by which it is held to its memory and its part of the address space, cannot be closed for others to
        // take their numbers.
        for number in [host::PREADV2, host::CLOSE] {
            f.allow_if(number, &[(low(0), Must::BeAtLeast(first as u32))]);
        }
        f.allow(host::RECVMSG);
        f.allow(host::SCHED_YIELD);
    }
    if let Some(process) = machine.several {
        if !machine.in_turns {
            let [wait, wake] = FUTEXES;
            f.allow_if(host::FUTEX, &[(low(1), Must::BeOneOf([wait, wake, wake]))]);
            // A signal for a processor of this machine, which it expects.
            f.allow_if(host::TGKILL, &[(low(0), Must::Be(process)), (low(2), Must::Be(KICK))]);
        }
        let [memory, code] = BARRIERS;
        f.allow_if(host::MEMBARRIER, &[(low(0), Must::BeOneOf([memory, code, code]))]);
    }
    if machine.in_turns {
        let [wait, wake] = SHARED_FUTEXES;
        f.allow_if(host::FUTEX, &[(low(1), Must::BeOneOf([wait, wake, wake]))]);
        // To whatever process: there is no other one in the machine's namespace of process numbers.
        f.allow_if(host::TGKILL, &[(low(2), Must::Be(KICK))]);
    }
    f.put(RETURN, TRAP, 0, 0);
    f
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What classic BPF does.
    fn run(filter: &Filter, number: u32, architecture: u32, arguments: [u64; 6]) -> u32 {
        let load = |at: u32| match at {
            NUMBER => number,
            ARCHITECTURE => architecture,
            _ => {
                let word = arguments[(at as usize - 16) / 8];
                if at.is_multiple_of(8) { word as u32 } else { (word >> 32) as u32 }
            }
        };
        let (mut at, mut a, mut x, mut scratch) = (0, 0u32, 0, [0; 16]);
        loop {
            let i = filter.code()[at];
            at += 1;
            match i.code {
                LOAD => a = load(i.value),
                LOAD_VALUE => a = i.value,
                LOAD_SCRATCH => a = scratch[i.value as usize],
                STORE_SCRATCH => scratch[i.value as usize] = a,
                COPY_TO_X => x = a,
                ADD_X => a = a.wrapping_add(x),
                JUMP => at += i.value as usize,
                RETURN => return i.value,
                _ => {}
            }
            let taken = match i.code {
                IF_EQUAL => a == i.value,
                IF_GREATER_OR_EQUAL => a >= i.value,
                IF_AT_LEAST_X => a >= x,
                LOAD | LOAD_VALUE | LOAD_SCRATCH | STORE_SCRATCH | COPY_TO_X | ADD_X | JUMP => continue,
                _ => panic!("no such instruction"),
            };
            at += usize::from(if taken { i.if_true } else { i.if_false });
        }
    }

    fn machine(by_call: bool) -> Filter {
        machine_of(by_call, None)
    }

    fn machine_of(by_call: bool, several: Option<u32>) -> Filter {
        machine_with(by_call, several, NONE)
    }

    /// No files.
    const NONE: Open = Open { disks: 0..0, given: None };

    fn machine_with(by_call: bool, several: Option<u32>, open: Open) -> Filter {
        let text = TEXT..TEXT + 0x10_0000;
        let closed = TEXT + 0x2000..text.end;
        filter(&Machine {
            files: [3, 4],
            text,
            closed,
            variables: VARIABLES,
            by_call,
            several,
            in_turns: false,
            open,
        })
    }

    fn machine_of_several_host_processes(several: Option<u32>) -> Filter {
        let text = TEXT..TEXT + 0x10_0000;
        let closed = text.clone();
        filter(&Machine {
            files: [3, 4],
            text,
            closed,
            variables: VARIABLES,
            by_call: false,
            several,
            in_turns: true,
            open: NONE,
        })
    }

    /// Flags of a mapping that is allowed.
    const SHARED: u64 = (MAP_FIXED | MAP_SHARED | MAP_NORESERVE) as u64;
    const TEXT: u64 = USER_END + 0x20_1000;
    const VARIABLES: u64 = TEXT + 0x20_0000;

    fn asks(number: u32, arguments: [u64; 6]) -> bool {
        run(&machine(false), number, X86_64, arguments) == ALLOW
    }

    #[test]
    fn only_listed_calls_pass() {
        // Arguments that pass where arguments matter: a fixed mapping of the memory, and what madvise may be told.
        let (shared, memory) = (SHARED, 3);
        let tries = [[0; 6], [0, 0, 0, shared, memory, 0], [0, 0, u64::from(MADV_DONTNEED), 0, 0, 0]];
        let codes = [[u64::from(ARCH_SET_FS), 0, 0, 0, 0, 0]];
        let (process, kick) = (77, u64::from(KICK));
        let several = [
            [0, FUTEXES[0].into(), 0, 0, 0, 0],
            [process, 1, kick, 0, 0, 0],
            [BARRIERS[1].into(), 0, 0, 0, 0, 0],
        ];
        let files = [[DISKS.start as u64, 0, 0, 0, 0, 0], [GIVEN as u64, 0, 0, 0, 0, 0]];
        let f = machine_with(true, Some(process as u32), Open { disks: DISKS, given: Some(GIVEN) });
        let passes = |n: u32| {
            tries.iter().chain(&codes).chain(&several).chain(&files).any(|a| run(&f, n, X86_64, *a) == ALLOW)
        };
        let passing: std::vec::Vec<u32> = (0..600).filter(|n| passes(*n)).collect();
        let listed: std::vec::Vec<u32> = crate::CALLS.iter().map(|(number, ..)| *number).collect();
        assert_eq!(passing, listed);
        assert_eq!(run(&machine(false), host::READ, 0x4000_0003, [0; 6]), TRAP);
    }

    /// Descriptors of disks, and the first of files that are given.
    const DISKS: Range<i32> = 11..13;
    const GIVEN: i32 = 20;

    #[test]
    fn files_are_the_machines_disks_and_what_it_was_given() {
        let machines = [
            (NONE, &[][..]),
            (Open { disks: DISKS, given: None }, &[11, 12]),
            (Open { disks: 0..0, given: Some(GIVEN) }, &[20, 21, 1000]),
            (Open { disks: DISKS, given: Some(GIVEN) }, &[11, 12, 20, 21, 1000]),
        ];
        for (open, files) in machines {
            let f = machine_with(false, None, open.clone());
            for fd in [0, 3, 10, 11, 12, 13, 19, 20, 21, 1000] {
                let passes = |number| run(&f, number, X86_64, [fd, 0, 0, 0, 0, 0]) == ALLOW;
                for number in [host::PREADV, host::PWRITEV, host::FDATASYNC] {
                    assert_eq!(passes(number), files.contains(&fd), "{number} {fd}");
                }
                let is_given = open.given.is_some() && fd >= GIVEN as u64;
                assert!(passes(host::CLOSE) == is_given && passes(host::PREADV2) == is_given, "{fd}");
                assert_eq!(passes(host::RECVMSG), open.given.is_some());
                assert_eq!(passes(host::SCHED_YIELD), open.given.is_some());
            }
        }
    }

    #[test]
    fn one_processor_tells_no_other_one() {
        let (one, two) = (machine(false), machine_of(false, Some(77)));
        let kick = u64::from(KICK);
        for (number, arguments, with_two) in [
            (host::FUTEX, [0, FUTEXES[1].into(), 1, 0, 0, 0], ALLOW),
            // Without FUTEX_PRIVATE_FLAG, and other operations.
            (host::FUTEX, [0; 6], TRAP),
            (host::FUTEX, [0, 13 | 128, 0, 0, 0, 0], TRAP),
            (host::TGKILL, [77, 78, kick, 0, 0, 0], ALLOW),
            (host::TGKILL, [1, 1, kick, 0, 0, 0], TRAP),
            (host::TGKILL, [77, 78, 9, 0, 0, 0], TRAP),
            (host::MEMBARRIER, [8, 0, 0, 0, 0, 0], ALLOW),
            (host::MEMBARRIER, [1, 0, 0, 0, 0, 0], TRAP),
        ] {
            assert_eq!(run(&one, number, X86_64, arguments), TRAP);
            assert_eq!(run(&two, number, X86_64, arguments), with_two, "{number} {arguments:?}");
        }
    }

    #[test]
    fn processors_of_several_host_processes_find_each_other() {
        let f = machine_of_several_host_processes(Some(77));
        let asks = |number, arguments| run(&f, number, X86_64, arguments) == ALLOW;
        assert!(asks(host::FUTEX, [0; 6]) && asks(host::FUTEX, [0, 1, 1, 0, 0, 0]));
        // A private futex would wait for one address space only, and FUTEX_REQUEUE is nobody's.
        assert!(!asks(host::FUTEX, [0, 128, 0, 0, 0, 0]) && !asks(host::FUTEX, [0, 3, 1, 0, 0, 0]));
        assert!(asks(host::TGKILL, [78, 79, KICK.into(), 0, 0, 0]));
        assert!(!asks(host::TGKILL, [77, 78, 9, 0, 0, 0]));
        assert!(asks(host::MEMBARRIER, [8, 0, 0, 0, 0, 0]) && !asks(host::MEMBARRIER, [16, 0, 0, 0, 0, 0]));
        for number in [host::CLONE, host::PRCTL, host::TIMER_CREATE, host::SIGALTSTACK] {
            assert!(!asks(number, [0; 6]), "{number}");
        }
    }

    #[test]
    fn ranges_end_where_the_program_s_part_does() {
        let edges = [0, 1, 4096, 0xffff_f000, 0xffff_ffff, 1 << 32, (1 << 32) + 4096, USER_END / 2];
        let near = edges.iter().flat_map(|edge| {
            [*edge, USER_END.wrapping_sub(*edge), USER_END + edge, u64::MAX - edge, (1 << 63) - edge]
        });
        let near: std::vec::Vec<u64> = near.collect();
        for start in &near {
            for length in &near {
                // The whole part from address 0 on is no range of the program's: nothing is mapped in its first pages.
                let is_inside = *start < USER_END
                    && *length < USER_END
                    && start.checked_add(*length).is_some_and(|end| end <= USER_END);
                assert_eq!(
                    asks(host::MUNMAP, [*start, *length, 0, 0, 0, 0]),
                    is_inside,
                    "{start:x} {length:x}"
                );
                if *start < USER_END {
                    assert_eq!(asks(host::MPROTECT, [*start, *length, 7, 0, 0, 0]), is_inside);
                    assert_eq!(asks(host::MMAP, [*start, *length, 7, SHARED, 3, 0]), is_inside);
                }
            }
        }
    }

    #[test]
    fn host_processes_wake_each_other_and_are_made_by_none_of_them() {
        let f = machine_of_several_host_processes(None);
        let asks = |number, arguments| run(&f, number, X86_64, arguments) == ALLOW;
        assert!(asks(host::FUTEX, [0, 0, 0, 0, 0, 0]) && asks(host::FUTEX, [0, 1, 1, 0, 0, 0]));
        assert!(!asks(host::FUTEX, [0, 3, 1, 0, 0, 0]) && !asks(host::FUTEX, [0, 128, 1, 0, 0, 0]));
        assert!(asks(host::TGKILL, [5, 5, KICK.into(), 0, 0, 0]) && !asks(host::TGKILL, [5, 5, 9, 0, 0, 0]));
        const CLONE3: u32 = 435;
        for number in [host::CLONE, 57, 58, CLONE3, 59, host::PRCTL, host::TIMER_CREATE, host::CLOSE] {
            assert!(!asks(number, [0; 6]) && !asks(number, [17, 0, 0, 0, 0, 0]), "{number}");
        }
    }

    #[test]
    fn memory_calls_keep_to_the_program_and_its_files() {
        let (here, fixed) = (0x5000_0000_0000, u64::from(MAP_FIXED | MAP_SHARED));
        assert!(asks(host::MMAP, [here, 4096, 7, SHARED, 3, 0]));
        assert!(asks(host::MMAP, [here, 4096, 1, SHARED, 4, 0]));
        assert!(asks(host::MMAP, [here, 4096, 7, SHARED | u64::from(MAP_POPULATE), 3, 0]));
        assert!(!asks(host::MMAP, [here, 4096, 7, SHARED, u64::MAX, 0]));
        assert!(!asks(host::MMAP, [here, 4096, 7, SHARED, 5, 0]));
        // Anonymous memory and private copies, whatever their rights, and places of the host's choice.
        for flags in [0x4012, 0x12, 0x4032, 0x4031, 0x4001, 0x11, 0x4011 | 0x10_0000, 0x4013, 0x0104_4011] {
            for rights in [0, 1, 3, 7] {
                assert!(!asks(host::MMAP, [here, 4096, rights, flags, 3, 0]), "{flags:x}");
                assert!(!asks(host::MMAP, [here, 4096, rights, flags, u64::MAX, 0]), "{flags:x}");
            }
        }
        assert!(!asks(host::MMAP, [USER_END, 4096, 7, SHARED, 3, 0]));
        let stack = STACKS + 0x8000;
        assert!(asks(host::MMAP, [stack, STACK_BYTES, 3, SHARED, 3, 0x7000]));
        assert!(asks(host::MMAP, [stack, STACK_BYTES, 0, SHARED, 3, 0]));
        assert!(!asks(host::MMAP, [stack, STACK_BYTES, 7, SHARED, 3, 0]));
        assert!(!asks(host::MMAP, [stack, STACK_BYTES, 3, 0x4032, u64::MAX, 0]));
        assert!(!asks(host::MMAP, [stack, STACK_BYTES + 4096, 3, SHARED, 3, 0]));
        assert!(!asks(host::MMAP, [stack, 1 << 32 | STACK_BYTES, 3, SHARED, 3, 0]));
        assert!(!asks(host::MMAP, [0x7100_0000_0000, STACK_BYTES, 3, SHARED, 3, 0]));
        assert!(asks(host::MMAP, [TEXT, 4096, 5, fixed, 3, 0]));
        assert!(!asks(host::MMAP, [TEXT, 4096, 7, fixed, 3, 0]));
        assert!(!asks(host::MMAP, [TEXT, 4096, 5, fixed, 4, 0]));
        assert!(!asks(host::MMAP, [TEXT, 4096, 5, fixed | 0x20, 3, 0]));
        assert!(!asks(host::MMAP, [TEXT, 8192, 5, fixed, 3, 0]));
        assert!(!asks(host::MMAP, [TEXT, 1 << 32 | 4096, 5, fixed, 3, 0]));
        assert!(!asks(host::MMAP, [TEXT - 4096, 4096, 5, fixed, 3, 0]));
        assert!(!asks(host::MMAP, [TEXT + 0x10_0000, 4096, 5, fixed, 3, 0]));
        assert!(!asks(host::MMAP, [TEXT + (1 << 32), 4096, 5, fixed, 3, 0]));
        assert!(asks(host::MPROTECT, [here, 4096, 7, 0, 0, 0]));
        assert!(asks(host::MPROTECT, [USER_END, 4096, 1, 0, 0, 0]));
        assert!(asks(host::MPROTECT, [0x7040_0000_8000, 4096, 3, 0, 0, 0]));
        assert!(asks(host::MPROTECT, [VARIABLES, 4096, 3, 0, 0, 0]));
        assert!(!asks(host::MPROTECT, [VARIABLES - 4096, 4096, 3, 0, 0, 0]));
        assert!(!asks(host::MPROTECT, [TEXT, 4096, 3, 0, 0, 0]));
        for rights in [0, 2, 4, 5, 6, 7] {
            assert!(!asks(host::MPROTECT, [0x7040_0000_8000, 4096, rights, 0, 0, 0]));
            assert!(!asks(host::MPROTECT, [VARIABLES, 4096, rights, 0, 0, 0]));
        }
        assert!(asks(host::MPROTECT, [TEXT + 0x2000, 0xf_e000, 5, 0, 0, 0]));
        assert!(!asks(host::MPROTECT, [TEXT + 0x2000, 0xf_f000, 5, 0, 0, 0]));
        assert!(!asks(host::MPROTECT, [TEXT + 0x1000, 0xf_e000, 5, 0, 0, 0]));
        assert!(!asks(host::MUNMAP, [USER_END, 4096, 0, 0, 0, 0]));
        assert!(asks(host::MADVISE, [USER_END, 4096, 25, 0, 0, 0]));
        for advice in [0, 3, 8, 9, 10, 14, 16, 22, 23, 24, 100, 101] {
            assert!(!asks(host::MADVISE, [here, 4096, advice, 0, 0, 0]));
        }
        assert!(!asks(host::ARCH_PRCTL, [0x1002, 0, 0, 0, 0, 0]));
    }
}
