// SPDX-License-Identifier: Apache-2.0 OR MIT
//! System-call sites: the code that results is run by hand.

use super::*;
use api_sites::{NUMBER_UNKNOWN, Site, encode};

const ENTRY: u64 = 0xffff_ffff_8020_1230;

fn entry(number: Option<u16>) -> u64 {
    ENTRY + number.map_or(0, |n| u64::from(n) * 16)
}

/// Bytes at an address of the program.
fn bytes(s: &Space, address: u64, count: u64) -> Vec<u8> {
    (address..address + count).map(|a| load(s, a).unwrap()).collect()
}

fn jump_target(s: &Space, at: u64) -> u64 {
    let b = bytes(s, at, 5);
    assert_eq!(b[0], 0xe9, "no jump at {at:#x}: {b:x?}");
    (at + 5).wrapping_add_signed(i32::from_le_bytes(b[1..].try_into().unwrap()).into())
}

/// Three pages of text: sites on pages 0 and 2, one across the end of page 0.
fn text() -> (Arc<TestFile>, Arc<MappedFile>) {
    known_text(None)
}

/// The same of a file whose bytes never change.
fn known_text(content: Option<u64>) -> (Arc<TestFile>, Arc<MappedFile>) {
    let mut code = vec![0x90u8; 3 * 4096];
    code[0x100..0x107].copy_from_slice(&[0xb8, 39, 0, 0, 0, 0x0f, 0x05]);
    code[0xffd..0x1004].copy_from_slice(&[0xb8, 1, 0, 0, 0, 0x0f, 0x05]);
    code[0x2010..0x2016].copy_from_slice(&[0x0f, 0x05, 0x48, 0x89, 0xc3, 0x90]);
    let sites = [
        Site { offset: 0x100, before: 5, after: 0, number: 39 },
        Site { offset: 0xffd, before: 5, after: 0, number: 1 },
        Site { offset: 0x2010, before: 0, after: 4, number: NUMBER_UNKNOWN },
    ];
    TestFile { sites: encode(&sites), content, ..TestFile::new(&code) }.mapped()
}

/// A space that has mapped the text, and where: each at another address.
fn with_text(content: u64, at: u64) -> Arc<Space> {
    let s = space();
    let (_, mapped) = known_text(Some(content));
    s.map(Request::anonymous(3 * PAGE, RX).of(mapped, 0).at(at)).unwrap();
    s
}

const AT: u64 = 0x1000_0000;
/// What is known of texts is known to all tests, and one of them gives it all back.
static KNOWN_TEXTS: std::sync::Mutex<()> = std::sync::Mutex::new(());

/// The page at an address, if it is there without a fault.
fn physical(s: &Space, address: u64) -> Option<u64> {
    use crate::pager::Pager;
    s.lock().pager.page(address).map(|page| page.physical)
}

#[test]
fn text_that_is_mapped_again_and_again_is_patched_once_for_all() {
    let _alone = KNOWN_TEXTS.lock().unwrap_or_else(|e| e.into_inner());
    set_call_entry(entry);
    let alone = [with_text(1, AT), with_text(1, AT + PAGE)];
    assert_eq!(physical(&alone[0], AT), None);
    jump_target(&alone[0], AT + 0x100);
    // The third one, and others wherever they have it.
    let third = with_text(1, AT + 5 * PAGE);
    let fourth = with_text(1, AT + 9 * PAGE);
    let (a, b) = (AT + 5 * PAGE, AT + 9 * PAGE);
    for offset in [0, 2 * PAGE] {
        assert!(physical(&third, a + offset).is_some(), "there without a fault");
        assert_eq!(physical(&third, a + offset), physical(&fourth, b + offset));
    }
    for (s, a) in [(&third, a), (&fourth, b)] {
        let stub = jump_target(s, a + 0x100);
        assert_eq!(bytes(s, stub, 5), [0xb8, 39, 0, 0, 0]);
        let code = bytes(s, stub, 32);
        let resume =
            (stub + 12).wrapping_add_signed(i32::from_le_bytes(code[8..12].try_into().unwrap()).into());
        assert_eq!(resume, a + 0x107);
        assert_eq!(jump_target(s, jump_target(s, a + 0x2010) + 28), a + 0x2016);
        assert_eq!(s.usage().anonymous, 0, "pages of a file to the program");
        assert_eq!(store(s, a + 0x100, 0), Err(MAPPED));
    }
    // Other bytes, or the same ones with stubs elsewhere, have nothing to do with it.
    assert_eq!(physical(&with_text(2, AT), AT), None);
    let crowded = space();
    crowded.map(Request::anonymous(PAGE, RW).at(AT - PAGE)).unwrap();
    let (_, mapped) = known_text(Some(1));
    crowded.map(Request::anonymous(3 * PAGE, RX).of(mapped, 0).at(AT)).unwrap();
    assert_eq!(physical(&crowded, AT), None);
    jump_target(&crowded, AT + 0x100);
}

