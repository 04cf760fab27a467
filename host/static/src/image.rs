// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The one link of a program, its C library and the kernel.

use crate::{
    Kernel, Malloc, Result, StaticError, Workshop,
    anatomy::{ALLOCATOR_NAMES, C_LIBRARY_NAMES},
    command,
    flavour::{Libc, Library, Objects},
    glibc, key,
    lto::Sides,
    reach::Reach,
    read,
    relax::relax,
    run, write,
};
use object::{Object as _, ObjectSymbol as _, read::archive::ArchiveFile};
use std::{
    collections::BTreeSet,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};
use unilith_image::Progress;

/// An image that was linked.
#[derive(Clone, Debug)]
pub struct Linked {
    /// What boots.
    pub boot: PathBuf,
    /// The same with symbols.
    pub symbols: PathBuf,
    /// The program takes block devices.
    pub drives_disks: bool,
    /// One sentence for each thing that the program calls and this machine does not do.
    pub warnings: Vec<String>,
}

/// What decides what is linked and written down of it: an image that is kept was made by this.
const RECIPE: &str = include_str!("image.rs");

/// Where programs begin (`micro/kernel/linked.ld`).
const PROGRAM: u64 = 0x40_0000;
impl Workshop {
    /// Links the objects of a program with the kernel. `script` is `process` or `pc`. `malloc` takes the place of the C library's.
    pub fn link(
        &self,
        kernel: Kernel,
        script: &str,
        objects: &Objects,
        malloc: Option<&Malloc>,
        offline: bool,
        progress: &dyn Progress,
    ) -> Result<Linked> {
        let library = self.library(objects.libc, offline, progress)?;
        let archive = library.archive();
        let scripts = self.micro.join("kernel");
        let file = format!("linked-{script}.ld");
        let allocator = malloc.map_or(Ok(Vec::new()), |malloc| read(&malloc.object))?;
        malloc.map_or(Ok(()), |malloc| Malloc::check(malloc.name, objects))?;
        let objects = match (objects.libc, kernel) {
            (Libc::Musl, Kernel::Bitcode(_)) => objects.bytes.clone(),
            (Libc::Musl, Kernel::Object(_)) => relax(&objects.bytes)?,
            (Libc::Glibc, _) => Workshop::connect_program(&objects.bytes)?,
        };
        let others = library.others()?;
        let inputs = [
            match kernel {
                Kernel::Object(object) => read(object)?,
                Kernel::Bitcode(lto) => lto.version()?,
            },
            objects.clone(),
            read(&archive)?,
            read(&scripts.join(&file))?,
            read(&scripts.join("linked.ld"))?,
            RECIPE.as_bytes().to_vec(),
            allocator,
        ];
        let parts = inputs.iter().chain(others.iter().map(|(_, bytes)| bytes));
        let folder = self.sub("images")?.join(key(parts.map(Vec::as_slice)));
        let (boot, symbols, notes) =
            (folder.join("kernel"), folder.join("kernel.symbols"), folder.join("warnings"));
        if !notes.is_file() {
            progress.step("linking the program with the kernel");
            crate::appear(&folder, |new| {
                let program = new.join("program.o");
                let to = new.join("kernel.symbols");
                let libraries: Vec<PathBuf> = malloc.iter().map(|malloc| malloc.object.clone()).collect();
                // What is made of bitcode goes away with its folder.
                let work =
                    tempfile::tempdir_in(new).map_err(|e| StaticError::io("make a folder in", new, &e))?;
                let sides = match (kernel, &library) {
                    (Kernel::Bitcode(lto), Library::Musl(musl)) => {
                        progress.step("optimising program and kernel together");
                        lto.make(musl, &objects, &libraries, work.path())?
                    }
                    (Kernel::Bitcode(_), Library::Glibc(_)) => {
                        return Err(StaticError::new("--lto is for programs in C with musl: leave it out"));
                    }
                    (Kernel::Object(object), _) => {
                        write(&program, &objects)?;
                        Sides { kernel: object.to_path_buf(), program: program.clone(), says: String::new() }
                    }
                };
                // With what it makes sockets of, as long as nobody knows that it makes none.
                let starts = new.join("starts-kernel.o");
                let has = exported(&read(&sides.kernel)?)?;
                let names = names_of(&[(C_LIBRARY_NAMES, &inputs[2]), (ALLOCATOR_NAMES, &inputs[6])], new)?;
                let names = sides.says.clone() + &names;
                let start = |uses: &dyn Fn(&str) -> bool| {
                    assemble(&new.join("starts.s"), &(starts_of(&has, uses) + &names), &starts)
                };
                start(&|_| true)?;
                let own = [&[sides.program.clone()][..], &libraries].concat();
                let link = |more: &[PathBuf]| {
                    let mut link = command("ld");
                    link.arg("-L").arg(&scripts).arg("-T").arg(scripts.join(&file));
                    link.args(["-static", "--gc-sections", "-z", "max-page-size=4096", "-z", "noexecstack"]);
                    link.args(["-z", "norelro", "--build-id=none", "--no-warn-rwx-segments", "-o"]).arg(&to);
                    link.arg(&sides.kernel).arg(&starts).args(more).args(library.around(&own)?);
                    link.args(library.unwinding());
                    let output =
                        link.output().map_err(|e| StaticError::new(format!("cannot run ld: {e}")))?;
                    Ok((output.status.success(), String::from_utf8_lossy(&output.stderr).into_owned()))
                };
                let mut more = Vec::new();
                let (mut done, mut said) = link(&more)?;
                let mut warnings = Vec::new();
                let files = [(&program, &objects[..]), (&archive, &inputs[2])];
                let others = others.iter().map(|(path, bytes)| (path, &bytes[..]));
                let reach = Reach::new(&files.into_iter().chain(others).collect::<Vec<_>>())?;
                if !done {
                    let missing = missing_calls(&said);
                    if missing.is_empty() {
                        return Err(StaticError::new(failure(&said, library.name())));
                    }
                    if let Kernel::Bitcode(lto) = kernel {
                        lto.check_missing(&missing)?;
                    }
                    let stubs = new.join("missing-kernel.o");
                    assemble(&new.join("missing.s"), &refusals(&missing), &stubs)?;
                    more.push(stubs);
                    (done, said) = link(&more)?;
                    warnings.extend(missing.iter().filter_map(|name| reach.warning(name)));
                }
                if !done {
                    return Err(StaticError::new(failure(&said, library.name())));
                }
                let calls: BTreeSet<String> =
                    exported(&read(&to)?)?.iter().map(|name| glibc::plain(name)).collect();
                let any = calls.contains(ANY);
                start(&|call| calls.contains(call) || any && call.starts_with(SYSCALL))?;
                link(&more)?;
                warnings.extend(reach.execve());
                warnings.extend(reach.dlopen());
                warnings.extend(reach.any());
                if calls.contains(NETDEV) && calls.contains("unilith_network_start") {
                    warnings.extend(reach.stack_has_device());
                }
                let boot = new.join("kernel");
                write(&boot, loaded(read(&to)?, script == "process")?)?;
                // A process machine executes it as nobody, whatever this user's umask is.
                std::fs::set_permissions(&boot, std::fs::Permissions::from_mode(0o755))
                    .map_err(|e| StaticError::io("make executable", &boot, &e))?;
                write(&new.join("warnings"), warnings.join("\n"))
            })?;
        }
        let text = String::from_utf8_lossy(&read(&notes)?).into_owned();
        let linked = exported(&read(&symbols)?)?;
        let drives_disks = DISK.iter().any(|call| linked.contains(*call));
        Ok(Linked { boot, symbols, drives_disks, warnings: text.lines().map(str::to_string).collect() })
    }
}

