// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The processor level of the program: 3, or 0 where the host asked for it with `unilith.ukl=` on the command line.

use std::{fs, io};

/// Options by name, and the flags of personality(2) that the kernel series has for them
/// (include/uapi/linux/personality.h, arch/x86/include/uapi/asm/ukl.h).
const OPTIONS: [(&str, libc::c_ulong); 6] = [
    ("cpl0", 0x1000_0000),
    ("byp", 0x2000_0000),
    ("ret", 0x100),
    ("call", 0x200),
    ("shortcut", 0x400),
    ("rtc", 0x800),
];

/// The flags the host asked for.
pub fn wanted() -> Result<libc::c_ulong, String> {
    let line = fs::read_to_string("/proc/cmdline").map_err(|e| format!("/proc/cmdline: {e}"))?;
    flags(&line)
}

fn flags(line: &str) -> Result<libc::c_ulong, String> {
    let words = line.split_whitespace().filter_map(|word| word.strip_prefix("unilith.ukl="));
    words.flat_map(|value| value.split(',')).try_fold(0, |flags, option| {
        let known = OPTIONS.iter().find(|(name, _)| *name == option);
        known.map(|(_, flag)| flags | flag).ok_or(format!("unilith.ukl={option}: this init does not know it"))
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
        assert_eq!(flags("a unilith.ukl=cpl0,byp b"), Ok(0x3000_0000));
        assert_eq!(flags("unilith.ukl=cpl0,byp,call,ret,rtc,shortcut"), Ok(0x3000_0f00));
        assert!(flags("unilith.ukl=cpl0,fast").is_err());
    }
}
