// SPDX-License-Identifier: Apache-2.0 OR MIT
//! All keys: how they are made, changed and freed.

use crate::key::{Index, Key, Kind, Need, Payload, Ref, Serial, Who, permission};
use crate::quota::{Account, Quota};
use crate::{NEGATIVE_SECONDS, now, seed};
use abi::{Errno, Result, errno::*};
use alloc::format;
use alloc::sync::Arc;
use alloc::vec::Vec;
use ordered::Map;

/// Bytes that all keys of the type `big_key` may have: each counts as [`BIG_KEY_BYTES`] for its user, so the quota does not bound them.
/// (Linux puts them into swappable memory.)
const MAX_BIG_KEY_BYTES: usize = 16 << 20;
/// What a `big_key` counts (Linux' `big_key_preparse`).
const BIG_KEY_BYTES: usize = 16;
/// Serial numbers below stand for no key.
const FIRST_SERIAL: Serial = 3;
/// A user's keyrings may do everything but have their attributes changed.
const OF_USER: u32 = permission::POSSESSOR_ALL & !permission::POSSESSOR_SETATTR | permission::USER_ALL;
const PERSISTENT: u32 = permission::POSSESSOR_ALL & !permission::POSSESSOR_SETATTR
    | permission::USER_VIEW
    | permission::USER_READ;
/// Shown as the overflow id.
pub(crate) const NO_GROUP: u32 = u32::MAX;

/// What a key begins with.
pub struct NewKey {
    pub kind: Kind,
    pub description: Vec<u8>,
    pub uid: u32,
    pub gid: u32,
    pub permissions: u32,
    pub quota: Quota,
}

/// The keyrings of one user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UserKeyrings {
    pub user: Serial,
    pub session: Serial,
}

pub struct Table {
    pub(crate) keys: Map<Serial, Key>,
    pub(crate) accounts: Map<u32, Account>,
    /// By the number of a user namespace and the user's id; each holds its keyrings.
    pub(crate) users: Map<(u64, u32), UserKeyrings>,
    pub(crate) persistent: Map<(u64, u32), Serial>,
    pub(crate) big_key_bytes: usize,
    /// When the first key is to be unlinked that was revoked or has expired.
    pub(crate) next_collection: u64,
    /// The serial number that is tried next, once there was one.
    random: u64,
}

impl Table {
    pub(crate) const fn new() -> Table {
        Table {
            keys: Map::new(),
            accounts: Map::new(),
            users: Map::new(),
            persistent: Map::new(),
            big_key_bytes: 0,
            next_collection: u64::MAX,
            random: 0,
        }
    }

    /// `ENOKEY` for a number that no key has.
    pub fn get(&self, serial: Serial) -> Result<&Key> {
        self.keys.get(&serial).ok_or(ENOKEY)
    }

    pub(crate) fn get_mut(&mut self, serial: Serial) -> Result<&mut Key> {
        self.keys.get_mut(&serial).ok_or(ENOKEY)
    }

    /// Credentials, or a keyring, hold the key.
    pub(crate) fn hold(&mut self, serial: Serial) {
        if let Some(key) = self.keys.get_mut(&serial) {
            key.holders += 1;
        }
    }

    /// Somebody holds it no more.
    pub(crate) fn release(&mut self, serial: Serial) {
        let mut dead = None;
        self.drop_holder(serial, &mut dead);
        self.free(dead);
    }

    /// Frees a new key that nobody came to hold.
    pub(crate) fn discard(&mut self, serial: Serial) {
        if self.keys.get(&serial).is_some_and(|key| key.holders == 0) {
            self.free(Some(serial));
        }
    }

    /// One holder less: a key without any is put at the front of the list `dead`.
    pub(crate) fn drop_holder(&mut self, serial: Serial, dead: &mut Option<Serial>) {
        let Some(key) = self.keys.get_mut(&serial) else { return };
        key.holders = key.holders.saturating_sub(1);
        if key.holders == 0 {
            key.next_dead = dead.replace(serial);
        }
    }

