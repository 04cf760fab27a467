// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Evaluates a maintainer script over a root file system in memory: control flow, variables and expansions are POSIX's;
//! what commands do is in [`super::commands`]. Nothing of the host is read, run or written.
//!
//! A command that is not known there prints nothing. It counts as done, so that what depends on it is done as well; in a
//! condition it counts as failed. Errors do not end a script (`set -e` is ignored): as much as possible is configured.

use super::{
    commands, generators, glob,
    syntax::{self, Command, Join, List, Mistake, Part, Pipeline, Redirect, Word},
};
use crate::tree::{Kind, Meta, Tree};
use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    rc::Rc,
};

/// Commands and loop turns of one script; the longest of Debian 12 takes about a thousand.
const MAX_STEPS: usize = 20_000;
/// Functions, substitutions and `eval` inside one another.
const MAX_DEPTH: usize = 64;
/// Bytes of a word, a variable or a command's output.
const MAX_TEXT: usize = 256 << 10;

/// An exit code.
pub(super) type Status = u8;

/// Why evaluation does not simply go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stop {
    Exit,
    Return(Status),
    Break,
    Continue,
    /// A limit was met.
    Limit,
}

pub(super) type Run<T> = Result<T, Stop>;

/// What outlives one script of an image.
#[derive(Debug, Default)]
pub(super) struct Memory {
    /// The priority by which each link of update-alternatives has its target.
    pub alternatives: BTreeMap<PathBuf, i64>,
    /// Numbers temporary files.
    pub temporaries: u32,
    /// Programs that are to be run in the finished image ([`generators`]).
    pub generators: Vec<Vec<String>>,
}

/// A field of an expanded word: its text, and itself as a pattern in which quoted signs are escaped.
#[derive(Clone, Debug, Default)]
struct Field {
    text: String,
    pattern: String,
    /// It is there even when it is empty.
    quoted: bool,
}

impl Field {
    fn push(&mut self, text: &str, quoted: bool) {
        self.text.push_str(text);
        for c in text.chars() {
            if quoted && "*?[]\\".contains(c) {
                self.pattern.push('\\');
            }
            self.pattern.push(c);
        }
        self.quoted |= quoted;
    }
}

pub(super) struct Shell<'a> {
    pub tree: &'a mut Tree,
    pub memory: &'a mut Memory,
    /// The defaults of the package's debconf questions.
    pub answers: BTreeMap<String, String>,
    pub variables: BTreeMap<String, String>,
    pub arguments: Vec<String>,
    pub directory: PathBuf,
    functions: BTreeMap<String, Rc<Command>>,
    /// The values that `local` hid in each function that runs, restored when it returns.
    hidden: Vec<Vec<(String, Option<String>)>>,
    /// What the current command may read, and how far it has.
    pub input: String,
    /// What the current command has printed.
    pub output: String,
    steps: usize,
    depth: usize,
    /// How many conditions are around the current command.
    conditions: usize,
    status: Status,
}

