// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A Debian package that is in no catalogue, as a user would run it: configured as if it were installed, and started as
//! `systemctl start` would.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::io::{Read, Write};
use unilith_tests::{
    BUILD_KERNEL, MORE_PARTS, Unilith, connect, eventually, finish, is_skipped_without_micro, tested_machine,
};

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

#[test]
fn a_server_that_listens_on_loopback_as_installed_is_reached_by_its_published_port() {
    let unilith = Unilith::new();
    finish(&mut unilith.command(&["check", "debian:memcached"]), BUILD_KERNEL).ok();
    let machine = unilith.start(&["-p", "127.0.0.1::11211", "debian:memcached"]);
    let version = || {
        let mut stream = connect(machine.published(11211));
        let mut answer = String::new();
        stream
            .write_all(b"version\r\nquit\r\n")
            .and_then(|()| stream.read_to_string(&mut answer))
            .map(|_| answer)
    };
    // `run -d` does not wait for a slow start without end, and the port's other side is there before the server.
    eventually("memcached answers", || version().is_ok_and(|answer| answer.starts_with("VERSION 1.")));
    // It is one that serves: `run -d` waits for nothing else.
    let listening = || unilith.inspect(&machine.id)["state"]["listening"].to_string();
    eventually("it is known to serve", || listening().contains("11211"));
}

#[test]
fn a_unit_that_goes_to_the_background_is_started_in_the_foreground() {
    let unilith = Unilith::new();
    finish(&mut unilith.command(&["check", "debian:dnsmasq"]), BUILD_KERNEL).ok();
    let machine = unilith.start(&["-p", "127.0.0.1::53", "debian:dnsmasq"]);
    let mut stream = connect(machine.at(53));
    // version.bind, class CHAOS, by TCP: its length first.
    stream.write_all(b"\x00\x1e\x12\x34\0\0\0\x01\0\0\0\0\0\0\x07version\x04bind\0\0\x10\0\x03").unwrap();
    let mut answer = [0; 4];
    stream.read_exact(&mut answer).unwrap();
    assert_eq!(answer[2..], [0x12, 0x34]);
}

#[test]
fn programs_of_packages_have_made_their_indexes_when_the_image_is_there() {
    let unilith = Unilith::new();
    // Its dictionaries are compiled by its postinst, from word lists that alone no program reads.
    let words = ["-i", "debian:aspell,aspell-en", "-a"];
    unilith.fetch("debian:aspell,aspell-en");
    std::fs::write(unilith.path("input"), "hello wrold\n").unwrap();
    let mut command = unilith.program_command(&words);
    command.stdin(std::fs::File::open(unilith.path("input")).unwrap());
    let ran = finish(&mut command, BUILD_KERNEL).ok();
    assert!(
        ran.out.lines().any(|l| l == "*") && ran.out.contains("& wrold") && ran.out.contains("world"),
        "{ran}"
    );
    assert!(!ran.err.contains("failed"), "{ran}");
}

#[test]
fn sudo_gives_a_user_the_rights_that_its_file_says_through_pam() {
    let unilith = Unilith::new();
    finish(&mut unilith.command(&["check", "debian:sudo"]), BUILD_KERNEL).ok();
    let inner =
        "sudo -n id -un; sudo -n -u games id -un; setpriv --no-new-privs sudo -n id -u || echo refused";
    let script = format!(
        "echo 'nobody ALL=(ALL) NOPASSWD: ALL' >> /etc/sudoers; \
         exec setpriv --reuid nobody --regid nogroup --clear-groups sh -c '{inner}'"
    );
    let words = ["--base", "full", "--entrypoint", "/bin/sh", "debian:sudo", "--", "-c", &script];
    let ran = unilith.program_within(&words, BUILD_KERNEL).ok();
    assert_eq!(ran.out, "root\ngames\nrefused\n");
    ran.complains("no new privileges");
}

