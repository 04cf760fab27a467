// SPDX-License-Identifier: Apache-2.0 OR MIT
use crate::{File, Kind, NAME_MAX};
use std::string::String;
use std::vec::Vec;

/// This very test program: not stripped, position-independent, dynamically linked.
fn this() -> Vec<u8> {
    std::fs::read(std::env::current_exe().unwrap()).unwrap()
}

#[unsafe(no_mangle)]
pub extern "C" fn unilith_symbols_test_function(x: u64) -> u64 {
    x.wrapping_mul(3)
}

/// Where the program is loaded, from /proc/self/maps.
fn start() -> u64 {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let path = String::from(std::env::current_exe().unwrap().to_str().unwrap());
    let line = maps.lines().find(|l| l.ends_with(&path)).unwrap();
    u64::from_str_radix(line.split('-').next().unwrap(), 16).unwrap()
}

#[test]
fn a_function_of_the_running_program_is_where_the_table_says() {
    let bytes = this();
    let file = File::open(&bytes[..], start()).unwrap();
    let function: extern "C" fn(u64) -> u64 = unilith_symbols_test_function;
    let symbol = file.find(b"unilith_symbols_test_function").unwrap();
    assert_eq!((symbol.address, symbol.kind), (function as usize as u64, Kind::Function));
    let mut name = [0; NAME_MAX];
    let (described, length) = file.describe(symbol.address + 1, &mut name).unwrap();
    assert_eq!((described, &name[..length]), (symbol, &b"unilith_symbols_test_function"[..]));
    let mut found = Vec::new();
    file.each(b"unilith_symbols_test", &mut |name, _| {
        found.push(name.to_vec());
        true
    });
    assert!(found.contains(&b"unilith_symbols_test_function".to_vec()));
    assert_eq!(file.find(b"unilith_symbols_test_functio"), None);
    assert_eq!(file.find(b""), None);
}

#[test]
fn exported_symbols_of_a_library_are_found_by_hash() {
    let path = "/lib/x86_64-linux-gnu/libc.so.6";
    let Ok(bytes) = std::fs::read(path) else {
        std::eprintln!("skipped: needs {path}, which a Debian with glibc has");
        return;
    };
    let file = File::open(&bytes[..], 0x7000_0000_0000).unwrap();
    assert_eq!(file.find(b"printf").unwrap().kind, Kind::Function);
    assert_eq!(file.find(b"memcpy").unwrap().kind, Kind::Indirect);
    assert_eq!(file.find(b"environ").unwrap().kind, Kind::Variable);
    assert!(file.find(b"printf").unwrap().address > 0x7000_0000_0000);
    assert_eq!(file.find(b"no_such_function_anywhere"), None);
}

/// `UNILITH_FUZZ_ROUNDS` says how many, 20,000 otherwise.
#[test]
fn no_file_whatsoever_makes_the_reader_panic() {
    let path = "/lib/x86_64-linux-gnu/libm.so.6";
    let seed = std::fs::read(path).unwrap_or_else(|_| this());
    // The headers, and of the rest as much as makes copies cheap.
    let sections = u64::from_le_bytes(seed[40..48].try_into().unwrap()) as usize;
    let mut small = seed[..16 << 10].to_vec();
    let table = small.len();
    small.extend_from_slice(&seed[sections..]);
    small[40..48].copy_from_slice(&(table as u64).to_le_bytes());
    let rounds: u64 = std::env::var("UNILITH_FUZZ_ROUNDS").map_or(20_000, |n| n.parse().unwrap());
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    let mut random = move |n: u64| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state % n
    };
    let mut name = [0; NAME_MAX];
    for _ in 0..rounds {
        let mut bytes = small.clone();
        for _ in 0..=random(5) {
            let at = match random(3) {
                0 => random(64) as usize,
                1 => table + random((bytes.len() - table) as u64) as usize,
                _ => random(bytes.len() as u64) as usize,
            };
            match random(3) {
                0 => bytes[at] = random(256) as u8,
                1 => bytes[at] = 0xff,
                _ => bytes[at] ^= 1 << random(8),
            }
        }
        if let Some(file) = File::open(&bytes[..], random(1 << 47)) {
            file.find(b"sin");
            file.describe(random(1 << 40), &mut name);
            let mut left = 100;
            file.each(b"", &mut |_, _| {
                left -= 1;
                left > 0
            });
        }
    }
}
