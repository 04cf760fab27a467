// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The overlay's line and its tools over streams to the host, where the monitor has a socket device and no console device with
//! ports. The machine connects: the host listens before the machine starts.

use super::LINE_DEVICE;
use abi::{Result, errno::EAGAIN, errno::EIO};
use alloc::sync::Arc;
use alloc::vec::Vec;
use api_boot::vsock::{LINE_PORT, TOOLS_PORT};
use api_mem::Frame;
use api_sched::WaitQueue;
use overlay_line::Transport;
use virtio::vsock::{self, Stream};

/// What is read of the line at a time.
const PIECE: usize = 4096;
/// How long the host may take to answer a connection, and for all of the tools.
const PATIENCE_NS: u64 = 30_000_000_000;
/// How long a command waits before it tries anew to get a connection, of which others have all.
const AGAIN_NS: u64 = 10_000_000;

/// The line; without a connection nothing comes, and what is sent is lost.
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

/// Starts the device, and connects.
pub fn open() -> Arc<dyn Transport> {
    let device = LINE_DEVICE.lock().take();
    let stream = match device.map(vsock::start) {
        Some(Err(e)) => {
            log::error!("the socket device does not start, so there is no overlay: {e:?}");
            None
        }
        _ => {
            plat_pc::set_tools_source(fetch);
            let stream = Stream::connect(LINE_PORT, api_plat::now_ns() + PATIENCE_NS);
            stream.inspect_err(|e| log::warn!("the host has no overlay for this machine: {e:?}")).ok()
        }
    };
    Arc::new(Line { stream, silence: WaitQueue::new() })
}

/// Gets the tools over a connection of their own.
fn fetch(pages: usize, each: &mut dyn FnMut(Frame)) -> Result<()> {
    let deadline = api_plat::now_ns() + PATIENCE_NS;
    let stream = loop {
        match Stream::connect(TOOLS_PORT, deadline) {
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
