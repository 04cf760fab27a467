// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A root file system in memory. Every path is walked inside it: `..` stops at the root and symbolic links are
//! followed within the tree, so nothing an archive says can reach a file of the host.

use crate::error::{ImageError, Result, fail};
use std::{
    collections::{BTreeMap, HashMap},
    ffi::{OsStr, OsString},
    fs,
    os::unix::ffi::OsStrExt,
    path::{Component, Path, PathBuf},
    sync::Arc,
};

/// Linux gives up after as many symbolic links (`MAXSYMLINKS`).
const MAX_LINKS: usize = 40;
/// Linux' PATH_MAX, which the cpio format of the initial RAM disk shares.
pub(crate) const MAX_PATH: usize = 4096;
/// Linux' NAME_MAX.
const MAX_NAME: usize = 255;

/// The modification time of files that do not bring one: archives are the same from one day to the next, and not
/// at the epoch, which some programs take for "no time".
pub(crate) const FIXED_TIME: u32 = 1_000_000_000;

/// A file's bytes: read already, or in a file of the host that is read when the archive is written.
#[derive(Clone, Debug)]
pub(crate) enum Content {
    Bytes(Arc<[u8]>),
    Host(PathBuf),
}

impl Content {
    pub(crate) fn read(&self) -> Result<Arc<[u8]>> {
        match self {
            Content::Bytes(bytes) => Ok(bytes.clone()),
            Content::Host(path) => Ok(fs::read(path).map_err(|e| ImageError::io("read", path, &e))?.into()),
        }
    }
}

#[derive(Clone, Debug)]
pub(crate) enum Kind {
    Directory(BTreeMap<OsString, NodeId>),
    File(Content),
    Link(PathBuf),
}

/// What a program may do by its file (capabilities(7), "File capabilities"): nothing, as a rule. What it inherits is not kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Capabilities {
    pub permitted: u64,
    /// The program starts with them in effect.
    pub is_effective: bool,
}

impl Capabilities {
    pub(crate) const NONE: Capabilities = Capabilities { permitted: 0, is_effective: false };

    /// Of the attribute `security.capability`: `struct vfs_ns_cap_data`, version 2 or, of root's own, 3. What is none of those,
    /// and what only lets inherit, is nothing.
    pub(crate) fn parse(value: &[u8]) -> Capabilities {
        let (words, rest) = value.as_chunks::<4>();
        let word = |i: usize| words.get(i).map_or(0, |word| u32::from_le_bytes(*word));
        let is_known =
            rest.is_empty() && matches!((word(0) >> 24, words.len(), word(5)), (2, 5, _) | (3, 6, 0));
        match u64::from(word(1)) | u64::from(word(3)) << 32 {
            0 => Capabilities::NONE,
            permitted if is_known => Capabilities { permitted, is_effective: word(0) & 1 != 0 },
            _ => Capabilities::NONE,
        }
    }
}

/// What is not the content of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Meta {
    /// Permission bits, set-user-ID and so on: the low 12 bits of `st_mode`.
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
    /// Seconds since 1970.
    pub mtime: u32,
    pub capabilities: Capabilities,
}

impl Meta {
    pub(crate) const DIRECTORY: Meta =
        Meta { mode: 0o755, uid: 0, gid: 0, mtime: FIXED_TIME, capabilities: Capabilities::NONE };
    pub(crate) const FILE: Meta =
        Meta { mode: 0o644, uid: 0, gid: 0, mtime: FIXED_TIME, capabilities: Capabilities::NONE };
    pub(crate) const PROGRAM: Meta =
        Meta { mode: 0o755, uid: 0, gid: 0, mtime: FIXED_TIME, capabilities: Capabilities::NONE };
}

#[derive(Clone, Debug)]
pub(crate) struct Node {
    pub kind: Kind,
    pub meta: Meta,
}

/// An index into the tree's nodes. Two names with one id are hard links.
pub(crate) type NodeId = usize;

pub(crate) const ROOT: NodeId = 0;

#[derive(Clone, Debug)]
pub(crate) struct Tree {
    nodes: Vec<Node>,
}

/// The names of a path, without empty ones and `.`; `..` stays.
fn names(path: &Path) -> impl DoubleEndedIterator<Item = &OsStr> {
    path.components().filter_map(|c| match c {
        Component::Normal(name) => Some(name),
        Component::ParentDir => Some(OsStr::new("..")),
        _ => None,
    })
}

impl Tree {
    pub(crate) fn new() -> Tree {
        Tree { nodes: vec![Node { kind: Kind::Directory(BTreeMap::new()), meta: Meta::DIRECTORY }] }
    }

    pub(crate) fn node(&self, id: NodeId) -> &Node {
        &self.nodes[id]
    }

