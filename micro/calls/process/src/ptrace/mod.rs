// SPDX-License-Identifier: Apache-2.0 OR MIT
//! ptrace(2): a process looks into another one's threads, and has them stop where it wants.
//!
//! A thread that is traced stops by itself, in the kernel (`stop`), leaves its registers where its tracer finds them
//! (`task::tracing`) and tells a wait (`wait`). docs/explanation/processes.md says how patched calls and single
//! steps come together.

pub mod stop;
pub mod wait;

use crate::seccomp;
use abi::{Result, errno::*};
use alloc::sync::Arc;
use alloc::vec::Vec;
use api_alloc::Reserve;
use api_user::{UserPtr, read_bytes, write_bytes};
use core::sync::atomic::Ordering::Relaxed;
use stop::{CALL_ENTERS, CALL_LEAVES, CALL_STOP, EVENT_STOP, FILTER_STOP};
use task::call::Call;
use task::identity::capabilities::CAP_SYS_ADMIN;
use task::identity::{As, check_access};
use task::pids::Pid;
use task::process::Process;
use task::registers::{Registers, WORDS};
use task::signals::{self, SIGKILL, SIGNALS, SIGSTOP, SigInfo};
use task::tracing::{self, Beginning, O_SUSPEND_SECCOMP, OPTIONS, Prepared, Resume, Stop, Traced, Tracing};
use task::{Task, processes};

const TRACEME: u64 = 0;
const PEEKTEXT: u64 = 1;
const PEEKDATA: u64 = 2;
const PEEKUSER: u64 = 3;
const POKETEXT: u64 = 4;
const POKEDATA: u64 = 5;
const POKEUSER: u64 = 6;
const CONT: u64 = 7;
const KILL: u64 = 8;
const SINGLESTEP: u64 = 9;
const GETREGS: u64 = 12;
const SETREGS: u64 = 13;
const GETFPREGS: u64 = 14;
const SETFPREGS: u64 = 15;
const ATTACH: u64 = 16;
const DETACH: u64 = 17;
const SYSCALL: u64 = 24;
const SYSEMU: u64 = 31;
const SETOPTIONS: u64 = 0x4200;
const GETEVENTMSG: u64 = 0x4201;
const GETSIGINFO: u64 = 0x4202;
const SETSIGINFO: u64 = 0x4203;
const GETREGSET: u64 = 0x4204;
const SETREGSET: u64 = 0x4205;
const SEIZE: u64 = 0x4206;
const INTERRUPT: u64 = 0x4207;
const LISTEN: u64 = 0x4208;
const PEEKSIGINFO: u64 = 0x4209;
const GETSIGMASK: u64 = 0x420a;
const SETSIGMASK: u64 = 0x420b;
const SECCOMP_GET_FILTER: u64 = 0x420c;
const SECCOMP_GET_METADATA: u64 = 0x420d;
const GET_SYSCALL_INFO: u64 = 0x420e;

const NT_PRSTATUS: u64 = 1;
const NT_PRFPREG: u64 = 2;
const NT_X86_XSTATE: u64 = 0x202;
const AUDIT_ARCH_X86_64: u32 = 0xc000_003e;
/// Of PTRACE_PEEKSIGINFO.
const PEEK_SHARED: u32 = 1;

/// ptrace(2), as the system call has it: PTRACE_PEEK… write the word to `data`.
pub fn ptrace(call: &mut Call<'_>) -> Result<usize> {
    // Calls of a linked program are functions of the kernel's: there is no place where it could be stopped.
    if cfg!(feature = "linked") {
        return Err(ENOSYS);
    }
    let (request, tid, address, data) = (call.arg(0), call.int(1), call.arg(2), call.arg(3));
    if request == TRACEME {
        return trace_me();
    }
    let is_refused = request == SEIZE && (address != 0 || data & !u64::from(OPTIONS) != 0);
    let Some(task) = processes::named_task(tid) else { return request_to_zombie(request, tid, is_refused) };
    match request {
        ATTACH => return attach(&task, false, 0),
        SEIZE if is_refused => return Err(EIO),
        SEIZE => return attach(&task, true, check_options(data)?),
        _ => {}
    }
    let own = task::current().tid;
    let tracing = &task.tracing;
    if !tracing.is_on() || tracing.with(|traced| traced.tracer_thread) != Some(own) {
        return Err(ESRCH);
    }
    match request {
        KILL => {
            signals::send(&task.process, SIGKILL, SigInfo::from_kernel)?;
            return Ok(0);
        }
        INTERRUPT => return interrupt(&task),
        _ => {}
    }
    let stopped = tracing.with(|traced| traced.stop.is_some_and(|stop| !stop.listens));
    if stopped != Some(true) {
        return Err(ESRCH);
    }
    stopped_request(&task, request, address, data)
}

