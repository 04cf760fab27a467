// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Loading: the program, its interpreter, its stack.

use crate::elf::{Elf, Segment, read_at};
use crate::script::{LOOKED_AT, first_line};
use crate::stack::{Contents, build, check};
use abi::{Errno, PAGE_SIZE, Result, errno::*};
use alloc::sync::Arc;
use alloc::vec::Vec;
use mem::{Limits, MappedFile, MmMap, Place, Prot, Request, Space, USER_END};

const PAGE: u64 = PAGE_SIZE as u64;
/// Scripts whose interpreter is a script again (Linux' limit on binary formats in a row).
const MAX_INTERPRETERS: usize = 5;

// Keys of the auxiliary vector (Linux' asm/auxvec.h, linux/auxvec.h).
const AT_PHDR: u64 = 3;
const AT_PHENT: u64 = 4;
const AT_PHNUM: u64 = 5;
const AT_PAGESZ: u64 = 6;
const AT_BASE: u64 = 7;
const AT_FLAGS: u64 = 8;
const AT_ENTRY: u64 = 9;
const AT_UID: u64 = 11;
const AT_EUID: u64 = 12;
const AT_GID: u64 = 13;
const AT_EGID: u64 = 14;
const AT_PLATFORM: u64 = 15;
const AT_HWCAP: u64 = 16;
const AT_CLKTCK: u64 = 17;
const AT_SECURE: u64 = 23;
const AT_RANDOM: u64 = 25;
const AT_HWCAP2: u64 = 26;
const AT_EXECFN: u64 = 31;
const AT_SYSINFO_EHDR: u64 = 33;
const AT_MINSIGSTKSZ: u64 = 51;

/// Ids of the auxiliary vector.
#[derive(Clone, Copy, Debug, Default)]
pub struct Identity {
    pub uid: u32,
    pub euid: u32,
    pub gid: u32,
    pub egid: u32,
    /// AT_SECURE: the environment is not to be trusted.
    pub is_secure: bool,
}

/// What the auxiliary vector says of the machine.
#[derive(Clone, Copy, Debug, Default)]
pub struct Machine {
    /// AT_HWCAP: CPUID leaf 1, EDX.
    pub hwcap: u64,
    /// AT_HWCAP2: bit 1 is FSGSBASE.
    pub hwcap2: u64,
    /// AT_MINSIGSTKSZ.
    pub signal_stack: u64,
    /// AT_SYSINFO_EHDR: where the vDSO is in the new space; 0 for none.
    pub vdso: u64,
}

/// Finds a file by the path that a script or a program names.
pub type Open<'a> = &'a mut dyn FnMut(&[u8], Interpreter) -> Result<Arc<MappedFile>>;

/// What execve was asked to run.
pub struct Executable<'a> {
    pub file: Arc<MappedFile>,
    /// The path as it was given: AT_EXECFN, and what a script's interpreter is told.
    pub name: Vec<u8>,
    pub arguments: Vec<Vec<u8>>,
    pub environment: Vec<Vec<u8>>,
    /// A script's interpreter would not find it by its name any more: `ENOENT` for one (execveat(2)).
    pub is_closed: bool,
    /// The ids that the program runs with. Asked once, when the file that is run is known: `file`, or of a script the last
    /// [`Interpreter::OfScript`] that `open` has found.
    pub identity: &'a mut dyn FnMut() -> Result<Identity>,
    /// Asked when all of the program is mapped, so that what it adds to the space takes no place that the program wants.
    pub machine: &'a mut dyn FnMut() -> Result<Machine>,
    /// AT_RANDOM.
    pub random: [u8; 16],
    pub limits: Limits,
    /// Finds interpreters; checks that they may be executed.
    pub open: Open<'a>,
}

/// What an interpreter is looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interpreter {
    /// It runs in the script's place.
    OfScript,
    /// The dynamic linker, which runs for the program.
    OfProgram,
}

/// A space that is ready to run.
#[derive(Debug)]
pub struct Loaded {
    /// First instruction, and the stack pointer it expects.
    pub entry: u64,
    pub stack: u64,
    /// The file that was loaded: the interpreter's of a script.
    pub path: Vec<u8>,
    /// Its arguments: a script's interpreter got more than the caller gave.
    pub arguments: Vec<Vec<u8>>,
    /// For /proc/self: the auxiliary vector.
    pub auxv: Vec<u64>,
}

