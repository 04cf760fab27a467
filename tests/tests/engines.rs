// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Podman and Docker with Unilith's runtime in the place of runc. Where they run nothing with runc either, this computer lets
//! nobody make containers, and there is nothing to compare with.

use rustix::process::Signal;
use std::{
    fs::{self, File},
    path::{Path, PathBuf},
    process::{Child, Command},
    time::Duration,
};
use unilith_tests::{
    BUILD_KERNEL, Ran, Unilith, client,
    engine::{engine, root_is_mount},
    eventually, finish, is_skipped, signal,
};

/// How long Podman may take for one command.
const PODMAN: Duration = Duration::from_secs(60);

/// Whether engines unpack images here: they make mounts below the root private, which has to be a mount itself.
fn can_unpack() -> bool {
    !is_skipped(!root_is_mount(), "engines unpack no images below a root that is no mount, as in a chroot")
}

/// Podman in a network namespace of its own. What a test that fails leaves goes with it.
struct Podman {
    state: PathBuf,
    namespace: String,
}

impl Podman {
    fn new(state: PathBuf) -> Podman {
        const INSTALL: &str = "{ command -v podman && command -v runc && command -v catatonit; } >/dev/null || \
            DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends podman runc conmon netavark aardvark-dns iptables catatonit";
        finish(Command::new("sh").args(["-c", INSTALL]), BUILD_KERNEL).ok();
        fs::create_dir(&state).expect("a folder can be made");
        // Limits that this computer may not raise (Podman's defaults are above them).
        let limit = "default_ulimits=[\"nofile=1024:1024\",\"nproc=4096:4096\"]";
        let text = format!("[containers]\n{limit}\n[engine]\nruntime_supports_json=[\"unilith-runc\"]\n");
        fs::write(state.join("containers.conf"), text).expect("a file can be written");
        let namespace = format!("unilith-podman-{}", std::process::id());
        client("ip", &["netns", "add", &namespace]).ok();
        Podman { state, namespace }
    }

    /// In its network namespace.
    fn inside(&self) -> Command {
        let mut command = Command::new("nsenter");
        command.arg(format!("--net=/run/netns/{}", self.namespace)).arg("--");
        command
    }

    fn run(&self, words: &[&str]) -> Ran {
        let runtime = unilith_tests::root().join("unilith-runc").display().to_string();
        self.podman(&[&["--runtime", &runtime], words].concat())
    }

    /// Why it runs nothing with runc.
    fn is_hindered(&self) -> Option<String> {
        let ran = self.podman(&["--runtime", "runc", "run", "--rm", "tools", "/bin/sh", "-c", "exit"]);
        (ran.code != Some(0)).then_some(ran.err)
    }

    fn podman(&self, words: &[&str]) -> Ran {
        let mut command = self.inside();
        command.args(["podman", "--cgroup-manager", "cgroupfs", "--events-backend", "file"]);
        for (option, name) in [("--root", "storage"), ("--runroot", "run"), ("--tmpdir", "tmp")] {
            command.arg(option).arg(self.state.join(name));
        }
        command.args(words).env("CONTAINERS_CONF", self.state.join("containers.conf"));
        finish(&mut command, PODMAN)
    }
}

impl Drop for Podman {
    fn drop(&mut self) {
        if std::thread::panicking() {
            // The first failure is the one to report.
            let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                self.run(&["rm", "-af", "-t", "0"])
            }));
        }
        // Its store stays mounted at itself.
        let _ = Command::new("umount").arg("-lq").arg(self.state.join("storage/overlay")).status();
        let _ = Command::new("ip").args(["netns", "delete", &self.namespace]).status();
    }
}

