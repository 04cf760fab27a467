// SPDX-License-Identifier: Apache-2.0 OR MIT
//! User notification (seccomp_unotify(2)): a filter has another process decide about a call.
//!
//! The thread that makes the call waits in [`Notifications::ask`] for whoever holds the listener's descriptor ([`Listener`]), which is
//! told of the call, may give the thread descriptors, and answers. A filter and its listener know each other by [`Notifications`]
//! alone: either may go first.

use crate::Task;
use crate::files;
use crate::pids::Pid;
use crate::processes;
use crate::wait::{self, RESTART};
use abi::{Events, Result, errno::*};
use alloc::sync::Arc;
use alloc::vec::Vec;
use api_alloc::Reserve;
use api_fs::{File, FileType, Stat};
use api_lock::SpinLock;
use api_sched::WaitQueue;
use api_user::{UserPtr, read_bytes};
use classic_bpf::seccomp::Data;
use core::any::Any;

/// SECCOMP_USER_NOTIF_FLAG_CONTINUE
const CONTINUE: u32 = 1;
/// SECCOMP_ADDFD_FLAG_SETFD and SECCOMP_ADDFD_FLAG_SEND.
const SET_FD: u32 = 1;
const SEND_TOO: u32 = 2;
const O_CLOEXEC: u32 = 0o2000000;

/// `struct seccomp_notif`, `struct seccomp_notif_resp`, `struct seccomp_data`: as SECCOMP_GET_NOTIF_SIZES tells them.
pub const SIZES: [u16; 3] = [NOTIFICATION_BYTES as u16, RESPONSE_BYTES as u16, 64];
const NOTIFICATION_BYTES: usize = 80;
const RESPONSE_BYTES: usize = 24;
const ADD_FD_BYTES: usize = 24;

const RECEIVE: u32 = 0xc050_2100;
const SEND: u32 = 0xc018_2101;
const ID_VALID: u32 = 0x4008_2102;
/// With the direction that was wrong in Linux 5.0 to 5.16.
const ID_VALID_BEFORE: u32 = 0x8008_2102;
/// SECCOMP_IOCTL_NOTIF_ADDFD without direction and size, which may grow.
const ADD_FD: u32 = 0x2103;
const ADD_FD_MASK: u32 = 0x0000_ffff;

/// How the call of a thread goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// It is made.
    Continue,
    /// This is its result, a negative number for an error.
    Result(i64),
}

enum State {
    /// Nobody has received it.
    New,
    Received,
    Answered(Answer),
}

struct Notification {
    id: u64,
    /// The thread that waits, which keeps its number meanwhile.
    tid: Pid,
    data: Data,
    state: State,
}

#[derive(Default)]
struct Inner {
    /// One for each thread that waits.
    pending: Vec<Notification>,
    next_id: u64,
    /// Notifications that SECCOMP_IOCTL_NOTIF_RECV may wait for. One whose thread gave up stays counted (Linux' semaphore).
    requests: u64,
    is_closed: bool,
    has_no_filter: bool,
}

impl Inner {
    fn find(&mut self, id: u64) -> Option<&mut Notification> {
        self.pending.iter_mut().find(|notification| notification.id == id)
    }
}

/// What a filter and its listener have in common.
pub struct Notifications {
    inner: SpinLock<Inner>,
    /// Who waits for a notification, or polls the listener.
    listeners: WaitQueue,
    /// Threads that wait for an answer.
    callers: WaitQueue,
    /// SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV: what was received is no longer interrupted by signals that do not kill.
    waits_killable: bool,
}

impl Notifications {
    pub fn new(waits_killable: bool) -> Arc<Notifications> {
        // Numbers that were given out before are worth nothing to another listener.
        let mut first = [0; 8];
        api_plat::entropy(&mut first);
        Arc::new(Notifications {
            inner: SpinLock::new(Inner { next_id: u64::from_ne_bytes(first), ..Inner::default() }),
            listeners: WaitQueue::new(),
            callers: WaitQueue::new(),
            waits_killable,
        })
    }

    /// Nobody listens any more: another filter may have a listener.
    pub fn is_closed(&self) -> bool {
        self.inner.lock().is_closed
    }

    /// The last thread with the filter is gone.
    pub fn filter_ends(&self) {
        self.inner.lock().has_no_filter = true;
        self.listeners.wake_all(Events::HUP);
    }

