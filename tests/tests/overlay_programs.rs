// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Programs that are loaded into running machines: what they do wrong ends them alone, and the application answers
//! the same bytes all the while.

use std::{
    fs,
    path::PathBuf,
    process::Stdio,
    time::{Duration, Instant},
};
use unilith_tests::{
    Machine, Ran, Unilith, eventually, limit,
    overlay::{
        ANSWERS, Asking, FAULTS, Numbers, build, damages, kernel_place, package, redis, send, session,
    },
    root, tested_kernel,
};

fn has_overlay() -> bool {
    tested_kernel() == "micro"
}

/// As [`build`], of a source of the test's own.
#[track_caller]
fn build_text(unilith: &Unilith, name: &str, program: &str) -> String {
    let source = unilith.path(name);
    fs::write(&source, program).expect("the scratch directory can be written");
    build(unilith, &source)
}

/// It failed with this code, and one line that says why.
#[track_caller]
fn refused(ran: Ran, code: i32, texts: &[&str]) {
    let ran = ran.code(code);
    assert!(ran.out.is_empty() && !ran.err.contains("panicked"), "{ran}");
    for text in texts {
        assert!(ran.err.contains(text), "expected `{text}` in {ran}");
    }
}

fn run(unilith: &Unilith, machine: &Machine, words: &[&str]) -> Ran {
    unilith.run(&[&["exec", machine.id.as_str(), "run"], words].concat())
}

/// On a slow computer it looks at a stack, or takes all memory, for longer than a program has time for by itself.
const SLOW: [&str; 2] = ["-t", "100"];

fn what_is_wrong_ends_the_program_alone(processor: Option<&str>) {
    let mut unilith = Unilith::new();
    if !has_overlay() {
        return;
    }
    if let Some(processor) = processor {
        unilith.set("UNILITH_CPU", processor);
    }
    let object = build(&unilith, &root().join("tests/programs/overlay/faults.c"));
    let machine = redis(&unilith);
    let asking = Asking::redis(machine.at(6379));
    asking.goes_on();
    for (fault, code, texts) in FAULTS {
        let words = [&SLOW[..], &[&object, fault, kernel_place(fault)]].concat();
        let ran = run(&unilith, &machine, &words).code(*code);
        for text in *texts {
            assert!(ran.err.contains(text), "{fault}: expected `{text}` in {ran}");
        }
        asking.goes_on();
    }
    for (what, answer) in ANSWERS {
        let ran = run(&unilith, &machine, &[&SLOW[..], &[&object, what]].concat()).ok();
        assert_eq!(ran.out, *answer, "{what}");
    }
    asking.goes_on();
    // It was linked once, and what each run had was given back.
    let ran = unilith.run(&["exec", "--json", &machine.id, "programs"]).ok();
    let program: serde_json::Value = serde_json::from_str(ran.out.trim()).expect("one program");
    assert_eq!(program["name"], "faults");
    assert_eq!(program["runs"].as_u64(), Some((FAULTS.len() + ANSWERS.len()) as u64));
    assert_eq!(program["state"], "loaded");
    unilith.run(&["exec", &machine.id, "free", "faults"]).ok();
    assert_eq!(unilith.run(&["exec", &machine.id, "programs"]).ok().out, "");
    let maps = unilith.run(&["exec", &machine.id, "cat", "/proc/self/maps"]).ok().out;
    assert!(!maps.contains("[overlay]"), "memory of programs is left: {maps}");
}

#[test]
fn what_is_wrong_ends_the_program_alone_by_the_machines_first_means() {
    what_is_wrong_ends_the_program_alone(None);
}

#[test]
fn what_is_wrong_ends_the_program_alone_with_page_tables() {
    if unilith_tests::is_skipped_on_process("its means are the rights of pages, whatever the processor has") {
        return;
    }
    what_is_wrong_ends_the_program_alone(Some("max,-pks"));
}

/// Calls functions of Redis, without the right to write and with it; the second one calls the third.
const CALLS: &str = "#include <stdio.h>\n#include <unilith/overlay.h>\n\
    extern unsigned long crc64(unsigned long, const unsigned char *, unsigned long);\n\
    extern char *sdsnew(const char *);\nextern void sdsfree(char *);\n\
    int main(void) { printf(\"%lx\\n\", crc64(0, (const unsigned char *)\"123456789\", 9));\n\
    if (uio_enable_write()) return 1;\nchar *text = sdsnew(\"text\");\nputs(text);\nsdsfree(text);\n\
    uio_disable_write();\nreturn 0; }\n";
