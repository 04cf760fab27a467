// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How often the processor leaves a machine under KVM, by KVM's own count: exact where times are not, as in a KVM that is
//! emulated (`tests/kvm/rig run target/release/unilith bench exits`). Each exit costs a real processor 1 to 2 us, and some 5 to
//! 10 us where QEMU has to act.

use crate::load::Load;
use crate::{
    Options, Result, Scratch, client, programs, side::Machine, side::Side, statistics, statistics::Samples,
};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

/// Where KVM counts, one folder for each machine, named by its process; for root, with debugfs mounted.
const COUNTS: &str = "/sys/kernel/debug/kvm";
/// What is counted, and its name in the table. The first is the sum of all, of others as well.
const KINDS: [(&str, &str); 7] = [
    ("exits", "exits"),
    ("halt_exits", "sleeps"),
    ("io_exits", "ports"),
    ("mmio_exits", "device memory"),
    ("irq_exits", "the host's interrupts"),
    ("irq_window_exits", "waits to interrupt"),
    ("irq_injections", "interrupts taken (no exits)"),
];
/// Seconds for which a machine is looked at that has nothing to do.
const IDLE: u64 = 10;
const REQUESTS: usize = 320;
/// A program of calls is run with both numbers; the difference is theirs.
const CALLS: [u32; 2] = [20_480, 122_880];
/// The same of lines, which may cost an exit for each byte.
const LINES: [u32; 2] = [500, 2_500];
/// 100 ms each.
const PATIENCE: u32 = 1200;

type Count = [f64; KINDS.len()];
/// By figure and kind, for each side.
type Table = BTreeMap<(usize, usize), Vec<Samples>>;

const FIGURES: [&str; 9] = [
    "from nothing until Redis is ready",
    "a second in which nothing runs",
    "a second of Redis without requests",
    "Redis: a GET, one at a time",
    "Redis: a GET, 16 in flight",
    "nginx: a small page, one at a time",
    "a null call",
    "the first touch of a page",
    "a line of 64 bytes, printed",
];

pub fn run(options: &Options) -> Result<()> {
    let mut sides = options.sides();
    sides.push(Side::MicroQ35);
    let scratch = Scratch::new("exits")?;
    let program = scratch.path().join("calls");
    programs::build(options, "exits/calls.c", &program)?;
    let mut table = Table::new();
    for _ in 0..options.runs {
        for (column, side) in sides.iter().enumerate() {
            let counted = of_side(options, *side, &program.to_string_lossy())?;
            for (figure, count) in counted.iter().enumerate() {
                for (kind, value) in count.iter().enumerate() {
                    let row =
                        table.entry((figure, kind)).or_insert_with(|| vec![Samples::default(); sides.len()]);
                    row[column].add(*value);
                }
            }
        }
    }
    statistics::head(&sides.iter().map(|side| side.name()).collect::<Vec<_>>());
    for ((figure, kind), row) in &table {
        let (figure, kind) = (FIGURES[*figure], KINDS[*kind].1);
        // Kinds that do not occur tell nothing.
        if row.iter().any(|samples| samples.median().is_some_and(|median| median >= 0.01)) {
            statistics::row(figure, kind, row);
        }
    }
    Ok(())
}

/// Everything that is counted, once, in the order of [`FIGURES`].
fn of_side(options: &Options, side: Side, program: &str) -> Result<[Count; FIGURES.len()]> {
    // In an emulated KVM each of these takes half a minute.
    let progress = |what: &str| eprintln!("unilith: exits: {}: {what}", side.name());
    progress("Redis");
    let redis = Machine::start(options, side, &["-m", "256M", "redis"])?;
    let counts = Counts::of(&redis)?;
    let start = counts.read()?;
    let idle_redis = counts.while_idle()?;
    let address = redis.address()?;
    let get = |pipeline: &str| {
        let requests = REQUESTS.to_string();
        let words = [
            "redis-benchmark",
            "-h",
            &address,
            "-c",
            "1",
            "-n",
            &requests,
            "-P",
            pipeline,
            "-t",
            "get",
            "-q",
        ];
        counts.each(REQUESTS as f64, || client::run(&words).map(drop))
    };
    let (one, sixteen) = (get("1")?, get("16")?);
    drop(redis);
    progress("nginx");
    let nginx = Machine::start(options, side, &["-m", "256M", "nginx"])?;
    let address = format!("{}:80", nginx.address()?);
    let pages = Load {
        connections: 1,
        requests: REQUESTS,
        request: |_| b"GET / HTTP/1.1\r\nHost: machine\r\n\r\n".to_vec(),
        is_complete: is_whole_page,
    };
    let page = Counts::of(&nginx)?.each(REQUESTS as f64, || pages.run(&address).map(drop))?;
    drop(nginx);
    progress("a program that sleeps");
    let sleeper = Machine::start_any(options, side, &["--network", "none", "busybox", "sleep", "100000"])?;
    let idle = Counts::of(&sleeper)?.while_idle()?;
    drop(sleeper);
    progress("system calls and page faults");
    let call = of_calls(options, side, program, "null", CALLS)?;
    let touch = of_calls(options, side, program, "fault", CALLS)?;
    progress("lines");
    let line = of_calls(options, side, program, "print", LINES)?;
    Ok([start, idle, idle_redis, one, sixteen, page, call, touch, line])
}

