// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What makes a program of a crate without the standard library.

use core::ffi::{CStr, c_char};
use core::panic::PanicInfo;

unsafe extern "C" {
    fn abort() -> !;
}

/// The words of the command line, the program's name first.
pub struct Arguments {
    words: *const *const c_char,
    count: usize,
}

impl Arguments {
    /// # Safety
    ///
    /// `words` are so many strings that live as long as the program: those of main.
    pub unsafe fn new(count: i32, words: *const *const c_char) -> Arguments {
        Arguments { words, count: usize::try_from(count).unwrap_or(0) }
    }

    /// The word of this number; none where there is none, or it is not UTF-8.
    pub fn get(&self, at: usize) -> Option<&'static str> {
        if at >= self.count {
            return None;
        }
        // SAFETY: `new`'s caller has said so.
        unsafe { CStr::from_ptr(*self.words.add(at)) }.to_str().ok()
    }
}

/// Says where and why the program has panicked, and ends it with SIGABRT.
pub fn panic(information: &PanicInfo) -> ! {
    crate::eprintln!("{information}");
    // SAFETY: it ends the process.
    unsafe { abort() }
}

/// Nobody unwinds: Rust's own libraries refer to this, and no table leads to it.
#[unsafe(no_mangle)]
extern "C" fn rust_eh_personality() {}

/// Makes a function main: `fn(Arguments) -> i32`, whose answer is the exit code. Its crate has `malloc` for its allocator then.
#[macro_export]
macro_rules! program {
    ($main:path) => {
        // Names of its own, beside those of the program.
        const _: () = {
            #[global_allocator]
            static MEMORY: $crate::memory::Malloc = $crate::memory::Malloc;

            #[panic_handler]
            fn panic(information: &core::panic::PanicInfo) -> ! {
                $crate::program::panic(information)
            }

            #[unsafe(export_name = "main")]
            extern "C" fn start(count: i32, words: *const *const core::ffi::c_char) -> i32 {
                let main: fn($crate::program::Arguments) -> i32 = $main;
                // SAFETY: the C library calls main with the words of the command line.
                main(unsafe { $crate::program::Arguments::new(count, words) })
            }
        };
    };
}
