// SPDX-License-Identifier: Apache-2.0 OR MIT
//! setsockopt(2) and getsockopt(2) of AF_INET sockets: socket(7), ip(7), tcp(7), udp(7).

use crate::slab::Id;
use crate::stack::Net;
use crate::tcp::Kind;
use crate::tcp::congestion::Algorithm;
use crate::tcp::connection::{Connection, Settings, State};
use abi::linux::net as linux;
use abi::{Result, errno::*};
use alloc::vec::Vec;
use api_socket::options::{buffer_size, from_int, int};
use api_socket::settings::{MAX_RECEIVE_BUFFER, MAX_SEND_BUFFER, TCP_RECEIVE_BUFFER, TCP_SEND_BUFFER};

const IPPROTO_IP: u32 = 0;
const IPPROTO_TCP: u32 = 6;

fn range(value: &[u8], range: core::ops::RangeInclusive<i32>) -> Result<u32> {
    let n = int(value)?;
    if range.contains(&n) { Ok(n as u32) } else { Err(EINVAL) }
}

/// `IP_TOS` and friends may come as one byte, and what is empty is 0 (ip_setsockopt).
pub fn int_or_byte(value: &[u8]) -> Result<i32> {
    match value {
        [] => Ok(0),
        [byte] | [byte, _] | [byte, _, _] => Ok(i32::from(*byte)),
        _ => int(value),
    }
}

/// The value of IP_TTL, which must be there: -1 is what the system takes.
pub fn time_to_live(value: &[u8]) -> Result<u8> {
    if value.is_empty() {
        return Err(EINVAL);
    }
    match int_or_byte(value)? {
        -1 => Ok(crate::ip::TTL),
        n @ 1..=255 => Ok(n as u8),
        _ => Err(EINVAL),
    }
}

pub fn set_stream(net: &Net, id: Id, level: i32, name: i32, value: &[u8]) -> Result<()> {
    net.act(|s, now| {
        let entry = s.tcp.sockets.get_mut(id).ok_or(EBADF)?;
        if level as u32 == linux::SOL_SOCKET {
            match name as u32 {
                linux::SO_REUSEADDR => return int(value).map(|n| entry.reuse.address = n != 0),
                linux::SO_REUSEPORT => return int(value).map(|n| entry.reuse.port = n != 0),
                _ => {}
            }
        }
        let settings = match &mut entry.kind {
            Kind::Connection(connection) => &mut connection.settings,
            Kind::Listener(listener) => &mut listener.settings,
        };
        let before = *settings;
        match level as u32 {
            linux::SOL_SOCKET => set_socket(settings, name as u32, value)?,
            IPPROTO_TCP => set_tcp(settings, name as u32, value)?,
            IPPROTO_IP => set_ip(settings, name as u32, value)?,
            _ => return Err(ENOPROTOOPT),
        }
        let released = before.cork && !settings.cork || !before.no_delay && settings.no_delay;
        let keep_alive = before.keep_alive != settings.keep_alive || before.keep_idle != settings.keep_idle;
        let quick = name as u32 == linux::TCP_QUICKACK && settings.quick_ack == Some(true);
        if let Kind::Connection(connection) = &mut entry.kind {
            connection.cwnd.change_to(connection.settings.congestion);
            if keep_alive {
                connection.start_keep_alive(now);
            }
            if quick && connection.ack == crate::tcp::connection::Ack::Delayed {
                connection.ack = crate::tcp::connection::Ack::Now;
            }
        }
        if released || keep_alive || quick {
            s.tcp.mark(id);
        }
        Ok(())
    })
}

