// SPDX-License-Identifier: Apache-2.0 OR MIT
//! seccomp(2): a program gives calls away, for good and for what it starts.
//!
//! What a filter may be and what it answers is the crate `classic-bpf`. As long as nobody has one, a call is not asked about:
//! the way on which calls are looked at is the tracer's ([`dispatch::watched`]).

use super::end::{end_process, end_thread};
use super::identity::capabilities::CAP_SYS_ADMIN;
use super::ptrace;
use super::signals::{self, Action, SIGKILL, SIGSYS, SigInfo};
use crate::call::Call;
use crate::dispatch;
use crate::out_of_memory;
use crate::task::{self, Task};
use abi::{Result, errno::*};
use alloc::sync::Arc;
use alloc::vec::Vec;
use api_alloc::Reserve;
use api_lock::SpinLock;
use api_plat::{Frame, Status};
use api_user::UserPtr;
use classic_bpf::seccomp::{self, Data};
use classic_bpf::{Instruction, MAX_INSTRUCTIONS, Refusal};
use core::iter;
use core::sync::atomic::{AtomicU32, Ordering::Relaxed};

const SET_MODE_STRICT: u32 = 0;
const SET_MODE_FILTER: u32 = 1;
const GET_ACTION_AVAIL: u32 = 2;

const FLAG_TSYNC: u64 = 1;
const FLAG_LOG: u64 = 1 << 1;
const FLAG_SPEC_ALLOW: u64 = 1 << 2;
const FLAG_TSYNC_ESRCH: u64 = 1 << 4;

/// Modes of a thread, which go up and never change otherwise.
const OFF: u32 = 0;
const STRICT: u32 = 1;
const FILTER: u32 = 2;

/// The part of an answer that says what to do; the first is the strongest, and of several filters the strongest counts.
const ACTION: u32 = 0xffff_0000;
const KILL_PROCESS: u32 = 0x8000_0000;
const KILL_THREAD: u32 = 0;
const TRAP: u32 = 0x0003_0000;
const ERRNO: u32 = 0x0005_0000;
const USER_NOTIFICATION: u32 = 0x7fc0_0000;
const TRACE: u32 = 0x7ff0_0000;
const LOG: u32 = 0x7ffc_0000;
const ALLOW: u32 = 0x7fff_0000;
const ACTIONS: [u32; 7] = [KILL_PROCESS, KILL_THREAD, TRAP, ERRNO, TRACE, LOG, ALLOW];
/// The same as `/proc/sys/kernel/seccomp/actions_avail` shows them.
pub const ACTION_NAMES: &str = "kill_process kill_thread trap errno trace log allow\n";
const MAX_ERRNO: u32 = 4095;

/// A linked program calls the handlers by name: nothing on its way could ask a filter.
const IS_LINKED: bool = cfg!(feature = "linked");

/// AUDIT_ARCH_X86_64
const ARCHITECTURE: u32 = 0xc000_003e;
/// `si_code` of a SIGSYS that a filter sent.
const SYS_SECCOMP: i32 = 1;

/// Instructions that a call may meet in all filters of a thread; each filter above the first counts for some more.
const MAX_ON_THE_WAY: usize = (1 << 18) / size_of::<Instruction>();
const FILTER_COUNTS_FOR: usize = 4;

/// `struct sock_fprog`: how many instructions, in the lowest 16 bits, and where.
type Program = [u64; 2];

/// A filter, and those that were there before it.
struct Filter {
    program: Vec<Instruction>,
    previous: Option<Arc<Filter>>,
    /// Of all of them.
    instructions: usize,
    number: u32,
    /// Numbers of calls that all of them allow whatever their arguments are: those are not asked about (as Linux since 5.11).
    allowed: Numbers,
}

/// A set of the numbers of calls that the kernel has.
type Numbers = [u64; NUMBER_WORDS];
const NUMBER_WORDS: usize = syscall_table::NUMBERS.div_ceil(64);

