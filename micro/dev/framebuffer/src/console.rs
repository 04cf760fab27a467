// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The grid of characters, and what of it is on the screen.

use crate::{
    font,
    mode::{Mode, PIXEL},
    parser::{Event, Parser},
};

/// A larger screen has larger characters, up to four times as large, or an edge that stays black.
pub const MAX_COLUMNS: usize = 256;
pub const MAX_ROWS: usize = 128;
const MAX_SCALE: usize = 4;
const CELLS: usize = MAX_COLUMNS * MAX_ROWS;
const TAB: usize = 8;

/// Memory that is shown.
pub trait Surface {
    /// Writes pixels from so many bytes on behind its beginning: a multiple of a pixel's bytes, and within [`Mode::bytes`].
    fn put(&mut self, offset: usize, pixels: &[u32]);
}

/// A character with its colours: its glyph, and above it four bits of the text's colour and three of the one behind it.
type Cell = u16;
const GLYPH: u16 = font::GLYPHS as u16 - 1;
const TEXT_SHIFT: u32 = 9;
const BEHIND_SHIFT: u32 = 13;

/// The colours that terminals have: eight, and these again brighter.
const PALETTE: [[u8; 3]; 16] = [
    [0, 0, 0],
    [170, 0, 0],
    [0, 170, 0],
    [170, 85, 0],
    [0, 0, 170],
    [170, 0, 170],
    [0, 170, 170],
    [170, 170, 170],
    [85, 85, 85],
    [255, 85, 85],
    [85, 255, 85],
    [255, 255, 85],
    [85, 85, 255],
    [255, 85, 255],
    [85, 255, 255],
    [255, 255, 255],
];
const TEXT: u8 = 7;
const BEHIND: u8 = 0;
const BRIGHT: u8 = 8;

#[derive(Clone, Copy)]
struct Colours {
    text: u8,
    behind: u8,
    is_bold: bool,
    is_reversed: bool,
}

impl Colours {
    const PLAIN: Colours = Colours { text: TEXT, behind: BEHIND, is_bold: false, is_reversed: false };

    fn cell(self, glyph: u16) -> Cell {
        let Colours { mut text, mut behind, .. } = self;
        if self.is_bold {
            text |= BRIGHT;
        }
        if self.is_reversed {
            (text, behind) = (behind, text);
        }
        glyph & GLYPH | u16::from(text & 15) << TEXT_SHIFT | u16::from(behind & (BRIGHT - 1)) << BEHIND_SHIFT
    }

    /// Select graphic rendition.
    fn select(&mut self, numbers: &[u16]) {
        let mut rest = numbers.iter();
        while let Some(number) = rest.next() {
            match *number {
                0 => *self = Colours::PLAIN,
                1 => self.is_bold = true,
                2 | 22 => self.is_bold = false,
                7 => self.is_reversed = true,
                27 => self.is_reversed = false,
                n @ 30..=37 => self.text = (n - 30) as u8,
                n @ 40..=47 => self.behind = (n - 40) as u8,
                39 => self.text = TEXT,
                49 => self.behind = BEHIND,
                n @ 90..=97 => self.text = (n - 90) as u8 | BRIGHT,
                n @ 100..=107 => self.behind = (n - 100) as u8,
                // A colour of 256, or of all: its numbers are none of these.
                38 | 48 => match rest.next() {
                    Some(5) => drop(rest.next()),
                    Some(2) => drop(rest.nth(2)),
                    _ => {}
                },
                _ => {}
            }
        }
    }
}

/// Text on a screen.
pub struct Console {
    mode: Mode,
    columns: usize,
    rows: usize,
    /// Pixels of a pixel of the font, each way.
    scale: usize,
    row: usize,
    column: usize,
    /// The last column has a character: the next one begins a row.
    is_full: bool,
    saved: (usize, usize),
    colours: Colours,
    parser: Parser,
    /// The first row that may have changed, and behind the last one.
    changed: (usize, usize),
    /// Row by row, of [`Console::columns`] each.
    wanted: [Cell; CELLS],
    shown: [Cell; CELLS],
}

