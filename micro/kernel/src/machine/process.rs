// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A process of Linux: its devices are descriptors that the tender gave it.

use alloc::string::String;
#[cfg(any(feature = "net-tcpip", feature = "overlay", feature = "linked", feature = "ext4"))]
use alloc::sync::Arc;
#[cfg(any(feature = "linked", feature = "ext4"))]
use api_blockdev::BlockDevice;
#[cfg(any(feature = "net-tcpip", feature = "linked"))]
use api_netdev::NetDevice;
use plat_process::Arguments;
#[cfg(feature = "fail-nth")]
pub use plat_process::warn;
pub use plat_process::{panic, system_call_entry};
#[cfg(feature = "overlay")]
use {alloc::vec::Vec, api_sched::WaitQueue, hostdev::line::Line, overlay_line::Transport};

/// What the tender gave, and how many network devices were started.
pub struct Devices(Option<Arguments<'static>>, usize);

#[unsafe(no_mangle)]
fn unilith_kernel_shown(each: &mut dyn FnMut(u64, u64, u32)) {
    mem::current().shown(each);
}

#[unsafe(no_mangle)]
fn unilith_kernel_cpu() -> ! {
    sched::start_other()
}

#[cfg(feature = "volumes")]
fn hold(address: u64, length: usize, is_written: bool) -> alloc::vec::Vec<ninep::PageFrame> {
    use api_plat::Access;
    mem::current().hold(address, length, if is_written { Access::Write } else { Access::Read })
}

/// Starts what needs nobody else.
pub fn devices() -> Devices {
    let arguments = plat_process::arguments();
    #[cfg(feature = "volumes")]
    if let Some(fd) = arguments.as_ref().and_then(|arguments| arguments.changes) {
        ninep::hear_of_changes(hostdev::ninep::changes(fd));
    }
    #[cfg(feature = "volumes")]
    for (tag, fd) in arguments.iter().flat_map(|a| a.volumes).flatten() {
        match hostdev::ninep::start(fd, hold) {
            Ok(channel) => ninep::register(tag, channel),
            Err(e) => log::error!("volume {tag}: the descriptor cannot be used: {e:?}"),
        }
    }
    Devices(arguments, 0)
}

impl Devices {
    /// The next network device, started.
    #[cfg(any(feature = "net-tcpip", feature = "linked"))]
    pub fn network(&mut self, offloads: bool) -> Option<Arc<dyn NetDevice>> {
        let given = self.0?.networks.get(self.1).copied().flatten()?;
        self.1 += 1;
        match hostdev::net::start(given, offloads) {
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
        let disks = self.0.iter().flat_map(|arguments| arguments.disks);
        // The first one that is missing is the end.
        for disk in disks.map_while(|disk| disk) {
            match hostdev::block::start(disk) {
                Ok(device) => give(device),
                Err(e) => log::error!("a disk's descriptor cannot be used: {e:?}"),
            }
        }
    }

    /// What opens the overlay's channel.
    #[cfg(feature = "overlay")]
    pub fn line(&mut self) -> Option<fn() -> Arc<dyn Transport>> {
        match hostdev::line::start(self.0?.line?) {
            Ok(()) => Some(open_line),
            Err(e) => {
                log::error!("the overlay's descriptor cannot be used: {e:?}");
                None
            }
        }
    }

    /// All devices work: what is not needed any more is given up, before the program runs.
    pub fn finish(self) -> Result<(), String> {
        match self.0 {
            Some(arguments) => {
                plat_process::confine(&arguments).map_err(String::from)?;
                sched::prepare_others()
                    .map_err(|_| String::from("not enough memory to start: try more with -m"))
            }
            None => Ok(()),
        }
    }
}

#[cfg(feature = "overlay")]
struct Socket(Arc<Line>);

#[cfg(feature = "overlay")]
impl Transport for Socket {
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

#[cfg(feature = "overlay")]
fn open_line() -> Arc<dyn Transport> {
    loop {
        if let Some(line) = hostdev::line::get() {
            return Arc::new(Socket(line));
        }
        // It was started before anybody knew of this function.
        api_sched::park(u64::MAX);
    }
}
