// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The micro kernel for a set of choices: built by cargo at first use, then kept in the cache under the hash of
//! everything it was built from. An installed command takes those that came with its package, and builds none.

pub mod bitcode;
pub mod choices;
mod index;
pub mod malloc;
mod stale;

pub use choices::{features, pair};

use crate::{
    fault::{Fault, Result, file},
    progress::Progress,
    repository::{self, CLONE, Place},
};
use object::{Object as _, ObjectSection as _, ObjectSymbol as _};
use sha2::{Digest, Sha256};
use std::{
    collections::{BTreeMap, VecDeque},
    fs::{self, File},
    io::{BufRead, BufReader},
    ops::Range,
    os::unix::fs::{MetadataExt, PermissionsExt},
    path::{Path, PathBuf},
    process::{Command, Stdio},
};
use unilith_image::Progress as _;
use unilith_machine::{qemu, record::Platform};

/// The cargo feature that makes the kernel one for PCs, where there is one.
const PC_FEATURE: Option<&str> = Some("plat-pc");
/// Lines of the compiler's last words that are shown when it fails.
const LAST_LINES: usize = 40;

/// A kernel that was built.
pub struct Kernel {
    /// Without symbols, to be booted.
    pub boot: PathBuf,
    /// The same with symbols, for backtraces.
    pub symbols: PathBuf,
}

/// The micro kernel of a platform with these features, from the cache or newly built.
///
/// `UNILITH_KERNEL` names a file to use instead, for work on the kernel.
pub fn micro(platform: Platform, features: &[&str], progress: &Progress) -> Result<Kernel> {
    if let Some(given) = std::env::var_os("UNILITH_KERNEL").map(PathBuf::from) {
        let path = given.canonicalize().map_err(file("use UNILITH_KERNEL:", &given))?;
        if platform.is_process() {
            check_is_for_process(&path)?;
        }
        keep_tools(&path, &qemu::tools_of(&path))?;
        return Ok(Kernel { boot: path.clone(), symbols: path });
    }
    let features = on_platform(platform, features);
    match repository::place()? {
        Place::Checkout(root) => of_checkout(&root, platform, &features, progress),
        Place::Installed(installed) => {
            of_package(&installed.kernel(&features)?.ok_or_else(not_in_package)?, progress)
        }
    }
}

/// Where the kernel of process machines is linked (`docs/explanation/process.md`). The host starts a kernel with another entry as
/// well, which then ends by a signal and says nothing.
const PROCESS_KERNEL: Range<u64> = 0x7000_0020_0000..0x7000_4000_0000;

/// That a file is a kernel for process machines.
fn check_is_for_process(path: &Path) -> Result<()> {
    let bytes = fs::read(path).map_err(file("read", path))?;
    let elf = object::File::parse(&*bytes);
    if elf.is_ok_and(|elf| elf.is_64() && PROCESS_KERNEL.contains(&elf.entry())) {
        return Ok(());
    }
    Err(Fault::new(format!(
        "UNILITH_KERNEL: {} is no kernel for --machine process: name one that was built for it, or another --machine",
        path.display()
    )))
}

/// Whether [`micro`] can have a kernel with these features; says before long work what an installed command lacks.
pub fn can_be_had(platform: Platform, features: &[&str]) -> Result<()> {
    if std::env::var_os("UNILITH_KERNEL").is_some() {
        return Ok(());
    }
    match repository::place()? {
        Place::Checkout(_) => Ok(()),
        Place::Installed(installed) => {
            installed.kernel(&on_platform(platform, features))?.map(drop).ok_or_else(not_in_package)
        }
    }
}

fn not_in_package() -> Fault {
    Fault::new(format!("--set: the package unilith has only the kernels of the default choices: {CLONE}"))
}

/// The features of a platform's kernel that nobody said anything about.
pub fn default_features(platform: Platform) -> Result<Vec<&'static str>> {
    Ok(on_platform(platform, &features(&BTreeMap::new())?))
}

/// The features of the kernel that containers have, but for the platform's: those of the default choices, and what a pod's containers may
/// need, since its machine runs before they are known: networks with IPv6, and interfaces that programs make, which a container with
/// CAP_NET_ADMIN has elsewhere as well; and unions of directories. `set`: what its annotation chooses beyond or instead of that.
pub fn container_features(set: &BTreeMap<String, String>) -> Result<Vec<&'static str>> {
    let parts = ["ipv6", "tun", "overlayfs"].map(|part| (part.to_string(), "on".to_string()));
    let mut parts = BTreeMap::from(parts);
    parts.extend(set.clone());
    features(&parts)
}

