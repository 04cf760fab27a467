// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One program at every level of the spectrum that works here, measured in turns, on one page of plots.
//!
//! | figure | how |
//! | --- | --- |
//! | requests, latencies | redis-benchmark, wrk, or a closed loop of connections (memcached), over tap; SQLite by its own clock |
//! | processor time | of the process that is the machine (proc(5), stat), by the requests that were answered meanwhile |
//! | instructions | of virtual machines, whose clock counts them (QEMU's -icount), driven from within (`bench/overlay/drive.c`) |
//! | time to ready, memory, image | as `unilith inspect` and proc(5) say |

mod page;

use crate::{
    Options, Result, client,
    load::Load,
    overlay::{OFF, instructions},
    redis,
    scratch::Scratch,
    side::{self, Machine, Side},
    statistics::Samples,
    ukl::network,
};
use page::{Clock, Column, Figure, Page};
use std::{
    collections::BTreeMap,
    fs::OpenOptions,
    path::{Path, PathBuf},
    process::Command,
    time::{Instant, SystemTime, UNIX_EPOCH},
};

/// How to draw a spectrum.
#[derive(Clone, Debug, Default)]
pub struct Spectrum {
    /// The HTML file.
    pub page: PathBuf,
    /// Only these levels; none: all.
    pub levels: Vec<String>,
    /// Values of `--ukl` whose kernel is not built, which would take long, with how to build it.
    pub unbuilt: BTreeMap<String, String>,
}

/// A place on the spectrum.
struct Level {
    name: &'static str,
    side: Side,
    words: &'static [&'static str],
    /// Optimised for a profile of the same load, which is taken beforehand.
    is_profiled: bool,
}

const LEVELS: [Level; 13] = [
    level("linux", Side::Linux, &[]),
    level("cpl0", Side::Linux, &["--ukl", "cpl0"]),
    level("cpl0,byp", Side::Linux, &["--ukl", "cpl0,byp"]),
    level("cpl0,byp,call", Side::Linux, &["--ukl", "cpl0,byp,call"]),
    level("cpl0,byp,call,shortcut", Side::Linux, &["--ukl", "cpl0,byp,call,shortcut"]),
    level("base,byp", Side::Linux, &["--ukl", "base,byp"]),
    level("base,byp,shortcut", Side::Linux, &["--ukl", "base,byp,shortcut"]),
    level("micro", Side::Micro, &[]),
    level("micro, static", Side::Micro, &["--static"]),
    profiled("micro, static, profile", Side::Micro),
    level("process", Side::Process, &[]),
    level("process, static", Side::Process, &["--static"]),
    profiled("process, static, profile", Side::Process),
];

const fn level(name: &'static str, side: Side, words: &'static [&'static str]) -> Level {
    Level { name, side, words, is_profiled: false }
}

const fn profiled(name: &'static str, side: Side) -> Level {
    Level { name, side, words: &["--static", "--lto"], is_profiled: true }
}

/// Levels of the plan that no program of these is at yet.
const NOT_YET: [(&str, &str); 1] =
    [("raw", "these programs use sockets; the raw network device is for programs made for it (bench raw)")];

/// A program that can be measured.
struct Subject {
    name: &'static str,
    /// The word with which it says its version and ends: what has to be built for a level is built for that.
    version: &'static str,
    work: Work,
    /// `drive.c` drives it, which counts instructions.
    is_driven: bool,
}

/// What a program does in a round.
#[derive(Clone, Copy)]
enum Work {
    /// It answers clients at an address.
    Server(fn(&str) -> Result<Answered>),
    /// It does its work, prints milliseconds before and behind it, and ends: arguments, and how many statements they are.
    Script(fn() -> (Vec<String>, usize)),
}

/// What clients saw in a round, and how many requests they made.
type Answered = (Vec<Value>, f64);

/// A figure of one round.
struct Value {
    name: &'static str,
    unit: &'static str,
    more_is_better: bool,
    is_time: bool,
    value: f64,
}

const SUBJECTS: [Subject; 4] = [
    Subject { name: "redis", version: "--version", work: Work::Server(redis), is_driven: true },
    Subject { name: "nginx", version: "-v", work: Work::Server(nginx), is_driven: true },
    Subject { name: "sqlite", version: "--version", work: Work::Script(sqlite), is_driven: true },
    Subject { name: "memcached", version: "--version", work: Work::Server(memcached), is_driven: false },
];

const MEMORY: [&str; 2] = ["-m", "256M"];
/// Requests of one round.
const REDIS: &str = "20000";
const REDIS_PIPELINED: &str = "100000";
const MEMCACHED: usize = 10_000;
const STATEMENTS: usize = 100_000;
/// Rounds in which instructions are counted: they are the same each time but for what the timer interrupts.
const COUNTED: usize = 2;
/// Clock ticks of proc(5) in a second, which Linux gives to every program (USER_HZ).
pub(crate) const TICKS: f64 = 100.0;

/// The programs that can be asked for.
pub fn programs() -> impl Iterator<Item = &'static str> {
    SUBJECTS.iter().map(|subject| subject.name)
}

