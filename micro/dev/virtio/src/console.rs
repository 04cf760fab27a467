// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The console device with several ports (virtio 1.2, 5.3): byte channels to the host with names.
//!
//! Ports are numbered from 0; port 0 is the old console and is not used here. Which name a port has, and whether
//! somebody on the host has it open, the device says over its control queues; a port is used from then on by whoever
//! asks for its name.

use crate::{Device, direction::Direction, feature};
use abi::{
    Events, Result,
    errno::{EAGAIN, ENODEV, ENOMEM},
};
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use api_alloc::Reserve;
use api_lock::SpinLock;
use api_sched::WaitQueue;

/// The device has more ports than one, and control queues (5.3.3).
const F_MULTIPORT: u64 = 1 << 1;
/// Where the configuration says how many (5.3.4).
const MAX_PORTS: usize = 4;
/// Ports that are used of a device, port 0 not counted.
const MAX_DRIVEN_PORTS: u32 = 4;
/// Queues of the control messages; those of port n are at [`queue_of`].
const CONTROL_RECEIVE: u16 = 2;
const CONTROL_TRANSMIT: u16 = 3;
/// Control messages each way that may be in flight: the device sends three for each port it adds.
const CONTROL_SIZE: u16 = 16;
/// A control message with the longest name that is read (5.3.6.2).
const CONTROL_BYTES: usize = 8 + 64;
/// Descriptors of a port's queues.
const PORT_SIZE: u16 = 16;
/// Receive buffers of a port: QEMU hands over what a socket read of at most 4 KiB gave.
const RECEIVE_BUFFERS: usize = 8;
const RECEIVE_BYTES: usize = 4096;

/// What a port that only sends may have on the way.
const SEND_BUFFERS: usize = 8;

/// Control events (5.3.6.2).
mod event {
    pub const DEVICE_READY: u16 = 0;
    pub const PORT_ADD: u16 = 1;
    pub const PORT_REMOVE: u16 = 2;
    pub const PORT_READY: u16 = 3;
    pub const PORT_OPEN: u16 = 6;
    pub const PORT_NAME: u16 = 7;
}

/// The device's own number in control messages about no port.
const NO_PORT: u32 = u32::MAX;

struct PortState {
    receive: Direction,
    transmit: Direction,
    /// Somebody waits for room in `transmit`.
    crowded: bool,
    /// There was some since, whoever has it now.
    has_made_room: bool,
    name: String,
    /// Opened by us: the device has receive buffers.
    used: bool,
    /// Opened by somebody on the host.
    connected: bool,
    /// How often the host's side was closed.
    hang_ups: u32,
    /// Of a port that sends pieces: buffers that are not on the way, and what is called when there are some again, or something came.
    spare: Vec<Vec<u8>>,
    on_event: Option<fn()>,
}

impl PortState {
    /// Takes back the buffers that the device has sent. All do it here: who takes them may not be who waits for them.
    fn take_back(&mut self) {
        while let Some((buffer, _)) = self.transmit.take() {
            self.has_made_room = true;
            if self.spare.len() < self.spare.capacity() {
                self.spare.push(buffer);
            }
        }
    }

    /// All buffers of a port that sends pieces are back. Neither allocates nor frees.
    fn is_drained(&mut self) -> bool {
        self.take_back();
        self.spare.len() == SEND_BUFFERS || self.transmit.queue.is_broken()
    }

    /// Gives the device buffers of a queue that is empty and larger.
    fn receive_into(&mut self, buffers: impl Iterator<Item = Vec<u8>>) {
        for buffer in buffers {
            let _ = self.receive.give(buffer, true);
        }
        self.receive.queue.enable_interrupts();
        self.receive.queue.notify();
    }

    /// Has somebody told of room. False: there is some already.
    fn await_room(&mut self) -> bool {
        (self.crowded, self.has_made_room) = (true, false);
        self.transmit.queue.enable_interrupts()
    }
}

