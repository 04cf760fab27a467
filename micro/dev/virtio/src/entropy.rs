// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The entropy device (virtio 1.2, 5.4): its bytes are mixed into the platform's generator once they come.

use crate::{Area, Device, Queue, feature};
use abi::{Result, errno::EIO};
use alloc::boxed::Box;
use alloc::vec::Vec;
use api_lock::SpinLock;

/// Bytes asked for: two seeds of the generator.
const BYTES: usize = 64;

struct Source {
    queue: Queue,
    buffer: Box<[u8; BYTES]>,
    /// Keeps the device's place; it has no other use after start-up.
    _device: Device,
}

static SOURCES: SpinLock<Vec<Source>> = SpinLock::new(Vec::new());

/// Asks the device for bytes. They are not waited for.
pub fn start(device: Device) -> Result<()> {
    let features = device.begin(feature::EVENT_IDX)?;
    let mut queue = device.queue(0, 2, features)?;
    let mut buffer = Box::new([0; BYTES]);
    // SAFETY: the buffer is kept in SOURCES, untouched, until the answer came.
    unsafe { queue.add(&[], &[Area::of_mut(&mut buffer[..])], 0) }.map_err(|_| EIO)?;
    device.on_interrupt(api_sched::add_deferred_work(poll))?;
    queue.enable_interrupts();
    device.start();
    queue.notify();
    SOURCES.lock().push(Source { queue, buffer, _device: device });
    Ok(())
}

fn poll() {
    for source in SOURCES.lock().iter_mut() {
        if let Some(used) = source.queue.pop() {
            plat_pc::add_entropy(&source.buffer[..used.written as usize]);
            source.buffer.fill(0);
        }
    }
}