#[test]
fn podman_runs_it_in_place_of_runc() {
    let Some(engine) = engine().filter(|_| can_unpack()) else { return };
    let folder = engine.bundle("image", "", |_| {});
    let engines = Podman::new(engine.unilith.path("podman"));
    let podman = |words: &[&str]| engines.run(words);
    let archive = engine.unilith.path("image.tar").display().to_string();
    let root = folder.join("rootfs").display().to_string();
    client("tar", &["-C", &root, "-cf", &archive, "."]).ok();
    podman(&["import", &archive, "tools"]).ok();
    if let Some(why) = engines.is_hindered() {
        eprintln!("skipped: Podman runs nothing with runc: {why}");
        return;
    }
    podman(&["run", "--rm", "tools", "/bin/sh", "-c", "echo out; exit 7"]).code(7).says("out");
    podman(&["run", "--rm", "tools", "/bin/nothing"]).code(127);
    podman(&["run", "--rm", "--read-only", "tools", "/bin/touch", "/x"]).code(1).complains("Read-only");
    podman(&["run", "--rm", "-t", "tools", "/bin/tty"]).ok().says("/dev/");
    podman(&[
        "run",
        "-d",
        "--name",
        "web",
        "-p",
        "18080:80",
        "tools",
        "/bin/httpd",
        "-f",
        "-p",
        "80",
        "-h",
        "/bin",
    ])
    .ok();
    let at = podman(&["inspect", "-f", "{{.NetworkSettings.IPAddress}}", "web"]).ok().out;
    let url = format!("http://{}/busybox", at.trim());
    let curl = ["curl", "-s", "-m", "20", "-o", "/dev/null", "-w", "%{http_code}", &url];
    finish(engines.inside().args(curl), PODMAN).ok().says("200");
    podman(&["exec", "web", "/bin/echo", "inside"]).ok().says("inside");
    podman(&["exec", "web", "/bin/sh", "-c", "exit 4"]).code(4);
    // Into and out of one that runs; the host has a file of neither name.
    let note = engine.unilith.path("note").display().to_string();
    fs::write(&note, "for the container").expect("a file can be written");
    podman(&["cp", &note, "web:/unilith-copied"]).ok();
    podman(&["exec", "web", "/bin/cat", "/unilith-copied"]).ok().says("for the container");
    assert!(!PathBuf::from("/unilith-copied").exists(), "it is a file of the container's");
    podman(&["exec", "web", "/bin/sh", "-c", "echo from it >/unilith-made"]).ok();
    podman(&["cp", "web:/unilith-made", &note]).ok();
    assert_eq!(fs::read_to_string(&note).expect("it was copied"), "from it\n");
    has_what_users_exec(&engines);
    podman(&["stats", "--no-stream", "web"]).ok().says("web");
    podman(&["pause", "web"]).ok();
    podman(&["unpause", "web"]).ok();
    // Nothing of the machine's own is in the container's layer.
    let changes = podman(&["diff", "web"]).ok().out;
    assert!(!changes.contains("overlay") && changes.contains("/unilith-made"), "{changes}");
    podman(&["stop", "-t", "1", "web"]).ok();
    podman(&["start", "web"]).ok();
    podman(&["rm", "-f", "-t", "0", "web"]).ok();
    has_secrets_and_names(&engines, &note);
    has_pods(&engines);
    engine.unilith.build_kernel_of_containers("microvm");
    has_files_and_users(&engines);
    podman(&["rmi", "-af"]).ok();
}

/// What further processes are given, and why one does not start, are as with runc.
fn has_what_users_exec(engines: &Podman) {
    let podman = |words: &[&str]| engines.run(words);
    let sets = ["/bin/sh", "-c", "grep CapEff /proc/self/status"];
    let plain = podman(&[&["exec", "web"], &sets[..]].concat()).ok().out;
    let privileged = podman(&[&["exec", "--privileged", "web"], &sets[..]].concat()).ok().out;
    let bits = |text: &str| {
        let (_, digits) = text.split_once(':').expect("a line of /proc/self/status");
        u64::from_str_radix(digits.trim(), 16).expect("hexadecimal digits").count_ones()
    };
    assert!(bits(&privileged) > bits(&plain), "{privileged} {plain}");
    podman(&["exec", "-w", "/nowhere", "web", "/bin/echo"]).code(127).complains("no such file or directory");
    podman(&["exec", "web", "/bin/nothing"]).code(127);
    podman(&["exec", "web", "/etc"]).code(126).complains("permission denied");
    podman(&["exec", "-d", "web", "/bin/sh", "-c", "echo $0 > /detached"]).ok();
    eventually("it has written", || podman(&["exec", "web", "/bin/cat", "/detached"]).code == Some(0));
}

