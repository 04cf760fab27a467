// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Reports the program's server sockets, so that the host knows when it may connect.
//!
//! Linux tells nobody that a socket listens, so this looks: often at first, then once a second, which a guest does
//! not notice.

use crate::status::StatusPort;
use api_boot::Status;
use std::{collections::BTreeSet, fs, thread, time::Duration};

const FIRST: Duration = Duration::from_millis(5);
const LAST: Duration = Duration::from_secs(1);

/// Looks from a thread of its own until the machine ends.
pub fn watch(port: &StatusPort) {
    let port = port.clone();
    thread::spawn(move || {
        let mut known = BTreeSet::new();
        let mut pause = FIRST;
        loop {
            thread::sleep(pause);
            pause = (pause * 5 / 4).min(LAST);
            for (file, udp) in [("tcp", false), ("tcp6", false), ("udp", true), ("udp6", true)] {
                // Missing only where the kernel has no such protocol.
                let table = fs::read_to_string(format!("/proc/net/{file}")).unwrap_or_default();
                for number in servers(&table, udp) {
                    if known.insert((udp, number)) {
                        port.report(&Status::Listening { udp, port: number });
                    }
                }
            }
        }
    });
}

/// The local ports in LISTEN state (TCP), or bound without a peer below the ephemeral range (UDP). The format is
/// proc_pid_net(5): `sl local_address rem_address st …`, addresses and states in hexadecimal.
fn servers(table: &str, udp: bool) -> impl Iterator<Item = u16> + '_ {
    /// First port of Linux's default ip_local_port_range.
    const EPHEMERAL: u16 = 32768;
    // TCP_LISTEN and, for UDP, TCP_CLOSE (include/net/tcp_states.h).
    let wanted = if udp { "07" } else { "0A" };
    table.lines().skip(1).filter_map(move |line| {
        let mut words = line.split_ascii_whitespace().skip(1);
        let local = words.next()?;
        let state = words.nth(1)?;
        let number = u16::from_str_radix(local.rsplit_once(':')?.1, 16).ok()?;
        (state == wanted && !(udp && number >= EPHEMERAL)).then_some(number)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const TCP: &str = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 00000000:18EB 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 15 1 0 100 0 0 10 0
   1: 0100007F:9C40 0100007F:18EB 01 00000000:00000000 00:00000000 00000000     0        0 16 1 0 20 4 30 10 -1
";
    const UDP: &str =
        "   sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
  120: 00000000:0035 00000000:0000 07 00000000:00000000 00:00000000 00000000     0        0 17 2 0 0
  121: 00000000:D431 00000000:0000 07 00000000:00000000 00:00000000 00000000     0        0 18 2 0 0
";

    #[test]
    fn only_listening_tcp_sockets_count() {
        assert_eq!(servers(TCP, false).collect::<Vec<_>>(), [6379]);
    }

    #[test]
    fn udp_sockets_on_ephemeral_ports_do_not_count() {
        assert_eq!(servers(UDP, true).collect::<Vec<_>>(), [53]);
    }

    #[test]
    fn an_odd_table_is_no_server() {
        assert_eq!(servers("header\nx\n0: zz:zz 0 0A\n", false).count(), 0);
    }
}
