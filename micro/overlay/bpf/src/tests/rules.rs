// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Programs of which it is known whether Linux accepts them (for a privileged user, with strict alignment; cases in
//! the manner of tools/testing/selftests/bpf/verifier), and what the verifier says of them.

use super::asm::*;
use super::{check, run};
use crate::context::Context;
use crate::helpers::id;
use crate::insn::{Insn, LD_IMM64, X, alu, atomic, class, jump};
use std::string::ToString;
use std::vec::Vec;

fn rejected(parts: &[&[Insn]], why: &str) {
    rejected_for(Context::Registers, parts, why);
}

fn rejected_for(context: Context, parts: &[&[Insn]], why: &str) {
    match check(&parts.concat(), context) {
        Ok(_) => panic!("accepted, though: {why}"),
        Err(r) => assert!(r.to_string().contains(why), "{r}\nis not about: {why}"),
    }
}

fn accepted(parts: &[&[Insn]]) -> Vec<Insn> {
    let insns = parts.concat();
    check(&insns, Context::Registers).unwrap_or_else(|r| panic!("{r}"));
    insns
}

/// r0 = the value of array element `key`, or null.
fn look_up(key: i32) -> Vec<Insn> {
    [&[st(4, 10, -4, key), movr(2, 10), op(alu::ADD, 2, -4)][..], &map(1, 0), &[call(id::MAP_LOOKUP)]]
        .concat()
}

fn reserve(size: i32) -> Vec<Insn> {
    [&map(1, 2)[..], &[mov(2, size), mov(3, 0), call(id::RINGBUF_RESERVE)]].concat()
}

const OUT: [Insn; 2] = [mov_const(0, 0), Insn::new(class::JMP | jump::EXIT, 0, 0, 0, 0)];

const fn mov_const(dst: u8, imm: i32) -> Insn {
    Insn::new(class::ALU64 | alu::MOV, dst, 0, 0, imm)
}

#[test]
fn the_shape_of_a_program_is_checked() {
    rejected(&[], "empty");
    rejected(&[&[mov(0, 1)]], "past the end");
    rejected(&[&[ja(5)], &OUT], "jumps out of the program");
    rejected(&[&[ja(-2)], &OUT], "jumps out of the program");
    rejected(&[&[ja(1)], &OUT, &OUT], "no path leads");
    rejected(&[&[jmp(jump::JEQ, 1, 0, 1)], &wide(2, 5), &OUT], "middle of a 64-bit load");
    rejected(&[&[Insn::new(LD_IMM64, 1, 0, 0, 0)], &OUT], "second half");
    rejected(&[&[mov(10, 0)], &OUT], "frame pointer");
    rejected(&[&[mov(11, 0)], &OUT], "no such register");
    rejected(&[&[Insn::new(0xff, 0, 0, 0, 0)], &OUT], "no eBPF instruction");
    rejected(&[&[Insn::new(class::ALU64 | alu::MOV, 1, 2, 0, 0)], &OUT], "has to be zero");
    rejected(&[&[Insn::new(0x20, 0, 0, 0, 0)], &OUT], "legacy packet access");
    rejected(&[&[mov(1, 1), op(alu::DIV, 1, 0)], &OUT], "divides by zero");
    rejected(&[&[mov(1, 1), op(alu::LSH, 1, 64)], &OUT], "width of the register");
    rejected(&[&[call(9999)], &OUT], "no helper 9999");
    rejected(&[&[call(12)], &OUT], "tail calls");
    rejected(&[&map(1, 5), &OUT], "no map with this number");
}

