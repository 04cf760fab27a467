// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Random system calls (tests/programs/fuzz.c): whatever programs call, the machine serves the next one.

use std::time::{Duration, Instant};
use unilith_tests::{Ran, Unilith, compile, tested_machine};

/// A seed ends a few seconds after it began, whatever hangs in it; under software emulation on a busy computer later.
const PATIENCE: Duration = Duration::from_secs(900);

/// Seeds that one machine goes through, one after the other.
const SEEDS: u64 = 20;

/// Runs seeds in a new machine of this size. The number of calls that were made.
fn survives(unilith: &Unilith, program: &str, size: &[&str], first: u64, seeds: u64, calls: u64) -> u64 {
    let words = [first.to_string(), seeds.to_string(), calls.to_string()];
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let ran = unilith.program_within(&[size, &[program, "--"], &words].concat(), PATIENCE);
    made(&ran, seeds).unwrap_or_else(|| panic!("{}\n{ran}", again(&ran, size, calls)))
}

/// The calls that were made, if all seeds were survived.
fn made(ran: &Ran, seeds: u64) -> Option<u64> {
    let end = ran.out.lines().rev().find(|line| line.contains("are survived: "))?;
    let calls = end.split("are survived: ").nth(1)?.split(' ').next()?.parse().ok()?;
    (ran.code == Some(0) && end.starts_with(&format!("{seeds} seeds"))).then_some(calls)
}

/// The command that runs the seed again in which the machine failed.
fn again(ran: &Ran, size: &[&str], calls: u64) -> String {
    let seed = ran.out.lines().rev().find_map(|line| line.strip_prefix("seed ")?.split(':').next());
    let (seed, size, machine) = (seed.unwrap_or("?"), size.join(" "), tested_machine());
    format!(
        "the machine did not survive seed {seed}. To repeat it:\n\
         cc -O2 -static -pthread -o fuzz tests/programs/fuzz.c\n\
         unilith run --rm --machine {machine} {size} ./fuzz -- {seed} 1 {calls} say"
    )
}

fn fuzzer(unilith: &Unilith) -> String {
    let compiler = ["gcc", "-O2", "-Wall", "-Werror", "-static", "-pthread"];
    compile(unilith, &compiler, "fuzz.c", &[])
}

/// What takes as long as it is given: `./unilith test --long`.
mod long {
    use super::*;

    /// New machines with other seeds, until the time is over; `UNILITH_FUZZ_SEED` is the first one.
    #[test]
    #[ignore = "takes UNILITH_FUZZ_MINUTES (10)"]
    fn random_calls_are_survived_for_minutes() {
        let number = |name: &str, else_is: u64| {
            std::env::var(name).map_or(else_is, |text| text.parse().expect("a number"))
        };
        let minutes = number("UNILITH_FUZZ_MINUTES", 10);
        let (mut seed, mut calls) = (number("UNILITH_FUZZ_SEED", 1_000_000), 0);
        let unilith = Unilith::new();
        let program = fuzzer(&unilith);
        // The first machine waits for its kernel to be built.
        let mut end = None;
        for (memory, cpus) in [("48M", "1"), ("64M", "2"), ("128M", "1"), ("256M", "2")].into_iter().cycle() {
            let size = ["--network", "none", "-m", memory, "--cpus", cpus];
            calls += survives(&unilith, &program, &size, seed, SEEDS, 2000);
            seed += SEEDS;
            let end = *end.get_or_insert_with(|| Instant::now() + Duration::from_secs(minutes * 60));
            if Instant::now() >= end {
                break;
            }
        }
        eprintln!("{minutes} minutes on {} machines: {calls} calls, next seed {seed}", tested_machine());
    }
}
