// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a file system should hold: the same operations on a tree in memory, and what both say.

use super::{directory, file, names, now, read_all};
use crate::{Core, ROOT};
use abi::{Errno, errno::*};
use std::collections::BTreeMap;
use std::string::String;
use std::vec::Vec;

#[derive(Clone, Debug, PartialEq)]
enum Object {
    File { bytes: Vec<u8>, links: u32 },
    Directory(BTreeMap<String, usize>),
    Link(Vec<u8>),
}

/// A path and what is there: `None` for a directory.
pub type Tree = BTreeMap<String, Option<Vec<u8>>>;

/// An operation on small numbers, which stand for names and places.
#[derive(Clone, Copy, Debug)]
pub struct Operation {
    pub what: u8,
    pub first: u8,
    pub second: u8,
    pub number: u32,
}

#[derive(Clone)]
pub struct Model {
    objects: Vec<Object>,
}

fn place(number: u8) -> (usize, String) {
    // Names long enough that directories have more than one block.
    let name = std::format!("{}-{}", (b'a' + number % 16) as char, "x".repeat(usize::from(number % 16) * 13));
    (usize::from(number / 16 % 4), name)
}

impl Model {
    pub fn new() -> Model {
        Model { objects: Vec::from([Object::Directory(BTreeMap::new())]) }
    }

    fn entries(&mut self, directory: usize) -> &mut BTreeMap<String, usize> {
        match &mut self.objects[directory] {
            Object::Directory(entries) => entries,
            _ => panic!("no directory"),
        }
    }

    fn find(&self, directory: usize, name: &str) -> Option<usize> {
        match &self.objects[directory] {
            Object::Directory(entries) => entries.get(name).copied(),
            _ => None,
        }
    }

    /// The directory of that number: the root, or one of the first three directories below it.
    fn directory(&self, number: usize) -> usize {
        let Object::Directory(root) = &self.objects[0] else { return 0 };
        let below = root.values().filter(|at| matches!(self.objects[**at], Object::Directory(_)));
        number.checked_sub(1).and_then(|number| below.copied().nth(number)).unwrap_or(0)
    }

    fn path_of(&self, directory: usize) -> Option<String> {
        let Object::Directory(root) = &self.objects[0] else { return None };
        root.iter().find(|(_, at)| **at == directory).map(|(name, _)| name.clone())
    }

    fn number_of(&self, core: &mut Core, directory: usize) -> u32 {
        match self.path_of(directory) {
            Some(name) => core.lookup(ROOT, name.as_bytes()).unwrap(),
            None => ROOT,
        }
    }

    /// Does it in both, and sees that both answer the same. What the disk has no room for is not done.
    pub fn apply(&mut self, core: &mut Core, operation: Operation) {
        let Operation { what, first, second, number } = operation;
        let (in_first, name) = place(first);
        let (in_second, to) = place(second);
        let (from, target) = (self.directory(in_first), self.directory(in_second));
        let (parent, parent_to) = (self.number_of(core, from), self.number_of(core, target));
        let there = self.find(from, &name);
        let expect = |result: Result<(), Errno>, expected: Result<(), Errno>| {
            assert!(
                result == expected || result == Err(ENOSPC),
                "{operation:?}: {result:?}, not {expected:?}"
            );
            result.is_ok()
        };
        match what % 12 {
            0 | 1 => {
                let expected = if there.is_some() { Err(EEXIST) } else { Ok(()) };
                if expect(core.create(parent, name.as_bytes(), file()).map(|_| ()), expected) {
                    self.add(from, name, Object::File { bytes: Vec::new(), links: 1 });
                }
            }
            2 if from == 0 => {
                let expected = if there.is_some() { Err(EEXIST) } else { Ok(()) };
                if expect(core.create(parent, name.as_bytes(), directory()).map(|_| ()), expected) {
                    self.add(from, name, Object::Directory(BTreeMap::new()));
                }
            }
            3 => {
                let expected = if there.is_some() { Err(EEXIST) } else { Ok(()) };
                let text = "t".repeat(number as usize % 150 + 1);
                let made = core.symlink(parent, name.as_bytes(), text.as_bytes(), file());
                if expect(made.map(|_| ()), expected) {
                    self.add(from, name, Object::Link(text.into_bytes()));
                }
            }
            4 => {
                let is_directory = there.is_some_and(|at| matches!(self.objects[at], Object::Directory(_)));
                let is_full = there
                    .is_some_and(|at| matches!(&self.objects[at], Object::Directory(e) if !e.is_empty()));
                let expected = match there {
                    None => Err(ENOENT),
                    Some(_) if is_full => Err(ENOTEMPTY),
                    Some(_) => Ok(()),
                };
                if expect(core.unlink(parent, name.as_bytes(), is_directory, now()), expected) {
                    self.remove(from, &name);
                }
            }
            5 => self.rename(core, (from, parent, name), (target, parent_to, to), number, expect),
            6 => {
                let Some(at) = there.filter(|at| matches!(self.objects[*at], Object::File { .. })) else {
                    return;
                };
                let inode = core.lookup(parent, name.as_bytes()).unwrap();
                let is_taken = self.find(target, &to).is_some();
                let expected = if is_taken { Err(EEXIST) } else { Ok(()) };
                if expect(core.link(parent_to, to.as_bytes(), inode, now()), expected) {
                    self.entries(target).insert(to, at);
                    if let Object::File { links, .. } = &mut self.objects[at] {
                        *links += 1;
                    }
                }
            }
            _ => {
                let Some(at) = there else { return };
                let Object::File { bytes, .. } = &mut self.objects[at] else { return };
                let inode = core.lookup(parent, name.as_bytes()).unwrap();
                change_contents(core, inode, bytes, operation, expect);
            }
        }
    }

