// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Debian packages: resolved, fetched and verified by apt itself, unpacked without installing.
//!
//! apt runs with a state, a cache and a configuration of its own below our cache folder, so it needs no rights and
//! never touches the machine's installation. From the machine it takes its sources, keys and `Acquire` settings
//! (proxies). It believes that nothing is installed but the packages that only serve installing itself.

use crate::{
    archive::{self, Rules},
    cache::{Cache, Lease, digest},
    control,
    error::{ErrorKind, ImageError, Result, fail},
    maintainer::Scripts,
    request::Progress,
    service::{self, Unit},
    tree::{Kind, Tree},
};
use serde::{Deserialize, Serialize};
use std::{
    collections::BTreeMap,
    fs::{self, File},
    io::{BufRead, BufReader, Read},
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    thread,
    time::{Duration, SystemTime},
};

/// How long a resolved set of packages, and the lists it came from, are taken without asking the archive again.
pub(crate) const FRESH: Duration = Duration::from_secs(24 * 3600);

/// What apt stores of a Debian release's lists, compressed, unpacked and indexed, with room to spare.
const LISTS: u64 = 160 << 20;

/// Packages that only serve installing others. Nothing that runs in a machine calls them, and they would bring perl.
const INSTALLERS: [&str; 14] = [
    "adduser",
    "base-files",
    "base-passwd",
    "debconf",
    "dpkg",
    "init-system-helpers",
    "install-info",
    "lsb-base",
    "passwd",
    "sensible-utils",
    "sysvinit-utils",
    "ucf",
    "usr-is-merged",
    "usrmerge",
];

/// What makes the stacks of PAM. Packages do not depend on it, as it comes with one that every Debian has (login).
const PAM: &str = "libpam-runtime";

/// Directories of packages that a program does not read: documentation, translations, and the files of other
/// programs that manage it on a whole system.
const LEFT_OUT: [&str; 22] = [
    "/usr/share/doc",
    "/usr/share/doc-base",
    "/usr/share/man",
    "/usr/share/info",
    "/usr/share/locale",
    "/usr/share/lintian",
    "/usr/share/bug",
    "/usr/share/menu",
    "/usr/share/i18n",
    "/usr/share/bash-completion",
    "/usr/share/zsh/vendor-completions",
    "/usr/share/fish/vendor_completions.d",
    "/usr/share/applications",
    "/usr/share/pixmaps",
    "/usr/share/icons",
    "/usr/share/apport",
    "/usr/share/initramfs-tools",
    "/usr/lib/systemd",
    "/usr/lib/valgrind",
    "/etc/init.d",
    "/etc/logrotate.d",
    "/etc/apparmor.d",
];

/// Character set converters: 8 MB that only `iconv_open` opens.
const CONVERTERS: &str = "/usr/lib/x86_64-linux-gnu/gconv";

/// One package file in the cache.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Package {
    pub name: String,
    file: String,
    pub sha256: String,
    /// The file's identity when it was verified: one that has not changed since is not read again.
    #[serde(default)]
    stamp: Option<Stamp>,
}

/// What changes with a file's content: inode, bytes, and the nanosecond of its last change.
type Stamp = (u64, u64, i64, i64);

fn stamp(path: &Path) -> Option<Stamp> {
    let m = fs::metadata(path).ok()?;
    Some((m.ino(), m.size(), m.ctime(), m.ctime_nsec()))
}

#[derive(Serialize, Deserialize)]
struct Resolved {
    packages: Vec<Package>,
}

/// The packages that make up a reference, all in the cache.
pub(crate) struct Set {
    pub packages: Vec<Package>,
    pub warnings: Vec<String>,
    /// Until they are unpacked nobody removes them.
    _lease: Lease,
}

/// What installing would fetch.
struct Plan {
    files: Vec<String>,
    /// Of all files together.
    bytes: u64,
}

impl Plan {
    fn has(&self, package: &str) -> bool {
        self.files.iter().any(|file| file.split('_').next() == Some(package))
    }
}

/// The cache's folder for packages, locked against other runs.
pub(crate) struct Apt<'a> {
    pub(crate) cache: &'a Cache,
    folder: PathBuf,
    archives: PathBuf,
    _lock: File,
}

