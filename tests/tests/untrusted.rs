// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The host does not trust the machine: what a machine sends costs the host a bounded amount of memory, disk and patience.
//! The guest is a few bytes long.

use std::{
    fs,
    io::{BufRead, BufReader, Read},
    os::unix::fs::PermissionsExt,
    path::PathBuf,
    process::{Child, Stdio},
};
use unilith_tests::{Unilith, eventually, guest::Script};

const GUEST: [&str; 2] = ["cpio:root.cpio", "/x"];

fn started() -> Script {
    Script::new().status("started 1000")
}

/// Resident memory of a machine's supervisor, in kilobytes.
fn supervisor_memory(unilith: &Unilith, name: &str) -> u64 {
    let pid = unilith.inspect(name)["state"]["supervisor"]["pid"].as_u64().expect("a supervisor");
    let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("it runs");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("memory");
    line.trim().trim_end_matches(" kB").parse().expect("a number")
}

fn folder(unilith: &Unilith, name: &str) -> PathBuf {
    let id = unilith.inspect(name)["id"].as_str().expect("an id").to_string();
    unilith.path("state/unilith/machines").join(id)
}

/// `run` in the foreground whose output goes into a pipe.
fn in_front(unilith: &Unilith, name: &str) -> Child {
    let mut command = unilith.command(&["run", "--name", name, GUEST[0], GUEST[1]]);
    command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("the command starts")
}

#[test]
fn output_that_nobody_reads_waits_in_the_machine_which_can_be_stopped() {
    let unilith = Unilith::with_guest(&started().print_for_ever(*b"y\n"));
    let mut child = in_front(&unilith, "flood");
    let mut lines = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    lines.read_line(&mut line).unwrap();
    assert_eq!(line, "y\n");
    // Nobody reads on: the pipe holds 64 KiB, and each printed byte is in the log before it is in the pipe.
    let log = folder(&unilith, "flood").join("console.log");
    eventually("the pipe is nearly full", || fs::metadata(&log).unwrap().len() > 48 << 10);
    assert!(supervisor_memory(&unilith, "flood") < 64 << 10);
    unilith.run(&["stop", "-t", "1", "flood"]).ok();
    unilith.run(&["ps", "-a"]).ok().says("exited (137)");
    assert_eq!(unilith.inspect("flood")["state"]["outcome"]["reason"], serde_json::Value::Null);
    child.wait().unwrap();
    assert!(lines.read_to_end(&mut Vec::new()).is_ok());
    assert!(fs::metadata(&log).unwrap().len() < 256 << 10, "the machine did not wait");
}

#[test]
fn the_log_of_a_machine_that_prints_for_ever_has_a_limit() {
    let unilith = Unilith::with_guest(&started().print_for_ever(*b"y\n"));
    let limits = ["--log-opt", "max-size=4k", "--log-opt", "max-file=3"];
    unilith.run(&[&["run", "-d", "--name", "chatty"], &limits[..], &GUEST[..]].concat()).ok();
    let folder = folder(&unilith, "chatty");
    eventually("three files are there", || folder.join("console.log.2").exists());
    let logs = || {
        fs::read_dir(&folder)
            .unwrap()
            .flatten()
            .filter(|e| e.file_name().to_string_lossy().contains("console.log"))
    };
    for _ in 0..50 {
        let size: u64 = logs().filter_map(|e| Some(e.metadata().ok()?.len())).sum();
        // One more may be about to take the newest one's place.
        assert!(size <= 4 * 4096 && logs().count() <= 4, "{size}");
    }
    unilith.run(&["stop", "-t", "0", "chatty"]).ok();
    let whole = unilith.run(&["logs", "chatty"]).ok().out;
    assert!(whole.len() > 2 * 4096 && whole.len() <= 3 * 4096, "{}", whole.len());
    assert_eq!(unilith.run(&["logs", "-n", "3000", "chatty"]).ok().out.lines().count(), 3000);
    unilith
        .run(&["run", "--log-opt", "max-size=huge", GUEST[0], GUEST[1]])
        .fails_with(&["--log-opt max-size=huge"]);
}

#[test]
fn a_status_line_without_an_end_costs_no_memory() {
    let unilith = Unilith::with_guest(&started().report_for_ever(*b"xx"));
    unilith.run(&["run", "-d", "--name", "endless", GUEST[0], GUEST[1]]).ok();
    let before = supervisor_memory(&unilith, "endless");
    // Time for some megabytes: QEMU's own use of the processor says that the guest goes on.
    let qemu = unilith.inspect("endless")["state"]["process"]["pid"].as_u64().unwrap();
    let ticks = || -> u64 {
        let stat = fs::read_to_string(format!("/proc/{qemu}/stat")).unwrap();
        let fields: Vec<&str> = stat.rsplit_once(')').unwrap().1.split_whitespace().collect();
        fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()
    };
    let begin = ticks();
    eventually("the guest has run for two seconds", || ticks() > begin + 200);
    let after = supervisor_memory(&unilith, "endless");
    assert!(after < before + 2048, "the supervisor grew from {before} to {after} kB");
    unilith.run(&["stop", "-t", "0", "endless"]).ok();
}

