// SPDX-License-Identifier: Apache-2.0 OR MIT
//! docker compose files: what they say about services, as values that machines can be made from.
//!
//! - [`yaml`]: the text as a tree whose nodes know their line; anchors, aliases and merge keys are resolved.
//! - [`variables`]: `${NAME:-default}` in values, and files of variables (`.env`, `env_file`).
//! - [`merge`]: files on top of each other.
//! - [`project`]: the tree as services, networks, volumes and files. A key that nothing here does is refused by its path,
//!   with what to do instead; none is left out silently.
//! - [`order`]: which service starts before which.
//!
//! The files are not trusted: text, nodes, depth and what variables make of a text have limits. Nothing here opens a file.
//!
//! Depends on no other crate of this repository. The command depends on it.
#![forbid(unsafe_code)]

pub mod fields;
pub mod merge;
pub mod order;
pub mod project;
pub mod service;
pub mod variables;
pub mod yaml;

/// Why a file is no project: one line. Strings of the file are in it as they are: whoever prints it makes them printable.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}{message}", line.before())]
pub struct Mistake {
    pub line: Line,
    pub message: String,
}

/// A line of one of the project's files; shown as `line 4`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Line {
    /// Which of the files, from 0.
    pub file: usize,
    /// Counted from 1; 0: no line in particular.
    pub number: usize,
}

impl Line {
    fn before(self) -> String {
        if self.number == 0 { String::new() } else { format!("{self}: ") }
    }
}

impl std::fmt::Display for Line {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "line {}", self.number)
    }
}

impl Mistake {
    pub fn new(line: Line, message: impl Into<String>) -> Mistake {
        Mistake { line, message: message.into() }
    }
}

pub type Result<T> = std::result::Result<T, Mistake>;
