// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What is known of a gathered root archive without opening it, kept beside it in the cache, and how a request is
//! answered from it: which program, which arguments, which user.

use crate::{
    elf,
    error::{Result, fail},
    etc,
    manifest::{Manifest, Port, Ready, signal_number},
    request::{Image, ImageConfig, ImageHealth, Request},
    service::Service,
    tree::{Kind, Tree},
};
use serde::{Deserialize, Serialize};
use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
};

/// Debian's and docker's default.
pub(crate) const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
const SIGTERM: u8 = 15;
/// What a program of Debian's gets beside its image: nobody says what it needs (etcd writes 64 MB of log before it serves), and
/// memory that is not used costs the host nothing.
const PACKAGE_MEMORY: u64 = 256 << 20;
/// A script whose interpreter is a script whose... as deep as Linux goes (fs/exec.c, BINPRM recursion).
const MAX_INTERPRETERS: usize = 4;

/// What the words of a request mean.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Words {
    /// Arguments of the one program there is.
    #[default]
    Arguments,
    /// docker's: they replace the command, the entrypoint stays.
    Command,
    /// A program of the image if the first one names one, else arguments.
    Program,
}

/// An executable file of the image.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Program {
    pub path: String,
    /// The `#!` line of a script.
    pub script: Option<(String, Option<String>)>,
    /// Why it cannot run.
    pub problem: Option<String>,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Facts {
    /// Of the archive.
    pub digest: String,
    pub size: u64,
    pub name: String,
    pub words: Words,
    /// All executable files, by path.
    pub programs: Vec<Program>,
    /// Top directories that are links, `/bin` to `/usr/bin`.
    pub links: Vec<(String, String)>,
    pub passwd: String,
    pub group: String,
    /// The program when nothing else says which; `None` with the reason in `no_program`.
    pub program: Option<String>,
    pub no_program: String,
    /// What the package's service unit starts; it runs where the user names neither program nor arguments.
    #[serde(default)]
    pub service: Option<Service>,
    /// Programs that the base system brought: there for other programs, not what a first word means.
    #[serde(default)]
    pub base: BTreeSet<String>,
    /// Arguments that always stand first (an OCI entrypoint's), and those that the user's words replace.
    pub fixed_args: Vec<String>,
    pub args: Vec<String>,
    pub env: Vec<(String, String)>,
    pub cwd: Option<String>,
    pub user: Option<String>,
    pub ports: Vec<Port>,
    pub stop_signal: Option<u8>,
    pub memory: Option<u64>,
    /// It is Debian packages alone, without a settings file.
    pub is_package: bool,
    pub cpus: Option<u32>,
    pub volumes: Vec<String>,
    #[serde(default)]
    pub health: Option<ImageHealth>,
    pub ready: Option<Ready>,
    pub manifest: Option<Manifest>,
    /// Digest of the manifest, of an image of a registry.
    #[serde(default)]
    pub stored: Option<String>,
    pub warnings: Vec<String>,
    /// Programs that are still to be run in the image; they make a part of it.
    #[serde(skip)]
    pub generators: Vec<Vec<String>>,
}

impl Facts {
    /// Fills in what follows from the tree.
    pub(crate) fn learn(&mut self, tree: &Tree) {
        self.passwd = tree.text("/etc/passwd").unwrap_or_default();
        self.group = tree.text("/etc/group").unwrap_or_default();
        for (path, id) in tree.list() {
            let node = tree.node(id);
            let Some(text) = path.to_str() else { continue };
            if let Kind::Link(target) = &node.kind {
                if path.components().count() == 2 && tree.is_directory(&path) {
                    let target = crate::libraries::tidy(&Path::new("/").join(target));
                    self.links.push((text.to_string(), target.to_string_lossy().into_owned()));
                    continue;
                }
                let command = self.command_directories().any(|d| path.parent() == Some(Path::new(d)));
                if !command {
                    continue;
                }
            }
            let Some((real, content)) = tree.file(&path) else { continue };
            let executable =
                tree.walk(&real, true).is_some_and(|(_, id)| tree.node(id).meta.mode & 0o111 != 0);
            let library = text.contains(".so") && text.contains("/lib");
            if !executable || library {
                continue;
            }
            let Ok(bytes) = content.read() else { continue };
            let script = elf::script(&bytes);
            let problem = match &script {
                Some(_) => None,
                None => elf::program(&bytes, text).err().map(|e| e.message),
            };
            self.programs.push(Program { path: text.to_string(), script, problem });
        }
    }