/// Why a program was not loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The caller of execve(2) is told.
    Refused(Errno),
    /// Linux has given up the old program when it finds this: what called execve(2) is killed by SIGSEGV.
    TooLate(Errno),
}

impl From<Errno> for Failure {
    fn from(error: Errno) -> Failure {
        Failure::Refused(error)
    }
}

impl Failure {
    /// The reason, for whom nothing is too late.
    pub fn errno(self) -> Errno {
        match self {
            Failure::Refused(error) | Failure::TooLate(error) => error,
        }
    }
}

/// Loads the program into an empty space.
pub fn load(space: &Space, program: Executable<'_>) -> core::result::Result<Loaded, Failure> {
    let Executable {
        mut file,
        name,
        mut arguments,
        is_closed,
        environment,
        identity,
        machine,
        random,
        limits,
        open,
    } = program;
    // Linux gives a program without arguments an empty one (CVE-2021-4034).
    if arguments.is_empty() {
        arguments.push(Vec::new());
    }
    check(&name, &arguments, &environment, &limits)?;
    let mut script = name.clone();
    let mut tries = 0;
    loop {
        let mut start = [0; LOOKED_AT];
        read_at(&*file.source, 0, &mut start)?;
        let Some(line) = first_line(&start)? else { break };
        if is_closed {
            return Err(ENOENT.into());
        }
        // The script's own argument 0 gives way to interpreter, its argument, and the script's path.
        let mut new: Vec<Vec<u8>> = Vec::new();
        new.push(line.interpreter.clone());
        new.extend(line.argument);
        new.push(script);
        new.extend(arguments.into_iter().skip(1));
        arguments = new;
        check(&name, &arguments, &environment, &limits)?;
        file = open(&line.interpreter, Interpreter::OfScript)?;
        script = line.interpreter;
        tries += 1;
        if tries > MAX_INTERPRETERS {
            return Err(ELOOP.into());
        }
    }

    let elf = Elf::read(&*file.source)?;
    let interpreter = match &elf.interpreter {
        Some(path) => {
            let file = open(path, Interpreter::OfProgram)?;
            let elf = Elf::read_interpreter(&*file.source)?;
            Some((file, elf))
        }
        None => None,
    };
    let identity = identity()?;
    let image = Image { file, elf, interpreter };
    let fill = Fill { name, arguments, environment, identity, machine, random };
    map(space, image, fill).map_err(Failure::TooLate)
}

/// What is mapped.
struct Image {
    file: Arc<MappedFile>,
    elf: Elf,
    interpreter: Option<(Arc<MappedFile>, Elf)>,
}

/// What is told on the stack.
struct Fill<'a> {
    name: Vec<u8>,
    arguments: Vec<Vec<u8>>,
    environment: Vec<Vec<u8>>,
    identity: Identity,
    machine: &'a mut dyn FnMut() -> Result<Machine>,
    random: [u8; 16],
}

/// Maps the program, its interpreter and its stack.
fn map(space: &Space, image: Image, fill: Fill<'_>) -> Result<Loaded> {
    let Image { file, elf, interpreter } = image;
    let Fill { name, arguments, environment, identity, machine, random } = fill;
    let layout = space.layout();
    // A PIE goes where programs go. Without an interpreter it may be the dynamic linker itself, run by hand, which
    // must not be in the way of the program it is going to map: mmap finds the place.
    let wish = if interpreter.is_some() { Some(layout.pie_base) } else { None };
    let base = place(space, &elf, wish)?;
    // Linux looks at the addresses as they stand in the file.
    if !elf.segments.iter().all(|segment| segment.is_possible(segment.address)) {
        return Err(EINVAL);
    }
    let end = map_segments(space, &file, &elf, base)?;
    let entry = base.wrapping_add(elf.entry);
    let brk = if elf.relocatable && interpreter.is_none() { layout.pie_base } else { end };
    space.start_brk(brk.saturating_add(layout.brk_gap).min(USER_END - PAGE).next_multiple_of(PAGE));

    let (mut start, mut interpreter_base) = (entry, 0);
    if let Some((file, elf)) = &interpreter {
        interpreter_base = place(space, elf, None)?;
        elf.span()?;
        map_segments(space, file, elf, interpreter_base)?;
        start = interpreter_base.wrapping_add(elf.entry);
    }
    if start >= USER_END {
        return Err(EINVAL);
    }

    let machine = machine()?;
    let contents = Contents {
        execfn: &name,
        arguments: &arguments,
        environment: &environment,
        platform: b"x86_64",
        random,
        executable: elf.executable_stack,
    };
    let placed = build(space, &contents, |at| {
        let mut pairs = Vec::new();
        if machine.vdso != 0 {
            pairs.push((AT_SYSINFO_EHDR, machine.vdso));
        }
        pairs.extend([
            (AT_MINSIGSTKSZ, machine.signal_stack),
            (AT_HWCAP, machine.hwcap),
            (AT_PAGESZ, PAGE),
            (AT_CLKTCK, 100),
            (AT_PHDR, base.wrapping_add(elf.header_address())),
            (AT_PHENT, 56),
            (AT_PHNUM, elf.header_count),
            (AT_BASE, interpreter_base),
            (AT_FLAGS, 0),
            (AT_ENTRY, entry),
            (AT_UID, identity.uid.into()),
            (AT_EUID, identity.euid.into()),
            (AT_GID, identity.gid.into()),
            (AT_EGID, identity.egid.into()),
            (AT_SECURE, identity.is_secure.into()),
            (AT_RANDOM, at.random),
            (AT_HWCAP2, machine.hwcap2),
            (AT_EXECFN, at.execfn),
            (AT_PLATFORM, at.platform),
        ]);
        pairs
    })?;
    let (arguments_at, environment_at) = (placed.arguments, placed.environment);
    space.begin_mm_map(MmMap {
        start_stack: placed.pointer,
        arg_start: arguments_at.0,
        arg_end: arguments_at.1,
        env_start: environment_at.0,
        env_end: environment_at.1,
        ..elf.mm_map(base)
    });
    Ok(Loaded { entry: start, stack: placed.pointer, path: file.path.clone(), arguments, auxv: placed.auxv })
}

