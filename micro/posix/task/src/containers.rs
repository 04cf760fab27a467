// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Containers of a pod: trees of processes that share the machine's network and clock, and have a tree of files and namespaces each.
//! Somebody outside of the machine starts them (`outside`). A container's first process is to it what the first process of a
//! PID namespace is (pid_namespaces(7)), whether the container has one of its own or shares another's: whoever is left behind in the
//! container becomes its child, and its end ends them all.

use crate::bandwidth;
use crate::control_group::{self, ControlGroup};
use crate::limits::Limits;
use crate::pids::{AtomicPid, Pid, PidNamespace};
use crate::process::{Credentials, NsProxy, Process};
use crate::seccomp::Profile;
use crate::signals::SIGKILL;
use crate::{end, processes};
use abi::{Result, errno::*};
use alloc::sync::Arc;
use alloc::vec::Vec;
use api_lock::SpinLock;
use api_plat::Status;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use vfs::{Dentry, Namespace};

/// A container, from before its first process until the last one has ended.
pub struct Container {
    pub name: Vec<u8>,
    /// Counts from 1; no two containers have the same.
    pub number: u64,
    pub namespace: Arc<Namespace>,
    /// The namespaces that its programs begin in.
    pub pids: PidNamespace,
    pub nsproxy: Arc<NsProxy>,
    /// What programs begin with that somebody starts in it later.
    pub credentials: Credentials,
    pub environment: Vec<Vec<u8>>,
    pub working: Arc<Dentry>,
    pub umask: u32,
    pub limits: Limits,
    /// What its programs may call.
    pub profile: Option<Profile>,
    /// What its processes may have together, and what they use.
    pub group: ControlGroup,
    /// Its first process; nobody before.
    first: AtomicPid,
    is_ending: AtomicBool,
}

/// What a container is made of, but for its name.
pub struct Parts {
    pub namespace: Arc<Namespace>,
    pub pids: PidNamespace,
    pub nsproxy: Arc<NsProxy>,
    pub credentials: Credentials,
    pub environment: Vec<Vec<u8>>,
    pub working: Arc<Dentry>,
    pub umask: u32,
    pub limits: Limits,
    pub profile: Option<Profile>,
    pub group: control_group::Limits,
    pub number: Number,
}

/// The number of a container that is being made: file systems of its are about it before it is there.
pub struct Number(u64);

impl Number {
    /// One that no container had before.
    pub fn allocate() -> Number {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        Number(NEXT.fetch_add(1, Ordering::Relaxed))
    }

    pub fn get(&self) -> u64 {
        self.0
    }
}

/// Pages between two looks at the memory of a container that is near its limit.
const LEAST_PAGES: u64 = 64;
/// Where pages are shared all of them must be looked at to know, so that is done once for this part of the limit.
const PART: u64 = 64;
const PAGE: u64 = abi::PAGE_SIZE as u64;

static ALL: SpinLock<Vec<Arc<Container>>> = SpinLock::new(Vec::new());

/// The container of that name.
pub fn find(name: &[u8]) -> Option<Arc<Container>> {
    ALL.lock().iter().find(|container| container.name == name).cloned()
}

/// The container with that number.
pub fn by_number(number: u64) -> Option<Arc<Container>> {
    ALL.lock().iter().find(|container| container.number == number).cloned()
}

/// All that there are, by age.
pub fn all() -> Vec<Arc<Container>> {
    ALL.lock().clone()
}

/// A container that is known by its name for as long as this lives. The caller waits for its end.
pub struct Known(pub Arc<Container>);

impl Known {
    /// `EEXIST`: there is one of that name.
    pub fn new(name: &[u8], parts: Parts) -> Result<Known> {
        let Parts {
            namespace,
            pids,
            nsproxy,
            credentials,
            environment,
            working,
            umask,
            limits,
            profile,
            group,
            number,
        } = parts;
        let container = Arc::new(Container {
            name: name.to_vec(),
            number: number.get(),
            namespace,
            pids,
            nsproxy,
            credentials,
            environment,
            working,
            umask,
            limits,
            profile,
            group: ControlGroup::new(group),
            first: AtomicPid::new(Pid::NONE),
            is_ending: AtomicBool::new(false),
        });
        let mut all = ALL.lock();
        if all.iter().any(|other| other.name == name) {
            return Err(EEXIST);
        }
        all.push(container.clone());
        drop(all);
        bandwidth::limit_changes(&container);
        mem::tell_when_grown(1);
        Ok(Known(container))
    }
}