/// Room for so many bytes.
fn buffer_of(bytes: usize) -> Result<Vec<u8>> {
    let mut buffer = Vec::new();
    buffer.reserve_exact_fallibly(bytes).map_err(|_| ENOMEM)?;
    Ok(buffer)
}

/// One named channel.
pub struct Port {
    number: u32,
    state: SpinLock<PortState>,
    /// IN: bytes came or the other side changed. OUT: there is room.
    events: WaitQueue,
}

struct Control {
    receive: Direction,
    transmit: Direction,
}

/// A console device.
pub struct Console {
    control: SpinLock<Control>,
    ports: Vec<Arc<Port>>,
    _device: Device,
}

static CONSOLES: SpinLock<Vec<Arc<Console>>> = SpinLock::new(Vec::new());

/// The first queue of a port behind port 0 (5.3.2).
fn queue_of(port: u32) -> u16 {
    (2 + 2 * port) as u16
}

/// Starts the device. `ENODEV` when it has one port only.
pub fn start(device: Device) -> Result<()> {
    let features = device.begin(feature::EVENT_IDX | F_MULTIPORT)?;
    if features & F_MULTIPORT == 0 {
        device.fail();
        return Err(ENODEV);
    }
    let count = device.config_u32(MAX_PORTS).saturating_sub(1).min(MAX_DRIVEN_PORTS);
    let queue = |index, size| device.queue(index, size, features).map(Direction::new);
    let mut control = Control {
        receive: queue(CONTROL_RECEIVE, CONTROL_SIZE)?,
        transmit: queue(CONTROL_TRANSMIT, CONTROL_SIZE)?,
    };
    control.transmit.queue.disable_interrupts();
    let mut ports = Vec::new();
    for number in 1..=count {
        let (receive, mut transmit) =
            (queue(queue_of(number), PORT_SIZE)?, queue(queue_of(number) + 1, PORT_SIZE)?);
        transmit.queue.disable_interrupts();
        let state = PortState {
            receive,
            transmit,
            crowded: false,
            has_made_room: false,
            name: String::new(),
            used: false,
            connected: false,
            hang_ups: 0,
            spare: Vec::new(),
            on_event: None,
        };
        ports.push(Arc::new(Port { number, state: SpinLock::new(state), events: WaitQueue::new() }));
    }
    for _ in 0..CONTROL_SIZE {
        // A queue of this size that is empty has room.
        let _ = control.receive.give(alloc::vec![0; CONTROL_BYTES], true);
    }
    device.on_interrupt(api_sched::add_deferred_work(poll))?;
    control.receive.queue.enable_interrupts();
    device.start();
    control.receive.queue.notify();
    let console = Arc::new(Console { control: SpinLock::new(control), ports, _device: device });
    console.tell(NO_PORT, event::DEVICE_READY, 1);
    CONSOLES.lock().push(console);
    Ok(())
}

/// Calls `found` with each port that has a name, now.
pub fn find(name: &str) -> Option<Arc<Port>> {
    let consoles = CONSOLES.lock();
    consoles.iter().flat_map(|c| &c.ports).find(|port| port.state.lock().name == name).cloned()
}

/// Woken (IN) when a port got its name.
pub static NAMED: WaitQueue = WaitQueue::new();

fn poll() {
    let consoles = CONSOLES.lock().clone();
    for console in consoles {
        console.collect();
        for port in &console.ports {
            port.collect();
        }
    }
}

impl Console {
    /// Sends a control message.
    fn tell(&self, port: u32, event: u16, value: u16) {
        let mut message = port.to_le_bytes().to_vec();
        message.extend_from_slice(&event.to_le_bytes());
        message.extend_from_slice(&value.to_le_bytes());
        let mut control = self.control.lock();
        while control.transmit.take().is_some() {}
        if control.transmit.give(message, false).is_err() {
            log::error!("virtio console: the device does not take control messages");
        }
        control.transmit.queue.notify();
    }

