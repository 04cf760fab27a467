// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `load run free programs symbols`.

use crate::programs::{self, Object, Origin, Program, short_name};
use crate::resolve;
use crate::serve::{self, Input, Limits};
use abi::errno::*;
use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use api_alloc::Reserve;
use api_overlay::{Column, Command, Completes, Failure, Listing, Outcome, Session, Value, manual};
use overlay_commands::paths::{self, O_RDONLY, OVERLAY, Tree};
use overlay_link::OBJECT_MAX;
use overlay_symbols::Kind;

pub const COMMANDS: [Command; 5] = [
    Command {
        name: "load",
        arguments: manual!("[-n NAME] FILE..."),
        summary: manual!("Link objects into a program and keep it"),
        help: manual!(
            "Links the objects (ELF, x86-64, relocatable; `unilith overlay build` makes them) against the application's \
               functions and variables and the kernel's calls, and keeps the program for `run`. Several files become one \
               program. A program of the same name is replaced.\n\
               -n NAME  the program's name; the first file's without .o otherwise\n\
               -s SIZE  for each file: the object is so many bytes of standard input, in this order\n\
               -k KEY   with -s: what the host calls these bytes\n\
               -b BYTES  with -s: the objects themselves, which then are no part of standard input"
        ),
        completes: Completes::Paths,
        run: load,
    },
    Command {
        name: "run",
        arguments: manual!("[-t SECONDS] [-w SECONDS] PROGRAM|FILE [ARGUMENT...]"),
        summary: manual!("Run a program"),
        help: manual!(
            "Runs a program that is loaded, by its name, or an object file (a path with a / or with .o at its end), which \
               is linked the first time and kept. A name that is not loaded is looked for as NAME.o in /overlay, the \
               host's directory. The exit code is the program's; 126 says that it cannot be linked, 128 and a signal's \
               number that it was ended: the report says what it did, where, and in which function.\n\
               -t SECONDS  processor time it may use (10); 0 is no limit\n\
               -w SECONDS  how long it may hold a thread of the application in uio_enable_write (2)\n\
               -s SIZE     the first SIZE bytes of standard input are the object; PROGRAM is its name\n\
               -k KEY      with -s: what the host calls these bytes; they are linked once\n\
               -b BYTES    with -s: the object itself, which then is no part of standard input"
        ),
        completes: Completes::Programs,
        run,
    },
    Command {
        name: "free",
        arguments: manual!("PROGRAM..."),
        summary: manual!("Free the memory of loaded programs"),
        help: manual!("Forgets programs. The memory of one that runs is free when it ends."),
        completes: Completes::Programs,
        run: free,
    },
    Command {
        name: "programs",
        arguments: "",
        summary: manual!("List loaded programs"),
        help: manual!(
            "Lists the programs that are linked and kept, where they are, how much memory they have, and how often they \
               were run."
        ),
        completes: Completes::Nothing,
        run: list,
    },
    Command {
        name: "symbols",
        arguments: manual!("[-a ADDRESS...] [PREFIX]"),
        summary: manual!("List or look up symbols of the application"),
        help: manual!(
            "Lists the functions and variables of the application's ELF files whose names begin with PREFIX, at their \
               addresses in this machine: what objects may refer to.\n\
               -a ADDRESS  names what is at an address (hexadecimal) instead"
        ),
        completes: Completes::Symbols,
        run: symbols,
    },
];

const SECOND: u64 = 1_000_000_000;
const TIME: u64 = 10 * SECOND;
const HOLD: u64 = 2 * SECOND;
/// Objects are read in pieces of this many bytes.
const PIECE: usize = 16 << 10;

/// Options before the first operand: what follows that belongs to a program.
struct Options<'a> {
    values: Vec<(u8, &'a [u8])>,
    operands: &'a [&'a [u8]],
}

