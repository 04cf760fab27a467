// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The container runtime (`unilith oci`), driven as engines drive runc: with bundles, records, pid files, a subreaper that
//! waits for the container's process, and a network namespace with an interface in it. What Podman and Docker themselves do with
//! it is in `engines.rs`.

use rustix::process::{Signal, WaitOptions, waitpid};
use serde_json::{Value, json};
use std::{
    fs::{self, File},
    io::Read,
    path::PathBuf,
    process::{Command, Stdio},
};
use unilith_tests::{
    PARTS_OF_CONTAINERS, client,
    engine::{Pod, engine},
    eventually, signal,
};

#[test]
fn a_container_runs_on_its_bundles_directory_and_leaves_what_it_wrote() {
    let Some(engine) = engine() else { return };
    let config = engine.unilith.path("config-map");
    fs::create_dir(&config).unwrap();
    fs::write(config.join("key"), "from a ConfigMap").unwrap();
    let single = engine.unilith.path("single");
    fs::write(&single, "10.1.2.3 peer").unwrap();
    let line = "id; cat /etc/map/key /etc/hosts; echo x > /etc/map/key; echo made > /made; cat /run/scratch/x; \
        touch /run/scratch/x && echo scratch; cat /proc/self/status; hostname other; readlink /proc/self/fd/0; exit 7";
    engine.bundle("one", line, |config_json| {
        config_json["process"]["user"] = json!({"uid": 0, "gid": 0, "additionalGids": [5, 77]});
        let some = ["CAP_CHOWN", "CAP_DAC_OVERRIDE"];
        config_json["process"]["capabilities"] =
            json!({"bounding": some, "effective": some, "permitted": some});
        config_json["process"]["noNewPrivileges"] = json!(true);
        config_json["hostname"] = json!("pod-1");
        for mount in [
            json!({"destination": "/etc/map", "type": "bind", "source": config, "options": ["rbind", "ro"]}),
            json!({"destination": "/etc/hosts", "type": "bind", "source": single, "options": ["bind"]}),
            json!({"destination": "/run/scratch", "type": "tmpfs", "options": ["mode=755"]}),
        ] {
            config_json["mounts"].as_array_mut().unwrap().push(mount);
        }
    });
    assert!(engine.create("one").success(), "{}", engine.out("one"));
    assert_eq!(engine.status("one"), "created");
    assert!(!engine.out("one").contains("uid="), "nothing runs before start: {}", engine.out("one"));
    engine.run(&["start", "one"]).ok();
    assert_eq!(engine.wait("one"), 7, "{}", engine.out("one"));
    let out = engine.out("one");
    let limits =
        ["CapEff:\t0000000000000003", "CapBnd:\t0000000000000003", "NoNewPrivs:\t1", "not permitted"];
    let others = ["groups=5,77", "from a ConfigMap", "10.1.2.3 peer", "Read-only file system", "scratch"];
    for says in limits.into_iter().chain(others) {
        assert!(out.contains(says), "no {says} in {out}");
    }
    let made = engine.unilith.path("one").join("rootfs/made");
    assert_eq!(
        fs::read_to_string(made).unwrap(),
        "made\n",
        "what it wrote is in the bundle, as runc leaves it"
    );
    assert_eq!(fs::read_to_string(config.join("key")).unwrap(), "from a ConfigMap");
    assert_eq!(engine.status("one"), "stopped");
    engine.run(&["start", "one"]).code(1).complains("stopped");
    engine.run(&["delete", "one"]).ok();
    engine.run(&["state", "one"]).code(1).complains("does not exist");
    engine.run(&["delete", "--force", "one"]).ok();
    assert_eq!(engine.unilith.machines_on_disk(), 0);
}

