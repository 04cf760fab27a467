// SPDX-License-Identifier: Apache-2.0 OR MIT
//! An address space: mapping, unmapping, changing rights, the break.

use crate::commit::{self, Commitment};
use crate::fork::Written;
use crate::layout::{LOWEST, Layout};
use crate::mm_map::MmMap;
use crate::pager::{Machine, Page, Pager};
use crate::place::Place;
use crate::shared::SharedPages;
use crate::text::{REACH, Text};
use crate::vma::{Backing, MappedFile, Tree, VmFlags, Vma};
use crate::{PAGE, Prot, USER_END};
use abi::{Result, errno::*};
use alloc::sync::Arc;
use alloc::vec::Vec;
use api_alloc::Reserve;
use api_lock::{Guard, SpinLock};
use api_mem::PageFrame;
use api_plat::{Access, FaultOutcome, MAX_CPUS};
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// What mmap asks for.
pub struct Request {
    pub address: u64,
    /// In bytes, rounded up to pages.
    pub length: u64,
    pub place: Place,
    pub rights: Prot,
    /// What mprotect may make of it.
    pub most: Prot,
    pub shared: bool,
    /// The file and the page of it the mapping starts with; `None` is anonymous memory.
    pub file: Option<(Arc<MappedFile>, u64)>,
    pub grows_down: bool,
    pub no_reserve: bool,
    pub locked: bool,
    /// `[stack]` and the like in /proc/self/maps.
    pub name: &'static str,
}

impl Request {
    /// Private anonymous memory.
    pub fn anonymous(length: u64, rights: Prot) -> Request {
        Request {
            address: 0,
            length,
            place: Place::Anywhere,
            rights,
            most: Prot::ALL,
            shared: false,
            file: None,
            grows_down: false,
            no_reserve: false,
            locked: false,
            name: "",
        }
    }

    /// The same at a fixed address.
    pub fn at(self, address: u64) -> Request {
        Request { address, place: Place::Fixed, ..self }
    }

    /// The same of a private mapping of a file.
    pub fn of(self, file: Arc<MappedFile>, page: u64) -> Request {
        Request { file: Some((file, page)), ..self }
    }
}

/// Limits of the process that concern memory, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// RLIMIT_STACK.
    pub stack: u64,
    /// RLIMIT_AS.
    pub address_space: u64,
    /// RLIMIT_DATA.
    pub data: u64,
    /// RLIMIT_MEMLOCK; `u64::MAX` with CAP_IPC_LOCK.
    pub locked: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Limits { stack: 8 << 20, address_space: u64::MAX, data: u64::MAX, locked: u64::MAX }
    }
}

/// An address space.
pub struct Space {
    /// No other address space ever has it.
    id: u64,
    pub(crate) inner: SpinLock<Inner>,
}

pub(crate) struct Inner {
    pub tree: Tree,
    pub pager: Machine,
    pub layout: Layout,
    pub limits: Limits,
    /// The page of zeros that reading untouched memory shows.
    pub zero: PageFrame,
    pub brk_start: u64,
    pub brk: u64,
    /// But for the break.
    pub mm_map: MmMap,
    /// Pages of all mappings.
    pub pages: u64,
    pub locked_pages: u64,
    pub data_pages: u64,
    pub commitment: Commitment,
    pub own_resident: u64,
    pub file_resident: u64,
    pub peak_pages: u64,
    pub peak_resident: u64,
    /// mlockall(MCL_FUTURE).
    pub lock_future: bool,
    /// The same with MCL_ONFAULT.
    pub lock_future_on_fault: bool,
    /// Pages were in use while the lock was free: the count of changes tells.
    pub changes: u64,
    /// System calls of the text are not patched (`traced`).
    pub traced: bool,
    /// A debugger of the host's is told which files are mapped to be executed.
    #[cfg(feature = "process")]
    pub is_told: bool,
    pub written: Arc<Written>,
    /// How many pages this space has told of since it was forked, or forked last.
    pub copies_told: usize,
}

/// The address space that is active on each processor. A kernel thread finds the one of whoever ran there before it.
static CURRENT: [SpinLock<Option<Arc<Space>>>; MAX_CPUS] = [const { SpinLock::new(None) }; MAX_CPUS];
/// The same as an address: every switch of threads asks.
static ACTIVE: [AtomicUsize; MAX_CPUS] = [const { AtomicUsize::new(0) }; MAX_CPUS];

