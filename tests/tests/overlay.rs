// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Commands in running machines: real programs are looked into and changed while they serve.

use std::{
    io::{BufRead, BufReader, Write},
    process::{Command, Stdio},
    time::{Duration, Instant},
};
use unilith_tests::{
    BUILD_KERNEL, Machine, PATIENCE, Ran, Unilith, client, eventually, finish, limit, overlay::redis, root,
};

/// Runs a command in the machine.
fn exec(unilith: &Unilith, machine: &Machine, words: &[&str]) -> Ran {
    unilith.run(&[&["exec", machine.id.as_str()], words].concat())
}

/// As [`exec`], with this input.
fn exec_with(unilith: &Unilith, machine: &Machine, words: &[&str], input: &[u8]) -> Ran {
    let mut command = unilith.command(&[&["exec", machine.id.as_str()], words].concat());
    let path = unilith.path("input");
    std::fs::write(&path, input).expect("a file for the input");
    finish(command.stdin(std::fs::File::open(path).expect("the input")), PATIENCE)
}

fn has_overlay() -> bool {
    unilith_tests::tested_kernel() == "micro"
}

#[test]
fn files_are_listed_read_written_moved_and_removed() {
    let unilith = Unilith::new();
    if !has_overlay() {
        return;
    }
    let machine = redis(&unilith);
    let run = |words: &[&str]| exec(&unilith, &machine, words);
    run(&["ls", "/etc"]).ok().says("hostname");
    run(&["cat", "/etc/hostname"]).ok().says(&machine.id);
    run(&["mkdir", "-p", "/tmp/a/b"]).ok();
    exec_with(&unilith, &machine, &["cp", "-", "/tmp/a/b/file with space"], b"one\ntwo\n").ok();
    run(&["cp", "-r", "/tmp/a", "/tmp/c"]).ok();
    run(&["mv", "/tmp/c/b/file with space", "/tmp/d"]).ok();
    assert_eq!(run(&["cat", "/tmp/d"]).ok().out, "one\ntwo\n");
    run(&["rm", "/tmp/a"]).code(1).complains("-r removes directories");
    run(&["rm", "-r", "/tmp/a", "/tmp/c", "/tmp/d"]).ok();
    run(&["cat", "/tmp/d"]).code(1).complains("/tmp/d: No such file or directory");
    // Streams of any size go both ways whole.
    let bytes: Vec<u8> = (0..3_000_000u32).map(|i| (i % 251) as u8 % 100 + 20).collect();
    exec_with(&unilith, &machine, &["cp", "-", "/tmp/big"], &bytes).ok();
    assert!(run(&["cat", "/tmp/big"]).ok().out.into_bytes() == bytes, "three megabytes came back changed");
}

#[test]
fn the_directory_of_the_host_is_there_on_demand_with_all_operations() {
    let unilith = Unilith::new();
    if !has_overlay() {
        return;
    }
    let machine = redis(&unilith);
    let run = |words: &[&str]| exec(&unilith, &machine, words);
    let folder = unilith.run(&["overlay", "dir", &machine.id]).ok().out.trim().to_string();
    let folder = std::path::Path::new(&folder);
    assert!(!run(&["cat", "/proc/mounts"]).ok().out.contains("/overlay"), "mounted before it was asked for");
    std::fs::write(folder.join("given"), "from the host").unwrap();
    run(&["cat", "/overlay/given"]).ok().says("from the host");
    // Open, close, read, write, seek, fsync, unlink, rename, mkdir, rmdir, readdir: table 2 of the paper.
    run(&["cp", "/overlay/given", "/overlay/copy"]).ok();
    run(&["mv", "/overlay/copy", "/overlay/renamed"]).ok();
    run(&["mkdir", "/overlay/folder"]).ok();
    run(&["ls", "/overlay"]).ok().says("renamed");
    run(&["sync"]).ok();
    assert_eq!(std::fs::read_to_string(folder.join("renamed")).unwrap(), "from the host");
    run(&["rm", "-r", "/overlay/folder", "/overlay/renamed"]).ok();
    let left: Vec<_> = std::fs::read_dir(folder).unwrap().map(|e| e.unwrap().file_name()).collect();
    let left: Vec<_> = left.iter().filter(|name| *name != ".virtfs_metadata").collect();
    assert_eq!(left, ["given"]);
}

