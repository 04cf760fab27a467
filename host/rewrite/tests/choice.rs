// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which instructions are chosen, on assembled snippets.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod common;

use api_sites::{NUMBER_UNKNOWN, Site};
use common::{BASE, CODE, assemble_at, elf};
use iced_x86::code_asm::*;
use unilith_rewrite::{Scan, scan};

fn scan_code(build: impl FnOnce(&mut CodeAssembler) -> Result<(), iced_x86::IcedError>) -> Scan {
    scan(&elf(&assemble_at(BASE + CODE, build))).unwrap()
}

/// Offsets from the start of the code.
fn sites(scan: &Scan) -> Vec<Site> {
    scan.sites.iter().map(|s| Site { offset: s.offset - CODE as u32, ..*s }).collect()
}

#[test]
fn the_move_of_the_number_makes_way_for_the_jump() {
    let scan = scan_code(|a| {
        a.mov(eax, 39)?;
        a.syscall()?;
        a.ret()
    });
    assert_eq!(sites(&scan), [Site { offset: 0, before: 5, after: 0, number: 39 }]);
}

#[test]
fn the_number_is_included_when_it_is_a_little_further_back() {
    let scan = scan_code(|a| {
        a.mov(eax, 9)?;
        a.mov(r10, rcx)?;
        a.syscall()?;
        a.ret()
    });
    assert_eq!(sites(&scan), [Site { offset: 0, before: 8, after: 0, number: 9 }]);
}

#[test]
fn a_zeroed_register_is_read() {
    let scan = scan_code(|a| {
        a.mov(rsi, r8)?;
        a.xor(eax, eax)?;
        a.syscall()?;
        a.ret()
    });
    assert_eq!(sites(&scan), [Site { offset: 0, before: 5, after: 0, number: 0 }]);
}

#[test]
fn instructions_behind_are_taken_where_there_is_too_little_before() {
    let scan = scan_code(|a| {
        a.ret()?;
        a.syscall()?;
        a.cmp(rax, -4095)?;
        a.ret()
    });
    assert_eq!(sites(&scan), [Site { offset: 1, before: 0, after: 6, number: NUMBER_UNKNOWN }]);
}

#[test]
fn no_branch_may_lead_into_the_jump() {
    // The call's number is loaded in two places; both join before the `syscall`.
    let scan = scan_code(|a| {
        let mut join = a.create_label();
        let mut other = a.create_label();
        a.test(edi, edi)?;
        a.je(other)?;
        a.mov(eax, 1)?;
        a.jmp(join)?;
        a.set_label(&mut other)?;
        a.mov(eax, 2)?;
        a.set_label(&mut join)?;
        a.syscall()?;
        a.mov(rbx, rax)?;
        a.ret()
    });
    // The second move is exactly what the jump replaces; who arrives at the join finds the `syscall` in its place.
    assert_eq!(sites(&scan), [Site { offset: 11, before: 5, after: 0, number: 2 }]);
}

#[test]
fn a_branch_to_the_syscall_forbids_a_jump_across_it() {
    let scan = scan_code(|a| {
        let mut here = a.create_label();
        a.ret()?;
        a.mov(edi, esi)?;
        a.set_label(&mut here)?;
        a.syscall()?;
        a.jmp(here)
    });
    assert!(sites(&scan).is_empty());
    assert_eq!(scan.missed.len(), 1);
}

#[test]
fn instructions_that_depend_on_their_place_stay() {
    // ret; lea 0(%rip),%rdi; syscall; jmp *%rax
    let relative = [0xc3, 0x48, 0x8d, 0x3d, 0, 0, 0, 0, 0x0f, 0x05, 0xff, 0xe0];
    let scan = scan_code(|a| a.db(&relative));
    assert!(scan.sites.is_empty());
    assert_eq!(scan.missed.len(), 1);
}

#[test]
fn padding_before_a_function_stays() {
    // nopl 0x0(%rax,%rax,1); syscall; ret: what precedes belongs to nobody.
    let scan = scan_code(|a| a.db(&[0xc3, 0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0, 0x0f, 0x05, 0xc3]));
    assert!(scan.sites.is_empty());
    assert_eq!(scan.missed.len(), 1);
}

