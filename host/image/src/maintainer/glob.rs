// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The shell's patterns (POSIX.1-2017, XCU 2.13): `*`, `?`, `[…]`, and a backslash before a sign that means itself.

use crate::tree::Tree;
use std::path::{Path, PathBuf};

/// Paths that one pattern is replaced by.
const MAX_PATHS: usize = 1000;

/// Whether a word has an active sign in it.
pub(super) fn is_pattern(text: &str) -> bool {
    let mut escaped = false;
    text.chars().any(|c| {
        let active = !escaped && "*?[".contains(c);
        escaped = c == '\\' && !escaped;
        active
    })
}

/// One sign of a pattern at its beginning: whether it fits `c`, and what is left of the pattern.
fn one(pattern: &[char], c: char) -> Option<(bool, &[char])> {
    match pattern {
        ['\\', sign, rest @ ..] => Some((*sign == c, rest)),
        ['?', rest @ ..] => Some((true, rest)),
        ['[', rest @ ..] => {
            let negated = matches!(rest.first(), Some('!' | '^'));
            let body = if negated { &rest[1..] } else { rest };
            // A bracket right at the beginning means itself.
            let end = body.iter().skip(1).position(|b| *b == ']').map(|n| n + 1);
            let Some(end) = end else { return Some((c == '[', rest)) };
            let set: Vec<char> = body[..end].iter().copied().filter(|b| *b != '\\').collect();
            let mut fits = false;
            let mut at = 0;
            while at < set.len() {
                if at + 2 < set.len() && set[at + 1] == '-' {
                    fits |= (set[at]..=set[at + 2]).contains(&c);
                    at += 3;
                } else {
                    fits |= set[at] == c;
                    at += 1;
                }
            }
            Some((fits != negated, &body[end + 1..]))
        }
        [sign, rest @ ..] => Some((*sign == c, rest)),
        [] => None,
    }
}

/// Whether a pattern fits a whole text. It backtracks only to the last star.
pub(super) fn matches(pattern: &str, text: &str) -> bool {
    let pattern: Vec<char> = pattern.chars().collect();
    let text: Vec<char> = text.chars().collect();
    let mut rest = &pattern[..];
    let mut at = 0;
    let mut star: Option<(&[char], usize)> = None;
    loop {
        if let ['*', behind @ ..] = rest {
            rest = behind;
            star = Some((behind, at));
            continue;
        }
        let step = text.get(at).and_then(|c| one(rest, *c)).filter(|(fits, _)| *fits);
        if let Some((_, behind)) = step {
            rest = behind;
            at += 1;
            continue;
        }
        if at == text.len() && rest.is_empty() {
            return true;
        }
        match star {
            Some((behind, from)) if from < text.len() => {
                star = Some((behind, from + 1));
                rest = behind;
                at = from + 1;
            }
            _ => return false,
        }
    }
}

/// `${NAME#PATTERN}` and the others: what is left of a text without its beginning or end that fits.
pub(super) fn trim<'a>(text: &'a str, pattern: &str, front: bool, longest: bool) -> &'a str {
    // Longer values than this are not paths, versions or names.
    if text.len() > 4096 {
        return text;
    }
    let mut cuts: Vec<usize> = text.char_indices().map(|(at, _)| at).chain([text.len()]).collect();
    if front == longest {
        cuts.reverse();
    }
    let part = |at: usize| if front { &text[..at] } else { &text[at..] };
    match cuts.into_iter().find(|at| matches(pattern, part(*at))) {
        Some(at) if front => &text[at..],
        Some(at) => &text[..at],
        None => text,
    }
}

/// The paths of a tree that a pattern fits, in order.
pub(super) fn paths(tree: &Tree, directory: &Path, pattern: &str) -> Vec<String> {
    let absolute = pattern.starts_with('/');
    let base = if absolute { Path::new("/") } else { directory };
    let mut found: Vec<(String, PathBuf)> =
        vec![(if absolute { "/".to_string() } else { String::new() }, base.to_path_buf())];
    for part in pattern.split('/').filter(|p| !p.is_empty()) {
        let mut next = Vec::new();
        for (shown, path) in &found {
            let join = |name: &str| match shown.is_empty() || shown.ends_with('/') {
                true => format!("{shown}{name}"),
                false => format!("{shown}/{name}"),
            };
            if is_pattern(part) {
                let hidden = part.starts_with('.');
                let names = tree.names_in(path).into_iter().filter(|n| n.starts_with('.') == hidden);
                next.extend(names.filter(|n| matches(part, n)).map(|n| (join(&n), path.join(&n))));
            } else {
                let name = part.replace('\\', "");
                if tree.walk(&path.join(&name), false).is_some() {
                    next.push((join(&name), path.join(&name)));
                }
            }
            if next.len() > MAX_PATHS {
                return Vec::new();
            }
        }
        found = next;
    }
    found.into_iter().map(|(shown, _)| shown).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_fit_as_in_a_shell() {
        for (pattern, text, expected) in [
            ("*.conf", "a.conf", true),
            ("*.conf", "a.config", false),
            ("a?c", "abc", true),
            ("[a-c]x", "bx", true),
            ("[!a-c]x", "bx", false),
            ("\\*", "*", true),
            ("\\*", "x", false),
            ("*a*b", "xaxab", true),
            ("[", "[", true),
            ("", "", true),
        ] {
            assert_eq!(matches(pattern, text), expected, "{pattern} {text}");
        }
        assert!(!matches(&"*a".repeat(40), &"a".repeat(3000).replace("aaa", "b")));
    }

    #[test]
    fn beginnings_and_ends_are_cut_shortest_or_longest() {
        assert_eq!(trim("/usr/lib/x", "*/", true, false), "usr/lib/x");
        assert_eq!(trim("/usr/lib/x", "*/", true, true), "x");
        assert_eq!(trim("a.tar.gz", ".*", false, false), "a.tar");
        assert_eq!(trim("a.tar.gz", ".*", false, true), "a");
        assert_eq!(trim("a", "b", true, true), "a");
    }
}
