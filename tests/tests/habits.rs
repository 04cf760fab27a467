// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What docker's users' fingers do next: verbs on machines that there are, flags of `run`, formats and filters. The guest is
//! a few bytes long.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::{
    io::{BufRead, BufReader},
    process::Stdio,
    sync::mpsc::channel,
    time::Duration,
};
use unilith_tests::{Unilith, eventually, guest::Script, limit};

fn server() -> Unilith {
    let mut unilith = Unilith::with_guest(
        &Script::new()
            .status("started 1000")
            .print("hello\n")
            .status("listening tcp 6379")
            .wait_for_break()
            .print("bye\n")
            .status("exit 3")
            .end(),
    );
    let (data, cache) = (unilith.path("data"), unilith.path("cache"));
    unilith.set("XDG_DATA_HOME", data);
    unilith.set("XDG_CACHE_HOME", cache);
    unilith
}

const GUEST: [&str; 2] = ["cpio:root.cpio", "/x"];

fn run(unilith: &Unilith, flags: &[&str]) {
    unilith.run(&[&["run", "-d"], flags, &GUEST].concat()).ok();
}

#[test]
fn an_ended_machine_starts_again_under_its_new_name() {
    let unilith = server();
    run(&unilith, &["--name", "web", "-l", "tier=front", "-p", "127.0.0.1::6379"]);
    let format = ["--format", "{{.Names}} {{.State}}"];
    let listed = |filter: &str| unilith.run(&[&["ps", "--filter", filter], &format[..]].concat()).ok().out;
    assert_eq!(listed("label=tier=front"), "web ready\n");
    assert_eq!(listed("label=tier=back"), "");
    assert_eq!(listed("status=exited"), "");
    unilith.run(&["ps", "--filter", "colour=red"]).code(2).fails_with(&["colour=red", "label"]);
    unilith.run(&["port", "web"]).ok().says("6379/tcp -> 127.0.0.1:");
    unilith.run(&["port", "web", "80"]).fails_with(&["port 80", "not published", "-p 80"]);

    unilith.run(&["rename", "web", "front"]).ok();
    unilith.run(&["start", "front"]).fails_with(&["front is running already"]);
    unilith.run(&["stop", "front"]).ok();
    let state = |f: &str| unilith.run(&["inspect", "-f", f, "front"]).ok().out;
    assert_eq!(state("{{.State.Status}} {{.State.ExitCode}}"), "exited 3\n");
    unilith
        .run(&["inspect", "-f", "{{.State.Colour}}", "front"])
        .code(2)
        .fails_with(&["colour", "exit_code"]);

    let ran = unilith.run(&["start", "front"]).ok();
    assert_eq!(ran.out, "front\n", "what the user called it, not an id");
    assert_eq!(state("{{.State.Status}} {{.Name}}"), "running front\n");
    unilith.run(&["restart", "front"]).ok();
    unilith.run(&["logs", "--tail", "all", "front"]).ok().says("hello\nbye\nhello\nbye\nhello\n");
}

#[test]
fn a_paused_machine_stands_still_and_can_be_stopped() {
    let unilith = server();
    run(&unilith, &["--name", "still"]);
    unilith.run(&["pause", "still"]).ok().says("still");
    eventually("ps says so", || unilith.run(&["ps"]).out.contains("(paused)"));
    unilith.run(&["pause", "still"]).fails_with(&["paused already"]);
    unilith.run(&["stats", "--no-stream", "--format", "{{.Name}} {{.CPUPerc}}"]).ok().says("still 0.0%");
    unilith.run(&["unpause", "still"]).ok();
    assert!(!unilith.run(&["ps"]).out.contains("(paused)"));
    unilith.run(&["pause", "still"]).ok();
    unilith.run(&["stop", "still"]).ok();
    unilith.run(&["wait", "still"]).ok().says("3");
}