/// A secret is mounted in a directory that the engine mounts as well; a program has the name that it was called by.
fn has_secrets_and_names(engines: &Podman, note: &str) {
    let podman = |words: &[&str]| engines.run(words);
    fs::write(note, "very secret").expect("a file can be written");
    podman(&["secret", "create", "word", note]).ok();
    podman(&["run", "--rm", "--secret", "word", "tools", "/bin/cat", "/run/secrets/word"])
        .ok()
        .says("very secret");
    podman(&["secret", "rm", "word"]).ok();
    let show = "echo $0; cat /sys/class/net/eth0/address; test -e /overlay || echo plain";
    let ran = podman(&[
        "run",
        "--rm",
        "--mac-address",
        "02:11:22:33:44:55",
        "-e",
        "PATH=/bin",
        "tools",
        "sh",
        "-c",
        show,
    ]);
    assert_eq!(ran.ok().out, "sh\n02:11:22:33:44:55\nplain\n");
}

/// Containers of a pod, and those that share the network of another container, are in one machine with processes of their own.
fn has_pods(engines: &Podman) {
    let podman = |words: &[&str]| engines.run(words);
    let serve = ["tools", "/bin/httpd", "-f", "-p", "8080", "-h", "/bin"];
    let look = [
        "tools",
        "/bin/sh",
        "-c",
        "echo first $$; wget -q -O - http://127.0.0.1:8080/sh > /sh && echo reached; hostname; ls /proc",
    ];
    let pause = ["--infra-image", "tools", "--infra-command", "/bin/sleep 1000"];
    podman(&[&["pod", "create", "--name", "shop"], &pause[..]].concat()).ok();
    podman(&[&["run", "-d", "--pod", "shop", "--name", "server"], &serve[..]].concat()).ok();
    let ran = podman(&[&["run", "--rm", "--pod", "shop"], &look[..]].concat()).ok();
    assert!(ran.out.contains("first 1\n") && ran.out.contains("reached\nshop\n"), "{ran}");
    podman(&["exec", "server", "/bin/sh", "-c", "cat /proc/1/cmdline"]).ok().says("httpd");
    podman(&["pod", "rm", "-f", "-t", "0", "shop"]).ok();

    podman(&[&["run", "-d", "--name", "alone"], &serve[..]].concat()).ok();
    let beside = ["run", "--rm", "--network", "container:alone", "--pid", "container:alone"];
    let ran = podman(&[&beside[..], &look[..]].concat()).ok();
    assert!(!ran.out.contains("first 1\n") && ran.out.contains("reached\n"), "{ran}");
    podman(&[&["run", "--rm", "--pid", "container:alone"], &look[..]].concat())
        .complains("--network container:NAME");
    podman(&["rm", "-f", "-t", "0", "alone"]).ok();
    let limits = ["-m", "64m", "--pids-limit", "50", "--cpus", "1.5"];
    let show = [
        "tools",
        "/bin/cat",
        "/sys/fs/cgroup/memory.max",
        "/sys/fs/cgroup/pids.max",
        "/sys/fs/cgroup/cpu.max",
    ];
    podman(&[&["run", "--rm"], &limits[..], &show[..]].concat()).ok().says("67108864\n50\n150000 100000\n");
}

