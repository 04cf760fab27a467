// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Calls of syscall(2), the function. It makes any call, so whoever refers to it has all calls in the image. Where its first
//! argument is a constant, the caller gets a function that makes this call alone.

use object::{
    Object as _, ObjectSection as _, ObjectSymbol as _, RelocationFlags, RelocationTarget, elf,
    read::elf::ElfFile64,
};
use std::{collections::BTreeMap, fmt::Write as _};

/// What the names of functions begin with that make one call, as syscall(2) does.
pub(crate) const FUNCTION: &str = "unilith_libc_syscall_";

/// Where sections call syscall(2): the places of the relocations, by the number of the section.
pub(super) fn calls(file: &ElfFile64<'_>) -> BTreeMap<usize, Vec<u64>> {
    let mut out: BTreeMap<usize, Vec<u64>> = BTreeMap::new();
    let is_syscall = |symbol: &object::read::elf::ElfSymbol64<'_, '_>| {
        symbol.is_undefined() && symbol.name() == Ok("syscall")
    };
    let Some(syscall) = file.symbols().find(is_syscall).map(|symbol| symbol.index()) else { return out };
    for section in file.sections().filter(|section| section.kind() == object::SectionKind::Text) {
        for (place, relocation) in section.relocations() {
            let is_call = matches!(
                relocation.flags(),
                RelocationFlags::Elf { r_type: elf::R_X86_64_PLT32 | elf::R_X86_64_PC32 }
            );
            if is_call && relocation.target() == RelocationTarget::Symbol(syscall) {
                out.entry(section.index().0).or_default().push(place);
            }
        }
    }
    out
}

/// These functions, in assembly. The kernel's is entered as a function of its own (`micro/kernel/src/linked.s`): nobody expects
/// that a call of a function keeps more.
pub(crate) fn assembly() -> String {
    let mut text = String::new();
    for number in syscall_table::ROWS.iter().map(|row| row.number) {
        let name = format!("{FUNCTION}{number}");
        let _ = write!(
            text,
            ".section .text.{name},\"ax\",@progbits
            .globl {name}
            .type {name}, @function
            {name}:
                .cfi_startproc
                mov %rsi, %rdi
                mov %rdx, %rsi
                mov %rcx, %rdx
                mov %r8, %r10
                mov %r9, %r8
                mov 8(%rsp), %r9
                lea 1f(%rip), %rcx
                movabs $unilith_syscall_{number}, %r11
                jmp *%r11
            1:  cmp $-4095, %rax
                jae 2f
                ret
            2:  neg %eax
                mov errno@gottpoff(%rip), %rcx
                mov %eax, %fs:(%rcx)
                mov $-1, %rax
                ret
                .cfi_endproc
                .size {name}, . - {name}\n"
        );
    }
    text + ".section .note.GNU-stack,\"\",@progbits\n"
}
