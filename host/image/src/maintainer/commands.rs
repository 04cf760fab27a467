// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the commands of maintainer scripts do to an image: those that make users, directories, links, rights and
//! configuration, and those whose answers scripts depend on.

use super::{
    accounts,
    files::{self, Copy},
    pam,
    shell::{Shell, Status},
    systemd, test,
};
use crate::tree::{Meta, Tree};
use std::path::{Path, PathBuf};

/// Commands of a running system: there is none while an image is made, and scripts go on without.
const OF_A_RUNNING_SYSTEM: [&str; 25] = [
    "invoke-rc.d",
    "update-rc.d",
    "deb-systemd-helper",
    "deb-systemd-invoke",
    "systemctl",
    "systemd-tmpfiles",
    "service",
    "ldconfig",
    "dpkg-trigger",
    "dpkg-maintscript-helper",
    "dpkg-divert",
    "ucfr",
    "mountpoint",
    "umask",
    "trap",
    "ulimit",
    "sync",
    "sleep",
    "db_set",
    "db_input",
    "db_go",
    "db_stop",
    "db_title",
    "db_version",
    "db_capb",
];

/// Commands that are done here and that `command -v` finds although the image may not have them.
const DONE_HERE: [&str; 12] = [
    "adduser",
    "addgroup",
    "useradd",
    "groupadd",
    "usermod",
    "update-alternatives",
    "ucf",
    "dpkg",
    "dpkg-statoverride",
    "dpkg-divert",
    "chown",
    "install",
];

/// Bytes of a file that scripts read; configuration is shorter.
const MAX_READ: usize = 1 << 20;

/// The bytes of a file of the tree; none where there is no such file, or a large one.
pub(super) fn read(tree: &Tree, path: &Path) -> Vec<u8> {
    let bytes = tree.file(path).and_then(|(_, content)| content.read().ok());
    bytes.filter(|b| b.len() <= MAX_READ).map_or_else(Vec::new, |b| b.to_vec())
}

