// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Xenstore as the machine has it, and what dom0 asks for over it: `xl shutdown` writes to `control/shutdown`, and the machine takes
//! that as `unilith stop`. How the machine ended is told at `data/status`.

use crate::store::{Channel, Store};
use api_boot::Status;
use api_sched::DeferredWorkSlot;
use core::sync::atomic::{AtomicU32, Ordering};
use plat_pc::xen::{self, event, shared};

/// Where dom0 writes what it asks for, and this machine that it has read it.
const ASKED: &str = "control/shutdown";
/// A folder that the toolstack lets the machine write to.
const STATUS: &str = "data/status";

/// The event channel of xenstore.
pub struct Wire(u32);

static CHANNEL: AtomicU32 = AtomicU32::new(0);

impl Wire {
    pub fn of_store() -> Option<Wire> {
        Some(Wire(CHANNEL.load(Ordering::Relaxed))).filter(|wire| wire.0 != 0)
    }
}

impl Channel for Wire {
    fn notify(&self) {
        event::notify(self.0);
    }

    fn wait(&self, most_ns: u64) {
        event::wait(self.0, most_ns.min(LOOK_NS));
    }

    fn now_ns(&self) -> u64 {
        shared::system_now()
    }
}

/// While the channel is listened to, its handler may take the event that is waited for: then it is looked again so soon.
const LOOK_NS: u64 = 2_000_000;

static STORE: api_lock::SpinLock<Option<&'static Store<Wire>>> = api_lock::SpinLock::new(None);

/// Xenstore, after [`start`].
pub fn store() -> Option<&'static Store<Wire>> {
    *STORE.lock()
}

static ASKS: DeferredWorkSlot = DeferredWorkSlot::new();

/// Opens xenstore, and heeds what dom0 asks for. On other computers nothing.
pub fn start() {
    let Some((ring, channel)) = xen::store() else { return };
    CHANNEL.store(channel, Ordering::Relaxed);
    let mut place = alloc::vec::Vec::new();
    if api_alloc::Reserve::reserve_exact_fallibly(&mut place, 1).is_err() {
        return log::error!("xenstore: no memory");
    }
    place.push(Store::new(ring, Wire(channel)));
    let [store] = &*place.leak() else { return };
    *STORE.lock() = Some(store);
    ASKS.set(api_sched::add_deferred_work(heed));
    let listens = store.watch(ASKED).and_then(|()| event::listen(channel, |_| ASKS.raise(), 0));
    if let Err(e) = listens {
        log::error!("xenstore: dom0 cannot ask for the end: {e:?}");
    }
    xen::on_end(tell);
}

/// Thread context.
fn heed() {
    let Some(store) = store().filter(|store| store.has_fired()) else { return };
    // At the first time nothing is asked for yet.
    let Ok(asked) = store.read(ASKED) else { return };
    if matches!(asked.as_str(), "poweroff" | "halt" | "reboot") {
        log::info!("dom0 asks for the end ({asked})");
        let _ = store.write(ASKED, "");
        plat_pc::request_end();
    }
}

/// The machine ends.
fn tell(status: &Status) {
    if let Some(store) = store() {
        let _ = store.write(STATUS, &alloc::format!("{status}"));
    }
}
