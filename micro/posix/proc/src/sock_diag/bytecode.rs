// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The filters of inet_diag (`struct inet_diag_bc_op`): conditions on the ends of a connection, each of which goes on so many bytes further
//! where it holds and so many where it does not. They go forward alone; one that arrives at the end keeps the socket, one that goes beyond
//! it does not.

use super::Endpoint;
use api_socket::Address;

const NOP: u8 = 0;
const JMP: u8 = 1;
const S_GE: u8 = 2;
const S_LE: u8 = 3;
const D_GE: u8 = 4;
const D_LE: u8 = 5;
const AUTO: u8 = 6;
const S_COND: u8 = 7;
const D_COND: u8 = 8;
const DEV_COND: u8 = 9;
const S_EQ: u8 = 11;
const D_EQ: u8 = 12;
/// An operation: its code, how far it goes where it holds, and where not.
const OPERATION: usize = 4;
/// `struct inet_diag_hostcond` without its address: family, length of the prefix, port or -1.
const HOST: usize = 8;

/// What a filter looks at.
pub struct Ends<'a> {
    pub family: u16,
    pub source: &'a Endpoint,
    pub destination: &'a Endpoint,
    /// The interface that the socket is bound to.
    pub device: u32,
}

struct Operation<'a> {
    code: u8,
    yes: usize,
    no: usize,
    /// What follows it: a condition's host or device, or a second operation, whose `no` is a port.
    behind: &'a [u8],
}

impl<'a> Operation<'a> {
    fn at(filter: &'a [u8]) -> Option<Operation<'a>> {
        let (head, behind) = filter.split_first_chunk::<OPERATION>()?;
        let [code, yes, a, b] = *head;
        Some(Operation { code, yes: yes.into(), no: u16::from_ne_bytes([a, b]).into(), behind })
    }

    /// Bytes that it takes with what follows it; `None` where that is not all there, or its code is not known.
    fn length(&self) -> Option<usize> {
        let behind = match self.code {
            NOP | JMP | AUTO => 0,
            S_GE | S_LE | D_GE | D_LE | S_EQ | D_EQ | DEV_COND => OPERATION,
            S_COND | D_COND => {
                let &[family, prefix, ..] = self.behind.first_chunk::<HOST>()?;
                let address = match u16::from(family) {
                    // Any.
                    0 => 0,
                    Address::INET => 4,
                    Address::INET6 => 16,
                    _ => return None,
                };
                if usize::from(prefix) > 8 * address {
                    return None;
                }
                HOST + address
            }
            _ => return None,
        };
        (self.behind.len() >= behind).then_some(OPERATION + behind)
    }

    fn holds(&self, ends: &Ends<'_>) -> bool {
        let (source, destination) = (u32::from(ends.source.port), u32::from(ends.destination.port));
        // The port is the second operation's `no`.
        let port = self.behind.get(2..4).map_or(0, |b| u32::from(u16::from_ne_bytes([b[0], b[1]])));
        match self.code {
            NOP => true,
            S_EQ => source == port,
            S_GE => source >= port,
            S_LE => source <= port,
            D_EQ => destination == port,
            D_GE => destination >= port,
            D_LE => destination <= port,
            DEV_COND => super::number(self.behind) == ends.device,
            S_COND => is_host(self.behind, ends.family, ends.source),
            D_COND => is_host(self.behind, ends.family, ends.destination),
            // Which ports were chosen by the kernel is not remembered (AUTO); a jump is where nothing holds.
            _ => false,
        }
    }
}

/// Whether an end is the host of a condition.
fn is_host(condition: &[u8], family: u16, end: &Endpoint) -> bool {
    let Some((head, address)) = condition.split_first_chunk::<HOST>() else { return false };
    let [wanted, prefix, _, _, a, b, c, d] = *head;
    let (wanted, port) = (u16::from(wanted), i32::from_ne_bytes([a, b, c, d]));
    if port != -1 && port != i32::from(end.port) {
        return false;
    }
    // An address of IPv4 in one of IPv6 is asked for as itself.
    const MAPPED: [u8; 12] = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff];
    let own: &[u8] = match (wanted, family) {
        (0, _) => return true,
        (Address::INET, Address::INET6) if end.address[..12] == MAPPED => &end.address[12..],
        (Address::INET, Address::INET) => &end.address[..4],
        (Address::INET6, Address::INET6) => &end.address,
        _ => return false,
    };
    let prefix = usize::from(prefix);
    let (whole, rest) = (prefix / 8, prefix % 8);
    let Some(address) = address.get(..own.len()).filter(|_| prefix <= 8 * own.len()) else { return false };
    own[..whole] == address[..whole] && (rest == 0 || (own[whole] ^ address[whole]) >> (8 - rest) == 0)
}

