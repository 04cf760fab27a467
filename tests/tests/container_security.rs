// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a bundle keeps a container's programs from, and the kernel of its machine holds: seccomp profiles, masked and read-only
//! paths, settings of the kernel, and mounts below those that are read-only. For a container that is a machine, for one of a pod, and
//! for what `exec` starts in either.

use serde_json::{Value, json};
use std::{fs, path::Path};
use unilith_tests::{
    client,
    engine::{Engine, Pod, engine, root_is_mount},
    eventually, is_skipped,
};

/// A C program of `tests/programs`, static, in the root of a bundle.
fn put_program(bundle: &Path, source: &str) {
    let path = unilith_tests::root().join("tests/programs").join(source);
    let out = bundle.join("rootfs/bin").join(source.trim_end_matches(".c"));
    let words = ["-O2", "-static", "-o", &out.display().to_string(), &path.display().to_string()];
    client("cc", &words).ok();
}

/// Allows everything but making directories, which is refused with an errno of its own, and names of hosts that are long.
fn profile() -> Value {
    json!({
        "defaultAction": "SCMP_ACT_ALLOW",
        "architectures": ["SCMP_ARCH_X86_64", "SCMP_ARCH_X86", "SCMP_ARCH_X32"],
        "syscalls": [
            {"names": ["mkdir", "mkdirat"], "action": "SCMP_ACT_ERRNO", "errnoRet": 28},
            {"names": ["sethostname"], "action": "SCMP_ACT_ERRNO",
             "args": [{"index": 1, "value": 3, "op": "SCMP_CMP_GT"}]},
            {"names": ["symlink", "symlinkat"], "action": "SCMP_ACT_KILL_PROCESS"},
        ],
    })
}

const SECRET: &str = "nobody is to see this";
/// Says what is seen and what can be written.
const LOOK: &str = "cat /secret; ls -A /hidden | wc -l; echo x > /fixed/file; echo x > /proc/sys/net/core/somaxconn; \
    echo x >> /hidden/new; cat /proc/sys/net/core/somaxconn; mkdir /made; hostname ab && echo short; hostname abcdefg; \
    grep Seccomp: /proc/self/status; cat /fixed/file";

fn confine(config: &mut Value) {
    config["linux"]["seccomp"] = profile();
    config["linux"]["maskedPaths"] =
        json!(["/secret", "/hidden", "/proc/keys", "/proc/scsi", "/secret/below"]);
    config["linux"]["readonlyPaths"] = json!(["/fixed", "/proc/sys", "/proc/bus"]);
}

fn put_secrets(bundle: &Path) {
    let root = bundle.join("rootfs");
    for folder in ["hidden", "fixed"] {
        fs::create_dir(root.join(folder)).expect("the root of the bundle can be written");
    }
    fs::write(root.join("secret"), SECRET).expect("the root of the bundle can be written");
    fs::write(root.join("hidden/one"), SECRET).expect("the root of the bundle can be written");
    fs::write(root.join("fixed/file"), "it stays\n").expect("the root of the bundle can be written");
}

/// What [`LOOK`] prints in a container that is kept from all of that.
fn is_confined(out: &str) {
    for says in [
        "Read-only file system",
        "No space left on device",
        "short",
        "Operation not permitted",
        "Seccomp:\t2",
        "it stays",
        "0\n",
    ] {
        assert!(out.contains(says), "no {says} in {out}");
    }
    assert!(!out.contains(SECRET), "{out}");
    assert_eq!(out.matches("Read-only file system").count(), 3, "{out}");
}

fn create_and_start(engine: &Engine, id: &str) {
    assert!(engine.create(id).success(), "{}", engine.out(id));
    engine.run(&["start", id]).ok();
}