/// What is added to the addresses of the file.
fn place(space: &Space, elf: &Elf, wish: Option<u64>) -> Result<u64> {
    if !elf.relocatable {
        return Ok(0);
    }
    let ((start, length), align) = (elf.span()?, elf.align());
    if length > USER_END || align > 1 << 40 {
        return Err(ENOMEM);
    }
    // A place of that size is looked for and given back at once: the space is ours alone.
    let room = length.checked_add(align - PAGE).ok_or(ENOMEM)?;
    let wish = wish.map_or(0, |w| w & !(align - 1));
    let at = space.map(Request { address: wish, ..Request::anonymous(room, Prot::NONE) })?;
    space.unmap(at, room)?;
    Ok(at.next_multiple_of(align).wrapping_sub(start & !(align - 1)))
}

fn map_segments(space: &Space, file: &Arc<MappedFile>, elf: &Elf, base: u64) -> Result<u64> {
    let mut top = 0;
    for segment in &elf.segments {
        let address = base.wrapping_add(segment.address);
        if !segment.is_possible(address) {
            return Err(ENOMEM);
        }
        map_segment(space, file, segment, address)?;
        top = top.max(address + segment.memory_size);
    }
    abi::page_up(top).ok_or(ENOMEM)
}

/// Maps one that is possible.
fn map_segment(space: &Space, file: &Arc<MappedFile>, segment: &Segment, address: u64) -> Result<()> {
    let Segment { offset, file_size, memory_size, rights, .. } = *segment;
    let lead = address % PAGE;
    let start = address - lead;
    let in_file = if file_size == 0 { 0 } else { pages(file_size, lead)? };
    let in_memory = pages(memory_size, lead)?;
    let fixed =
        |at, length, rights| Request { place: Place::Fixed, ..Request::anonymous(length, rights).at(at) };
    if in_file > 0 {
        space.map(fixed(start, in_file, rights).of(file.clone(), offset / PAGE))?;
    }
    if memory_size == file_size {
        return Ok(());
    }
    if in_memory > in_file {
        let at = start.checked_add(in_file).ok_or(ENOMEM)?;
        // Whatever the segment says, a bss is read and written.
        let executable = if rights.contains(Prot::EXECUTE) { Prot::EXECUTE } else { Prot::NONE };
        space.map(fixed(at, in_memory - in_file, Prot::READ.with(Prot::WRITE).with(executable)))?;
    }
    // The page that file and bss share, where the program may write to it.
    if file_size > 0 && rights.contains(Prot::WRITE) {
        space.zero_to_page_end(address + file_size)?;
    }
    Ok(())
}

/// Bytes of whole pages for `length` bytes that start `lead` bytes into a page.
fn pages(length: u64, lead: u64) -> core::result::Result<u64, Errno> {
    length.checked_add(lead).and_then(abi::page_up).ok_or(ENOMEM)
}
