// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a container's description keeps its programs from, where the kernel itself does it before the first of them begins: values
//! of /proc/sys, paths that show nothing (`maskedPaths`) and paths that may not be written to (`readonlyPaths`, runtime-spec,
//! config-linux.md). The filter of system calls is [`task::seccomp::Profile`].

use task::files;

use abi::errno::{ENOENT, ENOTDIR};
use abi::{Errno, Result};
use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use api_fs::{Inode, Sink, Source};
use vfs::{Credentials, Dentry, MountFlags, Namespace, Walk, ops};

static ROOT: Credentials = Credentials::root();
const O_RDONLY: u32 = 0;
const O_WRONLY: u32 = 1;
/// What covers a masked file.
const NULL: &[u8] = b"/dev/null";
/// The permission bits of writing.
const WRITABLE: u32 = 0o222;
/// Longest text of a setting that is compared with what it is to be.
const MAX_SETTING: usize = 4096;

/// What is kept from programs. Paths are absolute.
pub struct Confinement<'a> {
    /// Names as sysctl(8) has them, with dots, and values.
    pub settings: Vec<(&'a str, &'a str)>,
    pub masked: Vec<&'a str>,
    pub read_only: Vec<&'a str>,
}

/// What goes wrong is told to the user, in one line.
type Told<T> = core::result::Result<T, String>;

/// Does all of it to a tree whose file systems are mounted. The caller has a task of the program.
pub fn apply(namespace: &Namespace, what: &Confinement<'_>) -> Told<()> {
    for (name, value) in &what.settings {
        set(namespace, name, value)?;
    }
    // In this order a path that is both shows nothing.
    for path in &what.read_only {
        unless_missing(make_read_only(namespace, path))
            .map_err(|e| format!("read-only path {path}: {e:?}"))?;
    }
    for path in &what.masked {
        unless_missing(mask(namespace, path)).map_err(|e| format!("masked path {path}: {e:?}"))?;
    }
    Ok(())
}

/// Lists of engines name what only some kernels have.
fn unless_missing(done: Result<()>) -> Result<()> {
    match done {
        Err(ENOENT | ENOTDIR) => Ok(()),
        done => done,
    }
}

fn find(root: &Arc<Dentry>, path: &[u8]) -> Result<Arc<Dentry>> {
    Walk::new(root, root, &ROOT).lookup(path, true)
}

/// Writes a value below /proc/sys. One that cannot be written must have that value already.
fn set(namespace: &Namespace, name: &str, value: &str) -> Told<()> {
    let path = format!("/proc/sys/{}", name.replace('.', "/"));
    let root = namespace.root().topmost();
    let unknown = |_: Errno| format!("sysctl {name}: this kernel has no such setting");
    let found = find(&root, path.as_bytes()).map_err(unknown)?;
    if found.is_directory() {
        return Err(unknown(ENOENT));
    }
    let refused = |e: Errno| format!("sysctl {name}: the kernel refuses {value:?}: {e:?}");
    let inode = found.inode();
    let Err(e) = write(inode, value) else { return Ok(()) };
    if has(inode, value).map_err(refused)? {
        return Ok(());
    }
    if inode.stat().map_err(refused)?.permissions & WRITABLE == 0 {
        return Err(format!(
            "sysctl {name}: it cannot be changed in this kernel, to {value:?} or anything else"
        ));
    }
    Err(refused(e))
}

fn write(inode: &Arc<dyn Inode>, value: &str) -> Result<()> {
    inode.open(inode, O_WRONLY)?.write(0, &mut Source::kernel(value.as_bytes())).map(drop)
}

/// The file says just that, whatever the white space between its words is.
fn has(inode: &Arc<dyn Inode>, value: &str) -> Result<bool> {
    let mut text = vec![0; MAX_SETTING];
    let length = inode.open(inode, O_RDONLY)?.read(0, &mut Sink::kernel(&mut text))?;
    let text = core::str::from_utf8(&text[..length]).unwrap_or_default();
    Ok(text.split_ascii_whitespace().eq(value.split_ascii_whitespace()))
}

/// Covers a path with itself, to be read only, and with what is mounted below it as it is.
fn make_read_only(namespace: &Namespace, path: &str) -> Result<()> {
    let found = find(&namespace.root().topmost(), path.as_bytes())?;
    let flags = MountFlags(found.mount().flags().0 | MountFlags::READ_ONLY);
    let cover = if namespace.is_mount_root(&found) { found } else { namespace.bind(&found, &found, true)? };
    namespace.remount(&cover, flags)
}

/// Covers a file with /dev/null, and a directory with an empty one that stays so.
fn mask(namespace: &Namespace, path: &str) -> Result<()> {
    let root = namespace.root().topmost();
    let found = find(&root, path.as_bytes())?;
    if !found.is_directory() {
        let null = find(&root, NULL)?;
        return namespace.bind(&null, &found, false).map(|_| ());
    }
    let empty = ramfs::tmpfs(files::new_device(), 0, 0o755, (0, 0));
    namespace.mount(&found, empty, "tmpfs", "tmpfs", MountFlags(MountFlags::READ_ONLY)).map(|_| ())
}

/// The directory that a program begins in, once all is mounted: `None` stays what it is.
pub fn working(namespace: &Namespace, path: &str) -> Told<Arc<Dentry>> {
    let found = ops::directory(namespace, path, 0o755)?;
    if found.is_directory() {
        Ok(found)
    } else {
        Err(format!("{path}: the working directory is not a directory"))
    }
}
