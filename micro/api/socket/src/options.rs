// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Options of SOL_SOCKET that mean the same for every family, and their encodings.

use crate::filter::Filter;
use abi::linux::net as linux;
use abi::setting::Setting;
use abi::{Result, errno::*};
use alloc::sync::Arc;
use alloc::vec::Vec;
use api_alloc::Reserve;
use api_fs::Timespec;
use classic_bpf::packet::SKF_AD_MAX;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Reads an `int` option.
pub fn int(value: &[u8]) -> Result<i32> {
    let bytes = value.get(..4).ok_or(EINVAL)?;
    Ok(i32::from_ne_bytes(bytes.try_into().map_err(|_| EINVAL)?))
}

/// An `int` option's bytes.
pub fn from_int(value: impl Into<i64>) -> Vec<u8> {
    Vec::from((value.into() as i32).to_ne_bytes())
}

/// The value of SO_RCVBUF or SO_SNDBUF, doubled for the bookkeeping (socket(7)). With SO_RCVBUFFORCE and SO_SNDBUFFORCE there is no
/// other limit than that of the number.
pub fn buffer_size(name: u32, value: &[u8], least: usize, most: &Setting) -> Result<usize> {
    const MAX_SIZE: usize = i32::MAX as usize / 2;
    let size = match name {
        linux::SO_RCVBUFFORCE | linux::SO_SNDBUFFORCE => (int(value)?.max(0) as usize).min(MAX_SIZE),
        // A negative size is a very large one.
        _ => (int(value)? as u32 as usize).min(most.get() as usize),
    };
    Ok(size.max(least) * 2)
}

/// Reads a `struct timeval`: nanoseconds, `None` for zero ("for ever").
fn timeval(value: &[u8]) -> Result<Option<u64>> {
    let word = |at: usize| -> Result<i64> {
        let bytes = value.get(at..at + 8).ok_or(EINVAL)?;
        Ok(i64::from_ne_bytes(bytes.try_into().map_err(|_| EINVAL)?))
    };
    let (seconds, micros) = (word(0)?, word(8)?);
    if !(0..1_000_000).contains(&micros) {
        return Err(EDOM);
    }
    // Linux: a negative time-out is none at all, which means "at once".
    let ns = (seconds.max(0) as u64).saturating_mul(1_000_000_000).saturating_add(micros as u64 * 1000);
    Ok(match (seconds, ns) {
        (..0, _) => Some(1),
        (_, 0) => None,
        (_, ns) => Some(ns),
    })
}

fn from_timeval(ns: Option<u64>) -> Vec<u8> {
    let ns = ns.unwrap_or(0);
    let mut out = Vec::from((ns / 1_000_000_000).to_ne_bytes());
    out.extend_from_slice(&(ns % 1_000_000_000 / 1000).to_ne_bytes());
    out
}

/// Options that are kept as they were set: either they matter to the system-call layer only (time-outs), or to
/// nothing on a machine with one program.
#[derive(Clone, Debug, Default)]
pub struct Common {
    pub receive_timeout: Option<u64>,
    pub send_timeout: Option<u64>,
    pub receive_low_water: u32,
    pub stamps: Stamps,
    /// SO_TXTIME: `struct sock_txtime`. Packets leave at once all the same, as without a queue that knows of times.
    transmit_time: Option<[u8; 8]>,
    /// SO_PASSCRED.
    pub pass_credentials: bool,
    kept: Vec<(u32, i32)>,
    /// SO_LINGER of a socket that never lingers.
    linger: [u8; LINGER],
    /// SO_MAX_PACING_RATE, if one was set: what leaves is not paced, as on Linux without a queue that does it.
    pacing: Option<u64>,
    /// SO_COOKIE, once somebody asked.
    cookie: Option<u64>,
    /// SO_ATTACH_FILTER.
    filter: Option<Arc<Filter>>,
}

/// How recvmsg(2) is to say when a packet came in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Stamp {
    #[default]
    None,
    /// SO_TIMESTAMP: microseconds.
    Micro,
    /// SO_TIMESTAMPNS: nanoseconds.
    Nano,
}

