// SPDX-License-Identifier: Apache-2.0 OR MIT
//! arch_prctl(2) for x86-64.

use abi::{Result, errno::*};
use api_user::USER_END;
use task::call::Call;

const ARCH_SET_GS: i32 = 0x1001;
const ARCH_SET_FS: i32 = 0x1002;
const ARCH_GET_FS: i32 = 0x1003;
const ARCH_GET_GS: i32 = 0x1004;
const ARCH_GET_CPUID: i32 = 0x1011;
const ARCH_SET_CPUID: i32 = 0x1012;
const ARCH_GET_XCOMP_SUPP: i32 = 0x1021;
const ARCH_GET_XCOMP_PERM: i32 = 0x1022;
const ARCH_REQ_XCOMP_PERM: i32 = 0x1023;
const ARCH_GET_XCOMP_GUEST_PERM: i32 = 0x1024;
const ARCH_REQ_XCOMP_GUEST_PERM: i32 = 0x1025;

/// arch_prctl(2).
pub fn arch_prctl(call: &mut Call<'_>) -> Result<usize> {
    let value = call.arg(1);
    match call.int(0) {
        ARCH_SET_FS if value >= USER_END => Err(EPERM),
        ARCH_SET_FS => {
            // SAFETY: the stack is the running thread's own, as it was before.
            unsafe { api_plat::activate(sched::current().stack_top(), value) };
            Ok(0)
        }
        ARCH_GET_FS => call.ptr(1).write(api_plat::fs_base()).map(|()| 0),
        ARCH_SET_GS => {
            log::warn!("arch_prctl(ARCH_SET_GS) refused: the GS base belongs to the kernel");
            Err(EPERM)
        }
        ARCH_GET_GS => call.ptr(1).write(0u64).map(|()| 0),
        // CPUID cannot be made to trap.
        ARCH_GET_CPUID => Ok(1),
        ARCH_SET_CPUID => Err(ENODEV),
        ARCH_GET_XCOMP_SUPP | ARCH_GET_XCOMP_PERM | ARCH_GET_XCOMP_GUEST_PERM => {
            call.ptr(1).write(task::signals::fpu::features()).map(|()| 0)
        }
        ARCH_REQ_XCOMP_PERM | ARCH_REQ_XCOMP_GUEST_PERM => Err(EOPNOTSUPP),
        // Shadow stacks and everything later: what a kernel without them answers.
        _ => Err(EINVAL),
    }
}
