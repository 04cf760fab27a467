// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Sockets: making, naming, connecting them, their options. Messages are in [`messages`].
#![no_std]
#![forbid(unsafe_code)]
extern crate alloc;

mod address;
#[cfg(feature = "io_uring")]
pub mod attempts;
mod filter;
mod messages;

use abi::linux::net as linux;
use abi::{Events, Result, errno::*};
use address::{Paths, read_address, write_address};
use alloc::sync::Arc;
use api_socket::settings::{PING_GROUPS, UNPRIVILEGED_PORTS};
use api_socket::{Address, Caller, Credentials, Shutdown, Socket, SocketFile};
use api_user::UserPtr;
use descriptors::Description;
use task::call::Call;
use task::files::{self, O_CLOEXEC};
use task::identity::capabilities::{CAP_NET_ADMIN, CAP_NET_BIND_SERVICE, CAP_NET_RAW};
use task::wait::{self, FOREVER, for_file};

pub use messages::{recvfrom, recvmmsg, recvmsg, sendmmsg, sendmsg, sendto};

const SOCK_NONBLOCK: u32 = 0o4000;
const SOCK_TYPE: u32 = 0xf;
const SOCK_DGRAM: u32 = 2;
const SOCK_RAW: u32 = 3;
const AF_INET: u32 = 2;
const AF_INET6: u32 = 10;
const AF_PACKET: u32 = 17;

/// An option that answers about the number it is asked with.
const PACKET_HDRLEN: u32 = 11;

const IPPROTO_ICMP: u32 = 1;
/// Its number in socket(2).
const AF_UNIX: u32 = 1;
const IPPROTO_TCP: u32 = 6;
const IPPROTO_UDP: u32 = 17;

/// O_RDWR.
const READ_WRITE: u32 = 2;

/// Longest option value that is read.
const OPTION_MAX: usize = 4096;

/// A descriptor that is a socket.
struct Target(Arc<Description>);

impl Target {
    /// The number of the network that it is in.
    fn network(&self) -> Result<u64> {
        api_socket::network_of_file(&**self.0.file())
    }

    fn of(fd: i32) -> Result<Target> {
        let description = files::get(fd)?;
        api_socket::of_file(&**description.file())?;
        Ok(Target(description))
    }

    fn socket(&self) -> Result<&Arc<dyn Socket>> {
        api_socket::of_file(&**self.0.file())
    }

    /// shutdown(2).
    fn shutdown(&self, how: i32) -> Result<usize> {
        let how = match how {
            0 => Shutdown::Read,
            1 => Shutdown::Write,
            2 => Shutdown::Both,
            _ => return Err(EINVAL),
        };
        self.socket()?.shutdown(how).map(|()| 0)
    }
}

/// Process and effective ids of the caller.
fn credentials() -> Credentials {
    let process = &task::current().process;
    let caller = task::current();
    let c = caller.credentials().lock();
    Credentials { pid: process.pid.of_machine() as u32, uid: c.euid, gid: c.egid }
}

/// Process and real ids.
fn sender() -> Credentials {
    let process = &task::current().process;
    let caller = task::current();
    let c = caller.credentials().lock();
    Credentials { pid: process.pid.of_machine() as u32, uid: c.uid, gid: c.gid }
}

/// AF_NETLINK.
const AF_NETLINK: u32 = 16;

static PATHS: Paths = Paths { permissions: 0o777 };

fn caller() -> Caller<'static> {
    Caller { names: &PATHS }
}

/// Tells sockets who calls where a call does not.
pub fn initialise() {
    api_socket::register_caller(&PATHS);
    filter::initialise();
}

/// A descriptor for a socket; `flags` are SOCK_NONBLOCK and SOCK_CLOEXEC, which have open(2)'s values.
fn install(socket: Arc<dyn Socket>, network: u64, flags: u32) -> Result<i32> {
    let file = SocketFile::new(socket, network);
    files::current().install(file, flags & (SOCK_NONBLOCK | O_CLOEXEC) | READ_WRITE)
}

/// Type and flags of socket(2)'s second argument.
fn split_type(value: u32) -> Result<(u32, u32)> {
    let flags = value & !SOCK_TYPE;
    if flags & !(SOCK_NONBLOCK | O_CLOEXEC) != 0 {
        return Err(EINVAL);
    }
    Ok((value & SOCK_TYPE, flags))
}

