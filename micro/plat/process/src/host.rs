// SPDX-License-Identifier: Apache-2.0 OR MIT
//! System calls of the host. Numbers and structures are those of Linux on x86-64; names are those of the manual pages.

use abi::{
    Errno, Result,
    errno::{EINTR, EMFILE},
};

pub const READ: u32 = 0;
pub const WRITE: u32 = 1;
pub const CLOSE: u32 = 3;
pub const FSTAT: u32 = 5;
pub const GETPID: u32 = 39;
pub const MMAP: u32 = 9;
pub const MPROTECT: u32 = 10;
pub const MUNMAP: u32 = 11;
pub const RT_SIGACTION: u32 = 13;
pub const RT_SIGRETURN: u32 = 15;
pub const IOCTL: u32 = 16;
pub const READV: u32 = 19;
pub const WRITEV: u32 = 20;
pub const RECVMSG: u32 = 47;
pub const SCHED_YIELD: u32 = 24;
pub const MADVISE: u32 = 28;
pub const SOCKETPAIR: u32 = 53;
pub const CLONE: u32 = 56;
pub const FCNTL: u32 = 72;
pub const FDATASYNC: u32 = 75;
pub const FTRUNCATE: u32 = 77;
pub const SETRLIMIT: u32 = 160;
pub const SIGALTSTACK: u32 = 131;
pub const PRCTL: u32 = 157;
pub const ARCH_PRCTL: u32 = 158;
pub const FUTEX: u32 = 202;
pub const TIMER_CREATE: u32 = 222;
pub const TIMER_SETTIME: u32 = 223;
pub const CLOCK_GETTIME: u32 = 228;
pub const EXIT_GROUP: u32 = 231;
pub const TGKILL: u32 = 234;
pub const PPOLL: u32 = 271;
pub const PREADV: u32 = 295;
pub const PWRITEV: u32 = 296;
pub const PREADV2: u32 = 327;
pub const SECCOMP: u32 = 317;
pub const GETRANDOM: u32 = 318;
pub const MEMFD_CREATE: u32 = 319;
pub const MEMBARRIER: u32 = 324;
pub const CLOSE_RANGE: u32 = 436;

pub const PROT_READ: u32 = 1;
pub const PROT_WRITE: u32 = 2;
pub const PROT_EXEC: u32 = 4;
pub const MAP_SHARED: u32 = 1;
pub const MAP_PRIVATE: u32 = 2;
pub const MAP_FIXED: u32 = 0x10;
pub const MAP_ANONYMOUS: u32 = 0x20;
pub const MAP_NORESERVE: u32 = 0x4000;
pub const MAP_POPULATE: u32 = 0x8000;

pub const POLLIN: i16 = 1;
pub const POLLOUT: i16 = 4;

/// `struct pollfd`.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct PollFd {
    pub fd: i32,
    pub events: i16,
    pub revents: i16,
}

/// `struct timespec`.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct TimeSpec {
    pub seconds: i64,
    pub nanoseconds: i64,
}

impl TimeSpec {
    pub const fn of_ns(ns: u64) -> TimeSpec {
        TimeSpec { seconds: (ns / 1_000_000_000) as i64, nanoseconds: (ns % 1_000_000_000) as i64 }
    }

    pub const fn ns(self) -> u64 {
        self.seconds as u64 * 1_000_000_000 + self.nanoseconds as u64
    }
}

/// `struct iovec`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct IoVec {
    pub base: *mut u8,
    pub length: usize,
}

impl IoVec {
    pub const EMPTY: IoVec = IoVec { base: core::ptr::null_mut(), length: 0 };

    /// For writing from the bytes.
    pub fn of(bytes: &[u8]) -> IoVec {
        IoVec { base: bytes.as_ptr().cast_mut(), length: bytes.len() }
    }

