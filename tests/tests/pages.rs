// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Pages that a reader follows do what they say, run as they are printed.

use std::fs;
use unilith_tests::{Unilith, root, tested_kernel};

/// Runs what a page prints as commands, in a directory that has the command, the SDK and the examples; what they said.
fn follow(page: &str) -> String {
    let unilith = Unilith::new();
    for name in ["unilith", "overlay", "examples", "micro"] {
        std::os::unix::fs::symlink(root().join(name), unilith.path(name)).expect("a link");
    }
    let text = fs::read_to_string(root().join("docs").join(page)).expect("the page is there");
    let mut said = String::new();
    for line in unilith_tests::page::commands(&text) {
        // The first one may build a kernel and fetch packages.
        let ran = unilith_tests::finish(&mut unilith.shell(&line), unilith_tests::BUILD_KERNEL);
        assert!(ran.code == Some(0), "{line}: {ran}");
        said.push_str(&ran.out);
        // A terminal shows both: servers and strace write to standard error.
        said.push_str(&ran.err);
    }
    said
}

#[test]
fn the_page_about_postgresql_works_as_printed() {
    let said = follow("how-to/postgresql.md");
    for part in ["PostgreSQL 15", "INSERT 0 1", "kept", "ready to accept connections"] {
        assert!(said.contains(part), "{part}: {said}");
    }
}

#[test]
fn the_page_about_compose_works_as_printed() {
    if rustix::process::geteuid().is_root() {
        let said = follow("how-to/compose.md");
        assert!(said.contains("shop-cache-1") && said.contains("$5\r\nhello"), "{said}");
    } else {
        eprintln!("skipped: several services take root, as the page says");
    }
}

#[test]
fn the_page_about_networks_works_as_printed() {
    if rustix::process::geteuid().is_root() {
        let said = follow("how-to/networks.md");
        assert!(said.contains("store.shop") && said.contains("\"address\": \"1"), "{said}");
    } else {
        eprintln!("skipped: networks take root, as the page says");
    }
}

#[test]
fn the_page_about_one_image_works_as_printed() {
    let said = follow("how-to/link-with-the-kernel.md");
    // On Linux, with its kernel, and so with the other C library.
    assert_eq!(said.matches("one image\n").count(), 3, "{said}");
    assert!(said.contains("\ncaught\n"), "C++: {said}");
    assert!(said.contains("posix") && said.contains("in all"), "{said}");
    // What it prints behind that may come after the log was read.
    let is_redis = said.contains("Redis version=") && said.contains("Running mode=standalone");
    assert!(is_redis && said.contains("\n1\n"), "Redis and SQLite: {said}");
}

#[test]
fn the_page_about_choosing_parts_works_as_printed() {
    let said = follow("how-to/choose-parts.md");
    let total = |table: &str| {
        let row = table.lines().find(|line| line.ends_with("in all")).unwrap_or_else(|| panic!("{said}"));
        row.split_whitespace().next().and_then(|bytes| bytes.parse::<u64>().ok())
    };
    let (first, last) = said.split_once("tcpip::").unwrap_or_else(|| panic!("{said}"));
    assert!(total(last) < total(first), "the overlay has bytes: {said}");
    assert!(said.contains("FROM") && said.contains("REFERENCES"), "{said}");
}

#[test]
fn the_page_about_choosing_an_allocator_works_as_printed() {
    let said = follow("how-to/choose-allocator.md");
    assert!(said.contains("PONG"), "{said}");
    assert_eq!(
        said.matches("was written to beyond its end; found by free, called by 0x").count(),
        2,
        "{said}"
    );
    assert_eq!(said.matches("it ended with 134\n").count(), 2, "{said}");
}

#[test]
fn the_page_about_raw_devices_works_as_printed() {
    let said = follow("how-to/raw.md");
    assert!(said.contains("hello, wire\n") && said.contains("v one\n"), "{said}");
    assert!(said.contains("hello, Rust\n"), "{said}");
    assert!(said.contains("virtio") && said.contains("in all"), "{said}");
    assert!(said.contains("read and compared: 4096 blocks of 4096 bytes, random"), "{said}");
    assert!(said.contains("200 of 200 files compared\n") && said.contains("SHFS of no file: "), "{said}");
}

#[test]
fn the_page_about_disks_works_as_printed() {
    if tested_kernel() != "micro" {
        return;
    }
    let said = follow("how-to/boot-from-disk.md");
    // By UEFI and by BIOS.
    assert_eq!(said.matches("\nhello from a disk").count(), 2, "{said}");
    follow("how-to/clouds.md");
}

#[test]
fn pages_about_the_overlay_work_as_printed() {
    if tested_kernel() != "micro" {
        return;
    }
    for (page, parts) in [
        (
            "tutorial/look-inside.md",
            &["changed while it ran", "from my computer", "worker_connections", "program_own", "0.0.0.0:80"]
                [..],
        ),
        ("how-to/shell.md", &["out\n", "hello from /tmp\n", "[overlay]", "GNU bash"]),
        (
            "how-to/strace.md",
            &["execve(\"/usr/bin/cat\", ", "openat(AT_FDCWD, \"/etc/debian_version\"", "#1  0x", "$1 = 21"],
        ),
        ("how-to/read-logs.md", &["GET / HTTP/1.1", "GET /missing HTTP/1.1\" 404", "access.log"]),
        ("how-to/reconfigure.md", &["It works", "the new configuration"]),
        (
            "how-to/save-database.md",
            &["1|first entry\n2|second entry\n", "2 pages saved to /tmp/saved.db", "\n3\n"],
        ),
        ("how-to/trace.md", &["processCommand: 4002", "hello", "\n5\n", "epoll_wait", "net:receive"]),
        ("how-to/profile.md", &["%CPU", "_[k]", "aeMain", "\"function\":", "size_bytes"]),
    ] {
        let said = follow(page);
        for part in parts {
            assert!(said.contains(part), "{page}: expected `{part}` in {said}");
        }
    }
}

mod long {
    use super::*;

    #[test]
    #[ignore = "compiles a kernel to bitcode and optimises it anew for each program"]
    fn the_page_about_optimising_both_works_as_printed() {
        let said = follow("how-to/optimise-at-the-link.md");
        assert!(said.contains("one image\n") && said.contains("\n1\n") && said.contains("PONG"), "{said}");
    }
}