#[test]
fn what_changes_text_changes_it_for_its_own_space_alone() {
    let _alone = KNOWN_TEXTS.lock().unwrap_or_else(|e| e.into_inner());
    set_call_entry(entry);
    let [_, _, written, poked, traced, moved, plain] = [0; 7].map(|_| with_text(3, AT));
    let shared = physical(&plain, AT);
    assert!(shared.is_some());
    written.protect(AT, 3 * PAGE, RW, false).unwrap();
    store(&written, AT + 0x101, 7).unwrap();
    assert_eq!(load(&written, AT + 0x101), Ok(7));
    poked.poke(AT + 0x2010, &[0xcc]).unwrap();
    let child = poked.fork().unwrap();
    traced.start_tracing().unwrap();
    assert_eq!(bytes(&traced, AT + 0x100, 7), [0xb8, 39, 0, 0, 0, 0x0f, 0x05]);
    let to = 0x2000_0000;
    let ask = Remap {
        address: AT,
        old_length: 3 * PAGE,
        new_length: 3 * PAGE,
        may_move: true,
        fixed: Some(to),
        keep: false,
    };
    moved.remap(ask).unwrap();
    assert_eq!(bytes(&moved, to + 0x100, 7), [0xb8, 39, 0, 0, 0, 0x0f, 0x05]);
    assert_eq!(bytes(&moved, to + 0x2010, 2), [0x0f, 0x05]);
    moved.unmap(to, 3 * PAGE).unwrap();
    assert_eq!(moved.usage().resident(), 0);
    assert_eq!((bytes(&child, AT + 0x2010, 1), bytes(&poked, AT + 0x2010, 1)), (vec![0xcc], vec![0xcc]));
    jump_target(&child, AT + 0x100);
    jump_target(&plain, AT + 0x2010);
    jump_target(&plain, AT + 0x100);
    assert_eq!(physical(&plain, AT), shared);
    // Pages that were dropped come back the same.
    plain.advise(AT, 3 * PAGE, Advice::Discard).unwrap();
    assert_eq!(physical(&plain, AT), None);
    jump_target(&plain, AT + 0x100);
    assert_eq!(physical(&plain, AT), shared);
}

#[test]
fn common_text_is_given_back_when_memory_is_short() {
    let _alone = KNOWN_TEXTS.lock().unwrap_or_else(|e| e.into_inner());
    set_call_entry(entry);
    let spaces = [0; 4].map(|_| with_text(4, AT));
    let shared = physical(&spaces[3], AT).unwrap();
    release_common_text();
    jump_target(&spaces[3], AT + 0x100);
    assert_eq!(crate::fault::borrowed(shared).handles(), 3, "two spaces, and what both keep");
    drop(spaces);
    assert_eq!(physical(&with_text(4, AT), AT), None);
}

