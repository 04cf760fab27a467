// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Archives of objects (`.a`), written anew with some members changed: GNU's form, with long names in a table of their own.

use crate::{Result, StaticError, command, run, write};
use object::read::archive::{ArchiveFile, ArchiveMember};
use std::path::Path;

/// What becomes of a member.
pub(crate) enum Member {
    Gone,
    Kept,
    Changed(Vec<u8>),
}

/// The members of an archive with their names; each is a copy, aligned as the headers want it.
pub(crate) fn members(archive: &[u8]) -> object::Result<Vec<(String, Vec<u8>)>> {
    let all = ArchiveFile::parse(archive)?;
    let copy = |member: object::Result<ArchiveMember<'_>>| {
        let member = member?;
        Ok((String::from_utf8_lossy(member.name()).into_owned(), member.data(archive)?.to_vec()))
    };
    all.members().map(copy).collect()
}

/// Writes an archive with each member as `change` wants it, and with members that are new.
pub(crate) fn rewrite(
    archive: &[u8],
    to: &Path,
    new: Vec<(String, Vec<u8>)>,
    mut change: impl FnMut(&str, &[u8]) -> Result<Member>,
) -> Result<()> {
    let unreadable = |e: object::Error| StaticError::new(format!("{}: {e}", to.display()));
    let mut rewritten: Vec<(String, Vec<u8>)> = Vec::new();
    for (name, data) in members(archive).map_err(unreadable)? {
        match change(&name, &data)? {
            Member::Gone => {}
            Member::Kept => rewritten.push((name, data)),
            Member::Changed(new) => rewritten.push((name, new)),
        }
    }
    rewritten.extend(new);
    write(to, pack(&rewritten))?;
    // The index of symbols.
    run("indexing the C library", command("ranlib").arg("-D").arg(to)).map(|_| ())
}

fn pack(members: &[(String, Vec<u8>)]) -> Vec<u8> {
    /// With the slash that ends it.
    const NAME: usize = 16;
    let mut long = String::new();
    let mut body = Vec::new();
    let mut put = |name: &str, data: &[u8]| {
        let header = format!("{name:<16}{:<12}{:<6}{:<6}{:<8}{:<10}`\n", 0, 0, 0, "100644", data.len());
        body.extend_from_slice(header.as_bytes());
        body.extend_from_slice(data);
        if data.len() % 2 == 1 {
            body.push(b'\n');
        }
    };
    for (name, data) in members {
        if name.len() < NAME {
            put(&format!("{name}/"), data);
        } else {
            put(&format!("/{}", long.len()), data);
            long += &format!("{name}/\n");
        }
    }
    let mut names = Vec::new();
    if !long.is_empty() {
        names =
            format!("{:<16}{:<12}{:<6}{:<6}{:<8}{:<10}`\n", "//", "", "", "", "", long.len()).into_bytes();
        names.extend_from_slice(long.as_bytes());
        if long.len() % 2 == 1 {
            names.push(b'\n');
        }
    }
    [&b"!<arch>\n"[..], &names, &body].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_archive_is_written_as_it_was_read_with_what_changed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lib.a");
        let long = "a-name-that-is-longer-than-a-header-has-room-for.o";
        let members = [("a.o".to_string(), b"odd".to_vec()), (long.to_string(), b"even".to_vec())];
        let change = |name: &str, data: &[u8]| {
            assert!(data.len() == 3 || data.len() == 4);
            Ok(if name == "a.o" { Member::Changed(b"changed".to_vec()) } else { Member::Kept })
        };
        let new = ("new.o".to_string(), b"new".to_vec());
        rewrite(&pack(&members), &path, vec![new.clone()], change).unwrap();
        let bytes = std::fs::read(&path).unwrap();
        let read = super::members(&bytes).unwrap();
        assert_eq!(
            read,
            [("a.o".to_string(), b"changed".to_vec()), (long.to_string(), b"even".to_vec()), new]
        );
    }
}