/// A process that has ended and was not waited for is traced until then, and looks at nothing any more.
fn request_to_zombie(request: u64, tid: i32, is_refused: bool) -> Result<usize> {
    let zombie = Pid::named(tid).and_then(processes::find).filter(|process| process.family.is_zombie());
    let family = &zombie.as_ref().ok_or(ESRCH)?.family;
    let is_traced = family.traced_by.get() == task::current().process.pid;
    match request {
        SEIZE if is_refused => Err(EIO),
        ATTACH | SEIZE => Err(EPERM),
        KILL if is_traced => Ok(0),
        INTERRUPT if is_traced && family.is_seized.load(Relaxed) => Ok(0),
        INTERRUPT if is_traced => Err(EIO),
        _ => Err(ESRCH),
    }
}

fn stopped_request(task: &Arc<Task>, request: u64, address: u64, data: u64) -> Result<usize> {
    let tracing = &task.tracing;
    match request {
        PEEKTEXT | PEEKDATA => {
            let mut word = [0; 8];
            space(task)?.peek(address, &mut word)?;
            put(data, u64::from_ne_bytes(word))
        }
        POKETEXT | POKEDATA => space(task)?.poke(address, &data.to_ne_bytes()).map(|()| 0),
        PEEKUSER => put(data, with_registers(tracing, |registers| registers.peek_user(address))?),
        POKEUSER => with_registers(tracing, |registers| registers.poke_user(address, data)).map(|()| 0),
        CONT => go_on(task, Resume::Freely, data),
        SYSCALL => go_on(task, Resume::ToCall, data),
        SYSEMU => go_on(task, Resume::ShowingCalls, data),
        SINGLESTEP => go_on(task, Resume::Step, data),
        DETACH => detach(task, data),
        LISTEN => listen(task),
        SETOPTIONS => {
            let options = check_options(data)?;
            with(tracing, |traced| traced.options = options).map(|()| 0)
        }
        GETEVENTMSG => put(data, with(tracing, |traced| traced.message)?),
        GETSIGINFO => {
            let info = with(tracing, |traced| traced.stop.and_then(|stop| stop.info))?.ok_or(EINVAL)?;
            put_info(data, &info).map(|()| 0)
        }
        SETSIGINFO => set_info(tracing, data),
        PEEKSIGINFO => peek_infos(task, address, data),
        GETSIGMASK if address == 8 => put(data, task.signals.shown_mask()),
        SETSIGMASK if address == 8 => {
            let mask = UserPtr::<u64>::new(data).read()?;
            task.signals.set_blocked_by_tracer(mask);
            Ok(0)
        }
        GETSIGMASK | SETSIGMASK => Err(EINVAL),
        GETREGS => {
            let mut words = [0; WORDS];
            with(tracing, |traced| traced.registers.words(&mut words))?;
            UserPtr::new(data).write_slice(&words).map(|()| 0)
        }
        SETREGS => {
            let words = UserPtr::<u64>::new(data).read_vec(WORDS)?;
            with_registers(tracing, |registers| registers.put_all(&words)).map(|()| 0)
        }
        GETFPREGS => {
            let area = with_registers(tracing, |registers| copied(registers.legacy()))?;
            write_bytes(data, &area).map(|()| 0)
        }
        SETFPREGS => {
            let mut area = [0; 512];
            read_bytes(data, &mut area)?;
            with_registers(tracing, |registers| registers.put_legacy(&area)).map(|()| 0)
        }
        GETREGSET => get_set(tracing, address, UserPtr::new(data)),
        SETREGSET => put_set(tracing, address, UserPtr::new(data)),
        SECCOMP_GET_FILTER => seccomp::read_filter(task, address, data),
        SECCOMP_GET_METADATA => seccomp::read_metadata(task, address, data),
        GET_SYSCALL_INFO => call_info(tracing, address, data),
        _ => Err(EIO),
    }
}

