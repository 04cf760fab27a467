// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Requests and answers, and the handles (fids) they name files by.

use crate::node::Node;
use crate::pages::Kept;
use crate::wire::{HEADER, Qid, Reply, Request, kind};
use abi::{Errno, PAGE_SIZE, Result, errno::*};
use alloc::boxed::Box;
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use api_alloc::Reserve;
use api_lock::SpinLock;
use api_mem::{Gather, PageFrame};
use api_user::Segment;
use core::marker::PhantomData;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use ordered::Map;

/// Carries one request to the server and its reply back.
pub trait Transport: Send + Sync {
    /// Sends `request` and answers it, to be used again, with the whole reply, which is written to the capacity of
    /// `reply`. May sleep; several threads may call at a time, and no two requests in flight have the same tag. `EIO` when
    /// the server is gone: no reply comes after an error.
    fn call(&self, request: Vec<u8>, reply: Vec<u8>) -> Result<(Vec<u8>, Vec<u8>)>;

    /// Largest message in either direction.
    fn largest(&self) -> usize;

    /// The server's handles lead to what has the name now by which they were found, not to a file that has lost it.
    fn goes_by_names(&self) -> bool {
        false
    }

    /// The server knows the messages of ours ([`kind::LOOK`] and behind it).
    fn is_extended(&self) -> bool {
        false
    }

    /// Bytes of the program's memory that can be part of a message where they are; 0: none.
    fn most_direct(&self) -> usize {
        0
    }

    /// The pages of the program's memory from `address` on that can be part of a message, as far as they can: of the
    /// reply, or of the request.
    fn hold(&self, _address: u64, _length: usize, _is_reply: bool) -> Vec<PageFrame> {
        Vec::new()
    }

    /// Sends a request whose answer nobody waits for, behind all that were sent before: its tag is [`POSTED`], whatever others are on their
    /// way. Never sleeps. False: it was not sent.
    fn post(&self, _request: &[u8]) -> bool {
        false
    }

    /// As [`Transport::call`], for an answer with which the server may give the file that it opens.
    fn call_to_open(&self, request: Vec<u8>, reply: Vec<u8>) -> Result<OpenAnswered> {
        self.call(request, reply).map(|(request, reply)| (request, reply, None))
    }

    /// As [`Transport::call`], with pages behind the bytes of `request` or of `reply`, which is all of it that is written
    /// but for them. Answers the whole length of the reply as well.
    fn call_direct(&self, _request: Vec<u8>, _reply: Vec<u8>, _pages: Gather) -> Result<Answered> {
        Err(EOPNOTSUPP)
    }
}

/// A file of the server's that is read and written without asking it.
pub trait Given: Send + Sync {
    /// Reads what can be read at once. `None`: the server is to be asked, who may wait, and knows what is wrong.
    fn read(&self, offset: u64, to: &mut [u8]) -> Option<usize>;

    fn read_pages(&self, offset: u64, to: &Gather) -> Option<usize>;

    /// Writes. `None`: nothing was written, and the server is to be asked.
    fn write(&self, offset: u64, from: &[u8]) -> Option<usize>;

    fn write_pages(&self, offset: u64, from: &Gather) -> Option<usize>;
}

/// Request and reply of [`Transport::call_to_open`], and the file.
pub type OpenAnswered = (Vec<u8>, Vec<u8>, Option<Box<dyn Given>>);

/// Request and reply of [`Transport::call_direct`], and how long the reply is with its data.
pub type Answered = (Vec<u8>, Vec<u8>, usize);

const VERSION: &[u8] = b"9P2000.L";
/// Tag of Tversion, and fid for "no authentication".
const NO_TAG: u16 = 0xffff;
/// Tag of requests that are posted: servers of ours answer in turn and do not look at it.
pub const POSTED: u16 = 0xfffe;
const NO_FID: u32 = u32::MAX;
/// Bytes of a read or write message around its data.
const IO_HEADER: u32 = 24;
/// Smallest message size worth having: a path and its headers.
const LEAST_MESSAGE: u32 = 8192;
/// Bytes of a Rread before its data; of an Rlerror, too.
const READ_HEADER: usize = 11;
/// Most data of one read or write of a file that the server gave: a host call with so many pages.
pub const MAX_GIVEN: usize = 512 << 10;
/// Most data that is copied into or out of one message: contiguous memory of the kernel.
const MAX_COPIED: u32 = 128 << 10;
/// Room for every answer that carries no data: the longest is a link's target.
const SMALL_REPLY: usize = 8192;
/// Buffers kept for the next requests.
const SPARE_BUFFERS: usize = 4;

