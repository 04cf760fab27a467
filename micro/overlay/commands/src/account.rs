// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Users and groups as the image knows them: /etc/passwd and /etc/group.

use crate::paths::{O_RDONLY, Tree};
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use api_fs::Sink;
use api_overlay::Failure;
use task::process::Credentials;

/// Longest file of accounts that is read.
const MAX_BYTES: usize = 1 << 20;

/// Whom a program runs as.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Account {
    pub uid: u32,
    pub gid: u32,
    pub groups: Vec<u32>,
    pub home: Vec<u8>,
}

impl Account {
    /// Of a program that this user starts in a machine whose first program has those of `first`.
    pub fn credentials(self, first: &Credentials) -> Credentials {
        let mut credentials = first.beside(self.uid, self.gid);
        credentials.groups = self.groups.into();
        credentials
    }
}

/// Finds `NAME|UID[:GROUP|GID[:GID,GID...]]` in the files of a tree.
pub fn find(text: &[u8], tree: &Tree) -> Result<Account, Failure> {
    let text = String::from_utf8_lossy(text);
    let (passwd, group) = (read(tree, b"/etc/passwd"), read(tree, b"/etc/group"));
    account(&text, &passwd, &group).map_err(|why| Failure::new("-u").because(why).code(Failure::REFUSED))
}

/// The text of a file; an image that has none has no names.
fn read(tree: &Tree, path: &[u8]) -> String {
    let Ok(file) = tree.open(path, O_RDONLY, 0) else { return String::new() };
    let mut bytes = Vec::new();
    let mut piece = [0; 512];
    while let Ok(count @ 1..) = file.read(bytes.len() as u64, &mut Sink::kernel(&mut piece)) {
        bytes.extend_from_slice(&piece[..count]);
        if bytes.len() > MAX_BYTES {
            break;
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// The line whose first field is the name, or else whose third one is the number.
fn line<'a>(file: &'a str, name: &str) -> Option<Vec<&'a str>> {
    let fields = |line: &'a str| line.split(':').collect::<Vec<&str>>();
    let by = |index: usize| file.lines().map(fields).find(|f| f.get(index).copied() == Some(name));
    by(0).or_else(|| by(2)).filter(|fields| fields.len() > 2)
}

fn account(text: &str, passwd: &str, group: &str) -> Result<Account, String> {
    let mut parts = text.splitn(3, ':');
    let (user, wanted_group, further) = (parts.next().unwrap_or_default(), parts.next(), parts.next());
    let none = |what: &str, name: &str, file: &str| format!("no {what} {name} in the image's {file}");
    let known = line(passwd, user);
    let uid = known.as_ref().map_or(user, |fields| fields[2]).parse();
    let uid: u32 = uid.map_err(|_| none("user", user, "/etc/passwd"))?;
    let own_gid = known.as_ref().and_then(|fields| fields.get(3)?.parse().ok()).unwrap_or(0);
    let gid = match wanted_group {
        None => own_gid,
        Some(name) => {
            let found = line(group, name);
            let gid = found.as_ref().map_or(name, |fields| fields[2]).parse();
            gid.map_err(|_| none("group", name, "/etc/group"))?
        }
    };
    // Groups that name the user, unless the client named one.
    let name = known.as_ref().filter(|_| wanted_group.is_none()).map(|fields| fields[0]);
    let is_member = |fields: &Vec<&str>| {
        name.is_some_and(|name| fields.get(3).is_some_and(|all| all.split(',').any(|one| one == name)))
    };
    let lines = group.lines().map(|line| line.split(':').collect::<Vec<&str>>());
    let number = |gid: &str| gid.parse().map_err(|_| none("group", gid, "/etc/group"));
    let groups = match further {
        Some(gids) => gids.split(',').map(number).collect::<Result<_, _>>()?,
        None => lines.filter(is_member).filter_map(|fields| fields.get(2)?.parse().ok()).collect(),
    };
    let home = known.as_ref().and_then(|fields| fields.get(5)).filter(|home| !home.is_empty());
    Ok(Account { uid, gid, groups, home: home.map_or("/", |home| home).to_string().into_bytes() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    const PASSWD: &str = "root:x:0:0:root:/root:/bin/sh\nme:x:1000:100::/home/me:/bin/sh\n";
    const GROUP: &str = "root:x:0:\nusers:x:100:me\nwheel:x:10:root,me\nbroken\n";

    fn of(text: &str) -> Result<(u32, u32, Vec<u32>, String), String> {
        let found = account(text, PASSWD, GROUP)?;
        Ok((found.uid, found.gid, found.groups, String::from_utf8(found.home).unwrap()))
    }

    #[test]
    fn names_and_numbers_of_users_and_groups_are_found() {
        assert_eq!(of("me"), Ok((1000, 100, vec![100, 10], "/home/me".into())));
        assert_eq!(of("1000"), of("me"));
        assert_eq!(of("me:root"), Ok((1000, 0, vec![], "/home/me".into())));
        assert_eq!(of("root:7"), Ok((0, 7, vec![], "/root".into())));
        assert_eq!(of("me:100:5,77"), Ok((1000, 100, vec![5, 77], "/home/me".into())));
        // Numbers that nobody has a name for.
        assert_eq!(of("4242:17"), Ok((4242, 17, vec![], "/".into())));
        assert_eq!(of("4242"), Ok((4242, 0, vec![], "/".into())));
    }

    #[test]
    fn names_that_are_not_there_are_refused_with_the_file() {
        assert_eq!(of("you"), Err("no user you in the image's /etc/passwd".into()));
        assert_eq!(of("me:you"), Err("no group you in the image's /etc/group".into()));
        assert!(
            of("").is_err()
                && of(":").is_err()
                && of("me:0:").is_err()
                && of("0:0:x").is_err()
                && of("-1").is_err()
                && of("99999999999").is_err()
        );
    }
}
