// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The counters of an image that was linked to count (`--lto=count`).
//!
//! The code of such an image adds to counters in its memory; what each counter is of is written in the image with symbols, in the
//! records of LLVM's instrumentation (`llvm/ProfileData/InstrProfData.inc`, version 10).

use crate::{
    Result, StaticError,
    profile::{Counted, Identity, MAX_COUNTERS, Profile, is_name},
};
use md5::{Digest as _, Md5};
use object::{Object as _, ObjectSection as _};
use std::collections::BTreeMap;

/// Sections of an image with symbols (`micro/kernel/linked.ld`): records, names, and what was linked.
const RECORDS: &str = ".profile.data";
const NAMES: &str = ".profile.names";
pub(crate) const IDENTITY: &str = ".profile.of";
/// `__llvm_profile_data`: where in it the function's name, its shape, the counters' address and their number are.
const RECORD: usize = 64;
const NAME_AT: usize = 0;
const SHAPE_AT: usize = 8;
const COUNTERS_AT: usize = 16;
const COUNT_AT: usize = 48;

/// A function that counts.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Function {
    name: String,
    /// LLVM's hash of its control flow.
    shape: u64,
    /// Where its counters are.
    address: u64,
    counters: usize,
}

/// All counters of an image.
#[derive(Clone, Debug)]
pub struct Counters {
    of: Identity,
    functions: Vec<Function>,
}

impl Counters {
    /// Those of an image with symbols; `None` where it counts nothing.
    pub fn of(image: &[u8]) -> Result<Option<Counters>> {
        let damaged = || StaticError::new("the image's lists of counters are damaged: link it again");
        let file = object::File::parse(image).map_err(|_| damaged())?;
        let section = |name: &str| {
            let Some(section) = file.section_by_name(name) else { return Ok(None) };
            section.data().map(|data| Some((section.address(), data))).map_err(|_| damaged())
        };
        let Some((base, records)) = section(RECORDS)? else { return Ok(None) };
        let (_, names) = section(NAMES)?.ok_or_else(damaged)?;
        let (_, identity) = section(IDENTITY)?.ok_or_else(damaged)?;
        let names = by_digest(names).ok_or_else(damaged)?;
        let functions = functions(base, records, &names).ok_or_else(damaged)?;
        let of = std::str::from_utf8(identity).ok().and_then(|text| Identity::read(&mut text.lines()));
        Ok(Some(Counters { of: of.ok_or_else(damaged)?, functions }))
    }

    /// The profile. `read` gives the machine's memory at an address.
    pub fn profile<E>(
        &self,
        mut read: impl FnMut(u64, usize) -> std::result::Result<Vec<u8>, E>,
    ) -> std::result::Result<Profile, E> {
        let mut functions = Vec::with_capacity(self.functions.len());
        for function in &self.functions {
            let bytes = read(function.address, function.counters * 8)?;
            let counts = bytes.chunks_exact(8).map(|count| count.try_into().map_or(0, u64::from_le_bytes));
            functions.push(Counted::new(&function.name, function.shape, counts));
        }
        Ok(Profile { of: self.of.clone(), functions })
    }
}

/// Names by what records call them: the first half of the name's MD5. A list is the length of its text, that of its compressed
/// form (0: it is not compressed), and names with a byte of 1 between.
fn by_digest(mut bytes: &[u8]) -> Option<BTreeMap<u64, String>> {
    let mut names = BTreeMap::new();
    while let Some(start) = bytes.iter().position(|byte| *byte != 0) {
        bytes = &bytes[start..];
        let (length, rest) = uleb128(bytes)?;
        let (compressed, rest) = uleb128(rest)?;
        let text = rest.get(..usize::try_from(length).ok()?).filter(|_| compressed == 0)?;
        for name in std::str::from_utf8(text).ok()?.split('\x01') {
            let digest = Md5::digest(name.as_bytes());
            names.insert(u64::from_le_bytes(*digest.first_chunk()?), name.to_string());
        }
        bytes = &rest[text.len()..];
    }
    Some(names)
}