/// A session with a server (version(5)): what all trees have in common that are reached over one transport.
pub struct Session {
    transport: Arc<dyn Transport>,
    /// Largest message, as agreed.
    message: AtomicU32,
    tags: SpinLock<Tags>,
    fids: SpinLock<Fids>,
    buffers: SpinLock<Vec<Vec<u8>>>,
}

/// One tree of a server's.
pub struct Client {
    session: Arc<Session>,
    pub device: u64,
    /// Inodes in use, by the path of their qid, which another tree may use as well.
    pub nodes: SpinLock<Map<u64, Weak<Node>>>,
    /// Directories that were looked at last, so that what is known of them stays.
    recent: SpinLock<Recent>,
    /// Listings since somebody looked at a file in a directory that had been listed.
    since_look: AtomicU32,
    pub kept: Kept,
}

/// Most of them, each of which is a descriptor of the server's, and the fewest that there is room for.
const MAX_RECENT: usize = 8192;
const LEAST_RECENT: usize = 16;
/// One for so many pages of memory.
const PAGES_PER_RECENT: u64 = 32;

/// After so many listings that nobody used the attributes of, they are no longer asked for: who lists a whole tree looks at all
/// directories in a directory before he goes into one.
const PATIENCE: u32 = 32;

struct Recent {
    ring: Vec<Arc<Node>>,
    next: usize,
    most: usize,
}

/// How many there may be at first.
fn most_recent() -> usize {
    let (pages, _) = api_mem::statistics();
    ((pages / PAGES_PER_RECENT) as usize).clamp(LEAST_RECENT, MAX_RECENT)
}

impl Recent {
    fn take(&mut self) -> Vec<Arc<Node>> {
        self.next = 0;
        core::mem::take(&mut self.ring)
    }
}

/// Tags of requests: replies are told apart by them, so one that is in flight is not given out again, however many requests come
/// and go meanwhile.
#[derive(Default)]
struct Tags {
    /// Those below were given out before.
    next: u16,
    free: Vec<u16>,
}

/// The tag of a request in flight, free again when it is dropped.
struct Tag<'a> {
    session: &'a Session,
    number: u16,
}

impl Drop for Tag<'_> {
    fn drop(&mut self) {
        self.session.tags.lock().free.push(self.number);
    }
}

#[derive(Default)]
struct Fids {
    next: u32,
    free: Vec<u32>,
    /// Dropped, and not yet given back to the server.
    dropped: Vec<u32>,
    /// One of these is to be given back with the next request at the latest.
    is_urgent: bool,
}

impl Fids {
    /// Those that are to be given back now, as many as fit one message.
    fn take_dropped(&mut self) -> Vec<u32> {
        self.is_urgent = false;
        let left = self.dropped.len().saturating_sub(MAX_CLUNKS);
        self.dropped.split_off(left)
    }
}

/// A handle of the server, given back when it is dropped.
pub struct Fid {
    client: Arc<Client>,
    number: u32,
    /// The server knows it.
    is_live: AtomicBool,
    /// It is open for writing.
    is_written: bool,
    /// It is to be given back as soon as it is dropped: others may wait for the end of what is written, and the host keeps the bytes of
    /// what has no name.
    hurries: AtomicBool,
    /// What the server gave when it was opened.
    given: Option<Box<dyn Given>>,
}

impl Fid {
    pub fn client(&self) -> &Arc<Client> {
        &self.client
    }

    /// What it stands for, to be read and written without the server.
    pub fn given(&self) -> Option<&dyn Given> {
        self.given.as_deref()
    }

    /// It is open for writing.
    pub fn is_written(&self) -> bool {
        self.is_written
    }

