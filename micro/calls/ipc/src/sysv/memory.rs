// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Shared memory: shmget(2), shmat(2), shmdt(2), shmctl(2). A segment is a memory file that is mapped whole.

use super::*;
use abi::PAGE_SIZE;
use abi::setting::Setting;
use alloc::format;
use alloc::sync::Weak;
use alloc::vec::Vec;
use api_alloc::Reserve;
use api_fs::{Inode, SetAttr};
use api_lock::SpinLock;
use core::sync::atomic::{AtomicI32, AtomicU64, Ordering};
use mem::{MappedFile, Place, Prot, Request};
use procfs::Output;
use task::call::Call;
use task::process::Process;
use task::{files, ipc};

const SHM_HUGETLB: u32 = 0o4000;
const SHM_HUGE_SHIFT: u32 = 26;
/// What large pages there are, as powers of two: the usual one, 2 MiB, 1 GiB.
const HUGE_SIZES: [u32; 3] = [0, 21, 30];
const SHM_RDONLY: u32 = 0o10000;
const SHM_RND: u32 = 0o20000;
const SHM_REMAP: u32 = 0o40000;
const SHM_EXEC: u32 = 0o100000;
const SHM_LOCK: i32 = 11;
const SHM_UNLOCK: i32 = 12;
const SHM_STAT: i32 = 13;
const SHM_INFO: i32 = 14;
const SHM_STAT_ANY: i32 = 15;
/// Bits of a segment's mode: it goes with its last mapping; it is locked.
const SHM_DEST: u32 = 0o1000;
const SHM_LOCKED: u32 = 0o2000;
/// /proc/sys/kernel/shmmni, shmmax and shmall.
pub static MAX_SEGMENTS: [Setting; 1] = [Setting::new(4096, 0, INDEXES as u64)];
pub static MAX_SEGMENT_BYTES: [Setting; 1] = [Setting::new(UNLIMITED, 0, u64::MAX)];
pub static MAX_PAGES: [Setting; 1] = [Setting::new(UNLIMITED, 0, u64::MAX)];
/// /proc/sys/kernel/shm_rmid_forced: a segment goes with its last mapping, or with its creator while it has none.
pub static REMOVAL_IS_FORCED: [Setting; 1] = [Setting::new(0, 0, 1)];
/// Linux' default of both: as much as leaves room to add to it.
const UNLIMITED: u64 = u64::MAX - (1 << 24);
const PAGE: u64 = PAGE_SIZE as u64;

struct Segment {
    /// Every mapping holds it once.
    file: Arc<MappedFile>,
    size: u64,
    attached: AtomicU64,
    detached: AtomicU64,
    changed: AtomicU64,
    /// Mappings that there were when somebody looked: fewer have gone by munmap(2), under another mapping or with their process.
    seen: AtomicU64,
    creator: i32,
    maker: Weak<Process>,
    last: AtomicI32,
}

impl Segment {
    fn mappings(&self) -> u64 {
        Arc::strong_count(&self.file) as u64 - 1
    }

    /// Nobody has it any more who could want it, as kernel.shm_rmid_forced has it: it was mapped once, or its creator has ended.
    fn is_orphan(&self) -> bool {
        let ended = self.maker.upgrade().is_none_or(|maker| maker.family.is_zombie());
        ended || self.attached.load(Ordering::Relaxed) != 0
    }

    /// When the last mapping went, which nobody tells: not later than now.
    fn look_for_lost(&self) {
        let there = self.mappings();
        if self.seen.swap(there, Ordering::Relaxed) > there {
            self.detached.store(now(), Ordering::Relaxed);
        }
    }

    fn used(&self, time: &AtomicU64) {
        time.store(now(), Ordering::Relaxed);
        self.last.store(task::current().process.pid.of_machine(), Ordering::Relaxed);
    }
}

impl Drop for Segment {
    fn drop(&mut self) {
        ALL_PAGES.fetch_sub(self.size.div_ceil(PAGE), Ordering::Relaxed);
    }
}

/// Pages of all segments.
static ALL_PAGES: AtomicU64 = AtomicU64::new(0);
/// All segments of a namespace.
pub struct Segments(SpinLock<Table<Segment>>);

next_id!(Segments);

impl Default for Segments {
    fn default() -> Segments {
        Segments(SpinLock::new(Table::new()))
    }
}

/// The table, without the segments whose last mapping went after IPC_RMID, or that go without it.
fn with_segments<T>(f: impl FnOnce(&mut Table<Segment>) -> Result<T>) -> Result<T> {
    let ipc = ipc::of_here::<Segments>();
    let mut segments = ipc.0.lock();
    let is_forced = REMOVAL_IS_FORCED[0].get() != 0;
    let goes = |o: &Object<Segment>| o.permissions.mode & SHM_DEST != 0 || is_forced && o.value.is_orphan();
    let gone = |o: &Object<Segment>| o.value.mappings() == 0 && goes(o);
    let (mut dead, mut from) = (Vec::new(), 0);
    while let Some(id) = segments.objects.range(from..).find(|(_, o)| gone(o)).map(|(id, _)| *id) {
        // What there is no room for goes with the next call.
        if dead.reserve_fallibly(1).is_err() {
            break;
        }
        dead.extend(segments.remove(id));
        from = id + 1;
    }
    let result = f(&mut segments);
    drop(segments);
    drop(dead);
    result
}

