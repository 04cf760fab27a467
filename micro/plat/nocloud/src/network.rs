// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `network-config`, versions 1 and 2.

use crate::Say;
use crate::yaml::{Step, Step::Item, Step::Key, Wrong, read};
use core::net::Ipv4Addr;

/// Name servers that are kept.
pub const MAX_SERVERS: usize = 3;

/// What the file says about the machine's one card.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Network {
    pub address: Option<Ipv4Addr>,
    pub prefix: Option<u8>,
    pub gateway: Option<Ipv4Addr>,
    servers: [Option<Ipv4Addr>; MAX_SERVERS],
}

impl Network {
    pub fn servers(&self) -> impl Iterator<Item = Ipv4Addr> {
        self.servers.into_iter().flatten()
    }

    fn server(&mut self, word: &str, say: &mut Say<'_>) {
        let Some(server) = address(word, say) else { return };
        if self.servers().any(|known| known == server) {
            return;
        }
        match self.servers.iter_mut().find(|place| place.is_none()) {
            Some(place) => *place = Some(server),
            None => {
                say(format_args!("network-config: name server {server} is one too many, and is left out"))
            }
        }
    }

    /// The first address that is one of IPv4.
    fn own(&mut self, word: &str, say: &mut Say<'_>) {
        let (text, length) = word.split_once('/').map_or((word, None), |(text, length)| (text, Some(length)));
        let Some(own) = address(text, say) else { return };
        if self.address.is_some() {
            say(format_args!("network-config: address {own} is one too many, and is left out"));
            return;
        }
        self.address = Some(own);
        if let Some(length) = length {
            self.prefix(length, say);
        }
    }

    /// A number of bits, or a mask.
    fn prefix(&mut self, word: &str, say: &mut Say<'_>) {
        let bits = word.parse().ok().filter(|bits| *bits <= 32u8).or_else(|| {
            let mask = word.parse::<Ipv4Addr>().ok()?.to_bits();
            (mask.leading_ones() == mask.count_ones()).then(|| mask.count_ones() as u8)
        });
        match bits {
            Some(bits) => self.prefix = Some(bits),
            None => {
                say(format_args!("network-config: {word} is no mask of an IPv4 network, and is left out"))
            }
        }
    }
}

/// An address of IPv4.
fn address(word: &str, say: &mut Say<'_>) -> Option<Ipv4Addr> {
    let parsed = word.parse().ok();
    if parsed.is_none() {
        say(format_args!("network-config: {word} is no address of IPv4, and is left out"));
    }
    parsed
}

/// The entry of a list or map that counts.
#[derive(Clone, Copy, PartialEq)]
enum Card<'a> {
    Entry(usize),
    Named(&'a str),
}

/// What is known while the file is read.
struct Reader<'a> {
    network: Network,
    card: Option<Card<'a>>,
    /// The list's entry of name servers, and the entry that was left out last.
    servers: Option<usize>,
    left_out: Option<Card<'a>>,
    /// The route that is read: its number, whether it is the default, and its gateway.
    route: (usize, bool, Option<Ipv4Addr>),
}

/// Reads the file.
pub fn parse(text: &str, say: &mut Say<'_>) -> Result<Network, Wrong> {
    let mut reader = Reader {
        network: Network::default(),
        card: None,
        servers: None,
        left_out: None,
        route: (0, false, None),
    };
    read(text, &mut |path, word| {
        let path = if let [Key("network"), rest @ ..] = path { rest } else { path };
        reader.word(path, word, say);
    })?;
    Ok(reader.network)
}

impl<'a> Reader<'a> {
    fn word(&mut self, path: &[Step<'a>], word: &'a str, say: &mut Say<'_>) {
        match *path {
            [Key("version")] if matches!(word, "1" | "2") => {}
            [Key("version")] => say(format_args!("network-config: version {word} is not known; 1 and 2 are")),
            [Key("renderer")] => {}
            [Key("config"), Item(n), Key("type")] => match word {
                "physical" if self.is_card(Card::Entry(n)) => {}
                "nameserver" => self.servers = Some(n),
                _ => self.leave_out(Card::Entry(n), word, say),
            },
            [Key("config"), Item(n), Key("address")] | [Key("config"), Item(n), Key("address"), Item(_)]
                if self.servers == Some(n) =>
            {
                self.network.server(word, say);
            }
            [Key("config"), Item(n), ref rest @ ..] => {
                if self.card == Some(Card::Entry(n)) {
                    self.version_1(rest, word, say);
                } else if self.servers != Some(n) {
                    self.leave_out(Card::Entry(n), "without a type in front", say);
                }
            }
            [Key("ethernets"), Key(name), ref rest @ ..] => {
                if self.is_card(Card::Named(name)) {
                    self.version_2(rest, word, say);
                } else {
                    self.leave_out(Card::Named(name), name, say);
                }
            }
            [Key(key), ..] if self.left_out != Some(Card::Named(key)) => {
                self.leave_out(Card::Named(key), key, say);
            }
            _ => {}
        }
    }

    /// The first one is the machine's.
    fn is_card(&mut self, card: Card<'a>) -> bool {
        *self.card.get_or_insert(card) == card
    }

    /// Says so once.
    fn leave_out(&mut self, entry: Card<'a>, what: &str, say: &mut Say<'_>) {
        if self.left_out != Some(entry) {
            self.left_out = Some(entry);
            say(format_args!("network-config: {what} is left out: the machine has one card, and IPv4 on it"));
        }
    }

    fn version_1(&mut self, path: &[Step<'a>], word: &'a str, say: &mut Say<'_>) {
        let [Key("subnets"), Item(_), ref rest @ ..] = *path else {
            // Its name, its address in Ethernet: there is only one.
            return;
        };
        match *rest {
            [Key("type")] if matches!(word, "static" | "dhcp" | "dhcp4") => {}
            [Key("type")] => say(format_args!("network-config: a subnet of type {word} is left out")),
            [Key("address")] => self.network.own(word, say),
            [Key("netmask")] => self.network.prefix(word, say),
            [Key("gateway")] => self.network.gateway = address(word, say).or(self.network.gateway),
            [Key("dns_nameservers")] | [Key("dns_nameservers"), Item(_)] => self.network.server(word, say),
            [Key("routes"), ..] => say(format_args!("network-config: routes beside `gateway` are left out")),
            _ => {}
        }
    }

    fn version_2(&mut self, path: &[Step<'a>], word: &'a str, say: &mut Say<'_>) {
        match *path {
            [Key("addresses"), Item(_)] => self.network.own(word, say),
            [Key("gateway4")] => self.network.gateway = address(word, say).or(self.network.gateway),
            [Key("nameservers"), Key("addresses"), Item(_)] => self.network.server(word, say),
            [Key("routes"), Item(n), Key(key)] => {
                if self.route.0 != n {
                    self.route = (n, false, None);
                }
                match key {
                    "to" => self.route.1 = matches!(word, "default" | "0.0.0.0/0"),
                    "via" => self.route.2 = word.parse().ok(),
                    _ => {}
                }
                match self.route {
                    (_, true, Some(gateway)) => self.network.gateway = Some(gateway),
                    (_, false, Some(_)) if key == "to" => {
                        say(format_args!("network-config: the route to {word} is left out"));
                    }
                    _ => {}
                }
            }
            // Its name, the address in Ethernet that it is known by, and what it does without being told.
            _ => {}
        }
    }
}