/// The index of the running processor.
#[inline]
pub(crate) fn here() -> usize {
    // Tests on the host have no processor's block.
    if cfg!(feature = "host") { 0 } else { api_plat::cpu() as usize }
}

/// How many processors an address space is active on.
pub(crate) fn processors_in(space: &Space) -> usize {
    let address = core::ptr::from_ref(space) as usize;
    ACTIVE.iter().filter(|active| active.load(Ordering::Relaxed) == address).count()
}

/// The running thread's address space.
///
/// # Panics
///
/// On a kernel thread that works for no process, while no process' address space is active.
pub fn current() -> Arc<Space> {
    active().expect("the thread has an address space")
}

/// The address space that is active; `None` before the first, and when a process has ended until another one's thread runs.
pub fn active() -> Option<Arc<Space>> {
    CURRENT[here()].lock().clone()
}

/// There will be more than one address space. False where the platform cannot show one on each of the processors at work: it has none of
/// its own page tables and one process of the host, and the others are to be dismissed before ([`api_plat::dismiss`]).
#[cfg(feature = "process")]
pub fn expect_several() -> bool {
    api_plat::pages::expect_several()
}

#[cfg(not(feature = "process"))]
pub fn expect_several() -> bool {
    true
}

/// No address space is active any more on this processor. For the thread that ends its process, before it lets go of the space,
/// and for one of several processors that has nothing to do: a space that ends elsewhere is not kept.
pub fn deactivate() {
    if ACTIVE[here()].swap(0, Ordering::Relaxed) != 0 {
        Machine::deactivate();
        let old = CURRENT[here()].lock().take();
        drop(old);
    }
}

/// Rounds a length up to pages; `ENOMEM` on overflow, `EINVAL` for zero.
pub(crate) fn whole_pages(length: u64) -> Result<u64> {
    match abi::page_up(length) {
        _ if length == 0 => Err(EINVAL),
        Some(n) => Ok(n),
        None => Err(ENOMEM),
    }
}

/// Where the program's part ends on Linux.
const TASK_SIZE: u64 = 0x7fff_ffff_f000;
/// Others may run after munmap(2) has freed so many bytes, or a 256th of a longer range: what a program reserves may be most of
/// the address space, of which little has pages.
const UNMAP_PIECE: u64 = 32 << 20;
const MAX_UNMAP_PIECES: u64 = 256;

/// End of a range; `error` unless it is page-aligned and the program's.
pub(crate) fn range_end(address: u64, length: u64, error: abi::Errno) -> Result<u64> {
    if !address.is_multiple_of(PAGE) {
        return Err(EINVAL);
    }
    let end = abi::page_up(length).and_then(|n| address.checked_add(n)).ok_or(error)?;
    if end > USER_END { Err(error) } else { Ok(end) }
}

/// Dirty pages of shared mappings that were taken out, to be stored once the lock is free.
pub(crate) type Unsaved = Vec<(Arc<MappedFile>, u64, PageFrame)>;

pub(crate) fn save(unsaved: Unsaved) {
    for (file, page, frame) in unsaved {
        // The mapping is gone: there is nobody left to tell.
        let _ = file.source.write_back(page, &frame);
    }
}

impl Space {
    /// An empty address space.
    pub fn new(layout: Layout, limits: Limits) -> Result<Arc<Space>> {
        let inner = Inner::empty(layout, limits, PageFrame::new()?)?;
        Ok(Space::with(inner))
    }

