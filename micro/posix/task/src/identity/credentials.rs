// SPDX-License-Identifier: Apache-2.0 OR MIT
//! User and group ids and how they may change (credentials(7)).

use super::capabilities::{CAP_SETGID, CAP_SETUID, Capabilities};
use super::file_capabilities::FileCapabilities;
use crate::users::{Kind, UserNamespace};
use abi::{Result, errno::*};
#[cfg(feature = "landlock")]
use alloc::sync::Arc;
use vfs::Groups;

/// "Leave it as it is."
const KEEP: u32 = u32::MAX;

/// User and group ids, capabilities.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Credentials {
    pub uid: u32,
    pub euid: u32,
    pub suid: u32,
    pub fsuid: u32,
    pub gid: u32,
    pub egid: u32,
    pub sgid: u32,
    pub fsgid: u32,
    /// Supplementary ones, ascending.
    pub groups: Groups,
    pub capabilities: Capabilities,
    /// PR_SET_NO_NEW_PRIVS.
    pub no_new_privileges: bool,
    /// Where the capabilities count. (The ids are the machine's.)
    pub users: UserNamespace,
    #[cfg(feature = "keys")]
    pub keyrings: keys::Keyrings,
    #[cfg(feature = "landlock")]
    pub domain: Option<Arc<vfs::landlock::Domain>>,
}

/// The ids that a program gets from its file, by the file's set-user-ID and set-group-ID bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SetIds {
    pub user: Option<u32>,
    pub group: Option<u32>,
}

impl SetIds {
    /// Of a file with these permission bits and owners.
    pub fn of(permissions: u32, uid: u32, gid: u32) -> SetIds {
        const S_ISUID: u32 = 0o4000;
        // Without the group's right to execute, the bit stands for mandatory locks.
        const S_ISGID_AND_XGRP: u32 = 0o2010;
        SetIds {
            user: (permissions & S_ISUID != 0).then_some(uid),
            group: (permissions & S_ISGID_AND_XGRP == S_ISGID_AND_XGRP).then_some(gid),
        }
    }

    /// The effective user and group ids where these were the ones before.
    pub fn over(self, euid: u32, egid: u32) -> (u32, u32) {
        (self.user.unwrap_or(euid), self.group.unwrap_or(egid))
    }
}

/// What a program gets from its file.
#[derive(Clone, Copy, Debug, Default)]
pub struct FileGrants {
    pub ids: SetIds,
    /// Whose it is, user and group.
    pub owner: Option<(u32, u32)>,
    pub capabilities: Option<FileCapabilities>,
}

impl Default for Credentials {
    fn default() -> Self {
        Credentials::of(0, 0)
    }
}

impl Credentials {
    /// Of a program that starts as this user and group.
    pub fn of(uid: u32, gid: u32) -> Credentials {
        Credentials {
            uid,
            euid: uid,
            suid: uid,
            fsuid: uid,
            gid,
            egid: gid,
            sgid: gid,
            fsgid: gid,
            groups: Groups::default(),
            capabilities: Capabilities::of_user(uid),
            no_new_privileges: false,
            users: UserNamespace::FIRST,
            #[cfg(feature = "keys")]
            keyrings: keys::Keyrings::default(),
            #[cfg(feature = "landlock")]
            domain: None,
        }
    }

    /// Of the machine's first program, with the capabilities that it is given before execve(2).
    pub fn with_capabilities(mut self, sets: &api_boot::CapabilitySets) -> Credentials {
        self.capabilities = Capabilities::given(sets);
        self.starts_without_file();
        self
    }

    /// Of a program that starts as that user where this one is the first: within its bounds.
    pub fn beside(&self, uid: u32, gid: u32) -> Credentials {
        let mut new = Credentials::of(uid, gid);
        new.capabilities = Capabilities { bounding: self.capabilities.bounding, ..Capabilities::default() };
        new.starts_without_file();
        new.no_new_privileges = self.no_new_privileges;
        new
    }

    /// The capabilities of a program of which no file is looked at.
    fn starts_without_file(&mut self) {
        // Without a file there is nothing that can be out of bounds.
        let _ = self.capabilities.program_starts((self.uid, self.euid), self.root(), None, true);
    }

