// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The far side of a veth pair: a network namespace in which native servers run.

use crate::{Result, side::MACHINE_CPU};
use rustix::thread::{CpuSet, LinkNameSpaceType, move_into_link_name_space, sched_setaffinity};
use std::cell::RefCell;
use std::fs::File;
use std::os::fd::AsFd;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

/// Both are of the range for benchmarks (RFC 2544, C.2.2).
const NEAR: &str = "198.18.0.1/30";
const FAR: &str = "198.18.0.2/30";
/// The servers' address.
pub const ADDRESS: &str = "198.18.0.2";

/// A network namespace and the pair that leads there; removed when dropped.
pub struct Far {
    name: String,
}

impl Far {
    pub fn new() -> Result<Far> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        // A device's name has at most 15 bytes.
        let name = format!("ub{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        ip(&["netns", "add", &name])?;
        let far = Far { name };
        let name = &far.name;
        ip(&["link", "add", name, "type", "veth", "peer", "name", "far", "netns", name])?;
        ip(&["address", "add", NEAR, "dev", name])?;
        ip(&["link", "set", name, "up"])?;
        ip(&["-n", name, "address", "add", FAR, "dev", "far"])?;
        ip(&["-n", name, "link", "set", "far", "up"])?;
        ip(&["-n", name, "link", "set", "lo", "up"])?;
        Ok(far)
    }

    /// Starts a server there, on the machines' processor. Nothing is between this and its exec.
    pub fn start(&self, program: &str, words: &[&str]) -> Result<Server> {
        let path = format!("/run/netns/{}", self.name);
        let namespace = File::open(&path).map_err(|e| format!("{path}: {e}"))?;
        // Both are a thread's, and its children's.
        let start = || {
            let mut processors = CpuSet::new();
            processors.set(MACHINE_CPU.parse().unwrap_or(0));
            sched_setaffinity(None, &processors)?;
            move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))?;
            Command::new(program).args(words).stdin(Stdio::null()).stdout(Stdio::null()).spawn()
        };
        let started = std::thread::scope(|scope| scope.spawn(start).join());
        match started {
            Ok(Ok(child)) => Ok(Server(RefCell::new(child))),
            Ok(Err(e)) => Err(format!("cannot start {program}: {e}")),
            Err(_) => Err(format!("cannot start {program}")),
        }
    }
}

impl Drop for Far {
    fn drop(&mut self) {
        if let Err(e) = ip(&["netns", "delete", &self.name]) {
            eprintln!("{e}");
        }
    }
}

fn ip(words: &[&str]) -> Result<()> {
    let output = Command::new("ip").args(words).output();
    let output = output.map_err(|e| format!("cannot run ip: {e}; apt-get install iproute2"))?;
    if output.status.success() {
        return Ok(());
    }
    let error = String::from_utf8_lossy(&output.stderr);
    Err(format!("ip {} failed (it needs root): {}", words.join(" "), error.trim()))
}

/// A native server; ended when dropped.
pub struct Server(RefCell<Child>);

impl Server {
    pub fn pid(&self) -> u32 {
        self.0.borrow().id()
    }

    /// It still runs.
    pub fn check(&self) -> Result<()> {
        match self.0.borrow_mut().try_wait() {
            Ok(None) => Ok(()),
            Ok(Some(status)) => Err(format!("the native server ended ({status})")),
            Err(e) => Err(format!("the native server: {e}")),
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let child = self.0.get_mut();
        if let Err(e) = child.kill().and_then(|()| child.wait()) {
            eprintln!("the native server: {e}");
        }
    }
}