/// SO_TIMESTAMP, SO_TIMESTAMPNS and SO_TIMESTAMPING.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stamps {
    pub plain: Stamp,
    /// SOF_TIMESTAMPING_*.
    pub flags: u32,
    /// The options were called by the names with which 32-bit programs have 64-bit times (SO_TIMESTAMP_NEW): so are the messages.
    pub is_new: bool,
}

/// SOF_TIMESTAMPING_RX_SOFTWARE and SOF_TIMESTAMPING_SOFTWARE: the kernel stamps, and the stamp is reported.
const SOFTWARE_STAMPS: u32 = 1 << 3 | 1 << 4;
/// Bits of SO_TIMESTAMPING that Linux knows, and those that say whose stamps are wanted.
const KNOWN_STAMPS: u32 = (1 << 19) - 1;

impl Stamps {
    /// Some message of a packet's time is to be made.
    pub fn are_wanted(self) -> bool {
        self.plain != Stamp::None || self.flags & SOFTWARE_STAMPS == SOFTWARE_STAMPS
    }

    /// The control messages for a packet of that time: level, type and data.
    pub fn messages(self, at: Timespec) -> impl Iterator<Item = (u32, u32, Vec<u8>)> {
        let pair = |fraction: i64| {
            let mut out = Vec::from(at.seconds.to_ne_bytes());
            out.extend_from_slice(&fraction.to_ne_bytes());
            out
        };
        let nanoseconds = i64::from(at.nanoseconds);
        let name = |old: u32, new: u32| if self.is_new { new } else { old };
        let plain = match self.plain {
            Stamp::None => None,
            Stamp::Micro => {
                Some((name(linux::SO_TIMESTAMP, linux::SO_TIMESTAMP_NEW), pair(nanoseconds / 1000)))
            }
            Stamp::Nano => Some((name(linux::SO_TIMESTAMPNS, linux::SO_TIMESTAMPNS_NEW), pair(nanoseconds))),
        };
        let full = (self.flags & SOFTWARE_STAMPS == SOFTWARE_STAMPS).then(|| {
            // struct scm_timestamping: software, unused, hardware.
            let mut out = pair(nanoseconds);
            out.resize(48, 0);
            (name(linux::SO_TIMESTAMPING, linux::SO_TIMESTAMPING_NEW), out)
        });
        plain.into_iter().chain(full).map(|(kind, data)| (linux::SOL_SOCKET, kind, data))
    }
}

/// Which values an option takes that is kept as it was set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Takes {
    /// Zero, or anything else, which reads back as 1.
    Flag,
    /// What is from the one to the other, and `EINVAL` for all else.
    Range(i32, i32),
}

impl Takes {
    pub const ANY: Takes = Takes::Range(i32::MIN, i32::MAX);
    pub const BOOL: Takes = Takes::Range(0, 1);

    /// What is kept of a value.
    pub fn keep(self, n: i32) -> Result<i32> {
        match self {
            Takes::Flag => Ok(i32::from(n != 0)),
            Takes::Range(least, most) if (least..=most).contains(&n) => Ok(n),
            Takes::Range(..) => Err(EINVAL),
        }
    }
}

/// Integers without effect here, accepted as Linux accepts them: what they are before, and which values they take.
const KEPT: [(u32, i32, Takes); 19] = [
    (linux::SO_DEBUG, 0, Takes::Flag),
    (linux::SO_DONTROUTE, 0, Takes::Flag),
    (linux::SO_PRIORITY, 0, Takes::ANY),
    (linux::SO_OOBINLINE, 0, Takes::Flag),
    (linux::SO_NO_CHECK, 0, Takes::Flag),
    (linux::SO_PASSSEC, 0, Takes::Flag),
    (linux::SO_MARK, 0, Takes::ANY),
    (linux::SO_WIFI_STATUS, 0, Takes::Flag),
    (linux::SO_NOFCS, 0, Takes::Flag),
    (linux::SO_LOCK_FILTER, 0, Takes::Flag),
    (linux::SO_BUSY_POLL, 0, Takes::Range(0, i32::MAX)),
    (linux::SO_INCOMING_CPU, -1, Takes::ANY),
    (linux::SO_RXQ_OVFL, 0, Takes::Flag),
    (linux::SO_TXREHASH, 1, Takes::Range(-1, 1)),
    (linux::SO_SELECT_ERR_QUEUE, 0, Takes::Flag),
    (linux::SO_PREFER_BUSY_POLL, 0, Takes::Flag),
    (linux::SO_BUSY_POLL_BUDGET, 0, Takes::Range(0, 0xffff)),
    (linux::SO_RCVMARK, 0, Takes::Flag),
    // The interface of SO_BINDTODEVICE by its number, which need not be one's.
    (linux::SO_BINDTOIFINDEX, 0, Takes::Range(0, i32::MAX)),
];

