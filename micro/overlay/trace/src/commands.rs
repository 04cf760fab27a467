// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `bpf`: what is attached, what it found.

use crate::code::undisturbed;
use crate::load::{self, Active, Loaded};
use crate::points;
use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use api_alloc::Reserve;
use api_overlay::{Column, Command, Completes, Failure, Listing, Outcome, Session, Stream, Value, manual};
use api_probes::Kind;
use bpf::maps::{Kind as MapKind, Map};
use core::sync::atomic::Ordering;

/// Longest package: programs, not data.
const MAX_BYTES: usize = 4 << 20;
/// How often output is looked for.
const INTERVAL_NS: u64 = 20_000_000;

pub static COMMANDS: [Command; 1] = [Command {
    name: "bpf",
    arguments: manual!(
        "list | attach NAME | trace [-b] NAME | follow [-b] NAME | map NAME [MAP] | detach NAME... | points | helpers"
    ),
    summary: manual!("eBPF programs at functions and tracepoints"),
    help: manual!(
        "list: what is attached and how often it was hit.\n\
           attach NAME: reads a package (made by `unilith trace`) from standard input, verifies and attaches it.\n\
           trace NAME: attaches as well, prints `attached` and what follow does, and takes the programs away when it ends: at an \
           interrupt, and when its client goes.\n\
           follow NAME: prints lines and records as programs write them; with -b a record is a line `bytes MAP LENGTH` and so \
           many bytes.\n\
           map NAME [MAP]: the contents of its maps, in hexadecimal: map, key, and a value for each processor.\n\
           detach NAME...: takes programs away; the functions get their bytes back.\n\
           points: the tracepoints. helpers: the helper functions and their numbers."
    ),
    completes: Completes::Probes,
    run,
}];

fn run(session: &dyn Session, arguments: &[&[u8]]) -> Outcome {
    let name = |at: usize| match arguments.get(at) {
        Some(name) => core::str::from_utf8(name).map_err(|_| Failure::usage("a name is not text")),
        None => Err(Failure::usage("which? give a name")),
    };
    match arguments.first().copied().unwrap_or(b"list") {
        b"list" => list(session),
        b"attach" => attach(session, name(1)?).map(|_| 0),
        what @ (b"trace" | b"follow") => {
            let bytes = match arguments.get(1) {
                Some(flag) if flag.starts_with(b"-") && *flag != b"-b" => {
                    return Err(Failure::usage("trace and follow have one flag, -b"));
                }
                first => first.is_some_and(|flag| *flag == b"-b"),
            };
            let name = name(1 + usize::from(bytes))?;
            if what == b"trace" {
                trace(session, name, bytes)
            } else {
                print_output(session, &find(name)?, bytes)
            }
        }
        b"map" => map(session, name(1)?, arguments.get(2).copied()),
        b"detach" => {
            name(1)?;
            for at in 1..arguments.len() {
                if !load::detach(&find(name(at)?)?) {
                    return Err(unknown(name(at)?));
                }
            }
            Ok(0)
        }
        b"points" => points(session),
        b"helpers" => helpers(session),
        other => Err(Failure::usage(format!("there is no `bpf {}`", String::from_utf8_lossy(other)))),
    }
}

/// What may follow `bpf`: what it does, and the names of what is attached.
pub fn complete(prefix: &[u8], found: &mut dyn FnMut(&[u8])) {
    const WHAT: [&str; 8] = ["list", "attach", "trace", "follow", "map", "detach", "points", "helpers"];
    let mut add = |word: &str| {
        if word.as_bytes().starts_with(prefix) {
            found(word.as_bytes());
        }
    };
    WHAT.into_iter().for_each(&mut add);
    load::names().iter().for_each(|name| add(name));
}

fn unknown(name: &str) -> Failure {
    Failure::new(name).because("nothing of this name is attached")
}

fn find(name: &str) -> Result<Arc<Loaded>, Failure> {
    load::find(name).ok_or_else(|| unknown(name))
}

fn list(session: &dyn Session) -> Outcome {
    let columns = [
        Column::left("name", "NAME", 16),
        Column::left("program", "PROGRAM", 16),
        Column::left("kind", "KIND", 10),
        Column::left("place", "PLACE", 28),
        Column::right("hits", "HITS", 10),
    ];
    let mut list = Listing::new(session, &columns);
    for a in load::all() {
        let kind = match a.kind {
            Kind::Entry => "entry",
            Kind::Return => "return",
            Kind::Tracepoint => "tracepoint",
        };
        let hits = a.hits.load(Ordering::Relaxed);
        list.row(&[
            Value::Text(&a.loaded.name),
            Value::Text(a.program()),
            Value::Text(kind),
            Value::Text(&a.place),
            Value::Number(hits),
        ])?;
    }
    Ok(0)
}

