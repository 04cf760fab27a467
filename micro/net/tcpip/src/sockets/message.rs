// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Control messages of datagrams (ip(7), ipv6(7), udp(7)): what sendmsg(2) says about one message, and what the error
//! queue says about a lost one.

use super::domain::Domain;
use super::ipv6::{self, IPPROTO_IPV6};
use super::kept::IPPROTO_IP;
use crate::families::{LOOPBACK6, is_v6};
use crate::udp::{Choice, Failure};
use abi::linux::net as linux;
use abi::{Result, errno::*};
use alloc::vec::Vec;
use api_socket::options::int;
use api_socket::{Address, Control};
use core::net::{Ipv4Addr, Ipv6Addr};

pub const UDP_SEGMENT: u32 = 103;
/// struct sock_extended_err's origins.
const ICMP: u8 = 2;
const ICMP6: u8 = 3;

/// The number of an address of IPv6 on a link.
pub type NumberOf<'a> = &'a dyn Fn(Ipv6Addr, u32) -> Result<Ipv4Addr>;

/// What the control messages ask for, of a socket that is bound to this interface (0: to none). Those of other levels are not for this protocol, as on Linux.
pub fn choice(
    number_of: NumberOf<'_>,
    control: &[Control],
    domain: Domain,
    interface: i32,
) -> Result<Choice> {
    let mut choice = Choice { interface: interface as u32, ..Choice::default() };
    for message in control {
        let Control::Other { level, kind, data } = message else { continue };
        match (*level as u32, *kind as u32) {
            (linux::SOL_UDP, UDP_SEGMENT) => {
                let size: [u8; 2] = data[..].try_into().map_err(|_| EINVAL)?;
                choice.segment = Some(u16::from_ne_bytes(size).into());
            }
            (linux::SOL_UDP, _) => return Err(EINVAL),
            (IPPROTO_IP, kind) => of_ip(kind, data, &mut choice)?,
            (IPPROTO_IPV6, kind) if domain == Domain::V6 => of_ipv6(number_of, kind, data, &mut choice)?,
            _ => {}
        }
    }
    Ok(choice)
}

/// An `int` and nothing else, in this range.
fn exactly(data: &[u8], range: core::ops::RangeInclusive<i32>) -> Result<i32> {
    let n = int(data)?;
    if data.len() == 4 && range.contains(&n) { Ok(n) } else { Err(EINVAL) }
}

fn of_ip(kind: u32, data: &[u8], choice: &mut Choice) -> Result<()> {
    match kind {
        linux::IP_TTL => choice.ttl = Some(exactly(data, 1..=255)? as u8),
        linux::IP_TOS => {
            choice.tos = Some(match data {
                [tos] => *tos,
                _ => exactly(data, 0..=255)? as u8,
            });
        }
        // struct in_pktinfo: interface, source, unused.
        linux::IP_PKTINFO => {
            let data: [u8; 12] = data.try_into().map_err(|_| EINVAL)?;
            let source = Ipv4Addr::new(data[4], data[5], data[6], data[7]);
            if is_v6(source) {
                return Err(EINVAL);
            }
            choice.source = Some(source).filter(|source| !source.is_unspecified());
            let [a, b, c, d, ..] = data;
            choice.interface = match u32::from_ne_bytes([a, b, c, d]) {
                0 => choice.interface,
                index => index,
            };
        }
        // No options are put into headers.
        linux::IP_RETOPTS if data.is_empty() => {}
        _ => return Err(EINVAL),
    }
    Ok(())
}

fn of_ipv6(number_of: NumberOf<'_>, kind: u32, data: &[u8], choice: &mut Choice) -> Result<()> {
    match kind {
        ipv6::IPV6_HOPLIMIT | ipv6::IPV6_2292HOPLIMIT => {
            choice.ttl = u8::try_from(exactly(data, -1..=255)?).ok();
        }
        ipv6::IPV6_TCLASS => choice.tos = u8::try_from(exactly(data, -1..=255)?).ok(),
        // struct in6_pktinfo: source, interface.
        ipv6::IPV6_PKTINFO | ipv6::IPV6_2292PKTINFO => {
            let data: [u8; 20] = data.try_into().map_err(|_| EINVAL)?;
            let source: [u8; 16] = data[..16].try_into().map_err(|_| EINVAL)?;
            let source = Ipv6Addr::from(source);
            let scope = u32::from_ne_bytes([data[16], data[17], data[18], data[19]]);
            choice.source = match source.to_ipv4_mapped() {
                _ if source.is_unspecified() => None,
                _ if source.is_loopback() => Some(LOOPBACK6),
                Some(v4) if !is_v6(v4) => Some(v4),
                Some(_) => return Err(EINVAL),
                None => Some(number_of(source, scope).map_err(|_| EINVAL)?),
            };
        }
        _ => return Err(EINVAL),
    }
    Ok(())
}

/// Level and type of an error's message.
pub fn error_place(domain: Domain) -> (u32, u32) {
    match domain {
        Domain::V4 => (IPPROTO_IP, linux::IP_RECVERR),
        Domain::V6 => (IPPROTO_IPV6, ipv6::IPV6_RECVERR),
    }
}

/// IP_RECVERR or IPV6_RECVERR: struct sock_extended_err, and the address of who complained.
pub fn error(failure: &Failure, from: &Address) -> Control {
    let mut data = Vec::from(u32::from(failure.errno.0).to_ne_bytes());
    let origin = if is_v6(failure.from) { ICMP6 } else { ICMP };
    data.extend_from_slice(&[origin, failure.kind, failure.code, 0]);
    data.extend_from_slice(&[0; 8]);
    data.extend_from_slice(from.bytes());
    let (level, name) =
        error_place(if from.family() == Some(Address::INET6) { Domain::V6 } else { Domain::V4 });
    Control::Other { level: level as i32, kind: name as i32, data }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(level: u32, kind: u32, data: &[u8]) -> Result<Choice> {
        let control = [Control::Other { level: level as i32, kind: kind as i32, data: data.into() }];
        choice(&|_, _| Err(ENETUNREACH), &control, Domain::V6, 0)
    }

    #[test]
    fn a_message_has_hops_and_class_of_its_own_within_their_ranges() {
        assert_eq!(one(IPPROTO_IP, linux::IP_TTL, &7i32.to_ne_bytes()).unwrap().ttl, Some(7));
        assert_eq!(one(IPPROTO_IP, linux::IP_TTL, &0i32.to_ne_bytes()).unwrap_err(), EINVAL);
        assert_eq!(one(IPPROTO_IP, linux::IP_TTL, &[7]).unwrap_err(), EINVAL);
        assert_eq!(one(IPPROTO_IP, linux::IP_TOS, &[16]).unwrap().tos, Some(16));
        assert_eq!(one(IPPROTO_IPV6, ipv6::IPV6_HOPLIMIT, &(-1i32).to_ne_bytes()).unwrap().ttl, None);
        assert_eq!(one(IPPROTO_IPV6, ipv6::IPV6_TCLASS, &256i32.to_ne_bytes()).unwrap_err(), EINVAL);
        assert_eq!(one(linux::SOL_UDP, UDP_SEGMENT, &1200u16.to_ne_bytes()).unwrap().segment, Some(1200));
        assert_eq!(one(IPPROTO_IP, 9999, &[]).unwrap_err(), EINVAL);
        assert!(one(6, 1, &[1]).is_ok(), "another protocol's");
    }
}
