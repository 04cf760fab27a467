// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Links from keyrings to keys.

use crate::key::{Index, Key, Kind, Payload, Serial};
use crate::now;
use crate::table::Table;
use abi::{Result, errno::*};
use alloc::vec::Vec;
use api_alloc::Reserve;
use ordered::Map;

/// What a link counts for the quota (Linux' `KEYQUOTA_LINK_BYTES`).
const LINK_BYTES: usize = 4;
/// Serial numbers that one KEYCTL_READ answers: a keyring has no more, for each counts for its user's quota, which is below 2^31 bytes.
pub const MAX_SERIALS_READ: usize = i32::MAX as usize / LINK_BYTES;

/// KEYCTL_MOVE with what it may displace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Move {
    Replaces,
    /// `EEXIST` where there is a key like it (KEYCTL_MOVE_EXCL).
    Exclusive,
}

impl Table {
    fn links_mut(&mut self, ring: Serial) -> Result<&mut Map<Index, Serial>> {
        match &mut self.get_mut(ring)?.payload {
            Payload::Links(links) => Ok(links),
            Payload::Data(_) => Err(ENOTDIR),
        }
    }

    fn links(&self, ring: Serial) -> Result<&Map<Index, Serial>> {
        self.get(ring)?.links().ok_or(ENOTDIR)
    }

    /// The key in the keyring itself that has the type and description.
    pub(crate) fn linked(&self, ring: Serial, index: &Index) -> Option<Serial> {
        self.links(ring).ok()?.get(index).copied()
    }

    /// Whether a key could be put into the keyring: `ENOTDIR`, `EKEYREVOKED`, `EDQUOT`, and `EPERM` where nothing may be linked to it.
    pub(crate) fn may_link(&mut self, ring: Serial, index: &Index) -> Result<()> {
        self.has_room(ring, index)?;
        if self.get(ring)?.is_restricted { Err(EPERM) } else { Ok(()) }
    }

    fn has_room(&mut self, ring: Serial, index: &Index) -> Result<()> {
        let is_there = self.links(ring)?.contains_key(index);
        let key = self.get(ring)?;
        if key.revoked_at.is_some() {
            return Err(EKEYREVOKED);
        }
        let counted = key.counted_data;
        if !is_there {
            // Taken back: this only asks.
            self.recharge(ring, counted + LINK_BYTES)?;
            self.recharge(ring, counted)?;
        }
        Ok(())
    }

    /// KEYCTL_LINK. `EDEADLK` where the keyring is in the key that it is to have, `ELOOP` where that cannot be said.
    pub fn link(&mut self, ring: Serial, serial: Serial) -> Result<()> {
        let index = self.get(serial)?.index.clone();
        self.may_link(ring, &index)?;
        if api_alloc::is_low() {
            return Err(ENOMEM);
        }
        self.check_cycle(ring, serial)?;
        self.put(ring, serial)
    }

    fn check_cycle(&self, ring: Serial, serial: Serial) -> Result<()> {
        if self.get(serial)?.kind() == Kind::Keyring { self.is_apart_from(serial, ring) } else { Ok(()) }
    }

    /// Puts the key into the keyring, in place of one like it.
    pub(crate) fn put(&mut self, ring: Serial, serial: Serial) -> Result<()> {
        let index = self.get(serial)?.index.clone();
        let counted = self.get(ring)?.counted_data;
        let is_there = self.links(ring)?.contains_key(&index);
        if !is_there {
            self.recharge(ring, counted + LINK_BYTES)?;
        }
        let inserted = self.links_mut(ring)?.insert_fallibly(index, serial);
        match inserted {
            Ok(displaced) => {
                self.hold(serial);
                if let Some(displaced) = displaced {
                    self.release(displaced);
                }
                Ok(())
            }
            Err(_) => {
                self.recharge(ring, counted)?;
                Err(ENOMEM)
            }
        }
    }

    /// Takes the key itself, not one like it, out of the keyring; `ENOENT` where it is not there.
    fn take(&mut self, ring: Serial, serial: Serial) -> Result<()> {
        let index = self.get(serial)?.index.clone();
        if self.linked(ring, &index) != Some(serial) {
            return Err(ENOENT);
        }
        self.links_mut(ring)?.remove(&index);
        let counted = self.get(ring)?.counted_data;
        self.recharge(ring, counted.saturating_sub(LINK_BYTES))
    }

