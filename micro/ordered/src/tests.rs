// SPDX-License-Identifier: Apache-2.0 OR MIT

use crate::{Entry, Map, Set};
use std::collections::BTreeMap;
use std::ops::Bound;
use std::rc::Rc;
use std::string::{String, ToString};
use std::vec::Vec;

/// xorshift64
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }

    fn bound(&mut self, limit: u64) -> Bound<u64> {
        match self.below(3) {
            0 => Bound::Unbounded,
            1 => Bound::Included(self.below(limit)),
            _ => Bound::Excluded(self.below(limit)),
        }
    }
}

fn is_same(map: &Map<u64, u64>, model: &BTreeMap<u64, u64>) {
    map.check();
    assert!(map.iter().eq(model.iter()), "{map:?}");
    assert!(map.iter().rev().eq(model.iter().rev()));
}

#[test]
fn whatever_is_done_to_it_it_is_what_the_b_tree_is() {
    let mut n = Numbers(0x1234_5678_9abc_def1);
    for range in [4, 30, 200, 3000] {
        let (mut map, mut model) = (Map::new(), BTreeMap::new());
        for turn in 0..20_000 {
            let (key, value) = (n.below(range), n.below(1000));
            match n.below(10) {
                0..4 => assert_eq!(map.insert(key, value), model.insert(key, value)),
                4..7 => assert_eq!(map.remove(&key), model.remove(&key)),
                7 => {
                    *map.entry(key).or_insert(value) += 1;
                    *model.entry(key).or_insert(value) += 1;
                }
                8 if turn % 64 == 0 => {
                    map.retain(|k, v| (*k + *v) % 5 != 0);
                    model.retain(|k, v| (*k + *v) % 5 != 0);
                }
                9 if turn % 64 == 0 => {
                    let (rest, expected) = (map.split_off(&key), model.split_off(&key));
                    is_same(&rest, &expected);
                }
                _ => {
                    assert_eq!(map.first_key_value(), model.first_key_value());
                    assert_eq!(map.last_key_value(), model.last_key_value());
                    assert_eq!(map.get(&key), model.get(&key));
                    assert_eq!(map.pop_first(), model.pop_first());
                    assert_eq!(map.pop_last(), model.pop_last());
                }
            }
            if turn % 50 == 0 {
                is_same(&map, &model);
            }
        }
        is_same(&map, &model);
    }
}

#[test]
fn ranges_are_those_of_the_b_tree() {
    let mut n = Numbers(77);
    for size in 0..40 {
        let model: BTreeMap<u64, u64> = (0..size).map(|_| (n.below(60), n.below(9))).collect();
        let mut map: Map<u64, u64> = model.iter().map(|(k, v)| (*k, *v)).collect();
        for _ in 0..300 {
            let (start, end) = (n.bound(64), n.bound(64));
            let (low, high) = match (start, end) {
                (Bound::Included(a) | Bound::Excluded(a), Bound::Included(b) | Bound::Excluded(b)) => (a, b),
                _ => (0, 1),
            };
            // The B-tree panics where this one is empty.
            let expected: Vec<(u64, u64)> = if low >= high {
                model
                    .iter()
                    .filter(|(k, _)| {
                        low == high && (start, end) == (Bound::Included(**k), Bound::Included(**k))
                    })
                    .map(|(k, v)| (*k, *v))
                    .collect()
            } else {
                model.range((start, end)).map(|(k, v)| (*k, *v)).collect()
            };
            let own: Vec<(u64, u64)> = map.range((start, end)).map(|(k, v)| (*k, *v)).collect();
            assert_eq!(own, expected, "{start:?} {end:?} of {model:?}");
            let mut back: Vec<(u64, u64)> =
                map.range_mut((start, end)).rev().map(|(k, v)| (*k, *v)).collect();
            back.reverse();
            assert_eq!(back, expected);
        }
    }
}

#[test]
fn both_ends_of_an_iteration_meet() {
    let map: Map<u32, ()> = (0..9).map(|k| (k, ())).collect();
    let mut keys = map.keys();
    let mut seen = Vec::new();
    while let (Some(front), back) = (keys.next(), keys.next_back()) {
        seen.push(*front);
        seen.extend(back);
    }
    assert_eq!(seen, [0, 8, 1, 7, 2, 6, 3, 5, 4]);
    assert_eq!(keys.next(), None);
    assert_eq!(keys.next_back(), None);
}

#[test]
fn every_entry_is_dropped_once() {
    let counted = Rc::new(());
    let mut map: Map<u32, Rc<()>> = (0..100).map(|k| (k, counted.clone())).collect();
    assert_eq!(Rc::strong_count(&counted), 101);
    map.insert(5, counted.clone());
    map.remove(&6);
    map.retain(|k, _| k % 2 == 1);
    assert_eq!(Rc::strong_count(&counted), 51);
    let mut rest = map.split_off(&51).into_iter();
    assert!(rest.next().is_some() && rest.next_back().is_some());
    drop(rest);
    assert_eq!(Rc::strong_count(&counted), 26);
    let copy = map.clone();
    map.clear();
    assert!(map.is_empty() && copy.len() == 25);
    drop(copy);
    assert_eq!(Rc::strong_count(&counted), 1);
}

#[test]
fn entries_tell_what_is_there() {
    let mut map: Map<String, u32> = Map::new();
    for word in ["b", "a", "b"] {
        match map.entry(word.to_string()) {
            Entry::Vacant(vacant) => {
                assert_eq!(vacant.key(), word);
                assert_eq!(*vacant.insert(1), 1);
            }
            Entry::Occupied(mut occupied) => {
                assert_eq!((occupied.key().as_str(), *occupied.get()), ("b", 1));
                *occupied.get_mut() += 1;
            }
        }
    }
    assert_eq!(map.get("b"), Some(&2));
    *map.get_mut("a").expect("it was put there") += 5;
    assert_eq!(map.first_entry().map(|e| e.remove()), Some(6));
    assert_eq!(map.last_entry().map(|e| e.remove_entry()), Some(("b".to_string(), 2)));
    assert!(map.is_empty() && map.first_entry().is_none());
    map.entry("c".to_string()).or_default();
    assert!(map.values_mut().map(|v| *v).eq([0]));
    assert!(map.into_values().eq([0]));
}

#[test]
fn a_set_is_ordered_and_says_what_is_new() {
    let mut set = Set::from([3, 1, 2]);
    assert!(!set.insert(3) && set.insert(9) && set.remove(&1) && !set.contains(&1));
    assert!(set.range(3..).eq(&[3, 9]));
    assert_eq!(set.split_off(&9).len(), 1);
    set.extend([7]);
    assert!(set.iter().eq(&[2, 3, 7]) && !set.is_empty());
    assert!(set.into_iter().eq([2, 3, 7]));
}
