// SPDX-License-Identifier: Apache-2.0 OR MIT
//! DNS messages (RFC 1035 4): reads a machine's question for a name and writes the answer with addresses. What is read comes
//! from a machine, which is not trusted.

use std::net::Ipv4Addr;

const HEADER: usize = 12;
/// A name's labels and their lengths (RFC 1035 2.3.4).
const LONGEST_NAME: usize = 255;
const LONGEST_LABEL: usize = 63;
/// What every resolver takes over UDP (RFC 1035 4.2.1).
const LARGEST_ANSWER: usize = 512;
const TYPE_A: u16 = 1;
const TYPE_AAAA: u16 = 28;
const CLASS_IN: u16 = 1;
const RESPONSE: u16 = 0x8000;
const OPCODE: u16 = 0x7800;
const RECURSION_DESIRED: u16 = 0x0100;
const RECURSION_AVAILABLE: u16 = 0x0080;
const SERVER_FAILED: u16 = 2;
/// The question's name, which every answer repeats: a pointer to it (RFC 1035 4.1.4).
const SAME_NAME: u16 = 0xc000 | HEADER as u16;

/// A question for the addresses of a name.
#[derive(Debug, PartialEq, Eq)]
pub struct Question<'a> {
    /// In lower case, without a dot at its end.
    pub name: String,
    kind: u16,
    flags: u16,
    /// The message up to the question's end.
    head: &'a [u8],
}

/// Reads a message; `None`: it is not one question for the addresses of a name.
pub fn read(message: &[u8]) -> Option<Question<'_>> {
    let number = |at: usize| Some(u16::from_be_bytes(message.get(at..at + 2)?.try_into().ok()?));
    let flags = number(2)?;
    if flags & (RESPONSE | OPCODE) != 0 || number(4)? != 1 {
        return None;
    }
    let mut name = String::new();
    let mut at = HEADER;
    loop {
        let length = usize::from(*message.get(at)?);
        at += 1;
        if length == 0 {
            break;
        }
        // A pointer has nowhere to point to in the first name of a message.
        if length > LONGEST_LABEL || at + length - HEADER > LONGEST_NAME {
            return None;
        }
        let label = message.get(at..at + length)?;
        // A dot within a label is no dot between two, and names of machines have ASCII only.
        if label.iter().any(|c| !c.is_ascii_graphic() || *c == b'.') {
            return None;
        }
        if !name.is_empty() {
            name.push('.');
        }
        name.extend(label.iter().map(|c| char::from(c.to_ascii_lowercase())));
        at += length;
    }
    let (kind, class) = (number(at)?, number(at + 2)?);
    let known = class == CLASS_IN && (kind == TYPE_A || kind == TYPE_AAAA);
    known.then(|| Question { name, kind, flags, head: &message[..at + 4] })
}

