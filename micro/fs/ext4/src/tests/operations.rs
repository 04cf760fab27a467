// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Random operations against the model.

use super::disk::{check, image};
use super::model::{Model, Operation, tree_of};
use super::{KINDS, mounted};
use proptest::prelude::*;
use std::vec::Vec;

pub fn operations(most: usize) -> impl Strategy<Value = Vec<Operation>> {
    let one = (any::<u8>(), any::<u8>(), any::<u8>(), any::<u32>())
        .prop_map(|(what, first, second, number)| Operation { what, first, second, number });
    prop::collection::vec(one, 1..most)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn random_operations_do_what_the_model_does(list in operations(400), kind in 0..KINDS.len()) {
        let disk = image(16 << 20, KINDS[kind]);
        let mut core = mounted(&disk);
        let mut model = Model::new();
        for (n, operation) in list.into_iter().enumerate() {
            model.apply(&mut core, operation);
            if n % 50 == 49 {
                core.sync().unwrap();
            }
            if n % 150 == 149 {
                core.unmount().unwrap();
                check(&disk, KINDS[kind]);
                core = mounted(&disk);
            }
        }
        prop_assert_eq!(tree_of(&mut core), model.tree());
        core.unmount().unwrap();
        check(&disk, KINDS[kind]);
        let mut core = mounted(&disk);
        prop_assert_eq!(tree_of(&mut core), model.tree());
    }
}
