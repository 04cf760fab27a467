// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The kernel's half of the address space.

use crate::{KERNEL_BASE, STACKS, asm, physical_to_virtual};
use api_plat::MemoryRange;
use core::arch::asm;

const PRESENT: u64 = 1;
const WRITABLE: u64 = 1 << 1;
/// PWT and PCD: memory of a device.
const UNCACHED: u64 = 3 << 3;
const LARGE: u64 = 1 << 7;
const GLOBAL: u64 = 1 << 8;
const NO_EXECUTE: u64 = 1 << 63;
const ADDRESS: u64 = 0x000f_ffff_ffff_f000;

/// Where the image begins, and the most it may cover: page tables for this much are part of it. 14 MiB, which is what boot.s
/// maps behind the first 2 MiB: an image with a linked program as large as Python has 8.
const IMAGE: u64 = 2 << 20;
const IMAGE_TABLES: usize = 7;

const LARGE_PAGE: u64 = 2 << 20;
/// Windows of devices lie below this: as far as 46 bits of an address reach, as processors without five-level paging have.
const WINDOWS_END: u64 = 1 << 46;

/// The screen's memory is seen here, as memory whose writes are put together: behind the physical map and the windows, whose top-level
/// entries are 256 to 383.
#[cfg(feature = "framebuffer")]
const SCREEN: u64 = 0xffff_0000_0000_0000 | SCREEN_INDEX << 39;
#[cfg(feature = "framebuffer")]
const SCREEN_INDEX: u64 = 448;
/// PAT: of a large page, the bit that makes entries 4 to 7 of IA32_PAT count.
#[cfg(feature = "framebuffer")]
const LARGE_PAT: u64 = 1 << 12;

type Table = [u64; 512];

#[repr(C, align(4096))]
struct Tables([Table; IMAGE_TABLES]);

static mut IMAGE_PT: Tables = Tables([[0; 512]; IMAGE_TABLES]);
#[repr(C, align(4096))]
struct OneTable(Table);
static mut STACKS_PD: OneTable = OneTable([0; 512]);
#[cfg(feature = "framebuffer")]
static mut SCREEN_PDPT: OneTable = OneTable([0; 512]);
#[cfg(feature = "framebuffer")]
static mut SCREEN_PD: OneTable = OneTable([0; 512]);

pub fn image_physical(virtual_address: u64) -> u64 {
    virtual_address - KERNEL_BASE
}

/// Bytes of physical memory that the physical map covers from the first instruction on.
pub fn mapped_at_start() -> u64 {
    // SAFETY: the table is in the image and nobody writes it now.
    let large = unsafe { (*(asm::unilith_pdpt_physical.address() as *const Table))[0] & LARGE != 0 };
    if large { 512 << 30 } else { 4 << 30 }
}

/// Cuts the image into pages with the rights each needs, takes the identity map away, and makes room for the stacks'
/// page tables.
pub fn protect_image() {
    let text_end = asm::__text_end.address();
    let rodata_end = asm::__rodata_end.address();
    let end = asm::__kernel_end.address();
    let guards = asm::stack_guards();
    if end - KERNEL_BASE > IMAGE + IMAGE_TABLES as u64 * (2 << 20) {
        plat_x86::crash::fail("the kernel image is larger than its page tables");
    }
    // SAFETY: runs once at boot on one processor. The new entries map the image where it is, executable up to the end
    // of the text and writable only behind the read-only data, so everything in use keeps the rights it needs; the
    // code here runs at its high address, so the identity map is not needed.
    unsafe {
        let tables = (&raw mut IMAGE_PT.0).cast::<u64>();
        let mut page = asm::__kernel_start.address();
        while page < end {
            let physical = image_physical(page);
            let rights = if page < text_end {
                0
            } else if page < rodata_end {
                NO_EXECUTE
            } else {
                NO_EXECUTE | WRITABLE
            };
            if !guards.iter().any(|(guard, _)| *guard == page) {
                *tables.add(((physical - IMAGE) >> 12) as usize) = physical | rights | GLOBAL | PRESENT;
            }
            page += 4096;
        }
        let pd = asm::unilith_pd_kernel.address() as *mut Table;
        for i in 0..8 {
            let table = &raw const IMAGE_PT.0 as u64 + (i as u64).wrapping_sub(1) * 4096;
            (*pd)[i] = if (1..=IMAGE_TABLES).contains(&i) { image_physical(table) | 3 } else { 0 };
        }
        let pdpt = asm::unilith_pdpt_kernel.address() as *mut Table;
        (*pdpt)[511] = image_physical(&raw const STACKS_PD as u64) | 3;
        let pml4 = asm::unilith_pml4.address() as *mut Table;
        (*pml4)[0] = 0;
        no_execute_physical_map(mapped_at_start());
        forget_all();
    }
}

