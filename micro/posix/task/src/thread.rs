// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a thread is to Linux.

use crate::cpu_time::{SystemTime, Transferred};
use crate::fault::FailNth;
use crate::files::Files;
use crate::network::NetworkNamespace;
use crate::pids::{Pid, PidNamespace};
use crate::prctl::{ThreadSettings, TimerSlack};
use crate::process::{Credentials, NsProxy, Process};
use crate::rseq::Rseq;
use crate::scheduling::Scheduling;
use crate::seccomp::Seccomp;
use crate::signals::{SIGKILL, TaskSignals, bit};
use crate::tracing::Tracing;
use alloc::sync::Arc;
use api_lock::SpinLock;
use api_sched::Waiter;
use core::ops::Deref;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use sched::Thread;

/// What each thread has for itself. Others see that of its process' first thread, in [`Process`].
pub struct Own {
    pub credentials: SpinLock<Credentials>,
    pub files: Files,
    pub nsproxy: SpinLock<Arc<NsProxy>>,
}

/// A thread of the program.
pub struct Task {
    pub tid: Pid,
    /// Its number in the PID namespace of its process.
    pub number: i32,
    /// The PID namespace that its next child begins in.
    pub pids_for_children: SpinLock<PidNamespace>,
    pub process: Arc<Process>,
    /// `None` for the first thread, whose are its process', and for [`crate::auxiliary`].
    own: Option<Own>,
    pub signals: TaskSignals,
    pub tracing: Tracing,
    pub system_time: SystemTime,
    pub transferred: Transferred,
    /// CLONE_CHILD_CLEARTID, set_tid_address: zeroed and woken when the thread ends.
    pub clear_child_tid: AtomicU64,
    /// set_robust_list.
    pub robust_list: AtomicU64,
    pub rseq: Rseq,
    /// PR_SET_NAME: 15 bytes and a NUL.
    pub name: SpinLock<[u8; 16]>,
    pub scheduling: SpinLock<Scheduling>,
    pub settings: ThreadSettings,
    pub timer_slack: TimerSlack,
    pub seccomp: Seccomp,
    /// set_mempolicy: policy and nodes.
    pub memory_policy: SpinLock<(u32, u64)>,
    /// It is not to leave the kernel (`overlay::Held`).
    pub held: AtomicBool,
    /// It waits for the child that vfork(2) made: no signal but one that ends it is a reason to go on.
    pub in_vfork: AtomicBool,
    #[cfg_attr(not(feature = "fail-nth"), allow(dead_code))]
    pub fail_nth: FailNth,
    thread: SpinLock<Option<Arc<Thread>>>,
    /// The task that its thread was before it took the process' number (execve): callers further up may have it still.
    predecessor: SpinLock<Option<Arc<Task>>>,
}

impl Task {
    /// `own` is given to a thread that is not its process' first.
    pub fn new(process: Arc<Process>, tid: Pid, name: [u8; 16], own: Option<Own>) -> Arc<Task> {
        let pids = process.pids.clone();
        Arc::new(Task {
            tid,
            number: pids.number_of(tid),
            pids_for_children: SpinLock::new(pids),
            process,
            own,
            signals: TaskSignals::new(),
            tracing: Tracing::default(),
            system_time: SystemTime::default(),
            transferred: Transferred::default(),
            clear_child_tid: AtomicU64::new(0),
            robust_list: AtomicU64::new(0),
            rseq: Rseq::default(),
            name: SpinLock::new(name),
            scheduling: SpinLock::new(Scheduling::default()),
            settings: ThreadSettings::default(),
            timer_slack: TimerSlack::default(),
            seccomp: Seccomp::default(),
            memory_policy: SpinLock::new((0, 0)),
            held: AtomicBool::new(false),
            in_vfork: AtomicBool::new(false),
            fail_nth: FailNth::default(),
            thread: SpinLock::new(None),
            predecessor: SpinLock::new(None),
        })
    }

    /// The process goes by this thread's number.
    #[inline]
    pub fn is_first(&self) -> bool {
        self.tid == self.process.pid
    }

