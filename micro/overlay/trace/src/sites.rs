// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Functions that are probed: their first bytes are a jump, and those bytes' instructions run elsewhere.
//!
//! | | application | kernel |
//! | --- | --- | --- |
//! | the function | `jmp` to its stub | `jmp` to its trampoline |
//! | stub, in a page near the function | `jmp` to the trampoline; moved instructions; `jmp` back | |
//! | trampoline, in the kernel's code pages | programs; `jmp` to the stub's second part | programs; moved instructions; `jmp` back |
//!
//! The part of a trampoline that calls the programs (`Site::aim`) is made for what is attached.
//!
//! A thread that was interrupted between two of the replaced instructions goes on at the moved ones. Neither stubs nor
//! trampolines are ever freed; a function that is probed again gets the same ones.

use crate::code::{TRAMPOLINE, WAY, door, undisturbed, way_to_all, way_to_one};
use crate::load::{self, Active};
use crate::{peek, returns};
use abi::errno::{EACCES, EBUSY, ENOMEM};
use alloc::boxed::Box;
use alloc::string::String;
use alloc::sync::{Arc, Weak};
use alloc::vec;
use alloc::vec::Vec;
use api_lock::SpinLock;
use api_mem::PageFrame;
use api_plat::{CODE_SEGMENT, DATA_SEGMENT, TrapFrame as Saved, USER_END};
use api_probes::{JUMP, Kind, Plan};
use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, AtomicU64, Ordering::Relaxed};
use mem::Space;

/// Functions that can be probed in a machine's life.
const MAX_SITES: usize = 512;
/// Bytes for a stub: 14 for the jump, 19 moved ones, 5 to go back.
const STUB: usize = 64;
const PAGE: usize = abi::PAGE_SIZE;

/// A probed function; lives for ever. The trampolines read the first fields.
#[repr(C)]
pub struct Site {
    pub address: u64,
    /// Bytes that the trampoline pushed before it changed stacks.
    pub pushed: u64,
    pub entries: AtomicPtr<Active>,
    pub returns: AtomicPtr<Active>,
    index: u32,
    /// Returns that could not be watched.
    missed: AtomicU64,
    original: Vec<u8>,
    /// What the first bytes are while it is probed.
    patched: Vec<u8>,
    /// What calls the programs.
    trampoline: u64,
    /// Where the moved instructions are.
    moved: u64,
    boundaries: Vec<(u8, u8)>,
    /// The application's; gone after an execve.
    space: Weak<Space>,
}

impl Site {
    pub fn in_kernel(&self) -> bool {
        self.pushed != 0
    }

    pub fn index(&self) -> u32 {
        self.index
    }

    pub fn miss(&self) {
        self.missed.fetch_add(1, Relaxed);
    }

    /// Puts the way to the programs into the trampoline: the short one where one program alone asks for no more.
    /// Interrupts are off.
    fn aim(&self) -> abi::Result<()> {
        // SAFETY: what is linked is attached, and whoever attached it holds it until it was unlinked.
        let first = unsafe { self.entries.load(Relaxed).as_ref() };
        let is_alone = |a: &&Active| a.next.load(Relaxed).is_null() && self.returns.load(Relaxed).is_null();
        let short = |a: &Active| Some(way_to_one(self.in_kernel(), a.code, a.changes?, &a.hits));
        let way = first.filter(is_alone).and_then(short);
        let way = way.unwrap_or_else(|| way_to_all(self.in_kernel(), self.index));
        debug_assert!(WAY + way.len() <= TRAMPOLINE);
        // SAFETY: nobody is on the way, and it leads to attached programs or to what looks for them.
        unsafe { api_plat::write_code(self.trampoline + WAY as u64, &way) }
    }
}

/// Changes what is attached to a site, and with it the way there.
fn relink(site: &Site, change: impl FnOnce()) -> abi::Result<()> {
    undisturbed(|| {
        change();
        site.aim()
    })
}

/// What the trampolines look up.
pub static SITES: [AtomicPtr<Site>; MAX_SITES] = [const { AtomicPtr::new(null_mut()) }; MAX_SITES];

pub fn get(index: u32) -> Option<&'static Site> {
    // SAFETY: sites are leaked boxes.
    unsafe { SITES.get(index as usize)?.load(Relaxed).as_ref() }
}

fn all() -> impl Iterator<Item = &'static Site> {
    (0..MAX_SITES as u32).map_while(get)
}

/// Where a function of the application goes on, given an address in its trampoline.
pub fn around(address: u64) -> Option<u64> {
    let within = |s: &&Site| address.wrapping_sub(s.trampoline) < TRAMPOLINE as u64;
    all().filter(|s| !s.in_kernel()).find(within).map(|s| s.moved)
}

