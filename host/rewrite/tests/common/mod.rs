// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The smallest ELF files that hold a snippet of code.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use iced_x86::code_asm::CodeAssembler;

/// Where the snippets are linked.
#[allow(dead_code, reason = "one of the tests that share this module links elsewhere")]
pub const BASE: u64 = 0x400000;
/// File offset and distance from [`BASE`] of the code.
pub const CODE: u64 = 0x1000;

/// An executable of one segment without sections: nothing but the code itself says what is code.
pub fn elf(code: &[u8]) -> Vec<u8> {
    let mut out = vec![0; CODE as usize];
    out[..16].copy_from_slice(&[0x7f, b'E', b'L', b'F', 2, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    let mut put = |at: usize, bytes: &[u8]| out[at..at + bytes.len()].copy_from_slice(bytes);
    put(16, &2u16.to_le_bytes());
    put(18, &62u16.to_le_bytes());
    put(20, &1u32.to_le_bytes());
    put(24, &(BASE + CODE).to_le_bytes());
    put(32, &64u64.to_le_bytes());
    put(52, &64u16.to_le_bytes());
    put(54, &56u16.to_le_bytes());
    put(56, &1u16.to_le_bytes());
    put(64, &1u32.to_le_bytes());
    put(68, &5u32.to_le_bytes());
    put(72, &CODE.to_le_bytes());
    put(80, &(BASE + CODE).to_le_bytes());
    put(88, &(BASE + CODE).to_le_bytes());
    put(96, &(code.len() as u64).to_le_bytes());
    put(104, &(code.len() as u64).to_le_bytes());
    put(112, &4096u64.to_le_bytes());
    out.extend_from_slice(code);
    out
}

pub fn assemble_at(
    address: u64,
    build: impl FnOnce(&mut CodeAssembler) -> Result<(), iced_x86::IcedError>,
) -> Vec<u8> {
    let mut a = CodeAssembler::new(64).unwrap();
    build(&mut a).unwrap();
    a.assemble(address).unwrap()
}