/// The physical map holds data only.
///
/// # Safety
///
/// As for [`protect_image`].
unsafe fn no_execute_physical_map(covered: u64) {
    // SAFETY: adding NX and G to entries of the boot table, from which nothing is executed.
    unsafe {
        let pml4 = asm::unilith_pml4.address() as *mut Table;
        // NX above the leaf is enough for all below; the top entry is this map's alone.
        (*pml4)[256] |= NO_EXECUTE;
        let pdpt = asm::unilith_pdpt_physical.address() as *mut Table;
        if covered == 512 << 30 {
            for entry in &mut *pdpt {
                *entry |= GLOBAL;
            }
        }
    }
}

/// Extends the physical map to memory above 4 GiB where the processor has no 1 GiB pages; takes one page for each GiB
/// out of `free`, from below 4 GiB.
pub fn map_high_memory(free: &mut crate::ranges::Ranges) {
    let top = free.as_slice().last().map_or(0, |r| r.end);
    if top > 512 << 30 {
        free.remove(512 << 30, top);
    }
    if top <= mapped_at_start() {
        return;
    }
    for gib in 4..top.div_ceil(1 << 30).min(512) {
        let Some(page) = take_low_page(free) else {
            return free.remove(gib << 30, top);
        };
        // SAFETY: the page is free and mapped; the entry was empty.
        unsafe {
            let pd: *mut Table = physical_to_virtual(page);
            for (i, entry) in (*pd).iter_mut().enumerate() {
                *entry = ((gib << 30) + ((i as u64) << 21)) | LARGE | GLOBAL | WRITABLE | PRESENT;
            }
            (*(asm::unilith_pdpt_physical.address() as *mut Table))[gib as usize] = page | 3;
        }
    }
}

fn take_low_page(free: &mut crate::ranges::Ranges) -> Option<u64> {
    let MemoryRange { start, .. } = *free.as_slice().first().filter(|r| r.start < 4 << 30)?;
    free.remove(start, start + 4096);
    Some(start)
}

/// Shows the kernel a window of a device, where firmware placed it beyond the physical map. False: there is no memory for
/// its page tables, or no processor has such an address. Only while the machine starts: other address spaces copy the
/// kernel's half when they are made.
pub fn show_window(start: u64, length: u64) -> bool {
    let Some(end) = start.checked_add(length).filter(|end| *end <= WINDOWS_END) else { return false };
    if end <= mapped_at_start() {
        return true;
    }
    let mut pages = (start & !(LARGE_PAGE - 1)..end).step_by(LARGE_PAGE as usize);
    // SAFETY: the kernel's own table, which nobody else writes while the machine starts.
    pages.all(|page| unsafe { show_page(page) })
}

