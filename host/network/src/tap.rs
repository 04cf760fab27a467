// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A tap device with an address, for one machine.
//!
//! The device is not persistent: it exists while some process holds its descriptor, and the only one that keeps it is
//! QEMU. (Firecracker opens a device by its name, so one that is for it stays until it is removed: [`Tap::leave`].) Its name is the lock on its addresses: device `unilithN` owns the N-th /30, and the kernel gives a name to one
//! process only, whatever state directories, users or containers the others use.
//!
//! The unsafe code here calls ioctls with a fully initialised `struct ifreq` that lives on the stack of the caller.

use crate::subnet::{Network, Pair, prefix6, ranges, routes};
use std::{
    fs::{self, File, OpenOptions},
    io,
    net::{Ipv4Addr, Ipv6Addr, UdpSocket},
    os::fd::{AsRawFd, OwnedFd, RawFd},
};

/// A tap device that is up and has the host's address.
#[derive(Debug)]
pub struct Tap {
    pub name: String,
    pub pair: Pair,
    /// The descriptor to hand to QEMU; the device goes when the last copy is closed.
    pub fd: OwnedFd,
}

/// Why there is no tap device.
#[derive(Debug, thiserror::Error)]
pub enum TapError {
    /// The caller may not make one, or the machine has no /dev/net/tun: user-mode networking is the answer.
    #[error("no right to make a tap device ({0})")]
    NotAllowed(io::Error),
    #[error("{0}")]
    BadRange(String),
    #[error(
        "every address range is in use or clashes with a route; name a free one in UNILITH_NETWORK, e.g. 10.99.0.0/16"
    )]
    NoRange,
    #[error("cannot set up the tap device {name}: {source}")]
    Setup { name: String, source: io::Error },
}

/// What devices' names begin with; a number follows.
pub(crate) const PREFIX: &str = "unilith";

/// Devices of one range that are tried before giving up; far more machines than one host runs.
const MAX_DEVICES: u32 = 4096;

/// The largest MTU of a tap device: what an IPv4 header can name without the Ethernet header (Linux, drivers/net/tun.c).
pub const LARGEST_MTU: u16 = 65_521;

impl Tap {
    /// A device whose packets have up to `mtu` bytes, IP header included. With `ipv6` it has addresses of IPv6 where the user names a
    /// prefix for them.
    pub fn create(mtu: u16, ipv6: bool) -> Result<Tap, TapError> {
        let prefix6 = if ipv6 { prefix6().map_err(TapError::BadRange)? } else { None };
        let routes = routes(&fs::read_to_string("/proc/net/route").unwrap_or_default());
        let mut first = 0;
        for range in ranges().map_err(TapError::BadRange)? {
            let count = range.pairs().min(MAX_DEVICES);
            // Numbers run on over the ranges, so that a name stands for one /30 only.
            for n in 0..count {
                let pair = Pair { prefix6, ..range.pair(n) };
                if routes.iter().any(|r| r.overlaps(pair.network())) {
                    continue;
                }
                let name = format!("{PREFIX}{}", first + n);
                match open(&name) {
                    Ok(fd) => return configure(name, pair, fd, mtu),
                    Err(e) if e.raw_os_error() == Some(libc::EBUSY) => {}
                    Err(e) => return Err(TapError::NotAllowed(e)),
                }
            }
            first += count;
        }
        Err(TapError::NoRange)
    }
}

impl Tap {
    /// Lets the device stay when its descriptor is closed, for this user to open it again, until [`remove`]. Others that look for a
    /// free device pass it by, because its range has a route.
    pub fn leave(&self) -> io::Result<()> {
        // SAFETY: it has no arguments and cannot fail.
        let user = unsafe { libc::geteuid() };
        number(&self.fd, libc::TUNSETOWNER as libc::c_ulong, user.into())?;
        number(&self.fd, libc::TUNSETPERSIST as libc::c_ulong, 1)
    }
}

/// Removes a device that was left; one that is gone is no error. It must not be open elsewhere.
pub fn remove(name: &str) -> io::Result<()> {
    // Opening it would make one that does not exist.
    if !fs::exists(format!("/sys/class/net/{name}"))? {
        return Ok(());
    }
    number(&open(name)?, libc::TUNSETPERSIST as libc::c_ulong, 0)
}

