// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The split virtqueue (virtio 1.2, 2.7).

use abi::{PAGE_SIZE, Result, errno::ENOMEM};
use alloc::alloc::{Layout, alloc_zeroed, dealloc};
use alloc::vec::Vec;
use api_mem::Gather;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicU16, AtomicU32, Ordering, fence};
use plat_pc::physical;

const NEXT: u16 = 1;
const WRITE: u16 = 2;
/// In the flags of the available ring: no interrupts, please.
const NO_INTERRUPT: u16 = 1;
/// In the flags of the used ring: no notifications, please.
const NO_NOTIFY: u16 = 1;
/// Ends the list of free descriptors.
const NONE: u16 = u16::MAX;

#[repr(C)]
#[derive(Clone, Copy)]
struct Descriptor {
    address: u64,
    length: u32,
    flags: u16,
    next: u16,
}

/// A piece of memory for the device.
#[derive(Clone, Copy, Debug)]
pub struct Area {
    pub physical: u64,
    pub length: u32,
}

impl Area {
    /// Bytes of the kernel heap that the device reads.
    pub fn of(bytes: &[u8]) -> Area {
        Area { physical: physical(bytes.as_ptr()), length: bytes.len() as u32 }
    }

    /// Bytes of the kernel heap that the device writes.
    pub fn of_mut(bytes: &mut [u8]) -> Area {
        Area { physical: physical(bytes.as_mut_ptr()), length: bytes.len() as u32 }
    }

    /// Adds pages to a list of areas: pages that lie one behind the other are one area.
    pub fn of_pages(pages: &Gather, areas: &mut Vec<Area>) {
        let first = areas.len();
        let (mut offset, mut left) = (pages.offset, pages.length);
        for frame in &pages.frames {
            let length = (PAGE_SIZE - offset).min(left) as u32;
            let physical = frame.physical() + offset as u64;
            match areas[first..].last_mut() {
                Some(last) if last.physical + u64::from(last.length) == physical => last.length += length,
                _ => areas.push(Area { physical, length }),
            }
            (offset, left) = (0, left - length as usize);
        }
    }
}

/// A chain the device is done with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Used {
    /// What [`Queue::add`] was given.
    pub token: usize,
    /// Bytes the device says it wrote; no more than the chain has room for.
    pub written: u32,
}

/// The queue has no room for the chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full;

/// What the driver remembers of a chain by its first descriptor. The device cannot change it.
#[derive(Clone, Copy, Default)]
struct Chain {
    token: usize,
    /// Descriptors; 0 when the descriptor does not begin a chain the device has.
    length: u16,
    /// Bytes the device may write.
    room: u32,
}

/// One queue. Not shared: the driver puts it behind its lock.
pub struct Queue {
    index: u16,
    size: u16,
    memory: NonNull<u8>,
    layout: Layout,
    available: usize,
    used: usize,
    event_index: bool,
    /// Where a notification is written, and what.
    doorbell: *mut u8,
    doorbell_wide: bool,
    /// Links of free descriptors: a copy the device cannot change.
    next: Vec<u16>,
    chains: Vec<Chain>,
    free: u16,
    free_count: u16,
    /// Index of the available ring as the device may see it.
    published: u16,
    /// And as it was at the last look whether to notify.
    notified: u16,
    seen: u16,
    broken: bool,
}

// SAFETY: the pointers are to memory that belongs to the queue alone (and the device) and to a register that may be
// written from anywhere.
unsafe impl Send for Queue {}

impl Queue {
    /// Bytes before the used ring: descriptors and available ring, up to a page boundary as the legacy layout wants
    /// (2.7.2).
    fn used_offset(size: usize) -> usize {
        (16 * size + 6 + 2 * size).next_multiple_of(4096)
    }

    /// Memory for a queue of `size` descriptors (a power of two). The doorbell takes the index as 16 or 32 bits.
    pub(crate) fn new(
        index: u16,
        size: u16,
        event_index: bool,
        doorbell: *mut u8,
        doorbell_wide: bool,
    ) -> Result<Queue> {
        let n = size as usize;
        let used = Queue::used_offset(n);
        let bytes = used + 6 + 8 * n;
        let layout = Layout::from_size_align(bytes.next_multiple_of(4096), 4096).map_err(|_| ENOMEM)?;
        // SAFETY: the layout is not empty.
        let memory = NonNull::new(unsafe { alloc_zeroed(layout) }).ok_or(ENOMEM)?;
        let mut next: Vec<u16> = (1..=size).collect();
        next[n - 1] = NONE;
        Ok(Queue {
            index,
            size,
            memory,
            layout,
            available: 16 * n,
            used,
            event_index,
            doorbell,
            doorbell_wide,
            next,
            chains: alloc::vec![Chain::default(); n],
            free: 0,
            free_count: size,
            published: 0,
            notified: 0,
            seen: 0,
            broken: false,
        })
    }

