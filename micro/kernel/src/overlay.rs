// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Ties the overlay to the machine: its channel to the host, its commands, and what these are to know.

use crate::machine::Devices;
use alloc::boxed::Box;
use alloc::string::String;
use core::any::Any;
#[cfg(feature = "plat-process")]
use overlay_commands::container::run as container;
use overlay_line::Setup;

/// Starts the line over the machine's channel. A machine without one has no line and costs nothing.
pub fn start(devices: &mut Devices) {
    let Some(open) = devices.line() else { return };
    overlay_commands::register();
    #[cfg(feature = "programs")]
    overlay_objects::register();
    #[cfg(feature = "trace")]
    overlay_trace::register();
    #[cfg(feature = "net-tcpip")]
    crate::network::tell_overlay();
    let setup =
        Setup { open, enter, program: overlay_commands::program::run, container, kernel: "unilith micro" };
    #[cfg(not(feature = "overlay-echo"))]
    let started = overlay_line::start(setup);
    #[cfg(feature = "overlay-echo")]
    let started = overlay_line::echo(setup);
    if let Err(e) = started {
        log::error!("the overlay does not start: {e:?}");
    }
}

/// Pods are machines that are processes; the others carry nothing of it.
#[cfg(not(feature = "plat-process"))]
fn container(_: &dyn api_overlay::Remote, _: &overlay_line::Container<'_>) -> api_overlay::Outcome {
    let why = "containers join machines that are processes: start it with --machine process";
    Err(api_overlay::Failure::new("").because(why).code(api_overlay::Failure::REFUSED))
}

fn enter() -> Result<Box<dyn Any>, String> {
    // SAFETY: the session drops it on this thread when its last command has returned.
    let identity = unsafe { task::auxiliary::Identity::assume(b"overlay") };
    identity.map(|i| Box::new(i) as Box<dyn Any>).map_err(|_| "the program has not started yet".into())
}
