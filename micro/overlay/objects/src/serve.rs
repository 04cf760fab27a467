// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The command's side of a running program.

use crate::programs::Program;
use crate::run::{Console, End, Outcome, Run};
use abi::errno::*;
use alloc::format;
use alloc::sync::Arc;
use alloc::vec::Vec;
use api_alloc::Reserve;
use api_overlay::{Failure, Session, Stop, Stream};
use core::cell::{Cell, RefCell};

/// How long a program may run.
#[derive(Clone, Copy)]
pub struct Limits {
    /// Processor time; `u64::MAX` for no limit.
    pub time_ns: u64,
    /// How long it may hold a thread of the application.
    pub hold_ns: u64,
}

/// Standard input, as far as it is more than the session's.
#[derive(Default)]
pub struct Input {
    /// Was read before the program was there.
    before: RefCell<Vec<u8>>,
    /// So many bytes are not the program's.
    skip: Cell<u64>,
}

impl Input {
    pub fn put(&self, bytes: Vec<u8>) {
        self.before.replace(bytes);
    }

    pub fn skip(&self, count: u64) {
        self.skip.set(count);
    }

    /// At most `length` bytes; none at the end.
    fn read(&self, session: &dyn Session, length: usize) -> Result<abi::Result<Vec<u8>>, Stop> {
        let mut before = self.before.borrow_mut();
        if !before.is_empty() {
            let length = length.min(before.len());
            let rest = before.split_off(length);
            return Ok(Ok(core::mem::replace(&mut *before, rest)));
        }
        let mut buffer = Vec::new();
        if buffer.reserve_exact_fallibly(length).is_err() {
            return Ok(Err(ENOMEM));
        }
        buffer.resize(length, 0);
        loop {
            let skip = self.skip.get().min(length as u64) as usize;
            let wanted = if skip > 0 { skip } else { length };
            let count = session.read(&mut buffer[..wanted])?;
            if skip == 0 || count == 0 {
                buffer.truncate(count);
                return Ok(Ok(buffer));
            }
            self.skip.set(self.skip.get() - count as u64);
        }
    }
}

/// Runs a program to its end. Answers its exit code.
pub fn run(
    session: &dyn Session,
    program: &Arc<Program>,
    arguments: &[&[u8]],
    limits: Limits,
    input: &Input,
) -> core::result::Result<u8, Failure> {
    let claimed = program.claim()?;
    let run = Run::start(claimed.0.clone(), arguments)
        .map_err(|e| Failure::new(&*program.name).errno(e).code(Failure::REFUSED))?;
    let mut stopped = false;
    let outcome = loop {
        if let Some(outcome) = run.take_outcome() {
            break outcome;
        }
        if stopped {
            // The program ends at its next instruction; nothing is to be waited for but that.
            api_sched::park(u64::MAX);
            continue;
        }
        let turn = match run.take_request() {
            Some(request) => serve(session, &run, request, input),
            None => wait(session, &run, limits),
        };
        if turn.is_err() {
            run.stop(End::Interrupt);
            stopped = true;
        }
    };
    let name = program.name.clone();
    drop(run);
    drop(claimed);
    match outcome {
        Outcome::Exit(code) => Ok(code),
        Outcome::Interrupted => Err(Stop.into()),
        Outcome::Killed { signal, text, trace } => {
            for line in trace {
                session.write(Stream::Err, format!("  {line}\n").as_bytes())?;
            }
            Err(Failure::new(name).because(text).code(128 + signal))
        }
    }
}

fn serve(session: &dyn Session, run: &Run, request: Console, input: &Input) -> Result<(), Stop> {
    match request {
        Console::Write { error, bytes } => {
            session.write(if error { Stream::Err } else { Stream::Out }, &bytes)?;
            run.answer(Ok(Vec::new()));
        }
        Console::Read { length } => run.answer(input.read(session, length)?),
    }
    Ok(())
}

/// Sleeps until there is something to do, at most until a limit may be reached.
fn wait(session: &dyn Session, run: &Run, limits: Limits) -> Result<(), Stop> {
    let now = api_plat::now_ns();
    let used = run.thread_cpu_ns();
    if used >= limits.time_ns {
        run.stop(End::Time);
    }
    let mut deadline = now.saturating_add(limits.time_ns.saturating_sub(used).max(1_000_000));
    if let Some(since) = run.held_since() {
        let end = since.saturating_add(limits.hold_ns);
        if now >= end {
            run.stop(End::Holding);
        } else {
            deadline = deadline.min(end);
        }
    }
    session.sleep(deadline)
}
