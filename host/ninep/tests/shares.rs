// SPDX-License-Identifier: Apache-2.0 OR MIT
//! By itself, for it takes as many descriptors as it can have.

use std::fs;
use unilith_ninep::Watches;

#[test]
fn machines_leave_half_of_what_a_user_may_watch_by_to_others() {
    let limit = fs::read_to_string("/proc/sys/fs/inotify/max_user_instances").unwrap();
    let limit: usize = limit.trim().parse().unwrap();
    let shares = tempfile::tempdir().unwrap();
    let mut all: Vec<_> = (0..limit).map_while(|_| Watches::new(shares.path())).collect();
    assert!(!all.is_empty() && all.len() <= limit / 2, "{}", all.len());
    all.pop();
    assert!(Watches::new(shares.path()).is_some(), "what one leaves another one has");
}
