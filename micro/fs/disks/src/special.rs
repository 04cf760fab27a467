// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Block special files: the bytes of a disk. They are not cached: what is written is with the device when write(2) returns, and on stable
//! storage after fsync(2). A disk whose file system is mounted is not written to past it: `EBUSY`.

use crate::device::Device;
use crate::{SLOTS, index, is_mounted, unmount_unused};
use abi::{PAGE_SIZE, Result, errno::*};
use alloc::sync::Arc;
use api_fs::{File, Inode, Sink, Source, Stat, write_user_int, zeroed};
use api_user::UserPtr;
use core::any::Any;
use ext4::Disk;

const O_ACCMODE: u32 = 3;
const O_EXCL: u32 = 0o200;
const BLKROGET: u32 = 0x125e;
const BLKGETSIZE: u32 = 0x1260;
const BLKFLSBUF: u32 = 0x1261;
const BLKSSZGET: u32 = 0x1268;
const BLKBSZGET: u32 = 0x8008_1270;
const BLKGETSIZE64: u32 = 0x8008_1272;
const BLKPBSZGET: u32 = 0x127b;
/// Bytes that one request moves: a buffer of the kernel's.
const STEP: usize = 16 * PAGE_SIZE;

struct Special {
    device: Arc<Device>,
    inode: Arc<dyn Inode>,
    writes: bool,
}

/// Opens the disk with that device number; `ENXIO` when there is none.
pub fn open(number: u64, inode: &Arc<dyn Inode>, flags: u32) -> Result<Arc<dyn File>> {
    let index = index(number)?;
    let device = SLOTS.lock()[index].device.clone();
    let writes = flags & O_ACCMODE != 0;
    if writes && device.info.read_only {
        return Err(EACCES);
    }
    if (writes || flags & O_EXCL != 0) && is_mounted(index) {
        // A context of fsopen(2) that was closed has let go of its file system, and told nobody.
        unmount_unused()?;
        if is_mounted(index) {
            return Err(EBUSY);
        }
    }
    if writes {
        device.add_writer();
    }
    Ok(Arc::new(Special { device, inode: inode.clone(), writes }))
}

impl Special {
    /// The whole sectors around a piece, and where the piece is in them.
    fn around(&self, offset: u64, length: usize) -> (u64, usize, usize) {
        let size = self.device.info.sector_size as u64;
        let start = offset / size * size;
        let end = (offset + length as u64).next_multiple_of(size);
        (start, (end - start) as usize, (offset - start) as usize)
    }
}

impl File for Special {
    fn read(&self, offset: u64, to: &mut Sink<'_>) -> Result<usize> {
        let mut done = 0;
        while to.remaining() > 0 {
            let at = offset.saturating_add(done as u64);
            let left = self.device.bytes().saturating_sub(at).min(STEP as u64) as usize;
            let length = left.min(to.remaining());
            if length == 0 {
                break;
            }
            let (start, whole, within) = self.around(at, length);
            let moved = zeroed(whole).and_then(|mut bytes| {
                self.device.read(start, &mut bytes)?;
                to.put_up_to_fault(&bytes[within..within + length])
            });
            match moved {
                Ok(n) if n < length => return Ok(done + n),
                Ok(n) => done += n,
                Err(e) if done == 0 => return Err(e),
                Err(_) => break,
            }
        }
        Ok(done)
    }

    fn write(&self, offset: u64, from: &mut Source<'_>) -> Result<usize> {
        if offset >= self.device.bytes() {
            return if from.remaining() == 0 { Ok(0) } else { Err(ENOSPC) };
        }
        let mut done = 0;
        while from.remaining() > 0 {
            let at = offset + done as u64;
            let left = self.device.bytes().saturating_sub(at).min(STEP as u64) as usize;
            let length = left.min(from.remaining());
            if length == 0 {
                break;
            }
            let (start, whole, within) = self.around(at, length);
            let moved = zeroed(whole).and_then(|mut bytes| {
                if whole != length {
                    self.device.read(start, &mut bytes)?;
                }
                let n = from.take_up_to_fault(&mut bytes[within..within + length])?;
                if n < length {
                    // What was not given stays what it is.
                    let mut old = zeroed(whole)?;
                    self.device.read(start, &mut old)?;
                    bytes[within + n..].copy_from_slice(&old[within + n..]);
                }
                self.device.write(start, &bytes)?;
                Ok(n)
            });
            match moved {
                Ok(n) if n < length => return Ok(done + n),
                Ok(n) => done += n,
                Err(e) if done == 0 => return Err(e),
                Err(_) => break,
            }
        }
        Ok(done)
    }

    fn is_seekable(&self) -> bool {
        true
    }

    fn size(&self) -> Result<u64> {
        Ok(self.device.bytes())
    }

    fn stat(&self) -> Result<Stat> {
        self.inode.stat()
    }

    fn inode(&self) -> Option<&Arc<dyn Inode>> {
        Some(&self.inode)
    }

    fn ioctl(&self, command: u32, argument: u64) -> Result<usize> {
        let info = self.device.info;
        match command {
            BLKGETSIZE64 => UserPtr::new(argument).write(self.device.bytes()).map(|()| 0),
            BLKGETSIZE => UserPtr::new(argument).write(self.device.bytes() / 512).map(|()| 0),
            BLKSSZGET | BLKPBSZGET => write_user_int(argument, info.sector_size as i32).map(|()| 0),
            BLKBSZGET => write_user_int(argument, PAGE_SIZE as i32).map(|()| 0),
            BLKROGET => write_user_int(argument, i32::from(info.read_only)).map(|()| 0),
            BLKFLSBUF => self.device.flush().map(|()| 0),
            _ => Err(ENOTTY),
        }
    }

    fn sync(&self, _: bool) -> Result<()> {
        self.device.flush()
    }

    fn seek_data(&self, offset: u64, hole: bool) -> Result<u64> {
        let size = self.device.bytes();
        if offset >= size {
            return Err(ENXIO);
        }
        Ok(if hole { size } else { offset })
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

impl Drop for Special {
    fn drop(&mut self) {
        if self.writes {
            self.device.remove_writer();
        }
    }
}
