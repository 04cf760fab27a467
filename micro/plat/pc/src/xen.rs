// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A guest of Xen that was entered by PVH: hypercalls, the page that Xen shares with the machine, event channels, the console's
//! ring, the clock and the end. Interfaces and numbers are those of Xen's `public/` headers, which each file names.
//!
//! There are no ports, no PCI and no I/O APIC; the local APIC is emulated as on other PCs. Xen writes to two pages of the kernel
//! image: to that of the hypercalls' code, once, and to the shared one. Devices' rings are the driver's (`micro/dev/xen`).

mod console;
pub mod event;
pub mod hypercall;
pub mod shared;

use crate::physical_to_virtual;
use crate::x86::{physical, wrmsr};
use api_lock::SpinLock;
use api_plat::Status;
use core::arch::x86_64::__cpuid_count;
use core::sync::atomic::{AtomicBool, Ordering};

pub use console::Console;
use hypercall::{HVM_OP, MEMORY_OP, SCHED_OP, call2};
pub use shared::{Page, StoreRing};

/// Xen's CPUID leaves begin here, or, where it also answers as another hypervisor, up to 255 steps further
/// (`arch-x86/cpuid.h`).
const FIRST_LEAF: u32 = 0x4000_0000;
const LEAF_STEP: u32 = 0x100;
const LEAVES: u32 = 0x1_0000;
/// CPUID leaf 1, ECX: there is a hypervisor; there is an x2APIC.
const HYPERVISOR: u32 = 1 << 31;
const X2APIC: u32 = 1 << 21;

static IS_ON: AtomicBool = AtomicBool::new(false);
static HAS_X2APIC: AtomicBool = AtomicBool::new(false);

/// The machine is a guest of Xen's.
pub fn is_on() -> bool {
    IS_ON.load(Ordering::Relaxed)
}

/// The local APIC can be used by model-specific registers, which Xen need not emulate instructions for.
pub fn has_x2apic() -> bool {
    is_on() && HAS_X2APIC.load(Ordering::Relaxed)
}

/// The first of Xen's leaves.
fn find() -> Option<u32> {
    let one = __cpuid_count(1, 0).ecx;
    if one & HYPERVISOR == 0 {
        return None;
    }
    HAS_X2APIC.store(one & X2APIC != 0, Ordering::Relaxed);
    (FIRST_LEAF..FIRST_LEAF + LEAVES).step_by(LEAF_STEP as usize).find(|leaf| {
        let answer = __cpuid_count(*leaf, 0);
        // "XenVMMXenVMM"
        (answer.ebx, answer.ecx, answer.edx) == (0x566e_6558, 0x6558_4d4d, 0x4d4d_566e)
    })
}

/// Looks for Xen, and agrees with it on what the first lines of output need. Before anything else.
pub fn begin() {
    let Some(leaf) = find() else { return };
    let pages = __cpuid_count(leaf + 2, 0);
    // SAFETY: the register is the one that Xen names; it fills the page at this address, which the image has for that.
    unsafe { wrmsr(pages.ebx, hypercall::page()) };
    if !shared::map() {
        // Nothing works without it; a processor that finds no instruction ends the machine, and Xen says where.
        return;
    }
    IS_ON.store(true, Ordering::Release);
    event::mask_all();
    console::find();
}

/// The console, on Xen.
pub fn console() -> Option<&'static Console> {
    if is_on() { console::get() } else { None }
}

/// `HVMOP_get_param` (`hvm/hvm_op.h`): one of the facts in `hvm/params.h`.
#[repr(C)]
struct Parameter {
    domain: u16,
    pad: u16,
    index: u32,
    value: u64,
}

/// Page and event channel of xenstore.
const STORE_PFN: u32 = 1;
const STORE_EVTCHN: u32 = 2;
const HVMOP_GET_PARAM: u64 = 1;

fn parameter(index: u32) -> Option<u64> {
    let mut parameter = Parameter { domain: hypercall::DOMID_SELF, pad: 0, index, value: 0 };
    // SAFETY: Xen writes to the structure, which is of the form that the operation asks for.
    let answer = unsafe { call2(HVM_OP, HVMOP_GET_PARAM, &raw mut parameter as u64) };
    (answer == 0 && parameter.value != 0 && parameter.value != u64::MAX).then_some(parameter.value)
}

/// A page of the machine's memory that Xen's tools have filled, and its event channel.
fn ring<T>(page: u32, channel: u32) -> Option<(&'static T, u32)> {
    let (page, channel) = (parameter(page)?, parameter(channel)?);
    let address = page.checked_mul(4096).filter(|address| *address < crate::paging::mapped_at_start())?;
    let channel = u32::try_from(channel).ok().filter(|channel| (*channel as usize) < event::CHANNELS)?;
    // SAFETY: the tools gave the machine this page for the ring and nothing else; it is no memory that the map tells of. `T` is
    // made of atomics, for which any bytes will do.
    Some((unsafe { &*physical_to_virtual::<T>(address) }, channel))
}

/// Xenstore's ring and its event channel.
pub fn store() -> Option<(&'static StoreRing, u32)> {
    if is_on() { ring(STORE_PFN, STORE_EVTCHN) } else { None }
}

/// Nanoseconds of a tick of the emulated APIC's timer: Xen's bus has 100 MHz.
pub fn timer_tick_ns() -> u64 {
    if is_on() { 10 } else { 1 }
}

const SCHEDOP_SHUTDOWN: u64 = 2;
/// `SHUTDOWN_poweroff` and `SHUTDOWN_crash` (`sched.h`).
const POWEROFF: u32 = 0;
const CRASH: u32 = 3;

/// Ends the machine.
pub fn shut_down(is_crash: bool) {
    if is_on() {
        let reason = if is_crash { CRASH } else { POWEROFF };
        // SAFETY: Xen reads a word, and stops all of the machine's processors.
        unsafe { call2(SCHED_OP, SCHEDOP_SHUTDOWN, &raw const reason as u64) };
    }
}

/// `XENMEM_add_to_physmap` (`memory.h`).
#[repr(C)]
struct AddToPhysmap {
    domain: u16,
    size: u16,
    space: u32,
    index: u64,
    page: u64,
}

const ADD_TO_PHYSMAP: u64 = 7;
const SPACE_SHARED_INFO: u32 = 0;
const SPACE_GRANT_TABLE: u32 = 1;

/// Puts a page of Xen's in the place of a page of the kernel image.
fn map<T>(space: u32, index: u64, at: &'static T) -> bool {
    put(space, index, physical(at))
}

fn put(space: u32, index: u64, address: u64) -> bool {
    let place = AddToPhysmap { domain: hypercall::DOMID_SELF, size: 0, space, index, page: address / 4096 };
    // SAFETY: the callers give a whole page that is made for this.
    unsafe { call2(MEMORY_OP, ADD_TO_PHYSMAP, &raw const place as u64) == 0 }
}

/// Puts page `index` of the grant table in the place of a page.
pub fn map_grants(index: u64, page: &'static Page) -> bool {
    is_on() && put(SPACE_GRANT_TABLE, index, page.number() * 4096)
}

/// Called with how the machine ends.
type Farewell = fn(&Status);

static FAREWELL: SpinLock<Option<Farewell>> = SpinLock::new(None);

/// Has somebody told of the machine's end before it.
pub fn on_end(tell: Farewell) {
    *FAREWELL.lock() = Some(tell);
}

/// The machine ends.
pub fn tell_end(status: &Status) {
    let farewell = FAREWELL.lock().take();
    if let Some(tell) = farewell {
        tell(status);
    }
}
