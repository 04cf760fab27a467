// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `unilith size`: what an image is made of.

use crate::output::say;
use crate::{
    built::{self, Image, Wanted},
    fault::{Fault, Result},
    template::Template,
    verbs::{print_formatted, print_json, print_table},
};
use serde::Serialize;
use std::path::PathBuf;
use unilith_machine::store::Store;
use unilith_static::{size::Size, treemap};

#[derive(clap::Args, Clone, Debug)]
#[command(after_long_help = "\
Examples:
  unilith size redis
  unilith size --static --functions --library tcpip redis
  unilith size --svg redis.svg redis
  unilith size --format '{{.Library}} {{.Bytes}}' ./image

Bytes are those of the file that boots. A constant without a name counts for the library that refers to it.")]
pub struct Args {
    #[command(flatten)]
    wanted: Wanted,
    /// List functions and variables alone, all of them
    #[arg(long)]
    functions: bool,
    /// Only what belongs to this micro-library; may repeat
    #[arg(long, value_name = "NAME")]
    library: Vec<String>,
    /// So many functions and variables; 0 for none [default: 20, and all with --functions]
    #[arg(short = 'n', long, value_name = "N")]
    top: Option<usize>,
    /// Draw a treemap, to be looked at in a browser, into a file; `-` is standard output
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// Only these fields of each library, or function with --functions: {{.Library}} {{.Name}} {{.Bytes}} {{.Percent}}
    /// {{.Items}}; `table` before them prints a header
    #[arg(long, value_name = "TEMPLATE", conflicts_with = "json")]
    format: Option<String>,
    /// All of it as JSON
    #[arg(long)]
    json: bool,
}

/// A row as `--format` names its fields.
#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct Row {
    library: String,
    name: String,
    bytes: u64,
    percent: String,
    items: usize,
}

pub fn act(store: &Store, args: &Args) -> Result<u8> {
    let template = args.format.as_deref().map(Template::parse).transpose()?;
    let image = args.wanted.find(store)?;
    let mut size = Size::of(&image.anatomy);
    if let Some(path) = &args.svg {
        built::write(path, &treemap::draw(&size, &image.title))?;
        if !(args.json || args.functions || args.format.is_some()) {
            return Ok(0);
        }
    }
    let total = size.total;
    choose(&mut size, &args.library)?;
    if args.json {
        let mut value = serde_json::to_value(&size).map_err(|e| Fault::new(e.to_string()))?;
        value["file"] = image.file.into();
        value["root"] = image.root.into();
        print_json(&value)?;
    } else if let Some(template) = template {
        print_formatted(&rows(&size, total, args), &template)?;
    } else {
        print(&size, total, args, &image);
    }
    Ok(0)
}

/// Leaves the libraries that were asked for.
fn choose(size: &mut Size, wanted: &[String]) -> Result<()> {
    if wanted.is_empty() {
        return Ok(());
    }
    for name in wanted {
        if !size.libraries.iter().any(|library| library.library == *name) {
            let known: Vec<&str> = size.libraries.iter().map(|library| library.library.as_str()).collect();
            return Err(Fault::new(format!(
                "--library {name}: the image has no such micro-library; it has {}",
                known.join(", ")
            )));
        }
    }
    size.libraries.retain(|library| wanted.contains(&library.library));
    size.items.retain(|item| wanted.contains(&item.library));
    Ok(())
}

fn percent(bytes: u64, total: u64) -> String {
    format!("{:.1}", 100.0 * bytes as f64 / total.max(1) as f64)
}

/// How many functions are listed.
fn listed(args: &Args) -> usize {
    args.top.unwrap_or(if args.functions { usize::MAX } else { 20 })
}

fn rows(size: &Size, total: u64, args: &Args) -> Vec<Row> {
    if args.functions {
        let items = size.items.iter().take(listed(args));
        let row = |item: &unilith_static::size::Item| Row {
            library: item.library.clone(),
            name: item.name.clone(),
            bytes: item.bytes,
            percent: percent(item.bytes, total),
            items: 1,
        };
        return items.map(row).collect();
    }
    let row = |library: &unilith_static::size::Library| Row {
        library: library.library.clone(),
        name: String::new(),
        bytes: library.bytes,
        percent: percent(library.bytes, total),
        items: library.items,
    };
    size.libraries.iter().map(row).collect()
}

fn print(size: &Size, total: u64, args: &Args, image: &Image) {
    if !args.functions {
        say!("{}", image.title);
        say!("");
        let head = ["BYTES", "%", "LATER", "ZEROED", "NAMES", "LIBRARY"];
        let mut table = vec![head.map(String::from).to_vec()];
        let blank = |bytes: u64| if bytes == 0 { String::new() } else { bytes.to_string() };
        let row = |library: &unilith_static::size::Library| {
            vec![
                library.bytes.to_string(),
                percent(library.bytes, total),
                blank(library.on_demand),
                blank(library.zeroed),
                library.items.to_string(),
                library.library.clone(),
            ]
        };
        table.extend(size.libraries.iter().map(row));
        if args.library.is_empty() {
            let names = size.items.len().to_string();
            let (later, zeroed) = (blank(size.on_demand), blank(size.zeroed));
            table.push(vec![total.to_string(), "100.0".into(), later, zeroed, names, "in all".into()]);
        }
        print_table(&table);
        if args.library.is_empty() {
            say!("");
            say!("{} bytes in the file that boots, with headers and the space between its parts", image.file);
            if size.on_demand > 0 {
                say!("{} bytes come later, with the first command of exec, attach or trace", size.on_demand);
            }
            if let Some(root) = image.root {
                say!("{root} bytes in the root file system beside it");
            }
        }
    }
    if listed(args) == 0 {
        return;
    }
    if !args.functions {
        say!("");
    }
    let mut table = vec![["BYTES", "LIBRARY", "NAME"].map(String::from).to_vec()];
    let items = size.items.iter().take(listed(args));
    table.extend(items.map(|item| vec![item.bytes.to_string(), item.library.clone(), item.name.clone()]));
    print_table(&table);
}