pub fn socket(call: &mut Call<'_>) -> Result<usize> {
    let (kind, flags) = split_type(call.uint(1))?;
    let socket = make(call.uint(0), kind, call.uint(2))?;
    install(socket, api_socket::network_number(), flags).map(|fd| fd as usize)
}

/// A socket without a descriptor.
fn make(family: u32, kind: u32, protocol: u32) -> Result<Arc<dyn Socket>> {
    // Netlink goes by the number that the process has for itself.
    let number = task::current().process.number as u32;
    let by_number = |c: Credentials| if family == AF_NETLINK { Credentials { pid: number, ..c } } else { c };
    let socket = match api_socket::create(by_number(credentials()), family, kind, protocol) {
        // A type that the family lacks is told to those alone who may have one.
        Err(ESOCKTNOSUPPORT) if family == AF_PACKET => {
            may_make(family, kind, protocol).and(Err(ESOCKTNOSUPPORT))
        }
        made => made,
    }?;
    may_make(family, kind, protocol)?;
    Ok(socket)
}

/// `EPERM` for raw sockets of AF_INET and AF_INET6 and for all of AF_PACKET without CAP_NET_RAW; `EACCES` for ICMP's of others than
/// net.ipv4.ping_group_range has.
fn may_make(family: u32, kind: u32, protocol: u32) -> Result<()> {
    if ![AF_INET, AF_INET6, AF_PACKET].contains(&family) {
        return Ok(());
    }
    let caller = task::current();
    let (who, owner) = (caller.credentials().lock(), caller.network().owner.clone());
    let may_ping = |group: &u32| (PING_GROUPS[0].get()..=PING_GROUPS[1].get()).contains(&u64::from(*group));
    match kind {
        _ if family == AF_PACKET => {
            if who.can_in(&owner, CAP_NET_RAW) {
                Ok(())
            } else {
                Err(EPERM)
            }
        }
        SOCK_RAW if !who.can_in(&owner, CAP_NET_RAW) => Err(EPERM),
        SOCK_DGRAM
            if protocol == IPPROTO_ICMP
                && !core::iter::once(&who.egid).chain(who.groups.iter()).any(may_ping) =>
        {
            Err(EACCES)
        }
        _ => Ok(()),
    }
}

/// `EACCES` for a port of TCP or UDP below net.ipv4.ip_unprivileged_port_start without CAP_NET_BIND_SERVICE.
fn may_bind(socket: &dyn Socket, address: &Address) -> Result<()> {
    let is_internet = [AF_INET, AF_INET6].contains(&socket.family().into());
    let is_raw = socket.socket_type() as u32 == SOCK_RAW;
    let has_ports = !is_raw && [IPPROTO_TCP, IPPROTO_UDP].contains(&socket.protocol());
    // In both families' addresses it stands behind the family.
    let Some([high, low]) = address.rest().first_chunk() else { return Ok(()) };
    let port = u64::from(u16::from_be_bytes([*high, *low]));
    let needs_right = is_internet && has_ports && port != 0 && port < UNPRIVILEGED_PORTS[0].get();
    if needs_right && !can_in_network(CAP_NET_BIND_SERVICE) {
        return Err(EACCES);
    }
    Ok(())
}

pub fn socketpair(call: &mut Call<'_>) -> Result<usize> {
    let (kind, flags) = split_type(call.uint(1))?;
    // Linux says the numbers before there is anything behind them.
    let numbers = call.ptr::<[i32; 2]>(3);
    numbers.write(numbers.read()?)?;
    let (a, b) = api_socket::pair(credentials(), call.uint(0), kind, call.uint(2))?;
    let descriptors = &files::current().descriptors;
    let network = api_socket::network_number();
    let first = install(a, network, flags)?;
    let result = install(b, network, flags).and_then(|second| {
        let written = numbers.write([first, second]);
        if written.is_err() {
            drop(descriptors.remove(second));
        }
        written
    });
    if result.is_err() {
        drop(descriptors.remove(first));
    }
    result.map(|()| 0)
}

