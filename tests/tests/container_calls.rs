// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Calls of the container runtime as people make them by hand and as runc's integration tests do (`tests/suites/runc.sh`): `run`, lists,
//! events, limits as options, processes that are described by half, and what is left when containers go.

use serde_json::{Value, json};
use std::{fs, os::unix::fs::symlink, process::Stdio};
use unilith_tests::{engine::engine, eventually};

#[test]
fn run_makes_a_container_waits_for_it_and_leaves_nothing_of_it() {
    let Some(engine) = engine() else { return };
    let folder = engine.bundle("one", "cat; echo error >&2; exit 7", |_| {}).display().to_string();
    let input = engine.unilith.path("input");
    fs::write(&input, "through the input\n").unwrap();
    let mut command = engine.command(&["run", "--bundle", &folder, "one"]);
    let ran = command.stdin(fs::File::open(&input).unwrap()).output().unwrap();
    let (out, error) = (String::from_utf8_lossy(&ran.stdout), String::from_utf8_lossy(&ran.stderr));
    assert_eq!((ran.status.code(), &*out), (Some(7), "through the input\n"), "{error}");
    assert!(error.contains("error"), "{error}");
    engine.run(&["state", "one"]).code(1).complains("does not exist");

    let pid_file = engine.unilith.path("pid").display().to_string();
    engine.run(&["run", "--keep", "--pid-file", &pid_file, "--bundle", &folder, "one"]).code(7);
    assert_eq!(engine.status("one"), "stopped");
    assert!(fs::read_to_string(&pid_file).unwrap().parse::<u32>().is_ok());
    engine.run(&["delete", "one"]).ok();
    let socket = ["run", "--console-socket", "/no/such/socket", "--bundle", &folder, "one"];
    engine.run(&socket).code(1).complains("there is no terminal to give");

    let folder = engine.bundle("two", "tty; exit 5", |config| config["process"]["terminal"] = json!(true));
    let folder = folder.display().to_string();
    engine
        .run(&["run", "--detach", "--bundle", &folder, "two"])
        .code(1)
        .complains("--console-socket is missing");
    engine.run(&["run", "--bundle", &folder, "two"]).code(5).says("/dev/");
    assert_eq!(engine.unilith.machines_on_disk(), 0);
}