#[test]
fn sites_become_jumps_to_stubs_that_enter_the_kernel_and_come_back() {
    set_call_entry(entry);
    let s = space();
    let (file, mapped) = text();
    let a = s.map(Request::anonymous(3 * PAGE, RX).of(mapped, 0)).unwrap();
    assert_eq!(s.mappings().unwrap().len(), 2, "text and its stubs");
    let stub = jump_target(&s, a + 0x100);
    assert!(stub.abs_diff(a) < 1 << 31);
    let code = bytes(&s, stub, 5 + 7 + 6 + 6 + 8);
    assert_eq!(code[..5], [0xb8, 39, 0, 0, 0], "the instruction before the call");
    assert_eq!(code[5..8], [0x48, 0x8d, 0x0d]);
    let resume = (stub + 12).wrapping_add_signed(i32::from_le_bytes(code[8..12].try_into().unwrap()).into());
    assert_eq!(resume, a + 0x107, "RCX is the address behind the syscall");
    assert_eq!(code[12..18], [0xff, 0x25, 6, 0, 0, 0], "the address is aligned");
    assert_eq!(u64::from_le_bytes(code[24..32].try_into().unwrap()), entry(Some(39)));
    assert_eq!(bytes(&s, a + 0x105, 2), [0x0f, 0x05], "an unexpected jump to the call still traps");

    let stub = jump_target(&s, a + 0x2010);
    let code = bytes(&s, stub, 7 + 6 + 3 + 8 + 4 + 5);
    let resume = (stub + 7).wrapping_add_signed(i32::from_le_bytes(code[3..7].try_into().unwrap()).into());
    assert_eq!(resume, stub + 24);
    assert_eq!(u64::from_le_bytes(code[16..24].try_into().unwrap()), entry(None));
    assert_eq!(code[24..28], [0x48, 0x89, 0xc3, 0x90], "the instructions after the call");
    assert_eq!(jump_target(&s, stub + 28), a + 0x2016);

    assert_eq!(bytes(&s, a + 0xffd, 7), [0xb8, 1, 0, 0, 0, 0x0f, 0x05], "across a page: left to trap");
    let mut original = [0; 2];
    file.pages[0].read(0x100, &mut original);
    assert_eq!(original, [0xb8, 39], "the file is untouched");
    // Neither text nor stubs can be written by the program.
    assert_eq!(store(&s, stub, 0), Err(MAPPED));
    assert_eq!(store(&s, a + 0x100, 0), Err(MAPPED));
}

#[test]
fn pages_without_sites_are_the_files_own() {
    set_call_entry(entry);
    let s = space();
    let (_, mapped) = text();
    let a = s.map(Request::anonymous(3 * PAGE, RX).of(mapped, 0)).unwrap();
    load(&s, a + PAGE).unwrap();
    assert_eq!((s.usage().anonymous, s.usage().file), (0, PAGE));
    load(&s, a).unwrap();
    assert_eq!(s.usage().anonymous, 2 * PAGE, "the patched copy and a page of stubs");
}

#[test]
fn text_that_becomes_executable_later_is_patched_then() {
    set_call_entry(entry);
    let s = space();
    let (_, mapped) = text();
    let a = s.map(Request::anonymous(3 * PAGE, Prot::READ).of(mapped, 0)).unwrap();
    assert_eq!(bytes(&s, a + 0x100, 1), [0xb8]);
    s.protect(a, 3 * PAGE, RX, false).unwrap();
    jump_target(&s, a + 0x100);
    s.protect(a, 3 * PAGE, RW, false).unwrap();
    store(&s, a + 0x800, 1).unwrap();
    s.protect(a, 3 * PAGE, RX, false).unwrap();
    jump_target(&s, a + 0x100);
    assert_eq!(load(&s, a + 0x800), Ok(1));
}

#[test]
fn stubs_go_with_the_last_of_their_text() {
    set_call_entry(entry);
    let s = space();
    let (_, mapped) = text();
    let a = s.map(Request::anonymous(3 * PAGE, RX).of(mapped, 0)).unwrap();
    jump_target(&s, a + 0x100);
    s.unmap(a, PAGE).unwrap();
    assert_eq!(s.mappings().unwrap().len(), 2);
    jump_target(&s, a + 0x2010);
    s.unmap(a + PAGE, 2 * PAGE).unwrap();
    assert_eq!(s.mappings().unwrap().len(), 0);
    assert_eq!(s.usage().resident(), 0);
}

#[test]
fn moved_text_gets_its_own_bytes_back() {
    set_call_entry(entry);
    let s = space();
    let (_, mapped) = text();
    let a = s.map(Request::anonymous(3 * PAGE, RX).of(mapped, 0)).unwrap();
    jump_target(&s, a + 0x100);
    let ask = Remap {
        address: a,
        old_length: 3 * PAGE,
        new_length: 3 * PAGE,
        may_move: true,
        fixed: Some(0x1000_0000),
        keep: false,
    };
    s.remap(ask).unwrap();
    assert_eq!(bytes(&s, 0x1000_0100, 7), [0xb8, 39, 0, 0, 0, 0x0f, 0x05]);
    assert_eq!(s.mappings().unwrap().len(), 1);
}

