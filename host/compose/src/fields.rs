// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A value of the file with the path that leads to it, read as what it should be.

use crate::{
    Mistake, Result,
    yaml::{Entry, Node, Value},
};
use std::time::Duration;

/// A value and its path, as `services.web.ports[0]`.
#[derive(Clone, Debug)]
pub struct Field<'a> {
    pub path: String,
    pub node: &'a Node,
}

impl<'a> Field<'a> {
    pub fn new(path: impl Into<String>, node: &'a Node) -> Field<'a> {
        Field { path: path.into(), node }
    }

    pub fn wrong(&self, why: impl std::fmt::Display) -> Mistake {
        Mistake::new(self.node.line, format!("{}: {why}", self.path))
    }

    /// A value below this one, if it is there and says something.
    pub fn get(&self, key: &str) -> Option<Field<'a>> {
        let Value::Map(entries) = &self.node.value else { return None };
        entries.iter().find(|e| e.key == key && !e.value.is_null()).map(|e| self.below(e))
    }

    fn below(&self, entry: &'a Entry) -> Field<'a> {
        let path =
            if self.path.is_empty() { entry.key.clone() } else { format!("{}.{}", self.path, entry.key) };
        Field { path, node: &entry.value }
    }

    /// Keys and values of a mapping.
    pub fn entries(&self) -> Result<Vec<(&'a str, Field<'a>)>> {
        match &self.node.value {
            Value::Map(entries) => Ok(entries.iter().map(|e| (e.key.as_str(), self.below(e))).collect()),
            _ if self.node.is_null() => Ok(Vec::new()),
            _ => Err(self.wrong("it is a mapping: `key: value` lines")),
        }
    }

    /// The mapping's values; a key that is not one of `known` is refused.
    pub fn only(&self, known: &[&str]) -> Result<()> {
        for (key, field) in self.entries()? {
            if !known.contains(&key) && !key.starts_with("x-") {
                return Err(field.wrong(format!("there is no such key; known are {}", known.join(", "))));
            }
        }
        Ok(())
    }

    pub fn text(&self) -> Result<String> {
        match &self.node.value {
            Value::Scalar { text, .. } if text.contains('\0') => Err(self.wrong("it holds a NUL byte")),
            Value::Scalar { text, .. } => Ok(text.clone()),
            Value::List(_) => Err(self.wrong("it is one value, not a list")),
            Value::Map(_) => Err(self.wrong("it is one value, not a mapping")),
        }
    }

    /// A list; one value alone is a list of one.
    pub fn items(&self) -> Result<Vec<Field<'a>>> {
        match &self.node.value {
            Value::List(items) => {
                let item = |(n, node)| Field { path: format!("{}[{n}]", self.path), node };
                Ok(items.iter().enumerate().map(item).collect())
            }
            Value::Scalar { .. } => Ok(vec![self.clone()]),
            Value::Map(_) => Err(self.wrong("it is a list: lines that begin with `- `")),
        }
    }

    pub fn texts(&self) -> Result<Vec<String>> {
        self.items()?.iter().map(Field::text).collect()
    }

    pub fn is_map(&self) -> bool {
        matches!(self.node.value, Value::Map(_))
    }

    pub fn flag(&self) -> Result<bool> {
        match self.text()?.as_str() {
            "true" | "yes" | "on" => Ok(true),
            "false" | "no" | "off" => Ok(false),
            other => Err(self.wrong(format!("`{other}` is neither true nor false"))),
        }
    }

    pub fn number<T: std::str::FromStr>(&self) -> Result<T> {
        let text = self.text()?;
        text.parse().map_err(|_| self.wrong(format!("`{text}` is no number that fits here")))
    }

    /// `KEY: value` or a list of `KEY=value`; a key alone has no value of its own.
    pub fn pairs(&self) -> Result<Vec<(String, Option<String>)>> {
        if self.is_map() {
            let pair = |(key, field): (&str, Field)| {
                let value = if field.node.is_null() { None } else { Some(field.text()?) };
                Ok((key.to_string(), value))
            };
            return self.entries()?.into_iter().map(pair).collect();
        }
        let pair = |item: &Field| {
            let text = item.text()?;
            let pair = match text.split_once('=') {
                Some((key, value)) => (key.to_string(), Some(value.to_string())),
                None => (text, None),
            };
            if pair.0.is_empty() { Err(item.wrong("there is no name before the `=`")) } else { Ok(pair) }
        };
        self.items()?.iter().map(pair).collect()
    }

