// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Programs on kernels that check themselves: memory and entry code (`kasan`), locks (`lockdep`). What a check finds ends the
//! machine and fails the test. `./unilith test` leaves these out: each kernel takes half an hour to build. By hand:
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

#[test]
#[ignore = "builds Linux with KASAN"]
fn memory_and_entry_code_are_in_order_at_every_level() {
    for (words, cpus) in [
        ("cpl0,kasan", 2),
        ("cpl0,byp,ret,kasan", 1),
        ("cpl0,byp,call,shortcut,kasan", 2),
        ("cpl0,byp,call,ret,rtc,shortcut,kasan", 1),
    ] {
        runs(machine(words, cpus).with_program("process"), &["/bin/process"], "level 0, all well\n");
        let stacks = format!("{} stacks on {cpus} processors\n", 200 * cpus);
        runs(machine(words, cpus).with_program("storm"), &["/bin/storm", "200"], &stacks);
        runs(machine(words, cpus).with_program("sockets"), &["/bin/sockets"], "all well\n");
    }
    let compiler = Compiler { language: Language::C, libc: Libc::Glibc, place: 0 };
    let linked = machine("base,byp,call,ret,shortcut,kasan", 2);
    let linked = linked.with_linked("process", "host/linux/tests/programs/process.c", compiler);
    runs(linked, &["/bin/process"], "level 0, all well\n");
}

#[test]
#[ignore = "builds Linux with lockdep"]
fn locks_are_in_order_in_supervisor_mode() {
    // One processor: lockdep judges orders, not races, and on two the emulator was seen to execute an INT3 of code patching
    // after the kernel had taken it back.
    for (words, cpus) in [("lockdep", 1), ("cpl0,lockdep", 1), ("cpl0,ret,rtc,lockdep", 1)] {
        let level = if words == "lockdep" { 3 } else { 0 };
        let well = format!("level {level}, all well\n");
        runs(machine(words, cpus).with_program("process"), &["/bin/process"], &well);
        if level == 0 {
            let stacks = format!("{} stacks on {cpus} processors\n", 200 * cpus);
            runs(machine(words, cpus).with_program("storm"), &["/bin/storm", "200"], &stacks);
        }
    }
}
