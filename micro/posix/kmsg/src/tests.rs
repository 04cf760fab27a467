// SPDX-License-Identifier: Apache-2.0 OR MIT
//! These tests use logs of their own: the static one is shared by all tests.

use super::*;
use alloc::format;

fn log() -> Log {
    let mut bytes = VecDeque::new();
    bytes.reserve_exact(BUFFER_SIZE);
    Log { bytes, first: 0, next: 0, on_record: || {} }
}

#[test]
fn records_come_back_as_they_were_kept() {
    let mut log = log();
    log.add(3, 1_234_567_890, format_args!("{} of {}", 1, 2));
    log.add(12, 5, format_args!(""));
    let first = log.at(0).unwrap().unwrap();
    assert_eq!(
        (first.number, first.priority, first.time_ns, &first.text[..]),
        (0, 3, 1_234_567_890, &b"1 of 2"[..])
    );
    let mut out = Vec::new();
    line(&first, "error: ", &mut out).unwrap();
    assert_eq!(out, b"[    1.234567] error: 1 of 2\n");
    assert_eq!(log.at(1).unwrap().unwrap().text, b"");
    assert_eq!(log.at(2).unwrap(), None);
}

#[test]
fn the_oldest_make_way_and_no_memory_is_taken() {
    let mut log = log();
    let room = log.bytes.capacity();
    for i in 0..5000 {
        log.add(6, i, format_args!("line {i} {}", "x".repeat(i as usize % 1500)));
    }
    assert!(log.bytes.len() <= BUFFER_SIZE && log.bytes.capacity() == room);
    assert!(log.first > 4900 && log.next == 5000);
    // What is gone is answered by the first that is there.
    assert_eq!(log.at(0).unwrap().unwrap().number, log.first);
    for number in log.first..log.next {
        let record = log.at(number).unwrap().unwrap();
        assert!(
            record.text.starts_with(format!("line {number} ").as_bytes()) && record.text.len() <= MAX_TEXT
        );
        assert_eq!((record.number, record.time_ns), (number, number));
    }
}
