// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The program's memory.

use api_plat::{Access, FaultOutcome};

/// A page fault in the program's half.
pub fn page_fault(address: u64, access: Access) -> FaultOutcome {
    mem::current().fault(address, access)
}
