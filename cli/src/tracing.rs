// SPDX-License-Identifier: Apache-2.0 OR MIT
//! eBPF programs in a running machine for as long as a command runs: what `trace`, `top` and `profile` share.

use crate::archive::Archive;
use crate::fault::{Fault, Result};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};
use std::{fs, thread};
use unilith_machine::store::Machine;
use unilith_overlay::{Client, Event, Input, Running};
use unilith_trace::Script;
use unilith_trace::report;
use unilith_trace::symbols::{self, Module, Names};

/// The modules of a machine's program, and its kernel.
pub struct Machinery {
    pub modules: Vec<Module>,
    pub kernel: Option<Module>,
}

impl Machinery {
    /// Reads what is mapped in the machine; the files come from its image.
    pub fn read(machine: &Machine, client: &Client) -> Result<Machinery> {
        let maps = client.run(&["cat", "/proc/self/maps"], false)?;
        let maps = String::from_utf8_lossy(&maps.out).into_owned();
        let image = fs::read(&machine.spec.initrd)
            .map_err(|e| Fault::new(format!("cannot read {}: {e}", machine.spec.initrd.display())))?;
        let archive = Archive::read(&image);
        let modules = symbols::modules(&maps, &mut |path| Some(archive.as_ref()?.file(path)?.to_vec()));
        let kernel = machine.spec.symbols.as_ref().and_then(|path| fs::read(path).ok());
        let kernel = kernel.map(|elf| Module { path: "the kernel".into(), elf, bias: 0 });
        Ok(Machinery { modules, kernel })
    }

    pub fn all(&self) -> impl Iterator<Item = &Module> {
        self.modules.iter().chain(&self.kernel)
    }

    pub fn names(&self) -> Names {
        Names::new(self.all())
    }
}

/// Exit code of a command that the machine does not have.
const UNKNOWN_COMMAND: u8 = 127;

/// Puts programs to where they go, under a name, to stay.
pub fn attach(client: &Client, name: &str, script: &Script, machinery: &Machinery) -> Result<()> {
    send(client, &["bpf", "attach", name], script, machinery).map(|_| ())
}

/// What a command writes that takes programs along.
const ATTACHED: &[u8] = b"attached\n";

/// Runs a command that takes programs along, until they are attached; answers it, if it goes on, and what it wrote since.
fn send(
    client: &Client,
    command: &[&str],
    script: &Script,
    machinery: &Machinery,
) -> Result<Option<(Running, Vec<u8>)>> {
    let package =
        symbols::package(script, &machinery.modules, machinery.kernel.as_ref()).map_err(Fault::new)?;
    let running = client.start(command, false, 0)?;
    let input = running.input();
    let bytes = package.encode();
    let writer = thread::spawn(move || input.write(&bytes).and_then(|_| input.end()));
    let mut failure = None;
    let mut said = Vec::new();
    let code = loop {
        match running.next() {
            Event::Failure(f) if f.subject.is_empty() => failure = Some(f.text),
            Event::Failure(f) => failure = Some(format!("{}: {}", f.subject, f.text)),
            Event::Exit(exit) => break exit.code,
            Event::Lost(why) => return Err(Fault::new(why)),
            Event::Out(bytes) => {
                said.extend(bytes);
                if said.starts_with(ATTACHED) {
                    said.drain(..ATTACHED.len());
                    return Ok(Some((running, said)));
                }
            }
            Event::Err(_) | Event::Started(_) => {}
        }
    };
    if code == UNKNOWN_COMMAND {
        let without = "this machine has no tracing; one started with `--kernel micro`, without `--set trace=off` and `overlay=off`, has";
        return Err(Fault::new(without));
    }
    // What it could not send is in the failure.
    let _ = writer.join();
    match failure {
        Some(why) => Err(Fault::new(why)),
        None if code != 0 => Err(Fault::new("the machine did not attach the programs")),
        None => Ok(None),
    }
}

/// How many records there was no room for.
pub fn lost(client: &Client, name: &str) -> Result<u64> {
    let answer = client.run(&["bpf", "map", name], false)?;
    let (_, lost) = report::elements(&String::from_utf8_lossy(&answer.out));
    Ok(lost.iter().map(|l| l.1).sum())
}

/// A name for programs that end with this process.
pub fn own_name(verb: &str) -> String {
    format!("{verb}-{}", std::process::id())
}

/// What a program wrote.
pub enum Output<'a> {
    Line(&'a str),
    Record { map: &'a str, bytes: &'a [u8] },
}

/// A ring buffer, and so a record, has no more bytes.
const MAX_RECORD: usize = 16 << 20;

