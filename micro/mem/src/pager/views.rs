// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The mirror against the simplest model there is, over a host that is a map of pages for each of its processes.
//!
//! Random address spaces fork, end, change their pages and take turns in fewer host processes than there are spaces, down to one. Whatever
//! they do, what the host shows of the active one is a part of its account, with the same rights or fewer, and what its program
//! reads is what it wrote.

use super::mirror::{Mirror, begin};
use super::shown::Shown;
use super::{Batch, Page, Pager};
use crate::fork::Written;
use crate::tests::model::Random;
use crate::{PAGE, Prot};
use abi::{Result, errno::ENOMEM};
use api_mem::{PageFrame, Pages};
use core::mem::ManuallyDrop;
use std::collections::BTreeMap;
use std::sync::Mutex;
use std::vec::Vec;

pub(super) const MAX_PROCESSES: usize = 32;

/// Address to physical address and PROT_* of a page that is shown.
type View = BTreeMap<u64, (u64, u32)>;

#[derive(Default)]
struct HostProcess {
    view: View,
    /// 0: none.
    space: u64,
    entered: u64,
    is_soiled: bool,
}

struct Host {
    processes: Vec<HostProcess>,
    here: usize,
    count: u64,
    /// Most mappings of a process (vm.max_map_count).
    most: usize,
}

static HOST: Mutex<Option<Host>> = Mutex::new(None);

fn with<T>(f: impl FnOnce(&mut Host) -> T) -> T {
    f(HOST.lock().unwrap_or_else(|e| e.into_inner()).as_mut().expect("a test has made a host"))
}

/// Pages that go on with the same memory and rights are one mapping.
fn mappings(view: &View) -> usize {
    let follows = |(address, (physical, rights)): (&u64, &(u64, u32))| {
        view.get(&(address - PAGE)) == Some(&(physical.wrapping_sub(PAGE), *rights))
    };
    view.iter().filter(|page| !follows(*page)).count()
}

impl Host {
    /// Changes what the process shows where the host has room for that.
    fn change(&mut self, process: usize, change: impl FnOnce(&mut View)) -> Result<()> {
        let most = self.most;
        let view = &mut self.processes[process].view;
        let mut new = view.clone();
        change(&mut new);
        if mappings(&new) > most && mappings(&new) > mappings(view) {
            return Err(ENOMEM);
        }
        *view = new;
        Ok(())
    }

    fn unmap(&mut self, process: usize, address: u64, length: u64) -> bool {
        let gone = address..address + length;
        let is_exact = self.change(process, |view| view.retain(|at, _| !gone.contains(at))).is_ok();
        if !is_exact {
            self.processes[process].view.clear();
        }
        is_exact
    }

    fn find(&self, space: u64) -> Option<usize> {
        self.processes.iter().position(|process| process.space == space)
    }
}

/// No time passes.
pub(super) fn now_ns() -> u64 {
    0
}

pub(super) fn enter(space: u64) -> (usize, bool) {
    with(|host| {
        let found = host.find(space);
        let to = found.or_else(|| (host.processes[host.here].space == 0).then_some(host.here));
        let to = to.or_else(|| host.find(0)).unwrap_or_else(|| {
            let left = host.processes.iter().enumerate().min_by_key(|(_, process)| process.entered);
            left.expect("there is a process").0
        });
        host.count += 1;
        host.here = to;
        let process = &mut host.processes[to];
        (process.space, process.entered) = (space, host.count);
        if core::mem::take(&mut process.is_soiled) {
            process.view.clear();
        }
        (to, found.is_some())
    })
}

pub(super) fn leave(space: u64) -> Option<usize> {
    with(|host| {
        let found = host.find(space)?;
        (host.processes[found].space, host.processes[found].entered) = (0, 0);
        Some(found)
    })
}

pub(super) fn unmap_all_in(process: usize) {
    with(|host| host.processes[process].is_soiled = true);
}

pub(super) unsafe fn map(address: u64, physical: u64, length: u64, rights: u32) -> Result<()> {
    let pages = (0..length).step_by(PAGE as usize).map(|at| (address + at, (physical + at, rights)));
    with(|host| host.change(host.here, |view| view.extend(pages)))
}

