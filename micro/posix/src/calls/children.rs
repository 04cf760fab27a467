// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Waiting for children: there are none, so the arguments are checked and the answer is ECHILD.

use crate::call::Call;
use abi::{Result, errno::*};

const WNOHANG: u32 = 1;
const WUNTRACED: u32 = 2;
const WEXITED: u32 = 4;
const WCONTINUED: u32 = 8;
const WNOWAIT: u32 = 0x0100_0000;
/// WNOTHREAD, WALL, WCLONE.
const THREADS: u32 = 0xe000_0000;

/// wait4(2).
pub fn wait4(call: &mut Call<'_>) -> Result<usize> {
    call.flags(2, WNOHANG | WUNTRACED | WCONTINUED | THREADS)?;
    // The negation of no group: Linux answers ESRCH.
    if call.int(0) == i32::MIN {
        return Err(ESRCH);
    }
    Err(ECHILD)
}

/// waitid(2).
pub fn waitid(call: &mut Call<'_>) -> Result<usize> {
    const P_ALL: u32 = 0;
    const P_PID: u32 = 1;
    const P_PGID: u32 = 2;
    const P_PIDFD: u32 = 3;
    let options = call.flags(3, WNOHANG | WNOWAIT | WEXITED | WUNTRACED | WCONTINUED | THREADS)?;
    if options & (WEXITED | WUNTRACED | WCONTINUED) == 0 {
        return Err(EINVAL);
    }
    match (call.uint(0), call.int(1)) {
        (P_ALL, _) | (P_PID, 1..) | (P_PGID, 0..) => Err(ECHILD),
        (P_PIDFD, 0..) => super::pidfd::process(call.int(1)).and(Err(ECHILD)),
        _ => Err(EINVAL),
    }
}
