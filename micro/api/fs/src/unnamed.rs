// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Attributes of what has no name in a file system: sockets and pipes. fchmod(2), fchown(2) and futimens(2) change them, and
//! fstat(2) shows them, as in Linux' sockfs and pipefs.

use super::{SetAttr, Stat, Timespec};
use api_lock::SpinLock;

/// Permissions, owner and times of one such object.
pub struct Unnamed(SpinLock<Attributes>);

#[derive(Clone, Copy)]
struct Attributes {
    permissions: u32,
    uid: u32,
    gid: u32,
    accessed: Timespec,
    modified: Timespec,
    changed: Timespec,
}

impl Unnamed {
    /// Of an object that this user makes.
    pub fn new(permissions: u32, uid: u32, gid: u32) -> Unnamed {
        let never = Timespec::default();
        Unnamed(SpinLock::new(Attributes {
            permissions,
            uid,
            gid,
            accessed: never,
            modified: never,
            changed: never,
        }))
    }

    pub fn change(&self, change: &SetAttr) {
        let mut now = self.0.lock();
        now.permissions = change.permissions.unwrap_or(now.permissions);
        now.uid = change.uid.unwrap_or(now.uid);
        now.gid = change.gid.unwrap_or(now.gid);
        now.accessed = change.accessed.unwrap_or(now.accessed);
        now.modified = change.modified.unwrap_or(now.modified);
        now.changed = Timespec::now();
    }

    /// The attributes in place of those that `stat` has.
    pub fn show(&self, stat: Stat) -> Stat {
        let Attributes { permissions, uid, gid, accessed, modified, changed } = *self.0.lock();
        Stat { permissions, uid, gid, accessed, modified, changed, ..stat }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::FileType;

    #[test]
    fn what_is_changed_is_shown_and_the_rest_stays() {
        let object = Unnamed::new(0o600, 5, 6);
        object.change(&SetAttr { permissions: Some(0o640), gid: Some(7), ..SetAttr::default() });
        let stat = object.show(Stat::new(FileType::Fifo, 0));
        assert_eq!((stat.kind, stat.permissions, stat.uid, stat.gid), (FileType::Fifo, 0o640, 5, 7));
        assert_eq!(stat.modified, Timespec::default());
    }
}