#[test]
fn a_program_that_ends_at_once_says_so_and_is_started_again_as_often_as_was_asked() {
    let unilith = Unilith::with_guest(
        &Script::new().status("started 1000").print("no such file\n").status("exit 7").end(),
    );
    let ran = unilith.run(&[&["run", "-d"], &GUEST[..]].concat()).ok();
    // The command looks for a quarter of a second, in which a slow computer has not started its machine.
    if limit(Duration::from_secs(1)) == Duration::from_secs(1) {
        ran.complains("has ended already, with exit code 7").complains("  no such file");
    }

    run(&unilith, &["--name", "again", "--restart", "on-failure:2"]);
    eventually("it ended three times", || {
        let ended = unilith.run(&["ps", "-aq", "--filter", "name=again", "--filter", "exited=7"]).out;
        ended.lines().count() == 1 && unilith.run(&["logs", "again"]).out.matches("no such file").count() == 3
    });
    unilith
        .run(&[&["run", "--restart", "always"], &GUEST[..]].concat())
        .code(2)
        .fails_with(&["--restart", "-d"]);
}

#[test]
fn stop_gives_the_program_the_time_that_is_said_whatever_the_machine_was_started_with() {
    let unilith = Unilith::new();
    let script = "trap 'sleep 3; exit 7' TERM; echo up; while :; do sleep 0.1; done";
    let machine = unilith.start(&["--name", "slow", "--stop-timeout", "1", "busybox", "sh", "-c", script]);
    eventually("the trap is set", || machine.log().contains("up"));
    unilith.run(&["stop", "-t", "18446744073709551615", "slow"]).ok();
    unilith.run(&["wait", "slow"]).ok().says("7");
}

#[test]
fn a_machine_that_is_always_started_again_stays_ended_when_it_is_stopped() {
    let unilith = server();
    run(&unilith, &["--name", "always", "--restart", "always"]);
    unilith.run(&["stop", "always"]).ok();
    unilith.run(&["wait", "always"]).ok().says("3");
    unilith.run(&["ps", "-a", "--format", "{{.State}}"]).ok().says("exited");
}

/// Between two starts nothing runs, and the supervisor is there.
#[test]
fn a_machine_that_fails_and_is_started_again_without_end_is_stopped_and_removed() {
    let unilith = Unilith::with_guest(
        &Script::new().status("started 1000").print("no such file\n").status("exit 7").end(),
    );
    for end in [&["rm", "-f"][..], &["stop"]] {
        run(&unilith, &["--name", "fails", "--restart", "always"]);
        eventually("it was started again", || {
            unilith.run(&["logs", "fails"]).out.matches("no such file").count() > 2
        });
        unilith.run(&[end, &["fails"]].concat()).ok();
    }
    unilith.run(&["ps", "-a", "--format", "{{.State}}"]).ok().says("exited");
    unilith.run(&["rm", "fails"]).ok();
    assert_eq!(unilith.run(&["ps", "-aq"]).ok().out, "");
}

#[test]
fn volumes_have_names_and_are_not_removed_while_a_machine_has_them() {
    let unilith = server();
    run(&unilith, &["--name", "db", "-v", "notes:/data", "--mount", "type=volume,source=more,target=/more"]);
    let names = unilith.run(&["volume", "ls", "-q"]).ok().out;
    assert_eq!(names, "more\nnotes\n");
    unilith.run(&["volume", "rm", "notes"]).fails_with(&["notes is machine db's", "unilith rm db"]);
    unilith.run(&["rm", "-f", "db"]).ok();
    unilith.run(&["volume", "rm", "notes", "more"]).ok();
    assert_eq!(unilith.run(&["volume", "ls", "-q"]).ok().out, "");
    unilith
        .run(&["run", "--mount", "type=tmpfs,source=a,target=/x", "cpio:root.cpio", "/x"])
        .code(2)
        .fails_with(&["empty at first"]);
}

#[test]
fn prune_takes_what_has_ended_and_leaves_what_runs() {
    let unilith = server();
    run(&unilith, &["--name", "runs"]);
    run(&unilith, &["--name", "ended"]);
    unilith.run(&["stop", "ended"]).ok();
    let all: serde_json::Value =
        serde_json::from_str(&unilith.run(&["system", "df", "--json"]).ok().out).unwrap();
    let machines = all.as_array().unwrap().iter().find(|r| r["what"] == "machines").unwrap();
    assert!(machines["count"] == 2 && machines["reclaimable"].as_u64().unwrap() > 0, "{machines}");
    unilith.run(&["system", "prune"]).fails_with(&["add -f"]);
    unilith.run(&["system", "prune", "-f"]).ok().says("ended").says("freed");
    assert_eq!(unilith.run(&["ps", "-a", "--format", "{{.Names}}"]).ok().out, "runs\n");
}

