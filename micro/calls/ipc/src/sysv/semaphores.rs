// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Semaphore sets: semget(2), semop(2), semctl(2).

use super::*;
use abi::Events;
use abi::setting::Setting;
use alloc::vec::Vec;
use api_alloc::Reserve;
use api_lock::SpinLock;
use api_sched::WaitQueue;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use procfs::Output;
use task::call::Call;
use task::ipc;
use task::pids::Pid;
use task::time::duration::from_timespec;
use task::wait::{self, RESTART};

const GETPID: i32 = 11;
const GETVAL: i32 = 12;
const GETALL: i32 = 13;
const GETNCNT: i32 = 14;
const GETZCNT: i32 = 15;
const SETVAL: i32 = 16;
const SETALL: i32 = 17;
const SEM_STAT: i32 = 18;
const SEM_INFO: i32 = 19;
const SEM_STAT_ANY: i32 = 20;
/// /proc/sys/kernel/sem: semaphores of a set (SEMMSL) and of all (SEMMNS), operations of a call (SEMOPM), sets (SEMMNI).
pub static LIMITS: [Setting; 4] = [
    Setting::new(32000, 0, 65536),
    Setting::new(1_024_000_000, 0, i32::MAX as u64),
    Setting::new(500, 0, i32::MAX as u64),
    Setting::new(32000, 0, INDEXES as u64),
];
/// Linux' SEMVMX.
const MAX_VALUE: i32 = 32767;
const SEM_UNDO: u16 = 0x1000;

#[derive(Clone, Copy, Default)]
struct Semaphore {
    value: i32,
    /// Who changed it last.
    pid: i32,
}

struct State {
    semaphores: Vec<Semaphore>,
    /// Threads asleep: on which semaphore, and whether for it to be zero.
    sleepers: Vec<(u16, bool)>,
    /// SEM_UNDO: what to add to a semaphore at the end of a process, by process and number.
    undo: Map<(i32, usize), i32>,
}

struct Set {
    state: SpinLock<State>,
    wait: WaitQueue,
    removed: AtomicBool,
    operated: AtomicU64,
    changed: AtomicU64,
}

impl Drop for Set {
    fn drop(&mut self) {
        ALL_SEMAPHORES.fetch_sub(self.state.lock().semaphores.len() as u64, Ordering::Relaxed);
    }
}

/// Semaphores of all sets.
static ALL_SEMAPHORES: AtomicU64 = AtomicU64::new(0);
/// All sets of a namespace.
pub struct Sets(SpinLock<Table<Set>>);

next_id!(Sets);

impl Default for Sets {
    fn default() -> Sets {
        Sets(SpinLock::new(Table::new()))
    }
}

/// A process ends.
pub fn process_ends(pid: i32) {
    let mut id = 0;
    loop {
        let next = ipc::of_here::<Sets>()
            .0
            .lock()
            .objects
            .range(id..)
            .next()
            .map(|(id, object)| (*id, object.value.clone()));
        let Some((found, set)) = next else { return };
        set.undo(pid);
        id = found + 1;
    }
}

/// The process did something with SEM_UNDO.
pub fn undoes(pid: i32) -> bool {
    let of_process = |set: &Set| set.state.lock().undo.range((pid, 0)..(pid, usize::MAX)).next().is_some();
    ipc::of_here::<Sets>().0.lock().objects.values().any(|object| of_process(&object.value))
}

/// `struct sembuf`.
struct Operation {
    number: u16,
    change: i16,
    flags: i16,
}

impl From<[i16; 3]> for Operation {
    fn from([number, change, flags]: [i16; 3]) -> Operation {
        Operation { number: number as u16, change, flags }
    }
}