/// Values of `--ukl` of the levels.
pub fn ukl_levels() -> impl Iterator<Item = &'static str> {
    LEVELS.iter().filter(|level| level.side == Side::Linux).map(Level::ukl)
}

impl Level {
    /// Its words, with the profile that it was optimised for, in this folder.
    fn words(&self, profiles: &Scratch) -> Vec<String> {
        let mut words: Vec<String> = self.words.iter().map(|word| word.to_string()).collect();
        if self.is_profiled {
            words.extend(["--profile-use".into(), self.profile(profiles).display().to_string()]);
        }
        words
    }

    fn profile(&self, profiles: &Scratch) -> PathBuf {
        profiles.path().join(format!("{}.counts", self.side.name()))
    }

    fn ukl(&self) -> &'static str {
        if self.side == Side::Linux { self.words.last().copied().unwrap_or("") } else { "" }
    }

    /// Whether the program is an ordinary one of Linux, which can be given another library.
    fn is_unmodified(&self) -> bool {
        !self.words.contains(&"--static") && !self.ukl().starts_with("base")
    }
}

/// Figures in the order in which they came, each at every level.
struct Figures {
    levels: Vec<&'static Level>,
    all: Vec<Figure>,
}

impl Figures {
    fn figure(&mut self, name: &str, unit: &'static str, more_is_better: bool, is_time: bool) -> &mut Figure {
        let at = self.all.iter().position(|figure| figure.name == name).unwrap_or_else(|| {
            let count = self.levels.len();
            let (samples, absent) = (vec![Samples::default(); count], vec![None; count]);
            self.all.push(Figure { name: name.into(), unit, more_is_better, is_time, samples, absent });
            self.all.len() - 1
        });
        &mut self.all[at]
    }

    fn add(&mut self, level: usize, value: &Value) {
        let figure = self.figure(value.name, value.unit, value.more_is_better, value.is_time);
        figure.samples[level].add(value.value);
    }

    /// Leaves a level out.
    fn forget(&mut self, level: usize) {
        self.levels.remove(level);
        for figure in &mut self.all {
            figure.samples.remove(level);
            figure.absent.remove(level);
        }
    }
}

pub fn run(options: &Options, program: &str, how: &Spectrum) -> Result<()> {
    let subject = SUBJECTS.iter().find(|subject| subject.name == program).ok_or_else(|| {
        let known: Vec<&str> = programs().collect();
        format!("there is no spectrum of {program}; there are those of {}", known.join(", "))
    })?;
    let known: Vec<&str> = LEVELS.iter().map(|level| level.name).collect();
    if let Some(unknown) = how.levels.iter().find(|name| !known.contains(&name.as_str())) {
        return Err(format!("--level {unknown}: there is no such level; there are: {}", known.join("; ")));
    }
    // What cannot be written is said before minutes of measuring.
    let unwritable = |e| format!("cannot write {}: {e}", how.page.display());
    OpenOptions::new().append(true).create(true).open(&how.page).map_err(unwritable)?;
    let profiles = Scratch::new("profiles")?;
    let mut missing = Vec::new();
    let mut figures = Figures { levels: Vec::new(), all: Vec::new() };
    let is_wanted = |level: &&Level| how.levels.is_empty() || how.levels.iter().any(|l| l == level.name);
    for level in LEVELS.iter().filter(is_wanted) {
        match prepare(options, subject, level, how, &profiles) {
            Ok(()) => figures.levels.push(level),
            Err(why) => leave_out(level, why, &mut missing),
        }
    }
    for round in 0..options.runs {
        eprintln!("unilith: round {} of {}", round + 1, options.runs);
        let mut at = 0;
        while let Some(level) = figures.levels.get(at).copied() {
            match one_round(options, subject, level, &profiles) {
                Ok(values) => {
                    values.iter().for_each(|value| figures.add(at, value));
                    at += 1;
                }
                Err(why) => {
                    leave_out(level, why, &mut missing);
                    figures.forget(at);
                }
            }
        }
    }
    if figures.levels.is_empty() {
        let why: Vec<String> = missing.iter().map(|(name, why)| format!("{name}: {why}")).collect();
        return Err(format!("no level works here: {}", why.join("; ")));
    }
    count_instructions(options, subject, &mut figures)?;
    missing.extend(NOT_YET.map(|(name, why)| (name.to_string(), why.to_string())));
    let page = page(options, subject, figures, missing)?;
    print(&page);
    std::fs::write(&how.page, page.html())
        .map_err(|e| format!("cannot write {}: {e}", how.page.display()))?;
    eprintln!("unilith: {} is written", how.page.display());
    Ok(())
}

