// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The machine as a whole: its name and size, the kernel's log, its end.

use crate::load;
use abi::setting::PRINTK;
use abi::{Events, Result, errno::*};
use alloc::sync::Arc;
use alloc::vec::Vec;
use api_plat::Status;
use api_user::Sink;
use core::sync::atomic::{AtomicU64, Ordering, Ordering::Relaxed};
use task::call::Call;
use task::identity::capabilities::{CAP_SYS_ADMIN, CAP_SYS_BOOT, CAP_SYSLOG};
use task::processes;
use task::signals::{SIGHUP, SIGINT};
use task::uts::{self, NAME_BYTES, Uts};
use task::wait;

/// The release of Linux whose behaviour this kernel follows; C libraries refuse to start on one too old.
pub const RELEASE: &str = "6.1.0-unilith";
/// The same for programs with UNAME26.
const RELEASE_26: &str = "2.6.61-unilith";
/// personality(2).
const UNAME26: u32 = 0x2_0000;
const PER_MASK: u32 = 0xff;
const PER_LINUX32: u32 = 8;
pub const VERSION: &str = "#1 Unilith micro";
/// A field of `struct new_utsname`, with its NUL.
const FIELD_BYTES: usize = NAME_BYTES + 1;

static MEMORY: AtomicU64 = AtomicU64::new(0);

/// What the machine was given, at boot.
pub fn set_memory(bytes: u64) {
    MEMORY.store(bytes, Ordering::Relaxed);
}

/// Bytes of memory the machine was given.
pub fn memory() -> u64 {
    MEMORY.load(Ordering::Relaxed)
}

/// The names that the caller sees; the machine's own for the kernel.
pub fn names() -> Arc<Uts> {
    task::running().map_or_else(uts::first, |task| task.nsproxy().uts.clone())
}

/// uname(2).
pub fn uname(call: &mut Call<'_>) -> Result<usize> {
    let mut fields = [[0u8; FIELD_BYTES]; 6];
    let names = names();
    let (host, domain) = (names.host_name(), names.domain_name());
    let personality = task::current().settings.personality();
    // For programs that cannot read a first number of 3 or more: Linux' own count goes on in the third (its override_release).
    let release = match personality & UNAME26 {
        0 => RELEASE,
        _ => RELEASE_26,
    };
    let machine: &[u8] = if personality & PER_MASK == PER_LINUX32 { b"i686" } else { b"x86_64" };
    let values: [&[u8]; 6] = [b"Linux", &host, release.as_bytes(), VERSION.as_bytes(), machine, &domain];
    for (field, value) in fields.iter_mut().zip(values) {
        field[..value.len()].copy_from_slice(value);
    }
    call.ptr(0).write(fields)?;
    Ok(0)
}

fn check_may_rename() -> Result<()> {
    let may = task::current().credentials().lock().can_in(&names().owner, CAP_SYS_ADMIN);
    if may { Ok(()) } else { Err(EPERM) }
}

fn read_name(call: &Call<'_>) -> Result<Vec<u8>> {
    check_may_rename()?;
    let length = usize::try_from(call.int(1)).map_err(|_| EINVAL)?;
    if length > NAME_BYTES {
        return Err(EINVAL);
    }
    let mut name = call.ptr::<u8>(0).read_vec(length)?;
    if let Some(end) = name.iter().position(|b| *b == 0) {
        name.truncate(end);
    }
    Ok(name)
}

/// A name that was written to /proc/sys/kernel; `EPERM` without CAP_SYS_ADMIN, which every writer of the superuser's has
/// but one that gave it up.
fn written_name(name: &[u8]) -> Result<Vec<u8>> {
    check_may_rename()?;
    let end = name.iter().position(|byte| matches!(byte, 0 | b'\n')).unwrap_or(name.len());
    Ok(name[..end.min(NAME_BYTES)].to_vec())
}

/// /proc/sys/kernel/hostname.
pub fn store_host_name(name: &[u8]) -> Result<()> {
    names().set_host_name(&written_name(name)?);
    Ok(())
}

/// /proc/sys/kernel/domainname.
pub fn store_domain_name(name: &[u8]) -> Result<()> {
    names().set_domain_name(&written_name(name)?);
    Ok(())
}

