// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Addresses as a socket's domain has them: sockaddr_in, or sockaddr_in6 whose addresses of IPv6 have numbers inside.

use crate::families::{Families, LOOPBACK6, is_group, is_v6};
use crate::stack::Net;
use abi::{Result, errno::*};
use api_socket::options::int;
use api_socket::{Address, SocketAddressV4, SocketAddressV6};
use core::net::{Ipv4Addr, Ipv6Addr, SocketAddrV4};
use core::sync::atomic::{AtomicBool, Ordering};

/// AF_INET or AF_INET6.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Domain {
    V4,
    V6,
}

/// The domain of one socket, which IPV6_ADDRFORM makes AF_INET.
pub struct SocketDomain(AtomicBool);

impl SocketDomain {
    pub fn new(domain: Domain) -> SocketDomain {
        SocketDomain(AtomicBool::new(domain == Domain::V6))
    }

    #[inline]
    pub fn get(&self) -> Domain {
        if self.0.load(Ordering::Relaxed) { Domain::V6 } else { Domain::V4 }
    }

    /// IPV6_ADDRFORM (ipv6(7)) of an AF_INET6 socket that stands for `families` and is connected to `remote`.
    pub fn convert(&self, value: &[u8], families: Families, remote: Option<Ipv4Addr>) -> Result<()> {
        if int(value)? != i32::from(Address::INET) {
            return Err(EINVAL);
        }
        match remote {
            None => Err(ENOTCONN),
            Some(remote) if is_v6(remote) => Err(EADDRNOTAVAIL),
            Some(_) if families == Families::V6 => Err(EADDRNOTAVAIL),
            Some(_) => {
                self.0.store(false, Ordering::Relaxed);
                Ok(())
            }
        }
    }

    /// What getsockopt(2) answers to IPV6_ADDRFORM.
    pub fn form(&self, is_connected: bool) -> Result<u16> {
        if is_connected { Ok(self.get().number()) } else { Err(ENOTCONN) }
    }
}

fn to_core(address: SocketAddressV4) -> SocketAddrV4 {
    SocketAddrV4::new(Ipv4Addr::from(address.address), address.port)
}

/// What an IPv6 address means here.
enum Meaning {
    Any,
    Own,
    Mapped(Ipv4Addr),
    /// Link-local without an interface.
    Unscoped,
    /// With the index of its link.
    Elsewhere(Ipv6Addr, u32),
}

/// What a destination is for, which decides what is said first of a wrong one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    /// connect(2) of a stream, or what else takes addresses of its own domain alone.
    ConnectStream,
    /// connect(2) of a socket of datagrams.
    Connect,
    /// sendto(2) or sendmsg(2).
    Send,
}

fn meaning(v6: &SocketAddressV6) -> Meaning {
    let address = Ipv6Addr::from(v6.address);
    if address.is_unspecified() {
        Meaning::Any
    } else if address.is_loopback() {
        Meaning::Own
    } else if let Some(v4) = address.to_ipv4_mapped() {
        Meaning::Mapped(v4)
    } else if (address.is_unicast_link_local() || is_link_local_group(&address)) && v6.scope == 0 {
        Meaning::Unscoped
    } else {
        Meaning::Elsewhere(address, v6.scope)
    }
}

/// A multicast address of one link (RFC 4291 2.7, scope 2).
fn is_link_local_group(address: &Ipv6Addr) -> bool {
    address.segments()[0] & 0xff0f == 0xff02
}

impl Domain {
    pub fn number(self) -> u16 {
        match self {
            Domain::V4 => Address::INET,
            Domain::V6 => Address::INET6,
        }
    }

    /// What a new socket stands for.
    pub fn families(self) -> Families {
        match self {
            Domain::V4 => Families::V4,
            Domain::V6 => Families::BOTH,
        }
    }

    /// The address as the program sees it; `families` of the socket tell `::` from `::ffff:0.0.0.0`.
    pub fn show(self, net: &Net, address: SocketAddrV4, families: Families) -> Address {
        let (ip, port) = (*address.ip(), address.port());
        if self == Domain::V4 {
            return Address::v4(SocketAddressV4 { address: ip.octets(), port });
        }
        let (v6, scope) = match ip {
            LOOPBACK6 => (Ipv6Addr::LOCALHOST, 0),
            ip if is_v6(ip) => {
                let known = net.look(|s| s.ip.address_of(ip));
                known.map_or((Ipv6Addr::UNSPECIFIED, 0), |of| (of.address, of.scope))
            }
            ip if ip.is_unspecified() && families.v6 => (Ipv6Addr::UNSPECIFIED, 0),
            ip => (ip.to_ipv6_mapped(), 0),
        };
        Address::v6(SocketAddressV6 { address: v6.octets(), port, flow: 0, scope })
    }

