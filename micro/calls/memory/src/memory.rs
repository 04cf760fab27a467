// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The program's memory: mmap(2) and its family, brk(2), madvise(2), mlock(2), protection keys.

use abi::{Result, errno::*, linux::general::*};
use alloc::sync::Arc;
use api_fs::FileType;
use api_plat::{Access, FaultOutcome};
use api_user::{range_is_user, write_bytes};
use descriptors::Description;
use mem::{Advice, MappedFile, Place, Prot, Remap, Request};
use ramfs::{RamFile, WRITE_SEALS};
use task::call::Call;
use task::files;
use task::identity::capabilities::CAP_IPC_LOCK;
use task::limits::RLIMIT_MEMLOCK;

const PAGE: u64 = abi::PAGE_SIZE as u64;
/// Flags that MAP_SHARED_VALIDATE knows (Linux' LEGACY_MAP_MASK and MAP_SYNC).
const KNOWN_FLAGS: u32 = MAP_SHARED_VALIDATE
    | MAP_FIXED
    | MAP_ANONYMOUS
    | MAP_DENYWRITE
    | MAP_EXECUTABLE
    | MAP_GROWSDOWN
    | MAP_LOCKED
    | MAP_NORESERVE
    | MAP_POPULATE
    | MAP_NONBLOCK
    | MAP_STACK
    | MAP_HUGETLB
    | MAP_32BIT
    | (0x3f << MAP_HUGE_SHIFT);

/// Base-2 logarithms of the sizes of huge pages that MAP_HUGETLB may ask for; 0 is the default size.
const HUGE_SIZES: [u32; 3] = [0, 21, 30];

/// Pages that cachestat(2) looks at, for it does not pause: 16 GiB of a file.
const MAX_COUNTED: u64 = 1 << 22;

/// A page fault in the program's half.
pub fn page_fault(address: u64, access: Access) -> FaultOutcome {
    mem::current().fault(address, access)
}

/// mmap(2).
pub fn mmap(call: &mut Call<'_>) -> Result<usize> {
    let (address, length) = (call.arg(0), call.arg(1));
    let (prot, flags, offset) = (call.uint(2), call.uint(3), call.arg(5));
    if !offset.is_multiple_of(PAGE) {
        return Err(EINVAL);
    }
    let file = match flags & MAP_ANONYMOUS {
        0 => Some(files::get(call.int(4))?),
        _ => None,
    };
    if flags & MAP_HUGETLB != 0 && (file.is_some() || !HUGE_SIZES.contains(&(flags >> MAP_HUGE_SHIFT & 0x3f)))
    {
        return Err(EINVAL);
    }
    if length == 0 {
        return Err(EINVAL);
    }
    let pages = abi::page_up(length).ok_or(ENOMEM)? / PAGE;
    // Before the file is asked whether it reaches so far.
    if length > mem::USER_END {
        return Err(ENOMEM);
    }
    let (place, space) = (place(flags), mem::current());
    if matches!(place, Place::Fixed | Place::FixedNoReplace) {
        space.check_fixed(place, address, length)?;
    }
    let mut rights = Prot::from_prot(prot);
    let mut request = Request {
        address,
        place,
        grows_down: flags & MAP_GROWSDOWN != 0,
        no_reserve: flags & MAP_NORESERVE != 0,
        locked: flags & MAP_LOCKED != 0,
        ..Request::anonymous(length, rights)
    };
    if let Some(description) = &file {
        // A file ends where its positions do (Linux' `file_mmap_ok`).
        let beyond = (i64::MAX as u64).checked_sub(length).is_none_or(|last| offset / PAGE > last / PAGE);
        if beyond && description.file().stat()?.kind == FileType::Regular {
            return Err(EOVERFLOW);
        }
    }
    request.shared = match flags & MAP_TYPE {
        MAP_PRIVATE => false,
        MAP_SHARED => true,
        MAP_SHARED_VALIDATE if file.is_some() && flags & !KNOWN_FLAGS != 0 => return Err(EOPNOTSUPP),
        MAP_SHARED_VALIDATE if file.is_some() => true,
        _ => return Err(EINVAL),
    };
    if request.locked {
        allow_locking()?;
    }
    if flags & MAP_HUGETLB != 0 {
        // No pages were set aside for it (vm.nr_hugepages is 0).
        return Err(ENOMEM);
    }
    if let Some(description) = file {
        if request.shared && rights.contains(Prot::WRITE) && !description.may_write() {
            return Err(EACCES);
        }
        if request.shared
            && description.may_write()
            && description.inode().is_some_and(vfs::ops::is_append_only)
        {
            return Err(EACCES);
        }
        if !description.may_read() {
            return Err(EACCES);
        }
        if request.shared && is_sealed(&description) {
            if rights.contains(Prot::WRITE) {
                return Err(EPERM);
            }
            request.most = Prot::ALL.without(Prot::WRITE);
        }
        if request.shared && !description.may_write() {
            request.most = Prot::ALL.without(Prot::WRITE);
        }
        if request.grows_down {
            return Err(EINVAL);
        }
        if description.place().is_some_and(|p| p.mount().flags().has(vfs::MountFlags::NOEXEC)) {
            if rights.contains(Prot::EXECUTE) {
                return Err(EPERM);
            }
            request.most = request.most.without(Prot::EXECUTE);
        }
        let file = mapped(&description)?;
        file.source.check_range(offset / PAGE, pages)?;
        request.file = Some((file, offset / PAGE));
    }
    rights = request.rights;
    let start = space.map(request)?;
    if flags & MAP_POPULATE != 0 && flags & MAP_NONBLOCK == 0 && !rights.is_none() {
        space.populate(start, start + pages * PAGE);
    }
    Ok(start as usize)
}

