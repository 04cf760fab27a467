// SPDX-License-Identifier: Apache-2.0 OR MIT
//! FIFOs: pipes that are found by their inode.

use crate::{Pipe, PipeEnd, User};
use abi::{Result, errno::*};
use alloc::sync::{Arc, Weak};
use api_fs::Inode;
use api_lock::SpinLock;
use api_sched::WaitQueue;
use ordered::Map;

/// Pipes of FIFOs that are open, by the address of their inode (which the open end keeps alive).
static OPEN: SpinLock<Map<usize, Weak<Pipe>>> = SpinLock::new(Map::new());

/// A FIFO that was opened.
pub struct Fifo {
    pub end: Arc<PipeEnd>,
    pipe: Arc<Pipe>,
}

/// Opens a FIFO, whose pipe is counted as the user's who opens it first (`ENOMEM` when that has too many). It connects at once; whether to wait for the other side is [`Fifo::partner`]'s to say.
pub fn fifo(inode: &Arc<dyn Inode>, reads: bool, writes: bool, user: &User) -> Result<Fifo> {
    let key = Arc::as_ptr(inode).cast::<()>() as usize;
    let pipe = {
        let mut open = OPEN.lock();
        match open.get(&key).and_then(Weak::upgrade) {
            Some(pipe) => pipe,
            None => {
                open.retain(|_, pipe| pipe.strong_count() > 0);
                let pipe = Pipe::new(user).map_err(|_| ENOMEM)?;
                open.insert_fallibly(key, Arc::downgrade(&pipe)).map_err(|_| ENOMEM)?;
                pipe
            }
        }
    };
    Ok(Fifo { end: PipeEnd::new(pipe.clone(), reads, writes, Some(inode.clone())), pipe })
}

impl Fifo {
    /// `EAGAIN` until the other side is open, or was so: it may be closed again before who waits gets its turn.
    pub fn partner(&self) -> Result<()> {
        if self.end.had_company(&self.pipe.state.lock()) { Ok(()) } else { Err(EAGAIN) }
    }

    pub fn queue(&self) -> &WaitQueue {
        &self.pipe.queue
    }
}