#[test]
fn registers_and_stack_are_written_before_they_are_read() {
    rejected(&[&[exit()]], "r0, its result");
    rejected(&[&[movr(0, 2), exit()]], "r2 is read");
    rejected(&[&[ld(8, 0, 10, -8), exit()]], "reads the stack at -8");
    rejected(&[&[st(4, 10, -8, 1), ld(8, 0, 10, -8), exit()]], "reads the stack at -4");
    rejected(&[&[call(id::KTIME_GET_NS), movr(0, 1), exit()]], "r1 is read");
    // On one of two paths only.
    rejected(&[&[ld(8, 1, 1, 0), jmp(jump::JEQ, 1, 0, 1), mov(2, 1), movr(0, 2), exit()]], "r2 is read");
    accepted(&[&[st(8, 10, -8, 7), ld(8, 0, 10, -8), exit()]]);
    accepted(&[&[st(4, 10, -8, 7), st(4, 10, -4, 7), ld(8, 0, 10, -8), exit()]]);
    // A helper sees no uninitialised byte either.
    rejected(
        &[&[st(2, 10, -4, 0), movr(2, 10), op(alu::ADD, 2, -4)], &map(1, 0), &[call(id::MAP_LOOKUP)], &OUT],
        "the helper would see the stack at -2",
    );
}

#[test]
fn the_stack_has_bounds_and_alignment() {
    rejected(&[&[st(8, 10, 0, 0)], &OUT], "would touch the stack");
    rejected(&[&[st(8, 10, -520, 0)], &OUT], "would touch the stack");
    rejected(&[&[st(8, 10, -12, 0)], &OUT], "no multiple");
    rejected(&[&[st(1, 10, -513, 0)], &OUT], "would touch the stack");
    accepted(&[&[st(8, 10, -512, 0)], &OUT]);
    // A bounded number may choose the place, an unbounded one may not.
    let choose = |bound: &[Insn]| {
        [
            &[st(8, 10, -8, 0), st(8, 10, -16, 0), ld(8, 2, 1, 0)][..],
            bound,
            &[movr(3, 10), op(alu::ADD, 3, -16), opr(alu::ADD, 3, 2), ld(8, 0, 3, 0), exit()],
        ]
        .concat()
    };
    accepted(&[&choose(&[op(alu::AND, 2, 8)])]);
    rejected(&[&choose(&[op(alu::AND, 2, 24)])], "would touch the stack");
    rejected(&[&choose(&[op(alu::AND, 2, 15)])], "no multiple");
    rejected(&[&choose(&[])], "check its bounds");
}

#[test]
fn values_of_maps_are_checked_for_null_bounds_and_alignment() {
    rejected(&[&look_up(0), &[ld(8, 0, 0, 0), exit()]], "may be null");
    rejected(&[&look_up(0), &[jmp(jump::JNE, 0, 0, 1), ld(8, 1, 0, 0)], &OUT], "is a number");
    accepted(&[&look_up(0), &[jmp(jump::JEQ, 0, 0, 1), ld(8, 1, 0, 8)], &OUT]);
    rejected(
        &[&look_up(0), &[jmp(jump::JEQ, 0, 0, 1), ld(8, 1, 0, 16)], &OUT],
        "bytes 16 to 23 of the map's value, which has 16",
    );
    rejected(&[&look_up(0), &[jmp(jump::JEQ, 0, 0, 1), ld(8, 1, 0, -1)], &OUT], "bytes -1");
    rejected(&[&look_up(0), &[jmp(jump::JEQ, 0, 0, 1), ld(4, 1, 0, 2)], &OUT], "no multiple");
    // A copy made before the check is checked with it.
    accepted(&[&look_up(0), &[movr(6, 0), jmp(jump::JEQ, 0, 0, 1), st(8, 6, 0, 1)], &OUT]);
    // A pointer that may be null is not moved.
    rejected(
        &[&look_up(0), &[op(alu::ADD, 0, 4), jmp(jump::JEQ, 0, 0, 1), ld(4, 1, 0, 0)], &OUT],
        "may be null",
    );
    rejected(&[&map_value(1, 3, 0), &[st(8, 1, 0, 5)], &OUT], "read-only");
    rejected(&[&map_value(1, 3, 16), &OUT], "known ahead only for arrays");
    rejected(&[&map_value(1, 1, 0), &OUT], "known ahead only for arrays");
    rejected(&[&map(1, 0), &[ld(8, 0, 1, 0), exit()]], "nothing can be read");
}

