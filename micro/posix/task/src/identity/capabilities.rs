// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Capabilities (capabilities(7)).

use super::file_capabilities::FileCapabilities;
use abi::{Result, errno::*};

/// Capabilities as a set of bits.
pub type CapabilitySet = u64;

pub const CAP_KILL: u32 = 5;
pub const CAP_SETGID: u32 = 6;
pub const CAP_SETUID: u32 = 7;
pub const CAP_SETPCAP: u32 = 8;
pub const CAP_NET_BIND_SERVICE: u32 = 10;
pub const CAP_NET_ADMIN: u32 = 12;
pub const CAP_NET_RAW: u32 = 13;
pub const CAP_IPC_LOCK: u32 = 14;
pub const CAP_IPC_OWNER: u32 = 15;
pub const CAP_SYS_CHROOT: u32 = 18;
pub const CAP_SYS_PTRACE: u32 = 19;
pub const CAP_SYS_ADMIN: u32 = 21;
pub const CAP_SYS_BOOT: u32 = 22;
pub const CAP_SYS_NICE: u32 = 23;
pub const CAP_SYS_RESOURCE: u32 = 24;
pub const CAP_AUDIT_CONTROL: u32 = 30;
pub const CAP_SYS_TIME: u32 = 25;
pub const CAP_SETFCAP: u32 = 31;
pub const CAP_SYSLOG: u32 = 34;
pub const CAP_CHECKPOINT_RESTORE: u32 = 40;
pub const LAST_CAPABILITY: u32 = CAP_CHECKPOINT_RESTORE;

/// All there are.
pub const ALL: CapabilitySet = (1 << (LAST_CAPABILITY + 1)) - 1;

/// Those the file-system user id carries: CAP_CHOWN to CAP_FSETID, CAP_LINUX_IMMUTABLE, CAP_MKNOD, CAP_MAC_OVERRIDE.
const FILES: CapabilitySet = 0x1f | 1 << 9 | 1 << 27 | 1 << 32;

/// The sets of a process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Capabilities {
    pub effective: CapabilitySet,
    pub permitted: CapabilitySet,
    pub inheritable: CapabilitySet,
    pub bounding: CapabilitySet,
    pub ambient: CapabilitySet,
    /// PR_SET_SECUREBITS.
    pub secure_bits: u32,
}

/// SECBIT_NOROOT, _NO_SETUID_FIXUP, _KEEP_CAPS, _NO_CAP_AMBIENT_RAISE; the bit above each locks it.
const NO_ROOT: u32 = 1;

const NO_USER_CHANGES: u32 = 1 << 2;
pub const KEEP_CAPS: u32 = 1 << 4;
const NO_AMBIENT_RAISE: u32 = 1 << 6;
const SECURE_BITS: u32 = NO_ROOT | NO_USER_CHANGES | KEEP_CAPS | NO_AMBIENT_RAISE;
const SECURE_LOCKS: u32 = SECURE_BITS << 1;

impl Capabilities {
    /// Of a process that starts with this effective user.
    pub fn of_user(euid: u32) -> Capabilities {
        let own = if euid == 0 { ALL } else { 0 };
        Capabilities { effective: own, permitted: own, bounding: ALL, ..Capabilities::default() }
    }

    /// Of whoever begins a user namespace, or enters it.
    pub fn all() -> Capabilities {
        Capabilities { effective: ALL, permitted: ALL, bounding: ALL, ..Capabilities::default() }
    }

    /// Of a process that is given these; capabilities that there are not, and ambient ones that it may not have, are left out.
    pub fn given(sets: &api_boot::CapabilitySets) -> Capabilities {
        let permitted = sets.permitted & ALL;
        let inheritable = sets.inheritable & ALL;
        Capabilities {
            effective: sets.effective & permitted,
            permitted,
            inheritable,
            bounding: sets.bounding & ALL,
            ambient: sets.ambient & permitted & inheritable,
            secure_bits: 0,
        }
    }

    fn is_secured(&self, bit: u32) -> bool {
        self.secure_bits & bit != 0
    }

    /// Capabilities come and go with the superuser's ids: SECBIT_NO_SETUID_FIXUP is not set.
    pub fn change_with_users(&self) -> bool {
        !self.is_secured(NO_USER_CHANGES)
    }

    /// PR_SET_SECUREBITS for callers with CAP_SETPCAP: `EPERM` for bits that are locked, locks that would go, and bits that
    /// there are not.
    pub fn set_secure_bits(&mut self, bits: u64) -> Result<()> {
        let (old, new) = (self.secure_bits, u32::try_from(bits).map_err(|_| EPERM)?);
        let locks = old & SECURE_LOCKS;
        if locks >> 1 & (old ^ new) != 0 || locks & !new != 0 || new & !(SECURE_BITS | SECURE_LOCKS) != 0 {
            return Err(EPERM);
        }
        self.secure_bits = new;
        Ok(())
    }