    /// Takes the control messages that came.
    fn collect(&self) {
        loop {
            let message = {
                let mut control = self.control.lock();
                match control.receive.take() {
                    Some(taken) => taken,
                    None if control.receive.queue.enable_interrupts() => return,
                    None if control.receive.queue.is_broken() => return,
                    None => continue,
                }
            };
            let (buffer, length) = message;
            self.heed(&buffer[..length]);
            let mut control = self.control.lock();
            // The descriptor that was just freed takes it.
            let _ = control.receive.give(buffer, true);
            control.receive.queue.notify();
        }
    }

    fn heed(&self, message: &[u8]) {
        let Some((head, name)) = message.split_at_checked(8) else { return };
        let number = u32::from_le_bytes([head[0], head[1], head[2], head[3]]);
        let event = u16::from_le_bytes([head[4], head[5]]);
        let value = u16::from_le_bytes([head[6], head[7]]);
        let Some(port) = self.ports.iter().find(|p| p.number == number) else {
            if event == event::PORT_ADD {
                // A driver that has no use for a port says so (5.3.5).
                self.tell(number, event::PORT_READY, 0);
            }
            return;
        };
        match event {
            event::PORT_ADD => self.tell(number, event::PORT_READY, 1),
            event::PORT_NAME => {
                let name = name.split(|b| *b == 0).next().unwrap_or_default();
                port.state.lock().name = String::from_utf8_lossy(name).into_owned();
                NAMED.wake_all(Events::IN);
            }
            event::PORT_OPEN | event::PORT_REMOVE => {
                {
                    let mut state = port.state.lock();
                    let connected = event == event::PORT_OPEN && value == 1;
                    state.hang_ups = state.hang_ups.wrapping_add(u32::from(state.connected && !connected));
                    state.connected = connected;
                }
                port.events.wake_all(Events::IN | Events::OUT);
            }
            _ => {}
        }
    }
}

impl Port {
    /// Lets the host send: from now on bytes are received.
    pub fn open(&self) {
        if core::mem::replace(&mut self.state.lock().used, true) {
            return;
        }
        self.tell_open();
        // Buffers behind the message: QEMU looks again for bytes from the host when it gets buffers for an open port,
        // and at the message alone it does not.
        self.state.lock().receive_into((0..RECEIVE_BUFFERS).map(|_| alloc::vec![0; RECEIVE_BYTES]));
    }

    /// Has a port that sends pieces receive as well. False without memory for a buffer.
    pub fn begin_to_receive(&self) -> bool {
        let buffer = || {
            let mut buffer = buffer_of(RECEIVE_BYTES).ok()?;
            buffer.resize(RECEIVE_BYTES, 0);
            Some(buffer)
        };
        let buffers = [buffer(), buffer()];
        if buffers.iter().all(Option::is_none) {
            return false;
        }
        let mut state = self.state.lock();
        state.used = true;
        state.receive_into(buffers.into_iter().flatten());
        true
    }

    /// Opens a port that sends pieces of up to `piece` bytes ([`Port::send_copy`]) and takes nothing before [`Port::begin_to_receive`].
    /// `on_event` is called, as deferred work, when there is room again or something came. `ENOMEM` without memory for the
    /// buffers; the port is not opened then.
    pub fn open_to_send(&self, piece: usize, on_event: fn()) -> Result<()> {
        let mut spare = Vec::new();
        spare.reserve_exact_fallibly(SEND_BUFFERS).map_err(|_| ENOMEM)?;
        for _ in 0..SEND_BUFFERS {
            spare.push(buffer_of(piece)?);
        }
        {
            let mut state = self.state.lock();
            state.spare = spare;
            state.on_event = Some(on_event);
        }
        self.tell_open();
        Ok(())
    }

    fn tell_open(&self) {
        let consoles = CONSOLES.lock().clone();
        let console = consoles.iter().find(|c| c.ports.iter().any(|p| core::ptr::eq(&**p, self)));
        if let Some(console) = console {
            console.tell(self.number, event::PORT_OPEN, 1);
        }
    }