/// Does a command; `None`: it is not known.
pub(super) fn run(shell: &mut Shell, name: &str, arguments: &[String]) -> Option<Status> {
    let plain: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let short = name.rsplit('/').next().unwrap_or(name);
    if OF_A_RUNNING_SYSTEM.contains(&short) {
        return Some(0);
    }
    let done = |ok: bool| Some(u8::from(!ok));
    match short {
        ":" | "true" => Some(0),
        "false" => Some(1),
        "test" => done(test::test(shell, &plain)),
        "[" => done(test::test(shell, plain.strip_suffix(&["]"]).unwrap_or(&plain))),
        "cd" => {
            shell.directory = shell.path(plain.first().copied().unwrap_or("/"));
            Some(0)
        }
        "echo" | "printf" | "cat" | "grep" | "egrep" | "fgrep" | "cut" | "head" | "tail" | "dirname"
        | "basename" | "expr" | "pwd" | "tr" | "read" | "wc" | "sort" => {
            super::text::run(shell, short, &plain)
        }
        "adduser" => done(adduser(shell.tree, &plain).is_some()),
        "addgroup" => done(addgroup(shell.tree, &plain).is_some()),
        "useradd" => done(useradd(shell.tree, &plain).is_some()),
        "groupadd" => done(groupadd(shell.tree, &plain).is_some()),
        "usermod" | "gpasswd" => done(usermod(shell.tree, &plain).is_some()),
        "systemd-sysusers" => {
            systemd::users(shell.tree);
            Some(0)
        }
        "mkdir" | "rmdir" | "rm" | "cp" | "mv" | "ln" | "touch" | "chown" | "chgrp" | "chmod" | "install"
        | "mktemp" => done(files::run(shell, short, &plain).is_some()),
        "pam-auth-update" => done(pam::update(shell.tree).is_some()),
        "ucf" => done(ucf(shell, &plain).is_some()),
        "update-alternatives" => done(alternatives(shell, &plain).is_some()),
        "dpkg-statoverride" => done(override_rights(shell, &plain).is_some()),
        "getent" => {
            let [database, names @ ..] = &plain[..] else { return Some(1) };
            let mut all = true;
            for name in names {
                match accounts::line(shell.tree, &format!("/etc/{database}"), name) {
                    Some(line) => print(shell, &line),
                    None => all = false,
                }
            }
            Some(if all { 0 } else { 2 })
        }
        "id" => {
            let user = plain.iter().find(|a| !a.starts_with('-')).copied().unwrap_or("root");
            let uid = accounts::uid(shell.tree, user);
            let known = uid.filter(|n| accounts::line(shell.tree, "/etc/passwd", &n.to_string()).is_some());
            let Some(uid) = known else { return Some(1) };
            let gid = accounts::login_group(shell.tree, user).unwrap_or(0);
            let text = match plain.first().copied() {
                Some("-u") => uid.to_string(),
                Some("-g") => gid.to_string(),
                Some("-un" | "-nu") => accounts::name_of(shell.tree, "/etc/passwd", uid),
                Some("-gn" | "-ng") => accounts::name_of(shell.tree, "/etc/group", gid),
                _ => format!("uid={uid} gid={gid}"),
            };
            print(shell, &text);
            Some(0)
        }
        "whoami" => {
            print(shell, "root");
            Some(0)
        }
        "which" | "command" | "type" => {
            let wanted = plain.iter().rfind(|a| !a.starts_with('-')).copied().unwrap_or_default();
            let found = find(shell, wanted);
            if let Some(path) = &found {
                print(shell, path);
            }
            done(found.is_some())
        }
        "stat" => stat(shell, &plain),
        "readlink" | "realpath" => {
            let path = shell.path(plain.last()?);
            let follow =
                short == "realpath" || plain.iter().any(|a| a.starts_with("-f") || a.starts_with("-e"));
            let text = match (follow, shell.tree.walk(&path, follow)) {
                (true, Some((real, _))) => real,
                (true, None) => path,
                (false, Some((_, id))) => match &shell.tree.node(id).kind {
                    crate::tree::Kind::Link(target) => target.clone(),
                    _ => return Some(1),
                },
                (false, None) => return Some(1),
            };
            print(shell, &text.to_string_lossy());
            Some(0)
        }
        "uname" => {
            print(shell, if plain.first() == Some(&"-m") { "x86_64" } else { "Linux" });
            Some(0)
        }
        "hostname" => {
            print(shell, "localhost");
            Some(0)
        }
        "dpkg" => dpkg(shell, &plain),
        "dpkg-architecture" => {
            let wanted = plain.iter().rfind(|a| a.contains("MULTIARCH"));
            print(shell, if wanted.is_some() { "x86_64-linux-gnu" } else { "amd64" });
            Some(0)
        }
        "db_get" => {
            let answer = plain.first().and_then(|q| shell.answers.get(*q)).cloned();
            let known = answer.is_some();
            shell.variables.insert("RET".into(), answer.unwrap_or_default());
            Some(if known { 0 } else { 10 })
        }
        other if other.starts_with("db_") => Some(0),
        _ => None,
    }
}

pub(super) fn print(shell: &mut Shell, line: &str) {
    shell.output.push_str(line);
    shell.output.push('\n');
}

/// Where a command is: in the image, or here.
pub(super) fn find(shell: &Shell, name: &str) -> Option<String> {
    if shell.is_function(name) {
        return Some(name.into());
    }
    if name.starts_with('/') {
        return shell.is_program(Path::new(name)).then(|| name.into());
    }
    let folders = ["/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"];
    let found = folders.iter().map(|f| format!("{f}/{name}")).find(|p| shell.is_program(Path::new(p)));
    found.or_else(|| DONE_HERE.contains(&name).then(|| format!("/usr/sbin/{name}")))
}

