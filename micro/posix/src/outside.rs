// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Processes that somebody outside of the machine starts, as `docker exec` does: they begin beside the first process, in a
//! session of their own, and their parent has number 0. The first process never hears of them; at their end the kernel is
//! who waits for them, and for children that they leave behind (`calls::end`, `calls::children`).

use crate::calls::identity::sessions::Sessions;
use crate::calls::limits::Limits;
use crate::calls::prctl::Settings;
use crate::calls::signals::{self, ProcessSignals, SigInfo};
use crate::exec::{self, Prepared};
use crate::process::{Beginning, Credentials, Process, Program};
use crate::processes::{self, Claim};
use crate::task::Task;
use abi::{Errno, Result, errno::*};
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use api_plat::Frame;
use descriptors::Description;
use devfs::OutsideTerminal;
use loader::Loaded;
use sched::Start;
use vfs::Dentry;

/// What is to run, and as whom.
pub struct Wanted<'a> {
    pub arguments: Vec<Vec<u8>>,
    pub environment: Vec<Vec<u8>>,
    pub working: Arc<Dentry>,
    pub credentials: Credentials,
    /// Standard input, output and error.
    pub streams: [Arc<Description>; 3],
    /// The terminal that the streams are; it will control the process' session.
    pub terminal: Option<&'a OutsideTerminal>,
}

/// Why a program did not start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// None of the paths leads to a file.
    NotFound,
    /// The file is there, what it says runs it (`#!`, PT_INTERP) is not.
    NoInterpreter,
    /// The machine runs one process only.
    OneProcess,
    Other(Errno),
}

impl From<Errno> for Refusal {
    fn from(errno: Errno) -> Refusal {
        Refusal::Other(errno)
    }
}

/// A number that is given back unless the process begins.
struct Number(i32);

impl Drop for Number {
    fn drop(&mut self) {
        processes::release(self.0);
    }
}

/// Starts the first of `paths` that is a program, as execvp(3) looks for one, beside `first`. The caller is a kernel thread.
pub fn start(
    first: &Process,
    wanted: &Wanted<'_>,
    paths: &[Vec<u8>],
) -> core::result::Result<Arc<Process>, Refusal> {
    if !mem::may_be_several() {
        return Err(Refusal::OneProcess);
    }
    processes::may_begin(Claim::Outside)?;
    let number = Number(processes::allocate(Claim::Outside)?);
    let pid = number.0;
    let Wanted { arguments, environment, working, credentials, streams, terminal } = wanted;
    let beginning = Beginning {
        credentials: credentials.clone(),
        files: first.files.beside(working.clone()),
        signals: ProcessSignals::new(),
        limits: Limits::of_machine(),
        sessions: Sessions { group: pid, session: pid },
        settings: Settings::default(),
        parent: 0,
        exit_signal: 0,
        claim: Claim::Visitor,
        program: None,
        space: None,
    };
    let process = Process::begin(pid, beginning);
    let prepared = prepare(&process, paths, arguments, environment)?;
    let Prepared { space, loaded, file, comm } = prepared;
    for description in streams {
        process.files.descriptors.insert(description.clone(), false)?;
    }
    let Loaded { entry, stack, argument_bytes, environment_bytes, auxv, .. } = loaded;
    let thread = sched::spawn(true, Start::Program(Box::new(Frame::at_start(entry, stack))))?;
    process.give_space(space);
    process.set_program(Program { file, argument_bytes, environment_bytes, auxv });
    let task = Task::new(process.clone(), pid, [0; 16]);
    task.set_name(&comm);
    task.attach(&thread);
    process.add(task);
    // The first thread has the number from here on, and the process has it as well.
    core::mem::forget(number);
    processes::add(&process);
    if let Some(terminal) = terminal {
        terminal.control(pid);
    }
    sched::unpark(&thread);
    Ok(process)
}

/// A directory that may not be searched and a file that may not be executed are passed over, as execvp(3) does; one that is
/// damaged is not.
fn prepare(
    process: &Process,
    paths: &[Vec<u8>],
    arguments: &[Vec<u8>],
    environment: &[Vec<u8>],
) -> core::result::Result<Prepared, Refusal> {
    let mut worst = Refusal::NotFound;
    for path in paths {
        let file = match exec::find(process, path) {
            Ok(file) => file,
            Err(ENOENT | ENOTDIR) => continue,
            Err(EACCES) => {
                worst = Refusal::Other(EACCES);
                continue;
            }
            Err(e) => return Err(e.into()),
        };
        match exec::prepare(process, file, path.clone(), arguments.to_vec(), environment.to_vec()) {
            Ok(prepared) => return Ok(prepared),
            Err(EACCES) => worst = Refusal::Other(EACCES),
            Err(ENOENT) => return Err(Refusal::NoInterpreter),
            Err(e) => return Err(e.into()),
        }
    }
    Err(worst)
}

/// What became of it, once it has ended: its exit code, or as shells say it 128 and the number of the signal.
pub fn code(process: &Process) -> Option<u8> {
    let ended = process.family.zombie.lock();
    ended.map(|ended| if ended.signal == 0 { ended.code } else { 128 + ended.signal })
}

/// Sends a signal to the group that the process began in, from outside.
pub fn signal(process: &Process, signal: i32) {
    for member in processes::of_group(process.pid) {
        // A standard signal is never refused for want of room.
        let _ = signals::send_to_process(&member, SigInfo::from_process(signal, signals::SI_USER, 0, 0));
    }
}

/// A description of the device at that path.
pub fn device(process: &Process, path: &[u8], flags: u32) -> Result<Arc<Description>> {
    let walk = vfs::Credentials::root();
    let root = process.files.namespace.root().topmost();
    let dentry = vfs::Walk::new(&root, &root, &walk).lookup(path, true)?;
    let device = devfs::open(dentry.inode().stat()?.rdev, dentry.inode())?;
    Ok(Description::new(device, flags, Some(dentry)))
}

/// A description of the terminal, under its name in /dev/pts.
pub fn terminal(process: &Process, terminal: &OutsideTerminal) -> Result<Arc<Description>> {
    const O_RDWR: u32 = 2;
    let root = process.files.namespace.root().topmost();
    let name = alloc::format!("/dev/pts/{}", terminal.number());
    let walk = vfs::Credentials::root();
    // An image may have hidden /dev/pts.
    let dentry = vfs::Walk::new(&root, &root, &walk).lookup(name.as_bytes(), true).ok();
    Ok(Description::new(terminal.open_slave()?, O_RDWR, dentry))
}
