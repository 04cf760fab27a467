// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Clients that go away in the middle, flood, or are somebody else's: the program answers as before throughout, and the
//! next client finds the overlay as it was.

use overlay_wire::{Hello, Kind, Run, frame};
use std::{
    io::Write,
    os::unix::process::CommandExt,
    path::Path,
    process::{Command, Stdio},
    thread,
    time::Duration,
};
use unilith_overlay::{Client, Event, LineError, socket};
use unilith_tests::{
    Machine, PATIENCE, Unilith, eventually, eventually_within, finish,
    overlay::{Asking, Numbers, folder, package, redis},
};
use unilith_trace::language;

fn has_overlay() -> bool {
    unilith_tests::tested_kernel() == "micro"
}

/// Does something to the overlay of a machine while its program is watched; afterwards all is as it was.
fn undisturbed(work: impl FnOnce(&Unilith, &Machine<'_>, &Path)) {
    let unilith = Unilith::new();
    if !has_overlay() {
        return;
    }
    let machine = redis(&unilith);
    let folder = folder(&unilith, &machine.id);
    let asking = Asking::redis(machine.at(6379));
    work(&unilith, &machine, &folder);
    // Until then there may be no room for another command, and little time for the program.
    eventually_within(3 * PATIENCE, "the threads of commands whose clients are gone have ended", || {
        let ran = unilith.run(&["exec", &machine.id, "ps"]);
        ran.code == Some(0) && ran.out.matches("[overlay]").count() <= 3
    });
    asking.goes_on();
    unilith.run(&["exec", &machine.id, "cat", "/etc/hostname"]).ok().says(&machine.id);
}

fn hello() -> Vec<u8> {
    frame(Kind::HELLO, 0, 0, &Hello { lowest: 1, highest: 1, client: b"test" }.encode())
}

fn run(number: u32, words: &[&str]) -> Vec<u8> {
    let arguments = words.iter().map(|w| w.as_bytes()).collect();
    frame(Kind::RUN, 0, number, &Run { json: false, columns: 80, arguments }.encode())
}

#[test]
fn a_client_may_go_at_any_byte_of_what_it_says() {
    undisturbed(|_, _, folder| {
        let mut numbers = Numbers(1);
        let input = frame(Kind::STDIN, 0, 2, &[b'x'; 5000]);
        let said = [
            hello(),
            run(1, &["cat", "/dev/zero"]),
            run(2, &["cp", "-", "/tmp/half"]),
            input.clone(),
            input,
            run(3, &["top"]),
            run(4, &["log", "-f"]),
            run(5, &["ls", "/overlay"]),
            run(6, &["cp", "/dev/zero", "/overlay/zeroes"]),
            frame(Kind::STDIN_END, 0, 2, b""),
            frame(Kind::INTERRUPT, 0, 6, b""),
            run(7, &["cat", "/etc/hostname"]),
        ]
        .concat();
        for round in 0..150 {
            let mut stream = socket::connect(folder).expect("the socket is there");
            // Every now and then all of it, and otherwise up to anywhere.
            let end = if round % 10 == 0 { said.len() } else { numbers.below(said.len()) };
            // It may be dismissed before the end.
            let _ = stream.write_all(&said[..end]);
            if round % 3 == 0 {
                thread::sleep(Duration::from_millis(numbers.below(20) as u64));
            }
        }
    });
}

#[test]
fn clients_that_are_killed_while_they_copy_leave_nothing_behind() {
    undisturbed(|unilith, machine, _| {
        let mut numbers = Numbers(2);
        for words in
            [["cat", "/dev/zero", "/dev/zero"], ["cp", "-", "/tmp/target"], ["cp", "/dev/zero", "/overlay/z"]]
        {
            for _ in 0..4 {
                let zeroes = std::fs::File::open("/dev/zero").expect("zeroes");
                let mut command = unilith.command(&[&["exec", machine.id.as_str()], &words[..]].concat());
                let mut child = command
                    .stdin(zeroes)
                    .stdout(Stdio::null())
                    .stderr(Stdio::null())
                    .spawn()
                    .expect("the command starts");
                thread::sleep(Duration::from_millis(100 + numbers.below(200) as u64));
                child.kill().expect("it can be killed");
                child.wait().expect("it can be waited for");
                unilith.run(&["exec", &machine.id, "rm", "-f", "/tmp/target", "/overlay/z"]);
            }
        }
    });
}

#[test]
fn tracers_that_go_at_any_moment_leave_nothing_attached() {
    undisturbed(|unilith, machine, folder| {
        let client = Client::connect(folder).expect("a session");
        let action = "count(processCommand); latency(lookupKey)";
        let script = language::compile(action, &|_| None).expect("a script of the test's own");
        let package = package(&client, &script, |path| path.ends_with("redis-check-rdb"));
        let list =
            || String::from_utf8(client.run(&["bpf", "list"], true).expect("an answer").out).expect("text");
        let mut numbers = Numbers(4);
        let mut seen = 0;
        for round in 0..80 {
            let name = format!("trace-{round}.");
            let said = [
                hello(),
                run(1, &["bpf", "trace", "-b", &name]),
                frame(Kind::STDIN, 0, 1, &package),
                frame(Kind::STDIN_END, 0, 1, b""),
            ]
            .concat();
            let mut stream = socket::connect(folder).expect("the socket is there");
            let end = if round % 4 == 0 { numbers.below(said.len()) } else { said.len() };
            // It may be dismissed before the end.
            let _ = stream.write_all(&said[..end]);
            thread::sleep(Duration::from_micros(numbers.below(40_000) as u64));
            if round % 8 == 7 {
                eventually("the programs are attached", || list().contains(&name));
                seen += 1;
            }
            drop(stream);
            if round % 8 == 7 {
                eventually("the programs of a client that has gone are detached", || !list().contains(&name));
            }
        }
        assert_eq!(seen, 10);
        // The command itself, killed when it has begun, attached, followed.
        for round in 0..6 {
            let mut command = unilith.command(&["trace", &machine.id, action]);
            let mut child =
                command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("the command starts");
            if round % 2 == 0 {
                eventually("the programs are attached", || list().contains("processCommand"));
            } else {
                thread::sleep(Duration::from_millis(numbers.below(400) as u64));
            }
            child.kill().expect("it can be killed");
            child.wait().expect("it can be waited for");
        }
        eventually("nothing is attached", || list().is_empty());
    });
}

#[test]
fn a_command_is_interrupted_at_any_moment() {
    undisturbed(|_, _, folder| {
        let client = Client::connect(folder).expect("a session");
        let mut numbers = Numbers(3);
        for round in 0..60 {
            let words: &[&str] = match round % 4 {
                0 => &["cat", "/dev/zero"],
                1 => &["top"],
                2 => &["cat", "-"],
                _ => &["cp", "/dev/zero", "/dev/null"],
            };
            let running = client.start(words, false, 80).expect("it starts");
            thread::sleep(Duration::from_micros(numbers.below(20_000) as u64));
            running.input().interrupt().expect("the line is there");
            loop {
                match running.next() {
                    Event::Exit(exit) => break assert_eq!(exit.code, 130, "{words:?}"),
                    Event::Lost(why) => panic!("{words:?}: {why}"),
                    _ => {}
                }
            }
        }
    });
}

#[test]
fn many_sessions_run_commands_at_once_and_too_many_are_told_so() {
    undisturbed(|_, machine, folder| {
        thread::scope(|scope| {
            for n in 0..20 {
                scope.spawn(move || {
                    let client = Client::connect(folder).expect("a session");
                    for i in 0..10 {
                        let name = format!("/tmp/{n}-{i}");
                        assert_eq!(client.run(&["mkdir", &name], false).expect("an answer").code, 0);
                        let listed = client.run(&["ls", "/tmp"], false).expect("an answer");
                        assert!(String::from_utf8_lossy(&listed.out).contains(&name[5..]));
                        assert_eq!(client.run(&["rm", "-r", &name], false).expect("an answer").code, 0);
                    }
                });
            }
        });
        let mut sessions = Vec::new();
        let refused = (0..100).find_map(|_| match Client::connect(folder) {
            Ok(client) => {
                sessions.push(client);
                None
            }
            Err(e) => Some(e),
        });
        assert!(matches!(refused, Some(LineError::Refused(_))), "{refused:?}");
        assert!(sessions.len() >= 32, "{} sessions only", sessions.len());
        let last = sessions.last().expect("there are sessions");
        assert_eq!(
            last.run(&["cat", "/etc/hostname"], false).expect("an answer").out,
            format!("{}\n", machine.id).as_bytes()
        );
    });
}

#[test]
fn a_line_of_a_megabyte_is_an_error_in_one_line() {
    undisturbed(|unilith, machine, folder| {
        let path = unilith.path("script");
        std::fs::write(&path, format!("cat {}\n", "x".repeat(1 << 20))).expect("the scratch directory");
        let mut command = unilith.command(&["attach", &machine.id]);
        let script = std::fs::File::open(&path).expect("the script");
        finish(command.stdin(script), PATIENCE).fails_with(&["at most", "give files instead"]);
        // Nobody is stopped from sending it all the same.
        let mut stream = socket::connect(folder).expect("the socket is there");
        let mut giant = run(1, &["cat"]);
        giant[16..20].copy_from_slice(&(1u32 << 20).to_le_bytes());
        let check = overlay_wire::check(&giant[..20]);
        giant[20..24].copy_from_slice(&check.to_le_bytes());
        giant.resize(1 << 20, b'x');
        // It is dismissed in the middle of it.
        let _ = stream.write_all(&[hello(), giant].concat());
    });
}

#[test]
fn another_users_client_gets_nothing() {
    undisturbed(|unilith, machine, folder| {
        // The scratch directory is closed to others as well: the socket has to stand for itself.
        for path in folder.ancestors().take_while(|p| *p != Path::new("/tmp") && p.parent().is_some()) {
            let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
            std::fs::set_permissions(path, open).expect("directories of this user's");
        }
        let script = "import socket, sys\n\
                      s = socket.socket(socket.AF_UNIX)\n\
                      try:\n    s.connect(sys.argv[1])\n\
                      except PermissionError:\n    sys.exit(13)\n";
        let try_it = |user: Option<u32>| {
            let mut python = Command::new("python3");
            python.args(["-c", script]).arg(folder.join("overlay.sock"));
            if let Some(user) = user {
                python.uid(user).gid(user);
            }
            finish(&mut python, PATIENCE)
        };
        try_it(None).ok();
        if rustix::process::geteuid().is_root() {
            try_it(Some(65534)).code(13);
        } else {
            eprintln!("only root can be somebody else: run as root to try another user's client");
        }
        unilith.run(&["exec", &machine.id, "cat", "/etc/hostname"]).ok().says(&machine.id);
    });
}
