// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One machine's connection: chosen, set up, and described for the kernel, for QEMU and for the user.

use crate::{
    MachineError, qemu,
    record::{Connection, Helper, Network, Platform, Spec},
};
use std::{
    io,
    net::Ipv4Addr,
    os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
    path::Path,
    thread::JoinHandle,
};
use tokio::sync::oneshot;
use unilith_network::{
    dns::{self, Lookup},
    interface::{FIRST, Interface},
    loopback::Loopback,
    members::{self, Members},
    nat::{self, Forwarding, Rules},
    passt::{self, Passt},
    ports::{Listener, PortError, Publish, listen},
    proxy::{self, Limits, Route},
    relay::Relay,
    resolver::Resolver,
    subnet::Pair,
    tap::{self, Tap, TapError},
};

/// What is ready before the machine starts. Dropping it releases the ports and the tap device, and ends passt.
pub struct Link {
    pub connection: Connection,
    pub published: Vec<Publish>,
    /// What the user should know.
    pub notes: Vec<String>,
    /// The tap device, or the machine's end of passt's socket.
    device: Option<OwnedFd>,
    /// Of the interfaces behind the first.
    further: Vec<OwnedFd>,
    /// Ports that this process serves: all of a tap device, those of IPv6 of a user-mode network.
    routes: Vec<Route>,
    /// Ports that the helper of a user-mode network serves.
    forwarded: Vec<Publish>,
    /// The name relay's on a tap device.
    names: Option<dns::Sockets>,
    /// Of an interface that was taken over.
    resolver: Option<Resolver>,
    loopback: Option<Loopback>,
    /// Between that and the tap device of a monitor.
    relay: Option<Relay>,
    serving: Vec<Serving>,
    /// Ends when it is dropped.
    _passt: Option<Passt>,
}

impl Link {
    /// Takes the host's ports and makes the connection. A port that cannot be had is the first error to be found.
    pub fn set_up(spec: &Spec) -> Result<Link, MachineError> {
        let must_join = !spec.networks.is_empty();
        if must_join && let Some(lack) = members::lack() {
            return Err(MachineError::CannotJoin(lack));
        }
        let (mut published, mut listeners, mut notes) = (Vec::new(), Vec::new(), Vec::new());
        if let Network::Interface { record, server, loopback } = &spec.network {
            let taken = Link::take_over(record, *server, *loopback, spec.platform);
            return taken.map_err(MachineError::Interface);
        }
        if spec.network == Network::None {
            return Ok(Link::to(Connection::None));
        }
        for mut port in spec.publish.iter().copied() {
            listeners.push(listen(&mut port)?);
            published.push(port);
        }
        for mut port in spec.offer.iter().copied() {
            // Offered, not asked for: where it cannot be had the machine is still reachable another way.
            let wanted = port.host;
            let mut listener = listen(&mut port);
            if let Err(PortError::NotAllowed { other, .. }) = listener {
                port.host = other;
                listener = listen(&mut port);
            }
            match listener {
                Ok(listener) => {
                    if port.host != wanted {
                        notes.push(format!(
                            "port {wanted} of this host needs root: port {} of the machine is published as {}",
                            port.guest, port.host
                        ));
                    }
                    listeners.push(listener);
                    published.push(port);
                }
                Err(_) => notes.push(format!(
                    "port {0} of this host is taken, so port {1} of the machine is not published; choose another with -p HOST:{1}",
                    port.host, port.guest
                )),
            }
        }
        let tap = match spec.network {
            Network::User | Network::None | Network::Interface { .. } => None,
            Network::Tap => Some(Tap::create(mtu(spec.platform), spec.ipv6)?),
            Network::Auto => match Tap::create(mtu(spec.platform), spec.ipv6) {
                Ok(tap) => Some(tap),
                Err(TapError::NotAllowed(_)) => None,
                Err(error) => return Err(error.into()),
            },
        };
        if tap.is_none() && spec.platform.opens_tap_by_name() {
            return Err(MachineError::NoUserNetworkOf(spec.platform.monitor()));
        }
        let Some(tap) = tap else {
            let (forwarded, routes) = share(&published, listeners)?;
            let ipv6 = spec.ipv6 && passt::has_ipv6();
            let (helper, passt, device) = match Passt::start(&forwarded, spec.mac(), ipv6) {
                Ok((passt, device)) if ipv6 => (Helper::Passt6, Some(passt), Some(device)),
                Ok((passt, device)) => (Helper::Passt, Some(passt), Some(device)),
                Err(error) if spec.platform.is_process() => return Err(MachineError::NoUserNetwork(error)),
                Err(error) => {
                    // Nobody reaches a machine without ports; `doctor` says it too.
                    if !published.is_empty() {
                        notes.push(format!("{error}: QEMU's own user-mode networking is used"));
                    }
                    (Helper::Qemu, None, None)
                }
            };
            let connection = Connection::User { helper };
            return Ok(Link {
                published,
                notes,
                device,
                routes,
                forwarded,
                _passt: passt,
                ..Link::to(connection)
            });
        };
        let translated = match translate(&tap, spec) {
            Ok(translated) => translated,
            Err(error) if must_join => return Err(MachineError::CannotJoin(error)),
            Err(error) => {
                notes.push(format!("the machine cannot reach beyond this host: {error}"));
                false
            }
        };
        let names = dns::take(tap.pair.host);
        let route = |(listener, port): (Listener, &Publish)| Route { listener, guest: port.guest };
        let routes = listeners.into_iter().zip(&published).map(route).collect();
        let device = match spec.platform {
            // It opens the device by its name, which one at a time can: nobody holds it in between.
            platform if platform.opens_tap_by_name() => {
                tap.leave().map_err(|source| TapError::Setup { name: tap.name.clone(), source })?;
                None
            }
            _ => Some(tap.fd),
        };
        let connection = Connection::Tap { device: tap.name, pair: tap.pair, translated };
        Ok(Link { published, notes, device, routes, names, ..Link::to(connection) })
    }

