// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What this computer needs to have for process machines, and what of it is missing.

use crate::record::Network;
use std::fs;
use unilith_network::{passt, tap};

/// Addresses below this may be closed to programs; none of ours is loaded there (Debian's default is 65536).
const HIGHEST_CLOSED: u64 = 1 << 16;
/// `PR_SET_SYSCALL_USER_DISPATCH` and `PR_SYS_DISPATCH_OFF` (linux/prctl.h, Linux 5.11).
const SET_SYSCALL_USER_DISPATCH: i32 = 59;
const DISPATCH_OFF: libc::c_ulong = 0;
/// HWCAP2_FSGSBASE (asm/hwcap2.h): user space may write its segment bases.
const FSGSBASE: libc::c_ulong = 2;

/// Why process machines do not work here, one line each; none: they do.
pub fn lacks() -> Vec<String> {
    let mut lacks = Vec::new();
    let mut need = |there: bool, lack: &str| {
        if !there {
            lacks.push(lack.to_string());
        }
    };
    need(
        fs::exists("/proc/sys/kernel/seccomp/actions_avail").unwrap_or(false),
        "the host's kernel has no seccomp filters (CONFIG_SECCOMP_FILTER)",
    );
    // SAFETY: turns off for this thread what was never on; the other arguments must be 0 then.
    let dispatch = unsafe { libc::prctl(SET_SYSCALL_USER_DISPATCH, DISPATCH_OFF, 0, 0, 0) };
    need(dispatch == 0, "the host's kernel has no Syscall User Dispatch (Linux 5.11 and later have it)");
    // SAFETY: reads a number from the auxiliary vector.
    let features = unsafe { libc::getauxval(libc::AT_HWCAP2) };
    need(
        features & FSGSBASE != 0,
        "the host's kernel or processor has no FSGSBASE (Linux 5.9 and later allow it)",
    );
    let closed = fs::read_to_string("/proc/sys/vm/mmap_min_addr").ok().and_then(|t| t.trim().parse().ok());
    need(
        closed.is_none_or(|least: u64| least <= HIGHEST_CLOSED),
        "vm.mmap_min_addr is above 65536 (as root: sysctl vm.mmap_min_addr=65536)",
    );
    lacks
}

/// The first reason why a process machine with this network does not work here; `None`: it does.
pub fn lack_with(network: &Network) -> Option<String> {
    let link = || match network {
        Network::Tap | Network::None | Network::Interface { .. } => None,
        Network::Auto if tap::allowed().is_ok() => None,
        Network::Auto | Network::User => passt::works().err(),
    };
    lacks().into_iter().next().or_else(link)
}
