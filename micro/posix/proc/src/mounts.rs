// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What is mounted where, for a process or thread: /proc/PID/mounts and mountinfo (proc_pid_mountinfo(5)).

use super::process::thread;
use abi::{Result, errno::EINVAL};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use procfs::{Entry, Key, Output};
use vfs::{Mount, MountFlags, Propagation};

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

fn access(flags: MountFlags) -> &'static str {
    if flags.has(MountFlags::READ_ONLY) { "ro" } else { "rw" }
}

/// Options of a mount, without whether it is for reading only.
fn mount_options(mount: &Mount) -> String {
    let flags = mount.flags();
    [
        (flags.has(MountFlags::NOSUID), ",nosuid"),
        (flags.has(MountFlags::NODEV), ",nodev"),
        (flags.has(MountFlags::NOEXEC), ",noexec"),
        (flags.has(MountFlags::NOATIME), ",noatime"),
        (flags.has(MountFlags::NODIRATIME), ",nodiratime"),
        (flags.is_relatime(), ",relatime"),
        (flags.has(MountFlags::NOSYMFOLLOW), ",nosymfollow"),
    ]
    .into_iter()
    .filter_map(|(is_shown, name)| is_shown.then_some(name))
    .collect()
}

/// Options of a file system, without whether it is for reading only.
fn file_system_options(mount: &Mount) -> String {
    let super_block = mount.super_block();
    let flags = super_block.flags();
    let own = field(super_block.options().as_bytes());
    let shared: String = [
        (MountFlags::SYNCHRONOUS, ",sync"),
        (MountFlags::DIRSYNC, ",dirsync"),
        (MountFlags::LAZYTIME, ",lazytime"),
    ]
    .into_iter()
    .filter_map(|(flag, name)| flags.has(flag).then_some(name))
    .collect();
    shared + &String::from_utf8_lossy(&own)
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
        let kind = mount.file_system;
        let line = if with_ids {
            let parent = mount.point().map_or(1, |point| point.mount().id());
            // A volume may have lost it.
            let device = dentry.inode().stat().map_or(0, |stat| stat.device);
            let ids = format!("{} {parent} 0:{device} ", mount.id());
            let (own, shared) = (mount_options(&mount), file_system_options(&mount));
            let of = format!(" {}{own}{} - {kind} ", access(mount.flags()), groups(&here, &mount));
            let end = format!(" {}{shared}\n", access(mount.super_block().flags()));
            [ids.as_bytes(), &field(&mount.start), b" ", &place, of.as_bytes(), &source, end.as_bytes()]
                .concat()
        } else {
            let access = if mount.is_read_only() { "ro" } else { "rw" };
            let options =
                format!(" {kind} {access}{}{} 0 0\n", file_system_options(&mount), mount_options(&mount));
            [&source, &b" "[..], &place, options.as_bytes()].concat()
        };
        out.add(&line)?;
    }
    Ok(())
}
