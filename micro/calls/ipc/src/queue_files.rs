// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Message queues as files (mq_overview(7), "Mounting the message queue filesystem").

use crate::message_queues::{self, Made, Names};
use abi::{Result, errno::*};
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use api_alloc::Reserve;
use api_fs::{DirEntry, File, FileType, Inode, SetAttr, Stat, StatFs, Unnamed};
use core::any::Any;
use mqueue::{MQUEUE_MAGIC, Queue, QueueFile};
use task::ipc::Ipc;

/// Linux counts so many bytes of the directory for each name, and for `.` and `..`.
const ENTRY_SIZE: u64 = 20;
const ROOT: u64 = 1;

/// The directory of all queues of a namespace.
pub struct Directory {
    names: Arc<Names>,
    /// Nobody is in it any more where this leads nowhere: what queues it has stay, and no others are made.
    namespace: Weak<Ipc>,
    attributes: Unnamed,
}

/// The file of a queue.
pub struct QueueNode {
    queue: Arc<Queue>,
    device: u64,
}

impl Directory {
    /// All mounts of the file system show the same one.
    pub fn of(ipc: &Arc<Ipc>, names: &Arc<Names>) -> Arc<Directory> {
        let (names, namespace) = (names.clone(), Arc::downgrade(ipc));
        let new = Arc::new(Directory { names, namespace, attributes: Unnamed::new(0o1777, 0, 0) });
        let names = &new.names;
        let mut root = names.root.lock();
        if let Some(known) = root.upgrade() {
            drop(root);
            return known;
        }
        let before: Weak<Directory> = core::mem::replace(&mut *root, Arc::downgrade(&new));
        drop(root);
        drop(before);
        new
    }
}

impl Inode for Directory {
    fn stat(&self) -> Result<Stat> {
        let names = self.names.queues.lock().len() as u64;
        let mut stat = self.attributes.show(Stat::new(FileType::Directory, 0));
        (stat.device, stat.inode, stat.links) = (self.names.device, ROOT, 2);
        stat.size = ENTRY_SIZE * (names + 2);
        Ok(stat)
    }

    fn open(&self, this: &Arc<dyn Inode>, _: u32) -> Result<Arc<dyn File>> {
        Ok(Arc::new(OpenDirectory(this.clone())))
    }

    fn set_attr(&self, change: &SetAttr) -> Result<()> {
        self.attributes.change(change);
        Ok(())
    }

    fn lookup(&self, name: &[u8]) -> Result<Arc<dyn Inode>> {
        let queues = self.names.queues.lock();
        let named = queues.get(name).ok_or(ENOENT)?;
        Ok(named.file.clone())
    }

    fn refusal(&self) -> abi::Errno {
        EPERM
    }

    /// A queue like one of mq_open(3) without attributes.
    fn create(
        &self,
        name: &[u8],
        kind: FileType,
        permissions: u32,
        _: (u32, u32),
        _: u64,
    ) -> Result<Arc<dyn Inode>> {
        if kind != FileType::Regular {
            return Err(EPERM);
        }
        // Dropped at once: the last handle of a namespace may end it.
        if self.namespace.upgrade().is_none() {
            return Err(EACCES);
        }
        let mut own = Vec::new();
        own.reserve_exact_fallibly(name.len()).map_err(|_| ENOMEM)?;
        own.extend_from_slice(name);
        let Made { file, .. } = message_queues::create(&self.names, own, permissions, None)?;
        Ok(file)
    }

    fn unlink(&self, name: &[u8], directory: bool) -> Result<()> {
        if directory {
            return Err(ENOTDIR);
        }
        let removed = self.names.queues.lock().remove(name);
        removed.map(|named| named.queue.unlinked()).ok_or(ENOENT)
    }

    /// In the order in which they were made.
    fn list(&self, from: u64, most: usize) -> Result<Vec<DirEntry>> {
        let mut all: Vec<DirEntry> = Vec::new();
        {
            let queues = self.names.queues.lock();
            all.reserve_exact_fallibly(queues.len()).map_err(|_| ENOMEM)?;
            for (name, named) in queues.iter() {
                let inode = named.queue.stat().inode;
                if inode > from {
                    all.push(DirEntry { name: name.clone(), inode, kind: FileType::Regular, next: inode });
                }
            }
        }
        all.sort_unstable_by_key(|entry| entry.next);
        all.truncate(most);
        Ok(all)
    }

    fn stat_fs(&self) -> Result<StatFs> {
        let name_max = api_fs::NAME_MAX as u64;
        Ok(StatFs { magic: MQUEUE_MAGIC, block_size: 4096, name_max, ..StatFs::default() })
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

impl QueueNode {
    pub fn new(queue: Arc<Queue>, device: u64) -> QueueNode {
        QueueNode { queue, device }
    }
}

impl Inode for QueueNode {
    fn stat(&self) -> Result<Stat> {
        Ok(Stat { device: self.device, ..self.queue.stat() })
    }

    fn open(&self, _: &Arc<dyn Inode>, _: u32) -> Result<Arc<dyn File>> {
        Ok(QueueFile::new(self.queue.clone()))
    }

    fn set_attr(&self, change: &SetAttr) -> Result<()> {
        self.queue.set_attr(change);
        Ok(())
    }

    fn stat_fs(&self) -> Result<StatFs> {
        let name_max = api_fs::NAME_MAX as u64;
        Ok(StatFs { magic: MQUEUE_MAGIC, block_size: 4096, name_max, ..StatFs::default() })
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

struct OpenDirectory(Arc<dyn Inode>);

impl File for OpenDirectory {
    fn stat(&self) -> Result<Stat> {
        self.0.stat()
    }

    fn is_seekable(&self) -> bool {
        true
    }

    fn inode(&self) -> Option<&Arc<dyn Inode>> {
        Some(&self.0)
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}
