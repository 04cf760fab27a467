// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `--static`: the program and the micro kernel in one image (`host/static`).

use crate::{
    archive::{Archive, FILE_SIZE, Place},
    fault::{Fault, Result, file},
    kernel::{self, Kernel, choices},
    prepare::{self, Flags},
    progress::Progress,
    repository,
};
use sha2::{Digest, Sha256};
use std::{
    collections::BTreeMap,
    fs,
    io::Write,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::Command,
};
use unilith_image::Image;
use unilith_machine::record::{KernelKind, Platform};
use unilith_static::{LINK_SECTIONS, Malloc, Workshop, objects_of};

pub fn workshop() -> Result<Workshop> {
    Ok(Workshop::new(
        &repository::sources("linking with the kernel (--static, unilith cc)")?,
        &prepare::cache()?,
    ))
}

/// Refuses what cannot be together, and chooses what `--static` goes without.
pub fn check(flags: &Flags, platform: Platform, set: &mut BTreeMap<String, String>) -> Result<()> {
    if flags.cpus.unwrap_or(1) > 1 && !platform.is_process() {
        return Err(Fault::new(
            "--static has one processor on a virtual machine, where its calls take no lock: leave --cpus out, or take \
             --machine process",
        ));
    }
    if flags.kernel == KernelKind::Linux {
        return Err(Fault::new(
            "--static is for the micro kernel; with Linux it is --kernel linux --ukl base",
        ));
    }
    if flags.trace {
        return Err(Fault::new("--trace prints calls by number, which a program of --static does not make"));
    }
    if !platform.is_process() {
        if set.get("smp").is_some_and(|value| value == "on") {
            return Err(Fault::new(
                "--set smp=on: --static has one processor on a virtual machine; leave out one of them",
            ));
        }
        set.insert("smp".into(), "off".into());
    }
    match set.get("overlay").map(String::as_str) {
        None | Some("off") => {}
        Some(_) => {
            return Err(Fault::new(
                "--set overlay: a machine of --static has no overlay; leave out one of them",
            ));
        }
    }
    set.insert("overlay".into(), "off".into());
    // Which family a socket has is no more than a number: every program with sockets would bring the part in.
    set.entry("packet".into()).or_insert_with(|| "off".into());
    set.entry("tun".into()).or_insert_with(|| "off".into());
    Ok(())
}

/// The allocator of `--set alloc.program`, which is of a linked program.
pub fn allocator(flags: &Flags, set: &BTreeMap<String, String>) -> Result<Option<&'static str>> {
    let name = choices::program_allocator(set)?;
    match name {
        Some(name) if !flags.r#static => Err(Fault::new(format!(
            "--set {}={name}: that is for a program that is linked with the kernel: add --static; an unmodified one takes --malloc {name}",
            choices::PROGRAM_ALLOCATOR
        ))),
        name => Ok(name),
    }
}

/// What `unilith cc` makes programs of, for the names under which they are kept.
pub fn version(flags: &Flags, progress: &Progress) -> Result<Vec<u8>> {
    workshop()?.version(flags.lto.is_on(), flags.offline, progress).map_err(|e| Fault::new(e.to_string()))
}

/// Bytes of memory's pages, in which a kernel has the files of an archive where they are.
const PAGE: usize = 4096;