pub(crate) fn age(path: &Path) -> Option<Duration> {
    // A time in the future (a clock set back) counts as new.
    Some(SystemTime::now().duration_since(fs::metadata(path).ok()?.modified().ok()?).unwrap_or_default())
}

impl<'a> Apt<'a> {
    pub(crate) fn open(cache: &'a Cache) -> Result<Apt<'a>> {
        let folder = cache.sub("debian")?;
        let archives = cache.sub("debian/archives")?;
        for sub in ["debian/archives/partial", "debian/state/lists/partial", "debian/parts"] {
            cache.sub(sub)?;
        }
        let path = folder.join("lock");
        let lock = File::create(&path).map_err(|e| ImageError::io("lock", &path, &e))?;
        lock.lock().map_err(|e| ImageError::io("lock", &path, &e))?;
        Ok(Apt { cache, folder, archives, _lock: lock })
    }

    /// A command of apt with our configuration and nobody's locale.
    pub(crate) fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command.env("APT_CONFIG", self.folder.join("apt.conf")).env("LC_ALL", "C").stdin(Stdio::null());
        command
    }

    /// Writes apt's configuration and the list of what it believes installed.
    pub(crate) fn configure(&self, wanted: &[String]) -> Result<()> {
        let dump = Command::new("apt-config").arg("dump").env("LC_ALL", "C").stdin(Stdio::null()).output();
        let dump = dump.map_err(|e| missing("apt-config", &e))?;
        let mut text: String = String::from_utf8_lossy(&dump.stdout)
            .lines()
            .filter(|l| {
                l.starts_with("Acquire::")
                    && !["Languages", "IndexTargets"].iter().any(|k| l[9..].starts_with(k))
            })
            .fold(String::new(), |all, line| all + line + "\n");
        let folder = self.folder.display().to_string();
        if folder.contains(['"', '\n']) {
            fail!(
                Packages,
                "apt cannot work in {folder}: set XDG_CACHE_HOME to a folder without quotes in its name"
            );
        }
        let state = format!("{folder}/state");
        for (key, value) in [
            ("Dir::Etc::parts", format!("{folder}/parts")),
            ("Dir::Etc::main", format!("{folder}/parts/none")),
            ("Dir::State", state.clone()),
            ("Dir::State::status", format!("{state}/status")),
            ("Dir::State::extended_states", format!("{state}/extended_states")),
            ("Dir::Cache", folder.clone()),
            ("Dir::Log", state),
            ("APT::Architecture", "amd64".into()),
            ("APT::Architectures", "amd64".into()),
            ("APT::Install-Recommends", "false".into()),
            ("APT::Sandbox::User", "root".into()),
            ("APT::Get::List-Cleanup", "false".into()),
            ("Acquire::Languages", "none".into()),
            ("Acquire::Retries", "2".into()),
            // Our own lock does this; dpkg's belongs to the machine.
            ("Debug::NoLocking", "true".into()),
        ] {
            text.push_str(&format!("{key} \"{value}\";\n"));
        }
        self.cache.put("debian", "apt.conf", text.as_bytes())?;
        let mut status = String::new();
        for name in
            INSTALLERS.iter().filter(|n| !wanted.iter().any(|w| w.split(['=', ':']).next() == Some(n)))
        {
            let provides = if *name == "debconf" { "Provides: debconf-2.0\n" } else { "" };
            status.push_str(&format!(
                "Package: {name}\nStatus: install ok installed\nArchitecture: amd64\nMulti-Arch: foreign\n{provides}\
                 Version: 999:0\nMaintainer: none\nDescription: none\n\n"
            ));
        }
        self.cache.put("debian/state", "status", status.as_bytes())?;
        Ok(())
    }

    fn run(&self, arguments: &[&str], packages: &[String]) -> Result<Output> {
        let mut command = self.command("apt-get");
        command.args(arguments).arg("--").args(packages);
        command.output().map_err(|e| missing("apt-get", &e))
    }

