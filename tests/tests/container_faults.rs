// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Processes of a container that are killed between two calls of its engine: the next call says so, and nothing is left.

use rustix::process::Signal;
use unilith_tests::{
    engine::{Engine, engine},
    eventually, is_alive, signal,
};

/// What a container has been through when one of its processes is killed.
#[derive(Clone, Copy, Debug, PartialEq)]
enum After {
    Create,
    Start,
    Pause,
}

/// All processes of the host that carry the container: its keeper first.
fn processes(engine: &Engine, id: &str) -> Vec<u64> {
    let pids = engine.run(&["ps", "--format", "json", id]).ok().out;
    serde_json::from_str(&pids).expect("it is a list of numbers")
}

fn is_gone_without_a_trace(engine: &Engine, id: &str, pids: &[u64]) {
    engine.wait(id);
    eventually("no process is left", || !pids.iter().any(|pid| is_alive(*pid)));
    assert_eq!(engine.status(id), "stopped");
    engine.run(&["kill", id, "TERM"]).code(1).complains("container not running");
    // As engines clean up: asked twice.
    engine.run(&["kill", "--all", id, "KILL"]).ok();
    engine.run(&["delete", id]).ok();
    engine.run(&["delete", "--force", id]).ok();
    engine.has_nothing_left();
}

#[test]
fn a_container_whose_processes_are_killed_at_any_step_is_stopped_and_goes() {
    let Some(engine) = engine() else { return };
    for after in [After::Create, After::Start, After::Pause] {
        for kills_keeper in [true, false] {
            let id = format!("{after:?}-{kills_keeper}").to_lowercase();
            engine.bundle(&id, "echo up; sleep 1000", |_| {});
            assert!(engine.create(&id).success(), "{}", engine.out(&id));
            if after != After::Create {
                engine.run(&["start", &id]).ok();
                eventually("it runs", || engine.out(&id).contains("up"));
            }
            if after == After::Pause {
                engine.run(&["pause", &id]).ok();
            }
            let pids = processes(&engine, &id);
            // There is no machine before `start`.
            let victim = if kills_keeper { pids.first() } else { pids.get(1) };
            match victim {
                Some(victim) => signal(Signal::KILL, *victim as u32),
                None => {
                    engine.run(&["kill", &id, "KILL"]).ok();
                }
            }
            is_gone_without_a_trace(&engine, &id, &pids);
        }
    }
}
