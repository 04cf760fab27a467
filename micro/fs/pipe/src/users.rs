// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What pipes a user may have (pipe(7)): pages of all of a user's pipes, counted by their capacities.

use crate::{DEFAULT_CAPACITY, HARD_LIMIT};
use abi::setting::Setting;
use abi::{PAGE_SIZE, Result, errno::*};
use api_lock::SpinLock;
use ordered::Map;

/// fs.pipe-user-pages-soft: with more than that, a user's new pipes have two pages, and none grows.
pub static USER_PAGES_SOFT: [Setting; 1] = [Setting::new(16_384, 0, i64::MAX as u64)];
/// fs.pipe-user-pages-hard: with more than that, a user gets no more pipes. 0: no limit.
pub static USER_PAGES_HARD: [Setting; 1] = [Setting::new(0, 0, i64::MAX as u64)];

/// Capacity of the pipes of a user that has too many (Linux' PIPE_MIN_DEF_BUFFERS).
const LEAST_CAPACITY: usize = 2 * PAGE_SIZE;

/// Who makes a pipe, or changes one.
#[derive(Clone, Copy, Debug)]
pub struct User {
    pub uid: u32,
    pub gid: u32,
    /// With CAP_SYS_RESOURCE or CAP_SYS_ADMIN the limits of pages do not hold.
    pub is_limited: bool,
    /// The largest capacity that one pipe may have.
    pub largest: usize,
}

impl User {
    /// The kernel itself.
    pub const KERNEL: User = User { uid: 0, gid: 0, is_limited: false, largest: HARD_LIMIT };
}

/// Pages of each user's pipes.
static PAGES: SpinLock<Map<u32, u64>> = SpinLock::new(Map::new());

fn exceeds(pages: u64, limit: &Setting) -> bool {
    limit.get() != 0 && pages > limit.get()
}

fn pages(capacity: usize) -> u64 {
    (capacity / PAGE_SIZE) as u64
}

/// The pages of one pipe, counted until it goes.
#[derive(Debug)]
pub(crate) struct Charge {
    uid: u32,
    capacity: usize,
}

impl Charge {
    /// Of a new pipe, whose capacity may be less than usual; `ENFILE` when the user has too many.
    pub fn new(user: &User) -> Result<Charge> {
        let mut all = PAGES.lock();
        let before = all.get(&user.uid).copied().unwrap_or(0);
        let mut capacity = DEFAULT_CAPACITY.min(user.largest);
        if user.is_limited && exceeds(before + pages(capacity), &USER_PAGES_SOFT[0]) {
            capacity = capacity.min(LEAST_CAPACITY);
        }
        let after = before + pages(capacity);
        if user.is_limited && exceeds(after, &USER_PAGES_HARD[0]) {
            return Err(ENFILE);
        }
        all.insert_fallibly(user.uid, after).map_err(|_| ENOMEM)?;
        Ok(Charge { uid: user.uid, capacity })
    }

    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// `EPERM` when `user`, who changes it, may not have the owner's pipes grow so.
    pub fn change(&mut self, capacity: usize, user: &User) -> Result<()> {
        let grows = capacity > self.capacity;
        if grows && capacity > user.largest {
            return Err(EPERM);
        }
        let mut all = PAGES.lock();
        let Some(used) = all.get_mut(&self.uid) else { return Err(EPERM) };
        let after = *used - pages(self.capacity) + pages(capacity);
        let too_many = exceeds(after, &USER_PAGES_SOFT[0]) || exceeds(after, &USER_PAGES_HARD[0]);
        if grows && user.is_limited && too_many {
            return Err(EPERM);
        }
        *used = after;
        self.capacity = capacity;
        Ok(())
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        let mut all = PAGES.lock();
        let Some(used) = all.get_mut(&self.uid) else { return };
        *used -= pages(self.capacity);
        if *used == 0 {
            all.remove(&self.uid);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    #[test]
    fn a_user_with_too_many_pages_gets_small_pipes_and_then_none() {
        let user = User { uid: 77, gid: 77, is_limited: true, largest: 1 << 20 };
        USER_PAGES_SOFT[0].set(64);
        USER_PAGES_HARD[0].set(70);
        let mut full: Vec<Charge> = (0..4).map(|_| Charge::new(&user).unwrap()).collect();
        assert!(full.iter().all(|charge| charge.capacity() == DEFAULT_CAPACITY));
        let small: Vec<Charge> = (0..3).map(|_| Charge::new(&user).unwrap()).collect();
        assert!(small.iter().all(|charge| charge.capacity() == LEAST_CAPACITY));
        assert_eq!(Charge::new(&user).unwrap_err(), ENFILE);
        assert_eq!(full[0].change(2 * DEFAULT_CAPACITY, &user), Err(EPERM));
        let root = User { is_limited: false, ..user };
        assert_eq!(full[0].change(2 * DEFAULT_CAPACITY, &root), Ok(()));
        assert_eq!(Charge::new(&root).unwrap().capacity(), DEFAULT_CAPACITY);
        // Less is always possible.
        assert_eq!(full[0].change(PAGE_SIZE, &user), Ok(()));
        drop((full, small));
        assert!(!PAGES.lock().contains_key(&77));
    }
}
