// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The client of the Dynamic Host Configuration Protocol (RFC 2131; options: RFC 2132), for machines that no host tells
//! their address. It has no clock and no socket: the stack asks it what to send when its time has come ([`Client::poll`]),
//! and hands it what comes for port 68.

use crate::ip::Configuration;
use crate::wire::Mac;
use core::net::Ipv4Addr;

pub const CLIENT_PORT: u16 = 68;
pub const SERVER_PORT: u16 = 67;

/// DNS servers that are kept of those a server names; a resolver asks no more than three.
pub const MAX_SERVERS: usize = 3;
/// Bytes of a message: BOOTP's least (RFC 1542 2.1), and room for a host name.
const MESSAGE: usize = 400;
/// Where the options begin, behind the magic cookie.
const OPTIONS: usize = 240;
const COOKIE: [u8; 4] = [99, 130, 83, 99];
/// Most bytes of a host name (RFC 1035).
const MAX_NAME: usize = 63;

const SECOND_NS: u64 = 1_000_000_000;
/// The first wait for an answer is one second, and each doubles it up to this (RFC 2131 4.1 begins with four: a machine
/// that starts is waited for).
const MAX_WAIT: u64 = 64;
/// Requests for one offer, then it is looked for another one.
const REQUESTS: u32 = 4;
/// Least time between two requests to have a lease longer (4.4.5), and the shortest lease that is believed.
const LEAST_SECONDS: u64 = 60;
/// A lease for ever.
const INFINITE: u32 = u32::MAX;

// Message types (RFC 2132 9.6).
const DISCOVER: u8 = 1;
const OFFER: u8 = 2;
const REQUEST: u8 = 3;
const ACK: u8 = 5;
const NAK: u8 = 6;

// Options.
const MASK: u8 = 1;
const ROUTER: u8 = 3;
const DNS: u8 = 6;
const HOST_NAME: u8 = 12;
const REQUESTED_ADDRESS: u8 = 50;
const LEASE_TIME: u8 = 51;
const MESSAGE_TYPE: u8 = 53;
const SERVER: u8 = 54;
const PARAMETERS: u8 = 55;
const MESSAGE_SIZE: u8 = 57;
const RENEWAL_TIME: u8 = 58;
const REBINDING_TIME: u8 = 59;
const CLIENT_ID: u8 = 61;
const END: u8 = 255;

/// What a server gave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lease {
    pub configuration: Configuration,
    pub servers: [Option<Ipv4Addr>; MAX_SERVERS],
}

/// A message to send.
pub struct Message {
    bytes: [u8; MESSAGE],
    length: usize,
    /// The server that is asked with an address of our own; `None`: a broadcast.
    pub to: Option<Ipv4Addr>,
}

impl Message {
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }

    fn option(&mut self, number: u8, value: &[u8]) {
        let (at, end) = (self.length, self.length + 2 + value.len());
        // The end of the options keeps its byte.
        if let Some(room) = self.bytes[..MESSAGE - 1].get_mut(at..end) {
            room[0] = number;
            room[1] = value.len() as u8;
            room[2..].copy_from_slice(value);
            self.length = end;
        }
    }
}

/// What is done with the stack after a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// The address is ours.
    Bound(Lease),
    /// It is not any more.
    Lost,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Selecting,
    Requesting { address: Ipv4Addr, server: Ipv4Addr },
    Bound,
    Renewing,
    Rebinding,
}

/// Times on the stack's clock.
#[derive(Clone, Copy, Debug)]
struct Times {
    server: Ipv4Addr,
    renew: u64,
    rebind: u64,
    end: u64,
}

/// The client of one interface.
#[derive(Debug)]
pub struct Client {
    mac: Mac,
    /// The transaction; another one for each address that is looked for.
    transaction: u32,
    name: [u8; MAX_NAME],
    name_length: usize,
    state: State,
    lease: Option<(Lease, Times)>,
    due: u64,
    tries: u32,
    /// When the address began to be looked for.
    since: u64,
}

impl Client {
    /// `random` keeps this machine's transactions apart from others'; of `name` the first label is told to servers.
    pub fn new(now: u64, mac: Mac, random: u32, name: &str) -> Client {
        let label = name.split('.').next().unwrap_or("").as_bytes();
        let name_length = label.len().min(MAX_NAME);
        let mut name = [0; MAX_NAME];
        name[..name_length].copy_from_slice(&label[..name_length]);
        let state = State::Selecting;
        Client {
            mac,
            transaction: random,
            name,
            name_length,
            state,
            lease: None,
            due: now,
            tries: 0,
            since: now,
        }
    }

    pub fn lease(&self) -> Option<&Lease> {
        self.lease.as_ref().map(|(lease, _)| lease)
    }

