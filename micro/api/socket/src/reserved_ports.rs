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
    let mut reserved: Vec<u64> = Vec::new();
    reserved.reserve_exact_fallibly(RESERVED.len()).map_err(|_| ENOMEM)?;
    reserved.resize(RESERVED.len(), 0);
    for range in text.split(',').filter(|_| !text.is_empty()) {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let parse = |number: &str| number.parse::<u16>().map(usize::from).map_err(|_| EINVAL);
        let (first, last) = (parse(first)?, parse(last)?);
        if first > last {
            return Err(EINVAL);
        }
        for (word, bits) in reserved.iter_mut().enumerate().take(last / WORD + 1).skip(first / WORD) {
            let from = first.saturating_sub(word * WORD);
            let to = (last - word * WORD).min(WORD - 1);
            *bits |= u64::MAX << from & u64::MAX >> (WORD - 1 - to);
        }
    }
    for (word, bits) in RESERVED.iter().zip(reserved) {
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
