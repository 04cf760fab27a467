// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Libraries of a recipe that are built from source too, because Debian has them for its own C library alone.
//!
//! Each is kept in the cache under the hash of its recipe, its source package, the compiler and the libraries that it needs.

use crate::{
    LinuxError, Progress, Recipe, Result, Target, Workshop,
    recipe::{Lines, clear, failed},
};
use sha2::{Digest, Sha256};
use std::{
    fs,
    path::{Path, PathBuf},
};
use unilith_image::{Library, SourcePackage};

/// A file of a library's folder that is written when all others are there.
const WHOLE: &str = "whole";

/// A library, built or not yet.
pub(crate) struct BuiltLibrary<'a> {
    /// Debian's package that it stands for.
    pub name: &'a str,
    pub recipe: &'a Library,
    package: SourcePackage,
    /// Where it is put: `include`, `lib`.
    pub prefix: PathBuf,
}

impl Workshop {
    /// The libraries that a recipe needs built, each behind those that it needs itself. `find` finds a source package.
    pub(crate) fn libraries<'a>(
        &self,
        recipe: &Recipe<'a>,
        find: &mut dyn FnMut(&str) -> Result<SourcePackage>,
    ) -> Result<Vec<BuiltLibrary<'a>>> {
        let Target::Micro(version) = recipe.into else { return Ok(Vec::new()) };
        let folder = self.sub("libraries")?;
        let mut built: Vec<BuiltLibrary<'a>> = Vec::new();
        for (name, library) in order(recipe)? {
            let package = find(&library.source)?;
            let mut hash = Sha256::new();
            // Lengths keep the boundary between two inputs part of what is hashed.
            let mut add = |bytes: &[u8]| {
                hash.update((bytes.len() as u64).to_le_bytes());
                hash.update(bytes);
            };
            for text in [&package.digest(), &library.build, &library.makes] {
                add(text.as_bytes());
            }
            add(version);
            for other in built.iter().filter(|other| library.needs.iter().any(|need| need == other.name)) {
                add(other.prefix.as_os_str().as_encoded_bytes());
            }
            let key: String = hash.finalize()[..12].iter().map(|b| format!("{b:02x}")).collect();
            built.push(BuiltLibrary { name, recipe: library, package, prefix: folder.join(key) });
        }
        Ok(built)
    }

    /// Builds a library that is not there yet.
    pub(crate) fn make_library(
        &self,
        recipe: &Recipe<'_>,
        library: &BuiltLibrary<'_>,
        all: &[BuiltLibrary<'_>],
        description: &Path,
        progress: &dyn Progress,
    ) -> Result<()> {
        let BuiltLibrary { name, prefix, .. } = library;
        let whole = prefix.join(WHOLE);
        if whole.is_file() {
            return Ok(());
        }
        // It is built for this path, which its files name; another build may have been interrupted.
        clear(prefix)?;
        let lines = Lines {
            name,
            package: &library.package,
            description,
            patches: Vec::new(),
            text: &library.recipe.build,
            prefix: Some(prefix),
        };
        let before = all.iter().position(|other| other.name == *name).unwrap_or(0);
        let (work, log) = self.run_lines(recipe, &lines, &all[..before], progress)?;
        if !prefix.join(&library.recipe.makes).is_file() {
            return Err(failed(name, &format!("it made no {}", library.recipe.makes), &log));
        }
        fs::write(&whole, "").map_err(|e| LinuxError::io("write", &whole, &e))?;
        clear(&work)
    }
}

/// The libraries of a recipe and of these libraries, each behind those that it needs.
fn order<'a>(recipe: &Recipe<'a>) -> Result<Vec<(&'a str, &'a Library)>> {
    let mut found: Vec<(&str, &Library)> = Vec::new();
    // What is left to look at: a name, and whether what it needs is in `found`.
    let mut next: Vec<(&str, bool)> = recipe.build.needs.iter().rev().map(|n| (n.as_str(), false)).collect();
    let mut open: Vec<&str> = Vec::new();
    while let Some((name, is_ready)) = next.pop() {
        let Some((name, library)) = recipe.libraries.get_key_value(name) else { continue };
        if is_ready {
            open.retain(|other| other != name);
            found.push((name, library));
        } else if open.contains(&name.as_str()) {
            return Err(LinuxError::new(format!("{name} needs itself (apps/libraries.toml)")));
        } else if !found.iter().any(|(other, _)| other == name) {
            open.push(name);
            next.push((name, true));
            next.extend(library.needs.iter().rev().map(|need| (need.as_str(), false)));
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use unilith_image::{Build, Libraries};

    fn names(needs: &[&str], libraries: &[(&str, &[&str])]) -> Result<Vec<String>> {
        let words = |list: &[&str]| list.iter().map(ToString::to_string).collect::<Vec<_>>();
        let library = |needs: &[&str]| Library {
            source: "a".into(),
            needs: words(needs),
            build: String::new(),
            makes: "lib/a.a".into(),
        };
        let libraries: Libraries =
            libraries.iter().map(|(name, needs)| (name.to_string(), library(needs))).collect();
        let build = Build {
            program: None,
            source: "a".into(),
            patches: Vec::new(),
            needs: words(needs),
            libc: unilith_image::Libc::Musl,
            build: String::new(),
            makes: "a".into(),
        };
        let recipe = Recipe {
            name: "a",
            build: &build,
            libraries: &libraries,
            folder: Path::new("."),
            into: Target::Micro(b""),
            words: &[],
            unilith: Path::new("unilith"),
            offline: true,
        };
        Ok(order(&recipe)?.into_iter().map(|(name, _)| name.to_string()).collect())
    }

    #[test]
    fn a_library_is_built_after_those_it_needs_and_once() {
        let all: [(&str, &[&str]); 3] = [("png", &["z"]), ("z", &[]), ("ssl", &["z", "perl"])];
        assert_eq!(names(&["tcl", "png", "ssl", "z"], &all).unwrap(), ["z", "png", "ssl"]);
        assert_eq!(names(&["tcl"], &all).unwrap(), [""; 0]);
        let circle: [(&str, &[&str]); 2] = [("a", &["b"]), ("b", &["a"])];
        assert!(names(&["a"], &circle).unwrap_err().to_string().contains("needs itself"));
    }
}