/// What matters to streams of IP and their listeners, and is kept by all other sockets.
const INERT: [u32; 4] = [linux::SO_REUSEADDR, linux::SO_REUSEPORT, linux::SO_KEEPALIVE, linux::SO_BROADCAST];
/// `struct linger`.
const LINGER: usize = 8;

/// Numbers of sockets that asked for theirs (SO_COOKIE).
static NEXT_COOKIE: AtomicU64 = AtomicU64::new(1);

/// The length of a value that setsockopt(2) of SOL_SOCKET looks at first: an int for each but an interface's name.
pub fn check_length(name: u32, length: usize) -> Result<()> {
    if length < size_of::<i32>() && name != linux::SO_BINDTODEVICE { Err(EINVAL) } else { Ok(()) }
}

impl Common {
    /// SO_RCVTIMEO or SO_SNDTIMEO, in nanoseconds; `None` waits for ever.
    pub fn timeout_ns(&self, receive: bool) -> Option<u64> {
        if receive { self.receive_timeout } else { self.send_timeout }
    }

    /// There is one kind of stamps at a time, which each of the options switches off (Linux' __sock_set_timestamps).
    fn stamp(&mut self, kind: Stamp, is_new: bool, on: bool) {
        self.stamps.plain = if on { kind } else { Stamp::None };
        if on {
            self.stamps.is_new = is_new;
        }
    }

    /// A clock and flags.
    fn set_transmit_time(&mut self, value: &[u8]) -> Result<()> {
        const FLAGS: i32 = 3;
        let value: [u8; 8] = value.try_into().map_err(|_| EINVAL)?;
        let (clock, flags) = (int(&value)?, int(&value[4..])?);
        if clock < 0 || flags & !FLAGS != 0 {
            return Err(EINVAL);
        }
        self.transmit_time = Some(value);
        Ok(())
    }

    /// `None` when the option is not one of these.
    pub fn set(&mut self, name: u32, value: &[u8]) -> Option<Result<()>> {
        let result = match name {
            linux::SO_RCVTIMEO | linux::SO_RCVTIMEO_NEW => timeval(value).map(|t| self.receive_timeout = t),
            linux::SO_SNDTIMEO | linux::SO_SNDTIMEO_NEW => timeval(value).map(|t| self.send_timeout = t),
            linux::SO_RCVLOWAT => int(value).map(|n| {
                // Negative: as large as can be (Linux).
                self.receive_low_water = if n < 0 { i32::MAX as u32 } else { n.max(1) as u32 };
            }),
            linux::SO_TIMESTAMP | linux::SO_TIMESTAMP_NEW => {
                int(value).map(|n| self.stamp(Stamp::Micro, name == linux::SO_TIMESTAMP_NEW, n != 0))
            }
            linux::SO_TIMESTAMPNS | linux::SO_TIMESTAMPNS_NEW => {
                int(value).map(|n| self.stamp(Stamp::Nano, name == linux::SO_TIMESTAMPNS_NEW, n != 0))
            }
            // An int, or a struct so_timestamping that begins with it.
            linux::SO_TIMESTAMPING | linux::SO_TIMESTAMPING_NEW => int(value).and_then(|flags| {
                if flags as u32 & !KNOWN_STAMPS != 0 {
                    return Err(EINVAL);
                }
                self.stamps.flags = flags as u32;
                self.stamps.is_new = name == linux::SO_TIMESTAMPING_NEW;
                Ok(())
            }),
            linux::SO_TXTIME => self.set_transmit_time(value),
            linux::SO_PASSCRED => int(value).map(|n| self.pass_credentials = n != 0),
            linux::SO_TYPE
            | linux::SO_ERROR
            | linux::SO_DOMAIN
            | linux::SO_PROTOCOL
            | linux::SO_INCOMING_NAPI_ID
            | linux::SO_ACCEPTCONN => Err(ENOPROTOOPT),
            linux::SO_ATTACH_FILTER => self.new_filter(value).map(|filter| self.filter = Some(filter)),
            linux::SO_DETACH_FILTER => {
                self.check_lock().and_then(|()| self.filter.take().map(drop).ok_or(ENOENT))
            }
            linux::SO_BSDCOMPAT => Ok(()),
            // Of sockets that have them, these come here no more.
            linux::SO_PEEK_OFF | linux::SO_ZEROCOPY => Err(EOPNOTSUPP),
            linux::SO_MAX_PACING_RATE => self.set_pacing(value),
            linux::SO_LOCK_FILTER if int(value) == Ok(0) && self.check_lock().is_err() => Err(EPERM),
            _ => {
                let (_, _, takes) = KEPT.iter().find(|(known, ..)| *known == name)?;
                int(value).and_then(|n| takes.keep(n)).and_then(|n| self.keep(name, n))
            }
        };
        Some(result)
    }

