// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `unilith bench NAME`: runs the experiment `bench/NAME/run`. Each folder of bench/ is one experiment; its `run` gets the
//! remaining words, and this command's path in `UNILITH`.

use crate::{
    fault::{Fault, Result},
    repository,
};
use std::{os::unix::fs::PermissionsExt, path::Path, process::Command};

#[derive(clap::Args, Clone, Debug)]
pub struct Args {
    /// The experiment; none: list them
    name: Option<String>,
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    words: Vec<String>,
}

pub fn act(args: &Args) -> Result<u8> {
    let root = repository::root()?;
    let folder = root.join("bench");
    let known = experiments(&folder);
    let Some(name) = &args.name else {
        known.iter().for_each(|name| println!("{name}"));
        return Ok(0);
    };
    if !known.contains(name) {
        let known = if known.is_empty() { "none yet".into() } else { known.join(", ") };
        return Err(Fault::new(format!("there is no experiment `{name}`; there are: {known}")));
    }
    let me =
        std::env::current_exe().map_err(|e| Fault::new(format!("cannot find my own executable: {e}")))?;
    let status = Command::new(folder.join(name).join("run"))
        .args(&args.words)
        .env("UNILITH", me)
        .env("UNILITH_ROOT", &root)
        .status();
    let status = status.map_err(|e| Fault::new(format!("cannot run bench/{name}/run: {e}")))?;
    Ok(status.code().and_then(|c| u8::try_from(c).ok()).unwrap_or(1))
}

fn experiments(folder: &Path) -> Vec<String> {
    let Ok(entries) = std::fs::read_dir(folder) else { return Vec::new() };
    let runs =
        |p: &Path| p.join("run").metadata().is_ok_and(|m| m.is_file() && m.permissions().mode() & 0o111 != 0);
    let found =
        entries.flatten().filter(|e| runs(&e.path())).filter_map(|e| e.file_name().into_string().ok());
    let mut found: Vec<String> = found.collect();
    found.sort();
    found
}