    fn take_over(
        record: &Path,
        server: Option<Ipv4Addr>,
        loopback: bool,
        platform: Platform,
    ) -> io::Result<Link> {
        // A virtual machine has one device, and carries the frames of the first.
        let most = if platform.is_process() { 1 + api_boot::MAX_FURTHER } else { 1 };
        let mut taken = Interface::take(record, server.is_some() || loopback, most)?.into_iter();
        let Some((interface, device)) = taken.next() else {
            return Ok(Link::to(Connection::None));
        };
        let (further, devices) = taken.unzip();
        let (device, relay) = match platform.is_process() {
            true => (device, None),
            false => Relay::new(device, interface.mtu).map(|(relay, device)| (device, Some(relay)))?,
        };
        let mut notes = Vec::new();
        let loopback = loopback.then(|| Loopback::new(&interface)).transpose().unwrap_or_else(|error| {
            notes.push(format!(
                "what connects to the loopback of the pod (kubectl port-forward) does not reach the machine: {error}"
            ));
            None
        });
        let loopback = loopback.flatten();
        let resolver = server.map(|server| Resolver::new(&interface, server)).transpose()?.flatten();
        let connection = Connection::Interface { interface, further };
        Ok(Link {
            device: Some(device),
            further: devices,
            notes,
            resolver,
            loopback,
            relay,
            ..Link::to(connection)
        })
    }

    fn to(connection: Connection) -> Link {
        let (published, notes) = (Vec::new(), Vec::new());
        Link {
            connection,
            published,
            notes,
            device: None,
            further: Vec::new(),
            routes: Vec::new(),
            forwarded: Vec::new(),
            names: None,
            resolver: None,
            loopback: None,
            relay: None,
            serving: Vec::new(),
            _passt: None,
        }
    }

    /// QEMU's side of it. The descriptor stays with `self`.
    pub fn for_qemu(&self) -> qemu::Link {
        match (&self.connection, &self.device) {
            (Connection::Tap { .. } | Connection::Interface { .. }, Some(fd)) => {
                qemu::Link::Tap(fd.as_raw_fd())
            }
            (Connection::User { .. }, Some(fd)) => qemu::Link::Frames(fd.as_raw_fd()),
            (Connection::User { .. }, None) => qemu::Link::User(self.forwarded.clone()),
            _ => qemu::Link::None,
        }
    }

    /// The tap device, for a monitor that opens it by its name.
    pub fn tap_by_name(&self) -> Option<&str> {
        match &self.connection {
            Connection::Tap { device, .. } => Some(device),
            _ => None,
        }
    }

    /// The MAC of the machine's network device, and the MTU where it is not what every network takes.
    pub fn mac_and_mtu(&self, spec: &Spec) -> ([u8; 6], Option<u16>) {
        match &self.connection {
            Connection::Interface { interface, .. } => {
                (interface.mac, Some(interface.mtu).filter(|mtu| *mtu != ETHERNET))
            }
            _ => (spec.mac(), None),
        }
    }

    /// A process machine's side of it, for each of its devices in their order: the word for its kernel, the descriptor, which stays with
    /// `self`, the MAC and the MTU.
    pub fn for_process(
        &self,
        spec: &Spec,
    ) -> impl Iterator<Item = (&'static str, BorrowedFd<'_>, [u8; 6], u16)> {
        let own = spec.mac();
        let of_interface = |interface: &Interface| ("packet", interface.mac, interface.mtu);
        let (first, further) = match &self.connection {
            Connection::Tap { .. } => (("tap", own, mtu(Platform::Process)), &[][..]),
            Connection::Interface { interface, further } => (of_interface(interface), &further[..]),
            _ => (("stream", own, ETHERNET), &[][..]),
        };
        let about = std::iter::once(first).chain(further.iter().map(of_interface));
        let devices = self.device.iter().chain(&self.further);
        devices.zip(about).map(|(fd, (word, mac, mtu))| (word, fd.as_fd(), mac, mtu))
    }