    pub(crate) fn with(inner: Inner) -> Arc<Space> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Arc::new(Space { id: NEXT.fetch_add(1, Ordering::Relaxed), inner: SpinLock::new(inner) })
    }

    /// Makes it the running processor's address space.
    ///
    /// `Some` where the program has to find all of its pages again, because the host showed those of another space meanwhile: the
    /// nanoseconds that it took to take those away.
    pub fn activate(self: &Arc<Space>) -> Option<u64> {
        let took = self.inner.lock().pager.activate();
        ACTIVE[here()].store(Arc::as_ptr(self) as usize, Ordering::Relaxed);
        let old = CURRENT[here()].lock().replace(self.clone());
        drop(old);
        took
    }

    /// The running thread, or the one that runs next, goes on in this address space. Cheap where it is active already. The
    /// answer is that of [`Space::activate`].
    #[inline]
    pub fn enter(self: &Arc<Space>) -> Option<u64> {
        if ACTIVE[here()].load(Ordering::Relaxed) == Arc::as_ptr(self) as usize {
            None
        } else {
            self.activate()
        }
    }

    /// The word at `address` as all who can reach it know it: what it belongs to, and where it is there. That is a file which
    /// is mapped shared, or else, and with `private` in any case, this address space.
    pub fn word(&self, address: u64, private: bool) -> ((u64, u64), u64) {
        let own = ((self.id, u64::MAX), address);
        if private {
            return own;
        }
        let inner = self.inner.lock();
        let Some((start, vma)) = inner.tree.find(address).filter(|(_, vma)| vma.flags.shared) else {
            return own;
        };
        let Some((file, page)) = vma.file_page(start, address & !(PAGE - 1)) else { return own };
        let offset = page * PAGE + address % PAGE;
        match file.inode {
            // Memory without a name: its record is what all mappings of it share.
            0 => ((Arc::as_ptr(file) as u64, u64::MAX - 1), offset),
            inode => ((file.device, inode), offset),
        }
    }

    /// Whether the memory at `address` is the program's own, of no file, and may not be written: nobody else has a part in it.
    pub fn is_read_only_at(&self, address: u64) -> bool {
        let is_own = |vma: &Vma| !vma.flags.shared && !matches!(vma.backing, Backing::File { .. });
        let inner = self.inner.lock();
        inner
            .tree
            .find(address)
            .is_some_and(|(_, vma)| is_own(vma) && !vma.flags.rights.contains(Prot::WRITE))
    }

    /// Whether the program may write at `address`.
    pub fn is_writable_at(&self, address: u64) -> bool {
        self.inner.lock().tree.find(address).is_some_and(|(_, vma)| vma.flags.rights.contains(Prot::WRITE))
    }

    /// Files that are mapped to be executed are told to whoever supervises the machine, for debuggers of the host. For the
    /// first process alone: a debugger has one address space, and telling wakes the supervisor.
    pub fn tell_mappings(&self) {
        #[cfg(feature = "process")]
        {
            self.inner.lock().is_told = true;
        }
    }

    pub fn layout(&self) -> Layout {
        self.inner.lock().layout
    }

    /// How much the program may lock from now on, in bytes.
    pub fn set_lock_limit(&self, bytes: u64) {
        self.inner.lock().limits.locked = bytes;
    }

    pub fn set_limits(&self, limits: Limits) {
        self.inner.lock().limits = limits;
    }

    /// mmap. `EINVAL` for a length of zero or a fixed address that is not page-aligned, `ENOMEM` when there is no
    /// room or a limit is reached, `EEXIST` for [`Place::FixedNoReplace`], `EPERM` for a fixed address below
    /// 64 KiB.
    pub fn map(&self, request: Request) -> Result<u64> {
        let length = whole_pages(request.length)?;
        if length > USER_END {
            return Err(ENOMEM);
        }
        let fixed = matches!(request.place, Place::Fixed | Place::FixedNoReplace);
        if request.place == Place::Fixed {
            self.store_shared(request.address, request.address.saturating_add(length))?;
        }
        let mut unsaved = Vec::new();
        if request.rights.contains(Prot::EXECUTE)
            && let Some((file, _)) = &request.file
        {
            // Under the lock nobody may wait for the host.
            file.source.prepare_text();
        }
        let mut inner = self.inner.lock();
        let start = inner.place(&request, length)?;
        let end = start + length;
        inner.check_limits(&request, start, length)?;
        let flags = VmFlags {
            rights: request.rights,
            most: request.most,
            shared: request.shared,
            grows_down: request.grows_down,
            locked: request.locked || inner.lock_future,
            on_fault: inner.lock_future_on_fault,
            no_reserve: request.no_reserve && commit::allows_no_reserve(),
            ..VmFlags::default()
        };
        // The object is committed at its full length here: mappings of it, also later ones, are not.
        if request.shared && request.file.is_none() && !flags.no_reserve {
            commit::check(|| length / PAGE)?;
        }
        if fixed {
            inner.remove(start, end, &mut unsaved)?;
        }
        let mut vma = Vma::anonymous(end, flags);
        vma.name = request.name;
        let is_file = request.file.is_some();
        vma.backing = match request.file {
            Some((file, index)) => Backing::File { file, index },
            None if request.shared => {
                let source = Arc::new(SharedPages::new(length, !flags.no_reserve));
                let path = b"/dev/zero (deleted)".to_vec();
                let file = MappedFile { source, path, device: 1, inode: 0, place: None, is_writable: true };
                Backing::File { file: Arc::new(file), index: 0 }
            }
            None => Backing::Anonymous,
        };
        inner.account(&flags, length as i64);
        #[cfg(feature = "process")]
        let mapped = match &vma.backing {
            Backing::File { file, index } if inner.is_told && request.rights.contains(Prot::EXECUTE) => {
                Some((file.clone(), *index))
            }
            _ => None,
        };
        inner.tree.insert(start, vma);
        if request.rights.contains(Prot::EXECUTE) {
            inner.attach_text(start);
        }
        // A loader or a dynamic linker puts a part of a program in its place.
        if Machine::CHUNKS && request.place == Place::Fixed && is_file && !request.shared {
            inner.make_ready(start, end);
        }
        drop(inner);
        // A debugger attached to the process finds the program's files by this.
        #[cfg(feature = "process")]
        if let Some((file, index)) = mapped {
            let path = alloc::string::String::from_utf8_lossy(&file.path).into_owned();
            api_plat::status(&api_plat::Status::Mapped { address: start, offset: index * PAGE, path });
        }
        save(unsaved);
        if flags.populates() {
            self.populate(start, end);
        }
        Ok(start)
    }

    /// Maps pages of the kernel's (the vDSO) near the stack; they stay the kernel's.
    pub fn map_kernel_pages(&self, pages: &[(PageFrame, Prot)], name: &'static str) -> Result<u64> {
        let length = pages.len() as u64 * PAGE;
        let mut inner = self.inner.lock();
        let top = inner.layout.mmap_base;
        let start = inner.tree.gap_for_mmap(LOWEST, top, length).ok_or(ENOMEM)?;
        for (i, (frame, rights)) in pages.iter().enumerate() {
            let address = start + i as u64 * PAGE;
            let flags = VmFlags { rights: *rights, most: *rights, shared: true, ..VmFlags::default() };
            let mut vma = Vma::anonymous(address + PAGE, flags);
            (vma.backing, vma.name) = (Backing::Fixed, name);
            inner.pager.map(address, frame.clone(), *rights, false)?;
            inner.file_resident += 1;
            inner.account(&flags, PAGE as i64);
            inner.tree.insert(address, vma);
        }
        inner.pager.flush();
        Ok(start)
    }

    /// The first page of what [`Space::map_kernel_pages`] mapped becomes another one; nothing happens where the program took it away.
    pub fn replace_kernel_page(&self, name: &str, page: PageFrame) {
        let mut inner = self.inner.lock();
        let is_it = |vma: &Vma| vma.name == name && matches!(vma.backing, Backing::Fixed);
        let found =
            inner.tree.iter().find(|(_, vma)| is_it(vma)).map(|(start, vma)| (start, vma.flags.rights));
        if let Some((start, rights)) = found
            && !rights.contains(Prot::EXECUTE)
            && inner.pager.page(start).is_some()
        {
            let old = inner.pager.replace(start, page, rights, false);
            inner.pager.flush();
            drop(inner);
            drop(old);
        }
    }

    /// munmap. `EINVAL` unless the address is page-aligned, the length above zero, and the range the program's.
    pub fn unmap(&self, address: u64, length: u64) -> Result<()> {
        // Where the program's part ends before Linux' (a process machine), nothing is mapped behind it.
        let is_beyond = |end: u64| (USER_END..=TASK_SIZE).contains(&end);
        let reach = abi::page_up(length).and_then(|length| address.checked_add(length));
        let length = if reach.is_some_and(is_beyond) { USER_END.saturating_sub(address) } else { length };
        let end = range_end(address, length, EINVAL)?;
        if end == address {
            return Err(EINVAL);
        }
        self.store_shared(address, end)?;
        let remove = |from, to| {
            let mut unsaved = Vec::new();
            let result = self.inner.lock().remove(from, to, &mut unsaved);
            save(unsaved);
            result
        };
        let piece = UNMAP_PIECE.max(((end - address) / MAX_UNMAP_PIECES).next_multiple_of(PAGE));
        let mut at = address;
        if end - at > piece {
            self.inner.lock().check_sealed(at, end)?;
        }
        while end - at > piece {
            // A piece may need one mapping more, which the whole range does not.
            if remove(at, at + piece).is_err() {
                break;
            }
            at += piece;
            api_sched::cond_resched();
        }
        remove(at, end)
    }

    /// There is a mapping at the address.
    pub fn is_mapped(&self, address: u64) -> bool {
        self.lock().tree.find(address).is_some()
    }

    /// mprotect. `ENOMEM` where nothing is mapped, `EACCES` for a right the mapping cannot have; what lies before
    /// such a place is changed.
    pub fn protect(&self, address: u64, length: u64, rights: Prot, grows_down: bool) -> Result<()> {
        let end = range_end(address, length, ENOMEM)?;
        if end == address {
            return Ok(());
        }
        let mut guard = self.inner.lock();
        let inner = &mut *guard;
        let mut start = address;
        if grows_down {
            // PROT_GROWSDOWN: from the start of the stack on, which is the first mapping in the range.
            let (first, vma) = inner.tree.first_overlap(address, end).ok_or(ENOMEM)?;
            if !vma.flags.grows_down {
                return Err(EINVAL);
            }
            start = first;
        }
        inner.check_sealed(start, end)?;
        let (mut at, mut result) = (start, Ok(()));
        while at < end {
            let Some((_, vma)) = inner.tree.find(at) else {
                result = Err(ENOMEM);
                break;
            };
            if !vma.flags.most.contains(rights) {
                result = Err(EACCES);
                break;
            }
            at = vma.end;
        }
        let end = at.min(end);
        if start < end {
            inner.protect(start, end, rights)?;
        }
        result
    }

    /// brk: the new break, or the one before when it cannot be moved there.
    pub fn set_brk(&self, wanted: u64) -> u64 {
        let mut guard = self.inner.lock();
        let inner = &mut *guard;
        let (old, start) = (inner.brk, inner.brk_start);
        if wanted < start || wanted > USER_END - PAGE {
            return old;
        }
        let (from, to) = (old.next_multiple_of(PAGE), wanted.next_multiple_of(PAGE));
        if to < from {
            let mut unsaved = Vec::new();
            if inner.remove(to, from, &mut unsaved).is_err() {
                return old;
            }
        } else if to > from {
            let request = Request::anonymous(to - from, Prot::READ.with(Prot::WRITE)).at(from);
            let taken = inner.tree.first_overlap(from, to.saturating_add(PAGE)).is_some();
            if taken
                || to - start > inner.limits.data
                || inner.check_limits(&request, from, to - from).is_err()
            {
                return old;
            }
            let (locked, on_fault) = (inner.lock_future, inner.lock_future_on_fault);
            let (rights, most) = (request.rights, Prot::ALL);
            let flags = VmFlags { rights, most, locked, on_fault, ..VmFlags::default() };
            let mut vma = Vma::anonymous(to, flags);
            vma.name = "[heap]";
            inner.account(&flags, (to - from) as i64);
            inner.tree.insert(from, vma);
            if flags.populates() {
                inner.brk = wanted;
                drop(guard);
                self.populate(from, to);
                return wanted;
            }
        }
        inner.brk = wanted;
        wanted
    }

    /// Where the break starts; the loader sets it, once.
    pub fn start_brk(&self, start: u64) {
        let mut inner = self.inner.lock();
        (inner.brk_start, inner.brk) = (start, start);
    }

    /// Copies into the space, which need not be the active one, as the program itself could.
    pub fn write(&self, address: u64, bytes: &[u8]) -> Result<()> {
        let mut done = 0;
        while done < bytes.len() {
            let at = address.checked_add(done as u64).ok_or(EFAULT)?;
            let n = ((PAGE - at % PAGE) as usize).min(bytes.len() - done);
            let frame = self.touch(at, Access::Write)?;
            frame.write((at % PAGE) as usize, &bytes[done..done + n]);
            done += n;
        }
        Ok(())
    }

    /// Copies out of the space, which need not be the active one, as the program itself could.
    pub fn read(&self, address: u64, to: &mut [u8]) -> Result<()> {
        let mut done = 0;
        while done < to.len() {
            let at = address.checked_add(done as u64).ok_or(EFAULT)?;
            let n = ((PAGE - at % PAGE) as usize).min(to.len() - done);
            let frame = self.touch(at, Access::Read)?;
            frame.read((at % PAGE) as usize, &mut to[done..done + n]);
            done += n;
        }
        Ok(())
    }

    /// Zeroes from `address` to the end of its page, as the program itself could.
    pub fn zero_to_page_end(&self, address: u64) -> Result<()> {
        let offset = (address % PAGE) as usize;
        if offset != 0 {
            self.touch(address, Access::Write)?.zero(offset, PAGE as usize - offset);
        }
        Ok(())
    }

    /// The pages of a range, made ready for a device that reads them, or writes to them, as far as that is possible: the
    /// program's own, since a device's writing to pages of files would go unseen. While the handles live the pages stay,
    /// whatever becomes of the range.
    pub fn hold(&self, address: u64, length: usize, access: Access) -> Vec<PageFrame> {
        let end = address.saturating_add(length as u64).min(USER_END);
        let first = address & !(PAGE - 1);
        let mut frames = Vec::new();
        if frames.reserve_exact_fallibly(end.saturating_sub(first).div_ceil(PAGE) as usize).is_ok() {
            for page in (first..end).step_by(PAGE as usize) {
                match self.touched(page, access) {
                    Ok((frame, own)) if own || access == Access::Read => frames.push(frame),
                    _ => break,
                }
            }
        }
        frames
    }

    /// The frame at `address`, made ready for the access.
    fn touch(&self, address: u64, access: Access) -> Result<PageFrame> {
        self.touched(address, access).map(|(frame, _)| frame)
    }

    /// The same, and whether it is the program's own and not a file's.
    fn touched(&self, address: u64, access: Access) -> Result<(PageFrame, bool)> {
        // One that is there need not be shown to the program for this.
        if let Some(there) = self.frame_at(address, |page| page.rights.allow(access)) {
            return Ok(there);
        }
        match self.fault(address, access) {
            FaultOutcome::Resolved => self.frame_at(address, |_| true).ok_or(EFAULT),
            FaultOutcome::OutOfMemory => Err(ENOMEM),
            _ => Err(EFAULT),
        }
    }

    /// The frame of a page that is there and suits, and whether it is the program's own.
    fn frame_at(&self, address: u64, suits: impl FnOnce(&Page) -> bool) -> Option<(PageFrame, bool)> {
        let mut inner = self.inner.lock();
        let page = inner.pager.page(address & !(PAGE - 1)).filter(suits)?;
        // SAFETY: the entry holds a count of the page, of which this is a copy that is counted at once.
        let frame = unsafe { core::mem::ManuallyDrop::new(PageFrame::from_raw(page.physical)).clone_frame() };
        Some((frame, page.own))
    }

    pub(crate) fn lock(&self) -> Guard<'_, Inner> {
        self.inner.lock()
    }
}