    /// Sends a copy of the bytes of a piece, or nothing and `EAGAIN` while there is no room. What is sent to a device that is gone is lost.
    pub fn send_copy(&self, bytes: &[u8]) -> Result<()> {
        let mut state = self.state.lock();
        loop {
            state.take_back();
            let Some(mut buffer) = state.spare.pop() else {
                if state.transmit.queue.is_broken() {
                    return Ok(());
                }
                if state.await_room() {
                    return Err(EAGAIN);
                }
                continue;
            };
            buffer.clear();
            // There is room for a piece.
            buffer.extend_from_slice(bytes);
            match state.transmit.give(buffer, false) {
                Ok(()) => {
                    state.transmit.queue.notify();
                }
                // Only a broken queue of that size has none for so few buffers.
                Err(buffer) => state.spare.push(buffer),
            }
            return Ok(());
        }
    }

    /// There is room for a piece; if not, somebody is told when there is.
    pub fn has_room(&self) -> bool {
        let mut state = self.state.lock();
        state.take_back();
        !state.spare.is_empty() || state.transmit.queue.is_broken() || !state.await_room()
    }

    /// The device has sent all.
    pub fn is_drained(&self) -> bool {
        self.state.lock().is_drained()
    }

    /// As [`Port::is_drained`], for crash reports: a stopped processor may hold the lock for ever, and then the answer is true.
    pub fn is_drained_at_last(&self) -> bool {
        self.state.try_lock().is_none_or(|mut state| state.is_drained())
    }

    /// Woken (IN) when bytes came or the host's side changed, and (OUT) when there is room again.
    pub fn events(&self) -> &WaitQueue {
        &self.events
    }

    /// How often the host's side was closed so far.
    pub fn hang_ups(&self) -> u32 {
        self.state.lock().hang_ups
    }

    /// Hands over one piece of what came; `false` when there is nothing, and then the queue is woken for the next.
    pub fn receive(&self, to: &mut dyn FnMut(&[u8])) -> bool {
        let (buffer, length) = {
            let mut state = self.state.lock();
            loop {
                match state.receive.take() {
                    Some(taken) => break taken,
                    None if state.receive.queue.enable_interrupts() || state.receive.queue.is_broken() => {
                        return false;
                    }
                    None => {}
                }
            }
        };
        to(&buffer[..length]);
        let mut state = self.state.lock();
        // The descriptor that was just freed takes it.
        let _ = state.receive.give(buffer, true);
        state.receive.queue.notify();
        true
    }

    /// Sends the bytes, or gives them back when there is no room; the queue is woken then when there is.
    pub fn send(&self, bytes: Vec<u8>) -> core::result::Result<(), Vec<u8>> {
        if bytes.is_empty() {
            return Ok(());
        }
        let mut state = self.state.lock();
        let state = &mut *state;
        let mut bytes = bytes;
        loop {
            state.take_back();
            match state.transmit.give(bytes, false) {
                Ok(()) => {
                    state.transmit.queue.notify();
                    return Ok(());
                }
                // The host's end is gone with the device: what is sent is lost, and nobody waits for ever.
                Err(_) if state.transmit.queue.is_broken() => return Ok(()),
                Err(back) => {
                    bytes = back;
                    if state.await_room() {
                        return Err(bytes);
                    }
                }
            }
        }
    }

    /// After an interrupt: wakes who waits for what may have changed.
    fn collect(&self) {
        let (came, room, on_event) = {
            let mut state = self.state.lock();
            let came = state.used && state.receive.queue.has_used();
            state.take_back();
            let room = state.crowded && state.has_made_room;
            if room {
                state.crowded = false;
                state.transmit.queue.disable_interrupts();
            }
            (came, room, state.on_event.filter(|_| came || room))
        };
        if let Some(on_event) = on_event {
            on_event();
        }
        if came || room {
            self.events.wake_all(Events::NONE.with(Events::IN, came).with(Events::OUT, room));
        }
    }
}