fn attach(session: &dyn Session, name: &str) -> Result<Arc<Loaded>, Failure> {
    let mut package = Vec::new();
    let mut piece = vec![0; 16 << 10];
    loop {
        let n = session.read(&mut piece)?;
        if n == 0 {
            break;
        }
        if package.len() + n > MAX_BYTES || package.reserve_fallibly(n).is_err() {
            return Err(Failure::new(name).because("a package of more than 4 MiB"));
        }
        package.extend_from_slice(&piece[..n]);
    }
    load::attach(name, &package, &mut || session.checkpoint().is_ok())
}

/// Between attaching and detaching is nothing that could keep the second from happening: a client that goes, at whatever
/// moment, is an error of a call in between.
fn trace(session: &dyn Session, name: &str, bytes: bool) -> Outcome {
    let loaded = attach(session, name)?;
    let said = session.write(Stream::Out, b"attached\n").map_err(Failure::from);
    let outcome = said.and_then(|()| print_output(session, &loaded, bytes));
    load::detach(&loaded);
    outcome
}

fn print_output(session: &dyn Session, loaded: &Arc<Loaded>, bytes: bool) -> Outcome {
    let is_own = |a: &Arc<Active>| Arc::ptr_eq(&a.loaded, loaded) && points::is_every(&a.place);
    let mut every: Vec<(Arc<Active>, u64)> = load::all().into_iter().filter(is_own).map(|a| (a, 0)).collect();
    loop {
        for (active, due) in &mut every {
            *due = points::run_due(active, *due, INTERVAL_NS);
        }
        while let Some(line) = take(&loaded.output) {
            session.write(Stream::Out, b"print ")?;
            session.write(Stream::Out, &line)?;
            session.write(Stream::Out, b"\n")?;
        }
        for map in loaded.maps.iter().filter(|m| m.spec.kind == MapKind::RingBuffer) {
            while let Some(record) = take(map) {
                if bytes {
                    let line = format!("bytes {} {}\n", map.spec.name, record.len());
                    session.write(Stream::Out, line.as_bytes())?;
                    session.write(Stream::Out, &record)?;
                } else {
                    let line = format!("record {} {}\n", map.spec.name, hex(&record));
                    session.write(Stream::Out, line.as_bytes())?;
                }
            }
        }
        session.flush()?;
        if !load::find(&loaded.name).is_some_and(|l| Arc::ptr_eq(&l, loaded)) {
            return Ok(0);
        }
        session.sleep(api_plat::now_ns() + INTERVAL_NS)?;
    }
}

/// One record of a ring buffer.
fn take(map: &Map) -> Option<Vec<u8>> {
    let mut record = None;
    undisturbed(|| map.take_record(&mut |r| record = Some(r.to_vec())));
    record
}

fn hex(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(2 * bytes.len());
    for byte in bytes {
        for digit in [byte >> 4, byte & 15] {
            out.push(char::from(b"0123456789abcdef"[usize::from(digit)]));
        }
    }
    out
}

fn map(session: &dyn Session, name: &str, only: Option<&[u8]>) -> Outcome {
    let loaded = find(name)?;
    let mut seen = only.is_none();
    for map in &loaded.maps {
        if only.is_some_and(|only| only != map.spec.name.as_bytes()) {
            continue;
        }
        seen = true;
        let mut key = vec![0; map.spec.key as usize];
        let mut value = vec![0; map.spec.value as usize];
        let mut from = 0;
        loop {
            session.checkpoint()?;
            let Some(slot) = undisturbed(|| map.next(from)) else { break };
            undisturbed(|| map.read_key(slot, &mut key));
            let mut line = format!("{} {}", map.spec.name, hex(&key));
            for cpu in 0..map.cpus() {
                undisturbed(|| map.read_value(slot, cpu, &mut value));
                line.push(' ');
                line.push_str(&hex(&value));
            }
            line.push('\n');
            session.write(Stream::Out, line.as_bytes())?;
            from = slot + 1;
        }
        let lost = map.lost.load(Ordering::Relaxed);
        if lost > 0 {
            session.write(Stream::Out, format!("lost {} {lost}\n", map.spec.name).as_bytes())?;
        }
    }
    if seen { Ok(0) } else { Err(Failure::about(only.unwrap_or_default()).because("there is no such map")) }
}

fn points(session: &dyn Session) -> Outcome {
    let columns = [Column::left("name", "TRACEPOINT", 24), Column::left("context", "CONTEXT", 30)];
    let mut list = Listing::new(session, &columns);
    for point in api_trace::Point::ALL {
        let context = crate::points::context(point).name();
        list.row(&[Value::Text(point.name()), Value::Text(context)])?;
    }
    Ok(0)
}

fn helpers(session: &dyn Session) -> Outcome {
    let columns = [Column::right("number", "NUMBER", 6), Column::left("name", "HELPER", 24)];
    let mut list = Listing::new(session, &columns);
    for helper in bpf::helpers::ALL {
        list.row(&[Value::Number(helper.id as u64), Value::Text(helper.name)])?;
    }
    Ok(0)
}
