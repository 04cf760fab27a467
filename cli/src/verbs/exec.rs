// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `unilith exec`: a program of the image, or a command of the overlay, in a running machine.

use crate::{
    fault::{Fault, Result},
    prepare, session, terminal,
};
use std::{
    ffi::{OsStr, OsString},
    io::{self, IsTerminal},
    path::PathBuf,
};
use unilith_machine::store::Store;
use unilith_overlay::Program;

#[derive(clap::Args, Clone, Debug)]
#[command(after_help = "\
What runs: a word with a slash in it, and any word behind one of -i -t -d -e -u -w --program or behind `--`, is a program of \
the image, which becomes a further process of the machine. A bare word is the overlay's command of that name (`help` lists \
them: ps, top, kill, ls, cat ...), else the program of that name in the image's PATH.

Exit codes are the program's, as with docker: 128 and the signal that ended it, 127 when there is no such program, 126 when \
it cannot run, 137 when the machine ended first. A program whose client goes is sent SIGHUP.

Examples:
  unilith exec -it web /bin/sh           a shell in the machine
  unilith exec -u postgres db psql -l    a program of the image, as another user
  unilith exec web ps                    the overlay's list of threads
  unilith exec web -- ps aux             the image's ps
  unilith exec -i db sh -c 'cat > /tmp/x' < x")]
pub struct Args {
    /// Pass this command's input to the program
    #[arg(short, long)]
    interactive: bool,
    /// Give the program a terminal
    #[arg(short, long)]
    tty: bool,
    /// Start the program and do not wait for it
    #[arg(short, long)]
    detach: bool,
    /// Set an environment variable of the program; without a value it is taken from here; may repeat
    #[arg(short, long, value_name = "KEY[=VALUE]")]
    env: Vec<String>,
    /// Read environment variables from a file, one KEY=VALUE a line; may repeat
    #[arg(long, value_name = "FILE")]
    env_file: Vec<PathBuf>,
    /// Run the program as this user of the image, by name or number
    #[arg(short, long, value_name = "USER[:GROUP]")]
    user: Option<String>,
    /// Working directory of the program
    #[arg(short, long, value_name = "DIR")]
    workdir: Option<String>,
    /// It is a program of the image, whatever the overlay has of that name
    #[arg(long)]
    program: bool,
    /// Answer in JSON, one object a line; failures as well, on standard error (commands of the overlay)
    #[arg(long, conflicts_with_all = ["interactive", "tty", "detach", "env", "env_file", "user", "workdir", "program"])]
    json: bool,
    machine: String,
    /// The program or command and its arguments; `help` lists the commands
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    command: Vec<OsString>,
}

impl Args {
    /// Whether the words name a program of the image for sure; else the machine looks at its commands first.
    fn is_program(&self, line: &[OsString]) -> bool {
        let is_asked = self.interactive
            || self.tty
            || self.detach
            || !self.env.is_empty()
            || !self.env_file.is_empty()
            || self.user.is_some()
            || self.workdir.is_some()
            || self.program;
        let has_slash = self.command.first().is_some_and(|name| name.as_encoded_bytes().contains(&b'/'));
        // The parser takes the first `--` away.
        let before = line.len().checked_sub(self.command.len() + 1).and_then(|at| line.get(at));
        let is_forced = before.is_some_and(|word| word == "--");
        is_asked || is_forced || has_slash && !self.json
    }
}

pub fn act(store: &Store, args: &Args) -> Result<u8> {
    let machine = session::find(store, &args.machine)?;
    let command: Vec<&[u8]> = args.command.iter().map(|word| word.as_encoded_bytes()).collect();
    let line: Vec<OsString> = std::env::args_os().collect();
    if !args.is_program(&line) {
        return session::Session::open(&machine)?.run(&command, args.json);
    }
    if args.tty && args.interactive && !args.detach && !io::stdin().is_terminal() {
        return Err(Fault::new("-t needs a terminal, and standard input is none: leave -t out"));
    }
    let variables = prepare::variables(&args.env_file, &args.env)?;
    let environment: Vec<String> = variables.iter().map(|(key, value)| format!("{key}={value}")).collect();
    let text = |value: &Option<String>| value.clone().unwrap_or_default();
    let (user, working) = (text(&args.user), text(&args.workdir));
    if working.contains('\0') || command.iter().any(|word| word.contains(&0)) {
        return Err(Fault::new("an argument or path holds a NUL byte"));
    }
    let program = Program {
        terminal: (args.tty && !args.detach).then(terminal::size),
        input: args.interactive && !args.detach,
        detached: args.detach,
        user: user.as_bytes(),
        working: working.as_bytes(),
        arguments: command,
        environment: environment.iter().map(|entry| OsStr::new(entry).as_encoded_bytes()).collect(),
        ..Program::default()
    };
    session::Session::open(&machine)?.program(&program)
}

/// A program of the image that somebody else than `exec`'s user asks for.
pub struct Request {
    pub machine: String,
    pub command: Vec<String>,
    /// On this command's terminal, if it has one.
    pub terminal: bool,
    pub detach: bool,
    pub env: Vec<String>,
    pub user: Option<String>,
    pub workdir: Option<String>,
}

pub fn program(store: &Store, request: Request) -> Result<u8> {
    let tty = request.terminal && io::stdin().is_terminal() && io::stdout().is_terminal();
    let args = Args {
        interactive: !request.detach,
        tty,
        detach: request.detach,
        env: request.env,
        env_file: Vec::new(),
        user: request.user,
        workdir: request.workdir,
        program: true,
        json: false,
        machine: request.machine,
        command: request.command.into_iter().map(OsString::from).collect(),
    };
    act(store, &args)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: Args,
    }

    fn is_program(words: &[&str]) -> bool {
        let line: Vec<OsString> = ["unilith"].iter().chain(words).map(OsString::from).collect();
        Line::try_parse_from(&line).unwrap().args.is_program(&line)
    }

    #[test]
    fn programs_of_the_image_and_commands_of_the_overlay_are_told_apart() {
        for words in [
            &["-it", "web", "sh"][..],
            &["-d", "web", "ps"],
            &["-e", "A=1", "web", "env"],
            &["-u", "me", "web", "id"],
            &["-w", "/tmp", "web", "ls"],
            &["--program", "web", "ps"],
            &["web", "/bin/sh"],
            &["web", "./run", "--json"],
            &["web", "--", "ps", "-ef"],
            &["--", "web", "/bin/ps", "--", "x"],
        ] {
            assert!(is_program(words), "{words:?}");
        }
        for words in [
            &["web", "ps"][..],
            &["web", "ls", "-l", "/etc"],
            &["--json", "web", "ps"],
            &["web", "kill", "--", "-1"],
            &["--", "web", "ps"],
            &["web", "run", "./x.o", "-it"],
        ] {
            assert!(!is_program(words), "{words:?}");
        }
        assert!(Line::try_parse_from(["unilith", "--json", "-i", "web", "cat"]).is_err());
    }
}
