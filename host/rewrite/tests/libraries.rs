// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The scanner on the files of the machine the tests run on.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::{fs, path::Path};
use unilith_rewrite::{Object, Scan, needs, scan};

/// The first of these files that is there.
fn scan_first(paths: &[&str]) -> Option<(Vec<u8>, Scan)> {
    let path = paths.iter().find(|p| Path::new(p).exists())?;
    let bytes = fs::read(path).unwrap();
    let scan = scan(&bytes).unwrap();
    Some((bytes, scan))
}

#[test]
fn nearly_every_call_of_libc_and_its_linker_is_a_site() {
    let libc = ["/lib/x86_64-linux-gnu/libc.so.6", "/lib64/libc.so.6", "/usr/lib/libc.so.6"];
    let linker = ["/lib64/ld-linux-x86-64.so.2"];
    for (paths, least) in [(&libc[..], 300), (&linker[..], 20)] {
        let Some((bytes, scan)) = scan_first(paths) else {
            eprintln!("skipped: no glibc on this machine at {paths:?}");
            continue;
        };
        assert!(scan.sites.len() >= least, "{} sites", scan.sites.len());
        // rt_sigreturn is left alone on purpose.
        let missed = scan.missed.iter().filter(|m| m.number != Some(15)).count();
        assert!(missed * 50 <= scan.sites.len(), "{:?}", scan.missed);
        for site in &scan.sites {
            let at = site.offset as usize + site.before as usize;
            assert_eq!(bytes[at..at + 2], [0x0f, 0x05]);
            // mov $15, %rax: the return from a signal handler, which unwinders recognise by its bytes.
            assert_ne!(bytes[at - 7..at], [0x48, 0xc7, 0xc0, 0x0f, 0, 0, 0]);
        }
    }
}

#[test]
fn data_in_the_text_of_libcrypto_is_not_touched() {
    let Some((_, scan)) = scan_first(&["/usr/lib/x86_64-linux-gnu/libcrypto.so.3"]) else {
        eprintln!("skipped: no libcrypto.so.3 on this machine; install libssl3");
        return;
    };
    // OpenSSL makes its calls through libc.
    assert!(scan.sites.is_empty() && scan.not_code > 0, "{:?}", scan.sites);
}

#[test]
fn a_program_needs_the_calls_it_makes_and_not_all_that_libc_has() {
    let program = "/usr/bin/env";
    let libraries = ["/lib/x86_64-linux-gnu/libc.so.6", "/lib64/ld-linux-x86-64.so.2"];
    if ![program].iter().chain(&libraries).all(|p| Path::new(p).exists()) {
        eprintln!("skipped: not a Debian-like machine with {program}");
        return;
    }
    let files: Vec<Vec<u8>> = [program].iter().chain(&libraries).map(|p| fs::read(p).unwrap()).collect();
    let objects: Vec<Object> = files.iter().map(|bytes| Object { name: "x".into(), bytes }).collect();
    let found = needs(&objects).unwrap();
    // write, mmap, execve, exit_group: env prints, loads libraries, starts programs, ends.
    for number in [1, 9, 59, 231] {
        assert!(found.calls.contains_key(&number), "{number} in {:?}", found.calls.keys());
    }
    // init_module, swapon, reboot: libc has them, env does not call them.
    for number in [175, 167, 169] {
        assert!(!found.calls.contains_key(&number), "{number}: {:?}", found.calls[&number]);
    }
}
