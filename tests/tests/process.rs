// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Machines that are processes: what is around them, and what a hostile program in one can do. The other tests run on them
//! as well, with `UNILITH_TEST_MACHINE=process`.

use rustix::process::Signal;
use std::{fs, time::Duration};
use unilith_tests::{Ran, Unilith, compile, eventually, is_alive, signal};

/// `run` on a process machine, whatever the others run on.
fn run(unilith: &Unilith, args: &[&str]) -> Ran {
    let words = [&["--machine", "process", "--network", "none"], args].concat();
    unilith.program_within(&words, Duration::from_secs(60))
}

/// The process of a machine.
fn process(unilith: &Unilith, machine: &str, which: &str) -> u64 {
    unilith.inspect(machine)["state"][which]["pid"].as_u64().expect("inspect names the process")
}

#[test]
fn it_has_no_rights_no_files_and_no_network_of_the_host() {
    let unilith = Unilith::new();
    let machine = unilith.start(&["--machine", "process", "--network", "none", "redis"]);
    let pid = process(&unilith, &machine.id, "process");
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let field = |name: &str| {
        let line = status.lines().find_map(|l| l.strip_prefix(name)?.strip_prefix(':'));
        line.unwrap_or_else(|| panic!("no {name} in {status}")).trim().to_string()
    };
    assert_eq!((field("NoNewPrivs").as_str(), field("Seccomp").as_str()), ("1", "2"));
    assert_eq!(u64::from_str_radix(&field("CapEff"), 16), Ok(0));
    let state = unilith.inspect(&machine.id)["state"].clone();
    if state["isolation"] != "full" {
        eprintln!("skipped: this host allows no namespaces: {}", state["isolation"]);
        return;
    }
    assert!(!field("Uid").split_whitespace().any(|id| id == "0"), "{status}");
    assert_eq!(fs::read_dir(format!("/proc/{pid}/root/")).unwrap().count(), 0);
    for kind in ["user", "mnt", "net", "pid", "ipc", "uts"] {
        let namespace = |of: &str| fs::read_link(format!("/proc/{of}/ns/{kind}")).unwrap();
        assert_ne!(namespace(&pid.to_string()), namespace("self"), "{kind}");
    }
}

#[test]
fn machine_and_supervisor_die_with_each_other() {
    let unilith = Unilith::new();
    for victim in ["supervisor", "process"] {
        let machine = unilith.start(&["--machine", "process", "--network", "none", "redis"]);
        let pids = ["supervisor", "process"].map(|p| process(&unilith, &machine.id, p));
        let device = unilith.inspect(&machine.id)["state"]["connection"]["device"].clone();
        signal(Signal::KILL, process(&unilith, &machine.id, victim) as u32);
        eventually("both processes end", || !pids.iter().any(|p| is_alive(*p)));
        unilith.run(&["ps", "-a"]).ok().says("exited (1");
        if let Some(device) = device.as_str() {
            assert!(!fs::exists(format!("/sys/class/net/{device}")).unwrap(), "{device} is left behind");
        }
    }
}

#[test]
fn a_link_in_a_volume_leads_nowhere_on_the_host() {
    let unilith = Unilith::new();
    let (folder, secret) = (unilith.path("data"), unilith.path("secret"));
    fs::create_dir(&folder).unwrap();
    fs::write(&secret, "for the host only").unwrap();
    std::os::unix::fs::symlink("../secret", folder.join("relative")).unwrap();
    std::os::unix::fs::symlink(&secret, folder.join("absolute")).unwrap();
    let volume = format!("{}:/data", folder.display());
    for link in ["/data/relative", "/data/absolute", "/data/../secret"] {
        let ran = run(&unilith, &["-v", &volume, "busybox", "cat", link]);
        assert!(ran.code != Some(0) && !ran.out.contains("for the host only"), "{link}: {ran}");
    }
    // Made from inside it is the same.
    let shell = "ln -s ../../../../../../../etc/passwd /data/mine; cat /data/mine";
    let ran = run(&unilith, &["-v", &volume, "busybox", "sh", "-c", shell]);
    assert!(!ran.out.contains("root:x:0:0:root:/root:/bin/bash"), "{ran}");
}

