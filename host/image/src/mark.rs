// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the contents of a file are known by without being read, as in Git's index.

use std::{
    fs::Metadata,
    os::unix::fs::MetadataExt,
    time::{Duration, SystemTime},
};

/// File systems count times in steps, of two seconds at most: a file that was changed so shortly ago may change again without another
/// time.
const UNCERTAIN: Duration = Duration::from_secs(2);

/// The number, size and times of a file. The same in one file system are the same contents, and in others as good as certainly: nobody
/// chooses the time of a file's last change. `None`: it is too young to be known by them.
pub fn mark(meta: &Metadata) -> Option<String> {
    let changed = Duration::new(meta.ctime().try_into().ok()?, meta.ctime_nsec().try_into().ok()?);
    let age = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH + changed).ok()?;
    let times = format!("{:x}-{:x}-{:x}", changed.as_nanos(), meta.mtime(), meta.mtime_nsec());
    (age > UNCERTAIN).then(|| format!("{:x}-{:x}-{times}", meta.ino(), meta.len()))
}
