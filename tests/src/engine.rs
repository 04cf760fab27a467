// SPDX-License-Identifier: Apache-2.0 OR MIT
//! An engine that drives the container runtime (`unilith oci`) as engines drive runc: with bundles, pid files, a subreaper that waits
//! for the container's process, and network namespaces with an interface in them.

use crate::{BUILD_KERNEL, Ran, Unilith, client, eventually, finish};
use rustix::process::{Pid, WaitOptions, set_child_subreaper, waitpid};
use serde_json::{Value, json};
use std::{
    fs::{self, File},
    os::unix::fs::symlink,
    path::PathBuf,
    process::{Child, Command, Stdio},
    sync::atomic::{AtomicU8, Ordering},
};

/// Tools of busybox in the container.
const TOOLS: [&str; 14] = [
    "sh", "cat", "echo", "id", "sleep", "ls", "httpd", "touch", "tty", "nslookup", "wget", "mkdir",
    "hostname", "tail",
];

/// An engine: a folder of containers, each with a bundle.
pub struct Engine {
    pub unilith: Unilith,
    pub root: String,
}

/// `None` where containers cannot be made; says why.
pub fn engine() -> Option<Engine> {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: network namespaces and control groups are made by root");
        return None;
    }
    let unilith = Unilith::new();
    if unilith.is_skipped_without(&["process machines"]) {
        return None;
    }
    unilith.build_kernel_of_containers("process");
    // As a shim or conmon: the container's process becomes our child when `create` has ended.
    set_child_subreaper(Some(rustix::process::getpid())).expect("may be a subreaper");
    let root = unilith.path("root").display().to_string();
    Some(Engine { unilith, root })
}

/// Whether `/` is a mount, which it is not in a chroot: nobody can exchange it there, nor make it private.
pub fn root_is_mount() -> bool {
    let mounts = fs::read_to_string("/proc/self/mountinfo").expect("/proc is there");
    mounts.lines().any(|line| line.split(' ').nth(4) == Some("/"))
}

impl Engine {
    /// A bundle of busybox that runs this line of a shell; `change` has the last word.
    pub fn bundle(&self, id: &str, line: &str, change: impl FnOnce(&mut Value)) -> PathBuf {
        let folder = self.unilith.path(id);
        let bin = folder.join("rootfs/bin");
        fs::create_dir_all(&bin).expect("a folder can be made");
        fs::copy("/bin/busybox", bin.join("busybox")).expect("busybox-static is installed");
        TOOLS.iter().for_each(|tool| symlink("busybox", bin.join(tool)).expect("a link can be made"));
        let mut config = json!({
            "ociVersion": "1.0.2",
            "process": {
                "user": {"uid": 0, "gid": 0},
                "args": ["sh", "-c", line],
                "env": ["PATH=/bin"],
                "cwd": "/",
            },
            "root": {"path": "rootfs"},
            "mounts": [{"destination": "/proc", "type": "proc", "source": "proc"}],
            "linux": {"namespaces": [{"type": "pid"}, {"type": "network"}]},
        });
        change(&mut config);
        fs::write(folder.join("config.json"), config.to_string()).expect("a file can be written");
        folder
    }

    pub fn command(&self, words: &[&str]) -> Command {
        self.unilith.command(&[&["oci", "--root", &self.root], words].concat())
    }

    pub fn run(&self, words: &[&str]) -> Ran {
        finish(&mut self.command(words), BUILD_KERNEL)
    }

    /// Creates a container whose output goes to a file of the bundle; its process is our child then.
    pub fn create(&self, id: &str) -> std::process::ExitStatus {
        let folder = self.unilith.path(id);
        let out = File::create(folder.join("out")).expect("a file can be made");
        let bundle = folder.display().to_string();
        let pid_file = folder.join("pid").display().to_string();
        let mut command = self.command(&["create", "--bundle", &bundle, "--pid-file", &pid_file, id]);
        command.stdin(Stdio::null()).stderr(out.try_clone().expect("a descriptor is free")).stdout(out);
        command.status().expect("the command is there")
    }

    pub fn out(&self, id: &str) -> String {
        fs::read_to_string(self.unilith.path(id).join("out")).unwrap_or_default()
    }

    pub fn pid(&self, id: &str) -> Pid {
        let text = fs::read_to_string(self.unilith.path(id).join("pid")).expect("create writes the pid file");
        Pid::from_raw(text.parse().expect("a number")).expect("a process")
    }

    pub fn status(&self, id: &str) -> String {
        let state = self.run(&["state", id]).ok().out;
        let state: Value = serde_json::from_str(&state).expect("the state is JSON");
        state["status"].as_str().expect("it has a status").to_string()
    }

    /// The exit code of the container's process, as its engine gets it.
    pub fn wait(&self, id: &str) -> i32 {
        let pid = self.pid(id);
        let mut code = None;
        eventually(&format!("the process of {id} ends"), || {
            let ended = waitpid(Some(pid), WaitOptions::NOHANG).expect("it is our child");
            code = ended.and_then(|(_, status)| {
                status.exit_status().or_else(|| Some(128 + status.terminating_signal()?))
            });
            code.is_some()
        });
        code.unwrap_or_default()
    }
}