/// Options and operands of a command whose options with an argument are `valued`; their names without dashes.
pub(super) fn options<'a>(arguments: &[&'a str], valued: &[&str]) -> (Vec<(&'a str, &'a str)>, Vec<&'a str>) {
    let (mut options, mut operands) = (Vec::new(), Vec::new());
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        if *argument == "--" {
            operands.extend(rest.by_ref());
        } else if let Some(long) = argument.strip_prefix("--") {
            match long.split_once('=') {
                Some(pair) => options.push(pair),
                None if valued.contains(&long) => {
                    options.push((long, rest.next().copied().unwrap_or_default()))
                }
                None => options.push((long, "")),
            }
        } else if let Some(letters) =
            argument.strip_prefix('-').filter(|l| l.starts_with(|c: char| c.is_alphabetic()))
        {
            for (at, letter) in letters.char_indices() {
                let name = &letters[at..at + letter.len_utf8()];
                let behind = &letters[at + letter.len_utf8()..];
                if valued.contains(&name) {
                    let value =
                        if behind.is_empty() { rest.next().copied().unwrap_or_default() } else { behind };
                    options.push((name, value));
                    break;
                }
                options.push((name, ""));
            }
        } else {
            operands.push(*argument);
        }
    }
    (options, operands)
}

fn value<'a>(options: &[(&str, &'a str)], names: &[&str]) -> Option<&'a str> {
    options.iter().rev().find(|(name, _)| names.contains(name)).map(|(_, value)| *value)
}

const NO_LOGIN: &str = "/usr/sbin/nologin";

/// adduser(8) of Debian.
fn adduser(tree: &mut Tree, arguments: &[&str]) -> Option<()> {
    let valued = [
        "home",
        "shell",
        "gecos",
        "comment",
        "uid",
        "gid",
        "ingroup",
        "firstuid",
        "lastuid",
        "conf",
        "add-extra-groups",
    ];
    let (options, operands) = options(arguments, &valued);
    let has = |name: &str| value(&options, &[name]).is_some();
    if let [user, group] = operands[..] {
        return accounts::join(tree, user, group);
    }
    let name = *operands.first()?;
    if has("group") && !has("system") {
        return accounts::add_group(tree, name, None, accounts::Order::Ascending).map(|_| ());
    }
    let gid = match value(&options, &["ingroup", "gid"]) {
        Some(group) => accounts::gid(tree, group)?,
        None if has("group") || !has("system") => {
            accounts::add_group(tree, name, None, accounts::Order::Ascending)?
        }
        // Debian's adduser puts system users without a group of their own into nogroup.
        None => accounts::gid(tree, "nogroup")?,
    };
    let default_home = if has("system") { "/nonexistent".to_string() } else { format!("/home/{name}") };
    let home = value(&options, &["home"]).unwrap_or(&default_home);
    let shell = value(&options, &["shell"]).unwrap_or(if has("system") { NO_LOGIN } else { "/bin/bash" });
    let user = accounts::User {
        name,
        uid: value(&options, &["uid"]).and_then(|n| n.parse().ok()),
        gid,
        comment: value(&options, &["gecos", "comment"]).unwrap_or_default(),
        home,
        shell,
    };
    let new = accounts::line(tree, "/etc/passwd", name).is_none();
    accounts::add_user(tree, &user, accounts::Order::Ascending)?;
    if new && !has("no-create-home") && home != "/nonexistent" && tree.walk(Path::new(home), true).is_none() {
        let uid = accounts::uid(tree, name)?;
        tree.put_directory(Path::new(home), Meta { uid, gid, ..Meta::DIRECTORY }, true).ok()?;
    }
    Some(())
}

fn addgroup(tree: &mut Tree, arguments: &[&str]) -> Option<()> {
    let (options, operands) = options(arguments, &["gid", "conf", "firstgid", "lastgid"]);
    match operands[..] {
        [user, group] => accounts::join(tree, user, group),
        [name] => {
            let number = value(&options, &["gid"]).and_then(|n| n.parse().ok());
            accounts::add_group(tree, name, number, accounts::Order::Ascending).map(|_| ())
        }
        _ => None,
    }
}

