// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Rings that a thread names by an index of its own instead of a descriptor (IORING_REGISTER_RING_FDS).

use super::ring::Ring;
use abi::{Result, errno::*};
use alloc::sync::Arc;
use api_lock::SpinLock;
use api_user::UserPtr;
use descriptors::Description;
use ordered::Map;

/// Linux' IO_RINGFD_REG_MAX.
const MAX: u32 = 16;
/// Any place.
const ANY: u32 = u32::MAX;

type Places = [Option<Arc<Description>>; MAX as usize];

/// By thread.
static REGISTERED: SpinLock<Map<i32, Places>> = SpinLock::new(Map::new());

/// The ring in a place of the calling thread's.
pub fn get(place: u32) -> Result<Arc<Description>> {
    if place >= MAX {
        return Err(EINVAL);
    }
    let registered = REGISTERED.lock();
    let places = registered.get(&task::current().tid.of_machine()).ok_or(EINVAL)?;
    places[place as usize].clone().ok_or(EBADF)
}

/// The thread ends, or runs another program.
pub fn thread_ends(tid: i32) {
    let places = REGISTERED.lock().remove(&tid);
    drop(places);
}

/// Registers or removes rings, an array of `struct io_uring_rsrc_update`: how many.
pub fn update(at: u64, count: u32, adds: bool) -> Result<usize> {
    if count == 0 || count > MAX {
        return Err(EINVAL);
    }
    for done in 0..u64::from(count) {
        let entry = UserPtr::<[u64; 2]>::new(at).add(done);
        let one = || {
            let [head, data] = entry.read()?;
            let offset = head as u32;
            if head >> 32 != 0 {
                return Err(EINVAL);
            }
            if !adds {
                return remove(offset, data);
            }
            let place = add(offset, data)?;
            entry.cast::<u32>().write(place).inspect_err(|_| {
                let _ = remove(place, 0);
            })
        };
        match one() {
            Ok(()) => {}
            Err(e) if done == 0 => return Err(e),
            Err(_) => return Ok(done as usize),
        }
    }
    Ok(count as usize)
}

fn add(offset: u32, fd: u64) -> Result<u32> {
    let wanted = match offset {
        ANY => 0..MAX,
        place if place < MAX => place..place + 1,
        _ => return Err(EINVAL),
    };
    let description = task::files::get(fd as i32)?;
    if Ring::of(&description).is_none() {
        return Err(EOPNOTSUPP);
    }
    let tid = task::current().tid.of_machine();
    let mut registered = REGISTERED.lock();
    if !registered.contains_key(&tid) {
        registered.insert_fallibly(tid, Places::default()).map_err(|_| ENOMEM)?;
    }
    let places = registered.get_mut(&tid).ok_or(ENOMEM)?;
    let free = wanted.into_iter().find(|place| places[*place as usize].is_none()).ok_or(EBUSY)?;
    places[free as usize] = Some(description);
    Ok(free)
}

fn remove(place: u32, data: u64) -> Result<()> {
    if place >= MAX || data != 0 {
        return Err(EINVAL);
    }
    let old = {
        let mut registered = REGISTERED.lock();
        let places = registered.get_mut(&task::current().tid.of_machine());
        places.and_then(|places| places[place as usize].take())
    };
    drop(old);
    Ok(())
}