#[test]
fn a_container_and_what_is_started_in_it_are_kept_from_what_the_bundle_says() {
    let Some(engine) = engine() else { return };
    let line = format!("({LOOK}) 2>&1; ln -s a /link; echo $? >&2; exec sleep 1000");
    let folder = engine.bundle("one", &line, confine);
    put_secrets(&folder);
    create_and_start(&engine, "one");
    eventually("it has looked", || engine.out("one").contains("159"));
    is_confined(&engine.out("one"));
    let ran = engine.run(&["exec", "one", "sh", "-c", &format!("({LOOK}) 2>&1")]);
    is_confined(&ran.out);
    engine.run(&["exec", "one", "busybox", "ln", "-s", "a", "/link"]).code(159);
    // The root of another user as well, and what it starts.
    let ran = engine.run(&[
        "exec",
        "--user",
        "7:7",
        "one",
        "sh",
        "-c",
        "sh -c 'mkdir /tmp/x; grep Seccomp: /proc/self/status'",
    ]);
    ran.says("Seccomp:\t2").complains("No space left on device");
    engine.run(&["kill", "one", "KILL"]).ok();
    assert_eq!(engine.wait("one"), 137);
    engine.run(&["delete", "one"]).ok();
    assert!(!folder.join("rootfs/hidden/new").exists() && !folder.join("rootfs/made").exists());
    assert_eq!(fs::read_to_string(folder.join("rootfs/hidden/one")).unwrap(), SECRET);
    engine.has_nothing_left();
}

#[test]
fn each_container_of_a_pod_is_kept_from_what_its_own_bundle_says() {
    let Some(engine) = engine() else { return };
    let pod = Pod::make();
    engine.start_sandbox_with(&pod, |config| {
        config["linux"]["sysctl"] = json!({"kernel.shm_rmid_forced": "1", "fs.mqueue.msg_max": "17"});
        // Of the sandbox alone.
        config["linux"]["seccomp"] = json!({"defaultAction": "SCMP_ACT_ALLOW", "syscalls": [
            {"names": ["symlink", "symlinkat"], "action": "SCMP_ACT_ERRNO"}]});
    });
    let line = format!(
        "({LOOK}) 2>&1; cat /proc/sys/kernel/shm_rmid_forced /proc/sys/fs/mqueue/msg_max; \
        cat /proc/sys/net/ipv4/ping_group_range /proc/sys/net/ipv4/ip_unprivileged_port_start; echo done; exec sleep 1000"
    );
    let folder = engine.member("kept", &line, confine);
    put_secrets(&folder);
    create_and_start(&engine, "kept");
    eventually("it has looked", || engine.out("kept").contains("done"));
    is_confined(&engine.out("kept"));
    for says in ["1\n17\n", "1\t0\n1024\n"] {
        assert!(engine.out("kept").contains(says), "the pod's settings: {}", engine.out("kept"));
    }
    is_confined(&engine.run(&["exec", "kept", "sh", "-c", &format!("({LOOK}) 2>&1")]).out);

    // Its neighbour is kept from nothing of that.
    let free = "cat /secret; mkdir /made && echo made; echo x > /proc/sys/net/core/somaxconn; ln -s a /link && echo linked; \
        echo 100 > /proc/sys/net/core/somaxconn && echo set; grep Seccomp: /proc/self/status";
    let folder = engine.member("free", &format!("({free}) 2>&1"), |_| {});
    put_secrets(&folder);
    create_and_start(&engine, "free");
    assert_eq!(engine.wait("free"), 0);
    for says in [SECRET, "made\n", "linked\n", "set\n", "Seccomp:\t0"] {
        assert!(engine.out("free").contains(says), "no {says} in {}", engine.out("free"));
    }
    for id in ["kept", "sandbox"] {
        engine.run(&["kill", id, "KILL"]).ok();
        assert_eq!(engine.wait(id), 137);
    }
    ["kept", "free", "sandbox"].iter().for_each(|id| drop(engine.run(&["delete", id]).ok()));
    engine.has_nothing_left();
}

