// SPDX-License-Identifier: Apache-2.0 OR MIT
//! kcmp(2): whether two threads have something in common.

use abi::{Result, errno::*};
use alloc::sync::Arc;
use core::cmp::Ordering;
use epoll::Epoll;
use task::call::Call;
use task::identity::{As, check_access};
use task::process::Process;
use task::{Task, processes};

/// What tells lists of SEM_UNDO apart; processes that undo nothing have none.
fn undo_list(process: &Process) -> usize {
    #[cfg(feature = "sysv-ipc")]
    if calls_ipc::sysv::semaphores::undoes(process.pid.of_machine()) {
        return process.pid.of_machine() as usize;
    }
    let _ = process;
    0
}

/// kcmp(2).
pub fn kcmp(call: &mut Call<'_>) -> Result<usize> {
    const FILE: i32 = 0;
    const VM: i32 = 1;
    const FILES: i32 = 2;
    const FS: i32 = 3;
    const SIGHAND: i32 = 4;
    const IO: i32 = 5;
    const SYSVSEM: i32 = 6;
    const EPOLL_TARGET: i32 = 7;
    let of = |id: i32| if id == 0 { Err(ESRCH) } else { processes::named_task(id).ok_or(ESRCH) };
    let (one, other) = (of(call.int(0))?, of(call.int(1))?);
    let (a, b) = (&one.process, &other.process);
    for process in [a, b] {
        check_access(process, As::Real)?;
    }
    // An order that lasts as long as what is compared.
    let (first, second) = match call.int(2) {
        FILE => {
            let get = |task: &Task, fd: i32| task.files().descriptors.get(fd).map(|d| d.id());
            (get(&one, call.int(3))?, get(&other, call.int(4))?)
        }
        VM => {
            let address = |process: &Process| process.space().map_or(0, |space| Arc::as_ptr(&space) as usize);
            (address(a), address(b))
        }
        FILES => (one.files().descriptors.address(), other.files().descriptors.address()),
        FS => (one.files().position_address(), other.files().position_address()),
        SIGHAND => (a.signals.actions_address(), b.signals.actions_address()),
        // None has a context of its own.
        IO => (0, 0),
        SYSVSEM => (undo_list(a), undo_list(b)),
        EPOLL_TARGET => {
            // `struct kcmp_epoll_slot`: the instance, the number by which it watches, and which of the files that had this number.
            let [instance, target, index]: [u32; 3] = call.ptr(4).read()?;
            let watched = one.files().descriptors.get(call.int(3))?.id();
            let instance = other.files().descriptors.get(instance as i32)?;
            let instance = instance.file().as_any().downcast_ref::<Epoll>().ok_or(EINVAL)?;
            (watched, instance.target(target as i32, index as usize).ok_or(ENOENT)?)
        }
        _ => return Err(EINVAL),
    };
    Ok(match first.cmp(&second) {
        Ordering::Equal => 0,
        Ordering::Less => 1,
        Ordering::Greater => 2,
    })
}
