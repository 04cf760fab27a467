// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The interfaces of a network namespace, given over to a machine: what container engines (CNI, netavark, libnetwork) make.
//!
//! The machine takes the interface's place on its link: it has the same MAC and addresses and sees every frame through a
//! packet socket (packet(7)). The host's own stack in the namespace would answer the same packets, so the addresses are taken
//! away from the interface. They are kept in a file, for the next machine of the same namespace: a container that is started
//! again finds what the first one found.
//!
//! The unsafe code here reads members of the union in `struct ifreq`.

mod ipv6;
pub(crate) mod packet;

pub use ipv6::Ipv6;

use crate::{
    loopback, relay,
    tap::{ioctl, request, sockaddr as inet},
};
use serde::{Deserialize, Serialize};
use std::{
    fs, io,
    net::{Ipv4Addr, UdpSocket},
    os::fd::{AsRawFd, OwnedFd, RawFd},
    path::Path,
};

/// What a machine must know to be on the interface's link in its place.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Interface {
    pub name: String,
    pub mac: [u8; 6],
    pub mtu: u16,
    /// The unspecified one where it has addresses of IPv6 alone.
    pub address: Ipv4Addr,
    /// Bits of the network part.
    pub length: u8,
    pub gateway: Option<Ipv4Addr>,
    #[serde(default)]
    pub ipv6: Ipv6,
}

const LOOPBACK: &str = "lo";
/// What programs of a machine call its first network device.
pub const FIRST: &str = "eth0";

impl Interface {
    /// The first interface of the calling thread's network namespace; `None` when there is none but the loopback. `record` is
    /// where its address is kept, if it was taken before.
    pub fn find(record: &Path) -> io::Result<Option<Interface>> {
        Ok(Interface::find_all(record)?.into_iter().next())
    }

    /// All of them, in the order of /proc/net/dev, but `eth0` first, as which programs of a machine know the first one. That has an address;
    /// others that have none of IPv4 are left out.
    fn find_all(record: &Path) -> io::Result<Vec<Interface>> {
        let text = fs::read(record).unwrap_or_default();
        // What an older release took is a single one.
        let known: Vec<Interface> = serde_json::from_slice(&text)
            .or_else(|_| serde_json::from_slice::<Interface>(&text).map(|one| vec![one]))
            .unwrap_or_default();
        let control = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
        let own = [LOOPBACK, loopback::DEVICE, relay::DEVICE];
        let mut names = names()?;
        names.retain(|name| !own.contains(&name.as_str()));
        names.sort_by_key(|name| name != FIRST);
        let mut all = Vec::new();
        for name in &names {
            let found = look(control.as_raw_fd(), name)?;
            // A record is of this interface if it was made of it: numbers of namespaces are used again.
            let known = known.iter().find(|k| k.name == found.name && k.mac == found.mac);
            let has_none =
                found.address.is_unspecified() && (found.ipv6.addresses.is_empty() || !all.is_empty());
            match known.filter(|_| has_none) {
                Some(known) => all.push(known.clone()),
                None if !has_none => all.push(found),
                None if all.is_empty() => {
                    let why = format!("the interface {name} of its network namespace has no IP address");
                    return Err(io::Error::new(io::ErrorKind::AddrNotAvailable, why));
                }
                None => {}
            }
        }
        Ok(all)
    }

    /// The interfaces of the calling thread's network namespace, `most` of them at most, without their addresses from now on, and a socket
    /// for the frames of each one's link. `with_neighbour`: at the first those of a [`Resolver`](crate::resolver::Resolver) or a
    /// [`Loopback`](crate::loopback::Loopback) too.
    pub fn take(record: &Path, with_neighbour: bool, most: usize) -> io::Result<Vec<(Interface, OwnedFd)>> {
        let mut all = Interface::find_all(record)?;
        all.truncate(most);
        if all.is_empty() {
            return Ok(Vec::new());
        }
        fs::write(record, serde_json::to_vec(&all)?)?;
        let control = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
        let take = |(n, interface): (usize, Interface)| {
            let socket = packet::machine(&interface, with_neighbour && n == 0)?;
            let name = &interface.name;
            // Without this the host greets the machine's neighbours under an address of its own. Hosts without IPv6 lack the file.
            let _ = fs::write(format!("/proc/sys/net/ipv6/conf/{name}/disable_ipv6"), "1");
            let mut none = request(name);
            none.ifr_ifru.ifru_addr = inet(Ipv4Addr::UNSPECIFIED);
            ioctl(control.as_raw_fd(), libc::SIOCSIFADDR, &mut none)?;
            Ok((interface, socket))
        };
        all.into_iter().enumerate().map(take).collect()
    }

