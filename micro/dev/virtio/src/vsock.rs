// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The socket device (virtio 1.2, 5.10): streams to the host, for monitors that have no console device with ports. The protocol
//! is the crate `vsock`'s; here are the queues.

use crate::{Device, Queue, direction::Direction, feature};
use ::vsock::{Endpoint, Id, State};
use abi::{
    Events, PAGE_SIZE, Result,
    errno::{ECONNREFUSED, ECONNRESET, ENODEV, ENOMEM},
};
use alloc::vec::Vec;
use api_alloc::Reserve;
use api_boot::vsock::END_PORT;
use api_lock::SpinLock;
use api_mem::PageFrame;
use api_sched::WaitQueue;

/// Bytes of a packet with its header, both ways.
const PACKET: usize = 4096;
/// Packets each way that may be in flight.
const IN_FLIGHT: usize = 8;
const QUEUE_SIZE: u16 = IN_FLIGHT as u16;
/// The queues (5.10.2), and where the configuration has the context identifier (5.10.4).
const RECEIVE: u16 = 0;
const TRANSMIT: u16 = 1;
const EVENT: u16 = 2;
const GUEST_CID: usize = 0;

struct Socket {
    receive: Direction,
    transmit: Direction,
    /// Buffers that the device does not have.
    spare: Vec<Vec<u8>>,
    endpoint: Endpoint,
    /// Interrupts come for packets that were sent: some wait for a buffer.
    is_crowded: bool,
    /// Empty: it tells of migration only. But devices start with all of their queues or not at all.
    _events: Queue,
    _device: Device,
}

static SOCKET: SpinLock<Option<Socket>> = SpinLock::new(None);

/// Woken when any connection may have news (IN) or room (OUT).
static EVENTS: WaitQueue = WaitQueue::new();

/// Starts the device; a machine has one at most.
pub fn start(device: Device) -> Result<()> {
    if SOCKET.lock().is_some() {
        return Err(ENODEV);
    }
    let features = device.begin(feature::EVENT_IDX)?;
    let queue = |index| device.queue(index, QUEUE_SIZE, features).map(Direction::new);
    let (mut receive, mut transmit) = (queue(RECEIVE)?, queue(TRANSMIT)?);
    transmit.queue.disable_interrupts();
    let mut events = device.queue(EVENT, QUEUE_SIZE, features)?;
    events.disable_interrupts();
    let mut spare = Vec::new();
    spare.reserve_exact_fallibly(IN_FLIGHT).map_err(|_| ENOMEM)?;
    for _ in 0..IN_FLIGHT {
        // A queue of this size that is empty has room.
        let _ = receive.give(buffer()?, true);
        spare.push(buffer()?);
    }
    let endpoint = Endpoint::new(device.config_u64(GUEST_CID), END_PORT)?;
    device.on_interrupt(api_sched::add_deferred_work(poll))?;
    receive.queue.enable_interrupts();
    device.start();
    receive.queue.notify();
    *SOCKET.lock() = Some(Socket {
        receive,
        transmit,
        spare,
        endpoint,
        is_crowded: false,
        _events: events,
        _device: device,
    });
    // What came before it was known here raised the deferred work for nothing.
    poll();
    Ok(())
}

fn buffer() -> Result<Vec<u8>> {
    let mut buffer = Vec::new();
    buffer.reserve_exact_fallibly(PACKET).map_err(|_| ENOMEM)?;
    buffer.resize(PACKET, 0);
    Ok(buffer)
}

fn poll() {
    let is_asked_to_end = {
        let mut socket = SOCKET.lock();
        let Some(socket) = socket.as_mut() else { return };
        socket.collect();
        socket.push();
        socket.endpoint.take_request_to_end()
    };
    if is_asked_to_end {
        plat_pc::request_end();
    }
    EVENTS.wake_all(Events::IN | Events::OUT);
}

/// Does something to the connections, and sends what they then owe; `None` without a device.
fn with_socket<T>(act: impl FnOnce(&mut Socket) -> T) -> Option<T> {
    let (answer, has_drained) = {
        let mut socket = SOCKET.lock();
        let socket = socket.as_mut()?;
        let answer = act(socket);
        socket.push();
        (answer, socket.endpoint.take_drained())
    };
    if has_drained {
        EVENTS.wake_all(Events::OUT);
    }
    Some(answer)
}

impl Socket {
    /// Takes the packets that came, and gives the device their buffers again.
    fn collect(&mut self) {
        loop {
            while let Some((packet, length)) = self.receive.take() {
                self.endpoint.receive(&packet[..length]);
                // The descriptor that was just freed takes it.
                let _ = self.receive.give(packet, true);
                // Each is answered before the next one, so that a flood finds its answers sent.
                self.push();
            }
            self.receive.queue.notify();
            if self.receive.queue.enable_interrupts() || self.receive.queue.is_broken() {
                return;
            }
        }
    }

