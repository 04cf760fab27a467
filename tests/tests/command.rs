// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The command's habits: what docker's users expect of these verbs and flags. The guest is a few bytes long.

use rustix::process::Signal;
use std::{
    fs,
    net::TcpListener,
    time::{Duration, Instant},
};
use unilith_tests::{Unilith, eventually, finish, free_port, guest::Script, is_alive, limit, root, signal};

const RUN: [&str; 3] = ["run", "cpio:root.cpio", "/x"];

fn server() -> Script {
    Script::new().status("started 1000").print("hello\n").status("listening tcp 6379")
}

fn ends_with(line: &str) -> Unilith {
    Unilith::with_guest(&Script::new().status("started 1000").print("out\n").status(line).end())
}

#[test]
fn the_programs_exit_code_and_output_are_the_commands() {
    let ran = ends_with("exit 7").run(&RUN).code(7);
    assert_eq!(ran.out, "out\n");
}

#[test]
fn death_by_signal_is_128_and_the_signal() {
    ends_with("signal 11").run(&RUN).code(139).fails_with(&["signal 11", "SIGSEGV"]);
}

#[test]
fn running_out_of_memory_says_how_much_there_was_and_what_to_try() {
    let unilith = ends_with("out-of-memory 67108864");
    let ran = unilith.run(&["run", "-m", "64M", "cpio:root.cpio", "/x"]);
    ran.code(137).fails_with(&["ran out of memory", "it had 64 MiB", "try -m 128M"]);
}

#[test]
fn a_kernel_that_fails_gives_its_reason() {
    ends_with("failed no such program: /x").run(&RUN).code(125).fails_with(&["no such program: /x"]);
}

#[test]
fn a_machine_that_ends_without_a_word_is_a_failure() {
    let unilith = Unilith::with_guest(&Script::new().end());
    unilith.run(&RUN).code(125).fails_with(&[
        "without a word",
        "QEMU exited with 1",
        "printed nothing",
        "unilith logs",
    ]);
    // As a kernel does that panics or faults before it can say so.
    let unilith = Unilith::with_guest(&Script::new().print("early\nthe last\n").restart());
    unilith.run(&RUN).code(125).fails_with(&["QEMU exited with 0", "restarted", "it printed: the last;"]);
}

#[test]
fn detached_machines_are_listed_followed_stopped_and_removed() {
    let unilith = Unilith::with_guest(&server().wait_for_break().print("bye\n").status("exit 3").end());
    let id = unilith.run(&["run", "-d", "--name", "web", "cpio:root.cpio", "/x"]).ok().out.trim().to_string();
    assert!(id.len() == 12 && id.chars().all(|c| c.is_ascii_hexdigit()), "{id}");
    eventually("it is ready", || unilith.run(&["ps"]).ok().says("web").out.contains("ready for"));
    unilith.run(&["ps", "-q"]).ok().says(&id);
    let listed: serde_json::Value = serde_json::from_str(&unilith.run(&["ps", "--json"]).ok().out).unwrap();
    assert_eq!((listed[0]["name"].as_str(), listed[0]["phase"].as_str()), (Some("web"), Some("ready")));
    let mut follow = unilith.command(&["logs", "-f", "web"]);
    let follow = std::thread::spawn(move || finish(&mut follow, Duration::from_secs(60)));
    unilith.run(&["rm", "web"]).fails_with(&["web is running", "rm -f"]);
    unilith.run(&["stop", "web"]).ok().says("web");
    assert_eq!(follow.join().unwrap().ok().out, "hello\nbye\n");
    unilith.run(&["wait", "web"]).ok().says("3");
    assert!(!unilith.run(&["ps"]).ok().out.contains("web"));
    unilith.run(&["ps", "-a"]).ok().says("exited (3)");
    unilith.run(&["rm", &id[..4]]).ok();
    assert_eq!(unilith.machines_on_disk(), 0);
}

