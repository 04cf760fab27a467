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

use std::{
    io::{self, Read, Write},
    os::unix::net::UnixStream,
    sync::Arc,
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

fn answer_all(mut stream: UnixStream, mut serve: impl FnMut(&[u8], &mut Vec<u8>)) -> io::Result<()> {
    let (mut message, mut answer) = (Vec::new(), Vec::new());
    loop {
        let mut size = [0; 4];
        match stream.read_exact(&mut size) {
            Ok(()) => {}
            Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => return Ok(()),
            Err(e) => return Err(e),
        }
        let size = u32::from_le_bytes(size);
        if !(wire::HEADER as u32..=MAX_MESSAGE).contains(&size) {
            return Err(io::ErrorKind::InvalidData.into());
        }
        message.resize(size as usize - 4, 0);
        stream.read_exact(&mut message)?;
        serve(&message, &mut answer);
        stream.write_all(&answer)?;
    }
}

#[cfg(test)]
mod tests;
