// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Random operations against the simplest model there is: a map from page to rights and contents.

use super::*;
use std::collections::BTreeMap;

const PAGES: u64 = 96;
const BASE: u64 = 0x7000_0000;

/// Numbers that a seed means again (Marsaglia's xorshift).
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % n
    }
}

#[derive(Clone, Copy, Debug)]
struct ModelPage {
    rights: Prot,
    byte: u8,
}

fn run(seed: u64, steps: u32) {
    let s = space();
    let mut random = Random(seed);
    let mut model: BTreeMap<u64, ModelPage> = BTreeMap::new();
    for step in 0..steps {
        let first = random.below(PAGES);
        let count = 1 + random.below((PAGES - first).min(12));
        let (start, length) = (BASE + first * PAGE, count * PAGE);
        let range = first..first + count;
        let rights = [Prot::NONE, Prot::READ, RW, RW, RX][random.below(5) as usize];
        match random.below(10) {
            0 | 1 => {
                s.map(Request::anonymous(length, rights).at(start)).unwrap();
                model.extend(range.map(|p| (p, ModelPage { rights, byte: 0 })));
            }
            2 => {
                s.unmap(start, length).unwrap();
                model.retain(|p, _| !range.contains(p));
            }
            3 => {
                let hole = range.clone().find(|p| !model.contains_key(p));
                let result = s.protect(start, length, rights, false);
                assert_eq!(result.is_err(), hole.is_some());
                for p in range.take_while(|p| hole.is_none_or(|h| *p < h)) {
                    model.get_mut(&p).unwrap().rights = rights;
                }
            }
            4 => {
                let hole = range.clone().any(|p| !model.contains_key(&p));
                assert_eq!(s.advise(start, length, Advice::Discard).is_err(), hole);
                range.for_each(|p| {
                    if let Some(page) = model.get_mut(&p) {
                        page.byte = 0;
                    }
                });
            }
            5 => {
                let to = random.below(PAGES - count);
                let alike = range.clone().all(|p| model.contains_key(&p));
                let apart = to + count <= first || to >= first + count;
                let ask = Remap {
                    address: start,
                    old_length: length,
                    new_length: length,
                    may_move: true,
                    fixed: Some(BASE + to * PAGE),
                    keep: false,
                };
                match s.remap(ask) {
                    Ok(_) => {
                        assert!(alike && apart);
                        for (i, p) in range.enumerate() {
                            let page = model.remove(&p).unwrap();
                            model.insert(to + i as u64, page);
                        }
                    }
                    Err(EINVAL) => assert!(!apart),
                    // One mapping is needed; the model does not know where mappings end.
                    Err(e) => assert_eq!(e, EFAULT),
                }
            }
            _ => {
                let (address, byte) = (start + random.below(PAGE), step as u8 | 1);
                let page = model.get_mut(&first);
                if random.below(2) == 0 {
                    let expected = match &page {
                        None => Err(UNMAPPED),
                        Some(p) if !p.rights.contains(Prot::WRITE) => Err(MAPPED),
                        _ => Ok(()),
                    };
                    // The first byte of a page stands for all of it.
                    assert_eq!(store(&s, address & !(PAGE - 1), byte), expected);
                    if let (Some(page), Ok(())) = (page, expected) {
                        page.byte = byte;
                    }
                } else {
                    let expected = match page {
                        None => Err(UNMAPPED),
                        Some(p) if p.rights.is_none() => Err(MAPPED),
                        Some(p) => Ok(p.byte),
                    };
                    assert_eq!(load(&s, address & !(PAGE - 1)), expected);
                }
            }
        }
        if step % 64 == 0 {
            check(&s, &model);
        }
    }
    check(&s, &model);
    s.unmap(BASE, PAGES * PAGE).unwrap();
    let left = s.usage();
    assert_eq!((left.size, left.anonymous, left.file, left.data, left.tables), (0, 0, 0, 0, PAGE));
}

fn check(s: &Space, model: &BTreeMap<u64, ModelPage>) {
    let mut listed = BTreeMap::new();
    for line in s.mappings().unwrap() {
        for page in (line.start..line.end).step_by(PAGE as usize) {
            assert!(listed.insert((page - BASE) / PAGE, line.rights).is_none(), "mappings overlap");
        }
    }
    let expected: BTreeMap<_, _> = model.iter().map(|(p, page)| (*p, page.rights)).collect();
    assert_eq!(listed, expected);
    let writable = model.values().filter(|p| p.rights.contains(Prot::WRITE)).count() as u64;
    let usage = s.usage();
    assert_eq!((usage.size, usage.data), (model.len() as u64 * PAGE, writable * PAGE));
}

#[test]
fn random_operations_agree_with_a_map_of_pages() {
    for seed in 1..60u64 {
        run(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15), 600);
    }
}