/// useradd(8) of the shadow utilities.
fn useradd(tree: &mut Tree, arguments: &[&str]) -> Option<()> {
    let valued = [
        "d", "home-dir", "s", "shell", "g", "gid", "u", "uid", "c", "comment", "G", "groups", "K", "key",
        "b", "e", "f", "k", "p",
    ];
    let (options, operands) = options(arguments, &valued);
    let name = *operands.first()?;
    let gid = match value(&options, &["g", "gid"]) {
        Some(group) => accounts::gid(tree, group)?,
        None => accounts::add_group(tree, name, None, accounts::Order::Descending)?,
    };
    let default_home = format!("/home/{name}");
    let home = value(&options, &["d", "home-dir"]).unwrap_or(&default_home);
    let user = accounts::User {
        name,
        uid: value(&options, &["u", "uid"]).and_then(|n| n.parse().ok()),
        gid,
        comment: value(&options, &["c", "comment"]).unwrap_or_default(),
        home,
        shell: value(&options, &["s", "shell"]).unwrap_or("/bin/sh"),
    };
    accounts::add_user(tree, &user, accounts::Order::Descending)?;
    for group in value(&options, &["G", "groups"]).unwrap_or_default().split(',').filter(|g| !g.is_empty()) {
        accounts::join(tree, name, group)?;
    }
    if value(&options, &["m", "create-home"]).is_some() && tree.walk(Path::new(home), true).is_none() {
        let uid = accounts::uid(tree, name)?;
        tree.put_directory(Path::new(home), Meta { uid, gid, ..Meta::DIRECTORY }, true).ok()?;
    }
    Some(())
}

fn groupadd(tree: &mut Tree, arguments: &[&str]) -> Option<()> {
    let (options, operands) = options(arguments, &["g", "gid", "K", "key", "p"]);
    let number = value(&options, &["g", "gid"]).and_then(|n| n.parse().ok());
    accounts::add_group(tree, operands.first()?, number, accounts::Order::Descending).map(|_| ())
}

/// `usermod -a -G GROUPS USER` and `gpasswd -a USER GROUP`; what else they change is not kept in images.
fn usermod(tree: &mut Tree, arguments: &[&str]) -> Option<()> {
    let (options, operands) =
        options(arguments, &["G", "groups", "d", "home", "s", "shell", "c", "g", "u", "l"]);
    match (value(&options, &["G", "groups"]), &operands[..]) {
        (Some(groups), [user, ..]) => groups.split(',').try_for_each(|g| accounts::join(tree, user, g)),
        (None, [user, group]) => accounts::join(tree, user, group),
        _ => Some(()),
    }
}

/// ucf(1): configuration of /usr/share that is copied to /etc unless there is one.
fn ucf(shell: &mut Shell, arguments: &[&str]) -> Option<()> {
    let valued = ["s", "P", "src-dir", "sum-file", "dest-dir", "package", "debconf-template", "state-dir"];
    let (_, operands) = options(arguments, &valued);
    let [from, to] = operands[..] else { return Some(()) };
    let (from, to) = (shell.path(from), shell.path(to));
    let to = if shell.tree.is_directory(&to) { to.join(from.file_name()?) } else { to };
    if shell.tree.file(&to).is_some() {
        return Some(());
    }
    files::copy(shell.tree, &from, &to, Copy { recursive: false, keep: false })
}