/// File systems in memory with their sizes, users of its own, the exit code of one that takes no notice of `stop`, a virtual machine.
fn has_files_and_users(engines: &Podman) {
    let podman = |words: &[&str]| engines.run(words);
    let memory = ["run", "--rm", "--shm-size", "4m", "--tmpfs", "/x:size=1m,mode=700"];
    let look = ["tools", "/bin/sh", "-c", "busybox df -P /dev/shm /x | busybox awk '{ print $2, $6 }'"];
    podman(&[&memory[..], &look[..]].concat()).ok().says("4096 /dev/shm\n1024 /x\n");
    let users = ["run", "--rm", "--uidmap", "0:100000:5000", "--gidmap", "0:200000:5000"];
    let look = ["tools", "/bin/sh", "-c", "id; busybox stat -c '%u %g' /bin/sh; cat /proc/self/uid_map"];
    let ran = podman(&[&users[..], &look[..]].concat()).ok();
    let words = ran.out.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.contains("uid=0") && words.contains("0 0 0 100000 5000"), "{ran}");
    podman(&["run", "-d", "--name", "deaf", "tools", "/bin/sleep", "1000"]).ok();
    podman(&["stop", "-t", "1", "deaf"]).ok();
    podman(&["inspect", "-f", "{{.State.ExitCode}}", "deaf"]).ok().says("137");
    podman(&["rm", "deaf"]).ok();
    let microvm = ["run", "--rm", "--annotation", "dev.unilith.machine=microvm", "-h", "virtual"];
    podman(&[&microvm[..], &["tools", "/bin/sh", "-c", "hostname; exit 6"]].concat()).code(6).says("virtual");
}

/// What Docker is made of, unpacked and not installed: its package would start it.
const UNPACK_DOCKER: &str = "set -e; cd $0; apt-get download -q docker.io containerd runc; \
    for package in *.deb; do dpkg -x $package .; rm $package; done; \
    if ! command -v iptables >/dev/null || ! ldconfig -p | grep -q libdevmapper.so.1.02.1; then \
    DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends iptables libdevmapper1.02.1 libsystemd0; fi";

/// Docker's daemon in a network namespace of its own; ended with it.
struct Docker {
    folder: PathBuf,
    bin: String,
    namespace: String,
    daemon: Child,
}

impl Docker {
    /// Or why the daemon has ended.
    fn start(folder: PathBuf) -> Result<Docker, String> {
        let unpacked = folder.join("unpacked");
        fs::create_dir_all(&unpacked).expect("a folder can be made");
        finish(Command::new("sh").args(["-c", UNPACK_DOCKER]).arg(&unpacked), BUILD_KERNEL).ok();
        let bin = unpacked.join("usr/bin").display().to_string();
        let sbin = unpacked.join("usr/sbin").display().to_string();
        let path = format!("{sbin}:{bin}:{}:/usr/sbin:/sbin", std::env::var("PATH").unwrap_or_default());
        let namespace = format!("unilith-docker-{}", std::process::id());
        client("ip", &["netns", "add", &namespace]).ok();
        let net = format!("--net=/run/netns/{namespace}");
        let forwards = "ip link set lo up && echo 1 >/proc/sys/net/ipv4/ip_forward";
        client("nsenter", &[&net, "--", "sh", "-c", forwards]).ok();
        let at = |name: &str| folder.join(name).display().to_string();
        let runtime = format!("unilith={}", unilith_tests::root().join("unilith-runc").display());
        let daemon = Command::new("nsenter")
            .args([&net, "--", "dockerd", "-H", &format!("unix://{}", at("docker.sock"))])
            .args(["--data-root", &at("data"), "--exec-root", &at("exec"), "-p", &at("docker.pid")])
            .args(["--add-runtime", &runtime, "--default-runtime", "unilith"])
            .env("PATH", path)
            .stdout(File::create(folder.join("log")).expect("a file can be made"))
            .stderr(File::create(folder.join("errors")).expect("a file can be made"))
            .spawn()
            .expect("nsenter is there");
        let mut docker = Docker { folder, bin, namespace, daemon };
        let mut has_ended = false;
        eventually("Docker's daemon answers", || {
            has_ended = docker.daemon.try_wait().expect("it is our child").is_some();
            has_ended || docker.run(&["version"]).code == Some(0)
        });
        if has_ended {
            let said = fs::read_to_string(docker.folder.join("errors")).unwrap_or_default();
            return Err(said.lines().last().unwrap_or("it said nothing").to_string());
        }
        Ok(docker)
    }

