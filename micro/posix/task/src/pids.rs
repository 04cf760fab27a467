// SPDX-License-Identifier: Apache-2.0 OR MIT
//! PID namespaces (pid_namespaces(7)). A process, thread, group or session is a [`Pid`] in the kernel; it has a number in each namespace
//! that it is visible in. Programs know numbers only, so that each place where one crosses says whose number it is: [`Pid::here`]
//! and [`Pid::seen_by`] on the way out, [`Pid::named`] on the way in.

use crate::process::Process;
use crate::processes::PID_MAX;
use crate::thread;
use crate::users::UserNamespace;
use abi::{Events, Result, errno::*};
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use api_lock::SpinLock;
use api_sched::WaitQueue;
use core::any::Any;
use core::sync::atomic::{AtomicI32, Ordering};
use ordered::Map;

/// Namespaces inside of each other, the machine's own not counted (Linux' MAX_PID_NS_LEVEL).
const MAX_LEVEL: u32 = 32;
/// Ids of namespaces are below: they are part of the keys of /proc.
const MAX_IDS: u32 = 1 << 16;
/// Where numbers of a namespace begin again (Linux' RESERVED_PIDS).
const AGAIN: i32 = 300;

/// Whom a number of the machine's own namespace stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Pid(i32);

impl Pid {
    /// Nobody in the machine.
    pub const NONE: Pid = Pid(0);
    /// The program's first process, with which the machine ends.
    pub const FIRST: Pid = Pid(1);

    /// By its number in the machine's own namespace, as crates keep it that know no other.
    pub const fn from_machine(number: i32) -> Pid {
        Pid(number)
    }

    /// The number in the machine's own namespace: for whoever is outside of all others, and for crates that tell processes apart.
    pub const fn of_machine(self) -> i32 {
        self.0
    }

    /// The number in the namespace of the calling process; 0 when it is not in there.
    pub fn here(self) -> i32 {
        self.seen_by(&thread::current().process)
    }

    /// The number in the namespace of that process; 0 when it is not in there.
    #[inline]
    pub fn seen_by(self, viewer: &Process) -> i32 {
        viewer.pids.number_of(self)
    }

    /// Whom the calling process means by a number.
    #[inline]
    pub fn named(number: i32) -> Option<Pid> {
        thread::current().process.pids.find(number)
    }
}

/// A [`Pid`] that changes.
pub struct AtomicPid(AtomicI32);

impl AtomicPid {
    pub const fn new(pid: Pid) -> AtomicPid {
        AtomicPid(AtomicI32::new(pid.0))
    }

    #[inline]
    pub fn get(&self) -> Pid {
        Pid(self.0.load(Ordering::Relaxed))
    }

    pub fn set(&self, pid: Pid) {
        self.0.store(pid.0, Ordering::Relaxed);
    }

    /// Becomes `new` where it is `old`; or else says what it is.
    pub fn replace(&self, old: Pid, new: Pid) -> core::result::Result<(), Pid> {
        let replaced = self.0.compare_exchange(old.0, new.0, Ordering::Relaxed, Ordering::Relaxed);
        replaced.map(|_| ()).map_err(Pid)
    }
}

/// A PID namespace. The machine's own has nothing to keep: its numbers are the [`Pid`]s.
#[derive(Clone, Default)]
pub struct PidNamespace(Option<Arc<Nested>>);

struct Nested {
    level: u32,
    parent: PidNamespace,
    id: u32,
    owner: UserNamespace,
    numbers: SpinLock<Numbers>,
    /// Woken when a process of the namespace is gone.
    left: WaitQueue,
}

struct Numbers {
    next: i32,
    pids: Map<i32, Pid>,
    numbers: Map<Pid, i32>,
    /// Its first process ends: nobody begins in it any more.
    is_closed: bool,
    has_first: bool,
}

/// Namespaces by their ids, for file systems that show one.
static ALL: SpinLock<Map<u32, Weak<Nested>>> = SpinLock::new(Map::new());

impl Drop for Nested {
    fn drop(&mut self) {
        ALL.lock().remove(&self.id);
    }
}

impl PidNamespace {
    /// The machine's own.
    pub const FIRST: PidNamespace = PidNamespace(None);

    /// A new one inside of this one. `ENOSPC` when too many are inside of each other, `ENOMEM` when memory is short.
    pub fn nest(&self, owner: UserNamespace) -> Result<PidNamespace> {
        if self.level() >= MAX_LEVEL {
            return Err(ENOSPC);
        }
        if api_alloc::is_low() {
            return Err(ENOMEM);
        }
        let numbers =
            Numbers { next: 1, pids: Map::new(), numbers: Map::new(), is_closed: false, has_first: false };
        let mut all = ALL.lock();
        let id = (1..MAX_IDS).find(|id| !all.contains_key(id)).ok_or(ENOSPC)?;
        let nested = Arc::new(Nested {
            level: self.level() + 1,
            parent: self.clone(),
            id,
            owner,
            numbers: SpinLock::new(numbers),
            left: WaitQueue::new(),
        });
        all.insert(id, Arc::downgrade(&nested));
        Ok(PidNamespace(Some(nested)))
    }

