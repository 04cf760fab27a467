// SPDX-License-Identifier: Apache-2.0 OR MIT
//! MSG_ZEROCOPY (socket(7), SO_ZEROCOPY): a program is told by a message of the error queue when it may change what it sent.
//!
//! What is sent is copied here before send(2) returns, as on Linux where a device or the way there asks for it, and the message says so
//! (SO_EE_CODE_ZEROCOPY_COPIED). Sends are numbered, and one message tells of all that are done: there is never more than one.

use crate::options::{from_int, int};
use crate::{Control, Received};
use abi::linux::net as linux;
use abi::{Result, errno::*};
use alloc::vec::Vec;
use api_alloc::Reserve;
use api_lock::SpinLock;
use core::sync::atomic::{AtomicBool, Ordering::Relaxed};

const MSG_ZEROCOPY: u32 = 0x400_0000;
const SO_EE_ORIGIN_ZEROCOPY: u8 = 5;
const SO_EE_CODE_ZEROCOPY_COPIED: u8 = 1;

#[derive(Default)]
struct State {
    /// The number of the next send.
    next: u32,
    /// The first and the last of those that are done and that the program was not told of.
    done: Option<(u32, u32)>,
}

#[derive(Default)]
pub struct ZeroCopy {
    /// SO_ZEROCOPY.
    is_on: AtomicBool,
    is_pending: AtomicBool,
    state: SpinLock<State>,
}

impl ZeroCopy {
    pub fn set(&self, value: &[u8]) -> Result<()> {
        match int(value)? {
            n @ 0..=1 => {
                self.is_on.store(n != 0, Relaxed);
                Ok(())
            }
            _ => Err(EINVAL),
        }
    }

    pub fn value(&self) -> Vec<u8> {
        from_int(self.is_on.load(Relaxed))
    }

    /// A connection that was accepted has the option as its listener has it.
    pub fn inherit(&self, listener: &ZeroCopy) {
        self.is_on.store(listener.is_on.load(Relaxed), Relaxed);
    }

    /// A send was made with these flags, of more than nothing: true when the program is to hear of it.
    pub fn sent(&self, flags: u32) -> bool {
        if flags & MSG_ZEROCOPY == 0 || !self.is_on.load(Relaxed) {
            return false;
        }
        let mut state = self.state.lock();
        let number = state.next;
        state.next = number.wrapping_add(1);
        let first = state.done.map_or(number, |(first, _)| first);
        state.done = Some((first, number));
        self.is_pending.store(true, Relaxed);
        true
    }

    /// There is a message to read.
    #[inline]
    pub fn is_pending(&self) -> bool {
        self.is_pending.load(Relaxed)
    }

    /// The message: nothing but its control message of this level and type, with the address of nobody, so many bytes of zeros.
    pub fn receive(&self, (level, kind): (u32, u32), address: usize) -> Result<Received> {
        let mut data = Vec::new();
        data.reserve_exact_fallibly(16 + address).map_err(|_| ENOBUFS)?;
        let mut control = Vec::new();
        control.reserve_exact_fallibly(1).map_err(|_| ENOBUFS)?;
        let (first, last) = {
            let mut state = self.state.lock();
            self.is_pending.store(false, Relaxed);
            state.done.take().ok_or(EAGAIN)?
        };
        // struct sock_extended_err: errno, origin, type, code, nothing, information, data.
        data.extend_from_slice(&0u32.to_ne_bytes());
        data.extend_from_slice(&[SO_EE_ORIGIN_ZEROCOPY, 0, SO_EE_CODE_ZEROCOPY_COPIED, 0]);
        data.extend_from_slice(&first.to_ne_bytes());
        data.extend_from_slice(&last.to_ne_bytes());
        data.resize(16 + address, 0);
        control.push(Control::Other { level: level as i32, kind: kind as i32, data });
        Ok(Received { control, flags: linux::MSG_ERRQUEUE, ..Received::default() })
    }
}