/// Hands over what is complete in `text`, and answers how many bytes that was.
fn take_output(text: &[u8], each: &mut impl FnMut(Output<'_>)) -> usize {
    let mut from = 0;
    while let Some(end) = text[from..].iter().position(|b| *b == b'\n') {
        let line = String::from_utf8_lossy(&text[from..from + end]);
        let mut next = from + end + 1;
        let record = line.strip_prefix("bytes ").and_then(|l| l.split_once(' '));
        if let Some((map, length)) =
            record.and_then(|(map, n)| Some((map, n.parse().ok().filter(|n| *n <= MAX_RECORD)?)))
        {
            let Some(bytes) = text[next..].get(..length) else { return from };
            each(Output::Record { map, bytes });
            next += length;
        } else {
            each(Output::Line(line.strip_prefix("print ").unwrap_or(&line)));
        }
        from = next;
    }
    from
}

/// What programs write, piece by piece, until they are detached or the machine is gone.
pub struct Follow {
    input: Input,
    printer: thread::JoinHandle<Option<String>>,
}

impl Follow {
    /// Puts programs to where they go; `each` gets all that they write. They belong to a command of the machine, which
    /// detaches them when this process ends, however and whenever it does.
    pub fn start(
        client: &Client,
        name: &str,
        script: &Script,
        machinery: &Machinery,
        mut each: impl FnMut(Output<'_>) + Send + 'static,
    ) -> Result<Follow> {
        let Some((running, mut rest)) = send(client, &["bpf", "trace", "-b", name], script, machinery)?
        else {
            return Err(Fault::new("the programs were detached at once"));
        };
        let input = running.input();
        let printer = thread::spawn(move || {
            loop {
                let taken = take_output(&rest, &mut each);
                rest.drain(..taken);
                match running.next() {
                    Event::Out(bytes) => rest.extend(bytes),
                    Event::Err(_) | Event::Failure(_) | Event::Started(_) => {}
                    Event::Exit(_) => return None,
                    Event::Lost(why) => return Some(why),
                }
            }
        });
        Ok(Follow { input, printer })
    }

    pub fn has_ended(&self) -> bool {
        self.printer.is_finished()
    }

    /// Takes the programs away. An error when the machine was lost before.
    pub fn end(self) -> Result<()> {
        let sent = self.input.interrupt();
        let lost = self.printer.join().map_err(|_| Fault::new("the output could not be shown"))?;
        match lost {
            Some(why) => Err(Fault::new(why)),
            None => Ok(sent?),
        }
    }
}

/// Ctrl-C and its like.
pub struct Stop(Receiver<()>);

/// Looks whether what it waits for is still there so often.
const LOOK: Duration = Duration::from_millis(200);

impl Stop {
    pub fn watch() -> Result<Stop> {
        let (stop, stopped) = channel();
        let mut signals = signal_hook::iterator::Signals::new([
            signal_hook::consts::SIGINT,
            signal_hook::consts::SIGTERM,
            signal_hook::consts::SIGHUP,
        ])
        .map_err(|e| Fault::new(format!("cannot watch for Ctrl-C: {e}")))?;
        thread::spawn(move || {
            for _ in signals.forever() {
                // The main thread may be past listening.
                let _ = stop.send(());
            }
        });
        Ok(Stop(stopped))
    }

    /// Waits until then, or for ever; false when it was stopped, or there is nothing more to wait for.
    pub fn wait(&self, until: Option<Instant>, follow: &Follow) -> bool {
        self.wait_or(until, || follow.has_ended())
    }

    /// As [`Stop::wait`] until something is over.
    pub fn wait_or(&self, until: Option<Instant>, mut is_over: impl FnMut() -> bool) -> bool {
        loop {
            let left = until.map_or(LOOK, |u| u.saturating_duration_since(Instant::now()).min(LOOK));
            match self.0.recv_timeout(left) {
                Ok(()) | Err(RecvTimeoutError::Disconnected) => return false,
                Err(RecvTimeoutError::Timeout) if is_over() => return false,
                Err(RecvTimeoutError::Timeout) if until.is_some_and(|u| Instant::now() >= u) => return true,
                Err(RecvTimeoutError::Timeout) => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_and_records_are_taken_when_they_are_complete() {
        let text = b"print one\nbytes m 3\n\n\n\ntwo\nbytes m 4\nabc";
        let mut seen = Vec::new();
        let taken = take_output(text, &mut |output| match output {
            Output::Line(line) => seen.push(line.to_string()),
            Output::Record { map, bytes } => seen.push(format!("{map}: {bytes:?}")),
        });
        assert_eq!(seen, ["one", "m: [10, 10, 10]", "two"]);
        assert_eq!(&text[taken..], b"bytes m 4\nabc");
    }
}
