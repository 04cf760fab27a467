// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What an image without the part for Xen has in its place: nothing is ever there.

/// There is none.
pub enum Console {}

impl Console {
    pub fn write(&self, _: &[u8]) {
        match *self {}
    }

    pub fn room(&self) -> usize {
        match *self {}
    }

    pub fn is_drained(&self) -> bool {
        match *self {}
    }

    pub fn read(&self, _: &mut [u8]) -> usize {
        match *self {}
    }

    pub fn listen(&self, _: fn(usize)) {
        match *self {}
    }
}

pub const fn begin() {}

pub const fn is_on() -> bool {
    false
}

pub const fn has_x2apic() -> bool {
    false
}

pub const fn console() -> Option<&'static Console> {
    None
}

pub const fn timer_tick_ns() -> u64 {
    1
}

pub const fn shut_down(_: bool) {}

pub const fn tell_end(_: &api_plat::Status) {}

pub mod shared {
    pub const fn rate() -> Option<u64> {
        None
    }

    pub const fn wall() -> Option<(u64, u64)> {
        None
    }
}
