// SPDX-License-Identifier: Apache-2.0 OR MIT
//! fork: what both address spaces see afterwards, and what it costs.

use super::*;
use crate::pager::{LARGE, LARGE_PAGES, Pager};

/// Frames of the pages that are there.
fn frames(space: &Space, start: u64, pages: u64) -> Vec<u64> {
    let mut inner = space.lock();
    (0..pages).filter_map(|i| inner.pager.page(start + i * PAGE)).map(|page| page.physical).collect()
}

#[test]
fn pages_are_shared_until_one_of_both_writes() {
    let parent = space();
    let a = parent.map(Request::anonymous(4 * PAGE, RW)).unwrap();
    for page in 0..3 {
        store(&parent, a + page * PAGE, 10 + page as u8).unwrap();
    }
    let child = parent.fork().unwrap();
    assert_eq!(maps(&parent), maps(&child));
    assert_eq!(child.usage().anonymous, 3 * PAGE);
    assert_eq!(frames(&parent, a, 4), frames(&child, a, 4));
    store(&child, a, 77).unwrap();
    store(&parent, a + PAGE, 88).unwrap();
    assert_eq!((load(&parent, a), load(&child, a)), (Ok(10), Ok(77)));
    assert_eq!((load(&parent, a + PAGE), load(&child, a + PAGE)), (Ok(88), Ok(11)));
    assert_eq!(frames(&parent, a + 2 * PAGE, 1), frames(&child, a + 2 * PAGE, 1));
    // What was not there comes up empty in each of them.
    store(&child, a + 3 * PAGE, 5).unwrap();
    assert_eq!(load(&parent, a + 3 * PAGE), Ok(0));
    assert_eq!((parent.usage().anonymous, child.usage().anonymous), (3 * PAGE, 4 * PAGE));
}

#[test]
fn the_last_holder_gets_the_page_itself() {
    let parent = space();
    let a = parent.map(Request::anonymous(PAGE, RW)).unwrap();
    store(&parent, a, 1).unwrap();
    let before = frames(&parent, a, 1);
    let child = parent.fork().unwrap();
    drop(child);
    store(&parent, a, 2).unwrap();
    assert_eq!(frames(&parent, a, 1), before);
    let child = parent.fork().unwrap();
    parent.unmap(a, PAGE).unwrap();
    store(&child, a, 3).unwrap();
    assert_eq!(frames(&child, a, 1), before);
}

#[test]
fn no_change_of_rights_makes_a_shared_page_writable() {
    let parent = space();
    let a = parent.map(Request::anonymous(2 * PAGE, RW)).unwrap();
    store(&parent, a, 1).unwrap();
    store(&parent, a + PAGE, 1).unwrap();
    let child = parent.fork().unwrap();
    for space in [&parent, &child] {
        space.protect(a, 2 * PAGE, Prot::NONE, false).unwrap();
        space.protect(a, 2 * PAGE, RW, false).unwrap();
        assert!(!space.lock().pager.page(a).unwrap().rights.contains(Prot::WRITE));
    }
    let moved = child
        .remap(Remap {
            address: a,
            old_length: 2 * PAGE,
            new_length: 2 * PAGE,
            may_move: true,
            fixed: Some(0x7000_0000),
            keep: false,
        })
        .unwrap();
    child.protect(moved, PAGE, Prot::READ, false).unwrap();
    child.protect(moved, PAGE, RW, false).unwrap();
    store(&child, moved, 9).unwrap();
    store(&child, moved + PAGE, 9).unwrap();
    assert_eq!((load(&parent, a), load(&parent, a + PAGE)), (Ok(1), Ok(1)));
}

