// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Maps and helpers, by programs that use them.

use super::asm::*;
use super::{Machine, check, new_maps, run, spec};
use crate::context::Context;
use crate::helpers::id;
use crate::insn::{Insn, alu, jump};
use crate::interpreter;
use crate::jit::compile;
use crate::maps::{Kind, Map, MapError, update};
use std::vec::Vec;

/// Counts calls in element 1 of the array, as `count(function)` does.
fn counter() -> Vec<Insn> {
    [
        &[st(4, 10, -4, 1), movr(2, 10), op(alu::ADD, 2, -4)][..],
        &map(1, 0),
        &[
            call(id::MAP_LOOKUP),
            jmp(jump::JEQ, 0, 0, 2),
            mov(1, 1),
            atomic_add(8, 0, 0, 1),
            mov(0, 0),
            exit(),
        ],
    ]
    .concat()
}

#[test]
fn counting_needs_no_vector_register_and_no_helper() {
    let program = check(&counter(), Context::Registers).unwrap();
    let (maps, machine) = (new_maps(), Machine::default());
    let compiled = compile(&program, &maps);
    assert!(compiled.plain);
    // rax, rdi, rsi and the scratch register of the look-up.
    assert_eq!(compiled.changes, Some(1 | 1 << 7 | 1 << 6 | 1 << 10));
    for _ in 0..5 {
        interpreter::run(&program, &maps, &machine, &[0; 168], &[]).unwrap();
    }
    let mut value = [0; 16];
    maps[0].read_value(1, 0, &mut value);
    assert_eq!(value[0], 5);
    assert_eq!(run(&counter(), Context::Registers).values[1][4], 1);
}

#[test]
fn only_a_program_that_leaves_its_context_alone_may_do_without_it() {
    let changes = |insns: &[&[Insn]]| {
        let program = check(&insns.concat(), Context::Registers).unwrap_or_else(|r| panic!("{r}"));
        compile(&program, &new_maps()).changes
    };
    let end = [mov(0, 0), exit()];
    assert_eq!(changes(&[&end]), Some(1));
    assert_eq!(
        changes(&[&map_value(1, 0, 0), &[mov(2, 1), atomic_add(8, 1, 0, 2)], &end]),
        Some(1 | 1 << 7 | 1 << 6)
    );
    // What the caller wants back is not among them.
    assert_eq!(changes(&[&[mov(1, 1), movr(6, 1), movr(9, 10)], &end]), Some(1 | 1 << 7));
    assert_eq!(changes(&[&[movr(6, 1)], &end]), None);
    assert_eq!(changes(&[&[ld(8, 1, 1, 0)], &end]), None);
    assert_eq!(changes(&[&[call(id::KTIME_GET_NS)], &end]), None);
    // Behind a jump it is not followed.
    assert_eq!(changes(&[&[mov(0, 0), jmp(jump::JEQ, 0, 0, 0)], &end]), None);
}

#[test]
fn a_hash_table_holds_what_was_put_there_until_it_is_deleted() {
    let map = Map::new(spec("h", Kind::Hash, 5, 3, 4), 1).unwrap();
    for i in 0..4u8 {
        map.update(&[i; 5], &[i; 3], 0, 0).unwrap();
    }
    assert_eq!(map.update(&[9; 5], &[9; 3], 0, 0), Err(MapError::Full));
    assert_eq!(map.update(&[1; 5], &[7; 3], update::NEW_ONLY, 0), Err(MapError::Exists));
    assert_eq!(map.update(&[8; 5], &[7; 3], update::EXISTING_ONLY, 0), Err(MapError::Missing));
    assert_eq!(map.update(&[8; 5], &[7; 3], 3, 0), Err(MapError::Invalid));
    map.delete(&[2; 5]).unwrap();
    assert_eq!(map.delete(&[2; 5]), Err(MapError::Missing));
    map.update(&[9; 5], &[9; 3], 0, 0).unwrap();
    let mut keys = Vec::new();
    let mut slot = 0;
    while let Some(found) = map.next(slot) {
        let (mut key, mut value) = ([0; 5], [0; 3]);
        map.read_key(found, &mut key);
        map.read_value(found, 0, &mut value);
        assert_eq!(key[0], value[0]);
        keys.push(key[0]);
        slot = found + 1;
    }
    keys.sort_unstable();
    assert_eq!(keys, [0, 1, 3, 9]);
}

#[test]
fn a_hash_table_agrees_with_the_standard_library_over_many_changes() {
    let map = Map::new(spec("h", Kind::Hash, 4, 8, 50), 1).unwrap();
    let mut model = std::collections::HashMap::new();
    let mut random = super::Random(42);
    for _ in 0..50_000 {
        let key = (random.below(80) as u32).to_le_bytes();
        let value = random.next();
        match random.below(3) {
            0 => assert_eq!(map.delete(&key).is_ok(), model.remove(&key).is_some()),
            1 => {
                let fits = model.contains_key(&key) || model.len() < 50;
                assert_eq!(map.update(&key, &value.to_le_bytes(), 0, 0).is_ok(), fits);
                if fits {
                    model.insert(key, value);
                }
            }
            _ => {
                let found = map.find(&key).map(|slot| {
                    let mut value = [0; 8];
                    map.read_value(slot, 0, &mut value);
                    u64::from_le_bytes(value)
                });
                assert_eq!(found, model.get(&key).copied());
            }
        }
    }
}

