// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Sockets that nobody can reach: each is held only by a message (SCM_RIGHTS) in the queue of another one, in a circle.
//!
//! Counting handles never frees those, so they are looked for (Linux' `unix_gc`). The sockets in flight are a graph: a
//! socket leads to those whose descriptors are in its queue, and a listener also to those in the queues of connections
//! that nobody has accepted. A socket with a handle outside of the queues can be reached, and with it all that it leads to. The
//! queues of the others are emptied, and then their handles are gone.
//!
//! No search begins unless a circle is possible, that is unless some socket was sent while it held others, or the other way
//! round. A search is one walk over the messages with sockets in them and one over the graph, without recursion. It changes
//! nothing when there is no memory for it. Kernel code is not preempted, so the graph stands still meanwhile.

use crate::queue::Queue;
use crate::socket::UnixSocket;
use abi::{Result, errno::*};
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use api_alloc::Reserve;
use api_lock::SpinLock;
use api_socket::{Rights, Socket};
use core::any::Any;
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// A socket's part in the graph.
#[derive(Default)]
pub struct Flight {
    /// It was sent, and may still be in a queue.
    travels: AtomicBool,
    /// Its queue, or that of a connection waiting at it, had a message with a socket.
    holds: AtomicBool,
    /// It is in [`HOLDERS`].
    is_listed: AtomicBool,
    /// During a search: its number in the graph, plus one.
    number: AtomicUsize,
}

impl Flight {
    pub fn travels(&self) -> bool {
        self.travels.load(Ordering::Relaxed)
    }
}

/// Sockets with other sockets in their queues; some are gone or hold nothing any more.
struct Holders {
    list: Vec<Weak<UnixSocket>>,
    /// The length at which the list is gone through for those.
    prune_at: usize,
}

static HOLDERS: SpinLock<Holders> = SpinLock::new(Holders { list: Vec::new(), prune_at: 16 });
static MAYBE_CYCLIC: AtomicBool = AtomicBool::new(false);
static IS_REQUESTED: AtomicBool = AtomicBool::new(false);
static SCHEDULE: SpinLock<Option<fn()>> = SpinLock::new(None);

/// `schedule` is called when a search is due.
pub fn schedule_with(schedule: fn()) {
    *SCHEDULE.lock() = Some(schedule);
}

fn set(flag: &AtomicBool) {
    flag.store(true, Ordering::Relaxed);
}

fn is_set(flag: &AtomicBool) -> bool {
    flag.load(Ordering::Relaxed)
}

/// A handle of a socket went, which may have been the last one from outside.
pub fn request() {
    if !is_set(&MAYBE_CYCLIC) || IS_REQUESTED.swap(true, Ordering::Relaxed) {
        return;
    }
    let schedule = *SCHEDULE.lock();
    if let Some(schedule) = schedule {
        schedule();
    }
}

/// Whether [`request`] waits to be heard.
pub fn is_requested() -> bool {
    is_set(&IS_REQUESTED)
}

fn with_socket<R>(socket: &Weak<dyn Socket>, use_it: impl FnOnce(&UnixSocket) -> R) -> Option<R> {
    let socket = socket.upgrade()?;
    let socket = (&*socket as &dyn Any).downcast_ref::<UnixSocket>()?;
    Some(use_it(socket))
}

/// To be called before `rights` are queued at `target`: `ENOMEM` when that cannot be remembered.
pub fn note(target: &Arc<UnixSocket>, rights: Option<&Rights>) -> Result<()> {
    let Some(rights) = rights.filter(|r| r.sockets().next().is_some()) else { return Ok(()) };
    if !is_set(&target.flight.is_listed) {
        let mut holders = HOLDERS.lock();
        if holders.list.len() >= holders.prune_at {
            holders.list.retain(is_holder);
            holders.prune_at = 2 * holders.list.len() + 16;
        }
        holders.list.reserve_fallibly(1).map_err(|_| ENOMEM)?;
        holders.list.push(Arc::downgrade(target));
        set(&target.flight.is_listed);
    }
    let owner = owner_of(target);
    set(&target.flight.holds);
    set(&owner.flight.holds);
    let mut is_cycle_possible = target.flight.travels() || owner.flight.travels();
    for (_, socket) in rights.sockets() {
        with_socket(socket, |socket| {
            set(&socket.flight.travels);
            is_cycle_possible |= is_set(&socket.flight.holds);
        });
    }
    if is_cycle_possible {
        set(&MAYBE_CYCLIC);
    }
    Ok(())
}

