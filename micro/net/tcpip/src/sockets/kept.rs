// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Options of IPPROTO_IP and IPPROTO_TCP that are kept as they were set. All but IP_FREEBIND and IP_TRANSPARENT change nothing here.

use super::IPPROTO_TCP;
use super::options::int_or_byte;
use abi::linux::net as linux;
use abi::{Result, errno::*};
use alloc::vec::Vec;
use api_alloc::Reserve;
use api_socket::options::{Takes, from_int, int};

pub const IPPROTO_IP: u32 = 0;

/// Level, name, what it is before, and which values it takes.
type Known = (u32, u32, i32, Takes);

/// From nothing on.
const UNSIGNED: Takes = Takes::Range(0, i32::MAX);

const ALL: [Known; 10] = [
    (IPPROTO_IP, linux::IP_MTU_DISCOVER, 1, Takes::Range(0, 5)),
    (IPPROTO_IP, linux::IP_FREEBIND, 0, Takes::Flag),
    (IPPROTO_IP, linux::IP_BIND_ADDRESS_NO_PORT, 0, Takes::Flag),
    (IPPROTO_IP, linux::IP_TRANSPARENT, 0, Takes::Flag),
    (IPPROTO_IP, linux::IP_MINTTL, 0, Takes::Range(0, 255)),
    (IPPROTO_IP, linux::IP_RECVOPTS, 0, Takes::Flag),
    (IPPROTO_IP, linux::IP_RETOPTS, 0, Takes::Flag),
    (IPPROTO_IP, linux::IP_PASSSEC, 0, Takes::Flag),
    (IPPROTO_IP, linux::IP_MULTICAST_ALL, 1, Takes::BOOL),
    (IPPROTO_IP, linux::IP_RECVERR_RFC4884, 0, Takes::BOOL),
];

/// Of datagrams and raw sockets alone.
const PACKETS: [Known; 2] = [
    (IPPROTO_IP, linux::IP_RECVFRAGSIZE, 0, Takes::Flag),
    // The sum that a device made of a packet: none makes one that is not looked at before.
    (IPPROTO_IP, linux::IP_CHECKSUM, 0, Takes::Flag),
];

/// Of streams alone: no packet of theirs is handed to the program.
const STREAMS: [Known; 16] = [
    (IPPROTO_IP, linux::IP_RECVORIGDSTADDR, 0, Takes::Flag),
    (IPPROTO_IP, linux::IP_RECVERR, 0, Takes::Flag),
    (IPPROTO_IP, linux::IP_PKTINFO, 0, Takes::Flag),
    (IPPROTO_IP, linux::IP_RECVTTL, 0, Takes::Flag),
    (IPPROTO_IP, linux::IP_RECVTOS, 0, Takes::Flag),
    (IPPROTO_IP, linux::IP_CHECKSUM, 0, Takes::Flag),
    (IPPROTO_IP, linux::IP_MULTICAST_LOOP, 1, Takes::Flag),
    // Every connection makes the full handshake, which the protocol always allows.
    (IPPROTO_TCP, linux::TCP_FASTOPEN, 0, UNSIGNED),
    (IPPROTO_TCP, linux::TCP_FASTOPEN_CONNECT, 0, Takes::BOOL),
    (IPPROTO_TCP, linux::TCP_FASTOPEN_NO_COOKIE, 0, Takes::BOOL),
    (IPPROTO_TCP, linux::TCP_WINDOW_CLAMP, 0, Takes::ANY),
    (IPPROTO_TCP, linux::TCP_NOTSENT_LOWAT, 0, Takes::ANY),
    (IPPROTO_TCP, linux::TCP_THIN_LINEAR_TIMEOUTS, 0, Takes::BOOL),
    (IPPROTO_TCP, linux::TCP_THIN_DUPACK, 0, Takes::BOOL),
    (IPPROTO_TCP, linux::TCP_SAVE_SYN, 0, Takes::BOOL),
    (IPPROTO_TCP, linux::TCP_INQ, 0, Takes::BOOL),
];