#[test]
fn a_link_that_the_machine_leaves_in_the_shared_directory_leads_the_host_nowhere() {
    let unilith = Unilith::new();
    if !has_overlay() {
        return;
    }
    let machine = redis(&unilith);
    let folder = unilith.run(&["overlay", "dir", &machine.id]).ok().out.trim().to_string();
    let folder = std::path::Path::new(&folder);
    exec(&unilith, &machine, &["ls", "-l", "/"]).ok().says("bin -> usr/bin");
    // The machine is told that it cannot be, or believes that it has made it.
    exec(&unilith, &machine, &["cp", "-a", "/bin", "/overlay/letter"]);
    std::fs::write(folder.join("letter"), "from the host").unwrap();
    let kinds = std::fs::read_dir(folder).unwrap().flatten().map(|e| e.file_type().unwrap());
    assert!(kinds.into_iter().all(|kind| kind.is_file() || kind.is_dir()));
}

#[test]
fn threads_memory_sockets_and_processor_shares_are_shown() {
    let unilith = Unilith::new();
    if !has_overlay() {
        return;
    }
    let machine = redis(&unilith);
    let run = |words: &[&str]| exec(&unilith, &machine, words);
    // Redis makes its helpers after it listens.
    eventually("the program's threads are listed", || run(&["ps"]).ok().out.contains("bio_lazy_free"));
    // By what it was called, not by the file that Debian's link of this name leads to.
    run(&["ps"]).ok().says("redis-server");
    run(&["mem"]).ok().says("program_own");
    run(&["net"]).ok().says("0.0.0.0:6379");
    run(&["top", "-n", "1"]).ok().says("% idle");
    let ran = unilith.run(&["exec", "--json", &machine.id, "mem"]).ok();
    let rows: Vec<serde_json::Value> = ran.out.lines().map(|l| serde_json::from_str(l).unwrap()).collect();
    assert!(rows.iter().any(|r| r["what"] == "free" && r["size_bytes"].as_u64() > Some(1 << 20)), "{ran}");
    let ran = unilith.run(&["exec", "--json", &machine.id, "cat", "/nope"]).code(1);
    let error: serde_json::Value = serde_json::from_str(ran.err.trim()).unwrap();
    assert_eq!((&error["error"]["errno"], &error["error"]["subject"]), (&"ENOENT".into(), &"/nope".into()));
}

#[test]
fn every_process_is_listed_and_can_be_ended() {
    let unilith = Unilith::new();
    if !has_overlay() {
        return;
    }
    let script = "sleep 1000 & wait $!; echo child ended with $?; sleep 1001";
    let machine = unilith.start(&["busybox", "sh", "-c", script]);
    let child = || {
        let listed = exec(&unilith, &machine, &["ps"]).ok().out;
        let line = listed.lines().find(|line| line.trim_end().ends_with("sleep"))?.to_string();
        line.split_whitespace().next().map(String::from)
    };
    eventually("the child is listed", || child().is_some());
    let number = child().expect("the child is listed");
    exec(&unilith, &machine, &["kill", &number]).ok();
    eventually("its parent has heard of it", || machine.log().contains("child ended with 143"));
    exec(&unilith, &machine, &["kill", &number]).code(1).complains("No such process");
}

#[test]
fn the_kernels_log_is_shown_and_its_level_changed() {
    let unilith = Unilith::new();
    if !has_overlay() {
        return;
    }
    let machine = redis(&unilith);
    exec(&unilith, &machine, &["log", "-l", "loud"]).code(2).complains("error, warn, info or debug");
    exec(&unilith, &machine, &["log", "-l", "info"]).ok();
    exec(&unilith, &machine, &["log", "-n", "5"]).ok();
    exec(&unilith, &machine, &["log"]).ok().says("Linux version 6.1.0-unilith");
}