/// What one of many calls costs.
fn of_calls(options: &Options, side: Side, program: &str, what: &str, counts: [u32; 2]) -> Result<Count> {
    let mut total = [[0.0; KINDS.len()]; 2];
    for (count, total) in counts.iter().zip(&mut total) {
        let count = count.to_string();
        let words = ["-m", "128M", "--network", "none", program, what, &count];
        let machine = Machine::start_any(options, side, &words)?;
        machine.wait_for_output("counted", PATIENCE)?;
        *total = Counts::of(&machine)?.read()?;
    }
    Ok(difference(&total[1], &total[0], f64::from(counts[1] - counts[0])))
}

/// The counters of one machine.
struct Counts(PathBuf);

impl Counts {
    fn of(machine: &Machine) -> Result<Counts> {
        let pid = machine.pid()?;
        let folders = std::fs::read_dir(COUNTS)
            .map_err(|e| format!("{COUNTS}: {e} (for root, with debugfs mounted and KVM in use)"))?;
        let of_machine = format!("{pid}-");
        let mut folders = folders.filter_map(|entry| Some(entry.ok()?.path()));
        let folder = folders.find(|path| {
            path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(&of_machine))
        });
        folder.map(Counts).ok_or_else(|| {
            "the machine does not run under KVM (unilith doctor says why); on a computer without it: tests/kvm/rig run \
             target/release/unilith bench exits"
                .into()
        })
    }

    fn read(&self) -> Result<Count> {
        let mut out = [0.0; KINDS.len()];
        for (value, (file, _)) in out.iter_mut().zip(KINDS) {
            let path = self.0.join(file);
            let text = std::fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))?;
            *value = text.trim().parse().map_err(|e| format!("{}: {e}", path.display()))?;
        }
        Ok(out)
    }

    /// What is counted while something is done `times` times, for each.
    fn each(&self, times: f64, does: impl FnOnce() -> Result<()>) -> Result<Count> {
        let before = self.read()?;
        does()?;
        Ok(difference(&self.read()?, &before, times))
    }

    fn while_idle(&self) -> Result<Count> {
        // What comes behind a start is over.
        std::thread::sleep(Duration::from_secs(3));
        self.each(IDLE as f64, || {
            std::thread::sleep(Duration::from_secs(IDLE));
            Ok(())
        })
    }
}

fn difference(after: &Count, before: &Count, times: f64) -> Count {
    std::array::from_fn(|kind| (after[kind] - before[kind]) / times)
}

/// The head of an HTTP answer has come, and all bytes that it announces.
fn is_whole_page(answer: &[u8]) -> bool {
    let text = String::from_utf8_lossy(answer);
    let Some((head, body)) = text.split_once("\r\n\r\n") else { return false };
    let length = head.lines().find_map(|line| line.strip_prefix("Content-Length: ")?.parse().ok());
    length.is_some_and(|length: usize| body.len() >= length)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn page_is_whole_when_its_announced_bytes_have_come() {
        assert!(!is_whole_page(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n"));
        assert!(!is_whole_page(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nab"));
        assert!(is_whole_page(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc"));
    }

    #[test]
    fn exits_of_each_are_the_difference_by_their_number() {
        let mut before = [0.0; KINDS.len()];
        let mut after = before;
        (before[0], after[0]) = (100.0, 350.0);
        assert_eq!(difference(&after, &before, 100.0)[0], 2.5);
    }
}
