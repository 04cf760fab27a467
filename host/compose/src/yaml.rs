// SPDX-License-Identifier: Apache-2.0 OR MIT
//! YAML as a tree whose nodes know their line. One document; anchors, aliases and merge keys (`<<`) are resolved, in a tree of
//! bounded size: an alias of an alias of an alias costs what it stands for.

use crate::{Line, Mistake, Result};
use saphyr_parser::{Event, Parser, ScalarStyle, Tag};
use std::{borrow::Cow, collections::HashMap};

/// Bytes of a file; the largest in use have a tenth of it.
pub const MAX_BYTES: usize = 1 << 20;
/// Values in a file, those that aliases stand for included.
pub const MAX_NODES: usize = 100_000;
/// Bytes of a key: paths to values are made of keys.
pub const MAX_KEY: usize = 512;
/// Keys of one mapping, which are compared with each other.
pub const MAX_KEYS: usize = 2000;
/// Lists and mappings within each other.
pub const MAX_DEPTH: usize = 64;

/// A value and where it begins.
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    pub line: Line,
    pub value: Value,
    pub onto: Onto,
}

/// What a value does to the one of an earlier file in the same place, as its tag says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Onto {
    #[default]
    Joins,
    /// `!override`
    Replaces,
    /// `!reset`
    Removes,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// `plain`: it was written without quotes, so `null` means nothing.
    Scalar {
        text: String,
        plain: bool,
    },
    List(Vec<Node>),
    /// In the order of the file.
    Map(Vec<Entry>),
}

/// A key and its value.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    pub key: String,
    pub line: Line,
    pub value: Node,
}

impl Node {
    pub fn new(line: Line, value: Value) -> Node {
        Node { line, value, onto: Onto::Joins }
    }

    pub(crate) fn is_map(&self) -> bool {
        matches!(self.value, Value::Map(_))
    }

    /// Nothing, as `key:` alone has it.
    pub fn is_null(&self) -> bool {
        matches!(&self.value, Value::Scalar { text, plain: true } if matches!(text.as_str(), "" | "~" | "null" | "Null" | "NULL"))
    }

    pub(crate) fn size(&self) -> usize {
        1 + match &self.value {
            Value::Scalar { .. } => 0,
            Value::List(items) => items.iter().map(Node::size).sum(),
            Value::Map(entries) => entries.iter().map(|e| 1 + e.value.size()).sum(),
        }
    }

    fn depth(&self) -> usize {
        1 + match &self.value {
            Value::Scalar { .. } => 0,
            Value::List(items) => items.iter().map(Node::depth).max().unwrap_or(0),
            Value::Map(entries) => entries.iter().map(|e| e.value.depth()).max().unwrap_or(0),
        }
    }
}

/// A list or mapping that is not complete yet.
struct Open {
    line: Line,
    anchor: usize,
    onto: Onto,
    kind: Kind,
}

enum Kind {
    List(Vec<Node>),
    Map {
        entries: Vec<Entry>,
        /// The values of `<<`.
        merged: Vec<Node>,
        key: Option<(String, Line)>,
    },
}