/// crc64 of "123456789", as Redis' own test has it, and the text.
const CALLED: &str = "e9c6d914c4b8d9ca\ntext\n";

fn traced_functions_are_called_as_if_they_were_not(processor: Option<&str>) {
    let mut unilith = Unilith::new();
    if !has_overlay() {
        return;
    }
    if let Some(processor) = processor {
        unilith.set("UNILITH_CPU", processor);
    }
    let object = build_text(&unilith, "calls.c", CALLS);
    let machine = redis(&unilith);
    let asking = Asking::redis(machine.at(6379));
    assert_eq!(run(&unilith, &machine, &[&object]).ok().out, CALLED);
    let client = session(&unilith, &machine.id);
    let script =
        "count(crc64); count(return crc64); count(sdsnewlen); count(return sdsnewlen); count(processCommand)";
    let script = unilith_trace::language::compile(script, &|_| None).expect("a script of the test's own");
    let package = package(&client, &script, |path| path.ends_with("redis-check-rdb"));
    for _ in 0..3 {
        let said = send(&client, &["bpf", "attach", "calls"], &package);
        assert_eq!(said.code, 0, "{said:?}");
        assert_eq!(run(&unilith, &machine, &["calls"]).ok().out, CALLED);
        asking.goes_on();
        // The application's own calls are seen, a program's are not.
        let list = send(&client, &["bpf", "list"], b"").out;
        let hits = |of: &str| -> Vec<u64> {
            let rows = list.lines().filter(|l| l.split_whitespace().any(|w| w == of));
            rows.filter_map(|l| l.split_whitespace().last()?.parse().ok()).collect()
        };
        assert_eq!(hits("crc64"), [0, 0], "{list}");
        assert!(hits("processCommand").iter().all(|n| *n > 0), "{list}");
        assert_eq!(send(&client, &["bpf", "detach", "calls"], b"").code, 0);
        // The way around a probe stays when it has gone.
        assert_eq!(run(&unilith, &machine, &["calls"]).ok().out, CALLED);
    }
    asking.goes_on();
}

#[test]
fn traced_functions_are_called_as_if_they_were_not_by_the_machines_first_means() {
    traced_functions_are_called_as_if_they_were_not(None);
}

#[test]
fn traced_functions_are_called_as_if_they_were_not_with_page_tables() {
    if unilith_tests::is_skipped_on_process("its means are the rights of pages, whatever the processor has") {
        return;
    }
    traced_functions_are_called_as_if_they_were_not(Some("max,-pks"));
}

#[test]
fn loops_end_by_budget_and_by_interrupt_while_the_application_serves() {
    let unilith = Unilith::new();
    if !has_overlay() {
        return;
    }
    let object = build(&unilith, &root().join("tests/programs/overlay/faults.c"));
    let machine = redis(&unilith);
    let asking = Asking::redis(machine.at(6379));
    let ran = run(&unilith, &machine, &["-t", "1", &object, "loop"]).code(152);
    assert!(ran.err.contains("used up its processor time"), "{ran}");
    asking.goes_on();
    let ran = run(&unilith, &machine, &["-w", "1", &object, "loop-writing"]).code(152);
    assert!(ran.err.contains("held the application's thread for too long"), "{ran}");
    asking.goes_on();
    for endless in ["loop", "loop-printing", "sleep"] {
        let mut command = unilith.command(&["exec", &machine.id, "run", "-t", "0", &object, endless]);
        let command = command.stdout(Stdio::null()).stderr(Stdio::null());
        let mut child = command.spawn().unwrap();
        // A client that has not begun dies of the signal itself.
        eventually("the program runs", || {
            unilith.run(&["exec", &machine.id, "programs"]).ok().out.contains("running")
        });
        asking.goes_on();
        std::thread::sleep(Duration::from_millis(300));
        assert!(child.try_wait().unwrap().is_none(), "{endless} ended by itself");
        let begin = Instant::now();
        unilith_tests::signal(rustix::process::Signal::INT, child.id());
        assert_eq!(child.wait().unwrap().code(), Some(130), "{endless}");
        assert!(begin.elapsed() < limit(Duration::from_secs(10)), "{endless}");
    }
    // Who disconnects leaves nothing behind.
    let mut command = unilith.command(&["exec", &machine.id, "run", "-t", "0", &object, "loop"]);
    let mut child = command.stdout(Stdio::null()).spawn().unwrap();
    std::thread::sleep(Duration::from_millis(500));
    child.kill().unwrap();
    child.wait().unwrap();
    eventually("the program of a client that is gone has ended", || {
        unilith.run(&["exec", &machine.id, "programs"]).ok().out.contains("loaded")
    });
    asking.goes_on();
}