    /// `EPERM` when no program may be changed any more (SO_LOCK_FILTER).
    fn check_lock(&self) -> Result<()> {
        if self.is_kept_on(linux::SO_LOCK_FILTER) { Err(EPERM) } else { Ok(()) }
    }

    /// A program that is about to be attached to the socket.
    pub fn new_filter(&self, instructions: &[u8]) -> Result<Arc<Filter>> {
        self.check_lock()?;
        Filter::new(instructions)
    }

    /// What decides about packets before the socket has them.
    pub fn filter(&self) -> Option<Arc<Filter>> {
        self.filter.clone()
    }

    /// What a connection that is accepted has of its listener: the filter, and what keeps it from being changed.
    pub fn inherited(&self) -> Result<Common> {
        let mut common = Common { filter: self.filter(), ..Common::default() };
        if self.check_lock().is_err() {
            common.keep(linux::SO_LOCK_FILTER, 1)?;
        }
        Ok(common)
    }

    /// Number of the interface of SO_BINDTODEVICE and SO_BINDTOIFINDEX; 0: none.
    pub fn interface(&self) -> i32 {
        self.kept(linux::SO_BINDTOIFINDEX).unwrap_or(0)
    }

    /// SO_BINDTODEVICE, whose name the family has looked for.
    pub fn bind_to(&mut self, interface: i32) -> Result<()> {
        self.keep(linux::SO_BINDTOIFINDEX, interface)
    }

    fn keep(&mut self, name: u32, n: i32) -> Result<()> {
        match self.kept.iter_mut().find(|(known, _)| *known == name) {
            Some((_, kept)) => *kept = n,
            None => {
                self.kept.reserve_fallibly(1).map_err(|_| ENOMEM)?;
                self.kept.push((name, n));
            }
        }
        Ok(())
    }

    fn kept(&self, name: u32) -> Option<i32> {
        self.kept.iter().find(|(known, _)| *known == name).map(|(_, n)| *n)
    }

    /// Bytes a second, as an int or a long; as an int -1 is no limit.
    fn set_pacing(&mut self, value: &[u8]) -> Result<()> {
        let long = value.first_chunk().map(|bytes| u64::from_ne_bytes(*bytes));
        let short = || int(value).map(|n| if n == -1 { u64::MAX } else { u64::from(n as u32) });
        self.pacing = Some(long.map_or_else(short, Ok)?);
        Ok(())
    }

    /// SO_ATTACH_REUSEPORT_CBPF and SO_DETACH_REUSEPORT_BPF of a socket that shares no port with others: `None` when the option is
    /// not one of these.
    fn set_group_program(&mut self, name: u32, value: &[u8]) -> Option<Result<()>> {
        match name {
            linux::SO_ATTACH_REUSEPORT_CBPF => Some(self.new_filter(value).and(Err(EINVAL))),
            linux::SO_DETACH_REUSEPORT_BPF if self.is_kept_on(linux::SO_REUSEPORT) => Some(Err(ENOENT)),
            linux::SO_DETACH_REUSEPORT_BPF => Some(Err(EINVAL)),
            _ => None,
        }
    }