impl Filter {
    /// A filter over those that were there before.
    fn new(program: Vec<Instruction>, previous: Option<Arc<Filter>>) -> Filter {
        let own = program.len();
        let (instructions, number) = match &previous {
            Some(p) => (p.instructions.saturating_add(own + FILTER_COUNTS_FOR), p.number + 1),
            None => (own, 1),
        };
        let mut allowed: Numbers =
            previous.as_ref().map_or([u64::MAX; NUMBER_WORDS], |previous| previous.allowed);
        for (n, word) in allowed.iter_mut().enumerate() {
            for bit in 0..64 {
                let number = (n * 64 + bit) as u32;
                if seccomp::answer_by_number(&program, number, ARCHITECTURE) != Some(ALLOW) {
                    *word &= !(1 << bit);
                }
            }
        }
        Filter { program, previous, instructions, number, allowed }
    }

    fn allows(&self, number: u64) -> bool {
        let word = usize::try_from(number / 64).ok().and_then(|n| self.allowed.get(n));
        word.is_some_and(|word| word >> (number % 64) & 1 != 0)
    }
}

/// The filter that a container's programs begin with.
#[derive(Clone)]
pub struct Profile(Arc<Filter>);

impl Profile {
    /// Of instructions as `struct sock_filter` has them, a word each; none of them: no filter. `EINVAL`: they are no program, or this
    /// kernel has no filters; `ENOMEM`.
    pub fn of(words: &[u64]) -> Result<Option<Profile>> {
        if words.is_empty() {
            return Ok(None);
        }
        if IS_LINKED {
            return Err(EINVAL);
        }
        let program = checked(words)?;
        Ok(Some(Profile(Arc::new(Filter::new(program, None)))))
    }
}

/// A thread's filters, the newest first.
fn chain(newest: &Option<Arc<Filter>>) -> impl Iterator<Item = &Arc<Filter>> {
    iter::successors(newest.as_ref(), |filter| filter.previous.as_ref())
}

impl Drop for Filter {
    /// One after the other: thousands of them, each dropping the next, would need as many frames of the kernel's stack.
    fn drop(&mut self) {
        let mut next = self.previous.take();
        while let Some(mut filter) = next.and_then(Arc::into_inner) {
            next = filter.previous.take();
        }
    }
}

/// What a thread has given away.
#[derive(Default)]
pub struct Seccomp {
    mode: AtomicU32,
    filters: SpinLock<Option<Arc<Filter>>>,
}

/// Threads that have given something away.
static FILTERED: AtomicU32 = AtomicU32::new(0);

/// Some thread of the machine has given calls away.
pub fn is_anybody_filtered() -> bool {
    FILTERED.load(Relaxed) != 0
}

impl Seccomp {
    #[inline]
    pub fn is_on(&self) -> bool {
        self.mode() != OFF
    }

    /// As /proc/PID/status tells it.
    pub fn mode(&self) -> u32 {
        self.mode.load(Relaxed)
    }

    /// How many filters a call meets.
    pub fn filters(&self) -> u32 {
        self.filters.lock().as_ref().map_or(0, |filter| filter.number)
    }

    /// For a thread that `parent` makes, or that goes on in its place.
    pub fn inherit(&self, parent: &Seccomp) {
        if parent.is_on() {
            let filters = parent.filters.lock().clone();
            self.set(parent.mode(), filters);
        }
    }

    /// For a thread whose program is about to begin in a container.
    pub fn begin(&self, profile: Option<&Profile>) {
        if let Some(Profile(filter)) = profile {
            self.set(FILTER, Some(filter.clone()));
        }
    }

    /// All filters allow every call of that number.
    fn allows(&self, number: u64) -> bool {
        self.filters.lock().as_ref().is_some_and(|filter| filter.allows(number))
    }

    fn set(&self, mode: u32, filters: Option<Arc<Filter>>) {
        let old = core::mem::replace(&mut *self.filters.lock(), filters);
        drop(old);
        if self.mode.swap(mode, Relaxed) == OFF {
            FILTERED.fetch_add(1, Relaxed);
            dispatch::watched();
        }
    }

    /// `EINVAL` when another mode was chosen before.
    fn may_have(&self, mode: u32) -> Result<()> {
        if [OFF, mode].contains(&self.mode()) { Ok(()) } else { Err(EINVAL) }
    }

    /// The strongest answer of all filters; of equal ones that of the newest.
    fn ask(&self, data: &Data) -> u32 {
        let filters = self.filters.lock().clone();
        let mut strongest = ALLOW;
        for filter in chain(&filters) {
            let answer = seccomp::run(&filter.program, data);
            // KILL_PROCESS is the strongest, by its sign.
            if ((answer & ACTION) as i32) < (strongest & ACTION) as i32 {
                strongest = answer;
            }
        }
        strongest
    }
}

