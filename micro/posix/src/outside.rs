// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Processes that somebody outside of the machine starts, as `docker exec` does: they begin beside the first process, in a
//! session of their own, and their parent has number 0. The first process never hears of them; at their end the kernel is
//! who waits for them, and for children that they leave behind (`calls::end`, `calls::children`).

pub use calls_process::program::candidates;

use abi::{Errno, Result, errno::*};
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use api_plat::{Status, TrapFrame};
use calls_process::program::{self, Asked, Prepared};
use core::sync::atomic::Ordering;
use descriptors::Description;
use devfs::OutsideTerminal;
use loader::{Failure, Loaded};
use sched::Start;
use task::Task;
use task::containers::Container;
use task::control_group::{self, ControlGroup};
use task::files::FIRST_UMASK;
use task::identity::sessions::Sessions;
use task::limits::{Limits, RLIMIT_NOFILE};
use task::pids::{Pid, PidNamespace};
use task::prctl::Settings;
use task::process::{Beginning, Credentials, Process, Program};
use task::processes::{self, Claim};
use task::signals::{self, ProcessSignals, SIGKILL, SigInfo};
use vfs::{Dentry, Namespace};

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
    pub place: Place<'a>,
}

/// Where a process begins.
#[derive(Clone, Copy)]
pub enum Place<'a> {
    /// Beside the machine's first process.
    Machine,
    /// In a container that runs.
    Beside(&'a Arc<Container>),
    /// As the first process of a container.
    First(&'a Arc<Container>),
}

impl<'a> Place<'a> {
    fn container(self) -> Option<&'a Arc<Container>> {
        match self {
            Place::Machine => None,
            Place::Beside(container) | Place::First(container) => Some(container),
        }
    }

    /// Who the process is asked for by, and who its children are. A container is the machine's business, not a visitor's.
    fn claims(self) -> (Claim, Claim) {
        match self {
            Place::First(_) => (Claim::Program, Claim::Program),
            _ => (Claim::Outside, Claim::Visitor),
        }
    }
}

/// Why a program did not start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// None of the paths leads to a file.
    NotFound,
    /// The file is there, what it says runs it (`#!`, PT_INTERP) is not.
    NoInterpreter,
    Other(Errno),
}

impl From<Errno> for Refusal {
    fn from(errno: Errno) -> Refusal {
        Refusal::Other(errno)
    }
}

/// A number that is given back unless the process begins.
struct Number<'a>(Pid, &'a ControlGroup);

impl Drop for Number<'_> {
    fn drop(&mut self) {
        self.1.uncharge();
        processes::release(self.0);
    }
}

/// Starts the first of `paths` that is a program, as execvp(3) looks for one, beside `first`. The caller is a kernel thread.
pub fn start(
    first: &Process,
    wanted: &Wanted<'_>,
    paths: &[Vec<u8>],
) -> core::result::Result<Arc<Process>, Refusal> {
    processes::expect_second_space();
    let Wanted { arguments, environment, working, credentials, streams, terminal, place } = wanted;
    let (claim, childrens) = place.claims();
    processes::may_begin(claim)?;
    let container = place.container();
    let pids = container.map_or(PidNamespace::FIRST, |container| container.pids.clone());
    let pid = processes::allocate_in(claim, &pids, &[])?;
    let group = container.map_or(&control_group::MACHINE, |container| &container.group);
    group.charge_always();
    let number = Number(pid, group);
    let files = match container {
        Some(container) => first.files.beside_in(container.namespace.clone(), working.clone()),
        None => first.files.beside(working.clone()),
    };
    files.set_umask(match container {
        Some(container) => container.umask,
        None => first.restarts.first().map_or(FIRST_UMASK, |first| first.umask),
    });
    let beginning = Beginning {
        credentials: credentials.clone(),
        files,
        signals: ProcessSignals::new(),
        limits: container.map_or_else(Limits::of_machine, |container| container.limits.duplicate()),
        sessions: Sessions { group: pid, session: pid },
        settings: Settings::default(),
        pids,
        parent: Pid::NONE,
        exit_signal: 0,
        claim: childrens,
        container: container.cloned(),
        nsproxy: container
            .map_or_else(|| first.nsproxy.lock().clone(), |container| container.nsproxy.clone()),
        program: None,
        space: None,
    };
    let process = Process::begin(pid, beginning);
    let prepared = prepare(&process, paths, arguments, environment)?;
    let Prepared { space, loaded, file, comm, rights } = prepared;
    let users = program::start_as(&process, rights);
    process.files.descriptors.set_limit(process.limits.soft(RLIMIT_NOFILE));
    for description in streams {
        process.files.descriptors.insert(description.clone(), false)?;
    }
    let Loaded { entry, stack, auxv, .. } = loaded;
    let thread = sched::spawn(true, Start::Program(Box::new(TrapFrame::at_start(entry, stack))))?;
    process.give_space(space);
    process.set_program(Program { file, users, auxv });
    let task = Task::new(process.clone(), pid, [0; 16], None);
    match container {
        Some(container) => task.seccomp.begin(container.profile.as_ref()),
        None => task.seccomp.begin(first.restarts.first().and_then(|first| first.profile.clone()).as_ref()),
    }
    task.set_name(&comm);
    // SAFETY: the process' table holds the task until the thread has left it.
    unsafe { task.attach(&thread) };
    process.add(task);
    // The first thread has the number from here on, and the process has it as well.
    core::mem::forget(number);
    if let Place::First(container) = place {
        container.set_first(&process);
    }
    processes::add(&process);
    if process.is_first() {
        process.pids.begins();
    }
    if process.pids.is_closed() || container.is_some_and(|container| container.is_ending()) {
        task::end::begin(&process, Status::Signal { number: SIGKILL as u8 });
    }
    if let Some(terminal) = terminal {
        terminal.control(pid.of_machine());
    }
    sched::unpark(&thread);
    Ok(process)
}

