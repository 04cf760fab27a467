// SPDX-License-Identifier: Apache-2.0 OR MIT

use super::*;
use alloc::vec::Vec;

fn full() -> BootConfig {
    BootConfig {
        ip: Some(Ipv4Prefix { address: [10, 0, 2, 15], length: 24 }),
        dhcp: true,
        gateway: Some([10, 0, 2, 2]),
        further: alloc::vec![
            Further {
                name: "eth1".into(),
                ip: Ipv4Prefix { address: [172, 19, 0, 2], length: 16 },
                gateway: None
            },
            Further {
                name: "eth2".into(),
                ip: Ipv4Prefix { address: [172, 20, 0, 2], length: 24 },
                gateway: Some([172, 20, 0, 1]),
            },
        ],
        ipv6: Ipv6 {
            addresses: alloc::vec![("fd00::2".parse().unwrap(), 64)],
            is_automatic: true,
            gateway: Some("fe80::1".parse().unwrap()),
            dns: alloc::vec!["fd00::53".parse().unwrap()],
        },
        dns: alloc::vec![[10, 0, 2, 3], [1, 1, 1, 1]],
        published: alloc::vec![80, 443],
        hostname: Some("red is".into()),
        metadata: Some("ec2".into()),
        env: alloc::vec![("A".into(), "b c=%\n".into()), ("Ä".into(), "".into())],
        cwd: Some("/data dir".into()),
        uid: 33,
        gid: 34,
        umask: Some(0o27),
        limits: alloc::vec![
            Rlimit { resource: 7, soft: 4096, hard: Some(8192) },
            Rlimit { resource: 8, soft: u64::MAX, hard: None },
        ],
        groups: alloc::vec![35, 0],
        volumes: alloc::vec![Volume { tag: "v0".into(), path: "/da:ta".into(), read_only: true, file: true }],
        disks: alloc::vec![Disk { index: 1, path: "/da:ta".into(), read_only: true }],
        tmpfs: alloc::vec![Tmpfs {
            path: "/a:b".into(),
            size: 1 << 20,
            inodes: 77,
            mode: 0o1777,
            exec: true,
        }],
        read_only: true,
        hosts: alloc::vec!["10.0.0.1\tdb db.local".into()],
        epoch_ns: Some(1 << 60),
        tz: Some("UTC".into()),
        log: Some("debug".into()),
        trace: true,
        stop_signal: Some(3),
        cpus: Some(4),
        tty: true,
        null_input: true,
        own_error: true,
        capabilities: Some(CapabilitySets {
            bounding: 0x1ff,
            permitted: 3,
            effective: 2,
            inheritable: 1,
            ambient: 0,
        }),
        no_new_privileges: true,
        group: Some(ControlGroup {
            memory: 64 << 20,
            pids: u64::MAX,
            cpu: (50_000, 100_000),
            files: Some(true),
        }),
        ids: Some(Ids {
            users: alloc::vec![(0, 100_000, 1000), (1000, 7, 1)],
            groups: alloc::vec![(0, 200_000, 65_536)],
        }),
        confinement: Confinement {
            filter: alloc::vec![0x0000_0004_0000_0020, u64::MAX, 6],
            settings: alloc::vec![("net.ipv4.ping_group_range".into(), "0 2147483647".into())],
            masked: alloc::vec!["/proc/kcore".into(), "/sys/a b".into()],
            read_only: alloc::vec!["/proc/sys".into()],
        },
        hooks: alloc::vec![
            Hook {
                path: "/bin/a b".into(),
                arguments: alloc::vec!["b".into(), "".into()],
                environment: alloc::vec!["A=b=c".into()],
                timeout: 60,
            },
            Hook { path: "/b".into(), ..Hook::default() },
        ],
        hook_input: "{\"id\": \"x\"}".into(),
        status_on_console: true,
        more: Some((4096, 300)),
        settings: Some(300),
        seed: Some(core::array::from_fn(|n| 7 * n as u8)),
        args: alloc::vec!["/bin/x".into(), "".into(), "--".into(), "a b".into(), "%".into()],
        unknown: Vec::new(),
    }
}

#[test]
fn every_setting_survives_the_round_trip() {
    assert_eq!(BootConfig::decode(&full().encode()), Ok(full()));
    assert_eq!(
        BootConfig::decode(&BootConfig::default().encode()),
        Ok(BootConfig { args: Vec::new(), ..Default::default() })
    );
}

#[test]
fn bad_values_are_named() {
    for line in [
        "ip=1.2.3.4 --",
        "ip=1.2.3/8 --",
        "gw=x --",
        "uid=-1 --",
        "groups=1,x --",
        "stop=65 --",
        "published=x --",
        "more=1 --",
        "settings=1:2 --",
        "seed=01 --",
        "caps=1:2:3:4 --",
        "caps=1:2:3:4:5:6 --",
        "caps=1:2:3:4:g --",
        "rlimit=7:1:x --",
        "rlimit=16:1 --",
        "rlimit=7 --",
        "vol=x --",
        "cwd=%zz --",
        "umask=8 --",
        "umask=1777 --",
        "hook=1 --",
        "hook=x%00/a%000 --",
        "hook=1%00a%000 --",
        "hook=1%00/a%002%00one --",
    ] {
        let word = line.split(' ').next().unwrap();
        assert_eq!(BootConfig::decode(line).unwrap_err().word, word);
    }
}

#[test]
fn unknown_settings_are_kept_for_a_warning() {
    assert_eq!(BootConfig::decode("quiet x=1 -- /a").unwrap().unknown, ["quiet", "x=1"]);
}

#[test]
fn status_lines_survive_the_round_trip() {
    for status in [
        Status::Started { kernel_ns: 5 },
        Status::Listening { udp: true, port: 53 },
        Status::Input { by_port: true },
        Status::Input { by_port: false },
        Status::Missing { number: 425 },
        Status::Exit { code: 255 },
        Status::Signal { number: 11 },
        Status::OutOfMemory { given: 1 << 24 },
        Status::Trapped { count: 12 },
        Status::Mapped { address: 0x7f00_0000_1000, offset: 0x1000, path: "/lib/a b.so".into() },
        Status::Log { text: "[    0.1] warning: x".into() },
        Status::Failed { reason: "no such file: /x y".into() },
    ] {
        assert_eq!(Status::parse(&format!("{status}")), Some(status));
    }
    assert_eq!(Status::parse("hello"), None);
}