/// Pages with room for stubs or trampolines.
struct Room {
    /// Address, frame (of stubs), bytes used, and whose it is.
    stubs: Vec<(u64, PageFrame, usize, Weak<Space>)>,
    trampolines: Option<(u64, usize)>,
}

static ROOM: SpinLock<Room> = SpinLock::new(Room { stubs: Vec::new(), trampolines: None });

fn is_kernel(address: u64) -> bool {
    address >= USER_END
}

/// The displacement of a jump that ends at `end`.
fn distance(end: u64, to: u64) -> Option<[u8; 4]> {
    i32::try_from(to.wrapping_sub(end) as i64).ok().map(i32::to_le_bytes)
}

/// `jmp rel32` at an address.
fn jump(at: u64, to: u64) -> Option<[u8; JUMP]> {
    let [a, b, c, d] = distance(at + JUMP as u64, to)?;
    Some([0xe9, a, b, c, d])
}

const FAR: &str = "no free memory is within reach of a jump from it";
const NO_MEMORY: &str = "not enough memory";
const FULL: &str = "more than 512 functions were probed in this machine: start it anew";

/// Puts a program at the function's entry or return.
pub fn attach(active: &Arc<Active>, plan: &Plan) -> Result<(), String> {
    let address = active.address;
    if active.kind == Kind::Return {
        returns::prepare().map_err(|_| NO_MEMORY)?;
    }
    let space = mem::current();
    let ours = |s: &&Site| {
        s.address == address && (s.in_kernel() || s.space.upgrade().is_some_and(|s| Arc::ptr_eq(&s, &space)))
    };
    let site = match all().find(ours) {
        Some(site) if site.original == plan.original => site,
        Some(_) => return Err("it is not what it was when it was probed first".into()),
        None => make(address, plan, &space)?,
    };
    let list = if active.kind == Kind::Entry { &site.entries } else { &site.returns };
    let was_idle = site.entries.load(Relaxed).is_null() && site.returns.load(Relaxed).is_null();
    let mut done = relink(site, || load::link(list, active)).map_err(|_| NO_MEMORY.into());
    if was_idle && done.is_ok() {
        done = change(site, &space, &site.original, &site.patched);
    }
    if done.is_err() {
        // The way is there, or the function does not lead to it.
        let _ = relink(site, || load::unlink(list, active));
        return done;
    }
    Ok(())
}

/// Takes it away; the function gets its bytes back with its last program.
pub fn detach(active: &Arc<Active>) {
    let holds = |s: &&Site| {
        let mut at =
            if active.kind == Kind::Entry { s.entries.load(Relaxed) } else { s.returns.load(Relaxed) };
        // SAFETY: what is linked is attached, and held by the list of packages.
        while let Some(here) = unsafe { at.as_ref() } {
            if core::ptr::eq(here, Arc::as_ptr(active)) {
                return true;
            }
            at = here.next.load(Relaxed);
        }
        false
    };
    let Some(site) = all().find(holds) else { return };
    let list = if active.kind == Kind::Entry { &site.entries } else { &site.returns };
    // What was written when it was attached can be written again.
    let _ = relink(site, || load::unlink(list, active));
    if site.entries.load(Relaxed).is_null() && site.returns.load(Relaxed).is_null() {
        let space = mem::current();
        // A program that was replaced or unmapped is not there to be changed back: then there is nothing to do.
        let _ = change(site, &space, &site.patched, &site.original);
    }
}

/// Changes the function's first bytes, if they are what they should be.
fn change(site: &Site, space: &Arc<Space>, from: &[u8], to: &[u8]) -> Result<(), String> {
    if !site.in_kernel() {
        return match space.poke_code(site.address, from, to) {
            Ok(()) => {
                if to == site.patched {
                    leave_patch(site);
                }
                Ok(())
            }
            Err(EBUSY) => {
                Err("its first bytes are not those of the file: a system call was patched there, or the \
                               program changed them"
                    .into())
            }
            Err(EACCES) => Err("its code is not a private mapping of a file".into()),
            Err(ENOMEM) => Err(NO_MEMORY.into()),
            Err(_) => Err("there is no code at its address".into()),
        };
    }
    undisturbed(|| {
        let mut now = vec![0; from.len()];
        if !peek::read(site.address, &mut now) || now != from {
            return Err("the kernel's code there is not that of the file".into());
        }
        // First a breakpoint, then what is behind it, then the first byte: no processor ever sees half of a jump.
        // SAFETY: the jump leads to the site's trampoline, which runs the instructions it replaces; the original bytes
        // are what was there.
        let written = unsafe {
            api_plat::write_code(site.address, &[0xcc])
                .and_then(|()| api_plat::write_code(site.address + 1, &to[1..]))
                .and_then(|()| api_plat::write_code(site.address, &to[..1]))
        };
        written.map_err(|_| "it is not part of the kernel's code".into())
    })
}

