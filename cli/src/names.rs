// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Names and numbers for machines that were given none.

const ADJECTIVES: [&str; 48] = [
    "able", "amber", "bold", "brave", "bright", "brisk", "calm", "clear", "clever", "cool", "crisp",
    "daring", "deft", "eager", "early", "fair", "fine", "fond", "frank", "free", "gentle", "glad", "grand",
    "happy", "keen", "kind", "light", "lively", "lucid", "merry", "mild", "neat", "nimble", "noble",
    "patient", "plain", "proud", "quick", "quiet", "rapid", "ready", "sharp", "silent", "smart", "steady",
    "sunny", "swift", "wise",
];
/// People who built machines or said what machines can do.
const NOUNS: [&str; 48] = [
    "abbate",
    "allen",
    "babbage",
    "backus",
    "bartik",
    "bell",
    "boole",
    "borg",
    "cerf",
    "cray",
    "dijkstra",
    "easley",
    "engelbart",
    "floyd",
    "goldberg",
    "gray",
    "hamilton",
    "hamming",
    "hoare",
    "holberton",
    "hopper",
    "iverson",
    "karp",
    "kay",
    "keller",
    "kilby",
    "knuth",
    "lamport",
    "liskov",
    "lovelace",
    "mccarthy",
    "moore",
    "naur",
    "nygaard",
    "perlman",
    "ritchie",
    "rivest",
    "scott",
    "shannon",
    "stibitz",
    "strachey",
    "tarjan",
    "thompson",
    "turing",
    "wilkes",
    "wilson",
    "wirth",
    "zuse",
];

/// Random bytes; the kernel's generator does not fail once the system has booted.
fn random<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    let filled = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty());
    debug_assert_eq!(filled, Ok(N));
    bytes
}

/// Twelve hexadecimal digits.
pub fn id() -> String {
    random::<6>().iter().map(|b| format!("{b:02x}")).collect()
}

/// Sixty-four hexadecimal digits: the name of a volume that was given none, as with docker.
pub fn of_volume() -> String {
    random::<32>().iter().map(|b| format!("{b:02x}")).collect()
}

/// Whether a volume was given no name.
pub fn is_of_volume(name: &str) -> bool {
    name.len() == 64 && name.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
}

/// `adjective_noun`.
pub fn name() -> String {
    let [a, b] = random::<2>();
    format!("{}_{}", ADJECTIVES[usize::from(a) % ADJECTIVES.len()], NOUNS[usize::from(b) % NOUNS.len()])
}

/// Whether a name can be told from an option, a path and an id list: docker's rule.
pub fn is_valid(name: &str) -> bool {
    let mut letters = name.chars();
    letters.next().is_some_and(|c| c.is_ascii_alphanumeric())
        && letters.all(|c| c.is_ascii_alphanumeric() || "_.-".contains(c))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generated_names_are_valid_and_ids_have_twelve_digits() {
        for _ in 0..100 {
            assert!(is_valid(&name()));
            assert!(id().len() == 12 && id().chars().all(|c| c.is_ascii_hexdigit()));
        }
        assert!(is_valid(&of_volume()) && is_of_volume(&of_volume()) && !is_of_volume(&id()));
        assert!(!is_valid("-x") && !is_valid("") && !is_valid("a/b"));
    }
}
