// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Protection domains of overlay programs: which pages they may write.
//!
//! Two means give the same guarantee. **Protection keys of supervisor pages** (Intel SDM volume 3, 4.6.2): each page has
//! a key, and IA32_PKRS says which keys may not be written. The application's pages have key 0, those of overlay programs
//! key 1, the kernel's key 2. Where the processor has none, **page tables**: a second top-level table leads to the same
//! tables below, with the right to write taken away where it leads to the application's and the kernel's memory.
//!
//! Nor can a program jump into the kernel: its text cannot be executed in the domain, but for the pages of the section
//! `.text.unilith_gate`, which hold the ways in and out. With page tables that is a bit of theirs; with keys these pages
//! are the user's to supervisor-mode execution prevention (SMEP), which is on in the domain only.
//!
//! Either way the stacks on which interrupts and exceptions arrive stay writable, for the processor writes to them before
//! any instruction can change the domain. Nothing that matters lies on them while an overlay program runs.

use crate::x86::{IA32_PKRS, wrmsr};
use crate::{KERNEL_BASE, asm, paging, physical_to_virtual};
use abi::{Result, errno::EOPNOTSUPP};
use api_plat::Entry;
use api_plat::domain::{Means, REGION};
use core::arch::asm;
use core::arch::x86_64::{__cpuid, __cpuid_count};
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use plat_x86::asm::LEAVE_TO_OVERLAY;
use plat_x86::cpu;

const PRESENT: u64 = 1;
const WRITABLE: u64 = 1 << 1;
const USER: u64 = 1 << 2;
const ACCESSED: u64 = 1 << 5;
const LARGE: u64 = 1 << 7;
const NO_EXECUTE: u64 = 1 << 63;
const ADDRESS: u64 = 0x000f_ffff_ffff_f000;
/// Where the protection key is in an entry that maps a page.
const KEY_SHIFT: u32 = 59;
const KEY_MASK: u64 = 15 << KEY_SHIFT;
const KEY_OVERLAY: u64 = 1 << KEY_SHIFT;
const KEY_KERNEL: u64 = 2 << KEY_SHIFT;
/// IA32_PKRS: writes are denied to key n by bit 2n + 1.
const DENY_APPLICATION: u64 = 1 << 1;
const DENY_KERNEL: u64 = 1 << 5;
const CR4_PKS: u64 = 1 << 24;
const CR4_PGE: u64 = 1 << 7;
pub const CR4_SMEP: u64 = 1 << 20;

type Table = [u64; 512];

/// The key of kernel pages that are mapped from now on.
static KERNEL_KEY: AtomicU64 = AtomicU64::new(0);
/// The domain's top-level table; 0 with keys.
static ROOT: AtomicU64 = AtomicU64::new(0);
/// Top-level table of the application while an overlay program runs.
static OUTER_ROOT: AtomicU64 = AtomicU64::new(0);
static READY: AtomicBool = AtomicBool::new(false);

/// What new entries that map the kernel's pages need.
pub fn kernel_key() -> u64 {
    KERNEL_KEY.load(Ordering::Relaxed)
}

fn table(physical: u64) -> *mut Table {
    physical_to_virtual(physical & ADDRESS)
}

fn root() -> u64 {
    let root: u64;
    // SAFETY: reads a control register.
    unsafe { asm!("mov {}, cr3", out(reg) root, options(nomem, nostack, preserves_flags)) };
    root & ADDRESS
}

/// Loads a top-level table and forgets all translations, global ones included.
///
/// # Safety
///
/// The tables map what is in use.
#[inline(always)]
unsafe fn load_root(root: u64) {
    // SAFETY: CR4.PGE off and on again empties the TLB (Intel SDM volume 3, 4.10.4.1).
    unsafe {
        asm!("mov {old}, cr4", "mov {off}, {old}", "and {off}, {mask}", "mov cr4, {off}", "mov cr3, {root}",
            "mov cr4, {old}", old = out(reg) _, off = out(reg) _, root = in(reg) root,
            mask = const !(CR4_PGE as i32), options(nostack));
    }
}

