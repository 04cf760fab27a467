// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Machines with several processors (`--cpus`): process machines, and virtual ones of both kinds.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::{
    fs,
    process::{Command, Stdio},
    time::Duration,
};
use unilith_tests::{
    BUILD_KERNEL, Machine, PATIENCE, Ran, Unilith, allows_namespaces, compile, eventually_within, finish,
    memcached::{Client, serves},
    passt_works, slow_client,
};

/// PCI with q35, virtio-mmio with microvm: the other processors are found and started on both.
const VIRTUAL: [&str; 2] = ["qemu", "microvm"];
const PROCESS: &str = "process";

/// Runs `tests/programs/processors.c` on so many processors.
#[track_caller]
fn runs(machine: &str, cpus: &str, words: &[&str]) -> Ran {
    let unilith = Unilith::new();
    let program = compile(&unilith, &["cc", "-O2", "-pthread"], "processors.c", &[]);
    let machine = ["--machine", machine, "--network", "none", "--cpus", cpus, &program];
    unilith.program_within(&[&machine[..], words].concat(), BUILD_KERNEL).ok()
}

/// The same on one, two and four processors of each kind of machine.
#[track_caller]
fn runs_everywhere(words: &[&str], says: impl Fn(&str) -> String) {
    for machine in [PROCESS].into_iter().chain(VIRTUAL) {
        for cpus in ["1", "2", "4"] {
            runs(machine, cpus, words).says(&says(cpus));
        }
    }
}

/// `None` where a process machine has no network: an ordinary user's is passt's.
fn start<'a>(unilith: &'a Unilith, machine: &str, words: &[&str]) -> Option<Machine<'a>> {
    if machine == PROCESS && !rustix::process::geteuid().is_root() && !passt_works(unilith) {
        eprintln!("skipped: a process machine has no network here");
        return None;
    }
    Some(unilith.start(&[&["--machine", machine, "--cpus", "2"], words].concat()))
}

#[test]
fn two_threads_run_at_the_same_time() {
    for machine in [PROCESS].into_iter().chain(VIRTUAL) {
        runs(machine, "2", &["together"]).says("together yes");
    }
}

/// What programs that lay out their data and threads by it read (`lscpu`, hwloc).
#[test]
fn processors_and_their_caches_are_told_in_sys() {
    const SCRIPT: &str = "cd /sys/devices/system/cpu; echo $(ls -d cpu? | tr '\\n' ' '); echo $(cat cpu1/topology/core_id \
         cpu1/topology/thread_siblings_list cpu1/topology/core_siblings_list); cat cpu2/online 2>/dev/null; \
         for c in cpu1/cache/index*; do [ -e $c/level ] && echo $(cat $c/level $c/type $c/size $c/coherency_line_size \
         $c/physical_line_partition $c/ways_of_associativity $c/number_of_sets $c/shared_cpu_list); done; true";
    for machine in [PROCESS].into_iter().chain(VIRTUAL) {
        let unilith = Unilith::new();
        let words = ["--machine", machine, "--network", "none", "--cpus", "2", "busybox", "sh", "-c", SCRIPT];
        let ran = unilith.program_within(&words, BUILD_KERNEL).ok();
        let lines: Vec<&str> = ran.out.lines().collect();
        assert_eq!(lines[..2], ["cpu0 cpu1", "1 1 0-1"], "{machine}");
        for line in &lines[2..] {
            let fields: Vec<&str> = line.split(' ').collect();
            let [_, kind, size, line, partitions, ways, sets, shared] = fields[..] else {
                panic!("{fields:?}")
            };
            assert!(["Data", "Instruction", "Unified"].contains(&kind), "{kind}");
            let number = |text: &str| text.parse::<u64>().unwrap();
            let bytes = [line, partitions, ways, sets].map(number).iter().product::<u64>();
            assert_eq!(format!("{}K", bytes >> 10), size, "{machine}");
            assert!(["1", "0-1"].contains(&shared), "{shared}");
        }
        if machine == PROCESS {
            let of_host =
                |file: &str| fs::read_to_string(format!("/sys/devices/system/cpu/cpu0/cache/index0/{file}"));
            if let (Ok(kind), Ok(size)) = (of_host("type"), of_host("size")) {
                assert!(lines[2].starts_with(&format!("1 {} {} ", kind.trim(), size.trim())), "{lines:?}");
            }
        }
    }
}

#[test]
fn a_program_sees_as_many_processors_as_it_was_given() {
    runs_everywhere(&["seen"], |cpus| format!("{cpus} of {cpus} processors"));
}

