// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What `--network` and `--network-alias` say.

use crate::{
    fault::{Fault, Result},
    names,
    prepare::Flags,
};
use unilith_machine::{
    networks,
    record::{Joined, Network},
    store::Store,
};
use unilith_network::members;

/// How the machine is connected, and the networks it is in, which are there.
pub fn read(flags: &Flags) -> Result<(Network, Vec<Joined>)> {
    let wrong = |word: &str, why: &str| Fault { code: 2, message: format!("--network {word}: {why}") };
    let mut mode = None;
    let mut named: Vec<&String> = Vec::new();
    for word in &flags.network {
        match networks::mode(word) {
            Some(_) if mode.is_some() => return Err(wrong(word, "a machine is connected in one way")),
            Some(chosen) => mode = Some((word, chosen)),
            None if word == "host" => {
                return Err(wrong(word, "a machine has a network stack of its own; -p publishes its ports"));
            }
            None if word.starts_with("container:") => {
                return Err(wrong(
                    word,
                    "a machine has a network stack of its own; give both machines one network",
                ));
            }
            None if named.contains(&word) => {}
            None => named.push(word),
        }
    }
    if named.is_empty() {
        if let Some(alias) = flags.network_alias.first() {
            let message = format!(
                "--network-alias {alias}: it is a name in a network of your own; add --network NAME (`unilith network ls`)"
            );
            return Err(Fault { code: 2, message });
        }
        return Ok((mode.map_or(Network::Auto, |(_, mode)| mode), Vec::new()));
    }
    if let Some((word, Network::User | Network::None)) = &mode {
        return Err(wrong(word, "machines of a network need devices of their own; leave this out"));
    }
    let name_of_network = |word: &String| names::is_valid(word);
    if let Some(word) = named.iter().find(|word| !name_of_network(word)) {
        return Err(wrong(word, "it is auto, tap, user, none or the name of a network"));
    }
    let store = Store::open()?;
    let mut aliases = flags.network_alias.clone();
    aliases.extend(flags.hostname.clone());
    if let Some(alias) = aliases.iter().find(|alias| !is_host_name(alias)) {
        let message =
            format!("--network-alias {alias}: a name has letters, digits, - _ and dots between them");
        return Err(Fault { code: 2, message });
    }
    let mut joined: Vec<Joined> = Vec::new();
    for word in named {
        let network = store.network(word)?;
        if !joined.iter().any(|n| n.id == network.id) {
            joined.push(Joined { name: network.name, id: network.id, aliases: aliases.clone() });
        }
    }
    if let Some(lack) = members::lack() {
        return Err(Fault::new(format!("machines cannot be in networks here: {lack}")));
    }
    Ok((Network::Tap, joined))
}

/// What resolvers ask for (RFC 1123 2.1, and the underscores that people use).
fn is_host_name(name: &str) -> bool {
    name.len() <= 253
        && name.split('.').all(|label| {
            (1..=63).contains(&label.len())
                && label.bytes().all(|c| c.is_ascii_alphanumeric() || c == b'-' || c == b'_')
        })
}