#[test]
fn comparisons_bound_offsets_both_ways() {
    let by = |test: &[Insn]| {
        [
            &look_up(0)[..],
            &[jmp(jump::JEQ, 0, 0, test.len() as i16 + 3), ld(8, 2, 10, -8)],
            test,
            &[opr(alu::ADD, 0, 2), ld(1, 1, 0, 0)],
            &OUT,
        ]
        .concat()
    };
    let store = [ld(8, 3, 1, 0), stx(8, 10, -8, 3)];
    let prepare = |test: &[Insn]| [&store[..], &[movr(6, 1)], &by(test)].concat();
    // look_up writes 4 bytes at -4: the number is kept deeper.
    let deeper = |insns: Vec<Insn>| -> Vec<Insn> {
        insns.into_iter().map(|i| if i.off == -8 { Insn { off: -16, ..i } } else { i }).collect()
    };
    accepted(&[&deeper(prepare(&[jmp(jump::JGT, 2, 15, 2)]))]);
    accepted(&[&deeper(prepare(&[jmp(jump::JGE, 2, 16, 2)]))]);
    rejected(&[&deeper(prepare(&[jmp(jump::JGT, 2, 16, 2)]))], "bytes 0 to 16 of the map's value");
    // A signed comparison alone leaves negative numbers.
    rejected(&[&deeper(prepare(&[jmp(jump::JSGT, 2, 15, 2)]))], "check its bounds");
    accepted(&[&deeper(prepare(&[jmp(jump::JSGT, 2, 15, 3), jmp(jump::JSLT, 2, 0, 2)]))]);
    accepted(&[&deeper(prepare(&[op(alu::MOD, 2, 16)]))]);
    accepted(&[&deeper(prepare(&[op(alu::RSH, 2, 60)]))]);
    // 32-bit: what is compared is the lower half, and the copy has zeros above.
    accepted(&[&deeper(prepare(&[jmp32(jump::JGT, 2, 15, 3), mov32r(2, 2)]))]);
    rejected(&[&deeper(prepare(&[jmp32(jump::JGT, 2, 15, 2)]))], "check its bounds");
}

#[test]
fn loops_with_a_bound_are_accepted_and_others_are_not() {
    accepted(&[&[mov(0, 0), op(alu::ADD, 0, 1), jmp(jump::JLT, 0, 1000, -2), exit()]]);
    rejected(&[&[mov(0, 0), ja(-1), exit()]], "no path leads");
    rejected(&[&[mov(0, 0), ld(8, 2, 1, 0), jmp(jump::JEQ, 2, 0, -2), exit()]], "a loop without end");
    rejected(&[&[mov(0, 0), op(alu::ADD, 0, 1), jmp(jump::JNE, 0, 0, -2), exit()]], "not proved to end");
    // The bound is read from memory, then limited.
    let limited = |limit: &[Insn]| {
        [&[ld(8, 2, 1, 0)][..], limit, &[mov(0, 0), op(alu::ADD, 0, 1), jmpr(jump::JLT, 0, 2, -2), exit()]]
            .concat()
    };
    accepted(&[&limited(&[op(alu::AND, 2, 63)])]);
    rejected(&[&limited(&[])], "not proved to end");
    let rounds =
        [mov(0, 0), mov(1, 0), op(alu::ADD, 1, 1), op(alu::ADD, 0, 3), jmp(jump::JNE, 1, 100, -3), exit()];
    assert_eq!(run(&rounds, Context::Registers).result, 300);
}

