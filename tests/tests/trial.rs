// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The trial: popular packages of Debian's (tests/trial/packages.toml), each as a new user would type it, and others that were drawn
//! at random (sample.toml). What comes of it is in tests/trial/results-MACHINE.txt and sample-MACHINE.txt, and the front page says how
//! many work.
//!
//! It fetches gigabytes and takes an hour, so only `./unilith test --long` runs it. `UNILITH_TRIAL` tries the packages alone
//! whose words hold it (`failed`: those that did not work yet, `untried`: those without a result), `UNILITH_TRIAL_JOBS` tries several at
//! once; the others' results are kept. Until its end the results are in target/trial-MACHINE.txt: those of the repository are built
//! into the command, which would be built again after each package.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use serde::Deserialize;
use std::{
    collections::BTreeMap,
    fmt::Write as _,
    fs,
    io::{Read, Write},
    net::{Ipv4Addr, SocketAddr, TcpStream},
    path::PathBuf,
    process::{Child, Command},
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};
use unilith_tests::{Unilith, free_port, root};

/// Fetching the packages of a program, building its image, and its end.
const END: Duration = Duration::from_secs(400);
/// How long a server has to answer.
const ANSWER: Duration = Duration::from_secs(90);
/// How long a program that serves no port must go on.
const STAYS: Duration = Duration::from_secs(5);
/// Characters of a reason.
const REASON: usize = 160;

#[derive(Deserialize)]
struct List {
    packages: Vec<Package>,
}

#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Package {
    /// Words behind `unilith run --rm`, for a shell.
    run: String,
    /// What standard output, or a server's answer, holds.
    prints: String,
    input: Option<String>,
    /// The exit code.
    #[serde(default)]
    ends: i32,
    port: Option<u16>,
    send: Option<String>,
    http: Option<String>,
    #[serde(default)]
    stays: bool,
}

/// The machine that is tried: `UNILITH_TEST_MACHINE`, else a process.
fn tried_machine() -> String {
    std::env::var("UNILITH_TEST_MACHINE").unwrap_or_else(|_| "process".into())
}

/// A list of packages and its results.
#[derive(Clone, Copy)]
struct Trial {
    list: &'static str,
    results: &'static str,
}

/// Packages that people use much.
const POPULAR: Trial = Trial { list: "packages", results: "results" };
/// Packages that were drawn at random.
const SAMPLE: Trial = Trial { list: "sample", results: "sample" };

impl Trial {
    fn packages(self) -> Vec<Package> {
        let text = fs::read_to_string(root().join(format!("tests/trial/{}.toml", self.list))).unwrap();
        toml::from_str::<List>(&text).unwrap().packages
    }

    fn results(self, machine: &str) -> PathBuf {
        root().join(format!("tests/trial/{}-{machine}.txt", self.results))
    }

    /// The results while they are made.
    fn so_far(self, machine: &str) -> PathBuf {
        root().join(format!("target/trial-{}-{machine}.txt", self.list))
    }
}

/// What came of a package, `works` or `fails: REASON`, and the day on which it was tried.
#[derive(Clone)]
struct Tried {
    day: String,
    result: String,
}

impl Tried {
    fn works(&self) -> bool {
        self.result == "works"
    }
}

/// The results of earlier runs by words.
fn earlier(trial: Trial, machine: &str) -> BTreeMap<String, Tried> {
    let text = fs::read_to_string(trial.results(machine)).unwrap_or_default();
    let line = |line: &str| {
        let (words, rest) = line.split_once('\t')?;
        let (day, result) = rest.split_once('\t')?;
        Some((words.to_string(), Tried { day: day.into(), result: result.into() }))
    };
    text.lines().filter_map(line).collect()
}

fn today() -> String {
    let date = Command::new("date").arg("+%F").output().unwrap().stdout;
    String::from_utf8_lossy(&date).trim().into()
}

/// Writes the list anew. It is as old as its oldest result.
fn keep(trial: Trial, machine: &str, all: &BTreeMap<String, Tried>) {
    let list = trial.packages();
    let tried: Vec<(&str, &Tried)> =
        list.iter().filter_map(|p| Some((p.run.as_str(), all.get(&p.run)?))).collect();
    let works = tried.iter().filter(|(_, tried)| tried.works()).count();
    let oldest = tried.iter().map(|(_, tried)| tried.day.as_str()).min().unwrap_or_default();
    let percent = works as f64 * 100.0 / tried.len() as f64;
    let mut text = format!("# {oldest} on {machine}: {works} of {} work ({percent:.1} %)\n", tried.len());
    for (words, Tried { day, result }) in tried {
        writeln!(text, "{words}\t{day}\t{result}").unwrap();
    }
    fs::write(trial.so_far(machine), text).unwrap();
}