#[test]
fn further_processes_signals_and_pauses_reach_a_running_container() {
    let Some(engine) = engine() else { return };
    engine.bundle("two", "trap 'echo got it; exit 5' USR1; echo up; while :; do sleep 0.1; done", |_| {});
    assert!(engine.create("two").success(), "{}", engine.out("two"));
    engine.run(&["exec", "two", "echo"]).code(255).complains("created");
    engine.run(&["start", "two"]).ok();
    eventually("it runs", || engine.out("two").contains("up"));
    engine.run(&["exec", "two", "echo", "a further process"]).ok().says("a further process");
    engine.run(&["exec", "two", "sh", "-c", "exit 3"]).code(3);
    engine
        .run(&["exec", "-e", "PATH=/bin", "two", "nothing"])
        .code(255)
        .complains("executable file not found in $PATH");
    // Without `-i` an engine gives /dev/null.
    engine.run(&["exec", "two", "sh", "-c", "readlink /proc/self/fd/0"]).ok().says("/dev/null\n");
    // As conmon and the shim do it.
    let process = engine.unilith.path("process.json");
    let pid_file = engine.unilith.path("exec.pid");
    let description = json!({
        "user": {"uid": 7, "gid": 8, "additionalGids": [9, 77]}, "args": ["sh", "-c", "id; cat"], "env": ["PATH=/bin"], "cwd": "/",
    });
    fs::write(&process, description.to_string()).unwrap();
    let (process, pid_text) = (process.display().to_string(), pid_file.display().to_string());
    let words = ["exec", "--process", &process, "--detach", "--pid-file", &pid_text, "two"];
    let input = engine.unilith.path("input");
    fs::write(&input, "through the input\n").unwrap();
    let out = engine.unilith.path("exec.out");
    let mut command = engine.command(&words);
    command.stdin(File::open(&input).unwrap()).stdout(File::create(&out).unwrap());
    assert!(command.status().unwrap().success());
    assert!(fs::read_to_string(&pid_file).unwrap().parse::<i32>().is_ok());
    let heard = || fs::read_to_string(&out).unwrap_or_default();
    eventually("its output comes", || {
        heard().contains("uid=7 gid=8 groups=9,77") && heard().contains("through the input")
    });

    engine.run(&["pause", "two"]).ok();
    assert_eq!(engine.status("two"), "paused");
    engine.run(&["pause", "two"]).code(1).complains("paused");
    engine.run(&["resume", "two"]).ok();
    assert_eq!(engine.status("two"), "running");
    engine.run(&["delete", "two"]).code(1).complains("not stopped");
    engine.run(&["kill", "two", "NOSUCH"]).code(1).complains("unknown signal");
    engine.run(&["kill", "two", "USR1"]).ok();
    assert_eq!(engine.wait("two"), 5, "{}", engine.out("two"));
    assert!(engine.out("two").contains("got it"));
    engine.run(&["kill", "two", "9"]).code(1).complains("container not running");
    engine.run(&["kill", "--all", "two", "9"]).ok();
    engine.run(&["delete", "two"]).ok();
}

#[test]
fn a_container_is_at_the_address_of_its_namespace_and_so_is_the_one_after_it() {
    let Some(engine) = engine() else { return };
    let pod = Pod::make();
    let path = pod.path();
    for id in ["first", "second"] {
        let folder = engine.bundle(id, "exec httpd -f -p 80 -h /www", |config| {
            config["linux"]["namespaces"][1] = json!({"type": "network", "path": path});
        });
        fs::create_dir(folder.join("rootfs/www")).unwrap();
        fs::write(folder.join("rootfs/www/index.html"), format!("served by {id}")).unwrap();
        assert!(engine.create(id).success(), "{}", engine.out(id));
        engine.run(&["start", id]).ok();
        let ran = client("curl", &["-s", "--retry", "20", "--retry-connrefused", "-m", "20", &pod.page()]);
        ran.ok().says(&format!("served by {id}"));
        engine.run(&["kill", id, "KILL"]).ok();
        assert_eq!(engine.wait(id), 137, "{}", engine.out(id));
        engine.run(&["delete", id]).ok();
    }
}

