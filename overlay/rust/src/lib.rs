// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Programs of the overlay in Rust: the calls of the kernel (docs/reference/overlay-sdk.md), printing, memory.
//!
//! ```ignore
//! #![no_std]
//! #![no_main]
//! extern crate alloc;
//! use unilith_program::{println, program};
//!
//! program!(main);
//! fn main(arguments: &[&[u8]]) -> i32 {
//!     println!("{} arguments", arguments.len());
//!     0
//! }
//! ```
//!
//! `unilith overlay build program.rs` compiles it.
#![cfg_attr(not(test), no_std)]

use core::alloc::{GlobalAlloc, Layout};
use core::ffi::{CStr, c_char, c_int, c_long, c_void};
use core::fmt;

/// The calls as they are.
pub mod sys {
    use super::*;

    unsafe extern "C" {
        pub fn uio_exit(status: c_int) -> !;
        pub fn uio_abort(why: *const c_char) -> !;
        pub fn uio_console_write(stream: c_int, bytes: *const u8, count: usize) -> isize;
        pub fn uio_console_read(bytes: *mut u8, count: usize) -> isize;
        pub fn uio_alloc_memory(size: usize, attributes: c_int) -> *mut c_void;
        pub fn uio_free_memory(address: *mut c_void) -> c_int;
        pub fn uio_enable_write() -> c_int;
        pub fn uio_enable_write_now() -> c_int;
        pub fn uio_disable_write() -> c_int;
        pub fn uio_symbol_get(name: *const c_char) -> c_long;
        pub fn uio_symbol_name(address: *const c_void, text: *mut u8, size: usize) -> c_long;
        pub fn uio_sleep(nanoseconds: u64) -> c_int;
        pub fn uio_time(clock: c_int) -> u64;
        pub fn uio_open(path: *const c_char, flags: c_int, permissions: c_int) -> c_int;
        pub fn uio_close(file: c_int) -> c_int;
        pub fn uio_read(file: c_int, bytes: *mut u8, count: usize) -> isize;
        pub fn uio_write(file: c_int, bytes: *const u8, count: usize) -> isize;
        pub fn uio_lseek(file: c_int, offset: c_long, whence: c_int) -> c_long;
        pub fn uio_fsync(file: c_int) -> c_int;
        pub fn uio_unlink(path: *const c_char) -> c_int;
        pub fn uio_rename(from: *const c_char, to: *const c_char) -> c_int;
        pub fn uio_mkdir(path: *const c_char, permissions: c_int) -> c_int;
        pub fn uio_rmdir(path: *const c_char) -> c_int;
        pub fn uio_list(path: *const c_char, position: *mut u64, names: *mut u8, size: usize) -> isize;
        pub fn uio_stat(path: *const c_char, stat: *mut Stat) -> c_int;
        pub fn uio_memory_size(address: *mut c_void) -> usize;
        pub fn uio_peek(to: *mut c_void, from: *const c_void, size: usize) -> c_int;
        pub fn uio_kill(signal: c_int) -> c_int;
        pub fn uio_counters(counters: *mut Counters) -> c_int;
    }
}

/// What the kernel counts.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct Counters {
    pub now_ns: u64,
    pub application_ns: u64,
    pub program_ns: u64,
    pub threads: u64,
    pub resident_bytes: u64,
    pub used_bytes: u64,
    pub memory_bytes: u64,
    pub overlay_bytes: u64,
}

/// What a path names.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct Stat {
    pub size: u64,
    /// Type and permissions, as st_mode.
    pub mode: u64,
    /// Last change, since 1970.
    pub changed_ns: u64,
}

/// An error number of Linux.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Errno(pub i32);

fn result(value: i64) -> Result<u64, Errno> {
    if value < 0 { Err(Errno(-value as i32)) } else { Ok(value as u64) }
}

/// The counters now.
pub fn counters() -> Counters {
    let mut counters = Counters::default();
    // SAFETY: it is a place for all of them.
    unsafe { sys::uio_counters(&mut counters) };
    counters
}

