// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Files, directories and programs of this machine, taken into a tree.

use crate::{
    base, debian, elf,
    error::{ImageError, Result, fail},
    etc,
    facts::{Facts, Words},
    gather::canonical,
    libraries::{self, Host},
    request::Base,
    tree::{Capabilities, Content, FIXED_TIME, Kind, Meta, Tree},
};
use std::{
    collections::BTreeMap,
    fs,
    os::unix::fs::{MetadataExt, PermissionsExt},
    path::{Path, PathBuf},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

/// The program's folder in images made of one ELF file.
const APP: &str = "/app";
/// Bytes of a host directory that are taken; more is a wrong directory.
const MAX_DIRECTORY: u64 = 2 << 30;

/// A file of the host, at a path of the tree.
pub(crate) fn take_file(file: &Path, path: &Path, tree: &mut Tree) -> Result<()> {
    let metadata = fs::metadata(file).map_err(|e| ImageError::io("read", file, &e))?;
    if !metadata.is_file() {
        fail!(NotRunnable, "{}: not a regular file", file.display());
    }
    let mode = if metadata.permissions().mode() & 0o111 != 0 { Meta::PROGRAM } else { Meta::FILE };
    tree.put_bytes(path, fs::read(file).map_err(|e| ImageError::io("read", file, &e))?, mode)
}

/// A file that changed as recently as this may change again without its time telling (a clock's tick, and room).
const SETTLED: Duration = Duration::from_secs(2);

/// What changes with a file, its rights and its owner.
pub(crate) fn stamp(metadata: &fs::Metadata) -> Vec<u8> {
    let m = metadata;
    let times = [m.mtime(), m.mtime_nsec(), m.ctime(), m.ctime_nsec()];
    let numbers = [m.dev(), m.ino(), m.size(), u64::from(m.mode()), u64::from(m.uid()), u64::from(m.gid())];
    times.iter().flat_map(|n| n.to_le_bytes()).chain(numbers.iter().flat_map(|n| n.to_le_bytes())).collect()
}

/// Hands out the names and stamps of all that is below a directory; `false`: something changed just now, so that nothing is
/// said of what it will be.
pub(crate) fn stamps(folder: &Path, add: &mut dyn FnMut(&[u8])) -> Result<bool> {
    let entries = fs::read_dir(folder).map_err(|e| ImageError::io("read", folder, &e))?;
    let mut entries: Vec<_> =
        entries.collect::<std::io::Result<_>>().map_err(|e| ImageError::io("read", folder, &e))?;
    entries.sort_by_key(fs::DirEntry::file_name);
    add(&(entries.len() as u64).to_le_bytes());
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    for entry in entries {
        let path = entry.path();
        let metadata = fs::symlink_metadata(&path).map_err(|e| ImageError::io("read", &path, &e))?;
        let changed = u64::try_from(metadata.ctime()).unwrap_or(0);
        if Duration::from_secs(changed) + SETTLED > now {
            return Ok(false);
        }
        add(entry.file_name().as_encoded_bytes());
        add(&stamp(&metadata));
        if metadata.is_dir() && !stamps(&path, add)? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// A directory of the host that is taken.
struct Taking {
    /// The directory's owner and group: what is theirs is root's in the machine, what is others' keeps its numbers, so that
    /// a user's project and a root file system that root made both come out right.
    owner: (u32, u32),
    /// Bytes that may still be taken.
    budget: u64,
    /// The first name of each file that has several, by device and inode.
    names: BTreeMap<(u64, u64), PathBuf>,
}

impl Taking {
    fn of(folder: &Path) -> Result<Taking> {
        let metadata = fs::metadata(folder).map_err(|e| ImageError::io("read", folder, &e))?;
        Ok(Taking { owner: (metadata.uid(), metadata.gid()), budget: MAX_DIRECTORY, names: BTreeMap::new() })
    }

    fn meta(&self, metadata: &fs::Metadata) -> Meta {
        let number = |id: u32, own: u32| if id == own { 0 } else { id };
        // Times would differ with every copy.
        Meta {
            mode: metadata.permissions().mode() & 0o7777,
            uid: number(metadata.uid(), self.owner.0),
            gid: number(metadata.gid(), self.owner.1),
            mtime: FIXED_TIME,
            capabilities: Capabilities::NONE,
        }
    }
}

/// A directory of the host with all in it. Links stay links, hard ones too; what is neither file, link nor directory is left
/// out.
pub(crate) fn take_directory(folder: &Path, path: &Path, tree: &mut Tree) -> Result<()> {
    let mut taking = Taking::of(folder)?;
    take_below(folder, path, tree, &mut taking)
}

fn take_below(folder: &Path, path: &Path, tree: &mut Tree, taking: &mut Taking) -> Result<()> {
    let entries = fs::read_dir(folder).map_err(|e| ImageError::io("read", folder, &e))?;
    for entry in entries {
        let entry = entry.map_err(|e| ImageError::io("read", folder, &e))?;
        let (from, to) = (entry.path(), path.join(entry.file_name()));
        let metadata = fs::symlink_metadata(&from).map_err(|e| ImageError::io("read", &from, &e))?;
        let meta = taking.meta(&metadata);
        if metadata.is_dir() {
            tree.put_directory(&to, meta, true)?;
            take_below(&from, &to, tree, taking)?;
        } else if metadata.is_symlink() {
            tree.put_link(&to, fs::read_link(&from).map_err(|e| ImageError::io("read", &from, &e))?)?;
        } else if metadata.is_file() {
            if metadata.nlink() > 1 {
                let file = (metadata.dev(), metadata.ino());
                if let Some(first) = taking.names.get(&file) {
                    tree.put_hard_link(&to, first)?;
                    continue;
                }
                taking.names.insert(file, to.clone());
            }
            let Some(left) = taking.budget.checked_sub(metadata.len()) else {
                fail!(
                    NotRunnable,
                    "{}: more than {} GiB, too much for a root archive; mount it with -v instead",
                    folder.display(),
                    MAX_DIRECTORY >> 30
                );
            };
            taking.budget = left;
            tree.put(&to, Kind::File(Content::Host(from)), meta)?;
        }
    }
    Ok(())
}

pub(crate) fn directory(folder: &Path, extent: Base, tree: &mut Tree) -> Result<Facts> {
    if !folder.is_dir() {
        fail!(NotFound, "{}: no such directory", folder.display());
    }
    take_directory(folder, Path::new("/"), tree)?;
    tree.remove(Path::new("/unilith.toml"));
    let own: Vec<PathBuf> = tree.list().into_iter().map(|(p, _)| p).collect();
    if !["/bin", "/sbin", "/lib", "/lib64"].iter().any(|p| tree.walk(Path::new(p), false).is_some()) {
        let mut base = Tree::new();
        etc::merged_usr(&mut base)?;
        debian::overlay(&mut base, tree)?;
        *tree = base;
    }
    // A program without its linker beside it takes the libraries of this machine.
    for path in own {
        let Some((real, content)) = tree.file(&path) else { continue };
        let bytes = content.read()?;
        if !elf::is_elf(&bytes) {
            continue;
        }
        if let Ok(parsed) = elf::program(&bytes, &path.display().to_string())
            && parsed.interpreter.as_ref().is_some_and(|i| tree.file(Path::new(i)).is_none())
        {
            let host = folder.join(real.strip_prefix("/").unwrap_or(&real));
            for needed in libraries::closure(&Host::new(), &host, &parsed)?.files {
                if !needed.real.starts_with(folder) {
                    put_library(&needed, &needed.path, tree)?;
                }
            }
            if extent != Base::None {
                base::host_certificates(tree, &parsed, &bytes)?;
            }
        }
    }
    etc::complete(tree, true)?;
    let mut facts = Facts { words: Words::Program, ..Facts::default() };
    facts.name = folder.file_name().map_or("root".into(), |n| n.to_string_lossy().into_owned());
    facts.learn(tree);
    let programs: Vec<String> =
        facts.programs.iter().filter(|p| p.problem.is_none()).map(|p| p.path.clone()).collect();
    match &programs[..] {
        [only] => facts.program = Some(only.clone()),
        [] => facts.no_program = "no program in this directory: nothing in it is executable".into(),
        several => {
            let shown: Vec<&str> = several.iter().take(12).map(String::as_str).collect();
            facts.no_program = format!(
                "several programs in this directory: {}; name one, as in `unilith run dir:PATH -- {}`, or with `program` in a unilith.toml",
                shown.join(", "),
                shown[0]
            );
        }
    }
    Ok(facts)
}

fn put_library(needed: &libraries::Needed, path: &Path, tree: &mut Tree) -> Result<()> {
    tree.put_bytes(&needed.real, needed.bytes.clone(), Meta::PROGRAM)?;
    if canonical(tree, path) != canonical(tree, &needed.real) {
        tree.put_link(path, &needed.real)?;
    }
    let name = path.file_name().unwrap_or_default();
    // The image has no linker cache; a library that only the cache knows is offered where the linker looks anyway.
    if needed.by_cache {
        tree.put_link(&Path::new("/usr/lib/x86_64-linux-gnu").join(name), &needed.real)?;
    }
    Ok(())
}

/// One program of this machine. It and libraries that are found relative to it go below /app, the others to their
/// own paths.
pub(crate) fn elf_file(path: &Path, extent: Base, tree: &mut Tree) -> Result<Facts> {
    let name = path.display().to_string();
    if path.is_dir() {
        fail!(NotRunnable, "{name}: a directory; write dir:{name}");
    }
    let (real, bytes) = libraries::read_host(path)?;
    let program = elf::program(&bytes, &name)?;
    etc::merged_usr(tree)?;
    let found = libraries::closure(&Host::new(), &real, &program)?;
    let above = |p: &Path| p.parent().unwrap_or(Path::new("/")).to_path_buf();
    let mut directories = vec![above(&real)];
    directories.extend(found.files.iter().filter(|n| n.by_origin).map(|n| above(&n.path)));
    let base = libraries::common_directory(directories.iter().map(PathBuf::as_path));
    let app = |p: &Path| Path::new(APP).join(p.strip_prefix(&base).unwrap_or(p));
    for needed in &found.files {
        if needed.by_origin {
            tree.put_bytes(&app(&needed.path), needed.bytes.clone(), Meta::PROGRAM)?;
        } else {
            put_library(needed, &needed.path, tree)?;
        }
    }
    let short = path.file_name().map_or("program".into(), |n| n.to_string_lossy().into_owned());
    let place = app(&above(&real)).join(&short);
    if extent != Base::None {
        base::host_certificates(tree, &program, &bytes)?;
    }
    tree.put_bytes(&place, bytes, Meta::PROGRAM)?;
    etc::complete(tree, true)?;
    Ok(Facts {
        name: short,
        words: Words::Arguments,
        program: Some(place.to_string_lossy().into_owned()),
        ..Facts::default()
    })
}
