// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Networks of a store: machines of one network reach each other and find each other by name. `networks/NAME.json`.
//!
//! A network is only a name and an id: there is no device and there are no rules of it. Who its members are is in the
//! machines' own records.

use crate::{
    MachineError, link, private,
    record::{Connection, Joined, Network, Phase, Spec, State, now_ms},
    store::{Machine, Store, read_json, write_json},
};
use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, fs, io, net::Ipv4Addr, path::PathBuf};

/// A network by its name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Named {
    /// Twelve hexadecimal digits.
    pub id: String,
    pub name: String,
    pub created_ms: u64,
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
}

impl Store {
    fn networks_folder(&self) -> PathBuf {
        self.shared().join("networks")
    }

    /// All networks by name.
    pub fn networks(&self) -> Result<Vec<Named>, MachineError> {
        let folder = self.networks_folder();
        let entries = match fs::read_dir(&folder) {
            Ok(entries) => entries,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(e) => return Err(MachineError::file("cannot read", &folder)(e)),
        };
        let paths =
            entries.flatten().map(|e| e.path()).filter(|p| p.extension().is_some_and(|e| e == "json"));
        let mut found: Vec<Named> = paths.filter_map(|path| read_json(&path)).collect();
        found.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(found)
    }

    /// The network with this name or id.
    pub fn network(&self, name: &str) -> Result<Named, MachineError> {
        let mut all = self.networks()?.into_iter();
        all.find(|n| n.name == name || n.id == name).ok_or_else(|| MachineError::NoNetwork(name.into()))
    }

    /// Makes a network, whose name must be free and fit for a file.
    pub fn create_network(
        &self,
        id: String,
        name: &str,
        labels: BTreeMap<String, String>,
    ) -> Result<Named, MachineError> {
        let _gate = self.gate()?;
        if let Some(other) = self.networks()?.into_iter().find(|n| n.name == name) {
            return Err(MachineError::NetworkInUse(other.name));
        }
        let folder = self.networks_folder();
        private::keep_directory(&folder).map_err(MachineError::file("cannot make or use", &folder))?;
        let network = Named { id, name: name.into(), created_ms: now_ms(), labels };
        write_json(&folder.join(format!("{name}.json")), &network)?;
        Ok(network)
    }

    /// Removes a network that no machine uses; as with docker one that has ended does not use it.
    pub fn remove_network(&self, network: &Named) -> Result<(), MachineError> {
        let _gate = self.gate()?;
        let users = self.members(network)?;
        let users: Vec<&str> =
            users.iter().filter(|m| m.state.outcome.is_none()).map(|m| m.spec.name.as_str()).collect();
        if !users.is_empty() {
            return Err(MachineError::NetworkHasMachines(network.name.clone(), users.join(", ")));
        }
        let path = self.networks_folder().join(format!("{}.json", network.name));
        fs::remove_file(&path).map_err(MachineError::file("cannot remove", &path))
    }

    /// The network's machines, ended ones too.
    pub fn members(&self, network: &Named) -> Result<Vec<Machine>, MachineError> {
        let mut machines = self.list()?;
        machines.retain(|m| m.spec.networks.iter().any(|n| n.id == network.id));
        Ok(machines)
    }

    /// Makes a machine a member of a network: one that runs at once, one that has ended when it is started.
    pub fn connect(
        &self,
        machine: &Machine,
        network: &Named,
        aliases: Vec<String>,
    ) -> Result<(), MachineError> {
        let joined = Joined { name: network.name.clone(), id: network.id.clone(), aliases };
        self.change_networks(machine, |spec| {
            if spec.networks.iter().any(|n| n.id == network.id) {
                return Err(MachineError::IsMember(spec.name.clone(), network.name.clone()));
            }
            if matches!(spec.network, Network::User | Network::None | Network::Interface { .. }) {
                let why = "it was made with another way to be connected: run it anew, without --network user or none";
                return Err(MachineError::CannotBeMember(spec.name.clone(), why));
            }
            spec.networks.push(joined);
            spec.network = Network::Tap;
            Ok(())
        })
    }

    /// Takes a machine out of a network, as [`Store::connect`] takes it in.
    pub fn disconnect(&self, machine: &Machine, network: &str) -> Result<(), MachineError> {
        self.change_networks(machine, |spec| {
            let before = spec.networks.len();
            spec.networks.retain(|n| n.name != network);
            match spec.networks.len() == before {
                true => Err(MachineError::IsNoMember(spec.name.clone(), network.into())),
                false => Ok(()),
            }
        })
    }

    fn change_networks(
        &self,
        machine: &Machine,
        change: impl FnOnce(&mut Spec) -> Result<(), MachineError>,
    ) -> Result<(), MachineError> {
        let mut before = None;
        let changed = self.amend(machine, |spec| {
            let now = machine.again().map(|m| m.state).unwrap_or_default();
            if let Some(why) = lack_of_change(&now) {
                return Err(MachineError::CannotBeMember(spec.name.clone(), why));
            }
            before = Some((spec.networks.clone(), spec.network.clone()));
            change(spec)
        })?;
        let Some(connection) = changed.state.connection.filter(|_| changed.state.phase.is_alive()) else {
            return Ok(());
        };
        match (link::rejoin(&changed.spec, &connection), before) {
            // One that has ended meanwhile is a member when it is started.
            (Err(why), Some(before)) if machine.again().is_some_and(|m| m.state.phase.is_alive()) => {
                self.amend(machine, |spec| {
                    (spec.networks, spec.network) = before;
                    Ok(())
                })?;
                Err(MachineError::CannotJoin(why))
            }
            _ => Ok(()),
        }
    }

