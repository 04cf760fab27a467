// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The end of a kernel that found a bug in itself.

use crate::logger::Console;
use alloc::string::ToString;
use api_plat::Status;
use core::fmt::Write;
use core::panic::PanicInfo;
use core::sync::atomic::{AtomicBool, Ordering};

#[panic_handler]
fn panic(info: &PanicInfo<'_>) -> ! {
    static PANICKED: AtomicBool = AtomicBool::new(false);
    if PANICKED.swap(true, Ordering::Relaxed) {
        // The report itself failed: no allocation, no formatting.
        api_plat::console_write(b"kernel: panic while reporting a panic\n");
        api_plat::power_off(&Status::Exit { code: 255 });
    }
    let mut console = Console::new();
    // Writing to the console cannot fail.
    let _ = writeln!(console, "kernel panic: {info}");
    console.flush();
    plat_pc::print_backtrace();
    api_plat::power_off(&Status::Failed { reason: info.message().to_string() })
}