    fn run(&self, words: &[&str]) -> Ran {
        let socket = format!("unix://{}/docker.sock", self.folder.display());
        finish(Command::new(format!("{}/docker", self.bin)).args(["-H", &socket]).args(words), PODMAN)
    }
}

impl Drop for Docker {
    fn drop(&mut self) {
        if let Ok(None) = self.daemon.try_wait() {
            signal(Signal::TERM, self.daemon.id());
            let _ = self.daemon.wait();
        }
        let _ = Command::new("ip").args(["netns", "delete", &self.namespace]).status();
    }
}

/// A container of two networks has an interface in each, and reaches what only one of them has.
fn has_two_networks(docker: &Docker) {
    docker.run(&["network", "create", "back"]).ok();
    let serve = ["tools", "/bin/httpd", "-f", "-p", "80", "-h", "/bin"];
    docker.run(&[&["run", "-d", "--name", "store", "--network", "back"], &serve[..]].concat()).ok();
    let look = "for name in web store; do wget -q -O - http://$name/busybox | wc -c; done; ls /sys/class/net";
    docker.run(&["create", "--name", "both", "--network", "front", "tools", "/bin/sh", "-c", look]).ok();
    docker.run(&["network", "connect", "back", "both"]).ok();
    let ran = docker.run(&["start", "-a", "both"]).ok();
    let length = fs::metadata("/bin/busybox").expect("busybox is there").len();
    assert_eq!(ran.out, format!("{length}\n{length}\neth0\neth1\nlo\n"), "{ran}");
    // The other way round, and again: what was taken from the interfaces is known the next time.
    docker.run(&["rm", "both"]).ok();
    let both = ["create", "--name", "both", "--network", "front"];
    docker.run(&[&both[..], &serve[..]].concat()).ok();
    docker.run(&["network", "connect", "back", "both"]).ok();
    docker.run(&["start", "both"]).ok();
    docker.run(&["restart", "-t", "0", "both"]).ok();
    for network in ["front", "back"] {
        let fetch = "wget -q -O - http://both/busybox | wc -c";
        let ran = docker.run(&["run", "--rm", "--network", network, "tools", "/bin/sh", "-c", fetch]);
        assert_eq!(ran.ok().out.trim(), length.to_string(), "{network}");
    }
    docker.run(&["rm", "-f", "both", "store"]).ok();
    docker.run(&["network", "rm", "back"]).ok();
}

