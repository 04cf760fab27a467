// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a signal says about itself: `siginfo_t` (sigaction(2)).

use super::set::{SIGSYS, SPECIFIC_CODES, bit};
use abi::{Events, Result, errno::E2BIG};
use api_user::UserPtr;

/// Sent by kill(2).
pub const SI_USER: i32 = 0;
/// Sent by the kernel.
pub const SI_KERNEL: i32 = 0x80;
/// Sent by sigqueue(3).
pub const SI_QUEUE: i32 = -1;
/// A timer of timer_create(2) expired.
pub const SI_TIMER: i32 = -2;
/// A message came into a queue (mq_notify(2)).
pub const SI_MESGQ: i32 = -3;
/// Sent by tgkill(2).
pub const SI_TKILL: i32 = -6;

/// `sizeof(siginfo_t)`.
pub const SIGINFO_BYTES: usize = 128;
/// The part of `siginfo_t` Linux gives a meaning to.
const WORDS: usize = 6;

/// The part of `siginfo_t` that has a meaning; the rest of its 128 bytes is zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SigInfo([u64; WORDS]);

fn pair(low: i32, high: u32) -> u64 {
    u64::from(low as u32) | u64::from(high) << 32
}

impl SigInfo {
    fn new(signal: i32, code: i32, fields: [u64; 3]) -> SigInfo {
        let [a, b, c] = fields;
        SigInfo([pair(signal, 0), pair(code, 0), a, b, c, 0])
    }

    /// Sent by a process: `si_pid` as the receiver sees it, and `si_uid`.
    pub fn from_process(signal: i32, code: i32, pid: i32, uid: u32) -> SigInfo {
        SigInfo::new(signal, code, [pair(pid, uid), 0, 0])
    }

    /// The same with `si_value`.
    pub fn with_value(mut self, value: u64) -> SigInfo {
        self.0[3] = value;
        self
    }

    /// Sent by the kernel for reasons of its own.
    pub fn from_kernel(signal: i32) -> SigInfo {
        SigInfo::new(signal, SI_KERNEL, [0, 0, 0])
    }

    /// Raised by an instruction: `si_addr`.
    pub fn fault(signal: i32, code: i32, address: u64) -> SigInfo {
        SigInfo::new(signal, code, [address, 0, 0])
    }

    /// A system call that is not allowed: `si_errno`, `si_call_addr`, `si_syscall` and `si_arch`.
    pub fn bad_call(code: i32, errno: i32, address: u64, number: i32, architecture: u32) -> SigInfo {
        let mut info = SigInfo::new(SIGSYS, code, [address, pair(number, architecture), 0]);
        info.0[0] = pair(SIGSYS, errno as u32);
        info
    }

    /// A timer of timer_create(2): `si_timerid`, `si_overrun`, `si_value`.
    pub fn timer(signal: i32, id: i32, overrun: i32, value: u64) -> SigInfo {
        SigInfo::new(signal, SI_TIMER, [pair(id, overrun as u32), value, 0])
    }

    /// A child ended, stopped or went on: `si_pid`, `si_uid`, `si_status`, `si_utime` and `si_stime` in clock ticks.
    pub fn child(signal: i32, code: i32, pid: i32, uid: u32, status: i32, times: [u64; 2]) -> SigInfo {
        let mut info = SigInfo::new(signal, code, [pair(pid, uid), u64::from(status as u32), times[0]]);
        info.0[5] = times[1];
        info
    }

    /// The same without the times, as waitid(2) tells it.
    pub fn without_times(mut self) -> SigInfo {
        self.0[4..].fill(0);
        self
    }

    /// What waitid(2) with WNOHANG tells when nothing happened.
    pub fn nothing() -> SigInfo {
        SigInfo([0; WORDS])
    }

    /// Something became possible on a descriptor: `si_band` and `si_fd`.
    pub fn poll(signal: i32, code: i32, band: Events, fd: i32) -> SigInfo {
        SigInfo::new(signal, code, [u64::from(band.0), pair(fd, 0), 0])
    }