/// sethostname(2).
pub fn sethostname(call: &mut Call<'_>) -> Result<usize> {
    names().set_host_name(&read_name(call)?);
    Ok(0)
}

/// setdomainname(2).
pub fn setdomainname(call: &mut Call<'_>) -> Result<usize> {
    names().set_domain_name(&read_name(call)?);
    Ok(0)
}

/// sysinfo(2).
pub fn sysinfo(call: &mut Call<'_>) -> Result<usize> {
    const SECOND: u64 = 1_000_000_000;
    /// SI_LOAD_SHIFT.
    const LOAD_PLACES: u32 = 16;
    let threads = processes::threads() as u64;
    let (_, free) = alloc_frames::statistics();
    // uptime, loads, totalram, freeram, sharedram, bufferram, totalswap, freeswap, procs, totalhigh, freehigh, mem_unit
    let mut words = [0u64; 14];
    // A second that has begun counts.
    words[0] = task::time::namespace::shown_boottime(api_plat::now_ns()).div_ceil(SECOND);
    for (word, average) in words[1..4].iter_mut().zip(load::averages()) {
        *word = average << (LOAD_PLACES - load::PLACES);
    }
    words[4] = memory();
    words[5] = free * abi::PAGE_SIZE as u64;
    words[10] = threads.min(u64::from(u16::MAX));
    words[13] = 1;
    call.ptr(0).write(words)?;
    Ok(0)
}

/// The level of kernel.printk from before SYSLOG_ACTION_CONSOLE_OFF.
static SAVED_LEVEL: AtomicU64 = AtomicU64::new(NOT_SAVED);
const NOT_SAVED: u64 = u64::MAX;

/// syslog(2).
pub fn syslog(call: &mut Call<'_>) -> Result<usize> {
    const CLOSE: i32 = 0;
    const OPEN: i32 = 1;
    const READ: i32 = 2;
    const READ_ALL: i32 = 3;
    const READ_CLEAR: i32 = 4;
    const CLEAR: i32 = 5;
    const CONSOLE_OFF: i32 = 6;
    const CONSOLE_ON: i32 = 7;
    const CONSOLE_LEVEL: i32 = 8;
    const SIZE_UNREAD: i32 = 9;
    const SIZE_BUFFER: i32 = 10;
    let kind = call.int(0);
    let free_for_all = [READ_ALL, SIZE_BUFFER].contains(&kind) && kmsg::RESTRICTED[0].get() == 0;
    if !free_for_all && !task::current().credentials().lock().can(CAP_SYSLOG) {
        return Err(EPERM);
    }
    let [level, _, least, _] = &PRINTK;
    match kind {
        READ..=READ_CLEAR if call.arg(1) == 0 || call.int(2) < 0 => return Err(EINVAL),
        READ => {
            let (to, room) = (call.ptr::<u8>(1), call.int(2) as usize);
            let mut done = 0;
            let mut put = |part: &[u8]| {
                to.add(done as u64).write_slice(part).map(|()| part.len()).inspect(|n| done += n)
            };
            return wait::on_queue(kmsg::changed(), Events::ALL, wait::FOREVER, || {
                kmsg::syslog::read(room, &mut put)
            });
        }
        READ_ALL | READ_CLEAR => {
            let (text, end) = kmsg::syslog::read_all(call.int(2) as usize)?;
            call.ptr::<u8>(1).write_slice(&text)?;
            if kind == READ_CLEAR {
                kmsg::clear_before(end);
            }
            return Ok(text.len());
        }
        CLEAR => kmsg::clear_before(kmsg::bounds().1),
        SIZE_UNREAD => return kmsg::syslog::size_unread(),
        SIZE_BUFFER => return Ok(kmsg::BUFFER_SIZE),
        CLOSE | OPEN => {}
        CONSOLE_OFF => {
            let _ = SAVED_LEVEL.compare_exchange(NOT_SAVED, level.get(), Relaxed, Relaxed);
            level.set(least.get());
        }
        CONSOLE_ON => match SAVED_LEVEL.swap(NOT_SAVED, Relaxed) {
            NOT_SAVED => {}
            saved => level.set(saved),
        },
        CONSOLE_LEVEL if !(1..=8).contains(&call.int(2)) => return Err(EINVAL),
        CONSOLE_LEVEL => {
            level.set(least.get().max(call.int(2) as u64));
            SAVED_LEVEL.store(NOT_SAVED, Relaxed);
        }
        _ => return Err(EINVAL),
    }
    Ok(0)
}

