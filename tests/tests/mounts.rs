// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a program finds beside its image: files and file systems in memory, a root it may not write, names of its own.

use std::{fs, os::unix::fs::PermissionsExt};
use unilith_tests::{Ran, Unilith, compile, is_skipped_without_micro, tested_machine};

fn run(unilith: &Unilith, flags: &[&str], script: &str) -> Ran {
    unilith.program(&[flags, &["busybox", "sh", "-c", script]].concat())
}

#[test]
fn a_file_of_the_host_is_a_file_of_the_machine() {
    let unilith = Unilith::new();
    let (settings, secret) = (unilith.path("a settings"), unilith.path("secret"));
    fs::write(&settings, "colour=red\n").unwrap();
    fs::write(&secret, "told nobody\n").unwrap();
    let volume = format!("{}:/etc/app/settings", settings.display());
    let script =
        "cat /etc/app/settings; ls /etc/app; echo size=9 >> /etc/app/settings; cat /etc/app/settings";
    run(&unilith, &["-v", &volume], script).ok().says("colour=red\nsettings\ncolour=red\nsize=9\n");
    assert_eq!(fs::read_to_string(&settings).unwrap(), "colour=red\nsize=9\n", "it is the host's file");

    // In place of one that the image has, and as words.
    let mount = format!("type=bind,source={},target=/etc/passwd,readonly", settings.display());
    let script = "head -n 1 /etc/passwd; echo x 2>/dev/null >> /etc/passwd || echo refused; \
                  rm /etc/passwd 2>/dev/null || echo busy";
    run(&unilith, &["--mount", &mount], script).ok().says("colour=red\nrefused\nbusy\n");
    assert_eq!(fs::read_to_string(&settings).unwrap(), "colour=red\nsize=9\n");
}

#[test]
fn what_the_host_changes_in_a_volume_is_seen_at_once() {
    let unilith = Unilith::new();
    let data = unilith.path("data");
    fs::create_dir_all(data.join("below")).unwrap();
    let volume = format!("{}:/data", data.display());
    let machine = unilith.start(&["-v", &volume, "busybox", "sleep", "1000000"]);
    let show =
        "cat /data/below/file 2>/dev/null; ls /data/below; readlink /data/link; stat -c '%a %s' /data/below";
    let seen = || unilith.run(&["exec", &machine.id, "busybox", "sh", "-c", show]).ok().out;
    let file = data.join("below/file");
    for round in 0..5 {
        fs::write(&file, format!("round {round}\n")).unwrap();
        let links = data.join("new link");
        std::os::unix::fs::symlink(format!("to-{round}"), &links).unwrap();
        fs::rename(links, data.join("link")).unwrap();
        fs::set_permissions(data.join("below"), fs::Permissions::from_mode(0o750 + round)).unwrap();
        let says = seen();
        assert!(says.starts_with(&format!("round {round}\nfile\nto-{round}\n75{round} ")), "{says}");
        fs::write(data.join("below/other"), "").unwrap();
        assert!(seen().contains("file\nother\n"));
        fs::remove_file(data.join("below/other")).unwrap();
        fs::rename(&file, data.join("below/renamed")).unwrap();
        let says = seen();
        assert!(says.starts_with("renamed\n"), "{says}");
        fs::remove_file(data.join("below/renamed")).unwrap();
    }
}

/// More than a process machine is given by its server, which reads and writes the others for it.
#[test]
fn many_files_of_a_volume_are_open_at_a_time() {
    let unilith = Unilith::new();
    let data = unilith.path("data");
    fs::create_dir(&data).unwrap();
    let program = compile(&unilith, &["cc", "-O2"], "many_open.c", &[]);
    let volume = format!("{}:/data", data.display());
    unilith.program(&["-m", "512M", "-v", &volume, &program, "/data"]).ok().says("all of them\n");
    // As the program left them.
    let wanted = |number: usize, length: usize| -> Vec<u8> {
        (0..length).map(|i| (number * 31 + i * 7 + i / 4096) as u8).collect()
    };
    assert!(fs::read(data.join("file11")).unwrap() == wanted(11, 21));
    assert!(fs::read(data.join("file50")).unwrap() == wanted(50, 300_050));
    assert!(fs::read(data.join("file8")).unwrap() == [wanted(8, 18), b"end".to_vec()].concat());
    assert_eq!(fs::metadata(data.join("file100")).unwrap().len(), 9000);
    assert!(!data.join("file9").exists());
}

