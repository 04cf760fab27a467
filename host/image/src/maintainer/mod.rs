// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Configures packages that were only unpacked: what their maintainer scripts, sysusers.d and tmpfiles.d would do is
//! done to the image, without running anything (deb-postinst(5), Debian Policy 6).
//!
//! Scripts are evaluated over the tree by a shell of our own ([`shell`]) that knows the commands by which packages make
//! users, directories, rights, links and configuration. They are foreign data: every loop, depth and size is limited, and
//! no path leaves the tree.

mod accounts;
mod commands;
mod files;
mod generators;
mod glob;
mod pam;
mod shell;
mod syntax;
mod systemd;
mod test;
mod text;

use crate::tree::Tree;
use shell::Memory;
use std::collections::BTreeMap;

pub(crate) use systemd::words;

/// The scripts of a package, and what they ask.
#[derive(Clone, Debug, Default)]
pub(crate) struct Scripts {
    pub package: String,
    pub preinst: Option<String>,
    pub postinst: Option<String>,
    /// debconf's questions (deb-templates; debconf-devel(7)).
    pub templates: Option<String>,
}

/// What is left when packages are configured.
#[derive(Default)]
pub(crate) struct Configured {
    /// One line for each script that was not understood.
    pub told: Vec<String>,
    /// Programs of the image that are to be run in it, each with its arguments: they make indexes and caches.
    pub generators: Vec<Vec<String>>,
}

/// Configures packages, in this order.
pub(crate) fn configure(tree: &mut Tree, packages: &[Scripts]) -> Configured {
    let mut memory = Memory::default();
    let mut told = Vec::new();
    systemd::users(tree);
    for scripts in packages {
        let answers = scripts.templates.as_deref().map(answers).unwrap_or_default();
        for (name, text, action) in
            [("preinst", &scripts.preinst, "install"), ("postinst", &scripts.postinst, "configure")]
        {
            let Some(text) = text.as_ref().filter(|t| is_shell(t)) else { continue };
            let mut shell = shell::Shell::new(tree, &mut memory);
            shell.answers.clone_from(&answers);
            // A first installation: there is no version before it.
            shell.arguments = vec![action.into(), String::new()];
            for (key, value) in [
                ("PATH", crate::facts::PATH),
                ("DPKG_MAINTSCRIPT_ARCH", "amd64"),
                ("DPKG_MAINTSCRIPT_NAME", name),
                ("DPKG_MAINTSCRIPT_PACKAGE", &scripts.package),
                ("DEBIAN_FRONTEND", "noninteractive"),
            ] {
                shell.variables.insert(key.into(), value.into());
            }
            let package = &scripts.package;
            match shell.script(text) {
                Ok(true) => {}
                Ok(false) => {
                    told.push(format!("the {name} of {package} was given up: it takes too many steps"))
                }
                Err(mistake) => told.push(format!(
                    "the {name} of {package} is left out: line {} has {}",
                    mistake.line, mistake.what
                )),
            }
        }
    }
    systemd::temporary_files(tree);
    // Without /etc/passwd there is nothing to write.
    let _ = accounts::shadow(tree);
    Configured { told, generators: memory.generators }
}

/// Scripts in other languages configure what needs a running system.
fn is_shell(text: &str) -> bool {
    let first = text.lines().next().unwrap_or_default();
    first.starts_with("#!") && ["sh", "bash", "dash"].iter().any(|s| first.split([' ', '/']).any(|w| w == *s))
}

/// The defaults of debconf's templates.
fn answers(templates: &str) -> BTreeMap<String, String> {
    let mut out = BTreeMap::new();
    let mut name = "";
    for line in templates.lines() {
        if let Some(template) = line.strip_prefix("Template:") {
            name = template.trim();
        } else if let Some(default) = line.strip_prefix("Default:") {
            out.insert(name.to_string(), default.trim().to_string());
        } else if line.strip_prefix("Type:").is_some_and(|t| t.trim() == "boolean") {
            out.entry(name.to_string()).or_insert_with(|| "false".into());
        }
    }
    out
}

/// The numbers of `USER:GROUP`; without a group the user's own.
pub(crate) fn owner(tree: &Tree, text: &str) -> Option<(u32, u32)> {
    let (user, group) = text.split_once(':').unwrap_or((text, ""));
    let uid = accounts::uid(tree, user)?;
    let gid = if group.is_empty() { accounts::login_group(tree, user) } else { accounts::gid(tree, group) };
    Some((uid, gid.unwrap_or(0)))
}

/// The shell for single commands of units.
pub(crate) struct Shell;

impl Shell {
    /// Does one command, as far as it is known.
    pub(crate) fn single(tree: &mut Tree, words: &[String]) {
        let mut memory = Memory::default();
        let mut shell = shell::Shell::new(tree, &mut memory);
        if let Some((name, arguments)) = words.split_first() {
            commands::run(&mut shell, name, arguments);
        }
    }
}

#[cfg(test)]
mod tests;
