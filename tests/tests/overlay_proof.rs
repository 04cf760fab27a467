// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the overlay promises, held against nginx and SQLite while they work: whatever is done wrong with it, the
//! application answers the same bytes. (Redis, and what needs no application: `overlay_faults`, `overlay_programs`, `trace`.)

use bpf::Insn;
use overlay_wire::{Hello, Kind, Run, frame};
use std::{
    io::Write,
    path::PathBuf,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Duration,
};
use unilith_overlay::{Client, Event, LineError, socket};
use unilith_tests::{
    Unilith, client, eventually,
    overlay::{
        ANSWERS, Asking, Database, FAULTS, Numbers, build, damages, folder, kernel_place, package,
        run_object, send, session,
    },
    root, tested_kernel,
};
use unilith_trace::{Script, language};

fn is_without_overlay() -> bool {
    tested_kernel() != "micro"
        || unilith_tests::is_skipped_on_process("overlay_programs and trace do the same to Redis there")
}

const EXIT: Insn = Insn::new(0x95, 0, 0, 0, 0);

/// A machine that is watched while things are done to it.
struct Subject<'a> {
    client: Client,
    folder: PathBuf,
    /// `programs/overlay/faults.c`
    object: Vec<u8>,
    /// Programs at functions that it calls all the time.
    package: Vec<u8>,
    bundle: usize,
    /// One of them as the verifier must not let through.
    unsafe_package: Vec<u8>,
    goes_on: &'a dyn Fn(),
}

