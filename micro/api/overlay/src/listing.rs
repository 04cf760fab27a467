// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Listings: a table for people, one JSON object a line for programs.

use crate::{Session, Stop, Stream};
use alloc::borrow::Cow;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt::Write;

/// One column.
#[derive(Clone, Copy, Debug)]
pub struct Column {
    /// The name in JSON: snake_case, with its unit (`size_bytes`, `cpu_ns`).
    pub key: &'static str,
    /// The title in the table.
    pub title: &'static str,
    /// Least width in the table.
    pub width: usize,
    right: bool,
}

impl Column {
    /// Words.
    pub const fn left(key: &'static str, title: &'static str, width: usize) -> Column {
        Column { key, title, width, right: false }
    }

    /// Numbers.
    pub const fn right(key: &'static str, title: &'static str, width: usize) -> Column {
        Column { key, title, width, right: true }
    }
}

/// One cell.
#[derive(Clone, Copy, Debug)]
pub enum Value<'a> {
    Text(&'a str),
    /// Bytes that are mostly text: names of files.
    Bytes(&'a [u8]),
    Number(u64),
    Signed(i64),
    /// Nanoseconds in JSON, seconds with three places in the table.
    Nanoseconds(u64),
    /// Thousandths in JSON as a fraction, per cent with one place in the table.
    Share(u64),
    Flag(bool),
    /// `null`, and `-` in the table.
    None,
}

impl Value<'_> {
    fn text(&self) -> Cow<'_, str> {
        let mut out = String::new();
        // Writing to a string cannot fail.
        let _ = match self {
            Value::Text(text) => return Cow::Borrowed(text),
            Value::Bytes(bytes) => return String::from_utf8_lossy(bytes),
            Value::Number(n) => write!(out, "{n}"),
            Value::Signed(n) => write!(out, "{n}"),
            Value::Nanoseconds(n) => write!(out, "{}.{:03}", n / 1_000_000_000, n / 1_000_000 % 1000),
            Value::Share(n) => write!(out, "{}.{}", n / 10, n % 10),
            Value::Flag(on) => return Cow::Borrowed(if *on { "yes" } else { "no" }),
            Value::None => return Cow::Borrowed("-"),
        };
        Cow::Owned(out)
    }

    fn json(&self, out: &mut String) {
        // Writing to a string cannot fail.
        let _ = match self {
            Value::Text(text) => return json_string(out, text),
            Value::Bytes(bytes) => return json_string(out, &String::from_utf8_lossy(bytes)),
            Value::Number(n) | Value::Nanoseconds(n) => write!(out, "{n}"),
            Value::Signed(n) => write!(out, "{n}"),
            Value::Share(n) => write!(out, "{}.{:03}", n / 1000, n % 1000),
            Value::Flag(on) => write!(out, "{on}"),
            Value::None => out.write_str("null"),
        };
    }
}

/// Adds `text` as a JSON string (RFC 8259, 7).
pub fn json_string(out: &mut String, text: &str) {
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\t' => out.push_str("\\t"),
            c if (c as u32) < 0x20 => {
                // Writing to a string cannot fail.
                let _ = write!(out, "\\u{:04x}", c as u32);
            }
            c => out.push(c),
        }
    }
    out.push('"');
}

/// Prints rows as they come.
pub struct Listing<'a> {
    session: &'a dyn Session,
    columns: &'a [Column],
    /// The titles were printed, or are not to be.
    titled: bool,
}

impl<'a> Listing<'a> {
    pub fn new(session: &'a dyn Session, columns: &'a [Column]) -> Listing<'a> {
        Listing { session, columns, titled: session.json() }
    }

    /// Without titles.
    pub fn bare(session: &'a dyn Session, columns: &'a [Column]) -> Listing<'a> {
        Listing { session, columns, titled: true }
    }

    /// Prints one row. Cells beyond the columns are left out.
    pub fn row(&mut self, cells: &[Value<'_>]) -> Result<(), Stop> {
        let mut line = String::new();
        if self.session.json() {
            for (i, (column, cell)) in self.columns.iter().zip(cells).enumerate() {
                line.push(if i == 0 { '{' } else { ',' });
                json_string(&mut line, column.key);
                line.push(':');
                cell.json(&mut line);
            }
            line.push_str("}\n");
        } else {
            if !self.titled {
                self.titled = true;
                let titles: Vec<Value<'_>> = self.columns.iter().map(|c| Value::Text(c.title)).collect();
                self.plain(&mut line, &titles);
            }
            self.plain(&mut line, cells);
        }
        self.session.write(Stream::Out, line.as_bytes())?;
        self.session.checkpoint()
    }

    fn plain(&self, line: &mut String, cells: &[Value<'_>]) {
        let last = self.columns.len().min(cells.len()).saturating_sub(1);
        for (i, (column, cell)) in self.columns.iter().zip(cells).enumerate() {
            let (text, width) = (printable(cell.text()), column.width);
            // Writing to a string cannot fail.
            let _ = match (column.right, i == last) {
                (true, _) => write!(line, "{text:>width$}"),
                (false, true) => line.write_str(&text),
                (false, false) => write!(line, "{text:<width$}"),
            };
            line.push_str(if i == last { "\n" } else { "  " });
        }
    }
}

/// Names come from programs and hosts: control characters would reach the user's terminal.
fn printable(text: Cow<'_, str>) -> Cow<'_, str> {
    if !text.chars().any(char::is_control) {
        return text;
    }
    Cow::Owned(text.chars().map(|c| if c.is_control() { '?' } else { c }).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Failure;
    use core::cell::RefCell;

    struct Paper {
        json: bool,
        text: RefCell<String>,
    }

    impl Session for Paper {
        fn write(&self, _: Stream, bytes: &[u8]) -> Result<(), Stop> {
            self.text.borrow_mut().push_str(core::str::from_utf8(bytes).unwrap());
            Ok(())
        }
        fn read(&self, _: &mut [u8]) -> Result<usize, Stop> {
            Ok(0)
        }
        fn flush(&self) -> Result<(), Stop> {
            Ok(())
        }
        fn fail(&self, _: &Failure) -> Result<(), Stop> {
            Ok(())
        }
        fn checkpoint(&self) -> Result<(), Stop> {
            Ok(())
        }
        fn sleep(&self, _: u64) -> Result<(), Stop> {
            Ok(())
        }
        fn json(&self) -> bool {
            self.json
        }
        fn columns(&self) -> usize {
            80
        }
    }

    const COLUMNS: [Column; 3] =
        [Column::right("tid", "TID", 4), Column::right("cpu_ns", "TIME", 8), Column::left("name", "NAME", 0)];

    fn print(json: bool) -> String {
        let paper = Paper { json, text: RefCell::default() };
        let mut list = Listing::new(&paper, &COLUMNS);
        let name = Value::Bytes(b"a\"b\x1b");
        list.row(&[Value::Number(7), Value::Nanoseconds(1_234_567_890), name]).unwrap();
        list.row(&[Value::Number(8), Value::None, Value::Text("c")]).unwrap();
        paper.text.into_inner()
    }

    #[test]
    fn people_get_a_table_without_control_characters() {
        assert_eq!(print(false), " TID      TIME  NAME\n   7     1.234  a\"b?\n   8         -  c\n");
    }

    #[test]
    fn programs_get_one_object_a_line() {
        let expected = concat!(
            r#"{"tid":7,"cpu_ns":1234567890,"name":"a\"b\u001b"}"#,
            "\n",
            r#"{"tid":8,"cpu_ns":null,"name":"c"}"#,
            "\n"
        );
        assert_eq!(print(true), expected);
    }
}
