// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a process is to Linux.

use crate::cgroup::{self, Cgroup};
use crate::children::{Change, Ended};
use crate::containers::Container;
use crate::control_group::{self, ControlGroup};
use crate::cpu_time::Usage;
use crate::files::Files;
pub use crate::identity::credentials::Credentials;
use crate::identity::sessions::Sessions;
use crate::ipc::{self, Ipc};
use crate::limits::Limits;
use crate::network::{self, NetworkNamespace};
use crate::pids::{AtomicPid, Pid, PidNamespace};
use crate::prctl::Settings;
use crate::processes::{self, Claim};
use crate::restart::Restarts;
use crate::scheduling::Scheduling;
use crate::siblings::{Children, Next};
use crate::signals::{ProcessSignals, SIGCHLD};
use crate::thread::Task;
use crate::time::ProcessTimers;
use crate::time::namespace::{self, TimeNamespace};
use crate::tracing::Tracee;
use crate::users::UserNamespace;
use crate::uts::{self, Uts};
use abi::Result;
use alloc::sync::Arc;
use alloc::vec::Vec;
use api_lock::SpinLock;
use api_plat::Status;
use api_sched::{WaitQueue, Waiter};
use core::iter;
use core::ops::Bound;
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};
use mem::Space;
use ordered::Map;
use vfs::Dentry;

/// Nanoseconds that a thread runs at least, while equals wait, in a space of which nothing is shown: a page comes back in 3 to 10 µs, and a
/// program that looks at thousands of them (a collection of garbage) got nowhere in turns of 4 ms.
const TURN_OF_SHOWN: u64 = 100_000_000;
/// On a host where pages come back slowly it runs for this many times what it took to take away the space before it, but no longer
/// than [`LONGEST_TURN`]. Both are calls of the host for each of some hundred pieces.
const TURN_BY_PRICE: u64 = 50;
const LONGEST_TURN: u64 = 2_000_000_000;

/// A process: from fork until it is waited for.
pub struct Process {
    pub pid: Pid,
    /// The PID namespace that it is in.
    pub pids: PidNamespace,
    /// Its number there.
    pub number: i32,
    /// Of its first thread, and what others see of the process: [`Task::credentials`].
    pub credentials: SpinLock<Credentials>,
    /// The same: [`Task::files`].
    pub files: Files,
    pub signals: ProcessSignals,
    pub limits: Limits,
    pub timers: ProcessTimers,
    pub sessions: SpinLock<Sessions>,
    pub settings: SpinLock<Settings>,
    pub family: Family,
    /// Who its children are asked for by.
    pub claim: Claim,
    /// The container that it is in; `None`: the machine's own.
    pub container: Option<Arc<Container>>,
    /// The same: [`Task::nsproxy`].
    pub nsproxy: SpinLock<Arc<NsProxy>>,
    /// When it was made, in nanoseconds since boot.
    pub born_ns: u64,
    tasks: SpinLock<Map<Pid, Arc<Task>>>,
    /// What all of it came to; the first who says so is believed.
    ending: SpinLock<Option<Status>>,
    is_ending: AtomicBool,
    /// The thread that is about to run another program, and 0: the others end.
    only: AtomicPid,
    /// What threads that have ended used.
    ended: SpinLock<Usage>,
    /// How the thread that ended last was scheduled: a zombie's is asked for.
    last_scheduling: SpinLock<Scheduling>,
    program: SpinLock<Option<Arc<Program>>>,
    space: SpinLock<Option<Arc<Space>>>,
    pub restarts: Restarts,
    /// Threads of other processes that it traces.
    pub tracees: SpinLock<Vec<Tracee>>,
}

