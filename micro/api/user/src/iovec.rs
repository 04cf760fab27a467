// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Where a read puts its bytes and a write takes them from: the program's memory in pieces, or kernel memory.

use crate::copy::{read_raw, write_raw};
use crate::{UserPtr, range_is_user, zero_bytes};
use abi::{Errno, PAGE_SIZE, Result, errno::*};
use alloc::vec::Vec;
use api_alloc::Reserve;

/// Most segments of one call (Linux `UIO_MAXIOV`).
pub const IOV_MAX: usize = 1024;
/// Most bytes one read or write moves (Linux `MAX_RW_COUNT`).
pub const IO_MAX: usize = 0x7fff_f000;

/// One piece of the program's memory.
#[derive(Clone, Copy, Debug)]
pub struct Segment {
    pub address: u64,
    pub length: usize,
}

/// Segments read from the program: few in place, many on the heap.
pub struct Segments {
    few: [Segment; FEW],
    many: Vec<Segment>,
    count: usize,
}

/// Segments that need no allocation: what servers and stdio use.
const FEW: usize = 16;

impl core::ops::Deref for Segments {
    type Target = [Segment];
    fn deref(&self) -> &[Segment] {
        if self.many.is_empty() { &self.few[..self.count] } else { &self.many }
    }
}

/// Reads the `struct iovec` array of readv and friends. `EINVAL` for more than [`IOV_MAX`] segments or lengths that
/// overflow, `EFAULT` for an array outside the program's memory; the total is cut at [`IO_MAX`] as Linux does.
pub fn read_iovec(address: u64, count: usize) -> Result<Segments> {
    if count > IOV_MAX {
        return Err(EINVAL);
    }
    let mut out = Segments { few: [Segment { address: 0, length: 0 }; FEW], many: Vec::new(), count };
    if count > FEW {
        out.many.reserve_exact_fallibly(count).map_err(|_| ENOMEM)?;
    }
    let array = UserPtr::<[u64; 2]>::new(address);
    let (mut room, mut is_users) = (IO_MAX, true);
    for i in 0..count {
        let [address, length] = array.add(i as u64).read()?;
        if length > isize::MAX as u64 {
            return Err(EINVAL);
        }
        // What is wrong with a length comes before what is wrong with any address.
        is_users &= range_is_user(address, length);
        let length = (length as usize).min(room);
        room -= length;
        if count > FEW {
            out.many.push(Segment { address, length });
        } else {
            out.few[i] = Segment { address, length };
        }
    }
    if is_users { Ok(out) } else { Err(EFAULT) }
}

/// A walk over segments: the rest of the current one and those after it.
#[derive(Clone)]
struct Cursor<'a> {
    head: Segment,
    rest: &'a [Segment],
    /// Bytes that may still move, whatever the segments hold.
    room: usize,
}

impl<'a> Cursor<'a> {
    #[inline]
    fn remaining(&self) -> usize {
        // One piece is what most calls have.
        let rest = if self.rest.is_empty() { 0 } else { self.rest.iter().map(|s| s.length).sum() };
        self.room.min(self.head.length + rest)
    }

    /// Makes `head` non-empty where anything is left, and returns its length.
    fn settle(&mut self) -> usize {
        while self.head.length == 0 {
            let Some((first, rest)) = self.rest.split_first() else { return 0 };
            self.head = *first;
            self.rest = rest;
        }
        self.head.length.min(self.room)
    }

    fn advance(&mut self, n: usize) {
        self.head.address += n as u64;
        self.head.length -= n;
        self.room -= n;
    }

    fn piece(&mut self) -> Option<Segment> {
        let length = self.settle();
        (length > 0).then_some(Segment { address: self.head.address, length })
    }

