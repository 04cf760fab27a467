// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The part of YAML 1.2 that these files are written in: maps and lists by indentation, `[a, b]`, plain and quoted words, comments.
//! Anything else is refused with its line.

/// Most steps of a path: the files need six.
const MAX_DEPTH: usize = 8;

/// Where in the file a word is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step<'a> {
    Key(&'a str),
    /// Of a list, from 0 on.
    Item(usize),
}

/// What cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wrong {
    /// From 1 on.
    pub line: usize,
    pub why: &'static str,
}

/// The steps to the place that is read.
struct Path<'a> {
    steps: [Step<'a>; MAX_DEPTH],
    indents: [usize; MAX_DEPTH],
    depth: usize,
}

impl<'a> Path<'a> {
    fn steps(&self) -> &[Step<'a>] {
        &self.steps[..self.depth]
    }

    fn push(&mut self, indent: usize, step: Step<'a>) -> Result<(), &'static str> {
        let (Some(to), Some(at)) = (self.steps.get_mut(self.depth), self.indents.get_mut(self.depth)) else {
            return Err("it is nested too deeply");
        };
        (*to, *at) = (step, indent);
        self.depth += 1;
        Ok(())
    }

    /// Begins an item at this column: the next one of a list that is open there, or the first of a new one. A list may be as far to
    /// the right as the key that it belongs to.
    fn item(&mut self, indent: usize) -> Result<(), &'static str> {
        let mut index = 0;
        while self.depth > 0 && self.indents[self.depth - 1] >= indent {
            let is_here = self.indents[self.depth - 1] == indent;
            match self.steps[self.depth - 1] {
                Step::Key(_) if is_here => break,
                Step::Item(n) if is_here => index = n + 1,
                _ => {}
            }
            self.depth -= 1;
            if index > 0 {
                break;
            }
        }
        self.push(indent, Step::Item(index))
    }

    fn key(&mut self, indent: usize, key: &'a str) -> Result<(), &'static str> {
        while self.depth > 0 && self.indents[self.depth - 1] >= indent {
            self.depth -= 1;
        }
        self.push(indent, Step::Key(key))
    }
}

/// Calls `each` with every word and the way to it.
pub fn read<'a>(text: &'a str, each: &mut dyn FnMut(&[Step<'a>], &'a str)) -> Result<(), Wrong> {
    let mut path = Path { steps: [Step::Item(0); MAX_DEPTH], indents: [0; MAX_DEPTH], depth: 0 };
    for (n, line) in text.lines().enumerate() {
        read_line(&mut path, line.trim_end(), each).map_err(|why| Wrong { line: n + 1, why })?;
    }
    Ok(())
}

fn read_line<'a>(
    path: &mut Path<'a>,
    line: &'a str,
    each: &mut dyn FnMut(&[Step<'a>], &'a str),
) -> Result<(), &'static str> {
    let mut rest = line.trim_start_matches(' ');
    if rest.is_empty() || rest.starts_with('#') || line == "---" {
        return Ok(());
    }
    if rest.starts_with('\t') {
        return Err("YAML is not indented by tabs");
    }
    let mut is_item = false;
    while rest == "-" || rest.starts_with("- ") {
        path.item(line.len() - rest.len())?;
        is_item = true;
        rest = rest[1..].trim_start_matches(' ');
        if rest.is_empty() || rest.starts_with('#') {
            return Ok(());
        }
    }
    if let Some((key, value)) = split(rest) {
        path.key(line.len() - rest.len(), key)?;
        rest = value;
    } else if !is_item {
        return Err("it is neither `key: value` nor an item of a list");
    }
    value(path, rest, each)
}

/// Key and value, if it is these.
fn split(text: &str) -> Option<(&str, &str)> {
    let (key, rest) = match text.chars().next().filter(|c| matches!(c, '"' | '\'')) {
        Some(quote) => text[1..].split_once(quote)?,
        None if text.starts_with('[') => return None,
        None => {
            let end = text.find(": ").or_else(|| text.ends_with(':').then(|| text.len() - 1))?;
            text.split_at(end)
        }
    };
    let value = rest.trim_start().strip_prefix(':')?;
    (value.is_empty() || value.starts_with(' ')).then(|| (key.trim_end(), value.trim_start()))
}

