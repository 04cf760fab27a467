// SPDX-License-Identifier: Apache-2.0 OR MIT
//! System calls of objects that somebody else compiled: each `syscall` instruction becomes a jump to a function of the kernel.
//!
//! musl is compiled here and calls `unilith_syscall_NUMBER` by itself; Debian's glibc is there as objects only. A jump of five bytes
//! takes the place of the `syscall` and of instructions around it, and leads to a stub at the end of the same section:
//!
//! ```text
//! site:  jmp stub                    stub:  (the instructions that the jump replaced)
//!        int3...                            lea next(%rip), %rcx
//! next:  ...                                movabs $unilith_kept_NUMBER, %r11
//!                                           jmp *%r11
//! ```
//!
//! `unilith_kept_NUMBER` (`micro/kernel/src/linked.s`) keeps what the instruction keeps: all registers but RAX, RCX and R11.
//! Nothing is written to the stack, so the red zone stays as it is. The symbol is what the linker resolves and what
//! `--gc-sections` follows; a call whose number is not known goes to `unilith_kept_any`, which brings all of them.
//!
//! | file | what |
//! | --- | --- |
//! | `edit.rs` | reads an object and writes the changed one |
//! | `sites.rs` | which instructions a jump may replace |
//! | `targets.rs` | where execution may come in |
//! | `number.rs` | the number of a call, from all the ways that lead to it |
//! | `function.rs` | calls of syscall(2) with a number that is known |

mod edit;
mod function;
mod number;
mod sites;
mod targets;

pub(crate) use edit::connect;
pub(crate) use function::{FUNCTION, assembly as functions};

/// What the names of the kernel's functions begin with that keep all registers.
pub(crate) const KEPT: &str = "unilith_kept_";
/// The one that makes any call, by its number in RAX.
pub(crate) const ANY: &str = "unilith_kept_any";

/// What was done with an object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Connected {
    /// The object, if it makes system calls.
    pub object: Option<Vec<u8>>,
    pub calls: usize,
    /// How many calls of syscall(2) have a number that is known.
    pub functions: usize,
    /// Functions that make a call whose number is not known.
    pub unknown: Vec<String>,
    /// Functions with a `syscall` that has no room for a jump around it.
    pub left: Vec<String>,
}

#[cfg(test)]
mod tests;
