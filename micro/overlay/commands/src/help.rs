// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `help`, and `complete`, which interactive clients ask.

use alloc::string::String;
use api_overlay::{
    Column, Command, Completes, Failure, Listing, Outcome, Session, Stream, Value, commands, find, manual,
};

pub const COMMANDS: [Command; 2] = [
    Command {
        name: "help",
        arguments: manual!("[COMMAND]"),
        summary: manual!("List the commands, or explain one"),
        help: manual!(
            "Prints the commands with a line each; of a COMMAND its arguments and its manual. In the machine-readable form the list \
               has all of that."
        ),
        completes: Completes::Commands,
        run: help,
    },
    Command {
        name: "complete",
        arguments: manual!("KIND PREFIX"),
        summary: manual!("Say how a word may go on"),
        help: manual!(
            "For interactive clients: prints what begins with PREFIX, one a line. KIND is commands, paths, programs, \
               symbols, signals or probes; `help` in its machine-readable form says which of these a command's arguments \
               are."
        ),
        completes: Completes::Nothing,
        run: complete_word,
    },
];

const ALL: [Column; 2] = [Column::left("name", "COMMAND", 10), Column::left("summary", "SUMMARY", 0)];
const WHOLE: [Column; 5] = [
    Column::left("name", "", 0),
    Column::left("arguments", "", 0),
    Column::left("summary", "", 0),
    Column::left("help", "", 0),
    Column::left("completes", "", 0),
];
const WORDS: [Column; 1] = [Column::left("word", "", 0)];
/// Longer lists of completions help nobody.
const MAX_WORDS: usize = 500;

fn kind_name(completes: Completes) -> &'static str {
    match completes {
        Completes::Nothing => "nothing",
        Completes::Commands => "commands",
        Completes::Paths => "paths",
        Completes::Programs => "programs",
        Completes::Symbols => "symbols",
        Completes::Signals => "signals",
        Completes::Probes => "probes",
    }
}

fn whole(command: &'static Command) -> [Value<'static>; 5] {
    [
        Value::Text(command.name),
        Value::Text(command.arguments),
        Value::Text(command.summary),
        Value::Text(command.help),
        Value::Text(kind_name(command.completes)),
    ]
}

fn help(session: &dyn Session, arguments: &[&[u8]]) -> Outcome {
    match arguments {
        [] if session.json() => {
            let mut list = Listing::new(session, &WHOLE);
            commands().into_iter().try_for_each(|command| list.row(&whole(command)))?;
        }
        [] => {
            let mut list = Listing::bare(session, &ALL);
            commands().iter().try_for_each(|c| list.row(&[Value::Text(c.name), Value::Text(c.summary)]))?;
        }
        [name] => {
            let command = find(name)
                .ok_or_else(|| Failure::about(name).because("there is no such command; `help` lists them"))?;
            if session.json() {
                Listing::new(session, &WHOLE).row(&whole(command))?;
            } else {
                let mut text = String::new();
                for part in [command.name, " ", command.arguments, "\n", command.summary, ".\n", command.help]
                {
                    text.push_str(part);
                }
                if !command.help.is_empty() {
                    text.push('\n');
                }
                session.write(Stream::Out, text.as_bytes())?;
            }
        }
        _ => return Err(Failure::usage("one command at a time")),
    }
    Ok(0)
}

fn complete_word(session: &dyn Session, arguments: &[&[u8]]) -> Outcome {
    let [kind, prefix] = arguments else { return Err(Failure::usage("a kind and a prefix are needed")) };
    let kinds = [
        Completes::Commands,
        Completes::Paths,
        Completes::Programs,
        Completes::Symbols,
        Completes::Signals,
        Completes::Probes,
    ];
    let kind = kinds.into_iter().find(|k| kind_name(*k).as_bytes() == *kind);
    let kind = kind.ok_or_else(|| Failure::usage("there is no such kind of word"))?;
    let mut list = Listing::bare(session, &WORDS);
    for word in api_overlay::complete(kind, prefix, MAX_WORDS) {
        list.row(&[Value::Bytes(&word)])?;
    }
    Ok(0)
}

pub fn complete(prefix: &[u8], found: &mut dyn FnMut(&[u8])) {
    for command in commands().iter().filter(|c| c.name.as_bytes().starts_with(prefix)) {
        found(command.name.as_bytes());
    }
}
