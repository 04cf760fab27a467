// SPDX-License-Identifier: Apache-2.0 OR MIT
//! POSIX message queues (mq_overview(7)): names, permissions and limits here, the queues in the crate `mqueue`.

use crate::queue_files::{Directory, QueueNode};
use abi::setting::Setting;
use abi::{Events, Result, errno::*};
use alloc::boxed::Box;
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use api_fs::{Inode, NAME_MAX};
use api_lock::SpinLock;
use api_user::{Source, UserPtr};
use core::sync::atomic::{AtomicU64, Ordering};
use descriptors::Description;
use mqueue::{Attributes, Outcome, Queue, QueueFile};
use ordered::Map;
use task::call::Call;
use task::files::{self, O_CLOEXEC};
use task::identity::capabilities::{CAP_SYS_ADMIN, CAP_SYS_RESOURCE};
use task::ipc::{self, Ipc};
use task::limits::RLIMIT_MSGQUEUE;
use task::signals::{SI_MESGQ, SIGNALS, SigInfo, send_to_process};
use task::time::duration::from_timespec;
use task::wait;
use vfs::Access;

const O_ACCMODE: u32 = 0o3;
const O_CREAT: u32 = 0o100;
const O_EXCL: u32 = 0o200;
const O_NONBLOCK: u32 = 0o4000;
/// Priorities are below this (`MQ_PRIO_MAX`).
const PRIORITIES: u32 = 32768;
const SIGEV_SIGNAL: i32 = 0;
const SIGEV_NONE: i32 = 1;
const SIGEV_THREAD: i32 = 2;
/// Length of what SIGEV_THREAD sends through its socket, and its last byte (`NOTIFY_WOKENUP`, `NOTIFY_REMOVED`).
const COOKIE: usize = 32;
const WOKEN_UP: u8 = 1;
const REMOVED: u8 = 2;

/// /proc/sys/fs/mqueue: queues_max; messages and their size, at most and of a queue that is made without attributes.
pub static MAX_QUEUES: [Setting; 1] = [Setting::new(256, 0, i32::MAX as u64)];
pub static MAX_MESSAGES: [Setting; 1] = [Setting::new(10, 1, HARD_MAX.messages as u64)];
pub static MAX_SIZE: [Setting; 1] = [Setting::new(8192, 128, HARD_MAX.size as u64)];
pub static DEFAULT_MESSAGES: [Setting; 1] = [Setting::new(10, 1, HARD_MAX.messages as u64)];
pub static DEFAULT_SIZE: [Setting; 1] = [Setting::new(8192, 128, HARD_MAX.size as u64)];
/// What CAP_SYS_RESOURCE may have (`HARD_MSGMAX`, `HARD_MSGSIZEMAX`).
const HARD_MAX: Attributes = Attributes { messages: 65536, size: 16 << 20 };
/// Linux' `sizeof(struct msg_msg)` and `sizeof(struct posix_msg_tree_node)`, which RLIMIT_MSGQUEUE counts.
const MESSAGE_OVERHEAD: u64 = 48;
const PRIORITY_OVERHEAD: u64 = 48;

/// A queue, its file in the file system, and what it counts for RLIMIT_MSGQUEUE.
pub(crate) struct Named {
    pub queue: Arc<Queue>,
    pub file: Arc<QueueNode>,
    bytes: u64,
}

/// All names of a namespace, and the device number of its file system.
pub struct Names {
    pub(crate) queues: SpinLock<Map<Vec<u8>, Named>>,
    pub(crate) device: u64,
    pub(crate) root: SpinLock<Weak<Directory>>,
}

impl Default for Names {
    fn default() -> Names {
        let (queues, root) = (SpinLock::default(), SpinLock::new(Weak::new()));
        Names { queues, device: files::new_device(), root }
    }
}

static NEXT_INODE: AtomicU64 = AtomicU64::new(2);

