// SPDX-License-Identifier: Apache-2.0 OR MIT
//! From a request to a root archive in the cache.

use crate::{
    base::{self, Parts},
    cache::{Cache, hex},
    catalogue, choose, confine, cpio, debian, elf,
    error::{ErrorKind, ImageError, Result, fail},
    etc,
    facts::{Facts, Words},
    generate,
    host::{directory, elf_file, stamp, stamps, take_directory, take_file},
    layers, libraries, maintainer,
    manifest::{Manifest, signal_number},
    pattern,
    request::{Base, Image, Linked, Progress, Pull, Reference, Request, Stored},
    service, services,
    tree::{Content, Kind, Meta, Tree},
};
use sha2::{Digest, Sha256};
use std::{
    cell::RefCell,
    collections::{BTreeMap, BTreeSet},
    fs,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    rc::Rc,
};

/// Part of every recipe's key: a hash of the sources that decide what is made of a source (build.rs).
const GATHERER: &str = env!("UNILITH_GATHERER");

/// Gathers what the request names. An image that is in the cache already is not written again.
pub fn gather(request: &Request, cache: &Cache, progress: &dyn Progress) -> Result<Image> {
    let sources = Sources {
        request,
        cache,
        progress,
        sets: RefCell::default(),
        pulled: RefCell::default(),
        told: RefCell::default(),
    };
    let mut facts = sources.facts()?;
    facts.warnings.extend(sources.told.take());
    // What a run met on its way is not part of what the archive is.
    let met = sources.sets.into_inner();
    facts.warnings.extend(met.values().flat_map(|set| set.warnings.clone()));
    let root = cache.folder().join("roots").join(format!("{}.cpio", facts.digest));
    Cache::touch(&root);
    facts.answer(request, root)
}

struct Sources<'a> {
    request: &'a Request,
    cache: &'a Cache,
    progress: &'a dyn Progress,
    /// Packages found in this run.
    sets: RefCell<BTreeMap<Vec<String>, Rc<debian::Set>>>,
    /// Images of registries found in this run.
    pulled: RefCell<BTreeMap<String, Rc<Stored>>>,
    /// What the user is told of this run alone.
    told: RefCell<Vec<String>>,
}

/// What beside the packages is in an image of theirs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Extent {
    base: Base,
    /// Time zones are wanted.
    zones: bool,
}

impl Extent {
    const NOTHING: Extent = Extent { base: Base::None, zones: false };
}

/// The settings file that applies, and the folder its relative paths start at.
struct Project {
    manifest: Manifest,
    folder: PathBuf,
}

