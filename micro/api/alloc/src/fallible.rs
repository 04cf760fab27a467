// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The form in which the kernel asks for memory that may be refused: every such request is a place where a test can have it
//! refused ([`crate::fault`]). Without that feature it is the request alone.

use crate::fault;
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::string::String;
use alloc::vec::Vec;
use core::alloc::Layout;
use core::ptr::NonNull;

/// There is no memory, or a test says so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoMemory;

/// A request that may be refused: `request`, unless the fault of a test is due here.
#[inline]
pub fn attempt<T, E>(request: impl FnOnce() -> Result<T, E>) -> Result<T, NoMemory> {
    if fault::is_due() {
        return Err(NoMemory);
    }
    fault::as_fallible(request).map_err(|_| NoMemory)
}

/// A box for `value`, which is dropped where there is no memory for one.
pub fn try_box<T>(value: T) -> Result<Box<T>, NoMemory> {
    let layout = Layout::new::<T>();
    if layout.size() == 0 {
        return Ok(Box::new(value));
    }
    // SAFETY: the size is not zero.
    let place = attempt(|| NonNull::new(unsafe { alloc::alloc::alloc(layout) }.cast::<T>()).ok_or(NoMemory))?;
    // SAFETY: the block is fresh, and has the size and alignment of a `T`.
    unsafe { place.write(value) };
    // SAFETY: as `Box` has it: a block of the global allocator's with the layout of what is in it, which nobody else knows.
    Ok(unsafe { Box::from_raw(place.as_ptr()) })
}

/// One block of that size is there, and is a hole of the heap now: for objects of many parts, whose makers cannot be refused in the
/// middle. Free pages may lie so that no two are neighbours. It counts for those who run before anybody else does.
pub fn make_room(bytes: usize) -> Result<(), NoMemory> {
    let mut block: Vec<u8> = Vec::new();
    block.reserve_exact_fallibly(bytes)?;
    // A compiler may leave out a block that nobody looks at.
    core::hint::black_box(&block);
    fault::has_room(bytes);
    Ok(())
}

/// Room in a collection, or an answer instead of a panic. Kernel crates use these and not the methods of the library
/// (`disallowed-methods` in `micro/clippy.toml`), for those cannot be made to fail.
pub trait Reserve {
    /// Room for `more` elements, with more room for those after them.
    fn reserve_fallibly(&mut self, more: usize) -> Result<(), NoMemory>;
    /// Room for `more` elements and no more than that.
    fn reserve_exact_fallibly(&mut self, more: usize) -> Result<(), NoMemory>;
}

/// What an iterator yields, or an answer instead of a panic: for lists that are as long as a program makes them.
pub trait CollectFallibly: Iterator + Sized {
    fn collect_fallibly(self) -> Result<Vec<Self::Item>, NoMemory> {
        let mut all = Vec::new();
        all.reserve_exact_fallibly(self.size_hint().0)?;
        for item in self {
            all.reserve_fallibly(1)?;
            all.push(item);
        }
        Ok(all)
    }
}

impl<I: Iterator> CollectFallibly for I {}

macro_rules! reserve {
    ($($collection:ty, $($of:ident)?;)+) => {$(
        #[allow(clippy::disallowed_methods)] // here they are made to fail
        impl$(<$of>)? Reserve for $collection {
            #[inline]
            fn reserve_fallibly(&mut self, more: usize) -> Result<(), NoMemory> {
                attempt(|| self.try_reserve(more))
            }

            #[inline]
            fn reserve_exact_fallibly(&mut self, more: usize) -> Result<(), NoMemory> {
                attempt(|| self.try_reserve_exact(more))
            }
        }
    )+};
}

reserve! {
    Vec<T>, T;
    VecDeque<T>, T;
    String, ;
}
