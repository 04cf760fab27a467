// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A controller as the specification describes it, for tests: it works on the queues in the test's own memory, whose addresses are
//! those of its pointers, and lies where the test says so.

use crate::controller::Hardware;
use crate::register::*;
use abi::Result;
use api_sched::DeferredWork;
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};
use std::vec;
use std::vec::Vec;

/// A namespace.
#[derive(Clone)]
pub struct Namespace {
    pub number: u32,
    pub block: usize,
    pub bytes: Vec<u8>,
    pub is_protected: bool,
    /// Identify's structure, where it is not the true one.
    pub claims: Option<Vec<u8>>,
}

impl Namespace {
    pub fn new(number: u32, block: usize, blocks: usize) -> Namespace {
        Namespace { number, block, bytes: vec![0; block * blocks], is_protected: false, claims: None }
    }

    fn structure(&self) -> Vec<u8> {
        if let Some(claims) = &self.claims {
            return claims.clone();
        }
        let mut bytes = vec![0; 4096];
        bytes[..8].copy_from_slice(&((self.bytes.len() / self.block) as u64).to_le_bytes());
        bytes[99] = self.is_protected.into();
        // The second of two formats.
        (bytes[25], bytes[26], bytes[134]) = (1, 1, self.block.ilog2() as u8);
        bytes
    }
}

/// A ring of the controller's.
#[derive(Clone, Copy, Default)]
struct Ring {
    start: u64,
    entries: usize,
    at: usize,
    /// Of a submission queue, where the driver says that it ends; of a completion queue, where it is free up to.
    told: usize,
    phase: bool,
}

/// What the controller is like.
pub struct State {
    pub version: u32,
    pub capabilities: u64,
    pub window: u64,
    pub status: u32,
    pub namespaces: Vec<Namespace>,
    /// Numbers that Identify lists instead.
    pub lists: Option<Vec<u32>>,
    pub mdts: u8,
    pub has_cache: bool,
    /// Queue pairs that it grants.
    pub grants: u32,
    /// Status of admin commands, by operation.
    pub refuses: HashMap<u8, u16>,
    pub flushes: usize,
    /// Never becomes ready.
    pub hangs: bool,
    /// Becomes ready with a fatal error.
    pub fails: bool,
    /// Takes commands of I/O queues and answers them when [`Model::answer`] is called.
    pub is_slow: bool,
    /// Takes commands and answers none.
    pub is_silent: bool,
    /// What it adds to the number of a command that it answers.
    pub confuses: u16,
    pub now_ns: u64,
    pub armed: Vec<(u16, bool)>,
    pub is_cut_off: bool,
    pub doorbells: usize,
    configuration: u32,
    addresses: HashMap<u32, u32>,
    submissions: HashMap<u16, Ring>,
    completions: HashMap<u16, Ring>,
    waiting: VecDeque<(u16, [u32; 16])>,
}

#[derive(Clone)]
pub struct Model(pub Arc<Mutex<State>>);

impl Model {
    pub fn new(namespaces: Vec<Namespace>) -> Model {
        Model(Arc::new(Mutex::new(State {
            version: 0x0001_0400,
            // 2,048 entries, two seconds, the NVM command set.
            capabilities: 2047 | 4 << 24 | 1 << 37,
            window: 0x4000,
            status: 0,
            namespaces,
            lists: None,
            mdts: 0,
            has_cache: true,
            grants: 64,
            refuses: HashMap::new(),
            flushes: 0,
            hangs: false,
            fails: false,
            is_slow: false,
            is_silent: false,
            confuses: 0,
            now_ns: 0,
            armed: Vec::new(),
            is_cut_off: false,
            doorbells: 0,
            configuration: 0,
            addresses: HashMap::new(),
            submissions: HashMap::new(),
            completions: HashMap::new(),
            waiting: VecDeque::new(),
        })))
    }

    pub fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap()
    }

    /// Answers commands that wait, the last one first.
    pub fn answer(&self, count: usize) {
        let mut state = self.state();
        for _ in 0..count {
            if let Some((queue, command)) = state.waiting.pop_back() {
                state.work(queue, command);
            }
        }
    }

    /// Writes these words as the next completion of a queue.
    pub fn complete(&self, queue: u16, words: [u32; 3], id_and_status: u32) {
        self.state().complete(queue, words, id_and_status);
    }
}

impl State {
    fn stride(&self) -> u32 {
        4 << (self.capabilities >> 32 & 15)
    }

