// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Programs of the image that a client of the line starts, as `docker exec` does: who they are, and their streams.
//!
//! One thread serves a program: it moves bytes between the client and the program's pipes, or its pseudo-terminal, and never
//! takes more out of a pipe than the client has room for, so a client that does not read stops the program alone.

use crate::account::{self, Account};
use crate::paths::Tree;
use abi::Events;
use abi::errno::{EACCES, EAGAIN, ENOEXEC, ENOMEM, ENOTDIR};
use alloc::borrow::Cow;
use alloc::boxed::Box;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use api_alloc::Reserve;
use api_boot::CapabilitySets;
use api_fs::{File, Sink, Source};
use api_overlay::{Failure, Outcome, Remote, Stop, Stream};
use api_sched::{WaitKey, WaitQueue};
use descriptors::Description;
use devfs::OutsideTerminal;
use overlay_wire::{Privileges, Program};
use pipe::PipeEnd;
use posix::outside::{self, Place, Refusal, Wanted};
use task::process::Process;
use task::{auxiliary, containers};
use vfs::Namespace;

/// The kind of terminal that a client has, unless it says another one: every image knows this one.
const TERM: &[u8] = b"xterm";
/// Bytes moved at once.
const PIECE: usize = 16 << 10;
/// Output that is still sent when the process has ended: the most that a pipe holds (fs.pipe-max-size). What it left
/// behind could write for ever.
const LAST_OUTPUT: usize = 1 << 20;
const O_RDONLY: u32 = 0;
const O_RDWR: u32 = 2;
const O_WRONLY: u32 = 1;
const SIGHUP: i32 = 1;
const SIGINT: i32 = 2;
const SIGCONT: i32 = 18;
/// The interrupt key, Ctrl-C.
const VINTR: u8 = 3;

/// Starts the program and serves it to its end.
pub fn run(remote: &dyn Remote, wanted: &Program<'_>) -> Outcome {
    let first = auxiliary::program().map_err(|e| Failure::new("").errno(e))?;
    let beginning = first.restarts.first().ok_or_else(|| refused("the machine's program has not started"))?;
    let container = match wanted.container {
        b"" => None,
        name => {
            let running = containers::find(name).filter(|container| container.is_running());
            Some(running.ok_or_else(|| refused("the container does not run"))?)
        }
    };
    let tree = Tree::of(container.as_deref())?;
    let account = match wanted.user {
        b"" => None,
        user => Some(account::find(user, &tree)?),
    };
    let (its_environment, its_working, its_credentials) = match &container {
        Some(container) => (&container.environment, &container.working, &container.credentials),
        None => (&beginning.environment, &beginning.working, &beginning.credentials),
    };
    let working = match wanted.working {
        b"" => its_working.clone(),
        path => directory(&tree, path)?,
    };
    let environment = environment(its_environment, wanted, account.as_ref());
    let mut credentials = match account {
        None => its_credentials.clone(),
        Some(account) => account.credentials(its_credentials),
    };
    if let Some(Privileges { no_new_privileges, capabilities }) = wanted.privileges {
        let [bounding, permitted, effective, inheritable, ambient] = capabilities;
        credentials = credentials.with_capabilities(&CapabilitySets {
            bounding,
            permitted,
            effective,
            inheritable,
            ambient,
        });
        credentials.no_new_privileges = no_new_privileges;
    }
    let namespace =
        container.as_ref().map_or_else(|| first.files.namespace(), |container| container.namespace.clone());
    let paths = outside::candidates(wanted.arguments[0], &environment);
    let mut streams = Streams::new(&namespace, wanted, (credentials.uid, credentials.gid))
        .map_err(|e| Failure::new("its standard streams").errno(e).code(Failure::REFUSED))?;
    let asked = Wanted {
        arguments: wanted.arguments.iter().map(|word| word.to_vec()).collect(),
        environment,
        working,
        credentials,
        streams: streams.take_programs()?,
        terminal: streams.terminal.as_deref(),
        place: container.as_ref().map_or(Place::Machine, Place::Beside),
    };
    let process = outside::start(&first, &asked, &paths).map_err(|refusal| explain(refusal, wanted))?;
    remote.started(process.pid.of_machine() as u32);
    if wanted.detached {
        return Ok(0);
    }
    streams.serve(remote, &process, &|| {
        outside::signal(&process, SIGHUP);
        outside::signal(&process, SIGCONT);
    })
}

