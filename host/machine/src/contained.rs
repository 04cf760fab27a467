// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A process with nothing around it: what a process machine is started as.
//!
//! The kernel of a process machine filters its own host calls (seccomp). This is the wall behind that: it starts with
//! new user, mount, network, process, IPC and host-name namespaces, in an empty read-only root directory, as an
//! unprivileged user without capabilities, unable to gain privileges, with the descriptors it is given and no others.
//! Where the host does not allow namespaces (containers, hardened kernels) it does without, and says so.
//!
//! It dies with the thread that started it (`PR_SET_PDEATHSIG`), and is watched through a pidfd.
//!
//! The unsafe code here makes one child with clone(2). Until it executes the program the child runs on a copy of this
//! process' memory in which other threads' locks may be held for ever: it makes system calls only, allocates nothing
//! and leaves by `execveat` or `_exit`.

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd},
    io::Errno,
    mount::{MountFlags, MountPropagationFlags, UnmountFlags},
    pipe::{PipeFlags, pipe_with},
    process::{Resource, Rlimit, Signal, WaitId, WaitIdOptions},
    thread::{CpuSet, Gid, Uid},
};
use serde::{Deserialize, Serialize};
use std::{
    ffi::{CStr, CString},
    fs,
    io::{self, Read, Write},
    os::raw::{c_int, c_long},
};

/// The user and group the process has in its own namespace, and on the host where root started it: `nobody`.
const NOBODY: u32 = 65534;
/// Descriptors the process may have: those it begins with, a few that its kernel makes at its start, and files of its volumes.
const MAX_DESCRIPTORS: u64 = 256 + crate::descriptors::MAX_GIVEN as u64;
/// Private memory it may write, in bytes: its variables and the stacks its processors start on. All other memory is a file's.
const MAX_PRIVATE: u64 = 16 << 20;
/// The stack it starts on, in bytes; most of it is the arguments'.
const MAX_STACK: u64 = 1 << 20;
/// Where the descriptors to be handed over wait, above all numbers they will have.
const ABOVE: RawFd = 128;
/// Asks for one isolation, so that a host that allows no namespaces can be tried on one that does, and one that allows them is
/// not left for less without a word.
const VARIABLE: &str = "UNILITH_ISOLATION";
/// A directory that exists on every Linux system, to mount the empty root on.
const ANY_DIRECTORY: &CStr = c"/proc";
const NAMESPACES: c_int = libc::CLONE_NEWNS
    | libc::CLONE_NEWNET
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWUTS
    | libc::CLONE_NEWCGROUP;

/// What to start.
pub struct Program<'a> {
    /// The executable, static: there is nothing it could load.
    pub file: BorrowedFd<'a>,
    /// The first one is its name.
    pub arguments: &'a [CString],
    /// What it has open: the first as descriptor 0, and so on.
    pub descriptors: &'a [BorrowedFd<'a>],
    /// Bytes of address space it may have: what bounds the host's page tables for it.
    pub address_space: u64,
    /// The processors it may run on; `None`: those of this process.
    pub processors: Option<&'a CpuSet>,
    /// How far it is set apart, neither more nor less; `None`: as far as this host allows.
    pub isolation: Option<Isolation>,
}

/// How far a process is set apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Isolation {
    /// Namespaces of its own, the user namespace among them.
    Full,
    /// As root: all but the user namespace.
    WithoutUsers,
    /// Its own seccomp filter only.
    FilterOnly,
}

impl Isolation {
    const ALL: [Isolation; 3] = [Isolation::Full, Isolation::WithoutUsers, Isolation::FilterOnly];

    fn name(self) -> &'static str {
        match self {
            Isolation::Full => "full",
            Isolation::WithoutUsers => "without-users",
            Isolation::FilterOnly => "filter-only",
        }
    }

    /// The one that `UNILITH_ISOLATION` asks for; `None` where it is not set.
    pub fn asked_for() -> Result<Option<Isolation>, String> {
        match std::env::var(VARIABLE) {
            Err(_) => Ok(None),
            Ok(name) if name.is_empty() => Ok(None),
            Ok(name) => name.parse().map(Some),
        }
    }

    fn flags(self) -> c_int {
        match self {
            Isolation::Full => NAMESPACES | libc::CLONE_NEWUSER,
            Isolation::WithoutUsers => NAMESPACES,
            Isolation::FilterOnly => 0,
        }
    }
}

