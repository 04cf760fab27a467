// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `ls`.

use crate::arguments::Arguments;
use crate::paths::{BATCH, Tree, failed, join};
use crate::time::minute;
use abi::Result;
use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use api_fs::{FileType, Stat};
use api_overlay::{
    Column, Command, Completes, Failure, Listing, Outcome, Session, Stop, Stream, Value, manual, sort,
};
use vfs::Dentry;

pub const COMMANDS: [Command; 1] = [Command {
    name: "ls",
    arguments: manual!("[-adlR] [PATH...]"),
    summary: manual!("List directories and files"),
    help: manual!(
        "Lists the program's working directory, or the paths given, sorted by name.\n\
           -a  names that begin with a dot as well\n\
           -d  directories themselves, not what is in them\n\
           -l  type and permissions, owner, size in bytes, time of the last change (UTC), name\n\
           -R  what is below directories as well"
    ),
    completes: Completes::Paths,
    run: ls,
}];

/// Directories with more entries are not sorted: their names are not kept.
const MAX_SORTED: usize = 4096;
/// Directories below directories that `-R` follows: a tree has fewer.
const MAX_DEPTH: usize = 64;

const LONG: [Column; 6] = [
    Column::left("mode", "MODE", 10),
    Column::right("uid", "UID", 5),
    Column::right("gid", "GID", 5),
    Column::right("size_bytes", "SIZE", 9),
    Column::left("modified", "MODIFIED", 16),
    Column::left("name", "NAME", 0),
];
const SHORT: [Column; 1] = [Column::left("name", "NAME", 0)];

struct Lister<'a> {
    session: &'a dyn Session,
    tree: &'a Tree,
    options: &'a Arguments<'a>,
    code: u8,
}

fn ls(session: &dyn Session, arguments: &[&[u8]]) -> Outcome {
    let options = Arguments::parse(arguments, "adlR1", "")?;
    let here = [&b"."[..]];
    let paths = if options.operands.is_empty() { &here[..] } else { &options.operands };
    let mut code = 0;
    let mut first = true;
    for path in paths {
        let tree = Tree::for_path(path)?;
        let mut lister = Lister { session, tree: &tree, options: &options, code: 0 };
        let titled = paths.len() > 1 || options.has(b'R');
        lister.path(path, titled, &mut first)?;
        code = code.max(lister.code);
    }
    Ok(code)
}

