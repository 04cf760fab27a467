// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Ties the stack to the machine: its device, clock, timer, configuration, and when it is polled.
//!
//! While packets keep coming there are no interrupts: the stack is polled whenever the program waits or asks what it
//! could wait for, which is also when queued packets get their doorbell. A program that does neither is interrupted
//! by a timer. Only when nothing was found, or a single packet, is the device asked for an interrupt.

#[cfg(feature = "net-tun")]
mod further;
mod inner;
#[cfg(feature = "metadata")]
mod metadata;

use crate::machine::Devices;
use abi::Events;
use alloc::boxed::Box;
use alloc::sync::Arc;
use api_lock::SpinLock;
use api_plat::{BootConfig, Status};
use api_sched::{DeferredWork, TimerId, Waiter};
use core::net::Ipv4Addr;
use core::sync::atomic::{AtomicBool, Ordering};
use tcpip::ip::Configuration;
use tcpip::stack::{Host, Net, Next};

/// How long packets wait at most while the program computes.
const BACKSTOP_NS: u64 = 1_000_000;

struct Network {
    net: Arc<Net>,
    work: DeferredWork,
}

static NETWORK: SpinLock<Option<Arc<Network>>> = SpinLock::new(None);

/// Runs the deferred work when its time has come.
struct Alarm {
    armed: AtomicBool,
}

impl Waiter for Alarm {
    fn wake(&self, _: Events) {
        self.armed.store(false, Ordering::Relaxed);
        if let Some(network) = network() {
            api_sched::raise(network.work);
        }
    }
}

/// The one time at which a stack is to be polled next.
struct Timer {
    is_set: SpinLock<Option<TimerId>>,
    waiter: Arc<dyn Waiter>,
}

impl Timer {
    fn new(waiter: Arc<dyn Waiter>) -> Timer {
        Timer { is_set: SpinLock::new(None), waiter }
    }

    /// Replaces the time that was set before.
    fn set(&self, deadline_ns: u64) {
        let mut is_set = self.is_set.lock();
        if let Some(old) = is_set.take() {
            api_sched::cancel_timer(old);
        }
        *is_set = Some(api_sched::add_timer(deadline_ns, self.waiter.clone()));
    }
}

impl Drop for Timer {
    fn drop(&mut self) {
        if let Some(timer) = self.is_set.lock().take() {
            api_sched::cancel_timer(timer);
        }
    }
}

struct Machine {
    timer: Timer,
    backstop: Arc<Alarm>,
}

impl Host for Machine {
    fn now_ns(&self) -> u64 {
        api_plat::now_ns()
    }

    fn set_timer(&self, deadline_ns: u64) {
        self.timer.set(deadline_ns);
    }

    fn soon(&self) {
        if let Some(network) = network() {
            api_sched::defer(network.work);
        }
        if !self.backstop.armed.swap(true, Ordering::Relaxed) {
            api_sched::add_timer(api_plat::now_ns() + BACKSTOP_NS, self.backstop.clone());
        }
    }

    fn listening(&self, udp: bool, port: u16) {
        api_plat::status(&Status::Listening { udp, port });
    }

    fn alarm(&self, at_ns: u64, waiter: Arc<dyn Waiter>) -> Option<TimerId> {
        Some(api_sched::add_timer(at_ns, waiter))
    }

    fn cancel_alarm(&self, id: TimerId) {
        api_sched::cancel_timer(id);
    }
}

fn network() -> Option<Arc<Network>> {
    NETWORK.lock().clone()
}

fn poll() {
    let Some(network) = network() else { return };
    loop {
        let has_more = further::poll();
        match network.net.poll() {
            Next::Poll => return network.net.host.soon(),
            Next::Interrupt if has_more => return network.net.host.soon(),
            Next::Interrupt if network.net.arm_interrupt() && further::arm() => return,
            Next::Interrupt => {}
        }
    }
}

/// In a kernel whose stack has the first device alone.
#[cfg(not(feature = "net-tun"))]
mod further {
    use super::{Arc, BootConfig, DeferredWork, Devices, Net};

    pub fn start(config: &BootConfig, _: &mut Devices, _: &Arc<Net>, _: DeferredWork) {
        if let Some(first) = config.further.first() {
            log::error!("{}: this kernel was built for one network device (--set tun=on)", first.name);
        }
    }

    pub fn poll() -> bool {
        false
    }

    pub fn arm() -> bool {
        true
    }
}

