// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Sorting in little code: the standard library's sorts are 3 to 6 kB for each type that is sorted.

/// Heap sort (Williams 1964): in place, n log n at worst, not stable.
pub fn sort<T>(items: &mut [T], is_less: impl Fn(&T, &T) -> bool) {
    let mut end = items.len();
    let mut start = end / 2;
    while end > 1 {
        if start > 0 {
            // The heap grows downwards until it is whole.
            start -= 1;
        } else {
            // Its largest goes behind it.
            end -= 1;
            items.swap(0, end);
        }
        let mut root = start;
        while let Some(left) = items.get(2 * root + 1).filter(|_| 2 * root + 1 < end) {
            let mut child = 2 * root + 1;
            if child + 1 < end && is_less(left, &items[child + 1]) {
                child += 1;
            }
            if !is_less(&items[root], &items[child]) {
                break;
            }
            items.swap(root, child);
            root = child;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    #[test]
    fn any_order_becomes_the_one_that_was_asked_for() {
        let mut seed: u32 = 1;
        for length in 0..200 {
            let mut items: Vec<u32> = (0..length)
                .map(|_| {
                    seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                    seed >> 24
                })
                .collect();
            let mut expected = items.clone();
            expected.sort_unstable_by(|a, b| b.cmp(a));
            sort(&mut items, |a, b| a > b);
            assert_eq!(items, expected);
        }
    }
}
