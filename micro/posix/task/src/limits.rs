// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Limits on what a process uses (getrlimit(2)).

use crate::process::Process;
use abi::{Result, errno::*};
use alloc::sync::Arc;
use api_boot::Rlimit;
use api_lock::SpinLock;
use core::sync::atomic::{AtomicU64, Ordering};
use descriptors::NR_OPEN;

pub const RLIMIT_CPU: usize = 0;
pub const RLIMIT_FSIZE: usize = 1;
pub const RLIMIT_DATA: usize = 2;
pub const RLIMIT_STACK: usize = 3;
pub const RLIMIT_CORE: usize = 4;
pub const RLIMIT_NPROC: usize = 6;
pub const RLIMIT_NOFILE: usize = 7;
pub const RLIMIT_MEMLOCK: usize = 8;
pub const RLIMIT_AS: usize = 9;
pub const RLIMIT_SIGPENDING: usize = 11;
pub const RLIMIT_MSGQUEUE: usize = 12;
pub const RLIMIT_NICE: usize = 13;
pub const RLIMIT_RTPRIO: usize = 14;
pub const RLIMIT_RTTIME: usize = 15;
const LIMITS: usize = 16;

/// Those the address space keeps.
const MEMORY_LIMITS: [usize; 4] = [RLIMIT_STACK, RLIMIT_AS, RLIMIT_DATA, RLIMIT_MEMLOCK];

pub const RLIM_INFINITY: u64 = u64::MAX;

/// Descriptors of a process that did not ask for more, as systemd's and a login's: programs that close all they may have, or
/// make a table for them, were written for it.
pub const USUAL_DESCRIPTORS: u32 = 1024;

/// What it may have without asking for the right to more.
const USUAL_DESCRIPTORS_HARD: u64 = 1 << 19;

/// `struct rlimit`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit {
    pub soft: u64,
    pub hard: u64,
}

/// The limits of a process.
pub struct Limits {
    all: SpinLock<[Limit; LIMITS]>,
    /// The soft RLIMIT_FSIZE once more: every write asks for it.
    file_size: AtomicU64,
}

/// What the first process began with.
static AT_START: SpinLock<Option<[Limit; LIMITS]>> = SpinLock::new(None);

impl From<[Limit; LIMITS]> for Limits {
    fn from(all: [Limit; LIMITS]) -> Limits {
        let file_size = AtomicU64::new(all[RLIMIT_FSIZE].soft);
        Limits { all: SpinLock::new(all), file_size }
    }
}

impl Default for Limits {
    /// What Linux gives its first process, with the descriptors that systemd gives.
    fn default() -> Limits {
        let same = |n| Limit { soft: n, hard: n };
        let mut limits = [same(RLIM_INFINITY); LIMITS];
        limits[RLIMIT_STACK].soft = 8 << 20;
        limits[RLIMIT_CORE].soft = 0;
        limits[RLIMIT_NPROC] = same(30_000);
        limits[RLIMIT_NOFILE] = Limit { soft: USUAL_DESCRIPTORS.into(), hard: USUAL_DESCRIPTORS_HARD };
        limits[RLIMIT_MEMLOCK] = same(8 << 20);
        limits[RLIMIT_SIGPENDING] = same(30_000);
        limits[RLIMIT_MSGQUEUE] = same(819_200);
        limits[RLIMIT_NICE] = same(0);
        limits[RLIMIT_RTPRIO] = same(0);
        Limits::from(limits)
    }
}

impl Limits {
    /// The same limits for a new process.
    pub fn duplicate(&self) -> Limits {
        Limits::from(*self.all.lock())
    }

    /// The limit that counts; [`RLIM_INFINITY`] for none.
    pub fn soft(&self, resource: usize) -> u64 {
        self.all.lock()[resource].soft
    }

    /// The soft RLIMIT_FSIZE.
    #[inline]
    pub fn file_size(&self) -> u64 {
        self.file_size.load(Ordering::Relaxed)
    }

    /// Those the address space keeps.
    pub fn of_memory(&self) -> mem::Limits {
        mem::Limits {
            stack: self.soft(RLIMIT_STACK),
            address_space: self.soft(RLIMIT_AS),
            data: self.soft(RLIMIT_DATA),
            locked: self.soft(RLIMIT_MEMLOCK),
        }
    }

    /// The limit that the boot command line asks for: the hard one moves up to the soft one unless it is said, and neither is
    /// more than the kernel has.
    fn wanted(&self, Rlimit { resource, soft, hard }: Rlimit) -> Limit {
        let resource = usize::from(resource);
        let most = if resource == RLIMIT_NOFILE { NR_OPEN[0].get() } else { RLIM_INFINITY };
        let soft = soft.min(hard.unwrap_or(most)).min(most);
        Limit { soft, hard: hard.unwrap_or(self.both(resource).hard).clamp(soft, most) }
    }

    /// Those of a container's programs: the kernel's own with what is `wanted`. `EINVAL`: there is no such limit.
    pub fn of_container(wanted: &[Rlimit]) -> Result<Limits> {
        let limits = Limits::default();
        for limit in wanted {
            let new = Some(limit.resource.into()).filter(|resource| *resource < LIMITS).ok_or(EINVAL)?;
            limits.change(new, Some(limits.wanted(*limit)), true)?;
        }
        Ok(limits)
    }