/// Starts the stack with the first network device of `devices`, which is taken out; whether there is one. Where a server of the
/// network gives the address, `config` says it afterwards.
pub fn start(config: &mut BootConfig, devices: &mut Devices) -> bool {
    let mut seed = [0; 24];
    api_plat::entropy(&mut seed);
    let alarm = || Arc::new(Alarm { armed: AtomicBool::new(false) });
    let machine = Machine { timer: Timer::new(alarm()), backstop: alarm() };
    let net = Net::new(Box::new(machine), seed);
    let work = api_sched::add_deferred_work(poll);
    *NETWORK.lock() = Some(Arc::new(Network { net: net.clone(), work }));
    tcpip::sockets::register(&net);
    inner::register();
    #[cfg(feature = "net-packet")]
    api_socket::register(packet_socket::family(tcpip::link::of(&net)));
    #[cfg(feature = "net-tun")]
    register_tun();
    let Some(device) = devices.network(true) else { return false };
    api_netdev::NetDevice::on_interrupt(&*device, work);
    let configuration = config.ip.as_ref().map(|ip| Configuration {
        address: Ipv4Addr::from(ip.address),
        prefix: ip.length,
        gateway: config.gateway.map(Ipv4Addr::from),
    });
    if configuration.is_none() && !config.dhcp && !config.ipv6.is_on() {
        log::warn!(
            "the machine has a network device but the boot command line gives it no address (ip=A.B.C.D/N)"
        );
    }
    net.act(|stack, _| {
        stack.tcp.published.clone_from(&config.published);
        stack.attach(device);
        if let Some(configuration) = configuration {
            stack.configure(configuration);
        }
    });
    configure_ipv6(config, &net);
    further::start(config, devices, &net, work);
    api_sched::raise(work);
    if config.dhcp {
        lease(config, &net);
    }
    #[cfg(feature = "metadata")]
    metadata::ask(config);
    true
}

/// The device's addresses of IPv6, if the host gives it some.
#[cfg(feature = "ipv6")]
fn configure_ipv6(config: &BootConfig, net: &Arc<Net>) {
    if !config.ipv6.is_on() {
        return;
    }
    let mut key = [0; 8];
    api_plat::entropy(&mut key);
    let configuration = tcpip::ipv6::Configuration {
        addresses: config.ipv6.addresses.clone(),
        gateway: config.ipv6.gateway,
        is_automatic: config.ipv6.is_automatic,
    };
    let key = tcpip::hash::Keyed::new(u64::from_ne_bytes(key) | 1);
    net.act(|stack, now| stack.ip.configure6(now, &configuration, key));
}

#[cfg(not(feature = "ipv6"))]
fn configure_ipv6(config: &BootConfig, _: &Arc<Net>) {
    if config.ipv6.is_on() {
        log::error!(
            "the boot command line gives an IPv6 address, and this kernel was built without (--set ipv6=on)"
        );
    }
}

/// /dev/net/tun makes interfaces of the caller's network.
#[cfg(feature = "net-tun")]
fn register_tun() {
    tun::register(|| {
        let net = api_socket::stack()?.downcast::<Net>().ok()?;
        Some(tcpip::interfaces::ports::of(&net))
    });
    devfs::register_tun(tun::open);
}

#[cfg(not(feature = "dhcp"))]
fn lease(_: &BootConfig, _: &Arc<Net>) {
    log::error!("the boot command line says ip=dhcp, and this kernel was built without it (--set dhcp=on)");
}

/// How long a program waits for the machine's address before it starts without.
#[cfg(feature = "dhcp")]
const PATIENCE_NS: u64 = 30_000_000_000;

/// Asks a server for the address, and waits for it: programs look at it once, when they start.
#[cfg(feature = "dhcp")]
fn lease(config: &mut BootConfig, net: &Arc<Net>) {
    let mut random = [0; 4];
    api_plat::entropy(&mut random);
    let name = config.hostname.as_deref().unwrap_or("");
    net.act(|stack, now| {
        if let Some(info) = stack.ip.info {
            stack.start_dhcp(tcpip::dhcp::Client::new(now, info.mac, u32::from_ne_bytes(random), name));
        }
    });
    let until = api_plat::now_ns() + PATIENCE_NS;
    let lease = loop {
        if let Some(lease) = net.look(|stack| stack.lease()) {
            break lease;
        }
        let now = api_plat::now_ns();
        if now >= until {
            log::warn!(
                "no DHCP server has answered; the program starts without an address, which is asked for further"
            );
            return;
        }
        api_sched::park(until.min(now + LOOK_NS));
    };
    let configuration = lease.configuration;
    let address = configuration.address.octets();
    config.ip = Some(api_plat::Ipv4Prefix { address, length: configuration.prefix });
    config.gateway = configuration.gateway.map(|gateway| gateway.octets());
    if config.dns.is_empty() {
        config.dns = lease.servers.iter().flatten().map(Ipv4Addr::octets).collect();
    }
    log::info!("the address is {}/{} by DHCP", configuration.address, configuration.prefix);
}

/// How often it is looked for an address that is awaited.
#[cfg(feature = "dhcp")]
const LOOK_NS: u64 = 10_000_000;

/// Lets the overlay's `net` command look at the stack.
#[cfg(feature = "overlay")]
pub fn tell_overlay() {
    overlay_commands::net::set_source(overlay_commands::net::Source { sockets, counters });
}

#[cfg(feature = "overlay")]
fn sockets() -> alloc::vec::Vec<overlay_commands::net::Socket> {
    let Some(network) = network() else { return Default::default() };
    let report = |s: tcpip::report::Socket| overlay_commands::net::Socket {
        protocol: s.protocol,
        state: s.state,
        to_read: s.to_read,
        unacknowledged: s.unacknowledged,
        local: s.local,
        remote: s.remote,
    };
    network.net.look(|stack| stack.sockets()).into_iter().map(report).collect()
}

#[cfg(feature = "overlay")]
fn counters() -> alloc::vec::Vec<(&'static str, u64)> {
    network().map(|network| network.net.look(|stack| stack.counters())).unwrap_or_default()
}
