// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Buffers of the program that the kernel is told of: registered ones, which requests name by their index, and provided ones, of which a
//! request takes the next of a group.

use super::request::{Request, Selected};
use super::ring::Ring;
use super::run::F_BUFFER;
use super::tag::Tag;
use abi::{PAGE_SIZE, Result, errno::*};
use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;
use api_alloc::Reserve;
use api_lock::SpinLock;
use api_user::{UserPtr, range_is_user};
use ordered::Map;
use task::identity::capabilities::CAP_IPC_LOCK;
use task::limits::RLIMIT_MEMLOCK;
use uring::Sqe;

/// Most registered buffers, and the longest.
const MAX_BUFFERS: u32 = 1 << 14;
const MAX_LENGTH: u64 = 1 << 30;
/// Most buffers of a group that is a ring, and of one request's (Linux' MAX_BIDS_PER_BGID).
const MAX_RING: u32 = 1 << 15;
const MAX_PROVIDED: u64 = 1 << 16;
/// Where a ring of buffers has its tail.
const RING_TAIL: u64 = 14;

/// One registered buffer; a length of 0 is an empty place.
#[derive(Default)]
struct Registered {
    address: u64,
    length: u64,
    tag: Option<Arc<Tag>>,
    _locked: Locked,
}

/// The table of registered buffers.
#[derive(Default)]
pub struct Buffers {
    all: Vec<Registered>,
}

/// Pages that are locked by registered buffers, by user (Linux' `user_struct::locked_vm`).
static LOCKED: SpinLock<Map<u32, u64>> = SpinLock::new(Map::new());

/// Pages that count as a user's locked memory for as long as this lives. None where they do not count (CAP_IPC_LOCK).
#[derive(Debug, Default)]
struct Locked {
    uid: u32,
    pages: u64,
}

impl Locked {
    /// `ENOMEM` beyond RLIMIT_MEMLOCK.
    fn count(pages: u64) -> Result<Locked> {
        let task = task::current();
        let uid = {
            let credentials = task.credentials().lock();
            if pages == 0 || credentials.can(CAP_IPC_LOCK) {
                return Ok(Locked::default());
            }
            credentials.uid
        };
        let limit = task.process.limits.soft(RLIMIT_MEMLOCK) / PAGE_SIZE as u64;
        let mut locked = LOCKED.lock();
        let sum = locked.get(&uid).copied().unwrap_or(0).saturating_add(pages);
        if sum > limit {
            return Err(ENOMEM);
        }
        locked.insert_fallibly(uid, sum).map_err(|_| ENOMEM)?;
        Ok(Locked { uid, pages })
    }
}

impl Drop for Locked {
    fn drop(&mut self) {
        let mut locked = LOCKED.lock();
        let left = locked.get(&self.uid).map(|sum| sum.saturating_sub(self.pages));
        match left.filter(|_| self.pages > 0) {
            Some(0) => {
                locked.remove(&self.uid);
            }
            Some(left) => {
                locked.insert(self.uid, left);
            }
            None => {}
        }
    }
}

impl Registered {
    /// Checks one buffer of the program's, which must be there as a whole.
    fn new(ring: &Ring, address: u64, length: u64, tag: u64) -> Result<Registered> {
        if address == 0 {
            // An empty place, which nobody can be told of.
            return if length == 0 && tag == 0 {
                Ok(Registered::default())
            } else if length == 0 {
                Err(EINVAL)
            } else {
                Err(EFAULT)
            };
        }
        if length == 0 || length > MAX_LENGTH || !range_is_user(address, length) {
            return Err(EFAULT);
        }
        let page = PAGE_SIZE as u64;
        let (first, last) = (address / page, (address + length - 1) / page);
        for (count, number) in (first..=last).enumerate() {
            UserPtr::<u8>::new((number * page).max(address)).read()?;
            if count % 1024 == 1023 && task::wait::take_a_break() {
                // As Linux, whose pinning of pages no handler interrupts.
                return Err(task::wait::RESTART_ALWAYS);
            }
        }
        let locked = Locked::count(last - first + 1)?;
        Ok(Registered { address, length, tag: Tag::new(ring, tag), _locked: locked })
    }
}

/// Reads a `struct iovec`.
fn iovec(at: u64, index: u64) -> Result<[u64; 2]> {
    UserPtr::<[u64; 2]>::new(at).add(index).read()
}

impl Buffers {
    /// IORING_REGISTER_BUFFERS and BUFFERS2. `at` is 0 for empty places.
    pub fn new(ring: &Ring, at: u64, count: u32, tags: u64) -> Result<Buffers> {
        if count == 0 || count > MAX_BUFFERS {
            return Err(EINVAL);
        }
        let mut buffers = Buffers { all: Vec::new() };
        buffers.all.reserve_exact_fallibly(count as usize).map_err(|_| ENOMEM)?;
        for index in 0..u64::from(count) {
            let [address, length] = if at == 0 { [0, 0] } else { iovec(at, index)? };
            let tag = if tags == 0 { 0 } else { UserPtr::<u64>::new(tags).add(index).read()? };
            buffers.all.push(Registered::new(ring, address, length, tag)?);
        }
        Ok(buffers)
    }

