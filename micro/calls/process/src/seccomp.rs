// SPDX-License-Identifier: Apache-2.0 OR MIT
//! seccomp(2): a program gives calls away, for good and for what it starts.
//!
//! What a filter may be and what it answers is the crate `classic-bpf`. As long as nobody has one, a call is not asked about:
//! the way on which calls are looked at is the tracer's ([`dispatch::watched`]).

use crate::end::{end_process, end_thread};
use crate::{out_of_memory, ptrace};
use abi::{Result, errno::*};
use alloc::sync::Arc;
use alloc::vec::Vec;
use api_plat::{Status, TrapFrame};
use api_user::UserPtr;
use classic_bpf::seccomp::Data;
use classic_bpf::{Instruction, MAX_INSTRUCTIONS};
use task::Task;
use task::call::Call;
use task::files::{self, O_CLOEXEC};
use task::identity::capabilities::CAP_SYS_ADMIN;
use task::seccomp::notify::{Answer, Listener, Notifications, SIZES};
use task::seccomp::{
    ACTION, ALLOW, ARCHITECTURE, FILTER, Filter, IS_LINKED, OFF, STRICT, USER_NOTIFICATION, chain, checked,
};
use task::signals::action::SA_IMMUTABLE;
use task::signals::{self, Action, SIGKILL, SIGSYS, SigInfo};
use task::tracing::O_SUSPEND_SECCOMP;

const SET_MODE_STRICT: u32 = 0;
const SET_MODE_FILTER: u32 = 1;
const GET_ACTION_AVAIL: u32 = 2;
const GET_NOTIF_SIZES: u32 = 3;
const FLAG_TSYNC: u64 = 1;
const FLAG_LOG: u64 = 1 << 1;
const FLAG_SPEC_ALLOW: u64 = 1 << 2;
const FLAG_NEW_LISTENER: u64 = 1 << 3;
const FLAG_TSYNC_ESRCH: u64 = 1 << 4;
const FLAG_WAIT_KILLABLE_RECV: u64 = 1 << 5;
const KILL_PROCESS: u32 = 0x8000_0000;
const KILL_THREAD: u32 = 0;
const TRAP: u32 = 0x0003_0000;
const ERRNO: u32 = 0x0005_0000;
const TRACE: u32 = 0x7ff0_0000;
const LOG: u32 = 0x7ffc_0000;
const ACTIONS: [u32; 8] = [KILL_PROCESS, KILL_THREAD, TRAP, ERRNO, USER_NOTIFICATION, TRACE, LOG, ALLOW];
const O_RDWR: u32 = 2;

/// The same as `/proc/sys/kernel/seccomp/actions_avail` shows them.
pub const ACTION_NAMES: &str = "kill_process kill_thread trap errno user_notif trace log allow\n";

const MAX_ERRNO: u32 = 4095;

/// `si_code` of a SIGSYS that a filter sent.
const SYS_SECCOMP: i32 = 1;

/// Instructions that a call may meet in all filters of a thread; each filter above the first counts for some more.
const MAX_ON_THE_WAY: usize = (1 << 18) / size_of::<Instruction>();

/// `struct sock_fprog`: how many instructions, in the lowest 16 bits, and where.
type Program = [u64; 2];

/// seccomp(2).
pub fn seccomp(call: &mut Call<'_>) -> Result<usize> {
    if IS_LINKED {
        return Err(EINVAL);
    }
    let (flags, argument) = (u64::from(call.uint(1)), call.arg(2));
    match call.uint(0) {
        SET_MODE_STRICT if flags != 0 || argument != 0 => Err(EINVAL),
        SET_MODE_STRICT => set_strict(),
        SET_MODE_FILTER => set_filter(flags, UserPtr::new(argument)),
        GET_ACTION_AVAIL if flags != 0 => Err(EINVAL),
        GET_ACTION_AVAIL => {
            let action = UserPtr::<u32>::new(argument).read()?;
            if ACTIONS.contains(&action) { Ok(0) } else { Err(EOPNOTSUPP) }
        }
        GET_NOTIF_SIZES if flags != 0 => Err(EINVAL),
        GET_NOTIF_SIZES => UserPtr::new(argument).write(SIZES).map(|()| 0),
        _ => Err(EINVAL),
    }
}

/// prctl(2), PR_SET_SECCOMP.
pub fn set_mode(mode: u64, argument: u64) -> Result<usize> {
    match mode {
        _ if IS_LINKED => Err(EINVAL),
        m if m == u64::from(STRICT) => set_strict(),
        m if m == u64::from(FILTER) => set_filter(0, UserPtr::new(argument)),
        _ => Err(EINVAL),
    }
}

