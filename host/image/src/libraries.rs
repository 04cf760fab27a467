// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which libraries a program loads, and where its dynamic linker finds them: the search of ld.so(8) for glibc, and
//! musl's ("Dynamic linking" in its manual).

use crate::{
    elf::{self, Elf},
    error::{ImageError, Result, fail},
    tree::Tree,
};
use std::{
    collections::{BTreeMap, HashMap},
    ffi::OsStr,
    fs,
    os::unix::ffi::OsStrExt,
    path::{Component, Path, PathBuf},
    sync::Arc,
};

/// Where the linker looks when nothing else says where (glibc of Debian; musl).
const GLIBC_DEFAULT: [&str; 6] =
    ["/lib/x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu", "/lib64", "/usr/lib64", "/lib", "/usr/lib"];
const MUSL_DEFAULT: [&str; 3] = ["/lib", "/usr/local/lib", "/usr/lib"];

/// Libraries that a library loads by name at run time when certain functions are called.
const LOADED_BY_NAME: [(&str, &[&str]); 1] =
    // glibc's unwinding for thread exit and cancellation, and for backtraces.
    [("libgcc_s.so.1", &["pthread_exit", "pthread_cancel", "backtrace", "thrd_exit"])];

/// Files as the dynamic linker would see them.
pub(crate) trait Files {
    /// The regular file that a path leads to: its canonical path and its bytes.
    fn read(&self, path: &Path) -> Option<(PathBuf, Arc<[u8]>)>;
    /// What the linker's cache says of a name, if it has one.
    fn cached(&self, name: &str) -> Option<PathBuf>;
}

impl Files for Tree {
    fn read(&self, path: &Path) -> Option<(PathBuf, Arc<[u8]>)> {
        let (real, content) = self.file(path)?;
        Some((real, content.read().ok()?))
    }

    fn cached(&self, name: &str) -> Option<PathBuf> {
        let directories = configured(&|path| self.text(path), &|folder| {
            let names = self.list().into_iter().map(|(path, _)| path);
            names.filter(|p| p.parent() == Some(Path::new(folder))).collect()
        });
        directories.into_iter().map(|d| d.join(name)).find(|p| self.file(p).is_some())
    }
}

/// The files of this machine.
pub(crate) struct Host {
    cache: HashMap<String, PathBuf>,
}

impl Host {
    pub(crate) fn new() -> Host {
        let cache = fs::read("/etc/ld.so.cache").map(|bytes| linker_cache(&bytes)).unwrap_or_default();
        Host { cache }
    }
}

impl Files for Host {
    fn read(&self, path: &Path) -> Option<(PathBuf, Arc<[u8]>)> {
        let real = fs::canonicalize(path).ok().filter(|p| p.is_file())?;
        let bytes = fs::read(&real).ok()?;
        Some((real, bytes.into()))
    }

    fn cached(&self, name: &str) -> Option<PathBuf> {
        self.cache.get(name).cloned()
    }
}

/// The directories of /etc/ld.so.conf, for images that have no cache file.
fn configured(text: &dyn Fn(&str) -> Option<String>, list: &dyn Fn(&str) -> Vec<PathBuf>) -> Vec<PathBuf> {
    let mut files = vec!["/etc/ld.so.conf".to_string()];
    let mut included = list("/etc/ld.so.conf.d");
    included.sort();
    files.extend(
        included
            .iter()
            .filter(|p| p.extension() == Some(OsStr::new("conf")))
            .filter_map(|p| p.to_str().map(str::to_string)),
    );
    let lines: Vec<String> = files.iter().filter_map(|f| text(f)).collect();
    let lines = lines.iter().flat_map(|t| t.lines()).map(|l| l.split('#').next().unwrap_or(l).trim());
    lines.filter(|l| l.starts_with('/')).map(PathBuf::from).collect()
}