/// A memfd that was sealed against writing.
fn is_sealed(description: &Description) -> bool {
    let file = description.file().as_any().downcast_ref::<RamFile>();
    file.and_then(|file| file.node().seals().ok()).is_some_and(|seals| seals & WRITE_SEALS != 0)
}

fn place(flags: u32) -> Place {
    if flags & MAP_FIXED_NOREPLACE != 0 {
        Place::FixedNoReplace
    } else if flags & MAP_FIXED != 0 {
        Place::Fixed
    } else if flags & MAP_32BIT != 0 {
        Place::Low
    } else {
        Place::Anywhere
    }
}

/// The file of a descriptor as it is mapped; `ENODEV` when it cannot be.
fn mapped(description: &Arc<Description>) -> Result<Arc<MappedFile>> {
    let source = description.file().page_source()?;
    let stat = description.file().stat()?;
    let root = files::current().root();
    let path = description.place().and_then(|place| place.path_from(&root)).unwrap_or_default();
    let device = if stat.kind == FileType::CharDevice { 0 } else { stat.device };
    let place = description.place().map(|place| place.clone() as _);
    let is_writable = description.may_write();
    Ok(Arc::new(MappedFile { source, path, device, inode: stat.inode, place, is_writable }))
}

/// munmap(2).
pub fn munmap(call: &mut Call<'_>) -> Result<usize> {
    mem::current().unmap(call.arg(0), call.arg(1)).map(|()| 0)
}

/// mprotect(2).
pub fn mprotect(call: &mut Call<'_>) -> Result<usize> {
    protect(call.arg(0), call.arg(1), call.arg(2), NO_KEY)
}

/// What pkey_mprotect(2) is told to change rights alone.
const NO_KEY: i32 = -1;

fn protect(address: u64, length: u64, prot: u64, key: i32) -> Result<usize> {
    // All 64 bits count.
    let prot = u32::try_from(prot).map_err(|_| EINVAL)?;
    let grows = prot & (PROT_GROWSDOWN | PROT_GROWSUP);
    if grows == PROT_GROWSDOWN | PROT_GROWSUP || !address.is_multiple_of(PAGE) {
        return Err(EINVAL);
    }
    if length == 0 {
        return Ok(0);
    }
    let known = PROT_READ | PROT_WRITE | PROT_EXEC | PROT_SEM;
    if abi::page_up(length).and_then(|length| address.checked_add(length)).is_none() {
        return Err(ENOMEM);
    }
    let space = mem::current();
    // Nobody can have a key.
    if prot & !(grows | known) != 0 || key != NO_KEY {
        return Err(EINVAL);
    }
    if grows == PROT_GROWSUP {
        // Nothing grows up.
        return if space.is_mapped(address) { Err(EINVAL) } else { Err(ENOMEM) };
    }
    let rights = Prot::from_prot(prot);
    space.protect(address, length, rights, grows != 0).map(|()| 0)
}

/// brk(2): the raw call answers the break, never an error.
pub fn brk(call: &mut Call<'_>) -> Result<usize> {
    Ok(mem::current().set_brk(call.arg(0)) as usize)
}

