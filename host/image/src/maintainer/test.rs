// SPDX-License-Identifier: Apache-2.0 OR MIT
//! test(1).

use super::{commands, shell::Shell};
use crate::tree::Kind;

/// Parentheses and `!` inside one another.
const MAX_NESTING: usize = 32;

/// Whether the expression holds.
pub(super) fn test(shell: &Shell, words: &[&str]) -> bool {
    Expression { shell, words, at: 0 }.either(0)
}

struct Expression<'a> {
    shell: &'a Shell<'a>,
    words: &'a [&'a str],
    at: usize,
}

impl Expression<'_> {
    fn next_is(&mut self, word: &str) -> bool {
        let there = self.words.get(self.at) == Some(&word);
        self.at += usize::from(there);
        there
    }

    fn either(&mut self, depth: usize) -> bool {
        let mut value = self.both(depth);
        while self.next_is("-o") {
            value |= self.both(depth);
        }
        value
    }

    fn both(&mut self, depth: usize) -> bool {
        let mut value = self.one(depth);
        while self.next_is("-a") {
            value &= self.one(depth);
        }
        value
    }

    fn one(&mut self, depth: usize) -> bool {
        let rest = self.words.get(self.at..).unwrap_or_default();
        if let [left, operator, right, ..] = rest
            && let Some(value) = binary(left, operator, right)
        {
            self.at += 3;
            return value;
        }
        match rest {
            [] => false,
            ["!", _, ..] if depth < MAX_NESTING => {
                self.at += 1;
                !self.one(depth + 1)
            }
            ["(", _, ..] if depth < MAX_NESTING => {
                self.at += 1;
                let value = self.either(depth + 1);
                self.next_is(")");
                value
            }
            [operator, operand, ..] if operator.len() == 2 && operator.starts_with('-') => {
                self.at += 2;
                self.unary(operator, operand)
            }
            [word, ..] => {
                self.at += 1;
                !word.is_empty()
            }
        }
    }

    fn unary(&self, operator: &str, operand: &str) -> bool {
        let path = self.shell.path(operand);
        let node = |follow| self.shell.tree.walk(&path, follow).map(|(_, id)| self.shell.tree.node(id));
        let named = !operand.is_empty();
        match operator {
            "-n" => named,
            "-z" => !named,
            "-e" | "-r" | "-w" => named && node(true).is_some(),
            "-f" => named && node(true).is_some_and(|n| matches!(n.kind, Kind::File(_))),
            "-d" => named && node(true).is_some_and(|n| matches!(n.kind, Kind::Directory(_))),
            "-L" | "-h" => named && node(false).is_some_and(|n| matches!(n.kind, Kind::Link(_))),
            "-s" => named && !commands::read(self.shell.tree, &path).is_empty(),
            "-x" => {
                named
                    && node(true)
                        .is_some_and(|n| matches!(n.kind, Kind::Directory(_)) || n.meta.mode & 0o111 != 0)
            }
            "-u" => named && node(true).is_some_and(|n| n.meta.mode & 0o4000 != 0),
            "-g" => named && node(true).is_some_and(|n| n.meta.mode & 0o2000 != 0),
            // Sockets, devices, pipes and terminals: an image has none.
            _ => false,
        }
    }
}

fn binary(left: &str, operator: &str, right: &str) -> Option<bool> {
    let numbers = || Some((left.trim().parse::<i64>().ok()?, right.trim().parse::<i64>().ok()?));
    let compare = |holds: fn(&i64, &i64) -> bool| Some(numbers().is_some_and(|(l, r)| holds(&l, &r)));
    match operator {
        "=" | "==" => Some(left == right),
        "!=" => Some(left != right),
        "-eq" => compare(i64::eq),
        "-ne" => compare(i64::ne),
        "-gt" => compare(i64::gt),
        "-ge" => compare(i64::ge),
        "-lt" => compare(i64::lt),
        "-le" => compare(i64::le),
        "-nt" | "-ot" | "-ef" => Some(false),
        _ => None,
    }
}
