// SPDX-License-Identifier: Apache-2.0 OR MIT
//! net.ipv4.ip_local_reserved_ports: ports that are chosen for no program, though a program may bind to them.

use abi::{Result, errno::*};
use alloc::vec::Vec;
use api_alloc::Reserve;
use core::fmt::Write;
use core::sync::atomic::{AtomicU64, Ordering};

const WORD: usize = u64::BITS as usize;

/// A bit for each port.
static RESERVED: [AtomicU64; (1 << 16) / WORD] = [const { AtomicU64::new(0) }; (1 << 16) / WORD];

pub fn is_reserved(port: u16) -> bool {
    let port = usize::from(port);
    RESERVED[port / WORD].load(Ordering::Relaxed) >> (port % WORD) & 1 == 1
}

/// Ranges with commas between them, and a line's end: `8080,9148-9150`.
pub fn show(out: &mut impl Write) -> core::fmt::Result {
    let mut port = 0;
    let mut is_first = true;
    while port <= u16::MAX.into() {
        if !is_reserved(port as u16) {
            port += 1;
            continue;
        }
        let first = port;
        while port < u16::MAX.into() && is_reserved(port as u16 + 1) {
            port += 1;
        }
        out.write_str(if is_first { "" } else { "," })?;
        is_first = false;
        match first == port {
            true => write!(out, "{first}")?,
            false => write!(out, "{first}-{port}")?,
        }
        port += 1;
    }
    out.write_str("\n")
}

/// Takes such a line in place of what was reserved; `EINVAL`, and nothing changes, for what is none.
pub fn store(line: &[u8]) -> Result<()> {
    let text = core::str::from_utf8(line)
        .map_err(|_| EINVAL)?
        .trim_matches(|c: char| c == '\0' || c.is_ascii_whitespace());
    let mut ranges: Vec<(u16, u16)> = Vec::new();
    for range in text.split(',').filter(|_| !text.is_empty()) {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let parse = |number: &str| number.parse::<u16>().map_err(|_| EINVAL);
        let range = (parse(first)?, parse(last)?);
        if range.0 > range.1 {
            return Err(EINVAL);
        }
        ranges.reserve_fallibly(1).map_err(|_| ENOMEM)?;
        ranges.push(range);
    }
    let port_bit = |port: usize| {
        ranges.iter().any(|(first, last)| (usize::from(*first)..=usize::from(*last)).contains(&port))
    };
    for (index, word) in RESERVED.iter().enumerate() {
        let bits = (0..WORD).filter(|bit| port_bit(index * WORD + bit)).fold(0, |bits, bit| bits | 1 << bit);
        word.store(bits, Ordering::Relaxed);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::String;

    fn shown() -> String {
        let mut out = String::new();
        show(&mut out).unwrap();
        out
    }

    #[test]
    fn ranges_are_reserved_and_shown_joined() {
        assert_eq!(shown(), "\n");
        assert_eq!(store(b"9148-9150,8080,9151,65535\n"), Ok(()));
        assert_eq!(shown(), "8080,9148-9151,65535\n");
        assert!(is_reserved(9149) && is_reserved(65_535) && !is_reserved(0) && !is_reserved(8081));
        for wrong in [&b"1-"[..], b"5-4", b"70000", b"a", b"1,,2", b"-3", b"1 2"] {
            assert_eq!(store(wrong), Err(EINVAL));
        }
        assert_eq!(shown(), "8080,9148-9151,65535\n");
        assert_eq!(store(b"\n"), Ok(()));
        assert_eq!(shown(), "\n");
    }
}
