// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What sockets of rtnetlink(7) are told when something changes (RTNLGRP_*).

use super::routes::Route;
use super::{Address, Interfaces};
use crate::sockets::netlink::notice;
use abi::Result;
use alloc::collections::VecDeque;
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use api_alloc::Reserve;
use api_lock::SpinLock;

/// Messages that wait to be told at most: those of one change are fewer, and with more listeners lose some (`ENOBUFS`).
const MAX_WAITING: usize = 4096;

/// A socket that hears groups.
pub trait Listener: Send + Sync {
    fn hear(&self, group: u32, message: &[u8]);
}

/// Sockets that joined some group.
#[derive(Default)]
pub struct Listeners(SpinLock<Vec<Weak<dyn Listener>>>);

impl Listeners {
    pub fn add(&self, listener: Weak<dyn Listener>) -> Result<()> {
        let mut all = self.0.lock();
        if all.len() == all.capacity() {
            all.retain(|known| known.strong_count() > 0);
        }
        all.reserve_fallibly(1).map_err(|_| abi::errno::ENOMEM)?;
        all.push(listener);
        Ok(())
    }

    fn is_empty(&self) -> bool {
        self.0.lock().is_empty()
    }

    /// Tells all, without any stack's lock.
    pub fn tell(&self, group: u32, message: &[u8]) {
        let count = self.0.lock().len();
        for at in 0..count {
            // Not locked meanwhile: the listener takes locks, and may be the last to know of itself.
            let listener = self.0.lock().get(at).and_then(Weak::upgrade);
            if let Some(listener) = listener {
                listener.hear(group, message);
            }
        }
    }
}

/// Messages that are to be told.
#[derive(Default)]
pub struct Notices {
    waiting: VecDeque<(u32, Vec<u8>)>,
    pub(super) listeners: Arc<Listeners>,
}

impl Notices {
    fn push(&mut self, group: u32, message: impl FnOnce() -> Result<Vec<u8>>) {
        if self.listeners.is_empty() || self.waiting.len() >= MAX_WAITING {
            return;
        }
        // What there is no memory for is not told, as on Linux.
        if let Ok(message) = message()
            && self.waiting.reserve_fallibly(1).is_ok()
        {
            self.waiting.push_back((group, message));
        }
    }

    pub fn pop(&mut self) -> Option<(u32, Vec<u8>)> {
        self.waiting.pop_front()
    }

    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }
}

impl Interfaces {
    pub(super) fn tell_link(&mut self, index: u32) {
        let Some(interface) = self.all.get(&index) else { return };
        self.notices.push(notice::LINK, || notice::link(interface, true));
    }

    pub(super) fn tell_link_gone(&mut self, index: u32) {
        let Some(interface) = self.all.get(&index) else { return };
        self.notices.push(notice::LINK, || notice::link(interface, false));
    }

    pub(super) fn tell_address(&mut self, index: u32, address: &Address, is_new: bool) {
        self.notices.push(notice::ADDRESS, || notice::address(index, address, is_new));
    }

    pub(crate) fn tell_route(&mut self, route: &Route, is_new: bool) {
        self.notices.push(notice::ROUTE, || notice::route(route, is_new));
    }

    pub(crate) fn tell_rule(&mut self, rule: &super::rules::Rule, is_new: bool) {
        let shown = self.shown_rule(rule);
        self.notices.push(notice::RULE, || notice::rule(&shown, is_new));
    }
}
