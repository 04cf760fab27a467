// SPDX-License-Identifier: Apache-2.0 OR MIT
//! SIOCGSTAMP and SIOCGSTAMPNS (socket(7)): when the datagram came in that was read last.

use abi::{Result, errno::ENOENT};
use api_fs::Timespec;
use api_lock::SpinLock;
use api_user::UserPtr;

/// socket(7).
pub const SIOCGSTAMP: u32 = 0x8906;
pub const SIOCGSTAMPNS: u32 = 0x8907;

#[derive(Clone, Copy, Default)]
enum Last {
    #[default]
    Nothing,
    /// Something was read that had no stamp: the first question makes one.
    Unstamped,
    At(Timespec),
}

#[derive(Default)]
struct State {
    last: Last,
    /// Somebody asked: datagrams are stamped as they come.
    is_enabled: bool,
}

#[derive(Default)]
pub struct LastStamp(SpinLock<State>);

impl LastStamp {
    pub fn is_enabled(&self) -> bool {
        self.0.lock().is_enabled
    }

    /// A datagram was read. Whoever gets stamps as control messages is told nothing here (Linux' sock_recv_timestamp).
    pub fn received(&self, by_message: bool, stamp: Option<Timespec>) {
        let mut state = self.0.lock();
        state.last = match (by_message, stamp, state.last) {
            (true, _, last) => last,
            (false, Some(at), _) => Last::At(at),
            (false, None, Last::Nothing) => Last::Unstamped,
            (false, None, last) => last,
        };
    }

    /// Answers as a `struct timespec`, or as a `struct timeval`. `ENOENT` before anything was read.
    pub fn write(&self, argument: u64, in_nanoseconds: bool) -> Result<usize> {
        let at = {
            let mut state = self.0.lock();
            state.is_enabled = true;
            let at = match state.last {
                Last::Nothing => return Err(ENOENT),
                Last::Unstamped => Timespec::now(),
                Last::At(at) => at,
            };
            state.last = Last::At(at);
            at
        };
        let fraction = i64::from(at.nanoseconds) / if in_nanoseconds { 1 } else { 1000 };
        UserPtr::<[i64; 2]>::new(argument).write([at.seconds, fraction])?;
        Ok(0)
    }
}
