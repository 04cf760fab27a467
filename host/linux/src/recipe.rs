// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Programs of the catalogue, built from Debian's source so that they are linked into Linux.
//!
//! A recipe is the `[linked]` table of a settings file ([`Build`]). Its lines run in the unpacked source with `CC` and
//! `CXX` set to scripts that are `unilith linux cc` and `c++`; what they leave is kept in the cache under the hash of
//! the recipe, the source package and everything that linking takes from this repository and this machine.

use crate::{
    Compiler, Language, LinuxError, Options, Progress, Release, Result, Workshop,
    command::{command, follow, is_complaint, run},
    library::BuiltLibrary,
    link,
    source::{is_missing, need},
};
use sha2::{Digest, Sha256};
use std::{
    fs, io,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    thread,
};
use unilith_image::{Build, ImageError, Libc, Libraries, SourcePackage};

/// What every build takes: the program or file to look for, and Debian's package that has it.
const TOOLS: [(&str, &str); 5] = [
    ("make", "make"),
    ("gcc", "gcc"),
    ("strip", "binutils"),
    ("dpkg-source", "dpkg-dev"),
    ("/usr/include/stdio.h", "libc6-dev"),
];

/// A program to build.
#[derive(Clone, Copy, Debug)]
pub struct Recipe<'a> {
    /// For messages.
    pub name: &'a str,
    pub build: &'a Build,
    /// What is built for another C library than Debian's.
    pub libraries: &'a Libraries,
    /// Where its patches are.
    pub folder: &'a Path,
    pub into: Target<'a>,
    /// Of `unilith cc`, before all that a build system says.
    pub words: &'a [&'a str],
    /// The command whose `linux cc` is the compiler.
    pub unilith: &'a Path,
    /// Use only what is in the cache.
    pub offline: bool,
}

/// What the program is linked into.
#[derive(Clone, Copy, Debug)]
pub enum Target<'a> {
    /// Linux, at this place (as in [`Compiler`]).
    Linux(u8),
    /// The micro kernel: by `unilith cc`, of which these bytes are the version.
    Micro(&'a [u8]),
}

impl Target<'_> {
    fn kernel(self) -> &'static str {
        match self {
            Target::Linux(_) => "Linux",
            Target::Micro(_) => "the micro kernel",
        }
    }
}

impl Workshop {
    /// The linked program of a recipe; from the cache when nothing that it is made from has changed.
    pub fn program(&self, recipe: &Recipe<'_>, progress: &dyn Progress) -> Result<PathBuf> {
        let find = |source: &str| {
            let found = SourcePackage::find(source, &self.cache, recipe.offline, progress);
            found.map_err(of_image)
        };
        let found = find(&recipe.build.source)?;
        let libraries = self.libraries(recipe, &mut |source| find(source))?;
        let kept = self.kept(recipe, &found, &libraries)?;
        if self.is_current(&kept, progress)? {
            return Ok(kept);
        }
        if recipe.offline {
            let name = recipe.name;
            return Err(LinuxError::new(format!("{name} has not been built yet; leave out --offline once")));
        }
        // One at a time, for each takes all processors; another command may have built this one meanwhile.
        let _lock = self.lock("programs", "is building a program", progress)?;
        self.need_for(recipe, &libraries, progress)?;
        // The archive may have moved on, and a library that was installed for this is one of its inputs.
        let fetch = |found: &SourcePackage| found.fetch(&self.cache, progress).map_err(of_image);
        let (package, description) = fetch(&found)?;
        let mut descriptions = Vec::new();
        let libraries = self.libraries(recipe, &mut |source| {
            let (package, description) = fetch(&find(source)?)?;
            descriptions.push(description);
            Ok(package)
        })?;
        let kept = self.kept(recipe, &package, &libraries)?;
        if !self.is_current(&kept, progress)? {
            for (library, description) in libraries.iter().zip(&descriptions) {
                self.make_library(recipe, library, &libraries, description, progress)?;
            }
            self.make_program(recipe, &package, &description, &libraries, &kept, progress)?;
        }
        Ok(kept)
    }

    /// Whether the program is there, and for the present kernel if it calls functions of one.
    fn is_current(&self, kept: &Path, progress: &dyn Progress) -> Result<bool> {
        let Ok(program) = fs::read(kept) else { return Ok(false) };
        match link::linked(&program) {
            link::Linked::To(kernel) => {
                let options = Options::parse("base")?;
                Ok(kernel == link::build_id(&self.build(&options, progress)?.vmlinux)?)
            }
            _ => Ok(true),
        }
    }

