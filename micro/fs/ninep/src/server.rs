// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A small 9P2000.L server over a RAM file system, for tests. Its handles are paths, as QEMU's are.

use crate::wire::{HEADER, Reply, Request, kind};
use crate::{Answered, Transport};
use abi::{Result, errno::*};
use alloc::sync::Arc;
use alloc::vec::Vec;
use api_fs::{File, FileType, Inode, SetAttr, Sink, Source, Timespec};
use api_lock::SpinLock;
use api_mem::{Gather, PageFrame};
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use ordered::Map;

#[derive(Clone)]
struct Handle {
    parent: Option<Arc<dyn Inode>>,
    name: Vec<u8>,
    inode: Arc<dyn Inode>,
    file: Option<Arc<dyn File>>,
    /// An attribute being written.
    xattr: Option<(Vec<u8>, Vec<u8>)>,
    /// An attribute being read.
    value: Option<Vec<u8>>,
}

impl Handle {
    fn new(parent: Option<Arc<dyn Inode>>, name: &[u8], inode: Arc<dyn Inode>) -> Handle {
        Handle { parent, name: name.to_vec(), inode, file: None, xattr: None, value: None }
    }

    /// As QEMU: the attributes are those of the name, which may be gone.
    fn by_name(&self) -> Result<Arc<dyn Inode>> {
        match &self.parent {
            Some(parent) => parent.lookup(&self.name),
            None => Ok(self.inode.clone()),
        }
    }
}

pub struct Server {
    pub root: Arc<dyn Inode>,
    handles: SpinLock<Map<u32, Handle>>,
    /// Changes a reply before it is sent.
    pub tamper: SpinLock<Option<Tamper>>,
    pub largest: usize,
    /// Bytes of the program's memory that can be in a message, and how many such messages there were.
    pub most_direct: usize,
    pub direct: AtomicUsize,
    /// Whose place the pages take that were last held.
    held: AtomicU64,
}

type Tamper = alloc::boxed::Box<dyn FnMut(&mut Vec<u8>) + Send>;

impl Server {
    pub fn new() -> Arc<Server> {
        Server::with_direct(0)
    }

    pub fn with_direct(most_direct: usize) -> Arc<Server> {
        let root: Arc<dyn Inode> = ramfs::tmpfs(7, 64 << 20, 0o755, (0, 0));
        Arc::new(Server {
            root,
            handles: SpinLock::new(Map::new()),
            tamper: SpinLock::new(None),
            largest: 16384,
            most_direct,
            direct: AtomicUsize::new(0),
            held: AtomicU64::new(0),
        })
    }

    pub fn handle_count(&self) -> usize {
        self.handles.lock().len()
    }

    fn get(&self, number: u32) -> Result<Handle> {
        self.handles.lock().get(&number).cloned().ok_or(EBADF)
    }

    fn put(&self, number: u32, handle: Handle) {
        self.handles.lock().insert(number, handle);
    }

    fn qid(mut out: Request, inode: &Arc<dyn Inode>) -> Result<Request> {
        let stat = inode.stat()?;
        let kind = if stat.kind == FileType::Directory { 0x80 } else { 0 };
        out.0.push(kind);
        Ok(out.u32(0).u64(stat.inode))
    }

