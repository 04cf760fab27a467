// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A packet socket as the table of all has it. The socket itself keeps it there, and takes it out when it goes, however it goes.

use crate::state::State;
use crate::table::Table;
use abi::Events;
use alloc::sync::{Arc, Weak};
use api_lock::SpinLock;
use api_sched::{TimerId, WaitQueue, Waiter};
use api_socket::Type;
use core::sync::atomic::AtomicU64;

pub struct Member {
    pub id: u64,
    pub kind: Type,
    /// Who made it.
    pub user: u32,
    /// The number that /proc shows its file by.
    pub inode: AtomicU64,
    pub state: SpinLock<State>,
    pub queue: WaitQueue,
    pub alarm: SpinLock<Option<TimerId>>,
}

impl Member {
    /// Wakes those who wait and sets the timer, as the state asks for. No lock is held.
    pub fn attend(self: &Arc<Member>, table: &Table) {
        let (is_news, due) = {
            let mut state = self.state.lock();
            let due = state.due().filter(|_| !state.is_armed);
            state.is_armed |= due.is_some();
            (core::mem::take(&mut state.is_news), due)
        };
        if let Some(due) = due {
            let waiter = Arc::new(Alarm { member: Arc::downgrade(self), table: table.handle() });
            *self.alarm.lock() = table.link.alarm(due, waiter);
        }
        if is_news {
            self.queue.wake(Events::READABLE);
        }
    }
}

/// Hands a block over when its time is up.
struct Alarm {
    member: Weak<Member>,
    table: Weak<Table>,
}

impl Waiter for Alarm {
    fn wake(&self, _: Events) {
        let (Some(member), Some(table)) = (self.member.upgrade(), self.table.upgrade()) else { return };
        {
            let mut state = member.state.lock();
            state.is_armed = false;
            state.retire(table.link.now_ns());
        }
        member.attend(&table);
    }
}
