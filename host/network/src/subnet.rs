// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which addresses a machine gets: the n-th /30 of a private range that no route of the host overlaps.

use serde::{Deserialize, Serialize};
use std::{
    fmt,
    net::{Ipv4Addr, Ipv6Addr},
    str::FromStr,
};

/// An IPv4 network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network {
    pub base: Ipv4Addr,
    pub length: u8,
}

impl Network {
    fn mask(self) -> u32 {
        u32::MAX.checked_shl(32 - u32::from(self.length)).unwrap_or(0)
    }

    /// Whether the two have an address in common.
    pub fn overlaps(self, other: Network) -> bool {
        let mask = self.mask() & other.mask();
        u32::from(self.base) & mask == u32::from(other.base) & mask
    }

    /// How many /30 networks it holds.
    pub fn pairs(self) -> u32 {
        1 << (30 - u32::from(self.length))
    }

    /// The n-th /30: the first usable address is the host's, the second the machine's.
    pub fn pair(self, n: u32) -> Pair {
        let base = (u32::from(self.base) & self.mask()) + 4 * n;
        Pair { host: Ipv4Addr::from(base + 1), guest: Ipv4Addr::from(base + 2), prefix6: None }
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.base, self.length)
    }
}

impl FromStr for Network {
    type Err = String;

    fn from_str(text: &str) -> Result<Network, String> {
        let wrong = || format!("`{text}` is not a network: write it like 10.44.0.0/16, 8 to 30 bits long");
        let (base, length) = text.split_once('/').ok_or_else(wrong)?;
        let length = length.parse().ok().filter(|n| (8..=30).contains(n)).ok_or_else(wrong)?;
        Ok(Network { base: base.parse().map_err(|_| wrong())?, length })
    }
}

/// The two ends of a machine's link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pair {
    pub host: Ipv4Addr,
    pub guest: Ipv4Addr,
    /// Their addresses of IPv6 are these 96 bits, and then those of IPv4.
    #[serde(default)]
    pub prefix6: Option<Ipv6Addr>,
}

impl Pair {
    /// Bits of the network part.
    pub const LENGTH: u8 = 30;

    /// Bits of the network part of IPv6.
    pub const LENGTH6: u8 = 126;

    /// Both ends by IPv6: the host's and the machine's.
    pub fn ipv6(self) -> Option<(Ipv6Addr, Ipv6Addr)> {
        let prefix = self.prefix6?.to_bits() >> 32 << 32;
        let of = |v4: Ipv4Addr| Ipv6Addr::from_bits(prefix | u128::from(v4.to_bits()));
        Some((of(self.host), of(self.guest)))
    }

    pub fn network(self) -> Network {
        Network { base: Ipv4Addr::from(u32::from(self.host) & !3), length: Self::LENGTH }
    }
}

/// Ranges tried in this order; 10.44.0.0/16 is in none of the usual defaults of docker, libvirt, Kubernetes and VPNs.
const RANGES: [&str; 3] = ["10.44.0.0/16", "172.30.128.0/17", "192.168.236.0/22"];

/// The ranges to choose from: `UNILITH_NETWORK` alone if it is set, else the built-in ones.
pub fn ranges() -> Result<Vec<Network>, String> {
    match std::env::var("UNILITH_NETWORK") {
        Ok(text) => Ok(vec![text.parse().map_err(|e| format!("UNILITH_NETWORK: {e}"))?]),
        Err(_) => RANGES.iter().map(|text| text.parse()).collect(),
    }
}

/// The prefix of `UNILITH_NETWORK6`, where machines are to have IPv6: it is written `fd00:1:2::/96`, as unique local addresses are
/// (RFC 4193).
pub fn prefix6() -> Result<Option<Ipv6Addr>, String> {
    std::env::var("UNILITH_NETWORK6").ok().map(|text| parse_prefix6(&text)).transpose()
}

fn parse_prefix6(text: &str) -> Result<Ipv6Addr, String> {
    let address = text.strip_suffix("/96").and_then(|address| address.parse::<Ipv6Addr>().ok());
    let is_prefix = |address: &Ipv6Addr| address.to_bits() as u32 == 0 && address.is_unique_local();
    address.filter(is_prefix).ok_or_else(|| {
        format!(
            "UNILITH_NETWORK6: `{text}` is not 96 bits of unique local addresses: write it like fd00:1:2::/96"
        )
    })
}

/// The host's routes other than the default route, from the text of /proc/net/route.
pub fn routes(table: &str) -> Vec<Network> {
    let route = |line: &str| {
        let mut columns = line.split_ascii_whitespace().skip(1);
        let base = u32::from_str_radix(columns.next()?, 16).ok()?.swap_bytes();
        let mask = u32::from_str_radix(columns.nth(5)?, 16).ok()?.swap_bytes();
        let length = mask.leading_ones() as u8;
        (length > 0).then(|| Network { base: Ipv4Addr::from(base), length })
    };
    table.lines().skip(1).filter_map(route).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn network(text: &str) -> Network {
        text.parse().unwrap()
    }

    #[test]
    fn addresses_of_ipv6_are_those_of_ipv4_behind_the_prefix() {
        let prefix6 = Some(parse_prefix6("fd00:1:2::/96").unwrap());
        let pair = Pair { prefix6, ..network("10.44.0.0/16").pair(1) };
        let (host, guest) = pair.ipv6().unwrap();
        assert_eq!(
            (host.to_string(), guest.to_string()),
            ("fd00:1:2::a2c:5".into(), "fd00:1:2::a2c:6".into())
        );
        assert_eq!(network("10.44.0.0/16").pair(1).ipv6(), None);
        for wrong in ["fd00::/64", "2001:db8::/96", "fd00::1/96", "10.0.0.0/8", ""] {
            assert!(parse_prefix6(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn pairs_follow_each_other_and_stay_inside_the_range() {
        let range = network("10.44.0.0/16");
        assert_eq!(range.pair(0).guest, Ipv4Addr::new(10, 44, 0, 2));
        assert_eq!(range.pair(1).host, Ipv4Addr::new(10, 44, 0, 5));
        assert_eq!(range.pair(range.pairs() - 1).guest, Ipv4Addr::new(10, 44, 255, 254));
    }

    #[test]
    fn overlap_is_seen_both_ways_round() {
        let (wide, narrow) = (network("10.0.0.0/8"), network("10.44.1.0/24"));
        assert!(wide.overlaps(narrow) && narrow.overlaps(wide));
        assert!(!narrow.overlaps(network("10.44.2.0/24")));
    }

    #[test]
    fn the_default_route_is_no_clash() {
        let table = "Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\n\
                     eth0\t00000000\t010200C0\t0003\t0\t0\t0\t00000000\n\
                     eth0\t000200C0\t00000000\t0001\t0\t0\t0\t00FFFFFF\n";
        assert_eq!(routes(table), [network("192.0.2.0/24")]);
    }

    #[test]
    fn networks_that_cannot_hold_a_machine_are_refused() {
        for text in ["10.44.0.0", "10.44.0.0/31", "10.44.0.0/4", "x/16"] {
            assert!(text.parse::<Network>().is_err(), "{text}");
        }
    }
}