/// A process' place among the others. Parents hold their children, and children know their parent's number.
pub struct Family {
    /// The parent; nobody for the first process, and for those that somebody outside started (`outside`) or that such a process left
    /// behind.
    parent: AtomicPid,
    /// Its number as the process sees it.
    parent_number: AtomicI32,
    /// The signal the parent gets at the end; 0 for none.
    pub exit_signal: AtomicI32,
    pub children: SpinLock<Children>,
    /// Its place among its parent's children.
    pub next_sibling: Next,
    /// Woken when something happened to a child.
    pub changed: WaitQueue,
    /// Woken at the end of the process, for pidfds.
    pub ended: WaitQueue,
    /// What became of it, from its end until it is waited for.
    pub zombie: SpinLock<Option<Ended>>,
    /// It stopped or went on, and the parent was not told by a wait yet.
    pub change: SpinLock<Option<Change>>,
    /// What children that were waited for used, with theirs.
    pub children_used: SpinLock<Usage>,
    /// Whom vfork(2) keeps waiting until this process has an address space of its own, or none.
    pub vfork_parent: SpinLock<Option<Arc<dyn Waiter>>>,
    /// It ran another program: setpgid(2) of the parent comes too late.
    pub has_run_program: AtomicBool,
    /// Written to /proc/PID/oom_score_adj.
    pub oom_adjustment: AtomicI32,
    /// A signal ended it, and there is a core file.
    pub left_core: AtomicBool,
    /// It was ended because memory had run out.
    pub was_out_of_memory: AtomicBool,
    /// The process that traces the first thread.
    pub traced_by: AtomicPid,
    /// It does so by PTRACE_SEIZE.
    pub is_seized: AtomicBool,
    /// The parent's thread that made it.
    pub maker: AtomicPid,
    /// ru_maxrss of children that were waited for, in bytes.
    pub children_peak: AtomicU64,
}

impl Family {
    fn new(parent: Pid, parent_number: i32, exit_signal: i32) -> Family {
        Family {
            parent: AtomicPid::new(parent),
            parent_number: AtomicI32::new(parent_number),
            exit_signal: AtomicI32::new(exit_signal),
            children: SpinLock::default(),
            next_sibling: Next::default(),
            changed: WaitQueue::new(),
            ended: WaitQueue::new(),
            zombie: SpinLock::new(None),
            change: SpinLock::new(None),
            children_used: SpinLock::new(Usage::default()),
            vfork_parent: SpinLock::new(None),
            has_run_program: AtomicBool::new(false),
            oom_adjustment: AtomicI32::new(0),
            left_core: AtomicBool::new(false),
            was_out_of_memory: AtomicBool::new(false),
            children_peak: AtomicU64::new(0),
            traced_by: AtomicPid::new(Pid::NONE),
            is_seized: AtomicBool::new(false),
            maker: AtomicPid::new(parent),
        }
    }

    #[inline]
    pub fn parent(&self) -> Pid {
        self.parent.get()
    }

    /// getppid(2): 0 for a parent outside of the process' PID namespace.
    #[inline]
    pub fn parent_number(&self) -> i32 {
        self.parent_number.load(Ordering::Relaxed)
    }

    pub fn is_zombie(&self) -> bool {
        self.zombie.lock().is_some()
    }

    /// Lets the parent of vfork(2) go on.
    pub fn release_vfork_parent(&self) {
        let waiter = self.vfork_parent.lock().take();
        if let Some(waiter) = waiter {
            waiter.wake(abi::Events::NONE);
        }
    }
}

/// What runs, as execve left it: for /proc/self.
pub struct Program {
    pub file: Arc<Dentry>,
    /// The user namespace in which it was begun (Linux' `mm->user_ns`): who may trace anything there sees also what may not be dumped.
    pub users: UserNamespace,
    pub auxv: Vec<u64>,
}

/// Namespaces of a thread of which nothing else depends (Linux' `struct nsproxy` has those of mounts, networks and processes as well).
#[derive(Clone)]
pub struct NsProxy {
    pub uts: Arc<Uts>,
    pub ipc: Arc<Ipc>,
    pub cgroup: Arc<Cgroup>,
    pub network: Arc<NetworkNamespace>,
    pub time: Arc<TimeNamespace>,
    /// The one that its children begin in.
    pub time_for_children: Arc<TimeNamespace>,
}

impl NsProxy {
    /// The machine's own.
    pub fn first() -> Arc<NsProxy> {
        let (uts, ipc, cgroup, network) = (uts::first(), ipc::first(), cgroup::first(), network::first());
        let time = namespace::first();
        Arc::new(NsProxy { uts, ipc, cgroup, network, time: time.clone(), time_for_children: time })
    }
}

/// What a new process begins with.
pub struct Beginning {
    pub credentials: Credentials,
    pub files: Files,
    pub signals: ProcessSignals,
    pub limits: Limits,
    pub sessions: Sessions,
    pub settings: Settings,
    pub pids: PidNamespace,
    pub parent: Pid,
    pub exit_signal: i32,
    /// Who its children are asked for by.
    pub claim: Claim,
    pub container: Option<Arc<Container>>,
    pub nsproxy: Arc<NsProxy>,
    pub program: Option<Arc<Program>>,
    pub space: Option<Arc<Space>>,
}

