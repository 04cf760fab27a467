// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What rtnetlink(7) says, for what shows it as text; /proc/net/dev, /proc/net/route and /proc/net/arp (proc(5)).

use super::text;
use abi::{Errno, Result, errno::*};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use api_fs::{Sink, Source};
use api_socket::{Address, Credentials, Sending};
use core::str::FromStr;

const SOCK_RAW: u32 = 3;
const NLM_F_REQUEST_DUMP: u16 = 0x301;
const NLM_F_REQUEST_ACK: u16 = 5;
const NLMSG_ERROR: u16 = 2;
const RTM_SETLINK: u16 = 19;
pub const IFLA_MTU: u16 = 4;
const RTM_NEWLINK: u16 = 16;
const RTM_GETLINK: u16 = 18;
const RTM_NEWROUTE: u16 = 24;
const RTM_GETROUTE: u16 = 26;
const IFLA_IFNAME: u16 = 3;
const IFLA_STATS64: u16 = 23;
const RTA_DST: u16 = 1;
const RTA_OIF: u16 = 4;
const RTA_GATEWAY: u16 = 5;
const RTA_PRIORITY: u16 = 6;
const RTM_NEWNEIGH: u16 = 28;
const RTM_GETNEIGH: u16 = 30;
const NDA_DST: u16 = 1;
const NDA_LLADDR: u16 = 2;
const NUD_PERMANENT: u16 = 0x80;
/// Of `struct ndmsg`.
const NEIGHBOUR: usize = 12;
/// Of `struct nlmsghdr`.
pub const HEADER: usize = 16;
/// Of `struct ifinfomsg` and of `struct rtmsg`.
pub const LINK: usize = 16;
const ROUTE: usize = 12;
/// Flags of a route: it is up, it has a gateway.
const RTF_UP: u32 = 1;
const RTF_GATEWAY: u32 = 2;
/// It leads to one host; it leads nowhere.
const RTF_HOST: u32 = 4;
const RTF_REJECT: u32 = 0x200;
/// Of `struct rtmsg`: the family, the main table, and types of routes.
const AF_INET: u8 = 2;
const MAIN: u8 = 254;
const LOCAL: u8 = 2;
const BROADCAST: u8 = 3;
const UNREACHABLE: u8 = 7;
const PROHIBIT: u8 = 8;
/// A dump of the two interfaces has some hundred bytes each.
const REPLY: usize = 8192;
/// Lines of the table of routes have one length.
const ROUTE_LINE: usize = 127;

/// A row of net.ipv4.conf, which is of the caller's network.
macro_rules! tag {
    ($directory:literal) => {
        (
            concat!("sys/net/ipv4/conf/", $directory, "/tag"),
            procfs::Entry::File {
                text: |_| $crate::net::table(concat!($directory, "_tag")),
                store: |_, written| $crate::interfaces::store_tag(concat!($directory, "_tag"), written),
                permissions: 0o644,
            },
        )
    };
}
pub(crate) use tag;

pub fn store_tag(name: &str, written: &[u8]) -> Result<()> {
    api_socket::set(name, number_written(written)?)
}

/// The number that was written to a file.
pub fn number_written<T: FromStr>(written: &[u8]) -> Result<T> {
    let text = core::str::from_utf8(written).map_err(|_| EINVAL)?;
    text.trim_end_matches('\0').trim().parse().map_err(|_| EINVAL)
}

/// A number of 4 bytes; 0 where there are fewer.
pub fn word(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..at + 4).and_then(|b| b.try_into().ok()).map_or(0, u32::from_ne_bytes)
}

pub fn half(bytes: &[u8], at: usize) -> u16 {
    bytes.get(at..at + 2).and_then(|b| b.try_into().ok()).map_or(0, u16::from_ne_bytes)
}