pub fn refused(text: impl Into<Cow<'static, str>>) -> Failure {
    Failure::new("").because(text).code(Failure::REFUSED)
}

pub fn explain(refusal: Refusal, wanted: &Program<'_>) -> Failure {
    let name = String::from_utf8_lossy(wanted.arguments[0]);
    let is_bare = !name.contains('/');
    let failure = Failure::new("");
    match refusal {
        Refusal::NotFound if is_bare => failure
            .because("no such command, and no such program in the image; `help` lists the commands")
            .code(Failure::UNKNOWN),
        Refusal::NotFound => failure.because("no such program in the image").code(Failure::UNKNOWN),
        Refusal::NoInterpreter => failure
            .because("what it says runs it, an interpreter, is not in the image")
            .code(Failure::UNKNOWN),
        Refusal::Other(EACCES) => {
            failure.errno(EACCES).because("not an executable file").code(Failure::REFUSED)
        }
        Refusal::Other(ENOEXEC) => {
            failure.errno(ENOEXEC).because("not a program for x86-64 Linux").code(Failure::REFUSED)
        }
        Refusal::Other(EAGAIN) => failure
            .errno(EAGAIN)
            .because("the machine has as many processes as it may have: end some with `kill`")
            .code(Failure::REFUSED),
        Refusal::Other(ENOMEM) => failure
            .errno(ENOMEM)
            .because("the machine has no memory for another process: try more with -m")
            .code(Failure::REFUSED),
        Refusal::Other(errno) => failure.errno(errno).code(Failure::REFUSED),
    }
}

/// The working directory that the client named.
fn directory(tree: &Tree, path: &[u8]) -> Result<Arc<vfs::Dentry>, Failure> {
    let failed = |e| Failure::about(path).errno(e).code(Failure::REFUSED);
    let found = tree.lookup(path, true).map_err(failed)?;
    if found.is_directory() { Ok(found) } else { Err(failed(ENOTDIR)) }
}

fn name_of(variable: &[u8]) -> &[u8] {
    variable.split(|byte| *byte == b'=').next().unwrap_or_default()
}

fn value_of<'a>(environment: &'a [Vec<u8>], name: &[u8]) -> Option<&'a [u8]> {
    environment.iter().find(|entry| name_of(entry) == name).and_then(|entry| entry.get(name.len() + 1..))
}

/// The environment of the first process, with what the client adds.
fn environment(first: &[Vec<u8>], wanted: &Program<'_>, account: Option<&Account>) -> Vec<Vec<u8>> {
    let mut all = first.to_vec();
    let mut set = |variable: Vec<u8>| match all.iter_mut().find(|old| name_of(old) == name_of(&variable)) {
        Some(old) => *old = variable,
        None => all.push(variable),
    };
    if let Some(account) = account {
        set([b"HOME=", account.home.as_slice()].concat());
    }
    wanted.environment.iter().for_each(|variable| set(variable.to_vec()));
    if wanted.terminal.is_some() && value_of(&all, b"TERM").is_none() {
        all.push([b"TERM=", TERM].concat());
    }
    all
}

/// A registration in a queue of waiters for as long as it lives.
struct Registration<'a> {
    queue: &'a WaitQueue,
    key: WaitKey,
}

impl<'a> Registration<'a> {
    fn new(queue: &'a WaitQueue) -> Registration<'a> {
        Registration { queue, key: queue.add(api_sched::current(), Events::ALL, false) }
    }
}

impl Drop for Registration<'_> {
    fn drop(&mut self) {
        self.queue.remove(self.key);
    }
}