/// The root directory of the file system of the caller's queues (mount -t mqueue). `EPERM` for whoever may not have it.
pub fn file_system() -> Result<Arc<dyn Inode>> {
    let ipc = ipc::here();
    let may = task::current().credentials().lock().can_in(&ipc.owner, CAP_SYS_ADMIN);
    if may { Ok(file_system_of(&ipc)) } else { Err(EPERM) }
}

/// The root directory of the queues of a namespace.
pub fn file_system_of(ipc: &Arc<Ipc>) -> Arc<dyn Inode> {
    Directory::of(ipc, &ipc.of::<Names>())
}

fn attributes_of(messages: &[Setting; 1], size: &[Setting; 1]) -> Attributes {
    Attributes { messages: messages[0].get() as usize, size: size[0].get() as usize }
}

fn is_privileged() -> bool {
    task::current().credentials().lock().can_in(&ipc::here().owner, CAP_SYS_RESOURCE)
}

/// A name as the C library passes it, without the slash at its start.
fn read_name(pointer: UserPtr<u8>) -> Result<Vec<u8>> {
    let name = calls_files::open::read_path(pointer, false)?;
    if name.contains(&b'/') || name == b"." || name == b".." {
        return Err(EACCES);
    }
    if name.len() > NAME_MAX { Err(ENAMETOOLONG) } else { Ok(name) }
}

/// `struct mq_attr`: flags, most messages, their size, messages in the queue, and four reserved words.
pub(crate) type RawAttributes = [i64; 8];

fn check_attributes(raw: RawAttributes) -> Result<Attributes> {
    let limit = if is_privileged() { HARD_MAX } else { attributes_of(&MAX_MESSAGES, &MAX_SIZE) };
    let within = |value: i64, most: usize| {
        usize::try_from(value).ok().filter(|value| (1..=most).contains(value)).ok_or(EINVAL)
    };
    Ok(Attributes { messages: within(raw[1], limit.messages)?, size: within(raw[2], limit.size)? })
}

/// What a queue counts for RLIMIT_MSGQUEUE.
fn cost(attributes: Attributes) -> u64 {
    let (messages, size) = (attributes.messages as u64, attributes.size as u64);
    messages * (size + MESSAGE_OVERHEAD) + messages.min(PRIORITIES.into()) * PRIORITY_OVERHEAD
}

/// mq_open(2).
pub fn mq_open(call: &mut Call<'_>) -> Result<usize> {
    let (flags, mode) = (call.uint(1), call.uint(2) & 0o7777);
    let attributes = call.ptr::<RawAttributes>(3).non_null().map(|pointer| pointer.read()).transpose()?;
    let name = read_name(call.ptr(0))?;
    let names = ipc::of_here::<Names>();
    let existing = names.queues.lock().get(&name).map(|named| named.queue.clone());
    let queue = match existing {
        Some(_) if flags & (O_CREAT | O_EXCL) == O_CREAT | O_EXCL => return Err(EEXIST),
        Some(queue) => {
            let wanted = match flags & O_ACCMODE {
                0 => Access::READ,
                1 => Access::WRITE,
                2 => Access::READ | Access::WRITE,
                _ => return Err(EINVAL),
            };
            files::credentials().check(&queue.stat(), wanted)?;
            queue
        }
        None if flags & O_CREAT == 0 => return Err(ENOENT),
        None => create(&names, name, mode & !files::current().umask(), attributes)?.queue,
    };
    let flags = flags & (O_ACCMODE | O_NONBLOCK) | O_CLOEXEC;
    files::current().install(QueueFile::new(queue), flags).map(|fd| fd as usize)
}

/// What was made.
pub(crate) struct Made {
    pub queue: Arc<Queue>,
    pub file: Arc<QueueNode>,
}

