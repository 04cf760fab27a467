// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Filters of sockets (socket(7), SO_ATTACH_FILTER): a program of classic BPF that says of each packet how much of it its socket gets.

use abi::{Result, errno::*};
use alloc::sync::Arc;
use alloc::vec::Vec;
use api_alloc::Reserve;
use api_lock::SpinLock;
use classic_bpf::packet::{Environment, Packet};
use classic_bpf::{Instruction, Refusal, packet};

/// A program that was checked.
#[derive(Debug, PartialEq, Eq)]
pub struct Filter(Vec<Instruction>);

impl Filter {
    /// Of instructions as `struct sock_filter` has them. `EINVAL`: they are no program.
    pub fn new(bytes: &[u8]) -> Result<Arc<Filter>> {
        let (words, rest) = bytes.as_chunks::<{ Instruction::SIZE }>();
        if !rest.is_empty() {
            return Err(EINVAL);
        }
        let mut program = Vec::new();
        program.reserve_exact_fallibly(words.len()).map_err(|_| ENOMEM)?;
        program.extend(words.iter().map(|word| Instruction::from_word(u64::from_ne_bytes(*word))));
        match packet::check(&program) {
            Ok(()) => Ok(Arc::new(Filter(program))),
            Err(Refusal::Invalid) => Err(EINVAL),
            Err(Refusal::NoMemory) => Err(ENOMEM),
        }
    }

    /// The program as it was given.
    pub fn bytes(&self) -> Result<Vec<u8>> {
        let mut out = Vec::new();
        out.reserve_exact_fallibly(self.0.len() * Instruction::SIZE).map_err(|_| ENOMEM)?;
        self.0.iter().for_each(|i| out.extend_from_slice(&i.to_word().to_ne_bytes()));
        Ok(out)
    }

    /// Bytes of the packet that its socket gets, at most all; `None`: it gets none, and never hears of it.
    pub fn keeps(&self, packet: &Packet<'_>) -> Option<usize> {
        match packet::run(&self.0, packet) as usize {
            0 => None,
            kept => Some(kept.min(packet.data.len())),
        }
    }

    /// What the program answers, of which SO_ATTACH_REUSEPORT_CBPF makes a socket's place in its group.
    pub fn answer(&self, packet: &Packet<'_>) -> u32 {
        packet::run(&self.0, packet)
    }
}

static ENVIRONMENT: SpinLock<Option<&'static dyn Environment>> = SpinLock::new(None);

/// Says where programs have the processor and random numbers from.
pub fn register_environment(environment: &'static dyn Environment) {
    *ENVIRONMENT.lock() = Some(environment);
}

/// Before anybody registered another one.
struct Nowhere;

impl Environment for Nowhere {
    fn processor(&self) -> u32 {
        0
    }

    fn random(&self) -> u32 {
        0
    }
}

/// What a filter can ask for that is not its packet's.
pub fn environment() -> &'static dyn Environment {
    ENVIRONMENT.lock().unwrap_or(&Nowhere)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `ret #5`, and `ldb [0]; ret a`.
    const FIVE: u64 = 5 << 32 | 0x06;
    const FIRST: [u64; 2] = [0x30, 0x16];

    fn filter(words: &[u64]) -> Result<Arc<Filter>> {
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        Filter::new(&bytes)
    }

    #[test]
    fn a_filter_keeps_as_much_as_it_answers_and_is_read_back_as_it_was_given() {
        let five = filter(&[FIVE]).unwrap();
        assert_eq!(five.keeps(&Packet::plain(&[1; 9], &Nowhere)), Some(5));
        assert_eq!(five.keeps(&Packet::plain(&[1; 3], &Nowhere)), Some(3));
        assert_eq!(five.bytes(), Ok(Vec::from(FIVE.to_ne_bytes())));
        let first = filter(&FIRST).unwrap();
        assert_eq!(first.keeps(&Packet::plain(&[2, 7, 7], &Nowhere)), Some(2));
        assert_eq!(first.keeps(&Packet::plain(&[], &Nowhere)), None, "what is not there ends it");
        assert_eq!((filter(&[]).err(), Filter::new(&[6; 7]).err()), (Some(EINVAL), Some(EINVAL)));
    }
}
