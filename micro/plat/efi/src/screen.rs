// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The mode in which firmware left the screen (UEFI 2.10, 12.9.2), as the kernel reads it.

use pvh::{FRAMEBUFFER, Framebuffer};
use uefi_raw::protocol::console::{GraphicsOutputModeInformation, GraphicsPixelFormat};

/// Bytes of a pixel of the formats with 8 bits a colour.
const PIXEL: u32 = 4;

/// `None`: there is no memory that shows what is in it (the mode has pixels for the firmware's own copying alone), or its pixels
/// have other than four bytes. Whether the numbers can be right the kernel looks itself.
pub fn framebuffer(info: &GraphicsOutputModeInformation, address: u64, bytes: u64) -> Option<Framebuffer> {
    let [red, green, blue] = match info.pixel_format {
        GraphicsPixelFormat::PIXEL_RED_GREEN_BLUE_RESERVED_8_BIT_PER_COLOR => [0xff, 0xff00, 0xff_0000],
        GraphicsPixelFormat::PIXEL_BLUE_GREEN_RED_RESERVED_8_BIT_PER_COLOR => [0xff_0000, 0xff00, 0xff],
        GraphicsPixelFormat::PIXEL_BIT_MASK => {
            let masks = info.pixel_information;
            // The highest bit that is any's says how many bytes there are.
            if (masks.red | masks.green | masks.blue | masks.reserved) >> 24 == 0 {
                return None;
            }
            [masks.red, masks.green, masks.blue]
        }
        _ => return None,
    };
    if address == 0 {
        return None;
    }
    Some(Framebuffer {
        magic: FRAMEBUFFER,
        address,
        bytes,
        width: info.horizontal_resolution,
        height: info.vertical_resolution,
        pitch: info.pixels_per_scan_line.checked_mul(PIXEL)?,
        red,
        green,
        blue,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use uefi_raw::protocol::console::PixelBitmask;

    fn mode(format: u32, masks: [u32; 4]) -> GraphicsOutputModeInformation {
        let [red, green, blue, reserved] = masks;
        GraphicsOutputModeInformation {
            version: 0,
            horizontal_resolution: 1280,
            vertical_resolution: 800,
            pixel_format: GraphicsPixelFormat(format),
            pixel_information: PixelBitmask { red, green, blue, reserved },
            pixels_per_scan_line: 1300,
        }
    }

    fn masks(format: u32, masks: [u32; 4]) -> Option<[u32; 3]> {
        framebuffer(&mode(format, masks), 1 << 31, 5200 * 800).map(|f| [f.red, f.green, f.blue])
    }

    #[test]
    fn every_format_with_memory_is_told_and_no_other() {
        let none = [0; 4];
        assert_eq!(masks(0, none), Some([0xff, 0xff00, 0xff_0000]));
        assert_eq!(masks(1, none), Some([0xff_0000, 0xff00, 0xff]));
        assert_eq!(masks(2, [0x3ff, 0xf_fc00, 0x3ff0_0000, 0]), Some([0x3ff, 0xf_fc00, 0x3ff0_0000]));
        assert_eq!(masks(2, [0xff, 0xff00, 0xff_0000, 0xff00_0000]), Some([0xff, 0xff00, 0xff_0000]));
        // 16 bits a pixel, no memory (PixelBltOnly), and formats that nobody has heard of.
        assert_eq!(masks(2, [0xf800, 0x7e0, 0x1f, 0]), None);
        assert!([3, 4, u32::MAX].iter().all(|format| masks(*format, none).is_none()));
        assert!(framebuffer(&mode(1, none), 0, 5200 * 800).is_none());
        let told = framebuffer(&mode(1, none), 1 << 31, 5200 * 800).unwrap();
        assert_eq!((told.width, told.height, told.pitch, told.bytes), (1280, 800, 5200, 5200 * 800));
        let wide = GraphicsOutputModeInformation { pixels_per_scan_line: 1 << 30, ..mode(1, none) };
        assert!(framebuffer(&wide, 1 << 31, 1 << 40).is_none());
    }
}