impl std::str::FromStr for Isolation {
    type Err = String;

    fn from_str(name: &str) -> Result<Isolation, String> {
        let found = Isolation::ALL.into_iter().find(|isolation| isolation.name() == name);
        found.ok_or_else(|| {
            format!(
                "{VARIABLE}={name} is no isolation: write {}",
                Isolation::ALL.map(Isolation::name).join(", ")
            )
        })
    }
}

/// A process that was started.
#[derive(Debug)]
pub struct Contained {
    pub pid: u32,
    pub pidfd: OwnedFd,
    pub isolation: Isolation,
}

/// Why it was not: what failed, and how.
#[derive(Debug, PartialEq, Eq)]
pub struct Failure {
    pub step: Step,
    pub errno: Errno,
}

/// What the child does before it is the program; its number travels through a pipe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Step {
    Clone,
    Identity,
    Root,
    Limits,
    Descriptors,
    Execute,
}

impl Step {
    fn from_number(number: u8) -> Step {
        let all = [Step::Clone, Step::Identity, Step::Root, Step::Limits, Step::Descriptors];
        all.get(usize::from(number)).copied().unwrap_or(Step::Execute)
    }
}

/// Starts the program as far apart from the rest as this host allows.
pub fn start(program: &Program) -> Result<Contained, Failure> {
    let ways: &[Isolation] = match &program.isolation {
        Some(isolation) => std::slice::from_ref(isolation),
        None if rustix::process::geteuid().is_root() => &Isolation::ALL,
        None => &[Isolation::Full, Isolation::FilterOnly],
    };
    if program.descriptors.len() > ABOVE as usize {
        return Err(Failure { step: Step::Descriptors, errno: Errno::MFILE });
    }
    let mut last = Failure { step: Step::Clone, errno: Errno::PERM };
    for way in ways {
        match attempt(program, *way) {
            Ok(contained) => return Ok(contained),
            // Not for want of namespaces: with fewer of them it would fail as well.
            Err(failure) if matches!(failure.step, Step::Descriptors | Step::Execute) => return Err(failure),
            Err(failure) => last = failure,
        }
    }
    Err(last)
}

fn at(step: Step) -> impl FnOnce(Errno) -> Failure {
    move |errno| Failure { step, errno }
}

fn attempt(program: &Program, isolation: Isolation) -> Result<Contained, Failure> {
    let high = |fd: BorrowedFd| rustix::io::fcntl_dupfd_cloexec(fd, ABOVE).map_err(at(Step::Descriptors));
    let pipe = || pipe_with(PipeFlags::CLOEXEC).map_err(at(Step::Clone));
    let (go, say_go) = pipe()?;
    let (report, say_report) = pipe()?;
    let child = Child {
        isolation,
        is_root: rustix::process::geteuid().is_root(),
        file: high(program.file)?,
        descriptors: program.descriptors.iter().map(|fd| high(*fd)).collect::<Result<_, _>>()?,
        arguments: program.arguments.iter().map(|a| a.as_ptr()).chain([std::ptr::null()]).collect(),
        limits: [
            (Resource::Core, 0),
            (Resource::Nofile, MAX_DESCRIPTORS),
            (Resource::Data, MAX_PRIVATE),
            (Resource::Stack, MAX_STACK),
            (Resource::As, program.address_space),
        ],
        processors: program.processors,
        go: high(go.as_fd())?,
        report: high(say_report.as_fd())?,
    };
    let mut pidfd: c_int = -1;
    let flags = isolation.flags() | libc::CLONE_PIDFD | libc::SIGCHLD;
    let signals = Blocked::all();
    // SAFETY: without CLONE_VM the child gets a copy of this process' memory and goes on right here, on its copy of this
    // stack, so a null stack is what clone(2) asks for. CLONE_PIDFD writes one int to `pidfd`, which outlives the call.
    let pid = unsafe {
        libc::syscall(
            libc::SYS_clone,
            c_long::from(flags),
            0 as c_long,
            std::ptr::from_mut(&mut pidfd),
            0 as c_long,
            0 as c_long,
        )
    };
    if pid == 0 {
        child.become_program();
    }
    let error = io::Error::last_os_error();
    drop(signals);
    if pid < 0 {
        return Err(Failure {
            step: Step::Clone,
            errno: Errno::from_io_error(&error).unwrap_or(Errno::AGAIN),
        });
    }
    // SAFETY: the kernel has just made this descriptor for us, and nobody else knows its number.
    let pidfd = unsafe { OwnedFd::from_raw_fd(pidfd) };
    // Only the child's own copies keep the pipes open at its side.
    drop((child, go, say_report));
    let pid = pid as u32;
    let started = release(pid, isolation, say_go).and_then(|_go| outcome(report));
    match started {
        Ok(()) => Ok(Contained { pid, pidfd, isolation }),
        Err(failure) => {
            // It has ended, or waits for ever; either way it must not stay.
            let _ = rustix::process::pidfd_send_signal(&pidfd, Signal::KILL);
            let _ = rustix::process::waitid(WaitId::PidFd(pidfd.as_fd()), WaitIdOptions::EXITED);
            Err(failure)
        }
    }
}

