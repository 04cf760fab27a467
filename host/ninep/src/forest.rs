// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A server whose trees come and go while its client runs. A tree that goes takes along everything that the client has open in it,
//! so that whoever mounted it on the host can unmount it.

use crate::{Export, Limits, Watches, converse, server::Server};
use std::{
    io,
    os::unix::net::UnixStream,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// The trees, and what the one client has open of them.
#[derive(Clone)]
pub struct Forest(Arc<Mutex<Server>>);

/// A tree of a forest, for as long as this lives.
pub struct Planted {
    forest: Forest,
    name: Vec<u8>,
}

impl Default for Forest {
    fn default() -> Forest {
        Forest::new()
    }
}

impl Forest {
    pub fn new() -> Forest {
        Forest(Arc::new(Mutex::new(Server::new(Limits::default()))))
    }

    fn server(&self) -> MutexGuard<'_, Server> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets the client attach to a tree by this name (attach(5), `aname`).
    ///
    /// # Errors
    /// `AlreadyExists`: there is one of that name.
    pub fn plant(&self, name: &[u8], export: Export) -> io::Result<Planted> {
        match self.server().add(name, Arc::new(export)) {
            true => Ok(Planted { forest: self.clone(), name: name.to_vec() }),
            false => Err(io::ErrorKind::AlreadyExists.into()),
        }
    }

    /// Serves the client until it hangs up, as [`serve`](crate::serve).
    pub fn serve(&self, stream: UnixStream, limits: Limits, watches: Option<Arc<Watches>>) -> io::Result<()> {
        self.server().begin(limits);
        self.server().watch(watches);
        let result = converse(stream, |serve| serve(&mut self.server()));
        self.server().close();
        result
    }
}

impl Drop for Planted {
    fn drop(&mut self) {
        self.forest.server().remove(&self.name);
    }
}