    /// Users, groups and capabilities, which each thread has for itself (credentials(7)); the C library has all threads change
    /// theirs. What others see of the process, and what [`crate::auxiliary`] acts with, are those of its first thread.
    #[inline]
    pub fn credentials(&self) -> &SpinLock<Credentials> {
        self.own.as_ref().map_or(&self.process.credentials, |own| &own.credentials)
    }

    /// Descriptors, root and working directory, which the threads of a process have together unless clone(2) or unshare(2) were told
    /// otherwise.
    #[inline]
    pub fn files(&self) -> &Files {
        self.own.as_ref().map_or(&self.process.files, |own| &own.files)
    }

    fn nsproxy_lock(&self) -> &SpinLock<Arc<NsProxy>> {
        self.own.as_ref().map_or(&self.process.nsproxy, |own| &own.nsproxy)
    }

    /// The namespaces that it is in.
    pub fn nsproxy(&self) -> Arc<NsProxy> {
        self.nsproxy_lock().lock().clone()
    }

    /// Is in other ones from now on.
    pub fn set_nsproxy(&self, new: Arc<NsProxy>) {
        let old = core::mem::replace(&mut *self.nsproxy_lock().lock(), new);
        drop(old);
    }

    /// The network that its new sockets are of.
    pub fn network(&self) -> Arc<NetworkNamespace> {
        self.nsproxy_lock().lock().network.clone()
    }

    /// Other credentials, as Linux' `commit_creds` has it.
    pub fn set_credentials(&self, new: Credentials) {
        let old;
        let is_another = {
            let mut credentials = self.credentials().lock();
            let is_another = !new.is_within(&credentials);
            new.ids_changed_from(&credentials);
            old = core::mem::replace(&mut *credentials, new);
            is_another
        };
        drop(old);
        if is_another {
            self.ids_change();
        }
    }

    /// The ids change that decide what it may access: its memory is not shown to whoever has them, and its parent decides on it no more.
    pub fn ids_change(&self) {
        self.process.settings.lock().ids_change();
        self.settings.set_parent_death_signal(0);
    }

    /// The next child begins in that PID namespace.
    pub fn set_pids_for_children(&self, pids: PidNamespace) {
        let old = core::mem::replace(&mut *self.pids_for_children.lock(), pids);
        drop(old);
    }

    /// Ties the task to the kernel thread that runs it.
    ///
    /// # Safety
    ///
    /// Somebody holds the task until the thread has become another one, has called [`leave`], or ends without having begun. If the
    /// thread runs, no [`Current`] of its is used whose task may go meanwhile.
    pub unsafe fn attach(self: &Arc<Task>, thread: &Arc<Thread>) {
        *self.thread.lock() = Some(thread.clone());
        // SAFETY: the only type that is stored there, and it lives by the caller's word.
        unsafe { thread.set_local(Arc::as_ptr(self).cast_mut().cast()) };
    }

    /// Unties it again: the thread goes on as another task.
    pub fn detach(&self) -> Option<Arc<Thread>> {
        self.thread.lock().take()
    }

    /// Takes over the thread of another task, and holds that one as long as it lives itself.
    pub fn succeed(self: &Arc<Task>, old: Arc<Task>) {
        if let Some(thread) = old.detach() {
            *self.predecessor.lock() = Some(old);
            // SAFETY: the process' table holds the task until the thread has left it, and this one holds the old task, which
            // callers further up may go on with.
            unsafe { self.attach(&thread) };
        }
    }

    /// The kernel thread.
    pub fn thread(&self) -> Option<Arc<Thread>> {
        self.thread.lock().clone()
    }

    /// Processor time used.
    pub fn cpu_ns(&self) -> u64 {
        self.thread.lock().as_ref().map_or(0, |thread| thread.cpu_ns())
    }

    /// True when a signal is to be delivered, or the program started again: a blocking call gives up.
    #[inline]
    pub fn has_signal(&self) -> bool {
        let restarts = self.process.restarts.is_asked() && self.tid != crate::auxiliary::TID;
        let pending = self.signals.is_pending(&self.process.signals) && self.is_to_look();
        pending || restarts || self.tracing.wants_stop()
    }

    /// It is to end, whatever it waits for.
    pub fn is_killed(&self) -> bool {
        let pending = self.signals.pending() | self.process.signals.pending();
        self.process.is_ending() || pending & bit(SIGKILL) != 0
    }