impl Console {
    /// Without a screen: all bits are zero, so that it takes no bytes of an image.
    pub const fn none() -> Console {
        Console {
            mode: Mode::NONE,
            columns: 0,
            rows: 0,
            scale: 0,
            row: 0,
            column: 0,
            is_full: false,
            saved: (0, 0),
            colours: Colours { text: 0, behind: 0, is_bold: false, is_reversed: false },
            parser: Parser::new(),
            changed: (0, 0),
            wanted: [0; CELLS],
            shown: [0; CELLS],
        }
    }

    /// Begins with an empty screen.
    pub fn begin(&mut self, mode: Mode, surface: &mut impl Surface) {
        self.mode = mode;
        let glyphs = |scale: usize| (mode.width / font::WIDTH / scale, mode.height / font::HEIGHT / scale);
        let fits = |(columns, rows): (usize, usize)| columns <= MAX_COLUMNS && rows <= MAX_ROWS;
        self.scale = (1..MAX_SCALE).find(|scale| fits(glyphs(*scale))).unwrap_or(MAX_SCALE);
        let (columns, rows) = glyphs(self.scale);
        (self.columns, self.rows) = (columns.min(MAX_COLUMNS), rows.min(MAX_ROWS));
        self.reset();
        self.shown.fill(Colours::PLAIN.cell(font::glyph(' ')));
        let black = [mode.pixel(PALETTE[usize::from(BEHIND)]); 64];
        for row in 0..mode.height {
            for first in (0..mode.width).step_by(black.len()) {
                let count = black.len().min(mode.width - first);
                surface.put(row * mode.pitch + first * PIXEL, &black[..count]);
            }
        }
    }

    /// Columns and rows of characters; none without a screen.
    pub fn size(&self) -> (usize, usize) {
        (self.columns, self.rows)
    }

    /// Pixels of a character, each way.
    pub fn cell_size(&self) -> (usize, usize) {
        (font::WIDTH * self.scale, font::HEIGHT * self.scale)
    }

    /// Shows what a program writes. What it writes at once is drawn once, however often it scrolls.
    pub fn write(&mut self, bytes: &[u8], surface: &mut impl Surface) {
        if self.columns == 0 || self.rows == 0 {
            return;
        }
        let mut parser = core::mem::take(&mut self.parser);
        for byte in bytes {
            parser.push(*byte, &mut |event| self.handle(event));
        }
        self.parser = parser;
        self.draw(surface);
    }

    fn reset(&mut self) {
        (self.row, self.column, self.is_full, self.saved) = (0, 0, false, (0, 0));
        self.colours = Colours::PLAIN;
        self.clear(0, CELLS);
    }

    fn handle(&mut self, event: Event<'_>) {
        match event {
            Event::Print(character) if has_no_width(character) => {}
            Event::Print(character) => self.print(character),
            Event::Control(b'\n' | 0x0b | 0x0c) => {
                self.column = 0;
                self.next_row();
            }
            Event::Control(b'\r') => self.go(self.row, 0),
            Event::Control(8) => self.go(self.row, self.column.saturating_sub(1)),
            Event::Control(b'\t') => self.go(self.row, (self.column / TAB + 1) * TAB),
            Event::Control(_) => {}
            Event::Escape(b'c') => self.reset(),
            Event::Escape(b'7') => self.saved = (self.row, self.column),
            Event::Escape(b'8') => self.go(self.saved.0, self.saved.1),
            Event::Escape(b'D') => self.next_row(),
            Event::Escape(b'E') => {
                self.column = 0;
                self.next_row();
            }
            Event::Escape(_) => {}
            Event::Sequence(numbers, last) => self.sequence(numbers, last),
        }
    }

