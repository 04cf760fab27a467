// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `unilith login` and `unilith logout`: user names and passwords for registries.

use crate::{
    fault::{Fault, Result},
    output::say,
    registries, terminal,
};
use std::io::{self, BufRead, IsTerminal, Read, Write};
use unilith_registry::{CredentialFiles, DOCKER_HUB, Name};

/// Bytes of a password; tokens are long.
const MAX_PASSWORD: u64 = 64 << 10;

#[derive(clap::Args, Clone, Debug)]
#[command(after_long_help = "\
The registry is asked whether it takes them. They are kept in $XDG_CONFIG_HOME/unilith/auth.json (or $REGISTRY_AUTH_FILE), which \
nobody else may read, base64 and not encrypted. What `docker login` and `podman login` keep is used without this, and credential helpers \
that docker's settings name are asked.

Examples:
  unilith login -u me quay.io
  pass show registry | unilith login -u me --password-stdin localhost:5000")]
pub struct Args {
    #[arg(short, long, value_name = "NAME")]
    username: Option<String>,
    /// Read the password from standard input
    #[arg(long)]
    password_stdin: bool,
    /// The password, which others see in the list of processes
    #[arg(short, long, value_name = "TEXT", conflicts_with = "password_stdin")]
    password: Option<String>,
    /// The registry, HOST[:PORT]
    #[arg(default_value = DOCKER_HUB, value_parser = registry)]
    registry: String,
}

#[derive(clap::Args, Clone, Debug)]
pub struct LogoutArgs {
    /// The registry, HOST[:PORT]
    #[arg(default_value = DOCKER_HUB, value_parser = registry)]
    registry: String,
}

/// A registry's host, without what docker's users write around it.
fn registry(text: &str) -> std::result::Result<String, String> {
    let bare = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://")).unwrap_or(text);
    let bare = bare.trim_end_matches('/');
    match Name::parse(&format!("{bare}/x")) {
        Ok(name) if name.registry() == bare => Ok(bare.into()),
        _ => Err("it is HOST[:PORT], for example quay.io or localhost:5000".into()),
    }
}

pub fn act(args: &Args) -> Result<u8> {
    let user = match &args.username {
        Some(user) => user.clone(),
        None if args.password_stdin => return Err(Fault::new("--password-stdin needs -u NAME")),
        None => ask("User name: ")?,
    };
    if user.is_empty() || user.contains([':', '\n']) {
        return Err(Fault::new("a user name is not empty and has no colon"));
    }
    let password = match &args.password {
        Some(password) => password.clone(),
        None if args.password_stdin => {
            let mut text = String::new();
            let read = io::stdin().take(MAX_PASSWORD).read_to_string(&mut text);
            read.map_err(|e| Fault::new(format!("cannot read the password: {e}")))?;
            text.trim_end_matches(['\n', '\r']).to_string()
        }
        None => {
            let silent = terminal::Silent::enter();
            let password = ask("Password: ");
            drop(silent);
            eprintln!();
            password?
        }
    };
    if password.is_empty() {
        return Err(Fault::new("the password is empty"));
    }
    registries::registries()?.log_in(&args.registry, &user, &password)?;
    let path = CredentialFiles::of_user()?.store(&args.registry, &user, &password)?;
    eprintln!("unilith: kept in {}", path.display());
    say!("Login Succeeded");
    Ok(0)
}

pub fn logout(args: &LogoutArgs) -> Result<u8> {
    let files = CredentialFiles::of_user()?;
    let was_there = files.remove(&args.registry)?;
    if let Some(other) = files.elsewhere(&args.registry) {
        eprintln!("unilith: {} has credentials for {} too, which are used", other.display(), args.registry);
    }
    if !was_there {
        return Err(Fault::new(format!("{}: not logged in", args.registry)));
    }
    say!("Removed login credentials for {}", args.registry);
    Ok(0)
}

fn ask(what: &str) -> Result<String> {
    if !io::stdin().is_terminal() {
        return Err(Fault::new("there is nobody to ask: use -u NAME and --password-stdin"));
    }
    eprint!("{what}");
    let mut line = String::new();
    let read = io::stderr().flush().and_then(|()| io::stdin().lock().take(MAX_PASSWORD).read_line(&mut line));
    read.map_err(|e| Fault::new(format!("cannot ask: {e}")))?;
    Ok(line.trim_end_matches(['\n', '\r']).to_string())
}