impl<'a> Options<'a> {
    /// All options have values; those that are allowed are given by their letters.
    fn parse(arguments: &'a [&'a [u8]], letters: &[u8]) -> Result<Options<'a>, Failure> {
        let mut values = Vec::new();
        let mut rest = arguments;
        while let Some((first, after)) = rest.split_first() {
            match *first {
                b"--" => {
                    rest = after;
                    break;
                }
                [b'-', letter, value @ ..] if letters.contains(letter) => {
                    let (value, after) = match (value, after.split_first()) {
                        ([], Some((next, after))) => (*next, after),
                        ([], None) => {
                            let letter = char::from(*letter);
                            return Err(Failure::usage(format!("-{letter} needs a value")));
                        }
                        (value, _) => (value, after),
                    };
                    values.push((*letter, value));
                    rest = after;
                }
                [b'-', _, ..] => {
                    let shown = String::from_utf8_lossy(first);
                    return Err(Failure::usage(format!("there is no option {shown}")));
                }
                _ => break,
            }
        }
        Ok(Options { values, operands: rest })
    }

    fn value(&self, letter: u8) -> Option<&'a [u8]> {
        self.values.iter().rev().find(|(l, _)| *l == letter).map(|(_, value)| *value)
    }

    fn number(&self, letter: u8) -> Result<Option<u64>, Failure> {
        self.value(letter).map(|value| number(letter, value)).transpose()
    }

    /// Seconds as nanoseconds; 0 is no limit.
    fn limit(&self, letter: u8, otherwise: u64) -> Result<u64, Failure> {
        Ok(match self.number(letter)? {
            None => otherwise,
            Some(0) => u64::MAX,
            Some(seconds) => seconds.saturating_mul(SECOND),
        })
    }
}

fn number(letter: u8, value: &[u8]) -> Result<u64, Failure> {
    let number = core::str::from_utf8(value).ok().and_then(|text| text.parse().ok());
    number.ok_or_else(|| {
        let shown = String::from_utf8_lossy(value);
        Failure::usage(format!("-{}: {shown} is not a number", char::from(letter)))
    })
}

fn about(path: &[u8]) -> impl Fn(abi::Errno) -> Failure + '_ {
    move |e| Failure::about(path).errno(e)
}

/// What identifies the file at `path`.
fn origin(path: &[u8]) -> Result<Origin, Failure> {
    let stat = Tree::for_path(path)?
        .lookup(path, true)
        .and_then(|dentry| dentry.inode().stat())
        .map_err(about(path))?;
    Ok(Origin::File { path: path.to_vec(), size: stat.size, changed: stat.modified })
}

fn read_object(session: &dyn Session, path: &[u8]) -> Result<Object, Failure> {
    let file = Tree::for_path(path)?.open(path, O_RDONLY, 0).map_err(about(path))?;
    let mut bytes = Vec::new();
    let mut piece = vec![0; PIECE];
    loop {
        let read = paths::read(session, &file, bytes.len() as u64, &mut piece)?;
        let count = read.map_err(about(path))?;
        if count == 0 {
            break;
        }
        // One byte too many is enough for the linker to refuse it.
        if bytes.len() > OBJECT_MAX {
            break;
        }
        bytes.reserve_fallibly(count).map_err(|_| about(path)(ENOMEM))?;
        bytes.extend_from_slice(&piece[..count]);
        session.checkpoint()?;
    }
    Ok(Object { name: String::from_utf8_lossy(path).into_owned(), bytes })
}

fn load_files(session: &dyn Session, name: &str, files: &[&[u8]]) -> Result<Arc<Program>, Failure> {
    let mut objects = Vec::new();
    for path in files {
        objects.push(read_object(session, path)?);
    }
    let program = Program::link(name, origin(files[0])?, Arc::new(objects))?;
    programs::keep(&program)?;
    Ok(program)
}

fn load(session: &dyn Session, arguments: &[&[u8]]) -> Outcome {
    let options = Options::parse(arguments, b"nskb")?;
    let Some(first) = options.operands.first() else { return Err(Failure::usage("no object to load")) };
    let name = match options.value(b'n') {
        Some(name) => String::from_utf8_lossy(name).into_owned(),
        None => short_name(first),
    };
    match Sent::parse(&options)? {
        None => drop(load_files(session, &name, options.operands)?),
        Some(sent) if sent.sizes.len() != options.operands.len() => {
            return Err(Failure::usage("-s: one size for each file"));
        }
        Some(sent) => {
            let known = sent.known().filter(|program| program.name == name);
            if known.is_none() {
                sent.link(session, &name, options.operands)?;
            }
        }
    }
    Ok(0)
}

fn is_path(text: &[u8]) -> bool {
    text.contains(&b'/') || text.ends_with(b".o")
}

