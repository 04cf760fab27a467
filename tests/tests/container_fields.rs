// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Fields of `config.json` beyond those that every engine writes, as `docs/reference/oci-config.md` has them: hooks in the container, what
//! its files are like, how the host treats it beside others, limits of disks; and those that are refused, wherever they are said.

use serde_json::{Value, json};
use std::{fs, os::unix::fs::PermissionsExt, path::PathBuf};
use unilith_tests::engine::{Engine, Pod, engine};

/// The files of a setting in the control groups that a process is in.
fn group_files(pid: i32, name: &str) -> Vec<PathBuf> {
    let table = fs::read_to_string(format!("/proc/{pid}/cgroup")).expect("/proc is there");
    let paths = table.lines().filter_map(|line| line.splitn(3, ':').nth(2));
    let mounts = fs::read_to_string("/proc/self/mounts").expect("/proc is there");
    let places: Vec<&str> = mounts.lines().filter_map(|line| line.split(' ').nth(1)).collect();
    let files =
        paths.flat_map(|path| places.iter().map(move |place| PathBuf::from(format!("{place}{path}/{name}"))));
    let mut files: Vec<PathBuf> = files.filter(|file| file.exists()).collect();
    files.sort();
    files.dedup();
    files
}

fn refused(engine: &Engine, id: &str, change: impl FnOnce(&mut Value), says: &str) {
    let folder = engine.bundle(id, "echo never", change).display().to_string();
    let ran = engine.run(&["create", "--bundle", &folder, id]).complains(says);
    assert_ne!(ran.code, Some(0), "{id}: {ran}");
    engine.run(&["state", id]).code(1).complains("does not exist");
}

#[test]
fn hooks_in_the_container_run_between_start_and_the_program_with_its_rights() {
    let Some(engine) = engine() else { return };
    let hook = |line: &str| json!({"path": "/bin/sh", "args": ["sh", "-c", line, "name", "word"], "env": ["PATH=/bin", "A=b"]});
    let folder =
        engine.bundle("one", "cat /made/first /made/second /made/state; echo; echo program $$", |config| {
            config["process"]["user"] = json!({"uid": 1000, "gid": 1000});
            config["process"]["cwd"] = json!("/made");
            config["linux"]["seccomp"] = json!({"defaultAction": "SCMP_ACT_ALLOW", "syscalls": [
                {"names": ["mkdir"], "action": "SCMP_ACT_ERRNO", "errnoRet": 38},
            ]});
            config["hooks"] = json!({"startContainer": [
                hook("cat > state; echo $0 $1 $A $HOME $(id -u) $PWD > first; mkdir new 2>> first; true"),
                hook("cat first > /dev/null && echo second > second; kill -9 1"),
            ]});
        });
    fs::create_dir(folder.join("rootfs/made")).unwrap();
    fs::set_permissions(folder.join("rootfs/made"), fs::Permissions::from_mode(0o777)).unwrap();
    assert!(engine.create("one").success(), "{}", engine.out("one"));
    assert_eq!(fs::read_dir(folder.join("rootfs/made")).unwrap().count(), 0, "`create` runs none of them");
    engine.run(&["start", "one"]).ok();
    assert_eq!(engine.wait("one"), 0, "{}", engine.out("one"));
    let out = engine.out("one");
    let lines: Vec<&str> = out.lines().collect();
    assert_eq!(lines[0], "name word b 1000 /made", "{out}");
    assert!(lines[1].contains("Function not implemented"), "the filter is the hooks', too: {out}");
    assert_eq!(lines[2], "second");
    let state: Value = serde_json::from_str(lines[3]).expect(&out);
    assert_eq!(
        (&state["id"], &state["status"], &state["pid"]),
        (&json!("one"), &json!("created"), &json!(1))
    );
    assert_eq!(lines[4], "program 1", "{out}");
    engine.run(&["delete", "one"]).ok();

    for (id, hook, says) in [
        ("fails", hook("exit 3"), "the startContainer hook /bin/sh: ended with 3"),
        (
            "hangs",
            json!({"path": "/bin/sleep", "args": ["sleep", "1000"], "timeout": 1}),
            "did not end in its time",
        ),
        (
            "missing",
            json!({"path": "/no/such/hook"}),
            "/no/such/hook: there is no such program in the container",
        ),
    ] {
        engine.bundle(id, "echo program", |config| config["hooks"] = json!({"startContainer": [hook]}));
        assert!(engine.create(id).success(), "{}", engine.out(id));
        let ran = engine.run(&["start", id]).complains(says);
        assert_ne!(ran.code, Some(0), "{id}");
        assert_ne!(engine.wait(id), 0, "{id}");
        assert!(!engine.out(id).contains("program\n"), "{}", engine.out(id));
        assert_eq!(engine.status(id), "stopped");
        engine.run(&["delete", id]).ok();
    }
    refused(
        &engine,
        "path",
        |c| c["hooks"] = json!({"startContainer": [{"path": "bin/sh"}]}),
        "not absolute",
    );
    assert_eq!(engine.unilith.machines_on_disk(), 0);
}

