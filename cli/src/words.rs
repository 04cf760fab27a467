// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Words of a line as a shell takes them (POSIX.1-2017, 2.2 and 2.3): quotes, backslashes, comments. There are no variables,
//! patterns or pipes: the machine's commands do not need them.

/// Why a line is not a command.
#[derive(Debug, PartialEq, Eq)]
pub enum Open {
    /// A quote is not closed, or the line ends in a backslash: it goes on in the next line.
    Quote,
}

/// The words of a line.
pub fn split(line: &str) -> Result<Vec<String>, Open> {
    Scan::new(line).words()
}

/// The last word of a line that is still being typed, unquoted, and where it begins; and the words before it.
pub fn last(line: &str) -> (Vec<String>, usize, String) {
    let mut scan = Scan::new(line);
    let mut words = Vec::new();
    loop {
        scan.skip_space();
        let start = scan.at;
        if start >= line.len() {
            return (words, start, String::new());
        }
        let (word, _) = scan.word();
        if scan.at >= line.len() {
            return (words, start, word);
        }
        words.push(word);
    }
}

/// A word so that [`split`] reads it back.
pub fn quote(word: &str) -> String {
    let plain = |c: char| c.is_alphanumeric() || "/._-+=:,@%".contains(c);
    let mut out = String::new();
    for c in word.chars() {
        if !plain(c) {
            out.push('\\');
        }
        out.push(c);
    }
    if out.is_empty() { "''".into() } else { out }
}

struct Scan<'a> {
    line: &'a str,
    at: usize,
}

impl<'a> Scan<'a> {
    fn new(line: &'a str) -> Scan<'a> {
        Scan { line, at: 0 }
    }

    fn peek(&self) -> Option<char> {
        self.line[self.at..].chars().next()
    }

    fn take(&mut self) -> Option<char> {
        let c = self.peek()?;
        self.at += c.len_utf8();
        Some(c)
    }

    fn skip_space(&mut self) {
        while self.peek().is_some_and(char::is_whitespace) {
            self.take();
        }
    }

    /// A word, and whether it is complete.
    fn word(&mut self) -> (String, bool) {
        let mut out = String::new();
        while let Some(c) = self.peek().filter(|c| !c.is_whitespace()) {
            self.take();
            match c {
                '\'' => loop {
                    match self.take() {
                        Some('\'') => break,
                        Some(c) => out.push(c),
                        None => return (out, false),
                    }
                },
                '"' => loop {
                    match self.take() {
                        Some('"') => break,
                        Some('\\') => match self.take() {
                            Some(c @ ('"' | '\\' | '$' | '`')) => out.push(c),
                            Some('\n') => {}
                            Some(c) => out.extend(['\\', c]),
                            None => return (out, false),
                        },
                        Some(c) => out.push(c),
                        None => return (out, false),
                    }
                },
                '\\' => match self.take() {
                    Some('\n') => {}
                    Some(c) => out.push(c),
                    None => return (out, false),
                },
                c => out.push(c),
            }
        }
        (out, true)
    }

    fn words(&mut self) -> Result<Vec<String>, Open> {
        let mut words = Vec::new();
        loop {
            self.skip_space();
            match self.peek() {
                None | Some('#') => return Ok(words),
                Some(_) => {}
            }
            match self.word() {
                (word, true) => words.push(word),
                (_, false) => return Err(Open::Quote),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_cut_as_a_shell_cuts_them() {
        for (line, words) in [
            ("", &[][..]),
            ("  ls   -l\t/tmp ", &["ls", "-l", "/tmp"]),
            ("cat 'a b' \"c \\\"d\\\"\" e\\ f", &["cat", "a b", "c \"d\"", "e f"]),
            ("x '' \"\"", &["x", "", ""]),
            ("a'b'\"c\"d # comment", &["abcd"]),
            ("a#b", &["a#b"]),
            ("\"\\n\"", &["\\n"]),
        ] {
            assert_eq!(split(line).unwrap(), words, "{line}");
        }
        for line in ["'a", "\"a", "a\\", "x \"a\\"] {
            assert_eq!(split(line), Err(Open::Quote), "{line}");
        }
    }

    #[test]
    fn the_word_being_typed_is_found_with_its_quotes_taken_off() {
        assert_eq!(last("ls /e"), (vec!["ls".into()], 3, "/e".into()));
        assert_eq!(last("ls "), (vec!["ls".into()], 3, String::new()));
        assert_eq!(last("ls 'a b"), (vec!["ls".into()], 3, "a b".into()));
        assert_eq!(last("he"), (vec![], 0, "he".into()));
        assert_eq!(last(""), (vec![], 0, String::new()));
    }

    #[test]
    fn quoted_words_are_read_back() {
        for word in ["", "a b", "it's", "\"x\"", "a\\b", "/usr/lib", "ä#"] {
            assert_eq!(split(&format!("x {}", quote(word))).unwrap(), ["x", word], "{word}");
        }
    }
}