    fn entries(&self, id: NodeId) -> Option<&BTreeMap<OsString, NodeId>> {
        match &self.nodes[id].kind {
            Kind::Directory(entries) => Some(entries),
            _ => None,
        }
    }

    fn entries_mut(&mut self, id: NodeId) -> Option<&mut BTreeMap<OsString, NodeId>> {
        match &mut self.nodes[id].kind {
            Kind::Directory(entries) => Some(entries),
            _ => None,
        }
    }

    /// Walks a path from the root. Returns the canonical path with what is there; with `follow`, the last name's
    /// symbolic link is followed too.
    pub(crate) fn walk(&self, path: &Path, follow: bool) -> Option<(PathBuf, NodeId)> {
        let mut todo: Vec<OsString> = names(path).rev().map(OsStr::to_os_string).collect();
        let mut at = vec![ROOT];
        let mut real = PathBuf::from("/");
        let mut links = 0;
        while let Some(name) = todo.pop() {
            if name == ".." {
                if at.len() > 1 {
                    at.pop();
                    real.pop();
                }
                continue;
            }
            let id = *self.entries(*at.last()?)?.get(&name)?;
            match &self.nodes[id].kind {
                Kind::Link(target) if follow || !todo.is_empty() => {
                    links += 1;
                    if links > MAX_LINKS {
                        return None;
                    }
                    if target.is_absolute() {
                        at.truncate(1);
                        real = PathBuf::from("/");
                    }
                    todo.extend(names(target).rev().map(OsStr::to_os_string));
                }
                _ => {
                    at.push(id);
                    real.push(&name);
                }
            }
        }
        Some((real, *at.last()?))
    }

    /// The content of the regular file a path leads to, and its canonical path.
    pub(crate) fn file(&self, path: &Path) -> Option<(PathBuf, &Content)> {
        let (real, id) = self.walk(path, true)?;
        match &self.nodes[id].kind {
            Kind::File(content) => Some((real, content)),
            _ => None,
        }
    }

    /// The whole of a small text file such as /etc/passwd.
    pub(crate) fn text(&self, path: &str) -> Option<String> {
        let (_, content) = self.file(Path::new(path))?;
        Some(String::from_utf8_lossy(&content.read().ok()?).into_owned())
    }

    pub(crate) fn is_directory(&self, path: &Path) -> bool {
        self.walk(path, true).is_some_and(|(_, id)| self.entries(id).is_some())
    }

    /// The directory a path leads to, made with all above it where it is missing. A symbolic link that leads nowhere
    /// yet has its target made; one that leads to something else, and a file in the way, are errors.
    pub(crate) fn make_directory(&mut self, path: &Path) -> Result<NodeId> {
        let mut todo: Vec<OsString> = names(path).rev().map(OsStr::to_os_string).collect();
        let mut at = vec![ROOT];
        let mut links = 0;
        while let Some(name) = todo.pop() {
            if name == ".." {
                at.truncate(at.len().saturating_sub(1).max(1));
                continue;
            }
            if name.len() > MAX_NAME {
                fail!(Corrupt, "a file name of {} bytes; {MAX_NAME} is the limit", name.len());
            }
            let here = at.last().copied().unwrap_or(ROOT);
            match self.entries(here).and_then(|e| e.get(&name)).copied() {
                None => {
                    let id = self.add(Node { kind: Kind::Directory(BTreeMap::new()), meta: Meta::DIRECTORY });
                    if let Some(entries) = self.entries_mut(here) {
                        entries.insert(name, id);
                    }
                    at.push(id);
                }
                Some(id) => match &self.nodes[id].kind {
                    Kind::Directory(_) => at.push(id),
                    Kind::Link(target) => {
                        links += 1;
                        if links > MAX_LINKS {
                            fail!(Corrupt, "{}: too many symbolic links", path.display());
                        }
                        if target.is_absolute() {
                            at.truncate(1);
                        }
                        todo.extend(names(target).rev().map(OsStr::to_os_string));
                    }
                    Kind::File(_) => {
                        fail!(Corrupt, "{}: a file is where a directory is needed", path.display())
                    }
                },
            }
        }
        Ok(at.last().copied().unwrap_or(ROOT))
    }

    fn add(&mut self, node: Node) -> NodeId {
        self.nodes.push(node);
        self.nodes.len() - 1
    }

