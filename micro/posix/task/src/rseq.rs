// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A thread's restartable sequences (rseq(2)): where its `struct rseq` is, and whether the thread lost the processor since it was
//! last in the program.

use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};

/// The area does not name any processor yet.
const NO_CPU: u32 = u32::MAX;

/// What rseq(2) registered.
#[derive(Default)]
pub struct Rseq {
    /// Address of the program's `struct rseq`; 0: none is registered.
    area: AtomicU64,
    signature: AtomicU32,
    /// The processor that the area names.
    cpu: AtomicU32,
    /// The thread was off its processor, or membarrier(2) asks for it: a sequence that it is in begins anew.
    is_interrupted: AtomicBool,
}

impl Rseq {
    pub fn area(&self) -> u64 {
        self.area.load(Relaxed)
    }

    /// What stands before the place where an interrupted sequence goes on.
    pub fn signature(&self) -> u32 {
        self.signature.load(Relaxed)
    }

    /// The area is filled on the way back to the program. With an area of 0 there is none any more.
    pub fn register(&self, area: u64, signature: u32) {
        self.cpu.store(NO_CPU, Relaxed);
        self.signature.store(signature, Relaxed);
        self.is_interrupted.store(false, Relaxed);
        self.area.store(area, Relaxed);
        if area != 0 {
            api_plat::request_work();
        }
    }

    /// For the first thread of a process that fork(2) made, which has a copy of the area.
    pub fn inherit(&self, parent: &Rseq) {
        self.signature.store(parent.signature(), Relaxed);
        self.cpu.store(parent.cpu.load(Relaxed), Relaxed);
        self.area.store(parent.area(), Relaxed);
    }

    /// The thread got the processor. A thread that waited in a call is in no sequence and goes back as it came, unless the
    /// processor is another one.
    #[inline]
    pub fn resumed(&self) {
        if self.area() != 0 {
            self.interrupt();
            if self.cpu.load(Relaxed) != api_plat::cpu() {
                api_plat::request_work();
            }
        }
    }

    #[inline]
    pub fn interrupt(&self) {
        self.is_interrupted.store(true, Relaxed);
    }

    /// The program touched a page and was in no call before: what happened until now happened to calls.
    #[inline]
    pub fn fault_begins(&self) {
        self.is_interrupted.store(false, Relaxed);
    }

    /// The page is there, and the program goes on where it was.
    #[inline]
    pub fn fault_ends(&self) {
        if self.area() != 0 && self.is_interrupted.load(Relaxed) {
            api_plat::request_work();
        }
    }

    /// There is something to do before the thread is back in the program. One that comes from a call was in no sequence.
    #[inline]
    pub fn is_due(&self, in_call: bool) -> bool {
        if in_call {
            self.take_interrupt();
        }
        let is_elsewhere = || self.cpu.load(Relaxed) != api_plat::cpu();
        self.area() != 0 && (self.is_interrupted.load(Relaxed) || is_elsewhere())
    }

    /// Takes what [`Rseq::interrupt`] left.
    pub fn take_interrupt(&self) -> bool {
        let before = self.is_interrupted.load(Relaxed);
        self.is_interrupted.store(false, Relaxed);
        before
    }

    /// The processor that the area is to name; `None` where it does already.
    pub fn new_cpu(&self) -> Option<u32> {
        let cpu = api_plat::cpu();
        (self.cpu.swap(cpu, Relaxed) != cpu).then_some(cpu)
    }
}
