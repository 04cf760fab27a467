// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Volumes of machines that are processes: a server of 9P2000.L (messages as in diod's `protocol.md` and QEMU's `-virtfs`)
//! over a stream socket.
//!
//! **Confinement.** The client is the kernel of a machine whose program may have taken it over; its messages are not
//! trusted. A handle (fid) is an `O_PATH` descriptor. The only way to a new one is a name of one component, which is
//! never `..`, opened beneath a directory's descriptor without following links (`openat2` with `RESOLVE_BENEATH`,
//! `RESOLVE_NO_SYMLINKS`, `RESOLVE_NO_MAGICLINKS`). So no message leads out of the exported directory, whatever links
//! are made in it and whatever the host moves meanwhile. Symbolic links are data: the machine's kernel resolves them in
//! its own tree. Devices are neither made nor opened, nor FIFOs and sockets opened, for those would reach the host. A
//! read-only export refuses every message that changes something (`EROFS`). An export of plain files ([`Access`]) refuses links
//! and special files as well (`EPERM`): for a directory in which programs of the host follow names.
//!
//! **Gifts.** A client that is a process of this host is given the files that it opens (`SCM_RIGHTS`), as a bind mount would let it: by
//! the descriptor it can do what it could ask for, for the server opened it as its export and its flags allow, and only regular files of
//! file systems whose calls wait for nobody but a disk.
//!
//! **Bounds.** A client has no more than its server allows ([`Limits`]), its attributes take no more than a mebibyte.
//!
//! **Ownership** is as with a bind mount: files belong to whom the machine's program says where the server may do that
//! (root), and to the server's user otherwise. Where the machine's users are others on the host ([`ids`]), each is translated.
//!
//! The crate knows nothing of machines; `unilith-machine` runs one [`serve`] for each volume in a thread. A [`Forest`] has trees that
//! come and go while its client runs: the files of a pod's containers.
#![forbid(unsafe_code)]

mod export;
mod fids;
mod forest;
pub mod ids;
pub mod server;
mod watches;
mod wire;

pub use export::{Access, Export, SITES, SiteTables};
pub use forest::{Forest, Planted};
pub use watches::Watches;

use rustix::{
    io::Errno,
    net::{RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, recv, sendmsg},
};
use server::{Gift, Server};
use std::{
    io::{self, IoSlice, Read, Write},
    mem::MaybeUninit,
    os::{fd::AsFd, unix::net::UnixStream},
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

/// Largest message: 256 KiB of data and what is around it.
pub const MAX_MESSAGE: u32 = (256 << 10) + wire::IO_HEADER;

/// What a client may have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// Descriptors of this process for its handles: more is `ENFILE`.
    pub descriptors: usize,
    /// Open files that it is given itself, for as long as its handle of them lives: beyond that, and where they cannot be given, it reads
    /// and writes them through the server. A client that keeps a file for longer keeps it from being unmounted, and no more.
    pub given: usize,
}

/// Serves one client until it hangs up. A client that breaks the framing is hung up on.
pub fn serve(
    export: Export,
    stream: UnixStream,
    limits: Limits,
    watches: Option<Arc<Watches>>,
) -> io::Result<()> {
    let mut server = Server::new(limits);
    server.watch(watches);
    // Who has one tree to attach to gives no name.
    server.add(b"", Arc::new(export));
    converse(stream, |serve| serve(&mut server))
}

/// A machine that ends while it is answered leaves what it does not read: that is an end as well.
fn converse(stream: UnixStream, with_server: impl FnMut(&mut dyn FnMut(&mut Server))) -> io::Result<()> {
    match answer_all(stream, with_server) {
        Err(e) if matches!(e.kind(), io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe) => Ok(()),
        result => result,
    }
}

/// How long the next request is waited for awake, where the last one came as soon: a processor that is let sleep takes longer to wake
/// than most requests take to be answered.
const AWAKE: Duration = Duration::from_micros(30);
/// What is read at a time.
const CHUNK: usize = 64 << 10;

fn answer_all(
    mut stream: UnixStream,
    mut with_server: impl FnMut(&mut dyn FnMut(&mut Server)),
) -> io::Result<()> {
    let (mut input, mut answer) = (Vec::new(), Vec::new());
    let mut chunk = vec![0; CHUNK];
    let mut is_quick = false;
    loop {
        let mut at = 0;
        while let Some((size, rest)) = input[at..].split_first_chunk::<4>() {
            let size = u32::from_le_bytes(*size);
            if !(wire::HEADER as u32..=MAX_MESSAGE).contains(&size) {
                return Err(io::ErrorKind::InvalidData.into());
            }
            let Some(message) = rest.get(..size as usize - 4) else { break };
            let mut sent = Ok(0);
            with_server(&mut |server| {
                let gift = server.answer(message, &mut answer);
                sent = gift.map_or(Ok(0), |gift| give(&stream, gift, server, &mut answer));
            });
            stream.write_all(&answer[sent?..])?;
            at += size as usize;
        }
        input.drain(..at);
        let (length, was_quick) = read_soon(&mut stream, &mut chunk, is_quick)?;
        is_quick = was_quick;
        match length {
            0 if input.is_empty() => return Ok(()),
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            _ => input.extend_from_slice(&chunk[..length]),
        }
    }
}

/// Sends an answer with the file that goes with it, which is then as good as received; how much of it was sent. Where the host refuses
/// that, nothing is, and the answer says so.
fn give(stream: &UnixStream, gift: Gift, server: &mut Server, answer: &mut [u8]) -> io::Result<usize> {
    let mut room = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let files = [gift.file.as_fd()];
    loop {
        let mut with = SendAncillaryBuffer::new(&mut room);
        with.push(SendAncillaryMessage::ScmRights(&files));
        match sendmsg(stream, &[IoSlice::new(answer)], &mut with, SendFlags::NOSIGNAL) {
            Ok(sent) => return Ok(sent),
            Err(Errno::INTR) => {}
            Err(error @ (Errno::PIPE | Errno::CONNRESET)) => return Err(error.into()),
            Err(_) => {
                server.keeps(&gift, answer);
                return Ok(0);
            }
        }
    }
}

/// Reads what comes next, and whether that was soon. `is_quick`: it is waited for awake at first.
fn read_soon(stream: &mut UnixStream, chunk: &mut [u8], is_quick: bool) -> io::Result<(usize, bool)> {
    let began = Instant::now();
    while is_quick && began.elapsed() < AWAKE {
        match recv(&*stream, &mut *chunk, RecvFlags::DONTWAIT) {
            Ok((length, _)) => return Ok((length, true)),
            // The client may be about to run on this processor.
            Err(Errno::AGAIN | Errno::INTR) => thread::yield_now(),
            Err(error) => return Err(error.into()),
        }
    }
    loop {
        match stream.read(chunk) {
            // One who sleeps is woken late.
            Ok(length) => return Ok((length, began.elapsed() < 4 * AWAKE)),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

#[cfg(test)]
mod tests;
