// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Names, attributes, listings and pages at a server of ours: what is known, or asked for in its own messages.

use super::*;

/// What is in a directory.
#[derive(Default)]
pub(super) struct Listed {
    entries: Vec<DirEntry>,
    /// Those of them that came with their attributes and are no directories.
    files: Vec<(Vec<u8>, Entry)>,
}

impl Listed {
    /// Takes in the body of an answer to [`kind::LIST`]: whether there is nothing behind it, and where that would continue.
    fn read(
        &mut self,
        client: &Client,
        r: &mut Reply<'_>,
        with_attributes: bool,
    ) -> Result<(bool, Option<u64>)> {
        let (is_last, length) = (r.u8()? != 0, r.u32()?);
        let mut entries = Reply(r.take(length as usize)?);
        let mut last = None;
        while !entries.0.is_empty() {
            let (next, entry) = read_entry(&mut entries)?;
            last = Some(next);
            let more = if with_attributes { entries.u8()? } else { 0 };
            let stat = if more != 0 { Some(read_attributes(client, &mut entries)?) } else { None };
            let target = if more == 2 { Some(Arc::from(entries.string()?)) } else { None };
            let Some(entry) = entry else { continue };
            if let Some(stat) = stat.filter(|stat| stat.kind != FileType::Directory) {
                self.files.push((entry.name.clone(), Entry::File(KnownFile::new(stat, target))));
            }
            self.entries.push(entry);
        }
        Ok((is_last, last))
    }
}

impl Node {
    /// What is known of this file where it was found.
    fn with_known<T>(&self, read: impl FnOnce(&KnownFile) -> Option<T>) -> Option<T> {
        let (directory, name) = self.place()?;
        directory.with_entry(&name, |entry| {
            entry.file().filter(|file| file.stat.inode == self.path).and_then(read)
        })
    }

    /// Where a symbolic link is known to lead.
    pub(super) fn known_target(&self) -> Option<Arc<[u8]>> {
        self.with_known(|file| file.target.clone())
    }

    /// Asks where a symbolic link leads.
    pub(super) fn ask_for_target(&self) -> Result<Vec<u8>> {
        let asked = self.place().map(|(directory, name)| (directory.mark(), directory, name));
        let own = self.fid()?;
        let request = self.client.request(kind::READLINK).fid(&own);
        let target = self.client.call(request, |r| Ok(r.string()?.to_vec()))?;
        if let Some((mark, directory, name)) = asked {
            directory.keep_of(&name, self.path, mark, |file| file.target = Some(Arc::from(&target[..])));
        }
        Ok(target)
    }

    /// The state of the file's data, for as long as nobody changes it; `None`: it is not told when that happens.
    pub(crate) fn version(&self) -> Option<u64> {
        self.with_known(|file| file.is_sure.then_some(file.version))
    }

    pub(crate) fn path(&self) -> u64 {
        self.path
    }

    /// Its pages, true or not.
    pub(crate) fn any_pages(&self) -> Option<Arc<NinePages>> {
        self.pages.lock().upgrade()
    }

    /// Its pages, where it is mapped or they are true still.
    pub(crate) fn live_pages(&self) -> Option<Arc<NinePages>> {
        let pages = self.pages.lock().upgrade()?;
        if pages.version().is_some() && pages.version() != self.version() {
            self.client.kept.forget(self.path);
            drop(pages);
            return self.pages.lock().upgrade();
        }
        Some(pages)
    }

    /// The pages of the file, which are read by this handle where there are none yet.
    pub(crate) fn pages_by(self: &Arc<Node>, fid: &Arc<Fid>) -> Result<Arc<NinePages>> {
        if let Some(pages) = self.live_pages() {
            pages.also(fid);
            return Ok(pages);
        }
        let version = self.version().filter(|_| !fid.is_written());
        let pages = NinePages::new(self.clone(), fid.clone(), self.attributes()?.size, version);
        let first = {
            let mut known = self.pages.lock();
            match known.upgrade() {
                // Another thread mapped the file while this one waited for its size: all mappings show the same pages.
                Some(first) => first,
                None => {
                    *known = Arc::downgrade(&pages);
                    drop(known);
                    if version.is_some() {
                        self.client.kept.keep(&pages);
                    }
                    return Ok(pages);
                }
            }
        };
        first.also(fid);
        Ok(first)
    }