fn with<T>(tracing: &Tracing, look: impl FnOnce(&mut Traced) -> T) -> Result<T> {
    tracing.with(look).ok_or(ESRCH)
}

fn with_registers<T>(tracing: &Tracing, look: impl FnOnce(&mut Registers) -> Result<T>) -> Result<T> {
    with(tracing, |traced| look(&mut traced.registers))?
}

fn space(task: &Task) -> Result<Arc<mem::Space>> {
    task.process.space().ok_or(EIO)
}

fn put(data: u64, word: u64) -> Result<usize> {
    UserPtr::new(data).write(word).map(|()| 0)
}

/// A function of its own: inlined, its copies take more vector registers than the kernel's entry saves.
#[inline(never)]
fn put_info(data: u64, info: &SigInfo) -> Result<()> {
    let raw = info.to_user();
    UserPtr::new(data).write_slice(&raw)
}

fn copied(bytes: &[u8]) -> Result<Vec<u8>> {
    let mut copy = Vec::new();
    copy.reserve_exact_fallibly(bytes.len()).map_err(|_| ENOMEM)?;
    copy.extend_from_slice(bytes);
    Ok(copy)
}

/// `EPERM`: the tracer may not have filters rest, or has some itself.
fn check_options(data: u64) -> Result<u32> {
    let options = u32::try_from(data).ok().filter(|options| options & !OPTIONS == 0).ok_or(EINVAL)?;
    let own = task::current();
    let may_suspend = || {
        let is_filtered = own.seccomp.is_on() || own.tracing.has_option(O_SUSPEND_SECCOMP);
        own.credentials().lock().can(CAP_SYS_ADMIN) && !is_filtered
    };
    if options & O_SUSPEND_SECCOMP != 0 && !may_suspend() { Err(EPERM) } else { Ok(options) }
}

/// PTRACE_TRACEME: the parent traces the caller.
fn trace_me() -> Result<usize> {
    let own = task::current();
    let parent =
        processes::find(own.process.family.parent()).filter(|_| !own.tracing.is_on()).ok_or(EPERM)?;
    if !parent.credentials.lock().clone().sees_into(&own.credentials().lock()) {
        return Err(EPERM);
    }
    let task = own.process.task(own.tid).ok_or(ESRCH)?;
    // The thread that made the caller, or the first one when that is gone.
    let thread = parent.maker_of(&own.process);
    let prepared =
        Prepared::new(Beginning { tracer: parent.pid, tracer_thread: thread, seized: false, options: 0 })?;
    space(&task)?.start_tracing()?;
    prepared.begin(&parent, &task);
    Ok(0)
}

/// PTRACE_ATTACH, PTRACE_SEIZE.
fn attach(task: &Arc<Task>, seized: bool, options: u32) -> Result<usize> {
    let own = task::current();
    let process = &task.process;
    if Arc::ptr_eq(process, &own.process) || task.tid == task::auxiliary::TID {
        return Err(EPERM);
    }
    check_access(process, As::Real)?;
    if task.tracing.is_on() || process.is_ending() {
        return Err(EPERM);
    }
    let prepared =
        Prepared::new(Beginning { tracer: own.process.pid, tracer_thread: own.tid, seized, options })?;
    // Reading the files may let others run.
    space(task).map_err(|_| EPERM)?.start_tracing()?;
    if task.tracing.is_on() || process.is_ending() {
        return Err(EPERM);
    }
    prepared.begin(&own.process, task);
    let was_stopped = process.signals.stopped_by() != 0;
    if !seized {
        signals::raise(task, SigInfo::from_kernel(SIGSTOP));
    } else if was_stopped {
        task.tracing.with(|traced| traced.wants_trap = true);
    }
    task.interrupt();
    Ok(0)
}

/// A thread or process that a traced thread makes is traced as well, from its first instruction on.
pub struct NewTracee {
    prepared: Prepared,
    tracer: Arc<Process>,
    seized: bool,
}