    /// The running thread's call waits for an answer. `RESTART`: a signal came first; `ENOSYS`: nobody listens.
    pub fn ask(&self, task: &Task, data: &Data) -> Result<Answer> {
        let id = {
            let mut inner = self.inner.lock();
            if inner.is_closed {
                return Err(ENOSYS);
            }
            inner.pending.reserve_fallibly(1).map_err(|_| ENOMEM)?;
            let id = inner.next_id;
            inner.next_id = id.wrapping_add(1);
            inner.requests += 1;
            inner.pending.push(Notification { id, tid: task.tid, data: *data, state: State::New });
            id
        };
        let result = self.wait_for_answer(task, id);
        self.inner.lock().pending.retain(|notification| notification.id != id);
        result
    }

    fn wait_for_answer(&self, task: &Task, id: u64) -> Result<Answer> {
        self.listeners.wake_all(Events::IN | Events::RDNORM);
        let answer = || match self.inner.lock().find(id).map(|notification| &notification.state) {
            Some(State::Answered(answer)) => Ok(*answer),
            Some(_) => Err(EAGAIN),
            None => Err(ENOSYS),
        };
        let was_received = || {
            let mut inner = self.inner.lock();
            inner.find(id).is_some_and(|notification| matches!(notification.state, State::Received))
        };
        let gives_up = || match self.waits_killable && was_received() {
            true => task.is_killed(),
            false => task.has_signal(),
        };
        wait::on_queue_unless(&self.callers, answer, gives_up)
    }
}

/// The file of a listener.
pub struct Listener(pub Arc<Notifications>);

impl Drop for Listener {
    fn drop(&mut self) {
        let mut inner = self.0.inner.lock();
        inner.is_closed = true;
        for notification in &mut inner.pending {
            if !matches!(notification.state, State::Answered(_)) {
                let error = ENOSYS.to_return() as i64;
                notification.state = State::Answered(Answer::Result(error));
            }
        }
        drop(inner);
        self.0.callers.wake_all(Events::ALL);
    }
}

impl Listener {
    fn receive(&self, to: u64) -> Result<usize> {
        let mut before = [0; NOTIFICATION_BYTES];
        read_bytes(to, &mut before)?;
        if before != [0; NOTIFICATION_BYTES] {
            return Err(EINVAL);
        }
        let shared = &*self.0;
        let taken = wait::on_queue(&shared.listeners, Events::IN, wait::FOREVER, || {
            let mut inner = shared.inner.lock();
            inner.requests = inner.requests.checked_sub(1).ok_or(EAGAIN)?;
            let new = inner.pending.iter_mut().find(|notification| matches!(notification.state, State::New));
            let new = new.ok_or(ENOENT)?;
            new.state = State::Received;
            Ok((new.id, new.tid.here(), new.data))
        });
        let (id, pid, data) = match taken {
            // Linux does not make it again.
            Err(RESTART) => return Err(EINTR),
            taken => taken?,
        };
        shared.callers.wake_all(Events::ALL);
        let mut words = [0u64; NOTIFICATION_BYTES / 8];
        words[0] = id;
        words[1] = u64::from(pid as u32);
        words[2] = u64::from(data.number) | u64::from(data.architecture) << 32;
        words[3] = data.instruction_pointer;
        words[4..].copy_from_slice(&data.arguments);
        if UserPtr::new(to).write(words).is_err() {
            // It is there for the next one.
            let mut inner = shared.inner.lock();
            if let Some(notification) = inner.find(id).filter(|n| matches!(n.state, State::Received)) {
                notification.state = State::New;
                inner.requests += 1;
                drop(inner);
                shared.listeners.wake_all(Events::IN | Events::RDNORM);
            }
            return Err(EFAULT);
        }
        Ok(0)
    }

    fn send(&self, from: u64) -> Result<usize> {
        // id, val, error and flags.
        let [id, value, rest]: [u64; RESPONSE_BYTES / 8] = UserPtr::new(from).read()?;
        let (error, flags) = (rest as i32, (rest >> 32) as u32);
        if flags & !CONTINUE != 0 || flags == CONTINUE && (error != 0 || value != 0) {
            return Err(EINVAL);
        }
        let answer = match (flags, error) {
            (CONTINUE, _) => Answer::Continue,
            (_, 0) => Answer::Result(value as i64),
            (_, error) => Answer::Result(error.into()),
        };
        self.answer(id, answer)?;
        Ok(0)
    }

