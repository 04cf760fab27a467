// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Namespaces of the containers of a pod, as their bundles ask for them: one of its own, the pod's, or another container's.

use rustix::process::Signal;
use serde_json::{Value, json};
use unilith_tests::{
    engine::{Engine, Pod, engine},
    eventually, signal,
};

/// Puts another origin in place of the namespace of that kind; `None` leaves the kind out, which is the host's.
fn set(config: &mut Value, kind: &str, namespace: Option<Value>) {
    let namespaces = config["linux"]["namespaces"].as_array_mut().expect("it has namespaces");
    namespaces.retain(|namespace| namespace["type"] != kind);
    namespaces.extend(namespace);
}

/// The namespace of that kind of another container.
fn of(engine: &Engine, id: &str, kind: &str) -> Option<Value> {
    let path = format!("/proc/{}/ns/{kind}", engine.pid(id).as_raw_nonzero());
    Some(json!({"type": kind, "path": path}))
}

fn end(engine: &Engine, ids: &[&str]) {
    for id in ids {
        signal(Signal::QUIT, engine.pid(id).as_raw_nonzero().get() as u32);
        assert_eq!(engine.wait(id), 137, "{id}: {}", engine.out(id));
    }
    ids.iter().for_each(|id| drop(engine.run(&["delete", id]).ok()));
    engine.has_nothing_left();
}

#[test]
fn the_first_process_of_a_container_of_a_pod_is_number_1_and_sees_none_of_the_others() {
    let Some(engine) = engine() else { return };
    let pod = Pod::make();
    engine.start_sandbox(&pod);
    // What it leaves behind becomes the child of number 1, which is the shell.
    let line = "echo first $$; (sleep 4321 & echo $! > /orphan); orphan=$(cat /orphan); \
        while :; do read -r a b c d e < /proc/$orphan/stat; [ $d = 1 ] && break; sleep 0.1; done; echo parent $d; \
        busybox ps; echo up; while :; do sleep 0.1; done";
    for id in ["web", "db"] {
        engine.start_member(id, line, |_| {});
        eventually("it runs", || engine.out(id).contains("up\n"));
        let out = engine.out(id);
        assert!(out.contains("first 1\n") && out.contains("parent 1\n"), "{out}");
        assert!(out.contains("sleep 4321") && !out.contains("sleep 1000"), "it sees its own: {out}");
    }
    let exec = |id: &str, line: &str| engine.run(&["exec", id, "sh", "-c", line]);
    let joined = exec("web", "cat /proc/1/cmdline; echo; echo own $$ parent $PPID; busybox ps | wc -l").ok();
    assert!(joined.out.contains("echo first") && joined.out.contains("parent 0"), "{joined}");
    // A signal that number 1 has no handler for does not end it, whoever in its namespace or outside sends it (pid_namespaces(7)).
    exec("web", "kill -TERM 1; kill -KILL 1; sleep 0.3; kill -0 1 && echo still there")
        .ok()
        .says("still there");
    engine.run(&["kill", "web", "TERM"]).ok();
    assert_eq!(engine.status("web"), "running");
    exec("web", "kill -KILL $(cat /orphan)").ok();
    eventually("number 1 waits for it", || exec("web", "ls /proc/$(cat /orphan)").code != Some(0));
    assert!(engine.is_in_machine("sleep\x004321"), "the other container's goes on");
    // SIGKILL from outside ends the namespace.
    engine.run(&["kill", "db", "KILL"]).ok();
    assert_eq!(engine.wait("db"), 137);
    assert!(!engine.is_in_machine("sleep\x004321"));
    assert_eq!(engine.status("web"), "running");
    engine.run(&["delete", "db"]).ok();
    end(&engine, &["web", "sandbox"]);
}

#[test]
fn the_first_process_of_a_container_has_no_default_actions_for_signals() {
    let Some(engine) = engine() else { return };
    engine.bundle("one", "echo up; while :; do sleep 0.1; done", |_| {});
    assert!(engine.create("one").success(), "{}", engine.out("one"));
    engine.run(&["start", "one"]).ok();
    eventually("it runs", || engine.out("one").contains("up\n"));
    // As Linux has it (pid_namespaces(7)): an engine's `stop` waits for its time to be over, and kills it then.
    engine.run(&["kill", "one", "TERM"]).ok();
    engine
        .run(&["exec", "one", "sh", "-c", "kill -TERM 1; kill -KILL 1; echo still there"])
        .ok()
        .says("still there");
    assert_eq!(engine.status("one"), "running");
    engine.run(&["kill", "one", "KILL"]).ok();
    assert_eq!(engine.wait("one"), 137, "{}", engine.out("one"));
    engine.run(&["delete", "one"]).ok();
    assert_eq!(engine.unilith.machines_on_disk(), 0);
}