/// Prepares the first of the paths that can be run; one that is damaged is not passed over.
fn prepare(
    process: &Process,
    paths: &[Vec<u8>],
    arguments: &[Vec<u8>],
    environment: &[Vec<u8>],
) -> core::result::Result<Prepared, Refusal> {
    let found = program::first_of(process, paths, |path, file| {
        let prepared = program::executable(process, &file).map_err(Failure::from).and_then(|pages| {
            let (arguments, environment) = (arguments.to_vec(), environment.to_vec());
            program::prepare(
                process,
                Asked { file, pages, name: path.to_vec(), is_closed: false, arguments, environment },
            )
        });
        match prepared.map_err(Failure::errno) {
            Err(EACCES) => Err(EACCES),
            Err(ENOENT) => Ok(Err(Refusal::NoInterpreter)),
            prepared => Ok(prepared.map_err(Refusal::from)),
        }
    });
    match found {
        Ok(prepared) => prepared,
        Err(ENOENT | ENOTDIR) => Err(Refusal::NotFound),
        Err(e) => Err(e.into()),
    }
}

/// What became of it, once it has ended: its exit code, or as shells say it 128 and the number of the signal.
pub fn code(process: &Process) -> Option<u8> {
    let ended = process.family.zombie.lock();
    ended.map(|ended| if ended.signal == 0 { ended.code } else { 128 + ended.signal })
}

/// Whether it was ended because memory had run out.
pub fn was_out_of_memory(process: &Process) -> bool {
    process.family.was_out_of_memory.load(Ordering::Relaxed)
}

/// Sends a signal to the group that the process began in, from outside.
pub fn signal(process: &Process, signal: i32) {
    for member in processes::of_group(process.pid) {
        // A standard signal is never refused for want of room.
        let _ = signals::send_to_process(&member, SigInfo::from_process(signal, signals::SI_USER, 0, 0));
    }
}

/// A description of the device at that path of a tree.
pub fn device(tree: &Namespace, path: &[u8], flags: u32) -> Result<Arc<Description>> {
    let walk = vfs::Credentials::root();
    let root = tree.root().topmost();
    let dentry = vfs::Walk::new(&root, &root, &walk).lookup(path, true)?;
    let device = devfs::open(dentry.inode().stat()?.rdev, dentry.inode())?;
    Ok(Description::new(device, flags, Some(dentry)))
}

/// A description of the terminal, under its name in /dev/pts.
pub fn terminal(tree: &Namespace, terminal: &OutsideTerminal) -> Result<Arc<Description>> {
    const O_RDWR: u32 = 2;
    let root = tree.root().topmost();
    let name = alloc::format!("/dev/pts/{}", terminal.number());
    let walk = vfs::Credentials::root();
    // An image may have hidden /dev/pts.
    let dentry = vfs::Walk::new(&root, &root, &walk).lookup(name.as_bytes(), true).ok();
    Ok(Description::new(terminal.open_slave()?, O_RDWR, dentry))
}