    /// What is known without asking.
    pub(super) fn sure_attributes(&self) -> Option<Stat> {
        match self.kind {
            FileType::Directory => self.known_stat(),
            _ => self.with_known(|file| file.is_sure.then_some(file.stat)),
        }
    }

    /// What a name is known to lead to.
    pub(super) fn known_child(&self, name: &[u8]) -> Option<Result<Arc<Node>>> {
        enum Way {
            Nowhere,
            File(Stat),
            Directory(Arc<Node>),
        }
        let way = self.with_entry(name, |entry| match entry {
            Entry::Nothing => Some(Way::Nowhere),
            Entry::File(file) => Some(Way::File(file.stat)),
            Entry::Directory(node) => node.upgrade().map(Way::Directory),
        })?;
        Some(match way {
            Way::Nowhere => Err(ENOENT),
            Way::Directory(node) => Ok(node),
            Way::File(stat) => {
                if self.known.lock().is_listed {
                    self.client.looks_at_listed();
                }
                let node = Node::new(&self.client, stat, None, false);
                let node = enlist(node);
                self.is_place_of(&node, name);
                Ok(node)
            }
        })
    }

    /// What a name leads to that is looked for after others of the same listing: that is asked for again, with all attributes.
    pub(super) fn read_ahead(&self, name: &[u8]) -> Option<Result<Arc<Node>>> {
        if !self.known.lock().misses() {
            return None;
        }
        // Where that goes wrong the name itself is asked for.
        let (listed, mark, _) = self.ask_for_listing(0, usize::MAX, true).ok()?;
        self.keep_entries(listed.files, mark);
        self.known_child(name)
    }

    /// A file was found by this name here.
    fn is_place_of(&self, node: &Node, name: &[u8]) {
        let before = node.place.lock().replace((self.this.clone(), name.into()));
        drop(before);
    }

    /// A handle leads to it, so that the server keeps the file.
    pub(super) fn is_held(&self) -> bool {
        self.fid.lock().is_some()
    }

    /// The name by which it was found is known to lead to it still.
    pub(super) fn has_its_place(&self) -> bool {
        self.with_known(|_| Some(())).is_some()
    }

    /// Where it was found last, if anybody uses that directory still.
    pub(super) fn place(&self) -> Option<(Arc<Node>, Arc<[u8]>)> {
        let (directory, name) = self.place.lock().clone()?;
        Some((directory.upgrade()?, name))
    }

    /// The value of [`CAPABILITIES`].
    pub(super) fn capabilities(&self) -> Result<Vec<u8>> {
        if let Some(error) = self.with_known(|file| file.no_capabilities.filter(|_| file.is_sure)) {
            return Err(error);
        }
        let asked = self.place().map(|(directory, name)| (directory.mark(), directory, name));
        let value = self.read_xattr(CAPABILITIES, XATTR_LIMIT);
        if let (Err(error @ (ENODATA | EOPNOTSUPP)), Some((mark, directory, name))) = (&value, asked) {
            directory.keep_of(&name, self.path, mark, |file| file.no_capabilities = Some(*error));
        }
        value
    }