/// A second handle of a borrowed one.
trait CloneFrame {
    fn clone_frame(&self) -> PageFrame;
}

impl CloneFrame for core::mem::ManuallyDrop<PageFrame> {
    fn clone_frame(&self) -> PageFrame {
        PageFrame::clone(self)
    }
}

impl Inner {
    /// Without a mapping; `zero` is the page that reading untouched memory shows.
    pub(crate) fn empty(layout: Layout, limits: Limits, zero: PageFrame) -> Result<Inner> {
        Ok(Inner {
            tree: Tree::default(),
            pager: Machine::new()?,
            layout,
            limits,
            zero,
            brk_start: 0,
            brk: 0,
            mm_map: MmMap::default(),
            pages: 0,
            locked_pages: 0,
            data_pages: 0,
            commitment: Commitment::default(),
            own_resident: 0,
            file_resident: 0,
            peak_pages: 0,
            peak_resident: 0,
            lock_future: false,
            lock_future_on_fault: false,
            changes: 0,
            traced: false,
            #[cfg(feature = "process")]
            is_told: false,
            written: Arc::new(Written::new()),
            copies_told: 0,
        })
    }

    /// Counts a mapping of `length` bytes in (or out, when negative).
    pub fn account(&mut self, flags: &VmFlags, length: i64) {
        let pages = length / PAGE as i64;
        self.changes += 1;
        self.pages = self.pages.wrapping_add_signed(pages);
        self.peak_pages = self.peak_pages.max(self.pages);
        if flags.locked {
            self.locked_pages = self.locked_pages.wrapping_add_signed(pages);
        }
        if flags.is_data() {
            self.data_pages = self.data_pages.wrapping_add_signed(pages);
        }
        if flags.is_committed() {
            self.commitment.change(pages);
        }
    }