#[test]
fn logs_are_shown_with_their_times_and_by_them() {
    let unilith = server();
    run(&unilith, &["--name", "web"]);
    eventually("it has printed", || unilith.run(&["logs", "web"]).out == "hello\n");
    unilith.run(&["stop", "web"]).ok();
    let times = |flags: &[&str]| -> Vec<(String, String)> {
        let out = unilith.run(&[&["logs", "-t"], flags, &["web"]].concat()).ok().out;
        out.lines().filter_map(|line| line.split_once(' ')).map(|(t, l)| (t.into(), l.into())).collect()
    };
    let all = times(&[]);
    let texts = |lines: &[(String, String)]| lines.iter().map(|(_, l)| l.clone()).collect::<Vec<_>>();
    assert_eq!(texts(&all), ["hello", "bye"]);
    assert!(all[0].0.ends_with('Z') && all[0].0 <= all[1].0, "{all:?}");
    assert_eq!(times(&["--since", &all[0].0]), all);
    assert_eq!(times(&["--tail", "1"]), all[1..]);
    assert_eq!(texts(&times(&["--until", "1h"])), [""; 0], "what is that old was not there");
    assert_eq!(unilith.run(&["logs", "--since", "10m", "web"]).ok().out, "hello\nbye\n");
    unilith.run(&["logs", "--since", "soon", "web"]).code(2).fails_with(&["--since", "`soon`", "10m"]);
}

#[test]
fn a_machine_between_two_starts_counts_as_running_and_is_restarted_at_once() {
    let unilith = Unilith::with_guest(
        &Script::new().status("started 1000").print("no such file\n").status("exit 7").end(),
    );
    run(&unilith, &["--name", "fails", "--restart", "always"]);
    let waits = || {
        eventually("it waits for its next start", || {
            unilith.run(&["ps", "-a", "--format", "{{.Status}}"]).ok().out.starts_with("restarting (7)")
        });
    };
    waits();
    // It may have been started meanwhile, and then runs for a moment.
    eventually("start leaves it to its policy", || {
        let ran = unilith.run(&["start", "fails"]);
        ran.out == "fails\n" && ran.err.contains("by its restart policy")
    });
    waits();
    unilith.run(&["restart", "fails"]).ok().says("fails");
    waits();
    unilith.run(&["kill", "fails"]).ok().says("fails");
    // By itself, or by the signal if it was running again.
    let status = unilith.run(&["ps", "-a", "--format", "{{.Status}}"]).ok().out;
    assert!(status.starts_with("exited (7)") || status.starts_with("exited (137)"), "{status}");
    unilith.run(&["stop", "fails"]).fails_with(&["fails", "not running"]);
}

#[test]
fn events_are_dockers_words_in_order() {
    let unilith = server();
    assert_eq!(
        unilith.run(&["events", "--since", "1h", "--until", "0s"]).ok().out,
        "",
        "before there was a machine"
    );
    run(&unilith, &["--name", "other"]);
    run(&unilith, &["--name", "web", "-l", "tier=front"]);
    unilith.run(&["stop", "web"]).ok();
    unilith.run(&["rename", "web", "front"]).ok();
    unilith.run(&["rm", "front"]).ok();
    let events = |words: &[&str]| {
        unilith.run(&[&["events", "--since", "1h", "--until", "0s"], words].concat()).ok().out
    };
    let actions = events(&["--filter", "label=tier", "--format", "{{.Action}}"]);
    assert_eq!(actions, "create\nstart\nkill\ndie\nstop\nrename\ndestroy\n");
    let exit =
        ["--filter", "event=die", "--format", "{{.Actor.Attributes.name}} {{.Actor.Attributes.exitCode}}"];
    assert_eq!(events(&exit), "web 3\n");
    let line = events(&["--filter", "event=start", "--filter", "container=web"]);
    assert!(line.contains("Z container start ") && line.contains(", name=web, tier=front)"), "{line}");
    unilith.run(&["events", "--filter", "colour=red"]).code(2).fails_with(&["colour=red", "container="]);
    // Those that come: the first one is one that comes while it watches.
    let mut watch = unilith.command(&["events", "--format", "{{.Action}}"]);
    let mut child = watch.stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let (send, first) = channel();
    std::thread::spawn(move || send.send(lines.next()));
    let mut seen = None;
    eventually("an event is shown", || {
        unilith.run(&["pause", "other"]).ok();
        unilith.run(&["unpause", "other"]).ok();
        seen = first.try_recv().ok();
        seen.is_some()
    });
    child.kill().unwrap();
    child.wait().unwrap();
    let line = seen.flatten().unwrap().unwrap();
    assert!(["pause", "unpause"].contains(&line.as_str()), "{line}");
}

