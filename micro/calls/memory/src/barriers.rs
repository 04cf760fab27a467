// SPDX-License-Identifier: Apache-2.0 OR MIT
//! membarrier(2).

use abi::{Result, errno::*};
use task::call::Call;

const QUERY: i32 = 0;
const GLOBAL: i32 = 1;
const EXPEDITED: i32 = 1 << 1 | 1 << 2 | 1 << 3 | 1 << 4;
const SYNC_CORE: i32 = 1 << 5 | 1 << 6;
const RSEQ: i32 = 1 << 7 | 1 << 8;
const KNOWN: i32 = GLOBAL | EXPEDITED | SYNC_CORE | RSEQ;
const PRIVATE: i32 = 1 << 3 | 1 << 5 | 1 << 7;
const REGISTRATIONS: i32 = 1 << 2 | 1 << 4 | 1 << 6 | 1 << 8;
/// MEMBARRIER_CMD_FLAG_CPU: the third argument names the only processor that matters.
const FLAG_CPU: u32 = 1;

/// membarrier(2). A switch between threads orders memory, so with one processor every barrier has happened already.
pub fn membarrier(call: &mut Call<'_>) -> Result<usize> {
    let (command, flags) = (call.int(0), call.uint(1));
    let is_rseq = command == RSEQ & PRIVATE;
    if flags & !(if is_rseq { FLAG_CPU } else { 0 }) != 0 {
        return Err(EINVAL);
    }
    match command {
        QUERY => Ok(KNOWN as usize),
        command if command.count_ones() == 1 && command & KNOWN != 0 => {
            let process = &task::current().process;
            if command & REGISTRATIONS != 0 {
                process.settings.lock().register_barriers(command as u32);
                return Ok(0);
            }
            // A private one's registration is the bit above it.
            if command & PRIVATE != 0 && !process.settings.lock().has_barriers((command as u32) << 1) {
                return Err(EPERM);
            }
            if is_rseq {
                interrupt_sequences();
            }
            api_plat::barrier(command & SYNC_CORE != 0);
            Ok(0)
        }
        _ => Err(EINVAL),
    }
}

/// No other thread of the process is in the restartable sequence that it was in (rseq(2)) once the barrier behind this is passed: those
/// that run elsewhere are asked into the kernel before they pass it. Which processor was named makes no difference: a sequence
/// may begin anew at any time.
fn interrupt_sequences() {
    if api_plat::cpus() == 1 {
        return;
    }
    let own = task::current();
    for other in own.process.tasks().filter(|other| other.tid != own.tid && other.rseq.area() != 0) {
        other.rseq.interrupt();
        if let Some(thread) = other.thread() {
            thread.interrupt();
        }
    }
}
