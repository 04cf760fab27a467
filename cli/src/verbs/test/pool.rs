// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Test binaries run side by side, as many as there are processors: most of them wait for one machine, which has one
//! processor. What a binary prints appears when it has ended, so that nothing is mixed.

use std::{
    collections::{BTreeMap, VecDeque},
    ffi::OsString,
    io::{self, BufRead, BufReader},
    path::PathBuf,
    process::{Command, ExitStatus, Stdio},
    sync::{
        Mutex, PoisonError,
        mpsc::{self, RecvTimeoutError},
    },
    thread,
    time::{Duration, Instant},
};

/// At most this many at a time: with more, it is memory that limits.
const MAX_JOBS: usize = 8;
/// A test that took longer has its time behind its name.
const WORTH_TELLING: Duration = Duration::from_secs(5);
/// A job that says nothing for so long hangs: the longest wait is for Linux, whose builds are nice to others, on a computer that is slow
/// (26 minutes were seen).
pub const MAX_SILENCE: Duration = Duration::from_mins(50);
/// Lines that a failed test's reason has at most in the summary: the whole of it stands in the test's own output.
const MAX_REASON: usize = 8;
/// Lines of one job that were read and not looked at.
const MAX_LINES_AHEAD: usize = 64;

/// What a part of the run came to.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
pub struct Count {
    pub passed: u32,
    pub failed: u32,
}

impl Count {
    pub fn add(&mut self, other: Count) {
        self.passed += other.passed;
        self.failed += other.failed;
    }
}

/// One run of a program that prints as Rust's test harness does.
#[derive(Clone, Debug)]
pub struct Job {
    /// The line of the summary that it is counted in.
    pub part: &'static str,
    /// What it is called in what is printed.
    pub name: String,
    pub program: PathBuf,
    pub args: Vec<OsString>,
    pub env: Vec<(OsString, OsString)>,
    pub folder: PathBuf,
}

/// What all jobs came to: a count for each part, and the tests that failed.
#[derive(Default, Debug)]
pub struct Outcome {
    pub counts: BTreeMap<&'static str, Count>,
    pub failures: Vec<Failure>,
}

/// A test that failed.
#[derive(Clone, Default, Debug, PartialEq, Eq)]
pub struct Failure {
    /// Its job and its own name.
    pub name: String,
    /// The first lines of what it said when it panicked, for who sees only the end of a long log.
    pub reason: Vec<String>,
}

/// Runs the jobs, the first ones first; `print` gets each line of theirs. One that says nothing for `max_silence` is ended and
/// has failed; without it, jobs may take as long as they like.
pub fn run(jobs: Vec<Job>, max_silence: Option<Duration>, print: &(dyn Fn(&str) + Sync)) -> Outcome {
    let begin = Instant::now();
    let workers = thread::available_parallelism().map_or(1, usize::from).min(MAX_JOBS);
    let outcome = Mutex::new(Outcome::default());
    // Alone it mixes with nothing.
    let is_live = jobs.len() == 1;
    let queue = Mutex::new(VecDeque::from(jobs));
    let next = || queue.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
    thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                while let Some(job) = next() {
                    print(&format!("== starting {} at {} s", job.name, begin.elapsed().as_secs()));
                    let ran = run_one(&job, max_silence, is_live.then_some(print));
                    let mut outcome = outcome.lock().unwrap_or_else(PoisonError::into_inner);
                    // Under the lock, so that two jobs' lines are not mixed.
                    ran.lines.iter().for_each(|line| print(line));
                    outcome.counts.entry(job.part).or_default().add(ran.count);
                    outcome.failures.extend(ran.failures);
                }
            });
        }
    });
    outcome.into_inner().unwrap_or_else(PoisonError::into_inner)
}

struct Ran {
    lines: Vec<String>,
    count: Count,
    failures: Vec<Failure>,
}

