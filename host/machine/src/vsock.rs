// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The host's side of the socket device (virtio-vsock) of Firecracker and Cloud Hypervisor, which carries the overlay's line and
//! directories.
//!
//! Both monitors have the same interface: a connection of the machine to port N of its host is one to the UNIX socket
//! `vsock.sock_N`, and whoever connects to `vsock.sock` and writes `CONNECT N` reaches port N of the machine. The sockets are in
//! the machine's directory, where nobody else enters. What the machine may connect to is there before it starts: the line
//! and each directory, once, and the overlay's part of its kernel.

use crate::MachineError;
use api_boot::vsock::{END_PORT, FILES_PORT, LINE_PORT, TOOLS_PORT, VOLUME_PORT};
use rustix::event::{PollFd, PollFlags, poll};
use std::{
    fs,
    io::{self, Read, Write},
    net::Shutdown,
    os::{
        fd::{AsFd, OwnedFd},
        unix::net::{UnixListener, UnixStream},
    },
    path::{Path, PathBuf},
    thread,
    time::Duration,
};
use unilith_ninep::{Export, Limits};
use unilith_overlay::socket;

/// The monitor's socket in the machine's directory, where monitors are started.
pub const SOCKET: &str = "vsock.sock";
/// The machine's context identifier. Each monitor has one machine, so all of them have the smallest that a guest may have.
pub const GUEST_CID: u32 = 3;
/// Bytes that are copied at once.
const PIECE: usize = 64 << 10;
/// How long a machine may take to read the next piece of the tools, and a monitor for the answer to a request to end.
const PATIENCE: Duration = Duration::from_secs(30);
const PATIENCE_FOR_THE_END: Duration = Duration::from_secs(2);
/// Bytes of the answer to `CONNECT`: `OK` and a port.
const MAX_ANSWER: usize = 64;

/// What a machine may connect to, each to be served by a thread of its own.
pub struct Ports<'a> {
    folder: &'a Path,
    /// Descriptors of each directory.
    descriptors: usize,
    services: Vec<(Port, Service)>,
}

enum Service {
    /// The machine's end of the overlay's line.
    Line(UnixStream),
    /// The file of the overlay's part of its kernel.
    Tools(PathBuf),
    Files(Export),
}

struct Port {
    listener: UnixListener,
    path: PathBuf,
}

impl Port {
    fn listen(folder: &Path, number: u32) -> Result<Port, MachineError> {
        let path = folder.join(format!("{SOCKET}_{number}"));
        remove(&path)?;
        let listener = socket::bind_at(&path).map_err(MachineError::file("cannot make", &path))?;
        Ok(Port { listener, path })
    }

    /// The next connection; `None` once the monitor has ended.
    fn accept(&self, monitor: &OwnedFd) -> io::Result<Option<UnixStream>> {
        let mut both = [
            PollFd::from_borrowed_fd(self.listener.as_fd(), PollFlags::IN),
            PollFd::new(monitor, PollFlags::IN),
        ];
        loop {
            match poll(&mut both, None) {
                Err(rustix::io::Errno::INTR) => continue,
                other => other.map(drop)?,
            }
            if both[0].revents().contains(PollFlags::IN) {
                return self.listener.accept().map(|(stream, _)| Some(stream));
            }
            if !both[1].revents().is_empty() {
                return Ok(None);
            }
        }
    }
}

impl Drop for Port {
    fn drop(&mut self) {
        // It goes with the machine's directory otherwise.
        let _ = fs::remove_file(&self.path);
    }
}

fn remove(path: &Path) -> Result<(), MachineError> {
    match fs::remove_file(path) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(MachineError::file("cannot remove", path)(e)),
        _ => Ok(()),
    }
}

/// Removes the socket that a monitor of an earlier run left, which would keep the next one from making its own.
pub fn prepare(folder: &Path) -> Result<(), MachineError> {
    remove(&folder.join(SOCKET))
}

