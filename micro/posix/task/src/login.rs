// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Who logged in, which pam_loginuid(8) writes and children inherit.

/// Nobody has logged in.
pub const NONE: u32 = u32::MAX;

/// Who logged in, and the number of that.
#[derive(Clone, Copy, Debug)]
pub struct Login {
    pub uid: u32,
    pub session: u32,
}

impl Default for Login {
    fn default() -> Login {
        Login { uid: NONE, session: NONE }
    }
}