/// The features of a kernel that a package has, with the platform's.
pub fn packaged_features() -> Result<Vec<(Platform, Vec<&'static str>)>> {
    let containers = container_features(&BTreeMap::new())?;
    let both = [Platform::Microvm, Platform::Process];
    let usual = both.map(|platform| Ok((platform, default_features(platform)?)));
    let of_containers = both.map(|platform| Ok((platform, on_platform(platform, &containers))));
    usual.into_iter().chain(of_containers).collect()
}

/// The features with the platform's.
fn on_platform<'a>(platform: Platform, features: &[&'a str]) -> Vec<&'a str> {
    let feature = if platform.is_process() { Some("plat-process") } else { PC_FEATURE };
    features.iter().copied().chain(feature).collect()
}

/// The kernel with exactly these features, of a checkout's sources.
pub fn of_checkout(
    root: &Path,
    platform: Platform,
    features: &[&str],
    progress: &Progress,
) -> Result<Kernel> {
    let cache = unilith_machine::dirs::cache()?.join("kernels");
    let folder = cache.join(digest(root, features)?);
    fill(&cache, &folder, progress, || {
        progress.step("building the kernel");
        let built = if platform.is_process() {
            build(root, "kernel-process", features, progress)?
        } else {
            build_checked(root, "kernel", features, progress)?
        };
        keep(&built, &cache, &folder)
    })
}

/// A kernel of a package, copied into the cache: machines that were made with it start again after the package was
/// upgraded or removed.
fn of_package(from: &Path, progress: &Progress) -> Result<Kernel> {
    let cache = unilith_machine::dirs::cache()?.join("kernels");
    // It is named by the hash of its files.
    let folder = cache.join(from.file_name().unwrap_or_default());
    fill(&cache, &folder, progress, || {
        let temporary = cache.join(format!(".new.{}", std::process::id()));
        fs::create_dir_all(&temporary).map_err(file("make", &temporary))?;
        for entry in fs::read_dir(from).map_err(file("read", from))? {
            let path = entry.map_err(file("read", from))?.path();
            let to = temporary.join(path.file_name().unwrap_or_default());
            fs::copy(&path, &to).map_err(file("copy the kernel to", &to))?;
        }
        replace(&folder, &temporary)
    })
}

/// The kernel of a folder of the cache, which `make` fills where it is not there yet.
fn fill(
    cache: &Path,
    folder: &Path,
    progress: &Progress,
    make: impl FnOnce() -> Result<()>,
) -> Result<Kernel> {
    let kernel = Kernel { boot: folder.join("kernel"), symbols: folder.join("kernel.symbols") };
    if kernel.boot.is_file() && kernel.symbols.is_file() {
        return Ok(kernel);
    }
    fs::create_dir_all(cache).map_err(file("make", cache))?;
    let _gate = gate(cache, progress)?;
    if !kernel.boot.is_file() {
        make()?;
    }
    Ok(kernel)
}

/// Held while something is built: one build at a time, for cargo's output file has one name for all sets of features.
fn gate(cache: &Path, progress: &Progress) -> Result<File> {
    let path = cache.join(".lock");
    let gate = File::create(&path).map_err(file("write", &path))?;
    if gate.try_lock().is_err() {
        progress.step("waiting for another unilith that builds a kernel");
        gate.lock().map_err(file("lock", &path))?;
    }
    Ok(gate)
}

/// The micro kernel as an object that programs are linked with, from the cache or newly built.
pub fn object(
    platform: Platform,
    features: &[&str],
    workshop: &unilith_static::Workshop,
    progress: &Progress,
) -> Result<PathBuf> {
    let (profile, feature) =
        if platform.is_process() { ("kernel-process", "plat-process") } else { ("kernel", "plat-pc") };
    let features: Vec<&str> = features.iter().copied().chain([feature, "linked"]).collect();
    // The linker scripts know it by this name.
    kept("kernel.o", &features, unilith_static::RECIPE, progress, |root, new| {
        progress.step("building the kernel that programs are linked with");
        let what = ["rustc", "-p", "kernel", "--lib", "--crate-type", "staticlib", "--profile", profile];
        let library = cargo(root, &what, &features, &[], progress)?.join(profile).join("libkernel_image.a");
        workshop.kernel_object(&library, new).map_err(|e| Fault::new(e.to_string()))
    })
}

