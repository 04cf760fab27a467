// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The functions of `unilith/blockdev.h`, with the addresses that the program gave.

use abi::{Events, Result, errno::*};
use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;
use api_alloc::Reserve;
use api_blockdev::{BlockDevice, Completion, Info, Operation, QUEUE, Request};
use api_lock::SpinLock;
use api_mem::{Gather, PageFrame};
use api_sched::WaitQueue;

/// Requests or completions that one call takes or gives at most.
pub const BURST: usize = 64;

/// `struct unilith_block_request` and `struct unilith_block_completion`.
const REQUEST: usize = 32;
const COMPLETION: usize = 16;

/// Holds the pages of a range of the program's memory (`mem::Space::hold`), to be written to or not.
pub type Hold = fn(address: u64, length: usize, is_written: bool) -> Vec<PageFrame>;

#[derive(Clone, Copy, PartialEq, Eq)]
enum User {
    Nobody,
    Program,
    FileSystem,
}

struct Disk {
    device: Arc<dyn BlockDevice>,
    user: User,
    /// Requests whose completions the program has not been given.
    in_flight: usize,
    /// Its interrupts lead here.
    has_interrupts: bool,
    /// Completions that were taken from the device and could not be written to the program's memory, or were looked for.
    taken: VecDeque<Completion>,
}

static DISKS: SpinLock<Vec<Disk>> = SpinLock::new(Vec::new());

/// Threads that sleep until a request is done.
static WAITERS: WaitQueue = WaitQueue::new();

/// Whom to wait with for [`ready`].
pub fn waiters() -> &'static WaitQueue {
    &WAITERS
}

/// Adds a device, before the program runs.
pub fn add(device: Arc<dyn BlockDevice>) {
    DISKS.lock().push(Disk {
        device,
        user: User::Nobody,
        in_flight: 0,
        has_interrupts: false,
        taken: VecDeque::new(),
    });
}

fn interrupted() {
    WAITERS.wake_all(Events::IN);
}

pub fn count() -> usize {
    DISKS.lock().len()
}

/// Gives a device to a user.
fn take(index: usize, user: User) -> Result<Arc<dyn BlockDevice>> {
    let mut taken = VecDeque::new();
    taken.reserve_exact_fallibly(BURST).map_err(|_| ENOMEM)?;
    let (device, has_interrupts) = {
        let mut disks = DISKS.lock();
        let disk = disks.get_mut(index).ok_or(ENODEV)?;
        if disk.user != User::Nobody {
            return Err(EBUSY);
        }
        (disk.user, disk.taken) = (user, taken);
        (disk.device.clone(), core::mem::replace(&mut disk.has_interrupts, true))
    };
    if !has_interrupts {
        device.on_interrupt(api_sched::add_deferred_work(interrupted))?;
    }
    Ok(device)
}

/// Takes a device back that has no requests.
pub fn give_back(index: usize) {
    if let Some(disk) = DISKS.lock().get_mut(index) {
        disk.user = User::Nobody;
    }
}

/// Gives a device to a file system of the kernel's.
pub fn take_for_file_system(index: usize) -> Result<Arc<dyn BlockDevice>> {
    take(index, User::FileSystem)
}

/// `unilith_blockdev_open`.
pub fn open(index: usize, info: u64) -> Result<usize> {
    let description = describe(DISKS.lock().get(index).ok_or(ENODEV)?.device.info());
    api_user::write_bytes(info, &description)?;
    take(index, User::Program).map(|_| 0)
}

/// `struct unilith_blockdev_info`.
fn describe(info: Info) -> [u8; 24] {
    let mut out = [0; 24];
    out[..8].copy_from_slice(&info.sectors.to_ne_bytes());
    let words = [info.sector_size as u32, info.largest as u32, QUEUE as u32, u32::from(info.read_only)];
    for (to, word) in out[8..].chunks_exact_mut(4).zip(words) {
        to.copy_from_slice(&word.to_ne_bytes());
    }
    out
}

fn opened(disks: &mut [Disk], index: usize) -> Result<&mut Disk> {
    disks.get_mut(index).filter(|disk| disk.user == User::Program).ok_or(EBADF)
}

/// What the program asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Asked {
    buffer: u64,
    sector: u64,
    tag: u64,
    sectors: u32,
    operation: u32,
}

impl Asked {
    fn from_bytes(bytes: &[u8; REQUEST]) -> Asked {
        let word = |n: usize| bytes.as_chunks().0.get(n).map_or(0, |word| u64::from_ne_bytes(*word));
        let last = word(3);
        Asked {
            buffer: word(0),
            sector: word(1),
            tag: word(2),
            sectors: last as u32,
            operation: (last >> 32) as u32,
        }
    }

