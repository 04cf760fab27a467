// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Hardware as its manuals have it, for tests: it refuses what a processor or KVM refuses, where software emulation
//! forgives. (Intel SDM; AMD's manual agrees where none is named.)

use crate::apic::Registers;
use crate::processor::{CR4_FSGSBASE, CR4_OSXSAVE, CR4_PKE, Cpuid};
use std::{cell::RefCell, collections::BTreeMap, format, string::String};

const ENTRIES: [u64; 3] = [0x320, 0x350, 0x360];
const TIMER: u64 = 0x320;
const MASKED: u32 = 1 << 16;
const MODE: u32 = 3 << 17;
const ONE_SHOT: u32 = 0;
const DEADLINE: u32 = 2 << 17;

/// A local APIC (volume 3, chapter 11) with the registers that the kernel uses. What is reserved must be written as zero.
pub struct Apic(RefCell<State>);

struct State {
    registers: BTreeMap<u64, u32>,
    left: u32,
    in_service: bool,
    /// Receiver and low word of each command.
    sent: std::vec::Vec<(u32, u32)>,
    /// How often the command register still says that the last one has not left.
    leaves_in: u32,
}

impl Default for Apic {
    /// As after a reset: disabled, all entries masked (11.4.7.1).
    fn default() -> Apic {
        let mut registers: BTreeMap<u64, u32> = ENTRIES.iter().map(|entry| (*entry, MASKED)).collect();
        registers.insert(0xf0, 0xff);
        registers.insert(0x3e0, 0);
        Apic(RefCell::new(State {
            registers,
            left: 0,
            in_service: false,
            sent: std::vec::Vec::new(),
            leaves_in: 0,
        }))
    }
}

impl State {
    fn get(&self, register: u64) -> u32 {
        self.registers.get(&register).copied().unwrap_or(0)
    }

    fn is_enabled(&self) -> bool {
        self.get(0xf0) & 1 << 8 != 0
    }

    fn raise(&mut self) -> Option<u8> {
        let entry = self.get(TIMER);
        if entry & MASKED != 0 || !self.is_enabled() || self.in_service {
            return None;
        }
        self.in_service = true;
        Some(entry as u8)
    }
}

impl Apic {
    /// So many ticks pass: the vector that the timer raised.
    pub fn elapsed(&self, ticks: u32) -> Option<u8> {
        let mut state = self.0.borrow_mut();
        if state.get(TIMER) & MODE != ONE_SHOT || state.left == 0 {
            return None;
        }
        state.left = state.left.saturating_sub(ticks);
        if state.left == 0 { state.raise() } else { None }
    }

    /// The time-stamp counter passes IA32_TSC_DEADLINE: the vector that the timer raised.
    pub fn deadline_passed(&self) -> Option<u8> {
        let mut state = self.0.borrow_mut();
        if state.get(TIMER) & MODE != DEADLINE {
            return None;
        }
        state.raise()
    }

    /// Receiver and low word of each command so far.
    pub fn sent(&self) -> std::vec::Vec<(u32, u32)> {
        self.0.borrow().sent.clone()
    }

    pub fn is_masked(&self, entry: u64) -> bool {
        self.0.borrow().get(entry) & MASKED != 0
    }
}

impl Registers for Apic {
    fn read(&self, register: u64) -> u32 {
        let mut state = self.0.borrow_mut();
        match register {
            0x300 => {
                let pending = state.leaves_in > 0;
                state.leaves_in = state.leaves_in.saturating_sub(1);
                u32::from(pending) << 12
            }
            // With deadlines it reads as zero (11.5.4.1).
            0x390 if state.get(TIMER) & MODE == DEADLINE => 0,
            0x390 => state.left,
            _ => state.get(register),
        }
    }