    /// The address on the link at which the machine asks for names, where the namespace's server is out of its reach: the
    /// last of the network, which engines give out last. `None`: too small a network, or it is the machine's own or the gateway's.
    pub fn resolver(&self) -> Option<Ipv4Addr> {
        let is_there = |hosts: &u32| *hosts > 2 && !self.address.is_unspecified();
        let hosts = u32::MAX.checked_shr(self.length.into()).filter(is_there)?;
        let last = Ipv4Addr::from((u32::from(self.address) | hosts) - 1);
        (last != self.address && Some(last) != self.gateway).then_some(last)
    }

    /// The network's own address, as which the host's stack in the namespace speaks to the machine: it is on the link, and
    /// nobody is given it. `None`: too small a network, or an engine gave it out all the same.
    pub fn host_side(&self) -> Option<Ipv4Addr> {
        u32::MAX
            .checked_shr(self.length.into())
            .filter(|hosts| *hosts > 2 && !self.address.is_unspecified())?;
        let mask = u32::MAX.checked_shl(32 - u32::from(self.length)).unwrap_or(0);
        let first = Ipv4Addr::from(u32::from(self.address) & mask);
        (first != self.address && Some(first) != self.gateway && !first.is_unspecified()).then_some(first)
    }

    /// The MAC of that address: locally administered, and as much the link's only one as the machine's.
    pub fn resolver_mac(&self) -> [u8; 6] {
        let [.., c, d, e, f] = self.mac;
        [0x06, 0x55, c, d, e, f]
    }
}

/// Names of the namespace's interfaces, in the order of /proc/net/dev.
fn names() -> io::Result<Vec<String>> {
    let text = fs::read_to_string("/proc/thread-self/net/dev")?;
    let name = |line: &str| Some(line.split_once(':')?.0.trim().to_string());
    Ok(text.lines().skip(2).filter_map(name).filter(|name| !is_template(name)).collect())
}

/// Devices that the kernel itself makes in every namespace, as templates of tunnels.
fn is_template(name: &str) -> bool {
    ["tunl0", "gre0", "gretap0", "erspan0", "ip_vti0", "ip6_vti0", "sit0", "ip6tnl0", "ip6gre0"]
        .contains(&name)
}

fn look(control: RawFd, name: &str) -> io::Result<Interface> {
    let ask = |number: libc::c_ulong| {
        let mut answer = request(name);
        ioctl(control, number, &mut answer).map(|()| answer)
    };
    let hardware = ask(libc::SIOCGIFHWADDR)?;
    // SAFETY: the request filled in this member of the union, which is plain bytes.
    let hardware = unsafe { hardware.ifr_ifru.ifru_hwaddr }.sa_data;
    let mut mac = [0; 6];
    mac.iter_mut().zip(hardware).for_each(|(to, from)| *to = from as u8);
    // SAFETY: as above, an int.
    let mtu = unsafe { ask(libc::SIOCGIFMTU)?.ifr_ifru.ifru_mtu };
    let address = match ask(libc::SIOCGIFADDR) {
        Ok(answer) => address_of(&answer),
        Err(e) if e.raw_os_error() == Some(libc::EADDRNOTAVAIL) => Ipv4Addr::UNSPECIFIED,
        Err(e) => return Err(e),
    };
    let length = match address.is_unspecified() {
        true => 0,
        false => u32::from(address_of(&ask(libc::SIOCGIFNETMASK)?)).leading_ones() as u8,
    };
    let gateway = gateway(&fs::read_to_string("/proc/thread-self/net/route")?, name);
    let mtu = u16::try_from(mtu).unwrap_or(u16::MAX);
    // Hosts without IPv6 lack the files.
    let table = |what: &str| fs::read_to_string(format!("/proc/thread-self/net/{what}")).unwrap_or_default();
    let ipv6 = Ipv6::of(&table("if_inet6"), &table("ipv6_route"), name);
    Ok(Interface { name: name.into(), mac, mtu, address, length, gateway, ipv6 })
}

