// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What mount(2) says of a union: its directories and options. The order of errors is that of Linux' fs/overlayfs/super.c.

use abi::{Result, errno::*};
use alloc::boxed::Box;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use api_alloc::Reserve;
use api_fs::Inode;
use calls_files::stat::lookup_at;
use overlayfs::{Layers, MAX_LOWERS, MayOwn};
use task::files::{self, AT_FDCWD};
use task::users::{Kind, UserNamespace};
use vfs::Dentry;

use crate::file_systems::Value;

/// Options of a union.
#[derive(Default)]
pub struct Overlay {
    lower: Option<Vec<u8>>,
    upper: Option<Vec<u8>>,
    work: Option<Vec<u8>>,
    /// userxattr
    user_xattrs: bool,
}

impl Overlay {
    /// Without an upper directory nobody writes to it.
    pub fn is_read_only(&self) -> bool {
        self.upper.is_none()
    }

    /// False for an option that is not known, and for one whose value is something that this file system does not do.
    pub fn set(&mut self, key: &[u8], value: Value) -> bool {
        match (key, value) {
            (b"lowerdir", Value::Text(text)) => self.lower = Some(text),
            (b"upperdir", Value::Text(text)) => self.upper = Some(text),
            (b"workdir", Value::Text(text)) => self.work = Some(text),
            (b"userxattr", Value::Flag) => self.user_xattrs = true,
            // Files that were copied are written through as others are, whether that is asked for or not.
            (b"default_permissions" | b"volatile", Value::Flag) => {}
            (b"redirect_dir", Value::Text(text)) => {
                return [&b"off"[..], b"nofollow", b"follow"].contains(&&text[..]);
            }
            (b"index" | b"nfs_export" | b"metacopy", Value::Text(text)) => return text == b"off",
            (b"xino", Value::Text(text)) => return text == b"off" || text == b"auto",
            _ => return false,
        }
        true
    }

    /// As mountinfo shows them.
    pub fn shown(&self) -> String {
        let mut out = String::new();
        for (name, value) in [("lowerdir", &self.lower), ("upperdir", &self.upper), ("workdir", &self.work)] {
            // A workdir without an upperdir is not used.
            let is_shown = name != "workdir" || self.upper.is_some();
            if let Some(value) = value.as_ref().filter(|_| is_shown) {
                out.push(',');
                out.push_str(name);
                out.push('=');
                out.push_str(&String::from_utf8_lossy(value));
            }
        }
        if self.user_xattrs {
            out.push_str(",userxattr");
        }
        out
    }

    /// The root of the union.
    pub fn make(&self) -> Result<Arc<dyn Inode>> {
        let lower = self.lower.as_ref().ok_or(EINVAL)?;
        let paths = split(lower)?;
        let upper = self.upper.as_ref().map(|upper| self.upper_and_work(upper)).transpose()?;
        let mut lowers: Vec<Arc<dyn Inode>> = Vec::new();
        lowers.reserve_exact_fallibly(paths.len()).map_err(|_| ENOMEM)?;
        for path in &paths {
            lowers.push(directory(path)?.inode().clone());
        }
        let users = task::current().credentials().lock().users.clone();
        let is_first = users.is_first();
        let may_own = (!is_first).then(|| owners_of(users));
        let may_keep_xattrs = is_first || self.user_xattrs;
        let user_xattrs = self.user_xattrs;
        overlayfs::mount(Layers { upper, lowers, user_xattrs, may_keep_xattrs, may_own }, files::new_device)
    }

    /// The directory that is written to, and the one for what is not finished: of one mount, and neither below the other.
    fn upper_and_work(&self, upper: &[u8]) -> Result<(Arc<dyn Inode>, Arc<dyn Inode>)> {
        let work = self.work.as_ref().ok_or(EINVAL)?;
        let upper = directory(&unescaped(upper)?)?;
        if upper.mount().is_read_only() {
            return Err(EINVAL);
        }
        let work = directory(&unescaped(work)?)?;
        let is_below = |a: &Arc<Dentry>, b: &Arc<Dentry>| a.path_from(b).is_some();
        if !Arc::ptr_eq(upper.mount(), work.mount()) || is_below(&upper, &work) || is_below(&work, &upper) {
            return Err(EINVAL);
        }
        Ok((upper.inode().clone(), work.inode().clone()))
    }
}

/// Nobody copies files of users that the namespace does not have.
fn owners_of(users: UserNamespace) -> MayOwn {
    Box::new(move |user, group| {
        users.from_machine(Kind::User, user).is_some() && users.from_machine(Kind::Group, group).is_some()
    })
}

fn directory(path: &[u8]) -> Result<Arc<Dentry>> {
    if path.is_empty() {
        return Err(EINVAL);
    }
    let found = lookup_at(AT_FDCWD, path, true)?;
    if found.is_directory() { Ok(found) } else { Err(EINVAL) }
}

/// Paths with colons between them. `EINVAL` for none at the beginning or the end, and for too many.
fn split(paths: &[u8]) -> Result<Vec<Vec<u8>>> {
    let (mut all, mut start, mut is_escaped) = (Vec::new(), 0, false);
    for (at, byte) in paths.iter().chain(b":").enumerate() {
        if *byte == b':' && !is_escaped {
            if all.len() == MAX_LOWERS {
                return Err(EINVAL);
            }
            all.reserve_fallibly(1).map_err(|_| ENOMEM)?;
            all.push(unescaped(&paths[start..at])?);
            start = at + 1;
        }
        is_escaped = *byte == b'\\' && !is_escaped;
    }
    // A backslash at the end hides the colon that was added.
    if is_escaped || all.is_empty() { Err(EINVAL) } else { Ok(all) }
}

/// Without the backslashes before colons and commas.
fn unescaped(path: &[u8]) -> Result<Vec<u8>> {
    let (mut out, mut is_escaped) = (Vec::new(), false);
    out.reserve_exact_fallibly(path.len()).map_err(|_| ENOMEM)?;
    for byte in path {
        is_escaped = *byte == b'\\' && !is_escaped;
        if !is_escaped {
            out.push(*byte);
        }
    }
    Ok(out)
}
