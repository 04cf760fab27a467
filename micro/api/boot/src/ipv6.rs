// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the host tells of IPv6 on the machine's network device.

use alloc::{format, string::String, string::ToString, vec::Vec};
use core::net::Ipv6Addr;

/// What stands for addresses that routers of the link give.
const AUTOMATIC: &str = "auto";

/// Without an address, and not automatic, the device has no IPv6.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ipv6 {
    /// With their prefix lengths, 0 to 128.
    pub addresses: Vec<(Ipv6Addr, u8)>,
    /// Routers of the link are asked for addresses and ways out.
    pub is_automatic: bool,
    pub gateway: Option<Ipv6Addr>,
    pub dns: Vec<Ipv6Addr>,
}

impl Ipv6 {
    pub fn is_on(&self) -> bool {
        self.is_automatic || !self.addresses.is_empty()
    }

    pub(crate) fn encode(&self, put: &mut dyn FnMut(&str, &str)) {
        let shown = |(address, length): &(Ipv6Addr, u8)| format!("{address}/{length}");
        let mut all: Vec<String> = self.addresses.iter().map(shown).collect();
        if self.is_automatic {
            all.push(AUTOMATIC.into());
        }
        if !all.is_empty() {
            put("ip6", &all.join(","));
        }
        if let Some(gateway) = &self.gateway {
            put("gw6", &gateway.to_string());
        }
        if !self.dns.is_empty() {
            put("dns6", &self.dns.iter().map(Ipv6Addr::to_string).collect::<Vec<_>>().join(","));
        }
    }

    /// Takes a setting; what it should be where it is not that. `None`: it is another one's.
    pub(crate) fn setting(&mut self, key: &str, value: &str) -> Option<Result<(), &'static str>> {
        let address = |text: &str| text.parse::<Ipv6Addr>().map_err(|_| "an IPv6 address");
        let set = || {
            match key {
                "gw6" => self.gateway = Some(address(value)?),
                "dns6" => {
                    for server in value.split(',') {
                        self.dns.push(address(server)?);
                    }
                }
                _ => {
                    for one in value.split(',') {
                        if one == AUTOMATIC {
                            self.is_automatic = true;
                            continue;
                        }
                        let (text, length) = one.split_once('/').ok_or("ADDRESS/PREFIX, or auto")?;
                        let length = length.parse().ok().filter(|n| *n <= 128);
                        self.addresses.push((address(text)?, length.ok_or("a prefix of 0 to 128 bits")?));
                    }
                }
            }
            Ok(())
        };
        matches!(key, "ip6" | "gw6" | "dns6").then(set)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_of_ipv6_are_read_as_they_were_written() {
        let all = Ipv6 {
            addresses: Vec::from([("fd00::2".parse().unwrap(), 64), ("2001:db8::1".parse().unwrap(), 128)]),
            is_automatic: true,
            gateway: Some("fe80::1".parse().unwrap()),
            dns: Vec::from(["fd00::53".parse().unwrap(), "2001:db8::53".parse().unwrap()]),
        };
        let (mut words, mut back) = (Vec::new(), Ipv6::default());
        all.encode(&mut |key, value| words.push((key.to_string(), value.to_string())));
        assert_eq!(words[0].1, "fd00::2/64,2001:db8::1/128,auto");
        words.iter().for_each(|(key, value)| back.setting(key, value).unwrap().unwrap());
        assert_eq!(back, all);
        assert!(all.is_on() && !Ipv6::default().is_on());
    }

    #[test]
    fn what_is_no_setting_of_ipv6_is_refused_or_left_to_others() {
        let mut none = Ipv6::default();
        for (key, value) in [
            ("ip6", "fd00::1"),
            ("ip6", "fd00::1/129"),
            ("ip6", "10.0.0.1/8"),
            ("gw6", ""),
            ("dns6", "fd00::1,x"),
        ] {
            assert!(matches!(none.setting(key, value), Some(Err(_))), "{key}={value}");
        }
        assert_eq!(none.setting("ip", "10.0.0.1/8"), None);
    }
}