/// What a program removes is gone on the host, with its bytes, however long the machine goes on.
#[test]
fn the_host_gets_the_room_of_files_that_are_removed_at_once() {
    let unilith = Unilith::new();
    let data = unilith.path("data");
    fs::create_dir(&data).unwrap();
    let volume = format!("{}:/data", data.display());
    let machine = unilith.start(&["-v", &volume, "busybox", "sleep", "1000000"]);
    let in_use = || -> Vec<String> {
        let of = |folder: std::path::PathBuf| fs::read_dir(folder).into_iter().flatten().flatten();
        let descriptors = of("/proc".into()).flat_map(|process| of(process.path().join("fd")));
        let files = descriptors.filter_map(|fd| fs::read_link(fd.path()).ok());
        let files = files.filter(|file| file.starts_with(&data) && *file != data);
        files.map(|file| file.display().to_string()).collect()
    };
    for script in [
        "echo written > /data/new; rm /data/new",
        "echo written > /data/new; cat /data/new > /data/copy; mv /data/copy /data/new; rm /data/new",
        "echo written > /data/new; { rm /data/new; cat; } < /data/new",
    ] {
        unilith.run(&["exec", &machine.id, "busybox", "sh", "-c", script]).ok();
        assert_eq!(in_use(), [""; 0], "{script}");
    }
    // One that is written is closed when the program closes it.
    unilith.run(&["exec", &machine.id, "busybox", "sh", "-c", "echo written > /data/new"]).ok();
    let open = in_use().into_iter().filter(|file| file.ends_with("new")).count();
    assert!(open <= 1, "a handle that stands for its name, and nothing that writes");
}

#[test]
fn a_network_card_has_the_address_that_was_asked_for() {
    if is_skipped_without_micro("Linux' small configuration is asked in another way") {
        return;
    }
    let unilith = Unilith::new();
    let mac = "02:42:ac:11:00:0a";
    run(&unilith, &["--mac-address", mac], "cat /sys/class/net/eth0/address").ok().says(mac);
    let refused = unilith.program(&["--mac-address", "01:42:ac:11:00:0a", "busybox", "true"]);
    refused.code(2).complains("it means a group of cards");
}

#[test]
fn a_root_that_is_read_only_leaves_volumes_and_what_is_in_memory() {
    let unilith = Unilith::new();
    let data = unilith.path("data");
    fs::create_dir(&data).unwrap();
    let volume = format!("{}:/data", data.display());
    let script = "for d in / /etc /tmp /data /cache /dev/shm; do \
                  if echo x 2>/dev/null > $d/new; then echo $d yes; else echo $d no; fi; done; \
                  cat /etc/hostname; grep -c 'tmpfs /cache tmpfs' /proc/mounts";
    let flags = ["--read-only", "--tmpfs", "/cache", "-v", &volume, "--hostname", "sealed"];
    let says = "/ no\n/etc no\n/tmp no\n/data yes\n/cache yes\n/dev/shm yes\nsealed\n1\n";
    run(&unilith, &flags, script).ok().says(says);
    assert_eq!(fs::read_to_string(data.join("new")).unwrap(), "x\n");
}

#[test]
fn a_file_system_in_memory_has_the_size_and_mode_that_were_asked_for() {
    let unilith = Unilith::new();
    let script = "stat -c '%a %A' /small /other; cp /usr/bin/busybox /small; /small/busybox true 2>/dev/null || echo noexec; \
                  cp /usr/bin/busybox /other; /other/busybox echo runs; \
                  dd if=/dev/zero of=/other/fill bs=64k count=100 2>/dev/null || echo full";
    let flags = ["--tmpfs", "/small:mode=700", "--tmpfs", "/other:size=4m,exec"];
    let said = run(&unilith, &flags, script).ok();
    said.says("700 drwx------\n1777 drwxrwxrwt\n").says("noexec\nruns\nfull\n");
    let mount = "type=tmpfs,target=/run/it,tmpfs-size=1m";
    run(&unilith, &["--mount", mount], "df -k /run/it | tail -n 1").ok().says("1024").says("/run/it");
}

#[test]
fn names_and_servers_of_the_users_choice_are_the_programs() {
    let unilith = Unilith::new();
    let flags = ["--add-host", "db.example:10.9.8.7", "--add-host", "me:host-gateway"];
    let script = "cat /etc/hosts; ip route | sed -n 's/^default via \\([0-9.]*\\).*/gateway \\1/p'";
    let said = run(&unilith, &flags, script).ok().says("10.9.8.7\tdb.example\n").says("localhost");
    let gateway = said.out.lines().find_map(|l| l.strip_prefix("gateway ")).map(str::to_string);
    if let Some(gateway) = gateway {
        said.says(&format!("{gateway}\tme\n"));
    }
    // As docker has it, a program finds its own machine by the name that hostname(1) prints.
    let own = "grep -c \"$(ip -4 -o addr show eth0 | sed -n 's/.*inet \\([0-9.]*\\).*/\\1/p')[[:space:]]$(hostname)$\" /etc/hosts";
    run(&unilith, &["--hostname", "own.example"], own).ok().says("1");
    run(&unilith, &["--network", "none", "--dns", "192.0.2.9"], "cat /etc/resolv.conf")
        .ok()
        .says("nameserver 192.0.2.9\n");
    unilith.run(&["run", "--add-host", "db:nowhere", "busybox", "true"]).code(2).fails_with(&["`nowhere`"]);
}

#[test]
fn a_process_is_not_said_to_be_emulated() {
    let unilith = Unilith::new();
    let machine = unilith.start(&["busybox", "sleep", "1000000"]);
    let accel = unilith.inspect(&machine.id)["accel"].clone();
    assert_eq!(accel.is_null(), tested_machine() == "process", "{accel}");
}
