// SPDX-License-Identifier: Apache-2.0 OR MIT
//! /sys/class/net and /sys/devices/virtual/net (sysfs-class-net): what rtnetlink(7) says of the interfaces of the caller's network, a file a
//! property. All of them are virtual ones, as in a container.

use super::interfaces::{self, HEADER, IFLA_MTU, LINK, attribute, half, word};
use super::text;
use abi::{Result, errno::*};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use api_fs::FileType;
use procfs::{Changing, Entry, Key, Row};

const IFLA_ADDRESS: u16 = 1;
const IFLA_BROADCAST: u16 = 2;
const IFLA_LINK: u16 = 5;
const IFLA_TXQLEN: u16 = 13;
const IFLA_OPERSTATE: u16 = 16;
const IFLA_GROUP: u16 = 27;
const IFF_UP: u32 = 1;
const IFF_LOOPBACK: u32 = 8;
const IFF_RUNNING: u32 = 0x40;
const DIRECTORY: u32 = 0o755;
/// What [`IFLA_OPERSTATE`] is called (RFC 2863, ifOperStatus).
const STATES: [&str; 7] = ["unknown", "notpresent", "down", "lowerlayerdown", "testing", "dormant", "up"];

/// The names, as links or as the directories that these lead to.
pub enum Names {
    Links,
    Directories,
}

/// The files of an interface, whose number the key is.
const ROWS: &[Row] = &[
    ("addr_len", Entry::Text(|key| number(address(key, IFLA_ADDRESS)?.len() as u64))),
    ("address", Entry::Text(|key| hardware(&address(key, IFLA_ADDRESS)?))),
    ("broadcast", Entry::Text(|key| hardware(&address(key, IFLA_BROADCAST)?))),
    ("carrier", Entry::Text(carrier)),
    ("dev_id", Entry::Fixed("0x0\n")),
    ("dev_port", Entry::Fixed("0\n")),
    ("dormant", Entry::Text(|key| if_up(&find(key)?, "0\n"))),
    ("duplex", Entry::Text(|key| if_wire(key, "full\n"))),
    ("flags", Entry::Text(|key| text(format!("{:#x}\n", flags(&find(key)?))))),
    ("ifindex", Entry::Text(|key| number(key as u64))),
    ("iflink", Entry::Text(iflink)),
    ("link_mode", Entry::Fixed("0\n")),
    ("mtu", Entry::File { text: |key| value(key, IFLA_MTU), store: store_mtu, permissions: 0o644 }),
    ("netdev_group", Entry::Text(|key| value(key, IFLA_GROUP))),
    ("operstate", Entry::Text(operstate)),
    // As Linux' veth.
    ("speed", Entry::Text(|key| if_wire(key, "10000\n"))),
    ("statistics/collisions", Entry::Text(counter::<9>)),
    ("statistics/multicast", Entry::Text(counter::<8>)),
    ("statistics/rx_bytes", Entry::Text(counter::<2>)),
    ("statistics/rx_compressed", Entry::Text(counter::<21>)),
    ("statistics/rx_crc_errors", Entry::Text(counter::<12>)),
    ("statistics/rx_dropped", Entry::Text(counter::<6>)),
    ("statistics/rx_errors", Entry::Text(counter::<4>)),
    ("statistics/rx_fifo_errors", Entry::Text(counter::<14>)),
    ("statistics/rx_frame_errors", Entry::Text(counter::<13>)),
    ("statistics/rx_length_errors", Entry::Text(counter::<10>)),
    ("statistics/rx_missed_errors", Entry::Text(counter::<15>)),
    ("statistics/rx_nohandler", Entry::Text(counter::<23>)),
    ("statistics/rx_over_errors", Entry::Text(counter::<11>)),
    ("statistics/rx_packets", Entry::Text(counter::<0>)),
    ("statistics/tx_aborted_errors", Entry::Text(counter::<16>)),
    ("statistics/tx_bytes", Entry::Text(counter::<3>)),
    ("statistics/tx_carrier_errors", Entry::Text(counter::<17>)),
    ("statistics/tx_compressed", Entry::Text(counter::<22>)),
    ("statistics/tx_dropped", Entry::Text(counter::<7>)),
    ("statistics/tx_errors", Entry::Text(counter::<5>)),
    ("statistics/tx_fifo_errors", Entry::Text(counter::<18>)),
    ("statistics/tx_heartbeat_errors", Entry::Text(counter::<19>)),
    ("statistics/tx_packets", Entry::Text(counter::<1>)),
    ("statistics/tx_window_errors", Entry::Text(counter::<20>)),
    ("subsystem", Entry::Link(|_| text(String::from("../../../../class/net")))),
    ("tx_queue_len", Entry::Text(|key| value(key, IFLA_TXQLEN))),
    ("type", Entry::Text(|key| number(half(&find(key)?, HEADER + 2).into()))),
    ("uevent", Entry::Text(uevent)),
];

