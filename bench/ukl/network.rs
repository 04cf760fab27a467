// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Servers over tap, from clients on the other processor: Redis, memcached and an echo server. Machines of all levels are up at
//! once and measured in turns.

use super::{Level, SERVERS, Table, build_linked, is_linked, level_words, link, name_of, prepare};
use crate::load::Load;
use crate::redis::{Measured, benchmark};
use crate::{Options, Result, programs, side::Machine, side::Side};

/// Connections, pipeline and requests of `redis-benchmark`, and what is reported of it.
const REDIS: [(&str, &str, &str); 2] = [("30", "16", "100000"), ("300", "1", "50000")];
/// Requests of memcached for each number of connections, of its echo server and the bytes of one.
const MEMCACHED: usize = 20_000;
const ECHO: usize = 20_000;
const MESSAGE: [u8; 64] = [b'u'; 64];
/// Threads of the paper's client, each with 1 to 10 connections; here one thread has all of them.
const THREADS: usize = 4;
const MAX_CONNECTIONS: usize = 10;
/// The client keys and sizes of memtier_benchmark: ten reads for a write of 32 bytes.
const KEYS: usize = 10_000;
const READS: usize = 10;

/// A machine of each level.
fn start<'a>(
    options: &'a Options,
    words: impl Fn(Level) -> Vec<&'a str>,
) -> Result<Vec<(Level, Machine<'a>)>> {
    let start = |level: &Level| {
        let all = [level_words(level), words(level)].concat();
        let machine = Machine::start(options, Side::Linux, &all);
        machine.map(|m| (*level, m)).map_err(|e| format!("{}: {e}", name_of(level)))
    };
    SERVERS.iter().map(start).collect()
}

pub fn redis(options: &Options) -> Result<()> {
    println!(
        "Redis over tap: requests a second and the 99th percentile of their time. 30 connections with 16 requests each at a time"
    );
    println!("(tables 4 and 5), and 300 with one (table 6).\n");
    prepare(options, "redis")?;
    build_linked(options, "redis")?;
    let machines = start(options, |_| vec!["-m", "256M", "redis"])?;
    let mut table = Table::new(&SERVERS);
    for _ in 0..options.runs {
        for load in REDIS {
            for (level, machine) in &machines {
                let of_level = |e: String| format!("{}: {e}", name_of(level));
                of_redis(&machine.address()?, load, level, &mut table).map_err(of_level)?;
            }
        }
    }
    table.print();
    Ok(())
}

fn of_redis(address: &str, load: (&str, &str, &str), level: Level, table: &mut Table) -> Result<()> {
    let (connections, pipeline, requests) = load;
    let by = if pipeline == "1" { connections.into() } else { format!("{connections} by {pipeline}") };
    for Measured { test, rate, p99, .. } in benchmark(address, connections, pipeline, requests, &[])? {
        table.add(&format!("{test}, {by}, requests/s"), level, rate);
        table.add(&format!("{test}, {by}, p99, ms"), level, p99);
    }
    Ok(())
}

pub fn memcached(options: &Options) -> Result<()> {
    println!(
        "memcached with four threads over tap: the 99th percentile of a request's time in ms; ten reads for a write of 32 bytes, from"
    );
    println!("four times so many connections (the paper's client has four threads).\n");
    prepare(options, "memcached")?;
    build_linked(options, "memcached")?;
    let machines = start(options, |_| vec!["-m", "256M", "memcached"])?;
    let mut table = Table::new(&SERVERS);
    for _ in 0..options.runs {
        for connections in 1..=MAX_CONNECTIONS {
            for (level, machine) in &machines {
                let load = Load {
                    connections: THREADS * connections,
                    requests: MEMCACHED,
                    request: of_memcached,
                    is_complete: |answer| answer.ends_with(b"END\r\n") || answer.ends_with(b"STORED\r\n"),
                };
                let times = load.run(&format!("{}:11211", machine.address()?));
                let times = times.map_err(|e| format!("{}: {e}", name_of(level)))?;
                table.add(&format!("{THREADS} x {connections}, p99, ms"), level, times.p99());
            }
        }
    }
    table.print();
    Ok(())
}

/// The request with this number, for a closed loop.
pub fn of_memcached(number: usize) -> Vec<u8> {
    // A permutation of the keys: each is written sometimes.
    let key = number.wrapping_mul(7919) % KEYS;
    if number.is_multiple_of(READS + 1) {
        format!("set memtier-{key} 0 0 32\r\n{}\r\n", "x".repeat(32)).into_bytes()
    } else {
        format!("get memtier-{key}\r\n").into_bytes()
    }
}

pub fn echo(options: &Options) -> Result<()> {
    println!("A TCP echo server over tap, one connection and {} bytes at a time.\n", MESSAGE.len());
    let scratch = prepare(options, "echo")?;
    let (unmodified, linked) = (scratch.path().join("echo"), scratch.path().join("linked"));
    programs::build(options, "ukl/echo.c", &unmodified)?;
    link(options, "ukl/echo.c", &linked, &[])?;
    let (unmodified, linked) = (unmodified.display().to_string(), linked.display().to_string());
    let ready = ["-p", "127.0.0.1::7"];
    let machines = start(options, |level| {
        [&ready[..], &[if is_linked(level) { &linked } else { &unmodified }]].concat()
    })?;
    let mut table = Table::new(&SERVERS);
    for _ in 0..options.runs {
        for (level, machine) in &machines {
            let load = Load {
                connections: 1,
                requests: ECHO,
                request: |_| MESSAGE.to_vec(),
                is_complete: |answer| answer.len() == MESSAGE.len(),
            };
            let times = load.run(&format!("{}:7", machine.address()?));
            let times = times.map_err(|e| format!("{}: {e}", name_of(level)))?;
            table.add("echo, mean, ms", level, times.mean());
            table.add("echo, p99, ms", level, times.p99());
        }
    }
    table.print();
    Ok(())
}