fn leave_out(level: &Level, why: String, missing: &mut Vec<(String, String)>) {
    eprintln!("unilith: {}: {why}", level.name);
    missing.push((level.name.to_string(), why));
}

/// Builds what the level needs, so that nothing is built while something is measured; the error says why it cannot run.
fn prepare(
    options: &Options,
    subject: &Subject,
    level: &Level,
    how: &Spectrum,
    profiles: &Scratch,
) -> Result<()> {
    if level.side == Side::Linux {
        if options.micro_only {
            return Err("left out: --micro-only".into());
        }
        if let Some(why) = how.unbuilt.get(level.ukl()) {
            return Err(why.clone());
        }
    }
    eprintln!("unilith: preparing {} at level {}", subject.name, level.name);
    if level.is_profiled {
        take_profile(options, subject, level, profiles)?;
    }
    build(options, subject, level, &words_of(&level.words(profiles)))
}

fn words_of(words: &[String]) -> Vec<&str> {
    words.iter().map(String::as_str).collect()
}

/// The program says its version and ends: whatever that needs is built behind it.
fn build(options: &Options, subject: &Subject, level: &Level, words: &[&str]) -> Result<()> {
    let run = [&["run", "--rm", "--network", "none"][..], &level.side.words(), words, &MEMORY].concat();
    side::patient(options, &[&run[..], &[subject.name, "--", subject.version]].concat()).map(drop)
}

/// How often the branches of a machine at this level are taken by the load that is measured later.
fn take_profile(options: &Options, subject: &Subject, level: &Level, profiles: &Scratch) -> Result<()> {
    let Work::Server(load) = subject.work else {
        return Err("its machine ends with its work, and counters are read from one that runs".into());
    };
    let counting = ["--static", "--lto=count"];
    build(options, subject, level, &counting)?;
    let machine = Machine::start(options, level.side, &[&counting[..], &MEMORY, &[subject.name]].concat())?;
    load(&machine.address()?)?;
    let counts = level.profile(profiles).display().to_string();
    side::output_of(options, &["profile", machine.name(), "--format", "counts", "-o", &counts], &[]).map(drop)
}

