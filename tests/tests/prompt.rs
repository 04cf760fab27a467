// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The prompt of `unilith attach`, as somebody at a terminal sees it.

use rustix::{
    fs::{Mode, OFlags},
    pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt},
};
use std::{
    fs::File,
    io::{Read, Write},
    process::Child,
    sync::mpsc::{Receiver, RecvTimeoutError, channel},
    thread,
    time::Instant,
};
use unilith_tests::{Machine, PATIENCE, Unilith, overlay};

/// What comes behind the machine's name.
const PROMPT: &str = "> ";

/// A pseudo-terminal with `unilith attach` at its other end.
struct Terminal {
    child: Child,
    keys: File,
    screen: Receiver<Vec<u8>>,
}

impl Terminal {
    #[track_caller]
    fn attach(unilith: &Unilith, machine: &Machine) -> Terminal {
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
        let ours = openpt(flags).expect("a pseudo-terminal");
        grantpt(&ours).and_then(|()| unlockpt(&ours)).expect("it is ours");
        let name = ptsname(&ours, Vec::new()).expect("it has a name");
        let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
        let theirs = File::from(rustix::fs::open(&name, flags, Mode::empty()).expect("its other end"));
        let mut command = unilith.command(&["attach", &machine.id]);
        command.env("TERM", "xterm").stdin(theirs.try_clone().expect("a descriptor"));
        command.stdout(theirs.try_clone().expect("a descriptor")).stderr(theirs);
        let child = command.spawn().expect("unilith runs");
        let keys = File::from(ours);
        let mut reader = keys.try_clone().expect("a descriptor");
        let (sender, screen) = channel();
        thread::spawn(move || {
            let mut buffer = [0; 4096];
            // The end of the other side's last descriptor is an error here (EIO).
            while let Ok(n @ 1..) = reader.read(&mut buffer) {
                if sender.send(buffer[..n].to_vec()).is_err() {
                    return;
                }
            }
        });
        let mut terminal = Terminal { child, keys, screen };
        let greeting = terminal.shows("", "Ctrl-D leaves");
        terminal.prompts(&greeting, "Ctrl-D leaves");
        terminal
    }

    /// Types, and waits until this is on the screen; answers what came since.
    #[track_caller]
    fn shows(&mut self, keys: &str, text: &str) -> String {
        self.keys.write_all(keys.as_bytes()).expect("keys are taken");
        let (mut seen, begin) = (Vec::new(), Instant::now());
        loop {
            let shown = without_controls(&seen);
            if shown.contains(text) {
                return shown;
            }
            match self.screen.recv_timeout(PATIENCE.saturating_sub(begin.elapsed())) {
                Ok(bytes) => seen.extend(bytes),
                Err(RecvTimeoutError::Timeout) => panic!("{keys:?}: no {text:?} in {shown:?}"),
                Err(RecvTimeoutError::Disconnected) => panic!("{keys:?}: it ended: {shown:?}"),
            }
        }
    }

    /// Waits for the prompt behind the last of `shown` that is `text`.
    #[track_caller]
    fn prompts(&mut self, shown: &str, text: &str) {
        if !shown.rsplit(text).next().is_some_and(|rest| rest.contains(PROMPT)) {
            self.shows("", PROMPT);
        }
    }

    /// A line is completed while it is typed; once it is entered, the machine says this.
    #[track_caller]
    fn enters(&mut self, keys: &str, completed: &str, said: &str) {
        self.shows(keys, completed);
        let shown = self.shows("\r", said);
        self.prompts(&shown, said);
    }

    /// A line is completed, and taken back.
    #[track_caller]
    fn considers(&mut self, keys: &str, completed: &str) -> String {
        let shown = self.shows(keys, completed);
        // Taken back (Ctrl-U), which leaves an empty line. What the list of choices shows behind itself is the prompt too, so
        // the next keys may come before the line has ended.
        self.keys.write_all(b"\x15\r").expect("keys are taken");
        shown
    }

    #[track_caller]
    fn leave(mut self) {
        self.keys.write_all(b"\x04").expect("keys are taken");
        // What is still written keeps the other side from waiting for room.
        while self.screen.recv_timeout(PATIENCE).is_ok() {}
        assert_eq!(self.child.wait().expect("it can be waited for").code(), Some(0));
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // Of a test that failed; else it has ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The text without what moves the cursor (ECMA-48 5.4: ESC [, parameters, a final byte), and without carriage returns.
fn without_controls(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let mut parts = text.split("\x1b[");
    let mut shown = parts.next().unwrap_or_default().to_string();
    for part in parts {
        let end = part.find(|c: char| ('@'..='~').contains(&c)).map_or(part.len(), |at| at + 1);
        shown.push_str(&part[end..]);
    }
    shown.replace('\r', "")
}

#[test]
fn commands_paths_signals_programs_and_symbols_are_completed() {
    if unilith_tests::tested_kernel() != "micro" {
        return;
    }
    let unilith = Unilith::new();
    let machine = overlay::redis(&unilith);
    let source = unilith.path("greeting.c");
    let text = "#include <stdio.h>\nint main(void) { puts(\"hello from it\"); return 0; }\n";
    std::fs::write(&source, text).expect("the scratch directory can be written");
    let object = overlay::build(&unilith, &source);
    unilith.run(&["exec", &machine.id, "load", &object]).ok();
    unilith.run(&["exec", &machine.id, "mkdir", "/tmp/a b"]).ok();
    unilith.run(&["exec", &machine.id, "cp", "/etc/hostname", "/tmp/a b/needle"]).ok();
    let mut terminal = Terminal::attach(&unilith, &machine);
    terminal.enters("symb\tgetpid", "symbols getpid", "libc.so.6");
    terminal.enters("cat /etc/hostn\t", "hostname", "redis");
    // In the middle of a line, and with a space.
    terminal.enters("ls -l /tm\ta\t", "b/", "needle");
    terminal.enters("run greet\t", "greeting", "hello from it");
    // Of the application, of its libraries, and what several names have in common.
    terminal.enters("symbols lookupKeyReadWithFl\t", "lookupKeyReadWithFlags", "redis-");
    terminal.enters("symbols sched_getcp\t", "sched_getcpu", "libc.so.6");
    let common = terminal.considers("symbols processComm\t\t", "processCommandAndResetClient");
    assert!(common.contains("processCommand"), "{common:?}");
    // What nothing begins with stays as it was typed.
    terminal.enters(
        "symbols no_such_na\t",
        "no_such_na",
        "no_such_na: no symbol of the application begins like that",
    );
    // What is typed ahead is not lost.
    terminal.enters("cat /etc/hostname\rsymbols sched_getcpu", "redis", "libc.so.6");
    // Ctrl-C gives a line up.
    terminal.shows("rm /etc/hostname", "rm /etc/hostname");
    let shown = terminal.shows("\x03", "\n");
    terminal.prompts(&shown, "\n");
    terminal.enters("cat /etc/hostname", "cat /etc/hostname", "redis");
    terminal.considers("kill -CON\t", "-CONT");
    terminal.considers("bpf det\t", "detach");
    terminal.considers("free greet\t", "greeting");
    terminal.leave();
}
