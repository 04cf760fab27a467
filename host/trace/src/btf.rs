// SPDX-License-Identifier: Apache-2.0 OR MIT
//! BTF, the types of an object file (Documentation/bpf/btf.rst of Linux): maps are described with it, and what CO-RE
//! refers to.

use std::collections::HashMap;

const MAGIC: u16 = 0xeb9f;
/// Types within types; more is damage.
const MAX_DEPTH: usize = 32;

/// Kinds of type that are told apart here.
mod kind {
    pub const INT: u32 = 1;
    pub const PTR: u32 = 2;
    pub const ARRAY: u32 = 3;
    pub const STRUCT: u32 = 4;
    pub const UNION: u32 = 5;
    pub const ENUM: u32 = 6;
    pub const TYPEDEF: u32 = 8;
    pub const VOLATILE: u32 = 9;
    pub const CONST: u32 = 10;
    pub const RESTRICT: u32 = 11;
    pub const FUNC_PROTO: u32 = 13;
    pub const VAR: u32 = 14;
    pub const DATASEC: u32 = 15;
    pub const FLOAT: u32 = 16;
    pub const DECL_TAG: u32 = 17;
    pub const TYPE_TAG: u32 = 18;
    pub const ENUM64: u32 = 19;
}

/// A member of a structure, or a variable of a section.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    pub name: String,
    pub of: u32,
    /// In bits.
    pub offset: u32,
}

#[derive(Clone, Debug)]
struct Type {
    name: u32,
    kind: u32,
    /// Bytes, or the type that is meant.
    size: u32,
    members: Vec<Member>,
    /// Of an array.
    element: u32,
    count: u32,
}

/// All types of a file; number 0 is `void`.
#[derive(Debug, Default)]
pub struct Types {
    all: Vec<Type>,
    strings: Vec<u8>,
}

/// Words of a section, which may end too early.
pub struct Words<'a> {
    bytes: &'a [u8],
}

impl<'a> Words<'a> {
    pub fn new(bytes: &'a [u8]) -> Words<'a> {
        Words { bytes }
    }

    pub fn bytes(&mut self, count: usize) -> Option<&'a [u8]> {
        let (bytes, rest) = self.bytes.split_at_checked(count)?;
        self.bytes = rest;
        Some(bytes)
    }

    pub fn next(&mut self) -> Option<u32> {
        Some(u32::from_le_bytes(self.bytes(4)?.try_into().ok()?))
    }

    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }
}

/// A part of a section that its header describes.
pub fn part(section: &[u8], header: u32, offset: u32, length: u32) -> Option<&[u8]> {
    let start = usize::try_from(header).ok()?.checked_add(offset as usize)?;
    section.get(start..start.checked_add(length as usize)?)
}

/// Magic, version and flags, and the length of the header.
pub fn header(words: &mut Words<'_>) -> Option<u32> {
    let magic = words.next()?;
    (magic & 0xffff == u32::from(MAGIC) && magic >> 16 & 0xff == 1).then(|| words.next())?
}

impl Types {
    /// Reads the section `.BTF`; `None` when it is damaged.
    pub fn read(section: &[u8]) -> Option<Types> {
        let mut words = Words::new(section);
        let length = header(&mut words)?;
        let mut field = || words.next();
        let types = part(section, length, field()?, field()?)?;
        let strings = part(section, length, field()?, field()?)?;
        let void = Type { name: 0, kind: 0, size: 0, members: Vec::new(), element: 0, count: 0 };
        let mut read = Types { all: vec![void], strings: strings.to_vec() };
        let mut words = Words::new(types);
        while !words.is_empty() {
            let next = read.next(&mut words)?;
            read.all.push(next);
        }
        Some(read)
    }

    fn next(&self, words: &mut Words<'_>) -> Option<Type> {
        let (name, info, size) = (words.next()?, words.next()?, words.next()?);
        let (kind, count, flag) = (info >> 24 & 0x1f, info & 0xffff, info >> 31 != 0);
        let mut t = Type { name, kind, size, members: Vec::new(), element: 0, count: 0 };
        match kind {
            kind::INT | kind::VAR | kind::DECL_TAG => {
                words.next()?;
            }
            kind::ARRAY => {
                t.element = words.next()?;
                words.next()?;
                t.count = words.next()?;
            }
            kind::STRUCT | kind::UNION => {
                for _ in 0..count {
                    let (name, of, offset) = (words.next()?, words.next()?, words.next()?);
                    // With the flag the upper byte is the size of a bit field.
                    let offset = if flag { offset & 0xff_ffff } else { offset };
                    t.members.push(Member { name: self.text(name).into(), of, offset });
                }
            }
            kind::DATASEC => {
                for _ in 0..count {
                    let (of, offset, _) = (words.next()?, words.next()?, words.next()?);
                    t.members.push(Member { name: String::new(), of, offset: offset.checked_mul(8)? });
                }
            }
            kind::ENUM | kind::FUNC_PROTO => {
                words.bytes(8 * count as usize)?;
            }
            kind::ENUM64 => {
                words.bytes(12 * count as usize)?;
            }
            _ => {}
        }
        Some(t)
    }