/// One machine, from its start to its end.
fn one_round(options: &Options, subject: &Subject, level: &Level, profiles: &Scratch) -> Result<Vec<Value>> {
    let own = level.words(profiles);
    let own = words_of(&own);
    let words = [&own[..], &MEMORY, &[subject.name]].concat();
    let time = |name, unit, value| Value { name, unit, more_is_better: false, is_time: true, value };
    let count = |name, unit, value| Value { is_time: false, ..time(name, unit, value) };
    match subject.work {
        Work::Server(load) => {
            let machine = Machine::start(options, level.side, &words)?;
            let ready = machine.ready_ms().ok_or("inspect has no ready_in_ms")?;
            let before = ticks(machine.pid()?)?;
            let (mut values, requests) = load(&machine.address()?)?;
            let used = (ticks(machine.pid()?)? - before) / TICKS;
            values.push(time("processor time of the machine, a request", "µs", used / requests * 1e6));
            values.push(time("time to ready", "ms", ready));
            values.push(count("memory of the machine, resident", "MiB", machine.resident_mib()?));
            values.push(count(
                "image: kernel (static: and program)",
                "kB",
                machine.kernel_bytes()? as f64 / 1e3,
            ));
            values.push(count("image: root file system", "kB", machine.root_bytes()? as f64 / 1e3));
            Ok(values)
        }
        Work::Script(script) => {
            let (arguments, statements) = script();
            let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
            let words = [&["--network", "none"][..], &words, &["--"], &arguments].concat();
            let text = side::output(options, level.side, &words)?;
            let times: Vec<f64> = text.lines().filter_map(|line| line.trim().parse().ok()).collect();
            let [begin, end] = times[..] else { return Err(format!("{} printed: {text}", subject.name)) };
            let rate = statements as f64 / ((end - begin) / 1e3).max(1e-6);
            // A machine that does nothing else: how long the whole way takes.
            let idle =
                [&["--network", "none"][..], &own, &MEMORY, &[subject.name, "--", subject.version]].concat();
            let begun = Instant::now();
            side::output(options, level.side, &idle)?;
            let whole = begun.elapsed().as_secs_f64() * 1e3;
            let rate = Value {
                name: "inserts in memory",
                unit: "statements/s",
                more_is_better: true,
                is_time: true,
                value: rate,
            };
            Ok(vec![rate, time("from the command to its end, which prints the version", "ms", whole)])
        }
    }
}

/// Processor time of a process and its threads, in ticks.
pub(crate) fn ticks(pid: u32) -> Result<f64> {
    let path = format!("/proc/{pid}/stat");
    let text = std::fs::read_to_string(&path).map_err(|e| format!("{path}: {e}"))?;
    ticks_of(&text).ok_or_else(|| format!("{path} reads {text}"))
}

/// utime and stime of a line of proc(5), behind the command's name, which may have spaces.
fn ticks_of(stat: &str) -> Option<f64> {
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    Some(fields.get(11)?.parse::<f64>().ok()? + fields.get(12)?.parse::<f64>().ok()?)
}

const fn rate(name: &'static str, value: f64) -> Value {
    Value { name, unit: "requests/s", more_is_better: true, is_time: true, value }
}

const fn latency(name: &'static str, value: f64) -> Value {
    Value { name, unit: "ms", more_is_better: false, is_time: true, value }
}

/// 50 connections, with one request each at a time and with 16.
fn redis(address: &str) -> Result<Answered> {
    let (mut values, mut requests) = (Vec::new(), 0.0);
    for (pipeline, count) in [("1", REDIS), ("16", REDIS_PIPELINED)] {
        for measured in redis::benchmark(address, "50", pipeline, count, &[])? {
            let is_get = measured.test == "GET";
            requests += count.parse::<f64>().unwrap_or(0.0);
            match (pipeline, is_get) {
                ("1", true) => values.extend([
                    rate("GET, 50 connections", measured.rate),
                    latency("GET, 50 connections, median", measured.p50),
                    latency("GET, 50 connections, 99th percentile", measured.p99),
                ]),
                ("1", false) => values.push(rate("SET, 50 connections", measured.rate)),
                (_, true) => values.push(rate("GET, 50 connections by 16", measured.rate)),
                (_, false) => values.push(rate("SET, 50 connections by 16", measured.rate)),
            }
        }
    }
    Ok((values, requests))
}

fn nginx(address: &str) -> Result<Answered> {
    let url = format!("http://{address}/");
    let text = client::run(&["wrk", "-t", "1", "-c", "30", "-d", "5s", "--latency", &url])?;
    let wrong = || format!("wrk printed: {text}");
    let behind = |word: &str| text.lines().find_map(|line| line.trim().strip_prefix(word)).map(str::trim);
    let requests =
        text.lines().find_map(|line| line.trim().split_once(" requests in ")?.0.parse::<f64>().ok());
    let per_second = behind("Requests/sec:").and_then(|rate| rate.parse().ok()).ok_or_else(wrong)?;
    let percentile = |word: &str| behind(word).and_then(milliseconds).ok_or_else(wrong);
    let values = vec![
        rate("a small page, 30 connections", per_second),
        latency("a small page, median", percentile("50%")?),
        latency("a small page, 99th percentile", percentile("99%")?),
    ];
    Ok((values, requests.ok_or_else(wrong)?))
}