    /// PR_SET_KEEPCAPS.
    pub fn set_keep(&mut self, keep: bool) -> Result<()> {
        if self.is_secured(KEEP_CAPS << 1) {
            return Err(EPERM);
        }
        self.secure_bits = self.secure_bits & !KEEP_CAPS | if keep { KEEP_CAPS } else { 0 };
        Ok(())
    }

    /// PR_CAP_AMBIENT_RAISE: `EPERM` for what the program may not have or hand on.
    pub fn raise_ambient(&mut self, capability: u64) -> Result<()> {
        let bit = 1 << capability;
        if self.permitted & self.inheritable & bit == 0 || self.is_secured(NO_AMBIENT_RAISE) {
            return Err(EPERM);
        }
        self.ambient |= bit;
        Ok(())
    }

    /// capabilities(7), "Effect of user ID changes on capabilities": the real, effective and saved user ids before
    /// and after, and which id is root's.
    pub fn user_changes(&mut self, before: [u32; 3], after: [u32; 3], root: Option<u32>) {
        if !self.change_with_users() {
            return;
        }
        let is_root = |id: &u32| Some(*id) == root;
        if before.iter().any(is_root) && !after.iter().any(is_root) {
            if !self.is_secured(KEEP_CAPS) {
                self.permitted = 0;
                self.effective = 0;
            }
            self.ambient = 0;
        }
        match (is_root(&before[1]), is_root(&after[1])) {
            (true, false) => self.effective = 0,
            (false, true) => self.effective = self.permitted,
            _ => {}
        }
    }

    /// The same for the file-system user id.
    pub fn files_user_changes(&mut self, before: u32, after: u32, root: Option<u32>) {
        match (Some(before) == root, Some(after) == root) {
            _ if !self.change_with_users() => {}
            (true, false) => self.effective &= !FILES,
            (false, true) => self.effective |= self.permitted & FILES,
            _ => {}
        }
    }

    /// execve(2) of a file with those capabilities, with the ids that the program has (capabilities(7), "Transformation of
    /// capabilities during execve()" and "Capabilities and execution of programs by root"). `may_gain`: more than it had.
    /// Says whether all that it is permitted is in effect, as the file or root has it. `EPERM`, and none are left, where the file
    /// does not do without what is out of bounds.
    pub fn program_starts(
        &mut self,
        (uid, euid): (u32, u32),
        root: Option<u32>,
        file: Option<&FileCapabilities>,
        may_gain: bool,
    ) -> Result<bool> {
        let has_root = |id: u32| Some(id) == root && !self.is_secured(NO_ROOT);
        let of_file =
            file.map(|file| (file, file.permitted & self.bounding | file.inheritable & self.inheritable));
        let lacks = of_file.is_some_and(|(file, given)| file.is_effective && file.permitted & !given != 0);
        // A file that is given root's ids, and says what of root's power it needs, has that alone.
        let says_enough = Some(uid) != root && has_root(euid);
        let (given, is_effective) = match of_file {
            _ if lacks => (0, false),
            Some((file, given)) if says_enough => (given, file.is_effective),
            _ if has_root(uid) || has_root(euid) => (self.inheritable | self.bounding, has_root(euid)),
            Some((file, given)) => (given, file.is_effective),
            None => (0, false),
        };
        if of_file.is_some() {
            self.ambient = 0;
        }
        let given = if may_gain { given } else { given & self.permitted };
        self.permitted = given | self.ambient;
        self.effective = if is_effective { self.permitted } else { self.ambient };
        self.secure_bits &= !KEEP_CAPS;
        if lacks { Err(EPERM) } else { Ok(is_effective) }
    }

