// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a package has for shells and for man(1), made from the command line's definition.

use super::{about::Commit, stage::Stage};
use crate::fault::{Result, file};
use clap::Command;
use clap_complete::Shell;
use clap_mangen::Man;
use std::path::Path;

/// Where Debian's shells look for completions.
const COMPLETIONS: [(Shell, &str); 3] = [
    (Shell::Bash, "usr/share/bash-completion/completions/unilith"),
    (Shell::Zsh, "usr/share/zsh/vendor-completions/_unilith"),
    (Shell::Fish, "usr/share/fish/vendor_completions.d/unilith.fish"),
];
const MANUAL: &str = "usr/share/man/man1";

pub fn add(stage: &Stage, command: Command, commit: &Commit) -> Result<()> {
    for (shell, path) in COMPLETIONS {
        let mut script = Vec::new();
        clap_complete::generate(shell, &mut command.clone(), "unilith", &mut script);
        stage.put(path, &script)?;
    }
    let mut command = command.disable_help_subcommand(true);
    // Gives verbs the names that their pages have: unilith-run, unilith-network-create.
    command.build();
    add_page(stage, &command, commit)?;
    // The runtime is `unilith oci` under the name that engines are given.
    stage.link(&format!("{MANUAL}/unilith-runc.1.gz"), "unilith-oci.1.gz")
}

/// The page of a command, and those of its verbs.
fn add_page(stage: &Stage, command: &Command, commit: &Commit) -> Result<()> {
    for verb in command.get_subcommands().filter(|verb| !verb.is_hide_set()) {
        add_page(stage, verb, commit)?;
    }
    let man = Man::new(command.clone())
        .date(&commit.day)
        .source(format!("unilith {}", env!("CARGO_PKG_VERSION")))
        .manual("Unilith");
    let name = man.get_filename();
    let mut page = Vec::new();
    man.render(&mut page).map_err(file("write the page", Path::new(&name)))?;
    stage.put_compressed(&format!("{MANUAL}/{name}.gz"), &page)
}
