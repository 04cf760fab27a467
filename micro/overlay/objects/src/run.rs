// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A running program: its thread, and the ways by which it comes into the kernel.
//!
//! Two threads work for it. The *program's thread* runs its code, and serves its calls between. The *command's thread*
//! has the session: it does the console's part, ends the program when it is interrupted or its time is up, and takes
//! down what is left.

use crate::files::Files;
use crate::heap::Heap;
use crate::memory::Block;
use crate::programs::Program;
use crate::{api, report};
use abi::{Events, Result, errno::*};
use alloc::boxed::Box;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use api_lock::SpinLock;
use api_plat::domain::GATE;
use api_plat::{Entry, Exception, TrapFrame};
use api_sched::Waiter;
use core::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use sched::{Start, Thread};
use task::Task;
use task::overlay::{Held, Hooks};

/// How a program ended.
#[derive(Debug)]
pub enum Outcome {
    Exit(u8),
    Killed { signal: u8, text: String, trace: Vec<String> },
    Interrupted,
}

/// Work for the command's thread.
pub enum Console {
    Write { error: bool, bytes: Vec<u8> },
    Read { length: usize },
}

/// Why a program is to end.
#[repr(u8)]
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum End {
    No = 0,
    Interrupt = 1,
    Time = 2,
    Holding = 3,
}

#[derive(Default)]
struct State {
    request: Option<Console>,
    answer: Option<Result<Vec<u8>>>,
    outcome: Option<Outcome>,
    held: Option<Held>,
    held_since: u64,
}

/// The heap, and the memory it is in.
#[derive(Default)]
pub struct Arenas {
    pub heap: Heap,
    pub arenas: Vec<Block>,
}

pub struct Run {
    pub program: Arc<Program>,
    pub stack: Block,
    pub heap: SpinLock<Arenas>,
    pub files: SpinLock<Files>,
    pub task: Arc<Task>,
    state: SpinLock<State>,
    command: Arc<dyn Waiter>,
    thread: SpinLock<Option<Arc<Thread>>>,
    end: AtomicU8,
    /// The domain it was in when it entered the kernel.
    entry: AtomicU64,
}

/// Vector of a page fault (Intel SDM volume 3, 6.15).
const PAGE_FAULT: u8 = 14;
/// Bytes of a program's stack.
pub const STACK: u64 = 128 << 10;
/// How long a program waits for a thread of the application to sleep in a system call, and how often it looks.
const REST_NS: u64 = 5_000_000_000;
const LOOK_NS: u64 = 500_000;

static RUNS: SpinLock<Vec<Arc<Run>>> = SpinLock::new(Vec::new());

/// What the system-call layer calls.
pub static HOOKS: Hooks = Hooks { exception, call, work };

/// The program that the running thread runs.
fn current() -> Arc<Run> {
    let index = sched::current().index;
    let runs = RUNS.lock();
    let run = runs.iter().find(|run| run.thread.lock().as_ref().is_some_and(|t| t.index == index));
    run.cloned().expect("an overlay domain belongs to a program that runs")
}

fn exception(frame: &mut TrapFrame, exception: Exception) {
    // It called a function of the application that is probed: such calls are passed over, for the tracer's own words are
    // the kernel's.
    if exception.vector == PAGE_FAULT
        && let Some(function) = api_trace::around(frame.rip)
    {
        frame.rip = function;
        return;
    }
    let outcome = {
        let run = current();
        run.enter(frame);
        if exception.vector == GATE {
            match api::call(&run, frame) {
                Ok(answer) => {
                    frame.rax = match answer {
                        Ok(value) => value,
                        Err(e) => e.to_return() as u64,
                    };
                    return;
                }
                Err(Outcome::Killed { signal, text, .. }) => report::killed(&run, frame, signal, &text),
                Err(outcome) => outcome,
            }
        } else {
            report::fault(&run, frame, &exception)
        }
    };
    finish(outcome)
}

/// Calls that would end or replace threads of the application, or change what is this thread's own: exit, exit_group,
/// execve, execveat, fork, vfork, clone, clone3, rt_sigreturn, arch_prctl, set_tid_address, set_robust_list.
const NOT_FROM_HERE: [u64; 12] = [60, 231, 59, 322, 57, 58, 56, 435, 15, 158, 218, 273];

