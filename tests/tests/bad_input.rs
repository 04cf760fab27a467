// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Bad input: each has a clear one-line error, a failing exit code, and leaves nothing behind.

use std::{
    fs::{self, File, FileTimes},
    net::TcpListener,
    os::unix::fs::PermissionsExt,
    time::{Duration, SystemTime},
};
use unilith_tests::{Unilith, guest::Script};

fn unilith() -> Unilith {
    Unilith::with_guest(&Script::new().status("started 1000").status("listening tcp 80"))
}

/// Runs, expects the error, and that no machine was made.
#[track_caller]
fn refused(unilith: &Unilith, args: &[&str], texts: &[&str]) {
    unilith.run(&[&["run"], args].concat()).fails_with(texts);
    assert_eq!(unilith.machines_on_disk(), 0, "a machine is left behind");
}

#[test]
fn a_port_in_use_is_said_before_anything_boots() {
    let taken = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let port = taken.local_addr().unwrap().port();
    let unilith = unilith();
    let publish = format!("127.0.0.1:{port}:80");
    let ran = unilith.run(&["run", "--rm", "-p", &publish, "cpio:root.cpio", "/x"]).code(125);
    ran.fails_with(&[&format!("port {port}"), "in use", "-p"]);
    let ran = unilith.run(&["run", "-d", "--rm", "-p", &publish, "cpio:root.cpio", "/x"]).code(125);
    ran.fails_with(&[&format!("port {port}"), "in use"]);
    assert_eq!(unilith.machines_on_disk(), 0);
}

#[test]
fn a_port_held_by_another_machine_is_said_too() {
    let unilith = unilith();
    let port = unilith_tests::free_port();
    let publish = format!("{port}:80");
    let _first = unilith.start(&["-p", &publish, "cpio:root.cpio", "/x"]);
    unilith.run(&["run", "--rm", "-p", &publish, "cpio:root.cpio", "/x"]).fails_with(&["in use by"]);
}

#[test]
fn ports_that_are_none_are_refused() {
    for port in ["x", "0", "70000", "1:2:3", "80/sctp"] {
        refused(&unilith(), &["-p", port, "cpio:root.cpio", "/x"], &[&format!("-p {port}"), "8080:80"]);
    }
}

#[test]
fn volumes_that_are_not_there_or_cannot_be_written_are_refused() {
    let unilith = unilith();
    refused(&unilith, &["-v", "./nothing:/data", "cpio:root.cpio", "/x"], &["./nothing", "does not exist"]);
    refused(
        &unilith,
        &["-v", "/dev/null:/data", "cpio:root.cpio", "/x"],
        &["neither a directory nor a file"],
    );
    refused(&unilith, &["-v", "data", "cpio:root.cpio", "/x"], &["HOST:PATH"]);
}

#[test]
fn a_volume_that_is_read_only_is_refused() {
    let unilith = unilith();
    let folder = unilith.path("data");
    fs::create_dir(&folder).unwrap();
    // Root may write wherever the file system lets it, so root gets a read-only mount, in a mount namespace of its own.
    let script = r#"
        if [ "$(id -u)" = 0 ]; then mount --bind "$0" "$0" && mount -o remount,bind,ro "$0"; else chmod 555 "$0"; fi
        "$@"; code=$?
        if [ "$(id -u)" = 0 ]; then umount "$0"; fi
        exit $code"#;
    let words = [script.to_string(), folder.display().to_string()];
    let run = |volume: &str| {
        let inner = unilith.command(&["run", "--rm", "-v", volume, "cpio:root.cpio", "/x"]);
        let mut all = unilith_tests::with_own_mounts().into_iter().chain(words.clone());
        let mut command = std::process::Command::new(all.next().unwrap());
        command.args(all).arg(inner.get_program()).args(inner.get_args());
        command.envs(inner.get_envs().filter_map(|(k, v)| Some((k, v?)))).current_dir(unilith.path("."));
        unilith_tests::finish(&mut command, unilith_tests::PATIENCE)
    };
    run("./data:/data").code(125).fails_with(&["read-only", ":ro"]);
    assert_eq!(unilith.machines_on_disk(), 0);
}

