// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Directories of the host: a client of 9P2000.L (the protocol of QEMU's `-virtfs`; messages as in
//! `Documentation/filesystems/9p` and diod's `protocol.md`).
//!
//! - The host may change files at any time. Where a server of ours tells of that ([`Changes`]), names and attributes are kept for as
//!   long as nothing is told (`known`); elsewhere they are asked for each time. Pages are kept of files that are mapped.
//! - Writes go to the host at once; fsync asks it to store them.
//! - Replies are not trusted: every length is checked, a reply that makes no sense is `EIO`.
//! - Requests wait for their answer inside ([`Transport::call`] may sleep): no lock is held over one. A handle that
//!   is dropped is given back to the host with the next request, for a drop may happen anywhere.
#![no_std]
#![forbid(unsafe_code)]
extern crate alloc;
#[cfg(test)]
extern crate std;

mod client;
mod file;
mod known;
mod nameless;
mod node;
mod pages;
mod wire;

pub use api_mem::{Gather, PageFrame};
pub use client::{Answered, Given, MAX_GIVEN, OpenAnswered, POSTED, Transport};
pub use known::{Changes, hear_of_changes};
pub use wire::gives;

use abi::{Result, errno::ENODEV};
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use api_fs::Inode;
use api_lock::SpinLock;
use client::{Client, Session};

/// Attaches to the export behind a transport; the root directory of the file system. `device` is its `st_dev`.
pub fn attach(transport: Arc<dyn Transport>, device: u64) -> Result<Arc<dyn Inode>> {
    node::root(&Client::new(Session::begin(transport)?, device), b"")
}

/// Sessions with servers of many trees, by mount tag.
static SESSIONS: SpinLock<Vec<(String, Arc<Session>)>> = SpinLock::new(Vec::new());

/// Attaches to one of the trees that the server behind a mount tag has. All of them are reached in one session, for a new one would
/// close what is open: callers see to it that nobody else calls this meanwhile. `ENODEV`: there is no such tag.
pub fn attach_tree(tag: &str, tree: &[u8], device: u64) -> Result<Arc<dyn Inode>> {
    let known = |tag: &str| SESSIONS.lock().iter().find(|(known, _)| known == tag).map(|(_, s)| s.clone());
    let session = match known(tag) {
        Some(session) => session,
        None => {
            let session = Session::begin(find(tag).ok_or(ENODEV)?)?;
            SESSIONS.lock().push((tag.into(), session.clone()));
            session
        }
    };
    node::root(&Client::new(session, device), tree)
}

/// The exports the machine was given, by mount tag.
static EXPORTS: SpinLock<Vec<(String, Arc<dyn Transport>)>> = SpinLock::new(Vec::new());

/// Makes an export known; the kernel image does so for each channel to the host it finds.
pub fn register(tag: &str, transport: Arc<dyn Transport>) {
    EXPORTS.lock().push((tag.into(), transport));
}

/// Who registers exports only when one is looked for.
static LATER: SpinLock<Option<fn()>> = SpinLock::new(None);

/// `registers` is called when somebody looks for an export that is not known, and registers none twice: a device that tells its tag only
/// when it is started need not be started before. It does not wait.
pub fn register_later(registers: fn()) {
    *LATER.lock() = Some(registers);
}

/// The export with this mount tag.
pub fn find(tag: &str) -> Option<Arc<dyn Transport>> {
    let known =
        || EXPORTS.lock().iter().find(|(known, _)| known == tag).map(|(_, transport)| transport.clone());
    known().or_else(|| {
        // Held meanwhile: whoever else looks for one finds it afterwards.
        if let Some(registers) = &mut *LATER.lock() {
            registers();
        }
        known()
    })
}

#[cfg(test)]
mod known_tests;
#[cfg(test)]
mod server;
#[cfg(test)]
mod tests;
