// SPDX-License-Identifier: Apache-2.0 OR MIT
//! /proc/PID/uid_map, gid_map, projid_map and setgroups (user_namespaces(7)).

use super::process::of;
use super::text;
use abi::{PAGE_SIZE, Result, errno::*};
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt::Write;
use procfs::{Entry, Key};
use task::identity::capabilities::{CAP_SETFCAP, CAP_SETGID, CAP_SETUID, CAP_SYS_ADMIN};
use task::process::Credentials;
use task::users::{self, Extent, Kind, UserNamespace};

/// The file of a map.
macro_rules! entry {
    ($kind:expr) => {
        procfs::Entry::File {
            text: |key| $crate::user_maps::show(key, $kind),
            store: |key, bytes| $crate::user_maps::store(key, $kind, bytes),
            permissions: 0o644,
        }
    };
}
pub(crate) use entry;

pub const SETGROUPS: Entry = Entry::Guarded {
    text: |key| {
        let allows = namespace(key)?.allows_setgroups();
        Ok(if allows { b"allow\n".to_vec() } else { b"deny\n".to_vec() })
    },
    store: store_setgroups,
    check: may_set_groups,
    permissions: 0o644,
};

fn namespace(key: Key) -> Result<UserNamespace> {
    Ok(of(key)?.credentials.lock().users.clone())
}

/// Ids inside, those that the reader knows them by, and how many.
pub fn show(key: Key, kind: Kind) -> Result<Vec<u8>> {
    let (shown, reader) = (namespace(key)?, users::here());
    // One who is inside is told the ids of the namespace around it.
    let viewer = if reader == shown { reader.parent().unwrap_or_default() } else { reader };
    let mut out = String::new();
    for Extent { inside, outside, count } in shown.extents(kind) {
        let outside = viewer.from_machine(kind, outside).unwrap_or(u32::MAX);
        let _ = writeln!(out, "{inside:10} {outside:10} {count:10}");
    }
    text(out)
}

/// Sets the map, once. `EPERM` unless the writer may give those ids away (user_namespaces(7), "Defining user and group ID mappings").
pub fn store(key: Key, kind: Kind, bytes: &[u8]) -> Result<()> {
    let namespace = namespace(key)?;
    let Some(parent) = namespace.parent() else { return Err(EPERM) };
    let who = task::current().credentials().lock().clone();
    if who.users != namespace && who.users != parent {
        return Err(EPERM);
    }
    if namespace.is_mapped(kind) {
        return Err(EPERM);
    }
    if kind != Kind::Project && !who.can_in(&namespace, CAP_SYS_ADMIN) {
        return Err(EPERM);
    }
    if bytes.len() >= PAGE_SIZE {
        return Err(EINVAL);
    }
    let lines = users::parse_map(bytes)?;
    if !may_map(&who, &namespace, &parent, kind, &lines) {
        return Err(EPERM);
    }
    namespace.set_map(kind, &lines)
}

/// Linux' `new_idmap_permitted`.
fn may_map(
    who: &Credentials,
    namespace: &UserNamespace,
    parent: &UserNamespace,
    kind: Kind,
    lines: &[Extent],
) -> bool {
    // Root of the parent may give files capabilities that count inside.
    let maps_root = lines.iter().any(|line| line.outside == 0);
    let may_map_root = match who.users == *namespace {
        true => namespace.maker_could_set_capabilities(),
        false => who.can_in(parent, CAP_SETFCAP),
    };
    if kind == Kind::User && maps_root && !may_map_root {
        return false;
    }
    // One's own id, and no other.
    if let [Extent { outside, count: 1, .. }] = lines
        && namespace.owner() == who.euid
    {
        let own = parent.to_machine(kind, *outside);
        let is_own = match kind {
            Kind::User => own == Some(who.euid),
            // Nobody leaves a group by it that something is refused to.
            Kind::Group => !namespace.allows_setgroups() && own == Some(who.egid),
            Kind::Project => false,
        };
        if is_own {
            return true;
        }
    }
    match kind {
        Kind::User => who.can_in(parent, CAP_SETUID),
        Kind::Group => who.can_in(parent, CAP_SETGID),
        Kind::Project => true,
    }
}

fn may_set_groups(key: Key) -> Result<()> {
    let namespace = namespace(key)?;
    let may = task::current().credentials().lock().can_in(&namespace, CAP_SYS_ADMIN);
    if may { Ok(()) } else { Err(EACCES) }
}

fn store_setgroups(key: Key, bytes: &[u8]) -> Result<()> {
    may_set_groups(key)?;
    let namespace = namespace(key)?;
    // Seven bytes and the newline are more than either word.
    if bytes.len() >= 8 {
        return Err(EINVAL);
    }
    let allows = match bytes.trim_ascii_end() {
        b"allow" => true,
        b"deny" => false,
        _ => return Err(EINVAL),
    };
    namespace.set_allows_setgroups(allows)
}
