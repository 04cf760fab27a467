// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A PC: its devices are virtio devices, its network device may be one of Intel's cards, or Xen's.

#[cfg(feature = "vsock")]
mod stream;

use alloc::string::String;
#[cfg(any(
    feature = "volumes",
    feature = "net-tcpip",
    feature = "overlay",
    feature = "linked",
    feature = "ext4"
))]
use alloc::sync::Arc;
use alloc::vec::Vec;
#[cfg(any(feature = "linked", feature = "ext4"))]
use api_blockdev::BlockDevice;
#[cfg(any(feature = "net-tcpip", feature = "linked"))]
use api_netdev::NetDevice;
#[cfg(feature = "volumes")]
use api_plat::Access;
#[cfg(all(feature = "smp", not(feature = "linked")))]
use api_plat::BootConfig;
use api_plat::Status;
#[cfg(feature = "fail-nth")]
pub use plat_pc::warn;
pub use plat_pc::{panic, system_call_entry};
use virtio::{Device, Kind};
#[cfg(feature = "overlay")]
use {abi::Events, api_lock::SpinLock, api_sched::WaitQueue, overlay_line::Transport, virtio::console};

/// What was found and nobody drives yet.
pub struct Devices(Vec<Device>);

/// The 9p transport of a virtio device.
#[cfg(feature = "volumes")]
struct Export(Arc<virtio::ninep::Channel>);

/// What the device takes in one message.
#[cfg(feature = "volumes")]
const LARGEST_MESSAGE: usize = 512 << 10;

#[cfg(feature = "volumes")]
impl ninep::Transport for Export {
    fn call(&self, request: Vec<u8>, reply: Vec<u8>) -> abi::Result<(Vec<u8>, Vec<u8>)> {
        self.0.call(request, reply)
    }

    fn largest(&self) -> usize {
        LARGEST_MESSAGE
    }

    fn goes_by_names(&self) -> bool {
        true
    }

    fn most_direct(&self) -> usize {
        // One page more where they do not begin with a page.
        (virtio::ninep::MAX_PAGES - 1) * abi::PAGE_SIZE
    }

    fn hold(&self, address: u64, length: usize, is_reply: bool) -> Vec<ninep::PageFrame> {
        mem::current().hold(address, length, if is_reply { Access::Write } else { Access::Read })
    }

    fn call_direct(
        &self,
        request: Vec<u8>,
        reply: Vec<u8>,
        pages: ninep::Gather,
    ) -> abi::Result<ninep::Answered> {
        self.0.call_with(request, reply, pages)
    }
}

/// Starts the other processors. A linked program's calls take no lock, so it has one.
#[cfg(all(feature = "smp", not(feature = "linked")))]
pub fn start_processors(config: &BootConfig) {
    plat_pc::start_processors(config.cpus.unwrap_or(1), sched::start_other);
}

/// Finds the devices.
pub fn devices() -> Devices {
    // Before anybody waits for one: another processor gets in then.
    if sched::prepare_others().is_err() {
        let reason = String::from("not enough memory for so many processors: try -m 64M");
        api_plat::power_off(&Status::Failed { reason });
    }
    #[cfg_attr(not(feature = "vsock"), allow(unused_mut))]
    let mut devices = Devices(virtio::start());
    #[cfg(feature = "xen")]
    xen::start();
    #[cfg(feature = "volumes")]
    ninep::register_later(|| {
        for channel in virtio::ninep::start() {
            ninep::register(channel.tag(), Arc::new(Export(channel.clone())));
        }
    });
    #[cfg(feature = "vsock")]
    if let Some(index) = devices.0.iter().position(|d| d.kind() == Kind::SOCKET) {
        stream::found(devices.0.remove(index));
        #[cfg(feature = "volumes")]
        stream::files::register();
    }
    devices
}

impl Devices {
    /// The first network device that nobody has taken, started.
    #[cfg(any(feature = "net-tcpip", feature = "linked"))]
    pub fn network(&mut self, offloads: bool) -> Option<Arc<dyn NetDevice>> {
        let Some(index) = self.0.iter().position(|d| d.kind() == Kind::NETWORK) else {
            #[cfg(feature = "xen")]
            if let Some(device) = xen::net::start(offloads) {
                return Some(device);
            }
            #[cfg(feature = "e1000")]
            return e1000::start();
            #[cfg(not(feature = "e1000"))]
            return None;
        };
        match virtio::net::start(self.0.remove(index), offloads) {
            Ok(device) => Some(device),
            Err(e) => {
                log::error!("the network device does not start: {e:?}");
                None
            }
        }
    }

