// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Programs that run in the machine before its own program.

use alloc::{
    string::{String, ToString},
    vec::Vec,
};

/// A hook `startContainer` (runtime-spec, config.md, "POSIX-platform Hooks").
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hook {
    /// Absolute, in the machine.
    pub path: String,
    /// Its arguments, its own name first.
    pub arguments: Vec<String>,
    /// `KEY=VALUE`; all that it has.
    pub environment: Vec<String>,
    /// Seconds that it may take.
    pub timeout: u64,
}

/// No argument and no variable holds it.
const SEPARATOR: char = '\0';

impl Hook {
    /// Timeout, path, number of arguments, arguments, variables.
    pub(crate) fn show(&self) -> String {
        let (timeout, count) = (self.timeout.to_string(), self.arguments.len().to_string());
        let front = [timeout.as_str(), &self.path, &count];
        let words = self.arguments.iter().chain(&self.environment).map(String::as_str);
        front.into_iter().chain(words).collect::<Vec<_>>().join("\0")
    }

    pub(crate) fn parse(text: &str) -> Option<Hook> {
        let mut words = text.split(SEPARATOR);
        let timeout = words.next()?.parse().ok()?;
        let path = words.next().filter(|path| path.starts_with('/'))?.to_string();
        let count: usize = words.next()?.parse().ok()?;
        let mut arguments: Vec<String> = words.map(str::to_string).collect();
        if count > arguments.len() {
            return None;
        }
        let environment = arguments.split_off(count);
        Some(Hook { path, arguments, environment, timeout })
    }
}
