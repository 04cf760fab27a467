// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Where the console's output goes: the machine's first port, and from some moment on another device of the machine's, which takes a piece
//! at a time where the port takes a byte.

use abi::Result;
use api_lock::SpinLock;

/// A way to the host.
#[derive(Clone, Copy)]
pub struct Output {
    /// Takes up to [`crate::PIECE`] bytes, or none: `EAGAIN` while there is no room. Does not wait.
    pub write: fn(&[u8]) -> Result<()>,
    /// There is room for a piece. If not, and after `EAGAIN`, [`crate::poll_console`] is called when there may be.
    pub has_room: fn() -> bool,
    /// All that was written has left the machine.
    pub is_drained: fn() -> bool,
}

/// Held while something is written, so that nothing goes the old way behind what goes the new one.
static ROUTE: SpinLock<Route> = SpinLock::new(Route { now: None, next: None });

struct Route {
    /// `None`: what the machine has first.
    now: Option<Output>,
    /// As soon as all that went the old way has arrived.
    next: Option<Output>,
}

impl Route {
    fn output(&mut self) -> Output {
        let now = self.now.unwrap_or_else(|| crate::machine().output);
        match self.next {
            Some(next) if (now.is_drained)() => {
                *self = Route { now: Some(next), next: None };
                next
            }
            _ => now,
        }
    }
}

pub fn write(piece: &[u8]) -> Result<()> {
    let mut route = ROUTE.lock();
    (route.output().write)(piece)
}

pub fn has_room() -> bool {
    let mut route = ROUTE.lock();
    (route.output().has_room)()
}

/// Output goes this way, behind all that went the old one.
pub fn move_output(to: Output) {
    ROUTE.lock().next = Some(to);
}

/// Waits until all that was written has left the machine, which is about to end. A host whose reader is behind takes its time.
pub fn flush() {
    loop {
        let output = ROUTE.lock().output();
        if (output.is_drained)() {
            return;
        }
        // What still waits in the kernel goes on.
        (output.has_room)();
        core::hint::spin_loop();
    }
}
