// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Keys and keyrings (keyrings(7)), of all processes in one table.
//!
//! A key is named by its serial number and lives while somebody holds it: a keyring that links to it, or credentials ([`Held`]). The table
//! knows who refers to whom by number and frees keys in a loop, so that a chain of keyrings of any length goes without recursion.
//!
//! No key is ever under construction: there is no upcall (`/sbin/request-key`), so a key is instantiated, or negative, from its beginning.
//! Nothing here waits, and nothing may drop a [`Held`] while it has the table.
#![no_std]
#![forbid(unsafe_code)]
extern crate alloc;

mod expiry;
mod held;
mod key;
mod keyrings;
mod listing;
mod quota;
mod search;
mod table;
#[cfg(test)]
mod tests;

pub use held::{Held, Keyrings};
pub use key::{Key, Kind, Need, Ref, Serial, Who, permission};
pub use keyrings::{MAX_SERIALS_READ, Move};
pub use listing::list_accounts;
pub use quota::{MAX_BYTES, MAX_KEYS, Quota, ROOT_MAX_BYTES, ROOT_MAX_KEYS};
pub use table::{NewKey, Table, UserKeyrings};

use abi::setting::Setting;
use api_lock::{Guard, SpinLock};

/// kernel.keys.gc_delay: seconds for which a key that was revoked or has expired still says so.
pub static GC_DELAY: [Setting; 1] = [Setting::new(300, 0, i32::MAX as u64)];
/// kernel.keys.persistent_keyring_expiry: seconds that a persistent keyring lasts from its last use on.
pub static PERSISTENT_EXPIRY: [Setting; 1] = [Setting::new(3 * 24 * 3600, 0, i32::MAX as u64)];
/// Seconds that the negative key of a failed request lasts (Linux' `key_negative_timeout`).
pub const NEGATIVE_SECONDS: u64 = 60;

static TABLE: SpinLock<Table> = SpinLock::new(Table::new());

/// The table. What is long dead is out of it.
pub fn table() -> Guard<'static, Table> {
    let mut table = TABLE.lock();
    table.collect(now());
    table
}

/// Seconds of the wall clock, by which keys expire.
#[cfg(not(test))]
pub fn now() -> u64 {
    api_plat::wall_ns().wrapping_add(api_plat::now_ns()) / 1_000_000_000
}

/// What serial numbers begin with.
#[cfg(not(test))]
fn seed() -> u64 {
    let mut seed = [0; 8];
    api_plat::entropy(&mut seed);
    u64::from_ne_bytes(seed)
}

// Tests on the host have no platform.
#[cfg(test)]
pub fn now() -> u64 {
    1_000_000
}

#[cfg(test)]
fn seed() -> u64 {
    1
}

/// A user namespace is gone, and with it the keyrings of users that were made in it.
pub fn namespace_ends(number: u64) {
    TABLE.lock().namespace_ends(number);
}
