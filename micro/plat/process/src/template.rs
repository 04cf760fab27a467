// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The template of host processes ([`crate::host_processes`]): a process that the machine makes of itself before anything else,
//! to make others of itself later.
//!
//! The filter of the machine allows no process to be made, so that nobody has to say how many a kernel that was taken over
//! could make. The template may make them, and cannot be taken over: it shares no memory with the machine, and all that the
//! machine can do to it is to write to a socket. Each byte there makes one process, [`MAX_HOST_PROCESSES`] at most whatever happens.
//! A process that was made has the filter before it maps what the machine can write.
//!
//! All of them end with the machine: its first process is number 1 of a namespace of process numbers, whose end the host makes
//! the end of all others. Where it is not (no namespaces allowed), there is no template, and one host process shows one space
//! after the other. The end of any of them is the end of the template, which is the end of the machine.
//!
//! A machine with volumes is given files of the host while it runs, and all of its processes read and write them. So their descriptors are
//! one table (CLONE_FILES), the template's among them: of these the machine can close only what it was given ([`crate::filter`]).

use crate::arguments::Arguments;
use crate::filter::{Filter, Open, SHARED_FUTEXES};
use crate::host::{self, MAP_ANONYMOUS, MAP_PRIVATE, PROT_READ, PROT_WRITE};
use crate::host_processes::{self, MAX_HOST_PROCESSES};
use crate::memory::Shares;
use crate::{boot, confine, idle, memory, processors, signals};
use abi::{Result, errno::EAGAIN, errno::EINTR};
use api_plat::MAX_CPUS;
use core::sync::atomic::{AtomicI32, AtomicU32, Ordering};
use plat_x86::asm::Label;

/// The machine's end of the socket.
static SOCKET: AtomicI32 = AtomicI32::new(-1);
/// The template's, where it is open in the machine as well.
static ITS_SOCKET: AtomicI32 = AtomicI32::new(-1);

/// What each host process has for itself alone: a page with its number, and its alternate stack.
pub const PRIVATE: u64 = 0x7049_0000_0000;
pub const ALTERNATE: u64 = PRIVATE + 0x1000;
pub const ALTERNATE_BYTES: u64 = 64 << 10;

/// Not 0 when the threads of the process may go on: the filter is there. A futex, in the page of the process' number.
const GO: *mut AtomicU32 = (PRIVATE + 8) as *mut AtomicU32;

/// A thread of a process that is being made waits until the filter is there, and then for the turn of its processor. It touches
/// no variable of the kernel.
#[inline(always)]
pub fn wait_for_turn(cpu: usize) -> ! {
    let turn = host_processes::turn_of(me(), cpu) as u64;
    // SAFETY: the page is this process' own, and the wait reads what it is meant to read.
    unsafe {
        while (*GO).load(Ordering::Acquire) == 0 {
            let _ = host::call(host::FUTEX, [GO as u64, SHARED_FUTEXES[0].into(), 0, 0, 0, 0]);
        }
        unilith_wait_for_turn(turn)
    }
}

/// The number of this host process.
pub fn me() -> usize {
    // SAFETY: the page was mapped before anything else ran here, and is written once, by `make_private`.
    unsafe { (PRIVATE as *const u32).read() as usize }
}

/// Makes what the process has for itself.
pub fn make_private(number: usize) -> Result<()> {
    // SAFETY: the place is this module's.
    unsafe {
        let flags = MAP_PRIVATE | MAP_ANONYMOUS;
        host::map(PRIVATE, ALTERNATE - PRIVATE + ALTERNATE_BYTES, PROT_READ | PROT_WRITE, flags, -1, 0)?;
        (PRIVATE as *mut u32).write(number as u32);
    }
    Ok(())
}

pub fn is_there() -> bool {
    SOCKET.load(Ordering::Relaxed) >= 0
}

/// The machine's end.
fn socket() -> i32 {
    SOCKET.load(Ordering::Relaxed)
}

