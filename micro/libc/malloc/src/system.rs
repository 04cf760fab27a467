// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the allocator has of the program's C library: pages, a lock, and errno. Both of Linux have these functions, by the same
//! names and the same values (glibc 2.34 and later, musl).

use crate::blocks::Pages;
use core::cell::UnsafeCell;
use core::ffi::{c_int, c_long, c_void};
use core::ptr::null_mut;

pub const ENOMEM: c_int = 12;
pub const EINVAL: c_int = 22;

const PROT_READ_WRITE: c_int = 3;
/// MAP_PRIVATE and MAP_ANONYMOUS.
const MAP_PRIVATE_ANONYMOUS: c_int = 0x22;
const MREMAP_MAYMOVE: c_int = 1;
const MAP_FAILED: *mut c_void = !0_usize as *mut c_void;

unsafe extern "C" {
    fn mmap(
        at: *mut c_void,
        length: usize,
        protection: c_int,
        flags: c_int,
        file: c_int,
        offset: c_long,
    ) -> *mut c_void;
    fn munmap(start: *mut c_void, length: usize) -> c_int;
    fn mremap(start: *mut c_void, old: usize, new: usize, flags: c_int, ...) -> *mut c_void;
    fn __errno_location() -> *mut c_int;
}

pub fn set_errno(value: c_int) {
    // SAFETY: errno is the thread's own.
    unsafe { __errno_location().write(value) };
}

pub struct Process;

impl Pages for Process {
    fn map(&mut self, length: usize) -> *mut u8 {
        // SAFETY: a fresh mapping, at a place of the kernel's choice.
        let start = unsafe { mmap(null_mut(), length, PROT_READ_WRITE, MAP_PRIVATE_ANONYMOUS, -1, 0) };
        if start == MAP_FAILED { null_mut() } else { start.cast() }
    }

    unsafe fn unmap(&mut self, start: *mut u8, length: usize) {
        // SAFETY: the pages are nobody's by the caller's word. What free(3) finds in errno it leaves there.
        unsafe {
            let errno = __errno_location().read();
            if munmap(start.cast(), length) != 0 {
                // A process with as many mappings as it may have (vm.max_map_count) cannot make a hole; the pages stay.
                set_errno(errno);
            }
        }
    }

    unsafe fn remap(&mut self, start: *mut u8, old: usize, new: usize) -> *mut u8 {
        // SAFETY: by the caller's word.
        let place = unsafe { mremap(start.cast(), old, new, MREMAP_MAYMOVE) };
        if place == MAP_FAILED { null_mut() } else { place.cast() }
    }
}

/// Mutual exclusion of a program's threads.
pub struct Lock<T> {
    lock: raw::Raw,
    value: UnsafeCell<T>,
}

// SAFETY: the value is reached only with the lock held.
unsafe impl<T> Sync for Lock<T> {}

impl<T> Lock<T> {
    pub const fn new(value: T) -> Lock<T> {
        Lock { lock: raw::Raw::new(), value: UnsafeCell::new(value) }
    }

    /// What `act` does with the value while nobody else has it. It does not call this.
    pub fn with<R>(&self, act: impl FnOnce(&mut T) -> R) -> R {
        self.acquire();
        // SAFETY: the lock is held, and `act` does not come back here.
        let answer = act(unsafe { &mut *self.value.get() });
        self.release();
        answer
    }

    /// Takes the lock for a fork, so that no other thread is about to change the value when it is copied.
    pub fn acquire(&self) {
        self.lock.acquire();
    }

    pub fn release(&self) {
        self.lock.release();
    }

    /// In the child of a fork, whose one thread took the lock before.
    pub fn renew(&self) {
        self.lock.renew();
    }
}

/// musl's own lock: without further threads it costs two loads.
#[cfg(feature = "linked")]
mod raw {
    use core::cell::UnsafeCell;
    use core::ffi::c_int;

    unsafe extern "C" {
        fn __lock(lock: *mut c_int);
        fn __unlock(lock: *mut c_int);
    }

    pub struct Raw(UnsafeCell<c_int>);

    impl Raw {
        pub const fn new() -> Raw {
            Raw(UnsafeCell::new(0))
        }

