// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Health checks: a program of the image that the machine's supervisor runs again and again, as docker does.

use crate::{
    fault::{Fault, Result},
    repository,
};
use std::{
    io::Read,
    process::{Command, Stdio},
    sync::mpsc::channel,
    time::{Duration, Instant},
};
use unilith_image::ImageHealth;
use unilith_machine::{
    events,
    lines::printable,
    record::{Checked, Health, HealthCheck, Phase, Wellness, now_ms},
    store::{Held, Machine, Store},
};

/// docker's, in milliseconds.
const INTERVAL: u64 = 30_000;
const TIMEOUT: u64 = 30_000;
const RETRIES: u32 = 3;
/// How often is asked within the start period.
const START_INTERVAL: u64 = 5000;
/// What is kept of a check's output, and how many checks.
const MAX_OUTPUT: usize = 4096;
const MAX_LOG: usize = 5;
/// How often a waiting thread looks whether the machine still runs.
const POLL: Duration = Duration::from_millis(50);
const LONGEST_POLL: Duration = Duration::from_millis(500);

#[derive(clap::Args, Clone, Debug)]
#[group(skip)]
pub struct Flags {
    /// A command of the image's shell that says whether the program is well: it ends with 0 then
    #[arg(long, value_name = "COMMAND")]
    pub health_cmd: Option<String>,
    /// Time between two checks, e.g. 30s
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub health_interval: Option<u64>,
    /// How long a check may take, e.g. 30s
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub health_timeout: Option<u64>,
    /// Failures in a row after which the program is not well
    #[arg(long, value_name = "COUNT")]
    pub health_retries: Option<u32>,
    /// How long after the start failures do not count, e.g. 1m
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub health_start_period: Option<u64>,
    /// Time between two checks within the start period, e.g. 5s
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub health_start_interval: Option<u64>,
    /// Do not run the check that the image has
    #[arg(long, conflicts_with = "health_cmd")]
    pub no_healthcheck: bool,
    /// The check's words instead of a shell's command; of compose files
    #[arg(skip)]
    pub words: Vec<String>,
}

fn time(text: &str) -> std::result::Result<u64, String> {
    let read = unilith_compose::fields::milliseconds(text);
    read.ok_or_else(|| "it is a time, for example 500ms, 30s or 1m30s".into())
}

impl Flags {
    /// The check that they ask for, and where they do not say, that of the image.
    pub fn check(&self, image: Option<&ImageHealth>, overlay: bool) -> Result<Option<HealthCheck>> {
        let wrong = |message: &str| Fault { code: 2, message: message.into() };
        let command = match &self.health_cmd {
            Some(command) => ["/bin/sh", "-c", command].map(String::from).to_vec(),
            None => self.words.clone(),
        };
        let image = image.filter(|_| !self.no_healthcheck);
        let is_images = command.is_empty() && image.is_some();
        if is_images && !overlay {
            // Nobody asked for it here.
            return Ok(None);
        }
        let usual = image.cloned().unwrap_or_default();
        let command = if is_images { usual.command } else { command };
        if command.is_empty() {
            let is_given = self.health_interval.is_some()
                || self.health_timeout.is_some()
                || self.health_retries.is_some()
                || self.health_start_period.is_some()
                || self.health_start_interval.is_some();
            return if is_given {
                Err(wrong("--health-*: say --health-cmd COMMAND as well"))
            } else {
                Ok(None)
            };
        }
        if !overlay {
            return Err(wrong(
                "--health-cmd: the check is run through the overlay; leave --set overlay=off out",
            ));
        }
        Ok(Some(HealthCheck {
            command,
            // As docker has it 0 is what is usual.
            interval: self.health_interval.filter(|ms| *ms > 0).or(usual.interval).unwrap_or(INTERVAL),
            timeout: self.health_timeout.filter(|ms| *ms > 0).or(usual.timeout).unwrap_or(TIMEOUT),
            retries: self.health_retries.filter(|count| *count > 0).or(usual.retries).unwrap_or(RETRIES),
            start_period: self.health_start_period.or(usual.start_period).unwrap_or(0),
            start_interval: self
                .health_start_interval
                .filter(|ms| *ms > 0)
                .or(usual.start_interval)
                .unwrap_or(START_INTERVAL),
        }))
    }
}

