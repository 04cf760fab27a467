// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Files as cloud-init's documentation, Proxmox and cloud-localds write them.

use crate::{Files, words};
use std::{format, string::String, vec, vec::Vec};

const LINE: &str = "ip=dhcp hostname=old env.A=1 -- /bin/server --dns=x a%20b";

/// The line, and what was left out.
fn apply(files: Files<'_>, line: &str) -> (String, Vec<String>) {
    let mut out = vec![0; 4096];
    let mut said = Vec::new();
    let length = words(&files, line, &mut out, &mut |text| said.push(format!("{text}"))).unwrap();
    out.truncate(length);
    (String::from_utf8(out).unwrap(), said)
}

#[test]
fn proxmoxs_files_make_an_address_and_a_name() {
    let network = "version: 1\nconfig:\n    - type: physical\n      name: eth0\n      mac_address: 'bc:24:11:00:00:01'\n      subnets:\n      - type: static\n        address: '192.168.1.50'\n        netmask: '255.255.255.0'\n        gateway: '192.168.1.1'\n    - type: nameserver\n      address:\n      - '1.1.1.1'\n      - '9.9.9.9'\n      search:\n      - 'example.org'\n";
    let user = "#cloud-config\nhostname: web\nmanage_etc_hosts: true\nuser: root\nchpasswd:\n  expire: False\nusers:\n  - default\n";
    let files = Files { meta: "instance-id: 8f2e\n", network, user, serial: "ds=nocloud;h=other" };
    let (line, said) = apply(files, LINE);
    assert_eq!(
        line,
        "env.A=1 ip=192.168.1.50/24 gw=192.168.1.1 dns=1.1.1.1,9.9.9.9 hostname=web -- /bin/server --dns=x a%20b"
    );
    let keys: Vec<_> = said.iter().map(|text| text.split('`').nth(1).unwrap()).collect();
    assert_eq!(keys, ["manage_etc_hosts", "user", "chpasswd", "users"]);
}

#[test]
fn version_2_is_read_with_and_without_its_outer_key() {
    for network in [
        "network:\n  version: 2\n  ethernets:\n    id0:\n      match:\n        macaddress: 'aa:bb:cc:dd:ee:ff'\n      addresses: [10.0.0.9/16]\n      gateway4: 10.0.0.1\n      nameservers:\n        search: [a, b]\n        addresses: [10.0.0.2, 10.0.0.3]\n",
        "version: 2\nethernets:\n  eth0:\n    dhcp4: false\n    addresses:\n      - 10.0.0.9/16\n    routes:\n      - to: 0.0.0.0/0\n        via: 10.0.0.1\n    nameservers:\n      addresses:\n      - 10.0.0.2\n      - 10.0.0.3\n",
        "version: 2\nethernets:\n  eth0:\n    addresses: ['10.0.0.9/16']\n    routes:\n    - via: 10.0.0.1\n      to: default\n    nameservers: {}\n    nameservers:\n      addresses: [10.0.0.2, 10.0.0.3]",
    ] {
        let (line, said) = apply(Files { network, ..Default::default() }, "ip=dhcp dns=8.8.8.8 -- /x");
        assert_eq!(line, "ip=10.0.0.9/16 gw=10.0.0.1 dns=10.0.0.2,10.0.0.3 -- /x");
        assert!(said.is_empty(), "{said:?}");
    }
}

#[test]
fn dhcp_stays_what_it_was_and_a_name_comes_from_the_meta_data() {
    let files = Files {
        meta: "instance-id: i-1\nlocal-hostname: \"box.example\" # ours\n",
        network: "version: 2\nethernets:\n  any:\n    match: {}\n    dhcp4: true\n",
        ..Default::default()
    };
    let (line, said) = apply(files, LINE);
    assert_eq!(line, "ip=dhcp env.A=1 hostname=box.example -- /bin/server --dns=x a%20b");
    assert!(said.is_empty());
    assert_eq!(apply(Files::default(), LINE).0, LINE);
    assert_eq!(apply(Files { serial: "ds=nocloud;h=rack", ..files }, "-- /x").0, "hostname=rack -- /x");
    assert_eq!(apply(files, "-- /x").0, "hostname=box.example -- /x");
    assert_eq!(apply(files, "a=b --").0, "a=b hostname=box.example --");
}

#[test]
fn variables_of_the_environment_come_from_the_user_data() {
    let user = "#cloud-config\nunilith:\n  env:\n    GREETING: 'hello % world'\n    _x1: é\n    1X: no\n    A-B: no\n";
    let (line, said) = apply(Files { user, ..Default::default() }, "-- /x");
    assert_eq!(line, "env.GREETING=hello%20%25%20world env._x1=%c3%a9 -- /x");
    assert_eq!(said.len(), 1);
    let script = Files { user: "#!/bin/sh\necho", ..Default::default() };
    assert_eq!(
        apply(script, LINE),
        (LINE.into(), vec!["user-data is left out: it does not begin with #cloud-config".into()])
    );
}