    /// For reading into the bytes.
    pub fn of_mut(bytes: &mut [u8]) -> IoVec {
        IoVec { base: bytes.as_mut_ptr(), length: bytes.len() }
    }
}

/// One call of the host.
///
/// # Safety
///
/// What the call does to the memory and the state of the process is the caller's business.
#[inline]
pub unsafe fn call(number: u32, arguments: [u64; 6]) -> Result<usize> {
    let [a, b, c, d, e, f] = arguments;
    let result: i64;
    // SAFETY: by the caller's word; the instruction itself changes RAX, RCX and R11 only.
    unsafe {
        core::arch::asm!("syscall", inlateout("rax") u64::from(number) => result, in("rdi") a, in("rsi") b,
            in("rdx") c, in("r10") d, in("r8") e, in("r9") f, lateout("rcx") _, lateout("r11") _, options(nostack));
    }
    if (-4095..0).contains(&result) { Err(Errno(-result as u16)) } else { Ok(result as usize) }
}

/// Writes what fits now.
#[inline]
pub fn write(fd: i32, bytes: &[u8]) -> Result<usize> {
    // SAFETY: the host reads the slice only.
    unsafe { call(WRITE, [fd as u64, bytes.as_ptr() as u64, bytes.len() as u64, 0, 0, 0]) }
}

/// Reads what is there.
#[inline]
pub fn read(fd: i32, bytes: &mut [u8]) -> Result<usize> {
    // SAFETY: the host writes inside the slice only.
    unsafe { call(READ, [fd as u64, bytes.as_mut_ptr() as u64, bytes.len() as u64, 0, 0, 0]) }
}

/// Writes one message of several parts.
///
/// # Safety
///
/// Each part is readable memory.
#[inline]
pub unsafe fn writev(fd: i32, parts: &[IoVec]) -> Result<usize> {
    // SAFETY: by the caller's word.
    unsafe { call(WRITEV, [fd as u64, parts.as_ptr() as u64, parts.len() as u64, 0, 0, 0]) }
}

/// Reads one message into several parts.
///
/// # Safety
///
/// Each part is memory that nobody else uses.
#[inline]
pub unsafe fn readv(fd: i32, parts: &[IoVec]) -> Result<usize> {
    // SAFETY: by the caller's word.
    unsafe { call(READV, [fd as u64, parts.as_ptr() as u64, parts.len() as u64, 0, 0, 0]) }
}

/// Reads several parts from a place of a file.
///
/// # Safety
///
/// Each part is memory that the kernel does not use meanwhile.
pub unsafe fn preadv(fd: i32, parts: &[IoVec], offset: u64) -> Result<usize> {
    // SAFETY: by the caller's word. The offset's upper half has an argument of its own, which 64-bit hosts ignore.
    unsafe { call(PREADV, [fd as u64, parts.as_ptr() as u64, parts.len() as u64, offset, 0, 0]) }
}

/// Writes several parts to a place of a file.
///
/// # Safety
///
/// Each part is readable memory.
pub unsafe fn pwritev(fd: i32, parts: &[IoVec], offset: u64) -> Result<usize> {
    // SAFETY: as in `preadv`.
    unsafe { call(PWRITEV, [fd as u64, parts.as_ptr() as u64, parts.len() as u64, offset, 0, 0]) }
}

/// As [`preadv`], of what the host has in memory: `EAGAIN` where it would have to wait for it, `EOPNOTSUPP` where it cannot tell.
///
/// # Safety
///
/// As of [`preadv`].
pub unsafe fn preadv_at_hand(fd: i32, parts: &[IoVec], offset: u64) -> Result<usize> {
    const RWF_NOWAIT: u64 = 8;
    let (start, count) = (parts.as_ptr() as u64, parts.len() as u64);
    // SAFETY: as in `preadv`.
    unsafe { call(PREADV2, [fd as u64, start, count, offset, 0, RWF_NOWAIT]) }
}