/// Gives the child its identity and lets it go on. The pipe must stay open until the child is the program.
fn release(pid: u32, isolation: Isolation, go: OwnedFd) -> Result<OwnedFd, Failure> {
    if isolation == Isolation::Full {
        let (user, group) = (rustix::process::geteuid(), rustix::process::getegid());
        let map = |file: &str, text: &str| {
            let written = fs::write(format!("/proc/{pid}/{file}"), text);
            written.map_err(|e| Failure {
                step: Step::Identity,
                errno: Errno::from_io_error(&e).unwrap_or(Errno::PERM),
            })
        };
        if user.is_root() {
            map("uid_map", &format!("{NOBODY} {NOBODY} 1\n"))?;
            map("gid_map", &format!("{NOBODY} {NOBODY} 1\n"))?;
        } else {
            // user_namespaces(7): an ordinary user may map only itself, and the group only without setgroups(2).
            map("setgroups", "deny")?;
            map("uid_map", &format!("{NOBODY} {} 1\n", user.as_raw()))?;
            map("gid_map", &format!("{NOBODY} {} 1\n", group.as_raw()))?;
        }
    }
    let mut go = fs::File::from(go);
    go.write_all(&[1]).map_err(|_| Failure { step: Step::Clone, errno: Errno::PIPE })?;
    Ok(go.into())
}

/// Waits until the child is the program (the pipe closes on execution) or says why not.
fn outcome(report: OwnedFd) -> Result<(), Failure> {
    let mut text = Vec::new();
    // A pipe that cannot be read says nothing, as one that was closed.
    let _ = fs::File::from(report).read_to_end(&mut text);
    let [step, errno @ ..] = text.as_slice() else { return Ok(()) };
    let errno = errno.try_into().map_or(0, i32::from_ne_bytes);
    Err(Failure { step: Step::from_number(*step), errno: Errno::from_raw_os_error(errno) })
}

/// All signals blocked, until this is dropped: a handler of this process must not run in the child.
struct Blocked(libc::sigset_t);

impl Blocked {
    fn all() -> Blocked {
        // SAFETY: both sets are valid for the calls, which change nothing but them and this thread's mask.
        unsafe {
            let (mut all, mut before) = (std::mem::zeroed(), std::mem::zeroed());
            libc::sigfillset(&mut all);
            libc::pthread_sigmask(libc::SIG_SETMASK, &all, &mut before);
            Blocked(before)
        }
    }
}

impl Drop for Blocked {
    fn drop(&mut self) {
        // SAFETY: the set was filled in by `pthread_sigmask`.
        unsafe {
            libc::pthread_sigmask(libc::SIG_SETMASK, &self.0, std::ptr::null_mut());
        }
    }
}

/// All that the child needs, made before it exists.
struct Child<'a> {
    isolation: Isolation,
    is_root: bool,
    file: OwnedFd,
    descriptors: Vec<OwnedFd>,
    /// Ended by a null pointer.
    arguments: Vec<*const std::ffi::c_char>,
    limits: [(Resource, u64); 5],
    processors: Option<&'a CpuSet>,
    go: OwnedFd,
    report: OwnedFd,
}

