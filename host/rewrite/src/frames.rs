// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What .eh_frame says of the code: where functions begin and end, and where exceptions land (LSB Core 5.0, 10.6
//! "Exception Frames"; the language-specific data area of the Itanium C++ ABI's exception handling).

use gimli::{BaseAddresses, CieOrFde, EhFrame, EndianSlice, LittleEndian, Pointer, UnwindSection};

/// A section's bytes and the address they are loaded at.
#[derive(Clone, Copy)]
pub(crate) struct Loaded<'a> {
    pub address: u64,
    pub bytes: &'a [u8],
}

/// One function's frame description.
pub(crate) struct Frame {
    pub start: u64,
    pub end: u64,
    /// Address of its language-specific data.
    pub lsda: Option<u64>,
}

/// All frame descriptions that can be read; a damaged entry ends the list.
pub(crate) fn frames(eh_frame: Loaded, text: u64, got: u64) -> Vec<Frame> {
    let bases = BaseAddresses::default().set_eh_frame(eh_frame.address).set_text(text).set_got(got);
    let section = EhFrame::from(EndianSlice::new(eh_frame.bytes, LittleEndian));
    let mut entries = section.entries(&bases);
    let mut out = Vec::new();
    while let Ok(Some(entry)) = entries.next() {
        let CieOrFde::Fde(partial) = entry else { continue };
        let Ok(fde) = partial.parse(|section, bases, offset| section.cie_from_offset(bases, offset)) else {
            continue;
        };
        let lsda = fde.lsda().and_then(|p| match p {
            Pointer::Direct(address) => Some(address),
            Pointer::Indirect(_) => None,
        });
        let (start, length) = (fde.initial_address(), fde.len());
        if length != 0
            && let Some(end) = start.checked_add(length)
        {
            // What a signal handler returns to is described from a byte before its first instruction on: unwinders
            // look up the address before the one they found (augmentation `S`).
            let start = start + u64::from(fde.is_signal_trampoline());
            out.push(Frame { start, end, lsda });
        }
    }
    out
}

/// DW_EH_PE_omit.
const OMIT: u8 = 0xff;

struct Bytes<'a> {
    table: Loaded<'a>,
    at: usize,
}

impl Bytes<'_> {
    fn byte(&mut self) -> Option<u8> {
        let b = *self.table.bytes.get(self.at)?;
        self.at += 1;
        Some(b)
    }

    fn uleb(&mut self) -> Option<u64> {
        let (mut value, mut shift) = (0u64, 0);
        loop {
            let b = self.byte()?;
            if shift < 64 {
                value |= u64::from(b & 0x7f) << shift;
            }
            shift += 7;
            if b & 0x80 == 0 {
                return Some(value);
            }
        }
    }

    /// A value in a DW_EH_PE encoding; only the formats that compilers use in these tables.
    fn encoded(&mut self, encoding: u8) -> Option<u64> {
        let place = self.table.address.wrapping_add(self.at as u64);
        let size = match encoding & 0x0f {
            0x01 => return self.uleb(),
            0x02 | 0x0a => 2,
            0x03 | 0x0b => 4,
            0x00 | 0x04 | 0x0c => 8,
            _ => return None,
        };
        let bytes = self.table.bytes.get(self.at..self.at + size)?;
        self.at += size;
        let mut wide = [0; 8];
        wide[..size].copy_from_slice(bytes);
        let mut value = u64::from_le_bytes(wide);
        if encoding & 0x08 != 0 && size < 8 {
            let shift = 64 - 8 * size as u32;
            value = ((value << shift) as i64 >> shift) as u64;
        }
        match encoding & 0x70 {
            0x00 => Some(value),
            0x10 => Some(value.wrapping_add(place)),
            _ => None,
        }
    }
}

/// The landing pads of one function. What cannot be read ends the list.
pub(crate) fn landing_pads(
    table: Loaded,
    lsda: u64,
    function: u64,
    found: &mut dyn FnMut(u64),
) -> Option<()> {
    let at = usize::try_from(lsda.checked_sub(table.address)?).ok()?;
    let mut b = Bytes { table, at };
    let encoding = b.byte()?;
    let base = if encoding == OMIT { function } else { b.encoded(encoding)? };
    if b.byte()? != OMIT {
        b.uleb()?;
    }
    let encoding = b.byte()?;
    let length = usize::try_from(b.uleb()?).ok()?;
    let end = b.at.checked_add(length)?;
    while b.at < end {
        b.encoded(encoding)?;
        b.encoded(encoding)?;
        let pad = b.encoded(encoding)?;
        b.uleb()?;
        if pad != 0 {
            found(base.wrapping_add(pad));
        }
    }
    Some(())
}
