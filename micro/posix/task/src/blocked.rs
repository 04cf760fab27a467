// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The system call that a thread is in, as /proc/PID/syscall shows it (proc_pid_syscall(5)).

use crate::Task;
use api_plat::TrapFrame;
use core::mem::size_of;
use sched::Thread;

/// Where a thread that waits in the kernel came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Blocked {
    /// `None` when it came by an exception or an interrupt.
    pub call: Option<(u64, [u64; 6])>,
    pub stack_pointer: u64,
    pub instruction: u64,
}

impl Task {
    /// `None` for another thread that has a processor, or waits for one.
    pub fn blocked(&self) -> Option<Blocked> {
        let is_running = self.tid == crate::current().tid;
        // One that was just made waits to begin, and has been nowhere.
        let waits = |thread: &Thread| thread.is_parked() && thread.switches() != (0, 0);
        let thread = self.thread().filter(|thread| thread.runs_program() && (is_running || waits(thread)))?;
        let frame = (thread.stack_top() - size_of::<TrapFrame>() as u64) as *const TrapFrame;
        // SAFETY: the TrapFrame of a program thread that is in the kernel lies at the top of its stack, which lives as long as the
        // thread. The thread leaves the kernel only with the kernel's lock, which the caller has.
        let frame = unsafe { *frame };
        let arguments = [frame.rdi, frame.rsi, frame.rdx, frame.r10, frame.r8, frame.r9];
        Some(Blocked {
            call: (frame.orig_rax != u64::MAX).then_some((frame.orig_rax, arguments)),
            stack_pointer: frame.rsp,
            instruction: frame.rip,
        })
    }
}
