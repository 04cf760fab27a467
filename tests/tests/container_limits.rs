// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Limits of containers, and what their programs and their engine see of them: the files of their control groups, `update` and
//! `events --stats`.

use rustix::process::Signal;
use serde_json::{Value, json};
use std::fs;
use unilith_tests::{
    compile,
    engine::{Engine, Pod, engine},
    eventually, signal,
};

/// As engines mount it.
fn with_group(config: &mut Value, resources: &Value) {
    let options = ["nosuid", "noexec", "nodev", "relatime", "ro"];
    let mount =
        json!({"destination": "/sys/fs/cgroup", "type": "cgroup", "source": "cgroup", "options": options});
    config["mounts"].as_array_mut().expect("it has mounts").push(mount);
    config["linux"]["resources"] = resources.clone();
}

const WAIT: &str = "echo up; while :; do sleep 0.1; done";

fn read(engine: &Engine, id: &str, name: &str) -> String {
    engine.run(&["exec", id, "cat", &format!("/sys/fs/cgroup/{name}")]).ok().out.trim().to_string()
}

/// A number of a file that has a line for each.
fn count(engine: &Engine, id: &str, file: &str, name: &str) -> u64 {
    let text = read(engine, id, file);
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.unwrap_or_else(|| panic!("{file} of {id} has no {name}: {text}")).parse().expect("a number")
}

fn update(engine: &Engine, id: &str, resources: Value) -> unilith_tests::Ran {
    let path = engine.unilith.path("resources.json");
    fs::write(&path, resources.to_string()).expect("a file can be written");
    engine.run(&["update", "--resources", &path.display().to_string(), id])
}