/// Sleeps.
pub fn sleep(nanoseconds: u64) {
    // SAFETY: no memory is involved.
    unsafe { sys::uio_sleep(nanoseconds) };
}

/// Nanoseconds since the machine's boot.
pub fn now_ns() -> u64 {
    // SAFETY: no memory is involved.
    unsafe { sys::uio_time(0) }
}

/// The address of a function or variable of the application.
pub fn symbol(name: &CStr) -> Result<*mut c_void, Errno> {
    // SAFETY: the name ends with a NUL.
    result(unsafe { sys::uio_symbol_get(name.as_ptr()) }).map(|address| address as *mut c_void)
}

/// Writing to the application's memory is allowed while this lives, and a thread of the application is held.
pub struct Writing(());

impl Writing {
    pub fn enable() -> Result<Writing, Errno> {
        // SAFETY: what is written is the caller's business.
        result(i64::from(unsafe { sys::uio_enable_write() })).map(|_| Writing(()))
    }
}

impl Drop for Writing {
    fn drop(&mut self) {
        // SAFETY: takes a right away.
        unsafe { sys::uio_disable_write() };
    }
}

/// Types of which any bytes are a value: [`peek`] reads what a running program left, which may be anything.
///
/// # Safety
///
/// Every pattern of `size_of::<Self>()` bytes is valid: no `bool`, `char`, enumeration, reference or function, and no
/// structure that has one.
pub unsafe trait AnyBits: Copy {}

macro_rules! any_bits {
    ($($number:ty),*) => { $(
        // SAFETY: a number of that many bits.
        unsafe impl AnyBits for $number {}
    )* };
}
any_bits!(u8, u16, u32, u64, u128, usize, i8, i16, i32, i64, i128, isize, f32, f64);

// SAFETY: a raw pointer to a sized type is an address, whatever it is.
unsafe impl<T> AnyBits for *const T {}
// SAFETY: as above.
unsafe impl<T> AnyBits for *mut T {}
// SAFETY: one after the other, without padding.
unsafe impl<T: AnyBits, const N: usize> AnyBits for [T; N] {}

/// Reads memory from anywhere: `None` when nothing is mapped there.
pub fn peek<T: AnyBits>(address: *const T) -> Option<T> {
    let mut value = core::mem::MaybeUninit::<T>::uninit();
    // SAFETY: it is a place of that size; the call checks where it reads from.
    let answer = unsafe { sys::uio_peek(value.as_mut_ptr().cast(), address.cast(), size_of::<T>()) };
    // SAFETY: the call filled it, and any bytes are a value.
    (answer == 0).then(|| unsafe { value.assume_init() })
}

/// An open file of the machine; closed when dropped.
pub struct File(c_int);

impl File {
    const CREATE: c_int = 0o1101;

    /// For reading.
    pub fn open(path: &CStr) -> Result<File, Errno> {
        File::with(path, 0)
    }

    /// For writing, empty at first.
    pub fn create(path: &CStr) -> Result<File, Errno> {
        File::with(path, File::CREATE)
    }

    fn with(path: &CStr, flags: c_int) -> Result<File, Errno> {
        // SAFETY: the path ends with a NUL.
        result(i64::from(unsafe { sys::uio_open(path.as_ptr(), flags, 0o644) }))
            .map(|file| File(file as c_int))
    }

    /// 0 at the end.
    pub fn read(&self, bytes: &mut [u8]) -> Result<usize, Errno> {
        // SAFETY: the slice is writable.
        result(unsafe { sys::uio_read(self.0, bytes.as_mut_ptr(), bytes.len()) } as i64)
            .map(|count| count as usize)
    }

    pub fn write(&self, bytes: &[u8]) -> Result<usize, Errno> {
        // SAFETY: the slice is readable.
        result(unsafe { sys::uio_write(self.0, bytes.as_ptr(), bytes.len()) } as i64)
            .map(|count| count as usize)
    }
}

