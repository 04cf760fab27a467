// SPDX-License-Identifier: Apache-2.0 OR MIT
//! prctl(2) and personality(2).

use crate::call::Call;
use crate::calls::identity::capabilities::{CAP_SETPCAP, KEEP_CAPS, LAST_CAPABILITY};
use crate::calls::signals::SIGNALS;
use crate::proc::audit::Login;
use crate::task;
use abi::linux::prctl as linux;
use abi::{Result, errno::*};
use api_lock::SpinLock;
use api_user::UserPtr;
use core::sync::atomic::{AtomicU64, Ordering};

/// What prctl sets for the whole process and nothing but prctl reads.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    parent_death_signal: u32,
    dumpable: u32,
    child_subreaper: bool,
    huge_pages_off: bool,
    io_flusher: bool,
    /// PR_MCE_KILL_EARLY, _LATE or _DEFAULT: nothing but memory errors asks, and the machine tells of none.
    memory_error_policy: u32,
    personality: u32,
    /// Commands of membarrier(2) that registered the process.
    barriers: u32,
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
            parent_death_signal: 0,
            dumpable: 1,
            child_subreaper: false,
            huge_pages_off: false,
            io_flusher: false,
            memory_error_policy: linux::PR_MCE_KILL_DEFAULT,
            personality: 0,
            barriers: 0,
            core_filter: CORE_FILTER_DEFAULT,
            login: Login::default(),
        }
    }
}

impl Settings {
    /// What a new process starts with.
    pub fn inherited(&self) -> Settings {
        Settings { parent_death_signal: 0, child_subreaper: false, ..*self }
    }

    pub fn register_barriers(&mut self, command: u32) {
        self.barriers |= command;
    }

    pub fn has_barriers(&self, command: u32) -> bool {
        self.barriers & command != 0
    }

    /// execve(2): memory that was never registered, and that may be dumped if the program has the ids of the user who runs it; what that
    /// user set for the next program is not for one that is `is_secure`.
    pub fn program_starts(&mut self, is_its_users: bool, is_secure: bool) {
        /// PER_CLEAR_ON_SETID: READ_IMPLIES_EXEC, ADDR_NO_RANDOMIZE, ADDR_COMPAT_LAYOUT, MMAP_PAGE_ZERO.
        const NOT_FOR_OTHERS: u32 = 0x40_0000 | 0x4_0000 | 0x20_0000 | 0x10_0000;
        (self.barriers, self.dumpable) = (0, is_its_users.into());
        if is_secure {
            self.parent_death_signal = 0;
            self.personality &= !NOT_FOR_OTHERS;
        }
    }

    /// The ids change that decide what the process may access: what is in its memory may be more than its new ids may see,
    /// and its parent no longer decides on it.
    pub fn ids_change(&mut self) {
        (self.dumpable, self.parent_death_signal) = (0, 0);
    }

    /// What it gets when its parent ends; 0 for nothing.
    pub fn parent_death_signal(&self) -> i32 {
        self.parent_death_signal as i32
    }

    pub fn personality(&self) -> u32 {
        self.personality
    }