/// The message about the interface; `ENODEV` when it is gone.
fn find(key: Key) -> Result<Vec<u8>> {
    interfaces::links()?.into_iter().find(|link| Key::from(index(link)) == key).ok_or(ENODEV)
}

fn index(link: &[u8]) -> u32 {
    word(link, HEADER + 4)
}

fn flags(link: &[u8]) -> u32 {
    // Whether it runs is told beside them (Linux' dev->flags, without those of dev_get_flags).
    word(link, HEADER + 8) & !(IFF_RUNNING | 0x1_0000 | 0x2_0000)
}

fn number(value: u64) -> Result<Vec<u8>> {
    text(format!("{value}\n"))
}

/// An attribute of four bytes.
fn value(key: Key, kind: u16) -> Result<Vec<u8>> {
    number(attribute(&find(key)?, HEADER + LINK, kind).map_or(0, |bytes| word(bytes, 0)).into())
}

fn address(key: Key, kind: u16) -> Result<Vec<u8>> {
    Ok(attribute(&find(key)?, HEADER + LINK, kind).unwrap_or_default().to_vec())
}

fn hardware(address: &[u8]) -> Result<Vec<u8>> {
    let bytes: Vec<String> = address.iter().map(|byte| format!("{byte:02x}")).collect();
    text(bytes.join(":") + "\n")
}

/// What is told of an interface that is up alone.
fn if_up(link: &[u8], says: &str) -> Result<Vec<u8>> {
    if flags(link) & IFF_UP != 0 { text(String::from(says)) } else { Err(EINVAL) }
}

/// What is told of an interface that has a wire (Linux' get_link_ksettings).
fn if_wire(key: Key, says: &str) -> Result<Vec<u8>> {
    let link = find(key)?;
    if flags(&link) & IFF_LOOPBACK == 0 { if_up(&link, says) } else { Err(EINVAL) }
}

fn carrier(key: Key) -> Result<Vec<u8>> {
    let link = find(key)?;
    let runs = word(&link, HEADER + 8) & IFF_RUNNING != 0;
    if_up(&link, if runs { "1\n" } else { "0\n" })
}

fn iflink(key: Key) -> Result<Vec<u8>> {
    let link = find(key)?;
    let other = attribute(&link, HEADER + LINK, IFLA_LINK).map(|bytes| word(bytes, 0));
    number(other.unwrap_or_else(|| index(&link)).into())
}

fn operstate(key: Key) -> Result<Vec<u8>> {
    let link = find(key)?;
    let state = attribute(&link, HEADER + LINK, IFLA_OPERSTATE).and_then(|state| state.first());
    let name = STATES.get(usize::from(state.copied().unwrap_or(0))).unwrap_or(&STATES[0]);
    text(format!("{name}\n"))
}

/// [`interfaces::counter`].
fn counter<const PLACE: usize>(key: Key) -> Result<Vec<u8>> {
    number(interfaces::counter(&find(key)?, PLACE))
}

fn uevent(key: Key) -> Result<Vec<u8>> {
    let link = find(key)?;
    text(format!("INTERFACE={}\nIFINDEX={}\n", interfaces::name(&link), index(&link)))
}

fn store_mtu(key: Key, written: &[u8]) -> Result<()> {
    if !api_socket::may_administer() {
        return Err(EPERM);
    }
    let mtu = interfaces::number_written(written)?;
    interfaces::set_mtu(index(&find(key)?), mtu)
}

fn key_of(name: &str) -> Result<Key> {
    let links = interfaces::links()?;
    links.iter().find(|link| interfaces::name(link) == name).map(|link| index(link).into()).ok_or(ENOENT)
}

impl Changing for Names {
    fn numbers(&self, _: Key, _: u32, _: usize) -> Vec<u32> {
        Vec::new()
    }

    /// An interface's number is its place in the directory.
    fn names(&self, _: Key, from: u64, most: usize) -> Vec<(u64, String)> {
        let links = interfaces::links().unwrap_or_default();
        let mut all: Vec<(u64, String)> =
            links.iter().map(|link| (index(link).into(), interfaces::name(link))).collect();
        all.retain(|(index, _)| *index >= from);
        all.sort_unstable();
        all.truncate(most);
        all
    }

    fn entry(&self, _: Key, name: &str) -> Result<(Entry, Key)> {
        let entry = match self {
            Names::Links => Entry::Link(|key| {
                text(format!("../../devices/virtual/net/{}", interfaces::name(&find(key)?)))
            }),
            Names::Directories => Entry::DirectoryWith { rows: ROWS, permissions: DIRECTORY },
        };
        Ok((entry, key_of(name)?))
    }

    fn kind(&self) -> FileType {
        match self {
            Names::Links => FileType::Symlink,
            Names::Directories => FileType::Directory,
        }
    }

    fn permissions(&self) -> u32 {
        DIRECTORY
    }

    fn check_presence(&self, key: Key) -> Result<()> {
        find(key).map(|_| ())
    }
}