    /// A string of the file.
    pub fn text(&self, at: u32) -> &str {
        let rest = self.strings.get(at as usize..).unwrap_or_default();
        let end = rest.iter().position(|b| *b == 0).unwrap_or(rest.len());
        std::str::from_utf8(&rest[..end]).unwrap_or_default()
    }

    /// The type without names and qualifiers around it.
    fn plain(&self, mut number: u32) -> Option<&Type> {
        for _ in 0..MAX_DEPTH {
            let t = self.all.get(number as usize)?;
            match t.kind {
                kind::TYPEDEF
                | kind::VOLATILE
                | kind::CONST
                | kind::RESTRICT
                | kind::TYPE_TAG
                | kind::VAR => {
                    number = t.size;
                }
                _ => return Some(t),
            }
        }
        None
    }

    /// Bytes of a value.
    pub fn size(&self, number: u32) -> Option<u32> {
        let (mut number, mut times) = (number, 1u32);
        for _ in 0..MAX_DEPTH {
            let t = self.plain(number)?;
            match t.kind {
                kind::ARRAY => (number, times) = (t.element, times.checked_mul(t.count)?),
                kind::PTR => return times.checked_mul(8),
                kind::INT | kind::STRUCT | kind::UNION | kind::ENUM | kind::ENUM64 | kind::FLOAT => {
                    return times.checked_mul(t.size);
                }
                _ => return None,
            }
        }
        None
    }

    /// Name and members of a structure.
    pub fn structure(&self, number: u32) -> Option<(&str, &[Member])> {
        let t = self.plain(number)?;
        matches!(t.kind, kind::STRUCT | kind::UNION).then(|| (self.text(t.name), t.members.as_slice()))
    }

    /// What an array consists of.
    pub fn element(&self, number: u32) -> Option<u32> {
        let t = self.plain(number)?;
        (t.kind == kind::ARRAY).then_some(t.element)
    }

    /// What is behind a pointer.
    fn target(&self, number: u32) -> Option<u32> {
        let t = self.plain(number)?;
        (t.kind == kind::PTR).then_some(t.size)
    }

    /// The variables of a section, by name.
    pub fn variables(&self, section: &str) -> HashMap<String, u32> {
        let found = self.all.iter().filter(|t| t.kind == kind::DATASEC && self.text(t.name) == section);
        let variable = |m: &Member| {
            let t = self.all.get(m.of as usize).filter(|t| t.kind == kind::VAR)?;
            Some((self.text(t.name).to_string(), t.size))
        };
        found.flat_map(|t| t.members.iter().filter_map(variable)).collect()
    }

    /// What `__uint(name, value)` says: the length of the array that the member points to.
    pub fn number(&self, members: &[Member], name: &str) -> Option<u32> {
        let member = members.iter().find(|m| m.name == name)?;
        let t = self.plain(self.target(member.of)?)?;
        (t.kind == kind::ARRAY).then_some(t.count)
    }

    /// Bytes of what `__type(name, type)` names.
    pub fn size_of(&self, members: &[Member], name: &str) -> Option<u32> {
        let member = members.iter().find(|m| m.name == name)?;
        self.size(self.target(member.of)?)
    }
}

/// What a place of a program refers to (`struct bpf_core_relo`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reference {
    /// Byte in the section.
    pub at: u32,
    pub of: u32,
    /// Indexes of members, joined by colons.
    pub path: String,
    pub kind: u32,
}

/// Kinds of reference.
pub mod reference {
    pub const BYTE_OFFSET: u32 = 0;
    pub const BYTE_SIZE: u32 = 1;
    pub const EXISTS: u32 = 2;
}

/// The references of a section of programs, from `.BTF.ext`.
pub fn references(ext: &[u8], types: &Types, section: &str) -> Option<Vec<Reference>> {
    let mut words = Words::new(ext);
    let length = header(&mut words)?;
    // Offsets and lengths of function and line information, which is passed over.
    words.bytes(16)?;
    if length < 32 {
        return Some(Vec::new());
    }
    let mut words = Words::new(part(ext, length, words.next()?, words.next()?)?);
    let mut found = Vec::new();
    if words.is_empty() {
        return Some(found);
    }
    let record = words.next()? as usize;
    while !words.is_empty() {
        let (name, count) = (words.next()?, words.next()?);
        for _ in 0..count {
            let mut fields = Words::new(words.bytes(record)?);
            let (at, of, path, kind) = (fields.next()?, fields.next()?, fields.next()?, fields.next()?);
            if types.text(name) == section {
                found.push(Reference { at, of, path: types.text(path).into(), kind });
            }
        }
    }
    Some(found)
}