    /// Shows a page that is not this space's own, where there is none.
    pub fn map_file_page(&mut self, address: u64, frame: PageFrame, rights: Prot) -> Result<()> {
        self.pager.map(address, frame, rights, false)?;
        self.count_resident(false, 1);
        Ok(())
    }

    pub fn count_resident(&mut self, own: bool, pages: i64) {
        let counter = if own { &mut self.own_resident } else { &mut self.file_resident };
        *counter = counter.wrapping_add_signed(pages);
        self.peak_resident = self.peak_resident.max(self.own_resident + self.file_resident);
        if own && pages > 0 {
            crate::growth::grows(pages);
        }
    }

    /// `EPERM` when something in the range was sealed (mseal(2)).
    pub fn check_sealed(&self, start: u64, end: u64) -> Result<()> {
        if self.tree.overlapping(start, end).any(|(_, vma)| vma.flags.sealed) { Err(EPERM) } else { Ok(()) }
    }

    /// Takes everything in the range out; `EPERM` when some of it is sealed, and then nothing.
    pub fn remove(&mut self, start: u64, end: u64, unsaved: &mut Unsaved) -> Result<()> {
        if self.tree.first_overlap(start, end).is_none() {
            return Ok(());
        }
        self.check_sealed(start, end)?;
        self.pager.split(start)?;
        self.pager.split(end)?;
        self.tree.cut(start)?;
        self.tree.cut(end)?;
        let mut stubs = None;
        while let Some((first, _)) = self.tree.next(start).filter(|(first, _)| *first < end) {
            let Some(vma) = self.tree.remove(first) else { break };
            self.account(&vma.flags, -((vma.end - first) as i64));
            self.discard(first, vma.end, first, &vma, unsaved);
            if let Some(text) = vma.text
                && Arc::strong_count(&text) == 1
            {
                stubs = Some((text.stubs(), text.stubs() + text.stub_bytes()));
            }
        }
        let floor = self.tree.end_before(start);
        let ceiling = self.tree.next(end).map_or(1 << 47, |(next, _)| next);
        self.pager.trim(start, end, floor, ceiling);
        match stubs {
            // The text is gone: nothing leads to its stubs any more.
            Some((from, to)) if self.is_stubs(from, to) => self.remove(from, to, unsaved),
            _ => Ok(()),
        }
    }

