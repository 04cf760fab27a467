// SPDX-License-Identifier: Apache-2.0 OR MIT
//! An interface of tun(4) as the stack sees it: its queues, and what its programs set.

use crate::headers::VNET;
use crate::queue::Queue;
use abi::{Events, Result, errno::*};
use alloc::sync::Arc;
use alloc::vec::Vec;
use api_alloc::Reserve;
use api_lock::SpinLock;
use api_netdev::Buffer;
use api_netdev::interface::{Interfaces, Port};
use core::any::Any;
use core::sync::atomic::{AtomicBool, Ordering};

/// Queues of one interface at most (Linux' `MAX_TAP_QUEUES`).
pub const MAX_QUEUES: usize = 256;
pub const IFF_TUN: u16 = 1;
pub const IFF_TAP: u16 = 2;
pub const IFF_MULTI_QUEUE: u16 = 0x100;
pub const IFF_PERSIST: u16 = 0x800;
pub const IFF_NO_PI: u16 = 0x1000;
pub const IFF_ONE_QUEUE: u16 = 0x2000;
pub const IFF_VNET_HDR: u16 = 0x4000;
pub const IFF_TUN_EXCL: u16 = 0x8000;
/// What TUNGETFEATURES answers.
pub const FEATURES: u16 = IFF_TUN | IFF_TAP | IFF_NO_PI | IFF_ONE_QUEUE | IFF_VNET_HDR | IFF_MULTI_QUEUE;

/// What programs set of an interface.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// IFF_NO_PI, IFF_VNET_HDR, IFF_MULTI_QUEUE.
    pub flags: u16,
    pub is_persistent: bool,
    pub owner: Option<u32>,
    pub group: Option<u32>,
    pub vnet_size: usize,
    pub send_buffer: i32,
    pub is_little_endian: bool,
}

/// Where the interface is.
#[derive(Clone)]
pub struct Place {
    pub interfaces: Arc<dyn Interfaces>,
    pub index: u32,
}

/// One interface.
pub struct Device {
    pub is_tap: bool,
    settings: SpinLock<Settings>,
    queues: SpinLock<Vec<Arc<Queue>>>,
    place: SpinLock<Option<Place>>,
    is_gone: AtomicBool,
}

impl Device {
    pub fn new(flags: u16) -> Arc<Device> {
        let settings = Settings {
            flags: flags & (IFF_NO_PI | IFF_VNET_HDR | IFF_MULTI_QUEUE | IFF_ONE_QUEUE),
            is_persistent: false,
            owner: None,
            group: None,
            vnet_size: VNET,
            send_buffer: i32::MAX,
            is_little_endian: false,
        };
        Arc::new(Device {
            is_tap: flags & IFF_TUN == 0,
            settings: SpinLock::new(settings),
            queues: SpinLock::default(),
            place: SpinLock::new(None),
            is_gone: AtomicBool::new(false),
        })
    }

    pub fn settings(&self) -> Settings {
        *self.settings.lock()
    }

    pub fn set(&self, change: impl FnOnce(&mut Settings)) {
        change(&mut self.settings.lock());
    }

    /// The flags that TUNGETIFF shows.
    pub fn shown_flags(&self) -> u16 {
        let settings = self.settings();
        let kind = if self.is_tap { IFF_TAP } else { IFF_TUN };
        kind | settings.flags | if settings.is_persistent { IFF_PERSIST } else { 0 }
    }

    /// `EBADFD` when the interface is gone.
    pub fn place(&self) -> Result<Place> {
        let place = self.place.lock().clone().ok_or(EBADFD)?;
        if self.is_gone.load(Ordering::Relaxed) { Err(EBADFD) } else { Ok(place) }
    }

    pub fn settle_at(&self, place: Place) {
        *self.place.lock() = Some(place);
    }

    /// One more queue: `EBUSY` where there is one already and only one may be, `E2BIG` where there are too many.
    pub fn attach(&self, queue: &Arc<Queue>) -> Result<()> {
        let is_multiple = self.settings().flags & IFF_MULTI_QUEUE != 0;
        let mut queues = self.queues.lock();
        if !is_multiple && !queues.is_empty() {
            return Err(EBUSY);
        }
        if queues.len() >= MAX_QUEUES {
            return Err(E2BIG);
        }
        queues.reserve_fallibly(1).map_err(|_| ENOMEM)?;
        queues.push(queue.clone());
        Ok(())
    }

    /// The queue goes; whether it was there, and how many stay.
    pub fn detach(&self, queue: &Arc<Queue>) -> (bool, usize) {
        let mut queues = self.queues.lock();
        let before = queues.len();
        queues.retain(|known| !Arc::ptr_eq(known, queue));
        (before != queues.len(), queues.len())
    }

    pub fn queue_count(&self) -> usize {
        self.queues.lock().len()
    }
}

/// Which queue a frame goes to: packets of one connection go to one.
fn flow(frame: &[u8], is_tap: bool) -> usize {
    let packet = frame.get(if is_tap { 14 } else { 0 }..).unwrap_or_default();
    let addresses = match packet.first().map(|first| first >> 4) {
        Some(4) => packet.get(12..24),
        Some(6) => packet.get(8..44),
        _ => None,
    };
    let mix = |hash: u32, byte: &u8| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193);
    let hash = addresses.unwrap_or_default().iter().fold(0x811c_9dc5, mix);
    (hash ^ hash >> 16) as usize
}

impl Port for Device {
    fn transmit(&self, frame: Buffer) -> bool {
        let queue = {
            let queues = self.queues.lock();
            match queues.len() {
                0 => return false,
                1 => queues[0].clone(),
                count => queues[flow(frame.bytes(), self.is_tap) % count].clone(),
            }
        };
        queue.push(frame)
    }

    fn settle(&self) {
        let count = self.queue_count();
        let is_gone = self.is_gone.load(Ordering::Relaxed);
        for at in 0..count {
            // Not locked meanwhile: whoever is woken may ask what there is to read.
            let queue = self.queues.lock().get(at).cloned();
            if let Some(queue) = queue
                && (is_gone || !queue.is_empty())
            {
                queue.wait.wake(Events::READABLE.with(Events::ERR | Events::OUT, is_gone));
            }
        }
    }

    fn detached(&self) {
        self.is_gone.store(true, Ordering::Relaxed);
    }

    fn moved(&self, to: Arc<dyn Interfaces>, index: u32) {
        self.settle_at(Place { interfaces: to, index });
    }

    fn owners(&self) -> (Option<u32>, Option<u32>) {
        let settings = self.settings();
        (settings.owner, settings.group)
    }

    fn as_any(&self) -> &dyn Any {
        self
    }

    fn into_any(self: Arc<Self>) -> Arc<dyn Any + Send + Sync> {
        self
    }
}
