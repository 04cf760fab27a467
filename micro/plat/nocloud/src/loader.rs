// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a boot loader does with what it has read, whichever firmware started it.

use crate::{Media, smbios};
use core::fmt;

/// Bytes that the words of the files may add to the command line.
pub const MAX_ADDED: usize = 32 << 10;

/// Writes to firmware's console, which is for ASCII: words of the files may be in any language.
struct Console<'s>(&'s mut dyn FnMut(&str));

impl fmt::Write for Console<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for part in text.split_inclusive(|c: char| !matches!(c, ' '..='~')) {
            let plain = part.trim_end_matches(|c: char| !matches!(c, ' '..='~'));
            (self.0)(plain);
            if plain.len() < part.len() {
                (self.0)("?");
            }
        }
        Ok(())
    }
}

/// The kernel's command line, ended by a NUL byte, with what the computer is told: by the files of its disk and its serial number, or,
/// without `media`, by its cloud, whose name is put in; as it is where there is nothing of that. `out` is [`MAX_ADDED`] longer than the line.
/// `say` writes ASCII to the console. `None`: the line is damaged.
pub fn line<'l>(
    line: &'l [u8],
    media: Option<&Media<'_>>,
    system: &smbios::System<'_>,
    out: &'l mut [u8],
    say: &mut dyn FnMut(&str),
) -> Option<&'l [u8]> {
    let Some(media) = media else {
        // Clouds have a server in place of the disk, which the kernel asks.
        let cloud = metadata::of_computer(system.vendor, system.product);
        let length = cloud.and_then(|cloud| metadata::add_to(line, cloud, out));
        return Some(length.map_or(line, |length| &out[..length]));
    };
    let own = line.strip_suffix(&[0]).and_then(|line| core::str::from_utf8(line).ok())?;
    let end = out.len().checked_sub(1)?;
    let length = media.add_to(own, system.serial, &mut out[..end], &mut |text| {
        say("unilith: cidata: ");
        let _ = fmt::write(&mut Console(say), text);
        say("\r\n");
    });
    Some(match length {
        Some(length) => {
            // What is behind the words may be anything.
            out[length] = 0;
            &out[..=length]
        }
        None => line,
    })
}
