// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Names of signals.

use crate::arguments::number;
use task::signals::{SIGNALS, SIGRTMIN, name};

/// What C libraries call SIGRTMIN: two real-time signals of the kernel's are their own (signal(7)).
const RTMIN: i32 = SIGRTMIN + 2;

/// The signal that `text` names: a number, a name with or without SIG, RTMIN+n.
pub fn parse(text: &[u8]) -> Option<i32> {
    if let Some(number) = number(text) {
        return i32::try_from(number).ok().filter(|n| (1..=SIGNALS).contains(n));
    }
    let upper = text.to_ascii_uppercase();
    let short = upper.strip_prefix(b"SIG").unwrap_or(&upper);
    if let Some(offset) = short.strip_prefix(b"RTMIN") {
        let offset = if offset.is_empty() { Some(0) } else { number(offset.strip_prefix(b"+")?) };
        return i32::try_from(offset?).ok().map(|n| RTMIN.saturating_add(n)).filter(|n| *n <= SIGNALS);
    }
    (1..SIGRTMIN).find(|n| name(*n).as_bytes().strip_prefix(b"SIG") == Some(short))
}

/// The name without SIG.
pub fn short_name(signal: i32) -> &'static str {
    name(signal).trim_start_matches("SIG")
}

pub fn complete(prefix: &[u8], found: &mut dyn FnMut(&[u8])) {
    let upper = prefix.to_ascii_uppercase();
    for name in (1..SIGRTMIN).map(short_name).filter(|n| n.as_bytes().starts_with(&upper)) {
        found(name.as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_are_known_by_number_and_name() {
        for (text, signal) in [("1", 1), ("HUP", 1), ("sighup", 1), ("Term", 15), ("RTMIN+3", 37), ("64", 64)]
        {
            assert_eq!(parse(text.as_bytes()), Some(signal), "{text}");
        }
        for text in ["0", "65", "", "SIG", "nope", "RTMIN+40", "RTMIN3", "-1"] {
            assert_eq!(parse(text.as_bytes()), None, "{text}");
        }
    }
}