    /// Refuses to start what would fill the disk: apt waits for ever when it cannot store what it fetched.
    pub(crate) fn room(&self, bytes: u64) -> Result<()> {
        let Ok(disk) = rustix::fs::statvfs(&self.folder) else { return Ok(()) };
        let free = disk.f_bavail.saturating_mul(disk.f_frsize);
        if free < bytes {
            fail!(
                DiskFull,
                "the disk is full: {} needs {} MB for packages and has {} MB; free some space, or set XDG_CACHE_HOME to another disk",
                self.folder.display(),
                bytes.div_ceil(1 << 20),
                free >> 20
            );
        }
        Ok(())
    }

    /// Fetches the package lists when they are old or `force` says so.
    fn update(&self, progress: &dyn Progress, force: bool) -> Result<Option<String>> {
        let stamp = self.folder.join("updated");
        let known = age(&stamp);
        if !force && known.is_some_and(|age| age < FRESH) {
            return Ok(None);
        }
        self.room(LISTS)?;
        progress.step("fetching Debian's package lists");
        let output = self.run(&["-qq", "update"], &[])?;
        if output.status.success() {
            self.cache.put("debian", "updated", b"")?;
            return Ok(None);
        }
        let reason = reason(&output);
        if known.is_some() {
            return Ok(Some(format!(
                "Debian's package lists could not be fetched, older ones are used: {reason}"
            )));
        }
        fail!(
            Packages,
            "Debian's package lists could not be fetched: {reason}; check the network and /etc/apt/sources.list"
        )
    }

    /// The names of the package files that these come to, dependencies first. apt names only what is not in its
    /// archive folder yet, so it is shown an empty one.
    fn plan(&self, wanted: &[String]) -> Result<Plan> {
        let empty = self.cache.sub("debian/none/partial")?;
        let none = format!("Dir::Cache::archives={}", empty.parent().unwrap_or(&empty).display());
        let output = self.run(&["-qq", "-y", "-o", &none, "--print-uris", "install"], wanted)?;
        if !output.status.success() {
            return Err(refused(wanted, &output));
        }
        let text = String::from_utf8_lossy(&output.stdout);
        let lines = text.lines().filter(|l| l.starts_with('\''));
        let mut plan = Plan { files: Vec::new(), bytes: 0 };
        for line in lines {
            // 'ADDRESS' FILE SIZE HASH
            let mut words = line.rsplit_once('\'').map_or("", |(_, rest)| rest).split_ascii_whitespace();
            if let Some(file) = words.next() {
                plan.files.push(file.to_string());
                plan.bytes += words.next().and_then(|w| w.parse().ok()).unwrap_or(0);
            }
        }
        Ok(plan)
    }

    /// The control stanzas of packages; of a virtual package there is none.
    fn stanzas(&self, packages: &[String]) -> Result<String> {
        let names = packages.iter().map(|p| p.split(['=', ':']).next().unwrap_or(p));
        let mut command = self.command("apt-cache");
        command.args(["-q", "--no-all-versions", "show", "--"]).args(names);
        let output = command.output().map_err(|e| missing("apt-cache", &e))?;
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// The development files that packages recommend: gcc depends on no libc6-dev, and without its headers and start files
    /// it builds no program. Other recommended packages are what somebody likes beside the program on a whole system.
    fn development_files(&self, wanted: &[String]) -> Result<Vec<String>> {
        let names = control::recommended(&self.stanzas(wanted)?);
        match names.is_empty() {
            true => Ok(Vec::new()),
            false => Ok(control::of_section(&self.stanzas(&names)?, "libdevel")),
        }
    }

    fn fetch(&self, wanted: &[String], plan: &Plan, progress: &dyn Progress) -> Result<()> {
        self.room(plan.bytes + (plan.bytes >> 3))?;
        progress.step(&match plan.files.len() {
            1 => format!("fetching {}", wanted.join(", ")),
            n => format!("fetching {} and {} more", wanted.join(", "), n - wanted.len().min(n)),
        });
        let mut command = self.command("apt-get");
        command
            .args(["-qq", "-y", "-o", "APT::Status-Fd=1", "--download-only", "install", "--"])
            .args(wanted);
        let mut child = command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|e| missing("apt-get", &e))?;
        let errors = collect(&mut child);
        if let Some(stdout) = child.stdout.take() {
            for line in BufReader::new(stdout).lines().map_while(std::io::Result::ok) {
                // `dlstatus:NUMBER:PERCENT:TEXT` (apt's README.progress-reporting).
                let mut fields = line.split(':');
                if fields.next() == Some("dlstatus")
                    && let Some(percent) = fields.nth(1).and_then(|p| p.parse::<f64>().ok())
                {
                    progress.advance(percent as u64, 100);
                }
            }
        }
        let status = child.wait().map_err(|e| missing("apt-get", &e))?;
        let stderr = errors.join().unwrap_or_default();
        if !status.success() {
            return Err(refused(wanted, &Output { status, stdout: Vec::new(), stderr }));
        }
        Ok(())
    }