#[test]
fn containers_of_a_pod_that_are_separate_have_its_name_and_one_of_them_its_interface_and_its_loopback() {
    let Some(engine) = engine() else { return };
    let pod = Pod::make();
    let path = pod.path();
    engine.bundle("sandbox", "", |config| {
        config["process"]["args"] = json!(["/pause"]);
        config["hostname"] = json!("web-0");
        config["linux"]["namespaces"][1] = json!({"type": "network", "path": path});
        config["annotations"] =
            json!({"io.kubernetes.cri.container-type": "sandbox", "dev.unilith.pod": "separate"});
    });
    assert!(engine.create("sandbox").success(), "{}", engine.out("sandbox"));
    engine.run(&["start", "sandbox"]).ok();
    let holder = engine.pid("sandbox").as_raw_nonzero();
    let bundle = |id: &str, line: &str| {
        engine.bundle(id, line, |config| {
            config["linux"]["namespaces"] = json!([
                {"type": "network", "path": format!("/proc/{holder}/ns/net")},
                {"type": "uts", "path": format!("/proc/{holder}/ns/uts")},
            ]);
            config["annotations"] = json!({
                "io.kubernetes.cri.container-type": "container",
                "io.kubernetes.cri.container-name": id,
                "dev.unilith.offline": "shipper",
            });
        })
    };
    bundle("web", "mkdir /www; hostname > /www/index.html; exec httpd -f -p 80 -h /www");
    assert!(engine.create("web").success(), "{}", engine.out("web"));
    engine.run(&["start", "web"]).ok();
    let again = ["--retry", "20", "--retry-connrefused", "-s", "-m", "20"];
    client("curl", &[&again[..], &[&pod.page()[..]]].concat()).ok().says("web-0");
    // As `kubectl port-forward`: from the host's side of the namespace, an answer longer than a segment.
    fs::write(engine.unilith.path("web").join("rootfs/www/long"), "x".repeat(300_000)).unwrap();
    let enter = [&format!("--net={path}"), "--", "curl"];
    let url = ["http://127.0.0.1/long"];
    let ran = client("nsenter", &[&enter[..], &again[..], &url].concat()).ok();
    assert_eq!(ran.out.len(), 300_000);
    client("nsenter", &[&enter[..], &["-s", "-m", "20", "http://127.0.0.1:81/"]].concat()).code(7);

    bundle("second", "echo never");
    assert!(!engine.create("second").success());
    let said = engine.out("second");
    assert!(
        said.contains("another container has the interface") && said.contains("dev.unilith.offline"),
        "{said}"
    );
    bundle("shipper", "hostname");
    assert!(engine.create("shipper").success(), "{}", engine.out("shipper"));
    engine.run(&["start", "shipper"]).ok();
    assert_eq!(engine.wait("shipper"), 0, "{}", engine.out("shipper"));
    assert!(engine.out("shipper").contains("web-0"), "{}", engine.out("shipper"));
    for id in ["web", "sandbox"] {
        engine.run(&["kill", id, "KILL"]).ok();
        assert_eq!(engine.wait(id), 137, "{}", engine.out(id));
    }
    ["shipper", "web", "sandbox"].iter().for_each(|id| drop(engine.run(&["delete", id]).ok()));
    let kept = fs::read_dir(format!("{}/.interfaces", engine.root)).unwrap();
    assert_eq!(kept.count(), 0, "nothing of the pod is left");
}