impl Drop for Seccomp {
    fn drop(&mut self) {
        if self.is_on() {
            FILTERED.fetch_sub(1, Relaxed);
            dispatch::watched();
        }
    }
}

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
    // Nobody outside of a filter can be asked (SECCOMP_FILTER_FLAG_NEW_LISTENER).
    if flags & !(FLAG_TSYNC | FLAG_LOG | FLAG_SPEC_ALLOW | FLAG_TSYNC_ESRCH) != 0 {
        return Err(EINVAL);
    }
    let task = task::current();
    // A filter stays as long as its thread.
    out_of_memory::admit(task)?;
    let program = read(task, program)?;
    task.seccomp.may_have(FILTER)?;
    let previous = task.seccomp.filters.lock().clone();
    let filter = Filter::new(program, previous);
    if filter.instructions > MAX_ON_THE_WAY {
        return Err(ENOMEM);
    }
    if flags & FLAG_TSYNC != 0
        && let Some(other) = task.process.tasks().find(|other| !can_follow(other, task))
    {
        return if flags & FLAG_TSYNC_ESRCH != 0 { Err(ESRCH) } else { Ok(other.number as usize) };
    }
    let filter = Arc::new(filter);
    let gains_nothing = task.credentials().lock().no_new_privileges;
    if flags & FLAG_TSYNC != 0 {
        for other in task.process.tasks().filter(|other| other.tid != task.tid) {
            other.seccomp.set(FILTER, Some(filter.clone()));
            if gains_nothing {
                other.credentials().lock().no_new_privileges = true;
            }
        }
    }
    task.seccomp.set(FILTER, Some(filter));
    Ok(0)
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

fn checked(words: &[u64]) -> Result<Vec<Instruction>> {
    let mut instructions = Vec::new();
    instructions.reserve_exact_fallibly(words.len()).map_err(|_| ENOMEM)?;
    instructions.extend(words.iter().copied().map(Instruction::from_word));
    match seccomp::check(&instructions) {
        Ok(()) => Ok(instructions),
        Err(Refusal::Invalid) => Err(EINVAL),
        Err(Refusal::NoMemory) => Err(ENOMEM),
    }
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
pub fn call_enters(task: &Task, frame: &mut Frame, number: u64) -> u64 {
    if frame.entry.is_overlay() || number == ptrace::stop::NO_CALL {
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

fn decide(task: &Task, frame: &mut Frame, number: u64, may_trace: bool) -> u64 {
    let space = task.process.space();
    let rip = space.map_or(frame.rip, |space| space.original_address(frame.rip));
    let f = &*frame;
    let data = Data {
        number: number as u32,
        architecture: ARCHITECTURE,
        instruction_pointer: rip,
        arguments: [f.rdi, f.rsi, f.rdx, f.r10, f.r8, f.r9],
    };
    let answer = task.seccomp.ask(&data);
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
        USER_NOTIFICATION => frame.rax = ENOSYS.to_return() as u64,
        KILL_THREAD if task.process.thread_count() > 1 => ends_by(task, frame, SIGSYS),
        // One that is not known is as strong as the strongest.
        action => {
            if action != TRAP {
                let name = syscall_table::row(number as u32).map_or("?", |row| row.name);
                let pid = task.process.pid.of_machine();
                log::info!("process {pid}: its filter of system calls does not allow {name} ({number})");
                // Neither a handler nor a mask keeps it away.
                task.process.signals.set_action(SIGSYS, Action::DEFAULT);
            }
            frame.rax = number;
            let info = SigInfo::bad_call(SYS_SECCOMP, detail as i32, rip, number as i32, ARCHITECTURE);
            signals::force(task, info);
        }
    }
    ptrace::stop::NO_CALL
}

/// The thread ends, and with the last one the process, as if by the signal.
fn ends_by(task: &Task, frame: &mut Frame, signal: i32) -> ! {
    let status = Status::Signal { number: signal as u8 };
    ptrace::stop::ends(task, frame, Some(&status));
    if task.process.thread_count() > 1 { end_thread(0) } else { end_process(status) }
}
