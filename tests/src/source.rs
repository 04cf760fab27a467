// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Debian's source packages, for the suites in them, and what those print.

use crate::{Unilith, finish, root};
use std::{fs, io::Write, path::PathBuf, process::Command, time::Duration};
use unilith_image::{Cache, Quiet, SourcePackage};

/// Unpacking the largest of them.
const UNPACK: Duration = Duration::from_secs(600);

/// Debian's source of a package, unpacked in the test's scratch directory.
#[track_caller]
pub fn unpack(unilith: &Unilith, name: &str) -> PathBuf {
    let cache = Cache::of_user().expect("a cache folder");
    let package = SourcePackage::find(name, &cache, false, &Quiet).expect("Debian's package lists");
    let (_, description) = package.fetch(&cache, &Quiet).expect("Debian's source package");
    let folder = unilith.path(name);
    let mut unpack = Command::new("dpkg-source");
    finish(unpack.args(["--no-check", "--extract"]).arg(description).arg(&folder), UNPACK).ok();
    folder
}

/// Keeps what a suite printed in `target/suites`, behind what it printed before.
#[track_caller]
pub fn keep(name: &str, text: &str) {
    let folder = root().join("target/suites");
    fs::create_dir_all(&folder).expect("target can be written");
    let file = fs::OpenOptions::new().create(true).append(true).open(folder.join(name));
    file.and_then(|mut file| file.write_all(text.as_bytes())).expect("target can be written");
}
