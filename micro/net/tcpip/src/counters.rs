// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What network management counts (RFC 4293 for IP, RFC 4022 for TCP, RFC 4113 for UDP, RFC 2011 for ICMP), and the tables of
//! /proc/net in which Linux shows it. A column is there if it is really counted, or cannot be anything else.

use crate::sockets::fast_open::Keys;
use crate::stack::Stack;
use crate::tcp::Kind;
use crate::tcp::congestion::{RTO_MAX, RTO_MIN};
use crate::tcp::connection::State;
use alloc::format;
use alloc::string::String;
use core::fmt::Write;

const MILLISECOND: u64 = 1_000_000;

#[derive(Default, Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counters {
    pub ip: OfIp,
    pub tcp: OfTcp,
    pub udp: OfUdp,
    pub icmp: OfIcmp,
}

#[derive(Default, Clone, Copy, Debug, PartialEq, Eq)]
pub struct OfIp {
    pub in_receives: u64,
    pub in_header_errors: u64,
    pub in_address_errors: u64,
    pub in_unknown_protocols: u64,
    pub in_delivers: u64,
    pub out_requests: u64,
    pub out_no_routes: u64,
    pub reassembly_requests: u64,
    pub reassembled: u64,
    pub fragmented: u64,
    pub fragments_created: u64,
}

#[derive(Default, Clone, Copy, Debug, PartialEq, Eq)]
pub struct OfTcp {
    pub active_opens: u64,
    pub passive_opens: u64,
    pub in_segments: u64,
    pub out_segments: u64,
    pub retransmitted: u64,
    pub in_errors: u64,
    pub out_resets: u64,
}

#[derive(Default, Clone, Copy, Debug, PartialEq, Eq)]
pub struct OfUdp {
    pub in_datagrams: u64,
    pub no_ports: u64,
    pub in_errors: u64,
    pub out_datagrams: u64,
    pub receive_buffer_errors: u64,
}

#[derive(Default, Clone, Copy, Debug, PartialEq, Eq)]
pub struct OfIcmp {
    pub in_messages: u64,
    pub in_errors: u64,
    pub in_unreachable: u64,
    pub in_time_exceeded: u64,
    pub in_parameter_problems: u64,
    pub in_echos: u64,
    pub in_echo_replies: u64,
    pub out_messages: u64,
    pub out_unreachable: u64,
    pub out_echos: u64,
    pub out_echo_replies: u64,
}

/// Connections that are over before their time.
#[derive(Default, Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ended {
    pub attempt_fails: u64,
    pub established_resets: u64,
}

impl Ended {
    /// A connection is over that was in this state.
    pub fn count(&mut self, state: State) {
        match state {
            State::SynSent | State::SynReceived => self.attempt_fails += 1,
            State::Established | State::CloseWait => self.established_resets += 1,
            _ => {}
        }
    }
}