#[test]
fn the_umask_and_the_domain_are_the_containers_and_those_of_what_exec_starts() {
    let Some(engine) = engine() else { return };
    let line = "umask; cat /proc/sys/kernel/domainname; touch /made; exec sleep 1000";
    let described = |config: &mut Value| {
        config["process"]["user"]["umask"] = json!(0o27);
        config["domainname"] = json!("example.org");
    };
    let has = |id: &str, umask: &str, domain: &str, mode: u32| {
        unilith_tests::eventually("the file is made", || {
            engine.unilith.path(id).join("rootfs/made").exists()
        });
        assert_eq!(engine.out(id), format!("{umask}\n{domain}\n"), "{id}");
        let made = fs::metadata(engine.unilith.path(id).join("rootfs/made")).unwrap();
        assert_eq!(made.permissions().mode() & 0o777, mode, "{id}");
        assert_eq!(engine.run(&["exec", id, "sh", "-c", "umask"]).ok().out, format!("{umask}\n"), "{id}");
    };
    engine.bundle("one", line, described);
    engine.bundle("plain", line, |_| {});
    for id in ["one", "plain"] {
        assert!(engine.create(id).success(), "{}", engine.out(id));
        engine.run(&["start", id]).ok();
    }
    has("one", "0027", "example.org", 0o640);
    has("plain", "0022", "(none)", 0o644);
    let pod = Pod::make();
    engine.start_sandbox(&pod);
    engine.start_member("member", line, |config| {
        described(config);
        config["linux"]["namespaces"][1] = json!({"type": "uts"});
    });
    has("member", "0027", "example.org", 0o640);
    let pods = engine.run(&["exec", "sandbox", "sh", "-c", "umask; cat /proc/sys/kernel/domainname"]);
    assert_eq!(pods.ok().out, "0022\n(none)\n", "the container has its own");
    for id in ["one", "plain", "member", "sandbox"] {
        engine.run(&["delete", "--force", id]).ok();
    }
    engine.has_nothing_left();
}

#[test]
fn the_host_treats_a_container_as_its_bundle_says() {
    let Some(engine) = engine() else { return };
    engine.bundle("one", "exec sleep 1000", |config| {
        config["process"]["scheduler"] = json!({"policy": "SCHED_BATCH", "nice": 5});
        config["process"]["ioPriority"] = json!({"class": "IOPRIO_CLASS_BE", "priority": 6});
    });
    assert!(engine.create("one").success(), "{}", engine.out("one"));
    engine.run(&["start", "one"]).ok();
    let pids: Vec<u32> =
        serde_json::from_str(&engine.run(&["ps", "--format", "json", "one"]).ok().out).unwrap();
    assert_eq!(pids.len(), 2, "its process and the machine's");
    for pid in pids {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
        let fields: Vec<&str> = stat.rsplit_once(')').unwrap().1.split_whitespace().collect();
        // proc(5): nice and policy are the 19th and the 41st field, the first one here is the third.
        assert_eq!((fields[16], fields[38]), ("5", "3"), "{stat}");
        let io = unilith_tests::client("ionice", &["-p", &pid.to_string()]).ok().out;
        assert_eq!(io.trim(), "best-effort: prio 6");
    }
    engine.run(&["delete", "--force", "one"]).ok();
    refused(
        &engine,
        "deadline",
        |c| c["process"]["scheduler"] = json!({"policy": "SCHED_DEADLINE", "runtime": 1}),
        "process.scheduler.runtime",
    );
}