    /// Its file may have lost its last name.
    pub fn hurries(&self) {
        self.hurries.store(true, Ordering::Relaxed);
    }

    /// A request made the server know it.
    pub fn now_live(&self) {
        self.is_live.store(true, Ordering::Relaxed);
    }

    /// Gives it back at once; nobody uses it any more.
    pub fn end(&self) {
        if self.is_live.swap(false, Ordering::Relaxed) {
            let request = self.client.request(kind::CLUNK).fid(self);
            // Whatever the answer, the handle is gone.
            let _ = self.client.call(request, |_| Ok(()));
        }
    }

    /// Gives it back at once, for what the server's answer says.
    pub fn clunk(self) -> Result<()> {
        self.is_live.store(false, Ordering::Relaxed);
        let request = self.client.request(kind::CLUNK).fid(&self);
        self.client.call(request, |_| Ok(()))
    }
}

/// A request that is being written. It borrows the handles that it names, until it is answered: a handle that were dropped before would be
/// given back, and its number might name another file when the request is sent.
pub struct Message<'f>(Request, PhantomData<&'f Fid>);

impl<'f> Message<'f> {
    pub fn fid(self, fid: &'f Fid) -> Message<'f> {
        self.u32(fid.number)
    }

    pub fn u8(self, value: u8) -> Message<'f> {
        Message(self.0.u8(value), PhantomData)
    }

    pub fn u16(self, value: u16) -> Message<'f> {
        Message(self.0.u16(value), PhantomData)
    }

    pub fn u32(self, value: u32) -> Message<'f> {
        Message(self.0.u32(value), PhantomData)
    }

    pub fn u64(self, value: u64) -> Message<'f> {
        Message(self.0.u64(value), PhantomData)
    }

    /// Names and targets are at most a path long, which fits the 16-bit length.
    pub fn string(self, value: &[u8]) -> Message<'f> {
        Message(self.0.string(value), PhantomData)
    }

    /// The bytes so far, for data behind them.
    pub fn bytes(&mut self) -> &mut Vec<u8> {
        &mut self.0.0
    }
}

impl Drop for Fid {
    fn drop(&mut self) {
        // The machine's own descriptor of the file first.
        self.given = None;
        let session = &self.client.session;
        let mut fids = session.fids.lock();
        if !*self.is_live.get_mut() {
            fids.free.push(self.number);
            return;
        }
        fids.dropped.push(self.number);
        let hurries = *self.hurries.get_mut();
        if (hurries || fids.dropped.len() >= MANY) && session.transport.is_extended() {
            drop(fids);
            session.post_dropped();
        } else {
            fids.is_urgent |= hurries;
        }
    }
}

impl Session {
    /// Agrees on the version and message size. What the server had open of an earlier session is closed.
    pub fn begin(transport: Arc<dyn Transport>) -> Result<Arc<Session>> {
        let most =
            transport.largest().min(transport.most_direct().max(MAX_COPIED as usize) + IO_HEADER as usize);
        let wanted = u32::try_from(most).map_err(|_| EINVAL)?;
        let session = Arc::new(Session {
            transport,
            message: AtomicU32::new(wanted),
            tags: SpinLock::default(),
            fids: SpinLock::default(),
            buffers: SpinLock::new(Vec::new()),
        });
        let request = session.request(kind::VERSION).u32(wanted).string(VERSION);
        let (size, known) =
            session.exchange(request, NO_TAG, SMALL_REPLY, |r| Ok((r.u32()?, r.string()? == VERSION)))?;
        if !known {
            return Err(EPROTONOSUPPORT);
        }
        if size < LEAST_MESSAGE || size > wanted {
            return Err(EIO);
        }
        session.message.store(size, Ordering::Relaxed);
        Ok(session)
    }

    /// Bytes of data that fit one message.
    fn most_data(&self) -> u32 {
        self.message.load(Ordering::Relaxed) - IO_HEADER
    }

