// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Programs that are linked and in memory, kept for the next time they are run.

use crate::memory::Block;
use crate::resolve;
use abi::{Result, errno::*};
use alloc::format;
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec::Vec;
use api_fs::Timespec;
use api_lock::SpinLock;
use api_overlay::Failure;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use mem::Prot;
use overlay_link::{Image, Input, Place, Plan};
use sched::OneProcessor;

/// Programs that are kept.
const MAX_PROGRAMS: usize = 32;
/// Zeros for the parts of a program that have no bytes.
const ZEROS: [u8; 4096] = [0; 4096];

/// Where a program came from, to know it again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// A file, with its size and the time of its last change.
    File { path: Vec<u8>, size: u64, changed: Timespec },
    /// The host sent it; the key is the host's.
    Sent { key: Vec<u8> },
}

/// An object as it came.
pub struct Object {
    pub name: String,
    pub bytes: Vec<u8>,
}

pub struct Program {
    pub name: String,
    pub origin: Origin,
    pub block: Block,
    /// Without text and constants, which are in memory.
    pub image: Image,
    /// To link it again when it is to run twice at the same time.
    objects: Arc<Vec<Object>>,
    running: AtomicBool,
    runs: AtomicU32,
    /// Rights of pages are the same on all processors.
    _alone: OneProcessor,
}

static PROGRAMS: SpinLock<Vec<Arc<Program>>> = SpinLock::new(Vec::new());

/// The last part of a path, without `.o`.
pub fn short_name(path: &[u8]) -> String {
    let base = path.rsplit(|b| *b == b'/').next().unwrap_or(path);
    String::from_utf8_lossy(base.strip_suffix(b".o").unwrap_or(base)).into_owned()
}

fn no_room(name: &str) -> Failure {
    Failure::new(name).errno(ENOMEM).code(Failure::REFUSED)
}

impl Program {
    /// Links objects and puts them into memory.
    pub fn link(
        name: &str,
        origin: Origin,
        objects: Arc<Vec<Object>>,
    ) -> core::result::Result<Arc<Program>, Failure> {
        let alone = OneProcessor::keep();
        api_plat::domain::prepare().map_err(|_| no_room(name))?;
        let inputs: Vec<Input<'_>> =
            objects.iter().map(|object| Input { name: &object.name, bytes: &object.bytes }).collect();
        let refused = |e: overlay_link::Error| Failure::new("").because(e.to_string()).code(Failure::REFUSED);
        let plan = resolve::with_definitions(|definition| {
            Plan::new(&inputs, &|symbol: &[u8]| definition(symbol)).map_err(refused)
        })?;
        let block = Block::new(plan.size()).map_err(|_| no_room(name))?;
        let mut canary = [0; 8];
        api_plat::entropy(&mut canary);
        // A zero byte stops functions that copy strings.
        let canary = u64::from_le_bytes(canary) & !0xff;
        let mut image = plan.place(Place { base: block.start, canary }).map_err(refused)?;
        put(&block, &mut image).map_err(|_| no_room(name))?;
        drop(plan);
        let (running, runs) = (AtomicBool::new(false), AtomicU32::new(0));
        Ok(Arc::new(Program {
            name: name.into(),
            origin,
            block,
            image,
            objects,
            running,
            runs,
            _alone: alone,
        }))
    }

    /// Its variables as they were at first.
    pub fn refresh(&self) -> Result<()> {
        let image = &self.image;
        self.block.write(image.data_address, &image.data)?;
        let (mut at, end) =
            (image.data_address + image.data.len() as u64, image.data_address + image.data_size);
        while at < end {
            let count = (end - at).min(ZEROS.len() as u64);
            self.block.write(at, &ZEROS[..count as usize])?;
            at += count;
        }
        Ok(())
    }

    pub fn is_text(&self, address: u64) -> bool {
        (self.block.start..self.image.rodata_address).contains(&address)
    }

    pub fn is_running(&self) -> bool {
        self.running.load(Ordering::Relaxed)
    }

    pub fn runs(&self) -> u32 {
        self.runs.load(Ordering::Relaxed)
    }

    /// Takes it for running: itself, or a copy when it runs already.
    pub fn claim(self: &Arc<Program>) -> core::result::Result<Claimed, Failure> {
        self.runs.fetch_add(1, Ordering::Relaxed);
        if !self.running.swap(true, Ordering::Relaxed) {
            return Ok(Claimed(self.clone()));
        }
        let copy = Program::link(&self.name, self.origin.clone(), self.objects.clone())?;
        copy.running.store(true, Ordering::Relaxed);
        Ok(Claimed(copy))
    }
}

/// A program that runs; free again when this is dropped.
pub struct Claimed(pub Arc<Program>);

impl Drop for Claimed {
    fn drop(&mut self) {
        self.0.running.store(false, Ordering::Relaxed);
    }
}

/// Copies the segments to memory and gives each its rights; the bytes that need not be kept are dropped.
fn put(block: &Block, image: &mut Image) -> Result<()> {
    let text = core::mem::take(&mut image.text);
    let rodata = core::mem::take(&mut image.rodata);
    block.write(block.start, &text)?;
    block.write(image.rodata_address, &rodata)?;
    let read = Prot::READ;
    block.protect(block.start, image.rodata_address - block.start, read.with(Prot::EXECUTE))?;
    block.protect(image.rodata_address, image.data_address - image.rodata_address, read)?;
    image.data.shrink_to_fit();
    Ok(())
}

/// Keeps a program under its name, instead of another of that name.
pub fn keep(program: &Arc<Program>) -> core::result::Result<(), Failure> {
    let mut programs = PROGRAMS.lock();
    // Those of an address space that is gone cannot run any more.
    let (live, gone): (Vec<_>, Vec<_>) =
        programs.drain(..).partition(|other| other.block.is_live() && other.name != program.name);
    *programs = live;
    let result = if programs.len() == MAX_PROGRAMS {
        Err(Failure::new(&*program.name).because(format!("{MAX_PROGRAMS} programs are loaded; free some")))
    } else {
        programs.push(program.clone());
        Ok(())
    };
    drop(programs);
    drop(gone);
    result
}

/// The kept program of that name.
pub fn named(name: &str) -> Option<Arc<Program>> {
    PROGRAMS.lock().iter().find(|p| p.name == name && p.block.is_live()).cloned()
}

/// The kept program that came from there.
pub fn from(origin: &Origin) -> Option<Arc<Program>> {
    PROGRAMS.lock().iter().find(|p| p.origin == *origin && p.block.is_live()).cloned()
}

pub fn all() -> Vec<Arc<Program>> {
    PROGRAMS.lock().iter().filter(|p| p.block.is_live()).cloned().collect()
}

/// Lets go of a program; its memory is free when nobody runs it any more.
pub fn forget(name: &str) -> bool {
    let mut programs = PROGRAMS.lock();
    let index = programs.iter().position(|p| p.name == name);
    let removed = index.map(|index| programs.remove(index));
    drop(programs);
    removed.is_some()
}

pub fn complete(prefix: &[u8], found: &mut dyn FnMut(&[u8])) {
    for program in all().iter().filter(|p| p.name.as_bytes().starts_with(prefix)) {
        found(program.name.as_bytes());
    }
}
