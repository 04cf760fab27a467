// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Files of containers (`unilith oci`) that are not simply the host's: file systems in memory with limits, and those whose users are
//! others on the host.

use serde_json::json;
use std::{
    fs,
    os::unix::fs::{MetadataExt, chown},
};
use unilith_tests::{
    engine::{Pod, engine},
    eventually,
};

/// What a shell says of file systems with limits at /small, /few and /dev/shm.
const LOOK: &str = "busybox df -P /small | busybox tail -n 1; busybox stat -c 'mode %a' /small; \
    busybox head -c 200000 /dev/zero > /small/fits && echo fits; \
    busybox head -c 900000 /dev/zero > /small/more 2>&1 || echo is full; \
    for n in 1 2 3 4 5 6 7 8; do touch /few/$n 2>/dev/null || echo no more than $n; done | busybox head -n 1; busybox rm /few/*; \
    busybox df -P /dev/shm | busybox tail -n 1; cat /small/kept/key; \
    cp() { busybox cp \"$@\"; }; cp /bin/busybox /few/x; /few/x echo ran || echo not run";

fn mount_small(config: &mut serde_json::Value, kept: &str) {
    for mount in [
        json!({"destination": "/small", "type": "tmpfs", "options": ["nosuid", "size=512k", "mode=0750"]}),
        json!({"destination": "/few", "type": "tmpfs", "options": ["noexec", "nr_inodes=5", "size=4m"]}),
        json!({"destination": "/dev/shm", "type": "tmpfs", "options": ["size=3072k"]}),
        json!({"destination": "/small/kept", "type": "bind", "source": kept, "options": ["rbind", "ro"]}),
    ] {
        config["mounts"].as_array_mut().expect("a list").push(mount);
    }
}

fn has_limits(out: &str) {
    for says in [
        "tmpfs 512 ",
        "mode 750",
        "fits",
        "is full",
        // The root directory is one of the five, as on Linux.
        "no more than 5",
        "shm 3072 ",
        "from the host",
        "not run",
    ] {
        let words = out.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(words.contains(says), "no {says} in {out}");
    }
}

#[test]
fn file_systems_in_memory_have_the_size_the_mode_and_the_files_that_were_asked_for() {
    let Some(engine) = engine() else { return };
    let kept = engine.unilith.path("kept");
    fs::create_dir(&kept).unwrap();
    fs::write(kept.join("key"), "from the host\n").unwrap();
    let kept = kept.display().to_string();
    engine.bundle("one", LOOK, |config| mount_small(config, &kept));
    assert!(engine.create("one").success(), "{}", engine.out("one"));
    engine.run(&["start", "one"]).ok();
    engine.wait("one");
    has_limits(&engine.out("one"));
    engine.run(&["delete", "one"]).ok();
    // The same for a container of a pod.
    let pod = Pod::make();
    engine.start_sandbox(&pod);
    engine.start_member("member", LOOK, |config| {
        config["linux"]["namespaces"][2] = json!({"type": "ipc"});
        mount_small(config, &kept);
    });
    engine.wait("member");
    has_limits(&engine.out("member"));
    engine.run(&["kill", "sandbox", "KILL"]).ok();
    engine.wait("sandbox");
    ["member", "sandbox"].iter().for_each(|id| drop(engine.run(&["delete", id]).ok()));
    engine.has_nothing_left();
}

#[test]
fn files_of_a_container_with_users_of_its_own_are_the_mapped_users_on_the_host() {
    let Some(engine) = engine() else { return };
    let line = "id; cat /proc/self/uid_map /proc/self/gid_map; busybox stat -c '%n %u %g' /bin /foreign /run; \
        echo x > /made; mkdir /folder; busybox chown 7:8 /folder; busybox chown 6000 /made 2>&1; \
        busybox setpriv --reuid 6000 true 2>&1 || busybox su -s /bin/sh nobody 2>&1; cat /data/private; echo up; \
        while :; do sleep 0.1; done";
    let data = engine.unilith.path("data");
    fs::create_dir(&data).unwrap();
    fs::write(data.join("private"), "of the mapped root\n").unwrap();
    chown(data.join("private"), Some(100_000), Some(200_000)).unwrap();
    let folder = engine.bundle("one", line, |config| {
        config["linux"]["namespaces"].as_array_mut().unwrap().push(json!({"type": "user"}));
        let map = |first: u32| json!([{"containerID": 0, "hostID": first, "size": 5000}]);
        (config["linux"]["uidMappings"], config["linux"]["gidMappings"]) = (map(100_000), map(200_000));
        config["mounts"]
            .as_array_mut()
            .unwrap()
            .push(json!({"destination": "/data", "type": "bind", "source": data, "options": ["rbind"]}));
    });
    let root = folder.join("rootfs");
    fs::write(root.join("foreign"), "x").unwrap();
    for path in ["", "bin"] {
        chown(root.join(path), Some(100_000), Some(200_000)).unwrap();
    }
    assert!(engine.create("one").success(), "{}", engine.out("one"));
    engine.run(&["start", "one"]).ok();
    eventually("it runs", || engine.out("one").contains("up\n"));
    let out = engine.out("one").split_whitespace().collect::<Vec<_>>().join(" ");
    for says in [
        "uid=0 gid=0",
        "0 100000 5000 0 200000 5000",
        "/bin 0 0",
        "/foreign 65534 65534",
        "/run 0 0",
        "Invalid argument",
        "of the mapped root",
    ] {
        assert!(out.contains(says), "no {says} in {out}");
    }
    let owner = |name: &str| fs::metadata(root.join(name)).map(|m| (m.uid(), m.gid())).unwrap();
    assert_eq!((owner("made"), owner("folder")), ((100_000, 200_000), (100_007, 200_008)));
    engine
        .run(&["exec", "--user", "9:9", "one", "sh", "-c", "id; cat /data/private > /made"])
        .code(1)
        .says("uid=9 gid=9");
    engine.run(&["exec", "one", "sh", "-c", "cat /proc/self/uid_map"]).ok().says("100000");
    engine.run(&["kill", "one", "KILL"]).ok();
    assert_eq!(engine.wait("one"), 137);
    engine.run(&["delete", "one"]).ok();
    assert_eq!(engine.unilith.machines_on_disk(), 0);
}
