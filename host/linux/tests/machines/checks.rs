// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Programs on kernels that check themselves: memory and entry code (`kasan`), locks (`lockdep`). What a check finds ends the
//! machine and fails the test. Only `./unilith test --long` runs these: each kernel takes half an hour to build. By hand:
//! `cargo test -p unilith-linux --test machines checks -- --ignored`.

use crate::machine::{Machine, QEMU_MICROVM};
use api_boot::Status;
use unilith_linux::{Compiler, Language, Libc, Options};

fn machine(words: &str, cpus: u32) -> Machine {
    Machine::new(QEMU_MICROVM).level(Options::parse(words).unwrap(), cpus)
}

fn runs(machine: Machine, program: &[&str], expected: &str) {
    let run = machine.configure(|c| c.args = program.iter().map(ToString::to_string).collect()).boot();
    // Before it are the kernel's messages.
    assert!(run.console.ends_with(expected), "{}", run.console);
    assert_eq!(run.statuses.last(), Some(&Status::Exit { code: 0 }));
}

/// Unmodified programs that try processes, sockets and stacks, at these levels (without the check's word) on so many processors.
fn all_is_well(check: &str, levels: &[(&str, u32)]) {
    for (level, cpus) in levels {
        let words = format!("{level},{check}");
        let ring = if level.is_empty() { 3 } else { 0 };
        let well = format!("level {ring}, all well\n");
        runs(machine(&words, *cpus).with_program("process"), &["/bin/process"], &well);
        runs(machine(&words, *cpus).with_program("sockets"), &["/bin/sockets"], "all well\n");
        if ring == 0 {
            let stacks = format!("{} stacks on {cpus} processors\n", 200 * cpus);
            runs(machine(&words, *cpus).with_program("storm"), &["/bin/storm", "200"], &stacks);
        }
    }
}

/// The same linked into the kernel.
fn all_is_well_linked(words: &str, cpus: u32) {
    let compiler = Compiler { language: Language::C, libc: Libc::Glibc, place: 0 };
    for (name, expected) in [("process", "level 0, all well\n"), ("sockets", "all well\n")] {
        let source = format!("host/linux/tests/programs/{name}.c");
        let linked = machine(words, cpus).with_linked(name, &source, compiler);
        runs(linked, &[&format!("/bin/{name}")], expected);
    }
}

#[test]
#[ignore = "builds Linux with KASAN"]
fn memory_and_entry_code_are_in_order_at_every_level() {
    let levels = [
        ("cpl0", 2),
        ("cpl0,byp", 2),
        ("cpl0,byp,ret", 1),
        ("cpl0,byp,call,shortcut", 2),
        ("cpl0,byp,call,ret,rtc,shortcut", 1),
    ];
    all_is_well("kasan", &levels);
    all_is_well_linked("base,byp,call,ret,shortcut,kasan", 2);
}

#[test]
#[ignore = "builds Linux with lockdep"]
fn locks_are_in_order_at_every_level() {
    // One processor: lockdep judges orders, not races, and on two the emulator was seen to execute an INT3 of code patching
    // after the kernel had taken it back.
    let levels = [
        ("", 1),
        ("cpl0", 1),
        ("cpl0,ret,rtc", 1),
        ("cpl0,byp", 1),
        ("cpl0,byp,call,shortcut", 1),
        ("cpl0,byp,call,ret,shortcut", 1),
    ];
    all_is_well("lockdep", &levels);
    all_is_well_linked("base,byp,call,ret,shortcut,lockdep", 1);
}
