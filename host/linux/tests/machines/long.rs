// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What shows in one of hundreds of starts only. `./unilith test --long` runs it; by hand:
//! `cargo test -p unilith-linux --test machines long -- --ignored`, with another number in UNILITH_LONG_STARTS.

use crate::machine::{Machine, QEMU_MICROVM};
use api_boot::Status;
use std::{
    sync::atomic::{AtomicUsize, Ordering},
    thread,
};
use unilith_linux::Options;

/// Starts of each level.
const STARTS: usize = 2000;
/// Machines at once, of two processors each: more than this computer has, so that their processors stop at any instruction.
const AT_ONCE: usize = 4;

#[test]
#[ignore = "takes hours"]
fn machines_with_two_processors_start_each_time() {
    let starts = std::env::var("UNILITH_LONG_STARTS").ok().and_then(|n| n.parse().ok()).unwrap_or(STARTS);
    for words in ["", "cpl0,byp"] {
        let options = Options::parse(words).unwrap();
        let begun = AtomicUsize::new(0);
        thread::scope(|scope| {
            for _ in 0..AT_ONCE {
                scope.spawn(|| {
                    while begun.fetch_add(1, Ordering::Relaxed) < starts {
                        let run = Machine::new(QEMU_MICROVM).level(options, 2).shell("exit 3");
                        assert_eq!(run.statuses.last(), Some(&Status::Exit { code: 3 }), "{}", run.console);
                    }
                });
            }
        });
        eprintln!("{}: {starts} starts", options.level());
    }
}
