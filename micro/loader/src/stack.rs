// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The initial stack (System V ABI, AMD64 supplement 3.4.1): strings, auxiliary vector, environment, arguments.

use abi::{PAGE_SIZE, Result, errno::*};
use alloc::vec::Vec;
use api_alloc::Reserve;
use mem::{Limits, Prot, Request, Space};

/// Longest single string with its NUL (MAX_ARG_STRLEN).
const LONGEST_STRING: usize = 32 * PAGE_SIZE;
/// Least and most room for all of them (ARG_MAX, and three quarters of _STK_LIM).
const STRINGS: core::ops::RangeInclusive<u64> = (128 << 10)..=(6 << 20);
/// The stack's mapping starts out this much larger than its contents (Linux' stack_expand).
const HEADROOM: u64 = 128 << 10;

/// What goes on the stack.
pub(crate) struct Contents<'a> {
    pub execfn: &'a [u8],
    pub arguments: &'a [Vec<u8>],
    pub environment: &'a [Vec<u8>],
    pub platform: &'a [u8],
    pub random: [u8; 16],
    pub executable: bool,
}

/// Where things ended up.
pub(crate) struct Placed {
    pub pointer: u64,
    pub arguments: (u64, u64),
    pub environment: (u64, u64),
    pub auxv: Vec<u64>,
}

/// Addresses the auxiliary vector needs.
pub(crate) struct Strings {
    pub execfn: u64,
    pub platform: u64,
    pub random: u64,
}

/// Bytes of all strings with their pointers.
fn total(execfn: &[u8], arguments: &[Vec<u8>], environment: &[Vec<u8>]) -> u64 {
    let strings = arguments.iter().chain(environment);
    strings.map(|string| string.len() as u64 + 1 + 8).sum::<u64>() + execfn.len() as u64 + 1
}

/// Whether there is room for all of that: `E2BIG`.
pub(crate) fn check(
    execfn: &[u8],
    arguments: &[Vec<u8>],
    environment: &[Vec<u8>],
    limits: &Limits,
) -> Result<()> {
    let is_long = |string: &Vec<u8>| string.len() >= LONGEST_STRING;
    let room = (limits.stack / 4).clamp(*STRINGS.start(), *STRINGS.end());
    let is_too_much =
        arguments.iter().chain(environment).any(is_long) || total(execfn, arguments, environment) > room;
    if is_too_much { Err(E2BIG) } else { Ok(()) }
}

/// Maps the stack below the layout's top and fills it with what [`check`] has let through; `auxv` makes the vector's pairs from the strings' addresses.
pub(crate) fn build(
    space: &Space,
    contents: &Contents<'_>,
    auxv: impl FnOnce(&Strings) -> Vec<(u64, u64)>,
) -> Result<Placed> {
    let total = total(contents.execfn, contents.arguments, contents.environment);
    let top = space.layout().stack_top;
    let page = PAGE_SIZE as u64;
    // Strings, pointers, and less than a page for vector and padding.
    let size = (total + page).next_multiple_of(page) + HEADROOM;
    let mut rights = Prot::READ.with(Prot::WRITE);
    if contents.executable {
        rights = rights.with(Prot::EXECUTE);
    }
    let request = Request {
        address: top - size,
        place: mem::Place::FixedNoReplace,
        grows_down: true,
        name: "[stack]",
        ..Request::anonymous(size, rights)
    };
    space.map(request).map_err(|_| ENOMEM)?;

    // From the top down: a null word, the file name, then strings in the order they are read upwards.
    let mut block = Vec::new();
    block.reserve_fallibly(total as usize + PAGE_SIZE).map_err(|_| E2BIG)?;
    let strings = contents.arguments.iter().chain(contents.environment).map(|s| s.as_slice());
    let length: usize = strings.clone().map(|s| s.len() + 1).sum::<usize>() + contents.execfn.len() + 1 + 8;
    let start = top - length as u64;
    let mut addresses = Vec::new();
    // Arguments of a byte are a quarter of a million.
    let count = contents.arguments.len() + contents.environment.len() + 1;
    addresses.reserve_exact_fallibly(count).map_err(|_| E2BIG)?;
    for string in strings.chain([contents.execfn]) {
        addresses.push(start + block.len() as u64);
        block.extend_from_slice(string);
        block.push(0);
    }
    block.extend_from_slice(&[0; 8]);
    space.write(start, &block)?;
    let execfn = addresses.pop().unwrap_or(start);
    let count = contents.arguments.len();
    let environment_start = addresses.get(count).copied().unwrap_or(execfn);

    let platform = (start - contents.platform.len() as u64 - 1) & !15;
    let mut word = contents.platform.to_vec();
    word.push(0);
    space.write(platform, &word)?;
    let random = platform - 16;
    space.write(random, &contents.random)?;

    let pairs = auxv(&Strings { execfn, platform, random });
    let vector: Vec<u64> = pairs.into_iter().chain([(0, 0)]).flat_map(|(key, value)| [key, value]).collect();
    let (arguments, environment) = addresses.split_at(count);
    let mut words = Vec::new();
    words.reserve_exact_fallibly(addresses.len() + vector.len() + 3).map_err(|_| E2BIG)?;
    words.push(count as u64);
    words.extend_from_slice(arguments);
    words.push(0);
    words.extend_from_slice(environment);
    words.push(0);
    words.extend_from_slice(&vector);
    let pointer = (random - words.len() as u64 * 8) & !15;
    let bytes: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
    space.write(pointer, &bytes)?;
    Ok(Placed {
        pointer,
        arguments: (start, environment_start),
        environment: (environment_start, execfn),
        auxv: vector,
    })
}
