// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Machines under a KVM that works, on computers that have none: `tests/kvm/rig` boots a machine that has one, and
//! `tests/kvm/smoke` or `tests/kvm/suite` runs in it. What the rig prints is printed as it comes.

use std::{
    fs,
    io::{BufRead, BufReader, Write},
    path::{Path, PathBuf},
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
/// One file of whole-system tests, the rig's start included.
const FILE: Duration = Duration::from_secs(2 * 3600);
/// Files of tests of programs, whose machines are of the kind that is asked for; the others name theirs.
const OF_PROGRAMS: &str = "UNILITH_TEST_KVM_FILES";
/// Which files run: `KIND/FILE` (`microvm/redis`), or a part of that where none is called so; all without it.
const ONLY: &str = "UNILITH_TEST_KVM_ONLY";
/// What the rig runs and who runs the tests in it, by the rig's own variables: their values are part of what has passed.
const VARIANTS: [&str; 2] = ["RIG_KERNEL", "RIG_USER"];
/// Files whose failure says most about KVM, before the others: a run of all takes hours and may be ended before its end.
const FIRST: [&str; 10] = [
    "programs",
    "processes",
    "network",
    "redis",
    "sqlite",
    "nginx",
    "memcached",
    "command",
    "debian",
    "platform",
];

/// How a command of the rig ended, and the lines in which a test harness sums up.
struct Ended {
    well: bool,
    sums: Vec<String>,
    took: Duration,
}

/// Runs a command of the rig and passes its lines on.
fn try_rig(words: &[&str], env: &[(&str, &str)], limit: Duration) -> Ended {
    let begin = Instant::now();
    let mut command = Command::new("timeout");
    command.arg(limit.as_secs().to_string()).arg(root().join("tests/kvm/rig"));
    command.args(words).envs(env.iter().copied()).current_dir(root()).stdin(Stdio::null());
    let mut child = command.stdout(Stdio::piped()).spawn().expect("the rig can be started");
    let out = child.stdout.take().expect("its output is ours");
    let mut sums = Vec::new();
    for line in BufReader::new(out).lines() {
        // A byte that is no text ends nothing.
        let line = line.unwrap_or_else(|e| e.to_string());
        println!("rig {:4} s: {line}", begin.elapsed().as_secs());
        if let Some(sum) = line.strip_prefix("test result: ") {
            sums.push(sum.to_string());
        }
    }
    let status = child.wait().expect("a child can be waited for");
    Ended { well: status.success(), sums, took: begin.elapsed() }
}

/// The same for a command that is to end well.
#[track_caller]
fn rig(words: &[&str], env: &[(&str, &str)], limit: Duration) {
    let ended = try_rig(words, env, limit);
    assert!(ended.well, "the rig's command failed after {:?}", ended.took);
}

/// What runs in the rig is built and fetched out here, where that is quick.
fn build(words: &[&[&str]]) {
    let unilith = Unilith::default();
    for words in words {
        println!("building what runs in the rig: unilith run {}", words.join(" "));
        finish(&mut unilith.command(&[&["run", "--rm", "--network", "none"], *words].concat()), LIMIT).ok();
    }
}

/// What passed on one commit, a line for each `KIND/FILE`: a run that was ended goes on where it was. With uncommitted changes
/// nothing is known.
struct Passed(Option<PathBuf>);

impl Passed {
    fn of_this_commit() -> Passed {
        let git = |words: &[&str]| {
            let ran = finish(Command::new("git").args(words).current_dir(root()), BUILD_KERNEL).ok();
            ran.out.trim().to_string()
        };
        if !git(&["status", "--porcelain"]).is_empty() {
            println!("there are uncommitted changes: all files run, and none is remembered");
            return Passed(None);
        }
        let folder = root().join("target/kvm-suite");
        fs::create_dir_all(&folder).expect("the build directory can be written");
        let mut name = git(&["rev-parse", "--short=12", "HEAD"]);
        for variable in VARIANTS {
            if let Ok(value) = std::env::var(variable) {
                name += &format!("-{variable}={value}");
            }
        }
        Passed(Some(folder.join(name)))
    }

    fn has(&self, file: &str) -> bool {
        let text = self.0.as_ref().and_then(|path| fs::read_to_string(path).ok()).unwrap_or_default();
        text.lines().any(|line| line.split(": ").next() == Some(file))
    }

    fn add(&self, file: &str, ended: &Ended) {
        let Some(path) = &self.0 else { return };
        let mut list = fs::File::options().create(true).append(true).open(path).expect("the list opens");
        writeln!(list, "{file}: {} s, {}", ended.took.as_secs(), ended.sums.join(" "))
            .expect("it takes a line");
    }
}

/// The whole-system tests in the rig on one kind of machine: all but this file, or those of programs only. Each file runs in a
/// rig of its own, so that none finds what another one left.
fn suite(machine: &str, programs_only: bool) {
    if asked().as_deref() != Some("suite") {
        eprintln!(
            "skipped: the whole-system tests take hours in there (./unilith test --kvm --long runs them)"
        );
        return;
    }
    let of_programs = std::env::var(OF_PROGRAMS).expect("./unilith test --kvm --long names them");
    let only = std::env::var(ONLY).unwrap_or_default();
    let cargo = std::env::var("UNILITH_CARGO").unwrap_or_else(|_| "cargo".into());
    let build = ["test", "--locked", "-p", "unilith-tests", "--no-run", "--message-format=json"];
    let built = finish(Command::new(cargo).args(build).current_dir(root()), LIMIT).ok().out;
    let messages = built.lines().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
    let mut programs: Vec<(String, String)> = messages
        .filter(|m| m["target"]["kind"][0] == "test")
        .filter_map(|m| {
            let text = |value: &serde_json::Value| value.as_str().map(str::to_string);
            Some((text(&m["target"]["name"])?, text(&m["executable"])?))
        })
        .filter(|(name, _)| name != "kvm" && (!programs_only || of_programs.split(' ').any(|n| n == name)))
        .collect();
    assert!(!programs.is_empty(), "cargo names no test programs");
    programs.sort_by_key(|(name, _)| FIRST.iter().position(|first| first == name).unwrap_or(FIRST.len()));
    let passed = Passed::of_this_commit();
    let mut failed = Vec::new();
    let is_one = programs.iter().any(|(name, _)| format!("{machine}/{name}") == only);
    let is_asked_for = |file: &str| if is_one { file == only } else { file.contains(&only) };
    let files = programs.iter().map(|(name, _)| format!("{machine}/{name}"));
    // Of another kind of machine, or of none.
    assert!(
        !only.starts_with(&format!("{machine}/")) || files.into_iter().any(|file| is_asked_for(&file)),
        "no file of tests that run on {machine} is called {only}"
    );
    for (name, program) in programs {
        let file = format!("{machine}/{name}");
        if !is_asked_for(&file) {
            continue;
        }
        if passed.has(&file) {
            println!("{file}: passed on this commit before");
            continue;
        }
        let env = [("UNILITH_TEST_MACHINE", machine), ("RIG_MEMORY", "8G")];
        let ended = try_rig(&["run", "tests/kvm/suite", &program], &env, FILE);
        println!("{file}: {} after {:?}", if ended.well { "passed" } else { "FAILED" }, ended.took);
        if ended.well {
            passed.add(&file, &ended);
        } else {
            failed.push(file);
        }
    }
    assert!(failed.is_empty(), "not passed in the rig: {}", failed.join(", "));
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

mod long {
    use super::*;

    #[test]
    #[ignore = "builds two monitors"]
    fn firecracker_and_cloud_hypervisor_run_machines() {
        let built = finish(&mut Command::new(root().join("tests/monitors/build")), LIMIT).ok().out;
        let monitors: Vec<&str> = built.lines().collect();
        let [firecracker, cloud_hypervisor] = monitors[..] else { panic!("two monitors: {built}") };
        build(&[
            &["--accel", "tcg", "redis", "--", "--version"],
            &["--accel", "tcg", "busybox", "true"],
            // As for a disk with a file system.
            &["--accel", "tcg", "--set", "ext4=on", "busybox", "true"],
        ]);
        let env = [("UNILITH_FIRECRACKER", firecracker), ("UNILITH_CLOUD_HYPERVISOR", cloud_hypervisor)];
        rig(&["run", "tests/kvm/smoke", "monitors"], &env, LIMIT);
    }
}
