// SPDX-License-Identifier: Apache-2.0 OR MIT
//! signalfd(2): signals read from a descriptor. Who reads takes the signals pending for the reader and its process.

use abi::{Events, Result, errno::*};
use alloc::sync::Arc;
use api_fs::{File, FileType, Sink, Stat};
use api_sched::WaitQueue;
use core::any::Any;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
use task::call::Call;
use task::files::{self, O_CLOEXEC};
use task::process::Process;
use task::signals::{self, SI_TIMER, SIGINFO_BYTES, SigInfo, check_set_size, *};

const O_NONBLOCK: u32 = 0o4000;
const O_RDWR: u32 = 2;

/// The file.
pub struct SignalFd {
    wanted: AtomicU64,
    process: Arc<Process>,
}

impl File for SignalFd {
    fn anonymous_name(&self) -> &'static str {
        "[signalfd]"
    }

    fn read(&self, _: u64, to: &mut Sink<'_>) -> Result<usize> {
        let room = to.remaining() / SIGINFO_BYTES;
        if room == 0 {
            return Err(EINVAL);
        }
        let task = task::current();
        let mut done = 0;
        for _ in 0..room {
            let Some(info) = signals::take(&task, self.wanted.load(Relaxed)) else { break };
            match to.put(&record(&info)) {
                Ok(n) => done += n,
                Err(e) if done == 0 => return Err(e),
                Err(_) => break,
            }
        }
        if done == 0 { Err(EAGAIN) } else { Ok(done) }
    }

    fn can_write(&self) -> bool {
        false
    }

    fn stat(&self) -> Result<Stat> {
        Ok(Stat::new(FileType::Anonymous, 0o600))
    }

    fn poll(&self) -> Events {
        // A kernel thread that asks on behalf of an epoll has no signals of its own.
        let pending = match task::running() {
            Some(task) => task.signals.pending() | task.process.signals.pending(),
            None => self.process.signals.pending(),
        };
        Events::NONE.with(Events::IN, pending & self.wanted.load(Relaxed) != 0)
    }

    fn wait_queue(&self) -> Option<&WaitQueue> {
        Some(&signals::ARRIVED)
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// POLL_IN to POLL_HUP.
const POLL_CODES: core::ops::RangeInclusive<i32> = 1..=6;

/// `struct signalfd_siginfo`.
fn record(info: &SigInfo) -> [u8; SIGINFO_BYTES] {
    const SI_SIGIO: i32 = -5;
    let mut out = [0u8; SIGINFO_BYTES];
    let mut put = |at: usize, value: u64, bytes: usize| {
        out[at..at + bytes].copy_from_slice(&value.to_ne_bytes()[..bytes]);
    };
    let (pid, uid, value) = (info.pid() as u64, u64::from(info.uid()), info.value());
    put(0, info.signal() as u64, 4);
    put(4, info.errno() as u64, 4);
    put(8, info.code() as u64, 4);
    let from_kernel = info.code() > 0;
    // Codes of readiness, whatever the signal (Linux' siginfo_layout).
    let has_codes = SYNCHRONOUS | bit(SIGCHLD);
    let of_readiness = POLL_CODES.contains(&info.code()) && bit(info.signal()) & has_codes == 0;
    if info.code() == SI_TIMER {
        // ssi_tid, ssi_overrun, ssi_int, ssi_ptr
        put(24, pid, 4);
        put(32, uid, 4);
        put(44, value, 4);
        put(48, value, 8);
    } else if info.code() == SI_SIGIO || of_readiness {
        // ssi_fd, ssi_band
        put(20, value, 4);
        put(28, info.address(), 4);
    } else if from_kernel && bit(info.signal()) & SYNCHRONOUS != 0 {
        put(72, info.address(), 8);
    } else {
        // ssi_pid, ssi_uid, then ssi_status, or ssi_int and ssi_ptr
        put(12, pid, 4);
        put(16, uid, 4);
        if from_kernel && info.signal() == SIGCHLD {
            put(40, value, 4);
        } else {
            put(44, value, 4);
            put(48, value, 8);
        }
    }
    out
}

fn make(call: &Call<'_>, flags: u32) -> Result<usize> {
    check_set_size(call.size(2))?;
    let wanted = call.ptr::<SignalSet>(1).read()? & !UNBLOCKABLE;
    let fd = call.int(0);
    if fd == -1 {
        let file = SignalFd { wanted: AtomicU64::new(wanted), process: task::current().process.clone() };
        return files::current().install(Arc::new(file), flags | O_RDWR).map(|fd| fd as usize);
    }
    let description = files::get(fd)?;
    let file = description.file().as_any().downcast_ref::<SignalFd>().ok_or(EINVAL)?;
    file.wanted.store(wanted, Relaxed);
    // What is pending already may be wanted now.
    signals::ARRIVED.wake(Events::READABLE);
    Ok(fd as usize)
}

/// signalfd(2).
pub fn signalfd(call: &mut Call<'_>) -> Result<usize> {
    make(call, 0)
}

/// signalfd4(2).
pub fn signalfd4(call: &mut Call<'_>) -> Result<usize> {
    let flags = call.flags(3, O_CLOEXEC | O_NONBLOCK)?;
    make(call, flags)
}

#[cfg(test)]
mod tests {
    use super::*;
    use task::signals::{SI_QUEUE, SI_USER};

    fn word(record: &[u8], at: usize) -> u32 {
        u32::from_ne_bytes(record[at..at + 4].try_into().unwrap())
    }

    #[test]
    fn a_record_says_who_sent_the_signal() {
        let sent = record(&SigInfo::from_process(SIGTERM, SI_USER, 7, 1000));
        assert_eq!([word(&sent, 0), word(&sent, 12), word(&sent, 16)], [15, 7, 1000]);
        let queued = record(&SigInfo::from_process(40, SI_QUEUE, 7, 1000));
        assert_eq!(word(&queued, 8) as i32, SI_QUEUE);
        let timer = record(&SigInfo::timer(SIGALRM, 3, 9, 0x1_0000_0002));
        assert_eq!([word(&timer, 24), word(&timer, 32), word(&timer, 44), word(&timer, 52)], [3, 9, 2, 1]);
        let fault = record(&SigInfo::fault(SIGSEGV, 1, 0x1234));
        assert_eq!([word(&fault, 12), word(&fault, 72)], [0, 0x1234]);
    }
}
