// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The compose files, their variables and the project's name.

use super::Args;
use crate::fault::{Fault, Result, file};
use std::{
    collections::HashMap,
    fs::{self, File},
    io::{self, Read},
    path::{Path, PathBuf},
};
use unilith_compose::{
    Line,
    project::{self, Project, Shared},
    service::Service,
    variables::{self, Lookup},
    yaml,
};
use unilith_machine::lines::printable;

/// Names of compose files, in the order in which they are looked for.
const NAMES: [&str; 4] = ["compose.yaml", "compose.yml", "docker-compose.yml", "docker-compose.yaml"];

/// Those that are put on top of one that was found, if they are beside it.
const OVERRIDES: [&str; 4] = [
    "compose.override.yaml",
    "compose.override.yml",
    "docker-compose.override.yml",
    "docker-compose.override.yaml",
];

pub struct Loaded {
    pub project: Project,
    pub name: String,
    /// Where the first file is: the paths of all begin there.
    pub folder: PathBuf,
    /// The files, each on top of those before it.
    pub files: Vec<PathBuf>,
    /// Profiles whose services are taken.
    profiles: Vec<String>,
}

/// What `-f -` reads.
const INPUT: &str = "-";

/// A text of bounded size.
fn text(path: &Path) -> Result<String> {
    let mut bytes = Vec::new();
    let most = yaml::MAX_BYTES as u64 + 1;
    let read = match path == Path::new(INPUT) {
        true => io::stdin().take(most).read_to_end(&mut bytes),
        false => File::open(path).and_then(|f| f.take(most).read_to_end(&mut bytes)),
    };
    read.map_err(file("read", path))?;
    String::from_utf8(bytes).map_err(|_| Fault::new(format!("{}: it is no text (UTF-8)", path.display())))
}

fn mistake(path: &Path) -> impl Fn(unilith_compose::Mistake) -> Fault {
    let path = path.display().to_string();
    move |mistake| Fault { code: 2, message: printable(&format!("{path}: {mistake}")) }
}

/// The host's environment, with what a file of variables says behind it.
struct Environment(HashMap<String, String>);

impl Lookup for Environment {
    fn get(&self, name: &str) -> Option<String> {
        std::env::var(name).ok().or_else(|| self.0.get(name).cloned())
    }
    // A variable of a file of variables may be nothing.
    fn unset(&mut self, _: &str) {}
}

impl Loaded {
    pub fn read(args: &Args) -> Result<Loaded> {
        let files = files(args)?;
        let folder = match (&args.project_directory, files.first()) {
            (Some(folder), _) => folder.canonicalize().map_err(file("read", folder))?,
            (None, Some(first)) if first == Path::new(INPUT) => here()?,
            (None, first) => first.and_then(|f| f.parent()).unwrap_or(Path::new("/")).to_path_buf(),
        };
        let mut environment = Environment(HashMap::new());
        let beside = folder.join(".env");
        let dotenv = args.env_file.clone().or_else(|| beside.is_file().then_some(beside));
        if let Some(dotenv) = dotenv {
            for (name, value) in
                variables::read(&text(&dotenv)?, &mut environment).map_err(mistake(&dotenv))?
            {
                environment.0.extend(value.map(|value| (name, value)));
            }
        }
        let texts = files.iter().map(|path| text(path)).collect::<Result<Vec<_>>>()?;
        let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
        let wrong = |e: unilith_compose::Mistake| match files.get(e.line.file) {
            Some(path) => mistake(path)(e),
            None => mistake(Path::new(INPUT))(e),
        };
        let project = project::read(&texts, &|name| environment.get(name)).map_err(wrong)?;
        for name in &project.unset {
            eprintln!("unilith: variable {name} is not set: it stands for nothing");
        }
        let given = args.project_name.clone().or_else(|| environment.get("COMPOSE_PROJECT_NAME"));
        let name = match given.or_else(|| project.name.clone()) {
            Some(name) => {
                let fits = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "_-".contains(c);
                let begins = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
                if !name.starts_with(begins) || !name.chars().all(fits) || name.len() > 64 {
                    return Err(Fault {
                        code: 2,
                        message: printable(&format!(
                            "project {name}: a name begins with a small letter or digit and has small letters, digits, _ - only"
                        )),
                    });
                }
                name
            }
            None => of_folder(&folder),
        };
        let profiles = environment.get("COMPOSE_PROFILES").unwrap_or_default();
        let profiles =
            profiles.split(',').map(str::trim).map(String::from).chain(args.profile.iter().cloned());
        let profiles = profiles.filter(|p| !p.is_empty()).collect();
        Ok(Loaded { project, name, folder, files, profiles })
    }