    /// The directory above a path and the path's last name; `None` for the root and paths that end in `..`.
    fn place<'a>(&mut self, path: &'a Path) -> Result<Option<(NodeId, &'a OsStr)>> {
        if path.as_os_str().len() >= MAX_PATH {
            fail!(Corrupt, "a path of {} bytes; {MAX_PATH} is the limit", path.as_os_str().len());
        }
        let Some(name) = names(path).next_back().filter(|n| *n != "..") else { return Ok(None) };
        if name.len() > MAX_NAME {
            fail!(Corrupt, "a file name of {} bytes; {MAX_NAME} is the limit", name.len());
        }
        if name.as_bytes().contains(&0) {
            fail!(Corrupt, "a file name holds a NUL byte");
        }
        let above = path.parent().unwrap_or(Path::new("/"));
        Ok(Some((self.make_directory(above)?, name)))
    }

    /// Puts a node at a path, replacing what is there; directories above are made. The root cannot be replaced.
    pub(crate) fn put(&mut self, path: &Path, kind: Kind, meta: Meta) -> Result<()> {
        let Some((above, name)) = self.place(path)? else { return Ok(()) };
        let id = self.add(Node { kind, meta });
        if let Some(entries) = self.entries_mut(above) {
            entries.insert(name.to_os_string(), id);
        }
        Ok(())
    }

    pub(crate) fn put_bytes(&mut self, path: &Path, bytes: impl Into<Arc<[u8]>>, meta: Meta) -> Result<()> {
        self.put(path, Kind::File(Content::Bytes(bytes.into())), meta)
    }

    pub(crate) fn put_link(&mut self, path: &Path, target: impl Into<PathBuf>) -> Result<()> {
        self.put(path, Kind::Link(target.into()), Meta { mode: 0o777, ..Meta::FILE })
    }

    /// A directory of an archive: what is in it stays, its own permissions become these. `keep_link`: a symbolic link
    /// to a directory stays (dpkg's rule); otherwise it makes way (the rule of OCI layers).
    pub(crate) fn put_directory(&mut self, path: &Path, meta: Meta, keep_link: bool) -> Result<()> {
        let Some((above, name)) = self.place(path)? else {
            self.nodes[ROOT].meta = meta;
            return Ok(());
        };
        if let Some(id) = self.entries(above).and_then(|e| e.get(name)).copied() {
            let same = match &self.nodes[id].kind {
                Kind::Directory(_) => Some(id),
                Kind::Link(_) if keep_link && self.is_directory(path) => return Ok(()),
                _ => None,
            };
            if let Some(id) = same {
                self.nodes[id].meta = meta;
                return Ok(());
            }
        }
        self.put(path, Kind::Directory(BTreeMap::new()), meta)
    }

    /// A second name for a file.
    pub(crate) fn put_hard_link(&mut self, path: &Path, target: &Path) -> Result<()> {
        let Some((_, id)) = self.walk(target, false) else {
            fail!(Corrupt, "{}: a hard link to {}, which is not there", path.display(), target.display());
        };
        if self.entries(id).is_some() {
            fail!(Corrupt, "{}: a hard link to a directory", path.display());
        }
        let Some((above, name)) = self.place(path)? else { return Ok(()) };
        if let Some(entries) = self.entries_mut(above) {
            entries.insert(name.to_os_string(), id);
        }
        Ok(())
    }

    /// Takes a path away, with all below it. The last name's symbolic link is not followed.
    pub(crate) fn remove(&mut self, path: &Path) {
        let Some(name) = names(path).next_back() else { return };
        let above = path.parent().unwrap_or(Path::new("/"));
        if let Some((_, id)) = self.walk(above, true)
            && let Some(entries) = self.entries_mut(id)
        {
            entries.remove(name);
        }
    }

    /// Takes away all that is in a directory.
    pub(crate) fn empty(&mut self, path: &Path) {
        if let Some((_, id)) = self.walk(path, true)
            && let Some(entries) = self.entries_mut(id)
        {
            entries.clear();
        }
    }

    /// Everything but the root, in the order of the names: a directory before what is in it.
    pub(crate) fn list(&self) -> Vec<(PathBuf, NodeId)> {
        let mut out = Vec::new();
        let mut stack = vec![(PathBuf::from("/"), ROOT)];
        while let Some((path, id)) = stack.pop() {
            if let Some(entries) = self.entries(id) {
                stack.extend(entries.iter().rev().map(|(name, id)| (path.join(name), *id)));
            }
            if id != ROOT {
                out.push((path, id));
            }
        }
        out
    }

    /// The names in a directory that are text, in order; none for what is no directory.
    pub(crate) fn names_in(&self, path: &Path) -> Vec<String> {
        let entries = self.walk(path, true).and_then(|(_, id)| self.entries(id));
        entries.into_iter().flat_map(BTreeMap::keys).filter_map(|n| n.to_str().map(str::to_string)).collect()
    }

    /// Everything below a directory, in the order of [`Self::list`].
    pub(crate) fn list_below(&self, path: &Path) -> Vec<(PathBuf, NodeId)> {
        let Some((real, id)) = self.walk(path, true) else { return Vec::new() };
        let mut out = Vec::new();
        let mut stack = vec![(real, id)];
        while let Some((path, at)) = stack.pop() {
            if let Some(entries) = self.entries(at) {
                stack.extend(entries.iter().rev().map(|(name, id)| (path.join(name), *id)));
            }
            if at != id {
                out.push((path, at));
            }
        }
        out
    }

    /// Changes the owner or the rights of what is at a path; `false` where there is nothing.
    pub(crate) fn change(&mut self, path: &Path, follow: bool, how: &dyn Fn(&mut Meta)) -> bool {
        match self.walk(path, follow) {
            Some((_, id)) => {
                how(&mut self.nodes[id].meta);
                true
            }
            None => false,
        }
    }

    /// Keeps only the paths for which `keep` says so, and the directories above them.
    pub(crate) fn retain(&mut self, keep: &dyn Fn(&Path) -> bool) {
        self.retain_below(&PathBuf::from("/"), ROOT, keep);
    }

    fn retain_below(&mut self, path: &Path, id: NodeId, keep: &dyn Fn(&Path) -> bool) -> bool {
        let Some(entries) = self.entries(id).cloned() else { return false };
        let mut some = false;
        for (name, child) in entries {
            let path = path.join(&name);
            let mut stays = keep(&path);
            stays |= self.retain_below(&path, child, keep);
            some |= stays;
            if !stays && let Some(entries) = self.entries_mut(id) {
                entries.remove(&name);
            }
        }
        some
    }

    /// How many names each node has.
    pub(crate) fn link_counts(&self) -> HashMap<NodeId, u32> {
        let mut counts = HashMap::new();
        for (_, id) in self.list() {
            *counts.entry(id).or_insert(0) += 1;
        }
        counts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(text: &str) -> &Path {
        Path::new(text)
    }

    #[test]
    fn dot_dot_and_links_stay_inside() {
        let mut tree = Tree::new();
        tree.put_link(path("/escape"), "../../../../etc").unwrap();
        tree.put_link(path("/absolute"), "/etc").unwrap();
        tree.put_bytes(path("escape/passwd"), *b"x", Meta::FILE).unwrap();
        tree.put_bytes(path("absolute/../../group"), *b"y", Meta::FILE).unwrap();
        assert_eq!(tree.text("/etc/passwd").as_deref(), Some("x"));
        assert_eq!(tree.text("/group").as_deref(), Some("y"));
        assert_eq!(tree.text("/../../etc/passwd").as_deref(), Some("x"));
        assert!(tree.put(path("/a/.."), Kind::Link("x".into()), Meta::FILE).is_ok());
        assert!(tree.put(path("/"), Kind::Link("x".into()), Meta::FILE).is_ok());
        assert!(tree.is_directory(path("/")));
    }

    #[test]
    fn a_loop_of_links_is_an_error_and_not_a_hang() {
        let mut tree = Tree::new();
        tree.put_link(path("/a"), "b").unwrap();
        tree.put_link(path("/b"), "a").unwrap();
        assert!(tree.walk(path("/a/x"), true).is_none());
        assert!(tree.put_bytes(path("/a/x"), *b"", Meta::FILE).is_err());
    }

    #[test]
    fn directories_of_packages_keep_links_and_those_of_layers_replace_them() {
        for keep in [true, false] {
            let mut tree = Tree::new();
            tree.put_bytes(path("/usr/lib/a"), *b"", Meta::FILE).unwrap();
            tree.put_link(path("/lib"), "usr/lib").unwrap();
            tree.put_directory(path("lib"), Meta::DIRECTORY, keep).unwrap();
            assert_eq!(tree.file(path("/lib/a")).is_some(), keep);
        }
    }

    #[test]
    fn names_and_paths_have_limits() {
        let mut tree = Tree::new();
        let long = "x".repeat(256);
        assert!(tree.put_bytes(path(&long), *b"", Meta::FILE).is_err());
        assert!(tree.put_bytes(path(&format!("{long}/y")), *b"", Meta::FILE).is_err());
        let deep = "d/".repeat(3000);
        assert!(tree.put_bytes(path(&deep), *b"", Meta::FILE).is_err());
    }

    #[test]
    fn retain_keeps_the_directories_above() {
        let mut tree = Tree::new();
        for p in ["/a/b/c", "/a/d", "/e"] {
            tree.put_bytes(path(p), *b"", Meta::FILE).unwrap();
        }
        tree.retain(&|p| p == path("/a/b/c"));
        let left: Vec<_> = tree.list().into_iter().map(|(p, _)| p).collect();
        assert_eq!(left, [path("/a"), path("/a/b"), path("/a/b/c")]);
    }
}
