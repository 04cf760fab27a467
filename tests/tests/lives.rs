// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Processes against Linux as a model, and against each other: the same schedules of forks, deaths, stops and waits run here and
//! in the machine, and a database whose processes are killed all the time.

use std::{
    collections::BTreeSet,
    fs,
    process::Command,
    time::{Duration, Instant},
};
use unilith_tests::{Unilith, compile, eventually_within, finish, load, slow_client};

/// A server under software emulation on a busy computer.
const SLOW: Duration = Duration::from_secs(240);
/// Further runs of a schedule on Linux before an outcome counts as one that Linux does not have.
const TRIES: u32 = 20;

/// What a run printed, by seed.
fn by_seed(out: &str) -> Vec<&str> {
    out.split("seed ").skip(1).collect()
}

/// Runs schedules on Linux and in the machine; the outcome of each step has to be the same. Where several processes die at once,
/// Linux has more than one answer: the machine's is looked for among some of them.
fn compare(first: u64, seeds: u32, steps: u32, patience: Duration) {
    let unilith = Unilith::new();
    let program = compile(&unilith, &["gcc", "-O1", "-Wall", "-Werror", "-static"], "lives.c", &[]);
    let linux = |first: u64, seeds: u32| {
        let words = [first.to_string(), seeds.to_string(), steps.to_string()];
        finish(Command::new(&program).args(words), patience).ok().says("all lives are over").out
    };
    let words = [first.to_string(), seeds.to_string(), steps.to_string()];
    let words: Vec<&str> =
        [program.as_str(), "--"].into_iter().chain(words.iter().map(String::as_str)).collect();
    let here = unilith.program_within(&words, patience).ok().out;
    let (expected, found) = (linux(first, seeds), here);
    let (expected, found) = (by_seed(&expected), by_seed(&found));
    assert_eq!((expected.len(), found.len()), (seeds as usize, seeds as usize));
    for (seed, (expected, found)) in (first..).zip(expected.into_iter().zip(found)) {
        let outcome = |run: &str| run.replace("all lives are over\n", "");
        let is_linux = |run: &str| outcome(run) == outcome(found);
        if is_linux(expected) || (0..TRIES).any(|_| is_linux(by_seed(&linux(seed, 1))[0])) {
            continue;
        }
        let differs = expected.lines().zip(found.lines()).find(|(expected, found)| expected != found);
        panic!("seed {seed}: Linux and the machine say {differs:#?} in\n{found}");
    }
}

#[test]
fn processes_live_and_die_in_the_machine_as_on_linux() {
    compare(1, load(40), 80, SLOW);
}

/// Mappings of all kinds, made, changed and looked at by parents and children before a fork and after it.
#[test]
fn parents_and_children_see_their_memory_as_on_linux() {
    let unilith = Unilith::new();
    let program = compile(&unilith, &["gcc", "-O1", "-Wall", "-Werror", "-static"], "views.c", &[]);
    let seeds = load(40).to_string();
    let words = ["1", &seeds];
    let linux = finish(Command::new(&program).args(words), SLOW).ok().says("all views were seen").out;
    let here = unilith.program_within(&[&[program.as_str(), "--"], &words[..]].concat(), SLOW).ok().out;
    for (seed, (linux, here)) in (1..).zip(by_seed(&linux).into_iter().zip(by_seed(&here))) {
        assert_eq!(linux, here, "seed {seed}");
    }
    assert_eq!(linux, here);
}

/// What takes minutes: `./unilith test --long`.
mod long {
    use super::*;

    #[test]
    #[ignore = "takes minutes"]
    fn thousands_of_schedules_end_as_on_linux() {
        compare(1_000, 2_000, 120, Duration::from_secs(3600));
    }

