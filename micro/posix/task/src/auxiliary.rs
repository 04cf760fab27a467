// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Kernel threads that work on the program for somebody else than the program: commands of the overlay.
//!
//! Such a thread gets a task of the process, so that everything below that asks "whose file tree, whose address space"
//! finds the program. The task is not in the process' table: signals pass it by, `/proc` does not list it, and the
//! program's last thread is the last without it.

use crate::pids::Pid;
use crate::process::Process;
use crate::processes;
use crate::signals::{self, SI_USER, SigInfo};
use crate::thread::{self, Task};
use abi::{Result, errno::ESRCH};
use alloc::sync::Arc;

/// No thread of the program has this id.
pub const TID: Pid = Pid::NONE;

/// What a kernel thread is to the program for as long as this lives. It stays on the thread that made it.
pub struct Identity {
    task: Arc<Task>,
}

impl Identity {
    /// Makes the running kernel thread one that works on the program. `ESRCH` while there is no program yet.
    ///
    /// # Safety
    ///
    /// No [`Current`](crate::Current) of this thread is used after the identity is dropped, which is on the same thread.
    pub unsafe fn assume(name: &[u8]) -> Result<Identity> {
        // SAFETY: by the caller's word.
        Ok(unsafe { Identity::of(program()?, name) })
    }

    /// # Safety
    ///
    /// That of [`Identity::assume`].
    unsafe fn of(process: Arc<Process>, name: &[u8]) -> Identity {
        let task = Task::new(process, TID, [0; 16], None);
        task.set_name(name);
        task.signals.block_all();
        // SAFETY: a kernel thread was no task before, and the identity holds this one until the thread has left it.
        unsafe { task.attach(&sched::current_handle()) };
        task.process.enter_space();
        Identity { task }
    }

    pub fn process(&self) -> &Arc<Process> {
        &self.task.process
    }
}

impl Drop for Identity {
    fn drop(&mut self) {
        // Whoever switches to this thread from now on finds no task.
        // SAFETY: by the word of whoever made it.
        unsafe { thread::leave() };
        drop(self.task.detach());
    }
}

/// Does `work` for the process: on a kernel thread, which is one of its tasks meanwhile.
///
/// Nothing that is not `Send` gets out of `work`, so no [`Current`](crate::Current) does.
pub fn work_for<R: Send>(process: Arc<Process>, name: &[u8], work: impl FnOnce() -> R + Send) -> R {
    // SAFETY: whatever `work` has asked for ends with it.
    let identity = unsafe { Identity::of(process, name) };
    let done = work();
    drop(identity);
    done
}

/// The program.
pub fn program() -> Result<Arc<Process>> {
    processes::foreground().ok_or(ESRCH)
}

/// Sends a signal to the process of that number, or to the thread, as kill(2) from outside would.
pub fn signal(id: Pid, signal: i32) -> Result<()> {
    // A sender outside of the process' name space has number 0 (pid_namespaces(7)).
    let info = SigInfo::from_process(signal, SI_USER, 0, 0);
    match processes::find(id) {
        Some(process) => signals::send_to_process(&process, info)?,
        None => signals::send_to_task(&*processes::task(id).ok_or(ESRCH)?, info)?,
    };
    Ok(())
}