/// semget(2).
pub fn semget(call: &mut Call<'_>) -> Result<usize> {
    let (key, count, flags) = (call.int(0), call.int(1), call.uint(2));
    let count = usize::try_from(count).ok().filter(|count| *count as u64 <= LIMITS[0].get()).ok_or(EINVAL)?;
    let fits = |set: &Set| if count > set.state.lock().semaphores.len() { Err(EINVAL) } else { Ok(()) };
    ipc::of_here::<Sets>().0.lock().get(key, flags, LIMITS[3].get() as usize, fits, |_| {
        if count == 0 {
            return Err(EINVAL);
        }
        if ALL_SEMAPHORES.load(Ordering::Relaxed) + count as u64 > LIMITS[1].get() {
            return Err(ENOSPC);
        }
        let mut semaphores = Vec::new();
        semaphores.reserve_exact_fallibly(count).map_err(|_| ENOMEM)?;
        semaphores.resize(count, Semaphore::default());
        ALL_SEMAPHORES.fetch_add(count as u64, Ordering::Relaxed);
        Ok(Set {
            state: SpinLock::new(State { semaphores, sleepers: Vec::new(), undo: Map::new() }),
            wait: WaitQueue::new(),
            removed: AtomicBool::new(false),
            operated: AtomicU64::new(0),
            changed: AtomicU64::new(now()),
        })
    })
}

impl Set {
    /// Does all operations or none; `Err` with the index of the one that has to wait in the first case.
    fn attempt(&self, operations: &[Operation]) -> Result<core::result::Result<(), usize>> {
        let mut state = self.state.lock();
        let mut values: Vec<(usize, i32)> = Vec::new();
        values.reserve_fallibly(operations.len()).map_err(|_| ENOMEM)?;
        for (index, operation) in operations.iter().enumerate() {
            let number = usize::from(operation.number);
            let known = values.iter().rev().find(|(n, _)| *n == number).map(|(_, value)| *value);
            let value = known.unwrap_or(state.semaphores[number].value);
            let change = i32::from(operation.change);
            if change == 0 && value != 0 || value + change < 0 {
                if operation.flags as u32 & IPC_NOWAIT != 0 {
                    return Err(EAGAIN);
                }
                return Ok(Err(index));
            }
            if value + change > MAX_VALUE {
                return Err(ERANGE);
            }
            values.push((number, value + change));
        }
        let pid = task::current().process.pid.of_machine();
        for (number, value) in values {
            state.semaphores[number] = Semaphore { value, pid };
        }
        for operation in operations.iter().filter(|o| o.flags as u16 & SEM_UNDO != 0 && o.change != 0) {
            *state.undo.entry((pid, operation.number.into())).or_insert(0) -= i32::from(operation.change);
        }
        Ok(Ok(()))
    }

    /// A process ends: what it did with SEM_UNDO is undone, as far as no value becomes negative or too large.
    fn undo(&self, pid: i32) {
        let mut changed = false;
        {
            let mut state = self.state.lock();
            let next = |state: &State| {
                let first = state.undo.range((pid, 0)..(pid, usize::MAX)).next();
                first.map(|(key, change)| (*key, *change))
            };
            while let Some((key, change)) = next(&state) {
                state.undo.remove(&key);
                if let Some(semaphore) = state.semaphores.get_mut(key.1) {
                    let value = (semaphore.value + change).clamp(0, MAX_VALUE);
                    changed |= value != semaphore.value;
                    *semaphore = Semaphore { value, pid };
                }
            }
        }
        if changed {
            self.changed();
        }
    }

    fn changed(&self) {
        self.wait.wake(Events::ALL);
    }
}