/// Writes as much as may be ahead of a reader (the window of a welcome), a byte more, and ends.
const TALKS: &str = "#include <unilith/overlay.h>\nstatic char text[4096];\n\
    int main(void) { for (int i = 0; i < 32; i++) uio_console_write(1, text, sizeof text);\n\
    uio_console_write(1, text, 1);\nreturn 7; }\n";

#[test]
fn a_program_that_ends_while_its_output_waits_for_a_reader_is_seen_to_end() {
    let unilith = Unilith::new();
    if !has_overlay() {
        return;
    }
    let object = fs::read(build_text(&unilith, "talks.c", TALKS)).expect("it was built");
    let machine = redis(&unilith);
    let client = session(&unilith, &machine.id);
    let size = object.len().to_string();
    // Without a limit of time, at which it would be looked at in any case.
    let running =
        client.start(&["run", "-t", "0", "-s", &size, "talks"], false, 0).expect("the line is there");
    assert!(running.input().write(&object).expect("the line is there"));
    std::thread::sleep(Duration::from_millis(500));
    let (sender, answer) = std::sync::mpsc::channel();
    std::thread::spawn(move || sender.send(running.answer().map(|answer| (answer.code, answer.out.len()))));
    let answer = answer.recv_timeout(unilith_tests::PATIENCE).expect("it ends").expect("the line is there");
    assert_eq!(answer, (7, (128 << 10) + 1));
}

#[test]
fn objects_that_cannot_be_linked_are_refused_with_the_reason() {
    let unilith = Unilith::new();
    if !has_overlay() {
        return;
    }
    let good = build(&unilith, &root().join("tests/programs/overlay/faults.c"));
    let bytes = fs::read(&good).unwrap();
    let object = |name: &str, bytes: &[u8]| {
        let path = unilith.path(name);
        fs::write(&path, bytes).unwrap();
        path.to_str().unwrap().to_string()
    };
    let machine = redis(&unilith);
    let asking = Asking::redis(machine.at(6379));
    let missing = build_text(
        &unilith,
        "missing.c",
        "extern int no_such_function_anywhere(void);\nint main(void) { return no_such_function_anywhere(); }\n",
    );
    let no_main = build_text(&unilith, "nomain.c", "int helper(void) { return 1; }\n");
    let damaged = damages(&bytes).into_iter().map(|(name, bytes, text)| (object(name, &bytes), text));
    for (object, text) in
        [(missing, "no_such_function_anywhere"), (no_main, "main")].into_iter().chain(damaged)
    {
        for verb in ["run", "load"] {
            refused(unilith.run(&["exec", &machine.id, verb, &object]), 126, &[text]);
        }
    }
    refused(unilith.run(&["exec", &machine.id, "run", "nobody"]), 1, &["no such program is loaded"]);
    refused(unilith.run(&["exec", &machine.id, "run", "/etc/hostname"]), 126, &["ELF"]);
    refused(unilith.run(&["exec", &machine.id, "run"]), 2, &["no program to run"]);
    refused(unilith.run(&["exec", &machine.id, "free", "nobody"]), 1, &["no such program"]);
    // Two that were built apart are one program.
    let part =
        build_text(&unilith, "part.c", "#include <stdio.h>\nint part(void) { return puts(\"part\"); }\n");
    let whole = build_text(
        &unilith,
        "whole.c",
        "#include <stdio.h>\nint part(void);\nint main(void) { puts(\"whole\"); return part(); }\n",
    );
    unilith.run(&["exec", &machine.id, "load", &whole, &part]).ok();
    assert_eq!(unilith.run(&["exec", &machine.id, "run", "whole"]).ok().out, "whole\npart\n");
    // Damaged in many ways: refused or run, and never anything else.
    let mut numbers = Numbers(4);
    for round in 0..40 {
        let mut damaged = bytes.clone();
        for _ in 0..1 + numbers.below(8) {
            let at = numbers.below(damaged.len());
            damaged[at] ^= 1 << numbers.below(8);
        }
        let path = object("damaged.o", &damaged);
        let ran = run(&unilith, &machine, &["-t", "1", &path]);
        assert!(ran.code.is_some_and(|code| matches!(code, 0..=127 | 132..=159)), "round {round}: {ran}");
    }
    asking.goes_on();
    drop(asking);
    unilith.run(&["exec", &machine.id, "ls", "/"]).ok();
}