    /// Reads what rt_sigqueueinfo(2) got; the signal's number is `signal`, whatever the structure says. `E2BIG` when
    /// bytes without a meaning are set, as Linux has it.
    pub fn read(pointer: UserPtr<[u64; SIGINFO_BYTES / 8]>, signal: i32) -> Result<SigInfo> {
        let raw = pointer.read()?;
        let mut info = SigInfo([raw[0], raw[1], raw[2], raw[3], raw[4], raw[5]]);
        info.0[0] = info.0[0] >> 32 << 32 | u64::from(signal as u32);
        if raw[WORDS..].iter().any(|w| *w != 0) && !info.has_known_layout() {
            return Err(E2BIG);
        }
        Ok(info)
    }

    /// Linux' `known_siginfo_layout`.
    fn has_known_layout(&self) -> bool {
        const MAX_POLL_CODES: i32 = 6;
        const MAX_SPECIFIC_CODES: i32 = 15;
        match self.code() {
            SI_KERNEL => true,
            code if code > 0 => {
                let specific = bit(self.signal()) & SPECIFIC_CODES != 0;
                code <= if specific { MAX_SPECIFIC_CODES } else { MAX_POLL_CODES }
            }
            // SI_USER down to SI_DETHREAD, and SI_ASYNCNL.
            code => code >= -7 || code == -60,
        }
    }

    /// It says which process sent it (Linux' `has_si_pid_and_uid`).
    pub fn has_sender(&self) -> bool {
        match self.code() {
            SI_TIMER => false,
            code if code <= 0 => true,
            _ => self.signal() == super::set::SIGCHLD,
        }
    }

    /// The same, sent by somebody whom the receiver cannot see.
    pub fn without_pid(mut self) -> SigInfo {
        self.0[2] = pair(0, self.uid());
        self
    }

    pub fn signal(&self) -> i32 {
        self.0[0] as i32
    }

    pub fn errno(&self) -> i32 {
        (self.0[0] >> 32) as i32
    }

    pub fn code(&self) -> i32 {
        self.0[1] as i32
    }

    /// `si_pid`, and `si_timerid` of timers.
    pub fn pid(&self) -> i32 {
        self.0[2] as i32
    }

    /// `si_uid`, and `si_overrun` of timers.
    pub fn uid(&self) -> u32 {
        (self.0[2] >> 32) as u32
    }

    /// `si_addr`.
    pub fn address(&self) -> u64 {
        self.0[2]
    }

    /// `si_value`, and `si_status` of SIGCHLD in its lower half.
    pub fn value(&self) -> u64 {
        self.0[3]
    }

    pub fn set_overrun(&mut self, overrun: i32) {
        self.0[2] = pair(self.pid(), overrun as u32);
    }

    /// As the program sees it.
    pub fn to_user(self) -> [u64; SIGINFO_BYTES / 8] {
        let mut out = [0; SIGINFO_BYTES / 8];
        out[..WORDS].copy_from_slice(&self.0);
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use abi::linux::general as linux;

    fn native(info: SigInfo) -> linux::siginfo__bindgen_ty_1__bindgen_ty_1 {
        let words = info.to_user();
        // SAFETY: the structure is plain data that fits in the 128 bytes.
        unsafe { core::ptr::read_unaligned(words.as_ptr().cast()) }
    }

    #[test]
    fn fields_lie_where_linux_has_them() {
        assert_eq!(size_of::<linux::siginfo>(), SIGINFO_BYTES);
        let sent = native(SigInfo::from_process(10, SI_TKILL, 7, 1000));
        assert_eq!((sent.si_signo, sent.si_errno, sent.si_code), (10, 0, SI_TKILL));
        // SAFETY: all fields of the union are plain data.
        unsafe {
            assert_eq!((sent._sifields._kill._pid, sent._sifields._kill._uid), (7, 1000));
            let fault = native(SigInfo::fault(11, 1, 0x1234));
            assert_eq!(fault._sifields._sigfault._addr as u64, 0x1234);
            let timer = native(SigInfo::timer(14, 3, 5, 99));
            let t = timer._sifields._timer;
            assert_eq!((t._tid, t._overrun, t._sigval.sival_ptr as u64), (3, 5, 99));
        }
    }

    #[test]
    fn codes_without_a_known_layout_are_recognised() {
        let known = |signal, code| SigInfo::new(signal, code, [0; 3]).has_known_layout();
        assert!(known(10, SI_QUEUE) && known(10, SI_KERNEL) && known(11, 2));
        assert!(!known(10, 7) && !known(10, -8));
    }
}
