// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a package says of itself: its control file, its changelog, its copyright (Debian Policy, chapters 5 and 12).

use super::{run, stage::Stage};
use crate::fault::{Fault, Result, file};
use std::{fs, path::Path, process::Command};

/// Who is asked about the package. There is no address: the repository's issue tracker is the place.
const MAINTAINER: &str = "The Unilith authors <unilith@localhost>";

/// What the package was built from.
pub struct Commit {
    /// Seconds since 1970: SOURCE_DATE_EPOCH, else the commit's.
    pub epoch: u64,
    /// The package's version.
    pub version: String,
    /// The day, as manual pages have it.
    pub day: String,
    /// The time as RFC 5322 writes it, for the changelog.
    time: String,
    hash: String,
}

impl Commit {
    /// The commit of a checkout.
    pub fn of(root: &Path) -> Result<Commit> {
        let git = |words: &[&str]| run(Command::new("git").current_dir(root).args(words), "git");
        let said = git(&["log", "-1", "--format=%ct %H"])?;
        let (committed, hash) = said.trim().split_once(' ').ok_or_else(|| {
            Fault::new(format!("git does not say which commit {} is at: {said}", root.display()))
        })?;
        let epoch = std::env::var("SOURCE_DATE_EPOCH").unwrap_or_else(|_| committed.to_string());
        let epoch: u64 = epoch
            .parse()
            .map_err(|_| Fault::new(format!("SOURCE_DATE_EPOCH={epoch}: it is no number of seconds")))?;
        let changed = !git(&["status", "--porcelain", "--untracked-files=no"])?.is_empty();
        let mut date = Command::new("date");
        date.env("LC_ALL", "C").args(["-u", "-d", &format!("@{epoch}")]);
        let dates = run(date.arg("+%Y%m%d%H%M%S|%Y-%m-%d|%a, %d %b %Y %H:%M:%S +0000"), "coreutils")?;
        let parts: Vec<&str> = dates.trim().splitn(3, '|').collect();
        let [stamp, day, time] = parts[..] else {
            return Err(Fault::new(format!("date does not say when {epoch} was: {dates}")));
        };
        // What differs from the commit is not that commit's package.
        let changed = if changed { "+changed" } else { "" };
        Ok(Commit {
            epoch,
            version: format!("{}+git{stamp}{changed}", env!("CARGO_PKG_VERSION")),
            day: day.into(),
            time: time.into(),
            hash: hash.into(),
        })
    }
}

/// The packages of the libraries that the command needs.
pub fn libraries(stage: &Stage) -> Result<String> {
    // dpkg-shlibdeps looks for the source package's control file where it is run.
    let source = stage.path("DEBIAN/shlibs");
    let control = source.join("debian/control");
    stage.put("DEBIAN/shlibs/debian/control", b"Source: unilith\n\nPackage: unilith\nArchitecture: any\n")?;
    let mut command = Command::new("dpkg-shlibdeps");
    let said = run(command.current_dir(&source).arg("-O").arg(stage.path("usr/bin/unilith")), "dpkg-dev")?;
    fs::remove_dir_all(&source).map_err(file("remove", &control))?;
    let depends = said.lines().find_map(|line| line.strip_prefix("shlibs:Depends="));
    let depends = depends
        .ok_or_else(|| Fault::new(format!("dpkg-shlibdeps does not say what is needed: {}", said.trim())))?;
    Ok(depends.to_string())
}

/// `libraries`: what the command is linked with. `kibibytes`: what is installed.
pub fn control(commit: &Commit, libraries: &str, kibibytes: u64) -> String {
    // apt fetches the packages that images are made of. What only some machines need is recommended: process machines need
    // no emulator, and machines without a network neither of the two behind it.
    format!(
        "Package: unilith\n\
         Version: {version}\n\
         Architecture: amd64\n\
         Maintainer: {MAINTAINER}\n\
         Installed-Size: {kibibytes}\n\
         Depends: {libraries}, apt\n\
         Recommends: qemu-system-x86, nftables, passt\n\
         Suggests: gdb, gcc, binutils, podman | docker.io\n\
         Section: admin\n\
         Priority: optional\n\
         Description: runs Linux programs as unikernels\n\
         \x20Unilith runs a Linux program as a unikernel: one program and the kernel it\n\
         \x20needs, fused into one single-purpose virtual machine, or into a sandboxed\n\
         \x20process where there is no hardware virtualisation. It takes Debian packages,\n\
         \x20ELF files, directories and OCI images unmodified, and its verbs and flags are\n\
         \x20docker's.\n\
         \x20.\n\
         \x20This package has the kernels of the default choices and that of containers.\n\
         \x20Other choices (--set), images with program and kernel in one (--static) and\n\
         \x20Linux kernels are built in a clone of the repository.\n",
        version = commit.version
    )
}

pub fn changelog(commit: &Commit) -> String {
    format!(
        "unilith ({}) unstable; urgency=medium\n\n  * Built from commit {}.\n\n -- {MAINTAINER}  {}\n",
        commit.version, commit.hash, commit.time
    )
}

/// In Debian's machine-readable format 1.0.
pub fn copyright(root: &Path) -> Result<String> {
    let path = root.join("LICENSE-MIT");
    let licence = fs::read_to_string(&path).map_err(file("read", &path))?;
    let mut paragraphs = licence.trim().split("\n\n");
    let (Some(_title), Some(holder)) = (paragraphs.next(), paragraphs.next()) else {
        return Err(Fault::new(format!("{} does not say whose copyright it is", path.display())));
    };
    let holder = holder.trim().trim_start_matches("Copyright (c) ");
    let mut text = String::new();
    for paragraph in paragraphs {
        text.push_str(if text.is_empty() { "" } else { " .\n" });
        paragraph.lines().for_each(|line| text.push_str(&format!(" {line}\n")));
    }
    Ok(format!(
        "Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/\n\
         Upstream-Name: Unilith\n\
         Comment: What other authors wrote and the command and the kernels are linked with, and under\n\
         \x20which licences, is in third-party-licences.gz beside this file.\n\
         \n\
         Files: *\n\
         Copyright: {holder}\n\
         License: Apache-2.0 or Expat\n\
         \n\
         License: Apache-2.0\n\
         \x20On Debian systems the whole text is in /usr/share/common-licenses/Apache-2.0.\n\
         \n\
         License: Expat\n{text}"
    ))
}