fn make(id: i32, key: i32, size: u64) -> Result<Segment> {
    let files = files::current();
    let who = files::credentials();
    let node = files.memory_files.unnamed(0o600, (who.uid, who.gid), false)?;
    let length = size.checked_next_multiple_of(PAGE).ok_or(EINVAL)?;
    node.set_attr(&SetAttr { size: Some(length), ..SetAttr::default() }).map_err(|_| ENOMEM)?;
    let device = node.stat()?.device;
    let inode: Arc<dyn Inode> = node;
    let source = inode.open(&inode, 2)?.page_source()?;
    let path = format!("/SYSV{:08x} (deleted)", key as u32).into_bytes();
    ALL_PAGES.fetch_add(size.div_ceil(PAGE), Ordering::Relaxed);
    Ok(Segment {
        file: Arc::new(MappedFile { source, path, device, inode: id as u64, place: None, is_writable: true }),
        size,
        attached: AtomicU64::new(0),
        detached: AtomicU64::new(0),
        changed: AtomicU64::new(now()),
        seen: AtomicU64::new(0),
        creator: task::current().process.pid.of_machine(),
        maker: Arc::downgrade(&task::current().process),
        last: AtomicI32::new(0),
    })
}

/// shmget(2).
pub fn shmget(call: &mut Call<'_>) -> Result<usize> {
    let (key, size, flags) = (call.int(0), call.arg(1), call.uint(2));
    let fits = |segment: &Segment| if size > segment.size { Err(EINVAL) } else { Ok(()) };
    with_segments(|segments| {
        segments.get(key, flags, MAX_SEGMENTS[0].get() as usize, fits, |id| {
            if size == 0 || size > MAX_SEGMENT_BYTES[0].get() {
                return Err(EINVAL);
            }
            if ALL_PAGES.load(Ordering::Relaxed) + size.div_ceil(PAGE) > MAX_PAGES[0].get() {
                return Err(ENOSPC);
            }
            // No pages were set aside for it (vm.nr_hugepages is 0).
            if flags & SHM_HUGETLB != 0 {
                return Err(if HUGE_SIZES.contains(&(flags >> SHM_HUGE_SHIFT & 0x3f)) {
                    ENOMEM
                } else {
                    EINVAL
                });
            }
            make(id, key, size)
        })
    })
}

/// shmat(2).
pub fn shmat(call: &mut Call<'_>) -> Result<usize> {
    let (id, mut address, flags) = (call.int(0), call.arg(1), call.uint(2));
    if id < 0 {
        return Err(EINVAL);
    }
    let place = match address {
        0 if flags & SHM_REMAP != 0 => return Err(EINVAL),
        0 => Place::Anywhere,
        _ => {
            if flags & SHM_RND != 0 {
                address &= !(PAGE - 1);
            }
            if !address.is_multiple_of(PAGE) || address == 0 {
                return Err(EINVAL);
            }
            if flags & SHM_REMAP != 0 { Place::Fixed } else { Place::FixedNoReplace }
        }
    };
    let writes = flags & SHM_RDONLY == 0;
    let executes = flags & SHM_EXEC != 0;
    let wanted = READ | if writes { WRITE } else { 0 } | if executes { 0o111 } else { 0 };
    let (segment, file) = with_segments(|segments| {
        let object = segments.by_id(id)?;
        object.permissions.check(wanted)?;
        // The counted handle keeps a segment that is being removed until it is mapped.
        Ok((object.value.clone(), object.value.file.clone()))
    })?;
    let mut rights = Prot::READ;
    if writes {
        rights = rights.with(Prot::WRITE);
    }
    if executes {
        rights = rights.with(Prot::EXECUTE);
    }
    let request = Request {
        address,
        place,
        shared: true,
        most: if writes { Prot::ALL } else { Prot::ALL.without(Prot::WRITE) },
        ..Request::anonymous(segment.size.next_multiple_of(PAGE), rights).of(file, 0)
    };
    // A place that is taken is no place.
    let start = mem::current().map(request).map_err(|e| if e == EEXIST { EINVAL } else { e })?;
    segment.used(&segment.attached);
    segment.look_for_lost();
    Ok(start as usize)
}

/// shmdt(2).
pub fn shmdt(call: &mut Call<'_>) -> Result<usize> {
    let address = call.arg(0);
    if !address.is_multiple_of(PAGE) {
        return Err(EINVAL);
    }
    with_segments(|segments| {
        let is_segment =
            |file: &Arc<MappedFile>| segments.objects.values().any(|o| Arc::ptr_eq(&o.value.file, file));
        let file = mem::current().unmap_file(address, is_segment)?;
        if let Some(object) = segments.objects.values().find(|o| Arc::ptr_eq(&o.value.file, &file)) {
            object.value.used(&object.value.detached);
            drop(file);
            object.value.look_for_lost();
        }
        Ok(())
    })?;
    // Those that go with their last mapping.
    with_segments(|_| Ok(0))
}

