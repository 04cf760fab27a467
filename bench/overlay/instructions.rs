// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The same without the noise of a shared computer: QEMU counts instructions (`-icount shift=0`), the guest's clock advances
//! a nanosecond with each, and processor time is the number of instructions that were taken.

use super::{OFF, ON, table};
use crate::side::{Machine, build_kernels, output_of, qemu_with, unilith_command};
use crate::{Options, Result, Scratch, Side, client, statistics::Samples};
use serde_json::Value;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;
use unilith_overlay::Client;

/// Redis requests of one run.
const REQUESTS: u32 = 20_000;
/// Pages of nginx that one client asks for, one after the other.
const PAGES: u32 = 2_000;
/// What handles each of them.
const HANDLER: &str = "count(ngx_http_process_request)";
/// Rows that SQLite inserts, each by a statement of its own.
const ROWS: u32 = 10_000;
/// Without the overlay, with it, and with a program that counts the function that is called for each request and row.
const SIDES: [([&str; 2], Option<[&str; 2]>); 3] =
    [(OFF, None), (ON, None), (ON, Some(["count(processCommand)", "count(sqlite3_step)"]))];
/// Commands that are said to run every second, and their names.
const COMMANDS: [(&str, &[&[&str]]); 2] = [
    ("`ls -l /etc`", &[&["ls", "-l", "/etc"]]),
    ("`mem`, `ps` and `net -c`", &[&["mem"], &["ps"], &["net", "-c"]]),
];
/// Instructions of a second, of a processor that does one in a nanosecond.
const SECOND: f64 = 1e9;

pub fn run(options: &Options) -> Result<()> {
    build_kernels(options, &[&OFF, &ON])?;
    let scratch = Scratch::new("instructions")?;
    let path = qemu_with(&scratch, "-icount shift=0")?;
    let env = [("PATH", path.as_str())];
    let start = |set: [&str; 2]| {
        Machine::start_with(options, Side::Micro, &[&set[..], &["-m", "256M", "redis"]].concat(), &env)
    };
    let (off, on) = (start(OFF)?, start(ON)?);
    let nginx =
        Machine::start_with(options, Side::Micro, &[&ON[..], &["-m", "256M", "nginx"]].concat(), &env)?;
    let script = Script::write()?;
    let mut redis = vec![Samples::default(); SIDES.len()];
    let mut sqlite = vec![Samples::default(); SIDES.len()];
    let mut served = vec![Samples::default(); 2];
    let mut costs = vec![Samples::default(); COMMANDS.len()];
    // What is only done once.
    requests(&off)?;
    requests(&on)?;
    pages(&nginx)?;
    for _ in 0..options.runs {
        for ((set, programs), (redis, sqlite)) in SIDES.iter().zip(redis.iter_mut().zip(&mut sqlite)) {
            let machine = if *set == OFF { &off } else { &on };
            let [of_redis, of_sqlite] = programs.map_or([None; 2], |p| p.map(Some));
            redis.add(counted(options, machine, of_redis, requests)?);
            sqlite.add(script.insert(options, set, of_sqlite, &env)? / f64::from(ROWS));
        }
        for (program, samples) in [None, Some(HANDLER)].into_iter().zip(&mut served) {
            samples.add(counted(options, &nginx, program, pages)?);
        }
        for ((_, commands), samples) in COMMANDS.iter().zip(&mut costs) {
            samples.add(cost(&on, commands)?);
        }
    }
    table(
        &["off", "on, idle", "eBPF counts each"],
        &[
            ("Redis SET, pipeline 16, each request".to_string(), "instructions", redis),
            (format!("SQLite in memory, each of {ROWS} insertions"), "instructions", sqlite),
        ],
    );
    println!();
    // A machine without the overlay has nobody to ask for nginx's processor time.
    table(&["on, idle", "eBPF counts each"], &[("nginx, each page".to_string(), "instructions", served)]);
    println!("\n| commands | instructions | of a second of {SECOND:.0e} |\n| --- | --- | --- |");
    for ((name, _), samples) in COMMANDS.iter().zip(&costs) {
        let share = samples.median().unwrap_or(0.0) / SECOND * 100.0;
        println!("| {name} | {} | {share:.3} % |", samples.show());
    }
    Ok(())
}

/// What `each` answers, with this program in the machine meanwhile.
fn counted(
    options: &Options,
    machine: &Machine,
    program: Option<&str>,
    each: fn(&Machine) -> Result<f64>,
) -> Result<f64> {
    let Some(program) = program else { return each(machine) };
    output_of(options, &["trace", "--keep", "count", machine.name(), program], &[])?;
    let count = each(machine);
    output_of(options, &["exec", machine.name(), "bpf", "detach", "count"], &[])?;
    count
}

/// Instructions of nginx for each page, with the kernel's for it.
fn pages(machine: &Machine) -> Result<f64> {
    let client = Client::connect(&machine.folder()?).map_err(|e| e.to_string())?;
    let url = format!("http://{}/?[1-{PAGES}]", machine.address()?);
    let before = of_threads(&client, |name| name != OVERLAY)?;
    client::run(&["curl", "-sS", "-f", "-o", "/dev/null", &url])?;
    Ok((of_threads(&client, |name| name != OVERLAY)? - before) / f64::from(PAGES))
}

/// Instructions of Redis' threads for each request.
fn requests(machine: &Machine) -> Result<f64> {
    let address = &machine.address()?;
    let before = used(address)?;
    let count = REQUESTS.to_string();
    let words =
        ["redis-benchmark", "-h", address.as_str(), "-c", "50", "-n", &count, "-P", "16", "-t", "set", "-q"];
    client::run(&words)?;
    Ok((used(address)? - before) * 1e9 / f64::from(REQUESTS))
}

