// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The calls programs make of the kernel. A call's number is its place in [`NAMES`]; objects name it, and the linker
//! makes the stub. `overlay/include/unilith/overlay.h` declares them for C, and says what each does.

use crate::files;
use crate::heap::Wrong;
use crate::memory::{self, Block, PAGE, is_ours};
use crate::report;
use crate::resolve;
use crate::run::{Console, Outcome, Run};
use abi::{Result, errno::*};
use alloc::format;
use alloc::vec::Vec;
use api_alloc::Reserve;
use api_plat::{Entry, TrapFrame};
use api_user::{UserPtr, write_bytes};
use overlay_link::{CALL_EXIT, CALL_SMASHED};

pub const NAMES: [&str; 30] = [
    "uio_exit",
    "uio_smashed",
    "uio_console_write",
    "uio_console_read",
    "uio_alloc_memory",
    "uio_free_memory",
    "uio_memory_size",
    "uio_enable_write",
    "uio_enable_write_now",
    "uio_disable_write",
    "uio_symbol_get",
    "uio_symbol_name",
    "uio_sleep",
    "uio_time",
    "uio_open",
    "uio_close",
    "uio_read",
    "uio_write",
    "uio_lseek",
    "uio_fsync",
    "uio_unlink",
    "uio_rename",
    "uio_mkdir",
    "uio_rmdir",
    "uio_list",
    "uio_stat",
    "uio_kill",
    "uio_counters",
    "uio_abort",
    "uio_peek",
];

/// The number of a call.
pub fn number(name: &[u8]) -> Option<u32> {
    NAMES.iter().position(|known| known.as_bytes() == name).map(|n| n as u32)
}

/// Most bytes of console traffic in one call; more is done in parts.
const CONSOLE_PIECE: usize = 16 << 10;
/// Smallest arena of a heap.
const ARENA: u64 = 64 << 10;
/// One part in so many of the machine's memory is left to the application.
const KEPT_SHARE: u64 = 16;
/// Longest name of a symbol, and longest last words.
const NAME_MAX: usize = overlay_symbols::NAME_MAX;
/// UIO_EXECUTABLE: memory is never both, so a program cannot have what it writes executed.
const ATTRIBUTE_EXECUTE: u64 = 1;

/// Values of `struct uio_counters`, in its order.
const COUNTERS: usize = 8;

/// How a call goes on: with an answer, or with the end of the program.
pub type Answer = core::result::Result<Result<u64>, Outcome>;

fn killed(signal: u8, text: alloc::string::String) -> Answer {
    Err(Outcome::Killed { signal, text, trace: Vec::new() })
}

const SIGABRT: u8 = 6;

/// Serves the call in `frame`; on the program's thread.
pub fn call(run: &Run, frame: &mut TrapFrame) -> Answer {
    let (a, b, c, d) = (frame.rdi, frame.rsi, frame.rdx, frame.r10);
    let Some(name) = NAMES.get(frame.rax as usize) else {
        return Ok(Err(ENOSYS));
    };
    match *name {
        "uio_exit" => return Err(Outcome::Exit(a as u8)),
        "uio_smashed" => {
            let text =
                "a function wrote behind the end of its variables on the stack (stack smashing detected)";
            return killed(SIGABRT, text.into());
        }
        "uio_abort" => {
            let words = UserPtr::<u8>::new(a).read_cstr(NAME_MAX, EINVAL).unwrap_or_default();
            return killed(SIGABRT, alloc::string::String::from_utf8_lossy(&words).into_owned());
        }
        "uio_free_memory" => return free(run, a),
        "uio_enable_write" => return Ok(run.enable_write(frame, true)),
        "uio_enable_write_now" => return Ok(run.enable_write(frame, false)),
        "uio_disable_write" => return Ok(run.disable_write(frame)),
        _ => {}
    }
    Ok(match *name {
        "uio_console_write" => console_write(run, a, b, c),
        "uio_console_read" => console_read(run, a, b),
        "uio_alloc_memory" => allocate(run, a, b),
        "uio_memory_size" => Ok(run.heap.lock().heap.size(a).unwrap_or(0)),
        "uio_symbol_get" => symbol_get(a),
        "uio_symbol_name" => symbol_name(run, a, b, c),
        "uio_sleep" => run.sleep(api_plat::now_ns().saturating_add(a)).map(|()| 0),
        "uio_time" => Ok(api_plat::now_ns() + if a == 0 { 0 } else { api_plat::wall_ns() }),
        "uio_open" => files::open(run, a, b, c),
        "uio_close" => files::close(run, a),
        "uio_read" => files::read(run, a, b, c),
        "uio_write" => files::write(run, a, b, c),
        "uio_lseek" => files::seek(run, a, b as i64, c),
        "uio_fsync" => files::sync(run, a),
        "uio_unlink" => files::unlink(a, false),
        "uio_rename" => files::rename(a, b),
        "uio_mkdir" => files::make_directory(a, b),
        "uio_rmdir" => files::unlink(a, true),
        "uio_list" => files::list(run, a, b, c, d),
        "uio_stat" => files::stat(run, a, b),
        "uio_kill" => kill(run, a as i32),
        "uio_counters" => counters(run, a),
        "uio_peek" => peek(run, a, b, c),
        _ => Err(ENOSYS),
    })
}