/// socket(2) and socketpair(2).
const SOCKET: &str = "unilith_syscall_41";
const SOCKETPAIR: &str = "unilith_syscall_53";

/// What the names of all system calls begin with, and one with any number.
const SYSCALL: &str = "unilith_syscall_";
const ANY: &str = "unilith_syscall_any";
/// unilith_netdev_open of `unilith/netdev.h`, and what takes a disk: unilith_blockdev_open of `unilith/blockdev.h`, and
/// unilith_shfs_mount of `unilith/shfs.h`.
const NETDEV: &str = "unilith_raw_netdev_open";
const DISK: [&str; 2] = ["unilith_raw_blockdev_open", "unilith_raw_shfs_mount"];

/// What the kernel starts for the program (`micro/kernel/src/linked.rs`), if it is in this kernel and used.
fn starts_of(kernel: &BTreeSet<String>, uses: &dyn Fn(&str) -> bool) -> String {
    let one = |part: &str, calls: &[&str]| {
        let start = format!("unilith_{part}_start");
        let is_used = kernel.contains(&start) && calls.iter().any(|call| uses(call));
        let to = if is_used { start } else { format!("unilith_{part}_none") };
        let name = format!("unilith_linked_{part}");
        format!(".section .text.{name},\"ax\",@progbits\n.globl {name}\n{name}:\n\tjmp {to}\n")
    };
    // What the vDSO hands on; the program has the call then, for the C library makes it where there is no vDSO.
    let clock = |name: &str, call: &str| {
        // Where the kernel was optimised for the program's calls it has no others.
        let is_there = kernel.contains(&format!("unilith_call_{name}")) && uses(call);
        let to = if is_there { name } else { "none" };
        let name = format!("unilith_linked_{name}");
        format!(".section .text.{name},\"ax\",@progbits\n.globl {name}\n{name}:\n\tjmp unilith_call_{to}\n")
    };
    one("network", &[SOCKET])
        + &one("unix", &[SOCKET, SOCKETPAIR])
        + &one("netdev", &[NETDEV])
        + &one("block", &DISK)
        + &clock("clock_gettime", "unilith_syscall_228")
        + &clock("clock_getres", "unilith_syscall_229")
        + ".section .note.GNU-stack,\"\",@progbits\n"
}

