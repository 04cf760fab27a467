// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Debian's strace and gdb inside the machine, used as their users use them. What ptrace(2) does call by call is in
//! `tests/programs/ptrace.c`, which passes on Linux as well (`tests/tests/programs.rs`).

use std::time::Duration;
use unilith_tests::{Ran, Unilith, client, compile, tested_machine};

/// Unpacking gdb's packages, and thousands of stops under software emulation.
const SLOW: Duration = Duration::from_secs(240);

#[track_caller]
fn shows(text: &str, lines: &[&str]) {
    for line in lines {
        assert!(text.contains(line), "expected `{line}` in\n{text}");
    }
}

#[test]
fn strace_follows_a_shell_its_children_and_the_programs_they_become() {
    let script = "/bin/cat /etc/debian_version >/dev/null; kill -USR1 $$; /bin/false";
    let script = format!("trap 'echo got it' USR1; {script}");
    let ran = Unilith::new().program_within(&["debian:strace", "--", "-f", "sh", "-c", &script], SLOW);
    // strace writes to standard error, as what it follows may.
    let ran = ran.code(1).says("got it");
    let expected = [
        "execve(\"/usr/bin/sh\", [\"sh\", \"-c\", ",
        "execve(\"/bin/cat\", [\"/bin/cat\", \"/etc/debian_version\"], ",
        "openat(AT_FDCWD, \"/etc/debian_version\", O_RDONLY) = 3",
        "rt_sigaction(SIGUSR1, {sa_handler=0x",
        "--- SIGUSR1 {si_signo=SIGUSR1, si_code=SI_USER, si_pid=",
        "rt_sigreturn({mask=[]})",
        "write(1, \"got it\\n\", 7",
        "--- SIGCHLD {si_signo=SIGCHLD, si_code=CLD_EXITED, si_pid=",
        "execve(\"/bin/false\", [\"/bin/false\"], ",
        "+++ exited with 0 +++",
        "+++ exited with 1 +++",
        "strace: Process ",
        "[pid ",
    ];
    shows(&ran.err, &expected);
}

#[test]
fn strace_counts_and_filters_calls_and_makes_them_fail() {
    let words = [
        "debian:strace",
        "--",
        "-f",
        "-e",
        "trace=openat",
        "-e",
        "inject=openat:error=EMFILE",
        "-P",
        "/etc/passwd",
    ];
    let program = ["cat", "/etc/debian_version", "/etc/passwd"];
    let unilith = Unilith::new();
    let ran = unilith.program_within(&[&words[..], &program].concat(), SLOW).code(1);
    shows(
        &ran.err,
        &["= -1 EMFILE (Too many open files) (INJECTED)", "cat: /etc/passwd: Too many open files"],
    );
    assert!(!ran.err.contains("read("), "{ran}");
    let ran = unilith.program_within(&["debian:strace", "--", "-c", "-f", "true"], SLOW).ok();
    shows(&ran.err, &["% time", "execve", "total"]);
}

#[test]
fn strace_attaches_to_the_program_and_leaves_it_as_it_was() {
    let unilith = Unilith::new();
    let program = "while :; do read line </etc/debian_version; sleep 0.05; done";
    let machine = unilith.start(&["--entrypoint", "/bin/sh", "debian:strace", "--", "-c", program]);
    // Without -f: on Linux, too, strace waits for ever when it is to detach from a parent in vfork(2) whose child it holds.
    let script = "rm -f /tmp/calls /tmp/says; strace -o /tmp/calls -p 1 2>/tmp/says & \
                  until grep -q 'openat.*debian_version' /tmp/calls; do sleep 0.05; done 2>/dev/null; \
                  grep TracerPid /proc/1/status; kill $!; wait $!; grep TracerPid /proc/1/status; cat /tmp/says /tmp/calls";
    for _ in 0..2 {
        let ran = unilith.run(&["exec", &machine.id, "sh", "-c", script]).ok();
        shows(&ran.out, &["strace: Process 1 attached", "strace: Process 1 detached", "TracerPid:\t0\n"]);
        shows(&ran.out, &["openat(AT_FDCWD, \"/etc/debian_version\", O_RDONLY) = 3"]);
        assert_eq!(ran.out.matches("TracerPid:\t0\n").count(), 1, "{ran}");
    }
}

