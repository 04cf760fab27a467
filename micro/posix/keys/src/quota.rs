// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What each user has, and may have (keyrings(7), "Quotas").

use crate::table::Table;
use abi::setting::Setting;
use abi::{Result, errno::*};

/// kernel.keys.maxkeys, maxbytes, and theirs for root.
pub static MAX_KEYS: [Setting; 1] = [Setting::new(200, 0, i32::MAX as u64)];
pub static MAX_BYTES: [Setting; 1] = [Setting::new(20_000, 0, i32::MAX as u64)];
pub static ROOT_MAX_KEYS: [Setting; 1] = [Setting::new(1_000_000, 0, i32::MAX as u64)];
pub static ROOT_MAX_BYTES: [Setting; 1] = [Setting::new(25_000_000, 0, i32::MAX as u64)];

/// How a new key counts for its user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Quota {
    Counts,
    /// It counts, but is made even where there is no room.
    Overruns,
    No,
}

/// The keys of a user, by the machine's id.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Account {
    /// All of them.
    pub keys: u64,
    /// Those that count, and their bytes.
    pub counted_keys: u64,
    pub counted_bytes: u64,
}

/// The most keys and bytes of a user.
pub(crate) fn limits(uid: u32) -> (u64, u64) {
    match uid {
        0 => (ROOT_MAX_KEYS[0].get(), ROOT_MAX_BYTES[0].get()),
        _ => (MAX_KEYS[0].get(), MAX_BYTES[0].get()),
    }
}

impl Table {
    /// One key more of the user, with so many bytes. `EDQUOT`.
    pub(crate) fn charge(&mut self, uid: u32, bytes: usize, quota: Quota) -> Result<()> {
        if !self.accounts.contains_key(&uid) {
            self.accounts.insert_fallibly(uid, Account::default()).map_err(|_| ENOMEM)?;
        }
        let account = self.accounts.get_mut(&uid).ok_or(ENOMEM)?;
        if quota != Quota::No {
            let (max_keys, max_bytes) = limits(uid);
            let is_full =
                account.counted_keys + 1 > max_keys || account.counted_bytes + bytes as u64 > max_bytes;
            if is_full && quota == Quota::Counts {
                if account.keys == 0 {
                    self.accounts.remove(&uid);
                }
                return Err(EDQUOT);
            }
            account.counted_keys += 1;
            account.counted_bytes += bytes as u64;
        }
        account.keys += 1;
        Ok(())
    }

    /// A key of the user is gone.
    pub(crate) fn uncharge(&mut self, uid: u32, bytes: usize, is_in_quota: bool) {
        let Some(account) = self.accounts.get_mut(&uid) else { return };
        account.keys = account.keys.saturating_sub(1);
        if is_in_quota {
            account.counted_keys = account.counted_keys.saturating_sub(1);
            account.counted_bytes = account.counted_bytes.saturating_sub(bytes as u64);
        }
        if account.keys == 0 {
            self.accounts.remove(&uid);
        }
    }

    /// What is in a key has another size from now on. `EDQUOT`, and it has not.
    pub(crate) fn recharge(&mut self, serial: i32, data: usize) -> Result<()> {
        let key = self.keys.get_mut(&serial).ok_or(ENOKEY)?;
        let (before, uid) = (key.counted_data, key.uid);
        if key.is_in_quota
            && let Some(account) = self.accounts.get_mut(&uid)
        {
            let after = (account.counted_bytes + data as u64).saturating_sub(before as u64);
            if data > before && after > limits(uid).1 {
                return Err(EDQUOT);
            }
            account.counted_bytes = after;
        }
        key.counted_bytes = key.counted_bytes + data - before;
        key.counted_data = data;
        Ok(())
    }

    /// KEYCTL_CHOWN: another user counts it from now on. `EDQUOT`.
    pub(crate) fn change_owner(&mut self, serial: i32, uid: u32) -> Result<()> {
        let key = self.keys.get(&serial).ok_or(ENOKEY)?;
        let (old, bytes, is_in_quota) = (key.uid, key.counted_bytes, key.is_in_quota);
        self.charge(uid, bytes, if is_in_quota { Quota::Counts } else { Quota::No })?;
        self.uncharge(old, bytes, is_in_quota);
        if let Some(key) = self.keys.get_mut(&serial) {
            key.uid = uid;
        }
        Ok(())
    }
}