fn number(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

/// A line of names and one of values, as Linux has them.
fn lines(out: &mut String, protocol: &str, columns: &[(&str, i64)]) {
    for is_title in [true, false] {
        let _ = write!(out, "{protocol}:");
        for (name, value) in columns {
            let _ = if is_title { write!(out, " {name}") } else { write!(out, " {value}") };
        }
        out.push('\n');
    }
}

/// Numbers of TCP's sockets.
#[derive(Default)]
pub(crate) struct Sockets {
    pub(crate) listeners: i64,
    in_use: i64,
    orphans: i64,
    all: i64,
    /// Of ESTABLISHED and CLOSE-WAIT, as tcpCurrEstab (RFC 4022).
    pub(crate) established: i64,
}

impl Stack {
    /// The table of this name in /proc/net; `None`: there is no such table here.
    pub fn table(&self, name: &str) -> Option<String> {
        match name {
            "snmp" => Some(self.snmp()),
            "netstat" => Some(self.netstat()),
            "sockstat" => Some(self.sockstat()),
            "if_inet6" => Some(self.if_inet6()),
            "ipv6_route" => Some(self.ipv6_route()),
            "snmp6" => Some(self.snmp6()),
            "disable_ipv6" => Some(String::from(if self.ip.has_v6() { "0\n" } else { "1\n" })),
            "tcp_fastopen_key" => {
                Some(self.fast_open.map_or_else(|| Keys::NONE.shown(), |keys| keys.shown()) + "\n")
            }
            #[cfg(feature = "interfaces")]
            "ip_forward" => Some(String::from(if self.ip.forwards() { "1\n" } else { "0\n" })),
            _ => Stack::tag(name).map(|tag| format!("{}\n", self.tags[tag])),
        }
    }

    fn snmp(&self) -> String {
        let Counters { ip, tcp, udp, icmp } = self.ip.counters;
        let mut out = String::new();
        lines(
            &mut out,
            "Ip",
            &[
                ("Forwarding", if self.ip.forwards() { 1 } else { 2 }),
                ("DefaultTTL", crate::ip::TTL.into()),
                ("InReceives", number(ip.in_receives)),
                ("InHdrErrors", number(ip.in_header_errors)),
                ("InAddrErrors", number(ip.in_address_errors)),
                ("ForwDatagrams", number(self.ip.forwarded())),
                ("InUnknownProtos", number(ip.in_unknown_protocols)),
                ("InDelivers", number(ip.in_delivers)),
                ("OutRequests", number(ip.out_requests)),
                ("OutDiscards", number(self.ip.statistics.send_drops)),
                ("OutNoRoutes", number(ip.out_no_routes)),
                ("ReasmReqds", number(ip.reassembly_requests)),
                ("ReasmOKs", number(ip.reassembled)),
                ("ReasmFails", number(self.reassembly.failures())),
                ("FragOKs", number(ip.fragmented)),
                ("FragCreates", number(ip.fragments_created)),
            ],
        );
        lines(
            &mut out,
            "Icmp",
            &[
                ("InMsgs", number(icmp.in_messages)),
                ("InErrors", number(icmp.in_errors)),
                ("InDestUnreachs", number(icmp.in_unreachable)),
                ("InTimeExcds", number(icmp.in_time_exceeded)),
                ("InParmProbs", number(icmp.in_parameter_problems)),
                ("InEchos", number(icmp.in_echos)),
                ("InEchoReps", number(icmp.in_echo_replies)),
                ("OutMsgs", number(icmp.out_messages)),
                ("OutDestUnreachs", number(icmp.out_unreachable)),
                ("OutEchos", number(icmp.out_echos)),
                ("OutEchoReps", number(icmp.out_echo_replies)),
            ],
        );
        lines(
            &mut out,
            "Tcp",
            &[
                // Van Jacobson's, and no limit of connections: as Linux says it.
                ("RtoAlgorithm", 1),
                ("RtoMin", number(RTO_MIN / MILLISECOND)),
                ("RtoMax", number(RTO_MAX / MILLISECOND)),
                ("MaxConn", -1),
                ("ActiveOpens", number(tcp.active_opens)),
                ("PassiveOpens", number(tcp.passive_opens)),
                ("AttemptFails", number(self.tcp.ended.attempt_fails)),
                ("EstabResets", number(self.tcp.ended.established_resets)),
                ("CurrEstab", self.tcp_sockets().established),
                ("InSegs", number(tcp.in_segments)),
                ("OutSegs", number(tcp.out_segments)),
                ("RetransSegs", number(tcp.retransmitted)),
                ("InErrs", number(tcp.in_errors)),
                ("OutRsts", number(tcp.out_resets)),
            ],
        );
        lines(
            &mut out,
            "Udp",
            &[
                ("InDatagrams", number(udp.in_datagrams)),
                ("NoPorts", number(udp.no_ports)),
                ("InErrors", number(udp.in_errors)),
                ("OutDatagrams", number(udp.out_datagrams)),
                ("RcvbufErrors", number(udp.receive_buffer_errors)),
            ],
        );
        out
    }

    fn netstat(&self) -> String {
        let seen = &self.ip.statistics;
        let mut out = String::new();
        lines(
            &mut out,
            "IpExt",
            &[
                ("InOctets", number(seen.received_bytes)),
                ("OutOctets", number(seen.sent_bytes + seen.looped_bytes)),
            ],
        );
        out
    }

    pub(crate) fn tcp_sockets(&self) -> Sockets {
        let mut count = Sockets::default();
        for (_, entry) in self.tcp.sockets.iter() {
            count.all += 1;
            match &entry.kind {
                Kind::Listener(_) => {
                    count.listeners += 1;
                    count.in_use += 1;
                }
                Kind::Connection(connection) => {
                    count.in_use += i64::from(connection.state != State::Closed);
                    count.orphans += i64::from(connection.orphan);
                    let is_open = matches!(connection.state, State::Established | State::CloseWait);
                    count.established += i64::from(is_open);
                }
            }
        }
        count
    }

    fn sockstat(&self) -> String {
        let Sockets { in_use, orphans, all, .. } = self.tcp_sockets();
        let (udp, raw) = (self.udp.sockets.iter().count(), self.raw.count());
        let waiting = self.tcp.time_wait_count();
        let used = all + (udp + raw) as i64;
        let mut out = String::new();
        let _ = writeln!(out, "sockets: used {used}");
        let _ = writeln!(out, "TCP: inuse {in_use} orphan {orphans} tw {waiting} alloc {all}");
        let _ = writeln!(out, "UDP: inuse {udp}");
        let _ = writeln!(out, "RAW: inuse {raw}");
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_table_has_a_value_for_each_name() {
        let stack = Stack::new([7; 24], 0);
        for name in ["snmp", "netstat"] {
            let text = stack.table(name).unwrap();
            let all: alloc::vec::Vec<&str> = text.lines().collect();
            for pair in all.chunks(2) {
                let words = |line: &str| line.split(' ').count();
                assert_eq!(words(pair[0]), words(pair[1]), "{pair:?}");
                assert_eq!(pair[0].split(':').next(), pair[1].split(':').next());
            }
        }
        assert!(stack.table("arp").is_none());
    }
}