#[test]
fn containers_of_a_pod_share_its_network_and_have_roots_users_and_ends_of_their_own() {
    let Some(engine) = engine() else { return };
    let pod = Pod::make();
    engine.start_sandbox(&pod);
    let serve = "echo own > /who; mkdir /www; echo served > /www/index.html; echo up; \
        httpd -f -p 127.0.0.1:8080 -h /www & exec httpd -f -p 80 -h /www";
    engine.start_member("server", serve, |_| {});
    let map = engine.unilith.path("map");
    fs::create_dir(&map).unwrap();
    fs::write(map.join("key"), "from a ConfigMap").unwrap();
    let ask = "until wget -q -O - http://127.0.0.1:8080/; do sleep 0.1; done; cat /who; cat /etc/map/key; id; hostname; \
        echo x > /etc/map/key; touch /run/scratch/x && echo scratch; cat /proc/self/status; echo to-error >&2; \
        readlink /proc/self/fd/0; sleep 4321 & exit 3";
    let with_mounts = |config: &mut Value| {
        config["process"]["user"] = json!({"uid": 0, "gid": 8, "additionalGids": [9, 77]});
        let some = ["CAP_CHOWN", "CAP_DAC_OVERRIDE"];
        config["process"]["capabilities"] = json!({"bounding": some, "effective": some, "permitted": some});
        config["process"]["noNewPrivileges"] = json!(true);
        for mount in [
            json!({"destination": "/etc/map", "type": "bind", "source": map, "options": ["rbind", "ro"]}),
            json!({"destination": "/run/scratch", "type": "tmpfs", "options": ["mode=755"]}),
        ] {
            config["mounts"].as_array_mut().unwrap().push(mount);
        }
    };
    engine.start_member("client", ask, with_mounts);
    assert_eq!(engine.wait("client"), 3, "{}", engine.out("client"));
    let out = engine.out("client");
    let limits = ["CapEff:\t0000000000000003", "CapBnd:\t0000000000000003", "NoNewPrivs:\t1"];
    let others = [
        "served",
        "from a ConfigMap",
        "gid=8",
        "groups=9,77",
        "web-0",
        "Read-only file system",
        "scratch",
        "/dev/null\n",
    ];
    for says in limits.into_iter().chain(others).chain(["to-error"]) {
        assert!(out.contains(says), "no {says} in {out}");
    }
    assert!(!out.contains("own"), "the other's root is not its own: {out}");
    assert_eq!(engine.status("client"), "stopped");
    assert!(!engine.is_in_machine("sleep\x004321"), "the end of its first process is that of all");
    engine.run(&["exec", "client", "echo"]).code(255).complains("stopped");

    // It restarts, under another id as the kubelet has it; the other container knows nothing of that.
    assert_eq!(engine.status("server"), "running");
    engine.run(&["exec", "server", "cat", "/who"]).ok().says("own");
    engine.run(&["exec", "--user", "7:9", "server", "sh", "-c", "id; exit 6"]).code(6).says("uid=7 gid=9");
    engine.run(&["delete", "client"]).ok();
    let trapping = "trap 'echo got it; exit 5' TERM; echo up; while :; do sleep 0.1; done";
    engine.start_member("again", trapping, |_| {});
    eventually("it runs", || engine.out("again").contains("up"));
    engine.run(&["exec", "again", "cat", "/who"]).code(1);
    engine.run(&["exec", "again", "wget", "-q", "-O", "-", "http://127.0.0.1:8080/"]).ok().says("served");
    engine.run(&["pause", "again"]).code(1).complains("dev.unilith.pod: separate");
    engine.run(&["kill", "again", "TERM"]).ok();
    assert_eq!(engine.wait("again"), 5, "{}", engine.out("again"));
    assert!(engine.out("again").contains("got it"));
    // What takes all memory ends alone.
    engine.start_member("greedy", "exec tail /dev/zero", |_| {});
    assert_eq!(engine.wait("greedy"), 137, "{}", engine.out("greedy"));
    assert!(engine.out("greedy").contains("memory"), "{}", engine.out("greedy"));

    let page = pod.page();
    let curl = ["-s", "--retry", "20", "--retry-connrefused", "-m", "20", &page];
    client("curl", &curl).ok().says("served");
    engine.run(&["kill", "server", "KILL"]).ok();
    assert_eq!(engine.wait("server"), 137, "{}", engine.out("server"));
    assert_eq!(engine.status("sandbox"), "running");
    engine.run(&["kill", "sandbox", "KILL"]).ok();
    assert_eq!(engine.wait("sandbox"), 137, "{}", engine.out("sandbox"));
    ["again", "greedy", "server", "sandbox"].iter().for_each(|id| drop(engine.run(&["delete", id]).ok()));
    engine.has_nothing_left();
}

