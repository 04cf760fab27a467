// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Debian's ps, strace, gdb and perf beside a program in supervisor mode: what a shell in the machine shows of it.

use std::{fs, time::Duration};
use unilith_tests::{Ran, Unilith, eventually, finish, root};

/// Building Linux, and fetching what the tools need.
const BUILD: Duration = Duration::from_secs(3600);
/// One command in the machine, with gdb reading symbols under software emulation.
const COMMAND: Duration = Duration::from_secs(180);

const PROJECT: &str = r#"
from = "debian:gdb-minimal"
with = ["debian:linux-perf", "debian:strace", "debian:busybox-static"]
program = "observed"
files = { "/usr/bin/observed" = "observed" }
"#;

/// What gdb is told to do once it has attached: a breakpoint, a watchpoint, a step, a call of a function.
const GDB: &str = "-ex 'thread apply all bt' -ex 'break deeper' -ex continue -ex bt -ex delete -ex 'watch rounds' -ex continue \
                   -ex delete -ex stepi -ex 'print (int)getpid()' -ex 'info registers cs ss'";

/// Runs the program that is to be observed, compiled by these words, at a level, and looks at it.
fn observe(level: &str, compiler: &[&str], cpus: &str) {
    let unilith = Unilith::new();
    let source = root().join("tests/programs/observed.c").display().to_string();
    let words = ["-g", "-O1", "-pthread", "-o", "observed", &source];
    let compile = [compiler, &words].concat().join(" ");
    finish(&mut unilith.shell(&compile), BUILD).ok();
    fs::write(unilith.path("unilith.toml"), PROJECT).expect("the scratch directory can be written");
    let flags = [
        "run",
        "-d",
        "--machine",
        "microvm",
        "-m",
        "768M",
        "--kernel",
        "linux",
        "--ukl",
        level,
        "--cpus",
        cpus,
    ];
    let ran = finish(&mut unilith.command(&[&flags[..], &["--network", "none", "."]].concat()), BUILD).ok();
    let machine = unilith.machine(ran.out.trim());
    let inside = |line: &str| -> Ran {
        let line = format!("P=$(busybox pidof observed); {line}");
        finish(&mut unilith.command(&["exec", &machine.id, "sh", "-c", &line]), COMMAND)
    };
    eventually("the program works", || inside("true").code == Some(0) && machine.log().contains("observed"));

    inside("ps | grep observed; ls -l /proc/$P/exe; cat /proc/$P/maps")
        .ok()
        .says("r-xp")
        .says("/usr/bin/observed\n");
    let said = inside(&format!("gdb -p $P -batch {GDB} 2>&1")).ok().out;
    for part in [
        "in idle (arg=",
        "hit Breakpoint 1, deeper (n=",
        "in main () at",
        "hit Hardware watchpoint 2: rounds",
        "New value = ",
        "$1 = ",
        "cs             0x33",
        "ss             0x2b",
    ] {
        assert!(said.contains(part), "{level}: expected `{part}` in {said}");
    }
    for wrong in ["Cannot", "Warning", "SIG"] {
        assert!(!said.contains(wrong), "{level}: `{wrong}` in {said}");
    }
    // It goes on, and so do its breakpoints' places.
    let perf = "cd /tmp; perf stat -e task-clock,page-faults,context-switches -p $P busybox sleep 1 2>&1; \
                perf record -e cpu-clock -F 200 -p $P -o data busybox sleep 2 2>&1 && perf report -i data --stdio 2>&1";
    let said = inside(perf).ok().out;
    let busy = said.lines().find(|line| line.contains("[.] deeper"));
    let share = busy.and_then(|line| line.trim().split('%').next()?.parse::<f64>().ok());
    assert!(share.is_some_and(|share| share > 50.0) && said.contains("task-clock"), "{level}: {said}");
    // The program itself, whose bypass ends while it is traced, and an ordinary one.
    inside("busybox timeout 2 strace -f -c -p $P 2>&1; true").ok().says("getppid");
    inside("busybox sleep 5 & busybox timeout 1 strace -p $! 2>&1; true").ok().says("attached");
    let rounds = || inside("gdb -p $P -batch -ex 'print rounds' 2>&1").ok().out;
    let (before, after) = (rounds(), rounds());
    assert!(before != after, "{level}: it stands still: {after}");
}

#[test]
#[ignore = "builds Linux and fetches gdb and perf"]
fn debuggers_and_profilers_see_an_unmodified_program_in_supervisor_mode() {
    observe("cpl0,byp,call,ret,shortcut", &["cc"], "1");
    observe("cpl0,byp", &["cc"], "2");
}

/// A further kernel of Linux.
mod long {
    use super::*;

    #[test]
    #[ignore = "builds Linux and fetches gdb and perf"]
    fn debuggers_and_profilers_see_a_program_that_is_linked_into_linux() {
        let compiler = root().join("unilith").display().to_string();
        observe("base,byp,shortcut", &[&compiler, "linux", "cc"], "2");
    }
}
