// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The processor level of the program: 3, or 0 where the host asked for it with `unilith.ukl=` on the command line.

use std::{fs, io};

/// Flags of the kernel series (include/uapi/linux/personality.h). What this process starts runs in supervisor mode;
const UKL_CPL0: libc::c_ulong = 0x1000_0000;
/// and its system calls bypass the entry and exit code.
const UKL_BYP: libc::c_ulong = 0x2000_0000;

/// The flags the host asked for.
pub fn wanted() -> Result<libc::c_ulong, String> {
    let line = fs::read_to_string("/proc/cmdline").map_err(|e| format!("/proc/cmdline: {e}"))?;
    flags(&line)
}

fn flags(line: &str) -> Result<libc::c_ulong, String> {
    let words = line.split_whitespace().filter_map(|word| word.strip_prefix("unilith.ukl="));
    words.flat_map(|value| value.split(',')).try_fold(0, |flags, option| match option {
        "cpl0" => Ok(flags | UKL_CPL0),
        "byp" => Ok(flags | UKL_BYP),
        _ => Err(format!("unilith.ukl={option}: this init knows cpl0 and byp")),
    })
}

/// From the next exec on; this process stays what it is.
#[allow(unsafe_code, reason = "rustix has no personality(2)")]
pub fn set(flags: libc::c_ulong) -> Result<(), String> {
    // SAFETY: personality(2) takes no pointer and changes nothing of this program's memory.
    match unsafe { libc::personality(flags) } {
        -1 => Err(format!("supervisor mode for the program: {}", io::Error::last_os_error())),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ordinary_program_needs_no_word_on_the_command_line() {
        assert_eq!(flags("console=ttyS0 ukl=cpl0"), Ok(0));
        assert_eq!(flags("a unilith.ukl=cpl0,byp b"), Ok(UKL_CPL0 | UKL_BYP));
        assert!(flags("unilith.ukl=cpl0,fast").is_err());
    }
}