    /// Options that a socket keeps for which they mean nothing: `None` when the option is not one of these.
    pub fn set_inert(&mut self, name: u32, value: &[u8]) -> Option<Result<()>> {
        if name == linux::SO_LINGER {
            let linger = value.first_chunk::<LINGER>().ok_or(EINVAL);
            return Some(linger.map(|linger| {
                self.linger = *linger;
                self.linger[..4].copy_from_slice(&i32::from(linger[..4] != [0; 4]).to_ne_bytes());
            }));
        }
        if let Some(result) = self.set_group_program(name, value) {
            return Some(result);
        }
        let known = INERT.contains(&name);
        known.then(|| int(value).and_then(|n| self.keep(name, i32::from(n != 0))))
    }

    /// What [`Common::set_inert`] kept; and credentials of a peer that has none.
    pub fn inert(&self, name: u32) -> Option<Vec<u8>> {
        match name {
            linux::SO_LINGER => Some(Vec::from(self.linger)),
            linux::SO_PEERCRED => {
                Some([0, u32::MAX, u32::MAX].iter().flat_map(|w| w.to_ne_bytes()).collect())
            }
            _ => INERT.contains(&name).then(|| from_int(self.kept(name).unwrap_or(0))),
        }
    }

    /// An option without effect here that was set to something else than zero.
    pub fn is_kept_on(&self, name: u32) -> bool {
        self.kept(name).is_some_and(|n| n != 0)
    }