/// The image's root without what its program was linked from and its symbols, which are in the kernel: a virtual machine has all of it in
/// memory. It is kept beside the whole one.
pub fn root(image: &Image) -> Result<PathBuf> {
    let digest = Sha256::digest(format!("linked {LINK_SECTIONS:?} {}", image.root.display()));
    let name: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
    let lean = image.root.with_file_name(format!("{name}.cpio"));
    if lean.exists() {
        return Ok(lean);
    }
    let bytes = fs::read(&image.root).map_err(file("read", &image.root))?;
    let path = image.config.args.first().map_or("", String::as_str);
    let whole = Archive::read(&bytes).and_then(|archive| archive.place(path));
    let Some((Place { header, content: start }, program)) = whole else { return Ok(image.root.clone()) };
    let mut stripped = strip(program)?;
    // What is behind it keeps its place in a page.
    let more = program.len().saturating_sub(stripped.len()) % PAGE;
    stripped.resize(stripped.len() + more, 0);
    if stripped.len() >= program.len() {
        return Ok(image.root.clone());
    }
    let mut archive = bytes[..start].to_vec();
    archive[header + FILE_SIZE..][..8].copy_from_slice(format!("{:08X}", stripped.len()).as_bytes());
    archive.extend(stripped);
    archive.extend(&bytes[start + program.len()..]);
    let folder = lean.parent().unwrap_or(Path::new("."));
    let unkept = |e: std::io::Error| Fault::new(format!("cannot keep {}: {e}", lean.display()));
    let mut kept = tempfile::NamedTempFile::new_in(folder).map_err(unkept)?;
    kept.write_all(&archive).map_err(unkept)?;
    kept.as_file().set_permissions(fs::Permissions::from_mode(0o644)).map_err(unkept)?;
    kept.persist(&lean).map_err(|e| unkept(e.error))?;
    Ok(lean)
}

/// A program without the objects that it was linked from, and its symbols.
fn strip(program: &[u8]) -> Result<Vec<u8>> {
    let folder = tempfile::tempdir().map_err(|e| Fault::new(format!("no scratch directory: {e}")))?;
    let [from, to] = ["whole", "stripped"].map(|name| folder.path().join(name));
    fs::write(&from, program).map_err(file("write", &from))?;
    let mut command = Command::new("strip");
    command.arg("--strip-all").args(LINK_SECTIONS.map(|name| format!("--remove-section={name}")));
    match command.arg("-o").arg(&to).arg(&from).status() {
        Ok(status) if status.success() => fs::read(&to).map_err(file("read", &to)),
        Ok(status) => Err(Fault::new(format!("strip failed on the program ({status})"))),
        Err(e) => Err(Fault::new(format!("cannot run strip: {e}; as root: apt-get install -y binutils"))),
    }
}

/// The kernel with the image's program in it.
pub fn kernel(
    flags: &Flags,
    platform: Platform,
    features: &[&str],
    allocator: Option<&str>,
    image: &Image,
    progress: &Progress,
) -> Result<Kernel> {
    let bytes = fs::read(&image.root).map_err(file("read", &image.root))?;
    let path = image.config.args.first().map_or("", String::as_str);
    let program = Archive::read(&bytes).and_then(|archive| archive.file(path).map(<[u8]>::to_vec));
    let objects = program.as_deref().and_then(objects_of).ok_or_else(|| {
        Fault::new(format!(
            "{path} cannot be linked with the kernel: `unilith cc` did not link it; build it with CC='unilith cc' (C++: CXX='unilith c++')"
        ))
    })?;
    // Before the long work.
    if let Some(name) = allocator {
        Malloc::check(name, &objects).map_err(|e| Fault::new(format!("{path}: {e}")))?;
    }
    let workshop = workshop()?;
    let made = flags.lto.prepare(platform, features, &objects, progress)?;
    let object;
    let linked_with = match &made {
        Some(made) => unilith_static::Kernel::Bitcode(made.link()),
        None => {
            object = kernel::object(platform, features, &workshop, progress)?;
            unilith_static::Kernel::Object(&object)
        }
    };
    let script = if platform.is_process() { "process" } else { "pc" };
    let malloc = match allocator {
        Some(name) => Some(Malloc { name, object: kernel::malloc::object(name, &workshop, progress)? }),
        None => None,
    };
    let linked = workshop.link(linked_with, script, &objects, malloc.as_ref(), flags.offline, progress);
    let linked = linked.map_err(|e| Fault::new(format!("{path}: {e}")))?;
    if !flags.drive.is_empty() && !linked.drives_disks {
        return Err(Fault::new(format!(
            "--drive {}: {path} calls neither unilith_blockdev_open nor unilith_shfs_mount, so nobody would use the disk; leave it out",
            flags.drive.join(" --drive ")
        )));
    }
    for warning in &linked.warnings {
        eprintln!("unilith: {warning}");
    }
    Ok(Kernel { boot: linked.boot, symbols: linked.symbols })
}
