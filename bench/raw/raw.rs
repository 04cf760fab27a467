// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Paper: Unikraft table 4. The UDP key-value store of `examples/raw` in its three stages, each linked with the kernel, under the
//! same load: what one answer takes of the processor. On a virtual machine that is instructions (`--accel icount`); on a
//! process machine nanoseconds of processor time.

use crate::side::{CLIENT_CPU, Machine, Side, patient};
use crate::{Options, Result, Scratch, statistics, statistics::Samples};
use rustix::thread::{CpuSet, sched_setaffinity};
use std::net::UdpSocket;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// The columns, and the programs; the first two are compared.
const STAGES: [(&str, &str); 3] =
    [("sockets", "store_sockets"), ("raw", "store_raw"), ("batches", "store_batches")];
/// Requests that are not answered yet: both sides of a socket's queue hold them.
const IN_FLIGHT: usize = 128;
/// Keys that are set and asked for in turn.
const KEYS: usize = 1000;
/// What is not answered after this was lost.
const LOST: Duration = Duration::from_millis(200);
/// Tenths of a second until a server must have answered all.
const PATIENCE: u32 = 900;

pub fn run(options: &Options) -> Result<()> {
    let scratch = Scratch::new("raw")?;
    let mut programs = Vec::new();
    for (_, name) in STAGES {
        let program = scratch.path().join(name).display().to_string();
        let source = options.root.join("examples/raw").join(name).with_extension("c").display().to_string();
        patient(options, &["cc", "-O2", "-o", &program, &source])?;
        programs.push(program);
    }
    // The kernels are built before anything is measured; on a machine without a network it ends at once.
    for machine in ["microvm", "process"] {
        let words = ["run", "--rm", "--static", "--network", "none", "--machine", machine];
        let text = "int main(void) { return 0; }\n";
        let (source, program) = (scratch.path().join("nothing.c"), scratch.path().join("nothing"));
        scratch.write("nothing.c", text)?;
        let (source, program) = (source.display().to_string(), program.display().to_string());
        patient(options, &["cc", "-o", &program, &source])?;
        patient(options, &[&words[..], &[&program]].concat())?;
    }
    statistics::head(&STAGES.map(|(column, _)| column));
    let parts = [
        (Side::Micro, &["--accel", "icount"][..], "instructions", "30000"),
        (Side::Process, &[][..], "ns of processor time", "300000"),
    ];
    for (side, words, unit, answers) in parts {
        let mut samples = [Samples::default(), Samples::default(), Samples::default()];
        for _ in 0..options.runs {
            for (program, samples) in programs.iter().zip(&mut samples) {
                let words = [&["--static"][..], words, &[program, answers]].concat();
                samples.add(one(options, side, &words)?);
            }
        }
        statistics::row(&format!("an answer, {} machine", side.name()), unit, &samples);
    }
    Ok(())
}

/// What the server says that an answer took.
fn one(options: &Options, side: Side, words: &[&str]) -> Result<f64> {
    let machine = Machine::start(options, side, words)?;
    let address = machine.address()?;
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let client = scope.spawn(|| load(&address, &done));
        let waited = machine.wait_for_output("took", PATIENCE);
        done.store(true, Ordering::Relaxed);
        let loaded = client.join().map_err(|_| "the client's thread panicked".to_string())?;
        waited.and(loaded)
    })?;
    let printed = machine.output()?;
    let took = printed.lines().find_map(|line| line.strip_prefix("took ")?.trim().parse().ok());
    took.ok_or_else(|| format!("the server printed: {printed}"))
}

/// Keeps requests in flight until it is told that it is enough.
fn load(address: &str, done: &AtomicBool) -> Result<()> {
    let failed = |e: std::io::Error| format!("{address}: {e}");
    let mut processors = CpuSet::new();
    processors.set(CLIENT_CPU.parse().unwrap_or(0));
    sched_setaffinity(None, &processors).map_err(|e| failed(e.into()))?;
    let socket = UdpSocket::bind("0.0.0.0:0").map_err(failed)?;
    socket.connect((address, 7000)).and_then(|()| socket.set_nonblocking(true)).map_err(failed)?;
    let (mut sent, mut in_flight, mut last) = (0usize, 0usize, Instant::now());
    let mut answer = [0; 2048];
    while !done.load(Ordering::Relaxed) {
        while in_flight < IN_FLIGHT {
            // Each key is set, and then asked for.
            let key = sent / 2 % KEYS;
            let request = if sent.is_multiple_of(2) {
                format!("s key{key} value-of-{key}")
            } else {
                format!("g key{key}")
            };
            // A machine that has ended refuses: its answer is awaited elsewhere.
            if socket.send(request.as_bytes()).is_err() {
                break;
            }
            sent += 1;
            in_flight += 1;
        }
        while socket.recv(&mut answer).is_ok() {
            in_flight = in_flight.saturating_sub(1);
            last = Instant::now();
        }
        if last.elapsed() > LOST {
            in_flight = 0;
            last = Instant::now();
        }
    }
    Ok(())
}