/// What `ps` says of it.
pub fn words(status: Wellness) -> &'static str {
    match status {
        Wellness::Starting => " (health: starting)",
        Wellness::Healthy => " (healthy)",
        Wellness::Unhealthy => " (unhealthy)",
    }
}

pub fn word(status: Wellness) -> &'static str {
    match status {
        Wellness::Starting => "starting",
        Wellness::Healthy => "healthy",
        Wellness::Unhealthy => "unhealthy",
    }
}

/// Why the last check failed, for the user: its exit code and the last line that it printed.
pub fn failure(health: &Health, command: &[String]) -> Option<String> {
    let last = health.log.last().filter(|checked| checked.exit_code != Some(0))?;
    let line = last.output.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("it printed nothing");
    let program = command.first().map_or("", String::as_str);
    Some(match last.exit_code {
        // As shells have it; and the machine's refusal lists its own commands, which are of no help here.
        Some(127) => format!(
            "its image has no program {program} for the check; debian:PACKAGE images have a shell and their package's programs"
        ),
        Some(126) => format!("the check {program} cannot run: {line}"),
        Some(code) => format!("its check {program} ended with code {code}: {line}"),
        None => format!("its check {program} took too long: {line}"),
    })
}

/// Whether the program of the check is not there or cannot be started, so that no later check can be better.
pub fn never_ran(checked: &Checked) -> bool {
    matches!(checked.exit_code, Some(126 | 127))
}

/// Checks the machine from a thread of this process, its supervisor, as long as that lives.
pub fn watch(store: &Store, machine: &Held) {
    let Some(check) = machine.spec.health.clone() else { return };
    // The supervisor's own copy is not told of what changes.
    let Ok(machine) = store.find(&machine.spec.id) else { return };
    std::thread::spawn(move || {
        let mut health = Health::default();
        let mut due = Instant::now();
        loop {
            std::thread::sleep(due.saturating_duration_since(Instant::now()).clamp(POLL, LONGEST_POLL));
            let Some(machine) = machine.again() else { return };
            let runs = matches!(machine.state.phase, Phase::Running | Phase::Ready);
            let Some(started) = machine.state.started_ms.filter(|_| runs) else { continue };
            if health.of_start_ms != Some(started) {
                health = Health { of_start_ms: Some(started), ..Health::default() };
                due = Instant::now() + pause(&check, &health, started);
            }
            // As with docker a paused program is not asked.
            if Instant::now() < due || crate::verbs::pause::is_paused(&machine) {
                continue;
            }
            let checked = ask(&machine, &check);
            let before = health.status;
            note(&mut health, checked, &check, started);
            if health.status != before {
                let action = format!("health_status: {}", word(health.status));
                events::note(machine.store().shared(), &machine.spec, &action, &[]);
            }
            // The next one tries again; the machine does not depend on it.
            if let Err(error) = machine.save_health(&health) {
                eprintln!("unilith: {error}");
            }
            due = Instant::now() + pause(&check, &health, started);
        }
    });
}

/// The time until the next check.
fn pause(check: &HealthCheck, health: &Health, started: u64) -> Duration {
    let in_start =
        health.status == Wellness::Starting && now_ms() < started.saturating_add(check.start_period);
    Duration::from_millis(if in_start { check.start_interval } else { check.interval })
}

