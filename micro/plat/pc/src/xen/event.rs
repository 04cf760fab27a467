// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Event channels (`public/event_channel.h`), by the ABI of two levels: a bit for each channel, and a bit for each word of bits.
//! All are bound to the boot processor, which gets them as one interrupt.

use super::hypercall::{DOMID_SELF, EVENT_CHANNEL_OP, HVM_OP, SCHED_OP, call2};
use super::shared::{info, system_now};
use crate::interrupt::{self, Handler};
use abi::{Result, errno::EINVAL, errno::EIO, errno::ENOSPC};
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicUsize, Ordering};

/// Channels of this ABI.
pub const CHANNELS: usize = 4096;
/// Channels that are listened to: the console, xenstore and some devices.
const MAX_HANDLERS: usize = 24;

struct Slot {
    /// 0: free.
    channel: AtomicU32,
    handler: AtomicPtr<()>,
    data: AtomicUsize,
}

static SLOTS: [Slot; MAX_HANDLERS] = [const {
    Slot {
        channel: AtomicU32::new(0),
        handler: AtomicPtr::new(core::ptr::null_mut()),
        data: AtomicUsize::new(0),
    }
}; MAX_HANDLERS];
static USED: AtomicUsize = AtomicUsize::new(0);
static HAS_VECTOR: AtomicBool = AtomicBool::new(false);

/// No channel interrupts until somebody listens.
pub fn mask_all() {
    info().masked.iter().for_each(|word| word.store(u64::MAX, Ordering::Relaxed));
}

const SEND: u64 = 4;
const ALLOC_UNBOUND: u64 = 6;
const UNMASK: u64 = 9;
/// `HVMOP_set_evtchn_upcall_vector`.
const SET_UPCALL_VECTOR: u64 = 23;
const SCHEDOP_YIELD: u64 = 0;
const SCHEDOP_POLL: u64 = 3;

/// Tells who is at the channel's other end.
pub fn notify(channel: u32) {
    // SAFETY: Xen reads a word.
    unsafe { call2(EVENT_CHANNEL_OP, SEND, &raw const channel as u64) };
}

/// Leaves the physical processor to others for a moment.
pub fn give_way() {
    // SAFETY: nothing of the machine changes.
    unsafe { call2(SCHED_OP, SCHEDOP_YIELD, 0) };
}

/// A new channel whose other end the domain may take.
pub fn allocate(domain: u16) -> Result<u32> {
    #[repr(C)]
    struct Unbound {
        domain: u16,
        remote: u16,
        channel: u32,
    }
    let mut unbound = Unbound { domain: DOMID_SELF, remote: domain, channel: 0 };
    // SAFETY: Xen writes the channel's number.
    let answer = unsafe { call2(EVENT_CHANNEL_OP, ALLOC_UNBOUND, &raw mut unbound as u64) };
    (answer == 0 && (unbound.channel as usize) < CHANNELS).then_some(unbound.channel).ok_or(EIO)
}

/// Waits until something came over the channel, which nobody may listen to, or another event came, or the time is over. All of the
/// processor waits.
pub fn wait(channel: u32, most_ns: u64) {
    #[repr(C)]
    struct Poll {
        channels: u64,
        count: u32,
        pad: u32,
        timeout: u64,
    }
    let poll = Poll {
        channels: &raw const channel as u64,
        count: 1,
        pad: 0,
        timeout: system_now().saturating_add(most_ns),
    };
    // SAFETY: Xen reads the structure and the word that it points to.
    unsafe { call2(SCHED_OP, SCHEDOP_POLL, &raw const poll as u64) };
    forget(channel);
}

/// What came over the channel is seen to.
pub fn forget(channel: u32) {
    info().pending[channel as usize / 64].fetch_and(!(1 << (channel % 64)), Ordering::AcqRel);
}

/// Has `handler(data)` called in interrupt context when something comes over the channel.
pub fn listen(channel: u32, handler: Handler, data: usize) -> Result<()> {
    if channel == 0 || channel as usize >= CHANNELS {
        return Err(EINVAL);
    }
    if !HAS_VECTOR.swap(true, Ordering::Relaxed) {
        let vector = interrupt::allocate_vector(interrupted, 0)?;
        // The boot processor's.
        let upcall = [0u32, u32::from(vector)];
        // SAFETY: Xen reads the processor's number and the vector, which has a stub.
        if unsafe { call2(HVM_OP, SET_UPCALL_VECTOR, &raw const upcall as u64) } != 0 {
            return Err(EIO);
        }
    }
    let index = USED.fetch_add(1, Ordering::Relaxed);
    let Some(slot) = SLOTS.get(index) else {
        USED.store(MAX_HANDLERS, Ordering::Relaxed);
        return Err(ENOSPC);
    };
    slot.data.store(data, Ordering::Relaxed);
    slot.handler.store(handler as *mut (), Ordering::Release);
    slot.channel.store(channel, Ordering::Release);
    unmask(channel);
    Ok(())
}

/// Nobody listens for a while: [`wait`] may be used.
pub fn mask(channel: u32) {
    info().masked[channel as usize / 64].fetch_or(1 << (channel % 64), Ordering::SeqCst);
}

/// What came while the channel was masked interrupts now.
pub fn unmask(channel: u32) {
    // SAFETY: Xen reads a word.
    unsafe { call2(EVENT_CHANNEL_OP, UNMASK, &raw const channel as u64) };
}

/// Interrupt context.
fn interrupted(_: usize) {
    let processor = &info().processors[0];
    processor.upcall.store(0, Ordering::SeqCst);
    let selected = processor.selected.swap(0, Ordering::AcqRel);
    for slot in SLOTS.iter().take(USED.load(Ordering::Relaxed)) {
        let channel = slot.channel.load(Ordering::Acquire);
        let (word, bit) = (channel as usize / 64 % (CHANNELS / 64), 1 << (channel % 64));
        let is_masked = info().masked[word].load(Ordering::Relaxed) & bit != 0;
        if channel == 0 || selected & 1 << word == 0 || is_masked {
            continue;
        }
        if info().pending[word].fetch_and(!bit, Ordering::AcqRel) & bit == 0 {
            continue;
        }
        let handler = slot.handler.load(Ordering::Acquire);
        if !handler.is_null() {
            // SAFETY: only `listen` stores there, and it stores a `Handler`.
            let handler: Handler = unsafe { core::mem::transmute(handler) };
            handler(slot.data.load(Ordering::Relaxed));
        }
    }
}