    /// Frees all keys of the list, and those that were only in them: in a loop, for keyrings may lie in each other without bound.
    pub(crate) fn free(&mut self, mut dead: Option<Serial>) {
        while let Some(key) = dead.and_then(|serial| self.keys.remove(&serial)) {
            dead = key.next_dead;
            self.uncharge(key.uid, key.counted_bytes, key.is_in_quota);
            match key.payload {
                Payload::Links(links) => {
                    links.into_values().for_each(|serial| self.drop_holder(serial, &mut dead));
                }
                Payload::Data(data) if key.index.kind == Kind::BigKey => self.big_key_bytes -= data.len(),
                Payload::Data(_) => {}
            }
        }
    }

    /// A serial number that no key has. They tell nothing of each other.
    fn next_serial(&mut self) -> Serial {
        if self.random == 0 {
            self.random = seed() | 1;
        }
        loop {
            // xorshift64* (Vigna, "An experimental exploration of Marsaglia's xorshift generators, scrambled").
            self.random ^= self.random >> 12;
            self.random ^= self.random << 25;
            self.random ^= self.random >> 27;
            let serial = (self.random.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as Serial;
            if serial >= FIRST_SERIAL && !self.keys.contains_key(&serial) {
                return serial;
            }
        }
    }

    /// A key that nobody holds yet: the caller links to it, holds it, or calls [`Table::discard`].
    pub fn make(&mut self, new: NewKey, namespace: u64, data: Vec<u8>) -> Result<Serial> {
        new.kind.check_description(&new.description)?;
        if api_alloc::is_low() {
            return Err(ENOMEM);
        }
        let description_bytes = new.description.len() + 1;
        self.charge(new.uid, description_bytes, new.quota)?;
        let payload = match new.kind {
            Kind::Keyring => Payload::Links(Map::new()),
            _ => Payload::Data(Vec::new()),
        };
        let key = Key {
            index: Index { kind: new.kind, description: Arc::new(new.description) },
            uid: new.uid,
            gid: new.gid,
            permissions: new.permissions,
            negative: None,
            expires_at: None,
            revoked_at: None,
            is_invalidated: false,
            is_of_user: false,
            is_restricted: false,
            namespace,
            payload,
            is_in_quota: new.quota != Quota::No,
            counted_bytes: description_bytes,
            counted_data: 0,
            holders: 0,
            is_swept: false,
            next_dead: None,
        };
        let serial = self.next_serial();
        if self.keys.insert_fallibly(serial, key).is_err() {
            self.uncharge(new.uid, description_bytes, new.quota != Quota::No);
            return Err(ENOMEM);
        }
        if new.kind != Kind::Keyring
            && let Err(e) = self.set_data(serial, data)
        {
            self.discard(serial);
            return Err(e);
        }
        Ok(serial)
    }

    /// A keyring that programs did not name.
    pub fn make_keyring(&mut self, who: &Who, name: &str, permissions: u32, quota: Quota) -> Result<Serial> {
        self.make_named(who, name.as_bytes().to_vec(), permissions, quota)
    }

    pub fn make_named(&mut self, who: &Who, name: Vec<u8>, permissions: u32, quota: Quota) -> Result<Serial> {
        let (uid, gid) = (who.uid, who.gid);
        let new = NewKey { kind: Kind::Keyring, description: name, uid, gid, permissions, quota };
        self.make(new, who.namespace, Vec::new())
    }

    /// Other data takes the place of that in a key. `EDQUOT`, and it has not.
    fn set_data(&mut self, serial: Serial, data: Vec<u8>) -> Result<()> {
        let is_big = self.get(serial)?.kind() == Kind::BigKey;
        if is_big {
            let others = self.big_key_bytes - self.get(serial)?.data().len();
            if others + data.len() > MAX_BIG_KEY_BYTES {
                return Err(ENOMEM);
            }
            self.recharge(serial, BIG_KEY_BYTES)?;
            self.big_key_bytes = others + data.len();
        } else {
            self.recharge(serial, data.len())?;
        }
        self.get_mut(serial)?.payload = Payload::Data(data);
        Ok(())
    }

    /// What was in a key counts no more.
    pub(crate) fn drop_data(&mut self, serial: Serial) -> Result<()> {
        let key = self.get(serial)?;
        if key.kind() == Kind::BigKey {
            self.big_key_bytes -= key.data().len();
        }
        self.recharge(serial, 0)
    }

    /// KEYCTL_UPDATE. `EOPNOTSUPP` for keyrings.
    pub fn update(&mut self, at: Ref, who: &Who, data: Vec<u8>) -> Result<()> {
        let key = self.get(at.serial)?;
        key.permits(who, at.is_possessed, Need::Write)?;
        if !key.kind().is_updatable() {
            return Err(EOPNOTSUPP);
        }
        key.kind().check_data(&data)?;
        if key.revoked_at.is_some() {
            return Err(EKEYREVOKED);
        }
        self.set_data(at.serial, data)?;
        let key = self.get_mut(at.serial)?;
        (key.negative, key.expires_at) = (None, None);
        Ok(())
    }

    /// add_key(2), with a description or `None` where there is none: makes a key in a keyring, or gives one that is there this data.
    pub fn add(
        &mut self,
        ring: Ref,
        who: &Who,
        kind: Option<Kind>,
        description: Option<Vec<u8>>,
        data: Vec<u8>,
    ) -> Result<Serial> {
        let kind = kind.ok_or(ENODEV)?;
        if self.get(ring.serial)?.kind() != Kind::Keyring {
            return Err(ENOTDIR);
        }
        kind.check_data(&data)?;
        let description = description.ok_or(EINVAL)?;
        let index = Index { kind, description: Arc::new(description) };
        self.may_link(ring.serial, &index)?;
        self.get(ring.serial)?.permits(who, ring.is_possessed, Need::Write)?;
        if kind.is_updatable()
            && let Some(found) = self.linked(ring.serial, &index)
            && self.get(found).is_ok_and(|key| key.revoked_at.is_none() && !key.is_invalidated)
        {
            self.update(Ref { serial: found, ..ring }, who, data)?;
            return Ok(found);
        }
        let mut permissions = permission::POSSESSOR_VIEW
            | permission::POSSESSOR_SEARCH
            | permission::POSSESSOR_LINK
            | permission::POSSESSOR_SETATTR
            | permission::POSSESSOR_WRITE
            | permission::USER_VIEW;
        if kind.is_readable() {
            permissions |= permission::POSSESSOR_READ;
        }
        let description = Arc::unwrap_or_clone(index.description);
        let (uid, gid) = (who.fsuid, who.fsgid);
        let new = NewKey { kind, description, uid, gid, permissions, quota: Quota::Counts };
        let serial = self.make(new, who.namespace, data)?;
        let linked = self.put(ring.serial, serial);
        self.discard(serial);
        linked.map(|()| serial)
    }

    /// A negative key in a keyring: the request for it failed.
    pub fn add_negative(
        &mut self,
        ring: Serial,
        who: &Who,
        kind: Kind,
        description: Vec<u8>,
        error: Errno,
    ) -> Result<()> {
        let permissions = permission::POSSESSOR_VIEW
            | permission::POSSESSOR_SEARCH
            | permission::POSSESSOR_LINK
            | permission::POSSESSOR_SETATTR
            | permission::USER_VIEW
            | if kind.is_readable() { permission::POSSESSOR_READ } else { 0 }
            | if kind.is_updatable() { permission::POSSESSOR_WRITE } else { 0 };
        let (uid, gid) = (who.fsuid, who.fsgid);
        let new = NewKey { kind, description, uid, gid, permissions, quota: Quota::Counts };
        kind.check_description(&new.description)?;
        let index = Index { kind, description: Arc::new(new.description.clone()) };
        self.may_link(ring, &index)?;
        let serial = self.make(new, who.namespace, Vec::new())?;
        let until = now() + NEGATIVE_SECONDS;
        let key = self.get_mut(serial)?;
        (key.negative, key.expires_at) = (Some(error), Some(until));
        self.collect_from(until);
        let linked = self.put(ring, serial);
        self.discard(serial);
        linked
    }

    /// The keyrings of a user in a user namespace, which are made when they are asked for first. Each namespace has names of its own
    /// for ids, so the caller says what the user is called there. `ENOKEY` once either was revoked
    /// or may not be searched.
    pub fn of_user(&mut self, who: &Who, shown: u32) -> Result<UserKeyrings> {
        let place = (who.namespace, who.uid);
        if let Some(found) = self.users.get(&place).copied() {
            for serial in [found.user, found.session] {
                let key = self.get(serial)?;
                key.validate(now()).and(key.permits(who, true, Need::Search)).map_err(|_| ENOKEY)?;
            }
            return Ok(found);
        }
        let owner = Who { gid: NO_GROUP, ..who.clone() };
        let user = self.make_keyring(&owner, &format!("_uid.{shown}"), OF_USER, Quota::Counts)?;
        let session = match self.make_keyring(&owner, &format!("_uid_ses.{shown}"), OF_USER, Quota::Counts) {
            Ok(session) => session,
            Err(e) => {
                self.discard(user);
                return Err(e);
            }
        };
        let keyrings = UserKeyrings { user, session };
        let linked = self.put(session, user);
        let kept = self.users.insert_fallibly(place, keyrings).map_err(|_| ENOMEM);
        if let Err(e) = linked.and(kept.map(|_| ())) {
            self.users.remove(&place);
            self.discard(session);
            self.discard(user);
            return Err(e);
        }
        for serial in [user, session] {
            self.hold(serial);
            self.get_mut(serial)?.is_of_user = true;
        }
        Ok(keyrings)
    }

    /// KEYCTL_GET_PERSISTENT: the user's keyring that lasts without a session, put into a keyring.
    pub fn persistent(&mut self, who: &Who, uid: u32, shown: u32, ring: Serial) -> Result<Serial> {
        let place = (who.namespace, uid);
        let serial = match self.persistent.get(&place) {
            Some(found) => *found,
            None => {
                let owner = Who { uid, gid: NO_GROUP, ..who.clone() };
                let name = format!("_persistent.{shown}");
                let serial = self.make_keyring(&owner, &name, PERSISTENT, Quota::No)?;
                if self.persistent.insert_fallibly(place, serial).is_err() {
                    self.discard(serial);
                    return Err(ENOMEM);
                }
                self.hold(serial);
                serial
            }
        };
        self.get(serial)?.permits(who, true, Need::Link)?;
        self.link(ring, serial)?;
        self.set_timeout(serial, crate::PERSISTENT_EXPIRY[0].get())?;
        Ok(serial)
    }

    /// See [`crate::namespace_ends`].
    pub(crate) fn namespace_ends(&mut self, number: u64) {
        while let Some((place, keyrings)) = first_of(&self.users, number) {
            self.users.remove(&place);
            self.release(keyrings.session);
            self.release(keyrings.user);
        }
        while let Some((place, serial)) = first_of(&self.persistent, number) {
            self.persistent.remove(&place);
            self.release(serial);
        }
    }

    /// KEYCTL_CHOWN, of a caller who may do what it asks for.
    pub fn chown(&mut self, serial: Serial, uid: Option<u32>, gid: Option<u32>) -> Result<()> {
        if let Some(uid) = uid.filter(|uid| self.get(serial).is_ok_and(|key| key.uid != *uid)) {
            self.change_owner(serial, uid)?;
        }
        if let Some(gid) = gid {
            self.get_mut(serial)?.gid = gid;
        }
        Ok(())
    }

    /// A thread's keyring belongs to whom its files would.
    pub fn follow_ids(&mut self, serial: Serial, fsuid: u32, fsgid: u32) {
        if let Ok(key) = self.get_mut(serial) {
            (key.uid, key.gid) = (fsuid, fsgid);
        }
    }

    pub fn set_permissions(&mut self, serial: Serial, permissions: u32) -> Result<()> {
        self.get_mut(serial)?.permissions = permissions;
        Ok(())
    }

    /// Why a negative key is none.
    pub fn negative(&self, serial: Serial) -> Option<Errno> {
        self.get(serial).ok()?.negative
    }

    /// KEYCTL_READ of anything but a keyring.
    pub fn read(&self, serial: Serial) -> Result<&[u8]> {
        let key = self.get(serial)?;
        key.validate(now())?;
        Ok(key.data())
    }
}

fn first_of<T: Copy>(map: &Map<(u64, u32), T>, namespace: u64) -> Option<((u64, u32), T)> {
    map.range((namespace, 0)..=(namespace, u32::MAX)).next().map(|(place, value)| (*place, *value))
}
