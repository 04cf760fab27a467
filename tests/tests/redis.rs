// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Debian's redis-server, driven by redis-cli and redis-benchmark (package redis-tools).

use std::time::Duration;
use unilith_tests::{Machine, Ran, Unilith, client, load, slow_client};

fn start<'a>(unilith: &'a Unilith, more: &[&str]) -> Machine<'a> {
    unilith.start(&[&["-p", "127.0.0.1::6379"], more, &["redis"]].concat())
}

fn cli(machine: &Machine, words: &[&str]) -> Ran {
    let at = machine.at(6379);
    let (host, port) = (at.ip().to_string(), at.port().to_string());
    client("redis-cli", &[&["-h", &host, "-p", &port], words].concat())
}

#[test]
fn what_is_set_is_got() {
    let unilith = Unilith::new();
    let machine = start(&unilith, &[]);
    cli(&machine, &["ping"]).ok().says("PONG");
    cli(&machine, &["set", "greeting", "hello"]).ok().says("OK");
    cli(&machine, &["get", "greeting"]).ok().says("hello");
    cli(&machine, &["info", "server"]).ok().says("os:Linux");
}

#[test]
fn a_published_port_reaches_it() {
    let unilith = Unilith::new();
    let machine = start(&unilith, &[]);
    let at = machine.published(6379);
    client("redis-cli", &["-h", "127.0.0.1", "-p", &at.port().to_string(), "ping"]).ok().says("PONG");
}

#[test]
fn it_answers_with_24_megabytes() {
    let unilith = Unilith::new();
    if unilith_tests::tested_kernel() != "micro" {
        return;
    }
    let machine = start(&unilith, &["-m", "24M"]);
    cli(&machine, &["ping"]).ok().says("PONG");
}

#[test]
fn shutdown_from_a_client_ends_the_machine_well() {
    let unilith = Unilith::new();
    let machine = start(&unilith, &[]);
    // The server closes the connection without an answer.
    cli(&machine, &["shutdown", "nosave"]);
    unilith.run(&["wait", &machine.id]).ok().says("0");
}

#[test]
fn ten_rounds_of_a_hundred_thousand_requests_do_not_stall() {
    let unilith = Unilith::new();
    let machine = start(&unilith, &[]);
    let at = machine.at(6379);
    let (host, port) = (at.ip().to_string(), at.port().to_string());
    let requests = load(100_000).to_string();
    for round in 1..=10 {
        for pipeline in ["1", "16"] {
            let words =
                ["-h", &host, "-p", &port, "-c", "50", "-n", &requests, "-P", pipeline, "-t", "get", "-q"];
            let ran = slow_client("redis-benchmark", &words, Duration::from_secs(180)).ok();
            assert!(ran.out.contains("requests per second"), "round {round}, pipeline {pipeline}: {ran}");
        }
    }
    cli(&machine, &["ping"]).ok().says("PONG");
}

#[test]
fn stop_lets_it_finish_its_work() {
    let unilith = Unilith::new();
    let machine = start(&unilith, &[]);
    unilith.run(&["stop", &machine.id]).ok();
    unilith.run(&["wait", &machine.id]).ok().says("0");
    assert!(machine.log().contains("bye bye"), "{}", machine.log());
}