    /// Gives away all block devices that work.
    #[cfg(any(feature = "linked", feature = "ext4"))]
    pub fn disks(&mut self, give: &mut dyn FnMut(Arc<dyn BlockDevice>)) {
        while let Some(index) = self.0.iter().position(|d| d.kind() == Kind::BLOCK) {
            match virtio::block::start(self.0.remove(index)) {
                Ok(device) => give(device),
                Err(e) => log::error!("a block device does not start: {e:?}"),
            }
        }
        #[cfg(feature = "xen")]
        xen::block::start(give);
        #[cfg(feature = "nvme")]
        nvme::start(give);
    }

    /// What opens the overlay's channel: a port of the console device or a stream of the socket device, which is started only
    /// then.
    #[cfg(feature = "overlay")]
    pub fn line(&mut self) -> Option<fn() -> Arc<dyn Transport>> {
        if let Some(index) = self.0.iter().position(|d| d.kind() == Kind::CONSOLE) {
            *CONSOLE.lock() = Some(self.0.remove(index));
            devfs::expect_input();
            return Some(open_port);
        }
        #[cfg(feature = "vsock")]
        if stream::is_there() {
            return Some(stream::line::open);
        }
        None
    }

    /// All devices that have a driver were taken.
    pub fn finish(self) -> Result<(), String> {
        for device in self.0 {
            let kind: Kind = device.kind();
            // Of a linked program that makes no sockets: its driver is not in the image.
            if cfg!(feature = "linked") && kind == Kind::NETWORK {
                continue;
            }
            log::warn!("no driver for the virtio device of kind {}: left alone", kind.0);
        }
        // Without the overlay nobody else starts it, and the host asks for the end over it.
        #[cfg(all(feature = "vsock", not(feature = "overlay")))]
        let _ = stream::start();
        Ok(())
    }
}

/// The name of the console port that the host gives the overlay.
#[cfg(feature = "overlay")]
const LINE: &str = "unilith.overlay";

/// The same of the program's output, where the host has one.
#[cfg(feature = "overlay")]
const OUTPUT: &str = "unilith.output";

#[cfg(feature = "overlay")]
static OUTPUT_PORT: SpinLock<Option<Arc<console::Port>>> = SpinLock::new(None);

/// Has the program's output go to the host by a port of the device, and its input come by it: an exit of the machine's for each piece, instead
/// of one for each byte.
#[cfg(feature = "overlay")]
fn open_output() {
    let input = devfs::Input {
        begin: begin_input,
        receive: |take| output_port().is_some_and(|port| port.receive(take)),
    };
    // Without memory for it the serial port does.
    let found =
        console::find(OUTPUT).filter(|port| port.open_to_send(devfs::PIECE, devfs::poll_console).is_ok());
    let has_port = found.is_some();
    *OUTPUT_PORT.lock() = found;
    // The program may have asked for input already.
    devfs::set_input(input);
    if !has_port {
        return;
    }
    devfs::move_output(devfs::Output {
        write: |bytes| output_port().map_or(Ok(()), |port| port.send_copy(bytes)),
        has_room: || output_port().is_none_or(|port| port.has_room()),
        is_drained: || output_port().is_none_or(|port| port.is_drained()),
    });
    plat_pc::before_reports(|| {
        let Some(port) = OUTPUT_PORT.try_lock() else { return true };
        port.as_ref().is_none_or(|port| port.is_drained_at_last())
    });
}

/// The program wants input: the host is told where to send it.
#[cfg(feature = "overlay")]
fn begin_input() -> bool {
    let by_port = output_port().is_some_and(|port| port.begin_to_receive());
    api_plat::status(&Status::Input { by_port });
    by_port
}

/// Set when it was opened, and for ever.
#[cfg(feature = "overlay")]
fn output_port() -> Option<Arc<console::Port>> {
    OUTPUT_PORT.lock().clone()
}

/// The console device until somebody opens the line: the program need not wait for it.
#[cfg(feature = "overlay")]
static CONSOLE: SpinLock<Option<Device>> = SpinLock::new(None);

#[cfg(feature = "overlay")]
struct LinePort(Arc<console::Port>);

#[cfg(feature = "overlay")]
impl Transport for LinePort {
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

/// Starts the device, and waits until the host has named the port.
#[cfg(feature = "overlay")]
fn open_port() -> Arc<dyn Transport> {
    let device = CONSOLE.lock().take();
    if let Some(Err(e)) = device.map(console::start) {
        log::error!("the console device does not start, so there is no overlay: {e:?}");
        // Nobody will name a port, and the host sends no input before it is told where.
        open_output();
    }
    let key = console::NAMED.add(api_sched::current(), Events::IN, false);
    let port = loop {
        if let Some(port) = console::find(LINE) {
            break port;
        }
        api_sched::park(u64::MAX);
    };
    console::NAMED.remove(key);
    // The host names it first.
    open_output();
    port.open();
    Arc::new(LinePort(port))
}
