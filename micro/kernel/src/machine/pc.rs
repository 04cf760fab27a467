// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A PC: its devices are virtio devices.

use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
#[cfg(feature = "net-tcpip")]
use api_netdev::NetDevice;
pub use plat_pc::{panic, system_call_entry};
use virtio::{Device, Kind, ninep::Channel};

/// What was found and nobody drives yet.
pub struct Devices(Vec<Device>);

/// The 9p transport of a virtio device.
struct Export(Arc<Channel>);

/// What the device takes in one message.
const LARGEST_MESSAGE: usize = 512 << 10;

impl ninep::Transport for Export {
    fn call(&self, request: Vec<u8>, reply: Vec<u8>) -> abi::Result<(Vec<u8>, Vec<u8>)> {
        self.0.call(request, reply)
    }

    fn largest(&self) -> usize {
        LARGEST_MESSAGE
    }
}

/// Finds the devices.
pub fn devices() -> Devices {
    let devices = Devices(virtio::start());
    for channel in virtio::ninep::channels() {
        ninep::register(channel.tag(), Arc::new(Export(channel.clone())));
    }
    devices
}

impl Devices {
    /// The first network device, started.
    #[cfg(feature = "net-tcpip")]
    pub fn network(&mut self) -> Option<Arc<dyn NetDevice>> {
        let index = self.0.iter().position(|d| d.kind() == Kind::NETWORK)?;
        match virtio::net::start(self.0.remove(index)) {
            Ok(device) => Some(device),
            Err(e) => {
                log::error!("the network device does not start: {e:?}");
                None
            }
        }
    }

    /// All devices that have a driver were taken.
    pub fn finish(self) -> Result<(), String> {
        for device in self.0 {
            let kind: Kind = device.kind();
            log::warn!("no driver for the virtio device of kind {}: left alone", kind.0);
        }
        Ok(())
    }
}