#[test]
fn limits_of_the_hosts_disks_and_processors_are_in_its_groups_or_refused() {
    let Some(engine) = engine() else { return };
    let disks = fs::read_to_string("/proc/partitions").unwrap();
    let disk: Vec<&str> =
        disks.lines().nth(2).map(|line| line.split_whitespace().collect()).unwrap_or_default();
    let [major, minor, ..] = disk[..] else {
        eprintln!("skipped: this computer has no disk that could be limited");
        return;
    };
    let number = |text: &str| text.parse::<u64>().unwrap();
    let rate = json!([{"major": number(major), "minor": number(minor), "rate": 7 << 20}]);

    for (id, part, value, files, says) in [
        (
            "read",
            "blockIO",
            json!({"throttleReadBpsDevice": rate}),
            ["blkio.throttle.read_bps_device", "io.max"],
            "7340032",
        ),
        ("swappy", "memory", json!({"swappiness": 10}), ["memory.swappiness", "memory.swappiness"], "10"),
        (
            "burst",
            "cpu",
            json!({"quota": 50_000, "burst": 4000}),
            ["cpu.cfs_burst_us", "cpu.max.burst"],
            "4000",
        ),
        ("idle", "cpu", json!({"idle": 1}), ["cpu.idle", "cpu.idle"], "1"),
    ] {
        let folder = engine.bundle(id, "exec sleep 1000", |c| c["linux"]["resources"][part] = value);
        let status = engine.create(id);
        if status.success() {
            let held: Vec<String> = files
                .iter()
                .flat_map(|file| group_files(engine.pid(id).as_raw_nonzero().get(), file))
                .map(|file| fs::read_to_string(file).unwrap())
                .collect();
            assert!(held.iter().any(|text| text.contains(says)), "{id}: {held:?}");
            engine.run(&["delete", "--force", id]).ok();
        } else {
            // No hierarchy of this host has it.
            let out = engine.out(id);
            assert!(out.contains("no control group of the container has"), "{id}: {out}");
            assert!(folder.exists());
        }
    }
    assert_eq!(engine.unilith.machines_on_disk(), 0);
}

#[test]
fn what_cannot_be_honoured_is_refused_by_its_name_wherever_it_is_said() {
    let Some(engine) = engine() else { return };
    for (id, pointer, value, says) in [
        (
            "listener",
            "/linux/seccomp",
            json!({"defaultAction": "SCMP_ACT_ALLOW", "listenerPath": "/a"}),
            "linux.seccomp.listenerPath",
        ),
        ("rdt", "/linux/intelRdt", json!({"closID": "a"}), "linux.intelRdt"),
        (
            "mount",
            "/linux/namespaces/0",
            json!({"type": "mount", "path": "/proc/1/ns/mnt"}),
            "linux.namespaces.path",
        ),
        ("clock", "/linux/timeOffsets", json!({"boottime": {"secs": 5}}), "linux.timeOffsets"),
        ("old", "/linux/personality", json!({"domain": "LINUX32"}), "LINUX32"),
        ("class", "/linux/resources", json!({"network": {"classID": 5}}), "linux.resources.network.classID"),
        (
            "mapped",
            "/mounts/0/uidMappings",
            json!([{"containerID": 0, "hostID": 1, "size": 1}]),
            "mounts.uidMappings",
        ),
        ("mask", "/process/user/umask", json!(0o1000), "process.user.umask"),
        (
            "twice",
            "/process/rlimits",
            json!([{"type": "RLIMIT_CORE", "soft": 1, "hard": 1}, {"type": "RLIMIT_CORE", "soft": 2, "hard": 2}]),
            "RLIMIT_CORE",
        ),
        ("other", "/windows", json!({"layerFolders": ["a"]}), "windows"),
    ] {
        let set = |config: &mut Value| {
            let (parent, name) = pointer.rsplit_once('/').unwrap();
            let parent = config.pointer_mut(parent).unwrap();
            match name.parse::<usize>() {
                Ok(n) => parent[n] = value,
                Err(_) => parent[name] = value,
            }
        };
        refused(&engine, id, set, says);
    }
    engine.bundle("one", "exec sleep 1000", |_| {});
    assert!(engine.create("one").success(), "{}", engine.out("one"));
    engine.run(&["start", "one"]).ok();
    let process = engine.unilith.path("process.json").display().to_string();
    let text = json!({"args": ["id"], "cwd": "/", "scheduler": {"policy": "SCHED_IDLE"}});
    fs::write(&process, text.to_string()).unwrap();
    engine.run(&["exec", "--process", &process, "one"]).code(255).complains("process.scheduler");
    let resources = engine.unilith.path("resources.json").display().to_string();
    fs::write(&resources, json!({"network": {"classID": 5}}).to_string()).unwrap();
    engine.run(&["update", "-r", &resources, "one"]).code(1).complains("linux.resources.network.classID");
    // The machine of its pod is not its own.
    let pod = Pod::make();
    engine.start_sandbox(&pod);
    for (id, key, value, says) in [
        ("hooked", "hooks", json!({"startContainer": [{"path": "/bin/true"}]}), "hooks.startContainer"),
        (
            "batch",
            "process",
            json!({"args": ["sh"], "cwd": "/", "scheduler": {"policy": "SCHED_BATCH"}}),
            "process.scheduler",
        ),
    ] {
        let folder = engine.member(id, "echo never", |config| config[key] = value).display().to_string();
        engine.run(&["create", "--bundle", &folder, id]).code(1).complains(says);
    }
    for id in ["one", "sandbox"] {
        engine.run(&["delete", "--force", id]).ok();
    }
    engine.has_nothing_left();
}

