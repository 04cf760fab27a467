// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `top`.

use crate::arguments::Arguments;
use crate::processes::{Row, threads};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use api_overlay::{
    Column, Command, Completes, Failure, Listing, Outcome, Session, Stream, Value, manual, sort,
};

pub const COMMANDS: [Command; 1] = [Command {
    name: "top",
    arguments: manual!("[-d SECONDS] [-n TIMES]"),
    summary: manual!("Show which threads use the processor"),
    help: manual!(
        "Shows, every second until it is interrupted, how much of the processor each thread used since the last time, \
           most first; what is missing to 100 per cent is idle time.\n\
           -d  seconds from one time to the next, 1 to 3600\n\
           -n  so many times and no more"
    ),
    completes: Completes::Nothing,
    run: top,
}];

const SECOND: u64 = 1_000_000_000;
const COLUMNS: [Column; 5] = [
    Column::right("tid", "TID", 5),
    Column::left("state", "STATE", 5),
    Column::right("share", "%CPU", 5),
    Column::right("cpu_ns", "TIME", 9),
    Column::left("name", "NAME", 0),
];
/// Home, then clear to the end (ECMA-48 8.3.21, 8.3.39).
const CLEAR: &[u8] = b"\x1b[H\x1b[2J";

fn top(session: &dyn Session, arguments: &[&[u8]]) -> Outcome {
    let options = Arguments::parse(arguments, "", "dn")?;
    options.no_operands()?;
    let seconds = options.number(b'd')?.unwrap_or(1);
    if !(1..=3600).contains(&seconds) {
        return Err(Failure::usage("-d: 1 to 3600 seconds"));
    }
    let mut left = options.number(b'n')?.unwrap_or(u64::MAX);
    let (mut before, mut since) = (threads()?, api_plat::now_ns());
    while left > 0 {
        left -= 1;
        let until = since + seconds * SECOND;
        while api_plat::now_ns() < until {
            session.sleep(until)?;
        }
        let (after, now) = (threads()?, api_plat::now_ns());
        show(session, &before, &after, now - since)?;
        (before, since) = (after, now);
    }
    Ok(0)
}

fn show(session: &dyn Session, before: &[Row], after: &[Row], elapsed: u64) -> Result<(), Failure> {
    let used = |row: &Row| {
        let earlier = before.iter().find(|b| b.index == row.index && b.tid == row.tid);
        row.cpu_ns.saturating_sub(earlier.map_or(0, |b| b.cpu_ns))
    };
    let share = |used: u64| used.saturating_mul(1000) / elapsed.max(1);
    let mut rows: Vec<(u64, &Row)> = after.iter().map(|row| (share(used(row)), row)).collect();
    sort(&mut rows, |a, b| (b.0, a.1.tid) < (a.0, b.1.tid));
    if !session.json() {
        let busy: u64 = rows.iter().map(|(share, _)| *share).sum();
        let idle = 1000u64.saturating_sub(busy);
        if session.columns() > 0 {
            session.write(Stream::Out, CLEAR)?;
        }
        let (_, free) = alloc_frames::statistics();
        let head: String = format!(
            "up {} s, {} threads, {}.{} % idle, {} MiB free\n",
            api_plat::now_ns() / SECOND,
            rows.len(),
            idle / 10,
            idle % 10,
            (free * abi::PAGE_SIZE as u64) >> 20
        );
        session.write(Stream::Out, head.as_bytes())?;
    }
    let mut list = Listing::new(session, &COLUMNS);
    for (share, row) in rows {
        let mut state = [0; 4];
        list.row(&[
            row.tid.map_or(Value::None, |tid| Value::Signed(tid.into())),
            Value::Text(row.state.encode_utf8(&mut state)),
            Value::Share(share),
            Value::Nanoseconds(row.cpu_ns),
            Value::Text(&row.name),
        ])?;
    }
    Ok(session.flush()?)
}