    /// What is pending concerns it: a thread that its tracer let go on passes a stop of its process.
    #[cold]
    fn is_to_look(&self) -> bool {
        !self.tracing.passes_stop() || self.signals.has_pending(&self.process.signals)
    }

    /// Called by the thread itself on its way out of the kernel.
    pub fn wait_while_held(&self) {
        while self.held.load(Ordering::Relaxed) {
            sched::park(u64::MAX);
        }
    }

    /// Takes the thread out of a sleep, or out of the program, because a signal is there.
    pub fn interrupt(&self) {
        match self.thread() {
            Some(thread) => {
                thread.wake(abi::Events::NONE);
                thread.interrupt();
            }
            None => api_plat::request_work(),
        }
    }

    /// The first 15 bytes of a program's name (PR_SET_NAME, execve).
    pub fn set_name(&self, name: &[u8]) {
        let mut padded = [0; 16];
        let length = name.len().min(15);
        padded[..length].copy_from_slice(&name[..length]);
        *self.name.lock() = padded;
    }

    /// The name without its padding.
    pub fn comm(&self) -> alloc::vec::Vec<u8> {
        let name = *self.name.lock();
        name.iter().copied().take_while(|b| *b != 0).collect()
    }

    pub fn clear_child_tid(&self) -> u64 {
        self.clear_child_tid.load(Ordering::Relaxed)
    }
}

/// The task that the running thread is: what every call asks for who makes it.
///
/// It is valid on that thread alone, so it is neither `Send` nor `Sync`: no static, no other thread and nothing that is shared
/// can hold one. What a thread is changes only by [`Task::attach`] and [`leave`], whose callers vouch that no older `Current`
/// is used afterwards.
///
/// ```compile_fail,E0277
/// fn hand_to_another_thread<T: Send>(_: T) {}
/// hand_to_another_thread(task::current());
/// ```
#[derive(Clone, Copy)]
pub struct Current(NonNull<Task>);

impl Deref for Current {
    type Target = Task;

    #[inline]
    fn deref(&self) -> &Task {
        // SAFETY: whoever called `attach` vouches that the task lives while the thread is it, and this is on that thread.
        unsafe { self.0.as_ref() }
    }
}

/// The running thread, when it is one of the program's.
#[inline]
pub fn running() -> Option<Current> {
    NonNull::new(sched::current().local().cast::<Task>()).map(Current)
}

/// The running thread of the program.
///
/// # Panics
///
/// On a kernel thread: those make no system calls.
#[inline]
pub fn current() -> Current {
    running().expect("a system call on a kernel thread")
}

/// The running thread is no task any more, but one of the kernel's threads.
///
/// # Safety
///
/// No [`Current`] of this thread is used from here on.
pub unsafe fn leave() {
    // SAFETY: a null pointer is no task, and by the caller's word nobody goes on with the one before.
    unsafe { sched::current().set_local(core::ptr::null_mut()) };
}

/// Whoever runs a program in a process: the running thread where it is one of it, or else the process itself, which is about
/// to begin.
pub struct Runner<'a> {
    thread: Option<Current>,
    process: &'a Process,
}

impl Runner<'_> {
    pub fn of(process: &Process) -> Runner<'_> {
        let thread = running().filter(|task| core::ptr::eq(&*task.process, process));
        Runner { thread, process }
    }

    pub fn credentials(&self) -> &SpinLock<Credentials> {
        self.thread.as_deref().map_or(&self.process.credentials, Task::credentials)
    }

    pub fn files(&self) -> &Files {
        self.thread.as_deref().map_or(&self.process.files, Task::files)
    }
}

#[unsafe(no_mangle)]
fn unilith_processor_idles() {
    mem::deactivate();
}

#[unsafe(no_mangle)]
fn unilith_thread_resumed(local: *mut ()) {
    if let Some(task) = NonNull::new(local.cast::<Task>()).map(Current) {
        task.process.enter_space();
        task.rseq.resumed();
        if task.has_signal() || task.held.load(Ordering::Relaxed) {
            api_plat::request_work();
        }
    }
}