/// Adds what a check found.
fn note(health: &mut Health, checked: Checked, check: &HealthCheck, started: u64) {
    let in_start = checked.started_ms < started.saturating_add(check.start_period);
    if checked.exit_code == Some(0) {
        (health.status, health.failing_streak) = (Wellness::Healthy, 0);
    } else if health.status != Wellness::Starting || !in_start {
        health.failing_streak = health.failing_streak.saturating_add(1);
        if health.failing_streak >= check.retries {
            health.status = Wellness::Unhealthy;
        }
    }
    health.log.push(checked);
    let surplus = health.log.len().saturating_sub(MAX_LOG);
    health.log.drain(..surplus);
}

/// Runs the check once.
fn ask(machine: &Machine, check: &HealthCheck) -> Checked {
    let started_ms = now_ms();
    let done = |exit_code, output: String| Checked { started_ms, finished_ms: now_ms(), exit_code, output };
    let begin = Instant::now();
    let started = repository::executable().map_err(|fault| fault.message).and_then(|me| {
        let mut command = Command::new(me);
        command.args(["exec", "--program", &machine.spec.id]).args(&check.command);
        command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|e| e.to_string())
    });
    let mut child = match started {
        Ok(child) => child,
        Err(error) => return done(Some(126), format!("the check cannot be started: {error}")),
    };
    let (send, printed) = channel();
    let mut streams: Vec<Box<dyn Read + Send>> = Vec::new();
    streams.extend(child.stdout.take().map(|s| Box::new(s) as Box<dyn Read + Send>));
    streams.extend(child.stderr.take().map(|s| Box::new(s) as Box<dyn Read + Send>));
    for mut stream in streams {
        let send = send.clone();
        std::thread::spawn(move || {
            let mut kept = Vec::new();
            let mut piece = [0; 4096];
            // Read to its end, so that a talkative check is not held up.
            while let Ok(count @ 1..) = stream.read(&mut piece) {
                let room = MAX_OUTPUT.saturating_sub(kept.len());
                kept.extend_from_slice(&piece[..count.min(room)]);
            }
            // Nobody waits for it once the check has taken too long.
            let _ = send.send(kept);
        });
    }
    drop(send);
    let limit = Duration::from_millis(check.timeout);
    let status = loop {
        match child.try_wait() {
            Ok(Some(status)) => break Some(status),
            Ok(None) if begin.elapsed() < limit => std::thread::sleep(POLL.min(limit)),
            // Its program in the machine is sent SIGHUP when its client is gone.
            _ => {
                let _ = child.kill();
                let _ = child.wait();
                break None;
            }
        }
    };
    let Some(status) = status else {
        return done(None, format!("the check did not end in {} ms", check.timeout));
    };
    let bytes: Vec<u8> = printed.iter().flatten().take(MAX_OUTPUT).collect();
    let text = String::from_utf8_lossy(&bytes);
    let lines: Vec<String> = text.lines().map(printable).collect();
    done(Some(status.code().unwrap_or(137)), lines.join("\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_unwell_after_failures_in_a_row_and_well_after_one_success() {
        let check = HealthCheck {
            command: vec!["x".into()],
            interval: 10,
            timeout: 10,
            retries: 2,
            start_period: 100,
            start_interval: 10,
        };
        let mut health = Health::default();
        let mut found = |at: u64, code: i32| {
            let checked =
                Checked { started_ms: at, finished_ms: at, exit_code: Some(code), output: String::new() };
            note(&mut health, checked, &check, 1000);
            (health.status, health.failing_streak)
        };
        assert_eq!(found(1050, 1), (Wellness::Starting, 0), "within the start period");
        assert_eq!(found(1100, 1), (Wellness::Starting, 1));
        assert_eq!(found(1110, 0), (Wellness::Healthy, 0));
        assert_eq!(found(1120, 1), (Wellness::Healthy, 1));
        assert_eq!(found(1130, 1), (Wellness::Unhealthy, 2));
        for n in 0..10 {
            assert_eq!(found(1140 + n, 0), (Wellness::Healthy, 0));
        }
        assert_eq!(health.log.len(), MAX_LOG);
    }
}
