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
//! **Bounds.** A client's handles take no more descriptors than its server allows, their attributes no more than a mebibyte.
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
    net::{RecvFlags, recv},
};
use std::{
    io::{self, Read, Write},
    os::unix::net::UnixStream,
    sync::Arc,
    time::{Duration, Instant},
};

/// Largest message: 256 KiB of data and what is around it.
pub const MAX_MESSAGE: u32 = (256 << 10) + wire::IO_HEADER;

/// Serves one client until it hangs up. A client that breaks the framing is hung up on; one that wants more than this many
/// `descriptors` of this process for its handles is told `ENFILE`.
pub fn serve(
    export: Export,
    stream: UnixStream,
    descriptors: usize,
    watches: Option<Arc<Watches>>,
) -> io::Result<()> {
    let mut server = server::Server::new(descriptors);
    server.watch(watches);
    // Who has one tree to attach to gives no name.
    server.add(b"", Arc::new(export));
    converse(stream, |message, answer| server.answer(message, answer))
}

/// A machine that ends while it is answered leaves what it does not read: that is an end as well.
fn converse(stream: UnixStream, serve: impl FnMut(&[u8], &mut Vec<u8>)) -> io::Result<()> {
    match answer_all(stream, serve) {
        Err(e) if matches!(e.kind(), io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe) => Ok(()),
        result => result,
    }
}

/// How long the next request is waited for awake, where the last one came as soon: a processor that is let sleep takes longer to wake
/// than most requests take to be answered.
const AWAKE: Duration = Duration::from_micros(30);
/// What is read at a time.
const CHUNK: usize = 64 << 10;

fn answer_all(mut stream: UnixStream, mut serve: impl FnMut(&[u8], &mut Vec<u8>)) -> io::Result<()> {
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
            serve(message, &mut answer);
            stream.write_all(&answer)?;
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

/// Reads what comes next, and whether that was soon. `is_quick`: it is waited for awake at first.
fn read_soon(stream: &mut UnixStream, chunk: &mut [u8], is_quick: bool) -> io::Result<(usize, bool)> {
    let began = Instant::now();
    while is_quick && began.elapsed() < AWAKE {
        match recv(&*stream, &mut *chunk, RecvFlags::DONTWAIT) {
            Ok((length, _)) => return Ok((length, true)),
            Err(Errno::AGAIN | Errno::INTR) => std::hint::spin_loop(),
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