/// Makes a queue. `EEXIST` where somebody else was faster.
pub(crate) fn create(
    names: &Names,
    name: Vec<u8>,
    permissions: u32,
    attributes: Option<RawAttributes>,
) -> Result<Made> {
    let attributes = match attributes {
        Some(raw) => check_attributes(raw)?,
        // Not more than the most (mq_overview(7)).
        None => {
            let (usual, most) =
                (attributes_of(&DEFAULT_MESSAGES, &DEFAULT_SIZE), attributes_of(&MAX_MESSAGES, &MAX_SIZE));
            Attributes { messages: usual.messages.min(most.messages), size: usual.size.min(most.size) }
        }
    };
    let process = &task::current().process;
    let who = files::credentials();
    let bytes = cost(attributes);
    let privileged = is_privileged();
    let limit = process.limits.soft(RLIMIT_MSGQUEUE);
    let mut queues = names.queues.lock();
    if queues.contains_key(&name) {
        return Err(EEXIST);
    }
    if queues.len() as u64 >= MAX_QUEUES[0].get() && !privileged {
        return Err(ENOSPC);
    }
    let used: u64 = queues.values().map(|named| named.bytes).sum();
    if used.saturating_add(bytes) > limit {
        return Err(EMFILE);
    }
    let inode = NEXT_INODE.fetch_add(1, Ordering::Relaxed);
    let queue = Arc::new(Queue::new(attributes, (who.uid, who.gid), permissions, inode));
    let file = Arc::new(QueueNode::new(queue.clone(), names.device));
    let named = Named { queue: queue.clone(), file: file.clone(), bytes };
    queues.insert_fallibly(name, named).map_err(|_| ENOMEM)?;
    Ok(Made { queue, file })
}

/// mq_unlink(2): the queue itself lives until its last descriptor is closed.
pub fn mq_unlink(call: &mut Call<'_>) -> Result<usize> {
    let name = read_name(call.ptr(0))?;
    let who = files::credentials();
    let removed = {
        let ipc = ipc::of_here::<Names>();
        let mut queues = ipc.queues.lock();
        let named = queues.get(&name).ok_or(ENOENT)?;
        // The directory of queues belongs to root and is sticky.
        if !who.owns(&named.queue.stat()) {
            return Err(EACCES);
        }
        queues.remove(&name)
    };
    if let Some(removed) = removed {
        removed.queue.unlinked();
    }
    Ok(0)
}

/// The absolute time (of the wall clock) a call waits until, as a deadline.
fn read_deadline(pointer: UserPtr<[i64; 2]>) -> Result<u64> {
    let Some(pointer) = pointer.non_null() else { return Ok(wait::FOREVER) };
    let until = from_timespec(pointer.read()?)?;
    Ok(until.saturating_sub(api_plat::wall_ns()))
}

/// Waits as the description says; `ETIMEDOUT` when the deadline has passed.
fn wait_for<T>(
    description: &Description,
    interest: Events,
    deadline_ns: u64,
    operation: impl FnMut() -> Result<T>,
) -> Result<T> {
    let blocking = !description.is_nonblocking();
    match wait::for_file(&**description.file(), interest, blocking, deadline_ns, operation) {
        Err(EAGAIN) if blocking => Err(ETIMEDOUT),
        result => result,
    }
}

/// mq_timedsend(2).
pub fn mq_timedsend(call: &mut Call<'_>) -> Result<usize> {
    let (length, priority) = (call.size(2), call.uint(3));
    let deadline_ns = read_deadline(call.ptr(4))?;
    if priority >= PRIORITIES {
        return Err(EINVAL);
    }
    let description = files::get(call.int(0))?;
    let queue = mqueue::of_file(&**description.file())?;
    if !description.may_write() {
        return Err(EBADF);
    }
    if length > queue.attributes().size {
        return Err(EMSGSIZE);
    }
    let mut message = Source::user(call.arg(1), length)?.take_vec(length)?;
    if message.len() < length {
        return Err(EFAULT);
    }
    wait_for(&description, Events::OUT, deadline_ns, || queue.send(&mut message, priority))?;
    Ok(0)
}