/// An ioctl of a tap device that takes a number.
fn number(fd: &OwnedFd, request: libc::c_ulong, value: libc::c_ulong) -> io::Result<()> {
    // SAFETY: these requests take their argument as a number and read no memory of the caller.
    let result = unsafe { libc::ioctl(fd.as_raw_fd(), request, value) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Whether this process may make tap devices, and why not.
pub fn allowed() -> Result<(), io::Error> {
    // A device without a name of its own: the kernel picks one, and it goes with the descriptor.
    open(&format!("{PREFIX}%d")).map(drop)
}

/// A device of that name without an address, for frames of up to `mtu` bytes behind their Ethernet headers; it goes with the descriptor.
pub(crate) fn bare(name: &str, mtu: u16) -> io::Result<OwnedFd> {
    let device = open(name)?;
    // Hosts without IPv6 lack the file.
    let _ = fs::write(format!("/proc/sys/net/ipv6/conf/{name}/disable_ipv6"), "1");
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
    let mut request = request(name);
    request.ifr_ifru.ifru_mtu = mtu.into();
    ioctl(socket.as_raw_fd(), libc::SIOCSIFMTU, &mut request)?;
    request.ifr_ifru.ifru_flags = (libc::IFF_UP | libc::IFF_RUNNING) as libc::c_short;
    ioctl(socket.as_raw_fd(), libc::SIOCSIFFLAGS, &mut request)?;
    Ok(device)
}

fn configure(name: String, pair: Pair, fd: OwnedFd, mtu: u16) -> Result<Tap, TapError> {
    let failed = |source| TapError::Setup { name: name.clone(), source };
    // Without this the host greets the machine with router solicitations it has no use for. Hosts without IPv6 lack the file.
    let set = |what: &str, value: &str| fs::write(format!("/proc/sys/net/ipv6/conf/{name}/{what}"), value);
    let _ = set("disable_ipv6", "1");
    bring_up(&name, pair.host, pair.network(), mtu).map_err(failed)?;
    if let Some((host, _)) = pair.ipv6() {
        // Nobody else is on the link, and no router: the address is the host's at once, and what the machine says of prefixes is nothing.
        for (what, value) in
            [("accept_dad", "0"), ("accept_ra", "0"), ("router_solicitations", "0"), ("disable_ipv6", "0")]
        {
            set(what, value).map_err(failed)?;
        }
        add_ipv6(&name, host, Pair::LENGTH6).map_err(failed)?;
    }
    Ok(Tap { name, pair, fd })
}

/// Gives a device an address of IPv6 (netdevice(7), ipv6(7)).
fn add_ipv6(name: &str, address: Ipv6Addr, length: u8) -> io::Result<()> {
    let socket = UdpSocket::bind((Ipv6Addr::LOCALHOST, 0))?;
    let mut answer = request(name);
    ioctl(socket.as_raw_fd(), libc::SIOCGIFINDEX, &mut answer)?;
    // SAFETY: the request filled in this member of the union, an int.
    let index = unsafe { answer.ifr_ifru.ifru_ifindex };
    let address = libc::in6_addr { s6_addr: address.octets() };
    let request = libc::in6_ifreq { ifr6_addr: address, ifr6_prefixlen: length.into(), ifr6_ifindex: index };
    // SAFETY: of a socket of AF_INET6 the call reads a `struct in6_ifreq`, which is initialised and lives during it.
    let result = unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFADDR, std::ptr::from_ref(&request)) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

fn open(name: &str) -> io::Result<OwnedFd> {
    let file: File = OpenOptions::new().read(true).write(true).open("/dev/net/tun")?;
    let mut request = request(name);
    let flags = libc::IFF_TAP | libc::IFF_NO_PI | libc::IFF_VNET_HDR;
    request.ifr_ifru.ifru_flags = flags as libc::c_short;
    ioctl(file.as_raw_fd(), libc::TUNSETIFF as libc::c_ulong, &mut request)?;
    Ok(file.into())
}

fn bring_up(name: &str, address: Ipv4Addr, network: Network, mtu: u16) -> io::Result<()> {
    // Any socket will do to configure an interface.
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
    let fd = socket.as_raw_fd();
    let mut request = request(name);
    request.ifr_ifru.ifru_addr = sockaddr(address);
    ioctl(fd, libc::SIOCSIFADDR, &mut request)?;
    request.ifr_ifru.ifru_netmask = sockaddr(Ipv4Addr::from(u32::MAX << (32 - u32::from(network.length))));
    ioctl(fd, libc::SIOCSIFNETMASK, &mut request)?;
    request.ifr_ifru.ifru_mtu = mtu.into();
    ioctl(fd, libc::SIOCSIFMTU, &mut request)?;
    request.ifr_ifru.ifru_flags = (libc::IFF_UP | libc::IFF_RUNNING) as libc::c_short;
    ioctl(fd, libc::SIOCSIFFLAGS, &mut request)
}

/// A request for the interface `name`, which the caller has made short enough.
pub(crate) fn request(name: &str) -> libc::ifreq {
    // SAFETY: `ifreq` is plain data for which all zeroes is a valid value.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    let room = request.ifr_name.len() - 1;
    for (to, from) in request.ifr_name[..room].iter_mut().zip(name.bytes()) {
        *to = from as libc::c_char;
    }
    request
}

pub(crate) fn sockaddr(address: Ipv4Addr) -> libc::sockaddr {
    let mut data = [0; 14];
    for (to, from) in data[2..6].iter_mut().zip(address.octets()) {
        *to = from as libc::c_char;
    }
    libc::sockaddr { sa_family: libc::AF_INET as libc::sa_family_t, sa_data: data }
}

pub(crate) fn ioctl(fd: RawFd, number: libc::c_ulong, request: &mut libc::ifreq) -> io::Result<()> {
    // SAFETY: `request` is a valid, initialised `ifreq` for the whole call, which is what every ioctl number used in this
    // module takes; the kernel writes at most one `ifreq` to it.
    let result = unsafe { libc::ioctl(fd, number, std::ptr::from_mut(request)) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