    /// execve(2): the effective ids, which are the file's where it has the bits, become the saved ones. `may_gain`: the ids
    /// and capabilities of the file that it has not. Says whether the program can do more than the user who runs it, or is to
    /// be as careful (AT_SECURE).
    ///
    /// # Errors
    /// `EPERM`, and no capabilities are left, where the file wants some that are out of bounds.
    pub fn program_starts(&mut self, file: &FileGrants, may_gain: bool) -> Result<bool> {
        #[cfg(feature = "keys")]
        self.keyrings.program_starts();
        let may_gain = may_gain && !self.no_new_privileges;
        // Of a file whose owner its user namespace does not have the bits say nothing.
        let has = |kind, id: Option<u32>| id.is_none_or(|id| self.users.from_machine(kind, id).is_some());
        let is_mapped = has(Kind::User, file.owner.map(|owner| owner.0))
            && has(Kind::Group, file.owner.map(|owner| owner.1));
        let set = if may_gain && is_mapped { file.ids } else { SetIds::default() };
        (self.euid, self.egid) = set.over(self.euid, self.egid);
        (self.suid, self.fsuid) = (self.euid, self.euid);
        (self.sgid, self.fsgid) = (self.egid, self.egid);
        if !self.is_its_users() {
            self.capabilities.ambient = 0;
        }
        let ids = (self.uid, self.euid);
        let root = self.root();
        let capabilities = file.capabilities.as_ref().filter(|file| self.users.is_of_root(file.root));
        let is_effective = self.capabilities.program_starts(ids, root, capabilities, may_gain)?;
        let has_more = self.capabilities.permitted & !self.capabilities.ambient != 0;
        Ok(!self.is_its_users() || (Some(self.uid) != root && (is_effective || has_more)))
    }

    /// The effective ids are those of the user who runs it.
    pub fn is_its_users(&self) -> bool {
        self.uid == self.euid && self.gid == self.egid
    }

    /// It may access what it could as the one before, or less (Linux' `commit_creds`).
    pub fn is_within(&self, before: &Credentials) -> bool {
        let ids = |c: &Credentials| [c.euid, c.egid, c.fsuid, c.fsgid];
        let has_less = match self.users == before.users {
            true => self.capabilities.permitted & !before.capabilities.permitted == 0,
            // Inside of a user namespace that it made.
            false => before.made(&self.users),
        };
        ids(self) == ids(before) && has_less
    }

    /// The keyring of the thread belongs to whom its files would (keyrings(7), "Thread keyring"): for whoever changes ids.
    #[cfg_attr(not(feature = "keys"), allow(clippy::unused_self, unused_variables))]
    pub fn ids_changed_from(&self, before: &Credentials) {
        #[cfg(feature = "keys")]
        if (self.fsuid, self.fsgid) != (before.fsuid, before.fsgid)
            && let Some(keyring) = &self.keyrings.thread
        {
            keys::table().follow_ids(keyring.serial(), self.fsuid, self.fsgid);
        }
    }

    /// Whether Landlock lets it look into a process with these: what it submitted to, they submitted to as well.
    #[cfg_attr(not(feature = "landlock"), allow(clippy::unused_self, unused_variables))]
    pub fn sees_into(&self, other: &Credentials) -> bool {
        #[cfg(feature = "landlock")]
        if let Some(own) = &self.domain {
            return other.domain.as_ref().is_some_and(|domain| domain.is_within(own));
        }
        true
    }

    /// All its ids of a kind are these (ptrace(2), "Ptrace access mode checking").
    pub fn is_all(&self, uid: u32, gid: u32) -> bool {
        [self.uid, self.euid, self.suid] == [uid; 3] && [self.gid, self.egid, self.sgid] == [gid; 3]
    }

    /// Has the capability for the machine as a whole.
    pub fn can(&self, capability: u32) -> bool {
        self.users.is_first() && self.has(capability)
    }

    fn has(&self, capability: u32) -> bool {
        self.capabilities.effective >> capability & 1 != 0
    }

    /// Has the capability for what belongs to its own user namespace.
    pub fn can_here(&self, capability: u32) -> bool {
        self.has(capability)
    }

    /// Has the capability for what belongs to that user namespace: it has it in that one or in one around it, or made that one, or one
    /// around it, from outside (user_namespaces(7), "Capabilities").
    pub fn can_in(&self, users: &UserNamespace, capability: u32) -> bool {
        let mut at = users.clone();
        loop {
            if at == self.users {
                return self.has(capability);
            }
            let Some(parent) = at.parent().filter(|_| at.level() > self.users.level()) else { return false };
            if parent == self.users && at.owner() == self.euid {
                return true;
            }
            at = parent;
        }
    }

