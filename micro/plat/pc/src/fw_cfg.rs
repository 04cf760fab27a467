// SPDX-License-Identifier: Apache-2.0 OR MIT
//! QEMU's firmware configuration device: files that the host hands over when they are asked for (QEMU,
//! docs/specs/fw_cfg.rst). Read by its DMA interface; other hosts have no such device.

use crate::x86::{inb, outl, outw};
use abi::{PAGE_SIZE, Result, errno::EIO, errno::ENOENT, errno::ENOSYS};
use api_mem::PageFrame;
use core::sync::atomic::{Ordering, fence};

const SELECTOR: u16 = 0x510;
const DATA: u16 = 0x511;
/// Big-endian address of a [`Request`]: the upper half here, and the lower half four ports on, which starts it.
const DMA: u16 = 0x514;
const SIGNATURE: u16 = 0;
const DIRECTORY: u16 = 0x19;
/// Bits of a request's control word; the item it selects is in the upper half.
const FAILED: u32 = 1;
const READ: u32 = 1 << 1;
const SELECT: u32 = 1 << 3;

/// What the device reads, all of it big-endian.
#[repr(C)]
struct Request {
    control: u32,
    length: u32,
    address: u64,
}

/// An entry of the directory.
const ENTRY: usize = 64;
const NAME: usize = 8;
/// Files that are looked through for one: QEMU has at most this many places.
const MAX_FILES: usize = 1024;

/// The device, and the page in which it is asked.
pub struct Device {
    request: PageFrame,
}

impl Device {
    /// `ENOSYS` where there is none.
    pub fn open() -> Result<Device> {
        // SAFETY: the device's ports, which do nothing else; elsewhere nobody answers there.
        let signature = unsafe {
            outw(SELECTOR, SIGNATURE);
            [inb(DATA), inb(DATA), inb(DATA), inb(DATA)]
        };
        if &signature != b"QEMU" {
            return Err(ENOSYS);
        }
        Ok(Device { request: PageFrame::new()? })
    }

    /// Reads the next bytes of the item into the beginning of a frame; `select`ed, from its first byte on.
    fn read(&self, select: Option<u16>, to: &PageFrame, length: usize) -> Result<()> {
        let control = READ | select.map_or(0, |item| SELECT | u32::from(item) << 16);
        let request = self.request.bytes().cast::<Request>();
        let length = length.min(PAGE_SIZE) as u32;
        let value =
            Request { control: control.to_be(), length: length.to_be(), address: to.physical().to_be() };
        let at = self.request.physical();
        // SAFETY: both frames are the caller's, and the device writes to the second one alone, no more than a page; it has
        // done so when its control word is zero.
        unsafe {
            request.write_volatile(value);
            fence(Ordering::SeqCst);
            outl(DMA, ((at >> 32) as u32).to_be());
            outl(DMA + 4, (at as u32).to_be());
            loop {
                fence(Ordering::SeqCst);
                match u32::from_be((&raw const (*request).control).read_volatile()) {
                    0 => return Ok(()),
                    control if control & FAILED != 0 => return Err(EIO),
                    _ => core::hint::spin_loop(),
                }
            }
        }
    }

    /// The number and length of the file with this name.
    fn find(&self, name: &[u8]) -> Result<(u16, usize)> {
        let page = PageFrame::new()?;
        let bytes = |offset: usize, length: usize| {
            // SAFETY: within the page, which the device has written and does not write now.
            unsafe { core::slice::from_raw_parts(page.bytes().add(offset), length) }
        };
        let number = |offset: usize| bytes(offset, 4).iter().fold(0usize, |n, b| n << 8 | usize::from(*b));
        self.read(Some(DIRECTORY), &page, 4)?;
        for _ in 0..number(0).min(MAX_FILES) {
            self.read(None, &page, ENTRY)?;
            let entry = bytes(NAME, ENTRY - NAME);
            if entry.strip_prefix(name).is_some_and(|rest| rest.first() == Some(&0)) {
                return Ok(((number(4) >> 16) as u16, number(0)));
            }
        }
        Err(ENOENT)
    }

    /// The file with this name, which has this many pages, into frames of its own.
    pub fn pages(&self, name: &[u8], count: usize, each: &mut dyn FnMut(PageFrame)) -> Result<()> {
        let (item, length) = self.find(name)?;
        if length != count * PAGE_SIZE {
            return Err(EIO);
        }
        for n in 0..count {
            let frame = PageFrame::new()?;
            self.read((n == 0).then_some(item), &frame, PAGE_SIZE)?;
            each(frame);
        }
        Ok(())
    }
}