#[test]
fn docker_runs_it_in_place_of_runc() {
    let Some(engine) = engine().filter(|_| can_unpack()) else { return };
    let folder = engine.bundle("image", "", |_| {});
    let docker = match Docker::start(engine.unilith.path("docker")) {
        Ok(docker) => docker,
        Err(why) => {
            eprintln!("skipped: Docker's daemon does not start here: {why}");
            return;
        }
    };
    let archive = engine.unilith.path("image.tar").display().to_string();
    let root = folder.join("rootfs").display().to_string();
    client("tar", &["-C", &root, "-cf", &archive, "."]).ok();
    docker.run(&["import", &archive, "tools"]).ok();
    let own = docker.run(&["run", "--rm", "--runtime", "runc", "tools", "/bin/sh", "-c", "exit"]);
    if own.code != Some(0) {
        eprintln!("skipped: Docker runs nothing with runc: {}", own.err);
        return;
    }
    docker
        .run(&["run", "--rm", "tools", "/bin/sh", "-c", "echo out; echo err >&2; exit 7"])
        .code(7)
        .says("out")
        .complains("err");
    docker.run(&["run", "--rm", "tools", "/bin/nothing"]).code(127);
    docker.run(&["run", "--rm", "-t", "tools", "/bin/tty"]).ok().says("/dev/");
    docker
        .run(&["run", "--rm", "-u", "7:8", "-h", "pod", "-e", "A=b", "tools", "/bin/id"])
        .ok()
        .says("uid=7 gid=8");
    docker.run(&["run", "--rm", "tools", "/bin/sh", "-c", "echo $HOME"]).ok().says("/");
    let domain = ["--domainname", "example.org", "tools", "/bin/cat", "/proc/sys/kernel/domainname"];
    docker.run(&[&["run", "--rm"], &domain[..]].concat()).ok().says("example.org");
    docker.run(&["network", "create", "front"]).ok();
    let web = ["--name", "web", "--network", "front", "tools", "/bin/httpd", "-f", "-p", "80", "-h", "/bin"];
    docker.run(&[&["run", "-d", "-p", "18080:80"], &web[..]].concat()).ok();
    // By its name on the network, through Docker's own server of names, and from the host by the published port.
    let fetch = [
        "run",
        "--rm",
        "--network",
        "front",
        "tools",
        "/bin/wget",
        "-q",
        "-O",
        "/dev/null",
        "http://web/busybox",
    ];
    docker.run(&fetch).ok();
    has_two_networks(&docker);
    let net = format!("--net=/run/netns/{}", docker.namespace);
    let url = "http://127.0.0.1:18080/busybox";
    client("nsenter", &[&net, "--", "curl", "-s", "-m", "20", "-o", "/dev/null", "-w", "%{http_code}", url])
        .ok()
        .says("200");
    docker.run(&["exec", "web", "/bin/echo", "inside"]).ok().says("inside");
    docker.run(&["exec", "web", "/bin/sh", "-c", "echo kept > /made; exit 4"]).code(4);
    docker.run(&["commit", "web", "snapshot"]).ok();
    docker.run(&["run", "--rm", "snapshot", "/bin/cat", "/made"]).ok().says("kept");
    docker.run(&["diff", "web"]).ok().says("A /made");
    docker.run(&["stats", "--no-stream", "web"]).ok().says("web");
    docker.run(&["pause", "web"]).ok();
    docker.run(&["ps"]).ok().says("Paused");
    docker.run(&["unpause", "web"]).ok();
    docker.run(&["stop", "-t", "1", "web"]).ok();
    docker.run(&["start", "web"]).ok();
    docker.run(&["rm", "-f", "web"]).ok();
    docker.run(&["network", "rm", "front"]).ok();
    assert_eq!(docker.run(&["ps", "-aq"]).ok().out.trim(), "");
    let socket = format!("unix://{}/docker.sock", docker.folder.display());
    let said = follow(&engine.unilith, "docker.md", &|shell| {
        shell.env("PATH", path_with(&docker.bin)).env("DOCKER_HOST", &socket);
    });
    for part in ["inside a machine", "served by name", "inside the same", "web"] {
        assert!(said.contains(part), "{part}: {said}");
    }
}

/// containerd with sockets and folders of its own; ended with it.
struct Containerd {
    bin: String,
    address: String,
    daemon: Child,
}

impl Containerd {
    fn start(folder: &Path) -> Containerd {
        const UNPACK: &str = "set -e; cd $0; apt-get download -q containerd; dpkg -x containerd_*.deb .";
        let unpacked = folder.join("unpacked");
        fs::create_dir_all(&unpacked).expect("a folder can be made");
        finish(Command::new("sh").args(["-c", UNPACK]).arg(&unpacked), BUILD_KERNEL).ok();
        let at = |name: &str| folder.join(name).display().to_string();
        let address = at("containerd.sock");
        let text = format!(
            "version = 2\nroot = {:?}\nstate = {:?}\ndisabled_plugins = [\"io.containerd.grpc.v1.cri\"]\n[grpc]\naddress = {address:?}\n",
            at("root"),
            at("state")
        );
        fs::write(folder.join("config.toml"), text).expect("a file can be written");
        let bin = unpacked.join("usr/bin").display().to_string();
        let path = path_with(&bin);
        let log = File::create(folder.join("log")).expect("a file can be made");
        let daemon = Command::new(format!("{bin}/containerd"))
            .args(["-c", &at("config.toml")])
            .env("PATH", &path)
            .stdout(log.try_clone().expect("a descriptor"))
            .stderr(log)
            .spawn()
            .expect("containerd is there");
        let containerd = Containerd { bin, address, daemon };
        eventually("containerd answers", || {
            let mut version = Command::new(format!("{}/ctr", containerd.bin));
            finish(version.args(["-a", &containerd.address, "version"]), PODMAN).code == Some(0)
        });
        containerd
    }
}