#[test]
fn shared_mappings_stay_shared_and_advice_about_fork_is_followed() {
    let parent = space();
    let shared = parent.map(Request { shared: true, ..Request::anonymous(PAGE, RW) }).unwrap();
    let (_, mapped) = TestFile::new(&[4; 4096]).mapped();
    let of_file = parent.map(Request { shared: true, ..Request::anonymous(PAGE, RW) }.of(mapped, 0)).unwrap();
    let gone = parent.map(Request::anonymous(PAGE, RW)).unwrap();
    let wiped = parent.map(Request::anonymous(PAGE, RW)).unwrap();
    for (i, at) in [shared, of_file, gone, wiped].into_iter().enumerate() {
        store(&parent, at, i as u8 + 1).unwrap();
    }
    parent.advise(gone, PAGE, Advice::Fork(false)).unwrap();
    parent.advise(wiped, PAGE, Advice::WipeOnFork(true)).unwrap();
    parent.set_locked(wiped, PAGE, true, false).unwrap();
    let child = parent.fork().unwrap();
    store(&child, shared, 50).unwrap();
    store(&parent, of_file, 60).unwrap();
    assert_eq!((load(&parent, shared), load(&child, of_file)), (Ok(50), Ok(60)));
    assert_eq!((load(&child, gone), load(&parent, gone)), (Err(UNMAPPED), Ok(3)));
    assert_eq!((load(&child, wiped), load(&parent, wiped)), (Ok(0), Ok(4)));
    assert_eq!((child.usage().locked, parent.usage().locked), (0, PAGE));
}

#[test]
fn a_large_page_is_shared_whole_and_becomes_small_where_it_is_written() {
    let parent = space();
    let a = parent.map(Request::anonymous(LARGE, RW).at(64 * LARGE)).unwrap();
    let pages = api_mem::Pages::new(LARGE_PAGES).unwrap();
    let physical = pages.physical();
    if parent.lock().pager.map_large(a, physical, RW) != Ok(true) {
        panic!("there was room for a large page");
    }
    pages.into_raw();
    parent.lock().count_resident(true, LARGE_PAGES as i64);
    store(&parent, a + 7 * PAGE, 7).unwrap();
    let child = parent.fork().unwrap();
    assert_eq!(child.usage().anonymous, LARGE);
    assert_eq!(load(&child, a + 7 * PAGE), Ok(7));
    store(&child, a + 7 * PAGE, 8).unwrap();
    assert_eq!(load(&parent, a + 7 * PAGE), Ok(7));
    assert_eq!(frames(&child, a + 8 * PAGE, 1), frames(&parent, a + 8 * PAGE, 1));
    assert_eq!(child.usage().anonymous, LARGE);
    drop(child);
    store(&parent, a, 1).unwrap();
    assert!(parent.lock().pager.page(a).unwrap().large, "nobody else has it: it stays large");
    assert_eq!(frames(&parent, a, 1), [physical]);
}

#[test]
fn a_page_that_a_device_writes_to_stays_the_parents() {
    let parent = space();
    let a = parent.map(Request::anonymous(PAGE, RW)).unwrap();
    let held = parent.hold(a, 4096, Access::Write);
    let child = parent.fork().unwrap();
    held[0].write(0, &[9]);
    store(&parent, a + 1, 1).unwrap();
    assert_eq!((load(&parent, a), load(&child, a)), (Ok(9), Ok(0)));
}

#[test]
fn text_keeps_its_stubs_in_both_and_each_loses_them_alone() {
    set_call_entry(|_| 0xffff_ffff_8020_0000);
    let parent = space();
    let mut code = vec![0x90u8; 4096];
    code[0x100..0x107].copy_from_slice(&[0xb8, 39, 0, 0, 0, 0x0f, 0x05]);
    let sites = api_sites::encode(&[api_sites::Site { offset: 0x100, before: 5, after: 0, number: 39 }]);
    let (_, mapped) = TestFile { sites, ..TestFile::new(&code) }.mapped();
    let a = parent.map(Request::anonymous(PAGE, RX).of(mapped, 0)).unwrap();
    assert_eq!(load(&parent, a + 0x100), Ok(0xe9));
    let child = parent.fork().unwrap();
    assert_eq!(load(&child, a + 0x100), Ok(0xe9));
    assert_eq!(maps(&child).len(), 2);
    // A tracer changes the code of one of them only.
    let (mut jump, at) = ([0; 5], a + 0x100);
    parent.read(at, &mut jump).unwrap();
    parent.poke_code(at, &jump, &[0xcc; 5]).unwrap();
    assert_eq!((load(&parent, at), load(&child, at)), (Ok(0xcc), Ok(0xe9)));
    parent.unmap(a, PAGE).unwrap();
    assert_eq!((maps(&parent).len(), maps(&child).len()), (0, 2));
    child.unmap(a, PAGE).unwrap();
    assert_eq!(maps(&child).len(), 0);
}

