// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a loader says of the screen, checked: firmware that is wrong about it costs the console, and nothing else.

use crate::font;
use core::ops::Range;
use pvh::Framebuffer;

/// Bytes of a pixel: what UEFI's graphics output has, but for 16-bit modes that nobody has seen.
pub const PIXEL: usize = 4;
/// More pixels than any screen has in a row or a column.
const MAX_SIDE: u32 = 16 << 10;
/// Bytes of a framebuffer that the platform maps.
pub const MAX_BYTES: u64 = 256 << 20;
/// Below is what every PC has there.
const LOWEST: u64 = 1 << 20;
/// Processors without five-level paging reach as far.
const HIGHEST: u64 = 1 << 46;

/// A framebuffer that can be drawn into.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mode {
    pub width: usize,
    pub height: usize,
    /// Bytes from a row to the next one.
    pub pitch: usize,
    /// The bits of a pixel that are red, green and blue.
    masks: [u32; 3],
}

impl Mode {
    /// Without pixels.
    pub(crate) const NONE: Mode = Mode { width: 0, height: 0, pitch: 0, masks: [0; 3] };

    /// Reads what a loader said; the error says what cannot be.
    pub fn read(said: &Framebuffer) -> Result<Mode, &'static str> {
        let Framebuffer { width, height, pitch, red, green, blue, .. } = *said;
        let masks = [red, green, blue];
        if (width as usize) < font::WIDTH || (height as usize) < font::HEIGHT {
            return Err("it has no room for a character");
        }
        if width > MAX_SIDE || height > MAX_SIDE {
            return Err("it has more pixels than a screen has");
        }
        if !pitch.is_multiple_of(PIXEL as u32) || u64::from(pitch) < u64::from(width) * PIXEL as u64 {
            return Err("its rows overlap");
        }
        if masks.iter().any(|mask| !is_run(*mask)) || red & green != 0 || green & blue != 0 || blue & red != 0
        {
            return Err("its colours cannot be told apart");
        }
        let needed = u64::from(pitch) * u64::from(height);
        if needed > said.bytes || needed > MAX_BYTES {
            return Err("it has less memory than its rows take, or more than 256 MiB of them");
        }
        let end = said.address.saturating_add(needed);
        if !said.address.is_multiple_of(PIXEL as u64) || said.address < LOWEST || end > HIGHEST {
            return Err("no memory of a device is at its address");
        }
        Ok(Mode { width: width as usize, height: height as usize, pitch: pitch as usize, masks })
    }

    /// Bytes of all rows.
    pub fn bytes(&self) -> usize {
        self.pitch * self.height
    }

    /// The pixel of a colour of 8 bits each.
    pub fn pixel(&self, colour: [u8; 3]) -> u32 {
        let scaled = |(level, mask): (u8, u32)| {
            if mask == 0 {
                return 0;
            }
            let shift = mask.trailing_zeros();
            let most = u64::from(mask >> shift);
            ((u64::from(level) * most / 255) << shift) as u32
        };
        colour.into_iter().zip(self.masks).map(scaled).fold(0, |pixel, part| pixel | part)
    }
}

/// The bits are next to each other.
fn is_run(mask: u32) -> bool {
    mask != 0 && (u64::from(mask >> mask.trailing_zeros()) + 1).is_power_of_two()
}

/// Where its memory is, if that is not memory of programs: `ram` is what the machine's map says of that.
pub fn place(
    said: &Framebuffer,
    mode: &Mode,
    mut ram: impl Iterator<Item = Range<u64>>,
) -> Result<Range<u64>, &'static str> {
    let place = said.address..said.address.saturating_add(mode.bytes() as u64);
    match ram.any(|ram| ram.start < place.end && place.start < ram.end) {
        true => Err("its memory is the computer's own"),
        false => Ok(place),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pvh::FRAMEBUFFER;

    fn good() -> Framebuffer {
        Framebuffer {
            magic: FRAMEBUFFER,
            address: 0x8000_0000,
            bytes: 800 * 5120,
            width: 1280,
            height: 800,
            pitch: 5120,
            red: 0xff_0000,
            green: 0xff00,
            blue: 0xff,
        }
    }

    #[test]
    fn a_screen_as_firmware_describes_it_is_taken() {
        let mode = Mode::read(&good()).unwrap();
        assert_eq!((mode.width, mode.height, mode.pitch), (1280, 800, 5120));
        assert_eq!(mode.pixel([0x12, 0x34, 0xff]), 0x1234ff);
        let deep = Framebuffer { red: 0x3ff0_0000, green: 0xf_fc00, blue: 0x3ff, ..good() };
        assert_eq!(Mode::read(&deep).unwrap().pixel([255, 0, 128]), 0x3ff0_0000 | (128 * 1023 / 255));
        let full = Framebuffer { red: 0xff00_0000, ..good() };
        assert_eq!(Mode::read(&full).unwrap().pixel([255, 0, 0]), 0xff00_0000);
    }

    #[test]
    fn lies_are_refused() {
        for (lie, why) in [
            (Framebuffer { width: 0, ..good() }, "no room"),
            (Framebuffer { height: 15, ..good() }, "no room"),
            (Framebuffer { width: 1 << 20, pitch: 4 << 20, ..good() }, "more pixels"),
            (Framebuffer { height: u32::MAX, ..good() }, "more pixels"),
            (Framebuffer { pitch: 0, ..good() }, "overlap"),
            (Framebuffer { pitch: 5119, ..good() }, "overlap"),
            (Framebuffer { pitch: 5116, ..good() }, "overlap"),
            (Framebuffer { pitch: 1 << 31, ..good() }, "less memory"),
            (Framebuffer { bytes: 800 * 5120 - 1, ..good() }, "less memory"),
            (Framebuffer { bytes: 0, ..good() }, "less memory"),
            (Framebuffer { red: 0, ..good() }, "colours"),
            (Framebuffer { red: 0xff00, ..good() }, "colours"),
            (Framebuffer { red: 0xa0_0000, ..good() }, "colours"),
            (Framebuffer { address: 0, ..good() }, "address"),
            (Framebuffer { address: 0xb_8000, ..good() }, "address"),
            (Framebuffer { address: 0x8000_0002, ..good() }, "address"),
            (Framebuffer { address: u64::MAX - 3, ..good() }, "address"),
            (Framebuffer { address: 1 << 46, ..good() }, "address"),
        ] {
            let error = Mode::read(&lie).unwrap_err();
            assert!(error.contains(why), "{lie:?}: {error}");
        }
    }

    #[test]
    fn memory_of_the_computer_is_no_screen() {
        let mode = Mode::read(&good()).unwrap();
        let end = 0x8000_0000 + 800 * 5120;
        let is_free = |ram: Range<u64>| place(&good(), &mode, [0..4096, ram].into_iter()).is_ok();
        assert!(is_free(0x10_0000..0x8000_0000) && is_free(end..1 << 33));
        assert!(!is_free(0x10_0000..0x8000_0001) && !is_free(end - 1..1 << 33) && !is_free(0..u64::MAX));
    }
}
