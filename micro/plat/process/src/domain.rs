// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Protection domains of overlay programs: there are none yet. With keys of the host's (pkey_mprotect, WRPKRU) these
//! functions are what it takes, and the way out in `LEAVE_TO_OVERLAY`.

use abi::{Result, errno::EOPNOTSUPP};
use api_plat::domain::Means;

#[unsafe(no_mangle)]
fn unilith_plat_domain_prepare() -> Result<Means> {
    Err(EOPNOTSUPP)
}

#[unsafe(no_mangle)]
fn unilith_plat_domain_give(_: u64, _: u64) {}
