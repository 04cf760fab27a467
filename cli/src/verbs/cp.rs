// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `unilith cp`: files and directories between this host and a running machine, by way of the directory that the overlay
//! shares with it.

use crate::{
    fault::{Fault, Result, file},
    session::{self, Session},
};
use std::{
    fs, io,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
};
use unilith_machine::store::Store;

#[derive(clap::Args, Clone, Debug)]
#[command(after_long_help = "\
Examples:
  unilith cp web:/etc/nginx/nginx.conf .
  unilith cp ./page.html web:/var/www/html/
  unilith cp web:/var/log ./logs")]
pub struct Args {
    /// MACHINE:PATH or a path of this host
    from: String,
    /// The other one of the two
    to: String,
}

/// The directory in the machine where the host's files are.
const SHARED: &str = "/overlay";

/// `MACHINE:PATH`; a name with a slash before the colon is a path of this host.
fn in_machine(text: &str) -> Option<(&str, &str)> {
    text.split_once(':')
        .filter(|(machine, path)| !machine.is_empty() && !machine.contains('/') && !path.is_empty())
}

pub fn act(store: &Store, args: &Args) -> Result<u8> {
    match (in_machine(&args.from), in_machine(&args.to)) {
        (Some((machine, path)), None) => out_of(store, machine, path, Path::new(&args.to)),
        (None, Some((machine, path))) => into(store, Path::new(&args.from), machine, path),
        _ => Err(Fault {
            code: 2,
            message: "one of the two is MACHINE:PATH, the other a path of this host".into(),
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
    let name = name_of(path)?;
    let between = Between::make(&machine.folder)?;
    let target = format!("{}/{name}", between.machine);
    let code = Session::open(&machine)?.run(&["cp", "-r", path, &target], false)?;
    if code != 0 {
        return Ok(code);
    }
    let to = if to.is_dir() { to.join(name) } else { to.to_path_buf() };
    copy(&between.host.join(name), &to)?;
    Ok(0)
}

fn into(store: &Store, from: &Path, machine: &str, path: &str) -> Result<u8> {
    let machine = session::find(store, machine)?;
    // The name of `.` is the directory's own.
    let real = from.canonicalize().map_err(file("read", from))?;
    let Some(name) = real.file_name() else { return Err(Fault::new("the root directory is not copied")) };
    let between = Between::make(&machine.folder)?;
    copy(&real, &between.host.join(name))?;
    let source = format!("{}/{}", between.machine, name.to_string_lossy());
    Session::open(&machine)?.run(&["cp", "-r", &source, path], false)
}

/// Copies files, directories and links; what else there is (sockets, devices) is left out.
fn copy(from: &Path, to: &Path) -> Result<()> {
    let metadata = fs::symlink_metadata(from).map_err(file("read", from))?;
    if metadata.is_symlink() {
        let target = fs::read_link(from).map_err(file("read", from))?;
        return symlink(target, to).map_err(file("make the link", to));
    }
    if metadata.is_file() {
        return fs::copy(from, to).map(|_| ()).map_err(file("write", to));
    }
    if metadata.is_dir() {
        match fs::create_dir(to) {
            Err(e) if e.kind() != io::ErrorKind::AlreadyExists => return Err(file("make", to)(e)),
            _ => {}
        }
        for entry in fs::read_dir(from).map_err(file("read", from))? {
            let entry = entry.map_err(file("read", from))?;
            copy(&entry.path(), &to.join(entry.file_name()))?;
        }
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
    fn directories_are_copied_with_links_as_links() {
        let folder = tempfile::tempdir().unwrap();
        let from = folder.path().join("a");
        fs::create_dir_all(from.join("b")).unwrap();
        fs::write(from.join("b/c"), "x").unwrap();
        symlink("b/c", from.join("l")).unwrap();
        let to = folder.path().join("z");
        copy(&from, &to).unwrap();
        assert_eq!(fs::read_to_string(to.join("l")).unwrap(), "x");
        assert_eq!(fs::read_link(to.join("l")).unwrap(), Path::new("b/c"));
    }
}
