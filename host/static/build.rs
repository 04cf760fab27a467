// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which micro-library defines each name that carries no crate: `#[unsafe(no_mangle)]` items and labels of assembly
//! files. Found in the sources, so that `unilith size` cannot fall behind them. Crates of which an image has one, such as
//! scheduling policies, define the same names.

use std::{
    collections::{BTreeMap, BTreeSet},
    env, fs,
    path::{Path, PathBuf},
};

fn main() {
    let micro = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../micro");
    println!("cargo:rerun-if-changed={}", micro.display());
    let mut owners = BTreeMap::new();
    walk(&micro, "", &mut owners);
    let mut text = String::from(
        "/// Names, in their order, and the crates that define them.\nconst OWNERS: &[(&str, &[&str])] = &[\n",
    );
    for (name, libraries) in owners {
        let libraries: Vec<String> = libraries.into_iter().collect();
        text.push_str(&format!("    ({name:?}, &{libraries:?}),\n"));
    }
    text.push_str("];\n");
    let to = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets it")).join("owners.rs");
    fs::write(to, text).expect("cargo's folder can be written");
}

/// `library`: the crate that the folder belongs to.
fn walk(folder: &Path, library: &str, owners: &mut BTreeMap<String, BTreeSet<String>>) {
    let library = match fs::read_to_string(folder.join("Cargo.toml")) {
        Ok(manifest) => crate_of(&manifest).unwrap_or_else(|| library.to_string()),
        Err(_) => library.to_string(),
    };
    let mut paths: Vec<PathBuf> =
        fs::read_dir(folder).expect("a source folder").map(|entry| entry.expect("an entry").path()).collect();
    paths.sort();
    for path in paths {
        let is = |extension: &str| path.extension().is_some_and(|e| e == extension);
        if path.is_dir() {
            walk(&path, &library, owners);
        } else if !library.is_empty() && (is("rs") || is("s")) {
            let text = fs::read_to_string(&path).expect("a source file");
            let names = if is("rs") { unmangled(&text) } else { Vec::new() };
            for name in names.into_iter().chain(labels(&text)) {
                owners.entry(name.to_string()).or_default().insert(library.clone());
            }
        }
    }
}

/// The crate's name as symbols have it.
fn crate_of(manifest: &str) -> Option<String> {
    let package = manifest.split("[package]").nth(1)?;
    let line = package.lines().find_map(|line| line.strip_prefix("name = \""))?;
    Some(line.split('"').next()?.replace('-', "_"))
}

/// Functions and variables below `#[unsafe(no_mangle)]`.
fn unmangled(text: &str) -> Vec<&str> {
    let parts = text.split("#[unsafe(no_mangle)]").skip(1);
    parts
        .filter_map(|part| {
            let line = part.lines().find(|line| {
                let line = line.trim();
                !line.is_empty() && !line.starts_with('#') && !line.starts_with("//")
            })?;
            let rest = ["fn ", "static mut ", "static "]
                .iter()
                .find_map(|word| line.split_once(word).map(|(_, rest)| rest))?;
            rest.split(|c: char| !c.is_alphanumeric() && c != '_').next()
        })
        .filter(|name| !name.is_empty())
        .collect()
}

/// Labels of assembly that begin a line, also of assembly in strings of Rust; without local ones.
fn labels(text: &str) -> Vec<&str> {
    let label = |line: &'_ str| {
        let name = line.split(':').next().filter(|name| name.len() < line.len())?;
        let plain = name.chars().all(|c| c.is_alphanumeric() || c == '_');
        (plain && name.starts_with(|c: char| c.is_alphabetic() || c == '_')).then_some(name.len())
    };
    text.lines()
        .map(|line| line.trim_start().strip_prefix('"').unwrap_or(line))
        .filter_map(|line| Some(&line[..label(line)?]))
        .collect()
}
