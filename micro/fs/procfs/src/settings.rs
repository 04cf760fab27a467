// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Settings of the kernel that programs read and the superuser writes below /proc/sys (proc_sys(5)): whole numbers with
//! bounds, read where the kernel goes by them.

use abi::{Result, errno::*};
use alloc::string::ToString;
use alloc::vec::Vec;

pub use abi::setting::Setting;

/// The file's text: its numbers, with tabs between them.
pub fn show(settings: &[Setting]) -> Result<Vec<u8>> {
    let mut out = Vec::new();
    for setting in settings {
        if !out.is_empty() {
            out.push(b'\t');
        }
        out.extend_from_slice(setting.get().to_string().as_bytes());
    }
    out.push(b'\n');
    Ok(out)
}

/// Takes numbers in decimal for as many of the settings as were written; `EINVAL`, and nothing changes, for anything else
/// or a number out of bounds.
pub fn store(settings: &[Setting], bytes: &[u8]) -> Result<()> {
    let text = core::str::from_utf8(bytes).map_err(|_| EINVAL)?;
    let words = || settings.iter().zip(text.trim_end_matches('\0').split_ascii_whitespace());
    let parse = |setting: &Setting, word: &str| {
        word.parse::<u64>().ok().filter(|value| setting.allows(*value)).ok_or(EINVAL)
    };
    if words().next().is_none() {
        return Err(EINVAL);
    }
    words().try_for_each(|(setting, word)| parse(setting, word).map(|_| ()))?;
    words().try_for_each(|(setting, word)| {
        setting.set(parse(setting, word)?);
        Ok(())
    })
}

/// As [`store`] of a range, the first of whose numbers must not be above the second.
pub fn store_range(settings: &[Setting; 2], bytes: &[u8]) -> Result<()> {
    let before = [settings[0].get(), settings[1].get()];
    store(settings, bytes)?;
    if settings[0].get() > settings[1].get() {
        settings[0].set(before[0]);
        settings[1].set(before[1]);
        return Err(EINVAL);
    }
    Ok(())
}

/// The entry of /proc/sys for an array of settings.
#[macro_export]
macro_rules! settings_entry {
    ($settings:expr) => {
        $crate::Entry::File {
            text: |_| $crate::settings::show(&$settings),
            store: |_, bytes| $crate::settings::store(&$settings, bytes),
            permissions: 0o644,
        }
    };
}
pub use settings_entry as entry;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_out_of_bounds_change_nothing() {
        let both = [Setting::new(1, 0, 9), Setting::new(20, 0, 99)];
        assert_eq!(show(&both).as_deref(), Ok(&b"1\t20\n"[..]));
        assert_eq!(store(&both, b"5 100\n"), Err(EINVAL));
        assert_eq!(store(&both, b"5 -1"), Err(EINVAL));
        assert_eq!(store(&both, b"five"), Err(EINVAL));
        assert_eq!(store(&both, b" \n"), Err(EINVAL));
        assert_eq!((both[0].get(), both[1].get()), (1, 20));
        assert_eq!(store(&both, b"5\n"), Ok(()));
        assert_eq!(store(&both, b"6\t7"), Ok(()));
        assert_eq!(store_range(&both, b"8"), Err(EINVAL));
        assert_eq!(store_range(&both, b"6 5"), Err(EINVAL));
        assert_eq!((both[0].get(), both[1].get()), (6, 7));
    }
}
