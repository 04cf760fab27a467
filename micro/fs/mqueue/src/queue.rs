// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One message queue.

use abi::{Events, Result, errno::*};
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use api_fs::{FileType, SetAttr, Stat, Timespec};
use api_lock::SpinLock;
use api_sched::WaitQueue;
use ordered::Map;

/// `st_size` of a queue, as Linux has it (`FILENT_SIZE`).
const FILE_SIZE: u64 = 80;

/// What mq_open(3) fixes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attributes {
    /// Most messages.
    pub messages: usize,
    /// Longest message in bytes.
    pub size: usize,
}

/// Why a notification ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// A message came into the empty queue.
    Message,
    /// It was taken back.
    Removed,
}

struct Notification {
    tell: Box<dyn FnOnce(Outcome) + Send>,
    /// What the descriptor shows: kind, signal, process.
    shown: [i32; 3],
}

#[derive(Default)]
struct State {
    /// By priority, each in the order of arrival.
    messages: Map<u32, VecDeque<Vec<u8>>>,
    count: usize,
    bytes: usize,
    /// Threads asleep for a message.
    receivers: usize,
    notification: Option<Notification>,
    modified: Timespec,
    owner: (u32, u32),
    permissions: u32,
    is_unlinked: bool,
}

/// A message queue.
pub struct Queue {
    attributes: Attributes,
    inode: u64,
    state: SpinLock<State>,
    wait: WaitQueue,
}

impl Queue {
    /// Empty; `owner` is user and group.
    pub fn new(attributes: Attributes, owner: (u32, u32), permissions: u32, inode: u64) -> Queue {
        let state =
            SpinLock::new(State { modified: Timespec::now(), owner, permissions, ..State::default() });
        Queue { attributes, inode, state, wait: WaitQueue::new() }
    }

    pub fn attributes(&self) -> Attributes {
        self.attributes
    }

    /// Messages in it.
    pub fn length(&self) -> usize {
        self.state.lock().count
    }

    pub fn wait_queue(&self) -> &WaitQueue {
        &self.wait
    }

    /// Adds a message; `EMSGSIZE`, and `EAGAIN` when the queue is full. Takes the message out of `message` only when it
    /// succeeds.
    pub fn send(&self, message: &mut Vec<u8>, priority: u32) -> Result<()> {
        if message.len() > self.attributes.size {
            return Err(EMSGSIZE);
        }
        let notification = {
            let mut state = self.state.lock();
            if state.count >= self.attributes.messages {
                return Err(EAGAIN);
            }
            state.count += 1;
            state.bytes += message.len();
            state.modified = Timespec::now();
            state.messages.entry(priority).or_default().push_back(core::mem::take(message));
            // Who waits for a message comes first (mq_notify(3)).
            let alone = state.count == 1 && state.receivers == 0;
            if alone { state.notification.take() } else { None }
        };
        self.wait.wake(Events::READABLE);
        if let Some(notification) = notification {
            (notification.tell)(Outcome::Message);
        }
        Ok(())
    }

    /// Takes the oldest message of the highest priority, with its priority; `EAGAIN` when there is none.
    pub fn receive(&self) -> Result<(Vec<u8>, u32)> {
        let (message, priority) = {
            let mut state = self.state.lock();
            let mut highest = state.messages.last_entry().ok_or(EAGAIN)?;
            let priority = *highest.key();
            let message = highest.get_mut().pop_front().unwrap_or_default();
            if highest.get().is_empty() {
                highest.remove();
            }
            state.count -= 1;
            state.bytes -= message.len();
            state.modified = Timespec::now();
            (message, priority)
        };
        self.wait.wake(Events::WRITABLE);
        Ok((message, priority))
    }

    /// The calling thread is about to sleep for a message, for as long as the answer lives.
    pub fn receiving(&self) -> Receiving<'_> {
        self.state.lock().receivers += 1;
        Receiving(self)
    }

    /// Who is told, once, when a message comes into the empty queue; `EBUSY` when somebody is already. `shown` is what
    /// the descriptor shows: kind, signal, process.
    pub fn notify(&self, shown: [i32; 3], tell: Box<dyn FnOnce(Outcome) + Send>) -> Result<()> {
        let mut state = self.state.lock();
        if state.notification.is_some() {
            return Err(EBUSY);
        }
        state.notification = Some(Notification { tell, shown });
        Ok(())
    }

    /// Takes the notification back.
    pub fn forget_notification(&self) {
        let notification = self.state.lock().notification.take();
        if let Some(notification) = notification {
            (notification.tell)(Outcome::Removed);
        }
    }

    pub(crate) fn status(&self) -> (usize, Option<[i32; 3]>) {
        let state = self.state.lock();
        (state.bytes, state.notification.as_ref().map(|n| n.shown))
    }

    pub fn poll(&self) -> Events {
        let count = self.length();
        Events::NONE
            .with(Events::READABLE, count > 0)
            .with(Events::WRITABLE, count < self.attributes.messages)
    }

    pub fn stat(&self) -> Stat {
        let state = self.state.lock();
        let (modified, owner, permissions) = (state.modified, state.owner, state.permissions);
        Stat {
            uid: owner.0,
            gid: owner.1,
            inode: self.inode,
            links: u32::from(!state.is_unlinked).into(),
            size: FILE_SIZE,
            accessed: modified,
            modified,
            changed: modified,
            ..Stat::new(FileType::Regular, permissions)
        }
    }

    /// Its name is gone.
    pub fn unlinked(&self) {
        self.state.lock().is_unlinked = true;
    }

    /// chmod(2) and chown(2) of its file.
    pub fn set_attr(&self, change: &SetAttr) {
        let mut state = self.state.lock();
        state.permissions = change.permissions.unwrap_or(state.permissions);
        state.owner = (change.uid.unwrap_or(state.owner.0), change.gid.unwrap_or(state.owner.1));
    }
}

/// See [`Queue::receiving`].
pub struct Receiving<'a>(&'a Queue);

impl Drop for Receiving<'_> {
    fn drop(&mut self) {
        self.0.state.lock().receivers -= 1;
    }
}
