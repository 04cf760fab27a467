// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `ps`, `kill` and `restart`.

use crate::arguments::{Arguments, number};
use crate::paths::failed;
use crate::signals;
use abi::errno::EAGAIN;
use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use api_overlay::{Column, Command, Completes, Failure, Listing, Outcome, Session, Stream, Value, manual};
use sched::Thread;
use task::pids::Pid;
use task::process::Process;
use task::signals::{SIGNALS, SIGRTMIN};
use task::{auxiliary, processes, restart};

pub const COMMANDS: [Command; 3] = [
    Command {
        name: "ps",
        arguments: "",
        summary: manual!("List threads"),
        help: manual!(
            "Lists the program's threads and the kernel's: number, state (R runs or is about to, S waits, T stopped), \
               processor time in seconds, name. Threads of the kernel have no number."
        ),
        completes: Completes::Nothing,
        run: ps,
    },
    Command {
        name: "kill",
        arguments: manual!("[-s SIGNAL | -SIGNAL] [THREAD...] | -l"),
        summary: manual!("Send a signal to the program"),
        help: manual!(
            "Sends the program a signal, SIGTERM unless another one is named, by name or number. With numbers of \
               threads (`ps` lists them) it goes to these threads alone; 1 is the program as a whole.\n\
               -l  list the signals\n\
               kill -HUP  lets a program read its configuration again, where it does so by itself"
        ),
        completes: Completes::Signals,
        run: kill,
    },
    Command {
        name: "restart",
        arguments: "",
        summary: manual!("Start the program again, with the files as they are now"),
        help: manual!(
            "Starts the program as it was started first, with the same arguments and environment, in place of the one \
               that runs. The machine's files stay; memory, threads and connections of the old one are gone. When the \
               program cannot be loaded the old one goes on."
        ),
        completes: Completes::Nothing,
        run: restart,
    },
];

const SIGTERM: i32 = 15;
const COULD_NOT: &str = "the program cannot be loaded; the old one goes on";
/// How often it is looked whether the program has started again.
const LOOK_AGAIN_NS: u64 = 1_000_000;

const THREADS: [Column; 4] = [
    Column::right("tid", "TID", 5),
    Column::left("state", "STATE", 5),
    Column::right("cpu_ns", "TIME", 9),
    Column::left("name", "NAME", 0),
];

/// One thread, as `ps` and `top` show it.
pub struct Row {
    /// `None`: the kernel's.
    pub tid: Option<i32>,
    /// Tells it from others for as long as it lives.
    pub index: u32,
    pub state: char,
    pub cpu_ns: u64,
    pub name: String,
}

fn state(thread: &Thread, process: &Process) -> char {
    match thread.is_parked() {
        _ if process.signals.is_stopped() => 'T',
        true => 'S',
        false => 'R',
    }
}

/// All threads: those of the processes by number, then the kernel's.
pub fn threads() -> Result<Vec<Row>, Failure> {
    auxiliary::program().map_err(failed(b""))?;
    let mut rows: Vec<Row> = Vec::new();
    let mut known: Vec<Arc<Thread>> = Vec::new();
    for process in processes::all() {
        for task in process.tasks() {
            let Some(thread) = task.thread() else { continue };
            rows.push(Row {
                tid: Some(task.tid.of_machine()),
                index: thread.index,
                state: state(&thread, &process),
                cpu_ns: task.cpu_ns(),
                name: String::from_utf8_lossy(&task.comm()).into_owned(),
            });
            known.push(thread);
        }
    }
    for thread in sched::threads() {
        if known.iter().any(|k| Arc::ptr_eq(k, &thread)) {
            continue;
        }
        rows.push(Row {
            tid: None,
            index: thread.index,
            state: if thread.is_parked() { 'S' } else { 'R' },
            cpu_ns: thread.cpu_ns(),
            name: "[overlay]".into(),
        });
    }
    Ok(rows)
}

fn ps(session: &dyn Session, arguments: &[&[u8]]) -> Outcome {
    Arguments::parse(arguments, "aefx", "")?.no_operands()?;
    let mut list = Listing::new(session, &THREADS);
    for row in threads()? {
        let mut state = [0; 4];
        list.row(&[
            row.tid.map_or(Value::None, |tid| Value::Signed(tid.into())),
            Value::Text(row.state.encode_utf8(&mut state)),
            Value::Nanoseconds(row.cpu_ns),
            Value::Text(&row.name),
        ])?;
    }
    Ok(0)
}

fn restart(session: &dyn Session, arguments: &[&[u8]]) -> Outcome {
    if !arguments.is_empty() {
        return Err(Failure::usage("no arguments are taken"));
    }
    let process = auxiliary::program().map_err(|e| Failure::new("").errno(e))?;
    restart::ask(&process).map_err(|e| Failure::new("").because("it is being restarted already").errno(e))?;
    loop {
        match process.restarts.outcome() {
            Err(EAGAIN) => {}
            outcome => return outcome.map(|()| 0).map_err(|e| Failure::new("").because(COULD_NOT).errno(e)),
        }
        if let Err(stop) = session.sleep(api_plat::now_ns() + LOOK_AGAIN_NS) {
            process.restarts.withdraw();
            return Err(stop.into());
        }
    }
}

fn kill(session: &dyn Session, arguments: &[&[u8]]) -> Outcome {
    let mut signal = SIGTERM;
    let mut targets = Vec::new();
    let mut rest = arguments.iter();
    let parse = |text: &[u8]| {
        let shown = String::from_utf8_lossy(text);
        signals::parse(text)
            .ok_or_else(|| Failure::usage(format!("{shown} is no signal; `kill -l` lists them")))
    };
    while let Some(argument) = rest.next() {
        match *argument {
            b"-l" => return list_signals(session),
            b"-s" => {
                let name = rest.next().ok_or_else(|| Failure::usage("-s needs the name of a signal"))?;
                signal = parse(name)?;
            }
            b"--" => {}
            [b'-', name @ ..] if targets.is_empty() && !name.is_empty() => signal = parse(name)?,
            target => targets.push(target),
        }
    }
    auxiliary::program().map_err(failed(b""))?;
    if targets.is_empty() {
        targets.push(b"1");
    }
    let mut code = 0;
    for target in targets {
        let tid = number(target).and_then(|n| i32::try_from(n).ok());
        let Some(tid) = tid else {
            let shown = String::from_utf8_lossy(target);
            return Err(Failure::usage(format!("{shown} is no number of a thread")));
        };
        if let Err(e) = auxiliary::signal(Pid::from_machine(tid), signal) {
            session.fail(&Failure::about(target).errno(e))?;
            code = Failure::FAILED;
        }
    }
    Ok(code)
}

const SIGNAL_COLUMNS: [Column; 2] = [Column::right("number", "NUMBER", 6), Column::left("name", "NAME", 0)];

fn list_signals(session: &dyn Session) -> Outcome {
    let mut list = Listing::new(session, &SIGNAL_COLUMNS);
    for signal in 1..SIGRTMIN {
        list.row(&[Value::Signed(signal.into()), Value::Text(signals::short_name(signal))])?;
    }
    if !session.json() {
        let rest = format!("{SIGRTMIN} to {SIGNALS} are real-time signals: a number, or RTMIN+n\n");
        session.write(Stream::Out, rest.as_bytes())?;
    }
    Ok(0)
}