    /// Those that programs of this machine begin with which no program of it started.
    pub fn of_machine() -> Limits {
        AT_START.lock().map_or_else(Limits::default, Limits::from)
    }

    /// Moves a soft limit on, whoever set it.
    pub fn move_soft(&self, resource: usize, soft: u64) {
        self.all.lock()[resource].soft = soft;
    }

    /// Soft and hard limit of a resource below [`LIMITS`].
    pub fn both(&self, resource: usize) -> Limit {
        self.all.lock()[resource]
    }

    /// Most queued signals.
    pub fn signals_queued(&self) -> usize {
        usize::try_from(self.soft(RLIMIT_SIGPENDING)).unwrap_or(usize::MAX)
    }

    /// Sets (when `new` is given) and returns the limit from before.
    pub fn change(&self, resource: usize, new: Option<Limit>, privileged: bool) -> Result<Limit> {
        let mut limits = self.all.lock();
        let limit = limits.get_mut(resource).ok_or(EINVAL)?;
        let before = *limit;
        if let Some(new) = new {
            if new.soft > new.hard {
                return Err(EINVAL);
            }
            if resource == RLIMIT_NOFILE && new.hard > NR_OPEN[0].get() {
                return Err(EPERM);
            }
            if new.hard > before.hard && !privileged {
                return Err(EPERM);
            }
            *limit = new;
            if resource == RLIMIT_FSIZE {
                self.file_size.store(new.soft, Ordering::Relaxed);
            }
        }
        Ok(before)
    }
}

/// Gives the first process the limits of the boot command line.
///
/// # Errors
/// `EINVAL`: there is no such limit.
pub fn begin(first: &Arc<Process>, wanted: &[Rlimit]) -> Result<()> {
    for limit in wanted {
        if usize::from(limit.resource) >= LIMITS {
            return Err(EINVAL);
        }
        let new = first.limits.wanted(*limit);
        change_as(true, first, limit.resource.into(), Some(new))?;
    }
    *AT_START.lock() = Some(*first.limits.all.lock());
    Ok(())
}

pub fn change_as(
    privileged: bool,
    process: &Arc<Process>,
    resource: u32,
    new: Option<Limit>,
) -> Result<Limit> {
    let before = process.limits.change(resource as usize, new, privileged)?;
    if let (RLIMIT_NOFILE, Some(new)) = (resource as usize, new) {
        process.each_files(|files| {
            files.descriptors.set_limit(new.soft);
            Ok(())
        })?;
    }
    if new.is_some() && [RLIMIT_CPU, RLIMIT_RTTIME].contains(&(resource as usize)) {
        crate::time::cpu_limit::limit_changes(process);
    }
    if new.is_some()
        && MEMORY_LIMITS.contains(&(resource as usize))
        && let Some(space) = process.space()
    {
        space.set_limits(process.limits.of_memory());
    }
    Ok(before)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAX_DESCRIPTORS: u64 = 1 << 20;

    #[test]
    fn limits_are_lowered_by_anybody_and_raised_with_the_right_only() {
        let limits = Limits::default();
        let set = |soft, hard, privileged| {
            limits.change(RLIMIT_NOFILE, Some(Limit { soft, hard }), privileged).map(|before| before.soft)
        };
        assert_eq!(set(100, 200, false), Ok(USUAL_DESCRIPTORS.into()));
        assert_eq!(set(100, 201, false), Err(EPERM));
        assert_eq!(set(100, 201, true), Ok(100));
        assert_eq!(set(300, 201, true), Err(EINVAL));
        assert_eq!(set(1, MAX_DESCRIPTORS + 1, true), Err(EPERM));
        assert_eq!(limits.soft(RLIMIT_NOFILE), 100);
        assert_eq!(limits.change(LIMITS, None, true), Err(EINVAL));
    }

    #[test]
    fn limits_of_the_command_line_never_exceed_the_kernels() {
        let limits = Limits::default();
        let wanted = |resource: usize, soft, hard| {
            let Limit { soft, hard } = limits.wanted(Rlimit { resource: resource as u8, soft, hard });
            (soft, hard)
        };
        assert_eq!(wanted(RLIMIT_NOFILE, 4096, None), (4096, USUAL_DESCRIPTORS_HARD));
        assert_eq!(wanted(RLIMIT_NOFILE, 4096, Some(100)), (100, 100));
        assert_eq!(wanted(RLIMIT_NOFILE, u64::MAX, None), (MAX_DESCRIPTORS, MAX_DESCRIPTORS));
        assert_eq!(wanted(RLIMIT_CORE, 0, Some(RLIM_INFINITY)), (0, RLIM_INFINITY));
        assert_eq!(wanted(RLIMIT_NPROC, 40_000, None), (40_000, 40_000));
        assert_eq!(wanted(RLIMIT_MEMLOCK, RLIM_INFINITY, None), (RLIM_INFINITY, RLIM_INFINITY));
    }

    #[test]
    fn numbers_are_those_of_linux() {
        use abi::linux::general as linux;
        assert_eq!(RLIMIT_NOFILE as u32, linux::RLIMIT_NOFILE);
        assert_eq!(RLIMIT_RTPRIO as u32, linux::RLIMIT_RTPRIO);
        assert_eq!(LIMITS as u32, linux::RLIM_NLIMITS);
        assert_eq!(LIMITS, usize::from(Rlimit::RESOURCES));
    }
}
