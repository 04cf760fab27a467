// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Paper: Unikraft figures 14 to 18. nginx, SQLite and Redis under each heap library as their malloc, unmodified (`--malloc`)
//! and linked with the kernel (`--set alloc.program`), beside what they bring themselves: glibc's, jemalloc (Redis), musl's.
//!
//! Servers run on process machines, and a request is counted in the machine's processor time: other work on the computer changes how
//! long a request takes, and that time little. SQLite runs in a virtual machine whose clock counts instructions.

use crate::{
    Options, Result, client, redis,
    side::{self, Machine, Side},
    spectrum::{TICKS, ticks},
    statistics,
    statistics::Samples,
};

const ALLOCATORS: [&str; 5] = ["tlsf", "buddy", "mimalloc", "tiny", "region"];
/// What the program brings, and the others.
const COLUMNS: [&str; 6] = ["own", "tlsf", "buddy", "mimalloc", "tiny", "region"];
/// The heap `region` takes nothing back.
const MEMORY: [&str; 2] = ["-m", "512M"];
/// Statements of SQLite, as the paper has them (10 to 60,000), from where on its clock of milliseconds tells something.
const STATEMENTS: [usize; 3] = [1000, 10_000, 60_000];
const REDIS_REQUESTS: &str = "100000";
/// QEMU's `-icount shift=0`: an instruction takes a nanosecond.
const INSTRUCTIONS_PER_MS: f64 = 1e6;

/// How a program gets its allocator.
#[derive(Clone, Copy)]
enum Way {
    Unmodified,
    Linked,
}

impl Way {
    fn name(self) -> &'static str {
        match self {
            Way::Unmodified => "unmodified",
            Way::Linked => "linked",
        }
    }

    /// The words for an allocator; the first column is the program's own.
    fn words(self, column: usize) -> Vec<&'static str> {
        let name = column.checked_sub(1).map(|index| ALLOCATORS[index]);
        let linked = matches!(self, Way::Linked).then_some("--static");
        let chosen = name.map(|name| ["--malloc", name]).into_iter().flatten();
        linked.into_iter().chain(chosen).chain(MEMORY).collect()
    }
}

/// What clients ask of a server at an address; how many requests it answered.
type Ask = fn(&str) -> Result<f64>;

pub fn run(options: &Options) -> Result<()> {
    statistics::head(&COLUMNS);
    for way in [Way::Unmodified, Way::Linked] {
        for (program, ask) in [("redis", redis_requests as Ask), ("nginx", nginx_requests)] {
            let (mut times, mut memory): ([Samples; 6], [Samples; 6]) = Default::default();
            for _ in 0..options.runs {
                for column in 0..COLUMNS.len() {
                    let (time, resident) = server(options, way, column, program, ask)?;
                    times[column].add(time);
                    memory[column].add(resident);
                }
            }
            let figure = format!("{program}, {}", way.name());
            statistics::row(&format!("{figure}: a request"), "µs of processor time", &times);
            statistics::row(&format!("{figure}: memory of the machine"), "MiB", &memory);
        }
        // Instructions are the same each time.
        let mut counts: [[Samples; 6]; STATEMENTS.len()] = Default::default();
        for column in 0..COLUMNS.len() {
            for (count, samples) in sqlite(options, way, column)?.into_iter().zip(&mut counts) {
                samples[column].add(count);
            }
        }
        for (statements, samples) in STATEMENTS.iter().zip(&counts) {
            let figure = format!("sqlite, {}: one of {statements} inserts", way.name());
            statistics::row(&figure, "instructions", samples);
        }
    }
    Ok(())
}

/// Microseconds of processor time that a request takes, and what the machine holds of memory then.
fn server(options: &Options, way: Way, column: usize, program: &str, ask: Ask) -> Result<(f64, f64)> {
    let words = [way.words(column), vec![program]].concat();
    // What has to be built is built before anything is measured.
    let machine = Machine::start(options, Side::Process, &words)?;
    let before = ticks(machine.pid()?)?;
    let requests = ask(&machine.address()?)?;
    let used = (ticks(machine.pid()?)? - before) / TICKS;
    Ok((used / requests * 1e6, machine.resident_mib()?))
}

/// SET and GET of many keys with values of 200 bytes: blocks are freed when a key is set anew.
fn redis_requests(address: &str) -> Result<f64> {
    let measured = redis::benchmark(address, "50", "16", REDIS_REQUESTS, &["-r", "20000", "-d", "200"])?;
    Ok(measured.len() as f64 * REDIS_REQUESTS.parse::<f64>().unwrap_or(1.0))
}

fn nginx_requests(address: &str) -> Result<f64> {
    // A connection for each request: nginx allocates for connections and requests alike.
    let words =
        ["wrk", "-t", "1", "-c", "30", "-d", "3s", "-H", "Connection: close", &format!("http://{address}/")];
    let text = client::run(&words)?;
    let requests = text.lines().find_map(|line| line.trim().split_once(" requests in ")?.0.parse().ok());
    requests.filter(|requests| *requests > 0.0).ok_or_else(|| format!("wrk printed: {text}"))
}

/// Instructions of an insert into an empty table, for each of [`STATEMENTS`].
fn sqlite(options: &Options, way: Way, column: usize) -> Result<Vec<f64>> {
    const NOW: &str = "select (julianday('now') - 2440587.5) * 86400000.0;";
    let mut work = String::from(
        "create table t(id integer primary key, text text); create table n(n integer); \
         create trigger i after insert on n begin insert into t(text) values('row ' || new.n); end;",
    );
    for count in STATEMENTS {
        work += &format!(
            "{NOW} with recursive c(n) as (select 1 union all select n + 1 from c where n < {count}) \
             insert into n select n from c; {NOW} delete from n; delete from t;"
        );
    }
    let words =
        [vec!["--network", "none"], way.words(column), vec!["sqlite", "--", ":memory:", &work]].concat();
    let text = side::counted(options, Side::Micro, &words)?;
    let times: Vec<f64> = text.lines().filter_map(|line| line.trim().parse().ok()).collect();
    if times.len() != 2 * STATEMENTS.len() {
        return Err(format!("sqlite printed: {text}"));
    }
    let spans = times.chunks(2).zip(STATEMENTS);
    Ok(spans.map(|(span, count)| (span[1] - span[0]) * INSTRUCTIONS_PER_MS / count as f64).collect())
}