    /// personality(2) with STICKY_TIMEOUTS: select(2) and its like leave the time limit as it was.
    pub fn keeps_timeouts(&self) -> bool {
        const STICKY_TIMEOUTS: u32 = 0x400_0000;
        self.personality & STICKY_TIMEOUTS != 0
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

fn settings() -> &'static SpinLock<Settings> {
    &task::current().process.settings
}

/// `EINVAL` unless the arguments from `first` on are zero.
fn rest_is_zero(call: &Call<'_>, first: usize) -> Result<()> {
    if (first..5).all(|i| call.arg(i) == 0) { Ok(()) } else { Err(EINVAL) }
}

fn answer(value: impl Into<u64>) -> Result<usize> {
    Ok(value.into() as usize)
}

/// prctl(2). What it does not know it answers with EINVAL, as an older Linux would.
pub fn prctl(call: &mut Call<'_>) -> Result<usize> {
    let value = call.arg(1);
    match call.uint(0) {
        linux::PR_SET_NAME => set_name(call.ptr(1)),
        linux::PR_GET_NAME => {
            let name = *task::current().name.lock();
            call.ptr(1).write(name).map(|()| 0)
        }
        linux::PR_SET_PDEATHSIG if value > SIGNALS as u64 => Err(EINVAL),
        linux::PR_SET_PDEATHSIG => {
            settings().lock().parent_death_signal = value as u32;
            Ok(0)
        }
        linux::PR_GET_PDEATHSIG => {
            let signal = settings().lock().parent_death_signal;
            call.ptr(1).write(signal).map(|()| 0)
        }
        linux::PR_GET_DUMPABLE => answer(settings().lock().dumpable),
        linux::PR_SET_DUMPABLE if value > 1 => Err(EINVAL),
        linux::PR_SET_DUMPABLE => {
            settings().lock().dumpable = value as u32;
            Ok(0)
        }
        linux::PR_SET_CHILD_SUBREAPER => {
            settings().lock().child_subreaper = value != 0;
            Ok(0)
        }
        linux::PR_GET_CHILD_SUBREAPER => {
            let on = u32::from(settings().lock().child_subreaper);
            call.ptr(1).write(on).map(|()| 0)
        }
        linux::PR_SET_THP_DISABLE => {
            rest_is_zero(call, 2)?;
            settings().lock().huge_pages_off = value != 0;
            Ok(0)
        }
        linux::PR_GET_THP_DISABLE => {
            rest_is_zero(call, 1)?;
            answer(settings().lock().huge_pages_off)
        }
        linux::PR_SET_IO_FLUSHER if value > 1 => Err(EINVAL),
        linux::PR_SET_IO_FLUSHER => {
            rest_is_zero(call, 2)?;
            settings().lock().io_flusher = value == 1;
            Ok(0)
        }
        linux::PR_GET_IO_FLUSHER => {
            rest_is_zero(call, 1)?;
            answer(settings().lock().io_flusher)
        }
        linux::PR_MCE_KILL => {
            rest_is_zero(call, 3)?;
            let policy = match (value as u32, call.arg(2)) {
                (linux::PR_MCE_KILL_CLEAR, 0) => linux::PR_MCE_KILL_DEFAULT,
                (linux::PR_MCE_KILL_SET, policy) => match policy as u32 {
                    policy @ linux::PR_MCE_KILL_LATE..=linux::PR_MCE_KILL_DEFAULT => policy,
                    _ => return Err(EINVAL),
                },
                _ => return Err(EINVAL),
            };
            settings().lock().memory_error_policy = policy;
            Ok(0)
        }
        linux::PR_MCE_KILL_GET => {
            rest_is_zero(call, 1)?;
            answer(settings().lock().memory_error_policy)
        }
        linux::PR_SET_TIMERSLACK => {
            task::current().timer_slack.set(value);
            Ok(0)
        }
        linux::PR_GET_TIMERSLACK => answer(task::current().timer_slack.get()),
        linux::PR_GET_TID_ADDRESS => call.ptr(1).write(task::current().clear_child_tid()).map(|()| 0),
        // The statistical kind is the only one there is.
        linux::PR_GET_TIMING => Ok(linux::PR_TIMING_STATISTICAL as usize),
        linux::PR_SET_TIMING if value == u64::from(linux::PR_TIMING_STATISTICAL) => Ok(0),
        linux::PR_GET_TSC => call.ptr(1).write(linux::PR_TSC_ENABLE).map(|()| 0),
        linux::PR_SET_TSC if value == u64::from(linux::PR_TSC_ENABLE) => Ok(0),
        linux::PR_TASK_PERF_EVENTS_DISABLE | linux::PR_TASK_PERF_EVENTS_ENABLE => Ok(0),
        linux::PR_GET_SECCOMP => answer(task::current().seccomp.mode()),
        linux::PR_SET_SECCOMP => super::seccomp::set_mode(value, call.arg(2)),
        _ => privileges(call),
    }
}

/// The options that change what the process may do.
fn privileges(call: &Call<'_>) -> Result<usize> {
    let value = call.arg(1);
    let mut credentials = task::current().credentials().lock();
    let known = |capability: u64| capability <= u64::from(LAST_CAPABILITY);
    match call.uint(0) {
        linux::PR_SET_NO_NEW_PRIVS => {
            if value != 1 {
                return Err(EINVAL);
            }
            rest_is_zero(call, 2)?;
            credentials.no_new_privileges = true;
            Ok(0)
        }
        linux::PR_GET_NO_NEW_PRIVS => {
            rest_is_zero(call, 1)?;
            answer(credentials.no_new_privileges)
        }
        linux::PR_GET_KEEPCAPS => answer(credentials.capabilities.secure_bits & KEEP_CAPS != 0),
        linux::PR_SET_KEEPCAPS if value > 1 => Err(EINVAL),
        linux::PR_SET_KEEPCAPS => credentials.capabilities.set_keep(value == 1).map(|()| 0),
        linux::PR_GET_SECUREBITS => answer(credentials.capabilities.secure_bits),
        linux::PR_SET_SECUREBITS if !credentials.can_here(CAP_SETPCAP) => Err(EPERM),
        linux::PR_SET_SECUREBITS => credentials.capabilities.set_secure_bits(value).map(|()| 0),
        linux::PR_CAPBSET_DROP if !credentials.can_here(CAP_SETPCAP) => Err(EPERM),
        linux::PR_CAPBSET_READ | linux::PR_CAPBSET_DROP if !known(value) => Err(EINVAL),
        linux::PR_CAPBSET_READ => answer(credentials.capabilities.bounding >> value & 1),
        linux::PR_CAPBSET_DROP => {
            credentials.capabilities.bounding &= !(1 << value);
            Ok(0)
        }
        linux::PR_CAP_AMBIENT => {
            let (which, capability) = (call.arg(1) as u32, call.arg(2));
            if which == linux::PR_CAP_AMBIENT_CLEAR_ALL {
                rest_is_zero(call, 2)?;
                credentials.capabilities.ambient = 0;
                return Ok(0);
            }
            rest_is_zero(call, 3)?;
            if !known(capability) {
                return Err(EINVAL);
            }
            let caps = &mut credentials.capabilities;
            let bit = 1u64 << capability;
            match which {
                linux::PR_CAP_AMBIENT_IS_SET => return answer(caps.ambient >> capability & 1),
                linux::PR_CAP_AMBIENT_LOWER => caps.ambient &= !bit,
                linux::PR_CAP_AMBIENT_RAISE => caps.raise_ambient(capability)?,
                _ => return Err(EINVAL),
            }
            Ok(0)
        }
        _ => Err(EINVAL),
    }
}

/// At most 15 bytes count; a longer name is cut.
fn set_name(pointer: UserPtr<u8>) -> Result<usize> {
    let mut name = [0; 16];
    for (i, byte) in name[..15].iter_mut().enumerate() {
        *byte = pointer.add(i as u64).read()?;
        if *byte == 0 {
            break;
        }
    }
    *task::current().name.lock() = name;
    Ok(0)
}

/// personality(2).
pub fn personality(call: &mut Call<'_>) -> Result<usize> {
    const QUERY: u32 = u32::MAX;
    let mut settings = settings().lock();
    let before = settings.personality;
    if call.uint(0) != QUERY {
        settings.personality = call.uint(0);
    }
    Ok(before as usize)
}
