// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Debian's base system under the packages of an image: what every Debian program may rely on without naming it as a
//! dependency (Debian Policy 3.8, essential packages), and certificates and time zones.
//!
//! Which parts an image gets is decided by what its programs can be seen to use. Files that the packages bring
//! themselves are never replaced.

use crate::{
    debian::Unpacked,
    elf,
    error::Result,
    host, libraries,
    request::Base,
    tree::{Kind, Meta, Tree},
};
use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
};

/// All packages of the base system, fetched once for all images.
pub(crate) const PACKAGES: [&str; 26] = [
    "apt",
    "base-files",
    "bash",
    "bsdutils",
    "ca-certificates",
    "coreutils",
    "dash",
    "debianutils",
    "diffutils",
    "dpkg",
    "findutils",
    "grep",
    "gzip",
    "hostname",
    "libc-bin",
    "libstdc++6",
    "mawk",
    "ncurses-base",
    "ncurses-bin",
    "netbase",
    "perl-base",
    "sed",
    "sysvinit-utils",
    "tar",
    "tzdata",
    "util-linux",
];

/// Packages of data alone, which every image gets: terminals, services' ports, the release's name, C.UTF-8.
const DATA: [&str; 4] = ["base-files", "libc-bin", "ncurses-base", "netbase"];

/// Packages that manage a whole system: their programs are there with `--base full` alone.
const MANAGERS: [&str; 2] = ["apt", "dpkg"];

/// What libraries of theirs read, which every image gets: sources of packages, names of architectures.
const OF_MANAGERS: [&str; 2] = ["/etc/apt", "/usr/share/dpkg"];

/// Programs of them that only manage a whole system.
const MANAGE: [&str; 10] = [
    "/sbin/ldconfig",
    "/usr/bin/localedef",
    "/usr/sbin/iconvconfig",
    "/usr/sbin/zic",
    "/usr/bin/openssl",
    "/usr/bin/c_rehash",
    "/usr/share/common-licenses",
    "/usr/share/base-files",
    "/usr/share/gcc",
    "/usr/share/gdb",
];

/// Functions by which a program starts another one.
const STARTS_OTHERS: [&str; 12] = [
    "system",
    "popen",
    "execl",
    "execle",
    "execlp",
    "execv",
    "execve",
    "execvp",
    "execvpe",
    "fexecve",
    "posix_spawn",
    "posix_spawnp",
];

/// Libraries that start programs only on behalf of a system manager.
const EXCEPT: [&str; 5] = ["libc.so", "libsystemd.so", "libp11-kit.so", "libpthread", "libcap-ng.so"];

/// What TLS libraries are called.
const TLS: [&str; 4] = ["libssl.so", "libgnutls.so", "libnss3.so", "libmbedtls.so"];

/// Where certificates are looked for by programs that bring their own TLS.
const CERTIFICATES_FOLDER: &str = "/etc/ssl/certs";
/// All of them in one file.
pub(crate) const CERTIFICATES: &str = "/etc/ssl/certs/ca-certificates.crt";

/// The parts of the base system that an image gets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Parts {
    pub tools: bool,
    pub perl: bool,
    pub certificates: bool,
    pub zones: bool,
    pub managers: bool,
}

impl Parts {
    pub(crate) fn of(base: Base, tree: &Tree, zones: bool) -> Result<Parts> {
        let mut parts = Parts { zones, ..Parts::default() };
        if base == Base::Full {
            return Ok(Parts { tools: true, perl: true, certificates: true, zones: true, managers: true });
        }
        for (path, id) in tree.list() {
            let node = tree.node(id);
            let Kind::File(content) = &node.kind else { continue };
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            let executable = node.meta.mode & 0o111 != 0;
            let library = name.contains(".so");
            if !executable && !library || EXCEPT.iter().any(|e| name.starts_with(e)) {
                continue;
            }
            let bytes = content.read()?;
            if let Some((interpreter, argument)) = elf::script(&bytes) {
                parts.tools = true;
                let argument = argument.unwrap_or_default();
                // Also a shell's script that runs it: perl-base is essential.
                parts.perl |= interpreter.ends_with("/perl")
                    || interpreter.ends_with("/env") && argument == "perl"
                    || holds(&bytes, b"perl ");
                continue;
            }
            let Ok(parsed) = elf::parse(&bytes, "") else { continue };
            parts.tools |= parsed.imports.iter().any(|i| STARTS_OTHERS.contains(&i.as_str()));
            parts.certificates |= speaks_tls(&parsed, &bytes, library);
            if parsed.needed.is_empty() && !library {
                // Nothing is imported by a static program; its strings tell.
                parts.tools |= holds(&bytes, b"/bin/sh");
            }
        }
        Ok(parts)
    }
}