    /// `ENOENT` where nobody waits, `EINPROGRESS` for what was not received, or answered already.
    fn answer(&self, id: u64, answer: Answer) -> Result<()> {
        let mut inner = self.0.inner.lock();
        let notification = inner.find(id).ok_or(ENOENT)?;
        if !matches!(notification.state, State::Received) {
            return Err(EINPROGRESS);
        }
        notification.state = State::Answered(answer);
        drop(inner);
        self.0.callers.wake_all(Events::ALL);
        Ok(())
    }

    fn is_valid(&self, from: u64) -> Result<usize> {
        let id = UserPtr::<u64>::new(from).read()?;
        let mut inner = self.0.inner.lock();
        match inner.find(id) {
            Some(Notification { state: State::Received, .. }) => Ok(0),
            _ => Err(ENOENT),
        }
    }

    /// SECCOMP_IOCTL_NOTIF_ADDFD: the caller's file becomes one of the waiting thread's.
    fn add_fd(&self, from: u64, size: usize) -> Result<usize> {
        if !(ADD_FD_BYTES..abi::PAGE_SIZE).contains(&size) {
            return Err(EINVAL);
        }
        let [id, source, target]: [u64; ADD_FD_BYTES / 8] = UserPtr::new(from).read()?;
        if api_user::read_vec(from + ADD_FD_BYTES as u64, size - ADD_FD_BYTES)?.iter().any(|byte| *byte != 0)
        {
            return Err(E2BIG);
        }
        let (flags, source) = (source as u32, (source >> 32) as i32);
        let (target, target_flags) = (target as u32, (target >> 32) as u32);
        if target_flags & !O_CLOEXEC != 0 || flags & !(SET_FD | SEND_TOO) != 0 {
            return Err(EINVAL);
        }
        if target != 0 && flags & SET_FD == 0 {
            return Err(EINVAL);
        }
        let description = files::get(source)?;
        let task = {
            let mut inner = self.0.inner.lock();
            let notification = inner.find(id).ok_or(ENOENT)?;
            match notification.state {
                State::Received => processes::task(notification.tid).ok_or(ENOENT)?,
                _ => return Err(EINPROGRESS),
            }
        };
        let (table, closes) = (&task.files().descriptors, target_flags & O_CLOEXEC != 0);
        let fd = if flags & SET_FD == 0 {
            table.insert(description, closes)?
        } else {
            if let Some(old) = descriptors::Descriptors::replace(table, target as i32, description, closes)? {
                // As with dup2(2), nobody is told of errors.
                let _ = files::end(old);
            }
            target as i32
        };
        if flags & SEND_TOO != 0 {
            self.answer(id, Answer::Result(fd.into()))?;
        }
        Ok(fd as usize)
    }
}

impl File for Listener {
    fn anonymous_name(&self) -> &'static str {
        "seccomp notify"
    }

    fn stat(&self) -> Result<Stat> {
        Ok(Stat::new(FileType::Anonymous, 0o600))
    }

    fn poll(&self) -> Events {
        let inner = self.0.inner.lock();
        let any = |wanted: fn(&State) -> bool| inner.pending.iter().any(|n| wanted(&n.state));
        let new = any(|state| matches!(state, State::New));
        let received = any(|state| matches!(state, State::Received));
        Events::NONE
            .with(Events::IN | Events::RDNORM, new)
            .with(Events::OUT | Events::WRNORM, received)
            .with(Events::HUP, inner.has_no_filter)
    }

    fn wait_queue(&self) -> Option<&WaitQueue> {
        Some(&self.0.listeners)
    }

    fn ioctl(&self, command: u32, argument: u64) -> Result<usize> {
        match command {
            RECEIVE => self.receive(argument),
            SEND => self.send(argument),
            ID_VALID | ID_VALID_BEFORE => self.is_valid(argument),
            _ if command & ADD_FD_MASK == ADD_FD => self.add_fd(argument, (command >> 16 & 0x3fff) as usize),
            _ => Err(EINVAL),
        }
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}