/// `struct shmid64_ds`.
fn status(object: &Object<Segment>) -> [u64; 14] {
    let segment = &object.value;
    segment.look_for_lost();
    let mut out = [0; 14];
    out[..6].copy_from_slice(&object.permissions.words());
    out[6] = segment.size;
    out[7] = segment.attached.load(Ordering::Relaxed);
    out[8] = segment.detached.load(Ordering::Relaxed);
    out[9] = segment.changed.load(Ordering::Relaxed);
    out[10] =
        u64::from(segment.creator as u32) | u64::from(segment.last.load(Ordering::Relaxed) as u32) << 32;
    out[11] = segment.mappings();
    out
}

/// shmctl(2).
pub fn shmctl(call: &mut Call<'_>) -> Result<usize> {
    let (id, command) = (call.int(0), call.int(1));
    if id < 0 {
        return Err(EINVAL);
    }
    match command {
        IPC_INFO => {
            let highest = with_segments(|segments| Ok(segments.highest_index()))?;
            // struct shminfo64: largest, smallest, most, most of a process, pages of all.
            let (count, bytes) = (MAX_SEGMENTS[0].get(), MAX_SEGMENT_BYTES[0].get());
            call.ptr(2).write([bytes, 1, count, count, MAX_PAGES[0].get(), 0, 0, 0, 0])?;
            Ok(highest)
        }
        SHM_INFO => {
            let (count, pages, highest) = with_segments(|segments| {
                let pages: u64 = segments.objects.values().map(|o| o.value.size.div_ceil(PAGE)).sum();
                Ok((segments.objects.len() as u64, pages, segments.highest_index()))
            })?;
            // struct shm_info: segments, pages, of those in memory and swapped out, and two that are no more.
            call.ptr(2).write([count, pages, pages, 0, 0, 0])?;
            Ok(highest)
        }
        IPC_STAT | SHM_STAT | SHM_STAT_ANY => {
            let (found, status) = with_segments(|segments| {
                let (found, object) =
                    if command == IPC_STAT { (0, segments.by_id(id)?) } else { segments.by_index(id)? };
                if command != SHM_STAT_ANY {
                    object.permissions.check(READ)?;
                }
                Ok((found, status(object)))
            })?;
            call.ptr(2).write(status)?;
            Ok(found as usize)
        }
        IPC_SET => {
            // All of `struct shmid64_ds` is read before the segment is looked for.
            call.ptr::<[u64; 14]>(2).read()?;
            let mut permissions = with_segments(|segments| Ok(segments.by_id(id)?.permissions))?;
            permissions.check_owner()?;
            permissions.set(call.ptr(2))?;
            with_segments(|segments| {
                let object = segments.by_id_mut(id)?;
                object.permissions = permissions;
                object.value.changed.store(now(), Ordering::Relaxed);
                Ok(0)
            })
        }
        IPC_RMID => {
            with_segments(|segments| {
                let object = segments.by_id_mut(id)?;
                object.permissions.check_owner()?;
                object.permissions.mode |= SHM_DEST;
                let permissions = object.permissions;
                object.permissions.key = IPC_PRIVATE;
                segments.forget_key(&permissions, id);
                Ok(())
            })?;
            with_segments(|_| Ok(0))
        }
        SHM_LOCK | SHM_UNLOCK => with_segments(|segments| {
            let object = segments.by_id_mut(id)?;
            object.permissions.check_owner()?;
            let mode = object.permissions.mode & !SHM_LOCKED;
            // Nothing is ever swapped out: it is noted for IPC_STAT.
            object.permissions.mode = if command == SHM_LOCK { mode | SHM_LOCKED } else { mode };
            Ok(0)
        }),
        _ => Err(EINVAL),
    }
}

/// /proc/sysvipc/shm.
pub fn show(out: &mut Output) -> Result<()> {
    out.print(format_args!(
        "       key      shmid perms                  size  cpid  lpid nattch   uid   gid  cuid  cgid      atime      dtime      \
         ctime                   rss                  swap\n"
    ))?;
    with_segments(|segments| {
        for (id, object) in &segments.objects {
            let (p, s) = (&object.permissions, &object.value);
            let at = |time: &AtomicU64| time.load(Ordering::Relaxed);
            out.print(format_args!(
"{:10} {id:10}  {:4o} {:21} {:5} {:5}  {:5} {:5} {:5} {:5} {:5} {:10} {:10} {:10} {:21} {:21}\n",
                p.key,
                p.mode,
                s.size,
                s.creator,
                s.last.load(Ordering::Relaxed),
                s.mappings(),
                p.uid,
                p.gid,
                p.creator_uid,
                p.creator_gid,
                at(&s.attached),
                at(&s.detached),
                at(&s.changed),
                s.size.next_multiple_of(PAGE),
                0,
))?;
        }
        Ok(())
    })?;
    Ok(())
}
