// SPDX-License-Identifier: Apache-2.0 OR MIT
//! An open file of /dev/net/tun.

use crate::device::{Device, IFF_NO_PI, IFF_VNET_HDR, Settings};
use crate::headers::{self, PI, VNET, Vnet};
use crate::queue::Queue;
use crate::segments;
use abi::{Events, Result, errno::*};
use alloc::sync::Arc;
use alloc::vec::Vec;
use api_fs::{File, Inode, Sink, Source, Stat};
use api_lock::SpinLock;
use api_netdev::interface::Interfaces;
use api_sched::WaitQueue;
use core::any::Any;

/// Bytes of a frame at most: the largest packet, Ethernet's header and a tag.
const MAX_FRAME: usize = 65_535 + 14 + 4;
const ETHERNET: usize = 14;
const ETHERTYPE_IPV4: u16 = 0x0800;
const ETHERTYPE_IPV6: u16 = 0x86dd;

pub struct TunFile {
    inode: Arc<dyn Inode>,
    /// The network that the opener was in.
    pub network: Arc<dyn Interfaces>,
    pub queue: Arc<Queue>,
    /// Its interface, from TUNSETIFF on.
    pub device: SpinLock<Option<Arc<Device>>>,
}

impl TunFile {
    pub fn new(inode: Arc<dyn Inode>, network: Arc<dyn Interfaces>) -> Arc<TunFile> {
        Arc::new(TunFile { inode, network, queue: Arc::new(Queue::new()), device: SpinLock::new(None) })
    }

    /// `EBADFD` before TUNSETIFF, and when the interface is gone.
    pub fn attached(&self) -> Result<Arc<Device>> {
        let device = self.device.lock().clone().ok_or(EBADFD)?;
        device.place().map(|_| device)
    }

    /// A frame for the reader, with the headers that it asked for; more than its buffer takes is cut off.
    fn hand_out(settings: &Settings, is_tap: bool, frame: &[u8], to: &mut Sink<'_>) -> Result<usize> {
        let has_pi = settings.flags & IFF_NO_PI == 0;
        let vnet = if settings.flags & IFF_VNET_HDR != 0 { settings.vnet_size } else { 0 };
        let mut done = 0;
        if has_pi {
            if to.remaining() < PI {
                return Err(EINVAL);
            }
            let is_stripped = to.remaining() < PI + vnet + frame.len();
            let protocol = match frame.first().map(|first| first >> 4) {
                _ if is_tap => frame.get(12..14).map_or(0, |b| u16::from_be_bytes([b[0], b[1]])),
                Some(6) => ETHERTYPE_IPV6,
                _ => ETHERTYPE_IPV4,
            };
            done += to.put(&headers::pi(is_stripped, protocol))?;
        }
        if vnet > 0 {
            if to.remaining() < vnet {
                return Err(EINVAL);
            }
            // Checksums are made, and segments cut.
            done += to.put_zeros(vnet)?;
        }
        Ok(done + to.put(frame)?)
    }

    fn take_in(&self, device: &Device, from: &mut Source<'_>) -> Result<usize> {
        let place = device.place()?;
        let settings = device.settings();
        let length = from.remaining();
        let mut protocol = None;
        if settings.flags & IFF_NO_PI == 0 {
            let mut pi = [0; PI];
            if from.remaining() < PI {
                return Err(EINVAL);
            }
            from.take(&mut pi)?;
            protocol = Some(u16::from_be_bytes([pi[2], pi[3]]));
        }
        let mut vnet = Vnet::default();
        if settings.flags & IFF_VNET_HDR != 0 {
            if from.remaining() < settings.vnet_size {
                return Err(EINVAL);
            }
            let mut header = [0; VNET];
            from.take(&mut header)?;
            from.skip(settings.vnet_size - VNET);
            vnet = Vnet::parse(&header, from.remaining())?;
        }
        if from.remaining() > MAX_FRAME || device.is_tap && from.remaining() < ETHERNET {
            return Err(EINVAL);
        }
        let mut frame: Vec<u8> = from.take_vec(MAX_FRAME)?;
        if !device.is_tap {
            let version = match frame.first().map(|first| first >> 4) {
                Some(4) => Some(ETHERTYPE_IPV4),
                Some(6) => Some(ETHERTYPE_IPV6),
                _ => None,
            };
            if protocol.is_none() && version.is_none() {
                place.interfaces.count_receive_drop(place.index);
                return Err(EINVAL);
            }
            // What is said to be of another protocol is nobody's.
            if protocol.or(version) != Some(ETHERTYPE_IPV4) {
                place.interfaces.count_receive_drop(place.index);
                return Ok(length);
            }
        }
        let link = if device.is_tap { ETHERNET } else { 0 };
        segments::each(&mut frame, &vnet, link, &mut |frame| place.interfaces.receive(place.index, frame))?;
        Ok(length)
    }

    /// The file leaves its interface, which goes with its last queue unless it is to stay.
    pub fn leave(&self) {
        let Some(device) = self.device.lock().take() else { return };
        let (was_attached, left) = device.detach(&self.queue);
        self.queue.clear();
        if left > 0 || !was_attached && device.queue_count() > 0 {
            return;
        }
        let Ok(place) = device.place() else { return };
        if device.settings().is_persistent {
            place.interfaces.set_carrier(place.index, false);
        } else {
            device.detached_by_file();
            place.interfaces.remove(place.index);
        }
    }
}

impl Device {
    /// The last file closes: nothing is told, for nobody listens.
    fn detached_by_file(&self) {
        api_netdev::interface::Port::detached(self);
    }
}

impl File for TunFile {
    fn read(&self, _: u64, to: &mut Sink<'_>) -> Result<usize> {
        let device = self.attached()?;
        let frame = self.queue.pop().ok_or(EAGAIN)?;
        TunFile::hand_out(&device.settings(), device.is_tap, frame.bytes(), to)
    }

    fn write(&self, _: u64, from: &mut Source<'_>) -> Result<usize> {
        let device = self.attached()?;
        self.take_in(&device, from)
    }

    fn append(&self, from: &mut Source<'_>) -> Result<(usize, u64)> {
        self.write(0, from).map(|n| (n, 0))
    }

    fn stat(&self) -> Result<Stat> {
        self.inode.stat()
    }

    fn poll(&self) -> Events {
        match self.attached() {
            Ok(_) => Events::SENDABLE.with(Events::READABLE, !self.queue.is_empty()),
            Err(_) => Events::ERR,
        }
    }

    fn wait_queue(&self) -> Option<&WaitQueue> {
        Some(&self.queue.wait)
    }

    fn ioctl(&self, command: u32, argument: u64) -> Result<usize> {
        crate::requests::answer(self, command, argument)
    }

    fn inode(&self) -> Option<&Arc<dyn Inode>> {
        Some(&self.inode)
    }

    fn close(&self) -> Result<()> {
        self.leave();
        Ok(())
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}