    pub(crate) fn is_stubs(&self, start: u64, end: u64) -> bool {
        let found = self.tree.find(start);
        found.is_some_and(|(at, vma)| at == start && vma.end == end && matches!(vma.backing, Backing::Stubs))
    }

    /// Takes the pages of a part of a mapping out; what is dirty and belongs to a file goes to `unsaved`.
    pub fn discard(&mut self, start: u64, end: u64, vma_start: u64, vma: &Vma, unsaved: &mut Unsaved) {
        let zero = self.zero.physical();
        let (mut own, mut file) = (0, 0);
        let Ok(()) = self.pager.take_out(start, end, |_, batch| {
            for taken in batch.drain() {
                match taken.own {
                    true => own += 1,
                    false if taken.frame.physical() != zero => file += 1,
                    false => {}
                }
                if taken.dirty
                    && vma.flags.shared
                    && let Some((source, page)) = vma.file_page(vma_start, taken.address)
                    && !source.source.is_memory()
                {
                    unsaved.push((source.clone(), page, taken.frame));
                }
            }
            own += core::mem::take(&mut batch.large) as i64 * crate::pager::LARGE_PAGES as i64;
            Ok::<(), core::convert::Infallible>(())
        });
        self.count_resident(true, -own);
        self.count_resident(false, -file);
    }