    /// The namespace with that id; 0 is the machine's own. `None` when nobody has it any more.
    pub fn by_id(id: u32) -> Option<PidNamespace> {
        match id {
            0 => Some(PidNamespace::FIRST),
            id => ALL.lock().get(&id).and_then(Weak::upgrade).map(|nested| PidNamespace(Some(nested))),
        }
    }

    /// For whoever only keeps it.
    pub fn held(&self) -> Option<Arc<dyn Any + Send + Sync>> {
        self.0.clone().map(|nested| -> Arc<dyn Any + Send + Sync> { nested })
    }

    pub fn id(&self) -> u32 {
        self.0.as_ref().map_or(0, |nested| nested.id)
    }

    pub fn level(&self) -> u32 {
        self.0.as_ref().map_or(0, |nested| nested.level)
    }

    /// The one that it is inside of; `None` for the machine's own.
    pub fn parent(&self) -> Option<PidNamespace> {
        self.0.as_ref().map(|nested| nested.parent.clone())
    }

    /// The numbers of a pid in this namespace and in each inside of it, down to `innermost`.
    pub fn numbers_down_to(&self, innermost: &PidNamespace, pid: Pid) -> Vec<i32> {
        let mut numbers = Vec::new();
        let mut at = Some(innermost.clone());
        while let Some(namespace) = at.filter(|namespace| namespace.level() >= self.level()) {
            numbers.push(namespace.number_of(pid));
            at = namespace.parent();
        }
        numbers.reverse();
        numbers
    }

    /// The user namespace whose capabilities count for it.
    pub fn owner(&self) -> UserNamespace {
        self.0.as_ref().map_or(UserNamespace::FIRST, |nested| nested.owner.clone())
    }

    /// That one is this one or inside of it.
    pub fn includes(&self, other: &PidNamespace) -> bool {
        let mut at = other.clone();
        while at.level() > self.level() {
            at = at.parent().unwrap_or_default();
        }
        at == *self
    }

    /// 0 when it is not in the namespace.
    #[inline]
    pub fn number_of(&self, pid: Pid) -> i32 {
        match &self.0 {
            None => pid.0,
            Some(nested) => nested.numbers.lock().numbers.get(&pid).copied().unwrap_or(0),
        }
    }

    #[inline]
    pub fn find(&self, number: i32) -> Option<Pid> {
        match &self.0 {
            None => (number > 0).then_some(Pid(number)),
            Some(nested) => nested.numbers.lock().pids.get(&number).copied(),
        }
    }

    /// The process that adopts orphans; `None` before it is there, and in the machine's own.
    pub fn first(&self) -> Option<Pid> {
        let nested = self.0.as_ref()?;
        let numbers = nested.numbers.lock();
        numbers.pids.get(&1).copied().filter(|_| numbers.has_first)
    }

    /// A first process is there, or was.
    pub fn has_begun(&self) -> bool {
        self.0.as_ref().is_none_or(|nested| nested.numbers.lock().has_first)
    }

    /// The number given out last.
    pub fn newest(&self) -> Option<i32> {
        self.0.as_ref().map(|nested| nested.numbers.lock().next - 1)
    }

    /// The number after this one is given out next. Not of the machine's own.
    pub fn set_newest(&self, number: i32) {
        if let Some(nested) = &self.0 {
            nested.numbers.lock().next = if number + 1 < PID_MAX { number + 1 } else { AGAIN };
        }
    }

    /// `EINVAL` unless the numbers can be chosen (clone3(2), set_tid): one for this namespace and each around it, at most.
    pub fn check_chosen(&self, chosen: &[i32]) -> Result<()> {
        if chosen.len() > self.level() as usize + 1 {
            return Err(EINVAL);
        }
        let mut at = Some(self.clone());
        for number in chosen {
            let Some(namespace) = at else { return Err(EINVAL) };
            let has_first = namespace.0.as_ref().is_none_or(|nested| nested.numbers.lock().has_first);
            if !(1..PID_MAX).contains(number) || (*number != 1 && !has_first) {
                return Err(EINVAL);
            }
            at = namespace.parent();
        }
        Ok(())
    }

    /// The pid gets a number in this namespace and in each around it but the machine's own: those of `chosen`, from here on, or the next
    /// ones that are free. `EEXIST` when a chosen one is in use, `EAGAIN` when all are, `ENOMEM` when the first process has ended.
    pub fn enter(&self, pid: Pid, chosen: &[i32]) -> Result<()> {
        let Some(nested) = &self.0 else { return Ok(()) };
        nested.enter(pid, chosen.first().copied())?;
        let entered = nested.parent.enter(pid, chosen.get(1..).unwrap_or_default());
        if entered.is_err() {
            nested.leave(pid);
        }
        entered
    }