    /// Whether a package file is in the cache as apt verified it.
    fn intact(&self, package: &Package) -> bool {
        let path = self.archives.join(&package.file);
        let same = package.stamp.is_some() && stamp(&path) == package.stamp;
        same || fs::read(&path).is_ok_and(|bytes| digest(&bytes) == package.sha256)
    }
}

/// Reads a child's errors beside its output, so that neither pipe fills.
fn collect(child: &mut Child) -> thread::JoinHandle<Vec<u8>> {
    let stderr = child.stderr.take();
    thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(mut stderr) = stderr {
            // What could be read is what there is to say.
            let _ = stderr.read_to_end(&mut bytes);
        }
        bytes
    })
}

pub(crate) fn missing(program: &str, error: &std::io::Error) -> ImageError {
    let text = format!(
        "cannot run {program} ({error}): debian: packages need apt and dpkg, so a Debian or Ubuntu machine"
    );
    ImageError::new(ErrorKind::Packages, text)
}

/// apt's first error.
pub(crate) fn reason(output: &Output) -> String {
    let text = String::from_utf8_lossy(&output.stderr);
    let line = text.lines().find_map(|l| l.strip_prefix("E: ")).or_else(|| text.lines().next());
    line.map_or_else(|| output.status.to_string(), |l| l.trim().to_string())
}

fn refused(wanted: &[String], output: &Output) -> ImageError {
    let text = String::from_utf8_lossy(&output.stderr);
    if text.contains("No space left on device") || text.contains("enough free space") {
        let text = "the disk is full: apt cannot store the packages; free some space, or set XDG_CACHE_HOME to another disk";
        return ImageError::new(ErrorKind::DiskFull, text);
    }
    for line in text.lines() {
        let unknown = line
            .strip_prefix("E: Unable to locate package ")
            .or_else(|| {
                line.strip_prefix("E: Package '")
                    .and_then(|l| l.split_once("' has no installation"))
                    .map(|(p, _)| p)
            })
            .or_else(|| line.strip_prefix("E: Version '").map(|_| wanted.first().map_or("", String::as_str)));
        if let Some(package) = unknown {
            let text = format!(
                "no Debian package `{package}` in this machine's apt sources; `apt-cache search {package}` looks for others"
            );
            return ImageError::new(ErrorKind::NotFound, text);
        }
    }
    ImageError::new(
        ErrorKind::Packages,
        format!("apt cannot fetch {}: {}", wanted.join(", "), reason(output)),
    )
}

/// Finds and fetches packages and all they depend on.
pub(crate) fn resolve(
    wanted: &[String],
    cache: &Cache,
    offline: bool,
    progress: &dyn Progress,
) -> Result<Set> {
    let apt = Apt::open(cache)?;
    // Before anything is found to be there.
    let lease = cache.lease_packages()?;
    let record_name = format!("{}.json", &digest(wanted.join(",").as_bytes())[..32]);
    let record_path = cache.sub("debian/resolved")?.join(&record_name);
    let known = fs::read(&record_path).ok().and_then(|b| serde_json::from_slice::<Resolved>(&b).ok());
    let known = known.filter(|r| r.packages.iter().all(|p| apt.intact(p)));
    if let Some(record) = known.as_ref()
        && (offline || age(&record_path).is_some_and(|age| age < FRESH))
    {
        return Ok(Set { packages: record.packages.clone(), warnings: Vec::new(), _lease: lease });
    }
    if offline {
        fail!(Offline, "debian:{} is not in the cache; run it once with a network", wanted.join(","));
    }
    match fetch_all(&apt, wanted, progress) {
        Ok((packages, warnings)) => {
            let record = Resolved { packages: packages.clone() };
            let text =
                serde_json::to_vec(&record).map_err(|e| ImageError::new(ErrorKind::Io, e.to_string()))?;
            cache.put("debian/resolved", &record_name, &text)?;
            Ok(Set { packages, warnings, _lease: lease })
        }
        // Without a network, what was fetched before still runs.
        Err(error) => match known {
            Some(record) if error.kind == ErrorKind::Packages => {
                let warning = format!("the packages fetched before are used: {error}");
                Ok(Set { packages: record.packages, warnings: vec![warning], _lease: lease })
            }
            _ => Err(error),
        },
    }
}

