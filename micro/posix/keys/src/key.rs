// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One key, and who may do what with it.

use abi::{Errno, Result, errno::*};
use alloc::sync::Arc;
use alloc::vec::Vec;
use ordered::Map;
use vfs::Groups;

/// What a key is named by; positive.
pub type Serial = i32;

/// Types of keys, keyrings first: so a keyring lists those that are in it before other keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    Keyring,
    User,
    Logon,
    BigKey,
}

impl Kind {
    pub fn of(name: &[u8]) -> Option<Kind> {
        Some(match name {
            b"keyring" => Kind::Keyring,
            b"user" => Kind::User,
            b"logon" => Kind::Logon,
            b"big_key" => Kind::BigKey,
            _ => return None,
        })
    }

    pub fn name(self) -> &'static str {
        match self {
            Kind::Keyring => "keyring",
            Kind::User => "user",
            Kind::Logon => "logon",
            Kind::BigKey => "big_key",
        }
    }

    /// Programs may read what is in it.
    pub fn is_readable(self) -> bool {
        self != Kind::Logon
    }

    /// Other data may take the place of its data.
    pub fn is_updatable(self) -> bool {
        self != Kind::Keyring
    }

    /// `EINVAL` for data that a key of the type cannot have.
    pub(crate) fn check_data(self, data: &[u8]) -> Result<()> {
        let allowed = match self {
            Kind::Keyring => 0..=0,
            Kind::User | Kind::Logon => 1..=32_767,
            Kind::BigKey => 1..=1 << 20,
        };
        if allowed.contains(&data.len()) { Ok(()) } else { Err(EINVAL) }
    }

    /// `EINVAL` for a description that a key of the type cannot have: that of a `logon` says for whom it is.
    pub(crate) fn check_description(self, description: &[u8]) -> Result<()> {
        let is_valid = match self {
            Kind::Logon => description.iter().position(|byte| *byte == b':').is_some_and(|at| at > 0),
            _ => !description.is_empty(),
        };
        if is_valid { Ok(()) } else { Err(EINVAL) }
    }
}

/// What a keyring finds its keys by.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Index {
    pub kind: Kind,
    pub description: Arc<Vec<u8>>,
}

/// The bits of a key's permissions: four groups of six.
pub mod permission {
    pub const POSSESSOR_ALL: u32 = 0x3f00_0000;
    pub const POSSESSOR_VIEW: u32 = 0x0100_0000;
    pub const POSSESSOR_READ: u32 = 0x0200_0000;
    pub const POSSESSOR_WRITE: u32 = 0x0400_0000;
    pub const POSSESSOR_SEARCH: u32 = 0x0800_0000;
    pub const POSSESSOR_LINK: u32 = 0x1000_0000;
    pub const POSSESSOR_SETATTR: u32 = 0x2000_0000;
    pub const USER_ALL: u32 = 0x3f_0000;
    pub const USER_VIEW: u32 = 0x1_0000;
    pub const USER_READ: u32 = 0x2_0000;
    pub const USER_LINK: u32 = 0x10_0000;
    pub const GROUP_ALL: u32 = 0x3f00;
    pub const ALL: u32 = 0x3f3f_3f3f;
}

/// What a caller needs of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    View,
    Read,
    Write,
    Search,
    Link,
    SetAttributes,
    /// To take a link to it out of a keyring takes nothing of the key.
    Unlink,
    /// The caller asks later.
    Later,
}

impl Need {
    fn bits(self) -> u32 {
        match self {
            Need::View => 1,
            Need::Read => 2,
            Need::Write => 4,
            Need::Search => 8,
            Need::Link => 0x10,
            Need::SetAttributes => 0x20,
            Need::Unlink | Need::Later => 0,
        }
    }
}

/// A key that a caller found, and whether through its own keyrings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ref {
    pub serial: Serial,
    pub is_possessed: bool,
}

impl Ref {
    pub fn possessed(serial: Serial) -> Ref {
        Ref { serial, is_possessed: true }
    }

