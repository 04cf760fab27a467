// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Paper: uIO figure 4. Round trips over the line, against a kernel whose port only echoes (`--set overlay=echo`). The
//! client, the multiplexer and QEMU's device are the same on both sides; so are the bytes.

use super::{ON, table};
use crate::side::{Machine, build_kernels};
use crate::{Options, Result, Side, nginx, statistics::Samples};
use overlay_wire::{Decoder, Kind, frame};
use std::io::{Read, Write};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};
use unilith_overlay::{Client, socket};

const ECHO: [&str; 2] = ["--set", "overlay=echo"];
/// Round trips of one run; its figure is their median.
const TRIPS: usize = 1000;

pub fn run(options: &Options) -> Result<()> {
    build_kernels(options, &[&ECHO, &ON])?;
    let start =
        |set: [&str; 2]| Machine::start(options, Side::Micro, &[&set[..], &["-m", "256M", "nginx"]].concat());
    let (echo, line) = (start(ECHO)?, start(ON)?);
    let mut idle = vec![Samples::default(); 3];
    let mut busy = vec![Samples::default(); 3];
    for _ in 0..options.runs {
        measure(&echo, &line, &mut idle)?;
        for (machine, only) in [(&echo, 0..1), (&line, 1..3)] {
            let address = machine.address()?;
            let mut all = vec![Samples::default(); 3];
            thread::scope(|scope| {
                let load = scope.spawn(|| nginx::rate(&address));
                // The load is there from the first round trip on.
                thread::sleep(Duration::from_secs(1));
                let measured = measure(&echo, &line, &mut all);
                let loaded = load.join().map_err(|_| "the load panicked".to_string())?;
                loaded.and(measured)
            })?;
            for i in only {
                if let Some(median) = all[i].median() {
                    busy[i].add(median);
                }
            }
        }
    }
    table(
        &["bare echo", "the line's echo", "a command that says nothing"],
        &[
            ("round trip, idle".to_string(), "us", idle),
            ("round trip, nginx under load".to_string(), "us", busy),
        ],
    );
    Ok(())
}

fn measure(echo: &Machine<'_>, line: &Machine<'_>, samples: &mut [Samples]) -> Result<()> {
    samples[0].add(echoes(&echo.folder()?)?);
    samples[1].add(echoes(&line.folder()?)?);
    samples[2].add(commands(&line.folder()?)?);
    Ok(())
}

/// One small frame there and back; what comes back has the same length, whoever answers.
fn echoes(folder: &Path) -> Result<f64> {
    let failed = |e: std::io::Error| format!("the line of the machine: {e}");
    let mut stream = socket::connect(folder).map_err(failed)?;
    stream.set_read_timeout(Some(Duration::from_secs(10))).map_err(failed)?;
    let question = frame(Kind::PING, 0, 0, b"12345678");
    let (mut decoder, mut buffer) = (Decoder::new(), [0; 4096]);
    trips(|| {
        stream.write_all(&question).map_err(failed)?;
        let mut answered = false;
        while !answered {
            match stream.read(&mut buffer).map_err(failed)? {
                0 => return Err("the machine closed the line".into()),
                n => decoder.feed(&buffer[..n], |f| answered = f.payload == b"12345678"),
            }
        }
        Ok(())
    })
}

fn commands(folder: &Path) -> Result<f64> {
    let client = Client::connect(folder).map_err(|e| e.to_string())?;
    trips(|| smallest(&client))
}

/// The smallest command: nothing begins with what is asked for.
pub(super) fn smallest(client: &Client) -> Result<()> {
    match client.run(&["complete", "commands", "nothing begins so"], false) {
        Ok(answer) if answer.code == 0 && answer.out.is_empty() => Ok(()),
        Ok(answer) => Err(format!("the command answers {}", answer.code)),
        Err(e) => Err(e.to_string()),
    }
}

/// The median of many, in microseconds.
fn trips(mut trip: impl FnMut() -> Result<()>) -> Result<f64> {
    let mut all = Samples::default();
    for _ in 0..TRIPS {
        let begin = Instant::now();
        trip()?;
        all.add(begin.elapsed().as_secs_f64() * 1e6);
    }
    Ok(all.median().unwrap_or_default())
}
