// SPDX-License-Identifier: Apache-2.0 OR MIT
//! execve(2), execveat(2): another program takes the place of the running one.

use crate::program::{self, Asked, Prepared};
use crate::ptrace;
use abi::{Result, errno::*};
use alloc::format;
use alloc::sync::Arc;
use alloc::vec::Vec;
use api_alloc::Reserve;
use api_fs::FileType;
use api_plat::TrapFrame;
use api_user::UserPtr;
use calls_files::open::read_path;
use calls_files::stat::{AT_EMPTY_PATH, AT_SYMLINK_NOFOLLOW, lookup_at};
use core::sync::atomic::Ordering;
use loader::{Failure, Loaded};
use task::call::Call;
use task::files::{self, AT_FDCWD};
use task::process::{Process, Program};
use task::signals::{self, Action, SIGCHLD, SIGSEGV, SigInfo};
use task::wait::RESTART;
use task::{Task, processes};
use vfs::Dentry;

/// Longest string with its NUL (MAX_ARG_STRLEN).
const LONGEST_STRING: usize = 32 * abi::PAGE_SIZE;
/// Descriptors below are the standard streams.
const FIRST_OWN: u32 = 3;
/// Most bytes of all strings that are read: three quarters of Linux' _STK_LIM. The loader knows the exact limit.
const MAX_BYTES: usize = 6 << 20;

/// execve(2).
pub fn execve(call: &mut Call<'_>) -> Result<usize> {
    let path = read_path(call.ptr(0), false)?;
    let file = program::find(&task::current().process, &path)?;
    execute(call, Named { file, name: path, is_closed: false }, (call.ptr(1), call.ptr(2)))
}

/// execveat(2).
pub fn execveat(call: &mut Call<'_>) -> Result<usize> {
    let dirfd = call.int(0);
    let path = read_path(call.ptr(1), call.uint(4) & AT_EMPTY_PATH != 0)?;
    let strings = (call.ptr(2), call.ptr(3));
    let flags = call.flags(4, AT_EMPTY_PATH | AT_SYMLINK_NOFOLLOW)?;
    let files = files::current();
    if path.is_empty() {
        let file = if dirfd == AT_FDCWD {
            files.working()
        } else {
            files.descriptors.get_any(dirfd)?.place().cloned().ok_or(EACCES)?
        };
        let named =
            Named { file, name: format!("/dev/fd/{dirfd}").into_bytes(), is_closed: is_closed(dirfd)? };
        return execute(call, named, strings);
    }
    let file = lookup_at(dirfd, &path, flags & AT_SYMLINK_NOFOLLOW == 0)?;
    if file.kind() == FileType::Symlink {
        return Err(ELOOP);
    }
    let named = if dirfd == AT_FDCWD || path.first() == Some(&b'/') {
        Named { file, name: path, is_closed: false }
    } else {
        // How a script's interpreter finds it.
        let name = [format!("/dev/fd/{dirfd}/").into_bytes(), path].concat();
        Named { file, name, is_closed: is_closed(dirfd)? }
    };
    execute(call, named, strings)
}

/// Whether a program finds nothing through the descriptor any more.
fn is_closed(dirfd: i32) -> Result<bool> {
    if dirfd == AT_FDCWD { Ok(false) } else { files::current().descriptors.close_on_exec(dirfd) }
}

/// A file and how its program is told its name.
struct Named {
    file: Arc<Dentry>,
    name: Vec<u8>,
    /// A script's interpreter would not find it by this name.
    is_closed: bool,
}

/// What the program is told.
struct Strings {
    arguments: Vec<Vec<u8>>,
    environment: Vec<Vec<u8>>,
}

impl Strings {
    fn read(arguments: UserPtr<u64>, environment: UserPtr<u64>) -> Result<Strings> {
        let mut room = MAX_BYTES;
        Ok(Strings {
            arguments: read_strings(arguments, &mut room)?,
            environment: read_strings(environment, &mut room)?,
        })
    }
}

/// Arguments and environment are read when it is known that the file may be executed.
fn execute(
    call: &mut Call<'_>,
    Named { file, name, is_closed }: Named,
    (arguments, environment): (UserPtr<u64>, UserPtr<u64>),
) -> Result<usize> {
    let process = task::current().process.clone();
    let pages = program::executable(&process, &file)?;
    let Strings { arguments, environment } = Strings::read(arguments, environment)?;
    let asked = Asked { file, pages, name, is_closed, arguments, environment };
    let prepared = match program::prepare(&process, asked) {
        Ok(prepared) => prepared,
        Err(Failure::Refused(error)) => return Err(error),
        Err(Failure::TooLate(error)) => {
            process.signals.set_action(SIGSEGV, Action::DEFAULT);
            signals::force(&task::current(), SigInfo::from_kernel(SIGSEGV));
            return Err(error);
        }
    };
    let old = ptrace::stop::number_for_tracer(&task::current(), task::current().tid);
    let number = call.frame.orig_rax;
    replace(call.frame, &process, prepared)?;
    call.keep_registers = true;
    call.frame.orig_rax = number;
    ptrace::stop::program_starts(&task::current(), call.frame, old);
    Ok(0)
}