    /// That user namespace is inside of one that this user made in its own.
    fn made(&self, users: &UserNamespace) -> bool {
        let mut at = users.clone();
        while let Some(parent) = at.parent() {
            if parent == self.users && at.owner() == self.euid {
                return true;
            }
            at = parent;
        }
        false
    }

    /// The user id that is root in its user namespace; `None` where it has none.
    pub fn root(&self) -> Option<u32> {
        self.users.to_machine(Kind::User, 0)
    }

    /// The first one of a new user namespace, or one that enters it: with all capabilities there.
    pub fn enter_users(&mut self, users: UserNamespace) {
        self.users = users;
        self.capabilities = Capabilities::all();
    }

    fn set_users(&mut self, real: u32, effective: u32, saved: u32) {
        let before = [self.uid, self.euid, self.suid];
        (self.uid, self.euid, self.suid, self.fsuid) = (real, effective, saved, effective);
        self.capabilities.user_changes(before, [real, effective, saved], self.root());
    }

    fn set_group_ids(&mut self, real: u32, effective: u32, saved: u32) {
        (self.gid, self.egid, self.sgid, self.fsgid) = (real, effective, saved, effective);
    }

    pub fn setuid(&mut self, uid: u32) -> Result<()> {
        let (real, effective, saved) = set_one(uid, (self.uid, self.suid), self.can_here(CAP_SETUID))?;
        self.set_users(real, effective, saved);
        Ok(())
    }

    pub fn setgid(&mut self, gid: u32) -> Result<()> {
        let (real, effective, saved) = set_one(gid, (self.gid, self.sgid), self.can_here(CAP_SETGID))?;
        self.set_group_ids(real, effective, saved);
        Ok(())
    }

    pub fn setreuid(&mut self, real: u32, effective: u32) -> Result<()> {
        let now = (self.uid, self.euid, self.suid);
        let (r, e, s) = set_two(real, effective, now, self.can_here(CAP_SETUID))?;
        self.set_users(r, e, s);
        Ok(())
    }

    pub fn setregid(&mut self, real: u32, effective: u32) -> Result<()> {
        let now = (self.gid, self.egid, self.sgid);
        let (r, e, s) = set_two(real, effective, now, self.can_here(CAP_SETGID))?;
        self.set_group_ids(r, e, s);
        Ok(())
    }

    pub fn setresuid(&mut self, wanted: [u32; 3]) -> Result<()> {
        let now = [self.uid, self.euid, self.suid];
        let [r, e, s] = set_three(wanted, now, self.can_here(CAP_SETUID))?;
        self.set_users(r, e, s);
        Ok(())
    }

    pub fn setresgid(&mut self, wanted: [u32; 3]) -> Result<()> {
        let now = [self.gid, self.egid, self.sgid];
        let [r, e, s] = set_three(wanted, now, self.can_here(CAP_SETGID))?;
        self.set_group_ids(r, e, s);
        Ok(())
    }

    /// Returns the id from before; one that is not allowed changes nothing.
    pub fn setfsuid(&mut self, uid: u32) -> u32 {
        let before = self.fsuid;
        let allowed =
            [self.uid, self.euid, self.suid, self.fsuid].contains(&uid) || self.can_here(CAP_SETUID);
        if uid != KEEP && allowed {
            self.fsuid = uid;
            self.capabilities.files_user_changes(before, uid, self.root());
        }
        before
    }

    /// As [`Credentials::setfsuid`].
    pub fn setfsgid(&mut self, gid: u32) -> u32 {
        let before = self.fsgid;
        let allowed =
            [self.gid, self.egid, self.sgid, self.fsgid].contains(&gid) || self.can_here(CAP_SETGID);
        if gid != KEEP && allowed {
            self.fsgid = gid;
        }
        before
    }

    /// Member of the group, by its effective id for files or a supplementary one.
    pub fn in_group(&self, gid: u32) -> bool {
        self.fsgid == gid || self.groups.contains(&gid)
    }
}

/// setuid(2): real and saved id now. The answer is real, effective, saved.
fn set_one(id: u32, (real, saved): (u32, u32), privileged: bool) -> Result<(u32, u32, u32)> {
    match id {
        KEEP => Err(EINVAL),
        _ if privileged => Ok((id, id, id)),
        _ if id == real || id == saved => Ok((real, id, saved)),
        _ => Err(EPERM),
    }
}