#[test]
fn stubs_that_the_program_replaced_are_not_written() {
    set_call_entry(entry);
    let s = space();
    let (_, mapped) = text();
    let a = s.map(Request::anonymous(3 * PAGE, RX).of(mapped, 0)).unwrap();
    let stubs = s.mappings().unwrap().iter().find(|l| l.name == b"[calls]").unwrap().start;
    s.map(Request::anonymous(PAGE, RW).at(stubs)).unwrap();
    assert_eq!(bytes(&s, a + 0x100, 1), [0xb8], "the call traps");
    assert_eq!(load(&s, stubs), Ok(0));
}

#[test]
fn a_traced_space_shows_its_own_bytes_and_so_does_its_child() {
    set_call_entry(entry);
    let s = space();
    let (_, mapped) = text();
    let a = s.map(Request::anonymous(3 * PAGE, RX).of(mapped.clone(), 0)).unwrap();
    let stub = jump_target(&s, a + 0x100);
    s.start_tracing().unwrap();
    assert_eq!(bytes(&s, a + 0x100, 7), [0xb8, 39, 0, 0, 0, 0x0f, 0x05], "touched before");
    assert_eq!(bytes(&s, a + 0x2010, 6), [0x0f, 0x05, 0x48, 0x89, 0xc3, 0x90], "touched for the first time");
    assert_eq!(bytes(&s, stub, 5), [0xb8, 39, 0, 0, 0], "a thread may still be in a stub");
    let child = s.fork().unwrap();
    assert_eq!(bytes(&child, a + 0x100, 1), [0xb8]);
    assert_eq!(bytes(&child, a + 0x2010, 1), [0x0f]);
}

#[test]
fn an_address_in_a_stub_is_one_in_the_text() {
    set_call_entry(entry);
    let s = space();
    let (_, mapped) = text();
    let a = s.map(Request::anonymous(3 * PAGE, RX).of(mapped, 0)).unwrap();
    let (first, last) = (jump_target(&s, a + 0x100), jump_target(&s, a + 0x2010));
    let is = |stub: u64, offsets: &[(u64, u64)]| {
        for (offset, expected) in offsets {
            assert_eq!(s.original_address(stub + offset), a + expected, "{offset} behind {stub:#x}");
        }
    };
    // mov, lea, jmp.
    is(first, &[(0, 0x100), (5, 0x105), (12, 0x105)]);
    // lea, jmp, the two instructions behind the call, and the jump back.
    is(last, &[(0, 0x2010), (7, 0x2010), (24, 0x2012), (27, 0x2015), (28, 0x2016)]);
    is(a, &[(0, 0)]);
}

#[test]
fn a_breakpoint_is_in_a_copy() {
    set_call_entry(entry);
    let s = space();
    let (file, mapped) = text();
    let a = s.map(Request::anonymous(3 * PAGE, RX).of(mapped, 0)).unwrap();
    s.start_tracing().unwrap();
    let child = s.fork().unwrap();
    s.poke(a + 0x102, &[0xcc]).unwrap();
    s.poke(a + PAGE + 0x10, &[0xcc]).unwrap();
    let mut seen = [0; 3];
    s.peek(a + 0x101, &mut seen).unwrap();
    assert_eq!(seen, [39, 0xcc, 0]);
    assert_eq!(bytes(&child, a + 0x102, 1), [0]);
    file.pages[0].read(0x102, &mut seen[..1]);
    assert_eq!(seen[0], 0, "the file is untouched");
    assert_eq!(store(&s, a + 0x102, 0), Err(MAPPED), "the program may not write it");
    assert_eq!(bytes(&s, a + PAGE + 0x10, 1), [0xcc]);
}

#[test]
fn a_tracer_reaches_what_is_mapped_and_nothing_else() {
    let s = space();
    let a = s.map(Request::anonymous(2 * PAGE, RW)).unwrap();
    store(&s, a, 7).unwrap();
    s.protect(a, PAGE, Prot::NONE, false).unwrap();
    let mut seen = [1; 2];
    s.peek(a, &mut seen).unwrap();
    assert_eq!(seen, [7, 0]);
    s.poke(a, &[9]).unwrap();
    s.peek(a, &mut seen).unwrap();
    assert_eq!(seen[0], 9);
    assert_eq!(s.peek(a + 2 * PAGE - 1, &mut seen), Err(EIO));
    assert_eq!(s.poke(0xffff_8000_0000_0000, &[1]), Err(EIO));
    assert_eq!(s.peek(u64::MAX, &mut seen), Err(EIO));
    assert_eq!(s.peek(crate::USER_END - 1, &mut seen), Err(EIO));
}
