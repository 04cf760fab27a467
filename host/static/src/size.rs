// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What an image is made of: bytes by micro-library and by function.

use crate::anatomy::Anatomy;
use serde::Serialize;
use std::{cmp::Reverse, collections::BTreeMap};

/// Something that has a name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Item {
    /// The crate, or a word in parentheses.
    pub library: String,
    pub name: String,
    pub bytes: u64,
    /// It is loaded with the overlay's tools, when the first command comes.
    pub on_demand: bool,
}

/// What a micro-library takes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Library {
    pub library: String,
    /// In the image.
    pub bytes: u64,
    /// Beside it, loaded with the overlay's tools.
    pub on_demand: u64,
    /// Of memory that begins as zeros.
    pub zeroed: u64,
    /// Functions and variables that have names of their own.
    pub items: usize,
}

/// An image's bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Size {
    /// All that is loaded from the file that boots.
    pub total: u64,
    pub on_demand: u64,
    /// Memory that begins as zeros.
    pub zeroed: u64,
    /// Largest first.
    pub libraries: Vec<Library>,
    /// Largest first.
    pub items: Vec<Item>,
}

impl Size {
    pub fn of(anatomy: &Anatomy) -> Size {
        let mut size = Size::default();
        let mut found: BTreeMap<(&str, &str, bool), u64> = BTreeMap::new();
        let mut libraries: BTreeMap<&str, Library> = BTreeMap::new();
        for piece in &anatomy.pieces {
            let library = libraries.entry(&piece.library).or_insert_with(|| Library {
                library: piece.library.clone(),
                bytes: 0,
                on_demand: 0,
                zeroed: 0,
                items: 0,
            });
            if piece.bytes == 0 {
                library.zeroed += piece.length;
                size.zeroed += piece.length;
                continue;
            }
            let (sum, total) = match piece.on_demand {
                true => (&mut library.on_demand, &mut size.on_demand),
                false => (&mut library.bytes, &mut size.total),
            };
            *sum += piece.bytes;
            *total += piece.bytes;
            let known = found.entry((&piece.library, &piece.name, piece.on_demand)).or_default();
            library.items += usize::from(*known == 0);
            *known += piece.bytes;
        }
        let item = |((library, name, on_demand), bytes): ((&str, &str, bool), u64)| Item {
            library: library.into(),
            name: name.into(),
            bytes,
            on_demand,
        };
        size.items = found.into_iter().map(item).collect();
        size.items.sort_by_key(|item| Reverse(item.bytes));
        size.libraries = libraries.into_values().collect();
        size.libraries.sort_by_key(|library| (Reverse(library.bytes), Reverse(library.on_demand)));
        size
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_bytes_of_an_image_are_somebodys_and_count_once() {
        let own = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        let size = Size::of(&Anatomy::of(&own).unwrap());
        assert_eq!(size.items.iter().map(|item| item.bytes).sum::<u64>(), size.total + size.on_demand);
        assert_eq!(size.libraries.iter().map(|library| library.bytes).sum::<u64>(), size.total);
        // As many as the loader takes from the file, without headers and the space between sections.
        use object::{Object as _, ObjectSegment as _};
        let file = object::File::parse(&*own).unwrap();
        let loaded: u64 = file.segments().map(|segment| segment.file_range().1).sum();
        assert!(size.total <= loaded && size.total > loaded * 9 / 10, "{} of {loaded}", size.total);
        assert!(Anatomy::of(b"no image").is_err());
    }
}