#[test]
fn the_unit_of_a_machine_starts_and_stops_it() {
    let unilith = server();
    run(&unilith, &["--name", "web", "--stop-timeout", "25"]);
    unilith.run(&["stop", "web"]).ok();
    let unit = unilith.run(&["generate", "systemd", "web"]).ok().says("TimeoutStopSec=35").out;
    let values = |key: &str| -> Vec<String> {
        unit.lines().filter_map(|l| l.strip_prefix(key)?.strip_prefix('=')).map(Into::into).collect()
    };
    // As systemd does: with this environment and no other. Paths of tests need no quotes.
    let act = |key: &str| {
        let line = format!("env -i {} {}", values("Environment").join(" "), values(key)[0]);
        unilith_tests::finish(&mut unilith.shell(&line), unilith_tests::PATIENCE).ok().says("web");
    };
    let state = || unilith.run(&["ps", "-a", "--format", "{{.State}}"]).ok().out;
    act("ExecStart");
    assert_eq!(state(), "ready\n");
    act("ExecStop");
    assert_eq!(state(), "exited\n");
    run(&unilith, &["--name", "gone", "--rm"]);
    unilith.run(&["generate", "systemd", "gone"]).fails_with(&["gone", "--rm"]);
}

#[test]
fn limits_and_policies_of_machines_are_changed() {
    let unilith = Unilith::with_guest(
        &Script::new().status("started 1000").print("no such file\n").status("exit 7").end(),
    );
    run(&unilith, &["--name", "fails", "--restart", "always"]);
    eventually("it was started again", || unilith.run(&["logs", "fails"]).out.matches("no such").count() > 1);
    assert_eq!(unilith.run(&["update", "--restart", "no", "fails"]).ok().out, "fails\n");
    eventually("it stays ended", || {
        unilith.run(&["ps", "-a", "--format", "{{.Status}}"]).ok().out.starts_with("exited (7)")
    });

    let unilith = server();
    run(&unilith, &["--name", "web", "-m", "64M"]);
    let limits = "{{.HostConfig.Memory}} {{.HostConfig.NanoCpus}} {{.HostConfig.RestartPolicy.Name}}";
    let shown = || unilith.run(&["inspect", "-f", limits, "web"]).ok().out;
    let ran = unilith.run(&["update", "-m", "96M", "--cpus", "2", "web"]).ok();
    ran.complains("web has these after `unilith restart web`");
    unilith.run(&["restart", "web"]).ok();
    assert_eq!(shown(), format!("{} 2000000000 no\n", 96 << 20));
    unilith.run(&["stop", "web"]).ok();
    let ran = unilith.run(&["update", "--restart", "on-failure:1", "--memory", "80M", "web"]).ok();
    assert_eq!(ran.err, "", "it has them when it is started");
    // The guest ends with 3, so a policy that was given to a machine without one is seen at its end.
    unilith.run(&["start", "web"]).ok();
    assert!(shown().starts_with(&format!("{} ", 80 << 20)), "{}", shown());

    unilith.run(&["update", "web"]).code(2).fails_with(&["--restart, -m or --cpus"]);
    unilith.run(&["update", "-m", "1k", "web"]).fails_with(&["too small", "try -m"]);
    unilith.run(&["update", "--cpus", "0", "web"]).code(2);
    unilith.run(&["update", "--pids-limit", "9", "web"]).code(2).fails_with(&["--pids-limit", "-m"]);
    unilith.run(&["update", "-m", "96M", "nobody"]).fails_with(&["no machine is called `nobody`"]);
    run(&unilith, &["--name", "gone", "--rm"]);
    unilith.run(&["update", "--restart", "always", "gone"]).fails_with(&["gone", "--rm"]);
}