#[test]
fn a_thread_is_where_it_was_pinned() {
    runs_everywhere(&["pinned"], |_| "pinned".into());
}

#[test]
fn nothing_is_lost_when_threads_do_everything_at_once() {
    runs_everywhere(&["storm", "3"], |_| "storm over".into());
}

/// Runs a program of several processes on so many processors, and looks for what it says when all is well. Where the host
/// allows no namespaces a machine with several processors has one process: the program is told, and so is the user.
#[track_caller]
fn processes_run(source: &str, machine: &str, cpus: &str, words: &[&str], says: &str) {
    let unilith = Unilith::new();
    let program = compile(&unilith, &["gcc", "-O1", "-Wall", "-Werror", "-static", "-pthread"], source, &[]);
    let flags = ["--machine", machine, "--network", "none", "--cpus", cpus, &program];
    let ran = unilith.program_within(&[&flags[..], words].concat(), BUILD_KERNEL);
    if machine == PROCESS && cpus != "1" && !allows_namespaces(&unilith) {
        ran.code(1).says(&format!("errno {ENOSYS}")).complains("leave --cpus out");
    } else {
        ran.ok().says(says);
    }
}

const ENOSYS: u32 = 38;

#[test]
fn two_processes_run_at_the_same_time() {
    // The other virtual machine's turn is in the long run.
    for machine in [PROCESS, "qemu"] {
        processes_run("storm.c", machine, "2", &["together"], "together");
    }
}

#[test]
fn nothing_is_lost_when_processes_do_everything_at_once() {
    // Its processes look for each other in loops, a time slice each on few processors: fewer rounds take as long.
    for (machine, cpus, rounds) in
        [(PROCESS, "1", "2"), (PROCESS, "2", "8"), (PROCESS, "4", "16"), ("qemu", "2", "1")]
    {
        processes_run("storm.c", machine, cpus, &["storm", rounds], "storm over");
    }
}

/// What was made for programs of several processes holds on several processors.
#[test]
fn processes_are_linux_s_on_several_processors() {
    for (machine, cpus) in [(PROCESS, "2"), (PROCESS, "4"), ("microvm", "2")] {
        processes_run("processes.c", machine, cpus, &[], "all process tests passed");
    }
}

/// The same for longer, and with more processors than the host may have.
mod long {
    use super::*;

    #[test]
    #[ignore = "takes minutes"]
    fn memcached_serves_on_two_processors_of_virtual_machines() {
        VIRTUAL.into_iter().for_each(memcached_serves);
    }

    #[test]
    #[ignore = "takes minutes"]
    fn nothing_is_lost_in_many_rounds() {
        for (cpus, rounds) in [("1", "8"), ("2", "16"), ("4", "40")] {
            processes_run("storm.c", PROCESS, cpus, &["storm", rounds], "storm over");
        }
        for machine in VIRTUAL {
            for (cpus, rounds) in [("2", "8"), ("4", "24")] {
                processes_run("storm.c", machine, cpus, &["storm", rounds], "storm over");
            }
        }
    }

    #[test]
    #[ignore = "takes minutes"]
    fn processes_of_virtual_machines_are_linux_s_on_four_processors() {
        for machine in VIRTUAL {
            processes_run("storm.c", machine, "4", &["together"], "together");
            processes_run("processes.c", machine, "4", &[], "all process tests passed");
        }
    }
}

/// What four threads of memcached answer on two processors.
fn memcached_serves(machine: &str) {
    let unilith = Unilith::new();
    let Some(machine) = start(&unilith, machine, &["-p", "127.0.0.1::11211", "memcached"]) else { return };
    let at = machine.at(11211);
    serves(at, 20, 500);
    let stats = Client::new(at).stats();
    assert!(stats.contains(&"STAT cmd_set 10000".to_string()), "{stats:?}");
}

#[test]
fn four_threads_of_memcached_serve_twenty_clients_on_two_processors() {
    // Virtual ones take minutes: the long run has them.
    memcached_serves(PROCESS);
}

