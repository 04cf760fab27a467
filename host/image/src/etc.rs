// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The few files and directories every program expects of a system. What a source brings itself stays.
//!
//! Not here: /etc/resolv.conf and /etc/hostname. They depend on the machine's network, so the kernel writes them from
//! the boot configuration and the archive stays the same wherever it runs.

use crate::{
    error::Result,
    tree::{Meta, Tree},
};
use std::path::Path;

/// The accounts of Debian's base-passwd, with its numbers (Debian Policy 9.2.2).
const PASSWD: &str = "\
root:x:0:0:root:/root:/bin/sh
daemon:x:1:1:daemon:/usr/sbin:/usr/sbin/nologin
bin:x:2:2:bin:/bin:/usr/sbin/nologin
sys:x:3:3:sys:/dev:/usr/sbin/nologin
sync:x:4:65534:sync:/bin:/bin/sync
games:x:5:60:games:/usr/games:/usr/sbin/nologin
man:x:6:12:man:/var/cache/man:/usr/sbin/nologin
lp:x:7:7:lp:/var/spool/lpd:/usr/sbin/nologin
mail:x:8:8:mail:/var/mail:/usr/sbin/nologin
news:x:9:9:news:/var/spool/news:/usr/sbin/nologin
uucp:x:10:10:uucp:/var/spool/uucp:/usr/sbin/nologin
proxy:x:13:13:proxy:/bin:/usr/sbin/nologin
www-data:x:33:33:www-data:/var/www:/usr/sbin/nologin
backup:x:34:34:backup:/var/backups:/usr/sbin/nologin
list:x:38:38:Mailing List Manager:/var/list:/usr/sbin/nologin
irc:x:39:39:ircd:/run/ircd:/usr/sbin/nologin
_apt:x:42:65534::/nonexistent:/usr/sbin/nologin
nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin
";
const GROUP: &str = "\
root:x:0:
daemon:x:1:
bin:x:2:
sys:x:3:
adm:x:4:
tty:x:5:
disk:x:6:
lp:x:7:
mail:x:8:
news:x:9:
uucp:x:10:
man:x:12:
proxy:x:13:
kmem:x:15:
dialout:x:20:
fax:x:21:
voice:x:22:
cdrom:x:24:
floppy:x:25:
tape:x:26:
sudo:x:27:
audio:x:29:
dip:x:30:
www-data:x:33:
backup:x:34:
operator:x:37:
list:x:38:
irc:x:39:
src:x:40:
shadow:x:42:
utmp:x:43:
video:x:44:
sasl:x:45:
plugdev:x:46:
staff:x:50:
games:x:60:
users:x:100:
nogroup:x:65534:
";
const NSSWITCH: &str = "\
passwd: files
group: files
shadow: files
hosts: files dns
networks: files
protocols: files
services: files
";
/// Groups of these that own something.
const MAIL: u32 = 8;
const UTMP: u32 = 43;
const STAFF: u32 = 50;
const HOSTS: &str = "127.0.0.1 localhost\n";

/// The links of a merged /usr, to be laid before anything else.
pub(crate) fn merged_usr(tree: &mut Tree) -> Result<()> {
    for name in ["bin", "sbin", "lib", "lib64"] {
        tree.put_directory(&Path::new("/usr").join(name), Meta::DIRECTORY, true)?;
        tree.put_link(&Path::new("/").join(name), format!("usr/{name}"))?;
    }
    Ok(())
}

/// `accounts`: also the files that name users and hosts; not for images that are whole systems of their own.
pub(crate) fn complete(tree: &mut Tree, accounts: bool) -> Result<()> {
    // As base-files has them, in its archive and by its script.
    let directories = [
        ("/dev", 0o755),
        ("/etc", 0o755),
        ("/home", 0o755),
        ("/media", 0o755),
        ("/mnt", 0o755),
        ("/opt", 0o755),
        ("/proc", 0o555),
        ("/root", 0o700),
        ("/run", 0o755),
        ("/run/lock", 0o1777),
        ("/srv", 0o755),
        ("/sys", 0o555),
        ("/tmp", 0o1777),
        ("/var", 0o755),
        ("/var/backups", 0o755),
        ("/var/cache", 0o755),
        ("/var/lib", 0o755),
        ("/var/local", 0o2775),
        ("/var/log", 0o755),
        ("/var/mail", 0o2775),
        ("/var/opt", 0o755),
        ("/var/spool", 0o755),
        ("/var/tmp", 0o1777),
    ];
    for (path, bits) in directories {
        // A link that leads nowhere yet (/var/run to /run of an earlier layer) is not touched.
        if tree.walk(Path::new(path), false).is_none() {
            let gid = match path {
                "/var/local" => STAFF,
                "/var/mail" => MAIL,
                _ => 0,
            };
            tree.put_directory(Path::new(path), Meta { mode: bits, gid, ..Meta::DIRECTORY }, true)?;
        }
    }
    for (path, target) in [("/var/run", "/run"), ("/var/lock", "/run/lock"), ("/var/spool/mail", "../mail")] {
        if tree.walk(Path::new(path), false).is_none() {
            tree.put_link(Path::new(path), target)?;
        }
    }
    let mut texts = vec![("/etc/hosts", HOSTS)];
    if accounts {
        texts.extend([("/etc/passwd", PASSWD), ("/etc/group", GROUP), ("/etc/nsswitch.conf", NSSWITCH)]);
    }
    if accounts {
        // Logins are noted in them where they are there.
        for (path, mode) in [("/var/log/btmp", 0o660), ("/var/log/lastlog", 0o664), ("/var/log/wtmp", 0o664)]
        {
            if tree.walk(Path::new(path), false).is_none() {
                tree.put_bytes(Path::new(path), *b"", Meta { mode, gid: UTMP, ..Meta::FILE })?;
            }
        }
    }
    for (path, text) in texts {
        if tree.walk(Path::new(path), false).is_none() {
            tree.put_bytes(Path::new(path), text.as_bytes(), Meta::FILE)?;
        }
    }
    Ok(())
}