    pub(crate) fn other(serial: Serial) -> Ref {
        Ref { serial, is_possessed: false }
    }
}

/// Who asks.
#[derive(Clone, Debug, Default)]
pub struct Who {
    pub uid: u32,
    pub gid: u32,
    pub fsuid: u32,
    pub fsgid: u32,
    pub groups: Groups,
    /// Number of its user namespace.
    pub namespace: u64,
    /// Its own keyrings: the thread's, the process', the session's.
    pub keyrings: [Option<Serial>; 3],
}

impl Who {
    fn in_group(&self, gid: u32) -> bool {
        self.fsgid == gid || self.groups.contains(&gid)
    }
}

/// What is in a key.
#[derive(Debug)]
pub(crate) enum Payload {
    Data(Vec<u8>),
    /// Of a keyring.
    Links(Map<Index, Serial>),
}

#[derive(Debug)]
pub struct Key {
    pub(crate) index: Index,
    pub uid: u32,
    pub gid: u32,
    pub permissions: u32,
    /// The request for it failed, with this.
    pub(crate) negative: Option<Errno>,
    /// In seconds of the wall clock.
    pub(crate) expires_at: Option<u64>,
    pub(crate) revoked_at: Option<u64>,
    pub(crate) is_invalidated: bool,
    /// It is a user's keyring or a user's session keyring.
    pub(crate) is_of_user: bool,
    /// Nothing can be linked to it.
    pub(crate) is_restricted: bool,
    /// The user namespace in which it was made, where its name can be joined.
    pub(crate) namespace: u64,
    pub(crate) payload: Payload,
    /// It counts for its user's quota.
    pub(crate) is_in_quota: bool,
    /// Bytes that count: of the description and of what is in it.
    pub(crate) counted_bytes: usize,
    /// Of these, bytes of what is in it.
    pub(crate) counted_data: usize,
    /// Links to it, and credentials that hold it.
    pub(crate) holders: usize,
    /// It is about to be unlinked everywhere, or the next one of the list of keys that are about to be freed.
    pub(crate) is_swept: bool,
    pub(crate) next_dead: Option<Serial>,
}

impl Key {
    pub fn kind(&self) -> Kind {
        self.index.kind
    }

    pub fn description(&self) -> &Arc<Vec<u8>> {
        &self.index.description
    }

    pub fn is_of_user(&self) -> bool {
        self.is_of_user
    }

    /// The data of a key, without that of a keyring.
    pub(crate) fn data(&self) -> &[u8] {
        match &self.payload {
            Payload::Data(data) => data,
            Payload::Links(_) => &[],
        }
    }

    pub(crate) fn links(&self) -> Option<&Map<Index, Serial>> {
        match &self.payload {
            Payload::Links(links) => Some(links),
            Payload::Data(_) => None,
        }
    }

    pub(crate) fn is_expired(&self, now: u64) -> bool {
        self.expires_at.is_some_and(|at| at <= now)
    }

    /// `ENOKEY`, `EKEYREVOKED` or `EKEYEXPIRED` for a key that is no more of use.
    pub(crate) fn validate(&self, now: u64) -> Result<()> {
        match self {
            _ if self.is_invalidated => Err(ENOKEY),
            _ if self.revoked_at.is_some() => Err(EKEYREVOKED),
            _ if self.is_expired(now) => Err(EKEYEXPIRED),
            _ => Ok(()),
        }
    }

    /// `EACCES` for a caller who may not do that: the permissions of its user, its group or others, and those of its possessor on top.
    pub fn permits(&self, who: &Who, is_possessed: bool, need: Need) -> Result<()> {
        let of_caller = match self.permissions {
            bits if self.uid == who.fsuid => bits >> 16,
            bits if bits & permission::GROUP_ALL != 0 && who.in_group(self.gid) => bits >> 8,
            bits => bits,
        };
        let of_possessor = if is_possessed { self.permissions >> 24 } else { 0 };
        let needed = need.bits();
        if (of_caller | of_possessor) & needed == needed { Ok(()) } else { Err(EACCES) }
    }
}
