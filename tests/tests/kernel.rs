// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The micro kernel on each kind of machine, what is in its image, and how programs are fed and end.

use rustix::process::Signal;
use std::{
    fs::{self, File},
    process::Command,
    thread::sleep,
    time::Duration,
};
use unilith_tests::{BUILD_KERNEL, Unilith, finish, signal};

#[test]
fn every_kind_of_machine_boots_it() {
    let unilith = Unilith::new();
    // Each of them may have a kernel to be built first.
    for machine in ["microvm", "qemu", "process"] {
        let words = ["--machine", machine, "--network", "none", "busybox", "echo", "hello"];
        unilith.program_within(&words, BUILD_KERNEL).ok().says("hello");
    }
}

#[test]
fn every_kind_of_machine_may_have_more_memory_than_its_host() {
    let unilith = Unilith::new();
    for machine in ["microvm", "qemu", "process"] {
        let words = ["--machine", machine, "--network", "none", "-m", "512G", "busybox", "free", "-g"];
        let ran = unilith.program_within(&words, BUILD_KERNEL).ok();
        // Less a hole below 4 GiB, and what the map does not reach behind it.
        let total = ran
            .out
            .lines()
            .find_map(|line| line.strip_prefix("Mem:")?.split_whitespace().next()?.parse::<u64>().ok());
        assert!((508..=512).contains(&total.unwrap_or(0)), "{ran}");
    }
}

/// QEMU has room for some 280 bytes of a serial port until somebody reads them. With so many before them a program's last words
/// are in the port yet when it ends.
#[test]
fn last_words_arrive_though_their_reader_is_behind() {
    let unilith = Unilith::new();
    unilith.program_within(&["--machine", "microvm", "busybox", "true"], BUILD_KERNEL).ok();
    for count in [268, 272] {
        let name = format!("behind{count}");
        let script = format!(
            "sleep 3; i=0; while [ $i -lt {count} ]; do echo -n x; i=$((i + 1)); done; echo the last words"
        );
        let machine = ["run", "-d", "--machine", "microvm", "--network", "none", "--name", &name];
        unilith.run(&[&machine[..], &["busybox", "sh", "-c", &script]].concat()).ok();
        let supervisor = unilith.inspect(&name)["state"]["supervisor"]["pid"].as_u64().unwrap() as u32;
        signal(Signal::STOP, supervisor);
        sleep(Duration::from_secs(8));
        signal(Signal::CONT, supervisor);
        unilith.run(&["wait", &name]).ok();
        unilith.run(&["logs", &name]).ok().says("xxthe last words\n");
    }
}

/// Each request for memory of some 170 calls fails once: a call that fails says why, works the next time, and leaves nothing behind.
#[test]
fn every_request_for_memory_is_refused_in_turn_and_no_call_is_the_worse_for_it() {
    let unilith = Unilith::new();
    let machine = unilith_tests::tested_machine();
    let program = unilith_tests::compile(&unilith, &["cc", "-O2", "-pthread"], "faults.c", &[]);
    let parts = ["fail-nth=on", "keys=on", "landlock=on", "tun=on"].map(|choice| ["--set", choice]).concat();
    let words = [&["run", "--rm", "--machine", &machine][..], &parts, &[&program]].concat();
    let ran = finish(&mut unilith.command(&words), BUILD_KERNEL).ok().says("all fault tests passed");
    // This kernel says so where a call asks for a large block that cannot be refused.
    assert!(!ran.out.contains("cannot be refused") && !ran.err.contains("cannot be refused"), "{ran}");
    let refused =
        ran.out.lines().find_map(|line| line.split_once(" requests refused")?.0.parse::<u32>().ok());
    assert!(refused > Some(1000), "{ran}");
}

/// What an image can go without and still serve Redis.
const LEFT_OUT: [&str; 10] = [
    "overlay=off",
    "sysv-ipc=off",
    "aio=off",
    "io_uring=off",
    "keys=off",
    "landlock=off",
    "mqueue=off",
    "inotify=off",
    "volumes=off",
    "packet=off",
];

#[test]
fn families_of_calls_that_are_left_out_answer_enosys_and_are_not_in_the_image() {
    let unilith = Unilith::new();
    let machine = unilith_tests::tested_machine();
    let program = unilith_tests::compile(&unilith, &["cc"], "left_out.c", &[]);
    let mut words = vec!["run", "--machine", &machine, "--name", "lean"];
    words.extend(LEFT_OUT.iter().flat_map(|choice| ["--set", choice]));
    words.push(&program);
    let ran = finish(&mut unilith.command(&words), BUILD_KERNEL).ok().says("all of them are left out");
    ran.complains("system call shmget (29) answers ENOSYS: this kernel was built with --set sysv-ipc=off");
    let kernel = unilith.inspect("lean")["symbols"].as_str().expect("the kernel is named").to_string();
    let symbols = finish(Command::new("nm").args(["--demangle", &kernel]), BUILD_KERNEL).ok().out;
    assert!(symbols.contains("unilith_kernel_main"), "nm sees the kernel's symbols");
    for part in [
        "overlay_line::",
        "overlay_commands::",
        "calls_ipc::sysv",
        "calls_files::aio",
        "uring::",
        "calls_keys::",
        "landlock::",
        "mqueue::",
        "inotify::",
        "ninep::",
        "packet_socket::",
        "tcpip::link",
    ] {
        let found: Vec<&str> = symbols.lines().filter(|l| l.contains(part)).collect();
        assert!(found.is_empty(), "left in the image: {found:?}");
    }
    // The host's directories are among what is left out.
    let mut words = vec!["run", "--machine", &machine, "-v", "/tmp:/data"];
    words.extend(LEFT_OUT.iter().flat_map(|choice| ["--set", choice]));
    words.push(&program);
    finish(&mut unilith.command(&words), BUILD_KERNEL).fails_with(&["/data", "--set volumes=off"]);
}