impl Child<'_> {
    fn become_program(&self) -> ! {
        let Err(failure) = self.prepare();
        let mut text = [0; 5];
        text[0] = failure.step as u8;
        text[1..].copy_from_slice(&failure.errno.raw_os_error().to_ne_bytes());
        // Nobody can be told if this fails.
        let _ = rustix::io::write(&self.report, &text);
        // SAFETY: ends the child without running anything of the parent's.
        unsafe { libc::_exit(127) }
    }

    fn prepare(&self) -> Result<std::convert::Infallible, Failure> {
        let mut byte = [0];
        if rustix::io::read(&self.go, &mut byte).map_err(at(Step::Clone))? == 0 {
            return Err(Failure { step: Step::Clone, errno: Errno::PIPE });
        }
        // Ctrl-C in the terminal is for the supervisor to act on.
        rustix::process::setpgid(None, None).map_err(at(Step::Limits))?;
        if let Some(processors) = self.processors {
            rustix::thread::sched_setaffinity(None, processors).map_err(at(Step::Limits))?;
        }
        if self.isolation != Isolation::FilterOnly {
            empty_root().map_err(at(Step::Root))?;
        }
        if self.is_root {
            let (user, group) = (Uid::from_raw(NOBODY), Gid::from_raw(NOBODY));
            let changed = rustix::thread::set_thread_groups(&[])
                .and_then(|()| rustix::thread::set_thread_res_gid(group, group, group))
                .and_then(|()| rustix::thread::set_thread_res_uid(user, user, user));
            changed.map_err(at(Step::Identity))?;
        }
        // After the change of user, which clears it.
        rustix::process::set_parent_process_death_signal(Some(Signal::KILL)).map_err(at(Step::Limits))?;
        // The parent that died before that closed the pipe.
        let mut pipe = [PollFd::new(&self.go, PollFlags::IN)];
        let ready = poll(&mut pipe, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).map_err(at(Step::Clone))?;
        if ready > 0 {
            return Err(Failure { step: Step::Clone, errno: Errno::PIPE });
        }
        rustix::thread::set_no_new_privs(true).map_err(at(Step::Limits))?;
        for (resource, most) in self.limits {
            // What the host allows already may be less.
            let allowed = rustix::process::getrlimit(resource).maximum;
            let most = Some(allowed.map_or(most, |allowed| allowed.min(most)));
            rustix::process::setrlimit(resource, Rlimit { current: most, maximum: most })
                .map_err(at(Step::Limits))?;
        }
        self.hand_over().map_err(at(Step::Descriptors))?;
        Err(Failure { step: Step::Execute, errno: self.execute() })
    }

    /// Numbers the descriptors from 0; everything else closes on execution.
    fn hand_over(&self) -> Result<(), Errno> {
        for (number, fd) in self.descriptors.iter().enumerate() {
            // SAFETY: the number is below `ABOVE` (`start` checks the count) and whatever is open under it is not used
            // in this process any more: all that the child uses is above.
            let result = unsafe { libc::syscall(libc::SYS_dup2, fd.as_raw_fd(), number as c_int) };
            if result < 0 {
                return Err(last_errno());
            }
        }
        let first = self.descriptors.len();
        // SAFETY: marks descriptors of this process only.
        let result = unsafe {
            libc::syscall(libc::SYS_close_range, first, c_int::MAX, libc::CLOSE_RANGE_CLOEXEC as c_long)
        };
        // Linux before 5.11 lacks it. Rust opens everything to be closed on execution, and the kernel closes what it does not know.
        if result < 0 && last_errno() != Errno::NOSYS && last_errno() != Errno::INVAL {
            return Err(last_errno());
        }
        Ok(())
    }

    fn execute(&self) -> Errno {
        let environment: [*const std::ffi::c_char; 1] = [std::ptr::null()];
        // SAFETY: SIGPIPE has been ignored by Rust's runtime and would stay so; the set is empty by initialisation. The
        // argument vector ends with a null pointer and its strings live as long as the borrowed `Program`.
        unsafe {
            libc::signal(libc::SIGPIPE, libc::SIG_DFL);
            let none: libc::sigset_t = std::mem::zeroed();
            libc::pthread_sigmask(libc::SIG_SETMASK, &none, std::ptr::null_mut());
            libc::syscall(
                libc::SYS_execveat,
                self.file.as_raw_fd(),
                c"".as_ptr(),
                self.arguments.as_ptr(),
                environment.as_ptr(),
                libc::AT_EMPTY_PATH,
            );
        }
        last_errno()
    }
}

fn last_errno() -> Errno {
    // SAFETY: reads this thread's errno.
    Errno::from_raw_os_error(unsafe { *libc::__errno_location() })
}

