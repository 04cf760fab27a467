// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The table of registered files, which requests name by their index (IOSQE_FIXED_FILE).

use super::ring::Ring;
use super::tag::Tag;
use abi::{Result, errno::*};
use alloc::sync::Arc;
use alloc::vec::Vec;
use api_alloc::Reserve;
use api_user::UserPtr;
use descriptors::Description;
use uring::Sqe;

/// Linux' IORING_MAX_FIXED_FILES.
const MAX_FILES: u32 = 1 << 20;
/// IORING_FILE_INDEX_ALLOC, in its place in the entry: any index that is free.
const ALLOC: u32 = u32::MAX;
/// IORING_REGISTER_FILES_SKIP.
const SKIP: i32 = -2;

#[derive(Clone, Default)]
struct Place {
    description: Option<Arc<Description>>,
    tag: Option<Arc<Tag>>,
}

pub struct FileTable {
    places: Vec<Place>,
    /// Where free places are looked for: the range, and the one to begin with.
    range: (u32, u32),
    hint: u32,
}

/// The file behind a descriptor. Rings do not go into tables: one that is in its own would never end (as on Linux).
fn get(fd: i32) -> Result<Arc<Description>> {
    let description = task::files::get(fd)?;
    if Ring::of(&description).is_some() { Err(EBADF) } else { Ok(description) }
}

fn read_tag(tags: u64, index: u64) -> Result<u64> {
    if tags == 0 { Ok(0) } else { UserPtr::<u64>::new(tags).add(index).read() }
}

impl FileTable {
    /// IORING_REGISTER_FILES and FILES2. `at` is 0 for empty places.
    pub fn new(ring: &Ring, at: u64, count: u32, tags: u64) -> Result<FileTable> {
        if count == 0 {
            return Err(EINVAL);
        }
        if count > MAX_FILES || count > task::files::current().descriptors.limit() {
            return Err(EMFILE);
        }
        let mut places = Vec::new();
        places.reserve_exact_fallibly(count as usize).map_err(|_| ENOMEM)?;
        for index in 0..u64::from(count) {
            let tag = read_tag(tags, index)?;
            let fd = if at == 0 { -1 } else { UserPtr::<i32>::new(at).add(index).read()? };
            let description = match fd {
                -1 if tag != 0 => return Err(EINVAL),
                -1 => None,
                fd => Some(get(fd)?),
            };
            places.push(Place { description, tag: Tag::new(ring, tag) });
        }
        Ok(FileTable { places, range: (0, count), hint: 0 })
    }

    pub fn len(&self) -> usize {
        self.places.len()
    }

    fn free(&self) -> Result<u32> {
        let (first, end) = self.range;
        let from = self.hint.clamp(first, end);
        let is_free =
            |index: &u32| self.places.get(*index as usize).is_some_and(|place| place.description.is_none());
        (from..end).find(is_free).or_else(|| (first..from).find(is_free)).ok_or(ENFILE)
    }
}

/// The file of an index.
pub fn fixed(ring: &Ring, index: u32) -> Result<Arc<Description>> {
    tagged(ring, index).map(|(description, _)| description)
}

/// The file of an index, and what its user holds to be known as one.
pub fn tagged(ring: &Ring, index: u32) -> Result<(Arc<Description>, Option<Arc<Tag>>)> {
    let registered = ring.registered.lock();
    let place = registered.files.as_ref().and_then(|table| table.places.get(index as usize)).ok_or(EBADF)?;
    place.description.clone().map(|description| (description, place.tag.clone())).ok_or(EBADF)
}

/// Ends what was in a place.
fn end(place: Place) {
    if let Some(description) = place.description {
        // As on Linux, nobody is told of errors.
        let _ = task::files::end(description);
    }
}

