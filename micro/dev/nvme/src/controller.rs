// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A controller: how it starts (NVMe 7.6.1), and how the driver ends its work with it.

use crate::command::{self, Command};
use crate::disk::Disk;
use crate::identify::{self, BYTES, Namespace};
use crate::queue::{Answer, Pair, Status};
use crate::register::*;
use crate::shared::Shared;
use abi::{Errno, Result};
use alloc::sync::Arc;
use alloc::vec::Vec;
use api_alloc::Reserve;
use api_blockdev::QUEUE;
use api_sched::DeferredWork;
use core::sync::atomic::{AtomicBool, Ordering};

/// Disks of one controller: one has a queue pair, an interrupt and some 40 KiB. Clouds and computers have one or two.
pub const MAX_NAMESPACES: usize = 4;
/// Entries of an I/O queue: twice what is in flight, so that completions are acknowledged in bursts.
const ENTRIES: usize = 2 * QUEUE;
/// Entries of the admin queues, which have one command at a time.
const ADMIN_ENTRIES: usize = 2;
/// Becoming ready takes as long as the controller says, but no longer than this: the machine waits for it.
const MAX_READY_NS: u64 = 30_000_000_000;
/// How long an admin command may take: longer than any that is used here, and bearable when the machine starts.
const ADMIN_NS: u64 = 10_000_000_000;

/// How the driver reaches a controller.
pub trait Hardware: Send + Sync {
    fn read(&self, register: u32) -> u32;

    fn write(&self, register: u32, value: u32);

    /// Bytes of registers and doorbells.
    fn window(&self) -> u64;

    /// Where the controller finds memory of the kernel heap.
    fn address_of(&self, memory: *const u8) -> u64;

    fn now_ns(&self) -> u64;

    /// Between two looks at a controller that takes its time.
    fn pause(&self);

    /// Which entry of the MSI-X table is this queue's, if one is.
    fn message(&self, queue: u16) -> Option<u16>;

    /// Interrupts of the queue raise the deferred work from now on.
    fn connect(&self, queue: u16, work: DeferredWork) -> Result<()>;

    /// Somebody waits for this queue: its deferred work is raised after a while, too, whatever the controller does. `is_busy`: there were
    /// completions since the last time.
    fn armed(&self, queue: u16, is_busy: bool);

    /// Takes the controller's way to memory away.
    fn cut_off(&self);
}

/// Why a controller is left alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    NoMemory,
    /// It did or said what no controller may.
    Wrong(&'static str),
    /// It refused a command that every controller has.
    Refused(&'static str, Status),
}

impl From<Errno> for Fault {
    fn from(_: Errno) -> Fault {
        Fault::NoMemory
    }
}

impl core::fmt::Display for Fault {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Fault::NoMemory => f.write_str("there is not enough memory for it"),
            Fault::Wrong(why) => f.write_str(why),
            Fault::Refused(what, status) => write!(f, "it answers {status:?} to {what}"),
        }
    }
}

type Tried<T> = core::result::Result<T, Fault>;

/// What the disks of a controller share.
pub struct Controller<H: Hardware> {
    pub hardware: H,
    pub capabilities: Capabilities,
    /// It broke the protocol or has failed, and is not used any more.
    is_broken: AtomicBool,
}

impl<H: Hardware> Controller<H> {
    pub fn is_broken(&self) -> bool {
        self.is_broken.load(Ordering::Acquire)
    }

    /// Ends the work with the controller.
    pub fn give_up(&self, why: core::fmt::Arguments<'_>) {
        if self.is_broken.swap(true, Ordering::AcqRel) {
            return;
        }
        log::error!("nvme: the controller is not used any more: {why}");
        self.hardware.cut_off();
    }

    /// Gives up a controller that says that it has failed, or is gone. A look is a read of a register, an exit to the monitor of a
    /// virtual machine.
    pub fn check(&self) {
        match self.hardware.read(CSTS) {
            GONE => self.give_up(format_args!("it is gone")),
            status if status & CSTS_CFS != 0 => {
                self.give_up(format_args!("it reports a fatal error (CSTS.CFS)"));
            }
            status if status & CSTS_RDY == 0 => self.give_up(format_args!("it is not ready any more")),
            _ => {}
        }
    }
}

/// Starts the controller, and a disk for each namespace that can be used.
pub fn start<H: Hardware>(hardware: H) -> Tried<Vec<Arc<Disk<H>>>> {
    let low = hardware.read(CAP);
    let capabilities = Capabilities::parse(low, hardware.read(CAP + 4));
    let controller = Arc::new(Controller { hardware, capabilities, is_broken: AtomicBool::new(false) });
    // Memory it knows of is never freed, and it cannot write to it any more.
    let started = Starting::begin(&controller, low).and_then(|mut starting| starting.disks());
    started.inspect_err(|_| controller.hardware.cut_off())
}