    /// Gives the range other rights; all of it is mapped and may have them.
    pub(crate) fn protect(&mut self, start: u64, end: u64, rights: Prot) -> Result<()> {
        if rights.contains(Prot::WRITE) {
            commit::check(|| {
                let parts = self.tree.overlapping(start, end).filter(|(_, vma)| {
                    VmFlags { rights, ..vma.flags }.is_committed() && !vma.flags.is_committed()
                });
                parts.map(|(from, vma)| (vma.end.min(end) - (*from).max(start)) / PAGE).sum()
            })?;
        }
        self.pager.split(start)?;
        self.pager.split(end)?;
        // Memory that becomes writable counts as data from now on.
        let (mut gained, mut committed) = (0, 0);
        self.tree.change(start, end, |from, vma| {
            let before = vma.flags;
            vma.flags.rights = rights;
            let pages = ((vma.end - from) / PAGE) as i64;
            let more =
                |is: fn(&VmFlags) -> bool| (i64::from(is(&vma.flags)) - i64::from(is(&before))) * pages;
            gained += more(VmFlags::is_data);
            committed += more(VmFlags::is_committed);
        })?;
        self.data_pages = self.data_pages.wrapping_add_signed(gained);
        self.commitment.change(committed);
        self.changes += 1;
        let mut at = start;
        while let Some((first, vma)) = self.tree.first_overlap(at, end) {
            let (from, to) = (first.max(start), vma.end.min(end));
            let shared = vma.flags.shared;
            self.pager.protect(from, to, &mut |page| match shared {
                // Writing a page of a file for the first time goes through the file.
                true if !page.dirty => rights.without(Prot::WRITE),
                false if !page.own || page.copied => rights.without(Prot::WRITE),
                _ => rights,
            });
            at = to;
            if at >= end {
                break;
            }
        }
        if rights.contains(Prot::EXECUTE) {
            let mut at = start;
            while let Some((first, vma)) = self.tree.first_overlap(at, end) {
                at = vma.end;
                self.attach_text(first);
            }
        }
        Ok(())
    }