/// reboot(2): halting, switching off and restarting all end the machine; the host decides what comes then.
pub fn reboot(call: &mut Call<'_>) -> Result<usize> {
    const MAGIC1: u32 = 0xfee1_dead;
    const MAGIC2: [u32; 4] = [0x2812_1969, 0x0512_1996, 0x1604_1998, 0x2011_2000];
    const RESTART: u32 = 0x0123_4567;
    const RESTART2: u32 = 0xa1b2_c3d4;
    const HALT: u32 = 0xcdef_0123;
    const POWER_OFF: u32 = 0x4321_fedc;
    const CAD_ON: u32 = 0x89ab_cdef;
    const CAD_OFF: u32 = 0;
    let process = &task::current().process;
    if !task::current().credentials().lock().can_in(&process.pids.owner(), CAP_SYS_BOOT) {
        return Err(EPERM);
    }
    if call.uint(0) != MAGIC1 || !MAGIC2.contains(&call.uint(1)) {
        return Err(EINVAL);
    }
    // In a PID namespace of its own it is the first process that ends, by the signal that says how.
    if let Some(first) = process.pids.first().and_then(processes::find) {
        let number = match call.uint(2) {
            RESTART | RESTART2 => SIGHUP,
            HALT | POWER_OFF => SIGINT,
            _ => return Err(EINVAL),
        };
        task::end::begin(&first, Status::Signal { number: number as u8 });
        crate::end::end_process(Status::Exit { code: 0 });
    }
    match call.uint(2) {
        RESTART | RESTART2 | HALT | POWER_OFF => crate::end::end_machine(Status::Exit { code: 0 }),
        // There is no keyboard.
        CAD_ON | CAD_OFF => Ok(0),
        _ => Err(EINVAL),
    }
}

/// vhangup(2): there is no controlling terminal to hang up.
pub fn vhangup(_: &mut Call<'_>) -> Result<usize> {
    if task::current().credentials().lock().can(CAP_SYS_ADMIN) { Ok(0) } else { Err(EPERM) }
}

/// getrandom(2). The generator is seeded before the program starts, so no flag makes a difference.
pub fn getrandom(call: &mut Call<'_>) -> Result<usize> {
    const GRND_NONBLOCK: u32 = 1;
    const GRND_RANDOM: u32 = 2;
    const GRND_INSECURE: u32 = 4;
    /// Requests up to here are served in full whatever happens (random(7)).
    const UNINTERRUPTED: usize = 256;
    /// Others may run after so many bytes, which take less than a millisecond.
    const BETWEEN_OTHERS: usize = 16 << 10;
    let flags = call.flags(2, GRND_NONBLOCK | GRND_RANDOM | GRND_INSECURE)?;
    if flags & (GRND_RANDOM | GRND_INSECURE) == GRND_RANDOM | GRND_INSECURE {
        return Err(EINVAL);
    }
    let mut to = Sink::user(call.arg(0), call.size(1).min(i32::MAX as usize))?;
    let length = to.remaining();
    let mut chunk = [0u8; UNINTERRUPTED];
    let mut done = 0;
    while done < length {
        let n = (length - done).min(chunk.len());
        api_plat::entropy(&mut chunk[..n]);
        match to.put_up_to_fault(&chunk[..n]) {
            Ok(moved) => done += moved,
            Err(e) if done == 0 => return Err(e),
            Err(_) => break,
        }
        if length > UNINTERRUPTED {
            if done.is_multiple_of(BETWEEN_OTHERS) {
                api_sched::cond_resched();
            }
            if task::current().has_signal() {
                break;
            }
        }
    }
    chunk.fill(0);
    Ok(done)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn structures_have_the_sizes_of_linux() {
        assert_eq!(6 * FIELD_BYTES, 390);
        assert_eq!(size_of::<[u64; 14]>(), 112);
    }
}