impl Process {
    /// The first process, before its program.
    pub fn new(pid: Pid, credentials: Credentials, files: Files) -> Arc<Process> {
        let beginning = Beginning {
            credentials,
            files,
            signals: ProcessSignals::new(),
            limits: Limits::default(),
            sessions: Sessions::default(),
            settings: Settings::default(),
            parent: Pid::NONE,
            pids: PidNamespace::FIRST,
            exit_signal: SIGCHLD,
            claim: Claim::Program,
            container: None,
            nsproxy: NsProxy::first(),
            program: None,
            space: None,
        };
        Process::begin(pid, beginning)
    }

    pub fn begin(pid: Pid, from: Beginning) -> Arc<Process> {
        let (number, parent_number) = (from.pids.number_of(pid), from.pids.number_of(from.parent));
        Arc::new(Process {
            pid,
            pids: from.pids,
            number,
            credentials: SpinLock::new(from.credentials),
            files: from.files,
            signals: from.signals,
            limits: from.limits,
            timers: ProcessTimers::default(),
            sessions: SpinLock::new(from.sessions),
            settings: SpinLock::new(from.settings),
            family: Family::new(from.parent, parent_number, from.exit_signal),
            claim: from.claim,
            container: from.container,
            nsproxy: SpinLock::new(from.nsproxy),
            born_ns: api_plat::now_ns(),
            tasks: SpinLock::new(Map::new()),
            ending: SpinLock::new(None),
            is_ending: AtomicBool::new(false),
            only: AtomicPid::new(Pid::NONE),
            ended: SpinLock::new(Usage::default()),
            last_scheduling: SpinLock::default(),
            program: SpinLock::new(from.program),
            space: SpinLock::new(from.space),
            restarts: Restarts::default(),
            tracees: SpinLock::new(Vec::new()),
        })
    }

    /// A user id as it sees it.
    pub fn shown_user(&self, uid: u32) -> u32 {
        self.credentials.lock().users.shown_user(uid)
    }

    /// It is the first one of its PID namespace, or of the machine (pid_namespaces(7), "The namespace init process").
    pub fn is_first(&self) -> bool {
        self.number == 1
    }

    /// Another process is its parent from now on.
    pub fn set_parent(&self, parent: Pid) {
        self.family.parent.set(parent);
        self.family.parent_number.store(self.pids.number_of(parent), Ordering::Relaxed);
    }

    /// The network of its first thread.
    pub fn network(&self) -> Arc<NetworkNamespace> {
        self.nsproxy.lock().network.clone()
    }

    /// Its files, and those that threads of it have apart from these.
    pub fn each_files(&self, mut see: impl FnMut(&Files) -> Result<()>) -> Result<()> {
        see(&self.files)?;
        let common = self.files.descriptors.address();
        let mut apart = self.tasks().filter(|task| task.files().descriptors.address() != common);
        apart.try_for_each(|task| see(task.files()))
    }

    /// Whether it is in that container.
    pub fn is_in(&self, container: &Arc<Container>) -> bool {
        self.container.as_ref().is_some_and(|own| Arc::ptr_eq(own, container))
    }

    /// The control group that counts it.
    #[inline]
    pub fn group(&self) -> &ControlGroup {
        self.container.as_ref().map_or(&control_group::MACHINE, |container| &container.group)
    }

    /// Whether both are in the same container, or both in the machine's own.
    pub fn is_beside(&self, other: &Process) -> bool {
        match &self.container {
            Some(container) => other.is_in(container),
            None => other.container.is_none(),
        }
    }

    /// Its address space; `None` before the first program and after its end.
    pub fn space(&self) -> Option<Arc<Space>> {
        self.space.lock().clone()
    }

    /// Goes on in another address space; the running thread is the process' only one.
    pub fn set_space(&self, space: Arc<Space>) {
        // The old one first: where it was the process' alone, the new one takes its place on a host that shows only a few.
        mem::deactivate();
        let old = self.space.lock().take();
        drop(old);
        space.activate();
        *self.space.lock() = Some(space);
    }

    /// The address space of a process that has not begun.
    pub fn give_space(&self, space: Arc<Space>) {
        *self.space.lock() = Some(space);
    }

    /// Lets go of the address space, which is the running thread's. What of it no other process has is gone.
    pub fn leave_space(&self) {
        mem::deactivate();
        let old = self.space.lock().take();
        drop(old);
    }

