// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The rest of a command line: the program, its arguments, and flags of ours between them, for the verbs that take a program.

use crate::{
    fault::{Fault, Result},
    foreign,
};

/// A program and its arguments. As with docker every word behind the program is the program's.
#[derive(clap::Args, Clone, Debug)]
pub struct Line {
    /// The program: an application of the catalogue, debian:PACKAGE, an ELF file, a directory, oci:FILE (none: the
    /// project here), and its arguments. As with docker every word behind the program is the program's.
    // One list: with two clap would look for its own flags between them.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_names = ["PROGRAM", "ARGUMENTS"])]
    line: Vec<String>,
}

/// What a line says.
#[derive(Debug, Default, PartialEq)]
pub struct Program {
    pub name: Option<String>,
    pub words: Vec<String>,
}

impl Line {
    /// Takes the line of this process apart. `verb PROGRAM -p 80 -- ARGUMENTS`: flags may follow the program if `--` ends
    /// them; those are then in `flags` with the ones before the program.
    ///
    /// # Errors
    /// An unknown flag before the program, or between the program and `--`.
    pub fn program<F: clap::Args>(&self, verb: &str, flags: &mut F) -> Result<Program> {
        // Behind the command's name and the verb, which has no flags before it.
        let words: Vec<String> =
            crate::detach::words().skip(2).map(|word| word.to_string_lossy().into_owned()).collect();
        self.sort_out(verb, flags, &words)
    }

    /// `words` are those behind the verb on the command line; `self.line` is what remained of them behind the flags.
    fn sort_out<F: clap::Args>(&self, verb: &str, flags: &mut F, words: &[String]) -> Result<Program> {
        let early = &words[..words.len().saturating_sub(self.line.len())];
        let early = early.strip_suffix(&["--".to_string()]).unwrap_or(early);
        let mut line = self.line.iter().cloned();
        let mut program = Program { name: line.next(), words: line.collect() };
        if let Some(flag) = program.name.as_ref().filter(|p| p.starts_with('-')) {
            let message = match foreign::flag(verb, flag) {
                Some(instead) => format!("there is no flag {flag}: {instead}"),
                None => format!("there is no flag {flag}; see unilith {verb} --help"),
            };
            return Err(Fault { code: 2, message });
        }
        if !program.words.first().is_some_and(|w| w.starts_with('-')) {
            return Ok(program);
        }
        let Some(end) = program.words.iter().position(|w| w == "--") else {
            if read::<F>(program.words.clone()).is_ok() {
                eprintln!(
                    "unilith: `{}` goes to the program; for flags of unilith write them before it, or `--` after them",
                    program.words.join(" ")
                );
            }
            return Ok(program);
        };
        let late: Vec<String> = program.words.drain(..=end).take(end).collect();
        // Read together with the flags before the program: clap's own update would set what is not repeated to its default.
        *flags = read(early.iter().cloned().chain(late))?;
        Ok(program)
    }
}

/// Flags alone, without a program.
pub fn read<F: clap::Args>(words: impl IntoIterator<Item = String>) -> Result<F> {
    let command =
        clap::Command::new("unilith").disable_version_flag(true).disable_help_flag(true).no_binary_name(true);
    let found = F::augment_args(command).try_get_matches_from(words);
    found.and_then(|matches| F::from_arg_matches(&matches)).map_err(|e| {
        let text = e.render().to_string();
        let line = text.lines().next().unwrap_or_default().trim_start_matches("error: ").to_string();
        Fault { code: 2, message: line }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(clap::Args, Debug, Default)]
    struct Flags {
        #[arg(short, long)]
        publish: Vec<String>,
        #[arg(long, default_value = "micro")]
        kernel: String,
        #[arg(long)]
        json: bool,
    }

    #[derive(Parser, Debug)]
    #[command(no_binary_name = true)]
    struct Verb {
        #[command(flatten)]
        flags: Flags,
        #[command(flatten)]
        line: Line,
    }

    fn sorted(words: &str) -> Result<(Flags, Program)> {
        let words: Vec<String> = words.split_whitespace().map(Into::into).collect();
        let mut verb = Verb::try_parse_from(&words).expect("clap takes it");
        let program = verb.line.sort_out("verb", &mut verb.flags, &words)?;
        Ok((verb.flags, program))
    }

    fn program(name: &str, words: &[&str]) -> Program {
        Program { name: Some(name.into()), words: words.iter().map(|w| (*w).into()).collect() }
    }

    #[test]
    fn words_behind_the_program_are_the_programs() {
        let (flags, it) = sorted("-p 80 prog --json -p 81 x").unwrap();
        assert_eq!(it, program("prog", &["--json", "-p", "81", "x"]));
        assert_eq!((flags.publish.as_slice(), flags.json), (["80".to_string()].as_slice(), false));
    }

    #[test]
    fn flags_between_the_program_and_two_dashes_are_ours_and_keep_the_early_ones() {
        let (flags, it) = sorted("--kernel linux prog -p 81 --json -- --json -- x").unwrap();
        assert_eq!(it, program("prog", &["--json", "--", "x"]));
        assert_eq!((flags.kernel.as_str(), flags.publish.len(), flags.json), ("linux", 1, true));
    }

    #[test]
    fn two_dashes_before_the_program_are_nobodys_word() {
        let (flags, it) = sorted("--json -- prog -p 81").unwrap();
        assert_eq!(it, program("prog", &["-p", "81"]));
        assert!(flags.json);
    }

    #[test]
    fn two_dashes_right_behind_the_program_are_not_an_argument() {
        let (flags, it) = sorted("--json -p 1:2 redis -- --port 1").unwrap();
        assert_eq!(it, program("redis", &["--port", "1"]));
        assert!(flags.json, "the flags before the program hold");
        assert_eq!(flags.publish, ["1:2"]);
    }

    #[test]
    fn an_unknown_flag_is_named() {
        let fault = sorted("--jsno prog").unwrap_err();
        assert!(fault.message.contains("--jsno") && fault.message.contains("unilith verb --help"), "{fault}");
        assert!(sorted("prog --nothing -- x").unwrap_err().message.contains("--nothing"));
    }

    #[test]
    fn no_program_is_the_project_here() {
        assert_eq!(sorted("-p 80").unwrap().1, Program::default());
    }
}