/// # Safety
///
/// Nobody else writes the kernel's tables.
unsafe fn show_page(page: u64) -> bool {
    // SAFETY: by the caller's word; tables are in the physical map, and what was not mapped is in no TLB.
    unsafe {
        let mut table = asm::unilith_pml4.address() as *mut Table;
        // The physical map begins with entry 256.
        for index in [256 + (page >> 39), page >> 30 & 511] {
            let entry = &mut (*table)[index as usize];
            if *entry & PRESENT == 0 {
                let Ok(frame) = api_mem::PageFrame::new() else { return false };
                *entry = frame.into_raw() | WRITABLE | PRESENT;
            }
            if *entry & LARGE != 0 {
                return true;
            }
            table = physical_to_virtual(*entry & ADDRESS);
        }
        let entry = &mut (*table)[(page >> 21 & 511) as usize];
        if *entry & PRESENT == 0 {
            *entry = page | NO_EXECUTE | GLOBAL | LARGE | UNCACHED | WRITABLE | PRESENT;
        }
        true
    }
}

/// Maps the screen's memory, by tables of the image so that it can be seen before there is other memory; answers where. `None`: it is
/// more than one table reaches. `combines`: entry 4 of IA32_PAT is write combining.
///
/// # Safety
///
/// Called once, while the machine starts, with memory of a device that nothing else uses.
#[cfg(feature = "framebuffer")]
pub unsafe fn map_screen(start: u64, length: u64, combines: bool) -> Option<*mut u32> {
    let first = start & !(LARGE_PAGE - 1);
    let pages = start.checked_add(length)?.checked_sub(first)?.div_ceil(LARGE_PAGE);
    let kind = if combines { LARGE_PAT } else { UNCACHED };
    // SAFETY: the tables are this function's alone, and what was not mapped is in no TLB.
    unsafe {
        let pd = &raw mut SCREEN_PD.0;
        let entries = (&mut *pd).get_mut(..pages as usize)?;
        for (n, entry) in (0..).zip(entries) {
            *entry = (first + n * LARGE_PAGE) | NO_EXECUTE | GLOBAL | LARGE | kind | WRITABLE | PRESENT;
        }
        let pdpt = &raw mut SCREEN_PDPT.0;
        (*pdpt)[0] = image_physical(pd as u64) | WRITABLE | PRESENT;
        let pml4 = asm::unilith_pml4.address() as *mut Table;
        (*pml4)[SCREEN_INDEX as usize] = image_physical(pdpt as u64) | WRITABLE | PRESENT;
    }
    Some((SCREEN + (start - first)) as *mut u32)
}

/// The running processor forgets all translations, global ones included.
pub fn forget_all() {
    // SAFETY: CR4.PGE off and on again (Intel SDM volume 3, 4.10.4.1); nothing else changes.
    unsafe {
        asm!("mov {t}, cr4", "xor {t}, 0x80", "mov cr4, {t}", "xor {t}, 0x80", "mov cr4, {t}", t = out(reg) _,
            options(nostack));
    }
}

/// Maps a page of code or constants behind the image; nobody needs to be told, for what was not mapped is in no TLB.
///
/// # Safety
///
/// `address` is a page of the overlay's part of the text, which has no memory yet; `frame` belongs to the caller.
pub unsafe fn map_image_page(address: u64, frame: u64) {
    let execute = if address < asm::__overlay_text_end.address() { 0 } else { NO_EXECUTE };
    let rights = crate::domain::kernel_key() | execute | GLOBAL | PRESENT;
    // SAFETY: the linker script keeps that part within the image's tables, and nothing else writes this entry.
    unsafe { image_entry(address).write(frame | rights) };
}

/// The frame of a page that [`map_image_page`] mapped; 0 for none.
pub fn image_frame(address: u64) -> u64 {
    // SAFETY: only reads a table that stays for ever.
    unsafe { image_entry(address).read() & ADDRESS }
}

fn image_entry(address: u64) -> *mut u64 {
    let index = (image_physical(address) - IMAGE) >> 12;
    (&raw mut IMAGE_PT).cast::<u64>().wrapping_add(index as usize)
}

/// Physical address of the kernel's own top-level table, to copy entries 256 to 511 from.
pub fn kernel_table() -> u64 {
    image_physical(asm::unilith_pml4.address())
}

