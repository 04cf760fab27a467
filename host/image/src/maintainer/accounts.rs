// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Users and groups of an image: /etc/passwd (passwd(5)), /etc/group (group(5)) and /etc/shadow (shadow(5)).

use crate::tree::{Meta, Tree};
use std::{collections::BTreeSet, path::Path};

/// Accounts of system services (Debian Policy 9.2.2).
const SYSTEM: std::ops::RangeInclusive<u32> = 100..=999;
/// Names longer than this are refused, as by useradd(8).
const MAX_NAME: usize = 32;
/// Bytes of an account file, so that no script makes it grow without end.
const MAX_FILE: usize = 256 << 10;
/// Days from 1970 to the last change of a password: a date that does not change from build to build.
const LAST_CHANGE: u32 = 19_000;

/// From which end free numbers are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    /// adduser's.
    Ascending,
    /// useradd's and systemd-sysusers'.
    Descending,
}

/// A user to be made.
#[derive(Clone, Copy, Debug)]
pub(super) struct User<'a> {
    pub name: &'a str,
    pub uid: Option<u32>,
    pub gid: u32,
    pub comment: &'a str,
    pub home: &'a str,
    pub shell: &'a str,
}

fn is_name(name: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_-.$".contains(c);
    name.len() <= MAX_NAME
        && name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && name.chars().all(plain)
}

fn field(text: &str) -> bool {
    !text.contains([':', '\n', '\0'])
}

/// The field `column` of the line whose field `key` is `value`.
fn look_up(tree: &Tree, file: &str, key: usize, value: &str, column: usize) -> Option<String> {
    let text = tree.text(file)?;
    let mut lines = text.lines().map(|l| l.split(':').collect::<Vec<_>>());
    lines.find(|f| f.get(key) == Some(&value))?.get(column).map(|f| f.to_string())
}

/// The line of a user or group by its name or number, as getent(1) prints it.
pub(super) fn line(tree: &Tree, file: &str, name: &str) -> Option<String> {
    let text = tree.text(file)?;
    let column = if name.parse::<u32>().is_ok() { 2 } else { 0 };
    text.lines().find(|l| l.split(':').nth(column) == Some(name)).map(str::to_string)
}

/// The number of a user, given by name or number.
pub(super) fn uid(tree: &Tree, name: &str) -> Option<u32> {
    name.parse().ok().or_else(|| look_up(tree, "/etc/passwd", 0, name, 2)?.parse().ok())
}

/// The number of a group, given by name or number.
pub(super) fn gid(tree: &Tree, name: &str) -> Option<u32> {
    name.parse().ok().or_else(|| look_up(tree, "/etc/group", 0, name, 2)?.parse().ok())
}

/// The number of a user's own group.
pub(super) fn login_group(tree: &Tree, user: &str) -> Option<u32> {
    look_up(tree, "/etc/passwd", 0, user, 3)?.parse().ok()
}

/// The name of a number, or the number itself.
pub(super) fn name_of(tree: &Tree, file: &str, number: u32) -> String {
    let number = number.to_string();
    look_up(tree, file, 2, &number, 0).unwrap_or(number)
}

/// A number that neither a user nor a group has.
fn free(tree: &Tree, order: Order) -> Option<u32> {
    let numbers = |file: &str| -> BTreeSet<u32> {
        let text = tree.text(file).unwrap_or_default();
        text.lines().filter_map(|l| l.split(':').nth(2)?.parse().ok()).collect()
    };
    let used: BTreeSet<u32> = numbers("/etc/passwd").union(&numbers("/etc/group")).copied().collect();
    match order {
        Order::Ascending => SYSTEM.clone().find(|n| !used.contains(n)),
        Order::Descending => SYSTEM.clone().rev().find(|n| !used.contains(n)),
    }
}

fn append(tree: &mut Tree, file: &str, line: &str) -> Option<()> {
    let mut text = tree.text(file).unwrap_or_default();
    if text.len() > MAX_FILE {
        return None;
    }
    if !text.is_empty() && !text.ends_with('\n') {
        text.push('\n');
    }
    text.push_str(line);
    text.push('\n');
    replace(tree, file, text)
}

fn replace(tree: &mut Tree, file: &str, text: String) -> Option<()> {
    let meta = tree.walk(Path::new(file), true).map_or(Meta::FILE, |(_, id)| tree.node(id).meta);
    tree.put_bytes(Path::new(file), text.into_bytes(), meta).ok()
}

