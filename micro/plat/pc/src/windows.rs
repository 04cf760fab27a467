// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Where virtio-mmio devices are. Virtual machine monitors append `virtio_mmio.device=SIZE@BASE:LINE` words (Linux
//! Documentation/admin-guide/kernel-parameters.txt) to the command line; QEMU's microvm does so unless
//! `auto-kernel-cmdline=off`, and its windows are then looked for where it has them.

use alloc::vec::Vec;

/// A global system interrupt: an input of the I/O APICs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Line(pub u8);

/// A window that may hold a virtio-mmio device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VirtioWindow {
    pub base: u64,
    pub line: Line,
}

/// What is known of the windows.
pub enum Windows {
    /// The monitor named them; some may be empty.
    Told(Vec<VirtioWindow>),
    /// Where QEMU's microvm has them. It fills them from the last one on.
    Guessed(Vec<VirtioWindow>),
    /// The machine has PCI instead.
    None,
}

/// QEMU's microvm: windows of 512 bytes, and the input of the I/O APIC that belongs to the first. Two I/O APICs (the
/// default) have 24 windows, one has 8.
const MICROVM: u64 = 0xfeb0_0000;
const MICROVM_SIZE: u64 = 512;

/// Where microvm would have its windows.
pub fn microvm(second_io_apic: bool) -> impl Iterator<Item = VirtioWindow> {
    let (first, count) = if second_io_apic { (24, 24) } else { (16, 8) };
    (0..count)
        .map(move |i| VirtioWindow { base: MICROVM + u64::from(i) * MICROVM_SIZE, line: Line(first + i) })
}

const WORD: &str = "virtio_mmio.device=";

/// Cuts the words of the monitor off the end of the command line, which otherwise ends with the program's arguments.
pub fn split(line: &str) -> (&str, &str) {
    let mut rest = line.trim_end();
    loop {
        let start = rest.rfind(' ').map_or(0, |i| i + 1);
        if !rest[start..].starts_with(WORD) {
            return (rest, &line[rest.len()..]);
        }
        rest = rest[..start].trim_end();
    }
}

/// The windows that words name; words that are not understood are left out.
pub fn parse(words: &str) -> impl Iterator<Item = VirtioWindow> {
    words.split_ascii_whitespace().filter_map(|word| {
        let (_, place) = word.strip_prefix(WORD)?.split_once('@')?;
        let mut parts = place.split(':');
        let base = number(parts.next()?)?;
        let line = u8::try_from(number(parts.next()?)?).ok()?;
        Some(VirtioWindow { base, line: Line(line) })
    })
}

fn number(text: &str) -> Option<u64> {
    match text.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16).ok(),
        None => text.parse().ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_the_monitor_do_not_reach_the_program() {
        let line =
            "cwd=/ -- /bin/x a  virtio_mmio.device=512@0xfeb00e00:12 virtio_mmio.device=4K@0xd0000000:5";
        let (ours, words) = split(line);
        assert_eq!(ours, "cwd=/ -- /bin/x a");
        let windows: Vec<_> = parse(words).collect();
        assert_eq!(windows[0], VirtioWindow { base: 0xfeb0_0e00, line: Line(12) });
        assert_eq!(windows[1], VirtioWindow { base: 0xd000_0000, line: Line(5) });
        assert_eq!(split("-- /bin/x"), ("-- /bin/x", ""));
        assert_eq!(split("virtio_mmio.device=4K@0x1000:5").0, "");
        assert_eq!(split(""), ("", ""));
    }

    #[test]
    fn words_that_make_no_sense_are_left_out() {
        let words = "virtio_mmio.device= virtio_mmio.device=4K@:5 virtio_mmio.device=4K@0x1000 \
                     virtio_mmio.device=4K@0x1000:256 virtio_mmio.device=4K@0x1000:1:7";
        assert_eq!(parse(words).collect::<Vec<_>>(), [VirtioWindow { base: 0x1000, line: Line(1) }]);
    }
}