/// What programs write to /dev/kmsg is in it, and who follows it is told of each line as it comes.
#[test]
fn the_kernels_log_is_followed() {
    let unilith = Unilith::new();
    if !has_overlay() {
        return;
    }
    let writes = "while :; do echo '<3>it goes on' > /dev/kmsg; sleep 0.2; done";
    let machine = unilith.start(&["--network", "none", "busybox", "--", "sh", "-c", writes]);
    let mut command = unilith.command(&["exec", &machine.id, "log", "-f", "-n", "0"]);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::inherit());
    let mut follower = command.spawn().unwrap();
    let lines = BufReader::new(follower.stdout.take().unwrap()).lines();
    for line in lines.take(5) {
        let line = line.unwrap();
        assert!(line.ends_with("] error: it goes on"), "{line}");
    }
    unilith_tests::signal(rustix::process::Signal::INT, follower.id());
    assert_eq!(follower.wait().unwrap().code(), Some(130));
}

#[test]
fn what_cannot_be_done_is_said_in_one_line_with_its_code() {
    let unilith = Unilith::new();
    if !has_overlay() {
        return;
    }
    let machine = redis(&unilith);
    for (words, code, text) in [
        (&["frobnicate"][..], 127, "no such command"),
        (&["ls", "-Z"], 2, "usage: ls"),
        (&["cp", "/etc/hostname"], 2, "a source and a target"),
        (&["kill", "-s", "NOPE"], 2, "no signal"),
        (&["kill", "4711"], 1, "No such process"),
        (&["cat", "/etc"], 1, "Is a directory"),
        (&["rm", "/proc/self/status"], 1, "Operation not permitted"),
        (&["help", "frobnicate"], 1, "no such command"),
        (&["top", "-d", "0"], 2, "1 to 3600"),
    ] {
        let ran = exec(&unilith, &machine, words).code(code).complains(text);
        assert_eq!(ran.err.lines().count(), 1, "{ran}");
    }
    let long = "x".repeat(100_000);
    exec(&unilith, &machine, &["cat", &long]).fails_with(&["at most"]);
    unilith.run(&["exec", "nobody", "ls"]).fails_with(&["nobody"]);
}

#[test]
fn several_commands_run_at_once_and_one_that_runs_for_ever_is_interrupted() {
    let unilith = Unilith::new();
    if !has_overlay() {
        return;
    }
    let machine = redis(&unilith);
    let start = |words: &[&str]| {
        let mut command = unilith.command(&[&["exec", machine.id.as_str()], words].concat());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    };
    let mut endless: Vec<_> = [&["top"][..], &["log", "-f"], &["cat", "/dev/zero"]].map(start).into();
    let many: Vec<_> = (0..8).map(|_| start(&["cat", "/etc/hostname"])).collect();
    for child in many {
        let output = child.wait_with_output().unwrap();
        assert_eq!(
            (output.status.code(), &output.stdout[..]),
            (Some(0), format!("{}\n", machine.id).as_bytes())
        );
    }
    // Theirs, the context's and that of `ps`: who is interrupted before it has asked for anything ends as any process does.
    let overlay_threads = || exec(&unilith, &machine, &["ps"]).ok().out.matches("[overlay]").count();
    eventually("the endless commands run", || overlay_threads() >= 5);
    for child in &mut endless {
        // Nobody reads what `cat` prints: an interrupt reaches it all the same.
        assert!(child.try_wait().unwrap().is_none(), "it ended by itself");
        unilith_tests::signal(rustix::process::Signal::INT, child.id());
    }
    let begin = Instant::now();
    for child in &mut endless {
        drop(child.stdout.take());
        eventually("an interrupted command has ended", || child.try_wait().unwrap().is_some());
        assert_eq!(child.wait().unwrap().code(), Some(130));
    }
    assert!(begin.elapsed() < limit(Duration::from_secs(20)));
    // A client that is killed leaves nothing behind.
    let mut killed = start(&["top"]);
    std::thread::sleep(Duration::from_millis(500));
    killed.kill().unwrap();
    killed.wait().unwrap();
    eventually("the threads of commands whose clients are gone have ended", || overlay_threads() <= 3);
}

