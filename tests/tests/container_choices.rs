// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a container's machine is: annotations of bundles, and the administrator's file that says what they may choose. Virtual machines
//! are driven as those that are processes are in `containers.rs`.

use serde_json::json;
use std::fs;
use unilith_tests::{
    client,
    engine::{Engine, Pod, engine},
    eventually, finish,
};

/// The annotation that most tests here have.
const MICROVM: (&str, &str) = ("dev.unilith.machine", "microvm");

/// A bundle whose machine is a virtual one.
fn microvm(engine: &Engine, id: &str, line: &str, change: impl FnOnce(&mut serde_json::Value)) {
    engine.unilith.build_kernel_of_containers("microvm");
    engine.bundle(id, line, |config| {
        config["annotations"] = json!({MICROVM.0: MICROVM.1});
        change(config);
    });
}

#[test]
fn a_container_is_a_virtual_machine_when_its_annotation_says_so() {
    let Some(engine) = engine() else { return };
    let (config, single) = (engine.unilith.path("config-map"), engine.unilith.path("single"));
    fs::create_dir(&config).unwrap();
    fs::write(config.join("key"), "from a ConfigMap").unwrap();
    fs::write(&single, "10.1.2.3 peer").unwrap();
    let line = "id; cat /etc/map/key /etc/hosts; echo x > /etc/map/key; echo made > /made; busybox chown 7:8 /made; \
        cat /proc/self/status; busybox df /run/small; chmod() { busybox chmod \"$@\"; }; chmod 700 /made || echo held; \
        cat /run/small/below; trap 'echo got it; exit 5' USR1; echo up; while :; do sleep 0.1; done";
    microvm(&engine, "one", line, |config_json| {
        config_json["process"]["user"] = json!({"uid": 0, "gid": 0, "additionalGids": [5, 77]});
        let some = ["CAP_CHOWN", "CAP_DAC_OVERRIDE"];
        config_json["process"]["capabilities"] =
            json!({"bounding": some, "effective": some, "permitted": some});
        config_json["hostname"] = json!("virtual-1");
        config_json["linux"]["seccomp"] = json!({
            "defaultAction": "SCMP_ACT_ALLOW",
            "syscalls": [{"names": ["chmod", "fchmodat"], "action": "SCMP_ACT_ERRNO"}],
        });
        for mount in [
            json!({"destination": "/etc/map", "type": "bind", "source": config, "options": ["rbind", "ro"]}),
            json!({"destination": "/etc/hosts", "type": "bind", "source": single, "options": ["bind"]}),
            json!({"destination": "/run/small", "type": "tmpfs", "options": ["size=256k"]}),
            json!({"destination": "/run/small/below", "type": "bind", "source": single, "options": ["bind"]}),
        ] {
            config_json["mounts"].as_array_mut().unwrap().push(mount);
        }
    });
    assert!(engine.create("one").success(), "{}", engine.out("one"));
    assert_eq!(engine.status("one"), "created");
    engine.run(&["start", "one"]).ok();
    eventually("it runs", || engine.out("one").contains("up\n"));
    let out = engine.out("one");
    for says in [
        "groups=5,77",
        "from a ConfigMap",
        "10.1.2.3 peer",
        "Read-only file system",
        "CapEff:\t0000000000000003",
        " 256 ",
        "held",
    ] {
        assert!(out.contains(says), "no {says} in {out}");
    }
    assert_eq!(
        out.matches("10.1.2.3 peer").count(),
        2,
        "a file system in memory hides nothing that is mounted in it"
    );
    // It is one: the machine's process is QEMU.
    let pids = engine.run(&["ps", "--format", "json", "one"]).ok().out;
    let pids: Vec<u32> = serde_json::from_str(&pids).unwrap();
    let names = pids.iter().map(|pid| fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default());
    assert!(names.into_iter().any(|name| name.starts_with("qemu")), "{pids:?}");
    use std::os::unix::fs::MetadataExt;
    let made = fs::metadata(engine.unilith.path("one").join("rootfs/made")).unwrap();
    assert_eq!((made.uid(), made.gid()), (7, 8), "what it wrote is in the bundle");

    engine.run(&["exec", "one", "hostname"]).ok().says("virtual-1");
    engine.run(&["exec", "--user", "7:9", "one", "sh", "-c", "id; exit 6"]).code(6).says("uid=7 gid=9");
    engine.run(&["pause", "one"]).ok();
    assert_eq!(engine.status("one"), "paused");
    engine.run(&["resume", "one"]).ok();
    engine.run(&["kill", "one", "USR1"]).ok();
    assert_eq!(engine.wait("one"), 5, "{}", engine.out("one"));
    assert!(engine.out("one").contains("got it"));
    engine.run(&["delete", "one"]).ok();
    assert_eq!(engine.unilith.machines_on_disk(), 0);
}