    /// The end of a copy of which `done` bytes are moved and the next `n` met `error`. The routine that copies does not say
    /// how far it came: `copy` is asked once more, page by page, for `(address, place in the n bytes, length)`.
    #[cold]
    fn faulted(
        &mut self,
        fault: Fault,
        n: usize,
        mut done: usize,
        error: Errno,
        copy: impl Fn(u64, usize, usize) -> Result<()>,
    ) -> Result<usize> {
        let mut more = 0;
        while fault == Fault::EndsThePiece && more < n {
            let at = self.head.address;
            let in_page = (PAGE_SIZE - at as usize % PAGE_SIZE).min(n - more);
            if copy(at, more, in_page).is_err() {
                break;
            }
            self.advance(in_page);
            more += in_page;
        }
        done += more;
        if done == 0 { Err(error) } else { Ok(done) }
    }

    /// As far as there is anything.
    fn skip(&mut self, mut n: usize) {
        while n > 0 {
            let now = self.settle().min(n);
            if now == 0 {
                return;
            }
            self.advance(now);
            n -= now;
        }
    }
}

/// What memory that is not there means to a copy of a piece whose first pages are.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fault {
    /// Nothing of the piece is moved.
    LeavesThePiece,
    /// What lies before it is moved.
    EndsThePiece,
}

enum To<'a> {
    User(Cursor<'a>),
    Kernel(&'a mut [u8]),
}

/// Where a read puts its bytes.
pub struct Sink<'a>(To<'a>);

