// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Disks behind an NVM Express controller on PCI (*NVM Express Base Specification* 1.4, "NVMe" below), behind `api-blockdev`: what
//! most computers of this decade and Amazon's EC2 have.
//!
//! One admin queue, which is used while the controller starts and never again; then one pair of I/O queues for each namespace, whose
//! interrupt is a message (MSI-X) of its own. Where there is no message left, a timer looks for completions. Data goes from and to
//! the pages that the caller holds, by PRP entries; only a request whose memory does not begin at a multiple of four bytes, which
//! PRP entries cannot express, goes through pages of the driver's.
//!
//! Everything that a controller writes is untrusted. What its registers and Identify structures say is checked before it is
//! used (`identify.rs`, `controller.rs`); a completion names a command that is in flight on its queue, or ends the driver's work with this
//! controller. So do a fatal status (CSTS.CFS), a controller that is gone, and a request without an answer for [`disk::ANSWER_NS`]. It
//! is one line of the log, every request is answered by `EIO`, and the controller loses its way to memory.
//!
//! Invariants this crate owns: memory given to a controller lies in the kernel heap (physically contiguous, seen at `PHYS`), which is
//! never freed, or is pages whose handles are kept until their command was completed; those of a controller that broke the protocol are
//! kept for ever.
#![no_std]
extern crate alloc;
#[cfg(test)]
extern crate std;

mod command;
mod controller;
mod disk;
mod identify;
#[cfg(test)]
mod model;
mod pci;
mod queue;
mod register;
mod shared;

pub use pci::start;
