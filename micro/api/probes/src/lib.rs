// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the host tells a machine when it attaches programs: which program goes where, and how the first bytes of a
//! function are replaced by a jump.
//!
//! The host decodes instructions, so that no decoder is in the machine. It hands over the bytes it saw, the same
//! instructions as they are to run elsewhere ([`Plan::moved`], with [`Fixup`]s for operands relative to RIP), and which
//! instruction went where. The machine compares the bytes before it changes them. A plan is damage-proof (decoding
//! checks every length), not tamper-proof: who may attach programs owns the machine.
//!
//! Layout, little-endian: magic `UPRB`, version u16 = 1, attachments u16, length of the bundle u32; the bundle
//! (`micro/overlay/bpf`); for each attachment: program u16, kind u8, length of the name u8, address u64, length of the plan
//! u16; name; plan. A plan: lengths of original and moved u8 each, fix-ups u8, boundaries u8; original; moved; fix-ups
//! (at u8, end u8, distance i32); boundaries (from u8, to u8).
#![no_std]
#![forbid(unsafe_code)]
extern crate alloc;

use alloc::string::String;
use alloc::vec::Vec;

const MAGIC: [u8; 4] = *b"UPRB";
const VERSION: u16 = 1;
/// `jmp rel32`.
pub const JUMP: usize = 5;
/// Longest prologue: four bytes and the longest instruction.
pub const MAX_ORIGINAL: usize = JUMP - 1 + 15;
/// Moved instructions: short jumps, of which two bytes each are in the prologue, become six bytes long.
pub const MAX_MOVED: usize = MAX_ORIGINAL + 3 * 4;
/// More attachments at once are a mistake.
pub const MAX_ATTACHMENTS: usize = 64;

/// A 32-bit displacement relative to RIP in the moved instructions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fixup {
    /// Where in [`Plan::moved`].
    pub at: u8,
    /// Where the instruction ends: what the displacement is relative to.
    pub end: u8,
    /// What it leads to, relative to the function.
    pub distance: i32,
}

/// How the beginning of a function is replaced.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// Whole instructions, at least [`JUMP`] bytes.
    pub original: Vec<u8>,
    pub moved: Vec<u8>,
    pub fixups: Vec<Fixup>,
    /// Offsets of instructions but the first, in `original` and in `moved`.
    pub boundaries: Vec<(u8, u8)>,
}

/// Where a program goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    Entry = 0,
    Return = 1,
    /// By name.
    Tracepoint = 2,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attachment {
    /// Index of the program in the bundle.
    pub program: u16,
    pub kind: Kind,
    /// Of the function, or the tracepoint.
    pub name: String,
    /// Of the function in the running machine; of samples the time from one to the next in nanoseconds, or 0.
    pub address: u64,
    pub plan: Plan,
}

/// A bundle and where its programs go.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Package {
    pub bundle: Vec<u8>,
    pub attachments: Vec<Attachment>,
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn bytes(&mut self, count: usize) -> Option<&'a [u8]> {
        let (bytes, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(bytes)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.bytes(N)?.try_into().ok()
    }

    fn u8(&mut self) -> Option<u8> {
        Some(self.array::<1>()?[0])
    }

    fn u16(&mut self) -> Option<u16> {
        Some(u16::from_le_bytes(self.array()?))
    }
}

impl Plan {
    fn decode(bytes: &[u8]) -> Option<Plan> {
        let mut r = Reader(bytes);
        let [original, moved, fixups, boundaries] = r.array()?;
        let mut plan = Plan {
            original: r.bytes(original.into())?.to_vec(),
            moved: r.bytes(moved.into())?.to_vec(),
            ..Plan::default()
        };
        for _ in 0..fixups {
            let [at, end] = r.array()?;
            plan.fixups.push(Fixup { at, end, distance: i32::from_le_bytes(r.array()?) });
        }
        for _ in 0..boundaries {
            let [from, to] = r.array()?;
            plan.boundaries.push((from, to));
        }
        plan.is_sound().then_some(plan)
    }

    fn is_sound(&self) -> bool {
        let (original, moved) = (self.original.len(), self.moved.len());
        (JUMP..=MAX_ORIGINAL).contains(&original)
            && moved <= MAX_MOVED
            && self.fixups.iter().all(|f| usize::from(f.at) + 4 <= moved && usize::from(f.end) <= moved)
            && self.boundaries.iter().all(|b| usize::from(b.0) < original && usize::from(b.1) < moved)
    }