#[test]
fn a_container_of_a_pod_ends_at_its_own_limit_of_memory_and_not_those_that_are_within_theirs() {
    let Some(engine) = engine() else { return };
    let pod = Pod::make();
    // With 96 MiB.
    engine.start_sandbox(&pod);
    // Most of the pod's memory, so that it would be the one to end if the pod had none left.
    let keep = "(busybox head -c 50000000 /dev/zero; echo full >&2; exec sleep 1000) | tail";
    engine.start_member("holder", keep, |_| {});
    eventually("it has its memory", || engine.out("holder").contains("full"));
    let limit = |config: &mut Value| config["linux"]["resources"] = json!({"memory": {"limit": 16 << 20}});
    engine.start_member("greedy", "exec tail /dev/zero", limit);
    assert_eq!(engine.wait("greedy"), 137, "{}", engine.out("greedy"));
    assert!(engine.out("greedy").contains("memory"), "{}", engine.out("greedy"));
    // What processes share counts once: here twelve have the same 3 MB.
    let share = "x=$(busybox head -c 3000000 /dev/zero | busybox tr '\\0' x); n=0; \
        while [ $n -lt 12 ]; do (sleep 1000) & n=$((n + 1)); done; echo ${#x}; exit 4";
    engine.start_member("sharing", share, limit);
    assert_eq!(engine.wait("sharing"), 4, "{}", engine.out("sharing"));
    assert!(engine.out("sharing").contains("3000000"), "{}", engine.out("sharing"));
    // A process that is not its first one ends alone.
    engine.start_member("parent", "tail /dev/zero; echo code $?; exit 6", limit);
    assert_eq!(engine.wait("parent"), 6, "{}", engine.out("parent"));
    assert!(engine.out("parent").contains("code 137"), "{}", engine.out("parent"));
    assert_eq!(engine.status("holder"), "running");
    engine.run(&["kill", "holder", "KILL"]).ok();
    assert_eq!(engine.wait("holder"), 137);
    engine.run(&["kill", "sandbox", "KILL"]).ok();
    engine.wait("sandbox");
    let ids = ["holder", "greedy", "sharing", "parent", "sandbox"];
    ids.iter().for_each(|id| drop(engine.run(&["delete", id]).ok()));
    engine.has_nothing_left();
}

#[test]
fn a_container_of_a_pod_ends_with_its_process_and_all_of_them_with_the_machine() {
    let Some(engine) = engine() else { return };
    let pod = Pod::make();
    engine.start_sandbox(&pod);
    for (id, seconds) in [("one", 4321), ("two", 5432)] {
        engine.start_member(id, &format!("sleep {seconds} & echo up; exec sleep 1000"), |_| {});
        eventually("it runs", || engine.out(id).contains("up"));
    }
    let ends = |id: &str| {
        let _ = waitpid(Some(engine.pid(id)), WaitOptions::NOHANG);
        eventually("it ends", || {
            let _ = waitpid(Some(engine.pid(id)), WaitOptions::NOHANG);
            engine.status(id) == "stopped"
        });
    };
    // A program that is not there is said by `create`, and one that cannot be run by `start`.
    engine.member("never", "", |config| config["process"]["args"] = json!(["nothing"]));
    assert!(!engine.create("never").success());
    assert!(engine.out("never").contains("executable file not found"), "{}", engine.out("never"));
    let folder = engine.member("bad", "", |config| config["process"]["args"] = json!(["/bad"]));
    fs::write(folder.join("rootfs/bad"), "no program").unwrap();
    client("chmod", &["755", &folder.join("rootfs/bad").display().to_string()]).ok();
    assert!(engine.create("bad").success(), "{}", engine.out("bad"));
    engine.run(&["start", "bad"]).complains("/bad");
    ends("bad");
    engine.run(&["delete", "bad"]).ok();
    // One that was never started.
    engine.member("waits", "echo never", |_| {});
    assert!(engine.create("waits").success(), "{}", engine.out("waits"));
    engine.run(&["delete", "--force", "waits"]).ok();

    assert!(engine.is_in_machine("sleep\x004321"));
    signal(Signal::KILL, engine.pid("one").as_raw_nonzero().get() as u32);
    ends("one");
    eventually("the machine ends it", || !engine.is_in_machine("sleep\x004321"));
    assert!(engine.is_in_machine("sleep\x005432"));
    engine.run(&["delete", "one"]).ok();
    assert_eq!(engine.status("two"), "running");

    let pids = engine.run(&["ps", "--format", "json", "sandbox"]).ok().out;
    let pids: Vec<u64> = serde_json::from_str(&pids).unwrap();
    assert!(pids.len() > 1, "the machine is a process of its own: {pids:?}");
    signal(Signal::KILL, pids[1] as u32);
    assert_eq!(engine.wait("two"), 137, "{}", engine.out("two"));
    ends("sandbox");
    engine.member("late", "echo never", |_| {});
    assert!(!engine.create("late").success());
    assert!(engine.out("late").contains("pod is stopped"), "{}", engine.out("late"));
    ["two", "sandbox"].iter().for_each(|id| drop(engine.run(&["delete", id]).ok()));
    engine.has_nothing_left();
}

