// SPDX-License-Identifier: Apache-2.0 OR MIT
//! User-mode networking: what an ordinary user gets. The tap device of root is what the other tests use.

use rustix::process::Signal;
use std::{
    io::{ErrorKind, Read, Write},
    net::TcpListener,
    time::Duration,
};
use unilith_tests::{
    Unilith, connect, eventually, free_port, is_alive, load, passt_works, signal, slow_client,
};

/// A process machine has passt or nothing; virtual machines have QEMU's own network where passt does not work.
fn is_there(unilith: &Unilith) -> bool {
    let is_there = unilith_tests::tested_machine() != "process" || passt_works(unilith);
    if !is_there {
        eprintln!("skipped: a process machine without passt has no user-mode network");
    }
    is_there
}

#[test]
fn fifty_clients_of_a_published_user_mode_port_are_served_without_a_stall() {
    let unilith = Unilith::new();
    if !is_there(&unilith) {
        return;
    }
    let machine = unilith.start(&["--network", "user", "-p", "127.0.0.1::6379", "redis"]);
    let port = machine.published(6379).port().to_string();
    let requests = load(20_000).to_string();
    for pipeline in ["1", "16"] {
        let words = ["-p", &port, "-c", "50", "-n", &requests, "-P", pipeline, "-t", "set,get", "-q"];
        // Lost SYNs come again after 1, 3 and 7 seconds: many of them would be seen here.
        let ran = slow_client("redis-benchmark", &words, Duration::from_secs(60)).ok();
        assert_eq!(ran.out.matches("requests per second").count(), 2, "{ran}");
    }
}

#[test]
fn a_hundred_connections_at_once_are_all_answered() {
    let unilith = Unilith::new();
    if !is_there(&unilith) {
        return;
    }
    let machine = unilith.start(&["--network", "user", "-p", "127.0.0.1::6379", "redis"]);
    let at = machine.published(6379);
    let mut clients: Vec<_> = (0..100).map(|_| connect(at)).collect();
    clients.iter_mut().for_each(|client| client.write_all(b"PING\r\n").unwrap());
    for client in &mut clients {
        let mut answer = [0; 7];
        client.read_exact(&mut answer).unwrap();
        assert_eq!(&answer, b"+PONG\r\n");
    }
}

/// The machine speaks IPv4; clients of this host need not.
#[test]
fn ports_are_published_at_addresses_of_ipv6_whatever_the_network() {
    let unilith = Unilith::new();
    for network in ["auto", "user"] {
        if network == "user" && !is_there(&unilith) {
            return;
        }
        let ports = ["-p", "[::1]::6379", "-p", "127.0.0.1::6379"];
        let machine = unilith.start(&[&["--network", network], &ports[..], &["redis"]].concat());
        let listed = unilith.run(&["port", &machine.id, "6379"]).ok().out;
        let places: Vec<&str> = listed.lines().collect();
        let [six, four] = places[..] else { panic!("{network}: {listed}") };
        assert!(six.starts_with("[::1]:") && four.starts_with("127.0.0.1:"), "{listed}");
        unilith.run(&["ps"]).ok().says(&format!("{six}->6379/tcp"));
        assert_eq!(unilith.inspect(&machine.id)["state"]["published"][0]["address"], "::1");
        // By hand and with the real client.
        for place in [six, four] {
            let mut client = connect(place.parse().unwrap());
            client.write_all(b"PING\r\n").unwrap();
            let mut answer = [0; 7];
            client.read_exact(&mut answer).unwrap();
            assert_eq!(&answer, b"+PONG\r\n");
        }
        let port = six.rsplit(':').next().unwrap();
        let said = unilith_tests::client("redis-cli", &["-h", "::1", "-p", port, "ping"]).ok();
        assert_eq!(said.out, "PONG\n");
        // It is taken now, and who has it is said.
        let again = unilith.run(&["run", "--rm", "-p", &format!("{six}:6379"), "redis"]);
        again.fails_with(&["in use by", "pid"]);
    }
}

