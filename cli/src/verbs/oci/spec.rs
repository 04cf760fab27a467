// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `spec`: a config.json to begin with, with the mounts, rights and paths that engines give a container which asks for nothing more.

use super::manage::VERSION;
use crate::fault::{Fault, Result, file};
use serde_json::{Value, json};
use std::{fs, path::Path, path::PathBuf};

#[derive(clap::Args, Clone, Debug)]
pub struct Args {
    /// The directory to write it to
    #[arg(short, long, value_name = "DIR", default_value = ".")]
    bundle: PathBuf,
    /// One that an ordinary user can run: in a user namespace, without limits and a network namespace
    #[arg(long)]
    rootless: bool,
}

pub fn act(args: &Args) -> Result<u8> {
    let path = args.bundle.join("config.json");
    if path.exists() {
        return Err(Fault::new(format!("{} exists; remove it first", path.display())));
    }
    let mut spec = usual();
    // Version 1 of control groups has no namespace that hides what is above a container's.
    if Path::new("/sys/fs/cgroup/cgroup.controllers").exists() {
        add_namespace(&mut spec, "cgroup");
    }
    if args.rootless {
        make_rootless(&mut spec);
    }
    let text = serde_json::to_string_pretty(&spec).unwrap_or_default();
    fs::write(&path, text + "\n").map_err(file("write", &path))?;
    Ok(0)
}

fn usual() -> Value {
    let capabilities = ["CAP_AUDIT_WRITE", "CAP_KILL", "CAP_NET_BIND_SERVICE"];
    let namespaces = ["pid", "network", "ipc", "uts", "mount"].map(|kind| json!({"type": kind}));
    let mount = |place: &str, kind: &str, source: &str, options: &[&str]| {
        let mut mount = json!({"destination": place, "type": kind, "source": source});
        if !options.is_empty() {
            mount["options"] = json!(options);
        }
        mount
    };
    json!({
        "ociVersion": VERSION,
        "process": {
            "terminal": true,
            "user": {"uid": 0, "gid": 0},
            "args": ["sh"],
            "env": ["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "TERM=xterm"],
            "cwd": "/",
            "capabilities": {
                "bounding": capabilities, "effective": capabilities, "permitted": capabilities, "ambient": capabilities,
            },
            "rlimits": [{"type": "RLIMIT_NOFILE", "hard": 1024, "soft": 1024}],
            "noNewPrivileges": true,
        },
        "root": {"path": "rootfs", "readonly": true},
        "hostname": "unilith",
        "mounts": [
            mount("/proc", "proc", "proc", &[]),
            mount("/dev", "tmpfs", "tmpfs", &["nosuid", "strictatime", "mode=755", "size=65536k"]),
            mount("/dev/pts", "devpts", "devpts", &["nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620", "gid=5"]),
            mount("/dev/shm", "tmpfs", "shm", &["nosuid", "noexec", "nodev", "mode=1777", "size=65536k"]),
            mount("/dev/mqueue", "mqueue", "mqueue", &["nosuid", "noexec", "nodev"]),
            mount("/sys", "sysfs", "sysfs", &["nosuid", "noexec", "nodev", "ro"]),
            mount("/sys/fs/cgroup", "cgroup", "cgroup", &["nosuid", "noexec", "nodev", "relatime", "ro"]),
        ],
        "linux": {
            "resources": {"devices": [{"allow": false, "access": "rwm"}]},
            "namespaces": namespaces,
            "maskedPaths": [
                "/proc/acpi", "/proc/asound", "/proc/kcore", "/proc/keys", "/proc/latency_stats", "/proc/timer_list",
                "/proc/timer_stats", "/proc/sched_debug", "/sys/firmware", "/proc/scsi",
            ],
            "readonlyPaths": ["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"],
        },
    })
}

fn add_namespace(spec: &mut Value, kind: &str) {
    if let Some(namespaces) = spec["linux"]["namespaces"].as_array_mut() {
        namespaces.push(json!({"type": kind}));
    }
}

/// What an ordinary user may not do is taken away, and their own number becomes the superuser's.
fn make_rootless(spec: &mut Value) {
    let of_user = |id: u32| json!([{"containerID": 0, "hostID": id, "size": 1}]);
    let linux = &mut spec["linux"];
    linux["uidMappings"] = of_user(rustix::process::geteuid().as_raw());
    linux["gidMappings"] = of_user(rustix::process::getegid().as_raw());
    if let Some(linux) = linux.as_object_mut() {
        linux.remove("resources");
    }
    if let Some(namespaces) = linux["namespaces"].as_array_mut() {
        namespaces.retain(|namespace| namespace["type"] != "network");
    }
    add_namespace(spec, "user");
    for mount in spec["mounts"].as_array_mut().into_iter().flatten() {
        if mount["destination"] == "/sys" {
            *mount = json!({
                "destination": "/sys", "type": "none", "source": "/sys",
                "options": ["rbind", "nosuid", "noexec", "nodev", "ro"],
            });
        }
        // Groups that no map names.
        if let Some(options) = mount["options"].as_array_mut() {
            options.retain(|option| !option.as_str().is_some_and(|option| option.starts_with("gid=")));
        }
    }
}