/// setreuid(2).
fn set_two(real: u32, effective: u32, now: (u32, u32, u32), privileged: bool) -> Result<(u32, u32, u32)> {
    let (r, e, s) = now;
    if real != KEEP && ![r, e].contains(&real) && !privileged {
        return Err(EPERM);
    }
    if effective != KEEP && ![r, e, s].contains(&effective) && !privileged {
        return Err(EPERM);
    }
    let new_effective = if effective == KEEP { e } else { effective };
    let saves = real != KEEP || (effective != KEEP && effective != r);
    Ok((if real == KEEP { r } else { real }, new_effective, if saves { new_effective } else { s }))
}

/// setresuid(2).
fn set_three(wanted: [u32; 3], now: [u32; 3], privileged: bool) -> Result<[u32; 3]> {
    let allowed = |id: &u32| *id == KEEP || now.contains(id) || privileged;
    if !wanted.iter().all(allowed) {
        return Err(EPERM);
    }
    Ok(core::array::from_fn(|i| if wanted[i] == KEEP { now[i] } else { wanted[i] }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn users(c: &Credentials) -> [u32; 4] {
        [c.uid, c.euid, c.suid, c.fsuid]
    }

    #[test]
    fn root_drops_to_a_user_for_good() {
        let mut c = Credentials::of(0, 0);
        c.setgid(33).unwrap();
        c.setuid(33).unwrap();
        assert_eq!(users(&c), [33; 4]);
        assert_eq!(c.setuid(0), Err(EPERM));
        assert_eq!(c.setgid(0), Err(EPERM));
        assert!(!c.can(CAP_SETUID));
    }

    fn start(c: &mut Credentials, ids: SetIds) {
        c.program_starts(&FileGrants { ids, ..FileGrants::default() }, true).unwrap();
    }

    #[test]
    fn a_file_with_the_bits_gives_its_ids_and_roots_capabilities_within_the_bounds() {
        let mut c = Credentials::of(1000, 1000);
        c.capabilities = Capabilities { bounding: 0xff, ambient: 1, inheritable: 1, ..c.capabilities };
        start(&mut c, SetIds::of(0o6755, 0, 42));
        assert_eq!((users(&c), [c.gid, c.egid, c.sgid, c.fsgid]), ([1000, 0, 0, 0], [1000, 42, 42, 42]));
        let caps = c.capabilities;
        assert_eq!((caps.permitted, caps.effective, caps.ambient), (0xff, 0xff, 0));
        assert!(!c.is_its_users());
        // The next program has the ids still: they are the process's.
        start(&mut c, SetIds::of(0o2745, 7, 8));
        assert_eq!((users(&c), c.egid), ([1000, 0, 0, 0], 42));
        start(&mut c, SetIds::of(0o4711, 1000, 8));
        assert_eq!((users(&c), c.capabilities.effective), ([1000; 4], 0));
    }

    #[test]
    fn the_saved_id_leads_back() {
        let mut c = Credentials::of(0, 0);
        c.setresuid([1000, 1000, 0]).unwrap();
        assert!(!c.can(CAP_SETUID));
        assert_eq!(c.setresuid([5, KEEP, KEEP]), Err(EPERM));
        c.setreuid(KEEP, 0).unwrap();
        assert_eq!(users(&c), [1000, 0, 0, 0]);
        assert!(c.can(CAP_SETUID));
    }

    #[test]
    fn setreuid_saves_the_effective_id_when_it_leaves_the_real_one() {
        let mut c = Credentials::of(0, 0);
        c.setreuid(1, 2).unwrap();
        assert_eq!(users(&c), [1, 2, 2, 2]);
        c.setreuid(KEEP, 1).unwrap();
        assert_eq!(users(&c), [1, 1, 2, 1]);
        assert_eq!(c.setreuid(3, KEEP), Err(EPERM));
    }

    #[test]
    fn the_file_system_id_changes_only_to_what_is_allowed() {
        let mut c = Credentials::of(1000, 1000);
        assert_eq!(c.setfsuid(5), 1000);
        assert_eq!(c.setfsuid(KEEP), 1000);
        let mut root = Credentials::of(0, 0);
        assert_eq!(root.setfsuid(5), 0);
        assert_eq!(root.setfsuid(KEEP), 5);
    }
}
