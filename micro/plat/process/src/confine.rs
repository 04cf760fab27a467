// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Giving up everything the machine does not need, before the program runs.

use crate::arguments::Arguments;
use crate::filter::{Filter, Instruction, Machine, Open, filter};
use crate::{domain, host, host_processes, memory, processors, template};
use abi::errno::EACCES;
use plat_x86::{asm, features};

const PR_SET_NO_NEW_PRIVS: u64 = 38;
const PR_SET_SYSCALL_USER_DISPATCH: u64 = 59;
const PR_SYS_DISPATCH_ON: u64 = 1;
const SECCOMP_SET_MODE_FILTER: u64 = 1;
const SECCOMP_FILTER_FLAG_TSYNC: u64 = 1;

/// SYSCALL_DISPATCH_FILTER_BLOCK. Not writable: nobody can turn the dispatch off.
static BLOCK: u8 = 1;

/// `struct sock_fprog`.
#[repr(C)]
pub struct Program {
    length: u16,
    code: *const Instruction,
}

impl Program {
    /// Of a filter that stays where it is until it is installed.
    #[inline(always)]
    pub fn new(filter: &Filter) -> Program {
        Program { length: filter.code().len() as u16, code: filter.code().as_ptr() }
    }

    /// Lets the host refuse all but what the filter allows; on all threads, or on this one.
    #[inline(always)]
    pub fn install(&self, all: bool) -> abi::Result<()> {
        let flags = if all { SECCOMP_FILTER_FLAG_TSYNC } else { 0 };
        let at = core::ptr::from_ref(self) as u64;
        // SAFETY: takes rights away that nothing here uses; the host copies the filter.
        match unsafe { host::call(host::SECCOMP, [SECCOMP_SET_MODE_FILTER, flags, at, 0, 0, 0]) }? {
            0 => Ok(()),
            // The number of a thread that refuses: none has a filter of its own.
            _ => Err(EACCES),
        }
    }
}

/// Closes what is nobody's, sends the program's own system calls to the kernel, and lets the host refuse all but the calls
/// of [`filter`]. The error is a sentence for the user.
pub fn confine(arguments: &Arguments<'_>) -> Result<(), &'static str> {
    let sockets = template::sockets();
    close_others(arguments, &sockets);
    let open = open(arguments, &sockets);
    if let Some(first) = open.given {
        fill_numbers(first).map_err(|_| "the host refuses descriptors: is RLIMIT_NOFILE set?")?;
    }
    processors::start(arguments.cpus)?;
    // SAFETY: these take rights away that nothing here uses.
    unsafe {
        dispatch().map_err(
            |_| "the host has no Syscall User Dispatch: Linux 5.11 or later has it (CONFIG_GENERIC_ENTRY)",
        )?;
        host::call(host::PRCTL, [PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0, 0])
            .map_err(|_| "the host refuses PR_SET_NO_NEW_PRIVS")?;
    }
    Program::new(&allowed(open))
        .install(processors::has_others())
        .map_err(|_| "the host refuses a seccomp filter: its kernel needs CONFIG_SECCOMP_FILTER")
}

/// The filter of this machine, of which nothing is shared with anybody. Its files are told: a host process that is being made does not
/// know them by itself.
pub fn allowed(open: Open) -> Filter {
    let text = asm::text();
    let fsgsbase = features::features().fsgsbase;
    filter(&Machine {
        files: memory::descriptors(),
        text: text.clone(),
        closed: domain::closed_text(),
        variables: domain::variables(),
        by_call: !fsgsbase,
        several: processors::has_others().then(|| host_processes::thread(0, 0)),
        in_turns: template::is_there(),
        open,
    })
}

/// The machine's disks, and where the numbers of files begin that servers of its volumes may give it: behind all of its own.
pub fn open(arguments: &Arguments<'_>, sockets: &[i32]) -> Open {
    let fds = || arguments.disks.iter().flatten().map(|disk| disk.fd);
    let disks = fds().min().unwrap_or(0)..fds().max().map_or(0, |last| last + 1);
    let last = own(arguments, sockets).into_iter().filter(|fd| *fd != NONE).max().unwrap_or(0);
    Open { disks, given: has_volumes(arguments).then_some(last + 1) }
}

/// Its 9p servers may give it files.
pub fn has_volumes(arguments: &Arguments<'_>) -> bool {
    arguments.volumes.iter().any(Option::is_some)
}

/// Takes every number that is free below `first`, for what is harmless: standard input once more.
fn fill_numbers(first: i32) -> abi::Result<()> {
    loop {
        let fd = host::duplicate(0)?;
        if fd >= first {
            host::close(fd);
            return Ok(());
        }
    }
}

/// Sends system calls of the program by this thread of the host to the kernel.
pub fn dispatch() -> abi::Result<()> {
    let text = asm::text();
    let dispatch = [
        PR_SET_SYSCALL_USER_DISPATCH,
        PR_SYS_DISPATCH_ON,
        text.start,
        text.end - text.start,
        &raw const BLOCK as u64,
        0,
    ];
    // SAFETY: takes a right away that nothing of the kernel uses.
    unsafe { host::call(host::PRCTL, dispatch) }.map(|_| ())
}

/// Standard streams, memory, archive, status, network, line, volumes, what is told of them, disks, the template's sockets.
const KEPT: usize = 11 + crate::arguments::NETWORKS + crate::arguments::VOLUMES + crate::arguments::DISKS;
/// No descriptor.
const NONE: i32 = i32::MAX;

/// The machine's descriptors and `more`, sorted.
fn own(arguments: &Arguments<'_>, more: &[i32]) -> [i32; KEPT] {
    let mut kept = [NONE; KEPT];
    let volumes = arguments.volumes.iter().flatten().map(|(_, fd)| *fd);
    let others = [0, 1, 2].into_iter().chain(arguments.status).chain(memory::descriptors());
    let others = others.chain(more.iter().copied().filter(|fd| *fd >= 0));
    let disks = arguments.disks.iter().flatten().map(|disk| disk.fd);
    let networks = arguments.networks.iter().flatten().map(|network| network.fd);
    let all =
        others.chain(networks).chain(arguments.line).chain(arguments.changes).chain(volumes).chain(disks);
    kept.iter_mut().zip(all).for_each(|(slot, fd)| *slot = fd);
    kept.sort_unstable();
    kept
}

/// Closes every descriptor that is none of the machine's or of `more`.
pub fn close_others(arguments: &Arguments<'_>, more: &[i32]) {
    let mut next = 0u64;
    for fd in own(arguments, more) {
        let Ok(fd) = u64::try_from(fd) else { continue };
        if fd > next {
            let last = (fd - 1).min(u32::MAX.into());
            // SAFETY: nobody uses a descriptor that is not in the list. Linux 5.9 has the call; SUD is younger.
            let _ = unsafe { host::call(host::CLOSE_RANGE, [next, last, 0, 0, 0, 0]) };
        }
        next = next.max(fd + 1);
    }
}
