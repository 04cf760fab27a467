// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The end of threads and of the program.

use crate::call::Call;
use crate::task;
use abi::Result;
use api_plat::Status;

/// exit(2): the calling thread; the program with the last one.
pub fn exit(call: &mut Call<'_>) -> Result<usize> {
    end_thread(call.int(0) as u8)
}

/// Ends the calling thread, and the program when it is the last one.
pub fn end_thread(code: u8) -> ! {
    let task = task::current();
    super::futex::thread_ends(task);
    super::signals::thread_ends(task);
    if task.process.thread_count() == 1 {
        task.process.end(Status::Exit { code });
    }
    let (process, tid) = (task.process.clone(), task.tid);
    // The table held the task: from here on this is a kernel thread about to end.
    sched::current().set_local(core::ptr::null_mut());
    process.remove(tid);
    // Who waits to be alone.
    if let Some(only) = process.only().and_then(|tid| process.task(tid)) {
        only.interrupt();
    }
    drop(process);
    sched::exit_current()
}

/// exit_group(2).
pub fn exit_group(call: &mut Call<'_>) -> Result<usize> {
    let code = call.int(0) as u8;
    task::current().process.end(Status::Exit { code })
}

/// Called once, before the machine goes: whatever a file system still holds back is stored.
pub fn store_everything() {
    if let Err(e) = mem::current().sync_all() {
        log::error!("a page written through a shared mapping could not be stored: {e:?}");
    }
}
