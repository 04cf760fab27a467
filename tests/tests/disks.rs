// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Files on a disk of the machine's own (`--mount type=disk`): what is there after an end in order, after a kill, and for Linux' tools.

use std::{
    fs::File,
    path::Path,
    process::Command,
    time::{Duration, Instant},
};
use unilith_tests::{MORE_PARTS, Ran, Unilith, is_skipped_without_micro, tested_machine};

fn mount(disk: &Path, more: &str) -> String {
    format!("type=disk,source={},target=/data{more}", disk.display())
}

fn run(unilith: &Unilith, mount: &str, script: &str) -> Ran {
    unilith.program(&[&MORE_PARTS[..], &["--mount", mount, "busybox", "sh", "-c", script]].concat())
}

fn tool(name: &str, arguments: &[&str], disk: &Path) -> (Option<i32>, String) {
    let path = std::env::var("PATH").unwrap_or_default() + ":/usr/sbin:/sbin";
    let ran = Command::new(name)
        .env("PATH", path)
        .args(arguments)
        .arg(disk)
        .output()
        .expect("e2fsprogs are installed");
    let text = String::from_utf8_lossy(&ran.stdout).into_owned() + &String::from_utf8_lossy(&ran.stderr);
    (ran.status.code(), text)
}

fn is_clean(disk: &Path) {
    let (code, text) = tool("e2fsck", &["-fn"], disk);
    assert_eq!(code, Some(0), "{text}");
}

#[test]
fn a_disk_keeps_files_and_linux_reads_them() {
    if is_skipped_without_micro("its file systems are another matter") {
        return;
    }
    let unilith = Unilith::new();
    let disk = unilith.path("files.img");
    let script = "set -e; grep -c '^/dev/vda /data ext4 rw' /proc/mounts; echo hello > /data/a; mkdir -p /data/b/c; \
                  ln /data/a /data/b/same; ln -s ../a /data/b/link; dd if=/dev/urandom of=/data/large bs=64k count=100 2>/dev/null; \
                  cp /data/large /data/b/c/copy; cmp /data/large /data/b/c/copy; rm /data/large; mv /data/b/c /data/moved; \
                  for i in $(seq 1 300); do echo $i > /data/b/$i; done; chmod 640 /data/a; stat -c '%a %h %s' /data/a";
    run(&unilith, &mount(&disk, ",size=64M"), script).ok().says("1\n640 2 6\n");
    is_clean(&disk);
    assert_eq!(tool("debugfs", &["-R", "cat /b/same"], &disk).1.lines().next(), Some("hello"));
    let script = "ls /data/b | wc -l; cat /data/b/link; cat /data/b/300; stat -c %s /data/moved/copy; \
                  echo x 2>/dev/null > /data/new || echo refused";
    run(&unilith, &mount(&disk, ",readonly"), script).ok().says("302\nhello\n300\n6553600\nrefused\n");
    is_clean(&disk);
}

#[test]
fn what_was_synced_survives_a_machine_that_is_killed() {
    if is_skipped_without_micro("its file systems are another matter") {
        return;
    }
    let unilith = Unilith::new();
    let disk = unilith.path("killed.img");
    let words = mount(&disk, ",size=64M");
    let script = "for i in $(seq 1 50); do echo $i > /data/$i; done; sync; echo synced; echo late > /data/late; sleep 100";
    let killed = ["run", "-d", "--name", "killed", "--mount", &words, "busybox", "sh", "-c", script];
    let machine = tested_machine();
    unilith.run(&[&killed[..2], &["--machine", &machine], &MORE_PARTS, &killed[2..]].concat()).ok();
    let end = Instant::now() + Duration::from_secs(60);
    while !unilith.run(&["logs", "killed"]).out.contains("synced") {
        assert!(Instant::now() < end, "it syncs");
        std::thread::sleep(Duration::from_millis(100));
    }
    // Two machines would each write what the other one does not know of.
    let refused = run(&unilith, &words, "true");
    refused.complains("another machine has it");
    unilith.run(&["kill", "killed"]).ok();
    unilith.run(&["rm", "-f", "killed"]).ok();
    run(&unilith, &words, "ls /data | grep -c '^[0-9]*$'; cat /data/50").ok().says("50\n50\n");
    is_clean(&disk);
}

#[test]
fn a_program_mounts_a_disk_itself() {
    if is_skipped_without_micro("its file systems are another matter") {
        return;
    }
    let unilith = Unilith::new();
    let disk = unilith.path("own.img");
    let script = "set -e; echo kept > /data/a; umount /data; grep -c /data /proc/mounts || test $? = 1; mkdir -p /elsewhere; \
                  mount -t ext4 -o ro /dev/vda /elsewhere; cat /elsewhere/a; touch /elsewhere/b 2>/dev/null || echo refused; \
                  umount /elsewhere; blockdev --getsize64 /dev/vda; \
                  dd if=/dev/vda bs=1 skip=1080 count=2 2>/dev/null | od -An -tx1; mount -t ext4 /dev/null /elsewhere || echo none";
    run(&unilith, &mount(&disk, ",size=16M"), script)
        .ok()
        .says("0\nkept\nrefused\n16777216\n")
        .says(" 53 ef\n")
        .says("none\n");
    is_clean(&disk);
}

#[test]
fn what_cannot_be_a_disk_is_refused_with_a_sentence() {
    let unilith = Unilith::new();
    let empty = unilith.path("empty.img");
    File::create(&empty)
        .and_then(|file| file.set_len(16 << 20))
        .expect("the scratch directory can be written");
    let missing = unilith.path("missing.img");
    let refused = run(&unilith, &mount(&missing, ""), "true");
    refused.complains("does not exist").complains("size=2G");
    if is_skipped_without_micro("it has no such mounts") {
        return;
    }
    run(&unilith, &mount(&empty, ""), "true").complains("cannot be mounted");
    let linux = unilith.run(&["run", "--kernel", "linux", "--mount", &mount(&empty, ""), "busybox", "true"]);
    linux.complains("--kernel micro");
}