#[unsafe(no_mangle)]
fn unilith_plat_domain_prepare() -> Result<Means> {
    // One processor at a time could be in a domain, and the interrupt stacks of the others are not left writable in it.
    if crate::processors::several() {
        return Err(EOPNOTSUPP);
    }
    if !READY.load(Ordering::Relaxed) {
        let (pks, smep) = match __cpuid(0).eax {
            7.. => (__cpuid_count(7, 0).ecx & 1 << 31 != 0, __cpuid_count(7, 0).ebx & 1 << 7 != 0),
            _ => (false, false),
        };
        if pks && smep {
            tag_kernel();
        } else {
            ROOT.store(domain_tables()?, Ordering::Relaxed);
        }
        LEAVE_TO_OVERLAY.store(asm::unilith_leave_to_overlay.address() as *mut (), Ordering::Relaxed);
        READY.store(true, Ordering::Relaxed);
    }
    Ok(if ROOT.load(Ordering::Relaxed) == 0 { Means::Keys } else { Means::Tables })
}

/// Code of the kernel that is not to be executed in the domain.
fn is_closed_text(address: u64) -> bool {
    (asm::__gate_end.address()..asm::__text_end.address()).contains(&address)
        || crate::tools::contains(address)
}

fn on_interrupt_stack(address: u64) -> bool {
    asm::interrupt_stacks().iter().any(|stack| stack.contains(&address))
}

/// Gives every page of the kernel's half its key, and turns keys on.
fn tag_kernel() {
    KERNEL_KEY.store(KEY_KERNEL, Ordering::Relaxed);
    // SAFETY: keys are ignored by the processor until CR4.PKS is set, and then by IA32_PKRS being 0; the tables of the
    // kernel's half are changed by this processor alone.
    unsafe {
        tag(table(root()), 4, 256, 0xffff_8000_0000_0000);
        wrmsr(IA32_PKRS, 0);
        let mut cr4: u64;
        asm!("mov {}, cr4", out(reg) cr4, options(nomem, nostack, preserves_flags));
        cr4 |= CR4_PKS;
        asm!("mov cr4, {}", in(reg) cr4, options(nostack, preserves_flags));
        load_root(root());
    }
}

/// Tags what the entries of a table of `level` map, from entry `first` on, which maps `address`.
///
/// # Safety
///
/// `table` is such a table, and nobody else changes it.
unsafe fn tag(table: *mut Table, level: u32, first: usize, address: u64) {
    let span = 1u64 << (12 + 9 * (level - 1));
    for index in first..512 {
        // SAFETY: by the caller's word; entries without LARGE above level 1 lead to tables of the next level.
        unsafe {
            let entry = &mut (*table)[index];
            let address = address + (index - first) as u64 * span;
            if *entry & PRESENT == 0 {
                continue;
            }
            if level == 1 || *entry & LARGE != 0 && level < 4 {
                let key = if on_interrupt_stack(address) { KEY_OVERLAY } else { KEY_KERNEL };
                *entry = *entry & !KEY_MASK | key;
                if is_closed_text(address) {
                    *entry |= USER;
                }
            } else {
                // The entries below decide.
                *entry |= USER;
                tag(self::table(*entry), level - 1, 0, address);
            }
        }
    }
}

/// A table for the domain; kept for ever.
fn copy_of(from: *const Table) -> Result<u64> {
    let to = api_mem::PageFrame::new()?.into_raw();
    // SAFETY: both are whole tables, and the new one is nobody else's.
    unsafe { *table(to) = *from };
    Ok(to)
}