    fn serve(&self, kind: u8, r: &mut Reply<'_>, out: Request) -> Result<Request> {
        match kind {
            kind::VERSION => {
                let size = r.u32()?;
                let version = r.string()?;
                Ok(out.u32(size).string(version))
            }
            kind::ATTACH => {
                let fid = r.u32()?;
                self.put(fid, Handle::new(None, b"", self.root.clone()));
                Server::qid(out, &self.root)
            }
            kind::WALK => {
                let (from, to, count) = (self.get(r.u32()?)?, r.u32()?, r.u16()?);
                if count == 0 {
                    self.put(to, Handle { file: None, ..from });
                    return Ok(out.u16(0));
                }
                let name = r.string()?;
                let inode = from.inode.lookup(name)?;
                self.put(to, Handle::new(Some(from.inode), name, inode.clone()));
                Server::qid(out.u16(1), &inode)
            }
            kind::CLUNK => {
                let handle = self.handles.lock().remove(&r.u32()?).ok_or(EBADF)?;
                if let Some((name, value)) = handle.xattr {
                    if value.is_empty() {
                        handle.inode.remove_xattr(&name)?;
                    } else {
                        handle.inode.set_xattr(&name, &value, 0)?;
                    }
                }
                Ok(out)
            }
            kind::LOPEN => {
                let number = r.u32()?;
                let handle = self.get(number)?;
                let file = handle.inode.open(&handle.inode, r.u32()?)?;
                let out = Server::qid(out, &handle.inode)?.u32(0);
                self.put(number, Handle { file: Some(file), ..handle });
                Ok(out)
            }
            kind::GETATTR => {
                let stat = self.get(r.u32()?)?.by_name()?;
                let s = stat.stat()?;
                let out =
                    Server::qid(out.u64(0x7ff), &stat)?.u32(s.mode()).u32(s.uid).u32(s.gid).u64(s.links);
                let out = out.u64(s.rdev).u64(s.size).u64(4096).u64(s.blocks);
                let time = |out: Request, t: Timespec| out.u64(t.seconds as u64).u64(t.nanoseconds as u64);
                let out = time(time(time(out, s.accessed), s.modified), s.changed);
                Ok(out.u64(0).u64(0).u64(0).u64(0))
            }
            kind::SETATTR => {
                let inode = self.get(r.u32()?)?.by_name()?;
                let valid = r.u32()?;
                let pick = |bit: u32, value| (valid & bit != 0).then_some(value);
                let permissions = pick(1, r.u32()?);
                let (uid, gid) = (pick(2, r.u32()?), pick(4, r.u32()?));
                let size = if valid & 8 != 0 { Some(r.u64()?) } else { r.u64().map(|_| None)? };
                let mut times = [None; 2];
                for (i, slot) in times.iter_mut().enumerate() {
                    let t = Timespec { seconds: r.u64()? as i64, nanoseconds: r.u64()? as u32 };
                    *slot = (valid & (0x80 << i) != 0).then_some(t);
                }
                let [accessed, modified] = times;
                inode.set_attr(&SetAttr { permissions, uid, gid, size, accessed, modified })?;
                Ok(out)
            }
            kind::READ => {
                let handle = self.get(r.u32()?)?;
                let (offset, count) = (r.u64()?, r.u32()? as usize);
                let mut bytes = std::vec![0; count];
                let n = match (&handle.value, &handle.file) {
                    (Some(value), _) => {
                        let rest = &value[(offset as usize).min(value.len())..];
                        let n = rest.len().min(count);
                        bytes[..n].copy_from_slice(&rest[..n]);
                        n
                    }
                    (None, Some(file)) => file.read(offset, &mut Sink::kernel(&mut bytes))?,
                    _ => return Err(EBADF),
                };
                let mut out = out.u32(n as u32);
                out.0.extend_from_slice(&bytes[..n]);
                Ok(out)
            }
            kind::WRITE => {
                let number = r.u32()?;
                let mut handle = self.get(number)?;
                let (offset, count) = (r.u64()?, r.u32()? as usize);
                let bytes = r.take(count)?;
                if let Some((_, value)) = &mut handle.xattr {
                    value.extend_from_slice(bytes);
                    self.put(number, handle);
                    return Ok(out.u32(count as u32));
                }
                let file = handle.file.ok_or(EBADF)?;
                Ok(out.u32(file.write(offset, &mut Source::kernel(bytes))? as u32))
            }
            kind::READDIR => {
                let handle = self.get(r.u32()?)?;
                let (offset, count) = (r.u64()?, r.u32()? as usize);
                let mut data = Request(Vec::new());
                for entry in handle.inode.list(offset, 1000)? {
                    if data.0.len() + 24 + entry.name.len() > count {
                        break;
                    }
                    let inode = handle.inode.lookup(&entry.name)?;
                    data = Server::qid(data, &inode)?.u64(entry.next);
                    data.0.push(entry.kind.dirent_type());
                    data = data.string(&entry.name);
                }
                let mut out = out.u32(data.0.len() as u32);
                out.0.extend_from_slice(&data.0);
                Ok(out)
            }
            kind::MKDIR | kind::MKNOD => {
                let directory = self.get(r.u32()?)?.inode;
                let name = r.string()?;
                let mode = r.u32()?;
                let kind = if kind == kind::MKDIR {
                    FileType::Directory
                } else {
                    FileType::from_mode(mode).ok_or(EINVAL)?
                };
                let inode = directory.create(name, kind, mode & 0o7777, (0, 0), 0)?;
                Server::qid(out, &inode)
            }
            kind::SYMLINK => {
                let directory = self.get(r.u32()?)?.inode;
                let name = r.string()?;
                directory.symlink(name, r.string()?, (0, 0))?;
                Server::qid(out, &directory.lookup(name)?)
            }
            kind::READLINK => Ok(out.string(&self.get(r.u32()?)?.inode.read_link()?)),
            kind::LINK => {
                let directory = self.get(r.u32()?)?.inode;
                let file = self.get(r.u32()?)?.inode;
                directory.link(r.string()?, &file)?;
                Ok(out)
            }
            kind::UNLINKAT => {
                let directory = self.get(r.u32()?)?.inode;
                let name = r.string()?;
                directory.unlink(name, r.u32()? != 0)?;
                Ok(out)
            }
            kind::RENAMEAT => {
                let from = self.get(r.u32()?)?.inode;
                let name = r.string()?;
                let to = self.get(r.u32()?)?.inode;
                let to_name = r.string()?;
                from.rename(name, &to, to_name, 0)?;
                for handle in self.handles.lock().values_mut() {
                    if handle.name == name && handle.parent.as_ref().is_some_and(|p| Arc::ptr_eq(p, &from)) {
                        handle.name = to_name.to_vec();
                        handle.parent = Some(to.clone());
                    }
                }
                Ok(out)
            }
            kind::FSYNC => self.get(r.u32()?).map(|_| out),
            kind::STATFS => {
                let fs = self.get(r.u32()?)?.inode.stat_fs()?;
                let out =
                    out.u32(fs.magic as u32).u32(4096).u64(fs.blocks).u64(fs.blocks_free).u64(fs.blocks_free);
                Ok(out.u64(fs.files).u64(fs.files_free).u64(0).u32(255))
            }
            kind::XATTRWALK => {
                let handle = self.get(r.u32()?)?;
                let number = r.u32()?;
                let name = r.string()?;
                let value = if name.is_empty() {
                    handle.inode.list_xattr()?
                } else {
                    handle.inode.get_xattr(name)?
                };
                let out = out.u64(value.len() as u64);
                self.put(number, Handle { value: Some(value), file: None, ..handle });
                Ok(out)
            }
            kind::XATTRCREATE => {
                let number = r.u32()?;
                let handle = self.get(number)?;
                let name = r.string()?.to_vec();
                self.put(number, Handle { xattr: Some((name, Vec::new())), ..handle });
                Ok(out)
            }
            _ => Err(EOPNOTSUPP),
        }
    }
}

