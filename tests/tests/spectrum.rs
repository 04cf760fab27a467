// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Pages that `bench` writes: plots of a program at several levels, and a report on a computer.

use std::fs;
use unilith_tests::{BUILD_KERNEL, Unilith, finish, is_skipped_without_micro};

#[test]
fn the_page_has_a_plot_for_each_figure_and_says_what_did_not_run() {
    if is_skipped_without_micro("these levels are the micro kernel's") {
        return;
    }
    let unilith = Unilith::new();
    let page = unilith.path("page.html");
    let words = [
        "bench",
        "spectrum",
        "sqlite",
        "--level",
        "process",
        "--level",
        "cpl0",
        "--micro-only",
        "--runs",
        "2",
    ];
    let output = ["-o", &page.display().to_string()];
    let ran = finish(&mut unilith.command(&[&words[..], &output].concat()), BUILD_KERNEL).ok();
    let ran = ran
        .complains("page.html is written")
        .says("| inserts in memory | statements/s |")
        .says("Not run: cpl0");
    let html = fs::read_to_string(&page).unwrap();
    let mut reader = quick_xml::Reader::from_str(html.strip_prefix("<!DOCTYPE html>").expect("HTML 5"));
    let (mut plots, mut bars) = (0, 0);
    loop {
        match reader.read_event().unwrap_or_else(|e| panic!("{e} at {}", reader.error_position())) {
            quick_xml::events::Event::Eof => break,
            quick_xml::events::Event::Start(tag) if tag.name().as_ref() == b"svg" => plots += 1,
            quick_xml::events::Event::Empty(tag) if tag.name().as_ref() == b"rect" => bars += 1,
            _ => {}
        }
    }
    // Statements, the whole way, instructions; a process counts none of the last, and the plot says why.
    assert_eq!((plots, bars), (3, 2), "{html}");
    for text in [
        "2 runs of each level",
        "has no clock that counts them",
        "<td>cpl0</td><td>left out: --micro-only</td>",
    ] {
        assert!(html.contains(text), "{text}: {html}");
    }
    assert!(!html.contains("src=") && !html.contains("href="), "it needs other files: {html}");
    // A row of the table has a median, and both runs lie around it.
    let row = ran.out.lines().find(|line| line.starts_with("| inserts")).unwrap();
    let numbers: Vec<f64> = row.split(['|', ' ', '(', ')']).filter_map(|word| word.parse().ok()).collect();
    let [median, least, most] = numbers[..] else { panic!("{row}") };
    assert!(least > 1000.0 && least <= median && median <= most, "{row}");
}

#[test]
fn what_has_no_spectrum_is_refused_with_what_has_one() {
    let unilith = Unilith::new();
    let run = |words: &[&str]| unilith.run(&[&["bench"], words].concat());
    run(&["spectrum"]).fails_with(&["name a program", "redis, nginx, sqlite, memcached"]);
    run(&["spectrum", "lua"]).fails_with(&["lua", "redis, nginx, sqlite, memcached"]);
    run(&["redis", "nginx"]).fails_with(&["only spectrum takes a program"]);
    run(&["spectrum", "sqlite", "--level", "raw"]).fails_with(&["--level raw", "micro, static", "process"]);
    let page = ["spectrum", "sqlite", "--level", "process", "-o", "/proc/nowhere/page.html"];
    run(&page).fails_with(&["/proc/nowhere"]);
}

#[test]
fn a_report_has_the_computer_and_the_figures_and_is_refused_before_anything_runs() {
    let unilith = Unilith::new();
    let run = |words: &[&str]| unilith.run(&[&["bench", "--report"], words].concat());
    run(&["/proc/nowhere/page.md"]).fails_with(&["cannot write /proc/nowhere/page.md"]);
    let page = unilith.path("page.md");
    let path = page.to_string_lossy();
    run(&[&path, "reddis"]).fails_with(&["no experiment `reddis`"]);
    run(&[&path, "spectrum", "redis"]).fails_with(&["--report", "a page of its own"]);
    assert!(!page.exists(), "a page without figures");
    let words = ["bench", "--report", &path, "syscall", "--micro-only", "--runs", "1"];
    finish(&mut unilith.command(&words), BUILD_KERNEL).ok().says(&format!("{path}\n"));
    let page = fs::read_to_string(&page).unwrap();
    let parts =
        ["| processor | ", "| kernel | ", "    ok       QEMU: ", "### syscall: ", "| getppid | ns | "];
    parts.iter().for_each(|part| assert!(page.contains(part), "no {part} in {page}"));
    assert!(!page.contains(" places: "), "{page}");
}
