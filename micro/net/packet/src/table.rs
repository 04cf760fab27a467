// SPDX-License-Identifier: Apache-2.0 OR MIT
//! All packet sockets, and the groups that some of them are in: who gets a frame, and whom to wake.
//!
//! Locks are taken in this order: the stack's, the table's, a socket's.

use crate::capture::Capture;
use crate::fanout::Group;
use crate::member::Member;
use abi::{Result, errno::*};
use alloc::string::String;
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use api_alloc::Reserve;
use api_fs::Timespec;
use api_lock::SpinLock;
use api_netdev::link::{Frame, Link, Tap};
use core::fmt::Write;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

pub struct Table {
    pub link: Arc<dyn Link>,
    pub all: SpinLock<All>,
    /// Some socket needs [`Member::attend`].
    is_news: AtomicBool,
    next_id: AtomicU64,
    me: Weak<Table>,
}

#[derive(Default)]
pub struct All {
    sockets: Vec<Arc<Member>>,
    pub groups: Vec<Group>,
}

impl Table {
    pub fn new(link: Arc<dyn Link>) -> Arc<Table> {
        Arc::new_cyclic(|me| Table {
            link,
            all: SpinLock::default(),
            is_news: AtomicBool::new(false),
            next_id: AtomicU64::new(1),
            me: me.clone(),
        })
    }

    pub fn handle(&self) -> Weak<Table> {
        self.me.clone()
    }

    pub fn new_id(&self) -> u64 {
        self.next_id.fetch_add(1, Ordering::Relaxed)
    }

    /// `ENOMEM`.
    pub fn add(self: &Arc<Table>, socket: &Arc<Member>) -> Result<()> {
        {
            let mut all = self.all.lock();
            all.sockets.reserve_fallibly(1).map_err(|_| ENOMEM)?;
            all.sockets.push(socket.clone());
        }
        self.refresh();
        Ok(())
    }

    pub fn remove(self: &Arc<Table>, socket: &Member) {
        let gone = {
            let mut all = self.all.lock();
            all.groups.iter_mut().for_each(|group| group.leave(socket));
            all.groups.retain(|group| !group.is_empty());
            let index = all.sockets.iter().position(|known| core::ptr::eq(&**known, socket));
            index.map(|index| all.sockets.swap_remove(index))
        };
        drop(gone);
        self.refresh();
    }

    /// What sockets receive has changed: frames are looked at as long as one receives any.
    pub fn refresh(self: &Arc<Table>) {
        let receives = |socket: &Arc<Member>| socket.state.lock().protocol != 0;
        self.link.watch(self.clone(), &|| self.all.lock().sockets.iter().any(receives));
    }

    /// `/proc/net/packet`, as Linux prints it.
    pub fn report(&self) -> String {
        let mut out = String::from("sk               RefCnt Type Proto  Iface R Rmem   User   Inode\n");
        for socket in &self.all.lock().sockets {
            let state = socket.state.lock();
            // An address of the kernel's is nobody's business (%pK).
            let _ = writeln!(
                out,
                "{:016x} {:<6} {:<4} {:04x}   {:<5} {:1} {:<6} {:<6} {:<6}",
                0,
                3,
                socket.kind as u32,
                state.protocol,
                state.interface,
                u8::from(state.protocol != 0),
                state.memory,
                socket.user,
                socket.inode.load(Ordering::Relaxed)
            );
        }
        out
    }

    fn deliver(&self, capture: &Capture<'_>, socket: &Member) {
        let mut state = socket.state.lock();
        state.take(capture, &|| self.link.now_ns());
        if state.needs_attention() {
            self.is_news.store(true, Ordering::Relaxed);
        }
    }
}

impl Tap for Table {
    fn frame(&self, frame: &Frame<'_>) {
        let Some(capture) = Capture::new(frame, Timespec::now()) else { return };
        let mut all = self.all.lock();
        for socket in &all.sockets {
            let is_its = {
                let state = socket.state.lock();
                state.fanout.is_none() && state.wants(&capture) && frame.sender != Some(socket.id)
            };
            if is_its {
                self.deliver(&capture, socket);
            }
        }
        for group in &mut all.groups {
            if let Some(socket) = group.choose(&capture) {
                self.deliver(&capture, socket);
            }
        }
    }

    fn settle(&self) {
        if !self.is_news.swap(false, Ordering::Relaxed) {
            return;
        }
        loop {
            let needs = |socket: &&Arc<Member>| socket.state.lock().needs_attention();
            let Some(socket) = self.all.lock().sockets.iter().find(needs).cloned() else { return };
            socket.attend(self);
        }
    }
}