impl Sources<'_> {
    fn packages(&self, wanted: &[String]) -> Result<Rc<debian::Set>> {
        if let Some(set) = self.sets.borrow().get(wanted) {
            return Ok(set.clone());
        }
        let set = Rc::new(debian::resolve(wanted, self.cache, self.request.offline, self.progress)?);
        self.sets.borrow_mut().insert(wanted.to_vec(), set.clone());
        Ok(set)
    }

    /// An image of a registry, from there if need be.
    fn stored(&self, name: &str) -> Result<Rc<Stored>> {
        if let Some(found) = self.pulled.borrow().get(name) {
            return Ok(found.clone());
        }
        let Some(puller) = self.request.puller else {
            fail!(NotFound, "{name}: images of registries are got by the command alone");
        };
        let when = if self.request.offline { Pull::Never } else { self.request.pull };
        let found = puller(name, when, self.progress);
        let found = Rc::new(found.map_err(|why| ImageError::new(ErrorKind::NotFound, why))?);
        self.told.borrow_mut().extend(found.notes.iter().cloned());
        self.pulled.borrow_mut().insert(name.to_string(), found.clone());
        Ok(found)
    }

    fn extent(&self, project: Option<&Project>) -> Extent {
        let manifest = project.map(|p| &p.manifest);
        let unsaid = match manifest {
            // An image that says what is in it has nothing else.
            Some(m) if !m.only.is_empty() => Base::None,
            _ => Base::Auto,
        };
        let base = self.request.base.or(manifest.and_then(|m| m.base)).unwrap_or(unsaid);
        let zones = self.request.env.iter().any(|(k, _)| k == "TZ")
            || manifest.is_some_and(|m| m.env.contains_key("TZ"));
        Extent { base, zones }
    }

    /// The packages of the base system; without a network an image does without, unless all of it was asked for.
    fn base_packages(&self, base: Base) -> Result<Option<Rc<debian::Set>>> {
        if base == Base::None {
            return Ok(None);
        }
        match self.packages(&base::PACKAGES.map(String::from)) {
            Ok(set) => Ok(Some(set)),
            Err(e) if base == Base::Auto && matches!(e.kind, ErrorKind::Packages | ErrorKind::Offline) => {
                let text = format!("the image has no base system (a shell and the usual tools): {e}");
                let mut told = self.told.borrow_mut();
                if !told.contains(&text) {
                    told.push(text);
                }
                Ok(None)
            }
            Err(e) => Err(e),
        }
    }

    fn facts(&self) -> Result<Facts> {
        match &self.request.reference {
            Reference::Catalogue(name) => {
                let (manifest, folder) = self.request.catalogue.entry(name)?;
                self.project(Project { manifest, folder }, name)
            }
            Reference::Directory(path) => {
                if !path.is_dir() {
                    fail!(NotFound, "{}: no such directory", path.display());
                }
                let file = path.join("unilith.toml");
                let name = path.canonicalize().unwrap_or_else(|_| path.clone());
                let name = name.file_name().map_or("root".into(), |n| n.to_string_lossy().into_owned());
                let manifest = if file.exists() { catalogue::read(&file)? } else { Manifest::default() };
                confine::check(&manifest, path)?;
                self.project(Project { manifest, folder: path.clone() }, &name)
            }
            other => self.single(other),
        }
    }

    /// A source without settings file.
    fn single(&self, reference: &Reference) -> Result<Facts> {
        let key = self.key(reference, None)?;
        if let Some(facts) = key.as_ref().and_then(|k| self.known(k)) {
            return Ok(facts);
        }
        let mut tree = Tree::new();
        let mut facts = self.load(reference, &mut tree, false, self.extent(None))?;
        facts.is_package = matches!(reference, Reference::Debian(_));
        let key = key.filter(|_| self.generate(&mut tree, &mut facts));
        self.finish(&mut tree, &mut facts, key)?;
        Ok(facts)
    }

    fn project(&self, project: Project, name: &str) -> Result<Facts> {
        let Project { manifest, folder } = &project;
        let base = match &manifest.from {
            Some(text) => {
                let reference = self.relative(text, folder)?;
                if matches!(reference, Reference::Catalogue(_)) {
                    fail!(
                        Settings,
                        "{name}: from = \"{text}\": a settings file cannot start from a catalogue entry"
                    );
                }
                reference
            }
            None => Reference::Directory(folder.clone()),
        };
        let key = self.key(&base, Some(&project))?;
        if let Some(facts) = key.as_ref().and_then(|k| self.known(k)) {
            return Ok(facts);
        }
        let mut tree = Tree::new();
        let extent = self.extent(Some(&project));
        let mut facts = self.load(&base, &mut tree, manifest.program.is_some(), extent)?;
        facts.name = name.to_string();
        for text in &manifest.with {
            let mut more = Tree::new();
            let part = self.load(&self.relative(text, folder)?, &mut more, true, Extent::NOTHING)?;
            debian::overlay(&mut tree, &more)?;
            facts.warnings.extend(part.warnings);
            facts.generators.extend(part.generators);
        }
        facts.settings(manifest);
        if let Some(program) = &manifest.program {
            facts.program = Some(program.clone());
        }
        for (path, file) in &manifest.files {
            let file = folder.join(file);
            if file.is_dir() {
                take_directory(&file, Path::new(path), &mut tree)?;
            } else {
                take_file(&file, Path::new(path), &mut tree)?;
            }
        }
        for directory in &manifest.directories {
            tree.put_directory(Path::new(directory), Meta::DIRECTORY, true)?;
        }
        for (path, target) in &manifest.links {
            tree.put_link(Path::new(path), target)?;
        }
        for Linked { file, program } in &self.request.linked {
            let wanted = program.as_ref().or(facts.program.as_ref());
            let Some(program) = wanted.and_then(|wanted| path_of(wanted, &facts, &tree)) else {
                fail!(Settings, "{name}: `linked` needs a `program` that is in the sources");
            };
            // Where it really is: a link to it stays one.
            let place = tree.file(Path::new(&program)).map_or_else(|| program.into(), |(real, _)| real);
            take_file(file, &place, &mut tree)?;
        }
        // Before anything is taken away: those that run need more than what the image keeps.
        let is_whole = self.generate(&mut tree, &mut facts);
        let key = key.filter(|_| is_whole);
        if !manifest.only.is_empty() {
            self.reduce(&mut tree, &facts, manifest)?;
        }
        if !manifest.without.is_empty() {
            let out = |p: &Path| manifest.without.iter().any(|w| pattern::covers(w, &p.to_string_lossy()));
            let gone: Vec<PathBuf> = tree.list().into_iter().map(|(p, _)| p).filter(|p| out(p)).collect();
            gone.iter().for_each(|p| tree.remove(p));
        }
        self.finish(&mut tree, &mut facts, key)?;
        Ok(facts)
    }

    fn relative(&self, text: &str, folder: &Path) -> Result<Reference> {
        let reference = Reference::parse(text, &self.request.catalogue);
        // A bare or relative path is looked for beside the settings file.
        Ok(match reference {
            Ok(Reference::Debian(packages)) => Reference::Debian(packages),
            Ok(Reference::Registry(name)) if !folder.join(&name).exists() => Reference::Registry(name),
            Ok(Reference::Catalogue(name)) if !folder.join(&name).exists() => Reference::Catalogue(name),
            _ => {
                let (prefix, path) = match text.split_once(':') {
                    Some((prefix, path)) if !prefix.contains('/') => (format!("{prefix}:"), path),
                    _ => (String::new(), text),
                };
                Reference::parse(
                    &format!("{prefix}{}", folder.join(path).display()),
                    &self.request.catalogue,
                )?
            }
        })
    }

    /// What decides the archive of a source, hashed; `None` for sources that are read anew each time.
    fn key(&self, reference: &Reference, project: Option<&Project>) -> Result<Option<String>> {
        let mut hash = Sha256::new();
        let mut add = |bytes: &[u8]| {
            hash.update((bytes.len() as u64).to_le_bytes());
            hash.update(bytes);
        };
        add(GATHERER.as_bytes());
        match reference {
            Reference::Debian(packages) => {
                let set = self.packages(packages)?;
                add(packages.join(",").as_bytes());
                set.packages.iter().for_each(|p| add(p.sha256.as_bytes()));
                let Extent { base, zones } = self.extent(project);
                add(format!("{base:?} {zones}").as_bytes());
                if let Some(set) = self.base_packages(base)? {
                    set.packages.iter().for_each(|p| add(p.sha256.as_bytes()));
                }
            }
            Reference::Oci(path) => {
                let metadata = fs::metadata(path).map_err(|e| ImageError::io("read", path, &e))?;
                if metadata.is_dir() {
                    return Ok(None);
                }
                let real = fs::canonicalize(path).map_err(|e| ImageError::io("read", path, &e))?;
                add(real.as_os_str().as_encoded_bytes());
                for number in
                    [metadata.ino(), metadata.size(), metadata.mtime() as u64, metadata.mtime_nsec() as u64]
                {
                    add(&number.to_le_bytes());
                }
            }
            Reference::Registry(name) => {
                let image = self.stored(name)?;
                add(image.name.as_bytes());
                add(image.manifest.as_bytes());
            }
            Reference::Directory(path) => {
                let real = fs::canonicalize(path).map_err(|e| ImageError::io("read", path, &e))?;
                add(real.as_os_str().as_encoded_bytes());
                add(format!("{:?}", self.extent(project).base).as_bytes());
                // Programs of it may take this machine's libraries and certificates.
                for known in ["/etc/ld.so.cache", "/usr/lib/x86_64-linux-gnu", base::CERTIFICATES] {
                    add(&fs::metadata(known).map_or(Vec::new(), |m| stamp(&m)));
                }
                if !stamps(&real, &mut add)? {
                    return Ok(None);
                }
            }
            _ => return Ok(None),
        }
        if let Some(Project { manifest, folder }) = project {
            if !manifest.with.iter().all(|w| w.starts_with("debian:")) {
                return Ok(None);
            }
            let text = serde_json::to_vec(manifest)
                .map_err(|e| ImageError::new(ErrorKind::Settings, e.to_string()))?;
            add(&text);
            for file in manifest.files.values() {
                let path = folder.join(file);
                if path.is_dir() {
                    return Ok(None);
                }
                add(&fs::read(&path).map_err(|e| ImageError::io("read", &path, &e))?);
            }
            for with in &manifest.with {
                if let Reference::Debian(packages) = self.relative(with, folder)? {
                    let set = self.packages(&packages)?;
                    set.packages.iter().for_each(|p| add(p.sha256.as_bytes()));
                }
            }
            for Linked { file, .. } in &self.request.linked {
                add(&fs::read(file).map_err(|e| ImageError::io("read", file, &e))?);
            }
        }
        Ok(Some(hex(&hash.finalize())))
    }

    /// The facts of an archive that is still in the cache.
    fn known(&self, key: &str) -> Option<Facts> {
        let bytes = fs::read(self.cache.folder().join("recipes").join(format!("{key}.json"))).ok()?;
        let facts: Facts = serde_json::from_slice(&bytes).ok()?;
        let root = self.cache.folder().join("roots").join(format!("{}.cpio", facts.digest));
        (fs::metadata(root).ok()?.len() == facts.size).then_some(facts)
    }

    /// Lays a source over the tree. `chosen`: a settings file names the program.
    fn load(&self, reference: &Reference, tree: &mut Tree, chosen: bool, extent: Extent) -> Result<Facts> {
        match reference {
            Reference::Debian(packages) => self.debian(packages, tree, chosen, extent),
            Reference::Elf(path) => elf_file(path, extent.base, tree),
            Reference::Directory(path) => directory(path, extent.base, tree),
            Reference::Oci(path) => oci(path, self.progress, tree),
            Reference::Registry(name) => {
                let image = self.stored(name)?;
                let config = layers::load_stored(&image, self.progress, tree)?;
                let mut facts = of_config(config, &image.name, name, tree)?;
                facts.stored = Some(image.manifest.clone());
                Ok(facts)
            }
            Reference::Catalogue(name) => {
                fail!(Settings, "{name}: a catalogue entry cannot be laid over another source")
            }
        }
    }

    fn debian(&self, packages: &[String], tree: &mut Tree, chosen: bool, extent: Extent) -> Result<Facts> {
        let set = self.packages(packages)?;
        etc::merged_usr(tree)?;
        let mut unpacked = debian::unpack(&set, self.cache, false, self.progress, tree)?;
        let plain = |p: &String| p.split(['=', ':']).next().unwrap_or(p).to_string();
        let names: Vec<String> = packages.iter().map(plain).collect();
        if debian::calls_iconv(tree) {
            debian::unpack(&set, self.cache, true, self.progress, tree)?;
        }
        etc::complete(tree, true)?;
        self.progress.step("configuring packages");
        let configured = maintainer::configure(tree, &unpacked.scripts);
        let mut facts = Facts {
            name: names.first().cloned().unwrap_or_default(),
            words: Words::Program,
            warnings: configured.told,
            generators: configured.generators,
            ..Facts::default()
        };
        let unit = if chosen { None } else { service::of_packages(&names, &unpacked) };
        if !chosen {
            facts.learn(tree);
            choose::choose(&mut facts, &names, &mut unpacked);
        }
        if let Some(unit) = &unit {
            unit.prepare(tree);
            facts.service = unit.service(tree);
        }
        if let Some(known) = services::of(&names).filter(|_| !chosen) {
            facts.service = known.service(facts.service.take());
        }
        if let Some(set) = self.base_packages(extent.base)? {
            let mut parts = Parts::of(extent.base, tree, extent.zones)?;
            // Programs that a shell runs before the image is whole, and a service that a shell starts.
            parts.tools |= !facts.generators.is_empty();
            parts.tools |= facts
                .service
                .as_ref()
                .is_some_and(|s| facts.find(&s.command[0]).is_none_or(|p| p.script.is_some()));
            let mut base = Tree::new();
            etc::merged_usr(&mut base)?;
            etc::complete(&mut base, true)?;
            let brought = debian::unpack(&set, self.cache, false, self.progress, &mut base)?;
            maintainer::configure(&mut base, &brought.scripts);
            facts.base = base::lay(tree, &base, &brought, parts)?;
        }
        let own = tree.clone();
        base::certificates(tree, &own)?;
        if facts.service.is_some() {
            facts.programs.clear();
            facts.links.clear();
            facts.learn(tree);
            facts.service = facts.service.take().filter(|s| facts.can_run(&s.command[0]));
        }
        facts.programs.clear();
        facts.links.clear();
        Ok(facts)
    }

    /// Keeps the program, the libraries it needs, what the settings file adds, and what its patterns name.
    fn reduce(&self, tree: &mut Tree, facts: &Facts, manifest: &Manifest) -> Result<()> {
        let mut keep: Vec<PathBuf> = Vec::new();
        let named = |p: &Path| manifest.only.iter().any(|o| pattern::covers(o, &p.to_string_lossy()));
        let mut roots: Vec<String> = tree
            .list()
            .into_iter()
            .filter(|(p, id)| named(p) && matches!(tree.node(*id).kind, Kind::File(_)))
            .filter_map(|(p, _)| p.to_str().map(str::to_string))
            .collect();
        match program_of(facts, tree) {
            Some(program) => roots.push(program),
            None => fail!(Settings, "{}: `only` needs a `program` that is in the sources", facts.name),
        }
        for root in roots {
            let path = Path::new(&root);
            let Some((real, content)) = tree.file(path) else { continue };
            keep.extend([path.to_path_buf(), real.clone()]);
            let bytes = content.read()?;
            if !elf::is_elf(&bytes) {
                continue;
            }
            let Ok(parsed) = elf::parse(&bytes, &root) else { continue };
            for needed in libraries::closure(tree, &real, &parsed)?.files {
                keep.extend([canonical(tree, &needed.path), needed.real]);
            }
        }
        let added = manifest.files.keys().chain(manifest.links.keys()).chain(&manifest.directories);
        keep.extend(added.map(|p| canonical(tree, Path::new(p))));
        let top_link = |p: &Path| {
            p.components().count() == 2
                && matches!(tree.walk(p, false), Some((_, id)) if matches!(tree.node(id).kind, Kind::Link(_)))
        };
        let top: Vec<PathBuf> = tree.list().into_iter().map(|(p, _)| p).filter(|p| top_link(p)).collect();
        let basics = ["/etc/passwd", "/etc/group", "/etc/nsswitch.conf", "/etc/hosts"];
        tree.retain(&|p| {
            named(p)
                || keep.iter().any(|k| p == k)
                || top.iter().any(|t| p == t)
                || basics.iter().any(|b| p == Path::new(b))
        });
        etc::complete(tree, true)
    }

    /// Has the image's own programs make what an installation would leave behind. Whether all of it is there now: an image
    /// without is made anew the next time.
    fn generate(&self, tree: &mut Tree, facts: &mut Facts) -> bool {
        let programs = std::mem::take(&mut facts.generators);
        if programs.is_empty() {
            return true;
        }
        let names: BTreeSet<&str> = programs.iter().filter_map(|p| p[0].rsplit('/').next()).collect();
        let names = names.into_iter().collect::<Vec<_>>().join(", ");
        match self.run_programs(tree, &programs, &names) {
            Ok(failed) => {
                facts
                    .warnings
                    .extend(failed.iter().map(|who| format!("while the image was made, {who} failed")));
                true
            }
            Err(why) => {
                self.told.borrow_mut().push(format!("the image is without what {names} make of it: {why}"));
                false
            }
        }
    }

    fn run_programs(
        &self,
        tree: &mut Tree,
        programs: &[Vec<String>],
        names: &str,
    ) -> std::result::Result<Vec<String>, String> {
        let runner = self.request.runner.ok_or("programs of images are run by the command alone")?;
        let mut interim = tree.clone();
        self.sites(&mut interim).map_err(|e| e.to_string())?;
        let script = generate::script(programs, generate::newest(tree));
        self.progress.step(&format!("running {names}"));
        let mut pending = self.cache.begin("roots", "interim").map_err(|e| e.to_string())?;
        cpio::write(&interim, &mut Interim(&mut pending)).map_err(|e| e.to_string())?;
        let printed = runner(pending.temporary(), &script)?;
        // What is damaged is not laid over the image in part.
        let mut whole = tree.clone();
        let failed = generate::take(&mut whole, &printed).map_err(|e| e.to_string())?;
        *tree = whole;
        Ok(failed)
    }

    /// Adds the site tables, writes the archive and the facts.
    fn finish(&self, tree: &mut Tree, facts: &mut Facts, key: Option<String>) -> Result<()> {
        facts.programs.clear();
        facts.links.clear();
        facts.learn(tree);
        self.sites(tree)?;
        self.progress.step("writing the root archive");
        let mut file = Archive { pending: self.cache.begin("roots", "unnamed")?, hash: Sha256::new() };
        facts.size = cpio::write(tree, &mut file)?;
        facts.digest = hex(&file.hash.finalize());
        file.pending.rename(&format!("{}.cpio", facts.digest));
        file.pending.finish()?;
        if let Some(key) = key {
            let text =
                serde_json::to_vec(facts).map_err(|e| ImageError::new(ErrorKind::Io, e.to_string()))?;
            self.cache.put("recipes", &format!("{key}.json"), &text)?;
        }
        Ok(())
    }

    /// A table of system-call sites for each ELF file, from the cache where the same file was seen before.
    fn sites(&self, tree: &mut Tree) -> Result<()> {
        self.progress.step("finding system calls");
        let files: Vec<(PathBuf, Content)> = tree
            .list()
            .into_iter()
            .filter_map(|(path, id)| match &tree.node(id).kind {
                Kind::File(content) => Some((path, content.clone())),
                _ => None,
            })
            .collect();
        for (index, (path, content)) in files.iter().enumerate() {
            self.progress.advance(index as u64, files.len() as u64);
            let bytes = content.read()?;
            if !elf::is_elf(&bytes) {
                continue;
            }
            let table = crate::sites::table(self.cache, &bytes)?;
            if !table.is_empty() {
                let below = path.strip_prefix("/").unwrap_or(path);
                tree.put_bytes(&Path::new("/.unilith/sites").join(below), table, Meta::FILE)?;
            }
        }
        Ok(())
    }
}