/// A number and what is behind it (DWARF 5, 7.6).
fn uleb128(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let mut value = 0;
    for (index, byte) in bytes.iter().enumerate().take(9) {
        value |= u64::from(byte & 0x7f) << (7 * index);
        if byte & 0x80 == 0 {
            return Some((value, &bytes[index + 1..]));
        }
    }
    None
}

fn functions(base: u64, records: &[u8], names: &BTreeMap<u64, String>) -> Option<Vec<Function>> {
    let word = |record: &[u8], at: usize| Some(u64::from_le_bytes(*record.get(at..)?.first_chunk()?));
    let mut all = Vec::new();
    for (index, record) in records.chunks(RECORD).enumerate() {
        let counters = u32::from_le_bytes(*record.get(COUNT_AT..)?.first_chunk()?) as usize;
        if record.len() != RECORD || counters > MAX_COUNTERS {
            return None;
        }
        let own = base.wrapping_add((index * RECORD) as u64);
        all.push(Function {
            name: names.get(&word(record, NAME_AT)?).filter(|name| is_name(name))?.clone(),
            shape: word(record, SHAPE_AT)?,
            // From the record.
            address: own.wrapping_add(word(record, COUNTERS_AT)?),
            counters,
        });
    }
    Some(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(name: &str, shape: u64, counters_at: i64, counters: u32) -> Vec<u8> {
        let mut record = vec![0; RECORD];
        record[..8].copy_from_slice(&Md5::digest(name.as_bytes())[..8]);
        record[SHAPE_AT..][..8].copy_from_slice(&shape.to_le_bytes());
        record[COUNTERS_AT..][..8].copy_from_slice(&counters_at.to_le_bytes());
        record[COUNT_AT..][..4].copy_from_slice(&counters.to_le_bytes());
        record
    }

    #[test]
    fn records_lead_to_names_and_to_counters_from_where_they_are() {
        let names = by_digest(b"\x09\x00main\x01work\0\0\0\x05\x00a.c;f").unwrap();
        assert_eq!(names.len(), 3);
        let records = [record("work", 7, 0x1000, 2), record("a.c;f", 9, -0x40, 1)].concat();
        let all = functions(0x40, &records, &names).unwrap();
        assert_eq!(
            all,
            [
                Function { name: "work".into(), shape: 7, address: 0x1040, counters: 2 },
                Function { name: "a.c;f".into(), shape: 9, address: 0x40, counters: 1 }
            ]
        );
    }

    #[test]
    fn damaged_lists_are_refused() {
        let names = by_digest(b"\x04\x00main").unwrap();
        assert_eq!(functions(0, &record("main", 1, 0, 1)[1..], &names), None, "cut off");
        assert_eq!(functions(0, &record("other", 1, 0, 1), &names), None, "without a name");
        assert_eq!(functions(0, &record("main", 1, 0, u32::MAX), &names), None, "endless");
        assert_eq!(by_digest(b"\x7f\x00main"), None);
        assert_eq!(by_digest(b"\x04\x04main"), None, "compressed");
        assert_eq!(by_digest(&[0xff; 32]), None);
    }

    #[test]
    fn counts_are_read_where_the_counters_are() {
        let of = Identity::new(&[b"program".to_vec()], b"kernel");
        let function = Function { name: "main".into(), shape: 5, address: 64, counters: 2 };
        let counters = Counters { of: of.clone(), functions: vec![function] };
        let memory = |address: u64, length: usize| {
            assert_eq!((address, length), (64, 16));
            Ok::<_, ()>([3u64.to_le_bytes(), 4u64.to_le_bytes()].concat())
        };
        let profile = counters.profile(memory).unwrap();
        assert_eq!(profile, Profile { of, functions: vec![Counted::new("main", 5, [3, 4].into_iter())] });
    }
}