/// Whether a socket is to stay in [`HOLDERS`]. One that is not is told so.
fn is_holder(holder: &Weak<UnixSocket>) -> bool {
    let Some(holder) = holder.upgrade() else { return false };
    let holds = holder.state.lock().inbox.rights().any(|r| r.sockets().next().is_some());
    if !holds {
        holder.flight.is_listed.store(false, Ordering::Relaxed);
    }
    holds
}

/// Whose queue it is: that of the listener at which the connection waits.
fn owner_of(holder: &Arc<UnixSocket>) -> Arc<UnixSocket> {
    let listener = holder.state.lock().listener.as_ref().and_then(Weak::upgrade);
    listener.unwrap_or_else(|| holder.clone())
}

/// One socket of the graph.
#[derive(Clone, Copy, Default)]
struct Vertex {
    /// Handles of its open file description, wherever they are; 0 while none was seen in a queue.
    handles: usize,
    /// Those that are in queues.
    queued: usize,
    /// It holds others.
    holds: bool,
    is_reached: bool,
}

#[derive(Default)]
struct Graph {
    vertices: Vec<Vertex>,
    /// Which socket leads to which.
    edges: Vec<(u32, u32)>,
}

impl Graph {
    fn add_vertex(&mut self) -> Result<()> {
        self.vertices.reserve_fallibly(1).map_err(|_| ENOMEM)?;
        self.vertices.push(Vertex::default());
        Ok(())
    }

    /// The queue of `from` has a descriptor of `to`, which has `handles` handles in all.
    fn add_edge(&mut self, from: usize, to: usize, handles: usize) -> Result<()> {
        self.edges.reserve_fallibly(1).map_err(|_| ENOMEM)?;
        self.edges.push((from as u32, to as u32));
        self.vertices[from].holds = true;
        let held = &mut self.vertices[to];
        held.handles = handles;
        held.queued += 1;
        Ok(())
    }

    /// Marks what can be reached from outside of the queues.
    fn reach(&mut self) -> Result<()> {
        let mut todo = Vec::new();
        todo.reserve_exact_fallibly(self.vertices.len()).map_err(|_| ENOMEM)?;
        self.edges.sort_unstable();
        for (number, vertex) in self.vertices.iter_mut().enumerate() {
            if vertex.is_reached || vertex.queued == 0 || vertex.handles > vertex.queued {
                vertex.is_reached = true;
                todo.push(number as u32);
            }
        }
        while let Some(number) = todo.pop() {
            let first = self.edges.partition_point(|(from, _)| *from < number);
            for (_, to) in self.edges[first..].iter().take_while(|(from, _)| *from == number) {
                let vertex = &mut self.vertices[*to as usize];
                if !vertex.is_reached {
                    vertex.is_reached = true;
                    todo.push(*to);
                }
            }
        }
        Ok(())
    }

    /// Whether what is left after garbage is gone may be a circle later.
    fn may_become_cyclic(&self) -> bool {
        self.vertices.iter().any(|v| v.is_reached && v.holds && v.queued > 0)
    }
}

/// The graph, and the sockets in it.
#[derive(Default)]
struct Search {
    graph: Graph,
    sockets: Vec<Arc<UnixSocket>>,
    /// Whose queues are looked into, and the number of the socket whose queue it is.
    holders: Vec<(Arc<UnixSocket>, usize)>,
    /// Room for as many.
    queues: Vec<Queue>,
}

impl Search {
    fn number(&mut self, socket: &UnixSocket) -> Result<usize> {
        if let Some(number) = socket.flight.number.load(Ordering::Relaxed).checked_sub(1) {
            return Ok(number);
        }
        let socket = socket.me.upgrade().ok_or(EBADF)?;
        self.sockets.reserve_fallibly(1).map_err(|_| ENOMEM)?;
        self.graph.add_vertex()?;
        self.sockets.push(socket.clone());
        socket.flight.number.store(self.sockets.len(), Ordering::Relaxed);
        Ok(self.sockets.len() - 1)
    }