/// The messages of one kind that a dump answers with, whole.
fn dump(ask: u16, kind: u16) -> Result<Vec<Vec<u8>>> {
    // A kernel without a network has no such family.
    let socket = match api_socket::create(Credentials::default(), Address::NETLINK.into(), SOCK_RAW, 0) {
        Err(EAFNOSUPPORT) => return Ok(Vec::new()),
        socket => socket?,
    };
    let mut request = Vec::new();
    request.extend_from_slice(&(HEADER as u32 + 1).to_ne_bytes());
    request.extend_from_slice(&ask.to_ne_bytes());
    request.extend_from_slice(&NLM_F_REQUEST_DUMP.to_ne_bytes());
    // Number, port, and the family: any.
    request.extend_from_slice(&[0; 9]);
    socket.send(None, &Sending::default(), &mut Source::kernel(&request))?;
    let mut buffer = api_user::zeroed(REPLY)?;
    let mut out = Vec::new();
    loop {
        let mut left = match socket.receive(&mut Sink::kernel(&mut buffer), 0) {
            Ok(received) => &buffer[..received.length.min(REPLY)],
            Err(_) => return Ok(out),
        };
        while left.len() >= HEADER {
            let length = (word(left, 0) as usize).clamp(HEADER, left.len());
            if half(left, 4) == kind {
                out.push(left[..length].to_vec());
            }
            left = &left[length.next_multiple_of(4).min(left.len())..];
        }
    }
}

/// The interfaces of the caller's network, each as a message says it.
pub fn links() -> Result<Vec<Vec<u8>>> {
    dump(RTM_GETLINK, RTM_NEWLINK)
}

/// Gives the interface of this number another MTU, as the caller.
pub fn set_mtu(index: u32, mtu: u32) -> Result<()> {
    let socket = api_socket::create(Credentials::default(), Address::NETLINK.into(), SOCK_RAW, 0)?;
    let mut request = Vec::new();
    request.extend_from_slice(&((HEADER + LINK + 8) as u32).to_ne_bytes());
    [RTM_SETLINK, NLM_F_REQUEST_ACK].iter().for_each(|half| request.extend_from_slice(&half.to_ne_bytes()));
    // Number and port; the family, and the type of the interface.
    request.extend_from_slice(&[0; 12]);
    request.extend_from_slice(&index.to_ne_bytes());
    // Its flags, and which of them are to change: none.
    request.extend_from_slice(&[0; 8]);
    [8, IFLA_MTU].iter().for_each(|half| request.extend_from_slice(&half.to_ne_bytes()));
    request.extend_from_slice(&mtu.to_ne_bytes());
    socket.send(api_socket::caller().as_ref(), &Sending::default(), &mut Source::kernel(&request))?;
    let mut buffer = api_user::zeroed(REPLY)?;
    let length = socket.receive(&mut Sink::kernel(&mut buffer), 0)?.length.min(REPLY);
    let reply = &buffer[..length];
    if half(reply, 4) != NLMSG_ERROR {
        return Err(EIO);
    }
    match word(reply, HEADER) as i32 {
        0 => Ok(()),
        code => Err(Errno(code.unsigned_abs() as u16)),
    }
}

/// An attribute of a message whose attributes begin at `start`.
pub fn attribute(message: &[u8], start: usize, kind: u16) -> Option<&[u8]> {
    let mut left = message.get(start..)?;
    while left.len() >= 4 {
        let length = usize::from(half(left, 0)).clamp(4, left.len());
        if half(left, 2) == kind {
            return Some(&left[4..length]);
        }
        left = &left[length.next_multiple_of(4).min(left.len())..];
    }
    None
}

pub fn name(link: &[u8]) -> String {
    let bytes = attribute(link, HEADER + LINK, IFLA_IFNAME).unwrap_or_default();
    String::from_utf8_lossy(bytes.split(|b| *b == 0).next().unwrap_or_default()).into_owned()
}

/// A counter of an interface by its place in `struct rtnl_link_stats64`.
pub fn counter(link: &[u8], place: usize) -> u64 {
    let counters = attribute(link, HEADER + LINK, IFLA_STATS64).unwrap_or_default();
    let bytes = counters.get(place * 8..).and_then(|bytes| bytes.first_chunk());
    bytes.map_or(0, |bytes| u64::from_ne_bytes(*bytes))
}

/// /proc/net/dev.
pub fn devices() -> Result<Vec<u8>> {
    let mut out = String::from(
        "Inter-|   Receive                                                |  Transmit\n \
         face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed\n",
    );
    for link in links()? {
        let n = |place| counter(&link, place);
        out += &format!(
            "{:>6}: {:7} {:7} {:4} {:4} {:4} {:5} {:10} {:9} {:8} {:7} {:4} {:4} {:4} {:5} {:7} {:10}\n",
            name(&link),
            n(2),
            n(0),
            n(4),
            n(6),
            0,
            0,
            0,
            n(8),
            n(3),
            n(1),
            n(5),
            n(7),
            0,
            0,
            0,
            0
        );
    }
    text(out)
}

