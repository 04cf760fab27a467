// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Users and groups of a machine that are others on the host, as those of a user namespace are (user_namespaces(7)).

use serde::{Deserialize, Serialize};

/// Shown for an id of the host's that is none of the machine's (kernel.overflowuid).
pub const OVERFLOW: u32 = 65_534;

/// `count` ids of the machine from `inside` on are the host's from `outside` on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Extent {
    pub inside: u32,
    pub outside: u32,
    pub count: u32,
}

/// A map of ids; an empty one maps none.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Map(pub Vec<Extent>);

impl Map {
    /// The host's id of one of the machine's.
    pub fn to_host(&self, id: u32) -> Option<u32> {
        self.find(id, |extent| (extent.inside, extent.outside))
    }

    /// The machine's id of one of the host's.
    pub fn to_machine(&self, id: u32) -> Option<u32> {
        self.find(id, |extent| (extent.outside, extent.inside))
    }

    fn find(&self, id: u32, ends: impl Fn(&Extent) -> (u32, u32)) -> Option<u32> {
        self.0.iter().find_map(|extent| {
            let (from, to) = ends(extent);
            let offset = id.checked_sub(from).filter(|offset| *offset < extent.count)?;
            to.checked_add(offset)
        })
    }
}

/// Both maps of a machine.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ids {
    pub users: Map,
    pub groups: Map,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_beyond_the_map_are_nobodys() {
        let of = |inside, outside, count| Extent { inside, outside, count };
        let map = Map(vec![of(0, 100_000, 10), of(10, 5, 1), of(u32::MAX - 1, 7, 5)]);
        for (inside, outside) in [(0, 100_000), (9, 100_009), (10, 5), (u32::MAX - 1, 7)] {
            assert_eq!((map.to_host(inside), map.to_machine(outside)), (Some(outside), Some(inside)));
        }
        assert_eq!((map.to_host(11), map.to_machine(100_010), map.to_machine(0)), (None, None, None));
        assert_eq!(map.to_machine(9), None, "no id is as large");
        assert_eq!(Map::default().to_host(0), None);
    }
}