    fn read_queue(&mut self, holder: &UnixSocket, owner: usize) -> Result<()> {
        let state = holder.state.lock();
        for rights in state.inbox.rights() {
            for (file, socket) in rights.sockets() {
                let Some(held) = with_socket(socket, |socket| self.number(socket)) else { continue };
                let held = held?;
                self.graph.add_edge(owner, held, Arc::strong_count(file))?;
                // A reader that peeks at the message gets descriptors of its own.
                self.graph.vertices[held].is_reached |= rights.is_shared();
            }
        }
        Ok(())
    }

    fn read_all(&mut self) -> Result<()> {
        let mut holders = Vec::new();
        {
            let mut all = HOLDERS.lock();
            all.list.retain(is_holder);
            holders.reserve_exact_fallibly(all.list.len()).map_err(|_| ENOMEM)?;
            holders.extend(all.list.iter().filter_map(Weak::upgrade));
        }
        self.holders.reserve_exact_fallibly(holders.len()).map_err(|_| ENOMEM)?;
        self.queues.reserve_exact_fallibly(holders.len()).map_err(|_| ENOMEM)?;
        for holder in holders {
            let owner = self.number(&owner_of(&holder))?;
            self.holders.push((holder, owner));
            let (holder, _) = &self.holders[self.holders.len() - 1];
            let holder = holder.clone();
            self.read_queue(&holder, owner)?;
        }
        self.graph.reach()
    }

    /// Forgets the numbers, and what was so of the sockets earlier.
    fn end(&self, is_complete: bool) {
        for (socket, vertex) in self.sockets.iter().zip(&self.graph.vertices) {
            socket.flight.number.store(0, Ordering::Relaxed);
            if is_complete {
                socket.flight.travels.store(vertex.queued > 0, Ordering::Relaxed);
                socket.flight.holds.store(vertex.holds, Ordering::Relaxed);
            }
        }
    }
}

/// Takes the queues of sockets that nobody can reach. Those are closed when the answer is dropped, which needs that no lock is
/// held.
#[must_use]
pub fn collect() -> Vec<Queue> {
    IS_REQUESTED.store(false, Ordering::Relaxed);
    let mut search = Search::default();
    let read = search.read_all();
    search.end(read.is_ok());
    if read.is_err() {
        return Vec::new();
    }
    MAYBE_CYCLIC.store(search.graph.may_become_cyclic(), Ordering::Relaxed);
    // All queues are empty before the first of the sockets closes, so none says that it had something unread.
    let Search { graph, holders, mut queues, .. } = search;
    for (holder, owner) in &holders {
        if !graph.vertices[*owner].is_reached {
            queues.push(core::mem::take(&mut holder.state.lock().inbox));
        }
    }
    queues
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sockets by their handles outside of queues, and edges.
    fn reached(outside: &[usize], edges: &[(usize, usize)]) -> Vec<bool> {
        let mut graph = Graph::default();
        for _ in outside {
            graph.add_vertex().unwrap();
        }
        for (from, to) in edges {
            let queued = edges.iter().filter(|e| e.1 == *to).count();
            graph.add_edge(*from, *to, queued + outside[*to]).unwrap();
        }
        graph.reach().unwrap();
        graph.vertices.iter().map(|v| v.is_reached).collect()
    }

    #[test]
    fn what_a_handle_leads_to_is_reached_and_a_circle_alone_is_not() {
        assert_eq!(reached(&[0, 0], &[(0, 1), (1, 0)]), [false, false]);
        assert_eq!(reached(&[0, 1], &[(0, 1), (1, 0)]), [true, true]);
        // A socket in its own queue, and a tail behind a circle.
        assert_eq!(reached(&[0, 0], &[(0, 0), (0, 1)]), [false, false]);
        // A tail that leads into a circle keeps it.
        assert_eq!(reached(&[1, 0, 0, 0], &[(0, 1), (1, 2), (2, 1), (3, 3)]), [true, true, true, false]);
        // The same socket twice in one queue.
        assert_eq!(reached(&[0, 0], &[(0, 1), (0, 1), (1, 0)]), [false, false]);
    }

    #[test]
    fn a_long_circle_needs_no_stack() {
        let edges: Vec<_> = (0..50_000).map(|i| (i, (i + 1) % 50_000)).collect();
        let mut graph = Graph::default();
        for _ in &edges {
            graph.add_vertex().unwrap();
        }
        for (from, to) in &edges {
            graph.add_edge(*from, *to, 1 + usize::from(*to == 7)).unwrap();
        }
        graph.reach().unwrap();
        assert!(graph.vertices.iter().all(|v| v.is_reached));
    }
}