/// Whether this test runs as root.
fn is_root() -> bool {
    fs::metadata("/proc/self").is_ok_and(|m| std::os::unix::fs::MetadataExt::uid(&m) == 0)
}

#[test]
fn two_machines_of_one_name_are_refused() {
    let unilith = unilith();
    let _first = unilith.start(&["--name", "one", "cpio:root.cpio", "/x"]);
    let ran = unilith.run(&["run", "--name", "one", "cpio:root.cpio", "/x"]).code(125);
    ran.fails_with(&["name one is in use", "unilith rm one"]);
    assert_eq!(unilith.machines_on_disk(), 1);
    refused(&Unilith::new(), &["--name", "a b", "cpio:root.cpio", "/x"], &["--name a b"]);
}

#[test]
fn memory_that_cannot_be_enough_is_refused() {
    refused(&unilith(), &["-m", "1M", "cpio:root.cpio", "/x"], &["1 MiB", "too small", "try -m"]);
    refused(&unilith(), &["-m", "64", "cpio:root.cpio", "/x"], &["64 bytes", "try -m"]);
    refused(
        &unilith(),
        &["-m", "1t", "cpio:root.cpio", "/x"],
        &["1024 GiB", "more than a machine can have", "try -m 512G"],
    );
}

#[test]
fn kernel_choices_that_do_not_exist_are_answered_with_those_that_do() {
    refused(
        &unilith(),
        &["--set", "alloc=slab", "cpio:root.cpio", "/x"],
        &["alloc=slab", "tlsf, buddy, mimalloc, tiny, region"],
    );
    refused(
        &unilith(),
        &["--set", "colour=red", "cpio:root.cpio", "/x"],
        &["colour", "alloc, alloc.net, heap-check, sched"],
    );
}

/// What is said of a monitor that is not there, and of programs that print other than they should as their version.
fn monitor_is_named(machine: &str, variable: &str, others: [(&str, &str); 2]) {
    let mut unilith = unilith();
    let run = ["--machine", machine, "--network", "none", "cpio:root.cpio", "/x"];
    let nowhere = format!("/nowhere/{machine}");
    unilith.set(variable, &nowhere);
    refused(&unilith, &run, &[&format!("there is no {nowhere}"), "PATH", variable]);
    let other = unilith.path("other");
    for (prints, says) in others {
        fs::write(&other, format!("#!/bin/sh\necho {prints}\n"))
            .expect("a script in a directory of the test");
        fs::set_permissions(&other, fs::Permissions::from_mode(0o755))
            .expect("a script in a directory of the test");
        unilith.set(variable, &other);
        refused(&unilith, &run, &[says]);
    }
}

#[test]
fn a_monitor_that_is_not_there_is_named_with_what_to_do() {
    monitor_is_named(
        "firecracker",
        "UNILITH_FIRECRACKER",
        [
            ("QEMU emulator version 7.2", "does not say that it is Firecracker"),
            ("Firecracker v1.11.0", "Firecracker v1.11.0 is too old: 1.12"),
        ],
    );
    monitor_is_named(
        "cloud-hypervisor",
        "UNILITH_CLOUD_HYPERVISOR",
        [
            ("Firecracker v1.16.1", "does not say that it is Cloud Hypervisor"),
            ("cloud-hypervisor v34.0.0", "cloud-hypervisor v34.0.0 is too old: 35"),
        ],
    );
}

