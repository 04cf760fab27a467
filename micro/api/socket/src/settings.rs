// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the superuser may change of all sockets below /proc/sys/net. The families go by it.

use abi::setting::Setting;

/// Largest size of a buffer that a program may ask for: it is doubled, and has to fit in an `int`.
const LARGEST_BUFFER: u64 = 1 << 29;
const LARGEST_INT: u64 = i32::MAX as u64;
/// The number after it is no group.
const LARGEST_GROUP: u64 = u32::MAX as u64 - 1;

/// net.core.somaxconn. A listener's queue is memory, so it is bounded here as before Linux 5.4.
pub static MAX_BACKLOG: [Setting; 1] = [Setting::new(4096, 0, 65_535)];
/// net.core.rmem_max and wmem_max.
pub static MAX_RECEIVE_BUFFER: [Setting; 1] = [Setting::new(4 << 20, 2304, LARGEST_BUFFER)];
pub static MAX_SEND_BUFFER: [Setting; 1] = [Setting::new(4 << 20, 4608, LARGEST_BUFFER)];
/// net.core.rmem_default and wmem_default, of sockets other than TCP's that are made from now on.
pub static RECEIVE_BUFFER: [Setting; 1] = [Setting::new(212_992, 2304, LARGEST_BUFFER)];
pub static SEND_BUFFER: [Setting; 1] = [Setting::new(212_992, 4608, LARGEST_BUFFER)];
/// net.unix.max_dgram_qlen: messages that an unconnected datagram socket of AF_UNIX holds, one more let in.
pub static MAX_DATAGRAMS: [Setting; 1] = [Setting::new(10, 0, LARGEST_INT)];
/// net.ipv4.ip_local_port_range: the first and the last port that is chosen for a program. The first is not above the last.
pub static LOCAL_PORTS: [Setting; 2] =
    [Setting::new(32_768, 1024, 65_535), Setting::new(60_999, 1024, 65_535)];
/// net.ipv4.ping_group_range: the first and the last of the groups whose members may make ICMP sockets (SOCK_DGRAM); `1 0` is
/// nobody. Docker's default; the host says it where it is another.
pub static PING_GROUPS: [Setting; 2] =
    [Setting::new(0, 0, LARGEST_GROUP), Setting::new(LARGEST_INT, 0, LARGEST_GROUP)];
/// net.ipv4.ip_unprivileged_port_start: ports below it need CAP_NET_BIND_SERVICE. Docker's default; the host says it where it is
/// another.
pub static UNPRIVILEGED_PORTS: [Setting; 1] = [Setting::new(0, 0, 65_535)];
/// Of connections that are made from now on: net.ipv4.tcp_fin_timeout, tcp_keepalive_time and tcp_keepalive_intvl in
/// seconds, tcp_keepalive_probes, tcp_syn_retries.
pub static FIN_TIMEOUT: [Setting; 1] = [Setting::new(60, 1, 120)];
pub static KEEPALIVE_TIME: [Setting; 1] = [Setting::new(7200, 1, 32_767)];
pub static KEEPALIVE_INTERVAL: [Setting; 1] = [Setting::new(75, 1, 32_767)];
pub static KEEPALIVE_PROBES: [Setting; 1] = [Setting::new(9, 1, 127)];
pub static SYN_RETRIES: [Setting; 1] = [Setting::new(6, 1, 127)];
/// net.ipv4.tcp_retries2: of all connections, how often data is sent again.
pub static RETRIES: [Setting; 1] = [Setting::new(15, 0, 255)];

/// net.ipv4.tcp_rmem and tcp_wmem: the least, the first and the most bytes of a buffer whose size no program chose.
pub static TCP_RECEIVE_BUFFER: [Setting; 3] = [
    Setting::new(4096, 1, LARGEST_INT),
    Setting::new(131_072, 1, LARGEST_INT),
    Setting::new(6_291_456, 1, LARGEST_INT),
];
pub static TCP_SEND_BUFFER: [Setting; 3] = [
    Setting::new(4096, 1, LARGEST_INT),
    Setting::new(16_384, 1, LARGEST_INT),
    Setting::new(4_194_304, 1, LARGEST_INT),
];

/// The size of such a buffer, which does not grow by itself: `usual` within the settings' bounds.
pub fn tcp_buffer([_, first, most]: &[Setting; 3], usual: usize) -> usize {
    usual.min(most.get() as usize).max(first.get() as usize)
}

/// The range of [`LOCAL_PORTS`]: its first port and how many there are, never none.
pub fn local_ports() -> (u16, u32) {
    let [first, last] = [LOCAL_PORTS[0].get() as u16, LOCAL_PORTS[1].get() as u16];
    (first, u32::from(last.saturating_sub(first)) + 1)
}
