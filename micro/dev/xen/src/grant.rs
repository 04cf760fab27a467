// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Pages that another domain may use (`grant_table.h`, version 1). None is ever taken back.

use abi::{Result, errno::EIO, errno::ENOMEM};
use alloc::vec::Vec;
use api_alloc::Reserve;
use api_lock::SpinLock;
use core::sync::atomic::Ordering;
use plat_pc::xen::{self, Page};

/// Entries of a page of the table, of two words each.
const ENTRIES: u32 = 512;
/// Pages of the table: a network device needs one, and so do a few disks.
const MAX_PAGES: u32 = 4;
/// Those before are the toolstack's (`GNTTAB_NR_RESERVED_ENTRIES`).
const FIRST: u32 = 8;
/// `GTF_permit_access`: reading and writing.
const PERMIT: u32 = 1;

struct Table {
    pages: Vec<&'static Page>,
    next: u32,
}

static TABLE: SpinLock<Table> = SpinLock::new(Table { pages: Vec::new(), next: FIRST });

/// Pages for rings and buffers, empty, for ever.
pub fn pages(count: usize) -> Result<&'static [Page]> {
    let mut pages = Vec::new();
    pages.reserve_exact_fallibly(count).map_err(|_| ENOMEM)?;
    pages.resize_with(count, Page::default);
    Ok(pages.leak())
}

/// Lets the domain use the page; the reference by which it names the page.
pub fn grant(domain: u16, page: &'static Page) -> Result<u32> {
    let mut table = TABLE.lock();
    let reference = table.next;
    let index = reference / ENTRIES;
    if index >= MAX_PAGES {
        return Err(ENOMEM);
    }
    if index as usize >= table.pages.len() {
        let [new] = pages(1)? else { return Err(ENOMEM) };
        table.pages.reserve_fallibly(1).map_err(|_| ENOMEM)?;
        if !xen::map_grants(index.into(), new) {
            return Err(EIO);
        }
        table.pages.push(new);
    }
    let words = &table.pages[index as usize].0;
    let at = 2 * (reference % ENTRIES) as usize;
    let number = u32::try_from(page.number()).map_err(|_| EIO)?;
    words[at + 1].store(number, Ordering::Relaxed);
    // The domain may use the entry as soon as this word is there.
    words[at].store(u32::from(domain) << 16 | PERMIT, Ordering::Release);
    table.next += 1;
    Ok(reference)
}