    /// When [`Client::poll`] is to be called.
    pub fn next_deadline(&self) -> u64 {
        self.due
    }

    /// Does what is due.
    pub fn poll(&mut self, now: u64) -> (Option<Message>, Option<Change>) {
        if now < self.due {
            return (None, None);
        }
        if let Some((_, times)) = self.lease {
            if now >= times.end {
                self.look(now);
                return (None, Some(Change::Lost));
            }
            self.state = if now >= times.rebind { State::Rebinding } else { State::Renewing };
            // Half of the time that is left, up to the next step (4.4.5).
            let next = if self.state == State::Rebinding { times.end } else { times.rebind };
            let half = now + ((next - now) / 2).max(LEAST_SECONDS * SECOND_NS);
            self.due = half.min(next);
            return (Some(self.message(now, REQUEST)), None);
        }
        if matches!(self.state, State::Requesting { .. }) && self.tries >= REQUESTS {
            self.look(now);
        }
        let kind = if self.state == State::Selecting { DISCOVER } else { REQUEST };
        self.due = now + (1 << self.tries.min(6)).min(MAX_WAIT) * SECOND_NS;
        self.tries += 1;
        (Some(self.message(now, kind)), None)
    }

    /// Begins anew.
    fn look(&mut self, now: u64) {
        self.transaction = self.transaction.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (self.state, self.lease, self.due, self.tries, self.since) = (State::Selecting, None, now, 0, now);
    }

    fn message(&self, now: u64, kind: u8) -> Message {
        let mut m = Message { bytes: [0; MESSAGE], length: OPTIONS, to: None };
        // BOOTREQUEST, Ethernet, the length of its addresses.
        m.bytes[..4].copy_from_slice(&[1, 1, 6, 0]);
        m.bytes[4..8].copy_from_slice(&self.transaction.to_be_bytes());
        let seconds = u16::try_from((now - self.since) / SECOND_NS).unwrap_or(u16::MAX);
        m.bytes[8..10].copy_from_slice(&seconds.to_be_bytes());
        m.bytes[28..34].copy_from_slice(&self.mac);
        m.bytes[236..OPTIONS].copy_from_slice(&COOKIE);
        m.option(MESSAGE_TYPE, &[kind]);
        match (self.state, &self.lease) {
            (State::Requesting { address, server }, _) => {
                m.option(REQUESTED_ADDRESS, &address.octets());
                m.option(SERVER, &server.octets());
            }
            (state, Some((lease, times))) => {
                // The address that is ours receives the answer.
                m.bytes[12..16].copy_from_slice(&lease.configuration.address.octets());
                m.to = (state == State::Renewing).then_some(times.server);
            }
            _ => {}
        }
        if self.lease.is_none() {
            // Without an address only broadcasts reach us for sure.
            m.bytes[10] = 0x80;
        }
        let [a, b, c, d, e, f] = self.mac;
        m.option(CLIENT_ID, &[1, a, b, c, d, e, f]);
        if self.name_length > 0 {
            m.option(HOST_NAME, &self.name[..self.name_length]);
        }
        m.option(MESSAGE_SIZE, &1500u16.to_be_bytes());
        m.option(PARAMETERS, &[MASK, ROUTER, DNS, LEASE_TIME, RENEWAL_TIME, REBINDING_TIME]);
        m.bytes[m.length] = END;
        // BOOTP's relays drop what is shorter than 300 bytes.
        m.length = (m.length + 1).max(300);
        m
    }

    /// A message came for port 68.
    pub fn input(&mut self, now: u64, bytes: &[u8]) -> Option<Change> {
        let reply = Reply::parse(bytes)?;
        if reply.transaction != self.transaction || reply.mac != self.mac {
            return None;
        }
        match (reply.kind, self.state) {
            (OFFER, State::Selecting) => {
                let server = reply.server?;
                reply.lease()?;
                self.state = State::Requesting { address: reply.address, server };
                (self.due, self.tries) = (now, 0);
                None
            }
            (ACK, State::Requesting { address, server }) if reply.address == address => {
                self.bind(now, &reply, reply.server.unwrap_or(server))
            }
            (ACK, State::Renewing | State::Rebinding) => {
                let server = reply.server.or(self.lease.map(|(_, times)| times.server))?;
                self.bind(now, &reply, server)
            }
            (NAK, State::Requesting { server, .. }) if reply.server.is_none_or(|s| s == server) => {
                self.look(now);
                None
            }
            (NAK, State::Renewing | State::Rebinding) => {
                self.look(now);
                Some(Change::Lost)
            }
            _ => None,
        }
    }

