// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Controllers on a PC: how they are found, reached, and how they interrupt.
//!
//! Queue n interrupts by entry n of the MSI-X table, which all but the oldest controllers have. Where there is none, and where no
//! vector of the processor is left, a timer looks for completions: soon after a request, and less often the longer it takes. It
//! runs beside messages, too, once a second while a request is out: the queue of a controller that has failed interrupts no more.

use crate::controller::{self, Hardware, MAX_NAMESPACES};
use crate::register::DOORBELLS;
use abi::{Events, Result};
use alloc::boxed::Box;
use alloc::sync::Arc;
use api_blockdev::BlockDevice;
use api_lock::SpinLock;
use api_sched::{DeferredWork, Waiter};
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use plat_pc::messages::{CAPABILITY_MSIX, MessageTable};
use plat_pc::pci::Function;
use plat_pc::physical_to_virtual;

/// Mass storage, non-volatile memory, NVM Express (PCI Code and ID Assignment 1.11, 1.2).
const CLASS_NVME: u32 = 0x01_08_02;
/// No controller that is used has doorbells further from its registers.
const LONGEST_WINDOW: u64 = 2 << 20;

/// How soon a timer looks for completions of a queue without a message: at first, and at most.
const DELAY_NS: u64 = 50_000;
const MAX_DELAY_NS: u64 = 16_000_000;
/// And of one with a message.
const SELDOM_NS: u64 = 1_000_000_000;

/// Looks for completions after a while.
struct Alarm {
    work: DeferredWork,
    has_message: bool,
    is_set: AtomicBool,
    delay_ns: AtomicU64,
}

impl Waiter for Alarm {
    fn wake(&self, _: Events) {
        self.is_set.store(false, Ordering::Relaxed);
        api_sched::raise(self.work);
    }
}

/// A controller of a PC.
struct Pci {
    function: Function,
    registers: u64,
    window: u64,
    messages: Option<MessageTable>,
    /// By queue, from 1 on.
    alarms: SpinLock<[Option<Arc<Alarm>>; MAX_NAMESPACES]>,
}

/// Starts all controllers, and gives away the disks that they have.
pub fn start(give: &mut dyn FnMut(Arc<dyn BlockDevice>)) {
    for function in plat_pc::pci::functions() {
        if function.class() != CLASS_NVME {
            continue;
        }
        function.enable();
        let window = function.window_size(0).min(LONGEST_WINDOW);
        let registers = (window > u64::from(DOORBELLS)).then(|| function.structure(0, 0, window as u32));
        let Some(registers) = registers.flatten() else {
            log::warn!("nvme: {function:?} is left alone: its registers are out of reach");
            continue;
        };
        let messages = messages(function);
        let alarms = SpinLock::new([const { None }; MAX_NAMESPACES]);
        let disks = match controller::start(Pci { function, registers, window, messages, alarms }) {
            Ok(disks) => disks,
            Err(fault) => {
                log::error!("nvme: the controller {function:?} is left alone: {fault}");
                continue;
            }
        };
        disks.into_iter().for_each(|disk| give(disk));
    }
}

/// The function's table of messages, all entries of which are masked until [`Hardware::connect`]. Messages are on from now on: QEMU's
/// controller takes no queue that names another entry than 0 before.
fn messages(function: Function) -> Option<MessageTable> {
    let (_, capability) = function.capabilities().into_iter().find(|(id, _)| *id == CAPABILITY_MSIX)?;
    let table = MessageTable::at(function, capability)?;
    if !table.lies_in_its_window() {
        log::warn!(
            "nvme: {function:?} has its MSI-X table outside of its windows: a timer looks for completions"
        );
        return None;
    }
    table.mask_all();
    table.enable();
    Some(table)
}

/// Interrupt context. A message needs no acknowledgement.
fn interrupt(work: usize) {
    // SAFETY: `connect` registered deferred work that lives for ever.
    api_sched::raise(unsafe { *(work as *const DeferredWork) });
}

impl Hardware for Pci {
    fn read(&self, register: u32) -> u32 {
        assert!(u64::from(register) + 4 <= self.window, "outside of the registers");
        // SAFETY: a register of the controller's first window, which the physical map shows.
        unsafe { physical_to_virtual::<u32>(self.registers + u64::from(register)).read_volatile() }
    }

    fn write(&self, register: u32, value: u32) {
        assert!(u64::from(register) + 4 <= self.window, "outside of the registers");
        // SAFETY: as above. What the controller does to memory is what its queues say, which the driver answers for.
        unsafe { physical_to_virtual::<u32>(self.registers + u64::from(register)).write_volatile(value) }
    }

    fn window(&self) -> u64 {
        self.window
    }

    fn address_of(&self, memory: *const u8) -> u64 {
        plat_pc::physical(memory)
    }

    fn now_ns(&self) -> u64 {
        api_plat::now_ns()
    }

    fn pause(&self) {
        core::hint::spin_loop();
    }

    fn message(&self, queue: u16) -> Option<u16> {
        let entries = self.messages?.entries();
        // The only entry is the first queue's: the admin queue does not interrupt.
        match entries {
            1 => (queue == 1).then_some(0),
            _ => (queue < entries).then_some(queue),
        }
    }

    fn connect(&self, queue: u16, work: DeferredWork) -> Result<()> {
        let vector = self.message(queue).and_then(|entry| {
            let target = Box::leak(Box::new(work));
            let vector = plat_pc::allocate_vector(interrupt, core::ptr::from_ref(target) as usize);
            Some((entry, vector.ok()?))
        });
        if let Some((entry, vector)) = vector
            && let Some(messages) = &self.messages
        {
            messages.set(entry, vector);
        }
        let alarm = Arc::new(Alarm {
            work,
            has_message: vector.is_some(),
            is_set: AtomicBool::new(false),
            delay_ns: AtomicU64::new(DELAY_NS),
        });
        if let Some(place) = self.alarms.lock().get_mut(usize::from(queue) - 1) {
            *place = Some(alarm);
        }
        Ok(())
    }

    fn armed(&self, queue: u16, is_busy: bool) {
        let alarm = self.alarms.lock().get(usize::from(queue) - 1).cloned().flatten();
        let Some(alarm) = alarm.filter(|alarm| !alarm.is_set.swap(true, Ordering::Relaxed)) else { return };
        let before = alarm.delay_ns.load(Ordering::Relaxed);
        let delay = match (alarm.has_message, is_busy) {
            (true, _) => SELDOM_NS,
            (false, true) => DELAY_NS,
            (false, false) => MAX_DELAY_NS.min(2 * before),
        };
        alarm.delay_ns.store(delay, Ordering::Relaxed);
        api_sched::add_timer(api_plat::now_ns() + delay, alarm);
    }

    fn cut_off(&self) {
        self.function.disable();
    }
}