    /// KEYCTL_UNLINK.
    pub fn unlink(&mut self, ring: Serial, serial: Serial) -> Result<()> {
        self.links(ring)?;
        let index = self.get(serial)?.index.clone();
        // As Linux looks for it, which may find another key of that type and description.
        let linked = self.linked(ring, &index).ok_or(ENOENT)?;
        self.take(ring, linked)?;
        self.release(linked);
        Ok(())
    }

    /// KEYCTL_MOVE.
    pub fn move_key(&mut self, from: Serial, to: Serial, serial: Serial, how: Move) -> Result<()> {
        if from == to {
            return Ok(());
        }
        let index = self.get(serial)?.index.clone();
        self.links(from)?;
        self.links(to)?;
        if self.linked(from, &index) != Some(serial) {
            return Err(ENOENT);
        }
        self.has_room(to, &index)?;
        if how == Move::Exclusive && self.linked(to, &index).is_some() {
            return Err(EEXIST);
        }
        if self.get(to)?.is_restricted {
            return Err(EPERM);
        }
        self.check_cycle(to, serial)?;
        self.put(to, serial)?;
        self.take(from, serial)?;
        self.release(serial);
        Ok(())
    }

    /// KEYCTL_CLEAR.
    pub fn clear(&mut self, ring: Serial) -> Result<()> {
        let links = core::mem::take(self.links_mut(ring)?);
        self.recharge(ring, 0)?;
        let mut dead = None;
        links.into_values().for_each(|serial| self.drop_holder(serial, &mut dead));
        self.free(dead);
        Ok(())
    }

    /// KEYCTL_RESTRICT_KEYRING without a type: nothing more can be linked to it. `EEXIST` when that was so before.
    pub fn restrict(&mut self, ring: Serial) -> Result<()> {
        self.links(ring)?;
        let key = self.get_mut(ring)?;
        if key.is_restricted {
            return Err(EEXIST);
        }
        key.is_restricted = true;
        Ok(())
    }

    /// How many keys are in a keyring; `None` for another key.
    pub fn link_count(&self, serial: Serial) -> Option<usize> {
        self.get(serial).ok()?.links().map(Map::len)
    }

    /// The serial numbers of what is in a keyring.
    pub fn serials(&self, ring: Serial) -> Result<Vec<Serial>> {
        self.get(ring)?.validate(now())?;
        let links = self.links(ring)?;
        let mut out = Vec::new();
        out.reserve_exact_fallibly(links.len()).map_err(|_| ENOMEM)?;
        out.extend(links.values().copied());
        Ok(out)
    }

    /// The first keyring, by number from `from` on, that the key is in.
    pub(crate) fn ring_with(&self, serial: Serial, index: &Index, from: Serial) -> Option<Serial> {
        let has_it = |key: &Key| key.links().is_some_and(|links| links.get(index) == Some(&serial));
        self.keys.range(from..).find(|(_, key)| has_it(key)).map(|(ring, _)| *ring)
    }

    /// Unlinks all keys that `is_swept` says from all keyrings.
    pub(crate) fn sweep(&mut self) {
        let mut dead = None;
        let mut last = 0;
        while let Some((ring, key)) = self.keys.range_mut(last + 1..).find(|(_, key)| !is_empty(key)) {
            last = *ring;
            let Payload::Links(links) = core::mem::replace(&mut key.payload, Payload::Data(Vec::new()))
            else {
                continue;
            };
            let mut links = links;
            links.retain(|_, serial| {
                let is_kept = self.keys.get(serial).is_some_and(|key| !key.is_swept);
                if !is_kept {
                    self.drop_holder(*serial, &mut dead);
                }
                is_kept
            });
            let counted = links.len() * LINK_BYTES;
            if let Some(key) = self.keys.get_mut(&last) {
                key.payload = Payload::Links(links);
            }
            // A keyring that becomes smaller has room.
            let _ = self.recharge(last, counted);
        }
        self.free(dead);
    }
}

fn is_empty(key: &Key) -> bool {
    key.links().is_none_or(Map::is_empty)
}