impl Drop for File {
    fn drop(&mut self) {
        // SAFETY: nobody else uses the descriptor.
        unsafe { sys::uio_close(self.0) };
    }
}

/// Standard output (1) or standard error (2).
pub struct Console(pub i32);

impl fmt::Write for Console {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let mut bytes = text.as_bytes();
        while !bytes.is_empty() {
            // SAFETY: the slice is readable.
            match unsafe { sys::uio_console_write(self.0, bytes.as_ptr(), bytes.len()) } {
                count @ 1.. => bytes = &bytes[(count as usize).min(bytes.len())..],
                _ => return Err(fmt::Error),
            }
        }
        Ok(())
    }
}

#[macro_export]
macro_rules! print {
    ($($part:tt)*) => {{
        use core::fmt::Write;
        let _ = write!($crate::Console(1), $($part)*);
    }};
}

#[macro_export]
macro_rules! println {
    ($($part:tt)*) => {{
        use core::fmt::Write;
        let _ = writeln!($crate::Console(1), $($part)*);
    }};
}

/// Memory of the program's own, for `alloc`.
pub struct Heap;

// SAFETY: blocks come from the kernel, which keeps its books; larger alignments are refused.
unsafe impl GlobalAlloc for Heap {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if layout.align() > 16 {
            return core::ptr::null_mut();
        }
        // SAFETY: any size may be asked for.
        let address = unsafe { sys::uio_alloc_memory(layout.size(), 0) };
        if (address as i64) < 0 { core::ptr::null_mut() } else { address.cast() }
    }

    unsafe fn dealloc(&self, address: *mut u8, _: Layout) {
        // SAFETY: by the caller's word it came from `alloc`.
        unsafe { sys::uio_free_memory(address.cast()) };
    }
}

#[cfg(not(test))]
#[global_allocator]
static HEAP: Heap = Heap;

#[cfg(not(test))]
#[panic_handler]
fn panic(info: &core::panic::PanicInfo<'_>) -> ! {
    use fmt::Write;
    let _ = writeln!(Console(2), "{info}");
    // SAFETY: the text ends with a NUL.
    unsafe { sys::uio_abort(c"panicked".as_ptr()) }
}

/// Rust's libraries refer to it where they would unwind; with `panic=abort` nothing does.
#[cfg(not(test))]
#[unsafe(no_mangle)]
extern "C" fn _Unwind_Resume() -> ! {
    // SAFETY: the text ends with a NUL.
    unsafe { sys::uio_abort(c"unwound".as_ptr()) }
}

/// As [`_Unwind_Resume`].
#[cfg(not(test))]
#[unsafe(no_mangle)]
extern "C" fn rust_eh_personality() -> ! {
    _Unwind_Resume()
}

/// The arguments, of which the first is the program's name.
///
/// # Safety
///
/// For [`program!`] alone: they are those of `main`.
pub unsafe fn arguments<const MAX_ARGUMENTS: usize>(
    count: c_int,
    vector: *const *const c_char,
) -> ([&'static [u8]; MAX_ARGUMENTS], usize) {
    let mut out: [&'static [u8]; MAX_ARGUMENTS] = [&[]; MAX_ARGUMENTS];
    let count = (count as usize).min(MAX_ARGUMENTS);
    for (i, place) in out.iter_mut().enumerate().take(count) {
        // SAFETY: by the caller's word; they live as long as the program.
        *place = unsafe { CStr::from_ptr(*vector.add(i)) }.to_bytes();
    }
    (out, count)
}

/// Names the function a program begins with: `fn main(arguments: &[&[u8]]) -> i32`.
#[macro_export]
macro_rules! program {
    ($main:path) => {
        #[unsafe(export_name = "main")]
        extern "C" fn unilith_program_main(
            count: core::ffi::c_int,
            vector: *const *const core::ffi::c_char,
        ) -> core::ffi::c_int {
            // SAFETY: these are the arguments of `main`.
            let (arguments, count) = unsafe { $crate::arguments::<64>(count, vector) };
            $main(&arguments[..count])
        }
    };
}