    /// The services that are meant, with what they depend on, in the order in which they start. None named: all whose
    /// profiles are taken.
    pub fn chosen(&self, names: &[String]) -> Result<Vec<&Service>> {
        for name in names {
            self.service(name)?;
        }
        let services = &self.project.services;
        let is_taken = |s: &Service| {
            if names.is_empty() {
                s.profiles.is_empty() || s.profiles.iter().any(|p| p == "*" || self.profiles.contains(p))
            } else {
                names.contains(&s.name)
            }
        };
        let mut taken: Vec<bool> = services.iter().map(is_taken).collect();
        // Whatever a service depends on is before it.
        for n in (0..services.len()).rev().filter(|n| *n < services.len()) {
            if !taken[n] {
                continue;
            }
            for dependency in &services[n].depends_on {
                if let Some(at) = services[..n].iter().position(|s| s.name == dependency.service) {
                    taken[at] = true;
                }
            }
        }
        Ok(services.iter().zip(taken).filter(|(_, taken)| *taken).map(|(s, _)| s).collect())
    }

    pub fn service(&self, name: &str) -> Result<&Service> {
        let found = self.project.services.iter().find(|s| s.name == name);
        found.ok_or_else(|| {
            let names: Vec<&str> = self.project.services.iter().map(|s| s.name.as_str()).collect();
            Fault::new(printable(&format!("there is no service `{name}`; there are {}", names.join(", "))))
        })
    }

    /// A line for the user: with its file if there are several.
    pub fn shown(&self, line: Line) -> String {
        match self.files.get(line.file).filter(|_| self.files.len() > 1) {
            Some(path) => format!("{}: {line}", path.display()),
            None => line.to_string(),
        }
    }

    /// What a network or volume of the file is called on this host.
    pub fn real_name(&self, shared: &Shared) -> String {
        match (&shared.name, shared.external) {
            (Some(name), _) => name.clone(),
            (None, true) => shared.key.clone(),
            (None, false) => format!("{}_{}", self.name, shared.key),
        }
    }

    /// A path of the file's.
    pub fn path(&self, text: &str) -> PathBuf {
        match (text.strip_prefix('~'), std::env::home_dir()) {
            (Some(rest), Some(home)) if rest.is_empty() || rest.starts_with('/') => {
                home.join(rest.trim_start_matches('/'))
            }
            _ => self.folder.join(text),
        }
    }

    /// The variables of a service: those of its files, then its own.
    pub fn environment(&self, service: &Service) -> Result<Vec<(String, String)>> {
        let mut known = Environment(HashMap::new());
        let mut out: Vec<(String, String)> = Vec::new();
        let mut set = |name: String, value: Option<String>| {
            // As with docker: the variable of this host, or none.
            let Some(value) = value.or_else(|| std::env::var(&name).ok()) else { return };
            match out.iter_mut().find(|(key, _)| *key == name) {
                Some((_, old)) => *old = value,
                None => out.push((name, value)),
            }
        };
        for env_file in &service.env_files {
            let path = self.path(&env_file.path);
            if !env_file.required && !path.exists() {
                continue;
            }
            let pairs = variables::read(&text(&path)?, &mut known).map_err(mistake(&path))?;
            pairs.into_iter().for_each(|(name, value)| set(name, value));
        }
        for (name, value) in &service.environment {
            set(name.clone(), value.clone());
        }
        Ok(out)
    }
}

fn here() -> Result<PathBuf> {
    std::env::current_dir().map_err(|e| Fault::new(format!("there is no current directory: {e}")))
}

/// The files that are named, or the one here or above with what is to be put on top of it.
fn files(args: &Args) -> Result<Vec<PathBuf>> {
    let mut files = args.file.clone();
    if files.is_empty()
        && let Some(all) = std::env::var_os("COMPOSE_FILE")
    {
        files = std::env::split_paths(&all).filter(|path| !path.as_os_str().is_empty()).collect();
    }
    if files.is_empty() {
        files = find()?;
    }
    let whole = |path: PathBuf| match path == Path::new(INPUT) {
        true => Ok(path),
        false => path.canonicalize().map_err(file("read", &path)),
    };
    files.into_iter().map(whole).collect()
}

fn find() -> Result<Vec<PathBuf>> {
    let here = here()?;
    let found = here.ancestors().flat_map(|folder| NAMES.map(|name| folder.join(name))).find(|p| p.is_file());
    let found = found.ok_or_else(|| {
        Fault::new(format!("there is no {} here or above; name a file with `compose -f FILE`", NAMES[0]))
    })?;
    let beside = OVERRIDES.map(|name| found.with_file_name(name)).into_iter().find(|p| p.is_file());
    Ok(std::iter::once(found).chain(beside).collect())
}

/// A project is called as its directory, as docker has it.
fn of_folder(folder: &Path) -> String {
    let name = folder.file_name().unwrap_or_default().to_string_lossy().to_lowercase();
    let fits = |c: &char| c.is_ascii_lowercase() || c.is_ascii_digit() || "_-".contains(*c);
    let name: String = name.chars().filter(fits).take(64).collect();
    let name = name.trim_start_matches(['_', '-']);
    if name.is_empty() { "project".into() } else { name.into() }
}

/// Makes a directory that the file mounts and that is not there, as docker does.
pub fn make_directory(path: &Path) -> Result<()> {
    fs::create_dir_all(path).map_err(file("make", path))
}