/// A library of TLS is needed, or the program brings one and names the place of certificates.
fn speaks_tls(parsed: &elf::Elf, bytes: &[u8], is_library: bool) -> bool {
    parsed.needed.iter().any(|n| TLS.iter().any(|t| n.starts_with(t)))
        || !is_library && holds(bytes, CERTIFICATES_FOLDER.as_bytes())
}

fn holds(bytes: &[u8], text: &[u8]) -> bool {
    memchr::memmem::find(bytes, text).is_some()
}

/// Gives a program of this host the host's certificates, as it gets its libraries.
pub(crate) fn host_certificates(tree: &mut Tree, parsed: &elf::Elf, bytes: &[u8]) -> Result<()> {
    let file = Path::new(CERTIFICATES);
    if tree.walk(file, true).is_some() || !file.is_file() || !speaks_tls(parsed, bytes, false) {
        return Ok(());
    }
    host::take_file(file, file, tree)?;
    certificate_links(tree)
}

/// Lays the chosen parts of an unpacked base system under a tree; returns the programs that came with it.
pub(crate) fn lay(
    tree: &mut Tree,
    base: &Tree,
    unpacked: &Unpacked,
    parts: Parts,
) -> Result<BTreeSet<String>> {
    let managed = |path: &Path| MANAGE.iter().any(|m| path.starts_with(m));
    let mut wanted: Vec<PathBuf> = Vec::new();
    for (package, files) in &unpacked.files {
        let package = package.as_str();
        // Libraries come with the programs that need them; C++'s is apt's, so that modules of interpreters may lean on it.
        if !PACKAGES.contains(&package) || package == "ca-certificates" {
            continue;
        }
        let data = DATA.contains(&package);
        let all = match package {
            "perl-base" => parts.perl,
            "tzdata" => parts.zones,
            _ if MANAGERS.contains(&package) => parts.managers,
            _ => parts.tools,
        };
        let is_data = |path: &Path| {
            data && (path.starts_with("/etc")
                || path.starts_with("/lib/terminfo")
                || path.starts_with("/usr/lib/locale")
                || path.ends_with("os-release"))
        };
        let is_data = |path: &Path| {
            is_data(path)
                || MANAGERS.contains(&package) && OF_MANAGERS.iter().any(|folder| path.starts_with(folder))
        };
        wanted.extend(files.iter().filter(|p| (all || is_data(p)) && !managed(p)).cloned());
    }
    if parts.tools {
        // dash's and mawk's alternatives are links that their postinst makes.
        wanted.extend(["/usr/bin/awk", "/usr/bin/which", "/bin/sh"].map(PathBuf::from));
    }
    let mut added = BTreeSet::new();
    let mut libraries = BTreeSet::new();
    for path in wanted {
        let Some((real, id)) = base.walk(&path, false) else { continue };
        let node = base.node(id);
        if let Kind::File(content) = &node.kind {
            let bytes = content.read()?;
            if let Ok(parsed) = elf::parse(&bytes, "") {
                for needed in libraries::closure(base, &real, &parsed)?.files {
                    libraries.insert(needed.path);
                    libraries.insert(needed.real);
                }
            }
        }
        if take(tree, base, &real)? && node.meta.mode & 0o111 != 0 {
            added.insert(real.to_string_lossy().into_owned());
        }
    }
    for path in libraries {
        if let Some((real, _)) = base.walk(&path, false) {
            take(tree, base, &real)?;
        }
    }
    if parts.certificates {
        certificates(tree, base)?;
    }
    Ok(added)
}