/// The program that is meant, linked if need be.
fn find(session: &dyn Session, named: &[u8]) -> Result<Arc<Program>, Failure> {
    let name = short_name(named);
    if is_path(named) {
        let origin = origin(named)?;
        return match programs::from(&origin) {
            Some(program) => Ok(program),
            None => load_files(session, &name, &[named]),
        };
    }
    if let Some(program) = programs::named(&name) {
        return Ok(program);
    }
    let path = format!("{OVERLAY}/{name}.o");
    load_files(session, &name, &[path.as_bytes()]).map_err(|failure| match failure.errno {
        Some(ENOENT | ENODEV) => {
            let why = format!("no such program is loaded, and there is no {path}");
            Failure::new(name).errno(ENOENT).because(why)
        }
        _ => failure,
    })
}

/// Objects that the host sends, in the command or in front of the program's input.
struct Sent<'a> {
    sizes: Vec<u64>,
    key: &'a [u8],
    bytes: Option<&'a [u8]>,
}

impl<'a> Sent<'a> {
    /// `None` when the operands are files of the machine.
    fn parse(options: &Options<'a>) -> Result<Option<Sent<'a>>, Failure> {
        let mut sizes = Vec::new();
        for (_, value) in options.values.iter().filter(|(letter, _)| *letter == b's') {
            sizes.push(number(b's', value)?);
        }
        let sent = Sent { sizes, key: options.value(b'k').unwrap_or(b""), bytes: options.value(b'b') };
        if sent.bytes.is_some_and(|bytes| bytes.len() as u64 != sent.length()) {
            return Err(Failure::usage("-b: not as many bytes as -s says"));
        }
        Ok((!sent.sizes.is_empty()).then_some(sent))
    }

    fn origin(&self) -> Origin {
        Origin::Sent { key: self.key.to_vec() }
    }

    /// The program if it was sent before.
    fn known(&self) -> Option<Arc<Program>> {
        if self.key.is_empty() { None } else { programs::from(&self.origin()) }
    }

    fn length(&self) -> u64 {
        self.sizes.iter().fold(0, |sum, size| sum.saturating_add(*size))
    }

    /// Links what the host sends, and keeps it. What came behind the objects is answered as well.
    fn link(
        &self,
        session: &dyn Session,
        name: &str,
        files: &[&[u8]],
    ) -> Result<(Arc<Program>, Vec<u8>), Failure> {
        let mut objects = Vec::new();
        let mut rest = Vec::new();
        let mut here = self.bytes;
        for (path, size) in files.iter().zip(&self.sizes) {
            let bytes = match &mut here {
                // All sizes together are what there is.
                Some(here) => here.split_off(..*size as usize).unwrap_or_default().to_vec(),
                None => receive(session, path, *size, &mut rest)?,
            };
            objects.push(Object { name: String::from_utf8_lossy(path).into_owned(), bytes });
        }
        let program = Program::link(name, self.origin(), Arc::new(objects))?;
        programs::keep(&program)?;
        Ok((program, rest))
    }
}

/// Reads `size` bytes, first those in `ahead`; leaves there what came behind them.
fn receive(session: &dyn Session, path: &[u8], size: u64, ahead: &mut Vec<u8>) -> Result<Vec<u8>, Failure> {
    if size > OBJECT_MAX as u64 {
        let why = format!("the object is larger than {} MiB; strip it (strip -g)", OBJECT_MAX >> 20);
        return Err(Failure::about(path).because(why).code(Failure::REFUSED));
    }
    let size = size as usize;
    let mut bytes = core::mem::take(ahead);
    let no_room = |_| Failure::about(path).errno(ENOMEM).code(Failure::REFUSED);
    bytes.reserve_fallibly(size + PIECE).map_err(no_room)?;
    let mut piece = vec![0; PIECE];
    while bytes.len() < size {
        let count = session.read(&mut piece)?;
        if count == 0 {
            let why = "the object did not arrive whole";
            return Err(Failure::about(path).because(why).code(Failure::REFUSED));
        }
        bytes.extend_from_slice(&piece[..count]);
    }
    *ahead = bytes.split_off(size);
    Ok(bytes)
}

fn run(session: &dyn Session, arguments: &[&[u8]]) -> Outcome {
    let options = Options::parse(arguments, b"twskb")?;
    let limits = Limits { time_ns: options.limit(b't', TIME)?, hold_ns: options.limit(b'w', HOLD)? };
    let Some(named) = options.operands.first() else { return Err(Failure::usage("no program to run")) };
    let input = Input::default();
    let program = match Sent::parse(&options)? {
        None => find(session, named)?,
        Some(sent) if sent.sizes.len() > 1 => return Err(Failure::usage("-s: one object at a time")),
        Some(sent) => match sent.known() {
            Some(program) => {
                // Else the object is sent when it is asked for: by a program that reads its input.
                if sent.bytes.is_none() {
                    input.skip(sent.length());
                }
                program
            }
            None => {
                let (program, rest) = sent.link(session, &short_name(named), &[*named])?;
                input.put(rest);
                program
            }
        },
    };
    serve::run(session, &program, options.operands, limits, &input)
}

fn free(session: &dyn Session, arguments: &[&[u8]]) -> Outcome {
    if arguments.is_empty() {
        return Err(Failure::usage("which program?"));
    }
    let mut code = 0;
    for name in arguments {
        if !programs::forget(&short_name(name)) {
            session.fail(&Failure::about(name).because("no such program is loaded"))?;
            code = Failure::FAILED;
        }
    }
    Ok(code)
}

fn list(session: &dyn Session, arguments: &[&[u8]]) -> Outcome {
    if !arguments.is_empty() {
        return Err(Failure::usage("programs takes no arguments"));
    }
    const COLUMNS: [Column; 6] = [
        Column::left("name", "NAME", 20),
        Column::right("address", "ADDRESS", 14),
        Column::right("size_bytes", "SIZE", 8),
        Column::right("runs", "RUNS", 6),
        Column::left("state", "STATE", 8),
        Column::left("from", "FROM", 24),
    ];
    let mut listing = Listing::new(session, &COLUMNS);
    for program in programs::all() {
        let from = match &program.origin {
            Origin::File { path, .. } => String::from_utf8_lossy(path).into_owned(),
            Origin::Sent { .. } => "the host".into(),
        };
        listing.row(&[
            Value::Text(&program.name),
            Value::Text(&format!("{:#x}", program.block.start)),
            Value::Number(program.block.length),
            Value::Number(u64::from(program.runs())),
            Value::Text(if program.is_running() { "running" } else { "loaded" }),
            Value::Text(&from),
        ])?;
    }
    Ok(0)
}

const SYMBOLS: [Column; 5] = [
    Column::right("address", "ADDRESS", 14),
    Column::right("size_bytes", "SIZE", 8),
    Column::left("kind", "KIND", 8),
    Column::left("file", "FILE", 20),
    Column::left("name", "NAME", 0),
];

fn kind(kind: Kind) -> &'static str {
    match kind {
        Kind::Function => "function",
        Kind::Indirect => "indirect",
        Kind::Variable => "variable",
        Kind::ThreadLocal => "thread",
    }
}

