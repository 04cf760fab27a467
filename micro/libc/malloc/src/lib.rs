// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A program's `malloc`, made of a heap of `micro/alloc`.
//!
//! The heaps of the kernel keep one contract (`api-alloc`). C wants more of an allocator than they have: `free` is not told
//! a block's size, blocks of a megabyte should go back when they are freed, threads allocate at once, and a process forks
//! while they do. That is what this crate adds.
//!
//! | module | what |
//! | --- | --- |
//! | [`blocks`] | blocks with a header before each, in a heap or in pages of their own |
//! | `system` | pages, the lock, fork and errno, by functions that every C library of Linux has |
//! | `functions` | malloc(3), posix_memalign(3), malloc_usable_size(3) and the others |
//! | `report` | the sentence that a program ends with when it has misused its memory |
//!
//! The command builds it twice (`host/static`): with the feature `linked` as an object that takes the place of musl's
//! malloc in a program that is linked with the kernel (`--set alloc.program=NAME`), and with `preload` as a shared library
//! for the loader of an unmodified program, of either C library (`--malloc NAME`). It calls no kernel by itself.
#![cfg_attr(not(test), no_std)]

pub mod blocks;
#[cfg(any(feature = "linked", feature = "preload"))]
mod functions;
#[cfg(any(feature = "linked", feature = "preload"))]
mod report;
#[cfg(any(feature = "linked", feature = "preload"))]
mod system;