/// The streams: the program's ends until it starts, and ours.
pub struct Streams {
    programs: Option<[Arc<Description>; 3]>,
    pub terminal: Option<Box<OutsideTerminal>>,
    /// The writing end of standard input; `None` behind its end, and with a terminal.
    input: Option<Arc<PipeEnd>>,
    /// The reading ends of standard output and error.
    outputs: Vec<(Stream, Arc<PipeEnd>)>,
    /// Input that waits for the program.
    pending: Vec<u8>,
    /// Where bytes are on their way, made before the program starts: nothing can be refused then.
    buffer: Vec<u8>,
    /// The client's input is the program's, and has not ended.
    takes_input: bool,
}

impl Streams {
    /// `tree`: where devices have their names.
    pub fn new(tree: &Namespace, wanted: &Program<'_>, owner: (u32, u32)) -> abi::Result<Streams> {
        let mut streams = Streams {
            programs: None,
            terminal: None,
            input: None,
            outputs: Vec::new(),
            pending: Vec::new(),
            buffer: Vec::new(),
            takes_input: wanted.input && !wanted.detached,
        };
        if !wanted.detached {
            streams.buffer.reserve_exact_fallibly(PIECE).map_err(|_| ENOMEM)?;
            streams.buffer.resize(PIECE, 0);
        }
        let null = |flags| outside::device(tree, b"/dev/null", flags);
        if wanted.detached {
            let all = null(O_RDWR)?;
            streams.programs = Some([all.clone(), all.clone(), all]);
        } else if let Some(size) = wanted.terminal {
            let terminal = Box::new(OutsideTerminal::new(owner, size.rows, size.columns)?);
            let all = outside::terminal(tree, &terminal)?;
            streams.programs = Some([all.clone(), all.clone(), all]);
            streams.terminal = Some(terminal);
        } else {
            let input = match streams.takes_input {
                true => {
                    let (theirs, ours) = pipe::pipe()?;
                    streams.input = Some(ours);
                    Description::new(theirs, O_RDONLY, None)
                }
                false => null(O_RDONLY)?,
            };
            let [(out, output), (err, error)] = [pipe::pipe()?, pipe::pipe()?];
            streams.outputs.push((Stream::Out, out));
            streams.outputs.push((Stream::Err, err));
            let [output, error] = [output, error].map(|theirs| Description::new(theirs, O_WRONLY, None));
            streams.programs = Some([input, output, error]);
        }
        Ok(streams)
    }

    /// The program's ends, once.
    pub fn take_programs(&mut self) -> Result<[Arc<Description>; 3], Failure> {
        self.programs.take().ok_or_else(|| refused("it has no standard streams"))
    }

    /// Moves bytes until the process has ended and what it wrote is sent, or the client is gone; `hang_up` is for one without a
    /// terminal then.
    pub fn serve(&mut self, remote: &dyn Remote, process: &Arc<Process>, hang_up: &dyn Fn()) -> Outcome {
        let terminal = self.terminal.take();
        let terminal = terminal.as_deref();
        let (input, outputs) = (self.input.clone(), self.outputs.clone());
        let pipes = input.iter().chain(outputs.iter().map(|(_, end)| end)).filter_map(|end| end.wait_queue());
        let queues = [remote.changed(), &process.family.ended];
        let queues = queues.into_iter().chain(terminal.map(OutsideTerminal::queue)).chain(pipes);
        let _registrations: Vec<Registration<'_>> = queues.map(Registration::new).collect();
        let mut buffer = core::mem::take(&mut self.buffer);
        let mut last = 0;
        loop {
            let news = remote.news();
            if news.is_gone {
                // A terminal hangs up when it is dropped.
                if terminal.is_none() {
                    hang_up();
                }
                return Err(Stop.into());
            }
            match terminal {
                Some(terminal) => {
                    news.interrupted.then(|| terminal.write(&[VINTR]));
                    news.size.inspect(|(columns, rows)| terminal.resize(*rows, *columns));
                }
                None => {
                    news.interrupted.then(|| outside::signal(process, SIGINT));
                }
            }
            // Before the streams are looked at: what it wrote was written before it ended.
            let code = outside::code(process);
            let mut moved = self.take_input(remote, terminal, &mut buffer);
            let sent = self.send_output(remote, terminal, &mut buffer);
            moved |= sent > 0;
            if let Some(code) = code {
                last += sent;
                if last > LAST_OUTPUT || sent == 0 && remote.room() > 0 {
                    return Ok(code);
                }
            }
            if !moved {
                api_sched::park(u64::MAX);
            }
            remote.give_way();
        }
    }

