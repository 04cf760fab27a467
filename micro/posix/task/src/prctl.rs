// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What prctl(2) and personality(2) set.

use crate::login::Login;
use abi::linux::prctl as linux;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// What prctl sets for the whole process and nothing but prctl reads.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    pub dumpable: u32,
    pub child_subreaper: bool,
    pub huge_pages_off: bool,
    pub io_flusher: bool,
    /// PR_MCE_KILL_EARLY, _LATE or _DEFAULT: nothing but memory errors asks, and the machine tells of none.
    pub memory_error_policy: u32,
    /// Commands of membarrier(2) that registered the process.
    pub barriers: u32,
    /// /proc/PID/coredump_filter: what of the memory is in a core file (core(5)). New programs keep it.
    pub core_filter: u32,
    /// /proc/PID/loginuid and sessionid.
    pub login: Login,
}

/// Bits of coredump_filter: private and shared memory that is no file's, private and shared files, ELF headers, private and
/// shared large pages.
pub const CORE_ANONYMOUS: [u32; 2] = [1, 2];

pub const CORE_FILES: [u32; 2] = [4, 8];
pub const CORE_ELF_HEADERS: u32 = 16;

/// And DAX, of which there is none.
pub const CORE_FILTER_KNOWN: u32 = 0x1ff;

/// Memory that is no file's, ELF headers, private large pages (Linux' default).
const CORE_FILTER_DEFAULT: u32 = 0x33;

impl Default for Settings {
    fn default() -> Self {
        Settings {
            dumpable: 1,
            child_subreaper: false,
            huge_pages_off: false,
            io_flusher: false,
            memory_error_policy: linux::PR_MCE_KILL_DEFAULT,
            barriers: 0,
            core_filter: CORE_FILTER_DEFAULT,
            login: Login::default(),
        }
    }
}

impl Settings {
    /// What a new process starts with.
    pub fn inherited(&self) -> Settings {
        Settings { child_subreaper: false, ..*self }
    }

    pub fn register_barriers(&mut self, command: u32) {
        self.barriers |= command;
    }

    pub fn has_barriers(&self, command: u32) -> bool {
        self.barriers & command != 0
    }

    /// execve(2): memory that was never registered, and that may be dumped if the program has the ids of the user who runs it.
    pub fn program_starts(&mut self, is_its_users: bool) {
        (self.barriers, self.dumpable) = (0, is_its_users.into());
    }

    /// The ids change that decide what the process may access: what is in its memory may be more than its new ids may see.
    pub fn ids_change(&mut self) {
        self.dumpable = 0;
    }

    /// PR_SET_DUMPABLE.
    pub fn may_be_dumped(&self) -> bool {
        self.dumpable == 1
    }

    /// PR_SET_CHILD_SUBREAPER.
    pub fn is_subreaper(&self) -> bool {
        self.child_subreaper
    }
}

/// What prctl and personality(2) set for one thread.
#[derive(Default)]
pub struct ThreadSettings {
    parent_death_signal: AtomicU32,
    personality: AtomicU32,
}

impl ThreadSettings {
    /// For a thread that `parent` makes.
    pub fn inherit(&self, parent: &ThreadSettings) {
        self.set_personality(parent.personality());
    }

    /// For the thread that takes the place of `old` (execve(2)).
    pub fn keep(&self, old: &ThreadSettings) {
        self.inherit(old);
        self.set_parent_death_signal(old.parent_death_signal());
    }

    /// execve(2) of a program that can do more than its user: what that one set is not for it.
    pub fn secure_program_starts(&self) {
        /// PER_CLEAR_ON_SETID: READ_IMPLIES_EXEC, ADDR_NO_RANDOMIZE, ADDR_COMPAT_LAYOUT, MMAP_PAGE_ZERO.
        const NOT_FOR_OTHERS: u32 = 0x40_0000 | 0x4_0000 | 0x20_0000 | 0x10_0000;
        self.set_parent_death_signal(0);
        self.set_personality(self.personality() & !NOT_FOR_OTHERS);
    }

    /// What its process gets when the one ends that made it; 0 for nothing.
    pub fn parent_death_signal(&self) -> i32 {
        self.parent_death_signal.load(Ordering::Relaxed) as i32
    }

    pub fn set_parent_death_signal(&self, signal: i32) {
        self.parent_death_signal.store(signal as u32, Ordering::Relaxed);
    }

    pub fn personality(&self) -> u32 {
        self.personality.load(Ordering::Relaxed)
    }

    pub fn set_personality(&self, personality: u32) {
        self.personality.store(personality, Ordering::Relaxed);
    }

    /// personality(2) with STICKY_TIMEOUTS: select(2) and its like leave the time limit as it was.
    pub fn keeps_timeouts(&self) -> bool {
        const STICKY_TIMEOUTS: u32 = 0x400_0000;
        self.personality() & STICKY_TIMEOUTS != 0
    }
}

/// PR_SET_TIMERSLACK of a thread, in nanoseconds; timers are exact whatever it says.
pub struct TimerSlack {
    now: AtomicU64,
    /// What its parent had when the thread was made: 0 goes back to it.
    default: AtomicU64,
}

impl Default for TimerSlack {
    fn default() -> Self {
        const LINUX_DEFAULT: u64 = 50_000;
        TimerSlack { now: AtomicU64::new(LINUX_DEFAULT), default: AtomicU64::new(LINUX_DEFAULT) }
    }
}

impl TimerSlack {
    /// For a thread that `parent` makes.
    pub fn inherit(&self, parent: &TimerSlack) {
        self.now.store(parent.get(), Ordering::Relaxed);
        self.default.store(parent.get(), Ordering::Relaxed);
    }

    /// For the thread that goes on in another program.
    pub fn keep(&self, before: &TimerSlack) {
        self.now.store(before.get(), Ordering::Relaxed);
        self.default.store(before.default.load(Ordering::Relaxed), Ordering::Relaxed);
    }

    pub fn get(&self) -> u64 {
        self.now.load(Ordering::Relaxed)
    }

    pub fn set(&self, ns: u64) {
        let default = self.default.load(Ordering::Relaxed);
        self.now.store(if ns as i64 <= 0 { default } else { ns }, Ordering::Relaxed);
    }
}
