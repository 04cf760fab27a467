// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the stack says about itself: sockets and counters.

use crate::families::is_v6;
use crate::stack::Stack;
use crate::tcp::Kind;
use crate::tcp::connection::State;
use alloc::vec::Vec;
use core::net::{SocketAddr, SocketAddrV4};

/// One socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Socket {
    pub protocol: &'static str,
    /// In the words of ss(8).
    pub state: &'static str,
    /// Bytes the program has not read; connections that were not accepted, of a listener.
    pub to_read: u64,
    /// Bytes the other side has not acknowledged; the backlog of a listener.
    pub unacknowledged: u64,
    pub local: Option<SocketAddr>,
    pub remote: Option<SocketAddr>,
}

fn word(state: State) -> &'static str {
    match state {
        State::Closed => "CLOSED",
        State::SynSent => "SYN-SENT",
        State::SynReceived => "SYN-RECV",
        State::Established => "ESTAB",
        State::FinWait1 => "FIN-WAIT-1",
        State::FinWait2 => "FIN-WAIT-2",
        State::CloseWait => "CLOSE-WAIT",
        State::Closing => "CLOSING",
        State::LastAck => "LAST-ACK",
    }
}

impl Stack {
    /// An address as people know it.
    fn shown(&self, address: Option<SocketAddrV4>) -> Option<SocketAddr> {
        let address = address?;
        let known = self.ip.address_of(*address.ip()).filter(|_| is_v6(*address.ip()));
        Some(known.map_or(address.into(), |of| SocketAddr::new(of.address.into(), address.port())))
    }

    /// All sockets: TCP, then UDP.
    pub fn sockets(&self) -> Vec<Socket> {
        let tcp = self.tcp.sockets.iter().map(|(_, entry)| match &entry.kind {
            Kind::Listener(listener) => Socket {
                protocol: "tcp",
                state: "LISTEN",
                to_read: listener.ready.len() as u64,
                unacknowledged: listener.backlog as u64,
                local: self.shown(entry.bound),
                remote: None,
            },
            Kind::Connection(connection) => {
                let open = connection.state != State::Closed;
                Socket {
                    protocol: "tcp",
                    state: word(connection.state),
                    to_read: connection.input.len() as u64,
                    unacknowledged: connection.queue.len() as u64,
                    local: self.shown(if open { Some(connection.tuple.local) } else { entry.bound }),
                    remote: self.shown(open.then_some(connection.tuple.remote)),
                }
            }
        });
        let udp = self.udp.sockets.iter().map(|(_, socket)| Socket {
            protocol: "udp",
            state: if socket.remote.is_some() { "ESTAB" } else { "UNCONN" },
            to_read: socket.queue.iter().map(|datagram| datagram.length() as u64).sum(),
            unacknowledged: 0,
            local: self.shown(socket.local),
            remote: self.shown(socket.remote),
        });
        tcp.chain(udp).collect()
    }

    /// Counters since boot, and of what there is now.
    pub fn counters(&self) -> Vec<(&'static str, u64)> {
        let ip = &self.ip.statistics;
        let tcp = self.tcp_sockets();
        let udp_drops = self.udp.sockets.iter().map(|(_, socket)| u64::from(socket.drops)).sum();
        alloc::vec![
            ("received_packets", ip.received_packets),
            ("received_bytes", ip.received_bytes),
            ("sent_packets", ip.sent_packets),
            ("sent_bytes", ip.sent_bytes),
            ("dropped_sending", ip.send_drops),
            ("bad_packets", ip.bad_packets),
            ("udp_dropped_receiving", udp_drops),
            ("tcp_listening", tcp.listeners as u64),
            ("tcp_established", tcp.established as u64),
            ("tcp_time_wait", self.tcp.time_wait_count() as u64),
            ("tcp_half_open", self.tcp.request_count() as u64),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stack::Shared;

    #[test]
    fn sockets_are_listed_with_their_states() {
        let mut stack = Stack::new([7; 24], 0);
        stack.tcp.create(Shared::new()).unwrap();
        stack.udp.create(Shared::new()).unwrap();
        let states: Vec<(&str, &str)> = stack.sockets().iter().map(|s| (s.protocol, s.state)).collect();
        assert_eq!(states, [("tcp", "CLOSED"), ("udp", "UNCONN")]);
        assert!(stack.counters().contains(&("tcp_established", 0)));
    }
}