/// An empty, read-only root directory; the host's is out of reach.
fn empty_root() -> Result<(), Errno> {
    let locked = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    rustix::mount::mount_change(c"/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)?;
    rustix::mount::mount(c"none", ANY_DIRECTORY, c"tmpfs", locked, c"size=4k,nr_inodes=1,mode=555")?;
    rustix::process::chdir(ANY_DIRECTORY)?;
    // Stacks the old root on the new one (pivot_root(2), `pivot_root(".", ".")`).
    rustix::process::pivot_root(c".", c".")?;
    rustix::mount::unmount(c".", UnmountFlags::DETACH)?;
    rustix::process::chdir(c"/")?;
    rustix::mount::mount_remount(c"/", MountFlags::BIND | MountFlags::RDONLY | locked, c"")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{fs::File, path::Path, process::Command};

    /// The test program, static: there is no library in an empty root.
    fn program(folder: &Path) -> Option<File> {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/contained.c");
        let target = folder.join("program");
        let built = Command::new("cc").args(["-static", "-o"]).arg(&target).arg(source).status();
        if !built.is_ok_and(|status| status.success()) {
            eprintln!("skipped: needs cc and a static libc (apt-get install gcc libc6-dev)");
            return None;
        }
        Some(File::open(target).unwrap())
    }

    fn launch(file: &File, arguments: &[&str], output: BorrowedFd) -> Result<Contained, Failure> {
        let null = File::open("/dev/null").unwrap();
        let arguments: Vec<CString> = arguments.iter().map(|a| CString::new(*a).unwrap()).collect();
        let descriptors = [null.as_fd(), output, output];
        start(&Program {
            file: file.as_fd(),
            arguments: &arguments,
            descriptors: &descriptors,
            address_space: 1 << 30,
            processors: None,
            isolation: None,
        })
    }

    #[test]
    fn an_isolation_is_asked_for_by_the_name_that_inspect_shows() {
        for isolation in Isolation::ALL {
            assert_eq!(serde_json::to_value(isolation).unwrap(), isolation.name());
            assert_eq!(isolation.name().parse(), Ok(isolation));
        }
        let error = "none".parse::<Isolation>().unwrap_err();
        assert!(error.contains("UNILITH_ISOLATION=none") && error.contains("filter-only"), "{error}");
    }

    fn end(contained: &Contained) -> rustix::process::WaitIdStatus {
        let waited = rustix::process::waitid(WaitId::PidFd(contained.pidfd.as_fd()), WaitIdOptions::EXITED);
        waited.unwrap().unwrap()
    }

    #[test]
    fn it_is_nobody_in_an_empty_world() {
        let folder = tempfile::tempdir().unwrap();
        let Some(file) = program(folder.path()) else { return };
        let (output, input) = pipe_with(PipeFlags::CLOEXEC).unwrap();
        // Something that was inherited from a careless parent.
        let leak = rustix::io::dup(&file).unwrap();
        let contained = launch(&file, &["x"], input.as_fd()).unwrap();
        drop((input, leak));
        let mut text = String::new();
        File::from(output).read_to_string(&mut text).unwrap();
        assert_eq!(end(&contained).exit_status(), Some(7));
        if contained.isolation != Isolation::Full {
            eprintln!("skipped: {:?} is all that this host allows", contained.isolation);
            return;
        }
        let wanted = format!(
            "uid 65534 gid 65534 pid 1 entries 0 descriptors 3 files {MAX_DESCRIPTORS} core 0 environment 0 writes 0 \
             memory 0"
        );
        assert_eq!(text.trim(), wanted);
    }

    #[test]
    fn it_ends_with_the_thread_that_started_it() {
        let folder = tempfile::tempdir().unwrap();
        let Some(file) = program(folder.path()) else { return };
        let null = File::open("/dev/null").unwrap();
        let starter = std::thread::spawn(move || launch(&file, &["x", "wait"], null.as_fd()).unwrap());
        let contained = starter.join().unwrap();
        assert_eq!(end(&contained).terminating_signal(), Some(libc::SIGKILL));
    }

    #[test]
    fn what_cannot_be_executed_is_said() {
        let (text, null) = (tempfile::tempfile().unwrap(), File::open("/dev/null").unwrap());
        assert_eq!(launch(&text, &["x"], null.as_fd()).unwrap_err().step, Step::Execute);
    }
}