/// A server of names for a test's namespace: every name has the same address.
const NAMES: &str = "
import socket
server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
server.bind(('127.0.0.11', 53))
print('up', flush=True)
while True:
    question, client = server.recvfrom(512)
    head = question[:2] + b'\\x81\\x80' + question[4:6] + b'\\0\\1\\0\\0\\0\\0' + question[12:]
    server.sendto(head + b'\\xc0\\x0c\\0\\1\\0\\1\\0\\0\\0\\x3c\\0\\4' + bytes([10, 213, 7, 1]), client)
";

#[test]
fn names_are_resolved_by_the_server_on_the_loopback_of_the_containers_namespace() {
    let Some(mut engine) = engine() else { return };
    // Engines have longer paths than the address of a socket has room for (unix(7)).
    engine.root = engine.unilith.path(&"long".repeat(40)).display().to_string();
    let pod = Pod::make();
    let path = pod.path();
    let mut server = Command::new("nsenter")
        .args([&format!("--net={path}"), "--", "python3", "-c", NAMES])
        .stdout(Stdio::piped())
        .spawn()
        .expect("nsenter and python3 are there");
    let mut up = [0; 3];
    server.stdout.as_mut().expect("it is piped").read_exact(&mut up).expect("the server begins");
    let resolv_conf = engine.unilith.path("resolv.conf");
    fs::write(&resolv_conf, "search test\nnameserver 127.0.0.11\noptions ndots:0\n").unwrap();
    // As `docker run --init`: the program is a file of the engine's.
    let init = engine.unilith.path("init");
    fs::copy("/bin/busybox", &init).unwrap();
    engine.bundle("names", "", |config| {
        config["process"]["args"] =
            json!(["/sbin/busybox", "sh", "-c", "cat /etc/resolv.conf; nslookup -type=a peer.test"]);
        config["linux"]["namespaces"][1] = json!({"type": "network", "path": path});
        for (source, destination) in [(&resolv_conf, "/etc/resolv.conf"), (&init, "/sbin/busybox")] {
            let mount =
                json!({"destination": destination, "type": "bind", "source": source, "options": ["ro"]});
            config["mounts"].as_array_mut().unwrap().push(mount);
        }
    });
    let created = engine.create("names");
    assert!(created.success(), "{}", engine.out("names"));
    engine.run(&["start", "names"]).ok();
    let code = engine.wait("names");
    // It is our own, and nothing else ends it.
    let _ = (server.kill(), server.wait());
    let out = engine.out("names");
    assert!(out.contains(&format!("nameserver {}", pod.at(254))) && out.contains("options ndots:0"), "{out}");
    assert!(out.contains("10.213.7.1") && code == 0, "{code}: {out}");
    assert_eq!(
        fs::read_to_string(&resolv_conf).unwrap().lines().count(),
        3,
        "the engine's file is as it was"
    );
    engine.run(&["delete", "names"]).ok();
}