impl NewTracee {
    /// `None` when nobody wants it. `option` is what the tracer would have set; `asks` is CLONE_PTRACE.
    pub fn of(parent: &Task, option: u32, asks: bool) -> Result<Option<NewTracee>> {
        if !parent.tracing.is_on() || !(asks || parent.tracing.has_option(option)) {
            return Ok(None);
        }
        let from = with(&parent.tracing, |traced| Beginning {
            tracer: traced.tracer,
            tracer_thread: traced.tracer_thread,
            seized: traced.seized,
            options: traced.options,
        })?;
        let Some(tracer) = processes::find(from.tracer) else { return Ok(None) };
        Ok(Some(NewTracee { prepared: Prepared::new(from)?, tracer, seized: from.seized }))
    }

    /// The thread has not run yet.
    pub fn begin(self, task: &Arc<Task>) {
        self.prepared.begin(&self.tracer, task);
        if self.seized {
            task.tracing.with(|traced| traced.wants_trap = true);
        } else {
            signals::raise(task, SigInfo::from_process(SIGSTOP, signals::SI_USER, 0, 0));
        }
    }
}

/// PTRACE_INTERRUPT.
fn interrupt(task: &Task) -> Result<usize> {
    if !with(&task.tracing, |traced| traced.seized)? {
        return Err(EIO);
    }
    task.tracing.with(|traced| {
        traced.wants_trap = true;
        // One that listens comes back; where another stop is, this one is the next.
        if traced.stop.is_some_and(|stop| stop.listens) {
            traced.stop = None;
        }
    });
    task.interrupt();
    Ok(0)
}

/// PTRACE_LISTEN, where the tracer has not put another signal's information in place of the stop's.
fn listen(task: &Task) -> Result<usize> {
    let listens = |stop: &mut Stop| {
        let is_stop = stop.info.is_some_and(|info| info.code() >> 8 == EVENT_STOP);
        stop.listens |= is_stop;
        is_stop
    };
    if !with(&task.tracing, |traced| traced.seized && traced.stop.as_mut().is_some_and(listens))? {
        return Err(EIO);
    }
    // What changed since is told at once.
    task.interrupt();
    Ok(0)
}

fn check_signal(data: u64) -> Result<i32> {
    if data <= SIGNALS as u64 { Ok(data as i32) } else { Err(EIO) }
}

fn go_on(task: &Task, how: Resume, data: u64) -> Result<usize> {
    let signal = check_signal(data)?;
    with(&task.tracing, |traced| {
        traced.resume = how;
        traced.signal = signal;
        traced.stop = None;
    })?;
    task.interrupt();
    Ok(0)
}

fn detach(task: &Task, data: u64) -> Result<usize> {
    let signal = check_signal(data)?;
    tracing::unlink(&task::current().process, task.tid);
    tracing::release(task, Some(signal));
    Ok(0)
}

/// PTRACE_SETSIGINFO.
fn set_info(tracing: &Tracing, data: u64) -> Result<usize> {
    let number = UserPtr::<i32>::new(data).read()?;
    let info = SigInfo::read(UserPtr::new(data), number)?;
    let is_set = with(tracing, |traced| {
        let stop = traced.stop.as_mut().filter(|stop| stop.info.is_some())?;
        stop.info = Some(info);
        traced.new_info = Some(info);
        Some(())
    })?;
    is_set.map(|()| 0).ok_or(EINVAL)
}

/// PTRACE_PEEKSIGINFO: signals that are pending, of the thread or of its process.
fn peek_infos(task: &Task, address: u64, data: u64) -> Result<usize> {
    let [offset, rest]: [u64; 2] = UserPtr::new(address).read()?;
    let (flags, count) = (rest as u32, (rest >> 32) as i32);
    if flags & !PEEK_SHARED != 0 || count < 0 {
        return Err(EINVAL);
    }
    let info = |index: usize| match flags & PEEK_SHARED {
        0 => task.signals.info(index),
        _ => task.process.signals.info(index),
    };
    let first = usize::try_from(offset).unwrap_or(usize::MAX);
    let mut done = 0;
    while done < count as usize
        && let Some(info) = info(first.saturating_add(done))
    {
        match put_info(data.wrapping_add(done as u64 * 128), &info) {
            Ok(()) => done += 1,
            Err(_) if done > 0 => break,
            Err(e) => return Err(e),
        }
    }
    Ok(done)
}