/// What the machine keeps open of the socket; -1: nothing.
pub fn sockets() -> [i32; 2] {
    [socket(), ITS_SOCKET.load(Ordering::Relaxed)]
}

/// Answer of a process that was made: the host's numbers of its threads, the process' first, or 0 where the host refused it
/// something.
type Threads = [u32; MAX_CPUS];
type Answer = [u8; 4 * MAX_CPUS];

fn encode(threads: Threads) -> Answer {
    let mut answer: Answer = [0; 4 * MAX_CPUS];
    for (bytes, thread) in answer.chunks_exact_mut(4).zip(threads) {
        bytes.copy_from_slice(&thread.to_ne_bytes());
    }
    answer
}

/// Makes host process number `index`; the host's numbers of its threads. They wait for their turns.
pub fn request(index: usize) -> Result<Threads> {
    let socket = socket();
    if socket < 0 {
        return Err(EAGAIN);
    }
    host::write_all(socket, &[index as u8]);
    let mut answer: Answer = [0; 4 * MAX_CPUS];
    loop {
        match host::read(socket, &mut answer) {
            Err(EINTR) => {}
            Ok(n) if n == answer.len() => break,
            // The template is gone.
            _ => return Err(EAGAIN),
        }
    }
    let mut threads = [0; MAX_CPUS];
    for (thread, bytes) in threads.iter_mut().zip(answer.chunks_exact(4)) {
        *thread = u32::from_ne_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
    }
    if threads[0] == 0 { Err(EAGAIN) } else { Ok(threads) }
}

const SIGCHLD: u64 = 17;
const SIGKILL: u64 = 9;

/// Makes the template, while this process is as the host started it: nothing of it is shared yet. Where the machine could
/// leave processes behind there is none, and one host process has to do.
/// Answers what the machine keeps open of its socket, or -1. Touches no variable of the kernel, which are not in the machine's memory yet.
pub fn start(arguments: &Arguments<'_>, memory: i32) -> [i32; 2] {
    const NONE: [i32; 2] = [-1; 2];
    const AF_UNIX: u64 = 1;
    const SOCK_SEQPACKET: u64 = 5;
    // SAFETY: asks for a number.
    let is_first = unsafe { host::call(host::GETPID, [0; 6]) } == Ok(1);
    if !is_first {
        return NONE;
    }
    let mut pair = [0i32; 2];
    // SAFETY: the host writes two descriptors.
    let made =
        unsafe { host::call(host::SOCKETPAIR, [AF_UNIX, SOCK_SEQPACKET, 0, pair.as_mut_ptr() as u64, 0, 0]) };
    if made.is_err() {
        return NONE;
    }
    let shares = confine::has_volumes(arguments);
    match fork(shares) {
        Ok(0) => run(arguments, memory, pair),
        Ok(_) if shares => pair,
        Ok(_) => [pair[0], -1],
        Err(_) => NONE,
    }
}

/// Notes what [`start`] answered, in the kernel's variables.
pub fn note([socket, its]: [i32; 2]) {
    SOCKET.store(socket, Ordering::Relaxed);
    ITS_SOCKET.store(its, Ordering::Relaxed);
}

/// `shares`: the new process has this one's descriptors, and not a copy of them.
fn fork(shares: bool) -> Result<usize> {
    const CLONE_FILES: u64 = 0x400;
    let flags = SIGCHLD | if shares { CLONE_FILES } else { 0 };
    // SAFETY: without CLONE_VM the new process goes on here with a copy of all memory, on the same stack.
    unsafe { host::call(host::CLONE, [flags, 0, 0, 0, 0, 0]) }
}

unsafe extern "C" {
    safe static unilith_template_child: Label;
    fn unilith_wait_for_turn(turn: u64) -> !;
}

