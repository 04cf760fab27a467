// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A mounted file system and its inodes.

use crate::device::Device;
use crate::node::Node;
use abi::{Result, errno::*};
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use api_alloc::{Reserve, try_box};
use api_fs::{Inode, Mounts, Timespec};
use api_lock::SpinLock;
use api_sched::SleepLock;
use ext4::{Core, Options, ROOT, Refusal};
use ordered::Map;

pub struct Volume {
    core: SleepLock<Core>,
    nodes: SpinLock<Map<u32, Weak<Node>>>,
    /// Inodes whose nodes are gone, and which the file system has not heard of: a node may end where nobody can wait.
    released: SpinLock<Vec<u32>>,
    pub mounts: Arc<Mounts>,
    /// Of the disk, which is the device number of its files.
    pub number: u64,
    is_read_only: bool,
    /// It was not mounted with MS_NOATIME.
    pub keeps_access_times: bool,
}

impl Volume {
    pub fn mount(device: Arc<Device>, number: u64, read_only: bool, noatime: bool) -> Result<Arc<Volume>> {
        let core = Core::mount(device, Options { read_only }, Timespec::now()).map_err(|refusal| {
            let Refusal(why, errno) = refusal;
            log::error!("ext4: the disk is not mounted: {why} ({errno:?})");
            errno
        })?;
        Ok(Arc::new(Volume {
            core: SleepLock::new(try_box(core).map_err(|_| ENOMEM)?),
            nodes: SpinLock::new(Map::new()),
            released: SpinLock::new(Vec::new()),
            mounts: Arc::default(),
            number,
            is_read_only: read_only,
            keeps_access_times: !noatime,
        }))
    }

    pub fn is_read_only(&self) -> bool {
        self.is_read_only
    }

    /// Runs an operation of the file system; waits until others are done.
    pub fn with<T>(&self, operation: impl FnOnce(&mut Core) -> Result<T>) -> Result<T> {
        let mut guard = self.core.lock();
        let core = guard.get();
        self.release(core);
        operation(core)
    }

    fn release(&self, core: &mut Core) {
        loop {
            // Its room stays: each node that there is has a place.
            let Some(number) = self.released.lock().pop() else { return };
            core.release(number, Timespec::now());
        }
    }

    /// The node of an inode, which is found while the file system is locked, so that it does not go meanwhile.
    pub fn node(self: &Arc<Volume>, core: &mut Core, number: u32) -> Result<Arc<Node>> {
        if let Some(known) = self.nodes.lock().get(&number).and_then(Weak::upgrade) {
            return Ok(known);
        }
        let kind = core.stat(number)?.kind;
        {
            let nodes = self.nodes.lock().len() + 1;
            let mut released = self.released.lock();
            let wanted = nodes + 1;
            if released.capacity() < wanted + released.len() {
                released.reserve_fallibly(wanted).map_err(|_| ENOMEM)?;
            }
        }
        core.hold(number)?;
        let node = Node::new(self.clone(), number, kind);
        let inserted = self.nodes.lock().insert_fallibly(number, Arc::downgrade(&node));
        // The node, when it is dropped, gives back what was held.
        inserted.map_err(|_| ENOMEM)?;
        Ok(node)
    }

    /// A node has ended.
    pub fn forget(&self, number: u32) {
        {
            let mut nodes = self.nodes.lock();
            if nodes.get(&number).is_some_and(|node| node.strong_count() == 0) {
                nodes.remove(&number);
            }
        }
        self.released.lock().push(number);
    }

    pub fn is_unused(&self) -> bool {
        self.nodes.lock().values().all(|node| node.strong_count() == 0)
    }

    pub fn root(self: &Arc<Volume>) -> Result<Arc<dyn Inode>> {
        Ok(self.with(|core| self.node(core, ROOT))?)
    }

    pub fn sync(&self) -> Result<()> {
        self.with(Core::sync)
    }

    pub fn unmount(&self) -> Result<()> {
        self.with(Core::unmount)
    }
}
