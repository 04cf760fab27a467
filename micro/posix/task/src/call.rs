// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The arguments of one system call.

use abi::{Result, errno::EINVAL};
use api_plat::TrapFrame;
use api_user::UserPtr;

/// One system call being served.
pub struct Call<'a> {
    /// All registers of the program. A handler that replaces them (rt_sigreturn, execve) sets `keep_registers`.
    pub frame: &'a mut TrapFrame,
    /// The result is not stored to RAX.
    pub keep_registers: bool,
}

impl Call<'_> {
    /// Argument `index` (0 to 5) as it came.
    #[inline]
    pub fn arg(&self, index: usize) -> u64 {
        let f = &*self.frame;
        [f.rdi, f.rsi, f.rdx, f.r10, f.r8, f.r9][index]
    }

    /// An `int` argument: the upper half of the register does not count.
    #[inline]
    pub fn int(&self, index: usize) -> i32 {
        self.arg(index) as i32
    }

    /// An `unsigned int` argument.
    #[inline]
    pub fn uint(&self, index: usize) -> u32 {
        self.arg(index) as u32
    }

    /// A `size_t` argument.
    #[inline]
    pub fn size(&self, index: usize) -> usize {
        self.arg(index) as usize
    }

    /// A signed 64-bit argument (`off_t`, `long`).
    #[inline]
    pub fn long(&self, index: usize) -> i64 {
        self.arg(index) as i64
    }

    /// A pointer argument.
    #[inline]
    pub fn ptr<T>(&self, index: usize) -> UserPtr<T> {
        UserPtr::new(self.arg(index))
    }

    /// A flags argument; `EINVAL` for bits outside `known`.
    #[inline]
    pub fn flags(&self, index: usize, known: u32) -> Result<u32> {
        let flags = self.uint(index);
        if flags & !known != 0 { Err(EINVAL) } else { Ok(flags) }
    }
}

/// Serves one call. A blocking handler waits through [`crate::wait`].
pub type Handler = fn(&mut Call<'_>) -> Result<usize>;