fn fetch_all(apt: &Apt, wanted: &[String], progress: &dyn Progress) -> Result<(Vec<Package>, Vec<String>)> {
    apt.configure(wanted)?;
    let mut warnings: Vec<String> = apt.update(progress, false)?.into_iter().collect();
    let mut wanted = [wanted, &apt.development_files(wanted)?].concat();
    let mut plan = apt.plan(&wanted)?;
    if plan.has("libpam-modules") && !plan.has(PAM) {
        wanted.push(PAM.into());
        plan = apt.plan(&wanted)?;
    }
    let wanted = &wanted;
    if let Err(error) = apt.fetch(wanted, &plan, progress) {
        if error.kind == ErrorKind::DiskFull {
            return Err(error);
        }
        // Lists of yesterday may name files that the archive has replaced.
        warnings.extend(apt.update(progress, true)?);
        plan = apt.plan(wanted)?;
        apt.fetch(wanted, &plan, progress)?;
    }
    let mut packages = Vec::new();
    for file in plan.files {
        let path = apt.archives.join(&file);
        let bytes = fs::read(&path).map_err(|e| ImageError::io("read the package", &path, &e))?;
        let name = file.split('_').next().unwrap_or(&file).to_string();
        packages.push(Package { name, sha256: digest(&bytes), file, stamp: stamp(&path) });
    }
    Ok((packages, warnings))
}

/// Whether a path of a package is left out of images.
pub(crate) fn left_out(path: &Path) -> bool {
    LEFT_OUT.iter().any(|d| path.starts_with(d))
        || path.starts_with("/lib/systemd")
        || path.starts_with(CONVERTERS)
        || path.starts_with("/lib/x86_64-linux-gnu/gconv")
}

/// What packages brought that is not in the tree.
#[derive(Default)]
pub(crate) struct Unpacked {
    /// The paths of the files of each package.
    pub files: BTreeMap<String, Vec<PathBuf>>,
    /// In the order in which they are configured.
    pub scripts: Vec<Scripts>,
    /// Service units by package.
    pub units: BTreeMap<String, Vec<Unit>>,
    /// The names that each package depends on.
    pub depends: BTreeMap<String, Vec<String>>,
}