#[test]
fn input_that_waits_for_the_machine_is_read_from_its_first_byte() {
    let unilith = Unilith::new();
    let text = "abcdefghijklmnopqrstuvwxyz\n".repeat(3);
    std::fs::write(unilith.path("input"), &text).unwrap();
    // What was lost was lost in one of seven runs.
    for _ in 0..12 {
        let machine = unilith_tests::tested_machine();
        let words = ["run", "--rm", "-i", "--machine", &machine, "--network", "none", "busybox", "cat"];
        let mut command = unilith.command(&words);
        command.stdin(std::fs::File::open(unilith.path("input")).unwrap());
        assert_eq!(finish(&mut command, BUILD_KERNEL).ok().out, text);
    }
}

#[test]
fn any_bytes_are_input_and_their_end_is_the_end() {
    let unilith = Unilith::new();
    // What ends the input of terminals, at the start of a line and within one; and no newline at the end.
    let all = (0..=255u8).chain(*b"\n\x04\x10\x04\x10\x10\n\x04 and no newline");
    let bytes: Vec<u8> = all.cycle().take(100_000).collect();
    for (name, bytes) in [("input", &bytes[..]), ("nothing", &[])] {
        let path = unilith.path(name);
        fs::write(&path, bytes).unwrap();
        let input = || File::open(&path).unwrap();
        let sum = finish(Command::new("sha256sum").stdin(input()), BUILD_KERNEL).ok().out;
        for machine in ["microvm", "process"] {
            let words =
                ["run", "--rm", "-i", "--machine", machine, "--network", "none", "busybox", "sha256sum"];
            let said = finish(unilith.command(&words).stdin(input()), BUILD_KERNEL).ok().out;
            assert_eq!(said.trim(), sum.trim(), "{name} of {machine}");
        }
    }
}

#[test]
fn without_i_nobody_types_and_input_is_the_null_device() {
    let unilith = Unilith::new();
    for machine in ["microvm", "process"] {
        let words = ["run", "--rm", "--machine", machine, "--network", "none", "busybox", "sh", "-c"];
        let shows = ["readlink /proc/self/fd/0; ls -lL /dev/stdin | cut -c 1; wc -c; test -t 0; echo $?"];
        let mut command = unilith.command(&[&words[..], &shows].concat());
        // What comes is not for the program, and nobody waits for its end.
        let (input, _writer) = std::io::pipe().unwrap();
        let said = finish(command.stdin(input), BUILD_KERNEL).ok().out;
        assert_eq!(said, "/dev/null\nc\n0\n1\n", "{machine}");
    }
}

#[test]
fn a_shell_runs_pipes_subshells_background_jobs_and_traps() {
    let script = "(exit 3); echo code $?\n\
        printf 'one\\ntwo\\n' | while read word; do echo got $word; done | tail -n 1\n\
        cat <<end\nhere $(echo is) text\nend\n\
        sleep 100 & kill $!; wait $!; echo ended $?\n\
        trap 'echo trapped' USR1; kill -USR1 $$\n\
        exit 7";
    let unilith = Unilith::new();
    let ran = unilith.program(&["busybox", "sh", "-c", script]).code(7);
    for part in ["code 3", "got two", "here is text", "ended 143", "trapped"] {
        assert!(ran.out.lines().any(|line| line.trim_end() == part), "expected `{part}` in {ran}");
    }
}

#[test]
fn the_machine_ends_with_its_first_process_whatever_is_left() {
    let unilith = Unilith::new();
    let ran = unilith.program(&["busybox", "sh", "-c", "sleep 1000 & exit 5"]);
    ran.code(5);
}

#[test]
fn a_crash_prints_the_signal_and_a_backtrace() {
    let unilith = Unilith::new();
    let program = unilith_tests::compile(&unilith, &["cc", "-g", "-O0"], "crash.c", &[]);
    let ran = unilith.program(&[&program]).code(139);
    let all = format!("{}{}", ran.out, ran.err);
    for part in ["SIGSEGV", "rip", "reads_through_null", "main"] {
        assert!(all.contains(part), "expected `{part}` in {ran}");
    }
}

#[test]
fn a_program_that_eats_all_memory_ends_with_a_hint() {
    let unilith = Unilith::new();
    let program = unilith_tests::compile(&unilith, &["cc", "-O1"], "eat.c", &[]);
    let ran = unilith.program(&["-m", "32M", &program]);
    ran.code(137).fails_with(&["ran out of memory", "32 MiB", "try -m 64M"]);
}