    /// Sends the packets that are to go.
    fn push(&mut self) {
        loop {
            while let Some((mut packet, _)) = self.transmit.take() {
                packet.resize(PACKET, 0);
                self.spare.push(packet);
            }
            while let Some(mut packet) = self.spare.pop() {
                let length = self.endpoint.transmit(&mut packet);
                if length == 0 {
                    self.spare.push(packet);
                    self.transmit.queue.notify();
                    if core::mem::take(&mut self.is_crowded) {
                        self.transmit.queue.disable_interrupts();
                    }
                    return;
                }
                packet.truncate(length);
                // There are as many descriptors as buffers; a broken queue takes none, and keeps what it was given.
                if self.transmit.give(packet, false).is_err() {
                    return;
                }
            }
            self.transmit.queue.notify();
            self.is_crowded = true;
            if self.transmit.queue.enable_interrupts() || self.transmit.queue.is_broken() {
                return;
            }
        }
    }
}

/// A connection to the host, which is closed when it is dropped.
pub struct Stream {
    id: Id,
}

impl Drop for Stream {
    fn drop(&mut self) {
        with_socket(|socket| socket.endpoint.close(self.id));
    }
}

/// A registration in [`EVENTS`] for as long as it lives.
struct Registration(api_sched::WaitKey);

impl Registration {
    fn new() -> Registration {
        Registration(EVENTS.add(api_sched::current(), Events::IN | Events::OUT, false))
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        EVENTS.remove(self.0);
    }
}

impl Stream {
    /// Connects to a port of the host, and waits for its answer until `deadline_ns`. `ENODEV` without a device, `EAGAIN` while
    /// there are too many connections, `ECONNREFUSED` when the host refuses, or does not answer in time.
    pub fn connect(port: u32, deadline_ns: u64) -> Result<Stream> {
        let connected = with_socket(|socket| socket.endpoint.connect(port));
        let stream = Stream { id: connected.ok_or(ENODEV)?? };
        let _registration = Registration::new();
        loop {
            match stream.state() {
                State::Open => return Ok(stream),
                State::Connecting if api_plat::now_ns() < deadline_ns => api_sched::park(deadline_ns),
                State::Connecting | State::Ended => return Err(ECONNREFUSED),
            }
        }
    }

    fn state(&self) -> State {
        SOCKET.lock().as_ref().map_or(State::Ended, |socket| socket.endpoint.state(self.id))
    }

    /// The host's end is gone; what came before may still be read.
    pub fn has_ended(&self) -> bool {
        self.state() == State::Ended
    }

    /// Takes bytes that came; 0 when there are none.
    pub fn read(&self, to: &mut [u8]) -> usize {
        with_socket(|socket| socket.endpoint.read(self.id, to)).unwrap_or(0)
    }

    /// Fills `to`, waiting for the bytes until `deadline_ns`; `ECONNRESET` when they do not come.
    pub fn read_exact(&self, mut to: &mut [u8], deadline_ns: u64) -> Result<()> {
        let _registration = Registration::new();
        while !to.is_empty() {
            // Looked at first: what came before the end is read behind it.
            let has_ended = self.has_ended();
            let length = self.read(to);
            to = &mut to[length..];
            if length == 0 {
                if has_ended || api_plat::now_ns() >= deadline_ns {
                    return Err(ECONNRESET);
                }
                api_sched::park(deadline_ns);
            }
        }
        Ok(())
    }

    /// The next page of what comes, as [`Stream::read_exact`].
    pub fn read_page(&self, deadline_ns: u64) -> Result<PageFrame> {
        let frame = PageFrame::new()?;
        // SAFETY: the frame is new and nobody else's, and the kernel sees all of its page.
        let page = unsafe { core::slice::from_raw_parts_mut(frame.bytes(), PAGE_SIZE) };
        self.read_exact(page, deadline_ns)?;
        Ok(frame)
    }

    /// Sends the bytes, or gives them back while others wait; [`Stream::events`] is woken then.
    pub fn send(&self, bytes: Vec<u8>) -> core::result::Result<(), Vec<u8>> {
        // Without a device there is no stream.
        with_socket(|socket| socket.endpoint.send(self.id, bytes)).unwrap_or(Ok(()))
    }

    /// Woken when bytes came or the connection ended (IN), and when there may be room (OUT).
    pub fn events(&self) -> &'static WaitQueue {
        &EVENTS
    }
}
