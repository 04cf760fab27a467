// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The console on a screen: what a person sees is read back from the pixels, by the font.

use super::*;
use framebuffer::font;

/// QEMU's own line, and what is on the screen of the computer that it plays.
struct Screen {
    qmp: PathBuf,
    dump: PathBuf,
}

impl Screen {
    fn new(unilith: &Unilith) -> Screen {
        Screen { qmp: unilith.path("qmp"), dump: unilith.path("screen.ppm") }
    }

    /// QEMU's words for it.
    fn flags(&self) -> [String; 2] {
        ["-qmp".into(), format!("unix:{},server=on,wait=off", self.qmp.display())]
    }

    /// Has QEMU write the pixels to a file; fails until it listens.
    fn take(&self) -> io::Result<Vec<u8>> {
        let file = self.dump.display();
        let words = format!(r#"{{"execute": "screendump", "arguments": {{"filename": "{file}"}}}}"#);
        tell_qemu(&self.qmp, &words)?;
        fs::read(&self.dump)
    }

    /// The rows of text; `None`: it is no text of ours (the firmware's, or a picture).
    fn read(&self) -> Option<Vec<String>> {
        text(&self.take().ok()?)
    }
}

/// Reads what is drawn in a picture (PPM, P6): glyphs of the font on black.
fn text(picture: &[u8]) -> Option<Vec<String>> {
    let mut parts = picture.splitn(4, |byte| byte.is_ascii_whitespace());
    let mut number = || std::str::from_utf8(parts.next()?).ok()?.parse::<usize>().ok();
    // The mark is no number.
    let (None, Some(width), Some(height)) = (number(), number(), number()) else { return None };
    // Behind the largest level (255).
    let pixels = parts.next()?.get(4..).filter(|pixels| pixels.len() == width * height * 3)?;
    let known: Vec<(&[u8], char)> = (' '..='~')
        .chain(['ä', '€', font::REPLACEMENT])
        .map(|character| (font::rows(font::glyph(character)), character))
        .collect();
    let cell = |row: usize, column: usize| {
        let bits = |y: usize| {
            (0..font::WIDTH).fold(0u8, |bits, x| {
                let at = (row * font::HEIGHT + y) * width + column * font::WIDTH + x;
                bits << 1 | u8::from(pixels[at * 3..][..3] != [0; 3])
            })
        };
        let drawn: Vec<u8> = (0..font::HEIGHT).map(bits).collect();
        known.iter().find(|(rows, _)| *rows == drawn).map(|(_, character)| *character)
    };
    let row = |row| (0..width / font::WIDTH).map(|column| cell(row, column)).collect::<Option<String>>();
    let rows = (0..height / font::HEIGHT).map(row).collect::<Option<Vec<String>>>()?;
    Some(rows.into_iter().map(|row| row.trim_end().to_string()).collect())
}

/// The kernel's own words are on it, and the program's: they scroll, are in colours, and have characters that the font lacks.
#[test]
fn a_computer_without_a_serial_port_shows_its_console_on_the_screen() {
    if is_left_out() {
        return;
    }
    let unilith = Unilith::new();
    let disk = unilith.path("disk.img");
    let script = "for i in $(seq 300); do echo line $i; done; \
                  printf '\\033]0;title\\007\\033[1;32mgreen\\033[0m \\303\\244 \\342\\202\\254 \\346\\274\\242\\n'; sleep 1000";
    let words = ["--network", "none", "busybox", "sh", "-c", script];
    build(&unilith, &disk, &words).ok().complains("the screen shows it");
    let kinds: [(Firmware, &[&str], usize); 3] = [
        (uefi, &["-vga", "std"], 160),
        (uefi, &["-device", "bochs-display"], 160),
        (bios, &["-vga", "std"], 128),
    ];
    for (firmware, card, columns) in kinds {
        let screen = Screen::new(&unilith);
        let flags = screen.flags();
        let machine = ["-M", "q35,smm=on", "-device", "virtio-blk-pci,drive=disk", "-serial", "none"];
        let kind = [&machine[..], card, &[flags[0].as_str(), flags[1].as_str()]].concat();
        let computer = Computer::start_of_kind(&unilith, &disk, &firmware(&unilith), &kind);
        let last = format!("green ä € {}", font::REPLACEMENT);
        let mut rows = Vec::new();
        eventually_within(BOOT, "the program's words are on the screen", || {
            rows = screen.read().unwrap_or_default();
            rows.contains(&last)
        });
        let end = rows.iter().position(|row| *row == last).expect("it is there");
        assert!(end > 20 && rows[end + 1..].iter().all(String::is_empty), "{rows:?}");
        for (n, row) in rows[..end].iter().rev().enumerate() {
            assert_eq!(*row, format!("line {}", 300 - n), "{rows:?}");
        }
        let picture = screen.take().expect("QEMU is there");
        let size = String::from_utf8_lossy(&picture[..15]).into_owned();
        assert!(size.starts_with(&format!("P6\n{} ", columns * font::WIDTH)), "{size}");
        // The bright green of terminals, and no title.
        assert!(picture.windows(3).any(|pixel| pixel == [0x55, 0xff, 0x55]));
        drop(computer);
    }
}

/// What the kernel says of itself is on both, and a screen that firmware alone can draw on costs nothing else.
#[test]
fn a_serial_port_says_the_same_and_goes_on_without_a_screen() {
    if is_left_out() {
        return;
    }
    let unilith = Unilith::new();
    let disk = unilith.path("disk.img");
    let words = ["--network", "none", "--log", "info", "busybox", "sh", "-c"];
    build(&unilith, &disk, &[&words[..], &["echo hello from both; sleep 1000"]].concat()).ok();
    let screen = Screen::new(&unilith);
    let flags = screen.flags();
    let machine = ["-M", "q35,smm=on", "-device", "virtio-blk-pci,drive=disk"];
    let kind = [&machine[..], &["-vga", "std", flags[0].as_str(), flags[1].as_str()]].concat();
    let computer = Computer::start_of_kind(&unilith, &disk, &uefi(&unilith), &kind);
    let mut rows = Vec::new();
    eventually_within(BOOT, "the program's words are on the screen", || {
        rows = screen.read().unwrap_or_default();
        rows.iter().any(|row| row == "hello from both")
    });
    let said = computer.said();
    let shown: Vec<&String> = rows.iter().filter(|row| !row.is_empty()).collect();
    assert!(shown.len() > 1, "the kernel's own lines are there: {rows:?}");
    assert!(shown.iter().all(|row| said.contains(row.as_str())), "{rows:?}: {said}");
    drop(computer);

    // Pixels that firmware copies (PixelBltOnly).
    build(&unilith, &disk, &[&words[..], &["echo hello from a port; exit 3"]].concat()).ok();
    let kind = [&machine[..], &["-device", "virtio-gpu-pci"]].concat();
    let said = Computer::start_of_kind(&unilith, &disk, &uefi(&unilith), &kind).end();
    assert!(said.contains("hello from a port") && !said.contains("kernel panic"), "{said}");

    // Left out of the image.
    let without = ["--set", "framebuffer=off", "--network", "none", "busybox", "sh", "-c"];
    let built = build(&unilith, &disk, &[&without[..], &["echo hello; exit 3"]].concat()).ok();
    assert!(!built.err.contains("the screen shows it"), "{built}");
    let kind = [&machine[..], &["-vga", "std"]].concat();
    let said = Computer::start_of_kind(&unilith, &disk, &uefi(&unilith), &kind).end();
    assert!(said.contains("hello"), "{said}");
}
