// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Lines and texts that come from a machine. The sender is not trusted: a line has a largest length, and a text holds
//! nothing that a terminal would act on.

use std::io::{self, BufRead, BufReader, Read};

/// Bytes of a line that are read; the rest of it is skipped. A path (PATH_MAX) with its words fits twice.
pub const MAX_LINE: usize = 8 << 10;

/// The lines of a stream, without their ends. Bytes that are not UTF-8 are replaced.
pub struct Lines<R> {
    reader: BufReader<R>,
}

impl<R: Read> Lines<R> {
    pub fn new(stream: R) -> Lines<R> {
        Lines { reader: BufReader::new(stream) }
    }
}

impl<R: Read> Iterator for Lines<R> {
    type Item = String;

    fn next(&mut self) -> Option<String> {
        let mut line = Vec::new();
        let mut is_begun = false;
        loop {
            let chunk = match self.reader.fill_buf() {
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                // A stream that fails has ended.
                Ok([]) | Err(_) => return is_begun.then(|| String::from_utf8_lossy(&line).into_owned()),
                Ok(chunk) => chunk,
            };
            is_begun = true;
            let end = chunk.iter().position(|byte| *byte == b'\n');
            let part = &chunk[..end.unwrap_or(chunk.len())];
            line.extend_from_slice(&part[..part.len().min(MAX_LINE - line.len())]);
            let read = end.map_or(chunk.len(), |at| at + 1);
            self.reader.consume(read);
            if end.is_some() {
                return Some(String::from_utf8_lossy(&line).into_owned());
            }
        }
    }
}

/// The text with everything replaced that a terminal acts on or that hides what stands there: control characters of both
/// sets (ECMA-48), and the marks that turn the direction of writing or take no room (Unicode, general category Cf).
pub fn printable(text: &str) -> String {
    let is_hidden = |c: char| {
        c.is_control()
            || matches!(c, '\u{ad}' | '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}')
            || matches!(c, '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
    };
    text.chars().map(|c| if is_hidden(c) && c != '\t' { char::REPLACEMENT_CHARACTER } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A stream that hands out a few bytes at a time.
    struct Pieces<'a>(&'a [u8], usize);

    impl Read for Pieces<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            let length = buffer.len().min(self.1).min(self.0.len());
            buffer[..length].copy_from_slice(&self.0[..length]);
            self.0 = &self.0[length..];
            Ok(length)
        }
    }

    #[test]
    fn a_line_without_an_end_takes_no_more_than_its_limit() {
        let endless = io::repeat(b'x').take(100 << 20).chain(&b"\nexit 0\n"[..]);
        let lines: Vec<String> = Lines::new(endless).collect();
        assert_eq!(lines.iter().map(String::len).collect::<Vec<_>>(), [MAX_LINE, 6]);
        assert!(lines[0].capacity() <= 2 * MAX_LINE, "{}", lines[0].capacity());
    }

    #[test]
    fn bytes_that_are_no_text_do_not_end_the_stream() {
        let lines: Vec<String> = Lines::new(&b"\xff\xfe\nstarted 1\n\nend"[..]).collect();
        assert_eq!(lines, ["\u{fffd}\u{fffd}", "started 1", "", "end"]);
    }

    #[test]
    fn texts_hold_nothing_that_a_terminal_acts_on() {
        assert_eq!(
            printable("a\x1b]0;title\x07\u{9b}2J\u{202e}b\tü"),
            "a\u{fffd}]0;title\u{fffd}\u{fffd}2J\u{fffd}b\tü"
        );
    }

    proptest! {
        #[test]
        fn lines_are_those_of_the_text_cut_to_the_limit(
            text in proptest::collection::vec(prop_oneof![4 => any::<u8>(), 1 => Just(b'\n')], 0..2000),
            long in 0..3 * MAX_LINE,
            piece in 1..700usize,
        ) {
            let text = [&text[..], &vec![b'y'; long]].concat();
            let read: Vec<String> = Lines::new(Pieces(&text, piece)).collect();
            let body = text.strip_suffix(b"\n").unwrap_or(&text);
            let cut = |line: &[u8]| String::from_utf8_lossy(&line[..line.len().min(MAX_LINE)]).into_owned();
            let expected: Vec<String> =
                if text.is_empty() { Vec::new() } else { body.split(|b| *b == b'\n').map(cut).collect() };
            prop_assert_eq!(read, expected);
        }

        #[test]
        fn a_printable_text_is_as_long_and_has_no_controls(text in any::<String>()) {
            let clean = printable(&text);
            prop_assert_eq!(clean.chars().count(), text.chars().count());
            prop_assert!(clean.chars().all(|c| c == '\t' || !c.is_control()));
            prop_assert_eq!(printable(&clean), clean);
        }

        #[test]
        fn status_lines_are_read_or_refused_and_never_panic(line in any::<String>(), word in "[a-z-]{1,14}") {
            let _ = api_boot::Status::parse(&line);
            if let Some(status) = api_boot::Status::parse(&format!("{word} {line}")) {
                // What is printed again is read as the same.
                prop_assert_eq!(api_boot::Status::parse(&status.to_string()).is_some(), true);
            }
        }
    }
}