    /// The request, if the device may have it. `hold` may fault: no lock is held.
    fn check(self, info: Info, hold: Hold) -> Result<Request> {
        let operation = match self.operation {
            0 => Operation::Read,
            1 => Operation::Write,
            2 => Operation::Flush,
            _ => return Err(EINVAL),
        };
        let length = self.sectors as usize * info.sector_size;
        let is_empty = length == 0;
        if is_empty != (operation == Operation::Flush) || length > info.largest {
            return Err(EINVAL);
        }
        if self.sector.checked_add(self.sectors.into()).is_none_or(|end| end > info.sectors) && !is_empty {
            return Err(EINVAL);
        }
        if info.read_only && operation != Operation::Read {
            return Err(EROFS);
        }
        let is_written = operation == Operation::Read;
        let mut memory = Gather { frames: Vec::new(), offset: 0, length, is_written };
        if !is_empty {
            memory.offset = (self.buffer % abi::PAGE_SIZE as u64) as usize;
            memory.frames = hold(self.buffer, length, is_written);
            if memory.frames.len() != (memory.offset + length).div_ceil(abi::PAGE_SIZE) {
                return Err(EFAULT);
            }
        }
        let sector = if is_empty { 0 } else { self.sector };
        Ok(Request { operation, sector, memory, tag: self.tag })
    }
}

/// `unilith_blockdev_submit`.
pub fn submit(index: usize, requests: u64, count: usize, hold: Hold) -> Result<usize> {
    let device = opened(&mut DISKS.lock(), index)?.device.clone();
    let mut bytes = [0; BURST * REQUEST];
    let bytes = &mut bytes[..count.min(BURST) * REQUEST];
    api_user::read_bytes(requests, bytes)?;
    let info = device.info();
    let mut accepted = 0;
    let mut refused = Ok(());
    for asked in bytes.as_chunks().0 {
        match Asked::from_bytes(asked).check(info, hold) {
            Ok(request) => {
                // Counted before: another thread may be given the completion at once.
                opened(&mut DISKS.lock(), index)?.in_flight += 1;
                if device.submit(request).is_err() {
                    opened(&mut DISKS.lock(), index)?.in_flight -= 1;
                    break;
                }
            }
            Err(e) => {
                refused = Err(e);
                break;
            }
        }
        accepted += 1;
    }
    if accepted > 0 {
        device.notify();
        return Ok(accepted);
    }
    refused.map(|()| 0)
}

/// `struct unilith_block_completion`.
fn report(completion: &Completion) -> [u8; COMPLETION] {
    let result = match completion.result {
        Ok(()) => 0,
        Err(e) => -i32::from(e.0),
    };
    let value = u128::from(completion.tag) | u128::from(result as u32) << 64;
    value.to_le_bytes()
}

/// `unilith_blockdev_poll`.
pub fn poll(index: usize, completions: u64, count: usize) -> Result<usize> {
    let mut bytes = [0; BURST * COMPLETION];
    let mut given = 0;
    let mut list: [Option<Completion>; BURST] = [const { None }; BURST];
    {
        let mut disks = DISKS.lock();
        let disk = opened(&mut disks, index)?;
        while given < count.min(BURST) {
            let next = disk.taken.pop_front().or_else(|| disk.device.complete());
            let Some(completion) = next else { break };
            bytes[given * COMPLETION..][..COMPLETION].copy_from_slice(&report(&completion));
            list[given] = Some(completion);
            given += 1;
        }
    }
    if given == 0 {
        return Ok(0);
    }
    let written = api_user::write_bytes(completions, &bytes[..given * COMPLETION]);
    let mut disks = DISKS.lock();
    let disk = opened(&mut disks, index)?;
    match written {
        Ok(()) => disk.in_flight -= given,
        Err(_) => list.into_iter().rev().flatten().for_each(|completion| disk.taken.push_front(completion)),
    }
    written.map(|()| given)
}