/// Reads one document, which is the text of that file of the project's; an empty text is an empty mapping.
pub fn read(text: &str, file: usize) -> Result<Node> {
    let at = |number: usize| Line { file, number };
    if text.len() > MAX_BYTES {
        return Err(Mistake::new(at(0), format!("the file has more than {} KiB", MAX_BYTES >> 10)));
    }
    let mut builder = Builder { open: Vec::new(), anchors: HashMap::new(), nodes: 0, root: None };
    let mut documents = 0;
    for event in Parser::new_from_str(text) {
        let (event, span) = event.map_err(|e| Mistake::new(at(e.marker().line()), e.info().to_string()))?;
        let line = at(span.start.line());
        match event {
            Event::DocumentStart(_) => {
                documents += 1;
                if documents > 1 {
                    return Err(Mistake::new(line, "a second document begins here; write one to a file"));
                }
            }
            Event::Scalar(text, style, anchor, tag) => {
                let onto = tagged(tag, line)?;
                let plain = style == ScalarStyle::Plain;
                let value = Value::Scalar { text: text.into_owned(), plain };
                builder.complete(Node { line, value, onto }, anchor)?;
            }
            Event::SequenceStart(anchor, tag) => {
                let onto = tagged(tag, line)?;
                builder.begin(Open { line, anchor, onto, kind: Kind::List(Vec::new()) })?;
            }
            Event::MappingStart(anchor, tag) => {
                let onto = tagged(tag, line)?;
                let kind = Kind::Map { entries: Vec::new(), merged: Vec::new(), key: None };
                builder.begin(Open { line, anchor, onto, kind })?;
            }
            Event::SequenceEnd | Event::MappingEnd => builder.end()?,
            Event::Alias(anchor) => builder.alias(anchor, line)?,
            Event::Nothing | Event::StreamStart | Event::StreamEnd | Event::DocumentEnd => {}
        }
    }
    let empty = Node::new(at(1), Value::Map(Vec::new()));
    Ok(builder.root.filter(|root| !root.is_null()).unwrap_or(empty))
}

fn tagged(tag: Option<Cow<'_, Tag>>, line: Line) -> Result<Onto> {
    match tag {
        Some(tag) if !tag.is_yaml_core_schema() => match (tag.handle.as_str(), tag.suffix.as_str()) {
            ("!", "override") => Ok(Onto::Replaces),
            ("!", "reset") => Ok(Onto::Removes),
            _ => Err(Mistake::new(line, format!("the tag {tag} is not known here; leave it out"))),
        },
        _ => Ok(Onto::Joins),
    }
}

struct Builder {
    open: Vec<Open>,
    anchors: HashMap<usize, Node>,
    nodes: usize,
    root: Option<Node>,
}

impl Builder {
    fn count(&mut self, more: usize, line: Line) -> Result<()> {
        self.nodes += more;
        if self.nodes > MAX_NODES {
            return Err(Mistake::new(
                line,
                format!("there are more than {MAX_NODES} values, those of aliases included"),
            ));
        }
        Ok(())
    }

    fn begin(&mut self, open: Open) -> Result<()> {
        if self.open.len() >= MAX_DEPTH {
            return Err(Mistake::new(
                open.line,
                format!("more than {MAX_DEPTH} lists and mappings are within each other"),
            ));
        }
        self.open.push(open);
        Ok(())
    }

    fn end(&mut self) -> Result<()> {
        let Some(Open { line, anchor, onto, kind }) = self.open.pop() else { return Ok(()) };
        let value = match kind {
            Kind::List(items) => Value::List(items),
            Kind::Map { mut entries, merged, .. } => {
                for map in merged {
                    merge(&mut entries, map)?;
                }
                Value::Map(entries)
            }
        };
        self.complete(Node { line, value, onto }, anchor)
    }

    fn alias(&mut self, anchor: usize, line: Line) -> Result<()> {
        // An alias within what it names.
        let Some(node) = self.anchors.get(&anchor) else {
            return Err(Mistake::new(line, "this alias stands for a value that it is part of"));
        };
        let (size, depth) = (node.size(), node.depth());
        if self.open.len() + depth > MAX_DEPTH {
            return Err(Mistake::new(
                line,
                format!("more than {MAX_DEPTH} lists and mappings are within each other"),
            ));
        }
        // Before it is copied.
        self.count(size, line)?;
        let node = self.anchors.get(&anchor).cloned().unwrap_or(Node::new(line, Value::List(Vec::new())));
        self.place(node)
    }

    fn complete(&mut self, node: Node, anchor: usize) -> Result<()> {
        self.count(1, node.line)?;
        if anchor != 0 {
            self.count(node.size(), node.line)?;
            self.anchors.insert(anchor, node.clone());
        }
        self.place(node)
    }

