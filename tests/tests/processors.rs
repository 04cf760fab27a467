// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Process machines with several virtual processors (`--cpus`).

use std::time::Duration;
use unilith_tests::{
    Machine, Ran, Unilith, compile,
    memcached::{Client, serves},
    passt_works, slow_client,
};

/// Runs `tests/programs/processors.c` on so many processors.
#[track_caller]
fn runs(cpus: &str, words: &[&str]) -> Ran {
    let unilith = Unilith::new();
    let program = compile(&unilith, &["cc", "-O2", "-pthread"], "processors.c", &[]);
    let machine = ["--machine", "process", "--network", "none", "--cpus", cpus, &program];
    unilith.program_within(&[&machine[..], words].concat(), Duration::from_secs(90)).ok()
}

/// `None` where a process machine has no network: an ordinary user's is passt's.
fn start<'a>(unilith: &'a Unilith, words: &[&str]) -> Option<Machine<'a>> {
    if !rustix::process::geteuid().is_root() && !passt_works(unilith) {
        eprintln!("skipped: a process machine has no network here");
        return None;
    }
    Some(unilith.start(&[&["--machine", "process", "--cpus", "2"], words].concat()))
}

#[test]
fn two_threads_run_at_the_same_time() {
    runs("2", &["together"]).says("together yes");
}

#[test]
fn a_program_sees_as_many_processors_as_it_was_given() {
    for cpus in ["1", "2", "4"] {
        runs(cpus, &["seen"]).says(&format!("{cpus} of {cpus} processors"));
    }
}

#[test]
fn a_thread_is_where_it_was_pinned() {
    for cpus in ["1", "2", "4"] {
        runs(cpus, &["pinned"]).says("pinned");
    }
}

#[test]
fn nothing_is_lost_when_threads_do_everything_at_once() {
    for cpus in ["1", "2", "4"] {
        runs(cpus, &["storm", "3"]).says("storm over");
    }
}

/// Runs a program of several processes on so many processors, and looks for what it says when all is well. Where the host
/// allows no namespaces a machine with several processors has one process: the program is told, and so is the user.
#[track_caller]
fn processes_run(source: &str, cpus: &str, words: &[&str], says: &str) {
    let unilith = Unilith::new();
    let program = compile(&unilith, &["gcc", "-O1", "-Wall", "-Werror", "-static", "-pthread"], source, &[]);
    let machine = ["--machine", "process", "--network", "none", "--cpus", cpus, &program];
    let ran = unilith.program_within(&[&machine[..], words].concat(), Duration::from_secs(180));
    if cpus != "1" && !allows_namespaces(&unilith) {
        ran.code(1).says(&format!("errno {ENOSYS}")).complains("leave --cpus out");
    } else {
        ran.ok().says(says);
    }
}

const ENOSYS: u32 = 38;

fn allows_namespaces(unilith: &Unilith) -> bool {
    let words = ["--machine", "process", "--network", "none", "busybox", "sleep", "1000000"];
    let machine = unilith.start(&words);
    unilith.inspect(&machine.id)["state"]["isolation"] != "filter-only"
}

#[test]
fn two_processes_run_at_the_same_time() {
    for cpus in ["2", "4"] {
        processes_run("storm.c", cpus, &["together"], "together");
    }
}

#[test]
fn nothing_is_lost_when_processes_do_everything_at_once() {
    for (cpus, rounds) in [("1", "8"), ("2", "16"), ("4", "40")] {
        processes_run("storm.c", cpus, &["storm", rounds], "storm over");
    }
}

/// What was made for programs of several processes holds on several processors.
#[test]
fn processes_are_linux_s_on_several_processors() {
    for cpus in ["2", "4"] {
        processes_run("processes.c", cpus, &[], "all process tests passed");
    }
}

#[test]
fn four_threads_of_memcached_serve_twenty_clients_on_two_processors() {
    let unilith = Unilith::new();
    let Some(machine) = start(&unilith, &["-p", "127.0.0.1::11211", "memcached"]) else { return };
    let at = machine.at(11211);
    serves(at, 20, 500);
    let stats = Client::new(at).stats();
    assert!(stats.contains(&"STAT cmd_set 10000".to_string()), "{stats:?}");
}

#[test]
fn redis_answers_with_threads_for_its_connections() {
    let unilith = Unilith::new();
    let redis = [
        "redis",
        "--protected-mode",
        "no",
        "--io-threads",
        "2",
        "--io-threads-do-reads",
        "yes",
        "--save",
        "",
    ];
    let Some(machine) = start(&unilith, &[&["-p", "127.0.0.1::6379"], &redis[..]].concat()) else { return };
    let at = machine.at(6379);
    let (host, port) = (at.ip().to_string(), at.port().to_string());
    for pipeline in ["1", "16"] {
        let words =
            ["-h", &host, "-p", &port, "-n", "5000", "-c", "30", "-P", pipeline, "-t", "set,get,incr", "-q"];
        let ran = slow_client("redis-benchmark", &words, Duration::from_secs(120)).ok();
        assert_eq!(ran.out.matches("requests per second").count(), 3, "{ran}");
    }
}

#[test]
fn what_is_for_one_processor_is_refused_in_one_line() {
    let unilith = Unilith::new();
    let Some(machine) = start(&unilith, &["-p", "127.0.0.1::11211", "memcached"]) else { return };
    let traced = unilith.run(&["trace", &machine.id, "count(malloc)"]);
    assert!(traced.code != Some(0) && traced.err.contains("--cpus 1"), "{traced}");
    // The rest of the overlay works.
    unilith.run(&["exec", &machine.id, "ps"]).ok().says("memcached");
}