#[test]
fn dockers_words_that_are_not_here_name_what_to_use_instead() {
    let unilith = server();
    unilith.run(&["push", "redis"]).code(2).fails_with(&["no push", "unilith build"]);
    unilith
        .run(&["run", "--privileged", "redis"])
        .code(2)
        .fails_with(&["no flag --privileged", "kernel of its own"]);
    unilith.run(&["run", "-p", "::1:8080:80", "redis"]).fails_with(&["[ADDRESS]:HOST:PORT"]);
    unilith.run(&["version"]).ok().says("unilith ");
    unilith.run(&["help", "ps"]).ok().says("--filter");
}

#[test]
fn what_a_machine_is_missing_is_below_ps_and_in_inspect_with_advice() {
    let mut unilith = Unilith::with_guest(
        &Script::new()
            .status("started 1000")
            .status("missing 425")
            .status("listening tcp 6379")
            .wait_for_break()
            .status("exit 0")
            .end(),
    );
    let cache = unilith.path("cache");
    unilith.set("XDG_CACHE_HOME", cache);
    run(&unilith, &["--name", "web", "-p", "127.0.0.1::6379"]);
    let listed = unilith.run(&["ps"]).ok();
    assert!(listed.err.contains("web: the kernel refused io_uring_setup;"), "{}", listed.err);
    let shown = |format: &str| unilith.run(&["inspect", "-f", format, "web"]).ok().out;
    assert!(shown("{{range .Advice}}{{.}}\n{{end}}").contains("ENOSYS: io_uring_setup\n"));
    let ports = "{{range $p, $conf := .NetworkSettings.Ports}}{{$p}} {{(index $conf 0).HostIp}}{{end}}";
    assert_eq!(shown(ports), "6379/tcp 127.0.0.1\n");
    unilith.run(&["run", "--sysctl", "a=b", "busybox"]).code(2).fails_with(&["--sysctl", "--set"]);
}

#[test]
fn limits_groups_and_the_host_name_are_the_programs() {
    // Of an ordinary user, too: only root may raise a limit again.
    let unilith = Unilith::new();
    let script = "cat /proc/self/limits; echo; id -G; hostname";
    let flags = "--ulimit core=1024 --ulimit nofile=100:200 --ulimit memlock=-1 --ulimit nproc=77 --group-add 44 \
                 --group-add tape -u daemon -h box busybox sh -c";
    let words: Vec<&str> = flags.split_whitespace().chain([script]).collect();
    let ran = unilith.program(&words).ok();
    let row = |name: &str| {
        let line = ran.out.lines().find(|line| line.starts_with(name)).unwrap_or_default();
        line[name.len()..].split_whitespace().take(2).map(str::to_string).collect::<Vec<_>>()
    };
    assert_eq!(row("Max core file size"), ["1024", "1024"], "{ran}");
    assert_eq!(row("Max open files"), ["100", "200"], "{ran}");
    assert_eq!(row("Max locked memory"), ["unlimited", "unlimited"], "{ran}");
    assert_eq!(row("Max processes"), ["77", "77"], "{ran}");
    assert!(ran.out.ends_with("\n1 26 44\nbox\n"), "{ran}");
    unilith
        .program(&["--ulimit", "cores=1", "busybox"])
        .code(2)
        .complains("no limit `cores`, but cpu, fsize");
    unilith.program(&["--group-add", "cats", "busybox"]).fails_with(&["no group `cats`"]);
}

#[test]
fn a_machines_id_is_written_to_a_new_file_and_labels_are_read_from_one() {
    let unilith = server();
    let (note, labels) = (unilith.path("id"), unilith.path("labels"));
    std::fs::write(&labels, "# of the team\ntier=front\ncolour=red\n").unwrap();
    let (note_word, labels) = (note.display().to_string(), labels.display().to_string());
    let flags =
        ["--name", "web", "--cidfile", &note_word, "--label-file", &labels, "-l", "colour=blue", "-q"];
    run(&unilith, &flags);
    let id = std::fs::read_to_string(&note).unwrap();
    let listed = |filter: &str| unilith.run(&["ps", "-q", "--filter", filter]).ok().out;
    assert_eq!(listed("label=tier=front"), format!("{id}\n"));
    assert_eq!((listed("label=colour=blue").trim(), listed("label=colour=red").trim()), (id.as_str(), ""));
    let again = [&["run", "-d", "--cidfile", &note_word], &GUEST[..]].concat();
    unilith.run(&again).fails_with(&[&note_word, "remove it first"]);
    assert_eq!(std::fs::read_to_string(&note).unwrap(), id, "it is still the first machine's");
}