/// One line of a program's output, short enough for a list.
fn reason(text: &str) -> String {
    let lines = text.lines().map(str::trim).filter(|l| !l.is_empty() && !l.contains("the machine is a "));
    let lines: Vec<&str> = lines.collect();
    let last = lines[lines.len().saturating_sub(2)..].join(" / ");
    last.chars().filter(|c| !c.is_control()).take(REASON).collect()
}

/// Waits for an end; one that does not come is brought about.
fn end(child: &mut Child, patience: Duration) -> Option<i32> {
    let begin = Instant::now();
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return Some(status.code().unwrap_or(-1));
        }
        if begin.elapsed() > patience {
            child.kill().unwrap();
            child.wait().unwrap();
            return None;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// A command with what it prints in files, so that nobody has to read while it runs.
struct Typed {
    child: Child,
    out: PathBuf,
    err: PathBuf,
}

impl Typed {
    fn new(unilith: &Unilith, flags: &str, package: &Package) -> Typed {
        let (out, err, input) = (unilith.path("out"), unilith.path("err"), unilith.path("input"));
        fs::write(&input, package.input.as_deref().unwrap_or_default()).unwrap();
        let program = root().join("unilith");
        let line =
            format!("exec {} run --machine {} {flags} {}", program.display(), tried_machine(), package.run);
        let mut command = unilith.shell(&line);
        command.stdin(fs::File::open(&input).unwrap());
        command.stdout(fs::File::create(&out).unwrap()).stderr(fs::File::create(&err).unwrap());
        Typed { child: command.spawn().unwrap(), out, err }
    }

    fn text(path: &PathBuf) -> String {
        String::from_utf8_lossy(&fs::read(path).unwrap_or_default()).into_owned()
    }
}

/// Tries one; the error is the reason why it does not work.
fn attempt(package: &Package) -> Result<(), String> {
    let unilith = Unilith::new();
    if package.port.is_some() || package.stays {
        serves(&unilith, package)
    } else {
        let mut typed = Typed::new(&unilith, "--rm", package);
        let code = end(&mut typed.child, END);
        let (out, err) = (Typed::text(&typed.out), Typed::text(&typed.err));
        let why = reason(&format!("{out}\n{err}"));
        match code {
            None => Err(format!("does not end: {why}")),
            Some(code) if code != package.ends => Err(format!("ends with {code}: {why}")),
            Some(_) if !out.contains(&package.prints) && !err.contains(&package.prints) => {
                Err(format!("does not print {:?}: {why}", package.prints))
            }
            Some(_) => Ok(()),
        }
    }
}

fn serves(unilith: &Unilith, package: &Package) -> Result<(), String> {
    let host = free_port();
    let publish = package.port.map(|port| format!("-p 127.0.0.1:{host}:{port}")).unwrap_or_default();
    let mut typed = Typed::new(unilith, &format!("-d --name trial {publish}"), package);
    let code = end(&mut typed.child, END);
    if code != Some(0) {
        return Err(format!("run ends with {code:?}: {}", reason(&Typed::text(&typed.err))));
    }
    let begin = Instant::now();
    loop {
        let state = unilith.run(&["ps", "-a", "--format", "{{.State}}"]).out;
        if state.trim() == "exited" || state.trim() == "failed" || state.trim().is_empty() {
            return Err(format!("ends: {}", reason(&said(unilith))));
        }
        if package.port.is_none() {
            if begin.elapsed() > STAYS {
                return Ok(());
            }
        } else {
            let heard = match ask(package, host) {
                Ok(answer) if answer.contains(&package.prints) => return Ok(()),
                Ok(answer) => format!("answers {answer:?}"),
                Err(e) => format!("no answer ({e})"),
            };
            if begin.elapsed() > ANSWER {
                return Err(format!("{}; it printed: {}", reason(&heard), reason(&said(unilith))));
            }
        }
        std::thread::sleep(Duration::from_millis(200));
    }
}

fn said(unilith: &Unilith) -> String {
    let logs = unilith.run(&["logs", "trial"]);
    format!("{}{}", logs.out, logs.err)
}

/// What a server says to a client.
fn ask(package: &Package, port: u16) -> std::io::Result<String> {
    let at = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let mut stream = TcpStream::connect_timeout(&at, Duration::from_secs(5))?;
    stream.set_read_timeout(Some(Duration::from_secs(5)))?;
    let request = match (&package.http, &package.send) {
        (Some(path), _) => format!("GET {path} HTTP/1.0\r\nHost: localhost\r\n\r\n"),
        (None, send) => send.clone().unwrap_or_default(),
    };
    // Characters up to 255 are bytes.
    let bytes: Vec<u8> = request.chars().map(|c| c as u8).collect();
    stream.write_all(&bytes)?;
    let mut answer = String::new();
    let mut buffer = [0; 4096];
    loop {
        if !package.prints.is_empty() && answer.contains(&package.prints) {
            return Ok(answer);
        }
        match stream.read(&mut buffer) {
            Ok(0) if answer.is_empty() => return Err(std::io::ErrorKind::UnexpectedEof.into()),
            Ok(0) => return Ok(answer),
            Ok(n) => answer.extend(buffer[..n].iter().map(|b| char::from(*b))),
            // Of a server that waits for its client to speak nothing more is known.
            Err(_) if package.prints.is_empty() => return Ok(answer),
            Err(e) if answer.is_empty() => return Err(e),
            Err(_) => return Ok(answer),
        }
    }
}

/// The date, how many work, and of how many, as the first line of results has them.
fn summary(trial: Trial, machine: &str) -> Option<(String, usize, usize)> {
    let text = fs::read_to_string(trial.results(machine)).ok()?;
    let (title, counts) = text.lines().next()?.split_once(": ")?;
    let (works, all) = counts.split_once(" of ")?;
    let date = title.split(' ').nth(1)?.to_string();
    Some((date, works.parse().ok()?, all.split(' ').next()?.parse().ok()?))
}

#[test]
fn the_front_page_says_what_was_measured() {
    let page = fs::read_to_string(root().join("README.md")).unwrap();
    let words = page.split_whitespace().collect::<Vec<_>>().join(" ");
    for (trial, machine) in [(POPULAR, "process"), (POPULAR, "microvm"), (SAMPLE, "process")] {
        let (date, works, all) = summary(trial, machine).expect("lists of results begin with counts");
        let says = format!("{works} of {all}");
        assert!(words.contains(&says) && words.contains(&date), "README.md is to say {says}, {date}");
        assert!(words.contains(&format!("(tests/trial/{}-{machine}.txt)", trial.results)));
        let lines = fs::read_to_string(trial.results(machine)).unwrap();
        assert_eq!(lines.lines().filter(|line| line.ends_with("\tworks")).count(), works, "{machine}");
        assert_eq!(all, trial.packages().len(), "{machine}: each package was tried");
    }
}

mod long {
    use super::*;

    #[test]
    #[ignore = "an hour: fetches gigabytes of packages"]
    fn packages_that_worked_still_work_as_typed() {
        try_all(POPULAR);
    }

    #[test]
    #[ignore = "twenty minutes: fetches gigabytes of packages"]
    fn packages_drawn_at_random_that_worked_still_work_as_typed() {
        try_all(SAMPLE);
    }

    fn try_all(trial: Trial) {
        let machine = tried_machine();
        let only = std::env::var("UNILITH_TRIAL").unwrap_or_default();
        let jobs = std::env::var("UNILITH_TRIAL_JOBS").map_or(1, |jobs| jobs.parse().unwrap());
        // Builds the kernel.
        Unilith::new().program(&["--machine", &machine, "busybox", "true"]).ok();
        let before = earlier(trial, &machine);
        let worked = |p: &Package| before.get(&p.run).is_some_and(Tried::works);
        let wanted = |p: &Package| match only.as_str() {
            "failed" => !worked(p),
            "untried" => !before.contains_key(&p.run),
            only => p.run.contains(only),
        };
        let list: Vec<Package> = trial.packages().into_iter().filter(wanted).collect();
        let all = Mutex::new(before.clone());
        let next = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for _ in 0..jobs {
                scope.spawn(|| {
                    while let Some(package) = list.get(next.fetch_add(1, Ordering::Relaxed)) {
                        let result = match attempt(package) {
                            Ok(()) => "works".to_string(),
                            Err(why) => format!("fails: {}", why.replace(['\n', '\t'], " ")),
                        };
                        eprintln!("{}: {result}", package.run);
                        let mut all = all.lock().unwrap();
                        all.insert(package.run.clone(), Tried { day: today(), result });
                        keep(trial, &machine, &all);
                    }
                });
            }
        });
        if !list.is_empty() {
            fs::copy(trial.so_far(&machine), trial.results(&machine)).unwrap();
        }
        let all = all.into_inner().unwrap();
        let lost: Vec<&String> =
            list.iter().filter(|p| worked(p) && !all[&p.run].works()).map(|p| &p.run).collect();
        assert!(lost.is_empty(), "no longer work: {lost:#?}");
    }
}
