// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Many clients at one port: QEMU's character device serves one, so the supervisor is that one and passes frames on.
//!
//! Each client is a session with a number of its own; clients do not see the number and cannot choose it. Only whole frames
//! reach the machine: a client that dies in the middle of one leaves nothing behind, and its session is closed for it.

use overlay_wire::{Decoder, Frame, Kind, frame};
use std::{
    collections::BTreeMap,
    io::{self, Read, Write},
    net::Shutdown,
    os::unix::net::{UnixListener, UnixStream},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
        mpsc::{Receiver, Sender, channel},
    },
    thread,
};

/// Bytes that may wait for a client. It has at most 16 commands with a window of 128 KiB each; a machine that sends more
/// does not keep to the protocol.
const MAX_WAITING: usize = 4 << 20;
/// Bytes read at once.
const PIECE: usize = 64 << 10;

struct Client {
    stream: UnixStream,
    queue: Sender<Vec<u8>>,
    waiting: Arc<AtomicUsize>,
}

struct Shared {
    port: Mutex<UnixStream>,
    clients: Mutex<BTreeMap<u32, Client>>,
}

/// A panic of one client's thread must not take the others' line away.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Serves the clients of `listener` over `port`, on threads of its own, until the port ends.
pub fn serve(port: UnixStream, listener: UnixListener) -> io::Result<()> {
    let reader = port.try_clone()?;
    let shared = Arc::new(Shared { port: Mutex::new(port), clients: Mutex::new(BTreeMap::new()) });
    let machine = shared.clone();
    thread::Builder::new().name("overlay-port".into()).spawn(move || machine.read_port(reader))?;
    thread::Builder::new().name("overlay-clients".into()).spawn(move || {
        let mut next: u32 = 1;
        for stream in listener.incoming().flatten() {
            while next == 0 || lock(&shared.clients).contains_key(&next) {
                next = next.wrapping_add(1);
            }
            // Without a thread for it the client finds its connection closed.
            let _ = shared.admit(next, stream);
            next = next.wrapping_add(1);
        }
    })?;
    Ok(())
}

impl Shared {
    fn admit(self: &Arc<Shared>, session: u32, stream: UnixStream) -> io::Result<()> {
        let (reader, writer) = (stream.try_clone()?, stream.try_clone()?);
        let (queue, frames) = channel();
        let waiting = Arc::new(AtomicUsize::new(0));
        lock(&self.clients).insert(session, Client { stream, queue, waiting: waiting.clone() });
        let spawned =
            thread::Builder::new().spawn(move || write_client(writer, &frames, &waiting)).and_then(|_| {
                let shared = self.clone();
                thread::Builder::new().spawn(move || shared.read_client(session, reader))
            });
        if let Err(e) = spawned {
            self.dismiss(session);
            return Err(e);
        }
        Ok(())
    }

    /// Passes a client's frames on until it goes.
    fn read_client(&self, session: u32, mut stream: UnixStream) {
        let mut decoder = Decoder::new();
        let mut buffer = vec![0; PIECE];
        while let Ok(length) = stream.read(&mut buffer) {
            if length == 0 {
                break;
            }
            decoder.feed(&buffer[..length], |f| {
                self.tell_machine(&frame(f.kind, session, f.request, f.payload))
            });
            if decoder.take_skipped() > 0 {
                break;
            }
        }
        self.dismiss(session);
        self.tell_machine(&frame(Kind::CLOSE, session, 0, b""));
    }

    fn tell_machine(&self, bytes: &[u8]) {
        // A port that is gone ends the reader of the port, which ends everything.
        let _ = lock(&self.port).write_all(bytes);
    }

    fn dismiss(&self, session: u32) {
        if let Some(client) = lock(&self.clients).remove(&session) {
            // It may have gone by itself.
            let _ = client.stream.shutdown(Shutdown::Both);
        }
    }

    /// Passes the machine's frames on until it ends.
    fn read_port(&self, mut port: UnixStream) {
        let mut decoder = Decoder::new();
        let mut buffer = vec![0; PIECE];
        while let Ok(length) = port.read(&mut buffer) {
            if length == 0 {
                break;
            }
            decoder.feed(&buffer[..length], |f| self.tell_client(f));
        }
        let all = std::mem::take(&mut *lock(&self.clients));
        for client in all.into_values() {
            let _ = client.stream.shutdown(Shutdown::Both);
        }
    }