impl<'a> Ports<'a> {
    /// `folder` is the machine's own.
    pub fn new(folder: &'a Path, descriptors: usize) -> Ports<'a> {
        Ports { folder, descriptors, services: Vec::new() }
    }

    fn add(&mut self, number: u32, service: Service) -> Result<(), MachineError> {
        self.services.push((Port::listen(self.folder, number)?, service));
        Ok(())
    }

    /// The overlay's line.
    pub fn line(&mut self, end: UnixStream) -> Result<(), MachineError> {
        self.add(LINE_PORT, Service::Line(end))
    }

    /// The overlay's part of the kernel.
    pub fn tools(&mut self, file: PathBuf) -> Result<(), MachineError> {
        self.add(TOOLS_PORT, Service::Tools(file))
    }

    /// The directory at /overlay.
    pub fn files(&mut self, export: Export) -> Result<(), MachineError> {
        self.add(FILES_PORT, Service::Files(export))
    }

    /// Volume `n`.
    pub fn volume(&mut self, n: usize, export: Export) -> Result<(), MachineError> {
        self.add(VOLUME_PORT + n as u32, Service::Files(export))
    }

    /// Serves them as long as the monitor runs.
    pub fn serve(self, monitor: &OwnedFd) -> io::Result<()> {
        let descriptors = self.descriptors;
        for (port, service) in self.services {
            let monitor = monitor.try_clone()?;
            thread::Builder::new().name("vsock".into()).spawn(move || {
                let (what, served) = match service {
                    Service::Line(line) => {
                        let served = serve_line(port, &monitor, &line);
                        // Its clients learn that nobody answers any more.
                        let _ = line.shutdown(Shutdown::Both);
                        ("overlay", served)
                    }
                    Service::Tools(file) => ("overlay's tools", serve_tools(&port, &monitor, &file)),
                    Service::Files(export) => ("directory", serve_files(port, &monitor, export, descriptors)),
                };
                if let Err(error) = served {
                    eprintln!("unilith: the machine's {what} is no longer served: {error}");
                }
            })?;
        }
        Ok(())
    }
}

/// Serves a directory to the machine's first connection; there is no second one.
fn serve_files(port: Port, monitor: &OwnedFd, export: Export, descriptors: usize) -> io::Result<()> {
    let Some(machine) = port.accept(monitor)? else { return Ok(()) };
    drop(port);
    unilith_ninep::serve(export, machine, Limits { descriptors, given: 0 }, None)
}

/// Connects the machine's first connection with the line; there is no second one.
fn serve_line(port: Port, monitor: &OwnedFd, line: &UnixStream) -> io::Result<()> {
    let Some(machine) = port.accept(monitor)? else { return Ok(()) };
    drop(port);
    let (from, to) = (line.try_clone()?, machine.try_clone()?);
    thread::Builder::new().name("vsock-line-in".into()).spawn(move || {
        copy(&from, &to);
        let _ = to.shutdown(Shutdown::Both);
    })?;
    copy(&machine, line);
    Ok(())
}

/// Copies until either side is gone.
fn copy(mut from: &UnixStream, mut to: &UnixStream) {
    let mut piece = vec![0; PIECE];
    loop {
        match from.read(&mut piece) {
            Ok(0) => return,
            Ok(length) if to.write_all(&piece[..length]).is_err() => return,
            Ok(_) => {}
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => return,
        }
    }
}

/// Hands the tools to whoever connects, to one at a time: a machine that does not read keeps nobody waiting but itself.
fn serve_tools(port: &Port, monitor: &OwnedFd, tools: &Path) -> io::Result<()> {
    while let Some(mut machine) = port.accept(monitor)? {
        machine.set_write_timeout(Some(PATIENCE))?;
        // A kernel without tools has none to ask for; what is missing or cut short the machine says itself.
        if let Ok(bytes) = fs::read(tools) {
            let _ = machine.write_all(&bytes);
        }
    }
    Ok(())
}

/// Asks the machine to end, by a connection to that port of its.
pub fn ask_for_the_end(folder: &Path) -> io::Result<()> {
    let stream = socket::connect_at(&folder.join(SOCKET))?;
    stream.set_read_timeout(Some(PATIENCE_FOR_THE_END))?;
    stream.set_write_timeout(Some(PATIENCE_FOR_THE_END))?;
    request(stream, END_PORT)
}

/// `CONNECT`, and the answer that the machine has taken the connection.
fn request(mut stream: UnixStream, port: u32) -> io::Result<()> {
    stream.write_all(format!("CONNECT {port}\n").as_bytes())?;
    let mut answer = Vec::new();
    stream.take(MAX_ANSWER as u64).read_to_end(&mut answer)?;
    match answer.starts_with(b"OK ") {
        true => Ok(()),
        false => Err(io::Error::new(io::ErrorKind::ConnectionRefused, "the machine does not listen")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Child, Command, Stdio};

    /// A process that stands for the monitor, and its descriptor.
    fn monitor() -> (Child, OwnedFd) {
        let child = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
        let pid = rustix::process::Pid::from_child(&child);
        let pidfd = rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty()).unwrap();
        (child, pidfd)
    }

    fn serve(folder: &Path, monitor: &OwnedFd, line: UnixStream, tools: PathBuf) {
        let mut ports = Ports::new(folder, 16);
        ports.line(line).unwrap();
        ports.tools(tools).unwrap();
        ports.serve(monitor).unwrap();
    }

    #[test]
    fn the_machine_gets_the_line_once_and_the_tools_as_often_as_it_asks() {
        let folder = tempfile::tempdir().unwrap();
        let tools = folder.path().join("tools");
        let content: Vec<u8> = (0..300_000u32).map(|n| n as u8).collect();
        fs::write(&tools, &content).unwrap();
        let (mut child, pidfd) = monitor();
        let (mut ours, end) = UnixStream::pair().unwrap();
        serve(folder.path(), &pidfd, end, tools);
        let connect = |port| socket::connect_at(&folder.path().join(format!("{SOCKET}_{port}")));
        // What clients say before the machine is there waits for it.
        ours.write_all(b"early").unwrap();
        let mut line = connect(LINE_PORT).unwrap();
        let mut five = [0; 5];
        line.read_exact(&mut five).unwrap();
        assert_eq!(&five, b"early");
        line.write_all(b"reply").unwrap();
        ours.read_exact(&mut five).unwrap();
        assert_eq!((&five, connect(LINE_PORT).is_err()), (b"reply", true));
        for _ in 0..2 {
            let mut got = Vec::new();
            connect(TOOLS_PORT).unwrap().read_to_end(&mut got).unwrap();
            assert!(got == content, "{} bytes", got.len());
        }
        // A machine that goes while it is handed the tools keeps the next one from nothing.
        drop(connect(TOOLS_PORT).unwrap());
        let mut got = Vec::new();
        connect(TOOLS_PORT).unwrap().read_to_end(&mut got).unwrap();
        assert_eq!(got.len(), content.len());
        // The line's clients hear of its end.
        drop(line);
        assert_eq!(ours.read(&mut five).unwrap(), 0);
        child.kill().unwrap();
        child.wait().unwrap();
    }

    #[test]
    fn nobody_waits_for_a_monitor_that_ended() {
        let folder = tempfile::tempdir().unwrap();
        let (mut child, pidfd) = monitor();
        let (mut ours, end) = UnixStream::pair().unwrap();
        serve(folder.path(), &pidfd, end, folder.path().join("none"));
        child.kill().unwrap();
        child.wait().unwrap();
        ours.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        assert_eq!(ours.read(&mut [0]).unwrap(), 0);
        // A second start in the same directory finds nothing in its way.
        Port::listen(folder.path(), LINE_PORT).unwrap();
    }

    #[test]
    fn only_a_machine_that_took_the_connection_was_asked() {
        for (answer, is_asked) in
            [(&b"OK 1073741824\n"[..], true), (b"", false), (b"O", false), (&[b'x'; 1000], false)]
        {
            let (ours, mut theirs) = UnixStream::pair().unwrap();
            theirs.write_all(answer).unwrap();
            theirs.shutdown(Shutdown::Write).unwrap();
            assert_eq!(request(ours, END_PORT).is_ok(), is_asked, "{answer:?}");
            let mut line = [0; 13];
            theirs.read_exact(&mut line).unwrap();
            assert_eq!(&line, b"CONNECT 1026\n");
        }
    }
}
