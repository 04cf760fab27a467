// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The one sentence with which a program ends that has misused its memory, on standard error; then abort(3).
//!
//! The lock of the memory is held meanwhile, and stays so: nothing here allocates.

use core::ffi::c_void;
use core::fmt::{self, Write};
use core::ptr::NonNull;

unsafe extern "C" {
    fn write(file: i32, bytes: *const c_void, length: usize) -> isize;
    fn abort() -> !;
}

const STANDARD_ERROR: i32 = 2;

/// A line of text; what is too long for it is left out.
struct Line {
    text: [u8; 512],
    length: usize,
}

impl Write for Line {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for byte in text.bytes().take(self.text.len() - self.length) {
            self.text[self.length] = byte;
            self.length += 1;
        }
        Ok(())
    }
}

#[cold]
fn say(what: fmt::Arguments) -> ! {
    let mut line = Line { text: [0; 512], length: 0 };
    let _ = writeln!(line, "unilith: malloc: {what}");
    // SAFETY: the bytes are the line's.
    unsafe {
        write(STANDARD_ERROR, line.text.as_ptr().cast(), line.length);
        abort()
    }
}

/// The program gave what is no block of it, or not any more.
#[cold]
pub fn not_a_block(block: NonNull<u8>) -> ! {
    let found = Found(request::function(), request::caller());
    say(format_args!(
        "{block:p} is no block of memory, was freed already, or was written to before its beginning; {found}"
    ))
}

/// A heap with checks has found this.
#[cfg(feature = "guard")]
#[cold]
pub fn misuse(finding: alloc_checked::Finding) -> ! {
    use crate::{blocks::Blocks, functions::Guarded, system::Process};
    use alloc_checked::Misuse;
    let what = match finding.misuse {
        Misuse::BeyondItsEnd => "written to beyond its end",
        Misuse::FreedTwice => "freed twice",
        Misuse::AfterItWasFreed => "written to after it was freed",
    };
    let start = finding.block as *mut u8;
    let found = Found(request::function(), request::caller());
    // SAFETY: the finding is a block of the heap, whose bytes it has looked at.
    match unsafe { Blocks::<Guarded, Process>::describe(start, finding.size) } {
        Some(block) => say(format_args!(
            "a block of {} bytes at {:p}, asked for by {}, was {what}; {found}",
            block.size,
            block.block,
            Place(block.caller)
        )),
        None => say(format_args!("a block near {start:p} was {what}; {found}")),
    }
}

/// The request during which something was found.
struct Found(&'static str, usize);

impl fmt::Display for Found {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Found(function, 0) => write!(out, "found by {function}"),
            Found(function, caller) => write!(out, "found by {function}, called by {}", Place(*caller)),
        }
    }
}

/// An address of code, with what the loader knows of it.
struct Place(usize);

impl fmt::Display for Place {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{:#x}", self.0)?;
        loader::describe(self.0, out)
    }
}

/// What is linked with the kernel has no loader; `nm` and `addr2line` read its addresses in the file kernel.symbols.
#[cfg(feature = "linked")]
mod loader {
    use core::fmt;

    pub fn describe(_: usize, _: &mut fmt::Formatter) -> fmt::Result {
        Ok(())
    }
}

#[cfg(not(feature = "linked"))]
mod loader {
    use core::ffi::{CStr, c_char, c_int, c_void};
    use core::{fmt, ptr};

    /// `Dl_info` of dladdr(3).
    #[repr(C)]
    struct Information {
        file: *const c_char,
        base: *const c_void,
        symbol: *const c_char,
        address: *const c_void,
    }

    unsafe extern "C" {
        static unilith_malloc_dladdr: Option<unsafe extern "C" fn(*const c_void, *mut Information) -> c_int>;
    }

    /// The function, where the loader knows it, and the place in its file, as addr2line(1) takes it.
    pub fn describe(address: usize, out: &mut fmt::Formatter) -> fmt::Result {
        let mut found =
            Information { file: ptr::null(), base: ptr::null(), symbol: ptr::null(), address: ptr::null() };
        // SAFETY: the loader has written the function's address, or null; it fills in what it finds.
        let is_known = unsafe {
            unilith_malloc_dladdr.is_some_and(|dladdr| dladdr(address as *const c_void, &raw mut found) != 0)
        };
        if !is_known || found.file.is_null() {
            return Ok(());
        }
        // SAFETY: the loader's strings, which end with a zero.
        let text = |name: *const c_char| unsafe { CStr::from_ptr(name) }.to_str().unwrap_or("?");
        out.write_str(" (")?;
        if !found.symbol.is_null() {
            write!(out, "{}+{:#x}, ", text(found.symbol), address.wrapping_sub(found.address as usize))?;
        }
        write!(out, "{}+{:#x})", text(found.file), address.wrapping_sub(found.base as usize))
    }
}

pub use request::begin;

/// The request that is being served: of the holder of the memory's lock, so there is one at a time.
mod request {
    use core::ffi::CStr;
    use core::sync::atomic::{AtomicPtr, AtomicUsize, Ordering::Relaxed};

    static FUNCTION: AtomicPtr<i8> = AtomicPtr::new(c"malloc".as_ptr().cast_mut());
    static CALLER: AtomicUsize = AtomicUsize::new(0);

    /// A request begins.
    #[inline]
    pub fn begin(function: &'static CStr, caller: usize) {
        FUNCTION.store(function.as_ptr().cast_mut(), Relaxed);
        if cfg!(feature = "guard") {
            CALLER.store(caller, Relaxed);
        }
    }

    pub fn function() -> &'static str {
        // SAFETY: `begin` has only stored strings that stay.
        unsafe { CStr::from_ptr(FUNCTION.load(Relaxed)) }.to_str().unwrap_or_default()
    }

    pub fn caller() -> usize {
        CALLER.load(Relaxed)
    }
}

/// A check of this library's own has failed: it is wrong, or its memory was overwritten.
#[panic_handler]
fn panic(information: &core::panic::PanicInfo) -> ! {
    say(format_args!("its own data is damaged: {}", information.message()))
}
