// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The functions of C.
//!
//! Each has an inner function that is also told who called it. With `guard` the function of C is a few instructions that hand
//! on its return address; otherwise nobody is told.

use crate::blocks::{ALIGN, Blocks, NotABlock, PAGE, Policy};
use crate::report;
use crate::system::{EINVAL, ENOMEM, Lock, Process, at_fork, set_errno};
use core::ffi::{CStr, c_int, c_void};
use core::mem::size_of;
use core::ptr::{NonNull, null_mut};

#[cfg(all(feature = "buddy", not(feature = "guard")))]
use alloc_buddy::Buddy as Heap;
#[cfg(all(feature = "mimalloc", not(feature = "guard")))]
use alloc_mimalloc::Mimalloc as Heap;
#[cfg(all(feature = "region", not(feature = "guard")))]
use alloc_region::Bump as Heap;
#[cfg(all(feature = "tiny", not(feature = "guard")))]
use alloc_tiny::Tiny as Heap;
#[cfg(all(feature = "tlsf", not(feature = "guard")))]
use alloc_tlsf::Tlsf as Heap;

#[cfg(not(feature = "guard"))]
static MEMORY: Lock<Blocks<Heap, Process>> = Lock::new(Blocks::new(Heap::new(), Process, Policy::USUAL));

#[cfg(feature = "guard")]
pub type Guarded = alloc_checked::Checked<alloc_tlsf::Tlsf>;
#[cfg(feature = "guard")]
static MEMORY: Lock<Blocks<Guarded, Process>> = Lock::new(Blocks::new(
    Guarded::reporting(alloc_tlsf::Tlsf::new(), report::misuse),
    Process,
    Policy::GUARD,
));

fn out_of_memory() -> *mut u8 {
    set_errno(ENOMEM);
    null_mut()
}

/// A block; null with errno where there is none.
fn take(function: &'static CStr, size: usize, align: usize, caller: usize) -> (*mut u8, bool) {
    let taken = MEMORY.with(|memory| {
        report::begin(function, caller);
        memory.take(size, align, caller)
    });
    taken.map_or_else(|| (out_of_memory(), false), |(block, is_zero)| (block.as_ptr(), is_zero))
}

unsafe extern "C" fn malloc_for(size: usize, caller: usize) -> *mut u8 {
    take(c"malloc", size, ALIGN, caller).0
}

unsafe extern "C" fn calloc_for(count: usize, size: usize, caller: usize) -> *mut u8 {
    let Some(size) = count.checked_mul(size) else { return out_of_memory() };
    let (block, is_zero) = take(c"calloc", size, ALIGN, caller);
    if !block.is_null() && !is_zero {
        // SAFETY: the block is that long.
        unsafe { block.write_bytes(0, size) };
    }
    block
}

unsafe extern "C" fn free_for(block: *mut u8, caller: usize) {
    let Some(block) = NonNull::new(block) else { return };
    MEMORY.with(|memory| {
        report::begin(c"free", caller);
        // SAFETY: free(3): a live block of these functions, which the program gives away.
        if let Err(NotABlock) = unsafe { memory.give(block) } {
            report::not_a_block(block);
        }
    });
}

unsafe extern "C" fn realloc_for(block: *mut u8, size: usize, caller: usize) -> *mut u8 {
    let Some(old) = NonNull::new(block) else { return take(c"realloc", size, ALIGN, caller).0 };
    // As the program's C library has it: glibc frees the block, musl makes it as short as blocks are.
    if size == 0 && cfg!(feature = "preload") {
        // SAFETY: by the caller's word.
        unsafe { free_for(block, caller) };
        return null_mut();
    }
    let new = MEMORY.with(|memory| {
        report::begin(c"realloc", caller);
        // SAFETY: realloc(3): a live block of these functions, which the program knows by the answer only.
        match unsafe { memory.resize(old, size, caller) } {
            Ok(new) => new,
            Err(NotABlock) => report::not_a_block(old),
        }
    });
    new.map_or_else(out_of_memory, NonNull::as_ptr)
}

unsafe extern "C" fn reallocarray_for(block: *mut u8, count: usize, size: usize, caller: usize) -> *mut u8 {
    match count.checked_mul(size) {
        // SAFETY: by the caller's word.
        Some(size) => unsafe { realloc_for(block, size, caller) },
        None => out_of_memory(),
    }
}

unsafe extern "C" fn posix_memalign_for(
    out: *mut *mut u8,
    align: usize,
    size: usize,
    caller: usize,
) -> c_int {
    if !align.is_power_of_two() || align < size_of::<*mut c_void>() {
        return EINVAL;
    }
    let taken = MEMORY.with(|memory| {
        report::begin(c"posix_memalign", caller);
        memory.take(size, align.max(ALIGN), caller)
    });
    let Some((block, _)) = taken else { return ENOMEM };
    // SAFETY: posix_memalign(3): a place for the answer.
    unsafe { out.write(block.as_ptr()) };
    0
}