    fn place(&mut self, node: Node) -> Result<()> {
        match self.open.last_mut().map(|open| &mut open.kind) {
            None => self.root = Some(node),
            Some(Kind::List(items)) => items.push(node),
            Some(Kind::Map { entries, merged, key }) => match key.take() {
                Some((key, _)) if key == "<<" => merged.push(node),
                Some((key, line)) => {
                    if let Some(earlier) = entries.iter().find(|e| e.key == key) {
                        return Err(Mistake::new(
                            line,
                            format!("`{key}` is here a second time; the first is in {}", earlier.line),
                        ));
                    }
                    if entries.len() >= MAX_KEYS {
                        return Err(Mistake::new(line, format!("one mapping has more than {MAX_KEYS} keys")));
                    }
                    entries.push(Entry { key, line, value: node });
                }
                None => match node.value {
                    Value::Scalar { text, .. } if text.len() > MAX_KEY => {
                        return Err(Mistake::new(node.line, format!("a key has more than {MAX_KEY} bytes")));
                    }
                    Value::Scalar { text, .. } => *key = Some((text, node.line)),
                    _ => return Err(Mistake::new(node.line, "a key is a word, not a list or a mapping")),
                },
            },
        }
        Ok(())
    }
}

/// Adds what a merge key names; what the mapping itself says wins, and what was merged earlier.
fn merge(entries: &mut Vec<Entry>, from: Node) -> Result<()> {
    match from.value {
        Value::Map(more) => {
            for entry in more {
                if entries.iter().any(|e| e.key == entry.key) {
                    continue;
                }
                if entries.len() >= MAX_KEYS {
                    return Err(Mistake::new(
                        entry.line,
                        format!("one mapping has more than {MAX_KEYS} keys"),
                    ));
                }
                entries.push(entry);
            }
            Ok(())
        }
        Value::List(maps) => maps.into_iter().try_for_each(|map| match map.value {
            Value::Map(_) => merge(entries, map),
            _ => Err(Mistake::new(map.line, "`<<` takes a mapping or a list of mappings")),
        }),
        Value::Scalar { .. } => {
            Err(Mistake::new(from.line, "`<<` takes a mapping, for example an alias: `<<: *name`"))
        }
    }
}

/// The tree as YAML again, with everything resolved.
pub fn write(node: &Node) -> String {
    let mut out = String::new();
    emit(node, 0, &mut out);
    out
}

fn emit(node: &Node, indent: usize, out: &mut String) {
    let pad = " ".repeat(indent);
    let nested = |value: &Node, out: &mut String| match &value.value {
        Value::Scalar { .. } => {
            out.push(' ');
            emit(value, 0, out);
        }
        Value::List(items) if items.is_empty() => out.push_str(" []\n"),
        Value::Map(entries) if entries.is_empty() => out.push_str(" {}\n"),
        _ => {
            out.push('\n');
            emit(value, indent + 2, out);
        }
    };
    match &node.value {
        Value::Scalar { .. } if node.is_null() => out.push_str("null\n"),
        Value::Scalar { text, plain } => {
            let is_simple = |c: char| c.is_ascii_alphanumeric() || "_./-".contains(c);
            if *plain && text.starts_with(|c: char| c.is_ascii_alphanumeric()) && text.chars().all(is_simple)
            {
                out.push_str(text);
            } else {
                // It was filled in already.
                quote(&text.replace('$', "$$"), out);
            }
            out.push('\n');
        }
        Value::List(items) => {
            for item in items {
                out.push_str(&pad);
                out.push('-');
                nested(item, out);
            }
        }
        Value::Map(entries) => {
            for entry in entries {
                out.push_str(&pad);
                let is_simple = |c: char| c.is_ascii_alphanumeric() || "_.-".contains(c);
                if entry.key.starts_with(|c: char| c.is_ascii_alphabetic())
                    && entry.key.chars().all(is_simple)
                {
                    out.push_str(&entry.key);
                } else {
                    quote(&entry.key, out);
                }
                out.push(':');
                nested(&entry.value, out);
            }
        }
    }
}

