// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `net`. The stack is another micro-library, which may be left out: the kernel image says who knows its sockets.

use crate::arguments::Arguments;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use api_lock::SpinLock;
use api_overlay::{Column, Command, Completes, Failure, Listing, Outcome, Session, Value, manual};
use core::net::SocketAddr;

pub const COMMANDS: [Command; 1] = [Command {
    name: "net",
    arguments: manual!("[-c]"),
    summary: manual!("List sockets, or the network's counters"),
    help: manual!(
        "Lists the machine's TCP and UDP sockets over IPv4: protocol, state, bytes that wait to be read and to be \
           acknowledged, both addresses. Connections in TIME-WAIT are counted only.\n\
           -c  packets and bytes both ways, what was dropped, connections by state"
    ),
    completes: Completes::Nothing,
    run: net,
}];

/// One socket.
#[derive(Clone, Copy, Debug)]
pub struct Socket {
    pub protocol: &'static str,
    pub state: &'static str,
    pub to_read: u64,
    pub unacknowledged: u64,
    pub local: Option<SocketAddr>,
    pub remote: Option<SocketAddr>,
}

/// Who knows about the network.
#[derive(Clone, Copy)]
pub struct Source {
    pub sockets: fn() -> Vec<Socket>,
    /// Names with their values.
    pub counters: fn() -> Vec<(&'static str, u64)>,
}

static SOURCE: SpinLock<Option<Source>> = SpinLock::new(None);

/// Says who knows about the network.
/// Inlined, so that an image needs nothing of this crate before a command comes (`link.ld` of the kernel).
#[inline(always)]
pub fn set_source(source: Source) {
    *SOURCE.lock() = Some(source);
}

const SOCKETS: [Column; 6] = [
    Column::left("protocol", "PROTO", 5),
    Column::left("state", "STATE", 11),
    Column::right("to_read_bytes", "RECV-Q", 8),
    Column::right("unacknowledged_bytes", "SEND-Q", 8),
    Column::left("local", "LOCAL", 21),
    Column::left("remote", "REMOTE", 0),
];
const COUNTERS: [Column; 2] = [Column::left("what", "WHAT", 24), Column::right("count", "COUNT", 14)];

fn net(session: &dyn Session, arguments: &[&[u8]]) -> Outcome {
    let options = Arguments::parse(arguments, "c", "")?;
    options.no_operands()?;
    let Some(source) = *SOURCE.lock() else {
        return Err(Failure::new("").because("this kernel has no network (--set net=none)"));
    };
    if options.has(b'c') {
        let mut list = Listing::new(session, &COUNTERS);
        for (what, count) in (source.counters)() {
            list.row(&[Value::Text(what), Value::Number(count)])?;
        }
        return Ok(0);
    }
    let shown = |address: Option<SocketAddr>| match address {
        Some(address) => format!("{address}"),
        None => String::from("*"),
    };
    let mut list = Listing::new(session, &SOCKETS);
    for socket in (source.sockets)() {
        list.row(&[
            Value::Text(socket.protocol),
            Value::Text(socket.state),
            Value::Number(socket.to_read),
            Value::Number(socket.unacknowledged),
            Value::Text(&shown(socket.local)),
            Value::Text(&shown(socket.remote)),
        ])?;
    }
    Ok(0)
}