#[test]
fn settings_are_written_before_the_program_starts_and_one_that_is_unknown_is_named() {
    let Some(engine) = engine() else { return };
    let line = "cat /proc/sys/net/ipv4/ping_group_range /proc/sys/net/ipv4/ip_local_port_range /proc/sys/kernel/sem; exec namespaced";
    let folder = engine.bundle("set", line, |config| {
        config["linux"]["sysctl"] = json!({
            "net.ipv4.ping_group_range": "5 77",
            "net.ipv4.ip_local_port_range": "40000 50000",
            "kernel.sem": "250 32000 32 128",
            // It has this value, and cannot have another.
            "net.ipv4.tcp_sack": "1",
        });
    });
    put_program(&folder, "namespaced.c");
    create_and_start(&engine, "set");
    assert_eq!(engine.wait("set"), 0, "{}", engine.out("set"));
    for says in ["5\t77\n40000\t50000\n250\t32000\t32\t128\n", "all tests of namespaced settings passed"] {
        assert!(engine.out("set").contains(says), "no {says} in {}", engine.out("set"));
    }
    engine.run(&["delete", "set"]).ok();
    for (id, name, value) in [
        ("unknown", "net.ipv4.no_such_setting", "1"),
        ("folder", "net.ipv4", "1"),
        ("value", "net.core.somaxconn", "many"),
        ("fixed", "net.ipv4.tcp_sack", "0"),
    ] {
        engine.bundle(id, "echo never", |config| config["linux"]["sysctl"] = json!({name: value}));
        assert!(engine.create(id).success(), "{}", engine.out(id));
        engine.run(&["start", id]).code(1).complains(name);
        assert_ne!(engine.wait(id), 0);
        engine.run(&["delete", id]).ok();
    }
    engine.has_nothing_left();
}

#[test]
fn what_is_mounted_below_a_bind_that_is_read_only_is_as_writable_as_on_the_host() {
    let Some(engine) = engine() else { return };
    let host = engine.unilith.path("host");
    let (below, fixed) = (host.join("below"), host.join("fixed"));
    [&below, &fixed].iter().for_each(|folder| fs::create_dir_all(folder).unwrap());
    let mounted = Mounted(vec![mount(&below, "rw"), mount(&fixed, "ro")]);
    let line = "(touch /mnt/top; touch /mnt/below/in && echo in; touch /mnt/fixed/in; mv /mnt/below/in /mnt/out; \
        touch /all/below/in; touch /plain/below/in) 2>&1";
    engine.bundle("binds", line, |config| {
        for (destination, options) in [
            ("/mnt", json!(["rbind", "ro"])),
            ("/all", json!(["rbind", "rro"])),
            ("/plain", json!(["bind", "ro"])),
        ] {
            let bind =
                json!({"destination": destination, "type": "bind", "source": host, "options": options});
            config["mounts"].as_array_mut().unwrap().push(bind);
        }
    });
    create_and_start(&engine, "binds");
    assert_eq!(engine.wait("binds"), 1, "{}", engine.out("binds"));
    let out = engine.out("binds");
    assert!(out.contains("in\n") && below.join("in").exists(), "{out}");
    assert_eq!(
        out.matches("Read-only file system").count() + out.matches("cross-device").count(),
        5,
        "{out}"
    );
    assert!(!host.join("top").exists() && !host.join("out").exists() && !fixed.join("in").exists());
    engine.run(&["delete", "binds"]).ok();
    drop(mounted);
    engine.has_nothing_left();
}

