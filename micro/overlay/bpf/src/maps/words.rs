// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Memory that programs and readers share: words that may change at any time.

use super::NoMemory;
use alloc::boxed::Box;
use alloc::vec::Vec;
use api_alloc::Reserve;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

pub(crate) struct Words(Box<[AtomicU64]>);

impl Words {
    pub fn new(count: usize) -> Result<Words, NoMemory> {
        let mut words = Vec::new();
        words.reserve_exact_fallibly(count).map_err(|_| NoMemory)?;
        words.resize_with(count, || AtomicU64::new(0));
        Ok(Words(words.into_boxed_slice()))
    }

    pub fn address(&self) -> u64 {
        self.0.as_ptr() as u64
    }

    pub fn bytes(&self) -> usize {
        self.0.len() * 8
    }

    /// The word itself, for atomic operations.
    pub fn word(&self, index: usize) -> Option<&AtomicU64> {
        self.0.get(index)
    }

    pub fn get(&self, index: usize) -> Option<u64> {
        Some(self.0.get(index)?.load(Relaxed))
    }

    pub fn set(&self, index: usize, value: u64) {
        if let Some(word) = self.0.get(index) {
            word.store(value, Relaxed);
        }
    }

    /// Copies out; what is behind the end reads as zeros.
    pub fn read(&self, at: usize, to: &mut [u8]) {
        let mut done = 0;
        while done < to.len() {
            let (index, within) = ((at + done) / 8, (at + done) % 8);
            let bytes = self.get(index).unwrap_or(0).to_le_bytes();
            let n = (8 - within).min(to.len() - done);
            to[done..done + n].copy_from_slice(&bytes[within..within + n]);
            done += n;
        }
    }

    /// Copies in; what is behind the end is dropped.
    pub fn write(&self, at: usize, from: &[u8]) {
        let mut done = 0;
        while done < from.len() {
            let (index, within) = ((at + done) / 8, (at + done) % 8);
            let n = (8 - within).min(from.len() - done);
            let Some(word) = self.0.get(index) else { return };
            if n == 8 {
                let mut bytes = [0; 8];
                bytes.copy_from_slice(&from[done..done + 8]);
                word.store(u64::from_le_bytes(bytes), Relaxed);
            } else {
                let mut bytes = word.load(Relaxed).to_le_bytes();
                bytes[within..within + n].copy_from_slice(&from[done..done + n]);
                word.store(u64::from_le_bytes(bytes), Relaxed);
            }
            done += n;
        }
    }

    pub fn fill_zero(&self, at: usize, length: usize) {
        for index in at / 8..(at + length).div_ceil(8) {
            self.set(index, 0);
        }
    }
}
