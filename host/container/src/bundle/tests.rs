// SPDX-License-Identifier: Apache-2.0 OR MIT

use super::*;
use serde_json::{Value, json};

fn config() -> Value {
    json!({
        "ociVersion": "1.0.2-dev",
        "process": {
            "terminal": false,
            "capabilities": {"bounding": ["CAP_CHOWN", "CAP_NET_RAW"], "permitted": ["CAP_CHOWN"], "ambient": []},
            "noNewPrivileges": true,
            "user": {"uid": 999, "gid": 998, "additionalGids": [1, 2]},
            "args": ["redis-server", "--save", ""],
            "env": ["PATH=/usr/bin", "A=b"],
            "cwd": "/data",
            "rlimits": [{"type": "RLIMIT_NPROC", "soft": 1, "hard": 2}, {"type": "RLIMIT_NOFILE", "soft": 1024, "hard": 20000}]
        },
        "root": {"path": "rootfs", "readonly": true},
        "hostname": "c0",
        "mounts": [
            {"destination": "/proc", "type": "proc", "source": "proc"},
            {"destination": "/dev", "type": "tmpfs", "source": "tmpfs", "options": ["mode=755"]},
            {"destination": "/sys/fs/cgroup", "type": "cgroup", "source": "cgroup"},
            {"destination": "/etc/x", "type": "bind", "source": "/etc/hostname", "options": ["rbind", "ro"]},
            {"destination": "/data", "source": "/tmp", "options": ["rbind", "rw"]},
            {"destination": "/run", "type": "tmpfs", "options": ["mode=755", "size=65536k"]}
        ],
        "linux": {
            "namespaces": [{"type": "pid"}, {"type": "network", "path": "/run/netns/a"}],
            "cgroupsPath": "/libpod_parent/libpod-c0",
            "resources": {"memory": {"limit": 134217728}},
            "seccomp": {"defaultAction": "SCMP_ACT_ALLOW", "syscalls": [{"names": ["chmod"], "action": "SCMP_ACT_ERRNO"}]},
            "maskedPaths": ["/proc/kcore", "/sys/firmware"],
            "readonlyPaths": ["/proc/sys"],
            "sysctl": {"net.ipv4.ping_group_range": "0 2147483647", "kernel.shm_rmid_forced": "1"}
        },
        "annotations": {"unilith.machine": "process"}
    })
}

fn parse(config: &Value) -> std::result::Result<Container, String> {
    Container::parse(&config.to_string(), Path::new("/bundle"))
}

#[test]
fn a_bundle_as_podman_writes_it_is_read() {
    let c = parse(&config()).unwrap();
    assert_eq!((c.root.to_str(), c.read_only, c.uid, c.gid), (Some("/bundle/rootfs"), true, 999, 998));
    assert_eq!((c.groups.as_slice(), c.memory), (&[1, 2][..], Some(128 << 20)));
    assert_eq!(
        c.capabilities,
        Some(Capabilities { bounding: 1 | 1 << 13, permitted: 1, ..Capabilities::default() })
    );
    assert!(c.no_new_privileges);
    assert!(!c.confinement.filter.is_empty());
    assert_eq!(c.confinement.masked, ["/proc/kcore", "/sys/firmware"]);
    assert_eq!(c.confinement.read_only, ["/proc/sys"]);
    let settings: Vec<&str> = c.confinement.settings.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(settings, ["kernel.shm_rmid_forced", "net.ipv4.ping_group_range"]);
    assert_eq!(c.limits, [(6, 1, 2), (7, 1024, 20_000)]);
    assert_eq!(c.network, Network::At("/run/netns/a".into()));
    let binds: Vec<_> = c.binds.iter().map(|b| (b.destination.to_str().unwrap(), b.read_only)).collect();
    assert_eq!(binds, [("/etc/x", true), ("/data", false)]);
    assert!(!c.binds[0].is_directory && c.binds[1].is_directory);
    let run = Scratch {
        destination: "/run".into(),
        mode: 0o755,
        size: Some(64 << 20),
        inodes: None,
        noexec: false,
        read_only: false,
        copies_up: false,
    };
    assert_eq!(c.scratch, [run]);
    assert_eq!(c.choice("machine"), Some("process"));
}

