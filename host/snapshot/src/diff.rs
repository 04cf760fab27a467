// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a machine's root file system has otherwise than its image, as `docker diff` tells it: a directory that is gone is one
//! line, one that is new has a line for everything in it, and directories above a change count as changed.

use crate::{
    MADE_AT_START, WRITTEN_AT_START, above,
    cpio::{Contents, Entry, Error, Reader, Result, drain, kind},
    image::{Image, Known, Sum, sum, target},
    is_below, is_own,
};
use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    io::Read,
};

/// How a path differs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Added,
    Changed,
    Deleted,
}

impl Kind {
    /// docker's letter for it.
    pub fn letter(self) -> char {
        match self {
            Kind::Added => 'A',
            Kind::Changed => 'C',
            Kind::Deleted => 'D',
        }
    }
}

/// A path and how it differs.
pub type Change = (Vec<u8>, Kind);

/// The machine, where its archive leaves contents out.
pub trait Asked {
    /// The contents of a regular file, and no more than `most` bytes of them; `None` when it is gone.
    fn contents(&mut self, path: &[u8], most: u64) -> Result<Option<Vec<u8>>>;
}

struct Seen {
    entry: Entry,
    target: Vec<u8>,
    sum: Option<Sum>,
}

struct Machine {
    files: BTreeMap<Vec<u8>, Seen>,
    mounts: BTreeSet<Vec<u8>>,
}

fn read(archive: impl Read, contents: Contents) -> Result<Machine> {
    let mut machine = Machine { files: BTreeMap::new(), mounts: BTreeSet::new() };
    let mut root = None;
    let mut data_of: HashMap<u32, (u32, Sum)> = HashMap::new();
    Reader::new(archive, drain, contents, "the machine").entries(|entry, data| {
        let device = *root.get_or_insert(entry.device);
        if entry.path == b"/" || is_own(&entry.path) {
            return Ok(());
        }
        if entry.device != device {
            machine.mounts.insert(entry.path);
            return Ok(());
        }
        let target = target(&entry, data)?;
        let mut checksum = None;
        if entry.kind() == kind::FILE && contents == Contents::Present {
            let (found, length) =
                sum(data).map_err(|e| Error::Io("reading the machine's files".into(), e))?;
            if length != u64::from(entry.size) {
                return Err(Error::Damaged("the machine's archive ends inside a file".into()));
            }
            if entry.is_linked() && entry.size > 0 {
                data_of.insert(entry.inode, (entry.size, found));
            }
            checksum = Some(found);
        }
        machine.files.insert(entry.path.clone(), Seen { entry, target, sum: checksum });
        Ok(())
    })?;
    for seen in machine.files.values_mut().filter(|seen| seen.entry.is_linked()) {
        if let Some((size, sum)) = data_of.get(&seen.entry.inode) {
            (seen.entry.size, seen.sum) = (*size, Some(*sum));
        }
    }
    Ok(machine)
}

/// Compares the archive of a running machine with its image. `since`: seconds since 1970 at which the machine started; a file
/// that the image has from before then, with its size and time, has not been written since.
pub fn diff(
    image: &Image,
    archive: impl Read,
    contents: Contents,
    since: u32,
    asked: &mut dyn Asked,
) -> Result<Vec<Change>> {
    let machine = read(archive, contents)?;
    let made: BTreeSet<&[u8]> = MADE_AT_START
        .into_iter()
        .chain(WRITTEN_AT_START.into_iter().flat_map(above))
        .chain(machine.mounts.iter().flat_map(|mount| above(mount)))
        .collect();
    let mut changes: BTreeMap<Vec<u8>, Kind> = BTreeMap::new();
    for (path, seen) in &machine.files {
        if WRITTEN_AT_START.contains(&&path[..]) {
            continue;
        }
        match image.files.get(path) {
            None if made.contains(&path[..]) && seen.entry.kind() == kind::DIRECTORY => {}
            None => drop(changes.insert(path.clone(), Kind::Added)),
            Some(known) if is_same(image, known, seen, since, asked)? => {}
            Some(_) => drop(changes.insert(path.clone(), Kind::Changed)),
        }
    }
    for path in image.files.keys() {
        let hidden = |mount: &Vec<u8>| mount == path || is_below(path, mount);
        if machine.files.contains_key(path)
            || WRITTEN_AT_START.contains(&&path[..])
            || machine.mounts.iter().any(hidden)
        {
            continue;
        }
        // What was in a directory that is gone went with it.
        let is_there = |directory: &[u8]| {
            machine.files.get(directory).is_some_and(|seen| seen.entry.kind() == kind::DIRECTORY)
        };
        if above(path).next().is_none_or(is_there) {
            changes.insert(path.clone(), Kind::Deleted);
        }
    }
    let directories: BTreeSet<Vec<u8>> =
        changes.keys().flat_map(|path| above(path)).map(<[u8]>::to_vec).collect();
    for directory in directories {
        changes.entry(directory).or_insert(Kind::Changed);
    }
    Ok(changes.into_iter().collect())
}