/// A container's name, what is wrong with its bundle, and what is said of it.
type Case<'a> = (&'a str, &'a dyn Fn(&mut Value), &'a str);

#[test]
fn an_annotation_chooses_what_the_kernel_is_made_of_and_the_score_is_the_processs() {
    let Some(engine) = engine() else { return };
    // The kernel of `run`, which is there.
    for (id, choice, says) in
        [("with", "tun=on", "there"), ("without", "tun=off, ipv6=off,overlayfs=off", "none")]
    {
        engine.bundle(
            id,
            "if [ -e /dev/net/tun ]; then echo there; else echo none; fi; sleep 100",
            |config| {
                config["annotations"] = json!({"dev.unilith.set": choice});
                config["process"]["oomScoreAdj"] = json!(321);
            },
        );
        assert!(engine.create(id).success(), "{}", engine.out(id));
        engine.run(&["start", id]).ok();
        eventually("it says so", || engine.out(id).contains(says));
        let score = format!("/proc/{}/oom_score_adj", engine.pid(id).as_raw_nonzero());
        assert_eq!(fs::read_to_string(score).unwrap().trim(), "321");
        engine.run(&["kill", id, "KILL"]).ok();
        assert_eq!(engine.wait(id), 137);
        engine.run(&["delete", id]).ok();
    }
}

#[test]
fn what_is_wrong_with_a_bundle_is_said_and_nothing_stays() {
    let Some(engine) = engine() else { return };
    let log = engine.unilith.path("log.json");
    let log_text = log.display().to_string();
    let cases: [Case; 9] = [
        ("noprogram", &|c| c["process"]["args"] = json!(["nothing"]), "executable file not found in $PATH"),
        ("noargs", &|c| c["process"]["args"] = json!([]), "names no program"),
        ("noroot", &|c| c["root"]["path"] = json!("missing"), "cannot use the root"),
        ("users", &|c| c["linux"]["namespaces"][0] = json!({"type": "user"}), "user namespace"),
        ("nonet", &|c| c["linux"]["namespaces"][1] = json!({"type": "network", "path": "/no/ns"}), "/no/ns"),
        ("kernel", &|c| c["annotations"] = json!({"unilith.kernel": "linux"}), "unilith.kernel=linux"),
        ("choice", &|c| c["annotations"] = json!({"dev.unilith.set": "aio"}), "write KEY=VALUE"),
        (
            "part",
            &|c| c["annotations"] = json!({"dev.unilith.set": "tun=on,wings=on"}),
            "--set wings: there is no such",
        ),
        ("score", &|c| c["process"]["oomScoreAdj"] = json!(5000), "oom_score_adj"),
    ];
    for (id, change, says) in cases {
        let folder = engine.bundle(id, "echo never", change);
        let bundle = folder.display().to_string();
        let words = ["--log", &log_text, "--log-format", "json", "create", "--bundle", &bundle, id];
        let ran = engine.run(&words).complains(says);
        assert_ne!(ran.code, Some(0), "{id}: {ran}");
        let logged = fs::read_to_string(&log).unwrap();
        let last: Value = serde_json::from_str(logged.lines().last().unwrap()).expect("each line is JSON");
        assert!(last["msg"].as_str().unwrap().contains(says) && last["level"] == "error", "{last}");
        engine.run(&["state", id]).code(1).complains("does not exist");
    }
    engine.run(&["create", "--bundle", "/no/such/bundle", "x"]).code(1).complains("/no/such/bundle");
    engine.run(&["state", "../x"]).code(1).complains("invalid id");
    engine.run(&["checkpoint", "x"]).code(1).complains("no such command");
    let folder = engine.bundle("scope", "echo never", |c| c["linux"]["cgroupsPath"] = json!("/not/systemds"));
    let bundle = folder.display().to_string();
    engine
        .run(&["--systemd-cgroup", "create", "--bundle", &bundle, "scope"])
        .code(1)
        .complains("slice:prefix:name");
    assert_eq!(engine.unilith.machines_on_disk(), 0);
    let left = fs::read_dir(&engine.root).unwrap().flatten().map(|e| e.file_name());
    assert_eq!(left.filter(|name| name != ".interfaces").count(), 0);
}