fn symbols(session: &dyn Session, arguments: &[&[u8]]) -> Outcome {
    let options = Options::parse(arguments, b"a")?;
    let addresses: Vec<&[u8]> = options.values.iter().filter(|(l, _)| *l == b'a').map(|(_, v)| *v).collect();
    if !addresses.is_empty() {
        let mut code = 0;
        for text in addresses {
            let digits = text.strip_prefix(b"0x").unwrap_or(text);
            let address = core::str::from_utf8(digits).ok().and_then(|d| u64::from_str_radix(d, 16).ok());
            let Some(address) = address else {
                let shown = String::from_utf8_lossy(text);
                return Err(Failure::usage(format!("-a: {shown} is not an address")));
            };
            match resolve::describe(address) {
                Some(name) => session.write(api_overlay::Stream::Out, format!("{name}\n").as_bytes())?,
                None => {
                    session.fail(&Failure::about(text).because("no symbol of the application is there"))?;
                    code = Failure::FAILED;
                }
            }
        }
        return Ok(code);
    }
    if options.operands.len() > 1 {
        return Err(Failure::usage("one prefix at a time"));
    }
    let prefix = options.operands.first().copied().unwrap_or(b"");
    let mut listing = Listing::new(session, &SYMBOLS);
    let mut result = Ok(());
    let mut found = false;
    resolve::each(prefix, &mut |name, symbol, file| {
        found = true;
        result = listing
            .row(&[
                Value::Text(&format!("{:#x}", symbol.address)),
                Value::Number(symbol.size),
                Value::Text(kind(symbol.kind)),
                Value::Text(&String::from_utf8_lossy(file)),
                Value::Text(&String::from_utf8_lossy(name)),
            ])
            .and_then(|()| session.checkpoint());
        result.is_ok()
    });
    result?;
    if !found && !prefix.is_empty() {
        return Err(Failure::about(prefix).because("no symbol of the application begins like that"));
    }
    Ok(0)
}
