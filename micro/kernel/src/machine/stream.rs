// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What goes over streams to the host where the monitor has a socket device, and no console device with ports: the overlay's line,
//! its tools, and directories of the host. The machine connects: the host listens before the machine starts.

use abi::{Result, errno::ENODEV};
use api_lock::SpinLock;
use virtio::Device;
use virtio::vsock::{self, Stream};

/// How long the host may take to answer a connection.
const PATIENCE_NS: u64 = 30_000_000_000;
/// How long a thread waits before it looks again for a device that another one starts.
const AGAIN_NS: u64 = 1_000_000;

enum Socket {
    None,
    /// Found, and started by whoever needs it first: the program need not wait for it.
    Found(Device),
    Starting,
    Started,
    Failed,
}

static SOCKET: SpinLock<Socket> = SpinLock::new(Socket::None);

/// Keeps the socket device; there is one at most.
pub fn found(device: Device) {
    *SOCKET.lock() = Socket::Found(device);
}

/// The machine has a socket device.
#[cfg(feature = "overlay")]
pub fn is_there() -> bool {
    !matches!(*SOCKET.lock(), Socket::None)
}

/// Starts the device unless that was done.
pub fn start() -> Result<()> {
    loop {
        let mut socket = SOCKET.lock();
        match core::mem::replace(&mut *socket, Socket::Starting) {
            Socket::Found(device) => {
                drop(socket);
                let started = vsock::start(device);
                if let Err(e) = started {
                    log::error!("the socket device does not start: {e:?}");
                }
                *SOCKET.lock() = if started.is_ok() { Socket::Started } else { Socket::Failed };
                return started;
            }
            Socket::Starting => {
                drop(socket);
                api_sched::park(api_plat::now_ns() + AGAIN_NS);
            }
            state => {
                let is_started = matches!(state, Socket::Started);
                *socket = state;
                return if is_started { Ok(()) } else { Err(ENODEV) };
            }
        }
    }
}

fn connect(port: u32) -> Result<Stream> {
    start()?;
    Stream::connect(port, api_plat::now_ns() + PATIENCE_NS)
}

/// The overlay's line and its tools.
#[cfg(feature = "overlay")]
pub mod line {
    use super::PATIENCE_NS;
    use abi::{Result, errno::EAGAIN, errno::EIO};
    use alloc::sync::Arc;
    use alloc::vec::Vec;
    use api_boot::vsock::{LINE_PORT, TOOLS_PORT};
    use api_mem::PageFrame;
    use api_sched::WaitQueue;
    use overlay_line::Transport;
    use virtio::vsock::Stream;

    /// What is read of the line at a time.
    const PIECE: usize = 4096;
    /// How long a command waits before it tries anew to get a connection, of which others have all.
    const AGAIN_NS: u64 = 10_000_000;

    /// Without a connection nothing comes, and what is sent is lost.
    struct Line {
        stream: Option<Stream>,
        /// Where nobody is ever woken.
        silence: WaitQueue,
    }

    impl Transport for Line {
        fn receive(&self, to: &mut dyn FnMut(&[u8])) -> bool {
            let Some(stream) = &self.stream else { return false };
            let mut piece = [0; PIECE];
            let length = stream.read(&mut piece);
            // Without a lock: what is heeded may send.
            if length > 0 {
                to(&piece[..length]);
            }
            length > 0
        }

        fn send(&self, bytes: Vec<u8>) -> core::result::Result<(), Vec<u8>> {
            self.stream.as_ref().map_or(Ok(()), |stream| stream.send(bytes))
        }

        fn hang_ups(&self) -> u32 {
            self.stream.as_ref().is_some_and(Stream::has_ended).into()
        }

        fn events(&self) -> &WaitQueue {
            self.stream.as_ref().map_or(&self.silence, |stream| stream.events())
        }
    }

    /// Connects.
    pub fn open() -> Arc<dyn Transport> {
        plat_pc::set_tools_source(fetch);
        let stream = super::connect(LINE_PORT);
        let stream = stream.inspect_err(|e| log::warn!("the host has no overlay for this machine: {e:?}"));
        Arc::new(Line { stream: stream.ok(), silence: WaitQueue::new() })
    }

    /// Gets the tools over a connection of their own.
    fn fetch(pages: usize, each: &mut dyn FnMut(PageFrame)) -> Result<()> {
        let deadline = api_plat::now_ns() + PATIENCE_NS;
        let stream = loop {
            match super::connect(TOOLS_PORT) {
                Err(EAGAIN) if api_plat::now_ns() < deadline => {
                    api_sched::park(api_plat::now_ns() + AGAIN_NS);
                }
                other => break other?,
            }
        };
        for _ in 0..pages {
            each(stream.read_page(deadline)?);
        }
        // A host with another kernel's tools has more of them, or fewer.
        if stream.read_exact(&mut [0], deadline).is_ok() { Err(EIO) } else { Ok(()) }
    }
}

