// SPDX-License-Identifier: Apache-2.0 OR MIT
//! System V IPC (sysvipc(7)): what shared memory, semaphore sets and message queues have in common, which is how they
//! are found and who may use them.

/// [`NextId`] of a namespace's objects.
macro_rules! next_id {
    ($objects:ty) => {
        impl super::NextId for $objects {
            fn next_id() -> Option<i32> {
                ipc::of_here::<$objects>().0.lock().next
            }
            fn set_next_id(id: i32) {
                ipc::of_here::<$objects>().0.lock().next = Some(id);
            }
        }
    };
}

pub mod memory;
pub mod queues;
pub mod semaphores;

use abi::{Result, errno::*};
use alloc::sync::Arc;
use api_user::UserPtr;
use ordered::Map;
use task::identity::capabilities::{CAP_IPC_OWNER, CAP_SYS_ADMIN};
use task::ipc;
use task::users::{self, Kind};

const IPC_PRIVATE: i32 = 0;
const IPC_CREAT: u32 = 0o1000;
const IPC_EXCL: u32 = 0o2000;
const IPC_NOWAIT: u32 = 0o4000;
const IPC_RMID: i32 = 0;
const IPC_SET: i32 = 1;
const IPC_STAT: i32 = 2;
const IPC_INFO: i32 = 3;
/// An id is an index below this, and above it how often the index was used (`IPCMNI`).
const INDEXES: i32 = 32768;
/// So many are gone through before the first comes again.
const LEAST_INDEXES: i32 = 64;
const READ: u32 = 0o444;
const WRITE: u32 = 0o222;

/// `struct ipc64_perm` without its padding.
#[derive(Clone, Copy)]
struct Permissions {
    key: i32,
    uid: u32,
    gid: u32,
    creator_uid: u32,
    creator_gid: u32,
    mode: u32,
    sequence: u16,
}

impl Permissions {
    /// `EACCES` unless the caller has all rights of `wanted` in one class of them.
    fn check(&self, wanted: u32) -> Result<()> {
        let caller = task::current();
        let c = caller.credentials().lock();
        let wanted = wanted >> 6 | wanted >> 3 | wanted;
        let in_group = |gid: u32| c.egid == gid || c.groups.contains(&gid);
        let granted = if c.euid == self.uid || c.euid == self.creator_uid {
            self.mode >> 6
        } else if in_group(self.gid) || in_group(self.creator_gid) {
            self.mode >> 3
        } else {
            self.mode
        };
        if wanted & !granted & 7 != 0 && !c.can_in(&ipc::here().owner, CAP_IPC_OWNER) {
            Err(EACCES)
        } else {
            Ok(())
        }
    }

    /// `EPERM` unless the caller may remove it or change whose it is.
    fn check_owner(&self) -> Result<()> {
        let caller = task::current();
        let c = caller.credentials().lock();
        let owns =
            c.euid == self.uid || c.euid == self.creator_uid || c.can_in(&ipc::here().owner, CAP_SYS_ADMIN);
        if owns { Ok(()) } else { Err(EPERM) }
    }

    /// The six words of `struct ipc64_perm`.
    fn words(&self) -> [u64; 6] {
        let users = users::here();
        let pair = |low: u32, high: u32| u64::from(low) | u64::from(high) << 32;
        [
            pair(self.key as u32, users.shown_user(self.uid)),
            pair(users.shown_group(self.gid), users.shown_user(self.creator_uid)),
            pair(users.shown_group(self.creator_gid), self.mode),
            self.sequence.into(),
            0,
            0,
        ]
    }

    /// IPC_SET: owner, group and rights from a structure of the program's.
    fn set(&mut self, from: UserPtr<[u64; 6]>) -> Result<()> {
        let words = from.read()?;
        let uid = users::named(Kind::User, (words[0] >> 32) as u32)?;
        (self.uid, self.gid) = (uid, users::named(Kind::Group, words[1] as u32)?);
        self.mode = self.mode & !0o777 | (words[2] >> 32) as u32 & 0o777;
        Ok(())
    }
}

struct Object<T> {
    permissions: Permissions,
    value: Arc<T>,
}

/// All objects of a kind, by id, by index and by key: no call looks at all of them.
struct Table<T> {
    objects: Map<i32, Object<T>>,
    ids: Map<i32, i32>,
    keys: Map<i32, i32>,
    /// The index of the last one that was made, and how often the indexes were gone through: an id comes back as late as can be.
    last_index: i32,
    rounds: i32,
    /// What the next object is to have (kernel.msg_next_id and its like).
    next: Option<i32>,
}