#[test]
fn a_virtual_machine_is_at_the_address_of_its_namespace_and_goes_with_its_container() {
    let Some(engine) = engine() else { return };
    let pod = Pod::make();
    let path = pod.path();
    for id in ["first", "second"] {
        microvm(&engine, id, "exec httpd -f -p 80 -h /www", |config| {
            config["linux"]["namespaces"][1] = json!({"type": "network", "path": path});
        });
        let www = engine.unilith.path(id).join("rootfs/www");
        fs::create_dir(&www).unwrap();
        // Longer than a segment: those of the link stay whole on their way through the tap device.
        fs::write(www.join("index.html"), format!("served by {id} {}", "x".repeat(300_000))).unwrap();
        assert!(engine.create(id).success(), "{}", engine.out(id));
        engine.run(&["start", id]).ok();
        let words = ["-s", "--retry", "20", "--retry-connrefused", "-m", "40", &pod.page()];
        let ran = client("curl", &words).ok();
        assert!(
            ran.out.starts_with(&format!("served by {id}")) && ran.out.len() > 300_000,
            "{}",
            ran.out.len()
        );
        engine.run(&["kill", id, "KILL"]).ok();
        assert_eq!(engine.wait(id), 137, "{}", engine.out(id));
        engine.run(&["delete", id]).ok();
        let links = client("nsenter", &[&format!("--net={path}"), "--", "ip", "-o", "link"]).ok();
        assert!(!links.out.contains("unilith-tap"), "{links}");
    }
}

#[test]
fn what_cannot_be_held_in_a_virtual_machine_is_refused_by_its_name() {
    let Some(engine) = engine() else { return };
    let refused = |id: &str, says: &str| {
        assert!(!engine.create(id).success());
        assert!(engine.out(id).contains(says), "{}", engine.out(id));
    };
    microvm(&engine, "small", "", |config| {
        config["linux"]["resources"] = json!({"memory": {"limit": 32 << 20}});
    });
    refused("small", "too little for a virtual machine");
    microvm(&engine, "users", "", |config| {
        config["linux"]["namespaces"][0] = json!({"type": "user"});
        let map = json!([{"containerID": 0, "hostID": 100_000, "size": 10}]);
        (config["linux"]["uidMappings"], config["linux"]["gidMappings"]) = (map.clone(), map);
    });
    refused("users", "--userns");
    microvm(&engine, "sandbox", "", |config| {
        config["annotations"]["io.kubernetes.cri.container-type"] = json!("sandbox");
    });
    refused("sandbox", "dev.unilith.pod: separate");
    for (key, word, says) in [
        ("unilith.machine", "vax", "process, microvm and qemu"),
        ("dev.unilith.machine", "firecracker", "choose microvm or qemu"),
        ("unilith.kernel", "linux", "unilith.kernel=linux"),
        ("unilith.ukl", "cpl0", "unilith.ukl"),
        ("unilith.set", "tun=maybe", "unilith.set"),
    ] {
        let id = format!("{key}-{word}").replace('=', "-");
        engine.bundle(&id, "", |config| config["annotations"] = json!({key: word}));
        refused(&id, says);
    }
    assert_eq!(engine.unilith.machines_on_disk(), 0);
}

#[test]
fn the_administrators_file_says_what_containers_may_be() {
    let Some(engine) = engine() else { return };
    let file = engine.unilith.path("runc.toml");
    let create = |id: &str| {
        let bundle = engine.unilith.path(id).display().to_string();
        let config = file.display().to_string();
        let words = ["--config", &config, "create", "--bundle", &bundle, id];
        let mut command = engine.command(&words);
        finish(&mut command, unilith_tests::BUILD_KERNEL)
    };
    engine.bundle("free", "", |config| config["annotations"] = json!({"unilith.machine": "qemu"}));
    create("free").code(1).complains("runc.toml");
    fs::write(&file, "[allow]\nmachine = ['process']\n").unwrap();
    create("free").code(1).complains("unilith.machine=qemu").complains("allows process");
    fs::write(&file, "machine = 'microvm'\nkernel = 'linux'\n").unwrap();
    engine.bundle("plain", "", |_| {});
    create("plain").code(1).complains("unilith.kernel=linux");
    fs::write(&file, "machin = 'microvm'\n").unwrap();
    create("plain").code(1).complains("line 1");
    assert_eq!(engine.unilith.machines_on_disk(), 0);
}