/// Directories of the host, over 9p with one request at a time, which is how the host answers them.
#[cfg(feature = "volumes")]
pub mod files {
    use abi::{
        Events, Result,
        errno::{EIO, ENOMEM},
    };
    use alloc::format;
    use alloc::sync::Arc;
    use alloc::vec::Vec;
    use api_alloc::Reserve;
    use api_boot::vsock::{FILES_PORT, VOLUME_PORT, VOLUME_PORTS};
    use api_lock::SpinLock;
    use api_sched::WaitQueue;
    use virtio::vsock::Stream;

    /// Largest message in either direction.
    const MAX_MESSAGE: usize = 512 << 10;
    /// Bytes of a message's length, which counts itself, and of the shortest message.
    const SIZE: usize = 4;
    const SHORTEST: usize = 7;

    /// A connection, which is made when it is needed first.
    enum State {
        New,
        Idle(Stream),
        Busy,
        Broken,
    }

    struct Export {
        port: u32,
        state: SpinLock<State>,
        /// Woken when it is no longer busy.
        free: WaitQueue,
    }

    /// Makes the directories known that the host may have for the machine; none is asked for before it is mounted.
    pub fn register() {
        let export =
            |port| Arc::new(Export { port, state: SpinLock::new(State::New), free: WaitQueue::new() });
        ninep::register("overlay", export(FILES_PORT));
        for n in 0..VOLUME_PORTS {
            ninep::register(&format!("v{n}"), export(VOLUME_PORT + n));
        }
    }

    impl Export {
        /// Takes the connection out; others wait until it is given back.
        fn take(&self) -> Result<Option<Stream>> {
            if let Some(taken) = self.try_take() {
                return taken;
            }
            let key = self.free.add(api_sched::current(), Events::IN, false);
            let taken = loop {
                match self.try_take() {
                    Some(taken) => break taken,
                    None => api_sched::park(u64::MAX),
                }
            };
            self.free.remove(key);
            taken
        }

        /// `None` while it is busy.
        fn try_take(&self) -> Option<Result<Option<Stream>>> {
            let mut state = self.state.lock();
            match core::mem::replace(&mut *state, State::Busy) {
                State::New => Some(Ok(None)),
                State::Idle(stream) => Some(Ok(Some(stream))),
                State::Busy => None,
                State::Broken => {
                    *state = State::Broken;
                    Some(Err(EIO))
                }
            }
        }

        fn give_back(&self, state: State) {
            *self.state.lock() = state;
            self.free.wake_all(Events::IN);
        }
    }

    /// Sends a request, and reads its reply into the capacity of `reply`. A longer one is cut: the client finds that it makes
    /// no sense.
    fn exchange(stream: &Stream, request: Vec<u8>, reply: &mut Vec<u8>) -> Result<()> {
        // All of the request before was sent, or there would have been no reply to it.
        stream.send(request).map_err(|_| EIO)?;
        let mut size = [0; SIZE];
        stream.read_exact(&mut size, u64::MAX)?;
        let length = u32::from_le_bytes(size) as usize;
        if !(SHORTEST..=MAX_MESSAGE).contains(&length) {
            log::error!("9p: the host's server sent {length} bytes as a message: the directory is gone");
            return Err(EIO);
        }
        let room = reply.capacity().min(length);
        if room < SIZE {
            return Err(EIO);
        }
        reply.clear();
        reply.extend_from_slice(&size);
        reply.resize(room, 0);
        stream.read_exact(&mut reply[SIZE..], u64::MAX)?;
        let mut left = length - room;
        let mut rest = [0; 256];
        while left > 0 {
            let count = left.min(rest.len());
            stream.read_exact(&mut rest[..count], u64::MAX)?;
            left -= count;
        }
        Ok(())
    }

    impl ninep::Transport for Export {
        fn call(&self, request: Vec<u8>, mut reply: Vec<u8>) -> Result<(Vec<u8>, Vec<u8>)> {
            let mut sent = Vec::new();
            sent.reserve_exact_fallibly(request.len()).map_err(|_| ENOMEM)?;
            sent.extend_from_slice(&request);
            let stream = match self.take()? {
                Some(stream) => Ok(stream),
                None => super::connect(self.port),
            };
            let stream = match stream {
                Ok(stream) => stream,
                Err(_) => {
                    // Another time the host may have it, or memory be there.
                    self.give_back(State::New);
                    return Err(EIO);
                }
            };
            match exchange(&stream, sent, &mut reply) {
                Ok(()) => self.give_back(State::Idle(stream)),
                Err(_) => {
                    self.give_back(State::Broken);
                    return Err(EIO);
                }
            }
            Ok((request, reply))
        }

        fn largest(&self) -> usize {
            MAX_MESSAGE
        }
    }
}
