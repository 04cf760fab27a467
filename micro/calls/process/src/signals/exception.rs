// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Exceptions of the program become signals, with the codes of Linux' `arch/x86/kernel/traps.c` and `mm/fault.c`.

use crate::ptrace;
use api_plat::{Exception, FaultOutcome, TrapFrame};
use task::Task;
use task::signals::{self, SI_KERNEL, SigInfo, Trap, fpu, *};

const TRAP_TRACE: i32 = 2;
const FPE_INTDIV: i32 = 1;
const ILL_ILLOPN: i32 = 2;
const BUS_ADRALN: i32 = 1;
const BUS_ADRERR: i32 = 2;
const SEGV_MAPERR: i32 = 1;
const SEGV_ACCERR: i32 = 2;
/// The page-fault error code's bit for user mode: the program runs privileged, but expects to see it.
const FROM_USER: u64 = 4;

/// An exception of the program becomes a signal; the caller delivers it.
pub fn exception(frame: &mut TrapFrame, exception: Exception) {
    let task = task::current();
    let is_page_fault = exception.vector == 14;
    *task.signals.trap.lock() = Trap {
        vector: u64::from(exception.vector),
        error: exception.error | if is_page_fault { FROM_USER } else { 0 },
        address: exception.address,
    };
    const DEBUG: u8 = 1;
    if exception.vector == DEBUG && !ptrace::stop::stepped(&task, frame) {
        return;
    }
    if exception.fault == Some(FaultOutcome::OutOfMemory) {
        // The process is to end, or memory may have come meanwhile and the instruction is tried again.
        return;
    }
    if let Some(info) = signal_of(&exception, frame.rip, || floating_point_code(&task, &exception)) {
        signals::force(&task, info);
    }
}

/// `None` when there is nothing to tell the program: it goes on.
fn signal_of(
    exception: &Exception,
    rip: u64,
    floating_point_code: impl FnOnce() -> Option<i32>,
) -> Option<SigInfo> {
    let kernel = |signal| SigInfo::fault(signal, SI_KERNEL, 0);
    Some(match exception.vector {
        0 => SigInfo::fault(SIGFPE, FPE_INTDIV, rip),
        1 => SigInfo::fault(SIGTRAP, TRAP_TRACE, rip),
        3 => kernel(SIGTRAP),
        6 => SigInfo::fault(SIGILL, ILL_ILLOPN, rip),
        11 | 12 => kernel(SIGBUS),
        14 => match exception.fault {
            Some(FaultOutcome::Resolved) => return None,
            Some(FaultOutcome::Bus) => SigInfo::fault(SIGBUS, BUS_ADRERR, exception.address),
            Some(FaultOutcome::Segv { mapped: true }) => {
                SigInfo::fault(SIGSEGV, SEGV_ACCERR, exception.address)
            }
            _ => SigInfo::fault(SIGSEGV, SEGV_MAPERR, exception.address),
        },
        16 | 19 => SigInfo::fault(SIGFPE, floating_point_code()?, rip),
        17 => SigInfo::fault(SIGBUS, BUS_ADRALN, 0),
        // Bounds, overflow, segment and general protection faults.
        _ => kernel(SIGSEGV),
    })
}

fn floating_point_code(task: &Task, exception: &Exception) -> Option<i32> {
    let taken = task.signals.scratch.lock().take();
    let mut state = match taken {
        Some(state) => state,
        None => api_plat::new_fpu_state().ok()?,
    };
    api_plat::save_fpu(&mut state);
    let code = fpu::exception_code(state.bytes(), exception.vector);
    *task.signals.scratch.lock() = Some(state);
    code
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(vector: u8, fault: Option<FaultOutcome>) -> (i32, i32, u64) {
        let exception = Exception { vector, error: 0, address: 0xdead, fault };
        let info = signal_of(&exception, 0x1000, || Some(3)).unwrap();
        (info.signal(), info.code(), info.address())
    }

    #[test]
    fn page_faults_tell_missing_forbidden_and_broken_pages_apart() {
        assert_eq!(of(14, Some(FaultOutcome::Segv { mapped: false })), (SIGSEGV, SEGV_MAPERR, 0xdead));
        assert_eq!(of(14, Some(FaultOutcome::Segv { mapped: true })), (SIGSEGV, SEGV_ACCERR, 0xdead));
        assert_eq!(of(14, Some(FaultOutcome::Bus)), (SIGBUS, BUS_ADRERR, 0xdead));
    }

    #[test]
    fn other_exceptions_have_the_codes_of_linux() {
        assert_eq!(of(0, None), (SIGFPE, FPE_INTDIV, 0x1000));
        assert_eq!(of(3, None), (SIGTRAP, SI_KERNEL, 0));
        assert_eq!(of(6, None), (SIGILL, ILL_ILLOPN, 0x1000));
        assert_eq!(of(13, None), (SIGSEGV, SI_KERNEL, 0));
        assert_eq!(of(19, None), (SIGFPE, 3, 0x1000));
    }
}
