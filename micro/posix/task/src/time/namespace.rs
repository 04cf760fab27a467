// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Time namespaces (time_namespaces(7)): clocks that count from boot show other times.
//!
//! The kernel's own times, those of timers among them, are the machine's; a namespace counts only where a time comes from a program
//! or is shown to it. The vDSO of a process in another namespace than the machine's asks the kernel ([`clock_page`]).

use crate::process::Process;
use crate::thread;
use crate::users::UserNamespace;
use abi::{Result, errno::*};
use alloc::sync::Arc;
use api_lock::SpinLock;
use api_mem::PageFrame;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use mem::Space;

/// What is added to the machine's times, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Offsets {
    pub monotonic: i64,
    pub boottime: i64,
}

/// One namespace.
pub struct TimeNamespace {
    /// Counts from 0, the machine's own.
    pub number: u64,
    /// The user namespace whose capabilities count for it.
    pub owner: UserNamespace,
    offsets: SpinLock<Offsets>,
    /// Somebody is in it: its offsets stay.
    is_frozen: AtomicBool,
}

static NEXT_NUMBER: AtomicU64 = AtomicU64::new(0);
static FIRST: SpinLock<Option<Arc<TimeNamespace>>> = SpinLock::new(None);

fn new(owner: UserNamespace, offsets: Offsets, is_frozen: bool) -> Arc<TimeNamespace> {
    let number = NEXT_NUMBER.fetch_add(1, Relaxed);
    let (offsets, is_frozen) = (SpinLock::new(offsets), AtomicBool::new(is_frozen));
    Arc::new(TimeNamespace { number, owner, offsets, is_frozen })
}

/// The machine's own.
pub fn first() -> Arc<TimeNamespace> {
    let mut first = FIRST.lock();
    first.get_or_insert_with(|| new(UserNamespace::FIRST, Offsets::default(), true)).clone()
}

impl TimeNamespace {
    /// Another one with the same offsets (CLONE_NEWTIME). `ENOMEM` when memory is short.
    pub fn copy(&self, owner: UserNamespace) -> Result<Arc<TimeNamespace>> {
        if api_alloc::is_low() { Err(ENOMEM) } else { Ok(new(owner, self.offsets(), false)) }
    }

    pub fn offsets(&self) -> Offsets {
        *self.offsets.lock()
    }

    /// `EACCES` once somebody is in it.
    pub fn set_offsets(&self, offsets: Offsets) -> Result<()> {
        if self.is_frozen.load(Relaxed) {
            return Err(EACCES);
        }
        *self.offsets.lock() = offsets;
        Ok(())
    }

    /// A process of the address space is in it from now on.
    pub fn is_entered(&self, space: &Space) {
        self.is_frozen.store(true, Relaxed);
        // What cannot be shown is not mapped there any more.
        if let Ok(page) = clock_page(self) {
            space.replace_kernel_page(VDSO, page);
        }
    }
}

/// The vDSO's name in /proc/PID/maps.
pub const VDSO: &str = "[vdso]";

/// The page that the vDSO reads in a namespace: the machine's clock, or one that says that the kernel is to be asked, which is the same for
/// all others.
pub fn clock_page(namespace: &TimeNamespace) -> Result<PageFrame> {
    /// An odd sequence, as while the clock is being changed, and behind it the word that tells why.
    const ASKS: [u8; 8] = [1, 0, 0, 0, 1, 0, 0, 0];
    static ASKING: SpinLock<Option<PageFrame>> = SpinLock::new(None);
    if namespace.number == 0 {
        // SAFETY: pages of the kernel image are permanent.
        return Ok(unsafe { PageFrame::from_raw(api_plat::vdso().data) });
    }
    let mut asking = ASKING.lock();
    match &*asking {
        Some(page) => Ok(page.clone()),
        None => {
            let page = PageFrame::new()?;
            page.write(0, &ASKS);
            Ok(asking.insert(page).clone())
        }
    }
}

/// What is added for a process: nothing, mostly, and nobody looks where there is one namespace.
pub fn offsets_of(process: &Process) -> Offsets {
    if NEXT_NUMBER.load(Relaxed) <= 1 {
        return Offsets::default();
    }
    let namespace = process.nsproxy.lock().time.clone();
    namespace.offsets()
}

/// `ns` since boot of the machine, as the running thread's process is shown it; the kernel's own threads see the machine's.
pub fn shown_boottime(ns: u64) -> u64 {
    let offset = thread::running().map_or(0, |task| offsets_of(&task.process).boottime);
    ns.saturating_add_signed(offset)
}
