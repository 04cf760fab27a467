// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Paper: uIO figure 5. How long a program of 4 KB (the paper's has 4.1) takes to be loaded: when the machine sees it
//! for the first time, and when it has it. Against the smallest command, whose round trip each of them contains.

use super::{ON, line::smallest, table};
use crate::scratch::Scratch;
use crate::side::{Machine, build_kernels, output_of};
use crate::{Options, Result, Side, statistics::Samples};
use std::time::Instant;
use unilith_overlay::Client;

/// Loads of one run; its figure is their median.
const LOADS: usize = 300;

/// Calls of the kernel and of the C library, constants and variables.
const SOURCE: &str = r#"#include <unilith/overlay.h>
extern int getpid(void), getppid(void);
static const char *const WORDS[] = {"zero", "one", "two", "three", "four", "five", "six", "seven"};
static char line[64];
static int put(const char *text) {
    uintptr_t length = 0;
    while (text[length]) line[length % sizeof line] = text[length], length++;
    return uio_console_write(1, text, length) < 0;
}
int main(int count, char **words) {
    int failed = 0, sum = getpid() + getppid() + (words[0] != 0) + count;
    for (int i = 0; i < 8; i++)
        if (sum >> i & 1) failed += put(WORDS[i]);
    return failed;
}
"#;

pub fn run(options: &Options) -> Result<()> {
    build_kernels(options, &[&ON])?;
    let scratch = Scratch::new("loading")?;
    scratch.write("program.c", SOURCE)?;
    let path = |name: &str| scratch.path().join(name).display().to_string();
    let (source, object) = (path("program.c"), path("program.o"));
    output_of(options, &["overlay", "build", "-o", &object, &source], &[])?;
    let object = std::fs::read(&object).map_err(|e| format!("{object}: {e}"))?;
    println!("The program's object has {} bytes.\n", object.len());
    let machine = Machine::start(options, Side::Micro, &[&ON[..], &["-m", "256M", "nginx"]].concat())?;
    let client = Client::connect(&machine.folder()?).map_err(|e| e.to_string())?;
    let mut samples = vec![Samples::default(); 3];
    // Keys that the machine has not seen; a program of the same name replaces the one before.
    let mut fresh = 0..;
    // The first load brings the symbols' pages into the machine; that is not what a figure is about.
    load(&client, &object, fresh.next().unwrap_or(0), true)?;
    for _ in 0..options.runs {
        let mut times = vec![Samples::default(); 3];
        for _ in 0..LOADS {
            let key = fresh.next().unwrap_or(0);
            times[0].add(timed(|| smallest(&client))?);
            times[1].add(timed(|| load(&client, &object, key, true))?);
            times[2].add(timed(|| load(&client, &object, key, false))?);
        }
        for (all, of_run) in samples.iter_mut().zip(&times) {
            all.add(of_run.median().unwrap_or_default());
        }
    }
    table(
        &["a command that says nothing", "loading a program", "the same again"],
        &[("round trip".to_string(), "us", samples)],
    );
    Ok(())
}

fn timed(what: impl FnOnce() -> Result<()>) -> Result<f64> {
    let begin = Instant::now();
    what()?;
    Ok(begin.elapsed().as_secs_f64() * 1e6)
}

/// As `load FILE` at the prompt of `unilith attach`: the first time a session has to do with an object it is part of the
/// command, and then it is sent when the machine asks for it, if it does.
fn load(client: &Client, object: &[u8], key: u64, first: bool) -> Result<()> {
    let failed = |e: unilith_overlay::LineError| e.to_string();
    let mut words = vec![
        b"load".to_vec(),
        format!("-s{}", object.len()).into_bytes(),
        format!("-k{key:016x}").into_bytes(),
        b"-nprogram".to_vec(),
        b"program.o".to_vec(),
    ];
    if first {
        words.insert(1, [b"-b", object].concat());
    }
    let running = client.start(&words, false, 0).map_err(failed)?;
    let input = running.input();
    if input.wanted() {
        input.write(object).map_err(failed)?;
    }
    let answer = running.answer().map_err(failed)?;
    match answer.failures.first() {
        Some(failure) => Err(format!("load: {}", failure.text)),
        None if answer.code != 0 => Err(format!("load answers {}", answer.code)),
        None => Ok(()),
    }
}