    fn sequence(&mut self, numbers: &[u16], last: u8) {
        let number = |n: usize| usize::from(numbers.get(n).copied().unwrap_or(0));
        // Of how far to go, and of places, 0 is 1.
        let far = |n: usize| number(n).max(1);
        let (row, column) = (self.row, self.column);
        match last {
            b'A' => self.go(row.saturating_sub(far(0)), column),
            b'B' => self.go(row + far(0), column),
            b'C' => self.go(row, column + far(0)),
            b'D' => self.go(row, column.saturating_sub(far(0))),
            b'E' => self.go(row + far(0), 0),
            b'F' => self.go(row.saturating_sub(far(0)), 0),
            b'G' => self.go(row, far(0) - 1),
            b'd' => self.go(far(0) - 1, column),
            b'H' | b'f' => self.go(far(0) - 1, far(1) - 1),
            b's' => self.saved = (row, column),
            b'u' => self.go(self.saved.0, self.saved.1),
            b'm' => self.colours.select(numbers),
            b'J' | b'K' => {
                let here = row * self.columns + column;
                let (start, end) = match last {
                    b'J' => (0, self.rows * self.columns),
                    _ => (row * self.columns, (row + 1) * self.columns),
                };
                match number(0) {
                    0 => self.clear(here, end),
                    1 => self.clear(start, here + 1),
                    2 | 3 => self.clear(start, end),
                    _ => {}
                }
            }
            _ => {}
        }
    }

    /// Moves the place where the next character goes, as far as the screen reaches.
    fn go(&mut self, row: usize, column: usize) {
        (self.row, self.column) = (row.min(self.rows - 1), column.min(self.columns - 1));
        self.is_full = false;
    }

    fn print(&mut self, character: char) {
        if self.is_full {
            self.column = 0;
            self.next_row();
        }
        self.wanted[self.row * self.columns + self.column] = self.colours.cell(font::glyph(character));
        self.touch(self.row, self.row + 1);
        self.is_full = self.column + 1 == self.columns;
        if !self.is_full {
            self.column += 1;
        }
    }

    fn next_row(&mut self) {
        self.is_full = false;
        if self.row + 1 < self.rows {
            self.row += 1;
            return;
        }
        let (columns, end) = (self.columns, self.rows * self.columns);
        self.wanted.copy_within(columns..end, 0);
        self.touch(0, self.rows);
        self.clear(end - columns, end);
    }

    /// Empties cells.
    fn clear(&mut self, start: usize, end: usize) {
        // Without what the text has of its own, as Linux' console does it.
        let colours = Colours { text: TEXT, is_bold: false, is_reversed: false, ..self.colours };
        if let Some(cells) = self.wanted.get_mut(start..end) {
            cells.fill(colours.cell(font::glyph(' ')));
        }
        self.touch(start / self.columns, end.div_ceil(self.columns));
    }

    fn touch(&mut self, start: usize, end: usize) {
        let end = end.min(self.rows);
        self.changed = match self.changed {
            (from, to) if from < to => (from.min(start), to.max(end)),
            _ => (start, end),
        };
    }

    fn draw(&mut self, surface: &mut impl Surface) {
        let (start, end) = core::mem::take(&mut self.changed);
        for row in start..end {
            for column in 0..self.columns {
                let at = row * self.columns + column;
                let cell = self.wanted[at];
                if self.shown[at] != cell {
                    self.shown[at] = cell;
                    self.draw_cell(row, column, cell, surface);
                }
            }
        }
    }

    fn draw_cell(&self, row: usize, column: usize, cell: Cell, surface: &mut impl Surface) {
        let colour = |number: u16| self.mode.pixel(PALETTE[usize::from(number & 15)]);
        let text = colour(cell >> TEXT_SHIFT);
        let behind = colour(cell >> BEHIND_SHIFT & u16::from(BRIGHT - 1));
        let (width, height) = self.cell_size();
        let mut pixels = [0; font::WIDTH * MAX_SCALE];
        let mut offset = row * height * self.mode.pitch + column * width * PIXEL;
        for bits in font::rows(cell & GLYPH) {
            for (n, pixel) in pixels[..width].iter_mut().enumerate() {
                let is_text = bits & (1 << (font::WIDTH - 1) >> (n / self.scale)) != 0;
                *pixel = if is_text { text } else { behind };
            }
            for _ in 0..self.scale {
                surface.put(offset, &pixels[..width]);
                offset += self.mode.pitch;
            }
        }
    }
}

/// Accents that go onto the character before them, and marks that are not seen.
fn has_no_width(character: char) -> bool {
    matches!(character, '\u{300}'..='\u{36f}' | '\u{200b}'..='\u{200f}' | '\u{fe00}'..='\u{fe0f}' | '\u{feff}')
}

#[cfg(test)]
mod tests;