#[test]
fn the_namespace_that_everybody_is_in_is_the_hosts() {
    let mut config = config();
    config["linux"]["namespaces"][1]["path"] = json!("/proc/self/ns/net");
    assert_eq!(parse(&config).unwrap().network, Network::Host);
}

#[test]
fn a_container_of_a_pod_names_the_pods_process_and_may_be_offline() {
    let mut config = config();
    config["linux"]["namespaces"][0] = json!({"type": "uts", "path": "/proc/4711/ns/uts"});
    let annotations = [
        ("io.kubernetes.cri.container-type", "container"),
        ("io.kubernetes.cri.container-name", "shipper"),
        ("dev.unilith.offline", "reloader, shipper"),
    ];
    annotations.into_iter().for_each(|(key, value)| config["annotations"][key] = json!(value));
    let c = parse(&config).unwrap();
    assert_eq!(
        (c.namespaces.uts.process(), c.is_in_pod(), c.is_offline(), c.is_sandbox),
        (Some(4711), true, true, false)
    );
    assert!(!c.joins(), "without a network there is nothing to share");
    config["annotations"]["io.kubernetes.cri.container-name"] = json!("ship");
    let c = parse(&config).unwrap();
    assert!(!c.is_offline() && c.joins());
    assert_eq!(c.sandbox(), None);
    for path in ["/proc/self/ns/uts", "/run/utsns/4711", "/proc", ""] {
        assert_eq!(process_of(Path::new(path)), None, "{path}");
    }
}

#[test]
fn a_sandbox_holds_its_pods_machine_unless_the_pod_says_otherwise() {
    let mut config = config();
    config["linux"]["resources"] = json!({"cpu": {"shares": 2, "quota": 5}, "memory": {}});
    for (key, value) in [("container-type", "sandbox"), ("sandbox-id", "a1"), ("sandbox-memory", "33554432")]
    {
        config["annotations"][format!("io.kubernetes.cri.{key}")] = json!(value);
    }
    let c = parse(&config).unwrap();
    assert!(c.holds_machine() && !c.joins());
    assert_eq!((c.memory, c.sandbox()), (Some(32 << 20), None));
    let cpu = c.resources.as_ref().unwrap().cpu().as_ref().unwrap();
    assert_eq!((cpu.shares(), cpu.quota()), (None, Some(5)), "the least share is for a process that sleeps");
    config["annotations"]["io.kubernetes.cri.container-type"] = json!("container");
    assert_eq!(parse(&config).unwrap().sandbox(), Some("a1"));
    config["annotations"]["dev.unilith.pod"] = json!("separate");
    assert!(!parse(&config).unwrap().joins());
    config["annotations"]["io.kubernetes.cri.container-type"] = json!("sandbox");
    assert!(!parse(&config).unwrap().holds_machine());
    config["annotations"]["dev.unilith.pod"] = json!("other");
    assert!(parse(&config).unwrap_err().contains("unilith.pod=other"));
}

#[test]
fn a_limit_of_processor_time_is_worth_processors() {
    let mut config = config();
    let mut worth = |cpu: Value| {
        config["linux"]["resources"] = json!({ "cpu": cpu });
        parse(&config).unwrap().processors()
    };
    assert_eq!(worth(json!({})), None);
    assert_eq!(worth(json!({"shares": 4096, "quota": -1})), None);
    assert_eq!(worth(json!({"quota": 50_000, "period": 100_000})), Some(1));
    assert_eq!(worth(json!({"quota": 250_000, "period": 100_000})), Some(3));
    assert_eq!(worth(json!({"quota": 250_000})), Some(3), "Linux' period");
    assert_eq!(worth(json!({"cpus": "0-1,4"})), Some(3));
    assert_eq!(worth(json!({"cpus": "1", "quota": 250_000})), Some(1));
    assert_eq!(worth(json!({"cpus": "", "quota": i64::MAX, "period": 1})), Some(u32::MAX));
    assert_eq!(worth(json!({"cpus": "x,3-1"})), Some(1));
    config["linux"]["resources"] = json!({"cpu": {"shares": 2}});
    for (key, value) in
        [("container-type", "sandbox"), ("sandbox-cpu-quota", "150000"), ("sandbox-cpu-period", "100000")]
    {
        config["annotations"][format!("io.kubernetes.cri.{key}")] = json!(value);
    }
    assert_eq!(parse(&config).unwrap().processors(), Some(2));
    config["annotations"]["io.kubernetes.cri.sandbox-cpu-quota"] = json!("0");
    assert_eq!(parse(&config).unwrap().processors(), None);
}