    /// Where the program is, once it is built.
    fn kept(
        &self,
        recipe: &Recipe<'_>,
        package: &SourcePackage,
        libraries: &[BuiltLibrary<'_>],
    ) -> Result<PathBuf> {
        let Recipe { name, build, folder, .. } = recipe;
        let mut hash = Sha256::new();
        // Lengths keep the boundary between two inputs part of what is hashed.
        let mut add = |bytes: &[u8]| {
            hash.update((bytes.len() as u64).to_le_bytes());
            hash.update(bytes);
        };
        add(package.digest().as_bytes());
        for text in [&build.build, &build.makes] {
            add(text.as_bytes());
        }
        for package in &build.needs {
            add(package.as_bytes());
            if !libraries.iter().any(|library| library.name == package) {
                add(installed(package).unwrap_or_default().as_bytes());
            }
        }
        for library in libraries {
            add(library.prefix.as_os_str().as_encoded_bytes());
        }
        match recipe.into {
            Target::Linux(place) => add(&self.link_inputs(compiler(recipe, place, Language::C))?),
            Target::Micro(version) => {
                add(b"micro");
                add(version);
            }
        }
        for patch in &build.patches {
            let patch = folder.join(patch);
            add(&fs::read(&patch).map_err(|e| LinuxError::io("read", &patch, &e))?);
        }
        if !build.patches.is_empty() {
            // Debian's source as it is includes none of these, and calls no function of a certain kernel.
            self.headers()?.iter().for_each(|header| add(header));
            if self.release != Release::default() {
                add(self.release.name().as_bytes());
            }
        }
        let key: String = hash.finalize()[..12].iter().map(|b| format!("{b:02x}")).collect();
        let file = Path::new(&build.makes).file_name().unwrap_or_else(|| name.as_ref());
        Ok(self.sub("programs")?.join(key).join(file))
    }

    fn need_for(
        &self,
        recipe: &Recipe<'_>,
        libraries: &[BuiltLibrary<'_>],
        progress: &dyn Progress,
    ) -> Result<()> {
        let mut missing: Vec<&str> =
            TOOLS.iter().filter(|(what, _)| is_missing(what)).map(|(_, package)| *package).collect();
        let all = recipe.build.needs.iter().chain(libraries.iter().flat_map(|library| &library.recipe.needs));
        let is_built = |package: &&str| libraries.iter().any(|library| library.name == *package);
        let needs = all.map(String::as_str).filter(|package| !is_built(package));
        missing.extend(needs.filter(|package| installed(package).is_none()));
        let is_for_linux = matches!(recipe.into, Target::Linux(_));
        if is_for_linux && recipe.build.libc == Libc::Musl && link::check_musl(Language::C).is_err() {
            missing.push("musl-dev");
        }
        need(&missing, &format!("building {}", recipe.name), progress)
    }

    fn make_program(
        &self,
        recipe: &Recipe<'_>,
        package: &SourcePackage,
        description: &Path,
        libraries: &[BuiltLibrary<'_>],
        kept: &Path,
        progress: &dyn Progress,
    ) -> Result<()> {
        let Recipe { name, build, .. } = recipe;
        let lines = Lines {
            name,
            package,
            description,
            patches: build.patches.iter().map(|patch| (patch.as_str(), recipe.folder.join(patch))).collect(),
            text: &build.build,
            prefix: None,
        };
        let (work, log) = self.run_lines(recipe, &lines, libraries, progress)?;
        let (folder, source) = (self.sub("programs")?, work.join("source"));
        let failed = |why: &str| failed(name, why, &log);
        let made = source.join(&build.makes);
        let program = fs::read(&made).map_err(|_| failed(&format!("it made no {}", build.makes)))?;
        let is_linked = match recipe.into {
            Target::Linux(_) => link::linked(&program) != link::Linked::No,
            Target::Micro(_) => has_objects(&program),
        };
        if !is_linked {
            return Err(failed(&format!("{} was not linked with $CC", build.makes)));
        }
        // Without what debuggers read, which would be memory of the machine; names stay.
        run("strip", command("strip").arg("--strip-debug").arg(&made))?;
        let target = kept.parent().unwrap_or(&folder);
        let new = target.with_extension("new");
        clear(&new)?;
        fs::create_dir_all(&new).map_err(|e| LinuxError::io("make", &new, &e))?;
        let copy = new.join(kept.file_name().unwrap_or_default());
        fs::copy(&made, &copy).map_err(|e| LinuxError::io("keep", &made, &e))?;
        clear(target)?;
        fs::rename(&new, target).map_err(|e| LinuxError::io("write", target, &e))?;
        clear(&work)
    }

    /// Unpacks a source and runs a recipe's lines there; its folder, which holds `source`, and the log.
    pub(crate) fn run_lines(
        &self,
        recipe: &Recipe<'_>,
        lines: &Lines<'_>,
        libraries: &[BuiltLibrary<'_>],
        progress: &dyn Progress,
    ) -> Result<(PathBuf, PathBuf)> {
        let Lines { name, package, .. } = lines;
        let folder = self.sub("programs")?;
        let of_source = |what: &str| folder.join(format!("{}.{what}", package.name));
        let (work, log) = (of_source("build"), of_source("log"));
        clear(&work)?;
        fs::create_dir_all(&work).map_err(|e| LinuxError::io("make", &work, &e))?;
        progress.step(&format!("unpacking {name} {}", package.version));
        let source = work.join("source");
        // apt has verified it already.
        let mut unpack = command("dpkg-source");
        unpack.args(["--no-check", "--extract"]).arg(lines.description).arg(&source);
        run(&format!("unpacking the source of {name}"), &mut unpack)?;
        for (patch, path) in &lines.patches {
            let file = fs::File::open(path).map_err(|e| LinuxError::io("read", path, &e))?;
            // What has moved is found; what has changed is not guessed at.
            let mut apply = command("patch");
            apply.args(["--strip=1", "--batch", "--forward", "--fuzz=0"]).current_dir(&source).stdin(file);
            run(&format!("applying {patch} to the source of {name}"), &mut apply)?;
        }

        let jobs = thread::available_parallelism().map_or(1, usize::from);
        progress.step(&format!(
            "building {name} {} for being linked into {}",
            package.version,
            recipe.into.kernel()
        ));
        let mut shell = command("nice");
        shell
            .args(["-n", "19", "sh", "-euc", lines.text])
            .current_dir(&source)
            .env("MAKEFLAGS", format!("-j{jobs}"));
        for (variable, language) in [("CC", Language::C), ("CXX", Language::Cpp)] {
            let script = work.join(variable.to_lowercase());
            let text = match recipe.into {
                Target::Linux(place) => {
                    compiler_script(recipe.unilith, compiler(recipe, place, language), self.release)
                }
                Target::Micro(_) => micro_script(recipe, libraries),
            };
            write_script(&script, &text)?;
            shell.env(variable, script);
        }
        match recipe.into {
            Target::Linux(_) => shell.env("TRY_CC", "cc"),
            Target::Micro(_) => {
                let found: Vec<PathBuf> =
                    libraries.iter().map(|library| library.prefix.join("lib/pkgconfig")).collect();
                let found = std::env::join_paths(found).map_err(|e| LinuxError::new(e.to_string()))?;
                shell.env("TRY_CC", work.join("cc")).env("PKG_CONFIG_LIBDIR", found)
            }
        };
        if let Some(prefix) = lines.prefix {
            shell.env("PREFIX", prefix);
        }
        if !follow(&mut shell, &log, &mut |_| ())? {
            let text = fs::read(&log).map_err(|e| LinuxError::io("read", &log, &e))?;
            return Err(failed(name, cause(&String::from_utf8_lossy(&text)), &log));
        }
        Ok((work, log))
    }
}

/// What [`Workshop::run_lines`] runs, and in which source.
pub(crate) struct Lines<'a> {
    /// For messages.
    pub name: &'a str,
    pub package: &'a SourcePackage,
    /// The package's `.dsc`.
    pub description: &'a Path,
    /// As the recipe names them, and where they are.
    pub patches: Vec<(&'a str, PathBuf)>,
    pub text: &'a str,
    /// Where a library is put.
    pub prefix: Option<&'a Path>,
}

fn of_image(error: ImageError) -> LinuxError {
    LinuxError::new(error.message)
}

pub(crate) fn failed(name: &str, why: &str, log: &Path) -> LinuxError {
    LinuxError::new(format!("cannot build {name}: {why}; the whole log is {}", log.display()))
}

/// Whether `unilith cc` linked the program (`unilith_static::objects_of`).
fn has_objects(program: &[u8]) -> bool {
    use object::Object as _;
    object::File::parse(program).is_ok_and(|file| file.section_by_name(".unilith.objects").is_some())
}

fn compiler(recipe: &Recipe<'_>, place: u8, language: Language) -> Compiler {
    let libc = match recipe.build.libc {
        Libc::Glibc => link::Libc::Glibc,
        Libc::Musl => link::Libc::Musl,
    };
    Compiler { language, libc, place }
}

/// One word for makefiles and configure scripts, which do not all take more as a compiler.
fn compiler_script(unilith: &Path, compiler: Compiler, release: Release) -> String {
    let verb = if compiler.language == Language::Cpp { "c++" } else { "cc" };
    let libc = if compiler.libc == link::Libc::Musl { " --libc musl" } else { "" };
    let place = if compiler.place == 0 { String::new() } else { format!(" --place {}", compiler.place) };
    let linux = match release == Release::default() {
        true => String::new(),
        false => format!(" --linux {}", release.name()),
    };
    quoted_script(unilith, &format!("linux {verb}{libc}{place}{linux} --"))
}

/// The compiler with these libraries, before all that a build system says.
fn micro_script(recipe: &Recipe<'_>, libraries: &[BuiltLibrary<'_>]) -> String {
    let own = recipe.words.iter().map(|word| format!(" {word}"));
    let words = libraries.iter().map(|library| {
        let prefix = quoted(&library.prefix);
        format!(" -isystem {prefix}/include -L{prefix}/lib")
    });
    quoted_script(recipe.unilith, &format!("cc{}", own.chain(words).collect::<String>()))
}

/// One word of a shell.
fn quoted(path: &Path) -> String {
    format!("'{}'", path.display().to_string().replace('\'', r"'\''"))
}

fn quoted_script(unilith: &Path, words: &str) -> String {
    format!("#!/bin/sh\nexec {} {words} \"$@\"\n", quoted(unilith))
}

fn write_script(path: &Path, text: &str) -> Result<()> {
    fs::write(path, text)
        .and_then(|()| fs::set_permissions(path, fs::Permissions::from_mode(0o755)))
        .map_err(|e| LinuxError::io("write", path, &e))
}

pub(crate) fn clear(folder: &Path) -> Result<()> {
    match fs::remove_dir_all(folder) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(LinuxError::io("remove", folder, &e)),
        _ => Ok(()),
    }
}

/// The version of a Debian package that is installed on this machine.
fn installed(package: &str) -> Option<String> {
    let mut ask = command("dpkg-query");
    ask.args(["--show", "--showformat=${db:Status-Status} ${Version}\n", package]);
    let said = run("dpkg-query", &mut ask).ok()?;
    said.lines().find_map(|line| line.strip_prefix("installed ").map(str::to_string))
}

/// The line of a build's log that names the cause. make's `***` is only its consequence where the line before it says why:
/// the compiler's error, or that of linking, which is the command's.
fn cause(log: &str) -> &str {
    let lines: Vec<&str> = log.lines().filter(|line| !line.trim().is_empty()).collect();
    let stop = lines.iter().position(|line| line.contains("*** ")).unwrap_or(lines.len());
    let said = |line: &&&str| line.starts_with("unilith: ") || (is_complaint(line) && !line.contains("*** "));
    let before = lines[..stop].iter().rev().take_while(|line| !line.contains(" -c ")).filter(said).last();
    let any = || lines.iter().find(|line| is_complaint(line)).or(lines.last());
    before.or_else(any).map_or("no reason was given", |line| line.trim_start_matches("unilith: ").trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_build_is_explained_by_its_cause() {
        let log = "CC a.o\nunilith: undefined: a; -lm has a\nmake: *** [Makefile:3: x] Error 1\n";
        assert_eq!(cause(log), "undefined: a; -lm has a");
        let log = "cc -c a.c\na.c:1:2: error: no\na.c:2:2: error: other\nmake: *** [a.o] Error 1\nmake: *** Waiting\n";
        assert_eq!(cause(log), "a.c:1:2: error: no");
        assert_eq!(
            cause("make: *** No rule to make target 'x'.  Stop.\n"),
            "make: *** No rule to make target 'x'.  Stop."
        );
        assert_eq!(cause("sh: 1: nosuch: not found\n"), "sh: 1: nosuch: not found");
        assert_eq!(cause(""), "no reason was given");
    }

    #[test]
    fn the_compiler_is_one_word_whatever_the_path() {
        let cpp = Compiler { language: Language::Cpp, libc: link::Libc::Glibc, place: 0 };
        let text = compiler_script(Path::new("/a b's/unilith"), cpp, Release::V6_1);
        assert_eq!(text, "#!/bin/sh\nexec '/a b'\\''s/unilith' linux c++ -- \"$@\"\n");
        let musl = Compiler { language: Language::C, libc: link::Libc::Musl, place: 0 };
        assert!(compiler_script(Path::new("/u"), musl, Release::V6_1).contains(" linux cc --libc musl -- "));
        let other = Compiler { place: 3, ..cpp };
        let text = compiler_script(Path::new("/u"), other, Release::V6_12);
        assert!(text.contains(" linux c++ --place 3 --linux 6.12 -- "), "{text}");
    }

    #[test]
    fn what_is_not_installed_has_no_version() {
        assert_eq!(installed("no-such-package-of-debian"), None);
    }
}
