// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The program's memory: address spaces, mappings, page faults.
//!
//! A [`Space`] is an address space. What is mapped where is in its tree of mappings (`vma`), and pages appear when
//! they are touched ([`Space::fault`]). The mechanism that makes them appear is a `Pager`: page tables on a PC. The
//! kernel half is the same in every space. [`Space::fork`] makes another one with the same contents (`fork`).
//!
//! # Contract
//!
//! - Errors are those Linux' calls give, in the same order of checks.
//! - Addresses are the program's; no operation touches anything above [`USER_END`], whatever it is asked.
//! - A space locks inside. The lock is not held while a file is asked for a page or given one back, for that may
//!   block; so [`Space::fault`], [`Space::sync`] and [`Space::unmap`] may block, in thread context only.
//! - Pages of files on the initial RAM disk are mapped in place; nothing is copied before it is written.
//! - The kernel never makes a page that is writable and executable; a program that asks for one gets it.
//!
//! `docs/explanation/memory.md` tells how the parts work together.
#![no_std]
extern crate alloc;
#[cfg(test)]
extern crate std;

mod advise;
mod commit;
mod common_text;
mod fault;
mod fork;
mod growth;
mod layout;
mod maps;
mod mm_map;
mod pager;
mod place;
mod poke;
mod prot;
mod remap;
mod shared;
mod space;
mod text;
mod traced;
mod vma;

pub use advise::Advice;
pub use commit::{OVERCOMMIT, commitment, overcommit_limits, set_overcommit_kbytes, set_overcommit_ratio};
pub use common_text::release_common_text;
pub use growth::{has_grown, tell_when_grown};
pub use layout::Layout;
pub use maps::{FlagNames, Listed, Referenced, Residence, Usage};
pub use mm_map::{MmMap, is_place};
pub use pager::root;
pub use place::Place;
pub use prot::Prot;
pub use remap::Remap;
pub use space::{Limits, Request, Space, active, current, deactivate, expect_several};
pub use text::{CallEntry, Text, set_call_entry};
pub use vma::{MappedFile, MemoryPolicy, max_mappings, set_max_mappings};

pub use api_plat::USER_END;

const PAGE: u64 = abi::PAGE_SIZE as u64;

#[cfg(test)]
mod tests;
