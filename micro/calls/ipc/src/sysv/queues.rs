// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Message queues: msgget(2), msgsnd(2), msgrcv(2), msgctl(2).

use super::*;
use abi::Events;
use abi::setting::Setting;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use api_alloc::Reserve;
use api_lock::SpinLock;
use api_sched::WaitQueue;
use api_user::Source;
use procfs::Output;
use task::call::Call;
use task::identity::capabilities::CAP_SYS_RESOURCE;
use task::ipc;
use task::wait::{self, RESTART, RESTART_NO_HANDLER};

const MSG_NOERROR: u32 = 0o10000;
const MSG_EXCEPT: u32 = 0o20000;
const MSG_COPY: u32 = 0o40000;
const MSG_STAT: i32 = 11;
const MSG_INFO: i32 = 12;
const MSG_STAT_ANY: i32 = 13;
/// /proc/sys/kernel/msgmni, msgmax and msgmnb.
pub static MAX_QUEUES: [Setting; 1] = [Setting::new(32000, 0, INDEXES as u64)];
pub static MAX_MESSAGE: [Setting; 1] = [Setting::new(8192, 0, i32::MAX as u64)];
pub static QUEUE_BYTES: [Setting; 1] = [Setting::new(16384, 0, i32::MAX as u64)];

struct Message {
    kind: i64,
    bytes: Vec<u8>,
}

#[derive(Default)]
struct State {
    messages: VecDeque<Message>,
    bytes: u64,
    most_bytes: u64,
    sent: u64,
    received: u64,
    changed: u64,
    sender: i32,
    receiver: i32,
    removed: bool,
}

struct Queue {
    state: SpinLock<State>,
    wait: WaitQueue,
}

/// All queues of a namespace.
pub struct Queues(SpinLock<Table<Queue>>);

next_id!(Queues);

impl Default for Queues {
    fn default() -> Queues {
        Queues(SpinLock::new(Table::new()))
    }
}

/// msgget(2).
pub fn msgget(call: &mut Call<'_>) -> Result<usize> {
    ipc::of_here::<Queues>().0.lock().get(
        call.int(0),
        call.uint(1),
        MAX_QUEUES[0].get() as usize,
        |_| Ok(()),
        |_| {
            let state = State { most_bytes: QUEUE_BYTES[0].get(), changed: now(), ..State::default() };
            Ok(Queue { state: SpinLock::new(state), wait: WaitQueue::new() })
        },
    )
}

fn find(id: i32, wanted: u32) -> Result<Arc<Queue>> {
    let ipc = ipc::of_here::<Queues>();
    let queues = ipc.0.lock();
    let object = queues.by_id(id)?;
    object.permissions.check(wanted)?;
    Ok(object.value.clone())
}

/// Waits for `attempt` unless IPC_NOWAIT says otherwise; the inner result ends the wait.
fn wait_for<T>(
    queue: &Queue,
    interest: Events,
    nowait: Option<abi::Errno>,
    mut attempt: impl FnMut(&mut State) -> Result<Result<T>>,
) -> Result<T> {
    let attempt = || {
        let mut state = queue.state.lock();
        if state.removed {
            return Ok(Err(EIDRM));
        }
        match (attempt(&mut state), nowait) {
            (Err(EAGAIN), Some(error)) => Ok(Err(error)),
            (result, _) => result,
        }
    };
    match wait::on_queue(&queue.wait, interest, wait::FOREVER, attempt) {
        Err(RESTART) => Err(RESTART_NO_HANDLER),
        Err(e) => Err(e),
        Ok(result) => result,
    }
}

