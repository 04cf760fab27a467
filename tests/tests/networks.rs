// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Networks: machines of one network reach each other and find each other by name, others do not.

use std::process::{Command, Stdio};
use unilith_tests::{Unilith, client, eventually};

/// Networks take root and nftables; where they cannot be had the command says so.
fn are_there(unilith: &Unilith) -> bool {
    unilith.run(&["network", "create", "probe"]).ok();
    let ran = unilith.run(&["run", "--network", "probe", "no-such-program"]);
    unilith.run(&["network", "rm", "probe"]).ok();
    let lack = ran.err.contains("machines cannot be in networks here: it takes ");
    if lack {
        eprintln!("skipped: {}", ran.err.trim());
    }
    !lack
}

/// A client within a network; what it said.
fn within(unilith: &Unilith, networks: &[&str], script: &str) -> String {
    let flags = networks.iter().flat_map(|n| ["--network", n]);
    let words: Vec<&str> = flags.chain(["busybox", "sh", "-c", script]).collect();
    unilith.program(&words).ok().out
}

const PING: &str = "echo PING | nc -w 3 $1 6379 2>/dev/null | tr -d '\\r'";

fn ping(name: &str) -> String {
    format!("set -- {name}; {PING}")
}

#[test]
fn machines_of_one_network_find_each_other_by_name_and_others_do_not() {
    let unilith = Unilith::new();
    if !are_there(&unilith) {
        return;
    }
    for network in ["front", "back"] {
        unilith.run(&["network", "create", network]).ok();
    }
    let flags = ["--name", "cache", "--network", "front", "--network-alias", "Store", "--hostname", "keeper"];
    let cache = unilith.start(&[&flags[..], &["-p", "127.0.0.1::6379", "redis"]].concat());
    // Its clients are this program too, which is not what they are called.
    let flags = ["--name", "other", "--network", "back", "--network-alias", "busybox"];
    let other = unilith.start(&[&flags[..], &["-p", "127.0.0.1::6379", "redis"]].concat());
    let names = ["cache", "CACHE", "store", "keeper", "cache.front", &cache.id];
    let script: Vec<String> = names.iter().map(|name| ping(name)).collect();
    assert_eq!(within(&unilith, &["front"], &script.join("; ")), "+PONG\n".repeat(names.len()));

    // By a name that is another network's, and by an address that a name would have given.
    let address = |name: &str| {
        unilith.run(&["inspect", "-f", "{{.NetworkSettings.IPAddress}}", name]).ok().out.trim().to_string()
    };
    let (to_other, to_cache) = (address("other"), address("cache"));
    let script = format!("nslookup other >/dev/null 2>&1 || echo unknown; {}", ping(&to_other));
    assert_eq!(within(&unilith, &["front"], &script), "unknown\n");
    assert_eq!(within(&unilith, &[], &ping(&to_cache)), "", "in no network");
    let both = format!("{}; {}; {}", ping("cache"), ping("other"), ping("busybox"));
    assert_eq!(within(&unilith, &["front", "back"], &both), "+PONG\n+PONG\n+PONG\n");

    // The host's ways to it are as before.
    for machine in [&cache, &other] {
        let port = machine.published(6379).port().to_string();
        client("redis-cli", &["-p", &port, "ping"]).ok().says("PONG");
    }
    client("redis-cli", &["-h", &to_cache, "ping"]).ok().says("PONG");

    let inspected = unilith.run(&["network", "inspect", "front"]).ok().out;
    let inspected: serde_json::Value = serde_json::from_str(&inspected).expect("inspect prints JSON");
    let member = &inspected[0]["machines"][0];
    assert_eq!(
        (member["name"].as_str(), member["address"].as_str()),
        (Some("cache"), Some(to_cache.as_str()))
    );
    unilith.run(&["network", "rm", "front"]).fails_with(&["network front is used by cache", "stop that"]);
}

#[test]
fn a_machine_that_ended_has_left_and_is_found_again_when_it_is_started() {
    let unilith = Unilith::new();
    if !are_there(&unilith) {
        return;
    }
    unilith.run(&["network", "create", "front"]).ok();
    let first = unilith.start(&["--name", "one", "--network", "front", "--network-alias", "any", "redis"]);
    let second = unilith.start(&["--name", "two", "--network", "front", "--network-alias", "any", "redis"]);
    let count = "nslookup any 2>/dev/null | grep -c '^Address: *10\\|^Address: *1[79]'";
    assert_eq!(within(&unilith, &["front"], count), "2\n", "both are meant");
    unilith.run(&["stop", &first.id]).ok();
    assert_eq!(within(&unilith, &["front"], &format!("{count}; {}", ping("any"))), "1\n+PONG\n");
    unilith.run(&["start", &first.id]).ok();
    assert_eq!(within(&unilith, &["front"], &ping("one")), "+PONG\n");

    // One that has ended does not keep its network, and cannot start without it.
    unilith.run(&["stop", &first.id, &second.id]).ok();
    unilith.run(&["network", "rm", "front"]).ok().says("front");
    unilith.run(&["network", "create", "front"]).ok();
    unilith.run(&["start", "one"]).code(125).complains("no network is called `front`");
}

