// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What Cloud Hypervisor's serial port reads: its standard input, and only if that is a terminal. It gets one of its own, which
//! passes all bytes on as they are.
//!
//! Cloud Hypervisor reads it at once, whether the machine does or not, and turns a line feed that arrives alone into a carriage
//! return: plain streams are sent without any.

use rustix::{
    pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt},
    termios::{OptionalActions, tcgetattr, tcsetattr},
};
use std::{
    fs::File,
    io::{self, Read, Write},
    os::{
        fd::OwnedFd,
        unix::{ffi::OsStrExt, net::UnixStream},
    },
    thread,
};

/// Bytes that are read at once.
const PIECE: usize = 4096;

/// Both ends.
pub struct Terminal {
    /// What is written here the monitor reads. The monitor ends the machine when it is closed.
    pub ours: File,
    pub monitors: OwnedFd,
}

/// Makes a terminal.
pub fn make() -> io::Result<Terminal> {
    let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)?;
    grantpt(&ours)?;
    unlockpt(&ours)?;
    let name = ptsname(&ours, Vec::new())?;
    let path = std::ffi::OsStr::from_bytes(name.as_bytes());
    let monitors = File::from(rustix::fs::open(
        path,
        rustix::fs::OFlags::RDWR | rustix::fs::OFlags::NOCTTY | rustix::fs::OFlags::CLOEXEC,
        rustix::fs::Mode::empty(),
    )?);
    let mut modes = tcgetattr(&monitors)?;
    modes.make_raw();
    tcsetattr(&monitors, OptionalActions::Now, &modes)?;
    Ok(Terminal { ours: File::from(ours), monitors: monitors.into() })
}

/// Copies what is typed to the terminal, from a thread of its own. `is_plain`: the machine's streams are no terminal.
pub fn feed(mut console: UnixStream, mut to: File, is_plain: bool) {
    thread::spawn(move || {
        let mut piece = [0; PIECE];
        while let Ok(length @ 1..) = console.read(&mut piece) {
            let bytes = &piece[..length];
            let written = match is_plain {
                true => to.write_all(&api_boot::escape_line_feeds(bytes)),
                false => to.write_all(bytes),
            };
            if written.is_err() {
                return;
            }
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_bytes_arrive_as_they_are_and_line_feeds_escaped() {
        let terminal = make().unwrap();
        let (mut typed, console) = UnixStream::pair().unwrap();
        feed(console, terminal.ours.try_clone().unwrap(), true);
        let all: Vec<u8> = (0..=255).collect();
        typed.write_all(&all).unwrap();
        let expected = api_boot::escape_line_feeds(&all);
        let (mut arrived, mut monitors) = (vec![0; expected.len()], File::from(terminal.monitors));
        monitors.read_exact(&mut arrived).unwrap();
        assert_eq!(arrived, expected);
    }

    #[test]
    fn a_terminal_of_the_users_is_sent_what_is_typed() {
        let terminal = make().unwrap();
        let (mut typed, console) = UnixStream::pair().unwrap();
        feed(console, terminal.ours.try_clone().unwrap(), false);
        typed.write_all(b"a\n\x03\r").unwrap();
        let mut arrived = [0; 4];
        File::from(terminal.monitors).read_exact(&mut arrived).unwrap();
        assert_eq!(&arrived, b"a\n\x03\r");
    }
}
