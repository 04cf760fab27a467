// SPDX-License-Identifier: Apache-2.0 OR MIT
use super::*;
use std::collections::VecDeque as Model;
use std::vec::Vec;

fn rings(entries: u32, flags: u32, cq_entries: u32) -> (Rings, Params) {
    let mut params = Params { flags, cq_entries, ..Params::default() };
    params.fix(entries).unwrap();
    (Rings::new(&mut params).unwrap(), params)
}

/// What a program does with its side of the memory.
fn set(rings: &Rings, at: u32, word: u32) {
    rings.memory.rings.set_word(at as usize, word);
}

fn reap(rings: &Rings, params: &Params) -> Option<Cqe> {
    let memory = &rings.memory.rings;
    let head = memory.word(params.cq.head as usize);
    if head == memory.word(params.cq.tail as usize) {
        return None;
    }
    let size = if params.has(SETUP_CQE32) { 32 } else { 16 };
    let mut bytes = [0; 16];
    memory.read(params.cq.cqes as usize + (head & (params.cq_entries - 1)) as usize * size, &mut bytes);
    set(rings, params.cq.head, head.wrapping_add(1));
    Some(Cqe {
        user_data: u64::from_ne_bytes(bytes[..8].try_into().unwrap()),
        result: i32::from_ne_bytes(bytes[8..12].try_into().unwrap()),
        flags: u32::from_ne_bytes(bytes[12..].try_into().unwrap()),
    })
}

fn cqe(user_data: u64) -> Cqe {
    Cqe { user_data, result: -1, flags: 3 }
}

#[test]
fn sizes_are_powers_of_two_within_their_limits() {
    let fix = |flags, entries, cq_entries| {
        let mut params = Params { flags, cq_entries, ..Params::default() };
        params.fix(entries).map(|()| (params.sq_entries, params.cq_entries))
    };
    assert_eq!(fix(0, 5, 0), Ok((8, 16)));
    assert_eq!(fix(0, 0, 0), Err(EINVAL));
    assert_eq!(fix(0, MAX_ENTRIES + 1, 0), Err(EINVAL));
    assert_eq!(fix(SETUP_CLAMP, u32::MAX, 0), Ok((MAX_ENTRIES, MAX_CQ_ENTRIES)));
    assert_eq!(fix(SETUP_CQSIZE, 8, 0), Err(EINVAL));
    assert_eq!(fix(SETUP_CQSIZE, 8, 4), Err(EINVAL));
    assert_eq!(fix(SETUP_CQSIZE, 8, 100), Ok((8, 128)));
    assert_eq!(fix(SETUP_TASKRUN_FLAG, 8, 0), Err(EINVAL));
    assert_eq!(fix(SETUP_DEFER_TASKRUN, 8, 0), Err(EINVAL));
    assert_eq!(fix(1 << 14, 8, 0), Err(EINVAL));
}

#[test]
fn completions_without_room_wait_in_order() {
    for flags in [0, SETUP_CQE32] {
        let (mut rings, params) = rings(1, flags, 0);
        (0..5).for_each(|n| rings.post(cqe(n)));
        assert_eq!((rings.completions(), rings.has_overflow()), (2, true));
        assert!(!rings.flush());
        let mut seen = Vec::new();
        for _ in 0..5 {
            seen.push(reap(&rings, &params).unwrap().user_data);
            rings.flush();
        }
        assert_eq!(seen, [0, 1, 2, 3, 4]);
        assert!(rings.flush() && reap(&rings, &params).is_none());
    }
}

#[test]
fn an_entry_that_there_is_not_is_dropped_and_a_tail_from_nowhere_is_as_long_as_the_ring() {
    let (mut rings, params) = rings(4, 0, 0);
    set(&rings, params.sq.array, 4);
    set(&rings, params.sq.array + 4, u32::MAX);
    set(&rings, params.sq.tail, 2);
    assert_eq!([rings.take(), rings.take(), rings.take()], [Taken::Dropped, Taken::Dropped, Taken::Empty]);
    assert_eq!(rings.memory.rings.word(params.sq.dropped as usize), 2);
    set(&rings, params.sq.tail, 0x8000_0000);
    assert_eq!(rings.submissions(), 4);
    // A head of the completion ring that lies before or behind all of it.
    for head in [1, 0x7fff_ffff, u32::MAX] {
        set(&rings, params.cq.head, head);
        assert!(rings.completions() <= rings.cq_entries());
        rings.post(cqe(9));
    }
}

#[test]
fn each_ring_is_mapped_from_its_beginning() {
    let (rings, _) = rings(64, 0, 0);
    let (memory, page) = (rings.memory(), PAGE_SIZE as u64);
    let all = memory.rings.pages() as u64;
    assert_eq!(memory.check_range(0, all), Ok(()));
    assert_eq!(memory.check_range(OFFSET_CQ_RING / page, all), Ok(()));
    assert_eq!(memory.check_range(OFFSET_SQES / page, 1), Ok(()));
    assert_eq!(memory.check_range(OFFSET_SQES / page, 2), Err(EINVAL));
    assert_eq!(memory.check_range(0, all + 1), Err(EINVAL));
    assert_eq!(memory.check_range(1, 1), Err(EINVAL));
    assert!(memory.page(all, true).is_err() && memory.page(u64::MAX, true).is_err());
}

/// Random steps of both sides, against queues without limits.
#[test]
fn rings_agree_with_queues() {
    let (mut rings, params) = rings(8, SETUP_CQSIZE, 16);
    let (mut submitted, mut posted) = (Model::new(), Model::new());
    let (mut tail, mut state) = (0u32, 0x1234_5678_9abc_def1u64);
    for step in 0..200_000u64 {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        match state >> 60 {
            0..=4 if submitted.len() < 8 => {
                let index = (state >> 8) as u32 & 7;
                let mut entry = [0; 64];
                entry[32..40].copy_from_slice(&step.to_ne_bytes());
                // A program does not write over an entry that waits.
                if submitted.iter().all(|(other, _)| *other != index) {
                    rings.memory.sqes.write(index as usize * 64, &entry);
                    set(&rings, params.sq.array + (tail & 7) * 4, index);
                    tail = tail.wrapping_add(1);
                    set(&rings, params.sq.tail, tail);
                    submitted.push_back((index, step));
                }
            }
            5..=8 => match (rings.take(), submitted.pop_front()) {
                (Taken::Entry(sqe), Some((_, expected))) => assert_eq!(sqe.user_data, expected),
                (taken, expected) => assert_eq!((taken, expected), (Taken::Empty, None)),
            },
            9..=11 if posted.len() < 100 => {
                rings.post(cqe(step));
                posted.push_back(step);
            }
            _ => {
                rings.flush();
                assert_eq!(reap(&rings, &params).map(|cqe| cqe.user_data), posted.pop_front());
            }
        }
        assert_eq!(rings.submissions() as usize, submitted.len());
    }
}