fn operate(call: &Call<'_>, timeout: UserPtr<[i64; 2]>) -> Result<usize> {
    let (id, count) = (call.int(0), call.uint(2) as usize);
    let timeout = timeout.non_null().map(|t| t.read()).transpose()?;
    if count as u64 > LIMITS[2].get() {
        return Err(E2BIG);
    }
    if count == 0 {
        return Err(EINVAL);
    }
    let operations = call.ptr::<[i16; 3]>(1).read_vec(count)?;
    let operations: Vec<Operation> = operations.into_iter().map(Operation::from).collect();
    if id < 0 {
        return Err(EINVAL);
    }
    let timeout_ns = timeout.map(from_timespec).transpose()?;
    let deadline_ns = timeout_ns.map_or(wait::FOREVER, |ns| api_plat::now_ns().saturating_add(ns));
    let set = {
        let ipc = ipc::of_here::<Sets>();
        let sets = ipc.0.lock();
        let object = sets.by_id(id)?;
        let size = object.value.state.lock().semaphores.len();
        if operations.iter().any(|o| usize::from(o.number) >= size) {
            return Err(EFBIG);
        }
        let alters = operations.iter().any(|o| o.change != 0);
        object.permissions.check(if alters { WRITE } else { READ })?;
        object.value.clone()
    };
    let mut asleep = None;
    let leave = |asleep: &mut Option<(u16, bool)>| {
        if let Some(entry) = asleep.take() {
            let mut state = set.state.lock();
            if let Some(at) = state.sleepers.iter().position(|e| *e == entry) {
                state.sleepers.swap_remove(at);
            }
        }
    };
    let attempt = || {
        leave(&mut asleep);
        if set.removed.load(Ordering::Relaxed) {
            return Ok(Err(EIDRM));
        }
        match set.attempt(&operations) {
            Ok(Ok(())) => Ok(Ok(())),
            Ok(Err(index)) => {
                let entry = (operations[index].number, operations[index].change == 0);
                set.state.lock().sleepers.push(entry);
                asleep = Some(entry);
                Err(EAGAIN)
            }
            // EAGAIN of IPC_NOWAIT ends the wait as well.
            Err(e) => Ok(Err(e)),
        }
    };
    let result = wait::on_queue(&set.wait, Events::ALL, deadline_ns, attempt);
    leave(&mut asleep);
    match result {
        // Never made again after a signal (signal(7)).
        Err(RESTART) => Err(EINTR),
        Err(e) | Ok(Err(e)) => Err(e),
        Ok(Ok(())) => {
            set.operated.store(now(), Ordering::Relaxed);
            if operations.iter().any(|o| o.change != 0) {
                set.changed();
            }
            Ok(0)
        }
    }
}

/// semop(2).
pub fn semop(call: &mut Call<'_>) -> Result<usize> {
    operate(call, UserPtr::new(0))
}

/// semtimedop(2).
pub fn semtimedop(call: &mut Call<'_>) -> Result<usize> {
    operate(call, call.ptr(3))
}

/// `struct seminfo`.
fn information(sets: &Table<Set>, used: bool) -> [i32; 10] {
    let count: usize = sets.objects.values().map(|o| o.value.state.lock().semaphores.len()).sum();
    let (usz, aem) = if used { (sets.objects.len() as i32, count as i32) } else { (20, MAX_VALUE) };
    let [of_set, all, operations, sets] = LIMITS.each_ref().map(|limit| limit.get() as i32);
    [all, sets, all, all, of_set, operations, 500, usz, MAX_VALUE, aem]
}

/// `struct semid64_ds`.
fn status(object: &Object<Set>) -> [u64; 13] {
    let mut out = [0; 13];
    out[..6].copy_from_slice(&object.permissions.words());
    out[6] = object.value.operated.load(Ordering::Relaxed);
    out[8] = object.value.changed.load(Ordering::Relaxed);
    out[10] = object.value.state.lock().semaphores.len() as u64;
    out
}

/// semctl(2).
pub fn semctl(call: &mut Call<'_>) -> Result<usize> {
    let (id, number, command) = (call.int(0), call.int(1), call.int(2));
    if id < 0 {
        return Err(EINVAL);
    }
    match command {
        IPC_INFO | SEM_INFO => {
            let (info, highest) = {
                let ipc = ipc::of_here::<Sets>();
                let sets = ipc.0.lock();
                (information(&sets, command == SEM_INFO), sets.highest_index())
            };
            call.ptr(3).write(info)?;
            Ok(highest)
        }
        IPC_STAT | SEM_STAT | SEM_STAT_ANY => {
            let (found, status) = {
                let ipc = ipc::of_here::<Sets>();
                let sets = ipc.0.lock();
                let (found, object) =
                    if command == IPC_STAT { (0, sets.by_id(id)?) } else { sets.by_index(id)? };
                if command != SEM_STAT_ANY {
                    object.permissions.check(READ)?;
                }
                (found, status(object))
            };
            call.ptr(3).write(status)?;
            Ok(found as usize)
        }
        IPC_SET => {
            // All of `struct semid64_ds` is read before the set is looked for.
            call.ptr::<[u64; 13]>(3).read()?;
            let mut permissions = ipc::of_here::<Sets>().0.lock().by_id(id)?.permissions;
            permissions.check_owner()?;
            permissions.set(call.ptr(3))?;
            let ipc = ipc::of_here::<Sets>();
            let mut sets = ipc.0.lock();
            let object = sets.by_id_mut(id)?;
            object.permissions = permissions;
            object.value.changed.store(now(), Ordering::Relaxed);
            Ok(0)
        }
        IPC_RMID => {
            let removed = {
                let ipc = ipc::of_here::<Sets>();
                let mut sets = ipc.0.lock();
                sets.by_id(id)?.permissions.check_owner()?;
                sets.remove(id)
            };
            if let Some(object) = removed {
                object.value.removed.store(true, Ordering::Relaxed);
                object.value.changed();
            }
            Ok(0)
        }
        GETPID | GETVAL | GETNCNT | GETZCNT | GETALL => read_values(call, id, number, command),
        SETVAL | SETALL => write_values(call, id, number, command),
        _ => Err(EINVAL),
    }
}

