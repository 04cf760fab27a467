// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Processes as descriptors: pidfd_open(2), pidfd_send_signal(2), pidfd_getfd(2).

use abi::{Events, Result, errno::*};
use alloc::sync::Arc;
use alloc::vec::Vec;
use api_fs::{File, FileType, Stat};
use api_sched::WaitQueue;
use core::any::Any;
use task::call::Call;
use task::files::{self, O_CLOEXEC};
use task::identity::{As, check_access};
use task::pids::PidNamespace;
use task::process::Process;
use task::processes;
use task::signals::{self, SI_USER, SigInfo};

const O_NONBLOCK: u32 = 0o4000;
const O_RDWR: u32 = 2;

/// The file.
pub struct PidFd {
    process: Arc<Process>,
}

impl PidFd {
    /// The process' numbers in a namespace and in those inside of it; 0 where it is not in there, and -1 once it was waited for.
    pub fn numbers(&self, viewer: &PidNamespace) -> Vec<i32> {
        let process = &self.process;
        if check_alive(process).is_err() {
            return alloc::vec![-1];
        }
        match viewer.number_of(process.pid) {
            0 => alloc::vec![0],
            _ => viewer.numbers_down_to(&process.pids, process.pid),
        }
    }
}

impl File for PidFd {
    fn anonymous_name(&self) -> &'static str {
        "[pidfd]"
    }

    fn stat(&self) -> Result<Stat> {
        Ok(Stat::new(FileType::Anonymous, 0o600))
    }

    /// Readable once the process has ended, waited for or not.
    fn poll(&self) -> Events {
        Events::NONE.with(Events::READABLE, self.process.family.is_zombie())
    }

    fn wait_queue(&self) -> Option<&WaitQueue> {
        Some(&self.process.family.ended)
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

/// The process behind a descriptor that was not waited for; `EBADF` when it is none, `ESRCH`.
pub fn living(fd: i32) -> Result<Arc<Process>> {
    let process = process(fd)?;
    check_alive(&process)?;
    Ok(process)
}

/// The process that waitid(2) is to wait for, and whether the descriptor is one that never waits.
pub fn waited(fd: i32) -> Result<(Arc<Process>, bool)> {
    Ok((process(fd)?, files::get(fd)?.is_nonblocking()))
}

/// A new descriptor of the process, closed on exec.
pub fn install(process: &Arc<Process>, flags: u32) -> Result<i32> {
    let file = PidFd { process: process.clone() };
    files::current().install(Arc::new(file), flags | O_RDWR | O_CLOEXEC)
}

/// `ESRCH` for a process that was waited for.
fn check_alive(process: &Process) -> Result<()> {
    if processes::find(process.pid).is_some_and(|found| core::ptr::eq(&*found, process)) {
        Ok(())
    } else {
        Err(ESRCH)
    }
}

/// As [`process`], for pidfd_send_signal(2), which takes the directory /proc/PID as well. The directory stands for the process for which
/// it was opened, wherever its file system is mounted and whoever has the number now.
fn process_or_directory(fd: i32) -> Result<Arc<Process>> {
    match files::get(fd)?.file().inode() {
        Some(inode) => procfs::object(&**inode)?.downcast().map_err(|_| EBADF),
        None => self::process(fd),
    }
}

/// pidfd_open(2).
pub fn pidfd_open(call: &mut Call<'_>) -> Result<usize> {
    let flags = call.flags(1, O_NONBLOCK)?;
    let pid = call.int(0);
    if pid <= 0 {
        return Err(EINVAL);
    }
    match processes::named(pid) {
        Some(process) => install(&process, flags).map(|fd| fd as usize),
        // A thread that leads no process is no process.
        None => Err(if processes::named_task(pid).is_some() { EINVAL } else { ESRCH }),
    }
}

/// pidfd_send_signal(2).
pub fn pidfd_send_signal(call: &mut Call<'_>) -> Result<usize> {
    if call.uint(3) != 0 {
        return Err(EINVAL);
    }
    let process = process_or_directory(call.int(0))?;
    // What is wrong with the signal comes before that there is nobody to get it.
    let is_alive = check_alive(&process);
    // Signals go into namespaces, not out of them.
    if is_alive.is_ok() && process.pid.here() == 0 {
        return Err(EINVAL);
    }
    let signal = call.int(1);
    let info = match call.ptr(2).non_null() {
        Some(pointer) => {
            if pointer.cast::<i32>().read()? != signal {
                return Err(EINVAL);
            }
            let info = SigInfo::read(pointer, signal)?;
            crate::signals::check_code(&info, process.pid.here())?;
            info
        }
        None => {
            let sender = &task::current().process;
            let uid = task::current().credentials().lock().uid;
            SigInfo::from_process(signal, SI_USER, sender.pid.seen_by(&process), process.shown_user(uid))
        }
    };
    is_alive?;
    signals::send(&process, signal, |_| info)
}

/// pidfd_getfd(2).
pub fn pidfd_getfd(call: &mut Call<'_>) -> Result<usize> {
    if call.uint(2) != 0 {
        return Err(EINVAL);
    }
    let process = living(call.int(0))?;
    check_access(&process, As::Real)?;
    if process.family.is_zombie() {
        return Err(ESRCH);
    }
    let description = process.files.descriptors.get(call.int(1))?;
    files::current().descriptors.insert(description, true).map(|fd| fd as usize)
}