/// As with docker, a machine that runs changes its networks at once, and what it began in a network ends with that.
#[test]
fn a_running_machine_is_connected_and_disconnected() {
    let unilith = Unilith::new();
    if !are_there(&unilith) {
        return;
    }
    for network in ["front", "back"] {
        unilith.run(&["network", "create", network]).ok();
    }
    let _cache = unilith.start(&["--name", "cache", "-p", "127.0.0.1::6379", "redis"]);
    let script = format!("{}; {}", ping("cache"), ping("store"));
    assert_eq!(within(&unilith, &["front"], &script), "", "it is in no network");
    let connect = ["network", "connect", "--alias", "store", "front", "cache"];
    unilith.run(&connect).ok();
    assert_eq!(within(&unilith, &["front"], &script), "+PONG\n+PONG\n");
    unilith.run(&connect).fails_with(&["cache is in network front already"]);

    // It finds others as well, and a connection that it has ends with the network that it was made in.
    let desk = unilith.start(&["--name", "desk", "busybox", "sleep", "100000"]);
    let inside = |script: &str| unilith.run(&["exec", "desk", "--", "busybox", "sh", "-c", script]);
    unilith.run(&["network", "connect", "front", "desk"]).ok();
    inside(&ping("cache")).ok().says("+PONG");
    let talks = "mkfifo /tmp/in; nc cache 6379 </tmp/in >/tmp/out & exec 3>/tmp/in; echo PING >&3; \
                 until [ -e /tmp/go ]; do sleep 1; done; echo PING >&3; sleep 3; grep -c PONG /tmp/out; kill $!";
    let talks = ["exec", "desk", "--", "busybox", "sh", "-c", talks];
    let talks = unilith.command(&talks).stdout(Stdio::piped()).spawn().unwrap();
    eventually("it has an answer", || inside("cat /tmp/out").out == "+PONG\r\n");
    unilith.run(&["network", "disconnect", "front", "desk"]).ok();
    inside("touch /tmp/go").ok();
    let answers = String::from_utf8(talks.wait_with_output().unwrap().stdout).unwrap();
    assert_eq!(answers, "1\n", "what it says afterwards is not heard");
    assert_eq!(inside(&ping("cache")).out, "");
    unilith
        .run(&["network", "disconnect", "front", "desk"])
        .fails_with(&["in no network called `front`", "inspect"]);
    assert_eq!(within(&unilith, &["front"], &ping("cache")), "+PONG\n", "others are members still");
    drop(desk);

    // One that has ended is a member when it is started.
    unilith.run(&["stop", "cache"]).ok();
    unilith.run(&["network", "disconnect", "-f", "front", "cache"]).ok();
    unilith.run(&["network", "connect", "back", "cache"]).ok();
    unilith.run(&["start", "cache"]).ok();
    assert_eq!(within(&unilith, &["front"], &ping("cache")), "");
    assert_eq!(within(&unilith, &["back"], &ping("cache")), "+PONG\n");

    // A machine that was made without a device of its own is not given one.
    let alone = unilith.start(&["--name", "alone", "--network", "none", "redis"]);
    unilith.run(&["network", "connect", "back", "alone"]).fails_with(&["alone", "stop it first"]);
    unilith.run(&["stop", &alone.id]).ok();
    unilith.run(&["network", "connect", "back", "alone"]).fails_with(&["another way to be connected"]);
    unilith.run(&["network", "connect", "nowhere", "cache"]).fails_with(&["no network is called `nowhere`"]);
}

#[test]
fn nothing_of_a_network_is_left_on_the_host() {
    let unilith = Unilith::new();
    if !are_there(&unilith) {
        return;
    }
    unilith.run(&["network", "create", "front"]).ok();
    let machine = unilith.start(&["--name", "gone", "--network", "front", "redis"]);
    let rules = || {
        let mut command = Command::new("nft");
        let command = command.args(["list", "tables"]).env("PATH", "/usr/sbin:/sbin:/usr/bin:/bin");
        let listed = command.output().expect("nftables are there");
        String::from_utf8_lossy(&listed.stdout).matches(machine.id.as_str()).count()
    };
    assert_eq!(rules(), 2, "its tables are there");
    unilith.run(&["kill", &machine.id]).ok();
    assert_eq!(rules(), 0);
    unilith.run(&["rm", "gone"]).ok();
    unilith.run(&["network", "prune"]).ok().says("front");
    assert_eq!(unilith.run(&["network", "ls", "-q"]).ok().out, "");
}

#[test]
fn what_cannot_be_is_refused_before_anything_is_built() {
    let unilith = Unilith::new();
    let refused = |words: &[&str], code, parts: &[&str]| {
        unilith.run(words).code(code).fails_with(parts);
    };
    unilith.run(&["network", "create", "front"]).ok();
    refused(&["network", "create", "front"], 1, &["there is a network `front` already"]);
    refused(&["network", "create", "none"], 1, &["network none", "another name"]);
    refused(&["network", "create", "a b\u{1b}[2J"], 1, &["letters, digits"]);
    refused(&["network", "rm", "back"], 1, &["no network is called `back`", "unilith network create back"]);
    refused(&["run", "--network", "back", "busybox", "true"], 125, &["no network is called `back`"]);
    refused(&["run", "--network", "host", "busybox"], 2, &["--network host", "-p"]);
    refused(
        &["run", "--network", "none", "--network", "front", "busybox"],
        2,
        &["--network none", "leave this out"],
    );
    refused(&["run", "--network-alias", "db", "busybox"], 2, &["--network-alias db", "--network NAME"]);
    refused(
        &["run", "--network", "front", "--network-alias", "a b", "busybox"],
        2,
        &["--network-alias a b", "letters"],
    );
    refused(&["run", "--link", "db", "busybox"], 2, &["--network NAME"]);
}
