// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Programs that are linked into the kernel.

use crate::machine::{Machine, QEMU_MICROVM, link};
use api_boot::Status;
use unilith_linux::{Compiler, Language, Libc, Options};

const C: Compiler = Compiler { language: Language::C, libc: Libc::Glibc, place: 0 };
const MUSL: Compiler = Compiler { libc: Libc::Musl, ..C };
const CPP: Compiler = Compiler { language: Language::Cpp, ..C };

fn machine(words: &str, cpus: u32) -> Machine {
    Machine::new(QEMU_MICROVM).level(Options::parse(words).unwrap(), cpus)
}

fn source(name: &str) -> String {
    format!("host/linux/tests/programs/{name}")
}

#[test]
#[ignore = "builds Linux"]
fn a_linked_program_has_signals_threads_fork_exec_faults_and_tracing() {
    for (words, cpus, compiler) in [
        ("base", 2, C),
        ("base", 1, MUSL),
        ("base,byp", 1, C),
        ("base,byp", 2, MUSL),
        ("base,byp,call,ret,shortcut", 2, C),
    ] {
        let machine = machine(words, cpus).with_linked("process", &source("process.c"), compiler);
        let run = machine.configure(|c| c.args = vec!["/bin/process".into()]).boot();
        assert_eq!(run.console, "level 0, all well\n", "{words} on {cpus} processors, {:?}", compiler.libc);
        assert_eq!(run.statuses.last(), Some(&Status::Exit { code: 0 }));
    }
}

#[test]
#[ignore = "builds Linux"]
fn interrupts_and_faults_on_missing_stack_pages_do_a_linked_program_no_harm() {
    for (words, cpus) in [("base", 2), ("base,byp,ret", 1)] {
        let machine = machine(words, cpus).with_linked("storm", &source("storm.c"), MUSL);
        let run = machine.configure(|c| c.args = vec!["/bin/storm".into(), "1000".into()]).boot();
        assert_eq!(run.console, format!("{} stacks on {cpus} processors\n", 1000 * cpus));
    }
}

#[test]
#[ignore = "builds Linux"]
fn cpp_programs_have_constructors_exceptions_and_the_standard_library() {
    let machine = machine("base,byp", 1).with_linked("linked", &source("linked.cpp"), CPP);
    let run = machine.configure(|c| c.args = vec!["/bin/linked".into()]).boot();
    let expected = "made everywhere\n10 keys, 997 in 7\nthread of its own, thread\nmade here\ncaught three\n\
                    gone here\ngone everywhere\n";
    assert_eq!(run.console, expected);
    assert_eq!(run.statuses.last(), Some(&Status::Exit { code: 5 }));
}

#[test]
#[ignore = "builds Linux"]
fn linked_programs_run_beside_ordinary_ones_and_beside_each_other_in_different_places() {
    let two = Compiler { place: 1, ..MUSL };
    let run = machine("base,byp", 1)
        .with_linked("one", &source("place.c"), MUSL)
        .with_linked("two", &source("place.c"), two)
        .with_linked("three", &source("place.c"), C)
        .shell("one; (two & two; wait); one; three 2>&1; cat /proc/$$/personality");
    let (one, two) = ("text at fffffffff0, level 0\n", "text at fffffffff1, level 0\n");
    let expected = format!("{one}{two}{two}{one}/bin/sh: three: Text file busy\n30000000\n");
    assert_eq!(run.console, expected);
}

#[test]
#[ignore = "builds Linux"]
fn connections_are_the_same_by_the_kernels_functions_as_by_system_calls() {
    for (words, cpus, compiler) in [("base", 1, C), ("base,byp,shortcut", 2, MUSL)] {
        let machine = machine(words, cpus).with_linked("tcp", &source("tcp.c"), compiler);
        let run = machine.configure(|c| c.args = vec!["/bin/tcp".into()]).boot();
        assert_eq!(run.console, "all well\n", "{words} on {cpus} processors");
        assert_eq!(run.statuses.last(), Some(&Status::Exit { code: 0 }));
    }
}

/// Why this text of C is not linked.
fn refusal(text: &str) -> String {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("bad.c");
    std::fs::write(&path, text).unwrap();
    link(path.to_str().unwrap(), C).unwrap_err()
}

#[test]
fn what_cannot_be_linked_is_refused_in_one_line_that_says_why() {
    let text = "int no_library_has_this(void); int main(void) { return no_library_has_this(); }";
    assert!(refusal(text).starts_with("undefined: no_library_has_this; no static library in /"));
    let text = "char *inet_neta(void); int main(void) { return !inet_neta(); }";
    assert_eq!(refusal(text), "undefined: inet_neta; -lresolv has inet_neta");
    let text = "int use(int (*)(void)); int use(int (*f)(void)) { return f(); }\n\
                int main(int n, char **v) { (void)v; int f(void) { return n; } return use(f); }";
    assert!(refusal(text).contains("wants an executable stack"));
    let text = "__asm__(\".text\\n.space 17 << 20\"); int main(void) { return 0; }";
    assert_eq!(refusal(text), "more text than the 16 MB of its place");
    let text = "int main(void) { __asm__ volatile(\"mov $main, %edi\"); return 0; }";
    assert!(refusal(text).contains("compile it with -fPIE"));
}

/// Machines that count instructions take minutes.
mod long {
    use super::*;

    #[test]
    #[ignore = "builds Linux"]
    fn functions_of_the_kernel_are_called_for_less_than_system_calls() {
        let machine =
            machine("base", 1).counting_instructions().with_linked("direct", &source("direct.c"), C);
        let run = machine.configure(|c| c.args = vec!["/bin/direct".into()]).boot();
        let figure = |name: &str| -> f64 {
            let line = run.console.lines().find_map(|line| line.strip_prefix(name));
            line.unwrap_or_else(|| panic!("{}", run.console)).trim().parse().unwrap()
        };
        assert!(figure("function ") <= figure("system ") * 0.5, "{}", run.console);
    }
}