/// msgsnd(2).
pub fn msgsnd(call: &mut Call<'_>) -> Result<usize> {
    let (id, length, flags) = (call.int(0), call.size(2), call.uint(3));
    let kind = call.ptr::<i64>(1).read()?;
    if length as u64 > MAX_MESSAGE[0].get() || id < 0 || kind < 1 {
        return Err(EINVAL);
    }
    let bytes = Source::user(call.arg(1).wrapping_add(8), length)?.take_vec(length)?;
    if bytes.len() < length {
        return Err(EFAULT);
    }
    let queue = find(id, WRITE)?;
    let mut message = Some(Message { kind, bytes });
    let nowait = (flags & IPC_NOWAIT != 0).then_some(EAGAIN);
    wait_for(&queue, Events::OUT, nowait, |state| {
        let full = state.bytes + length as u64 > state.most_bytes
            || state.messages.len() as u64 + 1 > state.most_bytes;
        if full {
            return Err(EAGAIN);
        }
        if state.messages.reserve_fallibly(1).is_err() {
            return Ok(Err(ENOMEM));
        }
        state.messages.extend(message.take());
        state.bytes += length as u64;
        (state.sent, state.sender) = (now(), task::current().process.pid.of_machine());
        Ok(Ok(()))
    })?;
    queue.wait.wake(Events::IN);
    Ok(0)
}

/// Which message msgrcv(2) means: its place in the queue.
fn choose(state: &State, kind: i64, flags: u32) -> Option<usize> {
    let messages = &state.messages;
    if flags & MSG_COPY != 0 {
        return usize::try_from(kind).ok().filter(|index| *index < messages.len());
    }
    match kind {
        0 => (!messages.is_empty()).then_some(0),
        1.. if flags & MSG_EXCEPT != 0 => messages.iter().position(|m| m.kind != kind),
        1.. => messages.iter().position(|m| m.kind == kind),
        // The lowest type up to the absolute value, the oldest of those.
        _ => {
            let most = kind.checked_neg().unwrap_or(i64::MAX);
            let among = messages.iter().enumerate().filter(|(_, m)| m.kind <= most);
            among.min_by_key(|(index, m)| (m.kind, *index)).map(|(index, _)| index)
        }
    }
}

/// msgrcv(2).
pub fn msgrcv(call: &mut Call<'_>) -> Result<usize> {
    let (id, size, kind, flags) = (call.int(0), call.size(2), call.long(3), call.uint(4));
    if id < 0 || size > isize::MAX as usize {
        return Err(EINVAL);
    }
    if flags & MSG_COPY != 0 && (flags & MSG_EXCEPT != 0 || flags & IPC_NOWAIT == 0) {
        return Err(EINVAL);
    }
    let queue = find(id, READ)?;
    let nowait = (flags & IPC_NOWAIT != 0).then_some(ENOMSG);
    let message = wait_for(&queue, Events::IN, nowait, |state| {
        let Some(index) = choose(state, kind, flags) else { return Err(EAGAIN) };
        if state.messages[index].bytes.len() > size && flags & MSG_NOERROR == 0 {
            return Ok(Err(E2BIG));
        }
        if flags & MSG_COPY != 0 {
            let message = &state.messages[index];
            // MSG_NOERROR cuts what is taken out of the queue, not a copy.
            if message.bytes.len() > size {
                return Ok(Err(EINVAL));
            }
            return Ok(Ok(Some(Message { kind: message.kind, bytes: message.bytes.clone() })));
        }
        let message = state.messages.remove(index);
        state.bytes -= message.as_ref().map_or(0, |m| m.bytes.len() as u64);
        (state.received, state.receiver) = (now(), task::current().process.pid.of_machine());
        Ok(Ok(message))
    })?;
    queue.wait.wake(Events::OUT);
    let message = message.ok_or(ENOMSG)?;
    let length = message.bytes.len().min(size);
    call.ptr::<i64>(1).write(message.kind)?;
    UserPtr::<u8>::new(call.arg(1).wrapping_add(8)).write_slice(&message.bytes[..length])?;
    Ok(length)
}

/// `struct msqid64_ds`.
fn status(object: &Object<Queue>) -> [u64; 15] {
    let state = object.value.state.lock();
    let mut out = [0; 15];
    out[..6].copy_from_slice(&object.permissions.words());
    out[6..12].copy_from_slice(&[
        state.sent,
        state.received,
        state.changed,
        state.bytes,
        state.messages.len() as u64,
        state.most_bytes,
    ]);
    out[12] = u64::from(state.sender as u32) | u64::from(state.receiver as u32) << 32;
    out
}