    #[test]
    #[ignore = "takes a minute or two"]
    fn a_hundred_thousand_forks_leave_nothing() {
        let unilith = Unilith::new();
        let program = compile(&unilith, &["cc", "-O2", "-static"], "many.c", &[]);
        let words = ["-m", "256M", &program, "--", "1000", "100000"];
        unilith.program_within(&words, Duration::from_secs(1800)).ok().says("memory is back");
    }

    /// Clients insert rows and remember which were acknowledged; meanwhile one of the server's processes after the other is
    /// killed, and each time the server recovers.
    #[test]
    #[ignore = "takes UNILITH_SOAK_MINUTES (10)"]
    fn postgresql_loses_no_commit_while_its_processes_are_killed() {
        let minutes = std::env::var("UNILITH_SOAK_MINUTES").map_or(10, |text| text.parse().expect("minutes"));
        let unilith = Unilith::new();
        fs::create_dir(unilith.path("data")).expect("the scratch directory can be written");
        let machine = unilith.start(&["-p", "127.0.0.1::5432", "-v", "./data:/data", "postgresql"]);
        let at = machine.at(5432);
        let (host, port) = (at.ip().to_string(), at.port().to_string());
        let psql = |sql: &str| {
            let words =
                ["-h", &host, "-p", &port, "-U", "postgres", "-qAt", "-v", "ON_ERROR_STOP=1", "-c", sql];
            slow_client("psql", &words, SLOW)
        };
        eventually_within(SLOW, "the server answers", || psql("select 1").code == Some(0));
        psql("create table t (client int, n int, primary key (client, n))").ok();
        let end = Instant::now() + Duration::from_secs(minutes * 60);
        let (mut kills, mut random) = (0u32, 1u64);
        let acknowledged: Vec<BTreeSet<u32>> = std::thread::scope(|scope| {
            let client = |client: u32| {
                let mut committed = BTreeSet::new();
                for n in 0.. {
                    if Instant::now() >= end {
                        break;
                    }
                    if psql(&format!("insert into t values ({client}, {n})")).code == Some(0) {
                        committed.insert(n);
                    }
                }
                committed
            };
            let clients: Vec<_> = (0..3).map(|number| scope.spawn(move || client(number))).collect();
            while Instant::now() < end {
                let listed = unilith.run(&["exec", &machine.id, "ps"]).ok().out;
                let lines = listed.lines().filter(|line| line.contains("postgres"));
                let pids = lines.filter_map(|line| line.split_whitespace().next()?.parse::<u32>().ok());
                let pids: Vec<u32> = pids.filter(|pid| *pid > 1).collect();
                random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                if !pids.is_empty() {
                    let victim = pids[(random >> 33) as usize % pids.len()];
                    // It may have ended by itself.
                    let killed = unilith.run(&["exec", &machine.id, "kill", "-KILL", &victim.to_string()]);
                    kills += u32::from(killed.code == Some(0));
                }
                std::thread::sleep(Duration::from_millis(500 + random % 1500));
            }
            clients.into_iter().map(|client| client.join().expect("a client that is content")).collect()
        });
        eventually_within(SLOW, "the server has recovered", || psql("select 1").code == Some(0));
        let there = psql("select client, n from t").ok().out;
        let there: BTreeSet<(u32, u32)> = there
            .lines()
            .filter_map(|line| line.split_once('|'))
            .map(|(client, n)| (client.parse().expect("a number"), n.parse().expect("a number")))
            .collect();
        let all: usize = acknowledged.iter().map(BTreeSet::len).sum();
        let deaths = machine.log().matches("was terminated by signal 9").count();
        eprintln!(
            "{minutes} minutes: {kills} kills, {deaths} recoveries, {all} commits, {} rows",
            there.len()
        );
        for (client, committed) in acknowledged.iter().enumerate() {
            let lost: Vec<_> = committed.iter().filter(|n| !there.contains(&(client as u32, **n))).collect();
            assert!(lost.is_empty(), "client {client} lost {lost:?}");
        }
        assert!(all > 100 && deaths as u64 > minutes, "{all} commits and {deaths} deaths prove nothing");
    }
}