    fn command_directories(&self) -> impl Iterator<Item = &str> {
        let own = self.env.iter().find(|(k, _)| k == "PATH").map_or(PATH, |(_, v)| v.as_str());
        own.split(':').filter(|d| d.starts_with('/')).chain(["/usr/games"])
    }

    /// A path with the links of the top directories followed.
    fn real(&self, path: &str) -> String {
        for (link, target) in &self.links {
            if let Some(rest) = path.strip_prefix(link.as_str()).filter(|r| r.starts_with('/')) {
                return format!("{target}{rest}");
            }
        }
        path.to_string()
    }

    /// The program of a name or path.
    pub(crate) fn find(&self, name: &str) -> Option<&Program> {
        let by_path = |path: &str| {
            let real = self.real(path);
            self.programs.iter().find(|p| p.path == path || p.path == real)
        };
        if name.contains('/') {
            let base = self.cwd.as_deref().unwrap_or("/");
            let full = crate::libraries::tidy(&Path::new(base).join(name));
            return by_path(full.to_str()?);
        }
        let command = self.command_directories().find_map(|d| by_path(&format!("{d}/{name}")));
        command.or_else(|| {
            // Programs that only other programs start: /usr/lib/postgresql/15/bin, /usr/libexec.
            let folder = |p: &Program| {
                let mut parts = p.path.rsplit('/');
                parts.next() == Some(name) && matches!(parts.next(), Some("bin" | "sbin" | "libexec"))
            };
            self.programs.iter().filter(|p| folder(p)).min_by_key(|p| p.path.len())
        })
    }

    /// The program that a first word chooses. Tools of the base system are not meant by words that a program could take
    /// as its own, except for the shells.
    fn meant(&self, word: &str) -> Option<&Program> {
        let program = self.find(word)?;
        let own = !self.base.contains(&program.path) || self.program.is_none();
        (own || word.contains('/') || matches!(word, "sh" | "bash")).then_some(program)
    }

    /// As the service unit says it.
    fn as_service(&self, service: &Service) -> Facts {
        let (program, arguments) =
            service.command.split_first().map_or((None, &[][..]), |(p, a)| (Some(p), a));
        let mut facts = self.clone();
        facts.service = None;
        facts.program = program.cloned();
        facts.args = arguments.to_vec();
        facts.env.extend(service.env.clone());
        facts.user = service.user.clone();
        facts.cwd = service.cwd.clone().or(facts.cwd);
        facts.stop_signal = service.stop_signal.as_deref().and_then(signal_number).or(facts.stop_signal);
        facts
    }

    /// Whether the image has all that a command needs to start: the program and, for a script, its interpreter.
    pub(crate) fn can_run(&self, command: &str) -> bool {
        let Some(program) = self.find(command) else { return false };
        program.problem.is_none()
            && program.script.as_ref().is_none_or(|(interpreter, _)| self.find(interpreter).is_some())
    }

    /// Programs that a user would call, for messages.
    pub(crate) fn commands(&self) -> Vec<String> {
        let runs = |p: &&Program| {
            let above = Path::new(&p.path).parent();
            p.problem.is_none()
                && !self.base.contains(&p.path)
                && self
                    .command_directories()
                    .any(|d| above == Some(Path::new(&self.real(&format!("{d}/")).trim_end_matches('/'))))
        };
        let mut out: Vec<String> = self.programs.iter().filter(runs).map(|p| p.path.clone()).collect();
        out.dedup();
        out
    }

