// SPDX-License-Identifier: Apache-2.0 OR MIT
use super::seccomp::{Data, answer_by_number, check, run};
use super::*;

const ALLOW: u32 = 0x7fff_0000;

fn i(code: u16, k: u32) -> Instruction {
    Instruction { code, if_true: 0, if_false: 0, k }
}

fn jump(code: u16, k: u32, if_true: u8, if_false: u8) -> Instruction {
    Instruction { code: JMP | code, if_true, if_false, k }
}

fn call(number: u32, arguments: [u64; 6]) -> Data {
    Data { number, architecture: 0xc000_003e, instruction_pointer: 0x1122_3344_5566_7788, arguments }
}

fn answer(program: &[Instruction], data: &Data) -> u32 {
    assert_eq!(check(program), Ok(()), "{program:x?}");
    run(program, data)
}

#[test]
fn calls_are_told_apart_by_number_architecture_and_arguments() {
    let program = [
        i(LD | ABS, 4),
        jump(JEQ, 0xc000_003e, 1, 0),
        i(RET, 0),
        i(LD | ABS, 0),
        jump(JEQ, 39, 0, 3),
        i(LD | ABS, 16),
        jump(JGT, 10, 0, 1),
        i(RET, 0x5_0001),
        i(RET, ALLOW),
    ];
    assert_eq!(answer(&program, &call(39, [11, 0, 0, 0, 0, 0])), 0x5_0001);
    assert_eq!(answer(&program, &call(39, [10, 0, 0, 0, 0, 0])), ALLOW);
    assert_eq!(answer(&program, &call(40, [11, 0, 0, 0, 0, 0])), ALLOW);
    assert_eq!(answer(&program, &Data { architecture: 0x4000_0003, ..call(39, [0; 6]) }), 0);
}

#[test]
fn what_the_number_alone_decides_is_known_beforehand() {
    let program = [
        i(LD | ABS, 4),
        jump(JEQ, 0xc000_003e, 0, 6),
        i(LD | ABS, 0),
        jump(JEQ, 39, 0, 3),
        i(LD | ABS, 16),
        jump(JGT, 10, 0, 1),
        i(RET, 0x5_0001),
        i(RET, ALLOW),
        i(RET, 0),
    ];
    let decided = |number, architecture| answer_by_number(&program, number, architecture);
    assert_eq!(decided(40, 0xc000_003e), Some(ALLOW));
    assert_eq!(decided(39, 0xc000_003e), None, "its first argument decides");
    assert_eq!(decided(39, 3), Some(0));
}

#[test]
fn every_word_of_the_call_is_where_linux_has_it() {
    let arguments = [1u64, 2, 3, 4, 5, 6].map(|n| n << 32 | (n + 10));
    let data = call(7, arguments);
    let word = |offset| answer(&[i(LD | ABS, offset), i(RET | A, 0)], &data);
    assert_eq!([word(0), word(4), word(8), word(12)], [7, 0xc000_003e, 0x5566_7788, 0x1122_3344]);
    for n in 0..6 {
        assert_eq!([word(16 + 8 * n), word(20 + 8 * n)], [n + 11, n + 1]);
    }
    assert_eq!(answer(&[i(LD | LEN, 0), i(RET | A, 0)], &data), 64);
    assert_eq!(answer(&[i(LDX | LEN, 0), i(MISC | TXA, 0), i(RET | A, 0)], &data), 64);
}

#[test]
fn arithmetic_is_of_words_without_sign() {
    let of = |a: u32, code: u16, k: u32| {
        answer(&[i(LD | IMM, a), i(ALU | code, k), i(RET | A, 0)], &call(0, [0; 6]))
    };
    assert_eq!(of(u32::MAX, ADD, 2), 1);
    assert_eq!(of(1, SUB, 2), u32::MAX);
    assert_eq!(of(0x1_0000, MUL, 0x1_0001), 0x1_0000);
    assert_eq!(of(7, DIV, 2), 3);
    assert_eq!(of(0b1100, AND, 0b1010), 0b1000);
    assert_eq!(of(0b1100, OR, 0b1010), 0b1110);
    assert_eq!(of(0b1100, XOR, 0b1010), 0b0110);
    assert_eq!((of(3, LSH, 31), of(0x8000_0000, RSH, 31)), (0x8000_0000, 1));
    assert_eq!(of(5, NEG, 0), 5u32.wrapping_neg());
    let by = |x: u32, code: u16| {
        let program = [i(LDX | IMM, x), i(LD | IMM, 12), i(ALU | code | X, 0), i(RET | A, 0)];
        answer(&program, &call(0, [0; 6]))
    };
    assert_eq!((by(5, DIV), by(0, DIV), by(33, LSH)), (2, 0, 24));
}