/// Options of IPPROTO_IP whose value must be there.
const NOT_EMPTY: [u32; 5] = [
    linux::IP_FREEBIND,
    linux::IP_TRANSPARENT,
    linux::IP_MINTTL,
    linux::IP_MULTICAST_ALL,
    linux::IP_MULTICAST_LOOP,
];

const LEAST_CLAMP: i32 = 2304 / 2;

/// What was set.
#[derive(Debug, Default)]
pub struct Kept(Vec<(u32, u32, i32)>);

impl Kept {
    /// `None` when the option is not one of these.
    pub fn set(&mut self, stream: bool, level: i32, name: i32, value: &[u8]) -> Option<Result<()>> {
        let (level, name, _, takes) = known(stream, level, name)?;
        // Of TCP all are ints; of IP some must be there, and others are 0 where they are not.
        let asked = match (level, name) {
            (IPPROTO_TCP, _) => int(value),
            (_, name) if value.is_empty() && NOT_EMPTY.contains(&name) => Err(EINVAL),
            _ => int_or_byte(value),
        };
        let keep = asked.and_then(|n| takes.keep(n));
        // A window has no less than half of the smallest buffer (Linux' SOCK_MIN_RCVBUF), or no limit.
        let is_clamp = (level, name) == (IPPROTO_TCP, linux::TCP_WINDOW_CLAMP);
        let keep = keep.map(|n| if is_clamp && n > 0 { n.max(LEAST_CLAMP) } else { n });
        Some(keep.and_then(|n| {
            self.0.retain(|(l, k, _)| (*l, *k) != (level, name));
            self.0.reserve_fallibly(1).map_err(|_| ENOMEM)?;
            self.0.push((level, name, n));
            Ok(())
        }))
    }

    /// `None` when the option is not one of these.
    pub fn get(&self, stream: bool, level: i32, name: i32) -> Option<i32> {
        let (level, name, before, _) = known(stream, level, name)?;
        Some(self.0.iter().find(|(l, k, _)| (*l, *k) == (level, name)).map_or(before, |(_, _, n)| *n))
    }

    /// IP_FREEBIND or IP_TRANSPARENT: bind(2) takes addresses that are not this machine's (ip(7)).
    pub fn binds_anywhere(&self) -> bool {
        let binds = |name| name == linux::IP_FREEBIND || name == linux::IP_TRANSPARENT;
        self.0.iter().any(|(level, name, n)| *level == IPPROTO_IP && binds(*name) && *n != 0)
    }

    pub fn value(&self, stream: bool, level: i32, name: i32) -> Option<Vec<u8>> {
        self.get(stream, level, name).map(from_int)
    }
}

fn known(stream: bool, level: i32, name: i32) -> Option<Known> {
    let more: &[Known] = if stream { &STREAMS } else { &PACKETS };
    ALL.iter().chain(more).find(|(l, n, ..)| (*l, *n) == (level as u32, name as u32)).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_option_reads_back_as_it_was_set_and_has_its_range() {
        let mut kept = Kept::default();
        let (level, name) = (IPPROTO_IP as i32, linux::IP_MTU_DISCOVER as i32);
        assert_eq!(kept.get(false, level, name), Some(1));
        assert_eq!(kept.set(false, level, name, &2i32.to_ne_bytes()), Some(Ok(())));
        assert_eq!(kept.get(false, level, name), Some(2));
        assert_eq!(kept.set(false, level, name, &6i32.to_ne_bytes()), Some(Err(EINVAL)));
        let (level, name) = (IPPROTO_TCP as i32, linux::TCP_INQ as i32);
        assert_eq!(kept.get(false, level, name), None, "only streams have it");
        assert_eq!(kept.set(true, level, name, &[]), Some(Err(EINVAL)));
    }
}
