// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `unilith size`: what an image is made of.

use crate::output::say;
use crate::{
    fault::{Fault, Result, file},
    verbs::{print_json, print_table},
};
use std::{fs, path::PathBuf};
use unilith_static::size::Size;

#[derive(clap::Args, Clone, Debug)]
pub struct Args {
    /// A directory that `unilith build --static` wrote, or an ELF file with symbols
    image: PathBuf,
    /// Functions and variables to show; 0 for none
    #[arg(short = 'n', long, value_name = "N", default_value_t = 20)]
    top: usize,
    /// All of it as JSON
    #[arg(long)]
    json: bool,
}

pub fn act(args: &Args) -> Result<u8> {
    let path = if args.image.is_dir() { args.image.join("kernel.symbols") } else { args.image.clone() };
    let bytes = fs::read(&path).map_err(file("read", &path))?;
    let size = Size::of(&bytes).map_err(|e| Fault::new(format!("{}: {e}", path.display())))?;
    if args.json {
        let items: Vec<_> = size
            .items
            .iter()
            .map(|i| serde_json::json!({"library": i.library, "name": i.name, "bytes": i.bytes}))
            .collect();
        print_json(&serde_json::json!({"total": size.total, "items": items}))?;
        return Ok(0);
    }
    let row = |a: &str, b: &str, bytes: u64| vec![bytes.to_string(), a.to_string(), b.to_string()];
    let mut rows = vec![vec!["BYTES".into(), "LIBRARY".into(), String::new()]];
    rows.extend(size.libraries().iter().map(|(library, bytes)| row(library, "", *bytes)));
    rows.push(row("in all", "", size.total));
    print_table(&rows);
    if args.top > 0 {
        say!("");
        let mut rows = vec![vec!["BYTES".into(), "LIBRARY".into(), "NAME".into()]];
        rows.extend(size.items.iter().take(args.top).map(|i| row(&i.library, &i.name, i.bytes)));
        print_table(&rows);
    }
    Ok(0)
}
