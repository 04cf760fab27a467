// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How a supervisor shares out its descriptors. Those who ask for them are strangers: clients of published ports, and the
//! machine through its volumes. None of them gets what the supervisor itself needs to save the machine's state.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use unilith_network::{dns, proxy};

/// For the supervisor itself: its streams, sockets, clients of the overlay, a file to save.
const OWN: usize = 128;
/// Enough for anybody, however many there could be: each connection takes 16 KiB of memory.
const MAX_CONNECTIONS: usize = 8192;
const MAX_EXCHANGES: usize = 1024;
/// Descriptors of all volumes together.
const MAX_IN_VOLUMES: usize = 128 << 10;

/// Files of its volumes that a machine that is a process is given, of all together.
pub const MAX_GIVEN: usize = 1024;

/// What each part of a supervisor may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shares {
    pub connections: usize,
    pub exchanges: usize,
    /// Descriptors of each volume.
    pub volume: usize,
    /// Files of each that a machine that is a process is given.
    pub given: usize,
}

impl Shares {
    /// Raises this process' limit as far as it may and shares it out.
    pub fn take(volumes: usize) -> Shares {
        let limit = getrlimit(Resource::Nofile);
        let raised = Rlimit { current: limit.maximum, ..limit };
        let current = if setrlimit(Resource::Nofile, raised).is_ok() { limit.maximum } else { limit.current };
        Shares::of(current.and_then(|n| usize::try_from(n).ok()).unwrap_or(usize::MAX), volumes)
    }

    fn of(descriptors: usize, volumes: usize) -> Shares {
        let relay = dns::MAX_QUESTIONS + 2 * dns::MAX_CONNECTIONS;
        let rest = descriptors.saturating_sub(OWN + relay);
        let (network, files) = (rest / 2, rest - rest / 2);
        Shares {
            connections: (network / 8 * 3).clamp(1, MAX_CONNECTIONS),
            exchanges: (network / 4).clamp(1, MAX_EXCHANGES),
            volume: (files.min(MAX_IN_VOLUMES) / volumes.max(1)).max(2),
            given: MAX_GIVEN / volumes.max(1),
        }
    }

    /// What a machine may have of a volume.
    pub fn volume(self) -> unilith_ninep::Limits {
        unilith_ninep::Limits { descriptors: self.volume, given: self.given }
    }

    pub fn of_proxy(self) -> proxy::Limits {
        proxy::Limits { connections: self.connections, exchanges: self.exchanges }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_all_others_take_together_leaves_the_supervisor_its_own() {
        for (descriptors, volumes) in [(1024, 0), (1024, 3), (4096, 1), (1 << 20, 2), (usize::MAX, 1)] {
            let shares = Shares::of(descriptors, volumes);
            let relay = dns::MAX_QUESTIONS + 2 * dns::MAX_CONNECTIONS;
            let sum = 2 * shares.connections + shares.exchanges + shares.volume * volumes + relay;
            assert!(sum + OWN <= descriptors, "{descriptors}: {shares:?}");
        }
        assert!(Shares::of(1024, 1).connections >= 100, "{:?}", Shares::of(1024, 1));
        // As few as that are of no use, but none would be a division of nothing.
        assert_eq!(Shares::of(10, 0), Shares { connections: 1, exchanges: 1, volume: 2, given: MAX_GIVEN });
    }
}
