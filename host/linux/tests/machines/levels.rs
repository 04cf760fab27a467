// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What holds at every level.

use crate::machine::{Machine, QEMU_MICROVM, QEMU_Q35};
use api_boot::Status;
use unilith_linux::Options;

fn level(words: &str) -> Options {
    Options::parse(words).unwrap()
}

#[test]
#[ignore = "builds Linux"]
fn a_process_has_signals_threads_fork_exec_faults_and_tracing() {
    for (words, cpus, expected) in [
        ("", 1, "level 3, all well\n"),
        ("cpl0", 1, "level 0, all well\n"),
        ("cpl0", 2, "level 0, all well\n"),
        ("cpl0,byp", 1, "level 0, all well\n"),
        ("cpl0,byp,ret", 1, "level 0, all well\n"),
        ("cpl0,byp,ret", 2, "level 0, all well\n"),
    ] {
        let options = level(words);
        let args = vec!["/bin/process".into()];
        let machine = Machine::new(QEMU_MICROVM).level(options, cpus).with_program("process");
        let run = machine.configure(|c| c.args = args).boot();
        assert_eq!(run.console, expected, "{} on {cpus} processors", options.level());
        assert_eq!(run.statuses.last(), Some(&Status::Exit { code: 0 }));
    }
}

#[test]
#[ignore = "builds Linux"]
fn interrupts_and_faults_on_missing_stack_pages_do_no_harm() {
    for (words, cpus) in [("cpl0", 1), ("cpl0,byp", 2), ("cpl0,byp,ret", 1), ("cpl0,byp,ret", 2)] {
        let args = vec!["/bin/storm".into(), "2000".into()];
        let machine = Machine::new(QEMU_MICROVM).level(level(words), cpus).with_program("storm");
        let run = machine.configure(|c| c.args = args).boot();
        assert_eq!(run.console, format!("{} stacks on {cpus} processors\n", 2000 * cpus));
    }
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

/// Instructions of the guest for one call, from the program's own measurement under `-icount`, where a nanosecond is
/// an instruction.
fn instructions(words: &str, call: &str) -> f64 {
    let machine =
        Machine::new(QEMU_MICROVM).level(level(words), 1).counting_instructions().with_program("call");
    let run = machine.configure(|c| c.args = vec!["/bin/call".into(), call.into()]).boot();
    run.console.trim().parse().unwrap_or_else(|_| panic!("{call}: {}", run.console))
}

#[test]
#[ignore = "builds Linux"]
fn the_bypass_saves_what_the_entry_code_costs() {
    for (call, at_most) in [("getppid", 0.6), ("read", 0.85), ("write", 0.85)] {
        let (linux, byp) = (instructions("", call), instructions("cpl0,byp", call));
        println!("{call}: linux {linux}, linux+cpl0+byp {byp}");
        assert!(byp <= linux * at_most, "{call}: {byp} instructions against {linux}");
    }
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