        pub fn acquire(&self) {
            // SAFETY: a lock of musl's, whose memory only these functions change.
            unsafe { __lock(self.0.get()) };
        }

        pub fn release(&self) {
            // SAFETY: as above, and it is held.
            unsafe { __unlock(self.0.get()) };
        }

        pub fn renew(&self) {
            // SAFETY: there is one thread.
            unsafe { self.0.get().write(0) };
        }
    }
}

#[cfg(not(feature = "linked"))]
mod raw {
    use core::cell::UnsafeCell;
    use core::ffi::c_int;

    /// `pthread_mutex_t`, which both C libraries have 40 bytes for, and which is free where they are zeros.
    #[repr(C, align(8))]
    struct Mutex([u8; 40]);

    unsafe extern "C" {
        fn pthread_mutex_lock(mutex: *mut Mutex) -> c_int;
        fn pthread_mutex_unlock(mutex: *mut Mutex) -> c_int;
    }

    pub struct Raw(UnsafeCell<Mutex>);

    impl Raw {
        pub const fn new() -> Raw {
            Raw(UnsafeCell::new(Mutex([0; 40])))
        }

        pub fn acquire(&self) {
            // SAFETY: an ordinary mutex, which fails for nobody.
            unsafe { pthread_mutex_lock(self.0.get()) };
        }

        pub fn release(&self) {
            // SAFETY: as above, and this thread holds it.
            unsafe { pthread_mutex_unlock(self.0.get()) };
        }

        pub fn renew(&self) {
            // SAFETY: there is one thread.
            unsafe { self.0.get().write(Mutex([0; 40])) };
        }
    }
}

type Handler = unsafe extern "C" fn();

/// Has `prepare` called before a fork, and the others after it.
pub fn at_fork(prepare: Handler, parent: Handler, child: Handler) {
    #[cfg(feature = "linked")]
    {
        unsafe extern "C" {
            fn pthread_atfork(prepare: Handler, parent: Handler, child: Handler) -> c_int;
        }
        // SAFETY: functions that may be called at any fork. Without memory for the entry a fork of several threads is not safe,
        // as with a program's own that forgets it.
        unsafe { pthread_atfork(prepare, parent, child) };
    }
    #[cfg(not(feature = "linked"))]
    {
        unsafe extern "C" {
            static unilith_malloc_register_atfork:
                Option<unsafe extern "C" fn(Handler, Handler, Handler, *mut c_void) -> c_int>;
            static unilith_malloc_pthread_atfork:
                Option<unsafe extern "C" fn(Handler, Handler, Handler) -> c_int>;
        }
        // SAFETY: as above; the loader has written one of the two, by its C library.
        unsafe {
            if let Some(register) = unilith_malloc_register_atfork {
                register(prepare, parent, child, null_mut());
            } else if let Some(register) = unilith_malloc_pthread_atfork {
                register(prepare, parent, child);
            }
        }
    }
}

// Functions that one C library has and the other has not: null where it is not there. glibc's pthread_atfork is no function of
// its shared library; what it calls is.
#[cfg(not(feature = "linked"))]
core::arch::global_asm!(
    ".section .data.rel.ro,\"aw\"",
    ".balign 8",
    ".weak __register_atfork, pthread_atfork, dladdr",
    ".hidden unilith_malloc_register_atfork, unilith_malloc_pthread_atfork, unilith_malloc_dladdr",
    ".globl unilith_malloc_register_atfork, unilith_malloc_pthread_atfork, unilith_malloc_dladdr",
    "unilith_malloc_register_atfork: .quad __register_atfork",
    "unilith_malloc_pthread_atfork: .quad pthread_atfork",
    "unilith_malloc_dladdr: .quad dladdr",
    ".text",
);

/// What implements a program's memory has none of its own; a crate that it is made of asks for the word.
struct Nothing;

#[global_allocator]
static NOTHING: Nothing = Nothing;

// SAFETY: it gives no memory to anybody.
unsafe impl core::alloc::GlobalAlloc for Nothing {
    unsafe fn alloc(&self, _: core::alloc::Layout) -> *mut u8 {
        null_mut()
    }

    unsafe fn dealloc(&self, _: *mut u8, _: core::alloc::Layout) {}
}