fn set_socket(settings: &mut Settings, name: u32, value: &[u8]) -> Result<()> {
    match name {
        linux::SO_KEEPALIVE => settings.keep_alive = int(value)? != 0,
        linux::SO_BROADCAST => settings.broadcast = int(value)? != 0,
        linux::SO_LINGER => {
            let (on, seconds) = (int(value)?, int(value.get(4..).unwrap_or(&[]))?);
            settings.lingers = on != 0;
            // Those that it had are kept where it is switched off, and told.
            if on != 0 {
                settings.linger_seconds = seconds.max(0) as u32;
            }
        }
        linux::SO_RCVBUF | linux::SO_RCVBUFFORCE => {
            settings.receive_buffer = Some(buffer_size(name, value, 1152, &MAX_RECEIVE_BUFFER[0])?);
        }
        linux::SO_SNDBUF | linux::SO_SNDBUFFORCE => {
            settings.send_buffer = Some(buffer_size(name, value, 2304, &MAX_SEND_BUFFER[0])?);
        }
        _ => return Err(ENOPROTOOPT),
    }
    Ok(())
}

fn set_tcp(settings: &mut Settings, name: u32, value: &[u8]) -> Result<()> {
    // All but names are ints, and looked at before the name is.
    let least = if [linux::TCP_CONGESTION, linux::TCP_ULP].contains(&name) { 1 } else { size_of::<i32>() };
    if value.len() < least {
        return Err(EINVAL);
    }
    match name {
        linux::TCP_NODELAY => settings.no_delay = int(value)? != 0,
        linux::TCP_CORK => settings.cork = int(value)? != 0,
        linux::TCP_KEEPIDLE => settings.keep_idle = range(value, 1..=32_767)?,
        linux::TCP_KEEPINTVL => settings.keep_interval = range(value, 1..=32_767)?,
        linux::TCP_KEEPCNT => settings.keep_count = range(value, 1..=127)?,
        linux::TCP_SYNCNT => settings.syn_retries = range(value, 1..=127)?,
        linux::TCP_USER_TIMEOUT => settings.user_timeout = range(value, 0..=i32::MAX)?,
        linux::TCP_MAXSEG => settings.max_segment = Some(range(value, 88..=32_767)?),
        linux::TCP_LINGER2 => {
            settings.fin_timeout = match int(value)? {
                // None at all.
                seconds if seconds < 0 => -1,
                0 => 60,
                seconds => seconds.min(60),
            };
        }
        linux::TCP_DEFER_ACCEPT => settings.defer_accept = int(value)?.max(0) as u32,
        linux::TCP_QUICKACK => settings.quick_ack = Some(int(value)? != 0),
        // No protocol can be put upon TCP: as a Linux without the module.
        linux::TCP_ULP => return Err(ENOENT),
        linux::TCP_CONGESTION => {
            let name = value.split(|b| *b == 0).next().unwrap_or(&[]);
            settings.congestion = Algorithm::named(name).ok_or(ENOENT)?;
        }
        _ => return Err(ENOPROTOOPT),
    }
    Ok(())
}

/// The class of service of a stream: the two bits that tell of congestion are TCP's own.
pub fn stream_class(before: u8, asked: u8) -> u8 {
    const CONGESTION: u8 = 3;
    asked & !CONGESTION | before & CONGESTION
}

fn set_ip(settings: &mut Settings, name: u32, value: &[u8]) -> Result<()> {
    match name {
        linux::IP_TOS => settings.tos = stream_class(settings.tos, int_or_byte(value)? as u8),
        linux::IP_TTL => {
            settings.ttl = time_to_live(value)?;
        }
        linux::IP_OPTIONS if value.is_empty() => {}
        // A stream is in no group (igmp.c, setsockopt of IP_ADD_MEMBERSHIP).
        linux::IP_ADD_MEMBERSHIP | linux::IP_DROP_MEMBERSHIP => return Err(EPROTO),
        linux::IP_MULTICAST_TTL | linux::IP_MULTICAST_IF => return Err(EINVAL),
        _ => return Err(ENOPROTOOPT),
    }
    Ok(())
}