/// Takes one file or link unless the tree has something of that name.
fn take(tree: &mut Tree, base: &Tree, path: &Path) -> Result<bool> {
    let Some((real, id)) = base.walk(path, false) else { return Ok(false) };
    let node = base.node(id);
    if tree.walk(&real, false).is_some() || matches!(node.kind, Kind::Directory(_)) {
        return Ok(false);
    }
    tree.put(&real, node.kind.clone(), node.meta)?;
    Ok(true)
}

/// What update-ca-certificates(8) makes: one file of all certificates, found by OpenSSL, GnuTLS and Go.
pub(crate) fn certificates(tree: &mut Tree, source: &Tree) -> Result<()> {
    if tree.walk(Path::new(CERTIFICATES), true).is_some() {
        return Ok(());
    }
    let mut bundle: Vec<u8> = Vec::new();
    for (path, id) in source.list_below(Path::new("/usr/share/ca-certificates")) {
        if let (Kind::File(content), true) =
            (&source.node(id).kind, path.extension().is_some_and(|e| e == "crt"))
        {
            bundle.extend_from_slice(&content.read()?);
            if !bundle.ends_with(b"\n") {
                bundle.push(b'\n');
            }
        }
    }
    if bundle.is_empty() {
        return Ok(());
    }
    tree.put_bytes(Path::new(CERTIFICATES), bundle, Meta::FILE)?;
    certificate_links(tree)
}

/// Debian's OpenSSL looks below /usr/lib/ssl, BoringSSL and LibreSSL for one file in /etc/ssl.
fn certificate_links(tree: &mut Tree) -> Result<()> {
    for (path, target) in [
        ("/usr/lib/ssl/certs", CERTIFICATES_FOLDER),
        ("/usr/lib/ssl/cert.pem", CERTIFICATES),
        ("/etc/ssl/cert.pem", CERTIFICATES),
    ] {
        if tree.walk(Path::new(path), false).is_none() {
            tree.put_link(Path::new(path), target)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_follow_from_what_programs_use() {
        let parts = |name: &str, text: &str| {
            let mut tree = Tree::new();
            tree.put_bytes(Path::new(name), text.as_bytes().to_vec(), Meta::PROGRAM).unwrap();
            Parts::of(Base::Auto, &tree, false).unwrap()
        };
        assert_eq!(parts("/usr/bin/x", "data"), Parts::default());
        assert_eq!(parts("/usr/bin/x", "#!/bin/sh\n"), Parts { tools: true, ..Parts::default() });
        assert_eq!(
            parts("/usr/bin/x", "#!/usr/bin/perl -w\n"),
            Parts { tools: true, perl: true, ..Parts::default() }
        );
        assert!(parts("/usr/bin/x", "#!/bin/sh\nexec perl -e 1\n").perl);
        assert!(Parts::of(Base::Full, &Tree::new(), false).unwrap().zones);
    }

    #[test]
    fn what_the_packages_bring_is_not_replaced_and_certificates_are_one_file() {
        let (mut tree, mut base) = (Tree::new(), Tree::new());
        tree.put_bytes(Path::new("/etc/host.conf"), *b"mine", Meta::FILE).unwrap();
        for (path, text) in [
            ("/etc/host.conf", "base"),
            ("/etc/debian_version", "12"),
            ("/usr/share/ca-certificates/a/b.crt", "B"),
            ("/usr/share/ca-certificates/a/a.crt", "A\n"),
        ] {
            base.put_bytes(Path::new(path), text.as_bytes().to_vec(), Meta::FILE).unwrap();
        }
        let files = ["/etc/host.conf", "/etc/debian_version"].map(PathBuf::from).to_vec();
        let unpacked = Unpacked { files: [("base-files".to_string(), files)].into(), ..Unpacked::default() };
        let parts = Parts { certificates: true, ..Parts::default() };
        lay(&mut tree, &base, &unpacked, parts).unwrap();
        assert_eq!(tree.text("/etc/host.conf").as_deref(), Some("mine"));
        assert_eq!(tree.text("/etc/debian_version").as_deref(), Some("12"));
        assert_eq!(tree.text(CERTIFICATES).as_deref(), Some("A\nB\n"));
    }
}