    /// The pid is nobody's any more: its numbers are free.
    pub fn leave(&self, pid: Pid) {
        let mut at = &self.0;
        while let Some(nested) = at {
            nested.leave(pid);
            at = &nested.parent.0;
        }
    }

    /// Its first process has begun.
    pub fn begins(&self) {
        if let Some(nested) = &self.0 {
            nested.numbers.lock().has_first = true;
        }
    }

    /// Its first process ends.
    pub fn close(&self) {
        if let Some(nested) = &self.0 {
            nested.numbers.lock().is_closed = true;
        }
    }

    /// Nobody begins in it any more.
    pub fn is_closed(&self) -> bool {
        self.0.as_ref().is_some_and(|nested| nested.numbers.lock().is_closed)
    }

    /// Woken when one of its processes is gone.
    pub fn left(&self) -> Option<&WaitQueue> {
        self.0.as_ref().map(|nested| &nested.left)
    }

    /// A process of the namespace is gone: whoever waits for that is told, of all around it as well.
    pub fn process_left(&self) {
        let mut at = &self.0;
        while let Some(nested) = at {
            nested.left.wake_all(Events::ALL);
            at = &nested.parent.0;
        }
    }
}

impl PartialEq for PidNamespace {
    fn eq(&self, other: &PidNamespace) -> bool {
        self.id() == other.id()
    }
}

impl Nested {
    fn enter(&self, pid: Pid, chosen: Option<i32>) -> Result<()> {
        let mut numbers = self.numbers.lock();
        if numbers.is_closed {
            return Err(ENOMEM);
        }
        let number = match chosen {
            Some(number) if numbers.pids.contains_key(&number) => return Err(EEXIST),
            Some(number) => number,
            None => numbers.allocate().ok_or(EAGAIN)?,
        };
        numbers.pids.insert(number, pid);
        numbers.numbers.insert(pid, number);
        Ok(())
    }

    fn leave(&self, pid: Pid) {
        let mut numbers = self.numbers.lock();
        if let Some(number) = numbers.numbers.remove(&pid) {
            numbers.pids.remove(&number);
        }
        // The first process did not come to be: the next one is the first.
        if !numbers.has_first && numbers.pids.is_empty() {
            numbers.next = 1;
        }
    }
}

impl Numbers {
    fn allocate(&mut self) -> Option<i32> {
        for _ in 0..PID_MAX {
            let number = self.next;
            self.next = if number + 1 < PID_MAX { number + 1 } else { AGAIN };
            if !self.pids.contains_key(&number) {
                return Some(number);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nested(inside: &PidNamespace) -> PidNamespace {
        inside.nest(UserNamespace::FIRST).unwrap()
    }

    #[test]
    fn a_pid_has_a_number_in_each_namespace_around_it() {
        let outer = nested(&PidNamespace::FIRST);
        let inner = nested(&outer);
        outer.enter(Pid(50), &[]).unwrap();
        outer.begins();
        inner.enter(Pid(51), &[]).unwrap();
        inner.begins();
        let seen = |pid| [PidNamespace::FIRST.number_of(pid), outer.number_of(pid), inner.number_of(pid)];
        assert_eq!((seen(Pid(50)), seen(Pid(51))), ([50, 1, 0], [51, 2, 1]));
        assert_eq!((outer.find(2), inner.find(1), inner.find(2)), (Some(Pid(51)), Some(Pid(51)), None));
        assert!(outer.includes(&inner) && PidNamespace::FIRST.includes(&inner) && !inner.includes(&outer));
        inner.leave(Pid(51));
        assert_eq!((outer.find(2), inner.first()), (None, None));
        inner.close();
        assert_eq!(inner.enter(Pid(52), &[]), Err(ENOMEM));
        assert_eq!(outer.find(3), None, "what failed inside has no number outside");
    }

    #[test]
    fn numbers_are_chosen_from_the_innermost_on() {
        let outer = nested(&PidNamespace::FIRST);
        let inner = nested(&outer);
        outer.enter(Pid(50), &[]).unwrap();
        outer.begins();
        assert_eq!(inner.check_chosen(&[7]), Err(EINVAL), "the first one is 1");
        inner.check_chosen(&[1, 77]).unwrap();
        inner.enter(Pid(60), &[1, 77]).unwrap();
        assert_eq!((inner.number_of(Pid(60)), outer.number_of(Pid(60))), (1, 77));
        inner.begins();
        assert_eq!(inner.check_chosen(&[1; 4]), Err(EINVAL));
        assert_eq!(inner.enter(Pid(61), &[9, 77]), Err(EEXIST));
        assert_eq!(inner.number_of(Pid(61)), 0);
    }

    #[test]
    fn namespaces_are_nested_to_a_depth_only() {
        let mut at = PidNamespace::FIRST;
        for _ in 0..MAX_LEVEL {
            at = nested(&at);
        }
        assert_eq!(at.nest(UserNamespace::FIRST).err(), Some(ENOSPC));
    }
}