/// An archive that is no image yet.
struct Interim<'a>(&'a mut crate::cache::Pending);

impl cpio::Sink for Interim<'_> {
    fn write(&mut self, bytes: &[u8]) -> Result<()> {
        self.0.write(bytes)
    }
}

/// The absolute path of the program that the facts name, if the tree has it.
fn program_of(facts: &Facts, tree: &Tree) -> Option<String> {
    path_of(facts.program.as_ref()?, facts, tree)
}

/// The absolute path of a program by its name or path, if the tree has it.
fn path_of(program: &str, facts: &Facts, tree: &Tree) -> Option<String> {
    let mut all = facts.clone();
    all.learn(tree);
    Some(all.find(program)?.path.clone())
}

/// The archive while it is written.
struct Archive {
    pending: crate::cache::Pending,
    hash: Sha256,
}

impl cpio::Sink for Archive {
    fn write(&mut self, bytes: &[u8]) -> Result<()> {
        self.hash.update(bytes);
        self.pending.write(bytes)
    }
}

/// The path with its directories' links followed and its last name as it is.
pub(crate) fn canonical(tree: &Tree, path: &Path) -> PathBuf {
    tree.walk(path, false).map_or_else(|| path.to_path_buf(), |(real, _)| real)
}

fn oci(path: &Path, progress: &dyn Progress, tree: &mut Tree) -> Result<Facts> {
    if !path.exists() {
        fail!(NotFound, "{}: no such file or directory", path.display());
    }
    let config = layers::load(path, progress, tree)?;
    let name = path.file_name().map_or("image".into(), |n| n.to_string_lossy().into_owned());
    let name = [".gz", ".tgz", ".tar"]
        .iter()
        .fold(name, |n, end| n.strip_suffix(end).map(str::to_string).unwrap_or(n));
    of_config(config, &name, &path.display().to_string(), tree)
}

