// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What is drawn, read back by the font.

use super::*;
use proptest::prelude::*;
use pvh::Framebuffer;
use std::{boxed::Box, format, string::String, vec, vec::Vec};

/// Pixels in memory, between which a row may have bytes of nobody's.
struct Memory {
    mode: Mode,
    pixels: Vec<u32>,
    /// Calls of [`Surface::put`].
    puts: usize,
}

const NOBODY: u32 = 0xdead_beef;

impl Surface for Memory {
    fn put(&mut self, offset: usize, pixels: &[u32]) {
        assert!(offset.is_multiple_of(PIXEL));
        let (row, column) = (offset / self.mode.pitch, offset % self.mode.pitch / PIXEL);
        assert!(row < self.mode.height && column + pixels.len() <= self.mode.width, "{row} {column}");
        self.pixels[offset / PIXEL..][..pixels.len()].copy_from_slice(pixels);
        self.puts += 1;
    }
}

struct Screen {
    console: Box<Console>,
    memory: Memory,
}

impl Screen {
    fn new(width: u32, height: u32) -> Screen {
        let pitch = width * 4 + 12;
        let bytes = u64::from(pitch) * u64::from(height);
        let said = Framebuffer {
            magic: pvh::FRAMEBUFFER,
            address: 0x8000_0000,
            bytes,
            width,
            height,
            pitch,
            red: 0xff_0000,
            green: 0xff00,
            blue: 0xff,
        };
        let mode = Mode::read(&said).unwrap();
        let mut memory = Memory { mode, pixels: vec![NOBODY; mode.bytes() / 4], puts: 0 };
        let mut console = Box::new(Console::none());
        console.begin(mode, &mut memory);
        Screen { console, memory }
    }

    fn write(&mut self, bytes: &[u8]) -> &mut Screen {
        self.console.write(bytes, &mut self.memory);
        self
    }

    fn pixel(&self, x: usize, y: usize) -> u32 {
        self.memory.pixels[y * self.memory.mode.pitch / PIXEL + x]
    }

    /// What a person reads: glyphs of the font, in any colour on black.
    fn rows(&self) -> Vec<String> {
        let ((columns, rows), (width, height)) = (self.console.size(), self.console.cell_size());
        let scale = width / font::WIDTH;
        let known: Vec<(Vec<u8>, char)> = (' '..='~')
            .chain(['ä', '€', font::REPLACEMENT])
            .map(|character| (font::rows(font::glyph(character)).to_vec(), character))
            .collect();
        let read = |row: usize, column: usize| {
            let bits = |y: usize| {
                (0..font::WIDTH).fold(0u8, |bits, x| {
                    let lit = self.pixel(column * width + x * scale, row * height + y * scale) != 0;
                    bits << 1 | u8::from(lit)
                })
            };
            let glyph: Vec<u8> = (0..font::HEIGHT).map(bits).collect();
            known.iter().find(|(rows, _)| *rows == glyph).expect("a glyph").1
        };
        let text = |row| (0..columns).map(|column| read(row, column)).collect::<String>();
        (0..rows).map(|row| String::from(text(row).trim_end())).collect()
    }
}

#[test]
fn text_is_drawn_with_what_is_not_in_the_font_replaced() {
    let mut screen = Screen::new(20 * 8 + 3, 4 * 16 + 5);
    assert_eq!(screen.console.size(), (20, 4));
    screen
        .write("hello 5 €, ä e\u{301}\ta\n漢\x1b]0;title\x07".as_bytes())
        .write(b"\xff|\r\n\x1b[31mred\x1b[0m");
    assert_eq!(screen.rows(), ["hello 5 €, ä e  a", "��|", "red", ""]);
    // Red on black, and behind the last column and row black as well.
    let in_red = (0..16).flat_map(|y| (0..24).map(move |x| (x, y))).map(|(x, y)| screen.pixel(x, 32 + y));
    let colours: std::collections::BTreeSet<u32> = in_red.collect();
    assert_eq!(colours.into_iter().collect::<Vec<_>>(), [0, 0xaa_0000]);
    assert_eq!((screen.pixel(162, 68), screen.pixel(0, 64)), (0, 0));
    // Between the rows of pixels is nobody's memory.
    assert!(screen.memory.pixels.chunks(163 + 3).all(|row| row[163..] == [NOBODY; 3]));
}

