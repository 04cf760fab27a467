// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The micro kernel's choices together: every two values of two choices meet in a kernel that is built and boots, or are
//! refused with a reason.

use std::process::Command;
use unilith_tests::{
    BUILD_KERNEL, Unilith,
    covering::{Choices, Row},
    finish, tested_machine,
};

/// What the program prints when pipes, files and processes work, and loopback where there is a network.
const SCRIPT: &str = "echo one two > /tmp/words; (cat /tmp/words; echo three) | wc -w; exit 7";
const NETWORK_SCRIPT: &str = "echo one two > /tmp/words; nc -l -p 99 > /tmp/got & i=0; \
                              until nc 127.0.0.1 99 < /tmp/words 2> /dev/null; do i=$((i + 1)); test $i -lt 100 || break; sleep 0.1; done; \
                              wait; (cat /tmp/got; echo three) | wc -w; exit 7";

fn choices(unilith: &Unilith) -> Choices {
    let list = unilith.run(&["menu", "--list", "--json"]).ok().out;
    let mut choices = Choices::read(&list);
    // A program that is not linked with the kernel has no other use for it.
    choices.add_need("nvme", "ext4");
    choices
}

fn value<'a>(row: &'a Row, key: &str) -> &'a str {
    row.iter()
        .find(|(known, _)| known == key)
        .map(|(_, value)| value.as_str())
        .expect("a row has all choices")
}

/// Builds the kernel, runs a shell on it, and looks for what it is to have and to be without.
fn boots(unilith: &Unilith, number: usize, row: &Row) {
    let (machine, name) = (tested_machine(), format!("row-{number}"));
    let set: Vec<String> = row.iter().map(|(key, value)| format!("{key}={value}")).collect();
    eprintln!("{name}: {}", set.join(" "));
    let mut words = vec!["run", "--machine", &machine, "--network", "none", "--name", &name];
    words.extend(set.iter().flat_map(|choice| ["--set", choice]));
    let script = if value(row, "net") == "none" { SCRIPT } else { NETWORK_SCRIPT };
    words.extend(["busybox", "sh", "-c", script]);
    let ran = finish(&mut unilith.command(&words), BUILD_KERNEL);
    assert!(ran.code == Some(7) && ran.out.trim() == "3", "{}: {ran}", set.join(" "));
    let kernel = unilith.inspect(&name)["symbols"].as_str().expect("the kernel is named").to_string();
    let symbols = finish(Command::new("nm").args(["--demangle", &kernel]), BUILD_KERNEL).ok().out;
    let has = |part: &str| symbols.lines().any(|line| line.contains(part));
    for alloc in ["tlsf", "buddy", "mimalloc", "tiny", "region"] {
        let is_chosen = ["alloc", "alloc.net"].iter().any(|key| value(row, key) == alloc);
        assert_eq!(has(&format!("alloc_{alloc}::")), is_chosen, "{name}: {alloc}");
    }
    for (part, key, chosen) in [
        ("alloc_checked::", "heap-check", "on"),
        ("sched_preempt::", "sched", "preemptive"),
        ("sched_coop::", "sched", "cooperative"),
        ("unilith_fault_is_due", "fail-nth", "on"),
        ("calls_ipc::sysv", "sysv-ipc", "on"),
        ("mqueue::", "mqueue", "on"),
        ("calls_keys::", "keys", "on"),
    ] {
        assert_eq!(has(part), value(row, key) == chosen, "{name}: {part}");
    }
    unilith.run(&["rm", &name]).ok();
}

/// A kernel takes a minute to build: of the rows the first one with a network, and of those whose network has a heap of its own the one
/// that differs from it in most choices.
#[test]
fn kernels_that_differ_in_most_choices_boot_and_have_what_was_chosen_alone() {
    let unilith = Unilith::new();
    let rows: Vec<Row> =
        choices(&unilith).rows().into_iter().filter(|row| value(row, "net") != "none").collect();
    let differences = |row: &Row| rows[0].iter().zip(row).filter(|(a, b)| a != b).count();
    let own_heaps = rows.iter().skip(1).filter(|row| value(row, "alloc.net") != "off");
    let other = own_heaps.max_by_key(|row| differences(row)).expect("a row has a heap of the network's own");
    assert!(differences(other) > rows[0].len() / 3, "{other:?} is much like {:?}", rows[0]);
    boots(&unilith, 0, &rows[0]);
    boots(&unilith, 1, other);
}

#[test]
fn every_pair_of_choices_that_cannot_be_together_is_refused_with_both_names() {
    let unilith = Unilith::new();
    let refused = choices(&unilith).refused();
    assert!(refused.len() > 10, "{refused:?}");
    for pair in refused {
        let set = pair.clone().map(|(key, value)| format!("{key}={value}"));
        let mut words = vec!["run", "--rm", "--network", "none"];
        words.extend(set.iter().flat_map(|choice| ["--set", choice]));
        words.push("busybox");
        let said = unilith.run(&words).fails_with(&["--set"]);
        // Of what needs a third, the third is named.
        assert!(set.iter().any(|choice| said.err.contains(choice.as_str())), "{set:?}: {said}");
    }
}

mod long {
    use super::*;

    #[test]
    #[ignore = "builds a kernel for each of some twenty rows"]
    fn every_two_values_of_two_choices_meet_in_a_kernel_that_boots() {
        let unilith = Unilith::new();
        for (number, row) in choices(&unilith).rows().iter().enumerate() {
            boots(&unilith, number, row);
        }
    }
}
