// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The commands that change files: mkdir(1), install(1), cp(1), mv(1), ln(1), rm(1), touch(1), chown(1), chmod(1).

use super::{accounts, commands::options, shell::Shell};
use crate::tree::{Kind, Meta, Tree};
use std::path::{Path, PathBuf};

/// How cp(1) copies.
#[derive(Clone, Copy, Debug)]
pub(super) struct Copy {
    pub recursive: bool,
    /// Owner, mode and time stay.
    pub keep: bool,
}

pub(super) fn run(shell: &mut Shell, name: &str, arguments: &[&str]) -> Option<()> {
    match name {
        "mkdir" => mkdir(shell, arguments),
        "rmdir" | "rm" => remove(shell, name == "rm", arguments),
        "cp" | "mv" => copy_all(shell, name == "mv", arguments),
        "ln" => link(shell, arguments),
        "touch" => {
            let (_, operands) = options(arguments, &["d", "date", "r", "reference", "t"]);
            for path in operands {
                let path = shell.path(path);
                if shell.tree.walk(&path, true).is_none() {
                    shell.tree.put_bytes(&path, *b"", Meta::FILE).ok()?;
                }
            }
            Some(())
        }
        "chown" | "chgrp" => {
            let (options, operands) = options(arguments, &["from", "reference"]);
            let (owner, paths) = operands.split_first()?;
            let text = if name == "chgrp" { format!(":{owner}") } else { (*owner).to_string() };
            let owner = Owner::parse(shell.tree, &text)?;
            let deep = options.iter().any(|(o, _)| matches!(*o, "R" | "recursive"));
            let no_follow = options.iter().any(|(o, _)| matches!(*o, "h" | "no-dereference"));
            for path in paths {
                let path = shell.path(path);
                change(shell.tree, &path, deep, !no_follow, &|meta, _| owner.apply(meta))?;
            }
            Some(())
        }
        "chmod" => {
            // `-x` and others look like options and are modes.
            let deep = arguments.iter().any(|a| matches!(*a, "-R" | "--recursive"));
            let mut operands =
                arguments.iter().filter(|a| !["-R", "--recursive", "-f", "-v", "-c", "--"].contains(a));
            let mode = operands.next()?;
            for path in operands {
                let path = shell.path(path);
                change(shell.tree, &path, deep, true, &|meta, directory| {
                    meta.mode = mode_of(mode, meta.mode, directory).unwrap_or(meta.mode);
                })?;
            }
            Some(())
        }
        "install" => install(shell, arguments),
        "mktemp" => {
            shell.memory.temporaries += 1;
            let path = PathBuf::from(format!("/tmp/tmp.{}", shell.memory.temporaries));
            match arguments.iter().any(|a| matches!(*a, "-d" | "--directory")) {
                true => {
                    shell.tree.put_directory(&path, Meta { mode: 0o700, ..Meta::DIRECTORY }, true).ok()?
                }
                false => shell.tree.put_bytes(&path, *b"", Meta { mode: 0o600, ..Meta::FILE }).ok()?,
            }
            super::commands::print(shell, &path.to_string_lossy());
            Some(())
        }
        _ => None,
    }
}

/// `USER`, `USER:GROUP`, `USER:`, `:GROUP`, by names or numbers.
pub(super) struct Owner {
    uid: Option<u32>,
    gid: Option<u32>,
}

impl Owner {
    pub(super) fn parse(tree: &Tree, text: &str) -> Option<Owner> {
        // The old form with a point is taken where there is no colon.
        let split = text.split_once(':').or_else(|| text.split_once('.'));
        let (user, group) = split.map_or((text, None), |(user, group)| (user, Some(group)));
        let uid = if user.is_empty() { None } else { Some(accounts::uid(tree, user)?) };
        let gid = match group {
            None => None,
            Some("") => accounts::login_group(tree, user),
            Some(group) => Some(accounts::gid(tree, group)?),
        };
        Some(Owner { uid, gid })
    }

    pub(super) fn apply(&self, meta: &mut Meta) {
        meta.uid = self.uid.unwrap_or(meta.uid);
        meta.gid = self.gid.unwrap_or(meta.gid);
    }
}

/// Changes a path, and with `deep` all below it.
pub(super) fn change(
    tree: &mut Tree,
    path: &Path,
    deep: bool,
    follow: bool,
    how: &dyn Fn(&mut Meta, bool),
) -> Option<()> {
    let below = if deep { tree.list_below(path) } else { Vec::new() };
    let directory = tree.is_directory(path);
    let found = tree.change(path, follow, &|meta| how(meta, directory));
    for (path, id) in below {
        let directory = matches!(tree.node(id).kind, Kind::Directory(_));
        tree.change(&path, false, &|meta| how(meta, directory));
    }
    found.then_some(())
}

