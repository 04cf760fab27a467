// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The formats of `bpf_trace_printk`: `%d %i %u %x %X %p %c %s %%`, with `l`, `ll`, `h`, `hh`, `z`, width and zeros.

use crate::helpers::Environment;

/// A line of bounded length; what is longer is cut.
pub(crate) struct Line {
    bytes: [u8; 512],
    length: usize,
}

impl Default for Line {
    fn default() -> Line {
        Line { bytes: [0; 512], length: 0 }
    }
}

impl Line {
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }

    fn push(&mut self, byte: u8) {
        if let Some(place) = self.bytes.get_mut(self.length) {
            *place = byte;
            self.length += 1;
        }
    }
}

pub(crate) struct BadFormat;

/// Longest string that `%s` shows.
const LONGEST_TEXT: u64 = 256;

pub(crate) fn format(
    line: &mut Line,
    format: &[u8],
    values: &[u64],
    environment: &dyn Environment,
) -> Result<(), BadFormat> {
    let mut values = values.iter();
    let mut rest = format.iter().copied().take_while(|b| *b != 0).peekable();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            line.push(byte);
            continue;
        }
        if rest.next_if_eq(&b'%').is_some() {
            line.push(b'%');
            continue;
        }
        let pad = if rest.next_if_eq(&b'0').is_some() { b'0' } else { b' ' };
        let mut width = 0;
        while let Some(digit) = rest.next_if(u8::is_ascii_digit) {
            width = (width * 10 + usize::from(digit - b'0')).min(64);
        }
        // Without a length an int is meant.
        let mut bits = 32;
        while let Some(length) = rest.next_if(|b| matches!(b, b'l' | b'h' | b'z')) {
            bits = if length == b'h' { bits / 2 } else { 64 };
        }
        let (Some(kind), Some(value)) = (rest.next(), values.next()) else { return Err(BadFormat) };
        let shift = 64 - bits.max(8);
        let unsigned = value << shift >> shift;
        match kind {
            b'd' | b'i' => {
                let signed = (*value as i64) << shift >> shift;
                number(line, signed.unsigned_abs(), 10, signed < 0, width, pad);
            }
            b'u' => number(line, unsigned, 10, false, width, pad),
            b'x' | b'X' => number(line, unsigned, 16, false, width, pad),
            b'p' => number(line, *value, 16, false, 16, b'0'),
            b'c' => line.push(*value as u8),
            b's' => {
                for at in 0..LONGEST_TEXT {
                    let mut byte = [0];
                    if !environment.read(value.wrapping_add(at), &mut byte) || byte == [0] {
                        break;
                    }
                    line.push(byte[0]);
                }
            }
            _ => return Err(BadFormat),
        }
    }
    Ok(())
}

fn number(line: &mut Line, mut value: u64, base: u64, negative: bool, width: usize, pad: u8) {
    let mut digits = [0; 20];
    let mut at = digits.len();
    loop {
        at -= 1;
        digits[at] = b"0123456789abcdef"[(value % base) as usize];
        value /= base;
        if value == 0 {
            break;
        }
    }
    let length = digits.len() - at + usize::from(negative);
    if negative && pad == b'0' {
        line.push(b'-');
    }
    (length..width).for_each(|_| line.push(pad));
    if negative && pad != b'0' {
        line.push(b'-');
    }
    digits[at..].iter().for_each(|d| line.push(*d));
}
