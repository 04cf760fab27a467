// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Programs and their maps in one piece, as the host sends them: object files, BTF and relocations stay there.
//!
//! Little-endian: magic `UBPF`, version u16, maps u16, programs u16, zero u16. Each map: kind u8, length of its name
//! u8, zero u16, key u32, value u32, entries u32, flags u32, length of its contents u32; name; contents. Each program:
//! context u8, length of its name u8, zero u16, instructions u32; name; instructions.

use crate::context::Context;
use crate::insn::{self, Insn};
use crate::maps::{Kind, Spec};
use alloc::borrow::Cow;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

const MAGIC: [u8; 4] = *b"UBPF";
const VERSION: u16 = 1;
/// More maps or programs in one bundle is damage.
pub const MAX_MAPS: usize = 64;
pub const MAX_PROGRAMS: usize = 64;
/// Instructions of one program, as many as Linux verifies at most.
pub const MAX_INSTRUCTIONS: usize = 65_536;

/// A program and what it is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program {
    pub name: String,
    pub context: Context,
    pub insns: Vec<Insn>,
}

/// Maps, and the programs that share them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Bundle {
    pub maps: Vec<Spec>,
    pub programs: Vec<Program>,
}

/// What is wrong with a bundle, in words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BundleError(pub Cow<'static, str>);

impl fmt::Display for BundleError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

fn error<T>(what: &'static str) -> Result<T, BundleError> {
    Err(BundleError(what.into()))
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn bytes(&mut self, count: usize) -> Result<&'a [u8], BundleError> {
        match self.0.split_at_checked(count) {
            Some((bytes, rest)) => {
                self.0 = rest;
                Ok(bytes)
            }
            None => error("the program is cut off"),
        }
    }

    fn u8(&mut self) -> Result<u8, BundleError> {
        Ok(self.bytes(1)?[0])
    }

    fn u16(&mut self) -> Result<usize, BundleError> {
        let b = self.bytes(2)?;
        Ok(usize::from(b[0]) | usize::from(b[1]) << 8)
    }

    fn u32(&mut self) -> Result<u32, BundleError> {
        let b = self.bytes(4)?;
        Ok(u32::from_le_bytes([b[0], b[1], b[2], b[3]]))
    }

    fn name(&mut self, length: usize) -> Result<String, BundleError> {
        match core::str::from_utf8(self.bytes(length)?) {
            Ok(name) => Ok(name.into()),
            Err(_) => error("a name is not text"),
        }
    }
}

impl Bundle {
    pub fn decode(bytes: &[u8]) -> Result<Bundle, BundleError> {
        let mut r = Reader(bytes);
        if r.bytes(4)? != MAGIC {
            return error("not an eBPF bundle");
        }
        if r.u16()? != usize::from(VERSION) {
            return error("an eBPF bundle of another version: use the command this machine was started with");
        }
        let (maps, programs, _) = (r.u16()?, r.u16()?, r.u16()?);
        if maps > MAX_MAPS || programs > MAX_PROGRAMS {
            return error("more than 64 maps or 64 programs in one file");
        }
        let mut bundle = Bundle::default();
        for _ in 0..maps {
            bundle.maps.push(read_map(&mut r)?);
        }
        for _ in 0..programs {
            let (context, name, _) = (r.u8()?, r.u8()?.into(), r.u16()?);
            let count = r.u32()? as usize;
            let Some(context) = Context::from_number(context) else {
                return error("a context of unknown kind");
            };
            if count > MAX_INSTRUCTIONS {
                return error("more than 65536 instructions in one program");
            }
            let name = r.name(name)?;
            let insns = Insn::decode(r.bytes(count * insn::SIZE)?).unwrap_or_default();
            bundle.programs.push(Program { name, context, insns });
        }
        Ok(bundle)
    }

    /// Names longer than 255 bytes are cut.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        out.extend_from_slice(&MAGIC);
        for half in [VERSION, self.maps.len() as u16, self.programs.len() as u16, 0] {
            out.extend_from_slice(&half.to_le_bytes());
        }
        for map in &self.maps {
            let name = short(&map.name);
            out.extend_from_slice(&[map.kind as u8, name.len() as u8, 0, 0]);
            for word in [map.key, map.value, map.entries, map.flags, map.initial.len() as u32] {
                out.extend_from_slice(&word.to_le_bytes());
            }
            out.extend_from_slice(name.as_bytes());
            out.extend_from_slice(&map.initial);
        }
        for program in &self.programs {
            let name = short(&program.name);
            out.extend_from_slice(&[program.context as u8, name.len() as u8, 0, 0]);
            out.extend_from_slice(&(program.insns.len() as u32).to_le_bytes());
            out.extend_from_slice(name.as_bytes());
            out.extend(program.insns.iter().flat_map(|i| i.to_bytes()));
        }
        out
    }
}

fn short(name: &str) -> &str {
    &name[..name.floor_char_boundary(255)]
}

fn read_map(r: &mut Reader<'_>) -> Result<Spec, BundleError> {
    let (kind, name, _) = (r.u8()?, usize::from(r.u8()?), r.u16()?);
    let (key, value, entries, flags) = (r.u32()?, r.u32()?, r.u32()?, r.u32()?);
    let contents = r.u32()? as usize;
    let name = r.name(name)?;
    let Some(kind) = Kind::from_number(kind.into()) else {
        return Err(BundleError(
            format!(
                "map {name} has type {kind}, which this machine has not: there are {}",
                crate::maps::KINDS
            )
            .into(),
        ));
    };
    let initial = r.bytes(contents)?.to_vec();
    let spec = Spec { name, kind, key, value, entries, flags, initial };
    match spec.check() {
        Ok(()) => Ok(spec),
        Err(why) => Err(BundleError(format!("map {}: {why}", spec.name).into())),
    }
}