impl Drop for Known {
    fn drop(&mut self) {
        ALL.lock().retain(|other| !Arc::ptr_eq(other, &self.0));
        // Whoever was reaped by nobody: its first process had ended before.
        let left: Vec<Arc<Process>> = self.0.processes().collect();
        left.iter()
            .filter(|process| process.family.is_zombie())
            .for_each(|process| processes::remove(process));
        self.0.namespace.take_apart();
    }
}

impl Container {
    /// Its first process is about to begin.
    pub fn set_first(&self, process: &Process) {
        self.first.set(process.pid);
    }

    pub fn is_first(&self, process: &Process) -> bool {
        self.first.get() == process.pid
    }

    /// It has a first process that has not begun to end: others may begin beside it.
    pub fn is_running(&self) -> bool {
        self.first.get() != Pid::NONE && !self.is_ending()
    }

    /// Its processes, zombies included.
    pub fn processes(self: &Arc<Container>) -> impl Iterator<Item = Arc<Process>> {
        let own = self.clone();
        processes::all().filter(move |process| process.is_in(&own))
    }

    /// Some of its processes have not ended.
    pub fn is_populated(self: &Arc<Container>) -> bool {
        self.processes().any(|process| !process.family.is_zombie())
    }

    /// Whether its processes have more memory together than they may, and after how many more pages it is worth to look again; `None` without
    /// a limit.
    fn look(self: &Arc<Container>) -> Option<(bool, u64)> {
        let limit = self.group.memory_limit()?;
        let sum =
            |of: fn(&mem::Space) -> u64| self.processes().filter_map(|p| Some(of(&*p.space()?))).sum::<u64>();
        let (mut used, mut least) = (sum(mem::Space::own), LEAST_PAGES);
        if used > limit {
            used = sum(mem::Space::own_share);
            least = least.max(limit / PAGE / PART);
        }
        Some((used > limit, least.max(limit.saturating_sub(used) / PAGE)))
    }

    /// Its processes may have that together from now on.
    pub fn set_limits(self: &Arc<Container>, limits: control_group::Limits) {
        self.group.set_limits(limits);
        bandwidth::limit_changes(self);
        // The next page makes somebody look.
        mem::tell_when_grown(1);
    }

    pub fn is_ending(&self) -> bool {
        self.is_ending.load(Ordering::Relaxed)
    }

    /// Ends all of its processes; those that begin meanwhile are ended by whoever begins them ([`Container::is_ending`]).
    pub fn end(self: &Arc<Container>) {
        self.is_ending.store(true, Ordering::Relaxed);
        for process in self.processes() {
            end::begin(&process, Status::Signal { number: SIGKILL as u8 });
        }
    }
}

/// Programs have more memory than when this was asked last: calls `over` for each container that has more than it may.
pub fn look_at_memory(mut over: impl FnMut(&Arc<Container>)) {
    let mut next = None;
    let mut at = 0;
    loop {
        // One at a time: who is over its limit has a process ended, which looks at the list.
        let container = ALL.lock().get(at).cloned();
        let Some(container) = container else { break };
        at += 1;
        if let Some((is_over, until)) = container.look() {
            next = Some(next.unwrap_or(u64::MAX).min(until));
            if is_over {
                over(&container);
            }
        }
    }
    mem::tell_when_grown(next.map_or(i64::MAX, |pages| i64::try_from(pages).unwrap_or(i64::MAX - 1)));
}

/// The process ends: with the first one of a container go the others.
pub fn process_ends(process: &Process) {
    if let Some(container) = process.container.as_ref().filter(|container| container.is_first(process)) {
        container.end();
    }
}