    fn address(&self, register: u32) -> u64 {
        let half = |at: u32| u64::from(self.addresses.get(&at).copied().unwrap_or(0));
        half(register + 4) << 32 | half(register)
    }

    fn enable(&mut self) {
        if self.hangs {
            return;
        }
        let entries = self.addresses.get(&AQA).copied().unwrap_or(0);
        let ring =
            |start, less: u32| Ring { start, entries: less as usize + 1, phase: true, ..Ring::default() };
        self.submissions.insert(0, ring(self.address(ASQ), entries & 0xfff));
        self.completions.insert(0, ring(self.address(ACQ), entries >> 16 & 0xfff));
        self.status |= CSTS_RDY | if self.fails { CSTS_CFS } else { 0 };
    }

    fn complete(&mut self, queue: u16, words: [u32; 3], id_and_status: u32) {
        let Some(ring) = self.completions.get_mut(&queue) else { return };
        if self.is_cut_off {
            return;
        }
        let next = (ring.at + 1) % ring.entries;
        assert!(ring.entries == 1 || next != ring.told, "the completion queue is full");
        let at = (ring.start + 16 * ring.at as u64) as *mut u32;
        let last = id_and_status & !(1 << 16) | u32::from(ring.phase) << 16;
        for (n, word) in words.into_iter().chain([last]).enumerate() {
            // SAFETY: the driver gave the controller the ring, and reads an entry when its last word says so.
            unsafe { at.add(n).write_volatile(word) };
        }
        ring.at = next;
        ring.phase ^= next == 0;
    }

    /// Takes the commands of a queue.
    fn fetch(&mut self, queue: u16) {
        loop {
            let Some(ring) = self.submissions.get_mut(&queue) else { return };
            if ring.at == ring.told || self.is_cut_off {
                return;
            }
            let at = (ring.start + 64 * ring.at as u64) as *const u32;
            // SAFETY: the driver told of the entry, and leaves it alone until its command is completed.
            let command: [u32; 16] = core::array::from_fn(|n| unsafe { at.add(n).read_volatile() });
            ring.at = (ring.at + 1) % ring.entries;
            if self.is_silent {
                continue;
            }
            if queue != 0 && self.is_slow {
                self.waiting.push_back((queue, command));
            } else {
                self.work(queue, command);
            }
        }
    }

    fn work(&mut self, queue: u16, command: [u32; 16]) {
        let id = (command[0] >> 16) as u16;
        let (result, status) = match queue {
            0 => self.admin(&command),
            _ => (0, self.transfer(&command)),
        };
        let id = id.wrapping_add(self.confuses);
        self.complete(queue, [result, 0, 0], u32::from(id) | u32::from(status) << 17);
    }

    fn admin(&mut self, command: &[u32; 16]) -> (u32, u16) {
        let operation = command[0] as u8;
        if let Some(status) = self.refuses.get(&operation) {
            return (0, *status);
        }
        let to = u64::from(command[7]) << 32 | u64::from(command[6]);
        let (queue, entries) = (command[10] as u16, (command[10] >> 16) as usize + 1);
        let ring = Ring { start: to, entries, phase: true, ..Ring::default() };
        let mut structure = vec![0; 4096];
        match operation {
            0x06 => match command[10] {
                1 => {
                    structure[77] = self.mdts;
                    let last = self.namespaces.iter().map(|n| n.number).max().unwrap_or(0);
                    structure[516..520].copy_from_slice(&last.to_le_bytes());
                    structure[525] = self.has_cache.into();
                }
                2 => {
                    let true_list = || self.namespaces.iter().map(|n| n.number).collect();
                    for (n, number) in self.lists.clone().unwrap_or_else(true_list).into_iter().enumerate() {
                        structure[4 * n..][..4].copy_from_slice(&number.to_le_bytes());
                    }
                }
                _ => match self.namespaces.iter().find(|n| n.number == command[1]) {
                    Some(namespace) => structure = namespace.structure(),
                    None => return (0, 0x00b),
                },
            },
            0x09 => return ((self.grants - 1) << 16 | (self.grants - 1), 0),
            0x05 => {
                self.completions.insert(queue, ring);
                return (0, 0);
            }
            0x01 => {
                assert_eq!(command[11] >> 16, u32::from(queue));
                self.submissions.insert(queue, ring);
                return (0, 0);
            }
            _ => return (0, 0x001),
        }
        // SAFETY: the driver gave a page for the structure.
        unsafe { (to as *mut u8).copy_from_nonoverlapping(structure.as_ptr(), 4096) };
        (0, 0)
    }