#[test]
fn what_is_mounted_later_below_a_bind_is_seen_as_the_propagation_of_the_bind_says() {
    let Some(engine) = engine() else { return };
    let host = engine.unilith.path("host");
    let (later, before) = (host.join("later"), host.join("before"));
    [&later, &before].iter().for_each(|folder| fs::create_dir_all(folder).unwrap());
    let mut mounted = Mounted(vec![mount(&before, "rw")]);
    fs::write(before.join("early"), "x").unwrap();
    engine.bundle("late", "exec sleep 1000", |config| {
        for (destination, options) in [
            ("/mnt", json!(["rbind", "rprivate"])),
            ("/slave", json!(["rbind", "rslave"])),
            ("/plain", json!(["bind"])),
        ] {
            let bind =
                json!({"destination": destination, "type": "bind", "source": host, "options": options});
            config["mounts"].as_array_mut().unwrap().push(bind);
        }
    });
    create_and_start(&engine, "late");
    mounted.0.push(mount(&later, "rw"));
    fs::write(later.join("late"), "x").unwrap();
    let ls = |path: &str| engine.run(&["exec", "late", "ls", path]).ok().out;
    assert_eq!((ls("/mnt/before").as_str(), ls("/mnt/later").as_str()), ("early\n", ""));
    assert_eq!((ls("/slave/before").as_str(), ls("/slave/later").as_str()), ("early\n", "late\n"));
    assert_eq!((ls("/plain/before").as_str(), ls("/plain/later").as_str()), ("", ""));
    // What is made in it is on the host.
    engine.run(&["exec", "late", "touch", "/mnt/before/made"]).ok();
    assert!(before.join("made").exists());
    engine.run(&["kill", "late", "KILL"]).ok();
    assert_eq!(engine.wait("late"), 137);
    engine.run(&["delete", "late"]).ok();
    drop(mounted);
    engine.has_nothing_left();
}

fn mount(at: &Path, options: &str) -> String {
    let at = at.display().to_string();
    client("mount", &["-t", "tmpfs", "-o", options, "tmpfs", &at]).ok();
    at
}

struct Mounted(Vec<String>);

impl Drop for Mounted {
    fn drop(&mut self) {
        self.0.iter().for_each(|at| drop(client("umount", &["-l", at])));
    }
}

/// A container's name, what is wrong with its bundle, and what is said of it.
type Case<'a> = (&'a str, &'a dyn Fn(&mut Value), &'a str);

#[test]
fn a_container_with_the_capability_for_it_makes_bridges_and_no_other_one() {
    let Some(engine) = engine() else { return };
    let pod = Pod::make();
    engine.start_sandbox(&pod);
    let line = "busybox brctl addbr made && busybox ip link show made; echo over; exec sleep 1000";
    let with = |some: Value| {
        move |config: &mut Value| {
            config["process"]["capabilities"] =
                json!({"bounding": some.clone(), "effective": some.clone(), "permitted": some});
        }
    };
    engine.start_member("may", line, with(json!(["CAP_NET_ADMIN"])));
    engine.start_member("may-not", line, with(json!(["CAP_CHOWN"])));
    ["may", "may-not"].iter().for_each(|id| eventually("it has tried", || engine.out(id).contains("over")));
    assert!(engine.out("may").contains("made: <BROADCAST,MULTICAST>"), "{}", engine.out("may"));
    assert!(engine.out("may-not").contains("Operation not permitted"), "{}", engine.out("may-not"));
    for id in ["may", "may-not", "sandbox"] {
        engine.run(&["delete", "--force", id]).ok();
    }
    engine.has_nothing_left();
}

