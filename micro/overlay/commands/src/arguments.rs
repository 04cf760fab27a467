// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Options and operands, as POSIX has them (XBD 12.2): options first, `--` ends them, letters may be written together.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use api_overlay::Failure;

/// Arguments taken apart.
pub struct Arguments<'a> {
    flags: Vec<u8>,
    values: Vec<(u8, &'a [u8])>,
    pub operands: Vec<&'a [u8]>,
}

impl<'a> Arguments<'a> {
    /// `flags` are the letters that stand alone, `valued` those with a value behind them.
    pub fn parse(arguments: &[&'a [u8]], flags: &str, valued: &str) -> Result<Arguments<'a>, Failure> {
        let mut out = Arguments { flags: Vec::new(), values: Vec::new(), operands: Vec::new() };
        let mut rest = arguments.iter();
        while let Some(argument) = rest.next() {
            match *argument {
                b"--" => {
                    out.operands.extend(rest);
                    break;
                }
                [b'-', letters @ ..] if !letters.is_empty() => {
                    for (i, letter) in letters.iter().enumerate() {
                        if flags.as_bytes().contains(letter) {
                            out.flags.push(*letter);
                        } else if valued.as_bytes().contains(letter) {
                            let value = &letters[i + 1..];
                            let value = match (value.is_empty(), rest.as_slice().first()) {
                                (false, _) => value,
                                (true, Some(next)) => {
                                    rest.next();
                                    next
                                }
                                (true, None) => {
                                    return Err(Failure::usage(format!(
                                        "-{} needs a value",
                                        *letter as char
                                    )));
                                }
                            };
                            out.values.push((*letter, value));
                            break;
                        } else {
                            let shown = String::from_utf8_lossy(argument);
                            return Err(Failure::usage(format!("there is no option {shown}")));
                        }
                    }
                }
                operand => out.operands.push(operand),
            }
        }
        Ok(out)
    }

    pub fn has(&self, flag: u8) -> bool {
        self.flags.contains(&flag)
    }

    /// The last value given for an option.
    pub fn value(&self, letter: u8) -> Option<&'a [u8]> {
        self.values.iter().rev().find(|(l, _)| *l == letter).map(|(_, value)| *value)
    }

    /// As [`Arguments::value`], as a number.
    pub fn number(&self, letter: u8) -> Result<Option<u64>, Failure> {
        let Some(value) = self.value(letter) else { return Ok(None) };
        number(value).map(Some).ok_or_else(|| {
            let shown = String::from_utf8_lossy(value);
            Failure::usage(format!("-{}: {shown} is not a number", letter as char))
        })
    }

    /// No operands, please.
    pub fn no_operands(&self) -> Result<(), Failure> {
        match self.operands.first() {
            None => Ok(()),
            Some(first) => Err(Failure::usage(format!("what is {} for?", String::from_utf8_lossy(first)))),
        }
    }
}

/// A decimal number.
pub fn number(text: &[u8]) -> Option<u64> {
    core::str::from_utf8(text).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec;

    #[test]
    fn options_are_found_together_apart_and_with_values() {
        let words: [&[u8]; 7] = [b"-ab", b"-n", b"5", b"x", b"-k7", b"--", b"-a"];
        let found = Arguments::parse(&words, "ab", "nk").unwrap();
        assert!(found.has(b'a') && found.has(b'b'));
        assert_eq!((found.number(b'n').unwrap(), found.value(b'k')), (Some(5), Some(&b"7"[..])));
        assert_eq!(found.operands, vec![&b"x"[..], b"-a"]);
    }

    #[test]
    fn wrong_options_are_usage_errors() {
        for words in [&[&b"-x"[..]][..], &[b"-n"], &[b"-n", b"many"]] {
            let parsed = Arguments::parse(words, "a", "n").and_then(|a| a.number(b'n').map(|_| ()));
            assert!(parsed.unwrap_err().is_usage, "{words:?}");
        }
        // A lone dash is an operand: standard input.
        assert_eq!(Arguments::parse(&[b"-"], "", "").unwrap().operands, vec![&b"-"[..]]);
    }
}
