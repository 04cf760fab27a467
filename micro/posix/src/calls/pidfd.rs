// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Processes as descriptors: pidfd_open(2), pidfd_send_signal(2), pidfd_getfd(2), and kcmp(2). There is one process,
//! which outlives all its descriptors.

use crate::call::Call;
use crate::calls::signals::{SI_USER, SIGNALS, SigInfo, send_to_process};
use crate::files::{self, O_CLOEXEC};
use crate::process::Process;
use crate::task;
use abi::{Events, Result, errno::*};
use alloc::format;
use alloc::sync::Arc;
use api_fs::{File, FileType, Stat};
use api_sched::WaitQueue;
use core::any::Any;
use core::cmp::Ordering;

const O_NONBLOCK: u32 = 0o4000;
const O_RDWR: u32 = 2;

/// The file.
pub struct PidFd {
    process: Arc<Process>,
    /// Would be woken at the end of the process.
    queue: WaitQueue,
}

impl File for PidFd {
    fn stat(&self) -> Result<Stat> {
        Ok(Stat::new(FileType::Regular, 0o700))
    }

    fn poll(&self) -> Events {
        Events::NONE
    }

    fn wait_queue(&self) -> Option<&WaitQueue> {
        Some(&self.queue)
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// The process behind a descriptor; `EBADF` when it is none.
pub fn process(fd: i32) -> Result<Arc<Process>> {
    let description = files::get(fd)?;
    if let Some(file) = description.file().as_any().downcast_ref::<PidFd>() {
        return Ok(file.process.clone());
    }
    Err(EBADF)
}

/// As [`process`], for pidfd_send_signal(2), which takes the directory /proc/PID as well.
fn process_or_directory(fd: i32) -> Result<Arc<Process>> {
    let description = files::current().descriptors.get_any(fd)?;
    let process = &task::current().process;
    let path = description.place().and_then(|place| place.path_from(&process.files.root()));
    if path.is_some_and(|path| path == format!("/proc/{}", process.pid).as_bytes()) {
        return Ok(process.clone());
    }
    self::process(fd)
}

/// pidfd_open(2).
pub fn pidfd_open(call: &mut Call<'_>) -> Result<usize> {
    let flags = call.flags(1, O_NONBLOCK)?;
    let pid = call.int(0);
    if pid <= 0 {
        return Err(EINVAL);
    }
    let process = &task::current().process;
    if pid != process.pid {
        // A thread that leads no process is no process.
        return Err(if process.task(pid).is_some() { EINVAL } else { ESRCH });
    }
    let file = PidFd { process: process.clone(), queue: WaitQueue::new() };
    files::current().install(Arc::new(file), flags | O_RDWR | O_CLOEXEC).map(|fd| fd as usize)
}

/// pidfd_send_signal(2).
pub fn pidfd_send_signal(call: &mut Call<'_>) -> Result<usize> {
    if call.uint(3) != 0 {
        return Err(EINVAL);
    }
    let process = process_or_directory(call.int(0))?;
    let signal = call.int(1);
    let info = match call.ptr(2).non_null() {
        Some(pointer) => {
            if pointer.cast::<i32>().read()? != signal {
                return Err(EINVAL);
            }
            SigInfo::read(pointer, signal)?
        }
        None => {
            let sender = &task::current().process;
            SigInfo::from_process(signal, SI_USER, sender.pid, sender.credentials.lock().uid)
        }
    };
    match signal {
        0 => Ok(0),
        1..=SIGNALS => send_to_process(&process, info).map(|_| 0),
        _ => Err(EINVAL),
    }
}

/// pidfd_getfd(2).
pub fn pidfd_getfd(call: &mut Call<'_>) -> Result<usize> {
    if call.uint(2) != 0 {
        return Err(EINVAL);
    }
    let process = process(call.int(0))?;
    let description = process.files.descriptors.get(call.int(1))?;
    files::current().descriptors.insert(description, true).map(|fd| fd as usize)
}

/// kcmp(2).
pub fn kcmp(call: &mut Call<'_>) -> Result<usize> {
    const FILE: i32 = 0;
    const SHARED_BY_THREADS: core::ops::RangeInclusive<i32> = 1..=6;
    for i in [0, 1] {
        if call.int(i) == 0 {
            return Err(ESRCH);
        }
        super::identity::check_own(call.int(i))?;
    }
    match call.int(2) {
        FILE => {
            let [a, b] = [files::get(call.int(3))?, files::get(call.int(4))?];
            // An order that lasts as long as the files.
            Ok(match Arc::as_ptr(&a).cmp(&Arc::as_ptr(&b)) {
                Ordering::Equal => 0,
                Ordering::Less => 1,
                Ordering::Greater => 2,
            })
        }
        kind if SHARED_BY_THREADS.contains(&kind) => Ok(0),
        _ => Err(EINVAL),
    }
}