fn call(frame: &mut TrapFrame) {
    let outcome = {
        let run = current();
        run.enter(frame);
        if frame.entry != Entry::OverlayWriting {
            report::forbidden_call(
                &run,
                frame,
                "had the application make a system call without uio_enable_write",
            )
        } else if NOT_FROM_HERE.contains(&frame.rax) {
            report::forbidden_call(
                &run,
                frame,
                "had the application make a call that only its own threads may make",
            )
        } else {
            return;
        }
    };
    finish(outcome)
}

const SIGXCPU: u8 = 24;

/// How long a program runs while others wait for the processor, in nanoseconds: as commands do.
const SLICE_NS: u64 = 1_000_000;

fn work(frame: &mut TrapFrame) {
    let outcome = {
        let run = current();
        match run.end.load(Ordering::Relaxed) {
            end if end == End::No as u8 => return,
            end if end == End::Time as u8 => {
                report::killed(&run, frame, SIGXCPU, "used up its processor time (run -t SECONDS gives more)")
            }
            end if end == End::Holding as u8 => {
                let what = "held the application's thread for too long (run -w SECONDS gives more)";
                report::killed(&run, frame, SIGXCPU, what)
            }
            _ => Outcome::Interrupted,
        }
    };
    finish(outcome)
}

/// Ends the program; on its thread.
fn finish(outcome: Outcome) -> ! {
    let run = current();
    let held = {
        let mut state = run.state.lock();
        state.outcome.get_or_insert(outcome);
        state.held.take()
    };
    drop(held);
    RUNS.lock().retain(|other| !Arc::ptr_eq(other, &run));
    // From here on this is a kernel thread about to end.
    // SAFETY: nobody comes back to the frames above.
    unsafe { task::leave() };
    run.command.wake(Events::NONE);
    drop(run);
    sched::exit_current()
}

impl Run {
    /// Starts the program on a thread of its own; the calling thread is the command's.
    pub fn start(program: Arc<Program>, arguments: &[&[u8]]) -> Result<Arc<Run>> {
        let process = task::auxiliary::program()?;
        let stack = Block::new(STACK)?;
        program.refresh()?;
        let (rsp, vector) = push_arguments(&stack, arguments)?;
        let image = &program.image;
        stack.write(rsp, &image.leave.to_le_bytes())?;
        let mut frame = TrapFrame::at_start(image.start, rsp);
        frame.rdi = arguments.len() as u64;
        frame.rsi = vector;
        frame.entry = Entry::Overlay;
        let thread_pointer = image.thread_pointer;
        let task = Task::new(process, task::auxiliary::TID, [0; 16], None);
        task.set_name(program.name.as_bytes());
        task.signals.block_all();
        let run = Arc::new(Run {
            program,
            stack,
            heap: SpinLock::default(),
            files: SpinLock::default(),
            task,
            state: SpinLock::default(),
            command: api_sched::current(),
            thread: SpinLock::new(None),
            end: AtomicU8::new(End::No as u8),
            entry: AtomicU64::new(Entry::Overlay as u64),
        });
        let thread = sched::spawn(true, Start::Program(Box::new(frame)))?;
        thread.set_initial_fs_base(thread_pointer);
        thread.limit_slice(SLICE_NS);
        // SAFETY: the run is in the list, and so holds the task, until the thread has left it.
        unsafe { run.task.attach(&thread) };
        *run.thread.lock() = Some(thread.clone());
        RUNS.lock().push(run.clone());
        sched::unpark(&thread);
        Ok(run)
    }

    fn enter(&self, frame: &TrapFrame) {
        self.entry.store(frame.entry as u64, Ordering::Relaxed);
    }

    /// The domain it came from.
    pub fn frame_entry(&self) -> Entry {
        let writing = self.entry.load(Ordering::Relaxed) == Entry::OverlayWriting as u64;
        if writing { Entry::OverlayWriting } else { Entry::Overlay }
    }

    /// Processor time of the program.
    pub fn thread_cpu_ns(&self) -> u64 {
        self.thread.lock().as_ref().map_or(0, |thread| thread.cpu_ns())
    }

    fn is_ending(&self) -> bool {
        self.end.load(Ordering::Relaxed) != End::No as u8
    }