    /// The addresses that machines of a machine's networks have under a name in lower case; `None`: none is called so.
    pub fn addresses_for(&self, id: &str, name: &str) -> Option<Vec<Ipv4Addr>> {
        let own = self.load(id).filter(|own| !own.spec.networks.is_empty())?;
        self.addresses(&own.spec, name)
    }

    fn addresses(&self, own: &Spec, name: &str) -> Option<Vec<Ipv4Addr>> {
        let machines = self.list().ok()?;
        let alive = machines.iter().filter(|m| m.state.phase.is_alive());
        let called = alive.filter(|m| {
            let shared =
                m.spec.networks.iter().filter(|theirs| own.networks.iter().any(|n| n.id == theirs.id));
            shared.into_iter().any(|network| is_called(&m.spec, network, name))
        });
        let addresses: Vec<Ipv4Addr> = called.filter_map(|m| m.state.address()).collect();
        (!addresses.is_empty()).then_some(addresses)
    }
}

/// Why a machine that is so cannot change its networks; `None`: it can.
fn lack_of_change(state: &State) -> Option<&'static str> {
    match (&state.connection, state.phase) {
        (_, Phase::Exited) | (Some(Connection::Tap { translated: true, .. }), _) => None,
        (_, Phase::Created) => Some("it is being started: try again"),
        (Some(Connection::Tap { .. }), _) => Some(
            "it runs without rules of nftables: stop it first, install nftables, and start it afterwards",
        ),
        _ => Some("it runs without a tap device: stop it first, and start it afterwards, as root"),
    }
}

/// Whether a machine has a name in a network: docker's rule. The name may have the network's behind it.
fn is_called(spec: &Spec, network: &Joined, name: &str) -> bool {
    let short = name.rsplit_once('.').filter(|(_, last)| network.name.eq_ignore_ascii_case(last));
    let mut own = [&spec.name, &spec.id].into_iter().chain(&network.aliases);
    own.any(|own| own.eq_ignore_ascii_case(name) || short.is_some_and(|(s, _)| own.eq_ignore_ascii_case(s)))
}

/// Whether a name means a way of being connected, which no network may be called.
pub fn is_reserved(name: &str) -> bool {
    mode(name).is_some() || matches!(name, "host" | "container")
}

/// The way of being connected that a word of `--network` means; `bridge` and `default` are docker's for what is usual.
pub fn mode(word: &str) -> Option<Network> {
    match word {
        "auto" | "bridge" | "default" => Some(Network::Auto),
        "tap" => Some(Network::Tap),
        "user" => Some(Network::User),
        "none" => Some(Network::None),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        record::Outcome,
        store::{Held, tests::spec},
    };
    use unilith_network::subnet::Pair;

    fn start(store: &Store, id: &str, name: &str, networks: &[(&Named, &[&str])], last: u8) -> Held {
        let joined = |(network, aliases): &(&Named, &[&str])| Joined {
            name: network.name.clone(),
            id: network.id.clone(),
            aliases: aliases.iter().map(ToString::to_string).collect(),
        };
        let networks = networks.iter().map(joined).collect();
        let mut held = store.create(Spec { networks, ..spec(id, name) }).unwrap();
        let pair = Pair {
            host: Ipv4Addr::new(10, 44, 0, last - 1),
            guest: Ipv4Addr::new(10, 44, 0, last),
            prefix6: None,
        };
        held.state.connection = Some(Connection::Tap { device: "x".into(), pair, translated: true });
        held.state.phase = Phase::Running;
        held.save().unwrap();
        held
    }

    #[test]
    fn names_are_known_within_a_network_and_while_the_machine_lives() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::at(folder.path());
        let front = store.create_network("f1".into(), "front", BTreeMap::new()).unwrap();
        let back = store.create_network("b1".into(), "back", BTreeMap::new()).unwrap();
        let web = start(&store, "aa", "web", &[(&front, &["www"])], 2);
        let app = start(&store, "bb", "app", &[(&front, &["www"]), (&back, &[])], 6);
        let mut db = start(&store, "cc", "db", &[(&back, &["Store"])], 10);
        let ask = |own: &Held, name: &str| -> Option<Vec<u8>> {
            Some(store.addresses(&own.spec, name)?.iter().map(|a| a.octets()[3]).collect())
        };
        assert_eq!(ask(&web, "www"), Some(vec![2, 6]));
        for name in ["app", "app.front", "bb"] {
            assert_eq!(ask(&web, name), Some(vec![6]), "{name}");
        }
        for name in ["db", "app.back", "store", "back", ""] {
            assert_eq!(ask(&web, name), None, "{name}");
        }
        assert_eq!(ask(&app, "store.back"), Some(vec![10]));
        db.finish(Outcome { code: 0, reason: None }).unwrap();
        assert_eq!(ask(&app, "db"), None);
    }

    #[test]
    fn a_network_is_one_and_stays_while_machines_use_it() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::at(folder.path());
        let front = store.create_network("f1".into(), "front", BTreeMap::new()).unwrap();
        assert!(matches!(
            store.create_network("f2".into(), "front", BTreeMap::new()),
            Err(MachineError::NetworkInUse(_))
        ));
        let mut web = start(&store, "aa", "web", &[(&front, &[])], 2);
        let error = store.remove_network(&front).unwrap_err().to_string();
        assert!(error.contains("front") && error.contains("web"), "{error}");
        web.finish(Outcome { code: 0, reason: None }).unwrap();
        store.remove_network(&front).unwrap();
        assert!(matches!(store.network("front"), Err(MachineError::NoNetwork(_))));
    }
}
