// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `unilith trace`: eBPF programs at functions and tracepoints of a running machine.

use crate::archive::Archive;
use crate::fault::{Fault, Result};
use crate::session;
use std::io::Write;
use std::path::Path;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};
use std::{fs, thread};
use unilith_machine::store::{Machine, Store};
use unilith_overlay::{Client, Event};
use unilith_trace::symbols::{self, Module, Names};
use unilith_trace::{Script, language, objects, report};

#[derive(clap::Args, Clone, Debug)]
#[command(after_long_help = "\
Examples:
  unilith trace redis 'count(processCommand)'
  unilith trace redis 'latency(processCommand)' -d 10
  unilith trace nginx 'print(ngx_http_process_request_line, pid, time)'
  unilith trace redis 'count(sys_enter, id)'
  unilith trace redis 'stacks(kernel:unilith_kernel_page_fault)'
  unilith trace redis program.o

docs/reference/trace.md has the language and the helpers.")]
pub struct Args {
    machine: String,
    /// Actions such as 'count(processCommand)', or an object file of `clang -target bpf -g -O2`
    program: String,
    /// End after so many seconds; without it at Ctrl-C
    #[arg(short, long, value_name = "SECONDS")]
    duration: Option<u64>,
    /// Leave the programs attached under this name; `unilith exec MACHINE bpf` shows and detaches them
    #[arg(short, long, value_name = "NAME")]
    keep: Option<String>,
}

/// The modules of a machine's program, and its kernel.
pub struct Machinery {
    pub modules: Vec<Module>,
    pub kernel: Option<Module>,
}

/// Reads what is mapped in the machine; the files come from its image.
pub fn machinery(machine: &Machine, client: &Client) -> Result<Machinery> {
    let maps = client.run(&["cat", "/proc/self/maps"], false)?;
    let maps = String::from_utf8_lossy(&maps.out).into_owned();
    let image = fs::read(&machine.spec.initrd)
        .map_err(|e| Fault::new(format!("cannot read {}: {e}", machine.spec.initrd.display())))?;
    let archive = Archive::read(&image);
    let modules = symbols::modules(&maps, &mut |path| Some(archive.as_ref()?.file(path)?.to_vec()));
    let kernel = machine.spec.symbols.as_ref().and_then(|path| fs::read(path).ok());
    let kernel = kernel.map(|elf| Module { path: "the kernel".into(), elf, bias: 0 });
    Ok(Machinery { modules, kernel })
}

fn script(program: &str, machinery: &Machinery) -> Result<Script> {
    let script = if program.ends_with(".o") || Path::new(program).is_file() {
        let bytes = fs::read(program).map_err(|e| Fault::new(format!("cannot read {program}: {e}")))?;
        let address = |name: &str| symbols::address(&machinery.modules, machinery.kernel.as_ref(), name);
        objects::read(&bytes, &address)
    } else {
        language::compile(program)
    };
    let refused = |e: String| Fault::new(format!("{program}: {e}"));
    let script = script.map_err(refused)?;
    script.verify().map_err(refused)?;
    Ok(script)
}

/// Exit code of a command that the machine does not have.
const UNKNOWN_COMMAND: u8 = 127;

/// Sends a package and waits until its programs are attached.
fn attach(client: &Client, name: &str, package: &[u8]) -> Result<()> {
    let running = client.start(&["bpf", "attach", name], false, 0)?;
    let input = running.input();
    let bytes = package.to_vec();
    let writer = thread::spawn(move || input.write(&bytes).and_then(|_| input.end()));
    let mut failure = None;
    let code = loop {
        match running.next() {
            Event::Failure(f) if f.subject.is_empty() => failure = Some(f.text),
            Event::Failure(f) => failure = Some(format!("{}: {}", f.subject, f.text)),
            Event::Exit(exit) => break exit.code,
            Event::Lost(why) => return Err(Fault::new(why)),
            Event::Out(_) | Event::Err(_) => {}
        }
    };
    if code == UNKNOWN_COMMAND {
        let without = "this machine has no tracing; one started with `--kernel micro --set overlay=on` has";
        return Err(Fault::new(without));
    }
    // What it could not send is in the failure.
    let _ = writer.join();
    match failure {
        Some(why) => Err(Fault::new(why)),
        None if code != 0 => Err(Fault::new("the machine did not attach the programs")),
        None => Ok(()),
    }
}