#[test]
fn lists_and_events_are_in_runcs_form_and_end_with_the_container() {
    let Some(engine) = engine() else { return };
    let folder = engine.bundle("one", "sleep 1000", |config| {
        config["linux"]["resources"] = json!({"pids": {"limit": 50}});
    });
    let bundle = folder.display().to_string();
    let mut command = engine.command(&["run", "--detach", "--bundle", &bundle, "one"]);
    // Its output goes nowhere: whoever reads that to its end waits for the container's.
    assert!(
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status().unwrap().success()
    );
    let list = engine.run(&["list"]).ok().out;
    let lines: Vec<Vec<&str>> = list.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(lines[0], ["ID", "PID", "STATUS", "BUNDLE", "CREATED", "OWNER"]);
    assert_eq!((lines[1][0], lines[1][2], lines[1][3], lines[1][5]), ("one", "running", &*bundle, "root"));
    let list = engine.run(&["list", "--format", "json"]).ok().out;
    assert!(list.starts_with(r#"[{"ociVersion":"1.0.2","id":"one","pid":"#), "{list}");
    let processes = engine.run(&["ps", "one"]).ok().out;
    let pid =
        serde_json::from_str::<Value>(&engine.run(&["state", "one"]).ok().out).unwrap()["pid"].to_string();
    let mut lines = processes.lines();
    assert!(lines.next().unwrap().starts_with("UID"), "{processes}");
    assert_eq!(lines.next().unwrap().split_whitespace().nth(1), Some(&*pid), "{processes}");
    engine.run(&["ps", "one", "-e", "-x"]).ok().says("COMMAND");

    let words = ["events", "--interval", "100ms", "one"];
    let events = engine.command(&words).stdout(Stdio::piped()).spawn().unwrap();
    for (options, file, says) in [
        (["--pids-limit", "20"], "pids.max", "20"),
        (["--cpu-quota", "50000"], "cpu.max", "50000 100000"),
        (["--cpu-period", "200000"], "cpu.max", "50000 200000"),
        (["--cpu-quota", "-1"], "cpu.max", "max 200000"),
    ] {
        engine.run(&[&["update"], &options[..], &["one"]].concat()).ok();
        let events = engine.run(&["events", "--stats", "one"]).ok().out;
        assert!(events.starts_with(r#"{"type":"stats","id":"one","data":"#), "{events}");
        if file == "pids.max" {
            let stats: Value = serde_json::from_str(&events).unwrap();
            assert_eq!(stats["data"]["pids"]["limit"].to_string(), says);
        }
    }
    engine.run(&["pause", "one"]).ok();
    engine.run(&["update", "--pids-limit", "30", "one"]).ok();
    engine.run(&["exec", "one", "id"]).code(255).complains("cannot exec in a paused container");
    let waits =
        engine.command(&["exec", "--ignore-paused", "one", "id", "-u"]).stdout(Stdio::piped()).spawn();
    engine.run(&["resume", "one"]).ok();
    assert_eq!(waits.unwrap().wait_with_output().unwrap().stdout, b"0\n");
    engine.run(&["events", "--stats", "one"]).ok().says(r#""limit":30"#);
    engine.run(&["update", "--memory", "4000M", "one"]).code(1).complains("cannot grow");
    engine.run(&["update", "--memory", "4x", "one"]).code(2);
    engine.run(&["kill", "one", "0"]).ok();
    engine.run(&["delete", "--force", "one"]).ok();
    let events = events.wait_with_output().unwrap();
    assert!(events.status.success());
    let shown = String::from_utf8_lossy(&events.stdout).lines().filter(|line| line.contains("stats")).count();
    assert!(shown >= 2, "it is shown again and again: {shown}");
}

#[test]
fn a_process_is_described_by_options_or_by_half() {
    let Some(engine) = engine() else { return };
    engine.bundle("one", "sleep 1000", |_| {});
    assert!(engine.create("one").success(), "{}", engine.out("one"));
    engine.run(&["start", "one"]).ok();
    let groups = ["--additional-gids", "100", "--additional-gids", "65534"];
    let words = [&["exec", "--user", "1000:1000"], &groups[..], &["one", "id", "-G"]].concat();
    engine.run(&words).ok().says("1000 100 65534");
    engine.run(&["exec", "one", "no-such-program"]).code(255).complains("executable file not found");
    engine.run(&["exec", "--preserve-fds", "1", "one", "id"]).code(255).complains("--preserve-fds");
    engine.run(&["exec", "--cgroup", "sub", "one", "id"]).code(255).complains("one control group");
    let pid_file = engine.unilith.path("exec.pid").display().to_string();
    engine.run(&["exec", "--pid-file", &pid_file, "one", "id"]).ok();
    assert!(fs::read_to_string(&pid_file).unwrap().parse::<u32>().is_ok());
    let process = engine.unilith.path("process.json");
    fs::write(&process, json!({"args": ["id", "-u"], "cwd": "/"}).to_string()).unwrap();
    engine.run(&["exec", "--process", &process.display().to_string(), "one"]).ok().says("0");
    engine.run(&["delete", "--force", "one"]).ok();
}

#[test]
fn containers_of_two_engines_may_have_one_name() {
    let Some(engine) = engine() else { return };
    let other = engine.unilith.path("other").display().to_string();
    engine.bundle("same", "echo of $0; sleep 1000", |_| {});
    assert!(engine.create("same").success(), "{}", engine.out("same"));
    engine.run(&["start", "same"]).ok();
    let bundle = engine.unilith.path("same").display().to_string();
    let run = |words: &[&str]| engine.unilith.run(&[&["oci", "--root", &other], words].concat());
    let mut command =
        engine.unilith.command(&["oci", "--root", &other, "run", "--detach", "--bundle", &bundle, "same"]);
    assert!(
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status().unwrap().success()
    );
    run(&["exec", "same", "touch", "/made"]).ok();
    run(&["delete", "--force", "same"]).ok();
    assert_eq!(engine.status("same"), "running", "only its namesake is gone");
    engine.run(&["exec", "same", "ls", "/made"]).ok();
    engine.run(&["delete", "--force", "same"]).ok();
    assert_eq!(engine.unilith.machines_on_disk(), 0);
}

#[test]
fn a_tmpfs_begins_with_the_images_files_where_it_is_to_and_a_link_is_no_place_for_the_kernels() {
    let Some(engine) = engine() else { return };
    let line = "ls -l /full; cat /full/below/file; touch /full/x && echo written; touch /fixed/x";
    let folder = engine.bundle("one", line, |config| {
        for mount in [
            json!({"destination": "/full", "type": "tmpfs", "options": ["tmpcopyup"]}),
            json!({"destination": "/fixed", "type": "tmpfs", "options": ["ro", "mode=755"]}),
        ] {
            config["mounts"].as_array_mut().unwrap().push(mount);
        }
    });
    let full = folder.join("rootfs/full");
    fs::create_dir_all(full.join("below")).unwrap();
    fs::write(full.join("below/file"), "of the image").unwrap();
    symlink("/etc/passwd", full.join("link")).unwrap();
    assert!(engine.create("one").success(), "{}", engine.out("one"));
    engine.run(&["start", "one"]).ok();
    engine.wait("one");
    let out = engine.out("one");
    for says in ["link -> /etc/passwd", "of the image", "written", "Read-only file system"] {
        assert!(out.contains(says), "no {says} in {out}");
    }
    assert!(!full.join("x").exists(), "the image stays as it was");
    engine.run(&["delete", "one"]).ok();

    let folder = engine.bundle("two", "true", |_| {});
    symlink("/tmp", folder.join("rootfs/proc")).unwrap();
    assert!(!engine.create("two").success());
    assert!(engine.out("two").contains("must be mounted on ordinary directory"), "{}", engine.out("two"));
}

#[test]
fn hooks_mount_into_the_container_until_it_is_deleted() {
    let Some(engine) = engine() else { return };
    let given = engine.unilith.path("given");
    fs::create_dir(&given).unwrap();
    fs::write(given.join("file"), "of the hook").unwrap();
    let said = engine.unilith.path("said");
    let line = format!(
        "grep -o 'status.*creating' > {}; mkdir -p given && mount --bind {} given",
        said.display(),
        given.display()
    );
    let folder = engine.bundle("one", "cat /given/file", |config| {
        let hook = json!({"path": "/bin/sh", "args": ["sh", "-c", line], "env": ["PATH=/usr/bin:/bin:/usr/sbin:/sbin"]});
        config["hooks"] = json!({"createContainer": [hook]});
    });
    assert!(engine.create("one").success(), "{}", engine.out("one"));
    engine.run(&["start", "one"]).ok();
    assert_eq!(engine.wait("one"), 0, "{}", engine.out("one"));
    eventually("its output comes", || engine.out("one").contains("of the hook"));
    assert!(fs::read_to_string(&said).unwrap().contains("creating"), "the hook gets the state");
    engine.run(&["delete", "one"]).ok();
    assert_eq!(
        fs::read_dir(folder.join("rootfs/given")).unwrap().count(),
        0,
        "the mount went with the container"
    );
}

#[test]
fn a_terminal_is_its_users_and_its_programs_open_it_by_name() {
    let Some(engine) = engine() else { return };
    let folder = engine.bundle("one", "ls -ln /dev/console; echo by name > /dev/stderr", |config| {
        config["process"]["terminal"] = json!(true);
        config["process"]["user"] = json!({"uid": 1000, "gid": 100});
    });
    let bundle = folder.display().to_string();
    let out = engine.run(&["run", "--bundle", &bundle, "one"]).ok().out;
    let fields: Vec<&str> = out.lines().next().unwrap().split_whitespace().collect();
    assert_eq!((fields[0], fields[2], fields[3]), ("crw--w----", "1000", "5"), "{out}");
    assert!(out.contains("by name"), "{out}");
}

#[test]
fn the_config_to_begin_with_runs() {
    let Some(engine) = engine() else { return };
    let folder = engine.bundle("one", "", |_| {});
    let bundle = folder.display().to_string();
    fs::remove_file(folder.join("config.json")).unwrap();
    engine.run(&["spec", "--bundle", &bundle]).ok();
    engine.run(&["spec", "--bundle", &bundle]).code(1).complains("exists");
    let text = fs::read_to_string(folder.join("config.json")).unwrap();
    let mut config: Value = serde_json::from_str(&text).unwrap();
    config["process"]["args"] = json!(["sh", "-c", "cat /proc/self/status; touch /x"]);
    fs::write(folder.join("config.json"), config.to_string()).unwrap();
    let out = engine.run(&["run", "--bundle", &bundle, "one"]).code(1).out;
    for says in ["CapEff:\t0000000020000420", "NoNewPrivs:\t1", "Read-only file system"] {
        assert!(out.contains(says), "no {says} in {out}");
    }
}
