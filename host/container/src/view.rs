// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A container's files as engines find them on the host: in the mount namespace of its process (`/proc/PID/ns/mnt`) the container's root
//! is `/`, and its binds are below it. Podman enters that namespace to copy files to and from a container that runs, and so
//! read and wrote the host's own files when the process was in the host's.
//!
//! The unsafe code here is one unshare(2).

use crate::{ContainerError, Result, file};
use rustix::{
    fs::{AtFlags, CWD, StatxAttributes, StatxFlags, statx},
    mount::{
        MountFlags, MountPropagationFlags, MoveMountFlags, OpenTreeFlags, UnmountFlags, mount_change,
        mount_remount, move_mount, open_tree, unmount,
    },
    process::{chdir, pivot_root},
};
use std::{
    io,
    os::fd::OwnedFd,
    path::{Path, PathBuf},
};

/// A directory or file of the host's, and where the container sees it.
#[derive(Clone, Debug)]
pub struct Tree {
    pub host: PathBuf,
    pub guest: PathBuf,
    pub is_read_only: bool,
}

/// Puts the calling thread, and no other one of the process, into a mount namespace of its own that has these trees and nothing else.
/// The first is the root. Engines look at the process's first thread.
///
/// Nothing happens where nobody may mount, and below a root that is no mount (chroot(2)), which cannot be exchanged: whoever enters the
/// namespace there finds what it has itself.
pub fn enter(trees: &[Tree]) -> Result<()> {
    let Some((root, others)) = trees.split_first() else { return Ok(()) };
    if !root_is_mount() {
        return Ok(());
    }
    // SAFETY: gives this thread mounts, a root and a working directory of its own; nothing that it has open changes.
    if unsafe { libc::unshare(libc::CLONE_FS | libc::CLONE_NEWNS) } != 0 {
        let why = io::Error::last_os_error();
        return match why.kind() {
            io::ErrorKind::PermissionDenied => Ok(()),
            _ => Err(ContainerError::Namespace("mount", why)),
        };
    }
    let failed = |e: rustix::io::Errno| ContainerError::Namespace("mount", e.into());
    // What is mounted on the host below them later is seen; nothing reaches the host.
    let slave = MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC;
    mount_change(c"/", slave).map_err(failed)?;
    // The host's names are gone afterwards.
    let copies: Vec<(&Tree, OwnedFd)> =
        others.iter().map(|tree| Ok((tree, copy(&tree.host)?))).collect::<Result<_>>()?;
    let path = &root.host;
    let within = |e: rustix::io::Errno| file("cannot make it the root:", path)(e.into());
    move_mount(copy(path)?, c"", CWD, path, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH).map_err(within)?;
    chdir(path).map_err(within)?;
    // Stacks the old root on the new one (pivot_root(2), `pivot_root(".", ".")`).
    pivot_root(c".", c".").map_err(within)?;
    unmount(c".", UnmountFlags::DETACH).map_err(within)?;
    chdir(c"/").map_err(within)?;
    for (tree, copy) in &copies {
        attach(tree, copy)?;
    }
    close(root)
}

/// pivot_root(2) wants one. Kernels before 5.8 do not tell, and then it says so itself.
fn root_is_mount() -> bool {
    let about = statx(CWD, c"/", AtFlags::empty(), StatxFlags::BASIC_STATS);
    about.map_or(true, |about| {
        !about.stx_attributes_mask.contains(StatxAttributes::MOUNT_ROOT)
            || about.stx_attributes.contains(StatxAttributes::MOUNT_ROOT)
    })
}

/// A copy of a mount, with those below it, that is nowhere yet.
fn copy(host: &Path) -> Result<OwnedFd> {
    let flags =
        OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC | OpenTreeFlags::AT_RECURSIVE;
    open_tree(CWD, host, flags).map_err(|e| file("cannot use", host)(e.into()))
}

/// The container's root is `/` now, so no link of its image leads out of it. Its `/dev` is the machine's, and has no mount points here.
fn attach(tree: &Tree, copy: &OwnedFd) -> Result<()> {
    if tree.guest.starts_with("/dev") {
        return Ok(());
    }
    let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_SYMLINKS;
    move_mount(copy, c"", CWD, &tree.guest, flags)
        .map_err(|e| file("cannot mount", &tree.guest)(e.into()))?;
    close(tree)
}

/// What is read-only in the container is so here.
fn close(tree: &Tree) -> Result<()> {
    if !tree.is_read_only {
        return Ok(());
    }
    mount_remount(&tree.guest, MountFlags::BIND | MountFlags::RDONLY, c"")
        .map_err(|e| file("cannot make read-only:", &tree.guest)(e.into()))
}