#[test]
fn two_calls_close_together_do_not_overlap() {
    let scan = scan_code(|a| {
        a.mov(eax, 1)?;
        a.syscall()?;
        a.mov(eax, 2)?;
        a.syscall()?;
        a.mov(ebx, eax)?;
        a.mov(ecx, eax)?;
        a.syscall()?;
        a.mov(edx, eax)?;
        a.ret()
    });
    let found = sites(&scan);
    assert_eq!(found.len(), 3);
    assert!(found.windows(2).all(|w| w[0].offset + w[0].length() as u32 <= w[1].offset));
    assert!(api_sites::Sites::parse(&api_sites::encode(&scan.sites)).is_some());
}

#[test]
fn the_return_from_signals_keeps_its_bytes() {
    let scan = scan_code(|a| {
        // As in libc: the long form, which unwinders compare.
        a.db(&[0x48, 0xc7, 0xc0, 0x0f, 0, 0, 0])?;
        a.syscall()?;
        a.ret()
    });
    assert!(scan.sites.is_empty());
    assert_eq!(scan.missed[0].number, Some(15));
}

#[test]
fn a_call_with_prefixes_stays() {
    // mov $1,%eax; data16 rex.W syscall; ret
    let scan = scan_code(|a| a.db(&[0xb8, 1, 0, 0, 0, 0x66, 0x48, 0x0f, 0x05, 0xc3]));
    assert!(scan.sites.is_empty());
    assert_eq!(scan.missed.len(), 1);
}

#[test]
fn the_bytes_inside_other_instructions_are_not_calls() {
    let scan = scan_code(|a| {
        a.mov(eax, 0x050f)?;
        a.mov(ecx, 0x050f0000)?;
        a.ret()
    });
    assert!(scan.sites.is_empty() && scan.missed.is_empty());
    assert_eq!(scan.not_code, 2);
}

#[test]
fn data_between_code_is_left_alone() {
    // An `out` and an invalid instruction around the bytes: a table, not a program.
    let scan = scan_code(|a| {
        a.ret()?;
        a.db(&[0xe6, 0x11, 0xb8, 1, 0, 0, 0, 0x0f, 0x05, 0x06, 0x07, 0xc3])
    });
    assert!(scan.sites.is_empty());
}

#[test]
fn jump_tables_count_as_branches() {
    // A `jmp *table(,%rdi,8)` whose table holds the address of the instruction before the `syscall`.
    let table = |at: u64| at.to_le_bytes();
    let mut code = assemble_at(BASE + CODE, |a| {
        a.jmp(qword_ptr(rdi * 8 + 0x401100))?;
        a.xor(edi, edi)?;
        a.mov(esi, 1)?;
        a.syscall()?;
        a.ret()
    });
    let before = scan(&elf(&code)).unwrap();
    assert_eq!(before.sites.len(), 1);
    let syscall = code.windows(2).position(|w| w == [0x0f, 0x05]).unwrap() as u64;
    code.resize(0x100, 0xcc);
    code.extend(table(0x401000 + syscall - 5));
    code.extend(table(0x401000 + syscall));
    let after = scan(&elf(&code)).unwrap();
    let site = after.sites[0];
    // The five bytes are the move alone, to whose first byte the table may lead.
    assert_eq!((u64::from(site.offset) - CODE, site.before), (syscall - 5, 5));
}

#[test]
fn damaged_files_are_errors_and_never_panics() {
    assert!(scan(b"").is_err());
    assert!(scan(b"\x7fELF").is_err());
    let whole = elf(&assemble_at(BASE + CODE, |a| {
        a.mov(eax, 39)?;
        a.syscall()?;
        a.ret()
    }));
    for cut in 0..whole.len() {
        // Cut files may be readable up to the cut; what matters is that the answer is well formed.
        if let Ok(scan) = scan(&whole[..cut]) {
            assert!(scan.sites.iter().all(|s| s.offset as usize + s.length() <= cut));
        }
    }
}