#[test]
fn rows_scroll_and_what_did_not_change_is_not_drawn() {
    let mut screen = Screen::new(10 * 8, 3 * 16);
    screen.write(b"one\ntwo\nthree");
    assert_eq!(screen.rows(), ["one", "two", "three"]);
    screen.write(b"\nfour");
    assert_eq!(screen.rows(), ["two", "three", "four"]);
    let before = screen.memory.puts;
    screen.write(b"\x1b[H\x1b[2Jtwo\nthree\nfour");
    assert_eq!(screen.memory.puts, before, "the same text again");
    // A thousand rows at once are drawn once.
    let many: String = (0..1000).map(|n| format!("\nline {n}")).collect();
    screen.write(many.as_bytes());
    assert_eq!(screen.rows(), ["line 997", "line 998", "line 999"]);
    assert!(screen.memory.puts - before <= 30 * 16);
}

#[test]
fn a_row_that_is_full_goes_on_in_the_next_one_with_the_next_character() {
    let mut screen = Screen::new(4 * 8, 3 * 16);
    screen.write(b"abcd\nef");
    assert_eq!(screen.rows(), ["abcd", "ef", ""]);
    screen.write(b"ghi\x08\x08X\rY");
    assert_eq!(screen.rows(), ["abcd", "efgh", "Y"]);
}

#[test]
fn the_cursor_goes_where_sequences_send_it_and_no_further() {
    let mut screen = Screen::new(6 * 8, 3 * 16);
    screen.write(b"\x1b[2;3Hx\x1b[99;99Hy\x1b[99A\x1b[99DA\x1b[99B\x1b[Cz\x1b[1;1H\x1b[CB");
    assert_eq!(screen.rows(), ["AB", "  x", "  z  y"]);
    screen.write(b"\x1b[2K\x1b[3;4H\x1b[1K\x1b[2d\x1b[5GZ\x1b7\x1b[H\x1b8\x1b[Kw");
    assert_eq!(screen.rows(), ["", "  x Zw", "     y"]);
    screen.write(b"\x1b[2;1H\x1b[J.\x1bc!");
    assert_eq!(screen.rows(), ["!", "", ""]);
}

#[test]
fn large_screens_have_large_characters() {
    for (width, height, size, cell) in [
        (1280, 800, (160, 50), (8, 16)),
        (1920, 1080, (240, 67), (8, 16)),
        (3840, 2160, (240, 67), (16, 32)),
        (7680, 4320, (240, 67), (32, 64)),
        (16384, 2048, (256, 32), (32, 64)),
        (8, 16, (1, 1), (8, 16)),
    ] {
        let screen = Screen::new(width, height);
        assert_eq!((screen.console.size(), screen.console.cell_size()), (size, cell));
    }
    let mut screen = Screen::new(3840, 2160);
    screen.write(b"\x1b[67;230Hat the end");
    assert!(screen.rows()[66].ends_with("at the end"));
}

#[test]
fn without_a_screen_nothing_is_drawn() {
    let mut screen = Screen::new(80, 80);
    *screen.console = Console::none();
    screen.memory.puts = 0;
    screen.write(b"hello\n\x1b[2J\x1b[H\x1bc");
    assert_eq!(screen.memory.puts, 0);
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever a program writes, and in whatever pieces: each write is within the screen (`Memory::put` looks), and the screen is
    /// that of the same text in one piece.
    #[test]
    fn any_bytes_on_any_screen_stay_within_it(
        width in 8u32..200,
        height in 16u32..200,
        pieces in prop::collection::vec(
            prop_oneof![
                prop::collection::vec(any::<u8>(), 0..40),
                "(\x1b\\[[0-9;?]{0,6}[@-~]|[a-z \r\n\t]{0,9}){0,6}".prop_map(String::into_bytes),
            ],
            0..12,
        ),
    ) {
        let (mut one, mut other) = (Screen::new(width, height), Screen::new(width, height));
        for piece in &pieces {
            one.write(piece);
        }
        other.write(&pieces.concat());
        prop_assert!(one.memory.pixels == other.memory.pixels);
    }
}