/// The names that an object or image defines for others.
pub(crate) fn exported(elf: &[u8]) -> Result<BTreeSet<String>> {
    let file = object::File::parse(elf).map_err(|e| StaticError::new(e.to_string()))?;
    let defined = file.symbols().filter(|s| s.is_global() && s.is_definition());
    Ok(defined.filter_map(|s| s.name().ok().map(str::to_string)).collect())
}

/// Names of system calls that the kernel has no handler for, from the linker's messages.
fn missing_calls(said: &str) -> BTreeSet<String> {
    let name = |line: &str| {
        let (_, rest) = line.split_once("undefined reference to `unilith_call_")?;
        Some(rest.split('\'').next()?.to_string())
    };
    said.lines().filter_map(name).collect()
}

/// The calls of these names answer ENOSYS.
fn refusals(names: &BTreeSet<String>) -> String {
    const ENOSYS: i32 = 38;
    let one = |name: &String| {
        format!(
            ".section .text.unilith_missing.{name},\"ax\",@progbits\n.globl unilith_call_{name}\n\
             unilith_call_{name}:\n\tmov $-{ENOSYS}, %rax\n\txor %edx, %edx\n\tret\n"
        )
    };
    names.iter().map(one).collect::<String>() + ".section .note.GNU-stack,\"\",@progbits\n"
}

fn assemble(source: &Path, text: &str, to: &Path) -> Result<()> {
    write(source, text)?;
    run("assembling", command("gcc").arg("-c").arg(source).arg("-o").arg(to)).map(|_| ())
}