impl<'a> Subject<'a> {
    fn new(unilith: &Unilith, machine: &str, script: &str, goes_on: &'a dyn Fn()) -> Subject<'a> {
        let client = session(unilith, machine);
        let mut script = language::compile(script, &|_| None).expect("a script of the test's own");
        let packed = |script: &Script| {
            package(&client, script, |path| path.contains("nginx") || path.contains("libsqlite3"))
        };
        let good = packed(&script);
        let bundle = script.bundle.encode().len();
        // r0 is returned, and nothing was ever written to it.
        script.bundle.programs[0].insns = vec![EXIT];
        let unsafe_package = packed(&script);
        let object = build(unilith, &root().join("tests/programs/overlay/faults.c"));
        Subject {
            client,
            folder: folder(unilith, machine),
            object: std::fs::read(object).expect("it was just built"),
            package: good,
            bundle,
            unsafe_package,
            goes_on,
        }
    }

    /// Whatever a program of the overlay does wrong ends it alone.
    fn survives_faults(&self) {
        let run = |what: &str| {
            run_object(&self.client, &["-k", "1"], "faults", &self.object, &[what, kernel_place(what)])
        };
        for (fault, code, texts) in FAULTS {
            let said = run(fault);
            assert_eq!(i32::from(said.code), *code, "{fault}: {said:?}");
            for text in *texts {
                assert!(said.why.contains(text), "{fault}: expected `{text}` in {said:?}");
            }
            (self.goes_on)();
        }
        for (what, answer) in ANSWERS {
            let said = run(what);
            assert_eq!((said.code, said.out.as_str()), (0, *answer), "{what}: {said:?}");
        }
        for (words, text) in [
            (["-t", "1", "faults", "loop"], "used up its processor time"),
            (["-w", "1", "faults", "loop-writing"], "held the application's thread for too long"),
        ] {
            let said = send(&self.client, &[&["run"], &words[..]].concat(), b"");
            assert!(said.code == 152 && said.why.contains(text), "{said:?}");
            (self.goes_on)();
        }
        for endless in ["loop", "loop-printing", "sleep"] {
            let words = ["run", "-t", "0", "faults", endless];
            let running = self.client.start(&words, false, 0).expect("the line is there");
            (self.goes_on)();
            running.input().interrupt().expect("the line is there");
            let code = loop {
                match running.next() {
                    Event::Exit(exit) => break exit.code,
                    Event::Lost(why) => panic!("{why}"),
                    _ => {}
                }
            };
            assert_eq!(code, 130, "{endless}");
        }
        (self.goes_on)();
    }

    /// Each command does what it is for.
    fn takes_every_command(&self) {
        for (words, text) in [
            (&["help"][..], "complete"),
            (&["mkdir", "-p", "/overlay/a/b"], ""),
            (&["cp", "/etc/hostname", "/overlay/a/b/name"], ""),
            (&["mv", "/overlay/a/b/name", "/overlay/a/c"], ""),
            (&["cat", "/overlay/a/c"], "\n"),
            (&["ls", "-l", "/overlay/a"], " c\n"),
            (&["rm", "-r", "/overlay/a"], ""),
            (&["sync"], ""),
            (&["ps"], "[overlay]"),
            (&["kill", "-CONT", "1"], ""),
            (&["mem"], ""),
            (&["top", "-n", "1", "-d", "1"], ""),
            (&["log", "-n", "3"], ""),
            (&["net"], ""),
            (&["programs"], ""),
            (&["symbols", "getpid"], "libc.so.6"),
            (&["bpf", "points"], "sys_enter"),
            (&["bpf", "helpers"], "map_lookup_elem"),
        ] {
            let said = send(&self.client, words, b"");
            assert!(said.code == 0 && said.out.contains(text), "{}: {said:?}", words.join(" "));
        }
        (self.goes_on)();
    }

    /// What is wrong in itself is refused with the reason.
    fn says_what_is_wrong(&self) {
        for (words, code, text) in [
            (&["frobnicate"][..], 127, "no such command"),
            (&["cat", "/no/such/path"], 1, "No such file or directory"),
            (&["run", "nobody"], 1, "no such program"),
            (&["free", "nobody"], 1, "no such program"),
            (&["symbols", "no_such_name"], 1, "no_such_name"),
            (&["bpf", "detach", "nobody"], 1, "nothing of this name"),
        ] {
            let said = send(&self.client, words, b"");
            assert!(i32::from(said.code) == code && said.why.contains(text), "{}: {said:?}", words.join(" "));
        }
        for (name, object, text) in damages(&self.object) {
            let said = send(&self.client, &["load", "-s", &object.len().to_string(), name], &object);
            assert!(said.code == 126 && said.why.contains(text), "{name}: {said:?}");
        }
        let said = send(&self.client, &["bpf", "attach", "unsafe"], &self.unsafe_package);
        assert!(said.code == 126 && said.why.contains("instruction 0: the function ends"), "{said:?}");
        let long = vec![b'x'; 1 << 20];
        assert!(matches!(self.client.start(&[&long], false, 0), Err(LineError::TooLong(..))));
        let mut stream = socket::connect(&self.folder).expect("the socket is there");
        // A frame may say so all the same; it is dismissed in the middle of it.
        let mut giant = frame(Kind::HELLO, 0, 0, b"");
        giant[16..20].copy_from_slice(&(1u32 << 20).to_le_bytes());
        let check = overlay_wire::check(&giant[..20]);
        giant[20..24].copy_from_slice(&check.to_le_bytes());
        giant.resize(1 << 20, b'x');
        let _ = stream.write_all(&giant);
        (self.goes_on)();
    }

    /// Objects and packages that are damaged are refused, or are what the linker and the verifier let through.
    fn survives_damage(&self) {
        let mut numbers = Numbers(5);
        let mut damaged = |good: &[u8], from: usize, to: usize| {
            let mut bytes = good.to_vec();
            for _ in 0..=numbers.below(6) {
                bytes[from + numbers.below(to - from)] = [0, 1, 0x7f, 0xff, 0x40][numbers.below(5)];
            }
            if numbers.below(10) == 0 {
                bytes.truncate(numbers.below(bytes.len()));
            }
            bytes
        };
        let word = |at: usize| self.object[at..at + 8].try_into().map_or(0, u64::from_le_bytes) as usize;
        let sections = word(40);
        for round in 0..150 {
            // The header and the table of sections every other time.
            let (from, to) = match round % 4 {
                0 => (4, 64),
                2 => (sections, self.object.len()),
                _ => (0, self.object.len()),
            };
            let object = damaged(&self.object, from, to);
            let said = send(&self.client, &["load", "-s", &object.len().to_string(), "damaged"], &object);
            assert!(said.code == 126 && !said.why.is_empty() || said.code == 0, "{said:?}");
            if said.code == 0 {
                send(&self.client, &["free", "damaged"], b"");
            }
        }
        (self.goes_on)();
        for _ in 0..150 {
            // Where the programs go, behind the bundle, is the host's word.
            let package = damaged(&self.package, 0, 12 + self.bundle);
            let said = send(&self.client, &["bpf", "attach", "damaged"], &package);
            assert!(said.code == 126 && !said.why.is_empty() || said.code == 0, "{said:?}");
            if said.code == 0 {
                assert_eq!(send(&self.client, &["bpf", "detach", "damaged"], b"").code, 0);
            }
        }
        (self.goes_on)();
    }

    /// A client may go at any byte of what it says, whatever it had begun.
    fn survives_disconnects(&self) {
        let hello = Hello { lowest: 1, highest: 1, client: b"test" }.encode();
        let run = |number: u32, words: &[&str]| {
            let arguments = words.iter().map(|w| w.as_bytes()).collect();
            frame(Kind::RUN, 0, number, &Run { json: false, columns: 80, arguments }.encode())
        };
        let input = |number: u32, bytes: &[u8]| {
            [frame(Kind::STDIN, 0, number, bytes), frame(Kind::STDIN_END, 0, number, b"")].concat()
        };
        let size = self.object.len().to_string();
        let said = [
            frame(Kind::HELLO, 0, 0, &hello),
            run(1, &["run", "-t", "0", "-s", &size, "-k", "2", "mine", "loop"]),
            input(1, &self.object),
            run(2, &["bpf", "attach", "mine"]),
            input(2, &self.package),
            run(3, &["run", "-w", "9", "-t", "9", "faults", "loop-writing"]),
            run(4, &["bpf", "follow", "mine"]),
            run(5, &["cp", "/dev/zero", "/overlay/zeroes"]),
            run(6, &["cat", "/dev/zero"]),
            frame(Kind::INTERRUPT, 0, 1, b""),
            run(7, &["bpf", "map", "mine"]),
            run(8, &["symbols", "s"]),
            run(9, &["bpf", "trace", "own"]),
            input(9, &self.package),
        ]
        .concat();
        let mut numbers = Numbers(6);
        for round in 0..60 {
            let mut stream = socket::connect(&self.folder).expect("the socket is there");
            let end = if round % 6 == 0 { said.len() } else { numbers.below(said.len()) };
            // It may be dismissed before the end.
            let _ = stream.write_all(&said[..end]);
            thread::sleep(Duration::from_millis(numbers.below(30) as u64));
            drop(stream);
            if round % 10 == 9 {
                (self.goes_on)();
            }
        }
        // What was attached to stay is there, and nothing else: not what belonged to a client.
        eventually("the commands of clients that are gone have ended", || {
            send(&self.client, &["bpf", "detach", "mine"], b"");
            let threads = send(&self.client, &["ps"], b"").out.matches("[overlay]").count();
            threads <= 3 && send(&self.client, &["bpf", "list"], b"").out.lines().count() <= 1
        });
        send(&self.client, &["rm", "-f", "/overlay/zeroes"], b"");
        (self.goes_on)();
    }

    /// The functions get programs and lose them a thousand times while they are called.
    fn survives_a_thousand_attachments(&self) {
        let mut hits = 0;
        for cycle in 0..1000 {
            let said = send(&self.client, &["bpf", "attach", "cycle"], &self.package);
            assert_eq!(said.code, 0, "cycle {cycle}: {said:?}");
            if cycle % 100 == 99 {
                (self.goes_on)();
                let list = self.client.run(&["bpf", "list"], true).expect("an answer").out;
                let rows = list.split(|b| *b == b'\n').filter(|l| !l.is_empty());
                let hit = |l: &[u8]| serde_json::from_slice::<serde_json::Value>(l).ok()?["hits"].as_u64();
                hits += rows.map(|l| hit(l).expect("a number")).sum::<u64>();
            }
            assert_eq!(send(&self.client, &["bpf", "detach", "cycle"], b"").code, 0, "cycle {cycle}");
        }
        assert!(hits > 0, "no program was ever hit");
    }

    /// Nothing is left of all that.
    fn is_as_it_was(&self) {
        for name in ["faults", "mine"] {
            send(&self.client, &["free", name], b"");
        }
        assert_eq!(send(&self.client, &["programs"], b"").out, "");
        let maps = send(&self.client, &["cat", "/proc/self/maps"], b"").out;
        assert!(!maps.contains("[overlay]"), "memory of programs is left: {maps}");
    }
}

/// A function that ends before the fifth byte is not probed, and told why.
fn too_short_is_refused(unilith: &Unilith, machine: &str, function: &str) {
    let action = format!("count({function})");
    let ran = unilith.run(&["trace", machine, &action]);
    ran.fails_with(&[function, "it is too short: it ends after", "and a jump takes 5"]);
}

/// A program calls a function of the application as if nobody traced it.
fn programs_call_probed_functions(unilith: &Unilith, client: &Client) {
    let source = unilith.path("version.c");
    let program = "#include <stdio.h>\nextern const char *sqlite3_libversion(void);\n\
                   int main(void) { puts(sqlite3_libversion()); return 0; }\n";
    std::fs::write(&source, program).expect("the scratch directory can be written");
    let object = std::fs::read(build(unilith, &source)).expect("it was just built");
    let run = || run_object(client, &["-k", "3"], "version", &object, &[]);
    let version = run();
    assert!(version.code == 0 && version.out.starts_with("3."), "{version:?}");
    let script = language::compile("count(sqlite3_libversion); count(return sqlite3_libversion)", &|_| None);
    let package = package(client, &script.expect("a script"), |path| path.contains("libsqlite3"));
    let said = send(client, &["bpf", "attach", "version"], &package);
    assert_eq!(said.code, 0, "{said:?}");
    assert_eq!(run().out, version.out);
    assert_eq!(send(client, &["bpf", "detach", "version"], b"").code, 0);
    send(client, &["free", "version"], b"");
}

#[test]
fn nginx_answers_the_same_whatever_the_overlay_is_used_for() {
    if is_without_overlay() {
        return;
    }
    let unilith = Unilith::new();
    let machine = unilith.start(&["-p", "127.0.0.1::80", "nginx"]);
    let at = machine.at(80);
    let (url, page) =
        (format!("http://{at}/"), std::fs::read_to_string(root().join("apps/nginx/index.html")));
    let asking = Asking::nginx(at);
    let goes_on = || asking.goes_on();
    let script = "count(ngx_http_handler); latency(ngx_http_core_run_phases); count(return ngx_palloc)";
    let subject = Subject::new(&unilith, &machine.id, script, &goes_on);
    too_short_is_refused(&unilith, &machine.id, "ngx_event_get_peer");
    subject.takes_every_command();
    subject.says_what_is_wrong();
    subject.survives_faults();
    subject.survives_damage();
    subject.survives_disconnects();
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let load = scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                let ran = client("wrk", &["-t", "1", "-c", "8", "-d", "2s", &url]).ok();
                assert!(!ran.out.contains("Non-2xx") && !ran.out.contains("Socket errors"), "{ran}");
            }
        });
        let worked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            subject.survives_a_thousand_attachments();
        }));
        stop.store(true, Ordering::Relaxed);
        load.join().expect("wrk got what it asked for");
        worked.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    });
    subject.is_as_it_was();
    assert_eq!(client("curl", &["-sS", "--max-time", "30", &url]).ok().out, page.expect("the page"));
}

#[test]
fn sqlite_keeps_its_file_whole_whatever_the_overlay_is_used_for() {
    if is_without_overlay() {
        return;
    }
    let unilith = Unilith::new();
    let database = Database::start(&unilith, "data");
    let goes_on = || database.goes_on();
    let script = "count(sqlite3_step); latency(sqlite3_prepare_v2); count(return sqlite3_column_text)";
    let name = &database.machine.id;
    let subject = Subject::new(&unilith, name, script, &goes_on);
    too_short_is_refused(&unilith, name, "sqlite3_thread_cleanup");
    subject.takes_every_command();
    subject.says_what_is_wrong();
    subject.survives_faults();
    subject.survives_damage();
    subject.survives_disconnects();
    subject.survives_a_thousand_attachments();
    programs_call_probed_functions(&unilith, &subject.client);
    subject.is_as_it_was();
    drop(subject);
    database.end();
}
