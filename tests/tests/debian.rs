// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A Debian package that is in no catalogue, as a user would run it: configured as if it were installed, and started as
//! `systemctl start` would.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::io::{Read, Write};
use unilith_tests::{BUILD_KERNEL, Unilith, connect, finish};

#[test]
fn a_package_starts_what_its_unit_says_with_the_users_and_directories_of_its_scripts() {
    let unilith = Unilith::new();
    // Fetched first: that may take longer than a start.
    finish(&mut unilith.command(&["check", "debian:tinyproxy"]), BUILD_KERNEL).ok();
    let machine = unilith.start(&["-p", "127.0.0.1::8888", "debian:tinyproxy"]);
    let spec = unilith.inspect(&machine.id);
    let args: Vec<&str> = spec["args"].as_array().unwrap().iter().filter_map(|a| a.as_str()).collect();
    assert_eq!(
        args,
        ["/usr/bin/tinyproxy", "-d"],
        "the unit's ExecStart, and not the package's program alone"
    );

    // Its configuration of /etc/tinyproxy lets only 127.0.0.1 in, and its answer to us says so.
    let mut stream = connect(machine.at(8888));
    stream.write_all(b"GET http://127.0.0.1:1/ HTTP/1.0\r\nHost: x\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.0 403") && answer.contains("tinyproxy"), "{answer}");

    if spec["overlay"] == true {
        // tmpfiles.d's directory belongs to the user that postinst made.
        let passwd = unilith.run(&["exec", &machine.id, "cat", "/etc/passwd"]).ok().out;
        let user = passwd.lines().find(|l| l.starts_with("tinyproxy:")).expect("postinst made the user");
        let uid = user.split(':').nth(2).unwrap();
        let run = unilith.run(&["exec", &machine.id, "ls", "-l", "/run"]).ok().out;
        let line = run.lines().find(|l| l.ends_with(" tinyproxy")).expect("tmpfiles.d made the directory");
        assert!(line.split_whitespace().nth(1) == Some(uid), "owned by {uid}: {line}");
    }
}
