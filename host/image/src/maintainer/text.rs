// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The commands of maintainer scripts that print and read text.

use super::{
    commands::{options, print, read},
    shell::{Shell, Status},
};

/// Bytes that one command prints.
const MAX_PRINTED: usize = 64 << 10;

pub(super) fn run(shell: &mut Shell, name: &str, arguments: &[&str]) -> Option<Status> {
    match name {
        "echo" => {
            let (end, words) = match arguments {
                ["-n", words @ ..] => ("", words),
                words => ("\n", words),
            };
            shell.output.push_str(&words.join(" "));
            shell.output.push_str(end);
            Some(0)
        }
        "printf" => {
            let (format, values) = arguments.split_first()?;
            let text = printf(format, values);
            shell.output.push_str(&text);
            Some(0)
        }
        "pwd" => {
            let here = shell.directory.to_string_lossy().into_owned();
            print(shell, &here);
            Some(0)
        }
        "read" => {
            let input = std::mem::take(&mut shell.input);
            if input.is_empty() {
                return Some(1);
            }
            let (line, rest) = input.split_once('\n').unwrap_or((&input, ""));
            let names: Vec<&&str> = arguments.iter().filter(|a| !a.starts_with('-')).collect();
            let mut left = line.trim();
            for (index, name) in names.iter().enumerate() {
                let (value, rest) = match index + 1 == names.len() {
                    true => (left, ""),
                    false => left.split_once(char::is_whitespace).unwrap_or((left, "")),
                };
                shell.variables.insert((**name).to_string(), value.into());
                left = rest.trim_start();
            }
            shell.input = rest.to_string();
            Some(0)
        }
        "dirname" => {
            let path = arguments.last()?.trim_end_matches('/');
            print(
                shell,
                path.rsplit_once('/').map_or(".", |(above, _)| if above.is_empty() { "/" } else { above }),
            );
            Some(0)
        }
        "basename" => {
            let (path, suffix) = match arguments {
                [path, suffix, ..] => (*path, *suffix),
                [path] => (*path, ""),
                [] => return Some(1),
            };
            let name = path.trim_end_matches('/').rsplit('/').next().unwrap_or(path);
            print(shell, name.strip_suffix(suffix).filter(|n| !n.is_empty()).unwrap_or(name));
            Some(0)
        }
        "expr" => {
            let [left, operator, right] = arguments else { return Some(2) };
            let (left, right): (i64, i64) = (left.parse().ok()?, right.parse().ok()?);
            let value = match *operator {
                "+" => left.checked_add(right),
                "-" => left.checked_sub(right),
                "*" => left.checked_mul(right),
                _ => None,
            };
            print(shell, &value?.to_string());
            Some(0)
        }
        _ => filter(shell, name, arguments),
    }
}

/// What reads files or its input line by line.
fn filter(shell: &mut Shell, name: &str, arguments: &[&str]) -> Option<Status> {
    let (options, mut operands) = options(arguments, &["d", "f", "n", "c", "e", "m", "A", "B"]);
    let value = |n: &str| options.iter().find(|(o, _)| *o == n).map(|(_, v)| *v);
    let pattern = match name {
        "grep" | "egrep" | "fgrep" => Some(match value("e") {
            Some(pattern) => pattern,
            None if operands.is_empty() => return Some(2),
            None => operands.remove(0),
        }),
        "tr" | "sort" | "wc" => return None,
        _ => None,
    };
    let mut text = String::new();
    let mut found = true;
    if operands.is_empty() || operands == ["-"] {
        text = std::mem::take(&mut shell.input);
    }
    for path in operands.iter().filter(|p| **p != "-") {
        let path = shell.path(path);
        found &= shell.tree.file(&path).is_some();
        text.push_str(&String::from_utf8_lossy(&read(shell.tree, &path)));
    }
    let count = value("n").and_then(|n| n.parse().ok()).unwrap_or(10);
    let lines: Vec<&str> = match name {
        "cat" => {
            shell.output.push_str(&text);
            return Some(u8::from(!found));
        }
        "grep" | "egrep" | "fgrep" => {
            let pattern = Pattern::parse(pattern?, name == "fgrep" || value("F").is_some())?;
            let inverted = value("v").is_some();
            let lines: Vec<&str> = text.lines().filter(|l| pattern.fits(l) != inverted).collect();
            let status = u8::from(lines.is_empty());
            if !options.iter().any(|(o, _)| matches!(*o, "q" | "quiet" | "silent")) {
                lines.iter().for_each(|l| print(shell, l));
            }
            return Some(status);
        }
        "head" => text.lines().take(count).collect(),
        "tail" => text.lines().skip(text.lines().count().saturating_sub(count)).collect(),
        "cut" => {
            let separator = value("d").and_then(|d| d.chars().next()).unwrap_or('\t');
            let field: usize = value("f")?.parse().ok()?;
            let of = |l| str::split(l, separator).nth(field.saturating_sub(1)).unwrap_or("");
            text.lines().map(of).collect()
        }
        _ => return None,
    };
    lines.iter().for_each(|l| print(shell, l));
    Some(0)
}

/// The regular expressions that need no engine: fixed text, with `^` and `$` or without.
struct Pattern {
    text: String,
    start: bool,
    end: bool,
}

impl Pattern {
    /// `None`: it is more than that.
    fn parse(text: &str, fixed: bool) -> Option<Pattern> {
        if fixed {
            return Some(Pattern { text: text.into(), start: false, end: false });
        }
        let (start, text) = text.strip_prefix('^').map_or((false, text), |t| (true, t));
        let (end, text) = text.strip_suffix('$').map_or((false, text), |t| (true, t));
        let text = text.replace("\\.", "\u{1}");
        // A point is taken for itself: in scripts it stands in file names.
        let plain = !text.contains(['*', '[', ']', '\\', '^', '$', '+', '?', '|', '(', ')']);
        plain.then(|| Pattern { text: text.replace('\u{1}', "."), start, end })
    }

    fn fits(&self, line: &str) -> bool {
        match (self.start, self.end) {
            (true, true) => line == self.text,
            (true, false) => line.starts_with(&self.text),
            (false, true) => line.ends_with(&self.text),
            (false, false) => line.contains(&self.text),
        }
    }
}

/// printf(1) with `%s`, `%d`, `%%`, `%b` and the usual escapes.
fn printf(format: &str, values: &[&str]) -> String {
    let mut out = String::new();
    let mut values = values.iter();
    loop {
        let before = values.len();
        let mut signs = format.chars();
        while let Some(c) = signs.next() {
            match c {
                '\\' => match signs.next() {
                    Some('n') => out.push('\n'),
                    Some('t') => out.push('\t'),
                    Some(c) => out.push(c),
                    None => out.push('\\'),
                },
                '%' => match signs.next() {
                    Some('%') => out.push('%'),
                    Some('s' | 'd' | 'b' | 'i' | 'u') => out.push_str(values.next().unwrap_or(&"")),
                    Some(c) => out.extend(['%', c]),
                    None => out.push('%'),
                },
                c => out.push(c),
            }
        }
        // The format is used again as long as it takes values.
        if values.len() == 0 || values.len() == before || out.len() > MAX_PRINTED {
            return out;
        }
    }
}