/// `struct msginfo`; MSG_INFO tells what is in use.
fn information(queues: &Table<Queue>, used: bool) -> [u32; 8] {
    let sum = |of: fn(&State) -> u64| {
        queues.objects.values().map(|o| of(&o.value.state.lock())).sum::<u64>() as u32
    };
    let (queues_most, bytes) = (MAX_QUEUES[0].get() as u32, QUEUE_BYTES[0].get() as u32);
    let (pool, map, total) = if used {
        (queues.objects.len() as u32, sum(|s| s.messages.len() as u64), sum(|s| s.bytes))
    } else {
        (queues_most.wrapping_mul(bytes) / 1024, bytes, bytes)
    };
    [pool, map, MAX_MESSAGE[0].get() as u32, bytes, queues_most, 16, total, 0xffff]
}

/// msgctl(2).
pub fn msgctl(call: &mut Call<'_>) -> Result<usize> {
    let (id, command) = (call.int(0), call.int(1));
    if id < 0 {
        return Err(EINVAL);
    }
    match command {
        IPC_INFO | MSG_INFO => {
            let (info, highest) = {
                let ipc = ipc::of_here::<Queues>();
                let queues = ipc.0.lock();
                (information(&queues, command == MSG_INFO), queues.highest_index())
            };
            call.ptr(2).write(info)?;
            Ok(highest)
        }
        IPC_STAT | MSG_STAT | MSG_STAT_ANY => {
            let (found, status) = {
                let ipc = ipc::of_here::<Queues>();
                let queues = ipc.0.lock();
                let (found, object) =
                    if command == IPC_STAT { (0, queues.by_id(id)?) } else { queues.by_index(id)? };
                if command != MSG_STAT_ANY {
                    object.permissions.check(READ)?;
                }
                (found, status(object))
            };
            call.ptr(2).write(status)?;
            Ok(found as usize)
        }
        IPC_SET => {
            // All of `struct msqid64_ds` before the queue is looked for; msg_qbytes is the twelfth word.
            let most_bytes = call.ptr::<[u64; 15]>(2).read()?[11];
            let mut permissions = ipc::of_here::<Queues>().0.lock().by_id(id)?.permissions;
            permissions.check_owner()?;
            if most_bytes > QUEUE_BYTES[0].get()
                && !task::current().credentials().lock().can_in(&ipc::here().owner, CAP_SYS_RESOURCE)
            {
                return Err(EPERM);
            }
            permissions.set(call.ptr(2))?;
            let queue = {
                let ipc = ipc::of_here::<Queues>();
                let mut queues = ipc.0.lock();
                let object = queues.by_id_mut(id)?;
                object.permissions = permissions;
                object.value.clone()
            };
            {
                let mut state = queue.state.lock();
                (state.most_bytes, state.changed) = (most_bytes, now());
            }
            queue.wait.wake(Events::OUT);
            Ok(0)
        }
        IPC_RMID => {
            let removed = {
                let ipc = ipc::of_here::<Queues>();
                let mut queues = ipc.0.lock();
                queues.by_id(id)?.permissions.check_owner()?;
                queues.remove(id)
            };
            if let Some(object) = removed {
                object.value.state.lock().removed = true;
                object.value.wait.wake(Events::ALL);
            }
            Ok(0)
        }
        _ => Err(EINVAL),
    }
}

/// /proc/sysvipc/msg.
pub fn show(out: &mut Output) -> Result<()> {
    out.print(format_args!(
        "       key      msqid perms      cbytes       qnum lspid lrpid   uid   gid  cuid  cgid      stime      rtime      \
         ctime\n"
    ))?;
    for (id, object) in &ipc::of_here::<Queues>().0.lock().objects {
        let (p, s) = (&object.permissions, object.value.state.lock());
        out.print(format_args!(
            "{:10} {id:10}  {:4o}  {:10} {:10} {:5} {:5} {:5} {:5} {:5} {:5} {:10} {:10} {:10}\n",
            p.key,
            p.mode,
            s.bytes,
            s.messages.len(),
            s.sender,
            s.receiver,
            p.uid,
            p.gid,
            p.creator_uid,
            p.creator_gid,
            s.sent,
            s.received,
            s.changed,
        ))?;
    }
    Ok(())
}
