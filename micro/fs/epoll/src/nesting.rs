// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Instances that watch instances. A wake-up goes up such a chain and a question goes down it, each by calls of calls,
//! so chains are short and form no circle, and only so many ways lead up from an instance: every link is measured in both
//! directions before it is made.

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
/// Ways up from an instance at most: one wake-up goes all of them. As many as Linux lets a file have over one instance or more
/// (`path_limits` of fs/eventpoll.c); without a limit, layers of sixty instances that each watch all of the layer below would make
/// millions of ways.
const MAX_WAYS: u32 = 500 + 100 + 50 + 10;

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
    /// The walk that last counted the ways up from here, and how many it found.
    counted: AtomicU64,
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

/// A link that is about to be made.
struct New<'a> {
    parent: &'a Arc<Epoll>,
    child: &'a Epoll,
}

/// Whether `parent` may watch `child`: `ELOOP` when it would watch itself or the chain would be too long, `EINVAL` when too many ways
/// would lead up from an instance.
pub fn check(walk: &mut u64, parent: &Arc<Epoll>, child: &Epoll) -> Result<()> {
    *walk += 1;
    let below = child.nesting.depth(child, Direction::Down, *walk, 0, Some(parent))?;
    *walk += 1;
    let above = parent.nesting.depth(parent, Direction::Up, *walk, 0, None)?;
    if below + 1 + above > LIMIT {
        return Err(ELOOP);
    }
    *walk += 1;
    child.nesting.check_ways(child, *walk, &New { parent, child })
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
        Nesting { links: SpinLock::default(), visit: AtomicU64::new(0), counted: AtomicU64::new(0) }
    }

    /// The instances next to this one, each with how often the link is there: copies, for the last handle of one may go where they
    /// are dropped, which takes the lock.
    fn neighbours(&self, direction: Direction) -> Result<Vec<(Arc<Epoll>, u32)>> {
        let links = self.links.lock();
        let of = if direction == Direction::Up { &links.parents } else { &links.children };
        let mut copies = Vec::new();
        copies.reserve_exact_fallibly(of.len()).map_err(|_| ENOMEM)?;
        copies.extend(of.values().filter_map(|(other, times)| Some((other.upgrade()?, *times))));
        Ok(copies)
    }

    /// `EINVAL` when with the new link too many ways lead up from here or from an instance below. Chains are short here already.
    fn check_ways(&self, own: &Epoll, walk: u64, new: &New<'_>) -> Result<()> {
        if self.visit.swap(walk << 8, Ordering::Relaxed) >> 8 == walk {
            return Ok(());
        }
        if self.ways(own, walk, new)? > MAX_WAYS {
            return Err(EINVAL);
        }
        for (child, _) in self.neighbours(Direction::Down)? {
            child.nesting.check_ways(&child, walk, new)?;
        }
        Ok(())
    }

    fn ways(&self, own: &Epoll, walk: u64, new: &New<'_>) -> Result<u32> {
        let counted = self.counted.load(Ordering::Relaxed);
        if counted >> 16 == walk {
            return Ok(counted as u16 as u32);
        }
        let mut ways = 0u32;
        for (parent, times) in self.neighbours(Direction::Up)? {
            let above = parent.nesting.ways(&parent, walk, new)?;
            ways = ways.saturating_add(times.saturating_mul(1 + above));
        }
        if core::ptr::eq(own, new.child) {
            ways = ways.saturating_add(1 + new.parent.nesting.ways(new.parent, walk, new)?);
        }
        let ways = ways.min(u16::MAX.into());
        self.counted.store(walk << 16 | u64::from(ways), Ordering::Relaxed);
        Ok(ways)
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
        let mut deepest = 0;
        for (other, _) in &self.neighbours(direction)? {
            let depth = other.nesting.depth(other, direction, walk, level + 1, forbidden)?;
            deepest = deepest.max(depth + 1);
        }
        self.visit.store(walk << 8 | u64::from(deepest), Ordering::Relaxed);
        Ok(deepest)
    }
}