/// A mode of chmod(1), octal or symbolic, from the one that was.
pub(super) fn mode_of(text: &str, before: u32, directory: bool) -> Option<u32> {
    if text.starts_with(|c: char| c.is_ascii_digit()) {
        return u32::from_str_radix(text, 8).ok().filter(|m| *m <= 0o7777);
    }
    let mut mode = before;
    for clause in text.split(',') {
        let at = clause.find(['+', '-', '='])?;
        let (who, mut rest) = clause.split_at(at);
        let all = who.is_empty() || who.contains('a');
        let mut mask = 0;
        for (letter, bits) in [('u', 0o4700), ('g', 0o2070), ('o', 0o1007)] {
            if all || who.contains(letter) {
                mask |= bits;
            }
        }
        while let Some(sign) = rest.chars().next() {
            let body = &rest[1..];
            let end = body.find(['+', '-', '=']).unwrap_or(body.len());
            let mut bits = 0;
            for letter in body[..end].chars() {
                bits |= match letter {
                    'r' => 0o444,
                    'w' => 0o222,
                    'x' => 0o111,
                    'X' if directory || mode & 0o111 != 0 => 0o111,
                    'X' => 0,
                    's' => 0o6000,
                    't' => 0o1000,
                    'u' => (mode >> 6 & 7) * 0o111,
                    'g' => (mode >> 3 & 7) * 0o111,
                    'o' => (mode & 7) * 0o111,
                    _ => return None,
                };
            }
            match sign {
                '+' => mode |= bits & mask,
                '-' => mode &= !(bits & mask),
                '=' => mode = mode & !mask | bits & mask,
                _ => return None,
            }
            rest = &body[end..];
        }
    }
    Some(mode)
}

fn mkdir(shell: &mut Shell, arguments: &[&str]) -> Option<()> {
    let (options, operands) = options(arguments, &["m", "mode"]);
    let wanted = options.iter().rev().find(|(o, _)| matches!(*o, "m" | "mode"));
    let mode = wanted.and_then(|(_, m)| mode_of(m, 0o777, true)).unwrap_or(0o755);
    for path in operands {
        let path = shell.path(path);
        if shell.tree.walk(&path, true).is_none() {
            shell.tree.put_directory(&path, Meta { mode, ..Meta::DIRECTORY }, true).ok()?;
        }
    }
    Some(())
}

fn remove(shell: &mut Shell, files: bool, arguments: &[&str]) -> Option<()> {
    let (options, operands) = options(arguments, &[]);
    let deep = options.iter().any(|(o, _)| matches!(*o, "r" | "R" | "recursive"));
    for path in operands {
        let path = shell.path(path);
        let Some((real, id)) = shell.tree.walk(&path, false) else { continue };
        let directory = matches!(shell.tree.node(id).kind, Kind::Directory(_));
        let empty = shell.tree.names_in(&real).is_empty();
        // Nothing a script says takes away a top directory.
        if real.components().count() > 2 && (deep || directory != files && (!directory || empty)) {
            shell.tree.remove(&real);
        }
    }
    Some(())
}

/// Copies a file or a directory to a path that is not a directory's contents.
pub(super) fn copy(tree: &mut Tree, from: &Path, to: &Path, how: Copy) -> Option<()> {
    let (real, id) = tree.walk(from, !how.keep)?;
    if to.starts_with(&real) {
        return None;
    }
    let node = tree.node(id).clone();
    let meta = if how.keep { node.meta } else { Meta { uid: 0, gid: 0, ..node.meta } };
    match node.kind {
        Kind::Directory(_) if !how.recursive => None,
        Kind::Directory(_) => {
            tree.put_directory(to, meta, true).ok()?;
            for (path, id) in tree.list_below(&real) {
                let node = tree.node(id).clone();
                let to = to.join(path.strip_prefix(&real).ok()?);
                let meta = if how.keep { node.meta } else { Meta { uid: 0, gid: 0, ..node.meta } };
                match node.kind {
                    Kind::Directory(_) => tree.put_directory(&to, meta, true).ok()?,
                    kind => tree.put(&to, kind, meta).ok()?,
                }
            }
            Some(())
        }
        kind => tree.put(to, kind, meta).ok(),
    }
}

