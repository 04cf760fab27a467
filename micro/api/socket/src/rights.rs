// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Open files on their way through a socket (SCM_RIGHTS), and their end.
//!
//! The last handle of a file that is dropped closes it; a socket that is closed drops the messages in its queue; and
//! those may hold the last handle of another socket. Were each closed where it is dropped, a program could make the
//! kernel call itself as deep as it likes. So [`Rights`] that go are put on a list of their own links (nothing is
//! allocated), and whoever began emptying that list goes on until it is empty: closing is one level deep, whatever is
//! inside what (Linux: delayed fput). The list is empty before the system call that dropped the first one returns.

use crate::{Address, Socket};
use abi::{Result, errno::*};
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use api_alloc::Reserve;
use api_lock::SpinLock;
use core::any::Any;
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// An open file description, whose type only the system-call layer knows.
pub type Right = Arc<dyn Any + Send + Sync>;

/// Most descriptors in one message (Linux' SCM_MAX_FD).
pub const RIGHTS_MAX: usize = 253;

struct Parcel {
    files: Vec<Right>,
    /// Which of the files are AF_UNIX sockets, by index: only those can hold further parcels.
    sockets: Vec<(usize, Weak<dyn Socket>)>,
    /// In the list of those that are dropped.
    next: SpinLock<Option<Arc<Parcel>>>,
}

/// Files that travel in one message. A clone is another handle of the same parcel.
#[derive(Clone)]
pub struct Rights(Option<Arc<Parcel>>);

static DROPPED: SpinLock<Option<Arc<Parcel>>> = SpinLock::new(None);
static EMPTYING: AtomicBool = AtomicBool::new(false);
/// Files in all parcels there are.
static IN_FLIGHT: AtomicUsize = AtomicUsize::new(0);
static RECLAIM: SpinLock<Option<fn()>> = SpinLock::new(None);

/// `reclaim` is called, without locks, when no more files may travel: it closes those that nobody can receive.
pub fn register_reclaim(reclaim: fn()) {
    *RECLAIM.lock() = Some(reclaim);
}

impl Rights {
    /// `most` files may travel at once in the whole machine: `ETOOMANYREFS` beyond, for a file in a queue is held by no
    /// descriptor, and no limit on those counts it. `socket_of` is the socket behind a file, if there is one.
    pub fn new(
        files: Vec<Right>,
        most: usize,
        socket_of: impl Fn(&Right) -> Option<Arc<dyn Socket>>,
    ) -> Result<Rights> {
        if files.len() > RIGHTS_MAX {
            return Err(EINVAL);
        }
        let is_beyond = || IN_FLIGHT.load(Ordering::Relaxed) + files.len() > most;
        if is_beyond() {
            let reclaim = *RECLAIM.lock();
            reclaim.into_iter().for_each(|reclaim| reclaim());
            if is_beyond() {
                return Err(ETOOMANYREFS);
            }
        }
        let mut sockets = Vec::new();
        for (index, file) in files.iter().enumerate() {
            if let Some(socket) = socket_of(file).filter(|s| s.family() == Address::UNIX) {
                sockets.reserve_fallibly(1).map_err(|_| ENOMEM)?;
                sockets.push((index, Arc::downgrade(&socket)));
            }
        }
        IN_FLIGHT.fetch_add(files.len(), Ordering::Relaxed);
        Ok(Rights(Some(Arc::new(Parcel { files, sockets, next: SpinLock::new(None) }))))
    }

    /// The AF_UNIX sockets among the files, each with the file that it is behind.
    pub fn sockets(&self) -> impl Iterator<Item = (&Right, &Weak<dyn Socket>)> {
        let parcel = self.0.as_ref();
        parcel.into_iter().flat_map(|p| p.sockets.iter().map(|(index, socket)| (&p.files[*index], socket)))
    }

    /// Another handle of the same parcel exists: a reader with MSG_PEEK has it in its hands.
    pub fn is_shared(&self) -> bool {
        self.0.as_ref().is_some_and(|parcel| Arc::strong_count(parcel) > 1)
    }

    pub fn files(&self) -> &[Right] {
        self.0.as_ref().map_or(&[], |parcel| &parcel.files)
    }
}

impl Drop for Parcel {
    fn drop(&mut self) {
        IN_FLIGHT.fetch_sub(self.files.len(), Ordering::Relaxed);
        // A descriptor that was lost on its way may have been the last one outside of any queue.
        for (_, socket) in &self.sockets {
            if let Some(socket) = socket.upgrade() {
                socket.handle_closed();
            }
        }
    }
}

impl Drop for Rights {
    fn drop(&mut self) {
        let Some(parcel) = self.0.take() else { return };
        // Two of several handles that go at the same time are both not the last one here: then the files are closed
        // where they are, and what is in them still goes by the list.
        if Arc::strong_count(&parcel) > 1 {
            return;
        }
        {
            let mut dropped = DROPPED.lock();
            *parcel.next.lock() = dropped.take();
            *dropped = Some(parcel);
        }
        empty();
    }
}

fn next() -> Option<Arc<Parcel>> {
    let mut dropped = DROPPED.lock();
    let parcel = dropped.take()?;
    *dropped = parcel.next.lock().take();
    Some(parcel)
}

/// Closes what was dropped, unless that is being done already further up.
fn empty() {
    // What comes after the last look is another turn's.
    while DROPPED.lock().is_some() && !EMPTYING.swap(true, Ordering::Acquire) {
        while let Some(parcel) = next() {
            drop(parcel);
        }
        EMPTYING.store(false, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

    /// A file that holds others, as a socket does in its queue.
    struct Holder(#[allow(dead_code)] Mutex<Vec<Rights>>, Arc<AtomicUsize>);
    impl Drop for Holder {
        fn drop(&mut self) {
            self.1.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn files_within_files_are_closed_one_by_one() {
        let closed = Arc::new(AtomicUsize::new(0));
        let mut inner = Vec::new();
        // A hundred thousand levels would need some ten megabytes of stack.
        for _ in 0..100_000 {
            let file: Right = Arc::new(Holder(Mutex::new(inner), closed.clone()));
            inner = Vec::from([Rights::new(Vec::from([file]), 1 << 20, |_| None).unwrap()]);
        }
        let second = inner.clone();
        drop(inner);
        assert_eq!(closed.load(Ordering::Relaxed), 0);
        drop(second);
        assert_eq!(closed.load(Ordering::Relaxed), 100_000);
        assert!(DROPPED.lock().is_none());
    }
}