    /// A message of that type, to be filled in.
    fn request(&self, kind: u8) -> Message<'static> {
        let mut buffer = self.buffers.lock().pop().unwrap_or_default();
        buffer.clear();
        buffer.extend_from_slice(&[0, 0, 0, 0, kind, 0, 0]);
        Message(Request(buffer), PhantomData)
    }

    fn keep(&self, buffer: Vec<u8>) {
        let mut buffers = self.buffers.lock();
        if buffers.len() < SPARE_BUFFERS {
            buffers.push(buffer);
        }
    }

    /// A tag that no request in flight has. `EAGAIN` when all are in flight.
    fn new_tag(&self) -> Result<Tag<'_>> {
        let mut tags = self.tags.lock();
        let number = match tags.free.pop() {
            Some(number) => number,
            None if tags.next == POSTED => return Err(EAGAIN),
            None => {
                // Room for it when it is free again: nothing may fail then.
                let given = usize::from(tags.next) + 1;
                tags.free.reserve_fallibly(given).map_err(|_| ENOMEM)?;
                tags.next += 1;
                tags.next - 1
            }
        };
        Ok(Tag { session: self, number })
    }

    /// The request with its length and tag, and its type; `data` bytes follow elsewhere.
    fn seal(&self, request: Message<'_>, tag: u16, data: usize) -> Result<(Vec<u8>, u8)> {
        let Message(Request(mut bytes), _) = request;
        let length = u32::try_from(bytes.len() + data).map_err(|_| EIO)?;
        if length > self.message.load(Ordering::Relaxed) {
            return Err(ENAMETOOLONG);
        }
        bytes[..4].copy_from_slice(&length.to_le_bytes());
        bytes[5..HEADER].copy_from_slice(&tag.to_le_bytes());
        let kind = bytes[4];
        Ok((bytes, kind))
    }

    fn exchange<T>(
        &self,
        request: Message<'_>,
        tag: u16,
        room: usize,
        read: impl FnOnce(&mut Reply<'_>) -> Result<T>,
    ) -> Result<T> {
        let (bytes, kind) = self.seal(request, tag, 0)?;
        let (bytes, answer) = self.transport.call(bytes, room_for(room)?)?;
        self.keep(bytes);
        parse(&answer, answer.len(), kind, tag, read)
    }

    /// Tells the server about handles that were dropped.
    fn give_back(&self) {
        if self.transport.is_extended() {
            return self.give_back_many();
        }
        loop {
            let Some(number) = self.fids.lock().dropped.pop() else { return };
            let Ok(tag) = self.new_tag() else {
                // Left to the next request.
                self.fids.lock().dropped.push(number);
                return;
            };
            let request = self.request(kind::CLUNK).u32(number);
            // Whatever the answer, the handle is gone (Tclunk, "even if it returns an error").
            let _ = self.exchange(request, tag.number, SMALL_REPLY, |_| Ok(()));
            self.fids.lock().free.push(number);
        }
    }

    /// Gives back all handles that were dropped, without waiting for an answer: whatever is sent later comes later. What cannot be sent
    /// now is given back with the next request.
    fn post_dropped(&self) {
        let numbers = self.fids.lock().take_dropped();
        if numbers.is_empty() {
            return;
        }
        let posted = self.seal(self.clunks(&numbers), POSTED, 0).is_ok_and(|(bytes, _)| {
            let posted = self.transport.post(&bytes);
            self.keep(bytes);
            posted
        });
        let mut fids = self.fids.lock();
        if posted {
            fids.free.extend(numbers);
        } else {
            fids.dropped.extend(numbers);
            fids.is_urgent = true;
        }
    }

    /// A request that gives back these handles.
    fn clunks(&self, numbers: &[u32]) -> Message<'static> {
        let request = self.request(kind::CLUNKS).u16(numbers.len() as u16);
        numbers.iter().fold(request, |request, number| request.u32(*number))
    }

    /// The same in one message, once it is worth one or what is open for writing has been closed.
    fn give_back_many(&self) {
        let numbers = {
            let mut fids = self.fids.lock();
            if fids.dropped.is_empty() || fids.dropped.len() < MANY && !fids.is_urgent {
                return;
            }
            fids.take_dropped()
        };
        let Ok(tag) = self.new_tag() else {
            self.fids.lock().dropped.extend(numbers);
            return;
        };
        let _ = self.exchange(self.clunks(&numbers), tag.number, SMALL_REPLY, |_| Ok(()));
        self.fids.lock().free.extend(numbers);
    }
}