impl<'a> Sink<'a> {
    /// `EFAULT` unless the whole range is the program's; the length is cut at [`IO_MAX`].
    pub fn user(address: u64, length: usize) -> Result<Sink<'static>> {
        if !range_is_user(address, length as u64) {
            return Err(EFAULT);
        }
        let head = Segment { address, length: length.min(IO_MAX) };
        Ok(Sink(To::User(Cursor { head, rest: &[], room: IO_MAX })))
    }

    pub fn vectored(segments: &'a [Segment]) -> Sink<'a> {
        Sink(To::User(Cursor { head: Segment { address: 0, length: 0 }, rest: segments, room: IO_MAX }))
    }

    pub fn kernel(buffer: &'a mut [u8]) -> Sink<'a> {
        Sink(To::Kernel(buffer))
    }

    /// Bytes that still fit.
    #[inline]
    pub fn remaining(&self) -> usize {
        match &self.0 {
            To::User(cursor) => cursor.remaining(),
            To::Kernel(buffer) => buffer.len(),
        }
    }

    /// Takes at most `length` bytes: what is behind them is not written.
    pub fn limit(&mut self, length: usize) {
        match &mut self.0 {
            To::User(cursor) => cursor.room = cursor.room.min(length),
            To::Kernel(buffer) => {
                let length = length.min(buffer.len());
                *buffer = &mut core::mem::take(buffer)[..length];
            }
        }
    }

    /// Where in the program's memory the next bytes go, as far as that is one piece; `None` where they do not go there.
    pub fn piece(&mut self) -> Option<Segment> {
        match &mut self.0 {
            To::User(cursor) => cursor.piece(),
            To::Kernel(_) => None,
        }
    }

    /// The next `n` bytes, as far as there are so many, were stored by somebody else.
    pub fn skip(&mut self, n: usize) {
        match &mut self.0 {
            To::User(cursor) => cursor.skip(n),
            To::Kernel(buffer) => {
                let n = n.min(buffer.len());
                *buffer = &mut core::mem::take(buffer)[n..];
            }
        }
    }

    /// Appends as much of `bytes` as fits and returns how much that was. A piece of the program's memory that is not
    /// there as a whole takes nothing, as Linux reads from pipes and sockets: `EFAULT` for the first, a short count for
    /// a later one.
    pub fn put(&mut self, bytes: &[u8]) -> Result<usize> {
        // SAFETY: a slice is readable memory of the kernel.
        unsafe { self.put_raw(bytes.as_ptr(), bytes.len()) }
    }

    /// [`Sink::put`] from memory that may change meanwhile, a page the program has mapped too.
    ///
    /// # Safety
    ///
    /// `length` bytes at `bytes` are memory of the kernel that stays valid during the call.
    pub unsafe fn put_raw(&mut self, bytes: *const u8, length: usize) -> Result<usize> {
        // SAFETY: by the caller's word.
        unsafe { self.store(bytes, length, Fault::LeavesThePiece) }
    }

    /// [`Sink::put`] up to the first byte that cannot be stored, as Linux reads from files: `EFAULT` only when that is
    /// the first of all.
    pub fn put_up_to_fault(&mut self, bytes: &[u8]) -> Result<usize> {
        // SAFETY: a slice is readable memory of the kernel.
        unsafe { self.put_raw_up_to_fault(bytes.as_ptr(), bytes.len()) }
    }

    /// [`Sink::put_up_to_fault`] from memory that may change meanwhile.
    ///
    /// # Safety
    ///
    /// As [`Sink::put_raw`].
    pub unsafe fn put_raw_up_to_fault(&mut self, bytes: *const u8, length: usize) -> Result<usize> {
        // SAFETY: by the caller's word.
        unsafe { self.store(bytes, length, Fault::EndsThePiece) }
    }

    /// # Safety
    ///
    /// As [`Sink::put_raw`].
    unsafe fn store(&mut self, bytes: *const u8, length: usize, fault: Fault) -> Result<usize> {
        let mut done = 0;
        match &mut self.0 {
            To::Kernel(buffer) => {
                done = length.min(buffer.len());
                let (now, later) = core::mem::take(buffer).split_at_mut(done);
                // SAFETY: the source is valid by the caller's word; `now` is ours and holds `done` bytes.
                unsafe { core::ptr::copy_nonoverlapping(bytes, now.as_mut_ptr(), done) };
                *buffer = later;
            }
            To::User(cursor) => {
                while done < length {
                    let n = cursor.settle().min(length - done);
                    if n == 0 {
                        break;
                    }
                    // SAFETY: `done + n` is at most `length`.
                    let copy = |at, from, n| unsafe { write_raw(at, bytes.add(done + from), n) };
                    if let Err(e) = copy(cursor.head.address, 0, n) {
                        return cursor.faulted(fault, n, done, e, copy);
                    }
                    cursor.advance(n);
                    done += n;
                }
            }
        }
        Ok(done)
    }

    /// Appends up to `length` zero bytes, as [`Sink::put_up_to_fault`].
    pub fn put_zeros(&mut self, length: usize) -> Result<usize> {
        let mut done = 0;
        match &mut self.0 {
            To::Kernel(buffer) => {
                done = length.min(buffer.len());
                let (now, later) = core::mem::take(buffer).split_at_mut(done);
                now.fill(0);
                *buffer = later;
            }
            To::User(cursor) => {
                while done < length {
                    let n = cursor.settle().min(length - done);
                    if n == 0 {
                        break;
                    }
                    let fill = |at, _, n| zero_bytes(at, n);
                    if let Err(e) = fill(cursor.head.address, 0, n) {
                        return cursor.faulted(Fault::EndsThePiece, n, done, e, fill);
                    }
                    cursor.advance(n);
                    done += n;
                }
            }
        }
        Ok(done)
    }
}

#[derive(Clone)]
enum From<'a> {
    User(Cursor<'a>),
    Kernel(&'a [u8]),
}

/// Where a write takes its bytes from. A copy begins where this one is: for what is taken and then not written.
#[derive(Clone)]
pub struct Source<'a>(From<'a>);

impl<'a> Source<'a> {
    /// `EFAULT` unless the whole range is the program's; the length is cut at [`IO_MAX`].
    pub fn user(address: u64, length: usize) -> Result<Source<'static>> {
        if !range_is_user(address, length as u64) {
            return Err(EFAULT);
        }
        let head = Segment { address, length: length.min(IO_MAX) };
        Ok(Source(From::User(Cursor { head, rest: &[], room: IO_MAX })))
    }

    pub fn vectored(segments: &'a [Segment]) -> Source<'a> {
        Source(From::User(Cursor { head: Segment { address: 0, length: 0 }, rest: segments, room: IO_MAX }))
    }

    pub fn kernel(bytes: &'a [u8]) -> Source<'a> {
        Source(From::Kernel(bytes))
    }

    /// Bytes that are left.
    #[inline]
    pub fn remaining(&self) -> usize {
        match &self.0 {
            From::User(cursor) => cursor.remaining(),
            From::Kernel(bytes) => bytes.len(),
        }
    }

    /// Leaves at most `length` bytes: the rest is not written.
    pub fn limit(&mut self, length: usize) {
        match &mut self.0 {
            From::User(cursor) => cursor.room = cursor.room.min(length),
            From::Kernel(bytes) => *bytes = &bytes[..bytes.len().min(length)],
        }
    }

    /// Where in the program's memory the next bytes are, as far as that is one piece; `None` where they are not there.
    pub fn piece(&mut self) -> Option<Segment> {
        match &mut self.0 {
            From::User(cursor) => cursor.piece(),
            From::Kernel(_) => None,
        }
    }

    /// The next `n` bytes, as far as there are so many, were taken by somebody else.
    pub fn skip(&mut self, n: usize) {
        match &mut self.0 {
            From::User(cursor) => cursor.skip(n),
            From::Kernel(bytes) => *bytes = &bytes[n.min(bytes.len())..],
        }
    }

    /// Fills as much of `buffer` as there is and returns how much that was. A piece of the program's memory that is not
    /// there as a whole gives nothing, as Linux writes to pipes and sockets: `EFAULT` for the first, a short count for
    /// a later one.
    pub fn take(&mut self, buffer: &mut [u8]) -> Result<usize> {
        // SAFETY: a mutable slice is writable memory of the kernel.
        unsafe { self.take_raw(buffer.as_mut_ptr(), buffer.len()) }
    }

    /// [`Source::take`] into memory that others may use meanwhile, a page the program has mapped too.
    ///
    /// # Safety
    ///
    /// `length` bytes at `buffer` are memory of the kernel that stays valid during the call.
    pub unsafe fn take_raw(&mut self, buffer: *mut u8, length: usize) -> Result<usize> {
        // SAFETY: by the caller's word.
        unsafe { self.fetch(buffer, length, Fault::LeavesThePiece) }
    }

    /// [`Source::take`] up to the first byte that cannot be read, as Linux writes to files: `EFAULT` only when that is
    /// the first of all.
    pub fn take_up_to_fault(&mut self, buffer: &mut [u8]) -> Result<usize> {
        // SAFETY: a mutable slice is writable memory of the kernel.
        unsafe { self.take_raw_up_to_fault(buffer.as_mut_ptr(), buffer.len()) }
    }

    /// [`Source::take_up_to_fault`] into memory that others may use meanwhile.
    ///
    /// # Safety
    ///
    /// As [`Source::take_raw`].
    pub unsafe fn take_raw_up_to_fault(&mut self, buffer: *mut u8, length: usize) -> Result<usize> {
        // SAFETY: by the caller's word.
        unsafe { self.fetch(buffer, length, Fault::EndsThePiece) }
    }

    /// # Safety
    ///
    /// As [`Source::take_raw`].
    unsafe fn fetch(&mut self, buffer: *mut u8, length: usize, fault: Fault) -> Result<usize> {
        let mut done = 0;
        match &mut self.0 {
            From::Kernel(bytes) => {
                done = length.min(bytes.len());
                let (now, later) = bytes.split_at(done);
                // SAFETY: the target is valid by the caller's word; `now` holds `done` bytes.
                unsafe { core::ptr::copy_nonoverlapping(now.as_ptr(), buffer, done) };
                *bytes = later;
            }
            From::User(cursor) => {
                while done < length {
                    let n = cursor.settle().min(length - done);
                    if n == 0 {
                        break;
                    }
                    // SAFETY: `done + n` is at most `length`.
                    let copy = |at, from, n| unsafe { read_raw(at, buffer.add(done + from), n) };
                    if let Err(e) = copy(cursor.head.address, 0, n) {
                        return cursor.faulted(fault, n, done, e, copy);
                    }
                    cursor.advance(n);
                    done += n;
                }
            }
        }
        Ok(done)
    }

    /// Takes at most `limit` bytes into a new vector.
    pub fn take_vec(&mut self, limit: usize) -> Result<Vec<u8>> {
        let mut out = Vec::new();
        let want = self.remaining().min(limit);
        out.reserve_exact_fallibly(want).map_err(|_| ENOMEM)?;
        // SAFETY: room for `want` bytes is there, and the first `got` of them were written. Nobody clears them first.
        unsafe {
            let got = self.take_raw(out.as_mut_ptr(), want)?;
            out.set_len(got);
        }
        Ok(out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::sync::atomic::AtomicU8;

    /// Of static memory: stacks lie above the program's part where the machine is a process.
    fn segment(bytes: &'static [AtomicU8]) -> Segment {
        Segment { address: bytes.as_ptr() as u64, length: bytes.len() }
    }

    #[test]
    fn a_limited_source_ends_early() {
        static A: [AtomicU8; 3] = [const { AtomicU8::new(b'a') }; 3];
        static B: [AtomicU8; 4] = [const { AtomicU8::new(b'b') }; 4];
        let segments = [segment(&A), segment(&B)];
        let mut source = Source::vectored(&segments);
        source.limit(5);
        assert_eq!(source.remaining(), 5);
        assert_eq!(source.take_vec(100), Ok(b"aaabb".to_vec()));
        assert_eq!(source.remaining(), 0);
        let mut source = Source::kernel(b"hello");
        source.limit(2);
        assert_eq!(source.take_vec(100), Ok(b"he".to_vec()));
    }

    #[test]
    fn bytes_spread_over_segments_and_come_back() {
        static A: [AtomicU8; 3] = [const { AtomicU8::new(0) }; 3];
        static B: [AtomicU8; 4] = [const { AtomicU8::new(0) }; 4];
        let segments = [segment(&A), segment(&[]), segment(&B)];
        let mut sink = Sink::vectored(&segments);
        assert_eq!(sink.put(b"hello"), Ok(5));
        assert_eq!(sink.remaining(), 2);
        assert_eq!(sink.put(b"world"), Ok(2));
        assert_eq!(sink.put(b"!"), Ok(0));
        let mut out = [0; 9];
        let mut source = Source::vectored(&segments);
        assert_eq!(source.take(&mut out[..4]), Ok(4));
        assert_eq!(source.take(&mut out[4..]), Ok(3));
        assert_eq!(&out[..7], b"hellowo");
    }

    #[test]
    fn pieces_are_what_others_can_fill_or_empty() {
        static A: [AtomicU8; 3] = [const { AtomicU8::new(1) }; 3];
        static B: [AtomicU8; 4] = [const { AtomicU8::new(2) }; 4];
        let segments = [segment(&[]), segment(&A), segment(&B)];
        let mut source = Source::vectored(&segments);
        source.limit(6);
        let piece = source.piece().unwrap();
        assert_eq!((piece.address, piece.length), (A.as_ptr() as u64, 3));
        source.skip(2);
        assert_eq!(source.piece().unwrap().length, 1);
        source.skip(2);
        assert_eq!(source.piece().unwrap().address, B.as_ptr() as u64 + 1);
        // As far as the limit, not as far as the memory.
        assert_eq!((source.piece().unwrap().length, source.remaining()), (2, 2));
        let mut sink = Sink::vectored(&segments);
        sink.skip(3);
        assert_eq!(sink.piece().unwrap().address, B.as_ptr() as u64);
        sink.skip(100);
        assert!(sink.piece().is_none());
        assert_eq!(sink.remaining(), 0);
        assert!(Sink::kernel(&mut [0; 4]).piece().is_none());
    }

    #[test]
    fn addresses_of_the_kernel_are_refused() {
        assert_eq!(Sink::user(0xffff_8000_0000_0000, 1).err(), Some(EFAULT));
        assert_eq!(Source::user(crate::USER_END - 1, 2).err(), Some(EFAULT));
        assert_eq!(Source::user(u64::MAX, 2).err(), Some(EFAULT));
    }
}