pub(super) unsafe fn protect(address: u64, length: u64, rights: u32) -> Result<()> {
    with(|host| {
        // Up to the first page that is not shown, as Linux does.
        let shown = |at: &u64| host.processes[host.here].view.contains_key(at);
        let all: Vec<u64> = (address..address + length).step_by(PAGE as usize).collect();
        let pages: Vec<u64> = all.iter().copied().take_while(shown).collect();
        host.change(host.here, |view| {
            pages.iter().for_each(|at| view.get_mut(at).expect("it is shown").1 = rights);
        })?;
        if pages.len() == all.len() { Ok(()) } else { Err(ENOMEM) }
    })
}

pub(super) unsafe fn unmap(address: u64, length: u64) -> bool {
    with(|host| host.unmap(host.here, address, length))
}

pub(super) unsafe fn unmap_in(space: u64, address: u64, length: u64) -> Option<(usize, bool)> {
    with(|host| {
        let process = host.find(space)?;
        Some((process, host.unmap(process, address, length)))
    })
}

const BASE: u64 = 0x40_0000;
const PAGES: u64 = 512;
const END: u64 = BASE + PAGES * PAGE;
const READ_WRITE: Prot = Prot::READ.with(Prot::WRITE);

impl Random {
    fn range(&mut self, most: u64) -> (u64, u64) {
        let first = self.below(PAGES);
        let pages = 1 + self.below((PAGES - first).min(most));
        (BASE + first * PAGE, BASE + (first + pages) * PAGE)
    }
}

/// An address space, and what its program knows: the rights that it asked for, and the first byte, of each page.
struct Program {
    mirror: Mirror,
    pages: BTreeMap<u64, (Prot, u8)>,
}

fn borrowed(page: &Page) -> ManuallyDrop<PageFrame> {
    // SAFETY: the entry holds a count, and is not changed while this is used.
    ManuallyDrop::new(unsafe { PageFrame::from_raw(page.physical) })
}

fn byte(physical: u64) -> u8 {
    // SAFETY: a page that somebody holds.
    unsafe { api_mem::view(physical).read() }
}

fn set_byte(physical: u64, byte: u8) {
    // SAFETY: as above, and nobody else looks.
    unsafe { api_mem::view(physical).write(byte) }
}

fn shown(address: u64) -> Option<(u64, u32)> {
    with(|host| host.processes[host.here].view.get(&address).copied())
}

impl Program {
    fn new() -> Program {
        Program { mirror: Mirror::new().expect("there is memory"), pages: BTreeMap::new() }
    }

    /// A fault, as `crate::fault` resolves it.
    fn fault(&mut self, address: u64, writes: bool) {
        let page = self.mirror.page(address).expect("the program has it");
        if !writes || page.rights.contains(Prot::WRITE) {
            self.mirror.show_again(address);
        } else if borrowed(&page).is_unique() {
            self.mirror.reclaim(address, READ_WRITE);
        } else {
            let copy = borrowed(&page).duplicate().expect("there is memory");
            drop(self.mirror.replace(address, copy, READ_WRITE, true));
        }
        self.mirror.flush();
    }

    /// The program's instruction is tried until it goes through. Where the host has no room for the neighbours of the page, the
    /// page goes as well, and finds room at the next try.
    fn touch(&mut self, address: u64, writes: bool) {
        let right = if writes { 2 } else { 1 };
        for _ in 0..2 {
            if shown(address).is_none_or(|(_, rights)| rights & right == 0) {
                self.fault(address, writes);
            }
        }
    }

    fn read(&mut self, address: u64) {
        let (rights, expected) = self.pages[&address];
        if rights.contains(Prot::READ) {
            self.touch(address, false);
            let (physical, rights) = shown(address).expect("a fault makes the page appear");
            assert_eq!((rights & 1, byte(physical)), (1, expected), "what is read at {address:#x}");
        }
    }