fn set_strict() -> Result<usize> {
    let own = &task::current().seccomp;
    own.may_have(STRICT)?;
    own.set(STRICT, None);
    Ok(0)
}

fn set_filter(flags: u64, program: UserPtr<Program>) -> Result<usize> {
    let has = |flag: u64| flags & flag != 0;
    let known = FLAG_TSYNC | FLAG_LOG | FLAG_SPEC_ALLOW | FLAG_TSYNC_ESRCH;
    // Both the thread that cannot follow and the listener would be the answer.
    let two_answers = has(FLAG_TSYNC) && has(FLAG_NEW_LISTENER) && !has(FLAG_TSYNC_ESRCH);
    let waits_for_nobody = has(FLAG_WAIT_KILLABLE_RECV) && !has(FLAG_NEW_LISTENER);
    if has(!(known | FLAG_NEW_LISTENER | FLAG_WAIT_KILLABLE_RECV)) || two_answers || waits_for_nobody {
        return Err(EINVAL);
    }
    let task = task::current();
    // A filter stays as long as its thread.
    out_of_memory::admit(&task)?;
    let program = read(&task, program)?;
    let asked = has(FLAG_NEW_LISTENER).then(|| Notifications::new(has(FLAG_WAIT_KILLABLE_RECV)));
    if asked.is_some() {
        task.files().descriptors.check_room()?;
    }
    task.seccomp.may_have(FILTER)?;
    let previous = task.seccomp.filters.lock().clone();
    let is_asked = |filter: &Arc<Filter>| filter.notifications.as_ref().is_some_and(|n| !n.is_closed());
    if asked.is_some() && chain(&previous).any(is_asked) {
        return Err(EBUSY);
    }
    let filter = Filter::new(program, previous, asked.clone(), has(FLAG_LOG));
    if filter.instructions > MAX_ON_THE_WAY {
        return Err(ENOMEM);
    }
    if has(FLAG_TSYNC)
        && let Some(other) = task.process.tasks().find(|other| !can_follow(other, &task))
    {
        return if has(FLAG_TSYNC_ESRCH) { Err(ESRCH) } else { Ok(other.number as usize) };
    }
    let listener = match asked {
        Some(asked) => files::current().install(Arc::new(Listener(asked)), O_RDWR | O_CLOEXEC)?,
        None => 0,
    };
    let filter = Arc::new(filter);
    let gains_nothing = task.credentials().lock().no_new_privileges;
    if has(FLAG_TSYNC) {
        for other in task.process.tasks().filter(|other| other.tid != task.tid) {
            other.seccomp.set(FILTER, Some(filter.clone()));
            if gains_nothing {
                other.credentials().lock().no_new_privileges = true;
            }
        }
    }
    task.seccomp.set(FILTER, Some(filter));
    Ok(listener as usize)
}

/// The program that the caller may install.
fn read(task: &Task, program: UserPtr<Program>) -> Result<Vec<Instruction>> {
    let [length, instructions] = program.read()?;
    let length = usize::from(length as u16);
    if length == 0 || length > MAX_INSTRUCTIONS {
        return Err(EINVAL);
    }
    let credentials = task.credentials().lock();
    // Otherwise a program with more rights, started with a filter, could be led astray.
    if !credentials.no_new_privileges && !credentials.can_here(CAP_SYS_ADMIN) {
        return Err(EACCES);
    }
    drop(credentials);
    if instructions == 0 {
        return Err(EINVAL);
    }
    checked(&UserPtr::<u64>::new(instructions).read_vec(length)?)
}

/// The filters of `other` are some of the first ones of `task`, so it may be given all of them.
fn can_follow(other: &Task, task: &Task) -> bool {
    if other.tid == task.tid || other.seccomp.mode() == OFF {
        return true;
    }
    if other.seccomp.mode() != FILTER {
        return false;
    }
    let (theirs, ours) = (other.seccomp.filters.lock().clone(), task.seccomp.filters.lock().clone());
    theirs.is_none_or(|theirs| chain(&ours).any(|filter| Arc::ptr_eq(filter, &theirs)))
}

/// A call of a thread that has given some away begins: the number of the one to make, or [`ptrace::stop::NO_CALL`] with its
/// result in RAX.
#[cold]
pub fn call_enters(task: &Task, frame: &mut TrapFrame, number: u64) -> u64 {
    let is_suspended = task.tracing.has_option(O_SUSPEND_SECCOMP);
    if frame.entry.is_overlay() || number == ptrace::stop::NO_CALL || is_suspended {
        return number;
    }
    if task.seccomp.mode() == STRICT {
        // read, write, exit and rt_sigreturn.
        if [0, 1, 60, 15].contains(&number) {
            return number;
        }
        ends_by(task, frame, SIGKILL);
    }
    if task.seccomp.allows(number) {
        return number;
    }
    decide(task, frame, number, true)
}