#[test]
fn an_update_can_ask_whether_there_is_room_for_it() {
    let Some(engine) = engine() else { return };
    let line = "x=$(head -c 30000000 /dev/zero | tr '\\0' x); echo up; while :; do sleep 1; done";
    let line = line.replace("head", "busybox head").replace("tr ", "busybox tr ");
    engine.bundle("one", &line, |c| c["linux"]["resources"]["memory"]["limit"] = json!(200 << 20));
    assert!(engine.create("one").success(), "{}", engine.out("one"));
    engine.run(&["start", "one"]).ok();
    unilith_tests::eventually("it has its memory", || engine.out("one").contains("up\n"));
    let resources = engine.unilith.path("resources.json").display().to_string();
    let with = |limit: u64| {
        let text = json!({"memory": {"limit": limit, "checkBeforeUpdate": true}}).to_string();
        fs::write(&resources, text).unwrap();
        engine.run(&["update", "-r", &resources, "one"])
    };
    with(20 << 20).code(1).complains("checkBeforeUpdate");
    assert_eq!(engine.status("one"), "running");
    with(150 << 20).ok();
    engine.run(&["delete", "--force", "one"]).ok();
}

#[test]
fn a_container_is_what_its_bundle_said_when_it_was_created() {
    let Some(engine) = engine() else { return };
    let told = engine.unilith.path("told").display().to_string();
    let folder = engine.bundle("one", "echo as described; exec sleep 1000", |config| {
        config["hooks"] = json!({"poststop": [{"path": "/bin/sh", "args": ["sh", "-c", format!("echo gone > {told}")]}]});
    });
    assert!(engine.create("one").success(), "{}", engine.out("one"));
    fs::write(folder.join("config.json"), json!({"ociVersion": "1.0.0"}).to_string()).unwrap();
    engine.run(&["start", "one"]).ok();
    unilith_tests::eventually("it runs", || engine.out("one") == "as described\n");
    engine.run(&["exec", "one", "id", "-u"]).ok().says("0");
    engine.run(&["delete", "--force", "one"]).ok();
    assert_eq!(fs::read_to_string(&told).expect("the hook that it was created with ran"), "gone\n");
    assert_eq!(engine.unilith.machines_on_disk(), 0);
}

#[test]
fn what_the_kernel_mounts_is_there_in_the_order_of_engines_lists() {
    let Some(engine) = engine() else { return };
    let line = "while read -r from at kind rest; do echo $at $kind; done < /proc/self/mounts; ls -l /dev/ptmx; ls /dev/pts; exec sleep 1000";
    let wanted = ["/proc proc", "/dev tmpfs", "/dev/pts devpts", "/dev/shm tmpfs"];
    let is_so = |id: &str| {
        unilith_tests::eventually("it has said so", || engine.out(id).ends_with("ptmx\n"));
        let out = engine.out(id);
        let lines: Vec<&str> = out.lines().collect();
        let at = |wanted: &str| {
            lines.iter().position(|line| *line == wanted).unwrap_or_else(|| panic!("{wanted}: {out}"))
        };
        let places = wanted.map(at);
        assert!(places.is_sorted() && at("/dev/mqueue mqueue") > places[3], "{out}");
        assert!(lines.iter().any(|line| line.ends_with("/dev/ptmx -> pts/ptmx")), "{out}");
    };
    engine.bundle("one", line, |_| {});
    assert!(engine.create("one").success(), "{}", engine.out("one"));
    engine.run(&["start", "one"]).ok();
    is_so("one");
    let pod = Pod::make();
    engine.start_sandbox(&pod);
    engine.start_member("member", line, |_| {});
    is_so("member");
    for id in ["one", "member", "sandbox"] {
        engine.run(&["delete", "--force", id]).ok();
    }
    engine.has_nothing_left();
}