#[test]
fn an_endless_command_does_not_stop_the_program() {
    let unilith = Unilith::new();
    if !has_overlay() {
        return;
    }
    let machine = redis(&unilith);
    let at = machine.at(6379);
    let mut command = unilith.command(&["exec", &machine.id, "cat", "/dev/zero"]);
    let mut endless = command.stdin(Stdio::null()).stdout(Stdio::null()).spawn().unwrap();
    let (host, port) = (at.ip().to_string(), at.port().to_string());
    for i in 0..20 {
        let value = format!("value {i}");
        client("redis-cli", &["-h", &host, "-p", &port, "set", "key", &value]).ok().says("OK");
        client("redis-cli", &["-h", &host, "-p", &port, "get", "key"]).ok().says(&value);
    }
    unilith_tests::signal(rustix::process::Signal::INT, endless.id());
    assert_eq!(endless.wait().unwrap().code(), Some(130));
}

#[test]
fn a_script_of_commands_is_attached() {
    let unilith = Unilith::new();
    if !has_overlay() {
        return;
    }
    let machine = redis(&unilith);
    let path = unilith.path("script");
    std::fs::write(&path, "# a comment\nmkdir '/tmp/a b'\nls /tmp\nnope\n").unwrap();
    let mut command = unilith.command(&["attach", &machine.id]);
    let ran = finish(command.stdin(std::fs::File::open(path).unwrap()), PATIENCE).code(127);
    assert!(ran.out.contains("a b"), "{ran}");
}

#[test]
fn strangers_and_noise_on_the_socket_change_nothing() {
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::net::UnixStream;
    let unilith = Unilith::new();
    if !has_overlay() {
        return;
    }
    let machine = redis(&unilith);
    let folder = unilith.run(&["overlay", "dir", &machine.id]).ok().out;
    let socket = std::path::Path::new(folder.trim()).parent().unwrap().join("overlay.sock");
    let mode = std::fs::metadata(&socket).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600, "others could connect");
    for i in 0..50u8 {
        let mut stream = UnixStream::connect(&socket).unwrap();
        let noise: Vec<u8> =
            (0..2000u32).map(|n| (n as u8).wrapping_mul(i).wrapping_add(n as u8 >> 3)).collect();
        // It is dismissed in the middle of it.
        let _ = stream.write_all(&noise);
        let _ = stream.write_all(b"ULN\x01\x02");
    }
    exec(&unilith, &machine, &["cat", "/etc/hostname"]).ok().says(&machine.id);
}

#[test]
fn a_program_is_started_again_with_new_files_and_the_old_one_stays_when_that_fails() {
    let unilith = Unilith::new();
    if !has_overlay() {
        return;
    }
    let machine = unilith.start(&["-p", "127.0.0.1::80", "nginx"]);
    let url = format!("http://{}/", machine.at(80));
    let get = || client("curl", &["-sS", "--max-time", "30", &url]);
    let page = std::fs::read_to_string(root().join("apps/nginx/index.html")).unwrap();
    assert_eq!(get().ok().out, page);
    let configuration = exec(&unilith, &machine, &["cat", "/etc/nginx/nginx.conf"]).ok().out;
    let served = configuration.find("server {").expect("the catalogue's configuration has a server");
    let mut new = configuration.clone();
    new.insert_str(
        served + "server {".len(),
        "\n        access_log /tmp/access.log;\n        return 200 'reloaded';\n",
    );
    exec_with(&unilith, &machine, &["cp", "-", "/etc/nginx/nginx.conf"], new.as_bytes()).ok();
    assert_eq!(get().ok().out, page, "nothing changes before it is started again");
    exec(&unilith, &machine, &["restart"]).ok();
    eventually("nginx serves by the new configuration", || get().out == "reloaded");
    eventually("the log has the requests", || {
        exec(&unilith, &machine, &["cat", "/tmp/access.log"]).ok().out.contains("GET / HTTP/1.1")
    });
    // Real signals: nginx opens its log anew on USR1.
    exec(&unilith, &machine, &["mv", "/tmp/access.log", "/tmp/old.log"]).ok();
    exec(&unilith, &machine, &["kill", "-USR1"]).ok();
    eventually("there is a new log", || exec(&unilith, &machine, &["ls", "/tmp/access.log"]).code == Some(0));
    let found = exec(&unilith, &machine, &["cat", "/proc/self/cmdline"]).ok().out;
    let program = found.split('\0').next().expect("a program has a name").to_string();
    let program = if program.starts_with('/') { program } else { "/usr/sbin/nginx".into() };
    exec(&unilith, &machine, &["mv", &program, "/tmp/program"]).ok();
    exec(&unilith, &machine, &["restart"]).code(1).complains("the old one goes on");
    assert_eq!(get().ok().out, "reloaded");
    exec(&unilith, &machine, &["mv", "/tmp/program", &program]).ok();
    for _ in 0..20 {
        exec(&unilith, &machine, &["restart"]).ok();
    }
    eventually("nginx serves again", || get().out == "reloaded");
}