    fn write(&self, register: u64, value: u32) {
        let mut state = self.0.borrow_mut();
        let reserved = match register {
            // The receiver, in the high byte (figure 11-12).
            0x310 => 0xff_ffff,
            0x300 => {
                // Vector, delivery, destination, level, trigger and shorthand; a command that has not left is lost.
                assert_eq!(value & 0xfff3_3000, 0, "reserved bits of the command");
                assert_eq!(state.leaves_in, 0, "the last command has not left");
                let receiver = state.get(0x310) >> 24;
                state.sent.push((receiver, value));
                state.leaves_in = 3;
                return;
            }
            0xb0 => {
                assert_eq!(value, 0, "the end of an interrupt is written as zero (11.8.5)");
                state.in_service = false;
                return;
            }
            // Vector, enable, focus, and suppression of EOI broadcasts.
            0xf0 => !0x13ff,
            // Vector, mask, mode; delivery status is read-only.
            TIMER => !0x700ff,
            // Vector, delivery mode, polarity, trigger, mask.
            0x350 | 0x360 => !0x1a7ff,
            0x380 => {
                // Ignored with deadlines (11.5.4.1).
                if state.get(TIMER) & MODE != DEADLINE {
                    assert_ne!(state.get(0x3e0) & 0xb, 0, "the divisor is set before the counter starts");
                    state.left = value;
                }
                return;
            }
            0x3e0 => !0xb,
            _ => panic!("{register:#x} is no register that may be written"),
        };
        assert_eq!(value & reserved, 0, "reserved bits of {register:#x}");
        let masked = value & MASKED != 0;
        let is_entry = ENTRIES.contains(&register);
        assert!(!is_entry || masked || value & 0xff >= 16, "vectors below 16 are errors (11.5.2)");
        // While the APIC is disabled its entries are masked, and stay so (11.4.7.2).
        let kept = if is_entry && !state.is_enabled() { value | MASKED } else { value };
        let was = state.get(register);
        state.registers.insert(register, kept);
        match register {
            0xf0 => {
                // Old processors read them as ones (11.9).
                assert_eq!(value & 0xf, 0xf, "the low bits of the spurious vector");
                if !state.is_enabled() {
                    for entry in ENTRIES {
                        let masked = state.get(entry) | MASKED;
                        state.registers.insert(entry, masked);
                    }
                }
            }
            // A change between counter and deadlines disarms the timer (11.5.4.1).
            TIMER if was & MODE != value & MODE => state.left = 0,
            _ => {}
        }
    }

    /// Of an x2APIC, which has no state of delivery (11.12.9).
    fn command(&self, value: u64) {
        assert_eq!(value & 0xfff3_3000, 0, "reserved bits of the command");
        self.0.borrow_mut().sent.push(((value >> 32) as u32, value as u32));
    }
}

/// XSETBV of XCR0 on a processor that offers these states (volume 1, 13.3; #GP otherwise).
pub fn xsetbv(xcr0: u64, offered: u64) -> Result<(), String> {
    let bits = |mask: u64| xcr0 & mask;
    let refuse = |why: &str| Err(format!("#GP: {xcr0:#x}: {why}"));
    if xcr0 & !offered != 0 {
        return refuse("a state that CPUID does not offer");
    }
    if bits(1) == 0 {
        return refuse("without x87");
    }
    if bits(4) != 0 && bits(2) == 0 {
        return refuse("AVX without SSE");
    }
    if !matches!(bits(3 << 3), 0 | 0x18) {
        return refuse("half of MPX");
    }
    if bits(0xe0) != 0 && (bits(0xe0) != 0xe0 || bits(4) == 0) {
        return refuse("AVX-512 in part, or without AVX");
    }
    if !matches!(bits(3 << 17), 0 | 0x6_0000) {
        return refuse("half of AMX");
    }
    Ok(())
}

/// MOV to CR4 of bits beyond those of boot (volume 3, 2.5; #GP for what CPUID does not offer).
pub fn cr4(cpuid: &impl Cpuid, added: u64) -> Result<(), String> {
    let has_seven = cpuid.ask(0, 0).eax >= 7;
    let seven = |bit: u32, register: u32| has_seven && register & 1 << bit != 0;
    let leaf = cpuid.ask(7, 0);
    let mut allowed = 0;
    if seven(0, leaf.ebx) {
        allowed |= CR4_FSGSBASE;
    }
    if cpuid.ask(1, 0).ecx & 1 << 26 != 0 {
        allowed |= CR4_OSXSAVE;
    }
    if seven(3, leaf.ecx) {
        allowed |= CR4_PKE;
    }
    if added & !allowed == 0 { Ok(()) } else { Err(format!("#GP: CR4 {added:#x} of {allowed:#x}")) }
}