fn stats(engine: &Engine, id: &str) -> Value {
    let out = engine.run(&["events", "--stats", id]).ok().out;
    let stats: Value = serde_json::from_str(&out).expect("it is JSON");
    assert_eq!((&stats["type"], stats["id"].as_str()), (&json!("stats"), Some(id)));
    stats["data"].clone()
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
fn a_container_that_is_a_machine_sees_the_limits_that_its_engine_gave_it() {
    let Some(engine) = engine() else { return };
    let resources = json!({
        "memory": {"limit": 64 << 20}, "pids": {"limit": 40}, "cpu": {"quota": 150_000, "period": 100_000},
    });
    engine.bundle("one", WAIT, |config| with_group(config, &resources));
    assert!(engine.create("one").success(), "{}", engine.out("one"));
    engine.run(&["start", "one"]).ok();
    eventually("it runs", || engine.out("one").contains("up"));
    for (name, text) in [
        ("memory.max", "67108864"),
        ("cpu.max", "150000 100000"),
        ("pids.max", "40"),
        ("cgroup.controllers", "cpuset cpu io memory pids"),
        ("cgroup.type", "domain"),
    ] {
        assert_eq!(read(&engine, "one", name), text, "{name}");
    }
    let exec = |line: &str| engine.run(&["exec", "one", "sh", "-c", line]);
    exec("cat /proc/self/cgroup").ok().says("0::/");
    // A quota of one and a half processors is worth two, where there are as many.
    let own = std::thread::available_parallelism().unwrap().get().min(2);
    exec("nproc").ok().says(&format!("{own}\n"));
    // What runtimes look for: JVM, Go's automaxprocs, .NET.
    let found = exec("cat /proc/self/mountinfo; cat /proc/cgroups").ok().out;
    let mount = found.lines().find(|line| line.contains(" /sys/fs/cgroup ")).expect("it is mounted");
    assert!(mount.contains(" / /sys/fs/cgroup ro,") && mount.contains(" - cgroup2 "), "{mount}");
    assert!(found.contains("memory\t0\t1\t1"), "{found}");
    exec("echo 1 > /sys/fs/cgroup/memory.max").code(1);
    // More than 40 do not begin.
    let many = "n=0; while [ $n -lt 60 ]; do sleep 1000 & n=$((n + 1)); done; echo all";
    let ran = exec(many);
    assert!(!ran.out.contains("all") && ran.code != Some(0), "{ran}");
    exec("kill -KILL -1").ok();
    eventually("they are gone", || read(&engine, "one", "pids.current").parse::<u64>().unwrap() < 10);
    assert!(count(&engine, "one", "pids.events", "max") > 0);
    update(&engine, "one", json!({"pids": {"limit": 80}, "cpu": {"quota": -1}})).ok();
    assert_eq!(
        (read(&engine, "one", "pids.max"), read(&engine, "one", "cpu.max")),
        ("80".into(), "max 100000".into())
    );
    assert_eq!(stats(&engine, "one")["pids"]["limit"], 80);
    update(&engine, "one", json!({"memory": {"limit": 256 << 20}})).code(1).complains("cannot grow");
    assert_eq!(read(&engine, "one", "memory.max"), "67108864");
    end(&engine, &["one"]);
    update(&engine, "one", json!({})).code(1).complains("does not exist");
}

#[test]
fn each_container_of_a_pod_has_limits_of_its_own_and_its_use_is_counted_apart() {
    let Some(engine) = engine() else { return };
    let pod = Pod::make();
    engine.start_sandbox(&pod);
    let hold = "x=$(busybox head -c 8000000 /dev/zero | busybox tr '\\0' x); \
        n=0; while [ $n -lt 200000 ]; do n=$((n + 1)); done; echo up; while :; do sleep 0.1; done";
    engine.start_member("busy", hold, |config| {
        with_group(config, &json!({"memory": {"limit": 48 << 20}, "pids": {"limit": 12}}));
    });
    engine.start_member("idle", "echo up; exec sleep 1000", |config| with_group(config, &json!({})));
    ["busy", "idle"].iter().for_each(|id| eventually("it runs", || engine.out(id).contains("up")));
    assert_eq!(
        (read(&engine, "busy", "memory.max"), read(&engine, "idle", "memory.max")),
        ("50331648".into(), "max".into())
    );
    assert_eq!(
        (read(&engine, "busy", "pids.max"), read(&engine, "idle", "pids.max")),
        ("12".into(), "max".into())
    );
    let memory = |id: &str| read(&engine, id, "memory.current").parse::<u64>().unwrap();
    assert!(
        memory("busy") > 8_000_000 && memory("idle") < 4_000_000,
        "{} {}",
        memory("busy"),
        memory("idle")
    );
    let (busy, idle) = (stats(&engine, "busy"), stats(&engine, "idle"));
    let used = |stats: &Value| stats["cpu"]["usage"]["total"].as_u64().unwrap();
    assert!(used(&busy) > 4 * used(&idle), "{busy} {idle}");
    assert!(busy["memory"]["usage"]["usage"].as_u64().unwrap() > 8_000_000, "{busy}");
    assert_eq!(
        (idle["pids"]["current"].as_u64(), busy["memory"]["usage"]["limit"].as_u64()),
        (Some(1), Some(48 << 20))
    );
    assert!(count(&engine, "busy", "cpu.stat", "usage_usec") > 0);
    // The container's first process, and cat itself.
    let procs = read(&engine, "idle", "cgroup.procs");
    assert_eq!(procs.lines().next(), Some("1"), "{procs}");
    assert_eq!(procs.lines().count(), 2, "{procs}");

    let many = "n=0; while [ $n -lt 30 ]; do sleep 1000 & n=$((n + 1)); done; echo all";
    let ran = engine.run(&["exec", "busy", "sh", "-c", many]);
    assert!(!ran.out.contains("all"), "{ran}");
    engine.run(&["exec", "idle", "sh", "-c", many]).ok().says("all");
    update(&engine, "idle", json!({"pids": {"limit": 5}})).ok();
    assert_eq!(read_by_shell(&engine, "idle"), None, "it has more already");
    end(&engine, &["busy", "idle", "sandbox"]);
}

/// What a shell that forks reads; `None` where it may not.
fn read_by_shell(engine: &Engine, id: &str) -> Option<String> {
    let ran = engine.run(&["exec", id, "sh", "-c", "cat /sys/fs/cgroup/pids.max; :"]);
    (ran.code == Some(0) && !ran.out.is_empty()).then_some(ran.out)
}

#[test]
fn the_limit_of_memory_of_a_container_of_a_pod_is_changed_while_it_runs() {
    let Some(engine) = engine() else { return };
    let pod = Pod::make();
    engine.start_sandbox(&pod);
    let small = json!({"memory": {"limit": 16 << 20}});
    let take = "echo up; while [ ! -e /go ]; do sleep 0.1; done; x=$(busybox head -c 24000000 /dev/zero | busybox tr '\\0' x); \
        echo ${#x}; while :; do sleep 0.1; done";
    let go = |id: &str| fs::write(engine.unilith.path(id).join("rootfs/go"), "").unwrap();
    for id in ["raised", "stays"] {
        engine.start_member(id, take, |config| with_group(config, &small));
        eventually("it runs", || engine.out(id).contains("up"));
    }
    // As an engine says it, beside what stays as it is.
    update(&engine, "raised", json!({"memory": {"limit": 64 << 20}, "cpu": {"shares": 512}})).ok();
    assert_eq!(read(&engine, "raised", "memory.max"), (64 << 20).to_string());
    go("stays");
    assert_eq!(engine.wait("stays"), 137, "{}", engine.out("stays"));
    engine.run(&["delete", "stays"]).ok();
    go("raised");
    eventually("it has what it wants", || engine.out("raised").contains("24000000"));
    // The pod has 96 MiB, and its machine cannot have more.
    update(&engine, "raised", json!({"memory": {"limit": 256 << 20}})).code(1).complains("cannot grow");
    // Below what it has now: the next page is one too many.
    assert_eq!(count(&engine, "raised", "memory.events", "oom_kill"), 0);
    update(&engine, "raised", json!({"memory": {"limit": 8 << 20}})).ok();
    assert_eq!(engine.wait("raised"), 137, "{}", engine.out("raised"));
    engine.run(&["delete", "raised"]).ok();
    // A limit that was changed before the container began holds from its beginning.
    engine.member("waits", take, |config| with_group(config, &small));
    assert!(engine.create("waits").success(), "{}", engine.out("waits"));
    update(&engine, "waits", json!({"memory": {"limit": 64 << 20}, "pids": {"limit": 20}})).ok();
    go("waits");
    engine.run(&["start", "waits"]).ok();
    eventually("it has what it wants", || engine.out("waits").contains("24000000"));
    assert_eq!(read(&engine, "waits", "pids.max"), "20");
    end(&engine, &["waits", "sandbox"]);
}

/// As with runc: what asks for too much is promised it, and ends when it uses it.
#[test]
fn a_container_that_is_a_machine_is_ended_by_what_it_uses_and_not_refused_what_it_asks_for() {
    let Some(engine) = engine() else { return };
    let program = compile(&engine.unilith, &["cc", "-O1", "-static"], "takes_memory.c", &[]);
    for way in ["write", "lock", "populate"] {
        let limit = json!({"memory": {"limit": 48 << 20}});
        let folder =
            engine.bundle(way, &format!("exec /takes {way} 400"), |config| with_group(config, &limit));
        fs::copy(&program, folder.join("rootfs/takes")).expect("a file can be copied");
        assert!(engine.create(way).success(), "{}", engine.out(way));
        engine.run(&["start", way]).ok();
        assert_eq!(engine.wait(way), 137, "{}", engine.out(way));
        let out = engine.out(way);
        assert!(out.contains("memory") && (way != "write" || out.contains("promised")), "{way}: {out}");
        engine.run(&["delete", way]).ok();
    }
    engine.has_nothing_left();
}

/// However it comes: by large pages, some of which a look by the count of page faults would miss, and by calls that fill memory.
#[test]
fn memory_that_comes_in_large_pieces_counts_as_well() {
    let Some(engine) = engine() else { return };
    let program = compile(&engine.unilith, &["cc", "-O1", "-static"], "takes_memory.c", &[]);
    let pod = Pod::make();
    engine.start_sandbox(&pod);
    let limit = json!({"memory": {"limit": 16 << 20}});
    let takes = |id: &str, way: &str, size: u32| {
        engine.member(id, &format!("exec /takes {way} {size}"), |config| with_group(config, &limit));
        fs::copy(&program, engine.unilith.path(id).join("rootfs/takes")).expect("a file can be copied");
        assert!(engine.create(id).success(), "{}", engine.out(id));
        engine.run(&["start", id]).ok();
    };
    for way in ["populate", "lock", "advise", "read"] {
        for size in [17, 19, 22, 30] {
            let id = format!("{way}{size}");
            takes(&id, way, size);
            assert_eq!(engine.wait(&id), 137, "{id}: {}", engine.out(&id));
            engine.run(&["delete", &id]).ok();
        }
    }
    takes("fits", "populate", 12);
    eventually("it has what it may have", || engine.out("fits").contains("12 MiB"));
    end(&engine, &["fits", "sandbox"]);
}

#[test]
fn each_container_of_a_pod_has_no_more_processor_time_than_its_quota() {
    let Some(engine) = engine() else { return };
    let pod = Pod::make();
    engine.start_sandbox(&pod);
    let spin = "echo up; while :; do :; done";
    let quota = |quota: i64, period: u64| json!({"cpu": {"quota": quota, "period": period}});
    engine.start_member("slow", spin, |config| with_group(config, &quota(5000, 100_000)));
    engine.start_member("free", spin, |config| with_group(config, &json!({})));
    let throttled = |id: &str| count(&engine, id, "cpu.stat", "nr_throttled");
    // Seen from outside: a program that looks would use of the container's time, and more than that where the host is slow.
    let of_slow = |path: &str| {
        let stats = stats(&engine, "slow");
        stats["cpu"].pointer(path).and_then(Value::as_u64).unwrap_or_else(|| panic!("{path}: {stats}"))
    };
    let periods = || of_slow("/throttling/periods");
    let (before, used_before) = (periods(), of_slow("/usage/total"));
    let enough = of_slow("/throttling/throttledPeriods") + 10;
    eventually("its quota is used up again and again", || of_slow("/throttling/throttledPeriods") >= enough);
    // Whatever the host is busy with: the time that it has had is within the periods that there were, with those that
    // had begun before and after.
    let used = (of_slow("/usage/total") - used_before) / 1000;
    let periods = periods() - before;
    assert!(used <= (periods + 2) * 5000, "{used} us in {periods} periods");
    assert!(count(&engine, "slow", "cpu.stat", "throttled_usec") > 0);
    assert_eq!((throttled("free"), count(&engine, "free", "cpu.stat", "throttled_usec")), (0, 0));
    assert!(count(&engine, "free", "cpu.stat", "usage_usec") > used);

    // Without the limit it runs on, in no periods.
    update(&engine, "slow", quota(-1, 100_000)).ok();
    assert_eq!(read(&engine, "slow", "cpu.max"), "max 100000");
    let before = (count(&engine, "slow", "cpu.stat", "nr_periods"), throttled("slow"));
    let more = count(&engine, "slow", "cpu.stat", "usage_usec") + 200_000;
    eventually("it runs on", || count(&engine, "slow", "cpu.stat", "usage_usec") > more);
    assert_eq!((count(&engine, "slow", "cpu.stat", "nr_periods"), throttled("slow")), before);
    // One that waits for a period far away ends when it is told to.
    update(&engine, "free", quota(1000, 1_000_000)).ok();
    eventually("it waits", || stats(&engine, "free")["cpu"]["throttling"]["throttledPeriods"] != json!(0));
    end(&engine, &["free", "slow", "sandbox"]);
}
