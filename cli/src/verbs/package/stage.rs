// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The directory whose contents become a package.

use crate::fault::{Fault, Result, file};
use flate2::{Compression, GzBuilder};
use rustix::fs::{AtFlags, CWD, Timespec, Timestamps, utimensat};
use std::{
    fs::{self, File, Permissions},
    io::Write,
    os::unix::fs::{PermissionsExt, symlink},
    path::{Path, PathBuf},
    process::Command,
};

const DIRECTORY: u32 = 0o755;
const PROGRAM: u32 = 0o755;
const DATA: u32 = 0o644;

/// Removed when dropped.
pub struct Stage {
    folder: PathBuf,
    /// Held: one package is made at a time, and what is left of one that was interrupted goes with the next.
    _gate: File,
}

impl Stage {
    /// An empty one below a directory that is there.
    pub fn new(target: &Path) -> Result<Stage> {
        let (folder, gate) = (target.join("package"), target.join("package.lock"));
        let gate = File::create(&gate).and_then(|f| f.lock().map(|()| f)).map_err(file("lock", &gate))?;
        if folder.exists() {
            fs::remove_dir_all(&folder).map_err(file("remove", &folder))?;
        }
        fs::create_dir(&folder).map_err(file("make", &folder))?;
        Ok(Stage { folder, _gate: gate })
    }

    /// Where a path of the package is.
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    pub fn put(&self, name: &str, bytes: &[u8]) -> Result<()> {
        self.write(name, bytes, DATA)
    }

    pub fn put_program(&self, name: &str, bytes: &[u8]) -> Result<()> {
        self.write(name, bytes, PROGRAM)
    }

    /// Compressed as Debian's policy wants documents: with `gzip -9n`.
    pub fn put_compressed(&self, name: &str, bytes: &[u8]) -> Result<()> {
        let mut encoder = GzBuilder::new().mtime(0).write(Vec::new(), Compression::best());
        let compressed = encoder.write_all(bytes).and_then(|()| encoder.finish());
        self.put(name, &compressed.map_err(file("compress", Path::new(name)))?)
    }

    /// A symbolic link.
    pub fn link(&self, name: &str, to: &str) -> Result<()> {
        let path = self.place(name)?;
        symlink(to, &path).map_err(file("write", &path))
    }

    fn write(&self, name: &str, bytes: &[u8], mode: u32) -> Result<()> {
        let path = self.place(name)?;
        fs::write(&path, bytes).map_err(file("write", &path))?;
        // Whatever this user's umask is.
        fs::set_permissions(&path, Permissions::from_mode(mode)).map_err(file("set the mode of", &path))
    }

    /// The path, with its directory made.
    fn place(&self, name: &str) -> Result<PathBuf> {
        let path = self.path(name);
        let folder = path.parent().unwrap_or(&self.folder);
        fs::create_dir_all(folder).map_err(file("make", folder))?;
        Ok(path)
    }

    /// What it takes when it is installed, in KiB.
    pub fn kibibytes(&self) -> Result<u64> {
        let mut sum = 0;
        each(&self.folder, &mut |path| {
            let found = fs::symlink_metadata(path).map_err(file("read", path))?;
            // dpkg-gencontrol(1) counts 1 for whatever is no file.
            sum += if found.is_file() { found.len().div_ceil(1024) } else { 1 };
            Ok(())
        })?;
        Ok(sum)
    }

    /// Writes the package, in which everything is as old as `epoch`, seconds since 1970.
    pub fn build(&self, output: &Path, epoch: u64) -> Result<()> {
        let seconds = i64::try_from(epoch).map_err(|_| {
            Fault::new(format!("{epoch} seconds since 1970 are no time that a file can have"))
        })?;
        let time = Timespec { tv_sec: seconds, tv_nsec: 0 };
        let times = Timestamps { last_access: time, last_modification: time };
        each(&self.folder, &mut |path| {
            let found = fs::symlink_metadata(path).map_err(file("read", path))?;
            if found.is_dir() {
                let mode = Permissions::from_mode(DIRECTORY);
                fs::set_permissions(path, mode).map_err(file("set the mode of", path))?;
            }
            let set = utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW);
            set.map_err(|e| file("set the time of", path)(e.into()))
        })?;
        // What is there already stays until the new one is whole.
        let mut name = output.file_name().map(ToOwned::to_owned).ok_or_else(|| {
            Fault::new(format!("--output {}: it is not the name of a file", output.display()))
        })?;
        name.push(format!(".new.{}", std::process::id()));
        let new = output.with_file_name(name);
        let mut command = Command::new("dpkg-deb");
        command.args(["--build", "--root-owner-group", "-Zxz"]).arg(&self.folder).arg(&new);
        // With several threads the compressed bytes depend on how many there are.
        command.env("DPKG_DEB_THREADS_MAX", "1").env("SOURCE_DATE_EPOCH", epoch.to_string());
        let written = super::run(&mut command, "dpkg").and_then(|_| {
            fs::set_permissions(&new, Permissions::from_mode(DATA)).map_err(file("set the mode of", &new))?;
            fs::rename(&new, output).map_err(file("write", output))
        });
        if written.is_err() {
            // There may be nothing, or what was begun.
            let _ = fs::remove_file(&new);
        }
        written
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        // Left behind in the build directory it would do no harm.
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// Does `act` for a directory and everything in it, for what is in a directory before the directory itself.
fn each(path: &Path, act: &mut dyn FnMut(&Path) -> Result<()>) -> Result<()> {
    if fs::symlink_metadata(path).is_ok_and(|found| found.is_dir()) {
        for entry in fs::read_dir(path).map_err(file("read", path))? {
            each(&entry.map_err(file("read", path))?.path(), act)?;
        }
    }
    act(path)
}
