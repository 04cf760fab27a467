// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Makes the process: its files, its identity, its first thread; then the program takes over.

use crate::calls::system;
use crate::files::Files;
use crate::process::{Credentials, FIRST_PID, Process};
use crate::task::Task;
use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use api_plat::Boot;

/// Runs the program the host asked for on the calling kernel thread. Comes back only with the reason why it could
/// not start, one line for the user.
pub fn run(boot: Boot) -> Result<core::convert::Infallible, String> {
    let config = &boot.config;
    for word in &config.unknown {
        log::warn!("boot setting {word} is not known: ignored");
    }
    if config.trace {
        crate::dispatch::set_trace(true);
    } else {
        crate::fast::register();
    }
    system::set_memory(boot.memory);
    if let Some(name) = &config.hostname {
        system::set_host_name(name.as_bytes());
    }
    if config.args.is_empty() {
        return Err("the boot command line names no program: put it after --".into());
    }
    let namespace = crate::mounts::tree(&boot)?;
    let files = Files::new(Arc::new(namespace), boot.memory);
    crate::mounts::prepare(&files, config.cwd.as_deref())?;
    let process = Process::new(FIRST_PID, Credentials::of(config.uid, config.gid), files);
    crate::mounts::set_foreground(&process);
    let task = Task::new(process.clone(), process.allocate_tid(), [0; 16]);
    process.add(task.clone());
    task.attach(&sched::current_handle());
    Err(format!("{}: no loader", config.args[0]))
}