/// `update-alternatives --install LINK NAME PATH PRIORITY [--slave LINK NAME PATH]…`: the highest priority has the link,
/// and the first to come among equals.
fn alternatives(shell: &mut Shell, arguments: &[&str]) -> Option<()> {
    let at = arguments.iter().position(|a| *a == "--install")?;
    let [link, _, target, priority, rest @ ..] = &arguments[at + 1..] else { return None };
    let priority: i64 = priority.parse().ok()?;
    let mut chosen = vec![(*link, *target)];
    for (at, word) in rest.iter().enumerate() {
        if let ("--slave", [link, _, target, ..]) = (*word, &rest[at + 1..]) {
            chosen.push((link, target));
        }
    }
    let master = PathBuf::from(link);
    let beaten = shell.memory.alternatives.get(&master).is_some_and(|known| *known >= priority);
    // A file of a package is no link of ours.
    let file = !shell.memory.alternatives.contains_key(&master) && shell.tree.walk(&master, false).is_some();
    if beaten || file || !link.starts_with('/') || shell.tree.walk(Path::new(target), true).is_none() {
        return Some(());
    }
    shell.memory.alternatives.insert(master, priority);
    for (link, target) in chosen {
        let path = Path::new(link);
        if link.starts_with('/')
            && !crate::debian::left_out(path)
            && shell.tree.walk(Path::new(target), true).is_some()
            && !shell.tree.is_directory(path)
        {
            shell.tree.put_link(path, target).ok()?;
        }
    }
    Some(())
}

/// `dpkg-statoverride --update --add USER GROUP MODE PATH`. Asked what is overridden it names nothing.
fn override_rights(shell: &mut Shell, arguments: &[&str]) -> Option<()> {
    let (options, operands) = options(arguments, &["root", "admindir"]);
    value(&options, &["add"])?;
    let [user, group, mode, path] = operands[..] else { return None };
    let (uid, gid) = (accounts::uid(shell.tree, user)?, accounts::gid(shell.tree, group)?);
    let mode = u32::from_str_radix(mode, 8).ok().filter(|m| *m <= 0o7777)?;
    let path = shell.path(path);
    let changed = shell.tree.change(&path, true, &|meta| *meta = Meta { mode, uid, gid, ..*meta });
    changed.then_some(())
}

fn stat(shell: &mut Shell, arguments: &[&str]) -> Option<Status> {
    let (options, operands) = options(arguments, &["c", "format", "printf"]);
    let format = value(&options, &["c", "format"])?.to_string();
    for path in operands {
        let path = shell.path(path);
        let Some((_, id)) = shell.tree.walk(&path, false) else { return Some(1) };
        let meta = shell.tree.node(id).meta;
        let text = format
            .replace("%U", &accounts::name_of(shell.tree, "/etc/passwd", meta.uid))
            .replace("%G", &accounts::name_of(shell.tree, "/etc/group", meta.gid))
            .replace("%u", &meta.uid.to_string())
            .replace("%g", &meta.gid.to_string())
            .replace("%a", &format!("{:o}", meta.mode))
            .replace("%n", &path.to_string_lossy());
        print(shell, &text);
    }
    Some(0)
}

fn dpkg(shell: &mut Shell, arguments: &[&str]) -> Option<Status> {
    match arguments {
        ["--print-architecture", ..] => {
            print(shell, "amd64");
            Some(0)
        }
        // No version was installed before: it is earlier than all others, except for the operators with `-nl`.
        ["--compare-versions", old, operator, new] => {
            let less = match (old.is_empty(), new.is_empty()) {
                (true, true) => std::cmp::Ordering::Equal,
                (true, false) => std::cmp::Ordering::Less,
                (false, true) => std::cmp::Ordering::Greater,
                (false, false) => return Some(1),
            };
            let never = operator.ends_with("-nl");
            let holds = match operator.trim_end_matches("-nl") {
                "lt" | "<<" => less.is_lt(),
                "le" | "<=" | "<" => less.is_le(),
                "eq" | "=" => less.is_eq(),
                "ne" => less.is_ne(),
                "ge" | ">=" | ">" => less.is_ge(),
                "gt" | ">>" => less.is_gt(),
                _ => false,
            };
            Some(u8::from(never || !holds))
        }
        _ => Some(1),
    }
}