/// Lets others of the host run who share this processor.
pub fn sched_yield() {
    // SAFETY: touches no memory.
    let _ = unsafe { call(SCHED_YIELD, [0; 6]) };
}

/// Closes a descriptor that nobody uses any more.
pub fn close(fd: i32) {
    // SAFETY: touches no memory. Whatever it answers, the descriptor is closed (close(2)).
    let _ = unsafe { call(CLOSE, [fd as u64, 0, 0, 0, 0, 0]) };
}

/// The lowest number that is free, for what `fd` stands for as well. Before the filter is there.
pub fn duplicate(fd: i32) -> Result<i32> {
    const F_DUPFD_CLOEXEC: u64 = 1030;
    // SAFETY: makes a descriptor.
    unsafe { call(FCNTL, [fd as u64, F_DUPFD_CLOEXEC, 0, 0, 0, 0]) }.map(|fd| fd as i32)
}

/// What came through a stream socket.
pub struct Received {
    pub length: usize,
    /// A descriptor that came with the last of these bytes, or was lost on its way (unix(7), SCM_RIGHTS).
    pub given: Option<Result<i32>>,
}

/// `struct msghdr`.
#[repr(C)]
struct MessageHeader {
    name: u64,
    name_length: u64,
    parts: *const IoVec,
    part_count: u64,
    control: *mut Control,
    control_length: u64,
    flags: u64,
}

/// `struct cmsghdr` and one descriptor, padded.
#[repr(C)]
#[derive(Default)]
struct Control {
    length: u64,
    level: i32,
    kind: i32,
    fd: i32,
    pad: i32,
}

/// Reads what is there, with the descriptor that came along. They come one at a time.
pub fn receive(fd: i32, bytes: &mut [u8]) -> Result<Received> {
    const SOL_SOCKET: i32 = 1;
    const SCM_RIGHTS: i32 = 1;
    const MSG_CTRUNC: u64 = 8;
    const MSG_CMSG_CLOEXEC: u64 = 0x4000_0000;
    /// Bytes of a header and one descriptor.
    const ONE: u64 = 20;
    let part = IoVec { base: bytes.as_mut_ptr(), length: bytes.len() };
    let mut control = Control::default();
    let mut header = MessageHeader {
        name: 0,
        name_length: 0,
        parts: &raw const part,
        part_count: 1,
        control: &raw mut control,
        control_length: size_of::<Control>() as u64,
        flags: 0,
    };
    // SAFETY: the host writes to the slice, to our header and to our control message only.
    let length = unsafe { call(RECVMSG, [fd as u64, &raw mut header as u64, MSG_CMSG_CLOEXEC, 0, 0, 0]) }?;
    let has_one = header.control_length >= ONE
        && control.length >= ONE
        && (control.level, control.kind) == (SOL_SOCKET, SCM_RIGHTS);
    // `flags` is an int.
    let is_lost = header.flags & MSG_CTRUNC != 0;
    let given = if has_one { Some(Ok(control.fd)) } else { is_lost.then_some(Err(EMFILE)) };
    Ok(Received { length, given })
}

/// What was written to a file is on stable storage when it returns.
pub fn fdatasync(fd: i32) -> Result<()> {
    // SAFETY: touches no memory.
    unsafe { call(FDATASYNC, [fd as u64, 0, 0, 0, 0, 0]) }.map(|_| ())
}

/// Bytes of a file, before the filter is there.
pub fn size(fd: i32) -> Result<u64> {
    // `struct stat`: st_size is the seventh word.
    let mut stat = [0u64; 18];
    // SAFETY: the host writes 144 bytes.
    unsafe { call(FSTAT, [fd as u64, stat.as_mut_ptr() as u64, 0, 0, 0, 0]) }?;
    Ok(stat[6])
}

