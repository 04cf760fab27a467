// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A pseudo-terminal whose master is no process of the machine: somebody on the host types and reads.

use super::{Control, Node, Pair, new_pair};
use crate::terminal::Terminal;
use abi::{Events, Result, errno::*};
use alloc::sync::Arc;
use api_fs::{File, Inode};
use api_sched::WaitQueue;

/// The master's side. What has the slave open hears of its end (SIGHUP) when this is dropped.
pub struct Outside(Arc<Pair>);

impl Outside {
    /// A new pseudo-terminal of that many rows and columns, whose slave belongs to `owner` (user and group).
    pub fn new(owner: (u32, u32), rows: u16, columns: u16) -> Result<Outside> {
        Ok(Outside(new_pair(owner, [rows, columns, 0, 0], false)?))
    }

    /// N of /dev/pts/N.
    pub fn number(&self) -> u32 {
        self.0.number
    }

    /// Opens the slave. It becomes nobody's controlling terminal by that: see [`Outside::control`].
    pub fn open_slave(&self) -> Result<Arc<dyn File>> {
        let node: Arc<dyn Inode> = Arc::new(Node(self.0.clone()));
        node.open(&node, super::O_NOCTTY)
    }

    /// From now on it controls that session, whose leader's group is in the foreground.
    pub fn control(&self, session: i32) {
        self.0.state.lock().control = Control { session, group: session };
    }

    /// What was written to the slave; `EAGAIN` when there is nothing, `EIO` when there is nothing and nobody has the slave
    /// open.
    pub fn read(&self, to: &mut [u8]) -> Result<usize> {
        let count = {
            let mut state = self.0.state.lock();
            if state.output.is_empty() {
                return Err(if state.slave_gone { EIO } else { EAGAIN });
            }
            let count = state.output.len().min(to.len());
            to.iter_mut().zip(state.output.drain(..count)).for_each(|(to, byte)| *to = byte);
            count
        };
        self.0.slave.wake(Events::WRITABLE);
        Ok(count)
    }

    /// Types; how many of the bytes were taken.
    pub fn write(&self, bytes: &[u8]) -> usize {
        bytes
            .chunks(super::CHUNK)
            .try_fold(0, |done, piece| match self.0.input(piece) {
                Ok(taken) if taken == piece.len() => Ok(done + taken),
                taken => Err(done + taken.unwrap_or(0)),
            })
            .unwrap_or_else(|done| done)
    }

    /// The terminal has another size: the foreground hears of it (SIGWINCH).
    pub fn resize(&self, rows: u16, columns: u16) {
        let size = [rows, columns, 0, 0];
        let before = self.0.with_line(|line| core::mem::replace(&mut line.size, size));
        if before != size {
            self.0.resized();
        }
    }

    /// Woken when there is something to read, or room again.
    pub fn queue(&self) -> &WaitQueue {
        &self.0.master
    }
}

impl Drop for Outside {
    fn drop(&mut self) {
        self.0.end();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use api_fs::{Sink, Source};

    #[test]
    fn what_is_typed_is_read_echoed_and_the_end_is_a_hang_up() {
        let ours = Outside::new((7, 8), 24, 80).unwrap();
        let slave = ours.open_slave().unwrap();
        assert_eq!(
            ours.0.control(),
            Control::NOTHING,
            "the session of whoever opens it for us has no terminal by that"
        );
        let stat = slave.stat().unwrap();
        assert_eq!((stat.uid, stat.gid), (7, crate::TTY_GROUP));
        assert_eq!(ours.write(b"hi\r"), 3);
        let mut to = [0; 16];
        assert_eq!(slave.read(0, &mut Sink::kernel(&mut to)), Ok(3));
        assert_eq!(&to[..3], b"hi\n");
        assert_eq!(ours.read(&mut to), Ok(4));
        assert_eq!(&to[..4], b"hi\r\n");
        assert_eq!(ours.read(&mut to), Err(EAGAIN));
        slave.write(0, &mut Source::kernel(b"out\n")).unwrap();
        slave.close().unwrap();
        // What was written before the slave went is read first.
        assert_eq!(ours.read(&mut to), Ok(5));
        assert_eq!(ours.read(&mut to), Err(EIO));
        let again = ours.open_slave().unwrap();
        assert_eq!(ours.read(&mut to), Err(EAGAIN));
        drop(ours);
        assert!(again.poll().contains(Events::HUP | Events::READABLE));
        assert_eq!(again.write(0, &mut Source::kernel(b"x")), Err(EIO));
    }
}