#[test]
fn an_engine_finds_the_kernel_that_the_command_has_built() {
    let Some(engine) = engine() else { return };
    let unilith = &engine.unilith;
    // The kernel of containers, as the pages about engines have it.
    let run = ["run", "-d", "--name", "known", "--machine", "process"];
    unilith.run(&[&run[..], &PARTS_OF_CONTAINERS, &["busybox", "sleep", "1000"]].concat()).ok();
    let machine = unilith.run(&["inspect", "known"]).ok().out;
    let kernel = machine.split("\"kernel\": \"").nth(1).and_then(|rest| rest.split('"').next());
    let kernel = PathBuf::from(kernel.expect("inspect names the kernel"));
    unilith.run(&["rm", "-f", "known"]).ok();
    // A cache with this kernel alone, and an engine's environment, in which there is no compiler.
    let kernels = unilith.path("cache/unilith/kernels");
    let from = kernel.parent().expect("it is in a folder");
    let folder = kernels.join(from.file_name().expect("the folder has a name"));
    fs::create_dir_all(&folder).unwrap();
    for name in ["kernel", "kernel.symbols"] {
        fs::copy(from.join(name), folder.join(name)).unwrap();
    }
    let bundle = engine.bundle("found", "echo up; exit 3", |_| {});
    let runtime = |words: &[&str]| {
        let mut command = Command::new(unilith_tests::root().join("unilith-runc"));
        command
            .args(["--root", &engine.root])
            .args(words)
            .env_clear()
            .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin");
        command.env("HOME", unilith.path("home")).env("XDG_STATE_HOME", unilith.path("state"));
        command.env("XDG_CACHE_HOME", unilith.path("cache")).stdin(Stdio::null());
        let out = File::options().create(true).append(true).open(bundle.join("out")).unwrap();
        command.stderr(out.try_clone().unwrap()).stdout(out);
        assert!(command.status().expect("it is there").success(), "{}", engine.out("found"));
    };
    let (at, pid) = (bundle.display().to_string(), bundle.join("pid").display().to_string());
    runtime(&["create", "--bundle", &at, "--pid-file", &pid, "found"]);
    runtime(&["start", "found"]);
    assert_eq!(engine.wait("found"), 3, "{}", engine.out("found"));
    runtime(&["delete", "found"]);
    let names = fs::read_dir(&kernels).unwrap().map(|entry| entry.unwrap().file_name());
    let others: Vec<_> = names.filter(|name| Some(name.as_os_str()) != folder.file_name()).collect();
    assert!(others.is_empty(), "another kernel was built: {others:?}");
    engine.has_nothing_left();
}

#[test]
fn a_container_whose_process_is_killed_leaves_nothing_behind() {
    let Some(engine) = engine() else { return };
    engine.bundle("three", "echo up; sleep 1000", |_| {});
    assert!(engine.create("three").success(), "{}", engine.out("three"));
    engine.run(&["start", "three"]).ok();
    eventually("it runs", || engine.out("three").contains("up"));
    let pids = engine.run(&["ps", "--format", "json", "three"]).ok().out;
    let pids: Vec<u64> = serde_json::from_str(&pids).unwrap();
    assert!(pids.len() > 1, "the machine is a process of its own: {pids:?}");
    signal(Signal::KILL, engine.pid("three").as_raw_nonzero().get() as u32);
    eventually("the machine goes with it", || {
        let _ = waitpid(Some(engine.pid("three")), WaitOptions::NOHANG);
        !pids.iter().any(|pid| unilith_tests::is_alive(*pid))
    });
    assert_eq!(engine.status("three"), "stopped");
    engine.run(&["delete", "three"]).ok();
    assert_eq!(engine.unilith.machines_on_disk(), 0);
}