/// In double quotes (YAML 1.2 5.7).
fn quote(text: &str, out: &mut String) {
    out.push('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            '\n' => out.push_str("\\n"),
            '\t' => out.push_str("\\t"),
            c if c.is_control() => out.push_str(&format!("\\U{:08x}", c as u32)),
            c => out.push(c),
        }
    }
    out.push('"');
}

#[cfg(test)]
mod tests {
    use super::{read as read_file, *};
    use proptest::prelude::*;

    fn flat(text: &str) -> String {
        write(&read(text).unwrap())
    }

    fn read(text: &str) -> Result<Node> {
        read_file(text, 0)
    }

    #[test]
    fn merges_and_aliases_are_resolved_and_own_keys_win() {
        let text = "x-base: &base\n  a: 1\n  b: [x, y]\nother: &other {b: 5, c: 6}\none:\n  <<: [*base, *other]\n  a: 2\ntwo: *base\n";
        let expected = "x-base:\n  a: 1\n  b:\n    - x\n    - y\nother:\n  b: 5\n  c: 6\none:\n  a: 2\n  b:\n    - x\n    - y\n  c: 6\ntwo:\n  a: 1\n  b:\n    - x\n    - y\n";
        assert_eq!(flat(text), expected);
        assert_eq!(flat(expected), expected);
    }

    #[test]
    fn mistakes_are_told_with_their_line() {
        for (text, line, words) in [
            ("a: 1\nb: 2\na: 3\n", 3, "`a` is here a second time; the first is in line 1"),
            ("a:\n  - b\n c: d\n", 3, ""),
            ("a: !other b\n", 1, "!other"),
            ("a: 1\n---\nb: 1\n", 2, "second document"),
            ("? [a]\n: b\n", 1, "a key is a word"),
            ("a: &x\n  b: *x\n", 2, "part of"),
            ("a: *nothing\n", 1, ""),
            ("a:\n  <<: 3\n", 2, "`<<`"),
            ("a:\n\tb: c\n", 2, ""),
        ] {
            let mistake = read(text).expect_err(text);
            assert!(mistake.line.number == line && mistake.message.contains(words), "{text:?}: {mistake}");
        }
    }

    #[test]
    fn what_is_small_to_write_and_large_to_read_is_refused() {
        let mut laughs = String::from("a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n");
        for n in 1..10 {
            let of = format!("*a{}", n - 1);
            laughs.push_str(&format!("a{n}: &a{n} [{}]\n", vec![of; 10].join(", ")));
        }
        assert!(read(&laughs).unwrap_err().message.contains("aliases included"));
        for opening in ["[", "{", "- ", "? ", "a: {"] {
            assert!(read(&opening.repeat(100_000)).is_err(), "{opening}");
        }
        let mut deep = String::from("a0: &a0 [x]\n");
        for n in 1..100 {
            deep.push_str(&format!("a{n}: &a{n} [*a{}]\n", n - 1));
        }
        assert!(read(&deep).unwrap_err().message.contains("within each other"));
        assert!(read(&format!("{}: 1", "k".repeat(MAX_KEY + 1))).unwrap_err().message.contains("a key has"));
        assert!(read(&"#".repeat(MAX_BYTES + 1)).unwrap_err().message.contains("KiB"));
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in "[a-z0-9:\\-\\[\\]{}&*<!?|>'\"#%@\\\\,~ \n\t]{0,200}") {
            if let Ok(node) = read(&text) {
                prop_assert!(node.size() <= MAX_NODES && node.depth() <= MAX_DEPTH + 1);
                // What is written is read as the same.
                prop_assert_eq!(write(&read(&write(&node)).unwrap()), write(&node));
            }
        }
    }
}