#[test]
fn a_program_that_does_not_heed_stop_is_ended_in_time() {
    let unilith = Unilith::with_guest(&server());
    unilith.run(&["run", "-d", "--name", "deaf", "cpio:root.cpio", "/x"]).ok();
    // A machine whose program has not begun is not asked.
    eventually("it serves", || unilith.run(&["ps"]).out.contains("ready"));
    let begin = Instant::now();
    unilith.run(&["stop", "-t", "1", "deaf"]).ok();
    assert!(begin.elapsed() < limit(Duration::from_secs(5)));
    unilith.run(&["wait", "deaf"]).ok().says("137");
}

#[test]
fn kill_ends_at_once_and_wait_gets_the_code_of_a_machine_that_removes_itself() {
    let unilith = Unilith::with_guest(&server());
    unilith.run(&["run", "-d", "--rm", "--name", "brief", "cpio:root.cpio", "/x"]).ok();
    let mut wait = unilith.command(&["wait", "brief"]);
    let wait = std::thread::spawn(move || finish(&mut wait, Duration::from_secs(60)));
    // It must have found the machine before that goes away.
    std::thread::sleep(Duration::from_millis(300));
    unilith.run(&["kill", "brief"]).ok();
    wait.join().unwrap().ok().says("137");
    eventually("the machine removes itself", || unilith.machines_on_disk() == 0);
}

#[test]
fn ctrl_c_asks_first_and_ends_at_the_second_time() {
    let unilith = Unilith::with_guest(&server());
    let mut child = unilith.command(&["run", "--name", "front", "cpio:root.cpio", "/x"]).spawn().unwrap();
    eventually("it is ready", || unilith.run(&["ps"]).out.contains("ready for"));
    signal(Signal::INT, child.id());
    std::thread::sleep(Duration::from_millis(300));
    assert!(child.try_wait().unwrap().is_none(), "it did not wait for the program to end itself");
    signal(Signal::INT, child.id());
    assert_eq!(child.wait().unwrap().code(), Some(130));
    unilith.run(&["ps", "-a"]).says("exited (130)");
}