impl Lister<'_> {
    fn complain(&mut self, failure: &Failure) -> core::result::Result<(), Stop> {
        self.code = Failure::FAILED;
        self.session.fail(failure)
    }

    fn path(&mut self, path: &[u8], titled: bool, first: &mut bool) -> core::result::Result<(), Stop> {
        // A link named as an operand is followed, unless it is to be shown itself.
        let follow = !self.options.has(b'l') && !self.options.has(b'd');
        let found = self.tree.lookup(path, follow).or_else(|_| self.tree.lookup(path, false));
        let dentry = match found {
            Ok(dentry) => dentry,
            Err(e) => return self.complain(&failed(path)(e)),
        };
        if !dentry.is_directory() || self.options.has(b'd') {
            return self.rows(&dentry, None, alloc::vec![path.to_vec()]);
        }
        self.directory(&dentry, path, titled, first, 0)
    }

    fn directory(
        &mut self,
        directory: &Arc<Dentry>,
        path: &[u8],
        titled: bool,
        first: &mut bool,
        depth: usize,
    ) -> core::result::Result<(), Stop> {
        if titled && !self.session.json() {
            let gap = if *first { "" } else { "\n" };
            let title = format!("{gap}{}:\n", String::from_utf8_lossy(path));
            self.session.write(Stream::Out, title.as_bytes())?;
        }
        *first = false;
        let mut names: Vec<Vec<u8>> = Vec::new();
        let mut below: Vec<Vec<u8>> = Vec::new();
        let mut cookie = 0;
        loop {
            let entries = match directory.inode().list(cookie, BATCH) {
                Ok(entries) => entries,
                Err(e) => return self.complain(&failed(path)(e)),
            };
            let Some(last) = entries.last() else { break };
            cookie = last.next;
            let hidden = |name: &[u8]| !self.options.has(b'a') && name.first() == Some(&b'.');
            for entry in entries.iter().filter(|e| !hidden(&e.name)) {
                names.push(entry.name.clone());
                if entry.kind == FileType::Directory && self.options.has(b'R') {
                    below.push(entry.name.clone());
                }
            }
            if names.len() > MAX_SORTED {
                self.rows(directory, Some(path), core::mem::take(&mut names))?;
            }
            self.session.checkpoint()?;
        }
        sort(&mut names, |a, b| a < b);
        self.rows(directory, Some(path), names)?;
        if depth >= MAX_DEPTH {
            return Ok(());
        }
        sort(&mut below, |a, b| a < b);
        for name in below {
            let path = join(path, &name);
            match self.tree.walk().child(directory, &name) {
                Ok(child) => self.directory(&child, &path, true, first, depth + 1)?,
                Err(e) => self.complain(&failed(&path)(e))?,
            }
        }
        Ok(())
    }

    /// Prints one line for each name: names in `directory` when `path` is its path, else the one dentry.
    fn rows(
        &mut self,
        dentry: &Arc<Dentry>,
        path: Option<&[u8]>,
        names: Vec<Vec<u8>>,
    ) -> core::result::Result<(), Stop> {
        if !self.options.has(b'l') && !self.session.json() {
            return self.names(&names);
        }
        for name in names {
            let row = match path {
                Some(_) => self.tree.walk().child(dentry, &name).and_then(|child| self.row(&child, &name)),
                None => self.row(dentry, &name),
            };
            match row {
                Ok(cells) => self.print(&cells, &name)?,
                Err(e) => {
                    let whole = path.map_or(name.clone(), |path| join(path, &name));
                    self.complain(&failed(&whole)(e))?;
                }
            }
        }
        Ok(())
    }

    fn row(&self, dentry: &Arc<Dentry>, _: &[u8]) -> Result<(Stat, Option<Vec<u8>>)> {
        let stat = dentry.inode().stat()?;
        let target = if stat.kind == FileType::Symlink { dentry.inode().read_link().ok() } else { None };
        Ok((stat, target))
    }

    fn print(&self, (stat, target): &(Stat, Option<Vec<u8>>), name: &[u8]) -> core::result::Result<(), Stop> {
        let mode = mode(stat);
        let changed = minute(stat.modified);
        let shown = match target {
            Some(target) if !self.session.json() => [name, b" -> ", target].concat(),
            _ => name.to_vec(),
        };
        let row = [
            Value::Text(&mode),
            Value::Number(stat.uid.into()),
            Value::Number(stat.gid.into()),
            Value::Number(stat.size),
            Value::Text(&changed),
            Value::Bytes(&shown),
        ];
        Listing::bare(self.session, &LONG).row(&row)
    }

    /// Names in columns as wide as the client's terminal, down and then across; one a line without a terminal.
    fn names(&self, names: &[Vec<u8>]) -> core::result::Result<(), Stop> {
        let shown: Vec<String> = names.iter().map(|n| String::from_utf8_lossy(n).into_owned()).collect();
        let width = shown.iter().map(|n| n.chars().count()).max().unwrap_or(0) + 2;
        let across = (self.session.columns() / width).max(1);
        if across == 1 {
            let mut list = Listing::bare(self.session, &SHORT);
            return shown.iter().try_for_each(|name| list.row(&[Value::Text(name)]));
        }
        let rows = shown.len().div_ceil(across);
        for row in 0..rows {
            let mut line = String::new();
            for name in shown.iter().skip(row).step_by(rows) {
                line.extend(name.chars().map(|c| if c.is_control() { '?' } else { c }));
                line.extend(core::iter::repeat_n(' ', width - name.chars().count()));
            }
            let line = format!("{}\n", line.trim_end());
            self.session.write(Stream::Out, line.as_bytes())?;
            self.session.checkpoint()?;
        }
        Ok(())
    }
}

/// `drwxr-xr-x`, as POSIX `ls` writes it.
fn mode(stat: &Stat) -> String {
    let kind = match stat.kind {
        FileType::Fifo => 'p',
        FileType::CharDevice => 'c',
        FileType::Directory => 'd',
        FileType::BlockDevice => 'b',
        FileType::Regular => '-',
        FileType::Symlink => 'l',
        FileType::Socket => 's',
        FileType::Anonymous => '?',
    };
    let mut out = String::from(kind);
    let bits = stat.permissions;
    for (shift, special, letters) in
        [(6, 0o4000, ['s', 'S']), (3, 0o2000, ['s', 'S']), (0, 0o1000, ['t', 'T'])]
    {
        let part = bits >> shift;
        out.push(if part & 4 != 0 { 'r' } else { '-' });
        out.push(if part & 2 != 0 { 'w' } else { '-' });
        out.push(match (part & 1 != 0, bits & special != 0) {
            (true, false) => 'x',
            (false, false) => '-',
            (true, true) => letters[0],
            (false, true) => letters[1],
        });
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_are_written_as_ls_writes_them() {
        for (kind, permissions, text) in [
            (FileType::Directory, 0o755, "drwxr-xr-x"),
            (FileType::Regular, 0o4711, "-rws--x--x"),
            (FileType::Directory, 0o1777, "drwxrwxrwt"),
            (FileType::Regular, 0o2640, "-rw-r-S---"),
        ] {
            assert_eq!(mode(&Stat::new(kind, permissions)), text);
        }
    }
}