fn value<'a>(
    path: &mut Path<'a>,
    text: &'a str,
    each: &mut dyn FnMut(&[Step<'a>], &'a str),
) -> Result<(), &'static str> {
    let Some(list) = text.strip_prefix('[') else {
        let word = word(text)?;
        if !word.is_empty() {
            each(path.steps(), word);
        }
        return Ok(());
    };
    let (list, end) = list.split_once(']').ok_or("a list in brackets ends in its line")?;
    if !word(end)?.is_empty() {
        return Err("something follows a list in brackets");
    }
    // It is deeper than what it belongs to, whatever its column.
    for (n, item) in list.split(',').enumerate() {
        path.push(usize::MAX, Step::Item(n))?;
        let item = word(item.trim())?;
        if !item.is_empty() {
            each(path.steps(), item);
        }
        path.depth -= 1;
    }
    Ok(())
}

/// A word without quotes and comment.
fn word(text: &str) -> Result<&str, &'static str> {
    let Some(first) = text.chars().next() else { return Ok("") };
    match first {
        '"' | '\'' => {
            let (inside, rest) = text[1..].split_once(first).ok_or("a quote is not closed in its line")?;
            let is_escaped = rest.starts_with(first) || first == '"' && inside.contains('\\');
            let rest = rest.trim_start();
            match rest.is_empty() || rest.starts_with('#') {
                _ if is_escaped => Err("escapes in quotes are not read"),
                true => Ok(inside),
                false => Err("something follows a quoted word"),
            }
        }
        '#' => Ok(""),
        '{' if text == "{}" => Ok(""),
        '{' | '|' | '>' | '&' | '*' | '!' | '%' | '@' | '`' => {
            Err("of YAML only maps and lists by indentation, lists in brackets, and words are read")
        }
        _ => Ok(text.find(" #").map_or(text, |end| &text[..end]).trim_end()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{format, string::String, vec::Vec};

    fn words(text: &str) -> Result<Vec<String>, Wrong> {
        let mut all = Vec::new();
        read(text, &mut |path, word| {
            let step = |s: &Step| match s {
                Step::Key(key) => format!(".{key}"),
                Step::Item(n) => format!("[{n}]"),
            };
            all.push(format!("{}={word}", path.iter().map(step).collect::<String>()));
        })?;
        Ok(all)
    }

    #[test]
    fn maps_and_lists_are_read_with_the_way_to_each_word() {
        let text = "---\n# a comment\na: 1 # one\nb:\n  c: \"x # y\"\n  'd': [p, 'q', ]\nlist:\n- k: v\n  l: 'w'\n\n-\n  k: z\n- plain\nother:\n    - - deep\n      - er\n    - e: [::1/64]\nend: {}\n";
        assert_eq!(
            words(text).unwrap(),
            [
                ".a=1",
                ".b.c=x # y",
                ".b.d[0]=p",
                ".b.d[1]=q",
                ".list[0].k=v",
                ".list[0].l=w",
                ".list[1].k=z",
                ".list[2]=plain",
                ".other[0][0]=deep",
                ".other[0][1]=er",
                ".other[1].e[0]=::1/64",
            ]
        );
    }

    #[test]
    fn what_is_not_understood_is_refused_with_its_line() {
        for (text, line) in [
            ("a: 1\nb", 2),
            ("\ta: 1", 1),
            ("a: |\n  text", 1),
            ("a: {b: c}", 1),
            ("a: 'b", 1),
            ("a: 'b' c", 1),
            ("a: [b", 1),
            ("a: \"b\\n\"", 1),
            ("a: *b", 1),
            ("- - - - - - - - - a", 1),
        ] {
            assert_eq!(words(text).unwrap_err().line, line, "{text}");
        }
    }

    /// Pieces of the syntax in any order, a few hundred thousand bytes of them.
    #[test]
    fn no_text_makes_the_reader_panic() {
        let pieces = [
            "- ", "-", "a", ": ", ":", "\n", "  ", " ", "[", "]", ",", "'", "\"", "#", "\t", "é", "{}", "\r",
        ];
        let mut seed = 7u32;
        for _ in 0..5_000 {
            let mut text = String::new();
            for _ in 0..24 {
                seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                text.push_str(pieces[(seed >> 16) as usize % pieces.len()]);
            }
            let _ = read(&text, &mut |path, word| assert!(path.len() <= MAX_DEPTH && !word.is_empty()));
        }
    }
}
