// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What `--network` and `--network-alias` say.

use crate::{
    fault::{Fault, Result},
    names,
    prepare::Flags,
};
use unilith_machine::{
    networks,
    record::{Joined, Network, Spec},
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

/// The address of a network card.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mac(pub [u8; 6]);

impl std::str::FromStr for Mac {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Mac, String> {
        let wrong = || "it is six numbers of two hexadecimal digits, as in 52:55:0a:00:00:01".to_string();
        let octet = |word: &str| match word.len() {
            2 if word.bytes().all(|b| b.is_ascii_hexdigit()) => u8::from_str_radix(word, 16).ok(),
            _ => None,
        };
        let octets: Vec<u8> = text.split([':', '-']).map(octet).collect::<Option<_>>().ok_or_else(wrong)?;
        let octets: [u8; 6] = octets.try_into().map_err(|_| wrong())?;
        match octets {
            // IEEE 802: the first bit on the wire says that it means a group.
            [first, ..] if first & 1 != 0 => {
                Err("it means a group of cards: make the first number even".into())
            }
            [0, 0, 0, 0, 0, 0] => Err("no card has an address of zeros".into()),
            _ => Ok(Mac(octets)),
        }
    }
}

/// The names of a machine in a network that it is made a member of: those of the user's, and its own where it has one.
pub fn aliases(given: &[String], spec: &Spec) -> Result<Vec<String>> {
    if let Some(alias) = given.iter().find(|alias| !is_host_name(alias)) {
        let message = format!("--alias {alias}: a name has letters, digits, - _ and dots between them");
        return Err(Fault { code: 2, message });
    }
    let own = Some(&spec.hostname).filter(|name| **name != spec.id && is_host_name(name));
    Ok(given.iter().chain(own).cloned().collect())
}

/// What resolvers ask for (RFC 1123 2.1, and the underscores that people use).
fn is_host_name(name: &str) -> bool {
    name.len() <= 253
        && name.split('.').all(|label| {
            (1..=63).contains(&label.len())
                && label.bytes().all(|c| c.is_ascii_alphanumeric() || c == b'-' || c == b'_')
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_of_a_card_is_one_cards() {
        assert_eq!("02:42:ac:11:00:0A".parse(), Ok(Mac([2, 0x42, 0xac, 0x11, 0, 10])));
        assert_eq!("02-42-ac-11-00-0a".parse(), Ok(Mac([2, 0x42, 0xac, 0x11, 0, 10])));
        for (text, says) in [
            ("02:42:ac:11:00", "six"),
            ("02:42:ac:11:00:0a:0b", "six"),
            ("2:42:ac:11:00:0a", "six"),
            ("02:42:ac:11:00:+a", "six"),
            ("", "six"),
            ("01:42:ac:11:00:0a", "group"),
            ("00:00:00:00:00:00", "zeros"),
        ] {
            assert!(text.parse::<Mac>().unwrap_err().contains(says), "{text}");
        }
    }
}