#[test]
fn bubblewrap_unshare_and_nsenter_put_programs_into_namespaces() {
    let unilith = Unilith::new();
    let nobody = "setpriv --reuid 65534 --regid 65534 --clear-groups";
    let script = format!(
        "{nobody} unshare -Urpf --mount-proc sh -c 'id -u; echo $$; test -d /proc/1 && test ! -d /proc/300 && echo alone; \
         kill -9 1; cat /proc/self/uid_map'; \
         {nobody} bwrap --ro-bind / / --proc /proc --dev /dev --unshare-all --die-with-parent sh -c \
         'id -u; grep -c : /proc/net/dev; grep NSpid /proc/1/status; touch /etc/x'; \
         unshare --ipc sh -c 'ipcmk -Q >/dev/null && ipcs -q | grep -c 0x'; ipcs -q | grep -c 0x; \
         unshare -n sh -c 'a=$(readlink /proc/self/ns/net); b=$(nsenter -t 1 -a readlink /proc/self/ns/net); \
         test $a != $b && test $b = $(readlink /proc/1/ns/net) && echo entered'"
    );
    let words = ["--base", "full", "--entrypoint", "/bin/sh", "debian:bubblewrap,mount"];
    let ran = unilith.program_within(&[&words[..], &["--", "-c", &script]].concat(), BUILD_KERNEL).ok();
    let says = "0\n1\nalone\n         0      65534          1\n65534\n1\nNSpid:\t1\n1\n0\nentered\n";
    assert_eq!(ran.out, says);
    ran.complains("cannot touch '/etc/x': Read-only file system");
}

#[test]
fn bubblewrap_unshare_and_mount_show_a_program_another_tree() {
    let unilith = Unilith::new();
    let script = "bwrap --ro-bind / / --dev /dev --proc /proc --tmpfs /tmp sh -c \
                  'touch /etc/x || touch /tmp/x && ls /tmp; ls -d /dev/null; test -d /proc/self && echo proc'; ls /tmp; \
                  unshare -m -u sh -c 'mount -t tmpfs -o mode=700 x /mnt; findmnt -n -o FSTYPE,SOURCE /mnt; mount --bind /etc /srv; \
                  test /srv/passwd -ef /etc/passwd && echo bound; umount /srv; hostname inner; uname -n'; \
                  findmnt -n /mnt || echo gone; uname -n";
    let words =
        ["--hostname", "outer", "--base", "full", "--entrypoint", "/bin/sh", "debian:bubblewrap,mount"];
    let ran = unilith.program_within(&[&words[..], &["--", "-c", script]].concat(), BUILD_KERNEL).ok();
    assert_eq!(ran.out, "x\n/dev/null\nproc\ntmpfs  x\nbound\ninner\ngone\nouter\n");
    ran.complains("cannot touch '/etc/x': Read-only file system");
}

/// A capture file (`pcap-savefile(5)`): the frames of a link of Ethernet.
fn frames(pcap: &[u8]) -> Vec<&[u8]> {
    let word = |at: usize| u32::from_le_bytes(pcap[at..at + 4].try_into().unwrap());
    assert_eq!((word(0), word(20)), (0xa1b2_c3d4, 1), "magic number and DLT_EN10MB");
    let (mut at, mut frames) = (24, Vec::new());
    while at < pcap.len() {
        let length = word(at + 8) as usize;
        frames.push(&pcap[at + 16..at + 16 + length]);
        at += 16 + length;
    }
    frames
}

