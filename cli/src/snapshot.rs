// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The root file system of a running machine, as its overlay's command `export` prints it: what `diff` and `commit` read.

use crate::{
    fault::{Fault, Result},
    session,
};
use std::io::{self, Read};
use unilith_machine::{
    record::KernelKind,
    store::{Machine, Store},
};
use unilith_overlay::{Client, Event, Running};
use unilith_snapshot::{Asked, Contents, Error, Image};

/// What shells and the overlay answer for a name that is no command.
const UNKNOWN: u8 = 127;
/// Failures of a command that are told; a machine may have any number.
const MAX_FAILURES: usize = 10;

impl From<Error> for Fault {
    fn from(error: Error) -> Fault {
        Fault::new(error.to_string())
    }
}

/// A machine and what its root file system was made of.
pub struct Root {
    pub machine: Machine,
    pub image: Image,
    client: Client,
}

impl Root {
    pub fn open(store: &Store, name: &str) -> Result<Root> {
        let machine = store.find(name)?;
        let spec = &machine.spec;
        if !machine.state.phase.is_alive() {
            return Err(Fault::new(format!(
                "machine {} has ended, and the files of its root went with it: only volumes are kept (-v NAME:PATH); `unilith start {}` begins with its image again",
                spec.name, spec.name
            )));
        }
        if spec.volumes.iter().any(|volume| volume.guest == "/") {
            return Err(Fault::new(format!(
                "the root of machine {} is a directory of this host, and no image",
                spec.name
            )));
        }
        let machine = session::find(store, name)?;
        let image = Image::open(&machine.spec.initrd)?;
        let client = session::connect(&machine)?;
        Ok(Root { machine, image, client })
    }

    /// Linux cannot leave contents out: there `export` is find and cpio.
    pub fn quickest(&self) -> Contents {
        match self.machine.spec.kernel_kind {
            KernelKind::Micro => Contents::Absent,
            KernelKind::Linux => Contents::Present,
        }
    }

    /// Hands the machine's archive to `read`; an error when the machine could not tell all of it.
    pub fn export<T>(
        &self,
        contents: Contents,
        read: impl FnOnce(&mut dyn Read) -> unilith_snapshot::Result<T>,
    ) -> Result<T> {
        let command: &[&str] = match contents {
            Contents::Absent => &["export", "-l"],
            Contents::Present => &["export"],
        };
        let mut stream = Stream::start(&self.client, command)?;
        let done = read(&mut stream);
        if done.is_err() && stream.ended.is_none() {
            // The machine is not to print the rest to nobody.
            stream.running.input().interrupt()?;
        }
        let (code, why) = stream.end()?;
        match code {
            UNKNOWN => Err(Fault::new(format!(
                "machine {} was started by an earlier unilith, whose kernel has no `export`: start it again",
                self.machine.spec.name
            ))),
            // What the archive lacks is the reason, where there is one.
            0 => Ok(done?),
            _ if why.is_empty() => Err(done.err().map_or_else(
                || Fault::new(format!("export in the machine failed with exit code {code}")),
                Fault::from,
            )),
            _ => Err(Fault::new(format!("in the machine: {why}"))),
        }
    }
}

impl Asked for &Root {
    fn contents(&mut self, path: &[u8], most: u64) -> unilith_snapshot::Result<Option<Vec<u8>>> {
        let lost = |e: Fault| Error::Io("asking the machine".into(), io::Error::other(e.message));
        let mut stream = Stream::start(&self.client, &[&b"cat"[..], b"--", path]).map_err(lost)?;
        let mut bytes = Vec::new();
        let read = stream.by_ref().take(most.saturating_add(1)).read_to_end(&mut bytes);
        read.map_err(|e| Error::Io("asking the machine".into(), e))?;
        if stream.ended.is_none() {
            stream.running.input().interrupt().map_err(|e| lost(e.into()))?;
        }
        let (code, _) = stream.end().map_err(lost)?;
        Ok((code == 0).then_some(bytes))
    }
}

/// The output of a command of the overlay.
struct Stream {
    running: Running,
    piece: Vec<u8>,
    /// Bytes of the piece that were read.
    taken: usize,
    failures: Vec<String>,
    /// The exit code, or why there is none.
    ended: Option<std::result::Result<u8, String>>,
}

impl Stream {
    fn start(client: &Client, command: &[impl AsRef<[u8]>]) -> Result<Stream> {
        let running = client.start(command, false, 0)?;
        running.input().end()?;
        Ok(Stream { running, piece: Vec::new(), taken: 0, failures: Vec::new(), ended: None })
    }

    /// Takes the next event; whether there is output.
    fn step(&mut self) -> bool {
        match self.running.next() {
            Event::Out(bytes) => {
                (self.piece, self.taken) = (bytes, 0);
                return true;
            }
            Event::Err(bytes) => self.note(String::from_utf8_lossy(&bytes).trim_end().to_string()),
            Event::Failure(failure) if failure.subject.is_empty() => self.note(failure.text),
            Event::Failure(failure) => self.note(format!("{}: {}", failure.subject, failure.text)),
            Event::Started(_) => {}
            Event::Exit(exit) => self.ended = Some(Ok(exit.code)),
            Event::Lost(why) => self.ended = Some(Err(why)),
        }
        false
    }

    fn note(&mut self, text: String) {
        if self.failures.len() < MAX_FAILURES && !text.is_empty() {
            self.failures.push(text);
        }
    }

    /// Passes over what is left and answers the exit code with what was said of failures.
    fn end(mut self) -> Result<(u8, String)> {
        while self.ended.is_none() {
            self.step();
        }
        let why = self.failures.join("; ");
        match self.ended {
            Some(Ok(code)) => Ok((code, why)),
            Some(Err(lost)) => Err(Fault::new(lost)),
            None => Ok((0, why)),
        }
    }
}

impl Read for Stream {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        while self.taken == self.piece.len() {
            if self.ended.is_some() {
                return Ok(0);
            }
            self.step();
        }
        let count = to.len().min(self.piece.len() - self.taken);
        to[..count].copy_from_slice(&self.piece[self.taken..self.taken + count]);
        self.taken += count;
        Ok(count)
    }
}