/// Ends with the process that made it, and with the first one of its own that ends.
fn tie() -> Result<()> {
    const PR_SET_PDEATHSIG: u64 = 1;
    // SAFETY: sets what the host does at an end.
    unsafe { host::call(host::PRCTL, [PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0, 0]) }.map(|_| ())
}

fn run(arguments: &Arguments<'_>, memory: i32, pair: [i32; 2]) -> ! {
    const PR_SET_NO_NEW_PRIVS: u64 = 38;
    // The same as in the machine, in this process' own copy of the kernel's variables.
    note([pair[0], -1]);
    memory::note(memory, arguments.memory, arguments.root);
    processors::note(arguments.cpus);
    // SAFETY: gives a right away.
    let confined = unsafe { host::call(host::PRCTL, [PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0, 0]) };
    let tied = tie().and(confined).and(signals::end_with_children(unilith_template_child.address()));
    let (Ok(()), Ok(shares)) = (tied, Shares::new(memory, arguments.memory, arguments.root)) else {
        host::leave(1)
    };
    // Where they are the machine's as well, that closes what is nobody's.
    let shares_files = confine::has_volumes(arguments);
    if !shares_files {
        confine::close_others(arguments, &pair);
    }
    let mut wanted = [0u8; 1];
    for number in 1..MAX_HOST_PROCESSES {
        loop {
            match host::read(pair[1], &mut wanted) {
                Err(EINTR) => {}
                Ok(1) => break,
                // The machine ended.
                _ => host::leave(0),
            }
        }
        match fork(shares_files) {
            Ok(0) => become_process(&shares, pair[1], number, confine::open(arguments, &pair)),
            Ok(_) => {}
            Err(_) => {
                host::write_all(pair[1], &encode([0; MAX_CPUS]));
            }
        }
    }
    loop {
        // No more of them; still the end of one of them is the end of all.
        let _ = host::poll(&mut [], None);
    }
}

/// The new process, up to its wait. Nobody else has a part in what it does until it maps the kernel's variables, the last thing
/// before the filter.
fn become_process(shares: &Shares, socket: i32, number: usize, open: Open) -> ! {
    let shares_files = open.given.is_some();
    let prepared = prepare(shares, number, open);
    let threads = prepared.as_ref().map_or([0; MAX_CPUS], |(_, threads)| *threads);
    host::write_all(socket, &encode(threads));
    // The template's end is nothing to this process, and closed where it is this process' own.
    if !shares_files {
        host::close(socket);
    }
    let Ok((filter, _)) = prepared else {
        // An end would be that of all.
        loop {
            let _ = host::poll(&mut [], None);
        }
    };
    let program = confine::Program::new(&filter);
    // SAFETY: neither the filter nor what comes behind relies on the variables: the filter is on this stack, which nobody
    // else sees, and the wait reads what it is meant to read.
    unsafe {
        if shares.map_variables().is_err() || program.install(true).is_err() {
            host::leave(1);
        }
        (*GO).store(1, Ordering::Release);
        let _ = host::call(host::FUTEX, [GO as u64, SHARED_FUTEXES[1].into(), MAX_CPUS as u64, 0, 0, 0]);
    }
    wait_for_turn(0)
}

/// All that a host process has for itself, and what it shares but for the kernel's variables: its filter, and the numbers of its
/// threads in the host's count.
fn prepare(shares: &Shares, number: usize, open: Open) -> Result<(Filter, Threads)> {
    tie()?;
    make_private(number)?;
    // SAFETY: asks for a number.
    let pid = unsafe { host::call(host::GETPID, [0; 6]) }? as u32;
    boot::set_gs_base(0)?;
    signals::initialize()?;
    idle::new_timer(0, pid)?;
    confine::dispatch()?;
    host_processes::note_thread(number, 0, pid);
    if processors::has_others() {
        processors::make_threads().map_err(|_| EAGAIN)?;
    }
    shares.map().map_err(|_| EAGAIN)?;
    Ok((confine::allowed(open), core::array::from_fn(|cpu| host_processes::thread(number, cpu))))
}