/// Seconds of processor time that Redis has used.
fn used(address: &str) -> Result<f64> {
    let text = client::run(&["redis-cli", "-h", address, "info", "cpu"])?;
    let part = |key: &str| {
        let value = text.lines().find_map(|l| l.strip_prefix(key)?.strip_prefix(':'));
        value.and_then(|v| v.trim().parse::<f64>().ok()).ok_or(format!("redis-cli printed: {text}"))
    };
    Ok(part("used_cpu_sys")? + part("used_cpu_user")?)
}

/// Instructions that these commands take from a machine whose program is busy: those of the overlay's threads, and what its
/// interrupts add to the program's requests.
fn cost(machine: &Machine, commands: &[&[&str]]) -> Result<f64> {
    let client = Client::connect(&machine.folder()?).map_err(|e| e.to_string())?;
    let of_overlay = |client: &Client| of_threads(client, |name| name == OVERLAY);
    let alone = requests(machine)?;
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let commanding = scope.spawn(|| -> Result<(u32, f64)> {
            let (mut rounds, before) = (0, of_overlay(&client)?);
            while !done.load(Ordering::Relaxed) {
                for command in commands {
                    let answer = client.run(command, false).map_err(|e| e.to_string())?;
                    if answer.code != 0 {
                        return Err(format!("{} answers {}", command.join(" "), answer.code));
                    }
                }
                rounds += 1;
            }
            Ok((rounds, of_overlay(&client)? - before))
        });
        let beside = requests(machine);
        done.store(true, Ordering::Relaxed);
        let (rounds, own) = commanding.join().map_err(|_| "the thread of the commands panicked")??;
        let added = (beside? - alone).max(0.0) * f64::from(REQUESTS);
        Ok((own + added) / f64::from(rounds.max(1)))
    })
}

/// How `ps` calls the overlay's threads.
const OVERLAY: &str = "[overlay]";

/// Instructions of threads so far.
fn of_threads(client: &Client, is_one: impl Fn(&str) -> bool) -> Result<f64> {
    let answer = client.run(&["ps"], true).map_err(|e| e.to_string())?;
    let rows = String::from_utf8_lossy(&answer.out).into_owned();
    let rows = rows.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let own = rows.filter(|row| row["name"].as_str().is_some_and(&is_one));
    let own = own.filter_map(|row| row["cpu_ns"].as_f64());
    match own.sum::<f64>() {
        0.0 => Err("ps knows no such thread".into()),
        sum => Ok(sum),
    }
}

/// What SQLite is to do.
struct Script(Scratch);

impl Script {
    fn write() -> Result<Script> {
        let mut script = String::from("create table t(id integer primary key, text text);\nbegin;\n");
        (0..ROWS).for_each(|n| script.push_str(&format!("insert into t(text) values('row {n}');\n")));
        script.push_str("commit;\n");
        let scratch = Scratch::new("script")?;
        scratch.write("script.sql", &script)?;
        Ok(Script(scratch))
    }

    /// Instructions that SQLite takes for it, with this program in its machine.
    fn insert(
        &self,
        options: &Options,
        set: &[&str],
        program: Option<&str>,
        env: &[(&str, &str)],
    ) -> Result<f64> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("bench-{}-insert-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let volume = format!("{}:/data:ro", self.0.path().display());
        let words = [
            &[
                "run",
                "--rm",
                "-i",
                "--machine",
                "microvm",
                "--name",
                &name,
                "--network",
                "none",
                "-v",
                &volume,
            ][..],
            set,
            &["sqlite", "--", "-batch", ":memory:"],
        ];
        let mut command = unilith_command(options, &words.concat(), env);
        let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut child = child.map_err(|e| format!("cannot run timeout: {e}"))?;
        let (Some(mut input), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
            return Err("a child without pipes".into());
        };
        let mut output = BufReader::new(output);
        let mut text = String::new();
        let mut talk = || -> Result<()> {
            let lost = |e| format!("sqlite: {e}");
            input.write_all(b"select 'ready';\n").map_err(lost)?;
            output.read_line(&mut text).map_err(lost)?;
            if let Some(program) = program {
                output_of(options, &["trace", "--keep", "count", &name, program], &[])?;
            }
            // One line of time for each statement.
            let all = ".timer on\n.read /data/script.sql\n.timer off\n.quit\n";
            input.write_all(all.as_bytes()).map_err(lost)?;
            output.read_to_string(&mut text).map_err(lost)?;
            Ok(())
        };
        let talked = talk();
        if talked.is_err() {
            // The error that counts is the first.
            let _ = child.kill();
        }
        let status = child.wait().map_err(|e| format!("sqlite: {e}"))?;
        talked?;
        if !status.success() {
            return Err(format!("sqlite ended with {status} and printed: {text}"));
        }
        timed(&text).map(|seconds| seconds * 1e9).ok_or(format!("sqlite printed: {text}"))
    }
}

/// The sum of the `Run Time`s of SQLite's `.timer`: user and system time, in seconds.
fn timed(text: &str) -> Option<f64> {
    let seconds = text.lines().filter_map(|line| {
        let words: Vec<&str> = line.strip_prefix("Run Time:")?.split_whitespace().collect();
        let after = |name: &str| -> Option<f64> {
            words.get(words.iter().position(|w| *w == name)? + 1)?.parse().ok()
        };
        Some(after("user")? + after("sys")?)
    });
    seconds.reduce(|a, b| a + b)
}