/// Maps a page of the stack area; `None` when a page table is needed and there is no memory.
///
/// # Safety
///
/// `address` is a page of the stack area that is not mapped; `frame` belongs to the caller.
pub unsafe fn map_stack_page(address: u64, frame: u64) -> Option<()> {
    // SAFETY: STACKS_PD and the tables below it are reached only here and in `unmap_stack_page`, by callers that hold
    // the lock of the stacks.
    unsafe {
        let pd = &raw mut STACKS_PD.0;
        let entry = &mut (*pd)[((address - STACKS) >> 21) as usize];
        if *entry & PRESENT == 0 {
            // Kept for ever: other stacks share it.
            *entry = api_mem::PageFrame::new().ok()?.into_raw() | 3;
        }
        let pt: *mut Table = physical_to_virtual(*entry & ADDRESS);
        let key = crate::domain::kernel_key();
        (*pt)[(address >> 12 & 511) as usize] = frame | key | NO_EXECUTE | GLOBAL | WRITABLE | PRESENT;
    }
    Some(())
}

/// Makes a page that [`map_stack_page`] mapped executable and read-only.
///
/// # Safety
///
/// As for [`unmap_stack_page`], but for what reads it.
pub unsafe fn make_executable(address: u64) {
    // SAFETY: as in `unmap_stack_page`.
    unsafe {
        let pd = &raw mut STACKS_PD.0;
        let pt: *mut Table = physical_to_virtual((*pd)[((address - STACKS) >> 21) as usize] & ADDRESS);
        (*pt)[(address >> 12 & 511) as usize] &= !(NO_EXECUTE | WRITABLE);
        asm!("invlpg [{}]", in(reg) address, options(nostack, preserves_flags));
    }
}

/// The frame of a page that [`map_stack_page`] mapped; 0 for none.
pub fn frame_of(address: u64) -> u64 {
    // SAFETY: only reads tables that stay for ever.
    unsafe {
        let pd = &raw const STACKS_PD.0;
        let entry = (*pd)[((address - STACKS) >> 21) as usize];
        if entry & PRESENT == 0 {
            return 0;
        }
        let pt: *mut Table = physical_to_virtual(entry & ADDRESS);
        (*pt)[(address >> 12 & 511) as usize] & ADDRESS
    }
}

/// The running processor forgets the translation of a page.
pub fn forget(address: u64) {
    // SAFETY: forgetting a translation changes no memory.
    unsafe { asm!("invlpg [{}]", in(reg) address, options(nostack, preserves_flags)) };
}

/// Takes a page of the stack area away; answers its frame, which other processors may still see.
///
/// # Safety
///
/// It was mapped by [`map_stack_page`], and nothing uses it any more.
pub unsafe fn unmap_stack_page(address: u64) -> u64 {
    // SAFETY: as above.
    unsafe {
        let pd = &raw mut STACKS_PD.0;
        let pt: *mut Table = physical_to_virtual((*pd)[((address - STACKS) >> 21) as usize] & ADDRESS);
        let entry = &mut (*pt)[(address >> 12 & 511) as usize];
        let frame = *entry & ADDRESS;
        *entry = 0;
        asm!("invlpg [{}]", in(reg) address, options(nostack, preserves_flags));
        frame
    }
}

/// Memory that firmware's tables may be in: what the physical map shows from the first instruction on.
#[cfg(any(feature = "acpi", feature = "smp"))]
pub struct Mapped;

#[cfg(any(feature = "acpi", feature = "smp"))]
impl crate::acpi::Physical for Mapped {
    fn read(&self, address: u64, to: &mut [u8]) -> bool {
        let fits = address.checked_add(to.len() as u64).is_some_and(|end| end <= mapped_at_start());
        if fits {
            for (i, byte) in to.iter_mut().enumerate() {
                // SAFETY: the physical map shows the address. Where no memory is, and no device whose registers change when they
                // are read, all bits are set; firmware names no address of a device, and if it does a byte of it is read.
                *byte = unsafe { physical_to_virtual::<u8>(address + i as u64).read_volatile() };
            }
        }
        fits
    }
}
