// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Where everything goes, relative to the start of the program.

use crate::code::{STUB, StartCode};
use crate::elf::*;
use crate::error::{Error, Result, with_room};
use crate::scan::{Needs, scan};
use crate::symbols::{Symbols, Target};
use crate::{IMAGE_MAX, Input, OBJECTS_MAX, Resolver};
use alloc::format;
use alloc::vec::Vec;
use api_overlay::sort;

const PAGE: u64 = 4096;
/// The thread control block: a pointer to itself, and the stack canary at 0x28.
pub const CONTROL_BLOCK: u64 = 64;

/// Objects that are ready to be placed.
pub struct Plan<'a> {
    pub(crate) objects: Vec<Object<'a>>,
    pub(crate) symbols: Symbols,
    pub(crate) needs: Needs,
    /// By object and section; meaningful for sections that are kept.
    pub(crate) sections_at: Vec<Vec<u64>>,
    pub(crate) commons_at: Vec<u64>,
    pub(crate) start: StartCode,
    pub(crate) stubs_at: u64,
    pub(crate) table_at: u64,
    /// Thread-local variables, and the control block behind them.
    pub(crate) thread_at: u64,
    pub(crate) thread_pointer: u64,
    /// End of the text's bytes, start and end of those of the read-only data, and of the data.
    pub(crate) text_end: u64,
    pub(crate) rodata: (u64, u64),
    pub(crate) data: (u64, u64),
    /// End of everything, whole pages.
    pub(crate) end: u64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Class {
    Text,
    ReadOnly,
    Data,
    ThreadData,
    ThreadZero,
    Zero,
}

fn class(section: &Section<'_>) -> Class {
    match (section.has(SHF_TLS), section.has_bytes()) {
        (true, true) => Class::ThreadData,
        (true, false) => Class::ThreadZero,
        _ if section.has(SHF_EXECINSTR) => Class::Text,
        (false, false) => Class::Zero,
        _ if section.has(SHF_WRITE) => Class::Data,
        _ => Class::ReadOnly,
    }
}

/// Offsets handed out in ascending order.
struct Cursor(u64);

impl Cursor {
    fn take(&mut self, size: u64, align: u64) -> u64 {
        let at = self.0.next_multiple_of(align);
        // Sections are at most a file or IMAGE_MAX long, and there are at most 64 Ki of each of 64 objects.
        self.0 = at.saturating_add(size).min(1 << 48);
        at
    }
}

/// A list of functions to call: object and section of the pointers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Calls {
    order: u64,
    pub object: usize,
    pub section: usize,
    /// `.ctors` is called from its end.
    pub backwards: bool,
}

/// The number behind `.init_array.`; those without come last.
fn priority(name: &[u8], base: &str) -> u64 {
    let digits = name.strip_prefix(base.as_bytes()).and_then(|rest| rest.strip_prefix(b"."));
    let number = digits.and_then(|d| core::str::from_utf8(d).ok()).and_then(|d| d.parse::<u16>().ok());
    number.map_or(0x1_0000, u64::from)
}

