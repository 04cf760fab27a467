// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Machines under a KVM that works, on computers that have none: `tests/kvm/rig` boots a machine that has one, and
//! `tests/kvm/smoke` or `tests/kvm/suite` runs in it. What the rig prints is printed as it comes.

use std::{
    io::{BufRead, BufReader},
    path::Path,
    process::{Command, Stdio},
    time::{Duration, Instant},
};
use unilith_tests::{BUILD_KERNEL, Unilith, finish, root};

/// What `./unilith test --kvm` says: `smoke`, or `suite` with `--long`.
fn asked() -> Option<String> {
    std::env::var("UNILITH_TEST_KVM").ok()
}

/// Gathering the rig, building Linux for it, and every check on a busy computer.
const LIMIT: Duration = Duration::from_secs(3600);
/// All whole-system tests on one kind of machine.
const SUITE: Duration = Duration::from_secs(5 * 3600);
/// Files of tests of programs, whose machines are of the kind that is asked for; the others name theirs.
const OF_PROGRAMS: &str = "UNILITH_TEST_KVM_FILES";

/// Runs a command of the rig and passes its lines on; fails the test unless it ends well.
#[track_caller]
fn rig(words: &[&str], env: &[(&str, &str)], limit: Duration) {
    let begin = Instant::now();
    let mut command = Command::new("timeout");
    command.arg(limit.as_secs().to_string()).arg(root().join("tests/kvm/rig"));
    command.args(words).envs(env.iter().copied()).current_dir(root()).stdin(Stdio::null());
    let mut child = command.stdout(Stdio::piped()).spawn().expect("the rig can be started");
    let out = child.stdout.take().expect("its output is ours");
    for line in BufReader::new(out).lines() {
        // A byte that is no text ends nothing.
        println!("rig {:4} s: {}", begin.elapsed().as_secs(), line.unwrap_or_else(|e| e.to_string()));
    }
    let status = child.wait().expect("a child can be waited for");
    assert!(status.success(), "the rig ended with {status} after {:?}", begin.elapsed());
}

/// What runs in the rig is built and fetched out here, where that is quick.
fn build(words: &[&[&str]]) {
    let unilith = Unilith::default();
    for words in words {
        println!("building what runs in the rig: unilith run {}", words.join(" "));
        finish(&mut unilith.command(&[&["run", "--rm", "--network", "none"], *words].concat()), LIMIT).ok();
    }
}

/// The whole-system tests in the rig on one kind of machine: all but this file, or those of programs only.
fn suite(machine: &str, programs_only: bool) {
    if asked().as_deref() != Some("suite") {
        eprintln!(
            "skipped: the whole-system tests take hours in there (./unilith test --kvm --long runs them)"
        );
        return;
    }
    let of_programs = std::env::var(OF_PROGRAMS).expect("./unilith test --kvm --long names them");
    let cargo = std::env::var("UNILITH_CARGO").unwrap_or_else(|_| "cargo".into());
    let build = ["test", "--locked", "--release", "-p", "unilith-tests", "--no-run", "--message-format=json"];
    let built = finish(Command::new(cargo).args(build).current_dir(root()), LIMIT).ok().out;
    let messages = built.lines().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
    let programs: Vec<String> = messages
        .filter(|m| m["target"]["kind"][0] == "test")
        .filter(|m| {
            let name = m["target"]["name"].as_str().unwrap_or_default();
            name != "kvm" && (!programs_only || of_programs.split(' ').any(|n| n == name))
        })
        .filter_map(|m| m["executable"].as_str().map(str::to_string))
        .collect();
    assert!(!programs.is_empty(), "cargo names no test programs");
    let mut words = vec!["run", "tests/kvm/suite"];
    words.extend(programs.iter().map(String::as_str));
    rig(&words, &[("UNILITH_TEST_MACHINE", machine), ("RIG_MEMORY", "8G")], SUITE);
}

#[test]
fn whole_system_tests_pass_under_kvm_on_microvm() {
    suite("microvm", false);
}

#[test]
fn whole_system_tests_pass_under_kvm_on_q35() {
    suite("qemu", true);
}

#[test]
fn whole_system_tests_pass_on_process_machines_beside_kvm() {
    suite("process", true);
}

#[test]
fn redis_runs_under_kvm_for_root_and_for_users_in_its_group() {
    if asked().is_some() {
        eprintln!("skipped: the test of every kind of machine has the same checks");
        return;
    }
    let places =
        [Some(root().into_os_string()), std::env::var_os("HOME"), std::env::var_os("XDG_CACHE_HOME")];
    if let Some(hidden) = places.iter().flatten().find(|p| Path::new(p).starts_with("/tmp")) {
        eprintln!("skipped: the rig has a /tmp of its own, which hides {}", hidden.display());
        return;
    }
    build(&[&["--accel", "tcg", "redis", "--", "--version"]]);
    rig(&["run", "tests/kvm/smoke", "brief"], &[("RIG_MEMORY", "2G")], BUILD_KERNEL * 2);
}

#[test]
fn machines_of_every_kind_run_under_a_kvm_that_works() {
    if asked().as_deref() != Some("smoke") {
        eprintln!("skipped: emulating a KVM takes minutes (./unilith test --kvm runs it)");
        return;
    }
    build(&[
        &["--accel", "tcg", "redis", "--", "--version"],
        &["--accel", "tcg", "busybox", "true"],
        &["--accel", "tcg", "--kernel", "linux", "busybox", "true"],
        &["--accel", "tcg", "--kernel", "linux", "--ukl", "cpl0,byp", "busybox", "true"],
        &["--machine", "process", "busybox", "true"],
    ]);
    rig(&["run", "tests/kvm/smoke"], &[], LIMIT);
}