/// No file can be made longer than this by this process or those that it makes, before the filter is there.
pub fn limit_file_size(bytes: u64) -> Result<()> {
    const RLIMIT_FSIZE: u64 = 1;
    // `struct rlimit`: soft and hard.
    let limit = [bytes; 2];
    // SAFETY: the host reads our array.
    unsafe { call(SETRLIMIT, [RLIMIT_FSIZE, limit.as_ptr() as u64, 0, 0, 0, 0]) }.map(|_| ())
}

/// Maps at a fixed place.
///
/// # Safety
///
/// Nothing that is in use is mapped there.
pub unsafe fn map(address: u64, length: u64, rights: u32, flags: u32, fd: i32, offset: u64) -> Result<()> {
    let flags = u64::from(flags | MAP_FIXED);
    // SAFETY: by the caller's word.
    unsafe { call(MMAP, [address, length, rights.into(), flags, fd as i64 as u64, offset]) }.map(|_| ())
}

/// Waits until one of the descriptors is ready or the time is over; how many are.
pub fn poll(descriptors: &mut [PollFd], timeout: Option<TimeSpec>) -> Result<usize> {
    let mut timeout = timeout;
    let timeout = timeout.as_mut().map_or(0, |t| core::ptr::from_mut(t) as u64);
    let (start, count) = (descriptors.as_mut_ptr() as u64, descriptors.len() as u64);
    // SAFETY: the host writes to the slice and to our copy of the time only.
    unsafe { call(PPOLL, [start, count, timeout, 0, 8, 0]) }
}

/// Writes all of it, waiting where that is needed. What cannot be written is lost: nobody reads it any more.
pub fn write_all(fd: i32, mut bytes: &[u8]) {
    while !bytes.is_empty() {
        match write(fd, bytes) {
            Ok(n) => bytes = &bytes[n.min(bytes.len())..],
            Err(EINTR) => {}
            Err(abi::errno::EAGAIN) => {
                // A descriptor that somebody else made non-blocking.
                let _ = poll(&mut [PollFd { fd, events: POLLOUT, revents: 0 }], None);
            }
            Err(_) => return,
        }
    }
}

/// `CLOCK_REALTIME` or `CLOCK_MONOTONIC` in nanoseconds.
pub fn clock(id: u32) -> u64 {
    let mut time = TimeSpec::default();
    // SAFETY: the host writes our structure only.
    let _ = unsafe { call(CLOCK_GETTIME, [id.into(), &raw mut time as u64, 0, 0, 0, 0]) };
    time.ns()
}

pub const CLOCK_REALTIME: u32 = 0;
pub const CLOCK_MONOTONIC: u32 = 1;

/// Makes the descriptor non-blocking.
pub fn set_non_blocking(fd: i32) -> Result<()> {
    const F_GETFL: u64 = 3;
    const F_SETFL: u64 = 4;
    const O_NONBLOCK: u64 = 0o4000;
    // SAFETY: changes a flag of a descriptor that is ours.
    unsafe {
        let flags = call(FCNTL, [fd as u64, F_GETFL, 0, 0, 0, 0])? as u64;
        call(FCNTL, [fd as u64, F_SETFL, flags | O_NONBLOCK, 0, 0, 0]).map(|_| ())
    }
}

/// ioctl(2) with a pointer to `argument`.
///
/// # Safety
///
/// `T` is what the request reads and writes.
pub unsafe fn ioctl<T>(fd: i32, request: u32, argument: &mut T) -> Result<()> {
    // SAFETY: by the caller's word.
    unsafe { call(IOCTL, [fd as u64, request.into(), core::ptr::from_mut(argument) as u64, 0, 0, 0]) }
        .map(|_| ())
}

/// Ends the machine.
#[cfg(not(test))]
pub fn exit(code: u8) -> ! {
    crate::host_processes::end(code)
}

/// Ends this process of the host.
pub fn leave(code: u8) -> ! {
    loop {
        // SAFETY: nothing runs after it.
        let _ = unsafe { call(EXIT_GROUP, [code.into(), 0, 0, 0, 0, 0]) };
    }
}
