// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `cat`, `cp` and `mv`.

use crate::arguments::Arguments;
use crate::paths::{
    BATCH, O_CREAT, O_RDONLY, O_TRUNC, O_WRONLY, Tree, base_name, failed, join, read, write_all,
};
use abi::errno::*;
use alloc::sync::Arc;
use alloc::vec::Vec;
use api_alloc::Reserve;
use api_fs::{File, FileType};
use api_overlay::{Command, Completes, Failure, Outcome, Session, Stream, manual};
use vfs::{Dentry, ops};

pub const COMMANDS: [Command; 3] = [
    Command {
        name: "cat",
        arguments: manual!("[FILE...]"),
        summary: manual!("Print files"),
        help: manual!(
            "Prints the files one after the other. `-`, or no file, is what the command is given on its standard input."
        ),
        completes: Completes::Paths,
        run: cat,
    },
    Command {
        name: "cp",
        arguments: manual!("[-r] FROM... TO"),
        summary: manual!("Copy files, also from and to the host's directory /overlay"),
        help: manual!(
            "Copies a file to a file, or files into a directory; a file that is there is overwritten in place, so that \
               the program sees the new contents through the descriptors it has open. `-` as the source is the command's \
               standard input, as the target its standard output.\n\
               -r  directories with all that is below; links are copied as links"
        ),
        completes: Completes::Paths,
        run: cp,
    },
    Command {
        name: "mv",
        arguments: manual!("FROM... TO"),
        summary: manual!("Rename files, or move them"),
        help: manual!(
            "Renames a file or directory, or moves several into a directory. Between file systems files are copied and \
               then removed."
        ),
        completes: Completes::Paths,
        run: mv,
    },
];

/// Bytes moved at once: as many as a 9p message of ours holds are not worth the memory.
const PIECE: usize = 64 << 10;
const MAX_DEPTH: usize = 64;
const STANDARD: &[u8] = b"-";

fn cat(session: &dyn Session, arguments: &[&[u8]]) -> Outcome {
    let options = Arguments::parse(arguments, "", "")?;
    let standard = [STANDARD];
    let files = if options.operands.is_empty() { &standard[..] } else { &options.operands };
    let mut buffer = buffer()?;
    let mut code = 0;
    for path in files {
        if let Err(failure) = print(session, path, &mut buffer) {
            if failure.is_stop {
                return Err(failure);
            }
            session.fail(&failure)?;
            code = Failure::FAILED;
        }
    }
    Ok(code)
}

fn buffer() -> Result<Vec<u8>, Failure> {
    let mut buffer = Vec::new();
    buffer.reserve_exact_fallibly(PIECE).map_err(|_| Failure::new("").errno(ENOMEM))?;
    buffer.resize(PIECE, 0);
    Ok(buffer)
}

fn print(session: &dyn Session, path: &[u8], buffer: &mut [u8]) -> Result<(), Failure> {
    if path == STANDARD {
        loop {
            let count = session.read(buffer)?;
            if count == 0 {
                return Ok(());
            }
            session.write(Stream::Out, &buffer[..count])?;
        }
    }
    let tree = Tree::for_path(path)?;
    let file = open_to_read(&tree, path)?;
    let mut offset = 0;
    loop {
        let count = read(session, &file, offset, buffer)?.map_err(failed(path))?;
        if count == 0 {
            return close(&file, path);
        }
        session.write(Stream::Out, &buffer[..count])?;
        session.checkpoint()?;
        offset += count as u64;
    }
}

fn open_to_read(tree: &Tree, path: &[u8]) -> Result<Arc<dyn File>, Failure> {
    let dentry = tree.lookup(path, true).map_err(failed(path))?;
    if dentry.is_directory() {
        return Err(failed(path)(EISDIR));
    }
    tree.open(path, O_RDONLY, 0).map_err(failed(path))
}

fn close(file: &Arc<dyn File>, path: &[u8]) -> Result<(), Failure> {
    file.close().map_err(failed(path))
}

/// Copies the contents of `from` (or standard input) to a file at `to` with these permissions.
fn copy_file(session: &dyn Session, from: &[u8], to: &[u8], buffer: &mut [u8]) -> Result<(), Failure> {
    let source = if from == STANDARD {
        None
    } else {
        let tree = Tree::for_path(from)?;
        let file = open_to_read(&tree, from)?;
        Some((file, tree.lookup(from, true).map_err(failed(from))?))
    };
    let tree = Tree::for_path(to)?;
    let mut permissions = 0o644;
    if let Some((_, dentry)) = &source {
        permissions = dentry.inode().stat().map_err(failed(from))?.permissions & 0o777;
        if let Ok(there) = tree.lookup(to, true)
            && Arc::ptr_eq(there.inode(), dentry.inode())
        {
            return Err(Failure::about(to).because("is the same file"));
        }
    }
    let target = tree.open(to, O_WRONLY | O_CREAT | O_TRUNC, permissions).map_err(failed(to))?;
    let mut offset = 0;
    loop {
        let count = match &source {
            Some((file, _)) => read(session, file, offset, buffer)?.map_err(failed(from))?,
            None => session.read(buffer)?,
        };
        if count == 0 {
            break;
        }
        write_all(session, &target, offset, &buffer[..count])?.map_err(failed(to))?;
        offset += count as u64;
        session.checkpoint()?;
    }
    if let Some((file, _)) = &source {
        close(file, from)?;
    }
    close(&target, to)
}