pub fn bind(call: &mut Call<'_>) -> Result<usize> {
    let target = Target::of(call.int(0))?;
    let address = read_address(call.arg(1), call.int(2))?;
    let socket = target.socket()?;
    may_bind(&**socket, &address)?;
    let names = Paths { permissions: target.0.file().stat()?.permissions };
    socket.bind(&Caller { names: &names }, &address).map(|()| 0)
}

pub fn listen(call: &mut Call<'_>) -> Result<usize> {
    let target = Target::of(call.int(0))?;
    target.socket()?.listen(&caller(), call.int(1)).map(|()| 0)
}

/// Makes a call that sends or connects until it answers something else than `EAGAIN`: sleeps until there is room on this
/// socket, or at the one that `to` names when the queue there is full.
fn waiting<T>(
    target: &Target,
    to: Option<&Address>,
    blocking: bool,
    mut operation: impl FnMut() -> Result<T>,
) -> Result<T> {
    let (socket, file) = (target.socket()?, &**target.0.file());
    let writable = Events::WRITABLE;
    loop {
        match operation() {
            Err(EAGAIN) if blocking => {}
            done => return done,
        }
        let blocker = || to.and_then(|to| socket.blocker(&caller(), to));
        let Some(full) = blocker() else { return for_file(file, writable, true, FOREVER, operation) };
        let done = wait::for_room(file, full.room(), || match operation() {
            // Another socket may have the name by now.
            Err(EAGAIN) if !blocker().is_some_and(|now| Arc::ptr_eq(&now, &full)) => Ok(None),
            done => done.map(Some),
        })?;
        if let Some(done) = done {
            return Ok(done);
        }
    }
}

fn accept_with(call: &mut Call<'_>, flags: u32) -> Result<usize> {
    let target = Target::of(call.int(0))?;
    let socket = target.socket()?;
    let blocking = !target.0.is_nonblocking();
    let readable = Events::READABLE;
    let descriptors = &files::current().descriptors;
    let (accepted, peer) = for_file(&**target.0.file(), readable, blocking, FOREVER, || {
        // A connection that is taken out of the queue is lost when there is no number for it.
        descriptors.check_room()?;
        socket.accept()
    })?;
    let fd = install(accepted, target.network()?, flags)?;
    if call.arg(1) != 0
        && let Err(e) = write_address(&peer, call.arg(1), call.arg(2))
    {
        drop(files::current().descriptors.remove(fd));
        return Err(e);
    }
    Ok(fd as usize)
}

pub fn accept(call: &mut Call<'_>) -> Result<usize> {
    accept_with(call, 0)
}

pub fn accept4(call: &mut Call<'_>) -> Result<usize> {
    files::get(call.int(0))?;
    let flags = call.flags(3, SOCK_NONBLOCK | O_CLOEXEC)?;
    accept_with(call, flags)
}

pub fn connect(call: &mut Call<'_>) -> Result<usize> {
    // Linux reads the address before it asks whether the descriptor is a socket.
    files::get(call.int(0))?;
    let address = read_address(call.arg(1), call.int(2))?;
    let target = Target::of(call.int(0))?;
    let blocking = !target.0.is_nonblocking();
    connect_to(&target, &address, blocking).map(|()| 0)
}

/// connect(2); `EINPROGRESS` for an attempt that goes on in the background.
fn connect_to(target: &Target, address: &Address, blocking: bool) -> Result<()> {
    let socket = target.socket()?;
    let file = &**target.0.file();
    let writable = Events::WRITABLE;
    match waiting(target, Some(address), blocking, || socket.connect(&caller(), address)) {
        Err(EINPROGRESS | EALREADY) if blocking => {}
        result => return result,
    }
    let done = for_file(file, writable, true, FOREVER, || {
        if socket.poll().intersects(Events::OUT | Events::ERR | Events::HUP) { Ok(()) } else { Err(EAGAIN) }
    });
    match done {
        Ok(()) => {}
        // SO_SNDTIMEO passed: the attempt goes on in the background.
        Err(EAGAIN) => return Err(EINPROGRESS),
        Err(e) => return Err(e),
    }
    // What came of the attempt, this call says; another thread may have been told before that it succeeded.
    match socket.connect(&caller(), address) {
        Ok(()) | Err(EISCONN) => Ok(()),
        Err(e) => Err(e),
    }
}