    fn transfer(&mut self, command: &[u32; 16]) -> u16 {
        let Some(namespace) = self.namespaces.iter_mut().find(|n| n.number == command[1]) else {
            return 0x00b;
        };
        if command[0] & 0xff == 0 {
            self.flushes += 1;
            return 0;
        }
        let is_read = command[0] & 0xff == 2;
        if !is_read && namespace.is_protected {
            return 0x020;
        }
        let first = u64::from(command[11]) << 32 | u64::from(command[10]);
        let start = first as usize * namespace.block;
        let length = ((command[12] & 0xffff) as usize + 1) * namespace.block;
        if (1..=8).contains(&self.mdts) && length > 4096 << self.mdts {
            return 0x002;
        }
        let Some(bytes) = namespace.bytes.get_mut(start..start + length) else { return 0x080 };
        let prp = |n: usize| u64::from(command[n + 1]) << 32 | u64::from(command[n]);
        let (mut at, first_prp, second) = (0, prp(6), prp(8));
        let mut pages = vec![first_prp];
        let rest = length.saturating_sub(4096 - first_prp as usize % 4096);
        match rest.div_ceil(4096) {
            0 => {}
            1 => pages.push(second),
            count => {
                assert!(second.is_multiple_of(8) && second % 4096 + 8 * count as u64 <= 4096);
                // SAFETY: the driver gave a list of so many entries.
                pages.extend((0..count).map(|n| unsafe { *(second as *const u64).add(n) }));
            }
        }
        for (n, page) in pages.into_iter().enumerate() {
            let offset = page as usize % 4096;
            assert!(offset.is_multiple_of(4) && (n == 0 || offset == 0), "a PRP entry that is none");
            let count = (4096 - offset).min(length - at);
            // SAFETY: a page that the driver holds for the request.
            let memory = unsafe { core::slice::from_raw_parts_mut(page as *mut u8, count) };
            match is_read {
                true => memory.copy_from_slice(&bytes[at..at + count]),
                false => bytes[at..at + count].copy_from_slice(memory),
            }
            at += count;
        }
        0
    }
}

impl Hardware for Model {
    fn read(&self, register: u32) -> u32 {
        let state = self.state();
        match register {
            CAP => state.capabilities as u32,
            register if register == CAP + 4 => (state.capabilities >> 32) as u32,
            VS => state.version,
            CC => state.configuration,
            CSTS => state.status,
            _ => panic!("nobody reads {register:#x}"),
        }
    }

    fn write(&self, register: u32, value: u32) {
        let mut state = self.state();
        assert!(u64::from(register) + 4 <= state.window, "outside of the registers");
        match register {
            CC => {
                let was_on = core::mem::replace(&mut state.configuration, value) & CC_EN != 0;
                match value & CC_EN != 0 {
                    true if !was_on => state.enable(),
                    false if !state.hangs => state.status &= !CSTS_RDY,
                    _ => {}
                }
            }
            DOORBELLS.. => {
                state.doorbells += 1;
                let (place, stride) = (register - DOORBELLS, state.stride());
                assert!(place.is_multiple_of(stride), "between two doorbells");
                let (queue, is_completion) = ((place / stride / 2) as u16, place / stride % 2 == 1);
                let rings = if is_completion { &mut state.completions } else { &mut state.submissions };
                let ring = rings.get_mut(&queue).expect("a queue that was created");
                assert!((value as usize) < ring.entries, "outside of the ring");
                ring.told = value as usize;
                if !is_completion {
                    state.fetch(queue);
                }
            }
            _ => drop(state.addresses.insert(register, value)),
        }
    }

    fn window(&self) -> u64 {
        self.state().window
    }

    fn address_of(&self, memory: *const u8) -> u64 {
        memory as u64
    }

    fn now_ns(&self) -> u64 {
        self.state().now_ns
    }

    fn pause(&self) {
        self.state().now_ns += 1_000_000;
    }

    fn message(&self, queue: u16) -> Option<u16> {
        Some(queue)
    }

    fn connect(&self, _: u16, _: DeferredWork) -> Result<()> {
        Ok(())
    }

    fn armed(&self, queue: u16, is_busy: bool) {
        self.state().armed.push((queue, is_busy));
    }

    fn cut_off(&self) {
        self.state().is_cut_off = true;
    }
}
