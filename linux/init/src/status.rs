// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The status port, written through /dev/port: no right that the program could inherit, as `ioperm` would be.

use api_boot::{EXIT_PORT, STATUS_PORT, Status};
use std::{
    fs::{File, OpenOptions},
    os::unix::fs::FileExt,
    sync::{Arc, Mutex, PoisonError},
};

/// QEMU's debug console, shared between the threads of init.
#[derive(Clone)]
pub struct StatusPort(Arc<Mutex<File>>);

impl StatusPort {
    pub fn open() -> Result<StatusPort, String> {
        let file = OpenOptions::new().write(true).open("/dev/port").map_err(|e| format!("/dev/port: {e}"))?;
        Ok(StatusPort(Arc::new(Mutex::new(file))))
    }

    /// Writes one line. A machine without the debug console loses it, as the bus does.
    pub fn report(&self, status: &Status) {
        let file = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for byte in format!("{status}\n").bytes() {
            // One byte at a time: the kernel puts the next byte of one write on the next port.
            let _ = file.write_at(&[byte], STATUS_PORT.into());
        }
    }

    /// Ends QEMU. Returns where the machine has no `isa-debug-exit` device.
    pub fn end_machine(&self) {
        let file = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let _ = file.write_at(&[0], EXIT_PORT.into());
    }
}
