// SPDX-License-Identifier: Apache-2.0 OR MIT
//! eBPF programs at functions and tracepoints of machines that are serving.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::{
    io::{BufRead, BufReader, Read},
    net::SocketAddr,
    process::{Child, Stdio},
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Duration,
};
use unilith_overlay::Client;
use unilith_tests::{
    Machine, PATIENCE, Ran, Unilith, client, finish,
    overlay::{Asking, package, redis, send, session},
    slow_client,
};
use unilith_trace::{Script, language};

fn has_overlay() -> bool {
    unilith_tests::tested_kernel() == "micro"
}

/// `unilith trace` that has attached its programs.
struct Tracer {
    child: Child,
    said: BufReader<std::process::ChildStderr>,
}

impl Tracer {
    #[track_caller]
    fn start(unilith: &Unilith, machine: &Machine, words: &[&str]) -> Tracer {
        let mut command = unilith.command(&[&["trace", machine.id.as_str()], words].concat());
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut said = BufReader::new(child.stderr.take().unwrap());
        let mut line = String::new();
        while !line.starts_with("tracing ") {
            line.clear();
            let n = said.read_line(&mut line).unwrap();
            assert!(n > 0, "it ended: {:?}", child.wait_with_output());
            assert!(!line.starts_with("unilith: "), "{line}");
        }
        Tracer { child, said }
    }

    /// Ctrl-C, and what it found.
    #[track_caller]
    fn stop(mut self) -> String {
        unilith_tests::signal(rustix::process::Signal::INT, self.child.id());
        let output = self.child.wait_with_output().unwrap();
        let mut rest = String::new();
        self.said.read_to_string(&mut rest).unwrap();
        assert_eq!(output.status.code(), Some(0), "{rest}");
        String::from_utf8(output.stdout).unwrap()
    }
}

fn benchmark(at: SocketAddr, words: &[&str]) -> Ran {
    let (host, port) = (at.ip().to_string(), at.port().to_string());
    let words = [&["-h", &host, "-p", &port, "-q", "-e"], words].concat();
    slow_client("redis-benchmark", &words, Duration::from_secs(180)).ok()
}

#[test]
fn calls_of_a_function_are_counted_exactly_and_timed() {
    let unilith = Unilith::new();
    if !has_overlay() {
        return;
    }
    let machine = redis(&unilith);
    let at = machine.at(6379);
    let tracer = Tracer::start(
        &unilith,
        &machine,
        &["count(processCommand); latency(processCommand); hist(return lookupKey, ret)"],
    );
    // A connection of redis-benchmark asks for the configuration first, with two commands.
    benchmark(at, &["-n", "1000", "-t", "set"]);
    let said = tracer.stop();
    assert!(said.contains("processCommand: 1002\n"), "{said}");
    let timed: u64 = said
        .lines()
        .filter_map(|l| l.split_once(" ns "))
        .filter_map(|(_, rest)| rest.split('|').next()?.trim().parse::<u64>().ok())
        .sum();
    assert_eq!(timed, 1002, "{said}");
    // Nothing stays behind.
    let left = unilith.run(&["exec", &machine.id, "bpf", "list"]).ok().out;
    assert!(!left.contains("processCommand"), "{left}");
    benchmark(at, &["-n", "100", "-t", "get"]);
}

#[test]
fn arguments_strings_and_what_is_returned_are_printed() {
    let unilith = Unilith::new();
    if !has_overlay() {
        return;
    }
    let machine = redis(&unilith);
    let at = machine.at(6379);
    let (host, port) = (at.ip().to_string(), at.port().to_string());
    let cli = |words: &[&str]| client("redis-cli", &[&["-h", &host, "-p", &port], words].concat()).ok();
    // robj *createStringObject(const char *, size_t)
    let tracer = Tracer::start(
        &unilith,
        &machine,
        &["print(createStringObject, comm, str(arg0), arg1); print(return stringObjectLen, ret)"],
    );
    cli(&["set", "key", "needle-in-the-hay"]);
    cli(&["strlen", "key"]).says("17");
    let said = tracer.stop();
    assert!(said.lines().any(|l| l.contains("needle-in-the-hay") && l.ends_with(" 17")), "{said}");
    assert!(said.lines().any(|l| l == "17"), "{said}");
}

#[test]
fn tracepoints_tell_of_system_calls_threads_and_frames() {
    let unilith = Unilith::new();
    if !has_overlay() {
        return;
    }
    let machine = redis(&unilith);
    let tracer = Tracer::start(
        &unilith,
        &machine,
        &["count(sys_enter, id); count(sys_exit); count(sched_switch, next_comm); count(sched_wakeup); \
           count(net:receive, len); hist(net:send, len); stacks(kernel:posix::dispatch::invoke)"],
    );
    benchmark(machine.at(6379), &["-n", "200", "-t", "set", "-c", "1"]);
    let said = tracer.stop();
    // A read and a write for each request.
    for call in ["read", "write", "epoll_wait"] {
        let count = said.lines().find_map(|l| l.strip_suffix(&format!("  {call}"))).unwrap_or("0");
        assert!(count.trim().parse::<u64>().unwrap() >= 200, "{call}: {said}");
    }
    assert!(said.contains("swapper/0") && said.contains("unilith_kernel_syscall"), "{said}");
}

