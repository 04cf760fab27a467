// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Instances that watch instances. A wake-up goes up such a chain and a question goes down it, each by calls of calls,
//! so chains are short and form no circle: every link is measured in both directions before it is made.

use crate::Epoll;
use abi::{Result, errno::*};
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use api_alloc::Reserve;
use api_lock::{Guard, SpinLock};
use core::sync::atomic::{AtomicU64, Ordering};
use ordered::Map;

/// Links in a chain of instances (Linux' EP_MAX_NESTS).
const LIMIT: u32 = 4;

/// Instances by address, each with how often the link is there.
type Neighbours = Map<usize, (Weak<Epoll>, u32)>;

#[derive(Default)]
struct Links {
    parents: Neighbours,
    children: Neighbours,
}

/// Who watches this instance, and whom it watches.
pub struct Nesting {
    links: SpinLock<Links>,
    /// The walk that was here last, and the depth it found.
    visit: AtomicU64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Direction {
    Up,
    Down,
}

/// The number of the last walk. Whoever holds the lock may add links.
static WALKS: SpinLock<u64> = SpinLock::new(0);

/// Links are measured and made under this lock.
pub fn lock() -> Guard<'static, u64> {
    WALKS.lock()
}

/// Whether `parent` may watch `child`: `ELOOP` when it would watch itself or the chain would be too long.
pub fn check(walk: &mut u64, parent: &Arc<Epoll>, child: &Epoll) -> Result<()> {
    *walk += 1;
    let below = child.nesting.depth(child, Direction::Down, *walk, 0, Some(parent))?;
    *walk += 1;
    let above = parent.nesting.depth(parent, Direction::Up, *walk, 0, None)?;
    if below + 1 + above > LIMIT { Err(ELOOP) } else { Ok(()) }
}

fn add(to: &mut Neighbours, other: &Arc<Epoll>) {
    to.entry(Arc::as_ptr(other) as usize).or_insert_with(|| (Arc::downgrade(other), 0)).1 += 1;
}

fn remove(from: &mut Neighbours, other: usize) {
    if let Some(link) = from.get_mut(&other) {
        link.1 -= 1;
        if link.1 == 0 {
            from.remove(&other);
        }
    }
}

/// `parent` watches `child` from now on.
pub fn link(parent: &Arc<Epoll>, child: &Epoll) {
    if let Some(child) = child.this.upgrade() {
        add(&mut child.nesting.links.lock().parents, parent);
        add(&mut parent.nesting.links.lock().children, &child);
    }
}

/// `parent`, which may be gone, does not watch `child` any more.
pub fn unlink(parent: &Weak<Epoll>, child: &Epoll) {
    remove(&mut child.nesting.links.lock().parents, parent.as_ptr() as usize);
    if let Some(parent) = parent.upgrade() {
        remove(&mut parent.nesting.links.lock().children, child as *const Epoll as usize);
    }
}

impl Nesting {
    pub fn new() -> Nesting {
        Nesting { links: SpinLock::default(), visit: AtomicU64::new(0) }
    }

    /// Links of the longest chain from here; `ELOOP` when one leads to `forbidden` or is longer than any may be.
    fn depth(
        &self,
        own: &Epoll,
        direction: Direction,
        walk: u64,
        level: u32,
        forbidden: Option<&Arc<Epoll>>,
    ) -> Result<u32> {
        if level > LIMIT || forbidden.is_some_and(|f| core::ptr::eq(&**f, own)) {
            return Err(ELOOP);
        }
        let visit = self.visit.load(Ordering::Relaxed);
        if visit >> 8 == walk {
            return Ok(visit as u8 as u32);
        }
        // The neighbours are asked without the lock, for the last handle of one may go here.
        let neighbours: Vec<Arc<Epoll>> = {
            let links = self.links.lock();
            let of = if direction == Direction::Up { &links.parents } else { &links.children };
            let mut copies = Vec::new();
            copies.reserve_exact_fallibly(of.len()).map_err(|_| ENOMEM)?;
            copies.extend(of.values().filter_map(|(other, _)| other.upgrade()));
            copies
        };
        let mut deepest = 0;
        for other in &neighbours {
            let depth = other.nesting.depth(other, direction, walk, level + 1, forbidden)?;
            deepest = deepest.max(depth + 1);
        }
        self.visit.store(walk << 8 | u64::from(deepest), Ordering::Relaxed);
        Ok(deepest)
    }
}
