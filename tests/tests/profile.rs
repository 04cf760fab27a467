// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Sampled profiles of machines that are serving: `unilith profile`, `unilith top`; and the lines of `unilith trace` that
//! are ready to use.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::{
    net::SocketAddr,
    process::Stdio,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Duration,
};
use unilith_tests::{Machine, Ran, Unilith, finish, overlay::redis, slow_client};

const PATIENCE: Duration = Duration::from_secs(180);

fn has_overlay() -> bool {
    unilith_tests::tested_kernel() == "micro"
}

fn benchmark(at: SocketAddr, words: &[&str]) {
    let (host, port) = (at.ip().to_string(), at.port().to_string());
    let words = [&["-h", &host, "-p", &port, "-q", "-e"], words].concat();
    slow_client("redis-benchmark", &words, PATIENCE).ok();
}

/// What the command says while the machine's redis has work.
fn under_load(unilith: &Unilith, machine: &Machine, words: &[&str]) -> Ran {
    let (at, stop) = (machine.at(6379), AtomicBool::new(false));
    thread::scope(|scope| {
        let load = scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                benchmark(at, &["-n", "1000", "-t", "set,get,lpush", "-c", "10"]);
            }
        });
        let ran = finish(&mut unilith.command(words), PATIENCE);
        stop.store(true, Ordering::Relaxed);
        load.join().unwrap();
        ran
    })
}

#[test]
fn the_profile_of_redis_under_load_has_its_functions_and_the_kernels_with_their_callers() {
    let unilith = Unilith::new();
    if !has_overlay() {
        return;
    }
    let machine = redis(&unilith);
    let (mut all, mut samples) = (String::new(), 0);
    // A busy host lets the machine run for a small part of a second.
    for _ in 0..10 {
        let words = ["profile", &machine.id, "-d", "6", "--format", "folded"];
        let ran = under_load(&unilith, &machine, &words).ok();
        let mut counted = 0;
        for line in ran.out.lines() {
            let (frames, count) = line.rsplit_once(' ').unwrap_or_else(|| panic!("no count: {line}"));
            counted += count.parse::<u64>().unwrap_or_else(|e| panic!("{e}: {line}"));
            assert!(frames.split(';').all(|f| !f.is_empty()), "{line}");
        }
        let said = format!("{counted} samples in ");
        assert!(ran.err.contains(&said) && ran.err.contains("% of the time"), "{ran}");
        all += &ran.out;
        samples += counted;
        if samples >= 50 {
            break;
        }
    }
    assert!(samples >= 50, "{samples} samples: {all}");
    // From main down into the work, though Debian compiles without frame pointers.
    let has = |chain: &str| all.lines().any(|l| l.contains(chain));
    assert!(has(";main;aeMain;") && has(";processCommand"), "{all}");
    // The kernel's part lies above the call of the program.
    let kernel = |l: &&str| l.contains(";aeMain;") && l.contains(";unilith_kernel_syscall_[k];");
    assert!(all.lines().any(|l| kernel(&l)), "{all}");
    let of = |what: &str| -> u64 {
        let own = all.lines().filter(|l| l.contains(what));
        own.filter_map(|l| l.rsplit_once(' ')?.1.parse::<u64>().ok()).sum()
    };
    assert!(of(unilith_trace::profile::UNKNOWN) * 4 < samples, "callers of most are known: {all}");
    assert!(of("[no file]") * 4 < samples, "{all}");
}

#[test]
fn the_flame_graph_is_one_well_formed_file_that_needs_no_other() {
    let unilith = Unilith::new();
    if !has_overlay() {
        return;
    }
    let machine = redis(&unilith);
    let path = unilith.path("redis.svg");
    let words = ["profile", &machine.id, "-d", "4", "-F", "199", "-o", path.to_str().unwrap()];
    let ran = under_load(&unilith, &machine, &words).ok();
    assert!(ran.err.contains("redis.svg"), "{ran}");
    let svg = std::fs::read_to_string(&path).unwrap();
    let mut reader = quick_xml::Reader::from_str(&svg);
    let mut first = None;
    loop {
        match reader.read_event().unwrap_or_else(|e| panic!("{e} at {}", reader.error_position())) {
            quick_xml::events::Event::Eof => break,
            quick_xml::events::Event::Start(tag) if first.is_none() => {
                first = Some(String::from_utf8_lossy(tag.name().as_ref()).into_owned());
            }
            _ => {}
        }
    }
    assert_eq!(first.as_deref(), Some("svg"));
    assert!(svg.contains("aeMain") && svg.contains("unilith_kernel_syscall"), "{svg}");
    assert!(!svg.contains("href=\"http") && !svg.contains("src="), "{svg}");
}

#[test]
fn top_names_the_functions_that_use_the_processor() {
    let unilith = Unilith::new();
    if !has_overlay() {
        return;
    }
    let machine = redis(&unilith);
    let ran = under_load(&unilith, &machine, &["top", &machine.id, "-n", "1", "-d", "3", "--json"]).ok();
    let rows: Vec<serde_json::Value> = ran.out.lines().map(|l| serde_json::from_str(l).unwrap()).collect();
    let share = |r: &serde_json::Value| r["share"].as_f64().unwrap();
    assert!(rows.iter().map(share).sum::<f64>() < 1.05, "{ran}");
    assert!(rows.windows(2).all(|w| w[0]["samples"].as_u64() >= w[1]["samples"].as_u64()), "{ran}");
    let from = |file: &str| {
        rows.iter().any(|r| r["file"] == file && !r["function"].as_str().unwrap().starts_with('['))
    };
    assert!(from("kernel") && from("redis-check-rdb"), "{ran}");
    let ran = under_load(&unilith, &machine, &["top", &machine.id, "-n", "2"]).ok();
    assert_eq!(ran.out.matches("% idle").count(), 2, "{ran}");
    assert!(ran.out.contains("FUNCTION") && ran.out.contains("kernel"), "{ran}");
}

