// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `unilith attach`: a prompt for a running machine, with history and completion. Without a terminal the lines of standard
//! input are run one after the other.

use crate::{
    fault::{Fault, Result},
    session::{self, Session},
    words,
};
use rustyline::{
    CompletionType, Config, Context, Editor, Helper,
    completion::{Completer, Pair},
    error::ReadlineError,
    highlight::Highlighter,
    hint::Hinter,
    history::FileHistory,
    validate::{ValidationContext, ValidationResult, Validator},
};
use std::{
    collections::BTreeMap,
    io::{self, BufRead, IsTerminal},
    path::PathBuf,
};
use unilith_machine::store::Store;
use unilith_overlay::Client;

#[derive(clap::Args, Clone, Debug)]
pub struct Args {
    machine: String,
}

/// Lines kept from one session to the next.
const HISTORY: usize = 2000;

pub fn act(store: &Store, args: &Args) -> Result<u8> {
    let machine = session::find(store, &args.machine)?;
    let session = Session::open(&machine)?;
    if !io::stdin().is_terminal() {
        return script(&session);
    }
    let history = store.shared().join("attach.history");
    prompt(&session, &machine.spec.name, history)
}

/// The lines of standard input; the exit code is the last command's.
fn script(session: &Session) -> Result<u8> {
    let mut code = 0;
    for line in io::stdin().lock().lines() {
        let line = line.map_err(|e| Fault::new(format!("cannot read the commands: {e}")))?;
        match words::split(&line) {
            Ok(words) if words.is_empty() => {}
            Ok(words) if is_exit(&words) => return Ok(code),
            Ok(words) => code = session.run(&words, false)?,
            Err(words::Open::Quote) => return Err(Fault::new(format!("a quote is not closed: {line}"))),
        }
    }
    Ok(code)
}

fn is_exit(words: &[String]) -> bool {
    matches!(words, [word] if word == "exit" || word == "quit")
}

fn prompt(session: &Session, name: &str, history: PathBuf) -> Result<u8> {
    let client = &session.client;
    let failed = |e: ReadlineError| Fault::new(format!("cannot read from the terminal: {e}"));
    let config = Config::builder()
        .completion_type(CompletionType::List)
        .max_history_size(HISTORY)
        .map_err(failed)?
        .auto_add_history(true)
        .build();
    let mut editor: Editor<Assistant<'_>, FileHistory> = Editor::with_config(config).map_err(failed)?;
    editor.set_helper(Some(Assistant { client, kinds: kinds(client)? }));
    // The first time there is none.
    let _ = editor.load_history(&history);
    eprintln!("attached to {name} ({}); `help` lists the commands, Ctrl-D leaves", client.kernel());
    let mut code = 0;
    loop {
        match editor.readline(&format!("{name}> ")) {
            Ok(line) => match words::split(&line) {
                Ok(words) if words.is_empty() => {}
                Ok(words) if is_exit(&words) => break,
                Ok(words) => match session.run(&words, false) {
                    Ok(ended) => code = ended,
                    Err(fault) => {
                        // The machine is gone, or the line was too long: the first ends the next command as well.
                        eprintln!("unilith: {fault}");
                        if client.ping(b"").is_err() {
                            code = fault.code;
                            break;
                        }
                    }
                },
                Err(words::Open::Quote) => eprintln!("unilith: a quote is not closed"),
            },
            Err(ReadlineError::Interrupted) => {}
            Err(ReadlineError::Eof) => break,
            Err(e) => return Err(failed(e)),
        }
    }
    // A history that cannot be kept is no reason to fail.
    let _ = editor.save_history(&history);
    Ok(code)
}

/// What the arguments of each command are.
fn kinds(client: &Client) -> Result<BTreeMap<String, String>> {
    let answer = client.run(&["help"], true)?;
    let text = String::from_utf8_lossy(&answer.out);
    let lines = text.lines().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
    Ok(lines
        .filter_map(|c| Some((c["name"].as_str()?.to_string(), c["completes"].as_str()?.to_string())))
        .collect())
}

/// Asks the machine how a word may go on.
struct Assistant<'a> {
    client: &'a Client,
    kinds: BTreeMap<String, String>,
}

impl Completer for Assistant<'_> {
    type Candidate = Pair;

    fn complete(&self, line: &str, at: usize, _: &Context<'_>) -> rustyline::Result<(usize, Vec<Pair>)> {
        let (before, start, word) = words::last(&line[..at]);
        let kind = match before.first() {
            None => "commands",
            Some(command) => self.kinds.get(command).map_or("nothing", String::as_str),
        };
        // An option has no completion, but for `kill -HUP`.
        let (dash, stem) = match word.strip_prefix('-') {
            Some(stem) if kind == "signals" => ("-", stem),
            Some(_) => return Ok((start, Vec::new())),
            None => ("", word.as_str()),
        };
        let answer = match kind {
            "nothing" => return Ok((start, Vec::new())),
            kind => self.client.run(&["complete", kind, stem], false),
        };
        // A machine that does not answer will say so when the command is run.
        let Ok(answer) = answer else { return Ok((start, Vec::new())) };
        let found = String::from_utf8_lossy(&answer.out).into_owned();
        let single = found.lines().count() == 1;
        let pair = |word: &str| {
            let space = if single && !word.ends_with('/') { " " } else { "" };
            Pair { display: word.to_string(), replacement: format!("{dash}{}{space}", words::quote(word)) }
        };
        Ok((start, found.lines().map(pair).collect()))
    }
}

impl Validator for Assistant<'_> {
    fn validate(&self, context: &mut ValidationContext<'_>) -> rustyline::Result<ValidationResult> {
        Ok(match words::split(context.input()) {
            Ok(_) => ValidationResult::Valid(None),
            Err(words::Open::Quote) => ValidationResult::Incomplete,
        })
    }
}

impl Hinter for Assistant<'_> {
    type Hint = String;
}

impl Highlighter for Assistant<'_> {}

impl Helper for Assistant<'_> {}