#[test]
fn pointers_do_not_become_numbers() {
    rejected(&[&[movr(0, 10), exit()]], "would return a pointer");
    rejected(&[&map_value(2, 0, 0), &[stx(8, 2, 0, 10)], &OUT], "stored outside of the stack");
    rejected(&[&[op(alu::MUL, 1, 2)], &OUT], "only be moved by adding");
    rejected(&[&[op32(alu::ADD, 1, 2)], &OUT], "32-bit arithmetic on a pointer");
    rejected(&[&[mov32r(0, 1), exit()]], "copied in part");
    rejected(&[&[jmpr(jump::JGT, 1, 10, 0)], &OUT], "compared with something");
    rejected(&[&[stx(8, 10, -8, 1), ld(4, 0, 10, -8), exit()]], "read in part");
    rejected(&[&[stx(4, 10, -8, 1)], &OUT], "stored in part");
    rejected(&[&map_value(2, 0, 0), &[atomic_add(8, 2, 0, 1)], &OUT], "atomic operations are on numbers");
    accepted(&[&[stx(8, 10, -8, 1), ld(8, 2, 10, -8), ld(8, 0, 2, 0), exit()]]);
    // Half overwritten, it is neither.
    rejected(&[&[stx(8, 10, -8, 1), st(4, 10, -8, 0), ld(8, 0, 10, -8), exit()]], "reads the stack at -4");
    rejected(
        &[&[stx(8, 10, -8, 1), movr(1, 10), op(alu::ADD, 1, -8), mov(2, 8), call(id::PUTS)], &OUT],
        "the pointer that is saved",
    );
}

#[test]
fn the_context_is_read_where_its_fields_are() {
    accepted(&[&[ld(8, 0, 1, 112), exit()]]);
    accepted(&[&[ld(4, 0, 1, 112), exit()]]);
    rejected(&[&[ld(8, 0, 1, 168), exit()]], "where no field is");
    rejected(&[&[ld(8, 0, 1, -8), exit()]], "where no field is");
    rejected(&[&[ld(8, 0, 1, 4), exit()]], "where no field is");
    rejected(&[&[st(8, 1, 0, 0)], &OUT], "writes to the context");
    rejected(&[&[ld(8, 2, 1, 0), opr(alu::ADD, 1, 2), ld(8, 0, 1, 0), exit()]], "fixed offsets only");
    rejected(&[&[ld(8, 2, 1, 0), ld(8, 0, 2, 0), exit()]], "r2 is a number, not a pointer");
}

#[test]
fn packets_are_read_up_to_where_they_were_compared_with_their_end() {
    let read = |bytes: i32, size: u32, off: i16, compare: u8| {
        [
            ld(8, 2, 1, 0),
            ld(8, 3, 1, 8),
            movr(4, 2),
            op(alu::ADD, 4, bytes),
            jmpr(compare, 4, 3, 2),
            ld(size, 0, 2, off),
            exit(),
            mov(0, 0),
            exit(),
        ]
    };
    for (bytes, size, off) in [(14, 2, 12), (14, 1, 13), (40, 8, 32)] {
        let insns = read(bytes, size, off, jump::JGT);
        assert_ne!(run(&insns, Context::Packet).result, 0);
    }
    rejected_for(Context::Packet, &[&read(14, 2, 13, jump::JGT)], "of which 14 are known");
    rejected_for(Context::Packet, &[&read(14, 1, -1, jump::JGT)], "bytes -1");
    rejected_for(Context::Packet, &[&read(14, 1, 0, jump::JLT)], "of which 0 are known");
    rejected_for(Context::Packet, &[&[ld(8, 2, 1, 0), st(1, 2, 0, 0)], &OUT], "packets are read-only");
    rejected_for(Context::Packet, &[&[ld(4, 2, 1, 0)], &OUT], "where no field is");
}