/// /proc/net/route.
pub fn routes() -> Result<Vec<u8>> {
    let links = links()?;
    let title = "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT";
    let mut out = format!("{title:<ROUTE_LINE$}\n");
    // Routes of IPv4, without those of other tables and of this machine's own addresses.
    let is_listed = |route: &Vec<u8>| {
        let field = |at: usize| route.get(HEADER + at).copied().unwrap_or(0);
        field(0) == AF_INET && field(4) == MAIN && !matches!(field(7), LOCAL | BROADCAST)
    };
    for route in dump(RTM_GETROUTE, RTM_NEWROUTE)?.iter().filter(|route| is_listed(route)) {
        let number = |kind| attribute(route, HEADER + ROUTE, kind).map(|bytes| word(bytes, 0));
        let index = number(RTA_OIF).unwrap_or(0);
        let interface = links.iter().find(|link| word(link, HEADER + 4) == index).map(|link| name(link));
        let prefix = u32::from(route.get(HEADER + 1).copied().unwrap_or(0));
        // In the order of the wire, as the addresses are.
        let mask = u32::MAX.checked_shl(32 - prefix).unwrap_or(0).to_be();
        let gateway = number(RTA_GATEWAY);
        let kind = route.get(HEADER + 7).copied().unwrap_or(0);
        let line = format!(
            "{}\t{:08X}\t{:08X}\t{:04X}\t0\t0\t{}\t{mask:08X}\t0\t0\t0",
            interface.unwrap_or_else(|| String::from("*")),
            number(RTA_DST).unwrap_or(0),
            gateway.unwrap_or(0),
            RTF_UP
                | if gateway.is_some() { RTF_GATEWAY } else { 0 }
                | if prefix == 32 { RTF_HOST } else { 0 }
                | if matches!(kind, UNREACHABLE | PROHIBIT) { RTF_REJECT } else { 0 },
            number(RTA_PRIORITY).unwrap_or(0),
        );
        out += &format!("{line:<ROUTE_LINE$}\n");
    }
    text(out)
}

/// /proc/net/arp.
pub fn neighbours() -> Result<Vec<u8>> {
    let links = links()?;
    let mut out =
        String::from("IP address       HW type     Flags       HW address            Mask     Device\n");
    for entry in dump(RTM_GETNEIGH, RTM_NEWNEIGH)? {
        if entry.get(HEADER) != Some(&AF_INET) {
            continue;
        }
        let index = word(&entry, HEADER + 4);
        let interface = links.iter().find(|link| word(link, HEADER + 4) == index).map(|link| name(link));
        let Some(to) = attribute(&entry, HEADER + NEIGHBOUR, NDA_DST).and_then(|to| to.first_chunk::<4>())
        else {
            continue;
        };
        let mac = attribute(&entry, HEADER + NEIGHBOUR, NDA_LLADDR).and_then(|mac| mac.first_chunk::<6>());
        // ATF_COM and ATF_PERM.
        let is_permanent = half(&entry, HEADER + 8) & NUD_PERMANENT != 0;
        let flags = if mac.is_some() { 2 } else { 0 } | if is_permanent { 4 } else { 0 };
        let [a, b, c, d, e, f] = *mac.unwrap_or(&[0; 6]);
        out += &format!(
            "{:<16} 0x1         0x{flags:<10x}{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{f:02x}     *        {}\n",
            format!("{}.{}.{}.{}", to[0], to[1], to[2], to[3]),
            interface.unwrap_or_default(),
        );
    }
    text(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_are_found_and_damaged_ones_end_the_search() {
        let message = [0, 0, 0, 0, 5, 0, 1, 0, 7, 0, 0, 0, 8, 0, 3, 0, 1, 2, 3, 4];
        assert_eq!(attribute(&message, 4, 1), Some(&[7][..]));
        assert_eq!(attribute(&message, 4, 3), Some(&[1, 2, 3, 4][..]));
        assert_eq!(attribute(&message, 4, 9), None);
        assert_eq!(attribute(&[200, 0, 9, 0, 1], 0, 9), Some(&[1][..]));
        assert_eq!(attribute(&[0, 0, 1, 0, 0, 0, 2, 0], 0, 9), None);
        assert_eq!(attribute(&[], 4, 9), None);
    }
}