pub fn get_stream(net: &Net, id: Id, level: i32, name: i32, _asked: &[u8]) -> Result<Vec<u8>> {
    net.look(|s| {
        let entry = s.tcp.sockets.get_mut(id).ok_or(EBADF)?;
        let reuse = entry.reuse;
        if (level as u32, name as u32) == (linux::SOL_SOCKET, linux::SO_ERROR) {
            return Ok(from_int(entry.error_mut().take().map_or(0, |e| i64::from(e.0))));
        }
        let (settings, connection, queue) = match &mut entry.kind {
            Kind::Connection(connection) => (connection.settings, Some(connection), (0, 0)),
            Kind::Listener(listener) => (listener.settings, None, (listener.ready.len(), listener.backlog)),
        };
        Ok(match (level as u32, name as u32) {
            (linux::SOL_SOCKET, linux::SO_TYPE) => from_int(1),
            (linux::SOL_SOCKET, linux::SO_PROTOCOL) => from_int(IPPROTO_TCP),
            (linux::SOL_SOCKET, linux::SO_ACCEPTCONN) => from_int(connection.is_none()),
            (linux::SOL_SOCKET, linux::SO_REUSEADDR) => from_int(reuse.address),
            (linux::SOL_SOCKET, linux::SO_REUSEPORT) => from_int(reuse.port),
            (linux::SOL_SOCKET, linux::SO_BROADCAST) => from_int(settings.broadcast),
            (linux::SOL_SOCKET, linux::SO_KEEPALIVE) => from_int(settings.keep_alive),
            (linux::SOL_SOCKET, linux::SO_LINGER) => {
                let mut out = from_int(settings.lingers);
                out.extend_from_slice(&from_int(settings.linger_seconds));
                out
            }
            (linux::SOL_SOCKET, linux::SO_RCVBUF) => {
                // Linux' first size, whatever grows from there.
                let first = || TCP_RECEIVE_BUFFER[1].get() as usize;
                from_int(settings.receive_buffer.unwrap_or_else(first) as i64)
            }
            (linux::SOL_SOCKET, linux::SO_SNDBUF) => {
                let usual = || match connection.filter(|c| c.is_synchronised()) {
                    Some(connection) => connection.send_limit(),
                    None => TCP_SEND_BUFFER[1].get() as usize,
                };
                from_int(settings.send_buffer.unwrap_or_else(usual) as i64)
            }
            (IPPROTO_TCP, linux::TCP_NODELAY) => from_int(settings.no_delay),
            (IPPROTO_TCP, linux::TCP_CORK) => from_int(settings.cork),
            (IPPROTO_TCP, linux::TCP_KEEPIDLE) => from_int(settings.keep_idle),
            (IPPROTO_TCP, linux::TCP_KEEPINTVL) => from_int(settings.keep_interval),
            (IPPROTO_TCP, linux::TCP_KEEPCNT) => from_int(settings.keep_count),
            (IPPROTO_TCP, linux::TCP_SYNCNT) => from_int(settings.syn_retries),
            (IPPROTO_TCP, linux::TCP_USER_TIMEOUT) => from_int(settings.user_timeout),
            (IPPROTO_TCP, linux::TCP_MAXSEG) => {
                // Before there is a connection: what was asked for, or RFC 1122's default.
                let asked = settings.max_segment.unwrap_or(536);
                from_int(connection.filter(|c| c.is_synchronised()).map_or(asked, |c| c.mss))
            }
            (IPPROTO_TCP, linux::TCP_LINGER2) => from_int(settings.fin_timeout),
            (IPPROTO_TCP, linux::TCP_DEFER_ACCEPT) => from_int(settings.defer_accept),
            (IPPROTO_TCP, linux::TCP_QUICKACK) => from_int(settings.quick_ack.unwrap_or(true)),
            (IPPROTO_TCP, linux::TCP_ULP) => Vec::new(),
            (IPPROTO_TCP, linux::TCP_CONGESTION) => congestion_name(settings.congestion),
            (IPPROTO_TCP, linux::TCP_INFO) => info(&settings, connection.map(|c| &**c), queue),
            (IPPROTO_IP, linux::IP_TOS) => from_int(settings.tos),
            (IPPROTO_IP, linux::IP_TTL) => from_int(settings.ttl),
            (IPPROTO_IP, linux::IP_MTU) => {
                from_int(connection.filter(|c| c.is_synchronised()).map(|c| c.mss + 40).ok_or(ENOTCONN)?)
            }
            (IPPROTO_IP, linux::IP_OPTIONS | linux::IP_PKTOPTIONS) => Vec::new(),
            (IPPROTO_IP, linux::IP_HDRINCL | linux::IP_NODEFRAG) => from_int(0),
            (IPPROTO_IP, linux::IP_MULTICAST_TTL) => from_int(1),
            (IPPROTO_IP, linux::IP_MULTICAST_IF) => Vec::from([0; 4]),
            (linux::SOL_SOCKET, name) => {
                return api_socket::options::Common::default().inert(name).ok_or(ENOPROTOOPT);
            }
            _ => return Err(ENOPROTOOPT),
        })
    })
}

