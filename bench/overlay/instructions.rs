// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The same without the noise of a shared computer: QEMU counts instructions, the guest's clock advances a nanosecond with
//! each (`--accel icount`), and the programs are driven from inside of their machines (`drive.c`), one request after the
//! other, so that nothing depends on when something comes from outside.

use super::{OFF, ON, table};
use crate::side::{build_kernels, folder_of, output_of, unilith_command};
use crate::{Options, Result, Scratch, statistics::Samples};
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;
use unilith_overlay::Client;

/// A program, as `drive.c` drives it.
pub struct Driven {
    /// Its name in the catalogue and in `drive.c`.
    pub name: &'static str,
    pub what: &'static str,
    /// How often a round of `drive.c` does that.
    pub times: f64,
    arguments: &'static [&'static str],
    /// What handles each of them, and what is called more often for it than anything else that has a name (`overlay-busiest`,
    /// but for what Redis does ten times a second whatever it is asked).
    counted: [&'static str; 2],
}

pub const PROGRAMS: [Driven; 3] = [
    Driven {
        name: "nginx",
        what: "nginx, each page",
        times: 2500.0,
        arguments: &[],
        counted: ["count(ngx_http_process_request)", "count(ngx_palloc)"],
    },
    Driven {
        name: "redis",
        what: "Redis SET, each request",
        times: 5000.0,
        // After so many changes it would save them: by a copy of itself, of which there is none here.
        arguments: &["--save", ""],
        counted: ["count(processCommand)", "count(zfree)"],
    },
    Driven {
        name: "sqlite",
        what: "SQLite in memory, each insertion",
        times: 5000.0,
        arguments: &[],
        counted: ["count(sqlite3_step)", "count(pthread_mutex_lock)"],
    },
];
/// Commands that are said to run every second, and their names.
const COMMANDS: [(&str, &[&[&str]]); 2] = [
    ("`ls -l /etc`", &[&["ls", "-l", "/etc"]]),
    ("`mem`, `ps` and `net -c`", &[&["mem"], &["ps"], &["net", "-c"]]),
];
/// Instructions of a second, of a processor that does one in a nanosecond.
const SECOND: f64 = 1e9;

pub fn run(options: &Options) -> Result<()> {
    build_kernels(options, &[&OFF, &ON])?;
    let scratch = driver(options)?;
    let mut rows = Vec::new();
    let mut costs = Vec::new();
    for program in &PROGRAMS {
        let mut samples = vec![Samples::default(); 4];
        let mut of_commands = vec![Samples::default(); COMMANDS.len()];
        // Each run is two machines of its own: where their memory begins is another each time.
        for _ in 0..options.runs {
            let mut off = Machine::start(options, &scratch, program, &OFF)?;
            samples[0].add(off.round()?);
            drop(off);
            let mut on = Machine::start(options, &scratch, program, &ON)?;
            let alone = on.round()?;
            samples[1].add(alone);
            for ((_, commands), samples) in COMMANDS.iter().zip(&mut of_commands) {
                samples.add(on.cost(commands, alone)?);
            }
            for (function, samples) in program.counted.iter().zip(&mut samples[2..]) {
                output_of(options, &["trace", "--keep", "count", &on.name, function], &[])?;
                samples.add(on.round()?);
                output_of(options, &["exec", &on.name, "bpf", "detach", "count"], &[])?;
            }
        }
        rows.push((program.what.to_string(), "instructions", samples));
        costs.push(of_commands);
    }
    table(&["off", "on, idle", "eBPF counts each", "eBPF counts the busiest"], &rows);
    println!();
    println!("Counted: {}.", PROGRAMS.map(|p| p.counted.join(", ")).join("; "));
    println!(
        "\n| commands | beside | instructions | of a second of {SECOND:.0e} |\n| --- | --- | --- | --- |"
    );
    for (program, costs) in PROGRAMS.iter().zip(&costs) {
        for ((name, _), samples) in COMMANDS.iter().zip(costs) {
            let share = samples.median().unwrap_or(0.0) / SECOND * 100.0;
            println!("| {name} | {} | {} | {share:.3} % |", program.name, samples.show());
        }
    }
    Ok(())
}