/// Makes a group unless it is there; returns its number.
pub(super) fn add_group(tree: &mut Tree, name: &str, number: Option<u32>, order: Order) -> Option<u32> {
    if let Some(there) = look_up(tree, "/etc/group", 0, name, 2) {
        return there.parse().ok();
    }
    let number = number.or_else(|| free(tree, order)).filter(|_| is_name(name))?;
    append(tree, "/etc/group", &format!("{name}:x:{number}:"))?;
    Some(number)
}

/// Makes a user unless it is there.
pub(super) fn add_user(tree: &mut Tree, user: &User, order: Order) -> Option<()> {
    let User { name, gid, comment, home, shell, .. } = *user;
    if look_up(tree, "/etc/passwd", 0, name, 2).is_some() {
        return Some(());
    }
    if !is_name(name) || ![comment, home, shell].into_iter().all(field) {
        return None;
    }
    let taken = |n: u32| look_up(tree, "/etc/passwd", 2, &n.to_string(), 0).is_some();
    // As adduser does: the number of its group, where no user has it.
    let same = SYSTEM.contains(&gid).then_some(gid).filter(|n| !taken(*n));
    let uid = user.uid.or(same).or_else(|| free(tree, order))?;
    append(tree, "/etc/passwd", &format!("{name}:x:{uid}:{gid}:{comment}:{home}:{shell}"))
}

/// Makes a user a member of a group.
pub(super) fn join(tree: &mut Tree, user: &str, group: &str) -> Option<()> {
    if !is_name(user) {
        return None;
    }
    let text = tree.text("/etc/group").filter(|t| t.len() < MAX_FILE)?;
    let mut found = false;
    let mut out = String::new();
    for line in text.lines() {
        out.push_str(line);
        if line.split(':').next() == Some(group) {
            found = true;
            let members = line.rsplit(':').next().unwrap_or_default();
            if !members.split(',').any(|m| m == user) {
                if !members.is_empty() {
                    out.push(',');
                }
                out.push_str(user);
            }
        }
        out.push('\n');
    }
    replace(tree, "/etc/group", out).filter(|()| found)
}

/// Writes /etc/shadow: every user of /etc/passwd that is not in it yet, without a password.
pub(super) fn shadow(tree: &mut Tree) -> Option<()> {
    const FILE: &str = "/etc/shadow";
    let mut text = tree.text(FILE).unwrap_or_default();
    let group = gid(tree, "shadow").unwrap_or(0);
    let passwd = tree.text("/etc/passwd")?;
    for name in passwd.lines().filter_map(|l| l.split(':').next()).filter(|n| is_name(n)) {
        if !text.lines().any(|l| l.split(':').next() == Some(name)) {
            text.push_str(&format!("{name}:*:{LAST_CHANGE}:0:99999:7:::\n"));
        }
    }
    tree.put_bytes(Path::new(FILE), text.into_bytes(), Meta { mode: 0o640, gid: group, ..Meta::FILE }).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accounts_are_made_once_and_lines_cannot_be_smuggled_in() {
        let mut tree = Tree::new();
        tree.put_bytes(Path::new("/etc/passwd"), *b"root:x:0:0:root:/root:/bin/sh\n", Meta::FILE).unwrap();
        tree.put_bytes(Path::new("/etc/group"), *b"root:x:0:", Meta::FILE).unwrap();
        assert_eq!(add_group(&mut tree, "squid", None, Order::Ascending), Some(100));
        assert_eq!(add_group(&mut tree, "squid", None, Order::Ascending), Some(100));
        assert_eq!(add_group(&mut tree, "late", None, Order::Descending), Some(999));
        let user = User { name: "squid", uid: None, gid: 100, comment: "", home: "/x", shell: "/bin/false" };
        add_user(&mut tree, &user, Order::Ascending).unwrap();
        assert_eq!(uid(&tree, "squid"), Some(100));
        assert_eq!(login_group(&tree, "squid"), Some(100));
        join(&mut tree, "squid", "late").unwrap();
        join(&mut tree, "squid", "late").unwrap();
        assert_eq!(line(&tree, "/etc/group", "late").as_deref(), Some("late:x:999:squid"));
        let evil = User { name: "evil", comment: "x\nroot2:x:0:0::/:/bin/sh", ..user };
        assert!(add_user(&mut tree, &evil, Order::Ascending).is_none());
        assert!(add_group(&mut tree, "a:b", None, Order::Ascending).is_none());
        shadow(&mut tree).unwrap();
        assert_eq!(tree.text("/etc/shadow").unwrap().lines().count(), 2);
    }
}