/// mremap(2).
pub fn mremap(call: &mut Call<'_>) -> Result<usize> {
    let flags = call.flags(3, MREMAP_MAYMOVE | MREMAP_FIXED | MREMAP_DONTUNMAP)?;
    // All 64 bits count.
    if u32::try_from(call.arg(3)).is_err() {
        return Err(EINVAL);
    }
    // A place that is only wished for has to be one, too.
    if flags & MREMAP_DONTUNMAP != 0 && !call.arg(4).is_multiple_of(PAGE) {
        return Err(EINVAL);
    }
    let ask = Remap {
        address: call.arg(0),
        old_length: call.arg(1),
        new_length: call.arg(2),
        may_move: flags & MREMAP_MAYMOVE != 0,
        fixed: (flags & MREMAP_FIXED != 0).then(|| call.arg(4)),
        keep: flags & MREMAP_DONTUNMAP != 0,
    };
    mem::current().remap(ask).map(|address| address as usize)
}

/// remap_file_pages(2): Linux' own emulation, a mapping for each piece.
pub fn remap_file_pages(call: &mut Call<'_>) -> Result<usize> {
    let (address, length) = (call.arg(0) & !(PAGE - 1), call.arg(1) & !(PAGE - 1));
    if call.arg(2) != 0 {
        return Err(EINVAL);
    }
    let populate = call.uint(4) & MAP_NONBLOCK == 0;
    mem::current().remap_pages(address, length, call.arg(3), populate).map(|()| 0)
}

/// madvise(2).
pub fn madvise(call: &mut Call<'_>) -> Result<usize> {
    let (address, length) = (call.arg(0), call.arg(1));
    mem::current().advise(address, length, advice(call.uint(2))?).map(|()| 0)
}

/// What madvise(2) and process_madvise(2) are told; `EINVAL` for advice that is unknown.
pub fn advice(number: u32) -> Result<Advice> {
    Ok(match number {
        // What Linux only notes, or does later, or that frees nothing the program could see.
        MADV_NORMAL | MADV_RANDOM | MADV_SEQUENTIAL | MADV_WILLNEED => Advice::Hint,
        MADV_COLD | MADV_PAGEOUT => Advice::Cold,
        MADV_DONTNEED | MADV_DONTNEED_LOCKED => Advice::Discard,
        MADV_FREE => Advice::Free,
        MADV_HUGEPAGE => Advice::Large,
        MADV_NOHUGEPAGE => Advice::Small,
        MADV_POPULATE_READ => Advice::Populate { write: false },
        MADV_POPULATE_WRITE => Advice::Populate { write: true },
        MADV_DONTFORK => Advice::Fork(false),
        MADV_DOFORK => Advice::Fork(true),
        MADV_WIPEONFORK => Advice::WipeOnFork(true),
        MADV_KEEPONFORK => Advice::WipeOnFork(false),
        MADV_DONTDUMP => Advice::Dump(false),
        MADV_DODUMP => Advice::Dump(true),
        MADV_REMOVE => Advice::Remove,
        // A kernel without page merging, memory failure injection and large pages on demand answers just this.
        _ => return Err(EINVAL),
    })
}

/// mseal(2).
pub fn mseal(call: &mut Call<'_>) -> Result<usize> {
    if call.arg(2) != 0 {
        return Err(EINVAL);
    }
    mem::current().seal(call.arg(0), call.arg(1)).map(|()| 0)
}

/// cachestat(2): `struct cachestat_range` in, `struct cachestat` out. Pages of RAM file systems are the file, and those of
/// volumes are written at once, so nothing is dirty, on its way or evicted.
pub fn cachestat(call: &mut Call<'_>) -> Result<usize> {
    let description = files::get(call.int(0))?;
    let [offset, length] = call.ptr::<[u64; 2]>(1).read()?;
    if call.uint(3) != 0 {
        return Err(EINVAL);
    }
    let end = if length == 0 { u64::MAX } else { offset.saturating_add(length) };
    let (mut cached, mut at) = (0, offset - offset % PAGE);
    if let Ok(source) = description.file().page_source() {
        // From data to data: a file may be long and empty.
        for _ in 0..MAX_COUNTED {
            at = match description.file().seek_data(at, false) {
                Ok(data) if data < end => data - data % PAGE,
                _ => break,
            };
            cached += u64::from(source.resident_page(at / PAGE).is_some());
            at += PAGE;
        }
    }
    call.ptr::<[u64; 5]>(2).write([cached, 0, 0, 0, 0])?;
    Ok(0)
}

