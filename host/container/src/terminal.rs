// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A pseudo-terminal for a container: the engine gets its controlling side over the console socket, as runc sends it
//! (docs/terminals.md of runc), and the machine's console is joined to the other side.

use crate::{ContainerError, Result};
use rustix::{
    fs::{Mode, OFlags},
    net::{
        RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
        SendFlags, recvmsg, sendmsg,
    },
    pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt},
    termios::{OptionalActions, tcgetattr, tcsetattr},
};
use std::{
    fs::File,
    io::{self, IoSlice, IoSliceMut},
    mem::MaybeUninit,
    os::{
        fd::{AsFd, OwnedFd},
        unix::net::{UnixListener, UnixStream},
    },
    path::Path,
};

/// Makes a terminal, sends its controlling side to the engine and returns the other, which passes every byte on: echo and
/// lines are the machine's business.
pub fn give(console_socket: &Path) -> Result<File> {
    let failed = |e: io::Error| ContainerError::Terminal(e);
    let socket = UnixStream::connect(console_socket)
        .map_err(|e| failed(io::Error::new(e.kind(), format!("{}: {e}", console_socket.display()))))?;
    let (master, slave) = open().map_err(|e| failed(e.into()))?;
    let name = b"/dev/ptmx";
    let descriptors = [master.as_fd()];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    control.push(SendAncillaryMessage::ScmRights(&descriptors));
    sendmsg(&socket, &[IoSlice::new(name)], &mut control, SendFlags::empty())
        .map_err(|e| failed(e.into()))?;
    Ok(File::from(slave))
}

/// Waits for a terminal's controlling side on a console socket, as an engine does.
pub fn take(console_socket: &UnixListener) -> Result<File> {
    let failed = |e: io::Error| ContainerError::Terminal(e);
    let (socket, _) = console_socket.accept().map_err(failed)?;
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut name = [0; 64];
    recvmsg(&socket, &mut [IoSliceMut::new(&mut name)], &mut control, RecvFlags::CMSG_CLOEXEC)
        .map_err(|e| failed(e.into()))?;
    let master = control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
        _ => None,
    });
    master.map(File::from).ok_or_else(|| failed(io::ErrorKind::UnexpectedEof.into()))
}

fn open() -> rustix::io::Result<(OwnedFd, OwnedFd)> {
    let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)?;
    grantpt(&master)?;
    unlockpt(&master)?;
    let name = ptsname(&master, Vec::new())?;
    let slave = rustix::fs::open(&*name, OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC, Mode::empty())?;
    let mut settings = tcgetattr(&slave)?;
    settings.make_raw();
    tcsetattr(&slave, OptionalActions::Now, &settings)?;
    Ok((master, slave))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};

    #[test]
    fn the_engine_gets_the_controlling_side_of_a_terminal_that_changes_no_byte() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("console");
        let listener = UnixListener::bind(&path).unwrap();
        let mut slave = give(&path).unwrap();
        let mut master = take(&listener).unwrap();
        slave.write_all(b"a\nb").unwrap();
        let mut got = [0; 3];
        master.read_exact(&mut got).unwrap();
        assert_eq!(&got, b"a\nb");
        master.write_all(b"\x03\r").unwrap();
        slave.read_exact(&mut got[..2]).unwrap();
        assert_eq!(&got[..2], b"\x03\r");
    }

    #[test]
    fn a_socket_that_is_not_there_is_named() {
        let error = give(Path::new("/no/such/socket")).unwrap_err().to_string();
        assert!(error.contains("/no/such/socket"), "{error}");
    }
}