#[test]
fn tcpdump_captures_what_the_machine_says_to_this_host_and_hears() {
    let unilith = Unilith::new();
    if unilith.is_skipped_without(&["tap devices"]) {
        return;
    }
    unilith.fetch("debian:tcpdump,netcat-openbsd,iputils-arping");
    let server = std::net::TcpListener::bind("0.0.0.0:0").unwrap();
    let port = server.local_addr().unwrap().port();
    let answers = std::thread::spawn(move || {
        let (mut stream, _) = server.accept().unwrap();
        let mut said = String::new();
        stream.read_to_string(&mut said).unwrap();
        stream.write_all(b"heard from the host").unwrap();
        said
    });
    // The first one says when it listens; the second reads what the first has written.
    let script = format!(
        "tcpdump -i eth0 -U -w /tmp/eth0.pcap 'tcp port {port} or arp' 2>/tmp/said & \
         until grep -q 'listening on eth0' /tmp/said; do sleep 0.1; done; \
         echo said by the machine | nc -N host {port}; echo; arping -c 2 -I eth0 host; \
         until test $(tcpdump -r /tmp/eth0.pcap -nn arp 2>/dev/null | grep -c Reply) -ge 2; do sleep 0.1; done; \
         kill -INT %1; wait %1; cat /tmp/said; tcpdump -r /tmp/eth0.pcap -nn -A 'tcp port {port}'; cp /tmp/eth0.pcap /data/"
    );
    let data = format!("{}:/data", unilith.path("").display());
    let words =
        ["--add-host", "host:host-gateway", "-v", &data, "--base", "full", "--entrypoint", "/bin/bash"];
    let packages = ["debian:tcpdump,netcat-openbsd,iputils-arping", "--", "-c", &script];
    let ran = unilith.program_within(&[&words[..], &packages].concat(), BUILD_KERNEL).ok();
    assert_eq!(answers.join().unwrap(), "said by the machine\n");
    let said = ["heard from the host", "Received 2 response(s)", "Flags [S]", "Flags [F.]"];
    assert!(said.iter().all(|text| ran.out.contains(text)), "{ran}");
    assert!(ran.out.contains("0 packets dropped by kernel"), "{ran}");
    let pcap = std::fs::read(unilith.path("eth0.pcap")).unwrap();
    let frames = frames(&pcap);
    let has = |text: &[u8]| frames.iter().filter(|f| f.windows(text.len()).any(|w| w == text)).count();
    assert_eq!((has(b"said by the machine"), has(b"heard from the host")), (1, 1), "{ran}");
    // Both ways: requests of the machine's to all, and answers to it.
    let arps: Vec<_> = frames.iter().filter(|f| f[12..14] == [8, 6]).collect();
    assert!(arps.iter().filter(|f| f[..6] == [0xff; 6] && f[21] == 1).count() >= 1, "{ran}");
    assert!(arps.iter().filter(|f| f[21] == 2 && f[..6] != [0xff; 6]).count() >= 2, "{ran}");
}

#[test]
fn networks_of_one_machine_are_named_and_joined_by_iproute2() {
    if is_skipped_without_micro("what its small configuration has of networks is another matter") {
        return;
    }
    let unilith = Unilith::new();
    let package = "debian:iproute2,iputils-ping";
    let script = "set -e; ip netns add blue; ip netns add red; ip netns list; \
                  ip link add v0 netns blue type veth peer name v1 netns red; \
                  ip netns exec blue ip addr add 10.9.0.1/24 dev v0; ip netns exec red ip addr add 10.9.0.2/24 dev v1; \
                  ip netns exec blue ip link set v0 up; ip netns exec red ip link set v1 up; \
                  ip netns exec blue ping -q -c 2 -i 0.2 10.9.0.2 | grep received; ip -n red route; \
                  ip netns delete blue; ip netns list";
    let machine = tested_machine();
    let words = [
        &["run", "--rm", "--machine", &machine, "--network", "none"][..],
        &MORE_PARTS,
        &["--entrypoint", "sh", package, "--", "-c", script],
    ];
    let ran = finish(&mut unilith.command(&words.concat()), BUILD_KERNEL);
    ran.ok()
        .says("blue\nred\n2 packets transmitted, 2 received")
        .says("10.9.0.0/24 dev v1 proto kernel scope link src 10.9.0.2 \nred\n");
}