#[test]
fn commands_run_in_it_and_the_debugger_knows_its_names() {
    let unilith = Unilith::new();
    let machine = unilith.start(&["--machine", "process", "--network", "none", "redis"]);
    unilith.run(&["exec", &machine.id, "ps"]).ok().says("[overlay]");
    let words = ["gdb", &machine.id, "--", "-batch", "-ex", "info symbol main", "-ex", "bt"];
    let ran = unilith.run(&words);
    if ran.err.contains("gdb is not installed") {
        eprintln!("skipped: gdb is not installed");
        return;
    }
    // The program waits: its kernel does so for it.
    ran.ok().says("unilith_wait");
    unilith.run(&["exec", &machine.id, "ps"]).ok().says("[overlay]");
}

#[test]
fn memory_is_limited_to_what_it_was_given() {
    let unilith = Unilith::new();
    let program = compile(&unilith, &["cc", "-O1"], "eat.c", &[]);
    run(&unilith, &["-m", "32M", &program]).code(137).fails_with(&["ran out of memory", "32 MiB"]);
}

#[test]
fn the_environment_of_the_program_is_not_seen_by_other_users_of_the_host() {
    let unilith = Unilith::new();
    let words = ["--machine", "process", "--network", "none", "-e", "PASSWORD=not-for-ps", "redis"];
    let machine = unilith.start(&words);
    for which in ["process", "supervisor"] {
        let pid = process(&unilith, &machine.id, which);
        let words = fs::read(format!("/proc/{pid}/cmdline")).unwrap();
        let words = String::from_utf8_lossy(&words);
        assert!(!words.is_empty() && !words.contains("not-for-ps"), "{words}");
    }
}

/// Tries one attack; what it must come to is one of `codes`, and never "NOT contained".
#[track_caller]
fn attack(what: &str, codes: &[i32]) {
    let unilith = Unilith::new();
    let program = compile(&unilith, &["cc", "-O1"], "takeover.c", &[]);
    for cpus in ["1", "2"] {
        let words: Vec<&str> = ["--cpus", cpus, &program].into_iter().chain(what.split(' ')).collect();
        let ran = run(&unilith, &words);
        assert!(ran.code.is_some_and(|code| codes.contains(&code)), "expected {codes:?}: {ran}");
        assert!(!ran.out.contains("NOT contained"), "{ran}");
    }
}

/// The program answered for itself, or was ended by SIGILL, SIGSEGV or SIGSYS with a report of its own machine.
const CONTAINED: i32 = 0;
const ENDED: [i32; 4] = [CONTAINED, 128 + 4, 128 + 11, 128 + 31];

#[test]
fn system_calls_from_code_made_at_run_time_reach_the_library_os() {
    attack("raw", &[CONTAINED]);
}

#[test]
fn calls_of_32_bit_programs_reach_nothing() {
    attack("int80", &ENDED);
}

#[test]
fn the_vsyscall_page_gives_the_time_or_the_end() {
    attack("vsyscall", &ENDED);
}

#[test]
fn the_library_os_cannot_be_unmapped_or_mapped_over() {
    attack("unmap", &[CONTAINED]);
}

#[test]
fn the_code_of_the_library_os_cannot_be_written() {
    attack("write-kernel", &[128 + 11]);
}

/// The host refused, and the machine ended.
const REFUSED: [i32; 1] = [125];

#[test]
fn a_kernel_that_was_taken_over_has_no_more_memory_than_the_machine() {
    attack("host grow", &[CONTAINED]);
    attack("host write-archive", &[CONTAINED]);
    for what in ["anonymous", "reserve", "copy-archive", "copy-memory"] {
        attack(&format!("host {what}"), &REFUSED);
    }
}

#[test]
fn a_kernel_that_was_taken_over_does_not_reach_its_own_text() {
    for what in ["map-over", "protect-over", "unmap-over"] {
        attack(&format!("host {what}"), &REFUSED);
    }
}

#[test]
fn a_kernel_that_was_taken_over_makes_and_ends_no_processes() {
    for what in ["fork", "clone", "kill", "ptrace"] {
        attack(&format!("host {what}"), &REFUSED);
    }
}

