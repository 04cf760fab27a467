// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Where ACPI's tables are (ACPI 6.5, 5.2), and how memory of firmware's is read.
//!
//! The tables are firmware's, and any of them may lie: lengths are bounded, checksums are verified, and what a table says lies
//! where memory is.

use alloc::vec::Vec;
use api_alloc::Reserve;

/// Physical memory that may be read.
pub trait Physical {
    /// Reads from an address on; false where not all of it is memory that firmware may have tables in.
    fn read(&self, address: u64, to: &mut [u8]) -> bool;
}

/// The error is a sentence's end: what is wrong with a table.
pub type Result<T> = core::result::Result<T, &'static str>;

/// No table is longer: the largest of real computers have some ten thousand bytes.
const TABLE_MAX: usize = 64 << 10;
/// The first KiB of the extended BIOS data area, and the BIOS's ROM.
const EBDA_POINTER: u64 = 0x40e;
const EBDA_BYTES: usize = 1 << 10;
const ROM: u64 = 0xe_0000;
const ROM_BYTES: usize = 0x2_0000;
/// The last KiB of base memory, where it ends at 640 KiB or one KiB below.
const BASE_ENDS: [u64; 2] = [0x9_fc00, 0x9_f800];

fn array<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..at.checked_add(N)?)?.try_into().ok()
}

pub fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    array(bytes, at).map(u16::from_le_bytes)
}

pub fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    array(bytes, at).map(u32::from_le_bytes)
}

pub fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    array(bytes, at).map(u64::from_le_bytes)
}

pub fn is_summed(bytes: &[u8]) -> bool {
    bytes.iter().fold(0u8, |sum, byte| sum.wrapping_add(*byte)) == 0
}

/// A structure that begins with these bytes at a multiple of 16, and whose first `length` bytes have their sum.
pub fn search(memory: &impl Physical, signature: &[u8], length: usize) -> Option<u64> {
    let mut segment = [0; 2];
    let ebda = memory.read(EBDA_POINTER, &mut segment).then(|| u64::from(u16::from_le_bytes(segment)) << 4);
    let areas = ebda.into_iter().chain(BASE_ENDS).map(|at| (at, EBDA_BYTES)).chain([(ROM, ROM_BYTES)]);
    let mut found = [0; 20];
    for (start, bytes) in areas {
        let found_at = (start..start + bytes as u64).step_by(16).find(|at| {
            let found = &mut found[..length];
            memory.read(*at, &mut found[..signature.len()])
                && found.starts_with(signature)
                && memory.read(*at, found)
                && is_summed(found)
        });
        if found_at.is_some() {
            return found_at;
        }
    }
    None
}

/// A table with its header, if the signature is the one.
pub fn table(memory: &impl Physical, address: u64, signature: &[u8]) -> Result<Option<Vec<u8>>> {
    let mut header = [0; 36];
    if !memory.read(address, &mut header) {
        return Err("ACPI names a table where no memory is");
    }
    if !header.starts_with(signature) {
        return Ok(None);
    }
    let length = u32::from_le_bytes([header[4], header[5], header[6], header[7]]) as usize;
    if !(header.len()..=TABLE_MAX).contains(&length) {
        return Err("a table of ACPI has a length that cannot be");
    }
    let mut bytes = Vec::new();
    bytes.reserve_exact_fallibly(length).map_err(|_| "there is no memory for ACPI's tables")?;
    bytes.resize(length, 0);
    if !memory.read(address, &mut bytes) {
        return Err("a table of ACPI is longer than the memory it is in");
    }
    if !is_summed(&bytes) {
        return Err("a table of ACPI has another sum than it says");
    }
    Ok(Some(bytes))
}

/// The first table with this signature that the root pointer leads to; `None` where there is none. `rsdp` is what the boot loader says of
/// that pointer, or 0: it is looked for where a BIOS has it.
pub fn find(memory: &impl Physical, rsdp: u64, signature: &[u8; 4]) -> Result<Option<Vec<u8>>> {
    let root = match rsdp {
        0 => search(memory, b"RSD PTR ", 20),
        told => Some(told),
    };
    let Some(root) = root else { return Ok(None) };
    let mut pointer = [0; 36];
    if !memory.read(root, &mut pointer[..20])
        || !pointer.starts_with(b"RSD PTR ")
        || !is_summed(&pointer[..20])
    {
        return Err("what the boot loader calls ACPI's root pointer is none");
    }
    // Revision 2 has a second pointer, with addresses of 64 bits.
    let is_long = pointer[15] >= 2 && memory.read(root, &mut pointer) && is_summed(&pointer);
    let (at, width) = match u64_at(&pointer, 24) {
        Some(long) if is_long && long != 0 => (long, 8),
        _ => (u64::from(u32_at(&pointer, 16).unwrap_or(0)), 4),
    };
    let Some(list) = table(memory, at, if width == 8 { b"XSDT" } else { b"RSDT" })? else {
        return Err("ACPI's root pointer leads to something else than the list of tables");
    };
    for entry in list[36..].chunks_exact(width) {
        let address = match width {
            8 => u64_at(entry, 0),
            _ => u32_at(entry, 0).map(u64::from),
        };
        if let Some(found) = table(memory, address.unwrap_or(0), signature)? {
            return Ok(Some(found));
        }
    }
    Ok(None)
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use std::collections::BTreeMap;
    use std::vec;

    /// Memory in pieces.
    #[derive(Clone, Default)]
    pub struct Pieces(pub BTreeMap<u64, Vec<u8>>);

    impl Physical for Pieces {
        fn read(&self, address: u64, to: &mut [u8]) -> bool {
            let Some((start, piece)) = self.0.range(..=address).next_back() else { return false };
            let at = (address - start) as usize;
            let Some(bytes) = at.checked_add(to.len()).and_then(|end| piece.get(at..end)) else {
                return false;
            };
            to.copy_from_slice(bytes);
            true
        }
    }

    /// Puts the sum of a table or structure to this place.
    pub fn sum(bytes: &mut [u8], at: usize) {
        bytes[at] = 0;
        let sum = bytes.iter().fold(0u8, |sum, byte| sum.wrapping_add(*byte));
        bytes[at] = sum.wrapping_neg();
    }

    /// A table with this behind its header.
    pub fn table(signature: &[u8; 4], body: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0; 36];
        bytes[..4].copy_from_slice(signature);
        bytes.extend(body);
        let length = bytes.len() as u32;
        bytes[4..8].copy_from_slice(&length.to_le_bytes());
        sum(&mut bytes, 9);
        bytes
    }

    impl Pieces {
        /// Tables that are in the list of the root pointer, which is where a BIOS has it, and others.
        pub fn acpi(listed: &[(u64, Vec<u8>)], others: &[(u64, Vec<u8>)]) -> Pieces {
            let mut memory = Pieces::default();
            let list: Vec<u8> = listed.iter().flat_map(|(at, _)| (*at as u32).to_le_bytes()).collect();
            for (at, table) in listed.iter().chain(others) {
                memory.0.insert(*at, table.clone());
            }
            memory.0.insert(0x5000, table(b"RSDT", &list));
            let mut root = vec![0; 20];
            root[..8].copy_from_slice(b"RSD PTR ");
            root[16..20].copy_from_slice(&0x5000u32.to_le_bytes());
            sum(&mut root, 8);
            memory.0.insert(ROM, root);
            memory
        }
    }
}