#[test]
fn a_container_joins_the_processes_of_its_pod_or_of_another_container_when_its_bundle_says_so() {
    let Some(engine) = engine() else { return };
    let pod = Pod::make();
    engine.start_sandbox(&pod);
    engine.start_member("web", "echo up; while :; do sleep 4321; done", |_| {});
    eventually("it runs", || engine.out("web").contains("up\n"));
    let look = "echo number $$; cat /proc/1/cmdline; cat /proc/[0-9]*/cmdline > /seen; echo; echo up; while :; do sleep 0.1; done";
    // `--pid container:web`, `shareProcessNamespace`, `hostPID`.
    let cases =
        [("beside", of(&engine, "web", "pid")), ("shared", of(&engine, "sandbox", "pid")), ("host", None)];
    for (id, origin) in cases {
        engine.start_member(id, look, |config| set(config, "pid", origin.clone()));
        eventually("it runs", || engine.out(id).contains("up\n"));
        let out = engine.out(id);
        assert!(!out.contains("number 1\n"), "{id}: {out}");
        let seen = engine.run(&["exec", id, "cat", "/seen"]).ok().out;
        assert!(seen.contains("4321"), "{id}: {seen}");
        assert_eq!(
            out.contains("sleep\0"),
            id != "beside",
            "the first one is the sandbox's for the machine alone: {out}"
        );
    }
    engine.run(&["exec", "beside", "sh", "-c", "kill -KILL 1; sleep 0.2; kill -0 1"]).ok();
    // The namespace ends with its first process, whoever is in it.
    engine.run(&["kill", "web", "KILL"]).ok();
    assert_eq!((engine.wait("web"), engine.wait("beside")), (137, 137));
    assert_eq!(engine.status("shared"), "running");
    engine.run(&["delete", "web"]).ok();
    engine.run(&["delete", "beside"]).ok();
    engine.member("foreign", "echo never", |config| {
        set(config, "pid", Some(json!({"type": "pid", "path": "/proc/1/ns/pid"})));
    });
    assert!(!engine.create("foreign").success());
    assert!(engine.out("foreign").contains("of no container of the pod"), "{}", engine.out("foreign"));
    engine.bundle("apart", "echo never", |config| {
        set(config, "pid", of(&engine, "sandbox", "pid"));
    });
    assert!(!engine.create("apart").success());
    assert!(engine.out("apart").contains("--network container:NAME"), "{}", engine.out("apart"));
    end(&engine, &["shared", "host", "sandbox"]);
}

#[test]
fn shared_memory_and_the_host_name_are_the_pods_unless_a_container_has_its_own() {
    let Some(engine) = engine() else { return };
    let pod = Pod::make();
    engine.start_sandbox(&pod);
    let line = "echo x > /dev/shm/mine; echo up; while :; do sleep 0.1; done";
    let new = |kind: &str| Some(json!({"type": kind}));
    engine.start_member("one", line, |_| {});
    engine.start_member("two", "echo up; while :; do sleep 0.1; done", |_| {});
    engine.start_member("own", "echo up; while :; do sleep 0.1; done", |config| {
        ["ipc", "uts", "cgroup"].into_iter().for_each(|kind| set(config, kind, new(kind)));
        config["hostname"] = json!("alone");
    });
    engine.start_member("guest", "echo up; while :; do sleep 0.1; done", |config| {
        ["ipc", "uts", "cgroup"].into_iter().for_each(|kind| set(config, kind, of(&engine, "own", kind)));
    });
    let ids = ["one", "two", "own", "guest"];
    ids.iter().for_each(|id| eventually("it runs", || engine.out(id).contains("up\n")));
    let exec = |id: &str, line: &str| engine.run(&["exec", id, "sh", "-c", line]);
    let number = |id: &str, kind: &str| exec(id, &format!("busybox readlink /proc/self/ns/{kind}")).ok().out;
    for kind in ["ipc", "uts", "cgroup"] {
        assert_eq!(number("one", kind), number("sandbox", kind), "{kind}");
        assert_ne!(number("one", kind), number("own", kind), "{kind}");
        assert_eq!(number("guest", kind), number("own", kind), "{kind}");
    }
    assert_ne!(number("guest", "pid"), number("own", "pid"));
    exec("two", "ls /dev/shm").ok().says("mine");
    exec("own", "touch /dev/shm/hidden; ls /dev/shm/mine").code(1);
    exec("guest", "ls /dev/shm").ok().says("hidden");
    exec("one", "ls /dev/shm/hidden").code(1);
    for (id, name) in [("two", "web-0"), ("own", "alone"), ("guest", "alone")] {
        assert_eq!(exec(id, "hostname").ok().out.trim(), name);
    }
    end(&engine, &["one", "two", "guest", "own", "sandbox"]);
}
