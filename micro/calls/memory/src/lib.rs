// SPDX-License-Identifier: Apache-2.0 OR MIT
//! System calls on address spaces: mappings of the caller's, memory of other processes, policies of nodes.
#![no_std]
#![forbid(unsafe_code)]
extern crate alloc;

pub mod barriers;
pub mod memory;
pub mod numa;
pub mod process_memory;