#[test]
fn forked_processes_are_no_better_attackers() {
    attack("forked raw", &[CONTAINED]);
    attack("forked unmap", &[CONTAINED]);
    attack("forked write-kernel", &[128 + 11]);
    attack("forked host grow", &[CONTAINED]);
    attack("forked host write-archive", &[CONTAINED]);
    for what in ["anonymous", "copy-memory", "map-over", "clone", "kill"] {
        attack(&format!("forked host {what}"), &REFUSED);
    }
}

/// Processes of the host below one, at any depth.
fn descendants(pid: u64) -> Vec<u64> {
    let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    let children: Vec<u64> = children.split_whitespace().filter_map(|pid| pid.parse().ok()).collect();
    children.iter().flat_map(|child| [vec![*child], descendants(*child)].concat()).collect()
}

#[test]
fn host_processes_are_limited_whatever_the_kernel_asks_for_and_end_with_the_machine() {
    /// The template, and all that it makes.
    const MOST: usize = 1 + 31;
    let unilith = Unilith::new();
    let program = compile(&unilith, &["cc", "-O1"], "takeover.c", &[]);
    let machine =
        unilith.start(&["--machine", "process", "--network", "none", &program, "host", "processes"]);
    let pid = process(&unilith, &machine.id, "process");
    if unilith.inspect(&machine.id)["state"]["isolation"] == "filter-only" {
        assert_eq!(descendants(pid).len(), 0);
        return;
    }
    eventually("the program has asked for forty", || {
        unilith.run(&["logs", &machine.id]).out.contains("asked") && descendants(pid).len() >= MOST
    });
    let processes = descendants(pid);
    assert_eq!(processes.len(), MOST);
    signal(Signal::KILL, pid as u32);
    eventually("all of them end", || !processes.iter().any(|pid| is_alive(*pid)));
}

#[test]
fn the_end_of_a_host_process_is_the_end_of_the_machine() {
    let unilith = Unilith::new();
    let machine = unilith.start(&["--machine", "process", "--network", "none", "redis"]);
    let pid = process(&unilith, &machine.id, "process");
    let Some(template) = descendants(pid).first().copied() else {
        assert_eq!(unilith.inspect(&machine.id)["state"]["isolation"], "filter-only");
        return;
    };
    signal(Signal::KILL, template as u32);
    eventually("the machine ends", || !is_alive(pid));
    unilith.run(&["logs", &machine.id]).ok().says("a process of the machine was ended by the host");
}

/// What the page tables of a host process hold of the kernel's own view of the archive, KiB.
fn view_of_the_archive(pid: u64) -> u64 {
    let maps = fs::read_to_string(format!("/proc/{pid}/smaps")).unwrap_or_default();
    let view = maps.split_once("\n720000000000-").map_or("", |(_, behind)| behind);
    let size = view.lines().find_map(|line| line.strip_prefix("Rss:"));
    size.map_or(0, |size| size.trim().trim_end_matches(" kB").parse().expect("a number"))
}

#[test]
fn a_machine_that_waits_keeps_no_view_of_its_files_in_any_of_its_processes() {
    let unilith = Unilith::new();
    // The shell reads libraries and programs; its child is the last that runs, and both wait for ever.
    let script = "tar cf - /usr/lib | wc -c; (while :; do sleep 1000; done) & wait";
    let words =
        ["--machine", "process", "--network", "none", "--base", "full", "busybox", "sh", "-c", script];
    let machine = unilith.start(&words);
    let process = process(&unilith, &machine.id, "process");
    let read = |line: &str| line.parse::<u64>().is_ok_and(|bytes| bytes > 4 << 20);
    eventually("it has read them", || machine.log().lines().any(read));
    let kept =
        || [vec![process], descendants(process)].concat().into_iter().map(view_of_the_archive).sum::<u64>();
    eventually("the views are gone", || kept() < 512);
}

#[test]
fn forks_are_answered_by_the_library_os() {
    attack("fork", &[CONTAINED]);
    attack("threads", &ENDED);
}

#[test]
fn what_the_host_lacks_is_said_in_one_line() {
    let unilith = Unilith::new();
    let linux = unilith.run(&["run", "--rm", "--machine", "process", "--kernel", "linux", "busybox", "true"]);
    linux.fails_with(&["--kernel linux", "machine of its own"]);
    let built = unilith.run(&["build", "--machine", "process", "-o", "out", "busybox"]);
    built.fails_with(&["process machine"]);
}
