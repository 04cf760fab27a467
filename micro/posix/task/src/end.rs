// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The end of a process begins.

use crate::pids::Pid;
use crate::process::Process;
use crate::{signals, thread};
use api_plat::Status;

/// Every thread of the process is to end; the running one, when it is one of them, has to do so itself.
pub fn begin(process: &Process, status: Status) {
    if process.begin_end(status) {
        let own = thread::running().map_or(Pid::NONE, |task| task.tid);
        process.tasks().filter(|other| other.tid != own).for_each(|other| signals::end_thread(&other));
    }
}