#[test]
fn a_linux_machine_answers_by_ordinary_processes() {
    let unilith = Unilith::new();
    if unilith_tests::tested_kernel() != "linux" {
        return;
    }
    let machine = redis(&unilith);
    let run = |words: &[&str]| exec(&unilith, &machine, words);
    run(&["help"]).ok().says("kill");
    run(&["cat", "/etc/hostname"]).ok().says(&machine.id);
    run(&["ps"]).ok().says("redis-server");
    run(&["net"]).ok().says(":6379");
    run(&["uname", "-s"]).ok().says("Linux");
    run(&["sh", "-c", "exit 7"]).code(7);
    run(&["nope"]).code(127).complains("no such command");
    // Programs of the image.
    let program = |words: &[&str]| unilith.run(&[&["exec"], words].concat());
    let version = ["-e", "A=b", "-w", "/tmp", &machine.id, "redis-server", "--version"];
    program(&version).ok().says("Redis server");
    program(&["-i", &machine.id, "nope"]).code(127).complains("no such program in the image");
    program(&["-t", &machine.id, "redis-server"]).code(126).complains("leave -t out");
    run(&["cat", "/nope"]).code(1).complains("No such file");
    unilith.run(&["exec", "--json", &machine.id, "ps"]).code(126).complains("leave --json out");
    // Streams of any size go both ways whole.
    let bytes: Vec<u8> = (0..3_000_000u32).map(|i| (i % 251) as u8 % 100 + 20).collect();
    exec_with(&unilith, &machine, &["cp", "-", "/tmp/big"], &bytes).ok();
    assert!(run(&["cat", "/tmp/big"]).ok().out.into_bytes() == bytes, "three megabytes came back changed");
    let folder = unilith.run(&["overlay", "dir", &machine.id]).ok().out;
    std::fs::write(std::path::Path::new(folder.trim()).join("given"), "from the host").unwrap();
    run(&["cat", "/overlay/given"]).ok().says("from the host");
    // Nothing of the tools is to be found in the machine.
    run(&["ls", "/.unilith"]).code(1);
    let start = |words: &[&str]| {
        let mut command = unilith.command(&[&["exec", machine.id.as_str()], words].concat());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap()
    };
    let mut endless = start(&["cat", "/dev/zero"]);
    let mut killed = start(&["sh", "-c", "while :; do sleep 1; done"]);
    std::thread::sleep(Duration::from_secs(1));
    unilith_tests::signal(rustix::process::Signal::INT, endless.id());
    drop(endless.stdout.take());
    assert_eq!(endless.wait().unwrap().code(), Some(130));
    killed.kill().unwrap();
    killed.wait().unwrap();
    eventually("the processes of a client that is gone have ended", || {
        !run(&["ps"]).ok().out.contains("sleep 1")
    });
    run(&["kill", "-TERM"]).ok();
    eventually("the program got the signal", || unilith.inspect(&machine.id)["state"]["phase"] == "exited");
}

