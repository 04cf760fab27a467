// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `unilith generate systemd`: a unit that starts a machine with this computer.

use crate::{
    fault::{Fault, Result},
    output::say,
    repository::{self, Place},
};
use std::{fmt::Write, time::Duration};
use unilith_machine::{
    lines::printable,
    store::{Machine, Store},
    supervisor::grace,
};

/// What a unit's commands need of the environment of whoever made the machine: where its state, its image and its
/// volumes are, and which addresses machines get.
const VARIABLES: [&str; 5] = ["HOME", "XDG_STATE_HOME", "XDG_CACHE_HOME", "XDG_DATA_HOME", "UNILITH_NETWORK"];
/// How much longer than the program the machine's end may take, as `unilith stop` has it.
const BESIDE: Duration = Duration::from_secs(10);

#[derive(clap::Args, Clone, Debug)]
pub struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(clap::Subcommand, Clone, Debug)]
enum What {
    /// Print a unit that starts and stops a machine with this computer
    Systemd {
        /// A machine that was made by `run -d`
        machine: String,
    },
}

pub fn act(store: &Store, args: &Args) -> Result<u8> {
    let What::Systemd { machine } = &args.what;
    let machine = store.find(machine)?;
    let program = repository::executable()?;
    let mut environment = Vec::new();
    if let Place::Checkout(root) = repository::place()? {
        environment.push(("UNILITH_ROOT".to_string(), root.display().to_string()));
    }
    let set = VARIABLES.iter().filter_map(|name| Some((name.to_string(), std::env::var(name).ok()?)));
    environment.extend(set);
    let is_root = rustix::process::geteuid().is_root();
    say!("{}", unit(&machine, &program.display().to_string(), &environment, is_root)?.trim_end());
    Ok(0)
}

/// The unit's text.
fn unit(machine: &Machine, program: &str, environment: &[(String, String)], is_root: bool) -> Result<String> {
    let spec = &machine.spec;
    if spec.remove {
        return Err(Fault::new(format!(
            "machine {} was started with --rm and is removed when it ends: no unit could start it again",
            spec.name
        )));
    }
    let name = &spec.name;
    let (folder, user, target) = match is_root {
        true => ("/etc/systemd/system", "", "multi-user.target"),
        false => ("~/.config/systemd/user", " --user", "default.target"),
    };
    let limit = grace(spec.stop_timeout) + BESIDE;
    let mut text = String::new();
    // Writing into a string never fails.
    let mut line = |words: std::fmt::Arguments| {
        let _ = writeln!(text, "{words}");
    };
    line(format_args!("# unilith generate systemd {name} > {folder}/unilith-{name}.service"));
    line(format_args!("# unilith stop {name}; systemctl{user} enable --now unilith-{name}"));
    line(format_args!("[Unit]"));
    line(format_args!("Description=Machine {name} of unilith: {}", specifiers(&printable(&spec.program))));
    line(format_args!("Wants=network-online.target"));
    line(format_args!("After=network-online.target"));
    line(format_args!(""));
    line(format_args!("[Service]"));
    // `start` returns when the program serves; the machine's supervisor stays.
    line(format_args!("Type=forking"));
    for (key, value) in environment {
        line(format_args!("Environment={}", quoted(&format!("{key}={value}"))?));
    }
    line(format_args!("ExecStart={} start {name}", word(program)?));
    line(format_args!("ExecStop={} stop {name}", word(program)?));
    line(format_args!("TimeoutStopSec={}", limit.as_secs()));
    line(format_args!(""));
    line(format_args!("[Install]"));
    line(format_args!("WantedBy={target}"));
    Ok(text)
}

/// A word of a command line, where a dollar begins a variable (systemd.service(5), "command lines").
fn word(text: &str) -> Result<String> {
    quoted(&text.replace('$', "$$"))
}

/// A word of a unit, in quotes where it needs them.
fn quoted(text: &str) -> Result<String> {
    if text.chars().any(char::is_control) {
        return Err(Fault::new(format!("`{}` cannot be said in a unit of systemd", printable(text))));
    }
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+=:,@%".contains(c);
    let text = specifiers(text);
    if text.chars().all(plain) {
        return Ok(text);
    }
    Ok(format!("\"{}\"", text.replace('\\', r"\\").replace('"', "\\\"")))
}

/// Text in which systemd finds none of its specifiers (systemd.unit(5)).
fn specifiers(text: &str) -> String {
    text.replace('%', "%%")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_reach_the_program_as_they_are() {
        assert_eq!(word("/opt/unilith/unilith").unwrap(), "/opt/unilith/unilith");
        assert_eq!(quoted("HOME=/my $home/100%").unwrap(), "\"HOME=/my $home/100%%\"");
        assert_eq!(word(r#"a"$b\"#).unwrap(), r#""a\"$$b\\""#);
        assert!(word("a\nExecStart=/bin/evil").unwrap_err().message.contains("cannot be said"));
    }
}