/// Handles that were dropped are given back when there are so many.
const MANY: usize = 16;
/// Most of them in one message.
const MAX_CLUNKS: usize = 1024;

impl Client {
    /// A tree of the session's server; `device` is its `st_dev`.
    pub fn new(session: Arc<Session>, device: u64) -> Arc<Client> {
        Arc::new(Client {
            session,
            device,
            nodes: SpinLock::new(Map::new()),
            recent: SpinLock::new(Recent { ring: Vec::new(), next: 0, most: most_recent() }),
            since_look: AtomicU32::new(PATIENCE),
            kept: Kept::default(),
        })
    }

    /// A file was looked at in a directory that has been listed.
    pub fn looks_at_listed(&self) {
        self.since_look.store(0, Ordering::Relaxed);
    }

    /// Whether the next listing is to have attributes: those who list directories and look at what is in them do so in one after the
    /// other, and those who only list do, too.
    pub fn wants_attributes(&self) -> bool {
        self.since_look.load(Ordering::Relaxed) < PATIENCE
    }

    /// There was one.
    pub fn was_listed(&self) {
        let since = self.since_look.load(Ordering::Relaxed);
        self.since_look.store(since.saturating_add(1).min(PATIENCE), Ordering::Relaxed);
    }

    /// [`Transport::is_extended`].
    pub fn is_extended(&self) -> bool {
        self.session.transport.is_extended()
    }

    /// Keeps a directory for a while.
    pub fn remember(&self, node: &Arc<Node>) {
        let mut recent = self.recent.lock();
        let next = recent.next;
        let mut gone = None;
        if let Some(place) = recent.ring.get_mut(next) {
            gone = Some(core::mem::replace(place, node.clone()));
        } else if recent.ring.reserve_fallibly(1).is_ok() {
            recent.ring.push(node.clone());
        } else {
            // Where there is no memory for it, it is not kept.
            return;
        }
        recent.next = (next + 1) % recent.most;
        drop(recent);
        drop(gone);
    }

    /// The server watches no more directories than it does now: keeps fewer, so that those of later ones can be watched.
    pub fn remember_fewer(&self) {
        let gone = {
            let mut recent = self.recent.lock();
            let fewer = recent.ring.len() - recent.ring.len() / 8;
            recent.most = recent.most.min(fewer).max(LEAST_RECENT);
            let left = recent.most.min(recent.ring.len());
            // Those behind it were remembered first, or all are as old as each other.
            recent.next %= left.max(1);
            recent.ring.split_off(left)
        };
        drop(gone);
    }

    /// Keeps none any more.
    pub fn forget_recent(&self) {
        let gone = self.recent.lock().take();
        drop(gone);
    }

    /// The server has no descriptor left: keeps fewer from now on. False: it has none for anything else either.
    fn make_room(&self) -> bool {
        let gone = {
            let mut recent = self.recent.lock();
            recent.most = (recent.ring.len() / 2).max(LEAST_RECENT);
            recent.take()
        };
        !gone.is_empty()
    }

    /// [`Transport::goes_by_names`].
    pub fn goes_by_names(&self) -> bool {
        self.session.transport.goes_by_names()
    }

    /// Bytes of data that are copied for one read or write.
    pub fn io_limit(&self) -> u32 {
        self.session.most_data().min(MAX_COPIED)
    }