const PROGRAM: &str = "gdb.c";

/// The first process is gdb, which may not wait for a terminal.
const QUIETLY: [&str; 7] = ["-q", "-nx", "-batch", "-ex", "set width 0", "-ex", "set startup-with-shell off"];

fn as_options<'a>(commands: &[&'a str]) -> Vec<&'a str> {
    commands.iter().flat_map(|command| ["-ex", command]).collect()
}

/// Whether gdb can write the processor's extended state on this computer. Debian 12's knows no state as large as that of a processor with AMX, and
/// a Linux of such a one refuses it (`EFAULT`), as a process machine does there.
fn can_call_functions() -> bool {
    if tested_machine() != "process" {
        return true;
    }
    let unilith = Unilith::new();
    let program = compile(&unilith, &["cc", "-g", "-O0", "-pthread"], PROGRAM, &[]);
    let commands = as_options(&["break sum", "run", "print square(9)"]);
    let ran = client("gdb", &[&QUIETLY[..], &commands, &["--args", &program, "sum"]].concat());
    ran.out.contains("= 81") || !ran.err.contains("Couldn't write extended state status: Bad address")
}

/// Runs gdb with these commands on `tests/programs/gdb.c`.
#[track_caller]
fn gdb(words: &[&str], commands: &[&str]) -> Ran {
    let unilith = Unilith::new();
    let program = compile(&unilith, &["cc", "-g", "-O0", "-pthread"], PROGRAM, &[]);
    let volume = format!("{program}:/program");
    let all = [&["-m", "256M", "-v", &volume, "debian:gdb", "--"], &QUIETLY[..]].concat();
    let commands = as_options(commands);
    let program = ["--args", "/program"];
    unilith.program_within(&[&all[..], &commands, &program, words].concat(), SLOW)
}

#[test]
fn gdb_breaks_steps_prints_and_changes_a_program() {
    let commands = [
        "break sum",
        "run",
        "backtrace",
        "print numbers[2]",
        "info registers rip",
        "next",
        "step",
        "finish",
        "print square(9)",
        "set var total = 1000",
        "x/2i $pc",
        "delete",
        "continue",
    ];
    let ran = gdb(&["sum"], &commands).ok();
    shows(
        &ran.out,
        &[
            "Breakpoint 1, sum (numbers=",
            "#1  0x",
            " in main (",
            "$1 = 3",
            "<sum+",
            "The sum is 10",
            "exited normally]",
        ],
    );
    if can_call_functions() {
        shows(&ran.out, &["= 81"]);
    } else {
        shows(&ran.err, &["Couldn't write extended state status: Bad address"]);
    }
}

#[test]
fn gdb_watches_a_variable_by_single_steps_and_catches_a_fault() {
    let commands = [
        "set can-use-hw-watchpoints 0",
        "break square",
        "run",
        "watch counter",
        "continue",
        "continue",
        "delete",
        "continue",
        "backtrace",
        "print *(int *)$rsp != 12345",
    ];
    let ran = gdb(&["crash"], &commands);
    shows(
        &ran.out,
        &[
            "Watchpoint 2: counter",
            "Old value = 0",
            "New value = 1",
            "Program received signal SIGSEGV",
            "in crash (",
        ],
    );
}

#[test]
fn gdb_sees_threads_forks_programs_and_signals() {
    let commands = [
        "set pagination off",
        "catch fork",
        "catch exec",
        "handle SIGUSR1 nostop print pass",
        "break worker",
        "run",
        "info threads",
        "thread apply all backtrace 1",
        "delete 3",
        "continue",
        "continue",
        "continue",
    ];
    let ran = gdb(&["threads"], &commands);
    shows(
        &ran.out,
        &[
            "hit Breakpoint 3, worker (",
            "* 2 ",
            "(forked process ",
            "received signal SIGUSR1",
            "(exec'd ",
            "exited normally]",
        ],
    );
}