#[test]
fn a_ring_buffer_keeps_order_across_its_end_and_drops_what_does_not_fit() {
    let map = Map::new(spec("r", Kind::RingBuffer, 0, 0, 4096), 1).unwrap();
    let ring = map.ring().unwrap();
    let mut random = super::Random(7);
    let (mut next, mut expected) = (0u64, 0u64);
    for _ in 0..20_000 {
        if random.below(2) == 0 {
            let length = 8 + random.below(600);
            if let Some(at) = ring.reserve(map.memory(), length) {
                map.memory().write(at, &next.to_le_bytes());
                next += 1;
                ring.finish(map.memory(), at, true);
            }
        } else {
            map.take_record(&mut |r| {
                assert_eq!(u64::from_le_bytes(r[..8].try_into().unwrap()), expected);
                expected += 1;
            });
        }
    }
    while map.take_record(&mut |_| expected += 1) {}
    assert_eq!(next, expected);
    assert!(ring.reserve(map.memory(), 5000).is_none());
    // A record that is still being written holds back those behind it.
    let first = ring.reserve(map.memory(), 8).unwrap();
    let second = ring.reserve(map.memory(), 8).unwrap();
    ring.finish(map.memory(), second, true);
    assert!(!map.take_record(&mut |_| {}));
    ring.finish(map.memory(), first, false);
    let mut records = 0;
    while map.take_record(&mut |_| records += 1) {}
    assert_eq!(records, 1);
}

#[test]
fn per_processor_values_are_apart() {
    let map = Map::new(spec("p", Kind::PerCpuHash, 4, 8, 2), 3).unwrap();
    map.update(&[1; 4], &[5; 8], 0, 0).unwrap();
    map.update(&[1; 4], &[6; 8], 0, 2).unwrap();
    let slot = map.find(&[1; 4]).unwrap();
    let value = |cpu| {
        let mut v = [0; 8];
        map.read_value(slot, cpu, &mut v);
        v[0]
    };
    assert_eq!([value(0), value(1), value(2)], [5, 0, 6]);
}

#[test]
fn printing_formats_as_linux_does() {
    let text = b"%d %u %x %llx %c %%|%4d|%04d|%p\0";
    let mut insns = Vec::new();
    for (i, chunk) in text.chunks(8).enumerate() {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        insns.extend(wide(1, u64::from_le_bytes(word)));
        insns.push(stx(8, 10, -64 + 8 * i as i16, 1));
    }
    // Three values only: the fourth makes it fail with EINVAL.
    insns.extend([movr(1, 10), op(alu::ADD, 1, -64), mov(2, 32), mov(3, -1), mov(4, 7), mov(5, 255)]);
    insns.extend([call(id::TRACE_PRINTK), exit()]);
    let outcome = run(&insns, Context::Registers);
    assert_eq!(outcome.result as i64, -22);
    let insns: Vec<Insn> = {
        let mut i = insns.clone();
        i[0..2].copy_from_slice(&wide(1, u64::from_le_bytes(*b"%d|%5u|%")));
        i[3..5].copy_from_slice(&wide(1, u64::from_le_bytes(*b"04x\0\0\0\0\0")));
        i
    };
    let outcome = run(&insns, Context::Registers);
    assert_eq!(outcome.printed, ["-1|    7|00ff"]);
}

#[test]
fn memory_of_the_traced_program_is_copied_or_zeroed() {
    // Address 5 is none in this machine.
    for (address, expected) in [(6, 0), (5, -14i64)] {
        let insns = [
            st(8, 10, -8, -1),
            movr(1, 10),
            op(alu::ADD, 1, -8),
            mov(2, 8),
            mov(3, address),
            call(id::PROBE_READ_USER),
            movr(6, 0),
            ld(8, 0, 10, -8),
            jmp(jump::JNE, 6, 0, 1),
            mov(0, 1),
            jmp(jump::JEQ, 6, 0, 1),
            opr(alu::ADD, 0, 6),
            exit(),
        ];
        let result = run(&insns, Context::Registers).result as i64;
        assert_eq!(result, if expected == 0 { 1 } else { expected });
    }
}

#[test]
fn stacks_are_filed_once() {
    let insns = [
        &[movr(6, 1)][..],
        &map(2, 4),
        &[mov(3, 0), call(id::GET_STACKID), movr(7, 0), movr(1, 6)],
        &map(2, 4),
        &[mov(3, 0), call(id::GET_STACKID), opr(alu::SUB, 0, 7), exit()],
    ]
    .concat();
    let outcome = run(&insns, Context::Registers);
    assert_eq!(outcome.result, 0);
    let stack: Vec<_> = outcome.values.iter().filter(|v| v.len() == 68).collect();
    assert_eq!(stack.len(), 1);
    assert_eq!((stack[0][4], stack[0][12], stack[0][20]), (0x10, 0x20, 0x30));
}
