// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What credentials have of keys.

use crate::{Serial, TABLE};

/// A hold of a key, which lives as long.
#[derive(Debug, PartialEq, Eq)]
pub struct Held(Serial);

impl Held {
    /// A key that is in the table; the caller does not have the table any more.
    pub fn of(serial: Serial) -> Held {
        TABLE.lock().hold(serial);
        Held(serial)
    }

    pub fn serial(&self) -> Serial {
        self.0
    }
}

impl Clone for Held {
    fn clone(&self) -> Held {
        Held::of(self.0)
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        TABLE.lock().release(self.0);
    }
}

/// The keyrings of a thread; those that it never asked for are not there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Keyrings {
    pub thread: Option<Held>,
    pub process: Option<Held>,
    pub session: Option<Held>,
    /// Where keys go that are made for a request (KEYCTL_SET_REQKEY_KEYRING).
    pub for_requests: i32,
}

impl Keyrings {
    /// Of another process (fork(2)): the session's is the same one.
    pub fn fork(&mut self) {
        self.thread = None;
        self.process = None;
    }

    /// Another program begins (execve(2)).
    pub fn program_starts(&mut self) {
        self.fork();
    }

    pub fn serials(&self) -> [Option<Serial>; 3] {
        [&self.thread, &self.process, &self.session].map(|held| held.as_ref().map(Held::serial))
    }
}