/// Starts the machine's program again as it was started first, in place of what runs. An error leaves everything as it
/// is, but for the working directory.
pub fn restart(frame: &mut TrapFrame) -> Result<()> {
    let process = task::current().process.clone();
    let first = process.restarts.first().ok_or(ESRCH)?;
    let name = first.arguments.first().ok_or(ENOENT)?.clone();
    files::current().set_working(first.working.clone());
    let old = core::mem::replace(&mut *task::current().credentials().lock(), first.credentials.clone());
    let (arguments, environment) = (first.arguments.clone(), first.environment.clone());
    let prepared = program::prepare_first(&process, name, arguments, environment).map_err(Failure::errno);
    let replaced = prepared.and_then(|prepared| replace(frame, &process, prepared));
    if let Err(e) = replaced {
        // Only a thread that was replaced has left its task.
        *task::current().credentials().lock() = old;
        return Err(e);
    }
    // The program begins with its standard streams and nothing else open.
    let descriptors = &process.files.descriptors;
    let mut next = FIRST_OWN;
    while let Some(fd) = descriptors.next_open(next) {
        // As with execve nobody is told of errors.
        let _ = descriptors.remove(fd).and_then(|description| description.close());
        next = fd as u32 + 1;
    }
    process.files.set_umask(first.umask);
    task::current().signals.set_blocked(0);
    Ok(())
}

/// Lets the loaded program take the place of what runs: `frame` becomes its first registers.
fn replace(frame: &mut TrapFrame, process: &Arc<Process>, prepared: Prepared) -> Result<()> {
    let Prepared { space, loaded, file, comm, rights } = prepared;
    // A device that is full is the last reason to stay.
    if let Some(space) = process.space() {
        space.sync_all()?;
    }
    let fpu = api_plat::new_fpu_state()?;
    if process.tasks().any(|task| task.tracing.is_on()) {
        space.start_tracing()?;
    }
    end_other_threads(process)?;
    files::current().own_descriptors()?;
    process.signals.own_actions()?;

    // From here on there is no way back.
    become_first(process)?;
    let task = task::current();
    // Robust futexes and CLONE_CHILD_CLEARTID concern the memory that the process leaves.
    calls_ipc::futex::thread_ends(&task);
    let mut next = 0;
    while let Some((fd, description)) = process.files.descriptors.remove_marked(next) {
        // As on Linux, nobody is told of errors.
        let _ = files::end(description);
        next = fd as u32 + 1;
    }
    process.signals.reset_handlers();
    process.timers.program_ends();
    #[cfg(feature = "aio")]
    calls_files::aio::program_ends(process.pid.of_machine());
    #[cfg(feature = "io_uring")]
    calls_uring::program_ends(process, true);
    let users = program::start_as(process, rights);
    task.signals.reset_stack();
    task.clear_child_tid.store(0, Ordering::Relaxed);
    task.robust_list.store(0, Ordering::Relaxed);
    task.rseq.register(0, 0);
    process.set_space(space);
    process.family.release_vfork_parent();
    process.family.has_run_program.store(true, Ordering::Relaxed);
    // Whatever clone(2) was told to send the parent (execve(2)).
    process.family.exit_signal.store(SIGCHLD, Ordering::Relaxed);
    task.set_name(&comm);
    let Loaded { entry, stack, auxv, .. } = loaded;
    process.set_program(Program { file, users, auxv });
    // SAFETY: the stack is the running thread's own, as it was before.
    unsafe { api_plat::activate(sched::current().stack_top(), 0) };
    api_plat::load_fpu(&fpu);
    *frame = TrapFrame::at_start(entry, stack);
    Ok(())
}

/// Ends every thread but the calling one, and waits until they are gone. Fails when another thread was first: then this
/// one is about to end.
fn end_other_threads(process: &Process) -> Result<()> {
    let own = task::current().tid;
    if !process.leave_only(own) {
        return Err(RESTART);
    }
    for other in process.tasks().filter(|other| other.tid != own) {
        signals::end_thread(&other);
    }
    while process.thread_count() > 1 {
        sched::park(u64::MAX);
    }
    process.all_may_stay();
    if process.is_ending() {
        return Err(RESTART);
    }
    Ok(())
}

/// The last thread takes the process' id, whatever its own was. After an error nothing has changed.
fn become_first(process: &Arc<Process>) -> Result<()> {
    let old = task::current();
    if old.tid == process.pid {
        return Ok(());
    }
    process.files.take_over(old.files())?;
    let first = Task::new(process.clone(), process.pid, *old.name.lock(), None);
    first.set_nsproxy(old.nsproxy());
    first.signals.inherit(&old.signals);
    *process.credentials.lock() = old.credentials().lock().clone();
    *first.scheduling.lock() = *old.scheduling.lock();
    first.settings.keep(&old.settings);
    first.timer_slack.keep(&old.timer_slack);
    *first.memory_policy.lock() = *old.memory_policy.lock();
    first.seccomp.inherit(&old.seccomp);
    let tid = old.tid;
    if let Some(old) = process.task(tid) {
        first.succeed(old);
    }
    task::tracing::becomes(&old, &first);
    // The number is the process' and now this thread's as well.
    processes::retain(process.pid);
    process.group().charge_always();
    process.add(first);
    process.remove(tid);
    Ok(())
}

/// A NULL-terminated array of strings; a null pointer is an empty one. `E2BIG` beyond the limits.
fn read_strings(array: UserPtr<u64>, room: &mut usize) -> Result<Vec<Vec<u8>>> {
    let mut strings = Vec::new();
    if array.is_null() {
        return Ok(strings);
    }
    loop {
        let pointer = array.add(strings.len() as u64).read()?;
        if pointer == 0 {
            return Ok(strings);
        }
        // As on Linux, strings that memory has no room for are too many.
        let too_many = |e| if e == ENOMEM { E2BIG } else { e };
        let string = UserPtr::<u8>::new(pointer).read_cstr(LONGEST_STRING, E2BIG).map_err(too_many)?;
        // The pointer counts too.
        *room = room.checked_sub(string.len() + 1 + size_of::<u64>()).ok_or(E2BIG)?;
        strings.reserve_fallibly(1).map_err(|_| E2BIG)?;
        strings.push(string);
    }
}