/// Whether a request is done: 0 when the device has none. `EAGAIN` when there will be an interrupt when one is.
pub fn ready(index: usize) -> Result<usize> {
    let mut disks = DISKS.lock();
    let disk = opened(&mut disks, index)?;
    loop {
        if disk.taken.is_empty() {
            disk.taken.extend(disk.device.complete());
        }
        if !disk.taken.is_empty() || disk.in_flight == 0 {
            return Ok(usize::from(!disk.taken.is_empty()));
        }
        if disk.device.arm_interrupt() {
            return Err(EAGAIN);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use abi::PAGE_SIZE;
    use api_sched::DeferredWork;

    fn info() -> Info {
        Info { sectors: 1000, sector_size: 512, read_only: false, largest: 64 << 10 }
    }

    fn hold(address: u64, length: usize, _: bool) -> Vec<PageFrame> {
        // Nothing is mapped in the first page.
        let pages = (address as usize % PAGE_SIZE + length).div_ceil(PAGE_SIZE);
        if address < PAGE_SIZE as u64 {
            Vec::new()
        } else {
            (0..pages).map(|_| PageFrame::new().unwrap()).collect()
        }
    }

    fn asked(operation: u32, sector: u64, sectors: u32) -> Asked {
        Asked { buffer: 0x1200, sector, tag: 7, sectors, operation }
    }

    #[test]
    fn requests_are_read_as_the_header_declares_them() {
        let mut bytes = [0; REQUEST];
        for (n, byte) in bytes.iter_mut().enumerate() {
            *byte = n as u8;
        }
        let asked = Asked::from_bytes(&bytes);
        assert_eq!(asked.buffer, 0x0706_0504_0302_0100);
        assert_eq!(asked.sector, 0x0f0e_0d0c_0b0a_0908);
        assert_eq!(asked.tag, 0x1716_1514_1312_1110);
        assert_eq!((asked.sectors, asked.operation), (0x1b1a_1918, 0x1f1e_1d1c));
    }

    #[test]
    fn what_a_device_may_have_lies_within_it() {
        let check = |asked: Asked| asked.check(info(), hold).map(|r| (r.sector, r.memory.frames.len()));
        assert_eq!(check(asked(0, 0, 1)), Ok((0, 1)));
        assert_eq!(check(asked(1, 999, 1)), Ok((999, 1)));
        // 0x200 into its first page, to behind the end of it.
        assert_eq!(check(asked(1, 992, 8)), Ok((992, 2)));
        assert_eq!(check(asked(2, u64::MAX, 0)), Ok((0, 0)));
        for (operation, sector, sectors) in [
            (0, 1000, 1),
            (0, 999, 2),
            (1, u64::MAX, 1),
            (0, u64::MAX - 1, 2),
            (0, 0, 0),
            (0, 0, 129),
            (0, 0, u32::MAX),
            (2, 0, 1),
            (3, 0, 1),
            (u32::MAX, 0, 1),
        ] {
            assert_eq!(
                check(asked(operation, sector, sectors)),
                Err(EINVAL),
                "{operation} {sector} {sectors}"
            );
        }
        assert_eq!(check(Asked { buffer: 0xff0, ..asked(0, 0, 1) }), Err(EFAULT));
        let read_only = Info { read_only: true, ..info() };
        let check = |operation, sectors| asked(operation, 0, sectors).check(read_only, hold).map(|_| ());
        assert_eq!([check(0, 1), check(1, 1), check(2, 0)], [Ok(()), Err(EROFS), Err(EROFS)]);
    }

    #[test]
    fn completions_are_written_as_the_header_declares_them() {
        let bytes = report(&Completion { tag: 0x0807_0605_0403_0201, result: Err(EIO) });
        assert_eq!(bytes[..8], [1, 2, 3, 4, 5, 6, 7, 8]);
        assert_eq!(bytes[8..12], (-5i32).to_ne_bytes());
        assert_eq!(report(&Completion { tag: 0, result: Ok(()) }), [0; 16]);
    }

    /// A device that is done with a request when the test says so.
    struct Fake {
        queue: SpinLock<VecDeque<Completion>>,
    }

    impl BlockDevice for Fake {
        fn info(&self) -> Info {
            info()
        }

        fn submit(&self, request: Request) -> core::result::Result<(), Request> {
            self.queue.lock().push_back(Completion { tag: request.tag, result: Ok(()) });
            Ok(())
        }

        fn notify(&self) {}

        fn complete(&self) -> Option<Completion> {
            self.queue.lock().pop_front()
        }

        fn arm_interrupt(&self) -> bool {
            self.queue.lock().is_empty()
        }

        fn on_interrupt(&self, _: DeferredWork) -> Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_program_waits_for_what_it_has_asked_for_alone() {
        let fake = Arc::new(Fake { queue: SpinLock::new(VecDeque::new()) });
        let index = count();
        add(fake.clone());
        assert_eq!(ready(index), Err(EBADF));
        DISKS.lock()[index].user = User::Program;
        assert_eq!(ready(index), Ok(0));
        DISKS.lock()[index].in_flight = 1;
        assert_eq!(ready(index), Err(EAGAIN));
        fake.queue.lock().push_back(Completion { tag: 1, result: Ok(()) });
        assert_eq!((ready(index), ready(index)), (Ok(1), Ok(1)));
        assert_eq!(DISKS.lock()[index].taken.len(), 1);
    }
}
