// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Spleen 8x16, a PC Screen Font of version 1: a header of four bytes, the glyphs, and for each of them the characters that it
//! shows, as 16-bit numbers with an end mark.

use spleen_font::FONT_8X16 as FILE;

/// Pixels of a glyph.
pub const WIDTH: usize = 8;
pub const HEIGHT: usize = 16;
/// The mode in the header that says so: 512 glyphs, and a table of characters.
pub const GLYPHS: usize = 512;
const HEADER: [u8; 4] = [0x36, 0x04, 3, HEIGHT as u8];
const TABLE: usize = HEADER.len() + GLYPHS * HEIGHT;
const END: u16 = 0xffff;

/// What shows a character that the font does not have.
pub const REPLACEMENT: char = '\u{fffd}';

const _: () = {
    let mut at = 0;
    while at < HEADER.len() {
        assert!(FILE[at] == HEADER[at], "another font than this module reads");
        at += 1;
    }
};

/// Most text is ASCII.
const ASCII: [u16; 128] = {
    let mut glyphs = [0; 128];
    let mut character = 0;
    while character < 128 {
        glyphs[character] = match find(character as u32) {
            Some(glyph) => glyph,
            None => match find(REPLACEMENT as u32) {
                Some(glyph) => glyph,
                None => panic!("the font has nothing for what it does not have"),
            },
        };
        character += 1;
    }
    glyphs
};

/// The glyph of a character among those of the font.
const fn find(character: u32) -> Option<u16> {
    let (mut at, mut glyph) = (TABLE, 0);
    while at + 1 < FILE.len() {
        let number = u16::from_le_bytes([FILE[at], FILE[at + 1]]);
        at += 2;
        if number == END {
            glyph += 1;
        } else if number as u32 == character {
            return Some(glyph);
        }
    }
    None
}

/// The glyph that shows a character, below [`GLYPHS`].
pub fn glyph(character: char) -> u16 {
    match ASCII.get(character as usize) {
        Some(glyph) => *glyph,
        None => find(character.into()).unwrap_or(ASCII[0]),
    }
}

/// The rows of a glyph from the top on; the highest bit is the pixel to the left.
pub fn rows(glyph: u16) -> &'static [u8] {
    let start = HEADER.len() + usize::from(glyph) % GLYPHS * HEIGHT;
    &FILE[start..start + HEIGHT]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn characters_have_their_glyphs_and_others_the_replacement() {
        assert_eq!(rows(glyph(' ')), [0; HEIGHT]);
        let missing = glyph(REPLACEMENT);
        for character in ['A', '~', 'ä', 'é', 'Ω', 'ж', '€', '│', '█'] {
            assert_ne!(glyph(character), missing, "{character}");
        }
        assert_ne!(glyph('A'), glyph('B'));
        for character in ['\0', '\u{7f}', '漢', '\u{1f600}', '\u{ffff}', '\u{fffe}'] {
            assert_eq!(glyph(character), missing, "{character:?}");
        }
        // What the files of fonts for consoles say of "A": a bar across, and feet.
        let a = rows(glyph('A'));
        assert_eq!((a[2], a[6], a[10]), (0b0111_1100, 0b1111_1110, 0b1100_0110));
    }
}