    /// To be called when the machine has started: gives up the descriptor, so that the device or passt goes with the
    /// machine, and serves the ports and names of a tap device, or the names of an interface, from a thread that lives as
    /// long as the link. `names` answers the machine's questions for names that it knows, `servers` all others; none: those
    /// of this host.
    pub fn serve(
        &mut self,
        limits: Limits,
        servers: &[Ipv4Addr],
        names: Option<Lookup>,
    ) -> Result<(), MachineError> {
        self.device = None;
        self.further.clear();
        if let Some(relay) = self.relay.take() {
            self.serving.push(Serving::begin("relay", relay.serve())?);
        }
        if let Some(resolver) = self.resolver.take() {
            self.serving.push(Serving::begin("resolver", resolver.serve())?);
            return Ok(());
        }
        if let Some(loopback) = self.loopback.take() {
            self.serving.push(Serving::begin("loopback", loopback.serve())?);
            return Ok(());
        }
        let routes = std::mem::take(&mut self.routes);
        let Connection::Tap { pair, .. } = self.connection else {
            if !routes.is_empty() {
                let work = async move {
                    serve_ports(routes, Ipv4Addr::LOCALHOST, limits);
                    std::future::pending::<()>().await
                };
                self.serving.push(Serving::begin("proxy", work)?);
            }
            return Ok(());
        };
        let servers = if servers.is_empty() { dns::host_servers() } else { servers.to_vec() };
        let taken = self.names.take();
        self.serving.push(Serving::begin("proxy", serve(routes, pair, taken, servers, names, limits))?);
        Ok(())
    }
}