    pub fn len(&self) -> usize {
        self.all.len()
    }
}

/// IORING_REGISTER_BUFFERS_UPDATE.
pub fn update(ring: &Ring, first: u32, at: u64, tags: u64, count: u32) -> Result<usize> {
    let end = first.checked_add(count).ok_or(EOVERFLOW)?;
    let total = {
        let registered = ring.registered.lock();
        registered.buffers.as_ref().map(Buffers::len).ok_or(ENXIO)?
    };
    if end as usize > total {
        return Err(EINVAL);
    }
    for done in 0..u64::from(count) {
        let one = || {
            let [address, length] = iovec(at, done)?;
            let tag = if tags == 0 { 0 } else { UserPtr::<u64>::new(tags).add(done).read()? };
            Registered::new(ring, address, length, tag)
        };
        let mut new = match one() {
            Ok(new) => new,
            Err(e) if done == 0 => return Err(e),
            Err(_) => return Ok(done as usize),
        };
        if let Some(buffers) = ring.registered.lock().buffers.as_mut()
            && let Some(place) = buffers.all.get_mut(first as usize + done as usize)
        {
            core::mem::swap(place, &mut new);
        }
        // What was in the place; without the lock, for its tag goes into the ring.
        drop(new);
    }
    Ok(count as usize)
}

/// READ_FIXED and WRITE_FIXED move bytes within the buffer that they name, which they use until they are done.
pub fn check_fixed(ring: &Ring, request: &Request) -> Result<()> {
    let sqe = &request.sqe;
    let tag = {
        let registered = ring.registered.lock();
        let buffers = registered.buffers.as_ref().ok_or(EFAULT)?;
        let buffer = buffers.all.get(usize::from(sqe.buffer)).ok_or(EFAULT)?;
        let end = sqe.address.checked_add(u64::from(sqe.length)).ok_or(EFAULT)?;
        if sqe.address < buffer.address || end > buffer.address + buffer.length {
            return Err(EFAULT);
        }
        buffer.tag.clone()
    };
    request.inner.lock().buffer_tag = tag;
    Ok(())
}

/// A provided buffer.
#[derive(Clone, Copy, Debug)]
struct Provided {
    address: u64,
    length: u32,
    id: u16,
}

enum Group {
    /// What requests provided, in their order.
    List(VecDeque<Provided>),
    /// Entries in the program's memory, of which those from `head` to the program's tail are there.
    Ring { at: u64, entries: u32, head: u16 },
}

/// Groups of provided buffers.
#[derive(Default)]
pub struct Groups(Map<u16, Group>);

/// IORING_REGISTER_PBUF_RING.
pub fn register_ring(ring: &Ring, at: u64, entries: u32, group: u16) -> Result<()> {
    if at == 0 || !at.is_multiple_of(PAGE_SIZE as u64) {
        return Err(if at == 0 { EFAULT } else { EINVAL });
    }
    if !entries.is_power_of_two() || entries > MAX_RING {
        return Err(EINVAL);
    }
    let bytes = u64::from(entries) * 16;
    if !range_is_user(at, bytes) {
        return Err(EFAULT);
    }
    for page in (0..bytes).step_by(PAGE_SIZE) {
        UserPtr::<u8>::new(at + page).read()?;
    }
    let mut registered = ring.registered.lock();
    match registered.groups.0.get(&group) {
        Some(Group::List(list)) if list.is_empty() => {}
        Some(_) => return Err(EEXIST),
        None => {}
    }
    registered.groups.0.insert_fallibly(group, Group::Ring { at, entries, head: 0 }).map_err(|_| ENOMEM)?;
    Ok(())
}

/// IORING_UNREGISTER_PBUF_RING.
pub fn unregister_ring(ring: &Ring, group: u16) -> Result<()> {
    let mut registered = ring.registered.lock();
    match registered.groups.0.get(&group) {
        None => Err(ENOENT),
        Some(Group::List(_)) => Err(EINVAL),
        Some(Group::Ring { .. }) => {
            registered.groups.0.remove(&group);
            Ok(())
        }
    }
}