/// Objects of a family in a namespace, the id of whose next one can be chosen.
pub trait NextId {
    /// `None` where the next one gets any id.
    fn next_id() -> Option<i32>;
    /// Of the caller's namespace. Its index is at least the id's: the first that is free.
    fn set_next_id(id: i32);
}

impl<T> Table<T> {
    const fn new() -> Table<T> {
        Table {
            objects: Map::new(),
            ids: Map::new(),
            keys: Map::new(),
            last_index: -1,
            rounds: 0,
            next: None,
        }
    }

    fn by_id(&self, id: i32) -> Result<&Object<T>> {
        self.objects.get(&id).ok_or(EINVAL)
    }

    fn by_id_mut(&mut self, id: i32) -> Result<&mut Object<T>> {
        self.objects.get_mut(&id).ok_or(EINVAL)
    }

    /// The object with an index, as the *_STAT commands count them; an id has the index in its low bits.
    fn by_index(&self, index: i32) -> Result<(i32, &Object<T>)> {
        let id = *self.ids.get(&(index % INDEXES)).ok_or(EINVAL)?;
        Ok((id, self.by_id(id)?))
    }

    fn highest_index(&self) -> usize {
        self.ids.last_key_value().map_or(0, |(index, _)| *index as usize)
    }

    /// Takes an object out.
    fn remove(&mut self, id: i32) -> Option<Object<T>> {
        let object = self.objects.remove(&id)?;
        self.ids.remove(&(id % INDEXES));
        self.forget_key(&object.permissions, id);
        Some(object)
    }

    /// An object that is marked for removal is found by its key no more.
    fn forget_key(&mut self, permissions: &Permissions, id: i32) {
        if self.keys.get(&permissions.key) == Some(&id) {
            self.keys.remove(&permissions.key);
        }
    }

    /// The first free index behind the last one, among half as many again as are in use (Linux' ipc_idr_alloc): those at the beginning
    /// come again soon enough that indexes stay low.
    fn free_index(&self) -> Option<i32> {
        let used = self.objects.len() as i32;
        let end = (used + used / 2).clamp(LEAST_INDEXES, INDEXES);
        self.free_between(self.last_index + 1, end).or_else(|| self.free_between(0, self.last_index + 1))
    }

    fn free_between(&self, from: i32, end: i32) -> Option<i32> {
        let mut index = from;
        for (used, _) in self.ids.range(&index..) {
            if *used != index {
                break;
            }
            index += 1;
        }
        (index < end).then_some(index)
    }

    /// What the *get calls do: finds the object with the key, which `fits` must agree to, or makes one.
    fn get(
        &mut self,
        key: i32,
        flags: u32,
        most: usize,
        fits: impl FnOnce(&T) -> Result<()>,
        make: impl FnOnce(i32) -> Result<T>,
    ) -> Result<usize> {
        let found = if key == IPC_PRIVATE { None } else { self.keys.get(&key) };
        if let Some(id) = found
            && let Some(object) = self.objects.get(id)
        {
            if flags & (IPC_CREAT | IPC_EXCL) == IPC_CREAT | IPC_EXCL {
                return Err(EEXIST);
            }
            fits(&object.value)?;
            object.permissions.check(flags)?;
            return Ok(*id as usize);
        }
        if key != IPC_PRIVATE && flags & IPC_CREAT == 0 {
            return Err(ENOENT);
        }
        if self.objects.len() >= most {
            return Err(ENOSPC);
        }
        let chosen = self.next.take();
        let index = match chosen {
            Some(id) => self.free_between(id % INDEXES, INDEXES),
            None => self.free_index(),
        };
        let index = index.ok_or(ENOSPC)?;
        let sequence = match chosen {
            Some(id) => id / INDEXES,
            // The highest sequence number keeps the id positive.
            None if index <= self.last_index => (self.rounds + 1) % (i32::MAX / INDEXES),
            None => self.rounds,
        };
        let id = sequence * INDEXES + index;
        let value = Arc::new(make(id)?);
        let (uid, gid) = {
            let caller = task::current();
            let c = caller.credentials().lock();
            (c.euid, c.egid)
        };
        let mode = flags & 0o777;
        let sequence = sequence as u16;
        let permissions = Permissions { key, uid, gid, creator_uid: uid, creator_gid: gid, mode, sequence };
        if chosen.is_none() {
            (self.last_index, self.rounds) = (index, i32::from(sequence));
        }
        self.objects.insert(id, Object { permissions, value });
        self.ids.insert(index, id);
        if key != IPC_PRIVATE {
            self.keys.insert(key, id);
        }
        Ok(id as usize)
    }
}

/// Seconds since 1970, for the times these objects keep.
fn now() -> u64 {
    task::time::clock::realtime_ns() / 1_000_000_000
}
