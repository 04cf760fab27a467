// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A block device that is a file of the host, behind `api-blockdev`: each request is one call of the host when it is submitted, from
//! or to the pages that the caller holds, and its completion waits to be taken.

use crate::pieces::pieces;
use abi::{PAGE_SIZE, Result, errno::*};
use alloc::collections::VecDeque;
use alloc::sync::Arc;
use api_alloc::Reserve;
use api_blockdev::{BlockDevice, Completion, Info, MAX_REQUEST, Operation, QUEUE, Request, SECTOR};
use api_lock::SpinLock;
use api_sched::DeferredWork;
use plat_process::Disk as Given;
use plat_process::host::{self, IoVec};

/// Pages that the largest request touches.
const MAX_PIECES: usize = MAX_REQUEST / PAGE_SIZE + 1;

pub struct Disk {
    fd: i32,
    info: Info,
    done: SpinLock<VecDeque<Completion>>,
}

/// Takes the descriptor of a regular file.
pub fn start(given: Given) -> Result<Arc<Disk>> {
    let mut done = VecDeque::new();
    done.reserve_exact_fallibly(QUEUE).map_err(|_| ENOMEM)?;
    let sectors = host::size(given.fd)? / SECTOR as u64;
    let info = Info { sectors, sector_size: SECTOR, read_only: given.read_only, largest: MAX_REQUEST };
    Ok(Arc::new(Disk { fd: given.fd, info, done: SpinLock::new(done) }))
}

impl Disk {
    fn transfer(&self, request: &Request) -> Result<()> {
        let memory = &request.memory;
        let mut done = 0;
        while done < memory.length {
            let mut list = [IoVec::EMPTY; MAX_PIECES];
            let count = pieces(memory, done, &mut list);
            let offset = request.sector * SECTOR as u64 + done as u64;
            let moved = match request.operation {
                // SAFETY: the pieces lie in pages that the request holds. Only the program uses them besides, and sees what it then
                // gets.
                Operation::Read => unsafe { host::preadv(self.fd, &list[..count], offset) },
                // SAFETY: the same.
                _ => unsafe { host::pwritev(self.fd, &list[..count], offset) },
            };
            match moved {
                // The file has become shorter.
                Ok(0) => return Err(EIO),
                Ok(n) => done += n,
                Err(EINTR) => {}
                Err(e) => {
                    log::debug!("block: the host answers {e:?}");
                    return Err(EIO);
                }
            }
        }
        Ok(())
    }

    fn flush(&self) -> Result<()> {
        loop {
            match host::fdatasync(self.fd) {
                Err(EINTR) => {}
                done => return done.map_err(|_| EIO),
            }
        }
    }
}

impl BlockDevice for Disk {
    fn info(&self) -> Info {
        self.info
    }

    fn submit(&self, request: Request) -> core::result::Result<(), Request> {
        // As many completions as fit are kept for the caller.
        if self.done.lock().len() >= QUEUE {
            return Err(request);
        }
        let result = match request.operation {
            Operation::Flush => self.flush(),
            Operation::Read | Operation::Write => self.transfer(&request),
        };
        self.done.lock().push_back(Completion { tag: request.tag, result });
        Ok(())
    }

    fn notify(&self) {}

    fn complete(&self) -> Option<Completion> {
        self.done.lock().pop_front()
    }

    fn arm_interrupt(&self) -> bool {
        self.done.lock().is_empty()
    }

    fn on_interrupt(&self, _: DeferredWork) -> Result<()> {
        Ok(())
    }
}
