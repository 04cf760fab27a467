// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Pages as the host takes them: a piece of memory for each.

use abi::PAGE_SIZE;
use api_mem::Gather;
use plat_process::host::IoVec;

/// The pieces of `memory` behind its first `skip` bytes, as many as `to` has room for; how many.
pub fn pieces(memory: &Gather, skip: usize, to: &mut [IoVec]) -> usize {
    let (mut at, end) = (memory.offset + skip, memory.offset + memory.length);
    let mut count = 0;
    while at < end && count < to.len() {
        let Some(frame) = memory.frames.get(at / PAGE_SIZE) else { break };
        let (start, length) = (at % PAGE_SIZE, (PAGE_SIZE - at % PAGE_SIZE).min(end - at));
        // Inside the page.
        to[count] = IoVec { base: frame.bytes().wrapping_add(start), length };
        count += 1;
        at += length;
    }
    count
}