impl<'a> Shell<'a> {
    pub(super) fn new(tree: &'a mut Tree, memory: &'a mut Memory) -> Shell<'a> {
        Shell {
            tree,
            memory,
            answers: BTreeMap::new(),
            variables: BTreeMap::new(),
            arguments: Vec::new(),
            directory: "/".into(),
            functions: BTreeMap::new(),
            hidden: Vec::new(),
            input: String::new(),
            output: String::new(),
            steps: 0,
            depth: 0,
            conditions: 0,
            status: 0,
        }
    }

    /// Runs a script; `false`: it was given up at a limit.
    pub(super) fn script(&mut self, text: &str) -> Result<bool, Mistake> {
        let list = syntax::parse(text)?;
        Ok(self.list(&list) != Err(Stop::Limit))
    }

    /// A path as the script means it.
    pub(super) fn path(&self, text: &str) -> PathBuf {
        crate::libraries::tidy(&self.directory.join(text))
    }

    pub(super) fn is_function(&self, name: &str) -> bool {
        self.functions.contains_key(name)
    }

    fn step(&mut self) -> Run<()> {
        self.steps += 1;
        let full = self.output.len() > MAX_TEXT || self.depth > MAX_DEPTH;
        if self.steps > MAX_STEPS || full { Err(Stop::Limit) } else { Ok(()) }
    }

    fn deeper<T>(&mut self, run: impl FnOnce(&mut Self) -> Run<T>) -> Run<T> {
        self.depth += 1;
        let result = self.step().and_then(|()| run(self));
        self.depth -= 1;
        result
    }

    fn list(&mut self, list: &List) -> Run<Status> {
        let mut status = 0;
        for (index, (join, pipeline)) in list.iter().enumerate() {
            let skipped = match join {
                Join::Always => false,
                Join::And => status != 0,
                Join::Or => status == 0,
            };
            if skipped {
                continue;
            }
            // What `&&` asks is a condition only where something answers a failure.
            let asked = list[index + 1..].iter().take_while(|(j, _)| *j != Join::Always);
            let condition =
                asked.clone().any(|(j, _)| *j == Join::And) && asked.clone().any(|(j, _)| *j == Join::Or);
            self.conditions += usize::from(condition);
            let result = self.pipeline(pipeline);
            self.conditions -= usize::from(condition);
            status = result?;
            self.status = status;
        }
        Ok(status)
    }

    fn condition(&mut self, list: &List) -> Run<bool> {
        self.conditions += 1;
        let result = self.list(list);
        self.conditions -= 1;
        Ok(result? == 0)
    }

    fn pipeline(&mut self, pipeline: &Pipeline) -> Run<Status> {
        let negated = usize::from(pipeline.negated);
        self.conditions += negated;
        let result = match &pipeline.commands[..] {
            [only] => self.command(only),
            several => self.piped(several),
        };
        self.conditions -= negated;
        let status = result?;
        Ok(if pipeline.negated { u8::from(status == 0) } else { status })
    }

    fn piped(&mut self, commands: &[Command]) -> Run<Status> {
        let mut status = 0;
        let mut text = std::mem::take(&mut self.input);
        for (index, command) in commands.iter().enumerate() {
            self.input = text;
            let last = index + 1 == commands.len();
            if last {
                status = self.apart(|s| s.command(command))?;
                break;
            }
            let (result, printed) = self.capture(|s| s.apart(|s| s.command(command)));
            result?;
            text = printed;
        }
        self.input.clear();
        Ok(status)
    }

    /// As a subshell: what it sets is forgotten, `exit` ends only it.
    fn apart(&mut self, run: impl FnOnce(&mut Self) -> Run<Status>) -> Run<Status> {
        let kept = (self.variables.clone(), self.arguments.clone(), self.directory.clone());
        let result = run(self);
        (self.variables, self.arguments, self.directory) = kept;
        match result {
            Err(Stop::Exit | Stop::Break | Stop::Continue) => Ok(self.status),
            Err(Stop::Return(status)) => Ok(status),
            other => other,
        }
    }

    fn capture<T>(&mut self, run: impl FnOnce(&mut Self) -> Run<T>) -> (Run<T>, String) {
        let before = std::mem::take(&mut self.output);
        let result = self.deeper(run);
        (result, std::mem::replace(&mut self.output, before))
    }

    fn command(&mut self, command: &Command) -> Run<Status> {
        self.deeper(|s| s.command_here(command))
    }

    fn command_here(&mut self, command: &Command) -> Run<Status> {
        match command {
            Command::Simple { assignments, words, redirects } => self.simple(assignments, words, redirects),
            Command::If { arms, otherwise } => {
                for (condition, body) in arms {
                    if self.condition(condition)? {
                        return self.list(body);
                    }
                }
                otherwise.as_ref().map_or(Ok(0), |list| self.list(list))
            }
            Command::Case { subject, arms } => {
                let subject = self.text(subject)?;
                for (patterns, body) in arms {
                    for pattern in patterns {
                        let pattern = self.pattern(pattern)?;
                        if glob::matches(&pattern, &subject) {
                            return self.list(body);
                        }
                    }
                }
                Ok(0)
            }
            Command::For { name, words, body } => {
                let values = match words {
                    Some(words) => self.fields(words)?,
                    None => self.arguments.clone(),
                };
                let mut status = 0;
                for value in values {
                    self.step()?;
                    self.variables.insert(name.clone(), value);
                    match self.list(body) {
                        Ok(it) => status = it,
                        Err(Stop::Break) => break,
                        Err(Stop::Continue) => {}
                        Err(other) => return Err(other),
                    }
                }
                Ok(status)
            }
            Command::While { condition, body, until } => {
                let mut status = 0;
                while self.condition(condition)? != *until {
                    self.step()?;
                    match self.list(body) {
                        Ok(it) => status = it,
                        Err(Stop::Break) => break,
                        Err(Stop::Continue) => {}
                        Err(other) => return Err(other),
                    }
                }
                Ok(status)
            }
            Command::Group(list, redirects) => self.redirected(redirects, |s| s.list(list)),
            Command::Subshell(list, redirects) => self.redirected(redirects, |s| s.apart(|s| s.list(list))),
            Command::Function(name, body) => {
                self.functions.insert(name.clone(), Rc::new((**body).clone()));
                Ok(0)
            }
        }
    }

    fn redirected(
        &mut self,
        redirects: &[Redirect],
        run: impl FnOnce(&mut Self) -> Run<Status>,
    ) -> Run<Status> {
        let mut target = None;
        let mut input = None;
        for redirect in redirects {
            match redirect {
                Redirect::Output { descriptor: 1, target: word, append } => {
                    target = Some((self.text(word)?, *append));
                }
                Redirect::Output { .. } | Redirect::Duplicate => {}
                Redirect::Here(word) => input = Some(self.text(word)?),
                Redirect::Input(word) => {
                    let path = self.text(word)?;
                    let path = self.path(&path);
                    input = Some(self.tree.text(&path.to_string_lossy()).unwrap_or_default());
                }
            }
        }
        let before = input.map(|input| std::mem::replace(&mut self.input, input));
        let result = match target {
            None => run(self),
            Some((path, append)) => {
                let (result, printed) = self.capture(run);
                // What a script prints for its user goes to no file.
                if !path.starts_with("/dev/") && !path.is_empty() {
                    let path = self.path(&path);
                    self.write(&path, &printed, append);
                }
                result
            }
        };
        if let Some(before) = before {
            self.input = before;
        }
        result
    }

    /// Writes a file as the shell does: an existing one keeps its owner and mode.
    pub(super) fn write(&mut self, path: &Path, text: &str, append: bool) {
        let real = self.tree.walk(path, true).map(|(real, id)| (real, self.tree.node(id).meta));
        let (path, meta) = real.unwrap_or_else(|| (path.to_path_buf(), Meta::FILE));
        if self.tree.is_directory(&path) {
            return;
        }
        let mut bytes = if append { commands::read(self.tree, &path) } else { Vec::new() };
        if append
            && bytes.is_empty()
            && self.tree.file(&path).is_some_and(|(_, c)| c.read().is_ok_and(|b| !b.is_empty()))
        {
            return;
        }
        bytes.extend_from_slice(text.as_bytes());
        // A path that cannot be had (a file is where a directory is needed) is a command that failed.
        let _ = self.tree.put_bytes(&path, bytes, meta);
    }

    fn simple(
        &mut self,
        assignments: &[(String, Word)],
        words: &[Word],
        redirects: &[Redirect],
    ) -> Run<Status> {
        let mut values = Vec::new();
        self.status = 0;
        for (name, word) in assignments {
            values.push((name.clone(), self.text(word)?));
        }
        // The status of a substitution is that of an assignment without a command.
        let substituted = self.status;
        let fields = self.fields(words)?;
        let Some((name, arguments)) = fields.split_first() else {
            self.variables.extend(values);
            return self.redirected(redirects, |_| Ok(substituted));
        };
        self.variables.extend(values);
        self.redirected(redirects, |s| s.call(name, arguments))
    }

    fn call(&mut self, name: &str, arguments: &[String]) -> Run<Status> {
        if let Some(function) = self.functions.get(name).cloned() {
            let before = std::mem::replace(&mut self.arguments, arguments.to_vec());
            self.hidden.push(Vec::new());
            let result = self.command(&function);
            self.arguments = before;
            for (name, value) in self.hidden.pop().unwrap_or_default().into_iter().rev() {
                match value {
                    Some(value) => self.variables.insert(name, value),
                    None => self.variables.remove(&name),
                };
            }
            return match result {
                Err(Stop::Return(status)) => Ok(status),
                other => other,
            };
        }
        let number = |default| arguments.first().and_then(|a| a.parse::<u8>().ok()).unwrap_or(default);
        match name {
            "exit" => {
                self.status = number(self.status);
                return Err(Stop::Exit);
            }
            "return" => return Err(Stop::Return(number(self.status))),
            "break" => return Err(Stop::Break),
            "continue" => return Err(Stop::Continue),
            "set" => {
                if let Some(at) = arguments.iter().position(|a| a == "--") {
                    self.arguments = arguments[at + 1..].to_vec();
                }
                return Ok(0);
            }
            "shift" => {
                let count = usize::from(number(1)).min(self.arguments.len());
                self.arguments.drain(..count);
                return Ok(0);
            }
            "unset" => {
                arguments.iter().for_each(|name| {
                    self.variables.remove(name);
                });
                return Ok(0);
            }
            "export" | "local" | "readonly" | "declare" => {
                for argument in arguments.iter().filter(|a| !a.starts_with('-')) {
                    let (variable, value) = match argument.split_once('=') {
                        Some((variable, value)) => (variable, Some(value)),
                        None => (argument.as_str(), None),
                    };
                    let is_local = name == "local" || name == "declare";
                    if let Some(hidden) = self.hidden.last_mut().filter(|_| is_local) {
                        hidden.push((variable.into(), self.variables.get(variable).cloned()));
                    }
                    // Without a value dash's `local` leaves the one that the caller sees.
                    if let Some(value) = value {
                        self.variables.insert(variable.into(), value.into());
                    }
                }
                return Ok(0);
            }
            "eval" => return self.source(&arguments.join(" ")),
            "." | "source" => {
                let Some(file) = arguments.first().filter(|f| !f.ends_with("/confmodule")) else {
                    return Ok(0);
                };
                let path = self.path(file);
                let text = self.tree.text(&path.to_string_lossy());
                return text.map_or(Ok(1), |text| self.source(&text));
            }
            // These run another command; what they set around it does not matter here.
            "exec" | "command" | "builtin" | "env" | "nice" | "runuser" | "su"
                if arguments.first().is_some_and(|a| !a.starts_with('-') && !a.contains('=')) =>
            {
                return match name {
                    "runuser" | "su" => Ok(0),
                    _ => self.call(&arguments[0], &arguments[1..]),
                };
            }
            _ => {}
        }
        if let Some(status) = commands::run(self, name, arguments) {
            return Ok(status);
        }
        if generators::is_one(name)
            && let Some(path) = commands::find(self, name)
        {
            generators::note(&mut self.memory.generators, path, arguments);
            return Ok(0);
        }
        Ok(u8::from(self.conditions > 0))
    }

    fn source(&mut self, text: &str) -> Run<Status> {
        match syntax::parse(text) {
            Ok(list) => self.deeper(|s| s.list(&list)),
            Err(_) => Ok(2),
        }
    }

    fn parameter(&self, name: &str) -> Option<String> {
        match name {
            "@" | "*" => (!self.arguments.is_empty()).then(|| self.arguments.join(" ")),
            "#" => Some(self.arguments.len().to_string()),
            "?" => Some(self.status.to_string()),
            "$" => Some("1".into()),
            "-" | "!" => None,
            "0" => Some("postinst".into()),
            _ => match name.parse::<usize>() {
                Ok(index) => self.arguments.get(index.checked_sub(1)?).cloned(),
                Err(_) => self.variables.get(name).cloned(),
            },
        }
    }

    fn value(&mut self, name: &str, operator: Option<&(String, Word)>) -> Run<String> {
        let value = self.parameter(name);
        let Some((operator, word)) = operator else { return Ok(value.unwrap_or_default()) };
        let filled = value.as_ref().is_some_and(|v| !v.is_empty());
        Ok(match operator.as_str() {
            "length" => value.map_or(0, |v| v.chars().count()).to_string(),
            ":-" | ":?" if filled => value.unwrap_or_default(),
            "-" | "?" if value.is_some() => value.unwrap_or_default(),
            ":-" | "-" | ":?" | "?" => self.text(word)?,
            ":=" if filled => value.unwrap_or_default(),
            "=" if value.is_some() => value.unwrap_or_default(),
            ":=" | "=" => {
                let text = self.text(word)?;
                self.variables.insert(name.into(), text.clone());
                text
            }
            ":+" if filled => self.text(word)?,
            "+" if value.is_some() => self.text(word)?,
            "#" | "##" | "%" | "%%" => {
                let pattern = self.pattern(word)?;
                let value = value.unwrap_or_default();
                glob::trim(&value, &pattern, operator.starts_with('#'), operator.len() == 2).to_string()
            }
            _ => String::new(),
        })
    }

    /// The expansion of a word without splitting.
    fn text(&mut self, word: &Word) -> Run<String> {
        Ok(self.whole(word)?.text)
    }

    fn pattern(&mut self, word: &Word) -> Run<String> {
        Ok(self.whole(word)?.pattern)
    }

    fn whole(&mut self, word: &Word) -> Run<Field> {
        let mut field = Field::default();
        for part in word {
            let (text, quoted) = self.part(part)?;
            field.push(&text, quoted);
            if field.text.len() > MAX_TEXT {
                return Err(Stop::Limit);
            }
        }
        Ok(field)
    }

    fn part(&mut self, part: &Part) -> Run<(String, bool)> {
        Ok(match part {
            Part::Text(text, quoted) => (text.clone(), *quoted),
            Part::Parameter { name, operator, quoted } => (self.value(name, operator.as_ref())?, *quoted),
            Part::Command { list, quoted } => {
                let (result, printed) = self.capture(|s| s.apart(|s| s.list(list)));
                self.status = result?;
                (printed.trim_end_matches('\n').to_string(), *quoted)
            }
            Part::Arithmetic => ("0".into(), true),
        })
    }

    /// The fields of words: expanded, split, and patterns replaced by the paths they fit.
    fn fields(&mut self, words: &[Word]) -> Run<Vec<String>> {
        let mut out = Vec::new();
        for word in words {
            let mut fields: Vec<Field> = Vec::new();
            let mut current: Option<Field> = None;
            for part in word {
                if let Part::Parameter { name, operator: None, quoted: true } = part
                    && name == "@"
                {
                    for (index, argument) in self.arguments.iter().enumerate() {
                        if index > 0 {
                            fields.extend(current.take());
                        }
                        current.get_or_insert_default().push(argument, true);
                    }
                    continue;
                }
                let (text, quoted) = self.part(part)?;
                if text.len() > MAX_TEXT {
                    return Err(Stop::Limit);
                }
                if quoted || matches!(part, Part::Text(..)) {
                    current.get_or_insert_default().push(&text, quoted);
                    continue;
                }
                let space = |c: char| c == ' ' || c == '\t' || c == '\n';
                if text.starts_with(space) {
                    fields.extend(current.take());
                }
                for (index, piece) in text.split(space).filter(|p| !p.is_empty()).enumerate() {
                    if index > 0 {
                        fields.extend(current.take());
                    }
                    current.get_or_insert_default().push(piece, false);
                }
                if text.ends_with(space) {
                    fields.extend(current.take());
                }
            }
            fields.extend(current);
            for field in fields.into_iter().filter(|f| f.quoted || !f.text.is_empty()) {
                self.step()?;
                let found = match glob::is_pattern(&field.pattern) {
                    true => glob::paths(self.tree, &self.directory, &field.pattern),
                    false => Vec::new(),
                };
                if found.is_empty() { out.push(field.text) } else { out.extend(found) }
            }
        }
        Ok(out)
    }

    /// Whether a path is a regular file that may be executed.
    pub(super) fn is_program(&self, path: &Path) -> bool {
        self.tree.walk(path, true).is_some_and(|(_, id)| {
            let node = self.tree.node(id);
            matches!(node.kind, Kind::File(_)) && node.meta.mode & 0o111 != 0
        })
    }
}