/// mq_timedreceive(2).
pub fn mq_timedreceive(call: &mut Call<'_>) -> Result<usize> {
    let deadline_ns = read_deadline(call.ptr(4))?;
    let description = files::get(call.int(0))?;
    let queue = mqueue::of_file(&**description.file())?;
    if !description.may_read() {
        return Err(EBADF);
    }
    if call.size(2) < queue.attributes().size {
        return Err(EMSGSIZE);
    }
    let receiving = queue.receiving();
    let (message, priority) = wait_for(&description, Events::IN, deadline_ns, || queue.receive())?;
    drop(receiving);
    if let Some(pointer) = call.ptr::<u32>(3).non_null() {
        pointer.write(priority)?;
    }
    call.ptr::<u8>(1).write_slice(&message)?;
    Ok(message.len())
}

/// mq_notify(2).
pub fn mq_notify(call: &mut Call<'_>) -> Result<usize> {
    // struct sigevent: value, signal and kind.
    let event = call.ptr::<[u64; 2]>(1).non_null().map(|pointer| pointer.read()).transpose()?;
    let Some([value, packed]) = event else {
        mqueue::of_file(&**files::get(call.int(0))?.file())?.forget_notification();
        return Ok(0);
    };
    let (signal, kind) = (packed as i32, (packed >> 32) as i32);
    if !(SIGEV_SIGNAL..=SIGEV_THREAD).contains(&kind)
        || kind == SIGEV_SIGNAL && !(0..=SIGNALS).contains(&signal)
    {
        return Err(EINVAL);
    }
    let process = task::current().process.clone();
    let pid = process.pid;
    let tell: Box<dyn FnOnce(Outcome) + Send> = match kind {
        SIGEV_NONE => Box::new(|_| ()),
        SIGEV_SIGNAL => Box::new(move |outcome| {
            if outcome == Outcome::Message && signal != 0 {
                let sender = &task::current().process;
                let uid = task::current().credentials().lock().uid;
                let info = SigInfo::from_process(
                    signal,
                    SI_MESGQ,
                    sender.pid.seen_by(&process),
                    process.shown_user(uid),
                )
                .with_value(value);
                // Nobody is left to hear that there was no room for the signal.
                let _ = send_to_process(&process, info);
            }
        }),
        // The C library sleeps on a netlink socket, and expects there what it left here.
        _ => {
            let mut cookie = UserPtr::<[u64; COOKIE / 8]>::new(value).read()?.map(u64::to_ne_bytes).concat();
            let description = files::get(signal)?;
            let socket = api_socket::of_file(&**description.file())?.clone();
            socket.post(&[])?;
            Box::new(move |outcome| {
                cookie[COOKIE - 1] = if outcome == Outcome::Message { WOKEN_UP } else { REMOVED };
                // It was a socket that takes messages a while ago.
                let _ = socket.post(&cookie);
            })
        }
    };
    let description = files::get(call.int(0))?;
    let shown = if kind == SIGEV_SIGNAL { signal } else { 0 };
    mqueue::of_file(&**description.file())?.notify([kind, shown, pid.of_machine()], tell)?;
    Ok(0)
}

/// mq_getsetattr(2).
pub fn mq_getsetattr(call: &mut Call<'_>) -> Result<usize> {
    let new = call.ptr::<RawAttributes>(1).non_null().map(|pointer| pointer.read()).transpose()?;
    if new.is_some_and(|new| new[0] & !i64::from(O_NONBLOCK) != 0) {
        return Err(EINVAL);
    }
    let description = files::get(call.int(0))?;
    let queue = mqueue::of_file(&**description.file())?;
    let attributes = queue.attributes();
    let mut old: RawAttributes = [0; 8];
    old[0] = i64::from(description.flags() & O_NONBLOCK);
    old[1] = attributes.messages as i64;
    old[2] = attributes.size as i64;
    old[3] = queue.length() as i64;
    if let Some(new) = new {
        description.set_flags(description.flags() & !O_NONBLOCK | new[0] as u32);
    }
    if let Some(pointer) = call.ptr::<RawAttributes>(2).non_null() {
        pointer.write(old)?;
    }
    Ok(0)
}
