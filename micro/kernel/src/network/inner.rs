// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Networks beside the machine's own (network_namespaces(7)): stacks without a device, whose sockets reach each other by loopback.

use super::Timer;
use abi::{Events, Result, errno::ENOMEM};
use alloc::boxed::Box;
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use api_alloc::Reserve;
use api_lock::SpinLock;
use api_sched::{PollerSlot, TimerId, Waiter};
use api_socket::Family;
use tcpip::ip::Loopback;
use tcpip::stack::{Host, Net};

/// All of them that are there.
static ALL: SpinLock<Vec<Weak<Net>>> = SpinLock::new(Vec::new());
static POLLER: PollerSlot = PollerSlot::new();

pub fn register() {
    POLLER.set(api_sched::add_poller(poll));
    api_socket::register_maker(another);
}

/// Does what is due in any of them.
fn poll() {
    let count = ALL.lock().len();
    for at in 0..count {
        // Not held meanwhile: the last one to go takes its stack with it.
        let net = ALL.lock().get(at).and_then(Weak::upgrade);
        if let Some(net) = net {
            net.poll();
        }
    }
}

struct Alarm;

impl Waiter for Alarm {
    fn wake(&self, _: Events) {
        POLLER.raise();
    }
}

/// What such a stack asks of the machine.
struct Inner {
    timer: Timer,
}

impl Host for Inner {
    fn now_ns(&self) -> u64 {
        api_plat::now_ns()
    }

    fn set_timer(&self, deadline_ns: u64) {
        self.timer.set(deadline_ns);
    }

    fn soon(&self) {
        POLLER.raise();
    }

    /// Nobody outside of the machine can come to it.
    fn listening(&self, _: bool, _: u16) {}

    fn alarm(&self, at_ns: u64, waiter: Arc<dyn Waiter>) -> Option<TimerId> {
        Some(api_sched::add_timer(at_ns, waiter))
    }

    fn cancel_alarm(&self, id: TimerId) {
        api_sched::cancel_timer(id);
    }
}

/// Families of a new stack.
fn another() -> Result<Vec<Arc<dyn Family>>> {
    if api_alloc::is_low() {
        return Err(ENOMEM);
    }
    let mut seed = [0; 24];
    api_plat::entropy(&mut seed);
    let net = Net::new(Box::new(Inner { timer: Timer::new(Arc::new(Alarm)) }), seed);
    net.look(|stack| stack.ip.lo = Loopback::ALONE);
    let mut all = ALL.lock();
    all.retain(|net| net.strong_count() > 0);
    all.reserve_fallibly(1).map_err(|_| ENOMEM)?;
    all.push(Arc::downgrade(&net));
    let mut families = Vec::from(tcpip::sockets::families(&net));
    #[cfg(feature = "net-packet")]
    {
        families.reserve_fallibly(1).map_err(|_| ENOMEM)?;
        families.push(packet_socket::family(tcpip::link::of(&net)));
    }
    Ok(families)
}
