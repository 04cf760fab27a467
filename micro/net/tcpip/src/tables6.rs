// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Tables of /proc/net about IPv6 (proc(5)): if_inet6, ipv6_route and snmp6.

use crate::stack::Stack;
use alloc::format;
use alloc::string::String;
use core::fmt::Write;
use core::net::Ipv6Addr;

/// Flags of a route: up, by a gateway, to one host (linux/route.h); this machine's own, and one that ends (linux/ipv6_route.h).
const RTF_UP: u32 = 1;
#[cfg(feature = "ipv6")]
const RTF_GATEWAY: u32 = 2;
#[cfg(feature = "ipv6")]
const RTF_EXPIRES: u32 = 0x0040_0000;
const RTF_LOCAL: u32 = 0x8000_0000;
/// Of routes that the kernel makes, and of those that others do.
#[cfg(feature = "ipv6")]
const KERNEL_METRIC: u32 = 256;
#[cfg(feature = "ipv6")]
const USER_METRIC: u32 = 1024;
/// Linux' scope of an address in these tables (net/ipv6.h, IPV6_ADDR_LOOPBACK, and 0 of global ones).
#[cfg(feature = "ipv6")]
const LINK: u8 = 0x20;

fn hex(address: &Ipv6Addr) -> String {
    format!("{:032x}", address.to_bits())
}

fn route(out: &mut String, to: (&Ipv6Addr, u8), by: &Ipv6Addr, metric: u32, flags: u32, name: &str) {
    // Writing to a string fails with its memory alone.
    let _ = writeln!(
        out,
        "{} {:02x} {:032x} 00 {} {metric:08x} 00000001 00000000 {flags:08x} {name:>8}",
        hex(to.0),
        to.1,
        0,
        hex(by)
    );
}

impl Stack {
    /// /proc/net/if_inet6.
    pub(crate) fn if_inet6(&self) -> String {
        let mut out = String::new();
        if self.ip.lo.has_address6() {
            out.push_str("00000000000000000000000000000001 01 80 10 80       lo\n");
        }
        #[cfg(feature = "ipv6")]
        for one in self.ip.v6.iter().flat_map(|v6| &v6.addresses.all) {
            let scope = if one.address.is_unicast_link_local() { LINK } else { 0 };
            let flags = one.flags(self.ip.v6.as_ref().map_or(0, |v6| v6.addresses.now));
            let (address, prefix) = (hex(&one.address), one.prefix);
            let _ = writeln!(out, "{address} 02 {prefix:02x} {scope:02x} {flags:02x}     eth0");
        }
        out
    }

    /// /proc/net/ipv6_route.
    pub(crate) fn ipv6_route(&self) -> String {
        let mut out = String::new();
        let any = Ipv6Addr::UNSPECIFIED;
        #[cfg(feature = "ipv6")]
        if let Some(v6) = &self.ip.v6 {
            for one in &v6.routes.prefixes {
                route(&mut out, (&one.network, one.length), &any, KERNEL_METRIC, RTF_UP, "eth0");
            }
            for one in &v6.routes.routers {
                let ends = if one.until == crate::ipv6::addresses::FOREVER { 0 } else { RTF_EXPIRES };
                route(&mut out, (&any, 0), &one.address, USER_METRIC, RTF_UP | RTF_GATEWAY | ends, "eth0");
            }
            for one in v6.addresses.all.iter().filter(|one| one.is_assigned()) {
                route(&mut out, (&one.address, 128), &any, 0, RTF_UP | RTF_LOCAL, "eth0");
            }
        }
        if self.ip.lo.has_address6() {
            route(&mut out, (&Ipv6Addr::LOCALHOST, 128), &any, 0, RTF_UP | RTF_LOCAL, "lo");
        }
        out
    }

    /// /proc/net/snmp6, which has nothing.
    #[cfg(not(feature = "ipv6"))]
    pub(crate) fn snmp6(&self) -> String {
        String::new()
    }

    /// /proc/net/snmp6, of the counters that there are.
    #[cfg(feature = "ipv6")]
    pub(crate) fn snmp6(&self) -> String {
        let mut out = String::new();
        if let Some(v6) = &self.ip.v6 {
            let seen = &v6.counters;
            for (name, value) in [
                ("Ip6InReceives", seen.in_receives),
                ("Ip6InHdrErrors", seen.in_header_errors),
                ("Ip6InAddrErrors", seen.in_address_errors),
                ("Ip6InUnknownProtos", seen.in_unknown_protocols),
                ("Ip6InDelivers", seen.in_delivers),
                ("Ip6OutRequests", seen.out_requests),
                ("Ip6OutNoRoutes", seen.out_no_routes),
                ("Ip6ReasmReqds", seen.reassembly_requests),
                ("Ip6ReasmOKs", seen.reassembled),
                ("Ip6FragOKs", seen.fragmented),
                ("Ip6FragCreates", seen.fragments_created),
                ("Icmp6InMsgs", seen.icmp_in),
                ("Icmp6InErrors", seen.icmp_in_errors),
                ("Icmp6OutMsgs", seen.icmp_out),
            ] {
                let _ = writeln!(out, "{name:<32}\t{value}");
            }
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_without_ipv6_has_its_loopback_in_the_tables() {
        let stack = Stack::new([7; 24], 0);
        assert_eq!(stack.if_inet6(), "00000000000000000000000000000001 01 80 10 80       lo\n");
        let zeros = "0".repeat(32);
        let wanted =
            format!("{zeros:.31}1 80 {zeros} 00 {zeros} 00000000 00000001 00000000 80000001       lo\n");
        assert_eq!((stack.ipv6_route(), stack.snmp6()), (wanted, String::new()));
    }
}
