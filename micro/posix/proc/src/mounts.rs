// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What is mounted where, for a process or thread: /proc/PID/mounts and mountinfo (proc_pid_mountinfo(5)).

use super::process::thread;
use abi::{Result, errno::EINVAL};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use procfs::{Entry, Key, Output};
use vfs::{Mount, Propagation};

pub const MOUNTS: Entry =
    Entry::Watched { lines: |key, out| lines(key, false, out), changes: vfs::mount_changes };
pub const MOUNTINFO: Entry =
    Entry::Watched { lines: |key, out| lines(key, true, out), changes: vfs::mount_changes };

/// As a field of a line: spaces and the like would look like another one.
fn field(bytes: &[u8]) -> Vec<u8> {
    let mut shown = Vec::new();
    for byte in bytes {
        match byte {
            b' ' | b'\t' | b'\n' | b'\\' => shown.extend_from_slice(format!("\\{byte:03o}").as_bytes()),
            _ => shown.push(*byte),
        }
    }
    shown
}

/// The optional fields of a line: the groups that a mount sends to and receives from. `here` are the numbers of all mounts of its
/// namespace, in ascending order.
fn groups(here: &[u32], mount: &Mount) -> String {
    let mut out = String::new();
    let Propagation { peers, master, is_unbindable } = mount.propagation();
    if let Some(peers) = peers {
        out.push_str(&format!(" shared:{peers}"));
    }
    if let Some(master) = master {
        out.push_str(&format!(" master:{master}"));
        if let Some(nearest) =
            mount.nearest_sender(|id| here.binary_search(&id).is_ok()).filter(|nearest| *nearest != master)
        {
            out.push_str(&format!(" propagate_from:{nearest}"));
        }
    }
    out.push_str(if is_unbindable { " unbindable" } else { "" });
    out
}

/// One line for each mount, as /proc/self/mounts and mountinfo have them.
fn lines(key: Key, with_ids: bool, out: &mut Output) -> Result<()> {
    let task = thread(key).map_err(|_| EINVAL)?;
    let files = task.files();
    let root = files.root();
    let mounts = files.namespace().list();
    let mut here: Vec<u32> = mounts.iter().map(|(mount, _)| mount.id()).collect();
    here.sort_unstable();
    for (mount, dentry) in mounts {
        let Some(path) = dentry.path_from(&root) else { continue };
        let (place, source) = (field(&path), field(mount.source.as_bytes()));
        let flags = mount.flags();
        let mut options = String::from(if flags.has(vfs::MountFlags::READ_ONLY) { "ro" } else { "rw" });
        for (flag, name) in [
            (vfs::MountFlags::NOSUID, ",nosuid"),
            (vfs::MountFlags::NODEV, ",nodev"),
            (vfs::MountFlags::NOEXEC, ",noexec"),
            (vfs::MountFlags::NOATIME, ",noatime"),
        ] {
            options.push_str(if flags.has(flag) { name } else { "" });
        }
        if !flags.has(vfs::MountFlags::NOATIME) {
            options.push_str(",relatime");
        }
        let kind = mount.file_system;
        let line = if with_ids {
            let parent = mount.point().map_or(1, |point| point.mount().id());
            // A volume may have lost it.
            let device = dentry.inode().stat().map_or(0, |stat| stat.device);
            let ids = format!("{} {parent} 0:{device} ", mount.id());
            let (of, end) =
                (format!(" {options}{} - {kind} ", groups(&here, &mount)), format!(" {options}\n"));
            [ids.as_bytes(), &field(&mount.start), b" ", &place, of.as_bytes(), &source, end.as_bytes()]
                .concat()
        } else {
            [&source, &b" "[..], &place, format!(" {kind} {options} 0 0\n").as_bytes()].concat()
        };
        out.add(&line)?;
    }
    Ok(())
}