    /// A message of that type, to be filled in.
    pub fn request(&self, kind: u8) -> Message<'static> {
        self.session.request(kind)
    }

    /// Tells the server about handles that were dropped.
    pub fn give_back(&self) {
        self.session.give_back();
    }

    /// The same at once, for handles of files that have no name any more: the host keeps their bytes until then.
    pub fn give_back_at_once(&self) {
        if self.is_extended() {
            self.session.post_dropped();
        } else {
            self.session.give_back();
        }
    }

    /// Sends the request and reads the answer's body with `read`.
    pub fn call<T>(&self, request: Message<'_>, read: impl FnOnce(&mut Reply<'_>) -> Result<T>) -> Result<T> {
        self.call_with_room(request, SMALL_REPLY, read)
    }

    /// As [`Client::call`], for answers that carry `data` bytes.
    pub fn call_for_data<T>(
        &self,
        request: Message<'_>,
        data: u32,
        read: impl FnOnce(&mut Reply<'_>) -> Result<T>,
    ) -> Result<T> {
        self.call_with_room(request, (data + IO_HEADER) as usize, read)
    }

    /// The program's memory that can be part of a message without a copy, of this piece.
    pub fn hold(&self, piece: Segment, is_reply: bool) -> Gather {
        let most = self.session.most_data().min(self.session.transport.most_direct() as u32);
        self.hold_up_to(piece, most as usize, is_reply)
    }

    /// The same, for a file that the server gave.
    pub fn hold_for_given(&self, piece: Segment, is_written: bool) -> Gather {
        self.hold_up_to(piece, MAX_GIVEN, is_written)
    }

    fn hold_up_to(&self, piece: Segment, most: usize, is_written: bool) -> Gather {
        let Segment { address, length } = piece;
        let length = length.min(most);
        let frames = match length {
            0 => Vec::new(),
            _ => self.session.transport.hold(address, length, is_written),
        };
        let offset = address as usize % PAGE_SIZE;
        let length = length.min((frames.len() * PAGE_SIZE).saturating_sub(offset));
        Gather { frames, offset, length, is_written }
    }

    /// As [`Client::call`], with data in the program's memory.
    pub fn call_direct<T>(
        &self,
        request: Message<'_>,
        pages: Gather,
        read: impl FnOnce(&mut Reply<'_>) -> Result<T>,
    ) -> Result<T> {
        self.session.give_back();
        let tag = self.session.new_tag()?;
        let sent = if pages.is_written { 0 } else { pages.length };
        let (bytes, kind) = self.session.seal(request, tag.number, sent)?;
        let reply = alloc::vec![0; READ_HEADER];
        let (bytes, answer, length) = self.session.transport.call_direct(bytes, reply, pages)?;
        self.session.keep(bytes);
        parse(&answer, length, kind, tag.number, read)
    }

    fn call_with_room<T>(
        &self,
        request: Message<'_>,
        room: usize,
        read: impl FnOnce(&mut Reply<'_>) -> Result<T>,
    ) -> Result<T> {
        self.session.give_back();
        let tag = self.session.new_tag()?;
        self.session.exchange(request, tag.number, room, read)
    }

    /// A handle the server does not know yet.
    pub fn new_fid(self: &Arc<Client>) -> Fid {
        let mut fids = self.session.fids.lock();
        let number = fids.free.pop().unwrap_or_else(|| {
            fids.next += 1;
            fids.next - 1
        });
        Fid {
            client: self.clone(),
            number,
            is_live: false.into(),
            is_written: false,
            hurries: false.into(),
            given: None,
        }
    }

    /// Tattach as root: the root directory of the tree that the server has under this name.
    pub fn attach(self: &Arc<Client>, tree: &[u8]) -> Result<(Fid, Qid)> {
        let fid = self.new_fid();
        let request = self.request(kind::ATTACH).fid(&fid).u32(NO_FID).string(b"root").string(tree).u32(0);
        let qid = self.call(request, |r| r.qid())?;
        fid.now_live();
        Ok((fid, qid))
    }

    /// Twalk of one name; `None` copies the handle.
    pub fn walk(self: &Arc<Client>, from: &Fid, name: Option<&[u8]>) -> Result<(Fid, Option<Qid>)> {
        let fid = self.new_fid();
        let request = with_name(self.request(kind::WALK).fid(from).fid(&fid), name);
        let qid = self.call(request, |r| match (r.u16()?, name) {
            (1, Some(_)) => Ok(Some(r.qid()?)),
            (0, None) => Ok(None),
            (0, Some(_)) => Err(ENOENT),
            _ => Err(EIO),
        })?;
        fid.now_live();
        Ok((fid, qid))
    }

    /// The handle of what has a name in a directory, or of the handle's own file, the number by which its changes are told, and its
    /// attributes as `read` has them, with what is in it where that is `wanted`.
    pub fn look<T>(
        self: &Arc<Client>,
        from: &Fid,
        name: Option<&[u8]>,
        wanted: Wanted,
        read: impl Fn(&mut Reply<'_>) -> Result<T>,
    ) -> Result<(Fid, Option<i32>, T)> {
        self.with_room(|| {
            let fid = self.new_fid();
            let request = with_name(self.request(kind::LOOK).fid(from).fid(&fid), name).u8(wanted as u8);
            let room = if wanted == Wanted::Nothing { SMALL_REPLY } else { SMALL_REPLY + MAX_LISTED };
            let (watch, seen) =
                self.call_with_room(request, room, |r| Ok((r.u32()?.cast_signed(), read(r)?)))?;
            fid.now_live();
            Ok((fid, (watch >= 0).then_some(watch), seen))
        })
    }

    /// Asks for a handle, again with fewer that are kept here where the server has no descriptor left.
    fn with_room<T>(&self, ask: impl Fn() -> Result<T>) -> Result<T> {
        loop {
            match ask() {
                Err(ENFILE) if self.make_room() => {}
                answer => return answer,
            }
        }
    }

    /// A handle that is open with `flags`, of what has a name in a directory or of the handle's own file.
    pub fn open(self: &Arc<Client>, from: &Fid, name: Option<&[u8]>, flags: u32) -> Result<(Fid, Qid)> {
        self.with_room(|| {
            let mut fid = self.new_fid();
            fid.is_written = flags & ACCESS_MODE != 0;
            fid.hurries = fid.is_written.into();
            let request = with_name(self.request(kind::OPEN).fid(from).fid(&fid).u32(flags), name);
            let (qid, given) = self.call_to_open(request, |r| r.qid())?;
            fid.given = given;
            fid.now_live();
            Ok((fid, qid))
        })
    }

    /// As [`Client::call`], with what the server gives.
    fn call_to_open<T>(
        &self,
        request: Message<'_>,
        read: impl FnOnce(&mut Reply<'_>) -> Result<T>,
    ) -> Result<(T, Option<Box<dyn Given>>)> {
        self.session.give_back();
        let tag = self.session.new_tag()?;
        let (bytes, kind) = self.session.seal(request, tag.number, 0)?;
        let (bytes, answer, given) = self.session.transport.call_to_open(bytes, room_for(SMALL_REPLY)?)?;
        self.session.keep(bytes);
        Ok((parse(&answer, answer.len(), kind, tag.number, read)?, given))
    }

    /// A request that is not sent after all.
    pub fn drop_request(&self, Message(Request(bytes), _): Message<'_>) {
        self.session.keep(bytes);
    }
}

fn room_for(length: usize) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    bytes.reserve_exact_fallibly(length).map_err(|_| ENOMEM)?;
    Ok(bytes)
}

/// What is wanted of a directory besides its attributes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Wanted {
    Nothing = 0,
    /// What is in it, where that is little.
    Listing = 1,
    ListingWithAttributes = 2,
}

/// Most bytes of such a listing.
const MAX_LISTED: usize = 16 << 10;

/// O_ACCMODE.
const ACCESS_MODE: u32 = 3;

fn with_name<'f>(request: Message<'f>, name: Option<&[u8]>) -> Message<'f> {
    match name {
        Some(name) => request.u16(1).string(name),
        None => request.u16(0),
    }
}

/// Reads an answer of `length` bytes, of which the first are at hand.
fn parse<T>(
    bytes: &[u8],
    length: usize,
    kind: u8,
    tag: u16,
    read: impl FnOnce(&mut Reply<'_>) -> Result<T>,
) -> Result<T> {
    let mut reply = Reply(bytes);
    let size = reply.u32()? as usize;
    let (answer, answer_tag) = (reply.u8()?, reply.u16()?);
    if size != length || answer_tag != tag {
        return Err(EIO);
    }
    if answer == kind::LERROR {
        let number = reply.u32()?;
        // Numbers that Linux does not use would look like something else to the program.
        let errno = u16::try_from(number).ok().map(Errno).filter(|e| e.name().is_some());
        return Err(errno.unwrap_or(EIO));
    }
    if answer != kind + 1 {
        return Err(EIO);
    }
    read(&mut reply)
}