/// The default route's gateway in a table as /proc/net/route shows it (proc(5)).
fn gateway(table: &str, name: &str) -> Option<Ipv4Addr> {
    let number = |text: &str| u32::from_str_radix(text, 16).ok().map(u32::swap_bytes);
    table.lines().skip(1).find_map(|line| {
        let columns: Vec<&str> = line.split_ascii_whitespace().collect();
        let [interface, destination, gateway, _, _, _, _, mask, ..] = columns.as_slice() else { return None };
        let is_default = *interface == name && number(destination)? == 0 && number(mask)? == 0;
        let gateway = number(gateway).filter(|g| is_default && *g != 0)?;
        Some(Ipv4Addr::from(gateway))
    })
}

pub(crate) fn index(control: RawFd, name: &str) -> io::Result<libc::c_int> {
    let mut answer = request(name);
    ioctl(control, libc::SIOCGIFINDEX, &mut answer)?;
    // SAFETY: the request filled in this member of the union, an int.
    Ok(unsafe { answer.ifr_ifru.ifru_ifindex })
}

fn address_of(answer: &libc::ifreq) -> Ipv4Addr {
    // SAFETY: the requests this is used after filled in this member of the union, which is plain bytes.
    let data = unsafe { answer.ifr_ifru.ifru_addr }.sa_data;
    Ipv4Addr::from([2, 3, 4, 5].map(|i: usize| data[i] as u8))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_gateway_is_that_of_the_default_route_of_the_interface() {
        let table = "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT\n\
            eth1\t00000000\t0100A8C0\t0003\t0\t0\t0\t00000000\t0\t0\t0\n\
            eth0\t0000580A\t00000000\t0001\t0\t0\t0\t0000FFFF\t0\t0\t0\n\
            eth0\t00000000\t0100580A\t0003\t0\t0\t0\t00000000\t0\t0\t0\n";
        assert_eq!(gateway(table, "eth0"), Some(Ipv4Addr::new(10, 88, 0, 1)));
        assert_eq!(gateway(table, "eth2"), None);
        for damaged in ["", "x\n", "Iface\neth0\t00000000\n", "Iface\neth0 zz zz 0 0 0 0 zz\n"] {
            assert_eq!(gateway(damaged, "eth0"), None, "{damaged}");
        }
    }

    #[test]
    fn the_resolver_is_at_the_last_address_of_the_network_that_nobody_has() {
        let at = |address: [u8; 4], length, gateway: [u8; 4]| {
            let (address, gateway) = (address.into(), Some(gateway.into()));
            let (name, mac) = ("eth0".into(), [2, 0x42, 1, 2, 3, 4]);
            let ipv6 = Ipv6::default();
            Interface { name, mac, mtu: 1500, address, length, gateway, ipv6 }.resolver().map(|a| a.octets())
        };
        assert_eq!(at([172, 19, 0, 2], 16, [172, 19, 0, 1]), Some([172, 19, 255, 254]));
        assert_eq!(at([10, 0, 0, 254], 24, [10, 0, 0, 1]), None);
        assert_eq!(at([10, 0, 0, 2], 24, [10, 0, 0, 254]), None);
        assert_eq!(at([10, 0, 0, 1], 29, [10, 0, 0, 2]), Some([10, 0, 0, 6]));
        assert_eq!(at([10, 0, 0, 2], 30, [10, 0, 0, 1]), None, "both of its addresses are taken");
        assert_eq!(at([10, 0, 0, 2], 31, [10, 0, 0, 3]), None);
        assert_eq!(at([10, 0, 0, 2], 32, [10, 0, 0, 1]), None);
        assert_eq!(at([10, 0, 0, 2], 0, [10, 0, 0, 1]), Some([255, 255, 255, 254]));
    }

    #[test]
    fn templates_of_tunnels_are_nobodys_interface() {
        assert!(is_template("sit0") && !is_template("eth0"));
        assert!(names().unwrap().contains(&LOOPBACK.to_string()));
    }
}
