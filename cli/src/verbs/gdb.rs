// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `unilith gdb`: the host's debugger on a machine that is a process, with the symbols of the kernel, the program and its
//! libraries.

use crate::{
    archive::Archive,
    fault::{Fault, Result, file},
};
use object::{
    Endianness,
    elf::{FileHeader64, PT_LOAD},
    read::elf::{FileHeader, ProgramHeader},
};
use std::{
    fs, io,
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::Command,
};
use unilith_machine::{
    MachineError,
    record::Module,
    store::{Machine, Store},
};

#[derive(clap::Args, Clone, Debug)]
pub struct Args {
    machine: String,
    /// What gdb is told besides, for example `-- -batch -ex bt`
    #[arg(last = true, value_name = "GDB ARGUMENTS")]
    arguments: Vec<String>,
}

/// Signals of the host that are the kernel's page faults, trapped calls and timer, not the program's.
const KERNELS_SIGNALS: &str = "handle SIGSEGV SIGSYS SIGALRM nostop noprint pass";

pub fn act(store: &Store, args: &Args) -> Result<u8> {
    let machine = store.find(&args.machine)?;
    let name = &machine.spec.name;
    if !machine.state.phase.is_alive() {
        return Err(MachineError::NotRunning(name.clone()).into());
    }
    if !machine.spec.platform.is_process() {
        return Err(Fault::new(format!(
            "machine {name} is a virtual machine, which gdb cannot attach to yet: run it with --machine process"
        )));
    }
    let process =
        machine.state.process.ok_or_else(|| Fault::new(format!("machine {name} has no process")))?;
    let mut gdb = Command::new("gdb");
    gdb.arg("-q").args(machine.spec.symbols.as_deref());
    gdb.args(["-p", &process.pid.to_string(), "-iex", "set confirm off", "-ex", KERNELS_SIGNALS]);
    for (copy, bias) in modules(&machine)? {
        gdb.args(["-ex", &format!("add-symbol-file {} -o {bias:#x}", copy.display())]);
    }
    let error = gdb.args(&args.arguments).exec();
    Err(Fault::new(match error.kind() {
        io::ErrorKind::NotFound => "gdb is not installed; as root: apt-get install -y gdb".into(),
        _ => format!("cannot run gdb: {error}"),
    }))
}

/// A copy of each file the program has mapped to be executed, and what is added to its addresses. The copies go away with
/// the machine.
fn modules(machine: &Machine) -> Result<Vec<(PathBuf, u64)>> {
    let initrd = &machine.spec.initrd;
    let bytes = fs::read(initrd).map_err(file("read", initrd))?;
    let damaged = || Fault::new(format!("{} is no archive", initrd.display()));
    let archive = Archive::read(&bytes).ok_or_else(damaged)?;
    let folder = machine.folder.join("gdb");
    fs::create_dir_all(&folder).map_err(file("make", &folder))?;
    let mut found: Vec<(PathBuf, u64)> = Vec::new();
    for module in &machine.state.modules {
        // Files of volumes are not in the archive; what is no ELF file has no symbols.
        let Some(content) = archive.file(&module.path) else { continue };
        let Some(bias) = bias(content, module) else { continue };
        let copy = folder.join(module.path.trim_start_matches('/').replace('/', "-"));
        if !found.iter().any(|(other, _)| *other == copy) {
            write(&copy, content)?;
            found.push((copy, bias));
        }
    }
    Ok(found)
}

/// Another gdb may have the file open already: it never changes.
fn write(copy: &Path, content: &[u8]) -> Result<()> {
    if fs::metadata(copy).is_ok_and(|m| m.len() == content.len() as u64) {
        return Ok(());
    }
    fs::write(copy, content).map_err(file("write", copy))
}

/// What is added to the addresses of an ELF file of which one segment is known to lie where the module says.
fn bias(content: &[u8], module: &Module) -> Option<u64> {
    let header = FileHeader64::<Endianness>::parse(content).ok()?;
    let endian = header.endian().ok()?;
    let segments = header.program_headers(endian, content).ok()?;
    segments.iter().find_map(|segment| {
        let (start, length) = segment.file_range(endian);
        // A mapping begins with the page that the segment begins in.
        let page = start & !4095;
        let within = segment.p_type(endian) == PT_LOAD && (page..start + length).contains(&module.offset);
        let address = segment.p_vaddr(endian).wrapping_add(module.offset).wrapping_sub(start);
        within.then(|| module.address.wrapping_sub(address))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_placed_by_the_segment_that_is_known() {
        let own = fs::read("/proc/self/exe").unwrap();
        let header = FileHeader64::<Endianness>::parse(&*own).unwrap();
        let endian = header.endian().unwrap();
        let segments = header.program_headers(endian, &*own).unwrap();
        let loaded = segments.iter().filter(|s| s.p_type(endian) == PT_LOAD && s.p_filesz(endian) > 0);
        for segment in loaded {
            let (offset, address) = (segment.p_offset(endian) & !4095, segment.p_vaddr(endian) & !4095);
            let module = Module { path: "/own".into(), address: 0x7000_0000 + address, offset };
            // A page can be the end of one segment and the start of the next: both are right.
            assert!(bias(&own, &module).is_some_and(|b| b & 4095 == 0), "{address:#x}");
        }
        assert_eq!(bias(b"no ELF file", &Module { path: "/x".into(), address: 0, offset: 0 }), None);
    }
}