    /// Where to connect or send to, for a socket that stands for `families` and is bound to `local`.
    pub fn destination(
        self,
        net: &Net,
        address: &Address,
        families: Families,
        local: Ipv4Addr,
        call: Call,
    ) -> Result<SocketAddrV4> {
        if self == Domain::V4 {
            return v4_destination(address, call);
        }
        // Datagrams of AF_INET6 may go to an address of AF_INET.
        if call != Call::ConnectStream && address.family() == Some(Address::INET) {
            return match call {
                _ if families.v4 => v4_destination(address, call),
                Call::Send => Err(ENETUNREACH),
                _ => Err(EAFNOSUPPORT),
            };
        }
        let v6 = match address.as_v6() {
            // Linux' udpv6_sendmsg, unlike its connect(2).
            Err(EAFNOSUPPORT) if call == Call::Send => return Err(EINVAL),
            v6 => v6?,
        };
        let no_port = call == Call::Send && v6.port == 0;
        let bound = Families::of(local, families);
        let ip = match meaning(&v6) {
            Meaning::Mapped(_) if !families.v4 => return Err(ENETUNREACH),
            _ if no_port => return Err(EINVAL),
            Meaning::Any | Meaning::Own if bound.v6 => LOOPBACK6,
            Meaning::Any => Ipv4Addr::LOCALHOST,
            Meaning::Own => return Err(EAFNOSUPPORT),
            // Also of a socket whose own address is one of IPv6 because of the peer that it had.
            Meaning::Mapped(v4) if !is_v6(v4) => v4,
            Meaning::Mapped(_) => return Err(ENETUNREACH),
            Meaning::Unscoped if !Ipv6Addr::from(v6.address).is_multicast() => return Err(EINVAL),
            Meaning::Unscoped | Meaning::Elsewhere(..) => {
                // A group without a link is on the one device that there is (Linux: on that of the default route).
                let number = net.number_of(v6.address.into(), v6.scope)?;
                if !bound.v6 {
                    // From an IPv4 address no way leads to one of IPv6, which is said of those alone to which one leads.
                    net.look(|s| s.ip.route(number))?;
                    return Err(EAFNOSUPPORT);
                }
                number
            }
        };
        Ok(SocketAddrV4::new(ip, v6.port))
    }

    /// `EINVAL` for addresses of a link that say no interface, which connect(2) of a datagram socket wants to know.
    pub fn check_scope(self, address: &Address) -> Result<()> {
        match address.as_v6() {
            Ok(v6) if self == Domain::V6 && matches!(meaning(&v6), Meaning::Unscoped) => Err(EINVAL),
            _ => Ok(()),
        }
    }

    /// The address for bind(2): ours, any, or a group's; `anywhere` (IP_FREEBIND) every one of IPv4. And what the socket stands
    /// for with it. A socket that is bound already hears of that before its address is looked at, if that is one of IPv6.
    pub fn bindable(
        self,
        net: &Net,
        address: &Address,
        families: Families,
        anywhere: bool,
        is_bound: bool,
    ) -> Result<(SocketAddrV4, Families)> {
        match self {
            Domain::V4 => Ok((bindable_v4(net, address, anywhere)?, Families::V4)),
            Domain::V6 => {
                let v6 = address.as_v6()?;
                if is_bound {
                    return Err(EINVAL);
                }
                let (ip, families) = match meaning(&v6) {
                    Meaning::Any => (Ipv4Addr::UNSPECIFIED, families),
                    Meaning::Own if !anywhere && !net.look(|s| s.ip.is_own(LOOPBACK6)) => {
                        return Err(EADDRNOTAVAIL);
                    }
                    Meaning::Own => (LOOPBACK6, Families::V6),
                    Meaning::Mapped(_) if !families.v4 => return Err(EINVAL),
                    Meaning::Mapped(v4) if is_v6(v4) => return Err(EADDRNOTAVAIL),
                    Meaning::Mapped(v4) => (v4, Families::V4),
                    Meaning::Unscoped => return Err(EINVAL),
                    Meaning::Elsewhere(own, scope) => {
                        let is_wanted = |number| own.is_multicast() || net.look(|s| s.ip.is_own(number));
                        let number = net.number_of(own, scope).ok();
                        (number.filter(|n| is_wanted(*n)).ok_or(EADDRNOTAVAIL)?, Families::V6)
                    }
                };
                let ours = families.v6 || anywhere || is_ours(net, ip);
                if ours { Ok((SocketAddrV4::new(ip, v6.port), families)) } else { Err(EADDRNOTAVAIL) }
            }
        }
    }
}

fn is_ours(net: &Net, ip: Ipv4Addr) -> bool {
    let here = |ip| net.look(|s| s.ip.is_own(ip) || s.ip.is_broadcast(ip));
    !is_v6(ip) && (ip.is_unspecified() || is_group(ip) || here(ip))
}

fn v4_destination(address: &Address, call: Call) -> Result<SocketAddrV4> {
    // A datagram may go to an address without a family (Linux' udp_sendmsg).
    let unspecified = Some(address).filter(|_| call == Call::Send).and_then(of_no_family);
    let v4 = to_core(unspecified.map_or_else(|| address.as_v4(), Ok)?);
    if is_v6(*v4.ip()) { Err(ENETUNREACH) } else { Ok(v4) }
}

/// A sockaddr_in whose family is AF_UNSPEC, which old programs leave as it is.
fn of_no_family(address: &Address) -> Option<SocketAddressV4> {
    let is_whole = address.family() == Some(Address::UNSPEC) && address.bytes().len() >= 16;
    Address::new(Address::INET, address.rest()).as_v4().ok().filter(|_| is_whole)
}

fn bindable_v4(net: &Net, address: &Address, anywhere: bool) -> Result<SocketAddrV4> {
    // Linux accepts AF_UNSPEC with the any address, for old programs' sake.
    let any = of_no_family(address).filter(|v4| v4.address == [0; 4]);
    let v4 = to_core(any.map_or_else(|| address.as_v4(), Ok)?);
    if anywhere && !is_v6(*v4.ip()) || is_ours(net, *v4.ip()) { Ok(v4) } else { Err(EADDRNOTAVAIL) }
}