    /// capset(2)'s rules.
    pub fn set(&mut self, effective: u64, permitted: u64, inheritable: u64) -> Result<()> {
        let may_add = self.effective >> CAP_SETPCAP & 1 != 0;
        let inherited_new = inheritable & !(self.inheritable | self.permitted);
        let outside_bounds = inheritable & !(self.inheritable | self.bounding);
        if (inherited_new != 0 && !may_add)
            || outside_bounds != 0
            || permitted & !self.permitted != 0
            || effective & !permitted != 0
        {
            return Err(EPERM);
        }
        *self = Capabilities { effective, permitted, inheritable, ..*self };
        self.ambient &= permitted & inheritable;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    #[test]
    fn root_loses_its_capabilities_with_its_last_user_id() {
        let mut caps = Capabilities::of_user(0);
        caps.user_changes([0, 0, 0], [0, 1000, 0], Some(0));
        assert_eq!((caps.effective, caps.permitted), (0, ALL));
        caps.user_changes([0, 1000, 0], [0, 0, 0], Some(0));
        assert_eq!(caps.effective, ALL);
        caps.user_changes([0, 0, 0], [1000, 1000, 1000], Some(0));
        assert_eq!((caps.effective, caps.permitted), (0, 0));
        let mut keeping = Capabilities { secure_bits: KEEP_CAPS, ..Capabilities::of_user(0) };
        keeping.user_changes([0, 0, 0], [1000, 1000, 1000], Some(0));
        assert_eq!((keeping.effective, keeping.permitted), (0, ALL));
    }

    #[test]
    fn a_program_starts_with_those_of_root_or_the_ambient_ones() {
        let mut caps = Capabilities { effective: 0, permitted: 1, bounding: 6, ..Capabilities::of_user(0) };
        assert_eq!(caps.program_starts((0, 0), Some(0), None, true), Ok(true));
        assert_eq!((caps.effective, caps.permitted), (6, 6));
        let mut caps =
            Capabilities { inheritable: 3, ambient: 2, secure_bits: KEEP_CAPS, ..Capabilities::of_user(0) };
        assert_eq!(caps.program_starts((1000, 1000), Some(0), None, true), Ok(false));
        assert_eq!((caps.effective, caps.permitted, caps.ambient, caps.secure_bits), (2, 2, 2, 0));
    }

    #[test]
    fn capabilities_are_dropped_and_never_gained() {
        let mut caps = Capabilities::of_user(0);
        assert_eq!(caps.set(1, 3, 0), Ok(()));
        assert_eq!(caps.set(3, 3, 0), Ok(()));
        assert_eq!(caps.set(1, 7, 0), Err(EPERM));
        assert_eq!(caps.set(4, 3, 0), Err(EPERM));
        assert_eq!(caps.set(1, 1, 8), Err(EPERM), "inheritable without CAP_SETPCAP");
        assert_eq!(Capabilities::of_user(1000).set(1, 1, 0), Err(EPERM));
    }

    #[test]
    fn secure_bits_take_roots_privileges_and_can_be_locked() {
        let mut caps = Capabilities::of_user(0);
        let all = u64::from(NO_ROOT | NO_USER_CHANGES | NO_AMBIENT_RAISE | NO_ROOT << 1);
        assert_eq!(caps.set_secure_bits(all | 1 << 8), Err(EPERM));
        assert_eq!(caps.set_secure_bits(all), Ok(()));
        assert_eq!(caps.set_secure_bits(0), Err(EPERM), "a lock");
        caps.inheritable = 2;
        assert_eq!(caps.raise_ambient(1), Err(EPERM));
        caps.user_changes([0, 0, 0], [1000, 1000, 1000], Some(0));
        assert_eq!(caps.effective, ALL);
        assert_eq!(caps.program_starts((0, 0), Some(0), None, true), Ok(false));
        assert_eq!((caps.effective, caps.permitted), (0, 0));
    }

    /// A file's attribute of version 2.
    fn attribute(effective: u32, permitted: u64, inheritable: u64) -> Vec<u8> {
        let low = [permitted as u32, inheritable as u32];
        let high = [(permitted >> 32) as u32, (inheritable >> 32) as u32];
        [[2 << 24 | effective].as_slice(), &low, &high]
            .concat()
            .iter()
            .flat_map(|w| w.to_le_bytes())
            .collect()
    }

    #[test]
    fn a_file_gives_its_capabilities_within_the_bounds() {
        let user =
            Capabilities { ambient: 4, inheritable: 0x84, permitted: 4, ..Capabilities::of_user(1000) };
        let start = |caps: Capabilities, ids: (u32, u32), file: &[u8], may_gain: bool| {
            let mut caps = caps;
            let code = caps.program_starts(ids, Some(0), FileCapabilities::parse(file).as_ref(), may_gain);
            (code, caps.permitted, caps.effective, caps.ambient)
        };
        let ids = (1000, 1000);
        assert_eq!(start(user, ids, &attribute(1, 0x400, 0xc0), true), (Ok(true), 0x480, 0x480, 0));
        assert_eq!(start(user, ids, &attribute(0, 0x400, 0), true), (Ok(false), 0x400, 0, 0));
        assert_eq!(start(user, ids, &attribute(1, 1 << 40, 0), true), (Ok(true), 1 << 40, 1 << 40, 0));
        assert_eq!(
            start(user, ids, &attribute(1, 0x404, 0), false),
            (Ok(true), 4, 4, 0),
            "no new privileges"
        );
        let bound = Capabilities { bounding: 0xff, ..user };
        assert_eq!(start(bound, ids, &attribute(1, 0x401, 0), true), (Err(EPERM), 0, 0, 0));
        assert_eq!(start(bound, ids, &attribute(0, 0x401, 0), true), (Ok(false), 1, 0, 0));
        // Root has all the same, and a set-user-ID program of root what it says.
        assert_eq!(start(bound, (0, 0), &attribute(0, 1, 0), true), (Ok(true), 0xff, 0xff, 0));
        assert_eq!(start(bound, (1000, 0), &attribute(1, 1, 0), true), (Ok(true), 1, 1, 0));
    }

    #[test]
    fn root_that_may_gain_nothing_stays_without_what_it_gave_up() {
        let mut caps = Capabilities { permitted: 3, effective: 3, ..Capabilities::of_user(0) };
        assert_eq!(caps.program_starts((0, 0), Some(0), None, false), Ok(true));
        assert_eq!((caps.permitted, caps.effective), (3, 3));
    }
}