#[test]
fn user_mode_networking_needs_no_root_and_leaves_nothing_after_kill_9() {
    let unilith = Unilith::new();
    if !is_there(&unilith) {
        return;
    }
    let port = free_port();
    let machine = unilith_tests::tested_machine();
    let publish = format!("127.0.0.1:{port}:6379");
    let words =
        ["run", "--machine", &machine, "--name", "front", "--network", "user", "-p", &publish, "redis"];
    let mut run = unilith.command(&words);
    let mut child = run.stdout(std::process::Stdio::null()).spawn().unwrap();
    eventually("it serves", || unilith.run(&["ps"]).out.contains("ready for"));
    let helpers = children(child.id());
    assert!(!helpers.is_empty(), "the machine at least");
    if unilith.inspect("front")["state"]["connection"]["helper"] == "passt" {
        let passt = helpers.iter().find(|(_, name)| name.starts_with("passt"));
        let user = passt.map(|(pid, _)| std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap());
        let user = user.unwrap_or_else(|| panic!("passt is no child of the command: {helpers:?}"));
        let uid = user.lines().find(|l| l.starts_with("Uid:")).unwrap();
        assert_ne!(uid.split_ascii_whitespace().nth(1), Some("0"), "passt runs as root");
    } else {
        eprintln!("passt is not in use here; `unilith doctor` says why");
    }
    signal(Signal::KILL, child.id());
    child.wait().unwrap();
    eventually("all its processes end", || !helpers.iter().any(|(pid, _)| is_alive(*pid)));
    // a process counts as ended when its first thread has; the others may hold its sockets a moment longer
    eventually("the port is free again", || TcpListener::bind(("127.0.0.1", port)).is_ok());
    unilith.run(&["ps", "-a"]).ok().says("exited (137)");
}

/// On whatever network is chosen without a word.
#[test]
fn a_server_that_is_started_again_has_its_port_again() {
    let unilith = Unilith::new();
    if !is_there(&unilith) {
        return;
    }
    let (port, machine) = (free_port().to_string(), unilith_tests::tested_machine());
    let publish = format!("127.0.0.1:{port}:6379");
    let redis = |words: &[&str]| {
        slow_client("redis-cli", &[&["-p", &port], words].concat(), Duration::from_secs(10)).out
    };
    unilith
        .run(&[
            "run",
            "-d",
            "--machine",
            &machine,
            "--name",
            "front",
            "--restart",
            "always",
            "-p",
            &publish,
            "redis",
        ])
        .ok();
    for _ in 0..2 {
        eventually("it answers", || redis(&["ping"]) == "PONG\n");
        redis(&["set", "seen", "yes"]);
        redis(&["shutdown", "nosave"]);
        eventually("another one answers", || redis(&["exists", "seen"]) == "0\n");
    }
    unilith.run(&["rm", "-f", "front"]).ok();
    assert!(TcpListener::bind(("127.0.0.1", port.parse().unwrap())).is_ok(), "the port is free");
}

#[test]
fn a_port_that_needs_root_is_published_as_one_that_does_not() {
    let unilith = Unilith::new();
    let refused =
        TcpListener::bind(("127.0.0.1", 80)).is_err_and(|e| e.kind() == ErrorKind::PermissionDenied);
    if !refused || !is_there(&unilith) {
        eprintln!("skipped: this user may listen on port 80");
        return;
    }
    let machine = unilith.start(&["nginx"]);
    let free =
        machine.said.contains("port 80 of this host needs root: port 80 of the machine is published as 8080");
    if free {
        assert_eq!(machine.published(80).port(), 8080);
    } else {
        assert!(machine.said.contains("port 8080 of this host is taken"), "{}", machine.said);
    }
}

/// Processes that this one started, with their names.
fn children(pid: u32) -> Vec<(u64, String)> {
    let processes = std::fs::read_dir("/proc").expect("/proc").flatten();
    let child = |name: &str| {
        // pid (comm) state ppid, proc_pid_stat(5)
        let stat = std::fs::read_to_string(format!("/proc/{name}/stat")).ok()?;
        let (head, tail) = stat.rsplit_once(')')?;
        let parent = tail.split_ascii_whitespace().nth(1)?;
        (parent == pid.to_string()).then_some((name.parse().ok()?, head.split_once('(')?.1.to_string()))
    };
    processes.filter_map(|entry| child(entry.file_name().to_str()?)).collect()
}
