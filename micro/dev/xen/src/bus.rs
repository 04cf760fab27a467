// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How the two ends of a device agree (`io/xenbus.h`): each has a folder in xenstore with what it offers and a state, a number.

use crate::control;
use crate::message::names;
use crate::store::Channel;
use abi::{Result, errno::EIO, errno::ENODEV, errno::ETIMEDOUT};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt::Display;
use plat_pc::xen::event;

pub const INIT_WAIT: u32 = 2;
pub const INITIALISED: u32 = 3;
pub const CONNECTED: u32 = 4;

/// How long the other end may take for a step.
const PATIENCE_NS: u64 = 10_000_000_000;
/// Between two looks at its state.
const AGAIN_NS: u64 = 2_000_000;

/// This machine's end of a device.
pub struct Device {
    folder: String,
    backend: String,
    /// Which domain the other end is in.
    pub domain: u16,
}

/// The first devices of a kind (`vif`, `vbd`) that have another end, by their numbers. There may be none.
pub fn devices(kind: &str, most: usize) -> Vec<Device> {
    let Some(store) = control::store() else { return Vec::new() };
    let Ok(list) = store.list(&format!("device/{kind}")) else { return Vec::new() };
    // xenstore lists them in no order that is promised.
    let mut numbers: Vec<u32> = names(&list).filter_map(|name| name.parse().ok()).collect();
    numbers.sort_unstable();
    let all = numbers.iter().filter_map(|number| Device::open(format!("device/{kind}/{number}")).ok());
    all.take(most).collect()
}

impl Device {
    fn open(folder: String) -> Result<Device> {
        let store = control::store().ok_or(ENODEV)?;
        let backend = store.read(&format!("{folder}/backend"))?;
        let domain = store.number(&format!("{folder}/backend-id"))?;
        Ok(Device { folder, backend, domain })
    }

    /// What this end's folder says.
    pub fn setting(&self, key: &str) -> Result<String> {
        control::store().ok_or(ENODEV)?.read(&format!("{}/{key}", self.folder))
    }

    /// The device's number, the last part of its folder.
    pub fn number(&self) -> Result<u32> {
        self.folder.rsplit('/').next().and_then(|name| name.parse().ok()).ok_or(EIO)
    }

    /// A number that the other end's folder says.
    pub fn told<T: core::str::FromStr>(&self, key: &str) -> Result<T> {
        control::store().ok_or(ENODEV)?.number(&format!("{}/{key}", self.backend))
    }

    /// Whether the other end says that it can do this.
    pub fn offers(&self, key: &str) -> bool {
        control::store().is_some_and(|store| store.number(&format!("{}/{key}", self.backend)) == Ok(1u32))
    }

    pub fn say(&self, key: &str, value: impl Display) -> Result<()> {
        control::store().ok_or(ENODEV)?.write(&format!("{}/{key}", self.folder), &format!("{value}"))
    }

    /// Waits until the other end is in the state, or past it.
    pub fn wait_for(&self, state: u32) -> Result<()> {
        let store = control::store().ok_or(ENODEV)?;
        let deadline = api_plat::now_ns() + PATIENCE_NS;
        loop {
            match store.number::<u32>(&format!("{}/state", self.backend))? {
                now if (state..=CONNECTED).contains(&now) => return Ok(()),
                5.. => return Err(EIO),
                _ if api_plat::now_ns() > deadline => return Err(ETIMEDOUT),
                _ => control::Wire::of_store().map_or((), |wire| wire.wait(AGAIN_NS)),
            }
        }
    }

    /// A new event channel for the other end.
    pub fn channel(&self) -> Result<u32> {
        event::allocate(self.domain)
    }
}