    /// Gives an executable private mapping of a file with a table of system-call sites its stubs. Where that cannot
    /// be done, calls trap.
    fn attach_text(&mut self, start: u64) {
        let Some((_, vma)) = self.tree.find(start) else { return };
        let (end, executable) = (vma.end, vma.flags.rights.contains(Prot::EXECUTE));
        let Backing::File { file, index } = &vma.backing else { return };
        if vma.text.is_some() || vma.flags.shared || !executable {
            return;
        }
        let from = index * PAGE;
        let Ok(Some(mut text)) = Text::of(file, start, from, from + (end - start)) else { return };
        let length = text.stub_bytes();
        let below = self.tree.gap_below(LOWEST.max(end.saturating_sub(REACH)), start, length);
        let near = below.or_else(|| {
            let top = start.saturating_add(REACH).min(USER_END);
            self.tree.gap_above(end, top, length)
        });
        let Some(stubs) = near else { return };
        text.place(stubs, from + (end - start));
        let rights = Prot::READ.with(Prot::EXECUTE);
        let flags = VmFlags { rights, most: rights, ..VmFlags::default() };
        let mut stub_vma = Vma::anonymous(stubs + length, flags);
        (stub_vma.backing, stub_vma.name) = (Backing::Stubs, "[calls]");
        self.account(&flags, length as i64);
        self.tree.insert(stubs, stub_vma);
        let Some((_, vma)) = self.tree.find_mut(start) else { return };
        vma.text = Some(Arc::new(text));
        let vma = vma.clone();
        // Pages of the file that were seen already come back patched; the program's own copies stay as they are.
        self.forget_file_pages(start, start, end, &vma);
        self.show_common_text(start, &vma);
    }

    /// Maps the pages of a text, from `start` on, that are patched already. Without memory for tables the rest comes with faults.
    fn show_common_text(&mut self, start: u64, vma: &Vma) {
        let Some((text, (_, first))) = vma.text.as_ref().zip(vma.file_page(start, start)) else { return };
        if self.traced || text.common().is_none() || !self.show_common_stubs(text) {
            return;
        }
        let rights = vma.flags.rights.without(Prot::WRITE);
        for address in (start..vma.end).step_by(PAGE as usize) {
            let Some(frame) = text.common_page(first + (address - start) / PAGE) else { continue };
            let is_there = self.pager.page(address).is_some();
            if !is_there && self.map_file_page(address, frame.clone(), rights).is_err() {
                return;
            }
        }
        self.pager.flush();
    }

    /// The stubs of a text whose pages are patched already; false where they cannot be there.
    pub(crate) fn show_common_stubs(&mut self, text: &Text) -> bool {
        let (start, end) = (text.stubs(), text.stubs() + text.stub_bytes());
        // The program may have unmapped the stubs, or mapped something over them.
        let Some(common) = text.common().filter(|_| self.is_stubs(start, end)) else { return false };
        for (i, frame) in common.stubs().iter().enumerate() {
            let address = start + i as u64 * PAGE;
            let rights = Prot::READ.with(Prot::EXECUTE);
            let is_there = self.pager.page(address).is_some();
            if !is_there && self.map_file_page(address, frame.clone(), rights).is_err() {
                return false;
            }
        }
        true
    }

    /// Takes out the pages that are the file's own, of a part of a mapping.
    pub(crate) fn forget_file_pages(&mut self, vma_start: u64, start: u64, end: u64, vma: &Vma) {
        /// Pages that are looked at together.
        const AT_ONCE: usize = 128;
        let mut unsaved = Vec::new();
        for from in (start..end).step_by(AT_ONCE * PAGE as usize) {
            let (mut seen, mut count) = ([0; AT_ONCE], 0);
            let to = end.min(from + AT_ONCE as u64 * PAGE);
            self.pager.visit(from, to, &mut |address, page| {
                if !page.own {
                    seen[count] = address;
                    count += 1;
                }
                false
            });
            for address in &seen[..count] {
                self.discard(*address, address + PAGE, vma_start, vma, &mut unsaved);
            }
        }
    }
}