/// The name as TCP_CONGESTION answers it, TCP_CA_NAME_MAX bytes.
fn congestion_name(algorithm: Algorithm) -> Vec<u8> {
    let mut out = Vec::from([0; 16]);
    out[..algorithm.name().len()].copy_from_slice(algorithm.name().as_bytes());
    out
}

/// `struct tcp_info` up to `tcpi_total_retrans` (104 bytes, what programs read; newer fields are left out, which
/// the length tells).
/// `queue`: of a listener, how many connections wait and how many may.
fn info(settings: &Settings, connection: Option<&Connection>, queue: (usize, usize)) -> Vec<u8> {
    let mut bytes = [0u8; 8];
    let mut words = [0u32; 24];
    // Linux' state numbers (include/net/tcp_states.h).
    bytes[0] = match connection.map(|c| c.state) {
        None => 10,
        Some(State::Established) => 1,
        Some(State::SynSent) => 2,
        Some(State::SynReceived) => 3,
        Some(State::FinWait1) => 4,
        Some(State::FinWait2) => 5,
        Some(State::Closed) => 7,
        Some(State::CloseWait) => 8,
        Some(State::LastAck) => 9,
        Some(State::Closing) => 11,
    };
    if let Some(c) = connection {
        bytes[1] = if c.recovery.is_some() { 3 } else { 0 };
        bytes[2] = c.retries as u8;
        bytes[3] = c.probes as u8;
        bytes[4] = c.retries as u8;
        bytes[5] = u8::from(c.timestamps) | u8::from(c.sack) << 1 | u8::from(c.receive_scale > 0) << 2;
        bytes[6] = c.send_scale | c.receive_scale << 4;
        words[0] = (c.rtt.timeout / 1000) as u32;
        words[1] = 40_000;
        words[2] = c.mss;
        words[3] = c.mss;
        words[4] = c.max.wrapping_sub(c.una) / c.mss.max(1);
        words[5] = c.board.bytes() / c.mss.max(1);
        words[13] = c.mss + 40;
        words[14] = 64 * 1024;
        words[15] = (c.rtt.smoothed / 1000) as u32;
        words[16] = (c.rtt.variation / 1000) as u32;
        words[17] = c.cwnd.threshold.min(0x7fff_ffff) / c.mss.max(1);
        words[18] = c.cwnd.size / c.mss.max(1);
        words[19] = c.mss;
        words[20] = 3;
        words[22] = c.receive_limit() as u32;
        words[23] = c.retransmitted;
    } else {
        words[2] = settings.max_segment.unwrap_or(536);
        // Linux' tcp_get_info has them where a connection has what is not acknowledged.
        words[4] = queue.0 as u32;
        words[5] = queue.1 as u32;
    }
    let mut out = Vec::from(bytes);
    words.iter().for_each(|w| out.extend_from_slice(&w.to_ne_bytes()));
    out
}