    /// `None` when the option is not one of these.
    pub fn get(&mut self, name: u32) -> Option<Vec<u8>> {
        Some(match name {
            linux::SO_RCVTIMEO | linux::SO_RCVTIMEO_NEW => from_timeval(self.receive_timeout),
            linux::SO_SNDTIMEO | linux::SO_SNDTIMEO_NEW => from_timeval(self.send_timeout),
            linux::SO_RCVLOWAT => from_int(self.receive_low_water.max(1)),
            linux::SO_SNDLOWAT => from_int(1),
            linux::SO_TIMESTAMP => from_int(self.stamps.plain == Stamp::Micro && !self.stamps.is_new),
            linux::SO_TIMESTAMPNS => from_int(self.stamps.plain == Stamp::Nano && !self.stamps.is_new),
            linux::SO_TIMESTAMP_NEW => from_int(self.stamps.plain != Stamp::None && self.stamps.is_new),
            linux::SO_TIMESTAMPNS_NEW => from_int(self.stamps.plain == Stamp::Nano && self.stamps.is_new),
            linux::SO_TIMESTAMPING | linux::SO_TIMESTAMPING_NEW => {
                let is_shown = name == linux::SO_TIMESTAMPING || self.stamps.is_new;
                // struct so_timestamping: flags, and no clock of a device's.
                let mut out = from_int(if is_shown { self.stamps.flags } else { 0 });
                out.resize(8, 0);
                out
            }
            linux::SO_TXTIME => Vec::from(self.transmit_time.unwrap_or_default()),
            linux::SO_BINDTODEVICE if self.interface() == 0 => Vec::new(),
            linux::SO_INCOMING_NAPI_ID => from_int(0),
            linux::SO_PASSCRED => from_int(self.pass_credentials),
            linux::SO_BSDCOMPAT | linux::SO_ZEROCOPY => from_int(0),
            // SO_GET_FILTER has the same number.
            linux::SO_ATTACH_FILTER => self.filter.as_ref().map_or(Ok(Vec::new()), |f| f.bytes()).ok()?,
            linux::SO_BPF_EXTENSIONS => from_int(SKF_AD_MAX),
            linux::SO_MAX_PACING_RATE => Vec::from(self.pacing.unwrap_or(u64::MAX).to_ne_bytes()),
            linux::SO_COOKIE => {
                let cookie = *self.cookie.get_or_insert_with(|| NEXT_COOKIE.fetch_add(1, Relaxed));
                Vec::from(cookie.to_ne_bytes())
            }
            // It can be set and not be read.
            linux::SO_BUSY_POLL_BUDGET => return None,
            _ => {
                let (_, before, _) = KEPT.iter().find(|(known, ..)| *known == name)?;
                from_int(self.kept(name).unwrap_or(*before))
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timeouts_and_kept_options_read_back_as_they_were_set() {
        let mut common = Common::default();
        let mut timeval = Vec::from(2i64.to_ne_bytes());
        timeval.extend_from_slice(&500_000i64.to_ne_bytes());
        assert_eq!(common.set(linux::SO_RCVTIMEO, &timeval), Some(Ok(())));
        assert_eq!(common.receive_timeout, Some(2_500_000_000));
        assert_eq!(common.get(linux::SO_RCVTIMEO), Some(timeval));
        assert_eq!(common.set(linux::SO_PRIORITY, &6i32.to_ne_bytes()), Some(Ok(())));
        assert_eq!(common.get(linux::SO_PRIORITY), Some(from_int(6)));
        assert_eq!(common.set(linux::SO_PRIORITY, &[1]), Some(Err(EINVAL)));
        assert_eq!(common.set(9999, &[]), None);
        // A flag reads back as 1, a range refuses, and what was never set is as it was.
        assert_eq!(common.set(linux::SO_DEBUG, &7i32.to_ne_bytes()), Some(Ok(())));
        assert_eq!(common.get(linux::SO_DEBUG), Some(from_int(1)));
        assert_eq!(common.set(linux::SO_BUSY_POLL, &(-1i32).to_ne_bytes()), Some(Err(EINVAL)));
        assert_eq!(common.get(linux::SO_INCOMING_CPU), Some(from_int(-1)));
        assert_eq!(common.set(linux::SO_LOCK_FILTER, &1i32.to_ne_bytes()), Some(Ok(())));
        assert_eq!(common.set(linux::SO_LOCK_FILTER, &0i32.to_ne_bytes()), Some(Err(EPERM)));
        assert_eq!(common.get(linux::SO_COOKIE), common.get(linux::SO_COOKIE));
        assert_ne!(common.get(linux::SO_COOKIE), Common::default().get(linux::SO_COOKIE));
        assert_eq!(common.set_inert(linux::SO_KEEPALIVE, &2i32.to_ne_bytes()), Some(Ok(())));
        assert_eq!(common.inert(linux::SO_KEEPALIVE), Some(from_int(1)));
        assert_eq!(common.set_inert(linux::SO_LINGER, &[1; 4]), Some(Err(EINVAL)));
    }

    #[test]
    fn one_kind_of_time_stamp_takes_the_place_of_the_other() {
        let mut common = Common::default();
        let (on, off) = (1i32.to_ne_bytes(), 0i32.to_ne_bytes());
        assert_eq!(common.set(linux::SO_TIMESTAMP, &on), Some(Ok(())));
        assert_eq!(common.set(linux::SO_TIMESTAMPNS, &on), Some(Ok(())));
        assert_eq!(common.get(linux::SO_TIMESTAMP), Some(from_int(0)));
        assert_eq!(common.set(linux::SO_TIMESTAMP_NEW, &on), Some(Ok(())));
        assert_eq!(common.get(linux::SO_TIMESTAMPNS), Some(from_int(0)));
        let messages: Vec<_> = common.stamps.messages(Timespec { seconds: 1, nanoseconds: 5000 }).collect();
        assert_eq!((messages[0].1, &messages[0].2[8..]), (linux::SO_TIMESTAMP_NEW, &5i64.to_ne_bytes()[..]));
        assert_eq!(common.set(linux::SO_TIMESTAMPNS, &off), Some(Ok(())));
        assert!(!common.stamps.are_wanted());
        assert_eq!(common.set(linux::SO_TIMESTAMPNS, &on), Some(Ok(())));
        let messages: Vec<_> = common.stamps.messages(Timespec { seconds: 1, nanoseconds: 5000 }).collect();
        assert_eq!(messages.len(), 1);
        assert_eq!((messages[0].1, &messages[0].2[8..]), (linux::SO_TIMESTAMPNS, &5000i64.to_ne_bytes()[..]));
        assert_eq!(common.set(linux::SO_TIMESTAMPING, &(1i32 << 30).to_ne_bytes()), Some(Err(EINVAL)));
        assert_eq!(common.set(linux::SO_TIMESTAMPING, &SOFTWARE_STAMPS.to_ne_bytes()), Some(Ok(())));
        let messages: Vec<_> = common.stamps.messages(Timespec::default()).collect();
        assert_eq!((messages.len(), messages[1].2.len()), (2, 48));
    }
}
