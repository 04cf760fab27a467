// SPDX-License-Identifier: Apache-2.0 OR MIT
//! NETLINK_GENERIC, whose families have names instead of numbers of their own (Linux' Documentation/userspace-api/netlink/intro.rst). There
//! is the one family that tells of families, itself; programs that look for another one hear that there is none.

use super::message::{Attributes, Message, Reply};
use super::*;

/// The family of the controller, which is also the first number that there is, and its name.
const GENL_ID_CTRL: u16 = 16;
const NAME: &[u8] = b"nlctrl\0";
const CTRL_VERSION: u32 = 2;
const CTRL_CMD_NEWFAMILY: u8 = 1;
const CTRL_CMD_GETFAMILY: u8 = 3;
const CTRL_ATTR_FAMILY_ID: u16 = 1;
const CTRL_ATTR_FAMILY_NAME: u16 = 2;
const CTRL_ATTR_VERSION: u16 = 3;
const CTRL_ATTR_HDRSIZE: u16 = 4;
const CTRL_ATTR_MAXATTR: u16 = 5;
const CTRL_ATTR_OPS: u16 = 6;
const CTRL_ATTR_MCAST_GROUPS: u16 = 7;
/// Of an operation and of a group, in their own attributes.
const ID: u16 = 1;
const OP_FLAGS: u16 = 2;
const GROUP_NAME: u16 = 1;
const GROUP_ID: u16 = 2;
/// GENL_CMD_CAP_DO, GENL_CMD_CAP_DUMP and GENL_CMD_CAP_HASPOL.
const CAPABILITIES: u32 = 0xe;
/// Of `struct nlmsghdr`, and with `struct genlmsghdr` behind it.
const HEADER: usize = 16;
const HEADERS: usize = 20;
/// Longest name with its zero (GENL_NAMSIZ).
const MAX_NAME: usize = 16;

impl NetlinkSocket {
    /// Takes one request.
    pub(super) fn answer_generic(&self, request: &[u8]) -> Result<()> {
        let half = |at: usize| request.get(at..at + 2).map_or(0, |b| u16::from_ne_bytes([b[0], b[1]]));
        let seq = request.get(8..12).and_then(|b| b.try_into().ok()).map_or(0, u32::from_ne_bytes);
        let (kind, flags) = (half(4), half(6));
        if flags & NLM_F_REQUEST == 0 || kind < GENL_ID_CTRL {
            return self.acknowledge(flags, request);
        }
        let is_part = flags & NLM_F_DUMP != 0;
        let reply = Reply { seq, port: self.port(), is_part };
        match find(kind, request, is_part) {
            Err(errno) => self.push(self.error(errno, request)?),
            Ok(()) => {
                self.push(family(reply)?)?;
                match is_part {
                    true => self.push(reply.message(NLMSG_DONE).put(&[0; 4]).finish()?),
                    false => self.acknowledge(flags, request),
                }
            }
        }
    }
}

/// Whether the request is for the one family that there is (Linux' `genl_rcv_msg` and `ctrl_getfamily`).
fn find(kind: u16, request: &[u8], is_dump: bool) -> Result<()> {
    if kind != GENL_ID_CTRL {
        return Err(ENOENT);
    }
    let attributes = request.get(HEADERS..).ok_or(EINVAL)?;
    if request[HEADER] != CTRL_CMD_GETFAMILY {
        return Err(EOPNOTSUPP);
    }
    if is_dump {
        return Ok(());
    }
    let (mut by_id, mut by_name) = (None, None);
    for (kind, data) in Attributes(attributes) {
        match kind {
            CTRL_ATTR_FAMILY_ID => {
                let id = data.first_chunk::<2>().ok_or(ERANGE)?;
                by_id = Some(u16::from_ne_bytes(*id) == GENL_ID_CTRL);
            }
            CTRL_ATTR_FAMILY_NAME => {
                let end = data.iter().take(MAX_NAME).position(|byte| *byte == 0).ok_or(EINVAL)?;
                by_name = Some(data[..=end] == *NAME);
            }
            _ => {}
        }
    }
    if by_name.or(by_id).ok_or(EINVAL)? { Ok(()) } else { Err(ENOENT) }
}

/// CTRL_CMD_NEWFAMILY, as the controller tells of itself.
fn family(reply: Reply) -> Result<Vec<u8>> {
    let word = |value: u32| value.to_ne_bytes();
    let operation =
        attributes(&[(ID, &word(u32::from(CTRL_CMD_GETFAMILY))), (OP_FLAGS, &word(CAPABILITIES))])?;
    let group = attributes(&[(GROUP_ID, &word(u32::from(GENL_ID_CTRL))), (GROUP_NAME, b"notify\0")])?;
    // Lists, whose attributes are counted from 1.
    let (operations, groups) = (attributes(&[(1, &operation)])?, attributes(&[(1, &group)])?);
    reply
        .message(GENL_ID_CTRL)
        .put(&[CTRL_CMD_NEWFAMILY, CTRL_VERSION as u8, 0, 0])
        .attribute(CTRL_ATTR_FAMILY_NAME, NAME)
        .attribute(CTRL_ATTR_FAMILY_ID, &GENL_ID_CTRL.to_ne_bytes())
        .attribute(CTRL_ATTR_VERSION, &word(CTRL_VERSION))
        .attribute(CTRL_ATTR_HDRSIZE, &word(0))
        .attribute(CTRL_ATTR_MAXATTR, &word(0))
        .attribute(CTRL_ATTR_OPS, &operations)
        .attribute(CTRL_ATTR_MCAST_GROUPS, &groups)
        .finish()
}

/// Attributes alone, to be in another one.
fn attributes(all: &[(u16, &[u8])]) -> Result<Vec<u8>> {
    all.iter().fold(Message::empty(), |message, (kind, data)| message.attribute(*kind, data)).finish_part()
}