#[test]
fn what_these_monitors_do_not_offer_is_refused_by_name() {
    let unilith = unilith();
    for machine in ["firecracker", "cloud-hypervisor"] {
        for (words, says) in [
            (["--network", "user"], "--network user"),
            (["--accel", "tcg"], "--accel tcg"),
            (["--accel", "icount"], "--accel icount"),
            (["--kernel", "linux"], "--kernel linux"),
        ] {
            let run = [&["--machine", machine][..], &words, &["cpio:root.cpio", "/x"]].concat();
            refused(&unilith, &run, &[&format!("with --machine {machine}"), says]);
        }
    }
}

#[test]
fn without_qemu_the_package_to_install_is_named() {
    let unilith = unilith();
    // A PATH that has what the script needs, and no QEMU.
    let tools = unilith.path("bin");
    fs::create_dir(&tools).unwrap();
    for tool in ["bash", "env", "dirname", "readlink", "find", "cat", "id", "tr", "sed"] {
        let path = std::env::split_paths(&std::env::var_os("PATH").unwrap())
            .map(|d| d.join(tool))
            .find(|p| p.is_file());
        std::os::unix::fs::symlink(path.unwrap(), tools.join(tool)).unwrap();
    }
    let binary = unilith_tests::root().join("target/release/unilith");
    let mut command = std::process::Command::new(binary);
    command.args(["run", "--rm", "--accel", "tcg", "cpio:root.cpio", "/x"]).current_dir(unilith.path("."));
    command
        .env("PATH", &tools)
        .env("XDG_STATE_HOME", unilith.path("state"))
        .env("UNILITH_KERNEL", unilith.path("guest"));
    let ran = unilith_tests::finish(&mut command, unilith_tests::PATIENCE).code(125);
    ran.fails_with(&["qemu-system-x86_64 is not installed", "apt-get install"]);
}

#[test]
fn a_kernel_for_virtual_machines_is_refused_where_the_machine_is_a_process() {
    // The guest of a few bytes is one; a text is none at all.
    let mut unilith = unilith();
    let run = ["run", "--rm", "--machine", "process", "--network", "none", "cpio:root.cpio", "/x"];
    unilith.run(&run).code(125).fails_with(&["guest is no kernel for --machine process"]);
    fs::write(unilith.path("text"), "no kernel\n").unwrap();
    unilith.set("UNILITH_KERNEL", unilith.path("text"));
    unilith.run(&run).code(125).fails_with(&["text is no kernel for --machine process"]);
}

#[test]
fn a_linux_that_the_series_is_not_made_for_is_refused() {
    let unilith = unilith();
    let program = ["cpio:root.cpio", "/x"];
    let texts = ["--linux 5.10", "6.1 and 6.12"];
    refused(&unilith, &[&["--kernel", "linux", "--linux", "5.10"], &program[..]].concat(), &texts);
    let texts = ["--linux", "add --kernel linux"];
    refused(&unilith, &[&["--linux", "6.12"], &program[..]].concat(), &texts);
    unilith.run(&["linux", "source", "--linux", "6"]).fails_with(&["--linux 6:", "6.1 and 6.12"]);
}

#[test]
fn machines_that_do_not_exist_are_named() {
    let unilith = Unilith::new();
    for verb in ["logs", "stop", "kill", "rm", "inspect", "wait"] {
        unilith.run(&[verb, "nobody"]).code(1).fails_with(&["nobody", "unilith ps -a"]);
    }
}

#[test]
fn a_state_directory_that_cannot_be_written_is_named() {
    let mut unilith = unilith();
    unilith.set("XDG_STATE_HOME", "/proc/self/nothing");
    unilith
        .run(&["run", "cpio:root.cpio", "/x"])
        .code(125)
        .fails_with(&["/proc/self/nothing", "cannot make"]);
}