/// Linux' inet_diag_bc_audit: every operation is known and whole, and goes to another one, to the end or just beyond it.
pub fn is_valid(filter: &[u8]) -> bool {
    let mut at = 0;
    while at < filter.len() {
        let left = filter.len() - at;
        let Some(operation) = Operation::at(&filter[at..]) else { return false };
        let Some(length) = operation.length() else { return false };
        let is_placed = |step: usize| step >= length && step <= left + OPERATION && step.is_multiple_of(4);
        let lands = operation.no >= left || begins(filter, at + operation.no);
        if !is_placed(operation.yes) || operation.code != NOP && !(is_placed(operation.no) && lands) {
            return false;
        }
        at += operation.yes;
    }
    at == filter.len() && at > 0
}

/// Whether an operation begins there, by way of the others.
fn begins(filter: &[u8], target: usize) -> bool {
    let mut at = 0;
    while at < target {
        let next = filter.get(at..).and_then(Operation::at);
        let Some(step) = next.map(|one| one.yes).filter(|yes| *yes >= OPERATION && yes.is_multiple_of(4))
        else {
            return false;
        };
        at += step;
    }
    at == target
}

/// Whether the filter keeps a socket with these ends.
pub fn runs(filter: &[u8], ends: &Ends<'_>) -> bool {
    let mut at = 0;
    while at < filter.len() {
        let Some(operation) = Operation::at(&filter[at..]) else { return false };
        let step = if operation.holds(ends) { operation.yes } else { operation.no };
        // Forward alone: a valid one does no less.
        at += step.max(OPERATION);
    }
    at == filter.len()
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use alloc::vec::Vec;

    fn operation(code: u8, yes: u8, no: u16) -> Vec<u8> {
        let [a, b] = no.to_ne_bytes();
        vec![code, yes, a, b]
    }

    /// A comparison with a port: goes on, or beyond the end.
    fn port(code: u8, port: u16) -> Vec<u8> {
        [operation(code, 8, 12), operation(0, 0, port)].concat()
    }

    fn host(code: u8, family: u16, prefix: u8, port: i32, address: &[u8]) -> Vec<u8> {
        let length = OPERATION + HOST + address.len();
        let mut out = operation(code, length as u8, length as u16 + 4);
        out.extend([family as u8, prefix, 0, 0]);
        out.extend(port.to_ne_bytes());
        out.extend(address);
        out
    }

    fn end(address: &[u8], port: u16) -> Endpoint {
        let mut all = [0; 16];
        all[..address.len()].copy_from_slice(address);
        Endpoint { address: all, port }
    }

    fn keeps(filter: &[u8], family: u16, source: &Endpoint, destination: &Endpoint) -> bool {
        assert!(is_valid(filter), "{filter:?}");
        runs(filter, &Ends { family, source, destination, device: 3 })
    }

    #[test]
    fn conditions_are_on_ports_hosts_and_devices() {
        let (source, destination) = (end(&[10, 1, 2, 3], 80), end(&[192, 168, 0, 9], 4000));
        let v4 = |filter: &[u8]| keeps(filter, Address::INET, &source, &destination);
        assert!(v4(&port(S_EQ, 80)) && !v4(&port(S_EQ, 81)) && v4(&port(D_EQ, 4000)));
        assert!(v4(&port(S_GE, 80)) && v4(&port(S_LE, 80)) && !v4(&port(S_GE, 81)) && !v4(&port(D_LE, 3999)));
        let both = |first: u16| [operation(S_EQ, 8, 20), operation(0, 0, first), port(D_GE, 1)].concat();
        assert!(v4(&both(80)) && !v4(&both(81)));
        assert!(v4(&host(S_COND, Address::INET, 8, -1, &[10, 9, 9, 9])));
        assert!(!v4(&host(S_COND, Address::INET, 16, -1, &[10, 9, 9, 9])));
        assert!(v4(&host(S_COND, Address::INET, 10, 80, &[10, 63, 0, 0])));
        assert!(!v4(&host(S_COND, Address::INET, 10, 81, &[10, 63, 0, 0])));
        assert!(v4(&host(D_COND, 0, 0, 4000, &[])) && !v4(&host(D_COND, Address::INET6, 0, -1, &[0; 16])));
        let device = |number: u32| [operation(DEV_COND, 8, 12), number.to_ne_bytes().to_vec()].concat();
        assert!(v4(&device(3)) && !v4(&device(4)));
        let mut mapped = [0; 16];
        mapped[10..].copy_from_slice(&[0xff, 0xff, 10, 1, 2, 3]);
        let mapped = end(&mapped, 80);
        let v6 = |filter: &[u8]| keeps(filter, Address::INET6, &mapped, &mapped);
        assert!(v6(&host(S_COND, Address::INET, 32, -1, &[10, 1, 2, 3])));
        assert!(!v6(&host(S_COND, Address::INET, 32, -1, &[10, 1, 2, 4])));
    }

    #[test]
    fn one_that_does_not_hold_goes_where_it_says() {
        let (source, destination) = (end(&[1, 2, 3, 4], 80), end(&[1, 2, 3, 4], 90));
        let v4 = |filter: &[u8]| keeps(filter, Address::INET, &source, &destination);
        // Port 1, or else port 80: a jump behind the first leads over the second.
        let either =
            [[operation(S_EQ, 8, 12), operation(0, 0, 1)].concat(), operation(JMP, 4, 12), port(S_EQ, 80)]
                .concat();
        assert!(v4(&either));
        assert!(!v4(&[operation(JMP, 4, 8)].concat()));
    }

    #[test]
    fn filters_that_make_no_sense_are_refused_and_none_runs_for_ever() {
        for wrong in [
            &[][..],
            &[0, 4, 0],
            &operation(99, 4, 8),
            &operation(NOP, 0, 0),
            &operation(NOP, 6, 0),
            &operation(NOP, 12, 0),
            &operation(S_EQ, 8, 12),
            &[operation(S_EQ, 8, 4), operation(0, 0, 1)].concat(),
            &host(S_COND, Address::INET, 33, -1, &[0; 4]),
            &host(S_COND, 7, 0, -1, &[]),
            &host(S_COND, Address::INET6, 0, -1, &[0; 4]),
        ] {
            assert!(!is_valid(wrong), "{wrong:?}");
        }
        // A yes to just beyond the end is no error, and keeps nothing.
        let (source, destination) = (end(&[], 1), end(&[], 1));
        let mut state = 1u64;
        for _ in 0..20_000 {
            let bytes: Vec<u8> = (0..24)
                .map(|_| {
                    state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    // Codes and steps that are known, mostly.
                    (state >> 33) as u8 % 14
                })
                .collect();
            let _ = is_valid(&bytes);
            let _ = runs(&bytes, &Ends { family: 2, source: &source, destination: &destination, device: 0 });
        }
    }
}
