// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Bad input: each has a clear one-line error, a failing exit code, and leaves nothing behind.

use std::{fs, net::TcpListener, os::unix::fs::PermissionsExt};
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
    refused(&unilith, &["-v", "/proc/version:/data", "cpio:root.cpio", "/x"], &["not a directory"]);
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
        exec "$@""#;
    let words = ["sh", "-c", script].map(String::from).into_iter().chain([folder.display().to_string()]);
    let run = |volume: &str| {
        let inner = unilith.command(&["run", "--rm", "-v", volume, "cpio:root.cpio", "/x"]);
        let own_mounts = is_root().then_some(["unshare".to_string(), "-m".to_string()]).into_iter().flatten();
        let mut all = own_mounts.chain(words.clone());
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
}

#[test]
fn kernel_choices_that_do_not_exist_are_answered_with_those_that_do() {
    refused(&unilith(), &["--set", "alloc=slab", "cpio:root.cpio", "/x"], &["alloc=slab", "tlsf, buddy"]);
    refused(&unilith(), &["--set", "colour=red", "cpio:root.cpio", "/x"], &["colour", "alloc, sched"]);
    refused(
        &unilith(),
        &["--machine", "firecracker", "cpio:root.cpio", "/x"],
        &["firecracker", "not there yet"],
    );
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
    let text = text.replace(&state["qemu"]["pid"].to_string(), &mine);
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
    let ran = unilith.run(&["run", "--rm", "cpio:root.cpio", "/x"]).code(125);
    ran.fails_with(&["QEMU ended"]);
}
