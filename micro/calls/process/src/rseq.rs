// SPDX-License-Identifier: Apache-2.0 OR MIT
//! rseq(2): a thread's sequences of instructions that begin anew when something comes between them.
//!
//! The program names a sequence in its area (`rseq_cs`); a thread that is in it when it lost the processor, took a signal or was
//! asked to by membarrier(2) goes on at the sequence's abort address. The area also tells which processor the thread is on, so the C library's
//! sched_getcpu(3) is a load. Calls that wait cost nothing: a sequence makes no calls, so nothing is looked at when a thread comes back
//! from one on the same processor.

use abi::{Result, errno::*};
use api_plat::TrapFrame;
use api_user::{USER_END, UserPtr, range_is_user};
use task::Task;
use task::call::Call;
use task::signals;

/// `struct rseq` of Linux 6.1 (those who know more members ask for AT_RSEQ_FEATURE_SIZE first).
const AREA_BYTES: u32 = 32;
const CPU_ID_START: u64 = 0;
const CPU_ID: u64 = 4;
const SEQUENCE: u64 = 8;
const FLAGS: u64 = 16;
/// RSEQ_FLAG_UNREGISTER
const UNREGISTER: u32 = 1;
/// RSEQ_CPU_ID_UNINITIALIZED
const UNINITIALIZED: u32 = u32::MAX;

/// rseq(2).
pub fn rseq(call: &mut Call<'_>) -> Result<usize> {
    let (area, length, flags, signature) = (call.arg(0), call.uint(1), call.uint(2), call.uint(3));
    let own = &task::current().rseq;
    let registered = own.area();
    if flags & UNREGISTER != 0 {
        if flags != UNREGISTER || registered == 0 || registered != area || length != AREA_BYTES {
            return Err(EINVAL);
        }
        if own.signature() != signature {
            return Err(EPERM);
        }
        UserPtr::<[u32; 2]>::new(area + CPU_ID_START).write([0, UNINITIALIZED])?;
        own.register(0, 0);
        return Ok(0);
    }
    if flags != 0 || registered != 0 && (registered != area || length != AREA_BYTES) {
        return Err(EINVAL);
    }
    if registered != 0 {
        return Err(if own.signature() == signature { EBUSY } else { EPERM });
    }
    if !area.is_multiple_of(AREA_BYTES.into()) || length != AREA_BYTES {
        return Err(EINVAL);
    }
    if !range_is_user(area, length.into()) {
        return Err(EFAULT);
    }
    own.register(area, signature);
    Ok(0)
}

/// The thread is about to go back to the program, or into a handler, after it was interrupted: it leaves the sequence that it is in,
/// and its area names its processor. A program whose area makes no sense gets SIGSEGV.
#[cold]
pub fn goes_back(task: &Task, registers: &mut TrapFrame) {
    let area = task.rseq.area();
    if area == 0 {
        return;
    }
    // Before the area is read: a page of it that is not there yet would forget the interrupt.
    let is_interrupted = task.rseq.take_interrupt();
    if leave_sequence(task, area, registers, is_interrupted).and_then(|()| tell_cpu(task, area)).is_err() {
        signals::force_bad_frame(task, 0);
    }
}

fn tell_cpu(task: &Task, area: u64) -> Result<()> {
    match task.rseq.new_cpu() {
        Some(cpu) => {
            UserPtr::<u32>::new(area + CPU_ID_START).write(cpu)?;
            UserPtr::<u32>::new(area + CPU_ID).write(cpu)
        }
        None => Ok(()),
    }
}

/// The order of checks is Linux' (`kernel/rseq.c`): what does not concern the place where the thread is still has to make sense.
fn leave_sequence(task: &Task, area: u64, registers: &mut TrapFrame, is_interrupted: bool) -> Result<()> {
    let pointer = UserPtr::<u64>::new(area + SEQUENCE);
    let sequence = pointer.read()?;
    if sequence == 0 {
        return Ok(());
    }
    if sequence >= USER_END {
        return Err(EINVAL);
    }
    // `struct rseq_cs`: version and flags, start_ip, post_commit_offset, abort_ip.
    let [head, start, length, abort]: [u64; 4] = UserPtr::new(sequence).read()?;
    let (version, flags) = (head as u32, (head >> 32) as u32);
    let end = start.checked_add(length).ok_or(EINVAL)?;
    let is_inside = |address: u64| address.wrapping_sub(start) < length;
    if start >= USER_END || end >= USER_END || abort >= USER_END || version > 0 || is_inside(abort) {
        return Err(EINVAL);
    }
    if UserPtr::<u32>::new(abort.wrapping_sub(4)).read()? != task.rseq.signature() {
        return Err(EINVAL);
    }
    // A call that was made a jump may have taken instructions of the sequence behind it along.
    let here = task.process.space().map_or(registers.rip, |space| space.original_address(registers.rip));
    if !is_inside(here) {
        return pointer.write(0);
    }
    if flags != 0 || UserPtr::<u32>::new(area + FLAGS).read()? != 0 {
        return Err(EINVAL);
    }
    if is_interrupted {
        pointer.write(0)?;
        registers.rip = abort;
    }
    Ok(())
}