#[test]
fn memory_is_kept_and_read_only_where_it_was_written_on_every_way() {
    let data = call(9, [0; 6]);
    let swap = [i(LD | ABS, 0), i(ST, 15), i(LD | IMM, 1), i(LDX | MEM, 15), i(MISC | TXA, 0), i(RET | A, 0)];
    assert_eq!(answer(&swap, &data), 9);
    assert_eq!(check(&[i(LD | MEM, 0), i(RET | A, 0)]), Err(Refusal::Invalid));
    let one_way = [i(LD | ABS, 0), jump(JEQ, 1, 0, 1), i(ST, 3), i(LD | MEM, 3), i(RET | A, 0)];
    assert_eq!(check(&one_way), Err(Refusal::Invalid));
    let both_ways = [i(ST, 3), jump(JEQ, 1, 0, 1), i(STX, 3), i(LD | MEM, 3), i(RET | A, 0)];
    assert_eq!(check(&both_ways), Ok(()));
}

#[test]
fn what_is_no_such_program_is_refused() {
    let end = i(RET, ALLOW);
    let bad: [&[Instruction]; 22] = [
        &[],
        &[i(LD | IMM, 0)],
        &[i(LD | ABS, 64), end],
        &[i(LD | ABS, 2), end],
        &[i(LD | ABS | 0x08, 0), end],
        &[i(LD | ABS | 0x10, 0), end],
        &[i(LD | 0x40, 0), end],
        &[i(LDX | 0xa0, 0), end],
        &[i(LDX | ABS, 0), end],
        &[i(LD | MEM, 16), end],
        &[i(ST, 16), end],
        &[i(ALU | DIV, 0), end],
        &[i(ALU | 0x90, 3), end],
        &[i(ALU | LSH, 32), end],
        &[i(ALU | NEG | X, 0), end],
        &[i(JMP | JA, 1), end],
        &[i(JMP | JA, u32::MAX), end],
        &[jump(JEQ, 0, 1, 0), end],
        &[jump(JEQ, 0, 0, 1), end],
        &[jump(0x50, 0, 0, 0), end],
        &[i(RET | X, 0)],
        &[i(0x100 | RET, 0)],
    ];
    for program in bad {
        assert_eq!(check(program), Err(Refusal::Invalid), "{program:x?}");
    }
    assert_eq!(check(&vec![end; MAX_INSTRUCTIONS]), Ok(()));
    assert_eq!(check(&vec![end; MAX_INSTRUCTIONS + 1]), Err(Refusal::Invalid));
}

/// Programs of words that come from outside: whatever they are, they are refused or end.
#[test]
fn programs_of_random_words_end() {
    let mut seed = 0x9e37_79b9_7f4a_7c15u64;
    let mut random = move || {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        seed
    };
    let codes: Vec<u16> = (0..=0xff).filter(|code| (0..3).any(|k| is_accepted(*code, k))).collect();
    assert_eq!(codes.len(), 41, "as many as Linux has for filters of system calls");
    let mut accepted = 0;
    for _ in 0..20_000 {
        let length = (random() % 12) as usize;
        let mut program: Vec<Instruction> = (0..length)
            .map(|_| Instruction {
                code: if random() % 50 == 0 {
                    random() as u16
                } else {
                    codes[random() as usize % codes.len()]
                },
                if_true: (random() % 4) as u8,
                if_false: (random() % 4) as u8,
                k: [0, 1, 4, 16, 60, 3, random() as u32][random() as usize % 7],
            })
            .collect();
        program.push(i(RET | A, 0));
        if check(&program).is_ok() {
            accepted += 1;
            run(&program, &call(random() as u32, [random(); 6]));
        }
    }
    assert!(accepted > 500, "{accepted}");
}

/// Alone, or behind a store for loads of memory.
fn is_accepted(code: u16, k: u32) -> bool {
    check(&[i(ST, k), i(code, k), i(RET, 0), i(RET, 0)]).is_ok()
}

mod packets {
    use super::*;
    use crate::packet::{Environment, Interface, Packet, check, run};

    struct Seven;

    impl Environment for Seven {
        fn processor(&self) -> u32 {
            7
        }

        fn random(&self) -> u32 {
            0x7777
        }
    }

    const AD: u32 = 0xffff_f000;
    const NET: u32 = 0xfff0_0000;
    const LINK: u32 = 0xffe0_0000;

