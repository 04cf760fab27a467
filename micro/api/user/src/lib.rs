// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Memory of the program, reached only through functions that answer `EFAULT` instead of faulting.
//!
//! Kernel and program share one address space and one privilege level, so nothing but this crate stands between a
//! bad pointer and the kernel. It owns two invariants: every address lies in the program's half
//! (below [`USER_END`]), and every access is made by one of two short assembly routines whose fault the platform's
//! page-fault handler recognises ([`fault_fixup`]) and turns into a short count.
//!
//! An access may fault a page in and so may block: hold no lock across it. Memory of the program may change under
//! the kernel at any time: read each value once.
#![no_std]
extern crate alloc;

mod atomic;
mod copy;
mod iovec;

use api_alloc::Reserve;
pub use atomic::compare_exchange_u32;
pub use copy::{fault_fixup, read_bytes, read_vec, write_bytes, zero_bytes, zeroed};
pub use iovec::{IO_MAX, IOV_MAX, Segment, Segments, Sink, Source, read_iovec};

use abi::{Errno, PAGE_SIZE, PATH_MAX, Result, errno::*};
use alloc::vec::Vec;
use core::marker::PhantomData;
use core::mem::{MaybeUninit, size_of};

pub use api_plat::USER_END;

/// True when `length` bytes at `address` lie in the program's half.
pub const fn range_is_user(address: u64, length: u64) -> bool {
    length <= USER_END && address <= USER_END - length
}

/// Types any bit pattern is valid for, without padding that matters: what system calls exchange.
///
/// # Safety
///
/// Every bit pattern of `size_of::<Self>()` bytes is a valid value.
pub unsafe trait Plain: Copy {}

macro_rules! plain {
    ($($t:ty),*) => { $(
        // SAFETY: integers have no invalid bit pattern.
        unsafe impl Plain for $t {}
    )* };
}
plain!(u8, i8, u16, i16, u32, i32, u64, i64, usize, isize, u128);
// SAFETY: an array is valid when its elements are.
unsafe impl<T: Plain, const N: usize> Plain for [T; N] {}

/// A pointer that came from the program.
pub struct UserPtr<T>(u64, PhantomData<*mut T>);

impl<T> Clone for UserPtr<T> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T> Copy for UserPtr<T> {}

impl<T> UserPtr<T> {
    pub const fn new(address: u64) -> Self {
        UserPtr(address, PhantomData)
    }

    pub const fn address(self) -> u64 {
        self.0
    }

    pub const fn is_null(self) -> bool {
        self.0 == 0
    }

    /// `None` for a null pointer, which many calls take as "not wanted".
    pub const fn non_null(self) -> Option<Self> {
        if self.0 == 0 { None } else { Some(self) }
    }

    /// The pointer `count` elements on.
    pub const fn add(self, count: u64) -> Self {
        UserPtr(self.0.wrapping_add(count.wrapping_mul(size_of::<T>() as u64)), PhantomData)
    }

    pub const fn cast<U>(self) -> UserPtr<U> {
        UserPtr(self.0, PhantomData)
    }
}

impl<T: Plain> UserPtr<T> {
    /// Reads one value; it need not be aligned.
    pub fn read(self) -> Result<T> {
        let mut value = MaybeUninit::<T>::uninit();
        // SAFETY: the slice covers exactly the bytes of `value`, and bytes may be written to uninitialised memory.
        let bytes =
            unsafe { core::slice::from_raw_parts_mut(value.as_mut_ptr().cast::<u8>(), size_of::<T>()) };
        read_bytes(self.0, bytes)?;
        // SAFETY: all bytes were written and any bit pattern is valid (`Plain`).
        Ok(unsafe { value.assume_init() })
    }

    /// Writes one value; it need not be aligned.
    pub fn write(self, value: T) -> Result<()> {
        // SAFETY: the slice covers exactly the bytes of `value`. Padding bytes, if any, are copied as they are.
        let bytes = unsafe { core::slice::from_raw_parts((&raw const value).cast::<u8>(), size_of::<T>()) };
        write_bytes(self.0, bytes)
    }

    /// Reads `count` values. The caller bounds `count`.
    pub fn read_vec(self, count: usize) -> Result<Vec<T>> {
        let bytes = count.checked_mul(size_of::<T>()).ok_or(EFAULT)?;
        // Of nothing it does not matter where it is.
        if bytes > 0 && !range_is_user(self.0, bytes as u64) {
            return Err(EFAULT);
        }
        let mut out = Vec::new();
        out.reserve_exact_fallibly(count).map_err(|_| ENOMEM)?;
        for i in 0..count as u64 {
            out.push(self.add(i).read()?);
        }
        Ok(out)
    }

    /// Writes the values one after the other.
    pub fn write_slice(self, values: &[T]) -> Result<()> {
        // SAFETY: the slice covers exactly the bytes of `values`.
        let bytes = unsafe { core::slice::from_raw_parts(values.as_ptr().cast::<u8>(), size_of_val(values)) };
        write_bytes(self.0, bytes)
    }
}

impl UserPtr<u64> {
    /// Reads a structure of words that has grown with Linux' releases and may go on to (Linux' copy_struct_from_user): the caller says how
    /// many bytes `size` its version has; what is behind them is zero. `E2BIG` where it says something in fields that are not known
    /// here, or is larger than a page; `EFAULT`.
    pub fn read_extensible<const WORDS: usize>(self, size: usize) -> Result<[u64; WORDS]> {
        const WORD: usize = size_of::<u64>();
        if size > PAGE_SIZE {
            return Err(E2BIG);
        }
        let known = size.min(WORDS * WORD);
        // Aligned words one by one, as Linux looks: a byte that is not zero counts although one behind it cannot be read.
        let (mut at, end) = (self.0.wrapping_add(known as u64), self.0.wrapping_add(size as u64));
        while at < end {
            let into = at % WORD as u64;
            let word = UserPtr::<[u8; WORD]>::new(at - into).read()?;
            let behind = (end - (at - into)).min(WORD as u64);
            if word[into as usize..behind as usize].iter().any(|byte| *byte != 0) {
                return Err(E2BIG);
            }
            at += behind - into;
        }
        let mut bytes = [[0; WORD]; WORDS];
        read_bytes(self.0, &mut bytes.as_flattened_mut()[..known])?;
        Ok(bytes.map(u64::from_ne_bytes))
    }
}

impl UserPtr<u8> {
    /// Reads a string up to its NUL, which is left out. `too_long` when there is none in the first `limit` bytes.
    pub fn read_cstr(self, limit: usize, too_long: Errno) -> Result<Vec<u8>> {
        let mut out = Vec::new();
        let mut address = self.0;
        loop {
            // Up to the next page boundary, so that a string at the end of a mapping is read in full.
            let in_page = abi::PAGE_SIZE - (address as usize & (abi::PAGE_SIZE - 1));
            let mut chunk = [0u8; 256];
            let n = in_page.min(chunk.len()).min(limit - out.len());
            if n == 0 {
                return Err(too_long);
            }
            let chunk = &mut chunk[..n];
            read_bytes(address, chunk)?;
            if let Some(end) = chunk.iter().position(|b| *b == 0) {
                out.extend_from_slice(&chunk[..end]);
                return Ok(out);
            }
            out.extend_from_slice(chunk);
            address = address.wrapping_add(n as u64);
        }
    }

    /// Reads a path: `EFAULT`, or `ENAMETOOLONG` from 4,096 bytes on.
    pub fn read_path(self) -> Result<Vec<u8>> {
        self.read_cstr(PATH_MAX, ENAMETOOLONG)
    }
}