/// Constructors and destructors in the order in which they are listed.
fn calls(objects: &[Object<'_>], symbols: &Symbols) -> (Vec<Calls>, Vec<Calls>) {
    let (mut first, mut last) = (Vec::new(), Vec::new());
    for (object, content) in objects.iter().enumerate() {
        for (section, s) in content.sections.iter().enumerate().filter(|(i, _)| symbols.kept[object][*i]) {
            let one = |order, backwards| Calls { order, object, section, backwards };
            match s.kind {
                SHT_PREINIT_ARRAY => first.push(one(0, false)),
                SHT_INIT_ARRAY => first.push(one(1 + priority(s.name, ".init_array"), false)),
                SHT_FINI_ARRAY => last.push(one(priority(s.name, ".fini_array"), false)),
                SHT_PROGBITS if s.name.starts_with(b".ctors") => first.push(one(1 + 0x1_0000, true)),
                SHT_PROGBITS if s.name.starts_with(b".dtors") => last.push(one(0x1_0000, true)),
                _ => {}
            }
        }
    }
    sort(&mut first, |a, b| a < b);
    sort(&mut last, |a, b| a < b);
    (first, last)
}

impl<'a> Plan<'a> {
    /// Reads the objects and settles their symbols.
    pub fn new(inputs: &[Input<'a>], resolver: &dyn Resolver) -> Result<Plan<'a>> {
        let Some(first) = inputs.first() else { return Err(Error::new("link", "no object to link")) };
        if inputs.len() > OBJECTS_MAX {
            return Err(Error::new(
                first.name,
                format_args!("more than {OBJECTS_MAX} objects in one program"),
            ));
        }
        let mut objects = with_room(inputs.len(), "the objects")?;
        for input in inputs {
            objects.push(Object::read(input)?);
        }
        let symbols = Symbols::settle(&objects, resolver)?;
        let Some(main) = symbols.main else {
            return Err(Error::new(first.name, "no function main: that is where a program begins"));
        };
        if !matches!(main, Target::Own { .. }) {
            return Err(Error::new(first.name, "main is not a function of the program"));
        }
        let needs = scan(&objects, &symbols)?;
        Self::lay_out(objects, symbols, needs)
    }

    fn lay_out(objects: Vec<Object<'a>>, symbols: Symbols, needs: Needs) -> Result<Plan<'a>> {
        let mut sections_at = with_room(objects.len(), "the sections")?;
        for object in &objects {
            let mut places = with_room(object.sections.len(), "the sections")?;
            places.resize(object.sections.len(), 0);
            sections_at.push(places);
        }
        let (first, last) = calls(&objects, &symbols);
        let start = StartCode::new(&objects, &symbols, &needs, first, last);
        let mut at = Cursor(0);
        at.take(start.size, 1);
        let stubs_at = at.take(needs.stubs.len() as u64 * STUB, 16);
        let mut place = |at: &mut Cursor, wanted: Class| {
            let mut most_align = 1;
            for (number, object) in objects.iter().enumerate() {
                for (index, section) in object.sections.iter().enumerate() {
                    if symbols.kept[number][index] && class(section) == wanted {
                        sections_at[number][index] = at.take(section.size, section.align);
                        most_align = section.align.max(most_align);
                    }
                }
            }
            most_align
        };
        place(&mut at, Class::Text);
        let text_end = at.0;
        let rodata_start = at.take(0, PAGE);
        place(&mut at, Class::ReadOnly);
        let rodata = (rodata_start, at.0);
        let data_start = at.take(0, PAGE);
        place(&mut at, Class::Data);
        let table_at = at.take(needs.table_size, 16);
        // The thread pointer is a multiple of the largest alignment, and so is the distance from the block's start:
        // sections are placed from a page-aligned dummy start and moved as a whole.
        let mut within = Cursor(0);
        let align = place(&mut within, Class::ThreadData).max(place(&mut within, Class::ThreadZero)).max(64);
        let thread_size = within.take(0, align);
        let thread_at = at.take(thread_size, align);
        let thread_pointer = at.take(CONTROL_BLOCK, 1);
        let data = (data_start, at.0);
        place(&mut at, Class::Zero);
        let mut commons_at = with_room(symbols.commons.len(), "the symbols")?;
        for common in &symbols.commons {
            commons_at.push(at.take(common.size, common.align));
        }
        let end = at.take(0, PAGE);
        if end > IMAGE_MAX {
            let most = IMAGE_MAX >> 20;
            let what = format!("the program needs {} KiB of memory; at most {most} MiB is given", end >> 10);
            return Err(Error::new(objects[0].name, what));
        }
        for (number, object) in objects.iter().enumerate() {
            for (index, section) in object.sections.iter().enumerate() {
                if symbols.kept[number][index] && section.has(SHF_TLS) {
                    sections_at[number][index] += thread_at;
                }
            }
        }
        Ok(Plan {
            objects,
            symbols,
            needs,
            sections_at,
            commons_at,
            start,
            stubs_at,
            table_at,
            thread_at,
            thread_pointer,
            text_end,
            rodata,
            data,
            end,
        })
    }

    /// Bytes of memory the program needs, whole pages, with the stack not included.
    pub fn size(&self) -> u64 {
        self.end
    }
}