pub fn shutdown(call: &mut Call<'_>) -> Result<usize> {
    Target::of(call.int(0))?.shutdown(call.int(1))
}

pub fn getsockname(call: &mut Call<'_>) -> Result<usize> {
    let target = Target::of(call.int(0))?;
    write_address(&target.socket()?.local_address()?, call.arg(1), call.arg(2)).map(|()| 0)
}

pub fn getpeername(call: &mut Call<'_>) -> Result<usize> {
    let target = Target::of(call.int(0))?;
    write_address(&target.socket()?.peer_address()?, call.arg(1), call.arg(2)).map(|()| 0)
}

pub fn setsockopt(call: &mut Call<'_>) -> Result<usize> {
    let target = Target::of(call.int(0))?;
    let length = usize::try_from(call.int(4)).map_err(|_| EINVAL)?.min(OPTION_MAX);
    // Those of AF_UNIX have no other level, whatever the value.
    if u32::from(target.socket()?.family()) == AF_UNIX && call.int(1) as u32 != linux::SOL_SOCKET {
        return Err(EOPNOTSUPP);
    }
    let value = api_user::read_vec(call.arg(3), length)?;
    if call.int(1) as u32 == linux::SOL_SOCKET {
        api_socket::options::check_length(call.int(2) as u32, value.len())?;
        if let Some(result) = filter::set(&**target.socket()?, call.int(2) as u32, &value) {
            return result.map(|()| 0);
        }
    }
    check_privilege(&**target.socket()?, call.int(1), call.int(2), &value)?;
    target.socket()?.set_option(call.int(1), call.int(2), &value).map(|()| 0)
}

/// Options that take CAP_NET_ADMIN or CAP_NET_RAW (socket(7); ip(7): IP_TRANSPARENT speaks with addresses of others).
fn check_privilege(socket: &dyn Socket, level: i32, name: i32, value: &[u8]) -> Result<()> {
    /// IP_TRANSPARENT of SOL_IP and IPV6_TRANSPARENT of SOL_IPV6.
    const TRANSPARENT: [(i32, i32); 2] = [(0, 19), (41, 75)];
    /// TC_PRIO_INTERACTIVE: what everybody may ask for.
    const MAX_PRIORITY: u32 = 6;
    let admin = || may_administer();
    // Of memory and of the log the whole machine has one.
    let admin_of_machine = || task::current().credentials().lock().can(CAP_NET_ADMIN);
    let raw = || can_in_network(CAP_NET_RAW);
    let admin_or_raw = || admin() || raw();
    let is_transparent = TRANSPARENT.contains(&(level, name));
    if is_transparent && value.first().is_some_and(|flag| *flag != 0) && !admin_or_raw() {
        return Err(EPERM);
    }
    if level as u32 != linux::SOL_SOCKET {
        return Ok(());
    }
    let is_bound_to_interface = || {
        let interface = socket.get_option(level, linux::SO_BINDTOIFINDEX as i32, &[]);
        interface.is_ok_and(|interface| interface != [0; 4])
    };
    let asked = value.first_chunk().map_or(0, |bytes| i32::from_ne_bytes(*bytes));
    match name as u32 {
        linux::SO_MARK if !admin_or_raw() => Err(EPERM),
        linux::SO_PRIORITY if asked as u32 > MAX_PRIORITY && !admin_or_raw() => Err(EPERM),
        linux::SO_SNDBUFFORCE | linux::SO_RCVBUFFORCE if !admin_of_machine() => Err(EPERM),
        // Whoever is bound to an interface stays there.
        linux::SO_BINDTODEVICE | linux::SO_BINDTOIFINDEX if !raw() && is_bound_to_interface() => Err(EPERM),
        linux::SO_DEBUG if asked != 0 && !admin_of_machine() => Err(EACCES),
        _ => Ok(()),
    }
}

/// CAP_NET_ADMIN.
fn may_administer() -> bool {
    can_in_network(CAP_NET_ADMIN)
}

/// Has the capability for the network that it is in.
fn can_in_network(capability: u32) -> bool {
    let owner = task::current().network().owner.clone();
    task::current().credentials().lock().can_in(&owner, capability)
}

