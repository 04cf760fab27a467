// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `unilith cp`: files and directories between this host and a running machine, by way of the directory that the overlay
//! shares with it.

use crate::{
    fault::{Fault, Result, file},
    mapped,
    session::{self, Session},
};
use std::{
    fs::{self, Permissions},
    io::{self, IsTerminal, Read, Write},
    os::unix::{
        ffi::OsStrExt,
        fs::{PermissionsExt, symlink},
    },
    path::{Path, PathBuf},
};
use unilith_machine::{
    lines::printable,
    store::{Machine, Store},
};

#[derive(clap::Args, Clone, Debug)]
#[command(after_long_help = "\
Examples:
  unilith cp web:/etc/nginx/nginx.conf .
  unilith cp ./page.html web:/var/www/html/
  unilith cp web:/var/log ./logs
  unilith cp web:/etc/nginx - | tar -t
  tar -c site | unilith cp - web:/var/www")]
pub struct Args {
    /// Accepted for docker's users: nothing is said
    #[arg(short, long, hide = true)]
    quiet: bool,
    /// MACHINE:PATH, a path of this host, or - for a tar archive on standard input
    from: String,
    /// The other one of the two; - writes a tar archive to standard output
    to: String,
}

/// The directory in the machine where the host's files are.
const SHARED: &str = "/overlay";

/// Standard input or output.
const STREAM: &str = "-";

/// `MACHINE:PATH`; a name with a slash before the colon is a path of this host.
fn in_machine(text: &str) -> Option<(&str, &str)> {
    text.split_once(':')
        .filter(|(machine, path)| !machine.is_empty() && !machine.contains('/') && !path.is_empty())
}

pub fn act(store: &Store, args: &Args) -> Result<u8> {
    match (in_machine(&args.from), in_machine(&args.to)) {
        (Some((machine, path)), None) if args.to == STREAM => write_archive(store, machine, path),
        (None, Some((machine, path))) if args.from == STREAM => read_archive(store, machine, path),
        (Some((machine, path)), None) => out_of(store, machine, path, Path::new(&args.to)),
        (None, Some((machine, path))) => into(store, Path::new(&args.from), machine, path),
        _ => Err(Fault {
            code: 2,
            message: "one of the two is MACHINE:PATH, the other a path of this host or -".into(),
        }),
    }
}

/// A place in the shared directory that goes away with this.
struct Between {
    host: PathBuf,
    machine: String,
}

impl Between {
    fn make(folder: &Path) -> Result<Between> {
        let files = unilith_overlay::socket::files(folder)?;
        let name = format!(".cp.{}", std::process::id());
        let host = files.join(&name);
        fs::create_dir(&host).map_err(file("make", &host))?;
        Ok(Between { host, machine: format!("{SHARED}/{name}") })
    }
}

impl Drop for Between {
    fn drop(&mut self) {
        // It is removed with the machine otherwise.
        let _ = fs::remove_dir_all(&self.host);
    }
}

fn name_of(path: &str) -> Result<&str> {
    let name = path.trim_end_matches('/').rsplit('/').next().unwrap_or_default();
    match name {
        "" | "." | ".." => Err(Fault::new(format!("{path}: name a file or a directory in the machine"))),
        name => Ok(name),
    }
}

fn out_of(store: &Store, machine: &str, path: &str, to: &Path) -> Result<u8> {
    let machine = session::find(store, machine)?;
    fetch(&machine, path, |copied, name| {
        let to = if to.is_dir() { to.join(name) } else { to.to_path_buf() };
        copy(copied, &to, Direction::Out)
    })
}

/// Copies out of a machine to where `take` finds it; answers the exit code of the machine's own `cp`.
fn fetch(machine: &Machine, path: &str, take: impl FnOnce(&Path, &str) -> Result<()>) -> Result<u8> {
    let name = name_of(path)?;
    let between = Between::make(&machine.folder)?;
    let target = format!("{}/{name}", between.machine);
    let code = Session::open(machine)?.run(&["cp", "-r", path, &target], false)?;
    let copied = between.host.join(name);
    // Where a part could not be copied, which the machine has said, the others are there.
    if code == 0 || fs::symlink_metadata(&copied).is_ok() {
        take(&copied, name)?;
    }
    Ok(code)
}

/// A private directory of this host in the machine's own that goes away with this.
struct Private(PathBuf);

impl Private {
    fn make(folder: &Path) -> Result<Private> {
        let path = folder.join(format!(".archive.{}", std::process::id()));
        fs::create_dir(&path).map_err(file("make", &path))?;
        Ok(Private(path))
    }
}