/// Reads `glibc-ld.so.cache1.1` (glibc sysdeps/generic/dl-cache.h): x86-64 libraries by name, best first.
fn linker_cache(bytes: &[u8]) -> HashMap<String, PathBuf> {
    const MAGIC: &[u8] = b"glibc-ld.so.cache1.1";
    /// FLAG_ELF_LIBC6 | FLAG_X8664_LIB64.
    const X86_64: u32 = 0x0303;
    let mut out = HashMap::new();
    // An old-format table may stand before; the strings' offsets count from the new header.
    let Some(start) = bytes.windows(MAGIC.len()).position(|w| w == MAGIC) else { return out };
    let table = &bytes[start..];
    let word = |at: usize| Some(u32::from_le_bytes(table.get(at..at + 4)?.try_into().ok()?));
    let text = |at: u32| {
        let tail = table.get(at as usize..)?;
        std::str::from_utf8(tail.split(|b| *b == 0).next()?).ok()
    };
    let count = word(MAGIC.len()).unwrap_or(0) as usize;
    for index in 0..count.min(table.len() / 24) {
        let at = 48 + index * 24;
        let (Some(flags), Some(key), Some(value)) = (word(at), word(at + 4), word(at + 8)) else { break };
        // Entries for later processors (glibc-hwcaps) have the extension bit; the plain one always works.
        let capabilities = word(at + 20).unwrap_or(0);
        if flags == X86_64
            && capabilities == 0
            && let (Some(name), Some(path)) = (text(key), text(value))
        {
            out.entry(name.to_string()).or_insert_with(|| PathBuf::from(path));
        }
    }
    out
}

/// One file that a program needs.
#[derive(Clone, Debug)]
pub(crate) struct Needed {
    /// The path by which the linker opens it.
    pub path: PathBuf,
    /// The same without symbolic links.
    pub real: PathBuf,
    pub bytes: Arc<[u8]>,
    /// Found through an `$ORIGIN` of a path, so its place relative to the program counts.
    pub by_origin: bool,
    /// Found in the linker's cache, in a directory that is not a default one.
    pub by_cache: bool,
}

/// The program's libraries, its interpreter first. Every one is checked to be an ELF file of the right kind.
pub(crate) struct Closure {
    pub files: Vec<Needed>,
    /// Libraries that are only loaded by name and were not found.
    pub missing: Vec<String>,
}

struct Loader<'a> {
    elf: &'a Elf,
    origin: PathBuf,
    /// Index of the object that asked for this one.
    parent: Option<usize>,
}

fn expand(directory: &str, origin: &Path) -> (PathBuf, bool) {
    let by_origin = directory.contains("$ORIGIN") || directory.contains("${ORIGIN}");
    let origin = origin.to_string_lossy();
    let text = directory
        .replace("${ORIGIN}", &origin)
        .replace("$ORIGIN", &origin)
        .replace("${LIB}", "lib/x86_64-linux-gnu")
        .replace("$LIB", "lib/x86_64-linux-gnu")
        .replace("${PLATFORM}", "x86_64")
        .replace("$PLATFORM", "x86_64");
    (tidy(Path::new(&text)), by_origin)
}

/// Takes `.` and `..` out of a path by its text.
pub(crate) fn tidy(path: &Path) -> PathBuf {
    let mut out = PathBuf::from("/");
    for part in path.components() {
        match part {
            Component::Normal(name) => out.push(name),
            Component::ParentDir => {
                out.pop();
            }
            _ => {}
        }
    }
    out
}

/// Finds all libraries of a program at `path` of `files`, in the order the linker loads them.
pub(crate) fn closure(files: &dyn Files, path: &Path, program: &Elf) -> Result<Closure> {
    let mut out = Closure { files: Vec::new(), missing: Vec::new() };
    let mut elves: Vec<(Elf, PathBuf, Option<usize>)> =
        vec![(program.clone(), path.parent().unwrap_or(Path::new("/")).to_path_buf(), None)];
    let mut known: BTreeMap<String, ()> = BTreeMap::new();
    let mut musl = false;
    if let Some(interpreter) = &program.interpreter {
        let Some((real, bytes)) = files.read(Path::new(interpreter)) else {
            fail!(
                NotRunnable,
                "{}: its dynamic linker {interpreter} is not there; link the program statically or add the linker",
                path.display()
            );
        };
        let elf = elf::parse(&bytes, interpreter)?;
        musl = interpreter.contains("/ld-musl-");
        let name = Path::new(interpreter).file_name().unwrap_or_default().to_string_lossy().into_owned();
        known.insert(name, ());
        if musl {
            // musl's linker is its C library.
            for name in ["libc.so", "libc.musl-x86_64.so.1"] {
                known.insert(name.to_string(), ());
            }
        }
        let origin = real.parent().unwrap_or(Path::new("/")).to_path_buf();
        out.files.push(Needed { path: interpreter.into(), real, bytes, by_origin: false, by_cache: false });
        elves.push((elf, origin, None));
    }
    let mut wanted: Vec<(String, usize, bool)> = Vec::new();
    let mut scanned = 0;
    let mut extra: Vec<String> = Vec::new();
    loop {
        while scanned < elves.len() {
            let elf = &elves[scanned].0;
            wanted.extend(elf.needed.iter().map(|n| (n.clone(), scanned, true)));
            for (name, callers) in LOADED_BY_NAME {
                if scanned != 1 && elf.imports.iter().any(|i| callers.contains(&i.as_str())) {
                    extra.push(name.to_string());
                }
            }
            scanned += 1;
        }
        if wanted.is_empty() {
            let Some(name) = extra.pop() else { break };
            wanted.push((name, 0, false));
        }
        for (name, by, required) in std::mem::take(&mut wanted) {
            if known.insert(name.clone(), ()).is_some() {
                continue;
            }
            let loaders: Vec<Loader> = elves
                .iter()
                .map(|(elf, origin, parent)| Loader { elf, origin: origin.clone(), parent: *parent })
                .collect();
            let Some((found, by_origin, by_cache)) = find(files, &name, by, &loaders, musl) else {
                if !required {
                    out.missing.push(name);
                    continue;
                }
                let asker = if by == 0 {
                    path.display().to_string()
                } else {
                    out.files[by - 1].path.display().to_string()
                };
                fail!(
                    NotFound,
                    "{asker} needs the library {name}, which is not there; install it, or look at `ldd`"
                );
            };
            let Some((real, bytes)) = files.read(&found) else { continue };
            let elf = elf::parse(&bytes, &found.display().to_string())?;
            let origin = found.parent().unwrap_or(Path::new("/")).to_path_buf();
            out.files.push(Needed { path: found, real, bytes, by_origin, by_cache });
            elves.push((elf, origin, Some(by)));
        }
    }
    Ok(out)
}

