// SPDX-License-Identifier: Apache-2.0 OR MIT
//! NETLINK_SOCK_DIAG (sock_diag(7)): requests are passed on to who knows the sockets of all programs. A dump is made while it is read, a
//! part at a time, so that one of many sockets takes no more memory than one of few.

use super::message::{Message, append};
use super::*;
use api_socket::diagnosis;

const SOCK_DIAG_BY_FAMILY: u16 = 20;
const SOCK_DESTROY: u16 = 21;
/// Bytes of a part, where the reader has less room and where it has more (Linux' min_dump_alloc and the most that it allocates).
const PART: usize = 3500;
const MAX_PART: usize = 32 << 10;
/// Of `struct nlmsghdr`.
const HEADER: usize = 16;

/// A dump that is being read.
pub(super) struct Dump {
    /// What follows the request's header.
    request: Vec<u8>,
    seq: u32,
    /// The last socket that was told of.
    after: u64,
}

impl NetlinkSocket {
    /// Takes one request.
    pub(super) fn diagnose(&self, request: &[u8]) -> Result<()> {
        let half = |at: usize| request.get(at..at + 2).map_or(0, |b| u16::from_ne_bytes([b[0], b[1]]));
        let seq = request.get(8..12).and_then(|b| b.try_into().ok()).map_or(0, u32::from_ne_bytes);
        let (kind, flags) = (half(4), half(6));
        if flags & NLM_F_REQUEST == 0 || kind < 16 {
            return self.acknowledge(flags, request);
        }
        let about = request.get(HEADER..).unwrap_or_default();
        let answer = match kind {
            SOCK_DIAG_BY_FAMILY => diagnosis().ok_or(ENOENT),
            // As a Linux without CONFIG_INET_DIAG_DESTROY.
            SOCK_DESTROY => Err(EOPNOTSUPP),
            _ => Err(EINVAL),
        };
        let is_dump = flags & NLM_F_DUMP != 0;
        let begun = answer.and_then(|diagnosis| match is_dump {
            true => diagnosis.check(about).map(|()| None),
            false => diagnosis.find(about).map(Some),
        });
        match begun {
            Err(errno) => self.push(self.error(errno, request)?),
            Ok(Some(one)) => {
                self.push(Message::new(SOCK_DIAG_BY_FAMILY, 0, seq, self.port()).put(&one).finish()?)?;
                self.acknowledge(flags, request)
            }
            Ok(None) => {
                let mut dump = self.dump.lock();
                // Linux' __netlink_dump_start.
                if dump.is_some() {
                    drop(dump);
                    return self.push(self.error(EBUSY, request)?);
                }
                let mut kept = Vec::new();
                append(&mut kept, about)?;
                *dump = Some(Dump { request: kept, seq, after: 0 });
                Ok(())
            }
        }
    }

    /// Makes the next part of a dump that is being read, for a reader with so much room.
    pub(super) fn make_part(&self, room: usize) -> Result<()> {
        // Only one reader makes it; the lock is not held while descriptors are looked at.
        let Some(mut dump) = self.dump.lock().take() else { return Ok(()) };
        let limit = room.clamp(PART, MAX_PART);
        let (mut part, port, seq) = (Vec::new(), self.port(), dump.seq);
        let (mut is_full, mut last) = (false, dump.after);
        let told = diagnosis().ok_or(ENOENT).and_then(|diagnosis| {
            diagnosis.dump(&dump.request, dump.after, &mut |inode, about| {
                if !part.is_empty() && part.len() + HEADER + about.len() > limit {
                    is_full = true;
                    return Ok(false);
                }
                let message = Message::new(SOCK_DIAG_BY_FAMILY, NLM_F_MULTI, seq, port);
                append(&mut part, &message.put(about).finish()?)?;
                last = inode;
                Ok(true)
            })
        });
        if is_full && told.is_ok() {
            dump.after = last;
            *self.dump.lock() = Some(dump);
            return self.push(part);
        }
        let errno = told.err().map_or(0, |errno| -i32::from(errno.0));
        let end = Message::new(NLMSG_DONE, NLM_F_MULTI, seq, port).put(&errno.to_ne_bytes()).finish()?;
        if part.is_empty() {
            return self.push(end);
        }
        self.push(part)?;
        self.push(end)
    }
}