/// Runs a job to its end; its lines go to `live` as they come, if it is given.
fn run_one(job: &Job, max_silence: Option<Duration>, live: Option<&(dyn Fn(&str) + Sync)>) -> Ran {
    let begin = Instant::now();
    let mut ran = Ran { lines: Vec::new(), count: Count::default(), failures: Vec::new() };
    let mut command = Command::new(&job.program);
    command.args(&job.args).envs(job.env.iter().map(|(key, value)| (key, value))).current_dir(&job.folder);
    command.stdin(Stdio::null());
    let mut reasons = Reasons::default();
    let ended = lines_of(command, max_silence, &mut |line, took| {
        if let Some(count) = summary(&line) {
            ran.count.add(count);
        }
        if let Some(test) = line.strip_prefix("test ").and_then(|rest| rest.strip_suffix(" ... FAILED")) {
            ran.failures.push(Failure { name: format!("{}: {test}", job.name), reason: Vec::new() });
        }
        reasons.read(&line);
        let is_slow = line.starts_with("test ") && took >= WORTH_TELLING;
        let line = if is_slow { format!("{line} ({} s)", took.as_secs()) } else { line };
        match live {
            Some(print) => print(&line),
            None => ran.lines.push(line),
        }
    });
    let end = match ended {
        Ok(End::Well) => "ended",
        Ok(End::Badly) => "failed",
        Ok(End::Silent) => "said nothing for too long and was ended",
        Err(_) => "could not be started",
    };
    for failure in &mut ran.failures {
        let test = failure.name.strip_prefix(&job.name).and_then(|rest| rest.strip_prefix(": "));
        failure.reason = test.and_then(|test| reasons.of.remove(test)).unwrap_or_default();
    }
    // A binary that died before its summary has failed as one test.
    if !matches!(ended, Ok(End::Well)) && ran.count.failed == 0 {
        ran.count.failed = 1;
        ran.failures.push(Failure { name: format!("{}: the whole of it", job.name), reason: Vec::new() });
    }
    ran.lines.extend(ended.err().map(|e| format!("cannot run {}: {e}", job.program.display())));
    ran.lines.push(format!("== {} {end} after {} s", job.name, begin.elapsed().as_secs()));
    ran
}

/// Reads what panicking tests say.
#[derive(Default)]
struct Reasons {
    /// By test.
    of: BTreeMap<String, Vec<String>>,
    /// The test whose words are being read.
    current: Option<String>,
}

impl Reasons {
    fn read(&mut self, line: &str) {
        let test = line.strip_prefix("thread '").and_then(|rest| rest.split_once("' "));
        if let Some((test, _)) = test.filter(|(_, rest)| rest.contains("panicked at ")) {
            self.current = Some(test.to_string());
        }
        if line.starts_with("stack backtrace:") || line.starts_with("note: ") || line.starts_with("---- ") {
            self.current = None;
        }
        let Some(test) = &self.current else { return };
        let reason = self.of.entry(test.clone()).or_default();
        if reason.len() < MAX_REASON {
            reason.push(line.to_string());
        }
    }
}

/// How a job ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Well,
    Badly,
    /// It was ended.
    Silent,
}

/// Starts the command and hands over each line of both of its streams with the time since the one before. What it left behind
/// may hold the streams open: they count until a second after its end.
fn lines_of(
    mut command: Command,
    max_silence: Option<Duration>,
    each: &mut dyn FnMut(String, Duration),
) -> io::Result<End> {
    let (reader, writer) = io::pipe()?;
    command.stdout(writer.try_clone()?).stderr(writer);
    let mut child = command.spawn()?;
    // Its copies of the writing end would keep the pipe open.
    drop(command);
    let (sender, lines) = mpsc::sync_channel(MAX_LINES_AHEAD);
    thread::spawn(move || {
        let mut reader = BufReader::new(reader);
        let mut line = Vec::new();
        while reader.read_until(b'\n', &mut line).is_ok_and(|read| read > 0) {
            if sender.send((std::mem::take(&mut line), Instant::now())).is_err() {
                return;
            }
        }
    });
    let mut last = Instant::now();
    let mut is_silent = false;
    let ended = |status: ExitStatus, is_silent| match status.success() {
        _ if is_silent => End::Silent,
        true => End::Well,
        false => End::Badly,
    };
    loop {
        match lines.recv_timeout(Duration::from_secs(1)) {
            Ok((line, at)) => {
                each(String::from_utf8_lossy(line.trim_ascii_end()).into_owned(), at - last);
                last = at;
            }
            Err(RecvTimeoutError::Timeout) => {
                if let Some(status) = child.try_wait()? {
                    return Ok(ended(status, is_silent));
                }
                if max_silence.is_some_and(|max| last.elapsed() > max) {
                    // The harness has printed the name of the test that hangs, which is read next.
                    is_silent = true;
                    child.kill()?;
                }
            }
            Err(RecvTimeoutError::Disconnected) => return Ok(ended(child.wait()?, is_silent)),
        }
    }
}