/// Threads that were interrupted in the middle of what is a jump now go on at the moved instructions.
fn leave_patch(site: &Site) {
    for thread in sched::threads() {
        if !thread.runs_program() {
            continue;
        }
        // SAFETY: the top of a program thread's kernel stack holds its registers while it is in the kernel or off the
        // processor; the thread that runs this is in the kernel.
        let saved = unsafe { &mut *((thread.stack_top() - size_of::<Saved>() as u64) as *mut Saved) };
        let within = saved.rip.wrapping_sub(site.address);
        if saved.cs == CODE_SEGMENT
            && saved.ss == DATA_SEGMENT
            && let Some((_, to)) =
                site.boundaries.iter().find(|b| u64::from(b.0) == within && within < JUMP as u64)
        {
            saved.rip = site.moved + u64::from(*to);
        }
    }
}

/// Makes a site with its stub and trampoline; the function is not changed yet.
fn make(address: u64, plan: &Plan, space: &Arc<Space>) -> Result<&'static Site, String> {
    let index = (0..MAX_SITES).find(|i| SITES[*i].load(Relaxed).is_null()).ok_or(FULL)?;
    let behind = address + plan.original.len() as u64;
    let in_kernel = is_kernel(address);
    let trampoline = trampoline_room()?;
    let moved;
    let target;
    if in_kernel {
        moved = trampoline + door(true, 0).len() as u64;
        let mut code = door(true, moved);
        code.extend(plan.code_at(address, moved).ok_or(FAR)?);
        code.extend(jump(moved + plan.moved.len() as u64, behind).ok_or(FAR)?);
        debug_assert!(code.len() <= WAY);
        // SAFETY: a free slot of a page of trampolines, which nothing refers to yet.
        unsafe { api_plat::write_code(trampoline, &code) }.map_err(|_| NO_MEMORY)?;
        target = trampoline;
    } else {
        let (stub, frame, offset) = stub_room(address, space)?;
        moved = stub + 14;
        let mut code = vec![0xff, 0x25, 0, 0, 0, 0];
        code.extend(trampoline.to_le_bytes());
        code.extend(plan.code_at(address, moved).ok_or(FAR)?);
        code.extend(jump(moved + plan.moved.len() as u64, behind).ok_or(FAR)?);
        frame.write(offset, &code);
        // SAFETY: as above.
        unsafe { api_plat::write_code(trampoline, &door(false, moved)) }.map_err(|_| NO_MEMORY)?;
        target = stub;
    }
    let mut patched = plan.original.clone();
    patched[..JUMP].copy_from_slice(&jump(address, target).ok_or(FAR)?);
    let site = Box::new(Site {
        address,
        pushed: if in_kernel { 8 } else { 0 },
        entries: AtomicPtr::new(null_mut()),
        returns: AtomicPtr::new(null_mut()),
        index: index as u32,
        missed: AtomicU64::new(0),
        original: plan.original.clone(),
        patched,
        trampoline,
        moved,
        boundaries: plan.boundaries.clone(),
        space: Arc::downgrade(space),
    });
    let site = Box::leak(site);
    SITES[index].store(site, Relaxed);
    Ok(site)
}

fn trampoline_room() -> Result<u64, String> {
    let mut room = ROOM.lock();
    match &mut room.trampolines {
        Some((page, used)) if *used + TRAMPOLINE <= PAGE => {
            *used += TRAMPOLINE;
            Ok(*page + (*used - TRAMPOLINE) as u64)
        }
        full => {
            let page = api_plat::new_code(&[0xcc; PAGE]).map_err(|_| NO_MEMORY)?;
            *full = Some((page, TRAMPOLINE));
            Ok(page)
        }
    }
}

fn stub_room(near: u64, space: &Arc<Space>) -> Result<(u64, PageFrame, usize), String> {
    let mut room = ROOM.lock();
    room.stubs.retain(|s| s.3.strong_count() > 0);
    let reaches = |page: u64| page.abs_diff(near) < (1 << 31) - (1 << 20);
    for (page, frame, used, owner) in &mut room.stubs {
        if reaches(*page) && *used + STUB <= PAGE && owner.upgrade().is_some_and(|o| Arc::ptr_eq(&o, space)) {
            *used += STUB;
            let offset = *used - STUB;
            return Ok((*page + offset as u64, frame.clone(), offset));
        }
    }
    let frame = PageFrame::new().map_err(|_| NO_MEMORY)?;
    let page = space.map_near(near, frame.clone()).map_err(|_| FAR)?;
    room.stubs.push((page, frame.clone(), STUB, Arc::downgrade(space)));
    Ok((page, frame, 0))
}