impl Drop for Private {
    fn drop(&mut self) {
        // It is removed with the machine otherwise.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// `cp MACHINE:PATH -`: an archive whose one entry, or whose directory, has the name that the path ends with, as docker's has.
fn write_archive(store: &Store, machine: &str, path: &str) -> Result<u8> {
    if io::stdout().is_terminal() {
        return Err(Fault {
            code: 2,
            message: "an archive is not for a terminal: add `> FILE` or `| tar -t`".into(),
        });
    }
    let machine = session::find(store, machine)?;
    fetch(&machine, path, |copied, name| {
        let private = Private::make(&machine.folder)?;
        let plain = private.0.join(name);
        copy(copied, &plain, Direction::Out)?;
        let mut archive = tar::Builder::new(io::BufWriter::new(io::stdout().lock()));
        archive.follow_symlinks(false);
        let written = match fs::symlink_metadata(&plain).is_ok_and(|m| m.is_dir()) {
            true => archive.append_dir_all(name, &plain),
            false => archive.append_path_with_name(&plain, name),
        };
        let written = written.and_then(|()| archive.into_inner()).and_then(|mut out| out.flush());
        written.map_err(|e| Fault::new(format!("cannot write the archive to standard output: {e}")))
    })
}

/// `cp - MACHINE:PATH`: unpacks an archive into a directory of the machine's.
fn read_archive(store: &Store, machine: &str, path: &str) -> Result<u8> {
    let machine = session::find(store, machine)?;
    let private = Private::make(&machine.folder)?;
    let left_out = unpack(io::stdin().lock(), &private.0)?;
    for name in &left_out {
        eprintln!("unilith: {name} is left out: it is no file, directory or link");
    }
    let between = Between::make(&machine.folder)?;
    let links = Direction::Into { mapped: !machine.spec.platform.is_served_files() };
    let session = Session::open(&machine)?;
    // A path that ends so is a directory's or nothing's.
    let into = format!("{}/.", path.trim_end_matches('/')).into_bytes();
    for entry in fs::read_dir(&private.0).map_err(file("read", &private.0))? {
        let name = entry.map_err(file("read", &private.0))?.file_name();
        copy(&private.0.join(&name), &between.host.join(&name), links)?;
        let source = [between.machine.as_bytes(), b"/", name.as_bytes()].concat();
        let code = session.run(&[b"cp", &b"-r"[..], &source, &into], false)?;
        if code != 0 {
            return Ok(code);
        }
    }
    Ok(u8::from(!left_out.is_empty()))
}

/// Unpacks files, directories and links below a directory, and nothing outside of it; answers the names of what else there is.
fn unpack(from: impl Read, to: &Path) -> Result<Vec<String>> {
    let wrong = |e: io::Error| Fault::new(format!("standard input is no whole tar archive: {e}"));
    let mut left_out = Vec::new();
    let mut archive = tar::Archive::new(from);
    for entry in archive.entries().map_err(wrong)? {
        let mut entry = entry.map_err(wrong)?;
        let name = printable(&entry.path_bytes().escape_ascii().to_string());
        let kind = entry.header().entry_type();
        let is_plain = kind.is_file() || kind.is_dir() || kind.is_symlink() || kind.is_hard_link();
        // Answers false where the name leads out of the directory.
        if !is_plain && !kind.is_pax_global_extensions() {
            left_out.push(name);
        } else if is_plain && !entry.unpack_in(to).map_err(wrong)? {
            return Err(Fault::new(format!(
                "{name} in the archive leads out of the directory: nothing is copied"
            )));
        }
    }
    Ok(left_out)
}

fn into(store: &Store, from: &Path, machine: &str, path: &str) -> Result<u8> {
    let machine = session::find(store, machine)?;
    // The name of `.` is the directory's own.
    let real = from.canonicalize().map_err(file("read", from))?;
    let Some(name) = real.file_name() else { return Err(Fault::new("the root directory is not copied")) };
    let between = Between::make(&machine.folder)?;
    let links = Direction::Into { mapped: !machine.spec.platform.is_served_files() };
    copy(&real, &between.host.join(name), links)?;
    let source = format!("{}/{}", between.machine, name.to_string_lossy());
    Session::open(&machine)?.run(&["cp", "-r", &source, path], false)
}

/// Which way files go, for what the shared directory holds in place of links.
#[derive(Clone, Copy)]
enum Direction {
    /// Out of the shared directory: its links and modes are as the machine sees them.
    Out,
    /// Into it. `mapped`: QEMU reads the links there, from what it would itself have made of them.
    Into { mapped: bool },
}

/// Copies files, directories and links; what else there is (sockets, devices) is left out.
fn copy(from: &Path, to: &Path, direction: Direction) -> Result<()> {
    let metadata = fs::symlink_metadata(from).map_err(file("read", from))?;
    let seen = match direction {
        Direction::Out => mapped::mode(from),
        Direction::Into { .. } => None,
    };
    if metadata.is_symlink() || seen.is_some_and(mapped::is_link) {
        let target = match metadata.is_symlink() {
            true => fs::read_link(from).map_err(file("read", from))?,
            false => mapped::target(from).map_err(file("read", from))?,
        };
        let made = match direction {
            Direction::Into { mapped: true } => mapped::make_link(&target, to),
            _ => symlink(target, to),
        };
        return made.map_err(file("make the link", to));
    }
    if metadata.is_file() {
        fs::copy(from, to).map_err(file("write", to))?;
    }
    if metadata.is_dir() {
        match fs::create_dir(to) {
            Err(e) if e.kind() != io::ErrorKind::AlreadyExists => return Err(file("make", to)(e)),
            _ => {}
        }
        for entry in fs::read_dir(from).map_err(file("read", from))? {
            let entry = entry.map_err(file("read", from))?;
            if matches!(direction, Direction::Out) && entry.file_name() == mapped::FOLDER {
                continue;
            }
            copy(&entry.path(), &to.join(entry.file_name()), direction)?;
        }
    }
    // Last: a directory that nobody may write can still be filled. `fs::copy` gives files the mode that they have here.
    let mode = seen.or(metadata.is_dir().then(|| metadata.permissions().mode()));
    if let Some(mode) = mode.filter(|_| metadata.is_file() || metadata.is_dir()) {
        fs::set_permissions(to, Permissions::from_mode(mode & 0o777)).map_err(file("change", to))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_colon_behind_a_name_means_a_machine() {
        assert_eq!(in_machine("web:/etc"), Some(("web", "/etc")));
        for text in ["./a:b", "/a:b", "plain", ":x", "web:"] {
            assert_eq!(in_machine(text), None, "{text}");
        }
    }

    #[test]
    fn an_archive_is_unpacked_below_its_directory_alone() {
        let folder = tempfile::tempdir().unwrap();
        let archive = |entries: &[(&str, tar::EntryType, &str)]| {
            let mut archive = tar::Builder::new(Vec::new());
            for (name, kind, target) in entries {
                let mut header = tar::Header::new_ustar();
                header.set_entry_type(*kind);
                header.set_mode(0o640);
                header.set_size(0);
                if *kind == tar::EntryType::Symlink {
                    header.set_link_name(target).unwrap();
                }
                header.as_old_mut().name[..name.len()].copy_from_slice(name.as_bytes());
                header.set_cksum();
                archive.append(&header, io::empty()).unwrap();
            }
            archive.into_inner().unwrap()
        };
        use tar::EntryType::{Fifo, Regular, Symlink};
        let to = folder.path().join("a");
        fs::create_dir(&to).unwrap();
        let plain = archive(&[("x", Regular, ""), ("l", Symlink, "x"), ("p\x1b", Fifo, "")]);
        assert_eq!(unpack(&plain[..], &to).unwrap(), ["p\\x1b"]);
        assert_eq!(fs::read_link(to.join("l")).unwrap(), Path::new("x"));
        assert_eq!(fs::metadata(to.join("x")).unwrap().permissions().mode() & 0o777, 0o640);
        // Out of it by a name, and by a link that the archive itself has brought.
        assert!(unpack(&archive(&[("../out", Regular, "")])[..], &to).is_err());
        let link = archive(&[("up", Symlink, ".."), ("up/out", Regular, "")]);
        assert!(unpack(&link[..], &to).is_err());
        assert!(!folder.path().join("out").exists());
        assert!(unpack(&b"no archive, but a page of text"[..], &to).is_err());
    }

    #[test]
    fn directories_are_copied_with_links_as_links() {
        let folder = tempfile::tempdir().unwrap();
        let from = folder.path().join("a");
        fs::create_dir_all(from.join("b")).unwrap();
        fs::write(from.join("b/c"), "x").unwrap();
        symlink("b/c", from.join("l")).unwrap();
        let to = folder.path().join("z");
        copy(&from, &to, Direction::Into { mapped: false }).unwrap();
        assert_eq!(fs::read_to_string(to.join("l")).unwrap(), "x");
        assert_eq!(fs::read_link(to.join("l")).unwrap(), Path::new("b/c"));
    }

    #[test]
    fn what_a_machine_sees_as_a_link_comes_out_as_one_and_modes_stay() {
        let folder = tempfile::tempdir().unwrap();
        let (from, between, to) = (folder.path().join("a"), folder.path().join("b"), folder.path().join("c"));
        fs::create_dir(&from).unwrap();
        fs::write(from.join("x"), "x").unwrap();
        symlink("../x", from.join("l")).unwrap();
        if copy(&from, &between, Direction::Into { mapped: true }).is_err() {
            eprintln!("skipped: this file system keeps no attributes");
            return;
        }
        assert!(fs::symlink_metadata(between.join("l")).unwrap().is_file());
        // As QEMU leaves files of a machine: private, and their mode beside.
        fs::set_permissions(between.join("x"), Permissions::from_mode(0o600)).unwrap();
        rustix::fs::setxattr(
            between.join("x"),
            mapped::MODE,
            &0o100_751u32.to_le_bytes(),
            rustix::fs::XattrFlags::empty(),
        )
        .unwrap();
        fs::create_dir(between.join(mapped::FOLDER)).unwrap();
        copy(&between, &to, Direction::Out).unwrap();
        assert_eq!(fs::read_link(to.join("l")).unwrap(), Path::new("../x"));
        assert_eq!(fs::metadata(to.join("x")).unwrap().permissions().mode() & 0o7777, 0o751);
        assert!(!to.join(mapped::FOLDER).exists());
    }
}