    fn bind(&mut self, now: u64, reply: &Reply, server: Ipv4Addr) -> Option<Change> {
        let lease = reply.lease()?;
        let at = |seconds: u64| now.saturating_add(seconds.saturating_mul(SECOND_NS));
        let times = if reply.seconds == INFINITE {
            Times { server, renew: u64::MAX, rebind: u64::MAX, end: u64::MAX }
        } else {
            let all = u64::from(reply.seconds).max(LEAST_SECONDS);
            // T1 and T2, where the server's are in order (4.4.5).
            let renew = reply.renewal.map(u64::from).filter(|t| *t < all).unwrap_or(all / 2);
            let rebind = reply.rebinding.map(u64::from).filter(|t| *t < all && *t > renew);
            let rebind = rebind.unwrap_or((all / 8 * 7).max(renew + 1).min(all));
            Times { server, renew: at(renew), rebind: at(rebind), end: at(all) }
        };
        (self.state, self.lease, self.due, self.tries) = (State::Bound, Some((lease, times)), times.renew, 0);
        Some(Change::Bound(lease))
    }
}

/// What a server said.
struct Reply {
    kind: u8,
    transaction: u32,
    mac: Mac,
    address: Ipv4Addr,
    server: Option<Ipv4Addr>,
    mask: Option<Ipv4Addr>,
    router: Option<Ipv4Addr>,
    servers: [Option<Ipv4Addr>; MAX_SERVERS],
    seconds: u32,
    renewal: Option<u32>,
    rebinding: Option<u32>,
}

impl Reply {
    /// `None`: no message of a server.
    fn parse(bytes: &[u8]) -> Option<Reply> {
        if bytes.get(..3)? != [2, 1, 6] || bytes.get(236..OPTIONS)? != COOKIE {
            return None;
        }
        let mut reply = Reply {
            kind: 0,
            transaction: number(bytes.get(4..8)?)?,
            mac: bytes.get(28..34)?.try_into().ok()?,
            address: address(bytes.get(16..20)?)?,
            server: None,
            mask: None,
            router: None,
            servers: [None; MAX_SERVERS],
            // Where a server does not say it, it is no lease that lasts.
            seconds: LEAST_SECONDS as u32,
            renewal: None,
            rebinding: None,
        };
        let mut rest = bytes.get(OPTIONS..)?;
        while let [option, after @ ..] = rest {
            if *option == END {
                break;
            }
            // Padding has no length.
            if *option == 0 {
                rest = after;
                continue;
            }
            let [length, after @ ..] = after else { break };
            let Some((value, after)) = after.split_at_checked((*length).into()) else { break };
            reply.option(*option, value);
            rest = after;
        }
        (reply.kind != 0).then_some(reply)
    }

    fn option(&mut self, option: u8, value: &[u8]) {
        match option {
            MESSAGE_TYPE => self.kind = value.first().copied().unwrap_or(0),
            SERVER => self.server = address(value),
            MASK => self.mask = address(value),
            // The best one comes first.
            ROUTER => self.router = value.get(..4).and_then(address),
            DNS => {
                for (to, from) in self.servers.iter_mut().zip(value.chunks_exact(4)) {
                    *to = address(from).filter(|a| is_host(*a));
                }
            }
            LEASE_TIME => self.seconds = number(value).unwrap_or(self.seconds),
            RENEWAL_TIME => self.renewal = number(value),
            REBINDING_TIME => self.rebinding = number(value),
            _ => {}
        }
    }

    /// The address with its network. `None`: a host cannot have it.
    fn lease(&self) -> Option<Lease> {
        let mask = self.mask.unwrap_or_else(|| class_of(self.address)).to_bits();
        let is_prefix = mask.leading_ones() + mask.trailing_zeros() >= 32 && mask != 0;
        if !is_prefix || !is_host(self.address) {
            return None;
        }
        let gateway = self.router.filter(|router| is_host(*router));
        let configuration =
            Configuration { address: self.address, prefix: mask.leading_ones() as u8, gateway };
        Some(Lease { configuration, servers: self.servers })
    }
}

/// An address a host can have on a network.
fn is_host(address: Ipv4Addr) -> bool {
    let first = address.octets()[0];
    first != 0 && !address.is_loopback() && first < 224
}

/// The mask of an address's class (RFC 791 3.2), for servers that say none.
fn class_of(address: Ipv4Addr) -> Ipv4Addr {
    match address.octets()[0] {
        0..128 => Ipv4Addr::new(255, 0, 0, 0),
        128..192 => Ipv4Addr::new(255, 255, 0, 0),
        _ => Ipv4Addr::new(255, 255, 255, 0),
    }
}

fn number(bytes: &[u8]) -> Option<u32> {
    bytes.try_into().ok().map(u32::from_be_bytes)
}

fn address(bytes: &[u8]) -> Option<Ipv4Addr> {
    number(bytes).map(Ipv4Addr::from_bits)
}

#[cfg(test)]
#[path = "dhcp_tests.rs"]
mod tests;