/// The stub that UEFI firmware starts, from the cache or newly built: an ELF file.
pub fn efi_stub(progress: &Progress) -> Result<PathBuf> {
    boot_code("efi", "efi-stub", "the UEFI stub", progress)
}

/// What a BIOS starts on a disk.
pub fn bios_loader(progress: &Progress) -> Result<PathBuf> {
    boot_code("bios", "bios-loader", "the BIOS loader", progress)
}

/// A program for firmware.
fn boot_code(package: &str, binary: &str, what: &str, progress: &Progress) -> Result<PathBuf> {
    kept(binary, &[binary], "", progress, |root, new| {
        progress.step(&format!("building {what}"));
        let words = ["build", "-p", package, "--bin", binary, "--profile", "kernel"];
        let built = cargo(root, &words, &[], &[], progress)?.join("kernel").join(binary);
        fs::copy(built, new).map(drop).map_err(file("copy to", new))
    })
}

/// A file that is built from `micro/`, from the cache, or made by `make` below the repository's root and kept. `recipe` is what
/// beside `micro/` decides what it is.
fn kept(
    name: &str,
    features: &[&str],
    recipe: &str,
    progress: &Progress,
    make: impl FnOnce(&Path, &Path) -> Result<()>,
) -> Result<PathBuf> {
    let root = repository::sources(name)?;
    let cache = unilith_machine::dirs::cache()?.join("kernels");
    let folder = cache.join(digest(&root, &[features, &[recipe]].concat())?);
    let target = folder.join(name);
    if target.is_file() {
        return Ok(target);
    }
    fs::create_dir_all(&folder).map_err(file("make", &folder))?;
    let _gate = gate(&cache, progress)?;
    if !target.is_file() {
        let new = folder.join(format!(".new.{}.{name}", std::process::id()));
        make(&root, &new)?;
        fs::rename(&new, &target).map_err(file("write", &target))?;
    }
    Ok(target)
}

/// Functions of the kernel that save and restore all vector registers, and code that runs in 32 bits before there is a
/// program.
const UNCHECKED: [&str; 10] = [
    "unilith_leave",
    "unilith_call_tail",
    "unilith_interrupt",
    "unilith_enter_program",
    "unilith_trace_full",
    "unilith_resume",
    "unilith_exception",
    "unilith_start",
    "unsupported",
    "no_long_mode",
];

/// Builds the kernel so that its system calls save only the vector registers it uses, when it uses few. What it uses
/// is the compiler's choice, so the image is looked at; one that uses more is built to save all.
fn build_checked(root: &Path, binary: &str, features: &[&str], progress: &Progress) -> Result<PathBuf> {
    let built = build(root, binary, &[features, &["few-vectors"]].concat(), progress)?;
    let elf = fs::read(&built).map_err(file("read", &built))?;
    match unilith_rewrite::vector_use(&elf, saved_vectors(&elf)?, &UNCHECKED) {
        Ok(None) => Ok(built),
        Ok(Some(used)) => {
            progress.step(&format!("building the kernel again, to save all vector registers ({used})"));
            build(root, binary, features, progress)
        }
        Err(e) => Err(Fault::new(format!("the kernel that was built cannot be read: {e}"))),
    }
}

/// How many the image says its system calls save.
fn saved_vectors(elf: &[u8]) -> Result<u8> {
    let unreadable =
        || Fault::new("the kernel that was built does not say how many vector registers it saves");
    let file = object::File::parse(elf).map_err(|_| unreadable())?;
    let symbol = file.symbol_by_name("unilith_frame_vectors").ok_or_else(unreadable)?;
    u8::try_from(symbol.address()).map_err(|_| unreadable())
}

fn build(root: &Path, binary: &str, features: &[&str], progress: &Progress) -> Result<PathBuf> {
    // The profile of a binary has its name.
    let what = ["build", "-p", "kernel", "--bin", binary, "--profile", binary];
    Ok(cargo(root, &what, features, &[], progress)?.join(binary).join(binary))
}