    fn encode(&self, out: &mut Vec<u8>) {
        let lengths = [self.original.len(), self.moved.len(), self.fixups.len(), self.boundaries.len()];
        out.extend(lengths.map(|l| l as u8));
        out.extend(&self.original);
        out.extend(&self.moved);
        for f in &self.fixups {
            out.extend([f.at, f.end]);
            out.extend(f.distance.to_le_bytes());
        }
        self.boundaries.iter().for_each(|b| out.extend([b.0, b.1]));
    }

    /// The moved instructions for a place; `None` when something is out of their reach from there.
    pub fn code_at(&self, function: u64, place: u64) -> Option<Vec<u8>> {
        let mut code = self.moved.clone();
        for f in &self.fixups {
            let target = function.wrapping_add_signed(f.distance.into());
            let from = place.wrapping_add(f.end.into());
            let distance = i32::try_from(target.wrapping_sub(from) as i64).ok()?;
            code.get_mut(f.at.into()..usize::from(f.at) + 4)?.copy_from_slice(&distance.to_le_bytes());
        }
        Some(code)
    }
}

impl Package {
    /// `None` when it is damaged.
    pub fn decode(bytes: &[u8]) -> Option<Package> {
        let mut r = Reader(bytes);
        if r.array()? != MAGIC || r.u16()? != VERSION {
            return None;
        }
        let count = r.u16()?;
        if usize::from(count) > MAX_ATTACHMENTS {
            return None;
        }
        let length = u32::from_le_bytes(r.array()?);
        let mut package = Package { bundle: r.bytes(length as usize)?.to_vec(), attachments: Vec::new() };
        for _ in 0..count {
            let program = r.u16()?;
            let kind = match r.u8()? {
                0 => Kind::Entry,
                1 => Kind::Return,
                2 => Kind::Tracepoint,
                _ => return None,
            };
            let name = r.u8()?;
            let address = u64::from_le_bytes(r.array()?);
            let plan = r.u16()?;
            let name = String::from_utf8(r.bytes(name.into())?.to_vec()).ok()?;
            let plan = r.bytes(plan.into())?;
            let plan = if kind == Kind::Tracepoint { Plan::default() } else { Plan::decode(plan)? };
            package.attachments.push(Attachment { program, kind, name, address, plan });
        }
        Some(package)
    }

    /// Names are at most 255 bytes long; longer ones are cut.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = MAGIC.to_vec();
        out.extend(VERSION.to_le_bytes());
        out.extend((self.attachments.len() as u16).to_le_bytes());
        out.extend((self.bundle.len() as u32).to_le_bytes());
        out.extend(&self.bundle);
        for a in &self.attachments {
            let name = &a.name[..a.name.floor_char_boundary(255)];
            let mut plan = Vec::new();
            a.plan.encode(&mut plan);
            out.extend(a.program.to_le_bytes());
            out.extend([a.kind as u8, name.len() as u8]);
            out.extend(a.address.to_le_bytes());
            out.extend((plan.len() as u16).to_le_bytes());
            out.extend(name.as_bytes());
            out.extend(plan);
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    fn package() -> Package {
        // push rbp; lea rax, [rip + 16]
        let plan = Plan {
            original: vec![0x55, 0x48, 0x8d, 0x05, 16, 0, 0, 0],
            moved: vec![0x55, 0x48, 0x8d, 0x05, 0, 0, 0, 0],
            fixups: vec![Fixup { at: 4, end: 8, distance: 24 }],
            boundaries: vec![(1, 1)],
        };
        let entry = Attachment { program: 1, kind: Kind::Entry, name: "main".into(), address: 0x1000, plan };
        Package { bundle: vec![1, 2, 3], attachments: vec![entry] }
    }

    #[test]
    fn a_package_survives_the_round_trip() {
        assert_eq!(Package::decode(&package().encode()), Some(package()));
    }

    #[test]
    fn operands_relative_to_rip_lead_to_the_same_place() {
        let plan = &package().attachments[0].plan;
        let code = plan.code_at(0x1000, 0x5000).unwrap();
        let distance = i32::from_le_bytes(code[4..8].try_into().unwrap());
        assert_eq!(0x5008 + i64::from(distance), 0x1018);
        assert!(plan.code_at(0x1000, 0x1_0000_0000).is_none());
    }

    #[test]
    fn damaged_packages_are_refused_or_sound() {
        let good = package().encode();
        for cut in 0..good.len() {
            assert_eq!(Package::decode(&good[..cut]), None);
        }
        for at in 0..good.len() {
            for value in 0..=255 {
                let mut bad = good.clone();
                bad[at] = value;
                if let Some(p) = Package::decode(&bad) {
                    p.attachments.iter().for_each(|a| {
                        assert!(a.plan.is_sound() || a.kind == Kind::Tracepoint);
                        let _ = a.plan.code_at(a.address, 0x5000);
                    });
                }
            }
        }
    }
}