    /// Asks the server what a name leads to.
    pub(super) fn look(&self, name: &[u8]) -> Result<Arc<Node>> {
        let own = self.fid()?;
        let mark = self.mark();
        // Who lists a directory is likely to list those in it.
        let wanted = match (self.known.lock().is_listed, self.client.wants_attributes()) {
            (false, _) => Wanted::Nothing,
            (true, false) => Wanted::Listing,
            (true, true) => Wanted::ListingWithAttributes,
        };
        let asked = self.client.look(&own, Some(name), wanted, |r| {
            let stat = read_attributes(&self.client, r)?;
            let (mut target, mut listed) = (None, None);
            match stat.kind {
                FileType::Symlink => target = Some(Arc::from(r.string()?)),
                FileType::Directory if wanted != Wanted::Nothing => {
                    self.client.was_listed();
                    let mut found = Listed::default();
                    let with_attributes = wanted == Wanted::ListingWithAttributes;
                    let (is_all, _) = found.read(&self.client, r, with_attributes)?;
                    listed = is_all.then_some(found);
                }
                _ => {}
            }
            Ok((stat, target, listed))
        });
        let (fid, watch, (stat, target, listed)) = match asked {
            Ok(answer) => answer,
            Err(ENOENT) => {
                self.keep_entry(name, Entry::Nothing, mark);
                return Err(ENOENT);
            }
            Err(e) => return Err(e),
        };
        let node = found(&self.client, fid, watch, stat, listed, mark.strangers(), false);
        if stat.kind == FileType::Directory {
            if watch.is_none() && mark.strangers().is_some() {
                self.client.remember_fewer();
            }
            self.client.remember(&node);
            self.keep_entry(name, Entry::Directory(Arc::downgrade(&node)), mark);
        } else {
            if self.known.lock().is_listed {
                self.client.looks_at_listed();
            }
            self.is_place_of(&node, name);
            self.keep_entry(name, Entry::File(KnownFile::new(stat, target)), mark);
        }
        Ok(node)
    }

    /// A listing, from what is known or in as few messages as it takes.
    pub(super) fn list_at_once(&self, from: u64, most: usize) -> Result<Vec<DirEntry>> {
        if let Some(list) = self.known_listing() {
            let start = match from {
                0 => Some(0),
                _ => list.iter().position(|entry| entry.next == from).map(|at| at + 1),
            };
            if let Some(start) = start {
                return Ok(list[start..].iter().take(most).cloned().collect());
            }
        }
        let with_attributes = self.client.wants_attributes();
        self.client.was_listed();
        let (listed, mark, is_whole) = self.ask_for_listing(from, most, with_attributes)?;
        let out = listed.entries.iter().take(most).cloned().collect();
        if is_whole {
            self.keep_listed(listed, mark);
        } else {
            self.keep_entries(listed.files, mark);
        }
        Ok(out)
    }

    /// A listing from a place on, of `most` entries at least if there are so many; of when it is, and whether it is all.
    fn ask_for_listing(&self, from: u64, most: usize, with_attributes: bool) -> Result<(Listed, Mark, bool)> {
        let (own, mark) = (self.fid()?, self.mark());
        let mut listed = Listed::default();
        let mut offset = from;
        let is_whole = loop {
            let count = self.client.io_limit();
            let request = self.client.request(kind::LIST).fid(&own).u64(offset).u32(count);
            let request = request.u8(with_attributes.into());
            let before = offset;
            let is_last = self.client.call_for_data(request, count + 1, |r| {
                let (is_last, last) = listed.read(&self.client, r, with_attributes)?;
                offset = last.unwrap_or(offset);
                Ok(is_last)
            })?;
            if is_last {
                break from == 0;
            }
            if listed.entries.len() >= most {
                break false;
            }
            // A server that does not move on would be asked for ever.
            if offset == before {
                return Err(EIO);
            }
        };
        Ok((listed, mark, is_whole))
    }

    /// Keeps a whole listing. `mark`: of when it was asked for.
    pub(super) fn keep_listed(&self, listed: Listed, mark: Mark) {
        self.keep_entries(listed.files, mark);
        self.keep_listing(listed.entries, mark);
        self.known.lock().is_listed = true;
    }

    /// The file of this name is about to have it no more: whoever uses it needs a handle that does not go by it.
    pub(super) fn settle(&self, name: &[u8]) {
        if !self.client.is_extended() {
            return;
        }
        let inode = self.with_entry(name, |entry| entry.file().map(|file| file.stat.inode));
        let used = inode.and_then(|inode| self.client.nodes.lock().get(&inode).and_then(Weak::upgrade));
        if let Some(used) = used {
            // Where there is none, the name has gone already. Its bytes are the host's once nobody uses it.
            if let Ok(fid) = used.fid() {
                fid.hurries();
            }
            self.client.kept.forget(used.path);
        }
    }
}