/// PTRACE_GETREGSET. `vector` is an iovec, whose length becomes what was written.
fn get_set(tracing: &Tracing, set: u64, vector: UserPtr<[u64; 2]>) -> Result<usize> {
    let [base, length] = vector.read()?;
    let whole = with_registers(tracing, |registers| match set {
        NT_PRSTATUS => {
            let mut words = [0; WORDS];
            registers.words(&mut words);
            Ok(words.iter().flat_map(|word| word.to_ne_bytes()).collect())
        }
        NT_PRFPREG => copied(registers.legacy()),
        NT_X86_XSTATE => registers.extended(),
        _ => Err(EINVAL),
    })?;
    if length % 8 != 0 {
        return Err(EINVAL);
    }
    let n = whole.len().min(usize::try_from(length).unwrap_or(usize::MAX));
    write_bytes(base, &whole[..n])?;
    vector.write([base, n as u64]).map(|()| 0)
}

/// PTRACE_SETREGSET.
fn put_set(tracing: &Tracing, set: u64, vector: UserPtr<[u64; 2]>) -> Result<usize> {
    let [base, length] = vector.read()?;
    let most = match set {
        NT_PRSTATUS => WORDS * 8,
        NT_PRFPREG => 512,
        NT_X86_XSTATE => with(tracing, |traced| traced.registers.extended_bytes())?,
        _ => return Err(EINVAL),
    };
    if length % 8 != 0 {
        return Err(EINVAL);
    }
    let n = most.min(usize::try_from(length).unwrap_or(usize::MAX));
    let mut bytes = Vec::new();
    bytes.reserve_exact_fallibly(n).map_err(|_| ENOMEM)?;
    bytes.resize(n, 0);
    read_bytes(base, &mut bytes)?;
    with_registers(tracing, |registers| match set {
        NT_PRSTATUS => {
            let word = |bytes: &[u8]| u64::from_ne_bytes(core::array::from_fn(|i| bytes[i]));
            let words: Vec<u64> = bytes.chunks_exact(8).map(word).collect();
            registers.put_all(&words)
        }
        NT_PRFPREG => registers.put_legacy(&bytes),
        _ => registers.put_extended(bytes),
    })?;
    vector.write([base, n as u64]).map(|()| 0)
}

/// PTRACE_GET_SYSCALL_INFO: the size of what there is, of which `size` bytes are written.
fn call_info(tracing: &Tracing, size: u64, data: u64) -> Result<usize> {
    /// Up to the part that depends on what stopped it.
    const HEAD: usize = 24;
    const ENTRY: usize = HEAD + 7 * 8;
    /// PTRACE_SYSCALL_INFO_SECCOMP, with what the filter has to say behind the same as of an entry.
    const FILTERED: u64 = 3;
    const FILTER: usize = ENTRY + 4;
    const EXIT: usize = HEAD + 9;
    let (info, length) = with(tracing, |traced| {
        let f = &traced.registers.frame;
        let kind = match traced.stop.map(|stop| stop.code) {
            Some(CALL_STOP) => traced.message,
            Some(FILTER_STOP) => FILTERED,
            _ => 0,
        };
        let mut info = [0u8; FILTER + 4];
        info[0] = kind as u8;
        info[4..8].copy_from_slice(&AUDIT_ARCH_X86_64.to_ne_bytes());
        let mut word = |at: usize, value: u64| info[at..at + 8].copy_from_slice(&value.to_ne_bytes());
        word(8, f.rip);
        word(16, f.rsp);
        let length = match kind {
            CALL_ENTERS | FILTERED => {
                let words = [f.orig_rax, f.rdi, f.rsi, f.rdx, f.r10, f.r8, f.r9];
                words.into_iter().enumerate().for_each(|(i, value)| word(HEAD + i * 8, value));
                // Of an entry it is not shown.
                word(ENTRY, traced.message & 0xffff);
                if kind == FILTERED { FILTER } else { ENTRY }
            }
            CALL_LEAVES => {
                const MAX_ERRNO: u64 = 4095;
                word(HEAD, f.rax);
                info[HEAD + 8] = u8::from(f.rax >= MAX_ERRNO.wrapping_neg());
                EXIT
            }
            _ => HEAD,
        };
        (info, length)
    })?;
    let n = length.min(usize::try_from(size).unwrap_or(usize::MAX));
    write_bytes(data, &info[..n])?;
    Ok(length)
}