    fn udp() -> Packet<'static> {
        Packet {
            data: &[0, 53, 0x80, 1, 0, 11, 0, 0, b'a', b'b', b'c'],
            link_length: 0,
            network: &[0x45, 0, 0, 31, 0, 0, 0, 0, 64, 17, 0, 0, 127, 0, 0, 1, 127, 0, 0, 2],
            link: Some(&[1, 1, 1, 1, 1, 1, 2, 2, 2, 2, 2, 2, 8, 0]),
            protocol: 0x800,
            kind: 2,
            interface: Some(Interface { index: 3, hardware: 772 }),
            payload: 8,
            environment: &Seven,
        }
    }

    fn answers(program: &[Instruction], packet: &Packet<'_>) -> u32 {
        assert_eq!(check(program), Ok(()), "{program:x?}");
        run(program, packet)
    }

    fn load(code: u16, k: u32) -> u32 {
        answers(&[i(LD | code, k), i(RET | A, 0)], &udp())
    }

    #[test]
    fn bytes_are_read_from_the_packet_and_from_the_headers_in_front_of_it() {
        assert_eq!([load(ABS, 0), load(H | ABS, 0), load(B | ABS, 10)], [0x35_8001, 53, u32::from(b'c')]);
        assert_eq!([load(ABS, 8), load(H | ABS, 10), load(B | ABS, 11)], [0; 3], "not all of it is there");
        assert_eq!([load(B | ABS, NET + 9), load(ABS, NET + 18), load(ABS, NET + 28)], [17, 0x2_0035, 0]);
        assert_eq!(
            [load(H | ABS, LINK + 12), load(ABS, LINK + 12), load(B | ABS, LINK + 44)],
            [0x800, 0x800_4500, u32::from(b'c')]
        );
        let bare = Packet::plain(b"xyz", &Seven);
        let of_bare = |k| answers(&[i(LD | B | ABS, k), i(RET | A, 0)], &bare);
        assert_eq!([of_bare(2), of_bare(NET + 1), of_bare(LINK)], [u32::from(b'z'), u32::from(b'y'), 0]);
        // ldxb 4*([k]&0xf); ldb [x + k]
        let behind_header = [i(LDX | B | MSH, NET), i(LD | B | IND, NET.wrapping_sub(12)), i(RET | A, 0)];
        assert_eq!(answers(&behind_header, &udp()), 64, "offsets are numbers of 32 bits that wrap");
        assert_eq!(load(LEN, 0), 11);
        let remainder = [i(LD | LEN, 0), i(ALU | MOD, 4), i(RET | A, 0)];
        assert_eq!(answers(&remainder, &udp()), 3);
        assert_eq!(answers(&[i(LD | LEN, 0), i(ALU | MOD | X, 0), i(RET, 9)], &udp()), 0, "by nothing");
    }

    #[test]
    fn what_is_known_about_a_packet_has_offsets_of_its_own() {
        let fields: Vec<u32> = (0..16).map(|n| load(ABS, AD + 4 * n)).collect();
        assert_eq!(fields, [0x800, 2, 3, 0, 0, 0, 0, 772, 0, 7, 0, 0, 0, 8, 0x7777, 0]);
        assert_eq!(load(H | ABS, AD + 4), 2, "of any size");
        assert_eq!(check(&[i(LD | ABS, AD + 64), i(RET, 0)]), Err(Refusal::Invalid));
        assert_eq!(check(&[i(LD | ABS, AD + 1), i(RET, 0)]), Err(Refusal::Invalid));
        let xor = [i(LD | IMM, 12), i(LDX | IMM, 10), i(LD | ABS, AD + 40), i(RET | A, 0)];
        assert_eq!(answers(&xor, &udp()), 6);
        let no_device = [i(LD | IMM, 3), i(LD | ABS, AD + 8), i(RET, 5)];
        assert_eq!(answers(&no_device, &Packet::plain(b"x", &Seven)), 3);
    }

    #[test]
    fn attributes_of_netlink_are_found_by_their_type() {
        let data = [5, 0, 1, 0, b'x', 0, 0, 0, 12, 0, 2, 0x80, 8, 0, 3, 0, 1, 2, 3, 4];
        let find = |from: u32, kind: u32, field: u32| {
            let program = [i(LDX | IMM, kind), i(LD | IMM, from), i(LD | ABS, AD + field), i(RET | A, 0)];
            answers(&program, &Packet::plain(&data, &Seven))
        };
        assert_eq!([find(0, 1, 12), find(0, 2, 12), find(0, 3, 12), find(99, 1, 12)], [0, 8, 0, 0]);
        assert_eq!([find(8, 3, 16), find(8, 2, 16), find(0, 3, 16), find(18, 3, 16)], [12, 0, 0, 0]);
    }

    #[test]
    fn filters_of_system_calls_have_none_of_these_loads() {
        for code in
            [LD | H | ABS, LD | B | ABS, LD | IND, LD | B | IND, LDX | B | MSH, ALU | MOD, ALU | MOD | X]
        {
            let program = [i(code, 4), i(RET, 0)];
            assert_eq!(check(&program), Ok(()));
            assert_eq!(crate::seccomp::check(&program), Err(Refusal::Invalid), "{code:#x}");
        }
    }
}