/// Unpacks packages over a tree.
pub(crate) fn unpack(
    set: &Set,
    cache: &Cache,
    converters: bool,
    progress: &dyn Progress,
    tree: &mut Tree,
) -> Result<Unpacked> {
    progress.step("unpacking packages");
    let archives = cache.sub("debian/archives")?;
    let mut unpacked = Unpacked::default();
    let mut budget = archive::MAX_UNPACKED;
    for (index, package) in set.packages.iter().enumerate() {
        progress.advance(index as u64, set.packages.len() as u64);
        let name = &package.name;
        let path = archives.join(&package.file);
        let mut part = Tree::new();
        let out = |path: &Path| {
            left_out(path) && !service::is_unit(path) && !(converters && path.starts_with(CONVERTERS))
        };
        stream(&path, "--fsys-tarfile", &mut |reader, what| {
            archive::unpack(reader, what, Rules::Package, &out, &mut budget, &mut part)
        })?;
        let mut units = Vec::new();
        for (path, id) in part.list().into_iter().filter(|(path, _)| service::is_unit(path)) {
            if let (Kind::File(content), Some(unit)) = (&part.node(id).kind, path.file_name()) {
                units.push(Unit::parse(&unit.to_string_lossy(), &String::from_utf8_lossy(&content.read()?)));
            }
        }
        for folder in ["/lib/systemd", "/usr/lib/systemd"] {
            part.remove(Path::new(folder));
        }
        let own =
            part.list().into_iter().filter(|(_, id)| !matches!(part.node(*id).kind, Kind::Directory(_)));
        unpacked.files.insert(name.clone(), own.map(|(path, _)| path).collect());
        unpacked.units.insert(name.clone(), units);
        overlay(tree, &part)?;
        let mut folder = Tree::new();
        stream(&path, "--ctrl-tarfile", &mut |reader, what| {
            archive::unpack(reader, what, Rules::Package, &|_| false, &mut (64 << 20), &mut folder)
        })?;
        unpacked.depends.insert(name.clone(), control::depends(&folder.text("/control").unwrap_or_default()));
        unpacked.scripts.push(Scripts {
            package: name.clone(),
            preinst: folder.text("/preinst"),
            postinst: folder.text("/postinst"),
            templates: folder.text("/templates"),
        });
    }
    Ok(unpacked)
}

/// Lays one tree over another with dpkg's rules.
pub(crate) fn overlay(tree: &mut Tree, part: &Tree) -> Result<()> {
    let mut names: BTreeMap<usize, PathBuf> = BTreeMap::new();
    for (path, id) in part.list() {
        let node = part.node(id);
        match &node.kind {
            Kind::Directory(_) => tree.put_directory(&path, node.meta, true)?,
            kind => match names.get(&id) {
                Some(first) => tree.put_hard_link(&path, first)?,
                None => {
                    tree.put(&path, kind.clone(), node.meta)?;
                    names.insert(id, path);
                }
            },
        }
    }
    Ok(())
}

/// Runs dpkg-deb over a package file and hands its output to `read`.
fn stream(path: &Path, option: &str, read: &mut dyn FnMut(&mut dyn Read, &str) -> Result<()>) -> Result<()> {
    let what = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let mut child = Command::new("dpkg-deb")
        .arg(option)
        .arg(path)
        .env("LC_ALL", "C")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|e| missing("dpkg-deb", &e))?;
    let errors = collect(&mut child);
    let result = match child.stdout.take() {
        Some(mut stdout) => {
            let result = read(&mut stdout, &what);
            // The padding behind the archive's end mark; unread, it would kill dpkg-deb by SIGPIPE.
            if result.is_ok() {
                let _ = std::io::copy(&mut stdout, &mut std::io::sink());
            }
            result
        }
        None => Ok(()),
    };
    let status = child.wait().map_err(|e| missing("dpkg-deb", &e))?;
    let errors = errors.join().unwrap_or_default();
    if !status.success() && !errors.is_empty() {
        let text = String::from_utf8_lossy(&errors);
        let line = text.lines().next().unwrap_or_default();
        fail!(
            Corrupt,
            "{what}: damaged package: {line}; delete it from {} and run again",
            path.parent().unwrap_or(path).display()
        );
    }
    result
}

/// Whether a file of the tree calls iconv: then the converters are needed. libc's own tools do not count.
pub(crate) fn calls_iconv(tree: &Tree) -> bool {
    tree.list().into_iter().any(|(path, id)| {
        let Kind::File(content) = &tree.node(id).kind else { return false };
        if path.ends_with("iconv") || path.ends_with("iconvconfig") || path.ends_with("locale") {
            return false;
        }
        let Ok(bytes) = content.read() else { return false };
        let calls = |name: &String| name == "iconv_open";
        crate::elf::parse(&bytes, "").is_ok_and(|elf| elf.imports.iter().any(calls))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documentation_is_left_out_and_configuration_is_not() {
        assert!(left_out(Path::new("/usr/share/doc/redis/README")));
        assert!(left_out(Path::new("/lib/systemd/system/x.service")));
        assert!(!left_out(Path::new("/usr/share/docker/x")));
        assert!(!left_out(Path::new("/etc/redis/redis.conf")));
    }
}