/// Copies whatever `from` is.
fn copy(
    session: &dyn Session,
    from: &[u8],
    to: &[u8],
    recursive: bool,
    depth: usize,
    buffer: &mut [u8],
) -> Result<(), Failure> {
    session.checkpoint()?;
    if from == STANDARD {
        return copy_file(session, from, to, buffer);
    }
    let tree = Tree::for_path(from)?;
    let dentry = tree.lookup(from, !recursive).map_err(failed(from))?;
    match dentry.kind() {
        FileType::Regular | FileType::CharDevice | FileType::Fifo if !recursive => {
            copy_file(session, from, to, buffer)
        }
        FileType::Regular => copy_file(session, from, to, buffer),
        FileType::Directory if !recursive => {
            Err(Failure::about(from).because("is a directory; -r copies directories").errno(EISDIR))
        }
        FileType::Directory if depth >= MAX_DEPTH => {
            Err(Failure::about(from).because("too many directories below each other"))
        }
        FileType::Directory => copy_directory(session, &dentry, from, to, depth, buffer),
        FileType::Symlink => {
            let target = dentry.inode().read_link().map_err(failed(from))?;
            let there = Tree::for_path(to)?;
            ops::symlink(&there.walk(), &target, to).map_err(failed(to))
        }
        _ => Err(Failure::about(from).because("is no file that can be copied")),
    }
}

fn copy_directory(
    session: &dyn Session,
    dentry: &Arc<Dentry>,
    from: &[u8],
    to: &[u8],
    depth: usize,
    buffer: &mut [u8],
) -> Result<(), Failure> {
    let there = Tree::for_path(to)?;
    let permissions = dentry.inode().stat().map_err(failed(from))?.permissions;
    match ops::create(&there.walk(), to, FileType::Directory, permissions, 0) {
        Ok(_) | Err(EEXIST) => {}
        Err(e) => return Err(failed(to)(e)),
    }
    let target = there.lookup(to, true).map_err(failed(to))?;
    let mut is_whole = true;
    for name in names(dentry, from)? {
        // A directory copied into itself would never end.
        let inside = there.walk().child(dentry, &name).map_err(failed(from))?;
        if Arc::ptr_eq(inside.inode(), target.inode()) {
            return Err(Failure::about(to).because("lies in the directory that is copied"));
        }
        if let Err(failure) = copy(session, &join(from, &name), &join(to, &name), true, depth + 1, buffer) {
            if failure.is_stop {
                return Err(failure);
            }
            session.fail(&failure)?;
            is_whole = false;
        }
    }
    // Whoever moves the directory is not to remove it then.
    if is_whole { Ok(()) } else { Err(Failure::about(from).because("is copied without what was named")) }
}

/// All names in a directory.
pub fn names(dentry: &Arc<Dentry>, path: &[u8]) -> Result<Vec<Vec<u8>>, Failure> {
    let mut names = Vec::new();
    let mut cookie = 0;
    loop {
        let entries = dentry.inode().list(cookie, BATCH).map_err(failed(path))?;
        let Some(last) = entries.last() else { return Ok(names) };
        cookie = last.next;
        names.extend(entries.into_iter().map(|e| e.name));
    }
}

/// What is copied, and where to.
type Pair<'a> = (&'a [u8], Vec<u8>);

/// The target of each source: below `to` when that is a directory. Several sources need one.
fn targets<'a>(operands: &[&'a [u8]]) -> Result<Vec<Pair<'a>>, Failure> {
    let [sources @ .., to] = operands else {
        return Err(Failure::usage("a source and a target are needed"));
    };
    if sources.is_empty() {
        return Err(Failure::usage("a source and a target are needed"));
    }
    let tree = Tree::for_path(to)?;
    let into = tree.lookup(to, true).is_ok_and(|d| d.is_directory());
    if sources.len() > 1 && !into {
        return Err(Failure::about(to).errno(ENOTDIR));
    }
    let target = |from: &&'a [u8]| {
        let to = if into { join(to, base_name(from)) } else { to.to_vec() };
        (*from, to)
    };
    Ok(sources.iter().map(target).collect())
}

/// Does `act` for each pair and reports what fails.
fn each(
    session: &dyn Session,
    pairs: Vec<Pair<'_>>,
    mut act: impl FnMut(&[u8], &[u8]) -> Result<(), Failure>,
) -> Outcome {
    let mut code = 0;
    for (from, to) in pairs {
        if let Err(failure) = act(from, &to) {
            if failure.is_stop {
                return Err(failure);
            }
            session.fail(&failure)?;
            code = Failure::FAILED;
        }
    }
    Ok(code)
}

fn cp(session: &dyn Session, arguments: &[&[u8]]) -> Outcome {
    let options = Arguments::parse(arguments, "rRa", "")?;
    if let [sources @ .., to] = &options.operands[..]
        && *to == STANDARD
        && !sources.is_empty()
    {
        return cat(session, sources);
    }
    let recursive = [b'r', b'R', b'a'].iter().any(|flag| options.has(*flag));
    let mut buffer = buffer()?;
    each(session, targets(&options.operands)?, |from, to| copy(session, from, to, recursive, 0, &mut buffer))
}

fn mv(session: &dyn Session, arguments: &[&[u8]]) -> Outcome {
    let options = Arguments::parse(arguments, "f", "")?;
    let mut buffer = buffer()?;
    each(session, targets(&options.operands)?, |from, to| {
        let (tree, there) = (Tree::for_path(from)?, Tree::for_path(to)?);
        match ops::rename(&tree.walk(), from, &there.walk(), to, 0) {
            Ok(()) => Ok(()),
            Err(EXDEV) => {
                copy(session, from, to, true, 0, &mut buffer)?;
                crate::directories::remove(session, &tree, from, true, 0)
            }
            Err(e) => Err(failed(from)(e)),
        }
    })
}
