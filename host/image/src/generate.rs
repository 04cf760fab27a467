// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What programs of an image make of it: indexes and caches that a package's installation leaves behind. They run in a machine
//! of the image itself, without a network, and what they wrote becomes a part of it.

use crate::{
    archive::{self, Rules},
    debian,
    error::Result,
    facts::PATH,
    services::quoted,
    tree::{Kind, ROOT, Tree},
};
use std::{
    fmt::Write as _,
    path::{Path, PathBuf},
};

/// What runs a script of /bin/sh in a machine of the archive, as root; answers what it printed, or why it could not.
pub type Runner = fn(archive: &Path, script: &str) -> std::result::Result<Vec<u8>, String>;

/// Bytes of what a script prints.
pub const MAX_BYTES: u64 = 512 << 20;
/// Seconds that one program may take.
const PATIENCE: u32 = 120;
/// Where programs are noted that failed.
const FAILED: &str = "/.unilith/failed";
/// What a file with a private key has in its beginning, and how much that is.
const KEY: &[u8] = b"PRIVATE KEY-----";
const MAX_KEY: usize = 64 << 10;
/// What is the machine's, not the image's.
const NOT_KEPT: [&str; 9] =
    ["/dev", "/etc/hostname", "/etc/hosts", "/etc/resolv.conf", "/overlay", "/proc", "/run", "/sys", "/tmp"];

/// Runs the programs, one after the other, and prints an archive (tar) of what has changed since. All files of it get
/// `time`: an image is the same from one day to the next.
pub(crate) fn script(programs: &[Vec<String>], time: u32) -> String {
    let mut text = format!(
        "export PATH={PATH} HOME=/root LC_ALL=C.UTF-8 DEBIAN_FRONTEND=noninteractive\n\
         mkdir -p /.unilith /run /tmp\n: >{FAILED}\n: >/run/begin\n\
         run() {{ timeout {PATIENCE} \"$@\" >/dev/null 2>&1 </dev/null || echo \"$1 (exit code $?)\" >>{FAILED}; }}\n"
    );
    for program in programs {
        let words: Vec<String> = program.iter().map(|word| quoted(word)).collect();
        // Writing to a String cannot fail.
        let _ = writeln!(text, "run {}", words.join(" "));
    }
    let _ = write!(
        text,
        "exec tar -C / -cf - --one-file-system --numeric-owner --sort=name --newer=/run/begin --mtime=@{time}"
    );
    for path in NOT_KEPT {
        let _ = write!(text, " --exclude=.{path}");
    }
    text + " . 2>/dev/null"
}

/// The time of the newest file.
pub(crate) fn newest(tree: &Tree) -> u32 {
    tree.list().iter().map(|(_, id)| tree.node(*id).meta.mtime).max().unwrap_or(tree.node(ROOT).meta.mtime)
}

/// Lays what a script printed over the tree; the programs that failed.
pub(crate) fn take(tree: &mut Tree, printed: &[u8]) -> Result<Vec<String>> {
    let mut made = Tree::new();
    let mut budget = MAX_BYTES;
    // Links that a program made lead somewhere within the machine, and within the tree.
    let is_left = |path: &Path| NOT_KEPT.iter().any(|p| path.starts_with(p));
    archive::unpack(
        printed,
        "what programs of the image made",
        Rules::Package,
        &is_left,
        &mut budget,
        &mut made,
    )?;
    let failed = made.text(FAILED).unwrap_or_default();
    made.remove(Path::new("/.unilith"));
    // An archive of what is new names all directories; those that are there stay as they are.
    let known: Vec<_> = made
        .list()
        .into_iter()
        .filter(|(path, id)| matches!(made.node(*id).kind, Kind::Directory(_)) && tree.is_directory(path))
        .map(|(path, _)| path)
        .collect();
    for path in known {
        let meta = tree.walk(&path, true).map(|(_, id)| tree.node(id).meta);
        if let Some(meta) = meta {
            made.change(&path, true, &|m| *m = meta);
        }
    }
    let mut failed: Vec<String> = failed.lines().map(str::to_string).collect();
    for path in private_keys(&made)? {
        made.remove(&path);
        failed.push(format!("{} (a private key is not for an image: it is left out)", path.display()));
    }
    debian::overlay(tree, &made)?;
    Ok(failed)
}

/// Files that hold a private key (RFC 7468 10, 11): everybody who has the image would have it.
fn private_keys(made: &Tree) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for (path, id) in made.list() {
        let Kind::File(content) = &made.node(id).kind else { continue };
        let bytes = content.read()?;
        let beginning = &bytes[..bytes.len().min(MAX_KEY)];
        if beginning.windows(KEY.len()).any(|w| w == KEY) {
            found.push(path);
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::Meta;

    #[test]
    fn what_programs_made_is_laid_over_the_image_and_directories_stay_as_they_are() {
        let mut tree = Tree::new();
        let private = Meta { mode: 0o700, uid: 5, gid: 6, mtime: 77, ..Meta::DIRECTORY };
        tree.put_directory(Path::new("/var/cache/x"), private, true).unwrap();
        tree.put_bytes(Path::new("/var/cache/x/index"), *b"old", Meta::FILE).unwrap();
        let mut builder = tar::Builder::new(Vec::new());
        let mut add = |path: &str, kind: tar::EntryType, bytes: &[u8]| {
            let mut header = tar::Header::new_gnu();
            header.set_entry_type(kind);
            header.set_size(bytes.len() as u64);
            header.set_mode(0o755);
            header.set_mtime(99);
            builder.append_data(&mut header, path, bytes).unwrap();
        };
        add("./var/cache/x/", tar::EntryType::Directory, b"");
        add("./var/cache/x/index", tar::EntryType::Regular, b"new");
        add("./var/cache/y/", tar::EntryType::Directory, b"");
        add("./etc/tls.key", tar::EntryType::Regular, b"-----BEGIN PRIVATE KEY-----\n");
        add("./run/begin", tar::EntryType::Regular, b"");
        add("./.unilith/failed", tar::EntryType::Regular, b"/usr/bin/dot (exit code 1)\n");
        let printed = builder.into_inner().unwrap();
        let told = take(&mut tree, &printed).unwrap();
        assert!(told[0] == "/usr/bin/dot (exit code 1)" && told[1].starts_with("/etc/tls.key "), "{told:?}");
        assert!(tree.walk(Path::new("/etc/tls.key"), true).is_none());
        assert_eq!(tree.text("/var/cache/x/index").as_deref(), Some("new"));
        let meta = |path: &str| tree.node(tree.walk(Path::new(path), true).unwrap().1).meta;
        assert_eq!(meta("/var/cache/x"), private);
        assert_eq!(meta("/var/cache/y").mtime, 99);
        assert!(tree.walk(Path::new("/run/begin"), true).is_none());
        assert!(tree.walk(Path::new("/.unilith"), true).is_none());
        // No archive, and half of one.
        assert!(take(&mut tree, &printed[..700]).is_err());
        assert!(take(&mut tree, b"no archive").is_err());
    }

    #[test]
    fn scripts_quote_the_words_of_programs() {
        let script = script(&[vec!["/usr/bin/x".into(), "it's $HOME".into()]], 5);
        assert!(
            script.contains("\nrun '/usr/bin/x' 'it'\\''s $HOME'\n")
                || script.contains("\nrun /usr/bin/x 'it'\\''s $HOME'\n"),
            "{script}"
        );
        assert!(script.contains("--mtime=@5"));
    }
}
