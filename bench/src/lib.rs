// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Comparisons, side by side: the micro-library OS and a Linux guest of the same QEMU settings, in one run; and a machine
//! that is a process beside the same program as an ordinary process (`native`).
//!
//! One folder below `bench/` is one experiment; this crate drives them through the `unilith` command, as a user
//! would. Runs of the sides are interleaved, so that a noisy machine disturbs both alike; QEMU runs on processor 0
//! and clients on processor 1; each figure is a median with its spread (least and most) and the number of runs.
//! Guests are measured over tap, which needs root.

mod client;
mod load;
mod scratch;
mod side;
mod statistics;

#[path = "../allocators/allocators.rs"]
mod allocators;
#[path = "../boot/boot.rs"]
mod boot;
#[path = "../containers/containers.rs"]
mod containers;
#[path = "../exits/exits.rs"]
mod exits;
#[path = "../raw/files.rs"]
mod files;
#[path = "../memory/memory.rs"]
mod memory;
#[path = "../native/native.rs"]
mod native;
#[path = "../nginx/nginx.rs"]
mod nginx;
#[path = "../overlay/mod.rs"]
mod overlay;
#[path = "../processes/processes.rs"]
mod processes;
#[path = "../programs.rs"]
mod programs;
#[path = "../raw/raw.rs"]
mod raw;
#[path = "../redis/redis.rs"]
mod redis;
#[path = "../size/size.rs"]
mod size;
#[path = "../spectrum/spectrum.rs"]
pub mod spectrum;
#[path = "../ukl/ukl.rs"]
mod ukl;

use scratch::Scratch;
use side::Side;
use std::path::PathBuf;

/// What went wrong, in one line.
pub type Result<T> = std::result::Result<T, String>;

/// How to run.
#[derive(Clone, Debug)]
pub struct Options {
    /// The `unilith` command.
    pub command: PathBuf,
    /// The repository.
    pub root: PathBuf,
    /// Runs of each side.
    pub runs: usize,
    /// Only the micro-library OS: no Linux kernel is built.
    pub micro_only: bool,
}

impl Options {
    fn sides(&self) -> Vec<Side> {
        let all = [Side::Micro, Side::Linux];
        all.into_iter().filter(|s| !self.micro_only || *s == Side::Micro).collect()
    }
}

/// The columns of most tables.
const MICRO_AND_LINUX: [&str; 2] = ["micro", "linux"];

type Experiment = fn(&Options) -> Result<()>;

/// Name, what it answers, and how.
const EXPERIMENTS: &[(&str, &str, Experiment)] = &[
    ("boot", "from the start of QEMU to the first answer of Redis", boot::run),
    ("syscall", "nanoseconds a system call takes", programs::system_calls),
    ("fault", "nanoseconds the first touch of a page takes", programs::faults),
    ("process-calls", "nanoseconds that fork, execve, wait and a pipe take", processes::run),
    (
        "raw",
        "a UDP store by sockets, in batches and on the bare network device: what an answer takes",
        raw::run,
    ),
    ("shfs", "what an open of a file takes by the VFS and through SHFS", files::run),
    (
        "allocators",
        "nginx, Redis and SQLite with each heap library as their malloc, unmodified and linked",
        allocators::run,
    ),
    ("redis", "requests a second over tap, pipelined and not", redis::run),
    ("nginx", "requests a second for a small page over tap", nginx::run),
    ("overlay", "what the overlay costs, idle and in use; round trips; files of the host", overlay::run),
    ("overlay-load", "of these: requests a second, with commands running", overlay::load::run),
    ("overlay-instructions", "of these: instructions a request takes", overlay::instructions::run),
    (
        "overlay-busiest",
        "which functions of the programs of overlay-instructions are called most",
        overlay::busiest::run,
    ),
    ("overlay-line", "of these: round trips", overlay::line::run),
    ("overlay-loading", "of these: how long a program takes to be loaded", overlay::loading::run),
    ("overlay-size", "of these: image and memory", overlay::size),
    ("overlay-files", "of these: files of the host", overlay::files::run),
    ("native", "a process machine beside the same program on this computer and on Linux", native::run),
    (
        "containers",
        "containers of Podman as machines and with runc: start, files, memory, network",
        containers::run,
    ),
    ("size", "bytes of the kernel image", size::run),
    ("ukl", "Linux's levels against ordinary Linux", ukl::run),
    ("ukl-calls", "of these: instructions of a call and of page faults", ukl::calls::in_instructions),
    ("ukl-request", "of these: instructions of a request of Redis", ukl::calls::request),
    ("ukl-time", "of these: nanoseconds of a call and of page faults", ukl::calls::in_time),
    ("ukl-redis", "of these: requests a second and 99th percentile of Redis", ukl::network::redis),
    ("ukl-memcached", "of these: 99th percentile of memcached, 4 to 40 connections", ukl::network::memcached),
    ("ukl-echo", "of these: mean and 99th percentile of a TCP echo server", ukl::network::echo),
    ("ukl-fio", "of these: random reads and writes of a disk, one at a time", ukl::disk::run),
    ("exits", "how often the processor leaves a machine under KVM, by KVM's count", exits::run),
    ("memory", "the least memory Redis answers in, and what QEMU takes of the host's", memory::run),
];

/// Names and descriptions of the experiments.
pub fn experiments() -> impl Iterator<Item = (&'static str, &'static str)> {
    EXPERIMENTS.iter().map(|(name, what, _)| (*name, *what))
}

/// Runs one experiment and prints its table.
pub fn run(name: &str, options: &Options) -> Result<()> {
    let Some((_, what, experiment)) = EXPERIMENTS.iter().find(|(known, _, _)| *known == name) else {
        let known: Vec<&str> = EXPERIMENTS.iter().map(|(known, _, _)| *known).collect();
        return Err(format!("there is no experiment `{name}`; there are: {}", known.join(", ")));
    };
    println!("## {name}: {what}\n");
    experiment(options).map_err(|e| format!("{name}: {e}"))
}