impl Question<'_> {
    /// The answer that the name has these addresses; there are none of IPv6. The first one differs from question to question,
    /// so that clients spread.
    pub fn answer(&self, addresses: &[Ipv4Addr]) -> Vec<u8> {
        let addresses = if self.kind == TYPE_A { addresses } else { &[] };
        let room = (LARGEST_ANSWER - self.head.len()) / 16;
        let count = addresses.len().min(room);
        let mut out = self.reply(0, count as u16);
        let first = usize::from(self.head[1]) % addresses.len().max(1);
        for address in addresses.iter().cycle().skip(first).take(count) {
            // For this question only: a machine that is started again has another address.
            for half in [SAME_NAME, TYPE_A, CLASS_IN, 0, 0, 4] {
                out.extend(half.to_be_bytes());
            }
            out.extend(address.octets());
        }
        out
    }

    /// The answer that there is nobody to ask.
    pub fn failed(&self) -> Vec<u8> {
        self.reply(SERVER_FAILED, 0)
    }

    fn reply(&self, code: u16, answers: u16) -> Vec<u8> {
        let flags = RESPONSE | self.flags & RECURSION_DESIRED | RECURSION_AVAILABLE | code;
        let mut out = self.head[..2].to_vec();
        for half in [flags, 1, answers, 0, 0] {
            out.extend(half.to_be_bytes());
        }
        out.extend(&self.head[HEADER..]);
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(name: &str, kind: u16) -> Vec<u8> {
        let mut out = vec![0xab, 3, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
        for label in name.split('.') {
            out.push(label.len() as u8);
            out.extend(label.bytes());
        }
        out.extend([0, (kind >> 8) as u8, kind as u8, 0, 1]);
        out
    }

    #[test]
    fn a_name_has_the_addresses_it_is_given_and_none_of_ipv6() {
        let asked = message("Redis.Front", 1);
        let question = read(&asked).unwrap();
        assert_eq!(question.name, "redis.front");
        let addresses = [2, 6].map(|n| Ipv4Addr::new(10, 44, 0, n));
        let answer = question.answer(&addresses);
        assert_eq!(answer[..12], [0xab, 3, 0x81, 0x80, 0, 1, 0, 2, 0, 0, 0, 0]);
        // The id is odd: it begins with the second.
        assert_eq!(answer[asked.len()..][..16], [0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 0, 0, 4, 10, 44, 0, 6]);
        assert_eq!(answer.len(), asked.len() + 32);
        let asked = message("redis", 28);
        let answer = read(&asked).unwrap().answer(&addresses);
        assert_eq!((answer.len(), &answer[6..8]), (asked.len(), &[0, 0][..]));
        assert_eq!(read(&asked).unwrap().failed()[3] & 15, 2);
    }

    #[test]
    fn an_answer_fits_into_what_every_resolver_takes() {
        let asked = message(&["a".repeat(60), "b".repeat(60)].join("."), 1);
        let many: Vec<Ipv4Addr> = (0..100).map(|n| Ipv4Addr::new(10, 44, 0, n)).collect();
        let answer = read(&asked).unwrap().answer(&many);
        assert!(answer.len() <= 512);
        assert_eq!(usize::from(answer[7]), (answer.len() - asked.len()) / 16);
    }

    #[test]
    fn other_messages_are_left_to_a_server() {
        for kind in [2, 12, 15, 255] {
            assert_eq!(read(&message("redis", kind)), None, "type {kind}");
        }
        let good = message("redis.front", 1);
        for (at, value) in [(2, 0x81), (2, 0x28), (5, 2), (12, 0xc0), (12, 64), (14, b'.'), (14, 0x1b)] {
            let mut other = good.clone();
            other[at] = value;
            assert_eq!(read(&other), None, "byte {at}");
        }
        assert_eq!(read(&message(&vec!["abcdefg"; 40].join("."), 1)), None, "too long");
    }

    /// Mutated questions: whatever is read is a name of printable letters, and its answer a message of bounded size.
    #[test]
    fn damaged_messages_do_no_harm() {
        let good = message("redis.front.example.org", 1);
        let mut seed = 0x9e37_79b9_7f4a_7c15_u64;
        let mut random = || {
            seed ^= seed << 13;
            seed ^= seed >> 7;
            seed ^= seed << 17;
            seed
        };
        let addresses = [Ipv4Addr::LOCALHOST; 40];
        let mut read_well = 0;
        for _ in 0..200_000 {
            let mut bytes = good.clone();
            for _ in 0..random() % 5 {
                let at = random() as usize % bytes.len();
                match random() % 3 {
                    0 => bytes[at] = random() as u8,
                    1 => bytes.truncate(at.max(1)),
                    _ => bytes.insert(at, random() as u8),
                }
            }
            let Some(question) = read(&bytes) else { continue };
            read_well += 1;
            assert!(
                question.name.len() <= LONGEST_NAME && question.name.chars().all(|c| c.is_ascii_graphic())
            );
            let answer = question.answer(&addresses);
            assert!(answer.len() <= LARGEST_ANSWER && answer.len() >= question.head.len());
        }
        assert!(read_well > 10_000, "{read_well}");
    }
}
