// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `unilith trace`: eBPF programs at functions and tracepoints of a running machine.

use crate::fault::{Fault, Result};
use crate::session;
use crate::tracing::{self, Follow, Machinery, Output, Stop};
use rustix::process::{Pid, Signal, kill_process};
use std::ffi::{OsStr, OsString};
use std::io::{self, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};
use std::{fs, thread};
use unilith_machine::store::Store;
use unilith_trace::{Script, language, objects, ready, report, symbols};

#[derive(clap::Args, Clone, Debug)]
#[command(after_long_help = "\
Examples:
  unilith trace redis 'count(processCommand)'
  unilith trace redis 'latency(processCommand)' -d 10
  unilith trace nginx 'print(ngx_http_process_request_line, pid, time)'
  unilith trace redis 'count(sys_enter, id)'
  unilith trace redis 'count(page_fault_user, ip)'
  unilith trace redis 'print(sys_exit if ret < 0, id, ret)'
  unilith trace redis slow processCommand 10ms
  unilith trace redis program.o
  unilith trace redis 'count(processCommand)' -- redis-benchmark -n 2000 -t set -q

docs/reference/tracing.md has the language, the tracepoints and the helpers.")]
pub struct Args {
    #[arg(required_unless_present = "list")]
    machine: Option<String>,
    /// Actions such as 'count(processCommand)', one that is ready (--list), or an object file of `clang -target bpf -g -O2`
    #[arg(required_unless_present = "list")]
    program: Option<String>,
    /// What a ready one is to be used with
    #[arg(value_name = "ARGUMENT")]
    arguments: Vec<String>,
    /// List the ones that are ready, and what they stand for
    #[arg(short, long)]
    list: bool,
    /// End after so many seconds; without it at Ctrl-C
    #[arg(short, long, value_name = "SECONDS")]
    duration: Option<u64>,
    /// Leave the programs attached under this name; `unilith exec MACHINE bpf` shows and detaches them
    #[arg(short, long, value_name = "NAME")]
    keep: Option<String>,
    /// Trace for as long as this command of your computer runs; its exit code becomes this one's
    #[arg(last = true, value_name = "COMMAND", conflicts_with_all = ["duration", "keep", "list"])]
    command: Vec<OsString>,
}

fn script(program: &str, arguments: &[String], machinery: &Machinery) -> Result<Script> {
    let (modules, kernel) = (&machinery.modules, machinery.kernel.as_ref());
    let variable = |name: &str| symbols::variable(modules, kernel, name);
    let refused = |e: String| Fault::new(format!("{program}: {e}"));
    let ready = ready::line(program, arguments).map_err(Fault::new)?;
    let script = if let Some(line) = ready {
        language::compile(&line, &variable)
    } else if let Some(surplus) = arguments.first() {
        let hint = "a program is one word (quote it), and there is no ready one of this name: see --list";
        return Err(Fault::new(format!("{program} {surplus}: {hint}")));
    } else if program.ends_with(".o") || Path::new(program).is_file() {
        let bytes = fs::read(program).map_err(|e| Fault::new(format!("cannot read {program}: {e}")))?;
        let address = |name: &str| symbols::address(modules, kernel, name);
        objects::read(&bytes, &address)
    } else {
        language::compile(program, &variable)
    };
    let script = script.map_err(refused)?;
    script.verify().map_err(refused)?;
    Ok(script)
}

pub fn act(store: &Store, args: &Args) -> Result<u8> {
    let (Some(machine), Some(program), false) = (&args.machine, &args.program, args.list) else {
        let rows = ready::ALL.iter().map(|r| {
            let usage = [&[r.name], r.arguments].concat().join(" ");
            vec![usage, r.summary.to_string(), r.shown()]
        });
        super::print_table(&rows.collect::<Vec<_>>());
        return Ok(0);
    };
    let machine = session::find(store, machine)?;
    let client = session::connect(&machine)?;
    let machinery = Machinery::read(&machine, &client)?;
    let script = script(program, &args.arguments, &machinery)?;
    if args.keep.is_some() && script.places.iter().any(|p| p.name == language::EVERY) {
        return Err(Fault::new("`every` needs somebody who reads what it prints: leave out --keep"));
    }
    let name = args.keep.clone().unwrap_or_else(|| tracing::own_name("trace"));
    let stop = Stop::watch()?;
    if args.keep.is_some() {
        return tracing::attach(&client, &name, &script, &machinery).map(|()| 0);
    }
    let mut names: Vec<&str> = script.places.iter().map(|p| p.name.as_str()).collect();
    names.dedup();
    let until = match (args.duration, args.command.first()) {
        (Some(seconds), _) => format!("for {seconds} s"),
        (None, Some(command)) => format!("until {} ends", command.display()),
        (None, None) => "Ctrl-C to end".into(),
    };
    let said = format!("tracing {}: {until}", names.join(", "));
    let names = Arc::new(machinery.names());
    let (reports, namer) = (script.reports.clone(), names.clone());
    let follow = Follow::start(&client, &name, &script, &machinery, move |output| {
        let line = match output {
            Output::Line(line) => line.to_string(),
            Output::Record { map, bytes } => {
                let known = reports.iter().find_map(|r| r.line(map, bytes, &|a| namer.known(a)));
                known.unwrap_or_else(|| format!("{map} {}", report::hex(bytes)))
            }
        };
        // Nobody may be reading any more.
        let _ = writeln!(std::io::stdout(), "{line}");
    })?;
    eprintln!("{said}");
    let ran = match args.command.split_first() {
        Some((command, words)) => run_beside(command, words, &stop, &follow),
        None => {
            stop.wait(args.duration.map(|s| Instant::now() + Duration::from_secs(s)), &follow);
            Ok(0)
        }
    };
    // What was printed in the last moment.
    thread::sleep(Duration::from_millis(60));
    let answer = client.run(&["bpf", "map", &name], false)?;
    let ended = follow.end();
    let (elements, overruns) = report::elements(&String::from_utf8_lossy(&answer.out));
    for report in &script.reports {
        // Nobody may be reading any more.
        let _ = write!(std::io::stdout(), "{}", report.summary(&elements, &|a| names.known(a)));
    }
    for (map, count) in overruns {
        eprintln!("unilith: map {map} had no room {count} times");
    }
    ended.and(ran)
}

/// Runs a command of this computer to its end, or until the tracing is stopped; answers its exit code, as a shell would.
fn run_beside(command: &OsStr, words: &[OsString], stop: &Stop, follow: &Follow) -> Result<u8> {
    let failed = |e: io::Error| Fault::new(format!("cannot run {}: {e}", command.display()));
    let mut child = Command::new(command).args(words).spawn().map_err(failed)?;
    let mut status = None;
    stop.wait_or(None, || {
        status = child.try_wait().transpose();
        status.is_some() || follow.has_ended()
    });
    let status = match status {
        Some(status) => status,
        None => {
            // Ctrl-C reached it as well; what else stops this command is passed on.
            if let Some(pid) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
                // It may have ended by itself in this moment.
                let _ = kill_process(pid, Signal::TERM);
            }
            child.wait()
        }
    };
    let status = status.map_err(failed)?;
    Ok(status.code().or(status.signal().map(|s| 128 + s)).and_then(|c| u8::try_from(c).ok()).unwrap_or(1))
}
