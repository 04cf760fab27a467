// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Variables: `$NAME` and `${NAME:-default}` in values, as the compose specification has them, and files of variables.

/// What a text may become: variables within variables' defaults are no way to fill memory.
pub const MAX_TEXT: usize = 1 << 20;
/// Defaults within defaults.
const MAX_NESTED: usize = 16;

/// What variables are known.
pub trait Lookup {
    fn get(&self, name: &str) -> Option<String>;
    /// Told of a name that nobody has set and that has no default: it stands for nothing.
    fn unset(&mut self, name: &str);
}

/// Puts in what variables stand for; `$$` is a dollar.
pub fn fill(text: &str, known: &mut dyn Lookup) -> Result<String, String> {
    fill_nested(text, known, 0)
}

fn fill_nested(text: &str, known: &mut dyn Lookup, depth: usize) -> Result<String, String> {
    if depth > MAX_NESTED {
        return Err(format!("more than {MAX_NESTED} variables are within each other"));
    }
    let mut out = String::new();
    let mut rest = text;
    while let Some(at) = rest.find('$') {
        out.push_str(&rest[..at]);
        rest = &rest[at + 1..];
        if let Some(after) = rest.strip_prefix('$') {
            out.push('$');
            rest = after;
        } else if let Some(inside) = rest.strip_prefix('{') {
            let end = closing(inside).ok_or_else(|| {
                format!("`${{{}` has no `}}`; a dollar alone is written `$$`", shortened(inside))
            })?;
            out.push_str(&braced(&inside[..end], known, depth)?);
            rest = &inside[end + 1..];
        } else {
            let length = name_length(rest);
            if length == 0 {
                return Err(format!(
                    "`${}` names no variable; a dollar alone is written `$$`",
                    shortened(rest)
                ));
            }
            out.push_str(&value(&rest[..length], known));
            rest = &rest[length..];
        }
        if out.len() > MAX_TEXT {
            return Err(format!("variables make this longer than {} KiB", MAX_TEXT >> 10));
        }
    }
    out.push_str(rest);
    Ok(out)
}

fn shortened(text: &str) -> String {
    text.chars().take(20).collect()
}

fn value(name: &str, known: &mut dyn Lookup) -> String {
    known.get(name).unwrap_or_else(|| {
        known.unset(name);
        String::new()
    })
}

/// How many bytes at its beginning are a name.
fn name_length(text: &str) -> usize {
    let is_part = |(n, c): (usize, char)| c == '_' || c.is_ascii_alphabetic() || n > 0 && c.is_ascii_digit();
    text.char_indices().take_while(|pair| is_part(*pair)).count()
}

/// Where the brace closes that is open at the beginning.
fn closing(text: &str) -> Option<usize> {
    let mut depth = 1;
    for (at, c) in text.char_indices() {
        match c {
            '{' if text[..at].ends_with('$') => depth += 1,
            '}' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return Some(at);
        }
    }
    None
}

/// `NAME`, and with `:-` `-` `:?` `?` `:+` `+` what is there when it is not set, or is.
fn braced(inside: &str, known: &mut dyn Lookup, depth: usize) -> Result<String, String> {
    let (name, rest) = inside.split_at(name_length(inside));
    if name.is_empty() {
        return Err(format!("`${{{}}}` names no variable", shortened(inside)));
    }
    if rest.is_empty() {
        return Ok(value(name, known));
    }
    let (empty_too, operator) = rest.strip_prefix(':').map_or((false, rest), |rest| (true, rest));
    let set = known.get(name).filter(|value| !empty_too || !value.is_empty());
    let word = operator.get(1..).unwrap_or_default();
    match operator.bytes().next() {
        Some(b'-') => set.map_or_else(|| fill_nested(word, known, depth + 1), Ok),
        Some(b'+') => set.map_or(Ok(String::new()), |_| fill_nested(word, known, depth + 1)),
        Some(b'?') => set.map_or_else(
            || {
                let why = fill_nested(word, known, depth + 1)?;
                let why = if why.is_empty() { "it must have a value".into() } else { why };
                Err(format!("variable {name} is not set: {why}"))
            },
            Ok,
        ),
        _ => Err(format!("`${{{}}}`: behind a variable's name are :- - :+ + :? or ?", shortened(inside))),
    }
}

