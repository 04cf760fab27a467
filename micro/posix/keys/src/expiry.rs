// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Keys that are no more of use: revoked, expired, invalidated.

use crate::key::{Key, Payload, Serial};
use crate::table::Table;
use crate::{GC_DELAY, now};
use abi::Result;
use alloc::vec::Vec;

/// When a key is to be unlinked everywhere.
fn end(key: &Key) -> Option<u64> {
    let at = [key.revoked_at, key.expires_at].into_iter().flatten().min()?;
    Some(at.saturating_add(GC_DELAY[0].get()))
}

impl Table {
    /// KEYCTL_REVOKE: what was in it is gone.
    pub fn revoke(&mut self, serial: Serial) -> Result<()> {
        let key = self.get_mut(serial)?;
        if key.revoked_at.is_some() {
            return Ok(());
        }
        let now = now();
        key.revoked_at = Some(now);
        match key.payload {
            Payload::Links(_) => self.clear(serial)?,
            Payload::Data(_) => self.empty(serial)?,
        }
        self.collect_from(now);
        Ok(())
    }

    /// KEYCTL_SET_TIMEOUT, in seconds from now; 0 for none.
    pub fn set_timeout(&mut self, serial: Serial, seconds: u64) -> Result<()> {
        let until = (seconds != 0).then(|| now() + seconds);
        self.get_mut(serial)?.expires_at = until;
        until.into_iter().for_each(|until| self.collect_from(until));
        Ok(())
    }

    /// KEYCTL_INVALIDATE: nobody finds it any more.
    pub fn invalidate(&mut self, serial: Serial) -> Result<()> {
        let key = self.get_mut(serial)?;
        key.is_invalidated = true;
        let index = key.index.clone();
        // While it is held here, it stays to be looked at.
        self.hold(serial);
        let mut next = 0;
        while let Some(ring) = self.ring_with(serial, &index, next) {
            self.unlink(ring, serial)?;
            next = ring + 1;
        }
        self.release(serial);
        Ok(())
    }

    /// A key ends then, or ended: it is looked at when the delay is over.
    pub(crate) fn collect_from(&mut self, end: u64) {
        self.next_collection = self.next_collection.min(end.saturating_add(GC_DELAY[0].get()));
    }

    /// Unlinks what has been dead for long, when there may be something.
    pub(crate) fn collect(&mut self, now: u64) {
        if now < self.next_collection {
            return;
        }
        let mut next = u64::MAX;
        let mut found = false;
        for key in self.keys.values_mut().filter(|key| !key.is_swept) {
            match end(key) {
                Some(at) if at <= now => (key.is_swept, found) = (true, true),
                Some(at) => next = next.min(at),
                None => {}
            }
        }
        self.next_collection = next;
        if found {
            self.sweep();
            self.forget_persistent();
        }
    }

    /// Persistent keyrings that nobody has asked for in a while.
    fn forget_persistent(&mut self) {
        let is_over = |table: &Table, serial: &Serial| table.keys.get(serial).is_none_or(|key| key.is_swept);
        while let Some((place, serial)) =
            self.persistent.iter().find(|(_, s)| is_over(self, s)).map(|(p, s)| (*p, *s))
        {
            self.persistent.remove(&place);
            self.release(serial);
        }
    }

    fn empty(&mut self, serial: Serial) -> Result<()> {
        self.drop_data(serial)?;
        self.get_mut(serial)?.payload = Payload::Data(Vec::new());
        Ok(())
    }
}