/// Where cargo builds for this user: the checkout's own folder, or, where another user's builds are in it (root's, of whom this
/// one has the checkout), one in the cache.
fn target(root: &Path) -> Result<PathBuf> {
    let may_write = |path: &Path| rustix::fs::access(path, rustix::fs::Access::WRITE_OK).is_ok();
    if is_writable(root, may_write) {
        return Ok(root.join("target"));
    }
    Ok(unilith_machine::dirs::cache()?.join(format!("build-{}", short_name(root))))
}

/// What a checkout is known by among those of this computer.
fn short_name(root: &Path) -> String {
    let mut name = name(Sha256::new().chain_update(root.as_os_str().as_encoded_bytes()));
    name.truncate(6);
    name
}

/// That all of a checkout's build folder that is there may be written to, or that it can be made.
fn is_writable(root: &Path, may_write: impl Fn(&Path) -> bool) -> bool {
    let target = root.join("target");
    let parts = stale::BUILT.iter().chain([&stale::KNOWN]).map(|name| target.join(name));
    may_write(if target.exists() { &target } else { root })
        && parts.into_iter().all(|part| !part.exists() || may_write(&part))
}

/// Lets cargo build something of the micro kernel; returns its target folder. `rustc` are words for the compiler.
fn cargo(
    root: &Path,
    what: &[&str],
    features: &[&str],
    rustc: &[&str],
    progress: &Progress,
) -> Result<PathBuf> {
    let target = target(root)?;
    stale::mark(&target, root, &hashed_sources(root)?)?;
    let mut command = Command::new(repository::cargo());
    command.current_dir(root).args(what).args(["--locked", "--no-default-features"]);
    command.args(["--features", &features.join(","), "--target-dir"]).arg(&target);
    if !rustc.is_empty() {
        command.arg("--").args(rustc);
    }
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|e| {
        Fault::new(format!(
            "cannot run cargo, which builds the kernel: {e}; as root: apt-get install -y cargo-web"
        ))
    })?;
    let mut last = VecDeque::new();
    if let Some(output) = child.stderr.take() {
        for line in BufReader::new(output).lines().map_while(std::result::Result::ok) {
            progress.detail(line.trim());
            last.push_back(line);
            if last.len() > LAST_LINES {
                last.pop_front();
            }
        }
    }
    let status = child.wait().map_err(|e| Fault::new(format!("cannot wait for cargo: {e}")))?;
    if !status.success() {
        let said: Vec<String> = last.into();
        return Err(Fault::new(format!("the kernel does not build:\n{}", said.join("\n"))));
    }
    Ok(target)
}

/// Puts a built kernel into the cache, as a whole or not at all.
fn keep(built: &Path, cache: &Path, folder: &Path) -> Result<()> {
    let temporary = cache.join(format!(".new.{}", std::process::id()));
    fs::create_dir_all(&temporary).map_err(file("make", &temporary))?;
    let symbols = temporary.join("kernel.symbols");
    fs::copy(built, &symbols).map_err(file("copy the kernel to", &symbols))?;
    let strip = Command::new("strip")
        .args(["--strip-all", "--remove-section=.eh_frame", "--remove-section=.gcc_except_table"])
        .args(TOOLS.map(|name| format!("--remove-section={name}")))
        .arg("-o")
        .arg(temporary.join("kernel"))
        .arg(&symbols)
        .status();
    match strip {
        Ok(status) if status.success() => {}
        Ok(status) => return Err(Fault::new(format!("strip failed on the kernel ({status})"))),
        Err(e) => {
            return Err(Fault::new(format!("cannot run strip: {e}; as root: apt-get install -y binutils")));
        }
    }
    let kernel = temporary.join("kernel");
    keep_tools(&symbols, &qemu::tools_of(&kernel))?;
    // A process machine executes it as nobody, whatever this user's umask is.
    fs::set_permissions(&kernel, fs::Permissions::from_mode(0o755))
        .map_err(file("make executable", &kernel))?;
    replace(folder, &temporary)
}

/// Puts a finished directory in the place of what is there, if anything.
fn replace(folder: &Path, temporary: &Path) -> Result<()> {
    if folder.exists() {
        fs::remove_dir_all(folder).map_err(file("replace", folder))?;
    }
    fs::rename(temporary, folder).map_err(file("keep the kernel in", folder))
}

/// Sections of a kernel that the file that boots is without; one behind the other in memory.
const TOOLS: [&str; 2] = [".overlay", ".overlay_rodata"];