#[test]
fn helpers_get_what_they_want() {
    rejected(&[&[mov(1, 0), mov(2, 0), call(id::MAP_LOOKUP)], &OUT], "wants a map in r1");
    rejected(&[&map(1, 2), &[movr(2, 10), call(id::MAP_LOOKUP)], &OUT], "does not work on map ring");
    rejected(&[&map(1, 0), &[mov(2, 0), call(id::MAP_LOOKUP)], &OUT], "r2 is a number");
    // A size that is not bounded, that may be zero, and one that is right.
    let read = |size: &[Insn], helper: i32| {
        [
            &[ld(8, 2, 1, 0), ld(8, 3, 1, 8)][..],
            size,
            &[movr(1, 10), op(alu::ADD, 1, -64), call(helper)],
            &OUT,
        ]
        .concat()
    };
    rejected(&[&read(&[], id::PROBE_READ)], "check its upper bound");
    rejected(&[&read(&[op(alu::AND, 2, 63)], id::PROBE_READ)], "where on some path nothing was written");
    rejected(&[&read(&[mov(2, 65)], id::PROBE_READ)], "would touch the stack");
    rejected(&[&read(&[mov(2, 0)], id::GET_CURRENT_COMM)], "may be zero");
    accepted(&[&read(&[mov(2, 64)], id::PROBE_READ)]);
    rejected(&[&[movr(2, 1), mov(1, 0), call(id::GET_CURRENT_COMM)], &OUT], "wants a number in r2");
    rejected(&[&[op(alu::ADD, 1, 8), call(id::GET_FUNC_IP)], &OUT], "as it was given in r1");
}

#[test]
fn records_are_handed_back_once() {
    let submit = [movr(1, 6), mov(2, 0), call(id::RINGBUF_SUBMIT)];
    let got = [jmp(jump::JNE, 0, 0, 2), mov(0, 0), exit(), movr(6, 0)];
    let good = accepted(&[&reserve(16), &got, &[st(8, 6, 0, 5), st(8, 6, 8, 6)], &submit, &OUT]);
    assert_eq!(run(&good, Context::Registers).records, [[5, 0, 0, 0, 0, 0, 0, 0, 6, 0, 0, 0, 0, 0, 0, 0]]);
    rejected(&[&reserve(16), &got, &OUT], "neither submitted nor discarded");
    rejected(&[&reserve(16), &OUT], "neither submitted nor discarded");
    rejected(&[&reserve(16), &got, &submit, &[st(8, 6, 0, 5)], &OUT], "r6 is read");
    rejected(&[&reserve(16), &got, &submit, &submit, &OUT], "r6 is read");
    rejected(&[&reserve(16), &got, &[st(8, 6, 16, 5)], &submit, &OUT], "bytes 16 to 23 of the record");
    rejected(&[&reserve(16), &[movr(6, 0)], &submit, &OUT], "may be null");
    rejected(
        &[&reserve(16), &got, &[op(alu::ADD, 6, 8)], &submit, &OUT],
        "wants a record as ringbuf_reserve gave it",
    );
    rejected(
        &[&[ld(8, 2, 1, 0)], &map(1, 2), &[mov(3, 0), call(id::RINGBUF_RESERVE)], &OUT],
        "a known number",
    );
    rejected(&[&look_up(0), &[movr(1, 0), mov(2, 0), call(id::RINGBUF_SUBMIT)], &OUT], "wants a record");
}