/// A line of a file of variables: a name and its value; `None`: it has the value it has here.
pub type Pair = (String, Option<String>);

/// Reads a file of variables: `NAME=value`, quotes, comments, `export`. Values in single quotes are as they are; in others
/// variables are filled in, from those above them and from `known`.
pub fn read(text: &str, known: &mut dyn Lookup) -> crate::Result<Vec<Pair>> {
    if text.len() > MAX_TEXT {
        return Err(crate::Mistake::new(
            crate::Line::default(),
            format!("the file has more than {} KiB", MAX_TEXT >> 10),
        ));
    }
    let mut pairs: Vec<Pair> = Vec::new();
    let mut rest = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut line = 1;
    while !rest.is_empty() {
        let at_line = line;
        let wrong = |why: String| crate::Mistake::new(crate::Line { file: 0, number: at_line }, why);
        let end = rest.find('\n').unwrap_or(rest.len());
        let first = rest[..end].trim();
        let begin = first.strip_prefix("export ").map_or(first, str::trim_start);
        let next = rest.get(end + 1..).unwrap_or_default();
        if begin.is_empty() || begin.starts_with('#') {
            (rest, line) = (next, line + 1);
            continue;
        }
        let (name, value) = begin.split_once('=').map_or((begin, None), |(name, value)| (name, Some(value)));
        let name = name.trim_end();
        let is_name = |c: char| c.is_ascii_alphanumeric() || "_.-".contains(c);
        if name.is_empty() || name.starts_with(|c: char| c.is_ascii_digit()) || !name.chars().all(is_name) {
            return Err(wrong(format!("`{}` is no name of a variable; write NAME=value", shortened(name))));
        }
        let Some(value) = value.map(str::trim_start) else {
            pairs.push((name.into(), None));
            (rest, line) = (next, line + 1);
            continue;
        };
        let value = match value.chars().next() {
            Some(quote @ ('"' | '\'')) => {
                // It may go on behind the end of the line.
                let from = value.as_ptr() as usize - rest.as_ptr() as usize + 1;
                let (inside, after) = quoted(&rest[from..], quote)
                    .ok_or_else(|| wrong(format!("the value of {name} has no {quote} at its end")))?;
                let tail = &rest[from + after..];
                let end = tail.find('\n').unwrap_or(tail.len());
                let behind = tail[..end].trim();
                if !behind.is_empty() && !behind.starts_with('#') {
                    return Err(wrong(format!("there is something behind the value of {name}")));
                }
                line += 1 + rest[from..from + after].matches('\n').count();
                rest = tail.get(end + 1..).unwrap_or_default();
                if quote == '"' { filled(&inside, &pairs, known).map_err(wrong)? } else { inside }
            }
            _ => {
                let end = value.find(" #").unwrap_or(value.len());
                (rest, line) = (next, line + 1);
                filled(value[..end].trim_end(), &pairs, known).map_err(wrong)?
            }
        };
        pairs.push((name.into(), Some(value)));
    }
    Ok(pairs)
}

/// What is between quotes, and where it goes on behind them.
fn quoted(text: &str, quote: char) -> Option<(String, usize)> {
    let mut out = String::new();
    let mut letters = text.char_indices();
    while let Some((at, c)) = letters.next() {
        match c {
            c if c == quote => return Some((out, at + 1)),
            '\\' if quote == '"' => match letters.next()?.1 {
                'n' => out.push('\n'),
                't' => out.push('\t'),
                'r' => out.push('\r'),
                // For the variables, which are filled in afterwards.
                '$' => out.push_str("$$"),
                c @ ('"' | '\\') => out.push(c),
                c => out.extend(['\\', c]),
            },
            c => out.push(c),
        }
    }
    None
}

