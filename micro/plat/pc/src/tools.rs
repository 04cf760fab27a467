// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The overlay's part of the kernel's code and constants, which is not in the image: the host hands it over when a command
//! first comes. It has its place in the address space from the linker (`link.ld`), so nothing is to be relocated.

use crate::{asm, fw_cfg::Device, paging};
use abi::{PAGE_SIZE, Result, errno::EIO, errno::ENOMEM, errno::ENOSYS};
use alloc::vec::Vec;
use api_alloc::Reserve;
use api_lock::SpinLock;
use api_mem::PageFrame;

/// The host's name of it.
const NAME: &[u8] = b"opt/unilith/overlay";

/// Gives each of so many pages of it in turn.
type Source = fn(usize, &mut dyn FnMut(PageFrame)) -> Result<()>;

/// Where it comes from on monitors that have no firmware configuration device.
static SOURCE: SpinLock<Option<Source>> = SpinLock::new(None);

/// Names another source for machines without a firmware configuration device.
pub fn set_source(source: Source) {
    *SOURCE.lock() = Some(source);
}

static IS_THERE: SpinLock<bool> = SpinLock::new(false);

#[unsafe(no_mangle)]
fn unilith_plat_load_tools() -> Result<()> {
    let (start, end) = (asm::__overlay_start.address(), asm::__overlay_end.address());
    if *IS_THERE.lock() || start == end {
        return Ok(());
    }
    let count = (end - start) as usize / PAGE_SIZE;
    let mut frames = Vec::new();
    frames.reserve_exact_fallibly(count).map_err(|_| ENOMEM)?;
    let give = &mut |frame| frames.push(frame);
    let source = *SOURCE.lock();
    match (Device::open(), source) {
        (Err(ENOSYS), Some(source)) => source(count, give)?,
        (device, _) => device?.pages(NAME, count, give)?,
    }
    if frames.len() != count {
        return Err(EIO);
    }
    // Not held before: pages are made without locks.
    let mut is_there = IS_THERE.lock();
    if !*is_there {
        for (page, frame) in frames.into_iter().enumerate() {
            // SAFETY: the page is of the overlay's range, where nothing is mapped yet; it is this frame's place.
            unsafe { paging::map_image_page(start + (page * PAGE_SIZE) as u64, frame.into_raw()) };
        }
        *is_there = true;
    }
    Ok(())
}

/// Whether an address is in that part's code.
pub fn contains(address: u64) -> bool {
    (asm::__overlay_start.address()..asm::__overlay_text_end.address()).contains(&address)
}