#[test]
fn functions_have_their_own_registers_and_share_the_stack() {
    let add = [movr(0, 1), opr(alu::ADD, 0, 2), exit()];
    let insns =
        accepted(&[&[mov(1, 40), mov(2, 2), mov(6, 9), call_local(2), opr(alu::ADD, 0, 6), exit()], &add]);
    assert_eq!(run(&insns, Context::Registers).result, 51);
    rejected(&[&[mov(1, 1), call_local(1), exit(), movr(0, 6), exit()]], "r6 is read");
    rejected(&[&[call_local(1), exit(), call_local(-1), exit()]], "calls itself");
    rejected(&[&[call_local(1), exit(), movr(0, 10), exit()]], "pointer to its own stack");
    // A pointer to the callee's stack left behind in the caller's.
    rejected(
        &[&[
            movr(1, 10),
            op(alu::ADD, 1, -8),
            call_local(2),
            mov(0, 0),
            exit(),
            stx(8, 1, 0, 10),
            mov(0, 0),
            exit(),
        ]],
        "outlive the function",
    );
    // The callee writes to the caller's stack.
    let through = accepted(&[&[
        movr(1, 10),
        op(alu::ADD, 1, -8),
        call_local(2),
        ld(8, 0, 10, -8),
        exit(),
        st(8, 1, 0, 33),
        mov(0, 0),
        exit(),
    ]]);
    assert_eq!(run(&through, Context::Registers).result, 33);
    let deep = |a: i16, b: i16| [st(8, 10, a, 0), call_local(1), exit(), st(8, 10, b, 0), mov(0, 0), exit()];
    accepted(&[&deep(-256, -256)]);
    rejected(&[&deep(-264, -256)], "bytes of stack");
}

#[test]
fn branches_that_cannot_be_taken_are_not_walked() {
    // The bad load is behind a comparison that never holds.
    accepted(&[&[mov(2, 5), jmp(jump::JGT, 2, 5, 2), mov(0, 0), exit(), ld(8, 0, 2, 0), exit()]]);
    // A constant of read-only data decides.
    accepted(&[
        &map_value(2, 3, 0),
        &[ld(8, 3, 2, 0), jmp(jump::JEQ, 3, 3, 2), ld(8, 0, 3, 0), exit()],
        &OUT,
    ]);
}

#[test]
fn atomics_do_what_they_say() {
    let fetch = |operation: i32| {
        [
            st(8, 10, -8, 12),
            mov(2, 10),
            mov(0, 12),
            atomic_op(8, operation, 10, -8, 2),
            ld(8, 3, 10, -8),
            op(alu::MUL, 3, 1000),
            movr(0, 2),
            opr(alu::ADD, 0, 3),
            exit(),
        ]
    };
    for (operation, memory, register) in [
        (atomic::ADD | atomic::FETCH, 22, 12),
        (atomic::OR | atomic::FETCH, 14, 12),
        (atomic::AND | atomic::FETCH, 8, 12),
        (atomic::XOR | atomic::FETCH, 6, 12),
        (atomic::XCHG, 10, 12),
        (atomic::CMPXCHG, 10, 10),
        (atomic::ADD, 22, 10),
    ] {
        assert_eq!(
            run(&fetch(operation), Context::Registers).result,
            memory * 1000 + register,
            "{operation:#x}"
        );
    }
    rejected(&[&[mov(2, 1), atomic_add(8, 1, 0, 2)], &OUT], "on the stack, values of maps and records only");
    rejected(&[&[mov(2, 1), atomic_add(8, 10, -8, 2)], &OUT], "reads the stack at -8");
}

#[test]
fn division_has_an_answer_for_everything() {
    let divide = |a: u64, b: u64, operation: u8, signed: i16| {
        let d = Insn::new(class::ALU64 | operation | X, 0, 1, signed, 0);
        run(&[&wide(0, a)[..], &wide(1, b), &[d, exit()]].concat(), Context::Registers).result
    };
    assert_eq!(divide(7, 0, alu::DIV, 0), 0);
    assert_eq!(divide(7, 0, alu::MOD, 0), 7);
    assert_eq!(divide(i64::MIN as u64, u64::MAX, alu::DIV, 1), i64::MIN as u64);
    assert_eq!(divide(i64::MIN as u64, u64::MAX, alu::MOD, 1), 0);
    assert_eq!(divide(-7i64 as u64, 2, alu::DIV, 1), -3i64 as u64);
    assert_eq!(divide(-7i64 as u64, 2, alu::MOD, 1), -1i64 as u64);
}