/// A family of address spaces forks, writes, changes rights and dies at random; each must see its own bytes, and at the
/// end no page is left.
#[test]
fn a_family_of_spaces_never_sees_each_others_writes() {
    const PAGES: u64 = 8;
    let mut seed = 0x9e37_79b9_7f4a_7c15u64;
    let mut random = |below: u64| {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        seed % below
    };
    let first = space();
    let a = first.map(Request::anonymous(PAGES * PAGE, RW)).unwrap();
    let mut family = vec![(first, [0u8; PAGES as usize])];
    for step in 0..20_000u32 {
        let who = random(family.len() as u64) as usize;
        let page = random(PAGES);
        let at = a + page * PAGE;
        match random(10) {
            0 if family.len() < 8 => {
                let (space, bytes) = &family[who];
                let child = (space.fork().unwrap(), *bytes);
                family.push(child);
            }
            1 if family.len() > 1 => drop(family.swap_remove(who)),
            2 => {
                let space = &family[who].0;
                space.protect(at, PAGE, Prot::READ, false).unwrap();
                space.protect(at, PAGE, RW, false).unwrap();
            }
            3 => {
                family[who].0.advise(at, PAGE, Advice::Discard).unwrap();
                family[who].1[page as usize] = 0;
            }
            4..8 => {
                store(&family[who].0, at, step as u8).unwrap();
                family[who].1[page as usize] = step as u8;
            }
            _ => {
                for (i, byte) in family[who].1.iter().enumerate() {
                    assert_eq!(load(&family[who].0, a + i as u64 * PAGE), Ok(*byte), "step {step}");
                }
            }
        }
    }
}

#[test]
fn what_was_written_after_a_fork_is_copied_by_the_next_one() {
    let parent = space();
    let a = parent.map(Request::anonymous(3 * PAGE, RW)).unwrap();
    for page in 0..3 {
        store(&parent, a + page * PAGE, 10 + page as u8).unwrap();
    }
    let child = parent.fork().unwrap();
    store(&child, a, 20).unwrap();
    store(&parent, a + PAGE, 30).unwrap();
    drop(child);
    let before = frames(&parent, a, 3);
    let child = parent.fork().unwrap();
    let page = |space: &Space, n: u64| space.lock().pager.page(a + n * PAGE).unwrap();
    // Both are each one's own, where nobody has to fault; the third is shared.
    for n in 0..2 {
        assert_ne!(page(&parent, n).physical, page(&child, n).physical);
        assert!(page(&child, n).rights.contains(Prot::WRITE) && !page(&child, n).copied);
    }
    assert!(page(&parent, 1).rights.contains(Prot::WRITE));
    assert_eq!(page(&parent, 2).physical, page(&child, 2).physical);
    assert_eq!(frames(&parent, a, 3), before);
    assert_eq!([0, 1, 2].map(|n| load(&child, a + n * PAGE)), [Ok(10), Ok(30), Ok(12)]);
    assert_eq!((parent.usage().anonymous, child.usage().anonymous), (3 * PAGE, 3 * PAGE));
    store(&child, a + PAGE, 31).unwrap();
    store(&parent, a, 11).unwrap();
    assert_eq!((load(&parent, a + PAGE), load(&child, a)), (Ok(30), Ok(10)));
    // What the parent may not write now is not writable in a child, nor what it gave back there.
    parent.protect(a, PAGE, Prot::READ, false).unwrap();
    parent.advise(a + PAGE, PAGE, Advice::Discard).unwrap();
    let child = parent.fork().unwrap();
    assert_eq!(store(&child, a, 1), Err(MAPPED));
    assert_eq!((load(&child, a), load(&child, a + PAGE)), (Ok(11), Ok(0)));
}

#[test]
fn a_fork_copies_no_more_than_the_latest_pages_that_were_written() {
    let parent = space();
    let pages = 40;
    let a = parent.map(Request::anonymous(pages * PAGE, RW)).unwrap();
    (0..pages).for_each(|page| store(&parent, a + page * PAGE, 1).unwrap());
    for _ in 0..3 {
        let child = parent.fork().unwrap();
        (0..pages).for_each(|page| store(&child, a + page * PAGE, 2).unwrap());
    }
    let child = parent.fork().unwrap();
    let (ours, theirs) = (frames(&parent, a, pages), frames(&child, a, pages));
    assert_eq!(ours.iter().zip(&theirs).filter(|(a, b)| a != b).count(), 16);
    assert!((0..pages).all(|page| load(&child, a + page * PAGE) == Ok(1)));
}
