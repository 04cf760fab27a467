// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What holds at every level.

use crate::machine::{Machine, QEMU_MICROVM, QEMU_Q35};
use api_boot::Status;
use std::collections::BTreeMap;
use unilith_linux::Options;

fn level(words: &str) -> Options {
    Options::parse(words).unwrap()
}

#[test]
#[ignore = "builds Linux"]
fn a_process_has_signals_threads_fork_exec_faults_and_tracing() {
    for (words, cpus, expected) in [
        ("", 1, "level 3, all well\n"),
        ("cpl0", 2, "level 0, all well\n"),
        ("cpl0,byp", 1, "level 0, all well\n"),
        ("cpl0,byp,ret", 2, "level 0, all well\n"),
        ("cpl0,byp,call,shortcut", 1, "level 0, all well\n"),
        ("cpl0,byp,call,ret,shortcut", 2, "level 0, all well\n"),
    ] {
        let options = level(words);
        let args = vec!["/bin/process".into()];
        let machine = Machine::new(QEMU_MICROVM).level(options, cpus).with_program("process");
        let run = machine.configure(|c| c.args = args).boot();
        assert_eq!(run.console, expected, "{} on {cpus} processors", options.level());
        assert_eq!(run.statuses.last(), Some(&Status::Exit { code: 0 }));
    }
}

/// Without `CONFIG_TEXT_POKE_AGAIN` the kernel dies of its own breakpoint within some thousand changes.
#[test]
#[ignore = "builds Linux"]
fn code_of_the_kernel_may_be_changed_while_another_processor_runs_it() {
    for words in ["", "cpl0,byp"] {
        let args = vec!["/bin/patching".into(), "2000".into()];
        let machine = Machine::new(QEMU_MICROVM).level(level(words), 2).with_program("patching");
        let run = machine.configure(|c| c.args = args).boot();
        assert_eq!(run.console, "changed 4000 times\n");
        assert_eq!(run.statuses.last(), Some(&Status::Exit { code: 0 }));
    }
}

fn stacks_come_and_go(stacks: u32) {
    for (words, cpus) in
        [("cpl0", 1), ("cpl0,byp", 2), ("cpl0,byp,ret", 2), ("cpl0,byp,call,ret,shortcut", 1)]
    {
        let args = vec!["/bin/storm".into(), stacks.to_string()];
        let machine = Machine::new(QEMU_MICROVM).level(level(words), cpus).with_program("storm");
        let run = machine.configure(|c| c.args = args).boot();
        assert_eq!(run.console, format!("{} stacks on {cpus} processors\n", stacks * cpus));
    }
}

#[test]
#[ignore = "builds Linux"]
fn interrupts_and_faults_on_missing_stack_pages_do_no_harm() {
    stacks_come_and_go(500);
}

#[test]
#[ignore = "builds Linux"]
fn a_shell_and_its_children_run_in_supervisor_mode_on_a_machine_with_pci() {
    let run = Machine::new(QEMU_Q35)
        .level(level("cpl0"), 2)
        .shell("cat /proc/self/personality; (echo a; echo b) | grep b; exit 3");
    assert_eq!(run.console, "10000000\nb\n");
    assert_eq!(run.statuses.last(), Some(&Status::Exit { code: 3 }));
}

/// Instructions of the guest for one call of each kind, from the benchmark's measurement under `-icount`, where a
/// nanosecond is an instruction.
fn instructions(words: &str) -> BTreeMap<String, f64> {
    let machine = Machine::new(QEMU_MICROVM).level(level(words), 1).counting_instructions();
    let machine = machine.with_source("calls", "bench/ukl/calls.c");
    let run = machine.configure(|c| c.args = vec!["/bin/calls".into()]).boot();
    let parse = |line: &str| Some((line.split_once(' ')?.0.into(), line.split_once(' ')?.1.parse().ok()?));
    run.console.lines().filter_map(parse).collect()
}

/// Runs a program without arguments and compares what it prints.
fn prints(words: &str, cpus: u32, program: &str, expected: &str) {
    let machine = Machine::new(QEMU_MICROVM).level(level(words), cpus).with_program(program);
    let run = machine.configure(|c| c.args = vec![format!("/bin/{program}")]).boot();
    assert_eq!(run.console, expected, "{program} with {words} on {cpus} processors");
}

#[test]
#[ignore = "builds Linux"]
fn call_sites_become_jumps_only_where_asked_and_where_nothing_else_changes() {
    let untouched = "number syscall, zero syscall, false syscall, prefix syscall\n";
    let patched = "number jump, zero jump, false syscall, prefix syscall\n";
    prints("cpl0,byp", 1, "sites", untouched);
    prints("cpl0,byp,call,shortcut", 1, "sites", patched);
    prints("cpl0,byp,call,ret", 2, "sites", patched);
}

#[test]
#[ignore = "builds Linux"]
fn sockets_and_devices_are_the_same_with_shortcuts() {
    prints("", 1, "sockets", "all well\n");
    prints("cpl0,byp,call,shortcut", 1, "sockets", "all well\n");
    prints("cpl0,byp,shortcut", 2, "sockets", "all well\n");
}

#[test]
#[ignore = "builds Linux"]
fn a_thread_keeps_the_processor_only_where_it_runs_to_completion() {
    prints("cpl0,byp,call", 1, "completion", "shared\n");
    prints("cpl0,rtc", 1, "completion", "alone\n");
    prints("cpl0,byp,call,ret,rtc,shortcut", 1, "completion", "alone\n");
}

#[test]
#[ignore = "builds Linux"]
fn a_page_fault_returns_by_a_jump_only_where_asked() {
    for (words, expected) in [("cpl0", "iret\n"), ("cpl0,ret", "jump\n"), ("cpl0,byp,ret", "jump\n")] {
        let machine = Machine::new(QEMU_MICROVM).level(level(words), 1).with_program("returns");
        let variable = machine.kernel_symbol("ukl_return_ip");
        let run = machine.configure(|c| c.args = vec!["/bin/returns".into(), variable]).boot();
        assert_eq!(run.console, expected, "{words}");
    }
}

/// Storms of some length, and machines that count instructions, take minutes.
mod long {
    use super::*;

    #[test]
    #[ignore = "takes minutes"]
    fn thousands_of_interrupts_and_faults_on_missing_stack_pages_do_no_harm() {
        stacks_come_and_go(2000);
    }

    #[test]
    #[ignore = "builds Linux"]
    fn each_way_of_calls_saves_instructions() {
        let linux = instructions("");
        // At most these parts of what `linux` takes, with a tenth to spare.
        let levels: [(&str, &[(&str, f64)]); 3] = [
            ("cpl0,byp", &[("getppid-0", 0.65), ("read-1", 0.9), ("write-1", 0.87)]),
            ("cpl0,byp,call", &[("getppid-0", 0.5), ("read-1", 0.82), ("write-1", 0.8)]),
            (
                "cpl0,byp,call,shortcut",
                &[
                    ("getppid-0", 0.3),
                    ("read-1", 0.65),
                    ("write-1", 0.55),
                    ("send-1", 0.85),
                    ("recv-1", 0.85),
                    ("tcp-64", 0.85),
                ],
            ),
        ];
        for (words, limits) in levels {
            let counted = instructions(words);
            for (call, at_most) in limits {
                let (here, there) = (counted[*call], linux[*call]);
                assert!(here <= there * at_most, "{words} {call}: {here} instructions against {there}");
            }
        }
    }
}
