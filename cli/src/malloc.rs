// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `--malloc NAME`: one of the heap libraries in place of the `malloc` of an unmodified program, by way of its loader (ld.so(8),
//! LD_PRELOAD). With `--static` it is `--set alloc.program=NAME`.

use crate::{
    archive::Archive,
    fault::{Fault, Result, file},
    kernel::{self, choices::PROGRAM_ALLOCATOR},
    prepare::Flags,
    progress::Progress,
};
use object::{
    Endianness,
    read::elf::{ElfFile64, ProgramHeader as _},
};
use std::{collections::BTreeMap, fs};
use unilith_image::Image;
use unilith_machine::record::{KernelKind, Mount};

/// Where the machine has the library: a file of the host, as a volume.
const PLACE: &str = "/lib/unilith-malloc.so";
const VARIABLE: &str = "LD_PRELOAD";
/// As many interpreters of scripts as Linux follows (execve(2)).
const MAX_INTERPRETERS: usize = 4;

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Allocator {
    Tlsf,
    Buddy,
    Mimalloc,
    Tiny,
    Region,
    /// Finds misuse of memory: writes beyond a block's end, blocks that are freed twice or used after that.
    Guard,
}

impl Allocator {
    /// As `--set alloc.program` has it.
    fn name(self) -> &'static str {
        match self {
            Allocator::Tlsf => "tlsf",
            Allocator::Buddy => "buddy",
            Allocator::Mimalloc => "mimalloc",
            Allocator::Tiny => "tiny",
            Allocator::Region => "region",
            Allocator::Guard => "guard",
        }
    }
}

/// Refuses what cannot be together; of a program of `--static` it is a choice.
pub fn check(flags: &Flags, set: &mut BTreeMap<String, String>) -> Result<()> {
    let Some(name) = flags.malloc.map(Allocator::name) else { return Ok(()) };
    if flags.r#static {
        let other = set.insert(PROGRAM_ALLOCATOR.into(), name.into()).filter(|other| other != name);
        return match other {
            Some(other) => Err(Fault::new(format!(
                "--malloc {name}: --set {PROGRAM_ALLOCATOR}={other} says another one; leave out one of them"
            ))),
            None => Ok(()),
        };
    }
    let why = if flags.kernel == KernelKind::Linux {
        "it is for the micro kernel: leave out --kernel linux"
    } else if set.get("volumes").is_some_and(|value| value == "off") {
        "the library is a volume: leave out --set volumes=off"
    } else {
        return Ok(());
    };
    Err(Fault::new(format!("--malloc {name}: {why}")))
}

/// Gives the machine the library and has the program's loader load it.
pub fn preload(
    flags: &Flags,
    image: &mut Image,
    volumes: &mut Vec<Mount>,
    progress: &Progress,
) -> Result<()> {
    let Some(name) = flags.malloc.map(Allocator::name).filter(|_| !flags.r#static) else { return Ok(()) };
    let bytes = fs::read(&image.root).map_err(file("read", &image.root))?;
    let program = image.config.args.first().map_or("", String::as_str);
    if let Some(archive) = Archive::read(&bytes)
        && let Some(path) = without_loader(&archive, program)
    {
        return Err(Fault::new(format!(
            "--malloc {name}: {path} is linked statically, so its allocator is part of it; build it with CC='unilith cc' and run it with \
             --static --set {PROGRAM_ALLOCATOR}={name}"
        )));
    }
    let library = kernel::malloc::library(name, progress)?;
    volumes.push(Mount::new(library, PLACE, true));
    let env = &mut image.config.env;
    match env.iter_mut().find(|(key, value)| key == VARIABLE && !value.is_empty()) {
        // The program's own may allocate, too.
        Some((_, value)) => *value = format!("{PLACE}:{value}"),
        None => env.push((VARIABLE.into(), PLACE.into())),
    }
    Ok(())
}

/// The program, or the interpreter of the script that it is, if no loader loads it. What is not in the image is not judged.
fn without_loader(archive: &Archive, program: &str) -> Option<String> {
    let mut path = program.to_string();
    for _ in 0..MAX_INTERPRETERS {
        let code = archive.file(&path)?;
        let Some(script) = code.strip_prefix(b"#!") else {
            let elf = ElfFile64::<Endianness>::parse(code).ok()?;
            let endian = elf.endian();
            let asks =
                |h: &object::elf::ProgramHeader64<Endianness>| h.p_type(endian) == object::elf::PT_INTERP;
            return (!elf.elf_program_headers().iter().any(asks)).then_some(path);
        };
        let line = script.split(|byte| *byte == b'\n').next()?;
        path = String::from_utf8_lossy(line).split_whitespace().next()?.to_string();
    }
    None
}
