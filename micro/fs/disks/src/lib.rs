// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Disks of the machine: block special files, and the file system on a disk that is mounted.
//!
//! - A request waits for the device inside ([`device::Device`]), as one to a volume of the host does: these waits end by themselves.
//! - One thread at a time is in a file system ([`api_sched::SleepLock`]): who comes meanwhile sleeps. Bytes of programs are copied outside.
//! - What is written is on the disk after fsync(2), sync(2) or unmounting, and else within [`COMMIT_NS`].
#![no_std]
#![forbid(unsafe_code)]
extern crate alloc;

mod device;
mod file;
mod node;
mod pages;
mod special;
mod volume;

pub use special::open;

use abi::{Result, errno::*};
use alloc::sync::Arc;
use alloc::vec::Vec;
use api_blockdev::BlockDevice;
use api_fs::Inode;
use api_lock::SpinLock;
use device::Device;
use volume::Volume;

/// How long a change stays in memory alone at most, as `commit=5` of Linux' ext4.
pub const COMMIT_NS: u64 = 5_000_000_000;
/// Linux gives its virtio disks a major number of those for experiments, and 16 minor numbers each for partitions.
const MAJOR: u64 = 254;
const MINORS: u64 = 16;

/// A disk, and the file system on it while that is mounted.
struct Slot {
    device: Arc<Device>,
    volume: Option<Arc<Volume>>,
    /// Somebody is mounting or unmounting it.
    is_busy: bool,
}

static SLOTS: SpinLock<Vec<Slot>> = SpinLock::new(Vec::new());

/// Adds a disk, before the program runs.
pub fn add(device: Arc<dyn BlockDevice>) {
    match Device::new(device) {
        Ok(device) => SLOTS.lock().push(Slot { device, volume: None, is_busy: false }),
        Err(e) => log::error!("a disk does not start: {e:?}"),
    }
}

pub fn count() -> usize {
    SLOTS.lock().len()
}

/// The device number of a disk.
pub fn number(index: usize) -> u64 {
    (MAJOR << 8) + index as u64 * MINORS
}

/// The disk of a device number; partitions are none.
fn index(number: u64) -> Result<usize> {
    let (major, minor) = (number >> 8, number & 0xff);
    let index = (minor / MINORS) as usize;
    if major == MAJOR && minor.is_multiple_of(MINORS) && index < count() { Ok(index) } else { Err(ENXIO) }
}

/// Mounts the ext4 file system of the disk with that device number: its root directory. `EBUSY` where it is mounted otherwise.
pub fn mount(number: u64, read_only: bool, noatime: bool) -> Result<Arc<dyn Inode>> {
    let index = index(number).map_err(|_| ENXIO)?;
    let device = {
        let mut slots = SLOTS.lock();
        let slot = &mut slots[index];
        if slot.is_busy {
            return Err(EBUSY);
        }
        if let Some(volume) = slot.volume.clone() {
            drop(slots);
            return if volume.is_read_only() == read_only { volume.root() } else { Err(EBUSY) };
        }
        if slot.device.has_writers() {
            return Err(EBUSY);
        }
        if slot.device.info.read_only && !read_only {
            return Err(EACCES);
        }
        slot.is_busy = true;
        slot.device.clone()
    };
    let mounted =
        Volume::mount(device, number, read_only, noatime).and_then(|volume| Ok((volume.root()?, volume)));
    let mut slots = SLOTS.lock();
    slots[index].is_busy = false;
    let (root, volume) = mounted?;
    slots[index].volume = Some(volume);
    Ok(root)
}

fn is_mounted(index: usize) -> bool {
    SLOTS.lock().get(index).is_some_and(|slot| slot.volume.is_some() || slot.is_busy)
}

fn volumes() -> Result<Vec<Arc<Volume>>> {
    let mut volumes = Vec::new();
    api_alloc::Reserve::reserve_exact_fallibly(&mut volumes, count()).map_err(|_| ENOMEM)?;
    volumes.extend(SLOTS.lock().iter().filter_map(|slot| slot.volume.clone()));
    Ok(volumes)
}

/// sync(2): everything is on the disks when it returns, or an error was logged.
pub fn sync_all() -> Result<()> {
    let mut result = Ok(());
    for volume in volumes()? {
        result = result.and(volume.sync());
    }
    result
}

/// syncfs(2), by the device number that files of the file system have; true when it is one of these.
pub fn sync_one(device: u64) -> Result<bool> {
    match volumes()?.into_iter().find(|volume| volume.number == device) {
        Some(volume) => volume.sync().map(|()| true),
        None => Ok(false),
    }
}

/// Unmounts every file system that nobody uses any more. Called when something was unmounted, and now and then.
pub fn unmount_unused() -> Result<()> {
    let mut result = Ok(());
    for index in 0..count() {
        let taken = {
            let mut slots = SLOTS.lock();
            let slot = &mut slots[index];
            // The handle here is the last one: nobody can get another meanwhile.
            match slot.volume.take() {
                Some(volume) if Arc::strong_count(&volume) == 1 && volume.is_unused() && !slot.is_busy => {
                    slot.is_busy = true;
                    Some(volume)
                }
                other => {
                    slot.volume = other;
                    None
                }
            }
        };
        if let Some(volume) = taken {
            result = result.and(volume.unmount());
            SLOTS.lock()[index].is_busy = false;
        }
    }
    result
}

/// The machine ends: what is mounted is unmounted, whoever uses it.
pub fn end() {
    for volume in volumes().unwrap_or_default() {
        if let Err(e) = volume.unmount() {
            log::error!("a disk could not be unmounted: {e:?}");
        }
    }
}

/// Whether there is anything to write.
pub fn has_work() -> bool {
    SLOTS.lock().iter().any(|slot| slot.volume.is_some())
}