fn redis_answers(machine: &str) {
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
    let words = [&["-p", "127.0.0.1::6379"], &redis[..]].concat();
    let Some(machine) = start(&unilith, machine, &words) else { return };
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
fn redis_answers_with_threads_for_its_connections() {
    [PROCESS].into_iter().chain(VIRTUAL).for_each(redis_answers);
}

/// Code that is traced is changed while nobody else can be running it: the program's threads share one processor meanwhile.
#[test]
fn a_machine_that_is_traced_goes_on_with_one_processor_meanwhile() {
    for kind in [PROCESS].into_iter().chain(VIRTUAL) {
        let unilith = Unilith::new();
        let program = compile(&unilith, &["cc", "-O1", "-pthread"], "processors.c", &[]);
        let words = ["--machine", kind, "--cpus", "2", "--network", "none", &program, "changes"];
        let machine = unilith.start(&words);
        let says = |times: usize, line: &str| {
            eventually_within(PATIENCE, &format!("{kind}: {times} times \"{line}\""), || {
                machine.log().matches(line).count() == times
            })
        };
        for time in 1..3 {
            says(time, "on 2 now");
            unilith.run(&["trace", &machine.id, "--keep", "calls", "count(sys_enter, id)"]).ok();
            says(time, "on 1 now");
            // Two that need it, of which one ends first.
            let traced = unilith.run(&["trace", &machine.id, "-d", "1", "count(sys_enter, id)"]).ok();
            assert!(traced.out.contains("clock_nanosleep"), "{traced}");
            unilith.run(&["exec", &machine.id, "bpf", "detach", "calls"]).ok();
        }
        says(3, "on 2 now");
        assert_eq!(machine.log().matches("on 1 now").count(), 2, "{kind}: {}", machine.log());
    }
}

/// A processor that reports what broke the kernel stops the others, which print without end.
#[test]
fn a_crash_on_one_processor_stops_the_others() {
    let unilith = Unilith::new();
    let program = compile(&unilith, &["cc", "-O1", "-pthread"], "processors.c", &[]);
    for machine in VIRTUAL {
        let ran =
            unilith.program(&["--machine", machine, "--network", "none", "--cpus", "4", &program, "crash"]);
        let ran = ran.code(125);
        let report = format!("{}{}", ran.out, ran.err);
        let behind = report.split_once("kernel NMI (vector 2").unwrap_or_else(|| panic!("{ran}")).1;
        assert!(!behind.contains("goes on"), "{ran}");
    }
}

/// A directory of `unilith build` whose QEMU is given fewer processors than the kernel was told of.
#[test]
fn a_machine_with_fewer_processors_than_asked_for_says_so_and_goes_on() {
    let unilith = Unilith::new();
    let program = compile(&unilith, &["cc", "-O2", "-pthread"], "processors.c", &[]);
    for machine in VIRTUAL {
        let folder = unilith.path(machine).display().to_string();
        let flags = ["build", "--machine", machine, "--network", "none", "--cpus", "4", "-o", &folder];
        finish(&mut unilith.command(&[&flags[..], &[&program, "seen"]].concat()), BUILD_KERNEL).ok();
        for (has, says) in
            [("2", "2 of 2 processors"), ("1", "1 of 1 processors"), ("6", "4 of 4 processors")]
        {
            let script = fs::read_to_string(format!("{folder}/run.sh")).unwrap();
            let changed = script.replace("-smp 4", &format!("-smp {has}"));
            assert_ne!(script, changed);
            let path = format!("{folder}/run-{has}.sh");
            fs::write(&path, changed).unwrap();
            let ran = finish(Command::new("sh").arg(&path).stdin(Stdio::null()), PATIENCE);
            let ran = ran.ok().says(says);
            let status = fs::read_to_string(format!("{folder}/status")).unwrap();
            let warned = status.contains(&format!("this machine has {has} of the 4 processors"));
            assert_eq!(warned, has != "6", "{ran}");
        }
    }
}

#[test]
fn several_processors_of_a_kernel_that_has_one_are_refused() {
    let unilith = Unilith::new();
    let program = compile(&unilith, &["cc", "-O2", "-pthread"], "processors.c", &[]);
    let flags = ["run", "--machine", "microvm", "--cpus", "2"];
    let ran = unilith.run(&[&flags[..], &["--set", "smp=off", &program, "seen"]].concat());
    ran.code(125).complains("leave out one of them");
    let ran = unilith.run(&[&flags[..], &["--static", "busybox"]].concat());
    ran.code(125).complains("leave --cpus out");
}

/// The kernel without the part has none of its code.
#[test]
fn a_kernel_for_one_processor_runs_threads_as_before() {
    let unilith = Unilith::new();
    let program = compile(&unilith, &["cc", "-O2", "-pthread"], "processors.c", &[]);
    let flags = ["--machine", "microvm", "--network", "none", "--set", "smp=off", &program];
    for (word, says) in [("seen", "1 of 1 processors"), ("pinned", "pinned")] {
        unilith.program_within(&[&flags[..], &[word]].concat(), BUILD_KERNEL).ok().says(says);
    }
}
