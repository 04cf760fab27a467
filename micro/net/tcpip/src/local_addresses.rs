// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Addresses that programs give the loopback interface (`ip address add 192.0.2.1/24 dev lo`). As on Linux the whole network of such an
//! address is this machine.

use abi::{Result, errno::*};
use alloc::vec::Vec;
use api_alloc::Reserve;
use core::net::Ipv4Addr;

/// Most of them.
const MAX_ADDRESSES: usize = 256;

#[derive(Debug, Default)]
pub struct LocalAddresses(Vec<(Ipv4Addr, u8)>);

fn netmask(prefix: u8) -> u32 {
    u32::MAX.checked_shl(32 - u32::from(prefix.min(32))).unwrap_or(0)
}

impl LocalAddresses {
    /// With their prefixes.
    pub fn iter(&self) -> impl Iterator<Item = (Ipv4Addr, u8)> {
        self.0.iter().copied()
    }

    /// The address in whose network this one is.
    pub fn network_of(&self, address: Ipv4Addr) -> Option<Ipv4Addr> {
        let holds =
            |(own, prefix): &(Ipv4Addr, u8)| (own.to_bits() ^ address.to_bits()) & netmask(*prefix) == 0;
        self.0.iter().find(|one| holds(one)).map(|(own, _)| *own)
    }

    pub fn is_broadcast(&self, address: Ipv4Addr) -> bool {
        let is_its = |(own, prefix): &(Ipv4Addr, u8)| {
            *prefix < 31 && own.to_bits() | !netmask(*prefix) == address.to_bits()
        };
        self.0.iter().any(is_its)
    }

    /// `EEXIST` for one that is there; `EINVAL` for what is no address of a host, `ENOBUFS` where there are too many.
    pub fn add(&mut self, address: Ipv4Addr, prefix: u8) -> Result<()> {
        let is_host = !address.is_unspecified() && !address.is_broadcast() && !address.is_multicast();
        if !is_host || !(1..=32).contains(&prefix) {
            return Err(EINVAL);
        }
        if address.is_loopback() || self.0.contains(&(address, prefix)) {
            return Err(EEXIST);
        }
        if self.0.len() >= MAX_ADDRESSES || self.0.reserve_fallibly(1).is_err() {
            return Err(ENOBUFS);
        }
        self.0.push((address, prefix));
        Ok(())
    }

    /// `EADDRNOTAVAIL` for one that is not there.
    pub fn remove(&mut self, address: Ipv4Addr, prefix: u8) -> Result<()> {
        let at = self.0.iter().position(|known| *known == (address, prefix)).ok_or(EADDRNOTAVAIL)?;
        self.0.swap_remove(at);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_network_of_an_address_is_this_machine_until_the_address_goes() {
        let (mut all, own) = (LocalAddresses::default(), Ipv4Addr::new(192, 0, 2, 1));
        all.add(own, 24).unwrap();
        assert_eq!(all.add(own, 24), Err(EEXIST));
        assert_eq!(all.network_of(Ipv4Addr::new(192, 0, 2, 99)), Some(own));
        assert_eq!(all.network_of(Ipv4Addr::new(192, 0, 3, 99)), None);
        assert!(all.is_broadcast(Ipv4Addr::new(192, 0, 2, 255)) && !all.is_broadcast(own));
        all.remove(own, 24).unwrap();
        assert_eq!(all.remove(own, 24), Err(EADDRNOTAVAIL));
        assert_eq!(all.network_of(own), None);
    }

    #[test]
    fn what_is_no_address_of_a_host_is_refused_and_so_are_too_many() {
        let mut all = LocalAddresses::default();
        for (address, prefix) in [([0; 4], 8), ([255; 4], 32), ([224, 0, 0, 1], 32), ([10, 0, 0, 1], 0)] {
            assert_eq!(all.add(address.into(), prefix), Err(EINVAL));
        }
        let nth = |n: u32| Ipv4Addr::from_bits(0x0a00_0000 + n);
        assert!((1..=MAX_ADDRESSES as u32).all(|n| all.add(nth(n), 32).is_ok()));
        assert_eq!(all.add(nth(1000), 32), Err(ENOBUFS));
    }
}
