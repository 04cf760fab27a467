// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Random programs, attached to a socket of the Linux that the test runs on: it takes the same ones and keeps as much of each
//! packet. `UNILITH_FUZZ_SECONDS=600` goes on that long instead of 20,000 programs.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use classic_bpf::Instruction;
use classic_bpf::packet::{Environment, Packet, check, run};
use std::io::{Error, ErrorKind};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixDatagram;
use std::time::{Duration, Instant};

struct Nothing;

impl Environment for Nothing {
    fn processor(&self) -> u32 {
        0
    }

    fn random(&self) -> u32 {
        0
    }
}

/// `struct sock_fprog`.
#[repr(C)]
struct Program {
    length: u16,
    instructions: *const Instruction,
}

/// Attaches a program; false when Linux refuses it with EINVAL.
fn attach(socket: &UnixDatagram, program: &[Instruction]) -> bool {
    let value = Program { length: program.len() as u16, instructions: program.as_ptr() };
    // SAFETY: the value is a `struct sock_fprog` whose instructions live as long as `program`, and Linux only reads them.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_ATTACH_FILTER,
            (&raw const value).cast(),
            size_of::<Program>() as u32,
        )
    };
    let error = Error::last_os_error();
    assert!(result == 0 || error.raw_os_error() == Some(libc::EINVAL), "{error}");
    result == 0
}

/// Loads whose answers are the processor's or nobody's are left out: CPU and RANDOM.
fn instruction(random: &mut impl FnMut() -> u64) -> Instruction {
    const CODES: [u16; 54] = [
        0x00, 0x20, 0x28, 0x30, 0x40, 0x48, 0x50, 0x60, 0x80, 0x01, 0x61, 0x81, 0xb1, 0x02, 0x03, 0x04, 0x0c,
        0x14, 0x1c, 0x24, 0x2c, 0x34, 0x3c, 0x44, 0x4c, 0x54, 0x5c, 0x64, 0x6c, 0x74, 0x7c, 0x84, 0x94, 0x9c,
        0xa4, 0xac, 0x05, 0x15, 0x1d, 0x25, 0x2d, 0x35, 0x3d, 0x45, 0x4d, 0x06, 0x16, 0x07, 0x87, 0x30, 0x50,
        0x20, 0x28, 0xb1,
    ];
    const FIELDS: [u32; 14] = [0, 4, 8, 12, 16, 20, 24, 28, 32, 40, 44, 48, 52, 60];
    let code = match random() % 40 {
        0 => random() as u16 & 0xff,
        1 => random() as u16,
        n => CODES[(n as usize + random() as usize) % CODES.len()],
    };
    let k = match random() % 8 {
        0 => 0xffff_f000u32.wrapping_add(FIELDS[random() as usize % FIELDS.len()]),
        1 => 0xfff0_0000 + random() as u32 % 40,
        2 => 0xffe0_0000 + random() as u32 % 40,
        3 if random().is_multiple_of(8) => random() as u32,
        _ => random() as u32 % 36,
    };
    Instruction { code, if_true: random() as u8 % 4, if_false: random() as u8 % 4, k }
}

/// Neither of the two fields that differ is asked for.
fn is_sure(program: &[Instruction]) -> bool {
    !program.iter().any(|i| [0xffff_f000u32 + 36, 0xffff_f000 + 56].contains(&i.k))
}

#[test]
fn programs_are_taken_and_answer_as_on_linux() {
    let (sender, receiver) = UnixDatagram::pair().unwrap();
    receiver.set_nonblocking(true).unwrap();
    let seconds = std::env::var("UNILITH_FUZZ_SECONDS").ok().and_then(|s| s.parse().ok());
    let end = seconds.map(|seconds| Instant::now() + Duration::from_secs(seconds));
    // xorshift64 (Marsaglia): the same programs in every run.
    let mut seed = 0x2545_f491_4f6c_dd1du64;
    let mut random = move || {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        seed >> 7
    };
    let (mut taken, mut kept, mut rounds) = (0, 0, 0);
    while end.map_or(rounds < 20_000, |end| Instant::now() < end) {
        rounds += 1;
        let mut program: Vec<_> = (0..random() % 10).map(|_| instruction(&mut random)).collect();
        program.push(Instruction {
            code: [0x06, 0x16][random() as usize % 2],
            k: 7,
            ..Instruction::default()
        });
        let is_taken = attach(&receiver, &program);
        assert_eq!(check(&program).is_ok(), is_taken, "{program:x?}");
        if !is_taken || !is_sure(&program) {
            continue;
        }
        taken += 1;
        for _ in 0..3 {
            let length = random() as usize % 40;
            // Small numbers are lengths and types of attributes, too.
            let packet: Vec<u8> =
                (0..length).map(|_| [random() as u8 % 12, random() as u8][random() as usize % 2]).collect();
            let answer = run(&program, &Packet::plain(&packet, &Nothing)) as usize;
            sender.send(&packet).unwrap();
            let mut got = [0; 64];
            match receiver.recv(&mut got) {
                Ok(n) => {
                    assert_eq!(n, answer.min(length), "{program:x?} on {packet:x?}");
                    assert!(answer > 0 && got[..n] == packet[..n], "{program:x?} on {packet:x?}");
                    kept += 1;
                }
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::WouldBlock);
                    assert_eq!(answer, 0, "{program:x?} on {packet:x?}");
                }
            }
        }
    }
    assert!(taken > rounds / 20 && kept > taken / 2, "{taken} of {rounds} programs, {kept} packets");
}
