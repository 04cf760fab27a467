// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Open files of a volume.

use crate::client::Fid;
use crate::node::{Node, O_APPEND};
use crate::pages::NinePages;
use crate::wire::kind;
use abi::{Result, errno::*};
use alloc::sync::Arc;
use alloc::vec::Vec;
use api_alloc::Reserve;
use api_fs::{File, Inode, SetAttr, Sink, Source, Stat};
use api_mem::{Gather, PageSource};
use api_user::Segment;
use core::any::Any;
use core::sync::atomic::Ordering;

/// An open file; a directory has no handle of its own.
pub struct NineFile {
    node: Arc<Node>,
    inode: Arc<dyn Inode>,
    fid: Option<Arc<Fid>>,
    /// The server puts every write at the end.
    appends: bool,
}

impl NineFile {
    pub fn new(node: Arc<Node>, inode: Arc<dyn Inode>, fid: Option<Arc<Fid>>, flags: u32) -> NineFile {
        node.open_files.fetch_add(1, Ordering::Relaxed);
        NineFile { node, inode, fid, appends: flags & O_APPEND != 0 }
    }

    fn fid(&self) -> Result<&Arc<Fid>> {
        self.fid.as_ref().ok_or(EISDIR)
    }

    /// The pages that a read of so many bytes goes by: those that there are, and of a small file that is read in pieces those that are
    /// kept. Of a file that the server gave only those that know more than it has: to read it takes no longer than to learn whether others
    /// are true still.
    fn pages_to_read(&self, fid: &Arc<Fid>, length: usize) -> Option<Arc<NinePages>> {
        if fid.given().is_some() {
            return self.node.any_pages().filter(|pages| pages.are_written());
        }
        if let Some(pages) = self.node.live_pages() {
            return Some(pages);
        }
        if length >= LEAST_PAST_PAGES || fid.is_written() || self.node.version().is_none() {
            return None;
        }
        let size = self.node.attributes().ok()?.size;
        let is_small = size <= self.node.client().kept.largest_file();
        if is_small { self.node.pages_by(fid).ok() } else { None }
    }
}

/// Reads of so many bytes make no pages that are kept.
const LEAST_PAST_PAGES: usize = 64 << 10;
/// From so many bytes on, data goes to or from the program's memory without a copy: naming its pages has its price, too.
const LEAST_DIRECT: usize = 8 << 10;

/// What can be moved of a piece of the program's memory without a copy: in one message ([`Client::hold`]), or to and from a file that was
/// given ([`Client::hold_for_given`]).
fn direct(piece: Option<Segment>, hold: impl FnOnce(Segment) -> Gather) -> Option<Gather> {
    let large = |length: usize| length >= LEAST_DIRECT;
    let piece = piece.filter(|piece| large(piece.length))?;
    Some(hold(piece)).filter(|pages| large(pages.length))
}

/// Reads so small go by the stack.
const SMALL: usize = 4096;
/// Most that goes by memory of the kernel at once.
const MAX_COPIED: usize = 64 << 10;

/// Reads once from a file that the server gave; `None`: the server is to be asked.
fn read_given(fid: &Fid, offset: u64, to: &mut Sink<'_>) -> Option<Result<usize>> {
    let given = fid.given()?;
    if let Some(pages) = direct(to.piece(), |piece| fid.client().hold_for_given(piece, true)) {
        let n = given.read_pages(offset, &pages)?;
        to.skip(n);
        return Some(Ok(n));
    }
    let (mut small, mut large) = ([0; SMALL], Vec::new());
    let room = to.remaining().min(MAX_COPIED);
    let bytes = if room <= SMALL {
        &mut small[..room]
    } else {
        if large.reserve_exact_fallibly(room).is_err() {
            return Some(Err(ENOMEM));
        }
        large.resize(room, 0);
        &mut large[..]
    };
    let n = given.read(offset, bytes)?;
    Some(to.put_up_to_fault(&bytes[..n]))
}

/// Reads once: from what the server gave, or at most one message from the server.
pub fn read_once(fid: &Fid, offset: u64, to: &mut Sink<'_>) -> Result<usize> {
    if let Some(done) = read_given(fid, offset, to) {
        return done;
    }
    let client = fid.client();
    let request = |count| client.request(kind::READ).fid(fid).u64(offset).u32(count);
    let check = |n: u32, count: u32| if n > count { Err(EIO) } else { Ok(n as usize) };
    if let Some(pages) = direct(to.piece(), |piece| client.hold(piece, true)) {
        let count = pages.length as u32;
        let n = client.call_direct(request(count), pages, |r| check(r.u32()?, count))?;
        to.skip(n);
        return Ok(n);
    }
    let count = client.io_limit().min(u32::try_from(to.remaining()).unwrap_or(u32::MAX));
    client.call_for_data(request(count), count, |r| {
        let n = check(r.u32()?, count)?;
        to.put_up_to_fault(r.take(n)?)
    })
}