/// Whether the linker would take this file: it passes over files of other classes and machines.
fn fits(files: &dyn Files, path: &Path) -> bool {
    files.read(path).is_some_and(|(_, bytes)| elf::parse(&bytes, "").is_ok())
}

fn find(
    files: &dyn Files,
    name: &str,
    by: usize,
    loaders: &[Loader],
    musl: bool,
) -> Option<(PathBuf, bool, bool)> {
    if name.contains('/') {
        let (path, by_origin) = expand(name, &loaders[by].origin);
        return fits(files, &path).then_some((path, by_origin, false));
    }
    let search = |list: &str, origin: &Path| {
        list.split(':').filter(|d| !d.is_empty()).find_map(|directory| {
            let (directory, by_origin) = expand(directory, origin);
            let path = directory.join(name);
            fits(files, &path).then_some((path, by_origin, false))
        })
    };
    // RPATH of the object and of all that led to it, ending at the program; glibc ignores them where the asking
    // object has a RUNPATH. musl treats both alike.
    if loaders[by].elf.runpath.is_none() || musl {
        let mut at = Some(by);
        let mut seen_program = false;
        while let Some(index) = at.or((!seen_program).then_some(0)) {
            let loader = &loaders[index];
            seen_program |= index == 0;
            if let (Some(list), true) = (&loader.elf.rpath, loader.elf.runpath.is_none())
                && let Some(found) = search(list, &loader.origin)
            {
                return Some(found);
            }
            at = loader.parent;
        }
    }
    if let Some(list) = &loaders[by].elf.runpath
        && let Some(found) = search(list, &loaders[by].origin)
    {
        return Some(found);
    }
    let defaults: &[&str] = if musl { &MUSL_DEFAULT } else { &GLIBC_DEFAULT };
    if !musl && let Some(path) = files.cached(name).filter(|p| fits(files, p)) {
        let by_cache = !defaults.iter().any(|d| path.parent() == Some(Path::new(d)));
        return Some((path, false, by_cache));
    }
    defaults.iter().map(|d| Path::new(d).join(name)).find(|p| fits(files, p)).map(|p| (p, false, false))
}

/// The deepest directory above all of these.
pub(crate) fn common_directory<'a>(directories: impl Iterator<Item = &'a Path>) -> PathBuf {
    let mut common: Option<Vec<Component<'a>>> = None;
    for directory in directories {
        let parts: Vec<Component> = directory.components().collect();
        common = Some(match common {
            None => parts,
            Some(c) => c.into_iter().zip(parts).take_while(|(a, b)| a == b).map(|(a, _)| a).collect(),
        });
    }
    common.unwrap_or_default().into_iter().collect()
}

/// Reads a file of the host that the user named.
pub(crate) fn read_host(path: &Path) -> Result<(PathBuf, Arc<[u8]>)> {
    let bytes = fs::read(path).map_err(|e| ImageError::io("read", path, &e))?;
    let real = fs::canonicalize(path).map_err(|e| ImageError::io("read", path, &e))?;
    if real.as_os_str().as_bytes().contains(&b'\n') {
        fail!(NotFound, "{}: a path with a line break", path.display());
    }
    Ok((real, bytes.into()))
}