unsafe extern "C" fn aligned_alloc_for(align: usize, size: usize, caller: usize) -> *mut u8 {
    if !align.is_power_of_two() {
        set_errno(EINVAL);
        return null_mut();
    }
    take(c"aligned_alloc", size, align.max(ALIGN), caller).0
}

/// An alignment that is no power of two becomes the next one, as in glibc.
unsafe extern "C" fn memalign_for(align: usize, size: usize, caller: usize) -> *mut u8 {
    match align.checked_next_power_of_two() {
        Some(align) => take(c"memalign", size, align.max(ALIGN), caller).0,
        None => {
            set_errno(EINVAL);
            null_mut()
        }
    }
}

unsafe extern "C" fn valloc_for(size: usize, caller: usize) -> *mut u8 {
    take(c"valloc", size, PAGE, caller).0
}

unsafe extern "C" fn pvalloc_for(size: usize, caller: usize) -> *mut u8 {
    match size.max(1).checked_next_multiple_of(PAGE) {
        Some(size) => take(c"pvalloc", size, PAGE, caller).0,
        None => out_of_memory(),
    }
}

unsafe extern "C" fn malloc_usable_size_for(block: *mut u8, caller: usize) -> usize {
    let Some(block) = NonNull::new(block) else { return 0 };
    MEMORY.with(|memory| {
        report::begin(c"malloc_usable_size", caller);
        // SAFETY: malloc_usable_size(3): a live block of these functions.
        match unsafe { memory.size(block) } {
            Ok(size) => size,
            Err(NotABlock) => report::not_a_block(block),
        }
    })
}

/// malloc_trim(3) of glibc: what the heap can give back goes back, but `spare` bytes.
#[cfg(feature = "preload")]
unsafe extern "C" fn malloc_trim_for(spare: usize, caller: usize) -> c_int {
    MEMORY.with(|memory| {
        report::begin(c"malloc_trim", caller);
        memory.give_back(spare).into()
    })
}

/// Makes functions of C from those that are told who called them. `$register` is where the caller's address goes: the
/// register of the argument after the last one (System V ABI for x86-64, 3.2.3).
macro_rules! functions {
    ($($name:ident($($argument:ident: $type:ty),*) $(-> $answer:ty)? = $inner:ident, $register:literal;)*) => {$(
        #[cfg(not(feature = "guard"))]
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name($($argument: $type),*) $(-> $answer)? {
            // SAFETY: by the caller's word.
            unsafe { $inner($($argument,)* 0) }
        }

        #[cfg(feature = "guard")]
        #[unsafe(naked)]
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name($($argument: $type),*) $(-> $answer)? {
            core::arch::naked_asm!(concat!("mov ", $register, ", [rsp]"), "jmp {inner}", inner = sym $inner)
        }
    )*};
}

functions! {
    malloc(size: usize) -> *mut u8 = malloc_for, "rsi";
    calloc(count: usize, size: usize) -> *mut u8 = calloc_for, "rdx";
    free(block: *mut u8) = free_for, "rsi";
    realloc(block: *mut u8, size: usize) -> *mut u8 = realloc_for, "rdx";
    reallocarray(block: *mut u8, count: usize, size: usize) -> *mut u8 = reallocarray_for, "rcx";
    posix_memalign(out: *mut *mut u8, align: usize, size: usize) -> c_int = posix_memalign_for, "rcx";
    aligned_alloc(align: usize, size: usize) -> *mut u8 = aligned_alloc_for, "rdx";
    memalign(align: usize, size: usize) -> *mut u8 = memalign_for, "rdx";
    valloc(size: usize) -> *mut u8 = valloc_for, "rsi";
    pvalloc(size: usize) -> *mut u8 = pvalloc_for, "rsi";
    malloc_usable_size(block: *mut u8) -> usize = malloc_usable_size_for, "rsi";
}

#[cfg(feature = "preload")]
functions! {
    malloc_trim(spare: usize) -> c_int = malloc_trim_for, "rsi";
}

unsafe extern "C" fn before_fork() {
    MEMORY.acquire();
}

unsafe extern "C" fn after_fork_in_parent() {
    MEMORY.release();
}

unsafe extern "C" fn after_fork_in_child() {
    MEMORY.renew();
}

/// Before main: no thread is there yet. The first to ask is the last to be called before a fork, so what other libraries do
/// then may allocate.
unsafe extern "C" fn begin() {
    at_fork(before_fork, after_fork_in_parent, after_fork_in_child);
}

#[used]
#[unsafe(link_section = ".init_array")]
static BEGIN: unsafe extern "C" fn() = begin;

/// When the program ends: what was written to after it was freed is found at the latest here.
#[cfg(feature = "guard")]
unsafe extern "C" fn end() {
    MEMORY.with(|memory| {
        report::begin(c"exit", 0);
        memory.give_back(0);
    });
}

#[cfg(feature = "guard")]
#[used]
#[unsafe(link_section = ".fini_array")]
static END: unsafe extern "C" fn() = end;