#[test]
fn stale_state_from_another_life_is_cleaned_up_and_harmless() {
    let unilith = unilith();
    let machine = unilith.start(&["cpio:root.cpio", "/x"]);
    let folder = unilith.path("state/unilith/machines").join(&machine.id);
    let kept = fs::read(folder.join("state.json")).unwrap();
    unilith.run(&["kill", &machine.id]).ok();
    // As after a power failure: the record says it runs, and its process numbers belong to others now.
    let text = String::from_utf8(kept).unwrap();
    let mine = std::process::id().to_string();
    let state: serde_json::Value = serde_json::from_str(&text).unwrap();
    let text = text.replace(&state["process"]["pid"].to_string(), &mine);
    fs::write(folder.join("state.json"), text).unwrap();
    fs::write(folder.join("lock"), "").unwrap();
    let ran = unilith.run(&["ps", "-a"]).ok().says("exited (137)");
    assert!(ran.err.contains("cleaned up after machine"), "{ran}");
}

#[test]
fn a_kernel_that_is_no_kernel_is_qemus_error_in_one_line() {
    let mut unilith = unilith();
    let path = unilith.path("text");
    fs::write(&path, "no kernel\n").unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    unilith.set("UNILITH_KERNEL", &path);
    // What the command does for its cache on the way is no line of that error.
    let packages = unilith.path("cache/unilith/debian/archives");
    fs::create_dir_all(&packages).unwrap();
    let package = packages.join("old_1_amd64.deb");
    let long_ago = SystemTime::now() - Duration::from_hours(48);
    fs::write(&package, "of two days ago").unwrap();
    File::options()
        .write(true)
        .open(&package)
        .and_then(|f| f.set_times(FileTimes::new().set_accessed(long_ago).set_modified(long_ago)))
        .unwrap();
    unilith.set("XDG_CACHE_HOME", unilith.path("cache"));
    unilith.set("UNILITH_CACHE_BUDGET", "1");
    let ran = unilith.run(&["run", "--rm", "cpio:root.cpio", "/x"]).code(125);
    ran.fails_with(&["QEMU ended"]);
    assert!(!package.exists(), "the cache was not trimmed, so that the test says nothing");
}

#[test]
fn what_is_no_program_is_refused_with_what_it_is() {
    let unilith = unilith();
    fs::write(unilith.path("text"), "hello\n").unwrap();
    let own = fs::read(std::env::current_exe().unwrap()).unwrap();
    fs::write(unilith.path("truncated"), &own[..2000]).unwrap();
    let mut other = own.clone();
    // e_machine: EM_AARCH64.
    other[18..20].copy_from_slice(&183u16.to_le_bytes());
    fs::write(unilith.path("arm"), other).unwrap();
    refused(&unilith, &["./text"], &["./text", "text file"]);
    refused(&unilith, &["./truncated"], &["./truncated", "truncated"]);
    refused(&unilith, &["./arm"], &["./arm", "ARM"]);
    refused(&unilith, &["./nothing"], &["./nothing", "no such file"]);
    refused(&unilith, &["oci:./text"], &["./text", "archive"]);
}

#[test]
fn damaged_programs_are_refused_and_never_crash_the_command() {
    let unilith = unilith();
    let own = fs::read("/bin/true").unwrap();
    // A small generator of its own: the same damage every time.
    let mut seed = 0x2545_f491_u32;
    let mut next = || {
        seed ^= seed << 13;
        seed ^= seed >> 17;
        seed ^= seed << 5;
        seed as usize
    };
    for round in 0..40 {
        let mut damaged = own.clone();
        // Header and program headers decide most; a few bytes anywhere do the rest.
        for _ in 0..4 {
            let (at, value) = (next() % 0x300.min(own.len()), next() as u8);
            damaged[at] = value;
        }
        let at = next() % own.len();
        damaged[at] ^= 0xff;
        fs::write(unilith.path("damaged"), damaged).unwrap();
        let ran = unilith.run(&["check", "./damaged"]);
        assert!(matches!(ran.code, Some(0 | 1)) && !ran.err.contains("panicked"), "round {round}: {ran}");
    }
}