    /// Answers a request: the image with its program, arguments, environment and user.
    pub(crate) fn answer(&self, request: &Request, root: PathBuf) -> Result<Image> {
        if let Some(service) = &self.service
            && request.words.is_empty()
            && request.entrypoint.is_none()
        {
            return self.as_service(service).answer(request, root);
        }
        let what = &self.name;
        let words = &request.words;
        let (name, mut args) = if let Some(entrypoint) = &request.entrypoint {
            (Some(entrypoint.clone()), words.clone())
        } else {
            match self.words {
                Words::Arguments => (self.program.clone(), self.or_default(words)),
                Words::Command => {
                    let mut all = self.fixed_args.clone();
                    all.extend(self.or_default(words));
                    let mut all = all.into_iter();
                    (all.next(), all.collect())
                }
                Words::Program => match words.split_first() {
                    Some((first, rest)) if !first.starts_with('-') && self.meant(first).is_some() => {
                        (Some(first.clone()), rest.to_vec())
                    }
                    Some((first, _)) if self.program.is_none() => {
                        fail!(NotFound, "{what}: no program `{first}` in it; {}", self.no_program)
                    }
                    _ => (self.program.clone(), self.or_default(words)),
                },
            }
        };
        let Some(name) = name else {
            fail!(NotRunnable, "{what}: {}", self.no_program);
        };
        let Some(mut program) = self.find(&name) else {
            let commands = self.commands();
            let has = if commands.is_empty() || commands.len() > 20 {
                String::new()
            } else {
                format!("; it has {}", commands.join(", "))
            };
            fail!(NotFound, "{what}: no program `{name}` in it{has}");
        };
        let mut path = if name.starts_with('/') { name.clone() } else { program.path.clone() };
        let mut depth = 0;
        while let Some((interpreter, argument)) = &program.script {
            let Some(next) = self.find(interpreter) else {
                fail!(NotRunnable, "{what}: {path} is a script for {interpreter}, which is not in the image");
            };
            depth += 1;
            if depth > MAX_INTERPRETERS {
                fail!(
                    NotRunnable,
                    "{what}: {name}: scripts as interpreters of scripts, more than {MAX_INTERPRETERS} deep"
                );
            }
            args.insert(0, path);
            if let Some(argument) = argument {
                args.insert(0, argument.clone());
            }
            path = interpreter.clone();
            program = next;
        }
        if let Some(problem) = &program.problem {
            fail!(NotRunnable, "{what}: {problem}");
        }
        args.insert(0, path);
        let user = request.user.as_ref().or(self.user.as_ref());
        let (uid, gid) = match user {
            None => (0, 0),
            Some(user) => match etc::user(user, &self.passwd, &self.group) {
                Some(ids) => ids,
                None => fail!(
                    NotFound,
                    "{what}: no user or group `{user}` in the image's /etc/passwd and /etc/group; give numbers, UID:GID"
                ),
            },
        };
        let groups = match etc::groups((uid, gid), &request.groups, &self.passwd, &self.group) {
            Ok(groups) => groups,
            Err(name) => {
                fail!(NotFound, "{what}: no group `{name}` in the image's /etc/group; give a number")
            }
        };
        let mut env = vec![("PATH".to_string(), PATH.to_string())];
        let home = self
            .passwd
            .lines()
            .map(|l| l.split(':').collect::<Vec<_>>())
            .find(|f| f.get(2) == Some(&uid.to_string().as_str()));
        let home = home.and_then(|f| f.get(5).map(|h| h.to_string())).unwrap_or_else(|| "/".into());
        for (key, value) in [("HOME".to_string(), home)].iter().chain(&self.env).chain(&request.env) {
            match env.iter_mut().find(|(k, _)| k == key) {
                Some(entry) => entry.1 = value.clone(),
                None => env.push((key.clone(), value.clone())),
            }
        }
        let cwd = request.workdir.as_ref().or(self.cwd.as_ref()).filter(|c| !c.is_empty()).cloned();
        let cwd = cwd.unwrap_or_else(|| "/".into());
        if !cwd.starts_with('/') {
            fail!(Settings, "{what}: the working directory `{cwd}` is not an absolute path");
        }
        let text = args.iter().chain([&cwd]).chain(env.iter().flat_map(|(k, v)| [k, v]));
        if text.into_iter().any(|t| t.contains('\0')) {
            fail!(Settings, "{what}: an argument, path or variable holds a NUL byte");
        }
        let package = || (self.size + PACKAGE_MEMORY).next_multiple_of(16 << 20);
        Ok(Image {
            root,
            digest: self.digest.clone(),
            size: self.size,
            name: self.name.clone(),
            manifest: self.stored.clone(),
            config: ImageConfig {
                args,
                env,
                cwd,
                uid,
                gid,
                groups,
                ports: self.ports.clone(),
                stop_signal: self.stop_signal.unwrap_or(SIGTERM),
                memory: self.memory.or_else(|| self.is_package.then(package)),
                cpus: self.cpus,
                volumes: self.volumes.clone(),
                health: self.health.clone(),
                ready: self.ready.clone(),
                manifest: self.manifest.clone(),
            },
            programs: self.commands(),
            warnings: self.warnings.clone(),
        })
    }