/// Work in a thread of its own, which begins in the network namespace of this one. It ends when this goes, and gives up its
/// sockets: a machine that is started again by the same process wants the same ports.
#[derive(Debug)]
struct Serving {
    /// Dropped to end it.
    end: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Serving {
    fn begin(name: &str, work: impl Future<Output = ()> + Send + 'static) -> Result<Serving, MachineError> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(MachineError::Proxy)?;
        let (end, ended) = oneshot::channel::<()>();
        let serve = move || {
            runtime.spawn(work);
            // Nothing is sent: the other side goes.
            let _ = runtime.block_on(ended);
            // A name that is being looked up has no end in sight.
            runtime.shutdown_background();
        };
        let thread =
            std::thread::Builder::new().name(name.into()).spawn(serve).map_err(MachineError::Proxy)?;
        Ok(Serving { end: Some(end), thread: Some(thread) })
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        self.end = None;
        if let Some(thread) = self.thread.take() {
            // It has nothing to tell.
            let _ = thread.join();
        }
    }
}

/// What every network takes.
const ETHERNET: u16 = 1500;

/// The MTU of a machine's tap device.
///
/// A process machine's link has no wire and takes packets of any size whole: an answer is one segment to its client,
/// which then acknowledges once. Where the host's own way on is narrower it says so (RFC 1191), and peers offer segments
/// of their own networks anyway. Drivers of virtual devices expect Ethernet's.
fn mtu(platform: Platform) -> u16 {
    if platform.is_process() { tap::LARGEST_MTU } else { ETHERNET }
}

async fn serve(
    routes: Vec<Route>,
    pair: Pair,
    taken: Option<dns::Sockets>,
    servers: Vec<Ipv4Addr>,
    names: Option<Lookup>,
    limits: Limits,
) {
    serve_ports(routes, pair.guest, limits);
    if let Err(error) = dns::serve(pair.host, taken, servers, names).await {
        eprintln!("unilith: names will not resolve in the machine: {error}");
    }
    std::future::pending::<()>().await
}

/// To be called in a runtime, which serves them from then on.
fn serve_ports(routes: Vec<Route>, to: Ipv4Addr, limits: Limits) {
    // The sockets are bound already; what can still fail is switching them to non-blocking, which it never does on Linux.
    if let Err(error) = proxy::serve(routes, to, limits) {
        eprintln!("unilith: cannot serve the published ports: {error}");
    }
}

/// What the helper of a user-mode network serves, which listens itself: `listeners` only showed that those ports are free. It
/// speaks IPv4 alone, so an address of IPv6 is served here, by way of a port of the loopback address that the helper has.
fn share(
    published: &[Publish],
    listeners: Vec<Listener>,
) -> Result<(Vec<Publish>, Vec<Route>), MachineError> {
    let (mut forwarded, mut routes, mut held) = (Vec::new(), Vec::new(), Vec::new());
    for (port, listener) in published.iter().zip(listeners) {
        if port.address.is_ipv4() {
            forwarded.push(*port);
            held.push(listener);
            continue;
        }
        let mut behind = Publish { address: Ipv4Addr::LOCALHOST.into(), host: 0, ..*port };
        // Held to the end, so that no two get the same number.
        held.push(listen(&mut behind)?);
        routes.push(Route { listener, guest: behind.host });
        forwarded.push(behind);
    }
    Ok((forwarded, routes))
}

/// Settings of the kernel for a connection.
pub(crate) fn describe(connection: &Connection, boot: &mut api_boot::BootConfig) {
    match connection {
        Connection::None => {}
        Connection::User { helper } => {
            boot.ip = Some(api_boot::Ipv4Prefix { address: passt::MACHINE.octets(), length: passt::PREFIX });
            boot.gateway = Some(passt::GATEWAY.octets());
            boot.dns = vec![passt::DNS.octets()];
            if *helper == Helper::Passt6 {
                boot.ipv6.addresses = vec![(passt::MACHINE6, passt::PREFIX6)];
                boot.ipv6.gateway = Some(passt::GATEWAY6);
            }
        }
        Connection::Interface { interface, further } => {
            let Interface { address, length, gateway, ipv6, .. } = interface;
            let own = api_boot::Ipv4Prefix { address: address.octets(), length: *length };
            boot.ip = Some(own).filter(|_| !address.is_unspecified());
            boot.ipv6.addresses.clone_from(&ipv6.addresses);
            boot.ipv6.gateway = ipv6.gateway;
            boot.gateway = gateway.map(|gateway| gateway.octets());
            // The first is always called so; whose name that is on the host has the first one's.
            let name = |own: &str| if own == FIRST { interface.name.clone() } else { own.to_string() };
            let next = |interface: &Interface| api_boot::Further {
                name: name(&interface.name),
                ip: api_boot::Ipv4Prefix { address: interface.address.octets(), length: interface.length },
                gateway: interface.gateway.map(|gateway| gateway.octets()),
            };
            boot.further = further.iter().map(next).collect();
        }
        Connection::Tap { pair, .. } => {
            boot.ip = Some(api_boot::Ipv4Prefix { address: pair.guest.octets(), length: Pair::LENGTH });
            boot.gateway = Some(pair.host.octets());
            boot.dns = vec![pair.host.octets()];
            if let Some((host, guest)) = pair.ipv6() {
                boot.ipv6.addresses = vec![(guest, Pair::LENGTH6)];
                boot.ipv6.gateway = Some(host);
            }
        }
    }
}

const NO_NFTABLES: &str = "nftables is not installed (apt-get install nftables)";

/// Makes a machine that runs a member of the networks of `spec` and of no others: its device's bits, and its rules in one
/// transaction.
pub(crate) fn rejoin(spec: &Spec, connection: &Connection) -> Result<(), String> {
    let Connection::Tap { device, pair, translated: true } = connection else {
        return Err("it has no tap device with rules of its own".into());
    };
    let nft = nat::nft().ok_or(NO_NFTABLES)?;
    let ids: Vec<&str> = spec.networks.iter().map(|n| n.id.as_str()).collect();
    let networks = Members::of_host().and_then(|m| m.join(device, &ids)).map_err(|e| e.to_string())?;
    let rules = Rules { machine: &spec.id, device, pair: *pair, mac: spec.mac(), networks };
    nat::set_up(&nft, rules).map_err(|e| e.to_string())
}

fn translate(tap: &Tap, spec: &Spec) -> Result<bool, String> {
    let nft = nat::nft().ok_or(NO_NFTABLES)?;
    let ids: Vec<&str> = spec.networks.iter().map(|n| n.id.as_str()).collect();
    // Most machines are in none, and hosts on which groups cannot be set have no networks.
    let join = || Members::of_host().and_then(|m| m.join(&tap.name, &ids)).map_err(|e| e.to_string());
    let networks = if ids.is_empty() { 0 } else { join()? };
    let rules = Rules { machine: &spec.id, device: &tap.name, pair: tap.pair, mac: spec.mac(), networks };
    nat::set_up(&nft, rules).map_err(|e| e.to_string())?;
    let forwarding = Forwarding::of_host().and_then(|f| f.turn_on(&spec.id, &tap.name));
    if let Err(error) = forwarding {
        // The tables are of no use then. That they cannot be removed either is the smaller of the two messages.
        let _ = nat::tear_down(&nft, &tap.name, &spec.id);
        return Err(format!("cannot turn on IPv4 forwarding: {error}"));
    }
    Ok(true)
}
