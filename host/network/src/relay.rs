// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The interface of a network namespace, for a machine whose monitor drives tap devices only.
//!
//! QEMU takes no packet socket, which is how a process machine has an interface's place on its link ([`interface`](crate::interface)).
//! It gets a tap device in the namespace, without an address, and this end carries frames between the two: each behind a virtio-net
//! header, so that segments stay whole and checksums are left to whoever sends the frame on.
//!
//! The machine is not trusted: a frame is copied as it is, and one that does not fit or that nobody takes is dropped, as on a wire.
//!
//! The unsafe code here registers descriptors that are open for as long as they are registered.

use crate::{interface::packet, tap};
use std::{
    fs::File,
    io::{self, Read, Write},
    os::fd::OwnedFd,
    sync::Arc,
};
use tokio::io::unix::AsyncFd;

/// The name of the tap device. A network namespace has one machine.
pub(crate) const DEVICE: &str = "unilith-tap";
/// A virtio-net header, an Ethernet header with a tag, and as much as an IP header can name.
const LARGEST_FRAME: usize = 10 + 18 + 65_535;

/// Both ends of a link that frames are carried over.
#[derive(Debug)]
pub struct Relay {
    interface: Arc<File>,
    tap: Arc<File>,
}

impl Relay {
    /// Makes the tap device in the calling thread's namespace, and takes the packet socket of the interface. Also answers the device's
    /// descriptor for the monitor; the device goes with the last copy of it.
    pub fn new(interface: OwnedFd, mtu: u16) -> io::Result<(Relay, OwnedFd)> {
        let monitors = tap::bare(DEVICE, mtu.min(tap::LARGEST_MTU))?;
        let tap = Arc::new(File::from(packet::of_device(DEVICE)?));
        socket2::SockRef::from(&interface).set_nonblocking(true)?;
        Ok((Relay { interface: Arc::new(File::from(interface)), tap }, monitors))
    }

    /// Carries frames until it is dropped. Must be called inside a runtime.
    pub async fn serve(self) {
        let Relay { interface, tap } = self;
        tokio::spawn(carry(tap.clone(), interface.clone()));
        carry(interface, tap).await;
    }
}

/// Carries frames one way.
async fn carry(from: Arc<File>, to: Arc<File>) {
    // SAFETY: the file owns its descriptor, which stays the same and open until the last of its owners goes; this is one.
    let from = unsafe { AsyncFd::register(from) };
    // It fails without a runtime's driver only.
    let Ok(from) = from else { return };
    let mut buffer = vec![0; LARGEST_FRAME];
    loop {
        let Ok(mut ready) = from.readable().await else { return };
        match ready.try_io(|from| from.get_ref().as_ref().read(&mut buffer)) {
            // A full queue drops what comes, as every switch does.
            Ok(Ok(length)) => drop(to.as_ref().write(&buffer[..length])),
            // The interface may come up again. When the device is gone, so is the machine, and the owner of this ends it.
            Ok(Err(e)) if matches!(e.raw_os_error(), Some(libc::ENETDOWN | libc::EINTR)) => {}
            Ok(Err(_)) => return,
            Err(_) => {}
        }
    }
}