    fn or_default(&self, words: &[String]) -> Vec<String> {
        if words.is_empty() { self.args.clone() } else { words.to_vec() }
    }

    /// Takes the run settings of a manifest.
    pub(crate) fn settings(&mut self, m: &Manifest) {
        self.args.clone_from(&m.args);
        self.env.extend(m.env.clone());
        self.cwd = m.workdir.clone().or(self.cwd.take());
        self.user = m.user.clone().or(self.user.take());
        if !m.ports.is_empty() {
            self.ports.clone_from(&m.ports);
        }
        self.stop_signal = m.stop_signal.as_deref().and_then(signal_number).or(self.stop_signal);
        self.memory = m.memory.map(|s| s.0);
        self.cpus = m.cpus;
        if !m.data.is_empty() {
            self.volumes.clone_from(&m.data);
        }
        self.ready.clone_from(&m.ready);
        self.manifest = Some(m.clone());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{catalogue::Catalogue, request::Reference};

    fn facts(words: Words) -> Facts {
        let program = |path: &str| Program { path: path.into(), script: None, problem: None };
        let script = Program { script: Some(("/bin/sh".into(), Some("-e".into()))), ..program("/entry.sh") };
        Facts {
            name: "x".into(),
            words,
            programs: vec![program("/usr/bin/a"), program("/usr/bin/sh"), script, program("/usr/sbin/b")],
            links: vec![("/bin".into(), "/usr/bin".into())],
            program: Some("a".into()),
            args: vec!["default".into()],
            ..Facts::default()
        }
    }

    fn args(facts: &Facts, words: &[&str]) -> std::result::Result<Vec<String>, String> {
        let mut request = Request::new(Reference::Debian(vec!["x".into()]), Catalogue::open("/nonexistent"));
        request.words = words.iter().map(|w| w.to_string()).collect();
        facts.answer(&request, "/r".into()).map(|i| i.config.args).map_err(|e| e.message)
    }

    #[test]
    fn a_first_word_that_names_a_program_chooses_it() {
        let facts = facts(Words::Program);
        assert_eq!(args(&facts, &[]).unwrap(), ["/usr/bin/a", "default"]);
        assert_eq!(args(&facts, &["b", "-u"]).unwrap(), ["/usr/sbin/b", "-u"]);
        assert_eq!(args(&facts, &["/bin/sh"]).unwrap(), ["/bin/sh"]);
        assert_eq!(args(&facts, &["-u", "b"]).unwrap(), ["/usr/bin/a", "-u", "b"]);
        assert_eq!(args(&facts, &["file.py"]).unwrap(), ["/usr/bin/a", "file.py"]);
    }

    #[test]
    fn docker_words_replace_the_command_and_keep_the_entrypoint() {
        let mut facts = facts(Words::Command);
        facts.fixed_args = vec!["/entry.sh".into()];
        assert_eq!(args(&facts, &[]).unwrap(), ["/bin/sh", "-e", "/entry.sh", "default"]);
        assert_eq!(args(&facts, &["b"]).unwrap(), ["/bin/sh", "-e", "/entry.sh", "b"]);
        facts.fixed_args.clear();
        assert_eq!(args(&facts, &["b", "c"]).unwrap(), ["/usr/sbin/b", "c"]);
        assert!(args(&facts, &["nope"]).unwrap_err().contains("no program `nope`"));
    }

    #[test]
    fn several_programs_are_listed_when_none_is_chosen() {
        let mut facts = facts(Words::Program);
        facts.program = None;
        facts.no_program = "several programs: a, b".into();
        assert!(args(&facts, &[]).unwrap_err().contains("several programs: a, b"));
        assert!(args(&facts, &["c"]).unwrap_err().contains("no program `c`"));
        assert_eq!(args(&facts, &["a"]).unwrap(), ["/usr/bin/a"]);
    }
}
