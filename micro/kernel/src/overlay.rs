// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Ties the overlay to the machine: its channel to the host, its commands, and what these are to know.

use abi::Events;
use alloc::boxed::Box;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use api_sched::WaitQueue;
use core::any::Any;
use overlay_line::{Setup, Transport};
use virtio::console::{self, Port};
use virtio::{Device, Kind};

/// The name of the console port that the host gives the line.
const PORT: &str = "unilith.overlay";

struct VirtioPort(Arc<Port>);

impl Transport for VirtioPort {
    fn receive(&self, to: &mut dyn FnMut(&[u8])) -> bool {
        self.0.receive(to)
    }

    fn send(&self, bytes: Vec<u8>) -> Result<(), Vec<u8>> {
        self.0.send(bytes)
    }

    fn hang_ups(&self) -> u32 {
        self.0.hang_ups()
    }

    fn events(&self) -> &WaitQueue {
        self.0.events()
    }
}

/// Starts the console device, which is taken out of `devices`, and the line over it. A machine without that device has no
/// line and costs nothing.
pub fn start(devices: &mut Vec<Device>) {
    let Some(index) = devices.iter().position(|d| d.kind() == Kind::CONSOLE) else { return };
    overlay_commands::journal::start();
    overlay_commands::register();
    #[cfg(feature = "net-tcpip")]
    crate::network::tell_overlay();
    let started = console::start(devices.remove(index))
        .and_then(|()| overlay_line::start(Setup { open, enter, kernel: "unilith micro" }));
    if let Err(e) = started {
        log::error!("the overlay does not start: {e:?}");
    }
}

/// Waits until the host has named the port.
fn open() -> Arc<dyn Transport> {
    let key = console::NAMED.add(api_sched::current(), Events::IN, false);
    let port = loop {
        if let Some(port) = console::find(PORT) {
            break port;
        }
        api_sched::park(u64::MAX);
    };
    console::NAMED.remove(key);
    port.open();
    Arc::new(VirtioPort(port))
}

fn enter() -> Result<Box<dyn Any>, String> {
    let identity = posix::auxiliary::Identity::assume(b"overlay");
    identity.map(|i| Box::new(i) as Box<dyn Any>).map_err(|_| "the program has not started yet".into())
}
