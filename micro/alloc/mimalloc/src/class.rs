// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Size classes: multiples of 16 up to 128, then four in each power of two, so that at most a fifth of a block is lost.

use crate::PAGE;
use core::alloc::Layout;

/// The smallest block: room for a link.
const UNIT: usize = 16;
/// Classes that are multiples of [`UNIT`]: up to 128 bytes.
const LINEAR: usize = 8;
/// Classes in a power of two above.
const PARTS: usize = 4;
const PARTS_BITS: u32 = PARTS.trailing_zeros();
/// The longest block of a class; longer ones are spans of their own.
const MAX_LENGTH: usize = 8192;
pub const CLASSES: usize = LINEAR + PARTS * (MAX_LENGTH.ilog2() - (LINEAR * UNIT).ilog2()) as usize;
/// A span has room for as many blocks of its class, or is as long as [`SPAN_PAGES`].
const SPAN_BLOCKS: usize = 8;
/// Pages of the longest span of blocks.
const SPAN_PAGES: usize = 8;

/// Bytes of a class's blocks.
pub const fn size_of_class(class: usize) -> usize {
    if class < LINEAR {
        return (class + 1) * UNIT;
    }
    let (power, part) = ((class - LINEAR) / PARTS, (class - LINEAR) % PARTS);
    ((LINEAR * UNIT) << power) + (part + 1) * ((LINEAR * UNIT / PARTS) << power)
}

/// Pages of a class's spans.
pub fn pages_of(class: usize) -> usize {
    (size_of_class(class) * SPAN_BLOCKS).div_ceil(PAGE).min(SPAN_PAGES)
}

/// The class of the shortest blocks of at least `size` bytes, which is at most [`MAX_LENGTH`].
fn class_of(size: usize) -> usize {
    if size <= LINEAR * UNIT {
        return size.max(1).div_ceil(UNIT) - 1;
    }
    // For the power of two below, and which fourth of the way to the next.
    let log = (size - 1).ilog2();
    let part = ((size - 1) >> (log - PARTS_BITS)) & (PARTS - 1);
    LINEAR + (log - (LINEAR * UNIT).ilog2()) as usize * PARTS + part
}

/// The class whose blocks suit a layout; `None` when it wants pages.
pub fn class_for(layout: Layout) -> Option<usize> {
    let size = layout.size().max(layout.align());
    if size > MAX_LENGTH || layout.align() > PAGE {
        return None;
    }
    // Spans begin at multiples of a page, so a block has each alignment that divides its size.
    (class_of(size)..CLASSES).find(|class| size_of_class(*class).is_multiple_of(layout.align()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_class_is_the_shortest_that_suits() {
        for size in 1..=MAX_LENGTH {
            let class = class_of(size);
            assert!(size_of_class(class) >= size, "{size}");
            assert!(class == 0 || size_of_class(class - 1) < size, "{size}");
        }
        assert_eq!(size_of_class(CLASSES - 1), MAX_LENGTH);
    }

    #[test]
    fn at_most_a_fifth_of_a_block_is_lost_above_the_linear_classes() {
        for size in LINEAR * UNIT + 1..=MAX_LENGTH {
            assert!((size_of_class(class_of(size)) - size) * 5 <= size_of_class(class_of(size)), "{size}");
        }
    }

    #[test]
    fn blocks_of_a_class_have_the_alignment_asked_for() {
        for align in (0..=12).map(|bits| 1 << bits) {
            for size in 1..=MAX_LENGTH {
                let class = class_for(Layout::from_size_align(size, align).unwrap()).unwrap();
                assert!(size_of_class(class) >= size && size_of_class(class).is_multiple_of(align));
            }
        }
    }

    #[test]
    fn a_span_wastes_little_of_its_pages() {
        for class in 0..CLASSES {
            let bytes = pages_of(class) * PAGE;
            assert!((bytes % size_of_class(class)) * 4 <= bytes, "class {class} of {}", size_of_class(class));
        }
    }
}