#[test]
fn a_pods_resources_are_told_by_cri_o_in_words_of_its_own() {
    for key in ["io.kubernetes.cri-o.PodLinuxResources", "pod-linux-resources.crio.io"] {
        let mut config = config();
        config["annotations"]["io.kubernetes.cri-o.ContainerType"] = json!("sandbox");
        let mut told = |text: &str| {
            config["annotations"][key] = json!(text);
            let container = parse(&config).unwrap();
            (container.memory, container.processors())
        };
        let all =
            r#"{"cpu_period":100000,"cpu_quota":150000,"cpu_shares":102,"memory_limit_in_bytes":33554432}"#;
        assert_eq!(told(all), (Some(32 << 20), Some(2)));
        let own = (Some(128 << 20), None);
        assert_eq!(told(r#"{"cpu_shares":2}"#), own);
        for nothing in
            ["{}", "[]", "", "{", r#"{"cpu_quota":-1,"cpu_period":100000,"memory_limit_in_bytes":"1"}"#]
        {
            assert_eq!(told(nothing), own, "{nothing}");
        }
    }
}

#[test]
fn what_a_machine_cannot_be_is_refused_by_its_name() {
    for (pointer, value, says) in [
        ("/ociVersion", json!("2.0"), "ociVersion"),
        ("/process/args", json!([]), "names no program"),
        ("/process/cwd", json!("data"), "absolute"),
        ("/process/env", json!(["A=\0"]), "NUL"),
        ("/mounts/3/source", json!("/no/such/file"), "/etc/x"),
        ("/mounts/3/source", json!("/dev/null"), "devices"),
        ("/mounts/5/type", json!("overlay"), "overlay"),
        ("/mounts/5/options", json!(["mode=rw"]), "octal"),
        ("/mounts/5/options", json!(["size=half"]), "size=half"),
        ("/mounts/5/options", json!(["nr_inodes=99999999999999999999"]), "nr_inodes"),
        ("/linux/maskedPaths/1", json!("sys/firmware"), "maskedPaths"),
        ("/linux/maskedPaths/0", json!("//"), "maskedPaths"),
        ("/linux/readonlyPaths/0", json!("/a\0"), "readonlyPaths"),
        ("/linux/readonlyPaths/0", json!(format!("/{}", "x".repeat(30_000))), "at most"),
        ("/linux/sysctl", json!({"vm.swappiness": "1"}), "vm.swappiness"),
        ("/linux/sysctl", json!({"net.../../kernel/x": "1"}), "separate kernel namespace"),
        ("/linux/sysctl", json!({"kernel.hostname": "x"}), "kernel.hostname"),
        ("/linux/seccomp/defaultAction", json!("SCMP_ACT_NOTIFY"), "SCMP_ACT_NOTIFY"),
        ("/linux/seccomp/syscalls", json!(7), "invalid type"),
        ("/linux/namespaces/0/type", json!("user"), "uidMappings"),
    ] {
        let mut config = config();
        *config.pointer_mut(pointer).unwrap() = value;
        let error = parse(&config).unwrap_err();
        assert!(error.contains(says), "{pointer}: {error}");
    }
    for text in ["", "{", "[]", "{\"ociVersion\": 1}", "{\"ociVersion\": \"1.0.2\"}"] {
        assert!(Container::parse(text, Path::new("/")).is_err(), "{text}");
    }
}

#[test]
fn a_damaged_file_is_an_error_and_nothing_else() {
    let text = config().to_string();
    for at in (0..text.len()).step_by(3) {
        let _ = Container::parse(&text[..at], Path::new("/"));
        let mut bytes = text.clone().into_bytes();
        bytes[at] ^= 0x15;
        if let Ok(text) = String::from_utf8(bytes) {
            let _ = Container::parse(&text, Path::new("/"));
        }
    }
}