/// Makes the kernel's half of the domain's tables: all of it read-only but the interrupt stacks.
fn domain_tables() -> Result<u64> {
    let root = copy_of(table(paging::kernel_table()))?;
    let pdpt = copy_of(asm::unilith_pdpt_kernel.address() as *const Table)?;
    let pd = copy_of(asm::unilith_pd_kernel.address() as *const Table)?;
    // SAFETY: the copies are this function's until it answers; the entries of the image's directory lead to page
    // tables (`paging::protect_image`).
    unsafe {
        for entry in (&mut *table(root))[256..].iter_mut() {
            *entry &= !WRITABLE;
        }
        (*table(root))[511] = pdpt | WRITABLE | PRESENT;
        for entry in &mut *table(pdpt) {
            *entry &= !WRITABLE;
        }
        (*table(pdpt))[510] = pd | WRITABLE | PRESENT;
        for (index, entry) in (&mut *table(pd)).iter_mut().enumerate().filter(|(_, e)| **e & PRESENT != 0) {
            let pages = copy_of(table(*entry))?;
            *entry = pages | WRITABLE | PRESENT;
            for (page, entry) in (&mut *table(pages)).iter_mut().enumerate() {
                let address = KERNEL_BASE + ((index as u64) << 21) + ((page as u64) << 12);
                if !on_interrupt_stack(address) {
                    *entry &= !WRITABLE;
                }
                if is_closed_text(address) {
                    *entry |= NO_EXECUTE;
                }
            }
        }
    }
    Ok(root)
}

#[unsafe(no_mangle)]
fn unilith_plat_domain_give(start: u64, length: u64) {
    if ROOT.load(Ordering::Relaxed) != 0 || length == 0 || start < REGION.start || start + length > REGION.end
    {
        return;
    }
    let mut at = start;
    while at < start + length {
        let mut entry = table(root()).cast::<u64>();
        let mut level = 4;
        loop {
            // SAFETY: the entry lies in a table of the running address space, of which nobody unmaps this part
            // (the contract of `domain::give`).
            unsafe {
                let slot = entry.add((at >> (12 + 9 * (level - 1))) as usize & 511);
                if *slot & PRESENT == 0 {
                    break;
                }
                if level == 1 || *slot & LARGE != 0 {
                    let used = *slot & ACCESSED != 0;
                    *slot = *slot & !KEY_MASK | KEY_OVERLAY;
                    // The processor remembers no translation that it has not marked (4.10.2.3).
                    if used {
                        asm!("invlpg [{}]", in(reg) at, options(nostack, preserves_flags));
                    }
                    break;
                }
                entry = table(*slot).cast();
            }
            level -= 1;
        }
        at = (at | ((1 << (12 + 9 * (level - 1))) - 1)) + 1;
    }
}

/// What the way out of the kernel loads to be in a domain.
#[repr(C)]
struct Load {
    value: u64,
    /// `value` is a top-level table, not what keys deny.
    is_root: u64,
}

/// Called on the way out to an overlay program, with interrupts off.
#[unsafe(no_mangle)]
extern "C" fn unilith_pc_domain(entry: u64) -> Load {
    let writes = entry == Entry::OverlayWriting as u64;
    let domain = ROOT.load(Ordering::Relaxed);
    if domain == 0 {
        return Load { value: DENY_KERNEL | if writes { 0 } else { DENY_APPLICATION }, is_root: 0 };
    }
    let outer = root();
    OUTER_ROOT.store(outer, Ordering::Relaxed);
    let own = (REGION.start >> 39) as usize;
    // SAFETY: the domain's table is changed here only, while it is not in use.
    unsafe {
        let (from, to) = (&*table(outer), &mut *table(domain));
        for (index, (to, from)) in to[..256].iter_mut().zip(&from[..256]).enumerate() {
            *to = if writes || index == own { *from } else { *from & !WRITABLE };
        }
    }
    Load { value: domain, is_root: 1 }
}

/// Back to the kernel's domain; answers which one it was. First thing when something interrupted: until then only the
/// interrupt stacks can be written.
#[inline(always)]
pub fn leave() -> Option<Entry> {
    let domain = cpu::domain();
    if domain == 0 {
        return None;
    }
    // SAFETY: the application's tables map everything; a PKRS of 0 forbids nothing, and neither does CR4 without SMEP.
    unsafe {
        match ROOT.load(Ordering::Relaxed) {
            0 => {
                wrmsr(IA32_PKRS, 0);
                asm!("mov {old}, cr4", "and {old}, {mask}", "mov cr4, {old}", old = out(reg) _,
                    mask = const !(CR4_SMEP as i32), options(nostack));
            }
            _ => load_root(OUTER_ROOT.load(Ordering::Relaxed)),
        }
    }
    cpu::clear_domain();
    Some(if domain == Entry::OverlayWriting as u64 { Entry::OverlayWriting } else { Entry::Overlay })
}