#[test]
fn what_makes_no_sense_is_left_out_with_a_sentence() {
    for (network, says) in [
        (
            "version: 1\nconfig:\n- type: physical\n  subnets:\n  - type: static\n    address: 10.0.0.9\n",
            "it has no netmask",
        ),
        ("version: 2\nethernets:\n  a:\n    addresses: [10.0.0.9/33]\n", "33 is no mask"),
        (
            "version: 1\nconfig:\n- type: physical\n  subnets:\n  - type: static\n    address: 10.0.0.9\n    netmask: 255.0.255.0\n",
            "255.0.255.0 is no mask",
        ),
        ("version: 2\nethernets:\n  a:\n    addresses: ['fe80::1/64']\n", "fe80::1 is no address of IPv4"),
        ("version: 3\n", "version 3 is not known"),
        ("version: 1\nconfig:\n- type: bond\n  name: b\n", "bond is left out"),
        ("version: 1\nconfig:\n- name: b\n  type: physical\n", "without a type in front is left out"),
        ("version: 2\nwifis:\n  a: b\n", "wifis is left out"),
        ("version: 2\nethernets: {a: b}\n", "line 2: of YAML only"),
    ] {
        let (line, said) = apply(Files { network, ..Default::default() }, LINE);
        assert_eq!(line, LINE, "{network}");
        assert!(said.iter().any(|text| text.contains(says)), "{network}: {said:?}");
    }
    let two = "version: 2\nethernets:\n  a:\n    addresses: [10.0.0.9/8, 10.0.0.10/8]\n  b:\n    addresses: [10.1.0.9/8]\n    mtu: 9000\n";
    let (line, said) = apply(Files { network: two, ..Default::default() }, "-- /x");
    assert_eq!((line.as_str(), said.len()), ("ip=10.0.0.9/8 -- /x", 2), "{said:?}");
    let name = Files { meta: "local-hostname: a b", ..Default::default() };
    assert_eq!(apply(name, LINE), (LINE.into(), vec!["the host name is left out: it is no name".into()]));
}

#[test]
fn words_come_before_the_program_where_there_is_nothing_else() {
    let files = Files { meta: "local-hostname: web", ..Files::default() };
    for (line, told) in
        [("--", "hostname=web --"), ("-- /x", "hostname=web -- /x"), ("a --", "a hostname=web --")]
    {
        assert_eq!(apply(files, line), (told.into(), vec![]));
    }
}

#[test]
fn a_line_too_long_is_none_and_no_words_of_a_file_add_settings() {
    let files = Files {
        user: "#cloud-config\nhostname: 'a -- /bin/other'\nunilith:\n  env:\n    A: 'b vol=x:/ -- /bin/other'\n",
        ..Default::default()
    };
    let (line, _) = apply(files, LINE);
    assert_eq!(
        line,
        "ip=dhcp hostname=old env.A=1 env.A=b%20vol=x:/%20--%20/bin/other -- /bin/server --dns=x a%20b"
    );
    for length in 0..line.len() {
        assert_eq!(words(&files, LINE, &mut vec![0; length], &mut |_| {}), None);
    }
}

/// Lines of real files, cut, repeated and mixed.
#[test]
fn no_files_make_it_panic_or_write_something_else_than_words() {
    let lines = [
        "version: 1",
        "version: 2",
        "network:",
        "config:",
        "- type: physical",
        "  subnets:",
        "  - type: static",
        "    address: 10.0.0.9/8",
        "    netmask: 255.0.0.0",
        "ethernets:",
        "  a:",
        "    addresses: [10.0.0.9/8, x, ]",
        "    routes:",
        "    - to: default",
        "      via: 10.0.0.1",
        "#cloud-config",
        "hostname: x",
        "unilith:",
        "  env:",
        "    A: \u{1f600}",
        "- - -",
        "'': ''",
        "local-hostname: 'é'",
        "- type: nameserver",
        "  address: [1.1.1.1]",
    ];
    let mut seed = 3u32;
    for _ in 0..5_000 {
        let mut text = || {
            let mut all = String::new();
            for _ in 0..12 {
                seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                let line = lines[(seed >> 16) as usize % lines.len()];
                let cut = (seed >> 8) as usize % 64;
                all.push_str(if cut < 56 { line } else { line.get(cut % 8..).unwrap_or("") });
                all.push('\n');
            }
            all
        };
        let (meta, network, user) = (text(), text(), format!("#cloud-config\n{}", text()));
        let (line, _) = apply(Files { meta: &meta, network: &network, user: &user, serial: &meta }, LINE);
        let known =
            |word: &str| ["ip=", "gw=", "dns=", "hostname=", "env."].iter().any(|key| word.starts_with(key));
        let (settings, program) = line.split_once("-- ").unwrap();
        assert!(settings.split_ascii_whitespace().all(known), "{line}");
        assert_eq!(program, "/bin/server --dns=x a%20b");
    }
}