#[test]
fn what_cannot_be_traced_is_refused_in_one_line() {
    let unilith = Unilith::new();
    if !has_overlay() {
        return;
    }
    let machine = redis(&unilith);
    for (program, texts) in [
        ("count(processComand)", &["no function processComand", "processCommand"][..]),
        ("count(dictVanillaFree", &["a ')' is missing"]),
        ("sum(processCommand)", &["there is no action `sum`"]),
        ("count(sched_swich)", &["no function sched_swich"]),
        ("print(processCommand, arg9)", &["arg0 to arg5"]),
        ("count(kernel:nope)", &["no function nope"]),
        ("hist(net:send, what)", &["there is no value `what`", "len"]),
        ("", &["nothing to do"]),
        // One byte, a return.
        ("count(activeDefragCycle)", &["activeDefragCycle", "it is too short: it ends after 1 bytes"]),
    ] {
        unilith.run(&["trace", &machine.id, program]).fails_with(texts);
    }
    unilith.run(&["trace", "nobody", "count(f)"]).fails_with(&["nobody"]);
    // What is no package is refused by the machine as well, whatever it is.
    for noise in [&b""[..], b"UPRB", &[0xff; 4096]] {
        let path = unilith.path("noise");
        std::fs::write(&path, noise).unwrap();
        let mut command = unilith.command(&["exec", &machine.id, "bpf", "attach", "noise"]);
        let ran = finish(command.stdin(std::fs::File::open(&path).unwrap()), PATIENCE).code(126);
        assert!(ran.err.contains("not a package of programs"), "{ran}");
    }
    benchmark(machine.at(6379), &["-n", "100", "-t", "get"]);
}

/// A connection to the machine's overlay, and a script for it as a package.
fn packed(unilith: &Unilith, machine: &Machine, script: &Script) -> (Client, Vec<u8>) {
    let client = session(unilith, &machine.id);
    let package = package(&client, script, |path| path.ends_with("redis-check-rdb"));
    (client, package)
}

#[test]
fn a_thousand_times_attached_and_detached_under_load_no_answer_is_wrong() {
    let unilith = Unilith::new();
    if !has_overlay() {
        return;
    }
    let machine = redis(&unilith);
    let at = machine.at(6379);
    let script =
        language::compile("count(processCommand); latency(lookupKey); count(return call)", &|_| None)
            .unwrap();
    let (client, package) = packed(&unilith, &machine, &script);
    let stop = AtomicBool::new(false);
    let asking = Asking::redis(at);
    thread::scope(|scope| {
        let load = scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                benchmark(at, &["-n", "2000", "-t", "set,get,lpush", "-c", "20"]);
            }
        });
        let mut hits = 0;
        for cycle in 0..1000 {
            let said = send(&client, &["bpf", "attach", "cycle"], &package);
            assert_eq!(said.code, 0, "cycle {cycle}: {said:?}");
            if cycle % 100 == 99 {
                thread::sleep(Duration::from_millis(200));
                let answer = String::from_utf8(client.run(&["bpf", "list"], true).unwrap().out).unwrap();
                let rows = answer.lines().map(|l| serde_json::from_str::<serde_json::Value>(l).unwrap());
                hits += rows.map(|r| r["hits"].as_u64().unwrap()).sum::<u64>();
            }
            let said = send(&client, &["bpf", "detach", "cycle"], &[]);
            assert_eq!(said.code, 0, "cycle {cycle}: {said:?}");
        }
        stop.store(true, Ordering::Relaxed);
        load.join().unwrap();
        asking.goes_on();
        assert!(hits > 0, "no program was ever hit");
    });
}

/// `lock *(u64 *)(dst + off) += src`.
const ADD_TO_MEMORY: u8 = 0xdb;

#[test]
fn a_program_that_the_machine_finds_unsafe_is_refused_with_the_instruction_and_why() {
    let unilith = Unilith::new();
    if !has_overlay() {
        return;
    }
    let machine = redis(&unilith);
    let mut script = language::compile("hist(processCommand, 3)", &|_| None).unwrap();
    // The value that the look-up answers is used without a look whether it is there.
    let program = &mut script.bundle.programs[0].insns;
    let test = program.iter().rposition(|i| i.op == 0x15).unwrap();
    program[test].off = 0;
    let (client, package) = packed(&unilith, &machine, &script);
    let said = send(&client, &["bpf", "attach", "unsafe"], &package);
    assert_eq!(said.code, 126);
    // Which one it is, is the compiler's: the next that uses r0.
    let used =
        script.bundle.programs[0].insns.iter().skip(test + 1).position(|i| i.op == ADD_TO_MEMORY).unwrap();
    let why = format!("instruction {}: r0 is a number, not a pointer", test + 1 + used);
    assert!(said.why.contains(&why), "{said:?}");
    // Every damage of a package is refused, or attaches something that is verified.
    let script = language::compile("count(processCommand)", &|_| None).unwrap();
    let good = packed(&unilith, &machine, &script).1;
    // Where the program is to go, behind the bundle, is the host's word.
    for at in (0..12 + script.bundle.encode().len()).step_by(3) {
        let mut bad = good.clone();
        bad[at] ^= 0x11;
        send(&client, &["bpf", "attach", "damaged"], &bad);
        send(&client, &["bpf", "detach", "damaged"], &[]);
    }
    benchmark(machine.at(6379), &["-n", "200", "-t", "set,get"]);
}