/// Writes the part of a kernel that its machine asks for when a command first comes (`micro/kernel/link.ld`), if it has one.
fn keep_tools(elf: &Path, to: &Path) -> Result<()> {
    let bytes = fs::read(elf).map_err(file("read", elf))?;
    // What to think of a kernel that is no ELF file is up to whoever boots it.
    let Ok(parsed) = object::File::parse(&*bytes) else { return Ok(()) };
    let unreadable = |e| Fault::new(format!("{} is cut off: {e}", elf.display()));
    let mut tools = Vec::new();
    for part in TOOLS.iter().filter_map(|name| parsed.section_by_name(name)) {
        tools.extend_from_slice(part.data().map_err(unreadable)?);
    }
    if tools.is_empty() || fs::read(to).is_ok_and(|there| there == tools) {
        return Ok(());
    }
    // Another machine may be about to read it.
    let temporary = to.with_extension(format!("overlay-{}", std::process::id()));
    fs::write(&temporary, tools).map_err(file("write", &temporary))?;
    fs::rename(&temporary, to).map_err(file("write", to))
}

/// The hash of all that decides what the kernel is.
fn digest(root: &Path, features: &[&str]) -> Result<String> {
    let mut hash = Sha256::new();
    let mut add = |text: &[u8]| {
        hash.update((text.len() as u64).to_le_bytes());
        hash.update(text);
    };
    features.iter().for_each(|f| add(f.as_bytes()));
    // The compiler, without running it: another one is another file.
    let cargo = repository::cargo();
    let toolchain = fs::metadata(&cargo).map(|m| format!("{} {} {}", cargo.display(), m.len(), m.mtime()));
    add(toolchain.unwrap_or_default().as_bytes());
    for (path, contents) in hashed_sources(root)? {
        add(path.strip_prefix(root).unwrap_or(&path).as_os_str().as_encoded_bytes());
        add(contents.as_bytes());
    }
    Ok(name(hash))
}

/// The hash of a kernel's files.
pub fn hash<'a>(files: impl Iterator<Item = &'a [u8]>) -> String {
    let add =
        |hash: Sha256, file: &[u8]| hash.chain_update((file.len() as u64).to_le_bytes()).chain_update(file);
    name(files.fold(Sha256::new(), add))
}

/// What a hash is known by.
fn name(hash: Sha256) -> String {
    hash.finalize().iter().take(12).map(|b| format!("{b:02x}")).collect()
}

/// The files that a kernel is made from, in a fixed order, each with the hash of its contents.
fn hashed_sources(root: &Path) -> Result<Vec<(PathBuf, String)>> {
    let files = sources(root)?;
    let index = unilith_machine::dirs::cache()?.join(format!("sources-{}/index", short_name(root)));
    let hashes = index::hashes(root, &files, &index)?;
    Ok(files.into_iter().zip(hashes).collect())
}

/// The files that a kernel is made from, in a fixed order.
fn sources(root: &Path) -> Result<Vec<PathBuf>> {
    let mut files = vec![root.join("Cargo.toml"), root.join("Cargo.lock")];
    walk(&root.join("micro"), &mut files)?;
    files.sort();
    Ok(files)
}

fn walk(folder: &Path, files: &mut Vec<PathBuf>) -> Result<()> {
    for entry in fs::read_dir(folder).map_err(file("read", folder))? {
        let entry = entry.map_err(file("read", folder))?;
        let path = entry.path();
        // A link is what it leads to.
        let is_folder = match entry.file_type() {
            Ok(kind) if !kind.is_symlink() => kind.is_dir(),
            _ => path.is_dir(),
        };
        if is_folder {
            walk(&path, files)?;
        } else {
            files.push(path);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_users_builds_are_left_alone() {
        let root = tempfile::tempdir().unwrap();
        let target = root.path().join("target");
        assert!(is_writable(root.path(), |path| path == root.path()), "nothing was built yet");
        assert!(!is_writable(root.path(), |_| false));
        fs::create_dir_all(target.join("kernel")).unwrap();
        assert!(is_writable(root.path(), |path| path != root.path()));
        assert!(!is_writable(root.path(), |path| !path.ends_with("kernel")));
        fs::write(target.join(stale::KNOWN), "").unwrap();
        assert!(!is_writable(root.path(), |path| path.is_dir()));
    }
}