    fn add(&mut self, directory: usize, name: String, object: Object) {
        self.objects.push(object);
        let at = self.objects.len() - 1;
        self.entries(directory).insert(name, at);
    }

    fn remove(&mut self, directory: usize, name: &str) {
        if let Some(at) = self.entries(directory).remove(name)
            && let Object::File { links, .. } = &mut self.objects[at]
        {
            *links -= 1;
        }
    }

    fn rename(
        &mut self,
        core: &mut Core,
        (from, parent, name): (usize, u32, String),
        (target, parent_to, to): (usize, u32, String),
        number: u32,
        expect: impl Fn(Result<(), Errno>, Result<(), Errno>) -> bool,
    ) {
        let (Some(at), there) = (self.find(from, &name), self.find(target, &to)) else { return };
        let is_directory = |at: usize| matches!(self.objects[at], Object::Directory(_));
        // Directories stay below the root here, where the model looks for them.
        let moves = |at: usize, target: usize| is_directory(at) && (target != 0 || from != 0);
        let flags = if number.is_multiple_of(3) { 2 } else { 0 };
        if moves(at, target) || there.is_some_and(|there| moves(there, from)) {
            return;
        }
        let expected = match there {
            Some(there) if there == at => Ok(()),
            None if flags == 2 => Err(ENOENT),
            Some(_) if flags == 2 => Ok(()),
            Some(there) if is_directory(at) && !is_directory(there) => Err(ENOTDIR),
            Some(there) if !is_directory(at) && is_directory(there) => Err(EISDIR),
            Some(there) => match &self.objects[there] {
                Object::Directory(entries) if !entries.is_empty() => Err(ENOTEMPTY),
                _ => Ok(()),
            },
            None => Ok(()),
        };
        let done = core.rename((parent, name.as_bytes()), (parent_to, to.as_bytes()), flags, now());
        if !expect(done, expected) || there == Some(at) {
            return;
        }
        match there {
            Some(there) if flags == 2 => {
                self.entries(from).insert(name, there);
                self.entries(target).insert(to, at);
            }
            _ => {
                self.remove(target, &to);
                self.entries(from).remove(&name);
                self.entries(target).insert(to, at);
            }
        }
    }

    pub fn tree(&self) -> Tree {
        let mut tree = Tree::new();
        self.collect(0, "", &mut tree);
        tree
    }

    fn collect(&self, at: usize, path: &str, tree: &mut Tree) {
        match &self.objects[at] {
            Object::Directory(entries) => {
                tree.insert(path.into(), None);
                entries.iter().for_each(|(name, at)| self.collect(*at, &std::format!("{path}/{name}"), tree));
            }
            Object::File { bytes, .. } | Object::Link(bytes) => {
                tree.insert(path.into(), Some(bytes.clone()));
            }
        }
    }
}

fn change_contents(
    core: &mut Core,
    inode: u32,
    bytes: &mut Vec<u8>,
    Operation { what, second, number, .. }: Operation,
    expect: impl Fn(Result<(), Errno>, Result<(), Errno>) -> bool,
) {
    let offset = (number % 150_000) as usize;
    let length = usize::from(second) * 37 + 1;
    match what % 12 {
        7 => {
            if expect(core.truncate(inode, offset as u64, now()), Ok(())) {
                bytes.resize(offset, 0);
            }
        }
        8 => {
            if expect(core.allocate_range(inode, 3, offset as u64, length as u64, now()), Ok(())) {
                let end = (offset + length).min(bytes.len());
                if offset < end {
                    bytes[offset..end].fill(0);
                }
            }
        }
        9 => {
            if expect(core.allocate_range(inode, 0, offset as u64, length as u64, now()), Ok(()))
                && bytes.len() < offset + length
            {
                bytes.resize(offset + length, 0);
            }
        }
        _ => {
            let data: Vec<u8> = (0..length).map(|i| (i as u8).wrapping_mul(7) ^ number as u8).collect();
            let done = core.write(inode, offset as u64, &data, now());
            let n = *done.as_ref().unwrap_or(&0);
            if expect(done.map(|_| ()), Ok(())) {
                let length = bytes.len().max(offset + n);
                bytes.resize(length, 0);
                bytes[offset..offset + n].copy_from_slice(&data[..n]);
            }
        }
    }
}

/// What a file system has.
pub fn tree_of(core: &mut Core) -> Tree {
    let mut tree = Tree::new();
    collect(core, ROOT, "", &mut tree);
    tree
}

fn collect(core: &mut Core, inode: u32, path: &str, tree: &mut Tree) {
    tree.insert(path.into(), None);
    for name in names(core, inode).into_iter().filter(|name| name != "lost+found") {
        let path = std::format!("{path}/{name}");
        let child = core.lookup(inode, name.as_bytes()).unwrap();
        match core.stat(child).unwrap().kind {
            api_fs::FileType::Directory => collect(core, child, &path, tree),
            api_fs::FileType::Symlink => {
                tree.insert(path, Some(core.read_link(child).unwrap()));
            }
            _ => {
                tree.insert(path, Some(read_all(core, child).unwrap()));
            }
        }
    }
}