    fn write(&mut self, address: u64, new: u8) {
        if self.pages[&address].0.contains(Prot::WRITE) {
            self.touch(address, true);
            let (physical, rights) = shown(address).expect("a fault makes the page appear");
            assert_eq!(rights & 2, 2, "the fault makes {address:#x} writable");
            set_byte(physical, new);
            self.pages.insert(address, (self.pages[&address].0, new));
        }
    }

    /// New memory in one piece where nothing is.
    fn map(&mut self, (start, end): (u64, u64), first: u8) {
        let end = (start..end).step_by(PAGE as usize).find(|at| self.pages.contains_key(at)).unwrap_or(end);
        let count = (end - start) / PAGE;
        if count == 0 {
            return;
        }
        let physical = Pages::new(count as usize).expect("there is memory").into_raw();
        for at in (0..count * PAGE).step_by(PAGE as usize) {
            set_byte(physical + at, first);
            // SAFETY: `into_raw` gave one count of each page.
            let frame = unsafe { PageFrame::from_raw(physical + at) };
            self.mirror.map(start + at, frame, READ_WRITE, true).expect("there is memory");
            self.pages.insert(start + at, (READ_WRITE, first));
        }
        self.mirror.flush();
    }

    fn unmap(&mut self, (start, end): (u64, u64)) {
        let drain = |_: &mut Mirror, batch: &mut Batch| {
            batch.drain().for_each(drop);
            Ok::<(), core::convert::Infallible>(())
        };
        let Ok(()) = self.mirror.take_out(start, end, drain);
        self.mirror.flush();
        self.pages.retain(|at, _| !(start..end).contains(at));
    }

    fn protect(&mut self, (start, end): (u64, u64), rights: Prot) {
        self.mirror.protect(start, end, &mut |page| match page.copied {
            true => rights.without(Prot::WRITE),
            false => rights,
        });
        self.mirror.flush();
        self.pages.range_mut(start..end).for_each(|(_, page)| page.0 = rights);
    }

    fn clean(&mut self, (start, end): (u64, u64)) {
        self.mirror.visit(start, end, &mut |_, page| page.rights.contains(Prot::WRITE));
        self.mirror.flush();
    }

    /// The child gets copies of some pages at once: those that are likely to be written.
    fn fork(&mut self, copied: &[u64]) -> Program {
        let mut child = Program::new();
        for address in copied.iter().copied() {
            if self.pages[&address].0.contains(Prot::WRITE) {
                let page = self.mirror.page(address).expect("the program has it");
                let copy = borrowed(&page).duplicate().expect("there is memory");
                child.mirror.map(address, copy, READ_WRITE, true).expect("there is memory");
                child.mirror.expect(address);
            }
        }
        self.mirror.fork(&mut child.mirror, BASE, END, &mut |_, _| ()).expect("there is memory");
        self.mirror.flush();
        child.pages = self.pages.clone();
        child
    }

    /// It is active.
    fn check(&mut self) {
        let view = with(|host| host.processes[host.here].view.clone());
        for (address, (physical, rights)) in view {
            let page = self.mirror.page(address);
            let page =
                page.unwrap_or_else(|| panic!("{address:#x} is shown, and the program does not have it"));
            assert_eq!(page.physical, physical, "{address:#x} shows other memory");
            let has = |right, bit| rights & bit == 0 || page.rights.contains(right);
            assert!(
                has(Prot::READ, 1) && has(Prot::WRITE, 2) && has(Prot::EXECUTE, 4),
                "{address:#x} is shown with more rights ({rights}) than {:?}",
                page.rights
            );
        }
    }
}

