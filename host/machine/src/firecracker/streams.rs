// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The two streams on Firecracker's serial port, which is its standard output and input.
//!
//! Firecracker makes its output non-blocking and loses what a full pipe does not take. The pipe is one open file here and there, so
//! it is made blocking again when the machine's first byte came, which is after Firecracker has set it up: a machine that prints
//! more than is read then waits, as it does under QEMU.

use api_boot::PortDecoder;
use rustix::{
    event::{PollFd, PollFlags, poll},
    fs::{OFlags, fcntl_getfl, fcntl_setfl},
};
use std::{
    io::{self, PipeReader, PipeWriter, Read, Write},
    net::Shutdown,
    os::{
        fd::{AsFd, OwnedFd},
        unix::net::UnixStream,
    },
    thread,
};

/// Bytes that are read at once.
const PIECE: usize = 8192;

/// What Firecracker writes, and where it goes.
pub struct Output {
    pub from: PipeReader,
    /// The same open file as Firecracker's standard output.
    pub end: PipeWriter,
    /// Firecracker.
    pub pidfd: OwnedFd,
    pub console: UnixStream,
    pub status: UnixStream,
}

impl Output {
    /// Takes it apart in a thread of its own, to its end.
    pub fn serve(self) {
        thread::spawn(move || {
            let console = self.console.try_clone();
            if let Err(error) = self.run() {
                eprintln!("unilith: the console is no longer read: {error}");
            }
            // Whoever waits for what is typed has the socket as well.
            if let Ok(console) = console {
                let _ = console.shutdown(Shutdown::Both);
            }
        });
    }

    fn run(self) -> io::Result<()> {
        let Output { mut from, end, pidfd, mut console, mut status } = self;
        wait(&from, pidfd)?;
        let flags = fcntl_getfl(&end)?;
        fcntl_setfl(&end, flags - OFlags::NONBLOCK)?;
        // As long as it is open there is no end.
        drop(end);
        let mut decoder = PortDecoder::new();
        let mut piece = [0; PIECE];
        let (mut printed, mut told) = (Vec::with_capacity(PIECE), Vec::new());
        loop {
            let length = match from.read(&mut piece) {
                Ok(0) => return Ok(()),
                Ok(length) => length,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                Err(e) => return Err(e),
            };
            printed.clear();
            told.clear();
            decoder.push(&piece[..length], &mut printed, &mut told);
            // Nobody may read either any more: Firecracker is not to wait for that.
            let _ = console.write_all(&printed);
            let _ = status.write_all(&told);
        }
    }
}

/// Waits for the first byte, or for the end of Firecracker.
fn wait(from: &PipeReader, pidfd: OwnedFd) -> io::Result<()> {
    let mut both =
        [PollFd::from_borrowed_fd(from.as_fd(), PollFlags::IN), PollFd::new(&pidfd, PollFlags::IN)];
    loop {
        match poll(&mut both, None) {
            Err(rustix::io::Errno::INTR) => {}
            other => return other.map(drop).map_err(io::Error::from),
        }
    }
}

/// Copies what is typed to Firecracker's standard input, from a thread of its own: its end must not be the console's, which
/// Firecracker would make non-blocking as well.
pub fn feed(mut console: UnixStream, mut input: PipeWriter) {
    thread::spawn(move || {
        let mut piece = [0; PIECE];
        // Not `io::copy`: it would use splice(2), which holds the pipe's lock while it waits for what is typed, and Firecracker
        // could neither read nor end.
        while let Ok(length @ 1..) = console.read(&mut piece) {
            if input.write_all(&piece[..length]).is_err() {
                return;
            }
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use api_boot::{STATUS_BEGIN, STATUS_END};
    use std::{
        process::{Child, Command},
        time::{Duration, Instant},
    };

    /// A monitor that does what this shell script says, and the ends of its machine's console and status lines.
    fn monitor(script: &str) -> (Child, UnixStream, UnixStream) {
        let (from, to) = io::pipe().unwrap();
        let (input, input_end) = io::pipe().unwrap();
        let end = to.try_clone().unwrap();
        let mut child = Command::new("sh").args(["-c", script]).stdin(input).stdout(to).spawn().unwrap();
        let pid = rustix::process::Pid::from_child(&child);
        let pidfd = match rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty()) {
            Ok(pidfd) => pidfd,
            Err(error) => {
                child.kill().unwrap();
                panic!("no pidfd: {error}");
            }
        };
        let ((console, console_end), (status, status_end)) =
            (UnixStream::pair().unwrap(), UnixStream::pair().unwrap());
        feed(console_end.try_clone().unwrap(), input_end);
        Output { from, end, pidfd, console: console_end, status: status_end }.serve();
        (child, console, status)
    }

    fn all(mut stream: UnixStream) -> Vec<u8> {
        let mut bytes = Vec::new();
        stream.read_to_end(&mut bytes).unwrap();
        bytes
    }

    #[test]
    fn both_streams_come_out_apart_and_end_with_the_monitor() {
        let line = [&b"hello\n"[..], &STATUS_BEGIN, b"exit 3\n", &STATUS_END, b"more\n"].concat();
        let octal: String = line.iter().map(|byte| format!("\\{byte:03o}")).collect();
        let (mut child, console, status) = monitor(&format!("printf '{octal}'"));
        assert_eq!((all(console), all(status)), (b"hello\nmore\n".to_vec(), b"exit 3\n".to_vec()));
        child.wait().unwrap();
    }

    #[test]
    fn what_is_typed_reaches_the_monitor_while_it_prints() {
        let (mut child, mut console, _status) = monitor("echo ready; read line; echo \"got $line\"");
        console.write_all(b"hello\n").unwrap();
        assert_eq!(all(console), b"ready\ngot hello\n");
        child.wait().unwrap();
    }

    #[test]
    fn a_monitor_that_says_nothing_ends_both() {
        let (mut child, console, status) = monitor(":");
        assert_eq!((all(console), all(status)), (Vec::new(), Vec::new()));
        child.wait().unwrap();
    }

    #[test]
    fn nothing_is_lost_of_a_machine_that_prints_more_than_is_read() {
        // As Firecracker does it: the output does not block, and what it does not take is lost.
        let script = "python3 -c '
import os
os.set_blocking(1, False)
os.write(1, b\"x\")
import time
while not os.get_blocking(1): time.sleep(0.001)
for _ in range(1024):
    piece = b\"y\" * 4096
    while piece:
        piece = piece[os.write(1, piece):]
'";
        let (mut child, console, _status) = monitor(script);
        // Nobody reads for a moment: until the writer sleeps in its write.
        let begin = Instant::now();
        let is_asleep = |pid| {
            std::fs::read_to_string(format!("/proc/{pid}/wchan")).is_ok_and(|w| w.contains("pipe"))
                || begin.elapsed() > Duration::from_secs(2)
        };
        while !is_asleep(child.id()) {
            thread::yield_now();
        }
        assert_eq!(all(console).len(), 1 + 1024 * 4096);
        assert!(child.wait().unwrap().success());
    }
}