    /// The running thread, or the one that runs next, is the process': it finds its own address space.
    #[inline]
    pub fn enter_space(&self) {
        if let Some(space) = &*self.space.lock()
            && let Some(took) = space.enter()
        {
            sched::prolong_turn(took.saturating_mul(TURN_BY_PRICE).clamp(TURN_OF_SHOWN, LONGEST_TURN));
        }
    }

    /// What runs; `None` before the first program.
    pub fn program(&self) -> Option<Arc<Program>> {
        self.program.lock().clone()
    }

    /// Whose secret its memory is where it may not be dumped ([`Program::users`]); the machine's own users' before it has a program.
    pub fn users_of_program(&self) -> UserNamespace {
        self.program().map(|program| program.users.clone()).unwrap_or_default()
    }

    pub fn set_program(&self, program: Program) {
        let old = self.program.lock().replace(Arc::new(program));
        drop(old);
    }

    /// The process goes on without the program's file, at its end.
    pub fn forget_program(&self) {
        let old = self.program.lock().take();
        drop(old);
    }

    /// A new thread, whose id the caller has from [`processes::allocate`].
    pub fn add(&self, task: Arc<Task>) {
        self.tasks.lock().insert(task.tid, task);
    }

    /// Takes a thread out; its id may be used again.
    pub fn remove(&self, tid: Pid) {
        let (removed, is_last) = {
            let mut tasks = self.tasks.lock();
            (tasks.remove(&tid), tasks.is_empty())
        };
        if let Some(task) = removed {
            // A process counts until it is waited for.
            if !is_last {
                self.group().uncharge();
            }
            *self.ended.lock() += task.usage();
            *self.last_scheduling.lock() = *task.scheduling.lock();
            processes::release(tid);
        }
    }

    /// How a zombie was scheduled; `None` while it lives.
    pub fn scheduling_at_end(&self) -> Option<Scheduling> {
        self.family.is_zombie().then(|| *self.last_scheduling.lock())
    }

    pub fn task(&self, tid: Pid) -> Option<Arc<Task>> {
        self.tasks.lock().get(&tid).cloned()
    }

    /// All threads, by id.
    /// As [`processes::all`]: nothing is allocated, for who asks may be ending the process because memory has run out.
    ///
    /// [`processes::all`]: crate::processes::all
    pub fn tasks(&self) -> impl Iterator<Item = Arc<Task>> + '_ {
        let mut last = Pid::NONE;
        iter::from_fn(move || {
            let behind = (Bound::Excluded(last), Bound::Unbounded);
            let (tid, task) = self.tasks.lock().range(behind).next().map(|(tid, t)| (*tid, t.clone()))?;
            last = tid;
            Some(task)
        })
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

    /// The thread that made the child; the first one once that is gone.
    pub fn maker_of(&self, child: &Process) -> Pid {
        let maker = child.family.maker.get();
        if self.task(maker).is_some() { maker } else { self.pid }
    }

    pub fn thread_count(&self) -> usize {
        self.tasks.lock().len()
    }

    /// The number all threads but the first are not called by: the process' own task, or any that is left.
    pub fn main_task(&self) -> Option<Arc<Task>> {
        let tasks = self.tasks.lock();
        tasks.get(&self.pid).or_else(|| tasks.values().next()).cloned()
    }

    /// All threads but `tid` are to end; false when another one said so of itself before, or the process ends.
    pub fn leave_only(&self, tid: Pid) -> bool {
        !self.is_ending() && self.only.replace(Pid::NONE, tid).is_ok()
    }

    pub fn all_may_stay(&self) {
        self.only.set(Pid::NONE);
    }

    /// The thread that the others make room for.
    pub fn only(&self) -> Option<Pid> {
        Some(self.only.get()).filter(|tid| *tid != Pid::NONE)
    }

    /// Its threads are to end, every one of them.
    #[inline]
    pub fn is_ending(&self) -> bool {
        self.is_ending.load(Ordering::Relaxed)
    }

    /// What it came to, once it ends.
    pub fn outcome(&self) -> Option<Status> {
        self.ending.lock().clone()
    }

    /// It ends with this; false when it was ending already.
    pub fn begin_end(&self, status: Status) -> bool {
        if self.is_ending.swap(true, Ordering::Relaxed) {
            return false;
        }
        *self.ending.lock() = Some(status);
        true
    }
}
