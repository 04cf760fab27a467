// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the program as a whole is to Linux.

pub use crate::calls::identity::credentials::Credentials;
use crate::calls::identity::sessions::Sessions;
use crate::calls::limits::Limits;
use crate::calls::prctl::Settings;
use crate::calls::signals::ProcessSignals;
use crate::calls::time::ProcessTimers;
use crate::cpu_time::Usage;
use crate::files::Files;
use crate::restart::Restarts;
use crate::task::Task;
use alloc::sync::Arc;
use alloc::vec::Vec;
use api_lock::SpinLock;
use api_plat::Status;
use core::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use mem::Space;
use ordered::Map;
use vfs::Dentry;

/// The program is process 1, as the entrypoint of a container is.
pub const FIRST_PID: i32 = 1;

/// A process. There is one; structures that a second one would need for itself hang off it.
pub struct Process {
    pub pid: i32,
    pub credentials: SpinLock<Credentials>,
    pub files: Files,
    pub signals: ProcessSignals,
    pub limits: Limits,
    pub timers: ProcessTimers,
    pub sessions: SpinLock<Sessions>,
    pub settings: SpinLock<Settings>,
    tasks: SpinLock<Map<i32, Arc<Task>>>,
    next_tid: AtomicI32,
    exiting: AtomicBool,
    /// The thread that is about to run another program, and 0: the others end.
    only: AtomicI32,
    /// What threads that have ended used.
    ended: SpinLock<Usage>,
    program: SpinLock<Option<Arc<Program>>>,
    space: SpinLock<Option<Arc<Space>>>,
    pub restarts: Restarts,
}

/// What runs, as execve left it: for /proc/self.
pub struct Program {
    pub file: Arc<Dentry>,
    /// Where the argument strings lie on the program's stack, start and end; and those of the environment.
    pub argument_bytes: (u64, u64),
    pub environment_bytes: (u64, u64),
    pub auxv: Vec<u64>,
}

impl Process {
    pub fn new(pid: i32, credentials: Credentials, files: Files) -> Arc<Process> {
        Arc::new(Process {
            pid,
            credentials: SpinLock::new(credentials),
            files,
            signals: ProcessSignals::new(),
            limits: Limits::default(),
            timers: ProcessTimers::default(),
            sessions: SpinLock::new(Sessions::default()),
            settings: SpinLock::new(Settings::default()),
            tasks: SpinLock::new(Map::new()),
            next_tid: AtomicI32::new(pid),
            exiting: AtomicBool::new(false),
            only: AtomicI32::new(0),
            ended: SpinLock::new(Usage::default()),
            program: SpinLock::new(None),
            space: SpinLock::new(None),
            restarts: Restarts::default(),
        })
    }

    /// Its address space; `None` before the first program.
    pub fn space(&self) -> Option<Arc<Space>> {
        self.space.lock().clone()
    }

    /// Goes on in another address space; the running thread is the process' only one.
    pub fn set_space(&self, space: Arc<Space>) {
        space.activate();
        let old = self.space.lock().replace(space);
        drop(old);
    }

    /// The running thread, or the one that runs next, is the process': it finds its own address space.
    #[inline]
    pub fn enter_space(&self) {
        if let Some(space) = &*self.space.lock() {
            space.enter();
        }
    }

    /// What runs; `None` before the first program.
    pub fn program(&self) -> Option<Arc<Program>> {
        self.program.lock().clone()
    }

    pub fn set_program(&self, program: Program) {
        let old = self.program.lock().replace(Arc::new(program));
        drop(old);
    }

    /// A thread id that is not in use; the first one is the process id.
    pub fn allocate_tid(&self) -> i32 {
        self.next_tid.fetch_add(1, Ordering::Relaxed)
    }

    /// The thread id given out last.
    pub fn newest_tid(&self) -> i32 {
        self.next_tid.load(Ordering::Relaxed) - 1
    }

    pub fn add(&self, task: Arc<Task>) {
        self.tasks.lock().insert(task.tid, task);
    }

    /// Takes a thread out.
    pub fn remove(&self, tid: i32) {
        let removed = self.tasks.lock().remove(&tid);
        if let Some(task) = removed {
            *self.ended.lock() += task.usage();
        }
    }

    pub fn task(&self, tid: i32) -> Option<Arc<Task>> {
        self.tasks.lock().get(&tid).cloned()
    }

    /// All threads, by id.
    pub fn tasks(&self) -> Vec<Arc<Task>> {
        self.tasks.lock().values().cloned().collect()
    }

    /// Processor time of all threads, those that have ended included.
    pub fn cpu_ns(&self) -> u64 {
        let running: u64 = self.tasks.lock().values().map(|task| task.cpu_ns()).sum();
        self.ended.lock().total_ns() + running
    }

    /// What all threads used, those that have ended included.
    pub fn usage(&self) -> Usage {
        let mut sum = *self.ended.lock();
        for task in self.tasks() {
            sum += task.usage();
        }
        sum
    }

    pub fn thread_count(&self) -> usize {
        self.tasks.lock().len()
    }

    /// All threads but `tid` are to end; false when another one said so of itself before.
    pub fn leave_only(&self, tid: i32) -> bool {
        self.only.compare_exchange(0, tid, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }

    pub fn all_may_stay(&self) {
        self.only.store(0, Ordering::Relaxed);
    }

    /// The thread that the others make room for.
    pub fn only(&self) -> Option<i32> {
        Some(self.only.load(Ordering::Relaxed)).filter(|tid| *tid != 0)
    }

    /// Ends the program, and with it the machine: stores what is not stored yet, then tells the host.
    pub fn end(&self, status: Status) -> ! {
        // Storing may block and another thread may end the program meanwhile: the first one's status counts.
        if self.exiting.swap(true, Ordering::Relaxed) {
            loop {
                sched::park(u64::MAX);
            }
        }
        crate::calls::end::store_everything();
        api_plat::power_off(&status)
    }
}
