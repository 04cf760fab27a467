// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Pages that the kernel shares with a program.
//!
//! The program writes to them whenever it likes: each word is read once, and used only after it was masked or checked.

use abi::{PAGE_SIZE, Result, errno::ENOMEM};
use alloc::vec::Vec;
use api_alloc::Reserve;
use api_mem::PageFrame;
use core::sync::atomic::{Ordering, fence};

/// Pages of zeros, addressed as one range of bytes.
pub struct Memory(Vec<PageFrame>);

impl Memory {
    /// `ENOMEM` without so many pages, and where little would be left for others.
    pub fn new(bytes: usize) -> Result<Memory> {
        let pages = bytes.div_ceil(PAGE_SIZE);
        let mut frames = Vec::new();
        frames.reserve_exact_fallibly(pages).map_err(|_| ENOMEM)?;
        for _ in 0..pages {
            if api_alloc::is_low() {
                return Err(ENOMEM);
            }
            frames.push(PageFrame::new()?);
        }
        Ok(Memory(frames))
    }

    pub fn pages(&self) -> usize {
        self.0.len()
    }

    pub fn frame(&self, page: usize) -> Option<PageFrame> {
        self.0.get(page).cloned()
    }

    /// Reads bytes that do not cross a page, which holds for entries of rings: their size divides a page, and so does their place.
    pub fn read(&self, at: usize, bytes: &mut [u8]) {
        if let Some(frame) = self.0.get(at / PAGE_SIZE) {
            frame.read(at % PAGE_SIZE, bytes);
        }
    }

    /// Writes bytes that do not cross a page.
    pub fn write(&self, at: usize, bytes: &[u8]) {
        if let Some(frame) = self.0.get(at / PAGE_SIZE) {
            frame.write(at % PAGE_SIZE, bytes);
        }
    }

    pub fn word(&self, at: usize) -> u32 {
        let mut bytes = [0; 4];
        self.read(at, &mut bytes);
        u32::from_ne_bytes(bytes)
    }

    pub fn set_word(&self, at: usize, word: u32) {
        self.write(at, &word.to_ne_bytes());
    }

    /// A word that the program stored last (a tail): what it stored before is read after this.
    pub fn acquire(&self, at: usize) -> u32 {
        let word = self.word(at);
        fence(Ordering::Acquire);
        word
    }

    /// Stores a word (a tail) behind everything that was stored before.
    pub fn release(&self, at: usize, word: u32) {
        fence(Ordering::Release);
        self.set_word(at, word);
        fence(Ordering::SeqCst);
    }
}
