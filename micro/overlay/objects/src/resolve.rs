// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Symbols: the kernel's calls by name, and everything the application's ELF files have, at the addresses they are
//! loaded at.

use crate::api;
use abi::PAGE_SIZE;
use alloc::format;
use alloc::string::String;
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use api_lock::SpinLock;
use core::sync::atomic::{AtomicU64, Ordering};
use mem::MappedFile;
use overlay_link::Definition;
use overlay_symbols::{File, Kind, Layout, NAME_MAX, Source, Symbol};

/// An ELF file of the application.
struct Mapped {
    file: Arc<MappedFile>,
    start: u64,
}

/// How long look-ups go on while others wait for the processor, in nanoseconds: as commands do.
const BUDGET_NS: u64 = 1_000_000;
/// When a look-up gave the processor away last. The kernel is not preempted, and a large file has many symbols.
static YIELDED: AtomicU64 = AtomicU64::new(0);

fn give_way() {
    let now = api_plat::now_ns();
    if now.saturating_sub(YIELDED.load(Ordering::Relaxed)) > BUDGET_NS {
        sched::yield_now();
        YIELDED.store(api_plat::now_ns(), Ordering::Relaxed);
    }
}

impl Source for Mapped {
    fn read_at(&self, offset: u64, to: &mut [u8]) -> bool {
        give_way();
        let mut done = 0;
        while done < to.len() {
            let Some(at) = offset.checked_add(done as u64) else { return false };
            let (index, within) = (at / PAGE_SIZE as u64, at as usize % PAGE_SIZE);
            let count = (PAGE_SIZE - within).min(to.len() - done);
            if at + count as u64 > self.file.source.length() {
                return false;
            }
            let Ok(page) = self.file.source.page(index, false) else { return false };
            page.read(within, &mut to[done..done + count]);
            done += count;
        }
        true
    }
}

/// The files the application has mapped from their start, in ascending order: the program first.
fn files() -> Vec<Mapped> {
    mem::current().mapped_files().into_iter().map(|(start, file)| Mapped { file, start }).collect()
}

fn base_name(path: &[u8]) -> &[u8] {
    path.rsplit(|b| *b == b'/').next().unwrap_or(path)
}

/// A symbol of the application.
pub fn find(name: &[u8]) -> Option<Symbol> {
    with_files(|opened| opened.iter().find_map(|file| file.find(name)))
}

/// A file as it was found when names were last looked up.
struct Known {
    file: Weak<MappedFile>,
    start: u64,
    layout: Option<Layout>,
}

/// Reading their headers again would be a tenth of what loading a program takes.
static KNOWN: SpinLock<Vec<Known>> = SpinLock::new(Vec::new());

/// Does something with the application's files that have symbols.
fn with_files<R>(work: impl FnOnce(&[File<'_, Mapped>]) -> R) -> R {
    let mapped = files();
    // Taken out, for reading files may sleep; who comes meanwhile reads them too.
    let before = core::mem::take(&mut *KNOWN.lock());
    let known = mapped.iter().map(|m| {
        let same = |known: &&Known| known.start == m.start && known.file.as_ptr() == Arc::as_ptr(&m.file);
        let layout = before.iter().find(same).map_or_else(|| Layout::read(m, m.start), |known| known.layout);
        Known { file: Arc::downgrade(&m.file), start: m.start, layout }
    });
    let known: Vec<Known> = known.collect();
    let opened: Vec<_> =
        mapped.iter().zip(&known).filter_map(|(m, known)| Some(File::new(m, known.layout?))).collect();
    let result = work(&opened);
    drop(opened);
    *KNOWN.lock() = known;
    result
}

/// Hands over what says what names in objects mean.
pub fn with_definitions<R>(work: impl FnOnce(&dyn Fn(&[u8]) -> Option<Definition>) -> R) -> R {
    with_files(|opened| work(&|name: &[u8]| definition(opened, name)))
}

fn definition(files: &[File<'_, Mapped>], name: &[u8]) -> Option<Definition> {
    if let Some(number) = api::number(name) {
        return Some(Definition::Call(number));
    }
    let symbol = files.iter().find_map(|file| file.find(name))?;
    Some(match symbol.kind {
        Kind::Function => Definition::Function(symbol.address),
        Kind::Indirect => Definition::Indirect(symbol.address),
        Kind::Variable => Definition::Data(symbol.address),
        Kind::ThreadLocal => Definition::ThreadLocal,
    })
}

/// `name+0x12 (file)` for an address of the application.
pub fn describe(address: u64) -> Option<String> {
    // The file that lies nearest below is the one the address belongs to.
    let mapped = files().into_iter().rfind(|m| m.start <= address)?;
    let file = String::from_utf8_lossy(base_name(&mapped.file.path));
    let mut name = [0; NAME_MAX];
    let symbol = File::open(&mapped, mapped.start).and_then(|file| file.describe(address, &mut name));
    if let Some((symbol, length)) = symbol {
        let function = String::from_utf8_lossy(&name[..length]);
        return Some(format!("{function}+{:#x} ({file})", address - symbol.address));
    }
    // Code without a name, if it is the file's at all.
    let is_of_file = mem::current().mapping_at(address).is_some_and(|here| here.name == mapped.file.path);
    is_of_file.then(|| format!("{file}+{:#x}", address - mapped.start))
}

/// Gets a symbol's name, the symbol, and the name of its file; answers whether there are to be more.
pub type Found<'a> = dyn FnMut(&[u8], Symbol, &[u8]) -> bool + 'a;

/// Hands on symbols whose names begin with `prefix`, until `found` answers false.
pub fn each(prefix: &[u8], found: &mut Found<'_>) {
    let mut go_on = true;
    for mapped in files() {
        let Some(file) = File::open(&mapped, mapped.start) else { continue };
        file.each(prefix, &mut |name, symbol| {
            go_on = found(name, symbol, base_name(&mapped.file.path));
            go_on
        });
        if !go_on {
            return;
        }
    }
}

/// Most names completion looks at.
const COMPLETED: usize = 2000;

pub fn complete(prefix: &[u8], found: &mut dyn FnMut(&[u8])) {
    for name in api::NAMES.iter().filter(|name| name.as_bytes().starts_with(prefix)) {
        found(name.as_bytes());
    }
    let mut left = COMPLETED;
    each(prefix, &mut |name, _, _| {
        found(name);
        left -= 1;
        left > 0
    });
}