/// A time as wrk writes it: `812.00us`, `1.20ms`, `2.01s`.
fn milliseconds(text: &str) -> Option<f64> {
    let (number, factor) = match text {
        text if text.ends_with("us") => (text.strip_suffix("us")?, 1e-3),
        text if text.ends_with("ms") => (text.strip_suffix("ms")?, 1.0),
        text => (text.strip_suffix('s')?, 1e3),
    };
    Some(number.parse::<f64>().ok()? * factor)
}

fn memcached(address: &str) -> Result<Answered> {
    let load = Load {
        connections: 20,
        requests: MEMCACHED,
        request: network::of_memcached,
        is_complete: |answer| answer.ends_with(b"END\r\n") || answer.ends_with(b"STORED\r\n"),
    };
    let begun = Instant::now();
    let times = load.run(&format!("{address}:11211"))?;
    let values = vec![
        rate("ten reads for a write, 20 connections", MEMCACHED as f64 / begun.elapsed().as_secs_f64()),
        latency("ten reads for a write, median", times.median()),
        latency("ten reads for a write, 99th percentile", times.p99()),
    ];
    Ok((values, MEMCACHED as f64))
}

/// Rows that a trigger inserts, one after the other: so many statements do not fit into a command line.
fn sqlite() -> (Vec<String>, usize) {
    const NOW: &str = "select (julianday('now') - 2440587.5) * 86400000.0;";
    let work = format!(
        "create table t(id integer primary key, text text); create table n(n integer); \
         create trigger i after insert on n begin insert into t(text) values('row ' || new.n); end; {NOW} \
         with recursive c(n) as (select 1 union all select n + 1 from c where n < {STATEMENTS}) insert into n select n from c; {NOW}"
    );
    (vec![":memory:".into(), work], STATEMENTS)
}

/// Instructions of a request, at the levels whose machines are virtual and whose program takes another library.
fn count_instructions(options: &Options, subject: &Subject, figures: &mut Figures) -> Result<()> {
    const NAME: &str = "instructions of the machine, a request over its loopback (SQLite: an insert)";
    const UNIT: &str = "instructions";
    let driven =
        instructions::PROGRAMS.iter().find(|driven| driven.name == subject.name && subject.is_driven);
    let scratch = instructions::driver(options)?;
    for at in 0..figures.levels.len() {
        let level = figures.levels[at];
        let counted = match driven {
            None => Err(format!("drive.c does not drive {}", subject.name)),
            Some(_) if level.side == Side::Process => {
                Err("a process machine has no clock that counts them".into())
            }
            Some(_) if !level.is_unmodified() => {
                Err("a linked program takes no library that would drive it".into())
            }
            Some(driven) => {
                eprintln!("unilith: counting instructions at level {}", level.name);
                let words = [&level.side.words()[..2], level.words].concat();
                let words = if level.side == Side::Linux { words } else { [&words[..], &OFF].concat() };
                instructions::Machine::start(options, &scratch, driven, &words).and_then(|mut machine| {
                    (0..COUNTED).map(|_| machine.round()).collect::<Result<Vec<f64>>>()
                })
            }
        };
        let figure = figures.figure(NAME, UNIT, false, false);
        match counted {
            Ok(rounds) => rounds.into_iter().for_each(|count| figure.samples[at].add(count)),
            Err(why) => figure.absent[at] = Some(why),
        }
    }
    Ok(())
}

