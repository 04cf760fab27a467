// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Where the program's input comes from, where that is no terminal's: the machine's first port, which gives a byte at a time, or another device
//! of the machine's. The host sends nothing before it is told which one.

use api_lock::SpinLock;

/// Takes a piece of input.
pub type Take<'a> = &'a mut dyn FnMut(&[u8]);

/// A way from the host, beside the console.
#[derive(Clone, Copy)]
pub struct Input {
    /// Has the host send, this way if it is there, and else by the console. True: this way.
    pub begin: fn() -> bool,
    /// Hands over one piece of what came; false when there is none, and then [`crate::poll_console`] is called for the next.
    pub receive: fn(Take<'_>) -> bool,
}

#[derive(Clone, Copy)]
enum Way {
    /// The console's, and nobody waits to be told.
    Console,
    /// Not known yet; whether the program has asked for input.
    Expected { is_wanted: bool },
    /// The host is to be told when the program asks.
    Known(Input),
    /// It was told.
    Port(Input),
}

static WAY: SpinLock<Way> = SpinLock::new(Way::Console);

/// The host waits to be told where to send input: [`set_input`] comes later. Before the program starts.
pub fn expect_input() {
    *WAY.lock() = Way::Expected { is_wanted: false };
}

/// It is known now which way the host can send.
pub fn set_input(input: Input) {
    let before = core::mem::replace(&mut *WAY.lock(), Way::Known(input));
    if matches!(before, Way::Expected { is_wanted: true }) {
        want();
    }
}

/// The program asks for input.
fn want() -> Option<Input> {
    let mut way = WAY.lock();
    let input = match *way {
        Way::Console => return None,
        Way::Expected { .. } => {
            *way = Way::Expected { is_wanted: true };
            return None;
        }
        Way::Port(input) => return Some(input),
        Way::Known(input) => input,
    };
    // Whoever asks meanwhile waits: nothing comes before the host is told.
    *way = Way::Console;
    drop(way);
    if !(input.begin)() {
        return None;
    }
    *WAY.lock() = Way::Port(input);
    Some(input)
}

/// Takes a piece of what came by the port; false where there is none.
pub fn receive(take: Take<'_>) -> bool {
    want().is_some_and(|input| (input.receive)(take))
}
