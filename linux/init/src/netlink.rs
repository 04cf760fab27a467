// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Route netlink (RFC 3549), the four requests this program needs.
//!
//! A message is a 16-byte header (length, type, flags, sequence, port), a fixed body of its type, and attributes
//! (length, type, value), each padded to 4 bytes; linux/netlink.h and linux/rtnetlink.h.

use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socket_with};
use std::os::fd::OwnedFd;

const NLMSG_ERROR: u16 = 2;
const RTM_NEWLINK: u16 = 16;
const RTM_NEWADDR: u16 = 20;
const RTM_NEWROUTE: u16 = 24;
const NLM_F_REQUEST: u16 = 1;
const NLM_F_ACK: u16 = 4;
const NLM_F_CREATE: u16 = 0x400;
const IFF_UP: u32 = 1;
const IFA_ADDRESS: u16 = 1;
const IFA_LOCAL: u16 = 2;
const RTA_GATEWAY: u16 = 5;
const AF_INET: u8 = 2;
const RT_TABLE_MAIN: u8 = 254;
const RTPROT_BOOT: u8 = 3;
const RTN_UNICAST: u8 = 1;

/// A route netlink socket.
pub struct Netlink(OwnedFd);

impl Netlink {
    pub fn open() -> rustix::io::Result<Netlink> {
        // Protocol 0 is NETLINK_ROUTE.
        socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, None).map(Netlink)
    }

    /// Brings a device up.
    pub fn link_up(&self, device: u32) -> rustix::io::Result<()> {
        let mut body = vec![0; 4];
        body.extend(device.to_ne_bytes());
        body.extend(IFF_UP.to_ne_bytes());
        body.extend(IFF_UP.to_ne_bytes());
        self.request(RTM_NEWLINK, 0, &body)
    }

    /// Gives a device an address, and with it the route to its network.
    pub fn address(&self, device: u32, address: [u8; 4], prefix: u8) -> rustix::io::Result<()> {
        let mut body = vec![AF_INET, prefix, 0, 0];
        body.extend(device.to_ne_bytes());
        attribute(&mut body, IFA_LOCAL, &address);
        attribute(&mut body, IFA_ADDRESS, &address);
        self.request(RTM_NEWADDR, NLM_F_CREATE, &body)
    }

    /// Sets the default route.
    pub fn default_route(&self, gateway: [u8; 4]) -> rustix::io::Result<()> {
        let mut body = vec![AF_INET, 0, 0, 0, RT_TABLE_MAIN, RTPROT_BOOT, 0, RTN_UNICAST, 0, 0, 0, 0];
        attribute(&mut body, RTA_GATEWAY, &gateway);
        self.request(RTM_NEWROUTE, NLM_F_CREATE, &body)
    }

    fn request(&self, kind: u16, flags: u16, body: &[u8]) -> rustix::io::Result<()> {
        send(&self.0, &message(kind, flags, body), SendFlags::empty())?;
        let mut reply = [0; 1024];
        let (length, _) = recv(&self.0, &mut reply[..], RecvFlags::empty())?;
        match acknowledgement(&reply[..length]) {
            Some(0) => Ok(()),
            Some(error) => Err(rustix::io::Errno::from_raw_os_error(-error)),
            None => Err(rustix::io::Errno::PROTO),
        }
    }
}

fn message(kind: u16, flags: u16, body: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    out.extend((16 + body.len() as u32).to_ne_bytes());
    out.extend(kind.to_ne_bytes());
    out.extend((NLM_F_REQUEST | NLM_F_ACK | flags).to_ne_bytes());
    out.extend([0; 8]);
    out.extend(body);
    out
}

/// Appends one attribute; every value here is a multiple of 4 bytes, so none needs padding.
fn attribute(out: &mut Vec<u8>, kind: u16, value: &[u8; 4]) {
    out.extend((4 + value.len() as u16).to_ne_bytes());
    out.extend(kind.to_ne_bytes());
    out.extend(value);
}

/// The error number of an acknowledgement, 0 for success and negative otherwise.
fn acknowledgement(reply: &[u8]) -> Option<i32> {
    let kind = u16::from_ne_bytes(reply.get(4..6)?.try_into().ok()?);
    let error = i32::from_ne_bytes(reply.get(16..20)?.try_into().ok()?);
    (kind == NLMSG_ERROR).then_some(error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_states_its_own_length() {
        let mut body = vec![0; 8];
        attribute(&mut body, IFA_LOCAL, &[10, 0, 2, 15]);
        let message = message(RTM_NEWADDR, NLM_F_CREATE, &body);
        assert_eq!(message.len(), 32);
        assert_eq!(message[..8], [32, 0, 0, 0, 20, 0, 5, 4]);
        assert_eq!(message[24..], [8, 0, 2, 0, 10, 0, 2, 15]);
    }

    #[test]
    fn only_an_error_message_is_an_acknowledgement() {
        let mut reply = vec![36, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        reply.extend((-17i32).to_ne_bytes());
        assert_eq!(acknowledgement(&reply), Some(-17));
        reply[4] = 3;
        assert_eq!(acknowledgement(&reply), None);
        assert_eq!(acknowledgement(&reply[..10]), None);
    }
}