    /// Descriptors of the queue.
    pub fn size(&self) -> u16 {
        self.size
    }

    /// Descriptors that are free: a chain of this many fits.
    pub fn room(&self) -> usize {
        self.free_count as usize
    }

    /// Chains the device has.
    pub fn in_flight(&self) -> usize {
        self.chains.iter().filter(|c| c.length != 0).count()
    }

    pub(crate) fn descriptors_physical(&self) -> u64 {
        physical(self.memory.as_ptr())
    }

    pub(crate) fn available_physical(&self) -> u64 {
        self.descriptors_physical() + self.available as u64
    }

    pub(crate) fn used_physical(&self) -> u64 {
        self.descriptors_physical() + self.used as u64
    }

    fn descriptor(&self, index: u16) -> *mut Descriptor {
        debug_assert!(index < self.size);
        // SAFETY: the table begins the memory and has `size` entries.
        unsafe { self.memory.as_ptr().cast::<Descriptor>().add(index as usize) }
    }

    fn half(&self, offset: usize) -> &AtomicU16 {
        // SAFETY: callers pass even offsets inside the memory, which the device may write at any time: atomics.
        unsafe { &*self.memory.as_ptr().add(offset).cast::<AtomicU16>() }
    }

    fn word(&self, offset: usize) -> &AtomicU32 {
        // SAFETY: as in `half`, with multiples of four.
        unsafe { &*self.memory.as_ptr().add(offset).cast::<AtomicU32>() }
    }

    /// Gives the device a chain: areas it reads, then areas it writes. It sees it at once; [`Queue::notify`] tells it.
    ///
    /// # Safety
    ///
    /// The areas stay allocated until [`Queue::pop`] answers with the token, and nobody else touches those to be
    /// written.
    pub unsafe fn add(
        &mut self,
        read: &[Area],
        write: &[Area],
        token: usize,
    ) -> core::result::Result<(), Full> {
        let length = read.len() + write.len();
        if length == 0 || length > self.free_count as usize || self.broken {
            return Err(Full);
        }
        let head = self.free;
        let mut at = head;
        let all = read.iter().map(|a| (a, 0)).chain(write.iter().map(|a| (a, WRITE)));
        for (i, (area, flags)) in all.enumerate() {
            let next = self.next[at as usize];
            let more = i + 1 < length;
            let descriptor = Descriptor {
                address: area.physical,
                length: area.length,
                flags: flags | if more { NEXT } else { 0 },
                next: if more { next } else { 0 },
            };
            // SAFETY: the descriptor is free: the device does not read it before the ring names it.
            unsafe { self.descriptor(at).write_volatile(descriptor) };
            if more {
                at = next;
            } else {
                self.free = next;
            }
        }
        self.free_count -= length as u16;
        let room = write.iter().fold(0u32, |sum, a| sum.saturating_add(a.length));
        self.publish(head, Chain { token, length: length as u16, room });
        Ok(())
    }

    /// As [`Queue::add`] with one area, which the device reads or (`is_written`) writes: most packets are that.
    ///
    /// # Safety
    ///
    /// As [`Queue::add`].
    #[inline]
    pub unsafe fn add_one(
        &mut self,
        area: Area,
        is_written: bool,
        token: usize,
    ) -> core::result::Result<(), Full> {
        if self.free_count == 0 || self.broken {
            return Err(Full);
        }
        let head = self.free;
        let flags = if is_written { WRITE } else { 0 };
        let descriptor = Descriptor { address: area.physical, length: area.length, flags, next: 0 };
        // SAFETY: the descriptor is free: the device does not read it before the ring names it.
        unsafe { self.descriptor(head).write_volatile(descriptor) };
        self.free = self.next[head as usize];
        self.free_count -= 1;
        let room = if is_written { area.length } else { 0 };
        self.publish(head, Chain { token, length: 1, room });
        Ok(())
    }

    /// Shows the device a chain that was written.
    #[inline]
    fn publish(&mut self, head: u16, chain: Chain) {
        self.chains[head as usize] = chain;
        let slot = (self.published & (self.size - 1)) as usize;
        self.half(self.available + 4 + 2 * slot).store(head, Ordering::Relaxed);
        self.published = self.published.wrapping_add(1);
        // The device sees descriptors and slot before the index (2.7.13.3.1).
        self.half(self.available + 2).store(self.published, Ordering::Release);
    }