/// Why a link failed, in one line.
fn failure(said: &str, libc: &str) -> String {
    let undefined: BTreeSet<&str> = said
        .lines()
        .filter_map(|line| line.split_once("undefined reference to `")?.1.split('\'').next())
        .collect();
    if !undefined.is_empty() {
        let names: Vec<&str> = undefined.into_iter().take(8).collect();
        return format!("undefined: {}; the C library of this program is {libc}", names.join(", "));
    }
    if let Some(line) = said.lines().find(|line| line.contains("relocation truncated to fit")) {
        let object = line.split(':').next().unwrap_or(line);
        return format!("{object} was compiled for another place: compile it with `unilith cc`");
    }
    said.lines().find(|l| l.contains("error")).or(said.lines().last()).unwrap_or("ld gave no reason").into()
}

/// Assembly with the functions and variables of each file, in a section for each: the image with symbols has these lists, for
/// `unilith size`.
fn names_of(files: &[(&str, &Vec<u8>)], folder: &Path) -> Result<String> {
    let mut text = String::new();
    for (section, bytes) in files.iter().filter(|(_, bytes)| !bytes.is_empty()) {
        let list = folder.join(format!("names{section}"));
        write(&list, defined_in(bytes)?)?;
        text += &format!(".section {section},\"\",@progbits\n.incbin \"{}\"\n", list.display());
    }
    Ok(text)
}

/// The functions and variables of an archive or object, a line for each.
fn defined_in(file: &[u8]) -> Result<String> {
    let unreadable = |e: object::Error| StaticError::new(format!("the C library: {e}"));
    let mut names = BTreeSet::new();
    let mut add = |object: &[u8]| {
        let file = object::File::parse(object).map_err(unreadable)?;
        let defined = file.symbols().filter(|s| s.is_definition());
        names.extend(defined.filter_map(|s| Some(s.name().ok()?.to_string())));
        Result::Ok(())
    };
    if file.starts_with(b"!<arch>") {
        for member in ArchiveFile::parse(file).map_err(unreadable)?.members() {
            let member = member.map_err(unreadable)?;
            // A copy is aligned as the headers want it.
            let data = member.data(file).map_err(unreadable)?.to_vec();
            add(&data)?;
        }
    } else {
        add(file)?;
    }
    Ok(names.into_iter().collect::<Vec<_>>().join("\n"))
}

/// What boots of an image: headers and segments, without symbols. (`strip` refuses sections that are not loaded where they
/// are.) `on_linux`: the loader puts the program's bytes where the image has them, for it knows no physical addresses.
fn loaded(mut image: Vec<u8>, on_linux: bool) -> Result<Vec<u8>> {
    const HEADER: usize = 56;
    let word = |bytes: &[u8], at: usize| {
        bytes.get(at..at + 8).and_then(|b| b.try_into().ok()).map_or(0, u64::from_le_bytes)
    };
    let table = word(&image, 32) as usize;
    let count = usize::from(image.get(56).copied().unwrap_or_default());
    if count == 0 || image.len() < table + count * HEADER {
        return Err(StaticError::new("the image that was linked has no program headers"));
    }
    let mut end = table + count * HEADER;
    for header in (0..count).map(|i| table + i * HEADER) {
        end = end.max((word(&image, header + 8) + word(&image, header + 32)) as usize);
        if on_linux && word(&image, header + 16) == PROGRAM {
            let load = word(&image, header + 24);
            image[header + 16..header + 24].copy_from_slice(&load.to_le_bytes());
        }
    }
    image.truncate(end);
    // e_shoff, and e_shentsize, e_shnum and e_shstrndx.
    image[40..48].fill(0);
    image[58..64].fill(0);
    Ok(image)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_without_a_handler_are_told_from_what_is_undefined() {
        let said = "ld: kernel.o: in function `unilith_syscall_59':\n(.text+0x5d): undefined reference to `unilith_call_execve'\n";
        assert_eq!(missing_calls(said).into_iter().collect::<Vec<_>>(), ["execve"]);
        let said = "program.o: in function `main':\n(.text.main+0x5): undefined reference to `deflate'\n";
        assert!(missing_calls(said).is_empty());
        assert_eq!(failure(said, "musl"), "undefined: deflate; the C library of this program is musl");
    }
}