/// Reads `USER[:GROUP]`, numbers or names of the image's own files, as docker's `--user` does.
pub(crate) fn user(text: &str, passwd: &str, group: &str) -> Option<(u32, u32)> {
    let (user, wanted_group) = match text.split_once(':') {
        Some((user, group)) => (user, Some(group)),
        None => (text, None),
    };
    let line = |file: &str, name: &str, column: usize| {
        let fields = |l: &str| l.split(':').map(str::to_string).collect::<Vec<_>>();
        file.lines().map(fields).find(|f| f.get(column).is_some_and(|value| value == name))
    };
    let number = |fields: &[String], at: usize| fields.get(at).and_then(|f| f.parse::<u32>().ok());
    let (uid, login_group) = match user.parse::<u32>() {
        Ok(uid) => (uid, line(passwd, user, 2).and_then(|f| number(&f, 3)).unwrap_or(0)),
        Err(_) if user.is_empty() => (0, 0),
        Err(_) => {
            let fields = line(passwd, user, 0)?;
            (number(&fields, 2)?, number(&fields, 3)?)
        }
    };
    let gid = match wanted_group {
        None => login_group,
        Some(name) => match name.parse::<u32>() {
            Ok(gid) => gid,
            Err(_) => number(&line(group, name, 0)?, 2)?,
        },
    };
    Some((uid, gid))
}

/// The groups of a user beside `gid`: those whose members /etc/group says it is, and the `added` ones, numbers or names of its
/// groups.
///
/// # Errors
/// The name that no group has.
pub(crate) fn groups(
    (uid, gid): (u32, u32),
    added: &[String],
    passwd: &str,
    group: &str,
) -> std::result::Result<Vec<u32>, String> {
    let fields = |l: &str| l.split(':').map(str::to_string).collect::<Vec<_>>();
    let number = |fields: &[String]| fields.get(2).and_then(|f| f.parse::<u32>().ok());
    let user = passwd.lines().map(fields).find(|f| number(f) == Some(uid)).and_then(|f| f.into_iter().next());
    let has = |f: &Vec<String>| {
        f.get(3).zip(user.as_ref()).is_some_and(|(all, user)| all.split(',').any(|m| m == user))
    };
    let mut out: Vec<u32> = group
        .lines()
        .map(fields)
        .filter(has)
        .filter_map(|f| number(&f))
        .filter(|other| *other != gid)
        .collect();
    for name in added {
        let known = || group.lines().map(fields).find(|f| f.first() == Some(name)).and_then(|f| number(&f));
        out.push(name.parse().ok().or_else(known).ok_or_else(|| name.clone())?);
    }
    out.sort_unstable();
    out.dedup();
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_are_numbers_or_names_of_the_image() {
        let passwd = "root:x:0:0::/:\nredis:x:999:1000::/:\n";
        let group = "root:x:0:\nother:x:7:redis\n";
        for (text, expected) in [
            ("redis", Some((999, 1000))),
            ("999", Some((999, 1000))),
            ("5", Some((5, 0))),
            ("5:6", Some((5, 6))),
            ("redis:other", Some((999, 7))),
            ("", Some((0, 0))),
            ("nobody", None),
            ("redis:nogroup", None),
        ] {
            assert_eq!(user(text, passwd, group), expected, "{text}");
        }
    }

    #[test]
    fn users_have_the_groups_that_name_them_and_those_that_are_added() {
        let passwd = "root:x:0:0::/:\nbird:x:7:8::/:\n";
        let group = "bird:x:8:\ntls:x:9:fish,bird\nfish:x:10:fish\nown:x:8:bird\n";
        let of = |who, added: &[&str]| {
            let added: Vec<String> = added.iter().map(|name| (*name).into()).collect();
            groups(who, &added, passwd, group)
        };
        assert_eq!(of((7, 8), &[]), Ok(vec![9]));
        assert_eq!(of((0, 0), &["fish", "9", "9"]), Ok(vec![9, 10]));
        assert_eq!(of((5, 5), &[]), Ok(Vec::new()));
        assert_eq!(of((0, 0), &["cat"]), Err("cat".into()));
    }

    #[test]
    fn what_a_source_brings_stays() {
        let mut tree = Tree::new();
        merged_usr(&mut tree).unwrap();
        tree.put_bytes(Path::new("/etc/passwd"), *b"mine", Meta::FILE).unwrap();
        complete(&mut tree, true).unwrap();
        assert_eq!(tree.text("/etc/passwd").as_deref(), Some("mine"));
        assert!(tree.text("/etc/resolv.conf").is_none());
        assert!(tree.is_directory(Path::new("/lib64")));
        // Mailboxes are made by programs of the group mail, by either name of their directory.
        let (_, mail) = tree.walk(Path::new("/var/spool/mail"), true).unwrap();
        assert_eq!((tree.node(mail).meta.mode, tree.node(mail).meta.gid), (0o2775, MAIL));
    }
}
