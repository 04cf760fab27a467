// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The catalogue of applications: the folder `apps`, one folder per application with an `app.toml`.

use crate::{
    error::{ErrorKind, ImageError, Result},
    manifest::{Libraries, Manifest, parse_libraries},
};
use std::{
    fs,
    path::{Path, PathBuf},
};

/// The folder of a catalogue. Nothing is read before it is asked for.
#[derive(Clone, Debug)]
pub struct Catalogue {
    folder: PathBuf,
}

impl Catalogue {
    pub fn open(folder: impl Into<PathBuf>) -> Catalogue {
        Catalogue { folder: folder.into() }
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.join(name).join("app.toml")
    }

    /// Whether there is an entry of that name.
    pub fn contains(&self, name: &str) -> bool {
        !name.is_empty() && !name.starts_with('.') && !name.contains('/') && self.file(name).is_file()
    }

    /// The names of all entries, in order.
    pub fn names(&self) -> Vec<String> {
        let Ok(entries) = fs::read_dir(&self.folder) else { return Vec::new() };
        let names = entries.filter_map(|e| e.ok()?.file_name().into_string().ok());
        let mut names: Vec<String> = names.filter(|n| self.contains(n)).collect();
        names.sort();
        names
    }

    /// One entry, and the folder its files are in.
    pub fn entry(&self, name: &str) -> Result<(Manifest, PathBuf)> {
        if !self.contains(name) {
            return Err(self.unknown(name));
        }
        Ok((read(&self.file(name))?, self.folder.join(name)))
    }

    /// How libraries are built from source for programs that are not linked with Debian's C library.
    pub fn libraries(&self) -> Result<Libraries> {
        let path = self.folder.join("libraries.toml");
        let text = fs::read_to_string(&path).map_err(|e| ImageError::io("read", &path, &e))?;
        parse_libraries(&text, &path)
    }

    /// The error for a name that is neither here nor a file: says what is close, and what else could be meant.
    pub(crate) fn unknown(&self, name: &str) -> ImageError {
        let names = self.names();
        let hint = match names.iter().min_by_key(|n| distance(n, name)).filter(|n| distance(n, name) <= 2) {
            Some(near) => format!("did you mean `{near}`?"),
            None if names.is_empty() => format!("there is no catalogue at {}", self.folder.display()),
            None => format!("the catalogue has {}", names.join(", ")),
        };
        ImageError::new(
            ErrorKind::NotFound,
            format!(
                "no application `{name}` and no file of that name: {hint}; a Debian package is written debian:{name}"
            ),
        )
    }
}

/// Reads a settings file.
pub fn read(path: &Path) -> Result<Manifest> {
    let text = fs::read_to_string(path).map_err(|e| ImageError::io("read", path, &e))?;
    Manifest::parse(&text, path)
}

/// Levenshtein's distance, for names of a few letters.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let changed = diagonal + usize::from(x != *y);
            diagonal = row[j + 1];
            row[j + 1] = changed.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_name_gets_the_nearest_one() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["redis", "nginx"] {
            fs::create_dir(folder.path().join(name)).unwrap();
            fs::write(folder.path().join(name).join("app.toml"), "").unwrap();
        }
        let catalogue = Catalogue::open(folder.path());
        assert_eq!(catalogue.names(), ["nginx", "redis"]);
        assert!(catalogue.unknown("redsi").message.contains("did you mean `redis`"));
        assert!(catalogue.unknown("postgres").message.contains("debian:postgres"));
        assert!(!catalogue.contains("../apps/redis"));
    }
}
