// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The calls that a thread has given away (seccomp(2)), and the filters that say which.
//!
//! What a filter may be and what it answers is the crate `classic-bpf`. As long as nobody has one, a call is not asked about:
//! the way on which calls are looked at is the tracer's ([`crate::watch`]).

pub mod notify;

use crate::watch;
use abi::{Result, errno::*};
use alloc::sync::Arc;
use alloc::vec::Vec;
use api_alloc::Reserve;
use api_lock::SpinLock;
use classic_bpf::seccomp::{self, Data};
use classic_bpf::{Instruction, Refusal};
use core::iter;
use core::sync::atomic::{AtomicU32, Ordering::Relaxed};
use notify::Notifications;

/// Modes of a thread, which go up and never change otherwise.
pub const OFF: u32 = 0;

pub const STRICT: u32 = 1;
pub const FILTER: u32 = 2;

/// The part of an answer that says what to do; the first is the strongest, and of several filters the strongest counts.
pub const ACTION: u32 = 0xffff_0000;

pub const ALLOW: u32 = 0x7fff_0000;
/// Whoever has the filter's listener decides.
pub const USER_NOTIFICATION: u32 = 0x7fc0_0000;

/// A linked program calls the handlers by name: nothing on its way could ask a filter.
pub const IS_LINKED: bool = cfg!(feature = "linked");

/// AUDIT_ARCH_X86_64
pub const ARCHITECTURE: u32 = 0xc000_003e;

const FILTER_COUNTS_FOR: usize = 4;

/// A filter, and those that were there before it.
pub struct Filter {
    pub program: Vec<Instruction>,
    pub previous: Option<Arc<Filter>>,
    /// Of all of them.
    pub instructions: usize,
    pub number: u32,
    /// Whom it asks.
    pub notifications: Option<Arc<Notifications>>,
    /// SECCOMP_FILTER_FLAG_LOG, which tracers see: there is no audit log.
    pub is_logged: bool,
    /// Numbers of calls that all of them allow whatever their arguments are: those are not asked about (as Linux since 5.11).
    pub allowed: Numbers,
}

/// A set of the numbers of calls that the kernel has.
type Numbers = [u64; NUMBER_WORDS];

const NUMBER_WORDS: usize = syscall_table::NUMBERS.div_ceil(64);

impl Filter {
    /// A filter over those that were there before.
    pub fn new(
        program: Vec<Instruction>,
        previous: Option<Arc<Filter>>,
        notifications: Option<Arc<Notifications>>,
        is_logged: bool,
    ) -> Filter {
        let own = program.len();
        let (instructions, number) = match &previous {
            Some(p) => (p.instructions.saturating_add(own + FILTER_COUNTS_FOR), p.number + 1),
            None => (own, 1),
        };
        let mut allowed: Numbers =
            previous.as_ref().map_or([u64::MAX; NUMBER_WORDS], |previous| previous.allowed);
        for (n, word) in allowed.iter_mut().enumerate() {
            for bit in 0..64 {
                let number = (n * 64 + bit) as u32;
                if seccomp::answer_by_number(&program, number, ARCHITECTURE) != Some(ALLOW) {
                    *word &= !(1 << bit);
                }
            }
        }
        Filter { program, previous, instructions, number, notifications, is_logged, allowed }
    }

    pub fn allows(&self, number: u64) -> bool {
        let word = usize::try_from(number / 64).ok().and_then(|n| self.allowed.get(n));
        word.is_some_and(|word| word >> (number % 64) & 1 != 0)
    }
}

/// The filter that a container's programs begin with.
#[derive(Clone)]
pub struct Profile(Arc<Filter>);

impl Profile {
    /// Of instructions as `struct sock_filter` has them, a word each; none of them: no filter. `EINVAL`: they are no program, or this
    /// kernel has no filters; `ENOMEM`.
    pub fn of(words: &[u64]) -> Result<Option<Profile>> {
        if words.is_empty() {
            return Ok(None);
        }
        if IS_LINKED {
            return Err(EINVAL);
        }
        let program = checked(words)?;
        Ok(Some(Profile(Arc::new(Filter::new(program, None, None, false)))))
    }
}

