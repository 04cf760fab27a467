// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The settings file that the menu writes: a project's own, whose comments and order stay, or a new one for a program.

use super::state::Wanted;
use crate::{
    fault::{Fault, Result, file},
    prepare::{self, PROJECT_FILE},
};
use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};
use toml_edit::{DocumentMut, Item, Table, value};
use unilith_image::{Manifest, Reference, read_manifest};

/// A settings file, and what goes beside it.
pub struct Project {
    pub path: PathBuf,
    document: DocumentMut,
    /// Files that a new one names.
    copies: Vec<(PathBuf, PathBuf)>,
    /// It is on disk.
    is_there: bool,
    manifest: Manifest,
}

impl Project {
    /// Of a program, as `run` knows it. `folder`: where a new settings file is written.
    pub fn of(program: Option<&str>, folder: &Path) -> Result<Project> {
        let Some(program) = program else {
            return Project::there(&folder.join(PROJECT_FILE)).map_err(|fault| match folder.join(PROJECT_FILE).exists() {
                true => fault,
                false => Fault::new(format!(
                    "name a program (`unilith menu redis`), or run this in a directory with a {PROJECT_FILE}"
                )),
            });
        };
        let catalogue = prepare::catalogue()?;
        let reference = Reference::parse(program, &catalogue)?;
        if let Reference::Directory(path) = &reference
            && path.join(PROJECT_FILE).is_file()
        {
            return Project::there(&path.join(PROJECT_FILE));
        }
        let path = folder.join(PROJECT_FILE);
        if path.exists() {
            return Err(Fault::new(format!(
                "{} is there already: `unilith menu` without a program is about it; or choose another directory with -o",
                path.display()
            )));
        }
        let (text, copies) = match &reference {
            Reference::Catalogue(name) => {
                let (manifest, entry) = catalogue.entry(name)?;
                let text = fs::read_to_string(entry.join("app.toml"))
                    .map_err(file("read", &entry.join("app.toml")))?;
                let patches =
                    manifest.linked.iter().chain(&manifest.r#static).flat_map(|build| &build.patches);
                let names = manifest.files.values().chain(patches);
                let copies = names.map(|name| (entry.join(name), folder.join(name))).collect();
                (text, copies)
            }
            Reference::Elf(path) => (of_elf(path, folder)?, Vec::new()),
            Reference::Debian(_) | Reference::Registry(_) => {
                (format!("from = {}\n", value(program)), Vec::new())
            }
            Reference::Directory(path) | Reference::Oci(path) => {
                let kind = if matches!(reference, Reference::Oci(_)) { "oci" } else { "dir" };
                (format!("from = {}\n", value(format!("{kind}:{}", absolute(path)?.display()))), Vec::new())
            }
        };
        let manifest = Manifest::parse(&text, &path)?;
        Ok(Project { document: parse(&text, &path)?, path, copies, is_there: false, manifest })
    }

    fn there(path: &Path) -> Result<Project> {
        let text = fs::read_to_string(path).map_err(file("read", path))?;
        let manifest = read_manifest(path)?;
        Ok(Project {
            path: path.into(),
            document: parse(&text, path)?,
            copies: Vec::new(),
            is_there: true,
            manifest,
        })
    }

    /// What it says of the kernel.
    pub fn set(&self) -> &BTreeMap<String, String> {
        &self.manifest.set
    }

    /// Whether it is on disk: a new one is not written before it is asked for.
    pub fn is_there(&self) -> bool {
        self.is_there
    }

    /// The parts of the kernel that its other settings need.
    pub fn wanted(&self) -> Vec<Wanted> {
        let name = self.path.display();
        let mut wanted = Vec::new();
        for (what, is_there) in [
            ("publishes ports", !self.manifest.publish.is_empty()),
            ("serves ports", !self.manifest.ports.is_empty()),
        ] {
            if is_there {
                wanted.push(Wanted { key: "net", without: "none", who: format!("{name} {what}") });
            }
        }
        if !self.manifest.volumes.is_empty() {
            wanted.push(Wanted { key: "volumes", without: "off", who: format!("{name} has volumes") });
        }
        wanted
    }

    /// Writes these choices, as a whole or not at all.
    pub fn write(&mut self, set: &BTreeMap<String, String>) -> Result<()> {
        let text = self.with(set)?;
        let folder = self.path.parent().unwrap_or(Path::new("."));
        fs::create_dir_all(folder).map_err(file("make", folder))?;
        for (from, to) in &self.copies {
            if to.exists() && fs::read(to).ok() != fs::read(from).ok() {
                return Err(Fault::new(format!(
                    "{} is there already and is another file than the catalogue's: choose another directory with -o",
                    to.display()
                )));
            }
        }
        for (from, to) in &self.copies {
            fs::copy(from, to).map_err(file("write", to))?;
        }
        let new = self.path.with_extension("toml.new");
        fs::write(&new, &text).map_err(file("write", &new))?;
        fs::rename(&new, &self.path).map_err(file("write", &self.path))?;
        self.is_there = true;
        Ok(())
    }

    /// The text with these choices; what it says else stays as it is.
    fn with(&mut self, set: &BTreeMap<String, String>) -> Result<String> {
        let document = &mut self.document;
        if !set.is_empty() && document.get("set").is_none() {
            document.insert("set", Item::Table(Table::new()));
        }
        if let Some(table) = document.get_mut("set").and_then(Item::as_table_like_mut) {
            let gone: Vec<String> =
                table.iter().map(|(key, _)| key.to_string()).filter(|key| !set.contains_key(key)).collect();
            gone.iter().for_each(|key| drop(table.remove(key)));
            for (key, chosen) in set {
                if table.get(key).and_then(Item::as_str) != Some(chosen) {
                    match table.get_mut(key).and_then(Item::as_value_mut) {
                        Some(old) => {
                            let decor = old.decor().clone();
                            *old = chosen.as_str().into();
                            *old.decor_mut() = decor;
                        }
                        None => drop(table.insert(key, value(chosen))),
                    }
                }
            }
            if table.is_empty() {
                document.remove("set");
            }
        }
        let text = self.document.to_string();
        // What was written is what will be read.
        let read = Manifest::parse(&text, &self.path)?;
        if read.set != *set {
            return Err(Fault::new(format!("{}: [set] cannot be written as chosen", self.path.display())));
        }
        self.manifest = read;
        Ok(text)
    }
}

fn absolute(path: &Path) -> Result<PathBuf> {
    // The directory of a file that is named alone.
    let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
    path.canonicalize().map_err(file("use", path))
}

/// The settings of a program that is in the project's directory.
fn of_elf(path: &Path, folder: &Path) -> Result<String> {
    let (program, folder) = (absolute(path)?, absolute(folder)?);
    let below = program.strip_prefix(&folder).map_err(|_| {
        Fault::new(format!(
            "{} is not below {}: a project's files are in its directory; run this there, or choose the directory with -o",
            path.display(),
            folder.display()
        ))
    })?;
    Ok(format!("program = {}\n", value(format!("./{}", below.display()))))
}

fn parse(text: &str, path: &Path) -> Result<DocumentMut> {
    text.parse().map_err(|e| Fault::new(format!("{}: {e}", path.display()).replace('\n', " ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(k, v)| ((*k).into(), (*v).into())).collect()
    }

    #[test]
    fn choices_are_written_and_all_else_stays() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(PROJECT_FILE);
        let text = "# ours\nprogram = \"./a\"\n\n[set]\nalloc = \"buddy\" # small\naio = \"off\"\n\n[env]\nA = \"1\"\n";
        fs::write(&path, text).unwrap();
        let mut project = Project::of(None, folder.path()).unwrap();
        assert_eq!(project.set(), &set(&[("alloc", "buddy"), ("aio", "off")]));
        project.write(&set(&[("alloc", "tiny"), ("net", "none")])).unwrap();
        let text = fs::read_to_string(&path).unwrap();
        assert!(
            text.starts_with("# ours\nprogram = \"./a\"\n") && text.contains("[env]\nA = \"1\"\n"),
            "{text}"
        );
        assert!(
            text.contains("alloc = \"tiny\" # small\nnet = \"none\"\n") && !text.contains("aio"),
            "{text}"
        );
        project.write(&BTreeMap::new()).unwrap();
        assert!(!fs::read_to_string(&path).unwrap().contains("set"));
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_file_that_is_no_settings_file_is_an_error_with_its_line() {
        let folder = tempfile::tempdir().unwrap();
        let said = |text: &str| {
            fs::write(folder.path().join(PROJECT_FILE), text).unwrap();
            Project::of(None, folder.path()).map(drop).unwrap_err().message
        };
        assert!(said("program = \n").contains("unilith.toml:1"));
        assert!(said("program = \"./a\"\nprogramm = 1\n").contains("unilith.toml:2"));
        fs::remove_file(folder.path().join(PROJECT_FILE)).unwrap();
        assert!(
            Project::of(None, folder.path()).map(drop).unwrap_err().message.contains("unilith menu redis")
        );
    }

    #[test]
    fn a_program_is_named_from_its_projects_directory_and_must_be_in_it() {
        let folder = tempfile::tempdir().unwrap();
        let (inside, program) = (folder.path().join("sub"), folder.path().join("a \"b\""));
        fs::create_dir(&inside).unwrap();
        fs::write(&program, "").unwrap();
        let text = of_elf(&program, folder.path()).unwrap();
        let manifest = Manifest::parse(&text, Path::new(PROJECT_FILE)).unwrap();
        assert_eq!(manifest.program.as_deref(), Some("./a \"b\""));
        let error = of_elf(&program, &inside).unwrap_err().message;
        assert!(error.contains("is not below") && error.contains("-o"), "{error}");
        // No directory at all is this one.
        assert!(of_elf(Path::new("/bin/true"), Path::new("")).unwrap_err().message.contains("is not below"));
    }

    #[test]
    fn ports_and_volumes_want_their_parts() {
        let folder = tempfile::tempdir().unwrap();
        let text = "program = \"./a\"\npublish = [\"8080:80\"]\nvolumes = [\"./d:/d\"]\n";
        fs::write(folder.path().join(PROJECT_FILE), text).unwrap();
        let keys: Vec<&str> =
            Project::of(None, folder.path()).unwrap().wanted().iter().map(|wanted| wanted.key).collect();
        assert_eq!(keys, ["net", "volumes"]);
    }
}
