// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `mkdir` and `rm`.

use crate::arguments::Arguments;
use crate::copy::names;
use crate::paths::{Tree, failed, join};
use abi::errno::*;
use api_fs::FileType;
use api_overlay::{Command, Completes, Failure, Outcome, Session, manual};
use vfs::ops;

pub const COMMANDS: [Command; 2] = [
    Command {
        name: "mkdir",
        arguments: manual!("[-p] DIRECTORY..."),
        summary: manual!("Make directories"),
        help: manual!("-p  make those above as well, and do not mind what is there"),
        completes: Completes::Paths,
        run: mkdir,
    },
    Command {
        name: "rm",
        arguments: manual!("[-fr] PATH..."),
        summary: manual!("Remove files"),
        help: manual!(
            "A file that is open stays until it is closed.\n\
               -f  do not mind what is not there\n\
               -r  directories with all that is below"
        ),
        completes: Completes::Paths,
        run: rm,
    },
];

const MAX_DEPTH: usize = 64;

/// Does `act` for each operand and reports what fails.
fn each(
    session: &dyn Session,
    operands: &[&[u8]],
    mut act: impl FnMut(&[u8]) -> Result<(), Failure>,
) -> Outcome {
    if operands.is_empty() {
        return Err(Failure::usage("a path is needed"));
    }
    let mut code = 0;
    for path in operands {
        if let Err(failure) = act(path) {
            if failure.is_stop {
                return Err(failure);
            }
            session.fail(&failure)?;
            code = Failure::FAILED;
        }
    }
    Ok(code)
}

fn mkdir(session: &dyn Session, arguments: &[&[u8]]) -> Outcome {
    let options = Arguments::parse(arguments, "p", "")?;
    each(session, &options.operands, |path| {
        let tree = Tree::for_path(path)?;
        let make = |path: &[u8]| ops::create(&tree.walk(), path, FileType::Directory, 0o755, 0).map(|_| ());
        if !options.has(b'p') {
            return make(path).map_err(failed(path));
        }
        let slashes = path.iter().enumerate().filter(|(i, b)| *i > 0 && **b == b'/').map(|(i, _)| i);
        for end in slashes.chain([path.len()]) {
            match make(&path[..end]) {
                Ok(()) => {}
                Err(EEXIST) if tree.lookup(&path[..end], true).is_ok_and(|d| d.is_directory()) => {}
                Err(e) => return Err(failed(&path[..end])(e)),
            }
        }
        Ok(())
    })
}

fn rm(session: &dyn Session, arguments: &[&[u8]]) -> Outcome {
    let options = Arguments::parse(arguments, "frR", "")?;
    let recursive = options.has(b'r') || options.has(b'R');
    each(session, &options.operands, |path| {
        let tree = Tree::for_path(path)?;
        match remove(session, &tree, path, recursive, 0) {
            Err(failure) if failure.errno == Some(ENOENT) && options.has(b'f') => Ok(()),
            done => done,
        }
    })
}

/// Removes what is at `path`.
pub fn remove(
    session: &dyn Session,
    tree: &Tree,
    path: &[u8],
    recursive: bool,
    depth: usize,
) -> Result<(), Failure> {
    session.checkpoint()?;
    let dentry = tree.lookup(path, false).map_err(failed(path))?;
    if !dentry.is_directory() {
        return ops::unlink(&tree.walk(), path, false).map_err(failed(path));
    }
    if !recursive {
        return Err(Failure::about(path).because("is a directory; -r removes directories").errno(EISDIR));
    }
    if depth >= MAX_DEPTH {
        return Err(Failure::about(path).because("too many directories below each other"));
    }
    for name in names(&dentry, path)? {
        remove(session, tree, &join(path, &name), true, depth + 1)?;
    }
    ops::unlink(&tree.walk(), path, true).map_err(failed(path))
}