fn filled(text: &str, above: &[Pair], known: &mut dyn Lookup) -> Result<String, String> {
    struct Both<'a>(&'a [Pair], &'a mut dyn Lookup);
    impl Lookup for Both<'_> {
        fn get(&self, name: &str) -> Option<String> {
            let above = || self.0.iter().rev().find(|(key, _)| key == name)?.1.clone();
            self.1.get(name).or_else(above)
        }
        fn unset(&mut self, name: &str) {
            self.1.unset(name);
        }
    }
    fill(text, &mut Both(above, known))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[derive(Default)]
    struct Known(Vec<String>);

    impl Lookup for Known {
        fn get(&self, name: &str) -> Option<String> {
            match name {
                "A" => Some("one".into()),
                "EMPTY" => Some(String::new()),
                _ => None,
            }
        }
        fn unset(&mut self, name: &str) {
            self.0.push(name.into());
        }
    }

    fn of(text: &str) -> Result<String, String> {
        fill(text, &mut Known::default())
    }

    #[test]
    fn every_form_of_the_specification_is_filled_in() {
        for (text, value) in [
            ("$A-${A}$$A", "one-one$A"),
            ("${B:-x y}", "x y"),
            ("${EMPTY-x}|${EMPTY:-x}", "|x"),
            ("${A:+set}|${EMPTY:+set}|${EMPTY+set}|${B+set}", "set||set|"),
            ("${B:-${C:-${A}}}", "one"),
            ("${A:?no}", "one"),
            ("${B}", ""),
        ] {
            assert_eq!(of(text).as_deref(), Ok(value), "{text}");
        }
        let mut known = Known::default();
        fill("$B ${C} ${D:-x}", &mut known).unwrap();
        assert_eq!(known.0, ["B", "C"]);
    }

    #[test]
    fn what_is_no_variable_is_said() {
        for (text, words) in [
            ("${B:?say $A}", "variable B is not set: say one"),
            ("${B?}", "must have a value"),
            ("${A", "has no `}`"),
            ("a $ b", "`$$`"),
            ("${1}", "names no variable"),
            ("${A!x}", ":-"),
        ] {
            assert!(of(text).unwrap_err().contains(words), "{text}: {:?}", of(text));
        }
        let deep = format!("{}x{}", "${B:-".repeat(40), "}".repeat(40));
        assert!(of(&deep).unwrap_err().contains("within each other"));
    }

    #[test]
    fn files_of_variables_have_quotes_comments_and_each_other() {
        let text = "# all\nexport NAME=web\nPLAIN = a b # comment\nSINGLE='$A #x' # y\nDOUBLE=\"$NAME\\n\\$A \\\"q\\\"\"\n\
                    LONG=\"one\ntwo\"\nHERE\nNONE=\nURL=http://x/#top\n";
        let pairs = read(text, &mut Known::default()).unwrap();
        let shown: Vec<(&str, Option<&str>)> =
            pairs.iter().map(|(name, value)| (name.as_str(), value.as_deref())).collect();
        let some = |name, value| (name, Some(value));
        let expected = [
            some("NAME", "web"),
            some("PLAIN", "a b"),
            some("SINGLE", "$A #x"),
            some("DOUBLE", "web\n$A \"q\""),
            some("LONG", "one\ntwo"),
            ("HERE", None),
            some("NONE", ""),
            some("URL", "http://x/#top"),
        ];
        assert_eq!(shown, expected);
        for (text, line) in [("A=1\n=2\n", 2), ("A='1\n2", 1), ("A=\"1\n2\"\nB C=3", 3), ("A='1' x", 1)] {
            assert_eq!(read(text, &mut Known::default()).unwrap_err().line.number, line, "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_filled_or_refused(text in "[A-C${}:?+a\\-é\n'\"=\\\\# ]{0,80}") {
            let _ = of(&text);
            let _ = read(&text, &mut Known::default());
        }
    }
}