    /// Has the command's thread do something with the console; on the program's thread.
    pub fn ask(&self, console: Console) -> Result<Vec<u8>> {
        {
            let mut state = self.state.lock();
            (state.request, state.answer) = (Some(console), None);
        }
        self.command.wake(Events::NONE);
        loop {
            if self.is_ending() {
                return Err(EINTR);
            }
            if let Some(answer) = self.state.lock().answer.take() {
                return answer;
            }
            sched::park(u64::MAX);
        }
    }

    /// Sleeps; on the program's thread.
    pub fn sleep(&self, deadline_ns: u64) -> Result<()> {
        // What was written is seen before the sleep.
        self.command.wake(Events::NONE);
        while api_plat::now_ns() < deadline_ns {
            if self.is_ending() {
                return Err(EINTR);
            }
            sched::park(deadline_ns);
        }
        Ok(())
    }

    /// Lets the program write the application's memory. With `hold` a thread of the application is held and lends its
    /// thread-local variables, so that the application's functions can be called.
    pub fn enable_write(&self, frame: &mut TrapFrame, hold: bool) -> Result<u64> {
        if frame.entry == Entry::OverlayWriting {
            return Ok(0);
        }
        if hold {
            // Its thread-local variables could not be told from the application's.
            if self.program.image.uses_fs {
                return Err(EOPNOTSUPP);
            }
            let deadline = api_plat::now_ns() + REST_NS;
            let held = loop {
                if let Some(held) = self.task.process.tasks().find_map(|task| Held::at_rest(&task)) {
                    break held;
                }
                if self.is_ending() {
                    return Err(EINTR);
                }
                if api_plat::now_ns() >= deadline {
                    return Err(ETIMEDOUT);
                }
                sched::park(api_plat::now_ns() + LOOK_NS);
            };
            self.set_fs_base(held.fs_base);
            let mut state = self.state.lock();
            (state.held, state.held_since) = (Some(held), api_plat::now_ns());
            drop(state);
            // It has a deadline to keep now.
            self.command.wake(Events::NONE);
        }
        frame.entry = Entry::OverlayWriting;
        Ok(0)
    }

    pub fn disable_write(&self, frame: &mut TrapFrame) -> Result<u64> {
        let held = self.state.lock().held.take();
        if held.is_some() {
            self.set_fs_base(self.program.image.thread_pointer);
        }
        frame.entry = Entry::Overlay;
        Ok(0)
    }

    fn set_fs_base(&self, base: u64) {
        let top = sched::current().stack_top();
        // SAFETY: it is the running thread's own stack; the base is one of a program thread.
        unsafe { api_plat::activate(top, base) };
    }

    // ---- On the command's thread.

    pub fn take_request(&self) -> Option<Console> {
        self.state.lock().request.take()
    }

    pub fn answer(&self, answer: Result<Vec<u8>>) {
        self.state.lock().answer = Some(answer);
        self.wake();
    }

    pub fn take_outcome(&self) -> Option<Outcome> {
        self.state.lock().outcome.take()
    }

    /// Since when it holds a thread of the application.
    pub fn held_since(&self) -> Option<u64> {
        let state = self.state.lock();
        state.held.is_some().then_some(state.held_since)
    }

    /// Has the program end at its next instruction.
    pub fn stop(&self, why: End) {
        self.end.store(why as u8, Ordering::Relaxed);
        self.wake();
    }

    fn wake(&self) {
        if let Some(thread) = self.thread.lock().as_ref() {
            thread.wake(Events::NONE);
        }
        api_plat::request_work();
    }
}

/// Puts the argument strings and their pointers on top of the stack; answers where the return address goes, and the
/// vector's address.
fn push_arguments(stack: &Block, arguments: &[&[u8]]) -> Result<(u64, u64)> {
    let bytes: u64 = arguments.iter().map(|a| a.len() as u64 + 1).sum();
    let words = arguments.len() as u64 + 1;
    if bytes + words * 8 > STACK / 4 {
        return Err(E2BIG);
    }
    let top = stack.start + stack.length;
    let mut at = top - bytes;
    let vector = (at & !15) - words.next_multiple_of(2) * 8;
    let mut pointers = Vec::new();
    for argument in arguments {
        pointers.extend_from_slice(&at.to_le_bytes());
        stack.write(at, argument)?;
        // The NUL behind it is there: the pages are zeroed.
        at += argument.len() as u64 + 1;
    }
    stack.write(vector, &pointers)?;
    Ok((vector - 8, vector))
}