#[test]
fn a_machine_whose_host_has_no_tools_serves_and_says_so() {
    // A process has them in its file.
    if !has_overlay() || unilith_tests::tested_machine() == "process" {
        return;
    }
    let mut unilith = Unilith::new();
    let whole = redis(&unilith);
    exec(&unilith, &whole, &["ls", "/etc"]).ok().says("hostname");
    // The same kernel, alone in its directory.
    let alone = unilith.path("kernel");
    let kernel = unilith.inspect(&whole.id)["kernel"].as_str().expect("the kernel is named").to_string();
    std::fs::copy(kernel, &alone).expect("a copy of the kernel");
    drop(whole);
    unilith.set("UNILITH_KERNEL", &alone);
    let machine = redis(&unilith);
    let refusal = "the host does not hand the overlay's commands over";
    for _ in 0..2 {
        exec(&unilith, &machine, &["ls", "/etc"]).code(126).complains(refusal);
    }
    // The program does without them, up to its end.
    let (host, port) = (machine.at(6379).ip().to_string(), machine.at(6379).port().to_string());
    let ask = |words: &[&str]| client("redis-cli", &[&["-h", &host, "-p", &port], words].concat());
    ask(&["set", "key", "value"]).ok().says("OK");
    ask(&["shutdown", "nosave"]);
    eventually("Redis has ended", || unilith.inspect(&machine.id)["state"]["phase"] == "exited");
    assert_eq!(unilith.inspect(&machine.id)["state"]["outcome"]["code"], 0);
}

#[test]
fn a_kernel_without_the_overlay_has_none_of_it() {
    let unilith = Unilith::new();
    if !has_overlay() {
        return;
    }
    let symbols = |overlay: &str| {
        let (set, machine) = (format!("overlay={overlay}"), unilith_tests::tested_machine());
        let words = [
            "run",
            "-d",
            "--machine",
            &machine,
            "--name",
            overlay,
            "--set",
            &set,
            "redis",
            "--",
            "--save",
            "",
        ];
        // Building a kernel takes a while; it is built once and cached.
        finish(&mut unilith.command(&words), BUILD_KERNEL).ok();
        let machine = unilith.inspect(overlay);
        let file = |key: &str| machine[key].as_str().expect("the kernel is named").to_string();
        let image = std::fs::metadata(file("kernel")).expect("the kernel is a file").len();
        let tools = std::path::Path::new(&file("kernel")).with_extension("overlay");
        let named = finish(Command::new("nm").args(["--demangle", &file("symbols")]), BUILD_KERNEL).ok().out;
        (named, image, std::fs::metadata(tools).map_or(0, |file| file.len()))
    };
    // A platform's few instructions into and out of domains are its own, and stay.
    let crates =
        ["overlay_line", "overlay_commands", "overlay_objects", "overlay_trace", "api_overlay", "bpf"];
    let (left, small, _) = symbols("off");
    unilith.run(&["exec", "off", "ls"]).fails_with(&["--set overlay=off"]);
    let (there, whole, tools) = symbols("on");
    // Commands come from the host when they are first used. (A process has them in its file, which the host caches.)
    assert!(
        unilith_tests::tested_machine() == "process" || whole < small + tools,
        "the overlay's tools, {tools} bytes, are in the image: {whole} bytes with them, {small} without"
    );
    for part in crates.map(|name| format!("{name}::")) {
        // Not `classic_bpf`, which filters of sockets and system calls are, for `bpf`.
        let ends_before = |line: &str| !line.ends_with(|c: char| c.is_alphanumeric() || c == '_');
        let names = |line: &&str| line.match_indices(&part).any(|(at, _)| ends_before(&line[..at]));
        assert!(there.lines().any(|line| names(&line)), "nm sees {part} where it is");
        let found: Vec<&str> = left.lines().filter(names).collect();
        assert!(found.is_empty(), "left in the image: {found:?}");
    }
}