/// Puts a file where an entry's `file_index` says (one more than the index, or any); the index where any was asked for, otherwise 0.
pub fn install(ring: &Ring, description: Arc<Description>, wanted: u32) -> Result<usize> {
    if Ring::of(&description).is_some() {
        return Err(EBADF);
    }
    let (index, old) = {
        let mut registered = ring.registered.lock();
        let table = registered.files.as_mut().ok_or(if wanted == ALLOC { ENFILE } else { ENXIO })?;
        let index = if wanted == ALLOC { table.free()? } else { wanted.wrapping_sub(1) };
        let place = table.places.get_mut(index as usize).ok_or(EINVAL)?;
        let old = core::mem::replace(place, Place { description: Some(description), tag: None });
        table.hint = index + 1;
        (index, old)
    };
    end(old);
    Ok(if wanted == ALLOC { index as usize } else { 0 })
}

/// CLOSE of an index.
pub fn close(ring: &Ring, index: u32) -> Result<usize> {
    let old = {
        let mut registered = ring.registered.lock();
        let table = registered.files.as_mut().ok_or(ENXIO)?;
        let place = table.places.get_mut(index as usize).ok_or(EINVAL)?;
        if place.description.is_none() {
            return Err(EBADF);
        }
        table.hint = table.hint.min(index);
        core::mem::take(place)
    };
    end(old);
    Ok(0)
}

/// IORING_REGISTER_FILES_UPDATE and FILES_UPDATE2: how many places were changed.
pub fn update(ring: &Ring, first: u32, at: u64, tags: u64, count: u32) -> Result<usize> {
    let last = first.checked_add(count).ok_or(EOVERFLOW)?;
    let total = ring.registered.lock().files.as_ref().map(FileTable::len).ok_or(ENXIO)?;
    if last as usize > total {
        return Err(EINVAL);
    }
    for done in 0..count {
        let one = || {
            let tag = read_tag(tags, u64::from(done))?;
            let fd = UserPtr::<i32>::new(at).add(u64::from(done)).read()?;
            match fd {
                SKIP | -1 if tag != 0 => Err(EINVAL),
                SKIP => Ok(None),
                -1 => Ok(Some(Place::default())),
                fd => Ok(Some(Place { description: Some(get(fd)?), tag: Tag::new(ring, tag) })),
            }
        };
        let new = match one() {
            Ok(new) => new,
            Err(e) if done == 0 => return Err(e),
            Err(_) => return Ok(done as usize),
        };
        let Some(mut new) = new else { continue };
        let index = first + done;
        let is_empty = new.description.is_none();
        if let Some(table) = ring.registered.lock().files.as_mut() {
            if is_empty {
                table.hint = table.hint.min(index);
            }
            if let Some(place) = table.places.get_mut(index as usize) {
                core::mem::swap(place, &mut new);
            }
        }
        // What was in the place; without the lock, for its tag goes into the ring.
        end(new);
    }
    Ok(count as usize)
}

/// FILES_UPDATE as a request; with an offset of IORING_FILE_INDEX_ALLOC the files go where there is room, and their numbers are written
/// back.
pub fn update_by_request(ring: &Ring, sqe: &Sqe) -> Result<usize> {
    if sqe.offset as u32 != ALLOC {
        return update(ring, sqe.offset as u32, sqe.address, 0, sqe.length);
    }
    if ring.registered.lock().files.is_none() {
        return Err(ENXIO);
    }
    for done in 0..sqe.length {
        let place = UserPtr::<i32>::new(sqe.address).add(u64::from(done));
        let one = || {
            let index = install(ring, get(place.read()?)?, ALLOC)?;
            place.write(index as i32).inspect_err(|_| {
                let _ = close(ring, index as u32);
            })
        };
        match one() {
            Ok(()) => {}
            Err(e) if done == 0 => return Err(e),
            Err(_) => return Ok(done as usize),
        }
    }
    Ok(sqe.length as usize)
}

/// IORING_REGISTER_FILE_ALLOC_RANGE.
pub fn set_range(ring: &Ring, first: u32, length: u32) -> Result<()> {
    let end = first.checked_add(length).ok_or(EOVERFLOW)?;
    let mut registered = ring.registered.lock();
    let table = registered.files.as_mut().ok_or(EINVAL)?;
    if end as usize > table.places.len() {
        return Err(EINVAL);
    }
    (table.range, table.hint) = ((first, end), first);
    Ok(())
}