impl Drop for Containerd {
    fn drop(&mut self) {
        signal(Signal::TERM, self.daemon.id());
        let _ = self.daemon.wait();
    }
}

/// Runs what a page prints in a folder that has the commands; what they said. `prepare`: lets a shell find the engine.
fn follow(unilith: &Unilith, page: &str, prepare: &dyn Fn(&mut Command)) -> String {
    for name in ["unilith", "unilith-runc"] {
        std::os::unix::fs::symlink(unilith_tests::root().join(name), unilith.path(name)).expect("a link");
    }
    let page = unilith_tests::root().join("docs/how-to").join(page);
    let text = fs::read_to_string(page).expect("the page is there");
    let mut said = String::new();
    for line in unilith_tests::page::commands(&text) {
        let mut shell = unilith.shell(&line);
        prepare(&mut shell);
        said.push_str(&finish(&mut shell, BUILD_KERNEL).ok().out);
    }
    said
}

/// `PATH` with a folder before all others.
fn path_with(folder: &str) -> String {
    format!("{folder}:{}", std::env::var("PATH").unwrap_or_default())
}

#[test]
fn the_page_about_containerd_works_as_printed() {
    let Some(engine) = engine().filter(|_| can_unpack()) else { return };
    let containerd = Containerd::start(&engine.unilith.path("containerd"));
    let said = follow(&engine.unilith, "containerd.md", &|shell| {
        shell.env("PATH", path_with(&containerd.bin)).env("CONTAINERD_ADDRESS", &containerd.address);
    });
    for part in ["inside a machine", "served", "memory", "PAUSED"] {
        assert!(said.contains(part), "{part}: {said}");
    }
}

/// With a store and a network of the test's: a `podman` in front of the other one says so.
#[test]
fn the_page_about_podman_works_as_printed() {
    let Some(engine) = engine().filter(|_| can_unpack()) else { return };
    let podman = Podman::new(engine.unilith.path("podman"));
    let folder = engine.bundle("image", "", |_| {});
    let archive = engine.unilith.path("image.tar").display().to_string();
    client("tar", &["-C", &folder.join("rootfs").display().to_string(), "-cf", &archive, "."]).ok();
    podman.podman(&["import", &archive, "tools"]).ok();
    if let Some(why) = podman.is_hindered() {
        eprintln!("skipped: Podman runs nothing with runc: {why}");
        return;
    }
    let bin = engine.unilith.path("bin");
    fs::create_dir(&bin).expect("a folder can be made");
    let real = client("sh", &["-c", "command -v podman"]).ok().out;
    let state = podman.state.display();
    let text = format!(
        "#!/bin/sh\nexport CONTAINERS_CONF={state}/containers.conf\nexec nsenter --net=/run/netns/{} -- {} --cgroup-manager cgroupfs \
         --events-backend file --root {state}/storage --runroot {state}/run --tmpdir {state}/tmp \"$@\"\n",
        podman.namespace,
        real.trim()
    );
    fs::write(bin.join("podman"), text).expect("a file can be written");
    client("chmod", &["755", &bin.join("podman").display().to_string()]).ok();
    let path = path_with(&bin.display().to_string());
    let said = follow(&engine.unilith, "podman.md", &|shell| {
        shell.env("PATH", &path);
    });
    for part in ["inside a machine", "served\n", "served to a neighbour", "inside a virtual machine"] {
        assert!(said.contains(part), "{part}: {said}");
    }
}
