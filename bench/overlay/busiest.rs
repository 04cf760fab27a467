// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which functions of the driven programs (`instructions`) are called most: all of the program and the C library that have
//! names are counted, as many in one machine as it has room for.

use super::ON;
use super::instructions::{Driven, Machine, PROGRAMS, driver};
use crate::side::{build_kernels, folder_of};
use crate::{Options, Result, Scratch};
use unilith_overlay::Client;
use unilith_trace::symbols::{self, Module};
use unilith_trace::{Script, language};

/// Functions counted in one machine, of 512 that it has room for, and in one package.
const OF_MACHINE: usize = 480;
const OF_PACKAGE: usize = 60;
/// Rows of the table.
const MAX_ROWS: usize = 5;

pub fn run(options: &Options) -> Result<()> {
    build_kernels(options, &[&ON])?;
    let scratch = driver(options)?;
    println!("| program | function | calls of each |\n| --- | --- | --- |");
    for program in &PROGRAMS {
        let (mut calls, functions) = count(options, &scratch, program)?;
        calls.sort_by_key(|call| std::cmp::Reverse(call.1));
        for (name, hits) in calls.iter().take(MAX_ROWS) {
            println!("| {} | `{name}` | {:.1} |", program.what, *hits as f64 / program.times);
        }
        println!("| | of {} functions, {} could be counted | |", functions, calls.len());
    }
    Ok(())
}

/// How often each function was called in a round, and how many there are.
fn count(
    options: &Options,
    scratch: &Scratch,
    program: &'static Driven,
) -> Result<(Vec<(String, u64)>, usize)> {
    let (mut calls, mut from) = (Vec::new(), 0);
    loop {
        let mut machine = Machine::start(options, scratch, program, &ON)?;
        let client = Client::connect(&folder_of(options, &machine.name)?).map_err(|e| e.to_string())?;
        let cat = |path: &str| client.run(&["cat", path], false).map(|answer| answer.out);
        let maps = cat("/proc/self/maps").map_err(|e| e.to_string())?;
        // Not the client's own functions, and not what starts programs.
        let is_counted = |path: &str| path.contains(program.name) || path.contains("libc.so");
        let mut read = |path: &str| if is_counted(path) { cat(path).ok() } else { None };
        let modules = symbols::modules(&String::from_utf8_lossy(&maps), &mut read);
        let names = symbols::functions(&modules);
        let to = names.len().min(from + OF_MACHINE);
        for (i, some) in names[from..to].chunks(OF_PACKAGE).enumerate() {
            attach(&client, &modules, &format!("p{i}"), some.to_vec())?;
        }
        machine.round()?;
        let list = client.run(&["bpf", "list"], true).map_err(|e| e.to_string())?.out;
        for line in list.split(|b| *b == b'\n').filter(|line| !line.is_empty()) {
            let row: serde_json::Value = serde_json::from_slice(line).map_err(|e| e.to_string())?;
            if let (Some(name), Some(hits)) = (row["place"].as_str(), row["hits"].as_u64()) {
                calls.push((name.to_string(), hits));
            }
        }
        from = to;
        if from == names.len() {
            return Ok((calls, names.len()));
        }
    }
}

/// Counts these functions, but for those that cannot be probed: they are named by the error.
fn attach(client: &Client, modules: &[Module], package: &str, mut names: Vec<String>) -> Result<()> {
    while !names.is_empty() {
        let text: Vec<String> = names.iter().map(|name| format!("count({name})")).collect();
        let script: Script = language::compile(&text.join("; "), &|_| None)?;
        let refused = match symbols::package(&script, modules, None) {
            Ok(made) => match send(client, package, &made.encode())? {
                Ok(()) => return Ok(()),
                Err(why) => why,
            },
            Err(why) => why,
        };
        let before = names.len();
        let is_named = |name: &str| refused.split(|c: char| !is_part(c)).any(|word| word == name);
        names.retain(|name| !is_named(name));
        if names.len() == before {
            return Err(refused);
        }
    }
    Ok(())
}

fn is_part(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

/// Attaches a package; the machine may say why it does not.
fn send(client: &Client, name: &str, bytes: &[u8]) -> Result<std::result::Result<(), String>> {
    let failed = |e: unilith_overlay::LineError| e.to_string();
    let running = client.start(&["bpf", "attach", name], false, 0).map_err(failed)?;
    running.input().write(bytes).and_then(|_| running.input().end()).map_err(failed)?;
    let answer = running.answer().map_err(failed)?;
    let why = answer.failures.iter().map(|failure| format!("{}: {}", failure.subject, failure.text));
    Ok(if answer.code == 0 { Ok(()) } else { Err(why.collect()) })
}
