// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `unilith diff` and `unilith commit`: what a running machine's root file system has otherwise than its image, and an image of
//! what it has.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::fs;
use unilith_tests::{Machine, Ran, Unilith, eventually, tested_kernel};

/// A machine that does nothing, of busybox with a few files of its own.
fn sleeper<'a>(unilith: &'a Unilith, flags: &[&str]) -> Machine<'a> {
    let project = unilith.path("project");
    fs::create_dir_all(project.join("tree/below")).unwrap();
    for file in ["settings", "tree/gone", "tree/below/deep"] {
        fs::write(project.join(file), "12345").unwrap();
    }
    let settings = "from = \"debian:busybox-static\"\nprogram = \"busybox\"\nargs = [\"sleep\", \"1000000\"]\nbase = \"none\"\n\
        [files]\n\"/etc/settings\" = \"settings\"\n\"/usr/share/tree\" = \"tree\"\n";
    fs::write(project.join("unilith.toml"), settings).unwrap();
    unilith.start(&[flags, &[&format!("dir:{}", project.display())]].concat())
}

/// Runs a line of a shell in the machine.
#[track_caller]
fn inside(unilith: &Unilith, machine: &str, line: &str) -> Ran {
    unilith.run(&["exec", machine, "--", "busybox", "sh", "-c", line]).ok()
}

#[track_caller]
fn lines(unilith: &Unilith, machine: &str) -> Vec<String> {
    unilith.run(&["diff", machine]).ok().out.lines().map(str::to_string).collect()
}

#[test]
fn what_a_program_made_of_its_files_is_told_as_docker_tells_it() {
    let unilith = Unilith::new();
    fs::create_dir(unilith.path("data")).unwrap();
    let data = format!("{}:/srv/data", unilith.path("data").display());
    let machine =
        sleeper(&unilith, &["-v", &data, "--tmpfs", "/var/cache/memory", "--add-host", "a:10.0.0.1"]);
    assert_eq!(lines(&unilith, &machine.id), [""; 0], "nothing that a start makes is a change");
    inside(
        &unilith,
        &machine.id,
        "set -e; echo x > /srv/data/x; echo x > /var/cache/memory/x; echo x > /dev/shm/x; echo >> /etc/hosts; \
         echo new > /etc/new; chmod 700 /opt; chown 7 /etc/passwd; echo >> /etc/group; cd /usr/share/tree; rm -r below gone; \
         mkdir -p /srv/a/b; ln -s nowhere /srv/a/link; mkfifo /srv/a/pipe; \
         rm -r /mnt; ln -s opt /mnt; printf x > \"/srv/$(printf 'e\\033x')\"; \
         cp -p /etc/settings /etc/again; rm /etc/settings; mv /etc/again /etc/settings",
    );
    let wanted = [
        "C /etc",
        "C /etc/group",
        "A /etc/new",
        "C /etc/passwd",
        "C /mnt",
        "C /opt",
        "C /srv",
        "A /srv/a",
        "A /srv/a/b",
        "A /srv/a/link",
        "A /srv/a/pipe",
        "A /srv/e\\033x",
        "C /usr",
        "C /usr/share",
        "C /usr/share/tree",
        "D /usr/share/tree/below",
        "D /usr/share/tree/gone",
    ];
    assert_eq!(lines(&unilith, &machine.id), wanted);

    unilith.run(&["kill", &machine.id]).ok();
    let gone = ["has ended", "went with it", "volumes"];
    unilith.run(&["diff", &machine.id]).code(1).fails_with(&gone);
    unilith.run(&["diff", "nobody"]).code(1).fails_with(&["nobody"]);
}