pub fn act(store: &Store, args: &Args) -> Result<u8> {
    let machine = session::find(store, &args.machine)?;
    let client = session::connect(&machine)?;
    let machinery = machinery(&machine, &client)?;
    let script = script(&args.program, &machinery)?;
    let package =
        symbols::package(&script, &machinery.modules, machinery.kernel.as_ref()).map_err(Fault::new)?;
    let name = args.keep.clone().unwrap_or_else(|| format!("trace-{}", std::process::id()));
    let (stop, stopped) = channel();
    let mut signals = signal_hook::iterator::Signals::new([
        signal_hook::consts::SIGINT,
        signal_hook::consts::SIGTERM,
        signal_hook::consts::SIGHUP,
    ])
    .map_err(|e| Fault::new(format!("cannot watch for Ctrl-C: {e}")))?;
    thread::spawn(move || {
        for _ in signals.forever() {
            // The main thread may be past listening.
            let _ = stop.send(());
        }
    });
    attach(&client, &name, &package.encode())?;
    if args.keep.is_some() {
        return Ok(0);
    }
    let mut names: Vec<&str> = script.places.iter().map(|p| p.name.as_str()).collect();
    names.dedup();
    let until = args.duration.map_or("Ctrl-C to end".to_string(), |s| format!("for {s} s"));
    eprintln!("tracing {}: {until}", names.join(", "));
    // The machine detaches when this command ends, however it does.
    let follow = client.start(&["bpf", "follow", "-d", &name], false, 0)?;
    follow.input().end()?;
    let input = follow.input();
    let reports = script.reports.clone();
    let printer = thread::spawn(move || print_events(&follow, &reports));
    let deadline = args.duration.map(|s| Instant::now() + Duration::from_secs(s));
    loop {
        let wait =
            deadline.map_or(Duration::from_secs(3600), |d| d.saturating_duration_since(Instant::now()));
        match stopped.recv_timeout(wait.min(Duration::from_millis(200))) {
            Ok(()) | Err(RecvTimeoutError::Disconnected) => break,
            Err(RecvTimeoutError::Timeout) if deadline.is_some_and(|d| Instant::now() >= d) => break,
            Err(RecvTimeoutError::Timeout) if printer.is_finished() => break,
            Err(RecvTimeoutError::Timeout) => {}
        }
    }
    // What was printed in the last moment.
    thread::sleep(Duration::from_millis(60));
    let answer = client.run(&["bpf", "map", &name], false)?;
    input.interrupt()?;
    let lost = printer.join().map_err(|_| Fault::new("the output could not be shown"))?;
    let (elements, overruns) = report::elements(&String::from_utf8_lossy(&answer.out));
    let names = Names::new(machinery.modules.iter().chain(&machinery.kernel));
    let name_of = |a: u64| names.name(a).map_or_else(|| format!("{a:#x}"), str::to_string);
    for report in &script.reports {
        print!("{}", report.summary(&elements, &name_of));
    }
    for (map, count) in overruns {
        eprintln!("unilith: map {map} had no room {count} times");
    }
    lost.map_or(Ok(0), |why| Err(Fault::new(why)))
}

/// Shows lines and records as they come; answers why the machine was lost, if it was.
fn print_events(follow: &unilith_overlay::Running, reports: &[report::Report]) -> Option<String> {
    let mut rest = Vec::new();
    let mut out = std::io::stdout();
    loop {
        match follow.next() {
            Event::Out(bytes) => {
                rest.extend(bytes);
                while let Some(end) = rest.iter().position(|b| *b == b'\n') {
                    let line: Vec<u8> = rest.drain(..=end).collect();
                    let line = String::from_utf8_lossy(&line[..end]).into_owned();
                    // Nobody may be reading any more.
                    let _ = writeln!(out, "{}", shown(&line, reports));
                }
            }
            Event::Err(_) | Event::Failure(_) => {}
            Event::Exit(_) => return None,
            Event::Lost(why) => return Some(why),
        }
    }
}

fn shown(line: &str, reports: &[report::Report]) -> String {
    if let Some(text) = line.strip_prefix("print ") {
        return text.to_string();
    }
    let words: Vec<&str> = line.split(' ').collect();
    if let ["record", map, bytes] = words[..] {
        let record = report::unhex(bytes).unwrap_or_default();
        let known = reports.iter().find_map(|r| r.line(map, &record));
        return known.unwrap_or_else(|| format!("{map} {bytes}"));
    }
    line.to_string()
}