/// `drive.so` in a directory of its own.
pub fn driver(options: &Options) -> Result<Scratch> {
    let scratch = Scratch::new("driver")?;
    let library = scratch.path().join("drive.so");
    let source = options.root.join("bench/overlay/drive.c");
    let mut compiler = Command::new("cc");
    let status = compiler.args(["-O2", "-shared", "-fPIC", "-o"]).arg(&library).arg(&source).status();
    if !status.map_err(|e| format!("cannot run cc: {e}"))?.success() {
        return Err(format!("{} does not compile", source.display()));
    }
    Ok(scratch)
}

/// A machine whose program is driven from within.
pub struct Machine<'a> {
    options: &'a Options,
    program: &'static Driven,
    pub name: String,
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl<'a> Machine<'a> {
    pub fn start(
        options: &'a Options,
        scratch: &Scratch,
        program: &'static Driven,
        kernel: &[&str],
    ) -> Result<Machine<'a>> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("bench-{}-driven-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let volume = format!("{}:/drive:ro", scratch.path().display());
        let drive = format!("DRIVE={}", program.name);
        let words = [
            &["run", "--rm", "-i", "--name", &name, "--machine", "microvm", "--accel", "icount"][..],
            &["--network", "none", "-m", "256M", "-v", &volume, "-e", "LD_PRELOAD=/drive/drive.so"],
            &["-e", &drive],
            kernel,
            &[program.name, "--"],
            program.arguments,
        ];
        let mut command = unilith_command(options, &words.concat(), &[]);
        let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn();
        let mut child = child.map_err(|e| format!("cannot run timeout: {e}"))?;
        let (Some(input), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
            return Err("a child without pipes".into());
        };
        let mut machine = Machine { options, program, name, child, input, output: BufReader::new(output) };
        machine.line("ready")?;
        // What is only done in the first rounds.
        machine.round()?;
        Ok(machine)
    }

    /// What follows this word in the next line that begins with it; the program prints lines as well.
    fn line(&mut self, word: &str) -> Result<String> {
        let mut all = String::new();
        loop {
            let begin = all.len();
            let n = self.output.read_line(&mut all).map_err(|e| format!("{}: {e}", self.program.name))?;
            if n == 0 {
                return Err(format!("{} ended and printed: {all}", self.program.name));
            }
            if let Some(rest) = all[begin..].strip_prefix(word) {
                return Ok(rest.trim().to_string());
            }
        }
    }

    fn go(&mut self) -> Result<()> {
        self.input.write_all(b"go\n").map_err(|e| format!("{}: {e}", self.program.name))
    }

    /// Instructions of the machine in the round that was begun, for each of what is done in it, without the client's own.
    fn took(&mut self) -> Result<f64> {
        let text = self.line("took")?;
        let elapsed: f64 = text.parse().map_err(|_| format!("{} printed: took {text}", self.program.name))?;
        Ok(elapsed / self.program.times)
    }

    pub fn round(&mut self) -> Result<f64> {
        self.go()?;
        self.took()
    }

    /// Instructions that these commands take from a machine whose program is busy, with the interrupts that they cause.
    fn cost(&mut self, commands: &[&[&str]], alone: f64) -> Result<f64> {
        let client = Client::connect(&folder_of(self.options, &self.name)?).map_err(|e| e.to_string())?;
        let done = AtomicBool::new(false);
        self.go()?;
        thread::scope(|scope| {
            let commanding = scope.spawn(|| -> Result<u32> {
                let mut rounds = 0;
                while !done.load(Ordering::Relaxed) {
                    for command in commands {
                        let answer = client.run(command, false).map_err(|e| e.to_string())?;
                        if answer.code != 0 {
                            return Err(format!("{} answers {}", command.join(" "), answer.code));
                        }
                    }
                    rounds += 1;
                }
                Ok(rounds)
            });
            let beside = self.took();
            done.store(true, Ordering::Relaxed);
            let rounds = commanding.join().map_err(|_| "the thread of the commands panicked")??;
            Ok((beside? - alone) * self.program.times / f64::from(rounds.max(1)))
        })
    }
}

impl Drop for Machine<'_> {
    fn drop(&mut self) {
        // The program would wait for the next round for ever.
        if let Err(e) = output_of(self.options, &["rm", "-f", &self.name], &[]) {
            eprintln!("{e}");
        }
        if let Err(e) = self.child.wait() {
            eprintln!("{}: {e}", self.name);
        }
    }
}