#[test]
fn the_mount_namespace_of_a_container_has_its_own_files_and_none_of_the_hosts() {
    let Some(engine) = engine() else { return };
    if is_skipped(!root_is_mount(), "whoever enters it below a root that is no mount has that root") {
        return;
    }
    let pod = Pod::make();
    let data = engine.unilith.path("data");
    for folder in ["data", "fixed"] {
        fs::create_dir(engine.unilith.path(folder)).expect("a folder can be made");
        fs::write(engine.unilith.path(folder).join("file"), folder).expect("a file can be written");
    }
    let binds = |config: &mut Value| {
        for (name, is) in [("data", "rw"), ("fixed", "ro")] {
            let (at, source) = (format!("/{name}"), engine.unilith.path(name));
            let bind = json!({"destination": at, "type": "bind", "source": source, "options": ["rbind", is]});
            config["mounts"].as_array_mut().expect("it has mounts").push(bind);
        }
    };
    // A machine, and a container in one.
    engine.start_sandbox_with(&pod, binds);
    engine.start_member("one", "exec sleep 1000", binds);
    for id in ["sandbox", "one"] {
        let namespace = format!("--mount=/proc/{}/ns/mnt", engine.pid(id).as_raw_nonzero());
        let line = "cat /data/file /fixed/file && echo ' '$(ls /proc). && echo made >/unilith-made && \
            echo new >/data/new && ! touch /fixed/new";
        let ran = client("nsenter", &[&namespace, "--", "/bin/sh", "-c", line]).ok();
        assert!(ran.out.contains("datafixed .\n") && ran.err.contains("Read-only file system"), "{ran}");
        engine.run(&["exec", id, "cat", "/unilith-made"]).ok().says("made");
        assert!(engine.unilith.path(id).join("rootfs/unilith-made").exists());
        assert!(!Path::new("/unilith-made").exists(), "it is a file of the container's");
        fs::remove_file(data.join("new")).expect("it was written to the host's directory");
    }
    for id in ["one", "sandbox"] {
        engine.run(&["delete", "--force", id]).ok();
    }
    engine.has_nothing_left();
}

#[test]
fn profiles_paths_and_settings_that_are_wrong_are_refused_when_the_container_is_created() {
    let Some(engine) = engine() else { return };
    let long: Vec<Value> = (0..1000)
        .map(|n| json!({"names": ["ioctl"], "action": "SCMP_ACT_ERRNO", "args": [{"index": 1, "value": n, "op": "SCMP_CMP_EQ"}]}))
        .collect();
    let cases: [Case; 9] = [
        ("notify", &|c| c["linux"]["seccomp"]["defaultAction"] = json!("SCMP_ACT_NOTIFY"), "SCMP_ACT_NOTIFY"),
        (
            "trace",
            &|c| c["linux"]["seccomp"]["syscalls"][0]["action"] = json!("SCMP_ACT_TRACE"),
            "SCMP_ACT_TRACE",
        ),
        ("action", &|c| c["linux"]["seccomp"]["syscalls"][0]["action"] = json!("ALLOW"), "ALLOW"),
        ("argument", &|c| c["linux"]["seccomp"]["syscalls"][1]["args"][0]["index"] = json!(6), "argument 6"),
        ("long", &|c| c["linux"]["seccomp"]["syscalls"] = json!(long), "4096"),
        ("masked", &|c| c["linux"]["maskedPaths"] = json!(["proc/kcore"]), "maskedPaths"),
        ("readonly", &|c| c["linux"]["readonlyPaths"] = json!(vec!["/x"; 5000]), "readonlyPaths"),
        ("global", &|c| c["linux"]["sysctl"] = json!({"vm.swappiness": "1"}), "vm.swappiness"),
        ("name", &|c| c["linux"]["sysctl"] = json!({"kernel.hostname": "x"}), "kernel.hostname"),
    ];
    for (id, change, says) in cases {
        let folder = engine.bundle(id, "echo never", |config| {
            config["linux"]["seccomp"] = profile();
            change(config);
        });
        let bundle = folder.display().to_string();
        let ran = engine.run(&["create", "--bundle", &bundle, id]).complains(says);
        assert_ne!(ran.code, Some(0), "{id}: {ran}");
        engine.run(&["state", id]).code(1).complains("does not exist");
    }
    let features = engine.run(&["features"]).ok().out;
    let features: Value = serde_json::from_str(&features).unwrap();
    assert_eq!(features["linux"]["seccomp"]["enabled"], json!(true));
    assert_eq!(engine.unilith.machines_on_disk(), 0);
}