/// A network namespace with an interface, as an engine's network plug-in makes it; its other end is with us. A process holds
/// it: a name for it would be a mount, which not every root directory allows.
pub struct Pod {
    holder: Child,
    /// The third number of its addresses, which no other pod of this process has.
    number: u8,
}

impl Pod {
    pub fn make() -> Pod {
        static NEXT: AtomicU8 = AtomicU8::new(7);
        let holder =
            Command::new("unshare").args(["--net", "sleep", "1000"]).spawn().expect("unshare is there");
        let pod = Pod { holder, number: NEXT.fetch_add(1, Ordering::Relaxed) };
        let (own, inside) = ("/proc/self/ns/net".to_string(), pod.path());
        eventually("the namespace is made", || fs::read_link(&own).ok() != fs::read_link(&inside).ok());
        // An interface goes some time after its namespace: a name that the next pod does not have.
        let (number, outside) = (pod.holder.id(), format!("u{}-{}", std::process::id(), pod.number));
        let (gateway, address) = (pod.at(1), pod.at(2));
        for line in [
            format!("ip link add {outside} type veth peer name eth0 netns {number}"),
            format!("ip addr add {gateway}/24 dev {outside}"),
            format!("ip link set {outside} up"),
            format!("nsenter --net={inside} ip addr add {address}/24 dev eth0"),
            format!("nsenter --net={inside} ip link set eth0 up"),
            format!("nsenter --net={inside} ip link set lo up"),
            format!("nsenter --net={inside} ip route add default via {gateway}"),
        ] {
            let words: Vec<&str> = line.split(' ').collect();
            client(words[0], &words[1..]).ok();
        }
        pod
    }

    pub fn path(&self) -> String {
        format!("/proc/{}/ns/net", self.holder.id())
    }

    /// An address of its network: 1 is this side's, 2 the pod's.
    pub fn at(&self, host: u8) -> String {
        format!("10.213.{}.{host}", self.number)
    }

    /// Where its web server is.
    pub fn page(&self) -> String {
        format!("http://{}/", self.at(2))
    }
}

impl Drop for Pod {
    fn drop(&mut self) {
        // With the last process in it go the namespace, the interface and its other end.
        let _ = self.holder.kill();
        let _ = self.holder.wait();
    }
}

impl Engine {
    /// Runs the sandbox of a pod, whose machine the pod's containers join.
    pub fn start_sandbox(&self, pod: &Pod) {
        self.start_sandbox_with(pod, |_| {});
    }

    /// As [`Engine::start_sandbox`]; `change` has the last word.
    pub fn start_sandbox_with(&self, pod: &Pod, change: impl FnOnce(&mut Value)) {
        self.bundle("sandbox", "exec sleep 1000", |config| {
            config["hostname"] = json!("web-0");
            config["linux"]["namespaces"][1] = json!({"type": "network", "path": pod.path()});
            config["annotations"] = json!({
            "io.kubernetes.cri.container-type": "sandbox",
            "io.kubernetes.cri.sandbox-memory": "100663296",
            });
            change(config);
        });
        assert!(self.create("sandbox").success(), "{}", self.out("sandbox"));
        self.run(&["start", "sandbox"]).ok();
    }

    /// Runs a container of that pod.
    pub fn start_member(&self, id: &str, line: &str, change: impl FnOnce(&mut Value)) {
        self.member(id, line, change);
        assert!(self.create(id).success(), "{}", self.out(id));
        self.run(&["start", id]).ok();
    }

    pub fn member(&self, id: &str, line: &str, change: impl FnOnce(&mut Value)) -> PathBuf {
        let holder = self.pid("sandbox").as_raw_nonzero();
        self.bundle(id, line, |config| {
            config["linux"]["namespaces"] = json!([
                {"type": "network", "path": format!("/proc/{holder}/ns/net")},
                {"type": "uts", "path": format!("/proc/{holder}/ns/uts")},
                {"type": "ipc", "path": format!("/proc/{holder}/ns/ipc")},
                {"type": "pid"},
            ]);
            config["annotations"] = json!({
                "io.kubernetes.cri.container-type": "container",
                "io.kubernetes.cri.sandbox-id": "sandbox",
                "io.kubernetes.cri.container-name": id,
            });
            change(config);
        })
    }

    /// Whether a program of the pod's machine was called with that word, as its sandbox sees, which sees them all.
    pub fn is_in_machine(&self, word: &str) -> bool {
        self.run(&["exec", "sandbox", "sh", "-c", "cat /proc/[0-9]*/cmdline"]).out.contains(word)
    }

    /// Nothing of any container is left on this computer.
    pub fn has_nothing_left(&self) {
        assert_eq!(self.unilith.machines_on_disk(), 0);
        let kept = fs::read_dir(format!("{}/.interfaces", self.root)).expect("the folder is there");
        assert_eq!(kept.count(), 0, "nothing of the pod is left");
        let left = fs::read_dir(&self.root).expect("the folder is there").flatten().map(|e| e.file_name());
        assert_eq!(left.filter(|name| name != ".interfaces").count(), 0);
        let mounts = fs::read_to_string("/proc/self/mounts").expect("it can be read");
        assert!(!mounts.contains(&self.root), "{mounts}");
    }
}