impl Transport for Server {
    fn call(&self, request: Vec<u8>, reply: Vec<u8>) -> Result<(Vec<u8>, Vec<u8>)> {
        let room = reply.capacity();
        assert!(request.len() <= self.largest);
        let mut r = Reply(&request);
        assert_eq!(r.u32()? as usize, request.len());
        let (kind, tag) = (r.u8()?, r.u16()?);
        let start = |kind: u8| Request(Vec::from([0, 0, 0, 0, kind])).u16(tag);
        let mut out = match self.serve(kind, &mut r, start(kind + 1)) {
            Ok(out) => out.0,
            Err(e) => start(kind::LERROR).u32(e.0 as u32).0,
        };
        let length = out.len() as u32;
        out[..4].copy_from_slice(&length.to_le_bytes());
        if let Some(tamper) = &mut *self.tamper.lock() {
            tamper(&mut out);
        }
        assert!(out.len() >= HEADER || self.tamper.lock().is_some());
        out.truncate(room);
        Ok((request, out))
    }

    fn largest(&self) -> usize {
        self.largest
    }

    fn goes_by_names(&self) -> bool {
        true
    }

    fn most_direct(&self) -> usize {
        self.most_direct
    }

    /// Copies stand for the pages. Odd addresses cannot be had.
    fn hold(&self, address: u64, length: usize, _is_reply: bool) -> Vec<PageFrame> {
        self.held.store(address, Relaxed);
        let (first, end) = (address & !0xfff, address + length as u64);
        let count = if address % 2 == 1 { 0 } else { (end - first).div_ceil(4096) };
        let page = |i| {
            let (from, to) = (address.max(first + i * 4096), end.min(first + (i + 1) * 4096));
            let mut bytes = alloc::vec![0; (to - from) as usize];
            api_user::read_bytes(from, &mut bytes).unwrap();
            let frame = PageFrame::new().unwrap();
            frame.write((from % 4096) as usize, &bytes);
            frame
        };
        (0..count).map(page).collect()
    }

    fn call_direct(&self, mut request: Vec<u8>, mut reply: Vec<u8>, pages: Gather) -> Result<Answered> {
        self.direct.fetch_add(1, Relaxed);
        let mut bytes = alloc::vec![0; pages.frames.len() * 4096];
        pages.frames.iter().zip(bytes.chunks_mut(4096)).for_each(|(frame, to)| frame.read(0, to));
        if !pages.is_written {
            request.extend(&bytes[pages.offset..pages.offset + pages.length]);
        }
        let (request, answer) = self.call(request, Vec::with_capacity(self.largest))?;
        let (head, rest) = answer.split_at(reply.len().min(answer.len()));
        reply.clear();
        reply.extend(head);
        assert!(rest.is_empty() || pages.is_written && rest.len() <= pages.length);
        api_user::write_bytes(self.held.load(Relaxed), rest).unwrap();
        Ok((request, reply, answer.len()))
    }
}