#[test]
fn a_program_that_ends_itself_after_ctrl_c_keeps_its_code() {
    let unilith = Unilith::with_guest(&server().wait_for_break().status("exit 0").end());
    let mut child = unilith.command(&RUN).spawn().unwrap();
    eventually("it is ready", || unilith.run(&["ps"]).out.contains("ready for"));
    signal(Signal::INT, child.id());
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

#[test]
fn nothing_is_left_after_the_supervisor_or_qemu_is_killed() {
    let unilith = Unilith::with_guest(&server());
    for victim in ["supervisor", "process"] {
        let port = free_port();
        let id = unilith.run(&["run", "-d", "-p", &format!("{port}:6379"), "cpio:root.cpio", "/x"]).ok().out;
        let state = unilith.inspect(id.trim())["state"].clone();
        let pids = ["supervisor", "process"].map(|p| state[p]["pid"].as_u64().unwrap());
        let device = state["connection"]["device"].as_str();
        // Its name is soon another machine's, its number is not.
        let number = |device| fs::read_to_string(format!("/sys/class/net/{device}/ifindex")).ok();
        let before = device.and_then(number);
        signal(Signal::KILL, state[victim]["pid"].as_u64().unwrap() as u32);
        eventually("both processes end", || !pids.iter().any(|p| is_alive(*p)));
        unilith.run(&["ps", "-a"]).ok().says("exited (1");
        if let Some(device) = device {
            let after = number(device);
            assert!(before.is_some() && after != before, "{device} is left behind");
        }
        eventually("the port is free again", || TcpListener::bind(("127.0.0.1", port)).is_ok());
        unilith.run(&["rm", id.trim()]).ok();
    }
    assert_eq!(unilith.machines_on_disk(), 0);
}

#[test]
fn two_machines_at_once_have_addresses_of_their_own() {
    let unilith = Unilith::with_guest(&server());
    let machines = [unilith.start(&["cpio:root.cpio", "/x"]), unilith.start(&["cpio:root.cpio", "/x"])];
    let connections = [0, 1].map(|i| unilith.inspect(&machines[i].id)["state"]["connection"].clone());
    if connections[0]["mode"] == "tap" {
        assert_ne!(connections[0]["guest"], connections[1]["guest"]);
    }
    unilith.run(&["stop", "-t", "0", &machines[0].id]).ok();
    assert_eq!(unilith.inspect(&machines[1].id)["state"]["phase"], "ready");
}

#[test]
fn input_reaches_the_program_with_i_only() {
    // A program that asks for none is sent none.
    let script = Script::new().status("started 1").status("input console").wait_for_input();
    let script = script.print("got it\n").status("exit 0").end();
    let unilith = Unilith::with_guest(&script);
    fs::write(unilith.path("input"), "x").unwrap();
    let mut command = unilith.command(&["run", "-i", "cpio:root.cpio", "/x"]);
    command.stdin(fs::File::open(unilith.path("input")).unwrap());
    finish(&mut command, Duration::from_secs(30)).ok().says("got it");
}

#[test]
fn the_calls_a_program_missed_are_in_inspect() {
    let unilith =
        Unilith::with_guest(&Script::new().status("started 1").status("missing 425").status("exit 0").end());
    unilith.run(&["run", "--name", "curious", "cpio:root.cpio", "/x"]).ok();
    assert_eq!(unilith.inspect("curious")["state"]["missing_calls"][0], 425);
}

#[test]
fn the_line_on_readiness_says_how_to_reach_the_program() {
    let unilith = Unilith::with_guest(&server());
    let port = free_port();
    let machine = unilith.start(&["-p", &format!("127.0.0.1:{port}:6379"), "cpio:root.cpio", "/x"]);
    assert!(
        machine.said.contains("is ready in") && machine.said.contains(&format!("127.0.0.1:{port}")),
        "{}",
        machine.said
    );
    unilith.run(&["ps"]).says(&format!("127.0.0.1:{port}->6379/tcp"));
}

#[test]
fn build_writes_a_directory_that_boots_without_unilith() {
    let unilith = ends_with("exit 7");
    unilith.run(&["build", "--dns", "192.0.2.9", "-o", "out", "cpio:root.cpio", "/x"]).ok().says("out");
    let script = fs::read_to_string(unilith.path("out/run.sh")).unwrap();
    assert!(script.contains("dns=192.0.2.9"), "{script}");
    let ran = finish(&mut std::process::Command::new(unilith.path("out/run.sh")), Duration::from_secs(30));
    assert_eq!(ran.code(7).out, "out\n");
    unilith.run(&["build", "-o", ".", "cpio:root.cpio", "/x"]).fails_with(&["not empty", "-o"]);
}

#[test]
fn the_script_knows_all_folders_that_the_command_is_built_from() {
    drop(Unilith::new());
    let script = fs::read_to_string(root().join("unilith")).unwrap();
    // What cargo writes beside a program: itself, a colon, and its sources.
    let sources = fs::read_to_string(root().join("target/release/unilith.d")).unwrap().replace("\\ ", "\0");
    let own = root().to_str().unwrap().replace(' ', "\0");
    let below = |path: &str| path.strip_prefix(&*own).map(|rest| rest.trim_start_matches('/').to_string());
    let sources: Vec<String> = sources.split_whitespace().skip(1).filter_map(below).collect();
    assert!(sources.iter().any(|source| source == "cli/src/main.rs"), "{sources:?}");
    for source in sources {
        let mut folders = std::path::Path::new(&source).ancestors();
        let known = folders.any(|folder| script.contains(&format!("\"$root/{}\"", folder.display())));
        assert!(
            known,
            "{source}: not in `sources` of the script: the command would stay as it is when it changes"
        );
    }
}

#[test]
fn doctor_and_completions_work_without_a_machine() {
    let unilith = Unilith::new();
    let findings: serde_json::Value = serde_json::from_str(&unilith.run(&["doctor", "--json"]).out).unwrap();
    assert!(findings.as_array().unwrap().iter().any(|f| f["what"] == "KVM"));
    for shell in ["bash", "zsh", "fish"] {
        unilith.run(&["completions", shell]).ok().says("unilith");
    }
}

#[test]
fn a_reader_that_goes_ends_a_listing_quietly() {
    let unilith = Unilith::new();
    let script = root().join("unilith");
    let line = format!("{{ sleep 1; code=0; {} apps || code=$?; echo $code >&2; }} | true", script.display());
    let ran = finish(&mut unilith.shell(&line), Duration::from_secs(60)).ok();
    assert_eq!(ran.err.trim(), "141", "{ran}");
}