fn index(set: &Set, number: i32) -> Result<usize> {
    let size = set.state.lock().semaphores.len();
    usize::try_from(number).ok().filter(|number| *number < size).ok_or(EINVAL)
}

fn find(id: i32, wanted: u32) -> Result<Arc<Set>> {
    let ipc = ipc::of_here::<Sets>();
    let sets = ipc.0.lock();
    let object = sets.by_id(id)?;
    object.permissions.check(wanted)?;
    Ok(object.value.clone())
}

fn read_values(call: &Call<'_>, id: i32, number: i32, command: i32) -> Result<usize> {
    let set = find(id, READ)?;
    if command == GETALL {
        let mut values: Vec<u16> = Vec::new();
        {
            let state = set.state.lock();
            values.reserve_exact_fallibly(state.semaphores.len()).map_err(|_| ENOMEM)?;
            values.extend(state.semaphores.iter().map(|s| s.value as u16));
        }
        call.ptr::<u16>(3).write_slice(&values)?;
        return Ok(0);
    }
    let index = index(&set, number)?;
    let state = set.state.lock();
    let waiting = |zero: bool| state.sleepers.iter().filter(|s| **s == (index as u16, zero)).count();
    Ok(match command {
        GETPID => Pid::from_machine(state.semaphores[index].pid).here() as usize,
        GETVAL => state.semaphores[index].value as usize,
        GETNCNT => waiting(false),
        _ => waiting(true),
    })
}

fn write_values(call: &Call<'_>, id: i32, number: i32, command: i32) -> Result<usize> {
    let pid = task::current().process.pid.of_machine();
    let set = if command == SETVAL {
        // What it is to be and of which semaphore comes before the rights (Linux' semctl_setval).
        let value = call.int(3);
        if !(0..=MAX_VALUE).contains(&value) {
            return Err(ERANGE);
        }
        let set = find(id, 0)?;
        let index = index(&set, number)?;
        find(id, WRITE)?;
        let mut state = set.state.lock();
        state.semaphores[index] = Semaphore { value, pid };
        // Nothing of it is undone (semctl(2)).
        state.undo.retain(|(_, number), _| *number != index);
        drop(state);
        set
    } else {
        let set = find(id, WRITE)?;
        let count = set.state.lock().semaphores.len();
        let values = call.ptr::<u16>(3).read_vec(count)?;
        if values.iter().any(|value| i32::from(*value) > MAX_VALUE) {
            return Err(ERANGE);
        }
        let mut state = set.state.lock();
        for (semaphore, value) in state.semaphores.iter_mut().zip(values) {
            *semaphore = Semaphore { value: value.into(), pid };
        }
        state.undo.clear();
        drop(state);
        set
    };
    set.changed.store(now(), Ordering::Relaxed);
    set.changed();
    Ok(0)
}

/// /proc/sysvipc/sem.
pub fn show(out: &mut Output) -> Result<()> {
    out.print(format_args!(
        "       key      semid perms      nsems   uid   gid  cuid  cgid      otime      ctime\n"
    ))?;
    for (id, object) in &ipc::of_here::<Sets>().0.lock().objects {
        let (p, set) = (&object.permissions, &object.value);
        out.print(format_args!(
            "{:10} {id:10}  {:4o} {:10} {:5} {:5} {:5} {:5} {:10} {:10}\n",
            p.key,
            p.mode,
            set.state.lock().semaphores.len(),
            p.uid,
            p.gid,
            p.creator_uid,
            p.creator_gid,
            set.operated.load(Ordering::Relaxed),
            set.changed.load(Ordering::Relaxed),
        ))?;
    }
    Ok(())
}