#[test]
fn what_cannot_be_profiled_is_refused_in_one_line() {
    let unilith = Unilith::new();
    if !has_overlay() {
        return;
    }
    let machine = redis(&unilith);
    let nowhere = unilith.path("nowhere").join("x.svg");
    let folder = unilith.path("");
    for (words, texts) in [
        (&["-o", nowhere.to_str().unwrap()][..], &["cannot write", "x.svg"][..]),
        (&["-o", folder.to_str().unwrap()], &["it is a directory"]),
    ] {
        let words = [&["profile", &machine.id], words].concat();
        finish(unilith.command(&words).current_dir(unilith.path("")), PATIENCE).fails_with(texts);
    }
    for words in [["-F", "0"], ["-F", "1000000"], ["-d", "0"], ["--format", "pdf"]] {
        let ran = unilith.run(&[&["profile", &machine.id][..], &words].concat()).code(2);
        assert!(ran.err.contains("invalid value"), "{ran}");
    }
    unilith.run(&["profile", "nobody"]).fails_with(&["nobody"]);
    unilith.run(&["top", "nobody"]).fails_with(&["nobody"]);
    // Nothing is left of the ones that failed.
    let left: Vec<_> = std::fs::read_dir(unilith.path("")).unwrap().map(|f| f.unwrap().file_name()).collect();
    assert!(!left.iter().any(|f| f.to_string_lossy().contains(".svg")), "{left:?}");
}

#[test]
fn a_machine_that_goes_away_in_the_middle_ends_the_profile_with_an_error() {
    let unilith = Unilith::new();
    if !has_overlay() {
        return;
    }
    let machine = redis(&unilith);
    let path = unilith.path("gone.svg");
    let words = ["profile", &machine.id, "-d", "60", "-o", path.to_str().unwrap()];
    let child = unilith.command(&words).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    thread::sleep(Duration::from_secs(4));
    unilith.run(&["kill", &machine.id]).ok();
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.lines().last().unwrap_or_default().starts_with("unilith: "), "{said}");
    assert!(!path.exists());
}

#[test]
fn every_ready_line_finds_something_in_redis() {
    let unilith = Unilith::new();
    if !has_overlay() {
        return;
    }
    let list = unilith.run(&["trace", "--list"]).ok();
    let machine = redis(&unilith);
    for (words, finds) in [
        (&["syscalls"][..], &["epoll_wait"][..]),
        (&["syscall-errors"], &["sys_exit"]),
        (&["syscall-latency", "read"], &[" ns ", "####"]),
        (&["reads"], &["####"]),
        (&["accepts"], &["redis-"]),
        (&["opens"], &[]),
        (&["calls", "processCommand"], &["processCommand: "]),
        (&["callers", "processCommand"], &[" times\n", "processCommand"]),
        (&["latency", "processCommand"], &[" ns ", "####"]),
        (&["slow", "processCommand", "1ns"], &["redis-", " us"]),
        (&["watch", "u32(&server)"], &["."]),
        (&["functions"], &["perf:sample"]),
        (&["page-faults"], &["exceptions:page_fault_user"]),
        (&["run-queue"], &["from sched:sched_wakeup to sched:sched_switch"]),
        (&["switches"], &["swapper/0", "redis-"]),
        (&["packets"], &["net:receive", "net:send", "####"]),
    ] {
        assert!(list.out.contains(words[0]), "{list}");
        let words = [&["trace", &machine.id], words, &["-d", "2"]].concat();
        let ran = under_load(&unilith, &machine, &words).ok();
        for text in finds {
            assert!(ran.out.contains(text), "{words:?}: expected `{text}` in {ran}");
        }
    }
    assert_eq!(list.out.lines().count(), unilith_trace::ready::ALL.len());
    for (words, texts) in [
        (&["slow", "processCommand"][..], &["write slow FUNCTION TIME"][..]),
        (&["callrs", "processCommand"], &["there is no ready one"]),
        (&["print(every 1s, server)"], &["bytes: say which"]),
        (&["print(every 1s, servr)"], &["there is no value `servr`"]),
        (&["print(every 1s, pid)", "--keep", "x"], &["leave out --keep"]),
    ] {
        unilith.run(&[&["trace", &machine.id], words].concat()).fails_with(texts);
    }
}

#[test]
fn a_variable_of_redis_is_printed_by_its_name() {
    let unilith = Unilith::new();
    if !has_overlay() {
        return;
    }
    let machine = redis(&unilith);
    // struct redisServer begins with the process id; 8 bytes of text of redis' own follow a pointer elsewhere.
    let ran = unilith.run(&["trace", &machine.id, "print(every 1s, i32(&server), pid)", "-d", "3"]).ok();
    let lines: Vec<&str> = ran.out.lines().collect();
    assert!((2..=4).contains(&lines.len()), "{ran}");
    for line in lines {
        let (variable, pid) = line.split_once(' ').unwrap();
        assert_eq!(variable, pid, "server.pid is the process' id: {ran}");
    }
}
