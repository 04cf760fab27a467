// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a machine with Linux tells the host and gets from it.

use crate::machine::{Machine, QEMU_MICROVM, QEMU_Q35};
use api_boot::{Ipv4Prefix, Status, Volume};

#[test]
#[ignore = "builds Linux"]
fn the_exit_code_of_the_program_reaches_the_host() {
    for machine in [QEMU_MICROVM, QEMU_Q35] {
        let run = Machine::new(machine).shell("echo hello; exit 7");
        assert_eq!(run.console, "hello\n");
        assert!(matches!(run.statuses[0], Status::Started { kernel_ns } if kernel_ns > 0));
        assert_eq!(run.statuses[1..], [Status::Exit { code: 7 }]);
    }
}

#[test]
#[ignore = "builds Linux"]
fn the_signal_that_killed_the_program_reaches_the_host() {
    let run = Machine::new(QEMU_MICROVM).shell("kill -SEGV $$");
    assert_eq!(run.statuses.last(), Some(&Status::Signal { number: 11 }));
}

#[test]
#[ignore = "builds Linux"]
fn a_program_that_is_not_there_is_named() {
    let run = Machine::new(QEMU_MICROVM).configure(|c| c.args = vec!["/bin/nothing".into()]).boot();
    let reason = "/bin/nothing: No such file or directory (os error 2)".into();
    assert_eq!(run.statuses, [Status::Failed { reason }]);
}

#[test]
#[ignore = "builds Linux"]
fn a_program_that_eats_all_memory_is_reported_as_out_of_memory() {
    let run = Machine::new(QEMU_MICROVM).shell("x=xxxxxxxx; while :; do x=$x$x; done");
    assert!(matches!(run.statuses.last(), Some(Status::OutOfMemory { given }) if *given > 64 << 20));
}

#[test]
#[ignore = "builds Linux"]
fn environment_user_and_folder_are_those_of_the_configuration() {
    let run = Machine::new(QEMU_MICROVM)
        .configure(|c| {
            c.env = vec![("A_B".into(), "1 %\n2".into()), ("PATH".into(), "/bin".into())];
            (c.uid, c.gid) = (33, 34);
            c.cwd = Some("/tmp".into());
            c.hostname = Some("somewhere".into());
            c.epoch_ns = Some(2_000_000_000_000_000_000);
        })
        .shell("env | grep -A1 '^A_B'; id -u; id -g; pwd; hostname; echo $PATH; date -u +%Y; ls /.unilith 2>&1; touch /tmp/x");
    let expected =
        "A_B=1 %\n2\n33\n34\n/tmp\nsomewhere\n/bin\n2033\nls: /.unilith: No such file or directory\n";
    assert_eq!(run.console, expected);
    assert_eq!(run.statuses.last(), Some(&Status::Exit { code: 0 }));
}

#[test]
#[ignore = "builds Linux"]
fn standard_streams_are_a_terminal_only_when_asked() {
    let kinds = [
        (false, false, "plain\npipe\n"),
        (false, true, "plain\n/dev/null\n"),
        (true, false, "terminal\r\n/dev/pts/0\r\n"),
    ];
    for (tty, null_input, expected) in kinds {
        let run = Machine::new(QEMU_MICROVM).configure(|c| (c.tty, c.null_input) = (tty, null_input)).shell(
            "if test -t 0 -a -t 1 -a -t 2; then echo terminal; else echo plain; fi; readlink /proc/self/fd/0 | cut -d : -f 1",
        );
        assert_eq!(run.console, expected);
    }
}

#[test]
#[ignore = "builds Linux"]
fn forty_settings_and_forty_arguments_pass() {
    let run = Machine::new(QEMU_MICROVM)
        .configure(|c| {
            c.env = (0..40).map(|n| (format!("V{n}"), "x".repeat(200))).collect();
            c.args = ["/bin/sh", "-c", "echo $# ${#V39}"].map(String::from).to_vec();
            c.args.extend((0..=40).map(|n| n.to_string()));
        })
        .boot();
    assert_eq!(run.console, "40 200\n");
}

#[test]
#[ignore = "builds Linux"]
fn a_server_is_reported_and_reached_over_the_network() {
    let run = Machine::new(QEMU_MICROVM)
        .configure(|c| {
            c.ip = Some(Ipv4Prefix { address: [10, 0, 2, 15], length: 24 });
            c.gateway = Some([10, 0, 2, 2]);
            c.dns = vec![[10, 0, 2, 3]];
        })
        .with_network(|port| {
            use std::io::Read;
            let mut text = String::new();
            std::net::TcpStream::connect(("127.0.0.1", port))?.read_to_string(&mut text)?;
            Ok(text)
        })
        .shell("cat /etc/resolv.conf; ip route | head -1; echo over tcp | nc -l -p 80");
    assert!(run.console.starts_with("nameserver 10.0.2.3\ndefault via 10.0.2.2 dev eth0"), "{}", run.console);
    assert!(run.statuses.contains(&Status::Listening { udp: false, port: 80 }), "{:?}", run.statuses);
    assert_eq!(run.from_network.as_deref(), Some("over tcp\n"));
}

#[test]
#[ignore = "builds Linux"]
fn volumes_are_mounted_read_only_when_asked() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("in"), "from the host").unwrap();
    for read_only in [false, true] {
        let run = Machine::new(QEMU_Q35)
            .configure(|c| {
                c.volumes =
                    vec![Volume { tag: "v0".into(), path: "/data/dir".into(), read_only, file: false }]
            })
            .with_volume("v0", folder.path())
            .shell("cat /data/dir/in; echo from the machine > /data/dir/out");
        assert!(run.console.starts_with("from the host"), "{}", run.console);
        let out = folder.path().join("out");
        assert_eq!(std::fs::read_to_string(&out).ok(), (!read_only).then(|| "from the machine\n".into()));
        if !read_only {
            std::fs::remove_file(out).unwrap();
        }
    }
}
