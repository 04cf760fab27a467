// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Requests against another end on the host.

use super::*;
use alloc::boxed::Box;
use proptest::prelude::*;
use std::vec;

fn pages(count: usize) -> &'static [Page] {
    Box::leak((0..count).map(|_| Page::default()).collect::<Vec<_>>().into_boxed_slice())
}

fn state() -> (State, &'static Page, &'static [Page]) {
    let (ring, data) = (&pages(1)[0], pages(SLOTS * PIECES));
    (
        State::new(Ring::new(ring, WORDS), data, (1000..1000 + data.len() as u32).collect()).unwrap(),
        ring,
        data,
    )
}

fn memory(offset: usize, length: usize, is_written: bool) -> Gather {
    let frames = (0..(offset + length).div_ceil(PAGE)).map(|_| PageFrame::new().unwrap()).collect();
    Gather { frames, offset, length, is_written }
}

fn request(operation: Operation, sector: u64, memory: Gather) -> Request {
    Request { operation, sector, memory, tag: 7 }
}

fn word(page: &Page, at: usize) -> u32 {
    page.0[at].load(Ordering::Relaxed)
}

/// Answers the request in entry `index`, as the `count`th response.
fn respond(ring: &Page, index: usize, words: [u32; 3]) {
    let at = 16 + WORDS * index;
    words.iter().zip(&ring.0[at..]).for_each(|(value, word)| word.store(*value, Ordering::Relaxed));
    ring.0[2].store(index as u32 + 1, Ordering::Relaxed);
}

#[test]
fn write_is_described_sector_by_sector_and_its_bytes_are_in_the_pages() {
    let (mut state, ring, data) = state();
    let memory = memory(100, 5 * 4096 / 4, false);
    memory.frames[0].write(100, b"begin");
    memory.frames[1].write(0, b"next");
    state.add(WRITE, 51712, request(Operation::Write, 0x1_0000_0002, memory)).unwrap();
    assert!(state.ring.push());
    let words: [u32; 10] = core::array::from_fn(|i| word(ring, 16 + i));
    assert_eq!(words, [1 | (2 << 8) | (51712 << 16), 0, 0, 0, 2, 1, 1000, 7 << 8, 1001, 1 << 8]);
    let mut found = [0; 8];
    read(&data[0], 0, &mut found[..5]);
    assert_eq!(&found[..5], b"begin");
    read(&data[0], 4096 - 100, &mut found[..4]);
    assert_eq!(&found[..4], b"next");
    respond(ring, 0, [0, 0, 1]);
    assert_eq!(state.take().map(|done| (done.tag, done.result)), Some((7, Ok(()))));
    assert!(state.take().is_none());
}

#[test]
fn what_was_read_is_copied_to_memory_that_begins_anywhere() {
    let (mut state, ring, data) = state();
    for (i, page) in data.iter().take(3).enumerate() {
        page.0.iter().enumerate().for_each(|(n, word)| word.store((i * 1024 + n) as u32, Ordering::Relaxed));
    }
    let memory = memory(300, 2 * PAGE, true);
    let frames = memory.frames.clone();
    state.add(READ, 0, request(Operation::Read, 0, memory)).unwrap();
    state.ring.push();
    respond(ring, 0, [0, 0, 0]);
    assert_eq!(state.take().unwrap().result, Ok(()));
    let mut all = vec![0; 3 * PAGE];
    all.chunks_mut(PAGE).zip(&frames).for_each(|(to, frame)| frame.read(0, to));
    let expected: Vec<u8> = (0..2 * PAGE as u32 / 4).flat_map(u32::to_le_bytes).collect();
    assert!(all[300..300 + 2 * PAGE] == expected[..]);
    assert!(all[..300].iter().chain(&all[300 + 2 * PAGE..]).all(|byte| *byte == 0));
}

#[test]
fn error_is_an_error_and_leaves_the_memory_alone() {
    let (mut state, ring, data) = state();
    data[0].0[0].store(u32::MAX, Ordering::Relaxed);
    let memory = memory(0, 512, true);
    let frame = memory.frames[0].clone();
    state.add(READ, 0, request(Operation::Read, 0, memory)).unwrap();
    state.ring.push();
    respond(ring, 0, [0, 0, 0xffff << 16]);
    assert_eq!(state.take().unwrap().result, Err(EIO));
    let mut bytes = [1; 4];
    frame.read(0, &mut bytes);
    assert_eq!(bytes, [0; 4]);
}

#[test]
fn answer_to_nothing_ends_the_work_and_answers_what_is_left() {
    let (mut state, ring, _) = state();
    for _ in 0..SLOTS {
        state.add(READ, 0, request(Operation::Read, 0, memory(0, 512, true))).unwrap();
    }
    assert!(state.add(READ, 0, request(Operation::Read, 0, memory(0, 512, true))).is_err());
    state.ring.push();
    respond(ring, 0, [SLOTS as u32, 0, 0]);
    for _ in 0..SLOTS {
        assert_eq!(state.take().unwrap().result, Err(EIO));
    }
    assert!(state.take().is_none() && state.is_broken);
}

proptest! {
    #[test]
    fn whatever_the_other_end_says_each_request_is_answered_once_at_most(
        steps in proptest::collection::vec((any::<u32>(), any::<u32>(), 0u32..3, 0usize..4096), 1..60)
    ) {
        let (mut state, ring, _) = state();
        let (mut asked, mut answered) = (0, 0);
        for (id, status, more, offset) in steps {
            if !state.is_broken {
                asked += usize::from(state.add(READ, 0, request(Operation::Read, 0, memory(offset, 1024, true))).is_ok());
                state.ring.push();
            }
            for i in 0..32 {
                ring.0[16 + WORDS * i].store(id % 20, Ordering::Relaxed);
                ring.0[16 + WORDS * i + 2].store(status << 16, Ordering::Relaxed);
            }
            ring.0[2].store(word(ring, 2).wrapping_add(more), Ordering::Relaxed);
            while state.take().is_some() {
                answered += 1;
            }
            prop_assert!(answered <= asked);
        }
    }
}