    /// Tells the device about new chains, if there are any and it wants to know. Answers whether it did.
    pub fn notify(&mut self) -> bool {
        let (old, new) = (self.notified, self.published);
        if old == new {
            return false;
        }
        self.notified = new;
        // The index must be visible before the device's wish is read, or both sides wait (2.7.13.4.1).
        fence(Ordering::SeqCst);
        let wanted = if self.event_index {
            let event = self.half(self.used + 4 + 8 * self.size as usize).load(Ordering::Relaxed);
            passed(event, new, old)
        } else {
            self.half(self.used).load(Ordering::Relaxed) & NO_NOTIFY == 0
        };
        if wanted {
            // SAFETY: the transport named a register that takes the queue's index.
            unsafe {
                if self.doorbell_wide {
                    self.doorbell.cast::<u32>().write_volatile(self.index.into());
                } else {
                    self.doorbell.cast::<u16>().write_volatile(self.index);
                }
            }
        }
        wanted
    }

    /// True when [`Queue::pop`] would find something.
    pub fn has_used(&self) -> bool {
        !self.broken && self.half(self.used + 2).load(Ordering::Acquire) != self.seen
    }

    /// Takes back one chain. A device that names a chain it does not have is broken: the queue then stays empty.
    pub fn pop(&mut self) -> Option<Used> {
        if !self.has_used() {
            return None;
        }
        let slot = self.used + 4 + 8 * (self.seen & (self.size - 1)) as usize;
        let head = self.word(slot).load(Ordering::Relaxed);
        let written = self.word(slot + 4).load(Ordering::Relaxed);
        let chain = self.chains.get_mut(head as usize).map(core::mem::take).unwrap_or_default();
        if chain.length == 0 {
            self.broken = true;
            log::error!("virtio: queue {} answers for chain {head}, which it does not have", self.index);
            return None;
        }
        self.seen = self.seen.wrapping_add(1);
        // The chain goes back to the free list; its links were never changed.
        let head = head as u16;
        let mut last = head;
        for _ in 1..chain.length {
            last = self.next[last as usize];
        }
        self.next[last as usize] = self.free;
        self.free = head;
        self.free_count += chain.length;
        Some(Used { token: chain.token, written: written.min(chain.room) })
    }

    /// Asks for an interrupt at the next used chain. False when there is one already: no interrupt may come for it.
    pub fn enable_interrupts(&mut self) -> bool {
        if self.event_index {
            self.half(self.available + 4 + 2 * self.size as usize).store(self.seen, Ordering::Relaxed);
        } else {
            self.half(self.available).store(0, Ordering::Relaxed);
        }
        // The wish must be visible before the ring is looked at again (2.7.10.1).
        fence(Ordering::SeqCst);
        !self.has_used()
    }

    /// Asks for no interrupts; some may still come.
    pub fn disable_interrupts(&mut self) {
        if self.event_index {
            // An index just passed comes again after 65,536 chains only.
            let passed = self.seen.wrapping_sub(1);
            self.half(self.available + 4 + 2 * self.size as usize).store(passed, Ordering::Relaxed);
        } else {
            self.half(self.available).store(NO_INTERRUPT, Ordering::Relaxed);
        }
    }

    /// True when the device broke the protocol; the queue is of no use any more.
    pub fn is_broken(&self) -> bool {
        self.broken
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        // A device that still knows the queue could write to it: drivers keep queues for ever or reset first.
        // SAFETY: it was allocated with this layout.
        unsafe { dealloc(self.memory.as_ptr(), self.layout) }
    }
}

