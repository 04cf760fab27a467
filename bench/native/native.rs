// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A process machine over a tap beside the same Debian binary as an ordinary process on the far side of a veth pair, and
//! beside the Linux guest: calls, page faults, Redis, nginx, SQLite, time to the first answer, memory.
//!
//! All three are started as the same user (root), servers on one processor, clients on the other. On a computer where
//! others work as well, `chrt -f 1 unilith bench native` puts everything before them.

mod far;
mod project;

use crate::{Options, Result, client, nginx, programs, redis, side, side::Machine, side::Side, statistics};
use far::{Far, Server};
use project::Project;
use statistics::Samples;
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

const SIDES: [&str; 3] = ["process", "native", "linux guest"];
const MEMORY: &str = "256M";
/// Longest time until a server answers.
const PATIENCE: Duration = Duration::from_secs(30);

/// Figures by name, with their unit, in the order they were first measured.
#[derive(Default)]
struct Table {
    order: Vec<(String, &'static str)>,
    samples: BTreeMap<String, [Samples; 3]>,
}

impl Table {
    fn add(&mut self, figure: &str, unit: &'static str, side: usize, value: f64) {
        if !self.samples.contains_key(figure) {
            self.order.push((figure.into(), unit));
        }
        self.samples.entry(figure.into()).or_default()[side].add(value);
    }

    fn print(&self) {
        statistics::head(&SIDES);
        for (figure, unit) in &self.order {
            statistics::row(figure, unit, &self.samples[figure]);
        }
    }
}

/// The machine's kind on each side; `None`: no machine.
fn sides(options: &Options) -> impl Iterator<Item = (usize, Option<Side>)> {
    let all = [Some(Side::Process), None, Some(Side::Linux)];
    let micro_only = options.micro_only;
    all.into_iter().enumerate().filter(move |(_, side)| !(micro_only && *side == Some(Side::Linux)))
}

pub fn run(options: &Options) -> Result<()> {
    let mut table = Table::default();
    let project = Project::new()?;
    calls_and_faults(options, &project, &mut table)?;
    sqlite(options, &project, &mut table)?;
    starts(options, &project, &mut table)?;
    servers(options, &project, &mut table)?;
    table.print();
    Ok(())
}

fn calls_and_faults(options: &Options, project: &Project, table: &mut Table) -> Result<()> {
    for source in ["syscall/null.c", "fault/fault.c"] {
        let program = project.path("program");
        programs::build(options, source, &program)?;
        let program = program.display().to_string();
        for _ in 0..options.runs {
            for (column, side) in sides(options) {
                let text = match side {
                    Some(side) => side::output(options, side, &[&program])?,
                    None => client::run_on(side::MACHINE_CPU, &[&program])?,
                };
                for line in text.lines() {
                    let Some((name, value)) = line.split_once(' ') else { continue };
                    let Ok(value) = value.trim().parse() else { continue };
                    table.add(name, "ns", column, value);
                }
            }
        }
    }
    Ok(())
}

/// Times two points of a script of SQL; milliseconds.
fn sqlite(options: &Options, project: &Project, table: &mut Table) -> Result<()> {
    let folder = project.sqlite()?;
    let script = format!(".read {}", folder.join("script.sql").display());
    for _ in 0..options.runs {
        for (column, side) in sides(options) {
            let text = match side {
                Some(side) => side::output_in(options, side, Some(&folder), &["-m", MEMORY])?,
                None => client::run_on(side::MACHINE_CPU, &[project::SQLITE, ":memory:", &script])?,
            };
            let times: Vec<f64> = text.lines().filter_map(|line| line.trim().parse().ok()).collect();
            let [begin, end] = times[..] else { return Err(format!("sqlite3 printed: {text}")) };
            table.add("60,000 inserts in memory", "ms", column, end - begin);
        }
    }
    Ok(())
}

/// Time from exec to the first PONG of Redis, and the memory it then has.
fn starts(options: &Options, project: &Project, table: &mut Table) -> Result<()> {
    let folder = project.redis()?;
    let far = Far::new()?;
    for _ in 0..options.runs {
        for (column, side) in sides(options) {
            let (took, pid, _machine, _server);
            match side {
                Some(side) => {
                    let machine = Machine::of_project(options, side, Some(&folder), &["-m", MEMORY])?;
                    let ready = machine.ready_ms().ok_or("the machine does not say when it was ready")?;
                    took = ready + first_pong(&format!("{}:6379", machine.address()?))?;
                    pid = machine.pid()?;
                    _machine = machine;
                }
                None => {
                    let begin = Instant::now();
                    let server = far.start(project::REDIS, &project::REDIS_WORDS)?;
                    first_pong(&format!("{}:6379", far::ADDRESS))?;
                    took = begin.elapsed().as_secs_f64() * 1e3;
                    pid = server.pid();
                    _server = server;
                }
            }
            table.add("Redis: exec to the first PONG", "ms", column, took);
            table.add("Redis: resident", "MiB", column, side::resident_mib(pid, "Rss:")?);
            table.add("Redis: proportional", "MiB", column, side::resident_mib(pid, "Pss:")?);
        }
    }
    Ok(())
}

/// Asks until there is an answer; milliseconds.
fn first_pong(address: &str) -> Result<f64> {
    let begin = Instant::now();
    let ask = || -> std::io::Result<bool> {
        let mut stream = TcpStream::connect(address)?;
        stream.set_read_timeout(Some(Duration::from_secs(1)))?;
        stream.write_all(b"PING\r\n")?;
        let mut answer = [0; 7];
        stream.read_exact(&mut answer)?;
        Ok(&answer == b"+PONG\r\n")
    };
    while !ask().unwrap_or(false) {
        if begin.elapsed() > PATIENCE {
            return Err(format!("no PONG from {address} in {} s", PATIENCE.as_secs()));
        }
        std::thread::sleep(Duration::from_micros(200));
    }
    Ok(begin.elapsed().as_secs_f64() * 1e3)
}

/// A server on one side.
enum Running<'a> {
    Machine(Machine<'a>),
    Native(Server),
}

impl Running<'_> {
    fn address(&self) -> Result<String> {
        match self {
            Running::Machine(machine) => machine.address(),
            Running::Native(server) => {
                server.check()?;
                Ok(far::ADDRESS.into())
            }
        }
    }
}