const IPPROTO_IP: u32 = 0;
const NETLINK_LIST_MEMBERSHIPS: u32 = 9;

/// A small number of IPPROTO_IP is one byte where there is no room for an `int` (Linux' do_ip_getsockopt).
fn is_one_byte(value: &[u8], room: usize) -> bool {
    let number = value.try_into().ok().map(i32::from_ne_bytes);
    (1..size_of::<i32>()).contains(&room) && number.is_some_and(|number| (0..256).contains(&number))
}

pub fn getsockopt(call: &mut Call<'_>) -> Result<usize> {
    let target = Target::of(call.int(0))?;
    let length_at: UserPtr<i32> = call.ptr(4);
    let socket = target.socket()?;
    let room = match length_at.read().and_then(|room| usize::try_from(room).map_err(|_| EINVAL)) {
        // A level that the socket has not is what is told before that.
        Err(_)
            if call.int(1) != linux::SOL_SOCKET as i32
                && socket.get_option(call.int(1), call.int(2), &[]) == Err(EOPNOTSUPP) =>
        {
            return Err(EOPNOTSUPP);
        }
        room => room?,
    };
    let value = match (call.int(1) as u32, call.int(2) as u32) {
        (linux::SOL_SOCKET, linux::SO_PEERNAME) => {
            let peer = socket.peer_address()?;
            if peer.bytes().len() < room {
                return Err(EINVAL);
            }
            peer.bytes().to_vec()
        }
        // A number of which a part is none.
        (linux::SOL_SOCKET, linux::SO_COOKIE) if room < size_of::<u64>() => return Err(EINVAL),
        (linux::SOL_SOCKET, filter::SO_GET_FILTER) => {
            let instructions = filter::read_back(&**socket, call.arg(3), room)?;
            return length_at.write(instructions as i32).map(|()| 0);
        }
        (linux::SOL_SOCKET, linux::SO_NETNS_COOKIE) => {
            if room < size_of::<u64>() {
                return Err(EINVAL);
            }
            // Of the machine's own network Linux' is not 0 either.
            (target.network()? + 1).to_ne_bytes().to_vec()
        }
        (linux::SOL_SOCKET, linux::SO_PEERCRED) => {
            let value = socket.get_option(linux::SOL_SOCKET as i32, linux::SO_PEERCRED as i32, &[])?;
            let word = |i: usize| value.get(4 * i..4 * i + 4)?.try_into().ok().map(u32::from_ne_bytes);
            let (pid, uid, gid) = (word(0).ok_or(EINVAL)?, word(1).ok_or(EINVAL)?, word(2).ok_or(EINVAL)?);
            messages::shown(Credentials { pid, uid, gid }).iter().flat_map(|w| w.to_ne_bytes()).collect()
        }
        // Those who have none say so.
        (linux::SOL_SOCKET, linux::SO_PEEK_OFF) => {
            let offset = socket.get_option(linux::SOL_SOCKET as i32, linux::SO_PEEK_OFF as i32, &[]);
            offset.map_err(|_| EOPNOTSUPP)?
        }
        (linux::SOL_PACKET, PACKET_HDRLEN) => {
            let asked = api_user::read_vec(call.arg(3), room.min(size_of::<i32>()))?;
            socket.get_option(linux::SOL_PACKET as i32, PACKET_HDRLEN as i32, &asked)?
        }
        // Of groups that do not fit the length is told all the same.
        (linux::SOL_NETLINK, NETLINK_LIST_MEMBERSHIPS) => {
            let groups = socket.get_option(call.int(1), call.int(2), &[])?;
            let fits = groups.len().min(room) & !(size_of::<u32>() - 1);
            api_user::write_bytes(call.arg(3), &groups[..fits])?;
            return length_at.write(groups.len() as i32).map(|()| 0);
        }
        (level, name) => {
            let mut value = socket.get_option(level as i32, name as i32, &[])?;
            if level == IPPROTO_IP && name != linux::IP_MULTICAST_IF && is_one_byte(&value, room) {
                value.truncate(1);
            }
            value
        }
    };
    let n = value.len().min(room);
    api_user::write_bytes(call.arg(3), &value[..n])?;
    length_at.write(n as i32)?;
    Ok(0)
}