/// mincore(2).
pub fn mincore(call: &mut Call<'_>) -> Result<usize> {
    let count = call.arg(1).div_ceil(PAGE);
    // The program's memory both, before it is asked what is mapped there.
    if call.arg(0).is_multiple_of(PAGE)
        && range_is_user(call.arg(0), call.arg(1))
        && !range_is_user(call.arg(2), count)
    {
        return Err(EFAULT);
    }
    let pages = mem::current().resident(call.arg(0), call.arg(1))?;
    write_bytes(call.arg(2), &pages).map(|()| 0)
}

/// msync(2).
pub fn msync(call: &mut Call<'_>) -> Result<usize> {
    let flags = call.flags(2, MS_ASYNC | MS_INVALIDATE | MS_SYNC)?;
    if !call.arg(0).is_multiple_of(PAGE) || flags & (MS_ASYNC | MS_SYNC) == MS_ASYNC | MS_SYNC {
        return Err(EINVAL);
    }
    // In whole pages, and as in Linux around the end of numbers: -1 byte is none.
    let length = call.arg(1).wrapping_add(PAGE - 1) & !(PAGE - 1);
    mem::current().sync(call.arg(0), length, flags & MS_INVALIDATE != 0)?;
    // Pages of disks are written with everything else.
    if flags & MS_SYNC != 0 { calls_files::disks::sync_all().map(|()| 0) } else { Ok(0) }
}

/// Tells the address space how much the caller may lock: everything with CAP_IPC_LOCK, else RLIMIT_MEMLOCK; `EPERM` for
/// callers that may lock nothing.
fn allow_locking() -> Result<()> {
    let task = task::current();
    let limit = match task.credentials().lock().can(CAP_IPC_LOCK) {
        true => u64::MAX,
        false => task.process.limits.soft(RLIMIT_MEMLOCK),
    };
    if limit == 0 {
        return Err(EPERM);
    }
    mem::current().set_lock_limit(limit);
    Ok(())
}

/// mlock(2).
pub fn mlock(call: &mut Call<'_>) -> Result<usize> {
    allow_locking()?;
    set_locked(call, true, true)
}

/// Locks or unlocks the pages of the first two arguments.
fn set_locked(call: &Call<'_>, locks: bool, populates: bool) -> Result<usize> {
    let (address, length) = (call.arg(0), call.arg(1));
    // Whole pages; as in Linux around the end of numbers, so that -1 byte is none.
    let length = length.wrapping_add(address % PAGE).wrapping_add(PAGE - 1) & !(PAGE - 1);
    if length == 0 {
        return Ok(0);
    }
    mem::current().set_locked(address - address % PAGE, length, locks, populates).map(|()| 0)
}

/// mlock2(2).
pub fn mlock2(call: &mut Call<'_>) -> Result<usize> {
    let on_fault = call.flags(2, MLOCK_ONFAULT)? != 0;
    allow_locking()?;
    set_locked(call, true, !on_fault)
}

/// munlock(2).
pub fn munlock(call: &mut Call<'_>) -> Result<usize> {
    set_locked(call, false, false)
}

/// mlockall(2).
pub fn mlockall(call: &mut Call<'_>) -> Result<usize> {
    let flags = call.flags(0, MCL_CURRENT | MCL_FUTURE | MCL_ONFAULT)?;
    if flags & (MCL_CURRENT | MCL_FUTURE) == 0 {
        return Err(EINVAL);
    }
    allow_locking()?;
    let now = (flags & MCL_CURRENT != 0).then_some(true);
    let populate = flags & MCL_ONFAULT == 0;
    mem::current().set_all_locked(now, flags & MCL_FUTURE != 0, populate).map(|()| 0)
}

/// munlockall(2).
pub fn munlockall(_: &mut Call<'_>) -> Result<usize> {
    mem::current().set_all_locked(Some(false), false, false).map(|()| 0)
}

/// pkey_mprotect(2).
pub fn pkey_mprotect(call: &mut Call<'_>) -> Result<usize> {
    protect(call.arg(0), call.arg(1), call.arg(2), call.int(3))
}

/// pkey_alloc(2): the answer of a processor without protection keys.
pub fn pkey_alloc(call: &mut Call<'_>) -> Result<usize> {
    if call.arg(0) != 0 || call.arg(1) & !3 != 0 { Err(EINVAL) } else { Err(ENOSPC) }
}

/// pkey_free(2): no key was ever given out.
pub fn pkey_free(_: &mut Call<'_>) -> Result<usize> {
    Err(EINVAL)
}
