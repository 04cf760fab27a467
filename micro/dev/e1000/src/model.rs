// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A card as the manual describes it, for tests: it works on the rings in the test's own memory, whose addresses are those of its
//! pointers.

use crate::card::{Family, Hardware};
use crate::descriptor::Written;
use crate::register::*;
use api_netdev::BUFFER_SIZE;
use api_sched::DeferredWork;
use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::vec::Vec;

/// What the card is like.
pub struct State {
    pub family: Family,
    pub registers: HashMap<u32, u32>,
    /// Causes that are enabled.
    pub enabled: u32,
    pub frames: Vec<Vec<u8>>,
    /// How often the driver enabled interrupts, and whether packets had come before.
    pub armed: Vec<bool>,
    pub is_cut_off: bool,
    /// Never comes back from a reset.
    pub hangs: bool,
    /// Takes packets and does not say when it is done.
    pub is_silent: bool,
    /// The piece of a frame that waits for its end.
    partial: Vec<u8>,
}

#[derive(Clone)]
pub struct Model(pub Arc<Mutex<State>>);

pub const MAC: [u8; 6] = [0x52, 0x54, 0, 0x12, 0x34, 0x56];

impl Model {
    pub fn new(family: Family) -> Model {
        let state = State {
            family,
            registers: HashMap::new(),
            enabled: 0,
            frames: Vec::new(),
            armed: Vec::new(),
            is_cut_off: false,
            hangs: false,
            is_silent: false,
            partial: Vec::new(),
        };
        let model = Model(Arc::new(Mutex::new(state)));
        model.set(RAL, u32::from_le_bytes([MAC[0], MAC[1], MAC[2], MAC[3]]));
        model.set(RAH, RAH_AV | u32::from(MAC[5]) << 8 | u32::from(MAC[4]));
        model
    }

    pub fn set(&self, register: u32, value: u32) {
        self.0.lock().unwrap().registers.insert(register, value);
    }

    pub fn get(&self, register: u32) -> u32 {
        self.0.lock().unwrap().get(register)
    }

    /// Writes these bytes to the next receive descriptor's buffer, with what the descriptor says then; false without one.
    pub fn put(&self, bytes: &[u8], rest: u64) -> bool {
        let mut state = self.0.lock().unwrap();
        let (head, tail) = (state.get(RECEIVE.head), state.get(RECEIVE.tail));
        let is_on = state.get(RCTL) & RCTL_EN != 0 && state.has_queue(RECEIVE);
        if head == tail || !is_on || state.is_cut_off {
            return false;
        }
        let descriptor = state.descriptor(RECEIVE, head);
        assert!(bytes.len() <= BUFFER_SIZE);
        // SAFETY: the driver gave the card the ring and the buffer, and leaves them alone meanwhile.
        unsafe {
            let buffer = *descriptor as *mut u8;
            buffer.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len());
            descriptor.add(1).write_volatile(rest);
        }
        let next = (head + 1) % (state.get(RECEIVE.length) / 16);
        state.registers.insert(RECEIVE.head, next);
        let causes = state.get(ICR) | 1 << 7;
        state.registers.insert(ICR, causes);
        true
    }

    /// A frame comes over the wire.
    pub fn arrive(&self, frame: &[u8]) -> bool {
        let says = Written { length: frame.len(), is_end: true, is_damaged: false, checksum_valid: false };
        let format = self.0.lock().unwrap().family.format();
        self.put(frame, format.written(says))
    }

    pub fn interrupts(&self) -> bool {
        let state = self.0.lock().unwrap();
        state.get(ICR) & state.enabled != 0
    }
}

impl State {
    fn get(&self, register: u32) -> u32 {
        self.registers.get(&register).copied().unwrap_or(0)
    }

    fn descriptor(&self, ring: RingRegisters, index: u32) -> *mut u64 {
        let start = u64::from(self.get(ring.high)) << 32 | u64::from(self.get(ring.low));
        assert!(index < self.get(ring.length) / 16, "an index outside of the ring");
        (start + u64::from(index) * 16) as *mut u64
    }

    /// The 82576 has one when it was enabled, with descriptors of its own.
    fn has_queue(&self, ring: RingRegisters) -> bool {
        self.family != Family::I82576
            || self.get(ring.control) & DCTL_82576_ENABLE != 0 && self.get(SRRCTL) == SRRCTL_ADVANCED
    }

    /// Sends what the ring holds.
    fn send(&mut self) {
        let (ring, format) = (TRANSMIT, self.family.format());
        let is_on = self.get(TCTL) & TCTL_EN != 0 && self.has_queue(ring);
        while is_on && self.get(ring.head) != self.get(ring.tail) {
            let head = self.get(ring.head);
            let descriptor = self.descriptor(ring, head);
            // SAFETY: as in `put`.
            let (address, rest) = unsafe { (*descriptor, *descriptor.add(1)) };
            // SAFETY: the driver keeps the piece until the descriptor says that it is done.
            let piece =
                unsafe { core::slice::from_raw_parts(address as *const u8, usize::from(rest as u16)) };
            let (is_end, is_reported, whole) = format.sends(rest);
            assert!(!piece.is_empty());
            self.partial.extend_from_slice(piece);
            if is_end {
                assert!(whole.is_none_or(|whole| whole == self.partial.len()));
                let frame = core::mem::take(&mut self.partial);
                self.frames.push(frame);
            }
            if is_reported && !self.is_silent {
                // SAFETY: as above.
                unsafe { descriptor.add(1).write_volatile(format.sent(rest)) };
            }
            let next = (head + 1) % (self.get(ring.length) / 16);
            self.registers.insert(ring.head, next);
        }
    }
}

impl Hardware for Model {
    fn read(&self, register: u32) -> u32 {
        let mut state = self.0.lock().unwrap();
        let value = state.get(register);
        if register == ICR && state.enabled == 0 && value != u32::MAX {
            state.registers.insert(register, 0);
        }
        value
    }

    fn write(&self, register: u32, value: u32) {
        let mut state = self.0.lock().unwrap();
        match register {
            IMS => state.enabled |= value,
            IMC => state.enabled &= !value,
            CTRL => {
                let kept = if state.hangs { value } else { value & !CTRL_RST };
                if state.get(CTRL) != u32::MAX {
                    state.registers.insert(CTRL, kept);
                }
            }
            MDIC => drop(state.registers.insert(MDIC, value | MDIC_READY)),
            _ => drop(state.registers.insert(register, value)),
        }
        if register == TRANSMIT.tail {
            state.send();
        }
    }

    fn address_of(&self, memory: *const u8) -> u64 {
        memory as u64
    }

    fn connect(&self, _: DeferredWork) {}

    fn armed(&self, is_busy: bool) {
        self.0.lock().unwrap().armed.push(is_busy);
    }

    fn cut_off(&self) {
        self.0.lock().unwrap().is_cut_off = true;
    }
}