/// Reads `test result: ok. 3 passed; 1 failed; …`.
fn summary(line: &str) -> Option<Count> {
    let rest = line.strip_prefix("test result: ")?.split_once(". ")?.1;
    let mut counts = rest.split("; ").map(|part| part.split(' ').next()?.parse().ok());
    Some(Count { passed: counts.next()??, failed: counts.next()?? })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(part: &'static str, script: &str) -> Job {
        Job {
            part,
            name: part.into(),
            program: "/bin/sh".into(),
            args: vec!["-c".into(), script.into()],
            env: vec![("WORD".into(), "seven".into())],
            folder: "/".into(),
        }
    }

    #[test]
    fn the_harness_summary_is_added_up() {
        let line = "test result: FAILED. 13 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.18s";
        assert_eq!(summary(line), Some(Count { passed: 13, failed: 1 }));
        assert_eq!(summary("test x ... ok"), None);
    }

    #[test]
    fn jobs_are_counted_by_part_and_failures_named() {
        let ok = "echo 'test result: ok. 2 passed; 0 failed; 0 ignored'";
        let failing = "echo test $WORD ... FAILED; echo; echo \"thread '$WORD' (7) panicked at a.rs:3:1:\"; echo left; \
             echo note: run; echo 'test result: FAILED. 1 passed; 1 failed; 0'; exit 101";
        let outcome =
            run(vec![job("a", ok), job("a", ok), job("b", failing), job("c", "exit 3")], None, &|_| ());
        assert_eq!(outcome.counts["a"], Count { passed: 4, failed: 0 });
        assert_eq!(outcome.counts["b"], Count { passed: 1, failed: 1 });
        assert_eq!(outcome.counts["c"], Count { passed: 0, failed: 1 });
        let mut failures = outcome.failures;
        failures.sort_by(|a, b| a.name.cmp(&b.name));
        let names: Vec<&str> = failures.iter().map(|failure| failure.name.as_str()).collect();
        assert_eq!(names, ["b: seven", "c: the whole of it"]);
        assert_eq!(failures[0].reason, ["thread 'seven' (7) panicked at a.rs:3:1:", "left"]);
    }

    #[test]
    fn a_program_that_is_not_there_is_one_failure() {
        let mut missing = job("a", "");
        missing.program = "/nowhere/at/all".into();
        assert_eq!(run(vec![missing], None, &|_| ()).counts["a"], Count { passed: 0, failed: 1 });
    }

    #[test]
    fn a_job_that_says_nothing_is_ended_and_named_by_its_test() {
        let hangs = "echo running 1 test; printf 'test it_hangs ... '; exec sleep 1000";
        let lines = Mutex::new(Vec::new());
        let print = |line: &str| lines.lock().unwrap().push(line.to_string());
        let jobs = vec![job("a", hangs), job("b", "exit 0")];
        let outcome = run(jobs, Some(Duration::from_millis(100)), &print);
        assert_eq!(outcome.counts["a"], Count { passed: 0, failed: 1 });
        assert_eq!(outcome.failures.len(), 1);
        assert_eq!(outcome.failures[0].name, "a: the whole of it");
        let lines = lines.into_inner().unwrap();
        assert!(lines.iter().any(|line| line.starts_with("test it_hangs ...")), "{lines:?}");
        assert!(lines.iter().any(|line| line.contains("said nothing for too long")), "{lines:?}");
    }
}