/// True when moving an index from `old` to `new` went past `event` (`vring_need_event`, 2.7.7.1); modulo 2^16.
fn passed(event: u16, new: u16, old: u16) -> bool {
    new.wrapping_sub(event).wrapping_sub(1) < new.wrapping_sub(old)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::boxed::Box;

    fn queue(size: u16, event_index: bool) -> (Queue, &'static mut u32) {
        let bell = Box::leak(Box::new(u32::MAX));
        let pointer = (&raw mut *bell).cast();
        (Queue::new(7, size, event_index, pointer, true).unwrap(), bell)
    }

    fn area(length: u32) -> Area {
        Area { physical: 0x1000, length }
    }

    /// The device's side: answers the next chain.
    fn answer(q: &Queue, device: &mut u16, written: u32) -> u16 {
        let slot = (*device & (q.size - 1)) as usize;
        let head = q.half(q.available + 4 + 2 * slot).load(Ordering::Relaxed);
        q.word(q.used + 4 + 8 * slot).store(head.into(), Ordering::Relaxed);
        q.word(q.used + 8 + 8 * slot).store(written, Ordering::Relaxed);
        *device = device.wrapping_add(1);
        q.half(q.used + 2).store(*device, Ordering::Release);
        head
    }

    #[test]
    fn chains_come_back_with_their_tokens_past_the_wrap_of_the_indices() {
        let (mut q, _) = queue(8, true);
        let mut device = 0;
        for i in 0..70_000usize {
            // SAFETY: the test's device touches no memory.
            unsafe { q.add(&[area(10)], &[area(5), area(6)], i) }.unwrap();
            let head = answer(&q, &mut device, 1000);
            // SAFETY: the queue is in the test's hands.
            let first = unsafe { q.descriptor(head).read() };
            assert_eq!((first.length, first.flags), (10, NEXT));
            assert_eq!(q.pop(), Some(Used { token: i, written: 11 }));
            assert_eq!(q.room(), 8);
        }
        assert_eq!(q.pop(), None);
    }

    #[test]
    fn chains_of_one_area_are_as_any_other() {
        let (mut q, _) = queue(4, false);
        let mut device = 0;
        for round in 0..10usize {
            for token in 0..4 {
                // SAFETY: the test's device touches no memory.
                unsafe { q.add_one(area(7), token % 2 == 1, 10 * round + token) }.unwrap();
            }
            // SAFETY: as above.
            assert_eq!(unsafe { q.add_one(area(7), false, 99) }, Err(Full));
            for token in 0..4 {
                let head = answer(&q, &mut device, 1000);
                // SAFETY: the queue is in the test's hands.
                let descriptor = unsafe { q.descriptor(head).read() };
                let is_written = token % 2 == 1;
                assert_eq!((descriptor.length, descriptor.flags), (7, if is_written { WRITE } else { 0 }));
                let written = if is_written { 7 } else { 0 };
                assert_eq!(q.pop(), Some(Used { token: 10 * round + token, written }));
            }
        }
        assert_eq!((q.room(), q.in_flight()), (4, 0));
    }

    #[test]
    fn a_full_queue_takes_no_more() {
        let (mut q, _) = queue(4, false);
        // SAFETY: as above.
        unsafe {
            assert_eq!(q.add(&[area(1); 3], &[], 1), Ok(()));
            assert_eq!(q.add(&[area(1); 2], &[], 2), Err(Full));
            assert_eq!(q.add(&[], &[], 2), Err(Full));
            assert_eq!(q.add(&[], &[area(1)], 2), Ok(()));
        }
        assert_eq!((q.room(), q.in_flight()), (0, 2));
    }

    #[test]
    fn the_bell_rings_once_for_a_burst_and_only_when_wanted() {
        let (mut q, bell) = queue(8, true);
        // SAFETY: as above.
        unsafe { q.add(&[area(1)], &[], 0) }.unwrap();
        assert!(q.notify() && *bell == 7);
        assert!(!q.notify());
        // The device wants to hear at the third chain.
        q.half(q.used + 4 + 8 * 8).store(2, Ordering::Relaxed);
        // SAFETY: as above.
        unsafe { q.add(&[area(1)], &[], 0) }.unwrap();
        assert!(!q.notify());
        // SAFETY: as above.
        unsafe { q.add(&[area(1)], &[], 0) }.unwrap();
        assert!(q.notify());
    }

    #[test]
    fn a_wanted_index_is_passed_modulo_the_size_of_the_index() {
        assert!(passed(0, 1, 0) && !passed(1, 1, 0));
        assert!(passed(65_535, 0, 65_535) && passed(65_535, 3, 65_530) && !passed(3, 3, 65_530));
    }

    #[test]
    fn a_device_that_invents_chains_is_given_up() {
        for invented in [3, 8, u32::MAX] {
            let (mut q, _) = queue(8, false);
            // SAFETY: as above.
            unsafe { q.add(&[area(1)], &[], 0) }.unwrap();
            q.word(q.used + 4).store(invented, Ordering::Relaxed);
            q.half(q.used + 2).store(1, Ordering::Release);
            assert_eq!(q.pop(), None);
            assert!(q.is_broken() && !q.has_used());
        }
    }

    #[test]
    fn interrupts_are_not_armed_when_something_waits() {
        let (mut q, _) = queue(8, true);
        let mut device = 0;
        // SAFETY: as above.
        unsafe { q.add(&[area(1)], &[], 0) }.unwrap();
        assert!(q.enable_interrupts());
        answer(&q, &mut device, 0);
        assert!(!q.enable_interrupts());
    }
}