const _: () = assert!(CALL_EXIT == 0 && CALL_SMASHED == 1);

impl Run {
    /// What the kernel may write for the program: what the program itself may.
    pub fn check_target(&self, address: u64, length: u64) -> Result<()> {
        let writing = self.frame_entry() == Entry::OverlayWriting;
        if is_ours(address, length) || writing { Ok(()) } else { Err(EFAULT) }
    }
}

fn console_write(run: &Run, stream: u64, address: u64, length: u64) -> Result<u64> {
    if !(1..=2).contains(&stream) {
        return Err(EBADF);
    }
    let length = (length as usize).min(CONSOLE_PIECE);
    let bytes = UserPtr::<u8>::new(address).read_vec(length)?;
    run.ask(Console::Write { error: stream == 2, bytes })?;
    Ok(length as u64)
}

fn console_read(run: &Run, address: u64, length: u64) -> Result<u64> {
    let length = length.min(CONSOLE_PIECE as u64);
    run.check_target(address, length)?;
    let bytes = run.ask(Console::Read { length: length as usize })?;
    write_bytes(address, &bytes)?;
    Ok(bytes.len() as u64)
}

fn allocate(run: &Run, size: u64, attributes: u64) -> Result<u64> {
    if attributes & ATTRIBUTE_EXECUTE != 0 {
        return Err(EACCES);
    }
    let mut heap = run.heap.lock();
    if let Some(address) = heap.heap.take(size) {
        return Ok(address);
    }
    drop(heap);
    let (pages, free) = api_mem::statistics();
    // What the application needs while the program runs: it would be ended for want of a page, not the program.
    if size.max(ARENA) / PAGE + pages / KEPT_SHARE > free {
        return Err(ENOMEM);
    }
    let arena = Block::new(size.max(ARENA))?;
    heap = run.heap.lock();
    heap.arenas.reserve_fallibly(1).map_err(|_| ENOMEM)?;
    heap.heap.add(arena.start, arena.length);
    heap.arenas.push(arena);
    heap.heap.take(size).ok_or(ENOMEM)
}

fn free(run: &Run, address: u64) -> Answer {
    if address == 0 {
        return Ok(Ok(0));
    }
    match run.heap.lock().heap.give(address) {
        Ok(()) => Ok(Ok(0)),
        Err(Wrong::Twice) => killed(SIGABRT, format!("freed {address:#x} twice")),
        Err(Wrong::Never) => killed(SIGABRT, format!("freed {address:#x}, which is no block of its heap")),
    }
}

/// Copies in pieces, so that what is asked for needs no memory of that size.
fn peek(run: &Run, to: u64, from: u64, length: u64) -> Result<u64> {
    run.check_target(to, length)?;
    let mut done = 0;
    while done < length {
        let count = (length - done).min(CONSOLE_PIECE as u64);
        let bytes = UserPtr::<u8>::new(from.checked_add(done).ok_or(EFAULT)?).read_vec(count as usize)?;
        write_bytes(to + done, &bytes)?;
        done += count;
    }
    Ok(0)
}

fn symbol_get(name: u64) -> Result<u64> {
    let name = UserPtr::<u8>::new(name).read_cstr(NAME_MAX, ENAMETOOLONG)?;
    let symbol = resolve::find(&name).ok_or(ENOENT)?;
    match symbol.kind {
        overlay_symbols::Kind::ThreadLocal => Err(EOPNOTSUPP),
        _ => Ok(symbol.address),
    }
}

fn symbol_name(run: &Run, address: u64, to: u64, length: u64) -> Result<u64> {
    let text = report::place(run, address);
    let count = (text.len() as u64 + 1).min(length);
    run.check_target(to, count)?;
    if count > 0 {
        write_bytes(to, &text.as_bytes()[..count as usize - 1])?;
        write_bytes(to + count - 1, &[0])?;
    }
    Ok(text.len() as u64)
}

fn kill(run: &Run, signal: i32) -> Result<u64> {
    task::auxiliary::signal(run.task.process.pid, signal).map(|()| 0)
}

/// What the kernel counts anyway, for programs where the processor has no counters.
fn counters(run: &Run, to: u64) -> Result<u64> {
    run.check_target(to, COUNTERS as u64 * 8)?;
    let usage = mem::current().usage();
    let (total, free) = api_mem::statistics();
    let values: [u64; COUNTERS] = [
        api_plat::now_ns(),
        run.task.process.cpu_ns(),
        run.thread_cpu_ns(),
        run.task.process.thread_count() as u64,
        usage.resident(),
        (total - free) * memory::PAGE,
        total * memory::PAGE,
        memory::used(),
    ];
    UserPtr::new(to).write_slice(&values)?;
    Ok(0)
}