    fn tell_client(&self, Frame { kind, session, request, payload }: Frame<'_>) {
        let crowded = {
            let clients = lock(&self.clients);
            let Some(client) = clients.get(&session) else { return };
            let bytes = frame(kind, 0, request, payload);
            let waiting = client.waiting.fetch_add(bytes.len(), Ordering::Relaxed) + bytes.len();
            waiting > MAX_WAITING || client.queue.send(bytes).is_err()
        };
        if crowded {
            self.dismiss(session);
        }
    }
}

fn write_client(mut stream: UnixStream, frames: &Receiver<Vec<u8>>, waiting: &AtomicUsize) {
    for bytes in frames {
        if stream.write_all(&bytes).is_err() {
            // Ends the reader as well, which dismisses the client.
            let _ = stream.shutdown(Shutdown::Both);
            return;
        }
        waiting.fetch_sub(bytes.len(), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    /// Reads frames until there are `count`.
    fn frames(stream: &mut UnixStream, count: usize) -> Vec<(u8, u32, u32, Vec<u8>)> {
        stream.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        let (mut decoder, mut out, mut buffer) = (Decoder::new(), Vec::new(), [0; 4096]);
        while out.len() < count {
            let n = stream.read(&mut buffer).unwrap();
            assert!(n > 0, "the stream ended after {} of {count} frames", out.len());
            decoder.feed(&buffer[..n], |f| out.push((f.kind.0, f.session, f.request, f.payload.to_vec())));
        }
        out
    }

    struct World {
        machine: UnixStream,
        folder: tempfile::TempDir,
    }

    fn world() -> World {
        let folder = tempfile::tempdir().unwrap();
        let (machine, port) = UnixStream::pair().unwrap();
        serve(port, crate::socket::listen(folder.path()).unwrap()).unwrap();
        World { machine, folder }
    }

    #[test]
    fn clients_have_sessions_of_their_own_and_get_their_own_answers() {
        let mut world = world();
        let mut clients = [0, 1].map(|_| crate::socket::connect(world.folder.path()).unwrap());
        let mut sessions = Vec::new();
        for (i, client) in clients.iter_mut().enumerate() {
            // A session number that the client invents does not count.
            client.write_all(&frame(Kind::PING, 77, 0, &[i as u8])).unwrap();
            let got = frames(&mut world.machine, 1);
            sessions.push(got[0].1);
        }
        assert!(sessions[0] != sessions[1] && !sessions.contains(&77) && !sessions.contains(&0));
        for (i, session) in sessions.iter().enumerate() {
            world.machine.write_all(&frame(Kind::PONG, *session, 3, &[i as u8])).unwrap();
        }
        for (i, client) in clients.iter_mut().enumerate() {
            assert_eq!(frames(client, 1), [(Kind::PONG.0, 0, 3, vec![i as u8])]);
        }
    }

    #[test]
    fn a_client_that_dies_in_a_frame_leaves_nothing_but_the_end_of_its_session() {
        let mut world = world();
        let mut client = crate::socket::connect(world.folder.path()).unwrap();
        client.write_all(&frame(Kind::HELLO, 0, 0, b"x")).unwrap();
        let session = frames(&mut world.machine, 1)[0].1;
        client.write_all(&frame(Kind::STDIN, 0, 1, &[0; 500])[..100]).unwrap();
        drop(client);
        assert_eq!(frames(&mut world.machine, 1), [(Kind::CLOSE.0, session, 0, vec![])]);
    }

    #[test]
    fn a_client_that_speaks_no_frames_is_dismissed() {
        let mut world = world();
        let mut client = crate::socket::connect(world.folder.path()).unwrap();
        client.write_all(b"GET / HTTP/1.1\r\n\r\n and more than a header\n").unwrap();
        assert_eq!(frames(&mut world.machine, 1)[0].0, Kind::CLOSE.0);
        client.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        assert_eq!(client.read(&mut [0; 10]).unwrap_or(0), 0);
    }

    #[test]
    fn a_flood_from_the_machine_costs_the_client_its_connection_and_nobody_memory() {
        let mut world = world();
        let mut client = crate::socket::connect(world.folder.path()).unwrap();
        client.write_all(&frame(Kind::HELLO, 0, 0, b"x")).unwrap();
        let session = frames(&mut world.machine, 1)[0].1;
        // The client reads nothing of it.
        let part = frame(Kind::STDOUT, session, 1, &vec![0; overlay_wire::MAX_PAYLOAD]);
        for _ in 0..2 * MAX_WAITING / part.len() {
            world.machine.write_all(&part).unwrap();
        }
        assert_eq!(frames(&mut world.machine, 1), [(Kind::CLOSE.0, session, 0, vec![])]);
    }
}