fn servers(options: &Options, project: &Project, table: &mut Table) -> Result<()> {
    let far = Far::new()?;
    let start = |folder: &std::path::Path, program: &str, words: &[&str]| -> Result<Vec<(usize, Running)>> {
        let start = |side| match side {
            Some(side) => {
                Machine::of_project(options, side, Some(folder), &["-m", MEMORY]).map(Running::Machine)
            }
            None => far.start(program, words).map(Running::Native),
        };
        sides(options).map(|(column, side)| Ok((column, start(side)?))).collect()
    };

    let running = start(&project.redis()?, project::REDIS, &project::REDIS_WORDS)?;
    let loads: [(&str, &str, &str, &[&str]); 3] = [
        ("unpipelined", "1", "100000", &[]),
        ("pipelined by 16", "16", "800000", &[]),
        ("16 KB values", "1", "50000", &["-d", "16384"]),
    ];
    for _ in 0..options.runs {
        for (name, pipeline, requests, more) in loads {
            for (column, server) in &running {
                first_pong(&format!("{}:6379", server.address()?))?;
                for (test, rate) in redis::measure(&server.address()?, pipeline, requests, more)? {
                    table.add(&format!("Redis {test}, {name}"), "requests/s", *column, rate);
                }
            }
        }
    }
    drop(running);

    let folder = project.nginx()?;
    let configuration = folder.join("native.conf").display().to_string();
    let running = start(&folder, project::NGINX, &["-c", &configuration])?;
    for _ in 0..options.runs {
        for (column, server) in &running {
            let rate = nginx::rate(&server.address()?)?;
            table.add("nginx, 612 bytes, 30 connections", "requests/s", *column, rate);
        }
    }
    Ok(())
}
