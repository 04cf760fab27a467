// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a socket says about sharing its port (SO_REUSEADDR, SO_REUSEPORT).

/// Of a socket, or of what is left of one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reuse {
    /// SO_REUSEADDR
    pub address: bool,
    /// SO_REUSEPORT
    pub port: bool,
    /// The user who made the socket. A record of TIME-WAIT is nobody's.
    pub user: Option<u32>,
}

impl Reuse {
    /// What a socket in TIME-WAIT leaves.
    pub fn of_time_wait(self) -> Reuse {
        Reuse { user: None, ..self }
    }

    /// Both said SO_REUSEPORT, and nobody takes a part of what is sent to another user.
    pub fn shares_port(self, used: Reuse) -> bool {
        self.port && used.port && (used.user.is_none() || used.user == self.user)
    }
}
