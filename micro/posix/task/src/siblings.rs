// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The children of a process, in the order in which they came. Each of them has the next one, so nothing is allocated when one comes or
//! is handed on to another parent, which may not fail.

use crate::process::Process;
use alloc::sync::Arc;
use api_lock::SpinLock;

/// The child behind this one. It belongs to the list that this one is in, and is changed under that one's lock.
#[derive(Default)]
pub struct Next(SpinLock<Option<Arc<Process>>>);

impl Next {
    fn get(&self) -> Option<Arc<Process>> {
        self.0.lock().clone()
    }

    fn take(&self) -> Option<Arc<Process>> {
        self.0.lock().take()
    }

    fn set(&self, next: Option<Arc<Process>>) {
        let before = core::mem::replace(&mut *self.0.lock(), next);
        drop(before);
    }
}

/// A list of children. A process is in one at most.
#[derive(Default)]
pub struct Children {
    first: Option<Arc<Process>>,
    last: Option<Arc<Process>>,
}

impl Children {
    pub fn push(&mut self, child: Arc<Process>) {
        match &self.last {
            Some(last) => last.family.next_sibling.set(Some(child.clone())),
            None => self.first = Some(child.clone()),
        }
        self.last = Some(child);
    }

    pub fn first(&self) -> Option<Arc<Process>> {
        self.first.clone()
    }

    /// The one behind a child of this list, for walks that let the lock go meanwhile; they end at one that has left the list.
    pub fn after(&self, child: &Process) -> Option<Arc<Process>> {
        child.family.next_sibling.get()
    }

    pub fn iter(&self) -> impl Iterator<Item = Arc<Process>> + '_ {
        core::iter::successors(self.first(), |child| self.after(child))
    }

    pub fn is_empty(&self) -> bool {
        self.first.is_none()
    }

    /// Takes the first one off.
    pub fn pop(&mut self) -> Option<Arc<Process>> {
        let first = self.first.take()?;
        self.first = first.family.next_sibling.take();
        if self.first.is_none() {
            self.last = None;
        }
        Some(first)
    }

    pub fn remove(&mut self, child: &Arc<Process>) {
        let mut before: Option<Arc<Process>> = None;
        let mut at = self.first();
        while let Some(this) = at {
            if !Arc::ptr_eq(&this, child) {
                at = self.after(&this);
                before = Some(this);
                continue;
            }
            let next = this.family.next_sibling.take();
            if next.is_none() {
                self.last.clone_from(&before);
            }
            match &before {
                Some(before) => before.family.next_sibling.set(next),
                None => self.first = next,
            }
            return;
        }
    }
}

impl Drop for Children {
    /// One after the other: each of them would let the next one go from within.
    fn drop(&mut self) {
        while self.pop().is_some() {}
    }
}
