// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Cards on a PC: how they are found, reached, and how they interrupt.
//!
//! A card with messages (MSI) interrupts by one. An 8254x has an interrupt line only, and which input of the I/O APIC that is, is
//! written in the firmware's program (ACPI's `_PRT`), which is not run here. The line that firmware notes in the card is tried,
//! which is right on QEMU's PCs, and a timer looks for packets in any case: without interrupts a packet waits for a millisecond
//! while there is traffic, and for [`DELAY_MAX_NS`] after a pause.

use crate::card::{Card, Family, Hardware, Kind};
use crate::register::{ICR, IMC, WINDOW};
use abi::Events;
use alloc::boxed::Box;
use alloc::sync::Arc;
use api_lock::SpinLock;
use api_netdev::NetDevice;
use api_sched::{DeferredWork, Waiter};
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use plat_pc::pci::Function;
use plat_pc::physical_to_virtual;

const VENDOR_INTEL: u16 = 0x8086;
const CAPABILITY_MSI: u8 = 0x05;
/// In the word that begins the capability: enabled, number of messages, addresses of 64 bits.
const MSI_ENABLE: u32 = 1 << 16;
const MSI_COUNT: u32 = 7 << 20;
const MSI_WIDE: u32 = 1 << 23;

/// How soon a timer looks for packets of a card without messages: at first, and at most.
const DELAY_NS: u64 = 1_000_000;
const DELAY_MAX_NS: u64 = 16_000_000;

/// Cards by their number.
fn kind(device: u16) -> Option<Kind> {
    let (name, family) = match device {
        0x100e => ("82540EM", Family::I8254x),
        0x100f => ("82545EM", Family::I8254x),
        0x10d3 => ("82574L", Family::I82574),
        0x10c9 => ("82576", Family::I82576),
        _ => return None,
    };
    Some(Kind { name, family, has_messages: false })
}

/// A card's registers.
#[derive(Clone, Copy)]
struct Registers(u64);

impl Registers {
    fn read(self, register: u32) -> u32 {
        debug_assert!(register < WINDOW);
        // SAFETY: a register of the card's first window, which the physical map shows.
        unsafe { physical_to_virtual::<u32>(self.0 + u64::from(register)).read_volatile() }
    }

    fn write(self, register: u32, value: u32) {
        debug_assert!(register < WINDOW);
        // SAFETY: as above. What the card does to memory is what its rings say, which the driver answers for.
        unsafe { physical_to_virtual::<u32>(self.0 + u64::from(register)).write_volatile(value) }
    }
}

/// What an interrupt needs. Lives as long as the machine.
struct Target {
    registers: Registers,
    work: DeferredWork,
}

/// Looks for packets after a while.
struct Alarm {
    work: DeferredWork,
    is_set: AtomicBool,
    delay_ns: AtomicU64,
}

impl Waiter for Alarm {
    fn wake(&self, _: Events) {
        self.is_set.store(false, Ordering::Relaxed);
        api_sched::raise(self.work);
    }
}

/// A card of a PC.
struct Pci {
    function: Function,
    registers: Registers,
    /// Where its MSI capability is.
    messages: Option<u8>,
    /// Of a card without messages.
    alarm: SpinLock<Option<Arc<Alarm>>>,
}

/// The first card that works.
pub fn start() -> Option<Arc<dyn NetDevice>> {
    for function in plat_pc::pci::functions() {
        let (vendor, device) = function.id();
        let Some(kind) = kind(device).filter(|_| vendor == VENDOR_INTEL) else { continue };
        function.enable();
        let Some(registers) = function.structure(0, 0, WINDOW) else {
            log::warn!("e1000: {function:?} left alone: its registers are out of reach");
            continue;
        };
        let messages = function.capabilities().into_iter().find(|(id, _)| *id == CAPABILITY_MSI);
        let messages = messages.map(|(_, at)| at);
        let kind = Kind { has_messages: messages.is_some(), ..kind };
        let hardware =
            Pci { function, registers: Registers(registers), messages, alarm: SpinLock::new(None) };
        let mut random = [0; 6];
        api_plat::entropy(&mut random);
        match Card::new(hardware, kind, random) {
            Ok(card) => {
                log::info!("the network card is an Intel {}", kind.name);
                return Some(Arc::new(card));
            }
            Err(e) => log::error!("e1000: the network card {} does not start: {e:?}", kind.name),
        }
    }
    None
}

/// Interrupt context. The card's line falls when its causes are cleared, and they are when none is enabled.
fn interrupt(target: usize) {
    // SAFETY: `connect` registered a target that lives for ever.
    let target = unsafe { &*(target as *const Target) };
    target.registers.write(IMC, u32::MAX);
    target.registers.read(ICR);
    api_sched::raise(target.work);
}

impl Hardware for Pci {
    fn read(&self, register: u32) -> u32 {
        self.registers.read(register)
    }

    fn write(&self, register: u32, value: u32) {
        self.registers.write(register, value);
    }

    fn address_of(&self, memory: *const u8) -> u64 {
        plat_pc::physical(memory)
    }

    fn connect(&self, work: DeferredWork) {
        let target = Box::leak(Box::new(Target { registers: self.registers, work }));
        let data = core::ptr::from_ref(target) as usize;
        if let Some(at) = self.messages
            && let Ok(vector) = plat_pc::allocate_vector(interrupt, data)
        {
            let (address, message) = plat_pc::message(vector);
            let control = self.function.read(at);
            self.function.write(at + 4, address as u32);
            if control & MSI_WIDE != 0 {
                self.function.write(at + 8, (address >> 32) as u32);
                self.function.write(at + 12, message);
            } else {
                self.function.write(at + 8, message);
            }
            self.function.write(at, control & !MSI_COUNT | MSI_ENABLE);
            return;
        }
        if let Some(line) = self.function.enable_line() {
            // Where it cannot be, the timer does.
            let _ = plat_pc::route(line, interrupt, data);
        }
        *self.alarm.lock() = Some(Arc::new(Alarm {
            work,
            is_set: AtomicBool::new(false),
            delay_ns: AtomicU64::new(DELAY_NS),
        }));
    }

    fn armed(&self, is_busy: bool) {
        let Some(alarm) = self.alarm.lock().clone() else { return };
        if is_busy {
            alarm.delay_ns.store(DELAY_NS, Ordering::Relaxed);
        }
        if !alarm.is_set.swap(true, Ordering::Relaxed) {
            let delay = alarm.delay_ns.load(Ordering::Relaxed);
            alarm.delay_ns.store(DELAY_MAX_NS.min(2 * delay), Ordering::Relaxed);
            api_sched::add_timer(api_plat::now_ns() + delay, alarm);
        }
    }

    fn cut_off(&self) {
        self.function.disable();
    }
}