pub fn prepare(sqe: &Sqe) -> Result<()> {
    let provides = sqe.opcode == super::ops::PROVIDE_BUFFERS;
    if sqe.op_flags != 0
        || sqe.file_index != 0
        || !provides && (sqe.address != 0 || sqe.length != 0 || sqe.offset != 0)
    {
        return Err(EINVAL);
    }
    let count =
        u64::try_from(sqe.fd).ok().filter(|count| (1..=MAX_PROVIDED).contains(count)).ok_or(EINVAL)?;
    if !provides {
        return Ok(());
    }
    if sqe.length == 0 {
        return Err(EINVAL);
    }
    let bytes = count.checked_mul(u64::from(sqe.length)).ok_or(EOVERFLOW)?;
    let end = sqe.address.checked_add(bytes).ok_or(EOVERFLOW)?;
    if !range_is_user(sqe.address, end - sqe.address) {
        return Err(EFAULT);
    }
    if sqe.offset > u64::from(u16::MAX) || sqe.offset + count > MAX_PROVIDED {
        return Err(EINVAL);
    }
    Ok(())
}

/// PROVIDE_BUFFERS: `fd` buffers of one length, in a row.
pub fn provide(ring: &Ring, sqe: &Sqe) -> Result<usize> {
    let count = sqe.fd as usize;
    let mut registered = ring.registered.lock();
    let groups = &mut registered.groups.0;
    if !groups.contains_key(&sqe.buffer) {
        groups.insert_fallibly(sqe.buffer, Group::List(VecDeque::new())).map_err(|_| ENOMEM)?;
    }
    let Some(Group::List(list)) = groups.get_mut(&sqe.buffer) else { return Err(EINVAL) };
    // A group has no more buffers than there are numbers for them (Linux bounds them by memory alone).
    if list.len() + count > MAX_PROVIDED as usize || api_alloc::is_low() {
        return Err(ENOMEM);
    }
    list.reserve_fallibly(count).map_err(|_| ENOMEM)?;
    for index in 0..count as u64 {
        let address = sqe.address + index * u64::from(sqe.length);
        list.push_back(Provided { address, length: sqe.length, id: (sqe.offset + index) as u16 });
    }
    Ok(0)
}

/// REMOVE_BUFFERS: as many as there are, up to `fd`.
pub fn remove(ring: &Ring, sqe: &Sqe) -> Result<usize> {
    let mut registered = ring.registered.lock();
    match registered.groups.0.get_mut(&sqe.buffer) {
        None => Err(ENOENT),
        Some(Group::Ring { .. }) => Err(EINVAL),
        Some(Group::List(list)) => {
            let count = list.len().min(sqe.fd as usize);
            list.drain(..count);
            Ok(count)
        }
    }
}

/// Takes the next buffer of the request's group, cut to `most` bytes (0: all of it). `ENOBUFS` where there is none.
pub fn select(ring: &Ring, request: &Request, most: u32) -> Result<Selected> {
    let group = request.sqe.buffer;
    let place = {
        let mut registered = ring.registered.lock();
        match registered.groups.0.get_mut(&group).ok_or(ENOBUFS)? {
            Group::List(list) => Err(list.pop_front().ok_or(ENOBUFS)?),
            Group::Ring { at, entries, head } => Ok((*at, *entries, *head)),
        }
    };
    let provided = match place {
        Err(provided) => provided,
        Ok((at, entries, head)) => {
            let tail = UserPtr::<u16>::new(at + RING_TAIL).read()?;
            if tail == head {
                return Err(ENOBUFS);
            }
            let entry = at + u64::from(u32::from(head) & (entries - 1)) * 16;
            let [address, rest] = UserPtr::<[u64; 2]>::new(entry).read()?;
            if let Some(Group::Ring { head: now, .. }) = ring.registered.lock().groups.0.get_mut(&group) {
                *now = head.wrapping_add(1);
            }
            Provided { address, length: rest as u32, id: (rest >> 32) as u16 }
        }
    };
    let length = if most == 0 { provided.length } else { provided.length.min(most) };
    let selected = Selected { group, id: provided.id, address: provided.address, length: provided.length };
    request.inner.lock().selected = Some(selected);
    Ok(Selected { length, ..selected })
}

/// The request did not use its buffer: it is the group's next one again.
pub fn give_back(ring: &Ring, request: &Request) {
    let Some(selected) = request.inner.lock().selected.take() else { return };
    let mut registered = ring.registered.lock();
    match registered.groups.0.get_mut(&selected.group) {
        // The room that it had may be taken since; then it is lost to the group, as one that the program removed.
        Some(Group::List(list)) => {
            let reserved = list.reserve_fallibly(1);
            if reserved.is_ok() {
                list.push_front(Provided {
                    address: selected.address,
                    length: selected.length,
                    id: selected.id,
                });
            }
        }
        Some(Group::Ring { head, .. }) => *head = head.wrapping_sub(1),
        _ => {}
    }
}

/// Flags of the completion of a request that used its buffer.
pub fn flags(request: &Request) -> u32 {
    request.inner.lock().selected.take().map_or(0, |selected| F_BUFFER | u32::from(selected.id) << 16)
}

/// The request is done, whatever became of its buffer.
pub fn forget(request: &Request) {
    request.inner.lock().selected = None;
}
