// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The lock around the kernel and the shoot-down of translations, run through every order of their accesses that the memory model
//! allows (loom).

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use crate::atomic::{AtomicU32, AtomicU64};
use crate::gate::{FREE, Gate, HELD};
use crate::round::Round;
use loom::cell::UnsafeCell;
use loom::sync::{Arc, Condvar, Mutex};
use loom::thread;
use std::vec::Vec;

/// What a processor sleeps on: messages that came are kept until it sleeps, as interrupts are while they are off.
struct Bell {
    rang: Mutex<bool>,
    wakes: Condvar,
}

struct Machine {
    gate: Gate,
    bells: Vec<Bell>,
    /// What the lock is there for.
    kernel: UnsafeCell<u32>,
}

impl Machine {
    fn new(cpus: usize) -> Arc<Machine> {
        let bell = || Bell { rang: Mutex::new(false), wakes: Condvar::new() };
        Arc::new(Machine {
            gate: Gate { word: AtomicU32::new(FREE), sleepers: AtomicU32::new(0), last: AtomicU32::new(0) },
            bells: (0..cpus).map(|_| bell()).collect(),
            kernel: UnsafeCell::new(0),
        })
    }

    /// As `processors.rs` does it, with no patience at all.
    fn enter(&self, cpu: u32) {
        while !self.gate.try_enter() {
            let bell = &self.bells[cpu as usize];
            *bell.rang.lock().unwrap() = false;
            if self.gate.announce(cpu) {
                let mut rang = bell.rang.lock().unwrap();
                while !*rang {
                    rang = bell.wakes.wait(rang).unwrap();
                }
            }
            self.gate.withdraw(cpu);
        }
    }

    fn leave(&self) {
        if let Some(next) = self.gate.leave() {
            let bell = &self.bells[next as usize];
            *bell.rang.lock().unwrap() = true;
            bell.wakes.notify_one();
        }
    }
}

/// Loom ends with an error where all wait and nobody is woken, and where two touch the cell at once.
fn takes_turns(cpus: u32, preemptions: Option<usize>) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = preemptions;
    model.check(move || {
        let machine = Machine::new(cpus as usize);
        let work = |machine: &Machine, cpu: u32| {
            machine.enter(cpu);
            // SAFETY: the lock is held; loom looks.
            machine.kernel.with_mut(|kernel| unsafe { *kernel += 1 });
            machine.leave();
        };
        let threads: Vec<_> = (1..cpus)
            .map(|cpu| {
                let machine = machine.clone();
                thread::spawn(move || work(&machine, cpu))
            })
            .collect();
        work(&machine, 0);
        threads.into_iter().for_each(|t| t.join().unwrap());
        // SAFETY: all have ended.
        assert_eq!(machine.kernel.with(|kernel| unsafe { *kernel }), cpus);
        assert!(machine.gate.is_free() && HELD != FREE);
    });
}

#[test]
fn two_processors_take_turns_and_no_wake_up_is_lost() {
    takes_turns(2, None);
}

#[test]
fn three_processors_take_turns_and_no_wake_up_is_lost() {
    takes_turns(3, Some(2));
}

/// A page that is taken from an address space another processor is in: nobody reads it any more when the round is over.
#[test]
fn nobody_uses_a_page_once_the_round_is_over() {
    loom::model(|| {
        let round =
            Arc::new(Round { pending: AtomicU32::new(0), start: AtomicU64::new(0), end: AtomicU64::new(0) });
        let pages = Arc::new([UnsafeCell::new(0u32), UnsafeCell::new(0)]);
        let other = {
            let (round, pages) = (round.clone(), pages.clone());
            thread::spawn(move || {
                // It uses the pages that it has not been asked to forget.
                for n in 0..2 {
                    let range = loop {
                        // SAFETY: it still remembers the page; loom looks whether anybody writes to it.
                        pages[n].with(|page| assert_eq!(unsafe { *page }, 0));
                        match round.asked(1) {
                            Some(range) => break range,
                            None => thread::yield_now(),
                        }
                    };
                    assert_eq!(range, (n as u64 * 4096, n as u64 * 4096 + 4096));
                    round.done(1);
                    assert!(n == 1 || round.asked(1).is_none_or(|(start, _)| start == 4096));
                }
            })
        };
        for (n, page) in pages.iter().enumerate() {
            round.ask(0b10, n as u64 * 4096, n as u64 * 4096 + 4096);
            while !round.is_over() {
                thread::yield_now();
            }
            // SAFETY: nobody uses it any more; loom looks.
            page.with_mut(|page| unsafe { *page = 1 });
        }
        other.join().unwrap();
    });
}
