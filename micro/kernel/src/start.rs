// SPDX-License-Identifier: Apache-2.0 OR MIT
//! From the platform's hand-over to the program's first instruction.

use crate::{logger, machine};
use alloc::string::String;
use api_lock::SpinLock;
use api_plat::{Boot, Status};
use core::panic::PanicInfo;
use sched::Start;

// Micro-libraries that are reached through their `extern` symbols only: naming them links them.
#[cfg(feature = "sched-coop")]
use sched_coop as _;
#[cfg(feature = "sched-preempt")]
use sched_preempt as _;

static BOOT: SpinLock<Option<Boot>> = SpinLock::new(None);

#[unsafe(no_mangle)]
fn unilith_kernel_main(boot: Boot) -> ! {
    logger::start(boot.config.log.as_deref());
    mem::set_call_entry(|_number| machine::system_call_entry());
    #[cfg(all(feature = "plat-pc", feature = "smp", not(feature = "linked")))]
    machine::start_processors(&boot.config);
    *BOOT.lock() = Some(boot);
    match sched::spawn(true, Start::Kernel(first_thread)) {
        Ok(thread) => sched::start_first(&thread),
        Err(_) => failed(String::from("not enough memory to start: try -m 64M")),
    }
}

fn failed(reason: String) -> ! {
    log::error!("{reason}");
    api_plat::power_off(&Status::Failed { reason })
}

/// Becomes the program's first thread.
fn first_thread() {
    #[cfg(feature = "fail-nth")]
    crate::heap::HAS_THREADS.store(true, core::sync::atomic::Ordering::Relaxed);
    let boot = BOOT.lock().take();
    #[cfg_attr(not(any(feature = "net-tcpip", feature = "linked")), allow(unused_mut))]
    let Some(mut boot) = boot else { return };
    #[cfg_attr(not(any(feature = "net-tcpip", feature = "overlay", feature = "ext4")), allow(unused_mut))]
    let mut devices = machine::devices();
    #[cfg(all(feature = "net-tcpip", not(feature = "linked")))]
    crate::network::start(&mut boot.config, &mut devices);
    #[cfg(feature = "overlay")]
    crate::overlay::start(&mut devices);
    #[cfg(all(feature = "ext4", not(feature = "linked")))]
    devices.disks(&mut calls_files::disks::add);
    #[cfg(all(feature = "net-unix", not(feature = "linked")))]
    start_unix();
    #[cfg(feature = "linked")]
    crate::linked::start(&mut boot.config, &mut devices);
    if let Err(reason) = devices.finish() {
        failed(reason);
    }
    match posix::start::run(boot) {
        Ok(never) => match never {},
        Err(reason) => failed(reason),
    }
}

#[cfg(feature = "net-unix")]
pub fn start_unix() {
    unix_socket::register();
    posix::calls::sockets::initialise();
}

#[panic_handler]
fn panic(info: &PanicInfo<'_>) -> ! {
    machine::panic(info)
}

/// Only builds without link-time optimisation ask for it.
#[unsafe(no_mangle)]
extern "C" fn rust_eh_personality() -> ! {
    unreachable!("the kernel does not unwind")
}

/// As above.
#[unsafe(no_mangle)]
extern "C" fn _Unwind_Resume() -> ! {
    unreachable!("the kernel does not unwind")
}
