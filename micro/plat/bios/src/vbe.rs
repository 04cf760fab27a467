// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Modes of the screen (VESA BIOS Extension 3.0) in which the kernel can draw.

use pvh::{FRAMEBUFFER, Framebuffer};

/// Bytes of what is said of the screen, and of a mode.
pub const INFO: usize = 512;
pub const MODE: usize = 256;
/// Modes that are asked for.
pub const MAX_MODES: usize = 256;
/// The largest mode that is chosen: every screen since 1990 shows it.
const WIDTH: u32 = 1024;
const HEIGHT: u32 = 768;
/// Supported, in colour, graphics, with linear memory (4.2, `ModeAttributes`).
const NEEDED: u16 = 1 | 1 << 3 | 1 << 4 | 1 << 7;
const DIRECT_COLOUR: u8 = 6;
const VERSION_3: u16 = 0x300;

/// Where the list of modes is, a real mode's pointer, and the version; `None`: there is no screen.
pub fn modes(info: &[u8; INFO]) -> Option<(u64, u16)> {
    let pointer = (u64::from(half(info, 16)) << 4) + u64::from(half(info, 14));
    (&info[..4] == b"VESA" && half(info, 4) >= 0x200).then_some((pointer, half(info, 4)))
}

/// What the kernel needs to know of a mode, where it can draw in it.
pub fn framebuffer(mode: &[u8; MODE], version: u16) -> Option<Framebuffer> {
    let (width, height) = (u32::from(half(mode, 18)), u32::from(half(mode, 20)));
    // From version 3 on the masks of the linear mode are at a place of their own, and its row's length.
    let (pitch, masks) = if version >= VERSION_3 { (half(mode, 50), 54) } else { (half(mode, 16), 31) };
    let address = u64::from(half(mode, 40)) | u64::from(half(mode, 42)) << 16;
    if half(mode, 0) & NEEDED != NEEDED || mode[25] != 32 || mode[27] != DIRECT_COLOUR || address == 0 {
        return None;
    }
    if width > WIDTH || height > HEIGHT || u32::from(pitch) < width * 4 || height == 0 {
        return None;
    }
    let mask = |at: usize| match (mode[at], mode[at + 1]) {
        (bits @ 1..=16, from @ 0..=31) => ((1u32 << bits) - 1).checked_shl(from.into()),
        _ => None,
    };
    let bytes = u64::from(pitch) * u64::from(height);
    let [red, green, blue] = [mask(masks)?, mask(masks + 2)?, mask(masks + 4)?];
    Some(Framebuffer {
        magic: FRAMEBUFFER,
        address,
        bytes,
        width,
        height,
        pitch: pitch.into(),
        red,
        green,
        blue,
    })
}

/// Whether the first of two modes shows more.
pub fn is_better(this: &Framebuffer, than: &Framebuffer) -> bool {
    this.width * this.height > than.width * than.height
}

fn half(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mode(width: u16, height: u16, bits: u8, attributes: u16) -> [u8; MODE] {
        let mut mode = [0; MODE];
        let halves =
            [(0, attributes), (16, width * 4), (18, width), (20, height), (42, 0xfd00), (50, width * 4 + 64)];
        for (at, value) in halves {
            mode[at..at + 2].copy_from_slice(&value.to_le_bytes());
        }
        mode[25] = bits;
        mode[27] = DIRECT_COLOUR;
        mode[31..37].copy_from_slice(&[8, 16, 8, 8, 8, 0]);
        mode[54..60].copy_from_slice(&[8, 0, 8, 8, 8, 16]);
        mode
    }

    #[test]
    fn the_largest_mode_that_can_be_drawn_in_is_the_best() {
        let of = |width, height| framebuffer(&mode(width, height, 32, 0x9b), 0x200);
        let best = of(1024, 768).unwrap();
        assert_eq!((best.width, best.height, best.pitch, best.bytes), (1024, 768, 4096, 4096 * 768));
        assert_eq!((best.address, best.red, best.green, best.blue), (0xfd00_0000, 0xff_0000, 0xff00, 0xff));
        assert!(is_better(&best, &of(800, 600).unwrap()) && !is_better(&of(800, 600).unwrap(), &best));
        assert!(of(1280, 1024).is_none() && of(800, 0).is_none());
        let new = framebuffer(&mode(800, 600, 32, 0x9b), VERSION_3).unwrap();
        assert_eq!((new.pitch, new.red, new.blue), (3264, 0xff, 0xff_0000));
    }

    #[test]
    fn other_modes_are_none() {
        assert!(framebuffer(&mode(800, 600, 24, 0x9b), 0x200).is_none());
        assert!(framebuffer(&mode(800, 600, 32, 0x1b), 0x200).is_none(), "no linear memory");
        let with = |at: usize, value: u8| {
            let mut mode = mode(800, 600, 32, 0x9b);
            mode[at] = value;
            framebuffer(&mode, 0x200)
        };
        assert!(
            with(27, 4).is_none() && with(43, 0).is_none() && with(31, 0).is_none() && with(32, 40).is_none()
        );
        assert!(with(17, 0).is_none(), "a row shorter than its pixels");
    }

    #[test]
    fn a_screen_says_where_its_modes_are() {
        let mut info = [0; INFO];
        assert_eq!(modes(&info), None);
        info[..4].copy_from_slice(b"VESA");
        info[4..6].copy_from_slice(&0x300u16.to_le_bytes());
        info[14..18].copy_from_slice(&[0x34, 0x12, 0, 0xc0]);
        assert_eq!(modes(&info), Some((0xc1234, 0x300)));
        info[5] = 1;
        assert_eq!(modes(&info), None);
    }
}