    /// Milliseconds of `1m30s`, `500ms`, `2h`; a number alone is seconds.
    pub fn duration(&self) -> Result<u64> {
        let text = self.text()?;
        milliseconds(&text)
            .ok_or_else(|| self.wrong(format!("`{text}` is no duration; write for example 1m30s")))
    }

    /// Words of a command: a list, or a text that is cut as a shell cuts it.
    pub fn words(&self) -> Result<Vec<String>> {
        match &self.node.value {
            Value::Scalar { text, .. } => split(text).ok_or_else(|| self.wrong("a quote is open at its end")),
            _ => self.texts(),
        }
    }
}

/// Milliseconds of a duration, or of a number of seconds; `None`: it is neither.
pub fn milliseconds(text: &str) -> Option<u64> {
    if let Ok(seconds) = text.parse::<u64>() {
        return seconds.checked_mul(1000);
    }
    duration(text).and_then(|duration| u64::try_from(duration.as_millis()).ok())
}

/// A duration as Go writes it (time.ParseDuration), and engines' users with it: numbers, with a unit behind each.
pub fn duration(text: &str) -> Option<Duration> {
    let mut rest = text;
    let mut sum = 0_f64;
    while !rest.is_empty() {
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.').filter(|end| *end > 0)?;
        let count: f64 = rest[..end].parse().ok()?;
        rest = &rest[end..];
        let units = [("ns", 1e-9), ("us", 1e-6), ("ms", 1e-3), ("h", 3600.0), ("m", 60.0), ("s", 1.0)];
        let (unit, factor) = units.iter().find(|(unit, _)| rest.starts_with(unit))?;
        rest = &rest[unit.len()..];
        sum += count * factor;
    }
    // A century is enough.
    let is_one = !text.is_empty() && sum < 3e9;
    // Go counts nanoseconds, and 0.1 has no exact float.
    is_one.then(|| Duration::from_nanos((sum * 1e9).round() as u64))
}

/// Words as a shell cuts them, without variables and patterns; `None`: a quote is open.
pub fn split(text: &str) -> Option<Vec<String>> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut letters = text.chars();
    while let Some(c) = letters.next() {
        match c {
            '\'' => {
                let word = word.get_or_insert_default();
                loop {
                    match letters.next()? {
                        '\'' => break,
                        c => word.push(c),
                    }
                }
            }
            '"' => {
                let word = word.get_or_insert_default();
                loop {
                    match letters.next()? {
                        '"' => break,
                        '\\' => match letters.next()? {
                            c @ ('"' | '\\' | '$' | '`') => word.push(c),
                            '\n' => {}
                            c => word.extend(['\\', c]),
                        },
                        c => word.push(c),
                    }
                }
            }
            '\\' => match letters.next()? {
                '\n' => {}
                c => word.get_or_insert_default().push(c),
            },
            c if c.is_whitespace() => words.extend(word.take()),
            c => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    Some(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_as_compose_writes_them() {
        for (text, ms) in
            [("90", 90_000), ("1m30s", 90_000), ("500ms", 500), ("1.5s", 1500), ("2h", 7_200_000), ("0s", 0)]
        {
            assert_eq!(milliseconds(text), Some(ms), "{text}");
        }
        assert_eq!(duration("1.5us"), Some(Duration::from_nanos(1500)));
        assert_eq!(duration("90"), None, "a number alone is seconds to compose, and nothing to Go");
        for text in ["", "s", "1x", "1m3", "-1s", "99999999999h", "1..5s", "\u{e9}s"] {
            assert_eq!(milliseconds(text), None, "{text}");
        }
    }

    #[test]
    fn commands_are_cut_as_a_shell_cuts_them() {
        let words = split("sh -c 'echo \"a b\"' \"c \\\"d\\\"\" e\\ f ''").unwrap();
        assert_eq!(words, ["sh", "-c", "echo \"a b\"", "c \"d\"", "e f", ""]);
        assert_eq!(split("a 'b"), None);
    }
}