#[test]
fn lines_that_are_no_reports_are_told_once_and_cleaned() {
    let script = started()
        .status("\x1b]0;gotcha\x07 one")
        .status("two")
        .status("three")
        .status("failed \x1b[31mred")
        .end();
    let unilith = Unilith::with_guest(&script);
    let ran = unilith.run(&["run", "--name", "odd", GUEST[0], GUEST[1]]).code(125);
    assert!(!ran.err.contains('\x1b') && !ran.err.contains('\x07'), "{ran}");
    let ran = ran.complains("said something unknown").complains("[31mred");
    assert_eq!(ran.err.matches("unknown").count(), 1, "{ran}");
    let notes = unilith.inspect("odd")["state"]["notes"].to_string();
    assert!(notes.contains("one") && !notes.contains("two") && !notes.contains("\\u001b"), "{notes}");
}

#[test]
fn a_machine_whose_state_cannot_be_saved_runs_on() {
    let unilith =
        Unilith::with_guest(&started().wait_for_break().status("listening tcp 80").status("exit 4").end());
    unilith.run(&["run", "-d", "--name", "stuck", GUEST[0], GUEST[1]]).ok();
    let folder = folder(&unilith, "stuck");
    // A directory in the place of the file that a new state is written to.
    fs::create_dir(folder.join("state.new")).unwrap();
    unilith.run(&["stop", "stuck"]).ok();
    unilith.run(&["wait", "stuck"]).ok().says("4");
    fs::remove_dir(folder.join("state.new")).unwrap();
}

#[test]
fn nobody_else_reads_what_a_machine_is_told_or_prints() {
    let unilith = Unilith::with_guest(&started().print("secret\n").status("exit 0").end());
    unilith.run(&["run", "--name", "closed", "-e", "PASSWORD=secret", GUEST[0], GUEST[1]]).ok();
    let folder = folder(&unilith, "closed");
    let mode = |path: &PathBuf| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&folder), mode(&unilith.path("state/unilith"))), (0o700, 0o700));
    for entry in fs::read_dir(&folder).unwrap().flatten().map(|e| e.path()) {
        assert_eq!(mode(&entry) & 0o077, 0, "{}", entry.display());
    }
}

/// Every user of the host sees them with ps(1).
#[test]
fn arguments_of_the_hosts_processes_hold_nothing_of_the_programs_environment() {
    let unilith = Unilith::with_guest(&started());
    for machine in ["microvm", "qemu"] {
        let words = ["run", "-d", "--name", machine, "--machine", machine, "-e", "PASSWORD=not-for-ps"];
        unilith.run(&[&words[..], &GUEST].concat()).ok();
        let state = unilith.inspect(machine)["state"].clone();
        for which in ["process", "supervisor"] {
            let pid = state[which]["pid"].as_u64().expect("inspect names the process");
            let words = fs::read(format!("/proc/{pid}/cmdline")).unwrap();
            let words = String::from_utf8_lossy(&words);
            assert!(!words.is_empty() && !words.contains("not-for-ps"), "{words}");
        }
    }
}

#[test]
fn qemu_has_no_capabilities_a_filter_and_what_its_volumes_need_and_no_more() {
    let unilith = Unilith::with_guest(&started());
    let status = |name: &str, words: &[&str]| -> Vec<(String, String)> {
        let run = ["run", "-d", "--name", name];
        unilith.run(&[&run[..], words, &GUEST[..]].concat()).ok();
        let qemu = unilith.inspect(name)["state"]["process"]["pid"].as_u64().unwrap();
        let text = fs::read_to_string(format!("/proc/{qemu}/status")).unwrap();
        text.lines().filter_map(|line| line.split_once(":\t")).map(|(k, v)| (k.into(), v.into())).collect()
    };
    let of = |status: &[(String, String)], key: &str| {
        status.iter().find(|(k, _)| k == key).map(|(_, v)| v.clone()).unwrap_or_else(|| panic!("no {key}"))
    };
    let alone = status("alone", &["--network", "none"]);
    for set in ["CapInh", "CapPrm", "CapEff", "CapAmb"] {
        assert_eq!(u64::from_str_radix(&of(&alone, set), 16).unwrap(), 0, "{set} of {alone:?}");
    }
    assert_eq!((of(&alone, "Seccomp").as_str(), of(&alone, "NoNewPrivs").as_str()), ("2", "1"));
    fs::create_dir(unilith.path("data")).unwrap();
    let shared = status("shared", &["--network", "none", "-v", "data:/data"]);
    // chown, DAC_OVERRIDE, FOWNER and FSETID, where this user has them.
    assert_eq!(u64::from_str_radix(&of(&shared, "CapEff"), 16).unwrap() & !0b11011, 0);
}
