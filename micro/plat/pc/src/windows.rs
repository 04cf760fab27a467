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
/// What monitors say to Linux, and means nothing here: Firecracker's `pci=off`.
const TO_LINUX: [&str; 2] = [WORD, "pci="];
/// Bytes of a window: the registers of a virtio-mmio device and its configuration.
const WINDOW: u64 = 512;
/// Most windows that are taken of the monitor's words; an I/O APIC has no more lines.
const MAX_WINDOWS: usize = 64;

fn is_of_monitor(word: &str) -> bool {
    TO_LINUX.iter().any(|beginning| word.starts_with(beginning))
}

/// The parts of a command line: our settings, the monitor's words, the program behind ` -- ` (with these dashes). QEMU writes
/// its words behind everything, Firecracker between our settings and the program.
pub struct Words<'a> {
    pub settings: &'a str,
    pub program: &'a str,
    monitor: [&'a str; 2],
}

/// Cuts the words of the monitor out of the command line.
pub fn split(line: &str) -> Words<'_> {
    let (line, behind) = cut_end(line.trim_end());
    let at = if line.starts_with("-- ") || line == "--" { Some(0) } else { line.find(" -- ") };
    let (front, program) = match at {
        Some(at) => line.split_at(at),
        None => match line.strip_suffix(" --") {
            Some(front) => (front, " --"),
            None => (line, ""),
        },
    };
    let (settings, before) = cut_end(front);
    Words { settings, program, monitor: [before, behind] }
}

/// A line without the monitor's words at its end, and these.
fn cut_end(line: &str) -> (&str, &str) {
    let mut rest = line;
    loop {
        let start = rest.rfind(' ').map_or(0, |i| i + 1);
        if !is_of_monitor(&rest[start..]) {
            return (rest, &line[rest.len()..]);
        }
        rest = rest[..start].trim_end();
    }
}

impl<'a> Words<'a> {
    /// The windows that the monitor named. Words that are not understood are left out, and so are windows where no device can be:
    /// in the first MiB, beyond what the kernel sees of physical memory, or at an address that is no multiple of four.
    pub fn windows(&self) -> impl Iterator<Item = VirtioWindow> + use<'a> {
        let words = self.monitor.into_iter().flat_map(str::split_ascii_whitespace);
        let windows = words.filter_map(|word| {
            let (_, place) = word.strip_prefix(WORD)?.split_once('@')?;
            let mut parts = place.split(':');
            let base = number(parts.next()?)?;
            let line = u8::try_from(number(parts.next()?)?).ok()?;
            let fits = (1 << 20..=api_boot::MAX_MEMORY - WINDOW).contains(&base) && base.is_multiple_of(4);
            fits.then_some(VirtioWindow { base, line: Line(line) })
        });
        windows.take(MAX_WINDOWS)
    }
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

    fn ours(line: &str) -> std::string::String {
        let words = split(line);
        std::format!("{}{}", words.settings, words.program)
    }

    fn windows(line: &str) -> Vec<(u64, u8)> {
        split(line).windows().map(|window| (window.base, window.line.0)).collect()
    }

    #[test]
    fn words_of_the_monitor_do_not_reach_the_program() {
        let qemu =
            "cwd=/ -- /bin/x a  virtio_mmio.device=512@0xfeb00e00:12 virtio_mmio.device=4K@0xd0000000:5";
        assert_eq!(ours(qemu), "cwd=/ -- /bin/x a");
        assert_eq!(windows(qemu), [(0xfeb0_0e00, 12), (0xd000_0000, 5)]);
        let firecracker =
            "cwd=/ pci=off virtio_mmio.device=4K@0xc0001000:5 virtio_mmio.device=4K@0xc0002000:6 -- /bin/x a";
        assert_eq!(ours(firecracker), "cwd=/ -- /bin/x a");
        assert_eq!(windows(firecracker), [(0xc000_1000, 5), (0xc000_2000, 6)]);
        assert_eq!(ours("-- /bin/x"), "-- /bin/x");
        assert_eq!(ours("more=1:2 pci=off virtio_mmio.device=4K@0xc0001000:5"), "more=1:2");
        assert_eq!(ours("virtio_mmio.device=4K@0x1000:5"), "");
        assert_eq!(ours("cwd=/ --"), "cwd=/ --");
        assert_eq!(ours(""), "");
        // What the program is given is its own, also where it looks like the monitor's.
        assert_eq!(ours("-- /bin/x virtio_mmio.device=a b"), "-- /bin/x virtio_mmio.device=a b");
    }

    #[test]
    fn words_that_make_no_sense_are_left_out() {
        let line = "virtio_mmio.device= virtio_mmio.device=4K@:5 virtio_mmio.device=4K@0x100000 \
                     virtio_mmio.device=4K@0x100000:256 virtio_mmio.device=4K@0x100000:1:7";
        assert_eq!(windows(line), [(0x10_0000, 1)]);
    }

    #[test]
    fn windows_where_no_device_can_be_are_left_out() {
        for base in
            ["0", "0x1000", "0xfffff", "0x100001", "0x7ffffffe01", "0x8000000000", "0xffffffffffffffff", "-1"]
        {
            assert_eq!(windows(&std::format!("virtio_mmio.device=4K@{base}:5")), [], "{base}");
        }
        let many = "virtio_mmio.device=4K@0xc0001000:5 ".repeat(1000);
        assert_eq!(windows(&many).len(), MAX_WINDOWS);
    }
}