fn copy_all(shell: &mut Shell, is_move: bool, arguments: &[&str]) -> Option<()> {
    let (options, mut operands) = options(arguments, &["t", "target-directory", "S", "suffix"]);
    let has = |names: &[&str]| options.iter().any(|(o, _)| names.contains(o));
    let archive = has(&["a", "archive"]);
    let how = Copy {
        recursive: is_move || archive || has(&["r", "R", "recursive"]),
        keep: is_move || archive || has(&["p", "preserve"]),
    };
    let target = match options.iter().find(|(o, _)| matches!(*o, "t" | "target-directory")) {
        Some((_, target)) => *target,
        None => operands.pop()?,
    };
    let keep_there = has(&["n", "no-clobber"]);
    let to = shell.path(target);
    for source in operands {
        let from = shell.path(source);
        let inside = shell.tree.is_directory(&to) && !has(&["T", "no-target-directory"]);
        let to = if inside { to.join(from.file_name()?) } else { to.clone() };
        if keep_there && shell.tree.walk(&to, true).is_some() {
            continue;
        }
        copy(shell.tree, &from, &to, how)?;
        if is_move && from.components().count() > 2 {
            shell.tree.remove(&from);
        }
    }
    Some(())
}

fn link(shell: &mut Shell, arguments: &[&str]) -> Option<()> {
    let (options, mut operands) = options(arguments, &["t", "target-directory", "S", "suffix"]);
    let has = |names: &[&str]| options.iter().any(|(o, _)| names.contains(o));
    let symbolic = has(&["s", "symbolic"]);
    let last = if operands.len() > 1 { operands.pop()? } else { "." };
    let place = shell.path(last);
    for target in operands {
        // With -n a link to a directory is replaced, not entered.
        let real = shell.tree.walk(&place, false) == shell.tree.walk(&place, true);
        let entered = real || !has(&["n", "no-dereference", "T", "no-target-directory"]);
        let inside = entered && shell.tree.is_directory(&place);
        let path = if inside { place.join(Path::new(target).file_name()?) } else { place.clone() };
        if shell.tree.walk(&path, false).is_some() && !has(&["f", "force"]) {
            return None;
        }
        if shell.tree.is_directory(&path) && shell.tree.walk(&path, false) == shell.tree.walk(&path, true) {
            return None;
        }
        match symbolic {
            true => shell.tree.put_link(&path, target).ok()?,
            false => {
                let target = shell.path(target);
                shell.tree.put_hard_link(&path, &target).ok()?;
            }
        }
    }
    Some(())
}

fn install(shell: &mut Shell, arguments: &[&str]) -> Option<()> {
    let valued = ["m", "mode", "o", "owner", "g", "group", "t", "target-directory", "S", "suffix"];
    let (options, mut operands) = options(arguments, &valued);
    let value = |names: &[&str]| options.iter().rev().find(|(o, _)| names.contains(o)).map(|(_, v)| *v);
    let mode = value(&["m", "mode"]).and_then(|m| mode_of(m, 0, true)).unwrap_or(0o755);
    let uid = value(&["o", "owner"]).map_or(Some(0), |user| accounts::uid(shell.tree, user))?;
    let gid = value(&["g", "group"]).map_or(Some(0), |group| accounts::gid(shell.tree, group))?;
    let meta = Meta { mode, uid, gid, ..Meta::DIRECTORY };
    if value(&["d", "directory"]).is_some() {
        for path in operands {
            let path = shell.path(path);
            shell.tree.put_directory(&path, meta, true).ok()?;
            // A link to a directory stays, and what it leads to gets the rights.
            shell.tree.change(&path, true, &|m| *m = meta);
        }
        return Some(());
    }
    let target = match value(&["t", "target-directory"]) {
        Some(target) => target,
        None => operands.pop()?,
    };
    let to = shell.path(target);
    for source in operands {
        let from = shell.path(source);
        let to = if shell.tree.is_directory(&to) { to.join(from.file_name()?) } else { to.clone() };
        // `install /dev/null FILE` makes an empty one.
        match source {
            "/dev/null" => shell.tree.put_bytes(&to, *b"", meta).ok()?,
            _ => {
                copy(shell.tree, &from, &to, Copy { recursive: false, keep: false })?;
                shell.tree.change(&to, true, &|m| *m = meta);
            }
        }
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_are_octal_or_symbolic() {
        for (text, before, directory, expected) in [
            ("0750", 0o644, false, Some(0o750)),
            ("u+s", 0o755, false, Some(0o4755)),
            ("g+w,o-rwx", 0o755, false, Some(0o770)),
            ("go=", 0o755, false, Some(0o700)),
            ("a+rX", 0o600, false, Some(0o644)),
            ("a+rX", 0o700, true, Some(0o755)),
            ("u=rwx,g=rx,o=", 0, false, Some(0o750)),
            ("+t", 0o755, true, Some(0o1755)),
            ("g=u", 0o640, false, Some(0o660)),
            ("nonsense", 0o755, false, None),
            ("99999", 0o755, false, None),
        ] {
            assert_eq!(mode_of(text, before, directory), expected, "{text}");
        }
    }
}