fn is_same(image: &Image, known: &Known, seen: &Seen, since: u32, asked: &mut dyn Asked) -> Result<bool> {
    let (was, is) = (&known.entry, &seen.entry);
    if (was.mode, was.uid, was.gid) != (is.mode, is.uid, is.gid) {
        return Ok(false);
    }
    match is.kind() {
        kind::DIRECTORY => Ok(true),
        kind::LINK => Ok(known.target == seen.target),
        kind::FILE if (was.size, was.modified) != (is.size, is.modified) => Ok(false),
        kind::FILE => match seen.sum {
            Some(sum) => Ok(sum == image.sum(was)?),
            None if was.modified < since => Ok(true),
            // A file that is as young as the machine may have been written within the second.
            None => {
                let Some(found) = asked.contents(&is.path, is.size.into())? else { return Ok(false) };
                Ok(sum(&mut &found[..]).ok().map(|(sum, _)| sum) == Some(image.sum(was)?))
            }
        },
        _ => Ok(was.node == is.node),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpio::tests::{Given, archive, given};

    const DIR: u32 = kind::DIRECTORY | 0o755;
    const FILE: u32 = kind::FILE | 0o644;
    const LINK: u32 = kind::LINK | 0o777;
    const START: u32 = 1000;

    /// What the machine would answer.
    struct Files<'a>(&'a [Given<'a>], usize);

    impl Asked for Files<'_> {
        fn contents(&mut self, path: &[u8], _: u64) -> Result<Option<Vec<u8>>> {
            self.1 += 1;
            let found = self.0.iter().find(|f| [b"/", f.path.as_bytes()].concat() == path);
            Ok(found.map(|f| f.data.to_vec()))
        }
    }

    fn image(files: &[Given<'_>]) -> Image {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("root.cpio");
        std::fs::write(&path, archive(files, Contents::Present)).unwrap();
        Image::open(&path).unwrap()
    }

    /// The lines that docker would print, with contents in the machine's archive and without; both have to be the same.
    fn lines(before: &[Given<'_>], after: &[Given<'_>]) -> Vec<String> {
        let image = image(before);
        let after: Vec<Given<'_>> = [given(".", DIR, 0, b"")].iter().chain(after).cloned().collect();
        let of = |contents| {
            let mut files = Files(&after, 0);
            let bytes = archive(&after, contents);
            let found = diff(&image, &bytes[..], contents, START, &mut files).unwrap();
            let line = |(path, kind): &Change| format!("{} {}", kind.letter(), String::from_utf8_lossy(path));
            found.iter().map(line).collect::<Vec<_>>()
        };
        assert_eq!(of(Contents::Present), of(Contents::Absent));
        of(Contents::Absent)
    }

    #[test]
    fn what_is_new_changed_and_gone_is_told_with_the_directories_above() {
        let before = [
            given("etc", DIR, 1, b""),
            given("etc/conf", FILE, 1, b"old"),
            given("etc/same", FILE, 1, b"x"),
            given("usr", DIR, 1, b""),
            given("usr/gone", DIR, 1, b""),
            given("usr/gone/a", FILE, 1, b"x"),
            given("bin", LINK, 1, b"usr/bin"),
            given("lib", LINK, 1, b"usr/lib"),
        ];
        let after = [
            given("etc", DIR, 2000, b""),
            given("etc/conf", FILE, 2000, b"new"),
            given("etc/same", FILE, 1, b"x"),
            given("usr", DIR, 2000, b""),
            given("usr/new", DIR, 2000, b""),
            given("usr/new/b", FILE, 2000, b""),
            given("bin", LINK, 1, b"usr/sbin"),
            given("lib", LINK, 2000, b"usr/lib"),
        ];
        let wanted =
            ["C /bin", "C /etc", "C /etc/conf", "C /usr", "D /usr/gone", "A /usr/new", "A /usr/new/b"];
        assert_eq!(lines(&before, &after), wanted);
        assert!(lines(&before, &before).is_empty());
    }

    #[test]
    fn kind_mode_owner_size_and_time_are_compared_and_times_of_directories_are_not() {
        let before = [given("a", FILE, 1, b"12"), given("d", DIR, 1, b"")];
        let file = |mode, modified, data, owner| {
            [Given { owner, ..given("a", mode, modified, data) }, before[1].clone()]
        };
        assert_eq!(lines(&before, &file(kind::FILE | 0o755, 1, b"12", (0, 0))), ["C /a"]);
        assert_eq!(lines(&before, &file(FILE, 1, b"12", (0, 7))), ["C /a"]);
        assert_eq!(lines(&before, &file(FILE, 1, b"123", (0, 0))), ["C /a"]);
        assert_eq!(lines(&before, &file(FILE, 2, b"12", (0, 0))), ["C /a"]);
        assert_eq!(lines(&before, &file(DIR, 1, b"", (0, 0))), ["C /a"]);
        assert_eq!(lines(&before, &[before[0].clone(), given("d", DIR, 99, b"")]), [""; 0]);
    }

    #[test]
    fn files_as_young_as_the_machine_are_compared_by_their_contents() {
        let before = [given("young", FILE, START, b"12"), given("old", FILE, 1, b"12")];
        let image = image(&before);
        let after = [given(".", DIR, 0, b""), given("young", FILE, START, b"21"), before[1].clone()];
        let mut files = Files(&after, 0);
        let bytes = archive(&after, Contents::Absent);
        let found = diff(&image, &bytes[..], Contents::Absent, START, &mut files).unwrap();
        assert_eq!(found, [(b"/young".to_vec(), Kind::Changed)]);
        assert_eq!(files.1, 1, "no other file is asked for");
    }

    #[test]
    fn what_is_mounted_and_what_every_start_writes_is_no_change() {
        let before = [given("data", DIR, 1, b""), given("data/x", FILE, 1, b"1"), given("etc", DIR, 1, b"")];
        let mounted = |path| Given { device: 7, ..given(path, DIR, 2000, b"") };
        let after = [
            mounted("data"),
            given("etc", DIR, 2000, b""),
            given("etc/hosts", FILE, 2000, b"1"),
            given("tmp", DIR, 2000, b""),
            given("srv", DIR, 2000, b""),
            mounted("srv/www"),
            mounted("proc"),
        ];
        assert_eq!(lines(&before, &after), [""; 0]);
        let more: Vec<Given<'_>> = after.iter().cloned().chain([given("srv/x", FILE, 2000, b"")]).collect();
        assert_eq!(lines(&before, &more), ["C /srv", "A /srv/x"]);
    }

    #[test]
    fn names_of_one_file_are_that_file_whichever_has_the_data() {
        let name = |path, data, links| Given { inode: 5, links, ..given(path, FILE, 1, data) };
        let image = image(&[name("a", b"123", 2), name("b", b"", 2)]);
        for after in [[name("a", b"123", 2), name("b", b"", 2)], [name("a", b"", 2), name("b", b"123", 2)]] {
            let all = [&[given(".", DIR, 0, b"")][..], &after[..]].concat();
            let bytes = archive(&all, Contents::Present);
            let found = diff(&image, &bytes[..], Contents::Present, START, &mut Files(&[], 0)).unwrap();
            assert_eq!(found, []);
        }
    }
}