fn run(seed: u64, processes: usize, most: usize, steps: u32) {
    begin();
    let processes = (0..processes).map(|_| HostProcess::default()).collect();
    *HOST.lock().unwrap_or_else(|e| e.into_inner()) = Some(Host { processes, here: 0, count: 0, most });
    let mut random = Random(seed);
    let mut programs = Vec::from([Program::new()]);
    let mut active = 0;
    programs[0].mirror.activate();
    // About as many runs as a record has room for.
    let piece = (3 + random.below(3)) * PAGE;
    for start in (BASE..END - piece).step_by((piece + PAGE) as usize) {
        programs[0].map((start, start + piece), 1);
    }
    for step in 0..steps {
        let program = &mut programs[active];
        let range = random.range(12);
        let new = step as u8;
        let rights = [Prot::NONE, Prot::READ, READ_WRITE, READ_WRITE][random.below(4) as usize];
        let touched: Vec<u64> = program.pages.range(range.0..range.1).map(|(at, _)| *at).collect();
        match random.below(24) {
            0..5 => program.map(range, new),
            5..7 => touched.into_iter().for_each(|at| program.read(at)),
            7 => {
                let (start, end) = random.range(PAGES);
                let all: Vec<u64> = program.pages.range(start..end).map(|(at, _)| *at).collect();
                all.into_iter().for_each(|at| program.read(at));
            }
            8..12 => {
                touched.into_iter().filter(|_| random.below(3) == 0).for_each(|at| program.write(at, new))
            }
            12 => program.unmap(range),
            13 => program.protect(range, rights),
            14 => program.clean(range),
            15 if programs.len() < 5 => {
                let pages = programs[active].pages.keys().copied();
                let copied: Vec<u64> = pages.filter(|_| random.below(40) == 0).take(Written::MAX).collect();
                let child = programs[active].fork(&copied);
                programs.push(child);
            }
            16 => {
                // Another space's pages are changed: a debugger's write, a file that becomes shorter.
                let other = random.below(programs.len() as u64) as usize;
                match random.below(3) {
                    0 => programs[other].unmap(range),
                    1 => programs[other].protect(range, rights),
                    _ => programs[other].clean(range),
                }
            }
            17 if programs.len() > 1 => {
                // A process ends: it may be the active one.
                Mirror::deactivate();
                drop(programs.swap_remove(random.below(programs.len() as u64) as usize));
                active = random.below(programs.len() as u64) as usize;
                programs[active].mirror.activate();
            }
            18 => {
                // The processor had nothing to do.
                Mirror::deactivate();
                programs[active].mirror.activate();
            }
            _ => {
                active = random.below(programs.len() as u64) as usize;
                programs[active].mirror.activate();
            }
        }
        programs[active].check();
    }
    for program in &mut programs {
        program.mirror.activate();
        program.check();
        program.pages.clone().into_keys().for_each(|at| program.read(at));
        program.check();
    }
    Mirror::deactivate();
}

/// As a debugger or the end of a file takes them.
#[test]
fn what_a_space_lost_in_the_middle_of_many_runs_is_not_shown_when_it_takes_them_over() {
    let _one = ONE.lock().unwrap_or_else(|e| e.into_inner());
    begin();
    let processes = Vec::from([HostProcess::default()]);
    *HOST.lock().unwrap_or_else(|e| e.into_inner()) =
        Some(Host { processes, here: 0, count: 0, most: usize::MAX });
    let mut parent = Program::new();
    parent.mirror.activate();
    // As many runs as a record has room for: it is lost when the second one becomes two.
    let starts: Vec<u64> = (0..Shown::MAX as u64 - 1).map(|i| BASE + 4 * i * PAGE).collect();
    starts.iter().for_each(|start| parent.map((*start, start + 3 * PAGE), 1));
    let mut child = parent.fork(&[]);
    starts.iter().for_each(|start| child.unmap((start + PAGE, start + 2 * PAGE)));
    child.mirror.activate();
    child.check();
    parent.mirror.activate();
    parent.check();
    Mirror::deactivate();
}

/// The mirror's variables are those of one machine.
static ONE: Mutex<()> = Mutex::new(());

fn run_all(processes: usize, most: usize) {
    let _one = ONE.lock().unwrap_or_else(|e| e.into_inner());
    for seed in 1..=60u64 {
        run(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15), processes, most, 600);
    }
}

#[test]
fn spaces_that_take_turns_in_one_host_process_see_their_own_pages_alone() {
    run_all(1, usize::MAX);
}

#[test]
fn spaces_that_outnumber_the_host_processes_see_their_own_pages_alone() {
    run_all(3, usize::MAX);
}

#[test]
fn a_host_without_room_for_mappings_shows_less_and_nothing_wrong() {
    run_all(1, 20);
    run_all(2, 90);
}
