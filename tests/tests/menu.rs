// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `menu` on a terminal: choices are made by keys and written into the project's settings file, and the next image has them.

use std::{fs, process::Command};
use unilith_tests::{
    BUILD_KERNEL, Unilith, finish, is_skipped_without_micro, terminal::Terminal, tested_machine,
};

const MICRO: &str = "the menu is about the micro kernel";
const RIGHT: &str = "\x1b[C";
const UP: &str = "\x1b[A";
const END: &str = "\x1b[F";

/// The menu of the kernel that is there already, so that its first screen is not waited for long.
fn menu(unilith: &Unilith, words: &[&str]) -> (Command, String) {
    let machine = tested_machine();
    let size = [&["size", "-n", "0", "--machine", &machine], words].concat();
    finish(&mut unilith.command(&size), BUILD_KERNEL).ok();
    (unilith.command(&[&["menu", "--machine", &machine], words].concat()), machine)
}

#[test]
fn what_is_chosen_is_written_and_is_in_the_next_image() {
    if is_skipped_without_micro(MICRO) {
        return;
    }
    let unilith = Unilith::new();
    let (command, machine) = menu(&unilith, &["busybox"]);
    let mut terminal = Terminal::start(&command);
    let screen = terminal.shows("", "alloc_region");
    assert!(screen.contains("tcpip") && screen.contains("calls_process"), "{screen}");
    terminal.shows(RIGHT, "alloc=buddy");
    terminal.shows("s", "written");
    terminal.types("q");
    let (code, screen) = terminal.ends();
    assert_eq!(code, Some(0), "{screen}");
    let file = unilith.path("unilith.toml");
    let written = fs::read_to_string(&file).unwrap();
    assert!(
        written.contains("[set]\nalloc = \"buddy\"\n") && written.contains("busybox-static"),
        "{written}"
    );
    let words = ["size", "--format", "{{.Library}}", "--machine", &machine];
    let libraries = finish(&mut unilith.command(&words), BUILD_KERNEL).ok().out;
    assert!(libraries.lines().any(|line| line == "alloc_buddy"), "{libraries}");
    assert!(libraries.lines().all(|line| line != "alloc_tlsf"), "{libraries}");

    // Of the project that is there now: a conflict is explained, and nothing is written.
    let mut terminal = Terminal::start(&unilith.command(&["menu", "--machine", &machine]));
    terminal.shows("", "alloc_region");
    // The last choice but two.
    terminal.shows(END, "musl");
    terminal.shows(UP, "off");
    terminal.shows(UP, "ninep");
    terminal.shows(RIGHT, "overlay=on");
    terminal.shows("s", "not");
    terminal.shows("q", "again");
    terminal.types("q");
    let (code, screen) = terminal.ends();
    assert_eq!(code, Some(0), "{screen}");
    assert_eq!(fs::read_to_string(&file).unwrap(), written);
    // A second project in its place is refused.
    let mut terminal = Terminal::start(&unilith.command(&["menu", "busybox"]));
    terminal.shows("", "unilith.toml is there already");
    assert_eq!(terminal.ends().0, Some(1));
}

#[test]
fn a_program_of_ones_own_becomes_a_project_that_runs() {
    if is_skipped_without_micro(MICRO) {
        return;
    }
    let unilith = Unilith::new();
    fs::copy("/bin/echo", unilith.path("program")).expect("the scratch directory can be written");
    let (command, machine) = menu(&unilith, &["./program"]);
    let mut terminal = Terminal::start(&command);
    terminal.shows("", "alloc_region");
    terminal.shows("s", "written");
    terminal.types("q");
    assert_eq!(terminal.ends().0, Some(0));
    assert_eq!(fs::read_to_string(unilith.path("unilith.toml")).unwrap(), "program = \"./program\"\n");
    let words = ["run", "--rm", "--machine", &machine, "--network", "none"];
    finish(&mut unilith.command(&words), BUILD_KERNEL).ok();
}

#[test]
fn without_a_terminal_it_says_what_to_do() {
    let unilith = Unilith::new();
    for words in [&["menu"][..], &["menu", "busybox"]] {
        unilith.run(words).fails_with(&[
            "needs a terminal",
            "unilith run --set KEY=VALUE",
            "unilith.toml",
            "unilith size",
        ]);
    }
}