#[test]
fn programs_are_kept_listed_replaced_and_freed() {
    let unilith = Unilith::new();
    if !has_overlay() {
        return;
    }
    let machine = redis(&unilith);
    let exec = |words: &[&str]| unilith.run(&[&["exec", machine.id.as_str()], words].concat());
    let echo = build_text(
        &unilith,
        "echo.c",
        "#include <stdio.h>\nstatic int runs;\nint main(int n, char **w) {\n\
         char line[100];\nfor (int i = 1; i < n; i++) printf(\"%s|\", w[i]);\n\
         while (fgets(line, sizeof line, stdin)) printf(\"> %s\", line);\nprintf(\"%d\\n\", ++runs);\nreturn n; }\n",
    );
    exec(&["load", &echo]).ok();
    // Variables are as at first each time; arguments and input arrive.
    for _ in 0..3 {
        assert_eq!(exec(&["run", "echo", "a b", "", "c"]).code(4).out, "a b||c|1\n");
    }
    let input = unilith.path("input");
    fs::write(&input, "one\ntwo\n").unwrap();
    for name in ["echo", &echo] {
        let mut command = unilith.command(&["exec", &machine.id, "run", name]);
        let command = command.stdin(fs::File::open(&input).unwrap());
        assert_eq!(unilith_tests::finish(command, unilith_tests::PATIENCE).code(1).out, "> one\n> two\n1\n");
    }
    // From the host's directory, without sending anything.
    let folder = PathBuf::from(unilith.run(&["overlay", "dir", &machine.id]).ok().out.trim());
    fs::copy(&echo, folder.join("other.o")).unwrap();
    exec(&["run", "other"]).code(1).says("1");
    exec(&["programs"]).ok().says("/overlay/other.o");
    exec(&["free", "echo", "other"]).ok();
    exec(&["run", "echo"]).code(1).says("");
    // One program of two objects, in C++ with constructors, and in Rust.
    fs::write(
        unilith.path("first.cpp"),
        "#include <stdio.h>\nextern int second(int);\nstruct Thing { int value; Thing(int v) : value(v) { puts(\"made\"); }\n\
         ~Thing() { puts(\"unmade\"); } };\nstatic Thing thing(20);\nextern \"C\" int common_word;\n\
         int main() { return second(thing.value) + common_word; }\n",
    )
    .unwrap();
    let second = unilith.path("second.cpp");
    fs::write(&second, "extern \"C\" { int common_word = 1; }\nint second(int n) { return n + 1; }\n")
        .unwrap();
    let both = unilith.path("both.o");
    let both = both.to_str().unwrap();
    let sources = ["first.cpp", "second.cpp"].map(|name| unilith.path(name).to_str().unwrap().to_string());
    unilith.run(&["overlay", "build", "-o", both, &sources[0], &sources[1]]).ok();
    assert_eq!(exec(&["run", both]).code(22).out, "made\nunmade\n");
    let hello = build(&unilith, &root().join("overlay/examples/hello.rs"));
    exec(&["run", &hello, "x"]).ok().says("1 argument(s), next to redis-");
}

#[test]
fn symbols_are_those_of_the_applications_files_at_their_addresses() {
    let unilith = Unilith::new();
    if !has_overlay() {
        return;
    }
    let machine = redis(&unilith);
    let exec = |words: &[&str]| unilith.run(&[&["exec", machine.id.as_str()], words].concat());
    let ran = exec(&["symbols", "getpid"]).ok();
    let line = ran.out.lines().find(|line| line.ends_with(" getpid")).expect("libc has getpid").to_string();
    let address = line.split_whitespace().next().unwrap();
    exec(&["symbols", "-a", address]).ok().says("getpid+0x0 (libc.so.6)");
    exec(&["symbols", "-a", "1"]).code(1).says("");
    exec(&["symbols", "no_such_name"]).code(1).says("");
    exec(&["symbols", "-a", "zzz"]).code(2).says("");
    // A program calls what it found.
    let object = build_text(
        &unilith,
        "pid.c",
        "#include <stdio.h>\nextern int getpid(void);\n#include <unilith/overlay.h>\nint main(void) {\n\
         char name[100];\nuio_symbol_name((void *)getpid, name, sizeof name);\n\
         if (uio_enable_write()) return 1;\nint pid = getpid();\nuio_disable_write();\n\
         printf(\"%d %s\\n\", pid, name);\nreturn 0; }\n",
    );
    assert_eq!(run(&unilith, &machine, &[&object]).ok().out, "1 getpid+0x0 (libc.so.6)\n");
}