#[test]
fn a_committed_machine_runs_again_with_all_that_its_files_are() {
    let unilith = Unilith::new();
    fs::create_dir(unilith.path("data")).unwrap();
    let data = format!("{}:/srv/data", unilith.path("data").display());
    let machine =
        sleeper(&unilith, &["-v", &data, "-e", "COLOUR=two words", "-w", "/usr/share", "-l", "tier=front"]);
    let make = "set -e; echo x > /srv/data/x; echo >> /etc/hosts; rm -r /usr/share/tree/below; mkdir -m 2770 /srv/dir; \
        echo one > /srv/dir/one; ln /srv/dir/one /srv/two; ln -s ../no//where/ /srv/link; chown -h 7:8 /srv/link; \
        chown 1000:70000 /srv/dir/one; chmod 4751 /srv/dir/one; touch -d '2001-02-03 04:05:06' /srv/dir/one; \
        printf 12345 > /srv/young; touch -d '2038-01-01 00:00:00' /srv/young; mkfifo /srv/pipe";
    inside(&unilith, &machine.id, make);
    let image = unilith.path("kept.tar").display().to_string();
    let ran = unilith.run(&["commit", &machine.id, &image]).ok().complains("1 left out");
    assert_eq!(ran.out, format!("oci:{image}\n"));

    let again = unilith.start(&[ran.out.trim()]);
    let told = "cd /srv; stat -c '%n %f %u:%g %h %Y' dir dir/one two link | sed 's/^dir 45f8 0:0 2 .*/dir/'; readlink link; cat two; \
        ls -d data/* pipe /usr/share/tree/below; echo \"$COLOUR\"; id -u";
    let said = unilith.run(&["exec", &again.id, "--", "busybox", "sh", "-c", told]).ok().out;
    let lines = [
        "dir",
        "dir/one 89e9 1000:70000 2 981173106",
        "two 89e9 1000:70000 2 981173106",
        "../no//where/",
        "one",
        "two words",
        "0",
    ];
    let seen: Vec<&str> = said.lines().filter(|line| !line.starts_with("link ")).collect();
    assert_eq!(seen, lines, "{said}");
    assert!(said.contains("link a1ff 7:8 1 "), "{said}");
    let (was, is) = (unilith.inspect(&machine.id), unilith.inspect(&again.id));
    for key in ["args", "cwd", "env", "uid"] {
        assert_eq!(is[key], was[key], "{key}");
    }
    assert_eq!(is["cwd"], "/usr/share");
    let changes: Vec<String> =
        unilith.run(&["diff", &again.id]).ok().out.lines().map(str::to_string).collect();
    assert_eq!(changes, [""; 0]);

    // Neither size nor time tells that it was written: the image's file is younger than the machine.
    let write = "set -e; cd /srv; touch -r young /tmp/time; printf 54321 > young; touch -r /tmp/time young; rm /tmp/time";
    inside(&unilith, &again.id, write);
    assert_eq!(unilith.run(&["diff", &again.id]).ok().out, "C /srv\nC /srv/young\n");

    let change = |text: &str| unilith.run(&["commit", "-c", text, &again.id, &image]);
    change("RUN make").code(2).fails_with(&["RUN make", "CMD", "WORKDIR"]);
    change("CMD [\"busybox\", \"cat\", \"/srv/young\"]").ok();
    assert_eq!(unilith.program(&[&image]).ok().out, "54321");
}

#[test]
fn what_cannot_be_committed_leaves_what_was_there() {
    let unilith = Unilith::new();
    let machine = sleeper(&unilith, &[]);
    let folder = unilith.path("folder");
    fs::create_dir(&folder).unwrap();
    fs::write(folder.join("kept.tar"), "before").unwrap();
    let image = folder.join("kept.tar").display().to_string();
    unilith.run(&["commit", &machine.id, &folder.display().to_string()]).code(2).fails_with(&["name a file"]);
    // Larger than an archive of its kind can say; it takes no memory.
    inside(&unilith, &machine.id, "busybox truncate -s 5G /srv/large");
    unilith.run(&["commit", &machine.id, &image]).code(1).fails_with(&["srv/large"]);
    let told = unilith.run(&["diff", &machine.id]);
    match tested_kernel().as_str() {
        "linux" => drop(told.code(1).fails_with(&["srv/large"])),
        _ => assert_eq!(told.ok().out, "C /srv\nA /srv/large\n"),
    }
    unilith.run(&["kill", &machine.id]).ok();
    unilith.run(&["commit", &machine.id, &image]).code(1).fails_with(&["has ended", "volumes"]);
    let left: Vec<_> = fs::read_dir(&folder).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(left, ["kept.tar"]);
    assert_eq!(fs::read_to_string(&image).unwrap(), "before");
}

#[test]
fn the_health_check_of_an_image_is_run_unless_it_is_switched_off() {
    let unilith = Unilith::new();
    let words = ["--health-cmd", "test -e /well", "--health-interval", "200ms", "--health-retries", "7"];
    let program = ["debian:bash", "--", "-c", "> /well; sleep 1000000"];
    let first = unilith.start(&[&words[..], &program].concat());
    eventually("it is healthy", || unilith.run(&["ps"]).out.contains("(healthy)"));
    unilith.run(&["commit", &first.id, "image.tar"]).ok();
    unilith.run(&["rm", "-f", &first.id]).ok();

    let image = "oci:image.tar";
    let own = unilith.start(&["--health-timeout", "9s", image]);
    eventually("it is healthy", || unilith.run(&["ps"]).out.contains("(healthy)"));
    let check = unilith.inspect(&own.id)["health"].clone();
    assert_eq!(check["command"], serde_json::json!(["/bin/sh", "-c", "test -e /well"]));
    let numbers = ["interval", "timeout", "retries"].map(|key| check[key].as_u64().unwrap());
    assert_eq!(numbers, [200, 9000, 7], "what is given here goes before what the image says");
    let off = unilith.start(&["--no-healthcheck", image]);
    assert!(unilith.inspect(&off.id)["health"].is_null());
}
