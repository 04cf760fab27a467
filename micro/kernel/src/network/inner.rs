// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Networks beside the machine's own (network_namespaces(7)): stacks without a device, whose sockets reach each other by loopback.

use super::{BACKSTOP_NS, Timer};
use abi::{Events, Result, errno::ENOMEM};
use alloc::boxed::Box;
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use api_alloc::Reserve;
use api_lock::SpinLock;
use api_sched::{DeferredWork, DeferredWorkSlot, TimerId, Waiter};
use api_socket::Family;
use core::sync::atomic::{AtomicBool, Ordering};
use tcpip::ip::Loopback;
use tcpip::stack::{Host, Net, Next};

/// All of them that are there.
static ALL: SpinLock<Vec<Weak<Net>>> = SpinLock::new(Vec::new());
static DEFERRED_WORK: DeferredWorkSlot = DeferredWorkSlot::new();
/// The same, for work that is put off.
static LATER: SpinLock<Option<DeferredWork>> = SpinLock::new(None);
static IS_POLLING: AtomicBool = AtomicBool::new(false);
/// A timer is set that ends the putting off.
static BACKSTOP: AtomicBool = AtomicBool::new(false);

pub fn register() {
    let work = api_sched::add_deferred_work(poll);
    DEFERRED_WORK.set(work);
    *LATER.lock() = Some(work);
    api_socket::register_maker(another);
}

/// Does what is due in any of them.
fn poll() {
    IS_POLLING.store(true, Ordering::Relaxed);
    let count = ALL.lock().len();
    for at in 0..count {
        // Not held meanwhile: the last one to go takes its stack with it.
        let net = ALL.lock().get(at).and_then(Weak::upgrade);
        if let Some(net) = net
            && net.poll() == Next::Poll
        {
            put_off();
        }
    }
    IS_POLLING.store(false, Ordering::Relaxed);
}

/// Has the rest done when the program pauses, and soon: frames that go round in circles leave time for programs.
fn put_off() {
    if let Some(work) = *LATER.lock() {
        api_sched::defer(work);
    }
    if !BACKSTOP.swap(true, Ordering::Relaxed) {
        api_sched::add_timer(api_plat::now_ns() + BACKSTOP_NS, Arc::new(Backstop));
    }
}

struct Backstop;

impl Waiter for Backstop {
    fn wake(&self, _: Events) {
        BACKSTOP.store(false, Ordering::Relaxed);
        DEFERRED_WORK.raise();
    }
}

struct Alarm;

impl Waiter for Alarm {
    fn wake(&self, _: Events) {
        DEFERRED_WORK.raise();
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
        // What a stack makes of another one's frames while all are polled waits for the next time.
        if IS_POLLING.load(Ordering::Relaxed) {
            put_off();
        } else {
            DEFERRED_WORK.raise();
        }
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

/// What a new stack allocates before anybody uses it: 26 kB, in pieces of up to 10 kB, and less than what comes straight from pages
/// (`KernelHeap::LARGE`).
const STACK_BYTES: usize = 31 * 1024;

/// Families of a new stack.
fn another() -> Result<Vec<Arc<dyn Family>>> {
    // Blocks of stacks that are gone, which are freed here, may be all the memory there is.
    ALL.lock().retain(|net| net.strong_count() > 0);
    if api_alloc::is_low() {
        return Err(ENOMEM);
    }
    api_alloc::make_room(STACK_BYTES).map_err(|_| ENOMEM)?;
    let mut seed = [0; 24];
    api_plat::entropy(&mut seed);
    let net = Net::new(Box::new(Inner { timer: Timer::new(Arc::new(Alarm)) }), seed);
    net.look(|stack| stack.ip.lo = Loopback::ALONE);
    let mut all = ALL.lock();
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