/// Waits until something is so; false after `limit_ns`.
fn wait(hardware: &impl Hardware, limit_ns: u64, mut is_so: impl FnMut() -> bool) -> bool {
    let start = hardware.now_ns();
    while !is_so() {
        if hardware.now_ns().saturating_sub(start) > limit_ns {
            return false;
        }
        hardware.pause();
    }
    true
}

/// A controller while it starts.
struct Starting<'a, H: Hardware> {
    controller: &'a Arc<Controller<H>>,
    admin: Pair,
    /// The number of the next admin command.
    next: u16,
    /// Where Identify writes to.
    page: Shared,
}

impl<'a, H: Hardware> Starting<'a, H> {
    /// With its admin queue. `low`: the lower half of CAP.
    fn begin(controller: &'a Arc<Controller<H>>, low: u32) -> Tried<Starting<'a, H>> {
        let Controller { hardware, capabilities, .. } = &**controller;
        if low == GONE {
            return Err(Fault::Wrong("it does not answer"));
        }
        if !capabilities.has_nvm_commands {
            return Err(Fault::Wrong("it does not have the NVM command set"));
        }
        if !capabilities.has_small_pages {
            return Err(Fault::Wrong("its pages are larger than 4 KiB"));
        }
        if capabilities.entries < 2 {
            return Err(Fault::Wrong("its queues have one entry"));
        }
        if !fits(hardware, *capabilities, 0) {
            return Err(Fault::Wrong("its doorbells are outside of its registers"));
        }
        let limit_ns = capabilities.ready_ns.min(MAX_READY_NS);
        let is_ready = || hardware.read(CSTS) & CSTS_RDY != 0;
        // Whatever firmware did with the controller is forgotten.
        hardware.write(CC, hardware.read(CC) & !CC_EN);
        if !wait(hardware, limit_ns, || !is_ready()) {
            return Err(Fault::Wrong("it does not stop what firmware has started"));
        }
        let admin = Pair::new(0, ADMIN_ENTRIES, 1, *capabilities)?;
        let page = Shared::new(BYTES)?;
        let less = ADMIN_ENTRIES as u32 - 1;
        hardware.write(AQA, less << 16 | less);
        for (register, memory) in [(ASQ, admin.submission()), (ACQ, admin.completion())] {
            let address = hardware.address_of(memory);
            hardware.write(register, address as u32);
            hardware.write(register + 4, (address >> 32) as u32);
        }
        hardware.write(CC, CC_ENTRIES | CC_EN);
        let has_failed = || hardware.read(CSTS) & CSTS_CFS != 0;
        if !wait(hardware, limit_ns, || is_ready() || has_failed()) {
            return Err(Fault::Wrong("it does not become ready in the time that it claims to need"));
        }
        if has_failed() {
            return Err(Fault::Wrong("it reports a fatal error (CSTS.CFS) instead of being ready"));
        }
        Ok(Starting { controller, admin, next: 0, page })
    }

    /// Does one command, and waits for it.
    fn run(&mut self, command: Command) -> Tried<Answer> {
        let hardware = &self.controller.hardware;
        let id = self.next;
        self.next = self.next.wrapping_add(1);
        self.admin.push(command, id);
        self.admin.notify(hardware);
        let admin = &self.admin;
        if !wait(hardware, ADMIN_NS, || admin.has_completion() || hardware.read(CSTS) & CSTS_CFS != 0) {
            return Err(Fault::Wrong("it has not answered an admin command for ten seconds"));
        }
        match self.admin.pop(hardware) {
            None => Err(Fault::Wrong("it reports a fatal error (CSTS.CFS)")),
            Some(answer) if answer.id != id => {
                Err(Fault::Wrong("it answers an admin command that it was not given"))
            }
            Some(answer) => Ok(answer),
        }
    }

    fn identify(&mut self, what: u32, namespace: u32) -> Tried<Answer> {
        let to = self.controller.hardware.address_of(self.page.start());
        self.run(command::identify(what, namespace, to))
    }

    /// What Identify has written, of one moment.
    fn page(&self) -> Tried<Vec<u8>> {
        let mut bytes = Vec::new();
        bytes.reserve_exact_fallibly(BYTES).map_err(|_| Fault::NoMemory)?;
        let words = (0..BYTES / 4).map(|n| self.page.word(n).load(Ordering::Relaxed));
        bytes.extend(words.flat_map(u32::to_le_bytes));
        Ok(bytes)
    }

    fn disks(&mut self) -> Tried<Vec<Arc<Disk<H>>>> {
        let answer = self.identify(command::OF_CONTROLLER, 0)?;
        if answer.status != Status::OK {
            return Err(Fault::Refused("Identify", answer.status));
        }
        let identity = identify::Controller::parse(structure(&self.page()?)?);
        let namespaces = self.namespaces(identity.namespaces)?;
        if namespaces.is_empty() {
            log::info!("nvme: a controller has no namespace");
            return Ok(Vec::new());
        }
        let answer = self.run(command::set_queues(namespaces.len() as u16))?;
        if answer.status != Status::OK {
            return Err(Fault::Refused("Set Features (number of queues)", answer.status));
        }
        let granted = command::granted_queues(answer.result) as usize;
        let mut disks = Vec::new();
        disks.reserve_exact_fallibly(MAX_NAMESPACES).map_err(|_| Fault::NoMemory)?;
        for number in namespaces {
            if disks.len() == granted {
                log::warn!("nvme: namespace {number} is left alone: the controller grants {granted} queues");
                continue;
            }
            if let Some(disk) = self.disk(number, disks.len() as u16 + 1, identity)? {
                disks.push(Arc::new(disk));
            }
        }
        Ok(disks)
    }

    /// The namespaces there are, of which numbers go up to `last`; some at most.
    fn namespaces(&mut self, last: u32) -> Tried<Vec<u32>> {
        let mut list = Vec::new();
        list.reserve_exact_fallibly(MAX_NAMESPACES).map_err(|_| Fault::NoMemory)?;
        if self.controller.hardware.read(VS) >= VS_1_1 {
            let answer = self.identify(command::ACTIVE_NAMESPACES, 0)?;
            if answer.status == Status::OK {
                let words = (0..BYTES / 4).map(|n| self.page.word(n).load(Ordering::Relaxed));
                for number in words.take_while(|number| *number != 0) {
                    if number > last || list.last().is_some_and(|before| *before >= number) {
                        return Err(Fault::Wrong("it lists namespaces that it cannot have"));
                    }
                    if list.len() == MAX_NAMESPACES {
                        log::warn!(
                            "nvme: namespaces from {number} on are left alone: {MAX_NAMESPACES} at most"
                        );
                        break;
                    }
                    list.push(number);
                }
                return Ok(list);
            }
            if answer.status != Status::INVALID_FIELD {
                return Err(Fault::Refused("Identify (list of namespaces)", answer.status));
            }
        }
        list.extend(1..=last.min(MAX_NAMESPACES as u32));
        Ok(list)
    }

    /// The disk of a namespace, with queue `queue`; none where it cannot be used.
    fn disk(&mut self, number: u32, queue: u16, identity: identify::Controller) -> Tried<Option<Disk<H>>> {
        let left_alone = |why: &dyn core::fmt::Display| {
            log::warn!("nvme: namespace {number} is left alone: {why}");
            Ok(None)
        };
        let answer = self.identify(command::OF_NAMESPACE, number)?;
        if answer.status != Status::OK {
            return left_alone(&Fault::Refused("Identify", answer.status));
        }
        let namespace = match Namespace::parse(structure(&self.page()?)?) {
            Ok(namespace) => namespace,
            Err(why) => return left_alone(&why),
        };
        let controller = self.controller;
        let Controller { hardware, capabilities, .. } = &**controller;
        if !fits(hardware, *capabilities, queue) {
            return left_alone(&"the queue's doorbells are outside of the registers");
        }
        let entries = ENTRIES.min(capabilities.entries);
        let limit = QUEUE.min(entries - 1);
        let pair = Pair::new(queue, entries, limit, *capabilities)?;
        let (submission, completion) =
            (hardware.address_of(pair.submission()), hardware.address_of(pair.completion()));
        let commands = [
            command::create_completion(queue, entries, completion, hardware.message(queue)),
            command::create_submission(queue, entries, submission),
        ];
        for command in commands {
            let answer = self.run(command)?;
            if answer.status != Status::OK {
                return left_alone(&Fault::Refused("the creation of a queue", answer.status));
            }
        }
        let disk = Disk::new(controller.clone(), queue, pair, limit, number, namespace, identity)?;
        log::info!(
            "nvme: namespace {number} has {} blocks of {} bytes{}",
            namespace.blocks,
            namespace.block,
            if namespace.read_only { " and is read-only" } else { "" }
        );
        Ok(Some(disk))
    }
}

/// Whether both doorbells of the queue are among the registers.
fn fits(hardware: &impl Hardware, capabilities: Capabilities, queue: u16) -> bool {
    u64::from(capabilities.doorbell(queue, true)) + 4 <= hardware.window()
}

fn structure(bytes: &[u8]) -> Tried<&[u8; BYTES]> {
    bytes.try_into().map_err(|_| Fault::NoMemory)
}