/// Writes once: to what the server gave, or at most one message to the server. Bytes taken from `from` and not stored are lost to it, so a short
/// write ends the call.
pub fn write_once(fid: &Fid, offset: u64, from: &mut Source<'_>) -> Result<(usize, bool)> {
    let client = fid.client();
    if let Some(given) = fid.given()
        && let Some(pages) = direct(from.piece(), |piece| client.hold_for_given(piece, false))
        && let Some(written) = given.write_pages(offset, &pages)
    {
        from.skip(written);
        return Ok((written, written < pages.length));
    }
    if let Some(pages) = direct(from.piece(), |piece| client.hold(piece, false)) {
        let want = pages.length;
        let request = client.request(kind::WRITE).fid(fid).u64(offset).u32(want as u32);
        let written = client.call_direct(request, pages, |r| r.u32())? as usize;
        from.skip(written.min(want));
        return if written > want { Err(EIO) } else { Ok((written, written < want)) };
    }
    let want = from.remaining().min(client.io_limit() as usize);
    let mut request = client.request(kind::WRITE).fid(fid).u64(offset).u32(0);
    let bytes = request.bytes();
    let start = bytes.len();
    bytes.reserve_fallibly(want).map_err(|_| ENOMEM)?;
    bytes.resize(start + want, 0);
    let n = from.take_up_to_fault(&mut bytes[start..])?;
    bytes.truncate(start + n);
    if let Some(written) = fid.given().and_then(|given| given.write(offset, &bytes[start..])) {
        client.drop_request(request);
        return Ok((written.min(n), written < want));
    }
    bytes[start - 4..start].copy_from_slice(&(n as u32).to_le_bytes());
    let written = client.call(request, |r| r.u32())? as usize;
    if written > n { Err(EIO) } else { Ok((written, written < want)) }
}

impl File for NineFile {
    fn read(&self, offset: u64, to: &mut Sink<'_>) -> Result<usize> {
        let fid = self.fid()?;
        let pages = self.pages_to_read(fid, to.remaining());
        if let Some(end) = self.node.own_end() {
            to.limit(usize::try_from(end.saturating_sub(offset)).unwrap_or(usize::MAX));
        }
        let mut done = 0;
        while to.remaining() > 0 {
            let at = offset.saturating_add(done as u64);
            let moved = match &pages {
                Some(pages) => pages.read(fid, at, to),
                None => read_once(fid, at, to),
            };
            match moved {
                Ok(0) => break,
                Ok(n) => done += n,
                Err(e) if done == 0 => return Err(e),
                Err(_) => break,
            }
            // What was given does not wait for anybody.
            api_sched::cond_resched();
        }
        Ok(done)
    }

    fn write(&self, offset: u64, from: &mut Source<'_>) -> Result<usize> {
        let fid = self.fid()?;
        if offset.checked_add(from.remaining() as u64).is_none_or(|end| end > i64::MAX as u64) {
            return Err(EFBIG);
        }
        // The server's end is behind the file's.
        if self.appends && self.node.own_end().is_some() {
            return Err(EIO);
        }
        let pages = match fid.given() {
            Some(_) => self.node.any_pages(),
            None => self.node.live_pages(),
        };
        let mut done = 0;
        while from.remaining() > 0 {
            let at = offset + done as u64;
            match write_once(fid, at, from) {
                Ok((n, short)) => {
                    done += n;
                    if let Some(pages) = &pages {
                        pages.written(fid, at, n);
                    }
                    if short || n == 0 {
                        break;
                    }
                    api_sched::cond_resched();
                }
                Err(e) if done == 0 => return Err(e),
                Err(_) => break,
            }
        }
        self.node.grew(offset + done as u64);
        Ok(done)
    }

    fn append(&self, from: &mut Source<'_>) -> Result<(usize, u64)> {
        let end = self.size()?;
        let n = self.write(end, from)?;
        // The server may have put it behind what others appended meanwhile.
        let end = if self.appends { self.size()?.max(end + n as u64) } else { end + n as u64 };
        Ok((n, end))
    }

    fn is_seekable(&self) -> bool {
        true
    }

    fn allocate(&self, mode: u32, offset: u64, length: u64) -> Result<()> {
        // The protocol cannot reserve space; making the file longer is what most callers want.
        if mode != 0 {
            return Err(EOPNOTSUPP);
        }
        let end = offset.checked_add(length).filter(|end| *end <= i64::MAX as u64).ok_or(EFBIG)?;
        if end > self.size()? { self.truncate(end) } else { Ok(()) }
    }

    fn stat(&self) -> Result<Stat> {
        self.node.attributes()
    }

    fn inode(&self) -> Option<&Arc<dyn Inode>> {
        Some(&self.inode)
    }

    fn page_source(&self) -> Result<Arc<dyn PageSource>> {
        let fid = self.fid().map_err(|_| ENODEV)?;
        Ok(self.node.pages_by(fid)?)
    }

    fn sync(&self, data_only: bool) -> Result<()> {
        let fid = match &self.fid {
            Some(fid) => fid.clone(),
            // A directory: the host stores names with its own journal.
            None => return Ok(()),
        };
        let pages = self.node.live_pages();
        if let Some(pages) = pages {
            pages.store_all()?;
        }
        let request = fid.client().request(kind::FSYNC).fid(&fid).u32(data_only as u32);
        fid.client().call(request, |_| Ok(()))
    }

    fn truncate(&self, size: u64) -> Result<()> {
        match self.inode.set_attr(&SetAttr { size: Some(size), ..SetAttr::default() }) {
            // Where the server writes at its own end, nothing can be cleared.
            Err(ENOENT) if self.node.nameless.is_told() && !self.appends => {
                self.node.cut_nameless(self.fid()?, size)
            }
            result => result,
        }
    }

    /// Others may wait for the end of a file that was written, and for the bytes of one that has no name.
    fn close(&self) -> Result<()> {
        match &self.fid {
            // A server of ours is told when the handle is dropped.
            _ if self.node.client().is_extended() => {}
            Some(fid)
                if Arc::strong_count(fid) == 1 && (fid.is_written() || self.node.nameless.is_told()) =>
            {
                fid.end();
                self.node.lets_go(1);
                self.node.client().give_back_at_once();
            }
            _ => self.node.client().give_back(),
        }
        Ok(())
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

impl Drop for NineFile {
    fn drop(&mut self) {
        self.node.open_files.fetch_sub(1, Ordering::Relaxed);
    }
}
