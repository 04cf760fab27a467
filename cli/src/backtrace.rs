// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Names and lines for the addresses of a crash report.
//!
//! The kernel prints addresses only: `#3 0x00007f…1234 /usr/lib/x86_64-linux-gnu/libc.so.6+0x1234` for the program (the
//! offset is the file's own address) and `kernel 0xffffffff80212345` for itself. The files are in the image, the kernel's
//! symbols beside the kernel, so the host finds the names when the machine has ended.

use crate::archive::Archive;
use addr2line::Loader;
use object::Object as _;
use std::{
    collections::HashMap,
    fs::{self, File, OpenOptions},
    io::{Read, Seek, SeekFrom, Write},
    path::Path,
};
use unilith_machine::{
    record::{KernelKind, Outcome},
    store::Held,
};

/// The end of the log that may hold the report.
const REPORT_REACH: u64 = 64 << 10;

/// One address of a report.
#[derive(Debug, PartialEq, Eq)]
enum Place {
    Kernel { address: u64 },
    Program { path: String, address: u64 },
}

/// After a machine that crashed: the lines of its report with names, also appended to its log.
pub fn explain(machine: &Held, outcome: &Outcome) -> Vec<String> {
    if outcome.reason.is_none() || machine.spec.kernel_kind != KernelKind::Micro {
        return Vec::new();
    }
    let places: Vec<Place> = tail(&machine.console_log()).lines().filter_map(place).collect();
    let mut modules = Modules { machine, loaders: HashMap::new() };
    let lines: Vec<String> = places.iter().filter_map(|p| modules.name(p)).collect();
    if !lines.is_empty()
        && let Ok(mut log) = OpenOptions::new().append(true).open(machine.console_log())
    {
        // A full disk loses this copy only.
        let _ = writeln!(log, "{}", lines.join("\n"));
    }
    lines
}

fn tail(path: &Path) -> String {
    let mut text = Vec::new();
    let read = File::open(path).and_then(|mut file| {
        let length = file.metadata()?.len();
        file.seek(SeekFrom::Start(length.saturating_sub(REPORT_REACH)))?;
        file.read_to_end(&mut text)
    });
    // A machine that printed nothing has no report either.
    read.map(|_| String::from_utf8_lossy(&text).into_owned()).unwrap_or_default()
}

/// Reads a line of a report.
fn place(line: &str) -> Option<Place> {
    let hex = |text: &str| u64::from_str_radix(text.strip_prefix("0x")?, 16).ok();
    let words: Vec<&str> = line.trim().splitn(3, ' ').collect();
    match words[..] {
        ["kernel", address] => Some(Place::Kernel { address: hex(address)? }),
        [number, address, "kernel"] if number.starts_with('#') => {
            Some(Place::Kernel { address: hex(address)? })
        }
        [number, address, file] if number.starts_with('#') => {
            hex(address)?;
            let (path, offset) = file.rsplit_once('+')?;
            Some(Place::Program { path: path.to_string(), address: hex(offset)? })
        }
        _ => None,
    }
}

/// The files that were asked about so far.
struct Modules<'a> {
    machine: &'a Held,
    loaders: HashMap<String, Option<Loader>>,
}

impl Modules<'_> {
    fn name(&mut self, place: &Place) -> Option<String> {
        let (path, address) = match place {
            Place::Kernel { address } => ("", *address),
            Place::Program { path, address } => (path.as_str(), *address),
        };
        let machine = self.machine;
        let loader = self.loaders.entry(path.to_string()).or_insert_with(|| load(machine, path)).as_ref()?;
        let symbol =
            loader.find_symbol(address).map(|name| addr2line::demangle_auto(name.into(), None).into_owned());
        let line = loader.find_location(address).ok().flatten();
        let line = line.and_then(|l| Some(format!(" at {}:{}", l.file?, l.line?)));
        let what = if path.is_empty() { "the kernel" } else { path };
        Some(format!(
            "  {}{} in {what}",
            symbol.unwrap_or_else(|| format!("{address:#x}")),
            line.unwrap_or_default()
        ))
    }
}

/// The symbols of a file of the image; of the kernel for an empty path.
fn load(machine: &Held, path: &str) -> Option<Loader> {
    if path.is_empty() {
        return Loader::new(machine.spec.symbols.as_ref()?).ok();
    }
    if let Some(linked) = linked(machine, path) {
        return Loader::new(linked).ok();
    }
    let bytes = fs::read(&machine.spec.initrd).ok()?;
    let content = Archive::read(&bytes)?.file(path)?;
    let copy = machine.folder.join("module");
    fs::write(&copy, content).ok()?;
    let loader = Loader::new(&copy).ok();
    // It is mapped by now; the name is no longer needed.
    let _ = fs::remove_file(copy);
    loader
}

/// The file that has a program of `--static` at the addresses where it ran: the kernel's. The program's own file was linked for Linux.
fn linked<'a>(machine: &'a Held, path: &str) -> Option<&'a Path> {
    let symbols =
        machine.spec.symbols.as_deref().filter(|_| machine.spec.args.first().is_some_and(|a| a == path))?;
    let bytes = fs::read(symbols).ok()?;
    object::File::parse(&*bytes).ok()?.section_by_name(".program.text")?;
    Some(symbols)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_a_report_are_told_from_what_programs_print() {
        assert_eq!(
            place("  kernel 0xffffffff80200010"),
            Some(Place::Kernel { address: 0xffff_ffff_8020_0010 })
        );
        assert_eq!(
            place("#3 0xffffffff80200010 kernel"),
            Some(Place::Kernel { address: 0xffff_ffff_8020_0010 })
        );
        let libc = Place::Program { path: "/lib/libc.so.6".into(), address: 0x1234 };
        assert_eq!(place("#0 0x00007f0000001234 /lib/libc.so.6+0x1234"), Some(libc));
        for other in ["#0", "#include <x> y+0x1", "kernel panic", "#1 0x10", ""] {
            assert_eq!(place(other), None, "{other}");
        }
    }
}