/// A thread's filters, the newest first.
pub fn chain(newest: &Option<Arc<Filter>>) -> impl Iterator<Item = &Arc<Filter>> {
    iter::successors(newest.as_ref(), |filter| filter.previous.as_ref())
}

impl Drop for Filter {
    /// One after the other: thousands of them, each dropping the next, would need as many frames of the kernel's stack.
    fn drop(&mut self) {
        if let Some(notifications) = &self.notifications {
            notifications.filter_ends();
        }
        let mut next = self.previous.take();
        while let Some(mut filter) = next.and_then(Arc::into_inner) {
            next = filter.previous.take();
        }
    }
}

/// What a thread has given away.
#[derive(Default)]
pub struct Seccomp {
    pub mode: AtomicU32,
    pub filters: SpinLock<Option<Arc<Filter>>>,
}

/// Threads that have given something away.
static FILTERED: AtomicU32 = AtomicU32::new(0);

/// Some thread of the machine has given calls away.
pub fn is_anybody_filtered() -> bool {
    FILTERED.load(Relaxed) != 0
}

impl Seccomp {
    #[inline]
    pub fn is_on(&self) -> bool {
        self.mode() != OFF
    }

    /// As /proc/PID/status tells it.
    pub fn mode(&self) -> u32 {
        self.mode.load(Relaxed)
    }

    /// How many filters a call meets.
    pub fn filters(&self) -> u32 {
        self.filters.lock().as_ref().map_or(0, |filter| filter.number)
    }

    /// For a thread that `parent` makes, or that goes on in its place.
    pub fn inherit(&self, parent: &Seccomp) {
        if parent.is_on() {
            let filters = parent.filters.lock().clone();
            self.set(parent.mode(), filters);
        }
    }

    /// For a thread whose program is about to begin in a container.
    pub fn begin(&self, profile: Option<&Profile>) {
        if let Some(Profile(filter)) = profile {
            self.set(FILTER, Some(filter.clone()));
        }
    }

    /// All filters allow every call of that number.
    pub fn allows(&self, number: u64) -> bool {
        self.filters.lock().as_ref().is_some_and(|filter| filter.allows(number))
    }

    pub fn set(&self, mode: u32, filters: Option<Arc<Filter>>) {
        let old = core::mem::replace(&mut *self.filters.lock(), filters);
        drop(old);
        if self.mode.swap(mode, Relaxed) == OFF {
            FILTERED.fetch_add(1, Relaxed);
            watch::changed();
        }
    }

    /// `EINVAL` when another mode was chosen before.
    pub fn may_have(&self, mode: u32) -> Result<()> {
        if [OFF, mode].contains(&self.mode()) { Ok(()) } else { Err(EINVAL) }
    }

    /// The strongest answer of all filters; of equal ones that of the newest. With whom its filter asks, where the answer is to.
    pub fn ask(&self, data: &Data) -> (u32, Option<Arc<Notifications>>) {
        let filters = self.filters.lock().clone();
        let (mut strongest, mut by) = (ALLOW, None);
        for filter in chain(&filters) {
            let answer = seccomp::run(&filter.program, data);
            // KILL_PROCESS is the strongest, by its sign.
            if ((answer & ACTION) as i32) < (strongest & ACTION) as i32 {
                (strongest, by) = (answer, Some(filter));
            }
        }
        let asked = by.filter(|_| strongest & ACTION == USER_NOTIFICATION);
        (strongest, asked.and_then(|filter| filter.notifications.clone()))
    }
}

impl Drop for Seccomp {
    fn drop(&mut self) {
        if self.is_on() {
            FILTERED.fetch_sub(1, Relaxed);
            watch::changed();
        }
    }
}

pub fn checked(words: &[u64]) -> Result<Vec<Instruction>> {
    let mut instructions = Vec::new();
    instructions.reserve_exact_fallibly(words.len()).map_err(|_| ENOMEM)?;
    instructions.extend(words.iter().copied().map(Instruction::from_word));
    match seccomp::check(&instructions) {
        Ok(()) => Ok(instructions),
        Err(Refusal::Invalid) => Err(EINVAL),
        Err(Refusal::NoMemory) => Err(ENOMEM),
    }
}
