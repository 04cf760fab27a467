// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The licences of the crates that the command and the kernels are linked with: most want their text to be where the
//! program is.

use super::run;
use crate::{
    fault::{Fault, Result, file},
    repository,
};
use serde::Deserialize;
use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    fs,
    path::Path,
    process::Command,
};

/// What the package has binaries of.
const BINARIES: [&str; 2] = ["unilith", "kernel"];
/// How the names of files with licences begin, in capitals.
const NAMES: [&str; 5] = ["LICENSE", "LICENCE", "COPYING", "COPYRIGHT", "NOTICE"];

/// What `cargo metadata` says, as far as it is needed.
#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
    resolve: Resolve,
}

#[derive(Deserialize)]
struct Package {
    id: String,
    name: String,
    version: String,
    license: Option<String>,
    /// `None`: a crate of this repository.
    source: Option<String>,
    manifest_path: String,
}

#[derive(Deserialize)]
struct Resolve {
    nodes: Vec<Node>,
}

#[derive(Deserialize)]
struct Node {
    id: String,
    deps: Vec<Dependency>,
}

#[derive(Deserialize)]
struct Dependency {
    pkg: String,
    dep_kinds: Vec<Kind>,
}

#[derive(Deserialize)]
struct Kind {
    /// `None`: linked with, neither for tests nor for build scripts.
    kind: Option<String>,
}

/// A list of the crates, then each text once.
pub fn text(root: &Path) -> Result<String> {
    let mut cargo = Command::new(repository::cargo());
    cargo.current_dir(root).args(["metadata", "--format-version=1", "--locked"]);
    cargo.arg("--filter-platform=x86_64-unknown-linux-gnu");
    let metadata: Metadata = serde_json::from_str(&run(&mut cargo, "cargo-web")?)
        .map_err(|e| Fault::new(format!("cargo metadata says what cannot be read: {e}")))?;
    let linked = linked(&metadata);
    let mut list = String::from(
        "Crates that the command and the kernels are linked with, with the macros in them. The texts of their licences follow.\n\n",
    );
    // By the text, which many crates share; then by the crate.
    let mut texts: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut crates: Vec<&Package> =
        metadata.packages.iter().filter(|p| p.source.is_some() && linked.contains(p.id.as_str())).collect();
    crates.sort_by_key(|p| (&p.name, &p.version));
    for package in crates {
        let title = format!("{} {}", package.name, package.version);
        list.push_str(&format!("{title}: {}\n", package.license.as_deref().unwrap_or("see its text")));
        let folder = Path::new(&package.manifest_path).parent().unwrap_or(Path::new("/"));
        for text in texts_in(folder)? {
            texts.entry(text).or_default().push(title.clone());
        }
    }
    list.push_str("rust-std: MIT OR Apache-2.0\n");
    let mut texts: Vec<_> = texts.into_iter().map(|(text, crates)| (crates.join(", "), text)).collect();
    texts.sort();
    for (crates, text) in texts {
        list.push_str(&format!("\n{}\n{crates}:\n\n{text}\n", "-".repeat(72)));
    }
    Ok(list)
}

/// The ids of the binaries' packages and of all they are linked with.
fn linked(metadata: &Metadata) -> BTreeSet<&str> {
    let nodes: HashMap<&str, &Node> = metadata.resolve.nodes.iter().map(|n| (n.id.as_str(), n)).collect();
    let is_ours = |p: &&Package| p.source.is_none() && BINARIES.contains(&p.name.as_str());
    let mut left: Vec<&str> = metadata.packages.iter().filter(is_ours).map(|p| p.id.as_str()).collect();
    let mut found = BTreeSet::new();
    while let Some(id) = left.pop() {
        if found.insert(id) {
            let deps = nodes.get(id).into_iter().flat_map(|n| &n.deps);
            let is_linked = |d: &&Dependency| d.dep_kinds.iter().any(|k| k.kind.is_none());
            left.extend(deps.filter(is_linked).map(|d| d.pkg.as_str()));
        }
    }
    found
}

/// The texts of licences in a crate's directory.
fn texts_in(folder: &Path) -> Result<Vec<String>> {
    let mut texts = Vec::new();
    let mut paths = Vec::new();
    for entry in fs::read_dir(folder).map_err(file("read", folder))? {
        paths.push(entry.map_err(file("read", folder))?.path());
    }
    paths.sort();
    for path in paths {
        let name = path.file_name().unwrap_or_default().to_string_lossy().to_uppercase();
        if NAMES.iter().any(|begin| name.starts_with(begin)) && path.is_file() {
            let bytes = fs::read(&path).map_err(file("read", &path))?;
            texts.push(String::from_utf8_lossy(&bytes).trim().to_string());
        }
    }
    Ok(texts)
}
