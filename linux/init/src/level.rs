// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The processor level of the program: 3, or 0 where the kernel was booted with `ukl=cpl0`.

use std::{fs, io};

/// UKL_CPL0 of the kernel series (include/uapi/linux/personality.h): what this process starts runs in supervisor mode.
const UKL_CPL0: libc::c_ulong = 0x1000_0000;

/// Did the host ask for it?
pub fn supervisor_mode_wanted() -> bool {
    // Unreadable: an ordinary program is never wrong.
    fs::read_to_string("/proc/cmdline")
        .is_ok_and(|line| line.split_whitespace().any(|word| word == "ukl=cpl0"))
}

/// From the next exec on; this process stays what it is.
#[allow(unsafe_code, reason = "rustix has no personality(2)")]
pub fn set_supervisor_mode() -> Result<(), String> {
    // SAFETY: personality(2) takes no pointer and changes nothing of this program's memory.
    match unsafe { libc::personality(UKL_CPL0) } {
        -1 => Err(format!("supervisor mode for the program: {}", io::Error::last_os_error())),
        _ => Ok(()),
    }
}
