// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What systemd would make of a package's declarations before its service starts: users of sysusers.d(5), files and
//! directories of tmpfiles.d(5).

use super::{
    accounts::{self, Order, User},
    files::{self, Copy, Owner},
};
use crate::tree::{Meta, Tree};
use std::path::Path;

/// Words of a line as both formats have them: quotes keep blanks.
pub(crate) fn words(line: &str) -> Vec<String> {
    let mut out = Vec::new();
    let mut current: Option<String> = None;
    let mut quote = None;
    let mut signs = line.chars();
    while let Some(c) = signs.next() {
        match (c, quote) {
            ('\\', q) if q != Some('\'') => current.get_or_insert_default().extend(signs.next()),
            (c, Some(q)) if c == q => quote = None,
            (c, Some(_)) => current.get_or_insert_default().push(c),
            ('"' | '\'', None) => {
                quote = Some(c);
                current.get_or_insert_default();
            }
            (c, None) if c.is_whitespace() => out.extend(current.take()),
            (c, None) => current.get_or_insert_default().push(c),
        }
    }
    out.extend(current);
    out
}

/// The lines of all files of a directory that end in `.conf`, in the order of the files' names.
fn lines(tree: &Tree, folder: &str) -> Vec<Vec<String>> {
    let names = tree.names_in(Path::new(folder));
    let texts =
        names.iter().filter(|n| n.ends_with(".conf")).filter_map(|n| tree.text(&format!("{folder}/{n}")));
    let all: Vec<String> = texts.collect();
    let lines = all.iter().flat_map(|t| t.lines()).map(str::trim);
    lines.filter(|l| !l.is_empty() && !l.starts_with('#')).map(words).collect()
}

/// Makes the users and groups of /usr/lib/sysusers.d.
pub(super) fn users(tree: &mut Tree) {
    for line in lines(tree, "/usr/lib/sysusers.d") {
        let at = |n: usize| line.get(n).map_or("-", String::as_str);
        let given = |n: usize, default: &'static str| match at(n) {
            "-" => default.to_string(),
            text => text.to_string(),
        };
        let name = at(1);
        // A line that cannot be followed is as one that systemd refuses: the others count.
        let _ = match at(0).trim_end_matches('!') {
            "g" => accounts::add_group(tree, name, at(2).parse().ok(), Order::Descending).map(|_| ()),
            "u" => {
                let (uid, group) = at(2).split_once(':').unwrap_or((at(2), "-"));
                let uid = uid.parse().ok();
                let gid = match group {
                    "-" => accounts::add_group(tree, name, uid, Order::Descending),
                    group => accounts::gid(tree, group),
                };
                gid.and_then(|gid| {
                    let (comment, home, shell) = (given(3, ""), given(4, "/"), given(5, "/usr/sbin/nologin"));
                    let user = User { name, uid, gid, comment: &comment, home: &home, shell: &shell };
                    accounts::add_user(tree, &user, Order::Descending)
                })
            }
            "m" => accounts::join(tree, name, at(2)),
            _ => None,
        };
    }
}

/// Makes what /usr/lib/tmpfiles.d says.
pub(super) fn temporary_files(tree: &mut Tree) {
    for line in lines(tree, "/usr/lib/tmpfiles.d") {
        // As above: a line for what an image cannot have (a device, a path with a specifier) is passed over.
        let _ = temporary_file(tree, &line);
    }
}