    /// Hands the client's input to the program; true when there was some.
    fn take_input(
        &mut self,
        remote: &dyn Remote,
        terminal: Option<&OutsideTerminal>,
        buffer: &mut [u8],
    ) -> bool {
        let mut moved = false;
        if self.takes_input && self.pending.is_empty() {
            match remote.input(buffer) {
                None => {}
                Some(0) => {
                    self.takes_input = false;
                    moved = true;
                }
                Some(count) => {
                    self.pending.extend_from_slice(&buffer[..count]);
                    moved = true;
                }
            }
        }
        let taken = match (terminal, &self.input) {
            _ if self.pending.is_empty() => 0,
            (Some(terminal), _) => terminal.write(&self.pending),
            (None, Some(pipe)) => match pipe.write(0, &mut Source::kernel(&self.pending)) {
                Err(EAGAIN) => 0,
                Ok(count) => count,
                // Nobody reads it any more: it is dropped, so that the client does not wait.
                Err(_) => self.pending.len(),
            },
            (None, None) => self.pending.len(),
        };
        self.pending.drain(..taken);
        if !self.takes_input
            && self.pending.is_empty()
            && let Some(pipe) = self.input.take()
        {
            // The program reads the end. Closing a pipe cannot fail.
            let _ = pipe.close();
        }
        moved || taken > 0
    }

    /// Sends what the program wrote, as much as the client takes; how many bytes that were.
    fn send_output(
        &mut self,
        remote: &dyn Remote,
        terminal: Option<&OutsideTerminal>,
        buffer: &mut [u8],
    ) -> usize {
        let mut sent = 0;
        if let Some(terminal) = terminal {
            let room = remote.room().min(buffer.len());
            // Without anybody who has the terminal open there is nothing more to come: the end of the process says the rest.
            if room > 0
                && let Ok(count) = terminal.read(&mut buffer[..room])
            {
                remote.send(Stream::Out, &buffer[..count]);
                sent = count;
            }
        }
        for (stream, pipe) in &self.outputs {
            let room = remote.room().min(buffer.len());
            if room > 0
                && let Ok(count @ 1..) = pipe.read(0, &mut Sink::kernel(&mut buffer[..room]))
            {
                remote.send(*stream, &buffer[..count]);
                sent += count;
            }
        }
        sent
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    fn texts(all: &[Vec<u8>]) -> Vec<String> {
        all.iter().map(|text| String::from_utf8(text.clone()).unwrap()).collect()
    }

    #[test]
    fn the_environment_is_the_first_process_with_what_the_client_adds() {
        let first = [b"PATH=/bin".to_vec(), b"HOME=/".to_vec(), b"PATHS=x".to_vec()];
        let wanted = Program {
            terminal: Some(overlay_wire::Size::default()),
            arguments: vec![b"sh"],
            environment: vec![b"PATH=/opt:/bin", b"A=b=c"],
            ..Program::default()
        };
        let all = environment(&first, &wanted, None);
        assert_eq!(texts(&all), ["PATH=/opt:/bin", "HOME=/", "PATHS=x", "A=b=c", "TERM=xterm"]);
        assert_eq!(value_of(&all, b"A"), Some(&b"b=c"[..]));
        assert_eq!(value_of(&all, b"B"), None);
        let account = Account { uid: 5, gid: 6, groups: vec![7], home: b"/home/me".to_vec() };
        let all = environment(&first, &Program { terminal: None, ..wanted }, Some(&account));
        assert_eq!(texts(&all), ["PATH=/opt:/bin", "HOME=/home/me", "PATHS=x", "A=b=c"]);
    }
}
