// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The prompt of `unilith attach`, as somebody at a terminal sees it.

use unilith_tests::{Machine, Unilith, overlay, terminal};

/// What comes behind the machine's name.
const PROMPT: &str = "> ";

/// A terminal with `unilith attach` in it.
struct Terminal(terminal::Terminal);

impl Terminal {
    #[track_caller]
    fn attach(unilith: &Unilith, machine: &Machine) -> Terminal {
        let mut terminal = Terminal(terminal::Terminal::start(&unilith.command(&["attach", &machine.id])));
        let greeting = terminal.shows("", "Ctrl-D leaves");
        terminal.prompts(&greeting, "Ctrl-D leaves");
        terminal
    }

    #[track_caller]
    fn shows(&mut self, keys: &str, text: &str) -> String {
        self.0.shows(keys, text)
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
        self.0.types("\x15\r");
        shown
    }

    #[track_caller]
    fn leave(mut self) {
        self.0.types("\x04");
        assert_eq!(self.0.ends().0, Some(0));
    }
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
    terminal.enters("cat /etc/hostn\t", "hostname", &machine.id);
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
    terminal.enters("cat /etc/hostname\rsymbols sched_getcpu", &machine.id, "libc.so.6");
    // Ctrl-C gives a line up.
    terminal.shows("rm /etc/hostname", "rm /etc/hostname");
    let shown = terminal.shows("\x03", "\n");
    terminal.prompts(&shown, "\n");
    terminal.enters("cat /etc/hostname", "cat /etc/hostname", &machine.id);
    terminal.considers("kill -CON\t", "-CONT");
    terminal.considers("bpf det\t", "detach");
    terminal.considers("free greet\t", "greeting");
    terminal.leave();
}