fn temporary_file(tree: &mut Tree, line: &[String]) -> Option<()> {
    let at = |n: usize| line.get(n).map(String::as_str).filter(|t| *t != "-");
    let kind = at(0)?.trim_end_matches(['!', '+', '-', '=', '~', '^', '$']);
    let path = Path::new(at(1)?);
    let text = at(1)?;
    if !text.starts_with('/')
        || text.contains(['%', '*'])
        || ["/dev", "/proc", "/sys"].iter().any(|d| path.starts_with(d))
    {
        return None;
    }
    let there = tree.walk(path, true).is_some();
    let mode = |default: u32, directory: bool| match at(2) {
        Some(text) => files::mode_of(text.trim_start_matches(['~', ':']), default, directory),
        None => Some(default),
    };
    let owner = format!("{}:{}", at(3).unwrap_or("root"), at(4).unwrap_or("root"));
    let owner = Owner::parse(tree, &owner)?;
    let dress = |tree: &mut Tree, mode: u32| {
        tree.change(path, true, &|meta| {
            meta.mode = mode;
            owner.apply(meta);
        });
    };
    match kind {
        "d" | "D" | "v" | "q" | "Q" => {
            let mode = mode(0o755, true)?;
            if !there {
                tree.put_directory(path, Meta::DIRECTORY, true).ok()?;
            }
            dress(tree, mode);
        }
        "e" | "z" if there => {
            let (_, id) = tree.walk(path, true)?;
            let mode = mode(tree.node(id).meta.mode, tree.is_directory(path))?;
            dress(tree, mode);
        }
        "Z" if there => {
            let mode = at(2);
            files::change(tree, path, true, true, &|meta, directory| {
                if let Some(text) = mode {
                    meta.mode = files::mode_of(text.trim_start_matches(['~', ':']), meta.mode, directory)
                        .unwrap_or(meta.mode);
                }
                owner.apply(meta);
            })?;
        }
        "f" | "F" if !there || kind == "F" => {
            let mode = mode(0o644, false)?;
            let content = line.get(6..).unwrap_or_default().join(" ");
            tree.put_bytes(path, content.into_bytes(), Meta::FILE).ok()?;
            dress(tree, mode);
        }
        "L" if tree.walk(path, false).is_none() => tree.put_link(path, at(6)?).ok()?,
        "C" if !there => {
            files::copy(tree, Path::new(at(6)?), path, Copy { recursive: true, keep: true })?;
        }
        _ => {}
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree() -> Tree {
        let mut tree = Tree::new();
        let put = |tree: &mut Tree, path: &str, text: &str| {
            tree.put_bytes(Path::new(path), text.as_bytes().to_vec(), Meta::FILE).unwrap();
        };
        put(&mut tree, "/etc/passwd", "root:x:0:0:root:/root:/bin/sh\n");
        put(&mut tree, "/etc/group", "root:x:0:\nadm:x:4:\n");
        put(
            &mut tree,
            "/usr/lib/sysusers.d/a.conf",
            "u tomcat - \"Apache Tomcat\" /var/lib/tomcat\ng extra 77\nm tomcat extra\n",
        );
        put(
            &mut tree,
            "/usr/lib/tmpfiles.d/a.conf",
            "# x\nd /run/x 0750 tomcat adm -\nf /run/x/f 0600 tomcat - - hello\nL /var/x - - - - /run/x\nd /run/%i 0755\nd /dev/y\nz /etc/group 0600",
        );
        tree
    }

    #[test]
    fn users_and_directories_are_made_as_declared() {
        let mut tree = tree();
        users(&mut tree);
        temporary_files(&mut tree);
        assert!(
            tree.text("/etc/passwd").unwrap().contains("tomcat:x:999:999:Apache Tomcat:/var/lib/tomcat:")
        );
        assert!(tree.text("/etc/group").unwrap().contains("extra:x:77:tomcat"));
        let (_, id) = tree.walk(Path::new("/run/x"), true).unwrap();
        assert_eq!(
            (tree.node(id).meta.mode, tree.node(id).meta.uid, tree.node(id).meta.gid),
            (0o750, 999, 4)
        );
        assert_eq!(tree.text("/var/x/f").as_deref(), Some("hello"));
        assert!(tree.walk(Path::new("/dev/y"), true).is_none());
        assert_eq!(words("a \"b c\" 'd'\\ e"), ["a", "b c", "d e"]);
    }
}