#[test]
fn names_that_nobody_knows_are_answered_with_what_there_is() {
    let unilith = unilith();
    refused(&unilith, &["rediss"], &["rediss", "did you mean `redis`"]);
    refused(&unilith, &["debian:surely-no-such-package"], &["surely-no-such-package", "apt-cache search"]);
    refused(&unilith, &["debian:tzdata"], &["tzdata", "no program"]);
}

#[test]
fn an_image_without_an_entrypoint_asks_for_one() {
    let unilith = unilith();
    let folder = unilith.path("image");
    fs::create_dir_all(folder.join("layer")).unwrap();
    fs::write(folder.join("layer/file"), "content").unwrap();
    let tar = |archive: &str, files: &[&str]| {
        let folder = folder.display().to_string();
        unilith_tests::client(
            "tar",
            &[&["-C", &folder, "-cf", &format!("{folder}/{archive}")], files].concat(),
        )
        .ok();
    };
    tar("layer.tar", &["-C", &folder.join("layer").display().to_string(), "file"]);
    let digest =
        unilith_tests::client("sha256sum", &[&folder.join("layer.tar").display().to_string()]).ok().out;
    let digest = digest.split(' ').next().unwrap();
    let config = format!(
        r#"{{"architecture":"amd64","os":"linux","config":{{}},"rootfs":{{"type":"layers","diff_ids":["sha256:{digest}"]}}}}"#
    );
    fs::write(folder.join("config.json"), config).unwrap();
    fs::write(
        folder.join("manifest.json"),
        r#"[{"Config":"config.json","RepoTags":["x:1"],"Layers":["layer.tar"]}]"#,
    )
    .unwrap();
    tar("image.tar", &["config.json", "manifest.json", "layer.tar"]);
    refused(&unilith, &["oci:image/image.tar"], &["image", "entrypoint"]);
}

#[test]
fn a_project_file_with_a_mistake_is_named_with_its_line() {
    let unilith = unilith();
    refused(&unilith, &[], &["unilith.toml", "unilith apps"]);
    fs::write(unilith.path("unilith.toml"), "program = \"x\"\nportz = 3\n").unwrap();
    refused(&unilith, &[], &["unilith.toml:2", "portz"]);
    fs::write(
        unilith.path("unilith.toml"),
        "from = \"debian:hello\"\nfiles = { \"/x\" = \"/etc/shadow\" }\n",
    )
    .unwrap();
    refused(&unilith, &[], &["unilith.toml", "/etc/shadow", "outside of the project"]);
}

#[test]
fn a_full_disk_under_the_cache_is_said_and_leaves_nothing_half_written() {
    if !is_root() {
        eprintln!("skipped: mounting a small file system needs root");
        return;
    }
    let unilith = unilith();
    let (cache, program) = (unilith.path("cache"), unilith.path("program"));
    fs::create_dir_all(&cache).unwrap();
    fs::create_dir_all(&program).unwrap();
    fs::copy("/bin/true", program.join("true")).unwrap();
    let noise: Vec<u8> = (0..8u32 << 20).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    fs::write(program.join("noise"), noise).unwrap();
    let inner = unilith.command(&["run", "--rm", "dir:program", "/true"]);
    let mut words = unilith_tests::with_own_mounts().into_iter();
    let mut command = std::process::Command::new(words.next().unwrap());
    command.args(words).arg(
        r#"mount -t tmpfs -o size=2m none "$0" && "$@"; code=$?; ls -R "$0" >&2; umount "$0"; exit $code"#,
    );
    command.arg(&cache).arg(inner.get_program()).args(inner.get_args());
    command.envs(inner.get_envs().filter_map(|(k, v)| Some((k, v?)))).env("XDG_CACHE_HOME", &cache);
    let ran =
        unilith_tests::finish(command.current_dir(unilith.path(".")), unilith_tests::PATIENCE).code(125);
    assert!(ran.err.contains("disk is full") && ran.err.contains("XDG_CACHE_HOME"), "{ran}");
    assert!(!ran.err.contains(".new."), "a temporary file is left behind: {ran}");
}
