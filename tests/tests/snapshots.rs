// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `unilith diff`: what a running machine's root file system has otherwise than its image.

use std::fs;
use unilith_tests::{Machine, Ran, Unilith};

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