/// What the configuration of an image says. `from` is for messages.
fn of_config(config: layers::RunConfig, name: &str, from: &str, tree: &mut Tree) -> Result<Facts> {
    // Container runtimes lay their own over these; here the kernel writes them where there are none.
    for file in ["/etc/resolv.conf", "/etc/hostname"] {
        tree.remove(Path::new(file));
    }
    etc::complete(tree, false)?;
    let mut facts = Facts {
        name: name.to_string(),
        words: Words::Command,
        fixed_args: config.entrypoint.unwrap_or_default(),
        args: config.cmd.unwrap_or_default(),
        cwd: config.working_dir.filter(|d| !d.is_empty()),
        user: config.user.filter(|u| !u.is_empty()),
        volumes: config.volumes.unwrap_or_default().into_keys().collect(),
        no_program:
            "the image has neither entrypoint nor command: name a program, as in `unilith run IMAGE /bin/sh`"
                .into(),
        ..Facts::default()
    };
    for variable in config.env.unwrap_or_default() {
        let (key, value) = variable.split_once('=').unwrap_or((&variable, ""));
        facts.env.push((key.to_string(), value.to_string()));
    }
    for port in config.exposed_ports.unwrap_or_default().into_keys() {
        match port.parse() {
            Ok(port) => facts.ports.push(port),
            Err(error) => facts.warnings.push(format!("{from}: exposed {error}")),
        }
    }
    match config.healthcheck.map_or(Ok(None), layers::HealthConfig::check) {
        Ok(health) => facts.health = health,
        Err(kind) => facts.warnings.push(format!("{from}: unknown health check `{kind}`, it is not run")),
    }
    if let Some(text) = config.stop_signal.filter(|s| !s.is_empty()) {
        facts.stop_signal = signal_number(&text);
        if facts.stop_signal.is_none() {
            facts.warnings.push(format!("{from}: unknown stop signal `{text}`, SIGTERM is used"));
        }
    }
    Ok(facts)
}
