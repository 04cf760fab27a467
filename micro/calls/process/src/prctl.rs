// SPDX-License-Identifier: Apache-2.0 OR MIT
//! prctl(2) and personality(2).

use abi::linux::prctl as linux;
use abi::{Result, errno::*};
use api_user::UserPtr;
use task::call::Call;
use task::identity::capabilities::{CAP_SETPCAP, CAP_SYS_RESOURCE, KEEP_CAPS, LAST_CAPABILITY};
use task::signals::SIGNALS;

/// `EINVAL` unless the arguments from `first` on are zero.
fn rest_is_zero(call: &Call<'_>, first: usize) -> Result<()> {
    if (first..5).all(|i| call.arg(i) == 0) { Ok(()) } else { Err(EINVAL) }
}

fn answer(value: impl Into<u64>) -> Result<usize> {
    Ok(value.into() as usize)
}

/// prctl(2). What it does not know it answers with EINVAL, as an older Linux would.
pub fn prctl(call: &mut Call<'_>) -> Result<usize> {
    let caller = task::current();
    let settings = &caller.process.settings;
    let value = call.arg(1);
    match call.uint(0) {
        linux::PR_SET_NAME => set_name(call.ptr(1)),
        linux::PR_GET_NAME => {
            let name = *task::current().name.lock();
            call.ptr(1).write(name).map(|()| 0)
        }
        linux::PR_SET_MM => crate::mm_map::set(call),
        linux::PR_SET_PDEATHSIG if value > SIGNALS as u64 => Err(EINVAL),
        linux::PR_SET_PDEATHSIG => {
            task::current().settings.set_parent_death_signal(value as i32);
            Ok(0)
        }
        linux::PR_GET_PDEATHSIG => {
            let signal = task::current().settings.parent_death_signal();
            call.ptr(1).write(signal).map(|()| 0)
        }
        linux::PR_GET_DUMPABLE => answer(settings.lock().dumpable),
        linux::PR_SET_DUMPABLE if value > 1 => Err(EINVAL),
        linux::PR_SET_DUMPABLE => {
            settings.lock().dumpable = value as u32;
            Ok(0)
        }
        linux::PR_SET_CHILD_SUBREAPER => {
            settings.lock().child_subreaper = value != 0;
            Ok(0)
        }
        linux::PR_GET_CHILD_SUBREAPER => {
            let on = u32::from(settings.lock().child_subreaper);
            call.ptr(1).write(on).map(|()| 0)
        }
        linux::PR_SET_THP_DISABLE => {
            rest_is_zero(call, 2)?;
            settings.lock().huge_pages_off = value != 0;
            Ok(0)
        }
        linux::PR_GET_THP_DISABLE => {
            rest_is_zero(call, 1)?;
            answer(settings.lock().huge_pages_off)
        }
        linux::PR_SET_IO_FLUSHER | linux::PR_GET_IO_FLUSHER
            if !caller.credentials().lock().can(CAP_SYS_RESOURCE) =>
        {
            Err(EPERM)
        }
        linux::PR_SET_IO_FLUSHER if value > 1 => Err(EINVAL),
        linux::PR_SET_IO_FLUSHER => {
            rest_is_zero(call, 2)?;
            settings.lock().io_flusher = value == 1;
            Ok(0)
        }
        linux::PR_GET_IO_FLUSHER => {
            rest_is_zero(call, 1)?;
            answer(settings.lock().io_flusher)
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
            settings.lock().memory_error_policy = policy;
            Ok(0)
        }
        linux::PR_MCE_KILL_GET => {
            rest_is_zero(call, 1)?;
            answer(settings.lock().memory_error_policy)
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
        linux::PR_SET_SECCOMP => crate::seccomp::set_mode(value, call.arg(2)),
        _ => privileges(call),
    }
}

/// The options that change what the process may do.
fn privileges(call: &Call<'_>) -> Result<usize> {
    let value = call.arg(1);
    let caller = task::current();
    let mut credentials = caller.credentials().lock();
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
        linux::PR_GET_SPECULATION_CTRL => {
            rest_is_zero(call, 2)?;
            speculation(value).map(|_| linux::PR_SPEC_NOT_AFFECTED as usize)
        }
        linux::PR_SET_SPECULATION_CTRL => {
            rest_is_zero(call, 3)?;
            match (speculation(value)?, call.arg(2) as u32) {
                (Speculation::StoreBypass, _) => Err(ENXIO),
                (Speculation::IndirectBranch, linux::PR_SPEC_ENABLE) => Ok(0),
                (Speculation::IndirectBranch, linux::PR_SPEC_DISABLE | linux::PR_SPEC_FORCE_DISABLE) => {
                    Err(EPERM)
                }
                (Speculation::IndirectBranch, _) => Err(ERANGE),
                (Speculation::CacheFlush, _) => Err(EPERM),
            }
        }
        _ => Err(EINVAL),
    }
}

/// What a processor may do ahead of time. Nothing here is changed for a program: it is as on a processor that is not affected.
enum Speculation {
    StoreBypass,
    IndirectBranch,
    CacheFlush,
}

fn speculation(which: u64) -> Result<Speculation> {
    match which as u32 {
        linux::PR_SPEC_STORE_BYPASS => Ok(Speculation::StoreBypass),
        linux::PR_SPEC_INDIRECT_BRANCH => Ok(Speculation::IndirectBranch),
        linux::PR_SPEC_L1D_FLUSH => Ok(Speculation::CacheFlush),
        _ => Err(ENODEV),
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
    let caller = task::current();
    let before = caller.settings.personality();
    if call.uint(0) != QUERY {
        caller.settings.set_personality(call.uint(0));
    }
    Ok(before as usize)
}