fn decide(task: &Task, frame: &mut TrapFrame, number: u64, may_trace: bool) -> u64 {
    let space = task.process.space();
    let rip = space.map_or(frame.rip, |space| space.original_address(frame.rip));
    let f = &*frame;
    let data = Data {
        number: number as u32,
        architecture: ARCHITECTURE,
        instruction_pointer: rip,
        arguments: [f.rdi, f.rsi, f.rdx, f.r10, f.r8, f.r9],
    };
    let (answer, asked) = task.seccomp.ask(&data);
    let detail = answer & !ACTION;
    match answer & ACTION {
        ALLOW | LOG => return number,
        ERRNO => frame.rax = u64::from(detail.min(MAX_ERRNO)).wrapping_neg(),
        TRACE if !may_trace => return number,
        TRACE => {
            frame.orig_rax = number;
            frame.rax = ENOSYS.to_return() as u64;
            if ptrace::stop::filter_asks(task, frame, detail.into()) && (frame.orig_rax as i32) >= 0 {
                // What the tracer made of it meets the filters again.
                return decide(task, frame, frame.orig_rax as i32 as u64, false);
            }
        }
        USER_NOTIFICATION => {
            frame.rax = match asked.map_or(Err(ENOSYS), |asked| asked.ask(task, &data)) {
                Ok(Answer::Continue) => return number,
                Ok(Answer::Result(result)) => result as u64,
                // A signal that came first has the call made again as any other (`RESTART`).
                Err(error) => error.to_return() as u64,
            };
        }
        KILL_THREAD if task.process.thread_count() > 1 => ends_by(task, frame, SIGSYS),
        // One that is not known is as strong as the strongest.
        action => {
            if action != TRAP {
                let name = syscall_table::row(number as u32).map_or("?", |row| row.name);
                let pid = task.process.pid.of_machine();
                log::info!("process {pid}: its filter of system calls does not allow {name} ({number})");
                // Neither a handler nor a mask nor a tracer keeps it away.
                let ends = Action { flags: SA_IMMUTABLE, ..Action::DEFAULT };
                task.process.signals.set_action(SIGSYS, ends);
            }
            frame.rax = number;
            let info = SigInfo::bad_call(SYS_SECCOMP, detail as i32, rip, number as i32, ARCHITECTURE);
            signals::force(task, info);
        }
    }
    ptrace::stop::NO_CALL
}

/// The filter of a traced thread, counted from its oldest. `EACCES` for tracers without CAP_SYS_ADMIN and those that have filters of
/// their own, which might see what is kept from them.
fn filter_of(task: &Task, index: u64) -> Result<Arc<Filter>> {
    if task.seccomp.mode() != FILTER {
        return Err(EINVAL);
    }
    let filters = task.seccomp.filters.lock().clone();
    let found = chain(&filters).find(|filter| u64::from(filter.number) == index.saturating_add(1));
    found.cloned().ok_or(ENOENT)
}

fn check_may_read_filters() -> Result<()> {
    let own = task::current();
    let may = own.credentials().lock().can(CAP_SYS_ADMIN) && own.seccomp.mode() == OFF;
    if may { Ok(()) } else { Err(EACCES) }
}

/// PTRACE_SECCOMP_GET_FILTER: how many instructions the filter has, which are written unless `to` is null.
pub fn read_filter(task: &Task, index: u64, to: u64) -> Result<usize> {
    check_may_read_filters()?;
    let filter = filter_of(task, index)?;
    if let Some(to) = UserPtr::<u64>::new(to).non_null() {
        for (i, instruction) in filter.program.iter().enumerate() {
            to.add(i as u64).write(instruction.to_word())?;
        }
    }
    Ok(filter.program.len())
}

/// PTRACE_SECCOMP_GET_METADATA: `struct seccomp_metadata`, of which the tracer knows `size` bytes.
pub fn read_metadata(task: &Task, size: u64, at: u64) -> Result<usize> {
    check_may_read_filters()?;
    let words = (size / 8).min(2) as usize;
    if words == 0 {
        return Err(EINVAL);
    }
    let at = UserPtr::<u64>::new(at);
    let index = at.read()?;
    let flags = if filter_of(task, index)?.is_logged { FLAG_LOG } else { 0 };
    at.write_slice(&[index, flags][..words])?;
    Ok(words * 8)
}

/// The thread ends, and with the last one the process, as if by the signal.
fn ends_by(task: &Task, frame: &mut TrapFrame, signal: i32) -> ! {
    let status = Status::Signal { number: signal as u8 };
    ptrace::stop::ends(task, frame, Some(&status));
    if task.process.thread_count() > 1 { end_thread(0) } else { end_process(status) }
}