fn page(
    options: &Options,
    subject: &Subject,
    figures: Figures,
    missing: Vec<(String, String)>,
) -> Result<Page> {
    let column = |level: &&'static Level| -> Result<Column> {
        let is_emulated = level.side != Side::Process && !side::has_kvm(options)?;
        let profile: &[&str] = if level.is_profiled { &["--profile-use", "FILE"] } else { &[] };
        let words = [&level.side.words()[..], level.words, profile, &MEMORY, &[subject.name]].concat();
        Ok(Column {
            name: level.name.into(),
            command: format!("unilith run {}", words.join(" ")),
            clock: if is_emulated { Clock::Emulated } else { Clock::Own },
        })
    };
    let columns = figures.levels.iter().map(column).collect::<Result<Vec<_>>>()?;
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let load = load.split(' ').take(3).collect::<Vec<_>>().join(" ");
    let processor = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = processor.lines().find_map(|line| line.strip_prefix("model name")).unwrap_or_default();
    let model = model.trim_start_matches([' ', '\t', ':']);
    let day = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let notes = vec![
        format!(
            "`unilith bench spectrum {}`, commit {}, {} UTC: {} runs of each level in turns, machines on processor {}, clients on \
             processor {} of {model}; load of this computer at the end {load}.",
            subject.name,
            commit(&options.root),
            date(day),
            options.runs,
            side::MACHINE_CPU,
            side::CLIENT_CPU,
        ),
        "Bars are medians, lines go from the least to the most. Every machine is started anew for each run, with 256 MiB; clients \
         reach it over tap."
            .into(),
    ];
    Ok(Page { program: subject.name.into(), notes, columns, figures: figures.all, missing })
}

/// The commit of the sources below `root`, as far as git says.
pub fn commit(root: &Path) -> String {
    let output = Command::new("git").arg("-C").arg(root).args(["describe", "--always", "--dirty"]).output();
    let text =
        output.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_string()).unwrap_or_default();
    if text.is_empty() { "unknown".into() } else { text }
}

/// The date and the minute of seconds since 1970 (the civil calendar; Howard Hinnant, "chrono-compatible date algorithms").
fn date(seconds: u64) -> String {
    let days = seconds / 86_400 + 719_468;
    let (era, of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * of_year + 2) / 153;
    let (day, month) =
        (of_year - (153 * shifted + 2) / 5 + 1, if shifted < 10 { shifted + 3 } else { shifted - 9 });
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    format!("{year}-{month:02}-{day:02} {:02}:{:02}", seconds / 3600 % 24, seconds / 60 % 60)
}

fn print(page: &Page) {
    let names: Vec<&str> = page.columns.iter().map(|column| column.name.as_str()).collect();
    println!("| figure | unit | {} |\n| --- | --- |{}", names.join(" | "), " --- |".repeat(names.len()));
    for figure in &page.figures {
        let shown: Vec<String> = figure.samples.iter().map(Samples::brief).collect();
        println!("| {} | {} | {} |", figure.name, figure.unit, shown.join(" | "));
    }
    for (name, why) in &page.missing {
        println!("\nNot run: {name}: {why}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_of_the_tools_are_read() {
        assert_eq!(milliseconds("812.00us"), Some(0.812));
        assert_eq!(milliseconds("1.20ms"), Some(1.2));
        assert_eq!(milliseconds("2.01s").map(f64::round), Some(2010.0));
        assert_eq!(milliseconds("fast"), None);
        assert_eq!(ticks_of("12 (a (b) c) S 1 2 3 4 5 6 7 8 9 10 30 12 0 0"), Some(42.0));
        assert_eq!(ticks_of("12"), None);
        assert_eq!(date(0), "1970-01-01 00:00");
        assert_eq!(date(1_764_064_800), "2025-11-25 10:00");
        assert_eq!(date(1_709_164_800), "2024-02-29 00:00");
    }

    #[test]
    fn levels_of_linked_programs_are_told_apart() {
        let linked: Vec<&str> =
            LEVELS.iter().filter(|level| !level.is_unmodified()).map(|level| level.name).collect();
        let of_linux = ["base,byp", "base,byp,shortcut"];
        let of_micro = ["micro, static", "micro, static, profile"];
        assert_eq!(
            linked,
            [&of_linux[..], &of_micro, &["process, static", "process, static, profile"]].concat()
        );
        assert_eq!(ukl_levels().next(), Some(""));
    }

    #[test]
    fn a_level_that_fails_is_left_out_with_all_of_its_figures() {
        let mut figures = Figures { levels: LEVELS[..2].iter().collect(), all: Vec::new() };
        figures.add(0, &rate("GET", 1.0));
        figures.add(1, &rate("GET", 2.0));
        figures.forget(0);
        assert_eq!(figures.levels[0].name, "cpl0");
        assert_eq!(figures.all[0].samples.len(), 1);
        assert_eq!(figures.all[0].samples[0].median(), Some(2.0));
    }
}
